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
    """log₂ of the rate with the smallest final loss, by a parabola through the best point of the grid and its neighbours."""
    import xarray as xr

    log_rate, loss = np.log2(data.rate.values), data.final_loss_simulated

    def vertex(losses: np.ndarray) -> np.ndarray:
        filled = np.where(np.isfinite(losses), losses, 1e9)
        best = np.clip(filled.argmin(-1), 1, len(log_rate) - 2)
        left, here, right = (np.take_along_axis(filled, (best + k)[..., None], -1)[..., 0] for k in (-1, 0, 1))
        bend = np.maximum(left - 2 * here + right, 1e-12)
        return log_rate[best] + (log_rate[1] - log_rate[0]) * np.clip(0.5 * (left - right) / bend, -1.0, 1.0)

    return xr.apply_ufunc(vertex, loss, input_core_dims=[["rate"]])


def changes(data: Any) -> Any:
    """Mean absolute change of the last block's stream after the recorded steps, at the middle rate of the grid."""
    middle = data.rate[data.sizes["rate"] // 2]
    return data.change_simulated.sel(rate=middle).isel(step=-1, layer=-1)


def draw_rates(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    deep, broad = data["depths"].isel(size=0), data["widths"]
    longer = data["longer"].isel(size=0)
    figure, axes = plt.subplots(3, 4, figsize=(16.0, 11.0), layout="constrained")
    for row, runs in ((axes[0], deep), (axes[2], longer)):
        for axis, rule in zip(row, runs.rule.values, strict=False):
            for i, depth in enumerate(runs.depth.values):
                loss = runs.final_loss_simulated.sel(rule=rule, depth=depth)
                error = loss.std("seed", ddof=1) / np.sqrt(loss.sizes["seed"])
                axis.errorbar(loss.rate, loss.mean("seed", skipna=False), error, fmt=MARKERS[i] + "-", color=COLOURS[i],
                              markersize=3.8, label=f"L = {depth}")  # fmt: skip
            log_axis(axis.xaxis)
            words = "loss against rate" if runs is deep else "longer training"
            axis.set(
                xlabel=label("rate", r"\eta"),
                title=f"{NAMES[str(rule)]}: {words}",
                ylim=_window(runs.final_loss_simulated),
            )
        row[0].set_ylabel("test loss at the end")
        row[0].legend()
    axes[0, 3].set_axis_off()
    edge = largest_rates(longer)
    for i, rule in enumerate(longer.rule.values):
        values = edge.sel(rule=rule)
        error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
        axes[2, 3].errorbar(values.depth, values.mean("seed"), error, fmt=MARKERS[i] + LINES[i], color=COLOURS[i + 3],
                            label=NAMES[str(rule)])  # fmt: skip
    log_axis(axes[2, 3].xaxis)
    axes[2, 3].set(xlabel=label("depth", "L"), ylabel="largest rate that trains, log₂", title="longer training: edge")
    axes[2, 3].legend()
    best, moved = best_rates(deep), changes(deep)
    for i, rule in enumerate(deep.rule.values):
        for axis, values in ((axes[1, 0], best.sel(rule=rule)), (axes[1, 1], moved.sel(rule=rule))):
            error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
            axis.errorbar(
                values.depth,
                values.mean("seed"),
                error,
                fmt=MARKERS[i] + LINES[i],
                color=COLOURS[i + 3],
                label=NAMES[str(rule)],
            )
    best, moved = best_rates(broad), changes(broad)
    for i, rule in enumerate(broad.rule.values):
        for axis, values in ((axes[1, 2], best.sel(rule=rule)), (axes[1, 3], moved.sel(rule=rule))):
            error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
            axis.errorbar(
                values["size"],
                values.mean("seed"),
                error,
                fmt=MARKERS[i] + LINES[i],
                color=COLOURS[i + 3],
                label=NAMES[rule],
            )
    for axis in axes[1]:
        log_axis(axis.xaxis)
    for axis, what in zip(axes[1], ("depth", "depth", "width", "width"), strict=True):
        axis.set_xlabel(label(what, "L" if what == "depth" else "N"))
    for axis in axes[1, ::2]:
        axis.set(ylabel="best rate, log₂", title="best learning rate")
    for axis in axes[1, 1::2]:
        log_axis(axis.yaxis)
        axis.set(ylabel="change of the last block's stream", title="coordinate check: change after 8 steps")
    axes[1, 0].legend()
    axes[1, 2].legend()
    figure.suptitle(
        f"Transformers with the hyperparameters of a small base model (widths {int(data['depths']['size'][0])} and, last row, "
        f"{int(data['longer']['size'][0])})",
        fontsize=11,
    )
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
            words = f"α = {'½' if exponent == 0.5 else '1'}: slope {float(found.sel(exponent=exponent)):.2f}"
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
