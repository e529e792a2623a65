"""Roots by bisection: any number of them at once, inside compiled programs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["bisect"]


def bisect(before: Callable[[Array], Array], low: Array, high: Array, halvings: int = 60) -> tuple[Array, Array]:
    """Bracket the points where `before` turns from true (at `low`) to false (at `high`), element by element.

    If it is true everywhere both ends tend to `high`, if false everywhere to `low`. The result has no derivative: for
    one, take a Newton step from the root.

    >>> low, high = bisect(lambda x: x**2 < jnp.asarray([2.0, 9.0]), jnp.zeros(2), jnp.full(2, 5.0))
    >>> [round(float(x), 9) for x in 0.5 * (low + high)]
    [1.414213562, 3.0]
    """

    def halve(_, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        earlier = before(middle)
        return jnp.where(earlier, middle, low), jnp.where(earlier, high, middle)

    return jax.lax.fori_loop(0, halvings, halve, (jax.lax.stop_gradient(low), jax.lax.stop_gradient(high)))
