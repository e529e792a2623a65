r"""Vector approximate message passing for y = Aw + noise with any rotationally invariant matrix, and its state evolution.

A = U S Oᵀ with O uniformly distributed: only the eigenvalues s of AᵀA matter (Rangan, Schniter and Fletcher 2019,
arXiv:1610.03082). Two estimates alternate, a denoiser of r₁ at precision γ₁ and least squares around r₂ at precision γ₂,

    η₁ = γ₁/⟨∂ŵ₁/∂r₁⟩,   γ₂ = η₁ − γ₁,   r₂ = (η₁ŵ₁ − γ₁r₁)/γ₂,
    ŵ₂ = (AᵀA/Δ + γ₂)⁻¹(Aᵀy/Δ + γ₂r₂),   η₂ = γ₂/⟨γ₂/(s/Δ + γ₂)⟩,   γ₁ = η₂ − γ₂,   r₁ = (η₂ŵ₂ − γ₂r₂)/γ₁.

In the limit r₁ = w₀ + √τ₁ ξ and r₂ = w₀ + √τ₂ ξ, where the variances follow

    τ₂ = (E₁ − a₁²τ₁)/(1 − a₁)²,   τ₁ = (E₂ − a₂²τ₂)/(1 − a₂)²,   a = ⟨∂ŵ/∂r⟩,   E₂ = ⟨(sΔ₀/Δ² + γ₂²τ₂)/(s/Δ + γ₂)²⟩.

With the posterior mean and Δ the true noise Δ₀ it is Bayes-optimal, τ = 1/γ; with a proximal map and Δ = 1 its fixed point
minimises ½|y − Aw|² + r(w).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Evolved", "VectorMessages", "evolve", "vamp"]

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]


class VectorMessages(NamedTuple):
    """The last estimate, its precision γ₁, and what `measure` returned in every iteration."""

    estimate: Vector
    precision: Scalar
    measured: Any


def vamp(
    vectors: Float[Array, "d d"],
    eigenvalues: Float[Array, " d"],
    moment: Vector,
    denoise: Callable[[Vector, Scalar], tuple[Vector, Vector]],
    iterations: int,
    *,
    noise: Scalar | float = 1.0,
    power: Scalar | float = 1.0,
    measure: Callable[[Vector], Any] = jnp.mean,
) -> VectorMessages:
    """Iterate from r₂ = 0 at the precision 1/`power` of the prior, E w₀² = power.

    AᵀA has these `vectors` (columns) and `eigenvalues`, `moment` is Aᵀy.

    `denoise(r, γ)` returns the estimate and ∂ŵ/∂r.

    >>> a = jax.random.normal(jax.random.key(0), (60, 30))
    >>> w0 = jax.random.normal(jax.random.key(1), (30,))
    >>> s, o = jnp.linalg.eigh(a.T @ a)
    >>> ridge = lambda r, p: (p * r / (p + 2.0), jnp.full_like(r, 1.0) * p / (p + 2.0))
    >>> found = vamp(o, s, a.T @ (a @ w0), ridge, 60)
    >>> exact = jnp.linalg.solve(a.T @ a + 2.0 * jnp.eye(30), a.T @ (a @ w0))
    >>> bool(jnp.max(jnp.abs(found.estimate - exact)) < 1e-6)
    True
    """
    s = eigenvalues / noise
    turned = vectors.T @ (moment / noise)

    def step(state, _):
        r2, g2 = state
        w2 = vectors @ ((turned + g2 * (vectors.T @ r2)) / (s + g2))
        a2 = _share(jnp.mean(g2 / (s + g2)))
        g1, r1 = g2 * (1 - a2) / a2, (w2 - a2 * r2) / (1 - a2)
        w, slope = denoise(r1, g1)
        a1 = _share(jnp.mean(slope))
        return ((w - a1 * r1) / (1 - a1), g1 * (1 - a1) / a1), (w, g1, measure(w))

    start = (jnp.zeros_like(moment), jnp.asarray(1 / power, moment.dtype))

    def body(state, _):
        after, (w, g1, seen) = step(state[0], None)
        return (after, w, g1), seen

    first = (start, jnp.zeros_like(moment), jnp.zeros((), moment.dtype))
    (_, w, g1), measured = jax.lax.scan(body, first, None, length=iterations)
    return VectorMessages(w, g1, measured)


def _share(a: Scalar) -> Scalar:
    """A mean slope, kept away from 0 and 1, where a precision would be infinite."""
    return jnp.clip(a, 1e-12, 1 - 1e-12)


class Evolved(NamedTuple):
    """γ₁, τ₁ and the mean squared error E₁ of the denoiser, in every iteration."""

    precision: Float[Array, " iteration"]
    variance: Float[Array, " iteration"]
    error: Float[Array, " iteration"]


def evolve(
    spectrum: Float[Array, " k"],
    denoised: Callable[[Scalar, Scalar], tuple[Scalar, Scalar]],
    power: Scalar | float,
    iterations: int,
    *,
    noise: Scalar | float = 1.0,
    true_noise: Scalar | float | None = None,
) -> Evolved:
    """State evolution; `denoised(γ, τ)` is the error and the mean slope of the denoiser at r = w₀ + √τ ξ, `power` E w₀².

    `noise` is the Δ that the algorithm assumes, `true_noise` Δ₀ (the same unless given).

    >>> gaussian = lambda g, t: ((1 + g**2 * t) / (1 + g) ** 2, g / (1 + g))  # prior N(0, 1)
    >>> found = evolve(jnp.ones(1), gaussian, 1.0, 40, noise=0.5)
    >>> round(float(found.error[-1]), 8)  # AᵀA = 1: Δ/(1 + Δ)
    0.33333333
    """
    truth = noise if true_noise is None else true_noise
    s = spectrum / noise

    def step(state, _):
        g2, t2 = state
        a2 = _share(jnp.mean(g2 / (s + g2)))
        error2 = jnp.mean((s * truth / noise + g2**2 * t2) / (s + g2) ** 2)
        g1, t1 = g2 * (1 - a2) / a2, (error2 - a2**2 * t2) / (1 - a2) ** 2
        error, slope = denoised(g1, t1)
        a1 = _share(slope)
        after = g1 * (1 - a1) / a1, (error - a1**2 * t1) / (1 - a1) ** 2
        return after, Evolved(g1, t1, error)

    start = (1 / jnp.asarray(power, float), jnp.asarray(power, float))
    _, path = jax.lax.scan(step, start, None, length=iterations)
    return path
