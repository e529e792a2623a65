"""How many layers to freeze: errors and best depth against target samples, beside the similarity of representations."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.data.digits import digit_components
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, log_axis, mean_and_error
from solvable.study import Study

from .model import COMPARED, LayerDefrosting, Network
from .similarity import information_imbalance, linear_cka

CORRELATIONS = {"teachers": (0.5, 0.8, 0.95), "digits": (0.2, 0.6, 1.0)}
STARTS = {"fresh": "random start", "source": "source start"}
TASKS = {"teachers": "random teachers", "digits": "groupings of digits"}
SIZE = 20
QUICK = {"teachers": [6.4], "digits": [1.0, 6.4]}
"""Each number of samples needs its own compiled program, which takes about 15 seconds."""


def depths(quick: bool) -> dict[str, Any]:
    """Run the experiment; every realisation measures all numbers of frozen layers, so that differences are paired."""
    out = {}
    for tasks, correlations in CORRELATIONS.items():
        model = LayerDefrosting(tasks=tasks, depth=2 if quick else 3, units=32 if quick else 64)
        over = {
            "start": ["fresh"] if quick else list(STARTS),
            "correlation": list(correlations)[:: 2 if quick else 1],
            "samples": QUICK[tasks] if quick else [1.0, 2.4, 6.4, 16.0, 32.0],
        }
        out[tasks] = Study(model, over, sizes=[SIZE], seeds=4 if quick else 10).run()
    return out | {"random": random_networks(out)}


def random_networks(measured: dict[str, Any]) -> Any:
    """The control: similarity of two random networks, one pair for every correlation and seed, on inputs of each kind."""
    import xarray as xr

    @partial(jax.jit, static_argnames=("units", "depth"))
    def alike(key: Any, seen: Any, units: int, depth: int) -> tuple[Any, Any]:
        one, other = (
            jnp.stack(Network.drawn(k, SIZE, units, depth, seen.dtype).hidden(seen)) for k in jax.random.split(key)
        )
        return jax.vmap(linear_cka)(one, other), jax.vmap(information_imbalance)(one, other)

    data = {}
    for number, (tasks, runs) in enumerate(measured.items()):
        found = []
        for i in range(runs.sizes["correlation"]):
            for seed in range(runs.sizes["seed"]):
                keys = jax.random.split(jax.random.fold_in(jax.random.key(number), 1000 * i + seed))
                if tasks == "digits":
                    images = jnp.asarray(digit_components(SIZE)[0], jnp.float32)
                    seen = images[jax.random.permutation(keys[0], images.shape[0])[:COMPARED]]
                else:
                    seen = jax.random.normal(keys[0], (COMPARED, SIZE), jnp.float32)
                found.append(alike(keys[1], seen, 64, runs.sizes["layer"]))
        shape = (runs.sizes["correlation"], runs.sizes["seed"], runs.sizes["layer"])
        for name, values in zip(("cka", "imbalance"), zip(*found, strict=True), strict=True):
            data[f"{tasks}_{name}"] = (("number", "seed", "layer"), np.asarray(values, float).reshape(shape))
    return xr.Dataset(data)


def draw_depths(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(13.6, 6.2), width_ratios=[1.1, 1, 1, 1])
    for row, tasks in zip(axes, CORRELATIONS, strict=True):
        runs = data[tasks].isel(size=0)
        number = np.rint(runs.samples.values * SIZE).astype(int)
        starts = [s for s in STARTS if s in runs.start.values]
        _errors(row[0], runs.sel(start=starts[0], correlation=CORRELATIONS[tasks][-1]), number)
        row[0].set_title(f"{TASKS[tasks]}, ρ = {CORRELATIONS[tasks][-1]:g}, {STARTS[starts[0]]}")
        _best_depths(row[1], runs, starts, number)
        _gains(row[2], runs, starts, number)
        _similarities(row[3], runs, data["random"][f"{tasks}_cka"])
    axes[0, 1].set_title("best number of frozen layers")
    axes[0, 2].set_title("gain of transfer over scratch")
    axes[0, 3].set_title("similarity of source and target networks")
    depth, seeds = int(data["teachers"].frozen[-1]), data["teachers"].sizes["seed"]
    figure.suptitle(
        f"How many layers of a source network to keep ({depth} hidden layers, d = {SIZE}, {seeds} seeds, bars: standard errors)",
        fontsize=11,
    )
    return figure


def _errors(axis: Any, runs: Any, number: np.ndarray) -> None:
    """Test error with every number of frozen layers, and the lines that bound the experiment."""
    for i, frozen in enumerate(runs.frozen.values):
        mean, error = mean_and_error(runs.test_error_simulated.sel(frozen=frozen))
        axis.errorbar(number, mean, error, fmt=f"{MARKERS[i]}-", color=COLOURS[i], label=f"{frozen} frozen")
    own, rich = (float(runs[f"{n}_error_simulated"].mean()) for n in ("source", "rich"))
    axis.axhline(own, color="0.35", linestyle="--", linewidth=1, label="source, on its own task")
    axis.axhline(rich, color="0.35", linestyle=":", linewidth=1, label="target, data-rich")
    log_axis(axis.xaxis)
    axis.set(xlabel="target samples n", ylabel="test error E(L) on the target", ylim=(0, None))
    axis.legend(fontsize=7)


def _best_depths(axis: Any, runs: Any, starts: list[str], number: np.ndarray) -> None:
    for i, start, at in _curves(runs, starts):
        mean, error = mean_and_error(at.best_depth_simulated)
        axis.errorbar(number * (1 + 0.05 * (i - 1)), mean, error, **_look(i, start == starts[0]))
    axis.set(xlabel="target samples n", ylabel="best depth $L^*$", ylim=(-0.15, int(runs.frozen[-1]) + 0.15))
    axis.set_yticks(runs.frozen.values)
    log_axis(axis.xaxis)


def _gains(axis: Any, runs: Any, starts: list[str], number: np.ndarray) -> None:
    """Differences paired within each realisation: same target samples, same test set."""
    for i, start, at in _curves(runs, starts):
        mean, error = mean_and_error(at.scratch_error_simulated - at.best_error_simulated)
        label = f"ρ = {float(at.correlation):g}, {STARTS[start]}"
        axis.errorbar(number * (1 + 0.05 * (i - 1)), mean, error, label=label, **_look(i, start == starts[0]))
    axis.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    axis.set(xlabel="target samples n", ylabel="error from scratch − at $L^*$")
    log_axis(axis.xaxis)
    axis.legend(fontsize=7)


def _similarities(axis: Any, runs: Any, random: Any) -> None:
    layers = runs.layer.values
    for i, correlation in enumerate(runs.correlation.values):
        at = runs.sel(correlation=correlation).stack(realisation=("start", "samples", "seed"))
        for name, filled in (("cka", True), ("source_to_target", False)):
            values = at[f"{name}_simulated"].transpose("layer", "realisation").values
            mean, error = values.mean(1), values.std(1, ddof=1) / np.sqrt(values.shape[1])
            label = ("CKA (1: equal)" if filled else "imbalance Δ(s→t) (0: equal)") if i == 0 else None
            axis.errorbar(layers, mean, error, label=label, **_look(i, filled))
    axis.plot(layers, random.mean(("number", "seed")), "x:", color="0.4", label="CKA of random networks")
    axis.set(xlabel="hidden layer", ylabel="similarity", ylim=(0, 1.19))
    axis.set_xticks(layers)
    axis.set_yticks(np.linspace(0, 1, 6))
    axis.legend(fontsize=7, loc="upper left")


def _curves(runs: Any, starts: list[str]) -> list[tuple[int, str, Any]]:
    """The curves, one for each correlation and start, with the index of its colour."""
    return [(i, s, runs.sel(start=s, correlation=c)) for i, c in enumerate(runs.correlation.values) for s in starts]


def _look(colour: int, filled: bool) -> dict[str, Any]:
    return {
        "fmt": MARKERS[colour] + ("-" if filled else "--"),
        "color": COLOURS[colour],
        "markerfacecolor": COLOURS[colour] if filled else "white",
    }


RECIPES = {
    "layer-defrosting-depth": Recipe(
        depths,
        draw_depths,
        sentence=(
            "Test error and best number of frozen layers against target samples, teachers and digits, "
            "beside CKA and imbalance."
        ),
    )
}
