"""Specialisation over imbalance and spread of the initial weights, and what consolidation gains in each region."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis
from solvable.study import Study

from ..continual_learning.model import ContinualLearning
from .model import Specialisation

FIRST, STRENGTH, SIMILARITY = 0.3, 3.0, 0.5


def spread(angle: Any) -> Any:
    """One minus the entropy of the readouts' shares of their squared length, over its maximum: 0 equal, 1 a single one.

    >>> [round(float(spread(a)), 6) for a in (np.pi / 4, np.pi / 2 - 1e-9)]
    [0.0, 1.0]
    """
    p = np.stack([np.cos(angle) ** 2, np.sin(angle) ** 2])
    return 1 + np.sum(p * np.log(p), axis=0) / np.log(2)


def regions(quick: bool) -> dict[str, Any]:
    number = 3 if quick else 11
    scales, angles = np.geomspace(0.02, 2.0, number), np.linspace(np.pi / 4 + 0.02, np.pi / 2 - 0.02, number)
    model = Specialisation(first_scale=FIRST, times=np.linspace(0.0, 30.0, 4))
    plane = Study(model, {"angle": angles, "readout_scale": scales}).run()
    size, seeds = (60, 2) if quick else (400, 8)
    some = {"angle": angles[[number // 4, -2]], "readout_scale": scales[[number // 5, -2]]}
    points = Study(model, some, sizes=[size], seeds=seeds).run()
    # the same starts learn two tasks; the unit with the larger readout is the second one in both models
    arms = {
        f"{i}, {j}": {"first_head": r * np.array([np.cos(a), np.sin(a)]), "initial_norm": FIRST**2 * np.eye(2)}
        for i, a in enumerate(angles)
        for j, r in enumerate(scales)
    }
    tasks = Study(
        ContinualLearning(points=1, similarity=SIMILARITY, first_stage=60.0),
        {"consolidation": [0.0, STRENGTH]},
        arms=arms,
    ).run()
    last = tasks.test_loss_theory.isel(stage=-1).transpose("arm", "consolidation", "task").values
    gain = last.reshape(number, number, 2, 2)
    wanted = ["final_specialisation_theory"]
    plane = plane[wanted].assign(two_tasks=(("angle", "readout_scale", "consolidation", "task"), gain))
    keep = [v for v in points.data_vars if str(v).startswith("final_specialisation")]
    return {"": plane.assign_coords(consolidation=[0.0, STRENGTH], task=[1, 2]), "points": points[keep]}


def draw_regions(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    plane, points = data[""], data["points"]
    up = spread(plane.angle.values)
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.0), layout="constrained")
    values = plane.final_specialisation_theory.transpose("angle", "readout_scale")
    losses = plane.two_tasks.transpose("angle", "readout_scale", "consolidation", "task")
    total = losses.sum("task")
    shown = (
        (values, "specialisation $s$ at the end of task 1", "viridis", "which units carry the feature"),
        (losses.sel(consolidation=STRENGTH, task=2), "loss on task 2", "magma_r",
         f"consolidation $\\lambda = {STRENGTH:g}$: cost on task 2"),
        (total.sel(consolidation=0.0) - total.sel(consolidation=STRENGTH), "gain in the loss of both tasks", "viridis",
         "what consolidation gains"),
    )  # fmt: skip
    for axis, (z, bar, colours, title) in zip(axes, shown, strict=True):
        mesh = axis.pcolormesh(plane.readout_scale, up, z, shading="nearest", cmap=colours, rasterized=True, vmin=0.0)
        figure.colorbar(mesh, ax=axis, label=bar)
        log_axis(axis.xaxis)
        axis.grid(False)
        axis.set(xlabel=label("readout_scale", "r_v") + f" (first layer {FIRST:g})", ylabel="spread of the readouts")
        axis.set_title(title)
    seen = points.final_specialisation_simulated.isel(size=-1).mean("seed").transpose("angle", "readout_scale")
    x, y = np.meshgrid(points.readout_scale, spread(points.angle.values))
    limits = {"vmin": 0.0, "vmax": float(values.max())}
    axes[0].scatter(x, y, c=seen.values, cmap="viridis", edgecolors=COLOURS[1], s=60, **limits)
    figure.suptitle(
        f"Imbalance and spread of the first readouts; two tasks of similarity {SIMILARITY:g} (circles: networks of "
        f"N = {int(points['size'][-1])})",
        fontsize=11,
    )
    return figure


RECIPES = {
    "specialisation-map": Recipe(
        regions,
        draw_regions,
        also=("continual-learning",),
        sentence="Specialisation over imbalance and spread of the initial readouts, and what consolidation gains there.",
    )
}
