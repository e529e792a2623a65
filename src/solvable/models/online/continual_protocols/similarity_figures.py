"""Loss and forgetting against the similarity of the tasks, for every protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label
from solvable.study import Study

from .model import ContinualProtocols

PROTOCOLS = ("no-replay", "even", "focus", "optimal")


def similarity(quick: bool) -> dict[str, Any]:
    model = ContinualProtocols(intervals=20 if quick else 50)
    every = np.linspace(0.0, 1.0, 3 if quick else 21)
    wanted = ("final_loss_theory", "forgetting_theory", "converged_theory")
    parts = {}
    for protocol in PROTOCOLS[: 3 if quick else 4]:
        found = Study(model.replace(protocol=protocol), {"similarity": every}).run()
        parts[protocol] = found[[v for v in wanted if v in found]]
    return parts


def draw_similarity(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.0), layout="constrained")
    for protocol, colour in zip(PROTOCOLS, COLOURS, strict=False):
        if protocol in data:
            here = data[protocol]
            axes[0].plot(here.similarity, here.final_loss_theory, "o-", markersize=3, color=colour, label=protocol)
            axes[1].plot(here.similarity, here.forgetting_theory, "o-", markersize=3, color=colour, label=protocol)
    axes[0].set(ylabel=label("final_loss", r"\bar\varepsilon(T)"))
    axes[1].set(ylabel="forgetting of task 1")
    for axis in axes:
        axis.set(xlabel=label("similarity", r"\gamma"))
    axes[0].set_title("mean loss of both tasks at the end")
    axes[1].set_title("increase of the loss of task 1")
    axes[0].legend()
    figure.suptitle("Optimal protocols change how similarity acts: forgetting no longer peaks as high", fontsize=11)
    return figure


RECIPES = {
    "continual-protocols-similarity": Recipe(
        similarity,
        draw_similarity,
        sentence="Final loss and forgetting against the similarity of two tasks, for every protocol (theory).",
    )
}
