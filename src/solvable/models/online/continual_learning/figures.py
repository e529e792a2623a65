"""Forgetting against task similarity: node re-use, node activation, and the effect of consolidation and replay."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, standard_error
from solvable.study import Study

from .model import ContinualLearning

STARTS = ("specialised", "shared")
REMEDIES = {"plain": {}, "consolidation λ = 3": {"consolidation": 3.0}, "replay 20 %": {"replay": 0.2}}


def forgetting(quick: bool) -> dict[str, Any]:
    model, every = ContinualLearning(points=4), {"similarity": np.linspace(0.0, 1.0, 11 if quick else 41)}
    size, seeds = (100, 2) if quick else (400, 8)
    lines = Study(model, {"start": list(STARTS), **every}, arms=REMEDIES).run()
    over = {"start": list(STARTS), "similarity": [0.0, 0.25, 0.5, 0.75, 0.9]}
    points = Study(model, over, arms=REMEDIES, sizes=[size], seeds=seeds).run()
    return {"": lines, "experiment": points}


def draw_forgetting(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, points = data[""], data["experiment"]
    size = int(points["size"][-1])
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.7))
    for axis, start in zip(axes, STARTS, strict=False):
        for arm, colour in zip(REMEDIES, COLOURS, strict=False):
            curve, runs = (
                lines.sel(start=start, arm=arm),
                points.sel(start=start, arm=arm, size=size).forgetting_simulated,
            )
            axis.plot(lines.similarity, curve.forgetting_theory, color=colour, label=arm)
            error = standard_error(runs)
            axis.errorbar(points.similarity, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.6)
        axis.set(xlabel=label("similarity", r"\gamma"), ylabel="forgetting of task 1")
        axis.set_title(f"{start} student; SGD at N = {size} (points)")
        axis.legend()
    plain = lines.sel(start="specialised", arm="plain").overlap_theory
    change = np.abs(plain.isel(stage=-1) - plain.sel(stage=1.0)).sel(task=2)
    for unit, name, colour in ((1, "specialised unit: re-used", COLOURS[3]), (0, "spare unit: activated", COLOURS[4])):
        axes[2].plot(lines.similarity, change.isel(student=unit), color=colour, label=name)
    axes[2].set(xlabel=label("similarity", r"\gamma"), ylabel="turn towards teacher 2, $|\\Delta R_{k2}|$")
    axes[2].set_title("specialised student: which unit learns task 2")
    axes[2].legend()
    figure.suptitle("A specialised student forgets most at intermediate task similarity", fontsize=11)
    return figure


RECIPES = {
    "continual-learning-forgetting": Recipe(
        forgetting,
        draw_forgetting,
        sentence="Forgetting against task similarity, with and without consolidation or replay; which unit learns task 2.",
    )
}
