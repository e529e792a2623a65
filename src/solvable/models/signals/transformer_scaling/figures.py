"""Coordinate checks, learning rates, laziness and compute of small transformers across depth and width."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .laziness import measured, slopes
from .model import TransformerScaling

NAMES = {"standard": "standard", "mup": "μP", "depth-mup": "depth-μP", "completep": "CompleteP"}
TUNED = ["standard", "mup", "completep"]
LONGER = ["standard", "mup", "depth-mup"]
KEPT = ["test_loss_simulated", "final_loss_simulated", "excess_loss_simulated", "change_simulated"]


def rates(quick: bool) -> dict[str, Any]:
    model, grid = TransformerScaling(steps=50), 2.0 ** np.arange(-10.0, -3.0)
    depths, sizes, wide, seeds = [2, 16], [32], [32, 128], 4
    if quick:
        model, grid = model.replace(steps=16, batch=4, context=8), grid[::3]
        depths, wide, seeds = [2, 4], [16, 32], 2
    deep = Study(model, {"rule": TUNED, "depth": depths, "rate": grid}, sizes=sizes, seeds=seeds).run()
    broad = Study(model, {"rule": ["standard", "mup"], "rate": grid}, sizes=wide, seeds=seeds).run()
    return {"depths": deep[KEPT], "widths": broad[KEPT], "longer": longer_study(quick).run()[KEPT]}


def longer_study(quick: bool) -> Study:
    """Longer training of deeper networks under the rules before CompleteP; minutes on a GPU."""
    model, grid = (
        TransformerScaling(steps=400, batch=32, context=32, letters=16, base_width=64),
        2.0 ** np.arange(-13, -3.0),
    )
    depths, size, seeds = [2, 4, 8, 16, 32], 64, 4
    if quick:
        model, grid = TransformerScaling(steps=16, batch=4, context=8), grid[4::3]
        depths, size, seeds = [2, 4], 32, 2
    return Study(model, {"rule": LONGER, "depth": depths, "rate": grid}, sizes=[size], seeds=seeds)


def text(quick: bool) -> dict[str, Any]:
    """Longer training on natural language; minutes on a GPU."""
    model, grid = (
        TransformerScaling(data="documentation", steps=400, batch=16, context=64, letters=64, base_width=64),
        2.0 ** np.arange(-12.0, -3.0),
    )
    depths, size, seeds = [2, 8], 64, 4
    if quick:
        model, grid = model.replace(steps=16, batch=4, context=8, letters=16, base_width=16), grid[::3]
        depths, size, seeds = [2, 4], 16, 2
    over = {"rule": list(NAMES), "depth": depths, "rate": grid}
    return {"": Study(model, over, sizes=[size], seeds=seeds).run()[KEPT]}


def above_best(data: Any) -> Any:
    """Final losses at the rate that is best at the first depth, above those at the best rate of each depth."""
    loss = data.final_loss_simulated
    tuned = loss.isel(depth=0, drop=True).mean("seed").argmin("rate")
    return loss.isel(rate=tuned) - loss.isel(rate=loss.mean("seed").argmin("rate"))


def draw_text(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""].isel(size=0)
    figure, axes = plt.subplots(1, 5, figsize=(17.0, 3.8), layout="constrained")
    for axis, rule in zip(axes, runs.rule.values, strict=False):
        for i, depth in enumerate(runs.depth.values):
            loss = runs.final_loss_simulated.sel(rule=rule, depth=depth)
            error = loss.std("seed", ddof=1) / np.sqrt(loss.sizes["seed"])
            axis.errorbar(loss.rate, loss.mean("seed"), error, fmt=MARKERS[i] + "-", color=COLOURS[i], markersize=3.8,
                          label=f"L = {depth}")  # fmt: skip
        log_axis(axis.xaxis)
        axis.set(xlabel=label("rate of the base model", r"\eta"), title=NAMES[str(rule)], ylim=(1.85, 3.0))
    axes[0].set_ylabel("test loss at the end, per character")
    axes[0].legend()
    places = np.arange(runs.sizes["rule"])
    for i, (values, words) in enumerate(
        (
            (best_rates(runs).diff("depth").isel(depth=0), "best rate, octaves"),
            (above_best(runs).isel(depth=-1), "loss"),
        )
    ):
        error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
        axes[4].errorbar(
            places + 0.15 * i, values.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i + 3], label=words
        )
    axes[4].axhline(0, color="0.6", linewidth=0.8)
    axes[4].set_xticks(places, [NAMES[str(rule)] for rule in runs.rule.values], fontsize=8)
    axes[4].set_title(f"from L = {int(runs.depth[0])} to {int(runs.depth[-1])}: change of the best rate,\n"
                      "loss at the old best rate above the best", fontsize=9)  # fmt: skip
    axes[4].legend()
    figure.suptitle(
        f"Transformers of width {int(data['']['size'][0])} on Python's documentation, with the hyperparameters of depth "
        f"{int(runs.depth[0])}",
        fontsize=11,
    )
    return figure


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


def compute(quick: bool) -> dict[str, Any]:
    model, grid = TransformerScaling(steps=50, base_width=64), 2.0 ** np.arange(-8.0, -4.0)
    shapes, seeds = {"64 × 2": (64, 2), "32 × 8": (32, 8)}, 2
    if quick:
        model, grid, shapes = (
            model.replace(steps=16, batch=4, context=8),
            grid[::2],
            {"32 × 2": (32, 2), "16 × 8": (16, 8)},
        )
    found = {}
    for name, (width, depth) in shapes.items():
        runs = Study(
            model.replace(depth=depth), {"rule": list(NAMES)[1:], "rate": grid}, sizes=[width], seeds=seeds
        ).run()
        found[name.replace(" × ", "x")] = runs[KEPT[:3]]
    return found


def at_base_rate(data: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By shape: final losses at the rate that is best for the first shape under the same rule, and at the best rate of all."""
    (_, first), *_ = found = sorted(data.items(), key=lambda item: -int(item[1]["size"][0]))
    tuned = first.final_loss_simulated.isel(size=0).mean("seed", skipna=False).fillna(np.inf).argmin("rate")
    losses = {name: part.final_loss_simulated.isel(size=0) for name, part in found}
    return {name: (loss.isel(rate=tuned), loss.min("rate")) for name, loss in losses.items()}


def draw_compute(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    found = at_base_rate(data)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9), sharey=True)
    for k, (axis, words) in enumerate(
        zip(axes, ("rate tuned on the first shape", "rate tuned on every shape"), strict=True)
    ):
        for i, rule in enumerate(list(NAMES)[1:]):
            values = [pair[k].sel(rule=rule) for pair in found.values()]
            means = [float(v.mean("seed")) for v in values]
            errors = [float(v.std("seed", ddof=1)) / np.sqrt(v.sizes["seed"]) for v in values]
            axis.errorbar(
                range(len(found)), means, errors, fmt=MARKERS[i] + LINES[i], color=COLOURS[i + 4], label=NAMES[rule]
            )
        axis.set_xticks(range(len(found)), [name.replace("x", " × ") for name in found])
        axis.set(xlabel="width × depth, at equal compute", title=words)
    axes[0].set_ylabel("test loss at the end")
    axes[0].legend()
    figure.suptitle("Deeper shapes at equal compute: what is lost without tuning again", fontsize=11)
    return figure


RECIPES = {
    "transformer-scaling-rates": Recipe(
        rates,
        draw_rates,
        sentence="Loss of small transformers against the learning rate at several depths, under four rules.",
    ),
    "transformer-scaling-text": Recipe(
        text,
        draw_text,
        sentence="Loss of transformers on natural language against the rate of a base model, at two depths, under four rules.",
        also=("depth-transfer",),
    ),
    "transformer-scaling-laziness": Recipe(
        laziness,
        draw_laziness,
        sentence="Non-linear share of a residual block's change in one step of Adam, against depth.",
    ),
    "transformer-scaling-compute": Recipe(
        compute,
        draw_compute,
        sentence="Loss of small transformers of different shapes at equal compute, under three rules.",
    ),
}
