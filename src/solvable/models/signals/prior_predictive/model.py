r"""The law of the output of a random deep ReLU or linear network at one input, at finite width.

**Network.** f = w·φ(W_H ... φ(W_1 x)) with H hidden layers of widths d_1, ..., d_H (`widths`), no biases, one output, r = |x|.
The weights of layer l are N(0, s_l²), those of the readout N(0, s_{H+1}²). With the prior `informed`

    s_1² = ω²,      s_{l+1}² = 2/d_l (ReLU) or 1/d_l (linear),

with the prior `fixed` all s_l² = ω².

**Theory** (after Noci, Bachmann, Roth, Nowozin and Hofmann 2021; the Mellin form is derived here). Given its input, a layer with
k active units multiplies the squared norm by 2s² times a gamma variable with parameter k/2; k is binomial(d, ½) for ReLU and d
for linear units. Hence f² is a product of independent gamma variables, f is symmetric with variance

    v = r² s_{H+1}² Π_l (s_l² d_l/2)      (linear: without the 2),

and f = 0 with probability 1 - Π(1 - 2^{-d_l}) (linear: 0). Given all k the density of f is a Meijer G function. Its mixture
over k factorises in the Mellin transform, M(s) = <|f|^{2s}; f ≠ 0>:

    M(s) = (2v)^s Γ(½+s)/Γ(½) Π_l A_l(s),      A_l(s) = (4/d)^s Σ_{k≥1} C(d, k) 2^{-d} Γ(k/2+s)/Γ(k/2)
                                               (linear: A_l(s) = (2/d)^s Γ(d/2+s)/Γ(d/2)),
    p(x) = (1/x) ∫ dy/2π M(s) x^{-2s},      P(|f| > x) = ∫ dy/2π M(s) x^{-2s}/s      on s = ⅛ + iy.

The integrands are analytic in a strip and decay exponentially, so the trapezoidal rule converges exponentially in its step;
Γ(k/2+s) follows from k = 1, 2 by its recurrence. Twice the step gives, squared, the estimate of the error (`residual`). Moments
are M(1), M(2), M(3): the kurtosis is 3Π(1 + 5/d_l) (linear: 2 in place of 5).

*Limit* of d, H → ∞ with β = 5Σ1/d_l (linear: 2Σ1/d_l) fixed: f/√v → z e^{g/2} with z ~ N(0, 1), g ~ N(-β/2, β), and
<f^{2m}> → (2m-1)!! v^m e^{βm(m-1)/2}. At fixed depth β → 0: the normal law.

**Simulation.** Draws all weights and computes the output. The size is the number of networks over which a realisation averages;
the theory holds at every size.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import erfc, gammaln
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.model import Control, Guard, Input, Model, Numerics

LINE = 0.125
"""Real part of s, to the right of the pole of 1/s. Farther right, rounding grows for small outputs; nearer, the step must be
finer. On the left, the poles at -½, one for each layer, would be felt in deep networks."""
CONVERGED, ROUNDING = 1e-10, 4e-16


class PriorPredictive(Model):
    """Law of the output of a random deep network: density, tails, mass at zero and moments at finite width.

    >>> import solvable as sv
    >>> outcome = sv.PriorPredictive(width=5, depth=2).theory()
    >>> round(float(outcome.fourth_moment), 10), round(float(outcome.zero), 7)
    (12.0, 0.0615234)
    """

    id = "prior-predictive"
    title = "Outputs of random deep networks"
    family = "signals"
    sentence = (
        "Exact law of a random ReLU network's output at finite width: density, tails, moments, deep and wide limit."
    )
    method = "Mellin transform of products of gamma variables, inverted by the trapezoidal rule"
    numerics = Numerics(step=0.02, reach=32)
    accuracy = 1e-9
    typical_sizes = (500, 2000, 8000)
    simulation_seconds = 0.2
    simulation_growth = 1.0
    theory_lanes = 64
    guard = Guard(values={"width": 5, "depth": 2}, size=1000, seeds=8)
    check_study = (
        {"values": {"width": 5, "depth": 2}, "over": {"activation": ["relu", "linear"]}, "seeds": 16},
        # The variance of f⁴ is 2,900 times its squared mean here: means over networks are far from normal.
        {"values": {"width": 6, "depth": 3, "widths": [3.0, 4.0, 6.0], "scaling": "fixed", "weight_variance": 0.5},
         "over": {"input_norm": [0.5, 2.0]}, "seeds": 16, "judge": ("tail", "zero", "second_moment")},
    )  # fmt: skip
    references = (
        Reference(
            "noci2021precise", "L. Noci, G. Bachmann, K. Roth, S. Nowozin and T. Hofmann", "Precise characterization of the "
            "prior predictive distribution of deep ReLU networks", 2021, "NeurIPS 34", arxiv="2106.06615"),
    )  # fmt: skip

    input_norm: Control = control(
        1.0, low=0.0, low_open=True, high=1e3, typical=(0.3, 3.0), scale="log", symbol="r",
        meaning="norm of the input")  # fmt: skip
    weight_variance: Control = control(
        1.0, low=0.0, low_open=True, high=1e3, typical=(0.1, 2.0), scale="log", symbol=r"\omega^2",
        meaning="variance of the weights, of the first layer (informed) or of every layer (fixed)")  # fmt: skip
    activation: str = choice("relu", options=("relu", "linear"), meaning="what hidden units compute")
    scaling: str = choice(
        "informed", options=("informed", "fixed"),
        meaning="whether the variance of weights falls with the width of the layer they read, or is the same in all")  # fmt: skip
    depth: int = choice(4, high=1000, symbol="H", meaning="number of hidden layers")
    width: int = choice(10, high=2000, symbol="d", meaning="units of the widest hidden layer")
    widths: Input = input(
        lambda model: np.full(model.depth, float(model.width)), dims=("depth",), low=1.0, symbol="d_l",
        meaning="units of every hidden layer, at most those of the widest")  # fmt: skip
    outputs: Input = input(
        np.array([0.1, 0.5, 1.0, 2.0, 4.0]), dims=("output",), low=1e-6, increasing=True, symbol="x",
        meaning="outputs at which the law is computed")  # fmt: skip

    dimensions_declared = (dimension("output", "size of the output", symbol="x", scale="log", kind="site"),)
    main_declared = ("tail", "second_moment", "fourth_moment", "zero")
    observables_declared = (
        observable("tail", "probability of an output beyond x, P(|f| > x)", symbol="P(|f|>x)", dims=("output",), low=0, high=1,
                   status="exact", fraction_of="size"),
        observable("density", "probability density of the output at x", symbol="p(x)", dims=("output",), low=0, status="exact",
                   simulated=False),
        observable("zero", "probability that the output is zero", symbol="P(f=0)", low=0, high=1, status="exact",
                   fraction_of="size"),
        observable("second_moment", "variance of the output, <f²>", symbol=r"\langle f^2\rangle", low=0, status="exact"),
        observable("fourth_moment", "<f⁴>", symbol=r"\langle f^4\rangle", low=0, status="exact"),
        observable("sixth_ratio", "<f⁶>/<f²>³, 15 for a normal law", low=0, status="exact", simulated=False),
        observable("limit_tail", "the same as `tail` in the limit of a deep and wide network", dims=("output",), low=0, high=1,
                   simulated=False),
        observable("limit_fourth_moment", "<f⁴> in that limit", low=0, simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        if isinstance(self.widths, Tracer):
            return
        widths = np.asarray(self.widths)
        if np.any(widths > self.width) or np.any(widths % 1):
            raise InvalidValue(f"widths must be whole numbers from 1 to width = {self.width}, the widest layer.")

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"output": np.asarray(self.outputs)}

    # --- prior ------------------------------------------------------------------------------------------------------

    def _layer_variances(self) -> Array:
        """s_l² of all layers, the readout's last."""
        if self.scaling == "fixed":
            return jnp.broadcast_to(self.weight_variance, (self.depth + 1,))
        return jnp.concatenate([self.weight_variance[None], (2.0 if self.activation == "relu" else 1.0) / self.widths])

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        relu, d = self.activation == "relu", self.widths
        variances = self._layer_variances()
        scale = (
            2 * jnp.log(self.input_norm) + jnp.sum(jnp.log(variances)) + jnp.sum(jnp.log(d / 2 if relu else d))
        )  # log v
        there = jnp.exp(jnp.sum(jnp.log1p(-jnp.exp2(-d)))) if relu else jnp.ones(())
        (density, tail), (density_error, tail_error) = self._invert(jnp.log(self.outputs) - scale / 2, numerics)
        density, density_error = density / self.outputs, density_error / self.outputs
        density_error = jnp.max(density_error / (1 + jnp.abs(density)))
        if relu:
            fourth, sixth = 1 + 5 / d, 1 + 15 / d + 44 / d**2
        else:
            fourth, sixth = 1 + 2 / d, (1 + 2 / d) * (1 + 4 / d)
        beta = (5.0 if relu else 2.0) * jnp.sum(1 / d)
        return {
            # moments need no inversion and converge at any depth
            "tail": tail,
            "density": density,
            "zero": 1 - there,
            "second_moment": jnp.exp(scale),
            "fourth_moment": jnp.exp(2 * scale) * 3 * jnp.prod(fourth),
            "sixth_ratio": 15 * jnp.prod(sixth),
            "limit_tail": self._limit_tail(beta, self.outputs * jnp.exp(-scale / 2)),
            "limit_fourth_moment": jnp.exp(2 * scale) * 3 * jnp.exp(beta),
            "tail_converged": jnp.max(tail_error) < CONVERGED,
            "density_converged": density_error < CONVERGED,
            "converged": jnp.isfinite(jnp.exp(2 * scale) * jnp.prod(sixth)),
            "residual": jnp.maximum(jnp.max(tail_error), density_error),
        }

    def _invert(self, t: Array, numerics: Numerics) -> tuple[Array, Array]:
        """x p(x) and P(|f| > x) at t = log(x/√v), and estimates of their errors."""
        height = np.arange(round(numerics.reach / numerics.step) + 1) * numerics.step
        s = LINE + 1j * height
        # the upper and lower halves of the line are conjugate; the middle counts half
        weight = np.where(height == 0, 0.5, 1.0) * numerics.step / math.pi
        kernel = jnp.exp(self._log_mellin(s)[None, :] - 2 * s[None, :] * t[:, None].astype(complex))
        terms = jnp.stack([kernel * w[None, :] for w in (weight.astype(complex), weight / s)]).real
        fine, coarse = jnp.sum(terms, axis=-1), 2 * jnp.sum(terms[..., ::2], axis=-1)
        # the error of the rule is exponential in 1/step, so that half the step squares it; then the cut, then rounding
        error = (
            (fine - coarse) ** 2 + jnp.abs(terms[..., -1]) / numerics.step + ROUNDING * jnp.sum(jnp.abs(terms), axis=-1)
        )
        return fine, error

    def _log_mellin(self, s: np.ndarray) -> Array:
        """log of M(s)/v^s at constant nodes s."""
        from scipy.special import loggamma

        relu, d = self.activation == "relu", self.widths
        readout = loggamma(0.5 + s) - loggamma(0.5)
        k = jnp.arange(1.0, self.width + 1)
        if relu:
            ways = (
                gammaln(d + 1)[:, None]
                - gammaln(k + 1)[None, :]
                - gammaln(jnp.maximum(d[:, None] - k[None, :], 0.0) + 1)
            )
            chances = jnp.where(k[None, :] <= d[:, None], jnp.exp(ways - d[:, None] * math.log(2)), 0.0)
        else:
            chances = (k[None, :] == d[:, None]).astype(float)

        def more(state: tuple[Array, Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
            """Γ(k/2 + s)/Γ(k/2) at k and k + 1, and their sum over k, layer by layer."""
            now, following, total = state
            k, chance = at
            total = total + chance[:, None].astype(complex) * now[None, :]
            return (following, now * (1 + s / (k / 2).astype(complex)), total), None

        first = (jnp.asarray(np.exp(readout)), jnp.asarray(np.exp(loggamma(1 + s))))
        start = (*first, jnp.zeros((self.depth, len(s)), complex))
        (_, _, total), _ = jax.lax.scan(more, start, (k, chances.T))
        halves = jnp.log(d / 4 if relu else d / 2)[:, None].astype(complex)
        return jnp.sum(jnp.log(total) - halves * s[None, :], axis=0) + readout + s * math.log(2)

    def _limit_tail(self, beta: Array, y: Array) -> Array:
        """P(|z| e^{g/2} > y) with z ~ N(0, 1), g ~ N(-β/2, β); trapezoidal rule over g."""
        nodes = np.linspace(-9.0, 9.0, 361)
        weights = np.exp(-(nodes**2) / 2) / np.exp(-(nodes**2) / 2).sum()
        g = -beta / 2 + jnp.sqrt(beta) * nodes
        return jnp.sum(weights[None, :] * erfc(y[:, None] * jnp.exp(-g / 2)[None, :] / math.sqrt(2)), axis=1)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        """Networks side by side, in arrays as wide as the widest layer; the input has as many coordinates."""
        units = jnp.concatenate([self.widths, jnp.ones(1)])  # the readout is a layer of one linear unit
        spreads = jnp.sqrt(self._layer_variances()).astype(dtype)

        def layer(h: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            key, spread, number = at
            w = spread * jax.random.normal(key, (size, self.width, self.width), dtype)
            there = (jnp.arange(float(self.width)) < number).astype(dtype)
            field = there[None, :] * jnp.einsum("nij,nj->ni", w, h)
            return jax.nn.relu(field) if self.activation == "relu" else field, field[:, 0]

        start = jnp.full((size, self.width), 1 / math.sqrt(self.width), dtype) * self.input_norm.astype(dtype)
        _, fields = jax.lax.scan(layer, start, (jax.random.split(key, self.depth + 1), spreads, units))
        f = fields[-1]
        beyond = jnp.abs(f)[:, None] > self.outputs.astype(dtype)[None, :]
        return {
            "tail": jnp.mean(beyond, axis=0),
            "zero": jnp.mean(f == 0),
            "second_moment": jnp.mean(f**2),
            "fourth_moment": jnp.mean(f**4),
        }
