"""Accuracy of an attacked online learner, the attacker's cost, and the excess cost of greedy attacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import OnlineAttack

ATTACKS = {
    "constant": {"strategy": "constant"},
    "greedy, P = 1": {"strategy": "greedy"},
    "greedy, P = 10": {"strategy": "greedy", "batch": 10},
    "optimal, P = 1": {"strategy": "optimal"},
}
BATCHES = (1, 2, 10)


def costs(quick: bool) -> dict[str, Any]:
    size, seeds = (50, 4) if quick else (200, 12)
    model = OnlineAttack(times=[0.0, 20.0, 40.0])
    lines = Study(model, {"cost": np.geomspace(0.03, 30.0, 121)}, arms=ATTACKS).run()
    points = Study(model, {"cost": np.geomspace(0.1, 10.0, 9)}, arms=ATTACKS, sizes=[size], seeds=seeds).run()
    over = {
        "strategy": ["greedy", "optimal"],
        "batch": list(BATCHES[: 1 if quick else None]),
        "rate": np.linspace(0.01, 1.0, 60),
    }
    greed = Study(model, over).run()
    return {"": lines, "experiment": points, "greed": greed}


def draw_costs(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, points, greed = data[""], data["experiment"], data["greed"]
    size = int(points["size"][-1])
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    shown = (("test_error", "steady_error", lambda x: 1 - x), ("running_cost", "steady_cost", lambda x: x))
    for axis, (measured, steady, view) in zip(axes, shown, strict=False):
        for i, arm in enumerate(ATTACKS):
            axis.plot(lines.cost, view(lines.sel(arm=arm)[f"{steady}_theory"]), color=COLOURS[i], label=arm)
            runs = view(points.sel(arm=arm, size=size)[f"{measured}_simulated"].isel(time=-1))
            error = standard_error(runs)
            axis.errorbar(points.cost, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8)
        log_axis(axis.xaxis)
        axis.set_xlabel(label("cost", "C"))
    axes[0].set(ylabel="accuracy on clean labels")
    axes[0].set_title(f"η = 0.25: D → ∞ (lines), D = {size} (points)")
    for critical, colour in ((1.0, COLOURS[0]), (3.0, COLOURS[1]), (1.2, COLOURS[2])):
        axes[0].axvline(critical, color=colour, linestyle=":", linewidth=1, zorder=0)
    axes[0].text(3.15, 0.08, "$C_c = 1 + 2/P$\n(η → 0)", fontsize=8)
    axes[0].legend(loc="upper left")
    axes[1].set(ylabel=label("running_cost", "g"))
    axes[1].set_title("long-run cost of the attacker")
    for i, batch in enumerate(greed.batch.values):
        at = greed.sel(batch=batch).steady_cost_theory
        excess = 100 * (at.sel(strategy="greedy") / at.sel(strategy="optimal") - 1)
        axes[2].plot(greed.rate, excess, LINES[i], color=COLOURS[i + 3], label=f"P = {batch}")
    axes[2].set(xlabel=label("rate", r"\eta"), ylabel="greedy cost above the optimum, %", ylim=(0, None))
    axes[2].set_title("excess cost of greedy attacks at C = 1")
    axes[2].legend()
    figure.suptitle(
        "Poisoned labels: an online learner switches to the attacker's target at a critical cost", fontsize=11
    )
    return figure


RECIPES = {
    "online-attack-costs": Recipe(
        costs,
        draw_costs,
        sentence="Accuracy of an online learner with poisoned labels, and cost of its attacker, against the price of an attack.",
    )
}
