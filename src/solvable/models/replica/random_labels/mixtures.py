"""Random labels on several Gaussian clouds: one saddle point with q and V per cloud.

An input is from cloud k with probability r_k, x = μ_k + Ω_k^½z, and its label ±1 is independent of it. All Ω_k are
diagonal in one basis, with eigenvalues ω^k_i. The student minimises Σ_μ ℓ(y_μ, w·x_μ/√p) + λ|w|²/2 over n = αp samples. With
the output channel's conjugates of each cloud (`methods.risk.channels`), V̂_k and q̂_k, times α r_k,

    R_i = 1/(λ + Σ_k V̂_k ω^k_i),   V_k = ⟨ω^k R⟩,   q_k = ⟨ω^k R² Σ_l q̂_l ω^l⟩     (Gerace et al. 2024, arXiv:2205.13303).

Means of length O(1) do not appear: a student that shifts all fields of a cloud gains nothing, because labels are balanced
within it. Clouds of equal covariance are exactly equivalent to one cloud; clouds that differ are not described by their mean
covariance.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from solvable.methods.fixed_points.saddle import solve
from solvable.methods.random_matrices.spectra import Spectrum
from solvable.methods.risk.channels import sign_moments, sign_risks
from solvable.methods.risk.covariate import student
from solvable.methods.risk.losses import Loss
from solvable.methods.risk.teachers import random_labels

Scalar = Float[Array, ""]


class Mixed(NamedTuple):
    """Order parameters and training risks of each cloud, with convergence and residual of the saddle point."""

    q: Float[Array, " cloud"]
    V: Float[Array, " cloud"]
    train_loss: Float[Array, " cloud"]
    train_error: Float[Array, " cloud"]
    residual: Scalar
    converged: Bool[Array, ""]


def random_labels_of_clouds(
    loss: Loss,
    spectra: Float[Array, "cloud k"],
    weights: Float[Array, " k"],
    shares: Float[Array, " cloud"],
    samples: Scalar,
    penalty: Scalar,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 400,
) -> Mixed:
    """q_k, V_k and training risks; `spectra` are the ω^k_i, and `weights` of the directions and `shares` each sum to one.

    The solver starts from the single Gaussian with the mean covariance, which is the solution for one cloud. λ = 0 is allowed
    above the capacity.

    >>> from solvable.methods.risk.losses import loss_named
    >>> one, half = jnp.ones(()), jnp.full(2, 0.5)
    >>> found = random_labels_of_clouds(loss_named("logistic"), jnp.ones((2, 1)), jnp.ones(1), half, 3 * one, 0 * one)
    >>> [round(float(v), 6) for v in found.train_loss]
    [0.48587, 0.48587]
    """
    options = {"nodes": nodes, "tolerance": tolerance, "max_steps": max_steps}
    mean = shares @ spectra
    whole = Spectrum(mean, jnp.zeros_like(mean), weights, jnp.ones(()))
    first = student(loss, random_labels(), whole, samples, penalty, **options)
    if spectra.shape[0] == 1:
        return _judged(loss, first.q[None], first.V[None], first.residual, first.converged, nodes)

    means = spectra @ weights

    def read(x: Array, args: tuple[Array, ...]) -> tuple[Array, Array]:
        """(q, V) of the clouds from log S_k, S_k = λ + V̂_k⟨ω^k⟩, and log q̂_k."""
        spectra, weights, _, _, penalty = args
        clouds = x.shape[0] // 2
        response = jnp.maximum(jnp.exp(x[:clouds]) - penalty, 0.0) / means
        inverse = penalty + response @ spectra
        inverse = jnp.where(inverse > 0, 1 / jnp.where(inverse > 0, inverse, 1.0), 0.0)
        kicks = jnp.exp(x[clouds:]) @ spectra
        return spectra @ (weights * inverse**2 * kicks), spectra @ (weights * inverse)

    def channel(q: Array, V: Array) -> tuple[Array, Array]:
        zero, one = jnp.zeros(()), jnp.ones(())
        hat = jax.vmap(lambda q, V: sign_moments(loss, zero, q, V, one, nodes, 0.5))(q, V)
        return hat.norm, hat.response

    def update(x: Array, args: tuple[Array, ...]) -> Array:
        _, _, shares, samples, penalty = args
        norm, response = channel(*read(x, args))
        S = penalty + samples * shares * response * means
        return jnp.concatenate([jnp.log(S), jnp.log(samples * shares * norm)])

    norm, response = (samples * v for v in channel(first.q[None], first.V[None]))
    start = jnp.concatenate([jnp.log(penalty + shares * response * means), jnp.log(shares * norm)])
    args = (spectra, weights, shares, samples, penalty)
    found = solve(update, start, args, tolerance=tolerance, max_steps=max_steps)
    q, V = read(found.x, args)
    return _judged(loss, q, V, found.residual, found.converged, nodes)


def _judged(loss: Loss, q: Array, V: Array, residual: Array, converged: Array, nodes: int) -> Mixed:
    zero, one = jnp.zeros(()), jnp.ones(())
    # The square loss without a penalty interpolates with an infinite V.
    risks = jax.vmap(lambda q, V: sign_risks(loss, zero, q, jnp.minimum(V, 1e300), one, nodes, 0.5))(q, V)
    return Mixed(q, V, risks.train_loss, risks.train_error, residual, converged)
