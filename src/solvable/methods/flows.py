r"""Order-parameter flows: a few coupled ordinary differential equations, solved accurately and differentiably.

`integrate` is Diffrax with the choices that such flows want: an explicit high-order solver with adaptive steps, values
at the times asked for, both directions of differentiation, and failure as a value: NaN beyond the point that was reached,
in its own lane of a `vmap` only.

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
import optimistix
from jaxtyping import Array, Bool, Float, Int, PyTree

__all__ = ["Flow", "integrate"]

VectorField = Callable[[Float[Array, ""], PyTree, PyTree], PyTree]
SOLVERS = {"tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8, "kvaerno5": diffrax.Kvaerno5}
ADJOINTS = {"both": diffrax.DirectAdjoint, "reverse": diffrax.RecursiveCheckpointAdjoint}


class Flow(eqx.Module):
    """A solved flow.

    `values` has the structure of the start, with time as the leading axis; what lies beyond the point that was reached
    (a failure, or an event) is NaN, in value and in gradient. `converged` says that every requested time, or the event,
    was reached within the tolerances; `steps` counts accepted and rejected steps. `event_time` is NaN unless the event happened.
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
    gradients: str = "both",
    event: Callable[[Float[Array, ""], PyTree, PyTree], Float[Array, ""]] | None = None,
) -> Flow:
    """Follow dy/dt = vector_field(t, y, args) from `start` at `times[0]` through all `times` (increasing).

    **Arguments**

    - `rtol`, `atol`: tolerances of one step. A flow that leaves a symmetric plateau amplifies its errors as much as its
      initial asymmetry, so `atol` belongs well below that asymmetry.
    - `max_steps`: a flow that needs more has failed.
    - `solver`: `"dopri8"` (eighth order, the quickest at these tolerances), `"tsit5"`, or the implicit `"kvaerno5"` for
      stiff flows.
    - `gradients`: `"both"` directions of differentiation; or `"reverse"` only, which replays the solve from checkpoints:
      two or three times quicker and lighter in memory, for long flows with many parameters.
    - `event`: the flow ends where `event(t, y, args)` crosses zero.

    Differentiable in `start`, `args`, `times` and whatever `vector_field` closes over.
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, not {solver!r}.")
    if gradients not in ADJOINTS:
        raise ValueError(f"gradients must be one of {', '.join(ADJOINTS)}, not {gradients!r}.")
    times = jnp.asarray(times)
    field: Any = eqx.filter_closure_convert(vector_field, times[0], start, args)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        SOLVERS[solver](),
        times[0],
        times[-1],
        # The controller corrects this first step; letting Diffrax choose it compiles two more copies of the field.
        1e-4 * (times[-1] - times[0]),
        start,
        args,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        adjoint=ADJOINTS[gradients](),
        event=None if event is None else _event(event),
        max_steps=max_steps,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.ys is not None
    happened = solution.result == diffrax.RESULTS.event_occurred
    converged = happened | (solution.result == diffrax.RESULTS.successful)
    finite = [jnp.all(jnp.isfinite(v).reshape(len(times), -1), axis=1) for v in jax.tree.leaves(solution.ys[0])]
    reached = jnp.all(jnp.stack(finite), axis=0)

    # Beyond an event: no number, and nothing to differentiate. Beyond a failure: a NaN that depends on everything that
    # went in, because the derivative of a constant NaN would be a plausible zero.
    inputs = jax.tree.leaves(eqx.filter((field, start, times, args), eqx.is_inexact_array))
    anything = jnp.where(converged, 1.0, jnp.nan) * sum(jnp.sum(leaf) for leaf in inputs)

    def mask(value: Array) -> Array:
        seen = reached.reshape(-1, *[1] * (value.ndim - 1))
        beyond = jnp.where(converged, jnp.full_like(anything, jnp.nan), anything)
        return jnp.where(seen, value, beyond.astype(value.dtype))

    return Flow(
        values=jax.tree.map(mask, solution.ys[0]),
        converged=converged,
        steps=jnp.asarray(solution.stats["num_steps"]),
        event_time=jnp.where(happened, solution.ts[1][0], jnp.nan),
    )


def _event(cross: VectorField) -> diffrax.Event:
    root_finder = optimistix.Newton(1e-10, 1e-10, optimistix.rms_norm)
    return diffrax.Event(lambda t, y, args, **_: cross(t, y, args), root_finder=root_finder)
