"""Small transformers on natural language: what carries over depth, and which shapes pay at equal compute."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis

from .at_once import Lane, grid_of_lanes, trained_at_once
from .figures import NAMES, best_rates
from .model import TransformerScaling

MODEL = TransformerScaling(
    data="documentation", steps=400, batch=16, context=64, letters=64, base_width=64, base_depth=2, rate=2.0**-6.5
)
"""The rate is about the best of the base model, for the sweeps of ε and decay."""
SMALL = MODEL.replace(steps=16, batch=4, context=8, letters=16, base_width=16)
SWEPT = {
    "rate": 2.0 ** np.arange(-12.0, -3.0),
    "epsilon": 2.0 ** np.arange(-22.0, 0.0, 4.0),
    "decay": 2.0 ** np.array([-3.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
}
BY_WIDTH = tuple(NAMES)[1:]


class Table(NamedTuple):
    """Trainings of networks of several shapes (width, depth) under several rules, over one control and seeds."""

    control: str
    rules: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    seeds: int

    def lanes(self, quick: bool = False) -> list[Lane]:
        """The trainings of every shape."""
        values = SWEPT[self.control][::4] if quick else SWEPT[self.control]
        return grid_of_lanes(self.rules, self.control, values, range(2 if quick else self.seeds))


def tables(quick: bool = False) -> dict[str, Table]:
    """What both figures show; the last one has shapes of equal compute but for attention, width² × depth."""
    if quick:
        deep, shapes = ((16, 2), (16, 4)), ((32, 2), (16, 8))
    else:
        deep, shapes = ((64, 2), (64, 8), (64, 32), (64, 64)), ((128, 2), (96, 4), (64, 8), (48, 16), (32, 32))
    ends = (deep[0], deep[min(2, len(deep) - 1)])
    return {
        "rate": Table("rate", tuple(NAMES), deep, 4),
        "epsilon": Table("epsilon", BY_WIDTH, ends, 2),
        "decay": Table("decay", BY_WIDTH, ends, 2),
        "shapes": Table("rate", tuple(NAMES), shapes, 4),
    }


def together(table: Table, found: list[Any]) -> Any:
    """The datasets of a table's shapes as one over shapes; seeds that some shape lacks are NaN there."""
    import xarray as xr

    names = [f"{width} × {depth}" for width, depth in table.shapes]
    data = xr.concat(found, "shape", combine_attrs="drop", join="outer")
    width, depth = (("shape", list(x)) for x in zip(*table.shapes, strict=True))
    return data.assign_coords(shape=names, width=width, depth=depth)


def _computed(names: list[str], quick: bool) -> dict[str, Any]:
    found = {}
    for name in names:
        table = tables(quick)[name]
        lanes = table.lanes(quick)
        values, seeds = (list(dict.fromkeys(lane[i] for lane in lanes)) for i in (2, 3))
        models = [((SMALL if quick else MODEL).replace(depth=depth), width) for width, depth in table.shapes]
        found[name] = together(
            table, [trained_at_once(m, table.rules, table.control, values, seeds, width) for m, width in models]
        )
    return found


def text(quick: bool) -> dict[str, Any]:
    """Rates, ε and decay over depth; minutes on a GPU."""
    return _computed(["rate", "epsilon", "decay"], quick)


def compute(quick: bool) -> dict[str, Any]:
    """Rates of shapes of equal compute; minutes on a GPU."""
    return {"": _computed(["shapes"], quick)["shapes"]}


# --- numbers ------------------------------------------------------------------------------------------------------------


def harmless(data: Any, swept: str, slack: float = 0.1) -> Any:
    """log₂ of the largest value of a setting whose loss is within `slack` of the best, between points of the grid by a line."""
    import xarray as xr

    logs = np.log2(data[swept].values)

    def edge(losses: np.ndarray) -> np.ndarray:
        excess = np.where(np.isfinite(losses), losses, 1e9)
        excess = excess - excess.min(-1, keepdims=True) - slack
        last = excess.shape[-1] - 1 - np.argmax((excess <= 0)[..., ::-1], axis=-1)
        upper = np.minimum(last + 1, excess.shape[-1] - 1)
        low, high = (np.take_along_axis(excess, i[..., None], -1)[..., 0] for i in (last, upper))
        share = np.where(upper > last, -low / np.maximum(high - low, 1e-12), 0.0)
        return logs[last] + share * (logs[upper] - logs[last])

    return xr.apply_ufunc(edge, data.final_loss_simulated, input_core_dims=[[swept]])


def tuned_rate(data: Any) -> Any:
    """The best rate of the first shape under each rule, in the mean over seeds: that of the base model."""
    losses = data.final_loss_simulated.isel(shape=0).mean("seed", skipna=False).fillna(np.inf)
    return data.rate.isel(rate=losses.argmin("rate"))


def flops_per_step(data: Any) -> Any:
    """Floating-point operations of a training step: six per weight and token, and those of the attention's scores."""
    tokens = MODEL.batch * (MODEL.context - 1)
    return 6 * tokens * data.depth * (12 * data.width**2 + 2 * MODEL.context * data.width)


def loss_at_rate(data: Any, rates: Any) -> Any:
    """Final losses at one rate for each rule, NaN where a run diverged."""
    return data.final_loss_simulated.sel(rate=rates)


def saved(data: Any, rule: str, other: str, shape: str, rates: Any) -> Any:
    """The share of compute that `rule` saves: it reaches the final loss of `other` at this shape so much earlier, by seed."""
    import xarray as xr

    curve = data.test_loss_simulated.sel(rule=rule, shape=shape, rate=rates.sel(rule=rule), drop=True)
    goal = loss_at_rate(data, rates).sel(rule=other, shape=shape, drop=True)
    steps = data.time.values.astype(float)

    def reached(losses: np.ndarray, goal: np.ndarray) -> np.ndarray:
        falling = np.minimum.accumulate(losses, axis=-1)
        found = [np.interp(-g, -row, steps) if row[-1] <= g else np.nan for row, g in zip(falling, goal, strict=True)]
        return 1 - np.array(found) / steps[-1]

    return xr.apply_ufunc(reached, curve.transpose("seed", "time"), goal, input_core_dims=[["time"], []])


# --- pictures -----------------------------------------------------------------------------------------------------------


def _points(axis: Any, x: Any, values: Any, i: int, name: str, shift: int = 0) -> None:
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    axis.errorbar(x, values.mean("seed", skipna=False), error, fmt=MARKERS[i] + LINES[i % len(LINES)], color=COLOURS[i + shift],
                  markersize=3.8, label=name)  # fmt: skip


def _window(losses: Any, above: float) -> tuple[float, float]:
    low = float(losses.mean("seed").min())
    return low - 0.05, low + above


def draw_text(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    rate = data["rate"]
    figure, axes = plt.subplots(2, 4, figsize=(15.0, 7.2), layout="constrained")
    for axis, rule in zip(axes[0], rate.rule.values, strict=False):
        for i, depth in enumerate(rate.depth.values):
            _points(axis, rate.rate, rate.final_loss_simulated.sel(rule=rule).isel(shape=i), i, f"L = {depth}")
        axis.set(xlabel=label("rate of the base model", r"\eta"), title=NAMES[str(rule)],
                 ylim=_window(rate.final_loss_simulated, 1.0))  # fmt: skip
        log_axis(axis.xaxis)
    axes[0, 0].set_ylabel("test loss at the end, per character")
    axes[0, 0].legend()
    best = best_rates(rate)
    kept = loss_at_rate(rate, tuned_rate(rate)) - rate.final_loss_simulated.min("rate")
    for i, rule in enumerate(rate.rule.values):
        _points(axes[1, 0], rate.depth, best.sel(rule=rule), i, NAMES[str(rule)], 3)
        _points(axes[1, 1], rate.depth, kept.sel(rule=rule), i, NAMES[str(rule)], 3)
    for axis, words in (
        (axes[1, 0], "best rate, log₂"),
        (axes[1, 1], "loss at the base model's best rate, above the best"),
    ):
        axis.set(xlabel=label("depth", "L"), title=words)
        log_axis(axis.xaxis)
    axes[1, 0].legend()
    axes[1, 1].set_yscale("symlog", linthresh=0.01)
    for axis, (swept, symbol) in zip(axes[1, 2:], (("epsilon", r"\epsilon"), ("decay", r"\lambda")), strict=True):
        runs = data[swept]
        for k, rule in enumerate(runs.rule.values):
            for i, depth in enumerate(runs.depth.values):
                values = runs.final_loss_simulated.sel(rule=rule).isel(shape=i)
                _points(axis, runs[swept], values, 2 * k + i, f"{NAMES[str(rule)]}, L = {depth}")
        words = {"epsilon": "Adam's ε of the base model", "decay": "weight decay of the base model"}[swept]
        axis.set(
            xlabel=label(words, symbol), title=f"loss against {words}", ylim=_window(runs.final_loss_simulated, 1.0)
        )
        log_axis(axis.xaxis)
        axis.legend(fontsize=7)
    figure.suptitle(
        f"Transformers of width {int(rate.width[0])} on Python's documentation, with hyperparameters of a base model of depth 2",
        fontsize=11,
    )
    return figure


def draw_compute(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""]
    rates = tuned_rate(runs)
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.0), layout="constrained")
    kept, best = loss_at_rate(runs, rates), runs.final_loss_simulated.min("rate")
    for axis, values, words in zip(axes, (kept, best), ("rate tuned on the first shape", "rate tuned on every shape"),
                                   strict=False):  # fmt: skip
        for i, rule in enumerate(runs.rule.values):
            _points(axis, range(runs.sizes["shape"]), values.sel(rule=rule), i, NAMES[str(rule)], 3)
        axis.set_xticks(range(runs.sizes["shape"]), list(runs["shape"].values))
        axis.set(xlabel="width × depth, at about equal compute", title=words, ylim=_window(best, 0.6))
    axes[0].set_ylabel("test loss at the end, per character")
    axes[0].legend()
    deepest, flops = runs["shape"].values[-1], flops_per_step(runs)
    for i, rule in enumerate(runs.rule.values):
        curve = runs.test_loss_simulated.sel(rule=rule, shape=deepest, rate=rates.sel(rule=rule)).isel(
            time=slice(1, None)
        )
        _points(axes[2], curve.time * float(flops.sel(shape=deepest)), curve, i, NAMES[str(rule)], 3)
    log_axis(axes[2].xaxis)
    axes[2].set(xlabel="floating-point operations", title=f"the deepest shape, {deepest}, rate of the first")
    figure.suptitle("Shapes of transformers at equal compute, on Python's documentation", fontsize=11)
    return figure


RECIPES = {
    "transformer-scaling-text": Recipe(
        text,
        draw_text,
        sentence="Loss of transformers on text against rate, ε and weight decay of a base model, at depths from 2 to 64.",
    ),
    "transformer-scaling-shapes": Recipe(
        compute,
        draw_compute,
        sentence="Loss of transformers of different shapes on text at about equal compute, under four rules.",
    ),
}
