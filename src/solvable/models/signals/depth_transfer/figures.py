"""The limit of large width and depth of residual networks, and the learning rate that trains them best."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .digits import losses
from .model import DepthTransfer

EXPONENTS = {0.0: "α = 0: unscaled branches", 0.5: "α = ½: depth-μP", 1.0: "α = 1: CompleteP"}


def limit(quick: bool) -> dict[str, Any]:
    sizes, seeds = ([50, 100], 4) if quick else ([50, 100, 200, 400], 16)
    steps, most = (6, 8) if quick else (12, 128)
    model = DepthTransfer(depth=4, steps=steps, rate=0.05)
    networks = Study(model, {"richness": [0.1, 1.0, 3.0]}, sizes=sizes, seeds=seeds).run()
    tanh = Study(
        model.replace(activation="tanh", rate=0.2), {"richness": [1.0, 3.0]}, sizes=sizes[-1:], seeds=seeds
    ).run()
    depths = [int(d) for d in 2 ** np.arange(1, np.log2(most) + 1)]
    deep = Study(model.replace(steps=6), {"depth": depths, "branch_exponent": [0.5, 1.0]}).run()
    return {"": networks, "tanh": tanh, "depths": deep}


def in_the_limit(values: Any) -> Any:
    """The limit of infinite depth from the three largest depths, each twice the last: errors 1/L and 1/L² cancel."""
    small, middle, large = (values.isel(depth=i) for i in (-3, -2, -1))
    return (8 * large - 6 * middle + small) / 3


def draw_limit(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16.0, 3.9))
    for axis, part, name in ((axes[0], "", "output"), (axes[1], "", "tangent_kernel"), (axes[2], "tanh", "output")):
        runs = data[part]
        size = int(runs["size"][-1])
        for i, richness in enumerate(runs.richness.values):
            at = runs.sel(richness=richness)
            line, points = at[f"{name}_theory"], at[f"{name}_simulated"].sel(size=size)
            if name == "output":
                line, points = line.isel(pattern=0), points.isel(pattern=0)
            error = points.std("seed", ddof=1) / np.sqrt(points.sizes["seed"])
            j = i + (part == "tanh")
            axis.plot(line.time, line, color=COLOURS[j], label=f"richness $\\gamma_0$ = {richness:g}")
            axis.errorbar(points.time, points.mean("seed"), error, fmt=MARKERS[j], color=COLOURS[j], markersize=3.8)
        axis.set_xlabel(label("steps", "t"))
        axis.legend()
    size = int(data[""]["size"][-1])
    axes[0].set(ylabel=label("output", "f"), title=f"linear, L = 4: N → ∞ (lines), N = {size} (points)")
    axes[1].set(ylabel=label("tangent kernel", r"\Theta"), title="rich networks move their kernel")
    axes[2].set(ylabel=label("output", "f"), title=f"tanh, L = 4: sampled theory, N = {size}")
    deep = data["depths"]
    axis = axes[3]
    for i, exponent in enumerate(deep.branch_exponent.values):
        values = deep.output_theory.sel(branch_exponent=exponent).isel(pattern=0)
        end = in_the_limit(values)
        for j, time in enumerate((1, 6)):
            gap = np.abs(values - end).sel(time=time).isel(depth=slice(None, -2))
            axis.plot(gap.depth, gap, MARKERS[j] + LINES[j], color=COLOURS[i + 3], markersize=4,
                      label=f"branches 1/{'√L' if exponent == 0.5 else 'L'}, after {time}")  # fmt: skip
    axis.plot(deep.depth[:-2], 0.3 / deep.depth[:-2], color="grey", linewidth=1, linestyle=":", label="1/L")
    log_axis(axis.xaxis)
    log_axis(axis.yaxis)
    axis.set(
        xlabel=label("depth", "L"),
        ylabel="distance of the output from L → ∞",
        title="the limit of depth, after 1 and 6 steps",
    )
    axis.legend()
    figure.suptitle(
        "Residual networks while they are trained, in the limit of large width and of large depth", fontsize=11
    )
    return figure


def rates(quick: bool) -> dict[str, Any]:
    depths = [2, 4] if quick else [2, 4, 8, 16, 32]
    grid = np.geomspace(1e-3, 3.0, 24 if quick else 91)
    model = DepthTransfer(patterns=3, correlation=0.5, steps=5, richness=1.0)
    over = {"branch_exponent": list(EXPONENTS), "depth": depths}
    lines = Study(model, over | {"rate": grid}).run()
    few = {**over, "depth": [depths[0], 8 if not quick else 4], "rate": np.geomspace(0.02, 0.6, 8)}
    points = Study(model, few, sizes=[100 if quick else 300], seeds=4 if quick else 8).run()
    keep = ["train_loss_theory", "train_loss_simulated"]
    return {"": lines[keep[:1]].isel(time=[-1]), "networks": points[keep].isel(time=[-1])}


def best_rates(data: dict[str, Any]) -> Any:
    """The rate with the smallest loss in the limit of large width; NaN where it lies at an end of the grid."""
    loss = data[""].isel(time=-1).train_loss_theory
    best = loss.fillna(np.inf).argmin("rate")
    inside = (best > 0) & (best < loss.sizes["rate"] - 1)
    return loss.rate[best].where(inside)


def draw_rates(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, points = data[""].isel(time=-1), data["networks"].isel(time=-1)
    size, best = int(points["size"][-1]), best_rates(data)
    figure, axes = plt.subplots(1, 4, figsize=(16.0, 3.9))
    for axis, (exponent, words) in zip(axes, EXPONENTS.items(), strict=False):
        for i, depth in enumerate(lines.depth.values):
            top = float(best.sel(branch_exponent=exponent, depth=depth))
            if not np.isfinite(top):
                continue
            # Beyond the best rate descent overshoots, soon chaotically; the lines end there.
            loss = lines.train_loss_theory.sel(branch_exponent=exponent, depth=depth)
            loss = loss.where(loss.rate < 1.5 * top)
            axis.plot(loss.rate, loss, color=COLOURS[i], label=f"L = {depth}")
            if depth in points.depth:
                runs = points.train_loss_simulated.sel(branch_exponent=exponent, depth=depth, size=size)
                runs = runs.where(runs.rate < 1.5 * top)
                error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
                axis.errorbar(runs.rate, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8)
        log_axis(axis.xaxis)
        axis.set(xlabel=label("rate", r"\eta"), xlim=(1e-3, 1), ylim=(0, 0.55), title=words)
        axis.legend(title="depth")
    axes[0].set_ylabel("training loss after 5 steps")
    for i, (exponent, words) in enumerate(EXPONENTS.items()):
        found = best.sel(branch_exponent=exponent)
        axes[3].plot(found.depth, found, MARKERS[i] + LINES[i], color=COLOURS[i + 3], label=words)
    log_axis(axes[3].xaxis)
    log_axis(axes[3].yaxis)
    axes[3].set(xlabel=label("depth", "L"), ylabel="best learning rate", title="the best rate against depth")
    axes[3].legend()
    figure.suptitle(
        f"The best learning rate of infinitely wide residual networks (lines; N = {size}: points) stays put if branches "
        "shrink with depth",
        fontsize=11,
    )
    return figure


def digits(quick: bool) -> dict[str, Any]:
    grid = 2.0 ** np.arange(-7.0, 5.0, 3.0 if quick else 1.0)
    shape = {"width": 16, "steps": 4, "images": 50} if quick else {"width": 48, "steps": 25, "images": 300}
    return {"": losses([2, 4] if quick else [2, 8, 32], list(EXPONENTS), grid, 2 if quick else 8, **shape)}


def draw_digits(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8), sharey=True)
    for axis, (exponent, words) in zip(axes, EXPONENTS.items(), strict=True):
        for i, depth in enumerate(runs.depth.values):
            loss = np.log10(runs.loss.sel(exponent=exponent, depth=depth))
            error = loss.std("seed", ddof=1) / np.sqrt(loss.sizes["seed"])
            axis.errorbar(loss.rate, loss.mean("seed"), error, fmt=MARKERS[i] + "-", color=COLOURS[i], markersize=3.8,
                          label=f"L = {depth}")  # fmt: skip
        log_axis(axis.xaxis)
        axis.set(xlabel=label("rate", r"\eta"), title=words)
        axis.legend(title="depth")
    axes[0].set_ylabel("log₁₀ of the training loss")
    figure.suptitle(
        f"Residual networks on digits: loss after {runs.attrs['steps']} steps of Adam, N = {runs.attrs['width']}",
        fontsize=11,
    )
    return figure


RECIPES = {
    "depth-transfer-limit": Recipe(
        limit,
        draw_limit,
        sentence="Output and tangent kernel of residual networks against their mean-field limit, and convergence in depth.",
    ),
    "depth-transfer-rates": Recipe(
        rates,
        draw_rates,
        sentence="Loss after five steps against the learning rate: the optimum stays where it is if branches shrink with depth.",
    ),
    "depth-transfer-digits": Recipe(
        digits,
        draw_digits,
        sentence="Training loss of residual networks on digits against the learning rate, by depth and scale of the branches.",
    ),
}
