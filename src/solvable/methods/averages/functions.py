"""The activation functions by name: one table for every model, method and tool.

>>> import jax.numpy as jnp
>>> round(float(function_named("erf")(jnp.asarray(1.0))), 6)
0.682689
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...errors import UnknownName, nearest

__all__ = ["FUNCTIONS", "Function", "function_named"]


class Function(NamedTuple):
    """An elementwise function of arrays, the points where it is not smooth, and whether f(-x) = -f(x)."""

    call: Callable[[Array], Array]
    kinks: tuple[float, ...] = ()
    odd: bool = False


def _erf(x: Array) -> Array:
    return jax.lax.erf(x * math.sqrt(0.5))


FUNCTIONS: dict[str, Function] = {
    "erf": Function(_erf, odd=True),  # erf(x/√2), as in most of the literature on online learning
    "sign": Function(jnp.sign, kinks=(0.0,), odd=True),
    "tanh": Function(jnp.tanh, odd=True),
    "linear": Function(lambda x: x, odd=True),
    "relu": Function(jax.nn.relu, kinks=(0.0,)),
    "abs": Function(jnp.abs, kinks=(0.0,)),
    "sigmoid": Function(jax.nn.sigmoid),
    "softplus": Function(jax.nn.softplus),
    "gelu": Function(lambda x: 0.5 * x * (1 + _erf(x))),
    "swish": Function(lambda x: x * jax.nn.sigmoid(x)),
}


def function_named(name: str) -> Callable[[Array], Array]:
    """Return the function of that name; raise `UnknownName` if there is none.

    >>> function_named("relu")(jnp.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    if name not in FUNCTIONS:
        raise UnknownName(f"there is no activation {name!r}; {nearest(name, list(FUNCTIONS))}")
    return FUNCTIONS[name].call
