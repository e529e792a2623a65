"""Convolutions as products of neighbourhoods with a matrix: many networks trained side by side stay a batch of products."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def neighbours(h: Float[Array, "n side side c"]) -> Float[Array, "n side side c9"]:
    """The 3 × 3 pixels around every pixel, side by side; zeros beyond the edge.

    >>> neighbours(jnp.ones((1, 8, 8, 2))).shape
    (1, 8, 8, 18)
    """
    side = h.shape[1]
    padded = jnp.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([padded[:, i : i + side, j : j + side] for i in range(3) for j in range(3)], axis=-1)
