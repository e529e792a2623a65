r"""A two-layer student learns a two-layer teacher from a stream of samples: the soft committee machine.

**Data.** Inputs x ~ N(0, 1_N), each used once. A teacher with M hidden units labels them,
y = Σ_n a_n g(u_n·x/√N) + σζ, with Gram matrix T = UUᵀ/N and label noise of variance σ².

**Learner.** f(x) = Σ_k v_k g(w_k·x/√N) with K hidden units; g is erf(·/√2), ReLU or a smooth one. Stochastic gradient descent on
½(f − y)², one fresh sample per step, time t = steps/N:

    w_k ← w_k − (η_w/√N) v_k g'(λ_k) (f − y) x,        v_k ← v_k − (η_v/N) g(λ_k) (f − y).

**Theory** (Saad and Solla 1995; Biehl and Schwarze 1995; both layers and noise: Goldt et al. 2019). For N → ∞ the overlaps
Q = WWᵀ/N, R = WUᵀ/N and v follow closed differential equations, written out at `methods.flows.committee`. They start at *given*
overlaps: the escape from the symmetric plateau takes a time ∝ log(1/asymmetry), so a finite network must be compared with
the flow that starts from the same overlaps.

**Simulation.** Weights with exactly the given overlaps, at any N ≥ K + M, then plain gradient descent. The test loss is the
exact population average given the weights.

**Finite size.** A start whose asymmetry is not large compared with 1/√N leaves the plateau at a random time. After the escape
the mean over networks then deviates by an amount that hardly decreases at accessible sizes (ReLU, default start, t = 60:
0.030 ± 0.006 at N = 2000, theory 0.0145). From a start with asymmetry 0.26 the deviation falls as 1/N at all times.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.activations import activation
from solvable.methods.flows.committee import (
    Overlaps,
    check_joint,
    committee_drift,
    committee_loss,
    equal_units,
    measured_overlaps,
    tied,
    weights_with_gram,
    weights_with_overlaps,
)
from solvable.methods.flows.descent import descend, steps_at
from solvable.methods.flows.integrate import integrate, until_failure
from solvable.model import Control, Guard, Input, Model, Numerics

from .._papers import SAAD_SOLLA

# Where sums over all nodes are off by e, sums over three quarters of them are off by e^(3/4).
ACCURACY = 1e-6
MOVED = ACCURACY**0.75


def _small_asymmetric_overlaps(model: SoftCommittee) -> np.ndarray:
    """Initial overlaps with a small, different bias of every unit towards one teacher unit: a plateau, then specialisation."""
    i, n = np.indices((model.students, model.teachers))
    lean = np.where(i % model.teachers == n, 0.05, 0.02) + 0.002 * ((3 * i + 2 * n) % 5)
    return lean / math.sqrt(max(1.0, model.students / model.teachers))


class SoftCommittee(Model):
    """Online learning of a two-layer network from a two-layer teacher.

    >>> import solvable as sv
    >>> curve = sv.SoftCommittee(times=[0.0, 20.0, 100.0]).theory().test_loss
    >>> bool(curve[0] > curve[1] > curve[2])
    True
    """

    id = "soft-committee"
    title = "Soft committee machine, online"
    family = "online"
    sentence = (
        "A two-layer network learns a two-layer teacher by online gradient descent: plateau, then specialisation."
    )
    method = "order-parameter flow"
    numerics = Numerics(rtol=1e-11, atol=1e-13, max_steps=4096, nodes=16, solver="dopri8")
    converges_along = "time"
    batch_accuracy = (
        1e-9  # rounding changes the adaptive steps, and the result depends on them within the flow's tolerance
    )
    typical_sizes = (125, 250, 500)
    theory_seconds = 5e-3
    simulation_seconds = 0.5
    check_study = (
        {
            "values": {"times": [0.0, 2.0, 5.0, 10.0], "readout_rate": 0.5, "noise": 0.04},
            "over": {"activation": ["erf", "relu"]},
        },
        {"values": {"times": [0.0, 2.0, 5.0, 10.0], "start": "random", "students": 3}, "seeds": 8},
    )
    guard = Guard(values={"times": [0.0, 2.0]}, corner_points=6)
    references = (
        SAAD_SOLLA,
        Reference(
            "biehl1995learning", "M. Biehl and H. Schwarze", "Learning by on-line gradient descent", 1995,
            "J. Phys. A 28, 643", doi="10.1088/0305-4470/28/3/018"),
        Reference(
            "goldt2019dynamics", "S. Goldt, M. S. Advani, A. M. Saxe, F. Krzakala and L. Zdeborová", "Dynamics of stochastic "
            "gradient descent for two-layer neural networks in the teacher-student setup", 2019, "NeurIPS 32",
            arxiv="1906.08632"),
    )  # fmt: skip

    rate: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.1, 2.0), symbol=r"\eta_w", meaning="learning rate of the first layer")  # fmt: skip
    readout_rate: Control = control(
        0.0, low=0.0, high=100.0, typical=(0.0, 1.0), symbol=r"\eta_v",
        meaning="learning rate of the second layer; 0 freezes it")  # fmt: skip
    noise: Control = control(
        0.0, low=0.0, high=100.0, typical=(0.0, 1.0), symbol=r"\sigma^2", meaning="variance of the label noise")  # fmt: skip
    activation: str = choice(
        "erf",
        options=("erf", "relu", "tanh", "softplus", "gelu"),
        symbol="g",
        meaning="activation of all units; erf is erf(x/√2), and the last three are averaged by quadrature",
    )
    students: int = choice(2, high=64, symbol="K", meaning="hidden units of the student")
    teachers: int = choice(2, high=64, symbol="M", meaning="hidden units of the teacher")
    start: str = choice(
        "given", options=("given", "random"),
        meaning="initial overlaps as given, or measured on weights drawn at random with the given norms")  # fmt: skip
    times: Input = input(
        np.linspace(0.0, 100.0, 101), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="times of measurement, increasing from the start, in steps per input dimension")  # fmt: skip
    initial_norm: Input = input(
        lambda m: 0.25 * np.eye(m.students), dims=("students", "students"), symbol="Q(0)",
        meaning="initial Gram matrix of the student units, w_i·w_j/N")  # fmt: skip
    initial_overlap: Input = input(
        _small_asymmetric_overlaps, dims=("students", "teachers"), symbol="R(0)",
        meaning="initial overlaps of student and teacher units, w_i·u_n/N")  # fmt: skip
    initial_readout: Input = input(
        lambda m: np.ones(m.students), dims=("students",), symbol="v(0)",
        meaning="initial second layer of the student")  # fmt: skip
    teacher_norm: Input = input(
        lambda m: np.eye(m.teachers), dims=("teachers", "teachers"), symbol="T",
        meaning="Gram matrix of the teacher units, u_n·u_m/N")  # fmt: skip
    teacher_readout: Input = input(
        lambda m: np.ones(m.teachers), dims=("teachers",), symbol="a", meaning="second layer of the teacher")  # fmt: skip

    dimensions_declared = (
        dimension("time", "training time", symbol=r"t", kind="time"),
        dimension("student", "unit of the student", symbol=r"i"),
        dimension("other_student", "unit of the student", symbol=r"k"),
        dimension("teacher", "unit of the teacher", symbol=r"n"),
    )
    main_declared = ("test_loss", "overlap")
    observables_declared = (
        observable("test_loss", "half the mean squared difference to the clean label on a fresh input; label noise, which "
                   "would add σ²/2, not included", symbol=r"\varepsilon", dims=("time",), low=0),
        observable("norm", "Gram matrix of the student units", symbol="Q", dims=("time", "student", "other_student")),
        observable("overlap", "overlaps of student and teacher units", symbol="R", dims=("time", "student", "teacher")),
        observable("readout", "second layer of the student", symbol="v", dims=("time", "student")),
    )  # fmt: skip

    def validate(self) -> None:
        given = (self.initial_norm, self.initial_overlap, self.teacher_norm)
        if any(isinstance(value, Tracer) for value in given):
            return
        norm, overlap, teacher = (np.asarray(value) for value in given)
        check_joint(norm, overlap, teacher, ("initial_norm", "initial_overlap", "teacher_norm"))

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def averaged(self) -> bool:
        """Whether averages over the fields are sums over nodes, and not in closed form."""
        return self.activation not in ("erf", "relu")

    @property
    def stated_accuracy(self) -> float:
        return ACCURACY if self.averaged else type(self).accuracy

    @property
    def corner_numerics(self) -> dict[str, Any]:
        return {"max_steps": 128} if self.averaged else {}  # sums over 64³ nodes, ten times in a step

    def point(self, numerics: Numerics) -> dict[str, Array]:
        observed, reached = self._follow(numerics, numerics.nodes)
        good = reached & jnp.isfinite(observed["test_loss"])
        if self.averaged:
            # Errors fall exponentially with the nodes, more slowly as the units grow: follow the flow with fewer nodes too.
            fewer, reached_too = self._follow(numerics, 3 * numerics.nodes // 4)
            moved = jax.tree.map(lambda a, b: _largest(jnp.abs(a - b) / (1 + jnp.abs(a))), observed, fewer)
            good = good & reached_too & (jnp.max(jnp.stack(jax.tree.leaves(moved)), axis=0) <= MOVED)
        return {**observed, "converged": until_failure(good)}

    def _follow(self, numerics: Numerics, nodes: int) -> tuple[dict[str, Array], Array]:
        """Observables along the flow, and the times that it reached."""
        g = activation(self.activation, nodes=nodes)

        def drift(t: Array, state: Overlaps, given: tuple[SoftCommittee, Any]) -> Overlaps:
            model, alike = given
            velocity = committee_drift(
                g,
                state,
                model.teacher_norm,
                model.teacher_readout,
                rate=model.rate,
                readout_rate=model.readout_rate,
                noise=model.noise,
            )
            return Overlaps(*tied(alike, *velocity))

        start = Overlaps(self.initial_norm, self.initial_overlap, self.initial_readout)
        looser = 100.0 if self.averaged else 1.0
        tolerances = {name: looser * numerics[name] for name in ("rtol", "atol")}
        settings = {name: numerics[name] for name in ("max_steps", "solver")}
        # units that are exactly equal stay equal: rounding must not break a symmetric plateau
        flow = integrate(drift, start, self.times, (self, equal_units(*start)), **tolerances, **settings)
        return self._observed(flow.values, nodes), flow.reached

    def _observed(self, path: Overlaps, nodes: int = 16) -> dict[str, Array]:
        """Observables along a trajectory of overlaps, time first."""
        g = activation(self.activation, nodes=nodes)
        loss = jax.vmap(lambda state: committee_loss(g, state, self.teacher_norm, self.teacher_readout))(path)
        return {"test_loss": loss, "norm": path.norm, "overlap": path.overlap, "readout": path.readout}

    # --- simulation -------------------------------------------------------------------------------------------------

    @property
    def unprepared(self) -> bool:
        return self.start == "random"

    def prepare(self, key: PRNGKeyArray, size: int) -> SoftCommittee:
        """Draw independent student weights of the given norms and measure their overlaps."""
        self._check_size(size)
        teacher_key, student_key = jax.random.split(key)
        teacher = weights_with_gram(teacher_key, self.teacher_norm, size)
        student = jax.random.normal(student_key, (self.students, size), float)
        student = student * jnp.sqrt(jnp.diagonal(self.initial_norm))[:, None]
        return self.replace(
            start="given", initial_norm=student @ student.T / size, initial_overlap=student @ teacher.T / size
        )

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        self._check_size(size)
        g = activation(self.activation)
        weight_key, sample_key = jax.random.split(key)
        student, teacher = weights_with_overlaps(
            weight_key, self.initial_norm, self.initial_overlap, self.teacher_norm, size, dtype
        )
        target = self.teacher_readout.astype(dtype)
        scatter, rate, readout_rate = (
            x.astype(dtype) for x in (jnp.sqrt(self.noise), self.rate / math.sqrt(size), self.readout_rate / size)
        )

        def step(number: Array, network: tuple[Array, Array]) -> tuple[Array, Array]:
            w, v = network
            draw = jax.random.normal(jax.random.fold_in(sample_key, number), (size + 1,), dtype)
            x, label_noise = draw[:-1], draw[-1]
            fields, teacher_fields = w @ x / math.sqrt(size), teacher @ x / math.sqrt(size)
            hidden = g.function(fields)
            error = v @ hidden - target @ g.function(teacher_fields) - scatter * label_noise
            turn = rate * error * v * g.derivative(fields)
            return w - turn[:, None] * x[None, :], v - readout_rate * error * hidden

        def measure(network: tuple[Array, Array]) -> Overlaps:
            w, v = network
            return Overlaps(*measured_overlaps(w, teacher, v))

        start = (student, self.initial_readout.astype(dtype))
        observed = self._observed(descend(step, start, steps_at(self.times, size), measure).path)
        return {**observed, "converged": until_failure(jnp.isfinite(observed["test_loss"]))}

    def _check_size(self, size: int) -> None:
        if size < self.students + self.teachers:
            raise InvalidValue(
                f"size = {size} is smaller than the {self.students + self.teachers} units of both networks."
            )


def _largest(values: Array) -> Array:
    """The largest entry at every time."""
    return jnp.max(values.reshape(values.shape[0], -1), axis=1)
