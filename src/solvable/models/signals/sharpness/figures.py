"""Sharpness against training time, width and learning rate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .model import Sharpness, trained

SCALINGS = {"mup": "μP: output / (γ₀N)", "ntk": "NTK: output / (γ₀√N)", "standard": "standard"}
RATES = 2.0 ** np.arange(-13, 2.01, 0.5)


def widths(quick: bool) -> dict[str, Any]:
    sizes, seeds = ([64, 128], 4) if quick else ([64, 256, 1024], 16)
    model = Sharpness(steps=60, every=5)
    runs = Study(model, {"scaling": ["mup", "ntk"]}, sizes=sizes, seeds=seeds).run()
    rich = Study(model.replace(every=60), {"richness": np.geomspace(0.03, 3.0, 13)}).run()
    return {
        "": runs,
        "richness": rich,
        "rates": losses(model, [32, 128] if quick else [32, 128, 512], 4 if quick else 8),
    }


def losses(model: Sharpness, sizes: list[int], seeds: int) -> Any:
    """Loss after 20 steps by scaling, width, rate and seed; *standard*: last layer from N(0, 1/N), one rate for all weights."""
    import xarray as xr

    x, y = jnp.asarray(model.given_inputs, jnp.float32), jnp.asarray(model.targets, jnp.float32)
    keys = jax.random.split(jax.random.key(0), seeds)
    found = np.full((len(SCALINGS), len(sizes), len(RATES), seeds), np.nan)
    for j, size in enumerate(sizes):

        @jax.jit
        def loss(gamma: Any, rate: Any, last: Any, size: int = size) -> Any:
            def one(key: Any) -> Any:
                return trained(key, size, x, y, gamma, rate, steps=20, every=20, last=last, sharpness=False)[
                    "train_loss"
                ]

            return jax.vmap(one)(keys)[:, -1]

        for i, scaling in enumerate(SCALINGS):
            gamma = jnp.asarray(size**0.5 if scaling == "mup" else 1.0, jnp.float32)
            last = jnp.asarray(size if scaling == "standard" else 1.0, jnp.float32)
            for k, rate in enumerate(RATES):
                found[i, j, k] = loss(gamma, jnp.asarray(rate, jnp.float32), last)
    dims = ("scaling", "size", "rate", "seed")
    coordinates = {"scaling": list(SCALINGS), "size": sizes, "rate": RATES}
    return xr.Dataset({"train_loss": (dims, found)}, coordinates)


def best_rates(data: Any) -> Any:
    """log₂ of the rate with the smallest loss, of every seed."""
    return np.log2(data.rate[data.train_loss.fillna(np.inf).argmin("rate")])


def growth(data: dict[str, Any]) -> Any:
    """Increase of the sharpness from the start to the end, of every seed."""
    sharp = data[""].sharpness_simulated
    return sharp.isel(time=-1) - sharp.isel(time=0)


def draw_widths(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs, rich, rates = data[""], data["richness"], data["rates"]
    figure, axes = plt.subplots(1, 4, figsize=(16.0, 3.9))
    for axis, scaling in zip(axes, ("mup", "ntk"), strict=False):
        at = runs.sel(scaling=scaling)
        # The theory does not depend on the width; it has one entry for each.
        line = at.sharpness_theory.isel(size=0) if "size" in at.sharpness_theory.dims else at.sharpness_theory
        axis.plot(line.time, line, color="black", label="N → ∞")
        for i, size in enumerate(at["size"].values):
            points = at.sharpness_simulated.sel(size=size)
            error = points.std("seed", ddof=1) / np.sqrt(points.sizes["seed"])
            axis.errorbar(points.time + 0.6 * (i - 1), points.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i],
                          markersize=3.8, label=f"N = {size}")  # fmt: skip
        axis.set(xlabel=label("steps", "t"), ylabel=label("sharpness", r"\Lambda"), title=SCALINGS[scaling])
        axis.legend()
    low, high = (f(a.get_ylim()[k] for a in axes[:2]) for f, k in ((min, 0), (max, 1)))
    axes[0].set_ylim(low, high)
    axes[1].set_ylim(low, high)
    change = growth(data)
    for i, scaling in enumerate(("mup", "ntk")):
        at = change.sel(scaling=scaling)
        error = at.std("seed", ddof=1) / np.sqrt(at.sizes["seed"])
        axes[2].errorbar(
            at["size"], at.mean("seed"), error, fmt=MARKERS[i] + LINES[i], color=COLOURS[i], label=SCALINGS[scaling]
        )
    sizes = runs["size"].values
    axes[2].plot(
        sizes, float(change.sel(scaling="ntk").isel(size=0).mean()) * sizes[0] / sizes, ":", color="grey", label="1/N"
    )
    log_axis(axes[2].xaxis)
    log_axis(axes[2].yaxis)
    gain = rich.sharpness_theory.isel(time=-1) - rich.sharpness_theory.isel(time=0)
    lazy = float(gain.sel(richness=0.1, method="nearest"))
    axes[2].set(xlabel=label("width", "N"), ylabel="growth of the sharpness in 60 steps",
                title=f"growth at richness γ₀ = 1 (μP at γ₀ ≈ 0.1: {lazy:.3f})")  # fmt: skip
    axes[2].legend()
    for i, scaling in enumerate(SCALINGS):
        for j, size in enumerate(rates["size"].values):
            loss = rates.train_loss.sel(scaling=scaling, size=size)
            mean = loss.mean("seed", skipna=False)
            axes[3].plot(rates.rate, mean, LINES[j], color=COLOURS[i], label=f"{SCALINGS[scaling]}, N = {size}")
    log_axis(axes[3].xaxis)
    log_axis(axes[3].yaxis)
    axes[3].set(
        xlabel=label("rate", r"\eta"), ylabel="training loss after 20 steps", ylim=(1e-6, 3), title="learning rates"
    )
    axes[3].legend(fontsize=6.5, loc="lower left")
    figure.suptitle(
        "Sharpness in the course of training: one curve at all widths under μP, no growth under NTK scaling",
        fontsize=11,
    )
    return figure


RECIPES = {
    "sharpness-widths": Recipe(
        widths,
        draw_widths,
        sentence="Top Hessian eigenvalue during training at several widths, its growth with width, and learning rates.",
    )
}
