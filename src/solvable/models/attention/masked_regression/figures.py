"""The interpolation peak of masked regression, its spectrum, and when it detects a hidden direction that PCA misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, INK, label, log_axis, standard_error
from solvable.search import optimise
from solvable.study import Study

from .model import EDGES, MaskedRegression

PENALTIES = (0.0, 0.01, 0.1)


def peak(quick: bool) -> dict[str, Any]:
    chain = MaskedRegression(correlation=0.8, penalty=0.1)
    samples = np.unique(
        np.concatenate([np.geomspace(0.25, 8, 60), [0.9, 0.95, 0.98, 0.99, 0.995, 1.005, 1.01, 1.02, 1.05, 1.1]])
    )
    theory = Study(chain, {"penalty": PENALTIES, "samples": samples}).run()
    tuned = np.geomspace(0.25, 8, 7 if quick else 15)
    best = [optimise(chain.replace(samples=a), "penalty", minimise="test_loss").value for a in tuned]
    theory = theory.assign(best_loss=("tuned", np.array(best))).assign_coords(tuned=tuned)
    sizes, seeds = ([100, 200], 8) if quick else ([150, 300, 600], 12)
    some = np.array([0.35, 0.5, 0.7, 0.85, 1.2, 1.6, 2.5, 4.0, 7.0])
    experiment = Study(chain, {"penalty": PENALTIES, "samples": some}, sizes=sizes, seeds=seeds).run()
    glass = MaskedRegression(penalty=0.0)
    talk = Study(glass, {"covariance": ["ring", "paramagnet"], "samples": samples[samples != 1]}).run()
    spins = Study(glass, {"covariance": ["ring", "paramagnet"], "samples": some}, sizes=sizes[-1:], seeds=seeds).run()
    return {"theory": theory, "experiment": experiment, "talk": talk, "spins": spins}


def draw_peak(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, experiment, talk, spins = (data[k] for k in ("theory", "experiment", "talk", "spins"))
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6))
    left, right = axes
    for penalty, colour in zip(PENALTIES, COLOURS, strict=False):
        name = rf"penalty $\lambda = {penalty:g}$" if penalty else r"penalty $\lambda \to 0$"
        left.plot(theory.samples, theory.test_loss_theory.sel(penalty=penalty), color=colour, label=name)
        _points(left, experiment.test_loss_simulated.sel(penalty=penalty), experiment, colour)
    left.plot(theory.tuned, theory.best_loss, color=INK, linestyle=":", label=r"best penalty: no peak")
    left.axhline(float(theory.bayes_loss_theory[0, 0]), color=INK, linestyle="--", linewidth=1, label="Bayes")
    left.set(xlabel=label("samples", r"n/d"), ylabel=label("test_loss", r"E_\mathrm{gen}"), ylim=(0.15, 20))
    left.set_title("the best penalty removes the peak\n(Markov chain, neighbours correlated by 0.8)")
    for covariance, colour, dash in (("ring", COLOURS[2], "-"), ("paramagnet", COLOURS[3], "--")):
        line = talk.half_test_loss_theory.sel(covariance=covariance)
        right.plot(talk.samples, line, dash, color=colour, label=f"spins: {covariance}")
        _points(right, spins.half_test_loss_simulated.sel(covariance=covariance), spins, colour)
    right.axhline(0.4, color=INK, linestyle="--", linewidth=1, label="Bayes (both)")
    right.set(
        xlabel=label("samples", r"M/L"), ylabel=r"half the test loss per site, $\varepsilon_g / L$", ylim=(0.3, 20)
    )
    right.set_title("no labels, yet an interpolation peak\nwhere samples equal sites")
    for axis in axes:
        log_axis(axis.xaxis)
        log_axis(axis.yaxis)
        axis.axvline(1.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        axis.legend()
    figure.suptitle("Masked regression: theory (lines) and experiment (points)", fontsize=11)
    return figure


def _points(axis: Any, points: Any, source: Any, colour: str) -> None:
    last = points.sel(size=points["size"].values[-1])
    error = standard_error(last)
    axis.errorbar(source.samples, last.mean("seed"), error, fmt="o", color=colour, markersize=3.6)


def spike(quick: bool) -> dict[str, Any]:
    noisy = MaskedRegression(covariance="spiked", samples=2.0, penalty=0.0)
    strengths = np.linspace(0.02, 6.0, 120)
    theory = Study(noisy, {"variances": ["equal", "two-level"], "spike": strengths}).run()
    size, seeds = (200, 6) if quick else (800, 10)
    some = np.array([0.3, 0.6, 1.0, 1.5, 2.2, 3.0, 4.0, 5.5])
    options = {"sizes": [size], "seeds": seeds}
    experiment = Study(noisy, {"variances": ["equal", "two-level"], "spike": some}, **options).run()
    seen = noisy.replace(variances="two-level", penalty=0.3, spike=1.5)
    spectrum = Study(seen, {"spike": [1.5]}, sizes=[size], seeds=seeds).run()
    return {"theory": theory, "experiment": experiment, "spectrum": spectrum}


def draw_spike(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, experiment, spectrum = (data[k] for k in ("theory", "experiment", "spectrum"))
    figure, axes = plt.subplots(1, 3, figsize=(11.6, 3.5))
    curves = (("overlap_right", "masked, right"), ("overlap_left", "masked, left"), ("pca_overlap", "PCA"))
    for axis, variances in zip(axes[:2], ("equal", "two-level"), strict=True):
        for (name, words), colour in zip(curves, COLOURS, strict=False):
            line = theory[f"{name}_theory"].sel(variances=variances)
            axis.plot(theory.spike, line, color=colour, label=words, linestyle="--" if name == "pca_overlap" else "-")
            points = experiment[f"{name}_simulated"].sel(variances=variances).isel(size=0)
            error = standard_error(points)
            axis.errorbar(experiment.spike, points.mean("seed"), error, fmt="o", color=colour, markersize=3.6)
        for name, colour in (("threshold", COLOURS[0]), ("pca_threshold", COLOURS[2])):
            place = float(theory[f"{name}_theory"].sel(variances=variances)[0])
            axis.axvline(place, color=colour, linewidth=0.8, linestyle=":")
        axis.set(xlabel=label("spike", r"\theta"), ylabel="squared overlap with $u$", ylim=(-0.02, 1))
        axis.set_title(f"{variances} noise" if variances == "equal" else "a quarter of the coordinates are noisy")
        axis.legend(loc="lower right")
    axis = axes[2]
    centres, width = spectrum["eigenvalue"].values, np.diff(EDGES)
    measured = spectrum.spectrum_simulated.isel(spike=0, size=0).mean("seed")
    axis.bar(
        centres,
        measured / width,
        width,
        color=COLOURS[5],
        alpha=0.6,
        label=f"experiment, d = {int(spectrum['size'][0])}",
    )
    axis.step(
        EDGES,
        np.append(spectrum.spectrum_theory.isel(spike=0) / width, 0.0),
        where="post",
        color=COLOURS[0],
        label="theory",
    )
    for name, colour in (("edge", INK), ("outlier", COLOURS[1])):
        axis.axvline(float(spectrum[f"{name}_theory"][0]), color=colour, linewidth=1, linestyle=":", label=name)
    axis.set(xlabel="eigenvalue of the predictor", ylabel="density", xlim=(-2, 1.05))
    axis.set_title(r"spectrum, $\lambda = 0.3$, $\theta = 1.5$")
    axis.legend(loc="upper left")
    figure.suptitle("Masked regression whitens the noise that blinds PCA, $n = 2d$", fontsize=11)
    return figure


def region_studies(quick: bool) -> dict[str, Study]:
    """Theory over samples and strength of the spike, and experiments at some points."""
    model, noises = MaskedRegression(covariance="spiked", penalty=0.3), {"variances": ["equal", "two-level"]}
    samples, strengths = (np.geomspace(0.25, 16, 5), np.linspace(0.1, 6, 6)) if quick else (
        np.geomspace(0.25, 16, 37), np.linspace(0.1, 6, 60)
    )  # fmt: skip
    some = {"samples": np.array([0.5, 1.5, 4.0, 8.0]), "spike": np.array([0.6, 1.5, 3.0, 5.0])}
    size, seeds = (60, 2) if quick else (200, 6)
    return {
        "theory": Study(model, noises | {"samples": samples, "spike": strengths}),
        "experiment": Study(model, noises | some, sizes=[size], seeds=seeds),
    }


def region(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    pieces = pieces or Pieces()
    found = {name: pieces.run(name, [study])[0] for name, study in region_studies(quick).items()}
    theory = found["theory"]
    lead = theory.overlap_left_theory - theory.pca_overlap_theory
    lines = {name: theory[f"{name}_theory"].isel(spike=0, drop=True) for name in ("threshold", "pca_threshold")}
    names = [f"{n}_{kind}" for n in ("overlap_left", "pca_overlap") for kind in ("simulated", "expected")]
    parts = {"theory": xr.Dataset({"gain": lead} | lines), "experiment": found["experiment"][names]}
    return {name: part.assign_attrs(found[name].attrs) for name, part in parts.items()}


def draw_region(data: dict[str, Any]) -> Any:
    """Colours: theory on a fine grid; discs in the same colours: experiment."""
    import matplotlib.pyplot as plt

    theory, runs = data["theory"], data["experiment"].isel(size=0)
    seen = (runs.overlap_left_simulated - runs.pca_overlap_simulated).mean("seed")
    limit = float(np.abs(theory.gain).max())
    look: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), sharey=True, layout="constrained")
    for axis, variances in zip(axes, ("equal", "two-level"), strict=True):
        here = theory.sel(variances=variances)
        shade = axis.pcolormesh(
            here.samples, here.spike, here.gain.transpose("spike", "samples"), shading="auto", **look
        )
        for name, words, style in (("threshold", "threshold, masked", "-"), ("pca_threshold", "threshold, PCA", "--")):
            axis.plot(here.samples, here[name], color=INK, linestyle=style, linewidth=1.2, label=words)
        points = seen.sel(variances=variances).stack(point=("samples", "spike"))
        axis.scatter(points.samples, points.spike, c=points.values, edgecolors=INK, linewidths=0.8, s=38, **look)
        axis.set(xlabel=label("samples", "n/d"), ylim=(0.1, 6))
        axis.grid(visible=False)
        axis.set_title(f"{variances} noise" if variances == "equal" else "a quarter of the coordinates are noisy")
        log_axis(axis.xaxis)
    axes[0].set_ylabel(label("spike", r"\theta"))
    axes[1].legend(loc="upper right")
    size = int(data["experiment"]["size"].values[0])
    words = f"squared overlap with $u$,\nmasked minus PCA (discs: $d = {size}$)"
    figure.colorbar(shade, ax=axes, label=words)
    figure.suptitle("Masked regression finds a hidden direction where PCA does not, if noise is unequal", fontsize=11)
    return figure


RECIPES = {
    "masked-regression-peak": Recipe(
        peak,
        draw_peak,
        sentence="Masked regression has an interpolation peak although there are no labels; the best penalty removes it.",
    ),
    "masked-regression-region": Recipe(
        region,
        draw_region,
        resumes=True,
        sentence="Where masked regression finds a hidden direction better than PCA: samples and strength of the spike.",
    ),
    "masked-regression-spike": Recipe(
        spike,
        draw_spike,
        sentence="When masked regression detects a hidden direction that PCA misses; the predictor's spectrum.",
    ),
}
