"""Gain of a curriculum on XOR against width and training time, from many random starts."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label
from solvable.study import Study

from .model import XorCurriculum

SETTINGS = {
    "plain, 0.4": {"scaling": "plain", "hard": 0.4},
    "plain, 0.5": {"scaling": "plain", "hard": 0.5},
    "inverse-root, 0.4": {"scaling": "inverse-root", "hard": 0.4},
    "inverse-root, 0.5": {"scaling": "inverse-root", "hard": 0.5},
}
TITLES = {"plain": "$v \\sim N(0, 1)$", "inverse-root": "$v \\sim N(0, 1/K)$"}
SIZE = 1000  # dimension in which the starts are drawn
LANES = 240  # flows followed at once


NAMES = ("initial_norm", "initial_overlap", "initial_readout")
PROTOCOLS = ("hard", "curriculum", "anti")


def final_errors(
    protocol: str, students: int, settings: list[dict[str, Any]], horizons: list[float], starts: int, nodes: int
) -> dict[str, np.ndarray]:
    """Final errors, (settings, horizons, starts), NaN where the flow has not converged; all protocols use the same starts."""
    keys = [jax.random.fold_in(jax.random.key(7), i) for i in range(starts)]
    lanes: dict[str, list[Any]] = {name: [] for name in (*NAMES, "hard", "horizon")}
    for values in settings:
        random = XorCurriculum(students=students, start="random", **values)
        drawn = [random.prepare(key, SIZE) for key in keys]
        for horizon in horizons:
            for one in drawn:
                lanes["hard"].append(values["hard"])
                lanes["horizon"].append(horizon)
                for name in NAMES:
                    lanes[name].append(getattr(one, name))
    model = XorCurriculum(protocol=protocol, students=students, points=1)
    fields = {name: jnp.stack([jnp.asarray(x, float) for x in values]) for name, values in lanes.items()}
    errors, converged = _ends(model, fields, XorCurriculum.numerics.updated({"nodes": nodes}))
    shape = (len(settings), len(horizons), starts)
    return {"error": np.where(converged, errors, np.nan).reshape(shape)}


@eqx.filter_jit
def _ends(model: XorCurriculum, lanes: dict[str, Any], numerics: Any) -> Any:
    def end(fields: dict[str, Any]) -> Any:
        found = model.with_values(fields).point(numerics)
        return found["final_error"], found["converged"][-1]

    return jax.lax.map(end, lanes, batch_size=LANES)


def width(quick: bool, pieces: Any) -> dict[str, Any]:
    import xarray as xr

    units, horizons = ([2, 4], [10.0, 20.0]) if quick else ([2, 4, 8, 16], [10.0, 20.0, 40.0, 80.0, 160.0])
    starts, nodes = (4, 64) if quick else (24, 1024)
    settings = dict(list(SETTINGS.items())[:1]) if quick else SETTINGS
    shape = (len(settings), len(units), len(horizons), starts)
    dims = ("setting", "students", "horizon", "start")
    table = xr.Dataset(coords={"setting": list(settings), "students": units, "horizon": horizons})
    for protocol in PROTOCOLS:
        table[protocol] = (dims, np.full(shape, np.nan))
    for students in units:
        for protocol in PROTOCOLS:
            chosen = {n: v for n, v in settings.items() if protocol != "anti" or n == "plain, 0.4"}
            what = [protocol, students, list(chosen), horizons, starts, nodes]
            found = pieces.get(
                f"{protocol}, K = {students}",
                what,
                lambda p=protocol, k=students, c=chosen: final_errors(p, k, list(c.values()), horizons, starts, nodes),
            )
            table[protocol].loc[{"setting": list(chosen), "students": students}] = found["error"]
    size, seeds = (100, 4) if quick else (400, 8)
    shown = XorCurriculum(horizon=20.0, points=8)
    curves = Study(shown, {"protocol": ["hard", "curriculum", "anti"]}, sizes=[size], seeds=seeds).run()
    return {"": curves, "map": table.assign_attrs(curves.attrs)}


def least_error(spread: float) -> float:
    """Error of the best classifier: it is right if both coordinates across the clusters are on the right side, or neither is.

    >>> round(least_error(0.5), 6)
    0.144928
    """
    wrong = 0.5 * math.erfc(0.5 / spread)
    return 2 * wrong * (1 - wrong)


def won(table: Any, setting: str, units: int, protocol: str) -> np.ndarray:
    """Per start, 1 if it ends closer to the least error than to 1/4, the error with one misclassified cluster, else 0.

    NaN where the flow has not converged.
    """
    enough = 0.5 * (least_error(float(setting.split(", ")[1])) + 0.25)
    errors = table[protocol].sel(setting=setting, students=units).isel(horizon=-1).values
    return np.where(np.isfinite(errors), (errors < enough).astype(float), np.nan)


def solved(table: Any, setting: str, units: int, protocol: str) -> tuple[float, float]:
    """Fraction of starts that solve the task; two pseudo-counts keep its standard error finite."""
    good = won(table, setting, units, protocol)
    good = good[np.isfinite(good)]
    safe = (good.sum() + 1) / (good.size + 2)
    return float(good.mean()) if good.size else math.nan, math.sqrt(safe * (1 - safe) / max(good.size, 1))


def draw_width(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves, table = data[""], data["map"]
    size = int(curves["size"][-1])
    figure, axes = plt.subplots(1, 4, figsize=(15.6, 3.8), layout="constrained")
    time = 10.0 * curves.stage.values
    names = (("hard", "hard only"), ("curriculum", "easy, then hard"), ("anti", "hard, then easy"))
    for (protocol, name), colour in zip(names, COLOURS, strict=False):
        runs = curves.test_error_simulated.sel(protocol=protocol, size=size)
        axes[0].plot(time, curves.test_error_theory.sel(protocol=protocol), color=colour, label=name)
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axes[0].errorbar(time, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.2)
    axes[0].axvline(10.0, color="0.6", linewidth=0.8, zorder=0)
    axes[0].set(xlabel=label("time", "t"), ylabel="error on hard samples", ylim=(0, None))
    axes[0].set_title(f"K = 4, given start; SGD at d = {size} (points)")
    axes[0].legend()

    gain = table.hard - table.curriculum
    chosen = ["plain, 0.4", "inverse-root, 0.5"]
    for axis, setting in zip(axes[1:], [s for s in chosen if s in table.setting.values], strict=False):
        for students, colour in zip(table.students.values, COLOURS, strict=False):
            here = gain.sel(setting=setting, students=students)
            error = here.std("start", ddof=1) / np.sqrt(here.sizes["start"])
            axis.errorbar(
                table.horizon, here.mean("start"), error, fmt="o-", color=colour, markersize=4, label=f"K = {students}"
            )
        scaling, spread = setting.split(", ")
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xlabel=label("horizon", "T"), ylabel="gain of the curriculum in error", xscale="log")
        axis.set_xticks(table.horizon.values, [f"{x:g}" for x in table.horizon.values])
        axis.minorticks_off()
        axis.set_title(f"{TITLES[scaling]}, σ = {spread};\n{table.sizes['start']} random starts each")
        axis.legend()

    for setting, colour in zip(table.setting.values, COLOURS[3:], strict=False):
        for protocol, line in (("hard", "o:"), ("curriculum", "s-")):
            found = np.array([solved(table, str(setting), int(k), protocol) for k in table.students.values])
            scaling, spread = str(setting).split(", ")
            name = f"{TITLES[scaling]}, σ = {spread}" if protocol == "curriculum" else None
            axes[3].errorbar(table.students, found[:, 0], found[:, 1], fmt=line, color=colour, markersize=4, label=name)
    axes[3].set(xlabel=label("units", "K"), ylabel=f"fraction of starts that solve the task, T = {table.horizon.values[-1]:g}",
                xscale="log", ylim=(-0.05, 1.05))  # fmt: skip
    axes[3].set_xticks(table.students.values, [str(int(k)) for k in table.students.values])
    axes[3].minorticks_off()
    axes[3].set_title("winning starts: hard only (dotted),\neasy, then hard (solid)")
    axes[3].legend(fontsize=7.5)
    figure.suptitle("A curriculum helps at intermediate training times, which wide networks pass early", fontsize=11)
    return figure


RECIPES = {
    "xor-curriculum-width": Recipe(
        width,
        draw_width,
        resumes=True,
        sentence="Gain of a curriculum on XOR against width and training time, from many random starts.",
    )
}
