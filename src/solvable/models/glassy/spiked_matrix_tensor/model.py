r"""A direction hidden in a noisy matrix and a noisy tensor: what message passing finds, and what could be found.

**Data.** A signal x* on the sphere |x*|² = N. We observe Y_ij = x*_i x*_j/√N + noise of variance Δ₂ (`matrix_noise`) for
i < j, and T_{i₁…i_p} = √((p−1)!) x*_{i₁}⋯x*_{i_p}/N^{(p−1)/2} + noise of variance Δ_p (`tensor_noise`) for i₁ < … < i_p. The
negative log-posterior of x is, up to a constant, a landscape on the sphere,

    H(x) = −N Q(m) + Gaussian noise of covariance N Q(x·y/N),   m = x·x*/N,   Q(q) = q²/(2Δ₂) + q^p/(pΔ_p).

**Learner.** Approximate message passing from an estimate of overlap m₀ (`initial_overlap`),

    B^k = −∇H(x^k) − Q″(x^k·x^{k−1}/N) χ^k x^{k−1},

- `bayes`: x^{k+1} = B^k/(1+A), χ^{k+1} = 1/(1+A) with A = Q′(|x^k|²/N): the posterior mean, from a start with |x⁰|²/N = m₀;
- `likelihood`: x^{k+1} = √N B^k/|B^k|, χ^{k+1} = √N/|B^k|: the minimum of H, from a start on the sphere.

**Theory** (Sarao Mannelli et al. 2018, 2019). State evolution of the overlap m_k, and of the energy H(x^k)/N, for which the
overlap C_k of successive estimates is tracked too (ν² = Q′(1) + Q′(m)² for the likelihood, ν = 1 + Q′(m) for Bayes):

    m_{k+1} = Q′(m_k)/ν_k,      C_{k+1} = [Q′(m_k)Q′(m_{k−1}) + Q′(C_k)]/(ν_k ν_{k−1}),      e_k = −Q(m_k) − Q′(C_k)/ν_{k−1}.

The overlap of the exact posterior is the highest maximum of Φ(m) = ½ln(1−m) + ½m + ½Q(m), whose maxima are the fixed points of
the Bayes-optimal iteration. There are three phases: *impossible* (Φ is highest at zero), *hard* (a maximum is higher than
the one that iterations from m = 0⁺ reach), *easy*. The mean number of minima of H at an overlap m is e^{NΣ(m)}
(`methods.random_matrices.kac_rice`); Σ vanishes at the fixed point of the likelihood, which is a single
minimum. Thresholds of other algorithms are in `_thresholds`.

**Observations.** At p = 3 and Δ_p = 1, as Δ₂ falls, these succeed one after the other: the posterior mean and Bayes-optimal
message passing at 1, sampling by Langevin dynamics at 0.707, maximum-likelihood message passing at 0.618, gradient flow at
0.5. Down to 0.406 there are exponentially many minima without overlap (0.383 if those that point away from the signal are
counted as well): gradient flow succeeds in spite of them.

**Simulation.** H itself with dense Gaussian arrays of N² and N^p entries, and its gradient by automatic differentiation.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import choice, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.message_passing import iterate, normalised
from solvable.methods.flows.descent import on_sphere
from solvable.methods.random_matrices.kac_rice import complexity
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

from .. import _thresholds
from .._fields import initial_overlap_field, matrix_noise_field, order_field, tensor_noise_field
from .._landscape import Covariance
from .._references import AFRAID, MARVELS, PASSED, THRESHOLDS
from .._state_evolution import LEARNERS, FixedPoints, fixed_points, free_entropy, gain, optimal, reached, step

ENTRIES = 2**28  # largest dense tensor: one gigabyte in float32


class SpikedMatrixTensor(Model):
    """Bayes-optimal or maximum-likelihood message passing for a spike in a matrix and a tensor, and the landscape's minima.

    >>> import solvable as sv
    >>> at = sv.SpikedMatrixTensor(matrix_noise=[0.4, 0.9, 1.1], initial_overlap=0.0).theory()
    >>> [round(float(m), 6) for m in at.final_overlap], [int(n) for n in at.phase]
    ([0.686141, 0.282376, 0.0], [2, 2, 0])
    """

    id = "spiked-matrix-tensor"
    title = "A spike in a matrix and a tensor"
    family = "glassy"
    sentence = (
        "A direction hidden in a noisy matrix and a noisy tensor: message passing, phases from easy to impossible, "
        "and how many spurious minima there are."
    )
    method = "state evolution, free entropy, and Kac–Rice counts of minima, in closed form"
    numerics = Numerics(bisections=60)
    runs = "map"  # a single tensor of the largest size fills the memory
    typical_sizes = (50, 100, 200)
    theory_seconds = 1e-3
    simulation_seconds = 0.1
    simulation_growth = 3.0
    first_view = FirstView(seeds=200)
    guard = Guard(
        values={"latitudes": [-0.5, 0.0, 0.5], "iterations": 6},
        simulated_values={"matrix_noise": 0.25, "initial_overlap": 0.5},
        size=60,
        seeds=16,
    )
    # strong signals: elsewhere the rare realisations that miss the signal require larger sizes
    check_study = (
        {"over": {"matrix_noise": [0.2, 0.3]}, "values": {"initial_overlap": 0.5, "iterations": 8}, "sizes": [60, 120],
         "seeds": 64},
        {"over": {"matrix_noise": [0.2, 0.3]}, "values": {"learner": "likelihood", "initial_overlap": 0.5, "iterations": 8},
         "sizes": [60, 120], "seeds": 96},
        {"over": {"learner": list(LEARNERS)}, "values": {"order": 4, "matrix_noise": 0.12, "initial_overlap": 0.5,
         "iterations": 8}, "sizes": [24, 48], "seeds": 48},
    )  # fmt: skip
    references = (MARVELS, PASSED, AFRAID, THRESHOLDS)

    matrix_noise: Control = matrix_noise_field(0.5, (0.1, 2.0), low=1e-3, high=1e6)
    tensor_noise: Control = tensor_noise_field(1.0, (0.2, 4.0), low=1e-3, high=1e6)
    initial_overlap: Control = initial_overlap_field(
        0.2, (0.0, 1.0), "overlap of the first estimate with the signal; for fixed points, 0 is the limit from above",
        reaches_one=True)  # fmt: skip
    order: int = order_field(high=12)
    learner: str = choice(
        "bayes", options=LEARNERS,
        meaning="message passing for the posterior mean, or for the maximum of the likelihood")  # fmt: skip
    iterations: int = choice(12, high=10_000, symbol="K", meaning="number of iterations")
    latitudes: Input = input(
        np.linspace(-0.95, 0.95, 39), dims=("latitude",), low=-1 + 1e-9, high=1 - 1e-9, symbol="m",
        meaning="overlaps with the signal at which stationary points are counted")  # fmt: skip

    dimensions_declared = (
        dimension("iteration", "iterations of message passing", symbol="k", kind="time"),
        dimension("latitude", "overlap with the signal", symbol="m", kind="site"),
    )
    main_declared = ("overlap", "mse", "final_overlap", "optimal_overlap")
    observables_declared = (
        observable("final_overlap", "overlap to which state evolution converges", symbol=r"m_\infty", low=0, high=1,
                   simulated=False),
        observable("informed_overlap", "highest fixed point, reached from the signal itself", symbol="m_+", low=0, high=1,
                   simulated=False),
        observable("optimal_overlap", "overlap of the exact posterior mean with the signal", symbol="m^*", low=0, high=1,
                   simulated=False),
        observable("phase", "0 where nothing can be known, 1 where message passing from zero overlap does not reach the "
                   "optimum, 2 where it does", low=0, high=2, simulated=False),
        observable("free_entropy", "free entropy per dimension at the fixed point of state evolution, zero without overlap",
                   symbol=r"\Phi", simulated=False, when={"learner": "bayes"}),
        observable("spurious", "complexity of minima without overlap: exponentially many where it is positive",
                   symbol=r"\Sigma(0)", simulated=False),
        observable("overlap", "overlap x·x*/N after each iteration", symbol="m_k", dims=("iteration",), low=-1, high=1),
        observable("mse", "squared distance between estimate and signal per dimension", dims=("iteration",), low=0, high=4),
        observable("energy", "negative log-posterior per dimension, H(x)/N", symbol="e_k", dims=("iteration",)),
        observable("minima", "annealed complexity of minima at given overlap", symbol=r"\Sigma(m)", dims=("latitude",),
                   simulated=False),
        observable("critical_points", "annealed complexity of stationary points of any index", symbol=r"\Sigma_c(m)",
                   dims=("latitude",), simulated=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"iteration": np.arange(self.iterations + 1), "latitude": np.asarray(self.latitudes)}

    def transition(self, along: str) -> Array:
        """Positive where message passing leaves m = 0."""
        return gain(self.learner, self._covariance, jnp.zeros_like(self.matrix_noise))

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        """Thresholds in the plane of both noises: of information and Bayes, or of the likelihood and its landscape."""
        if (x, y) != ("tensor_noise", "matrix_noise"):
            return {}
        if self.learner == "bayes":
            names = ("information", "message passing", "Langevin", "spinodal")
        else:
            names = ("likelihood message passing", "gradient flow", "trivial landscape", "likelihood spinodal")
        return {name: _thresholds.LINES[name](self.order, np.asarray(values, float)) for name in names}

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def _covariance(self) -> Covariance:
        return Covariance(self.matrix_noise, self.tensor_noise, self.order)

    def _path(self, q: Covariance) -> tuple[Array, Array]:
        """Overlaps and energies of the iterates."""
        bayes, first = self.learner == "bayes", self.initial_overlap

        def follow(state: tuple[Array, ...], _):
            m, between, pull_before, scale_before, began = state
            pull = q.slope(m)
            scale = 1 + pull if bayes else jnp.sqrt(q.slope(1.0) + pull**2)
            after = pull / scale
            # the start is not a denoised field: its overlap with the first estimate comes from the signal's pull alone
            common = jnp.where(began, (pull * pull_before + q.slope(between)) / scale_before, pull * m) / scale
            energy = -q.value(after) - q.slope(common) / scale
            return (after, common, pull, scale, jnp.asarray(True)), (after, energy)

        state = (first, jnp.zeros(()), jnp.zeros(()), jnp.ones(()), jnp.asarray(False))
        _, (overlaps, energies) = jax.lax.scan(follow, state, None, length=self.iterations)
        return jnp.append(first, overlaps), jnp.append(-q.value(first), energies)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        q, zero = self._covariance, jnp.zeros_like(self.matrix_noise)
        own = fixed_points(self.learner, q, numerics.bisections)
        bayes = own if self.learner == "bayes" else fixed_points("bayes", q, numerics.bisections)
        final, best = reached(self.learner, q, own, self.initial_overlap), optimal(q, bayes)
        blind, informed = reached(self.learner, q, own, zero), reached(self.learner, q, own, zero + 1)
        goal = best if self.learner == "bayes" else informed
        easy = (blind > 0) & (jnp.abs(blind - goal) <= 1e-9)
        m, energy = self._path(q)

        def counted(of: Literal["minima", "critical points"]) -> Array:
            return jax.vmap(lambda m: complexity(q.value, m, of=of).complexity)(self.latitudes)

        values = {
            "final_overlap": final,
            "informed_overlap": informed,
            "optimal_overlap": best,
            "phase": jnp.where(best > 0, jnp.where(easy, 2.0, 1.0), 0.0),
            "spurious": complexity(q.value, zero).complexity,
            "overlap": m,
            "mse": 1 - m if self.learner == "bayes" else 2 - 2 * m,
            "energy": energy,
            "minima": counted("minima"),
            "critical_points": counted("critical points"),
            "residual": jnp.abs(step(self.learner, q, final) - final),
        }
        return values | {"free_entropy": free_entropy(q, final)} if self.learner == "bayes" else values

    def point_branches(self, numerics: Numerics) -> dict[str, Array]:
        """All fixed points, including zero; those of the Bayes-optimal iteration with their free energy −Φ, lowest first."""
        q = self._covariance
        found: FixedPoints = fixed_points(self.learner, q, numerics.bisections)
        m = jnp.stack([jnp.zeros_like(found.high), *found])
        there = jnp.isfinite(m)
        if self.learner != "bayes":
            return {"final_overlap": m, "converged": there}
        free = jnp.where(there, -free_entropy(q, jnp.where(there, m, 0.0)), jnp.inf)
        ranks = jnp.argsort(free)
        return {"final_overlap": m[ranks], "free_energy": free[ranks], "converged": there[ranks]}

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if size**self.order > ENTRIES:
            most = int(ENTRIES ** (1 / self.order) + 1e-9)
            raise InvalidValue(
                f"size = {size} exceeds {most}: a dense tensor of order {self.order} would have more than 2^28 entries."
            )
        signal_key, start_key, matrix_key, tensor_key = jax.random.split(key, 4)
        signal = on_sphere(jax.random.normal(signal_key, (size,), dtype))
        other = jax.random.normal(start_key, (size,), dtype)
        other = on_sphere(other - (other @ signal) / size * signal)
        beta, c = (1 / self.matrix_noise).astype(dtype), (1 / self.tensor_noise).astype(dtype)
        p, m = self.order, self.initial_overlap.astype(dtype)
        # Bayes: the squared norm of an estimate equals its overlap; likelihood: the norm is one, on the sphere
        start = m * signal + jnp.sqrt(m * (1 - m) if self.learner == "bayes" else 1 - m**2) * other
        matrix = jax.random.normal(matrix_key, (size, size), dtype)
        tensor = jax.random.normal(tensor_key, (size,) * p, dtype)

        def energy(x: Array) -> Array:
            """−H(x), the log-likelihood of x. Only the symmetric parts of the noises contribute."""
            seen = x @ signal / size
            noise = jnp.sqrt(beta / (2 * size)) * (x @ (matrix @ x))
            contracted = tensor
            for _ in range(p):
                contracted = contracted @ x
            noise = noise + jnp.sqrt(c / p) * size ** (-(p - 1) / 2) * contracted
            return size * (beta * seen**2 / 2 + c * seen**p / p) + noise

        def posterior_mean(field: Array, x: Array) -> tuple[Array, Array]:
            q = x @ x / size
            shrink = 1 / (1 + beta * q + c * q ** (p - 1))
            return shrink * field, shrink

        def memory(q: Array) -> Array:
            return beta + (p - 1) * c * q ** (p - 2)

        denoise = posterior_mean if self.learner == "bayes" else lambda field, _: normalised(field)
        x = iterate(jax.grad(energy), memory, denoise, start, self.iterations).estimates
        return {
            "overlap": x @ signal / size,
            "mse": jnp.mean((x - signal[None, :]) ** 2, axis=1),
            "energy": -jax.vmap(energy)(x) / size,
        }
