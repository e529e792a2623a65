"""Gradient descent on the means of binary weights while they sharpen, at finite size."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from solvable.methods.averages.tails import log_tail, tail_ratio


class Annealed(NamedTuple):
    """Magnetisations at the end, whether their signs solved at any step, and the sharpness at which they first did (or 1)."""

    means: Float[Array, " n"]
    solved: Bool[Array, ""]
    solved_at: Float[Array, ""]
    solution: Float[Array, " n"]
    change: Float[Array, ""]


def project(x: Float[Array, " n"], sharpness: Float[Array, ""]) -> Float[Array, " n"]:
    """clip(c x, −1, 1) with mean square `sharpness`.

    The mean of min(c²x², 1) is concave in c²: Newton's method from the left ends after finitely many steps and never divides
    by what is clipped. Entries are scaled by the largest one first, so that nothing overflows.

    >>> m = project(jnp.asarray([1e-30, 2e-30, 4e-30, 3e-30]), jnp.asarray(0.8))
    >>> round(float(jnp.mean(m**2)), 12), float(jnp.max(m))
    (0.8, 1.0)
    """
    x = x / jnp.maximum(jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny)
    square = jnp.maximum(x**2, jnp.finfo(x.dtype).eps ** 2)

    def newton(_, c2):
        below = c2 * square < 1
        rise = jnp.mean(jnp.where(below, square, 0.0))
        gap = sharpness - jnp.mean(jnp.minimum(c2 * square, 1.0))
        return c2 + jnp.where((gap > 0) & (rise > 0), gap / jnp.where(rise > 0, rise, 1.0), 0.0)

    c2 = jax.lax.fori_loop(0, 25, newton, sharpness / jnp.mean(square))
    return jnp.clip(jnp.sqrt(c2) * x, -1.0, 1.0)


def anneal(
    patterns: Float[Array, "p n"],
    mask: Float[Array, " p"],
    schedule: Float[Array, " k"],
    start: Float[Array, " n"],
    *,
    steps: int,
) -> Annealed:
    """`steps` accelerated, projected gradient steps on −Σ log H(−Δ/√(1−q)) at every sharpness q of the schedule.

    The step is the inverse of the largest curvature, (1−q)/(1+√α)²; momentum starts anew with every stage, and whenever
    it points uphill. The signs of the means are tried after every step.
    """
    dtype, size = patterns.dtype, patterns.shape[1]
    root = math.sqrt(size)
    ratio = jnp.sum(mask) / size
    norm = (1 + jnp.sqrt(ratio)) ** 2

    def stage(state, q):
        s = jnp.sqrt(1 - q)
        rate = (1 - q) / norm

        def step(_, inner):
            m, ahead, momentum, done, at, kept, _ = inner
            field = patterns @ ahead / root
            pull = patterns.T @ (mask * tail_ratio(-field / s) / s) / root
            new = project(ahead + rate * pull, q)
            uphill = jnp.vdot(ahead - new, new - m) > 0
            following = jnp.where(uphill, 1.0, 0.5 * (1 + jnp.sqrt(1 + 4 * momentum**2)))
            weight = jnp.where(uphill, 0.0, (momentum - 1) / following)
            signs = jnp.where(new >= 0, 1.0, -1.0).astype(dtype)
            good = jnp.sum(mask * (patterns @ signs <= 0).astype(dtype)) == 0
            at = jnp.where(good & ~done, q, at)
            kept = jnp.where(good & ~done, signs, kept)
            change = jnp.sqrt(jnp.mean((new - m) ** 2))
            return new, new + weight * (new - m), following, done | good, at, kept, change

        m, done, at, kept, _ = state
        m = project(m, q)
        one = jnp.ones((), dtype)
        m, _, _, done, at, kept, change = jax.lax.fori_loop(
            0, steps, step, (m, m, one, done, at, kept, jnp.zeros((), dtype))
        )
        return (m, done, at, kept, change), None

    first = (start, jnp.asarray(False), jnp.ones((), dtype), jnp.zeros_like(start), jnp.zeros((), dtype))
    (m, done, at, kept, change), _ = jax.lax.scan(stage, first, schedule.astype(dtype))
    return Annealed(m, done, at, kept, change)


def loss_of(fields: Array, mask: Array, sharpness: Array) -> tuple[Array, Array]:
    """Mean −log H and mean probability of a wrong sign of sampled weights, from the fields of the means."""
    u = -fields / jnp.sqrt(1 - sharpness)
    number = jnp.sum(mask)
    return -jnp.sum(mask * log_tail(u)) / number, jnp.sum(mask * jnp.exp(log_tail(-u))) / number
