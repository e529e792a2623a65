"""Random labels: covariances that matter with a penalty and drop out without one, and digits beside Gaussians."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import PIXELS, RandomLabels

INPUTS = {"isotropic": "isotropic", "ramp": "ramp, ω in [0, 2]", "power-law": r"power law, $\omega_i \propto i^{-0.8}$"}
PENALTIES = {1.0: r"$\lambda = 1$", 0.1: r"$\lambda = 0.1$", 0.0: r"$\lambda \to 0^+$"}
LOSSES = ("hinge", "logistic", "square")
DIGITS_PENALTY = 0.01


def collapse(quick: bool) -> dict[str, Any]:
    model = RandomLabels(loss="logistic", decay=0.8)
    over = {"inputs": list(INPUTS), "penalty": list(PENALTIES)}
    theory = Study(model, over | {"samples": np.geomspace(0.5, 10, 61)})
    points = [3.0] if quick else [1.0, 1.75, 3.0, 5.0, 8.0]
    size, seeds = (60, 8) if quick else (160, 12)
    experiment = Study(model, over | {"samples": points}, sizes=[size], seeds=seeds)

    losses = ["logistic"] if quick else list(LOSSES)
    pixels = RandomLabels(inputs="digits", penalty=DIGITS_PENALTY)
    line = Study(pixels, {"loss": losses, "samples": np.geomspace(0.5, 25, 61)})
    seen = Study(pixels, {"loss": losses, "samples": [3.0] if quick else [1.5, 3.0, 6.0, 12.0, 24.0]},
                 sizes=[PIXELS], seeds=8 if quick else 40)  # fmt: skip
    tanh = Study(RandomLabels(inputs="digits-tanh", penalty=DIGITS_PENALTY),
                 {"loss": losses, "samples": [3.0] if quick else [1.5, 3.0, 6.0]},
                 sizes=[100 if quick else 200], seeds=4 if quick else 12)  # fmt: skip
    return {
        "": theory.run(),
        "experiment": experiment.run(),
        "pixels-theory": line.run(),
        "pixels": seen.run(),
        "tanh": tanh.run(),
    }


def _points(axis: Any, x: Any, runs: Any, **look: Any) -> None:
    axis.errorbar(x, runs.mean("seed"), standard_error(runs), **look)


def draw_collapse(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, experiment = data[""], data["experiment"]
    figure, axes = plt.subplots(1, 4, figsize=(15.6, 3.9), layout="constrained")
    size = int(experiment["size"][-1])
    for axis, (penalty, name) in zip(axes, PENALTIES.items(), strict=False):
        for (inputs, words), colour, marker in zip(INPUTS.items(), COLOURS, MARKERS, strict=False):
            here = {"inputs": inputs, "penalty": penalty}
            axis.plot(theory.samples, theory.train_loss_theory.sel(here), color=colour, label=words,
                      linewidth={"isotropic": 3.2, "ramp": 1.9, "power-law": 0.9}[inputs] if penalty == 0 else None)  # fmt: skip
            runs = experiment.train_loss_simulated.sel(here).isel(size=-1)
            _points(axis, experiment.samples, runs, fmt=marker, color=colour, markersize=4)
        axis.axhline(np.log(2), color=INK, linewidth=0.6, linestyle=":")
        axis.set(xlabel=label("samples", "n/p"), ylim=(0, 0.72))
        axis.set_title(f"logistic loss, {name}")
        log_axis(axis.xaxis)
    axes[0].set_ylabel(label("training loss", r"\mathcal{L}_t"))
    axes[0].legend(loc="lower right")
    axes[2].axvline(2, color=INK, linewidth=0.6, linestyle=":")
    axes[2].text(1.93, 0.35, r"capacity $\alpha_c = 2$", rotation=90, ha="right", va="center", fontsize=8)

    line, pixels, tanh = data["pixels-theory"], data["pixels"], data["tanh"]
    axis = axes[3]
    for loss, colour in zip(line.loss.values, COLOURS, strict=False):
        axis.plot(line.samples, line.train_loss_theory.sel(loss=loss), color=colour, label=str(loss))
        _points(axis, pixels.samples, pixels.train_loss_simulated.sel(loss=loss).isel(size=-1), fmt="o", color=colour,
                markersize=4.5, label="61 pixels" if loss == line.loss.values[0] else None)  # fmt: skip
        expected = tanh.train_loss_expected.sel(loss=loss).isel(size=-1).mean("seed")
        axis.plot(tanh.samples, expected, "_", color=colour, markersize=15, markeredgewidth=1.6)
        _points(axis, tanh.samples, tanh.train_loss_simulated.sel(loss=loss).isel(size=-1), fmt="s", color=colour,
                markersize=4.5, markerfacecolor="white",
                label=f"{int(tanh['size'][-1])} tanh features (theory: –)" if loss == line.loss.values[0] else None)  # fmt: skip
    axis.set(xlabel=label("samples", "n/p"), ylim=(0, None))
    axis.set_title(f"handwritten digits, $\\lambda = {DIGITS_PENALTY:g}$")
    log_axis(axis.xaxis)
    axis.legend(fontsize=7.5)
    figure.suptitle(
        f"Random labels: Gaussian theory (lines), minimised risks at p = {size} and on digits (points, error of the "
        "mean). Without a penalty the covariance drops out",
        fontsize=11,
    )
    return figure


RECIPES = {
    "random-labels-collapse": Recipe(
        collapse,
        draw_collapse,
        sentence=(
            "Training loss on random labels: curves of all covariances collapse without a penalty; digits "
            "beside Gaussians."
        ),
    )
}
