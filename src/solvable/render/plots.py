"""One style for all figures: theory as lines, experiment as points with error bars.

Matplotlib is imported only when the first figure is drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..contract.axes import few
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
) -> Figure:
    """Draw a study.

    One swept control (or a dimension of the observable declared as a time, a mode or a site) gives curves; two swept
    controls give heat maps of the theory. `along` names the dimension on the horizontal axis; further dimensions become
    colours; sizes become markers (only `size`, if given). Functions of two times are drawn at a few waiting times, or as a
    whole with `as_map`; random limits are drawn as bands of quantiles.

    With `finer`, a line along a control goes through the study's own points and, if the theory is instant, through more
    points in between, so that it is smooth; a note below the axis then says so. Otherwise lines connect the study's points.
    """
    import matplotlib.pyplot as plt

    data = study.dataset(copy=False)
    names = _observables(study, data, observables)
    first = data[_any_variable(data, names[0])]
    swept = [
        d for d in first.dims if d not in ("size", "seed") and np.issubdtype(_coordinate(data, d).dtype, np.number)
    ]
    flat = [d for d in study.over if d in swept and len(study.over[d]) > 2]
    time_like = [d for d in swept if d not in study.over]
    if _is_plane(flat, along, time_like) and observables is None:
        names = [n for n in names if set(data[_any_variable(data, n)].dims) <= {*study.grid, "size", "seed"}]
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
        for axis, name in zip(axes, names, strict=False):
            plane = _own_plane(study, data, name) if as_map else []
            if heat or plane:
                _heat_map(axis, study, data, name, plane or flat)
            else:
                between |= _curves(axis, study, data, name, along or _horizontal(study, data, name), size, finer)
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
    known = [n for n in declared if _any_variable(data, n) is not None]
    if wanted is None:
        # A single number has no axis to be drawn along.
        known = [n for n in known if set(data[_any_variable(data, n)].dims) - {"size", "seed"}] or known[:1]
        return [n for n in known if _size_of(data, n, study) <= 4000] or known[:1]
    chosen = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in chosen:
        if name not in known:
            raise unknown_observable(name, known)
    return chosen


def _size_of(data: Any, name: str, study: Study) -> int:
    """The number of curves of an observable; matrices over time are drawn only on request."""
    own, known = data[_any_variable(data, name)].dims, study.dimensions()
    inner = [d for d in own if d in known and d not in study.grid and known[d].kind == "label"]
    return int(np.prod([data.sizes[d] for d in inner])) * 1000 if inner else 1


def _own_plane(study: Study, data: Any, name: str) -> list[Any]:
    """The two dimensions of an observable that span a map: a pair of times, or two sites."""
    known = study.dimensions()
    own = [d for d in data[_any_variable(data, name)].dims if d in known and d not in study.grid]
    flat = [d for d in own if known[d].is_axis or known[d].kind == "pair"]
    return flat[:2] if len(flat) >= 2 else []


def _any_variable(data: Any, name: str) -> str | None:
    return next((f"{name}_{k}" for k in ("theory", "expected", "simulated") if f"{name}_{k}" in data), None)


def _coordinate(data: Any, dim: Any) -> np.ndarray:
    return np.asarray(data.coords[dim].values) if dim in data.coords else np.arange(data.sizes[dim])


def _horizontal(study: Study, data: Any, name: str) -> str:
    """The dimension for the horizontal axis: time or similar if there is one, else the longest swept control."""
    dims = [d for d in data[_any_variable(data, name)].dims if d not in ("size", "seed")]
    known = study.dimensions()
    dims = [d for d in dims if not _is_draw(known, d)]
    own = [d for d in dims if d not in study.grid]
    inner = [d for d in own if d in known and known[d].is_axis] or [d for d in own if d in data.coords]
    numeric = [d for d in study.over if d in dims and np.issubdtype(_coordinate(data, d).dtype, np.number)]
    if inner:
        return inner[0]
    if numeric:
        return max(numeric, key=lambda d: data.sizes[d])
    if dims:
        return dims[0]
    raise InvalidValue("there is nothing to draw along: sweep a control with `over`.")


def _curves(axis: Axes, study: Study, data: Any, name: str, along: str, only: int | None, finer: bool) -> bool:
    """Draw one observable along a dimension; return whether lines have more points than the study."""
    between = False
    x = _coordinate(data, along)
    words = not np.issubdtype(x.dtype, np.number)
    positions = np.arange(len(x)) if words else x
    variable, known = data[_any_variable(data, name)], study.dimensions()
    others = [d for d in variable.dims if d not in (along, "size", "seed") and not _is_draw(known, d)]
    kept = [few(data.sizes[d]) if d in known and known[d].kind == "pair" else range(data.sizes[d]) for d in others]
    combinations = list(itertools.product(*kept))
    declared = {n: o for m in study.variants().values() for n, o in m.observables().items()}
    theory = data.get(f"{name}_theory", None)
    if theory is None and f"{name}_expected" in data:
        expected = data[f"{name}_expected"]
        theory = expected.mean([d for d in ("size", "seed") if d in expected.dims])
    for k, at in enumerate(combinations):
        pick = dict(zip(others, at, strict=True))
        legend = ", ".join(f"{d.replace('_', ' ')} {_value(_coordinate(data, d)[i])}" for d, i in pick.items())
        colour = COLOURS[k % len(COLOURS)]
        if theory is not None:
            here = theory.isel({d: i for d, i in pick.items() if d in theory.dims})
            labels = {d: _coordinate(data, d)[i] for d, i in pick.items() if d in study.grid}
            if draws := [d for d in here.dims if _is_draw(known, d)]:
                _band(axis, positions, here.transpose(along, *draws).values, colour)
                here = here.median(draws)
            line = (positions, here.transpose(along).values)
            if finer and (more := _between(study, along, labels, name)) is not None:
                line, between = _merged(line, more), True
            style = "o" if words else LINES[(k // len(COLOURS)) % len(LINES)]
            axis.plot(*line, style, color=colour, label=legend or "theory",
                      zorder=2, markerfacecolor="none")  # fmt: skip
        elif legend:
            axis.plot([], [], color=colour, label=legend)  # an experiment has no line to identify its points
        if f"{name}_simulated" in data:
            points = data[f"{name}_simulated"].isel(
                {d: i for d, i in pick.items() if d in data[f"{name}_simulated"].dims}
            )
            spread = _spread if declared[name].random else _mean_and_error
            _points(axis, study, points, positions, along, colour, only, dense=len(x) > 25, summary=spread)
    symbol, scale = _declared_axis(study, along)
    axis.set_xlabel(label(along, symbol))
    axis.set_ylabel(label(name, declared[name].symbol))
    if words:
        axis.set_xticks(positions, [str(v) for v in x])
    elif scale == "log" and np.any(x > 0):
        if np.min(x) <= 0:  # t = 0 cannot be shown on a logarithmic axis
            axis.set_xlim(np.min(x[x > 0]), np.max(x))
        log_axis(axis.xaxis)
    return between


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


def _heat_map(axis: Axes, study: Study, data: Any, name: str, dims: list[str]) -> None:
    """Draw the theory over two controls, with the transition lines that the model knows."""
    x, y = dims
    values = data[_any_variable(data, name)]
    values = values.mean([d for d in ("size", "seed") if d in values.dims])
    values = values.isel({d: 0 for d in values.dims if d not in dims}).transpose(y, x)
    model = next(iter(study.models.values()))
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


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    seen: dict[str, Any] = {}
    for handle, text in zip(handles, labels, strict=True):
        seen.setdefault(text, handle)
    if len(seen) > 1:
        figure.legend(list(seen.values()), list(seen), loc="outside lower center", ncols=min(len(seen), 5))


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)
