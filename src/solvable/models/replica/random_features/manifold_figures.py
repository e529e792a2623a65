"""Gaussian and orthogonal projections, and the correlations that a hidden manifold puts into the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis
from solvable.study import Study

from .model import RandomFeatures

PROJECTIONS = ("gaussian", "orthogonal")
PER_INPUT = 3.0
"""Samples per input, n/p, on the hidden manifold."""


def _latent(ratios: Any) -> dict[str, dict[str, float]]:
    """Arms of given d/p at fixed n/p: fewer latent dimensions are more features and samples for each of them."""
    return {f"{r:g}": {"width": 1 / r, "samples": PER_INPUT / r} for r in ratios}


def projections(quick: bool) -> dict[str, Any]:
    size, seeds = (40, 4) if quick else (200, 16)
    model = RandomFeatures(activation="tanh", penalty=0.01)
    over = {"projection": list(PROJECTIONS)}
    widths = Study(model, over | {"width": np.geomspace(0.3, 10, 12 if quick else 31)}).run()
    some = [0.5, 1.0, 2.0]
    points = Study(model, over | {"width": some[1:2] if quick else some}, sizes=[size], seeds=seeds).run()
    manifold = Study(model, over, arms=_latent(np.geomspace(0.1, 30, 7 if quick else 25))).run()
    drawn = Study(model, over, arms=_latent([1.0] if quick else [0.5, 1.0, 2.0, 5.0]), sizes=[size], seeds=seeds).run()
    return {"widths": widths, "points": points, "manifold": manifold, "drawn": drawn}


def draw_projections(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    widths, points, manifold, drawn = (data[k] for k in ("widths", "points", "manifold", "drawn"))
    size = int(points["size"][-1])
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 3.9), layout="constrained")
    for projection, colour, marker in zip(PROJECTIONS, COLOURS, MARKERS, strict=False):
        here = {"projection": projection}
        axes[0].plot(widths.width, widths.test_error_theory.sel(here), color=colour, label=f"{projection} projection")
        _points(axes[0], points.width, points.test_error_simulated.sel(here), color=colour, fmt=marker)
        name = "independent entries (orthogonal)" if projection == "orthogonal" else "correlated entries (Gaussian)"
        line = manifold.test_error_theory.sel(here)
        axes[1].plot(manifold.arm.astype(float), line, color=colour, label=name)
        _points(axes[1], drawn.arm.astype(float), drawn.test_error_simulated.sel(here), color=colour, fmt=marker)
    axes[0].set(xlabel=label("width", "p/d"), ylabel=label("test_error", r"\varepsilon_g"))
    axes[0].set_title("features of width p, $n/d = 3$")
    axes[1].axvline(1.0, color="0.6", linewidth=0.8, zorder=0)
    axes[1].set(xlabel=label("latent dimensions per input", "d/p"), ylabel=label("test_error", r"\varepsilon_g"))
    axes[1].set_title(f"hidden manifold in p dimensions, $n/p = {PER_INPUT:g}$")
    for axis in axes:
        log_axis(axis.xaxis)
        axis.legend()
    figure.suptitle(
        rf"Orthogonal projections beat Gaussian ones most at $p = d$ (logistic, $\lambda = 0.01$; points: $d = {size}$)",
        fontsize=11,
    )
    return figure


def _points(axis: Any, x: Any, runs: Any, **look: Any) -> None:
    runs = runs.isel(size=-1)
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axis.errorbar(x, runs.mean("seed"), error, markersize=4.5, **look)


RECIPES = {
    "random-features-projections": Recipe(
        projections,
        draw_projections,
        sentence="Orthogonal against Gaussian projections, and inputs on a hidden manifold against independent ones.",
    )
}
