"""Curriculum, anti-curriculum and mixed samples, every arm at its own best rate, decay and share; the optimal protocol.

Decays are searched up to 0.4 and shares of easy samples up to 0.75; at short horizons the best values lie at these limits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, standard_error
from solvable.study import Study

from .model import CurriculumOnline

SETTING = {"relevant": 0.2, "easy": 0.05, "initial": [0.02, 0.2, 0.8]}
ARMS = ("curriculum", "mixed", "anti")
NAMES = {
    "curriculum": "easy, then hard",
    "mixed": "mixed",
    "anti": "hard, then easy",
    "optimal": "optimal",
    "hard": "hard only",
}
SHOWN, HALF = 5.0, 0.5
DECAYS = np.array([0.0, 0.05, 0.15, 0.4])
FAST = {"iterations": 600, "tolerance": 1e-4, "accuracy": 1e-5}


def tuned(
    protocol: str, horizon: float, shares: np.ndarray, setting: dict[str, Any] = SETTING
) -> list[tuple[float, dict[str, float]]]:
    """Lowest error at constant rate for every share of easy samples, with its rate and decay: a grid, then two finer ones."""
    model = CurriculumOnline(protocol=protocol, horizon=horizon, **setting)
    rates, decays = np.tile(np.geomspace(0.2, 10.0, 10), (len(shares), 1)), DECAYS
    decays, rows, found = np.tile(decays, (len(shares), 1)), np.arange(len(shares)), []
    for zoom in (1.5, 1.12, None):
        grid = {"rate": rates[:, :, None], "penalty": decays[:, None, :], "share": shares[:, None, None]}
        error = np.asarray(model.replace(**grid).theory({"accuracy": 1e-5}, only=["final_error"]).final_error)
        at = np.nanargmin(
            error.reshape(len(shares), -1), axis=1
        )  # NaN: a flow too stiff to follow, far from the best rates
        rate, decay = rates[rows, at // decays.shape[1]], decays[rows, at % decays.shape[1]]
        found = [
            (float(e.min()), {"rate": float(r), "penalty": float(d)})
            for e, r, d in zip(error, rate, decay, strict=True)
        ]
        if zoom is not None:
            rates = np.clip(rate[:, None] * np.geomspace(1 / zoom, zoom, 10), 0.05, 20)
            decays = np.column_stack([0 * decay, decay[:, None] * np.geomspace(1 / zoom, zoom, 3)])
    return found


def paced(protocol: str, horizon: float, shares: np.ndarray, intervals: int) -> tuple[np.ndarray, np.ndarray]:
    """Lowest error with a time-dependent rate for every share, with its decay."""
    grid = {"share": shares[:, None], "penalty": DECAYS[None, :]}
    model = CurriculumOnline(
        protocol=protocol, pace="optimal", fastest=10.0, horizon=horizon, intervals=intervals, **SETTING
    )
    error = np.asarray(model.replace(**grid).theory(FAST, only=["final_error"]).final_error)
    return np.nanmin(error, axis=1), DECAYS[np.nanargmin(error, axis=1)]


def order(quick: bool) -> dict[str, Any]:
    import xarray as xr

    horizons = [SHOWN] if quick else [2.5, 5.0, 10.0, 20.0]
    size, seeds, intervals = (200, 4, 10) if quick else (800, 16, 20)
    shares = np.array([0.0, 0.15, HALF] if quick else [0.0, 0.1, 0.25, HALF, 0.75])
    half = int(np.flatnonzero(shares == HALF)[0])
    table = xr.Dataset(coords={"horizon": horizons, "arm": ["hard", *ARMS, "optimal"]})
    for name in ("constant", "constant_half", "paced", "paced_half"):
        table[name] = (("horizon", "arm"), np.full((len(horizons), 5), np.nan))
    arms: dict[str, dict[str, Any]] = {}
    for horizon in horizons:
        first, decay = 0.15, 0.0
        for arm in ARMS:
            here = {"horizon": horizon, "arm": arm}
            found = tuned(arm, horizon, shares)
            best = int(np.argmin([error for error, _ in found]))
            table["constant"].loc[here], table["constant_half"].loc[here] = found[best][0], found[half][0]
            if horizon == SHOWN:
                arms[arm] = {"protocol": arm, "pace": "constant", "share": float(shares[best]), **found[best][1]}
                arms["hard"] = {"protocol": arm, "pace": "constant", "share": 0.0, **found[0][1]}
            table["constant"].loc[{"horizon": horizon, "arm": "hard"}] = found[0][0]
            if quick and arm != "curriculum":
                continue
            errors, weights = paced(arm, horizon, shares, intervals)
            table["paced"].loc[here], table["paced_half"].loc[here] = np.nanmin(errors), errors[half]
            table["paced"].loc[{"horizon": horizon, "arm": "hard"}] = errors[0]
            if errors.min() <= np.nanmin(table["paced"].sel(horizon=horizon)):
                first, decay = float(shares[np.argmin(errors)]), float(weights[np.argmin(errors)])
        # search from the best arm's share, at its decay
        free = {"pace": "optimal", "fastest": 10.0, "intervals": intervals, "share": first, "penalty": decay}
        outcome = CurriculumOnline(protocol="optimal", horizon=horizon, **free, **SETTING).theory(
            {**FAST, "iterations": 3000}
        )
        table["paced"].loc[{"horizon": horizon, "arm": "optimal"}] = float(outcome.final_error)
        if horizon == SHOWN and outcome.converged:
            arms["optimal"] = {
                "protocol": "given", "pace": "given", "penalty": decay, "rate": 1.0,
                "given_fraction": np.asarray(outcome.fraction), "given_pace": np.asarray(outcome.speed),
            }  # fmt: skip
    model = CurriculumOnline(horizon=SHOWN, intervals=intervals, **SETTING)
    curves = Study(model, {"horizon": [SHOWN]}, arms=arms, sizes=[size], seeds=seeds).run()
    return {"": curves, "table": table.assign_attrs(curves.attrs)}


def draw_order(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves, table = data[""].isel(horizon=0), data["table"]
    size = int(curves["size"][-1])
    figure, grid = plt.subplots(2, 2, figsize=(10.6, 7.6), layout="constrained")
    axes = grid.ravel()
    colours = dict(zip(("curriculum", "mixed", "anti", "hard", "optimal"), COLOURS, strict=False))
    time, every = SHOWN * curves.progress.values, slice(2, None, 2 if curves.sizes["interval"] < 20 else 3)
    for arm in curves.arm.values:
        line, runs = curves.test_error_theory.sel(arm=arm), curves.test_error_simulated.sel(arm=arm, size=size)
        axes[0].plot(time, line, color=colours[arm], label=NAMES[arm])
        error = standard_error(runs)
        axes[0].errorbar(
            time[every], runs.mean("seed")[every], error[every], fmt="o", color=colours[arm], markersize=3.2
        )
    axes[0].set(xlabel=label("time", "t"), ylabel="error on hard inputs")
    axes[0].set_title(f"learning curves, each arm tuned;\nSGD at N = {size} (points)")
    axes[0].legend()

    for axis, pace, title in ((axes[1], "constant", "constant rate"), (axes[2], "paced", "rate free to fall")):
        base = table[pace].sel(arm="hard")
        for arm in (*ARMS, "optimal"):
            gain = 100 * (1 - table[pace].sel(arm=arm) / base)
            if np.isfinite(gain).any():
                axis.plot(table.horizon, gain, "o-", color=colours[arm], label=f"{NAMES[arm]}", markersize=4)
            if arm in ARMS:
                fixed = 100 * (1 - table[f"{pace}_half"].sel(arm=arm) / base)
                axis.plot(table.horizon, fixed, "s:", color=colours[arm], markersize=3.5, linewidth=1)
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xlabel=label("training time", "T"), ylabel="error below that of hard samples alone (%)", xscale="log")
        axis.set_xticks(table.horizon.values, [f"{x:g}" for x in table.horizon.values])
        axis.minorticks_off()
        axis.set_title(f"{title}: share of easy samples tuned,\nor fixed at a half (dotted)")
        axis.legend(fontsize=7.5)

    if "optimal" not in curves.arm.values:
        axes[3].set_axis_off()
    else:
        middle, best = SHOWN * curves.interval.values, curves.sel(arm="optimal")
        axes[3].step(middle, best.fraction_theory, where="mid", color=colours["optimal"], label="easy samples")
        axes[3].set(xlabel=label("time", "t"), ylabel="fraction of easy samples", ylim=(-0.04, 1.15))
        twin = axes[3].twinx()
        twin.plot(middle, best.speed_theory, color="0.35", linestyle="--", label="rate")
        twin.set(ylabel=r"learning rate $\eta$", ylim=(0, None))
        twin.grid(False)
        axes[3].legend(handles=[*axes[3].get_lines(), *twin.get_lines()], loc="center right")
        axes[3].set_title(f"the optimal protocol for T = {SHOWN:g}")
    figure.suptitle(
        "Which order wins depends on the rate: hard samples first at a constant rate, easy ones once the rate may fall",
        fontsize=11,
    )
    return figure


RECIPES = {
    "curriculum-online-order": Recipe(
        order,
        draw_order,
        sentence="Curriculum, anti-curriculum and mixed samples, each at its own best rate; the optimal protocol.",
    )
}
