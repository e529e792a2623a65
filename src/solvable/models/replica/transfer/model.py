"""Transfer between correlated hidden manifolds: a first layer learnt on one task, frozen, and a last layer for another.

**Data.** Two tasks, source and target. A latent vector c ~ N(0, 1_d) appears as x = σ0(F c/√d) ∈ R^D, F with standard Gaussian
entries, and labelled by y = sign(θ·c). The target's F_t = q_F F_s + √(1−q_F²) F′ and θ_t = q_θ θ_s + √(1−q_θ²) θ′ are
correlated with the source's by `feature_correlation` and `teacher_correlation` (Gerace et al. 2022).

**Learners.** On the source a two-layer network v·tanh(Wx), p hidden units, learns both layers from n_s samples by Adam on
the logistic loss. On the target only a last layer is learnt, on the features h = tanh(Wx) with W frozen:
ŵ = argmin_w Σ_μ ℓ(y_μ, w·h_μ/√p) + λ|w|²/2, the *sum* of the losses over n samples. It is compared with a random W from the
law of the source's initial weights (random features) and, on request, with both layers trained on the target alone.

**Theory.** Given W and both tasks, the last layer is a Gaussian covariate model (`methods.risk.covariate`), which needs only
Ω = E[hhᵀ] and E[hν], ν = θ_t·c/|θ_t|. Fields are odd in c, so features have no mean. For a trained W these moments have no
closed form: they are averages over `MOMENT_SAMPLES`·p fresh inputs, which `prepare` draws together with the tasks. Training on
the source has no theory and is simulated. The result is exact as n, p, d → ∞ together if the features act like Gaussians; this
is tested here, not assumed, because the simulation uses the network itself.

With `features = "given"` the moments are the fields `omega` and `tau` (by default those measured once at d = 15), and
the simulation draws Gaussian features with these moments: it tests the theory without a network. Correlations and
the source's training matter for `features = "network"` only.

The source is number `instance` of its law and is trained once per size; targets and samples differ between seeds.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from solvable.contract.declarations import Reference, choice, control, data, input, observable
from solvable.errors import InvalidValue
from solvable.methods.data.parts import parts_of
from solvable.methods.risk.channels import sign_risks
from solvable.methods.risk.covariate import Sign, Spectrum, of_matrices, student
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

from .._papers import LEARNING_CURVES
from .networks import BATCH, TEST_SAMPLES, Source, draw_task, moments, random_network, source, train_network

MOMENT_SAMPLES = 200
"""Fresh inputs per feature for Ω and E[hν]; sampling noise overstates the explained teacher by the inverse of this number."""
SCRATCH_STEPS = 2400
"""Steps of Adam when both layers are trained on the target alone."""
MANIFOLDS = ("sign", "tanh", "linear")


TABLE = json.loads(files("solvable.models.replica.transfer").joinpath("moments.json").read_text(encoding="utf-8"))
"""Default ω and τ, measured once on trained and on random features."""


class Transfer(Model):
    """The last layer of a network is retrained on a target whose first layer was learnt on a correlated source.

    The `size` of a simulation is the latent dimension d. With a network, train it first: `prepare(key, size)`.

    >>> import jax, solvable as sv
    >>> model = sv.Transfer(features="network", epochs=20, samples=2.0).prepare(jax.random.key(0), 8)
    >>> bool(model.theory().converged)
    True
    """

    id = "transfer"
    title = "Transfer between correlated hidden manifolds"
    family = "replica"
    sentence = (
        "A first layer learnt on a source task is frozen and the last layer retrained on a correlated target: "
        "gain or loss."
    )
    method = "Gaussian covariate saddle point on the moments of the trained map"
    runs = "map"
    numerics = Numerics(nodes=14, tolerance=1e-11, max_steps=400)
    simulation_dtype = "float64"
    typical_sizes = (15, 30, 60)
    theory_seconds = 0.1
    simulation_seconds = 0.2
    simulation_growth = 2.5
    first_view = FirstView(points=5, seeds=40)
    inconclusive = 0.35  # share of inconclusive rows in the studies below, at their seeds and sizes
    check_study = (
        {"over": {"samples": [2.0, 8.0]}, "seeds": 48},
        {"values": {"features": "network"}, "seeds": 32},
    )
    guard = Guard(size=15, seeds=4)
    references = (
        Reference(
            "gerace2022probing", "F. Gerace, L. Saglietti, S. Sarao Mannelli, A. Saxe and L. Zdeborová", "Probing transfer "
            "learning with a model of synthetic correlated datasets", 2022, "Mach. Learn.: Sci. Technol. 3, 015030",
            arxiv="2106.05418"),
        LEARNING_CURVES,
    )  # fmt: skip

    samples: Control = control(
        8.0, low=0.0, low_open=True, high=1e4, typical=(0.5, 40.0), scale="log", counts=True, symbol="n/d",
        meaning="training samples of the target per latent dimension, n/d")  # fmt: skip
    penalty: Control = control(
        0.05, low=1e-10, high=1e6, typical=(1e-4, 1e2), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 of the last layer, added to the sum of the losses")  # fmt: skip
    feature_correlation: Control = control(
        0.9, low=0.0, high=1.0, typical=(0.0, 1.0), symbol="q_F",
        meaning="correlation of the target's manifold with the source's")  # fmt: skip
    teacher_correlation: Control = control(
        0.9, low=0.0, high=1.0, typical=(0.0, 1.0), symbol=r"q_\theta",
        meaning="correlation of the target's teacher with the source's")  # fmt: skip
    source_samples: Control = control(
        80.0, low=1.0, high=1e4, typical=(5.0, 200.0), scale="log", symbol="n_s/d",
        meaning="training samples of the source per latent dimension")  # fmt: skip
    rate: Control = control(
        0.02, low=0.0, low_open=True, high=1.0, typical=(1e-3, 0.1), scale="log", symbol=r"\eta",
        meaning="learning rate of Adam, on the source (and on the target from scratch)")  # fmt: skip
    loss: str = choice(
        "logistic",
        options=("square", "logistic", "hinge"),
        symbol=r"\ell",
        meaning="loss of the last layer on the target",
    )
    manifold_kind: str = choice(
        "sign", options=MANIFOLDS, symbol=r"\sigma_0", meaning="how latent coordinates become inputs"
    )
    inputs: int = choice(5, low=1, high=100, symbol="D/d", meaning="inputs per latent dimension")
    width: int = choice(4, low=1, high=100, symbol="p/d", meaning="hidden units per latent dimension")
    epochs: int = choice(60, low=1, high=10_000, meaning="passes over the source's samples, in batches of 100")
    instance: int = choice(0, low=0, high=1_000_000, meaning="number of the source task and of its training")
    features: str = choice(
        "given", options=("given", "network"),
        meaning="moments of the features: given, or measured on a network that `prepare` trains on the source")  # fmt: skip
    baseline: str = choice(
        "random", options=("random", "scratch"),
        meaning="baseline of transfer: random features, or also both layers trained on the target")  # fmt: skip

    manifold: Input | None = data(dims=("pixel", "latent"), symbol="F_t", meaning="the target's manifold")
    teacher: Input | None = data(dims=("latent",), symbol=r"\theta_t", meaning="the target's teacher")
    layers: Input | None = data(
        dims=("map", "unit", "pixel"), symbol="W", meaning="the first layer learnt on the source, and a random one")  # fmt: skip
    omega: Input = input(
        np.asarray(TABLE["omega"]), dims=("map", "direction"), low=0.0, symbol=r"\omega_i",
        meaning="eigenvalues of E[hhᵀ] for both maps: the source's features, random ones")  # fmt: skip
    tau: Input = input(
        np.asarray(TABLE["tau"]), dims=("map", "direction"), low=0.0, symbol=r"\tau_i",
        meaning="squared components of √p E[hν] on the eigenvectors, for both maps")  # fmt: skip

    main_declared = ("test_error", "random_error", "gain")
    observables_declared = (
        observable("test_error", "probability of a wrong label on a fresh target sample, features of the source",
                   symbol=r"\varepsilon_g", low=0, high=1),
        observable("train_loss", "mean loss ℓ over the target's training samples, penalty not included, features of the source",
                   symbol=r"\mathcal{L}_t", low=0),
        observable("random_error", "test error with random features", low=0, high=1),
        observable("random_train_loss", "training loss with random features", low=0),
        observable("gain", "test error with random features minus that with the source's; negative values are negative transfer",
                   low=-1, high=1),
        observable("scratch_error", "test error of both layers trained on the target alone", low=0, high=1, predicted=False,
                   when={"baseline": "scratch"}),
        observable("scratch_gain", "test error of both layers trained on the target alone minus that with the source's features",
                   low=-1, high=1, predicted=False, when={"baseline": "scratch"}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.baseline == "scratch" and self.features != "network":
            raise InvalidValue("baseline = 'scratch' trains a network on the target and needs features = 'network'.")
        if isinstance(self.omega, Tracer) or isinstance(self.tau, Tracer):
            return
        omega, tau = np.asarray(self.omega), np.asarray(self.tau)
        if omega.shape[0] != 2:
            raise InvalidValue(f"omega has {omega.shape[0]} rows but needs 2: the source's features and random ones.")
        if np.any((omega == 0) & (tau > 0)):
            raise InvalidValue(
                "tau is positive where omega is 0, but must be 0 there: a flat direction carries no teacher."
            )
        reach = np.divide(tau, omega, out=np.zeros(omega.shape), where=omega > 0).mean(1)
        if reach.max() > 1 + 1e-6:
            raise InvalidValue(
                f"tau makes the mean of tau/omega {reach.max():.6g}, outside [0, 1]: 1 is the whole teacher."
            )

    # --- tasks and networks -------------------------------------------------------------------------------------------

    @property
    def unprepared(self) -> bool:
        return self.features == "network" and self.layers is None

    def source(self, size: int) -> Source:
        """The source at this latent dimension, trained once and cached."""
        number = max(1, round(float(self.source_samples) * size))
        shape = (size, self.inputs * size, self.width * size)
        steps = parts_of(self.epochs * number, most=BATCH)
        return source(self.instance, *shape, number, self.manifold_kind, float(self.rate), steps)

    def prepare(self, key: PRNGKeyArray, size: int) -> Transfer:
        """Train on the source, draw a target and a random first layer, and measure the moments of both feature maps."""
        learnt = self.source(size)
        keys = jax.random.split(key, 4)
        manifold, teacher = (
            (q * old + jnp.sqrt(1 - q**2) * jax.random.normal(k, old.shape, float)).astype(jnp.float32)
            for q, old, k in (
                (self.feature_correlation, learnt.manifold.astype(float), keys[0]),
                (self.teacher_correlation, learnt.teacher.astype(float), keys[1]),
            )
        )
        units, inputs = learnt.network.first.shape
        layers = jnp.stack([learnt.network.first, random_network(keys[2], units, inputs, jnp.float32).first])
        number = MOMENT_SAMPLES * units
        second, cross, power = (
            np.asarray(v) for v in moments(keys[3], manifold, teacher, layers, self.manifold_kind, number)
        )
        spectra = [
            of_matrices(power[None, None], cross[k][None, :], 0.5 * (second[k] + second[k].T), [1.0]) for k in range(2)
        ]
        return self.replace(
            manifold=manifold, teacher=teacher, layers=layers,
            omega=np.stack([s.omega for s in spectra]), tau=np.stack([s.tau for s in spectra]),
        )  # fmt: skip

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        loss, number = loss_named(self.loss), self.omega.shape[1]
        weights = jnp.full(number, 1 / number)

        def learn(omega: Array, tau: Array) -> tuple[Any, ...]:
            reach = weights @ _ratio(tau, omega)
            spectrum = Spectrum(omega, tau, weights, jnp.maximum(1 - reach, 0.0))
            at = student(
                loss, Sign(), spectrum, self.samples / self.width, self.penalty,
                nodes=numerics.nodes, tolerance=numerics.tolerance, max_steps=numerics.max_steps,
            )  # fmt: skip
            risks = sign_risks(loss, at.m, at.q, at.V, at.rest, numerics.nodes)
            return risks.test_error, risks.train_loss, at.converged, at.residual

        error, train, converged, residual = jax.vmap(learn)(self.omega, self.tau)
        return {**_named(error, train), "converged": jnp.all(converged), "residual": jnp.max(residual)}

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples = counts["samples"]
        rows, units = TEST_SAMPLES + samples.padded, self.width * size
        of_data, of_start, of_training = jax.random.split(key, 3)
        loss, mask, number = loss_named(self.loss), samples.mask(dtype), samples.actual.astype(dtype)
        test, train = slice(0, TEST_SAMPLES), slice(TEST_SAMPLES, None)

        def relearn(features: Array, labels: Array) -> tuple[Array, Array, Array]:
            features = features / math.sqrt(units)
            fit = minimise_risk(loss, features[train], labels[train], self.penalty.astype(dtype), mask)
            field = features @ fit.weights
            wrong = jnp.mean((labels * field < 0).astype(dtype)[test])
            return wrong, mask @ loss.value(labels, field)[train] / number, fit.residual

        if self.layers is None:  # Gaussian features with these moments
            place = ((2 * np.arange(units) + 1) * self.omega.shape[1]) // (2 * units)

            def gaussian(cell: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                key, omega, tau = cell
                z = jax.random.normal(key, (rows, units + 1), dtype)
                seen = _ratio(tau[place], omega[place]) / units
                field = z[:, :-1] @ jnp.sqrt(seen) + jnp.sqrt(jnp.maximum(1 - jnp.sum(seen), 0.0)) * z[:, -1]
                labels = jnp.where(field >= 0, 1.0, -1.0).astype(dtype)
                return relearn(z[:, :-1] * jnp.sqrt(omega[place])[None, :], labels)

            cells = (jax.random.split(of_data, 2), self.omega.astype(dtype), self.tau.astype(dtype))
            return _measured(*jax.lax.map(gaussian, cells))

        assert self.manifold is not None
        assert self.teacher is not None
        if self.manifold.shape[1] != size:
            raise InvalidValue(
                f"size = {size} is not {self.manifold.shape[1]}, the latent dimension of the prepared model."
            )
        manifold, teacher, layers = (v.astype(dtype) for v in (self.manifold, self.teacher, self.layers))
        inputs, labels, _ = draw_task(of_data, manifold, teacher, self.manifold_kind, rows)
        measured = _measured(*jax.lax.map(lambda first: relearn(jnp.tanh(inputs @ first.T), labels), layers))
        if self.baseline == "scratch":
            start = random_network(of_start, units, layers.shape[2], jnp.float32)
            x, y = inputs.astype(jnp.float32), labels.astype(jnp.float32)
            rate = self.rate.astype(jnp.float32)
            network = train_network(of_training, start, x[train], y[train], samples.actual, rate, SCRATCH_STEPS)
            measured["scratch_error"] = jnp.mean((y * network(x) < 0)[test].astype(dtype))
            measured["scratch_gain"] = measured["scratch_error"] - measured["test_error"]
        return measured


def _ratio(tau: Array, omega: Array) -> Array:
    """τ/ω, zero in flat directions."""
    return jnp.where(omega > 0, tau / jnp.where(omega > 0, omega, 1.0), 0.0)


def _measured(error: Array, train_loss: Array, residual: Array) -> dict[str, Array]:
    return {**_named(error, train_loss), "converged": jnp.all(residual < 1e-3), "residual": jnp.max(residual)}


def _named(error: Array, train_loss: Array) -> dict[str, Array]:
    return {
        "test_error": error[0],
        "train_loss": train_loss[0],
        "random_error": error[1],
        "random_train_loss": train_loss[1],
        "gain": error[1] - error[0],
    }
