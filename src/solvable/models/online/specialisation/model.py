r"""The initial weights determine which hidden units carry a feature: imbalance of the layers, spread of the readouts.

**Data.** Inputs x ~ N(0, 1_N), each used once; orthonormal features ν_m = u_m·x/√N, m = 1…M. The target has one output for each,
y_m = a_m g(ν_m) + σζ_m, with g the identity (`linear`, any M) or erf(·/√2) (`erf`, M = 1).

**Learner.** f_m(x) = Σ_k V_mk g(w_k·x/√N) with K units, both layers trained by online gradient descent on ½|f - y|² with one
rate η, time t = steps/N. It starts from readouts of length r_v in a direction of angle θ, V_mm = r_v cos θ and
V_mk = r_v sin θ/√(K-1) for k ≠ m, and orthogonal weights of length r_w with given cosines with the features.

**Theory.** For N → ∞ the overlaps Q = WWᵀ/N, R = WUᵀ/N and V follow a closed flow. For `erf` it is that of Saad and Solla; for
`linear`, with e = Vλ - Aν, G = <eλᵀ> = VQ - ARᵀ, H = <eνᵀ> = VR - A and E = <eeᵀ> = VQVᵀ - VRA - ARᵀVᵀ + A² + σ²,

    dR_km/dt = -η Σ_l V_lk H_lm,      dV_mk/dt = -η G_mk,
    dQ_kl/dt = -η Σ_m (V_mk G_ml + V_ml G_mk) + η² Σ_mn V_mk E_mn V_nl.

The contribution of unit k to feature m is c_mk = V_mk R_km; with p_k ∝ |c_mk|, `specialisation` is 1 - H(p)/ln K: 0 if all
units share the feature, 1 if one carries it. For one feature, slow learning and w_k with no (or tiny) components orthogonal to
the feature, the flow has a closed form (`linear_contributions`), whose limit is `inherited`: the contributions grow as
(v_k + r_k)², so that large readouts pass on their own spread.

**Simulation.** Gradient descent from weights with exactly those overlaps, at any N ≥ K + M.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.activations import activation
from solvable.methods.averages.functions import function_named
from solvable.methods.flows.committee import (
    Overlaps,
    committee_drift,
    committee_loss,
    measured_overlaps,
    weights_with_overlaps,
)
from solvable.methods.flows.descent import descend, steps_at
from solvable.methods.flows.integrate import integrate, until_failure
from solvable.model import Control, Guard, Input, Model, Numerics

from .._papers import SAAD_SOLLA, SPECIALISATION


class State(NamedTuple):
    """Q (student×student), R (student×feature) and V (feature×student)."""

    norm: Array
    overlap: Array
    readout: Array


def linear_contributions(
    readout: Float[Array, " unit"], overlap: Float[Array, " unit"], strength: Any, time: Any
) -> Float[Array, " unit"]:
    r"""c_k(t) = v_k r_k of a linear network that learns one feature by gradient flow, dr/dt = v e, dv/dt = r e, e = a - Σ v r.

    With S = ∫e dt, v and r undergo a hyperbolic rotation by S, and c_k = ½(v_k²+r_k²) sinh 2S + v_k r_k cosh 2S from the initial
    values; y = e^{2S} follows dy/dt = 2ay - (A+B)y² + (A-B), A = ½Σ(v²+r²), B = Σvr, solved through its fixed points
    y± = [a ± √(a²+A²-B²)]/(A+B).

    >>> c = linear_contributions(jnp.array([0.1, 0.02]), jnp.array([0.01, 0.03]), 1.0, math.inf)
    >>> [round(float(x), 8) for x in c]
    [0.82876593, 0.17123407]
    """
    a, b = 0.5 * jnp.sum(readout**2 + overlap**2), jnp.sum(readout * overlap)
    root = jnp.sqrt(strength**2 + a**2 - b**2)
    high, low = (strength + root) / (a + b), (strength - root) / (a + b)
    ended = isinstance(time, float) and math.isinf(time)  # its exponential is zero, in derivatives too
    fraction = jnp.zeros(()) if ended else (1 - high) / (1 - low) * jnp.exp(-2 * root * jnp.asarray(time))
    y = (high - low * fraction) / (1 - fraction)
    return 0.25 * (readout**2 + overlap**2) * (y - 1 / y) + 0.5 * readout * overlap * (y + 1 / y)


def specialisation(contribution: Float[Array, "*n unit"]) -> Float[Array, "*n"]:
    """1 - H(p)/ln K of the shares p_k ∝ |c_k|.

    >>> [round(float(s), 6) for s in specialisation(jnp.array([[1.0, 1.0], [3.0, 0.0]]))]
    [0.0, 1.0]
    """
    size = jnp.abs(contribution)
    total = jnp.sum(size, axis=-1, keepdims=True)
    share = size / jnp.where(total > 0, total, 1.0)
    entropy = -jnp.sum(share * jnp.log(jnp.where(share > 0, share, 1.0)), axis=-1)
    return 1 - entropy / math.log(contribution.shape[-1])


class Specialisation(Model):
    """Whether hidden units share a feature or one of them carries it, given imbalance and spread of the initial weights.

    >>> import solvable as sv
    >>> heads = sv.Specialisation(readout_scale=[0.01, 1.0]).theory()
    >>> [round(float(s), 3) for s in heads.final_specialisation]  # large readouts pass on their spread
    [0.049, 0.72]
    """

    id = "specialisation"
    title = "Specialisation inherited from the initial weights"
    family = "online"
    sentence = (
        "Initial imbalance and spread of the readouts determine whether hidden units share a feature or one carries it."
    )
    method = "order-parameter flow; closed form of a linear network"
    numerics = Numerics(rtol=3e-13, atol=3e-15, max_steps=4096)
    converges_along = "time"
    batch_accuracy = 1e-9  # rounding changes the adaptive steps
    typical_sizes = (100, 200, 400)
    check_study = (
        {"values": {"times": [0.0, 5.0, 10.0, 20.0]}, "over": {"activation": ["erf", "linear"], "angle": [0.9, 1.3]},
         "seeds": 16},
        {"values": {"activation": "linear", "features": 2, "students": 3, "rate": 0.3, "angle": 0.4,
                    "times": [0.0, 5.0, 15.0, 30.0]}, "seeds": 16},
    )  # fmt: skip
    guard = Guard(values={"times": [0.0, 1.0, 4.0]})
    references = (
        SPECIALISATION,
        Reference(
            "saxe2014exact", "A. M. Saxe, J. L. McClelland and S. Ganguli", "Exact solutions to the nonlinear dynamics of "
            "learning in deep linear neural networks", 2014, "ICLR", arxiv="1312.6120"),
        SAAD_SOLLA,
    )  # fmt: skip

    readout_scale: Control = control(
        0.5, low=0.0, high=100.0, typical=(0.01, 1.0), scale="log", symbol="r_v",
        meaning="length of the initial readouts of each feature")  # fmt: skip
    first_scale: Control = control(
        0.3, low=0.0, low_open=True, high=100.0, typical=(0.01, 1.0), scale="log", symbol="r_w",
        meaning="length of the initial first-layer weights of each unit, |w_k|/√N")  # fmt: skip
    angle: Control = control(
        1.3, low=0.0, high=math.pi / 2, typical=(0.1, 1.5), symbol=r"\theta",
        meaning="direction of the initial readouts: 0 on the feature's own unit, π/2 on all others")  # fmt: skip
    rate: Control = control(
        1.0, low=0.0, high=20.0, typical=(0.1, 1.0), symbol=r"\eta", meaning="learning rate of both layers")  # fmt: skip
    noise: Control = control(
        0.0, low=0.0, high=100.0, typical=(0.0, 0.1), symbol=r"\sigma^2", meaning="variance of the label noise")  # fmt: skip
    activation: str = choice(
        "erf", options=("erf", "linear"), symbol="g", meaning="activation, erf(x/√2) or the identity"
    )
    students: int = choice(2, low=2, high=32, symbol="K", meaning="hidden units of the student")
    features: int = choice(1, high=16, symbol="M", meaning="features, each with its own output; one for erf")
    times: Input = input(
        np.linspace(0.0, 40.0, 41), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="times of measurement, increasing from the start, in steps per input dimension")  # fmt: skip
    cosines: Input = input(
        lambda m: 0.02 + 0.01 * np.eye(m.students, m.features), dims=("students", "features"), low=-1.0, high=1.0,
        symbol=r"R(0)/r_w", meaning="initial cosines of the units' weights with the features")  # fmt: skip
    strengths: Input = input(
        lambda m: 0.7 ** np.arange(m.features), dims=("features",), low=0.0, symbol="a",
        meaning="strength of each feature in its output")  # fmt: skip

    dimensions_declared = (
        dimension("time", "training time", symbol=r"t", kind="time"),
        dimension("feature", "feature of the teacher"),
        dimension("unit", "hidden unit"),
    )
    main_declared = ("specialisation", "final_specialisation", "test_loss")
    observables_declared = (
        observable("specialisation", "one minus the entropy of the units' shares in each feature, over its maximum",
                   symbol="s", dims=("time", "feature"), low=0, high=1),
        observable("final_specialisation", "specialisation at the last time, mean over the features", symbol="s", low=0, high=1),
        observable("contribution", "contribution of each unit to each feature, readout times overlap", symbol="c",
                   dims=("time", "feature", "unit")),
        observable("test_loss", "half the mean squared difference to the clean label, summed over outputs",
                   symbol=r"\varepsilon", dims=("time",), low=0),
        observable("inherited", "final specialisation of the closed form: linear, slow, weights along the feature",
                   status="approximate", low=0, high=1, simulated=False, when={"features": 1}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.activation == "erf" and self.features > 1:
            raise InvalidValue(
                f"features = {self.features} needs activation = 'linear': 'erf' allows one feature only."
            )
        if self.features > self.students:
            raise InvalidValue(f"features = {self.features} is more than the students = {self.students}.")
        if isinstance(self.cosines, Tracer):
            return
        cosines = np.asarray(self.cosines)
        largest = np.linalg.norm(cosines, 2)
        if largest > 1 + 1e-9:
            raise InvalidValue(
                f"no orthogonal weights have these cosines: their largest singular value is {largest:.3g}, above 1."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    # --- theory -----------------------------------------------------------------------------------------------------

    def _start(self) -> State:
        own = np.eye(self.features, self.students)
        others = (1 - own) / math.sqrt(self.students - 1)
        readout = self.readout_scale * (jnp.cos(self.angle) * own + jnp.sin(self.angle) * others)
        norm = self.first_scale**2 * np.eye(self.students)
        return State(norm, self.first_scale * self.cosines, readout)

    def _drift(self, state: State) -> State:
        """Time derivative of the overlaps and readouts."""
        if self.activation == "erf":
            drift = committee_drift(
                activation("erf"),
                Overlaps(state.norm, state.overlap, state.readout[0]),
                jnp.eye(1),
                self.strengths,
                rate=self.rate,
                readout_rate=self.rate,
                noise=self.noise,
            )
            return State(drift.norm, drift.overlap, drift.readout[None])
        v, target = state.readout, jnp.diag(self.strengths)
        with_students = v @ state.norm - target @ state.overlap.T
        with_features = v @ state.overlap - target
        squares = with_students @ v.T - with_features @ target + self.noise * np.eye(self.features)
        pull = v.T @ with_students
        return State(
            norm=-self.rate * (pull + pull.T) + self.rate**2 * v.T @ squares @ v,
            overlap=-self.rate * v.T @ with_features,
            readout=-self.rate * with_students,
        )

    def point(self, numerics: Numerics) -> dict[str, Array]:
        flow = integrate(
            lambda t, state, model: model._drift(state), self._start(), self.times, self, **dict(numerics.items())
        )
        drift = {**self._observed(flow.values), "converged": flow.reached}
        if self.features > 1:
            return drift
        start = self._start()
        end = linear_contributions(start.readout[0], start.overlap[:, 0], self.strengths[0], math.inf)
        return {**drift, "inherited": specialisation(end)}

    def _observed(self, path: State) -> dict[str, Array]:
        contribution = path.readout * jnp.swapaxes(path.overlap, 1, 2)
        special = specialisation(contribution)
        return {
            "specialisation": special,
            "final_specialisation": jnp.mean(special[-1]),
            "contribution": contribution,
            "test_loss": jax.vmap(self._loss)(path),
        }

    def _loss(self, state: State) -> Array:
        """The population loss, exact given the overlaps."""
        if self.activation == "erf":
            overlaps = Overlaps(state.norm, state.overlap, state.readout[0])
            return committee_loss(activation("erf"), overlaps, jnp.eye(1), self.strengths)
        v, cross = state.readout, self.strengths * jnp.diagonal(state.readout @ state.overlap)
        return 0.5 * (jnp.sum((v @ state.norm) * v) - 2 * jnp.sum(cross) + jnp.sum(self.strengths**2))

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        units = self.students + self.features
        if size < units:
            raise InvalidValue(f"size = {size} is smaller than the {units} units and features.")
        weight_key, sample_key = jax.random.split(key)
        begin = self._start()
        student, feature = weights_with_overlaps(
            weight_key, begin.norm, begin.overlap, jnp.eye(self.features), size, dtype
        )
        strengths, scatter, rate = (x.astype(dtype) for x in (self.strengths, jnp.sqrt(self.noise), self.rate))

        shape = function_named(self.activation)

        def step(number: Array, network: tuple[Array, Array]) -> tuple[Array, Array]:
            w, v = network
            draw = jax.random.normal(jax.random.fold_in(sample_key, number), (size + self.features,), dtype)
            x, label_noise = draw[:size], draw[size:]
            fields = w @ x / math.sqrt(size)
            hidden, slope = jax.jvp(shape, (fields,), (jnp.ones_like(fields),))
            error = v @ hidden - strengths * shape(feature @ x / math.sqrt(size)) - scatter * label_noise
            back = (error @ v) * slope
            w = w - rate / math.sqrt(size) * back[:, None] * x[None, :]
            return w, v - rate / size * error[:, None] * hidden[None, :]

        def measure(network: tuple[Array, Array]) -> State:
            w, v = network
            return State(*measured_overlaps(w, feature, v))

        start = (student, begin.readout.astype(dtype))
        observed = self._observed(descend(step, start, steps_at(self.times, size), measure).path)
        return {**observed, "converged": until_failure(jnp.isfinite(observed["test_loss"]))}
