"""Accuracy on digits by depth and initial means, with the line of six depth scales."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label

from .model import BinaryDigits

NAMES = ("accuracy", "train_accuracy", "binarised_accuracy")


def trained(
    depths: Any, variances: Any, size: int, seeds: int, steps: int, rate: float = 0.003
) -> dict[str, np.ndarray]:
    """Accuracies by depth, variance and seed, with one compiled program per depth."""
    out: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for depth in depths:
        model = BinaryDigits(depth=int(depth), steps=steps, rate=rate)
        keys = jnp.stack([model.replace(variance=v).key(size, s) for v in variances for s in range(seeds)])
        found = simulate_batch(model, {"variance": np.repeat(variances, seeds)}, keys, size)
        for name in NAMES:
            out[name].append(np.asarray(found[name]).reshape(len(variances), seeds))
    return {name: np.stack(v) for name, v in out.items()}


def depths_by_means(quick: bool) -> dict[str, Any]:
    import xarray as xr

    depths = [2, 4] if quick else [2, 4, 8, 16, 32]
    variances = np.array([0.3, 0.95]) if quick else np.array([0.1, 0.4, 0.65, 0.8, 0.9, 0.96, 0.99])
    size, seeds, steps = (16, 2, 10) if quick else (32, 2, 400)
    found = trained(depths, variances, size, seeds, steps)
    table = xr.Dataset(
        {name: (("depth", "variance", "seed"), v) for name, v in found.items()},
        coords={"depth": depths, "variance": variances},
        attrs={"size": size, "steps": steps},
    )
    return {"": table}


def draw_depths_by_means(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained", sharey=True)
    # Logarithmic axes of depth and depth scale, where a fixed number of depth scales is a straight line.
    rows, columns = np.log2(table.depth.values), np.log2(-1 / np.log(table.variance.values))
    fine = np.linspace(columns[0], columns[-1], 2)
    line = fine + np.log2(6)
    picture = None
    for axis, name, words in ((axes[0], "accuracy", "surrogate"), (axes[1], "binarised_accuracy", "binarised")):
        mean = table[name].mean("seed")
        picture = axis.pcolormesh(columns, rows, mean, vmin=0.1, vmax=1.0, shading="nearest", cmap="viridis")
        axis.plot(fine, line, color="white", linewidth=2, label=r"$L = 6\,\xi_c = -6/\ln\sigma_m^2$")
        axis.grid(visible=False)
        axis.set_xticks(columns, [f"{v:g}" for v in table.variance.values], fontsize=7.5)
        axis.set_yticks(rows, [str(int(v)) for v in table.depth.values])
        axis.set(xlabel=label("square of the initial means", r"\sigma_m^2"), xlim=(columns[0] - 0.4, columns[-1] + 0.4),
                 ylim=(rows[0] - 0.5, rows[-1] + 0.5))  # fmt: skip
        axis.set_title(f"{words}: width {table.attrs['size']}, {table.attrs['steps']} steps, "
                       f"{table.sizes['seed']} networks", fontsize=9)  # fmt: skip
    axes[0].set_ylabel(label("hidden layers", "L"))
    axes[0].legend(loc="lower right", fontsize=8, facecolor="0.25", labelcolor="white", framealpha=1, frameon=True)
    figure.colorbar(picture, ax=axes, label="accuracy on unseen digits")
    return figure


# --- three ways of training -------------------------------------------------------------------------------------------

RATES = {"surrogate": 0.01, "straight-through": 0.01, "full precision": 0.003}
NETWORKS = {"2 layers of 128": (2, 128, 3000, range(100, 108)), "4 layers of 64": (4, 64, 1500, range(4))}


def three_ways(quick: bool) -> dict[str, Any]:
    """Accuracy of the network that was trained and of its binarised copy, by depth and way of training."""
    import xarray as xr

    most = max(len(seeds) for *_, seeds in NETWORKS.values())
    found = {name: np.full((len(NETWORKS), len(RATES), most), np.nan) for name in NAMES}
    for i, (depth, size, steps, seeds) in enumerate(NETWORKS.values()):
        size, steps, seeds = (16, 10, seeds[:2]) if quick else (size, steps, seeds)
        for j, (training, rate) in enumerate(RATES.items()):
            model = BinaryDigits(depth=depth, steps=steps, rate=rate, variance=0.99, training=training)
            run = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in seeds]), size)
            for name in NAMES:
                found[name][i, j, : len(seeds)] = np.asarray(run[name])
    table = xr.Dataset(
        {name: (("network", "training", "seed"), v) for name, v in found.items()},
        coords={"network": list(NETWORKS), "training": list(RATES)},
    )
    return {"": table}


def draw_three_ways(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.0), layout="constrained", sharey=True)
    for axis, name, words in (
        (axes[0], "accuracy", "the network that was trained"),
        (axes[1], "binarised_accuracy", "its binarised copy: weights and neurons ±1"),
    ):
        for i, training in enumerate(table.training.values):
            at = table[name].sel(training=training)
            error = at.std("seed", ddof=1) / np.sqrt(at.count("seed"))
            place = np.arange(at.sizes["network"]) + 0.12 * (i - 1)
            axis.errorbar(
                place, at.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=6, label=str(training)
            )
        number = table[name].isel(training=0).count("seed").values
        names = [f"{network}\n{n} networks" for network, n in zip(table.network.values, number, strict=True)]
        axis.set_xticks(np.arange(table.sizes["network"]), names)
        axis.set(xlim=(-0.5, table.sizes["network"] - 0.5))
        axis.set_title(words, fontsize=9)
    axes[0].set(ylabel="accuracy on unseen digits", ylim=(0.6, 1.0))
    axes[0].legend(title="training", fontsize=8, loc="lower left")
    figure.suptitle("Deep binary networks on digits: three ways of training", fontsize=11)
    return figure


RECIPES = {
    "binary-digits-training": Recipe(
        three_ways,
        draw_three_ways,
        sentence="Accuracy on digits of binary networks trained through their surrogate, beside two other ways of training.",
    ),
    "binary-digits-depth": Recipe(
        depths_by_means,
        draw_depths_by_means,
        sentence="The depth up to which binary networks train on digits, by initial means, compared with six depth scales.",
    ),
}
