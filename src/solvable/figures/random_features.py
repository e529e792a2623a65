"""Double descent of linear learning on random features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..models.replica.random_features import RandomFeatures
from ..plotting import COLOURS, INK, MARKERS, label, log_axis
from ..study import Study
from .draw import Recipe

LOSSES = ("square", "logistic")
SAMPLES = 3.0
SMALL = 1e-4


def double_descent(quick: bool) -> dict[str, Any]:
    model = RandomFeatures(samples=SAMPLES, activation="sign", penalty=SMALL)
    # p/n from 0.1 to 5, with p = n on the grid.
    width = SAMPLES * np.geomspace(0.1, 10, 97)[:83]
    penalty = np.geomspace(SMALL, 1e2, 19 if quick else 49)
    theory = Study(model, {"loss": LOSSES, "width": width, "penalty": penalty})
    sizes, seeds = ([60], 8) if quick else ([100, 200], 16)
    points = SAMPLES * np.array([0.2, 0.36, 0.6, 0.8, 1.0, 1.3, 2.0])
    experiment = Study(model, {"loss": LOSSES, "width": points}, sizes=sizes, seeds=seeds)
    return {"theory": theory.run(), "experiment": experiment.run()}


def draw_double_descent(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, experiment = data["theory"], data["experiment"]
    small = theory.sel(penalty=SMALL, method="nearest")
    ratio, measured = theory.width / SAMPLES, experiment.width / SAMPLES
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    for axis, name, symbol in zip(
        axes, ("test_error", "train_loss"), (r"\varepsilon_g", r"\mathcal{L}_t"), strict=True
    ):
        for loss, colour in zip(LOSSES, COLOURS, strict=False):
            axis.plot(ratio, small[f"{name}_theory"].sel(loss=loss), color=colour, label=loss)
            for size, marker in zip(experiment["size"].values, MARKERS, strict=False):
                points = experiment[f"{name}_simulated"].sel(loss=loss, size=size)
                error = points.std("seed", ddof=1) / np.sqrt(points.sizes["seed"])
                last = f"d = {size}" if loss == LOSSES[0] else None
                axis.errorbar(measured, points.mean("seed"), error, fmt=marker, color=colour, label=last,
                              alpha=0.45 + 0.55 * (size == experiment["size"].values[-1]))  # fmt: skip
        axis.axvline(1.0, color=INK, linewidth=0.6, linestyle=":")
        axis.set(xlabel=label("features per sample", "p/n"), ylabel=label(name, symbol))
        log_axis(axis.xaxis)
    for loss, colour in zip(LOSSES, COLOURS, strict=False):
        best = theory.test_error_theory.sel(loss=loss).min("penalty")
        name = r"best $\lambda$" if loss == LOSSES[0] else None
        axes[0].plot(ratio, best, color=colour, linestyle="--", label=name)
    axes[0].legend()
    figure.suptitle(
        r"Random features $\mathrm{sign}(F^\top c)$ of a sign teacher, $n/d = 3$, $\lambda = 10^{-4}$: "
        "theory (lines) and experiment (points)",
        fontsize=11,
    )
    return figure


RECIPES = {"random-features-double-descent": Recipe(double_descent, draw_double_descent)}
