r"""Order-parameter flows: a few coupled ordinary differential equations, solved accurately and differentiably.

`integrate` is Diffrax with the choices that suit such flows: an explicit high-order solver with adaptive steps, values
at the requested times, forward and reverse differentiation, and failure as a value: NaN beyond the point reached, in the
failing lane of a `vmap` only.

>>> import jax.numpy as jnp
>>> decay = integrate(lambda t, y, rate: -rate * y, jnp.array(1.0), jnp.array([0.0, 1.0]), jnp.array(2.0))
>>> bool(decay.converged), round(float(decay.values[1]), 6)
(True, 0.135335)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Bool, Float, Int, PyTree

__all__ = ["Flow", "integrate", "until_failure"]

VectorField = Callable[[Float[Array, ""], PyTree, PyTree], PyTree]
SOLVERS = {"tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8, "kvaerno5": diffrax.Kvaerno5}
SHORTEST = 1e-13  # step, as a fraction of the horizon, below which time hardly moves and the flow has failed


class Flow(eqx.Module):
    """A solved flow.

    `values` has the structure of the start, with time as the leading axis; beyond the point reached (a failure or an
    event) values and gradients are NaN. `reached` marks the times that have values. `converged` means that every
    requested time, or the event, was reached within the tolerances. `steps` counts accepted and rejected steps,
    `stiff_steps` those that an implicit solver took. `event_time` is NaN unless the event happened. `end` is the last
    good state, at `end_time`: at the event, at the last time, or where the flow failed.
    """

    values: PyTree[Float[Array, "time ..."]]
    converged: Bool[Array, ""]
    steps: Int[Array, ""]
    event_time: Float[Array, ""]
    reached: Bool[Array, " time"]
    end: PyTree[Float[Array, "..."]]
    end_time: Float[Array, ""]
    stiff_steps: Int[Array, ""]


def integrate(
    vector_field: VectorField,
    start: PyTree,
    times: Float[Array, " time"],
    args: PyTree = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    max_steps: int = 4096,
    solver: str = "dopri8",
    gradients: str = "both",
    event: Callable[[Float[Array, ""], PyTree, PyTree], Float[Array, ""]] | None = None,
    jumps: Float[Array, " jump"] | None = None,
    explicit_steps: int = 512,
    stiff_rtol: float = 1e-9,
) -> Flow:
    """Follow dy/dt = vector_field(t, y, args) from `start` at `times[0]` through all `times` (increasing).

    **Arguments**

    - `rtol`, `atol`: tolerances of one step. A flow that leaves a symmetric plateau amplifies its errors as much as its
      initial asymmetry, so `atol` belongs well below that asymmetry.
    - `max_steps`: a flow that needs more has failed.
    - `solver`: `"dopri8"` (eighth order, the fastest at these tolerances), `"tsit5"`, the implicit `"kvaerno5"` for
      stiff flows, or `"auto"`: dopri8 for the first `explicit_steps` steps, then kvaerno5. A flow that is not stiff is
      done by then and pays only in compilation time.
    - `gradients`: `"both"` modes of differentiation; or `"reverse"` only, which replays the solve from checkpoints: two
      or three times faster and lighter in memory for long flows with many parameters.
    - `event`: the flow ends where `event(t, y, args)` crosses zero.
    - `jumps`: times at which the vector field is discontinuous (a task is switched): no step crosses them.
    - `stiff_rtol`: the relative tolerance of kvaerno5 within `"auto"`, unless `rtol` is larger: a method of fifth order
      would take very many steps at tolerances that suit dopri8. Its `atol` is scaled in the same proportion.

    Differentiable in `start`, `args`, `times` and whatever `vector_field` closes over.
    """
    if solver not in SOLVERS and solver != "auto":
        raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, auto, not {solver!r}.")
    if gradients not in SOLVES:
        raise ValueError(f"gradients must be one of {', '.join(SOLVES)}, not {gradients!r}.")
    times = jnp.asarray(times)
    field: Any = eqx.filter_closure_convert(vector_field, times[0], start, args)
    crossed: Any = None if event is None else eqx.filter_closure_convert(event, times[0], start, args)

    def solve(name: str, begin: Array, y: PyTree, tolerances: tuple[float, float], most: int) -> _Piece:
        problem = _Problem(field, crossed, times, jumps, begin, y, args)
        return SOLVES[gradients](problem, name=name, tolerances=tolerances, most=most)

    if solver == "auto":
        first = solve("dopri8", times[0], start, (rtol, atol), min(explicit_steps, max_steps))
        looser = max(stiff_rtol / rtol, 1.0)
        # a lane that is done begins at its end and takes no step
        begin = jnp.where(first.converged, times[-1], first.end_time)
        second = solve("kvaerno5", begin, first.end, (looser * rtol, looser * atol), max_steps)
        found, stiff_steps = _joined(first, second), jnp.where(first.converged, 0, second.steps)
    else:
        found = solve(solver, times[0], start, (rtol, atol), max_steps)
        stiff_steps = found.steps if solver == "kvaerno5" else jnp.zeros_like(found.steps)

    # Beyond an event: NaN, and nothing to differentiate. Beyond a failure: a NaN that depends on every input, because
    # the derivative of a constant NaN would be a plausible zero.
    inputs = jax.tree.leaves(eqx.filter((field, start, times, args), eqx.is_inexact_array))
    anything = jnp.where(found.converged, 1.0, jnp.nan) * sum(jnp.sum(leaf) for leaf in inputs)

    def mask(value: Array) -> Array:
        seen = found.reached.reshape(-1, *[1] * (value.ndim - 1))
        beyond = jnp.where(found.converged, jnp.full_like(anything, jnp.nan), anything)
        return jnp.where(seen, value, beyond.astype(value.dtype))

    return Flow(
        values=jax.tree.map(mask, found.values),
        converged=found.converged,
        steps=found.steps,
        event_time=jnp.where(found.happened, found.end_time, jnp.nan),
        reached=found.reached,
        end=found.end,
        end_time=found.end_time,
        stiff_steps=stiff_steps,
    )


def until_failure(good: Bool[Array, " time"]) -> Bool[Array, " time"]:
    """Mask of the times before the first failure.

    >>> until_failure(jnp.array([True, True, False, True])).tolist()
    [True, True, False, False]
    """
    return jnp.cumprod(good.astype(jnp.int32)) == 1


class _Problem(NamedTuple):
    """Everything that a solution may be differentiated with respect to."""

    field: Any
    event: Any
    times: Array
    jumps: Array | None
    begin: Array
    start: PyTree
    args: PyTree


class _Piece(NamedTuple):
    """The result of one solver."""

    values: PyTree
    reached: Array
    happened: Array
    converged: Array
    end: PyTree
    end_time: Array
    steps: Array


def _solve(
    adjoint: diffrax.AbstractAdjoint, problem: _Problem, *, name: str, tolerances: tuple[float, float], most: int
) -> _Piece:
    """Follow a flow by one solver from `begin` through those times that are later."""
    times, begin = problem.times, problem.begin
    # An exploding flow stops at the explosion, long before the maximal number of steps.
    shortest = SHORTEST * (times[-1] - times[0])
    controller = diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1], dtmin=shortest, force_dtmin=False)
    # The interpolation of the implicit solver is of low order: it steps exactly to the requested times.
    exact = times if name == "kvaerno5" else None
    if exact is not None or problem.jumps is not None:
        controller = diffrax.ClipStepSizeController(controller, step_ts=exact, jump_ts=problem.jumps)
    # The end alone needs no interpolation, and a program without it is a good deal smaller.
    end_alone = len(times) == 2 and problem.event is None
    end, between = diffrax.SubSaveAt(t1=True), diffrax.SubSaveAt(ts=jnp.maximum(times, begin))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(problem.field),
        SOLVERS[name](),
        begin,
        times[-1],
        # The controller corrects this first step; letting Diffrax choose it compiles two more copies of the field.
        1e-4 * (times[-1] - begin),
        problem.start,
        problem.args,
        saveat=diffrax.SaveAt(subs=[end] if end_alone else [end, between]),
        stepsize_controller=controller,
        adjoint=adjoint,
        event=None if problem.event is None else _event(problem.event),
        max_steps=most,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.ys is not None
    happened = solution.result == diffrax.RESULTS.event_occurred
    converged = happened | (solution.result == diffrax.RESULTS.successful)
    last = jax.tree.map(lambda v: v[0], solution.ys[0])
    values = jax.tree.map(lambda y, v: jnp.stack([y, v]), problem.start, last) if end_alone else solution.ys[1]
    finite = [jnp.all(jnp.isfinite(v).reshape(len(times), -1), axis=1) for v in jax.tree.leaves(values)]
    reached = jnp.all(jnp.stack(finite), axis=0)
    return _Piece(
        values=values,
        reached=reached & jnp.stack([jnp.asarray(True), converged]) if end_alone else reached,
        happened=happened,
        converged=converged,
        end=last,
        end_time=solution.ts[0][0],
        steps=jnp.asarray(solution.stats["num_steps"]),
    )


@eqx.filter_custom_jvp
def _solve_both(problem: _Problem, **settings: Any) -> _Piece:
    """A solution that is differentiable in both modes.

    Its value is computed in plain loops. Only a derivative takes the bounded ones, many scans inside each other, which cost
    most of the compilation.
    """
    return _solve(diffrax.ForwardMode(), problem, **settings)


@_solve_both.def_jvp
def _solve_both_jvp(primals: Any, tangents: Any, **settings: Any) -> Any:
    return eqx.filter_jvp(lambda problem: _solve(diffrax.DirectAdjoint(), problem, **settings), primals, tangents)


def _solve_reverse(problem: _Problem, **settings: Any) -> _Piece:
    return _solve(diffrax.RecursiveCheckpointAdjoint(), problem, **settings)


SOLVES = {"both": _solve_both, "reverse": _solve_reverse}


def _joined(first: _Piece, second: _Piece) -> _Piece:
    """Join one piece with another that begins where it ended; the second is ignored if the first was enough."""

    def take(one: Array, other: Array) -> Array:
        return jnp.where(first.converged, one, other)

    def merge(one: Array, other: Array) -> Array:
        own = (first.reached | first.converged).reshape(-1, *[1] * (one.ndim - 1))
        return jnp.where(own, one, other)

    return _Piece(
        values=jax.tree.map(merge, first.values, second.values),
        reached=first.reached | (second.reached & ~first.converged),
        happened=take(first.happened, second.happened),
        converged=first.converged | second.converged,
        end=jax.tree.map(take, first.end, second.end),
        end_time=take(first.end_time, second.end_time),
        steps=first.steps + take(jnp.zeros_like(second.steps), second.steps),
    )


def _event(cross: VectorField) -> diffrax.Event:
    root_finder = optimistix.Newton(1e-10, 1e-10, optimistix.rms_norm)
    return diffrax.Event(lambda t, y, args, **_: cross(t, y, args), root_finder=root_finder)
