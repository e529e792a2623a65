r"""Which task to show when: a student that knows one task learns a second without forgetting the first.

**Data.** Inputs x ~ N(0, 1_N), each used once. Task t = 1, 2 has a teacher of one unit, y_t = g(u_t·x/√N) + σζ, with
u_t·u_t/N = 1 and u_1·u_2/N = γ, the similarity of the tasks; g is erf(·/√2) or ReLU.

**Learner.** K units shared by both tasks, a head for each: f_t(x) = Σ_k v_tk g(w_k·x/√N). A sample of task t makes one step
of gradient descent on ½(f_t − y_t)² in the first layer and its own head, time in steps per N (`methods.flows.tasks`). At first
all samples are from task 1, for a time `first_stage`. Then, for a time `horizon` T cut into equal intervals, a *protocol* sets
the fraction u(t) of samples from task 2 and the pace, a factor of the learning rates:

- `no-replay`: only task 2;
- `even`: half and half;
- `focus`: only task 2 until a switch, then half and half; the switch is the best interval boundary;
- `optimal`: the fractions that minimise the mean loss of both tasks at T;
- `optimal-rate`: the same for fractions and pace together, the pace between `slowest` and `fastest`;
- `given`: `given_fraction`. (`given_pace` applies to every protocol except `optimal-rate`.)

**Theory** (Mori, Sarao Mannelli and Mignacco 2024). For N → ∞ overlaps and heads follow a flow that is linear in the fractions,
ẏ = (1−u) f_1 + u f_2. Pontryagin's principle: with the costates p, all samples belong to the task with the smaller switching
function s_t = p·f_t; where both stay equal, replay is interleaved with a fraction between 0 and 1. `gap` measures the distance
from that condition, and is zero where the principle holds (`methods.flows.control`). The optimal protocols are local minima,
searched from two starts, and NaN where the search did not converge. Derivatives are taken with the protocol held fixed, which
is exact for the optimal final loss.

**Simulation.** A network with exactly the overlaps that the flow has after the first stage, at any N ≥ K + 2, then gradient
descent in which every sample's task is drawn with the protocol's fraction. The losses are exact population averages given
the weights.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import choice, control, dimension, input, observable
from solvable.methods.averages.activations import activation
from solvable.methods.flows.committee import measured_overlaps, weights_with_overlaps
from solvable.methods.flows.control import Box, Protocol, Rate, Simplex, arrive, evaluate, search
from solvable.methods.flows.descent import descend
from solvable.methods.flows.integrate import integrate
from solvable.methods.flows.tasks import TaskOverlaps, mixture, task_drifts, task_losses
from solvable.model import Control, Guard, Input, Model, Numerics

from .._papers import CONTINUAL, OPTIMAL_PROTOCOLS, SAAD_SOLLA
from .._protocols import PROTOCOL_DIMENSIONS
from .._two_tasks import (
    activation_field,
    check_overlaps,
    check_size,
    noise_field,
    norm_field,
    rate_field,
    similarity_field,
    stage_field,
    students_field,
    teachers_gram,
)

PROTOCOLS = ("no-replay", "even", "focus", "optimal", "optimal-rate", "given")


def _small_overlaps(model: ContinualProtocols) -> np.ndarray:
    i = np.arange(model.students)
    return 1e-6 * np.column_stack([(-1.0) ** i * (1 + i // 2), 2.0 - 0.5 * i])


def _unequal_heads(model: ContinualProtocols) -> np.ndarray:
    i = np.arange(model.students)
    return np.stack([0.5 / 5.0**i, 0.1 - 0.4 * i])


class ContinualProtocols(Model):
    """Schedules of two tasks for an online student: heuristics, and the optimum of the mean final loss.

    >>> import solvable as sv
    >>> losses = [float(sv.ContinualProtocols(protocol=p).theory().final_loss) for p in ("no-replay", "even")]
    >>> [round(loss, 5) for loss in losses]
    [0.00999, 0.02173]
    """

    id = "continual-protocols"
    title = "Optimal protocols for continual learning"
    family = "online"
    sentence = "Which task to show when: replay heuristics and the optimal protocol of a student that must not forget."
    method = "Pontryagin's principle on the flow"
    search_settings = ("iterations", "tolerance")
    numerics = Numerics(
        rtol=1e-11, atol=1e-14, max_steps=4096, nodes=16, accuracy=1e-7, iterations=3000, tolerance=1e-4
    )
    accuracy = 1e-6
    batch_accuracy = 1e-9  # rounding changes the adaptive steps of the first stage
    typical_sizes = (250, 500, 1000)
    theory_lanes = 8  # reverse mode stores all steps of a flow
    theory_seconds = 2e-2
    simulation_seconds = 2.0
    check_study = (
        {"values": {"similarity": 0.3}, "over": {"protocol": ["no-replay", "optimal"]}, "seeds": 16},
        {"values": {"similarity": 0.7, "noise": 0.01, "protocol": "focus", "intervals": 20}, "seeds": 16},
    )
    guard = Guard(values={"protocol": "no-replay"}, corner_points=6)
    references = (OPTIMAL_PROTOCOLS, CONTINUAL, SAAD_SOLLA)

    similarity: Control = similarity_field(0.3, typical=(0.0, 0.9))
    rate: Control = rate_field(r"\eta_w", "learning rate of the first layer, at pace 1")
    readout_rate: Control = rate_field(r"\eta_v", "learning rate of the heads, at pace 1")
    noise: Control = noise_field()
    first_stage: Control = stage_field(
        100.0, (50.0, 150.0), "t_1", "time spent on task 1 alone, in steps per input dimension"
    )
    horizon: Control = control(
        10.0, low=0.0, low_open=True, high=1000.0, typical=(2.0, 20.0), symbol="T",
        meaning="duration of the protocol, in steps per input dimension")  # fmt: skip
    fastest: Control = control(
        5.0, low=0.0, low_open=True, high=100.0, typical=(2.0, 6.0), symbol=r"\eta_{\max}",
        meaning="largest pace of the protocol optimal-rate", when={"protocol": "optimal-rate"})  # fmt: skip
    slowest: Control = control(
        0.0, low=0.0, high=100.0, typical=(0.0, 1.0), symbol=r"\eta_{\min}",
        meaning="smallest pace of the protocol optimal-rate, capped at `fastest`",
        when={"protocol": "optimal-rate"})  # fmt: skip
    protocol: str = choice("even", options=PROTOCOLS, meaning="schedule of the two tasks and of the pace")
    activation: str = activation_field()
    students: int = students_field()
    intervals: int = choice(100, high=1000, meaning="equal intervals of the horizon on which a protocol is constant")
    given_fraction: Input = input(
        lambda m: np.full(m.intervals, 0.5), dims=("intervals",), low=0.0, high=1.0, symbol="u",
        meaning="fraction of samples from task 2 in each interval, for the protocol given",
        when={"protocol": "given"})  # fmt: skip
    given_pace: Input = input(
        lambda m: np.ones(m.intervals), dims=("intervals",), low=0.0,
        meaning="factor of both learning rates in each interval, for all protocols except optimal-rate")  # fmt: skip
    initial_norm: Input = norm_field("Gram matrix of the student units before the first stage")
    initial_overlap: Input = input(
        _small_overlaps, dims=("students", "tasks"), symbol="R(0)",
        meaning="overlaps of the student units with both teachers before the first stage")  # fmt: skip
    initial_readout: Input = input(
        _unequal_heads, dims=("tasks", "students"), symbol="V(0)", meaning="both heads before the first stage")  # fmt: skip

    dimensions_declared = (
        *PROTOCOL_DIMENSIONS,
        dimension("task", "first and second task"),
    )
    main_declared = ("test_loss", "final_loss", "forgetting", "fraction")
    observables_declared = (
        observable("test_loss", "half the mean squared difference to the clean label of each task, on a fresh input, at the "
                   "interval boundaries", symbol=r"\varepsilon_t", dims=("progress", "task"), low=0),
        observable("final_loss", "mean loss of both tasks at the end", symbol=r"\bar\varepsilon(T)", low=0),
        observable("forgetting", "increase of the loss of task 1 from the end of the first stage",
                   symbol=r"\varepsilon_1(T)-\varepsilon_1(0)"),
        observable("fraction", "fraction of samples from task 2 in each interval", symbol="u", dims=("interval",), low=0,
                   high=1, simulated=False),
        observable("pace", "factor of both learning rates in each interval", dims=("interval",), low=0, simulated=False),
        observable("switching", "switching function of each task: change of the final loss with the fraction of its "
                   "samples in each interval, per unit of time", symbol="s_t", dims=("interval", "task"), simulated=False),
        observable("gap", "Frank–Wolfe gap of the protocol, zero where Pontryagin's principle holds", low=0,
                   simulated=False),
    )  # fmt: skip

    def validate(self) -> None:
        check_overlaps(self.similarity, self.initial_norm, self.initial_overlap)

    def coordinates(self) -> dict[str, np.ndarray]:
        edges = np.linspace(0.0, 1.0, self.intervals + 1)
        return {"progress": edges, "interval": 0.5 * (edges[1:] + edges[:-1]), "task": np.array([1, 2])}

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def accurate_observables(self) -> tuple[str, ...]:
        """The final loss alone for an optimal protocol: fractions move freely where the loss is flat."""
        return ("final_loss",) if self.protocol.startswith("optimal") else super().accurate_observables

    @property
    def _teachers(self) -> Array:
        return teachers_gram(self.similarity)

    def _drift(self, nodes: int) -> Any:
        g = activation(self.activation, nodes=nodes)

        def drift(state: TaskOverlaps, u: dict[str, Array]) -> TaskOverlaps:
            rates = {"rate": u["pace"] * self.rate, "readout_rate": u["pace"] * self.readout_rate, "noise": self.noise}
            return mixture(task_drifts(g, state, self._teachers, np.eye(2), **rates), u["fraction"])

        return drift

    def _losses(self, state: TaskOverlaps) -> Array:
        return task_losses(activation(self.activation), state, self._teachers, np.eye(2))

    def _mean_loss(self, state: TaskOverlaps) -> Array:
        return jnp.mean(self._losses(state))

    def _after_first_stage(self, numerics: Numerics) -> tuple[TaskOverlaps, Array]:
        """State of the student at the start of the protocol, and whether the flow converged."""
        only_first = {"fraction": jnp.asarray([1.0, 0.0]), "pace": jnp.asarray(1.0)}

        def drift(t: Array, state: TaskOverlaps, model: ContinualProtocols) -> TaskOverlaps:
            velocity = model._drift(numerics.nodes)(state, only_first)
            return jax.tree.map(lambda part: model.first_stage * part, velocity)

        start = TaskOverlaps(self.initial_norm, self.initial_overlap, self.initial_readout)
        settings = {name: numerics[name] for name in ("rtol", "atol", "max_steps")}
        flow = integrate(drift, start, jnp.asarray([0.0, 1.0]), self, **settings)
        return jax.tree.map(lambda x: x[-1], flow.values), flow.converged

    def _schedule(self, start: TaskOverlaps, numerics: Numerics) -> tuple[dict[str, Array], Array]:
        """The protocol as controls, and whether the search for it converged."""
        yes = jnp.asarray(True)
        if self.protocol == "given":
            return self._controls(self.given_fraction), yes
        if self.protocol in ("no-replay", "even"):
            return self._controls(jnp.full(self.intervals, 1.0 if self.protocol == "no-replay" else 0.5)), yes
        # the search uses constants: no derivative passes through it
        fixed, start = jax.lax.stop_gradient((self, start))
        if self.protocol == "focus":
            focus, _, known = fixed._best_focus(start, numerics)
            return focus, known
        found = fixed._search(start, numerics)
        return found.controls, found.converged

    def _sets(self) -> dict[str, Simplex | Box]:
        """The free variables of a protocol: the fractions, and the pace if it is optimised."""
        fractions: dict[str, Simplex | Box] = {"fraction": Simplex()}
        paces = Rate(self.fastest, slowest=jnp.minimum(self.slowest, self.fastest))
        return {**fractions, "pace": paces} if self.protocol == "optimal-rate" else fractions

    def _controls(self, second: Array) -> dict[str, Array]:
        return {"fraction": jnp.stack([1 - second, second], axis=-1), "pace": self.given_pace}

    def _best_focus(self, start: TaskOverlaps, numerics: Numerics) -> tuple[dict[str, Array], Array, Array]:
        """Task 2 alone, then half and half, with the best switch; its final loss; and whether all switches converged."""
        drift, number = self._drift(numerics.nodes), np.arange(self.intervals)

        def final(second: Array) -> Array:
            settings = {name: numerics[name] for name in ("accuracy", "max_steps")}
            return self._mean_loss(arrive(drift, start, self._controls(second), self.horizon, **settings))

        switched = jnp.asarray(np.where(number[None, :] < np.arange(self.intervals + 1)[:, None], 1.0, 0.5))
        losses = jax.vmap(final)(switched)
        chosen = jnp.nanargmin(losses)
        return self._controls(switched[chosen]), losses[chosen], jnp.all(jnp.isfinite(losses))

    def _search(self, start: TaskOverlaps, numerics: Numerics) -> Protocol:
        """The best protocol found by searches from the best focus and from an even mixture."""
        focus, level, _ = self._best_focus(start, numerics)
        even = self._controls(jnp.full(self.intervals, 0.5))
        if self.protocol == "optimal-rate":
            low, high = jnp.minimum(self.slowest, self.fastest), self.fastest
            slow, quick = (jnp.full(self.intervals, jnp.clip(level, low, high)) for level in (1.0, 1.5))
            focus, even = {**focus, "pace": slow}, {**even, "pace": quick}
        return search(
            self._drift(numerics.nodes),
            self._mean_loss,
            start,
            [focus, even],
            self._sets(),
            self.horizon,
            accuracy=numerics.accuracy,
            max_steps=numerics.max_steps,
            iterations=numerics.iterations,
            tolerance=numerics.tolerance * level,
        )

    def point(self, numerics: Numerics) -> dict[str, Array]:
        start, arrived = self._after_first_stage(numerics)
        controls, found = self._schedule(start, numerics)
        followed = evaluate(
            self._drift(numerics.nodes),
            self._mean_loss,
            start,
            controls,
            self._sets(),
            self.horizon,
            accuracy=numerics.accuracy,
            max_steps=numerics.max_steps,
        )
        return {
            **self._observed(followed.path),
            "fraction": controls["fraction"][:, 1],
            "pace": controls["pace"],
            "switching": followed.slopes["fraction"],
            "gap": followed.gap,
            "converged": arrived & found & jnp.isfinite(followed.cost),
        }

    def _observed(self, path: TaskOverlaps) -> dict[str, Array]:
        losses = jax.vmap(self._losses)(path)
        return {
            "test_loss": losses,
            "final_loss": jnp.mean(losses[-1]),
            "forgetting": losses[-1, 0] - losses[0, 0],
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        check_size(size, self.students)
        g, numerics = activation(self.activation), type(self).numerics
        start, arrived = self._after_first_stage(numerics)
        controls, found = self._schedule(start, numerics)
        weight_key, sample_key, task_key = jax.random.split(key, 3)
        student, teacher = weights_with_overlaps(weight_key, start.norm, start.overlap, self._teachers, size, dtype)
        scatter, rate, readout_rate = (
            x.astype(dtype) for x in (jnp.sqrt(self.noise), self.rate / math.sqrt(size), self.readout_rate / size)
        )

        def step(number: Array, network: tuple[Array, Array], setting: tuple[Array, Array]) -> tuple[Array, Array]:
            (w, heads), (second, pace) = network, setting
            draw = jax.random.normal(jax.random.fold_in(sample_key, number), (size + 1,), dtype)
            x, label_noise = draw[:-1], draw[-1]
            is_second = (jax.random.uniform(jax.random.fold_in(task_key, number), (), dtype) < second).astype(dtype)
            task = jnp.stack([1 - is_second, is_second])
            fields, teacher_fields = w @ x / math.sqrt(size), teacher @ x / math.sqrt(size)
            hidden, v = g.function(fields), task @ heads
            error = v @ hidden - task @ g.function(teacher_fields) - scatter * label_noise
            turn = pace * error * v * g.derivative(fields)
            w = w - rate * turn[:, None] * x[None, :]
            heads = heads - readout_rate * pace * error * task[:, None] * hidden[None, :]
            return w, heads

        def measure(network: tuple[Array, Array]) -> TaskOverlaps:
            w, heads = network
            return TaskOverlaps(*measured_overlaps(w, teacher, heads))

        done = jnp.asarray(np.arange(1, self.intervals + 1) / self.intervals)
        ends = jnp.rint(self.horizon * size * done).astype(jnp.int32)
        network = (student, start.readout.astype(dtype))
        schedule = (controls["fraction"][:, 1].astype(dtype), controls["pace"].astype(dtype))
        run = descend(step, network, ends, measure, schedule, measure_start=True)
        observed = self._observed(run.path)
        return {**observed, "converged": arrived & found & jnp.all(jnp.isfinite(observed["test_loss"]))}
