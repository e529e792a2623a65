r"""Entropies of perceptrons whose weights have a few levels: typical solutions, y copies, and the densest regions.

N weights with levels w_l must give αN random ±1 patterns fields w·ξ/√N above a margin κ. The entropy counts the solutions.

**Typical solutions** (replica symmetric; Q = <w²>, q the overlap of two solutions, u = (κ − √q z)/√(Q − q)):

    S = −(Q̂Q − q̂q)/2 + E log Σ_w exp[(Q̂ − q̂)w²/2 + √q̂ z w] + α E log H(u),
    q̂ = α E[R²]/(Q − q),   Q̂ = α E[uR]/(Q − q),   R = G(u)/H(u).

The capacity is the α at which S reaches zero (Krauth and Mézard 1989).

**y copies** at mutual distance D = Q − q₁ = ⟨(w − w′)²⟩/2, entropy per copy (one step of replica-symmetry breaking
with parameter y and prescribed q₁; Baldassi et al. 2015, 2016). With c = Q̂ − q̂₁, p = y(q̂₁ − q̂₀), v = y(q₁ − q₀),
fields u = √q̂₀ z + √p x, f = √q₀ z + √v x, and <·> the average over x with weight exp(y[ψ(u) − x²/2]) for the weights,
exp(y[log H − x²/2]) for the patterns,

    φ = −[cQ + q̂₀(D + v) + p(q₁ + D/y)]/2 + E log(∫ e^{y[ψ − x²/2]})/y + α E log(∫ e^{y[log H − x²/2]})/y,
    Q = E<w²>,  q₁ = E<t²>,  v = E[z<t>]/√q̂₀ − D,  q̂₀ = α E<g>²,  c = α E[z<g>]/√q₀ − p,    g = d log H/df.

For **y → ∞**, the local entropy of the densest regions, both averages over x become maxima (`averages.levels`,
`averages.tails`) and the same equations hold with q₀ = q₁ = E t². For y = 1, φ is the typical entropy at every D. At
the D = Q − q of typical solutions, p = v = 0 and φ = S; the equations are meant for smaller D.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..averages.levels import level_jumps, level_rule, level_sums
from ..averages.quadrature import gaussian_panels
from ..averages.tails import log_tail, tail_ratio, tail_rule
from .saddle import approach, attached, solve

Scalar = Float[Array, ""]
CUT = 9.0


class Typical(NamedTuple):
    """A replica-symmetric saddle point: entropy per weight, Q, q, conjugates q̂ and c = Q̂ − q̂."""

    entropy: Scalar
    square: Scalar
    overlap: Scalar
    field: Scalar
    curvature: Scalar
    samples: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def _plain(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The trapezoidal rule for a standard Gaussian, |z| ≤ 9."""
    z = np.linspace(-CUT, CUT, nodes)
    w = np.exp(-0.5 * z**2)
    return z, w / w.sum()


def _typical_step(levels, samples, margin, log_field, curvature, nodes, panel):
    """Q, q, new q̂ and c, the entropy at the old ones, and its derivative with α."""
    z, weight = (jnp.asarray(v) for v in _plain(nodes))
    field = jnp.exp(log_field)
    sums = level_sums(levels, curvature, jnp.sqrt(field) * z)
    square, overlap, rest = weight @ sums.square, weight @ sums.mean**2, weight @ sums.variance
    rule = tail_rule(overlap, None, rest, margin, nodes=panel)
    new_field, new_curvature = samples * rule.mean(rule.slope**2), samples * rule.mean(rule.curvature)
    energy = rule.mean(rule.log_tail)
    entropy = -0.5 * (curvature * square + field * rest) + weight @ sums.log_sum + samples * energy
    return square, overlap, new_field, new_curvature, entropy, energy


def typical_entropy(
    levels: Float[Array, " l"], samples: Scalar, margin: Scalar | float = 0.0, *,
    nodes: int = 96, panel: int = 10, tolerance: float = 1e-12, max_steps: int = 300,
) -> Typical:  # fmt: skip
    """Entropy per weight of typical solutions at α = `samples`; negative above the capacity.

    >>> found = typical_entropy(jnp.asarray([-1.0, 1.0]), jnp.asarray(0.6))
    >>> round(float(found.entropy), 6), round(float(found.overlap), 5)
    (0.227785, 0.39105)
    """

    def update(x, args):
        levels, samples, margin = args
        _, _, field, curvature, _, _ = _typical_step(levels, samples, margin, x[0], x[1], nodes, panel)
        return jnp.stack([jnp.log(field), curvature])

    scale = jnp.std(levels)
    args = (levels, samples, jnp.asarray(margin, float))
    start = jnp.stack([jnp.log(0.6 * samples / scale**2), -0.4 * samples / scale**2])
    found = solve(update, start, args, tolerance=tolerance, max_steps=max_steps, warmup=3, damping=0.7)
    square, overlap, _, _, entropy, _ = _typical_step(levels, samples, args[2], found.x[0], found.x[1], nodes, panel)
    return Typical(entropy, square, overlap, jnp.exp(found.x[0]), found.x[1], samples, found.residual, found.converged)


def capacity(
    levels: Float[Array, " l"], margin: Scalar | float = 0.0, *,
    nodes: int = 96, panel: int = 10, tolerance: float = 1e-12, max_steps: int = 300,
) -> Typical:  # fmt: skip
    """The α at which the entropy of typical solutions vanishes, as `samples`.

    >>> round(float(capacity(jnp.asarray([-1.0, 1.0])).samples), 5)
    0.83308
    """

    def update(x, args):
        levels, margin = args
        samples = jnp.exp(x[2])
        _, _, field, curvature, entropy, energy = _typical_step(levels, samples, margin, x[0], x[1], nodes, panel)
        # dS/dα is E log H alone, because S is stationary in everything else
        return jnp.stack([jnp.log(field), curvature, x[2] - entropy / (samples * energy)])

    scale, args = jnp.std(levels), (levels, jnp.asarray(margin, float))
    first = 0.45 / (1 + args[1] / scale) ** 2  # well below every capacity
    start = jnp.stack([jnp.log(0.6 * first / scale**2), -0.4 * first / scale**2, jnp.log(first)])
    found = solve(update, start, args, tolerance=tolerance, max_steps=max_steps, reach=0.5)
    samples = jnp.exp(found.x[2])
    square, overlap, _, _, entropy, _ = _typical_step(levels, samples, args[1], found.x[0], found.x[1], nodes, panel)
    return Typical(entropy, square, overlap, jnp.exp(found.x[0]), found.x[1], samples, found.residual, found.converged)


class Local(NamedTuple):
    """A saddle point of copies at a given mutual distance.

    Entropy per copy, its derivative with D for y → ∞ (else NaN), Q, q₁, v and the conjugates q̂, c, p.
    """

    entropy: Scalar
    slope: Scalar
    square: Scalar
    overlap: Scalar
    response: Scalar
    field: Scalar
    curvature: Scalar
    pull: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


class _Side(NamedTuple):
    """Averages over the weights: Q, q₁, Q − q₁, v, and the mean of the maximum or of the logarithm."""

    square: Array
    overlap: Array
    distance: Array
    response: Array
    value: Array


def _densest(levels, samples, margin, distance, x, panel):
    """Both sides at y → ∞: averages over the weights; new q̂, c and the mean of the maximum over patterns."""
    field, curvature, pull = jnp.exp(x[0]), x[1], x[2]
    rule = level_rule(levels, curvature, field, pull, nodes=panel)
    sums = rule.sums
    overlap = rule.average(sums.mean**2)
    response = rule.average(rule.z * sums.mean) / jnp.sqrt(field) - distance
    value = rule.average(sums.log_sum - 0.5 * pull * sums.mean**2)
    side = _Side(rule.average(sums.square), overlap, rule.average(sums.variance), response, value)
    tails = tail_rule(overlap, response, distance, margin, nodes=panel)
    new_field = samples * tails.mean(tails.slope**2)
    slope = samples * tails.mean(tails.z * tails.slope) / jnp.sqrt(overlap)
    energy = tails.mean(tails.log_tail - 0.5 * response * tails.slope**2)
    missing = jnp.maximum(jnp.abs(jnp.sum(rule.weight) - 1), jnp.abs(jnp.sum(tails.weight) - 1))
    excess = samples * tails.mean((margin - tails.v) * tails.slope) / distance
    return side, new_field, slope, energy, missing, excess


def _copies(levels, samples, margin, distance, copies, x, panel, inner):
    """The same for a finite number y of copies."""
    field, curvature, pull = jnp.exp(x[0]), x[1], jnp.maximum(x[2], 1e-12)
    root, y = jnp.sqrt(field), copies
    # Weights. At finite y a jump has a width, ~1/y in the outer field.
    jumps = level_jumps(levels, curvature, field, pull)
    lift = (jumps.above - jumps.below) / pull
    width = 1 / (y * root * jnp.where(jumps.real, lift, 1.0))
    fine = (jumps.at / root)[:, None] + width[:, None] * np.array([[-80.0, -25, -8, -2, 0, 2, 8, 25, 80]])
    breaks = jnp.concatenate([jnp.where(jumps.real[:, None], fine, -CUT).reshape(-1), np.linspace(-CUT, CUT, 13)[1:-1]])
    z, weight = gaussian_panels(jax.lax.stop_gradient(breaks), panel)
    reach = jnp.sqrt(pull) * jnp.maximum(jnp.abs(levels[0]), jnp.abs(levels[-1])) + CUT / jnp.sqrt(y)
    reach = jax.lax.stop_gradient(reach)
    step = 2 * reach / (inner - 1)
    place = reach * np.linspace(-1.0, 1.0, inner)[None, :]
    sums = level_sums(levels, curvature, root * z[:, None] + jnp.sqrt(pull) * place)
    exponent = y * (sums.log_sum - 0.5 * place**2)
    top = jnp.max(exponent, axis=1)
    part = jnp.exp(exponent - top[:, None])
    total = jnp.sum(part, axis=1)
    part = part / total[:, None]
    mean = jnp.sum(part * sums.mean, axis=1)
    overlap = weight @ jnp.sum(part * sums.mean**2, axis=1)
    response = weight @ (z * mean) / root - distance
    value = weight @ (top + jnp.log(total * step * jnp.sqrt(y / (2 * jnp.pi)))) / y
    spread = weight @ jnp.sum(part * sums.variance, axis=1)
    side = _Side(weight @ jnp.sum(part * sums.square, axis=1), overlap, spread, response, value)
    # Patterns: log-concave in x, with the maximum at the prox and different widths on its two sides.
    first = overlap - response / y
    rule = tail_rule(first, response, distance, margin, nodes=panel)
    sharp = jnp.sqrt(1 - response * rule.curvature)
    turn = jnp.arcsinh(CUT * sharp)[:, None] * np.linspace(-1.0, 1.0, inner // 4)[None, :]
    local = 1 / (sharp * jnp.sqrt(y))[:, None]
    centre = jnp.sqrt(response) * rule.slope
    x_in = jax.lax.stop_gradient(centre)[:, None] + local * jnp.sinh(turn)
    s = jnp.sqrt(distance)
    u = (margin - jnp.sqrt(first) * rule.z[:, None] - jnp.sqrt(response) * x_in) / s
    exponent = y * (log_tail(u) - 0.5 * x_in**2)
    top = jnp.max(exponent, axis=1)
    part = jnp.exp(exponent - top[:, None]) * local * jnp.cosh(turn) * (turn[:, 1:2] - turn[:, :1])
    total = jnp.sum(part, axis=1)
    mean = jnp.sum(part * tail_ratio(u), axis=1) / (total * s)
    energy = rule.mean(top + jnp.log(total * jnp.sqrt(y / (2 * jnp.pi)))) / y
    slope = samples * rule.mean(rule.z * mean) / jnp.sqrt(first)
    missing = jnp.maximum(jnp.abs(jnp.sum(weight) - 1), jnp.abs(jnp.sum(rule.weight) - 1))
    missing = jnp.where(step * jnp.sqrt(y) < 1.1, missing, jnp.inf)  # otherwise the inner rule is too coarse
    return side, samples * rule.mean(mean**2), slope, energy, missing, jnp.nan


STEPS = 8
"""Number of steps from the distance of typical solutions to the requested one, in equal ratios."""


def local_entropy(
    levels: Float[Array, " l"], samples: Scalar, distance: Scalar, margin: Scalar | float = 0.0,
    copies: Scalar | None = None, *,
    nodes: int = 96, panel: int = 10, inner: int = 256, tolerance: float = 1e-11, max_steps: int = 200,
) -> Local:  # fmt: skip
    """Entropy per copy of y = `copies` solutions at mutual distance D (y → ∞ if `copies` is None).

    The saddle point is followed from typical solutions, where D = Q − q and p = v = 0. Larger distances give NaN.

    >>> found = local_entropy(jnp.asarray([-1.0, 1.0]), jnp.asarray(0.6), jnp.asarray(0.2))
    >>> round(float(found.entropy), 5)
    0.1346
    """
    scale = jnp.std(levels)
    w, kappa, samples = levels / scale, jnp.asarray(margin, float) / scale, jnp.asarray(samples)
    target = distance / scale**2
    start = typical_entropy(w, samples, kappa, nodes=nodes, panel=panel, tolerance=1e-9)
    begin = start.square - start.overlap

    def sides(x, args):
        if copies is None:
            w, samples, kappa, target = args
            return _densest(w, samples, kappa, target, x, panel)
        w, samples, kappa, target, y = args
        return _copies(w, samples, kappa, target, y, x, panel, inner)

    def update(x, args):
        side, field, slope, _, _, _ = sides(x, args)
        return jnp.stack([jnp.log(field), slope - x[2], x[2] + jnp.log(side.distance / args[3])])

    extra = () if copies is None else (jnp.asarray(copies, float),)
    args = (w, samples, kappa, target, *extra)
    frozen = jax.tree.map(jax.lax.stop_gradient, args)
    first = jax.lax.stop_gradient(jnp.stack([jnp.log(start.field), start.curvature, jnp.zeros(())]))

    def path(part):
        return (*frozen[:3], begin ** (1 - part) * frozen[3] ** part, *frozen[4:])

    guess, jacobian = approach(update, first, path, jnp.asarray(np.arange(1, STEPS) / STEPS))
    found = solve(update, guess, frozen, tolerance=tolerance, max_steps=max_steps, jacobian=jacobian)
    x = attached(update, found.x, args)
    side, _, _, energy, missing, excess = sides(x, args)
    field, curvature, pull = jnp.exp(x[0]), x[1], x[2]
    rest = 0.0 if copies is None else target / jnp.asarray(copies, float)
    linear = curvature * side.square + field * (target + side.response) + pull * (side.overlap + rest)
    entropy = -0.5 * linear + side.value + samples * energy
    converged = found.converged & start.converged & (target <= begin) & (missing < 1e-7)
    lost = jnp.where(converged, 1.0, jnp.nan)
    s2 = scale**2
    # φ is stationary in everything but D, which enters in three places: q̂D, q₁ = Q − D and the noise of the patterns
    slope = 0.5 * (excess - field - curvature)
    return Local(
        entropy * lost, slope * lost / s2, side.square * s2, side.overlap * s2, side.response * s2,
        field / s2, curvature / s2, pull / s2,
        found.residual, converged,
    )  # fmt: skip
