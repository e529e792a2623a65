"""Attacks on learners of handwritten digits, linear and with hidden layers, beside random flips of the same price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable.methods.data.own import own_table
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, label, log_axis, standard_error

from .digits import ATTACKS, LEARNERS, attacks_on, attacks_on_digits

COSTS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


LEAST = 60
"""Rows that a table of the reader's must have; two thirds are learnt from."""


def _settings(quick: bool) -> tuple[tuple[float, ...], int, int, int]:
    """Prices, seeds, and steps before and during the attack."""
    return ((0.5, 2.0), 2, 800, 800) if quick else (COSTS, 6, 10_000, 20_000)


def on_digits(quick: bool) -> dict[str, Any]:
    settings = _settings(quick)
    return {"": _labelled(attacks_on_digits(*settings), settings[0])}


def on_own(quick: bool, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same on rows X of two classes y."""
    table, settings = own_table(arrays, least_rows=LEAST, most_classes=2), _settings(quick)
    found = attacks_on(table.rows, 2.0 * table.classes - 1.0, 2 * len(table.rows) // 3, *settings)
    return {"": _labelled(found, settings[0]).assign_attrs(inputs="your own rows")}


def _labelled(found: dict[str, np.ndarray], costs: tuple[float, ...]) -> Any:
    import xarray as xr

    dims = ("learner", "attack", "cost", "seed")
    coords = {"learner": list(LEARNERS), "attack": list(ATTACKS), "cost": np.asarray(costs)}
    return xr.Dataset({name: (dims, values) for name, values in found.items()}, coords)


def draw_on_digits(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""]
    inputs = runs.attrs.get("inputs", "digits")
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 3.9), layout="constrained")
    for axis, learner in zip(axes, runs.learner.values, strict=False):
        at = runs.sel(learner=learner)
        for i, attack in enumerate(runs.attack.values):
            _points(axis, 1 - at.error.sel(attack=attack), i, str(attack))
        before = float(1 - at.clean_error.mean())
        axis.axhline(before, color=INK, linewidth=0.8, linestyle=":")
        axis.text(float(runs.cost[0]), before + 0.01, "before the attack", fontsize=8, va="bottom")
        axis.axvline(1.0, color="0.6", linewidth=0.8, zorder=0)
        axis.set(xlabel=label("price of the attack", "C"), ylim=(-0.02, 1.08))
        axis.set_title(f"{inputs}, learner: {learner}")
        log_axis(axis.xaxis)
    axes[0].set_ylabel("accuracy on clean labels")
    axes[0].legend(loc="center right", fontsize=8)
    at = runs.sel(learner=runs.learner.values[-1])
    for i, attack in enumerate(runs.attack.values):
        _points(axes[2], at.cost_paid.sel(attack=attack), i, str(attack))
    axes[2].set(xlabel=label("price of the attack", "C"), ylabel="attacker's cost per step", yscale="log")
    axes[2].set_title(f"cost paid, learner: {runs.learner.values[-1]}")
    log_axis(axes[2].xaxis)
    figure.suptitle(
        "Attacks on digits turn the learner near price 1, as on Gaussian inputs; random flips of the same price need a lower one"
        if inputs == "digits"
        else "Attacks on your own rows: where does the learner turn? On Gaussian inputs it does at price 1",
        fontsize=11,
    )
    return figure


def _points(axis: Any, runs: Any, i: int, name: str) -> None:
    error = standard_error(runs)
    axis.errorbar(runs.cost, runs.mean("seed"), error, fmt=f"{MARKERS[i]}-", color=COLOURS[i], markersize=4, linewidth=1,
                  label=name)  # fmt: skip


RECIPES = {
    "online-attack-digits": Recipe(
        on_digits,
        draw_on_digits,
        sentence="Accuracy of linear and deeper learners of digits against the price of an attack: whether real data "
        "behave alike.",
        own=on_own,
    )
}
