r"""Empirical risk minimisation of a composed linear model: the replica-symmetric saddle point, exact for convex problems.

ŵ = argmin_w Σ_μ ℓ(y_μ, w·x_μ/√d) + Σ_i r(w_i) over n = αd samples with x ~ N(0, 1_d), labels y from a channel P(y|ν) of the
field ν = w₀·x/√d, weights w₀ drawn from a prior with E w₀² = ρ. With the conjugates of the channel (`outputs`, times α) and
the moments of the penalty (`penalties`),

    (m̂, q̂, V̂) = α·conjugates(m, q, V),      (m, q, V) = weights(m̂, q̂, V̂).

The unknowns of the solver are log S, arsinh(m̂/√q̂) and log(q̂/S²) with S = V̂ + λ₂: the last is the variance of a weight's
noise, which stays of order one as λ → 0, where V̂ and q̂ vanish below interpolation.

**Covariance.** If weight i has inputs of variance ω_i (an *aligned* design, `designs`), it minimises V̂ωw²/2 − Bw + r(w) in the
field B = m̂ωw₀ + √(q̂ω) ξ, and samples see ⟨ωm⟩, ⟨ωq⟩ and ⟨ωV⟩.

**Stability.** A small distance between two replicas is multiplied by G = α E[(∂f/∂ω)²] ⟨ω² E(∂w/∂B)²⟩ (de Almeida and Thouless
1978); replica symmetry holds where G < 1. **Energy.** The minimum of the risk per weight is α·(train loss) + E r(ŵ).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..fixed_points.saddle import Solution, Update, solve
from .designs import Design
from .losses import Loss
from .mixtures import Mixture
from .outputs import Channel, Fields, Table
from .penalties import Penalty, Weights

Scalar = Float[Array, ""]


class Composition(eqx.Module):
    """The parts of a generalised linear model; the prior is the law of a teacher's weight."""

    prior: Mixture
    channel: Channel
    loss: Loss
    penalty: Penalty


class Learned(NamedTuple):
    """m, q and V of a fresh sample's field, overlap and norm of the weights, losses, error rate (NaN without labels ±1),
    energy, stability, and how well they were found."""

    m: Scalar
    q: Scalar
    V: Scalar
    overlap: Scalar
    norm: Scalar
    mean_square_error: Scalar
    train_loss: Scalar
    test_loss: Scalar
    test_error: Scalar
    energy: Scalar
    stability: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def to_unknowns(stiffness: Scalar, signal: Scalar, noise: Scalar) -> Float[Array, " 3"]:
    """The solver's unknowns for S, m̂ and q̂."""
    return jnp.stack([jnp.log(stiffness), jnp.arcsinh(signal / jnp.sqrt(noise)), jnp.log(noise / stiffness**2)])


def from_unknowns(x: Float[Array, " 3"], curvature: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """S, m̂ and q̂. V̂ < 0 is impossible: a trial below λ₂ (`curvature`) is one at λ₂.

    >>> at = from_unknowns(to_unknowns(jnp.array(2.0), jnp.array(-0.5), jnp.array(3.0)), jnp.array(0.1))
    >>> [round(float(v), 12) for v in at]
    [2.0, -0.5, 3.0]
    """
    stiffness = jnp.maximum(jnp.exp(x[0]), curvature)
    noise = jnp.exp(x[2]) * stiffness**2
    return stiffness, jnp.sinh(x[1]) * jnp.sqrt(noise), noise


def first_unknowns(parts: Composition, samples: Scalar) -> Float[Array, " 3"]:
    """Where the search begins."""
    stiffness, power = parts.penalty.curvature + 0.5 * samples, jnp.maximum(parts.prior.power, 0.1)
    return jnp.stack(
        [jnp.log(stiffness), jnp.arcsinh(0.5 * jnp.sqrt(samples)), jnp.log(0.5 * samples * power / stiffness**2)]
    )


def search(
    update: Update, start: Float[Array, " n"], args: Any, parts: Composition, *, tolerance: float, max_steps: int
) -> Solution:
    """`solve` with the damping and the warm-up of these problems.

    With little noise the error shrinks over many iterations before Newton's steps are any good; tables are expensive.
    """
    warmup = 30 if isinstance(parts.channel, Table) else 150
    return solve(update, start, args, tolerance=tolerance, max_steps=max_steps, warmup=warmup, damping=0.8)


def learn(
    parts: Composition,
    samples: Scalar,
    design: Design | None = None,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 600,
) -> Learned:
    """What empirical risk minimisation learns from n = `samples`·d samples; inputs are independent without a `design`.

    >>> from .mixtures import gaussian
    >>> from .outputs import Additive
    >>> from .penalties import Elastic
    >>> from .real_losses import square
    >>> ridge = Composition(gaussian(), Additive(gaussian(0.2)), square(), Elastic(l2=0.2))
    >>> found = learn(ridge, jnp.asarray(2.0))
    >>> round(float(found.m), 8), round(float(found.q), 8)  # at λ = Δ the learner is Bayes-optimal, m = q
    (0.85166852, 0.85166852)
    """

    def order_parameters(x: Array, parts: Composition, design: Design | None) -> tuple[Weights, Fields]:
        curvature = parts.penalty.curvature
        stiffness, m_hat, q_hat = from_unknowns(x, curvature)
        if design is None:
            found = parts.penalty.weights(parts.prior, m_hat, q_hat, stiffness)
            m, q, V = found.overlap, found.norm, found.response
        else:
            omega, shares = design.values, design.shares
            V_hat = stiffness - curvature
            each = jax.vmap(lambda w: parts.penalty.weights(parts.prior, m_hat * w, q_hat * w, V_hat * w + curvature))(
                omega
            )
            m, q, V = (shares @ (omega * v) for v in (each.overlap, each.norm, each.response))
            found = Weights(*(shares @ v for v in each))._replace(fluctuation=shares @ (omega**2 * each.fluctuation))
        q = jnp.maximum(q, 1e-300)
        rest = jnp.maximum(parts.prior.power - m**2 / q, 1e-15)
        return found, Fields(m, q, jnp.maximum(V, 1e-300), rest)

    def update(x: Array, args: tuple[Composition, Scalar, Design | None]) -> Array:
        parts, samples, design = args
        _, at = order_parameters(x, parts, design)
        hat = parts.channel.conjugates(parts.loss, at, parts.prior.power, nodes)
        return to_unknowns(parts.penalty.curvature + samples * hat.response, samples * hat.overlap, samples * hat.norm)

    rho, start, args = parts.prior.power, first_unknowns(parts, samples), (parts, samples, design)
    found = search(update, start, args, parts, tolerance=tolerance, max_steps=max_steps)
    weights, at = order_parameters(found.x, parts, design)
    risks = parts.channel.risks(parts.loss, at, rho, nodes)
    hat = parts.channel.conjugates(parts.loss, at, rho, nodes)
    return Learned(
        at.m,
        at.q,
        at.V,
        weights.overlap,
        weights.norm,
        rho - 2 * weights.overlap + weights.norm,
        *risks,
        parts.channel.test_error(at.m, at.q, at.rest),
        samples * risks.train_loss + weights.cost,
        samples * hat.fluctuation * weights.fluctuation,
        found.residual,
        found.converged,
    )
