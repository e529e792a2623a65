"""Double descent of linear learning on random features, its best penalty, and its phase diagram."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import RandomFeatures

LOSSES = ("square", "logistic", "hinge")
PLANES = ("square", "logistic")
SAMPLES = 3.0
SMALL = 1e-4


def with_best(model: RandomFeatures, data: Any, choice: str, options: tuple[str, ...], width: np.ndarray) -> Any:
    """A study over a choice and the width, with the best penalty (by gradients of the theory) and its error."""
    best = [model.replace(**{choice: option, "width": width}).best_penalty() for option in options]
    return data.assign(
        best_penalty=((choice, "width"), np.stack([b.penalty for b in best])),
        best_error=((choice, "width"), np.stack([b.value for b in best])),
    )


def double_descent(quick: bool) -> dict[str, Any]:
    model = RandomFeatures(samples=SAMPLES, activation="sign", penalty=SMALL)
    # p/n from 0.1 to 5, with p = n on the grid.
    width = SAMPLES * np.geomspace(0.1, 10, 97)[: 83 : 2 if quick else 1]
    theory = with_best(model, Study(model, {"loss": LOSSES, "width": width}).run(), "loss", LOSSES, width)
    sizes, seeds = ([60], 8) if quick else ([200], 64)
    points = SAMPLES * np.array([0.2, 0.27, 0.36, 0.45, 0.6, 0.8, 1.0, 1.3, 2.0])
    experiment = Study(model, {"loss": LOSSES, "width": points}, sizes=sizes, seeds=seeds)
    return {"theory": theory, "experiment": experiment.run()}


def draw_double_descent(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, experiment = data["theory"], data["experiment"]
    ratio, measured = theory.width / SAMPLES, experiment.width / SAMPLES
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    for axis, name, symbol in zip(
        axes, ("test_error", "train_loss"), (r"\varepsilon_g", r"\mathcal{L}_t"), strict=True
    ):
        for loss, colour in zip(LOSSES, COLOURS, strict=False):
            axis.plot(ratio, theory[f"{name}_theory"].sel(loss=loss), color=colour, label=loss)
            for size, marker in zip(experiment["size"].values, MARKERS, strict=False):
                points = experiment[f"{name}_simulated"].sel(loss=loss, size=size)
                error = standard_error(points)
                last = f"d = {size}" if loss == LOSSES[0] else None
                axis.errorbar(measured, points.mean("seed"), error, fmt=marker, color=colour, label=last,
                              alpha=0.45 + 0.55 * (size == experiment["size"].values[-1]))  # fmt: skip
        axis.axvline(1.0, color=INK, linewidth=0.6, linestyle=":")
        axis.set(xlabel=label("features per sample", "p/n"), ylabel=label(name, symbol))
        log_axis(axis.xaxis)
    for loss, colour in zip(LOSSES, COLOURS, strict=False):
        name = r"best $\lambda$" if loss == LOSSES[0] else None
        axes[0].plot(ratio, theory.best_error.sel(loss=loss), color=colour, linestyle="--", label=name)
    axes[0].legend()
    figure.suptitle(
        r"Random features $\mathrm{sign}(F^\top c)$ of a sign teacher, $n/d = 3$, $\lambda = 10^{-4}$: "
        "theory (lines) and experiment (points)",
        fontsize=11,
    )
    return figure


PROJECTIONS = ("gaussian", "orthogonal")


def phase_diagram(quick: bool) -> dict[str, Any]:
    model = RandomFeatures(activation="tanh", penalty=SMALL)
    axis = np.geomspace(0.1, 10, 40 if quick else 120)
    plane = Study(model, {"loss": PLANES, "samples": axis, "width": axis}).run()
    lines = [
        next(iter(model.replace(loss=loss).transition_lines("width", "samples", axis).values())) for loss in PLANES
    ]
    plane = plane[["test_error_theory", "converged_theory"]].assign(threshold=(("loss", "width"), np.stack(lines)))
    width = np.geomspace(0.3, 30, 31 if quick else 81)
    logistic = model.replace(samples=SAMPLES, width=width)
    curves = Study(logistic.replace(width=1.0), {"projection": PROJECTIONS, "width": width}).run()
    measured = Study(logistic.replace(width=1.0), {"projection": PROJECTIONS, "width": [0.5, 1.0, 2.0, 4.0]},
                     sizes=[60 if quick else 200], seeds=4 if quick else 32)  # fmt: skip
    return {
        "": plane,
        "curves": with_best(logistic, curves, "projection", PROJECTIONS, width),
        "curves_measured": measured.run(),
    }


def draw_phase_diagram(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    plane, curves = data[""], data["curves"]
    figure, axes = plt.subplots(1, 3, figsize=(11.4, 3.5), layout="constrained")
    for axis, loss in zip(axes, PLANES, strict=False):
        error = plane.test_error_theory.sel(loss=loss).transpose("samples", "width")
        mesh = axis.pcolormesh(plane.width, plane.samples, error, cmap="viridis", shading="nearest", rasterized=True,
                               vmin=0.05, vmax=0.5)  # fmt: skip
        log_axis(axis.xaxis)
        log_axis(axis.yaxis)
        axis.plot(plane.width, plane.threshold.sel(loss=loss), color="white", linestyle="--")
        line = "interpolation, $n = p$" if loss == "square" else "separable below"
        axis.text(
            0.97,
            0.05,
            f"{loss}\n(dashes: {line})",
            transform=axis.transAxes,
            color="white",
            fontsize=8,
            ha="right",
            bbox={"facecolor": INK, "alpha": 0.45, "linewidth": 0},
        )
        axis.set(xlabel=label("width", "p/d"), ylabel=label("samples", "n/d"))
        axis.set_ylim(float(plane.samples[0]), float(plane.samples[-1]))
        axis.grid(False)
    figure.colorbar(mesh, ax=axes[:2], label=label("test_error", r"\varepsilon_g"), pad=0.01)
    measured = data["curves_measured"].isel(size=-1)
    for projection, colour in zip(PROJECTIONS, COLOURS, strict=False):
        runs = measured.test_error_simulated.sel(projection=projection)
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axes[2].errorbar(measured.width, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.5)
        axes[2].plot(curves.width, curves.test_error_theory.sel(projection=projection), color=colour, label=projection)
        name = r"best $\lambda$" if projection == PROJECTIONS[0] else None
        axes[2].plot(
            curves.width, curves.best_error.sel(projection=projection), color=colour, linestyle="--", label=name
        )
    axes[2].set(xlabel=label("width", "p/d"), ylabel=label("test_error", r"\varepsilon_g"))
    log_axis(axes[2].xaxis)
    axes[2].legend(
        title=f"logistic, $n/d = 3$; points: d = {int(data['curves_measured']['size'][-1])}",
        fontsize=8,
        title_fontsize=8,
    )
    figure.suptitle(r"Random features $\tanh(F^\top c)$ of a sign teacher, $\lambda = 10^{-4}$", fontsize=11)
    return figure


RECIPES = {
    "random-features-double-descent": Recipe(
        double_descent,
        draw_double_descent,
        sentence="Test error and training loss against the number of random features, with and without the interpolation peak.",
    ),
    "random-features-phase-diagram": Recipe(
        phase_diagram,
        draw_phase_diagram,
        sentence=(
            "Test error over width and samples, with interpolation and separability; Gaussian against "
            "orthogonal projections."
        ),
    ),
}
