"""Coordinate checks, learning rates, laziness and compute of small transformers across depth and width."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .at_once import Table, together, trained
from .laziness import measured, slopes
from .model import TransformerScaling

NAMES = {"standard": "standard", "mup": "μP", "depth-mup": "depth-μP", "completep": "CompleteP"}
TUNED = ["standard", "mup", "completep"]
KEPT = ["test_loss_simulated", "final_loss_simulated", "excess_loss_simulated", "change_simulated"]


def rates(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    model, grid = TransformerScaling(steps=50), 2.0 ** np.arange(-10.0, -3.0)
    depths, sizes, wide, seeds = [2, 16], [32], [32, 128], 4
    if quick:
        model, grid = model.replace(steps=16, batch=4, context=8), grid[::3]
        depths, wide, seeds = [2, 4], [16, 32], 2
    deep = Study(model, {"rule": TUNED, "depth": depths, "rate": grid}, sizes=sizes, seeds=seeds).run()
    broad = Study(model, {"rule": ["standard", "mup"], "rate": grid}, sizes=wide, seeds=seeds).run()
    table = longer_table(quick)
    portions = table.portions()
    longer = together(table, list(zip(portions, trained(portions, pieces or Pieces()), strict=True)))
    return {"depths": deep[KEPT], "widths": broad[KEPT], "longer": longer}


def longer_table(quick: bool) -> Table:
    """Longer training of deeper networks; minutes on a GPU."""
    model, grid = (
        TransformerScaling(steps=400, batch=32, context=32, letters=16, base_width=64),
        2.0 ** np.arange(-13, -3.0),
    )
    depths, size, seeds = [2, 4, 8, 16, 32], 64, 4
    if quick:
        model, grid = TransformerScaling(steps=16, batch=4, context=8), grid[4::3]
        depths, size, seeds = [2, 4], 32, 2
    shapes = tuple((size, depth) for depth in depths)
    return Table(model, "rate", tuple(map(float, grid)), tuple(NAMES), shapes, seeds)


def largest_rates(data: Any, slack: float = 0.1) -> Any:
    """log₂ of the largest rate whose final loss is within `slack` of the best of its rule, depth and seed."""
    loss = data.final_loss_simulated
    works = loss <= loss.min("rate") + slack
    return np.log2(data.rate).where(works).max("rate")


def best_rates(data: Any) -> Any:
    """log₂ of the rate with the smallest final loss, by a parabola through the best point of the grid and its neighbours.

    NaN where no run ended.
    """
    import xarray as xr

    log_rate, loss = np.log2(data.rate.values), data.final_loss_simulated

    def vertex(losses: np.ndarray) -> np.ndarray:
        filled = np.where(np.isfinite(losses), losses, 1e9)
        best = np.clip(filled.argmin(-1), 1, len(log_rate) - 2)
        left, here, right = (np.take_along_axis(filled, (best + k)[..., None], -1)[..., 0] for k in (-1, 0, 1))
        bend = np.maximum(left - 2 * here + right, 1e-12)
        found = log_rate[best] + (log_rate[1] - log_rate[0]) * np.clip(0.5 * (left - right) / bend, -1.0, 1.0)
        return np.where(np.isfinite(losses).any(-1), found, np.nan)

    return xr.apply_ufunc(vertex, loss, input_core_dims=[["rate"]])


def changes(data: Any) -> Any:
    """Mean absolute change of the last block's stream after the recorded steps, at the middle rate of the grid."""
    middle = data.rate[data.sizes["rate"] // 2]
    return data.change_simulated.sel(rate=middle).isel(step=-1, layer=-1)


def points(axis: Any, x: Any, values: Any, i: int, name: str, shift: int = 0) -> None:
    """Means over seeds with their errors, nothing where a run diverged; rules start at another colour than depths (`shift`)."""
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    axis.errorbar(x, values.mean("seed", skipna=False), error, fmt=MARKERS[i] + LINES[i % len(LINES)], color=COLOURS[i + shift],
                  markersize=3.8, label=name)  # fmt: skip


def draw_rates(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    deep, broad, longer = data["depths"].isel(size=0), data["widths"], data["longer"]
    broad = broad.assign_coords(width=("size", broad["size"].values))
    by_depth = longer.swap_dims(shape="depth")
    few, many, width = TransformerScaling(steps=50).steps, longer_table(False).model.steps, int(longer.width[0])
    figure, axes = plt.subplots(3, 5, figsize=(19.0, 11.0), layout="constrained")
    rows = (
        (axes[0], deep, "depth", f"width {int(data['depths']['size'][0])}, {few} steps"),
        (axes[1], by_depth, "depth", f"width {width}, {many} steps"),
        (axes[2], broad, "width", f"depth 2, {few} steps"),
    )
    for row, runs, across, words in rows:
        symbol = {"depth": "L", "width": "N"}[across]
        dim = runs[across].dims[0]
        for axis, rule in zip(row, runs.rule.values, strict=False):
            for i, value in enumerate(runs[across].values):
                points(
                    axis, runs.rate, runs.final_loss_simulated.sel(rule=rule).isel({dim: i}), i, f"{symbol} = {value}"
                )
            log_axis(axis.xaxis)
            axis.set(xlabel=label("rate of the base model", r"\eta"), title=f"{NAMES[str(rule)]}: {words}",
                     ylim=_window(runs.final_loss_simulated))  # fmt: skip
        row[0].set_ylabel("test loss at the end, per letter")
        row[0].legend()
    shown = (
        (axes[0, 3], best_rates(deep), "depth", "L", "best rate, log₂", "best rate"),
        (
            axes[0, 4],
            changes(deep),
            "depth",
            "L",
            "mean change of the stream",
            "change of the last block after 8 steps",
        ),
        (axes[1, 4], best_rates(by_depth), "depth", "L", "best rate, log₂", f"best rate, {many} steps"),
        (
            axes[2, 2],
            largest_rates(by_depth),
            "depth",
            "L",
            "largest rate, log₂",
            f"largest rate that trains, {many} steps",
        ),
        (axes[2, 3], best_rates(broad), "width", "N", "best rate, log₂", "best rate"),
        (
            axes[2, 4],
            changes(broad),
            "width",
            "N",
            "mean change of the stream",
            "change of the last block after 8 steps",
        ),
    )
    for axis, values, across, symbol, what, title in shown:
        for rule in values.rule.values:
            i = list(NAMES).index(str(rule))
            points(axis, values[across], values.sel(rule=rule), i, NAMES[str(rule)], 3)
        log_axis(axis.xaxis)
        axis.set(xlabel=label(across, symbol), ylabel=what, title=title)
        if what.startswith("mean"):
            log_axis(axis.yaxis)
        axis.legend()
    figure.suptitle("Transformers on a random language with the hyperparameters of a small base model", fontsize=11)
    return figure


def _window(losses: Any) -> tuple[float, float]:
    low = float(losses.min())
    return low - 0.02, low + 0.5


def laziness(quick: bool) -> dict[str, Any]:
    return {"": measured([2, 8, 32] if quick else [2, 4, 8, 16, 32, 64], [0.5, 1.0], 64, 4 if quick else 16)}


def draw_laziness(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    shares = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    titles = {"nonlinear": "non-linear part / change", "change": "change / output", "rest": "non-linear part / output"}
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        found = slopes(shares, name).mean("seed")
        for i, exponent in enumerate(shares.exponent.values):
            values = shares[name].sel(exponent=exponent)
            error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
            words = f"branches 1/{'√L' if exponent == 0.5 else 'L'}: slope {float(found.sel(exponent=exponent)):.2f}"
            axis.errorbar(
                values.depth, values.mean("seed"), error, fmt=MARKERS[i] + LINES[i], color=COLOURS[i], label=words
            )
        log_axis(axis.xaxis)
        log_axis(axis.yaxis)
        axis.set(xlabel=label("depth", "L"), title=title)
        axis.legend()
    axes[0].set_ylabel("ratio of norms")
    figure.suptitle(
        "One step of Adam on a residual block: only with branches 1/L does it stay non-linear in its weights",
        fontsize=11,
    )
    return figure


RECIPES = {
    "transformer-scaling-rates": Recipe(
        rates,
        draw_rates,
        resumes=True,
        sentence="Loss of small transformers against the learning rate at several depths, under four rules.",
    ),
    "transformer-scaling-laziness": Recipe(
        laziness,
        draw_laziness,
        sentence="Non-linear share of a residual block's change in one step of Adam, against depth.",
    ),
}
