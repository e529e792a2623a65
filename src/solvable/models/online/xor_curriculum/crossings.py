r"""Probabilities of signs, $P[f(z) < 0]$ for a standard normal z, without smoothing and differentiable.

An average of signs over sampled points is not smooth, and its derivative is zero. If one normal direction z is integrated
separately, the result along it is exact: the Gaussian mass between the zeros of f. The zeros, and with them the probability,
move smoothly with the parameters of f:

$$\mathrm{d}P = -\sum_{f(z)=0} \frac{\varphi(z)}{|f'(z)|}\, \mathrm{d}f(z).$$

Averages over the other directions are then averages of a continuous function (preintegration).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PyTree

from solvable.methods.fixed_points.bisection import bisect

__all__ = ["probability_negative"]

REACH = 6.0  # zeros are searched within this many standard deviations; the mass beyond is 2e-9
HALVINGS = 26  # bisections between two nodes: a zero is found to 1e-8, before a final Newton step

Function = Callable[[Float[Array, ""], PyTree], Float[Array, ""]]


def probability_negative(function: Function, args: PyTree, nodes: int = 33) -> Float[Array, ""]:
    """P[function(z, args) < 0] over a standard normal z; values of exactly zero count half.

    The zeros are bracketed by `nodes` equidistant points and then found by bisection; two zeros between the same nodes are
    missed. Differentiable once in `args`, which must contain everything to be differentiated; second derivatives are NaN.

    >>> import jax
    >>> shifted = lambda mean: probability_negative(lambda z, m: (z - m) ** 3, mean)
    >>> float(shifted(0.0)), round(float(jax.grad(shifted)(0.5)), 6)  # Φ(0) and φ(1/2)
    (0.5, 0.352065)
    """
    return _probability(function, args, nodes)


@partial(jax.custom_jvp, nondiff_argnums=(0, 2))
def _probability(function: Function, args: PyTree, nodes: int) -> Array:
    return _walk(function, args, nodes, False)[0]


@_probability.defjvp
def _probability_jvp(function: Function, nodes: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    value, slopes = _walk(function, primals[0], nodes, True)
    moved = jax.tree.map(lambda slope, tangent: jnp.sum(_last(slope, primals[0]) * tangent), slopes, tangents[0])
    return value, sum(jax.tree.leaves(moved), start=jnp.zeros_like(value))


@jax.custom_jvp
def _last(slope: Array, args: PyTree) -> Array:
    """Mark a derivative as not differentiable, because the zeros come from bisection."""
    return slope


@_last.defjvp
def _last_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    moved = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tangents[1]))
    return primals[0], jnp.full_like(primals[0], jnp.nan) * moved


def _walk(function: Function, args: PyTree, nodes: int, sloped: bool) -> tuple[Array, PyTree]:
    """The probability and, if `sloped`, its derivatives by `args`, one zero at a time."""
    args = jax.lax.stop_gradient(args)

    def negative(z: Array) -> Array:
        return 0.5 - 0.5 * jnp.sign(function(z, args))

    grid = jnp.linspace(-REACH, REACH, nodes)
    below = jax.lax.map(negative, grid)
    steps = below[:-1] - below[1:]
    found = jnp.cumsum((steps != 0) & jnp.isfinite(steps))

    def cross(carry: Any) -> Any:
        number, value, slopes = carry
        at = jnp.minimum(
            jnp.sum(found <= number), nodes - 2
        )  # the next step: all are few, so that counting is searching

        left, right = bisect(lambda z: negative(z) != below[at + 1], grid[at], grid[at + 1], HALVINGS)
        zero = 0.5 * (left + right)
        height, (steepness, *own) = jax.value_and_grad(function, argnums=(0, 1) if sloped else (0,))(zero, args)
        there, step = number < found[-1], steps[at]
        # a zero at a node is counted twice, by half a step each time
        weight = jnp.abs(step) * jnp.exp(-0.5 * zero**2) / (math.sqrt(2 * math.pi) * jnp.abs(steepness))
        shift = jnp.where(jnp.abs(height) < jnp.abs(steepness) * (right - left), height / steepness, 0.0)
        slopes = jax.tree.map(lambda total, slope: total - jnp.where(there, weight * slope, 0.0), slopes, own)
        return number + 1, value + jnp.where(there, step, 0.0) * ndtr(zero - shift), slopes

    # where the function is NaN, so is its derivative
    zeros = [jax.tree.map(lambda x: jnp.zeros_like(x) * below[-1], args)] if sloped else []
    _, value, slopes = jax.lax.while_loop(lambda carry: carry[0] < found[-1], cross, (jnp.asarray(0), below[-1], zeros))
    return value, slopes[0] if sloped else None
