r"""Diffusion models with a linear denoiser: when they memorise the data, and when they learn its law.

**Data.** N = qd points x₀ ~ N(μ, Σ), with empirical mean μ̂ and covariance S (normalised by N). A noise level mixes them with
Gaussian noise, x_t = √a x₀ + √b ε, a = ᾱ_t (`signal`), b = 1 − a.

**Learner.** ε̂(x_t) = W(x_t − √a μ̂), one W for every noise level, minimises E|ε − ε̂|² + γ|W|² over data and all noises, with
weight decay γ = c·a: W = √b (aS + b + γ)⁻¹, as if trained on S + c without penalty (c is `penalty`). With `training = "flow"` it
starts from zero and stops at τ (`time`) of gradient flow, dW/dτ = √b − W(aS + b + γ).

**Sampler.** Denoising all levels in turn from pure noise (Ho, Jain and Abbeel 2020) draws from a Gaussian exactly, with mean μ̂
and a covariance that is a function of S: S + c itself in continuous time, and the result of a scalar recursion for a finite
number of `steps` (`sampler.py`).

**Theory** (Merger and Goldt 2025; here by deterministic equivalents, `methods.random_matrices.sample_covariance`). With
R = (S+D)⁻¹, D = b/a + c, and all traces per dimension,

    test  = 1 − 2(b/a) Tr R + (b/a²)(a Tr ΣR² + b Tr R²),
    train = 1 − 2(b/a) Tr R + (b/a²)(a Tr R − γ Tr R²),
    KL(model‖target) = ½(Tr Σ⁻¹(S+c) − 1 − log det Σ⁻¹(S+c)),    KL(target‖model) = ½(Tr Σ(S+c)⁻¹ − 1 + log det Σ⁻¹(S+c)).

Early stopping and a finite number of steps are means of functions of S: contour integrals. The theory is that of a finite
dimension d (`dimension`; a simulation's own size in a study): traces include their 1/d terms and the error of the empirical
mean, and without penalty both divergences are exact, by digamma functions. `dimension = 0` is the limit N, d → ∞; the
divergences without penalty are then ½(1+L) and ½(1/(q−1)−1−L), L = (q−1)log(1−1/q), for any Σ, both → d/(4N). Near q = 1 with
little noise the 1/d terms are not small, and the result is NaN.

**Simulation.** Draw the data, invert aS + b + γ, or run gradient descent (2¹⁶ steps, by repeated squaring); measure losses with
the population Σ and the noise averaged exactly. With `sampler = "steps"` particles are denoised step by step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import inverse
from solvable.methods.random_matrices.sample_covariance import (
    Population,
    around,
    log_determinant,
    resolvent,
    wishart_log_determinant,
)
from solvable.methods.random_matrices.spectra import check_given
from solvable.model import Control, Guard, Input, Model, Numerics, Reference, choice, control, data, observable

from .sampler import denoiser, draw, sampled, schedule

PARTICLES = 64
"""Samples that a simulation of the sampler draws."""
DOUBLINGS = 16
"""Gradient descent takes 2 to this power steps."""


class LinearDiffusion(Model):
    """Training, test error and sampled law of a diffusion model whose denoiser is linear.

    >>> import solvable as sv
    >>> found = sv.LinearDiffusion(samples=0.5, signal=0.5, dimension=0).theory()
    >>> round(float(found.train_loss), 6), round(float(found.test_loss), 6)        # 1 − 1/√2 and 3/2 − 1/√2
    (0.292893, 0.792893)
    >>> divergence = sv.LinearDiffusion(samples=[2.0, 20.0], dimension=0).theory().reverse_kl
    >>> [round(float(v), 5) for v in divergence]                                   # ½(1 − log 2), and nearly 1/80
    [0.15343, 0.01271]
    """

    id = "linear-diffusion"
    title = "Linear diffusion models"
    family = "generative"
    sentence = "A diffusion model with a linear denoiser: overfitting, early stopping, and how far its samples are off."
    method = "random-matrix equivalents with 1/d terms, contour integrals"
    numerics = Numerics(nodes=64)
    simulation_dtype = "float64"  # a nearly singular S decides the divergences near n = d
    runs = "map"
    typical_sizes = (50, 100, 200)
    theory_lanes = 64  # what a contour needs at once then fits into a cache
    theory_seconds = 1e-3
    simulation_seconds = 0.1
    simulation_growth = 3.0
    check_study = (
        {"over": {"samples": [0.5, 2.0]}, "values": {"penalty": 0.1, "signal": 0.9}, "sizes": (50, 100), "seeds": 24},
        {"over": {"samples": [0.5, 2.0]}, "values": {"training": "flow", "sampler": "steps", "steps": 50, "signal": 0.8,
                                                     "covariance": "power-law"}, "sizes": (50, 100), "seeds": 24},
        {"over": {"samples": [2.0, 5.0]}, "values": {"covariance": "power-law", "signal": 0.9}, "sizes": (50, 100),
         "seeds": 24},
    )  # fmt: skip
    guard = Guard(values={"penalty": 0.1}, size=20)
    references = (
        Reference(
            "merger2025generalization", "C. Merger and S. Goldt", "Generalization dynamics of linear diffusion models", 2025,
            arxiv="2505.24769"),
        Reference(
            "ho2020denoising", "J. Ho, A. Jain and P. Abbeel", "Denoising diffusion probabilistic models", 2020, "NeurIPS 33",
            arxiv="2006.11239"),
    )  # fmt: skip

    samples: Control = control(
        2.0, low=0.0, low_open=True, high=1e4, typical=(0.2, 8.0), scale="log", counts=True, symbol="q",
        meaning="training points per dimension, N/d")  # fmt: skip
    signal: Control = control(
        0.5, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.05, 0.95), symbol=r"\bar\alpha_t",
        meaning="share of the data in the variance of the denoiser's input; the rest is noise")  # fmt: skip
    penalty: Control = control(
        0.0, low=0.0, high=1e4, typical=(1e-3, 10.0), scale="log", symbol="c",
        meaning="weight decay γ|W|² per sample, in units of ᾱ_t: as if c were added to all variances of the data")  # fmt: skip
    time: Control = control(
        3.0, low=0.0, low_open=True, high=1e6, typical=(0.1, 100.0), scale="log", symbol=r"\tau",
        when={"training": "flow", "sampler": "steps"},
        meaning="duration of gradient flow on half the squared error (training = flow)")  # fmt: skip
    decay: Control = control(
        1.0, low=0.0, high=4.0, typical=(0.0, 2.0), symbol="k", when={"covariance": "power-law"},
        meaning="exponent of the covariance's eigenvalues ν^−k, ν = 1, 2… (power-law)")  # fmt: skip
    dimension: Control = control(
        200.0, low=0.0, high=1e6, typical=(100.0, 1000.0), scale="log", symbol="d",
        meaning="dimension of the data in the theory; a study uses the simulated size; 0 is the limit of many")  # fmt: skip
    covariance: str = choice(
        "white", options=("white", "power-law", "given"), symbol=r"\Sigma",
        meaning="covariance of the data, of mean eigenvalue one unless given")  # fmt: skip
    modes: int = choice(
        50, low=1, high=2000,
        meaning="number of different eigenvalues, each of an equal share of directions (power-law)")  # fmt: skip
    training: str = choice(
        "converged",
        options=("converged", "flow"),
        meaning="denoisers trained to the end, or gradient flow stopped at a time",
    )
    sampler: str = choice(
        "continuous", options=("continuous", "steps"),
        meaning="denoising in continuous time, which reaches the covariance S + c, or in a number of steps")  # fmt: skip
    steps: int = choice(1000, low=20, high=10_000, symbol="T", meaning="denoising steps (sampler = steps)")
    matrix: Input | None = data(
        dims=("coordinate", "partner"), symbol=r"\Sigma", meaning="your own positive covariance (given)")  # fmt: skip

    observables_declared = (
        observable("test_loss", "mean square error of the predicted noise on fresh data, per dimension",
                   symbol=r"E_\mathrm{test}", low=0, power=2),
        observable("train_loss", "mean square error of the predicted noise on the training data, weight decay not included",
                   symbol=r"E_\mathrm{train}", low=0, power=2),
        observable("bayes_loss", "error of the best denoiser, that of infinitely many data", symbol="E_0", low=0,
                   simulated=False),
        observable("reverse_kl", "divergence KL(model‖target) of the samples' law from the data's, per dimension", low=0,
                   symbol=r"D(\rho_N\Vert\rho)/d", power=2),
        observable("forward_kl", "divergence KL(target‖model) of the data's law from the samples', per dimension", low=0,
                   symbol=r"D(\rho\Vert\rho_N)/d", power=2),
        observable("sampled_variance", "mean variance of the sampler's output per dimension", low=0, power=2,
                   when={"sampler": "steps"}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.training == "flow" and self.sampler == "continuous":
            raise InvalidValue(
                "training = 'flow' needs sampler = 'steps': the sampler of early-stopped denoisers has steps."
            )
        check_given(self.covariance, self.matrix)

    @classmethod
    def realised_ratio(cls, name: str, value: float, size: int) -> float:
        """A simulation of size d is compared with the theory of dimension d, or with the limit if that was asked for."""
        return float(size) if name == "dimension" and value > 0 else super().realised_ratio(name, value, size)

    def realised(self, size: int) -> LinearDiffusion:
        real = super().realised(size)
        return real.with_values(
            {"dimension": jnp.asarray(self.realised_ratio("dimension", float(self.dimension), size))}
        )

    # --- theory -----------------------------------------------------------------------------------------------------

    def _population(self) -> Population:
        if self.covariance == "given":
            assert self.matrix is not None
            return Population.of_matrix(self.matrix)
        if self.covariance == "power-law":
            return Population.power_law(self.decay, self.modes)
        return Population.white()

    def point(self, numerics: Numerics) -> dict[str, Array]:
        population = self._population()
        values, a = population.eigenvalues, self.signal
        out = {"bayes_loss": population.mean(a * values / (a * values + 1.0 - a))}
        trained = self._stopped if self.training == "flow" else self._converged
        drawn = self._in_steps if self.sampler == "steps" else self._in_continuous_time
        return out | trained(population, numerics) | drawn(population, numerics)

    def _finite(self) -> tuple[Array, Array, Array]:
        """1/N, rows per dimension of a covariance about a known mean, and d.

        S of N rows about their own mean is (1 − 1/N) times that of N − 1 rows about the true one.
        """
        per_dimension = jnp.where(self.dimension > 0, 1.0 / jnp.where(self.dimension > 0, self.dimension, 1.0), 0.0)
        rows = jnp.maximum(self.samples - per_dimension, 1e-6)
        return per_dimension / self.samples, rows, jnp.where(self.dimension > 0, self.dimension, jnp.inf)

    def _converged(self, population: Population, numerics: Numerics) -> dict[str, Array]:
        per_point, rows, size = self._finite()
        a, b, scale = self.signal, 1.0 - self.signal, 1.0 - per_point
        found = resolvent(population, rows, (b / a + self.penalty) / scale, size)
        trace, square, signal = found.trace / scale, found.square / scale**2, found.signal_square / scale**2
        both = 1.0 - 2.0 * b / a * trace
        return {
            "test_loss": both + b / a**2 * (a * (1.0 + per_point) * signal + b * square),
            "train_loss": both + b / a * (trace - self.penalty * square),
            "test_loss_converged": found.converged,
            "train_loss_converged": found.converged,
            "residual": found.residual,
        }

    def _stopped(self, population: Population, numerics: Numerics) -> dict[str, Array]:
        per_point, rows, size = self._finite()
        a, b, scale = self.signal, 1.0 - self.signal, 1.0 - per_point
        contour = around(population, rows, (b / a + self.penalty) / scale, size=size, nodes=numerics.nodes)
        eigenvalue = scale.astype(complex) * contour.points
        w = denoiser(eigenvalue, a, self.penalty, self.time)
        both = 1.0 - 2.0 * jnp.sqrt(b) * contour.mean(w) + b * contour.mean(w**2)
        return {
            "test_loss": both + a * (1.0 + per_point) * contour.mean(w**2, population.eigenvalues),
            "train_loss": both + a * contour.mean(eigenvalue * w**2),
            "test_loss_converged": contour.converged,
            "train_loss_converged": contour.converged,
            "residual": contour.residual,
        }

    def _in_continuous_time(self, population: Population, numerics: Numerics) -> dict[str, Array]:
        """Samples of N(μ̂, S + c)."""
        per_point, rows, size = self._finite()
        scale, c = 1.0 - per_point, self.penalty
        # Without penalty: exact for any Σ at finite size.
        n, d = rows * jnp.where(self.dimension > 0, size, 1.0), jnp.where(self.dimension > 0, size, 1.0)
        limit = jnp.where(rows > 1, -1.0 - (rows - 1) * jnp.log1p(-1 / jnp.where(rows > 1, rows, 2.0)), -jnp.inf)
        volume = jnp.where(self.dimension > 0, wishart_log_determinant(n, d) + jnp.log(scale), limit)
        left = rows - 1.0 - jnp.where(self.dimension > 0, 1.0 / d, 0.0)  # (n − d − 1)/d, without the last in the limit
        inverse_trace = jnp.where(left > 0, self.samples / jnp.where(left > 0, left, 1.0), jnp.inf)
        # With penalty: equivalents.
        some = jnp.where(c > 0, c, 1.0)
        found = resolvent(population, rows, some / scale, size)
        whole = jnp.log(scale) + log_determinant(population, rows, some / scale, size)
        whole = whole - population.mean(jnp.log(population.eigenvalues))
        direct = scale + c * population.mean(1.0 / population.eigenvalues) + per_point
        volume = jnp.where(c > 0, whole, volume)
        inverse_trace = jnp.where(c > 0, found.signal / scale, inverse_trace) * (1.0 + per_point)
        forward = jnp.where(jnp.isinf(inverse_trace), jnp.inf, (inverse_trace - 1.0 + volume) / 2)
        return {
            "reverse_kl": (direct - 1.0 - volume) / 2,
            "forward_kl": forward,
            "reverse_kl_converged": found.converged | (c == 0),
            "forward_kl_converged": found.converged | (c == 0),
        }

    def _in_steps(self, population: Population, numerics: Numerics) -> dict[str, Array]:
        """Samples of the Gaussian that the scalar recursion gives, along every eigenvector of S."""
        per_point, rows, size = self._finite()
        scale, first = 1.0 - per_point, schedule(self.steps)
        time = self.time if self.training == "flow" else None
        gap = float((1 - first.signal[0]) / first.signal[0])
        # Trained to the end without penalty, nothing is sampled along null directions of S: singular at zero.
        empty = (self.penalty == 0) & jnp.asarray(time is None)
        memorised = empty & (rows < 1.0)
        values = population.eigenvalues

        # The last noise levels come close to the data: the curve passes close to zero and needs more nodes.
        shift = jnp.where(empty & ~memorised, 0.0, gap + self.penalty)
        contour = around(population, rows, shift / scale, size=size, nodes=2 * numerics.nodes)
        variance = sampled(scale.astype(complex) * contour.points, self.penalty, time, self.steps)
        upright = jnp.all((variance.imag > 0) | (variance.real > 0)) & (variance.real[-1] > 0)
        volume = contour.mean(jnp.log(variance)) - population.mean(jnp.log(values))
        direct = contour.mean(variance, 1.0 / values) + per_point
        against = (1.0 + per_point) * contour.mean(1.0 / variance, values)
        infinite = jnp.where(memorised, jnp.inf, 0.0)
        good = contour.converged & (upright | memorised)
        keep = lambda value: jnp.where(memorised, 0.0, value) + infinite  # noqa: E731
        return {
            "reverse_kl": keep((direct - 1.0 - volume) / 2),
            "forward_kl": keep((against - 1.0 + volume) / 2),
            "sampled_variance": contour.mean(variance),
            "reverse_kl_converged": good,
            "forward_kl_converged": good,
            "sampled_variance_converged": contour.converged,
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def _variances(self, size: int) -> Float[Array, " d"]:
        """Σ is diagonal here: nothing depends on its eigenvectors. Sizes that are multiples of `modes` have its spectrum."""
        if self.covariance == "given":
            assert self.matrix is not None
            if size != self.matrix.shape[0]:
                raise InvalidValue(f"size = {size} does not match `matrix`: use size = {self.matrix.shape[0]}.")
            return self._population().eigenvalues
        if self.covariance == "power-law":
            return self._population().eigenvalues[np.arange(size) * self.modes // size]
        return jnp.ones(size)

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        data_key, sample_key = jax.random.split(key)
        points, variances = counts["samples"], self._variances(size).astype(dtype)
        number, there = points.actual.astype(dtype), points.mask(dtype)[:, None]
        x = jax.random.normal(data_key, (points.padded, size), dtype) * jnp.sqrt(variances)[None, :] * there
        centre = jnp.sum(x, axis=0) / number
        away = (x - centre[None, :]) * there
        s = away.T @ away / number
        a, c, tau = (v.astype(dtype) for v in (self.signal, self.penalty, self.time))
        b, unit = 1.0 - a, jnp.eye(size, dtype=dtype)

        curvature = a * s + (b + c * a) * unit
        w = jnp.sqrt(b) * inverse(curvature) if self.training == "converged" else _descend(curvature, jnp.sqrt(b), tau)
        noise_error = jnp.sum((unit - jnp.sqrt(b) * w) ** 2)
        shifted = w @ centre
        measured = {
            "test_loss": (noise_error + a * (jnp.sum(w**2 * variances[None, :]) + shifted @ shifted)) / size,
            "train_loss": (noise_error + a * jnp.sum((w @ s) * w)) / size,
        }

        values, vectors = jnp.linalg.eigh(s)
        null = jnp.arange(size, dtype=jnp.int32) < size - (points.actual - 1)
        values = jnp.where(null, 0.0, values)
        offsets = vectors.T @ centre
        learned = values + c
        if self.sampler == "steps":
            time = tau if self.training == "flow" else None
            learned = sampled(values, c, time, self.steps)
            measured["sampled_variance"] = jnp.mean(draw(sample_key, values, c, time, self.steps, PARTICLES) ** 2)
        # Along a null direction the recursion gives rounding errors instead of zero.
        learned = jnp.where(null & (c == 0) & (self.training == "converged"), 0.0, learned)
        volume = jnp.sum(jnp.log(learned)) - jnp.sum(jnp.log(variances))
        direct = jnp.sum((vectors**2 / variances[:, None]) @ learned) + jnp.sum(centre**2 / variances)
        against = jnp.sum((variances @ vectors**2 + offsets**2) / learned)
        measured["reverse_kl"] = (direct / size - 1.0 - volume / size) / 2
        measured["forward_kl"] = jnp.where(jnp.any(learned <= 0), jnp.inf, (against / size - 1.0 + volume / size) / 2)
        return measured


def _descend(curvature: Array, target: Array, time: Array) -> Array:
    """Gradient descent on W from zero, 2^DOUBLINGS steps: after 2n steps W is W_n + W_n E_n, E_n being n steps' decay."""
    rate = time / 2**DOUBLINGS
    unit = jnp.eye(curvature.shape[0], dtype=curvature.dtype)

    def double(_, state: tuple[Array, Array]) -> tuple[Array, Array]:
        w, decay = state
        return w + w @ decay, decay @ decay

    return jax.lax.fori_loop(0, DOUBLINGS, double, (rate * target * unit, unit - rate * curvature))[0]
