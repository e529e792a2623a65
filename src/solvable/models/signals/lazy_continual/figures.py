"""Forgetting against richness and similarity, at several widths, and the richness with the lowest final loss."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis

from .model import LazyContinual, _drawn

SIMILARITIES = (0.0, 0.5, 0.9)
RICHNESS = (0.05, 0.15, 0.375, 0.75, 1.5, 5.0)
FIRST = 16
"""Number of the first data set of the longer runs: those before were looked at when the claims were written."""
LONGER = {"activation": "relu", "labels": "absolute", "input_dimension": 10, "examples": 20, "points": 5}
NAMES = ("forgetting", "final_loss")


def _at(model: LazyContinual, instance: int) -> LazyContinual:
    """The model at other data, in a way that shares the compiled program."""
    data = _drawn(model.replace(instance=instance))
    return model.replace(
        first_inputs=data["first"], second_inputs=data["second"], teacher=data["teacher"], change=data["change"]
    )


def _measure(model: LazyContinual, richness: np.ndarray, instances: range, size: int | None) -> dict[str, np.ndarray]:
    """Observables (similarity, richness, instance) of the limit, or of one network of this width per instance."""
    s, g = (v.ravel() for v in np.meshgrid(SIMILARITIES, richness, indexing="ij"))
    found: dict[str, list[np.ndarray]] = {name: [] for name in (*NAMES, "learnt")}
    for instance in instances:
        here = _at(model, instance)
        if size is None:
            values: Any = here.replace(similarity=s, richness=g).theory()
        else:
            # one initial network for all richnesses and similarities of an instance
            keys = jnp.stack([here.key(size, instance)] * len(s))
            values = simulate_batch(here, {"similarity": s, "richness": g}, keys, size)
        shape = (len(SIMILARITIES), len(richness))
        for name in NAMES:
            found[name].append(np.asarray(values[name]).reshape(shape))
        losses = np.asarray(values["train_loss"])
        found["learnt"].append((losses[:, model.points, 0] / losses[:, 0, 0]).reshape(shape))
    return {name: np.stack(v, axis=-1) for name, v in found.items()}


def longer_runs(quick: bool) -> Any:
    """Networks of several widths on more samples than dimensions, labels |x·β|."""
    import xarray as xr

    instances, sizes = _design(quick)
    grid = np.array(RICHNESS[::3] if quick else RICHNESS)
    dims = ("size", "similarity", "richness", "instance")
    numbers = range(FIRST, FIRST + instances)
    coords = {"similarity": list(SIMILARITIES), "richness": grid, "instance": list(numbers), "size": list(sizes)}
    model = LazyContinual.create(**{**LONGER, "steps": 10 if quick else 500})
    runs = [_measure(model, grid, numbers, size) for size in sizes]
    return xr.Dataset({name: (dims, np.stack([r[name] for r in runs])) for name in runs[0]}, coords)


def _design(quick: bool) -> tuple[int, tuple[int, ...]]:
    """The number of data sets, and the widths."""
    return (4, (16, 32)) if quick else (16, (64, 256, 1024))


def forgetting(quick: bool) -> dict[str, Any]:
    import xarray as xr

    instances, sizes = _design(quick)
    grid = np.array(RICHNESS[::3] if quick else RICHNESS)
    fewer = instances // 2
    dims = ("similarity", "richness", "instance")
    fine = grid if quick else np.geomspace(0.05, 5.0, 8)
    small = xr.Dataset(
        coords={
            "similarity": list(SIMILARITIES),
            "richness": fine,
            "points": grid,
            "instance": np.arange(fewer),
        },
        attrs={"size": sizes[-1]},
    )
    for activation in ("linear", "relu"):
        model = LazyContinual(activation=activation, steps=10 if quick else 150)
        for name, values in _measure(model, fine, range(fewer), None).items():
            small[f"{activation}_{name}"] = (dims, values)
        for name, values in _measure(model, grid, range(fewer), sizes[-1]).items():
            small[f"{activation}_{name}_simulated"] = (("similarity", "points", "instance"), values)
    return {"": small, "longer": longer_runs(quick)}


def _mean(values: Any) -> tuple[Any, Any]:
    return values.mean("instance"), values.std("instance", ddof=1) / np.sqrt(values.sizes["instance"])


def draw_forgetting(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    small, longer = data[""], data["longer"]
    figure, axes = plt.subplots(1, 4, figsize=(16.5, 4.2), layout="constrained")
    for axis, activation in zip(axes, ("linear", "relu"), strict=False):
        for i, s in enumerate(small.similarity.values):
            mean, _ = _mean(small[f"{activation}_forgetting"].sel(similarity=s))
            axis.plot(small.richness, mean, color=COLOURS[i], label=f"s = {s:g}")
            mean, error = _mean(small[f"{activation}_forgetting_simulated"].sel(similarity=s))
            axis.errorbar(small.points, mean, error, fmt=MARKERS[i], color=COLOURS[i], markersize=4)
        words = {"linear": "linear units", "relu": "ReLU units"}[activation]
        axis.set_title(f"{words}, labels x·β, 10 samples; lines N → ∞, points N = {small.attrs['size']}", fontsize=8)
        axis.legend(title="similarity", fontsize=8, ncols=3, loc="upper center")
        axis.margins(y=0.3)
    for i, s in enumerate(longer.similarity.values):
        for j, size in enumerate(longer["size"].values):
            mean, error = _mean(longer.forgetting.sel(similarity=s, size=size))
            axes[2].errorbar(longer.richness * 1.05 ** (j - 1), mean, error, fmt=MARKERS[j] + LINES[j], color=COLOURS[i],
                             markersize=4, linewidth=1, label=f"s = {s:g}, N = {size}" if i == 0 or j == 0 else None)  # fmt: skip
            mean, error = _mean(longer.final_loss.sel(similarity=s, size=size))
            axes[3].errorbar(longer.richness * 1.05 ** (j - 1), mean, error, fmt=MARKERS[j] + LINES[j], color=COLOURS[i],
                             markersize=4, linewidth=1)  # fmt: skip
    axes[2].set_title("ReLU, labels |x·β|, 20 samples, 500 + 500 steps: networks", fontsize=8)
    axes[3].set_title("the same: loss of both tasks at the end", fontsize=8)
    axes[2].legend(fontsize=7.5, loc="upper left")
    for axis in axes:
        log_axis(axis.xaxis)
        axis.set(xlabel=label("richness", r"\gamma_0"), ylabel="forgetting, over the initial loss", ylim=(0, None))
    axes[3].set_ylabel("final loss, over the initial loss")
    return figure


RECIPES = {
    "lazy-continual-forgetting": Recipe(
        forgetting,
        draw_forgetting,
        sentence="What a wide network forgets of a first task, from lazy to rich training, for similar and different tasks.",
    )
}
