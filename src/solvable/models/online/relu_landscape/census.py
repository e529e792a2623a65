"""Where descents from random starts end, how these minima are connected, and descent on single samples near a fixed point."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from .model import MOMENTUM, ReluLandscape
from .relu_loss import relu_curvature, relu_gradient, relu_loss

SAME_LOSS = 1e-6  # relative difference of losses of the same minimum
STILL = 1e-9  # gradient at which a descent has ended
ALIKE = 1e-4  # difference of entries of equivalent units


@partial(jax.jit, static_argnames=("units", "extra", "starts", "steps"))
def descents(key: Array, units: int, extra: int, starts: int, steps: int) -> tuple[Array, Array, Array]:
    """Final weights (starts, K, M), losses and gradient norms of descents with momentum on the exact loss."""
    width, teacher = units + extra, jnp.eye(units)
    begin = jax.random.normal(key, (starts, width, units), float) / np.sqrt(units)
    pull, pace = jax.vmap(lambda w: relu_gradient(w, teacher)), 4 / (width + 8)

    def step(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        w, speed = carry
        speed = MOMENTUM * speed - pace * pull(w)
        return w + speed, speed

    w, _ = jax.lax.fori_loop(0, steps, step, (begin, jnp.zeros_like(begin)))
    return w, jax.vmap(lambda w: relu_loss(w, teacher))(w), jnp.sqrt(jnp.sum(pull(w) ** 2, axis=(1, 2)))


def groups_alike(weights: np.ndarray) -> tuple[int, ...]:
    """Sizes of the groups of teacher units that the student treats alike, falling: (M,) for the teacher, (M-1, 1) for `turned`.

    Two units are alike if the student's overlaps with them are the same numbers, in any order: this is necessary for a
    symmetry that exchanges them.

    >>> groups_alike(np.diag([1.0, 1.0, -1.0])), groups_alike(np.eye(3))
    ((2, 1), (3,))
    """
    columns, sizes = [np.sort(column) for column in weights.T], []
    while columns:
        mine = [bool(np.abs(column - columns[0]).max() < ALIKE) for column in columns]
        sizes.append(sum(mine))
        columns = [column for column, same in zip(columns, mine, strict=True) if not same]
    return tuple(sorted(sizes, reverse=True))


def census(units: int, extra: int, starts: int, steps: int, most: int) -> dict[str, np.ndarray]:
    """The `most` most frequent minima: loss, share of starts, lowest curvature, zero modes, and groups of units.

    `ended` is the share of starts that had come to rest, `others` the share of those in rarer minima.
    """
    weights, losses, slopes = (np.asarray(x) for x in descents(jax.random.key(units), units, extra, starts, steps))
    # a split global minimum is approached slowly, because its loss is of third order across the flat directions
    rest = (slopes < STILL) | (losses < 1e-9)
    order = np.argsort(np.where(rest, losses, np.inf))
    levels: list[list[int]] = []
    for i in order[: int(rest.sum())]:
        here = losses[i] < 1e-9 or (levels and losses[i] - losses[levels[-1][0]] < SAME_LOSS * losses[i])
        levels[-1].append(int(i)) if levels and here else levels.append([int(i)])
    common = sorted(sorted(levels, key=len, reverse=True)[:most], key=lambda level: losses[level[0]])
    out = {name: np.full(most, np.nan) for name in ("loss", "share", "lowest", "zeros", "apart")}
    for number, level in enumerate(common):
        w = weights[level[0]]
        bends = np.linalg.eigvalsh(np.asarray(_hessian(jnp.asarray(w), units)))
        out["loss"][number], out["share"][number] = losses[level[0]], len(level) / starts
        out["lowest"][number], out["zeros"][number] = bends[0], int(np.sum(np.abs(bends) < 1e-7))
        out["apart"][number] = units - max(groups_alike(w))
    return out | {"ended": np.mean(rest), "others": 1 - np.nansum(out["share"]) - np.mean(~rest)}


@partial(jax.jit, static_argnames=("units",))
def _hessian(weights: Array, units: int) -> Array:
    directions = jnp.eye(weights.size).reshape(-1, *weights.shape)
    return relu_curvature(weights, jnp.eye(units), directions)


def wide_path(units: int, points: int = 21) -> Float[np.ndarray, "points student teacher"]:
    """From the teacher with a spare unit to its copy with two units exchanged, in straight pieces.

    A unit hands its weight to the spare one in the same direction, and an idle unit turns freely: the spare unit takes over
    the first one, the first the second, the second the spare.

    >>> path = wide_path(3)
    >>> path[0].tolist()[3], path[-1][:2].tolist()
    ([0.0, 0.0, 0.0], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    """
    one, two = np.eye(units)[:2]
    rest = list(np.eye(units)[2:])
    stations = [(one, two, 0 * one), (0 * one, two, one), (two, 0 * two, one), (two, one, 0 * one)]
    at = np.linspace(0, 1, points)[:, None, None]
    legs = [
        (1 - at) * np.stack([*a[:2], *rest, a[2]]) + at * np.stack([*b[:2], *rest, b[2]])
        for a, b in zip(stations[:-1], stations[1:], strict=True)
    ]
    return np.concatenate(legs)


def height(path: np.ndarray) -> float:
    """The largest loss on a path."""
    return float(jnp.max(_losses(jnp.asarray(path))))


@jax.jit
def _losses(path: Array) -> Array:
    # an idle unit of length zero has no direction: its loss is the limit of a short one
    near = jnp.where(jnp.sum(path**2, axis=-1, keepdims=True) > 0, path, 1e-12)
    return jax.vmap(lambda w: relu_loss(w, jnp.eye(path.shape[-1])))(near)


def narrow_barrier(units: int, steps: int, nodes: int = 15, seeds: int = 8) -> float:
    """The lowest barrier found between the teacher and its copy with two units exchanged, without a spare unit.

    Polylines of `nodes` free nodes, from the straight path with random bends, lowered by Adam on a soft maximum of the loss.
    """
    first = np.eye(units)
    last = first[[1, 0, *range(2, units)]]
    share = np.linspace(0, 1, nodes + 2)[:, None, None]
    straight = (1 - share) * first + share * last
    bend = np.random.default_rng(0).normal(size=(seeds, nodes, units, units)) * 0.3 / np.sqrt(units)
    begin = jnp.asarray(straight[1:-1] + bend)
    rule = optax.adam(0.01)

    def whole(inner: Array) -> Array:
        nodes = jnp.concatenate([jnp.asarray(first)[None], inner, jnp.asarray(last)[None]])
        middle = 0.5 * (nodes[1:] + nodes[:-1])
        return jnp.concatenate([nodes, middle])

    def cost(inner: Array) -> Array:
        path = whole(inner)
        gaps = jnp.sum((path[1 : nodes + 2] - path[: nodes + 1]) ** 2, axis=(1, 2))
        losses = jax.vmap(lambda w: relu_loss(w, jnp.eye(units)))(path)
        return jax.nn.logsumexp(400 * losses) / 400 + 1e-3 * jnp.sum((gaps - jnp.mean(gaps)) ** 2)

    @jax.jit
    def lower(inner: Array) -> Array:
        def step(carry: Any, _: Any) -> Any:
            inner, state = carry
            move, state = rule.update(jax.grad(cost)(inner), state)
            return (optax.apply_updates(inner, move), state), None

        (inner, _), _ = jax.lax.scan(step, (inner, rule.init(inner)), length=steps)
        return jnp.max(jax.vmap(lambda w: relu_loss(w, jnp.eye(units)))(whole(inner)))

    with jax.numpy_dtype_promotion("standard"):  # optax mixes Python floats and whole numbers
        return float(jnp.min(jax.vmap(lower)(begin)))


def one_pass(
    units: int, size: int, rate: float, duration: float, push: float, seeds: int, points: int
) -> dict[str, Any]:
    """Losses (seeds, times) of descent on single fresh samples from near the fixed point `turned`, and those of its flow.

    The start is pushed by `push` along the direction of lowest curvature; time is rate × steps / size.
    """
    model = ReluLandscape(teachers=units)
    fixed = np.asarray(model._fixed_point(ReluLandscape.numerics)[0])
    _, vectors = np.linalg.eigh(np.asarray(_hessian(jnp.asarray(fixed), units)))
    start, teacher = jnp.asarray(fixed + push * vectors[:, 0].reshape(units, units)), jnp.eye(units)
    pad = ((0, 0), (0, size - units))
    begin, known = (jnp.pad(x, pad).astype(jnp.float32) for x in (start, teacher))
    between = round(duration * size / rate / points)

    def step(w: Array, key: Array) -> tuple[Array, None]:
        x = jax.random.normal(key, (size,), jnp.float32)
        fields = w @ x
        error = jnp.sum(jax.nn.relu(fields)) - jnp.sum(jax.nn.relu(known @ x))
        return w - rate / size * error * (fields > 0).astype(w.dtype)[:, None] * x[None, :], None

    def stretch(w: Array, key: Array) -> tuple[Array, Array]:
        w, _ = jax.lax.scan(step, w, jax.random.split(key, between))
        return w, w

    @jax.jit
    def run(key: Array) -> Array:
        return jax.lax.scan(stretch, begin, jax.random.split(key, points))[1]

    @jax.jit
    def flow() -> Array:
        fine = 4 * max(1, round(10 * duration / points))

        def stretch(w: Array, _: Any) -> tuple[Array, Array]:
            pace = duration / points / fine
            w = jax.lax.fori_loop(0, fine, lambda _, w: w - pace * relu_gradient(w, teacher), w)
            return w, relu_loss(w, teacher)

        return jax.lax.scan(stretch, start, length=points)[1]

    seen = jax.vmap(run)(jax.random.split(jax.random.key(units), seeds)).astype(float)
    wide = jnp.pad(teacher, pad)
    losses = jax.jit(jax.vmap(jax.vmap(lambda w: relu_loss(w, wide))))(seen)
    first = float(relu_loss(start, teacher))
    return {
        "descent": np.concatenate([np.full((seeds, 1), first), np.asarray(losses)], axis=1),
        "flow": np.concatenate([[first], np.asarray(flow())]),
        "fixed": float(relu_loss(jnp.asarray(fixed), teacher)),
    }
