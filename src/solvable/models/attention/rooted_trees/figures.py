"""How a transformer learns the text of rooted trees: accuracy and loss against training steps, with tables as lines."""

from __future__ import annotations

from typing import Any

from solvable.render.figures import Recipe, provenance
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, log_axis
from solvable.study import Study

from .model import TRAINED, RootedTrees

TASKS = {"next": "next word, from the past", "masked": "hidden word, from both sides"}


SMALL = RootedTrees(depth=1, context=48, embedding=48, steps=250, rate=1e-2)
LARGE = RootedTrees(depth=4, heads=8, embedding=128, context=256, steps=3000, rate=2e-3)


def studies(quick: bool) -> dict[str, list[Study]]:
    """Full: N = 10⁶, four layers, minutes on an accelerator. Quick: N = 50 000, one small layer.

    In the masked task only the hidden words, one in eight, contribute to the loss, so it uses larger batches.
    """
    model, size, seeds = (SMALL, 50_000, 1) if quick else (LARGE, 1_000_000, 3)
    batch = {"next": 16, "masked": 48} if quick else {"next": 32, "masked": 64}
    return {task: [Study(model.replace(task=task, batch=batch[task]), sizes=[size], seeds=seeds)] for task in TASKS}


def learning(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    return _run(studies(quick), pieces)


def length_studies(quick: bool) -> dict[str, list[Study]]:
    """One network on texts of several lengths, trained equally long.

    `own`: the numbers to N, tested on the last fifth of them. `same`: parts of the longest of these texts, which end where its
    test begins.
    """
    model, seeds = (SMALL.replace(steps=100), 1) if quick else (RootedTrees(embedding=32, steps=500, rate=1e-2), 3)
    own = (10_000, 50_000) if quick else (10_000, 100_000, 1_000_000)
    parts = (4000,) if quick else (8_000, 80_000)
    return {
        "own": [Study(model, sizes=[size], seeds=seeds) for size in own],
        "same": [Study(model, {"read": list(parts)}, sizes=own[-1:], seeds=seeds)],
    }


def lengths(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    import xarray as xr

    found = _run(length_studies(quick), pieces)
    whole = found["own"].isel(size=[-1])
    whole = whole.expand_dims(read=[round(TRAINED * int(whole["size"][0]))])
    same = xr.concat([found["same"], whole], "read", data_vars="all", combine_attrs="drop_conflicts")
    return {"own": found["own"], "same": same.assign_attrs(found["same"].attrs)}


def _run(every: dict[str, list[Study]], pieces: Pieces | None) -> dict[str, Any]:
    import xarray as xr

    found = {}
    for name, some in every.items():
        runs = (pieces or Pieces()).run(name, some)
        whole = runs[0] if len(runs) == 1 else xr.concat(runs, "size", data_vars="all", combine_attrs="drop_conflicts")
        found[name] = whole.assign_attrs(runs[0].attrs)
    return found


def draw_learning(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.4), sharex=True, sharey="row")
    for column, (task, label) in enumerate(TASKS.items()):
        runs = data[task].isel(size=0)
        near = "markov" if task == "next" else "neighbour"
        steps = runs.progress.values * float(_fields(runs)["steps"])
        seen = steps > 0
        for axis, what in zip(axes[:, column], ("accuracy", "loss"), strict=True):
            curves = runs[f"{what}_curve_simulated"].values[:, seen]
            for curve in curves:
                axis.plot(steps[seen], curve, color=COLOURS[0], linewidth=0.7, alpha=0.5)
            axis.plot(steps[seen], curves.mean(0), color=COLOURS[0], linewidth=2, label="transformer, test")
            if what == "loss":
                train = runs["train_curve_simulated"].values[:, seen].mean(0)
                axis.plot(steps[seen], train, color=COLOURS[5], linewidth=1, label="transformer, training")
            axis.set_ylim(*LIMITS[what])
            levels = [
                *_levels(axis, runs, f"{near}_{what}", "order", COLOURS[1], "--", _near(task)),
                *_levels(axis, runs, f"residue_{what}", "modulus", COLOURS[2], ":", "n mod {}"),
                *_levels(axis, runs, f"division_{what}", "prime", COLOURS[3], "-.", "divided by 2…{}"),
            ]
            _name_levels(axis, levels)
            log_axis(axis.xaxis)
        axes[0, column].set_title(label)
        axes[1, column].set_xlabel("training steps")
    axes[0, 0].set_ylabel("test accuracy")
    axes[1, 0].set(ylabel="cross-entropy (nats)")
    axes[1, 0].legend(loc="upper right")
    numbers, fields = int(data["next"]["size"].values[0]), _fields(data["next"])
    label = f"{fields['depth']} layer{'s' * (fields['depth'] > 1)}, width {fields['embedding']}, context {fields['context']}"
    figure.suptitle(
        f"The numbers up to {numbers:,} as rooted trees: a transformer ({label}) compared with exact tables",
        fontsize=11,
    )
    return figure


def draw_lengths(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    own, same = data["own"], data["same"].isel(size=0)
    begins = f"{float(_fields(data['own'])['steps']):,.0f}"
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), sharey=True, layout="constrained")
    tables = (("markov", "order", "best Markov chain"), ("residue", "modulus", "best table of n mod m"))
    for axis, runs, x, dim in (
        (axes[0], own, own["size"], "size"), (axes[1], same, same["read"], "read")
    ):  # fmt: skip
        values = runs.network_accuracy_simulated.transpose(dim, "seed")
        axis.plot(x, values, "o", color=COLOURS[0], markersize=3.5, alpha=0.6)
        axis.plot(x, values.mean("seed"), color=COLOURS[0], label="transformer")
        for (name, along, label), colour in zip(tables, COLOURS[1:], strict=False):
            best = runs[f"{name}_accuracy_simulated"].max(along).isel(seed=0)
            axis.plot(x, best, color=colour, linestyle="--", linewidth=1, label=label)
        log_axis(axis.xaxis)
    axes[0].set(xlabel="numbers in the text, $N$", ylabel="accuracy on the next word")
    axes[0].set_title("each text tested on its own last fifth")
    axes[1].set(xlabel="numbers read before the test")
    axes[1].set_title(f"all tested on the last fifth of {int(own['size'][-1]):,}")
    axes[1].legend(loc="center left", bbox_to_anchor=(0.0, 0.26))
    figure.suptitle(f"The same transformer on longer texts, {begins} steps of training each", fontsize=11)
    return figure


SHOWN = {"order": (1, 2, 3), "modulus": (4, 36, 900), "prime": (3, 5, 7)}
LIMITS = {"accuracy": (0.15, 0.55), "loss": (0.9, 3.0)}


def _near(task: str) -> str:
    return "Markov, order {}" if task == "next" else "{} on each side"


def _levels(
    axis: Any, runs: Any, name: str, dim: str, colour: str, style: str, label: str
) -> list[tuple[float, str, str]]:
    """Draw a line for each table; return their heights, names and colours."""
    levels = runs[f"{name}_simulated"].isel(seed=0)
    found = [(float(levels.sel({dim: at})), label.format(at), colour) for at in SHOWN[dim] if at in levels[dim].values]
    for height, *_ in found:
        axis.axhline(height, color=colour, linestyle=style, linewidth=0.9, zorder=1)
    return found


def _name_levels(axis: Any, levels: list[tuple[float, str, str]]) -> None:
    """Write the names at the right, moved apart where lines are close."""
    low, high = axis.get_ylim()
    gap, below = 0.04 * (high - low), float("-inf")
    for height, label, colour in sorted(levels):
        below = max(height, below + gap)
        axis.annotate(label, (1.0, below), xycoords=("axes fraction", "data"), xytext=(3, 0), color=colour,
                      textcoords="offset points", fontsize=6.5, va="center", annotation_clip=False)  # fmt: skip


def _fields(runs: Any) -> dict[str, Any]:
    (model,) = provenance(runs)["models"].values()
    return model["fields"]


RECIPES = {
    "rooted-trees-learning": Recipe(
        learning,
        draw_learning,
        sentence="A transformer reads the whole numbers as rooted trees and beats Markov chains on the way to trial division.",
        resumes=True,
    ),
    "rooted-trees-length": Recipe(
        lengths,
        draw_lengths,
        sentence="Accuracy of the same transformer, trained equally long, on texts of 10⁴ to 10⁶ numbers.",
        resumes=True,
    ),
}
