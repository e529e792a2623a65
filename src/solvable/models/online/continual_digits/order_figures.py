"""Does the order matter on digits? The theory's optimal protocol against the same fractions in random order."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from solvable.render.figures import Recipe, kept
from solvable.render.plots import COLOURS, standard_error
from solvable.study import provenance

from .figures import INTERVALS, MIXED, STAGE
from .paired import continual_digits

HORIZON, ORDERS = 10.0, 4


def order(quick: bool) -> dict[str, Any]:
    import xarray as xr

    stored = kept("continual-digits")
    assert stored is not None
    fractions = stored["protocols"].fraction.sel(horizon=HORIZON, protocol="optimal")
    found = []
    for mix in MIXED[: 1 if quick else None]:
        best = fractions.sel(mixing=mix).values
        rng = np.random.default_rng(0)
        protocols = {"optimal": best} | {f"random order {i + 1}": rng.permutation(best) for i in range(ORDERS)}
        found.append(
            continual_digits(
                [mix], seeds=4 if quick else 96, intervals=INTERVALS, first_stage=0.1 * STAGE if quick else STAGE,
                second_stage=HORIZON, protocols=protocols,
            )[["final_loss"]]
        )  # fmt: skip
    data: Any = xr.concat(found, "mixing")
    study = {"models": ["continual-digits"], "data": "scikit-learn digits"}
    return {"": data.assign_attrs(study=json.dumps(study), **provenance())}


def draw_order(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    loss = data[""].final_loss
    figure, axis = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
    others = [p for p in loss.protocol.values if p != "optimal"]
    for i, protocol in enumerate(others):
        worse = 1e3 * (loss.sel(protocol=protocol) - loss.sel(protocol="optimal"))
        error = standard_error(worse)
        place = loss.mixing + 0.02 * (i - (len(others) - 1) / 2)
        axis.errorbar(place, worse.mean("seed"), error, fmt="o", color=COLOURS[i], label=str(protocol))
    axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axis.set(xlabel="pixel mixing γ", ylabel="final loss above that of the optimal order (×10⁻³)")
    axis.set_title(f"The same fractions of the tasks in random order, horizon {HORIZON:g}")
    axis.legend(fontsize=8)
    return figure


RECIPES = {
    "continual-digits-order": Recipe(
        order,
        draw_order,
        sentence="Final loss on digits of the theory's optimal protocol against the same fractions in random order.",
    )
}
