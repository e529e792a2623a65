"""A generalised linear student learns from a teacher by empirical-risk minimisation: the perceptron.

**Data.** Inputs x ~ N(0, 1_d). A teacher w₀ with |w₀|² = d labels them through its field ν = w₀·x/√d:
y = sign(ν + √Δ ζ) (*sign*) or y = ν + √Δ ζ (*linear*), ζ standard Gaussian.

**Learner.** ŵ = argmin_w Σ_μ ℓ(y_μ, w·x_μ/√d) + λ|w|²/2 over n = αd samples: the *sum* of the losses.

**Theory** (replica symmetric, exact for convex losses; Gardner and Derrida 1989; Loureiro et al. 2021). With the
output channel's conjugates per sample (`methods.risk.channels`) the saddle point in m = ŵ·w₀/d, q = |ŵ|²/d and V is

    V = 1/(λ + αV̂),   m = αm̂ V,   q = V²(α²m̂² + αq̂).

**Simulation.** Draw teacher and samples, minimise the risk (normal equations, Newton, interior point), and measure m and
q; test averages are exact Gaussian averages given the weights.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array

from solvable.methods.averages.quadrature import gaussian_average_split
from solvable.methods.fixed_points.saddle import solve
from solvable.methods.risk.channels import bayes_sign_conjugate, sign_channel, sign_risks, square_student
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.model import Control, Model, Numerics, Reference, observable

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


class Perceptron(Model):
    """Teacher–student generalised linear model with Gaussian inputs and a ridge penalty.

    >>> import solvable as sv
    >>> round(float(sv.Perceptron(loss="logistic", samples=2.0, penalty=0.1).theory().test_error), 8)
    0.17966239
    """

    id = "perceptron"
    title = "Teacher–student perceptron"
    family = "replica"
    sentence = "A generalised linear model learns from a sign or linear teacher by ridge-penalised empirical risk."
    method = "replica saddle point, exact for convex losses"
    # 14 nodes would do but for thousands of clean samples, where the norm magnifies errors of the averages by 10⁴
    numerics = Numerics(nodes=24, tolerance=1e-11, max_steps=400)
    typical_sizes = (50, 100, 200)
    theory_seconds = 5e-4
    simulation_seconds = 0.01
    inconclusive = 0.2  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"loss": ["square", "logistic", "hinge"], "samples": [0.5, 2.0]}, "values": {"noise": 0.1}},
        {"over": {"samples": [0.5, 2.0]}, "values": {"teacher": "linear", "loss": "square", "noise": 0.2}},
    )
    references = (
        Reference(
            "gardner1989three", "E. Gardner and B. Derrida", "Three unfinished works on the optimal storage capacity of "
            "networks", 1989, "J. Phys. A 22, 1983", doi="10.1088/0305-4470/22/12/004"),
        LEARNING_CURVES,
        Reference(
            "barbier2019optimal", "J. Barbier, F. Krzakala, N. Macris, L. Miolane and L. Zdeborová", "Optimal errors and "
            "phase transitions in high-dimensional generalized linear models", 2019, "PNAS 116, 5451", arxiv="1708.03395"),
    )  # fmt: skip

    samples: Control = ratio_field(2.0, r"\alpha", "training samples per dimension, n/d")
    penalty: Control = penalty_field()
    noise: Control = noise_field()
    loss: str = loss_field()
    teacher: str = teacher_field()

    main_declared = ("test_error", "test_loss", "train_loss", "overlap")
    observables_declared = (
        *RISKS,
        observable("overlap", "student–teacher overlap ŵ·w₀/d", symbol="m"),
        observable("norm", "squared norm of the student |ŵ|²/d", symbol="q", low=0),
        RESPONSE,
        observable("bayes_error", "error of the Bayes-optimal student, a lower bound for every learner", low=0, high=1,
                   simulated=False, when={"teacher": "sign"}),
    )  # fmt: skip

    def validate(self) -> None:
        refuse_loss_without_labels(self.loss, self.teacher)

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        if self.teacher == "linear":
            m, q, V = square_student(self.samples, self.penalty, 1 + self.noise, jnp.ones(()))
            test_loss = 0.5 * (1 + self.noise - 2 * m + q)
            train_loss = test_loss / (1 + V) ** 2
            return {"test_loss": test_loss, "train_loss": train_loss, "overlap": m, "norm": q, "response": V}
        m, q, V, rest, converged, residual = self._saddle_point(numerics)
        risks = sign_risks(loss_named(self.loss), m, q, V, rest, numerics.nodes)
        bayes_error, bayes_converged = self._bayes(numerics)
        return {
            **risks._asdict(),
            "overlap": m,
            "norm": q,
            "response": V,
            "bayes_error": bayes_error,
            "converged": converged & bayes_converged,
            "residual": residual,
        }

    def _saddle_point(self, numerics: Numerics):
        """(m, q, V), the unexplained variance 1 − m²/q + Δ of the teacher's noisy field, convergence and residual.

        The unknowns are the logarithms of αm̂, αq̂ and V, so that V > 0 and q > m² at every iterate.
        """
        labels = jnp.ones(()), jnp.sqrt(2 / (np.pi * (1 + self.noise)))
        if self.loss == "square":
            m, q, V = square_student(self.samples, self.penalty, *labels)
            return m, q, V, 1 - m**2 / q + self.noise, jnp.asarray(True), jnp.zeros(())

        def order_parameters(x, noise):
            m_hat, q_hat, V = jnp.exp(x)
            return m_hat * V, V**2 * (m_hat**2 + q_hat), V, q_hat / (m_hat**2 + q_hat) + noise

        def update(x, args):
            samples, penalty, noise = args
            hat = sign_channel(loss_named(self.loss), *order_parameters(x, noise), numerics.nodes)
            V = 1 / (penalty + samples * hat.response)
            return jnp.log(jnp.stack([samples * hat.overlap, samples * hat.norm, V]))

        # Ridge regression at the same point is a good start: same scale, same sign, closed form.
        m, q, V = square_student(self.samples, jnp.maximum(self.penalty, 1e-3), *labels)
        start = jnp.log(jnp.stack([m / V, (q - m**2) / V**2, V]))
        found = solve(
            update,
            start,
            (self.samples, self.penalty, self.noise),
            tolerance=numerics.tolerance,
            max_steps=numerics.max_steps,
        )
        return *order_parameters(found.x, self.noise), found.converged, found.residual

    def _bayes(self, numerics: Numerics):
        """Error of the Bayes-optimal student: q = q̂/(1+q̂), overlap with the teacher √q."""

        def update(x, args):
            samples, noise = args
            q, rest = jax.nn.sigmoid(x[0]), jax.nn.sigmoid(-x[0])
            return jnp.log(samples * bayes_sign_conjugate(q, noise, numerics.nodes, rest))[None]

        found = solve(
            update,
            jnp.log(self.samples)[None],
            (self.samples, self.noise),
            tolerance=numerics.tolerance,
            max_steps=numerics.max_steps,
        )
        # The angle between student and teacher, computed from 1 − q without cancellation.
        angle = jnp.arctan2(jnp.sqrt(jax.nn.sigmoid(-found.x[0]) + self.noise), jnp.sqrt(jax.nn.sigmoid(found.x[0])))
        return angle / np.pi, found.converged

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples = counts["samples"]
        # A single draw, because each costs half a second of compilation. Row 0 is the teacher, the others are samples
        # (inputs and label noise), so that unmasked rows do not depend on the padding.
        rows, columns = samples.padded + 1, size + 1
        draws = jax.random.normal(key, (rows * columns,), dtype).reshape(rows, columns)
        teacher = draws[0, :size]
        teacher = teacher * (math.sqrt(size) / jnp.linalg.norm(teacher))
        inputs = draws[1:, :size] / math.sqrt(size)
        field = inputs @ teacher + jnp.sqrt(self.noise).astype(dtype) * draws[1:, size]
        labels = jnp.where(field >= 0, jnp.ones_like(field), -jnp.ones_like(field)) if self.teacher == "sign" else field
        loss, mask = loss_named(self.loss), samples.mask(dtype)
        fit = minimise_risk(loss, inputs, labels, self.penalty.astype(dtype), mask)

        w = fit.weights
        prediction = inputs @ w
        number = samples.actual.astype(dtype)
        m, q = (w @ teacher / size).astype(float), (w @ w / size).astype(float)
        measured = {
            "train_loss": mask @ loss.value(labels, prediction) / number,
            "overlap": m,
            "norm": q,
            "converged": fit.residual < 1e-3,
            "residual": fit.residual,
        }
        if self.teacher == "linear":
            return measured | {"test_loss": 0.5 * (1 + self.noise - 2 * m + q)}
        cosine = m / jnp.sqrt(q * (1 + self.noise))
        return measured | {
            "train_error": mask @ (labels * prediction < 0).astype(dtype) / number,
            "test_error": jnp.arccos(jnp.clip(cosine, -1.0, 1.0)) / np.pi,
            "test_loss": self._population_loss(q, cosine),
        }

    def _population_loss(self, q: Array, cosine: Array) -> Array:
        """E ℓ(y, z) given the weights, with z = √q ξ and a label whose field is `cosine`·ξ plus an independent part."""
        tilt = cosine / jnp.sqrt(jnp.maximum(1 - cosine**2, 1e-12))
        step, root = 6 / jnp.maximum(jnp.abs(tilt), 1e-3), jnp.sqrt(jnp.maximum(q, 1e-12))
        breaks = jnp.concatenate([jnp.stack([-step, 0 * step, step]), jnp.asarray([-8.0, -1.0, 1.0, 8.0]) / root])
        loss = loss_named(self.loss)
        return gaussian_average_split(
            lambda xi: 2 * ndtr(tilt * xi) * loss.value(jnp.ones_like(xi), root * xi), breaks, nodes=20
        )
