r"""State evolution of message passing for Q(q) = β q²/2 + c q^p/p, β = 1/Δ₂ and c = 1/Δ_p, and all of its fixed points.

With Q′(m) = m g(m), g = β + c m^{p−2}, one iteration and its fixed points other than m = 0 are

    Bayes-optimal:       m ↦ Q′(m)/(1 + Q′(m)),             g(m)(1 − m) = 1,
    maximum likelihood:  m ↦ Q′(m)/√(Q′(1) + Q′(m)²),       g(m)²(1 − m²) = Q′(1) = β + c.

Both maps increase with m, so iterations are monotone and converge to the next fixed point. The left-hand sides ("gain")
fall, may rise, and fall again: their extrema are found first, then every root between them by bisection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.methods.fixed_points.bisection import bisect

from ._landscape import Covariance

LEARNERS = ("bayes", "likelihood")


def step(learner: str, q: Covariance, m: Any) -> Any:
    """One iteration of state evolution."""
    pull = q.slope(m)
    return pull / (1 + pull) if learner == "bayes" else pull / (q.slope(1.0) + pull**2) ** 0.5


def gain(learner: str, q: Covariance, m: Any) -> Any:
    """Positive where an iteration raises the overlap, zero at a fixed point m > 0."""
    g = q.matrix + q.tensor * m ** (q.order - 2)
    return g * (1 - m) - 1 if learner == "bayes" else g**2 * (1 - m**2) / q.slope(1.0) - 1


def _steepness(learner: str, q: Covariance, m: Any) -> Any:
    """The sign of the gain's derivative."""
    p = q.order
    if learner == "bayes":
        return q.tensor * ((p - 2) * m ** (p - 3) * (1 - m) - m ** (p - 2)) - q.matrix
    if p == 3:
        return q.tensor * (1 - 2 * m**2) - q.matrix * m
    return q.tensor * ((p - 2) * m ** (p - 4) * (1 - m**2) - m ** (p - 2)) - q.matrix


def steepest(learner: str, order: int) -> float:
    """The overlap at which `_steepness` is largest: it is positive there if it is positive anywhere."""
    return (order - 3) / (order - 1) if learner == "bayes" else max(order - 4, 0) ** 0.5 / (order - 1) ** 0.5


class FixedPoints(NamedTuple):
    """Fixed points with m > 0: the lowest, an unstable one and the highest; NaN where there is none.

    Iterations from m = 0⁺ reach the lowest if it exists.
    """

    low: Array
    unstable: Array
    high: Array


def fixed_points(learner: str, q: Covariance, bisections: int = 60) -> FixedPoints:
    """Every fixed point other than zero, with implicit derivatives.

    >>> q = Covariance(jnp.asarray(1 / 1.5), jnp.asarray(0.5), 3)          # (1.5 + 2m)(1 − m) = 1
    >>> round(float(fixed_points("bayes", q).high), 12) == round((0.5 + 4.25**0.5) / 4, 12)
    True
    """
    middle = jnp.full(jnp.shape(q.matrix), steepest(learner, q.order))
    zero, one = jnp.zeros_like(middle), jnp.ones_like(middle)
    frozen = Covariance(*jax.lax.stop_gradient(q[:2]), q.order)

    def roots(function: Any, *brackets: tuple[Array, Array, float]) -> Array:
        """The root at which sign·function turns from positive to negative in each bracket (low, high, sign)."""
        lows, highs = (jnp.stack([bracket[i] for bracket in brackets]) for i in (0, 1))
        signs = jnp.asarray([bracket[2] for bracket in brackets])
        positive = jax.vmap(lambda m, sign: sign * function(m) > 0)
        lows, highs = bisect(lambda m: positive(m, signs), lows, highs, bisections)
        return 0.5 * (lows + highs)

    def height(m: Array) -> Array:
        return gain(learner, frozen, m)

    rises = _steepness(learner, frozen, middle) > 0
    extrema = roots(lambda m: _steepness(learner, frozen, m), (zero, middle, -1.0), (middle, one, 1.0))
    dip, top = (jnp.where(rises, extremum, middle) for extremum in extrema)
    found = roots(height, (zero, dip, 1.0), (dip, top, -1.0), (top, one, 1.0))
    there = jnp.stack([(height(zero) > 0) & (height(dip) <= 0), (height(dip) < 0) & (height(top) > 0), height(top) > 0])

    def differentiable(m: Array, there: Array) -> Array:
        slope = jax.jvp(height, (m,), (jnp.ones_like(m),))[1]
        moves = gain(learner, q, m) - height(m)  # zero, with the derivative of the gain at fixed m
        return jnp.where(there, m - moves / jnp.where(there, slope, 1.0), jnp.nan)

    return FixedPoints(*jax.vmap(differentiable)(found, there))


def reached(learner: str, q: Covariance, found: FixedPoints, start: Array) -> Array:
    """The fixed point that iterations from the overlap `start` reach (zero means 0⁺)."""
    points = jnp.stack(found)
    up = gain(learner, q, start) > 0
    above = jnp.nanmin(jnp.where(points >= start[None], points, jnp.nan), axis=0, initial=jnp.inf)
    below = jnp.nanmax(jnp.where(points <= start[None], points, jnp.nan), axis=0, initial=0.0)
    return jnp.where(up, above, below)


def blind_overlap(learner: str, q: Covariance) -> Array:
    """The overlap that iterations reach from m = 0⁺.

    >>> round(float(blind_overlap("bayes", Covariance(jnp.asarray(0.4), jnp.asarray(1.0), 3))), 6)
    0.686141
    """
    return reached(learner, q, fixed_points(learner, q), jnp.zeros_like(q.matrix))


def free_entropy(q: Covariance, m: Array) -> Array:
    """Φ(m) = ½ln(1−m) + ½m + ½Q(m), per dimension, zero at m = 0: its highest maximum is the overlap of the posterior."""
    return 0.5 * (jnp.log1p(-m) + m + q.value(m))


def optimal(q: Covariance, found: FixedPoints) -> Array:
    """The overlap of the exact posterior mean: the highest maximum of the free entropy."""
    best, overlap = jnp.zeros_like(found.high), jnp.zeros_like(found.high)
    for m in (found.low, found.high):
        there = jnp.isfinite(m)
        height = free_entropy(q, jnp.where(there, m, 0.0))
        better = there & (height > best)
        best, overlap = jnp.where(better, height, best), jnp.where(better, m, overlap)
    return overlap
