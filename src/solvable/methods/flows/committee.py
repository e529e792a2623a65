r"""Online learning of a two-layer student from two-layer teachers: the closed flow of its overlaps.

Student $f(x) = \sum_k v_k g(w_k\cdot x/\sqrt N)$, target $y(x) = \sum_n a_n g(u_n\cdot x/\sqrt N) + \sigma\zeta$, fresh
Gaussian inputs, squared loss, one sample per step,

    w_k ← w_k - (η_w/√N) v_k g'(λ_k) Δ x,        v_k ← v_k - (η_v/N) g(λ_k) Δ,        Δ = f - y,   t = steps/N.

For N → ∞ the overlaps Q = WWᵀ/N, R = WUᵀ/N and the readout v follow ordinary differential equations (Saad and Solla
1995; Riegler and Biehl 1995; Goldt et al. 2019). Units with a zero readout are carried along: teachers of other tasks,
frozen copies of the student and linear probes are additional rows of the teacher's Gram matrix.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...errors import InvalidValue
from ..averages.activations import Activation
from ..fixed_points.linear_algebra import orthonormal_columns

__all__ = [
    "Alike",
    "Overlaps",
    "check_gram",
    "check_joint",
    "committee_drift",
    "committee_loss",
    "equal_units",
    "gram_root",
    "joint_covariance",
    "measured_overlaps",
    "pair_gram",
    "tied",
    "weights_with_gram",
    "weights_with_overlaps",
]

Scalar = Float[Array, ""] | float


class Overlaps(NamedTuple):
    """Order parameters of a student: Q (student×student), R (student×teacher) and the readout v."""

    norm: Float[Array, "student student"]
    overlap: Float[Array, "student teacher"]
    readout: Float[Array, " student"]


def joint_covariance(state: Overlaps, teacher_norm: Float[Array, "teacher teacher"]) -> Float[Array, "units units"]:
    """Covariance [[Q, R], [Rᵀ, T]] of the fields of all units."""
    return jnp.block([[state.norm, state.overlap], [state.overlap.T, teacher_norm]])


def committee_loss(
    g: Activation,
    state: Overlaps,
    teacher_norm: Float[Array, "teacher teacher"],
    teacher_readout: Float[Array, " teacher"],
) -> Float[Array, ""]:
    """Half the mean squared difference to the clean target, ½ Σ_cd h_c h_d I2(c,d) with h = (v, -a).

    >>> from solvable.methods.averages.activations import activation
    >>> one = jnp.ones((1, 1))
    >>> aligned = Overlaps(one, one, jnp.ones(1))
    >>> float(committee_loss(activation("erf"), aligned, one, jnp.ones(1)))
    0.0
    """
    h = jnp.concatenate([state.readout, -teacher_readout])
    return 0.5 * h @ g.table_I2(joint_covariance(state, teacher_norm)) @ h


def committee_drift(
    g: Activation,
    state: Overlaps,
    teacher_norm: Float[Array, "teacher teacher"],
    teacher_readout: Float[Array, " teacher"],
    *,
    rate: Float[Array, ""],
    readout_rate: Float[Array, ""],
    noise: Float[Array, ""],
) -> Overlaps:
    r"""Time derivative of the overlaps.

    With h = (v, -a) over all units c, d (students and teachers) and σ² = `noise`,

        dR_in/dt = -η_w v_i Σ_c h_c I3(i,n,c)
        dQ_ij/dt = -η_w v_i Σ_c h_c I3(i,j,c) + (i ↔ j) + η_w² v_i v_j [Σ_cd h_c h_d I4(i,j,c,d) + σ² J2(i,j)]
        dv_i/dt  = -η_v Σ_c h_c I2(i,c)

    The right-hand side is linear in the law of the samples: the drift of a mixture of tasks is the mixture of their drifts.
    """
    v, students = state.readout, np.arange(state.readout.shape[0])
    cov = joint_covariance(state, teacher_norm)
    h = jnp.concatenate([v, -teacher_readout])
    units = np.arange(h.shape[0])

    pull = v[:, None] * (g.table_I3(cov, *np.ix_(students, units, units)) @ h)
    pull_norm, pull_overlap = pull[:, : len(students)], pull[:, len(students) :]
    i, j = np.triu_indices(len(students))
    kicks = v[i] * v[j] * (g.squares(cov, i, j, h[None, :])[0] + noise * g.table_J2(cov, i, j))
    place = np.zeros((len(students), len(students)), int)
    place[i, j] = place[j, i] = np.arange(len(i))

    return Overlaps(
        norm=-rate * (pull_norm + pull_norm.T) + rate**2 * kicks[place],
        overlap=-rate * pull_overlap,
        readout=-readout_rate * (g.table_I2(cov, *np.ix_(students, units)) @ h),
    )


# --- weights and their overlaps ---------------------------------------------------------------------------------------


def pair_gram(first: Scalar, overlap: Scalar, second: Scalar) -> Float[Array, "2 2"]:
    """The Gram matrix of two vectors, from their squared norms and their overlap.

    >>> pair_gram(1.0, 0.3, 0.5).tolist()
    [[1.0, 0.3], [0.3, 0.5]]
    """
    a, b, c = (jnp.asarray(x, float) for x in (first, overlap, second))
    return jnp.stack([jnp.stack([a, b]), jnp.stack([b, c])])


def gram_root(gram: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A with AAᵀ = gram, for a symmetric matrix without negative eigenvalues (up to rounding).

    >>> root = gram_root(jnp.array([[1.0, 0.3], [0.3, 0.5]]))
    >>> [round(float(x), 12) for x in (root @ root.T).ravel()]
    [1.0, 0.3, 0.3, 0.5]
    """
    values, vectors = jnp.linalg.eigh(gram)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]


def weights_with_gram(key: PRNGKeyArray, gram: Float[Array, "n n"], size: int) -> Float[Array, "n size"]:
    """Vectors w in random directions with w_a·w_b/size exactly as given; the Gram matrix may be singular.

    >>> import jax
    >>> w = weights_with_gram(jax.random.key(0), jnp.array([[1.0, 0.3], [0.3, 0.5]]), 10)
    >>> [round(float(x), 12) for x in (w @ w.T / 10).ravel()]
    [1.0, 0.3, 0.3, 0.5]
    """
    directions = orthonormal_columns(jax.random.normal(key, (size, gram.shape[0]), float))
    return math.sqrt(size) * gram_root(gram) @ directions.T


def weights_with_overlaps(
    key: PRNGKeyArray,
    norm: Float[Array, "student student"],
    overlap: Float[Array, "student teacher"],
    teacher_norm: Float[Array, "teacher teacher"],
    size: int,
    dtype: Any = float,
) -> tuple[Float[Array, "student size"], Float[Array, "teacher size"]]:
    """Student and teacher weights with exactly these overlaps per input; `size` must be at least the number of units.

    >>> w, u = weights_with_overlaps(jax.random.key(0), 0.5 * jnp.eye(2), jnp.array([[0.1], [0.2]]), jnp.eye(1), 20)
    >>> [round(float(x), 12) for x in (w @ u.T / 20).ravel()]
    [0.1, 0.2]
    """
    joint = jnp.block([[norm, overlap], [overlap.T, teacher_norm]])
    weights = weights_with_gram(key, joint, size).astype(dtype)
    return weights[: norm.shape[0]], weights[norm.shape[0] :]


def measured_overlaps(
    student: Float[Array, "student size"],
    teacher: Float[Array, "teacher size"],
    readout: Float[Array, "*head student"],
) -> tuple[Float[Array, "student student"], Float[Array, "student teacher"], Float[Array, "*head student"]]:
    """Q = WWᵀ/N and R = WUᵀ/N of these weights, and the readout, in float64.

    >>> norm, overlap, readout = measured_overlaps(jnp.eye(2, 4), jnp.ones((1, 4)), jnp.ones(2))
    >>> norm.tolist(), overlap.tolist()
    ([[0.25, 0.0], [0.0, 0.25]], [[0.25], [0.25]])
    """
    size = student.shape[1]
    return (student @ student.T).astype(float) / size, (student @ teacher.T).astype(float) / size, readout.astype(float)


# --- equivalent units -------------------------------------------------------------------------------------------------


class Alike(NamedTuple):
    """For every unit the first unit equivalent to it, and the second (the first again if there is none)."""

    first: Int[Array, " student"]
    second: Int[Array, " student"]


def equal_units(
    norm: Float[Array, "student student"],
    overlap: Float[Array, "student teacher"],
    readout: Float[Array, "*head student"],
) -> Alike:
    """Find units that can be exchanged without changing anything: equal overlaps with all others, norms and readouts.

    >>> equal_units(jnp.eye(3), jnp.array([[0.1], [0.1], [0.2]]), jnp.ones(3)).first.tolist()
    [0, 0, 2]
    """
    number = norm.shape[0]
    heads = readout.reshape(-1, number)
    same = jnp.all(overlap[:, None, :] == overlap[None, :, :], axis=2)
    same = same & jnp.all(heads[:, :, None] == heads[:, None, :], axis=0)
    own = jnp.diagonal(norm)
    unit = np.arange(number)
    # for a third unit k, neither i nor j
    third = (unit[None, None, :] != unit[:, None, None]) & (unit[None, None, :] != unit[None, :, None])
    agree = (norm[:, None, :] == norm[None, :, :]) | ~jnp.asarray(third)
    same = same & jnp.all(agree, axis=2) & (own[:, None] == own[None, :])
    first = jnp.argmax(same, axis=1)
    later = same & (jnp.asarray(unit)[None, :] != first[:, None])
    return Alike(first, jnp.where(jnp.any(later, axis=1), jnp.argmax(later, axis=1), first))


@jax.custom_jvp
def tied(
    alike: Alike,
    norm: Float[Array, "student student"],
    overlap: Float[Array, "student teacher"],
    readout: Float[Array, "*head student"],
) -> tuple[Float[Array, "student student"], Float[Array, "student teacher"], Float[Array, "*head student"]]:
    """Make equivalent units have exactly the same drift, to the last bit.

    In exact arithmetic they do anyway, but sums over units in a different order differ by rounding, which a symmetric
    plateau amplifies exponentially. Derivatives are those of the original drift, because a start *near* a symmetric one
    is not symmetric.
    """
    first, second = alike
    row, column = jnp.broadcast_arrays(first[:, None], first[None, :])
    unit = np.arange(norm.shape[0])
    distinct = jnp.asarray(unit[:, None] != unit[None, :])
    column = jnp.where((row == column) & distinct, second[None, :], column)
    return norm[row, column], overlap[first], jnp.take(readout, first, axis=-1)


@tied.defjvp
def _tied_jvp(primals, tangents):
    return tied(*primals), tangents[1:]


# --- validation of overlaps -------------------------------------------------------------------------------------------


def check_gram(name: str, gram: Float[np.ndarray, "n n"] | Float[Array, "n n"]) -> None:
    """Raise `InvalidValue` if a matrix is not symmetric."""
    gram = np.asarray(gram)
    gap = np.abs(gram - gram.T)
    if gap.max(initial=0.0) > 1e-9 * (1 + np.abs(gram).max()):
        i, j = (int(k) for k in np.unravel_index(np.argmax(gap), gap.shape))
        raise InvalidValue(
            f"{name} is not symmetric: {name}[{i}, {j}] = {gram[i, j]:g} and {name}[{j}, {i}] = {gram[j, i]:g}; a Gram "
            "matrix must be symmetric."
        )


def check_joint(
    norm: Float[np.ndarray, "n n"] | Float[Array, "n n"],
    overlap: Float[np.ndarray, "n m"] | Float[Array, "n m"],
    teacher: Float[np.ndarray, "m m"] | Float[Array, "m m"],
    names: tuple[str, str, str],
    where: str = "",
) -> None:
    """Raise `InvalidValue` for impossible overlaps: [[Q, R], [Rᵀ, T]] must have no negative eigenvalue.

    >>> check_joint(np.eye(1), np.eye(1), np.eye(1), ("Q", "R", "T"))
    """
    norm, overlap, teacher = (np.asarray(x) for x in (norm, overlap, teacher))
    check_gram(names[0], norm)
    check_gram(names[2], teacher)
    joint = np.block([[norm, overlap], [overlap.T, teacher]])
    lowest = np.linalg.eigvalsh(joint)[0]
    if lowest < -1e-9 * (1 + np.abs(joint).max()):
        raise InvalidValue(
            f"no weights have these overlaps{where}: [[{names[0]}, {names[1]}], [its transpose, {names[2]}]] has the negative "
            f"eigenvalue {lowest:.3g}; all must be in [0, ∞)."
        )
