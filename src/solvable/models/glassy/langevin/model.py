r"""Langevin dynamics samples the posterior of a signal observed through a noisy matrix and a noisy tensor.

**Data.** A signal x* with |x*|² = N. We observe a matrix, Y_ij = x*_i x*_j/√N + noise of variance Δ₂
(`matrix_noise`), and a tensor of order p, T_{i1…ip} = √((p-1)!) N^{-(p-1)/2} x*_{i1}…x*_{ip} + noise of variance Δ_p
(`tensor_noise`).

**Sampler.** With H(x) the negative log-likelihood of a guess on the sphere |x|² = N, dx/dt = -μ(t) x - ∇H + η,
⟨η(t)η(t')⟩ = 2Tδ(t-t'), where μ keeps x on the sphere. At T = 1 it samples the posterior: no estimator does better
than the mean of its samples at long times. It starts at random with overlap m₀ = x·x*/N (`initial_overlap`). With
`protocol="annealed"` the tensor is divided by 1 + (c/Δ_p) e^{-t/τ}: the matrix guides the sampler first.

**Theory** (Sarao Mannelli et al. 2018). H has mean -N Q(m) and covariance N Q(x·y/N), Q(q) = q²/(2Δ₂) + q^p/(pΔ_p).
For N → ∞ the overlap m(t), the correlation C(t, t') = x(t)·x(t')/N and the response R(t, t') obey closed equations:
for t > t',

    ∂_t C(t,t') = -μ(t) C(t,t') + Q'(m(t)) m(t') + ∫₀^t R(t,s) Q''(C(t,s)) C(s,t') ds + ∫₀^{t'} Q'(C(t,s)) R(t',s) ds,
    ∂_t R(t,t') = -μ(t) R(t,t') + ∫_{t'}^t R(t,s) Q''(C(t,s)) R(s,t') ds,    R(t⁺,t) = 1,
    dm/dt = -μ(t) m(t) + Q'(m(t)) + ∫₀^t R(t,s) Q''(C(t,s)) m(s) ds,
    μ(t) = T + m Q'(m) + ∫₀^t R(t,s) [Q'(C(t,s)) + C(t,s) Q''(C(t,s))] ds,

and the energy is E = -Q(m) - ∫₀^t R(t,s) Q'(C(t,s)) ds. Where the tensor is annealed, the tensor parts of Q' and
Q'' between t and s are divided by the factors of both times, that of the signal's force by one. Values are NaN from the
time at which the estimated error exceeds the tolerance.

Glassy states at overlap zero trap the sampler: in them C has a plateau q, the largest root of (1-q)² Q''(q) = T². The
signal grows only if 1/Δ₂ > T/(1-q), hence up to a `threshold`, Δ₂ = √(Δ₃/2) at p = 3, T = 1, while message passing, m
← Q'(m)/(1 + Q'(m)), finds it up to Δ₂ = 1.

**Simulation.** The dynamics itself, at finite N, from drawn noise: a dense tensor of independent normal entries, or a
diluted one. Every realisation is a pair with noise of opposite signs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.model import Control, FirstView, Guard, Input, Model, Numerics, Reference, choice, control, observable

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
from .._references import MARVELS
from .._state_evolution import blind_overlap
from .._thresholds import plateau, sampling

START = {"initial_overlap": 0.5, "times": [0.0, 0.5, 1.0, 2.0, 4.0]}  # in the studies that `solvable check` runs


class Langevin(Model):
    """Langevin dynamics in the posterior of a spiked matrix-tensor model: two-time equations, thresholds, finite systems.

    >>> import solvable as sv
    >>> outcome = sv.Langevin(matrix_noise=0.4, tensor_noise=1.0).theory()
    >>> round(float(outcome.threshold), 4), round(float(outcome.message_passing), 4)
    (0.7071, 0.6861)
    """

    id = "langevin"
    title = "Posterior sampling by Langevin dynamics"
    family = "glassy"
    revision = 2
    sentence = "Langevin dynamics needs more signal than message passing to find a spike in a matrix and a tensor."
    method = "two-time equations of correlation, response and overlap; marginal states"
    numerics = Numerics(steps=400, tolerance=1e-3)
    accuracy = 1e-4
    batch_accuracy = 1e-9
    theory_seconds = 0.3
    theory_lanes = 4
    converges_along = "time"
    typical_sizes = (50, 100, 200)
    simulation_seconds = 0.9
    simulation_growth = 3.0
    first_view = FirstView(seeds=100)  # the overlap of a random start fluctuates widely
    check_study = (
        {"values": START, "over": {"matrix_noise": [0.3, 0.6]}, "sizes": [40, 80], "seeds": 48},
        {
            "values": START | {"protocol": "annealed", "annealing": 4.0, "annealing_time": 1.0},
            "sizes": [40, 80],
            "seeds": 32,
        },
    )
    references = (
        MARVELS,
        Reference(
            "cugliandolo1993analytical", "L. F. Cugliandolo and J. Kurchan",
            "Analytical solution of the off-equilibrium dynamics "
            "of a long-range spin-glass model", 1993, "Physical Review Letters 71", arxiv="cond-mat/9303036"),
    )  # fmt: skip

    matrix_noise: Control = matrix_noise_field(0.4, (0.3, 1.2))
    tensor_noise: Control = tensor_noise_field(1.0, (0.5, 4.0))
    temperature: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.3, 2.0), symbol="T",
        meaning="temperature of the sampler; at 1 it samples the posterior")  # fmt: skip
    initial_overlap: Control = initial_overlap_field()
    annealing: Control = control(
        100.0, low=0.0, high=1e6, typical=(1.0, 100.0), scale="log", symbol="c",
        meaning="how much annealing weakens the tensor at the start: its factor is 1/(1 + c/Δ_p)",
        when={"protocol": "annealed"})  # fmt: skip
    annealing_time: Control = control(
        2.0, low=0.0, low_open=True, high=1e6, typical=(0.5, 4.0), symbol=r"\tau",
        meaning="time scale on which this weakening decays")  # fmt: skip
    order: int = order_field()
    protocol: str = choice(
        "constant", options=("constant", "annealed"),
        meaning="whether the tensor's weight is constant or grows in time")  # fmt: skip
    disorder: str = disorder_field()
    times: Input = times_field("sampler")
    waiting: Input = waiting_field()

    dimensions_declared = TWO_TIMES
    main_declared = ("overlap", "energy", "threshold")
    observables_declared = (
        observable("overlap", "overlap with the signal, x·x*/N", symbol="m", dims=("time",), low=-1, high=1),
        observable("energy", "negative log-likelihood per dimension, H/N, with the tensor's weight at that time", symbol="E",
                   dims=("time",)),
        observable("multiplier", "multiplier of the sphere: temperature plus radial force", symbol=r"\mu", dims=("time",)),
        observable("correlation", "overlap of the states at two times, x(t)·x(t_w)/N", symbol="C", dims=("time", "waiting"),
                   low=-1, high=1),
        observable("threshold", "matrix noise up to which the sampler leaves glassy states for the signal", symbol=r"\Delta_2^*",
                   low=0, high=1, simulated=False),
        observable("plateau", "overlap of a glassy state with itself at later times", symbol="q", low=0, high=1, simulated=False),
        observable("message_passing", "overlap that message passing reaches from a tiny one", symbol=r"m_\mathrm{AMP}", low=0,
                   high=1, simulated=False),
    )  # fmt: skip
    guard = Guard(values={"times": [0.0, 0.5, 1.0, 2.0]}, size=40, seeds=12, points=8)

    def validate(self) -> None:
        check_waiting(self.times, self.waiting)
        check_dilution(self.disorder, self.order, self.tensor_noise, self.temperature)

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times), "waiting": np.asarray(self.waiting)}

    def transition(self, along: str) -> Array:
        """Positive where the sampler leaves the glassy states, that is where matrix noise is below the threshold."""
        q = jnp.vectorize(lambda a, b, t: plateau(Covariance(a, b, self.order), t))(
            self.matrix_noise, self.tensor_noise, self.temperature
        )
        return 1 / self.matrix_noise - self.temperature / (1 - q)

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        if (x, y) != ("tensor_noise", "matrix_noise"):
            return {}
        line = jax.vmap(lambda noise: sampling(self.order, noise, jnp.asarray(float(self.temperature))))
        return {
            "Langevin threshold": np.asarray(line(jnp.asarray(values, float))),
            "message passing": np.ones(len(values)),
        }

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def _covariance(self) -> Covariance:
        return Covariance(self.matrix_noise, self.tensor_noise, self.order)

    def _weight(self, t: Array) -> Array:
        """The factor of the tensor at a time."""
        if self.protocol == "constant":
            return jnp.ones_like(t)
        c, tau = ((x / y).astype(t.dtype) for x, y in ((self.annealing, self.tensor_noise), (self.annealing_time, 1.0)))
        return 1 / (1 + c * jnp.exp(-t / tau))

    def point(self, numerics: Numerics) -> dict[str, Array]:
        annealed = self.protocol == "annealed"
        path = read_path(
            self._covariance, self.times, self.waiting, numerics.steps, tolerance=numerics.tolerance,
            temperature=self.temperature, overlap=self.initial_overlap,
            couplings=(lambda t: (jnp.ones_like(t), self._weight(t))) if annealed else None,
        )  # fmt: skip
        return {
            **path._asdict(),
            "threshold": sampling(self.order, self.tensor_noise, self.temperature),
            "plateau": plateau(self._covariance, self.temperature),
            "message_passing": blind_overlap("bayes", self._covariance),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        system_key, noise_key = jax.random.split(key)
        system = draw_system(system_key, size, self._covariance, self.initial_overlap, self.disorder, dtype)
        run = sample(
            noise_key, system, self.times, self.waiting, temperature=self.temperature, tensor=self._weight,
            curvature=jnp.sqrt(self._covariance.curvature(jnp.ones(()))),
        )  # fmt: skip
        return run._asdict()
