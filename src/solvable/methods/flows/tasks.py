r"""One student, several tasks: the closed flow of its overlaps when every sample belongs to one of the tasks.

Student units $g(w_k\cdot x/\sqrt N)$ are shared. Task t has a teacher, $y_t(x) = \sum_n a_{tn}\, g(u_n\cdot x/\sqrt N)
+ \sigma\zeta$, and a head $v_h$, its own or shared with other tasks; a sample of task t moves the student units and
that head by one step of gradient descent on half the squared error,

    w_k ← w_k - (η_w/√N) v_hk g'(λ_k) Δ x,        v_hk ← v_hk - (η_v/N) g(λ_k) Δ,        Δ = Σ_k v_hk g(λ_k) - y_t.

For N → ∞ the overlaps Q = WWᵀ/N, R = WUᵀ/N and the heads follow ordinary differential equations whose right-hand side
is linear in the law of the samples: with a fraction $u_t$ of samples from task t it is $\sum_t u_t f_t$, the terms of
second order in the rate included (Saad and Solla 1995; several tasks: Lee, Goldt and Saxe 2021, arXiv:2107.04384;
Mori, Sarao Mannelli and Mignacco 2024, arXiv:2409.18061). All tasks see the same Gaussian averages, which are
therefore computed once and contracted with each task's readout.

Units of which only the overlaps are needed (frozen copies of the student, linear probes) are additional rows of the
teachers' Gram matrix, after those with a readout.

>>> import jax.numpy as jnp
>>> from solvable.methods.averages.activations import activation
>>> state = TaskOverlaps(0.5 * jnp.eye(2), jnp.array([[0.6, 0.1], [0.0, 0.2]]), jnp.array([[1.0, 0.0], [0.2, 0.1]]))
>>> teachers = jnp.array([[1.0, 0.3], [0.3, 1.0]])
>>> drifts = task_drifts(activation("erf"), state, teachers, jnp.eye(2), rate=1.0, readout_rate=1.0, noise=0.0)
>>> bool(mixture(drifts, jnp.array([0.0, 1.0])).overlap[1, 1] == drifts.overlap[1, 1, 1])
True
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...errors import InvalidValue
from ..averages.activations import Activation

__all__ = ["TaskOverlaps", "mixture", "task_drifts", "task_losses"]

Scalar = Float[Array, ""] | float


class TaskOverlaps(NamedTuple):
    """Order parameters of a student: Q (student×student), R (student×teacher), the heads V (head×student)."""

    norm: Float[Array, "*batch student student"]
    overlap: Float[Array, "*batch student teacher"]
    readout: Float[Array, "*batch head student"]


def task_losses(
    g: Activation,
    state: TaskOverlaps,
    teacher_norm: Float[Array, "teacher teacher"],
    teacher_readout: Float[Array, "task active"] | Float[np.ndarray, "task active"],
    heads: Int[np.ndarray, " task"] | None = None,
) -> Float[Array, " task"]:
    """Half the mean squared difference to the clean target of every task: ½ Σ_cd h_tc h_td I2(c,d), h_t = (v, -a_t).

    >>> from solvable.methods.averages.activations import activation
    >>> one = jnp.ones((1, 1))
    >>> [float(e) for e in task_losses(activation("erf"), TaskOverlaps(one, one, one), one, one)]
    [0.0]
    """
    h, cov = _weights(state, teacher_readout, heads), _covariance(state, teacher_norm)
    units = np.arange(h.shape[1])
    return 0.5 * jnp.sum(h * (h @ g.table_I2(cov, *np.ix_(units, units))), axis=1)


def task_drifts(
    g: Activation,
    state: TaskOverlaps,
    teacher_norm: Float[Array, "teacher teacher"],
    teacher_readout: Float[Array, "task active"] | Float[np.ndarray, "task active"],
    heads: Int[np.ndarray, " task"] | None = None,
    *,
    rate: Scalar,
    readout_rate: Scalar,
    noise: Scalar,
) -> TaskOverlaps:
    r"""Time derivative of the overlaps if all samples came from task t, for every t: the leading axis of each part.

    With h_t = (v of its head, -a_t) over all units c, d that have a readout (students first) and σ² = `noise`,

        dR_in/dt = -η_w v_i Σ_c h_tc I3(i,n,c)
        dQ_ij/dt = -η_w v_i Σ_c h_tc I3(i,j,c) + (i ↔ j) + η_w² v_i v_j [Σ_cd h_tc h_td I4(i,j,c,d) + σ² J2(i,j)]
        dv_i/dt  = -η_v Σ_c h_tc I2(i,c)      for the head of task t, and 0 for the others

    `heads` is the row of the readout that each task uses, by default its own. `teacher_readout` may have fewer columns
    than there are teacher units: the last units then have no readout, are seen by no task, and cost little. Pass it as a
    NumPy array, known when the program is built, to skip averages that no task needs.
    """
    h, cov = _weights(state, teacher_readout, heads), _covariance(state, teacher_norm)
    number, tasks = state.norm.shape[0], h.shape[0]
    students, active, units = np.arange(number), np.arange(h.shape[1]), np.arange(cov.shape[0])
    v = h[:, :number]
    I3 = g.table_I3(cov, *np.ix_(students, units, active))
    pull = v[:, :, None] * jnp.tensordot(h, I3, [[1], [2]])
    pull_norm, pull_overlap = pull[:, :, :number], pull[:, :, number:]
    i, j = np.triu_indices(number)
    needed = None
    if isinstance(teacher_readout, np.ndarray):  # products of teachers that enter no task are not needed
        needed = np.ones((len(active), len(active)), bool)
        needed[number:, number:] = np.any(teacher_readout[:, :, None] * teacher_readout[:, None, :] != 0, axis=0)
    kicks = v[:, i] * v[:, j] * (g.squares(cov, i, j, h, needed) + noise * g.table_J2(cov, i, j)[None, :])
    place = np.zeros((number, number), int)
    place[i, j] = place[j, i] = np.arange(len(i))
    own = jnp.asarray(np.eye(state.readout.shape[0])[np.arange(tasks) if heads is None else heads])

    return TaskOverlaps(
        norm=-rate * (pull_norm + jnp.swapaxes(pull_norm, 1, 2)) + rate**2 * kicks[:, place],
        overlap=-rate * pull_overlap,
        readout=-readout_rate * own[:, :, None] * (h @ g.table_I2(cov, *np.ix_(active, students)))[:, None, :],
    )


def mixture(drifts: TaskOverlaps, fractions: Float[Array, " task"]) -> TaskOverlaps:
    """The drift when a fraction u_t of the samples comes from task t: Σ_t u_t f_t."""
    return jax.tree.map(lambda part: jnp.tensordot(fractions, part, 1), drifts)


def _weights(
    state: TaskOverlaps, teacher_readout: Array | np.ndarray, heads: Int[np.ndarray, " task"] | None
) -> Float[Array, "task units"]:
    if heads is None and state.readout.shape[0] != teacher_readout.shape[0]:
        raise InvalidValue(
            f"{teacher_readout.shape[0]} tasks have {state.readout.shape[0]} heads: pass `heads` to assign them."
        )
    v = state.readout if heads is None else state.readout[np.asarray(heads)]
    return jnp.concatenate([v, -teacher_readout], axis=1)


def _covariance(state: TaskOverlaps, teacher_norm: Float[Array, "teacher teacher"]) -> Float[Array, "units units"]:
    return jnp.block([[state.norm, state.overlap], [state.overlap.T, teacher_norm]])
