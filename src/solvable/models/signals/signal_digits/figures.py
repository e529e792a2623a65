"""Accuracy of trained transformers over depth and query/key strength, beside the overlap at their start."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import label
from solvable.study import Study

from .model import TOKENS, SignalDigits

DEPTHS, STRENGTHS = [1, 2, 4, 8, 16, 32, 64], np.geomspace(0.1, 30.0, 8)
VARIANCE = 0.2


def study(quick: bool) -> Study:
    """The networks of the figure; all of them take minutes on a GPU."""
    model = SignalDigits(steps=5 if quick else 400, value_variance=VARIANCE, weight_variance=VARIANCE)
    over = {
        "layer_norm": ["after", "before"],
        "depth": DEPTHS[:2] if quick else DEPTHS,
        "strength": STRENGTHS[::5] if quick else STRENGTHS,
    }
    return Study(model, over, sizes=[16 if quick else 64], seeds=2 if quick else 4)


def diagram(quick: bool) -> dict[str, Any]:
    import xarray as xr

    from ..transformer_signals import TransformerSignals

    runs = study(quick).run()
    finer = np.geomspace(STRENGTHS[0], STRENGTHS[-1], 12 if quick else 80)
    model = TransformerSignals(
        context=TOKENS, strength=finer, value_variance=VARIANCE, weight_variance=VARIANCE, bias_variance=0.0,
        initial_overlap=0.0,
    )  # fmt: skip
    places = [(norm, depth) for norm in runs.layer_norm.values for depth in runs.depth.values]
    found = [
        np.asarray(model.replace(layer_norm=str(norm), depth=int(depth)).theory(only=["final_overlap"]).final_overlap)
        for norm, depth in places
    ]
    overlap = np.reshape(found, (runs.sizes["layer_norm"], runs.sizes["depth"], len(finer)))
    theory = xr.Dataset(
        {"overlap": (("layer_norm", "depth", "strength"), overlap)},
        coords={"layer_norm": runs.layer_norm.values, "depth": runs.depth.values, "strength": finer},
    )
    return {"": runs, "theory": theory}


def draw_diagram(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs, theory = data[""].isel(size=-1), data["theory"]
    figure, axes = plt.subplots(2, 3, figsize=(13.5, 7.4), layout="constrained", sharex=True, sharey=True)
    shown = (("train_accuracy", "accuracy on the training images"), ("accuracy", "accuracy on other images"),
             ("start_overlap", "overlap of tokens before training"))  # fmt: skip
    for row, norm in zip(axes, runs.layer_norm.values, strict=True):
        for axis, (name, words) in zip(row, shown, strict=True):
            values = runs[f"{name}_simulated"].sel(layer_norm=norm).mean("seed").transpose("depth", "strength")
            picture = axis.pcolormesh(
                runs.strength, runs.depth, values, vmin=0, vmax=1, cmap="viridis", shading="nearest"
            )
            overlap = theory.overlap.sel(layer_norm=norm).transpose("depth", "strength")
            lines = axis.contour(
                theory.strength, theory.depth, overlap, levels=[0.5, 0.9, 0.99], colors="w", linewidths=1
            )
            axis.clabel(lines, fontsize=8)
            axis.set(xscale="log", yscale="log")
            axis.set_title(f"{words}, normalisation {norm}", fontsize=9)
            axis.grid(False)
            figure.colorbar(picture, ax=axis)
        row[0].set_ylabel(label("blocks", "L"))
    for axis in axes[-1]:
        axis.set_xlabel(label("strength", r"\beta"))
    figure.suptitle(
        f"Transformers of width {int(runs['size'])} trained on digits; white: overlap of tokens predicted at initialisation",
        fontsize=11,
    )
    return figure


RECIPES = {
    "signal-digits": Recipe(
        diagram,
        draw_diagram,
        sentence="Transformers trained on digits over depth and query/key strength; white: overlap predicted at initialisation.",
    )
}
