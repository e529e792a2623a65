"""From memorising to generalising, and what weight decay and early stopping do, in linear diffusion models."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, label, log_axis, standard_error
from solvable.study import Study

from .model import LinearDiffusion

SPECTRA = {"white": "white", "power-law": r"power law, $\lambda_\nu \propto 1/\nu$"}
SHOWN: dict[str, Any] = {"signal": 0.9, "modes": 50}
SIZE = 100
EARLY: dict[str, Any] = {"training": "flow", "sampler": "steps", "steps": 200}
FEW_AND_MANY = (0.5, 50.0)


def _kept(data: Any, *names: str) -> Any:
    """The observables that the figure shows."""
    return data[[v for v in data.data_vars if str(v).rsplit("_", 1)[0] in names]]


def transition(quick: bool) -> dict[str, Any]:
    model, spectra = LinearDiffusion(dimension=SIZE, **SHOWN), list(SPECTRA)
    dense = np.unique(np.concatenate([np.geomspace(0.1, 40, 121), np.geomspace(1.05, 1.5, 15)]))
    some = [0.2, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 5.0, 20.0]
    theory = Study(model, {"covariance": spectra, "samples": dense}).run()
    penalised = Study(model.replace(penalty=0.1), {"covariance": spectra, "samples": [0.5, 2.0, 20.0]}).run()
    seeds = 4 if quick else 16
    runs = Study(model, {"covariance": spectra, "samples": some}, sizes=[SIZE], seeds=seeds).run()
    names = ("test_loss", "train_loss", "bayes_loss", "reverse_kl", "forward_kl")
    return {
        "theory": _kept(theory, *names),
        "penalised": _kept(penalised, "reverse_kl", "forward_kl"),
        "runs": _kept(runs, *names),
    }


def draw_transition(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    theory, runs = data["theory"], data["runs"].isel(size=0)
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    for axis, name in zip(axes, SPECTRA, strict=False):
        for which, words, colour in (("test_loss", "test", COLOURS[0]), ("train_loss", "training", COLOURS[1])):
            axis.plot(theory.samples, theory[f"{which}_theory"].sel(covariance=name), color=colour, label=words)
            _points(axis, runs[f"{which}_simulated"].sel(covariance=name), colour)
        floor = float(theory.bayes_loss_theory.sel(covariance=name)[0])
        axis.axhline(floor, color=INK, linestyle="--", linewidth=1, label="best denoiser")
        axis.set(
            xlabel=label("training points per dimension", "N/d"),
            ylabel=label("error of the denoiser", "E"),
            ylim=(0.08, 12),
        )
        axis.set_title(SPECTRA[name])
        axis.legend()
    axis = axes[2]
    for which, words, colour in (
        ("reverse_kl", r"$D(\mathrm{model}\,\Vert\,\mathrm{data})$", COLOURS[2]),
        ("forward_kl", r"$D(\mathrm{data}\,\Vert\,\mathrm{model})$", COLOURS[3]),
    ):
        line = theory[f"{which}_theory"].sel(covariance="white")
        axis.plot(theory.samples, line.where(np.isfinite(line)), color=colour, label=words)
        for name, marker in (("white", "o"), ("power-law", "s")):
            points = runs[f"{which}_simulated"].sel(covariance=name)
            _points(axis, points.where(np.isfinite(points)), colour, marker, 1.0 if marker == "o" else 1.1)
    many = np.array([1.5, 40.0])
    axis.plot(many, 1 / (4 * many), color=INK, linestyle=":", label=r"$d/(4N)$")
    axis.axvspan(0.1, 1.0, color="#eeeeee", zorder=0)
    axis.text(
        0.32, 0.1, "infinite:\nthe data are\nmemorised", ha="center", fontsize=8, transform=axis.get_xaxis_transform()
    )
    axis.set(xlabel=label("training points per dimension", "N/d"), ylabel="divergence per dimension", ylim=(5e-3, 20))
    axis.set_title("samples: circles white, squares power law")
    axis.legend()
    for axis in axes:
        log_axis(axis.xaxis)
        log_axis(axis.yaxis)
        axis.set_xlim(0.1, 40)
        axis.axvline(1.0, color="#bbbbbb", linewidth=0.8, zorder=0)
    figure.suptitle(
        rf"Linear diffusion at $d = {SIZE}$: theory (lines) and experiment (points), share of the signal $\bar\alpha_t = 0.9$",
        fontsize=11,
    )
    return figure


def regularisation(quick: bool) -> dict[str, Any]:
    model, spectra, seeds = LinearDiffusion(dimension=SIZE, **SHOWN), list(SPECTRA), 4 if quick else 16
    penalties = np.geomspace(0.01, 10, 61)
    some = [0.02, 0.1, 0.3, 2 / 3, 2.0, 6.0]
    decay = Study(model, {"covariance": spectra, "samples": FEW_AND_MANY, "penalty": np.append(0.0, penalties)}).run()
    decay_runs = Study(
        model, {"covariance": spectra, "samples": FEW_AND_MANY[:1], "penalty": some}, sizes=[SIZE], seeds=seeds
    ).run()
    early = model.replace(**EARLY)
    times = np.geomspace(0.3, 1000, 25 if quick else 61)
    stopped = Study(early, {"samples": FEW_AND_MANY, "time": times}).run()
    seldom = [0.5, 2.0, 5.0, 20.0, 100.0, 500.0]
    stopped_runs = Study(early, {"samples": FEW_AND_MANY[:1], "time": seldom}, sizes=[SIZE], seeds=seeds).run()
    names = ("test_loss", "train_loss", "bayes_loss", "reverse_kl", "forward_kl")
    return {
        "decay": _kept(decay, "reverse_kl"),
        "decay_runs": _kept(decay_runs, "reverse_kl"),
        "stopped": _kept(stopped, *names),
        "stopped_runs": _kept(stopped_runs, *names),
    }


def draw_regularisation(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    few, many = FEW_AND_MANY
    decay, runs = data["decay"], data["decay_runs"].isel(size=0)
    axis = axes[0]
    for name, colour in zip(SPECTRA, COLOURS, strict=False):
        line = decay.reverse_kl_theory.sel(covariance=name).isel(penalty=slice(1, None))
        axis.plot(line.penalty, line.sel(samples=few), color=colour, label=f"{SPECTRA[name]}, $N = d/2$")
        axis.plot(
            line.penalty, line.sel(samples=many), color=colour, linestyle="--", label=f"the same, $N = {many:g}d$"
        )
        _points(axis, runs.reverse_kl_simulated.sel(covariance=name, samples=few), colour)
        best = line.sel(samples=few).isel(penalty=int(np.argmin(line.sel(samples=few).values)))
        axis.plot(best.penalty, best, "*", color=colour, markersize=11, zorder=5)
    axis.set(xlabel=label("weight decay", "c"), ylabel=r"divergence $D(\mathrm{model}\,\Vert\,\mathrm{data})/d$")
    axis.set(ylim=(3e-3, 10))
    axis.set_title("weight decay; stars: the best")
    stopped, runs = data["stopped"], data["stopped_runs"].isel(size=0)
    for axis, pairs in (
        (axes[1], (("test_loss", "test", COLOURS[0]), ("train_loss", "training", COLOURS[1]))),
        (axes[2], (("reverse_kl", r"$D(\mathrm{model}\,\Vert\,\mathrm{data})$", COLOURS[2]),
                   ("forward_kl", r"$D(\mathrm{data}\,\Vert\,\mathrm{model})$", COLOURS[3]))),
    ):  # fmt: skip
        for which, words, colour in pairs:
            line = stopped[f"{which}_theory"]
            axis.plot(stopped.time, line.sel(samples=few), color=colour, label=f"{words}, $N = d/2$")
            axis.plot(
                stopped.time, line.sel(samples=many), color=colour, linestyle="--", label=f"{words}, $N = {many:g}d$"
            )
            _points(axis, runs[f"{which}_simulated"].sel(samples=few), colour)
        axis.set_xlabel(label("training time", r"\tau"))
    axes[1].axhline(
        float(stopped.bayes_loss_theory[0, 0]), color=INK, linestyle=":", linewidth=1, label="best denoiser"
    )
    axes[1].set(ylabel=label("error of the denoiser", "E"), ylim=(0.3, 8))
    axes[1].set_title("early stopping: errors (white)")
    axes[2].set(ylabel="divergence per dimension")
    axes[2].set_title(f"early stopping: samples ({EARLY['steps']} denoising steps)")
    for axis in axes:
        log_axis(axis.xaxis)
        log_axis(axis.yaxis)
        axis.legend(fontsize=7.5)
    figure.suptitle(
        rf"Linear diffusion at $d = {SIZE}$, regularised: theory (lines) and experiment (points)", fontsize=11
    )
    return figure


def _points(axis: Any, runs: Any, colour: str, marker: str = "o", aside: float = 1.0) -> None:
    (dim,) = (d for d in runs.dims if d != "seed")
    error = standard_error(runs)
    face = colour if marker == "o" else "white"
    axis.errorbar(
        aside * runs[dim], runs.mean("seed"), error, fmt=marker, color=colour, mfc=face, markersize=3.8, zorder=4
    )


RECIPES = {
    "linear-diffusion-transition": Recipe(
        transition,
        draw_transition,
        sentence="Up to N = d a linear diffusion model memorises; beyond, samples approach any data's law as d/(4N).",
    ),
    "linear-diffusion-regularisation": Recipe(
        regularisation,
        draw_regularisation,
        sentence="With fewer data than dimensions some weight decay, or stopping early, is best; with many neither matters.",
    ),
}
