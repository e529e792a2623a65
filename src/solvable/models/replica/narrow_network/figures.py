"""Specialisation of a narrow network: continuous for ReLU and |x|, first order for erf; and where replica symmetry fails."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from solvable.render.figures import Recipe, provenance
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, INK, label, log_axis, standard_error
from solvable.study import Study

from .model import NarrowNetwork

SHOWN = {"relu": "ReLU", "abs": "|x|", "erf": "erf"}
STARTS = {"teacher": "o", "random": "s"}
LONGEST = 8192
"""Trajectories after which a chain is given up; what it measured is NaN."""
PLACES = {"relu": [0.4, 1.0, 1.8, 3.2], "abs": [0.4, 1.0, 1.8, 3.2], "erf": [0.4, 1.0, 3.2]}
"""Samples per weight of the chains; erf has none at 1.8."""
RISKS = {
    "ReLU": {"learner": "erm", "activation": "relu", "samples": 4.0, "penalty": 0.05},
    "erf": {"learner": "erm", "activation": "erf", "samples": 8.0, "penalty": 0.005},
}


def specialisation(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    pieces = pieces or Pieces()
    model = NarrowNetwork(noise=0.01)
    alpha = np.concatenate([np.linspace(0.3, 1.0, 25), np.linspace(1.04, 4.0, 75)])
    curves = Study(model, {"activation": list(SHOWN), "start": list(STARTS), "samples": alpha}).run()
    unstable = NarrowNetwork(noise=0.01, activation="erf", samples=alpha).branches()
    overlaps = np.asarray(unstable["overlap"])
    falls = np.asarray(unstable["stability"]) < 0  # the middle one of the three solutions
    middle = np.where(falls & (overlaps > 0), overlaps, np.nan)
    curves = curves.assign(unstable_overlap=("samples", np.nanmax(np.nan_to_num(middle, nan=-1.0), axis=1)))
    found = {name: pieces.run(name, some) for name, some in simulated(quick).items()}
    return {"": curves, "chains": _joined(found["chains"]), "risk": found["risk"][0]}


def simulated(quick: bool) -> dict[str, list[Study]]:
    """Chains below and beyond the transitions, one study for each activation, and minimised risks."""
    size, seeds = (36, 2) if quick else (144, 10)
    model, these = NarrowNetwork(noise=0.01, longest=512 if quick else LONGEST), {"sizes": [size], "seeds": seeds}
    places = {name: [3.0] for name in SHOWN} if quick else PLACES
    noises = [0.02] if quick else [0.002, 0.008, 0.03]
    return {
        "chains": [
            Study(model, {"activation": [name], "start": list(STARTS), "samples": places[name]}, **these)
            for name in SHOWN
        ],
        "risk": [Study(NarrowNetwork(), {"noise": noises}, arms=RISKS, **these)],
    }


def _joined(parts: list[Any]) -> Any:
    """Studies of one activation each as one, NaN at places without chains; the attributes tell of all."""
    import xarray as xr

    numbers = [part.assign({n: v.astype(float) for n, v in part.items() if v.dtype.kind in "bi"}) for part in parts]
    whole = xr.concat(numbers, "activation", combine_attrs="override", data_vars="minimal", coords="minimal",
                      compat="override", join="outer")  # fmt: skip
    study = provenance(parts[0])
    study["over"] |= {name: np.asarray(whole[name]).tolist() for name in ("activation", "samples")}
    return whole.assign_attrs(study=json.dumps(study))


def draw_specialisation(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves, chains, risk = data[""], data["chains"], data["risk"]
    size = int(chains["size"][-1])
    figure, grid = plt.subplots(2, 3, figsize=(12.6, 7.4), layout="constrained")
    axes = grid[0]
    alpha = curves.samples.values
    for axis, (name, shown) in zip(axes, SHOWN.items(), strict=False):
        here = curves.sel(activation=name)
        spinodal, transition = (float(here[f"{n}_theory"].values.flat[0]) for n in ("spinodal", "transition"))
        informed = here.overlap_theory.sel(start="teacher").values
        first = spinodal < transition * (1 - 1e-9)
        wins = alpha > transition
        axis.plot(alpha[wins], informed[wins], color=COLOURS[0], label="equilibrium")
        axis.plot(alpha[~wins], np.zeros((~wins).sum()), color=COLOURS[0])
        if first:
            alive = (alpha > spinodal) & ~wins
            axis.plot(alpha[alive], informed[alive], color=COLOURS[0], linestyle="--", label="metastable")
            axis.plot(alpha[wins], np.zeros(wins.sum()), color=COLOURS[0], linestyle="--")
            middle = here.unstable_overlap.values
            middle = np.where(middle > 0, middle, np.nan)
            axis.plot(alpha, middle, color="0.5", linestyle=":", label="unstable")
            axis.axvline(spinodal, color="0.45", linewidth=0.9, linestyle=":")
            axis.text(spinodal - 0.04, 0.5, "spinodal", rotation=90, ha="right", va="center", fontsize=8, color="0.3")
        axis.axvline(transition, color=INK, linewidth=0.9)
        word = "first order" if first else r"continuous, $\alpha_c$"
        axis.text(transition + 0.04, 0.24 if first else 0.5, word, rotation=90, ha="left", va="center", fontsize=8)
        for (start, marker), colour in zip(STARTS.items(), COLOURS[1:], strict=False):
            runs = chains.overlap_simulated.sel(activation=name, start=start, size=size)
            error = standard_error(runs)
            axis.errorbar(chains.samples, runs.mean("seed"), error, fmt=marker, color=colour, markersize=4.5,
                          markerfacecolor="none" if start == "random" else colour, label=f"chain from {start}")  # fmt: skip
        axis.set(xlabel=label("samples", r"\alpha = n/(Kd)"), ylabel=label("overlap", "t"), ylim=(-0.06, 1.06))
        axis.set_title(f"{shown}, Bayes-optimal, $\\Delta = 0.01$")
    axes[0].legend(*axes[2].get_legend_handles_labels(), fontsize=7.5, loc="lower right", bbox_to_anchor=(1.0, 0.07))
    _excess(grid[1, 0], curves, chains)
    grid[1, 2].axis("off")
    last = grid[1, 1]
    for (arm, marker), colour in zip({"ReLU": "o", "erf": "s"}.items(), (COLOURS[1], COLOURS[2]), strict=True):
        here = risk.sel(arm=arm, size=size)
        ratio = here.excess_loss_simulated / here.excess_loss_theory
        error = standard_error(ratio)
        stable = here.stability_theory.values.reshape(len(risk.noise), -1)[:, 0] > 0
        for kept, face in ((stable, colour), (~stable, "none")):
            if kept.any():
                state = "stable" if kept is stable else "unstable"
                last.errorbar(risk.noise[kept], ratio.mean("seed")[kept], error[kept], fmt=marker, color=colour, markersize=5,
                              markerfacecolor=face, label=f"{arm}: {state}")  # fmt: skip
    last.axhline(1.0, color=INK, linewidth=0.9)
    log_axis(last.xaxis)
    last.set(xlabel=label("noise", r"\Delta"), ylabel="excess loss, measured / predicted")
    last.set_title("minima of the risk: closer where\nreplica symmetry is stable")
    last.legend(fontsize=8)
    caveat = "chains that did not equilibrate, and erf at 1.8, are left out"
    figure.suptitle(
        f"Specialisation of a narrow network; points: chains and minima at d = {size}; {caveat}", fontsize=11
    )
    return figure


def _excess(axis: Any, curves: Any, chains: Any) -> None:
    """Excess loss of the posterior mean against samples, theory and chains from the teacher."""
    for name, colour in zip(SHOWN, COLOURS, strict=False):
        here, runs = (data.sel(activation=name, start="teacher") for data in (curves, chains))
        transition = float(here.transition_theory.values.flat[0])
        beyond = here.samples > transition
        axis.plot(here.samples[beyond], here.excess_loss_theory[beyond], color=colour, label=SHOWN[name])
        measured = runs.excess_loss_simulated.isel(size=-1)
        keep = runs.samples > transition
        axis.errorbar(
            runs.samples[keep], measured.mean("seed")[keep], standard_error(measured)[keep], fmt="o", color=colour
        )
    log_axis(axis.yaxis)
    axis.set(xlabel=label("samples per weight", r"\alpha = n/(Kd)"), ylabel="excess loss of the posterior mean")
    axis.set_title("generalisation of Bayesian learners\nbeyond the transition")
    axis.legend(fontsize=8)


RECIPES = {
    "narrow-network-specialisation": Recipe(
        specialisation,
        draw_specialisation,
        resumes=True,
        sentence="When the units of a narrow network specialise, continuously or abruptly, and where replica symmetry fails.",
    )
}
