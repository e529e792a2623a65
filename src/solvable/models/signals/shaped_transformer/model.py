r"""Tokens through a transformer at initialisation, depth proportional to width: their covariance has a random limit.

**Network.** m tokens, rows of X (m × n), pass L = T̄n blocks of width n. All weights are N(0, 1); λ² = 1 − γ² (γ² is
`branch`).

- Attention: Z = λX + γ A X W_V/√n, with the *shaped* softmax A = 1 + softmax(Y/τ) − 11ᵀ/m, scores Y = X W_Q W_Kᵀ Xᵀ/n,
  keys of length n, and the temperature τ = τ₀ n (`temperature` is τ₀).
- Feed-forward layers: X′ = λZ + γ √(c/n) σ(Z W/√n) W′, with the shaped ReLU σ(x) = s₊ max(x, 0) + s₋ min(x, 0),
  s_± = 1 + c_±/√n, and 1/c = (s₊² + s₋²)/2.

A `block` is one after the other (`transformer`), one of them (`attention`, `mlp`), or a feed-forward layer without skip
and second weights, X′ = √c σ(X W/√n) (`plain`). Softmax and ReLU tend to the identity as n grows, which keeps the limit
finite.

**Theory** (after Noci et al. 2023; coefficients derived here). For n → ∞ the covariance V = XXᵀ/n at time t = l/n obeys
the stochastic differential equation dV = b dt + Σ^{1/2} dB. A dot stands for the mean over tokens; with the centred
covariance C_νκ = V_νκ − V_ν· − V_·κ + V_··, attention contributes

    b_αβ = γ²/τ₀² [V_αβ Σ_νκ V_νκ C_νκ/m² + Σ_ν (V_αα V_βν + V_ββ V_αν)(C_νν − C̄)/(2m)],    C̄ = Σ_κ C_κκ/m,
    Σ = γ²(2 − γ²) Σ_lin + γ⁴/τ₀² 𝒜,

where Σ_lin is the covariance of F S Fᵀ (V = FFᵀ, S symmetric Gaussian with variances 1, on the diagonal 2) and 𝒜 that of
uV + Vuᵀ, u = (FGFᵀ − mean over its columns)/m with G Gaussian. Feed-forward layers contribute

    b_αβ = γ² (c₊ − c₋)²/(2π) √(V_αα V_ββ) [√(1 − ρ²) − ρ arccos ρ],    Σ = 2γ² Σ_lin

(`plain`: γ = 1 in the drift, and Σ_lin once). The drift of attention is cubic, so that paths explode in finite time. As
in the paper, the process is stopped when the length V_αα of a token exceeds a `ceiling`; it is scaled back to the ceiling
and stays there. The theory returns independent paths. A step maps V to a sum of terms M Mᵀ, so that no path leaves the
positive matrices:

    V ↦ λ²V′ + γ² A V′ Aᵀ,    V′ = F(1 + √(κ dt) S/2)² Fᵀ/mean,    A = 1 + √dt u/τ₀ + dt b′,    FFᵀ = V + dt b_mlp,

with κΣ_lin the linear part of Σ and b′ the mean second order of the softmax. A path may cross the ceiling between two
steps, so that the ceiling is lowered by a factor e^{−0.5826 √(2κ dt)} (Broadie, Glasserman and Kou 1997). A quarter of the
paths is followed by steps of 2dt too, with the same noise. The result is NaN if steps are too long: if the means of ρ₁₂, ln V₁₁
or of the stopped paths differ by more than 0.03 plus twice their error (`residual` is the largest difference, less twice its
error), dt γ² (ceiling/τ₀)² > 1, κ dt > 0.1, or the ceiling lies within three steps of the longest token,
ln(ceiling/V_αα) < 3 √(2κ dt).

**Simulation.** The network itself, softmax and ReLU at finite n. Each weight matrix is used once: given X, the columns of
XW/√n are independent N(0, V), and are drawn as F times m × n normal numbers. This is exact and needs no n × n matrix.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.model import Control, Guard, Input, Model, Numerics

from .paths import Coefficients, attention_drift, diffusion, factor, feedforward_drift, scaled, step, stop

BLOCKS = ("transformer", "attention", "mlp", "plain")
MOST_TOKENS = 16
STEP_ERROR = 0.03
"""Largest change of the means of ρ₁₂, ln V₁₁ and `stopped` between steps of dt and of 2 dt with which paths are returned."""
FEWEST = 64
"""Paths, at least, that are followed with steps of both lengths."""
UNSEEN = 0.5826  # −ζ(½)/√(2π): mean overshoot of a barrier by a random walk, in steps


def equicorrelated(tokens: int, correlation: float = 0.2) -> np.ndarray:
    """The covariance of tokens of length one with equal correlations."""
    return (1 - correlation) * np.eye(tokens) + correlation


def _beyond_noise(changes: Array) -> Array:
    """The absolute mean of changes of paths, less two standard errors."""
    return abs(jnp.mean(changes)) - 2 * jnp.std(changes) / math.sqrt(len(changes))


class ShapedTransformer(Model):
    """Covariance of tokens in a transformer at initialisation, as depth and width grow in proportion: a random limit.

    >>> import solvable as sv
    >>> outcome = sv.ShapedTransformer(block="attention", tokens=2, branch=0.5).theory()
    >>> outcome.correlation.shape, round(float(outcome.drift[0, 1]), 4)  # four depths, 1,000 paths
    ((4, 1000), 0.016)
    """

    id = "shaped-transformer"
    title = "The shaped transformer"
    family = "signals"
    sentence = "Tokens through a deep transformer at initialisation: their covariance follows a stochastic equation."
    method = "stochastic differential equation of the covariance, paths that stay positive"
    numerics = Numerics(draws=1000, steps=200)
    batch_accuracy = 1e-8
    residual_accuracy = STEP_ERROR
    theory_seconds = 0.3
    simulation_seconds = 0.05
    theory_lanes = 16
    typical_sizes = (100, 200, 400)
    guard = Guard(values={"tokens": 2, "points": 2}, size=100, seeds=40)
    references = (
        Reference(
            "noci2023shaped", "L. Noci, C. Li, M. B. Li, B. He, T. Hofmann, C. Maddison and D. M. Roy", "The Shaped "
            "Transformer: Attention Models in the Infinite Depth-and-Width Limit", 2023, "NeurIPS 36", arxiv="2306.17759"),
    )  # fmt: skip
    dimensions_declared = (
        dimension("layer", "layer, as a fraction of the depth", symbol="l/L", kind="time"),
        dimension("token", "token", symbol=r"\alpha", kind="site"),
        dimension("other", "other token", symbol=r"\beta", kind="site"),
    )
    main_declared = ("correlation", "length", "stopped")
    observables_declared = (
        observable("correlation", "correlation ρ₁₂ of the first two tokens", symbol=r"\rho_{12}", dims=("layer",), low=-1,
                   high=1, random=True, power=0.5, when={"tokens": tuple(range(2, MOST_TOKENS + 1))}),
        observable("length", "mean square V₁₁ of the first token", symbol="V_{11}", dims=("layer",), low=0, random=True,
                   power=0.5),
        observable("stopped", "1 once a token has exceeded the ceiling, else 0", dims=("layer",), low=0, high=1,
                   random=True, power=0.5),
        observable("drift", "drift of the covariance at the start", symbol="b_{\\alpha\\beta}", dims=("token", "other"),
                   simulated=False),
        observable("diffusion", "variance of the covariance's increments at the start, per unit of time",
                   symbol=r"\Sigma_{\alpha\beta,\alpha\beta}", dims=("token", "other"), low=0, simulated=False),
    )  # fmt: skip
    check_study = (
        {"values": {"depth": 0.5}, "over": {"branch": [0.2, 0.5]}, "sizes": (60, 240), "seeds": 400},
        {
            "values": {"block": "mlp", "branch": 0.5, "negative_slope": -2.0, "depth": 1.0},
            "sizes": (60, 240),
            "seeds": 400,
        },
        {"values": {"block": "plain", "depth": 0.5}, "sizes": (60, 240), "seeds": 400},
    )

    depth: Control = control(
        0.25, low=0.0, low_open=True, high=4.0, typical=(0.1, 1.0), counts=True, symbol=r"\bar T", meaning="number of blocks "
        "per unit of width, L/n")  # fmt: skip
    branch: Control = control(
        0.2, low=0.0, low_open=True, high=1.0, typical=(0.05, 0.6), symbol=r"\gamma^2", meaning="weight of a branch "
        "against its skip connection, squared; 1: no skip (ignored by plain blocks)")  # fmt: skip
    temperature: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.7, 5.0), scale="log", symbol=r"\tau_0", meaning="temperature of "
        "the softmax, over the square root of width times key length")  # fmt: skip
    positive_slope: Control = control(
        0.0, low=-5.0, high=5.0, typical=(-1.0, 1.0), symbol="c_+", meaning="slope of the shaped ReLU for positive inputs, "
        "minus one, times the root of the width")  # fmt: skip
    negative_slope: Control = control(
        -1.0, low=-5.0, high=5.0, typical=(-2.0, 1.0), symbol="c_-", meaning="slope of the shaped ReLU for negative inputs, "
        "minus one, times the root of the width")  # fmt: skip
    ceiling: Control = control(
        10.0, low=1.0, low_open=True, high=1000.0, typical=(3.0, 10.0), scale="log", symbol="r", meaning="length of a token at "
        "which the process is stopped")  # fmt: skip
    start: Input = input(
        lambda model: equicorrelated(model.tokens), dims=("token", "other"), symbol="V_0", meaning="covariance of the tokens "
        "at the first layer, positive semi-definite; by default lengths 1 and correlations 0.2")  # fmt: skip
    block: str = choice("transformer", options=BLOCKS, meaning="what is repeated: attention and feed-forward layers, one of "
                        "them, or feed-forward layers without skips")  # fmt: skip
    tokens: int = choice(3, low=1, high=MOST_TOKENS, symbol="m", meaning="number of tokens")
    points: int = choice(4, low=1, high=100, meaning="depths of measurement, equally spaced")

    def validate(self) -> None:
        if isinstance(self.start, Tracer):
            return
        V = np.asarray(self.start)
        if V.shape != (self.tokens, self.tokens):
            raise InvalidValue(
                f"start has shape {V.shape} instead of ({self.tokens}, {self.tokens}): a covariance of the tokens."
            )
        if np.any(np.diag(V) <= 0) or np.abs(V - V.T).max() > 1e-12 or np.linalg.eigvalsh(V)[0] < -1e-9:
            raise InvalidValue("start is not a symmetric positive semi-definite matrix with a positive diagonal.")

    def coordinates(self) -> dict[str, np.ndarray]:
        tokens = np.arange(1, self.tokens + 1)
        return {"layer": np.arange(1, self.points + 1) / self.points, "token": tokens, "other": tokens}

    @property
    def _attends(self) -> bool:
        return self.tokens > 1 and self.block in ("transformer", "attention")

    # --- theory -----------------------------------------------------------------------------------------------------

    def coefficients(self) -> Coefficients:
        g2, zero = self.branch, jnp.zeros_like(self.branch)
        attends, feeds = self.block in ("transformer", "attention"), self.block in ("transformer", "mlp")
        bend = (self.positive_slope - self.negative_slope) ** 2 / (2 * jnp.pi)
        if self.block == "plain":
            return Coefficients(zero + 1, zero + 1, zero, zero, bend)
        noise = (g2 * (2 - g2) if attends else zero) + (2 * g2 if feeds else zero)
        # a single token attends to itself alone, at any temperature
        own = (1 - g2, g2, 1 / self.temperature) if self._attends else (zero + 1, zero, zero)
        return Coefficients(noise, *own, g2 * bend if feeds else zero)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        of, m, attends = self.coefficients(), self.tokens, self._attends
        each, few = 2 * -(-numerics.steps // (2 * self.points)), min(numerics.draws, max(numerics.draws // 4, FEWEST))
        dt = self.depth / (each * self.points)
        numbers, key = m * (m + 1) // 2 + attends * m**2, jax.random.key(0)
        rough = jnp.arange(numerics.draws + few) >= numerics.draws

        def forward(number: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            """One step of all paths; a few are repeated with steps of twice the length, every other time, and the same noise."""
            V, stopped, last = state
            normal = jax.random.normal(jax.random.fold_in(key, number), (numbers, numerics.draws), float)
            both = (last + normal[:, :few]) / math.sqrt(2)
            length = jnp.where(rough, 2 * dt * (number % 2).astype(dt.dtype), dt)
            seen = self.ceiling * jnp.exp(-UNSEEN * jnp.sqrt(2 * of.noise * length))
            new = step(V, of, length[None, None], jnp.concatenate([normal, both], axis=1), attends)
            V, stopped = stop(jnp.where(stopped[None, None], V, new), stopped, self.ceiling, seen)
            return V, stopped, normal[:, :few]

        def stage(state: tuple[Array, Array, Array], begin: Array) -> tuple[Any, tuple[dict[str, Array], Array]]:
            state = jax.lax.fori_loop(0, each, lambda i, s: forward(begin + i, s), state)
            every = self._measured(*state[:2])
            found = {n: v[: numerics.draws] for n, v in every.items()}
            moved = [_beyond_noise(scaled(n, v[:few]) - scaled(n, v[numerics.draws :])) for n, v in every.items()]
            return state, (found, jnp.max(jnp.stack(moved)))

        lanes = numerics.draws + few
        every = jnp.broadcast_to(self.start[:, :, None], (m, m, lanes))
        begin = stop(every, jnp.zeros(lanes, bool), self.ceiling, self.ceiling)
        none = jnp.zeros((numbers, few))
        _, (found, moved) = jax.lax.scan(stage, (*begin, none), each * jnp.arange(self.points))
        V = self.start
        drift = of.bend * feedforward_drift(V) + of.branch * of.scores**2 * attention_drift(V)
        fast = dt * of.branch * (of.scores * self.ceiling) ** 2
        fine = (fast <= 1) & (dt * of.bend * jnp.pi <= 1) & (dt * of.noise <= 0.1) & jnp.all(moved <= STEP_ERROR)
        room = jnp.log(
            self.ceiling / jnp.max(jnp.diagonal(V))
        )  # a ceiling within a few steps of the start is not resolved
        fine = fine & ((room <= 0) | (room > 3 * jnp.sqrt(2 * of.noise * dt)))
        residual = jnp.maximum(jnp.max(moved), 0.0)
        return found | {"drift": drift, "diffusion": diffusion(V, of), "converged": fine, "residual": residual}

    def _measured(self, V: Array, stopped: Array) -> dict[str, Array]:
        """The observables of the tokens' covariances."""
        found = {"length": V[0, 0], "stopped": stopped.astype(V.dtype)}
        if self.tokens > 1:
            found["correlation"] = jnp.clip(V[0, 1] / jnp.sqrt(V[0, 0] * V[1, 1]), -1.0, 1.0)
        return found

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        return self.network(key, size, counts["depth"].actual, counts["depth"].padded, dtype)

    def network(
        self, key: Array, size: int, layers: Any, padded: int, dtype: Any = jnp.float32, *, shaped: bool = True
    ) -> dict[str, Array]:
        """One network of width `size`, measured after equal parts of its layers.

        Unless `shaped`, softmax and ReLU are the usual ones: A = softmax(X W_Q W_Kᵀ Xᵀ/(n√n)) and s_± = 1, 0.
        """
        m, n, root = self.tokens, size, math.sqrt(size)
        if n < m:
            raise InvalidValue(f"size = {n} is smaller than tokens = {m}: the width of a network.")
        gamma, skip = (jnp.sqrt(v).astype(dtype) for v in (self.branch, 1 - self.branch))
        ceiling, tau = self.ceiling.astype(dtype), self.temperature.astype(dtype)
        above, below = (1 + c.astype(dtype) / root for c in (self.positive_slope, self.negative_slope))
        if not shaped:
            above, below = jnp.ones_like(above), jnp.zeros_like(below)
        gain = jnp.sqrt(2 / (above**2 + below**2))

        def weighted(X: Array, normal: Array) -> Array:
            """X W/√n for weights W that nothing else depends on."""
            return factor(X @ X.T / n) @ normal

        def attend(X: Array, normal: Array) -> Array:
            scores = weighted(X, normal[0]) @ weighted(X, normal[1]).T / root
            if shaped:
                A = jnp.eye(m, dtype=dtype) + jax.nn.softmax(scores / (tau * root), axis=1) - 1 / m
            else:
                A = jax.nn.softmax(scores, axis=1)
            return skip * X + gamma * A @ weighted(X, normal[2])

        def bend(h: Array) -> Array:
            return gain * jnp.where(h > 0, above * h, below * h)

        def block(X: Array, key: Array) -> Array:
            matrices = {"transformer": 5, "attention": 3, "mlp": 2, "plain": 1}[self.block]
            normal = jax.random.normal(key, (matrices, m, n), dtype)
            if self.block == "plain":
                return bend(weighted(X, normal[0]))
            if self.block != "mlp":
                X = attend(X, normal)
            if self.block != "attention":
                X = skip * X + gamma * weighted(bend(weighted(X, normal[-1])), normal[-2])
            return X

        ends = jnp.asarray(layers).astype(float) * np.linspace(0, 1, self.points + 1)[1:]
        targets = jnp.round(ends).astype(jnp.int32)

        def layer(state: tuple[Array, Array, dict[str, Array]], number: Array) -> tuple[Any, None]:
            X, stopped, found = state
            idle = stopped | (number >= layers)
            X = jnp.where(idle, X, block(X, jax.random.fold_in(key, number)))
            longest = jnp.max(jnp.mean(X**2, axis=1))
            over = longest > ceiling
            X, stopped = jnp.where(over & ~stopped, X * jnp.sqrt(ceiling / longest), X), stopped | over
            now = self._measured(X @ X.T / n, stopped)
            found = {name: jnp.where(targets == number + 1, now[name], found[name]) for name in found}
            return (X, stopped, found), None

        # weights are invariant under rotations, so that only the covariance of the first layer matters
        V = self.start.astype(dtype)
        X = jnp.zeros((m, n), dtype).at[:, :m].set(root * factor(V))
        begin = self._measured(V, jnp.zeros((), bool))
        found = {name: jnp.full(self.points, value, dtype) for name, value in begin.items()}
        state = (X, jnp.zeros((), bool), found)
        (_, _, found), _ = jax.lax.scan(layer, state, jnp.arange(padded, dtype=jnp.int32))
        return found
