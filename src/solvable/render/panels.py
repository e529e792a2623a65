"""The panels of a figure: one observable of a study as curves along a dimension, or as a heat map over two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..model import Model
from .layout import Layout, any_variable
from .plots import COLOURS, FINER_POINTS, HEAT, INK, LINES, MARKERS, coordinate, described, is_draw, label, log_axis

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

    def colour(self, k: int, lines: int) -> Any:
        """The palette's colours; shades from dark to light where there are more lines than colours."""
        if self.number is not None:
            return COLOURS[self.number % len(COLOURS)]
        if lines <= len(COLOURS):
            return COLOURS[k]
        import matplotlib as mpl

        return mpl.colormaps[HEAT](0.9 * k / (lines - 1))

    def style(self, k: int) -> str:
        return "-" if self.number is None else LINES[k % len(LINES)]


def curves(axis: Axes, study: Study, data: Any, name: str, place: Layout, fixed: dict[str, int], look: Look,
           pen: Pen = Pen()) -> bool:  # noqa: B008  # fmt: skip
    """Draw one observable along a dimension; return whether lines have more points than the study."""
    between, along, known = False, place.along, study.dimensions()
    x = coordinate(data, along)
    words = not np.issubdtype(x.dtype, np.number)
    positions = np.arange(len(x)) if words else x
    declared = {n: o for m in study.variants().values() for n, o in m.observables().items()}
    theory = data.get(f"{name}_theory", None)
    if theory is None and f"{name}_expected" in data:
        expected = data[f"{name}_expected"]
        theory = expected.mean([d for d in ("size", "seed") if d in expected.dims])
    lines = place.curves()
    for k, line in enumerate(lines):
        pick = {**line, **fixed, **place.held}
        legend = ", ".join(filter(None, [pen.caption, described(data, line)]))
        colour, style = pen.colour(k, len(lines)), pen.style(k)
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
            drawn = (positions, here.transpose(along).values)
            if look.finer and (more := _between(study, along, labels, name)) is not None:
                drawn, between = _merged(drawn, more), True
            if words:
                _marks(axis, drawn[0], drawn[1], colour, legend, numbers=len(lines) * len(x) <= 8)
            else:
                axis.plot(*drawn, style, color=colour, label=legend or "theory", zorder=2)
        elif legend:
            axis.plot([], [], color=colour, label=legend)  # an experiment has no line to identify its points
        if f"{name}_simulated" in data:
            points = data[f"{name}_simulated"]
            points = points.isel({d: i for d, i in pick.items() if d in points.dims})
            spread = _spread if declared[name].random else _mean_and_error
            _points(axis, study, points, positions, along, colour, look.size, dense=len(x) > 25, summary=spread)
    symbol, scale = _declared_axis(study, along, look.scales)
    axis.set_xlabel(label(along, symbol))
    axis.set_ylabel(label(name, declared[name].symbol))
    if words:
        axis.set_xticks(positions, [str(v) for v in x])
        axis.set_xlim(-0.6, len(x) - 0.4)
    elif scale == "log" and np.any(x > 0):
        if np.min(x) <= 0:  # t = 0 cannot be shown on a logarithmic axis
            axis.set_xlim(np.min(x[x > 0]), np.max(x))
        log_axis(axis.xaxis)
    if look.scales.get(name) == "log" and positive(axis, "y"):
        log_axis(axis.yaxis)
    return between


def positive(axis: Axes, which: str) -> bool:
    """Whether anything drawn so far can be shown on a logarithmic axis."""
    drawn = [np.asarray(getattr(line, f"get_{which}data")(), float) for line in axis.get_lines()]
    return any(bool(np.any(values > 0)) for values in drawn) or (
        not drawn and getattr(axis, f"get_{which}lim")()[1] > 0
    )


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


def _marks(axis: Axes, x: np.ndarray, y: np.ndarray, colour: Any, legend: str, numbers: bool) -> None:
    """The theory over words, which nothing joins: a bar at each, with its number where there is room."""
    axis.plot(x, y, linestyle="none", marker="_", markersize=22, markeredgewidth=1.8, color=colour,
              label=f"{legend}, theory" if legend else "theory", zorder=2)  # fmt: skip
    for at, value in zip(x, y, strict=True):
        if numbers and np.isfinite(value):
            axis.annotate(f"{value:.3g}", (at, value), (13, 0), textcoords="offset points", va="center", fontsize=7,
                          color=colour)  # fmt: skip


def _between(study: Study, along: str, at: dict[str, Any], name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The theory on a finer grid than the study's own, if a line through its points would show corners.

    None if the study has many points, if there is no theory, or if evaluating it is slow.
    """
    if along not in study.swept_controls or not 3 <= len(study.over[along]) <= 60:
        return None
    model = study.variant_at(at)
    observable = model.observables().get(name)
    if (
        model.unprepared
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
    if along in study.swept_choices:
        return None
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
    """The mean over realisations and its error; NaN, which draws nothing, where none of them converged.

    >>> _mean_and_error(np.array([[1.0, 3.0], [np.nan, np.inf]]))[0].tolist()
    [2.0, nan]
    """
    finite = np.isfinite(values)
    number = finite.sum(axis=1)
    mean = np.where(number > 0, np.where(finite, values, 0.0).sum(axis=1) / np.maximum(number, 1), np.nan)
    if values.shape[1] < 2:
        return mean, None
    squares = np.where(finite, (np.where(finite, values, 0.0) - mean[:, None]) ** 2, 0.0).sum(axis=1)
    return mean, np.where(number > 1, np.sqrt(squares / np.maximum(number - 1, 1) / np.maximum(number, 1)), np.nan)


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


def heat_map(axis: Axes, study: Study, data: Any, name: str, place: Layout, fixed: dict[str, int], look: Look) -> None:
    """Draw the theory over two dimensions, with the transition lines that the model knows."""
    x, y = place.along, place.across
    values = data[any_variable(data, name)]
    values = values.isel({d: i for d, i in {**fixed, **place.held}.items() if d in values.dims})
    values = values.mean([d for d in values.dims if d not in (x, y)]).transpose(y, x)
    model = study.variant_at({d: coordinate(data, d)[i] for d, i in _first(study, data, fixed).items()})
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


def _first(study: Study, data: Any, at: Mapping[str, int]) -> dict[str, int]:
    """Indices in every dimension of the grid: those given, and elsewhere the first."""
    return {d: at.get(d, 0) for d in study.grid if d in data.sizes}
