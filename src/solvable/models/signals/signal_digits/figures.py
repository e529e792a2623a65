"""Accuracy of trained transformers over depth and query/key strength, beside the overlap at their start."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis
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
        "depth": [1, 2] if quick else [2, 8],
        "attention_residual": [0.3, 3.0],
        "strength": STRENGTHS[::5] if quick else STRENGTHS,
    }
    return Study(model, over, sizes=[16 if quick else 64], seeds=2 if quick else 4)


def optimiser_study(quick: bool) -> Study:
    """Adam and plain gradient descent at all rates, from strong to weak gradients of queries and keys."""
    model = SignalDigits(depth=2 if quick else 6, steps=5 if quick else 400)
    over = {
        "optimiser": ["adam", "sgd"],
        "strength": [0.03, 0.3, 1.0, 3.0][:: 3 if quick else 1],
        "rate": 10.0 ** np.arange(-4.0, 1.01, 2.0 if quick else 0.5),
    }
    return Study(model, over, sizes=[16 if quick else 64], seeds=2 if quick else 4)


def optimisers(quick: bool) -> dict[str, Any]:
    return {"": optimiser_study(quick).run()}


def residuals(quick: bool) -> dict[str, Any]:
    """The networks and the theory's overlap after the last block at the start."""
    import xarray as xr

    runs = residual_study(quick).run()
    strengths = np.minimum(runs.strength.values, _strongest())
    found = [
        [np.asarray(_theory(int(depth), "after", strengths, attention_residual=float(residual)))
         for residual in runs.attention_residual.values]
        for depth in runs.depth.values
    ]  # fmt: skip
    coords = {name: runs[name].values for name in ("depth", "attention_residual", "strength")}
    return {"": runs, "theory": xr.Dataset({"overlap": (tuple(coords), np.stack(found))}, coords)}


def _strongest() -> float:
    from ..transformer_signals.model import STRONGEST

    return STRONGEST


def _theory(depth: int, norm: str, strengths: np.ndarray, **values: Any) -> Any:
    """The theory's overlap after the last block at the start."""
    from ..transformer_signals.model import TransformerSignals

    model = TransformerSignals(
        context=TOKENS, strength=strengths, value_variance=VARIANCE, weight_variance=VARIANCE, bias_variance=0.0,
        initial_overlap=0.0, depth=depth, layer_norm=norm, **values,
    )  # fmt: skip
    return model.theory(only=["final_overlap"]).final_overlap


def predicted(runs: Any, number: int) -> Any:
    """The theory's overlap after the last block at the start, at the depths of the runs and `number` strengths."""
    import xarray as xr

    finer = np.geomspace(STRENGTHS[0], _strongest(), number)
    places = [(str(norm), int(depth)) for norm in runs.layer_norm.values for depth in runs.depth.values]
    found = [np.asarray(_theory(depth, norm, finer)) for norm, depth in places]
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
            axis.set(xscale="log", yscale="log")  # before the contours, whose labels follow their lines
            picture = axis.pcolormesh(
                runs.strength, runs.depth, values, vmin=0, vmax=1, cmap="viridis", shading="nearest"
            )
            overlap = theory.overlap.sel(layer_norm=norm).transpose("depth", "strength")
            lines = axis.contour(
                theory.strength, theory.depth, overlap, levels=[0.5, 0.9, 0.99], colors="red", linewidths=1.2
            )
            axis.clabel(lines, fontsize=8)
            axis.set_title(f"{words}, normalisation {norm}", fontsize=9)
            axis.grid(False)
            figure.colorbar(picture, ax=axis, label="overlap" if name == "start_overlap" else "accuracy")
        row[0].set_ylabel(label("blocks", "L"))
        row[0].set_yticks(runs.depth.values, [str(depth) for depth in runs.depth.values])
        row[0].minorticks_off()
    for axis in axes[-1]:
        axis.set_xlabel(label("strength of queries and keys", r"\beta"))
    figure.suptitle(
        f"Transformers of width {int(runs['size'])} trained on digits; red: overlap of tokens predicted at initialisation",
        fontsize=11,
    )
    return figure


def draw_optimisers(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""].isel(size=-1)
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    ratio = runs.gradient_ratio_simulated.isel(rate=0, optimiser=0).mean("seed") / np.log(10)
    for axis, (optimiser, words) in zip(axes, OPTIMISERS.items(), strict=False):
        for i, strength in enumerate(runs.strength.values):
            loss = runs.train_loss_simulated.sel(optimiser=optimiser, strength=strength)
            low, mean, high = (loss.reduce(f, "seed") for f in (np.min, np.median, np.max))
            errors = np.maximum(0, [mean - low, high - mean])
            words_of_line = rf"$\beta$ = {strength:g}: $10^{{{float(ratio[i]):.1f}}}$"
            axis.errorbar(
                loss.rate, mean, errors, fmt=MARKERS[i] + "-", color=COLOURS[i], markersize=4, label=words_of_line
            )
        log_axis(axis.xaxis)
        axis.set(yscale="log", xlabel=label("learning rate", r"\eta"), title=words, ylim=(3e-3, 5))
    axes[0].set_ylabel("training loss at the end (median, range)")
    axes[1].legend(title="squared gradients:\nvalues over queries", fontsize=7.5, title_fontsize=8, loc="lower left")
    gap = behind(runs)
    axes[2].errorbar(10**ratio, gap.mean("seed"), gap.std("seed", ddof=1) / np.sqrt(gap.sizes["seed"]), fmt="o-",
                     color=COLOURS[4])  # fmt: skip
    log_axis(axes[2].xaxis)
    axes[2].axhline(0, color="0.6", linewidth=0.8)
    axes[2].set(xlabel="squared gradient of values over that of queries", title="gradient descent over Adam, best rates",
                ylabel="natural logarithm of the ratio of losses")  # fmt: skip
    figure.suptitle(
        f"Transformers of 6 blocks, d = {int(data['']['size'][-1])}, on digits: plain gradient "
        "descent falls behind where queries have small gradients",
        fontsize=11,
    )
    return figure


OPTIMISERS = {"adam": "Adam", "sgd": "plain gradient descent"}


def behind(runs: Any) -> Any:
    """Logarithm of the training loss of gradient descent over that of Adam, each at the rate that is best in the mean."""
    losses = runs.train_loss_simulated
    best = losses.isel(rate=losses.mean("seed", skipna=False).fillna(np.inf).argmin("rate"))
    return np.log(best.sel(optimiser="sgd", drop=True)) - np.log(best.sel(optimiser="adam", drop=True))


def draw_residuals(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs, theory = data[""].isel(size=-1), data["theory"]
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.9), layout="constrained", sharex=True)
    for i, residual in enumerate(runs.attention_residual.values):
        for j, depth in enumerate(runs.depth.values):
            at = {"attention_residual": residual, "depth": depth}
            words = rf"$\alpha_A$ = {residual:g}, L = {depth}"
            for axis, name in ((axes[0], "train_accuracy_simulated"), (axes[1], "start_overlap_simulated")):
                values = runs[name].sel(at)
                error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
                axis.errorbar(values.strength, values.mean("seed"), error, fmt=MARKERS[2 * i + j],
                              linestyle="-" if axis is axes[0] else "none", color=COLOURS[2 * i + j], label=words)  # fmt: skip
            axes[1].plot(theory.strength, theory.overlap.sel(at), color=COLOURS[2 * i + j], linewidth=1)
    for axis, words in ((axes[0], "accuracy on the training images"), (axes[1], "overlap of tokens before training")):
        log_axis(axis.xaxis)
        axis.set(xlabel=label("strength of queries and keys", r"\beta"), ylabel=words, ylim=(0, 1.03))
    axes[0].legend(title=r"residual strength $\alpha_A$, blocks $L$", fontsize=8, title_fontsize=8)
    axes[0].set_title("after training", fontsize=9)
    axes[1].set_title("points: networks; lines: theory", fontsize=9)
    figure.suptitle("Transformers on digits with other residual strengths beside the attention", fontsize=11)
    return figure


RECIPES = {
    "signal-digits": Recipe(
        diagram,
        draw_diagram,
        sentence="Transformers trained on digits over depth and query/key strength; red: overlap predicted at initialisation.",
    ),
    "signal-digits-optimisers": Recipe(
        optimisers,
        draw_optimisers,
        sentence="Training loss of transformers on digits by Adam and by gradient descent, where queries have small gradients.",
        also=("rank-collapse",),
    ),
    "signal-digits-residuals": Recipe(
        residuals,
        draw_residuals,
        sentence="Transformers trained on digits with weak and strong residuals, beside the overlap predicted at their start.",
    ),
}
