"""Plateau and specialisation of the soft committee machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, standard_error
from solvable.study import Study

from .model import SoftCommittee

ACTIVATIONS = ("erf", "relu")


def plateau(quick: bool) -> dict[str, Any]:
    model = SoftCommittee(rate=1.2, times=np.linspace(0.0, 80.0, 81))
    size, seeds = (200, 4) if quick else (1000, 8)
    study = Study(model, {"activation": list(ACTIVATIONS)}, sizes=[size], seeds=seeds)
    return {"": study.run()}


def draw_plateau(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.4))
    size = int(curves["size"][-1])
    time = curves.time.values
    every = slice(None, None, 4)
    for activation, colour in zip(ACTIVATIONS, COLOURS, strict=False):
        axes[0].plot(time, curves.test_loss_theory.sel(activation=activation), color=colour, label=activation)
        points = curves.test_loss_simulated.sel(activation=activation, size=size)
        error = standard_error(points)
        axes[0].errorbar(time[every], points.mean("seed")[every], error[every], fmt="o", color=colour, markersize=3.4)
    axes[0].set(xlabel=label("time", "t"), ylabel=label("test_loss", r"\varepsilon"), yscale="log")
    axes[0].set_title(f"theory (lines) and SGD at N = {size} (points)")
    axes[0].legend()
    overlaps = curves.overlap_theory.sel(activation="erf")
    measured = curves.overlap_simulated.sel(activation="erf", size=size).mean("seed")
    for k in range(overlaps.sizes["student"]):
        for n in range(overlaps.sizes["teacher"]):
            colour = COLOURS[(2 * k + n) % len(COLOURS)]
            axes[1].plot(time, overlaps.isel(student=k, teacher=n), color=colour, label=f"$R_{{{k + 1}{n + 1}}}$")
            axes[1].plot(time[every], measured.isel(student=k, teacher=n)[every], "o", color=colour, markersize=3.4)
    axes[1].set(xlabel=label("time", "t"), ylabel="student–teacher overlap")
    axes[1].set_title("erf: each student unit finds its teacher")
    axes[1].legend(ncols=2)
    figure.suptitle("Online learning of a two-layer network: plateau, then specialisation", fontsize=11)
    return figure


RECIPES = {
    "soft-committee-plateau": Recipe(
        plateau,
        draw_plateau,
        sentence="Loss and overlaps of an online two-layer student: symmetric plateau, then specialisation.",
    )
}
