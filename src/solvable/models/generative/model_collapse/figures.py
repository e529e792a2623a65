"""Generations of models: lost categories, excess loss, volume of a covariance, and the price that small groups pay."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, log_axis, standard_error
from solvable.study import Study

from .model import ModelCollapse

TAILS = {
    "only synthetic": {"data": "replace"},
    "5 % fresh": {"fresh": 0.05},
    "accumulated": {"data": "accumulate"},
    "only real": {"fresh": 1.0},
}
LOSSES = {
    "only synthetic": {"data": "replace"},
    "25 % fresh": {"fresh": 0.25},
    "accumulated, same inputs": {"data": "accumulate-same-inputs"},
    "accumulated": {"data": "accumulate"},
}
VOLUMES = {f"n = {n}": {"samples": n} for n in (40, 400)}


def generations(quick: bool) -> dict[str, Any]:
    many, some, seeds = (100, 20, 2) if quick else (2000, 100, 10)
    regression = ModelCollapse(chain="regression", directions=20, samples=60, shares=[1.0], generations=8)
    gaussian = ModelCollapse(chain="gaussian", data="replace", samples=40, shares=[1.0], generations=10)
    pair = ModelCollapse(chain="regression", data="replace", samples=200, shares=[0.1, 0.9], generations=8)
    return {
        "": Study(ModelCollapse(), arms=TAILS, sizes=[many], seeds=seeds).run(),
        "loss": Study(regression, arms=LOSSES, sizes=[some], seeds=seeds).run(),
        "volume": Study(gaussian, arms=VOLUMES, sizes=[some], seeds=seeds).run(),
        "groups": Study(pair, sizes=[2 * some], seeds=seeds).run(),
    }


def _curve(axis: Any, data: Any, name: str, i: int, words: str, line: str = "-", shift: float = 0.0) -> None:
    """The theory as a line, the mean over seeds as points."""
    runs = data[f"{name}_simulated"].isel(size=-1)
    error = standard_error(runs)
    axis.plot(data.generation, data[f"{name}_theory"] + shift, line, color=COLOURS[i], label=words)
    axis.errorbar(
        data.generation,
        runs.mean("seed") + shift,
        error,
        fmt=MARKERS[i],
        color=COLOURS[i],
        markersize=3.5,
        linestyle="",
    )


def draw_generations(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10.0, 7.4))
    (tails, loss), (volume, groups) = axes
    for i, arm in enumerate(TAILS):
        for j, words in enumerate((arm, "")):
            _curve(tails, data[""].sel(arm=arm).isel(group=j), "lost", i, words, LINES[j])
    tails.set(ylabel="probability that a category is lost", ylim=(-0.02, 1))
    tails.set_title("50 samples a generation; share 0.05 (solid), 0.3 (dashed)")
    tails.legend(loc="upper left")
    for i, arm in enumerate(LOSSES):
        _curve(loss, data["loss"].sel(arm=arm).isel(group=0), "excess_loss", i, arm)
    one = float(data["loss"].excess_loss_theory.isel(arm=0, group=0, generation=0))
    loss.axhline(one * np.pi**2 / 6, color="0.5", linestyle=":", linewidth=1, zorder=0)
    loss.text(8, one * np.pi**2 / 6 + 0.03, "π²/6 of the first", fontsize=8, color="0.4", ha="right")
    loss.set(ylabel="excess loss of a regression")
    loss.set_title("20 inputs, 60 samples a generation, noise σ² = 0.5")
    loss.legend(loc="upper left")
    for i, arm in enumerate(VOLUMES):
        at = data["volume"].sel(arm=arm).isel(group=0)
        _curve(volume, at, "log_volume", i, f"log-determinant, {arm} samples".replace("n = ", ""))
        _curve(volume, at, "mean_variance", i + 2, f"variance, {arm} samples".replace("n = ", ""), "--", -1.0)
    volume.set_title("only synthetic samples of a Gaussian in 10 dimensions")
    volume.set(ylabel="mean change of the covariance since the true data")
    volume.legend(loc="lower left")
    shared = data["groups"]
    for i, (words, own) in enumerate((("minority, 20 samples", 0), ("majority, 180 samples", 1))):
        _curve(groups, shared.isel(group=own), "excess_loss", i, words)
    log_axis(groups.yaxis)
    groups.set(ylabel="excess loss of a group's regression")
    groups.set_title("only synthetic labels, 10 inputs, noise σ² = 0.5")
    groups.legend(loc="lower right")
    for axis in axes.flat:
        axis.set_xlabel("generation $k$")
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle("Models trained on models: exact theory (lines) and simulated chains (points)", fontsize=11)
    return figure


RECIPES = {
    "model-collapse-generations": Recipe(
        generations,
        draw_generations,
        sentence="Models trained on samples of earlier models lose rare categories, precision and volume; fresh or accumulated "
        "real data help.",
    )
}
