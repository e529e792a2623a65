r"""A diffusion model with random features learns, then memorises, a mixture of two classes: each class has its own clocks.

**Data.** Class c = 1, 2 has share π_c of n = ψ_n d points x ~ N(0, s_c 1_d), s_c being its variance. A point is noised to
x_t = e^{−t}x + √Δ ξ, Δ = 1 − e^{−2t}, ξ ~ N(0, 1_d).

**Learner.** A score s_A(x) = Aφ(Wx/√d) with p = ψ_p d frozen random features, W_ij ~ N(0, 1), φ odd. Only A is trained,
from zero, at one diffusion time t, by gradient flow dA/dτ = −(d/2)∂L/∂A on

    L(A) = (1/dn) Σ_ν E_ξ |√Δ s_A(x_t^ν) + ξ|²,

with the noise averaged exactly, as if every point were noised infinitely often. With U = E φφᵀ and V = E φξᵀ over the noised
training data, √Δ A(τ) = −Vᵀ U⁻¹(1 − e^{−ΔUτ}): one clock 1/(Δλ) for every eigenvalue λ of U. Losses of a class are the same
average over its own training points (`train_loss`) or fresh ones (`test_loss`). (A model that carries A/√p has another unit of
time.)

**Theory** (d → ∞ at fixed ψ_p, ψ_n; Nicoletti et al. 2026 study the mixture, Bonnaire et al. 2025 the single Gaussian; the
equations for classes are derived here and in `equivalents`). Features act like Gaussian vectors: for u, v, v′ ~ N(0, 1) and
Γ_c² = e^{−2t}s_c + Δ,

    a_c = E φ′(Γ_c u),   α_c = a_c² e^{−2t}s_c,   b_c = √Δ a_c,
    v_c² = E φ(e^{−t}√s_c u + √Δ v) φ(e^{−t}√s_c u + √Δ v′) − α_c,   σ_c² = E φ(Γ_c u)² − α_c − v_c² − b_c².

The spectrum of U has a bulk of scale ψ_p that generalises (mass 1/ψ_p), a bulk near σ² + (ψ_p/ψ_n)v_c² for every class that
memorises, and an atom at σ² if ψ_p > 1 + ψ_n. Losses are double contour integrals of two-resolvent equivalents:

    test_c(τ)  = 1 − 2b̄ b_c {Tr MR} + b̄²[(α_c + b_c²){Tr MRMR} + (v_c² + σ_c²){Tr MRR}],
    train_c(τ) = 1 − 2b̄ b_c {Tr MR} + b̄²[{Tr MRY_cR}/π_c + b_c²{Tr MRMR} + σ_c²{Tr MRR}],

where b̄ = Σ π_c b_c, traces are per dimension, M = WWᵀ/d, Y_c is the part of U that the data of class c contribute, and braces
average over f(z) = (1 − e^{−Δτz})/z on a contour around the spectrum. The weights π_c act through averages only:
classes of equal variance have equal curves.

**Clocks** of every class. `learning_time`: the test loss is half-way from 1 to its lowest value up to the last of `times`.
`best_time`: it is lowest. `memorisation_time`: the gap between test and train loss has half of its final size. Other definitions
can order the classes differently.

**Speciation** of the exact score, for centres at squared distance `separation` in `dimension` dimensions. `class_probability` is
the mean posterior probability of the right class, φ_c = E[P(c|x_t)|c], exact at every dimension (`speciation`). The curve
(φ_c − π_c)/(1 − π_c) is the same for both classes and falls to one half at `speciation_time`. Centres of distance O(1) do not
affect the other observables; `training.experiment` measures what distances of order √d and unequal axes do.

**Simulation.** Draw data and features, average over the noise exactly (`training`), diagonalise U and measure the losses. Class
probabilities are averages of Bayes' rule over drawn samples.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.methods.averages.functions import function_named
from solvable.model import Control, Guard, Input, Model, Numerics

from .clocks import Clocks, clocks
from .equivalents import Bulk, classes, curves, distribution
from .speciation import class_probabilities, sampled_probabilities, speciation_time
from .training import Population, train

EDGES = np.geomspace(1e-3, 1e3, 61)
"""Bins of U's eigenvalues, ten per decade; the first and last also contain what lies beyond."""
FAINTEST = 1e-8
"""The slowest growth of the gap with log t at which memorisation has a time: rounding of both losses hides slower ones."""
LOSSES_AND_TIMES = (
    "test_loss",
    "train_loss",
    "learning_time",
    "best_time",
    "best_loss",
    "memorisation_time",
    "class_probability",
)
DRAWS = 8192  # samples of every class on which simulated class probabilities are averaged


DIMENSIONS = (
    dimension("time", "training time", symbol=r"\tau", scale="log", kind="time"),
    dimension("noising_time", "diffusion time", symbol="t", kind="time"),
    dimension("group", "class of the data"),
    dimension("eigenvalue", "eigenvalue of the features' second moments", symbol=r"\lambda", scale="log", kind="mode"),
)


class FeatureDiffusion(Model):
    """Random-features diffusion on two Gaussian classes: learning and memorisation of each over training time.

    >>> import solvable as sv
    >>> curves = sv.FeatureDiffusion(share=0.9, times=[3.0, 30.0, 300.0, 1e5]).theory()
    >>> curves.test_loss[1].round(4).tolist(), curves.train_loss[1].round(4).tolist()
    ([0.784, 1.2663], [0.623, 0.7486])
    """

    id = "feature-diffusion"
    title = "Diffusion with random features"
    family = "generative"
    sentence = "A score model on random features learns, then memorises, two classes of unequal variance and share."
    method = "two-resolvent equivalents of the feature covariance, contour integrals"
    numerics = Numerics(nodes=208, average_nodes=96, step=0.4, speciation_nodes=144)
    accuracy = 1e-7  # limited by the spectrum where an edge of a bin meets an atom or an edge of a bulk
    batch_accuracy = 1e-9
    gradient_accuracy = 1e-5  # that of the check's differences: it takes the sine of times that are far above one
    runs = "map"
    theory_lanes = 8
    typical_sizes = (50, 100, 200)
    theory_seconds = 0.08
    simulation_seconds = 3.0
    simulation_growth = 3.0
    guard = Guard(
        values={"times": [3.0, 30.0, 300.0, 1e5], "noising": [0.5, 1.5, 2.5, 3.5]}, size=30, seeds=6, points=12
    )
    check_study = (
        # Atoms and narrow bulks of the spectrum are spread over several bins by the lengths of finite features, |w_i|²/d =
        # 1 + O(d^−½); the rest of it is compared in the tests.
        {"over": {"share": [0.5, 0.8]}, "sizes": (40, 100), "seeds": 10, "judge": LOSSES_AND_TIMES},
        {
            "values": {"width": 1.5, "samples": 6.0, "diffusion_time": 0.4, "activation": "erf", "separation": 100.0},
            "sizes": (40, 100),
            "seeds": 10,
            "judge": LOSSES_AND_TIMES,
        },
    )
    references = (
        Reference(
            "nicoletti2026interplay", "Nicoletti and others", "The interplay of data structure and imbalance in the "
            "learning dynamics of diffusion models", 2026, arxiv="2605.06367"),
        Reference(
            "bonnaire2025diffusion", "T. Bonnaire, R. Urfin, G. Biroli and M. Mézard", "Why diffusion models don't "
            "memorize: the role of implicit dynamical regularization in training", 2025, "NeurIPS 38",
            arxiv="2505.17638"),
        Reference(
            "biroli2024dynamical", "G. Biroli, T. Bonnaire, V. de Bortoli and M. Mézard", "Dynamical regimes of diffusion "
            "models", 2024, "Nature Communications 15, 9957", arxiv="2402.18491"),
    )  # fmt: skip

    samples: Control = control(
        2.0, low=0.05, high=1e3, typical=(0.5, 20.0), scale="log", counts=True, symbol=r"\psi_n",
        meaning="training points of both classes per dimension, n/d")  # fmt: skip
    width: Control = control(
        4.0, low=0.05, high=200.0, typical=(0.5, 32.0), scale="log", counts=True, symbol=r"\psi_p",
        meaning="random features per dimension, p/d")  # fmt: skip
    share: Control = control(
        0.5, low=1e-6, high=1 - 1e-6, typical=(0.05, 0.95), symbol=r"\pi_1",
        meaning="fraction of all points that belong to the first class")  # fmt: skip
    first_spread: Control = control(
        0.5, low=0.05, high=10.0, typical=(0.1, 4.0), scale="log", symbol="s_1",
        meaning="variance of the first class")  # fmt: skip
    second_spread: Control = control(
        2.0, low=0.05, high=10.0, typical=(0.1, 4.0), scale="log", symbol="s_2",
        meaning="variance of the second class")  # fmt: skip
    diffusion_time: Control = control(
        0.1, low=0.01, high=3.0, typical=(0.03, 1.5), scale="log", symbol="t",
        meaning="diffusion time t at which the score is learnt")  # fmt: skip
    separation: Control = control(
        800.0, low=0.0, high=1e8, typical=(10.0, 1e4), scale="log", symbol=r"|\mu_1-\mu_2|^2",
        meaning="squared distance of the classes' centres (speciation only)")  # fmt: skip
    dimension: Control = control(
        200.0, low=2.0, high=1e6, typical=(10.0, 1e4), scale="log", symbol="d",
        meaning="dimension of the data (speciation only; elsewhere it is infinite, or the size of the simulation)")  # fmt: skip
    activation: str = choice("tanh", options=("tanh", "erf"), symbol=r"\varphi",
                             meaning="odd nonlinearity of the features; erf is erf(z/√2)")  # fmt: skip
    times: Input = input(
        np.geomspace(1.0, 1e5, 16), dims=("time",), low=0.0, high=1e12, increasing=True, symbol=r"\tau",
        meaning="training times of measurement; the last is the horizon of the lowest test loss")  # fmt: skip
    noising: Input = input(
        np.linspace(0.0, 6.0, 13), dims=("noising_time",), low=0.0, high=30.0, increasing=True, symbol="t",
        meaning="diffusion times at which class probabilities are given")  # fmt: skip

    dimensions_declared = DIMENSIONS
    main_declared = ("test_loss", "train_loss", "learning_time", "memorisation_time")
    observables_declared = (
        observable("test_loss", "denoising loss on fresh points of a class, per dimension", dims=("time", "group"), low=0,
                   symbol=r"\mathcal{L}_{test}"),
        observable("train_loss", "denoising loss on the training points of a class, per dimension", dims=("time", "group"),
                   low=0, symbol=r"\mathcal{L}_{train}"),
        observable("spectrum", "fraction of the eigenvalues of U in each bin, ten per decade; atoms broaden as 1/√d",
                   dims=("eigenvalue",), low=0, high=1, symbol=r"\rho", power=0.5, fraction_of="width"),
        observable("learning_time", "time at which a class's test loss is half-way down to its lowest value",
                   dims=("group",), low=0, symbol=r"\tau_{gen}"),
        observable("best_time", "time of a class's lowest test loss, at most the last measured one", dims=("group",), low=0),
        observable("best_loss", "lowest test loss of a class", dims=("group",), low=0),
        observable("memorisation_time", "time at which the gap of a class's test and train loss is half its final size",
                   dims=("group",), low=0, symbol=r"\tau_{mem}"),
        observable("class_probability", "mean posterior probability of the right class, φ_c", status="exact",
                   dims=("noising_time", "group"), low=0, high=1, symbol=r"\phi_c"),
        observable("speciation_time", "diffusion time at which (φ_c − π_c)/(1 − π_c) is one half, for either class",
                   low=0, simulated=False, symbol="t_S", status="exact"),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {
            "time": np.asarray(self.times),
            "noising_time": np.asarray(self.noising),
            "group": np.array([1, 2]),
            "eigenvalue": np.sqrt(EDGES[1:] * EDGES[:-1]),
        }

    def _shares(self) -> Array:
        return jnp.stack([self.share, 1 - self.share])

    def _spreads(self) -> Array:
        return jnp.stack([self.first_spread, self.second_spread])

    # --- theory -----------------------------------------------------------------------------------------------------

    def bulk(self, nodes: int = 96) -> Bulk:
        """Gaussian equivalents of the features, and all that the spectrum depends on, at scalar controls."""
        function = function_named(self.activation)
        equivalents = classes(function, self._shares(), self._spreads(), self.diffusion_time, nodes)
        return Bulk(equivalents, self.width, self.samples)

    def point(self, numerics: Numerics) -> dict[str, Array]:
        bulk = self.bulk(numerics.average_nodes)
        decay = -jnp.expm1(-2 * self.diffusion_time)
        found = curves(bulk, decay, numerics.nodes)
        log_time = jnp.log(self.times)
        train_loss, test_loss, times = clocks(found.losses, log_time, *self._ends(decay, bulk.rest, bulk.top))
        below, gap = distribution(bulk, jnp.asarray(EDGES[1:-1]), numerics.step)
        mixture = self._shares(), self._spreads(), self.separation, self.dimension
        residual = jnp.maximum(found.residual, found.error(log_time, (train_loss, test_loss)))
        hidden = jnp.where(times.growth > FAINTEST, 1.0, jnp.nan)
        return {
            "test_loss": test_loss,
            "train_loss": train_loss,
            "spectrum": jnp.clip(jnp.diff(below, prepend=0.0, append=1.0), 0.0, 1.0),
            "spectrum_converged": gap < 1e-9,
            **self._clocks(times._replace(memorisation=times.memorisation * hidden)),
            "class_probability": class_probabilities(*mixture, self.noising, numerics.speciation_nodes),
            "speciation_time": speciation_time(*mixture, numerics.speciation_nodes),
            "converged": residual < 1e-10,
            "residual": residual,
        }

    def _ends(self, decay: Array, lowest: Array, highest: Array) -> tuple[Array, Array]:
        """Logarithms of a time before anything is learnt and of one after everything is, from bounds of the spectrum."""
        return jnp.log(1e-3 / (decay * highest)), jnp.log(40 / (decay * lowest))

    def _clocks(self, found: Clocks) -> dict[str, Array]:
        return {
            "learning_time": found.learning,
            "best_time": found.best,
            "best_loss": found.best_loss,
            "memorisation_time": found.memorisation,
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples, width = counts["samples"], counts["width"]
        of_features, of_data, of_classes = jax.random.split(key, 3)
        weights = jax.random.normal(of_features, (width.padded, size), dtype) * width.mask(dtype)[:, None]
        draws = jax.random.normal(of_data, (samples.padded, size), dtype)
        number = samples.actual.astype(dtype)
        first = jnp.clip(jnp.rint(self.share.astype(dtype) * number), 1.0, jnp.maximum(number - 1, 1.0))
        in_first = (jnp.arange(samples.padded, dtype=dtype) < first).astype(dtype)
        member = jnp.stack([in_first, 1 - in_first]) * samples.mask(dtype)[None]
        spreads, shares = self._spreads().astype(dtype), self._shares().astype(dtype)
        data = jnp.sqrt(spreads @ member)[:, None] * draws
        variance = jnp.broadcast_to(spreads[:, None], (2, size))
        trained = train(
            function_named(self.activation),
            weights,
            data,
            member,
            Population(0 * variance, variance),
            self.diffusion_time,
        )
        eigenvalues = trained.eigenvalues
        here = eigenvalues > 0
        place = jnp.clip(jnp.searchsorted(jnp.asarray(EDGES, dtype), eigenvalues) - 1, 0, EDGES.size - 2)
        spectrum = jnp.zeros(EDGES.size - 1, dtype).at[place].add(here.astype(dtype) / width.actual.astype(dtype))
        lowest = jnp.min(jnp.where(here, eigenvalues, jnp.inf))
        ends = self._ends(trained.decay, lowest, jnp.max(eigenvalues))
        train_loss, test_loss, times = clocks(trained.losses, jnp.log(self.times).astype(dtype), *ends)
        mixture = shares, spreads, self.separation.astype(dtype), self.dimension.astype(dtype)
        return {
            "test_loss": test_loss,
            "train_loss": train_loss,
            "spectrum": spectrum,
            **self._clocks(times),
            "class_probability": sampled_probabilities(of_classes, *mixture, self.noising.astype(dtype), DRAWS),
        }
