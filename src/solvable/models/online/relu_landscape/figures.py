"""The spurious minimum of a sum of ReLUs: where it exists, the effect of correlation, and how width removes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, standard_error
from solvable.study import Study

from .model import ReluLandscape

SHOWN = (6, 8, 12)


def minima(quick: bool) -> dict[str, Any]:
    units = [5, 6, 7, 8, 10] if quick else [*range(5, 13), 14, 16, 18, 20]
    loss = Study(ReluLandscape(), {"teachers": units}).run()
    few, size, seeds = ([6, 8], 24, 4) if quick else ([6, 8, 10, 12, 16, 20], 64, 8)
    descent = Study(ReluLandscape(), {"teachers": few}, sizes=[size], seeds=seeds).run()
    shown = list(SHOWN[:2]) if quick else list(SHOWN)
    over = {"teachers": shown, "correlation": np.linspace(0.0, 0.6, 7 if quick else 61)}
    correlated = Study(ReluLandscape(), over).run()
    wide = ReluLandscape(teachers=8, start="random", starts=16 if quick else 32)
    width = {"teachers": [8] if quick else [6, 8, 10], "splits": [0, 1] if quick else [0, 1, 2]}
    reached = Study(wide, width, sizes=[16], seeds=2 if quick else 8).run()
    return {"": loss, "descent": descent, "correlated": correlated, "reached": reached}


def draw_minima(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    loss, descent, correlated, reached = (data[name] for name in ("", "descent", "correlated", "reached"))
    size = int(descent["size"][-1])
    figure, axes = plt.subplots(1, 4, figsize=(15.2, 3.7), layout="constrained")

    def points(axis: Any, runs: Any, colour: str, **more: Any) -> None:
        runs = runs.sel(size=size)
        error = standard_error(runs)
        axis.errorbar(descent.teachers, runs.mean("seed"), error, fmt="o", color=colour, markersize=4, **more)

    axes[0].plot(loss.teachers, loss.test_loss_theory, color=COLOURS[0], label="fixed point")
    points(axes[0], descent.test_loss_simulated, COLOURS[0], label=f"descent, d = {size}")
    axes[0].set(xlabel=label("teachers", "M"), ylabel=label("test_loss", "L"), ylim=(0, None))
    axes[0].set_title("loss of the family `turned`")
    axes[0].legend()

    names = (("standard 1", "standard"), ("antisymmetric", "antisymmetric"), ("trivial 1", "trivial"))
    for (mode, name), colour in zip(names, COLOURS, strict=False):
        axes[1].plot(loss.teachers, loss.curvature_theory.sel(mode=mode), color=colour, label=f"{name}, lowest")
        points(axes[1], descent.curvature_simulated.sel(mode=mode), colour)
    axes[1].axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axes[1].set(xlabel=label("teachers", "M"), ylabel=label("curvature", r"\lambda"), ylim=(-0.02, None))
    axes[1].set_title("lowest curvatures: a minimum from M = 6")
    axes[1].legend()

    for units, colour in zip(correlated.teachers.values, COLOURS, strict=False):
        lowest = correlated.lowest_theory.sel(teachers=units)
        axes[2].plot(correlated.correlation, lowest, color=colour, label=f"M = {int(units)}")
    axes[2].axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axes[2].set(xlabel=label("correlation", r"\rho") + " of teacher units", ylabel=label("lowest", r"\lambda_{\min}"))
    axes[2].set_title("correlated teachers flatten the minimum")
    axes[2].legend()

    number, share = reached.sizes["seed"], 0.8 / reached.sizes["teachers"]
    for place, (units, colour) in enumerate(zip(reached.teachers.values, COLOURS, strict=False)):
        runs = reached.reached_simulated.sel(teachers=units).isel(size=-1)
        at = reached.splits.values + share * (place - (reached.sizes["teachers"] - 1) / 2)
        error = runs.std("seed", ddof=1) / np.sqrt(number)
        axes[3].bar(at, runs.mean("seed"), share, color=colour, label=f"M = {int(units)}")
        axes[3].errorbar(at, runs.mean("seed"), error, fmt="none", color="black", linewidth=1)
    axes[3].set(xlabel="extra units of the student, $K - M$", ylabel=label("reached", ""), ylim=(0, 1.35))
    axes[3].set_xticks(reached.splits.values)
    axes[3].set_axisbelow(True)
    axes[3].set_title("fraction of random starts\nthat find the teacher")
    axes[3].legend(ncols=3, loc="upper center")
    figure.suptitle(
        "A sum of ReLUs has spurious minima from six units on; with one extra unit, descent avoids them", fontsize=11
    )
    return figure


RECIPES = {
    "relu-landscape-minima": Recipe(
        minima,
        draw_minima,
        sentence="The spurious minimum of a sum of ReLUs, its curvature, and the effect of correlated teachers and of width.",
    )
}
