r"""Message passing for perceptrons with discrete weights at finite size: marginals, entropy, search by reinforcement.

Patterns ξ_μ (labels absorbed) require fields w·ξ_μ/√N > κ. With m_i, v_i the mean and variance of weight i, V = <v_i>
and R = G/H, approximate message passing repeats

    ω_μ = ξ_μ·m/√N − V g_μ,   g_μ = R((κ − ω_μ)/√V)/√V,   A = −Σ_μ g′_μ/N,   h_i = A m_i + Σ_μ ξ_μi g_μ/√N,

with marginals ∝ exp(−A w²/2 + h_i w) over the levels. At its fixed point the Bethe entropy per weight is

    S = <log Z_i − h_i m_i + A<w²>_i/2> + Σ_μ [log H((κ − ω_μ)/√V) + V g_μ²/2]/N.

*Reinforcement* adds to the log-marginals those of the previous sweep, times a factor that grows by γ with every sweep:
the marginals polarise until the most likely levels are a solution (Braunstein and Zecchina 2006).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..averages.levels import level_sums
from ..averages.tails import log_tail, tail_ratio, tail_slope


class Marginals(NamedTuple):
    """The state in which message passing stopped."""

    mean: Float[Array, " n"]
    weights: Float[Array, " n"]  # the most likely level of each weight
    entropy: Float[Array, ""]
    overlap: Float[Array, ""]
    square: Float[Array, ""]
    error: Float[Array, ""]  # fraction of patterns that the most likely levels violate
    solved: Bool[Array, ""]
    sweeps: Int[Array, ""]
    change: Float[Array, ""]  # change of the means in the last sweep


class _Sweep(NamedTuple):
    mean: Array
    variance: Array
    field: Array
    stiffness: Array
    slope: Array
    sweeps: Array
    wrong: Array
    change: Array


def pass_messages(
    patterns: Float[Array, "p n"],
    levels: Float[Array, " l"],
    margin: Array | float = 0.0,
    mask: Float[Array, " p"] | None = None,
    *,
    reinforcement: Array | float | None = None,
    damping: float = 0.7,
    most: int = 1000,
    tolerance: float = 1e-5,
) -> Marginals:
    """Sweep until the means change by less than `tolerance` or, with `reinforcement`, the most likely levels are a solution.

    `mask` is one for real patterns and zero for padding. Use `vmap` for a batch; finished lanes no longer change.

    >>> x = jnp.sign(jax.random.normal(jax.random.key(0), (40, 101)))
    >>> found = pass_messages(x, jnp.asarray([-1.0, 1.0]), reinforcement=0.01)
    >>> bool(found.solved), bool(jnp.all(x @ found.weights > 0))
    (True, True)
    """
    dtype, (rows, size) = patterns.dtype, patterns.shape
    levels, kappa = jnp.asarray(levels, dtype), jnp.asarray(margin, dtype)
    there = jnp.ones(rows, dtype) if mask is None else mask
    root, grows = math.sqrt(size), reinforcement is not None
    number = jnp.sum(there)
    pace = jnp.asarray(0.0 if reinforcement is None else reinforcement, dtype)

    def chosen(field, stiffness):
        exponent = (-0.5 * stiffness * levels**2)[None, :] + field[:, None] * levels[None, :]
        return levels[jnp.argmax(exponent, axis=1)]

    def wrong(field, stiffness):
        return jnp.sum(there * (patterns @ chosen(field, stiffness) / root <= kappa).astype(dtype))

    def outward(mean, variance, slope):
        """V, the cavity fields ω of the patterns, u = (κ − ω)/√V, and the patterns' responses g and −g′."""
        V = jnp.mean(variance)
        omega = patterns @ mean / root - V * slope
        u = (kappa - omega) / jnp.sqrt(V)
        return V, omega, u, there * tail_ratio(u) / jnp.sqrt(V), there * tail_slope(u) / V

    def sweep(s: _Sweep) -> _Sweep:
        _, _, _, slope, bend = outward(s.mean, s.variance, s.slope)
        stiffness = jnp.sum(bend) / size
        field = stiffness * s.mean + patterns.T @ slope / root
        if grows:
            again = jnp.minimum(pace * s.sweeps.astype(dtype), 1.0)
            field, stiffness = field + again * s.field, stiffness + again * s.stiffness
        else:
            field = s.field + damping * (field - s.field)
            stiffness = s.stiffness + damping * (stiffness - s.stiffness)
        sums = level_sums(levels, -stiffness, field)
        change = jnp.max(jnp.abs(sums.mean - s.mean))
        left = wrong(field, stiffness) if grows else s.wrong
        # A lane whose marginals are almost certain has V → 0 and can no longer improve.
        variance = jnp.maximum(sums.variance, 1e-12)
        return _Sweep(sums.mean, variance, field, stiffness, slope, s.sweeps + 1, left, change)

    def going(s: _Sweep) -> Array:
        more = s.wrong > 0 if grows else s.change > tolerance
        return more & (s.sweeps < most) & jnp.all(jnp.isfinite(s.mean))

    flat = level_sums(levels, jnp.zeros((), dtype), jnp.zeros(size, dtype))
    zero = jnp.zeros((), dtype)
    first = _Sweep(flat.mean, flat.variance, jnp.zeros(size, dtype), zero, jnp.zeros(rows, dtype),
                   jnp.zeros((), jnp.int32), number, jnp.asarray(jnp.inf, dtype))  # fmt: skip
    last = jax.lax.while_loop(going, sweep, first)
    sums = level_sums(levels, -last.stiffness, last.field)
    V, _, u, slope, _ = outward(sums.mean, sums.variance, last.slope)
    own = sums.log_sum - last.field * sums.mean + 0.5 * last.stiffness * sums.square
    constraint = jnp.sum(there * (log_tail(u) + 0.5 * V * slope**2))
    left = wrong(last.field, last.stiffness)
    return Marginals(
        sums.mean, chosen(last.field, last.stiffness), jnp.mean(own) + constraint / size, jnp.mean(sums.mean**2),
        jnp.mean(sums.square), left / number, left == 0, last.sweeps, last.change,
    )  # fmt: skip
