"""Train batches of networks on two tasks of mixed digits; see `model` for the tasks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from solvable.methods.averages.activations import activation
from solvable.methods.data.digits import PIXELS, digit_images
from solvable.methods.flows.descent import descend

TRAINED, TESTED = 120, 54
"""Images of each digit (the rarest has 174)."""

HEADS = {"specialised": (0.14, 0.99), "shared": (0.7, 0.714)}
"""Initial first head, alternating over the units: one of two carries the task, or both do."""

SECOND_HEAD, FIRST_SCALE = 0.3, 1e-3


class Images(NamedTuple):
    """Training and test images of the four digits of a seed: a, b, c, d along the first axis."""

    trained: Float[Array, "*lanes 4 n pixels"]
    tested: Float[Array, "*lanes 4 m pixels"]


def draw_digits(seed: Any) -> tuple[tuple[int, ...], Images]:
    """Four different digits and their shuffled images; `seed` is anything that `numpy.random.default_rng` accepts.

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
    """Correlation, over all four digits, of the best linear readouts of both tasks: the counterpart of γ for two teachers.

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
    """A network at initialisation, with its data."""

    images: Images
    weights: Float[Array, "units pixels"]
    heads: Float[Array, "2 units"]
    mixing: Float[Array, ""]
    fractions: Float[Array, " intervals"]
    key: Array


def lane(
    images: Images, key: Array, start: str, students: int, mixing: Any, fractions: Any, dtype: Any = jnp.float32
) -> Lane:
    """A network with small random weights, and all of its data."""
    begin, walk = jax.random.split(key)
    weights = FIRST_SCALE * jax.random.normal(begin, (students, PIXELS), dtype)
    alternating = np.where(np.arange(students) % 2, *HEADS[start][::-1])
    heads = jnp.asarray(np.stack([alternating, np.full(students, SECOND_HEAD)]), dtype)
    shown = Images(*(part.astype(dtype) for part in images))
    return Lane(shown, weights, heads, jnp.asarray(mixing, dtype), jnp.asarray(fractions, dtype), walk)


def _predict(weights: Array, head: Array, x: Array) -> Array:
    return erf(x @ weights.T / math.sqrt(2 * PIXELS)) @ head


def _scores(lane: Lane, weights: Array, heads: Array) -> tuple[Array, Array]:
    """Half the mean squared error and the fraction of wrong signs of both tasks, on the test set."""
    own, other = lane.images.tested[:2], lane.images.tested[2:]
    signs = jnp.asarray([[1.0], [-1.0]], own.dtype)
    losses, errors = [], []
    for head, x in ((heads[0], own), (heads[1], lane.mixing * own + (1 - lane.mixing) * other)):
        out = _predict(weights, head, x)
        losses.append(0.5 * jnp.mean((out - signs) ** 2))
        errors.append(jnp.mean((signs * out <= 0).astype(x.dtype)))
    return jnp.stack(losses), jnp.stack(errors)


def learn(
    lanes: Lane, *, rate: Any, readout_rate: Any, first_stage: float, second_stage: float, copied: bool
) -> tuple[Array, Array]:
    """Losses and errors of every lane: at the start, after each interval on task 1, then after each interval of the protocol.

    Both stages have as many intervals as the protocol.
    """
    steps = (max(1, round(PIXELS * float(first_stage))), max(1, round(PIXELS * float(second_stage))))
    rates = (jnp.asarray(rate, lanes.weights.dtype), jnp.asarray(readout_rate, lanes.weights.dtype))
    return _learn(lanes, rates, steps, copied)


@eqx.filter_jit
def _learn(lanes: Lane, rates: tuple[Array, Array], steps: tuple[int, int], copied: bool) -> Any:
    def one(lane: Lane) -> Any:
        rate, readout_rate = rates
        root, g = math.sqrt(PIXELS), activation("erf")
        intervals = lane.fractions.shape[0]
        number_of_images = lane.images.trained.shape[1]

        def step(number: Array, network: tuple[Array, Array], fraction: Array) -> tuple[Array, Array]:
            weights, heads = network
            drawn = jax.random.uniform(jax.random.fold_in(lane.key, number), (4,), weights.dtype)
            second = (drawn[0] < fraction).astype(jnp.int32)
            side = (drawn[1] < 0.5).astype(jnp.int32)
            one, other = (drawn[2:] * number_of_images).astype(jnp.int32)
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

        first = np.linspace(0, steps[0], intervals + 1).round().astype(np.int32)
        second = steps[0] + np.linspace(0, steps[1], intervals + 1).round().astype(np.int32)
        zeros = jnp.zeros(intervals, lane.fractions.dtype)
        start = (lane.weights, lane.heads)
        before = descend(step, start, jnp.asarray(first[1:]), measure, zeros, measure_start=True)
        weights, heads = before.state
        heads = jnp.stack([heads[0], heads[0]]) if copied else heads
        # the second stage, and its measurements, start with the heads as they are after the switch
        ends = jnp.asarray(second[1:])
        after = descend(step, (weights, heads), ends, measure, lane.fractions, begin=before.steps, measure_start=True)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[:-1], b]), before.path, after.path)

    return jax.vmap(one)(lanes)
