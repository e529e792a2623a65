r"""Online descent at finite size: one fresh sample per step, measured on the way.

Every simulation of online learning is the same loop: take steps until the next measurement, measure, repeat. `descend`
is that loop; a model supplies one step and one measurement.

>>> import jax, jax.numpy as jnp
>>> size, key = 50, jax.random.key(0)
>>> teacher = jnp.ones(size)
>>> def step(number, w):
...     x = jax.random.normal(jax.random.fold_in(key, number), (size,)) / size**0.5
...     return w - 0.5 * ((w - teacher) @ x) * x
>>> ends = steps_at(jnp.array([0.0, 5.0, 40.0]), size)
>>> run = descend(step, jnp.zeros(size), ends, lambda w: w @ teacher / size)
>>> run.path.shape, bool(run.path[0] == 0), bool(run.path[2] > 0.99)
((3,), True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

__all__ = ["Descent", "descend", "on_sphere", "steps_at"]


class Descent(NamedTuple):
    """The end of a descent, its number of steps, and the measurements on the way (time is the leading axis)."""

    state: PyTree
    steps: Int[Array, ""]
    path: PyTree[Array]


def steps_at(times: Float[Array, " time"], size: int) -> Int[Array, " time"]:
    """The number of steps from the first time to each time: a unit of time is `size` steps.

    >>> steps_at(jnp.array([1.0, 1.5, 3.0]), 100).tolist()
    [0, 50, 200]
    """
    return jnp.rint((times - times[0]) * size).astype(jnp.int32)


def on_sphere(x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """The point of the sphere |x|² = n in the direction of x, along the last axis.

    >>> on_sphere(jnp.array([[3.0, 4.0], [0.0, 2.0]])).round(3).tolist()
    [[0.849, 1.131], [0.0, 1.414]]
    """
    return x * jnp.sqrt(x.shape[-1] / jnp.sum(x**2, axis=-1, keepdims=True))


def descend(
    step: Callable[..., Any],
    state: PyTree,
    ends: Int[Array, " time"],
    measure: Callable[[Any], PyTree],
    schedule: PyTree | None = None,
    *,
    begin: Int[Array, ""] | None = None,
    measure_start: bool = False,
) -> Descent:
    """Take steps up to the number `ends[0]`, measure, go on to `ends[1]`, measure, and so on.

    **Arguments:**
    - `step`: `step(number, state)`, the state after one more sample; derive its random key from the number of the step
        (`jax.random.fold_in`), so that samples do not depend on the measurements. With a `schedule`,
        `step(number, state, setting)`.
    - `ends`: the number of steps before each measurement, not decreasing; they may be traced.
    - `measure`: what is recorded of a state.
    - `schedule`: arrays with a leading axis as long as `ends`; their rows are the settings of the steps before each end.
    - `begin`: the number of the first step, zero by default: set it to continue an earlier descent.
    - `measure_start`: whether to record the initial state too, before the others.

    The number of steps is not part of the program: lengths may differ between the lanes of a `vmap`.

    >>> run = descend(lambda n, x, pace: x + pace, jnp.zeros(()), jnp.array([2, 5]), lambda x: x, jnp.array([1.0, 10.0]))
    >>> run.path.tolist(), int(run.steps)
    ([2.0, 32.0], 5)
    """

    def stretch(carry: tuple[Array, Any], row: tuple[Array, Any]) -> tuple[tuple[Array, Any], Any]:
        (first, state), (end, setting) = carry, row
        given = () if schedule is None else (setting,)
        state = jax.lax.fori_loop(first, end, lambda number, state: step(number, state, *given), state)
        return (end, state), measure(state)

    first = jnp.zeros_like(ends[0]) if begin is None else begin
    (steps, last), path = jax.lax.scan(stretch, (first, state), (ends, schedule))
    if measure_start:
        path = jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), measure(state), path)
    return Descent(last, steps, path)
