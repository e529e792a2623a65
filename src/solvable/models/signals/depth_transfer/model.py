r"""A deep residual network in the limit of large width: what it computes while it is trained, and how that depends on depth.

**Data.** P patterns x_μ with x_μ·x_ν/D = K_μν, one on the diagonal and `correlation` off it, and targets y_μ.

**Learner.** N units in each of L residual blocks, all weights drawn from N(0, 1),

    h⁰ = V x/√D,    h^{ℓ+1} = h^ℓ + σ N^{-1/2} W^ℓ φ(h^ℓ),    f = w·φ(h^L)/(γ₀ N),    σ = β₀ L^{-α}.

α = ½ is depth-μP, α = 1 CompleteP, α = 0 the usual branch. Gradient descent on ½ mean (y − f)² at rate ηγ₀²N (μP). With *matched*
rates, hidden weights have L^{2α−1} times this rate: L blocks then move the output by an amount that does not depend on L. The
output at the start, of order N^{-1/2}, is subtracted.

**Theory** (N → ∞ at fixed L, dynamical mean-field theory after Bordelon et al. 2023; notation g^ℓ = γ₀N ∂f/∂h^ℓ, Δ = y − f,
sums over s include patterns and their 1/P):

    h⁰(t) = u⁰ + γ₀η Σ_{s<t} Δ(s) K g⁰(s),
    h^{ℓ+1} = h^ℓ + σ[u^{ℓ+1} + Σ_s R_h(t,s) g^{ℓ+1}(s)] + σ²γ₀η_h Σ_{s<t} Δ(s) Φ^ℓ(t,s) g^{ℓ+1}(s),
    g^ℓ = g^{ℓ+1} + φ'(h^ℓ) {σ[r^ℓ + Σ_s R_g(t,s) φ(h^ℓ(s))] + σ²γ₀η_h Σ_{s<t} Δ(s) G^{ℓ+1}(t,s) φ(h^ℓ(s))},
    g^L = φ'(h^L) w,    w(t) = w₀ + γ₀η Σ_{s<t} Δ(s) φ(h^L(s)),    f = <w φ(h^L)>/γ₀,

with Gaussian u^{ℓ+1} of covariance Φ^ℓ = <φ(h^ℓ)φ(h^ℓ)> and r^ℓ of covariance G^{ℓ+1} = <g^{ℓ+1}g^{ℓ+1}>. `mean_field` solves
them in the order of training, without iteration: exactly for linear φ, with samples of sites for others. These are solved twice,
with independent halves of the sites: the mean is the result, half the difference its error (`residual`, relative to one plus
the value), and from the time on at which that exceeds half the stated accuracy, 0.05, results are NaN. As γ₀ → 0 the tangent
kernel Θ = Φ^L + K G⁰ + (η_h/η) σ² Σ_ℓ Φ^ℓ G^{ℓ+1} stays constant.

**Simulation.** The network itself, with gradients by automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.model import Control, Count, Guard, Input, Model, Numerics

from .mean_field import drawn_sources, mean_field, number_of_sources, unit_sources

PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where kernels are measured, in units of the depth; layers are rounded down."""
MARGIN = 2.0
"""The stated accuracy of sampled results, over the largest estimated error with which they are returned."""
LARGEST = 2000
"""Largest number of fields, depth × (steps + 1) × patterns: their histories then fit into about half a gigabyte."""

BORDELON = Reference(
    "bordelon2023depthwise", "B. Bordelon, L. Noci, M. B. Li, B. Hanin and C. Pehlevan", "Depthwise hyperparameter transfer in "
    "residual networks: dynamics and scaling limit", 2023, "ICLR 2024", arxiv="2309.16620")  # fmt: skip
DEY = Reference(
    "dey2025completep", "N. Dey, B. C. Zhang, L. Noci, M. Li, B. Bordelon, S. Bergsma, C. Pehlevan, B. Hanin and J. Hestness",
    "Don't be lazy: CompleteP enables compute-efficient deep transformers", 2025, "NeurIPS", arxiv="2505.01618")  # fmt: skip


def _linear(h: Array) -> Array:
    return h


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "linear": (_linear, jnp.ones_like),
    "tanh": (jnp.tanh, lambda h: 1 - jnp.tanh(h) ** 2),
    "relu": (jax.nn.relu, lambda h: (h > 0).astype(h.dtype)),
}
"""Activations φ and their derivatives."""


def _half_difference(halves: Array) -> Array:
    """Half the difference of two estimates, relative to one plus their mean; the largest of each time."""
    mean = jnp.mean(halves, axis=0)
    error = 0.5 * jnp.abs(halves[0] - halves[1]) / (1 + jnp.abs(mean))
    return jnp.max(error.reshape(len(error), -1), axis=1)


class Weights(NamedTuple):
    first: Array
    hidden: Array
    readout: Array


class DepthTransfer(Model):
    """Training a deep residual network: mean-field theory of infinite width at finite depth, and networks of finite width.

    The `size` of a simulation is the width N.

    >>> import solvable as sv
    >>> model = sv.DepthTransfer(depth=3, steps=3, rate=0.03, richness=2.0)
    >>> [round(float(f), 6) for f in model.theory().output[:, 0]]
    [0.0, 0.195556, 0.364894, 0.521957]
    """

    id = "depth-transfer"
    title = "Depth and learning in residual networks"
    family = "signals"
    sentence = "Training of residual networks at infinite width: outputs and kernels for every depth, branch scale and richness."
    method = "dynamical mean-field theory, solved forwards in time by Gaussian conditioning"
    numerics = Numerics(sites=8192)
    accuracy = 1e-8
    batch_accuracy = 1e-9
    theory_seconds = 0.1
    theory_lanes = 8
    typical_sizes = (100, 200, 400)
    simulation_seconds = 0.5
    converges_along = "time"
    guard = Guard(values={"depth": 3, "steps": 4}, size=100, seeds=8)
    check_study = (
        {"over": {"richness": [0.5, 2.0], "branch_exponent": [0.5, 1.0]}, "values": {"depth": 4, "steps": 10}, "seeds": 16},
        {"over": {"activation": ["tanh", "relu"]}, "values": {"depth": 3, "steps": 6}, "seeds": 32},
    )  # fmt: skip
    references = (BORDELON, DEY)

    rate: Control = control(
        0.03, low=0.0, low_open=True, high=10.0, typical=(0.003, 0.03), scale="log", symbol=r"\eta",
        meaning="learning rate of the first and last layer, in units of γ₀²N")  # fmt: skip
    richness: Control = control(
        1.0, low=1e-4, high=100.0, typical=(0.1, 3.0), scale="log", symbol=r"\gamma_0",
        meaning="how strongly features move: small values leave the tangent kernel constant")  # fmt: skip
    branch_scale: Control = control(
        1.0, low=0.0, high=10.0, typical=(0.0, 1.0), symbol=r"\beta_0",
        meaning="factor of every residual branch at depth one")  # fmt: skip
    branch_exponent: Control = control(
        0.5, low=0.0, high=2.0, typical=(0.0, 1.0), symbol=r"\alpha",
        meaning="branches are multiplied by depth to the power −α")  # fmt: skip
    correlation: Control = control(
        0.0, low=0.0, high=1.0, high_open=True, typical=(0.0, 0.9), symbol="K", when={"patterns": tuple(range(2, 65))},
        meaning="scalar product of two different patterns")  # fmt: skip
    depth: int = choice(4, high=256, symbol="L", meaning="number of residual blocks")
    steps: int = choice(12, high=500, symbol="T", meaning="steps of gradient descent")
    patterns: int = choice(1, high=64, symbol="P", meaning="number of training patterns")
    activation: str = choice("linear", options=tuple(ACTIVATIONS), meaning="activation φ of the hidden units")
    hidden_rates: str = choice(
        "matched", options=("matched", "equal"),
        meaning="learning rate of hidden weights: L^{2α−1} times that of the other layers, or the same")  # fmt: skip
    targets: Input = input(
        lambda m: (-1.0) ** np.arange(m.patterns), dims=("patterns",), low=-100.0, high=100.0, symbol="y",
        meaning="target of every pattern")  # fmt: skip

    dimensions_declared = (
        dimension("time", "steps of gradient descent", symbol="t", kind="time"),
        dimension("pattern", "training pattern"),
        dimension("layer", "layer over depth, rounded down to a whole layer", symbol=r"\ell/L", kind="label"),
    )
    main_declared = ("train_loss", "output", "tangent_kernel")
    observables_declared = (
        observable("output", "output on each pattern", symbol="f", dims=("time", "pattern")),
        observable("train_loss", "half the mean squared error on the patterns", dims=("time",), low=0),
        observable("feature_kernel", "mean square of the activations of a layer, |φ(h)|²/N, averaged over patterns",
                   symbol=r"\Phi", dims=("time", "layer"), low=0),
        observable("gradient_kernel", "mean square of the scaled gradients of a layer, |g|²/N, averaged over patterns",
                   symbol="G", dims=("time", "layer"), low=0),
        observable("tangent_kernel", "tangent kernel of a pattern with itself, averaged over patterns",
                   symbol=r"\Theta", dims=("time",), low=0),
    )  # fmt: skip

    def validate(self) -> None:
        fields = self.depth * (self.steps + 1) * self.patterns
        if fields > LARGEST:
            raise InvalidValue(
                f"depth = {self.depth}, steps = {self.steps} and patterns = {self.patterns} need {fields} fields, "
                f"depth × (steps + 1) × patterns, more than {LARGEST}."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {
            "time": np.arange(self.steps + 1),
            "pattern": np.arange(self.patterns),
            "layer": np.asarray(PLACES),
        }

    def _layers(self) -> np.ndarray:
        """The layers whose kernels are measured."""
        return np.floor(self.depth * np.asarray(PLACES)).astype(int)

    @property
    def stated_accuracy(self) -> float:
        """Exact for linear networks; others are sampled."""
        return self.accuracy if self.activation == "linear" else 0.05

    def _branch(self) -> Array:
        return self.branch_scale * self.depth ** (-self.branch_exponent)

    def _hidden_rate(self) -> Array:
        return self.rate * (self.depth ** (2 * self.branch_exponent - 1) if self.hidden_rates == "matched" else 1.0)

    def _root(self) -> Array:
        """The symmetric square root of the scalar products K of the patterns."""
        apart, together = jnp.sqrt(1 - self.correlation), jnp.sqrt(1 + (self.patterns - 1) * self.correlation)
        return apart * jnp.eye(self.patterns) + (together - apart) / self.patterns

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        number = number_of_sources(self.depth, self.steps, self.patterns)
        if self.activation == "linear":
            found = self._path(unit_sources(number))
            error = jnp.zeros(self.steps + 1)
        else:
            # Independent halves of the sites: their mean is the result, half their difference its error.
            half = max(numerics.sites // 2, 4 * number)
            halves = jax.vmap(lambda key: self._path(drawn_sources(key, number, half, self.activation == "relu")))(
                jax.random.split(jax.random.key(0))
            )
            found = {name: jnp.mean(value, axis=0) for name, value in halves.items()}
            error = jnp.max(jnp.stack([_half_difference(halves[name]) for name in halves]), axis=0)
        # Too large a rate diverges; beyond this size nothing is resolved any more.
        bounded = jnp.all(jnp.abs(found["output"]) < 1e6, axis=1) & (found["tangent_kernel"] < 1e6)
        accurate = error <= self.stated_accuracy / MARGIN
        return found | {"converged": jnp.cumprod(bounded & accurate).astype(bool), "residual": jnp.max(error)}

    def _path(self, source: Callable[[Array], Array]) -> dict[str, Array]:
        """The observables in the limit, with fresh fields from `source`."""
        path = mean_field(
            *ACTIVATIONS[self.activation],
            source,
            depth=self.depth,
            steps=self.steps,
            branch=self._branch(),
            richness=self.richness,
            rate=self.rate,
            hidden_rate=self._hidden_rate(),
            root=self._root(),
            targets=self.targets,
        )
        return {
            "output": path.output,
            "train_loss": 0.5 * jnp.mean((self.targets[None, :] - path.output) ** 2, axis=1),
            "feature_kernel": path.features[:, self._layers()],
            "gradient_kernel": path.signals[:, self._layers()],
            "tangent_kernel": path.tangent,
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        phi = ACTIVATIONS[self.activation][0]
        richness, branch = self.richness.astype(dtype), self._branch().astype(dtype)
        inputs = self._root().astype(dtype) * self.patterns**0.5  # rows x, with D = P
        targets = self.targets.astype(dtype)
        shapes = ((size, self.patterns), (self.depth, size, size), (size,))
        weights = Weights(
            *(jax.random.normal(k, s, dtype) for k, s in zip(jax.random.split(key, 3), shapes, strict=True))
        )
        unit = (self.rate * self.richness**2 * size).astype(dtype)
        hidden = (self._hidden_rate() * self.richness**2 * size).astype(dtype)
        rates = Weights(unit, hidden, unit)

        def outputs(weights: Weights, added: Array) -> tuple[Array, Array]:
            """Outputs on all patterns, with `added` to the preactivations of each layer, and the features."""

            def block(h: Array, of: tuple[Array, Array]) -> tuple[Array, Array]:
                w, extra = of
                now = phi(h)
                return h + branch * now @ w.T / size**0.5 + extra, now

            start = inputs @ weights.first.T / self.patterns**0.5 + added[0]
            h, features = jax.lax.scan(block, start, (weights.hidden, added[1:]))
            top = phi(h)
            return top @ weights.readout / (richness * size), jnp.concatenate([features, top[None]])

        nothing = jnp.zeros((self.depth + 1, self.patterns, size), dtype)
        offset = outputs(weights, nothing)[0]

        def loss(weights: Weights) -> tuple[Array, Array]:
            output = outputs(weights, nothing)[0] - offset
            return 0.5 * jnp.mean((targets - output) ** 2), output

        def measure(weights: Weights) -> dict[str, Array]:
            output, features = outputs(weights, nothing)
            signals = richness * size * jax.grad(lambda added: jnp.sum(outputs(weights, added)[0]))(nothing)
            slopes = jax.jacrev(lambda w: outputs(w, nothing)[0])(weights)
            squares = [rate * jnp.sum(s**2) for rate, s in zip(rates, slopes, strict=True)]
            output = output - offset
            return {
                "output": output,
                "train_loss": 0.5 * jnp.mean((targets - output) ** 2),
                "feature_kernel": jnp.mean(features**2, axis=(1, 2))[self._layers()],
                "gradient_kernel": jnp.mean(signals**2, axis=(1, 2))[self._layers()],
                "tangent_kernel": sum(squares) / (self.patterns * self.rate.astype(dtype)),
            }

        def step(weights: Weights, _: None) -> tuple[Weights, dict[str, Array]]:
            seen = measure(weights)
            slopes = jax.grad(loss, has_aux=True)(weights)[0]
            return Weights(*(w - r * s for w, r, s in zip(weights, rates, slopes, strict=True))), seen

        _, seen = jax.lax.scan(step, weights, None, length=self.steps + 1)
        finite = jnp.all(jnp.isfinite(seen["output"]), axis=1)
        return {**seen, "converged": jnp.cumprod(finite).astype(bool)}
