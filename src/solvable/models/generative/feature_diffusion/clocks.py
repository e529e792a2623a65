"""Times at which each class is learnt, best stopped and memorised, read off curves of the loss against training time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Losses = Callable[[Float[Array, " t"]], tuple[Float[Array, "t c"], Float[Array, "t c"]]]
"""Logarithms of times → train and test loss of every class; infinity is the end of training."""

GRID = 64
SETTLED = 1e-8
"""A test loss that ends this close to its lowest value is taken to be lowest at the end."""


class Clocks(NamedTuple):
    """Times of every class, its lowest test loss, and how fast its gap grows with log t at the time of memorisation."""

    learning: Float[Array, " c"]
    best: Float[Array, " c"]
    memorisation: Float[Array, " c"]
    best_loss: Float[Array, " c"]
    growth: Float[Array, " c"]


def clocks(
    losses: Losses, times: Float[Array, " t"], first: Array, last: Array, halvings: int = 26
) -> tuple[Float[Array, "t c"], Float[Array, "t c"], Clocks]:
    """Train and test loss of every class at `times`, given by their logarithms, and the clocks of every class.

    **Arguments:**
    - `losses`: train and test loss against the logarithm of time.
    - `times`: logarithms of times of measurement, of which the last is the horizon of the lowest test loss.
    - `first`, `last`: logarithms of a time at which nothing has been learnt, and of one at which training has ended.

    The clocks are the time at which the test loss is half-way down to its lowest value (`learning`), that of the lowest value
    itself (`best`; the horizon if it still falls or has settled there), and the time at which the gap between test and train
    loss first has half of its final size (`memorisation`). All are bisected in one loop, so that the losses are compiled once.
    """
    horizon = times[-1]
    start = jnp.minimum(first, horizon - 1)
    coarse = lax.stop_gradient(jnp.stack([jnp.linspace(start, horizon, GRID), jnp.linspace(start, last, GRID)]))
    train, test = losses(jnp.concatenate([times, jnp.full(1, jnp.inf, times.dtype), *coarse]))
    end = len(times)
    middle = 0.5 * (test[end] - train[end])
    lowest = jnp.argmin(test[end + 1 : end + 1 + GRID], axis=0)
    passed = jnp.argmax((test - train)[end + 1 + GRID :] >= middle[None], axis=0)
    count = test.shape[1]
    # the way down is bracketed with a margin of one place, as the lowest loss is not yet known exactly
    falls = test[end + 1 : end + 1 + GRID]
    down = jnp.argmax(falls <= 0.5 * (1 + jnp.min(falls, axis=0, keepdims=True)), axis=0)
    own = jnp.tile(jnp.arange(count), 3)

    def state(u: Array) -> tuple[Array, Array, Array]:
        """Gap, test loss and its slope, each entry for its own class."""

        def values(u: Array) -> tuple[Array, Array]:
            of_train, of_test = (loss[jnp.arange(len(u)), own] for loss in losses(u))
            return of_test - of_train, of_test

        (gap, value), (_, slope) = jax.jvp(values, (u,), (jnp.ones_like(u),))
        return gap, value, slope

    # three brackets of every class: lowest loss, half of the gap, half of the way down
    low = jnp.concatenate(
        [
            coarse[0][jnp.maximum(lowest - 1, 0)],
            coarse[1][jnp.maximum(passed - 1, 0)],
            coarse[0][jnp.maximum(down - 2, 0)],
        ]
    )
    high = jnp.concatenate(
        [coarse[0][jnp.minimum(lowest + 1, GRID - 1)], coarse[1][passed], coarse[0][jnp.minimum(down + 1, GRID - 1)]]
    )
    fixed = lax.stop_gradient(middle)

    def halve(i: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, best = carry
        u = 0.5 * (low + high)
        gap, value, slope = (lax.stop_gradient(x).reshape(3, count) for x in state(u))
        early = i < halvings
        best = jnp.where(early, value[0], best)
        before = jnp.concatenate([slope[0] < 0, gap[1] < fixed, value[2] > 0.5 * (1 + best)])
        # the way down is halved once the lowest loss is known
        moves = jnp.repeat(jnp.stack([early, early, ~early]), count)
        return jnp.where(moves & before, u, low), jnp.where(moves & ~before, u, high), best

    low, high, _ = lax.fori_loop(0, 2 * halvings, halve, (low, high, jnp.ones(count, low.dtype)))
    # a loss that still falls at the horizon, or has settled at its lowest value long before, is lowest there
    falling = (high[:count] >= horizon) | (test[end + GRID] <= jnp.min(falls, axis=0) + SETTLED)
    root = lax.stop_gradient(0.5 * (low + high)).at[:count].min(horizon)
    root = jnp.where(jnp.concatenate([falling, jnp.zeros(2 * count, bool)]), horizon, root)
    # one Newton step from each, through which it is differentiated
    (gap, value, slope), rises = jax.jvp(state, (root,), (jnp.ones_like(root),))
    best_loss = value[:count]
    excess = jnp.stack([slope[:count], gap[count : 2 * count] - middle, value[2 * count :] - 0.5 * (1 + best_loss)])
    rise = jnp.stack([rises[2][:count], rises[0][count : 2 * count], rises[1][2 * count :]])
    best, memorisation, learning = root.reshape(3, count) - excess / lax.stop_gradient(rise)
    best = jnp.where(falling, horizon, best)
    found = Clocks(jnp.exp(learning), jnp.exp(best), jnp.exp(memorisation), best_loss, lax.stop_gradient(rise[1]))
    return train[:end], test[:end], found
