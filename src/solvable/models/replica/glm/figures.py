"""Sparse recovery by lasso and by Bayes' rule, and the jump of the binary perceptron."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from solvable.methods.risk.existence import recovery_threshold
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, label
from solvable.study import Study

from .model import GLM

FRACTION, NOISE, PENALTY = 0.2, 1e-4, 0.01


SPARSE = {"prior": "sparse", "fraction": FRACTION, "noise": NOISE}
LASSO, BAYES = GLM(**SPARSE, penalty=PENALTY), GLM(**SPARSE, learner="bayes")
BINARY = GLM(learner="bayes", prior="binary", channel="sign")


def _branches() -> Any:
    """The branches of the binary perceptron, with thresholds as attributes."""
    points = np.linspace(0.3, 2.1, 73)
    found = BINARY.replace(samples=points).branches()
    ours, sensing = BINARY.thresholds(), BAYES.thresholds()
    marks = {"information": ours.information, "algorithmic": ours.algorithmic, "sensing": sensing.algorithmic}
    data = Study(BINARY, {"samples": points}).run()
    data = data.assign(
        branch_error=(("samples", "branch"), np.asarray(found.error)),
        branch_stable=(("samples", "branch"), np.asarray(found["stable"])),
    )
    return data.assign_attrs({name: float(value) for name, value in marks.items()})


def _around(place: Any) -> np.ndarray:
    """Seven places over the whole range, and four around a threshold."""
    return np.sort(np.concatenate([np.linspace(0.2, 0.8, 7), float(place) * np.array([0.85, 0.93, 1.07, 1.15])]))


def _measured(model: GLM, samples: Any, size: int, seeds: int) -> Any:
    return Study(model, {"samples": np.asarray(samples)}, sizes=[size], seeds=seeds).run()


PARTS: dict[str, Callable[[int, int], Any]] = {
    "lasso": lambda size, seeds: Study(LASSO, {"samples": np.linspace(0.1, 0.9, 81)}).run(),
    "bayes": lambda size, seeds: Study(BAYES, {"samples": np.linspace(0.1, 0.9, 81)}).run(),
    "binary": lambda size, seeds: _branches(),
    "lasso_measured": lambda size, seeds: _measured(LASSO, _around(recovery_threshold(FRACTION)), size, 4 * seeds),
    "bayes_measured": lambda size, seeds: _measured(BAYES, _around(BAYES.thresholds().algorithmic), 4 * size, seeds),
    "binary_measured": lambda size, seeds: _measured(BINARY, [0.4, 0.7, 1.0, 1.3, 1.4, 1.6, 1.7, 2.0], 4 * size, seeds),
}


def transitions(quick: bool) -> dict[str, Any]:
    size, seeds = (60, 4) if quick else (250, 12)
    return {name: part(size, seeds) for name, part in PARTS.items()}


def _points(axis: Any, data: Any, colour: str, words: str | None = None) -> None:
    values = data.error_simulated.isel(size=-1)
    mean = values.mean("seed")
    spread = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    size = int(data["size"].values[-1])
    axis.errorbar(data.samples, np.maximum(mean, 1e-7), spread, fmt="o", color=colour, markersize=4,
                  label=None if words is None else f"{words}, d = {size}")  # fmt: skip


def draw_transitions(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.5))
    left.plot(data["lasso"].samples, data["lasso"].error_theory, color=COLOURS[0], label="lasso")
    left.plot(data["bayes"].samples, data["bayes"].error_theory, color=COLOURS[1], label="message passing")
    left.plot(data["bayes"].samples, data["bayes"].best_error_theory, color=INK, linestyle="--", label="posterior mean")
    _points(left, data["lasso_measured"], COLOURS[0])
    _points(left, data["bayes_measured"], COLOURS[1])
    edge = float(recovery_threshold(FRACTION))
    left.axvline(edge, color=COLOURS[0], linewidth=0.8, linestyle=":")
    left.text(edge, 2e-6, " Donoho–Tanner", color=COLOURS[0], fontsize=8)
    left.set(xlabel=label("samples", r"\alpha"), ylabel=label("error", "E"), yscale="log", ylim=(1e-6, 2))
    left.set_title(f"a sparse signal, {FRACTION:.0%} not zero", fontsize=10)
    left.legend(loc="upper right", fontsize=8)

    lines = data["binary"]
    error, stable = lines.branch_error.values, lines.branch_stable.values == 1
    x = lines.samples.values
    for branch in range(error.shape[1]):
        right.plot(x, np.where(stable[:, branch], error[:, branch], np.nan), color=COLOURS[1])
        right.plot(x, np.where(stable[:, branch], np.nan, error[:, branch]), color=COLOURS[1], linestyle=":")
    right.plot(x, lines.best_error_theory, color=INK, linestyle="--", label="posterior mean")
    _points(right, data["binary_measured"], COLOURS[1], "message passing")
    for name, height in (("information", 0.93), ("algorithmic", 0.83)):
        place = lines.attrs[name]
        right.axvline(place, color=INK, linewidth=0.8, linestyle=":")
        right.text(place + 0.02, height, f"{name}: {place:.3f}", fontsize=8)
    right.set(xlabel=label("samples", r"\alpha"), ylabel=label("error", "E"), ylim=(-0.02, 1.0))
    right.set_title("the binary perceptron: branches", fontsize=10)
    right.legend(loc="lower left", bbox_to_anchor=(0.0, 0.06), fontsize=8)
    return figure


RECIPES = {
    "glm-transitions": Recipe(
        transitions,
        draw_transitions,
        sentence="Error of lasso and of Bayes' rule against the number of samples of a sparse signal, and the branches of the "
        "binary perceptron with the samples at which perfect learning becomes possible and easy.",
    ),
}
