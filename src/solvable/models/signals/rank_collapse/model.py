r"""Uniform attention makes tokens parallel: how fast, how the scaling of residual branches prevents it, which gradients survive.

**Network.** T tokens (`context`), the rows of X, of dimension d; they start with |x|² = d and overlap ρ₀. A block is

    Z = X + α₁ A X W_V,        X′ = Z + α₂ MLP(Z),        A = softmax(X W_Q W_Kᵀ Xᵀ/√d),

with entries of W_V and W_K N(0, σ_v²/d) and N(0, σ_k²/d), and an MLP that is linear, Z W, or √2 relu(Z W₁) W₂, with entries
N(0, σ_w²/d), the second matrix N(0, 1/d). Queries start at zero, so that A is uniform, 1/T. Branches are as given
(`scaling = "none"`) or divided by √L (`"depth"`).

**Theory** (setting of Noci et al. 2022, recursions derived here). With q = |x|²/d, p = x·x′/d, m = (q + (T−1)p)/T, a = α₁²σ_v²
and b = α₂²σ_w²,

    attention: q ← q + a m, p ← p + a m;        MLP: q ← (1+b) q, p ← p + b q κ(p/q),

κ(c) = c for a linear MLP and the arc-cosine kernel [√(1−c²) + c(π − arccos c)]/π for ReLU. The linear network has closed forms at
any d: with C = T q + T(T−1) p and N = T q,

    C_l = [(1+a)(1+b)]^l C₀,        N_l = (1+b)^l [N₀ + (C₀/T)((1+a)^l − 1)],

hence ρ_l → 1 and 1 − ρ_l ~ (1+a)^−l. With branches divided by √L and L → ∞, at the end of the network (`limit_overlap`)

    ρ = (c − 1)/(T − 1),  c = e^a C₀/[N₀ + (C₀/T)(e^a − 1)]        (linear; (e−1)/(e+T−1) for orthogonal tokens, a = 1),
    ρ′ = a(1−ρ)(1 + (T−1)ρ)/T + b(κ(ρ) − ρ)                        (ReLU).

*Gradients* of S = A X W_V at uniform attention, with Ĉ the covariance of the tokens:

    |∂S/∂W_V|² = d |Σ_i x_i|²/T,        E|∂S/∂W_Q|² = (σ_k²σ_v²/d) |X|² |Ĉ|²,

for d → ∞ equal to d²(q + (T−1)p) and σ_k²σ_v² d² q(q−p)²(T−1)/T: queries (and keys) stop learning when tokens are parallel,
values do not; the former grow with the sixth power of the tokens' length, the latter with the second.

**Simulation.** The network itself, with fresh weights in every block and tokens rescaled to avoid overflow; squared gradients of
a random projection of S by automatic differentiation. The logarithm is measured, because norms of deep products fluctuate
log-normally, with a variance of order L/d.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.averages.activations import activation
from solvable.model import Control, Guard, Model, Numerics, choice, control, dimension, observable

from .._papers import RANK_COLLAPSE


class RankCollapse(Model):
    """Overlap and norm of tokens under uniform attention, and gradients of queries and values.

    >>> import solvable as sv
    >>> found = sv.RankCollapse(depth=64, scaling="depth").theory()
    >>> round(float(found.final_overlap), 4), round(float(found.limit_overlap), 4)
    (0.0782, 0.0791)
    """

    id = "rank-collapse"
    title = "Rank collapse"
    family = "signals"
    sentence = (
        "Uniform attention makes tokens parallel with depth unless branches are scaled; query gradients die with them."
    )
    method = "closed recursion of norm and overlap"
    numerics = Numerics(steps=128)
    typical_sizes = (128, 256, 512)
    theory_seconds = 1e-3
    simulation_seconds = 0.3
    finite_size = 25.0
    inconclusive = 0.3
    guard = Guard(values={"context": 8, "depth": 3}, size=96, seeds=16)
    check_study = (
        {"values": {"context": 12, "depth": 3}, "over": {"mlp": ["linear", "relu"], "scaling": ["none", "depth"]},
         "sizes": [96, 192, 384], "seeds": 96},
    )  # fmt: skip
    references = (RANK_COLLAPSE,)

    attention_scale: Control = control(
        1.0, low=0.0, high=10.0, typical=(0.2, 2.0), symbol=r"\alpha_1", meaning="factor of the attention branch")  # fmt: skip
    mlp_scale: Control = control(
        1.0, low=0.0, high=10.0, typical=(0.2, 2.0), symbol=r"\alpha_2", meaning="factor of the MLP branch")  # fmt: skip
    value_variance: Control = control(
        1.0, low=0.0, low_open=True, high=10.0, typical=(0.2, 2.0), symbol=r"\sigma_v^2",
        meaning="variance of the values' weights, times d")  # fmt: skip
    key_variance: Control = control(
        1.0, low=0.0, low_open=True, high=10.0, typical=(0.2, 2.0), symbol=r"\sigma_k^2",
        meaning="variance of the keys' weights, times d")  # fmt: skip
    weight_variance: Control = control(
        1.0, low=0.0, low_open=True, high=10.0, typical=(0.2, 2.0), symbol=r"\sigma_w^2",
        meaning="variance of the MLP's weights, times d")  # fmt: skip
    initial_overlap: Control = control(
        0.0, low=0.0, high=1.0, high_open=True, typical=(0.0, 0.9), symbol=r"\rho_0",
        meaning="overlap of the input tokens")  # fmt: skip
    context: int = choice(20, low=2, high=100_000, symbol="T", meaning="number of tokens")
    depth: int = choice(16, high=10_000, symbol="L", meaning="number of blocks")
    mlp: str = choice("linear", options=("linear", "relu"), meaning="linear layer, or two layers with ReLU")
    scaling: str = choice("none", options=("none", "depth"), meaning="branches as given, or divided by √L")

    dimensions_declared = (
        dimension("layer", "blocks passed", symbol="l", kind="site"),
        dimension("block", "block", symbol="l", kind="site"),
    )
    main_declared = ("overlap", "final_overlap", "log_query_gradient")
    observables_declared = (
        observable("overlap", "overlap of two tokens", symbol=r"\rho", dims=("layer",), low=-1, high=1 + 1e-9),
        observable("log_length", "logarithm of the mean square of a token", symbol=r"\log q", dims=("layer",)),
        observable("log_query_gradient", "logarithm of the squared gradient of the queries' weights, over d²",
                   symbol=r"\log |\partial W_Q|^2", dims=("block",)),
        observable("log_value_gradient", "logarithm of the squared gradient of the values' weights, over d²",
                   symbol=r"\log |\partial W_V|^2", dims=("block",)),
        observable("final_overlap", "overlap of two tokens after the last block", symbol=r"\rho_L", low=-1, high=1 + 1e-9),
        observable("limit_overlap", "its limit for many blocks", symbol=r"\rho(1)", low=-1e-9, high=1 + 1e-9,
                   simulated=False, when={"scaling": "depth"}),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"layer": np.arange(self.depth + 1), "block": np.arange(1, self.depth + 1)}

    # --- theory -----------------------------------------------------------------------------------------------------

    def _branches(self) -> tuple[Array, Array]:
        """a and b, for branches that are not divided by √L."""
        return self.attention_scale**2 * self.value_variance, self.mlp_scale**2 * self.weight_variance

    def _kernel(self, rho: Array) -> Array:
        """Overlap after the MLP's branch."""
        return rho if self.mlp == "linear" else 2 * activation("relu").I2(jnp.ones_like(rho), rho, jnp.ones_like(rho))

    def point(self, numerics: Numerics) -> dict[str, Array]:
        T, divide = self.context, self.depth if self.scaling == "depth" else 1
        a, b = (x / divide for x in self._branches())

        def block(state, _):
            """ε = 1 − ρ keeps its digits where tokens are nearly parallel."""
            log_length, apart = state
            average = 1 - apart * (T - 1) / T
            grown = 1 + a * average
            apart = apart / grown
            drop = apart - (1 - self._kernel(1 - apart)) if self.mlp == "relu" else 0.0
            new = (log_length + jnp.log(grown) + jnp.log1p(b), apart - b / (1 + b) * drop)
            return new, new

        start = (jnp.zeros_like(self.initial_overlap), 1 - self.initial_overlap)
        _, after = jax.lax.scan(block, start, None, length=self.depth)
        log_length, apart = (jnp.concatenate([i[None], j]) for i, j in zip(start, after, strict=True))
        q, e = log_length[:-1], apart[:-1]
        found = {
            "overlap": 1 - apart,
            "log_length": log_length,
            "log_query_gradient": 3 * q
            + 2 * jnp.log(e)
            + jnp.log(self.key_variance * self.value_variance * (T - 1) / T),
            "log_value_gradient": q + jnp.log(T - e * (T - 1)),
            "final_overlap": 1 - apart[-1],
        }
        if self.scaling == "depth":
            found["limit_overlap"] = self._limit(numerics.steps)
        return found

    def _limit(self, steps: int) -> Array:
        T, (a, b), rho = self.context, self._branches(), self.initial_overlap
        if self.mlp == "linear":
            start = 1 + (T - 1) * rho  # C/N
            return (jnp.exp(a) * start / (1 + start / T * jnp.expm1(a)) - 1) / (T - 1)

        def slope(r):
            return a * (1 - r) * (1 + (T - 1) * r) / T + b * (self._kernel(r) - r)

        def step(r, _):
            h = 1 / steps
            k1 = slope(r)
            k2 = slope(r + h / 2 * k1)
            k3 = slope(r + h / 2 * k2)
            k4 = slope(r + h * k3)
            return r + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return jax.lax.scan(step, rho, None, length=steps)[0]

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        d, T = size, self.context
        divide = np.sqrt(self.depth) if self.scaling == "depth" else 1.0
        one, two, v, k, w, rho = (
            x.astype(dtype)
            for x in (self.attention_scale / divide, self.mlp_scale / divide, self.value_variance, self.key_variance,
                      self.weight_variance, self.initial_overlap)
        )  # fmt: skip
        to_tokens, to_blocks = jax.random.split(key)

        def attend(x, queries, keys, values):
            return jax.nn.softmax((x @ queries) @ (x @ keys).T / jnp.sqrt(d).astype(dtype), axis=1) @ x @ values

        def block(carry, key):
            x, log_length = carry
            drawn = jax.random.normal(key, (4 * d + T, d), dtype)
            values, keys, first, second = drawn[: 4 * d].reshape(4, d, d)
            values, keys, first = jnp.sqrt(v / d) * values, jnp.sqrt(k / d) * keys, jnp.sqrt(w / d) * first
            # Zeros of this realisation: with zeros shared by a batch, XLA's CPU compiler gives wrong products.
            out, pull = jax.vjp(lambda q, u: attend(x, q, keys, u), 0 * keys, values)
            of_queries, of_values = pull(drawn[4 * d :])
            z = x + one * out
            if self.mlp == "linear":
                x = z + two * (z @ first)
            else:
                x = z + two * jnp.sqrt(2 / d).astype(dtype) * (jax.nn.relu(z @ first) @ second)
            square, total = jnp.sum(x**2), jnp.sum(jnp.sum(x, axis=0) ** 2)
            grown = jnp.log(square / (T * d))
            seen = {
                "overlap": (total - square) / ((T - 1) * square),
                "log_length": log_length + grown,
                # Tokens were divided by their length; S is of its first power in them, and A of its second.
                "log_query_gradient": 3 * log_length + jnp.log(jnp.sum(of_queries**2) / d / d),
                "log_value_gradient": log_length + jnp.log(jnp.sum(of_values**2) / d / d),
            }
            return (x / jnp.sqrt(square / (T * d)), log_length + grown), seen

        drawn = jax.random.normal(to_tokens, (T + 1, d), dtype)
        x = jnp.sqrt(rho) * drawn[:1] + jnp.sqrt(1 - rho) * drawn[1:]
        x = x / jnp.sqrt(jnp.mean(x**2, axis=1, keepdims=True))
        total = jnp.sum(jnp.sum(x, axis=0) ** 2)
        start = {"overlap": (total / (T * d) - 1) / (T - 1), "log_length": jnp.zeros((), dtype)}
        _, seen = jax.lax.scan(block, (x, jnp.zeros((), dtype)), jax.random.split(to_blocks, self.depth))
        for name, value in start.items():
            seen[name] = jnp.concatenate([value[None], seen[name]])
        return {**seen, "final_overlap": seen["overlap"][-1]}
