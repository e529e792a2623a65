"""One style for all figures: theory as lines, experiment as points with error bars.

Matplotlib is imported only when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidValue
from .layout import Layout, Wishes, Words, any_variable, layout, shown_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..contract.declarations import Dimension
    from ..study import Study

# Okabe and Ito's palette: distinct for every kind of colour vision, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
INK = "#222222"
HEAT = "viridis"
FINER_NOTE = "lines: theory, also evaluated between the points of the study"
FINER_POINTS = 181  # points on such a line

STYLE: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.direction": "out",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "errorbar.capsize": 0,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


@contextmanager
def house_style():
    """Context in which figures are drawn in this style; the user's own settings are restored afterwards."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        yield


def label(name: str, symbol: str = "") -> str:
    """An axis label: the name in words, with the paper's symbol.

    >>> label("test_error", r"\\varepsilon_g")
    'test error $\\\\varepsilon_g$'
    """
    words = name.replace("_", " ")
    return f"{words} ${symbol}$" if symbol else words


def plot_study(
    study: Study,
    show: Words = None,
    *,
    along: Words = None,
    lines: Words = None,
    by: Words = None,
    log: Words = None,
    size: int | None = None,
    columns: int | None = None,
    axes: Any = None,
    as_map: bool = False,
    finer: bool = True,
) -> Figure:
    """Draw a study: theory as lines, experiment as points with error bars.

    **Arguments:**
    - `show`: the observables, `"test_error,overlap"` or a list; `"all"` of them; by default the model's main ones.
    - `along`: the dimension on the horizontal axis; two of them span a plane.
    - `lines`: the dimensions whose values are lines of different colours.
    - `by`: the dimensions whose values are panels.
    - `log`: the logarithmic axes, `"x"`, `"y"`, `"x,y"`, or `"none"`; by default as the dimensions declare.
    - `size`: draw the points of this size alone.
    - `columns`: the number of panels in a row; by default the values of `by`, or two or three.
    - `axes`: draw into these axes of Matplotlib.
    - `as_map`: draw a function of two times as a whole, not at a few waiting times.
    - `finer`: a line along a control goes through the study's own points and, if the theory is instant, through more points
        in between; a note below the axis then says so. Otherwise lines connect the study's points.

    What is not named has a place by itself: a control swept over more than six values runs along the axis, two of them
    span a plane; fewer values are lines. Random limits are drawn as bands of quantiles.
    """
    import matplotlib.pyplot as plt

    data, wishes = study.dataset(copy=False), Wishes.of(along, lines, by, log)
    places = {name: layout(study, data, name, wishes, as_map=as_map) for name in shown_names(study, data, show, wishes)}
    panels = [(name, at) for name, place in places.items() for at in place.panels()]
    if columns is None:
        side_by_side = 2 if len(panels) in (2, 4) else 3
        columns = max(len(place.panels()) for place in places.values()) if wishes.by else side_by_side
    with house_style():
        if axes is None:
            rows, wide = -(-len(panels) // columns), min(columns, len(panels))
            figure, grid = plt.subplots(rows, wide, figsize=(max(3.7 * wide, 4.4), 2.9 * rows), squeeze=False)
            axes = list(grid.ravel())
        else:
            axes = [axes] if not isinstance(axes, (list, tuple, np.ndarray)) else list(axes)
            figure = axes[0].figure
        between = False
        for axis, (name, at) in zip(axes, panels, strict=False):
            place = places[name]
            if place.across:
                _heat_map(axis, study, data, name, place, at)
            else:
                between |= _curves(axis, study, data, name, place, at, size, finer)
            if fixed := {**at, **place.held}:
                axis.set_title(_described(data, fixed))
            _scales(axis, data, name, wishes)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        title = "; ".join(dict.fromkeys(m.title or m.id for m in study.models.values()))
        figure.suptitle(title, fontsize=11)
        _legends(figure, axes[: len(panels)])
        notes = [FINER_NOTE] * between + _left_out(data, places.values())
        if notes and axes:
            _note(axes[min(len(axes), len(panels)) - 1], "; ".join(notes))
    return figure


def _described(data: Any, at: Mapping[str, int]) -> str:
    return ", ".join(f"{d.replace('_', ' ')} {_value(_coordinate(data, d)[i])}" for d, i in at.items())


def _left_out(data: Any, places: Iterable[Layout]) -> list[str]:
    """Which dimensions are drawn at some of their values only."""
    some = {d: len(kept) for place in places for d, kept in {**place.lines, **place.by}.items()}
    words = [f"{n} of {data.sizes[d]} values of {d.replace('_', ' ')}" for d, n in some.items() if n < data.sizes[d]]
    return words


def _coordinate(data: Any, dim: Any) -> np.ndarray:
    return np.asarray(data.coords[dim].values) if dim in data.coords else np.arange(data.sizes[dim])


def _curves(axis: Axes, study: Study, data: Any, name: str, place: Layout, fixed: dict[str, int], only: int | None,
            finer: bool) -> bool:  # fmt: skip
    """Draw one observable along a dimension; return whether lines have more points than the study."""
    between, along, known = False, place.along, study.dimensions()
    x = _coordinate(data, along)
    words = not np.issubdtype(x.dtype, np.number)
    positions = np.arange(len(x)) if words else x
    declared = {n: o for m in study.variants().values() for n, o in m.observables().items()}
    theory = data.get(f"{name}_theory", None)
    if theory is None and f"{name}_expected" in data:
        expected = data[f"{name}_expected"]
        theory = expected.mean([d for d in ("size", "seed") if d in expected.dims])
    curves = place.curves()
    for k, line in enumerate(curves):
        pick = {**line, **fixed, **place.held}
        legend, colour = _described(data, line), _colour(k, len(curves))
        if theory is not None:
            here = theory.isel({d: i for d, i in pick.items() if d in theory.dims})
            labels = {d: _coordinate(data, d)[i] for d, i in pick.items() if d in study.grid}
            if draws := [d for d in here.dims if _is_draw(known, d)]:
                _band(axis, positions, here.transpose(along, *draws).values, colour)
                here = here.median(draws)
            drawn = (positions, here.transpose(along).values)
            if finer and (more := _between(study, along, labels, name)) is not None:
                drawn, between = _merged(drawn, more), True
            if words:
                _marks(axis, *drawn, colour, legend, numbers=len(curves) * len(x) <= 8)
            else:
                style = LINES[(k // len(COLOURS)) % len(LINES)] if len(curves) <= len(COLOURS) * 2 else "-"
                axis.plot(*drawn, style, color=colour, label=legend or "theory", zorder=2)
        elif legend:
            axis.plot([], [], color=colour, label=legend)  # an experiment has no line to identify its points
        if f"{name}_simulated" in data:
            points = data[f"{name}_simulated"]
            points = points.isel({d: i for d, i in pick.items() if d in points.dims})
            spread = _spread if declared[name].random else _mean_and_error
            _points(axis, study, points, positions, along, colour, only, dense=len(x) > 25, summary=spread)
    symbol, scale = _declared_axis(study, along)
    axis.set_xlabel(label(along, symbol))
    axis.set_ylabel(label(name, declared[name].symbol))
    if words:
        axis.set_xticks(positions, [str(v) for v in x])
        axis.set_xlim(-0.6, len(x) - 0.4)
    elif scale == "log" and np.any(x > 0):
        _log_x(axis, x)
    return between


def _colour(k: int, number: int) -> Any:
    """The palette's colours; shades from dark to light where there are more lines than colours."""
    if number <= len(COLOURS):
        return COLOURS[k]
    import matplotlib as mpl

    return mpl.colormaps[HEAT](0.9 * k / (number - 1))


def _marks(axis: Axes, x: np.ndarray, y: np.ndarray, colour: Any, legend: str, numbers: bool) -> None:
    """The theory over words, which nothing joins: a bar at each, with its number where there is room."""
    axis.plot(x, y, linestyle="none", marker="_", markersize=22, markeredgewidth=1.8, color=colour,
              label=f"{legend}, theory" if legend else "theory", zorder=2)  # fmt: skip
    for at, value in zip(x, y, strict=True):
        if numbers and np.isfinite(value):
            axis.annotate(f"{value:.3g}", (at, value), (13, 0), textcoords="offset points", va="center", fontsize=7,
                          color=colour)  # fmt: skip


def _log_x(axis: Axes, x: np.ndarray) -> None:
    if np.min(x) <= 0:  # t = 0 cannot be shown on a logarithmic axis
        axis.set_xlim(np.min(x[x > 0]), np.max(x))
    log_axis(axis.xaxis)


def _scales(axis: Axes, data: Any, name: str, wishes: Wishes) -> None:
    """The scales that were asked for, in place of the declared ones."""
    if wishes.log is None:
        return
    if not wishes.log:
        axis.set_xscale("linear")
        axis.set_yscale("linear")
        return
    for which in wishes.log:
        drawn = [np.asarray(getattr(line, f"get_{which}data")(), float) for line in axis.get_lines()]
        values = np.concatenate([*drawn, np.asarray(getattr(axis, f"get_{which}lim")())])
        if not np.any(values > 0):
            raise InvalidValue(f"log = {which!r}: {name} has no positive values to be drawn on a logarithmic axis.")
        if getattr(axis, f"get_{which}scale")() != "log":
            if which == "x":
                _log_x(axis, values[np.isfinite(values)] if np.nanmin(values) > 0 else values)
            else:
                log_axis(axis.yaxis)


def _declared_axis(study: Study, dim: str) -> tuple[str, str]:
    """Symbol and scale of a swept field, or of a dimension of the observables."""
    known = {**study.dimensions(), **next(iter(study.models.values())).fields()}
    return (known[dim].symbol, known[dim].scale) if dim in known else ("", "linear")


def _is_draw(known: Mapping[str, Dimension], dim: Any) -> bool:
    return dim in known and known[dim].kind == "draw"


def _band(axis: Axes, x: np.ndarray, draws: np.ndarray, colour: str) -> None:
    """The middle half and the middle four fifths of a random limit."""
    for low, high, strength in ((0.1, 0.9, 0.12), (0.25, 0.75, 0.2)):
        lower, upper = np.quantile(draws, [low, high], axis=1)
        axis.fill_between(x, lower, upper, color=colour, alpha=strength, linewidth=0, zorder=1)


def log_axis(axis: Any) -> None:
    """A logarithmic axis whose ticks read 0.2, 0.5, 1, 2, 5 on short ranges and powers of ten on long ones."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    owner = axis.axes
    owner.set_xscale("log") if axis is owner.xaxis else owner.set_yscale("log")
    low, high = sorted(axis.get_view_interval())
    if high / max(low, 1e-300) < 200:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())


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
    x = np.asarray(study.over[along], float)
    logarithmic = model.fields()[along].scale == "log" and x.min() > 0
    fine = (np.geomspace if logarithmic else np.linspace)(x.min(), x.max(), FINER_POINTS)
    fine = np.clip(fine, x.min(), x.max())
    fixed = {n: float(at[n]) for n in study.swept_controls if n in at and n != along}
    return fine, np.asarray(model.replace(**fixed, **{along: fine}).theory(study.numerics)[name])


def _merged(stored: tuple[np.ndarray, np.ndarray], finer: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Merge two lines; where they share a point, the stored value is used.

    >>> x, y = _merged((np.array([3.0, 1.0]), np.array([9.0, 1.0])), (np.array([1.0, 2.0, 3.0]), np.zeros(3)))
    >>> x.tolist(), y.tolist()
    ([1.0, 2.0, 3.0], [1.0, 0.0, 9.0])
    """
    x, first = np.unique(np.concatenate([stored[0], finer[0]]), return_index=True)
    return x, np.concatenate([stored[1], finer[1]])[first]


def _note(axis: Axes, sentence: str) -> None:
    """Write a note below an axis, with space reserved by the layout."""
    axis.annotate(sentence, (1, 0), (0, -34), xycoords="axes fraction", textcoords="offset points", ha="right", va="top",
                  fontsize=6.5, color="#777777", annotation_clip=False)  # fmt: skip


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


def _heat_map(axis: Axes, study: Study, data: Any, name: str, place: Layout, fixed: dict[str, int]) -> None:
    """Draw the theory over two dimensions, with the transition lines that the model knows."""
    x, y = place.along, place.across
    values = data[any_variable(data, name)]
    values = values.isel({d: i for d, i in {**fixed, **place.held}.items() if d in values.dims})
    values = values.mean([d for d in values.dims if d not in (x, y)]).transpose(y, x)
    model = study.variant_at({d: _coordinate(data, d)[i] for d, i in _first(study, data, fixed).items()})
    fields, declared = model.fields(), model.observables()
    mesh = axis.pcolormesh(_coordinate(data, x), _coordinate(data, y), values.values, cmap=HEAT, shading="nearest")
    mesh.set_rasterized(True)
    axis.grid(False)
    axis.figure.colorbar(mesh, ax=axis, label=label(name, declared[name].symbol if name in declared else ""))
    if np.isnan(values.values).any():
        axis.set_facecolor("#dddddd")
    lines = model.transition_lines(x, y, _coordinate(data, x)) if x in fields and y in fields else {}
    for (line_name, line), style in zip(lines.items(), ("-", "--", ":", "-."), strict=False):
        axis.plot(_coordinate(data, x), line, color="white", linewidth=3)
        axis.plot(
            _coordinate(data, x), line, color=INK, linewidth=1.3, linestyle=style, label=f"transition: {line_name}"
        )
    axis.set_xlim(_coordinate(data, x).min(), _coordinate(data, x).max())
    axis.set_ylim(_coordinate(data, y).min(), _coordinate(data, y).max())
    for dim, which in ((x, "x"), (y, "y")):
        symbol, scale = _declared_axis(study, dim)
        getattr(axis, f"set_{which}label")(label(dim, symbol))
        if scale == "log":
            log_axis(getattr(axis, f"{which}axis"))


def _first(study: Study, data: Any, at: Mapping[str, int]) -> dict[str, int]:
    """Indices in every dimension of the grid: those given, and elsewhere the first."""
    return {d: at.get(d, 0) for d in study.grid if d in data.sizes}


def _legends(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend below the figure, and one of its own for a panel with lines that the first does not have."""
    if not axes:
        return
    shared = _entries(axes[0])
    for axis in axes[1:]:
        if own := {text: handle for text, handle in _entries(axis).items() if text not in shared}:
            axis.legend(list(own.values()), list(own), fontsize=6.5)
    if len(shared) > 1 or any(line.get_marker() == "_" for line in axes[0].get_lines()):
        figure.legend(list(shared.values()), list(shared), loc="outside lower center", ncols=min(len(shared), 5))


def _entries(axis: Axes) -> dict[str, Any]:
    handles, texts = axis.get_legend_handles_labels()
    found: dict[str, Any] = {}
    for handle, text in zip(handles, texts, strict=True):
        found.setdefault(text, handle)
    return found


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)
