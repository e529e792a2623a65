"""Learning curves and phase diagram of the perceptron."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, label, log_axis, standard_error
from solvable.search import optimise
from solvable.study import Study

from .model import Perceptron

LOSSES = ("square", "logistic", "hinge")


def learning_curves(quick: bool) -> dict[str, Any]:
    model = Perceptron(penalty=0.1)
    theory = Study(model, {"loss": LOSSES, "samples": np.geomspace(0.1, 10, 81)})
    sizes, seeds = ([100], 8) if quick else ([100, 200, 400], 16)
    experiment = Study(model, {"loss": LOSSES, "samples": np.geomspace(0.2, 8, 7)}, sizes=sizes, seeds=seeds)
    return {"theory": theory.run(), "experiment": experiment.run()}


def draw_learning_curves(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, experiment = data["theory"], data["experiment"]
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    for axis, name, symbol in zip(
        axes, ("test_error", "train_loss"), (r"\varepsilon_g", r"\mathcal{L}_t"), strict=True
    ):
        for loss, colour in zip(LOSSES, COLOURS, strict=False):
            axis.plot(theory.samples, theory[f"{name}_theory"].sel(loss=loss), color=colour, label=loss)
            for size, marker in zip(experiment["size"].values, MARKERS, strict=False):
                points = experiment[f"{name}_simulated"].sel(loss=loss, size=size)
                error = standard_error(points)
                last = f"d = {size}" if loss == LOSSES[0] else None
                axis.errorbar(experiment.samples, points.mean("seed"), error, fmt=marker, color=colour, label=last,
                              alpha=0.45 + 0.55 * (size == experiment["size"].values[-1]))  # fmt: skip
        axis.set(xlabel=label("samples", r"\alpha = n/d"), ylabel=label(name, symbol))
        log_axis(axis.xaxis)
    axes[0].plot(theory.samples, theory.bayes_error_theory.sel(loss="square"), color=INK, linestyle="--", label="Bayes")
    axes[0].legend()
    figure.suptitle(r"Learning a sign teacher, $\lambda = 0.1$: theory (lines) and experiment (points)", fontsize=11)
    return figure


def phase_diagram(quick: bool) -> dict[str, Any]:
    number = 24 if quick else 64
    samples = np.geomspace(0.3, 10, number)
    model = Perceptron(noise=0.25)
    data = Study(model, {"samples": samples, "penalty": np.geomspace(1e-3, 30, number)}).run()
    some = samples[:: max(1, number // 12)]
    best = [optimise(model.replace(samples=a), "penalty", minimise="test_error").controls["penalty"] for a in some]
    return {"": data.assign(best_penalty=("best_samples", np.array(best))).assign_coords(best_samples=some)}


def draw_phase_diagram(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    diagram = data[""]
    figure, axis = plt.subplots(figsize=(5.2, 3.8))
    error = diagram.test_error_theory.transpose("penalty", "samples")
    mesh = axis.pcolormesh(diagram.samples, diagram.penalty, error, cmap="viridis", shading="nearest", rasterized=True)
    log_axis(axis.xaxis)  # before the contours, whose labels are placed in the current axes
    log_axis(axis.yaxis)
    lines = axis.contour(diagram.samples, diagram.penalty, error, levels=8, colors="white", linewidths=0.6)
    axis.clabel(lines, fontsize=7)
    axis.plot(diagram.best_samples, diagram.best_penalty, color="white", linewidth=3)
    axis.plot(
        diagram.best_samples,
        diagram.best_penalty,
        color=COLOURS[1],
        label=r"best $\lambda$ (by gradients of the theory)",
    )
    axis.grid(False)
    axis.set(xlabel=label("samples", r"\alpha"), ylabel=label("penalty", r"\lambda"))
    axis.legend(loc="upper right", frameon=True, framealpha=0.85)
    figure.colorbar(mesh, ax=axis, label=label("test_error", r"\varepsilon_g"))
    figure.suptitle(r"Logistic regression of a noisy sign teacher, $\Delta = 0.25$", fontsize=11)
    return figure


RECIPES = {
    "perceptron-learning-curves": Recipe(
        learning_curves,
        draw_learning_curves,
        sentence="Test error and training loss of square, logistic and hinge losses against the number of samples, beside Bayes.",
    ),
    "perceptron-phase-diagram": Recipe(
        phase_diagram,
        draw_phase_diagram,
        sentence="Test error of logistic regression over samples and penalty, with the best penalty as a line.",
    ),
}
