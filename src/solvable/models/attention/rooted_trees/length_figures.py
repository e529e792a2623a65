"""Do longer texts teach more? One network, one number of steps, texts of several lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, log_axis
from solvable.study import Study

from .model import RootedTrees

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def one_length(size: int, quick: bool = False) -> Any:
    """The study of texts up to one number: seeds of the same network trained for the same number of steps."""
    small = {"depth": 1, "context": 48, "embedding": 16, "steps": 20, "rate": 1e-2, "batch": 4}
    full = {"depth": 4, "heads": 8, "embedding": 128, "context": 256, "steps": 3000, "rate": 2e-3, "batch": 32}
    return Study(RootedTrees(**(small if quick else full)), sizes=[size], seeds=2 if quick else 3).run()


def length(quick: bool) -> dict[str, Any]:
    return {str(size): one_length(size, quick) for size in ((2000, 5000) if quick else SIZES)}


def draw_length(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
    sizes = sorted(data, key=int)
    looks = {
        "network": ("transformer", COLOURS[0]),
        "markov": ("best Markov chain", COLOURS[1]),
        "residue": ("best table of n mod m", COLOURS[2]),
        "division": ("division by primes to 13", COLOURS[3]),
    }
    for (name, (words, colour)), marker in zip(looks.items(), MARKERS * 2, strict=False):
        found = [data[size][f"{name}_accuracy_simulated"].isel(size=0) for size in sizes]
        best = [v.max([d for d in v.dims if d != "seed"]).values for v in found]
        mean = [v.mean() for v in best]
        error = [v.std(ddof=1) / np.sqrt(len(v)) for v in best]
        axis.errorbar([int(size) for size in sizes], mean, error, fmt=f"{marker}-", color=colour, label=words)
    log_axis(axis.xaxis)
    axis.set(xlabel="length of the text, numbers 1 to N", ylabel="accuracy on the next word, last fifth")
    axis.legend()
    axis.set_title("Longer texts teach the same network more")
    return figure


RECIPES = {
    "rooted-trees-length": Recipe(
        length,
        draw_length,
        sentence="Accuracy of one transformer against the length of the text of whole numbers that it reads.",
    )
}
