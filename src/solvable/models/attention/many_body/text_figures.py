"""Clones of natural language, Python's own documentation: which orders of interaction encoders and decoders leave behind."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, log_axis
from solvable.tools.text import Windows, cut_windows, follow, make_clones

LEARNERS = {"encoder": False, "decoder": True}


def documentation() -> str:
    """The reference manual that comes with Python, as `help()` shows it: about half a million characters."""
    from pydoc_data.topics import topics

    return " ".join(topics[name] for name in sorted(topics))


def shuffled(windows: Windows) -> Windows:
    """The same windows with their characters in random order, each window for itself."""
    rng = np.random.default_rng(0)
    return windows._replace(train=rng.permuted(windows.train, axis=1), test=rng.permuted(windows.test, axis=1))


def text(quick: bool) -> dict[str, Any]:
    import sys

    import xarray as xr

    windows = cut_windows(documentation(), sites=8 if quick else 12, colours=12 if quick else 28, stride=1)
    small: dict[str, Any] = {"sweeps": 3, "heads": 2, "width": 8, "held": 64, "depths": (1, 2)}
    full: dict[str, Any] = {"sweeps": 40, "heads": 8, "width": 32, "held": 1024, "depths": (1, 2, 3)}
    length = {"steps": 40, "batch": 32} if quick else {"steps": 8000, "batch": 128}
    parts = {}
    for corpus, here in (("text", windows), ("shuffled", shuffled(windows))):
        sets, stack_losses = make_clones(here, **(small if quick else full), **length)
        runs = [follow(here, sets, seeds=2 if quick else 6, causal=causal, **length) for causal in LEARNERS.values()]
        losses = np.stack([np.stack([one.runs for one in curves]) for _, curves in runs])
        parts[corpus] = xr.Dataset(
            {
                "loss": (("learner", "order", "step", "seed"), losses),
                "stack_loss": ("order", np.array([stack_losses.get(order, np.nan) for order in sets])),
            },
            {"learner": list(LEARNERS), "order": list(sets), "step": runs[0][0]},
            {"windows": len(here.train), "sites": here.train.shape[1], "python": sys.version.split()[0]},
        )
    return parts


def draw_text(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9.8, 7.0), layout="constrained", sharex=True)
    for row, (corpus, words) in zip(axes, {"text": "", "shuffled": ", shuffled in windows"}.items(), strict=True):
        table = data[corpus]
        steps = table.step.values
        for axis, learner in zip(row, table.learner.values, strict=True):
            for order, colour in zip(table.order.values, COLOURS, strict=False):
                runs = table.loss.sel(learner=learner, order=order).values
                name = f"clone of {order} bodies" if order else "the text itself"
                axis.plot(steps[1:], runs[1:], color=colour, linewidth=0.5, alpha=0.4)
                axis.plot(steps[1:], runs[1:].mean(1), color=colour, label=name)
                best = runs.mean(1)[1:].argmin() + 1
                axis.plot(steps[best], runs.mean(1)[best], "v", color=colour, markersize=7)
            what = "hidden character" if learner == "encoder" else "next character"
            axis.set(ylabel=f"loss on the {what} (nats)")
            axis.set_title(f"{learner}{words}")
            log_axis(axis.xaxis)
    for axis in axes[1]:
        axis.set_xlabel("training steps")
    axes[0, 0].legend()
    windows, sites = int(data["text"].attrs["windows"]), int(data["text"].attrs["sites"])
    figure.suptitle(
        f"Python's documentation in {windows:,} windows of {sites} characters: which clone is left behind when "
        "(triangles: lowest)",
        fontsize=11,
    )
    return figure


RECIPES = {
    "many-body-text": Recipe(
        text,
        draw_text,
        sentence="Clones of Python's documentation by models of two, three and five bodies, left behind one after the other.",
    )
}
