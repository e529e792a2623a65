"""Regression of every coordinate on all others at finite size: A, its errors, eigenvalues and leading eigenvectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Matrix = Float[Array, "d d"]
Vector = Float[Array, " d"]


class Regressions(NamedTuple):
    """G = (S+λ)⁻¹ (the projector on the null space of X where λ = 0 and n < d), and the eigen-decomposition of S."""

    inverse: Matrix
    values: Vector
    vectors: Matrix
    effective_penalty: Float[Array, ""]

    @property
    def rest(self) -> Matrix:
        """I − A."""
        return self.inverse / jnp.diag(self.inverse)[:, None]

    def loss(self, covariance: Matrix) -> Float[Array, ""]:
        """Mean square error on samples of this covariance, averaged over masked coordinates."""
        rest = self.rest
        return jnp.sum((rest @ covariance) * rest) / len(covariance)

    def eigenvalues(self) -> Vector:
        """The eigenvalues of A, all real."""
        root = jnp.sqrt(jnp.diag(self.inverse))
        return 1.0 - jnp.linalg.eigvalsh(self.inverse / (root[:, None] * root[None, :]))


def regress_all(second_moment: Matrix, penalty: Any, number: Any) -> Regressions:
    """All d regressions by one eigen-decomposition of S, which also gives the null space of X when n < d."""
    size = len(second_moment)
    values, vectors = jnp.linalg.eigh(second_moment)
    null = jnp.arange(size, dtype=jnp.int32) < size - number  # ascending order: the first d − n are zero
    values = jnp.where(null, 0.0, values)
    ridgeless = (penalty == 0) & (number < size)
    shifted = jnp.where(ridgeless & null, 1.0, values + penalty)
    g = (vectors * jnp.where(ridgeless, jnp.where(null, 1.0, 0.0), 1.0 / shifted)[None, :]) @ vectors.T
    surplus = jnp.maximum(number - size, 0).astype(float)
    companion = jnp.sum(jnp.where(null, 0.0, 1.0 / shifted)) + jnp.where(surplus > 0, surplus / penalty, 0.0)
    return Regressions(g, values, vectors, number.astype(float) / companion)


def leading(second_moment: Matrix, inverse: Matrix, penalty: Any, hidden: Vector, number: Any) -> dict[str, Array]:
    """A's two largest eigenvalues and its leading eigenvectors, from the inverse D^½(S+λ)D^½ of the similar matrix."""
    size, root = len(second_moment), jnp.sqrt(jnp.diag(inverse))
    similar = root[:, None] * (second_moment + penalty * jnp.eye(size)) * root[None, :]
    values, vectors = jnp.linalg.eigh(similar)
    q = vectors[:, -1]
    # Ridgeless with n < d the largest eigenvalue 1 is degenerate; take the eigenvectors of the limit λ → 0⁺.
    top = jnp.where((penalty == 0) & (number < size), 1.0, 1.0 - 1.0 / values[-2:])

    def squared_cosine(direction: Vector) -> Array:
        return (direction @ hidden) ** 2 / (direction @ direction)

    return {
        "edge": top[0],
        "outlier": top[1],
        "overlap_right": squared_cosine(q / root),
        "overlap_left": squared_cosine(q * root),
    }
