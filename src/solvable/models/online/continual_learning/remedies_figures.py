"""How much consolidation and replay help, against their strength and the similarity of the tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, label, log_axis
from solvable.study import Study

from .model import ContinualLearning

STRENGTHS = {"consolidation": (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), "replay": (0.0, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5)}
SYMBOLS = {"consolidation": r"\lambda", "replay": "u"}
DIRECTION, FIRST = np.array([0.3, np.sqrt(1 - 0.09)]), 0.3
"""Direction of the first head, and length of the units, of starts that differ in the length of the head alone."""


def remedies(quick: bool) -> dict[str, Any]:
    model, number = ContinualLearning(points=2), 5 if quick else 21
    every = np.linspace(0.0, 1.0, number)
    parts = {name: Study(model, {name: list(values), "similarity": every}).run() for name, values in STRENGTHS.items()}
    size, seeds = (60, 2) if quick else (400, 8)
    for name, values in STRENGTHS.items():
        some = {name: [values[2], values[4]], "similarity": [0.2, 0.5, 0.8]}
        parts[f"{name}-runs"] = Study(model, some, sizes=[size], seeds=seeds).run()
    # starts that differ in the imbalance of the layers alone: the same directions, longer or shorter heads
    scales = [0.05, 1.5] if quick else [0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5]
    arms = {f"{s:g}": {"first_head": s * DIRECTION, "initial_norm": FIRST**2 * np.eye(2)} for s in scales}
    heads = {"consolidation": [0.0, 3.0], "similarity": [0.0, 0.5, 0.9]}
    parts["heads"] = Study(model, heads, arms=arms).run()
    few = {arm: arms[arm] for arm in (f"{scales[0]:g}", f"{scales[-1]:g}")}
    parts["heads-runs"] = Study(model, {"consolidation": [0.0, 3.0], "similarity": [0.5]}, arms=few, sizes=[size],
                                seeds=seeds).run()  # fmt: skip
    # no spare unit: the trained one has to learn the second task, however dissimilar
    alone = ContinualLearning(points=2, students=1, first_head=[1.0])
    parts["alone"] = Study(alone, {"similarity": every}).run()
    return {name: _slim(data) for name, data in parts.items()}


def _slim(data: Any) -> Any:
    wanted = ("forgetting", "test_loss", "overlap", "converged")
    return data[[v for v in data.data_vars if str(v).startswith(wanted)]]


def draw_remedies(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.0), layout="constrained")
    for axis, name in zip(axes, STRENGTHS, strict=False):
        lines, runs = data[name], data[f"{name}-runs"].isel(size=-1)
        shades = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, lines.sizes[name]))
        for value, colour in zip(lines[name].values, shades, strict=True):
            axis.plot(lines.similarity, lines.forgetting_theory.sel({name: value}), color=colour, label=f"{value:g}")
            if value in runs[name].values:
                here = runs.forgetting_simulated.sel({name: value})
                error = here.std("seed", ddof=1) / np.sqrt(here.sizes["seed"])
                axis.errorbar(runs.similarity, here.mean("seed"), error, fmt="o", color=colour, markersize=4)
        axis.set(xlabel=label("similarity", r"\gamma"), ylabel="forgetting of task 1")
        axis.set_title(f"{name}; points: networks of N = {int(data[f'{name}-runs']['size'][-1])}")
        axis.legend(title=f"${SYMBOLS[name]}$", fontsize=8)
    heads = data["heads"]
    place = heads.arm.values.astype(float)
    for similarity, colour in zip(heads.similarity.values, COLOURS, strict=False):
        loss = heads.test_loss_theory.sel(similarity=similarity, task=2).isel(stage=-1)
        axes[2].plot(place, loss.sel(consolidation=3.0), "o-", color=colour, label=f"γ = {similarity:g}, λ = 3")
        axes[2].plot(place, loss.sel(consolidation=0.0), ":", color=colour)
    runs = (
        data["heads-runs"]
        .isel(size=-1)
        .test_loss_simulated.sel(similarity=0.5, task=2, consolidation=3.0)
        .isel(stage=-1)
    )
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axes[2].errorbar(runs.arm.values.astype(float), runs.mean("seed"), error, fmt="s", color=COLOURS[1], markersize=5)
    log_axis(axes[2].xaxis)
    axes[2].set(xlabel="length of the first head at the start", ylabel="loss on task 2 at the end")
    axes[2].set_title("starts that differ in imbalance alone\n(dotted: λ = 0; squares: networks)")
    axes[2].legend(fontsize=8)
    axes[2].axhline(0, color=INK, linewidth=0.5)
    figure.suptitle("Remedies against forgetting: consolidation and replay over their strength", fontsize=11)
    return figure


RECIPES = {
    "continual-learning-remedies": Recipe(
        remedies,
        draw_remedies,
        sentence="Forgetting under consolidation and replay of any strength, and what consolidation costs if units share a task.",
    )
}
