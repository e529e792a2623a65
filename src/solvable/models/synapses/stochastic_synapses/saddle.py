r"""The law of the magnetisations that minimise the loss at a given sharpness, and their responses.

In the cavity field of a weight the minimiser is m = clip((a + z)/κ, −1, 1), z ~ N(0, 1), with the teacher gauged to
+1: a = R̂/√q̂ (zero for random labels), κ = A/√q̂. Patterns see v = ω + V g(v) (`averages.tails`), ω = √q_* z and s²
= 1 − q_*,

    q_* = E m²,   R = E m,   V = E[z m]/√q̂,   q̂ = α E[τ(z) g²],   R̂ = α E[τ′ g],

where τ(z) = 2Φ(w/√V₀) is the probability that the teacher agrees, w = Rz/√q_*, V₀ = 1 − R²/q_* and τ′ =
2e^{−w²/2V₀}/√(2πV₀); for random labels τ = 1 and R̂ = 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from solvable.methods.averages.quadrature import legendre
from solvable.methods.averages.tails import TailRule, log_tail, tail_rule
from solvable.methods.fixed_points.saddle import solve

Scalar = Float[Array, ""]


def _density(z: Array) -> Array:
    return jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


class Clipped(NamedTuple):
    """Averages of m = clip((a + z)/κ, −1, 1): E m², E m, E[z m], E|m|; and of its sign: E sign m, E[z sign m]."""

    square: Scalar
    mean: Scalar
    slope: Scalar
    size: Scalar
    sign: Scalar
    sign_slope: Scalar


def clipped(shift: Scalar, width: Scalar) -> Clipped:
    """Closed forms of these averages.

    >>> found = clipped(jnp.asarray(0.0), jnp.asarray(1.0))
    >>> [round(float(x), 6) for x in (found.square, found.slope, found.size)]
    [0.516059, 0.682689, 0.631254]
    """
    a, k = shift, width
    left, right = -k - a, k - a
    inside = ndtr(right) - ndtr(left)
    ends = ndtr(-right) + ndtr(left)
    bump = _density(left) - _density(right)
    mean = ndtr(-right) - ndtr(left) + (a * inside + bump) / k
    # E[(a + z)² inside]: for a narrow window it is cubic in a small number, which a sum of moments would lose
    x, w = legendre(12)
    y = k * x
    narrow = jnp.sum(k * w * y**2 * (_density(y - a) + _density(y + a)))
    wide = (1 + a**2) * inside + 2 * a * bump + left * _density(left) - right * _density(right)
    square = ends + jnp.where(k < 0.5, narrow, wide) / k**2
    half = _density(a)
    size = ends + (a * (ndtr(right) + ndtr(left) - 2 * ndtr(-a)) + 2 * half - _density(right) - _density(left)) / k
    return Clipped(square, mean, inside / k, size, 2 * ndtr(a) - 1, 2 * half)


class Sharpened(NamedTuple):
    """The saddle point and its observables."""

    clipped: Clipped
    rule: TailRule
    response: Scalar
    field: Scalar  # √q̂
    multiplier: Scalar  # of the constraint |m|² = q_*N: A minus the curvature of the patterns
    train_loss: Scalar
    sampled_error: Scalar
    train_error: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def sharpen(
    samples: Scalar, sharpness: Scalar, taught: bool, *, nodes: int = 10, tolerance: float = 1e-11, max_steps: int = 400
) -> Sharpened:
    """The minimiser of the loss at q_* = `sharpness`, with a teacher's labels (`taught`) or random ones.

    >>> found = sharpen(jnp.asarray(0.5), jnp.asarray(0.5), False)
    >>> [round(float(x), 4) for x in (found.train_loss, found.train_error, found.sampled_error)]
    [0.1443, 0.0459, 0.1311]
    """

    def read(x, args):
        samples, sharpness = args
        shift = jnp.exp(x[2]) if taught else jnp.zeros(())
        m = clipped(shift, jnp.exp(x[0]))
        rule = tail_rule(sharpness, jnp.exp(x[1]), 1 - sharpness, nodes=nodes)
        if not taught:
            one = jnp.ones_like(rule.z)
            return m, rule, one, samples * rule.mean(rule.slope**2), jnp.zeros(())
        part = m.mean / jnp.sqrt(m.square)  # √q_* at the solution, and never above one before convergence
        rest = jnp.sqrt(jnp.maximum(1 - part**2, 1e-14))
        w = part / rest * rule.z
        weight = 2 * ndtr(w)
        return (
            m,
            rule,
            weight,
            samples * rule.mean(weight * rule.slope**2),
            samples * rule.mean(2 * _density(w) / rest * rule.slope),
        )

    def update(x, args):
        m, _, _, variance, drift = read(x, args)
        root = jnp.sqrt(variance)
        new = [x[0] + 0.5 * jnp.log(m.square / args[1]), jnp.log(m.slope / root)]
        return jnp.stack([*new, jnp.log(drift / root)] if taught else new)

    args = (samples, sharpness)
    start = [
        -0.5 * jnp.log(sharpness) + jnp.log1p(-sharpness),
        jnp.log(1 / jnp.sqrt(1 + samples)) - jnp.log(samples) * 0.5,
    ]
    start += [0.5 * jnp.log(samples) - 0.2] if taught else []
    found = solve(
        update, jnp.stack(start), args, tolerance=tolerance, max_steps=max_steps, warmup=6, damping=0.5, reach=1.0
    )
    m, rule, weight, variance, _ = read(found.x, args)
    root, s = jnp.sqrt(variance), jnp.sqrt(1 - sharpness)
    rho = jnp.minimum(m.size / jnp.sqrt(sharpness), 1.0)
    pushed = m.sign_slope / root * rule.slope
    if taught:
        wrong = _with_teacher(m, rule, rho, pushed, sharpness)
    else:
        wrong = ndtr(-(rho * rule.z + pushed) / jnp.sqrt(1 - rho**2))
    stiff = -samples * rule.mean(weight * rule.curvature / (1 - jnp.exp(found.x[1]) * rule.curvature))
    enough = jnp.abs(jnp.sum(rule.weight) - 1) < 1e-8
    return Sharpened(
        m, rule, jnp.exp(found.x[1]), root, jnp.exp(found.x[0]) * root - stiff, -rule.mean(weight * rule.log_tail),
        rule.mean(weight * jnp.exp(log_tail(rule.v / s))), rule.mean(wrong), found.residual, found.converged & enough,
    )  # fmt: skip


def _with_teacher(m: Clipped, rule: TailRule, rho: Scalar, pushed: Array, sharpness: Scalar) -> Array:
    """P(teacher agrees, sign m errs), doubled, given z: the fields of m, sign m and the teacher are jointly Gaussian."""
    part = m.mean / jnp.sqrt(sharpness)
    rest = jnp.sqrt(jnp.maximum(1 - part**2, 1e-14))
    tie = (m.sign - rho * part) / rest
    spread = jnp.sqrt(jnp.maximum(1 - rho**2 - tie**2, 1e-14))
    x, w = legendre(48)
    low = jnp.clip(-part / rest * rule.z, -9.0, 9.0)[:, None]
    t = low + (9.0 - low) * x[None, :]
    err = ndtr(-((rho * rule.z + pushed)[:, None] + tie * t) / spread)
    return 2 * jnp.sum((9.0 - low) * w[None, :] * _density(t) * err, axis=1)
