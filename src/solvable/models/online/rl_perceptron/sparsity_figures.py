"""How long sparse rewards delay learning: time to a given accuracy against episode length and number of right actions needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import RLPerceptron

LEVEL = 0.7
"""Fraction of right actions that is to be reached; students start at 0.597, an alignment of 0.3."""
TIMES = np.concatenate([[0.0], np.geomspace(0.2, 200.0, 60)])
LENGTHS, NEEDED, EPISODE = (2, 4, 6, 8, 10), (7, 8, 9, 10), 10
RULES = {"all": "all actions right", "breadcrumb": "every right action"}


def sparsity(quick: bool) -> dict[str, Any]:
    size, seeds = (30, 2) if quick else (200, 8)
    model = RLPerceptron(times=TIMES[::12] if quick else TIMES)
    lengths = list(LENGTHS[:2] if quick else LENGTHS)
    parts = {
        rule: Study(model.replace(rule=rule), {"steps": lengths}, sizes=[size], seeds=seeds).run() for rule in RULES
    }
    some = model.replace(rule="enough", steps=EPISODE)
    parts["enough"] = Study(some, {"needed": list(NEEDED[-1:] if quick else NEEDED)}, sizes=[size], seeds=seeds).run()
    return {name: data[[v for v in data.data_vars if str(v).startswith("test_error")]] for name, data in parts.items()}


def crossing(errors: Any) -> Any:
    """The time at which the fraction of right actions first reaches the level, by linear interpolation; NaN if it does not."""
    right, time = 1 - errors.transpose(..., "time").values, errors.time.values
    found = np.full(right.shape[:-1], np.nan)
    for at in np.ndindex(found.shape):
        above = np.flatnonzero(right[at] >= LEVEL)
        if above.size and above[0] > 0:
            i = above[0]
            low, high = right[at][i - 1], right[at][i]
            found[at] = time[i - 1] + (LEVEL - low) / (high - low) * (time[i] - time[i - 1])
    return errors.isel(time=0, drop=True).transpose(*[d for d in errors.dims if d != "time"]).copy(data=found)


def draw_sparsity(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained")
    for (rule, words), colour, marker in zip(RULES.items(), COLOURS, MARKERS, strict=False):
        _both(axes[0], data[rule], "steps", color=colour, marker=marker, name=f"rewards for {words}")
    steps = data["all"].steps.values
    first = float(crossing(data["all"].test_error_theory)[0])
    axes[0].plot(steps, first * 2.0 ** (steps - steps[0]), color="0.6", linestyle=":", label=r"$\propto 2^T$")
    axes[0].set(xlabel=label("actions per episode", "T"))
    axes[0].set_title("longer episodes delay learning,\nmore so if all must be right")
    _both(axes[1], data["enough"], "needed", color=COLOURS[2], marker="D", name=f"n of {EPISODE} right")
    axes[1].set(xlabel=label("right actions needed", "n"))
    axes[1].set_xticks(data["enough"].needed.values)
    axes[1].set_title(f"more right actions of {EPISODE} needed:\nfrom eight on")
    for axis in axes:
        log_axis(axis.yaxis)
        axis.set(ylabel=f"time until {LEVEL:g} of the actions are right")
        axis.legend(fontsize=8)
    size = int(data["all"]["size"][-1])
    figure.suptitle(f"Sparse rewards delay learning: theory (lines), students of D = {size} (points)", fontsize=11)
    return figure


def _both(axis: Any, data: Any, dim: str, *, color: str, marker: str, name: str) -> None:
    axis.plot(data[dim], crossing(data.test_error_theory), color=color, label=name)
    runs = crossing(data.test_error_simulated.isel(size=-1))
    error = standard_error(runs)
    axis.errorbar(data[dim], runs.mean("seed"), error, fmt=marker, color=color, markersize=4.5)


RECIPES = {
    "rl-perceptron-sparsity": Recipe(
        sparsity,
        draw_sparsity,
        sentence="Time to a given accuracy against episode length and the number of right actions needed for a reward.",
    )
}
