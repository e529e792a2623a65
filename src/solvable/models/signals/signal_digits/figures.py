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


def residual_study(quick: bool) -> Study:
    """The same networks with other residual strengths beside the attention."""
    model = SignalDigits(steps=5 if quick else 400, value_variance=VARIANCE, weight_variance=VARIANCE)
    over = {
        "layer_norm": ["after", "before"],
        "depth": DEPTHS[:2] if quick else DEPTHS[1::2],
        "attention_residual": [0.3, 3.0],
        "strength": STRENGTHS[::5] if quick else STRENGTHS,
    }
    return Study(model, over, sizes=[16 if quick else 64], seeds=2 if quick else 4)


def optimiser_study(quick: bool) -> Study:
    """Adam and plain gradient descent at all rates, from strong to weak gradients of queries and keys."""
    model = SignalDigits(depth=2 if quick else 6, steps=5 if quick else 400)
    over = {
        "layer_norm": ["after", "before"],
        "optimiser": ["adam", "sgd"],
        "strength": [0.03, 0.3, 1.0, 3.0][:: 3 if quick else 1],
        "rate": 10.0 ** np.arange(-4.0, 1.01, 2.0 if quick else 0.5),
    }
    return Study(model, over, sizes=[16 if quick else 64], seeds=2 if quick else 4)


def predicted(runs: Any, number: int) -> Any:
    """The theory's overlap after the last block at the start, at the depths of the runs and `number` strengths."""
    import xarray as xr

    from ..transformer_signals.model import STRONGEST, TransformerSignals

    finer = np.geomspace(STRENGTHS[0], STRONGEST, number)
    model = TransformerSignals(
        context=TOKENS, strength=finer, value_variance=VARIANCE, weight_variance=VARIANCE, bias_variance=0.0,
        initial_overlap=0.0,
    )  # fmt: skip
    places = [(str(norm), int(depth)) for norm in runs.layer_norm.values for depth in runs.depth.values]
    found = [
        np.asarray(model.replace(layer_norm=norm, depth=depth).theory(only=["final_overlap"]).final_overlap)
        for norm, depth in places
    ]
    overlap = np.reshape(found, (runs.sizes["layer_norm"], runs.sizes["depth"], number))
    return xr.Dataset(
        {"overlap": (("layer_norm", "depth", "strength"), overlap)},
        coords={"layer_norm": runs.layer_norm.values, "depth": runs.depth.values, "strength": finer},
    )


def diagram(quick: bool) -> dict[str, Any]:
    runs = study(quick).run()
    return {"": runs, "theory": predicted(runs, 12 if quick else 80)}


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
                theory.strength, theory.depth, overlap, levels=[0.5, 0.9, 0.99], colors="red", linewidths=1.2
            )
            axis.clabel(lines, fontsize=8)
            axis.set(xscale="log", yscale="log")
            axis.set_title(f"{words}, normalisation {norm}", fontsize=9)
            axis.grid(False)
            figure.colorbar(picture, ax=axis)
        row[0].set_ylabel(label("blocks", "L"))
        row[0].set_yticks(runs.depth.values, [str(depth) for depth in runs.depth.values])
        row[0].minorticks_off()
    for axis in axes[-1]:
        axis.set_xlabel(label("strength", r"\beta"))
    figure.suptitle(
        f"Transformers of width {int(runs['size'])} trained on digits; red: overlap of tokens predicted at initialisation",
        fontsize=11,
    )
    return figure


RECIPES = {
    "signal-digits": Recipe(
        diagram,
        draw_diagram,
        sentence="Transformers trained on digits over depth and query/key strength; red: overlap predicted at initialisation.",
    )
}
