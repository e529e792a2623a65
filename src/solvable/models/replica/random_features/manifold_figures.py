"""The correlations that a hidden manifold puts into the data: error against its dimension, beside independent entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis
from solvable.study import Study

from .model import RandomFeatures

PER_INPUT = 3.0
"""Samples per input, n/p."""
ENTRIES = {"gaussian": "correlated entries (Gaussian projection)", "orthogonal": "independent entries (orthogonal)"}


def manifold(quick: bool) -> dict[str, Any]:
    """Theory at fixed n/p: fewer latent dimensions are more features and samples for each of them."""
    ratios = np.geomspace(0.1, 30, 6 if quick else 24)
    arms = {f"{r:g}": {"width": 1 / r, "samples": PER_INPUT / r} for r in np.sort(np.append(ratios, 1.0))}
    model = RandomFeatures(activation="tanh", penalty=0.01)
    found = Study(model, {"projection": list(ENTRIES)}, arms=arms).run()
    some = {f"{r:g}": {"width": 1 / r, "samples": PER_INPUT / r} for r in (0.5, 1.0, 2.0, 5.0)}
    measured = Study(
        model, {"projection": list(ENTRIES)}, arms=some, sizes=[60 if quick else 200], seeds=4 if quick else 32
    )
    return {"": found[["test_error_theory", "converged_theory"]], "measured": measured.run()}


def draw_manifold(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, measured = data[""].test_error_theory, data["measured"].test_error_simulated
    figure, axis = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
    for (projection, words), colour in zip(ENTRIES.items(), COLOURS, strict=False):
        axis.plot(lines.arm.astype(float), lines.sel(projection=projection), color=colour, label=words)
        runs = measured.sel(projection=projection).isel(size=-1)
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.errorbar(runs.arm.astype(float), runs.mean("seed"), error, fmt="o", color=colour, markersize=4)
    axis.axvline(1.0, color="0.6", linewidth=0.8, zorder=0)
    log_axis(axis.xaxis)
    axis.set(xlabel=label("latent dimensions per input", "d/p"), ylabel=label("test_error", r"\varepsilon_g"))
    axis.set_title(
        f"Correlated inputs are harder near d = p\n(logistic, $n/p = {PER_INPUT:g}$, $\\lambda = 0.01$; points: d = "
        f"{int(measured['size'][-1])})"
    )
    axis.legend(fontsize=8)
    return figure


RECIPES = {
    "random-features-manifold": Recipe(
        manifold,
        draw_manifold,
        sentence="Error against the dimension of a hidden manifold, beside inputs with independent entries: whether "
        "correlations that a manifold induces matter.",
    )
}
