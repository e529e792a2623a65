"""Learning curves of factored attention on Potts data: the loss, and the couplings on star and dense graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import PottsAttention

COLOUR_COUPLINGS = ("potts", "random")
GRAPHS = ("star", "dense")


def studies(quick: bool) -> dict[str, Study]:
    """Theory lines and experiments for the loss, and for the couplings."""
    losses, couplings = PottsAttention(inverse_temperature=2.0), PottsAttention(penalty=0.0)
    lines = 17 if quick else 41
    samples = np.array([1.5, 6.0] if quick else [1.0, 2.0, 4.0, 8.0, 16.0])
    more = np.array([4.0, 8.0] if quick else [4.0, 6.0, 9.0, 14.0])
    left, right = {"interaction": COLOUR_COUPLINGS}, {"graph": GRAPHS}
    size, seeds = (50, 4) if quick else (100, 12)
    return {
        "loss": Study(losses, left | {"samples": np.geomspace(0.7, 20, lines)}),
        "loss_experiment": Study(losses, left | {"samples": samples}, sizes=[size], seeds=seeds),
        "couplings": Study(couplings, right | {"samples": np.geomspace(3.3, 20, lines)}),
        "couplings_experiment": Study(couplings, right | {"samples": more}, sizes=[size], seeds=4 * seeds),
    }


def learning_curves(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    pieces = pieces or Pieces()
    return {name: pieces.run(name, [study])[0] for name, study in studies(quick).items()}


def draw_learning_curves(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    interactions = {"potts": "Potts colour couplings", "random": "random colour couplings"}
    graphs = {"star": "star graph", "dense": "dense graph"}
    panels = (
        (axes[0], "loss", "excess_loss", "interaction", interactions),
        (axes[1], "couplings", "coupling_error", "graph", graphs),
    )
    for axis, part, name, choice, words in panels:
        theory, experiment = data[part], data[f"{part}_experiment"]
        size = int(experiment["size"].values[-1])
        for (value, word), colour, marker in zip(words.items(), COLOURS, MARKERS, strict=False):
            at = {choice: value}
            axis.plot(theory.samples, theory[f"{name}_theory"].sel(at), color=colour, label=word)
            points = experiment[f"{name}_simulated"].sel(at | {"size": size})
            error = standard_error(points)
            axis.errorbar(experiment.samples, points.mean("seed"), error, fmt=marker, color=colour)
        axis.plot([], [], MARKERS[0], color="0.4", label=f"experiment, N = {size}")
        axis.set_xlabel(label("samples", r"\alpha = M/N"))
        log_axis(axis.xaxis)
        log_axis(axis.yaxis)
        axis.legend()
    axes[0].set(ylabel="test loss above the optimal one", title=r"$\beta = 2$, $\lambda = 0.5$")
    axes[1].set(ylabel=label("coupling_error", r"\varepsilon"), title=r"$\beta = 1.5$, $\lambda = 0$")
    figure.suptitle(
        "Masked-token learning of Potts sequences, three colours: theory (lines) and experiment", fontsize=11
    )
    return figure


RECIPES = {
    "potts-attention-learning-curves": Recipe(
        learning_curves,
        draw_learning_curves,
        resumes=True,
        sentence="Excess loss of masked-token learning against the number of sequences; couplings on star and dense graphs.",
    )
}
