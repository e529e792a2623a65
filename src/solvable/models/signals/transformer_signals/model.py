r"""Norm and overlap of tokens through a randomly initialised transformer: rank collapse, entropy collapse, and what lies between.

**Tokens.** T (`context`) vectors x_i of dimension d with q = |x_i|²/d and p = x_i·x_j/d for i ≠ j; ρ = p/q is their overlap. They
start at q = 1 and ρ = ρ₀ (`initial_overlap`): a shared Gaussian vector plus independent ones.

**Block.** Attention with scores a_ij = (W_Q x_i)·(W_K x_j)/√d, entries of W_Q and W_K N(0, βℓ/d), ℓ² = log T (β: `strength`);
output W_V Σ_j A_ij x_j + b, A = softmax(a), entries of W_V N(0, σ_v²/d), biases N(0, σ_b²), plus α_A times the input. Then an
MLP W₂ φ(W₁x + b₁) + b₂ with variances σ_w²/d, rσ_w²/d and σ_b², plus α_M times its input. Layer normalisation (no gains) is
`after` each sum, or `before` each branch. `centred` attention subtracts the uniform average from A; `uniform` is that average.

**Theory** (Giorlandino and Goldt 2025). The part of a score that all keys share cancels in the softmax. What remains are T
independent energies of standard deviation σ_T = βℓ√(q(q−p)): a random energy model, which freezes at

    β_c = √(2/(q(q−p))).

With Y₂ = E Σ_j A_ij² and Y₁₂ = E Σ_k A_ik A_jk the attention gives

    q′ = σ_v² [p + (q−p)Y₂] + σ_b² + α_A² q,        p′ = σ_v² [p + (q−p)Y₁₂] + σ_b² + α_A² p,

and the MLP, with q₁ = σ_w² q + σ_b² and p₁ = σ_w² p + σ_b²,

    q″ = rσ_w² E φ(u)² + σ_b² + α_M² q′,        p″ = rσ_w² E φ(u)φ(v) + σ_b² + α_M² p′,        Cov(u, v) = [[q₁, p₁], [p₁, q₁]].

For T → ∞ (`tokens = "infinite"`), Y₂ = (1 − β_c/β)₊ and Y₁₂ = 0. The corrections decay only like 1/log T, so by default Y₂, Y₁₂
and the entropy are those of T tokens (derived here; `methods.averages.softmax_weights`). The first block is then exact for d → ∞.
Later ones replace the norm of each token and the overlap of each pair by their means, though frozen attention makes them differ:
tokens that attend to the same one become parallel. With α_A ≥ 1 that is not seen. Where attention carries most of the signal
(α_A = 0.3, σ_v² = 1, β = 3), overlaps deviate by a few per cent and Y₂ by a quarter, at any d.

*Collapse* (normalisation `after`). Near ρ = 1 attention is uniform; 1 − ρ changes by the factor λ per block (`collapse_slope`),

    λ = α_A²/(σ_v² + σ_b² + α_A²) · χ,    χ = [rσ_w⁴ E φ′(u)² + α_M²]/[rσ_w² E φ(u)² + σ_b² + α_M²]  at  q₁ = σ_w² + σ_b².

For ReLU χ ≤ 1: tokens always become parallel, over −1/ln λ blocks. For χ > 1 (tanh, large σ_w) they do not if α_A² exceeds
(σ_v² + σ_b²)/(χ − 1).

*Gradients* of a random projection Σ_i g_i·out_i of the attention's output, g_i ~ N(0, 1_d), derived here: with
F = Y₂ − 2Y₃ + E(Σ_j A_ij²)²,

    |∂W_Q|²/(T d² √log T) = β σ_v² q(q−p)² F,        |∂W_V|²/(T d²) = p + (q−p)Y₂;

keys are like queries. For T → ∞, F = m(1−m)/3 with m = β_c/β when frozen, else 0: query gradients switch on at β_c.

**Simulation.** The network itself, with fresh weights in every block; gradients by automatic differentiation.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.averages.activations import activation
from solvable.methods.averages.functions import function_named
from solvable.methods.averages.softmax_weights import SoftmaxTable, softmax_table
from solvable.model import Control, FirstView, Guard, Model, Numerics, choice, control, dimension, observable

from .._papers import RANK_COLLAPSE, TWO_FAILURES

STRONGEST = 5.0
"""The largest strength that tables cover."""
SMOOTH = 3
"""Nodes of averages over tanh and gelu, over those of the tables: enough for weights of variance 100."""


class TransformerSignals(Model):
    """Norm and overlap of tokens through a random transformer, concentration of its attention, size of its gradients.

    >>> import solvable as sv
    >>> found = sv.TransformerSignals(strength=[0.5, 3.0], depth=10, tokens="infinite").theory()
    >>> [round(float(x), 6) for x in found.final_overlap]
    [0.640922, 0.44928]
    """

    id = "transformer-signals"
    title = "Signals through a transformer"
    family = "signals"
    sentence = (
        "Norm and overlap of tokens through a random transformer: rank collapse below β_c, entropy collapse above."
    )
    method = "recursion of two order parameters, attention as a random energy model"
    numerics = Numerics(nodes=32)
    accuracy = 1e-7  # β/β_c contains the root of 1 − ρ, whose rounding it enlarges where tokens are nearly parallel
    batch_accuracy = 1e-9
    typical_sizes = (128, 256, 512)
    theory_seconds = 1e-3
    simulation_seconds = 0.5
    first_view = FirstView(seeds=48)
    finite_size = 6.0
    inconclusive = 0.3
    guard = Guard(values={"context": 16, "depth": 3}, size=96, seeds=16)
    check_study = (
        {"values": {"context": 32, "depth": 3}, "over": {"strength": [0.5, 2.0], "layer_norm": ["after", "before"]},
         "sizes": [96, 192, 384], "seeds": 64},
        # Two blocks: in the third, the participation is 3 % below the mean-field value (0.1674 ± 0.0018, 128 networks).
        {"values": {"context": 32, "depth": 2, "strength": 1.0, "activation": "tanh", "weight_variance": 2.0},
         "over": {"attention": ["centred", "uniform"]}, "sizes": [96, 192, 384], "seeds": 64},
    )  # fmt: skip
    references = (TWO_FAILURES, RANK_COLLAPSE)

    strength: Control = control(
        1.0, low=0.0, high=STRONGEST, typical=(0.1, 3.0), symbol=r"\beta",
        meaning="strength of queries and keys: their weights have variance βℓ/d, ℓ² = log T")  # fmt: skip
    attention_residual: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.2, 2.0), symbol=r"\alpha_A",
        meaning="residual strength beside the attention")  # fmt: skip
    mlp_residual: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.2, 2.0), symbol=r"\alpha_M", meaning="residual strength beside the MLP")  # fmt: skip
    value_variance: Control = control(
        0.2, low=0.0, low_open=True, high=1e6, typical=(0.05, 2.0), symbol=r"\sigma_v^2",
        meaning="variance of the values' weights, times d")  # fmt: skip
    weight_variance: Control = control(
        0.2, low=0.0, low_open=True, high=100.0, typical=(0.05, 4.0), symbol=r"\sigma_w^2",
        meaning="variance of the MLP's weights, times d")  # fmt: skip
    output_ratio: Control = control(
        1.0, low=0.0, low_open=True, high=1e6, typical=(0.2, 5.0), scale="log", symbol="r",
        meaning="variance of the MLP's second matrix, times its inputs, over that of its first")  # fmt: skip
    bias_variance: Control = control(
        4e-4, low=0.0, high=10.0, typical=(1e-4, 0.1), symbol=r"\sigma_b^2", meaning="variance of the biases")  # fmt: skip
    initial_overlap: Control = control(
        0.2, low=0.0, high=1.0, high_open=True, typical=(0.0, 0.9), symbol=r"\rho_0",
        meaning="overlap of the input tokens")  # fmt: skip
    context: int = choice(512, low=2, high=100_000, symbol="T", meaning="number of tokens")
    depth: int = choice(16, high=10_000, symbol="L", meaning="number of blocks")
    layer_norm: str = choice(
        "after", options=("after", "before"), meaning="normalisation after each sum, or before each branch"
    )
    attention: str = choice(
        "softmax", options=("softmax", "centred", "uniform"), meaning="softmax, softmax minus 1/T, or the average of all tokens"
    )  # fmt: skip
    activation: str = choice(
        "relu", options=("relu", "gelu", "erf", "tanh"), symbol=r"\phi", meaning="activation of the MLP"
    )
    tokens: str = choice(
        "finite", options=("finite", "infinite"), meaning="whether the theory is at T tokens or in the limit of many"
    )

    dimensions_declared = (
        dimension("layer", "blocks passed", symbol="l", kind="site"),
        dimension("block", "block", symbol="l", kind="site"),
    )
    main_declared = ("overlap", "final_overlap", "query_gradient", "attention_entropy")
    observables_declared = (
        observable("overlap", "overlap of two tokens", symbol=r"\rho", dims=("layer",), low=-1e-9, high=1 + 1e-9,
                   status="approximate"),
        observable("norm", "mean square of a token", symbol="q", dims=("layer",), low=0, when={"layer_norm": "before"},
                   status="approximate"),
        observable("participation", "sum of squared weights of a token's attention", symbol="Y_2", dims=("block",),
                   low=-1e-9, high=1 + 1e-9, when={"attention": ("softmax", "centred")}, status="approximate"),
        observable("shared_attention", "sum of products of the attention weights of two tokens", symbol="Y_{12}",
                   dims=("block",), low=-1e-9, high=1 + 1e-9, when={"attention": ("softmax", "centred")}, status="approximate"),
        observable("attention_entropy", "entropy of a token's attention over log T", symbol=r"H/\log T", dims=("block",),
                   low=-1e-9, high=1 + 1e-9, when={"attention": ("softmax", "centred")}, status="approximate"),
        observable("query_gradient", "squared gradient of the queries' weights, over T d² √log T",
                   symbol=r"|\partial W_Q|^2", dims=("block",), low=-1e-9, when={"attention": ("softmax", "centred")},
                   status="approximate"),
        observable("value_gradient", "squared gradient of the values' weights, over T d²",
                   symbol=r"|\partial W_V|^2", dims=("block",), low=0, status="approximate"),
        observable("relative_strength", "strength over the critical one of the random energy model",
                   symbol=r"\beta/\beta_c", dims=("block",), low=0, simulated=False),
        observable("final_overlap", "overlap of two tokens after the last block", symbol=r"\rho_L", low=-1e-9, high=1 + 1e-9,
                   status="approximate"),
        observable("collapse_slope", "factor by which 1 − ρ changes per block near ρ = 1", symbol=r"\lambda", low=0,
                   simulated=False, when={"layer_norm": "after"}),
        observable("mlp_slope", "the factor of the MLP alone", symbol=r"\chi", low=0, simulated=False,
                   when={"layer_norm": "after"}),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"layer": np.arange(self.depth + 1), "block": np.arange(1, self.depth + 1)}

    def transition(self, along: str) -> Array:
        """β − β_c at the input, along the strength; λ − 1 along anything else (normalisation after the sums)."""
        if along == "strength":
            return self.strength * jnp.sqrt((1 - self.initial_overlap) / 2) - 1
        return self.theory(only=["collapse_slope"]).collapse_slope - 1

    # --- theory -----------------------------------------------------------------------------------------------------

    def _table(self, numerics: Numerics) -> SoftmaxTable | None:
        if self.tokens == "infinite" or self.attention == "uniform":
            return None
        return softmax_table(self.context, STRONGEST * float(np.sqrt(np.log(self.context))), numerics.nodes)

    def _concentration(self, table: SoftmaxTable | None) -> Any:
        """A function from the overlap of normalised tokens to Y₂ and Y₁₂."""
        if self.attention == "uniform":
            each = 0.0 if self.tokens == "infinite" else 1 / self.context
            return lambda rho: (jnp.full_like(rho, each), jnp.full_like(rho, each))
        if table is None:
            return lambda rho: (jnp.maximum(1 - 1 / jnp.maximum(self._relative(rho), 1e-9), 0.0), jnp.zeros_like(rho))
        s = self.strength * np.sqrt(np.log(self.context))
        row = table.row(s)
        return lambda rho: (table.participation(s * _root(1 - rho)), table.shared(row, s, rho))

    def _relative(self, rho: Array) -> Array:
        """β/β_c for normalised tokens."""
        return self.strength * _root((1 - rho) / 2)

    def _attention(self, rho: Array, concentration: Any) -> tuple[Array, Array]:
        """Norm and product of two tokens after attention to normalised tokens, without the residual."""
        alone, shared = concentration(rho)
        base = rho
        if self.attention == "centred":
            base, each = 0.0, 0.0 if self.tokens == "infinite" else 1 / self.context
            alone, shared = alone - each, shared - each
        v, b = self.value_variance, self.bias_variance
        return v * (base + (1 - rho) * alone) + b, v * (base + (1 - rho) * shared) + b

    def _mlp(self, rho: Array, nodes: int) -> tuple[Array, Array]:
        """Norm and product of two tokens after the MLP acts on normalised tokens, without the residual."""
        w, b = self.weight_variance, self.bias_variance
        q, p, second = w + b, w * rho + b, self.output_ratio * w
        return second * self._product(q, q, nodes) + b, second * self._product(q, p, nodes) + b

    def _product(self, q: Array, p: Array, nodes: int) -> Array:
        """E φ(u)φ(v) at variances q and covariance p."""
        if self.activation != "gelu":
            return activation(self.activation, SMOOTH * nodes).I2(q, p, q)
        # φ(x) = x(1 + g(x))/2 with g = erf(x/√2); E u v g(u)g(v) by integration by parts in u
        g = activation("erf")
        return (p + q * g.I3(q, p, p, q, q) + p * (g.I2(q, p, q) + g.I3(q, q, p, p, q))) / 4

    def _block(self, state: tuple[Array, Array], concentration: Any, nodes: int) -> tuple[Array, Array]:
        """(q, ρ) after one block."""
        q, rho = state
        for branch, residual in (
            (lambda r: self._attention(r, concentration), self.attention_residual),
            (lambda r: self._mlp(r, nodes), self.mlp_residual),
        ):
            norm, product = branch(rho)
            full = norm + residual**2 * q
            rho = (product + residual**2 * q * rho) / full
            q = full if self.layer_norm == "before" else jnp.ones_like(full)
        return q, rho

    def point(self, numerics: Numerics) -> dict[str, Array]:
        table = self._table(numerics)
        concentration = self._concentration(table)
        start = (jnp.ones_like(self.initial_overlap), self.initial_overlap)

        def step(state, _):
            new = self._block(state, concentration, numerics.nodes)
            return new, new

        _, after = jax.lax.scan(step, start, None, length=self.depth)
        norm, overlap = (jnp.concatenate([a[None], b]) for a, b in zip(start, after, strict=True))
        rho = overlap[:-1]
        found = {
            "overlap": overlap,
            "relative_strength": self._relative(rho),
            "final_overlap": overlap[-1],
        }
        alone, shared = concentration(rho)
        found["value_gradient"] = (0.0 if self.attention == "centred" else rho) + (1 - rho) * alone
        if self.attention == "centred" and table is not None:
            found["value_gradient"] -= (1 - rho) / self.context
        if self.layer_norm == "before":
            found["norm"] = norm
        if self.attention != "uniform":
            if table is None:
                m = jnp.minimum(1 / jnp.maximum(self._relative(rho), 1e-9), 1.0)
                entropy, response = jnp.maximum(1 - self._relative(rho) ** 2, 0.0), m * (1 - m) / 3
            else:
                size = np.log(self.context)
                alone_all = table.alone(self.strength * np.sqrt(size) * _root(1 - rho))
                entropy, response = alone_all.entropy / size, alone_all.response
            found |= {"participation": alone, "shared_attention": shared, "attention_entropy": entropy}
            found["query_gradient"] = self.strength * self.value_variance * (1 - rho) ** 2 * response
        if self.layer_norm == "after":
            chi, stays = self._mlp_slope(numerics.nodes), self.attention_residual**2
            if self.attention == "centred":
                full = self.bias_variance + stays
            else:
                full = self.value_variance + self.bias_variance + stays
            found |= {"mlp_slope": chi, "collapse_slope": chi * stays / full}
        return found

    def _mlp_slope(self, nodes: int) -> Array:
        w, b, m = self.weight_variance, self.bias_variance, self.mlp_residual**2
        q, second = w + b, self.output_ratio * w
        slopes = activation(self.activation, SMOOTH * nodes).J2(q, q, q)
        return (second * w * slopes + m) / (second * self._product(q, q, nodes) + b + m)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        d, T, phi = size, self.context, function_named(self.activation)
        beta, a, m, v, w, ratio, b, rho = (
            x.astype(dtype)
            for x in (self.strength, self.attention_residual, self.mlp_residual, self.value_variance,
                      self.weight_variance, self.output_ratio, self.bias_variance, self.initial_overlap)
        )  # fmt: skip
        to_tokens, to_blocks = jax.random.split(key)

        def normal(key, *shape):
            return jax.random.normal(key, shape, dtype)

        def normalised(x):
            x = x - jnp.mean(x, axis=1, keepdims=True)
            return x / jnp.sqrt(jnp.mean(x**2, axis=1, keepdims=True))

        def state(x):
            square, total = jnp.sum(x**2), jnp.sum(jnp.sum(x, axis=0) ** 2)
            return square / (T * d), (total - square) / ((T - 1) * square)

        def weights(x, queries, keys):
            if self.attention == "uniform":
                return jnp.full((T, T), 1 / T, dtype)
            return jax.nn.softmax((x @ queries) @ (x @ keys).T / jnp.sqrt(d).astype(dtype), axis=1)

        def attend(x, queries, keys, values):
            shares = weights(x, queries, keys)
            return (shares - 1 / T if self.attention == "centred" else shares) @ x @ values

        def block(x, key):
            drawn = normal(key, 5 * d + 3 + T, d)  # one draw, because each compiles
            queries, keys, values, first, second = drawn[: 5 * d].reshape(5, d, d)
            sharp = jnp.sqrt(beta * math.sqrt(math.log(T)) / d).astype(dtype)
            queries, keys, values = sharp * queries, sharp * keys, jnp.sqrt(v / d) * values
            first, second = jnp.sqrt(w / d) * first, jnp.sqrt(ratio * w / d) * second
            c0, c1, c2 = jnp.sqrt(b) * drawn[5 * d : 5 * d + 3, None]
            inside = x if self.layer_norm == "after" else normalised(x)
            out, pull = jax.vjp(lambda q, u: attend(inside, q, keys, u), queries, values)
            of_queries, of_values = pull(drawn[5 * d + 3 :])
            shares = weights(inside, queries, keys)
            squares, both = jnp.sum(shares**2), jnp.sum(jnp.sum(shares, axis=0) ** 2)
            seen = {
                "participation": squares / T,
                "shared_attention": (both - squares) / (T * (T - 1)),
                "attention_entropy": -jnp.sum(jax.scipy.special.xlogy(shares, shares)) / (T * math.log(T)),
                "query_gradient": jnp.sum(of_queries**2) / (T * math.sqrt(math.log(T))) / d / d,
                "value_gradient": jnp.sum(of_values**2) / T / d / d,
            }
            x = out + c0 + a * x
            x = normalised(x) if self.layer_norm == "after" else x
            inside = x if self.layer_norm == "after" else normalised(x)
            x = phi(inside @ first + c1) @ second + c2 + m * x
            x = normalised(x) if self.layer_norm == "after" else x
            return x, (seen, state(x))

        drawn = normal(to_tokens, T + 1, d)
        x = normalised(jnp.sqrt(rho) * drawn[:1] + jnp.sqrt(1 - rho) * drawn[1:])
        start = state(x)
        _, (seen, states) = jax.lax.scan(block, x, jax.random.split(to_blocks, self.depth))
        norm, overlap = (jnp.concatenate([i[None], j]) for i, j in zip(start, states, strict=True))
        found = {**seen, "norm": norm, "overlap": overlap, "final_overlap": overlap[-1]}
        return {n: v for n, v in found.items() if n in self.observables()}


def _root(x: Array) -> Array:
    """The square root, with derivative zero instead of infinity at zero (identical tokens)."""
    positive = x > 1e-300
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)
