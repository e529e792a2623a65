"""The optimal protocol for a student of two tasks, compared with every heuristic."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, mean_and_error
from solvable.study import Study

from .model import ContinualProtocols

PROTOCOLS = ("no-replay", "even", "focus", "optimal")
SIMILARITIES = (0.0, 0.3, 0.7)
SHOWN = 0.3
CURVE = np.round(np.linspace(0.0, 0.9, 10), 1)  # similarities at which no replay and the optimum are compared


def protocols(quick: bool) -> dict[str, Any]:
    """Find every protocol first and then pass it as `given`, so that one program of the theory and one of the networks serve all.

    The optimum over fractions alone is the optimum over fractions and pace with the pace fixed at one: one search serves both.
    """
    import xarray as xr

    size, seeds, intervals = (100, 3, 40) if quick else (1000, 16, 100)
    model = ContinualProtocols(intervals=intervals)
    held = [1.0] * len(SIMILARITIES)
    found = model.replace(
        protocol="optimal-rate", similarity=[*SIMILARITIES, SHOWN], slowest=[*held, 0.0], fastest=[*held, 5.0]
    ).theory()
    if not np.all(found.converged):
        raise RuntimeError("a search for an optimal protocol did not converge.")
    focus = model.replace(protocol="focus", similarity=SIMILARITIES).theory(only=["fraction"]).fraction
    schedules = {
        "no-replay": np.ones((len(SIMILARITIES), intervals)),
        "even": np.full((len(SIMILARITIES), intervals), 0.5),
        "focus": np.asarray(focus),
        "optimal": np.asarray(found.fraction)[:-1],
    }
    arms = {
        f"{protocol}, {similarity:g}": {"similarity": similarity, "given_fraction": row}
        for protocol, rows in schedules.items()
        for similarity, row in zip(SIMILARITIES, rows, strict=True)
    }
    arms["joint"] = {"similarity": SHOWN, "given_fraction": found.fraction[-1], "given_pace": found.pace[-1]}
    runs = Study(model.replace(protocol="given"), arms=arms, sizes=[size], seeds=seeds).run()
    rows = [xr.concat([runs.sel(arm=f"{p}, {x:g}", drop=True) for x in SIMILARITIES], "similarity") for p in PROTOCOLS]
    curves = xr.concat(rows, "protocol").assign_coords(protocol=list(PROTOCOLS), similarity=list(SIMILARITIES))
    together = runs.sel(arm="joint", drop=True).expand_dims("similarity").assign_coords(similarity=[SHOWN])
    return {"": curves, "joint": together, "curve": against_similarity(quick)}


def against_similarity(quick: bool) -> Any:
    """No replay, even replay and the optimum against similarity: theory and networks."""
    import xarray as xr

    size, seeds, intervals = (100, 3, 20) if quick else (500, 8, 100)
    similarities = CURVE[::4] if quick else CURVE
    model, one = ContinualProtocols(intervals=intervals), np.ones(len(similarities))
    found = model.replace(protocol="optimal-rate", similarity=similarities, slowest=one, fastest=one).theory()
    rows = {
        "no-replay": np.ones((len(one), intervals)),
        "even": np.full((len(one), intervals), 0.5),
        "optimal": found.fraction,
    }
    arms = {
        f"{protocol}, {x:g}": {"similarity": x, "given_fraction": np.asarray(row)}
        for protocol, values in rows.items()
        for x, row in zip(similarities, values, strict=True)
    }
    runs = Study(model.replace(protocol="given"), arms=arms, sizes=[size], seeds=seeds).run()
    names = [f"{n}_{kind}" for n in ("final_loss", "forgetting") for kind in ("theory", "simulated")]
    curves = [
        xr.concat([runs[names].sel(arm=f"{p}, {x:g}", drop=True) for x in similarities], "similarity") for p in rows
    ]
    table = xr.concat(curves, "protocol").assign_coords(protocol=list(rows), similarity=similarities)
    return table.assign(found=("similarity", np.asarray(found.converged, float)))


def draw_protocols(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves, joint = data[""], data["joint"]
    size = int(curves["size"][-1])
    figure, axes = plt.subplot_mosaic(
        [["losses", "schedule", "final", "curve"], ["losses", "switching", "final", "curve"]],
        figsize=(15.8, 4.2),
        width_ratios=[1, 1, 1.15, 1],
    )
    horizon = 10.0
    at = curves.sel(similarity=SHOWN, size=size)
    time = horizon * curves.progress.values
    every = slice(5, None, 10)
    for protocol, colour in (("no-replay", COLOURS[0]), ("optimal", COLOURS[1])):
        for task, dash in ((1, "--"), (2, "-")):
            line, points = (
                at.test_loss_theory.sel(protocol=protocol, task=task),
                at.test_loss_simulated.sel(protocol=protocol, task=task),
            )
            axes["losses"].plot(time, line, dash, color=colour, label=f"{protocol}, task {task}")
            mean, error = mean_and_error(points)
            axes["losses"].errorbar(time[every], mean[every], error[every], fmt="o", color=colour, markersize=3.2)
    axes["losses"].set(xlabel=label("time", "t"), ylabel=label("test_loss", r"\varepsilon_t"), yscale="log")
    axes["losses"].set_title(f"γ = {SHOWN}: flow (lines), SGD at N = {size} (points)")
    axes["losses"].legend()

    middle = horizon * curves.interval.values
    for similarity, colour in zip(SIMILARITIES, (COLOURS[2], COLOURS[1], COLOURS[3]), strict=True):
        best = curves.sel(similarity=similarity, protocol="optimal")
        axes["schedule"].step(middle, best.fraction_theory, where="mid", color=colour, label=f"γ = {similarity:g}")
        difference = best.switching_theory.sel(task=2) - best.switching_theory.sel(task=1)
        axes["switching"].plot(middle, difference, color=colour)
    axes["schedule"].set(ylabel="fraction of task 2", ylim=(-0.04, 1.06), xticklabels=[])
    axes["schedule"].set_title("optimal: focus, then replay on a singular arc")
    axes["schedule"].legend(loc="lower left")
    axes["switching"].axhline(0, color="0.6", linewidth=0.8, zorder=0)
    axes["switching"].set(xlabel=label("time", "t"), ylabel="switching\nfunction, $s_2 - s_1$")

    place, names = 0, []
    for similarity in SIMILARITIES:
        bars = [(p, curves.sel(similarity=similarity, protocol=p, size=size)) for p in PROTOCOLS]
        bars += [("optimal,\nwith rate", joint.sel(similarity=SHOWN, size=size))] if similarity == SHOWN else []
        for protocol, bar in bars:
            colour = COLOURS[1] if protocol.startswith("optimal") else "0.75"
            value = float(bar.final_loss_theory)
            mean, error = mean_and_error(bar.final_loss_simulated)
            axes["final"].barh(place, value, color=colour, height=0.74)
            axes["final"].errorbar(mean, place, xerr=error, fmt="o", color="black", markersize=3.4)
            axes["final"].text(max(value, mean + error) + 4e-4, place, f"{value:.6f}", va="center", fontsize=7.5)
            names.append((place, protocol))
            place += 1
        axes["final"].text(0.0265, place - 1, f"γ = {similarity:g}", ha="right", va="center", fontsize=9, weight="bold")
        place += 0.7
    axes["final"].set_yticks([p for p, _ in names], [n for _, n in names], fontsize=8)
    axes["final"].set(xlim=(0, 0.027), xlabel=label("final_loss", r"\bar\varepsilon(T)"))
    axes["final"].invert_yaxis()
    axes["final"].set_axisbelow(True)
    axes["final"].set_title(f"mean loss at the end; points: SGD, N = {size}")
    if "curve" in data:
        _against_similarity(axes["curve"], data["curve"])
    else:
        axes["curve"].axis("off")
    figure.suptitle("Which task to show when: the optimal protocol and every heuristic", fontsize=11)
    return figure


def _against_similarity(axis: Any, curve: Any) -> None:
    """Forgetting of the first task against similarity, for three protocols: theory and networks."""
    table, names = curve.isel(size=-1), {"no-replay": "no replay", "even": "even replay", "optimal": "optimal"}
    for (protocol, words), colour in zip(names.items(), (COLOURS[0], "0.5", COLOURS[1]), strict=True):
        at = table.sel(protocol=protocol)
        axis.plot(table.similarity, at.forgetting_theory, color=colour, label=words)
        mean, error = mean_and_error(at.forgetting_simulated)
        axis.errorbar(table.similarity, mean, error, fmt="o", color=colour, markersize=3.4)
    axis.set(xlabel=label("similarity", r"\gamma"), ylabel="forgetting of task 1")
    axis.set_title(f"against similarity (points: N = {int(curve['size'][-1])})")
    axis.legend()


RECIPES = {
    "continual-protocols": Recipe(
        protocols,
        draw_protocols,
        sentence=(
            "The optimal protocol for a student of two tasks, its switching function, and its final loss "
            "compared with every heuristic."
        ),
    )
}
