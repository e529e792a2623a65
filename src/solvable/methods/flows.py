r"""Order-parameter flows: a few coupled ordinary differential equations, solved accurately and differentiably.

`integrate` is Diffrax with the choices that such flows want: an explicit high-order solver with adaptive steps, values
at the times asked for, failure as a value. One function serves both directions of differentiation: forward mode
(few parameters, many outputs) solves the tangent equation, reverse mode (schedules, many initial overlaps) replays the
solve from checkpoints.

>>> import jax.numpy as jnp
>>> decay = integrate(lambda t, y, rate: -rate * y, jnp.array(1.0), jnp.array([0.0, 1.0]), jnp.array(2.0))
>>> bool(decay.converged), round(float(decay.values[1]), 6)
(True, 0.135335)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Bool, Float, Int, PyTree

__all__ = ["Flow", "integrate"]

VectorField = Callable[[Float[Array, ""], PyTree, PyTree], PyTree]
SOLVERS = {"tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8, "kvaerno5": diffrax.Kvaerno5}


class Flow(eqx.Module):
    """A solved flow.

    `values` has the structure of the start, with time as the leading axis; what lies beyond the point that was reached
    (a failure, or an event) is NaN, in value and in gradient. `converged` says that every requested time, or the event,
    was reached within the tolerances. `event_time` is NaN unless the event happened.
    """

    values: PyTree[Float[Array, "time ..."]]
    converged: Bool[Array, ""]
    steps: Int[Array, ""]
    event_time: Float[Array, ""]


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
    event: Callable[[Float[Array, ""], PyTree, PyTree], Float[Array, ""]] | None = None,
) -> Flow:
    """Follow dy/dt = vector_field(t, y, args) from `start` at `times[0]` through all `times` (increasing).

    **Arguments**

    - `rtol`, `atol`: tolerances of one step. A flow that leaves a symmetric plateau amplifies its errors as much as its
      initial asymmetry, so `atol` belongs well below that asymmetry.
    - `max_steps`: a flow that needs more has failed.
    - `solver`: `"tsit5"`, `"dopri8"` (tight tolerances), or the implicit `"kvaerno5"` for stiff flows.
    - `event`: the flow ends where `event(t, y, args)` crosses zero.

    Differentiable once, forward or backward, in `start`, `args`, `times` and whatever `vector_field` closes over.
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, not {solver!r}.")
    times = jnp.asarray(times)
    field = eqx.filter_closure_convert(vector_field, times[0], start, args)
    cross = None if event is None else eqx.filter_closure_convert(event, times[0], start, args)
    moving, fixed = eqx.partition((field, cross, start, times, args), eqx.is_inexact_array)

    def solve(moving: PyTree, adjoint: diffrax.AbstractAdjoint) -> tuple[PyTree, PyTree]:
        field, cross, start, times, args = eqx.combine(moving, fixed)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            SOLVERS[solver](),
            times[0],
            times[-1],
            1e-4 * (times[-1] - times[0]),  # the controller corrects it; letting Diffrax choose costs two more copies of the field
            start,
            args,
            saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            adjoint=adjoint,
            event=None if cross is None else _event(cross),
            max_steps=max_steps,
            throw=False,
        )
        assert solution.ts is not None and solution.ys is not None
        happened = solution.result == diffrax.RESULTS.event_occurred
        converged = happened | (solution.result == diffrax.RESULTS.successful)
        return (solution.ys[0], solution.ts[1][0]), (converged, happened, solution.stats["num_accepted_steps"])

    run = _differentiable_both_ways(
        lambda moving: solve(moving, diffrax.RecursiveCheckpointAdjoint()),
        lambda moving: solve(moving, diffrax.ForwardMode())[0],
    )
    (values, end), (converged, happened, steps) = run(moving)
    finite = [jnp.all(jnp.isfinite(v).reshape(len(times), -1), axis=1) for v in jax.tree.leaves(values)]
    reached = jnp.all(jnp.stack(finite), axis=0)

    def mask(value: Float[Array, "time ..."]) -> Float[Array, "time ..."]:
        # past an event: no number, no gradient. Past a failure: NaN as a factor, so that the gradient is NaN as well.
        seen = reached.reshape(-1, *[1] * (value.ndim - 1))
        value = jnp.where(seen | ~converged, value, jnp.nan)
        return value * jnp.where(seen | converged, 1.0, jnp.nan).astype(value.dtype)

    return Flow(jax.tree.map(mask, values), converged, steps, jnp.where(happened, end, jnp.nan))


def _event(cross: VectorField) -> diffrax.Event:
    return diffrax.Event(
        lambda t, y, args, **_: cross(t, y, args), root_finder=optimistix.Newton(1e-10, 1e-10, optimistix.rms_norm)
    )


def _differentiable_both_ways(solve: Callable[[PyTree], tuple[PyTree, PyTree]], twin: Callable[[PyTree], PyTree]):
    """`solve(x) -> (y, status)`, reverse-mode differentiable, made forward-mode differentiable by `twin(x) -> y`.

    With J = dy/dx, the tangent is the second half of the solution of the triangular system
    [[1, 0], [-J, 1]] (dx, dy) = (dx, 0). JAX lets such a system have one solver forward (the tangent flow of `twin`) and
    another for its transpose (the replayed flow of `solve`). A second derivative is refused, not guessed.
    """

    @jax.custom_jvp
    def once(x: PyTree) -> PyTree:
        return x

    @once.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError("A flow can be differentiated once; its second derivative is not available.")

    @jax.custom_jvp
    def run(x: PyTree) -> tuple[PyTree, PyTree]:
        return solve(x)

    @run.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, dx = jax.tree.map(jnp.asarray, (primals[0], tangents[0]))
        y, status = run(x)

        # One vector for both halves: a transposed system wants every part of its right-hand side to be a tangent.
        pack, unpack_x = _packing(x)
        pack_y, unpack_y = _packing(y)
        size = sum(leaf.size for leaf in jax.tree.leaves(x))

        def matvec(both: Float[Array, " n"]) -> Float[Array, " n"]:  # only meets `once` when differentiated again
            return both + 0 * jnp.sum(pack(once(x)))

        def forward(_: Any, both: Float[Array, " n"]) -> Float[Array, " n"]:
            dy = jax.jvp(twin, (x,), (unpack_x(both[:size]),))[1]
            return jnp.concatenate([both[:size], both[size:] + pack_y(dy)])

        def backward(_: Any, both: Float[Array, " n"]) -> Float[Array, " n"]:
            (dx,) = jax.vjp(lambda x: solve(x)[0], x)[1](unpack_y(both[size:]))
            # a NaN asked of a value that was never reached is lost inside the solve: hand it on
            return jnp.concatenate([both[:size] + pack(dx) + 0 * jnp.sum(both[size:]), both[size:]])

        right = jnp.pad(pack(dx), (0, sum(leaf.size for leaf in jax.tree.leaves(y))))
        both = jax.lax.custom_linear_solve(matvec, right, solve=forward, transpose_solve=backward)
        dy = unpack_y(both[size:])
        return (y, status), (dy, jax.tree.map(lambda leaf: np.zeros(leaf.shape, jax.dtypes.float0), status))

    return run


def _packing(tree: PyTree) -> tuple[Callable[[PyTree], Float[Array, " n"]], Callable[[Float[Array, " n"]], PyTree]]:
    """Two functions: a tree of arrays of one precision as one vector, and back."""
    leaves, structure = jax.tree.flatten(tree)
    sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def pack(tree: PyTree) -> Float[Array, " n"]:
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    def unpack(vector: Float[Array, " n"]) -> PyTree:
        parts = jnp.split(vector, sizes)
        return jax.tree.unflatten(structure, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)])

    return pack, unpack
