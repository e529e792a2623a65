r"""The Bayes-optimal learner on a rotated covariance or an invariant design (`designs`): every branch, and free energies.

With the prior's error E(Q) at precision Q the weights send Q′ = 1/E − Q, and the samples' message Z follows from
⟨1/(Q′ + Zs)⟩ = E. It must be the one that the channel sends at the field's error that Z implies: αc(E_z) for Gaussian rows, and
for an invariant design c/(1 − V_c c) at the cavity's variance V_c. A scan of log Q finds all solutions
(`bayes_optimal`), by the height log Z − log c for Gaussian rows, which is log α, and log Z − log(c/(1 − V_c c)) for invariant
designs, which is zero. The free entropy per weight is, with R = 1/(Q′ + Zs) and E_z = ⟨sR⟩ of the samples,

    φ = ½⟨log(R/E)⟩ − I(Q) + ½ Z E_z + α E log Z(y|E_z)                         (Gaussian rows),
    φ = ½⟨log(R/E)⟩ − I(Q) + (α/2) log(V_c/E_z) + α E log Z(y|V_c)              (invariant designs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fixed_points.bisection import bisect
from .bayes_optimal import FLOOR, Bayes, State, Thresholds, solutions
from .designs import LinearNode, Message
from .outputs import Additive, Fields, Information
from .priors import Denoised

Scalar = Float[Array, ""]
WEAKEST, STRONGEST = -45.0, 60.0
"""The range of log(Z/Q′)."""


class _At(NamedTuple):
    """Everything at one precision Q of the weights' cavity."""

    weights: Denoised
    error: Scalar
    log_message: Scalar
    node: LinearNode
    fields: Fields
    samples: Information


class RotatedBayes(Bayes):
    """A prior and a channel on a rotated or invariant design with `samples` rows per weight.

    >>> from .designs import Design
    >>> from .mixtures import gaussian
    >>> from .priors import named
    >>> square = Design([1.0], "invariant")  # an orthogonal matrix: E = 1/(1 + 1/Δ)
    >>> found = solutions(RotatedBayes(named("gaussian"), Additive(gaussian(0.25)), square, jnp.ones(())), jnp.ones(()))
    >>> round(float(found.error[0]), 8)
    0.2
    """

    samples: Scalar = 1.0  # type: ignore[assignment]

    @property
    def invariant(self) -> bool:
        assert self.design is not None
        return self.design.kind == "invariant"

    def target(self, samples: Scalar) -> Scalar:
        return jnp.zeros(()) if self.invariant else jnp.log(samples)

    def _at(self, x: Scalar, nodes: int) -> _At:
        assert self.design is not None
        rho, Q = self.prior.mixture.power, jnp.exp(x)
        weights = self.prior.denoised(Q, nodes)
        slack = jnp.maximum(weights.slack, 1e-300)
        error = jnp.clip(weights.error, FLOOR * rho, rho)
        s, shares = self.design.spectrum(self.samples)
        wanted = jnp.log(Q * error) - jnp.log(slack)

        def excess(y):
            """log of ⟨Zs R⟩/⟨Q′R⟩ minus what it must be; rises with y = log(Z/Q′)."""
            part = 1 / (1 + jnp.exp(y) * s)
            return y + jnp.log(shares @ (s * part)) - jnp.log(shares @ part) - wanted

        low, high = bisect(lambda y: excess(y) < 0, jnp.asarray(WEAKEST), jnp.asarray(STRONGEST), 60)
        y = jax.lax.stop_gradient(0.5 * (low + high))
        value, slope = jax.jvp(excess, (y,), (jnp.ones(()),))
        possible = y < STRONGEST - 1e-6
        y = jnp.where(possible, y - value / jnp.where(possible, slope, 1.0), y)
        back = slack / error
        message = jnp.exp(y) * back
        known = jnp.maximum(back - 1 / rho, 0.0)
        node = LinearNode(
            self.design, self.samples, rho, Message(back, known, known), Message(message, message, message)
        )
        if self.invariant:
            variance = 1 / node.cavity_precision()
        else:
            variance = node.shares @ (node.s * node.R)
        variance = jnp.clip(variance, FLOOR * rho, rho)
        q = jnp.maximum(rho - variance, 1e-30)
        fields = Fields(q, q, variance, variance)
        return _At(weights, error, y + jnp.log(back), node, fields, self.channel.information(q, variance, nodes))

    def solved_at(self, x: Scalar, nodes: int) -> State:
        at = self._at(x, nodes)
        if not self.invariant:
            return State(at.error, at.fields.V, at.log_message - jnp.log(at.samples.conjugate))
        # a fresh sample is a row of another design: its field's error is that of the weights
        return State(at.error, at.error, at.log_message - self._log_sent(at))

    def _log_sent(self, at: _At) -> Scalar:
        """log of the channel's message c/(1 − V_c c)."""
        if isinstance(self.channel, Additive) and self.channel.noise.means.shape[0] == 1:
            return -jnp.log(self.channel.noise.variances[0])
        c = at.samples.conjugate
        return jnp.log(c) - jnp.log(jnp.maximum(1 - at.fields.V * c, 1e-300))

    def free_energy(self, x: Scalar, samples: Scalar, nodes: int) -> tuple[Scalar, Scalar]:
        at = self._at(x, nodes)
        node, V, c = at.node, at.fields.V, at.samples.conjugate
        phi = 0.5 * (node.shares @ jnp.log(node.R / at.error)) - at.weights.information + samples * at.samples.evidence
        of_samples = samples * at.samples.fluctuation
        if self.invariant:
            error = node.shares @ (node.s * node.R) / samples
            phi = phi + 0.5 * samples * jnp.log(V / error)
            of_samples = V**2 * (at.samples.fluctuation - c**2) / jnp.maximum(1 - V * c, 1e-300) ** 2
        else:
            phi = phi + 0.5 * jnp.exp(at.log_message) * V
        return -phi, node.gain(at.weights.square / at.error**2 - 1, of_samples)


def scanned_thresholds(
    at: Callable[[Scalar], Bayes], nodes: int = 14, between: tuple[float, float] = (0.02, 20.0), grid: int = 80
) -> Thresholds:
    """Thresholds of a first-order transition where α is not the height of the curve: by a scan of α and bisection.

    >>> from .designs import Design
    >>> from .mixtures import gaussian
    >>> from .priors import named
    >>> prior, channel, rows = named("sparse", 0.4), Additive(gaussian(1e-8)), Design([1.0], "invariant")
    >>> found = scanned_thresholds(lambda alpha: RotatedBayes(prior, channel, rows, alpha), 8)
    >>> round(float(found.algorithmic), 4)  # without noise that of independent rows
    0.5892
    """
    low, high = (float(np.log(end)) for end in between)

    def several(x: Scalar) -> Array:
        return jnp.sum(solutions(at(jnp.exp(x)), jnp.exp(x), nodes).found) > 1

    def first_is_best(x: Scalar) -> Array:
        found = solutions(at(jnp.exp(x)), jnp.exp(x), nodes)
        return found.free_energy[0] < found.free_energy[jnp.maximum(jnp.sum(found.found) - 1, 0)]

    places = jnp.linspace(low, high, grid)
    there = jax.lax.map(several, places, batch_size=8)
    step, last = (high - low) / (grid - 1), grid - 1 - jnp.argmax(there[::-1])
    left, right = places[jnp.argmax(there)], places[last]
    begins, _ = bisect(lambda x: ~several(x), left - step, left, 30)
    ends, _ = bisect(several, right, right + step, 30)
    # beyond the last coexistence only the better branch is left, before the first one only the worse
    middle, _ = bisect(first_is_best, begins + 1e-9, ends - 1e-9, 40)
    veil = jnp.where(jnp.any(there), 1.0, jnp.nan)
    return Thresholds(*(jnp.exp(v) * veil for v in (begins, middle, ends)))
