"""Correlations of tokens in shaped transformers against the paths of their limit, branch weights, and the approach in width."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from solvable.contract.axes import QUANTILES
from solvable.lab.agreement import quantile_errors
from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis

from .model import ShapedTransformer

BLOCKS = {"transformer": {}, "feed-forward, strongly bent": {"block": "mlp", "negative_slope": -2.0}}
NEARLY_EQUAL = 0.9
"""Tokens whose correlation exceeds this in absolute value count as nearly parallel."""


def _networks(model: ShapedTransformer, size: int, number: int, batch: int = 500) -> dict[str, np.ndarray]:
    keys = jax.random.split(model.key(size, 0), number)
    parts = [simulate_batch(model, {}, keys[i : i + batch], size) for i in range(0, number, batch)]
    return {name: np.concatenate([np.asarray(p[name]) for p in parts]) for name in ("correlation", "length", "stopped")}


def _share(values: np.ndarray) -> tuple[float, float]:
    """The share of nearly parallel pairs and its standard error."""
    p = float(np.mean(np.abs(values) > NEARLY_EQUAL))
    return p, float(np.sqrt(max(p * (1 - p), 1 / len(values)) / len(values)))


def _along_depth(quick: bool) -> Any:
    """Quantiles at all depths, of paths and networks; correlations of networks that are not shaped."""
    import xarray as xr

    draws, number, size = (500, 40, 40) if quick else (10_000, 1000, 200)
    model = ShapedTransformer(points=8, branch=0.5, depth=0.5)
    theory, runs = model.theory({"draws": draws}), _networks(model, size, number)
    layer = model.coordinates()["layer"]
    table = xr.Dataset(coords={"layer": layer, "quantile": list(QUANTILES)}, attrs={"size": size, "networks": number})
    for name in ("correlation", "length"):
        drawn, seen = np.asarray(theory[name]), runs[name]
        table[name] = (("layer", "quantile"), np.quantile(drawn, QUANTILES, axis=1).T)
        table[f"{name}_simulated"] = (("layer", "quantile"), np.quantile(seen, QUANTILES, axis=0).T)
        errors = np.stack([quantile_errors(d, number) for d in drawn])
        table[f"{name}_error"] = (("layer", "quantile"), errors)
    table["stopped"] = ("layer", np.asarray(theory["stopped"]).mean(1))
    table["stopped_simulated"] = ("layer", runs["stopped"].mean(0))
    layers = round(0.5 * size)
    plain = jax.jit(jax.vmap(lambda key: model.network(key, size, layers, layers, shaped=False)["correlation"]))
    unshaped = np.asarray(plain(jax.random.split(jax.random.key(0), 20 if quick else 100)))
    table["unshaped"] = ("layer", np.median(unshaped, axis=0))
    table["unshaped_lowest"] = ("layer", np.quantile(unshaped, 0.1, axis=0))
    return table


def _over_branches(quick: bool) -> Any:
    """Share of nearly parallel tokens at fixed depth against the weight of branches; the last has no skip."""
    import xarray as xr

    branches = np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.0])
    draws, number, size = (100, 40, 40) if quick else (2500, 400, 100)
    table = xr.Dataset(coords={"branch": branches}, attrs={"size": size, "networks": number})
    model = ShapedTransformer(points=1, depth=1.0)
    drawn = np.asarray(model.replace(branch=branches).theory({"draws": draws}).correlation)
    table["share"] = ("branch", np.array([_share(x)[0] for x in drawn[:, 0]]))
    seen = np.array([_share(_networks(model.replace(branch=b), size, number)["correlation"]) for b in branches])
    table["share_simulated"], table["share_error"] = ("branch", seen[:, 0]), ("branch", seen[:, 1])
    return table


def _over_widths(quick: bool) -> Any:
    """Mean correlation of networks minus that of paths; all widths are compared with the same paths."""
    import xarray as xr

    sizes, number, draws = ([8, 32], 60, 500) if quick else ([8, 32, 128], 6000, 30_000)
    table = xr.Dataset(coords={"block": list(BLOCKS), "size": sizes}, attrs={"networks": number})
    gaps, noise = np.zeros((2, len(BLOCKS), len(sizes)))
    for i, values in enumerate(BLOCKS.values()):
        model = ShapedTransformer.create(points=1, depth=0.5, branch=0.5, **values)
        drawn = np.asarray(model.theory({"draws": draws}).correlation)[0]
        for j, n in enumerate(sizes):
            runs = _networks(model, n, number)["correlation"]
            gaps[i, j] = runs.mean() - drawn.mean()
            noise[i, j] = np.hypot(runs.std() / np.sqrt(number), drawn.std() / np.sqrt(draws))
    table["gap"], table["gap_error"] = (("block", "size"), gaps), (("block", "size"), noise)
    return table


def limit(quick: bool) -> dict[str, Any]:
    return {"": _along_depth(quick), "branches": _over_branches(quick), "widths": _over_widths(quick)}


def draw_limit(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, weights, approach = data[""], data["branches"], data["widths"]
    figure, axes = plt.subplots(1, 4, figsize=(16.5, 4.2), layout="constrained")
    for axis, name, words in ((axes[0], "correlation", r"\rho_{12}"), (axes[1], "length", "V_{11}")):
        theory, seen, error = (table[f"{name}{end}"] for end in ("", "_simulated", "_error"))
        for low, high, strength in ((0, 4, 0.12), (1, 3, 0.2)):
            axis.fill_between(
                table.layer, theory[:, low], theory[:, high], color=COLOURS[0], alpha=strength, linewidth=0
            )
        for i in range(5):
            axis.plot(table.layer, theory[:, i], color=COLOURS[0], linewidth=1.8 if i == 2 else 0.9,
                      label="paths of the limit" if i == 2 else None)  # fmt: skip
            axis.errorbar(table.layer, seen[:, i], error[:, i], fmt="o", color=COLOURS[1], markersize=3.5,
                          label=f"networks, n = {table.attrs['size']}" if i == 2 else None)  # fmt: skip
        axis.set(xlabel=label("layer, over the depth", "l/L"), ylabel=label(f"{name} of tokens", words))
    axes[0].plot(table.layer, table.unshaped, "x--", color="0.35", markersize=5, label="networks, not shaped (median)")
    axes[0].set_ylim(-1.02, 1.06)
    axes[0].legend(loc="lower left", fontsize=7.5)
    axes[0].set_title(r"quantiles 10, 25, 50, 75, 90 %; $\gamma^2 = 0.5$, $L = n/2$", fontsize=9)
    axes[1].set_yscale("log")
    axes[1].set_title("the same of the length of a token", fontsize=9)
    axis = axes[2]
    axis.plot(weights.branch, weights.share, color=COLOURS[0], label="paths of the limit")
    axis.errorbar(weights.branch, weights.share_simulated, weights.share_error, fmt="o", color=COLOURS[1], markersize=4,
                  label=f"networks, n = {weights.attrs['size']}")  # fmt: skip
    log_axis(axis.xaxis)
    axis.set(
        xlabel=label("weight of a branch, squared,", r"\gamma^2"),
        ylabel=r"share with $|\rho_{12}| > 0.9$",
        ylim=(0, None),
    )
    axis.set_title("nearly parallel tokens after $L = n$ blocks (1: no skip)", fontsize=9)
    axis.legend(fontsize=8)
    axis = axes[3]
    for i, block in enumerate(approach.block.values):
        here = approach.sel(block=block)
        axis.errorbar(approach["size"] * 1.03**i, here.gap, here.gap_error, fmt=MARKERS[i], color=COLOURS[i + 1], markersize=4,
                      label=str(block))  # fmt: skip
        weight = 1 / here.gap_error**2
        fit = float((here.gap * weight / np.sqrt(here["size"])).sum() / (weight / here["size"]).sum())
        widths = np.geomspace(float(approach["size"][0]), float(approach["size"][-1]), 40)
        axis.plot(widths, fit / np.sqrt(widths), "--", color=COLOURS[i + 1], linewidth=1,
                  label=r"$\propto n^{-1/2}$" if i == 0 else None)  # fmt: skip
    axis.axhline(0, color="0.6", linewidth=0.8)
    log_axis(axis.xaxis)
    axis.set(xlabel=label("width", "n"), ylabel=r"mean $\rho_{12}$, networks minus limit")
    axis.set_title(f"approach to the limit, $L = n/2$, {approach.attrs['networks']} networks", fontsize=9)
    axis.legend(fontsize=7.5)
    return figure


RECIPES = {
    "shaped-transformer-limit": Recipe(
        limit,
        draw_limit,
        sentence="Correlations of tokens in deep transformers at initialisation follow the paths of a stochastic equation.",
    )
}
