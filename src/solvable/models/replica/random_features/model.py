"""Generalised linear learning on nonlinear random features: double descent, and the hidden manifold model.

**Two readings.** *Random features*: the learner is given c; F is a fixed random first layer of width p. *Hidden manifold*: the
learner is given x, data in p dimensions on a manifold with d coordinates c, on which the labels depend. The mathematics is the
same; in the second reading samples per input are n/p = `samples`/`width`, and d/p = 1/`width`.

**Data.** Latent inputs c ~ N(0, 1_d). A teacher θ with |θ|² = d labels them through ν = θ·c/√d: y = sign(ν + √Δ ζ)
(*sign*) or y = ν + √Δ ζ (*linear*). The student sees p features x = σ(Fᵀc/√d) of a random projection F (d×p) with
E F² = 1: Gaussian entries, or orthogonal (FᵀF = d·1 for p ≤ d, FFᵀ = p·1 for p > d).

**Learner.** ŵ = argmin_w Σ_μ ℓ(y_μ, w·x_μ/√p) + λ|w|²/2 over n samples: the *sum* of the losses.

**Theory** (Gerace et al. 2020; n, p, d → ∞ together). By Gaussian equivalence x acts like κ1 Fᵀc/√d + κ⋆ z, with
κ1 = E zσ(z) and κ⋆² = E σ² − κ1²; this is a Gaussian covariate model with ω = κ1²s + κ⋆² and τ = κ1²s·p/d over the
spectrum s of FᵀF/d (`methods.risk.covariate`). The order parameters are moments of fields on a fresh input: m = E νz and
q = E z² with the student's field z = ŵ·x/√p. Activations have no mean: erf(·/√2), sign and tanh are odd, and from relu
its mean 1/√(2π) is subtracted. (If the mean is kept, the features have one more direction of variance O(p), which
carries no information about balanced labels.) Other activations: `methods.random_matrices.spectra.nonlinearity` with
`methods.risk.covariate.learn`.

**Thresholds.** The square loss reaches zero at n = p, where its norm and test error peak for λ → 0. Logistic and hinge losses
reach it where the labels become separable (`methods.risk.separability`), with fewer features. At the best penalty
(`best_penalty`) neither leaves a trace.

**Simulation.** Draw F, teacher and samples, apply the nonlinearity itself (not its Gaussian equivalent), minimise the
risk, and measure everything about fresh inputs on a test set of its own: Gaussian equivalence is tested, not assumed.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.errors import InvalidValue
from solvable.methods.risk.channels import sign_risks
from solvable.methods.risk.covariate import (
    ACTIVATIONS,
    BestPenalty,
    Linear,
    Sign,
    Spectrum,
    Student,
    activation_named,
    best_penalty,
    features,
    separability_threshold,
    student,
)
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.model import Control, Guard, Model, Numerics, Reference, choice, observable

from .._labels import (
    RESPONSE,
    RISKS,
    loss_field,
    noise_field,
    penalty_field,
    ratio_field,
    refuse_loss_without_labels,
    teacher_field,
)
from .._papers import LEARNING_CURVES

TEST_SAMPLES = 4096


class RandomFeatures(Model):
    """Linear learning on p random nonlinear features of d-dimensional Gaussian inputs with a teacher in the inputs.

    >>> import solvable as sv
    >>> model = sv.RandomFeatures(activation="tanh", samples=3.0, width=2.0, penalty=0.1)
    >>> round(float(model.theory().test_error), 8)
    0.20474699
    """

    id = "random-features"
    title = "Random features and the hidden manifold"
    family = "replica"
    sentence = "A generalised linear model learns on random nonlinear features of its inputs: double descent."
    method = "Gaussian covariate saddle point"
    numerics = Numerics(nodes=14, spectrum_nodes=96, tolerance=1e-11, max_steps=400)
    simulation_dtype = "float64"  # small penalties near interpolation are ill-conditioned
    typical_sizes = (50, 100, 200)
    theory_seconds = 5e-4
    simulation_seconds = 0.4
    simulation_growth = 2.5
    inconclusive = 0.25  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"loss": ["square", "logistic", "hinge"], "penalty": [0.01, 1.0]},
         "values": {"samples": 1.5, "width": 1.0, "noise": 0.1}},
        {"over": {"penalty": [0.01, 1.0]},
         "values": {"teacher": "linear", "loss": "square", "projection": "orthogonal", "activation": "relu"}},
    )  # fmt: skip
    guard = Guard(values={"activation": "tanh", "projection": "orthogonal"})
    references = (
        Reference(
            "gerace2020generalisation", "F. Gerace, B. Loureiro, F. Krzakala, M. Mézard and L. Zdeborová", "Generalisation "
            "error in learning with random features and the hidden manifold model", 2020, "ICML 37", arxiv="2002.09339"),
        LEARNING_CURVES,
        Reference(
            "mei2022generalization", "S. Mei and A. Montanari", "The generalization error of random features regression: "
            "precise asymptotics and the double descent curve", 2022, "Comm. Pure Appl. Math. 75, 667",
            arxiv="1908.05355"),
    )  # fmt: skip

    samples: Control = ratio_field(3.0, "n/d", "training samples per latent dimension, n/d")
    width: Control = ratio_field(2.0, "p/d", "features per latent dimension, p/d")
    penalty: Control = penalty_field()
    noise: Control = noise_field()
    loss: str = loss_field()
    teacher: str = teacher_field()
    activation: str = choice("erf", options=ACTIVATIONS, symbol=r"\sigma", meaning="nonlinearity of the features, "
                             "without mean: erf is erf(z/√2), relu is max(z, 0) − 1/√(2π)")  # fmt: skip
    projection: str = choice(
        "gaussian", options=("gaussian", "orthogonal"), symbol="F", meaning="law of the projection"
    )

    main_declared = ("test_error", "test_loss", "train_loss", "overlap")
    observables_declared = (
        *RISKS,
        observable("overlap", "covariance of the student's and the teacher's fields on a fresh input", symbol="m"),
        observable("norm", "mean square of the student's field on a fresh input", symbol="q", low=0),
        RESPONSE,
    )  # fmt: skip

    def validate(self) -> None:
        refuse_loss_without_labels(self.loss, self.teacher)

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        student = self._student(numerics)
        m, q, V, rest = student.m, student.q, student.V, student.rest
        if self.teacher == "linear":
            test_loss = 0.5 * (1 + self.noise - 2 * m + q)
            risks = {"test_loss": test_loss, "train_loss": test_loss / (1 + V) ** 2}
        else:
            risks = sign_risks(loss_named(self.loss), m, q, V, rest, numerics.nodes)._asdict()
        return {
            **risks,
            "overlap": m,
            "norm": q,
            "response": V,
            "converged": student.converged,
            "residual": student.residual,
        }

    def _spectrum(self, nodes: int) -> Spectrum:
        return features(self.width, self.activation, self.projection, nodes)

    def _teacher(self) -> Linear | Sign:
        return Linear(self.noise) if self.teacher == "linear" else Sign(self.noise)

    def _student(self, numerics: Numerics) -> Student:
        return student(
            loss_named(self.loss),
            self._teacher(),
            self._spectrum(numerics.spectrum_nodes),
            self.samples / self.width,
            self.penalty,
            nodes=numerics.nodes,
            tolerance=numerics.tolerance,
            max_steps=numerics.max_steps,
        )

    def best_penalty(
        self, minimise: str | None = None, between: tuple[float, float] = (1e-6, 1e4), numerics: dict | None = None
    ) -> BestPenalty:
        """The penalty that minimises an observable at every point of the other controls, by gradients of the theory.

        `minimise` defaults to `test_error` (`test_loss` for a linear teacher); the model's own penalty is ignored.
        """
        target = minimise or ("test_loss" if self.teacher == "linear" else "test_error")
        if target not in (known := [n for n in ("test_error", "test_loss") if n in self.observables()]):
            raise InvalidValue(f"minimise = {target!r} is not one of {', '.join(map(repr, known))}.")
        return _best_penalties(self, target, between, type(self).numerics.updated(numerics))

    def threshold(self, numerics: Numerics) -> Array:
        """Samples n/d at which the training loss leaves zero for λ → 0: n = p for the square loss, separability for others."""
        if self.loss == "square":
            return self.width
        return self.width * separability_threshold(self._spectrum(numerics.spectrum_nodes), Sign(self.noise))

    def transition(self, along: str) -> Array:
        """Positive where the training loss stays above zero for λ → 0: samples beyond the threshold, relative to it."""
        return jnp.log(self.samples / _thresholds(self, type(self).numerics))

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        """Interpolation (square loss) or separability (others) in the plane of width and samples."""
        name = "interpolation, n = p" if self.loss == "square" else "separability"
        if (x, y) == ("width", "samples"):
            found = _thresholds(self.replace(width=values, samples=1.0, penalty=1.0), type(self).numerics)
            return {name: np.asarray(found) * np.ones_like(values)}
        if (x, y) == ("samples", "width"):  # the line is monotone in the width, so it can be inverted
            widths = np.geomspace(1e-3, 1e3, 241)
            found = _thresholds(self.replace(width=widths, samples=1.0, penalty=1.0), type(self).numerics)
            line = np.interp(np.log(values), np.log(np.asarray(found)), np.log(widths), left=np.nan, right=np.nan)
            return {name: np.exp(line)}
        return {}

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples, width = counts["samples"], counts["width"]
        of_features, of_inputs = jax.random.split(key)
        # Teacher and test set are drawn first, so that the row of a feature or sample does not depend on the padding.
        rows, columns = 1 + TEST_SAMPLES + samples.padded, size + 1
        draws = jax.random.normal(of_inputs, (rows * columns,), dtype).reshape(rows, columns)
        teacher = draws[0, :size]
        teacher = teacher / jnp.linalg.norm(teacher)  # θ/√d
        latent = draws[1:, :size]
        field = latent @ teacher
        noisy = field + jnp.sqrt(self.noise).astype(dtype) * draws[1:, size]
        labels = jnp.where(noisy >= 0, jnp.ones_like(noisy), -jnp.ones_like(noisy)) if self.teacher == "sign" else noisy

        present = width.mask(dtype)  # padded features are columns of zeros, whose weights vanish
        projection = jax.random.normal(of_features, (width.padded * size,), dtype).reshape(width.padded, size)
        projection = projection * present[:, None]
        if self.projection == "orthogonal":
            projection = _orthogonal(projection, width.actual)
        sigma = activation_named(self.activation).function
        scale = present / jnp.sqrt(width.actual.astype(dtype))
        features = sigma(latent @ projection.T / math.sqrt(size)) * scale[None, :]

        loss, mask = loss_named(self.loss), samples.mask(dtype)
        train, test = slice(TEST_SAMPLES, None), slice(0, TEST_SAMPLES)
        fit = minimise_risk(loss, features[train], labels[train], self.penalty.astype(dtype), mask)
        prediction = features @ fit.weights
        number = samples.actual.astype(dtype)
        losses = loss.value(labels, prediction)
        measured = {
            "test_loss": jnp.mean(losses[test]),
            "train_loss": mask @ losses[train] / number,
            "overlap": jnp.mean(field[test] * prediction[test]),
            "norm": jnp.mean(prediction[test] ** 2),
            "converged": fit.residual < 1e-3,
            "residual": fit.residual,
        }
        if self.teacher == "linear":
            return measured
        wrong = (labels * prediction < 0).astype(dtype)
        return measured | {"test_error": jnp.mean(wrong[test]), "train_error": mask @ wrong[train] / number}


def _over_controls(function: Any, model: RandomFeatures, lanes: int) -> Any:
    """Map a function of scalar controls over the broadcast controls, in chunks."""
    shape = model.shape
    flat = {n: jnp.broadcast_to(v, shape).reshape(-1) for n, v in model.controls().items()}
    found = jax.lax.map(lambda c: function(model.with_values(c)), flat, batch_size=lanes)
    return jax.tree.map(lambda v: v.reshape(shape), found)


@eqx.filter_jit
def _best_penalties(
    model: RandomFeatures, minimise: str, between: tuple[float, float], numerics: Numerics
) -> BestPenalty:
    def point(m: RandomFeatures) -> BestPenalty:
        spectrum, ratio = m._spectrum(numerics.spectrum_nodes), m.samples / m.width
        return best_penalty(
            m.loss, m._teacher(), spectrum, ratio, minimise=minimise, between=between, nodes=numerics.nodes
        )

    return _over_controls(point, model, 128)


@eqx.filter_jit
def _thresholds(model: RandomFeatures, numerics: Numerics) -> Array:
    return _over_controls(lambda m: m.threshold(numerics), model, 256)


def _orthogonal(rows: Array, actual: Array) -> Array:
    """The polar factor of p Gaussian rows of length d (further rows are zero), scaled to entries of variance one.

    For p ≤ d the rows become orthogonal with norm √d, for p > d the columns with norm √p.
    """
    size = rows.shape[1]
    wide = rows.astype(float)  # squaring the singular values costs half the digits
    values, vectors = jnp.linalg.eigh(wide.T @ wide)
    kept = jnp.arange(size, dtype=actual.dtype) >= size - jnp.minimum(actual, size)
    inverse = jnp.where(kept, 1 / jnp.sqrt(jnp.where(kept, values, 1.0)), 0.0)
    polar = ((wide @ vectors) * inverse[None, :]) @ vectors.T
    return (polar * jnp.sqrt(jnp.maximum(actual, size).astype(float))).astype(rows.dtype)
