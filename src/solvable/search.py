"""Find the optimum or the special points of a theory, with gradients and brackets instead of grid searches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .errors import InvalidValue, SolvableError, UnknownName, nearest
from .model import Model


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best point found, the value there, and the largest entry of the scaled gradient."""

    model: Model
    controls: dict[str, float]
    value: float
    gradient: float
    at_bound: bool

    def __repr__(self) -> str:
        at = ", ".join(f"{n} = {v:.6g}" for n, v in self.controls.items())
        edge = ", at the edge of the range searched" if self.at_bound else ""
        return f"{self.value:.8g} at {at} (gradient {self.gradient:.1e}{edge})"


def optimise(
    model: Model,
    controls: str | Sequence[str],
    *,
    minimise: str | None = None,
    maximise: str | None = None,
    between: dict[str, tuple[float, float]] | tuple[float, float] | None = None,
    starts: int = 33,
    numerics: Any = None,
) -> Optimum:
    """Find the values of some controls that minimise (or maximise) an observable of the theory.

    A coarse scan (one batch) picks the basin; a search with the theory's gradient refines it, in the control's own scale
    (logarithmic if declared so). The bounds are the control's typical range unless given.

    >>> import solvable as sv
    >>> best = optimise(sv.Perceptron(loss="square", teacher="linear", noise=0.5), "penalty", minimise="test_loss")
    >>> round(best.controls["penalty"], 5)  # ridge regression is best at the noise itself
    0.5
    """
    from scipy.optimize import minimize

    names = [controls] if isinstance(controls, str) else list(controls)
    if (minimise is None) == (maximise is None):
        raise InvalidValue("optimise takes exactly one of `minimise` and `maximise`.")
    observable, sign = (minimise, 1.0) if minimise is not None else (maximise, -1.0)
    _check(model, names, observable)
    axes = [_Axis.of(model, n, between) for n in names]

    settings = type(model).numerics.updated(numerics)
    scan = _latin(starts if len(names) == 1 else starts * 4, len(names))
    swept = {n: a.value(scan[:, i]) for i, (n, a) in enumerate(zip(names, axes, strict=True))}
    heights = sign * np.asarray(model.replace(**swept).theory(numerics)[str(observable)])
    if not np.isfinite(heights).any():
        raise SolvableError(f"the theory of {model.id} converged nowhere in the range searched.")
    order = np.argsort(np.where(np.isfinite(heights), heights, np.inf))

    def objective(u):
        value, slope = _height_and_slope(model, jnp.asarray(u), tuple(names), tuple(axes), str(observable), settings)
        if not np.isfinite(value):
            return 1e300, np.zeros(len(names))
        return sign * float(value), sign * np.asarray(slope)

    best: Any = None
    for start in scan[order[: 1 if len(names) == 1 else 3]]:
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(names),
                         options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200})  # fmt: skip
        if best is None or found.fun < best.fun:
            best = found
    u = np.clip(best.x, 0.0, 1.0)
    slope = objective(u)[1]
    edge = (u <= 0) | (u >= 1)
    values = {n: float(a.value(jnp.asarray(u[i]))) for i, (n, a) in enumerate(zip(names, axes, strict=True))}
    free = float(np.max(np.abs(slope[~edge]))) if (~edge).any() else 0.0
    return Optimum(model.replace(**values), values, sign * float(best.fun), free, bool(edge.any()))


@eqx.filter_jit
def _height_and_slope(model: Model, u: Any, names: tuple, axes: tuple, observable: str, numerics: Any):
    """An observable and its gradient at a point of the unit cube; forward mode, since controls are few."""

    def height(u: Any) -> Any:
        at = {n: a.value(u[i]) for i, (n, a) in enumerate(zip(names, axes, strict=True))}
        value = model.with_values(at).theory(numerics)[observable]
        return value, value

    slope, value = jax.jacfwd(height, has_aux=True)(u)
    return value, slope


def locate(
    model: Model,
    *,
    along: str,
    what: str = "transition",
    between: tuple[float, float] | None = None,
    points: int = 129,
    tolerance: float = 1e-10,
    numerics: Any = None,
) -> float:
    """Find where something happens along a control; NaN if it does not happen in the range searched.

    `what` is one of
    - `"transition"`: the model's own transition (`Model.transition`), or where two branches exchange lowest free energy;
    - `"spinodal"`: where the number of branches changes;
    - `"peak of OBSERVABLE"`, `"dip of OBSERVABLE"`: an interior extremum;
    - `"OBSERVABLE = VALUE"`: a level crossing; `"OBSERVABLE = OTHER"`: where two observables cross.

    >>> import solvable as sv
    >>> model = sv.Perceptron(loss="square", teacher="linear", noise=0.2, penalty=1e-6)
    >>> round(locate(model, along="samples", what="peak of test_loss", between=(0.5, 2)), 3)  # the interpolation peak
    1.0
    """
    from scipy.optimize import minimize_scalar

    _check(model, [along], None)
    axis = _Axis.of(model, along, between)
    grid = np.linspace(0.0, 1.0, points)

    def theory(u: Any, name: str) -> np.ndarray:
        return np.asarray(model.with_values({along: axis.value(jnp.asarray(u))}).theory(numerics)[name])

    kind, _, rest = what.partition(" of ")
    if kind in ("peak", "dip") and rest:
        _check(model, [], rest)
        sign = -1.0 if kind == "peak" else 1.0
        heights = sign * theory(grid, rest)
        k = int(np.nanargmin(heights)) if np.isfinite(heights).any() else 0
        if k in (0, points - 1):
            return float("nan")
        found = minimize_scalar(lambda u: float(sign * theory(u, rest)), bounds=(grid[k - 1], grid[k + 1]),
                                method="bounded", options={"xatol": tolerance})  # fmt: skip
        return float(axis.value(jnp.asarray(found.x)))

    if "=" in what:
        name, _, level = (t.strip() for t in what.partition("="))
        _check(model, [], name)
        try:
            target = float(level)
        except ValueError:
            _check(model, [], level)
            sign = lambda u: theory(u, name) - theory(u, level)  # noqa: E731
        else:
            sign = lambda u: theory(u, name) - target  # noqa: E731
    elif what == "transition":
        sign = lambda u: _transition_sign(model, along, axis, u, numerics)  # noqa: E731
    elif what == "spinodal":
        sign = lambda u: _number_of_branches(model, along, axis, u, numerics)  # noqa: E731
        counts = sign(grid)
        changes = np.flatnonzero(np.diff(counts) != 0)
        if not len(changes):
            return float("nan")
        low, high = grid[changes[0]], grid[changes[0] + 1]
        before = counts[changes[0]]
        while high - low > tolerance:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if sign(np.array([middle]))[0] == before else (low, middle)
        return float(axis.value(jnp.asarray(0.5 * (low + high))))
    else:
        raise InvalidValue(
            f"what = {what!r} is not 'transition', 'spinodal', 'peak of X', 'dip of X' or 'X = value', X an observable."
        )
    heights = np.asarray(sign(grid), float)
    finite = np.flatnonzero(np.isfinite(heights))
    for a, b in zip(finite[:-1], finite[1:], strict=True):
        if heights[a] == 0:
            return float(axis.value(jnp.asarray(grid[a])))
        if heights[a] * heights[b] < 0:
            root = _root(lambda u: float(np.asarray(sign(np.array([u])))[0]), float(grid[a]), float(grid[b]), tolerance)
            if np.isfinite(root):
                return float(axis.value(jnp.asarray(root)))
    return float("nan")


def _root(height: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A root between two points of opposite sign, around places without a value (a theory that did not converge there).

    NaN if such places leave an interval wider than 1e-4 of the range.
    """
    from scipy.optimize import brentq

    try:
        root: Any = brentq(height, low, high, xtol=tolerance)  # raises a ValueError where there is no value
        return float(root)
    except ValueError:
        rising = height(high) > 0
    while high - low > tolerance:
        for share in (0.5, 0.4, 0.6, 0.25, 0.75, 0.1, 0.9):
            at = low + share * (high - low)
            if np.isfinite(value := height(at)):
                low, high = (low, at) if (value > 0) == rising else (at, high)
                break
        else:
            break
    return 0.5 * (low + high) if high - low <= max(tolerance, 1e-4) else float("nan")


def _transition_sign(model: Model, along: str, axis: _Axis, u: np.ndarray, numerics: Any) -> np.ndarray:
    moved = model.with_values({along: axis.value(jnp.asarray(u))})
    if type(model).transition is not Model.transition:
        return np.asarray(moved.transition(along))
    out = moved.branches(numerics)
    if "free_energy" not in out:
        raise SolvableError(f"{model.id} declares no transition and its branches have no free energy.")
    energy = np.asarray(out["free_energy"])
    return energy[..., 0] - energy[..., 1] if energy.shape[-1] > 1 else np.full(energy.shape[:-1], np.nan)


def _number_of_branches(model: Model, along: str, axis: _Axis, u: np.ndarray, numerics: Any) -> np.ndarray:
    out = model.with_values({along: axis.value(jnp.asarray(u))}).branches(numerics)
    first = np.asarray(next(iter(out.values.values())))
    extra = tuple(range(2, first.ndim))
    return np.isfinite(first).all(axis=extra).sum(axis=1) if extra else np.isfinite(first).sum(axis=1)


@dataclasses.dataclass(frozen=True)
class _Axis:
    """A control on [0, 1], in its own scale."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, model: Model, name: str, between: Any) -> _Axis:
        declaration = model.fields()[name]
        bounds = between.get(name) if isinstance(between, dict) else between
        low, high = bounds or declaration.span
        for end in (low, high):
            model.replace(**{name: end})
        if not low < high:
            raise InvalidValue(
                f"{name} = {low:g}:{high:g} is not an interval: its lower end must be below its upper end."
            )
        return cls(low, high, declaration.scale == "log" and low > 0)

    def value(self, u: Any) -> Any:
        if self.log:
            return jnp.clip(jnp.exp(np.log(self.low) + u * np.log(self.high / self.low)), self.low, self.high)
        return self.low + u * (self.high - self.low)


def _check(model: Model, names: Sequence[str], observable: str | None) -> None:
    if model.shape != ():
        raise InvalidValue(f"a search needs a model with scalar controls, but they have shape {model.shape}.")
    model.check_names(names)
    for name in names:
        if model.fields()[name].kind != "control":
            raise InvalidValue(f"{name!r} is a {model.fields()[name].kind} field: only controls can be varied here.")
    known = [n for n, o in model.observables().items() if o.predicted and not o.dims]
    if observable is not None and observable not in known:
        raise UnknownName(f"{model.id} predicts no scalar observable {observable!r}; {nearest(observable, known)}")


def _latin(number: int, dims: int) -> np.ndarray:
    """Points that cover the unit cube evenly: a grid in one dimension, a Kronecker sequence in more."""
    if dims == 1:
        return np.linspace(0.0, 1.0, number)[:, None]
    phi = 2.0
    for _ in range(50):
        phi = (1 + phi) ** (1 / (dims + 1))
    steps = phi ** -np.arange(1, dims + 1)
    return (0.5 + np.arange(number)[:, None] * steps[None, :]) % 1.0
