r"""Fairness of one classifier, a reweighed one or two coupled ones on two groups that obey different rules.

**Data** (the teacher mixture). A sample is from group c = ±1 with probability ρ, 1−ρ. Its input is x = c v/√d + √Δ_c z, with
z ~ N(0, 1_d), and its label y = sign(W_c·x/√d + β_c). |W_±|² = |v|² = d; the geometry is the similarity of the rules
q_T = W_+·W_−/d and their tilts m_T = W_±·v/d towards the line between the groups. The label +1 is the favourable outcome.

**Learner.** ŷ = sign(w·x/√d + b), logistic loss, over n = αd samples:

- `single`: min Σ_μ k_{c,y} log(1 + exp(−y(w·x/√d + b))) + λ|w|²/2, the bias b unpenalised;
- `coupled`: a w and a b for every group, each fed its own group only, plus γ|w_+ − w_−|²/2; at γ = 0 they are independent;
- `shared`: the limit γ → ∞, one w with a bias for every group.

*Reweighing* sets the weights: k = `group_weight` for group + (1 for group −), times `positive_plus`, `positive_minus` where
y = +1. A common factor of all weights only rescales 1/λ (and 1/γ), so these three parameters are enough.

**Theory** (Sarao Mannelli, Gerace, Rostamzadeh and Saglietti 2024; exact for convex losses): the saddle point of
`teacher_mixture`. Label and prediction of a fresh input of group c are signs of two Gaussians with means
h = (c m_T + β)/√Δ and s = (c m + b)/√(ΔQ) in units of their deviations and correlation R_c/√Q, so that
P(y = 1, ŷ = 1 | c) = Φ₂(h, s; R_c/√Q), and every measure of group fairness follows (`fairness`).

**Results.** Bias persists for equal rules (q_T = 1) if the groups differ in size: a few per cent of accuracy, against tens for
orthogonal rules. The other group's samples help above q_T ≈ 0.4 to 0.6 and harm below. Tuned coupled learners are more accurate
overall than a tuned single one unless the rules are nearly equal (q_T > 0.9). They are *further* from demographic parity
wherever base rates differ (they learn them), and closer to it where base rates are equal.

**Simulation.** Draw rules and centres with exactly the Gram matrix, n samples of which ρn are in group +, minimise by L-BFGS.
Rates are population averages given the weights, by one-dimensional quadrature.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import ndtr
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.quadrature import gaussian_average_split
from solvable.methods.fixed_points.linear_algebra import orthonormal_columns
from solvable.methods.risk.lbfgs import minimise
from solvable.model import Control, FirstView, Input, Model, Numerics

from .fairness import Table, confusion, fairness
from .teacher_mixture import SIGNS, Mixture, gram_matrix, mixture_students

EDGE = 1e-12  # tolerance on the determinant of the Gram matrix: equal rules are allowed


class BiasGeometry(Model):
    """Group fairness of logistic regression on a teacher mixture: one learner, reweighed, coupled, or with two biases.

    >>> import solvable as sv
    >>> result = sv.BiasGeometry(samples=2.0, share=0.2, similarity=0.6, tilt_plus=0.3, tilt_minus=0.1).theory()
    >>> result.accuracy.round(4).tolist(), round(float(result.parity_difference), 4)
    ([0.7117, 0.7893], 0.1294)
    """

    id = "bias-geometry"
    title = "Bias and the geometry of data"
    family = "replica"
    sentence = (
        "Two groups with different rules: accuracy and fairness of one classifier, reweighed, or one for each "
        "group, coupled."
    )
    method = "replica saddle point of the teacher mixture"
    numerics = Numerics(nodes=16, tolerance=1e-11, max_steps=600)
    simulation_dtype = "float64"  # biases and small penalties are ill-conditioned
    typical_sizes = (100, 200, 400)
    theory_seconds = 3e-3
    theory_lanes = 64  # a batch waits for its slowest point
    simulation_seconds = 0.03
    first_view = FirstView(observables=("test_error",))  # a gap between groups needs a thousand seeds
    inconclusive = 0.25  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"learner": ["single", "coupled", "shared"]}, "values": {"share": 0.3, "samples": 3.0}, "seeds": 24},
        {"values": {"samples": 3.0, "share": 0.3, "similarity": 0.8, "tilt_plus": 0.4, "tilt_minus": 0.2, "spread_plus": 0.5,
                    "spread_minus": 1.5, "thresholds": [0.3, -0.2], "penalty": 0.5, "positive_plus": 2.0}, "seeds": 24},
    )  # fmt: skip
    references = (
        Reference(
            "sarao2024bias", "S. Sarao Mannelli, F. Gerace, N. Rostamzadeh and L. Saglietti", "Bias-inducing geometries: an "
            "exactly solvable data model with fairness implications", 2024, "ICML 41", arxiv="2205.15935"),
        Reference(
            "hardt2016equality", "M. Hardt, E. Price and N. Srebro", "Equality of opportunity in supervised learning", 2016,
            "NeurIPS 29", arxiv="1610.02413"),
        Reference(
            "kamiran2012data", "F. Kamiran and T. Calders", "Data preprocessing techniques for classification without "
            "discrimination", 2012, "Knowledge and Information Systems 33, 1", doi="10.1007/s10115-011-0463-8"),
    )  # fmt: skip

    samples: Control = control(
        2.0, low=0.0, low_open=True, high=1e3, typical=(0.3, 10.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="training samples per dimension, n/d, of both groups together")  # fmt: skip
    share: Control = control(
        0.2, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.05, 0.95), symbol=r"\rho",
        meaning="fraction of all samples that belong to group +")  # fmt: skip
    similarity: Control = control(
        0.6,
        low=-1.0,
        high=1.0,
        typical=(0.0, 0.9),
        symbol=r"q_T",
        meaning="overlap of the two groups' rules, W_+·W_−/d",
    )
    tilt_plus: Control = control(
        0.3, low=-1.0, high=1.0, typical=(0.0, 0.4), symbol=r"m_T^+",
        meaning="overlap of group +'s rule with the line between the groups, W_+·v/d")  # fmt: skip
    tilt_minus: Control = control(
        0.1,
        low=-1.0,
        high=1.0,
        typical=(0.0, 0.4),
        symbol=r"m_T^-",
        meaning="overlap of group −'s rule with the line between the groups, W_−·v/d",
    )
    spread_plus: Control = control(
        1.0, low=1e-3, high=1e3, typical=(0.2, 3.0), scale="log", symbol=r"\Delta_+",
        meaning="variance of group +'s inputs")  # fmt: skip
    spread_minus: Control = control(
        1.0, low=1e-3, high=1e3, typical=(0.2, 3.0), scale="log", symbol=r"\Delta_-",
        meaning="variance of group −'s inputs")  # fmt: skip
    penalty: Control = control(
        0.1, low=1e-6, high=1e4, typical=(1e-3, 10.0), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 of every learner, added to the sum of the weighted losses")  # fmt: skip
    coupling: Control = control(
        1.0, low=0.0, high=1e9, typical=(1e-3, 1e2), scale="log", symbol=r"\gamma",
        meaning="coupling γ|w_+ − w_−|²/2 between the learners of the two groups (coupled)",
        when={"learner": "coupled"})  # fmt: skip
    group_weight: Control = control(
        1.0, low=1e-3, high=1e3, typical=(0.2, 5.0), scale="log", symbol=r"k_+",
        meaning="weight of a sample of group +, relative to one of group − with label −1")  # fmt: skip
    positive_plus: Control = control(
        1.0, low=1e-3, high=1e3, typical=(0.2, 5.0), scale="log", symbol=r"k_{+,1}/k_+",
        meaning="additional weight factor for label +1 in group +")  # fmt: skip
    positive_minus: Control = control(
        1.0, low=1e-3, high=1e3, typical=(0.2, 5.0), scale="log", symbol=r"k_{-,1}",
        meaning="additional weight factor for label +1 in group −")  # fmt: skip
    learner: str = choice(
        "single", options=("single", "coupled", "shared"),
        meaning="one learner; one for each group, coupled; or one w with a bias for each group")  # fmt: skip
    thresholds: Input = input(
        np.zeros(2), dims=("groups",), low=-100.0, high=100.0, symbol=r"\beta_\pm",
        meaning="thresholds added to the fields of the rules of group + and −")  # fmt: skip

    dimensions_declared = (
        dimension("group", "group of the samples"),
        dimension("rule", "group whose rule is meant"),
    )
    main_declared = ("test_error", "accuracy", "accuracy_gap", "disparate_impact")
    observables_declared = (
        observable("test_error", "probability of a wrong label on a fresh sample of either group", low=0, high=1,
                   symbol=r"\varepsilon_g"),
        observable("accuracy", "P(ŷ = y) in group + and −", dims=("group",), low=0, high=1),
        observable("selection_rate", "P(ŷ = 1)", dims=("group",), low=0, high=1),
        observable("true_positive_rate", "P(ŷ = 1 | y = 1)", dims=("group",), low=0, high=1),
        observable("false_positive_rate", "P(ŷ = 1 | y = −1)", dims=("group",), low=0, high=1),
        observable("precision", "P(y = 1 | ŷ = 1)", dims=("group",), low=0, high=1),
        observable("base_rate", "P(y = 1), a property of the data", dims=("group",), low=0, high=1, status="exact"),
        observable("accuracy_gap", "accuracy of group + minus that of group −", low=-1, high=1),
        observable("accuracy_ratio", "accuracy of group + over that of group −", low=0),
        observable("parity_difference", "selection rate of group + minus that of group −: zero at demographic parity",
                   low=-1, high=1),
        observable("disparate_impact", "selection rate of group + over that of group −", low=0),
        observable("opportunity_difference", "true positive rate of group + minus that of group −: zero at equal opportunity",
                   low=-1, high=1),
        observable("odds_difference", "larger of the differences of true and of false positive rates: zero at equalised odds",
                   low=0, high=1),
        observable("predictive_difference", "precision in group + minus that in group −: zero at predictive parity",
                   low=-1, high=1),
        observable("information", "mutual information of prediction and group, in nats", symbol=r"I(\hat y; c)", low=0),
        observable("conditional_information", "mutual information of prediction and group given the label, in nats",
                   symbol=r"I(\hat y; c \mid y)", low=0),
        observable("norm", "squared norm |w|²/d of the learner that classifies group + and −", dims=("group",), symbol="Q",
                   low=0),
        observable("overlap", "overlap w·W/d of that learner with both groups' rules", dims=("group", "rule"), symbol="R"),
        observable("shift", "overlap w·v/d of that learner with the line between the groups", dims=("group",), symbol="m"),
        observable("bias", "bias of that learner", dims=("group",), symbol="b"),
        observable("response", "how strongly a prediction follows its own sample", dims=("group",), symbol="V", low=0,
                   simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        geometry = (self.similarity, self.tilt_plus, self.tilt_minus)
        if any(isinstance(value, Tracer) for value in (*geometry, self.thresholds)):
            return
        if len(self.thresholds) != 2:
            raise InvalidValue(f"thresholds has {len(self.thresholds)} entries but needs two: group + and group −.")
        q, plus, minus = np.broadcast_arrays(*(np.asarray(value) for value in geometry))
        wrong = 1 + 2 * q * plus * minus - q**2 - plus**2 - minus**2 < -EDGE
        if wrong.any():
            q, plus, minus = (float(a[wrong][0]) for a in (q, plus, minus))
            middle, room = plus * minus, math.sqrt((1 - plus**2) * (1 - minus**2))
            raise InvalidValue(
                f"similarity = {q:g} is outside its range [{middle - room:.6g}, {middle + room:.6g}] for tilt_plus = {plus:g} "
                f"and tilt_minus = {minus:g}: the Gram matrix of (W_+, W_−, v) would not be positive."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"group": np.array(["+", "-"]), "rule": np.array(["+", "-"])}

    @property
    def _weights(self) -> Array:
        """Weights k by group (+, −) and label (−1, +1)."""
        plus, one = self.group_weight, jnp.ones_like(self.group_weight)
        return jnp.stack([plus, plus * self.positive_plus, one, self.positive_minus]).reshape(2, 2)

    @property
    def _mixture(self) -> Mixture:
        return Mixture(
            jnp.stack([self.share, 1 - self.share]),
            gram_matrix(self.similarity, jnp.stack([self.tilt_plus, self.tilt_minus])),
            jnp.stack([self.spread_plus, self.spread_minus]),
            self.thresholds,
        )

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        mixture = self._mixture
        found = mixture_students(
            self.learner,  # type: ignore[arg-type]
            mixture,
            self.samples,
            self.penalty,
            self.coupling,
            self._weights,
            nodes=numerics.nodes,
            tolerance=numerics.tolerance,
            max_steps=numerics.max_steps,
        )
        own = jnp.stack([found.overlap[0, 0], found.overlap[1, 1]])
        table = confusion(mixture.share, *self._means(found.norm, found.shift, found.bias), own / jnp.sqrt(found.norm))
        return {
            **fairness(table)._asdict(),
            "norm": found.norm,
            "overlap": found.overlap,
            "shift": found.shift,
            "bias": found.bias,
            "response": found.response,
            "converged": found.converged,
            "residual": found.residual,
        }

    def _means(self, norm: Array, shift: Array, bias: Array) -> tuple[Array, Array]:
        """Means of the fields of label and prediction, per group, in units of their standard deviations."""
        mixture, signs = self._mixture, jnp.asarray(SIGNS)
        root = jnp.sqrt(mixture.spread)
        return (signs * mixture.gram[:2, 2] + mixture.threshold) / root, (signs * shift + bias) / (
            root * jnp.sqrt(norm)
        )

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if size < 3:
            raise InvalidValue(f"size = {size} is smaller than 3, the two rules and the line between the groups.")
        samples, mixture = counts["samples"], self._mixture
        rows = samples.padded + 3
        draws = jax.random.normal(key, (rows * size,), dtype).reshape(rows, size)
        rules, centre = self._geometry(draws[:3], dtype)
        number = samples.actual.astype(dtype)
        of_plus = jnp.clip(jnp.rint(mixture.share[0].astype(dtype) * number), 1.0, jnp.maximum(number - 1, 1.0))
        plus = jnp.arange(samples.padded, dtype=dtype) < of_plus
        sign = jnp.where(plus, 1.0, -1.0).astype(dtype)
        spread = jnp.where(plus, mixture.spread[0], mixture.spread[1]).astype(dtype)
        inputs = sign[:, None] * centre[None, :] / math.sqrt(size) + jnp.sqrt(spread)[:, None] * draws[3:]
        inputs = inputs / math.sqrt(size)
        fields = inputs @ rules.T + mixture.threshold.astype(dtype)[None, :]
        labels = jnp.where(jnp.where(plus, fields[:, 0], fields[:, 1]) >= 0, 1.0, -1.0).astype(dtype)
        k = self._weights.astype(dtype)
        weight = jnp.where(plus, jnp.where(labels > 0, k[0, 1], k[0, 0]), jnp.where(labels > 0, k[1, 1], k[1, 0]))

        risk = _Risk(inputs, labels, weight * samples.mask(dtype), plus, self.penalty.astype(dtype),
                     self.coupling.astype(dtype), self.learner)  # fmt: skip
        fit = minimise(risk, risk.start(), tolerance=1e-7, iterations=3000, curvatures=risk.curvatures())
        w, b = fit.parameters["w"], fit.parameters["b"]
        w, b = (jnp.broadcast_to(a, (2, *a.shape[1:])).astype(float) for a in (w, b))
        norm, shift = jnp.sum(w**2, axis=1) / size, w @ centre.astype(float) / size
        overlap = w @ rules.astype(float).T / size
        own = jnp.stack([overlap[0, 0], overlap[1, 1]])
        table = _table(mixture.share, *self._means(norm, shift, b), own / jnp.sqrt(norm))
        return {
            **fairness(table)._asdict(),
            "norm": norm,
            "overlap": overlap,
            "shift": shift,
            "bias": b,
            "converged": fit.residual < 1e-5,
            "residual": fit.residual,
        }

    def _geometry(self, draws: Array, dtype: Any) -> tuple[Array, Array]:
        """W_± and v of squared norm d with exactly the Gram matrix, from three random directions."""
        q, plus, minus = self.similarity, self.tilt_plus, self.tilt_minus
        frame = orthonormal_columns(draws.astype(float).T).T * math.sqrt(draws.shape[1])
        side = jnp.sqrt(jnp.maximum(1 - plus**2, 0.0))
        along = jnp.where(side > 0, (q - plus * minus) / jnp.where(side > 0, side, 1.0), 0.0)
        rest = jnp.sqrt(jnp.maximum(1 - minus**2 - along**2, 0.0))
        rules = jnp.stack([plus * frame[0] + side * frame[1], minus * frame[0] + along * frame[1] + rest * frame[2]])
        return rules.astype(dtype), frame[0].astype(dtype)


class _Risk(eqx.Module):
    """Weighted logistic losses of the learners' own samples plus the quadratic penalties; also returns the gradient."""

    inputs: Array
    labels: Array
    weights: Array
    plus: Array
    penalty: Array
    coupling: Array
    learner: str = eqx.field(static=True)

    def start(self) -> dict[str, Array]:
        learners, biases = {"single": (1, 1), "coupled": (2, 2), "shared": (1, 2)}[self.learner]
        width, dtype = self.inputs.shape[1], self.inputs.dtype
        return {"w": jnp.zeros((learners, width), dtype), "b": jnp.zeros(biases, dtype)}

    def curvatures(self) -> dict[str, Array]:
        start = self.start()
        of_w = 0.1 * self.weights @ self.inputs**2 / start["w"].shape[0] + self.penalty
        return {"w": jnp.broadcast_to(of_w[None, :], start["w"].shape),
                "b": jnp.full_like(start["b"], 0.1) * jnp.sum(self.weights) / start["b"].shape[0]}  # fmt: skip

    def _value(self, at: dict[str, Array]) -> Array:
        w, b = at["w"], at["b"]
        by_learner = self.inputs @ w.T
        field = jnp.where(self.plus, by_learner[:, 0], by_learner[:, -1]) + jnp.where(self.plus, b[0], b[-1])
        paid = 2 if self.learner == "shared" else 1
        fit = jnp.sum(self.weights * jax.nn.softplus(-self.labels * field))
        pull = 0.5 * self.coupling * jnp.sum((w[0] - w[-1]) ** 2)
        return fit + 0.5 * paid * self.penalty * jnp.sum(w**2) + pull

    def __call__(self, at: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        return jax.value_and_grad(self._value)(at)


def _table(share: Array, label: Array, prediction: Array, correlation: Array) -> Table:
    """P(c, y, ŷ) given the weights: P(y) given the student's field, averaged over that field by quadrature."""

    def group(h: Array, s: Array, r: Array) -> Array:
        slope = r / jnp.sqrt(jnp.maximum(1 - r**2, 1e-12))
        centre = h * jnp.sqrt(1 + slope**2)
        steps = (jnp.asarray([-7.0, 0.0, 7.0]) - centre) / jnp.where(jnp.abs(slope) < 1e-3, 1e-3, slope)

        def chances(xi: Array) -> Array:
            one = ndtr(centre + slope * xi)
            positive = (xi > -s).astype(xi.dtype)
            joint = [(1 - one) * (1 - positive), (1 - one) * positive, one * (1 - positive), one * positive]
            return jnp.stack(joint, axis=1)

        breaks = jnp.concatenate([-s[None], steps, jnp.asarray([-3.0, 3.0])])
        return gaussian_average_split(chances, breaks, nodes=24).reshape(2, 2)

    return share[:, None, None] * jax.vmap(group)(label, prediction, correlation)
