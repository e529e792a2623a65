"""Output channels of zero-temperature replica theories: what one sample teaches, given the order parameters.

The teacher's field ν and the student's cavity field ω are a centred Gaussian pair with variances ρ and q and covariance
m; the student's prediction on a training sample is prox(y, ω, V). With f = (prox − ω)/V the conjugate order parameters,
per sample, are  m̂ = E ∂f/∂ν,  q̂ = E f²,  V̂ = −E ∂f/∂ω.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Float

from .losses import Loss
from .quadrature import gaussian_panels

Scalar = Float[Array, ""]


class Conjugates(NamedTuple):
    """m̂, q̂, V̂, per sample."""

    overlap: Scalar
    norm: Scalar
    response: Scalar


class Risks(NamedTuple):
    """Mean losses and error rates of the student, on its training samples and on fresh ones."""

    train_loss: Scalar
    train_error: Scalar
    test_loss: Scalar
    test_error: Scalar


def sign_channel(loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Conjugates:
    """The teacher says y = sign(ν + noise). By the symmetry (y, ω) → (−y, −ω) only y = +1 is integrated, twice:

    P(y=1|ω) = Φ(w₀/s) with w₀ = mω/q and s² = `rest`, the variance of the noisy field that ω leaves open,
    ρ − m²/q + noise (the caller computes it free of cancellation), and
    m̂ = 2 ∫Dξ N(w₀; 0, s²) f,  q̂ = 2 ∫Dξ Φ(w₀/s) f²,  V̂ = (2/V) ∫Dξ Φ(w₀/s) (1 − prox′),  ω = √q ξ.
    """
    spread = jnp.sqrt(rest)
    slope = m / (jnp.sqrt(q) * spread)
    xi, weight = gaussian_panels(_breaks(loss.breaks(V), q, slope), nodes)
    omega = jnp.sqrt(q) * xi
    one = jnp.ones_like(omega)
    prox, prox_slope = jax.jvp(lambda w: loss.prox(one, w, V * one), (omega,), (one,))
    f = (prox - omega) / V
    density = jnp.exp(-0.5 * (slope * xi) ** 2) / (spread * np.sqrt(2 * np.pi))
    says_one = ndtr(slope * xi)
    return Conjugates(
        2 * weight @ (density * f),
        2 * weight @ (says_one * f**2),
        2 * weight @ (says_one * (1 - prox_slope)) / V,
    )


def sign_risks(loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Risks:
    """Training and test losses and errors under the sign teacher; test labels carry the same noise."""
    slope = m / jnp.sqrt(q * rest)
    one = jnp.ones(())
    wrong_below = V * loss.slope(one, jnp.zeros(()))  # prox(1, ω, V) < 0 exactly below this ω
    breaks = jnp.concatenate([loss.breaks(V), wrong_below[None], loss.value_breaks()])
    xi, weight = gaussian_panels(_breaks(breaks, q, slope), nodes)
    omega = jnp.sqrt(q) * xi
    ones = jnp.ones_like(omega)
    mass = 2 * weight * ndtr(slope * xi)
    prox = loss.prox(ones, omega, V * ones)
    return Risks(
        mass @ loss.value(ones, prox),
        mass @ (omega < wrong_below).astype(mass.dtype),
        mass @ loss.value(ones, omega),
        jnp.arctan2(jnp.ones(()), slope) / np.pi,  # the angle whose cosine is m/√(q(ρ + noise))
    )


def _breaks(in_omega: Float[Array, " b"], q: Scalar, slope: Scalar) -> Float[Array, " c"]:
    step = 8.0 / jnp.maximum(slope, 1e-3)
    return jnp.concatenate([in_omega / jnp.sqrt(q), jnp.stack([-step, 0 * step, step]), jnp.asarray([-3.0, 3.0])])


def square_student(
    samples: Scalar, penalty: Scalar, power: Scalar, correlation: Scalar
) -> tuple[Scalar, Scalar, Scalar]:
    """(m, q, V) of ridge regression in closed form, isotropic inputs, teacher of unit norm.

    The labels enter through E y² = `power` and E y∂_ν = `correlation` (linear teacher: 1 + Δ and 1; sign teacher: 1 and
    √(2/π(1+Δ))). With r = V/(1+V):  λV² + (λ + α − 1)V = 1,  m = αcr,  q = (m² + r²α(power − 2cm))/(1 − αr²).
    """
    b = penalty + samples - 1
    root = jnp.sqrt(b**2 + 4 * penalty)
    # Two forms of the same root, each free of cancellation on its side.
    V = jnp.where(b > 0, 2 / (root + jnp.abs(b)), (root + jnp.abs(b)) / (2 * penalty))
    r = V / (1 + V)
    m = samples * correlation * r
    q = (m**2 + samples * r**2 * (power - 2 * correlation * m)) / (1 - samples * r**2)
    return m, q, V


def bayes_sign_conjugate(q: Scalar, noise: Scalar, nodes: int) -> Scalar:
    """q̂ per sample of the Bayes-optimal student of the sign teacher (unit norm):

    q̂ = 1/(πs²) ∫Dξ exp(−x²)/Φ(x), x = √q ξ/s, s² = 1 − q + noise.
    """
    s2 = 1 - q + noise
    slope = jnp.sqrt(q / s2)
    xi, weight = gaussian_panels(jnp.asarray([-8.0, -3.0, 0.0, 3.0, 8.0]) / jnp.maximum(slope, 1e-3), nodes)
    x = slope * xi
    return weight @ jnp.exp(-(x**2) - log_ndtr(x)) / (np.pi * s2)
