"""Generalised linear learning on Gaussian inputs with structure: the saddle point over a joint spectrum.

Inputs x ∈ R^p have covariance Ω with eigenvalues ω_i; the teacher's field ν has unit variance and √p E[xν] has the
squared component τ_i on eigenvector i. The student minimises Σ_μ ℓ(y_μ, w·x_μ/√p) + λ|w|²/2 over n = αp samples. With
the output channel's conjugates (`methods.channels`, times α), R = 1/(λ + V̂ω) and ⟨·⟩ the mean over i,

    V = ⟨ωR⟩,   m = m̂⟨τR⟩,   q = ⟨(m̂²τω + q̂ω²)R²⟩        (Loureiro et al. 2021, arXiv:2102.08127).

The unknowns of the solver are log(1+z), log A and log B with z = V̂ω̄/λ, ω̄ = ⟨ω⟩, A = m̂/(λ + V̂ω̄), B = q̂/(λ + V̂ω̄)². They
stay finite as λ → 0, on both sides of interpolation, and where V̂ vanishes (the hinge loss under a strong penalty):
with r = (1+z)/(1+zω/ω̄), V = ⟨ωr⟩/(λ(1+z)), m = A⟨τr⟩ and q = A²⟨τωr²⟩ + B⟨ω²r²⟩.

What the student's field leaves open of the teacher's, 1 − m²/q, is computed as a sum of positive terms: with μ = τ/ω
it is (1 − ⟨μ⟩) + ⟨μ⟩(B⟨ω²r²⟩ + A²⟨μ(ωr − mean)²⟩)/q.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import UnknownName, nearest
from .channels import sign_channel
from .losses import Loss
from .random_matrices import effective_ridge
from .saddle import solve

Scalar = Float[Array, ""]


# --- spectra ----------------------------------------------------------------------------------------------------------


class Spectrum(NamedTuple):
    """Joint spectrum (ω_i, τ_i) with weights that sum to one, and the part 1 − ⟨τ/ω⟩ of the teacher out of reach."""

    omega: Float[Array, " k"]
    tau: Float[Array, " k"]
    weights: Float[Array, " k"]
    unexplained: Scalar


def isotropic() -> Spectrum:
    """Ω = 1 and a teacher that is linear in the inputs: the perceptron.

    >>> float(isotropic().omega[0])
    1.0
    """
    return Spectrum(jnp.ones(1), jnp.ones(1), jnp.ones(1), jnp.zeros(()))


def power_law(decay: Scalar, teacher_decay: Scalar, modes: int) -> Spectrum:
    """ω_k ∝ k^−decay (of mean one) and a teacher in the inputs with squared weights θ_k² ∝ k^−teacher_decay.

    The field ν = θ·x/√p has variance ⟨ωθ²⟩ = 1, and τ = ω²θ².

    >>> s = power_law(jnp.asarray(1.2), jnp.asarray(0.5), 100)
    >>> bool(abs(s.weights @ (s.tau / s.omega) - 1) < 1e-12)
    True
    """
    k = jnp.arange(1, modes + 1, dtype=float)
    omega = k**-decay
    omega = omega / jnp.mean(omega)
    teacher = k**-teacher_decay
    teacher = teacher / jnp.mean(omega * teacher)
    return Spectrum(omega, omega**2 * teacher, jnp.full(modes, 1 / modes), jnp.zeros(()))


def gaussian_features(width: Scalar, linear: float, rest: float, nodes: int) -> Spectrum:
    """Random features of a Gaussian projection: ω = κ1²s + κ⋆², τ = κ1²s·width, s the spectrum of FᵀF/d, width = p/d.

    s follows Marchenko and Pastur's law: s = 1 + r + 2√r cos θ, midpoint in θ, where sρ(s)ds = (2/π)sin²θ dθ exactly, for
    every r. The value at s = 0 takes what is left of the mass: the atom 1 − 1/r for r > 1, and for r near one also the
    correction ⟨f⟩ = f(0) + ⟨s·(f(s) − f(0))/s⟩ without which the rule would lose 5e-4 of the mass. What is left to err is
    that (f(s) − f(0))/s has a pole at s = −(κ⋆² + κ)/κ1²: 64 nodes give 1e-12 for κ⋆²/κ1² = 0.05 at r = 1.

    >>> s = gaussian_features(jnp.asarray(1.001), 0.8, 0.6, 64)
    >>> bool(abs(s.weights @ s.omega - 1) < 1e-14)
    True
    """
    theta = (np.arange(nodes) + 0.5) * np.pi / nodes
    s = (1 - jnp.sqrt(width)) ** 2 + 4 * jnp.sqrt(width) * jnp.asarray(np.cos(theta / 2) ** 2)
    mass = jnp.asarray(2 * np.sin(theta) ** 2 / nodes)  # of s·ρ(s): sums to one, the mean of s
    seen = linear**2 / (linear**2 * s + rest**2)
    weights = mass / s
    return Spectrum(
        jnp.append(linear**2 * s + rest**2, rest**2),
        jnp.append(linear**2 * s * width, 0.0),
        jnp.append(weights, 1 - jnp.sum(weights)),
        jnp.maximum(1 - width * mass @ seen, 0.0),
    )


def orthogonal_features(width: Scalar, linear: float, rest: float) -> Spectrum:
    """The same for orthogonal projections: all s = 1 while p ≤ d; s = p/d with weight d/p and zeros beyond.

    >>> orthogonal_features(jnp.asarray(2.0), 1.0, 0.5).omega.tolist()
    [2.25, 0.25]
    """
    s, weight = jnp.maximum(width, 1.0), jnp.minimum(1 / width, 1.0)
    omega = linear**2 * s + rest**2
    explained = jnp.minimum(width, 1.0) * linear**2 * s / omega
    outside = jnp.maximum(1 - width, 0.0)  # of the d directions of c, those that no feature sees
    return Spectrum(
        jnp.stack([omega, jnp.full_like(omega, rest**2)]),
        jnp.stack([linear**2 * s * width, jnp.zeros_like(omega)]),
        jnp.stack([weight, 1 - weight]),
        jnp.where(width < 1, outside + jnp.minimum(width, 1.0) * rest**2 / omega, 1 - explained),
    )


# --- Gaussian equivalence ---------------------------------------------------------------------------------------------


class Nonlinearity(NamedTuple):
    """σ with E σ(z) = 0, z standard Gaussian, and its Gaussian equivalent κ1·z + κ⋆·(independent Gaussian)."""

    function: Callable[[Array], Array]
    linear: float
    rest: float


def equivalent(function: Callable[[np.ndarray], np.ndarray], step: float = 0.05) -> tuple[float, float, float]:
    """κ0 = E σ, κ1 = E zσ and κ⋆ = √(E σ² − κ0² − κ1²) of a smooth activation, by the trapezoidal rule.

    For σ analytic in a strip of half-width w the rule errs by exp(−2πw/step), and nothing remains beyond |z| = 12.

    >>> k0, k1, rest = equivalent(lambda z: z**2)
    >>> bool(abs(k0 - 1) < 1e-12 and abs(k1) < 1e-12 and abs(rest - 2**0.5) < 1e-12)
    True
    """
    z = np.arange(-12, 12 + step / 2, step)
    w = step * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    value = function(z)
    k0, k1 = float(w @ value), float(w @ (z * value))
    return k0, k1, float(np.sqrt(max(w @ (value - k0 - k1 * z) ** 2, 0.0)))


ACTIVATIONS = ("erf", "sign", "tanh", "relu")


@cache
def activation_named(name: str) -> Nonlinearity:
    """erf(z/√2), sign, tanh, or relu: max(z, 0) *less its mean* 1/√(2π), so that no feature has a mean.

    >>> round(activation_named("sign").linear ** 2, 6)
    0.63662
    """
    if name == "erf":
        return Nonlinearity(lambda z: jax.scipy.special.erf(z / np.sqrt(2)), np.pi**-0.5, (1 / 3 - 1 / np.pi) ** 0.5)
    if name == "sign":
        return Nonlinearity(jnp.sign, (2 / np.pi) ** 0.5, (1 - 2 / np.pi) ** 0.5)
    if name == "tanh":
        return Nonlinearity(jnp.tanh, *equivalent(np.tanh)[1:])
    if name == "relu":
        mean = (2 * np.pi) ** -0.5
        return Nonlinearity(lambda z: jnp.maximum(z, 0.0) - float(mean), 0.5, (0.25 - mean**2) ** 0.5)
    raise UnknownName(f"there is no activation {name!r}; {nearest(name, list(ACTIVATIONS))}")


# --- saddle point -----------------------------------------------------------------------------------------------------


class Student(NamedTuple):
    """Order parameters m, q, V; `rest`, the variance of the teacher's noisy field that the student's leaves open."""

    m: Scalar
    q: Scalar
    V: Scalar
    rest: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


class _Scaled(NamedTuple):
    """z = V̂ω̄/λ, A = m̂/(λ + V̂ω̄), B = q̂/(λ + V̂ω̄)²."""

    z: Scalar
    A: Scalar
    B: Scalar


def _order_parameters(spectrum: Spectrum, penalty: Scalar, noise: Scalar, at: _Scaled):
    """(m, q, V, rest) by the formulas at the top of the module."""
    omega, tau, weights, unexplained = spectrum
    mean = weights @ omega
    r = (1 + at.z) / (1 + at.z * omega / mean)
    m = at.A * (weights @ (tau * r))
    spread = at.B * (weights @ (omega * r) ** 2)
    q = at.A**2 * (weights @ (tau * omega * r**2)) + spread
    V = weights @ (omega * r) / (penalty * (1 + at.z))
    reach = weights * tau / omega
    total = jnp.sum(reach)
    # ωr − mean is −(ω̄/z)(r − mean) as well, which keeps its digits for z → ∞, where ωr is the same for all.
    large = at.z > 1
    values = jnp.where(large, r, omega * r)
    centred = (values - reach @ values / total) * jnp.where(large, mean / jnp.where(large, at.z, 1.0), 1.0)
    lost = spread + at.A**2 * (reach @ centred**2)
    return m, q, V, unexplained + total * lost / q + noise


def _ridge_point(spectrum: Spectrum, samples: Scalar, penalty: Scalar, power: Scalar, correlation: Scalar):
    """Ridge regression in the solver's unknowns, and its effective ridge κ = λ/V̂ = ω̄/z."""
    omega, tau, weights, _ = spectrum
    ridge = effective_ridge(omega, samples, penalty / samples, weights)
    inverse = 1 / (omega + ridge.kappa)
    share = omega * inverse
    m = correlation * (weights @ (tau * inverse))
    bias = correlation**2 * (weights @ (tau * share * inverse))
    noise = weights @ share**2 / samples
    # 1 − noise without cancellation: df1/n = 1 − slack.
    left = ridge.slack + ridge.kappa * (weights @ (share * inverse)) / samples
    q = (bias + noise * (power - 2 * correlation * m)) / left
    mean = weights @ omega
    scale = ridge.kappa + mean
    residue = (power - 2 * correlation * m + q) / samples  # q̂/V̂²
    return _Scaled(mean / ridge.kappa, correlation / scale, residue / scale**2), ridge


def square_student(
    spectrum: Spectrum, samples: Scalar, penalty: Scalar, power: Scalar, correlation: Scalar, noise: Scalar
) -> Student:
    """Ridge regression: V̂ = α/(1+V), m̂ = cV̂, q̂ = α(power − 2cm + q)/(1+V)², linear in m and q once κ is known.

    The labels enter through E y² = `power` and E ∂y/∂ν = c = `correlation` (linear teacher: 1 + Δ and 1; sign teacher: 1
    and √(2/π(1+Δ))); `samples` is α = n/p. κ solves λ/κ + ⟨ω/(ω+κ)⟩ = α, and 1 + V = ακ/λ.

    >>> one, zero = jnp.ones(()), jnp.zeros(())
    >>> found = square_student(isotropic(), 2 * one, 0.1 * one, one, one, zero)
    >>> round(float(found.m), 6), round(float(found.V), 6)
    (0.915571, 0.844289)
    """
    at, ridge = _ridge_point(spectrum, samples, penalty, power, correlation)
    return Student(*_order_parameters(spectrum, penalty, noise, at), ridge.residual, ridge.converged)


def sign_student(
    loss: Loss,
    spectrum: Spectrum,
    samples: Scalar,
    penalty: Scalar,
    noise: Scalar,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 400,
) -> Student:
    """Any convex loss under the sign teacher y = sign(ν + √Δ ζ): the output side by quadrature.

    The start is ridge classification at the same point, or at λ = 1e-3 where λ is less.

    >>> from solvable.methods.losses import loss_named
    >>> found = sign_student(loss_named("logistic"), isotropic(), jnp.asarray(2.0), jnp.asarray(0.1), jnp.zeros(()))
    >>> round(float(found.m), 4), round(float(found.q), 4)
    (1.7203, 4.1458)
    """

    def read(x):
        # A trial below zero means V̂ < 0, which no sample teaches.
        return _Scaled(jnp.expm1(jnp.maximum(x[0], 0.0)), jnp.exp(x[1]), jnp.exp(x[2]))

    def update(x, args):
        spectrum, samples, penalty, noise = args
        hat = sign_channel(loss, *_order_parameters(spectrum, penalty, noise, read(x)), nodes)
        z = samples * hat.response * (spectrum.weights @ spectrum.omega) / penalty
        scale = penalty * (1 + z)
        return jnp.stack([jnp.log1p(z), jnp.log(samples * hat.overlap / scale), jnp.log(samples * hat.norm / scale**2)])

    start, _ = _ridge_point(
        spectrum, samples, jnp.maximum(penalty, 1e-3), jnp.ones(()), jnp.sqrt(2 / (np.pi * (1 + noise)))
    )
    start = jnp.stack([jnp.log1p(start.z), jnp.log(start.A), jnp.log(start.B)])
    args = (spectrum, samples, penalty, noise)
    found = solve(update, start, args, tolerance=tolerance, max_steps=max_steps)
    return Student(*_order_parameters(spectrum, penalty, noise, read(found.x)), found.residual, found.converged)
