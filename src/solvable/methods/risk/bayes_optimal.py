r"""The Bayes-optimal learner of a composed linear model: every branch, free energies, spinodals and thresholds.

With the prior's error E(q̂) = mmse and the channel's information c(q) = E g² per sample (`priors`, `outputs`), q = ρ − E,

    q̂ = α c(ρ − E(q̂)),       φ = q̂E/2 − I(q̂) + α E log Z        (free entropy per weight; Barbier et al. 2019).

For Gaussian inputs each q̂ therefore solves the equation at exactly one α, the curve α(q̂) = q̂/c(ρ − E(q̂)). Where it rises the
solution is stable under message passing, where it falls it is not, and its extrema are the spinodals. A scan of log q̂ finds all
of them, so that no solution depends on a start: the branch of least q̂ is the one that message passing reaches without
information, the branch of largest φ is the Bayes-optimal one. Below the scan there is no information, beyond it recovery is
perfect (E below 1e-12).

If weight i has inputs of variance ω_i (an *aligned* design, `designs`), its field has precision q̂ω, and samples see the error
⟨ωE(q̂ω)⟩ in place of E. For other designs see `rotated_bayes`.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..fixed_points.bisection import bisect
from ..fixed_points.saddle import attached
from .designs import Design
from .outputs import Channel
from .priors import Denoised, Prior

Scalar = Float[Array, ""]

LOWEST, HIGHEST, STEPS = -14.0, 26.0, 161
"""The scan of log q̂."""
EXTREMA = 4
FLOOR = 1e-14
"""The least error E: perfect recovery."""


class Branch(NamedTuple):
    """Solutions at one α, in order of q̂, NaN-padded: error of the weights, of a fresh sample's field, free energy −φ,
    stability, and which are stable."""

    log_precision: Float[Array, " branch"]
    error: Float[Array, " branch"]
    fresh_error: Float[Array, " branch"]
    free_energy: Float[Array, " branch"]
    replicas: Float[Array, " branch"]
    stable: Bool[Array, " branch"]
    found: Bool[Array, " branch"]


class Thresholds(NamedTuple):
    """Samples per weight: where perfect or better learning becomes possible, and where message passing reaches it.

    `information`: the best branch changes. `algorithmic`: the spinodal beyond which only the better branch exists.
    `appearance`: the spinodal where that branch appears. NaN without a first-order transition.
    """

    appearance: Scalar
    information: Scalar
    algorithmic: Scalar


class State(NamedTuple):
    """One place of the scan: errors of the weights and of a fresh sample's field, and the height that a solution must have."""

    error: Scalar
    fresh_error: Scalar
    height: Scalar


class Bayes(eqx.Module):
    """A prior and a channel, and the inputs' variances unless they are all one."""

    prior: Prior
    channel: Channel
    design: Design | None = None

    def target(self, samples: Scalar) -> Scalar:
        """The height of the curve at a solution."""
        return jnp.log(samples)

    def _denoised(self, q_hat: Scalar, nodes: int) -> tuple[Scalar, Denoised]:
        """The error of the weights; error, square and information as samples see them."""
        if self.design is None:
            found = self.prior.denoised(q_hat, nodes)
            return found.error, found
        omega, shares = self.design.values, self.design.shares
        each = jax.vmap(lambda w: self.prior.denoised(q_hat * w, nodes))(omega)
        seen = Denoised(*(shares @ (f * v) for f, v in zip((omega, omega**2, 1.0, 1.0), each, strict=True)))
        return shares @ each.error, seen

    def solved_at(self, x: Scalar, nodes: int) -> State:
        """The errors and log α of the solution with q̂ = exp(x)."""
        rho = self.prior.mixture.power
        error, seen = self._denoised(jnp.exp(x), nodes)
        fresh = jnp.clip(seen.error, FLOOR * rho, rho)
        q = jnp.maximum(rho - fresh, 1e-30)
        height = x - jnp.log(self.channel.information(q, fresh, nodes).conjugate)
        return State(jnp.clip(error, FLOOR * rho, rho), fresh, height)

    def free_energy(self, x: Scalar, samples: Scalar, nodes: int) -> tuple[Scalar, Scalar]:
        """−φ at q̂ = exp(x), and the stability G = α E[(∂g)²] ⟨ω²E Var²⟩, below one where replica symmetry holds."""
        rho = self.prior.mixture.power
        _, seen = self._denoised(jnp.exp(x), nodes)
        error = jnp.clip(seen.error, FLOOR * rho, rho)
        of_samples = self.channel.information(jnp.maximum(rho - error, 1e-30), error, nodes)
        phi = 0.5 * jnp.exp(x) * seen.error - seen.information + samples * of_samples.evidence
        return -phi, samples * of_samples.fluctuation * seen.square


class Curve(NamedTuple):
    """The curve log α(x), x = log q̂, cut at its extrema: the ends of its monotone pieces and their heights."""

    ends: Float[Array, " cuts"]
    heights: Float[Array, " cuts"]


def curve(parts: Bayes, nodes: int = 14) -> Curve:
    """Scan the curve and locate its extrema by bisection of its slope; unused cuts repeat the right end.

    >>> from .mixtures import gaussian
    >>> from .outputs import Labels
    >>> from .priors import named
    >>> found = curve(Bayes(named("binary"), Labels(gaussian(0.0))))
    >>> [round(float(jnp.exp(h)), 3) for h in found.heights[1:2]]  # the spinodal of the binary perceptron
    [1.493]
    """
    height = lambda x: parts.solved_at(x, nodes).height  # noqa: E731
    x = jnp.linspace(LOWEST, HIGHEST, STEPS)
    y = jax.vmap(height)(x)
    rise = y[1:] - y[:-1]
    # A flat stretch counts as the last rise or fall before it: rounding must not look like an extremum.
    flat = jnp.abs(rise) < 1e-8
    index = jax.lax.cummax(jnp.where(flat, 0, jnp.arange(STEPS - 1)))
    sign = jnp.sign(rise)[index]
    turns = sign[1:] * sign[:-1] < 0
    where = jnp.sort(jnp.where(turns, jnp.arange(STEPS - 2), STEPS), stable=True)[:EXTREMA]
    is_turn = where < STEPS
    place = jnp.clip(where, 0, STEPS - 3)
    before = sign[place]
    slope = jax.vmap(lambda z: jax.jvp(height, (z,), (jnp.ones(()),))[1])
    low, high = bisect(lambda z: slope(z) * before > 0, x[place], x[place + 2], 44)
    cuts = jnp.where(is_turn, 0.5 * (low + high), HIGHEST)
    ends = jax.lax.stop_gradient(jnp.concatenate([x[:1], cuts, x[-1:]]))
    # At a pole, which the curve of a rotated design may have, rounding decides the sign: an extremum is at least as high, or
    # as low, as the curve beside it.
    beside = jnp.concatenate([cuts - 1e-9, cuts, jnp.minimum(cuts + 1e-9, HIGHEST)]).reshape(3, -1)
    heights = jax.vmap(jax.vmap(height))(beside)
    extreme = jnp.where(before > 0, jnp.nanmax(heights, axis=0), jnp.nanmin(heights, axis=0))
    outer = jax.vmap(height)(ends[jnp.array([0, -1])])
    return Curve(ends, jnp.concatenate([outer[:1], jnp.where(is_turn, extreme, outer[1]), outer[1:]]))


def solutions(parts: Bayes, samples: Scalar, nodes: int = 14, line: Curve | None = None) -> Branch:
    """All solutions at α = `samples`, one per monotone piece of the curve at most, with implicit derivatives.

    >>> from .mixtures import gaussian
    >>> from .outputs import Labels
    >>> from .priors import named
    >>> found = solutions(Bayes(named("binary"), Labels(gaussian(0.0))), jnp.asarray(1.4))
    >>> found.stable[:3].tolist(), bool(found.error[2] < 1e-10)  # a bad one, an unstable one, and perfect recovery
    ([True, False, True], True)
    """
    line = curve(parts, nodes) if line is None else line
    target = parts.target(samples)
    left, right = line.ends[:-1], line.ends[1:]
    at_left, at_right = line.heights[:-1] - target, line.heights[1:] - target
    rising = at_right > at_left
    exists = (at_left * at_right <= 0) & (right > left)
    height = jax.vmap(lambda z: parts.solved_at(z, nodes).height)
    low, high = bisect(lambda z: (height(z) < target) == rising, left, right, 52)
    # Without any information at the left end the solution is there; with perfect recovery it is at the right one.
    nothing = (jnp.arange(left.shape[0]) == 0) & (at_left > 0)
    ends_at = jnp.argmax(jnp.where(right > left, jnp.arange(left.shape[0]), -1))
    perfect = (jnp.arange(left.shape[0]) == ends_at) & (at_right < 0)
    place = jax.lax.stop_gradient(0.5 * (low + high))

    def refined(x):
        def update(z, args):
            parts, target = args
            return (z[0] + target - parts.solved_at(z[0], nodes).height)[None]

        return attached(update, x[None], (parts, target))[0]

    inner = jax.vmap(refined)(place)
    # A falling piece may end in perfect recovery as well as cross the target: both are solutions.
    x = jnp.concatenate([jnp.where(nothing, LOWEST, inner), jnp.full(1, HIGHEST)])
    found = jnp.concatenate([exists | nothing, jnp.any(perfect)[None]])
    stable = jnp.concatenate([rising | nothing, jnp.ones(1, bool)])
    at = jax.vmap(lambda z: parts.solved_at(z, nodes))(x)
    energy, replicas = jax.vmap(lambda z: parts.free_energy(z, samples, nodes))(x)
    order = jnp.argsort(jnp.where(found, x, jnp.inf))
    pad = lambda v: jnp.where(found, v, jnp.nan)[order]  # noqa: E731
    return Branch(
        pad(x), pad(at.error), pad(at.fresh_error), pad(energy), pad(replicas), (stable & found)[order], found[order]
    )


def thresholds(parts: Bayes, nodes: int = 14) -> Thresholds:
    """The thresholds of a first-order transition in the number of samples.

    >>> from .mixtures import gaussian
    >>> from .outputs import Labels
    >>> from .priors import named
    >>> found = thresholds(Bayes(named("binary"), Labels(gaussian(0.0))))
    >>> round(float(found.information), 3), round(float(found.algorithmic), 3)
    (1.245, 1.493)
    """
    line = curve(parts, nodes)
    turns = (line.ends[1] < HIGHEST) & (line.heights[1] > line.heights[0])
    top = line.heights[1]
    # The better branch appears at the minimum after the maximum, or, if the curve falls to its end, at its end.
    bottom = jnp.minimum(line.heights[2], top)

    def gap(log_samples):
        found = solutions(parts, jnp.exp(log_samples), nodes, line)
        last = jnp.sum(found.found) - 1
        return found.free_energy[0] < found.free_energy[last]

    low, high = bisect(gap, jnp.maximum(bottom, jnp.log(1e-4)) + 1e-9, top - 1e-9, 40)
    veil = jnp.where(turns, 1.0, jnp.nan)
    return Thresholds(*(jnp.exp(v) * veil for v in (bottom, 0.5 * (low + high), top)))
