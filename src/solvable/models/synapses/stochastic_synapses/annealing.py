"""Gradient descent on the means of binary weights while they sharpen, at finite size."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from solvable.methods.averages.tails import log_tail, tail_ratio


def schedule(stages: int = 40, last: float = 0.998) -> np.ndarray:
    """Sharpness from 0.1 to 0.9 in equal steps, then 1 − q in equal ratios.

    >>> schedule(3).round(3).tolist()
    [0.1, 0.5, 0.9, 0.986, 0.998]
    """
    return np.concatenate([np.linspace(0.1, 0.9, stages), 1 - np.geomspace(0.1, 1 - last, stages)[1:]])


class Annealed(NamedTuple):
    """Final magnetisations, whether their signs were a solution at any step, and the sharpness where they first were (or 1)."""

    means: Float[Array, " n"]
    solved: Bool[Array, ""]
    solved_at: Float[Array, ""]
    solution: Float[Array, " n"]
    change: Float[Array, ""]


def project(x: Float[Array, " n"], sharpness: Float[Array, ""]) -> Float[Array, " n"]:
    """clip(c x, −1, 1) with mean square `sharpness`.

    The mean of min(c²x², 1) is concave in c², so Newton's method from the left terminates, and never divides by clipped
    entries. Entries are first divided by the largest one to avoid overflow.

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
    """Take `steps` accelerated, projected gradient steps on −Σ log H(−Δ/√(1−q)) at every sharpness q of the schedule.

    The step is the inverse of the largest curvature, (1−q)/(1+√α)²; momentum restarts at every stage, and whenever it
    points uphill. The signs of the means are tested after every step.
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


class Descended(NamedTuple):
    """Final weights in [−1, 1], and whether they, or their signs, solved all patterns at any step."""

    weights: Float[Array, " n"]
    solved: Bool[Array, ""]
    signs_solved: Bool[Array, ""]


def descend_clipped(patterns: Float[Array, "p n"], start: Float[Array, " n"], *, steps: int) -> Descended:
    """Baseline: gradient descent on the logistic loss of one weight vector in the box [−1, 1]^N, without a distribution.

    The step is the inverse of the largest curvature; the signs are tested after every step.
    """
    size, rows = patterns.shape[1], patterns.shape[0]
    root, rate = math.sqrt(size), 4 / (1 + math.sqrt(rows / size)) ** 2

    def step(_, state):
        w, solved, by_signs = state
        pull = patterns.T @ jax.nn.sigmoid(-(patterns @ w) / root) / root
        w = jnp.clip(w + rate * pull, -1.0, 1.0)
        signs = jnp.where(w >= 0, 1.0, -1.0).astype(w.dtype)
        return w, solved | jnp.all(patterns @ w > 0), by_signs | jnp.all(patterns @ signs > 0)

    no = jnp.asarray(False)
    return Descended(*jax.lax.fori_loop(0, steps, step, (start, no, no)))


def loss_of(fields: Array, mask: Array, sharpness: Array) -> tuple[Array, Array]:
    """Mean −log H and mean probability of a wrong sign of sampled weights, from the fields of the means."""
    u = -fields / jnp.sqrt(1 - sharpness)
    number = jnp.sum(mask)
    return -jnp.sum(mask * log_tail(u)) / number, jnp.sum(mask * jnp.exp(log_tail(-u))) / number
