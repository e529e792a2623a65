r"""Online learning of two-layer networks as a whole: from weights or overlaps, through stages of tasks, to losses and events.

The pieces are elsewhere (`averages` and `smooth` for activations, `tasks` for the drift, `flows` for the solver); here they
are one call. Students of any number of units and heads, teachers of any number of units, any number of tasks; both layers
trained, each at a rate of its own; label noise; stages that begin and end at given times, each with its own mixture of
tasks and its own rates; events.

>>> import jax.numpy as jnp, numpy as np
>>> from solvable.methods.averages.activations import activation
>>> rng = np.random.default_rng(0)
>>> student, teacher = rng.normal(size=(3, 500)), rng.normal(size=(2, 500))
>>> start, teachers = overlaps_of(0.3 * student, teacher, readout=np.ones((2, 3)))
>>> plan = stages([10.0, 20.0], np.eye(2), rate=0.5, readout_rate=0.1)         # task 1 until t = 10, then task 2
>>> path = learn(activation("erf"), start, teachers, np.eye(2), np.linspace(0.0, 20.0, 5), plan)
>>> bool(path.converged), path.losses.shape, bool(path.losses[2, 0] < path.losses[0, 0])
(True, (5, 2), True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from ...errors import InvalidValue
from ..averages.activations import Activation
from .committee import check_joint, equal_units, tied, weights_with_gram
from .integrate import integrate
from .tasks import TaskOverlaps, mixture, task_drifts, task_losses

__all__ = [
    "OnlinePath",
    "Stages",
    "drawn_overlaps",
    "learn",
    "overlaps_of",
    "plateau_exit",
    "specialisation_gap",
    "stages",
]

Numbers = Any  # anything that becomes an array: shapes are checked in sentences, not by types


class Stages(eqx.Module):
    """What is learnt when: until `ends[s]`, a fraction `fractions[s, t]` of the samples from task t, at these rates."""

    ends: Array
    fractions: Array
    rate: Array
    readout_rate: Array


def stages(ends: Numbers, fractions: Numbers, *, rate: Numbers, readout_rate: Numbers = 0.0) -> Stages:
    """Stages from their end times, their mixtures of tasks (stage × task), and rates: one for all stages, or one each."""
    ends, fractions = jnp.asarray(ends, float), jnp.asarray(fractions, float)
    if ends.ndim != 1 or fractions.ndim != 2 or fractions.shape[0] != ends.shape[0]:
        raise InvalidValue(
            f"fractions has shape {fractions.shape} and ends {ends.shape} where stages by tasks and stages are meant: one row "
            "per end of a stage."
        )
    if not isinstance(ends, Tracer) and np.any(np.diff(ends) <= 0):
        raise InvalidValue(f"ends = {np.asarray(ends).tolist()} is not increasing: the stages follow each other.")
    if not isinstance(fractions, Tracer):
        worst = float(np.max(np.abs(np.asarray(fractions).sum(1) - 1)))
        if np.any(np.asarray(fractions) < 0) or worst > 1e-9:
            raise InvalidValue(
                f"fractions = {np.asarray(fractions).tolist()} is not a row of parts in [0, 1] that sum to 1 per stage."
            )
    rates = []
    for name, value in (("rate", rate), ("readout_rate", readout_rate)):
        value = jnp.asarray(value, float)
        if value.shape not in ((), ends.shape):
            raise InvalidValue(
                f"{name} has shape {value.shape} where one number or {ends.shape[0]} are meant: one per stage."
            )
        if not isinstance(value, Tracer) and not np.all((np.asarray(value) >= 0) & np.isfinite(value)):
            raise InvalidValue(f"{name} = {np.asarray(value).tolist()} is outside its range [0, ∞): a learning rate.")
        rates.append(jnp.broadcast_to(value, ends.shape))
    return Stages(ends, fractions, *rates)


class OnlinePath(eqx.Module):
    """A student's way: its overlaps and losses at the times asked for, NaN from where the flow failed or an event ended it.

    `reached` says which times have values; `converged` that all have, or the event happened; `event_time` when; `end` and
    `end_time` are the last good state: a start for what comes next.
    """

    state: TaskOverlaps
    losses: Array
    reached: Array
    converged: Array
    event_time: Array
    end: TaskOverlaps
    end_time: Array
    steps: Array


def learn(
    g: Activation,
    start: TaskOverlaps,
    teacher_norm: Numbers,
    teacher_readout: Numbers,
    times: Numbers,
    plan: Stages,
    *,
    noise: Numbers = 0.0,
    heads: Sequence[int] | None = None,
    event: Callable[[Array, TaskOverlaps, Any], Array] | None = None,
    rtol: float = 1e-9,
    atol: float = 1e-12,
    max_steps: int = 4096,
    solver: str = "dopri8",
) -> OnlinePath:
    """Follow a student through all `times`; see `tasks` for the equations and for `heads`, `flows.integrate` for the settings.

    Units that are exactly alike at the start (`committee.equal_units`) stay exactly alike: a symmetric start never leaves
    its plateau by rounding. The flow ends where `event(t, state, None)` crosses zero.
    """
    start = TaskOverlaps(*(jnp.asarray(x, float) for x in start))
    gram, targets, times, sigma = (jnp.asarray(x, float) for x in (teacher_norm, teacher_readout, times, noise))
    _check(start, gram, targets, times, plan, heads, sigma)
    settings = (("rtol", rtol), ("atol", atol), ("max_steps", max_steps), ("solver", solver))
    uses = None if heads is None else tuple(heads)
    return _learn(g, start, gram, targets, times, plan, sigma, uses, event, settings)


@eqx.filter_jit
def _learn(
    g: Activation, start: TaskOverlaps, gram: Array, targets: Array, times: Array, plan: Stages, sigma: Array,
    heads: tuple[int, ...] | None, event: Any, settings: tuple[tuple[str, Any], ...],
) -> OnlinePath:  # fmt: skip
    """One program for all starts, stages and times of the same shapes."""
    uses = None if heads is None else np.asarray(heads)
    alike = equal_units(start.norm, start.overlap, start.readout)

    def drift(t: Array, state: TaskOverlaps, args: Any) -> TaskOverlaps:
        gram, targets, plan, sigma, alike = args
        now = jnp.sum(t >= plan.ends[:-1])
        rates = {"rate": plan.rate[now], "readout_rate": plan.readout_rate[now], "noise": sigma}
        velocity = mixture(task_drifts(g, state, gram, targets, uses, **rates), plan.fractions[now])
        return TaskOverlaps(*tied(alike, *velocity))

    args = (gram, targets, plan, sigma, alike)
    jumps = plan.ends[:-1] if plan.ends.shape[0] > 1 else None
    happens = None if event is None else (lambda t, state, _: event(t, state, None))
    flow = integrate(drift, start, times, args, event=happens, jumps=jumps, **dict(settings))
    return OnlinePath(
        state=flow.values,
        losses=jax.vmap(lambda state: task_losses(g, state, gram, targets, uses))(flow.values),
        reached=flow.reached,
        converged=flow.converged,
        event_time=flow.event_time,
        end=flow.end,
        end_time=flow.end_time,
        steps=flow.steps,
    )


def specialisation_gap(state: TaskOverlaps, teacher_norm: Array) -> Array:
    """How differently the students see a teacher unit: max_n (max_i |R_in| - min_i |R_in|)/√T_nn, zero on a symmetric plateau."""
    size = jnp.abs(state.overlap)
    return jnp.max((jnp.max(size, axis=-2) - jnp.min(size, axis=-2)) / jnp.sqrt(jnp.diagonal(teacher_norm)))


def plateau_exit(
    g: Activation, start: TaskOverlaps, teacher_norm: Numbers, teacher_readout: Numbers, until: float, plan: Stages, *,
    level: float = 0.5, **settings: Any,
) -> Array:  # fmt: skip
    """The time at which the students have specialised (`specialisation_gap` reaches `level`); NaN if not by `until`."""
    gram = jnp.asarray(teacher_norm, float)

    def event(t: Array, state: TaskOverlaps, _: Any) -> Array:
        return specialisation_gap(state, gram) - level

    times = jnp.asarray([0.0, until])
    return learn(g, start, gram, teacher_readout, times, plan, event=event, **settings).event_time


# --- starts -----------------------------------------------------------------------------------------------------------


def overlaps_of(students: Numbers, teachers: Numbers, readout: Numbers) -> tuple[TaskOverlaps, Array]:
    """Where given weights stand: Q, R and the heads of a student (units × inputs), and the Gram matrix of the teachers.

    `readout` is one head (units) or several (head × units). All overlaps are per input, w·u/N.

    >>> start, gram = overlaps_of(np.eye(2, 4), np.eye(1, 4), readout=[1.0, 0.5])
    >>> start.norm.tolist(), start.readout.shape, gram.tolist()
    ([[0.25, 0.0], [0.0, 0.25]], (1, 2), [[0.25]])
    """
    w, u, v = (jnp.asarray(x, float) for x in (students, teachers, readout))
    if w.ndim != 2 or u.ndim != 2 or w.shape[1] != u.shape[1]:
        raise InvalidValue(
            f"students has shape {w.shape} and teachers {u.shape} where units × inputs are meant, with the same number of inputs."
        )
    v = v[None, :] if v.ndim == 1 else v
    if v.ndim != 2 or v.shape[1] != w.shape[0]:
        raise InvalidValue(
            f"readout has shape {v.shape} where {w.shape[0]} columns are meant: one per unit of students."
        )
    size = w.shape[1]
    return TaskOverlaps(w @ w.T / size, w @ u.T / size, v), u @ u.T / size


def drawn_overlaps(
    key: PRNGKeyArray,
    students: int,
    teacher_norm: Numbers,
    size: int,
    *,
    scale: float = 1.0,
    heads: int = 1,
    readout_scale: float = 1.0,
) -> TaskOverlaps:
    """Overlaps of drawn students with teachers of this Gram matrix, in `size` dimensions.

    Weights are N(0, scale²), readouts N(0, readout_scale²).
    """
    gram = jnp.asarray(teacher_norm, float)
    if size < gram.shape[0]:
        raise InvalidValue(f"size = {size} is smaller than the {gram.shape[0]} teacher units.")
    first, second, third = jax.random.split(key, 3)
    teachers = weights_with_gram(first, gram, size)
    w = scale * jax.random.normal(second, (students, size), float)
    return overlaps_of(w, teachers, readout_scale * jax.random.normal(third, (heads, students), float))[0]


# --- what is refused --------------------------------------------------------------------------------------------------


def _check(
    start: TaskOverlaps,
    gram: Array,
    targets: Array,
    times: Array,
    plan: Stages,
    heads: Sequence[int] | None,
    noise: Array,
) -> None:
    """One sentence for shapes that do not fit, overlaps that no weights have, stages that end too early."""
    K, M = start.norm.shape[-1], gram.shape[-1]
    shapes = (
        ("start.norm", start.norm, (K, K), "one row and column per student unit"),
        (
            "start.overlap",
            start.overlap,
            (K, M),
            f"the {K} student units of start.norm by the {M} teacher units of teacher_norm",
        ),
        ("teacher_norm", gram, (M, M), "one row and column per teacher unit"),
        ("start.readout", start.readout, (start.readout.shape[0], K), f"heads by the {K} student units of start.norm"),
    )
    for name, array, wanted, why in shapes:
        if array.shape != wanted:
            raise InvalidValue(f"{name} has shape {array.shape} where {wanted} is meant: {why}.")
    if targets.ndim != 2 or not 1 <= targets.shape[1] <= M:
        raise InvalidValue(
            f"teacher_readout has shape {targets.shape} where tasks by 1 to {M} teacher units are meant."
        )
    tasks, number = targets.shape[0], start.readout.shape[0]
    if plan.fractions.shape[1] != tasks:
        raise InvalidValue(
            f"fractions has {plan.fractions.shape[1]} columns where {tasks} are meant: one per task, a row of teacher_readout."
        )
    if heads is None and number != tasks:
        raise InvalidValue(
            f"start.readout has {number} heads where {tasks} are meant, one per task: or say in heads which uses which."
        )
    if heads is not None and (len(heads) != tasks or not all(0 <= h < number for h in heads)):
        raise InvalidValue(f"heads = {list(heads)} is not {tasks} numbers, one per task, each in [0, {number - 1}].")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((start, gram, times, plan, noise))):
        return
    if times.ndim != 1 or len(times) < 2 or np.any(np.diff(times) <= 0):
        raise InvalidValue(
            f"times = {np.asarray(times).tolist()} is not two or more increasing numbers: the first is the start."
        )
    if float(plan.ends[-1]) < float(times[-1]):
        raise InvalidValue(
            f"ends stops at {float(plan.ends[-1]):g}, before the last of times, {float(times[-1]):g}: the stages are meant to "
            "cover them."
        )
    if not float(noise) >= 0:
        raise InvalidValue(f"noise = {float(noise):g} is outside its range [0, ∞): a variance.")
    check_joint(start.norm, start.overlap, gram, ("start.norm", "start.overlap", "teacher_norm"))
