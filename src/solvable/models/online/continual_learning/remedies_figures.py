"""Controls and sweeps beside forgetting: a student without a spare unit, strengths of both remedies, imbalance alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label
from solvable.study import Study

from .model import ContinualLearning

STRENGTHS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6)
CHOSEN = (0.1, 0.5, 0.9)  # similarities of the sweeps
ANGLE = 1.2  # of the first head, (cos, sin): the units share the first task unequally at any scale
SCALES = {"small readouts": 0.1, "large readouts": 1.2}


def remedies(quick: bool) -> dict[str, Any]:
    size, seeds = (100, 2) if quick else (400, 8)
    model, every = ContinualLearning(points=4), np.linspace(0.0, 1.0, 6 if quick else 41)
    points = {"similarity": [0.0, 0.25, 0.5, 0.75, 0.9]}
    alone = model.replace(students=1, first_head=[0.99], initial_norm=1e-6 * np.eye(1), initial_overlap=[[2e-5, 2e-5]],
                          second_head=[0.3])  # fmt: skip
    chosen = {"similarity": list(CHOSEN)}
    scales = {
        f"{name}, λ = {strength:g}": {
            "first_head": [scale * np.cos(ANGLE), scale * np.sin(ANGLE)],
            "initial_norm": 0.09 * np.eye(2),
            "consolidation": strength,
        }
        for name, scale in SCALES.items()
        for strength in (0.0, 3.0)
    }
    return {
        "alone": Study(alone, {"similarity": every}).run(),
        "alone_measured": Study(alone, points, sizes=[size], seeds=seeds).run(),
        "consolidation": Study(model, {**chosen, "consolidation": list(STRENGTHS)}, sizes=[size], seeds=seeds).run(),
        "replay": Study(model, {**chosen, "replay": list(SHARES)}, sizes=[size], seeds=seeds).run(),
        "imbalance": Study(model, {"similarity": [0.0, 0.5, 0.9]}, arms=scales, sizes=[size], seeds=seeds).run(),
    }


def draw_remedies(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(15.2, 3.8), layout="constrained")
    alone, runs = data["alone"], data["alone_measured"].isel(size=-1)
    size = int(data["alone_measured"]["size"][-1])
    axes[0].plot(alone.similarity, alone.forgetting_theory, color=COLOURS[0], label="forgetting of task 1")
    _points(axes[0], runs.similarity, runs.forgetting_simulated, COLOURS[0])
    turn = np.abs(alone.overlap_theory.isel(stage=-1, student=0) - alone.overlap_theory.sel(stage=1.0).isel(student=0))
    axes[0].plot(alone.similarity, turn.sel(task=2), color=COLOURS[3], label="turn towards teacher 2")
    axes[0].set(xlabel=label("similarity", r"\gamma"), ylabel="forgetting, turn")
    axes[0].set_title(f"one unit, none to spare (points: N = {size})")
    axes[0].legend()
    for axis, name, words in zip(
        axes[1:3], ("consolidation", "replay"), (("strength", r"\lambda"), ("share", "u")), strict=True
    ):
        sweep = data[name].isel(size=-1)
        for similarity, colour in zip(CHOSEN, COLOURS, strict=False):
            at = sweep.sel(similarity=similarity)
            axis.plot(at[name], at.forgetting_theory, color=colour, label=f"similarity {similarity:g}: forgetting")
            _points(axis, at[name], at.forgetting_simulated, colour)
            second = at.test_loss_theory.isel(stage=-1).sel(task=2)
            axis.plot(at[name], second, ":", color=colour, label="loss of task 2")
        axis.set(xlabel=f"{words[0]} of {name} ${words[1]}$", ylabel="forgetting, loss of task 2", yscale="symlog")
        axis.set_yscale("symlog", linthresh=1e-5)
        axis.set_xscale("symlog", linthresh=0.1 if name == "consolidation" else 0.02)
        axis.set_xlim(0, float(at[name].max()))
        axis.set_title(f"how much {name} helps, and costs")
        axis.legend(fontsize=7)
    runs = data["imbalance"].isel(size=-1)
    for i, arm in enumerate(runs.arm.values):
        second = runs.sel(arm=arm).isel(stage=-1).sel(task=2)
        colour, dash = COLOURS[i // 2], "--" if str(arm).endswith("= 0") else "-"
        axes[3].plot(runs.similarity, second.test_loss_theory, dash, color=colour, label=str(arm))
        _points(axes[3], runs.similarity, second.test_loss_simulated, colour)
    axes[3].set(xlabel=label("similarity", r"\gamma"), ylabel="loss of task 2 at the end", yscale="log")
    axes[3].set_title("starts that differ in the imbalance\nof the layers alone")
    axes[3].legend(fontsize=7.5)
    figure.suptitle(
        "Forgetting: a student without a spare unit, remedies of every strength, and imbalance alone", fontsize=11
    )
    return figure


def _points(axis: Any, x: Any, runs: Any, colour: str) -> None:
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axis.errorbar(x, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.4)


RECIPES = {
    "continual-learning-remedies": Recipe(
        remedies,
        draw_remedies,
        sentence="Forgetting without a spare unit, against the strength of consolidation and replay, and for starts "
        "that differ in "
        "imbalance alone: whether re-use, remedies and imbalance act as claimed.",
    )
}
