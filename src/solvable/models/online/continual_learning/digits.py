r"""Two tasks in succession on handwritten digits: forgetting and transfer when their pixels are mixed, and protocols of replay.

**Data.** Four digits (a, b, c, d), drawn with the seed. Task 1 tells a (+1) from b (−1). An image of task 2 mixes pixels:
γ times an image of a or b plus 1 − γ times one of c or d, with label +1 for (a, c) and −1 for (b, d). At γ = 1 the tasks
are the same, at γ = 0 they share nothing but the learner. Images are centred, with variance one per pixel on average; those
of the test are never trained on.

**Learner.** That of `ContinualLearning` and `ContinualProtocols`: K erf units shared by both tasks, a head for each,
gradient descent on ½(f − y)² with one image per step, time in steps per pixel. After a time t_1 on task 1, a schedule says
which fraction of the images comes from task 2.

The theory assumes Gaussian inputs without structure, teachers of one unit and fresh samples; here inputs are images, classes are
not a teacher's, and images are seen many times. What carries over is measured, not assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from solvable.errors import InvalidValue
from solvable.methods.averages.activations import activation
from solvable.methods.data.digits import PIXELS, digit_images
from solvable.methods.flows.descent import descend

TRAINED, TESTED = 120, 54
"""Images of each digit (the rarest has 174)."""

HEADS = {"specialised": (0.14, 0.99), "shared": (0.7, 0.714)}
"""First head at the start, alternating over the units: one of two carries the task, or both do."""

SECOND_HEAD, FIRST_SCALE = 0.3, 1e-3


class Images(NamedTuple):
    """The four digits of a seed, to train on and to test: images of a, b, c, d along the first axis."""

    trained: Float[Array, "*lanes 4 n pixels"]
    tested: Float[Array, "*lanes 4 m pixels"]


def draw_digits(seed: int) -> tuple[tuple[int, ...], Images]:
    """Four different digits, and their images in an order of their own.

    >>> digits, images = draw_digits(0)
    >>> len(set(digits)), images.trained.shape, images.tested.shape
    (4, (4, 120, 64), (4, 54, 64))
    """
    rng = np.random.default_rng(seed)
    pictures, labels = digit_images()
    digits = tuple(int(d) for d in rng.choice(10, 4, replace=False))
    rows = [rng.permutation(np.flatnonzero(labels == d))[: TRAINED + TESTED] for d in digits]
    chosen = np.stack([pictures[r] for r in rows]).astype(np.float32)
    return digits, Images(jnp.asarray(chosen[:, :TRAINED]), jnp.asarray(chosen[:, TRAINED:]))


def linear_similarity(images: Images, mixing: float, ridge: float = 1.0) -> float:
    """Correlation over all four digits of the fields of the best linear readouts of both tasks: what γ is to two teachers.

    >>> bool(abs(linear_similarity(draw_digits(0)[1], 1.0) - 1) < 1e-6)
    True
    """
    a, b, c, d = np.asarray(images.trained, float)
    fields, everything = [], np.concatenate([a, b, c, d])
    for share in (1.0, float(mixing)):
        x = np.concatenate([share * a + (1 - share) * c, share * b + (1 - share) * d])
        y = np.repeat([1.0, -1.0], len(a))
        weights = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)
        fields.append(everything @ weights)
    return float(np.corrcoef(*fields)[0, 1])


class Lane(NamedTuple):
    """One network and what it is shown."""

    images: Images
    weights: Float[Array, "units pixels"]
    heads: Float[Array, "2 units"]
    mixing: Float[Array, ""]
    fractions: Float[Array, " intervals"]
    key: Array


def _predict(weights: Array, head: Array, x: Array) -> Array:
    return erf(x @ weights.T / np.sqrt(2 * PIXELS).astype(np.float32)) @ head


def _scores(lane: Lane, weights: Array, heads: Array) -> tuple[Array, Array]:
    """Half the mean squared error and the fraction of wrong signs of both tasks, on the test."""
    own, other = lane.images.tested[:2], lane.images.tested[2:]
    signs = jnp.asarray([[1.0], [-1.0]], own.dtype)
    losses, errors = [], []
    for head, x in ((heads[0], own), (heads[1], lane.mixing * own + (1 - lane.mixing) * other)):
        out = _predict(weights, head, x)
        losses.append(0.5 * jnp.mean((out - signs) ** 2))
        errors.append(jnp.mean((signs * out <= 0).astype(x.dtype)))
    return jnp.stack(losses), jnp.stack(errors)


@eqx.filter_jit
def _learn(lanes: Lane, rates: tuple[Array, Array], steps: tuple[int, int], points: int, copied: bool) -> Any:
    """Both stages of every lane: test losses and errors at the start and after each of `points` + intervals stretches."""

    def one(lane: Lane) -> Any:
        rate, readout_rate = rates
        root, g = np.float32(np.sqrt(PIXELS)), activation("erf")

        def step(number: Array, network: tuple[Array, Array], fraction: Array) -> tuple[Array, Array]:
            weights, heads = network
            drawn = jax.random.uniform(jax.random.fold_in(lane.key, number), (4,), weights.dtype)
            second = (drawn[0] < fraction).astype(jnp.int32)
            side = (drawn[1] < 0.5).astype(jnp.int32)
            one, other = (drawn[2:] * TRAINED).astype(jnp.int32)
            x, mixed = lane.images.trained[side, one], lane.images.trained[2 + side, other]
            share = jnp.where(second == 1, lane.mixing, 1.0)
            x = share * x + (1 - share) * mixed
            fields = weights @ x / root
            hidden, slope = g.function(fields), g.derivative(fields)
            head = heads[second]
            error = head @ hidden - (1 - 2 * side).astype(x.dtype)
            weights = weights - (rate / root * error * head * slope)[:, None] * x[None, :]
            return weights, heads.at[second].add(-readout_rate / PIXELS * error * hidden)

        def measure(network: tuple[Array, Array]) -> tuple[Array, Array]:
            return _scores(lane, *network)

        intervals = lane.fractions.shape[0]
        first = np.linspace(0, steps[0], points + 1).round().astype(np.int32)
        second = steps[0] + np.linspace(0, steps[1], intervals + 1).round().astype(np.int32)
        zeros = jnp.zeros(points, lane.fractions.dtype)
        start = (lane.weights, lane.heads)
        before = descend(step, start, jnp.asarray(first[1:]), measure, zeros, measure_start=True)
        weights, heads = before.state
        heads = jnp.stack([heads[0], heads[0]]) if copied else heads
        # the second stage begins with the heads as they are after the switch, and so does what is measured
        ends = jnp.asarray(second[1:])
        after = descend(step, (weights, heads), ends, measure, lane.fractions, begin=before.steps, measure_start=True)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[:-1], b]), before.path, after.path)

    return jax.vmap(one)(lanes)


def continual_digits(
    mixing: Sequence[float] | np.ndarray = (0.0, 0.25, 0.5, 0.75, 1.0),
    *,
    seeds: int = 8,
    start: str = "specialised",
    head: str = "fresh",
    protocols: Mapping[str, Any] | None = None,
    intervals: int = 20,
    first_stage: float = 40.0,
    second_stage: float = 40.0,
    students: int = 2,
    rate: float = 1.0,
    readout_rate: float = 1.0,
) -> Any:
    """Train on task 1, then by each protocol; a dataset over protocol, mixing, seed, stage and task.

    **Arguments:**
    - `mixing`: γ, the weight of task 1's digits in the images of task 2, each in [0, 1].
    - `seeds`: each draws digits, split and network; all mixings and protocols share them, so that differences are paired.
    - `start`, `head`: as in `ContinualLearning`: of the first head, and what the second is at the switch.
    - `protocols`: fractions of images from task 2 in `intervals` equal parts of the second stage, by name; without, task 2 alone.

    Beside `test_loss` and `test_error` stand `forgetting` (loss of task 1 at the end above that at the switch), `transfer` (loss
    of task 2 at the start above that at the switch), `final_loss` (mean of both at the end) and `linear_similarity`.

    >>> found = continual_digits([1.0], seeds=1, first_stage=2, second_stage=1, intervals=2)
    >>> dict(found.test_loss.sizes)
    {'protocol': 1, 'mixing': 1, 'seed': 1, 'stage': 5, 'task': 2}
    """
    import xarray as xr

    amounts = np.atleast_1d(np.asarray(mixing, float))
    schedules = {"no-replay": np.ones(intervals)} if protocols is None else dict(protocols)
    _check(amounts, schedules, start, head, dict(seeds=seeds, intervals=intervals, students=students),
           dict(first_stage=first_stage, second_stage=second_stage, rate=rate, readout_rate=readout_rate))  # fmt: skip
    drawn = [draw_digits(seed) for seed in range(seeds)]
    units = np.arange(students) % 2
    heads = jnp.asarray(np.stack([np.where(units, *HEADS[start][::-1]), np.full(students, SECOND_HEAD)]), jnp.float32)

    def lane(seed: int, amount: float, fractions: Any) -> Lane:
        begin, walk = jax.random.split(jax.random.key(seed))
        weights = FIRST_SCALE * jax.random.normal(begin, (students, PIXELS), jnp.float32)
        as_number = jnp.asarray(amount, jnp.float32)
        return Lane(drawn[seed][1], weights, heads, as_number, jnp.asarray(fractions, jnp.float32), walk)

    shape = (len(schedules), len(amounts), seeds)
    every = [lane(s, a, f) for f in schedules.values() for a in amounts for s in range(seeds)]
    steps = (max(1, round(PIXELS * first_stage)), max(1, round(PIXELS * second_stage)))
    rates = (jnp.asarray(rate, jnp.float32), jnp.asarray(readout_rate, jnp.float32))
    found = _learn(jax.tree.map(lambda *x: jnp.stack(x), *every), rates, steps, intervals, head == "copied")
    losses, errors = (np.asarray(x, float).reshape(*shape, 2 * intervals + 1, 2) for x in found)
    dims, where = ("protocol", "mixing", "seed", "stage", "task"), ("protocol", "mixing", "seed")
    alike = [[linear_similarity(images, a) for _, images in drawn] for a in amounts]
    return xr.Dataset(
        {
            "test_loss": (dims, losses),
            "test_error": (dims, errors),
            "forgetting": (where, losses[..., -1, 0] - losses[..., intervals, 0]),
            "transfer": (where, losses[..., 0, 1] - losses[..., intervals, 1]),
            "final_loss": (where, losses[..., -1, :].mean(-1)),
            "final_error": (where, errors[..., -1, :].mean(-1)),
            "linear_similarity": (("mixing", "seed"), np.array(alike)),
            "digits": (("seed", "digit"), np.array([digits for digits, _ in drawn])),
            "fraction": (("protocol", "interval"), np.array([np.asarray(f, float) for f in schedules.values()])),
        },
        {
            "protocol": list(schedules), "mixing": amounts, "seed": np.arange(seeds), "task": [1, 2],
            "stage": np.linspace(0.0, 2.0, 2 * intervals + 1),
        },
        dict(start=start, head=head, first_stage=float(first_stage), second_stage=float(second_stage), students=students,
             rate=float(rate), readout_rate=float(readout_rate)),
    )  # fmt: skip


def _check(
    mixing: np.ndarray,
    protocols: dict[str, Any],
    start: str,
    head: str,
    whole: dict[str, int],
    numbers: dict[str, float],
) -> None:
    """Refuse what makes no sense, in one sentence."""
    wrong = mixing[~((mixing >= 0) & (mixing <= 1))]
    if wrong.size or not mixing.size:
        raise InvalidValue(f"mixing = {wrong[0]:g} is not in [0, 1]." if wrong.size else "mixing is empty.")
    for name, value, allowed in (("start", start, tuple(HEADS)), ("head", head, ("fresh", "copied"))):
        if value not in allowed:
            raise InvalidValue(f"{name} = {value!r} is not one of {', '.join(map(repr, allowed))}.")
    for name, value in whole.items():
        if not isinstance(value, (int, np.integer)) or not 1 <= value <= 10_000:
            raise InvalidValue(f"{name} = {value!r} is not a whole number in [1, 10000].")
    for name, value in numbers.items():
        if not 0 < value <= 10_000:
            raise InvalidValue(f"{name} = {value!r} is not in (0, 10000].")
    if not protocols:
        raise InvalidValue("protocols is empty: give at least one schedule.")
    for name, schedule in protocols.items():
        fractions = np.asarray(schedule, float)
        if fractions.shape != (whole["intervals"],):
            raise InvalidValue(f"protocol {name!r} has shape {fractions.shape}, not one fraction for each of "
                               f"{whole['intervals']} intervals.")  # fmt: skip
        if not np.all((fractions >= 0) & (fractions <= 1)):
            raise InvalidValue(f"protocol {name!r} has a fraction outside [0, 1].")
