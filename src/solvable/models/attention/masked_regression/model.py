"""Every coordinate is ridge-regressed on all the others: the linear core of masked self-supervised learning.

**Data.** n = αd samples x ~ N(0, Σ), no labels.

**Learner.** x̂ = Ax with zero diagonal; row k minimises (1/n)Σ_μ (x_{μk} − a·x_{μ,−k})² + λ|a|². All d regressions
at once are A = I − diag(G)⁻¹G, G = (S+λ)⁻¹, S = XᵀX/n; without penalty and n < d, G becomes the projector on the null
space of X. A is similar to a symmetric matrix, so its spectrum is real.

**Theory** (d → ∞; derived in `equivalents` and `spiked` of `methods.random_matrices`). With R = (Σ+κ)⁻¹ and
κ − λ = κ Tr ΣR/n, the error on coordinate k is (RΣR)_kk/(R_kk)² / (1 − Tr(ΣR)²/n), the training error (λ/κ)² times
that. A's eigenvalues are 1 − (λ/κ)/z with z those of Δ^½SΔ^½ + λΔ, Δ = diag(R); its right eigenvectors are Δ^{−½}q and
its left ones Δ^½q. On Σ = V + θuuᵀ one eigenvalue leaves the bulk at a threshold that coincides with PCA's only if V ∝ I.

**Simulation.** Draw X, form A by one inverse, measure errors with the population Σ (no test set), eigenvalues, and the
leading eigenvectors' squared cosine with u. With `covariance = "spins"`, X are ±1 spins of a spin glass in its paramagnetic
phase, drawn by Gibbs sampling; the theory uses only their covariance and treats them as Gaussian.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.contract.declarations import Reference, choice, control, data, dimension, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.chains import R_HAT
from solvable.methods.fixed_points.linear_algebra import cholesky
from solvable.methods.random_matrices.equivalents import (
    Coordinates,
    Ridge,
    band_traces,
    chain_modes,
    diagonal_traces,
    effective_ridge,
    masked_distribution,
    masked_errors,
    masses,
    tridiagonal_traces,
)
from solvable.methods.random_matrices.spectra import check_given
from solvable.methods.random_matrices.spiked import Bulk, delocalised_spike, isolated_direction
from solvable.model import Control, Count, Guard, Input, Model, Numerics

from .._papers import MASKED_REGRESSION
from .covariances import autoregressive, draw_spins, glass, localised, paramagnet, ring, two_levels, wave
from .regressions import Regressions, leading, regress_all

EDGES = np.round(np.arange(-3.07, 1.04, 0.1), 2)
"""Bins of A's eigenvalues; the first also contains everything below it. Edges avoid round numbers, where atoms occur."""

SPIKED = ("spiked", "localised")
GLASSY = ("paramagnet", "spins")
WITH_SPECTRUM = ("white", "autoregressive", "ring", *GLASSY, *SPIKED)
FRESH = 2000
"""Fresh configurations that measure the covariance of spins."""


DIMENSIONS = (dimension("eigenvalue", "eigenvalue of the predictor", symbol=r"\lambda", kind="mode"),)


class MaskedRegression(Model):
    """Masked self-supervised ridge regression on Gaussian data of a chosen covariance.

    >>> import solvable as sv
    >>> ridgeless = sv.MaskedRegression(covariance="ring", samples=2.0, penalty=0.0)
    >>> round(float(ridgeless.theory().test_loss), 10)    # conditional variance 1/1.25, divided by 1 − d/n
    1.6
    """

    id = "masked-regression"
    title = "Masked self-supervised regression"
    family = "attention"
    sentence = "Every coordinate of a Gaussian vector is ridge-regressed on all others: masked learning against PCA."
    method = "random-matrix equivalents, BBP transition"
    numerics = Numerics(step=0.5, nodes=256)
    accuracy = 1e-6  # limited by the spectrum of strongly correlated chains; the losses are accurate to 1e-10
    runs = "map"
    theory_lanes = 8
    simulation_dtype = "float64"
    typical_sizes = (100, 200, 400)
    theory_seconds = 2e-2
    simulation_seconds = 1.0
    simulation_growth = 3.0
    inconclusive = 0.4  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"samples": [2.0, 4.0]}},
        # Below n = d the spectrum has atoms, which finite sizes smear over many bins: compare only the losses there.
        {
            "over": {"covariance": ["autoregressive", "ring", "paramagnet"], "samples": [0.5, 2.0]},
            "values": {"penalty": 0.05},
            "judge": ("test_loss", "train_loss", "effective_penalty"),
        },
        {
            "over": {"variances": ["equal", "two-level"]},
            "values": {"covariance": "spiked", "spike": 2.5, "penalty": 0.3, "samples": 2.0},
        },
        {
            "over": {"samples": [0.5, 2.0]},
            "values": {"covariance": "spins", "penalty": 0.05},
            "sizes": (40, 80, 160),
            "seeds": 24,
            "judge": ("test_loss", "train_loss", "effective_penalty"),
        },
    )
    guard = Guard(values={"covariance": "spiked", "variances": "two-level"}, size=50)
    references = (
        Reference(
            "wortsman2026random", "A. Wortsman Zurich, F. Gerace, B. Loureiro and Y. M. Lu",
            "A random matrix theory of masked self-supervised regression", 2026, arxiv="2601.23208"),
        MASKED_REGRESSION,
        Reference(
            "baik2005phase", "J. Baik, G. Ben Arous and S. Péché", "Phase transition of the largest eigenvalue for "
            "nonnull complex sample covariance matrices", 2005, "Ann. Probab. 33, 1643", arxiv="math/0403022"),
    )  # fmt: skip

    samples: Control = control(
        2.0, low=0.0, low_open=True, high=1e4, typical=(0.2, 8.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="training samples per dimension, n/d")  # fmt: skip
    penalty: Control = control(
        0.1, low=0.0, high=1e4, typical=(1e-3, 10.0), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|a|² added to the mean of the squared errors; 0 is the ridgeless limit λ → 0⁺")  # fmt: skip
    spike: Control = control(
        2.0, low=0.0, high=1e3, typical=(0.0, 6.0), symbol=r"\theta",
        meaning="strength of the hidden direction, Σ = V + θuuᵀ (spiked, localised)",
        when={"covariance": ("spiked", "localised")})  # fmt: skip
    correlation: Control = control(
        0.8, low=-0.99, high=0.99, typical=(0.0, 0.9), symbol=r"\rho",
        meaning="correlation between neighbours of the Markov chain, ρ^|k−l| (autoregressive)",
        when={"covariance": "autoregressive"})  # fmt: skip
    high_variance: Control = control(
        4.0, low=1e-2, high=1e2, typical=(0.5, 8.0), scale="log", symbol="v_+",
        meaning="variance of the noisy coordinates (two-level)", when={"variances": "two-level"})  # fmt: skip
    low_variance: Control = control(
        0.5, low=1e-2, high=1e2, typical=(0.1, 4.0), scale="log", symbol="v_-",
        meaning="variance of the other coordinates (two-level)", when={"variances": "two-level"})  # fmt: skip
    high_fraction: Control = control(
        0.25, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.05, 0.95), symbol="p_+",
        meaning="fraction of noisy coordinates (two-level)", when={"variances": "two-level"})  # fmt: skip
    precision: Control = control(
        1.25, low=1e-3, high=1e3, typical=(0.5, 4.0), scale="log", symbol="a",
        meaning="inverse conditional variance of a coordinate given all others (ring)", when={"covariance": "ring"})  # fmt: skip
    bond: Control = control(
        0.64, low=0.0, high=0.99, typical=(0.0, 0.95), symbol="b/a",
        meaning="coupling of neighbours as a fraction of the precision, Σ⁻¹ having eigenvalues a − b cos k (ring)",
        when={"covariance": "ring"})  # fmt: skip
    coupling: Control = control(
        0.5, low=0.0, high=0.8, typical=(0.0, 0.8), symbol=r"\beta",
        meaning="inverse temperature of spin-glass couplings J, Σ = ((1+β²)I − βJ)⁻¹ (paramagnet, spins)",
        when={"covariance": ("paramagnet", "spins")})  # fmt: skip
    support: Control = control(
        5.0, low=1.0, high=1000.0, typical=(1.0, 20.0), symbol="m",
        meaning="number of coordinates that carry u, a whole number in the simulation (localised)",
        when={"covariance": "localised"})  # fmt: skip
    covariance: str = choice(
        "autoregressive", symbol=r"\Sigma",
        options=("white", "autoregressive", "ring", "paramagnet", "spins", "spiked", "localised", "given"),
        meaning="origin of the correlations; spins: ±1 variables with the paramagnet's covariance, not Gaussian")  # fmt: skip
    variances: str = choice(
        "equal", options=("equal", "two-level", "wave"),
        meaning="variances of the coordinates (of the noise when spiked): one, two values, or exp(cos k), k = 0, 1…")  # fmt: skip
    dimension: int = choice(
        0, low=0, high=2000,
        meaning="d of the chain in the theory; 0 means the limit, or d = 200 for wave variances (autoregressive)",
        when={"covariance": "autoregressive"})  # fmt: skip
    matrix: Input | None = data(
        dims=("coordinate", "partner"), symbol=r"\Sigma", meaning="your own positive covariance (given)",
        when={"covariance": "given"})  # fmt: skip

    dimensions_declared = DIMENSIONS
    main_declared = ("test_loss", "half_test_loss", "train_loss", "bayes_loss")
    observables_declared = (
        observable("test_loss", "mean square error on a fresh sample, averaged over masked coordinates",
                   symbol=r"E_\mathrm{gen}", low=0),
        observable("half_test_loss", "half the mean square error, the convention of ½(x−x̂)² losses",
                   symbol=r"\varepsilon_g/L", low=0),
        observable("train_loss", "mean square error on the training samples, penalty not included",
                   symbol=r"E_\mathrm{train}", low=0),
        observable("bayes_loss", "mean conditional variance of a coordinate given all others, a lower bound for every predictor",
                   low=0, simulated=False),
        observable("effective_penalty", "effective ridge; measured as n/Tr(XXᵀ/n + λ)⁻¹", symbol=r"\kappa", low=0),
        observable("spectrum", "fraction of A's eigenvalues in each bin, the first open below; atoms broaden as 1/√d",
                   symbol=r"\rho(a)", dims=("eigenvalue",), low=0, high=1, fraction_of="size",
                   when={"covariance": WITH_SPECTRUM}),
        observable("edge", "upper edge of the bulk of A's spectrum; measured as the second largest eigenvalue",
                   symbol="a_+", high=1, power=2 / 3, when={"covariance": SPIKED}),
        observable("outlier", "largest eigenvalue of A (the edge below the threshold)", symbol="a_*", high=1, power=2 / 3,
                   when={"covariance": SPIKED}),
        observable("overlap_right", "squared cosine between u and A's leading right eigenvector", low=0, high=1,
                   when={"covariance": SPIKED}),
        observable("overlap_left", "squared cosine between u and A's leading left eigenvector", low=0, high=1,
                   when={"covariance": SPIKED}),
        observable("threshold", "strength above which an eigenvalue of A leaves the bulk", symbol=r"\theta_c", low=0,
                   simulated=False, when={"covariance": SPIKED}),
        observable("pca_outlier", "largest eigenvalue of the sample covariance", low=0, power=2 / 3,
                   when={"covariance": SPIKED}),
        observable("pca_overlap", "squared cosine between u and the first principal component", low=0, high=1,
                   when={"covariance": SPIKED}),
        observable("pca_threshold", "strength above which principal components detect u", low=0, simulated=False,
                   when={"covariance": SPIKED}),
    )  # fmt: skip

    def validate(self) -> None:
        check_given(self.covariance, self.matrix)
        if self.dimension == 1:
            raise InvalidValue("dimension = 1 leaves nothing to predict from: use 0 (the limit) or at least 2.")
        if self.variances != "equal" and self.covariance not in ("white", "autoregressive", "spiked"):
            raise InvalidValue(f"covariance = {self.covariance!r} fixes the variances: use variances = 'equal'.")

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"eigenvalue": (EDGES[1:] + EDGES[:-1]) / 2} if self.covariance in WITH_SPECTRUM else {}

    def transition(self, along: str) -> Array:
        """Positive where an eigenvalue of A has left the bulk: the spike's strength above the threshold."""
        if self.covariance not in SPIKED:
            return super().transition(along)
        return self.spike - self.theory().threshold

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        """Thresholds of masked regression and of PCA in the plane of a control and the spike's strength."""
        if self.covariance not in SPIKED or y != "spike" or x == "spike":
            return {}
        theory = self.replace(**{x: values}).theory()
        flat = np.ones_like(values)
        return {"masked regression": theory.threshold * flat, "PCA": theory.pca_threshold * flat}

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        population = self._population(numerics)
        ridge = effective_ridge(population.eigenvalues, self.samples, self.penalty, population.weights)
        errors = masked_errors(population, self.samples, ridge)
        test_loss = population.shares @ errors.test
        out = {
            "test_loss": test_loss,
            "half_test_loss": test_loss / 2,
            "train_loss": population.shares @ errors.train,
            "bayes_loss": population.shares @ (1.0 / population.diagonal(jnp.zeros(()))),
            "effective_penalty": ridge.kappa,
            "converged": ridge.converged,
            "residual": ridge.residual,
        }
        if self.covariance in WITH_SPECTRUM:
            out["spectrum"] = self._spectrum(population, ridge, numerics)
            out["spectrum_converged"] = jnp.all(jnp.isfinite(out["spectrum"]))
        if self.covariance == "spiked":
            out |= self._spiked(population, ridge, out)
        if self.covariance == "localised":
            out |= self._localised(ridge, out)
        return out

    def _population(self, numerics: Numerics) -> Coordinates:
        """The law of Σ per coordinate, without the spike, which is a single direction."""
        if self.covariance == "given":
            assert self.matrix is not None
            return Coordinates.of_matrix(self.matrix)
        if self.covariance == "ring":
            # Neighbours with Σ⁻¹ ∝ 1 − b cos k are an autoregressive chain closed to a ring, b = 2ρ/(1+ρ²).
            cosine, weights = chain_modes(self.bond / (1.0 + jnp.sqrt(1.0 - self.bond**2)), numerics.nodes)
            return Coordinates.alike(1.0 / (self.precision * (1.0 - self.bond * cosine)), weights)
        if self.covariance in GLASSY:  # semicircle of J by its Gauss rule; the diagonal is self-averaging
            angle = np.pi * np.arange(1, numerics.nodes + 1) / (numerics.nodes + 1)
            values = 1.0 / (1.0 + self.coupling**2 - 2.0 * self.coupling * jnp.cos(angle))
            return Coordinates.alike(values, jnp.asarray(2 / (numerics.nodes + 1) * np.sin(angle) ** 2))
        if self._finite:
            return Coordinates.of_matrix(self._covariance(self._finite, None)[0])
        levels, shares = self._levels()
        if self.covariance == "autoregressive":  # each level is a separate long chain; all share one κ
            rho = self.correlation
            cosine, weights = chain_modes(rho, numerics.nodes)
            chain = (1.0 - rho**2) / (1.0 + rho**2 - 2.0 * rho * cosine)
            own = jnp.kron(jnp.eye(levels.size), weights[None, :])
            return Coordinates(jnp.kron(levels, chain), jnp.kron(shares, weights), own, shares)
        if self.variances == "wave":  # in the limit the angles k are uniform on the circle
            values = jnp.exp(jnp.cos(jnp.pi * (jnp.arange(numerics.nodes, dtype=float) + 0.5) / numerics.nodes))
            return Coordinates.uncorrelated(values, jnp.full(numerics.nodes, 1.0 / numerics.nodes))
        return Coordinates.uncorrelated(levels, shares)

    def _levels(self) -> tuple[Float[Array, " l"], Float[Array, " l"]]:
        """Variances of the coordinates, and the fraction of coordinates with each."""
        if self.variances != "two-level":
            return jnp.ones(1), jnp.ones(1)
        shares = jnp.stack([self.high_fraction, 1.0 - self.high_fraction])
        return jnp.stack([self.high_variance, self.low_variance]), shares

    def _band(self) -> tuple[Array, Array, Array, Array] | None:
        """Continuous bands w/(a − b cos k) of Σ in the limit: w of each, their shares, a and b."""
        levels, shares = self._levels()
        if self.covariance == "autoregressive" and not self._finite:
            rho = self.correlation
            return levels * (1.0 - rho**2), shares, 1.0 + rho**2, 2.0 * rho
        if self.covariance == "ring":
            return levels / self.precision, shares, jnp.ones(()), self.bond
        if self.covariance in GLASSY:
            return levels, shares, 1.0 + self.coupling**2, 2.0 * self.coupling
        return None

    @property
    def _finite(self) -> int:
        """d of the chain whose covariance matrix the theory uses, or 0 for the limit (unknown for wavy variances)."""
        if self.covariance != "autoregressive":
            return 0
        return self.dimension or (200 if self.variances == "wave" else 0)

    def _spectrum(self, population: Coordinates, ridge: Ridge, numerics: Numerics) -> Float[Array, " eigenvalue"]:
        """Masses of A's eigenvalues in the bins, in units where M has the shift κΔ (see `masked_distribution`)."""
        scale = population.diagonal(ridge.kappa)
        if self._finite:
            deviation, rho = jnp.sqrt(self._variances(self._finite)), self.correlation
            ends = jnp.ones(self._finite).at[1:-1].set(1.0 + rho**2)
            neighbour = jnp.concatenate([jnp.zeros(1), -rho / (deviation[1:] * deviation[:-1])])
            precision = jnp.stack([ends / deviation**2, neighbour]) / (1.0 - rho**2)
            traces = tridiagonal_traces(precision[0], precision[1], scale, ridge.kappa)
        elif (band := self._band()) is not None:
            levels, shares, *waves = band
            traces = band_traces(
                levels * scale, ridge.kappa * scale, shares, *waves, semicircle=self.covariance in GLASSY
            )
        else:  # every eigenvector lives on one kind of coordinate, so Δ and Σ commute
            delta = (scale[:, None] * jnp.sign(population.loadings)).sum(0)
            traces = diagonal_traces(population.eigenvalues * delta, ridge.kappa * delta, population.weights)
        below = masked_distribution(traces, self.samples, ridge.slack, jnp.asarray(EDGES[1:-1]), step=numerics.step)
        # Ridgeless at n = d the spectrum extends to −∞ with vanishing mass; the remaining mass is at one.
        return masses(jnp.where((ridge.kappa == 0) & (ridge.slack < 1e-12), 0.0, below))

    def _spiked(self, population: Coordinates, ridge: Ridge, out: dict[str, Array]) -> dict[str, Array]:
        """A delocalised u with u_k² = 1/d: masked regression (Δ_k = 1/(v_k+κ), B = λΔ) and PCA (Δ = 1, B = 0) at once."""
        v, weights = population.eigenvalues, population.weights
        masked_scale = 1.0 / (v + ridge.kappa)
        scale = jnp.stack([masked_scale, jnp.ones_like(v)])
        shift = jnp.stack([self.penalty * masked_scale, jnp.zeros_like(v)])

        def spike(scale, shift):
            return delocalised_spike(Bulk(v * scale, shift, weights), self.samples, self.spike, weights, scale)

        found = jax.vmap(spike)(scale, shift)
        return {
            "edge": 1.0 - ridge.slack / found.edge[0],
            "outlier": 1.0 - ridge.slack / found.outlier[0],
            "overlap_right": found.right[0],
            "overlap_left": found.left[0],
            "threshold": found.threshold[0],
            "pca_outlier": found.outlier[1],
            "pca_overlap": found.right[1],
            "pca_threshold": found.threshold[1],
            "converged": out["converged"] & jnp.all(found.converged),
            "residual": jnp.maximum(out["residual"], jnp.max(found.residual)),
        }

    def _localised(self, ridge: Ridge, out: dict[str, Array]) -> dict[str, Array]:
        """u on m coordinates of white noise, where the spike changes R_kk: Δ₁ = Δ₀(1 − (θ/m)/(1+κ+θ)), Δ₀ = 1/(1+κ).

        u is then an eigenvector of Σ̃ and of λΔ, with eigenvalues (1+θ)Δ₁ and λΔ₁. It detaches where
        Δ₁((1+θ)t₊ + λ) = z₊, a quadratic equation for θ.
        """
        theta, c = self.spike, 1.0 + ridge.kappa
        bulk_scale = 1.0 / c
        scale = bulk_scale * (1.0 - theta / self.support / (c + theta))
        one = jnp.ones(())

        def isolated(bulk_scale, scale, penalty):
            bulk = Bulk(bulk_scale[None], (penalty * bulk_scale)[None], jnp.ones(1))
            return isolated_direction(bulk, self.samples, (1.0 + theta) * scale, penalty * scale)

        pairs = (bulk_scale, one), (scale, one), (self.penalty, 0.0 * one)  # masked regression, and PCA: Δ = 1, B = 0
        found = jax.vmap(isolated)(*(jnp.stack(pair) for pair in pairs))
        q, t, z = found.overlap[0], found.edge_companion[0], found.edge[0]
        spread = 1.0 - 1.0 / self.support
        linear = c * (t - z) + spread * (t + self.penalty)
        constant = c * (z * c - t - self.penalty)
        return {
            "edge": 1.0 - ridge.slack / z,
            "outlier": 1.0 - ridge.slack / found.outlier[0],
            "overlap_right": (q / scale) / (q / scale + (1.0 - q) / bulk_scale),
            "overlap_left": q * scale / (q * scale + (1.0 - q) * bulk_scale),
            "threshold": 2.0 * constant / (linear + jnp.sqrt(linear**2 + 4.0 * spread * t * constant)),  # m = 1: ∞
            "pca_outlier": found.outlier[1],
            "pca_overlap": found.overlap[1],
            "pca_threshold": jnp.sqrt(1.0 / self.samples),
            "converged": out["converged"] & jnp.all(found.converged),
            "residual": jnp.maximum(out["residual"], jnp.max(found.residual)),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def _variances(self, size: int) -> Float[Array, " d"]:
        if self.variances == "wave":
            return wave(size)
        if self.variances == "two-level":
            return two_levels(size, self.high_variance, self.low_variance, self.high_fraction)
        return jnp.ones(size)

    def _covariance(self, size: int, key: Any) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
        """Σ at this size, and the hidden direction u (zero where there is none)."""
        hidden = jnp.zeros(size)
        if self.covariance == "given":
            assert self.matrix is not None
            return self.matrix, hidden
        if self.covariance == "autoregressive":
            return autoregressive(self._variances(size), self.correlation), hidden
        if self.covariance == "ring":
            return ring(size, self.precision, self.bond), hidden
        if self.covariance == "paramagnet":
            return paramagnet(glass(key, size), self.coupling), hidden
        if self.covariance == "spiked":
            hidden = jnp.full(size, size**-0.5)
        elif self.covariance == "localised":
            hidden = localised(size, self.support)
        return jnp.diag(self._variances(size)) + self.spike * hidden[:, None] * hidden[None, :], hidden

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if self.matrix is not None and size != self.matrix.shape[0]:
            raise InvalidValue(f"size = {size} does not match `matrix`: use size = {self.matrix.shape[0]}.")
        samples = counts["samples"]
        draw_key, latent_key, coupling_key = jax.random.split(key, 3)
        if self.covariance == "spins":
            return self._experiment_on_spins(draw_key, coupling_key, size, samples, dtype)
        sigma, hidden = self._covariance(size, coupling_key)
        rows = jax.random.normal(draw_key, (samples.padded, size), float) * samples.mask()[:, None]
        number = samples.actual.astype(float)
        if self.covariance in SPIKED:
            # The latent variable's empirical norm is fixed to n, which removes fluctuations of the spike's strength.
            latent = jax.random.normal(latent_key, (samples.padded,), float) * samples.mask()
            latent = latent * jnp.sqrt(self.spike * number / jnp.sum(latent**2))
            x = rows * jnp.sqrt(self._variances(size))[None, :] + latent[:, None] * hidden[None, :]
        else:
            x = rows @ cholesky(sigma).T
        second_moment = x.T @ x / number
        fit = regress_all(second_moment, self.penalty, samples.actual)
        measured = self._measured(fit, sigma, second_moment)
        if self.covariance in SPIKED:
            measured |= leading(second_moment, fit.inverse, self.penalty, hidden, samples.actual)
            measured |= {"pca_outlier": fit.values[-1], "pca_overlap": (fit.vectors[:, -1] @ hidden) ** 2}
        # Near β = 1 a drawn coupling matrix may not give a positive covariance; the result is then NaN.
        return {n: v.astype(dtype) for n, v in measured.items()} | {"converged": jnp.isfinite(measured["test_loss"])}

    def _experiment_on_spins(
        self, draw_key: Array, coupling_key: Array, size: int, samples: Count, dtype: Any
    ) -> dict[str, Array]:
        """The same regressions on spins, whose covariance is measured on fresh ones because no exact formula is known."""
        couplings = self.coupling * glass(coupling_key, size)
        spins, apart = draw_spins(draw_key, couplings, FRESH + samples.padded)
        x = spins[FRESH:] * samples.mask()[:, None]
        second_moment = x.T @ x / samples.actual.astype(float)
        sigma = spins[:FRESH].T @ spins[:FRESH] / FRESH
        measured = self._measured(regress_all(second_moment, self.penalty, samples.actual), sigma, second_moment)
        return {n: v.astype(dtype) for n, v in measured.items()} | {
            "converged": apart < R_HAT - 1,
            "residual": apart,
        }

    def _measured(self, fit: Regressions, sigma: Array, second_moment: Array) -> dict[str, Array]:
        test_loss = fit.loss(sigma)
        measured = {
            "test_loss": test_loss,
            "half_test_loss": test_loss / 2,
            "train_loss": jnp.maximum(fit.loss(second_moment), 0.0),
            "effective_penalty": fit.effective_penalty,
        }
        if self.covariance in WITH_SPECTRUM:
            place = jnp.searchsorted(jnp.asarray(EDGES[1:-1]), fit.eigenvalues())
            measured["spectrum"] = jnp.zeros(EDGES.size - 1).at[place].add(1.0 / len(sigma))
        return measured
