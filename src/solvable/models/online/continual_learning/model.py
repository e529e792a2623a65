r"""Two tasks in succession: forgetting of the first depends on its similarity to the second.

**Data.** Inputs x ~ N(0, 1_N), each used once. Task t = 1, 2 has a teacher of one unit, y_t = g(u_t·x/√N) + σζ, with
u_t·u_t/N = 1 and u_1·u_2/N = γ, the similarity of the tasks; g is erf(·/√2) or ReLU.

**Learner.** K units shared by both tasks, a head for each: f_t(x) = Σ_k v_tk g(w_k·x/√N), trained by gradient descent on
½(f_t − y_t)², one fresh sample per step, time in steps per N: task 1 for a time t_1, then task 2 for a time t_2. At the switch
the second head is *fresh* (as given) or *copied* from the first, which changes the physics. In the second stage

- a fraction `replay` of the samples still comes from task 1;
- `consolidation` λ pulls the weights back to those of the switch (elastic weight consolidation, Kirkpatrick et al. 2017):
  w_k ← w_k − (η_w λ Ω_k/N)(w_k − w̃_k) at every step, with the importance Ω_k = v_1k² (`readout`) or the Fisher information
  v_1k² <g'(λ_k)²> (`fisher`), both taken at the switch.

**Theory** (Lee, Goldt and Saxe 2021; Lee et al. 2022). For N → ∞ overlaps and heads follow a flow (`methods.flows.tasks`). The
frozen w̃ are further units without a readout, so that with S_kl = w_k·w̃_l/N beside R, and R^ = [R, S], consolidation adds

    dR^_kn/dt = … − η_w λ Ω_k (R^_kn − R^_kn(switch))
    dQ_kl/dt  = … − η_w λ [Ω_k (Q_kl − S_lk) + Ω_l (Q_kl − S_kl)].

A *specialised* student, whose first head weighs one unit only, forgets most at intermediate similarity: similar tasks re-use,
and overwrite, the specialised unit; dissimilar ones activate the spare unit. A student whose units share the first task
forgets more the less similar the second is.

**Simulation.** A network with exactly the given initial overlaps, at any N ≥ K + 2, trained through both stages. The losses are
exact population averages given the weights.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.methods.averages.activations import activation
from solvable.methods.flows.committee import measured_overlaps, weights_with_overlaps
from solvable.methods.flows.descent import Descent, descend
from solvable.methods.flows.integrate import integrate, until_failure
from solvable.methods.flows.tasks import TaskOverlaps, mixture, task_drifts, task_losses
from solvable.model import Control, Guard, Input, Model, Numerics

from .._papers import CONTINUAL, MASLOW, SPECIALISATION
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

NUDGE = 1e-13  # relative change of the initial overlaps that must not change the flow beyond its accuracy


def _first_head(model: ContinualLearning) -> np.ndarray:
    """Initial first head. Specialised: one unit carries the task; shared: all units do, nearly equally."""
    i = np.arange(model.students)
    return np.where(i == 1, 0.99, 0.14) if model.start == "specialised" else 0.7 + 0.014 * i


def _small_overlaps(model: ContinualLearning) -> np.ndarray:
    """Equal initial overlaps with both teachers, which exist at any similarity."""
    lean = np.where(np.arange(model.students) % 2 == 0, 3e-5, 2e-5)
    return np.column_stack([lean, lean])


class ContinualLearning(Model):
    """A student learns two tasks one after the other: forgetting, transfer, replay and consolidation.

    >>> import solvable as sv
    >>> lost = sv.ContinualLearning(similarity=[0.0, 0.5, 0.9]).theory().forgetting
    >>> bool(lost[1] > lost[0] > lost[2])
    True
    """

    id = "continual-learning"
    title = "Forgetting and task similarity"
    family = "online"
    sentence = (
        "Two tasks in succession: forgetting against their similarity, with replay and elastic weight consolidation."
    )
    method = "order-parameter flow of several tasks"
    numerics = Numerics(rtol=3e-13, atol=3e-15, max_steps=4096, nodes=16, solver="dopri8")
    converges_along = "stage"
    batch_accuracy = 1e-9  # rounding changes the adaptive steps
    typical_sizes = (125, 250, 500)
    theory_seconds = 5e-3
    simulation_seconds = 0.5
    check_study = (
        {
            "values": {"similarity": 0.4, "first_stage": 12.0, "second_stage": 15.0, "points": 3, "consolidation": 2.0,
                       "noise": 0.01},
            "over": {"start": ["specialised", "shared"]},
            "seeds": 16,
        },
        {
            "values": {"similarity": 0.4, "first_stage": 12.0, "second_stage": 15.0, "points": 3, "replay": 0.2,
                       "head": "copied"},
            "seeds": 16,
        },
    )  # fmt: skip
    guard = Guard(values={"points": 3})
    references = (
        MASLOW,
        CONTINUAL,
        SPECIALISATION,
        Reference(
            "kirkpatrick2017overcoming", "J. Kirkpatrick et al.", "Overcoming catastrophic forgetting in neural networks", 2017,
            "PNAS 114, 3521", arxiv="1612.00796"),
    )  # fmt: skip

    similarity: Control = similarity_field(0.5, typical=(0.0, 1.0))
    rate: Control = rate_field(r"\eta_w", "learning rate of the first layer")
    readout_rate: Control = rate_field(r"\eta_v", "learning rate of the heads")
    noise: Control = noise_field()
    first_stage: Control = stage_field(40.0, (10.0, 60.0), "t_1", "time on task 1, in steps per dimension")
    second_stage: Control = stage_field(40.0, (10.0, 60.0), "t_2", "time on task 2, in steps per dimension")
    replay: Control = control(
        0.0, low=0.0, high=1.0, typical=(0.0, 0.5), symbol="u",
        meaning="fraction of samples from task 1 in the second stage")  # fmt: skip
    consolidation: Control = control(
        0.0, low=0.0, high=1000.0, typical=(0.0, 5.0), symbol=r"\lambda",
        meaning="strength of the pull towards the weights at the switch, in the second stage")  # fmt: skip
    start: str = choice(
        "specialised", options=("specialised", "shared"),
        meaning="default first head: one unit carries most of the weight, or all have nearly the same")  # fmt: skip
    head: str = choice(
        "fresh", options=("fresh", "copied"),
        meaning="second head at the switch: as given, or a copy of the first")  # fmt: skip
    importance: str = choice(
        "readout", options=("readout", "fisher"), symbol=r"\Omega",
        meaning="weight of each unit in the consolidation: its squared readout, or its Fisher information")  # fmt: skip
    activation: str = activation_field()
    students: int = students_field()
    points: int = choice(20, high=1000, meaning="equally spaced measurements in each stage, in addition to the start")
    initial_norm: Input = norm_field("initial Gram matrix of the student units")
    initial_overlap: Input = input(
        _small_overlaps, dims=("students", "tasks"), symbol="R(0)",
        meaning="initial overlaps of the student units with both teachers")  # fmt: skip
    first_head: Input = input(
        _first_head, dims=("students",), symbol="v_1(0)", meaning="initial head of task 1")  # fmt: skip
    second_head: Input = input(
        lambda m: np.full(m.students, 0.3), dims=("students",), symbol="v_2(0)",
        meaning="head of task 2 at the switch, if it is fresh")  # fmt: skip

    dimensions_declared = (
        dimension("stage", "training time in units of a stage: first task until 1, second until 2", kind="time"),
        dimension("task", "first and second task"),
        dimension("student", "unit of the student"),
    )
    main_declared = ("test_loss", "forgetting", "transfer")
    observables_declared = (
        observable("test_loss", "half the mean squared difference to the clean label of each task, on a fresh input; before the "
                   "switch, a copied head is the first head", symbol=r"\varepsilon_t", dims=("stage", "task"), low=0),
        observable("forgetting", "increase of the loss of task 1 from the switch to the end",
                   symbol=r"\varepsilon_1(t_1+t_2)-\varepsilon_1(t_1)"),
        observable("transfer", "decrease of the loss of task 2 from the start to the switch, due to task 1",
                   symbol=r"\varepsilon_2(0)-\varepsilon_2(t_1)"),
        observable("overlap", "overlaps of the student units with both teachers: which unit is re-used, which activated",
                   symbol="R", dims=("stage", "student", "task")),
        observable("norm", "squared norm of every student unit", symbol="Q_{kk}", dims=("stage", "student"), low=0),
    )  # fmt: skip

    def validate(self) -> None:
        check_overlaps(self.similarity, self.initial_norm, self.initial_overlap)

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"stage": np.linspace(0.0, 2.0, 2 * self.points + 1), "task": np.array([1, 2])}

    @property
    def _teachers(self) -> Array:
        return teachers_gram(self.similarity)

    def _switched(self, heads: Array) -> Array:
        """Both heads at the start of the second stage."""
        return jnp.stack([heads[0], heads[0]]) if self.head == "copied" else heads

    def _importance(self, state: TaskOverlaps, g: Any) -> Array:
        square = state.readout[0] ** 2
        if self.importance == "readout":
            return square
        units = np.arange(self.students)
        return square * g.table_J2(state.norm, units, units)

    def _observed(self, first: TaskOverlaps, second: TaskOverlaps) -> dict[str, Array]:
        """Observables along both stages; the second starts at the switch, measured with its own head."""
        first = first._replace(readout=jax.vmap(self._switched)(first.readout))
        path = jax.tree.map(lambda a, b: jnp.concatenate([a, b[1:]]), first, second)
        g = activation(self.activation)
        losses = jax.vmap(lambda state: task_losses(g, state, self._teachers, jnp.eye(2)))(path)
        at = self.points
        return {
            "test_loss": losses,
            "forgetting": losses[-1, 0] - losses[at, 0],
            "transfer": losses[0, 1] - losses[at, 1],
            "overlap": path.overlap,
            "norm": jnp.diagonal(path.norm, axis1=1, axis2=2),
        }

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        # Large rates can make a flow so unstable that rounding reaches its eighth digit: follow it from a second start, too.
        scales = jnp.asarray([1.0, 1 + NUDGE])
        observed, reached = jax.vmap(lambda scale: self._follow(numerics, scale))(scales)
        good = jnp.all(reached, axis=0)
        for values in observed.values():
            if values.ndim > 2:  # along both stages
                moved = jnp.abs(values[0] - values[1]) / (1 + jnp.abs(values[0]))
                good &= jnp.max(moved, axis=tuple(range(1, moved.ndim))) <= self.stated_accuracy
        return {**{name: v[0] for name, v in observed.items()}, "converged": until_failure(good)}

    def _follow(self, numerics: Numerics, scale: Array) -> tuple[dict[str, Array], Array]:
        """Observables along both stages, from the initial overlaps times `scale`, and the times that were reached."""
        g = activation(self.activation, nodes=numerics.nodes)
        settings = {name: numerics[name] for name in ("rtol", "atol", "max_steps", "solver")}
        times = jnp.linspace(0.0, 1.0, self.points + 1)

        def field(t: Array, state: TaskOverlaps, constants: Any) -> TaskOverlaps:
            model, gram, frozen, importance, stage = constants
            rates = {"rate": model.rate, "readout_rate": model.readout_rate, "noise": model.noise}
            shares = jnp.stack([stage["share"], 1 - stage["share"]])
            velocity = mixture(task_drifts(g, state, gram, jnp.eye(2), **rates), shares)
            pull = (model.rate * stage["consolidation"] * importance)[:, None]
            to_norm = pull * (state.norm - state.overlap[:, 2:].T)
            velocity = velocity._replace(
                norm=velocity.norm - to_norm - to_norm.T, overlap=velocity.overlap - pull * (state.overlap - frozen)
            )
            return jax.tree.map(lambda part: stage["duration"] * part, velocity)

        def learn(carry: tuple[TaskOverlaps, Array], stage: dict[str, Array]) -> Any:
            """Integrate one stage; the initial student stays as frozen units without a readout."""
            begin, good = carry
            heads = jnp.where(stage["number"] > 0, self._switched(begin.readout), begin.readout)
            frozen = jnp.concatenate([begin.overlap, begin.norm], axis=1)
            gram = jnp.block([[self._teachers, begin.overlap.T], [begin.overlap, begin.norm]])
            importance = self._importance(begin._replace(readout=heads), g)
            start = TaskOverlaps(begin.norm, frozen, heads)
            flow = integrate(field, start, times, (self, gram, frozen, importance, stage), **settings)
            # after a failed stage the next one runs from an arbitrary state; its result is not used
            end = jax.tree.map(lambda last, first: jnp.where(flow.converged, last, first), flow.end, start)
            path = flow.values._replace(overlap=flow.values.overlap[:, :, :2])
            return (end._replace(overlap=end.overlap[:, :2]), good & flow.converged), (path, flow.reached & good)

        # One program for both stages: the first has no replay and no consolidation.
        stages = {
            "number": jnp.arange(2),
            "duration": jnp.stack([self.first_stage, self.second_stage]),
            "share": jnp.stack([jnp.ones_like(self.replay), self.replay]),
            "consolidation": jnp.stack([jnp.zeros_like(self.consolidation), self.consolidation]),
        }
        heads = jnp.stack([self.first_head, self.second_head])
        start = TaskOverlaps(scale * self.initial_norm, scale * self.initial_overlap, heads)
        _, (path, reached) = jax.lax.scan(learn, (start, jnp.asarray(True)), stages)
        first, second = (jax.tree.map(lambda part, i=i: part[i], path) for i in range(2))
        return self._observed(first, second), jnp.concatenate([reached[0], reached[1, 1:]])

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        check_size(size, self.students)
        g = activation(self.activation)
        weight_key, sample_key, task_key = jax.random.split(key, 3)
        student, teacher = weights_with_overlaps(
            weight_key, self.initial_norm, self.initial_overlap, self._teachers, size, dtype
        )
        scatter, rate, readout_rate = (
            x.astype(dtype) for x in (jnp.sqrt(self.noise), self.rate / math.sqrt(size), self.readout_rate / size)
        )

        def measure(network: tuple[Array, Array]) -> TaskOverlaps:
            w, heads = network
            return TaskOverlaps(*measured_overlaps(w, teacher, heads))

        def train(begin: Array, duration: Array, start: tuple[Array, Array], share: Array, pull: Array) -> Descent:
            """Train one stage: `share` of the samples from task 1, the weights pulled back to their initial values."""
            anchor = start[0]

            def step(number: Array, network: tuple[Array, Array]) -> tuple[Array, Array]:
                w, heads = network
                draw = jax.random.normal(jax.random.fold_in(sample_key, number), (size + 1,), dtype)
                x, label_noise = draw[:-1], draw[-1]
                is_first = (jax.random.uniform(jax.random.fold_in(task_key, number), (), dtype) < share).astype(dtype)
                task = jnp.stack([is_first, 1 - is_first])
                fields, teacher_fields = w @ x / math.sqrt(size), teacher @ x / math.sqrt(size)
                hidden, v = g.function(fields), task @ heads
                error = v @ hidden - task @ g.function(teacher_fields) - scatter * label_noise
                moved = (
                    w - (rate * error * v * g.derivative(fields))[:, None] * x[None, :] - pull[:, None] * (w - anchor)
                )
                return moved, heads - readout_rate * error * task[:, None] * hidden[None, :]

            done = jnp.asarray(np.arange(1, self.points + 1) / self.points)
            ends = begin + jnp.rint(duration * size * done).astype(jnp.int32)
            return descend(step, start, ends, measure, begin=begin, measure_start=True)

        heads = jnp.stack([self.first_head, self.second_head]).astype(dtype)
        nothing = jnp.zeros(self.students, dtype)
        zero = jnp.zeros((), jnp.int32)
        first = train(zero, self.first_stage, (student, heads), jnp.ones((), dtype), nothing)
        w, heads = first.state
        switched = (w, self._switched(heads))
        # like the losses, the importance is an exact average given the weights
        importance = self._importance(measure(switched), g)
        pull = (self.rate * self.consolidation * importance / size).astype(dtype)
        second = train(first.steps, self.second_stage, switched, self.replay.astype(dtype), pull)
        observed = self._observed(first.path, second.path)
        return {**observed, "converged": until_failure(jnp.isfinite(observed["test_loss"][:, 0]))}
