"""Finite-size covariances and non-Gaussian samples for the simulations of masked regression."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.sequences.monte_carlo import gibbs, mixing, random_states
from solvable.methods.sequences.potts import Factored

SWEEPS = 64
"""Gibbs sweeps from random spins."""

Matrix = Float[Array, "d d"]
Vector = Float[Array, " d"]


def wave(size: int) -> Vector:
    """Variances exp(cos k), k = 0, 1…"""
    return jnp.exp(jnp.cos(jnp.arange(size, dtype=float)))


def two_levels(size: int, high: Any, low: Any, fraction: Any) -> Vector:
    """The higher variance in a fraction of the coordinates, the lower one in all others."""
    noisy = jnp.arange(size, dtype=float) < jnp.round(fraction * size)
    return jnp.where(noisy, high, low)


def autoregressive(variances: Vector, correlation: Any) -> Matrix:
    """A Markov chain: ρ^|k−l|, times both standard deviations."""
    place, deviation = jnp.arange(len(variances), dtype=float), jnp.sqrt(variances)
    distance = jnp.abs(place[:, None] - place[None, :])
    sign = jnp.where((correlation < 0) & (distance % 2 == 1), -1.0, 1.0)
    power = jnp.where(distance == 0, 1.0, jnp.abs(correlation) ** jnp.maximum(distance, 1.0))
    return deviation[:, None] * deviation[None, :] * sign * power


def ring(size: int, precision: Any, bond: Any) -> Matrix:
    """Covariance whose inverse couples neighbours on a ring, with eigenvalues a(1 − b cos k)."""
    step = jnp.roll(jnp.eye(size), 1, axis=0)
    return jnp.linalg.inv(precision * (jnp.eye(size) - bond / 2 * (step + step.T)))


def glass(key: PRNGKeyArray, size: int) -> Matrix:
    """Symmetric couplings J_ij ~ N(0, 1/d)."""
    draw = jnp.tril(jax.random.normal(key, (size, size), float), -1) / np.sqrt(size)
    return draw + draw.T


def paramagnet(couplings: Matrix, coupling: Any) -> Matrix:
    """((1+β²)I − βJ)⁻¹, the covariance of a spin glass at high temperature."""
    return jnp.linalg.inv((1.0 + coupling**2) * jnp.eye(len(couplings)) - coupling * couplings)


def localised(size: int, support: Any) -> Vector:
    """A unit vector with equal entries on the first m coordinates."""
    carried = jnp.where(jnp.arange(size, dtype=float) < jnp.round(support), 1.0, 0.0)
    return carried / jnp.sqrt(jnp.sum(carried))


def draw_spins(key: PRNGKeyArray, couplings: Matrix, rows: int) -> tuple[Float[Array, "n d"], Array]:
    """Configurations ±1 from exp(Σ_{i<j} J_ij s_i s_j), one per Gibbs chain, and R̂ − 1 of the chains."""
    interaction = jnp.array([[1.0, -1.0], [-1.0, 1.0]], jnp.float32)
    law = Factored(couplings.astype(jnp.float32), interaction, jnp.ones((), jnp.float32))
    start_key, run_key = jax.random.split(key)
    states, traces = gibbs(law, run_key, random_states(start_key, rows, len(couplings), 2), SWEEPS)
    return 1.0 - 2.0 * states.astype(float), mixing(traces[SWEEPS // 2 :]).r_hat - 1
