r"""Counting the minima of a Gaussian landscape with a spike: annealed complexities by the formula of Kac and Rice.

The landscape lives on the sphere |x|² = N → ∞ and is H(x) = −N Q(m) + noise, m = x·x*/N the overlap with a hidden direction, the
noise Gaussian with covariance N Q(x·y/N). Signal and noise may have different functions (`signal`). With a = Q′(1),
b = Q″(1), σ = √b, and Q_s of the signal, at overlap m

- the gradient along the sphere has variance a per direction and the mean −Q_s′(m) √(1−m²) along the signal;
- the Hessian along the sphere is a GOE matrix with edges ±2σ, minus θσ vvᵀ towards the signal, θσ = Q_s″(m)(1−m²), plus y;
- y = −x·∇H/N and the energy e = H/N are jointly Gaussian: means m Q_s′(m) and −Q_s(m), variances (a+b)/N and Q(1)/N,
  covariance −a/N. Given e, y has the mean y₀ = m Q_s′(m) − (a/Q(1))(e + Q_s(m)) and the variance s²/N = (a + b − a²/Q(1))/N.

So the mean number of minima at overlap m grows as e^{NΣ},

    Σ = ½ + ½ ln(1−m²) + ½ ln(b/a) − Q_s′(m)²(1−m²)/(2a) + max_{y ≥ 2σ} [Ω(y/σ) − (y−y₀)²/(2s²) − L(θ, y/σ)],

Ω(z) = ∫ρ(λ) ln|z−λ| dλ of the semicircle on [−2, 2] and L the cost of an outlier: for θ > 1 the spike sends the lowest
eigenvalue to y − σ(θ + 1/θ) (Baik, Ben Arous and Péché 2005), and at a minimum it must be held at or above zero, which has
probability e^{−NL} (Maïda 2007). With y = σ(ζ + 1/ζ), ζ ≥ 1, both are elementary,

    Ω = ln ζ + 1/(2ζ²),      L = ¼(θ−ζ)² + ½(1 − θ/ζ + ln(θ/ζ))  for ζ < θ and 0 beyond,

the bracket is concave, and its maximum is the root of a quadratic equation in ζ; there is no iteration.
For critical points of any index drop y ≥ 2σ and L.

These are logarithms of mean numbers; typical numbers may be smaller. Where Σ < 0 there are no such points.
(Fyodorov 2004; Auffinger, Ben Arous and Černý 2013; Ros, Ben Arous, Biroli and Cammarota 2019; Sarao Mannelli et al. 2019.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Count", "complexity", "log_determinant", "marginal_energy", "outlier_cost"]

Covariance = Callable[[Float[Array, ""]], Float[Array, ""]]


class Count(NamedTuple):
    """Number and properties of the most numerous points at an overlap.

    `complexity` Σ; `pressure` y = −x·∇H/N, by which the Hessian's bulk is shifted up; `energy` per dimension; `lowest`, the
    smallest eigenvalue of the Hessian, whose sign distinguishes minima from saddles.
    """

    complexity: Float[Array, ""]
    pressure: Float[Array, ""]
    energy: Float[Array, ""]
    lowest: Float[Array, ""]


def log_determinant(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """Ω(z) = ∫ρ(λ) ln|z−λ| dλ for the semicircle ρ on [−2, 2].

    >>> [round(float(log_determinant(jnp.asarray(z))), 6) for z in (0.0, 2.0, 2.5)]  # −½, ½, ln 2 + 1/8
    [-0.5, 0.5, 0.818147]
    """
    inside = jnp.abs(z) <= 2
    beyond = _height(jnp.where(inside, 2.0, jnp.abs(z)))
    return jnp.where(inside, z**2 / 4 - 0.5, jnp.log(beyond) + 0.5 / beyond**2)


def outlier_cost(strength: Float[Array, "..."], height: Float[Array, "..."]) -> Float[Array, "..."]:
    """L(θ, ζ): the large-deviation rate for an outlier of GOE + θvvᵀ (edges ±2) at ζ + 1/ζ, 1 ≤ ζ, instead of beyond it.

    Zero unless the typical outlier θ + 1/θ, θ > 1, lies further out.

    >>> [round(float(outlier_cost(jnp.asarray(t), jnp.asarray(1.0))), 6) for t in (0.5, 1.0, 2.0)]
    [0.0, 0.0, 0.096574]
    """
    reached = jnp.maximum(strength, height)  # the cost and its slope vanish at ζ = θ
    ratio = reached / height
    return 0.25 * (reached - height) ** 2 + 0.5 * (1 - ratio + jnp.log(ratio))


def complexity(
    covariance: Covariance,
    overlap: Float[Array, ""],
    *,
    of: Literal["minima", "critical points"] = "minima",
    energy: Float[Array, ""] | None = None,
    signal: Covariance | None = None,
) -> Count:
    """Annealed complexity of minima, or of critical points of any index, at an overlap −1 < m < 1 with the spike.

    `covariance` is Q as a function of the overlap, twice differentiable; `signal` is Q_s, by default the same (zero for no
    spike). Points are counted at the given `energy`, or at all energies. Where there are none even with exponentially small
    probability, as in a homogeneous landscape at energies that do not match its pressure, Σ is −∞.

    Minima of the pure 3-spin (Q = q³/2) are most numerous at the threshold energy −2/√3, and end at the ground state, −1.1717:

    >>> pure, none = lambda q: q**3 / 2, lambda q: 0 * q
    >>> at = lambda e: float(complexity(pure, jnp.asarray(0.0), energy=jnp.asarray(e), signal=none).complexity)
    >>> round(float(marginal_energy(pure)), 6), round(at(-2 / 3**0.5), 6), round(at(-1.17167), 4)
    (-1.154701, 0.01324, 0.0)
    """
    one, m = jnp.ones(()), jnp.asarray(overlap, float)
    value, slope, bend = _derivatives(covariance, one)
    drift, pull, tilt = _derivatives(signal or covariance, m)
    sigma, across = jnp.sqrt(bend), 1 - m**2
    theta = tilt * across / sigma
    mean, variance, toll = m * pull, slope + bend, jnp.zeros(())
    if energy is not None:
        away = energy + drift
        mean, variance = mean - slope / value * away, slope + bend - slope**2 / value
        # In a homogeneous landscape energy and pressure are proportional; any difference is rounding.
        variance = jnp.where(variance < 1e-13 * (slope + bend), 0.0, variance)
        toll = away**2 / (2 * value)
    base = 0.5 + 0.5 * jnp.log(across) + 0.5 * jnp.log(bend / slope) - pull**2 * across / (2 * slope) - toll
    if of == "minima":
        zeta = _best_minimum(mean, variance, sigma, theta)
        y = sigma * (zeta + 1 / zeta)
        gain = jnp.log(zeta) + 0.5 / zeta**2 - outlier_cost(theta, zeta)
        lowest = y - sigma * jnp.where(theta > zeta, zeta + 1 / zeta, _outlier(theta))
    else:
        y = _best_point(mean, variance, sigma)
        gain = log_determinant(y / sigma)
        lowest = y - sigma * _outlier(theta)
    total = base + gain - _penalty(y - mean, variance, sigma)
    typical = -drift - slope * (y - m * pull) / (slope + bend)
    return Count(total, y, typical if energy is None else jnp.asarray(energy, float), lowest)


def marginal_energy(covariance: Covariance) -> Float[Array, ""]:
    """Energy at which typical stationary points without overlap are marginal, y = 2σ.

    In a homogeneous landscape most minima are at this energy.

    E = −[Q′(1)² + Q(1)(Q″(1) − Q′(1))]/(Q′(1) √Q″(1)), the threshold energy of the pure p-spin.
    """
    value, slope, bend = _derivatives(covariance, jnp.ones(()))
    return -(slope**2 + value * (bend - slope)) / (slope * jnp.sqrt(bend))


def _derivatives(function: Covariance, at: Array) -> tuple[Array, Array, Array]:
    return function(at), jax.grad(function)(at), jax.grad(jax.grad(function))(at)


def _height(z: Array) -> Array:
    """ζ ≥ 1 with z = ζ + 1/ζ."""
    square = z**2 - 4
    return 0.5 * (z + jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0))


def _outlier(theta: Array) -> Array:
    """Largest eigenvalue of GOE + θvvᵀ, edges ±2."""
    large = jnp.maximum(theta, 1.0)
    return large + 1 / large


def _penalty(away: Array, variance: Array, sigma: Array) -> Array:
    """(y − y₀)²/(2s²); for s = 0, zero at y₀ and infinite elsewhere."""
    spread = jnp.where(variance > 0, variance, 1.0)
    never = jnp.where(jnp.abs(away) > 1e-9 * sigma, jnp.inf, 0.0)
    return jnp.where(variance > 0, away**2 / (2 * spread), never)


def _larger_root(square: Array, linear: Array, constant: Array) -> Array:
    """The larger root of square·ζ² − linear·ζ + constant, or the vertex where there is none."""
    inside = linear**2 - 4 * square * constant
    root = jnp.where(inside > 0, jnp.sqrt(jnp.where(inside > 0, inside, 1.0)), 0.0)
    return (linear + root) / (2 * square)


def _best_minimum(mean: Array, variance: Array, sigma: Array, theta: Array) -> Array:
    """ζ of the most numerous minima: beyond the typical outlier, limited by it, or at the edge."""
    bend = sigma**2
    free = _larger_root(bend, sigma * mean, bend - variance)
    held = _larger_root(bend + variance / 2, sigma * mean + variance * theta / 2, bend - variance)
    return jnp.maximum(jnp.where(free >= theta, free, jnp.minimum(held, jnp.maximum(theta, 1.0))), 1.0)


def _best_point(mean: Array, variance: Array, sigma: Array) -> Array:
    """y of the most numerous critical points: in the bulk if the maximum is there, else beyond one of its edges."""
    bend = sigma**2
    curved = bend - variance / 2
    inside = sigma * mean / jnp.where(curved > 0, curved, 1.0)
    beyond = _larger_root(bend, sigma * jnp.abs(mean), bend - variance)
    beyond = jnp.maximum(beyond, 1.0)
    outside = jnp.where(mean < 0, -1.0, 1.0) * (beyond + 1 / beyond)
    return sigma * jnp.where((curved > 0) & (jnp.abs(inside) < 2), inside, outside)
