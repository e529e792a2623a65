"""The panels of a figure: one observable of a study as curves along a dimension, or as a heat map over two."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..contract.axes import few
from ..model import Model
from .plots import COLOURS, FINER_POINTS, HEAT, INK, LINES, MARKERS, any_variable, coordinate, is_draw, label, log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..study import Study


class Look(NamedTuple):
    """How panels are drawn: see `plots.plot_study`."""

    size: int | None = None
    finer: bool = True
    scales: Mapping[str, str] = {}
    branches: bool = False


class Pen(NamedTuple):
    """The colours and captions of a study: its own ones, or those of one among several studies on the same axes."""

    caption: str = ""
    number: int | None = None

    def colour(self, k: int) -> str:
        return COLOURS[(k if self.number is None else self.number) % len(COLOURS)]

    def style(self, k: int) -> str:
        return LINES[(k // len(COLOURS) if self.number is None else k) % len(LINES)]


def curves(axis: Axes, study: Study, data: Any, name: str, along: str, look: Look, pen: Pen = Pen()) -> bool:  # noqa: B008
    """Draw one observable along a dimension; return whether lines have more points than the study."""
    between = False
    x = coordinate(data, along)
    words = not np.issubdtype(x.dtype, np.number)
    positions = np.arange(len(x)) if words else x
    variable, known = data[any_variable(data, name)], study.dimensions()
    others = [d for d in variable.dims if d not in (along, "size", "seed") and not is_draw(known, d)]
    kept = [few(data.sizes[d]) if d in known and known[d].kind == "pair" else range(data.sizes[d]) for d in others]
    combinations = list(itertools.product(*kept))
    declared = {n: o for m in study.variants().values() for n, o in m.observables().items()}
    theory = data.get(f"{name}_theory", None)
    if theory is None and f"{name}_expected" in data:
        expected = data[f"{name}_expected"]
        theory = expected.mean([d for d in ("size", "seed") if d in expected.dims])
    for k, at in enumerate(combinations):
        pick = dict(zip(others, at, strict=True))
        captions = [f"{d.replace('_', ' ')} {_value(coordinate(data, d)[i])}" for d, i in pick.items()]
        legend = ", ".join(filter(None, [pen.caption, *captions]))
        colour, style = pen.colour(k), pen.style(k)
        labels = {d: coordinate(data, d)[i] for d, i in pick.items() if d in study.grid}
        if look.branches and (found := _branches(study, along, labels, name, pick, look.finer)) is not None:
            for b, values in enumerate(found[1]):
                axis.plot(found[0], values, LINES[b % len(LINES)], color=colour, zorder=2,
                          label=", ".join(filter(None, [legend, f"branch {b + 1}"])))  # fmt: skip
        elif theory is not None:
            here = theory.isel({d: i for d, i in pick.items() if d in theory.dims})
            if draws := [d for d in here.dims if is_draw(known, d)]:
                _band(axis, positions, here.transpose(along, *draws).values, colour)
                here = here.median(draws)
            line = (positions, here.transpose(along).values)
            if look.finer and (more := _between(study, along, labels, name)) is not None:
                line, between = _merged(line, more), True
            axis.plot(*line, "o" if words else style, color=colour, label=legend or "theory",
                      zorder=2, markerfacecolor="none")  # fmt: skip
        elif legend:
            axis.plot([], [], color=colour, label=legend)  # an experiment has no line to identify its points
        if f"{name}_simulated" in data:
            points = data[f"{name}_simulated"].isel(
                {d: i for d, i in pick.items() if d in data[f"{name}_simulated"].dims}
            )
            spread = _spread if declared[name].random else _mean_and_error
            _points(axis, study, points, positions, along, colour, look.size, dense=len(x) > 25, summary=spread)
    symbol, scale = _declared_axis(study, along, look.scales)
    axis.set_xlabel(label(along, symbol))
    axis.set_ylabel(label(name, declared[name].symbol))
    if words:
        axis.set_xticks(positions, [str(v) for v in x])
    elif scale == "log" and np.any(x > 0):
        if np.min(x) <= 0:  # t = 0 cannot be shown on a logarithmic axis
            axis.set_xlim(np.min(x[x > 0]), np.max(x))
        log_axis(axis.xaxis)
    if look.scales.get(name) == "log" and _positive(axis):
        log_axis(axis.yaxis)
    return between


def _positive(axis: Axes) -> bool:
    """Whether anything drawn so far can be shown on a logarithmic axis."""
    return any(bool(np.any(np.asarray(line.get_ydata(), float) > 0)) for line in axis.get_lines())


def _declared_axis(study: Study, dim: str, scales: Mapping[str, str]) -> tuple[str, str]:
    """Symbol and scale of a swept field, or of a dimension of the observables; `scales` overrules what is declared."""
    known = {**study.dimensions(), **next(iter(study.models.values())).fields()}
    symbol, scale = (known[dim].symbol, known[dim].scale) if dim in known else ("", "linear")
    return symbol, scales.get(dim, scale)


def _band(axis: Axes, x: np.ndarray, draws: np.ndarray, colour: str) -> None:
    """The middle half and the middle four fifths of a random limit."""
    for low, high, strength in ((0.1, 0.9, 0.12), (0.25, 0.75, 0.2)):
        lower, upper = np.quantile(draws, [low, high], axis=1)
        axis.fill_between(x, lower, upper, color=colour, alpha=strength, linewidth=0, zorder=1)


def _between(study: Study, along: str, at: dict[str, Any], name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The theory on a finer grid than the study's own, if a line through its points would show corners.

    None if the study has many points, if there is no theory, or if evaluating it is slow.
    """
    model = study.variant_at(at)
    observable = model.observables().get(name)
    if (
        along not in study.swept_controls
        or not 3 <= len(study.over[along]) <= 60
        or model.unprepared
        or not model.has_theory
        or observable is None
        or not observable.predicted
        or observable.theory_dims
        or model.cost_class() != "instant"
    ):
        return None
    fine, fixed = _fine(study, model, along), _fixed(study, along, at)
    return fine, np.asarray(model.replace(**fixed, **{along: fine}).theory(study.numerics)[name])


def _fine(study: Study, model: Any, along: str) -> np.ndarray:
    x = np.asarray(study.over[along], float)
    logarithmic = model.fields()[along].scale == "log" and x.min() > 0
    fine = (np.geomspace if logarithmic else np.linspace)(x.min(), x.max(), FINER_POINTS)
    return np.clip(fine, x.min(), x.max())


def _fixed(study: Study, along: str, at: dict[str, Any]) -> dict[str, float]:
    """The swept controls that are not on the axis, at one combination of the other dimensions."""
    return {n: float(at[n]) for n in study.swept_controls if n in at and n != along}


def _branches(
    study: Study, along: str, at: dict[str, Any], name: str, pick: dict[str, int], finer: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Every solution of the theory along an axis, one row each; None if this observable has none."""
    model = study.variant_at(at)
    if not model.answers_at_once or type(model).point_branches is Model.point_branches:
        return None
    swept = along in study.swept_controls
    x = np.asarray(study.over[along], float) if swept else np.asarray(model.coordinates()[along])
    if swept and finer and model.cost_class() == "instant" and len(x) > 2:
        x = np.union1d(x, _fine(study, model, along))
    outcome = model.replace(**_fixed(study, along, at), **({along: x} if swept else {})).branches(study.numerics)
    if name not in outcome.values:
        return None
    values = np.moveaxis(np.asarray(outcome[name]), 1 if swept else 0, 0)  # branches first
    own = [d for d in model.observables()[name].theory_dims if d != along]
    at_own = tuple(pick[d] if d in own else slice(None) for d in model.observables()[name].theory_dims)
    values = values[(slice(None), *([slice(None)] if swept else []), *at_own)]
    return x, values[np.isfinite(values).any(axis=1)]


def _merged(stored: tuple[np.ndarray, np.ndarray], finer: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Merge two lines; where they share a point, the stored value is used.

    >>> x, y = _merged((np.array([3.0, 1.0]), np.array([9.0, 1.0])), (np.array([1.0, 2.0, 3.0]), np.zeros(3)))
    >>> x.tolist(), y.tolist()
    ([1.0, 2.0, 3.0], [1.0, 0.0, 9.0])
    """
    x, first = np.unique(np.concatenate([stored[0], finer[0]]), return_index=True)
    return x, np.concatenate([stored[1], finer[1]])[first]


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    number = np.isfinite(values).sum(axis=1)
    mean = np.nanmean(np.where(number[:, None] > 0, values, 0.0), axis=1)
    error = np.nanstd(values, axis=1, ddof=1) / np.sqrt(np.maximum(number, 1)) if values.shape[1] > 1 else None
    return mean, error


def _spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The median of a random limit and the distances of the quartiles from it."""
    lower, middle, upper = np.nanquantile(values, [0.25, 0.5, 0.75], axis=1)
    return middle, np.stack([middle - lower, upper - middle])


def _points(axis, study, points, positions, along, colour, only, dense, summary) -> None:
    sizes = [only] if only is not None else study.sizes[-3:]
    for j, size in enumerate(sizes):
        values = points.sel(size=size).transpose(along, "seed").values
        mean, error = summary(values)
        strength = 0.35 + 0.65 * (j + 1) / len(sizes)
        every = slice(None, None, max(1, len(positions) // 25)) if dense else slice(None)
        axis.errorbar(positions[every], mean[every], None if error is None else error[..., every], fmt=MARKERS[j % len(MARKERS)],
                      color=colour, alpha=strength, markersize=3.6, elinewidth=1, label=f"d = {size}", zorder=3)  # fmt: skip


def heat_map(axis: Axes, study: Study, data: Any, name: str, dims: list[str], look: Look) -> None:
    """Draw the theory over two controls, with the transition lines that the model knows."""
    x, y = dims
    values = data[any_variable(data, name)]
    values = values.mean([d for d in ("size", "seed") if d in values.dims])
    values = values.isel({d: 0 for d in values.dims if d not in dims}).transpose(y, x)
    model = next(iter(study.models.values()))
    fields, declared = model.fields(), model.observables()
    mesh = axis.pcolormesh(coordinate(data, x), coordinate(data, y), values.values, cmap=HEAT, shading="nearest")
    mesh.set_rasterized(True)
    axis.grid(False)
    axis.figure.colorbar(mesh, ax=axis, label=label(name, declared[name].symbol if name in declared else ""))
    if np.isnan(values.values).any():
        axis.set_facecolor("#dddddd")
    lines = model.transition_lines(x, y, coordinate(data, x)) if x in fields and y in fields else {}
    for (line_name, line), style in zip(lines.items(), ("-", "--", ":", "-."), strict=False):
        axis.plot(coordinate(data, x), line, color="white", linewidth=3)
        axis.plot(
            coordinate(data, x), line, color=INK, linewidth=1.3, linestyle=style, label=f"transition: {line_name}"
        )
    axis.set_xlim(coordinate(data, x).min(), coordinate(data, x).max())
    axis.set_ylim(coordinate(data, y).min(), coordinate(data, y).max())
    for dim, which in ((x, "x"), (y, "y")):
        symbol, scale = _declared_axis(study, dim, look.scales)
        getattr(axis, f"set_{which}label")(label(dim, symbol))
        if scale == "log":
            log_axis(getattr(axis, f"{which}axis"))


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)
