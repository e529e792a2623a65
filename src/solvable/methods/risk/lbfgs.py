"""Limited-memory BFGS for full-batch objectives that return their own gradient, on CPU and GPU.

One compiled loop with one evaluation of the objective per iteration: an iteration either accepts the trial point (and
computes the next direction) or changes the trial length. So a batch under `vmap` never waits inside a nested line search,
and the objective is compiled once. See `minimise` for the memory needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

Parameters = PyTree[Float[Array, "..."]]
Objective = Callable[[Any], tuple[Float[Array, ""], Any]]

DECREASE, CURVATURE = 1e-4, 0.9  # the constants of the weak Wolfe conditions
TRIALS = 20  # trials of one line search


class Minimum(NamedTuple):
    """The end of a search. `residual` is |gradient| / max(1, |parameters|); `converged`: it is within the tolerance."""

    parameters: Any
    value: Float[Array, ""]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    evaluations: Int[Array, ""]
    converged: Bool[Array, ""]


class _State(NamedTuple):
    x: Any
    value: Array
    gradient: Any
    direction: Any
    slope: Array  # of the objective along the direction
    length: Array  # of the next trial
    low: Array  # the accepted length is above `low` …
    high: Array  # … and below `high`
    trials: Array
    steps: Any  # differences of the accepted points, newest at `newest`; one slot more than `history`, for the trial
    changes: Any  # and of their gradients
    inner: Array  # step · change; zero where there is no pair
    newest: Array
    iterations: Array
    evaluations: Array
    residual: Array
    stalled: Array


def minimise(
    objective: Objective,
    start: Parameters,
    *,
    tolerance: float = 1e-5,
    iterations: int = 500,
    history: int = 8,
    curvatures: Parameters | None = None,
    report: Callable[[int, float, float], None] | None = None,
    every: int = 10,
) -> Minimum:
    """Minimise `objective`, which maps parameters to `(value, gradient)`, from `start`.

    Stops when |gradient| ≤ `tolerance`·max(1, |parameters|) (`converged`), after `iterations` accepted steps, or when the
    objective cannot be lowered further at this precision. The line search meets the weak Wolfe conditions by bracketing,
    with Hager and Zhang's (2005) condition on slopes where values differ by rounding only. `curvatures` is an estimate of
    the Hessian's diagonal, which then replaces the identity as the initial metric. All parameters must have one dtype.

    `objective` should be an `eqx.Module` that holds its data: the data are then arguments of the compiled program, not
    constants in it. With `report` (called with iterations, value, residual) control returns to Python after `every`
    evaluations, so that the search can be monitored and interrupted; without it, the search is one compiled program,
    which `vmap` batches.

    Memory in units of the parameters: 2·(history + 1) + 5, plus one for `curvatures`, plus that of the objective.

    >>> def bowl(x):
    ...     return jnp.sum((x - 1) ** 4 + 10 * (x - 1) ** 2), 4 * (x - 1) ** 3 + 20 * (x - 1)
    >>> found = minimise(bowl, jnp.asarray([3.0, -2.0]), tolerance=1e-10)
    >>> bool(found.converged), [round(v, 9) for v in found.parameters.tolist()]
    (True, [1.0, 1.0])
    """
    most, least = jnp.asarray(iterations, jnp.int32), jnp.asarray(tolerance)
    if report is None:
        return _finished(_whole(objective, start, curvatures, least, most, history), tolerance)
    state = _begin_jit(objective, start, curvatures, history)
    while True:
        progress = int(state.iterations), float(state.value), float(state.residual)
        report(*progress)
        # NaN residuals compare false and end the search too.
        if not (progress[2] > tolerance) or progress[0] >= iterations or bool(state.stalled):
            return _finished(state, tolerance)
        state = _some_jit((objective, curvatures, least, most, state.evaluations + every), state)


def _finished(state: _State, tolerance: float) -> Minimum:
    done = state.residual <= tolerance
    return Minimum(state.x, state.value, state.residual, state.iterations, state.evaluations, done)


@eqx.filter_jit
def _whole(objective, start, curvatures, tolerance, most, history) -> _State:
    state = _begin(objective, start, curvatures, history)
    return _some((objective, curvatures, tolerance, most, jnp.asarray(jnp.iinfo(jnp.int32).max, jnp.int32)), state)


def _some(problem: Any, state: _State) -> _State:
    """Iterate until the search is over or has evaluated the objective `until` times."""
    objective, curvatures, tolerance, most, until = problem
    tolerance = tolerance.astype(state.residual.dtype)

    def unfinished(state: _State) -> Array:
        going = (state.residual > tolerance) & (state.iterations < most) & ~state.stalled
        return going & (state.evaluations < until)

    return jax.lax.while_loop(unfinished, lambda s: _turn(objective, curvatures, s), state)


_some_jit = eqx.filter_jit(_some, donate="all-except-first")  # the state's memory is reused


def _begin(objective, start, curvatures, history) -> _State:
    start = jax.tree.map(jnp.copy, start)  # the caller's own arrays must not be donated
    value, gradient = objective(start)
    dtype = value.dtype
    empty = jax.tree.map(lambda a: jnp.zeros((history + 1, *a.shape), a.dtype), start)
    direction = jax.tree.map(jnp.negative, _metric(gradient, curvatures))
    zero = jnp.zeros((), jnp.int32)
    # Without curvatures the first step has the length of the parameters, or one.
    size = norm(direction)
    first = jnp.ones((), dtype) if curvatures is not None else jnp.minimum(1.0, jnp.maximum(1.0, norm(start)) / size)
    return _State(
        start, value, gradient, direction, dot(gradient, direction), first.astype(dtype), jnp.zeros((), dtype),
        jnp.full((), jnp.inf, dtype), zero, empty, empty, jnp.zeros(history + 1, dtype), zero, zero, zero + 1,
        _residual(gradient, start), jnp.zeros((), bool),
    )  # fmt: skip


_begin_jit = eqx.filter_jit(_begin)


def _turn(objective: Objective, curvatures: Any, state: _State) -> _State:
    """Evaluate the trial point; accept it, or choose another length."""
    x = jax.tree.map(lambda a, d: a + state.length * d, state.x, state.direction)
    value, gradient = objective(x)
    slope = dot(gradient, state.direction)
    finite = jnp.isfinite(value) & jnp.isfinite(slope)
    lower = value <= state.value + DECREASE * state.length * state.slope
    rounding = 8 * jnp.finfo(value.dtype).eps * jnp.abs(state.value)
    lower |= (value <= state.value + rounding) & (slope <= (2 * DECREASE - 1) * state.slope)
    lower &= finite
    accepted = lower & (slope >= CURVATURE * state.slope)

    # The trial pair is always written, in the slot after the newest: it counts once `newest` moves there.
    slots = state.inner.shape[0]
    slot = (state.newest + 1) % slots
    steps = jax.tree.map(lambda all, d: _set(all, state.length * d, slot), state.steps, state.direction)
    changes = jax.tree.map(lambda all, a, b: _set(all, a - b, slot), state.changes, gradient, state.gradient)
    inner = state.length * (slope - state.slope)
    inner = state.inner.at[slot].set(jnp.where(accepted & (inner > 0), inner, 0.0))

    # The next length: double it, or take the minimum of a parabola inside the bracket.
    low = jnp.where(lower, state.length, state.low)
    high = jnp.where(lower, state.high, state.length)
    parabola = -0.5 * state.slope * state.length**2 / (value - state.value - state.length * state.slope)
    inside = jnp.where(finite & ~lower & (state.low == 0), parabola, 0.5 * (low + high))
    inside = jnp.clip(jnp.where(jnp.isnan(inside), low, inside), 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high)
    length = jnp.where(jnp.isinf(high), 2 * low, inside)

    # A failed line search restarts along the gradient; if that was the direction already, the search is over.
    lost = ~accepted & (state.trials + 1 >= TRIALS)
    fresh = ~jnp.any(state.inner > 0)
    inner = jnp.where(lost, jnp.zeros_like(inner), inner)
    newest = jnp.where(accepted, slot, state.newest)
    gradient = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), gradient, state.gradient)
    direction = jax.lax.cond(
        accepted | lost,
        lambda: _direction(gradient, steps, changes, inner, newest, curvatures),
        lambda: state.direction,
    )
    new_slope = jnp.where(accepted | lost, dot(gradient, direction), state.slope)
    restart = jnp.minimum(1.0, norm(state.x) / jnp.maximum(norm(direction), 1e-30)) * 1e-3
    length = jnp.where(accepted, 1.0, jnp.where(lost, restart, length)).astype(length.dtype)
    x = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), x, state.x)
    again = accepted | lost
    return _State(
        x,
        jnp.where(accepted, value, state.value),
        gradient,
        direction,
        new_slope,
        length,
        jnp.where(again, jnp.zeros_like(low), low),
        jnp.where(again, jnp.full_like(high, jnp.inf), high),
        jnp.where(again, 0, state.trials + 1),
        steps,
        changes,
        inner,
        newest,
        state.iterations + accepted.astype(jnp.int32),
        state.evaluations + 1,
        jnp.where(accepted, _residual(gradient, x), state.residual),
        (lost & fresh) | (again & ~(new_slope < 0)),
    )


def _direction(gradient: Any, steps: Any, changes: Any, inner: Array, newest: Array, curvatures: Any) -> Any:
    """−H·gradient by the two-loop recursion (Nocedal, 1980)."""
    slots = inner.shape[0]
    safe = jnp.where(inner > 0, inner, 1.0)
    there = (inner > 0).astype(inner.dtype)

    def at(all: Any, index: Array) -> Any:
        return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, index, keepdims=False), all)

    def plus(a: Any, factor: Array, b: Any) -> Any:
        return jax.tree.map(lambda u, v: u + factor * v, a, b)

    # Loops are not unrolled: the program stays small and compiles in a fraction of the time.
    def newest_first(back, carry):
        q, weights = carry
        index = (newest - back) % slots
        weight = there[index] * dot(at(steps, index), q) / safe[index]
        return plus(q, -weight, at(changes, index)), weights.at[index].set(weight)

    def oldest_first(back, q):
        index = (newest + 2 + back) % slots  # the slot after the newest is for the next trial
        weight = there[index] * dot(at(changes, index), q) / safe[index]
        return plus(q, weights[index] - weight, at(steps, index))

    q, weights = jax.lax.fori_loop(0, slots - 1, newest_first, (gradient, jnp.zeros_like(inner)))
    last = at(changes, newest)
    scale = safe[newest] / jnp.maximum(dot(last, _metric(last, curvatures)), jnp.finfo(inner.dtype).tiny)
    scale = jnp.where(there[newest] > 0, scale, 1.0)
    q = jax.tree.map(lambda a: scale * a, _metric(q, curvatures))
    return jax.tree.map(jnp.negative, jax.lax.fori_loop(0, slots - 1, oldest_first, q))


def _metric(vector: Any, curvatures: Any) -> Any:
    return vector if curvatures is None else jax.tree.map(jnp.divide, vector, curvatures)


def _set(all: Array, one: Array, slot: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(all, one, slot, 0)


def dot(a: Any, b: Any) -> Float[Array, ""]:
    """Inner product of two pytrees, last axis first, so that float32 sums of 10⁸ terms keep their digits."""
    pieces = [jnp.sum(jnp.sum(u * v, axis=-1)) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
    return jnp.sum(jnp.stack(pieces))


def norm(a: Any) -> Float[Array, ""]:
    """Euclidean norm of a pytree."""
    return jnp.sqrt(dot(a, a))


def _residual(gradient: Any, x: Any) -> Float[Array, ""]:
    return norm(gradient) / jnp.maximum(1.0, norm(x))
