"""Gradient flow in phase retrieval: how often it escapes, from which states, and what their Hessian says on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis
from solvable.search import locate
from solvable.study import Study

from .model import PhaseRetrieval

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
    return {"": table, "runs": runs, "paths": paths}


RECIPES = {
    "phase-retrieval-escape": Recipe(
        escape,
        lambda data: None,
        sentence="How often gradient flow finds the signal, in which states it is trapped, and where their Hessian points.",
    )
}
