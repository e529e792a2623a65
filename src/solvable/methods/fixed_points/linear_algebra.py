"""Linear systems and factorisations that cannot deadlock, however many there are in one program.

Up to version 0.10, JAX hands a stack of matrices to LAPACK in parts that wait for one another in the thread pool that
they occupy: two stacks in one program can deadlock on a machine with few cores. Here small systems are solved without
LAPACK; larger matrices are processed one after the other on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def solve_small(matrix: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve matrix · x = right by elimination with row pivots: for a handful of unknowns and any number of systems.

    Differentiable in forward and reverse mode. A singular matrix gives infinities or NaN.

    >>> solve_small(jnp.array([[0.0, 2.0], [1.0, 1.0]]), jnp.array([2.0, 3.0])).tolist()
    [2.0, 1.0]
    """
    return jax.lax.custom_linear_solve(
        lambda x: matrix @ x,
        right,
        solve=lambda _, b: _eliminate(matrix, b),
        transpose_solve=lambda _, b: _eliminate(matrix.T, b),
    )


def _eliminate(matrix: Array, right: Array) -> Array:
    count, rows = right.shape[0], jnp.arange(right.shape[0])

    def column(k: Any, table: Array) -> Array:
        chosen = (rows == jnp.argmax(jnp.where(rows >= k, jnp.abs(table[:, k]), -1.0)))[:, None]
        pivot = jnp.sum(jnp.where(chosen, table, 0.0), axis=0)
        table = jnp.where(chosen, table[k][None, :], table)  # row k moves to where the pivot was
        ratio = table[:, k] / pivot[k]
        return jnp.where((rows == k)[:, None], pivot[None, :], table - ratio[:, None] * pivot[None, :])

    table = jnp.concatenate([matrix, right[:, None]], axis=1)
    table = jax.lax.fori_loop(0, count, column, table)
    return table[:, count] / jnp.diagonal(table)


def cholesky_small(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower Cholesky factor of a small positive definite matrix, for any number of matrices at once; NaN if there is none.

    >>> cholesky_small(jnp.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    rows = jnp.arange(matrix.shape[0])

    def column(k: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        left, factor = state
        own = jnp.where(rows >= k, left[:, k] / jnp.sqrt(left[k, k]), 0.0)
        return left - own[:, None] * own[None, :], jnp.where((rows == k)[None, :], own[:, None], factor)

    return jax.lax.fori_loop(0, matrix.shape[0], column, (matrix, jnp.zeros_like(matrix)))[1]


def _in_turn(function: Callable[..., Array]) -> Callable[..., Array]:
    """Make a function process one matrix after the other when vmapped on a CPU. (Such calls have no derivatives.)"""
    if jax.__version_info__ >= (0, 11):
        return function

    guarded, in_turn = jax.custom_batching.custom_vmap(function), jax.custom_batching.sequential_vmap(function)

    @guarded.def_vmap
    def batched(_size: int, is_batched: Any, *inputs: Array) -> tuple[Array, bool]:
        axes = [0 if b else None for b in is_batched]
        ways = [jax.vmap(way, in_axes=axes) for way in (in_turn, function)]
        return jax.lax.platform_dependent(*inputs, cpu=ways[0], default=ways[1]), True

    return guarded


@_in_turn
def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower Cholesky factor L of a positive definite matrix, L Lᵀ = matrix; NaN if there is none.

    >>> cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    return jnp.linalg.cholesky(matrix)


@_in_turn
def inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a matrix: for a Jacobian that serves many steps of a Newton iteration.

    >>> inverse(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return jnp.linalg.inv(matrix)


@_in_turn
def solve_with_factor(factor: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve factor · factorᵀ · x = right.

    >>> solve_with_factor(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([6.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    return jax.scipy.linalg.cho_solve((factor, True), right)


def solve_positive(matrix: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve matrix · x = right for a positive definite matrix.

    >>> solve_positive(jnp.array([[4.0, 2.0], [2.0, 2.0]]), jnp.array([6.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    return solve_with_factor(cholesky(matrix), right)


@_in_turn
def orthonormal_columns(matrix: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Orthonormal vectors that span the columns of a matrix with at least as many rows as columns.

    >>> q = orthonormal_columns(jnp.array([[3.0], [4.0]]))
    >>> [round(abs(float(x)), 12) for x in q.ravel()]
    [0.6, 0.8]
    """
    return jnp.linalg.qr(matrix)[0]
