r"""The sharpness of a loss, the top eigenvalue of its Hessian, while networks of different width are trained.

**Data.** P patterns x_μ in D dimensions (`given_inputs`, by default drawn from N(0, 2/D)) and targets y_μ (`targets`).

**Learner.** f(x) = Σ_i a_i w_i·x/(γ√N) with N units, a and w from N(0, 1) in pairs (a, w), (−a, w), so that f = 0 at the start;
full-batch gradient descent on ½ mean (y − f)² at rate ηγ². Two scalings: γ = γ₀√N (*mup*: features move at every width) and
γ = γ₀ (*ntk*: they move less and less). The width-free sharpness is Λ = γ² λ_max(∇²loss); descent is stable below Λ = 2/η.

**Theory** (N → ∞; the claim that sharpness does not depend on width is that of Noci et al. 2024, the equations are derived here).
With β = f's weights, K_w = <wwᵀ>, K_a = <a²>, c = <aw>, g = mean Δ_μ x_μ and e = ηγ₀ (ntk: c = e = 0), one step is

    β ← β + η(K_w + K_a)g + ηe(c·g)g,    K_w ← K_w + e(cgᵀ + gcᵀ) + e²K_a ggᵀ,    K_a ← K_a + 2e c·g + e² gᵀK_w g,    c = γ₀β.

The Hessian is a matrix of rank P (Gauss–Newton) plus, for every unit, R = −γ₀[[0, gᵀ], [g, 0]] with eigenvalues ±κ, κ = γ₀|g|.
With z = (a, w) and T_μ z = (w·x_μ, a x_μ) an outlier Λ > κ solves λ_max(S(Λ)) = 1, where

    S_μν(λ) = <(T_μ z)ᵀ (λ − R)⁻¹ T_ν z>/P
            = {[λ x_μᵀK_w x_ν − κ(c·x_μ ĝ·x_ν + ĝ·x_μ c·x_ν) + λK_a ĝ·x_μ ĝ·x_ν]/(λ² − κ²) + K_a (x_μ·x_ν − ĝ·x_μ ĝ·x_ν)/λ}/P.

Where residuals vanish, Λ is the top eigenvalue of X(K_w + K_a)Xᵀ/P.

**Simulation.** The network itself; Λ by Lanczos iteration with Hessian-vector products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.contract.declarations import Reference, choice, control, data, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.bisection import bisect
from solvable.methods.random_matrices.lanczos import largest_eigenvalue
from solvable.model import Control, Count, Guard, Input, Model, Numerics

LANCZOS = 40
"""Products of the Hessian with vectors for one eigenvalue."""


def _draw_inputs(model: Any) -> np.ndarray:
    draws = np.random.default_rng(0).standard_normal((model.patterns, model.input_dimension))
    return np.sqrt(2 / model.input_dimension) * draws


class Sharpness(Model):
    """Top Hessian eigenvalue of a two-layer linear network in the course of training: one curve for all widths under μP.

    The `size` of a simulation is the width N.

    >>> import solvable as sv
    >>> outcome = sv.Sharpness(steps=20, every=10).theory()
    >>> bool(outcome.sharpness[-1] > outcome.sharpness[0])
    True
    """

    id = "sharpness"
    title = "Sharpness of the loss across widths"
    family = "signals"
    sentence = "Top Hessian eigenvalue while networks are trained: one curve at all widths under μP, no growth under NTK scaling."
    method = "closed recursion of overlaps, and a secular equation for the outlier of the Hessian"
    numerics = Numerics(halvings=60)
    accuracy = 1e-9
    theory_seconds = 0.02
    theory_lanes = 64
    typical_sizes = (64, 256, 1024)
    simulation_seconds = 0.5
    simulation_growth = 1.0
    guard = Guard(values={"steps": 10, "every": 5}, size=64, seeds=8)
    check_study = (
        {"over": {"scaling": ["mup", "ntk"], "richness": [0.5, 2.0]}, "values": {"steps": 40, "every": 10}, "seeds": 16},
    )  # fmt: skip
    references = (
        Reference(
            "noci2024super", "L. Noci, A. Meterez, T. Hofmann and A. Orvieto", "Super consistency of neural network landscapes "
            "and learning rate transfer", 2024, "NeurIPS 37", arxiv="2402.17457"),
    )  # fmt: skip

    rate: Control = control(
        0.1, low=0.0, low_open=True, high=100.0, typical=(0.02, 0.3), scale="log", symbol=r"\eta",
        meaning="learning rate, in units of γ²")  # fmt: skip
    richness: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.1, 3.0), scale="log", symbol=r"\gamma_0",
        meaning="how strongly features move, at every width (mup) or in relation to the width (ntk)")  # fmt: skip
    scaling: str = choice("mup", options=("mup", "ntk"), meaning="factor of the output: 1/(γ₀N) or 1/(γ₀√N)")
    patterns: int = choice(10, high=1000, symbol="P", meaning="number of training patterns")
    input_dimension: int = choice(20, high=1000, symbol="D", meaning="dimension of the inputs")
    steps: int = choice(60, high=100_000, symbol="T", meaning="steps of gradient descent")
    every: int = choice(5, high=100_000, meaning="steps between two measurements; a divisor of the steps")
    given_inputs: Array = data(
        _draw_inputs, dims=("patterns", "input_dimension"), symbol="x",
        meaning="training patterns, one in every row")  # fmt: skip
    targets: Input = input(
        lambda m: 3 * np.sum(_given_inputs(m), axis=1) / np.sqrt(m.input_dimension), dims=("patterns",), symbol="y",
        meaning="target of every pattern")  # fmt: skip

    dimensions_declared = (dimension("time", "steps of gradient descent", symbol="t", kind="time"),)
    observables_declared = (
        observable("sharpness", "largest eigenvalue of the Hessian, in units of 1/γ²", symbol=r"\Lambda", dims=("time",),
                   low=0),
        observable("kernel_sharpness", "largest eigenvalue of its Gauss–Newton part, the tangent kernel over P",
                   symbol=r"\Lambda_{GN}", dims=("time",), low=0),
        observable("train_loss", "half the mean squared error on the patterns", dims=("time",), low=0),
    )  # fmt: skip
    converges_along = "time"

    def validate(self) -> None:
        if self.steps % self.every:
            raise InvalidValue(f"every = {self.every} does not divide steps = {self.steps}.")

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.arange(0, self.steps + 1, self.every)}

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        x, y, count, dim = self.given_inputs, self.targets, self.patterns, self.input_dimension
        rich = self.richness if self.scaling == "mup" else jnp.zeros_like(self.richness)

        def step(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
            beta, first, last = state
            error = y - x @ beta
            g, c, e = error @ x / count, rich * beta, self.rate * rich
            new = (
                beta + self.rate * (first @ g + last * g) + self.rate * e * (c @ g) * g,
                first + e * (jnp.outer(c, g) + jnp.outer(g, c)) + e**2 * last * jnp.outer(g, g),
                last + 2 * e * (c @ g) + e**2 * g @ first @ g,
            )
            return new, (*state, g, 0.5 * jnp.mean(error**2))

        start = (jnp.zeros(dim), jnp.eye(dim), jnp.ones(()))
        _, path = jax.lax.scan(step, start, None, length=self.steps + 1)
        beta, first, last, g, loss = (part[:: self.every] for part in path)
        kernel = jax.vmap(lambda k, a: x @ (k @ x.T) / count + a * (x @ x.T) / count)(first, last)
        newton = jax.vmap(lambda m: _top(m)[0])(kernel)

        def outlier(beta: Array, first: Array, last: Array, g: Array, newton: Array) -> tuple[Array, Array]:
            return self._outlier(beta, first, last, g, newton, rich, numerics.halvings)

        sharp, residual = jax.vmap(outlier)(beta, first, last, g, newton)
        bounded = loss < 1e12
        return {
            "sharpness": sharp,
            "kernel_sharpness": newton,
            "train_loss": loss,
            "converged": jnp.cumprod(bounded & (residual < 1e-8)).astype(bool),
            "residual": jnp.max(jnp.where(bounded, residual, 0.0)),
        }

    def _outlier(
        self, beta: Array, first: Array, last: Array, g: Array, newton: Array, rich: Array, halvings: int
    ) -> tuple[Array, Array]:
        """The largest eigenvalue Λ of the Hessian, and the residual of its equation."""
        x, count = self.given_inputs, self.patterns
        length = jnp.sqrt(jnp.maximum(g @ g, 1e-300))
        edge = rich * length
        along, moved = x @ (g / length), rich * (x @ beta)
        weights, plain, line = x @ first @ x.T, x @ x.T, jnp.outer(along, along)
        mixed = jnp.outer(moved, along) + jnp.outer(along, moved)

        def matrix(value: Array) -> Array:
            inside = (value * (weights + last * line) - edge * mixed) / (value**2 - edge**2)
            return (inside + last * (plain - line) / value) / count

        # R shifts the top eigenvalue of the rest by at most its own.
        low, high = jnp.maximum(edge, newton - edge) * (1 - 1e-12), (newton + edge) * (1 + 1e-12)
        low, high = bisect(lambda value: _top(matrix(value))[0] >= 1, low, high, halvings)
        found = jax.lax.stop_gradient(0.5 * (low + high))
        vector = jax.lax.stop_gradient(_top(matrix(found))[1])
        # One Newton step, which also carries the derivatives.
        gap, slope = jax.jvp(lambda value: vector @ matrix(value) @ vector - 1, (found,), (jnp.ones_like(found),))
        change = gap / jax.lax.stop_gradient(slope)
        return found - change, jnp.abs(jax.lax.stop_gradient(change)) / found

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        if size % 2:
            raise InvalidValue(f"size = {size} is not even: units come in pairs.")
        gamma = self.richness.astype(dtype) * (size**0.5 if self.scaling == "mup" else 1.0)
        return trained(
            key, size, self.given_inputs.astype(dtype), self.targets.astype(dtype), gamma, self.rate.astype(dtype),
            steps=self.steps, every=self.every,
        )  # fmt: skip


def trained(
    key: PRNGKeyArray,
    size: int,
    x: Array,
    y: Array,
    gamma: Array,
    rate: Array,
    *,
    steps: int,
    every: int,
    activation: Callable[[Array], Array] | None = None,
    last: Array | float = 1.0,
    sharpness: bool = True,
) -> dict[str, Array]:
    """Train a two-layer network by gradient descent and measure its loss and sharpness.

    `activation` is that of the hidden units (None: linear), `last` a factor of the last layer's rate.
    Without `sharpness` only the loss is measured.
    """
    count, dim = x.shape
    to_first, to_last, to_start = jax.random.split(key, 3)
    first = jnp.tile(jax.random.normal(to_first, (size // 2, dim), x.dtype), (2, 1))
    half = jax.random.normal(to_last, (size // 2,), x.dtype)
    weights = jnp.concatenate([jnp.concatenate([half, -half])[:, None], first], axis=1).reshape(-1)
    rates = jnp.tile(jnp.ones(dim + 1, x.dtype).at[0].set(last), size)
    look = jax.random.normal(to_start, weights.shape, x.dtype)

    def output(weights: Array) -> Array:
        units = weights.reshape(size, dim + 1)
        fields = x @ units[:, 1:].T
        return (fields if activation is None else activation(fields)) @ units[:, 0] / (gamma * size**0.5)

    def loss(weights: Array) -> Array:
        return 0.5 * jnp.mean((y - output(weights)) ** 2)

    def gauss_newton(weights: Array, vector: Array) -> Array:
        pushed, pull = jax.jvp(output, (weights,), (vector,))[1], jax.vjp(output, weights)[1]
        return pull(pushed / count)[0]

    def measure(weights: Array) -> dict[str, Array]:
        if not sharpness:
            return {"train_loss": loss(weights)}
        whole = largest_eigenvalue(lambda v: jax.jvp(jax.grad(loss), (weights,), (v,))[1], look, LANCZOS)
        newton = largest_eigenvalue(lambda v: gauss_newton(weights, v), look, min(LANCZOS, count + 1))
        return {"sharpness": gamma**2 * whole, "kernel_sharpness": gamma**2 * newton, "train_loss": loss(weights)}

    def between(weights: Array, _: None) -> tuple[Array, dict[str, Array]]:
        def step(_: Array, now: Array) -> Array:
            return now - rate * gamma**2 * rates * jax.grad(loss)(now)

        return jax.lax.fori_loop(0, every, step, weights), measure(weights)

    _, seen = jax.lax.scan(between, weights, None, length=steps // every + 1)
    finite = jnp.all(jnp.isfinite(jnp.stack(list(seen.values()))), axis=0)
    return {**seen, "converged": jnp.cumprod(finite).astype(bool)}


def _top(matrix: Array) -> tuple[Array, Array]:
    """Largest eigenvalue of a positive definite matrix, and its eigenvector, by repeated squaring."""

    def square(_: Array, power: Array) -> Array:
        power = power @ power
        return power / jnp.trace(power)

    power = jax.lax.stop_gradient(jax.lax.fori_loop(0, 40, square, matrix / jnp.trace(matrix)))
    column = power[:, jnp.argmax(jnp.diagonal(power))]
    vector = column / jnp.sqrt(column @ column)
    return vector @ matrix @ vector, vector


def _given_inputs(model: Any) -> np.ndarray:
    return _draw_inputs(model) if model.given_inputs is None else np.asarray(model.given_inputs)
