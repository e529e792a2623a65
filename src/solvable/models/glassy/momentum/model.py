r"""Gradient descent, heavy ball and Nesterov's method in a rough landscape with a hidden signal, exact at any rate.

**Data.** A signal x* with |x*|² = N, seen through a noisy matrix (variance Δ₂, `matrix_noise`) and a noisy tensor of
order p (variance Δ_p, `tensor_noise`). Their negative log-likelihood has mean -N Q(m), m = x·x*/N, and covariance N
Q(x·y/N), Q(q) = q²/(2Δ₂) + q^p/(pΔ_p).

**Learner.** It minimises the loss L(x) = H(x) + (ω/4) N (|x|²/N - 1)², with ω the `ridge`, from a random point of
the sphere |x|² = N with overlap m₀ (`initial_overlap`). With F = -∇L, rate α and momentum β, the `algorithm` is

- `descent`: x_{t+1} = x_t + αF(x_t);
- `heavy_ball`: x_{t+1} = x_t + β(x_t - x_{t-1}) + αF(x_t), x_{-1} = x_0;
- `nesterov`: x_{t+1} = y_t + αF(y_t), y_{t+1} = x_{t+1} + t/(t+3) (x_{t+1} - x_t), y_0 = x_0.

**Theory** (after Sarao Mannelli and Urbani 2021). All are linear first-order methods: gradients are taken at z_t =
x_0 + Σ_{s<t} B_ts F_s with a triangular matrix B. For N → ∞, with C_ts = z_t·z_s/N and R_ts = ∂z_t/∂ξ_s,

    F_t = ξ_t + Σ_{u<t} Q''(C_tu) R_tu z_u - ω (C_tt - 1) z_t + Q'(m_t) x*,    ⟨ξ_t ξ_u⟩ = Q'(C_tu),

from which all scalar products follow row by row. Steps may have any size: there is no continuous-time limit.
At an iterate x_t the loss per dimension is -Q(m) - Σ_u Q'(x_t·z_u/N) ∂x_t/∂ξ_u + (ω/4)(|x_t|²/N - 1)².

**Simulation.** The methods themselves, at finite N, on drawn noise: a dense tensor of independent normal entries, or
a diluted one. Every realisation is a pair with noise of opposite signs.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.flows.two_time_steps import Kernel, Method, follow, gradient_descent, heavy_ball, nesterov
from solvable.model import Control, Guard, Model, Numerics, Reference, choice, control, dimension, observable

from .._fields import disorder_field, initial_overlap_field, matrix_noise_field, order_field, tensor_noise_field
from .._landscape import Covariance, check_dilution, draw_system

ALGORITHMS = ("descent", "heavy_ball", "nesterov")


class Momentum(Model):
    """Descent with momentum in a spiked matrix-tensor model: exact mean-field dynamics in discrete time, finite systems.

    >>> import solvable as sv
    >>> for algorithm in ("descent", "heavy_ball", "nesterov"):
    ...     print(algorithm, round(float(sv.Momentum(algorithm=algorithm).theory().loss[5]), 3))
    descent -1.161
    heavy_ball -1.846
    nesterov -1.832
    """

    id = "momentum"
    title = "Descent with momentum in a rough landscape"
    family = "glassy"
    revision = 2
    sentence = "Heavy ball and Nesterov's method are faster than gradient descent, but find the signal no more often."
    method = "exact discrete-time mean-field equations of linear first-order methods"
    accuracy = 1e-10
    batch_accuracy = 1e-10
    theory_seconds = 0.02
    theory_lanes = 16
    typical_sizes = (50, 100, 200)
    simulation_seconds = 1.0
    simulation_growth = 3.0
    check_study = (
        {
            "values": {"matrix_noise": 0.5, "initial_overlap": 0.5, "steps": 100, "every": 20},
            "over": {"algorithm": list(ALGORITHMS)},
            "sizes": [40, 80],
            "seeds": 32,
        },
    )
    references = (
        Reference(
            "saraomannelli2021momentum", "S. Sarao Mannelli and P. Urbani", "Analytical study of momentum-based acceleration "
            "methods in paradigmatic high-dimensional non-convex problems", 2021, "NeurIPS 34", arxiv="2102.11755"),
    )  # fmt: skip
    arms_declared = MappingProxyType(
        {
            "gradient descent": {"algorithm": "descent"},
            "heavy ball": {"algorithm": "heavy_ball"},
            "Nesterov": {"algorithm": "nesterov"},
        }
    )

    rate: Control = control(
        0.01, low=0.0, low_open=True, high=10.0, typical=(0.002, 0.03), scale="log", symbol=r"\alpha",
        meaning="learning rate")  # fmt: skip
    momentum: Control = control(
        0.9, low=0.0, high=1.0, typical=(0.0, 0.95), symbol=r"\beta",
        meaning="weight of the previous step in the next one of heavy ball")  # fmt: skip
    matrix_noise: Control = matrix_noise_field(1.0, (0.3, 1.5))
    tensor_noise: Control = tensor_noise_field(2 / 3, (0.5, 4.0))
    ridge: Control = control(
        10.0, low=0.0, low_open=True, high=1e4, typical=(5.0, 20.0), symbol=r"\omega",
        meaning="strength of the soft spherical constraint")  # fmt: skip
    initial_overlap: Control = initial_overlap_field()
    algorithm: str = choice("heavy_ball", options=ALGORITHMS, meaning="descent algorithm")
    order: int = order_field()
    disorder: str = disorder_field()
    steps: int = choice(200, low=1, high=2000, meaning="number of steps")
    every: int = choice(10, low=1, high=2000, meaning="steps between two measurements")

    dimensions_declared = (dimension("step", "step of the descent", symbol="t", kind="time"),)
    main_declared = ("loss", "overlap", "norm")
    observables_declared = (
        observable("loss", "loss per dimension of the iterate", symbol=r"\mathcal{L}", dims=("step",)),
        observable("gradient_loss", "loss per dimension where the gradient is taken (ahead of Nesterov's iterate)",
                   dims=("step",)),
        observable("norm", "squared norm of the iterate, |x|²/N", symbol="q", dims=("step",), low=0),
        observable("overlap", "overlap of the iterate with the signal, x·x*/N", symbol="m", dims=("step",)),
    )  # fmt: skip
    guard = Guard(values={"steps": 30, "every": 10}, size=40, seeds=12)

    def validate(self) -> None:
        check_dilution(self.disorder, self.order, self.tensor_noise)

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"step": np.arange(0, self.steps + 1, self.every)}

    @property
    def _covariance(self) -> Covariance:
        return Covariance(self.matrix_noise, self.tensor_noise, self.order)

    # --- theory -----------------------------------------------------------------------------------------------------

    def _method(self) -> Method:
        if self.algorithm == "descent":
            return gradient_descent(self.steps, self.rate)
        if self.algorithm == "heavy_ball":
            return heavy_ball(self.steps, self.rate, self.momentum)
        return nesterov(self.steps, self.rate)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        of, method = self._covariance, self._method()
        kernel = Kernel(of.value, of.slope, of.curvature)
        path = follow(kernel, method, ridge=self.ridge, overlap=self.initial_overlap)
        seen = path.at(method.iterate[:: self.every], kernel, self.ridge)
        ahead = path.energy[:: self.every]
        return {
            "loss": seen.energy,
            "gradient_loss": ahead,
            "norm": seen.norm,
            "overlap": seen.overlap,
            # the iterates diverge if the rate is too large
            "converged": jnp.all(jnp.isfinite(path.energy)),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        system = draw_system(key, size, self._covariance, self.initial_overlap, self.disorder, dtype)
        rate, momentum, ridge = (v.astype(dtype) for v in (self.rate, self.momentum, self.ridge))

        def stretch(x: Array) -> Array:
            return jnp.sum(x**2, axis=1, keepdims=True) / size - 1

        def force(x: Array) -> Array:
            return system.force(x, 1.0) - ridge * stretch(x) * x

        def loss(x: Array) -> Array:
            return jnp.mean(system.measure(x, 1.0)[0] + ridge / 4 * stretch(x)[:, 0] ** 2)

        def step(state: tuple[Array, Array, Array], number: Array) -> tuple[tuple[Array, Array, Array], None]:
            """Advance the iterate, the previous one and the point at which the gradient is taken."""
            x, before, ahead = state
            if self.algorithm == "descent":
                new = x + rate * force(x)
                return (new, x, new), None
            if self.algorithm == "heavy_ball":
                new = x + momentum * (x - before) + rate * force(x)
                return (new, x, new), None
            new = ahead + rate * force(ahead)
            push = number.astype(dtype) / (number + 3).astype(dtype)
            return (new, x, new + push * (new - x)), None

        def measured(state: tuple[Array, Array, Array], number: Array) -> tuple[Any, tuple[Array, ...]]:
            x, _, ahead = state
            seen = loss(x), loss(ahead), jnp.mean(stretch(x)) + 1, jnp.mean(x @ system.signal) / size
            return jax.lax.scan(step, state, number + jnp.arange(self.every))[0], seen

        _, path = jax.lax.scan(measured, (system.start,) * 3, jnp.asarray(self.coordinates()["step"]))
        return dict(zip(("loss", "gradient_loss", "norm", "overlap"), path, strict=True))
