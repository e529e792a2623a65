r"""A flow with piecewise constant controls, its cost and its adjoint, with a measured error.

A flow $\dot y = f(y, u)$ runs over equal intervals with u constant on each. Adaptive Runge–Kutta steps that end at the
edges integrate it twice side by side, at fifth and at fourth order (Cash and Karp 1990). The costates
$\dot p = -(\partial_y f)^\top p$ and the derivatives of the cost by every control are the adjoint of the same steps, also
at both orders. Results are of fifth order; the stated error is the largest difference from fourth order, relative to one
plus the size of the number. It estimates the global error, not the error of a step. Where it exceeds the accuracy, the
steps are refined: those that the flow asks for, and the longest allowed one, because a flow at rest asks for no steps while
its costates still move. If refinement or the number of steps does not suffice (a stiff or exploding flow), the results are NaN.

`solvable.methods.flows.control` searches schedules with it.

>>> import jax.numpy as jnp
>>> visit, _ = visitor(lambda x, u: -u["rate"] * x, lambda x: x**2, jnp.array(1.0), 1.0, accuracy=1e-8, max_steps=512)
>>> result = visit({"rate": jnp.full(4, 2.0)}, jnp.asarray(0))
>>> bool(result.error <= 1e-8), round(float(result.slopes["rate"][0]), 6)  # of exp(-2 Σ rate/4), per unit of time
(True, -0.036631)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from .integrate import until_failure

__all__ = ["Visit", "arrive", "follow", "visitor"]

Controls = dict[str, Float[Array, "intervals ..."]]
Drift = Callable[[PyTree, dict[str, Array]], PyTree]
Cost = Callable[[PyTree], Float[Array, ""]]
Number = Float[Array, ""] | float

# Cash and Karp (1990): six stages, one step of fifth order and one of fourth, side by side. The stages are a loop, so that
# a program contains the drift once and its adjoint once: copies would mainly cost compilation time.
_STAGES = np.array([
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [1 / 5, 0.0, 0.0, 0.0, 0.0, 0.0],
    [3 / 40, 9 / 40, 0.0, 0.0, 0.0, 0.0],
    [3 / 10, -9 / 10, 6 / 5, 0.0, 0.0, 0.0],
    [-11 / 54, 5 / 2, -70 / 27, 35 / 27, 0.0, 0.0],
    [1631 / 55296, 175 / 512, 575 / 13824, 44275 / 110592, 253 / 4096, 0.0],
])  # fmt: skip
_WEIGHTS = np.array([
    [37 / 378, 0.0, 250 / 621, 125 / 594, 0.0, 512 / 1771],
    [2825 / 27648, 0.0, 18575 / 48384, 13525 / 55296, 277 / 14336, 1 / 4],
])  # fmt: skip
_BLOCK = 8  # attempts that are skipped together
_FIRST, _NARROWEST = (
    1e-2,
    1e-12,
)  # the first step, and the length below which a step has failed, as fractions of an interval
_LOCAL, _FINER, _LEVELS = 1e-2, 32.0, 9  # error of a step relative to the accuracy; factor and number of refinements
_SHORTER = 2.0  # factor of the longest step: fifth-order errors of a step fall by _FINER


class Visit(NamedTuple):
    """One evaluation of a schedule, with path and costates as vectors at the edges; `error` covers all its numbers.

    If the accuracy was not reached, the path is NaN from there on and everything else is NaN.
    """

    controls: Controls
    cost: Array
    slopes: Controls
    path: Array
    costates: Array
    error: Array
    level: Array


def follow(
    drift: Drift,
    start: PyTree,
    controls: Controls,
    horizon: Number,
    *,
    accuracy: Number = 1e-8,
    max_steps: int = 4096,
    substeps: int | None = None,
) -> PyTree:
    """The path of the flow at the edges of the intervals, time first; NaN from where `accuracy` was not reached.

    `substeps` is ignored: there are as many as the accuracy needs.

    >>> path = follow(lambda x, u: -u["rate"] * x, jnp.array(1.0), {"rate": jnp.full(10, 2.0)}, 1.0)
    >>> round(float(path[-1]), 8)
    0.13533528
    """
    problem = _problem(drift, start, controls, horizon, accuracy, max_steps)

    def run(fine: _Fineness) -> tuple[Any, Array, Array]:
        followed = _followed(problem, fine, keep=True)
        assert followed.steps is not None
        path, along = _path(followed, _edges(followed.steps, len(problem.rows)))
        return (path[:, 0], along), jnp.max(along), followed.interval == len(problem.rows)

    (path, along), _ = _refined(problem, jnp.asarray(0), run)
    good = until_failure(along <= accuracy)
    return jax.vmap(problem.unravel)(path * jnp.where(good, 1.0, jnp.nan)[:, None])


def arrive(
    drift: Drift,
    start: PyTree,
    controls: Controls,
    horizon: Number,
    *,
    accuracy: Number = 1e-8,
    max_steps: int = 4096,
) -> PyTree:
    """The end point of `follow`, without the memory of a path: for many schedules side by side.

    >>> round(float(arrive(lambda x, u: -u["rate"] * x, jnp.array(1.0), {"rate": jnp.full(10, 2.0)}, 1.0)), 8)
    0.13533528
    """
    problem = _problem(drift, start, controls, horizon, accuracy, max_steps)

    def run(fine: _Fineness) -> tuple[Any, Array, Array]:
        followed = _followed(problem, fine, keep=False)
        there = followed.interval == len(problem.rows)
        error = jnp.where(there, jnp.max(_apart(*followed.end)), jnp.inf)
        return (followed.end[0], error), error, there

    (end, error), _ = _refined(problem, jnp.asarray(0), run)
    return problem.unravel(end * jnp.where(error <= accuracy, 1.0, jnp.nan))


def visitor(
    drift: Drift, cost: Cost, start: PyTree, horizon: Number, *, accuracy: Number, max_steps: int
) -> tuple[Callable[[Controls, Array], Visit], Callable[[Array], PyTree]]:
    """Return a function that evaluates a schedule with all derivatives, and one that turns a vector into a state.

    The first takes the controls and the level of refinement to begin at (0 for none), and returns the level it reached.
    A flow that needs more than `max_steps` steps plus two for each interval has failed.
    """
    unravel = ravel_pytree(start)[1]

    def visit(controls: Controls, level: Array) -> Visit:
        problem = _problem(drift, start, controls, horizon, accuracy, max_steps)
        intervals = len(problem.rows)

        def run(fine: _Fineness) -> tuple[Any, Array, Array]:
            followed = _followed(problem, fine, keep=True)
            assert followed.steps is not None
            edges = _edges(followed.steps, intervals)
            path, along = _path(followed, edges)
            values, at_end = jax.vmap(jax.value_and_grad(lambda y: cost(unravel(y))))(followed.end)
            costates, slopes = _back(problem, followed.steps, edges, at_end)
            slopes = slopes * (intervals / jnp.asarray(horizon))
            each = [values[:, None], *(jnp.swapaxes(x, 0, 1).reshape(len(values), -1) for x in (costates, slopes))]
            error = jnp.maximum(jnp.max(along), jnp.max(_apart(*jnp.concatenate(each, axis=1))))
            return (
                (values[0], slopes[:, 0], path[:, 0], costates[:, 0], error, along),
                error,
                followed.interval == intervals,
            )

        (value, slopes, path, costates, error, along), level = _refined(problem, level, run)
        known = jnp.where(error <= accuracy, 1.0, jnp.nan)  # a product, so that the derivative is NaN too
        good = until_failure(along <= accuracy)
        return Visit(
            controls=controls,
            cost=value * known,
            slopes=problem.named(slopes * known),
            path=path * jnp.where(good, 1.0, jnp.nan)[:, None],
            costates=costates * known,
            error=error,
            level=level,
        )

    return visit, unravel


# --- steps, forward and back
# -------------------------------------------------------------------------------------------


class _Steps(NamedTuple):
    """Every attempted step: its initial states at both orders, the field at its stages, its length (zero if it was
    rejected), its interval."""

    state: Array
    slopes: Array
    length: Array
    interval: Array


class _Followed(NamedTuple):
    """An integrated flow at both orders: the end point, its interval, and all steps if they were kept."""

    end: Array
    interval: Array
    steps: _Steps | None


class _Fineness(NamedTuple):
    """The allowed error of a step, and the longest step as a fraction of an interval."""

    tolerance: Array
    longest: Array


class _Problem(NamedTuple):
    """A flow in units of an interval, as vectors: the state, and a row of the controls for every interval."""

    field: Callable[[Array, Array], Array]
    start: Array
    rows: Array
    unravel: Callable[[Array], PyTree]
    named: Callable[[Array], Controls]
    accuracy: Number
    max_steps: int


@jax.custom_batching.custom_vmap
def _anywhere(here: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether a condition holds in any lane of a `vmap`: the same in all lanes, so that a loop is skipped, not masked."""
    return here


@_anywhere.def_vmap
def _anywhere_in_a_batch(size: int, batched: list[bool], here: Array) -> tuple[Array, bool]:
    return _anywhere(jnp.any(here, axis=0)), False


def _problem(
    drift: Drift, start: PyTree, controls: Controls, horizon: Number, accuracy: Number, max_steps: int
) -> _Problem:
    flat, unravel = ravel_pytree(start)
    intervals = len(next(iter(controls.values())))
    width = jnp.asarray(horizon) / intervals
    _, named = ravel_pytree({n: u[0] for n, u in controls.items()})
    rows = jax.vmap(lambda row: ravel_pytree(row)[0])(controls)

    def field(y: Array, row: Array) -> Array:
        return width * ravel_pytree(drift(unravel(y), named(row)))[0]

    return _Problem(field, flat, rows, unravel, jax.vmap(named), accuracy, max_steps)


def _step(problem: _Problem, states: Array, row: Array, length: Array) -> tuple[Array, Array]:
    """One step at both orders, and the field at all stages of the higher one."""

    def one(y: Array, weights: Array) -> tuple[Array, Array]:
        def stage(slopes: Array, about: tuple[Array, Array]) -> tuple[Array, None]:
            number, before = about
            return slopes.at[number].set(problem.field(y + length * _combined(before, slopes), row)), None

        stages = (jnp.arange(len(_STAGES), dtype=jnp.int32), jnp.asarray(_STAGES, y.dtype))
        slopes, _ = jax.lax.scan(stage, jnp.zeros((len(_STAGES), y.size), y.dtype), stages)
        return y + length * _combined(weights, slopes), slopes

    new, slopes = jax.vmap(one)(states, jnp.asarray(_WEIGHTS, states.dtype))
    return new, slopes[0]


def _combined(weights: Array, rows: Array) -> Array:
    """The weighted sum of the stages, elementwise: a matrix product this small is slower inside the loops."""
    return jnp.sum(weights.reshape(-1, *[1] * (rows.ndim - 1)) * rows, axis=0)


def _step_back(problem: _Problem, step: _Steps, row: Array, costates: Array) -> tuple[Array, Array]:
    """The adjoint of a step with respect to state and controls, at both orders along the path of the higher one.

    With p after the step, w_i = h (b_i p + Σ_j a_ji v_j), v_i = (∂_y f)ᵀ w_i, and p + Σ_i v_i before it.
    """
    y, length = step.state[0], step.length
    table, weights = jnp.asarray(_STAGES, y.dtype), jnp.asarray(_WEIGHTS, y.dtype)
    places = y[None] + length * jnp.sum(table[:, :, None] * step.slopes[None], axis=1)

    def stage(carry: tuple[Array, Array], about: Any) -> tuple[tuple[Array, Array], None]:
        pulls, slopes = carry
        number, place, weight, after = about
        _, back = jax.vjp(problem.field, place, row)
        pull, more = jax.vmap(back)(length * (weight[:, None] * costates + _combined(after, pulls)))
        return (pulls.at[number].set(pull), slopes + more), None

    stages = (jnp.arange(len(_STAGES), dtype=jnp.int32), places, weights.T, table.T)
    begin = (jnp.zeros((len(table), *costates.shape), y.dtype), jnp.zeros((len(weights), *row.shape), y.dtype))
    (pulls, slopes), _ = jax.lax.scan(stage, begin, stages, reverse=True)
    return costates + jnp.sum(pulls, axis=0), slopes


def _followed(problem: _Problem, fine: _Fineness, keep: bool) -> _Followed:
    """Take adaptive steps from edge to edge, as fine as asked for, until the end or the last allowed step.

    The attempts are a scan over blocks that are skipped once the flow is done: unlike a `while_loop`, this is
    differentiable in both modes.
    """
    intervals = len(problem.rows)
    apart = jnp.asarray(_WEIGHTS[0] - _WEIGHTS[1], problem.start.dtype)

    def attempt(carry: Any, _: None) -> tuple[Any, _Steps | None]:
        y, interval, place, proposed, alive = carry
        live = alive & (interval < intervals)
        last = place + proposed >= 1 - 1e-9
        length = jnp.where(live, jnp.where(last, 1 - place, proposed), 0.0)
        # the backward pass keeps the states only: computing the stages again is faster than storing them
        new, slopes = jax.checkpoint(partial(_step, problem))(
            y, problem.rows[jnp.minimum(interval, intervals - 1)], length
        )
        # the choice of steps is not differentiated
        before, after, off = jax.lax.stop_gradient((y, new, length * _combined(apart, slopes)))
        scale = fine.tolerance * (1 + jnp.maximum(jnp.abs(before[0]), jnp.abs(after[0])))
        ratio = jnp.where(jnp.all(jnp.isfinite(after)), jnp.max(jnp.abs(off) / scale), jnp.inf)
        accepted = live & (ratio <= 1)
        change = jnp.clip(0.9 * jnp.maximum(ratio, 1e-10) ** -0.2, 0.2, jnp.where(accepted, 5.0, 0.9))
        # a step that was cut at an edge does not shorten the next one
        longer = jnp.minimum(
            jnp.where(accepted & last, jnp.maximum(proposed, change * length), change * length), fine.longest
        )
        step = _Steps(y, slopes, jnp.where(accepted, length, 0.0), interval)
        ended = accepted & last
        after = (
            jnp.where(accepted, new, y),
            interval + ended.astype(interval.dtype),
            jnp.where(ended, 0.0, place + step.length),
            jnp.where(live, longer, proposed),
            alive & (longer > _NARROWEST),
        )
        return after, step if keep else None

    def block(carry: Any, _: None) -> tuple[Any, _Steps | None]:
        def skip(carry: Any) -> tuple[Any, _Steps | None]:
            shapes = jax.eval_shape(lambda: go(carry)[1])
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
            return carry, nothing._replace(interval=jnp.full_like(nothing.interval, intervals)) if keep else None

        def go(carry: Any) -> tuple[Any, _Steps | None]:
            return jax.lax.scan(attempt, carry, None, _BLOCK)

        return jax.lax.cond(_anywhere(carry[4] & (carry[1] < intervals)), go, skip, carry)

    y = jnp.stack([problem.start] * len(_WEIGHTS))
    begin = (y, jnp.asarray(0, jnp.int32), jnp.asarray(0.0), jnp.asarray(_FIRST), jnp.all(jnp.isfinite(y)))
    blocks = -(-(problem.max_steps + 2 * intervals) // _BLOCK)  # many intervals alone must not cause failure
    (end, interval, *_), steps = jax.lax.scan(block, begin, None, blocks)
    return _Followed(end, interval, steps)


def _edges(steps: _Steps, intervals: int) -> Array:
    """The index, among all attempts, at which each interval begins."""
    return jnp.searchsorted(steps.interval.reshape(-1), jnp.arange(intervals, dtype=jnp.int32))


def _path(followed: _Followed, edges: Array) -> tuple[Array, Array]:
    """The states of both orders at the edges, and their distance there, infinite beyond where the flow stopped."""
    assert followed.steps is not None
    states = followed.steps.state.reshape(-1, *followed.end.shape)
    path = jnp.concatenate([states[edges], followed.end[None]])
    reached = jnp.arange(len(path), dtype=jnp.int32) <= followed.interval
    return path, jnp.where(reached, jnp.max(_apart(path[:, 0], path[:, 1]), axis=1), jnp.inf)


def _back(problem: _Problem, steps: _Steps, edges: Array, at_end: Array) -> tuple[Array, Array]:
    """The costates of both orders at the edges and the derivatives of the cost by every interval's controls.

    Both are the adjoint of the steps that were taken.
    """

    def attempt(costate: Array, step: _Steps) -> tuple[Array, tuple[Array, Array]]:
        before, slopes = _step_back(
            problem, step, problem.rows[jnp.minimum(step.interval, len(problem.rows) - 1)], costate
        )
        taken = step.length > 0
        costate = jnp.where(taken, before, costate)
        return costate, (costate, jnp.where(taken, slopes, 0.0))

    def block(costate: Array, steps: _Steps) -> tuple[Array, tuple[Array, Array]]:
        def skip(costate: Array) -> tuple[Array, tuple[Array, Array]]:
            none = jnp.zeros((_BLOCK, len(costate), problem.rows.shape[1]), problem.rows.dtype)
            return costate, (jnp.broadcast_to(costate, (_BLOCK, *costate.shape)), none)

        def go(costate: Array) -> tuple[Array, tuple[Array, Array]]:
            return jax.lax.scan(attempt, costate, steps, reverse=True)

        return jax.lax.cond(_anywhere(jnp.any(steps.length > 0)), go, skip, costate)

    _, (costates, slopes) = jax.lax.scan(block, at_end, steps, reverse=True)
    costates = jnp.concatenate([costates.reshape(-1, *at_end.shape)[edges], at_end[None]])
    none = jnp.zeros((len(problem.rows), *slopes.shape[2:]), slopes.dtype)
    slopes = slopes.reshape(-1, *slopes.shape[2:])
    return costates, none.at[steps.interval.reshape(-1)].add(slopes, mode="drop")


def _apart(one: Array, other: Array) -> Array:
    """The distance of two numbers, relative to one plus their size; infinite if one is not finite."""
    off = jnp.abs(one - other) / (1 + jnp.abs(one))
    return jax.lax.stop_gradient(jnp.where(jnp.isfinite(off), off, jnp.inf))


def _refined(
    problem: _Problem, level: Array, run: Callable[[_Fineness], tuple[Any, Array, Array]]
) -> tuple[Any, Array]:
    """Refine `run(fineness)` from a given level until its error is at most the accuracy; return the result and the level.

    `run` returns its result, the error, and whether a finer tolerance can help.
    """

    def fineness(level: Array) -> _Fineness:
        tolerance = problem.accuracy * _LOCAL * _FINER**-level
        return _Fineness(jnp.maximum(tolerance, 4 * jnp.finfo(problem.start.dtype).eps), _SHORTER**-level)

    def finer(carry: Any, _: None) -> tuple[Any, None]:
        def again(carry: Any) -> Any:
            _, level, _ = carry
            result, error, possible = run(fineness(level))
            more = possible & (error > problem.accuracy) & (level < _LEVELS - 1)
            return result, level + more.astype(level.dtype), more

        todo = carry[2]
        new = jax.lax.cond(_anywhere(todo), again, lambda carry: carry, carry)
        return jax.tree.map(lambda a, b: jnp.where(todo, a, b), new, carry), None

    some = fineness(level)
    run = eqx.filter_closure_convert(run, some)  # traced once: its shapes are needed before it runs
    shapes = jax.eval_shape(run, some)[0]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    (result, level, _), _ = jax.lax.scan(finer, (nothing, level, jnp.asarray(True)), None, _LEVELS)
    return result, level
