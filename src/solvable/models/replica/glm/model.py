"""A generalised linear model put together from parts: design, prior, channel, loss and penalty, built in or your own.

**Data.** Inputs x ~ N(0, Σ), tr Σ = d: Σ = 1 (design *gaussian*), eigenvalues k^−a (*power-law*) or your own (*eigenvalues*) in
the basis of the weights or in a random one, or your own matrix (*covariance*). Or the design A = X/√d has random singular
vectors on both sides, with orthogonal rows or columns (*orthogonal*), or your own eigenvalues of AAᵀ or AᵀA, whichever is
smaller (*invariant*); its rows have mean square norm one. A teacher's weights w₀ are drawn independently from a *prior* with
E w₀² = γ² (γ: `strength`). Labels y follow a *channel* P(y|ν) of the field ν = w₀·x/√d: y = ν + noise of variance Δ (*gaussian*,
*laplace*, *quantile*: an asymmetric Laplace law whose quantile of level κ₀ is zero), y = ±1 (*sign*, flipped with probability e;
*probit*, the sign of ν plus Gaussian noise; *logistic*, P(y|ν) = σ(yν)), or counts of mean exp(ν) (*poisson*).

**Learner.** *risk*: ŵ = argmin_w Σ_μ ℓ(y_μ, w·x_μ/√d) + Σ_i r(w_i) over n = αd samples: the *sum* of the losses, with
r = λw²/2 (*ridge*), λ|w| (*lasso*), λ(η|w| + (1−η)w²/2) (*elastic-net*) or λw²/2 on |w| ≤ c (*box*). *bayes*: the posterior mean
of a learner who knows prior and channel.

**Theory** (replica symmetric, exact for convex risks). *risk*: the saddle point of `methods.risk.risk_minimiser`.
*bayes*: all solutions of q̂ = α c(γ² − E(q̂)), `methods.risk.bayes_optimal`. Designs with a random basis have the equations of
`methods.risk.designs`: they couple weights and samples through the eigenvalues alone. Your own matrix is covered if it is
diagonal, or with a ridge penalty or Gaussian weights, for which only eigenvalues matter. Observables are those of the branch that
message passing reaches without information; `best_error` belongs to the branch of least free energy, and `branches()` shows
all. `stability` below one means that replica symmetry holds.

**Simulation.** Draw teacher, inputs and labels. *risk*: minimise by the alternating direction method
(`methods.risk.splitting`), which shares nothing with the saddle point but the definition of the proximal maps.
*bayes*: message passing from a start without information (`methods.fixed_points.gamp`; `generalised_vector_amp` for designs with
a random basis). Fresh samples are drawn; of invariant designs they are rows of another matrix.

**Your own parts.** Each choice also takes a function, or its name `module:name`.
"""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, data, input, observable
from solvable.methods.fixed_points.gamp import gamp
from solvable.methods.fixed_points.generalised_vector_amp import generalised_vamp
from solvable.methods.risk.bayes_optimal import Bayes, Branch, Thresholds, solutions, thresholds
from solvable.methods.risk.outputs import Table
from solvable.methods.risk.risk_minimiser import Composition, learn
from solvable.methods.risk.rotated_bayes import RotatedBayes, scanned_thresholds
from solvable.methods.risk.rotated_minimiser import learn_rotated
from solvable.methods.risk.splitting import minimise
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

from .._labels import ratio_field
from .designs import (
    COVARIANCES,
    DESIGNS,
    INVARIANT,
    covariance_root,
    design_of,
    drawn_rows,
    refuse_designs,
    seen_by_samples,
)
from .parts import (
    CHANNELS,
    LABELLED,
    LOSSES,
    PRIORS,
    REGULARISERS,
    channel_of,
    labels,
    loss_of,
    penalty_of,
    prior_of,
    refuse_misfits,
)

FRESH = 8192
"""Fresh samples of a simulation."""
ITERATIONS = 400
"""Iterations of message passing in a simulation."""


class GLM(Model):
    """Any prior, channel, loss, penalty and design of a generalised linear model.

    >>> import solvable as sv
    >>> lasso = sv.GLM(prior="sparse", fraction=0.1, channel="gaussian", loss="square", regulariser="lasso")
    >>> round(float(lasso.replace(samples=0.5, noise=0.01, penalty=0.1).theory().error), 4)
    0.0193
    """

    id = "glm"
    title = "Generalised linear models, composed"
    family = "replica"
    sentence = (
        "A generalised linear model put together from design, prior, channel, loss and penalty: built in, or your own."
    )
    method = "replica saddle points from proximal maps and posterior means"
    numerics = Numerics(nodes=14, tolerance=5e-11, max_steps=600)
    simulation_dtype = "float64"
    typical_sizes = (50, 100, 200)
    theory_lanes = 128
    theory_seconds = 1e-3
    simulation_seconds = 0.03
    simulation_growth = 2.5
    first_view = FirstView(seeds=96)
    finite_size = 4.0
    inconclusive = 0.3  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"samples": [0.6, 1.5]}, "values": {"penalty": 0.3}},
        {"over": {"samples": [1.0, 3.0]}, "values": {"prior": "gaussian", "channel": "laplace", "loss": "absolute",
                                                    "regulariser": "ridge", "noise": 0.5, "penalty": 0.5}},
        {"over": {"samples": [1.0, 3.0]}, "values": {"prior": "laplace", "channel": "logistic", "loss": "logistic",
                                                    "regulariser": "elastic-net", "strength": 2.0, "penalty": 0.2}},
        {"over": {"samples": [0.6, 1.5]}, "values": {"learner": "bayes", "noise": 0.1}},
        {"over": {"samples": [1.0, 2.0]}, "seeds": 32,
         "values": {"design": "power-law", "prior": "binary", "noise": 0.3, "penalty": 0.3}},
        {"over": {"samples": [1.0, 2.0]}, "seeds": 32,
         "values": {"design": "eigenvalues", "basis": "rotated", "prior": "binary", "noise": 0.3, "penalty": 0.3}},
        {"over": {"samples": [0.6, 1.5]}, "values": {"design": "orthogonal", "prior": "gaussian", "channel": "probit",
                                                    "loss": "logistic", "regulariser": "lasso", "penalty": 0.1}},
        {"over": {"samples": [0.6, 1.5]}, "values": {"design": "invariant", "learner": "bayes", "noise": 0.1}},
    )  # fmt: skip
    guard = Guard(size=60)
    references = (
        Reference(
            "barbier2019optimal", "J. Barbier, F. Krzakala, N. Macris, L. Miolane and L. Zdeborová", "Optimal errors and "
            "phase transitions in high-dimensional generalized linear models", 2019, "PNAS 116, 5451", arxiv="1708.03395"),
        Reference(
            "gyorgyi1990first", "G. Györgyi", "First-order transition to perfect generalization in a neural network with "
            "binary synapses", 1990, "Phys. Rev. A 41, 7097", doi="10.1103/PhysRevA.41.7097"),
        Reference(
            "donoho2009message", "D. L. Donoho, A. Maleki and A. Montanari", "Message-passing algorithms for compressed "
            "sensing", 2009, "PNAS 106, 18914", arxiv="0907.3574"),
        Reference(
            "krzakala2012statistical", "F. Krzakala, M. Mézard, F. Sausset, Y. Sun and L. Zdeborová", "Statistical-physics-"
            "based reconstruction in compressed sensing", 2012, "Phys. Rev. X 2, 021005", arxiv="1109.4424"),
        Reference(
            "candes2020phase", "E. J. Candès and P. Sur", "The phase transition for the existence of the maximum likelihood "
            "estimate in high-dimensional logistic regression", 2020, "Ann. Stat. 48, 27", arxiv="1804.09753"),
        Reference(
            "elkaroui2013robust", "N. El Karoui, D. Bean, P. J. Bickel, C. Lim and B. Yu", "On robust regression with "
            "high-dimensional predictors", 2013, "PNAS 110, 14557", doi="10.1073/pnas.1307842110"),
        Reference(
            "rangan2019vector", "S. Rangan, P. Schniter and A. K. Fletcher", "Vector approximate message passing", 2019,
            "IEEE Trans. Inf. Theory 65, 6664", arxiv="1610.03082"),
        Reference(
            "gerbelot2020asymptotic", "C. Gerbelot, A. Abbara and F. Krzakala", "Asymptotic errors for teacher-student convex "
            "generalized linear models (or: how to prove Kabashima's replica formula)", 2020, arxiv="2006.06581"),
    )  # fmt: skip

    samples: Control = ratio_field(1.0, r"\alpha", "training samples per dimension, n/d")
    penalty: Control = control(0.3, low=1e-4, high=1e3, typical=(0.05, 5.0), scale="log", symbol=r"\lambda",
                               when={"learner": "risk"},
                               meaning="strength of the penalty on a weight, added to the sum of the losses")  # fmt: skip
    noise: Control = control(0.1, low=1e-8, high=100.0, typical=(0.05, 2.0), symbol=r"\Delta",
                             when={"channel": ("gaussian", "laplace", "quantile", "probit")},
                             meaning="variance of the noise added to the teacher's field")  # fmt: skip
    strength: Control = control(1.0, low=0.01, high=10.0, typical=(0.3, 2.0), symbol=r"\gamma",
                                meaning="root mean square of the teacher's weights")  # fmt: skip
    fraction: Control = control(0.2, low=1e-3, high=1.0, typical=(0.05, 1.0), symbol=r"\rho", when={"prior": "sparse"},
                                meaning="fraction of the teacher's weights that are not zero")  # fmt: skip
    flips: Control = control(0.0, low=0.0, high=0.5, typical=(0.0, 0.3), symbol="e", when={"channel": "sign"},
                             meaning="probability that a label is flipped")  # fmt: skip
    level: Control = control(0.5, low=0.01, high=0.99, typical=(0.1, 0.9), symbol=r"\kappa", when={"loss": "quantile"},
                             meaning="level of the quantile that the quantile loss learns")  # fmt: skip
    noise_level: Control = control(0.5, low=0.01, high=0.99, typical=(0.1, 0.9), symbol=r"\kappa_0",
                                   when={"channel": "quantile"},
                                   meaning="level of the quantile of the noise that is zero")  # fmt: skip
    threshold: Control = control(1.0, low=0.01, high=100.0, typical=(0.2, 3.0), symbol=r"\delta", when={"loss": "huber"},
                                 meaning="residual beyond which the Huber loss is linear")  # fmt: skip
    mixing: Control = control(0.5, low=0.0, high=1.0, typical=(0.1, 0.9), symbol=r"\eta",
                              when={"regulariser": "elastic-net"},
                              meaning="weight of the absolute value in the elastic net")  # fmt: skip
    bound: Control = control(1.0, low=0.01, high=100.0, typical=(0.3, 3.0), symbol="c", when={"regulariser": "box"},
                             meaning="largest absolute value of a weight in the box")  # fmt: skip
    decay: Control = control(1.0, low=0.0, high=4.0, typical=(0.0, 2.0), symbol="a", when={"design": "power-law"},
                             meaning="exponent of the covariance's eigenvalues k^−a, k = 1…32")  # fmt: skip
    learner: str = choice("risk", options=("risk", "bayes"), meaning="minimiser of a risk, or the posterior mean")
    prior: str = choice("sparse", options=PRIORS, own="log-density(w) with an attribute `between`, or sampler(key, shape)",
                        meaning="law of a teacher's weight (sparse: zero or Gaussian)")  # fmt: skip
    channel: str = choice("gaussian", options=CHANNELS, own="log P(y|ν) of (y, ν) with an attribute `labels`",
                          meaning="how a label follows from the teacher's field")  # fmt: skip
    loss: str = choice("square", options=LOSSES, own="ℓ(y, z), smooth and convex in z", symbol=r"\ell",
                       when={"learner": "risk"}, meaning="training loss (square: half the squared error)")  # fmt: skip
    regulariser: str = choice("lasso", options=REGULARISERS, own="prox(x, t) = argmin_w (w − x)²/2 + t r(w)", symbol="r",
                              when={"learner": "risk"}, meaning="penalty on every weight")  # fmt: skip
    design: str = choice("gaussian", options=DESIGNS, symbol="A",
                         meaning="inputs: independent Gaussians, Gaussians with a covariance, or a matrix with given singular "
                                 "values")  # fmt: skip
    basis: str = choice("aligned", options=("aligned", "rotated"), when={"design": COVARIANCES},
                        meaning="whether the covariance is diagonal or has random eigenvectors (yours: its own)")  # fmt: skip
    eigenvalues: Input = input(lambda m: np.array([0.1, 0.5, 1.0, 2.4]), dims=("eigenvalue",), low=0.0, symbol=r"\omega",
                               when={"design": ("eigenvalues", "invariant")},
                               meaning="eigenvalues of the covariance, or of AAᵀ or AᵀA, each of an equal share of directions; "
                                       "scaled to mean one")  # fmt: skip
    matrix: Input | None = data(dims=("coordinate", "partner"), symbol=r"\Sigma", when={"design": "covariance"},
                                meaning="your own covariance, scaled to mean eigenvalue one")  # fmt: skip

    observables_declared = (
        observable("error", "mean squared error of the weights, |ŵ − w₀|²/d", symbol="E", low=0),
        observable("overlap", "overlap with the teacher, ŵ·w₀/d", symbol="m"),
        observable("norm", "squared norm of the weights, |ŵ|²/d", symbol="q", low=0),
        observable("test_error", "probability of a wrong sign on a fresh sample", symbol=r"\varepsilon_g", low=0, high=1,
                   when={"channel": LABELLED}),
        observable("test_loss", "mean loss ℓ on a fresh sample", symbol=r"\mathcal{L}_g", when={"learner": "risk"}),
        observable("train_loss", "mean loss ℓ over the training samples, penalty not included", symbol=r"\mathcal{L}_t",
                   when={"learner": "risk"}),
        observable("free_energy", "risk: its minimum per weight, penalty included; bayes: minus the log evidence per weight",
                   symbol="f", simulated=False),
        observable("stability", "replica symmetry holds where it is below one", symbol="G", low=0, simulated=False),
        observable("best_error", "error of the posterior mean, which message passing may not reach", low=0,
                   simulated=False, when={"learner": "bayes"}),
    )  # fmt: skip

    def validate(self) -> None:
        refuse_misfits(self)
        refuse_designs(self)

    @property
    def kind_of_design(self) -> Literal["aligned", "rotated", "invariant"]:
        """How the theory treats the design."""
        if self.design in INVARIANT:
            return "invariant"
        return "rotated" if self.design in COVARIANCES and self.basis == "rotated" else "aligned"

    @property
    def stated_accuracy(self) -> float:
        """Tables of labels and atoms for densities limit the accuracy of some parts."""
        coarse = self.channel not in CHANNELS or self.channel == "poisson" or self.prior not in PRIORS
        return 1e-5 if coarse or self.regulariser not in REGULARISERS else type(self).accuracy

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        if self.learner == "bayes":
            return self._bayes(numerics)
        parts = Composition(prior_of(self).mixture, channel_of(self), loss_of(self), penalty_of(self))
        design, settings = design_of(self), {k: numerics[k] for k in ("nodes", "tolerance", "max_steps")}
        if design is None or design.kind == "aligned":
            found = learn(parts, self.samples, design, **settings)
        else:
            found = learn_rotated(parts, self.samples, design, **settings)
        values = {
            "error": found.mean_square_error,
            "overlap": found.overlap,
            "norm": found.norm,
            "test_loss": found.test_loss,
            "train_loss": found.train_loss,
            "free_energy": found.energy,
            "stability": found.stability,
            "converged": found.converged & self._complete(parts.channel),
            "residual": found.residual,
        }
        return values | ({"test_error": found.test_error} if self.channel in LABELLED else {})

    def _complete(self, channel: Any) -> Array:
        """Whether the table of labels has all of them."""
        if not isinstance(channel, Table):
            return jnp.asarray(True)
        return jnp.abs(channel.missing(self.strength**2)) < 1e-6

    def _parts(self, samples: Array) -> Bayes:
        """The parts of the Bayes-optimal learner."""
        prior, channel, design = prior_of(self), channel_of(self), design_of(self)
        if design is None or design.kind == "aligned":
            return Bayes(prior, channel, design)
        return RotatedBayes(prior, channel, design, samples)

    def _solutions(self, numerics: Numerics) -> Branch:
        return solutions(self._parts(self.samples), self.samples, numerics.nodes)

    def _bayes(self, numerics: Numerics) -> dict[str, Array]:
        found = self._solutions(numerics)
        best = jnp.argmin(jnp.where(found.found, found.free_energy, jnp.inf))
        values = {name: value[0] for name, value in self._observed(found).items()}
        return values | {
            "best_error": found.error[best],
            "converged": jnp.any(found.found) & self._complete(channel_of(self)),
        }

    def _observed(self, found: Branch) -> dict[str, Array]:
        power = self.strength**2
        overlap = power - found.error
        values = {
            "error": found.error,
            "overlap": overlap,
            "norm": overlap,
            "free_energy": found.free_energy,
            "stability": found.replicas,
        }
        if self.channel in LABELLED:
            channel = channel_of(self)
            some = jnp.maximum(power - found.fresh_error, 1e-30)
            values["test_error"] = jax.vmap(lambda q, rest: channel.test_error(q, q, rest))(some, found.fresh_error)
        return values

    def point_branches(self, numerics: Numerics) -> dict[str, Array]:
        """All solutions of the Bayes-optimal learner, in order of their information; a convex risk has one."""
        if self.learner != "bayes":
            return super().point_branches(numerics)
        found = self._solutions(numerics)
        best = jnp.argmin(jnp.where(found.found, found.free_energy, jnp.inf))
        values = self._observed(found)
        values["best_error"] = jnp.where(found.found, found.error[best], jnp.nan)
        return values | {"stable": found.stable.astype(float), "converged": found.found}

    def thresholds(self) -> Thresholds:
        """Information-theoretic and algorithmic thresholds of the Bayes-optimal learner, in samples; NaN if there are none.

        >>> import solvable as sv
        >>> found = sv.GLM(learner="bayes", prior="binary", channel="sign").thresholds()
        >>> round(float(found.information), 3), round(float(found.algorithmic), 3)
        (1.245, 1.493)
        """
        return _thresholds(self, type(self).numerics.nodes)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples = counts["samples"]
        of_teacher, of_fresh, of_samples = jax.random.split(key, 3)
        prior, power = prior_of(self), (self.strength**2).astype(dtype)
        teacher = prior.sample(of_teacher, (size,), dtype)
        teacher = teacher * jnp.sqrt(power * size / jnp.maximum(teacher @ teacher, 1e-30))
        columns = size + 1
        draws = jax.random.normal(of_samples, (samples.padded * columns,), dtype).reshape(samples.padded, columns)
        mask, root = samples.mask(dtype), covariance_root(self, jax.random.fold_in(key, 1), size, dtype)
        inputs = drawn_rows(self, draws[:, :size], mask, root)
        y = labels(self, inputs @ teacher, draws[:, size])
        if self.learner == "bayes":
            w, measured = self._message_passing(inputs, y, mask, root)
        else:
            loss = loss_of(self)
            fit = minimise(loss, penalty_of(self), inputs, y, mask)
            w = fit.weights
            fitted = mask @ loss.value(y, inputs @ w) / samples.actual.astype(dtype)
            measured = {"train_loss": fitted, "converged": fit.residual < 1e-4, "residual": fit.residual}

        measured |= {"overlap": w @ teacher / size, "norm": w @ w / size, "error": jnp.mean((w - teacher) ** 2)}
        # Given the weights, the two fields of a fresh input are a Gaussian pair.
        student, truth = seen_by_samples(w, root), seen_by_samples(teacher, root)
        m, q, rho = student @ truth / size, student @ student / size, truth @ truth / size
        fresh = jax.random.normal(of_fresh, (FRESH * 3,), dtype).reshape(FRESH, 3)
        field = jnp.sqrt(rho) * fresh[:, 0]
        seen = m / rho * field + jnp.sqrt(jnp.maximum(q - m**2 / rho, 0.0)) * fresh[:, 1]
        label = labels(self, field, fresh[:, 2])
        if self.channel in LABELLED:
            measured["test_error"] = jnp.mean((label * seen < 0).astype(dtype))
        if self.learner == "risk":
            measured["test_loss"] = jnp.mean(loss_of(self).value(label, seen))
        return measured

    def _message_passing(
        self, inputs: Array, y: Array, mask: Array, root: Array | None
    ) -> tuple[Array, dict[str, Array]]:
        prior, channel, power = prior_of(self), channel_of(self), self.strength**2

        def denoise(field, precision):
            return prior.posterior(field, jnp.broadcast_to(precision, field.shape))[:2]

        if self.kind_of_design != "aligned":
            found = generalised_vamp(inputs, y, channel.score, denoise, ITERATIONS, mask=mask, power=power, damping=0.9)
            estimate = found.estimate
        elif root is None:
            found = gamp(inputs, y, channel.score, denoise, ITERATIONS, mask=mask, start_variance=power, damping=0.9)
            estimate = found.estimate
        else:  # independent inputs of the weights √ω w, each with a prior of its own
            found = gamp(
                inputs / root[None, :], y, channel.score,
                lambda field, precision: _rescaled(denoise, root, field, precision),
                ITERATIONS, mask=mask, start_variance=power, damping=0.9,
            )  # fmt: skip
            estimate = found.estimate / root
        residual = jnp.nan_to_num(found.change, nan=jnp.inf)
        if self.channel == "sign":
            # Small systems may end certain of wrong weights: certainty without noise means that every label is explained.
            certain = (found.variance < 1e-6 * power) & (self.flips == 0)
            wrong = jnp.any(mask * y * (inputs @ estimate) < 0)
            residual = jnp.where(certain & wrong, jnp.inf, residual)
        return estimate, {"converged": residual < 1e-2, "residual": residual}


def _rescaled(denoise: Any, scales: Array, field: Array, precision: Array) -> tuple[Array, Array]:
    """The denoiser of `scales` times the weight."""
    mean, variance = denoise(scales * field, scales**2 * precision)
    return scales * mean, scales**2 * variance


@eqx.filter_jit
def _thresholds(model: GLM, nodes: int) -> Thresholds:
    if model.kind_of_design == "invariant":
        return scanned_thresholds(model._parts, nodes)
    return thresholds(model._parts(model.samples), nodes)
