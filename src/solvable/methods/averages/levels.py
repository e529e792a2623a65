r"""Weights with a few levels in a random field, pulled towards their own mean: averages over the field, jumps included.

A weight w with levels w_l has ψ(u) = log Σ_l exp(c w_l²/2 + u w_l), mean t = ψ′ and variance ψ″ in a field u. With a pull p
the field is the external h = √q̂ z plus p t: u maximises ψ(u) − (u − h)²/(2p). For p ψ″ > 1 there are several maxima, and as z
grows the global one jumps. The average over z is therefore taken over u,

    E_z f(u(z)) = ∫ f(u) z′(u) φ(z(u)) du,   z(u) = (u − p t(u))/√q̂,

over those u that are the global maximum at some z, where u²/2 − pψ(u) touches its convex envelope. Between the jumps
the integrand is analytic, and no equation is solved at the nodes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .quadrature import legendre, merge_sorted

CUT = 9.0
SCAN, GRID = 20, 64  # fields per pair of levels at which the global maximum is sought, and the number of candidates
EDGES = np.array([-CUT, -6.0, -4.0, -2.5, -1.2, 0.0, 1.2, 2.5, 4.0, 6.0, CUT])
GRADED = np.array([-6.0, -3.0, -1.5, -0.6, 0.0, 0.6, 1.5, 3.0, 6.0])


class LevelSums(NamedTuple):
    """ψ, its derivatives t = <w> and ψ″, and <w²>."""

    log_sum: Array
    mean: Array
    variance: Array
    square: Array


def level_sums(levels: Float[Array, " l"], curvature: Array, field: Array) -> LevelSums:
    """Sums over the levels at fields of any shape.

    >>> sums = level_sums(jnp.asarray([-1.0, 1.0]), jnp.asarray(0.0), jnp.asarray([0.0, 0.5]))
    >>> bool(jnp.allclose(sums.mean, jnp.tanh(jnp.asarray([0.0, 0.5]))))
    True
    """
    w = levels.reshape((1,) * field.ndim + (-1,))
    exponent = 0.5 * curvature * w**2 + field[..., None] * w
    top = jnp.max(exponent, axis=-1, keepdims=True)
    part = jnp.exp(exponent - top)
    total = jnp.sum(part, axis=-1)
    part = part / total[..., None]
    mean = part @ levels
    variance = jnp.sum(part * (w - mean[..., None]) ** 2, axis=-1)
    return LevelSums(top[..., 0] + jnp.log(total), mean, variance, part @ levels**2)


class LevelRule(NamedTuple):
    """Nodes of an average over the field: u, z, weights, and the sums at u."""

    u: Float[Array, " n"]
    z: Float[Array, " n"]
    weight: Float[Array, " n"]
    sums: LevelSums

    def average(self, values: Array) -> Array:
        """E over z of values at the nodes."""
        return self.weight @ values


class Jumps(NamedTuple):
    """The global maximum goes from `below` to `above` as the outer field passes `at`; only where `real`."""

    below: Float[Array, " j"]
    above: Float[Array, " j"]
    at: Float[Array, " j"]
    real: Array
    scanned: tuple[Array, Array]  # outer fields, and the global maximum there, roughly
    ends: tuple[Array, Array]


def _hull(levels, curvature, pull, u):
    """u²/2 − pψ(u) and its first two derivatives."""
    sums = level_sums(levels, curvature, u)
    return 0.5 * u**2 - pull * sums.log_sum, u - pull * sums.mean, 1 - pull * sums.variance


def _step(slope, curvature, most):
    """Newton's step to a zero of the slope, `most` long at most: close to criticality the curvature is tiny."""
    return jnp.clip(-slope / jnp.maximum(jnp.abs(curvature), 1e-7), -most, most)


def _touch(levels, curvature, pull, a, b, most):
    """One step towards the two points of a common tangent; its slope, from both, converges quadratically with them."""
    (va, sa, ka), (vb, sb, kb) = (_hull(levels, curvature, pull, x) for x in (a, b))
    apart = b - a > 1e-4
    tangent = jnp.where(apart, (vb - va) / jnp.where(apart, b - a, 1.0), 0.5 * (sa + sb))
    return a + _step(sa - tangent, ka, most), b + _step(sb - tangent, kb, most), tangent


def level_jumps(levels: Float[Array, " l"], curvature: Array, field_variance: Array, pull: Array) -> Jumps:
    """Where the global maximum jumps, at most as often as there are neighbouring levels.

    >>> found = level_jumps(jnp.asarray([-1.0, 1.0]), *(jnp.asarray(x) for x in (0.0, 0.4, 1.6)))
    >>> u = float(found.above[0])
    >>> bool(found.real[0]), abs(float(found.at[0])) < 1e-12, bool(abs(u - 1.6 * np.tanh(u)) < 1e-12)
    (True, True, True)
    """
    frozen = jax.lax.stop_gradient
    c, p, root, w = frozen(curvature), frozen(pull), frozen(jnp.sqrt(field_variance)), frozen(levels)
    pairs, gaps = levels.shape[0] - 1, w[1:] - w[:-1]
    low, high = -CUT * root + jnp.minimum(p * w[0], 0), CUT * root + jnp.maximum(p * w[-1], 0)
    # Beyond the outermost fields at which neighbouring levels have equal weight, only one level is left.
    turns, wide = -0.5 * c * (w[1:] + w[:-1]), jnp.abs(p) * (w[-1] - w[0]) + 5 / jnp.min(gaps)
    inner = jnp.clip(jnp.stack([jnp.min(turns) - wide, jnp.max(turns) + wide]), low, high)
    grid = inner[0] + (inner[1] - inner[0]) * np.linspace(0.0, 1.0, (pairs + 1) * GRID)
    value, slope, _ = _hull(w, c, p, grid)
    span = jnp.clip(slope[jnp.asarray([0, -1])], -CUT * root, CUT * root)
    h = span[0] + (span[1] - span[0]) * np.linspace(0.0, 1.0, (pairs + 1) * SCAN)
    # the index of the least value; XLA's argmin does not vectorise on a CPU and takes four times as long
    tilted = value[:, None] - h[None, :] * grid[:, None]
    least = tilted == jnp.min(tilted, axis=0, keepdims=True)
    best = jnp.max(jnp.where(least, np.arange(grid.shape[0])[:, None], 0), axis=0)
    # The largest steps of the global maximum. Where there is no jump both ends converge to one point, from outside.
    step, where = jax.lax.top_k(best[1:] - best[:-1], pairs)
    a, b = grid[best[where]], grid[best[where + 1]]
    pitch = grid[1] - grid[0]
    a, b = jax.lax.fori_loop(0, 24, lambda _, ab: _touch(w, c, p, ab[0], ab[1], pitch)[:2], (a, b))
    real = (step > 0) & (b - a > 0.01)
    # Entries without a jump lie at the left end and have zero length. One more step, for the derivative.
    a, b = frozen(jnp.where(real, a, low)), frozen(jnp.where(real, b, low))
    below, above, tangent = _touch(levels, curvature, pull, a, b, pitch)
    kept = [jnp.where(real, x, y) for x, y in ((below, low), (above, low), (tangent, -CUT * root))]
    return Jumps(kept[0], kept[1], kept[2], real, (h, grid[best]), (low, high))


def level_rule(
    levels: Float[Array, " l"], curvature: Array, field_variance: Array, pull: Array, *, nodes: int = 10
) -> LevelRule:
    """A rule for E_z f(u(z)), with `nodes` nodes in each of about twenty panels. `levels` must be increasing.

    >>> rule = level_rule(jnp.asarray([-1.0, 1.0]), *(jnp.asarray(x) for x in (0.0, 0.4, 1.6)))
    >>> bool(abs(jnp.sum(rule.weight) - 1) < 1e-12), bool(jnp.min(jnp.abs(rule.u[rule.weight > 0])) > 1)
    (True, True)
    """
    jumps = level_jumps(levels, curvature, field_variance, pull)
    root = jnp.sqrt(field_variance)
    # The panels follow z, and are finer where one level takes over from the next. They need not be exact, but in a weak
    # outer field z passes within much less than a step of the scan.
    gaps = levels[1:] - levels[:-1]
    turns = -0.5 * curvature * (levels[1:] + levels[:-1])[:, None] + GRADED[None, :] / gaps[:, None]
    h, (fields, found) = root * EDGES, jumps.scanned
    along = jnp.interp(h, fields, found) + jnp.minimum(h - fields[0], 0) + jnp.maximum(h - fields[-1], 0)

    def nearer(_, u):
        _, slope, bend = _hull(levels, curvature, pull, u)
        return u + _step(slope - h, bend, 0.3)

    along = jax.lax.fori_loop(0, 5, nearer, along)
    for below, above, at in zip(jumps.below, jumps.above, jumps.at, strict=True):
        # a hair off the ends of the jump: a tie with these would split their derivatives
        along = jnp.where(h < at, jnp.minimum(along, below - 1e-6), jnp.maximum(along, above + 1e-6))
    edges = jax.lax.cummax(jnp.clip(along, *jumps.ends))
    for turn in jnp.clip(turns, *jumps.ends):
        edges = merge_sorted(edges, turn)
    edges = jax.lax.stop_gradient(edges)
    for end in (*jumps.below, *jumps.above):
        edges = merge_sorted(edges, end[None])
    x, w = legendre(nodes)
    left, length = edges[:-1, None], (edges[1:] - edges[:-1])[:, None]
    middle = left + 0.5 * length
    inside = jnp.any((middle > jumps.below[None, :]) & (middle < jumps.above[None, :]), axis=-1, keepdims=True)
    u = (left + length * x[None, :]).reshape(-1)
    sums = level_sums(levels, curvature, u)
    z = (u - pull * sums.mean) / root
    measure = jnp.where(inside, 0.0, length * w[None, :]).reshape(-1) * (1 - pull * sums.variance) / root
    return LevelRule(u, z, measure * jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi), sums)
