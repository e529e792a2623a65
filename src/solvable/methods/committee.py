r"""Online learning of a two-layer student from two-layer teachers: the closed flow of its overlaps.

Student $f(x) = \sum_k v_k g(w_k\cdot x/\sqrt N)$, target $y(x) = \sum_n a_n g(u_n\cdot x/\sqrt N) + \sigma\zeta$, fresh
Gaussian inputs, squared loss, one sample per step,

    w_k ← w_k - (η_w/√N) v_k g'(λ_k) Δ x,        v_k ← v_k - (η_v/N) g(λ_k) Δ,        Δ = f - y,   t = steps/N.

For N → ∞ the overlaps Q = WWᵀ/N, R = WUᵀ/N and the readout v follow ordinary differential equations (Saad and Solla
1995; Riegler and Biehl 1995; Goldt et al. 2019). Units with a zero readout are carried along: teachers of other tasks,
frozen copies of the student, linear probes are all further rows of the teacher's Gram matrix.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .averages import Activation

__all__ = ["Overlaps", "committee_drift", "committee_loss", "joint_covariance", "weights_with_gram"]


class Overlaps(NamedTuple):
    """Where a student stands: Q (student×student), R (student×teacher) and the readout v."""

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

    >>> from solvable.methods.averages import activation
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

    The right-hand side is linear in the law of the samples: a mixture of tasks is the mixture of their drifts.
    """
    v, students = state.readout, np.arange(state.readout.shape[0])
    cov = joint_covariance(state, teacher_norm)
    h = jnp.concatenate([v, -teacher_readout])
    units = np.arange(h.shape[0])

    pull = v[:, None] * (g.table_I3(cov, *np.ix_(students, units, units)) @ h)
    pull_norm, pull_overlap = pull[:, : len(students)], pull[:, len(students) :]
    # I4 is symmetric in its first and in its last two units: a quarter of the table is enough
    (i, j), (c, d) = np.triu_indices(len(students)), np.triu_indices(len(units))
    pair = jnp.asarray(np.where(c == d, 1.0, 2.0)) * h[c] * h[d]
    columns = (i[:, None], j[:, None], c[None, :], d[None, :])
    kicks = v[i] * v[j] * (g.table_I4(cov, *columns) @ pair + noise * g.table_J2(cov, i, j))
    place = np.zeros((len(students), len(students)), int)
    place[i, j] = place[j, i] = np.arange(len(i))

    return Overlaps(
        norm=-rate * (pull_norm + pull_norm.T) + rate**2 * kicks[place],
        overlap=-rate * pull_overlap,
        readout=-readout_rate * (g.table_I2(cov, *np.ix_(students, units)) @ h),
    )


def weights_with_gram(key: PRNGKeyArray, gram: Float[Array, "n n"], size: int) -> Float[Array, "n size"]:
    """Vectors w with w_a·w_b/size exactly as given, in random directions; a singular Gram matrix is welcome.

    >>> import jax
    >>> w = weights_with_gram(jax.random.key(0), jnp.array([[1.0, 0.3], [0.3, 0.5]]), 10)
    >>> [round(float(x), 12) for x in (w @ w.T / 10).ravel()]
    [1.0, 0.3, 0.3, 0.5]
    """
    directions, _ = jnp.linalg.qr(jax.random.normal(key, (size, gram.shape[0]), float))
    values, vectors = jnp.linalg.eigh(gram)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]
    return math.sqrt(size) * root @ directions.T
