r"""Gradient flow on the likelihood of a spiked matrix-tensor model finds the signal past exponentially many bad
minima.

**Data.** A signal x* with |x*|² = N, seen through a noisy matrix, Y_ij = x*_i x*_j/√N + noise of variance Δ₂
(`matrix_noise`), and a noisy tensor of order p, T_{i1…ip} = √((p-1)!) N^{-(p-1)/2} x*_{i1}…x*_{ip} + noise of
variance Δ_p (`tensor_noise`).

**Learner.** dx/dt = -μ(t) x - ∇H on the sphere |x|² = N, with H the negative log-likelihood, from a random point of
overlap m₀ = x·x*/N (`initial_overlap`).

**Theory** (Sarao Mannelli et al. 2019a, 2019b). H has mean -N Q(m) and covariance N Q(x·y/N), Q(q) = q²/(2Δ₂) +
q^p/(pΔ_p). For N → ∞ the two-time equations of Langevin dynamics (see `langevin`) hold at temperature zero:

    ∂_t C(t,t') = -μ(t) C(t,t') + Q'(m(t)) m(t') + ∫₀^t R(t,s) Q''(C(t,s)) C(s,t') ds + ∫₀^{t'} Q'(C(t,s)) R(t',s) ds,
    ∂_t R(t,t') = -μ(t) R(t,t') + ∫_{t'}^t R(t,s) Q''(C(t,s)) R(s,t') ds,    R(t⁺,t) = 1,
    dm/dt = -μ(t) m(t) + Q'(m(t)) + ∫₀^t R(t,s) Q''(C(t,s)) m(s) ds,
    μ(t) = m Q'(m) + ∫₀^t R(t,s) [Q'(C(t,s)) + C(t,s) Q''(C(t,s))] ds.

Without a signal the flow ends among marginal minima, where μ = 2σ, σ² = Q''(1). Their Hessian is a random matrix of
edge 2σ minus the rank-one part θ x*x*ᵀ/N, θ = 1/Δ₂, of the signal. The signal's eigenvalue leaves the bulk if θ > σ,
hence up to

    1/Δ₂² - 1/Δ₂ = (p-1)/Δ_p    (`threshold`).

While m is small, it grows at the rate Λ(t) = θ + σ²/θ - μ(t) (`growth_rate`), which tends to (θ-σ)²/θ
(`escape_rate`): escaping from m₀ takes a time ln(1/m₀) θ/(θ-σ)².

**Simulation.** The flow itself, at finite N, from drawn noise: a dense tensor of independent normal entries, or a
diluted one. Every realisation is a pair with noise of opposite signs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.random_matrices.kac_rice import marginal_energy
from solvable.model import Control, Guard, Input, Model, Numerics, observable

from .._fields import (
    TWO_TIMES,
    disorder_field,
    initial_overlap_field,
    matrix_noise_field,
    order_field,
    tensor_noise_field,
    times_field,
    waiting_field,
)
from .._landscape import Covariance, check_dilution, check_waiting, draw_system, read_path, sample
from .._references import AFRAID, PASSED
from .._state_evolution import blind_overlap
from .._thresholds import gradient_flow, likelihood_message_passing

START = {"initial_overlap": 0.5, "times": [0.0, 0.5, 1.0, 2.0, 4.0]}  # in the studies that `solvable check` runs


class GradientFlow(Model):
    """Gradient flow in a spiked matrix-tensor model: two-time equations at temperature zero, closed threshold, finite systems.

    >>> import solvable as sv
    >>> outcome = sv.GradientFlow(matrix_noise=0.4, tensor_noise=1.0).theory()
    >>> round(float(outcome.threshold), 9), round(float(outcome.overlap[-1] - outcome.likelihood_passing), 2)
    (0.5, 0.0)
    """

    id = "gradient-flow"
    title = "Gradient flow among bad minima"
    family = "glassy"
    revision = 2
    sentence = "Gradient flow finds a spike in a matrix and a tensor past exponentially many spurious minima."
    method = "two-time equations at temperature zero; instability of marginal minima"
    numerics = Numerics(steps=400, tolerance=1e-3)
    accuracy = 1e-4
    batch_accuracy = 1e-9
    theory_seconds = 0.3
    theory_lanes = 4
    converges_along = "time"
    typical_sizes = (50, 100, 200)
    simulation_seconds = 0.7
    simulation_growth = 3.0
    check_study = (
        {"values": START, "over": {"matrix_noise": [0.3, 0.6]}, "sizes": [40, 80], "seeds": 48},
        {"values": START | {"order": 4}, "sizes": [20, 40], "seeds": 32},
    )
    references = (PASSED, AFRAID)

    matrix_noise: Control = matrix_noise_field(0.4, (0.3, 1.2))
    tensor_noise: Control = tensor_noise_field(1.0, (0.5, 4.0))
    initial_overlap: Control = initial_overlap_field()
    order: int = order_field()
    disorder: str = disorder_field()
    times: Input = times_field("flow")
    waiting: Input = waiting_field()

    dimensions_declared = TWO_TIMES
    main_declared = ("overlap", "energy", "threshold")
    observables_declared = (
        observable("overlap", "overlap with the signal, x·x*/N", symbol="m", dims=("time",), low=-1, high=1),
        observable("energy", "negative log-likelihood per dimension, H/N", symbol="E", dims=("time",)),
        observable("multiplier", "radial force, balanced by the constraint to the sphere", symbol=r"\mu", dims=("time",)),
        observable("growth_rate", "rate at which a small overlap grows", symbol=r"\Lambda", dims=("time",), simulated=False),
        observable("correlation", "overlap of the states at two times, x(t)·x(t_w)/N", symbol="C", dims=("time", "waiting"),
                   low=-1, high=1),
        observable("threshold", "matrix noise up to which the flow leaves marginal minima for the signal",
                   symbol=r"\Delta_2^*", low=0, high=1, simulated=False),
        observable("escape_rate", "rate at which a small overlap grows at long times, 0 beyond the threshold",
                   symbol=r"\Lambda_\infty", low=0, simulated=False),
        observable("threshold_energy", "energy of the marginal minima", symbol=r"E_\mathrm{th}", simulated=False),
        observable("likelihood_passing", "overlap that maximum-likelihood message passing reaches from a tiny one",
                   symbol=r"m_\mathrm{ML}", low=0, high=1, simulated=False),
    )  # fmt: skip
    guard = Guard(values={"times": [0.0, 0.5, 1.0, 2.0]}, size=40, seeds=12)

    def validate(self) -> None:
        check_waiting(self.times, self.waiting)
        check_dilution(self.disorder, self.order, self.tensor_noise)

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times), "waiting": np.asarray(self.waiting)}

    def transition(self, along: str) -> Array:
        """Positive where marginal minima are unstable towards the signal: θ² - σ²."""
        return 1 / self.matrix_noise**2 - 1 / self.matrix_noise - (self.order - 1) / self.tensor_noise

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        if (x, y) != ("tensor_noise", "matrix_noise"):
            return {}
        noise = np.asarray(values, float)
        return {
            "gradient flow": gradient_flow(self.order, noise),
            "maximum-likelihood message passing": likelihood_message_passing(self.order, noise),
        }

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def _covariance(self) -> Covariance:
        return Covariance(self.matrix_noise, self.tensor_noise, self.order)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        covariance, one = self._covariance, jnp.ones(())
        path = read_path(
            covariance, self.times, self.waiting, numerics.steps, tolerance=numerics.tolerance,
            temperature=0.0, overlap=self.initial_overlap,
        )  # fmt: skip
        theta, curvature = covariance.matrix, covariance.curvature(one)
        return {
            **path._asdict(),
            "growth_rate": theta + curvature / theta - path.multiplier,
            "threshold": gradient_flow(self.order, self.tensor_noise),
            "escape_rate": jnp.maximum(theta - jnp.sqrt(curvature), 0.0) ** 2 / theta,
            "threshold_energy": marginal_energy(covariance.value),
            "likelihood_passing": blind_overlap("likelihood", covariance),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        system_key, noise_key = jax.random.split(key)
        system = draw_system(system_key, size, self._covariance, self.initial_overlap, self.disorder, dtype)
        run = sample(
            noise_key, system, self.times, self.waiting, temperature=None,
            curvature=jnp.sqrt(self._covariance.curvature(jnp.ones(()))),
        )  # fmt: skip
        return run._asdict()
