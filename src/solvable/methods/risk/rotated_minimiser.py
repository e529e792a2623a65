r"""Empirical risk minimisation of a composed linear model on a rotated covariance or an invariant design (`designs`).

For a convex problem ŵ is the fixed point of three nodes that exchange messages. The weights' node has the proximal map of the
penalty, the samples' node that of the loss: with its cavity fields (m, q, V) and the conjugates (m̂, q̂, V̂) per sample of
`outputs`, it sends (αV̂, αm̂, αq̂) for Gaussian rows and, for an invariant design, with r = 1 − VV̂,

    A_z = V̂/r,    m̂_z = m̂/r,    q̂_z = (q̂ − E(V̂ω − m̂ν)²)/r².

A ridge penalty, or a Gaussian weight, sends the same message whatever it receives: the covariate theory of
`methods.risk.covariate`. The unknowns are those of both cavities, in logarithms.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from .designs import Design, LinearNode, Message
from .outputs import Additive, Conjugates, Fields
from .penalties import Weights
from .real_losses import Residual
from .risk_minimiser import Composition, Learned, first_unknowns, from_unknowns, search, to_unknowns

Scalar = Float[Array, ""]


def learn_rotated(
    parts: Composition,
    samples: Scalar,
    design: Design,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 600,
) -> Learned:
    """What empirical risk minimisation learns from n = `samples`·d rows of a design with random singular vectors.

    >>> from .mixtures import gaussian
    >>> from .outputs import Additive
    >>> from .penalties import Elastic
    >>> from .real_losses import square
    >>> ridge = Composition(gaussian(), Additive(gaussian(0.2)), square(), Elastic(l2=0.3))
    >>> found = learn_rotated(ridge, jnp.asarray(1.0), Design([1.0], "invariant"))  # an orthogonal matrix: w = (w₀ + ε)/1.3
    >>> round(float(found.overlap), 8), round(float(found.norm), 8), round(1.2 / 1.3**2, 8)
    (0.76923077, 0.71005917, 0.71005917)
    """

    def round_trip(x: Array, parts: Composition, design: Design, samples: Scalar) -> tuple[Weights, Fields, LinearNode]:
        rho, curvature = parts.prior.power, parts.penalty.curvature
        stiffness, signal, noise = from_unknowns(x[:3], curvature)
        weights = parts.penalty.weights(parts.prior, signal, noise, stiffness)
        from_weights = _beyond(weights, Message(stiffness - curvature, signal, noise), rho, stiffness)
        # N is the variance of a sample's field that is not the teacher's
        spread = jnp.exp(x[5])
        t = jnp.sinh(x[4]) * jnp.sqrt(spread / rho)
        q = rho * t**2 + spread
        fields = Fields(rho * t, q, jnp.exp(x[3]), jnp.maximum(rho * spread / q, 1e-15))
        hat = parts.channel.conjugates(parts.loss, fields, rho, nodes)
        from_samples = _from_samples(parts, fields, hat, rho, samples, design.kind == "invariant")
        return weights, fields, LinearNode(design, samples, rho, from_weights, from_samples)

    def update(x: Array, args: tuple[Composition, Design, Scalar]) -> Array:
        parts, design, samples = args
        rho = parts.prior.power
        _, _, node = round_trip(x, parts, design, samples)
        cavity, fields = node.to_weights(), node.to_samples()
        spread = fields.q * fields.rest / rho
        of_samples = [jnp.log(fields.V), jnp.arcsinh(fields.m / jnp.sqrt(rho * spread)), jnp.log(spread)]
        of_weights = to_unknowns(cavity.precision + parts.penalty.curvature, cavity.signal, cavity.noise)
        return jnp.concatenate([of_weights, jnp.stack(of_samples)])

    rho, first = parts.prior.power, first_unknowns(parts, samples)
    start = jnp.concatenate([first, jnp.stack([-first[0], jnp.asarray(0.5), jnp.log(0.5 * rho)])])
    found = search(update, start, (parts, design, samples), parts, tolerance=tolerance, max_steps=max_steps)
    weights, fields, node = round_trip(found.x, parts, design, samples)
    m, q = weights.overlap, jnp.maximum(weights.norm, 1e-300)
    hat = parts.channel.conjugates(parts.loss, fields, rho, nodes)
    risks = parts.channel.risks(parts.loss, fields, rho, nodes)
    of_weights = weights.fluctuation / weights.response**2 - 1
    of_samples, fresh, test_loss = samples * hat.fluctuation, fields, risks.test_loss
    if node.invariant:
        under = jnp.maximum(1 - fields.V * hat.response, 1e-300)
        of_samples = fields.V**2 * (hat.fluctuation - hat.response**2) / under**2
        # a fresh sample is a row of another design: isotropic
        fresh = Fields(m, q, fields.V, jnp.maximum(rho - m**2 / q, 1e-15))
        test_loss = parts.channel.risks(parts.loss, fresh, rho, nodes).test_loss
    return Learned(
        m=fresh.m,
        q=fresh.q,
        V=fields.V,
        overlap=m,
        norm=q,
        mean_square_error=rho - 2 * m + q,
        train_loss=risks.train_loss,
        test_loss=test_loss,
        test_error=parts.channel.test_error(fresh.m, fresh.q, fresh.rest),
        energy=samples * risks.train_loss + weights.cost,
        stability=node.gain(of_weights, of_samples),
        residual=found.residual,
        converged=found.converged,
    )


def _beyond(weights: Weights, known: Message, rho: Scalar, stiffness: Scalar) -> Message:
    """What the weights' node knows beyond the message it got."""
    V = jnp.maximum(weights.response, 1e-12 / stiffness)  # all weights at a kink do not respond
    spread = (weights.norm - weights.overlap**2 / rho) / V**2 - known.noise
    return Message(
        jnp.maximum(1 / V - known.precision, 0.0),
        weights.overlap / (V * rho) - known.signal,
        jnp.maximum(spread, 0.0),
    )


def _from_samples(
    parts: Composition, at: Fields, hat: Conjugates, rho: Scalar, samples: Scalar, invariant: bool
) -> Message:
    if not invariant:
        return Message(samples * hat.response, samples * hat.overlap, samples * hat.norm)
    if isinstance(parts.channel, Additive) and isinstance(parts.loss, Residual) and not parts.loss.limited:  # square
        one = jnp.ones(())  # y itself is the message
        return Message(one, one, parts.channel.noise.power)
    under = jnp.maximum(1 - at.V * hat.response, 1e-300)
    aligned = at.q * hat.response**2 - 2 * at.m * hat.response * hat.overlap + rho * hat.overlap**2
    return Message(hat.response / under, hat.overlap / under, jnp.maximum(hat.norm - aligned, 0.0) / under**2)
