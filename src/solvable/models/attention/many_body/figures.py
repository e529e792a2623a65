"""Which orders of interaction a network learns, and when: depths against floors, learning curves, clones of every order.

The full version takes minutes on an accelerator; everything runs over its seeds side by side.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import xarray as xr

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, INK, log_axis
from solvable.study import provenance

from .long_sequences import learning_curves
from .model import ManyBodyBias
from .training import DEPTHS, depths, exact_clones

ORDERS = (2, 3, 4)

SETTINGS = (("sgd", 1.5, 2.0), ("adam", 1e-3, 2.0))
"""Optimiser, rate (which falls to zero) and initial scale of the networks on long sequences."""

LAWS = {"hierarchy": {2: 1.0, 3: 0.75, 4: 0.55}}
"""Strength of a group of every order, on long sequences."""

FULL = {"sites": 20, "colours": 10, "groups": 20, "sequences": 400_000, "tested": 4096, "fitted": 1_600_000,
        "steps": {"sgd": 1_000_000, "adam": 40_000}, "seeds": 2, "batch": 256, "heads": 16, "width": 32,
        "chains": 4096, "sweeps": 1024, "fit": (15_000, 1024, 0.03, 1e-8),
        "encoder": {"width": 64, "depth": 2, "heads": 4}}  # fmt: skip
QUICK = {"sites": 8, "colours": 4, "groups": 8, "sequences": 3000, "tested": 1024, "fitted": 6000,
         "steps": {"sgd": 400, "adam": 400}, "seeds": 1, "batch": 128, "heads": 4, "width": 12,
         "chains": 1024, "sweeps": 512, "fit": (200, 256, 0.05, 1e-6),
         "encoder": {"width": 32, "depth": 1, "heads": 4}}  # fmt: skip
"""Sequences must be many: 40,000 leave a three-body fit on the planted graph 0.28 nats above its training loss, 400,000
0.023, 1,600,000 0.003. So must be the steps of plain gradient descent: three layers pass the floor of pairs after 60,000 to
90,000 and that of triplets in the last fifth of a million, when the rate falls. The rate is near the largest that holds: one of
two runs of three layers diverged after 110,000 steps, and at twice the rate both do within a hundred."""
QUICK_SETTINGS, QUICK_LAWS = (("sgd", 0.1, 2.5),), {"hierarchy": {2: 0.7, 3: 0.5, 4: 0.4}}


def simplicity(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    """All trainings: of short sequences, known exactly, and of long ones, drawn."""
    # Accelerators round the factors of products in single precision unless told otherwise.
    with jax.default_matmul_precision("highest"):
        return {"depths": _depths(quick), "exact": _exact(quick), **_long(quick, pieces or Pieces())}


def _depths(quick: bool) -> xr.Dataset:
    model = ManyBodyBias(sites=5 if quick else 6, inverse_temperature=1.0 if quick else 1.5, depth=0)
    size = {"heads": 4, "width": 12, "steps": 300 if quick else 800}
    found = depths(model, **size, rate=1e-2 if quick else 5e-3, seeds=2 if quick else 4)
    return _with_provenance(found, model=str(model), **size, optimiser="adam, cosine")


def _exact(quick: bool) -> xr.Dataset:
    sites, colours, seeds = (5, 2, 2) if quick else (5, 3, 3)
    strengths: dict[int, float] = dict.fromkeys(
        ORDERS, 1.0 if quick else 0.4
    )  # so that every order has its share of the loss
    runs = [
        ("stack, gradient descent", "sgd", 0.3, 2.0),
        ("stack, Adam", "adam", 3e-3, 1.0),
        *(() if quick else (("encoder, Adam", "adam", 1e-3, 0.0),)),
    ]
    size = {"heads": 4, "width": 12}
    steps, points = (600, 50) if quick else (3000, 80)
    found = exact_clones(sites, colours, strengths, runs, **size, steps=steps, points=points, seeds=seeds)
    return _with_provenance(found, sites=sites, colours=colours, strengths=strengths, **size, runs=runs)


def _long(quick: bool, pieces: Pieces) -> dict[str, xr.Dataset]:
    size = QUICK if quick else FULL
    settings, laws = (QUICK_SETTINGS, QUICK_LAWS) if quick else (SETTINGS, LAWS)
    curves, clones = learning_curves(laws, settings, size, 12 if quick else 70, pieces)
    left_out = ("seeds", "tested", "fitted", "chains", "sweeps")
    attributes = {k: v for k, v in size.items() if k not in left_out} | {"laws": laws}
    return {"long": _with_provenance(curves, **attributes), "clones": _with_provenance(clones, **attributes)}


def _with_provenance(data: xr.Dataset, **study: Any) -> xr.Dataset:
    return data.assign_attrs(study=json.dumps({"models": ["many-body"], **study}), **provenance())


# --- the picture ----------------------------------------------------------------------------------------------------------


def draw_simplicity(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(12.4, 7.0))
    _draw_depths(axes[0, 0], data["depths"])
    _draw_shares(axes[0, 1], data["exact"])
    _draw_exact_clones(axes[0, 2], data["exact"])
    long = data["long"].isel(law=0)
    # The setting in which the deepest network ends lowest.
    ends = long.loss.sel(depth=3).isel(step=-1).mean("seed")
    best = int(np.nanargmin(ends)) if np.isfinite(ends).any() else 0
    _draw_long(axes[1, 0], long.isel(setting=best))
    _draw_msd(axes[1, 1], long.isel(setting=best))
    _draw_long_clones(axes[1, 2], data["clones"].isel(law=0).sel(learner="encoder"), long)
    figure.suptitle(
        "Pairs are learnt first and low-order clones left behind in turn, without a halt at the floors between",
        fontsize=11,
    )
    return figure


def _draw_depths(axis: Any, data: Any) -> None:
    for order, floor in zip(data.order.values, data.floor.values, strict=True):
        axis.axhline(floor, color=COLOURS[(order - 1) % 6], linewidth=1, linestyle="--")
        axis.annotate(rf"$\ell_{order}$", (3.42, floor), va="bottom", fontsize=8, color=COLOURS[(order - 1) % 6])
    for i, depth in enumerate(data.depth.values):
        losses = data.loss.sel(depth=depth).values
        axis.plot(depth + np.linspace(-0.15, 0.15, losses.size), losses, "o", color=INK, markersize=3.5, alpha=0.8)
        axis.annotate(f"≤ {2**i + 1} bodies", (depth, losses.max()), xytext=(0, 7), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axis.set(xlabel="layers", ylabel="loss (nats)", xticks=DEPTHS, xlim=(0.5, 3.7))
    log_axis(axis.yaxis)
    axis.set_title("depth caps the order: trained networks and floors")


def _draw_shares(axis: Any, data: Any) -> None:
    for run, style in ((0, "-"), (1, ":")):
        for order in ORDERS:
            every = data.share.isel(run=run).sel(order=order)
            for seed in range(1, every.sizes["seed"]) if run == 0 else ():
                axis.plot(data.step, every.isel(seed=seed), color=COLOURS[order - 1], linewidth=0.5, alpha=0.35)
            label = f"{order} bodies" if run == 0 else None
            axis.plot(data.step, every.isel(seed=0), style, color=COLOURS[order - 1], label=label)
    axis.set(xlabel="steps", ylabel="share of the true logits' part", ylim=(-0.3, 1.02), xlim=(10, None))
    log_axis(axis.xaxis)
    axis.legend(loc="lower right")
    axis.set_title("three layers: gradient descent (–), Adam (:)")


def _draw_exact_clones(axis: Any, data: Any) -> None:
    for clone in data.clone.values:
        excess = (data.loss.isel(run=0, seed=0) - data.clone_optimal).sel(clone=clone)
        label = f"clone of order {clone}" if clone < 4 else "data"
        axis.plot(data.step, excess, color=COLOURS[clone - 1], label=label)
        least = int(np.argmin(excess.values)) if clone < 4 else None
        if least is not None:
            axis.plot(data.step[least], excess[least], "v", color=COLOURS[clone - 1])
    axis.set(xlabel="steps", ylabel="loss above the clone's own optimum", xlim=(10, None))
    log_axis(axis.xaxis)
    axis.legend()
    axis.set_title("low-order clones are left behind first (▼ best)")


def _draw_long(axis: Any, long: Any) -> None:
    steps = long.step.values
    for depth in long.depth.values:
        curves = long.loss.sel(depth=depth)
        for seed in range(curves.sizes["seed"]):
            label = f"{depth} layer{'s' if depth > 1 else ''}" if seed == 0 else None
            curve = curves.isel(seed=seed).values
            axis.plot(steps[1:], curve[1:], color=COLOURS[depth - 1], linewidth=1.1, label=label)
            last = np.flatnonzero(np.isfinite(curve))[-1]
            if last < np.flatnonzero(np.isfinite(curves).any("seed"))[-1]:  # others go on: this one has diverged
                axis.plot(steps[last], curve[last], "x", color=COLOURS[depth - 1], markersize=6)
                axis.annotate("one diverged", (steps[last], curve[last]), xytext=(-6, -20), textcoords="offset points",
                              ha="right", fontsize=7, color=COLOURS[depth - 1])  # fmt: skip
    for order, level in zip(long.order.values, long.floor.values, strict=True):
        axis.axhline(level, color=INK, linewidth=0.8, linestyle="--" if order < 4 else "-")
        name = rf"$\ell_{order}$" if order < 4 else "optimal"
        axis.annotate(name, (steps[1], level), va="bottom", fontsize=8)
    top = float(long.floor.values[0])
    axis.set(xlabel="steps", ylabel="test loss (nats)", ylim=(0.85 * float(long.floor.values[-1]), 1.25 * top))
    log_axis(axis.xaxis)
    axis.legend()
    law = json.loads(long.attrs["study"])
    axis.set_title(f"L = {law['sites']}, C = {law['colours']}, {long.setting.values!s}")


def _draw_msd(axis: Any, long: Any) -> None:
    moved = long.msd.sel(depth=3)
    for layer in moved.layer.values:
        for seed in range(moved.sizes["seed"]):
            label = f"layer {layer}" if seed == 0 else None
            axis.plot(long.step[1:], moved.sel(layer=layer).isel(seed=seed)[1:], color=COLOURS[layer - 1],
                      linewidth=1.1, label=label)  # fmt: skip
    axis.set(xlabel="steps", ylabel=r"MSD $|\Delta A|^2/L + |\Delta V|^2/C$")
    log_axis(axis.xaxis)
    log_axis(axis.yaxis)
    axis.legend()
    axis.set_title("three layers: how far each has moved")


def _draw_long_clones(axis: Any, clones: Any, long: Any) -> None:
    names = {"1": "clone of order 1", "2": "clone of order 2", "3": "clone of order 3", "data": "data"}
    for colour, (which, label) in zip((0, 1, 2, 3), names.items(), strict=True):
        curve = clones.loss.sel(set=which).mean("seed")
        axis.plot(clones.step[1:], curve[1:], color=COLOURS[colour], label=label)
        if which != "data":
            least = 1 + int(np.nanargmin(curve.values[1:]))
            axis.plot(clones.step[least], curve[least], "v", color=COLOURS[colour])
    axis.set(xlabel="steps", ylabel="loss of an encoder (nats)")
    log_axis(axis.xaxis)
    axis.legend()
    axis.set_title("clones of long sequences, by Gibbs sampling")


RECIPES = {
    "many-body-simplicity": Recipe(
        simplicity,
        draw_simplicity,
        resumes=True,
        sentence="Depth caps the order of interactions that a network learns; low orders and their clones come first.",
    )
}
