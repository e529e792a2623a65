"""A census of the minima that descents from random starts find, paths between them, and descent on single samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, label

from .census import census, height, narrow_barrier, one_pass, wide_path

UNITS, EXTRA = (6, 8, 10, 12), (0, 1)
MOST = 24  # levels kept of a census
NEAR = (5, 8, 12)  # units of the teachers near whose fixed points single-sample descent starts
RATE, DURATION, PUSH, SIZE = 0.03, 450.0, 0.2, 24


def count(quick: bool, pieces: Any) -> dict[str, Any]:
    import xarray as xr

    units, extra, near = ((6, 8), (0,), (5,)) if quick else (UNITS, EXTRA, NEAR)
    starts, steps = (64, 1500) if quick else (4096, 8000)
    seeds, points, duration = (2, 10, 10.0) if quick else (16, 60, DURATION)
    names = ("loss", "share", "lowest", "zeros", "apart")
    shape = (len(units), len(extra), MOST)
    table = {name: np.full(shape, np.nan) for name in names} | {
        n: np.full(shape[:2], np.nan) for n in ("ended", "others")
    }
    for i, m in enumerate(units):
        for j, more in enumerate(extra):
            found = pieces.get(f"census, M = {m}, K = {m + more}", [starts, steps, MOST],
                               lambda m=m, more=more: census(m, more, starts, steps, MOST))  # fmt: skip
            for name, values in table.items():
                values[i, j] = found[name]
    dims = ("teachers", "extra", "level")
    minima = xr.Dataset(
        {n: (dims[: v.ndim], v) for n, v in table.items()}, {"teachers": list(units), "extra": list(extra)}
    )
    paths = {"narrow": (("teachers",), [narrow_barrier(m, 50 if quick else 1500) for m in units]),
             "wide": (("teachers",), [height(wide_path(m)) for m in units])}  # fmt: skip
    runs = {m: pieces.get(f"single samples, M = {m}", [seeds, points, duration, RATE, PUSH, SIZE],
                          lambda m=m: one_pass(m, SIZE, RATE, duration, PUSH, seeds, points)) for m in near}  # fmt: skip
    online = xr.Dataset(
        {
            "descent": (("teachers", "seed", "time"), np.stack([runs[m]["descent"] for m in near])),
            "flow": (("teachers", "time"), np.stack([runs[m]["flow"] for m in near])),
            "fixed": (("teachers",), np.array([float(runs[m]["fixed"]) for m in near])),
        },
        {"teachers": list(near), "time": np.linspace(0, duration, points + 1)},
    )
    return {"": minima.assign(paths), "online": online}


def draw_count(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    minima, online = data[""], data["online"]
    figure, axes = plt.subplots(1, 4, figsize=(15.4, 3.9), layout="constrained")
    for axis, more in zip(axes, minima.extra.values, strict=False):
        for i, units in enumerate(minima.teachers.values):
            at = minima.sel(teachers=units, extra=more)
            axis.scatter(units + 0.12 * (at.apart - 1), at.loss, s=8 + 260 * at.share, color=COLOURS[i], alpha=0.75,
                         label=f"{int(units)} units: {float(at.share.where(at.loss < 1e-9).sum()):.0%} global")  # fmt: skip
        axis.set(xlabel=label("units of the teacher", "M"), ylabel=label("loss at the end", "L"), ylim=(-0.004, None))
        axis.set_xticks(minima.teachers.values)
        axis.set_title("as many units" if more == 0 else f"{int(more)} extra unit")
        axis.legend(fontsize=7.5, loc="upper left", markerscale=0.5)
    for i, units in enumerate(minima.teachers.values):
        at = minima.sel(teachers=units, extra=0)
        axes[2].plot(
            at.apart, at.loss, MARKERS[i], color=COLOURS[i], markersize=5, alpha=0.8, label=f"{int(units)} units"
        )
    axes[2].set(xlabel="teacher units outside the largest group alike", ylabel=label("loss of the minimum", "L"))
    axes[2].set_title("broken symmetry against loss, as many units")
    axes[2].legend(fontsize=7.5)
    for i, units in enumerate(online.teachers.values):
        at = online.sel(teachers=units)
        runs, scale = at.descent / at.fixed, float(at.fixed)
        axes[3].plot(online.time, at.flow / scale, color=COLOURS[i], label=f"{int(units)} units: flow")
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axes[3].errorbar(online.time, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=2.5)
    axes[3].axhline(1, color=INK, linewidth=0.7, linestyle=":")
    axes[3].set(xlabel="time, rate × samples / d", ylabel="loss over that of the fixed point", ylim=(0, None))
    axes[3].set_title("from near the fixed point `turned`:\nsingle samples (points), flow (lines)")
    axes[3].legend(fontsize=7.5)
    figure.suptitle(
        "Census of minima from random starts (area: share of starts; columns: units outside the symmetric group)",
        fontsize=11,
    )
    return figure


RECIPES = {
    "relu-landscape-census": Recipe(
        count,
        draw_count,
        resumes=True,
        sentence="Minima of a sum of ReLUs from random starts by loss and symmetry, and descent on single samples near a fixed "
        "point: whether two families suffice.",
    )
}
