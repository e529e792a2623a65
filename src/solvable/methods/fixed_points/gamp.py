r"""Generalised approximate message passing at finite size, for any denoiser and any output step, and its state evolution.

Rows x_μ of A have entries of variance 1/d, the labels depend on Aw₀. One iteration is two products with A
(Donoho, Maleki and Montanari 2009; Rangan 2011):

    V = (1/d) Σ_i v_i,         ω = Aŵ − V g,               (g, h) = score(y, ω, V),   h = −∂g/∂ω,
    Λ = (1/d) Σ_μ h_μ,         B = Λŵ + Aᵀg,               (ŵ, v) = denoise(B, Λ),    v = ∂ŵ/∂B.

Time goes into reading A, twice an iteration. (A few rows could give their ω, their g and their share of Aᵀg before the next rows
are read; on CPUs the copies of these rows cost more than the second reading.)

The score and the denoiser of a posterior make it the Bayes-optimal algorithm, those of proximal maps (f, −∂f/∂ω; w, ∂w/∂B) the
minimiser of a risk. In the limit of many weights B = m̂w₀ + √q̂ ξ with numbers that follow a scalar recursion, step by step
(`state_evolution`). `vmap` runs a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Messages", "gamp", "state_evolution"]

Vector = Float[Array, " n"]
Score = Callable[[Vector, Vector, Array], tuple[Vector, Vector]]
Denoise = Callable[[Vector, Array], tuple[Vector, Vector]]


class Messages(NamedTuple):
    """The last estimate and its mean variance V, and for every iteration what `measure` returned; `change` is the last step's."""

    estimate: Vector
    variance: Float[Array, ""]
    measured: Any
    change: Float[Array, ""]


def gamp(
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    score: Score,
    denoise: Denoise,
    iterations: int,
    *,
    measure: Callable[[Vector], Any] = jnp.mean,
    mask: Float[Array, " n"] | None = None,
    start: Vector | None = None,
    start_variance: Array | float = 1.0,
    damping: float = 1.0,
) -> Messages:
    """Iterate from `start` (zero without information, the teacher for an informed start).

    `score(y, ω, V)` and `denoise(B, Λ)` act on every sample and every weight by itself.
    `damping` below one mixes in the previous g and ŵ, which helps finite systems and changes no fixed point.

    >>> key = jax.random.key(0)
    >>> a = jax.random.normal(key, (600, 300)) / 300**0.5
    >>> teacher = jax.random.normal(jax.random.key(1), (300,))
    >>> ridge = gamp(  # λ = 1 with unit noise: the posterior mean is ridge regression
    ...     a, a @ teacher, lambda y, w, v: ((y - w) / (1 + v), jnp.ones_like(y) / (1 + v)),
    ...     lambda b, precision: (b / (1 + precision), jnp.ones_like(b) / (1 + precision)), 40)
    >>> exact = jnp.linalg.solve(a.T @ a + jnp.eye(300), a.T @ (a @ teacher))
    >>> bool(jnp.max(jnp.abs(ridge.estimate - exact)) < 1e-5)
    True
    """
    n, d = inputs.shape
    present = jnp.ones(n, inputs.dtype) if mask is None else mask
    first = jnp.zeros(d, inputs.dtype) if start is None else start.astype(inputs.dtype)

    V = jnp.asarray(start_variance, inputs.dtype)
    least = V * jnp.finfo(inputs.dtype).eps ** 0.5

    def step(state, _):
        w, V, g = state
        pull, stiff = score(labels, inputs @ w - V * g, V)
        g_new = damping * present * pull + (1 - damping) * g
        precision = jnp.sum(present * stiff) / d
        B = precision * w + g_new @ inputs  # as `inputs.T @ g_new` the CPU takes twenty times as long
        denoised, variance = denoise(B, precision)
        w_new = damping * denoised + (1 - damping) * w
        change = jnp.linalg.norm(w_new - w) / (jnp.linalg.norm(w_new) + 1e-30)
        V_new = damping * jnp.mean(variance) + (1 - damping) * V
        # Perfect recovery: when the variance vanishes, so does the scale of everything else, and messages stay as they are.
        after = jax.tree.map(lambda new, old: jnp.where(least >= V, old, new), (w_new, V_new, g_new), state)
        return after, (measure(after[0]), jnp.where(least >= V, 0.0, change))

    none = jnp.zeros(n, inputs.dtype)
    (w, V, _), (measured, changes) = jax.lax.scan(step, (first, V, none), None, length=iterations)
    return Messages(w, V, measured, changes[-1])


def state_evolution(
    weights: Callable[[Any], Any], conjugates: Callable[[Any], Any], start: Any, iterations: int
) -> Any:
    """The order parameters after 0, 1, …: `weights(conjugates(…))` iterated, each a function of the other's numbers.

    >>> error = state_evolution(lambda q_hat: 1 / (1 + q_hat), lambda e: 2.0 / (0.5 + e), jnp.ones(()), 30)
    >>> bool(abs(error[-1] - 1 / (1 + 2.0 / (0.5 + error[-1]))) < 1e-9)  # Bayes-optimal ridge regression
    True
    """

    def step(at, _):
        after = weights(conjugates(at))
        return after, after

    _, path = jax.lax.scan(step, start, None, length=iterations)
    return jax.tree.map(lambda first, later: jnp.concatenate([jnp.asarray(first)[None], later]), start, path)
