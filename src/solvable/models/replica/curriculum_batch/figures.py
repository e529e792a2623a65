"""Curriculum, anti-curriculum and joint training in batches, every arm at its own best penalties and coupling.

Penalties and coupling are found with gradients of the theory (`optimise`: a scan, then L-BFGS-B in their logarithms from the
three best points) within the bounds below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis, standard_error
from solvable.search import optimise
from solvable.study import Study

from .model import PROTOCOLS, CurriculumBatch

NAMES = {"curriculum": "easy, then hard", "anti": "hard, then easy", "joint": "all at once"}
BOUNDS = {"first_penalty": (1e-3, 10.0), "penalty": (1e-6, 10.0), "consolidation": (1e-2, 1e2)}
SHOWN: dict[str, Any] = {"relevant": 0.2, "samples_easy": 0.5, "samples_hard": 0.5}
FREE = {arm: ["penalty"] if arm == "joint" else list(BOUNDS) for arm in PROTOCOLS}


def tuned(arm: str, values: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """The lowest error of a protocol on hard inputs, and the penalties and coupling that reach it."""
    model = CurriculumBatch(protocol=arm, **values)
    found = optimise(
        model,
        FREE[arm],
        minimise="test_error",
        between={n: BOUNDS[n] for n in FREE[arm]},
        starts=12,
        numerics={"nodes": 10},
    )
    return found.value, found.controls


def gains(quick: bool) -> dict[str, Any]:
    import xarray as xr

    densities = [0.1, 0.5] if quick else [0.1, 0.2, 0.35, 0.5, 0.7, 0.9]
    numbers = [0.5, 1.0] if quick else [0.25, 0.5, 1.0, 2.0, 4.0]
    table = xr.Dataset(coords={"relevant": densities, "samples": numbers, "arm": list(PROTOCOLS)})
    for name, dim in (("by_relevant", "relevant"), ("by_samples", "samples")):
        table[name] = ((dim, "arm"), np.full((table.sizes[dim], 3), np.nan))
        for control in BOUNDS:
            table[f"{control}_{name}"] = ((dim, "arm"), np.full((table.sizes[dim], 3), np.nan))
    for arm in PROTOCOLS:
        for name, dim in (("by_relevant", "relevant"), ("by_samples", "samples")):
            for value in table[dim].values:
                own = {"relevant": value} if dim == "relevant" else {"samples_easy": value, "samples_hard": value}
                error, at = tuned(arm, {**SHOWN, **own})
                here = {dim: value, "arm": arm}
                table[name].loc[here] = error
                for control, found in at.items():
                    table[f"{control}_{name}"].loc[here] = found
    own = {arm: tuned(arm, SHOWN) for arm in PROTOCOLS}
    arms = {arm: {"protocol": arm, **dict.fromkeys(BOUNDS, 1.0), **own[arm][1]} for arm in PROTOCOLS}
    # one coupling for both orders, the penalties being the curriculum's best: what a comparison at fixed γ would report
    couplings = np.geomspace(0.02, 20.0, 12 if quick else 60)
    shared: dict[str, Any] = {n: own["curriculum"][1][n] for n in ("first_penalty", "penalty")}
    orders = PROTOCOLS[:2]
    curve = [
        CurriculumBatch(protocol=a, consolidation=couplings, **shared, **SHOWN).theory().test_error for a in orders
    ]
    scanned = []
    for arm in orders:  # at every coupling, each arm has its own penalties
        mesh = np.meshgrid(np.geomspace(1e-3, 10, 12), np.geomspace(1e-6, 1, 8), indexing="ij")
        model = CurriculumBatch(protocol=arm, consolidation=couplings[:, None], first_penalty=mesh[0].reshape(1, -1),
                                penalty=mesh[1].reshape(1, -1), **SHOWN)  # fmt: skip
        scanned.append(np.nanmin(model.theory(only=["test_error"]).test_error, axis=1))
    table = table.assign_coords(coupling=couplings).assign(
        shared=(("order", "coupling"), np.array(curve)),
        scanned=(("order", "coupling"), np.array(scanned)),
        best=("arm", np.array([own[a][0] for a in PROTOCOLS])),
        best_coupling=("order", np.array([own[a][1]["consolidation"] for a in orders])),
    )
    size, seeds = (100, 4) if quick else (400, 64)
    runs = Study(CurriculumBatch(**SHOWN), {"hard": [1.0]}, arms=arms, sizes=[size], seeds=seeds).run()
    kept = [v for v in runs.data_vars if str(v).startswith("test_error")]
    uncoupled = uncoupled_phases(float(own["joint"][1]["penalty"]), size, seeds)
    return {"": table.assign_attrs(runs.attrs), "runs": runs[kept], "uncoupled": uncoupled[kept]}


def uncoupled_phases(joint_penalty: float, size: int, seeds: int) -> Any:
    """Both orders without coupling, at the penalty of the last phase that is best in theory, and joint training."""
    penalties = np.geomspace(1e-4, 10, 41)
    arms: dict[str, Any] = {"joint": {"protocol": "joint", "penalty": joint_penalty}}
    for arm in PROTOCOLS[:2]:
        alone = CurriculumBatch(protocol=arm, penalty=penalties, first_penalty=1.0, consolidation=0.0, **SHOWN)
        best = int(np.nanargmin(np.asarray(alone.theory(only=["test_error"]).test_error)))
        arms[arm] = {"protocol": arm, "penalty": float(penalties[best])}
    full = {name: {"first_penalty": 1.0, "consolidation": 0.0, **values} for name, values in arms.items()}
    return Study(CurriculumBatch(**SHOWN), {"hard": [1.0]}, arms=full, sizes=[size], seeds=seeds).run()


def draw_gains(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, runs = data[""], data["runs"].isel(hard=0, size=-1)
    figure, grid = plt.subplots(2, 2, figsize=(10.5, 7.4), layout="constrained")
    axes = grid.ravel()
    colours = dict(zip(PROTOCOLS, COLOURS, strict=False))
    for axis, name, dim, words in (
        (axes[0], "by_relevant", "relevant", ("relevant inputs", r"\rho")),
        (axes[1], "by_samples", "samples", ("easy and hard samples", r"\alpha_e = \alpha_h")),
    ):
        for arm in PROTOCOLS[:2]:
            gain = 100 * (1 - table[name].sel(arm=arm) / table[name].sel(arm="joint"))
            axis.plot(table[dim], gain, "o-", color=colours[arm], label=NAMES[arm])
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xlabel=label(*words), ylabel="gain over joint training (%)")
        axis.legend()
    log_axis(axes[1].xaxis)
    axes[0].set_title(r"every arm tuned; $\alpha_e = \alpha_h = 0.5$")
    axes[1].set_title(r"every arm tuned; $\rho = 0.2$")

    axis = axes[2]
    for i, arm in enumerate(PROTOCOLS[:2]):
        axis.plot(table.coupling, table.shared[i], ":", color=colours[arm], label=f"{NAMES[arm]}, $\\lambda$ shared")
        axis.plot(table.coupling, table.scanned[i], color=colours[arm], label=f"{NAMES[arm]}, own $\\lambda$")
        axis.plot(float(table.best_coupling[i]), float(table.best.sel(arm=arm)), "*", color=colours[arm], markersize=10)
    points, size = runs.test_error_simulated, int(data["runs"]["size"][-1])
    for arm, at in zip(PROTOCOLS, (*table.best_coupling.values, 0.9 * float(table.coupling[-1])), strict=True):
        here = points.sel(arm=arm)
        error = standard_error(here)
        axis.errorbar(at, here.mean("seed"), error, fmt="o", color=colours[arm], markersize=4, zorder=4)
    axis.axhline(float(table.best.sel(arm="joint")), color=colours["joint"], label=NAMES["joint"])
    for arm in PROTOCOLS[:2]:
        here = data["uncoupled"].test_error_simulated.sel(arm=arm).isel(hard=0, size=-1)
        error = here.std("seed", ddof=1) / np.sqrt(here.sizes["seed"])
        axis.errorbar(0.8 * float(table.coupling[0]), here.mean("seed"), error, fmt="D", color=colours[arm], markersize=4,
                      label=f"{NAMES[arm]}, not coupled")  # fmt: skip
    log_axis(axis.xaxis)
    axis.set(xlabel=label("coupling", r"\gamma"), ylabel="error on hard inputs", ylim=(0.18, 0.4))
    axis.set_title("against the coupling; stars: each order's best,\n"
                   rf"points: the tuned arms at $N = {size}$ ($\rho = 0.2$, $\alpha_e = \alpha_h = 0.5$)")  # fmt: skip
    axis.legend(fontsize=7)

    axis = axes[3]
    shared = 100 * (1 - table.shared[0] / table.shared[1])
    own = 100 * (1 - table.scanned[0] / table.scanned[1])
    fair = 100 * (1 - float(table.best.sel(arm="curriculum")) / float(table.best.sel(arm="anti")))
    axis.plot(table.coupling, shared, ":", color=colours["curriculum"], label=r"shared $\gamma$ and $\lambda$")
    axis.plot(table.coupling, own, color=colours["curriculum"], label=r"shared $\gamma$, own $\lambda$")
    axis.axhline(fair, color="0.3", linestyle="--", label="every arm tuned")
    log_axis(axis.xaxis)
    axis.set(xlabel=label("coupling", r"\gamma"), ylabel="gain of easy over hard first (%)")
    axis.set_title("apparent gain at a shared coupling\n" r"($\rho = 0.2$, $\alpha_e = \alpha_h = 0.5$)")
    axis.legend(fontsize=7.5)
    figure.suptitle(
        r"Curricula in batch learning: error on hard inputs, $\Delta_e = 0.05$, $\Delta_h = 1$", fontsize=11
    )
    return figure


RECIPES = {
    "curriculum-batch-gains": Recipe(
        gains,
        draw_gains,
        sentence="Gain of a curriculum of coupled batches, every arm tuned, and how a shared coupling overstates it.",
    )
}
