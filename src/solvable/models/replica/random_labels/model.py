"""Random labels: the minimal training loss of a linear classifier, and how it depends on the inputs.

**Data.** n = αp inputs x ∈ R^p with independent random labels ±1. Inputs are Gaussian with covariance Ω (*isotropic*,
*ramp*: eigenvalues spread evenly over [0, 2], *power-law*: the i-th is ∝ i^−a), a mixture of Gaussian *clouds* with jointly
diagonal covariances and means of length O(1), or real ones: scikit-learn's handwritten *digits* (the 61 pixels of 64 that vary,
centred, divided by a common number), p random features tanh(Gx/√61) of them (*digits-tanh*), or rows of your own (*given*),
centred and divided likewise.

**Learner.** ŵ = argmin_w Σ_μ ℓ(y_μ, w·x_μ/√p) + λ|w|²/2: the *sum* of the losses. The quantity of interest is
the mean training loss at ŵ, penalty not included.

**Theory** (Gerace et al. 2024; n, p → ∞ at fixed α). Only the covariance matters. With m = 0 the Gaussian covariate saddle
point (`methods.risk.covariate`) is, R = 1/(λ + V̂ω) and ⟨·⟩ the mean over eigenvalues,

    V = ⟨ωR⟩,   q = q̂⟨ω²R²⟩,   V̂ = (α/V) E[1 − prox′],   q̂ = (α/V²) E[(prox − ω)²],   training loss E[ℓ(1, prox)],

prox = prox_{Vℓ}(1, ω), ω ~ N(0, q). For λ → 0⁺ above the capacity, VV̂ = 1 and qV̂² = q̂, and the covariance drops out too:

    α E[1 − prox′] = 1,   q = α E[(prox − ω)²].

Clouds have a q and a V each (`mixtures`); their means drop out, and with one covariance they are a single Gaussian.
Digits and given rows enter through the eigenvalues of their empirical covariance. That they then follow the Gaussian is the
universality that this model measures rather than assumes.

**Capacity.** For λ → 0⁺ the loss vanishes up to n = α_c p: α_c = 2 for hinge and logistic (Cover 1965), 1 for the square loss,
times the fraction of directions in which the inputs vary. `penalty = 0` is that limit: below the capacity the training loss and
error are zero, V is infinite, and so is q for the logistic loss, which has no minimum there; the norms of the minimum-norm
interpolator and of the maximum-margin solution are taken at λ = 1e-9.

**Simulation.** Draw inputs and labels, minimise the risk with an optimiser that uses no prox (`methods.risk.erm`), measure the
losses. Digits and given rows are drawn without replacement, so n ≤ 1797 or the number of rows.
`penalty = 0` is simulated at λ = 1e-6.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.averages.quadrature import legendre
from solvable.methods.data.digits import digit_images
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.model import Control, Input, Model, Numerics, Reference, choice, control, data, input, observable

from .._papers import LEARNING_CURVES
from .mixtures import random_labels_of_clouds

SYNTHETIC = ("isotropic", "ramp", "power-law", "clouds")
DIGITS, PIXELS = 1797, 61
FLAT = 1e-10
"""Eigenvalues below this fraction of the largest count as zero: directions in which the inputs do not vary."""
LEAST = 1e-9
"""The penalty at which norms below the capacity are computed for λ → 0⁺ (square loss of clouds, hinge loss)."""
SIMULATED_LEAST = 1e-6
PANELS = 26


@cache
def digits() -> np.ndarray:
    """scikit-learn's handwritten digits: the pixels that vary, centred and scaled to a mean variance of one.

    >>> digits().shape
    (1797, 61)
    """
    pixels = digit_images()[0]
    return _centred(pixels[:, pixels.std(0) > 0])


def _centred(rows: Any) -> Any:
    """Centre the rows and scale them by one number to a mean variance of one."""
    rows = rows - rows.mean(0)[None, :]
    return rows / ((rows**2).mean() ** 0.5)


def _second_moment(rows: Any) -> Any:
    return rows.T @ rows / rows.shape[0]


def _tanh_features(projection: Array) -> Array:
    """Features of all digits, (1797, p)."""
    return _centred(jnp.tanh(jnp.asarray(digits(), projection.dtype) @ projection.T / math.sqrt(PIXELS)))


def _graded(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1), with panels halving towards zero to resolve poles just below it."""
    edges = np.concatenate([[0.0], 0.5 ** np.arange(PANELS - 1, -1, -1)])
    u, w = legendre(nodes)
    length = np.diff(edges)[:, None]
    return (edges[:-1, None] + length * u[None, :]).reshape(-1), (length * w[None, :]).reshape(-1)


def _logarithmic(nodes: int, reach: Array) -> tuple[Array, Array]:
    """Nodes and weights on (0, 1): even panels in the logarithm down to e^−reach, and one panel below."""
    u, w = legendre(nodes)
    length = reach / (PANELS - 1)
    above = jnp.exp(-length * (np.arange(PANELS - 1)[:, None] + u[None, :]).reshape(-1))
    least = jnp.exp(-reach)
    weights = length * above * np.tile(w, PANELS - 1)
    return jnp.concatenate([above, least * u]), jnp.concatenate([weights, least * w])


def _two_clouds(model: Any) -> np.ndarray:
    ramp = (np.arange(32) + 0.5) / 16
    return np.stack([ramp, 2 * ramp[::-1]])


class RandomLabels(Model):
    """Minimal training loss on random labels: Gaussian inputs of any covariance, clouds, and handwritten digits.

    >>> import solvable as sv
    >>> model = sv.RandomLabels(inputs="ramp", samples=[1.5, 3.0], penalty=0.0)
    >>> [round(float(v), 6) for v in model.theory().train_loss]
    [0.0, 0.48587]
    """

    id = "random-labels"
    title = "Random labels: capacity and universality"
    family = "replica"
    sentence = (
        "Minimal training loss on random labels: capacity, any covariance, clouds, and handwritten digits "
        "for comparison."
    )
    method = "Gaussian covariate saddle point, one pair of order parameters per cloud"
    numerics = Numerics(nodes=14, spectrum_nodes=10, tolerance=1e-11, max_steps=400)
    simulation_dtype = "float64"
    typical_sizes = (50, 100, 200)
    theory_seconds = 1e-3
    simulation_seconds = 0.15
    simulation_growth = 2.5
    inconclusive = 0.65  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"loss": ["square", "logistic", "hinge"], "inputs": ["power-law", "clouds"]},
         "values": {"samples": 1.5}},
        {"over": {"loss": ["square", "logistic", "hinge"]}, "values": {"inputs": "ramp", "samples": 3.0, "penalty": 0.0}},
    )  # fmt: skip
    references = (
        Reference(
            "gerace2024gaussian", "F. Gerace, F. Krzakala, B. Loureiro, L. Stephan and L. Zdeborová", "Gaussian universality "
            "of perceptrons with random labels", 2024, "Phys. Rev. E 109, 034305", arxiv="2205.13303"),
        Reference(
            "cover1965geometrical", "T. M. Cover", "Geometrical and statistical properties of systems of linear "
            "inequalities with applications in pattern recognition", 1965, "IEEE Trans. Electron. Comput. 14, 326"),
        LEARNING_CURVES,
    )  # fmt: skip

    samples: Control = control(
        3.0, low=0.0, low_open=True, high=1e4, typical=(0.2, 8.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="training samples per input dimension, n/p")  # fmt: skip
    penalty: Control = control(
        0.05, low=0.0, high=1e6, typical=(1e-4, 1e2), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 added to the sum of the losses; 0 is the limit λ → 0⁺")  # fmt: skip
    decay: Control = control(
        0.6, low=0.0, high=0.9, typical=(0.0, 0.9), symbol="a",
        meaning="exponent of the eigenvalues, ω_i ∝ i^−a with mean one (power-law)",
        when={"inputs": "power-law"})  # fmt: skip
    separation: Control = control(
        3.0, low=0.0, high=100.0, typical=(0.0, 5.0), symbol=r"|\mu|",
        meaning="length of the clouds' means, of random direction (clouds); the theory does not depend on it",
        when={"inputs": "clouds"})  # fmt: skip
    loss: str = choice("logistic", options=("square", "logistic", "hinge"), symbol=r"\ell", meaning="training loss")
    inputs: str = choice(
        "isotropic", options=(*SYNTHETIC, "digits", "digits-tanh", "given"), symbol=r"\Omega",
        meaning="inputs: Gaussian with a named covariance, Gaussian clouds, handwritten digits, or your own rows")  # fmt: skip
    spectra: Input = input(
        _two_clouds, dims=("cloud", "eigenvalue"), low=0.0, symbol=r"\omega^k_i",
        meaning="eigenvalues of each cloud's covariance in the common basis; one row is a Gaussian of any spectrum")  # fmt: skip
    shares: Input = input(
        lambda m: np.array([0.3, 0.7]), dims=("cloud",), low=0.0, high=1.0, symbol="r_k",
        meaning="probability of each cloud, summing to one")  # fmt: skip
    rows: Input | None = data(
        dims=("row", "feature"), symbol="X", meaning="your own inputs, one in each row (given)",
        when={"inputs": "given"})  # fmt: skip
    projection: Input | None = data(
        dims=("feature", "pixel"), symbol="G", meaning="projection of the pixels (digits-tanh), drawn by `prepare`")  # fmt: skip
    eigenvalues: Input | None = data(
        dims=("feature",), symbol=r"\omega_i",
        meaning="eigenvalues of the features' covariance (digits-tanh), from `prepare`")  # fmt: skip

    main_declared = ("train_loss", "train_error", "norm")
    observables_declared = (
        observable("train_loss", "mean loss ℓ over the training samples, penalty not included", symbol=r"\mathcal{L}_t",
                   low=0),
        observable("train_error", "fraction of training samples with a wrong sign", low=0, high=1, fraction_of="samples"),
        observable("norm", "mean square of the student's field on a fresh input, around its mean in the input's cloud",
                   symbol="q", low=0, when={"inputs": SYNTHETIC}),
        observable("response", "how strongly the prediction on a sample follows that sample, averaged over clouds",
                   symbol="V", low=0, simulated=False),
        observable("capacity", "samples per dimension up to which the training loss vanishes for λ → 0⁺",
                   symbol=r"\alpha_c", low=0, simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        if (self.inputs == "given") != (self.rows is not None):
            raise InvalidValue("inputs = 'given' needs rows, and only inputs = 'given' takes them.")
        if self.rows is not None and not isinstance(self.rows, Tracer) and np.asarray(self.rows).std(0).max() == 0:
            raise InvalidValue("rows has no column that varies: at least one must.")
        if isinstance(self.shares, Tracer) or isinstance(self.spectra, Tracer):
            return
        shares, spectra = np.asarray(self.shares), np.asarray(self.spectra)
        if abs(shares.sum() - 1) > 1e-9 or shares.min() <= 0:
            raise InvalidValue(
                f"shares = {shares.tolist()} must be positive numbers that sum to 1, one for each cloud."
            )
        if spectra.size == 0 or not (spectra.max(1) > 0).all():
            raise InvalidValue(
                "spectra has a cloud without a positive eigenvalue: every cloud needs at least one in (0, ∞)."
            )

    # --- theory -----------------------------------------------------------------------------------------------------

    def _directions(self, nodes: int) -> tuple[Array, Array, Array]:
        """Eigenvalues of the clouds, weights of the directions, shares of the clouds."""
        one = jnp.ones(1)
        if self.inputs == "clouds":
            number = self.spectra.shape[1]
            return self.spectra, jnp.full(number, 1 / number), self.shares
        if self.inputs == "ramp":
            x, weights = (jnp.asarray(v) for v in _graded(nodes))
            return 2 * x[None, :], weights, one
        if self.inputs == "power-law":
            # ω = (1 − a)x^−a, x uniform in (0, 1): with t = x^(1−a) the mean of ω is the integral over t.
            # With g = a/(1−a) the mean of ω² is that of t^−g over t: all scales of t contribute until λ < ωV̂. Hence even
            # panels in log t, where 1/(λ + ωV̂) has poles at ±iπ/g; e^70 allows for λ/V̂ = 1e15.
            g = self.decay / (1 - self.decay)
            reach = jnp.minimum(70 / jnp.maximum(g, 0.1), 30 / jnp.maximum(1 - g, 0.1))
            t, parts = _logarithmic(nodes, jax.lax.stop_gradient(reach))
            power = t**g / (1 - self.decay)
            return (1 / power)[None, :], power * parts, one
        if self.inputs == "isotropic":
            return jnp.ones((1, 1)), one, one
        if self.inputs == "digits":
            omega = jnp.asarray(_digit_eigenvalues())
        elif self.inputs == "given":
            values = jnp.linalg.eigvalsh(_second_moment(_centred(self.rows)))
            omega = jnp.where(values > FLAT * values[-1], values, 0.0)
        else:
            assert self.eigenvalues is not None
            omega = self.eigenvalues
        return omega[None, :], jnp.full(omega.shape[0], 1 / omega.shape[0]), one

    def point(self, numerics: Numerics) -> dict[str, Array]:
        spectra, weights, shares = self._directions(numerics.spectrum_nodes)
        rank = weights @ (jnp.max(spectra, axis=0) > 0).astype(float)
        capacity = jnp.where(rank > 1 - 1e-9, 1.0, rank) * (1.0 if self.loss == "square" else 2.0)
        below = (self.penalty <= 0) & (self.samples <= capacity)
        # Where there is nothing to solve, solve a harmless problem instead; its result is not used.
        samples, penalty = self.samples, self.penalty
        if self.loss == "logistic":
            samples = jnp.where(below, 2 * capacity, samples)
        elif self.loss == "hinge" or spectra.shape[0] > 1:
            penalty = jnp.where(below, LEAST, penalty)
        found = random_labels_of_clouds(
            loss_named(self.loss), spectra, weights, shares, samples, penalty,
            nodes=numerics.nodes, tolerance=numerics.tolerance, max_steps=numerics.max_steps,
        )  # fmt: skip
        values = {
            "train_loss": jnp.where(below, 0.0, shares @ found.train_loss),
            "train_error": jnp.where(below, 0.0, shares @ found.train_error),
            "response": jnp.where(below, jnp.inf, shares @ found.V),
            "capacity": capacity,
            "converged": found.converged,
            "residual": found.residual,
        }
        if self.inputs in SYNTHETIC:
            norm = shares @ found.q
            values["norm"] = jnp.where(below, jnp.inf, norm) if self.loss == "logistic" else norm
        return values

    def transition(self, along: str) -> Array:
        """Positive above the capacity."""
        return jnp.log(self.samples / self.theory(only=["capacity"]).capacity)

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        """The capacity in the plane of a control and the samples."""
        if y != "samples" or self.unprepared:
            return {}
        at = self.replace(samples=1.0, **({} if x == "samples" else {x: values}))
        return {"capacity": np.asarray(at.theory(only=["capacity"]).capacity) * np.ones_like(values)}

    # --- digits -----------------------------------------------------------------------------------------------------

    @property
    def unprepared(self) -> bool:
        return self.inputs == "digits-tanh" and self.eigenvalues is None

    def prepare(self, key: PRNGKeyArray, size: int) -> RandomLabels:
        """Draw the projection of the features and diagonalise their covariance over all digits."""
        if self.inputs != "digits-tanh":
            return self
        if (number := round(float(self.samples) * size)) > DIGITS:
            raise InvalidValue(f"samples gives {number} samples at size = {size}, but there are only {DIGITS} digits.")
        projection = jax.random.normal(key, (size, PIXELS), float)
        rows = np.asarray(_tanh_features(projection))
        return self.replace(projection=projection, eigenvalues=_eigenvalues(rows))

    # --- simulation -------------------------------------------------------------------------------------------------

    def _eigenvalues_of(self, size: int) -> Array:
        """Eigenvalues of the clouds at this size, (cloud, size): means over equal quantile bins of their law."""
        place = np.arange(size)
        if self.inputs == "isotropic":
            return jnp.ones((1, size))
        if self.inputs == "ramp":
            return jnp.asarray((2 * place + 1) / size)[None, :]
        if self.inputs == "power-law":
            edges = jnp.asarray(np.arange(size + 1) / size) ** (1 - self.decay)
            return (size * (edges[1:] - edges[:-1]))[None, :]
        number = self.spectra.shape[1]
        return self.spectra[:, ((2 * place + 1) * number) // (2 * size)]

    def _draw(self, key: PRNGKeyArray, size: int, rows: int, dtype: Any) -> tuple[Array, Array | None]:
        """Inputs, and the eigenvalues of the clouds if they are Gaussian."""
        if self.inputs in SYNTHETIC:
            omega = self._eigenvalues_of(size).astype(dtype)
            of_inputs, of_clouds, of_means = jax.random.split(key, 3)
            inputs = jax.random.normal(of_inputs, (rows, size), dtype)
            if self.inputs != "clouds":
                return inputs * jnp.sqrt(omega), omega
            shares = self.shares.astype(dtype)
            cloud = jax.random.choice(of_clouds, omega.shape[0], (rows,), p=shares)
            means = jax.random.normal(of_means, omega.shape, dtype)
            means = self.separation.astype(dtype) * means / jnp.linalg.norm(means, axis=1, keepdims=True)
            return means[cloud] + inputs * jnp.sqrt(omega)[cloud], omega
        if self.inputs == "digits":
            if size != PIXELS:
                raise InvalidValue(f"size = {size} is not {PIXELS}, the number of digit pixels that vary.")
            every = jnp.asarray(digits(), dtype)
        elif self.inputs == "given":
            assert self.rows is not None
            if self.rows.shape[1] != size:
                raise InvalidValue(f"size = {size} is not {self.rows.shape[1]}, the number of columns of rows.")
            every = _centred(self.rows).astype(dtype)
        else:
            assert self.projection is not None
            if self.projection.shape[0] != size:
                raise InvalidValue(f"size = {size} is not {self.projection.shape[0]}, the number of prepared features.")
            every = _tanh_features(self.projection).astype(dtype)
        order = jax.random.permutation(key, every.shape[0])
        return every[order[np.minimum(np.arange(rows), every.shape[0] - 1)]], None

    @property
    def _available(self) -> float:
        """Inputs that can be drawn."""
        if self.inputs in SYNTHETIC:
            return math.inf
        return DIGITS if self.rows is None else self.rows.shape[0]

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples = counts["samples"]
        if samples.padded > 2 * self._available:
            raise InvalidValue(
                f"samples gives more than {self._available} samples at size = {size}, but there are only "
                f"{self._available} inputs."
            )
        of_inputs, of_labels = jax.random.split(key)
        inputs, omega = self._draw(of_inputs, size, samples.padded, dtype)
        signs = jax.random.rademacher(of_labels, (samples.padded,), dtype=jnp.int32)
        labels, mask = signs.astype(dtype), samples.mask(dtype)
        inputs = inputs / math.sqrt(size)
        penalty = jnp.maximum(self.penalty, SIMULATED_LEAST).astype(dtype)
        loss = loss_named(self.loss)
        fit = minimise_risk(loss, inputs, labels, penalty, mask)
        field = inputs @ fit.weights
        number = samples.actual.astype(dtype)
        enough = samples.actual.astype(dtype) <= self._available
        measured = {
            "train_loss": mask @ loss.value(labels, field) / number,
            "train_error": mask @ (labels * field < 0).astype(dtype) / number,
            "converged": (fit.residual < 1e-3) & enough,
            "residual": fit.residual,
        }
        if omega is not None:
            shares = self.shares.astype(dtype) if self.inputs == "clouds" else jnp.ones(1, dtype)
            measured["norm"] = shares @ omega @ fit.weights**2 / size
        return measured


def _eigenvalues(rows: np.ndarray) -> np.ndarray:
    values = np.linalg.eigvalsh(_second_moment(rows))
    return np.where(values > FLAT * values[-1], values, 0.0)


@cache
def _digit_eigenvalues() -> np.ndarray:
    return _eigenvalues(digits())
