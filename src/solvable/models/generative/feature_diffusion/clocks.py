"""Times at which each class is learnt, best stopped and memorised, read off curves of the loss against training time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from solvable.methods.fixed_points.bisection import bisect

Losses = Callable[[Float[Array, " t"]], tuple[Float[Array, "t c"], Float[Array, "t c"]]]
"""Logarithms of times → train and test loss of every class; infinity is the end of training."""

GRID = 64


class Clocks(NamedTuple):
    """Times of every class, and its lowest test loss."""

    learning: Float[Array, " c"]
    best: Float[Array, " c"]
    memorisation: Float[Array, " c"]
    best_loss: Float[Array, " c"]


def clocks(losses: Losses, first: Array, horizon: Array, last: Array, halvings: int = 28) -> Clocks:
    """The clocks of every class.

    **Arguments:**
    - `losses`: train and test loss against the logarithm of time.
    - `first`: the logarithm of a time at which nothing has been learnt.
    - `horizon`: the logarithm of the time up to which the lowest test loss is sought.
    - `last`: the logarithm of a time at which training has ended.

    Returns the time at which the test loss is half-way down to its lowest value (`learning`), that of the lowest value
    itself (`best`; the horizon if it still falls there), and the time at which the gap between test and train loss first
    has half of its final size (`memorisation`).
    """

    def each(u: Array) -> tuple[Array, Array]:
        """Train and test loss of every class, each at its own time."""
        return tuple(jnp.diagonal(loss) for loss in losses(u))  # type: ignore[return-value]

    def slope(u: Array) -> Array:
        return jax.jvp(lambda v: each(v)[1], (u,), (jnp.ones_like(u),))[1]

    def attached(function: Callable[[Array], Array], root: Array) -> Array:
        """A root found by bisection, with one Newton step, through which it is differentiated."""
        root = lax.stop_gradient(root)
        value, rise = jax.jvp(function, (root,), (jnp.ones_like(root),))
        return root - value / lax.stop_gradient(rise)

    start = jnp.minimum(first, horizon - 1)
    grid = jnp.linspace(start, horizon, GRID)
    lowest = jnp.argmin(losses(grid)[1], axis=0)
    left, right = grid[jnp.maximum(lowest - 1, 0)], grid[jnp.minimum(lowest + 1, GRID - 1)]
    left, right = bisect(lambda u: slope(u) < 0, left, right, halvings)
    falling = right >= horizon
    place = jnp.where(falling, horizon, 0.5 * (left + right))
    best = jnp.where(falling, horizon, attached(slope, place))
    best_loss = each(lax.stop_gradient(best))[1]

    half = 0.5 * (1 + best_loss)
    left, right = bisect(lambda u: each(u)[1] > half, jnp.broadcast_to(start, place.shape), place, halvings)
    learning = attached(lambda u: each(u)[1] - half, 0.5 * (left + right))

    grid = jnp.linspace(start, last, GRID)
    train, test = losses(grid)
    end = [loss[0] for loss in losses(jnp.full(1, jnp.inf))]
    middle = 0.5 * (end[1] - end[0])
    passed = jnp.argmax(test - train >= middle, axis=0)
    left, right = bisect(lambda u: each(u)[1] - each(u)[0] < middle, grid[jnp.maximum(passed - 1, 0)], grid[passed],
                         halvings)  # fmt: skip
    memorisation = attached(lambda u: each(u)[1] - each(u)[0] - middle, 0.5 * (left + right))
    return Clocks(jnp.exp(learning), jnp.exp(best), jnp.exp(memorisation), best_loss)
