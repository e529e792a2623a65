"""Momentum makes descent faster, but does not move the threshold at which it finds the signal."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label
from solvable.study import Study

from .model import Momentum

ARMS = {
    "gradient descent": {"algorithm": "descent"},
    "heavy ball, β = 0.9": {"algorithm": "heavy_ball", "momentum": 0.9},
    "Nesterov": {"algorithm": "nesterov"},
    "gradient descent, rate α/(1-β)": {"algorithm": "descent", "rate": 0.04},
}


def speed(quick: bool) -> dict[str, Any]:
    model = Momentum(rate=0.004, tensor_noise=1.0, initial_overlap=0.3, matrix_noise=0.4, steps=300, every=5)
    lines = Study(model, arms=ARMS).run()
    size, seeds = (40, 4) if quick else (100, 24)
    points = Study(model.replace(every=25), arms=ARMS, sizes=[size], seeds=seeds).run()
    steps, noises = (100, 5) if quick else (600, 12)
    late = model.replace(initial_overlap=1e-8, steps=steps, every=steps // 2)
    recovery = Study(late, {"matrix_noise": np.linspace(0.25, 0.8, noises)}, arms=ARMS).run()
    return {"": lines, "experiment": points, "recovery": recovery}


def soft_threshold(tensor_noise: float, ridge: float) -> float:
    """Δ₂ up to which marginal minima are unstable to the signal, for p = 3: their norm is r = 1 + 2σ/ω, σ² = Q''(r) = 1/Δ₂²."""
    low, high = 0.0, 1.0
    for _ in range(60):
        noise = 0.5 * (low + high)
        norm = 1 + 2 / (noise * ridge)
        stable = 1 / noise**2 > 1 / noise + 2 * norm / tensor_noise
        low, high = (noise, high) if stable else (low, noise)
    return low


def _loss(data: Any, source: str) -> Any:
    return data[f"loss_{source}"]


def _cosine(data: Any, source: str) -> Any:
    return data[f"overlap_{source}"] / np.sqrt(data[f"norm_{source}"])


def _upright(axis: Any) -> Any:
    """Coordinates in data units horizontally and as a fraction of the height vertically."""
    return axis.get_xaxis_transform()


def draw_speed(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, points, recovery = data[""], data["experiment"], data["recovery"]
    size = int(points["size"][-1])
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    for i, arm in enumerate(ARMS):
        at, runs = lines.sel(arm=arm), points.sel(arm=arm, size=size)
        for axis, view in zip(axes, (_loss, _cosine), strict=False):
            axis.plot(lines.step, view(at, "theory"), LINES[i], color=COLOURS[i], label=arm)
            seen = view(runs, "simulated")
            error = seen.std("seed", ddof=1) / np.sqrt(seen.sizes["seed"])
            axis.errorbar(points.step, seen.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.2)
        small = _cosine(recovery.sel(arm=arm), "theory")
        grown = np.log(small.isel(step=-1) / small.isel(step=-2))
        axes[2].plot(recovery.matrix_noise, grown, LINES[i], color=COLOURS[i], marker=MARKERS[i], markersize=3.2)
    axes[0].set(xlabel=label("step", "t"), ylabel="loss per dimension")
    axes[0].set_title(f"$m_0 = 0.3$: N → ∞ (lines), N = {size} (points)")
    axes[0].legend(fontsize=7)
    axes[1].set(xlabel=label("step", "t"), ylabel="cosine with the signal", ylim=(0, 1))
    axes[1].set_title(r"the same, angle to the signal ($\Delta_2 = 0.4$)")
    critical = soft_threshold(1.0, 10.0)
    axes[2].axvline(critical, color="grey", linestyle=":")
    axes[2].text(
        critical + 0.01, 0.9, f"threshold of marginal\nminima, {critical:.3f}", fontsize=8, transform=_upright(axes[2])
    )
    half, last = (int(t) for t in recovery.step[-2:])
    axes[2].set(
        xlabel=label("matrix_noise", r"\Delta_2"), ylabel=f"growth of ln m, steps {half} to {last}", yscale="symlog"
    )
    axes[2].set_title("a vanishing overlap stops growing at the same Δ₂")
    figure.suptitle(
        "Momentum acts as a larger step: faster, with the same result (α = 0.004, ω = 10, Δ₃ = 1)", fontsize=11
    )
    return figure


RECIPES = {
    "momentum-speed": Recipe(
        speed,
        draw_speed,
        sentence="Heavy ball and Nesterov's method descend faster than gradient descent, but find the signal no more often.",
    )
}
