r"""Optimal control of a flow: the schedule that minimises a cost of the final state.

A flow $\dot y = f(y, u(t))$ starts at a known state and runs for a horizon T. The controls u are constant on equal
intervals (unless one of them is a duration, which makes the intervals unequal). Each has a kind, its allowed set:

- `Simplex`: fractions of tasks, or of anything else that is mixed; bang-bang unless mixing pays;
- `Rate(fastest)`: a learning rate, between zero (or `slowest`) and `fastest`;
- `Difficulty(easy, hard)`: how hard the samples of an interval are;
- `Lengths(longest)`: the length of an episode, an integer. The control is the distribution of lengths, in which the flow
  is linear; the optimum is an integer again wherever one length has the smallest switching function;
- `Box(low, high)`: any other bounded number.

Pontryagin's principle needs the costates $\dot p = -(\partial_y f)^\top p$, $p(T) = \nabla h$, and the switching functions
$s = \partial_u\,(p\cdot f)$: for fractions of tasks, $f = \sum_t u_t f_t$ and $s_t = p\cdot f_t$, and all weight
belongs on the smallest. Here the flow is discretised first, by adaptive Runge–Kutta steps, and the costates are the
adjoint of the same steps: `slopes` are $\mathrm{d}h/\mathrm{d}u$ per unit of time, averaged over each interval.

All these numbers are computed at two different orders (`methods.flows.adjoint`), and `error` is their difference, relative
to one plus the size of the number. The steps are refined until it is at most `accuracy`; if refinement or `max_steps` does
not suffice (a stiff or exploding flow), the numbers are NaN and `converged` is false, for any intervals, horizon and
controls.

Two numbers measure how far a schedule is from satisfying the principle; both vanish exactly where it is satisfied. The
Frank–Wolfe gap,

    gap = ∫ [ u·s - min_{v allowed} v·s ] dt,

bounds, to first order, the gain of any small change of the schedule. The residual is the length of the projected step, the
root mean square over time of u - P(u - s). Neither can detect a better, distant schedule: start from several (`search`).

>>> import jax.numpy as jnp
>>> wait_then_push = optimise(  # reach 1 at time 2: x' = u, cost (x - 1)², 0 ≤ u ≤ 1
...     lambda x, u: u["push"], lambda x: (x - 1.0) ** 2, jnp.array(0.0),
...     {"push": jnp.zeros(20)}, {"push": Box(0.0, 1.0)}, 2.0,
... )
>>> bool(wait_then_push.converged), round(float(wait_then_push.path[-1]), 4)
(True, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from ...errors import InvalidValue
from .adjoint import Controls, Cost, Drift, Number, Visit, arrive, follow, visitor

__all__ = [
    "Box", "Difficulty", "Lengths", "Protocol", "Rate", "Simplex", "arrive", "best", "evaluate", "follow", "on_grid", "optimise",
    "search", "switching",
]  # fmt: skip

_ARMIJO, _MEMORY, _SHORTEST, _ROUNDING = 1e-4, 8, 1e-10, 1e-14


class Simplex(eqx.Module):
    """Controls whose last axis is a distribution: fractions of tasks, non-negative, with sum one."""

    def project(self, u: Float[Array, "*n tasks"]) -> Float[Array, "*n tasks"]:
        """The nearest point of the simplex.

        >>> [round(float(x), 6) for x in Simplex().project(jnp.array([0.9, 0.5, -2.0]))]
        [0.7, 0.3, 0.0]
        """
        # θ is the largest of (Σ of the entries not below one of them - 1) / their number
        above = (u[..., None, :] >= u[..., :, None]).astype(u.dtype)
        level = (jnp.sum(above * u[..., None, :], axis=-1) - 1) / jnp.sum(above, axis=-1)
        return jnp.maximum(u - jnp.max(level, axis=-1, keepdims=True), 0.0)

    def mirror(self, u: Array, step: Array) -> Array:
        """The entropic step u·exp(-step), normalised."""
        return jax.nn.softmax(jnp.log(jnp.maximum(u, 1e-12)) - step, axis=-1)

    @staticmethod
    def mix(parts: PyTree, u: Float[Array, " tasks"]) -> PyTree:
        """Σ_t u_t f_t of drifts with a leading axis of tasks."""
        return jax.tree.map(lambda part: jnp.tensordot(u, part, 1), parts)

    def gap(self, u: Array, slope: Array) -> Array:
        """u·s - min_t s_t at every time."""
        return jnp.sum(u * slope, axis=-1) - jnp.min(slope, axis=-1)

    @property
    def scale(self) -> float:
        return 1.0

    def check(self, name: str, u: np.ndarray) -> None:
        """Raise `InvalidValue` for controls that are not on the simplex."""
        if u.ndim < 2:
            raise InvalidValue(
                f"{name} has {u.ndim} dimensions; fractions have two: a row of tasks for every interval."
            )
        off = np.maximum(np.abs(u.sum(axis=-1) - 1), -u.min(axis=-1))
        worst = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, np.inf))), off.shape)
        if not off[worst] <= 1e-9:
            row = ", ".join(f"{x:g}" for x in u[worst])
            raise InvalidValue(
                f"{name} in interval {worst[-1]} is ({row}); fractions must be non-negative and sum to one."
            )


class Lengths(Simplex):
    """The length of an episode, 1 to `longest`: controls are distributions over these integers.

    >>> kind = Lengths(4)
    >>> float(kind.mean(kind.only(3, intervals=2))[1])
    3.0
    """

    longest: int = eqx.field(static=True)

    @property
    def values(self) -> Float[Array, " lengths"]:
        return jnp.arange(1.0, self.longest + 1)

    def only(self, length: int, intervals: int) -> Float[Array, "intervals lengths"]:
        """The schedule in which every episode has this length."""
        return jnp.zeros((intervals, self.longest)).at[:, length - 1].set(1.0)

    def mean(self, u: Float[Array, "*n lengths"]) -> Float[Array, "*n"]:
        """The mean length of every interval."""
        return u @ self.values

    def check(self, name: str, u: np.ndarray) -> None:
        if u.shape[-1] != self.longest:
            raise InvalidValue(f"{name} has {u.shape[-1]} columns; it must have {self.longest}, one for each length.")
        super().check(name, u)


class Box(eqx.Module):
    """Controls between two bounds; where these are equal (inside a program), the control is fixed."""

    low: Number
    high: Number

    def __check_init__(self) -> None:
        if any(isinstance(x, Tracer) for x in (self.low, self.high)):
            return
        if not (math.isfinite(float(self.low)) and float(self.low) < float(self.high) < math.inf):
            raise InvalidValue(
                f"a box from {float(self.low):g} to {float(self.high):g} is empty or unbounded; both must be finite, low < high."
            )

    def project(self, u: Array) -> Array:
        """The nearest point of the box."""
        return jnp.clip(u, self.low, self.high)

    def mirror(self, u: Array, step: Array) -> Array:
        """The entropic step of a box: the logit of the position between the bounds falls by `step`."""
        width = jnp.asarray(self.high - self.low)
        free = jnp.where(width > 0, width, 1.0)
        place = jnp.clip((u - self.low) / free, 1e-9, 1 - 1e-9)
        return self.low + width * jax.nn.sigmoid(jnp.log(place / (1 - place)) - step / free)

    def gap(self, u: Array, slope: Array) -> Array:
        """(u - the better bound)·s at every time."""
        gain = slope * (u - jnp.where(slope > 0, self.low, self.high))
        return jnp.sum(gain, axis=tuple(range(1, gain.ndim)))

    @property
    def scale(self) -> Any:
        return (self.high - self.low) ** 2

    def check(self, name: str, u: np.ndarray) -> None:
        """Raise `InvalidValue` for controls outside the box."""
        low, high = (float(x) for x in (self.low, self.high))
        outside = ~((u >= low) & (u <= high))
        if outside.any():
            first = np.argwhere(outside)[0]
            raise InvalidValue(
                f"{name} in interval {first[0]} is {u[tuple(first)]:g}, outside its range [{low:g}, {high:g}]."
            )


class Rate(Box):
    """A learning rate, or a factor of it, between `slowest` and `fastest`."""

    def __init__(self, fastest: Number, slowest: Number = 0.0) -> None:
        self.low, self.high = slowest, fastest


class Difficulty(Box):
    """How hard samples are: any difficulty between easy and hard, in either order."""

    def __init__(self, easy: Number, hard: Number) -> None:
        self.low, self.high = jnp.minimum(easy, hard), jnp.maximum(easy, hard)


Sets = Mapping[str, Simplex | Box]


class Protocol(eqx.Module):
    """A schedule, its cost and how close it is to optimal.

    `path` and `costates` have time as the leading axis, one entry more than the controls have intervals; `slopes` are
    the switching functions, averaged over each interval; `gap`, `residual` (one per control) and `error`, the estimated
    error of all these numbers, are explained in the module's docstring. `converged` means that the gap is at most the
    tolerance and the error at most the accuracy. A schedule that is not optimal keeps its controls, path and cost, which
    are valid for that schedule; if its flow could not be integrated accurately, values are NaN from there on.
    """

    controls: Controls
    cost: Float[Array, ""]
    path: PyTree
    costates: PyTree
    slopes: Controls
    gap: Float[Array, ""]
    residual: dict[str, Float[Array, ""]]
    error: Float[Array, ""]
    evaluations: Int[Array, ""]
    converged: Bool[Array, ""]


def evaluate(
    drift: Drift,
    cost: Cost,
    start: PyTree,
    controls: Controls,
    sets: Sets,
    horizon: Number,
    *,
    accuracy: Number = 1e-8,
    max_steps: int = 4096,
    tolerance: Number = 1e-6,
) -> Protocol:
    """Evaluate a given schedule: its cost, costates, switching functions, gap and residual.

    Differentiable in both modes, with the schedule and the steps held fixed.
    """
    _check(controls, sets)
    visit, unravel = visitor(drift, cost, start, horizon, accuracy=accuracy, max_steps=max_steps)
    return _protocol(visit(controls, jnp.asarray(0)), sets, horizon, unravel, accuracy, tolerance, jnp.asarray(1))


def optimise(
    drift: Drift,
    cost: Cost,
    start: PyTree,
    controls: Controls,
    sets: Sets,
    horizon: Number,
    *,
    accuracy: Number = 1e-8,
    max_steps: int = 4096,
    method: Literal["projected", "mirror"] = "projected",
    iterations: int = 500,
    tolerance: Number = 1e-6,
    damping: float = 0.5,
) -> Protocol:
    """Improve a schedule until its Frank–Wolfe gap is at most `tolerance`, or `iterations` evaluations are spent.

    **Arguments**

    - `drift(state, controls)`: the right-hand side, `controls` being one interval's row of every control.
    - `cost(state)`: of the final state.
    - `controls`: the start, `{name: array with intervals first}`; `sets` gives the allowed set of each, and a control
      without a set is held fixed. For several starts use `search`.
    - `accuracy`: estimated error of every number in the `Protocol`, relative to one plus its size. A schedule whose flow
      does not reach it is rejected.
    - `max_steps`: a flow that needs more over the whole horizon, plus two for each interval, has failed.
    - `method`: `"projected"` gradient with the step of Barzilai and Borwein and backtracking (Birgin, Martínez and
      Raydan 2000); or `"mirror"` descent, u ← (1 - damping) u + damping · (its entropic step), the step halved when
      the cost would rise.

    The search itself is not differentiated: by the envelope theorem the gradient of the optimal cost is that of the cost
    at a fixed schedule. `drift` and `cost` may close over constants only.
    """
    if method not in ("projected", "mirror"):
        raise InvalidValue(f"method = {method!r} is not one of 'projected', 'mirror'.")
    if not 0 < damping <= 1:
        raise InvalidValue(
            f"damping = {damping!r} is not in (0, 1]: it is the fraction of a mirror step that is taken."
        )
    _check(controls, sets)
    visit, unravel = visitor(drift, cost, start, horizon, accuracy=accuracy, max_steps=max_steps)
    names, memory = list(sets), _MEMORY if method == "projected" else 1
    interval = jnp.asarray(horizon) / len(controls[names[0]])

    def step(at: Visit, pace: Array, part: Array) -> Controls:
        """The next schedule to try: part of the way to the projected or mirrored step."""
        out = dict(at.controls)
        for name in names:
            move = pace * sets[name].scale * at.slopes[name]
            u = at.controls[name]
            full = sets[name].mirror(u, move) if method == "mirror" else sets[name].project(u - move)
            out[name] = u + part * (full - u)
        return out

    def inner(a: Controls, b: Controls) -> Array:
        return interval * sum(jnp.sum(a[n] * b[n]) for n in names)

    def body(s: _Search) -> _Search:
        new = visit(s.trial, s.level)
        moved = {n: new.controls[n] - s.now.controls[n] for n in names}
        promised = -_ARMIJO * jnp.minimum(inner(s.now.slopes, moved), 0.0)
        # before the first visit every cost is infinite, and any finite one is accepted
        highest = jnp.max(s.history)
        good = new.cost <= highest - jnp.where(s.number == 0, 0.0, promised - _ROUNDING * jnp.abs(highest))
        now = _choose(good, new, s.now)
        better = new.cost < s.best.cost
        now_best = _choose(better, new, s.best)
        if method == "projected":
            turned = {n: (new.slopes[n] - s.now.slopes[n]) for n in names}
            sizes = {n: jnp.asarray(sets[n].scale) for n in names}  # a fixed control has none and does not move
            length = inner({n: moved[n] / jnp.where(sizes[n] > 0, sizes[n], 1.0) for n in names}, moved)
            bend = inner(moved, turned)
            curved = jnp.where(bend > 0, length / jnp.where(bend > 0, bend, 1.0), 10.0 * s.pace)
            pace = jnp.where(good & (s.number > 0), curved, s.pace)
            part = jnp.where(good, 1.0, s.part / 3)
        else:
            pace = jnp.where(good, 1.5, 0.5) * s.pace
            part = s.part
        steepest = jnp.max(
            jnp.stack([jnp.max(jnp.abs(new.slopes[n])) * jnp.sqrt(jnp.asarray(sets[n].scale)) for n in names])
        )
        first = jnp.where(steepest > 0, 1 / jnp.where(steepest > 0, steepest, 1.0), 1.0)
        first = jnp.where(s.number == 0, first, s.first)
        pace = jnp.clip(jnp.where(s.number == 0, first, pace), 1e-6 * first, 1e8 * first)
        history = jnp.where(good, jnp.roll(s.history, 1).at[0].set(new.cost), s.history)
        # infinities of the start disappear with the first visit
        history = jnp.where((s.number == 0) & good, new.cost, history)
        gap = _gap(now, sets, interval)
        done = (gap <= tolerance) & (now.cost <= now_best.cost + tolerance)
        stuck = (part < _SHORTEST) | (pace < 1e-5 * first) & (method == "mirror")
        over = done | stuck | ~good & (s.number == 0)
        return _Search(
            s.number + 1, step(now, pace, part), now, now_best, new.level, first, pace, part, history, done, over
        )

    def unknown(x: Any) -> Array:
        return jnp.full(x.shape, jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0, x.dtype)

    level = jnp.asarray(0)
    nowhere = jax.tree.map(unknown, jax.eval_shape(visit, controls, level))
    nowhere = nowhere._replace(cost=jnp.full_like(nowhere.cost, jnp.inf), controls=controls)
    part = jnp.asarray(damping if method == "mirror" else 1.0)
    one, no = jnp.asarray(1.0), jnp.asarray(False)
    search = _Search(
        jnp.asarray(0), controls, nowhere, nowhere, level, one, one, part, jnp.full(memory, jnp.inf), no, no
    )
    last = jax.lax.while_loop(lambda s: ~s.over & (s.number < iterations), body, search)
    found = _choose(last.done, last.now, last.best)
    return _protocol(found, sets, horizon, unravel, accuracy, tolerance, last.number)


def search(
    drift: Drift,
    cost: Cost,
    start: PyTree,
    starts: Sequence[Controls],
    sets: Sets,
    horizon: Number,
    **settings: Any,
) -> Protocol:
    """Run `optimise` from several schedules side by side and return the `best` result.

    >>> two_wells = search(
    ...     lambda x, u: u["push"], lambda x: (x**2 - 1.0) ** 2 + 0.3 * x, jnp.array(0.0),
    ...     [{"push": jnp.full(10, level)} for level in (0.5, -0.5)], {"push": Box(-1.0, 1.0)}, 2.0,
    ... )
    >>> bool(two_wells.path[-1] < 0)
    True
    """
    for controls in starts:
        _check(controls, sets)

    def from_here(controls: Controls) -> Protocol:
        return optimise(drift, cost, start, controls, sets, horizon, **settings)

    return best(jax.vmap(from_here)(jax.tree.map(lambda *rows: jnp.stack(rows), *starts)))


def best(protocols: Protocol) -> Protocol:
    """The cheapest converged protocol among a leading axis of starts (from `vmap`); if none converged, the cheapest."""
    cost = jnp.where(jnp.isfinite(protocols.cost), protocols.cost, jnp.inf)
    unsettled = jnp.any(protocols.converged) & ~protocols.converged
    chosen = jnp.argmin(jnp.where(unsettled, jnp.inf, cost))
    return jax.tree.map(lambda x: x[chosen], protocols)


def switching(drift: Drift, protocol: Protocol) -> Controls:
    """The switching functions s = ∂_u (p·f) at the beginning of every interval: `slopes` before averaging."""

    def at(y: PyTree, p: PyTree, u: dict[str, Array]) -> dict[str, Array]:
        _, pull = jax.vjp(lambda v: drift(y, v), u)
        return pull(p)[0]

    begin = jax.tree.map(lambda x: x[:-1], (protocol.path, protocol.costates))
    return jax.vmap(at)(begin[0], begin[1], protocol.controls)


def on_grid(edges: Any, values: Any, horizon: float, intervals: int) -> np.ndarray:
    """A piecewise constant schedule with its own edges, averaged over equal intervals: a row for each of them.

    >>> on_grid([0.0, 1.5, 4.0], [1.0, 0.0], horizon=4.0, intervals=4).tolist()
    [1.0, 0.5, 0.0, 0.0]
    """
    edges, values = np.asarray(edges, float), np.asarray(values, float)
    if edges.ndim != 1 or len(edges) < 2 or not np.all(np.diff(edges) > 0):
        raise InvalidValue("the edges of a schedule must be at least two increasing times.")
    if values.ndim < 1 or len(values) != len(edges) - 1:
        raise InvalidValue(
            f"a schedule with {len(edges)} edges needs {len(edges) - 1} values, not {len(np.atleast_1d(values))}."
        )
    if edges[0] > 0 or edges[-1] < horizon:
        raise InvalidValue(
            f"the schedule runs from {edges[0]:g} to {edges[-1]:g} and does not cover the horizon [0, {horizon:g}]."
        )
    grid = np.linspace(0.0, horizon, intervals + 1)
    shared = np.minimum(grid[1:, None], edges[None, 1:]) - np.maximum(grid[:-1, None], edges[None, :-1])
    weights = np.maximum(shared, 0.0) * (intervals / horizon)
    # rounding must not carry an average beyond the averaged values
    return np.clip(np.tensordot(weights, values, 1), values.min(axis=0), values.max(axis=0))


# --- parts of the search
# -----------------------------------------------------------------------------------------------


class _Search(NamedTuple):
    number: Array
    trial: Controls
    now: Visit
    best: Visit
    level: Array
    first: Array
    pace: Array
    part: Array
    history: Array
    done: Array
    over: Array


def _gap(at: Visit, sets: Sets, interval: Array) -> Array:
    return interval * sum(jnp.sum(s.gap(at.controls[n], at.slopes[n])) for n, s in sets.items())


def _protocol(
    at: Visit,
    sets: Sets,
    horizon: Number,
    unravel: Callable[[Array], PyTree],
    accuracy: Number,
    tolerance: Number,
    number: Array,
) -> Protocol:
    gap = _gap(at, sets, jnp.asarray(horizon) / len(next(iter(at.controls.values()))))
    lengths = {n: at.controls[n] - s.project(at.controls[n] - at.slopes[n]) for n, s in sets.items()}
    return Protocol(
        controls=at.controls,
        cost=jnp.where(jnp.isfinite(at.cost), at.cost, jnp.nan),
        path=jax.vmap(unravel)(at.path),
        costates=jax.vmap(unravel)(at.costates),
        slopes=at.slopes,
        gap=gap,
        residual={n: jnp.sqrt(jnp.sum(x**2) / x.shape[0]) for n, x in lengths.items()},
        error=jnp.where(at.error < jnp.inf, at.error, jnp.nan),
        evaluations=number,
        converged=(gap <= tolerance) & (at.error <= accuracy),
    )


def _choose(condition: Array, one: Visit, other: Visit) -> Visit:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def _check(controls: Controls, sets: Sets) -> None:
    unknown = [name for name in sets if name not in controls]
    if unknown or not sets:
        what = f"no control {unknown[0]!r} among {', '.join(controls)}" if unknown else "no control to optimise"
        raise InvalidValue(f"there is {what}; every set must belong to a control.")
    lengths = {n: len(u) for n, u in controls.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{n} {length}" for n, length in lengths.items())
        raise InvalidValue(f"the controls do not cover the same horizon: intervals of {shown}.")
    for name, allowed in sets.items():
        if not any(isinstance(x, Tracer) for x in (controls[name], *jax.tree.leaves(allowed))):
            allowed.check(name, np.asarray(controls[name]))
