"""Accuracy of trained transformers over depth and query/key strength, beside the overlap at their start."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import label
from solvable.study import Study

from .model import TOKENS, SignalDigits


def diagram(quick: bool) -> dict[str, Any]:
    import xarray as xr

    from ..transformer_signals import TransformerSignals

    size, seeds, steps = (16, 2, 5) if quick else (64, 4, 400)
    depths = [1, 2] if quick else [1, 2, 4, 8, 16, 32, 64]
    strengths = np.geomspace(0.1, 5.0, 2 if quick else 8)
    model = SignalDigits(steps=steps)
    runs = Study(model, {"depth": depths, "strength": strengths}, sizes=[size], seeds=seeds).run()
    finer = np.geomspace(0.1, 5.0, 12 if quick else 80)
    predicted = [
        np.asarray(
            TransformerSignals(
                context=TOKENS, depth=depth, strength=finer, value_variance=1.0, weight_variance=1.0, bias_variance=0.0,
                initial_overlap=0.0,
            ).theory(only=["final_overlap"]).final_overlap
        )
        for depth in depths
    ]  # fmt: skip
    theory = xr.Dataset(
        {"overlap": (("depth", "strength"), np.stack(predicted))}, coords={"depth": depths, "strength": finer}
    )
    return {"": runs, "theory": theory}


def draw_diagram(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs, theory = data[""].isel(size=-1), data["theory"]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4), layout="constrained")
    shown = (("train_accuracy", "accuracy on the training images"), ("accuracy", "accuracy on other images"),
             ("start_overlap", "overlap of tokens before training"))  # fmt: skip
    for axis, (name, words) in zip(axes, shown, strict=True):
        values = runs[f"{name}_simulated"].mean("seed").transpose("depth", "strength")
        picture = axis.pcolormesh(runs.strength, runs.depth, values, vmin=0, vmax=1, cmap="viridis", shading="nearest")
        lines = axis.contour(
            theory.strength, theory.depth, theory.overlap, levels=[0.9, 0.99], colors="w", linewidths=1
        )
        axis.clabel(lines, fontsize=8)
        axis.set(xscale="log", yscale="log", xlabel=label("strength", r"\beta"), ylabel=label("blocks", "L"))
        axis.set_title(words, fontsize=9)
        axis.grid(False)
        figure.colorbar(picture, ax=axis)
    return figure


RECIPES = {
    "signal-digits": Recipe(
        diagram,
        draw_diagram,
        sentence="Transformers trained on digits over depth and query/key strength; white: overlap predicted at initialisation.",
    )
}
