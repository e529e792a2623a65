"""How much sooner an error is reached with easy samples first: training times of tuned arms at equal total samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis

from .figures import ARMS, NAMES, SETTING, tuned

ALL = ("hard", *ARMS)
SPARSE, FULL = "a fifth of the inputs relevant", "nearly all inputs relevant"
DENSITIES = {SPARSE: 0.2, FULL: 0.98}


def times(quick: bool) -> dict[str, Any]:
    import xarray as xr

    horizons = np.array([4.0, 8.0]) if quick else np.geomspace(1.5, 24.0, 9)
    shares = np.array([0.0, 0.3]) if quick else np.array([0.0, 0.1, 0.25, 0.5])
    errors = np.full((len(DENSITIES), len(horizons), len(ALL)), np.nan)
    for i, density in enumerate(DENSITIES.values()):
        setting = {**SETTING, "relevant": density}
        for j, horizon in enumerate(horizons):
            for arm in ARMS[: 1 if quick else None]:
                found = [error for error, _ in tuned(arm, float(horizon), shares, setting)]
                errors[i, j, 0], errors[i, j, ALL.index(arm)] = found[0], min(found)
    table = xr.Dataset(
        {"error": (("inputs", "horizon", "arm"), errors)},
        {"inputs": list(DENSITIES), "horizon": horizons, "arm": list(ALL)},
    )
    return {"": table}


def time_to(table: Any, inputs: str, arm: str, error: float) -> float:
    """The training time at which the tuned arm reaches an error, interpolated in log time; NaN outside the horizons."""
    curve = table.error.sel(inputs=inputs, arm=arm).values
    if not (np.isfinite(curve).all() and curve.min() <= error <= curve[0]):
        return float("nan")
    best = np.minimum.accumulate(curve)
    return float(np.exp(np.interp(-error, -best, np.log(table.horizon.values))))


def draw_times(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(13.0, 4.0), layout="constrained")
    colours = dict(zip(ALL, (COLOURS[3], *COLOURS[:3]), strict=True))
    for axis, inputs in zip(axes, DENSITIES, strict=False):
        for arm in ALL:
            axis.plot(table.horizon, table.error.sel(inputs=inputs, arm=arm), "o-", color=colours[arm], markersize=3.5,
                      label=NAMES[arm])  # fmt: skip
        axis.set(xlabel=label("training time", "T"), ylabel="error on hard inputs")
        axis.set_title(inputs)
        log_axis(axis.xaxis)
        axis.legend(fontsize=8)
    hard = table.error.sel(inputs=SPARSE, arm="hard").values
    levels = np.linspace(hard[1], hard[-2], 12)
    for arm in ARMS:
        sooner = [time_to(table, SPARSE, "hard", e) / time_to(table, SPARSE, arm, e) for e in levels]
        axes[2].plot(levels, sooner, "o-", color=colours[arm], markersize=3.5, label=NAMES[arm])
    axes[2].axhline(1, color="0.5", linewidth=0.8, zorder=0)
    axes[2].invert_xaxis()
    axes[2].set(xlabel="error to be reached", ylabel="time with hard samples alone over time")
    axes[2].set_title(f"speed-up, {SPARSE}")
    axes[2].legend(fontsize=8)
    figure.suptitle(
        "Time to reach an error: every arm at its own best constant rate, decay and share (theory)", fontsize=11
    )
    return figure


RECIPES = {
    "curriculum-online-time": Recipe(
        times,
        draw_times,
        sentence="Training time to reach an error for every order of samples, each tuned, at equal total samples.",
    )
}
