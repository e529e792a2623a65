"""How a transformer learns the text of rooted trees: accuracy and loss against training steps, with tables as lines."""

from __future__ import annotations

from typing import Any

from ..models.attention.rooted_trees import RootedTrees
from ..plotting import COLOURS, INK, log_axis
from ..study import Study
from .draw import Recipe

TASKS = {"next": "next word, from the past", "masked": "hidden word, from both sides"}


def learning(quick: bool) -> dict[str, Any]:
    """Full: N = 10⁶, four layers, minutes on an accelerator. Quick: N = 10⁵, two small layers."""
    if quick:
        model = RootedTrees(depth=2, embedding=32, context=48, batch=16, steps=300, rate=5e-3)
        size, seeds = 100_000, 1
    else:
        model = RootedTrees(depth=4, heads=8, embedding=128, context=256, batch=32, steps=3000, rate=2e-3)
        size, seeds = 1_000_000, 3
    return {task: Study(model.replace(task=task), sizes=[size], seeds=seeds).run() for task in TASKS}


def draw_learning(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.4), sharex=True, sharey="row")
    for column, (task, said) in enumerate(TASKS.items()):
        runs = data[task].isel(size=0)
        near = "markov" if task == "next" else "neighbour"
        steps = runs.progress.values * _steps(runs)
        seen = steps > 0
        for axis, what in zip(axes[:, column], ("accuracy", "loss"), strict=True):
            curves = runs[f"{what}_curve_simulated"].values[:, seen]
            for curve in curves:
                axis.plot(steps[seen], curve, color=COLOURS[0], linewidth=0.7, alpha=0.5)
            axis.plot(steps[seen], curves.mean(0), color=COLOURS[0], linewidth=2, label="transformer, test")
            if what == "loss":
                train = runs["train_curve_simulated"].values[:, seen].mean(0)
                axis.plot(steps[seen], train, color=COLOURS[5], linewidth=1, label="transformer, training")
            _levels(axis, runs, f"{near}_{what}", "order", COLOURS[1], "--", _near(task))
            _levels(axis, runs, f"residue_{what}", "modulus", COLOURS[2], ":", "n mod {}")
            _levels(axis, runs, f"division_{what}", "prime", COLOURS[3], "-.", "division by primes to {}")
            log_axis(axis.xaxis)
        axes[0, column].set_title(said)
        axes[1, column].set_xlabel("training steps")
    axes[0, 0].set_ylabel("test accuracy")
    axes[1, 0].set(ylabel="cross-entropy (nats)")
    axes[0, 0].set_ylim(0.15, 0.52)
    axes[1, 0].set_ylim(0.9, 3.0)
    axes[1, 0].legend(loc="lower left")
    numbers = int(data["next"]["size"].values[0])
    figure.suptitle(f"The numbers to {numbers:,} as rooted trees: a transformer beside exact tables", fontsize=11)
    return figure


SHOWN = {"order": (1, 2, 3), "modulus": (4, 36, 900), "prime": (3, 5, 7)}


def _near(task: str) -> str:
    return "Markov, order {}" if task == "next" else "{} on each side"


def _levels(axis: Any, runs: Any, name: str, dim: str, colour: str, style: str, said: str) -> None:
    """A line for each table, named at the right."""
    levels = runs[f"{name}_simulated"].isel(seed=0)
    for at in SHOWN[dim]:
        if at in levels[dim].values:
            height = float(levels.sel({dim: at}))
            axis.axhline(height, color=colour, linestyle=style, linewidth=0.9, zorder=1)
            axis.annotate(said.format(at), (1.0, height), xycoords=("axes fraction", "data"), xytext=(2, 0),
                          textcoords="offset points", fontsize=6.5, color=INK, va="center")  # fmt: skip


def _steps(runs: Any) -> float:
    from .draw import provenance

    (model,) = provenance(runs)["models"].values()
    return float(model["fields"]["steps"])


RECIPES = {"rooted-trees-learning": Recipe(learning, draw_learning)}
