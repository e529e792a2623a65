"""Non-Gaussianity, localisation and the cavity effect over rounds of pruning, beside Gaussian inputs and random pruning."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS
from solvable.study import provenance

from .model import ReceptiveFields

NAMES = tuple(o.name for o in ReceptiveFields.observables_declared)


def rounds(quick: bool) -> dict[str, Any]:
    import xarray as xr

    size, seeds, settings = (12, 2, {"rounds": 3, "steps": 20, "tested": 500}) if quick else (40, 12, {"steps": 1500})
    arms = list(ReceptiveFields.arms_declared)[: 2 if quick else None]
    found: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for arm in arms:
        model = ReceptiveFields(**settings, **ReceptiveFields.arms_declared[arm])
        run = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
        for name in NAMES:
            found[name].append(np.asarray(run[name]))
    table = xr.Dataset(
        {name: (("arm", "seed", "round"), np.stack(v)) for name, v in found.items()},
        coords={"arm": arms},
        attrs={"size": size, **provenance()},
    )
    return {"": table}


def draw_rounds(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(2, 2, figsize=(10.2, 7.4), layout="constrained", sharex=True)
    for i, arm in enumerate(table.arm.values):
        at = table.sel(arm=arm)
        style = {"color": COLOURS[i], "fmt": f"{MARKERS[i]}-", "linewidth": 1.0, "label": LABELS[str(arm)]}
        _errorbar(axes[0, 0], at, "non_gaussianity", style)
        _errorbar(axes[0, 1], at, "localisation", style)
        _errorbar(axes[1, 1], at, "accuracy", style)
        if "gaussian" not in str(arm):
            _errorbar(axes[1, 0], at, "kept_effect", style)
            _errorbar(axes[1, 0], at, "pruned_effect", style | {"fmt": f"{MARKERS[i]}:", "mfc": "white", "label": None})
    axes[0, 0].set(ylabel="modulus of the excess kurtosis |κ|", ylim=(0, None))
    axes[0, 0].set_title("non-Gaussianity of preactivations")
    axes[0, 1].set(ylabel="localisation of a unit's weights", ylim=(0, 1))
    axes[0, 1].set_title("localisation")
    axes[1, 0].set(ylabel="cavity effect of a weight on |κ|")
    axes[1, 0].set_title("weights kept next (filled) and pruned next (open)")
    axes[1, 0].axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axes[1, 1].set(ylabel="accuracy on fresh inputs")
    axes[1, 1].set_title(f"accuracy ({table.sizes['seed']} networks, ring of {table.attrs['size']} sites)")
    for axis in axes.flat:
        axis.set_xscale("log")
        axis.set_xlim(1.08, 0.9 * float(table.density.min()))
        axis.set_xticks([1, 0.5, 0.2, 0.1], ["1", "0.5", "0.2", "0.1"])
        axis.minorticks_off()
    for axis in axes[1]:
        axis.set_xlabel("fraction of first-layer weights left")
    axes[0, 1].legend(fontsize=8, loc="upper left")
    return figure


LABELS = {
    "non-linear": "non-linear process",
    "gaussian": "Gaussian, same covariance",
    "random pruning": "non-linear, random pruning",
    "smooth": "non-linear, smooth covariance",
    "smooth gaussian": "Gaussian, smooth covariance",
}


def _errorbar(axis: Any, at: Any, name: str, style: dict[str, Any]) -> None:
    error = at[name].std("seed", ddof=1) / np.sqrt(at.sizes["seed"])
    axis.errorbar(at.density.mean("seed"), at[name].mean("seed"), error, **style)


RECIPES = {
    "receptive-fields-rounds": Recipe(
        rounds,
        draw_rounds,
        sentence=(
            "Pruning raises the kurtosis of preactivations with non-Gaussian inputs only, and random pruning does so as "
            "much as pruning by magnitude; localisation grows in every arm."
        ),
    )
}
