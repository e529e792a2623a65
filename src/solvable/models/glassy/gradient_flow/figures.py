"""How long gradient flow needs to leave marginal minima for the signal."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label
from solvable.study import Study

from .model import GradientFlow

NOISES = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.6)
SHOWN = (0.2, 0.3, 0.4, 0.6)
TRIVIAL = 0.40605  # matrix noise below which no spurious minimum is left (Kac–Rice; p = 3, Δ₃ = 1)


def escape(quick: bool) -> dict[str, Any]:
    until, steps = (10.0, 300) if quick else (40.0, 2000)
    model = GradientFlow(initial_overlap=0.01, times=np.linspace(0.0, until, 81), waiting=[0.0, 1.0])
    lines = Study(model, {"matrix_noise": NOISES}, numerics={"steps": steps, "tolerance": 2e-2}).run()
    small = model.replace(initial_overlap=0.3, times=np.linspace(0.0, 6.0, 13))
    size, seeds = (40, 4) if quick else (100, 32)
    points = Study(small, {"matrix_noise": [0.2, 0.4, 0.6]}, sizes=[size], seeds=seeds).run()
    return {"": lines, "experiment": points}


def draw_escape(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, points = data[""], data["experiment"]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    for i, noise in enumerate(SHOWN):
        axes[0].plot(
            lines.time, lines.sel(matrix_noise=noise).overlap_theory, color=COLOURS[i], label=rf"$\Delta_2$ = {noise}"
        )
    axes[0].set(xlabel=label("time", "t"), ylabel=label("overlap", "m"), yscale="log", ylim=(0.008, 1.0))
    axes[0].set_title("from $m_0 = 0.01$")
    axes[0].legend(fontsize=8)
    level = 0.5 * lines.likelihood_passing_theory
    times = [
        _crossing(lines.time.values, lines.overlap_theory.sel(matrix_noise=n).values, float(level.sel(matrix_noise=n)))
        for n in NOISES
    ]
    axes[1].plot(NOISES, times, "o-", color=COLOURS[0], markersize=4, label="half of its final overlap is reached")
    fine = np.linspace(0.1, 0.49, 200)
    theta, sigma = 1 / fine, np.sqrt(1 / fine + 2)
    axes[1].plot(fine, np.log(1 / 0.01) * theta / (theta - sigma) ** 2, color=COLOURS[1], linestyle="--",
                 label=r"$\ln(1/m_0)\,\theta/(\theta-\sigma)^2$, for $m_0 \to 0$")  # fmt: skip
    axes[1].axvline(TRIVIAL, color="grey", linestyle=":", linewidth=1)
    axes[1].axvline(float(lines.threshold_theory[0]), color=COLOURS[2], linestyle=":", linewidth=1)
    axes[1].text(TRIVIAL - 0.006, 1.2, "no spurious\nminima to\nthe left", fontsize=8, ha="right")
    axes[1].text(
        float(lines.threshold_theory[0]) + 0.008, 90, "flow fails\nto the right", fontsize=8, color=COLOURS[2], va="top"
    )
    axes[1].set(
        xlabel=label("matrix_noise", r"\Delta_2"), ylabel="escape time", xlim=(0.1, 0.65), ylim=(1, 400), yscale="log"
    )
    axes[1].set_title("slower, also without spurious minima")
    axes[1].legend(fontsize=7, loc="upper left")
    size = int(points["size"][-1])
    for i, noise in enumerate(points.matrix_noise.values):
        at = points.sel(matrix_noise=noise, size=size)
        runs = at.overlap_simulated
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axes[2].plot(points.time, at.overlap_theory, color=COLOURS[i], label=rf"$\Delta_2$ = {noise:g}")
        axes[2].errorbar(points.time, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8)
    axes[2].set(xlabel=label("time", "t"), ylabel=label("overlap", "m"), ylim=(0, 1))
    axes[2].set_title(f"from $m_0 = 0.3$: N → ∞ (lines), N = {size} (points)")
    axes[2].legend(fontsize=8)
    figure.suptitle(
        "Gradient flow in a spiked matrix-tensor model leaves marginal minima for the signal (Δ₃ = 1)", fontsize=11
    )
    return figure


def _crossing(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """The first time at which a curve reaches a level, NaN if it does not."""
    above = np.flatnonzero(values >= level)
    if not level or not len(above) or above[0] == 0:
        return np.nan
    i = above[0]
    return float(np.interp(level, values[i - 1 : i + 1], times[i - 1 : i + 1]))


RECIPES = {
    "gradient-flow-escape": Recipe(
        escape,
        draw_escape,
        sentence="Gradient flow escapes from marginal minima in a time that diverges at a closed threshold.",
    )
}
