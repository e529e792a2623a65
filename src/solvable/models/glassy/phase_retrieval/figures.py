"""Gradient flow in phase retrieval: how often it escapes, from which states, and the Hessian along the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis
from solvable.search import locate
from solvable.study import Study

from .large import descents
from .model import RECOVERED, PhaseRetrieval, final_predictions

LOSSES = (0.0, 1.0)
NAMES = {0.0: r"plain loss, $\kappa = 0$", 1.0: r"normalised loss, $\kappa = 1$"}
FOLLOWED = (4.0, 10.0)  # measurements per dimension at which descents are followed in time


def escape(quick: bool) -> dict[str, Any]:
    import xarray as xr

    samples = [3.0, 6.0, 10.0] if quick else [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0]
    sizes, seeds = ([32, 64], 4) if quick else ([64, 128, 256], 24)
    times = np.array([0.0, *np.geomspace(0.3, 100.0, 5 if quick else 10)])
    fine = np.geomspace(2.5, 20.0, 12 if quick else 80)
    losses = {"normalisation": list(LOSSES)}

    model = PhaseRetrieval(times=[0.0, 50.0 if quick else 200.0])
    runs = Study(model, {**losses, "samples": samples}, sizes=sizes, seeds=seeds).run()
    runs = runs[[f"{name}_simulated" for name in ("reached", "train_loss", "prediction_variance", "lowest")]]
    more, larger, number = ([3.0, 6.0], [32, 64], 4) if quick else ([*samples, 12.0], [256, 512], 48)
    large = Study(model, {"samples": more}, sizes=larger, seeds=number).run()[["reached_simulated"]]
    paths = Study(PhaseRetrieval(times=times), {**losses, "samples": list(FOLLOWED)}, sizes=[sizes[-1]],
                  seeds=4 if quick else 12).run()  # fmt: skip
    paths = paths[[f"{name}_simulated" for name in ("overlap", "lowest_path", "alignment_path")]]

    found = PhaseRetrieval(samples=fine[:, None], normalisation=np.array(LOSSES)).theory()
    strengths = np.array(LOSSES if quick else [0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0])
    where = [locate(PhaseRetrieval(normalisation=k), along="samples", between=(3, 20), points=17) for k in strengths]
    names = ("train_loss", "prediction_variance", "lowest", "alignment", "margin")
    table = xr.Dataset({n: (("samples", "normalisation"), np.asarray(found[n])) for n in names})
    table = table.assign_coords(samples=fine, normalisation=np.array(LOSSES))
    table = table.assign(threshold=("strength", np.array(where))).assign_coords(strength=strengths)
    return {"": table, "runs": runs, "large": large, "paths": paths}


def draw_escape(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, runs, large, paths = data[""], data["runs"], data["large"], data["paths"]
    figure, grid = plt.subplots(2, 3, figsize=(13.5, 7.6), layout="constrained")
    axes = grid.ravel()
    for axis, kappa in zip(axes[:2], LOSSES, strict=True):
        shown = [runs.reached_simulated.sel(normalisation=kappa, size=size) for size in runs["size"].values]
        if kappa == 0:  # the larger study has twice the seeds
            shown = [*shown[:-1], *(large.reached_simulated.sel(size=size) for size in large["size"].values)]
        for reached, colour in zip(shown, COLOURS, strict=False):
            share, seeds = reached.mean("seed"), reached.sizes["seed"]
            error = np.sqrt(np.maximum(share * (1 - share), 1 / seeds) / seeds)
            axis.errorbar(reached.samples, share, error, fmt="o-", linewidth=0.8, markersize=4, color=colour,
                          label=f"descents, N = {int(reached['size'])}")  # fmt: skip
        threshold = float(table.threshold.sel(strength=kappa))
        axis.axvline(
            threshold, ymax=0.72, color="0.3", linestyle="--", label=rf"Hessian's threshold, $\alpha = {threshold:.2f}$"
        )
        axis.set(
            xlabel=label("samples", r"\alpha"),
            ylabel="fraction that find the signal",
            xlim=(2, 16),
            ylim=(-0.08, 1.45),
        )
        axis.set_title(f"{NAMES[kappa]}: escapes")
        axis.legend(loc="upper left", ncols=2, fontsize=7.5)

    axes[2].plot(table.strength, table.threshold, color=COLOURS[0])
    axes[2].set(xlabel=label("normalisation", r"\kappa"), ylabel=r"threshold $\alpha$ of the Hessian", ylim=(0, 15))
    axes[2].set_title("where the signal leaves the bulk\nof trapped states (large N)")

    for kappa, colour in zip(LOSSES, COLOURS, strict=False):
        axes[3].plot(table.samples, table.train_loss.sel(normalisation=kappa), color=colour, label=NAMES[kappa])
        for size, marker in zip(runs["size"].values[[0, -1]], "s^", strict=True):
            trapped = runs.train_loss_simulated.sel(normalisation=kappa, size=size)
            number = np.isfinite(trapped).sum("seed")
            few = number >= 3
            mean, error = trapped.mean("seed"), trapped.std("seed", ddof=1) / np.sqrt(number)
            axes[3].errorbar(runs.samples[few], mean[few], error[few], fmt=marker, markersize=4, color=colour,
                             label=f"trapped descents, N = {int(size)}")  # fmt: skip
    axes[3].set(xlabel=label("samples", r"\alpha"), ylabel="mean loss of a measurement", xlim=(2, 11), ylim=(0, 0.45))
    axes[3].set_title("loss of trapped states: line, one step of\nreplica-symmetry breaking")
    axes[3].legend(fontsize=7)

    size = int(paths["size"][-1])
    styles = dict(zip([(k, a) for k in LOSSES for a in FOLLOWED], COLOURS, strict=False))
    for (kappa, alpha), colour in styles.items():
        here = paths.sel(normalisation=kappa, samples=alpha).isel(size=-1)
        name = rf"$\kappa = {kappa:g}$, $\alpha = {alpha:g}$"
        for axis, values in ((axes[4], here.lowest_path_simulated), (axes[5], here.alignment_path_simulated)):
            error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
            axis.errorbar(np.maximum(here.time, 0.1), values.mean("seed"), error, fmt="o-", markersize=3, linewidth=0.8,
                          color=colour, label=name)  # fmt: skip
    for axis in axes[4:]:
        log_axis(axis.xaxis)
        axis.set(xlabel="training time $t$ (the start is drawn at 0.1)")
        axis.legend(fontsize=7.5)
    axes[4].axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axes[4].set_yscale("symlog", linthresh=1.0)
    axes[4].set(ylabel=label("lowest", r"\lambda_{\min}"))
    axes[4].set_title(f"lowest eigenvalue of the Hessian\nduring descents, N = {size}")
    axes[5].set(ylabel="squared cosine with the signal", ylim=(0, 1.3))
    axes[5].set_title(f"and where its eigenvector points, N = {size}")
    figure.suptitle(
        "Phase retrieval: at these sizes descents escape far below the Hessian's large-N threshold",
        fontsize=11,
    )
    return figure


# --- labels and predictions in trapped states -------------------------------------------------------------------------

AMPLITUDES = (0.0, 0.5, 1.0, 1.5, 9.0)  # edges of the classes of |y|
PREDICTIONS = np.linspace(0.0, 2.6, 14)  # edges of the bins of |ŷ|
TRAPPED = 4.0  # measurements per dimension: most descents are trapped


def histogram(quick: bool) -> dict[str, Any]:
    """The law of |ŷ| given |y|: of descents that did not find the signal, and by one step of replica-symmetry breaking."""
    import jax
    import xarray as xr

    size, seeds, until = (32, 4, 20.0) if quick else (256, 24, 200.0)
    keys = jax.random.split(jax.random.key(7), seeds)
    y, z, overlap = jax.lax.map(lambda key: final_predictions(key, size, TRAPPED, until), keys)
    law = PhaseRetrieval(samples=TRAPPED)._law(PhaseRetrieval.numerics.updated({"nodes": 800}))[
        0
    ]  # nodes fill the bins
    bins = [np.array(AMPLITUDES), np.append(PREDICTIONS[:-1], 99.0)]

    def shares(y: Any, z: Any, weights: Any = None) -> np.ndarray:
        counted = np.histogram2d(np.abs(y), np.abs(z), bins, weights=weights)[0]
        return counted / counted.sum(axis=1, keepdims=True)

    trapped = [i for i in range(seeds) if abs(float(overlap[i])) < RECOVERED]
    runs = np.stack([shares(np.asarray(y[i]), np.asarray(z[i])) for i in trapped])
    exact = shares(law.amplitude, law.prediction, np.asarray(law.chance))
    table = xr.Dataset(
        {"theory": (("amplitude", "prediction"), exact), "runs": (("seed", "amplitude", "prediction"), runs)},
        coords={"prediction": PREDICTIONS[:-1], "amplitude": list(AMPLITUDES[:-1])},
    )
    return {"": table.assign_attrs(samples=TRAPPED, size=size, seeds=seeds)}


def draw_histogram(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axis = plt.subplots(figsize=(6.2, 4.0))
    number = table.sizes["seed"]
    for i, low in enumerate(table.amplitude.values):
        at = table.sel(amplitude=low)
        high = AMPLITUDES[i + 1]
        name = f"{low:g} < |y| < {high:g}" if high < 9 else f"|y| > {low:g}"
        axis.stairs(at.theory.values, PREDICTIONS, color=COLOURS[i], label=name)
        middle = 0.5 * (PREDICTIONS[1:] + PREDICTIONS[:-1])
        axis.errorbar(middle, at.runs.mean("seed"), at.runs.std("seed", ddof=1) / np.sqrt(number), fmt="o", markersize=3.5,
                      color=COLOURS[i])  # fmt: skip
    axis.set(
        xlabel="modulus of the prediction, $|\\hat y|$ (the last bin has all larger ones)",
        ylabel="share of measurements",
    )
    axis.set_title(
        f"{number} of {int(table.attrs['seeds'])} descents, N = {int(table.attrs['size'])} (points); "
        "threshold states (lines)", fontsize=9,
    )  # fmt: skip
    axis.legend(fontsize=8)
    figure.suptitle(
        rf"Predictions where phase retrieval is trapped ($\alpha$ = {float(table.attrs['samples']):g})", fontsize=11
    )
    return figure


# --- states without overlap -------------------------------------------------------------------------------------------

EQUATOR = (8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0)


def equator(quick: bool) -> dict[str, Any]:
    """Descents confined to overlap zero, whose ends have no overlap at any α, and the lowest direction of their Hessian."""
    sizes = {16: 2, 32: 2} if quick else {128: 5, 256: 4}
    times = (1.0, 2.0) if quick else (50.0, 200.0)
    names, found = ("lowest", "alignment", "loss"), {}
    for size, number in sizes.items():
        runs = [descents(seed, size, EQUATOR, times, 1, confined=True, spectra=True) for seed in range(number)]
        ends = [run | {"loss": run["loss"][..., -1]} for run in runs]
        found[size] = {name: np.stack([end[name][:, 0] for end in ends], axis=1) for name in names}
    return {"": equator_table(found)}


def equator_table(found: dict[int, dict[str, np.ndarray]]) -> Any:
    """Values by size, α and seed, with the theory's."""
    import xarray as xr

    most = max(each["lowest"].shape[1] for each in found.values())
    table = xr.Dataset(coords={"size": list(found), "samples": list(EQUATOR)})
    for name in ("lowest", "alignment", "loss"):
        parts = [
            np.pad(each[name], [(0, 0), (0, most - each[name].shape[1])], constant_values=np.nan)
            for each in found.values()
        ]
        table[name] = (("size", "samples", "seed"), np.stack(parts))
    exact = PhaseRetrieval(samples=np.array(EQUATOR)).theory()
    for name, of in (("lowest", "lowest"), ("alignment", "alignment"), ("loss", "train_loss")):
        table[f"{name}_theory"] = ("samples", np.asarray(exact[of]))
    return table


def draw_equator(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 3.9), layout="constrained")
    words = {
        "loss": "mean loss of a measurement",
        "lowest": r"lowest eigenvalue of the Hessian, $\lambda_{\min}$",
        "alignment": "squared cosine with the signal",
    }
    for axis, (name, what) in zip(axes, words.items(), strict=True):
        axis.plot(table.samples, table[f"{name}_theory"], color="0.3", label="threshold states, $N \\to \\infty$")
        for i, size in enumerate(table["size"].values):
            at = table[name].sel(size=size)
            error = at.std("seed", ddof=1) / np.sqrt(at.count("seed"))
            axis.errorbar(at.samples + 0.12 * (i - 1), at.mean("seed"), error, fmt="o", markersize=4, color=COLOURS[i],
                          label=f"descents, N = {int(size)}")  # fmt: skip
        axis.axvline(13.80, color="0.5", linestyle="--", linewidth=1)
        axis.set(xlabel=label("measurements per dimension", r"\alpha"), ylabel=what)
    axes[0].legend(fontsize=8)
    axes[1].axhline(0, color="0.6", linewidth=0.8, zorder=0)
    figure.suptitle(
        "Descents confined to overlap zero end where the Hessian points to the signal (dashed: threshold 13.8)",
        fontsize=11,
    )
    return figure


RECIPES = {
    "phase-retrieval-equator": Recipe(
        equator,
        draw_equator,
        sentence="Where descents end that are kept without overlap, and whether their Hessian points to the signal there.",
    ),
    "phase-retrieval-law": Recipe(
        histogram,
        draw_histogram,
        sentence="Labels and predictions in the states where gradient flow is trapped, against those of threshold states.",
    ),
    "phase-retrieval-escape": Recipe(
        escape,
        draw_escape,
        sentence="How often gradient flow finds the signal, in which states it is trapped, and where their Hessian points.",
    ),
}
