"""Steps of Adam (Kingma and Ba 2014, arXiv:1412.6980) inside compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


class Moments(NamedTuple):
    """Running averages of the gradients and of their squares."""

    first: PyTree
    second: PyTree


def no_moments(weights: PyTree) -> Moments:
    """The averages before the first step."""
    zero = jax.tree.map(jnp.zeros_like, weights)
    return Moments(zero, zero)


def adam_step(
    weights: PyTree, moments: Moments, gradient: PyTree, number: Array, rate: PyTree, *, epsilon: float = 1e-8
) -> tuple[PyTree, Moments]:
    """The weights and averages after step `number`, which counts from one; `rate` is one number, or one for every leaf.

    >>> weights = jnp.array([1.0, -2.0])
    >>> moved, _ = adam_step(weights, no_moments(weights), jnp.array([3.0, -0.1]), jnp.array(1.0), 0.01)
    >>> (moved - weights).round(6).tolist()  # the first step has the length of the rate
    [-0.01, 0.01]
    """
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments.first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, moments.second, gradient)
    a, b = 1 - 0.9**number, 1 - 0.999**number
    moved = jax.tree.map(
        lambda w, m, v, r: w - r * (m / a) / (jnp.sqrt(v / b) + epsilon),
        weights, first, second, jax.tree.broadcast(rate, weights),
    )  # fmt: skip
    return moved, Moments(first, second)
