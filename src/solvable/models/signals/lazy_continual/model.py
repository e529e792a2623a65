r"""Two tasks in succession on a wide network, from lazy to rich training: forgetting, richness and similarity.

**Data.** Two tasks of P samples in D dimensions, fixed by `instance` (or given): inputs x of squared length about 1,
labels y = x·β (`linear`) or |x·β| (`absolute`). The teachers have overlap s (`similarity`): β₂ = sβ₁ + √(1 − s²) v, where
v ⊥ β₁ and |β₁|² = |v|² = D.

**Learner.** f(x) = a·φ(Wx)/(γ₀N), N hidden units, φ the identity or ReLU; W and a start as N(0, 1). Gradient descent with
rate ηγ₀²N on the mean of Δ²/2, Δ = y − f, over the current task: T steps on task 1, then T on task 2. The `richness` γ₀
sets how far features move, at every width: lazy as γ₀ → 0. In the standard parametrisation γ₀ ∝ 1/√N, so that width makes
a network lazier. Every hidden unit starts with a partner of opposite a, so that f = 0 at the start.

**Theory** (set-up after Graldi et al. 2025; equations derived here). N → ∞ at given data.

- Linear units: with g = Σ Δx/P over the current task, a step of β = Wᵀa/(γ₀N), K = WᵀW/N and k = |a|²/N is exactly

      β′ = β + η(K + k)g + η²γ₀²(β·g)g,
      K′ = K + ηγ₀²(βgᵀ + gβᵀ) + η²γ₀²k ggᵀ,
      k′ = k + 2ηγ₀²β·g + η²γ₀² gᵀKg.

- ReLU: units become independent particles that move in the common field of the errors. With their fields h_j = w·x_j at
  all samples of both tasks and the Gram matrix G of the inputs,

      a′ = a + ηγ₀ Σ_i Δ_i φ(h_i)/P,    h_j′ = h_j + ηγ₀ Σ_i Δ_i a φ′(h_i) G_ij/P,    f_j = <aφ(h_j)>/γ₀,

  sums over the current task. The average is over low-discrepancy points in two independent sets, each followed by itself:
  the mean of both is the result, half their difference its error (`residual`). Where that exceeds half of the stated
  accuracy, 0.03, the result is NaN. Derivatives with respect to controls are NaN.

`forgetting` is the increase of the loss of task 1 from the switch to the end, over its value at the start of training.

**Simulation.** The network itself, at width N = size (odd sizes are rounded up), all steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

BATCHES = 2
"""Independent sets of particles; their spread is the error of the mean."""
MARGIN = 2.0
"""The stated accuracy of particles, over the largest estimated error with which a result is returned."""


def _drawn(model: Any) -> dict[str, np.ndarray]:
    """Inputs and teachers of an instance."""
    rng, D, P = np.random.default_rng(model.instance), model.input_dimension, model.examples
    first, second = rng.normal(size=(2, P, D)) / math.sqrt(D)
    teacher, change = np.linalg.qr(rng.normal(size=(D, 2)))[0].T * math.sqrt(D)
    return {"first": first, "second": second, "teacher": teacher, "change": change}


@lru_cache(maxsize=4)
def _normal_points(number: int, dimension: int) -> np.ndarray:
    """Low-discrepancy points of a standard normal law, in `BATCHES` independent scramblings: (batch, point, dimension)."""
    from scipy.stats import norm, qmc

    uniform = np.stack([qmc.Sobol(dimension, scramble=True, rng=seed).random(number) for seed in range(BATCHES)])
    return norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12))


def _two_stages(
    move: Callable[[Any, int], Any], measure: Callable[[Any], Any], state: Any, points: int, each: int
) -> tuple[Any, Any]:
    """`measure` at the start and after every `each` steps of `move(state, task)`, first of task 0, then of task 1.

    Returns also the measurements, with the start first.
    """
    found = [jax.tree.map(lambda x: x[None], measure(state))]
    for task in (0, 1):

        def several(state: Any, _: None, task: int = task) -> tuple[Any, Any]:
            state = jax.lax.fori_loop(0, each, lambda _, s: move(s, task), state)
            return state, measure(state)

        state, path = jax.lax.scan(several, state, None, length=points)
        found.append(path)
    return state, jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)


class LazyContinual(Model):
    """A wide network learns two tasks one after the other: forgetting from lazy to rich training.

    >>> import solvable as sv
    >>> lost = sv.LazyContinual(activation="linear", similarity=[0.0, 0.9]).theory().forgetting
    >>> [round(float(x), 3) for x in lost]
    [0.467, 0.052]
    """

    id = "lazy-continual"
    title = "Forgetting from lazy to rich"
    family = "signals"
    sentence = "A wide network learns two tasks in succession: what it forgets, from lazy to rich training."
    method = "closed recursion (linear), mean field of particles (ReLU)"
    numerics = Numerics(particles=16384)
    theory_seconds = 0.5
    theory_lanes = 8
    typical_sizes = (200, 800)
    simulation_seconds = 0.3
    simulation_growth = 1.0
    first_view = FirstView(seeds=32)
    guard = Guard(
        values={"activation": "linear", "input_dimension": 12, "examples": 6, "steps": 100, "points": 10},
        size=200,
        seeds=8,
    )
    references = (
        Reference(
            "graldi2025lazy", "J. Graldi, A. Breccia, G. Lanzillotta, T. Hofmann and L. Noci", "The Importance of Being Lazy: "
            "Scaling Limits of Continual Learning", 2025, "ICML", arxiv="2506.16884"),
    )  # fmt: skip
    dimensions_declared = (
        dimension("step", "steps of gradient descent", symbol="t", kind="time"),
        dimension("task", "task"),
    )
    main_declared = ("forgetting", "final_loss", "train_loss", "displacement")
    observables_declared = (
        observable("forgetting", "increase of the loss of task 1 from the switch to the end, over its initial loss",
                   symbol=r"\mathcal{F}"),
        observable("final_loss", "mean loss of both tasks at the end, over that at the start"),
        observable("train_loss", "mean of Δ²/2 over the samples of a task", symbol=r"\mathcal{L}", dims=("step", "task"), low=0),
        observable("displacement", "change of the feature kernel of all samples, ‖Φ − Φ(0)‖/‖Φ(0)‖", dims=("step",), low=0),
    )  # fmt: skip
    check_study = (
        {"values": {"activation": "linear"}, "over": {"richness": [0.1, 1.0, 3.0]}, "sizes": (250, 1000), "seeds": 12},
        {"values": {"activation": "relu"}, "over": {"richness": [0.3, 3.0]}, "sizes": (500, 2000), "seeds": 8},
    )

    richness: Control = control(
        1.0, low=0.001, high=100.0, typical=(0.05, 5.0), scale="log", symbol=r"\gamma_0", meaning="how far features move: lazy "
        "as it tends to zero")  # fmt: skip
    similarity: Control = control(
        0.5, low=-1.0, high=1.0, typical=(0.0, 1.0), symbol="s", meaning="overlap of the teachers of both tasks")  # fmt: skip
    rate: Control = control(
        0.3, low=0.0, low_open=True, high=20.0, typical=(0.05, 0.3), symbol=r"\eta", meaning="learning rate, in units of the "
        "inverse width and squared richness")  # fmt: skip
    first_inputs: Input = input(
        lambda m: _drawn(m)["first"], dims=("examples", "input_dimension"), symbol="X_1",
        meaning="inputs of task 1")  # fmt: skip
    second_inputs: Input = input(
        lambda m: _drawn(m)["second"], dims=("examples", "input_dimension"), symbol="X_2",
        meaning="inputs of task 2")  # fmt: skip
    teacher: Input = input(
        lambda m: _drawn(m)["teacher"], dims=("input_dimension",), symbol=r"\beta_1", meaning="teacher of task 1")  # fmt: skip
    change: Input = input(
        lambda m: _drawn(m)["change"], dims=("input_dimension",), symbol="v",
        meaning="teacher of task 2 at similarity 0")  # fmt: skip
    activation: str = choice(
        "linear", options=("linear", "relu"), symbol=r"\varphi", meaning="activation of the hidden units"
    )
    labels: str = choice("linear", options=("linear", "absolute"), meaning="labels: x·β, or its absolute value")
    input_dimension: int = choice(20, low=2, high=1000, symbol="D", meaning="dimensions of the inputs")
    examples: int = choice(10, low=1, high=1000, symbol="P", meaning="samples of each task")
    steps: int = choice(150, low=1, high=100_000, symbol="T", meaning="steps on each task")
    points: int = choice(
        5, low=1, high=1000, meaning="measurements on each task, equally spaced; they divide the steps"
    )
    instance: int = choice(0, low=0, high=10**9, meaning="number of the drawn data")

    def validate(self) -> None:
        if self.steps % self.points:
            raise InvalidValue(f"points = {self.points} does not divide steps = {self.steps}.")

    @property
    def stated_accuracy(self) -> float:
        """Particles stand for an average over the start of ReLU networks."""
        return 1e-8 if self.activation == "linear" else 0.03

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"step": self.steps // self.points * np.arange(2 * self.points + 1), "task": np.array([1, 2])}

    def _tasks(self, dtype: Any = float) -> tuple[Array, Array]:
        """Inputs (task, sample, dimension) and labels (task, sample)."""
        second = self.similarity * self.teacher + jnp.sqrt(jnp.maximum(1 - self.similarity**2, 0.0)) * self.change
        X = jnp.stack([self.first_inputs, self.second_inputs])
        y = jnp.einsum("kpd,kd->kp", X, jnp.stack([self.teacher, second]))
        return X.astype(dtype), (jnp.abs(y) if self.labels == "absolute" else y).astype(dtype)

    def _observables(self, path: tuple[Array, Array]) -> dict[str, Array]:
        losses, displacement = (p.astype(float) for p in path)
        begin, switch, end = losses[0], losses[self.points], losses[-1]
        # gradient descent with too large a rate diverges; far beyond the start it is no answer
        fine = jnp.all(jnp.isfinite(losses)) & (jnp.max(losses) < 1e6 * jnp.max(begin))
        return {
            "forgetting": (end[0] - switch[0]) / begin[0],
            "final_loss": jnp.sum(end) / jnp.sum(begin),
            "train_loss": losses,
            "displacement": displacement,
            "converged": fine,
        }

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        if self.activation == "linear":
            return self._linear() | {"residual": jnp.zeros(())}
        drawn = jnp.asarray(_normal_points(numerics.particles // (2 * BATCHES), self.input_dimension + 1))
        batches = jax.vmap(self._particles)(drawn)
        fine = jnp.all(batches.pop("converged"))
        found = {name: jnp.mean(value, axis=0) for name, value in batches.items()}
        errors = [jnp.std(v, axis=0, ddof=1) / math.sqrt(BATCHES) / (1 + jnp.abs(found[n])) for n, v in batches.items()]
        error = jnp.max(jnp.stack([jnp.max(e) for e in errors]))
        fine = fine & (error <= self.stated_accuracy / MARGIN)
        return {n: _without_gradient(v) for n, v in found.items()} | {
            "converged": fine,
            "residual": jax.lax.stop_gradient(error),
        }

    def _linear(self) -> dict[str, Array]:
        X, y = self._tasks()
        eta, g2, D, P = self.rate, self.richness**2, self.input_dimension, self.examples
        every = X.reshape(-1, D)

        def move(state: tuple[Array, Array, Array], task: int) -> tuple[Array, Array, Array]:
            beta, K, k = state
            g = (y[task] - X[task] @ beta) @ X[task] / P
            along, turned = beta @ g, jnp.outer(beta, g)
            return (
                beta + eta * (K @ g + k * g) + eta**2 * g2 * along * g,
                K + eta * g2 * (turned + turned.T) + eta**2 * g2 * k * jnp.outer(g, g),
                k + 2 * eta * g2 * along + eta**2 * g2 * (g @ K @ g),
            )

        def measure(state: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            beta, K, _ = state
            losses = 0.5 * jnp.mean((y - X @ beta) ** 2, axis=1)
            moved = every @ (K - jnp.eye(D)) @ every.T
            return losses, _norm(moved) / _norm(every @ every.T)

        start = (jnp.zeros(D), jnp.eye(D), jnp.ones(()))
        return self._observables(_two_stages(move, measure, start, self.points, self.steps // self.points)[1])

    def _particles(self, drawn: Array) -> dict[str, Array]:
        """The observables of particles with these normal numbers (point, 1 + dimension), each with its mirror image."""
        X, y = self._tasks()
        gamma, P, D = self.richness, self.examples, self.input_dimension
        every = X.reshape(-1, D)
        gram = every @ every.T
        a, h = jnp.concatenate([drawn[:, 0], -drawn[:, 0]]), jnp.tile(drawn[:, 1:] @ every.T, (2, 1))
        active = [slice(0, P), slice(P, 2 * P)]

        def outputs(a: Array, h: Array) -> Array:
            return a @ jax.nn.relu(h) / (gamma * a.shape[0])

        def move(state: tuple[Array, Array], task: int) -> tuple[Array, Array]:
            a, h = state
            here = h[:, active[task]]
            errors = (y[task] - outputs(a, here)) * (self.rate * gamma / P)
            pull = a[:, None] * (here > 0).astype(float) * errors[None, :]
            return a + jax.nn.relu(here) @ errors, h + pull @ gram[active[task]]

        def kernel(h: Array) -> Array:
            return jax.nn.relu(h).T @ jax.nn.relu(h) / h.shape[0]

        first = kernel(h)

        def measure(state: tuple[Array, Array]) -> tuple[Array, Array]:
            losses = 0.5 * jnp.mean((y - outputs(*state).reshape(2, P)) ** 2, axis=1)
            return losses, _norm(kernel(state[1]) - first) / _norm(first)

        path = _two_stages(move, measure, (a, h), self.points, self.steps // self.points)[1]
        return self._observables(path)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        X, y = self._tasks(dtype)
        half, gamma, D = (size + 1) // 2, self.richness.astype(dtype), self.input_dimension
        width, phi = 2 * half, (lambda h: h) if self.activation == "linear" else jax.nn.relu
        step = self.rate.astype(dtype) * gamma**2 * width
        to_first, to_second = jax.random.split(key)
        W, a = jax.random.normal(to_first, (half, D), dtype), jax.random.normal(to_second, (half,), dtype)
        start = jnp.concatenate([W, W]), jnp.concatenate([a, -a])

        def loss(weights: tuple[Array, Array], task: int) -> Array:
            W, a = weights
            return 0.5 * jnp.mean((y[task] - phi(X[task] @ W.T) @ a / (gamma * width)) ** 2)

        def move(weights: tuple[Array, Array], task: int) -> tuple[Array, Array]:
            W, a = weights
            slope = jax.grad(loss)(weights, task)
            return W - step * slope[0], a - step * slope[1]

        def kernel(W: Array) -> Array:
            features = phi(X.reshape(-1, D) @ W.T)
            return features @ features.T / width

        first = kernel(start[0])

        def measure(weights: tuple[Array, Array]) -> tuple[Array, Array]:
            change = _norm(kernel(weights[0]) - first) / _norm(first)
            return jnp.stack([loss(weights, 0), loss(weights, 1)]), change

        return self._observables(_two_stages(move, measure, start, self.points, self.steps // self.points)[1])


@jax.custom_jvp
def _without_gradient(x: Array) -> Array:
    """The value itself, with NaN as derivative: particles miss what a ReLU's jump in slope contributes."""
    return x


@_without_gradient.defjvp
def _nan_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return primals[0], tangents[0] * jnp.nan


def _norm(matrix: Array) -> Array:
    """The Frobenius norm, with a gradient of zero at zero."""
    square = jnp.sum(matrix**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
