r"""Networks of stochastic binary weights: how far signals travel in their surrogates, and how to choose the initial means.

**Network.** Layers of width N. Weights S = ±1 are independent with means M, drawn with E M = 0 and E M² = σ_m²
(`variance`, not scaled with N); biases N(0, σ_b²). Neurons are ±1 with mean x = φ(h), φ = tanh(gain·h) or
erf(gain·h/√2).

**Surrogates.** By the central limit theorem a field has mean Σ_j M_ij x_j/√N + b_i and variance Σ_j (1 −
M_ij²x_j²)/N, hence

    h_i = [N^{−1/2} Σ_j M_ij x_j + b_i]/√(N^{−1} Σ_j (1 − M_ij² x_j²)),        x_i = φ(h_i)        (deterministic);

with neurons that are deterministic given their inputs the variance is Σ_j (1 − M_ij²) x_j²/N (`neurons`). The
*sampled* surrogate adds fresh N(0, 1) noise to h, independently for every input (local reparametrisation).

**Theory** (Stamatescu et al. 2019; N → ∞, maps rederived here). With A(q) = E φ(√q z)² and B(q, c) = E φφ′ at
correlation c, lengths q = <h²> and correlations c of the fields of two inputs obey

    q′ = (σ_m² A(q) + σ_b²)/(1 − σ_m² A(q)),        c′ = (σ_m² B(q, c) + σ_b²)/(σ_m² A(q) + σ_b²),

for the sampled surrogate at A(1 + q) and B(1 + q, qc/(1 + q)); with deterministic neurons the first denominator is (1
− σ_m²)A(q). At the fixed points q_*, c_* the correlation's slope χ = ∂c′/∂c gives the `depth_scale` ξ_c = −1/ln χ,
and ∂q′/∂q the `length_scale`. Deterministic: c_* = 1, and without biases q_* = 0, χ = σ_m² gain² for tanh: critical
only at means ±1 (NaN where χ is one up to rounding). Sampled: c_* < 1, never critical. With tanh the averages are by
quadrature, and the result is NaN where gain·√q exceeds 4 (means near ±1 with large gains or biases).

**Simulation.** One network, two inputs ±√r with overlap c_in, its fields layer by layer. Means are ±σ_m, ±1 or 0
(`sparse`), or uniform.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.errors import InvalidValue
from solvable.methods.averages.functions import function_named
from solvable.methods.averages.quadrature import bent_trapezoid
from solvable.methods.fixed_points.saddle import solve
from solvable.model import Control, Guard, Model, Numerics, choice, control, dimension, observable

from .._papers import CRITICAL_MEANS

CRITICAL = 1e-5  # |ln χ| below which rounding decides the depth scale, which is then NaN


class BinaryInitialisation(Model):
    """Length and correlation of signals in surrogates of stochastic binary networks, and the depth they reach.

    >>> import solvable as sv
    >>> scale = sv.BinaryInitialisation(variance=0.99, bias_variance=[0.0, 0.001, 0.1]).theory().depth_scale
    >>> [round(float(x), 1) for x in scale]
    [99.5, 27.7, 4.5]
    """

    id = "binary-initialisation"
    title = "Initial means of binary networks"
    family = "synapses"
    sentence = "Signals in surrogates of stochastic binary networks: their maps, their depth scale, critical means."
    method = "mean-field maps of length and correlation"
    numerics = Numerics(nodes=64, tolerance=1e-12)
    typical_sizes = (125, 250, 500)
    theory_seconds = 2e-3
    simulation_seconds = 0.015
    batch_accuracy = 1e-10
    finite_size = 6.0
    inconclusive = 0.3
    guard = Guard(values={"depth": 3}, size=100, seeds=8)
    check_study = (
        {"over": {"surrogate": ["deterministic", "sampled"], "activation": ["tanh", "erf"]},
         "values": {"variance": 0.7, "bias_variance": 0.1, "depth": 4}, "seeds": 64},
        {"over": {"neurons": ["deterministic"], "means": ["sparse"]},
         "values": {"variance": 0.5, "bias_variance": 0.1, "depth": 4}, "seeds": 64},
    )  # fmt: skip
    references = CRITICAL_MEANS

    variance: Control = control(
        0.9, low=0.0, high=1.0, typical=(0.1, 0.95), symbol=r"\sigma_m^2", meaning="variance of the initial means")  # fmt: skip
    bias_variance: Control = control(
        0.05, low=0.0, high=10.0, typical=(0.01, 0.5), symbol=r"\sigma_b^2", meaning="variance of the biases")  # fmt: skip
    gain: Control = control(
        1.0, low=0.0, low_open=True, high=10.0, typical=(0.5, 1.5), symbol=r"\kappa",
        meaning="slope of the activation: φ(gain·h)")  # fmt: skip
    input_square: Control = control(
        0.5, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.2, 0.8), symbol="r",
        meaning="mean square of the inputs")  # fmt: skip
    input_overlap: Control = control(
        0.5, low=-1.0, high=1.0, typical=(-0.5, 0.9), symbol=r"c_{\mathrm{in}}", meaning="overlap of both inputs")  # fmt: skip
    activation: str = choice(
        "tanh", options=("tanh", "erf"), symbol=r"\phi", meaning="mean of a neuron, given its field"
    )
    surrogate: str = choice(
        "deterministic", options=("deterministic", "sampled"),
        meaning="deterministic fields, or with fresh noise N(0, 1)")  # fmt: skip
    neurons: str = choice(
        "stochastic", options=("stochastic", "deterministic"),
        meaning="whether neurons are also random, given their inputs")  # fmt: skip
    means: str = choice(
        "binary", options=("binary", "sparse", "uniform"),
        meaning="law of the means: ±σ_m, ±1 or 0, uniform (σ_m² ≤ 1/3)")  # fmt: skip
    depth: int = choice(8, high=1000, symbol="L", meaning="number of layers")

    dimensions_declared = (dimension("layer", "layer", symbol="l", kind="site"),)
    main_declared = ("correlation", "length", "depth_scale")
    observables_declared = (
        observable("length", "mean square of the fields of a layer", symbol="q", dims=("layer",), low=0),
        observable("correlation", "correlation of the fields of two inputs", symbol="c", dims=("layer",), low=-1, high=1),
        observable("fixed_length", "mean square of the fields in deep layers", symbol="q_*", low=0, simulated=False),
        observable("fixed_correlation", "correlation in deep layers", symbol="c_*", low=-1, high=1, simulated=False),
        observable("depth_slope", "factor by which a deviation of the correlation from its fixed point changes per layer",
                   symbol=r"\chi", simulated=False),
        observable("depth_scale", "layers within which correlations reach their fixed point", symbol=r"\xi_c",
                   simulated=False),
        observable("length_scale", "the same for lengths", symbol=r"\xi_q", simulated=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"layer": np.arange(1, self.depth + 1)}

    def validate(self) -> None:
        if (
            self.means == "uniform"
            and not isinstance(self.variance, Tracer)
            and np.any(np.asarray(self.variance) > 1 / 3)
        ):
            raise InvalidValue(
                f"variance = {float(np.max(np.asarray(self.variance))):g} is outside its range [0, 1/3] for uniform means."
            )

    # --- theory -----------------------------------------------------------------------------------------------------

    def _averages(self, nodes: int) -> tuple[Any, Any]:
        """A(q) and B(q, c); erf has closed forms."""
        g2 = self.gain**2
        if self.activation == "erf":
            return (
                lambda q: 2 / jnp.pi * jnp.arcsin(g2 * q / (1 + g2 * q)),
                lambda q, c: 2 / jnp.pi * jnp.arcsin(g2 * q * c / (1 + g2 * q)),
            )
        x, w = bent_trapezoid(nodes)
        first, second = (jnp.asarray(v.reshape(-1)) for v in np.meshgrid(x, x, indexing="ij"))
        weight = jnp.asarray(np.outer(w, w).reshape(-1))

        def across(q, c):
            root = self.gain * jnp.sqrt(jnp.maximum(q, 1e-300))
            rest = jnp.sqrt(jnp.maximum(1 - c**2, 1e-300))
            return weight @ (jnp.tanh(root * first) * jnp.tanh(root * (c * first + rest * second)))

        return lambda q: jnp.asarray(w) @ jnp.tanh(self.gain * jnp.sqrt(jnp.maximum(q, 1e-300)) * x) ** 2, across

    def _maps(self, nodes: int) -> tuple[Any, Any, Any]:
        """q ↦ q′, (q, c) ↦ c′ and the slope ∂c′/∂c."""
        alone, across = self._averages(nodes)
        s, b = self.variance, self.bias_variance
        noise = 1.0 if self.surrogate == "sampled" else 0.0

        def length(q):
            signal = alone(q + noise)
            if self.neurons == "stochastic":
                return (s * signal + b) / (1 - s * signal)
            return s / (1 - s) + b / (
                (1 - s) * signal
            )  # only biases depend on q: a common fraction would cancel its slope

        def correlation(q, c):
            full = q + noise
            return (s * across(full, q * c / full) + b) / (s * alone(full) + b)

        def slope(q, c):
            """∂B/∂c is q times the average product of the slopes of φ."""
            full = jnp.maximum(q + noise, 1e-300)
            inner = q * c / full
            if self.activation == "erf":
                g2 = self.gain**2
                top = 2 / jnp.pi * g2 / jnp.sqrt((1 + g2 * full) ** 2 - (g2 * full * inner) ** 2)
            else:
                x, w = bent_trapezoid(nodes)
                first, second = (jnp.asarray(v.reshape(-1)) for v in np.meshgrid(x, x, indexing="ij"))
                weight = jnp.asarray(np.outer(w, w).reshape(-1))
                root = self.gain * jnp.sqrt(full)
                apart = (
                    1 - inner**2
                )  # zero where both signals are equal: its square root has no derivative there, and needs none
                rest = jnp.where(apart > 1e-12, jnp.sqrt(jnp.where(apart > 1e-12, apart, 1.0)), 0.0)
                bend = lambda h: 1 - jnp.tanh(h) ** 2  # noqa: E731
                top = self.gain**2 * (weight @ (bend(root * first) * bend(root * (inner * first + rest * second))))
            # with q = (σ_m²A + σ_b²)/rest at the fixed point, q/(σ_m²A + σ_b²) is 1/rest, also where both vanish
            signal = alone(full)
            remains = 1 - s * signal if self.neurons == "stochastic" else (1 - s) * signal
            return s * top / remains

        return length, correlation, slope

    def point(self, numerics: Numerics) -> dict[str, Array]:
        length, correlation, slope = self._maps(numerics.nodes)
        s, b, r = self.variance, self.bias_variance, self.input_square
        rest = 1 - s * r if self.neurons == "stochastic" else (1 - s) * r
        first = ((s * r + b) / rest, (s * r * self.input_overlap + b) / (s * r + b))

        def layer(state, _):
            q, c = state
            return (length(q), correlation(q, c)), state

        _, (lengths, correlations) = jax.lax.scan(layer, first, None, length=self.depth)

        def with_length(x, args):
            variance, bias, gain = args
            there = self.with_values({"variance": variance, "bias_variance": bias, "gain": gain})
            return there._maps(numerics.nodes)[0](x[0])[None]

        args = (s, b, self.gain)
        settings = {"tolerance": numerics.tolerance, "max_steps": 200, "warmup": 20}
        found = solve(with_length, first[0][None], args, **settings)
        q = found.x[0]
        if self.surrogate == "sampled":

            def with_correlation(x, args):
                variance, bias, gain, q = args
                there = self.with_values({"variance": variance, "bias_variance": bias, "gain": gain})
                return there._maps(numerics.nodes)[1](q, x[0])[None]

            where = solve(with_correlation, jnp.full(1, 0.5), (*args, q), **settings)
            c, converged = where.x[0], found.converged & where.converged
            residual = jnp.maximum(found.residual, where.residual)
        else:
            c, converged, residual = jnp.ones_like(q), found.converged, found.residual
        chi = slope(q, c)
        if self.activation == "tanh":
            # The rule's error falls like exp(−0.9 n π/(2r)) for tanh(rz); beyond this slope it exceeds 1e-10 and is not used.
            noise = 1.0 if self.surrogate == "sampled" else 0.0
            longest = jnp.maximum(q, jnp.max(lengths)) + noise
            converged = converged & (self.gain * jnp.sqrt(longest) < numerics.nodes / 16)
        clear = jnp.abs(jnp.log(chi)) > CRITICAL
        grows = jax.jvp(length, (q,), (jnp.ones_like(q),))[1]
        return {
            "length": lengths,
            "correlation": correlations,
            "fixed_length": q,
            "fixed_correlation": c,
            "depth_slope": chi,
            "depth_scale": jnp.where(clear, -1 / jnp.where(clear, jnp.log(chi), 1.0), jnp.nan),
            "length_scale": -1 / jnp.log(jnp.abs(grows)),
            "converged": converged,
            "residual": residual,
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        s, root = self.variance.astype(dtype), math.sqrt(size)
        bias, gain = jnp.sqrt(self.bias_variance.astype(dtype)), self.gain.astype(dtype)
        phi = function_named(self.activation)
        to_input, to_turn, to_build = jax.random.split(key, 3)

        def means(key):
            if self.means == "uniform":
                return jnp.sqrt(3 * s) * jax.random.uniform(key, (size, size), dtype, -1.0, 1.0)
            to_sign, to_keep = jax.random.split(key)
            sign = jnp.where(jax.random.bernoulli(to_sign, 0.5, (size, size)), 1.0, -1.0).astype(dtype)
            if self.means == "binary":
                return jnp.sqrt(s) * sign
            return jnp.where(jax.random.uniform(to_keep, (size, size), dtype) < s, sign, 0.0)

        def layer(x, key):
            to_means, to_bias, to_noise = jax.random.split(key, 3)
            M = means(to_means)
            b = bias * jax.random.normal(to_bias, (size,), dtype)
            spread = 1 - M**2 @ x.T**2 / size if self.neurons == "stochastic" else (1 - M**2) @ x.T**2 / size
            h = ((M @ x.T / root + b[:, None]) / jnp.sqrt(spread)).T
            square = jnp.mean(h**2, axis=1)
            both = jnp.mean(h[0] * h[1]) / jnp.sqrt(square[0] * square[1])
            if self.surrogate == "sampled":
                h = h + jax.random.normal(to_noise, h.shape, dtype)
            return phi(gain * h), (jnp.mean(square), both)

        signs = jnp.where(jax.random.bernoulli(to_input, 0.5, (size,)), 1.0, -1.0).astype(dtype)
        same = jax.random.uniform(to_turn, (size,), dtype) < 0.5 * (1 + self.input_overlap.astype(dtype))
        x = jnp.sqrt(self.input_square.astype(dtype)) * jnp.stack([signs, jnp.where(same, signs, -signs)])
        _, (lengths, correlations) = jax.lax.scan(layer, x, jax.random.split(to_build, self.depth))
        return {"length": lengths, "correlation": correlations}
