"""Times at which simulated overlaps find a hidden direction, and the limiting diffusion of plain descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.training.reduced import Stream, reduced_hitting


def hitting_times(
    stream: Stream, lanes: int, most: float, *, level: float, start: Sequence[float] = (1.0,), direction: int = 0
) -> np.ndarray:
    """Number of samples until |α| along a direction exceeds `level`, for each lane; infinite if `most` are not enough.

    `start` holds the initial overlaps in units of d^{-1/2}, one for each direction.
    """
    begin = jnp.asarray(start, jnp.float32)[:, None] * stream.dimension**-0.5
    overlaps = jnp.broadcast_to(begin, (len(start), lanes)).astype(jnp.float32)
    find = jax.jit(
        lambda key: reduced_hitting(stream, key, overlaps, lambda a: jnp.abs(a[direction]) > level, int(most))
    )
    hit = find(jax.random.key(stream.dimension))
    return np.where(hit.met, np.asarray(hit.steps, float), np.inf)


def explosions(rate: float, drive: float, noise: float, paths: int, horizon: float, beyond: float = 30.0) -> np.ndarray:
    """Times τ = n/d³ at which dA = (δkA³ - ½δ²VA)dτ + δ√V dB, from A = 1, leaves |A| < `beyond`; infinite beyond `horizon`.

    A = √d α is the scaled overlap of a descent at rate δ/d whose mean step is k α³ (`drive`) and whose squared step is
    V (`noise`): the limit of plain descent towards a direction of information exponent four. From |A| = 30
    the path explodes within 1/(1800 δk).

    >>> soon = explosions(0.01, 1.0, 1.0, 8, 100.0)  # almost without noise: dA = δA³dτ ends at τ = 1/(2δ)
    >>> bool(abs(soon.mean() - 50) < 5)
    True
    """
    rng = np.random.default_rng(0)
    a, time, done = np.ones(paths), np.zeros(paths), np.zeros(paths, bool)
    while not done.all():
        # a hundredth of the shorter of the two time scales of A
        step = 0.01 / (rate * drive * a**2 + rate**2 * noise)
        drift = rate * drive * a**3 - 0.5 * rate**2 * noise * a
        moved = a + drift * step + rate * np.sqrt(noise * step) * rng.normal(size=paths)
        a, time = np.where(done, a, moved), np.where(done, time, time + step)
        done = done | (np.abs(a) > beyond) | (time > horizon)
    return np.where(time > horizon, np.inf, time)


def median_and_error(times: Any) -> tuple[float, float]:
    """Median of hitting times, and its standard error from the order statistics half a binomial error on either side.

    >>> median_and_error(np.arange(100.0))
    (49.5, 4.95)
    """
    there = np.asarray(times, float).reshape(-1)
    half = 0.5 / np.sqrt(len(there))
    low, middle, high = np.quantile(there, [0.5 - half, 0.5, 0.5 + half])
    return float(middle), float(round((high - low) / 2, 12))
