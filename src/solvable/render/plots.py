"""One style for all figures: theory as lines, experiment as points with error bars.

Matplotlib is imported only when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidValue

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
    observables: str | Sequence[str] | None = None,
    *,
    along: str | None = None,
    size: int | None = None,
    columns: int = 3,
    axes: Any = None,
    as_map: bool = False,
    finer: bool = True,
    scales: Mapping[str, str] | None = None,
    branches: bool = False,
    beside: Mapping[str, Study] | None = None,
    caption: str = "",
) -> Figure:
    """Draw a study.

    One swept control (or a dimension of the observable declared as a time, a mode or a site) gives curves; two swept
    controls give heat maps of the theory. `along` names the dimension on the horizontal axis; further dimensions become
    colours; sizes become markers (only `size`, if given). Functions of two times are drawn at a few waiting times, or as a
    whole with `as_map`; random limits are drawn as bands of quantiles.

    With `finer`, a line along a control goes through the study's own points and, if the theory is instant, through more
    points in between, so that it is smooth; a note below the axis then says so. Otherwise lines connect the study's points.

    `scales` overrules the declared scale of an axis, by the name of a control, dimension or observable:
    `{"test_error": "log"}`. With `branches`, every solution of the theory is drawn instead of the one that is learnt.
    `beside` names further studies, drawn on the same axes in other colours, and `caption` names this one among them.
    """
    import matplotlib.pyplot as plt

    from .panels import Look, Pen, curves, heat_map

    data = study.dataset(copy=False)
    names = _observables(study, data, observables)
    first = data[any_variable(data, names[0])]
    swept = [d for d in first.dims if d not in ("size", "seed") and np.issubdtype(coordinate(data, d).dtype, np.number)]
    flat = [d for d in study.over if d in swept and len(study.over[d]) > 2]
    time_like = [d for d in swept if d not in study.over]
    if _is_plane(flat, along, time_like) and observables is None:
        names = [n for n in names if set(data[any_variable(data, n)].dims) <= {*study.grid, "size", "seed"}]
    with house_style():
        if axes is None:
            rows = -(-len(names) // columns)
            wide = min(columns, len(names))
            figure, grid = plt.subplots(rows, wide, figsize=(3.7 * wide, 2.9 * rows), squeeze=False)
            axes = list(grid.ravel())
        else:
            axes = [axes] if not isinstance(axes, (list, tuple, np.ndarray)) else list(axes)
            figure = axes[0].figure
        heat, between = _is_plane(flat, along, time_like), False
        look, others = Look(size, finer, scales or {}, branches), list((beside or {}).items())
        drawn = [(study, Pen(caption, 0 if others else None))]
        drawn += [(other, Pen(text, k)) for k, (text, other) in enumerate(others, start=1)]
        for axis, name in zip(axes, names, strict=False):
            plane = _own_plane(study, data, name) if as_map else []
            if heat or plane:
                heat_map(axis, study, data, name, plane or flat, look)
                continue
            for one, pen in drawn:
                own = one.dataset(copy=False)
                if any_variable(own, name) is not None:
                    between |= curves(axis, one, own, name, along or _horizontal(one, own, name), look, pen)
        for axis in axes[len(names) :]:
            axis.set_visible(False)
        title = "; ".join(dict.fromkeys(m.title or m.id for m in study.models.values()))
        figure.suptitle(title, fontsize=11)
        if axes:
            _legend(figure, axes[0])
        if between:
            _note(axes[min(len(axes), len(names)) - 1], FINER_NOTE)
    return figure


def _is_plane(swept: list[Any], along: str | None, inner: list[Any]) -> bool:
    """Whether there are two swept controls and nothing else to draw along, which gives a heat map."""
    return len(swept) == 2 and along is None and not inner


def _observables(study: Study, data: Any, wanted: str | Sequence[str] | None) -> list[str]:
    from ..study import unknown_observable

    declared = dict.fromkeys(n for m in study.variants().values() for n in m.observables())
    known = [n for n in declared if any_variable(data, n) is not None]
    if wanted is None:
        # A single number has no axis to be drawn along.
        known = [n for n in known if set(data[any_variable(data, n)].dims) - {"size", "seed"}] or known[:1]
        return [n for n in known if _size_of(data, n, study) <= 4000] or known[:1]
    chosen = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in chosen:
        if name not in known:
            raise unknown_observable(name, known)
    return chosen


def _size_of(data: Any, name: str, study: Study) -> int:
    """The number of curves of an observable; matrices over time are drawn only on request."""
    own, known = data[any_variable(data, name)].dims, study.dimensions()
    inner = [d for d in own if d in known and d not in study.grid and known[d].kind == "label"]
    return int(np.prod([data.sizes[d] for d in inner])) * 1000 if inner else 1


def _own_plane(study: Study, data: Any, name: str) -> list[Any]:
    """The two dimensions of an observable that span a map: a pair of times, or two sites."""
    known = study.dimensions()
    own = [d for d in data[any_variable(data, name)].dims if d in known and d not in study.grid]
    flat = [d for d in own if known[d].is_axis or known[d].kind == "pair"]
    return flat[:2] if len(flat) >= 2 else []


def any_variable(data: Any, name: str) -> str | None:
    return next((f"{name}_{k}" for k in ("theory", "expected", "simulated") if f"{name}_{k}" in data), None)


def coordinate(data: Any, dim: Any) -> np.ndarray:
    return np.asarray(data.coords[dim].values) if dim in data.coords else np.arange(data.sizes[dim])


def _horizontal(study: Study, data: Any, name: str) -> str:
    """The dimension for the horizontal axis: time or similar if there is one, else the longest swept control."""
    dims = [d for d in data[any_variable(data, name)].dims if d not in ("size", "seed")]
    known = study.dimensions()
    dims = [d for d in dims if not is_draw(known, d)]
    own = [d for d in dims if d not in study.grid]
    inner = [d for d in own if d in known and known[d].is_axis] or [d for d in own if d in data.coords]
    numeric = [d for d in study.over if d in dims and np.issubdtype(coordinate(data, d).dtype, np.number)]
    if inner:
        return inner[0]
    if numeric:
        return max(numeric, key=lambda d: data.sizes[d])
    if dims:
        return dims[0]
    raise InvalidValue("there is nothing to draw along: sweep a control with `over`.")


def is_draw(known: Mapping[str, Dimension], dim: Any) -> bool:
    return dim in known and known[dim].kind == "draw"


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


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    seen: dict[str, Any] = {}
    for handle, text in zip(handles, labels, strict=True):
        seen.setdefault(text, handle)
    if len(seen) > 1:
        figure.legend(list(seen.values()), list(seen), loc="outside lower center", ncols=min(len(seen), 5))
