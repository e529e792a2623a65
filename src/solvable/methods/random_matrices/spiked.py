"""Eigenvalues outside the bulk of a sample covariance, and the overlap of their eigenvectors with the signal.

The matrix is M = Δ^½SΔ^½ + B, S the sample covariance of n samples of N(0, V + θuuᵀ), |u| = 1, and V, Δ, B diagonal;
w_k = v_kΔ_k. A coordinate kind k has weight p_k, a fraction of the d coordinates; n/d = α. PCA is Δ = I, B = 0.

Above the bulk the companion t(z) (see `equivalents`) is real and larger than one, and z(t) is the unique
z > max(w t + B) with 1 − 1/t = (1/n) Σ_k w_k/(z − w_k t − B_k). It falls from +∞ as t grows from 1 to its only minimum,
the upper edge z₊ = z(t₊). A distinguished direction of the population has an eigenvalue outside the bulk if its own
equation holds at some t < t₊ (Baik, Ben Arous and Péché, 2005; here with two diagonal matrices):

    delocalised u:  θ t Σ_k u_k²Δ_k/(z(t) − w_k t − B_k) = 1;      an eigenvector of the population:  a t + b = z(t).

Derivatives are implicit throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from solvable.methods.fixed_points.bisection import bisect

from .equivalents import Scalar

__all__ = ["Bulk", "Isolated", "Spike", "delocalised_spike", "isolated_direction", "upper_edge"]


class Bulk(NamedTuple):
    """Diagonal population of M: w_k = v_kΔ_k, B_k, and the fraction of coordinates of kind k."""

    signal: Float[Array, " k"]
    shift: Float[Array, " k"]
    weights: Float[Array, " k"]


class Spike(NamedTuple):
    """Edge and leading eigenvalue of M, the strength at which they separate, and the eigenvector q of the outlier.

    Below the threshold the outlier is the edge and the overlaps vanish. `right` is the squared cosine between u and
    Δ^{−½}q, `left` between u and Δ^½q (both are q itself when Δ = I).
    """

    edge: Scalar
    threshold: Scalar
    outlier: Scalar
    right: Scalar
    left: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


class Isolated(NamedTuple):
    """Edge and leading eigenvalue of M, and the squared cosine between its eigenvector and the isolated direction."""

    edge: Scalar
    edge_companion: Scalar
    outlier: Scalar
    overlap: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def _curve(bulk: Bulk, samples: Scalar, rise: Scalar) -> Scalar:
    """z(t), t = 1 + rise. The reciprocal of the sum is concave in z: Newton climbs to the root from any lower bound."""
    poles = bulk.signal * (1.0 + rise) + bulk.shift
    residues = bulk.weights * bulk.signal / samples
    target = rise / (1.0 + rise)

    def equation(z: Array) -> Array:
        return (residues / (z - poles)).sum() - target

    def solve(_, guess: Array) -> Array:
        def climb(_, z):
            inverse = 1.0 / (z - poles)
            first, second = residues @ inverse, residues @ inverse**2
            return z + (first / target - 1.0) * first / second

        return lax.fori_loop(0, 24, climb, jnp.max(poles + residues / target))

    return lax.custom_root(equation, rise, solve, lambda g, y: y / g(jnp.ones_like(y)))


def _root(equation: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The rise t − 1 at which the equation turns positive, by bisection of its logarithm between two bounds."""

    def solve(_, guess: Array) -> Array:
        return jnp.exp(bisect(lambda x: ~(equation(jnp.exp(x)) > 0), jnp.log(low), jnp.log(high))[0])

    return lax.custom_root(equation, high, solve, lambda g, y: y / g(jnp.ones_like(y)))


def _turning(bulk: Bulk, samples: Scalar, rise: Array) -> Array:
    """Sign of dz/dt: (1/n)Σ (w t g)² − 1, g = 1/(z(t) − w t − B)."""
    t = 1.0 + rise
    gap = _curve(bulk, samples, rise) - bulk.signal * t - bulk.shift
    return bulk.weights @ (bulk.signal * t / gap) ** 2 / samples - 1.0


def upper_edge(bulk: Bulk, samples: Scalar) -> tuple[Scalar, Scalar]:
    """(t₊ − 1, z₊) at the upper edge of the spectrum of M.

    >>> import jax.numpy as jnp
    >>> one, zero = jnp.ones(1), jnp.zeros(1)
    >>> _, z = upper_edge(Bulk(one, zero, one), jnp.float64(4.0))   # Marchenko–Pastur: (1 + √(d/n))²
    >>> round(float(z), 12)
    2.25
    """
    bound = 1e8 * (1.0 + 1.0 / samples)
    rise = _root(lambda rise: _turning(bulk, samples, rise), 1.0 / bound, bound)
    return rise, _curve(bulk, samples, rise)


def delocalised_spike(
    bulk: Bulk, samples: Scalar, strength: Scalar, profile: Float[Array, " k"], scale: Float[Array, " k"]
) -> Spike:
    """The spike θuuᵀ with u spread over many coordinates: `profile` is Σ u² over kind k (sums to one), `scale` Δ_k.

    1/θ_c = t₊ Σ u²Δ/(z₊ − w t₊ − B). With g = 1/(z* − w t* − B), F₁ = 1/t − 1 + (1/n)Σ w g and F₂ = θtΣu²Δg − 1,
    the projections of the outlier's eigenvector q on a fixed vector a and its quadratic forms are
    (a·q)² = θt (Σ a Δ^½u g)² ∂_tF₁/D and q·diag(b)q = (∂_tF₂ ∂_bF₁ − ∂_tF₁ ∂_bF₂)/(−D), D = ∂_tF₂∂_zF₁ − ∂_tF₁∂_zF₂
    (residue of the resolvent; Hellmann–Feynman under B → B + ηb).

    >>> import jax.numpy as jnp
    >>> one, zero = jnp.ones(1), jnp.zeros(1)
    >>> pca = delocalised_spike(Bulk(one, zero, one), jnp.float64(4.0), jnp.float64(1.0), one, one)
    >>> [round(float(x), 10) for x in (pca.threshold, pca.outlier, pca.right)]   # √γ, (1+θ)(1+γ/θ), (1−γ/θ²)/(1+γ/θ)
    [0.5, 2.5, 0.6]
    """
    signal, shift, weights = bulk

    def gain(rise: Array) -> Array:
        t = 1.0 + rise
        return t * (profile @ (scale / (_curve(bulk, samples, rise) - signal * t - shift)))

    turn, edge = upper_edge(bulk, samples)
    threshold = 1.0 / gain(turn)
    above = strength > threshold
    theta = jnp.where(above, strength, 2.0 * threshold)  # keeps the unused branch regular
    rise = _root(lambda rise: theta * gain(rise) - 1.0, 1e-12 * turn * jnp.minimum(threshold / theta, 1.0), turn)
    t, outlier = 1.0 + rise, _curve(bulk, samples, rise)

    g = 1.0 / (outlier - signal * t - shift)
    spread = weights * signal / samples * g**2
    loaded = theta * t * profile * scale * g**2
    f1_t, f1_z = -1.0 / t**2 + signal @ spread, -jnp.sum(spread)
    f2_t, f2_z = theta * (profile @ (scale * g)) + signal @ loaded, -jnp.sum(loaded)
    determinant = f2_t * f1_z - f1_t * f2_z

    def overlap(power: float) -> Array:
        """Squared cosine of u with Δ^power q."""
        projection = theta * t * (profile @ (scale ** (0.5 + power) * g)) ** 2 * f1_t / determinant
        form = (f1_t * (loaded @ scale ** (2 * power)) - f2_t * (spread @ scale ** (2 * power))) / determinant
        return jnp.where(above, projection / form, 0.0)

    found = theta * gain(rise) - 1.0
    residual = jnp.maximum(jnp.abs(found), jnp.abs(_turning(bulk, samples, turn)))
    converged = residual < 1e-10
    veil = jnp.where(converged, 1.0, jnp.nan)
    return Spike(
        edge * veil,
        threshold * veil,
        jnp.where(above, outlier, edge) * veil,
        overlap(-0.5) * veil,
        overlap(0.5) * veil,
        residual,
        converged,
    )


def isolated_direction(bulk: Bulk, samples: Scalar, signal: Scalar, shift: Scalar) -> Isolated:
    """One eigenvector of the population, common to Σ̃ (eigenvalue a = `signal`) and B (b = `shift`), outside the bulk.

    The outlier solves a t + b = z(t), and the squared cosine between its eigenvector and the isolated direction is
    1/(1 − a t′(z)). Detached if and only if a t₊ + b > z₊.

    >>> import jax.numpy as jnp
    >>> one, zero = jnp.ones(1), jnp.zeros(1)
    >>> found = isolated_direction(Bulk(one, zero, one), jnp.float64(4.0), jnp.float64(2.0), jnp.float64(0.0))
    >>> [round(float(x), 10) for x in (found.outlier, found.overlap)]
    [2.5, 0.6]
    """
    turn, edge = upper_edge(bulk, samples)
    t_edge = 1.0 + turn
    above = signal * t_edge + shift > edge
    a = jnp.where(above, signal, (2.0 * edge - shift) / t_edge)  # keeps the unused branch regular

    def excess(rise: Array) -> Array:
        return (a * (1.0 + rise) + shift) / _curve(bulk, samples, rise) - 1.0

    rise = _root(excess, 1e-12 * turn * jnp.minimum(1.0, edge / (a * t_edge + shift)), turn)
    t, outlier = 1.0 + rise, _curve(bulk, samples, rise)
    g = 1.0 / (outlier - bulk.signal * t - bulk.shift)
    spread = bulk.weights * bulk.signal / samples * g**2
    slope = jnp.sum(spread) / (bulk.signal @ spread - 1.0 / t**2)  # t′(z) < 0
    residual = jnp.maximum(jnp.abs(excess(rise)), jnp.abs(_turning(bulk, samples, turn)))
    converged = residual < 1e-10
    veil = jnp.where(converged, 1.0, jnp.nan)
    return Isolated(
        edge * veil,
        t_edge * veil,
        jnp.where(above, outlier, edge) * veil,
        jnp.where(above, 1.0 / (1.0 - a * slope), 0.0) * veil,
        residual,
        converged,
    )
