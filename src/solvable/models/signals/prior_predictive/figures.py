"""Outputs of random networks: tails, fourth moments, the deep and wide limit, and variance against depth."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, log_axis
from solvable.study import Study

from .model import PriorPredictive

DEPTHS = (1, 2, 4)
NETWORKS: dict[str, dict[str, Any]] = {
    "2 × 5": {"width": 5, "depth": 2},
    **{f"{h} × 10": {"depth": h} for h in DEPTHS},
    "5 × 25": {"width": 25, "depth": 5},
    "4 × 10 linear": {"activation": "linear"},
    **{f"{h} × 10 fixed": {"depth": h, "scaling": "fixed"} for h in DEPTHS},
}
"""Hidden layers × units; ReLU and an informed prior unless the name says otherwise."""
JOINT = {width: width // 5 for width in (25, 50, 100, 200)}
"""Widths and depths with 5Σ1/d = 1."""


def laws(quick: bool) -> dict[str, Any]:
    import xarray as xr

    size, seeds = (200, 2) if quick else (10_000, 24)
    model = PriorPredictive(outputs=np.concatenate([[0.02, 0.1], np.arange(0.3, 8.1, 0.45)]))
    arms = dict(list(NETWORKS.items())[:2]) if quick else NETWORKS
    joint = dict(list(JOINT.items())[: 1 if quick else None])
    table = xr.Dataset(coords={"width": list(joint), "output": np.geomspace(0.02, 12.0, 60)})
    table["depth"] = ("width", list(joint.values()))
    for name in ("tail", "limit_tail"):
        table[name] = (("width", "output"), np.full((len(joint), 60), np.nan))
    table["fourth_moment"] = ("width", np.full(len(joint), np.nan))
    for width, depth in joint.items():
        outcome = PriorPredictive(width=width, depth=depth, outputs=table.output.values).theory()
        for name in ("tail", "limit_tail", "fourth_moment"):
            table[name].loc[{"width": width}] = np.asarray(outcome[name])
    return {"": Study(model, arms=arms, sizes=[size], seeds=seeds).run(), "limit": table}


def moment(widths: np.ndarray, depth: np.ndarray, extra: float) -> np.ndarray:
    """Kurtosis of networks of equal layers."""
    return 3 * (1 + extra / widths) ** depth


def draw_laws(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt
    from scipy.special import erfc

    runs, joint = data[""], data["limit"]
    there = [str(arm) for arm in runs.arm.values]
    figure, axes = plt.subplots(2, 2, figsize=(10.0, 7.4))
    (tails, fourth), (limit, variance) = axes
    for i, arm in enumerate(("2 × 5", "4 × 10", "5 × 25", "4 × 10 linear")):
        if arm in there:
            at = runs.sel(arm=arm)
            seen = at.tail_simulated.isel(size=-1)
            tails.plot(runs.output, at.tail_theory, color=COLOURS[i], label=arm)
            _points(tails, runs.output, seen, i)
    tails.plot(runs.output, erfc(runs.output / np.sqrt(2)), "k:", label="infinite width: normal")
    tails.set(
        yscale="log",
        ylim=(1e-4, 1),
        xlabel="size of the output $x$",
        ylabel="probability of a larger one, $P(|f| > x)$",
    )
    tails.set_title("tails of networks, hidden layers × units")
    tails.legend(loc="lower left")
    depth = np.linspace(1, 8, 60)
    for i, (words, width, extra) in enumerate((("5 units", 5, 5), ("10 units", 10, 5), ("10 units, linear", 10, 2))):
        fourth.plot(depth, moment(np.asarray(width), depth, extra), color=COLOURS[i], label=words)
    for i, arm, h in ((0, "2 × 5", 2), *((1, f"{h} × 10", h) for h in DEPTHS), (2, "4 × 10 linear", 4)):
        if arm in there:
            _points(fourth, [h], runs.fourth_moment_simulated.sel(arm=arm).isel(size=-1).expand_dims("h"), i)
    fourth.axhline(3, color="0.5", linestyle=":", linewidth=1)
    fourth.set(yscale="log", xlabel="hidden layers $H$", ylabel="fourth moment over squared variance")
    fourth.set_title("lines: 3 Π(1 + 5/width); linear: 3 Π(1 + 2/width)")
    fourth.legend(loc="upper left")
    for i, width in enumerate(joint.width.values):
        at = joint.sel(width=width)
        limit.plot(joint.output, at["tail"] - at.limit_tail, color=COLOURS[i], label=f"{int(at.depth)} × {width}")
    log_axis(limit.xaxis)
    limit.axhline(0, color="0.5", linestyle=":", linewidth=1)
    limit.set(xlabel="size of the output $x$", ylabel="$P(|f| > x)$ minus its limit")
    limit.set_title("towards a normal with log-normal variance, 5 layers/width = 1")
    limit.legend(title="hidden layers × units", title_fontsize=9)
    for i, (words, ending, growth) in enumerate((("informed by depth and width", "", 1), ("fixed", " fixed", 5))):
        variance.plot(depth[depth <= 4], growth ** depth[depth <= 4], color=COLOURS[i], label=words)
        for h in DEPTHS:
            if f"{h} × 10{ending}" in there:
                at = runs.second_moment_simulated.sel(arm=f"{h} × 10{ending}").isel(size=-1)
                _points(variance, [h], at.expand_dims("h"), i)
    variance.set(yscale="log", xlabel="hidden layers $H$", ylabel="variance of the output", xticks=DEPTHS)
    variance.set_title("prior on the weights, 10 units per layer")
    variance.legend(loc="upper left")
    figure.suptitle("Outputs of random networks: exact law (lines) and drawn networks (points)", fontsize=11)
    return figure


def _points(axis: Any, x: Any, runs: Any, i: int) -> None:
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axis.errorbar(x, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8, linestyle="")


RECIPES = {
    "prior-predictive-laws": Recipe(
        laws,
        draw_laws,
        sentence="Outputs of random networks have heavier tails the deeper and the narrower they are; a prior informed by both "
        "keeps their variance.",
    )
}
