"""One style for all figures: theory as lines, experiment as points with error bars.

Matplotlib is imported only when the first figure is drawn.
"""

from __future__ import annotations

import textwrap
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
INSIDE, BESIDE = 6, 20  # lines in a panel's own legend: at most within the panel, and in a column beside it

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
    scales: Mapping[str, str] | None = None,
    branches: bool = False,
    beside: Mapping[str, Study] | None = None,
    caption: str = "",
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
    - `scales`: overrules the declared scale of an axis by the name of a control, a dimension or an observable:
        `{"test_error": "log"}`.
    - `branches`: draw every solution of the theory instead of the one that is learnt.
    - `beside`: further studies by their captions, drawn on the same axes in other colours; `caption` names this one.

    What is not named has a place by itself: a control swept over more than six values runs along the axis, two of them
    span a plane; fewer values are lines. Random limits are drawn as bands of quantiles.
    """
    import matplotlib.pyplot as plt

    from .panels import Look, Pen, curves, heat_map

    data, wishes = study.dataset(copy=False), Wishes.of(along, lines, by, log)
    places = {name: layout(study, data, name, wishes, as_map=as_map) for name in shown_names(study, data, show, wishes)}
    panels = [(name, at) for name, place in places.items() for at in place.panels()]
    if columns is None:
        side_by_side = 2 if len(panels) in (2, 4) else 3
        columns = max(len(place.panels()) for place in places.values()) if wishes.by else side_by_side
    with house_style():
        given = axes is not None
        if axes is None:
            rows, wide = -(-len(panels) // columns), min(columns, len(panels))
            figure, grid = plt.subplots(rows, wide, figsize=(max(3.7 * wide, 4.4), 2.9 * rows), squeeze=False)
            axes = list(grid.ravel())
        else:
            axes = [axes] if not isinstance(axes, (list, tuple, np.ndarray)) else list(axes)
            figure = axes[0].figure
        between, others = False, list((beside or {}).items())
        look = Look(size, finer, scales or {}, branches)
        drawn = [(study, Pen(caption, 0 if others else None))]
        drawn += [(other, Pen(text, k)) for k, (text, other) in enumerate(others, start=1)]
        for axis, (name, at) in zip(axes, panels, strict=False):
            place = places[name]
            if place.across:
                heat_map(axis, study, data, name, place, at, look)
            for one, pen in drawn if not place.across else []:
                own = one.dataset(copy=False)
                if any_variable(own, name) is not None:
                    mine = place if one is study else layout(one, own, name, wishes, as_map=as_map)
                    between |= curves(axis, one, own, name, mine, at, look, pen)
            if fixed := {**at, **place.held}:
                axis.set_title(described(data, fixed))
            _scales(axis, name, wishes)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        title = "; ".join(dict.fromkeys(m.title or m.id for m in study.models.values()))
        _legends(figure, axes[: len(panels)], grows=not given)
        letters = max(20, int(13 * figure.get_size_inches()[0]))
        figure.suptitle(textwrap.fill(title, letters), fontsize=11)
        notes = [FINER_NOTE] * between + _left_out(data, places.values())
        if notes and axes:
            _note(axes[min(len(axes), len(panels)) - 1], "; ".join(notes))
    return figure


def described(data: Any, at: Mapping[str, int]) -> str:
    """A point of some dimensions, in words."""
    return ", ".join(f"{d.replace('_', ' ')} {_value(coordinate(data, d)[i])}" for d, i in at.items())


def _left_out(data: Any, places: Iterable[Layout]) -> list[str]:
    """Which dimensions are drawn at some of their values only."""
    some = {d: len(kept) for place in places for d, kept in {**place.lines, **place.by}.items()}
    words = [f"{n} of {data.sizes[d]} values of {d.replace('_', ' ')}" for d, n in some.items() if n < data.sizes[d]]
    return words


def coordinate(data: Any, dim: Any) -> np.ndarray:
    """The values of a dimension, or their numbers where it has none."""
    return np.asarray(data.coords[dim].values) if dim in data.coords else np.arange(data.sizes[dim])


def _scales(axis: Axes, name: str, wishes: Wishes) -> None:
    """The scales that were asked for, in place of the declared ones."""
    if wishes.log is None:
        return
    from .panels import positive

    for which in ("x", "y"):
        if which not in wishes.log:
            if not wishes.log:  # none at all
                getattr(axis, f"set_{which}scale")("linear")
        elif not positive(axis, which):
            raise InvalidValue(f"log = {which!r}: {name} has no positive values to be drawn on a logarithmic axis.")
        else:
            log_axis(getattr(axis, f"{which}axis"))


def is_draw(known: Mapping[str, Dimension], dim: Any) -> bool:
    """Whether a dimension counts the draws of a random limit."""
    return dim in known and known[dim].kind == "draw"


def standard_error(runs: Any) -> Any:
    """Standard error of the mean over seeds; those that are NaN do not count.

    >>> import xarray as xr
    >>> round(float(standard_error(xr.DataArray([1.0, 2.0, 3.0, np.nan], dims="seed"))), 4)
    0.5774
    """
    return runs.std("seed", ddof=1) / np.sqrt(runs.count("seed"))


def mean_and_error(runs: Any) -> tuple[Any, Any]:
    """Mean over seeds and its standard error.

    >>> import xarray as xr
    >>> [round(float(x), 4) for x in mean_and_error(xr.DataArray([1.0, 2.0, 3.0], dims="seed"))]
    [2.0, 0.5774]
    """
    return runs.mean("seed"), standard_error(runs)


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


def _note(axis: Axes, sentence: str) -> None:
    """Write a note below an axis, with space reserved by the layout."""
    axis.annotate(sentence, (1, 0), (0, -34), xycoords="axes fraction", textcoords="offset points", ha="right", va="top",
                  fontsize=6.5, color="#777777", annotation_clip=False)  # fmt: skip


def _legends(figure: Figure, axes: Sequence[Axes], grows: bool = False) -> None:
    """One legend below the figure, and one of its own for a panel with lines that the first does not have.

    A panel's own legend of many lines stands beside it, not on its curves. A figure that `grows` gets room for a long
    legend, so that its panels keep their size.
    """
    if not axes:
        return
    shared = _entries(axes[0])
    for axis in axes[1:]:
        if own := {text: handle for text, handle in _entries(axis).items() if text not in shared}:
            if len(own) <= INSIDE:
                axis.legend(list(own.values()), list(own), fontsize=6.5)
                continue
            columns = -(-len(own) // BESIDE)
            axis.legend(list(own.values()), list(own), fontsize=6, loc="upper left", bbox_to_anchor=(1.0, 1.03),
                        ncols=columns, borderaxespad=0.2, labelspacing=0.25)  # fmt: skip
            if grows:
                width, height = figure.get_size_inches()
                figure.set_size_inches(width + columns * (0.5 + 0.05 * max(map(len, own))), height)
    if len(shared) > 1 or any(line.get_marker() == "_" for line in axes[0].get_lines()):
        wide = 0.55 + 0.075 * max(map(len, shared))  # inches of an entry: its line, and its letters
        columns = max(1, min(len(shared), 5, int(figure.get_size_inches()[0] / wide)))
        figure.legend(list(shared.values()), list(shared), loc="outside lower center", ncols=columns)
        if grows and (rows := -(-len(shared) // columns)) > 2:
            width, height = figure.get_size_inches()
            figure.set_size_inches(width, height + 0.18 * (rows - 2))


def _entries(axis: Axes) -> dict[str, Any]:
    handles, texts = axis.get_legend_handles_labels()
    found: dict[str, Any] = {}
    for handle, text in zip(handles, texts, strict=True):
        found.setdefault(text, handle)
    return found


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)
