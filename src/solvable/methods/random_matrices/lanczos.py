"""Extreme eigenvalues of a symmetric matrix that is known by its products with vectors: Lanczos iteration.

For Hessians, the product is `lambda v: jax.jvp(jax.grad(loss), (weights,), (v,))[1]`. Only products and scalar products are used,
so that any number of matrices can be processed at once on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.methods.fixed_points.bisection import bisect


class Tridiagonal(NamedTuple):
    """A symmetric tridiagonal matrix: its diagonal and its off-diagonal."""

    diagonal: Float[Array, " n"]
    beside: Float[Array, " n_1"]


def lanczos(
    product: Callable[[Float[Array, " size"]], Float[Array, " size"]], start: Float[Array, " size"], steps: int
) -> Tridiagonal:
    """The matrix in the basis of `start`, `product(start)`, ..., made orthonormal, after `steps` products.

    Its extreme eigenvalues approach those of the matrix. All vectors are kept and each new one is made orthogonal to them
    twice, so that no copies of eigenvalues appear. The iteration ends by itself, with zeros beside the diagonal, when the
    vectors span an invariant subspace.

    >>> matrix = jnp.diag(jnp.arange(6.0))
    >>> found = lanczos(lambda v: matrix @ v, jnp.ones(6), 6)
    >>> round(float(jnp.sum(found.diagonal)), 10)
    15.0
    """
    unit = start / jnp.linalg.norm(start)
    basis = jnp.zeros((steps, *unit.shape), unit.dtype)
    smallest = 100 * jnp.finfo(unit.dtype).eps

    def step(carry: tuple[Array, Array, Array], index: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
        basis, vector, scale = carry
        basis = basis.at[index].set(vector)
        image = product(vector)
        along = vector @ image
        scale = jnp.maximum(scale, jnp.linalg.norm(image))
        rest = image - (basis @ image) @ basis
        rest = rest - (basis @ rest) @ basis
        length = jnp.linalg.norm(rest)
        goes_on = length > smallest * scale
        following = jnp.where(goes_on, rest / jnp.where(goes_on, length, 1.0), 0.0)
        return (basis, following, scale), (along, jnp.where(goes_on, length, 0.0))

    carry = (basis, unit, jnp.zeros((), unit.dtype))
    _, (diagonal, beside) = jax.lax.scan(step, carry, jnp.arange(steps))
    return Tridiagonal(diagonal, beside[:-1])


def largest_of_tridiagonal(matrix: Tridiagonal) -> Float[Array, ""]:
    """The largest eigenvalue of a symmetric tridiagonal matrix, by bisection on Sturm sequences.

    >>> chain = Tridiagonal(jnp.zeros(3), jnp.ones(2))  # eigenvalues 2 cos(kπ/4)
    >>> round(float(largest_of_tridiagonal(chain)), 10)
    1.4142135624
    """
    diagonal, beside = matrix
    padded = jnp.concatenate([jnp.zeros(1, diagonal.dtype), jnp.abs(beside), jnp.zeros(1, diagonal.dtype)])
    reach = padded[:-1] + padded[1:]
    low, high = jnp.max(diagonal), jnp.max(diagonal + reach)  # the largest eigenvalue exceeds every diagonal entry
    tiny = jnp.finfo(diagonal.dtype).tiny ** 0.5
    squares = padded[:-1] ** 2

    def all_below(value: Array) -> Array:
        """Whether value − matrix is positive definite: all its pivots are positive."""

        def pivot(carry: tuple[Array, Array], of: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            (last, good), (entry, square) = carry, of
            now = value - entry - square / last
            return (jnp.where(jnp.abs(now) < tiny, tiny, now), good & (now > 0)), None

        start = (jnp.ones((), diagonal.dtype), jnp.asarray(True))
        return jax.lax.scan(pivot, start, (diagonal, squares))[0][1]

    halvings = 60 if diagonal.dtype == jnp.float64 else 30
    low, high = bisect(lambda value: ~all_below(value), low, high, halvings)
    return 0.5 * (low + high)


def largest_eigenvalue(
    product: Callable[[Float[Array, " size"]], Float[Array, " size"]], start: Float[Array, " size"], steps: int
) -> Float[Array, ""]:
    """The largest eigenvalue (not the largest in size) of a symmetric matrix, after `steps` products.

    >>> matrix = jnp.diag(jnp.asarray([-9.0, 1.0, 2.0, 3.0]))
    >>> round(float(largest_eigenvalue(lambda v: matrix @ v, jnp.ones(4), 4)), 10)
    3.0
    """
    return largest_of_tridiagonal(lanczos(product, start, steps))
