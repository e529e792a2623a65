"""Two phases without a prior between them: the order of samples gains nothing over training on all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis
from solvable.search import optimise
from solvable.study import Study

from .figures import BOUNDS, NAMES, SHOWN
from .model import PROTOCOLS, CurriculumBatch

COUPLINGS = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 25)])


def prior(quick: bool) -> dict[str, Any]:
    import xarray as xr

    couplings = COUPLINGS[:: 6 if quick else 1]
    table = xr.Dataset(coords={"coupling": couplings, "arm": list(PROTOCOLS)})
    table["error"] = (("coupling", "arm"), np.full((len(couplings), 3), np.nan))
    arms: dict[str, dict[str, Any]] = {}
    for arm in PROTOCOLS:
        for coupling in couplings if arm != "joint" else couplings[:1]:
            model = CurriculumBatch(protocol=arm, consolidation=float(coupling), **SHOWN)
            names = ["penalty"] if arm == "joint" or coupling == 0 else ["first_penalty", "penalty"]
            found = optimise(model, names, minimise="test_error", between={n: BOUNDS[n] for n in names}, starts=6,
                             numerics={"nodes": 10})  # fmt: skip
            where = {"arm": arm} if arm == "joint" else {"arm": arm, "coupling": coupling}
            table["error"].loc[where] = found.value
            if coupling == 0:
                free = {"first_penalty": 0.1, **found.controls}
                arms[arm] = {"protocol": arm, "consolidation": 0.0, **free}
    size, seeds = (60, 3) if quick else (400, 24)
    runs = Study(CurriculumBatch(**SHOWN), {"hard": [1.0]}, arms=arms, sizes=[size], seeds=seeds).run()
    return {"": table.assign_attrs(runs.attrs), "runs": runs}


def draw_prior(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, runs = data[""], data["runs"].isel(hard=0, size=-1).test_error_simulated
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.0), layout="constrained", width_ratios=[2, 1], sharey=True)
    for arm, colour, marker in zip(PROTOCOLS, COLOURS, MARKERS, strict=False):
        line = table.error.sel(arm=arm)
        axes[0].plot(table.coupling[1:], line[1:], color=colour, label=NAMES[arm])
        here = runs.sel(arm=arm)
        error = here.std("seed", ddof=1) / np.sqrt(here.sizes["seed"])
        axes[1].plot([0.6, 1.4], [float(line[0])] * 2, color=colour)
        axes[1].errorbar(1.0, here.mean("seed"), error, fmt=marker, color=colour, markersize=6, capsize=3)
    log_axis(axes[0].xaxis)
    axes[0].set(xlabel=label("coupling", r"\gamma"), ylabel="error on hard inputs")
    axes[0].set_title("with a prior that ties the phases, penalties tuned")
    axes[0].legend()
    axes[1].set_xticks([])
    axes[1].set_title(f"without it, $\\gamma = 0$:\ntheory (bars), N = {int(data['runs']['size'][-1])} (points)")
    figure.suptitle(
        "Without a prior only the last phase counts (a fifth of the inputs relevant, half a sample of each kind)",
        fontsize=11,
    )
    return figure


RECIPES = {
    "curriculum-batch-prior": Recipe(
        prior,
        draw_prior,
        sentence="Error of two phases against the strength of the prior that ties them, and without it.",
    )
}
