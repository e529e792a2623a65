"""Which orders of interaction a network learns, and when: depths against floors, learning curves, clones of every order.

All data are studies of `short-sequences` and `long-sequences`. The full version takes minutes on an accelerator.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.methods.sequences.interactions import interaction_floors
from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces, threads
from solvable.render.plots import COLOURS, INK, log_axis
from solvable.study import Study, provenance

from ..long_sequences.model import LongSequences
from ..short_sequences.model import ShortSequences, known
from .model import ManyBodyBias

DEPTHS = (1, 2, 3)

FULL = {
    "sequences": 1_000_000,
    "depths": {"law": "planted", "sites": 6, "instance": 0, "inverse_temperature": 1.5, "steps": 800, "networks": 4},
    "exact": {"sites": 5, "colours": 3, "inverse_temperature": 0.4, "steps": 3000, "networks": 10},
    "runs": ("stack, gradient descent", "stack, Adam", "encoder, Adam"),
    "layers": (("stack, gradient descent", 2.0), ("stack, gradient descent", 3.0),
               ("stack, Adam", 0.5), ("stack, Adam", 2.0)),
    "moved": {"steps": 3000, "networks": 8},
    "long": {"sites": 20, "colours": 10, "groups": 20, "fitted": 1_600_000, "fit_steps": 15_000, "tested": 4096, "batch": 256,
             "heads": 16, "width": 32, "networks": 5},
    "trained": 400_000, "settings": {"gradient descent": 1_000_000, "Adam": 40_000},
    "encoder": {}, "starts": {"gradient descent": (0.5, 1.0, 2.0, 3.0), "Adam": (0.5, 1.0)}, "started": 3000,
    "clipped": 100_000, "clipped_depths": (2, 3),
}  # fmt: skip
QUICK = {
    "sequences": 100_000,
    "depths": {"law": "planted", "sites": 5, "instance": 0, "inverse_temperature": 1.0, "steps": 300, "networks": 2},
    "exact": {"sites": 5, "colours": 2, "inverse_temperature": 1.0, "steps": 600, "networks": 2},
    "runs": ("stack, gradient descent", "stack, Adam"),
    "layers": (("stack, gradient descent", 2.0), ("stack, Adam", 2.0)), "moved": {"steps": 300, "networks": 2},
    "long": {"sites": 8, "colours": 4, "groups": 8, "fitted": 6000, "fit_steps": 200, "tested": 1024, "batch": 128, "heads": 4,
             "width": 12, "networks": 1, "pair_strength": 0.7, "triplet_strength": 0.5, "quadruplet_strength": 0.4},
    "trained": 3000, "settings": {"Adam": 400}, "encoder": {"width": 32, "depth": 1},
    "starts": {"Adam": (2.0,)}, "started": 400, "clipped": 400, "clipped_depths": (2,),
}  # fmt: skip
"""`layers`: arms and initial scales of three layers whose displacements are compared. `settings`: ways to train stacks
on long sequences, and for how many steps; `starts`: initial scales from which three layers are also followed there, for
the first `started` steps; `clipped`: steps of gradient descent with clipped gradients, of stacks that may pass floors.
Many sequences are needed: 40,000 leave a three-body fit on the planted graph 0.28 nats above its training loss, 400,000
0.023, 1,600,000 0.003. So are many steps of plain gradient descent: three layers pass the floor of pairs after 60,000 to
90,000 and that of triplets in the last fifth of a million, when the rate falls. Without clipping, at rate 1.5, one of two
runs of three layers diverged after 110,000 steps."""


# --- the studies ----------------------------------------------------------------------------------------------------------


def studies(settings: dict[str, Any]) -> dict[str, list[Study]]:
    """The studies behind the figure, one cell each: the networks of a cell train side by side on the same sequences."""
    short, long = ShortSequences.arms_declared, LongSequences.arms_declared
    large, trained = {"sizes": [settings["sequences"]], "seeds": 1}, {"sizes": [settings["trained"]], "seeds": 1}

    def layers(depth: int) -> str:
        return f"{depth} layer{'s' * (depth > 1)}"

    found = {"depths": [Study(ShortSequences(**settings["depths"], **short[layers(n)]), **large) for n in DEPTHS]}
    found["exact"] = [Study(ShortSequences(**settings["exact"], **short[run]), **large) for run in settings["runs"]]
    law = settings["exact"] | settings["moved"]
    found["layers"] = [
        Study(ShortSequences(**(law | short[arm] | {"scale": scale})), **large) for arm, scale in settings["layers"]
    ]
    for name, steps in settings["settings"].items():
        arms = [dict(long[f"{layers(n)}, {name}"]) | {"steps": steps} for n in DEPTHS]
        found[name] = [Study(LongSequences(**(settings["long"] | arm)), **trained) for arm in arms]
    found["starts"] = [
        Study(
            LongSequences(
                **(
                    settings["long"]
                    | dict(long[f"{layers(3)}, {name}"])
                    | {"scale": scale, "steps": settings["started"]}
                )
            ),
            **trained,
        )
        for name, scales in settings["starts"].items()
        for scale in scales
    ]
    clipped = [
        dict(long[f"{layers(n)}, gradient descent"]) | {"steps": settings["clipped"]}
        for n in settings["clipped_depths"]
    ]
    found["clipped"] = [Study(LongSequences(**(settings["long"] | arm)), **trained) for arm in clipped]
    encoder = settings["long"] | dict(long["encoder"]) | {"steps": settings["settings"]["Adam"]} | settings["encoder"]
    found["encoder"] = [Study(LongSequences(**encoder), **trained)]
    return found


def simplicity(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    """All training runs: on short sequences, with exact losses, and on long sampled ones."""
    settings, pieces = QUICK if quick else FULL, pieces or Pieces()
    every = studies(settings)
    with threads() as pool:
        tasks = {name: pool.submit(pieces.run, name, some) for name, some in every.items()}
        results = {name: [one.isel(size=0, seed=0, drop=True) for one in task.result()] for name, task in tasks.items()}
    attributes = {
        "study": json.dumps({"models": ["short-sequences", "long-sequences"], "settings": settings}),
        **provenance(),
    }
    parts = {
        "depths": _depths(results["depths"], settings),
        "exact": _exact(results["exact"], settings),
        "layers": _layers(results["layers"], settings),
        "starts": _starts(results["starts"], settings),
        "long": _long([results[name] for name in settings["settings"]], list(settings["settings"]), DEPTHS),
        "clipped": _long([results["clipped"]], ["gradient descent, clipped"], settings["clipped_depths"]),
        "clones": _clones([results[name][-1] for name in settings["settings"]] + results["encoder"], settings),
    }
    return {name: part.assign_attrs(attributes) for name, part in parts.items()}


# --- the data of the figure -----------------------------------------------------------------------------------------------


def _depths(found: list[xr.Dataset], settings: dict[str, Any]) -> xr.Dataset:
    """Final losses of one, two, three layers, and the floors of their law."""
    fields = {n: settings["depths"][n] for n in ("sites", "instance", "inverse_temperature")}
    theory = ManyBodyBias(**fields, depth=0).theory()
    ends = [one.loss_simulated.isel(step=-1).sel(clone=4).values for one in found]
    return xr.Dataset(
        {"loss": (("depth", "seed"), np.array(ends)), "floor": (("order",), np.asarray(theory.floor))},
        {"depth": list(DEPTHS), "order": np.arange(1, 5)},
    )


def _exact(found: list[xr.Dataset], settings: dict[str, Any]) -> xr.Dataset:
    """Losses on the law and its clones, shares and displacements; when each order is half learnt, each clone best fitted."""
    law = ShortSequences(**settings["exact"])
    probability = known(law.law, law.sites, law.colours, law.instance, float(law.inverse_temperature)).probability
    floors = eqx.filter_jit(interaction_floors)(jnp.asarray(probability), law.sites, law.colours, 3)
    levels = np.append(floors.floors, floors.optimal)
    names = {"loss_simulated": "loss", "share_simulated": "share", "displacement_simulated": "msd"}
    runs = [one.rename({k: v for k, v in names.items() if k in one}) for one in found]
    runs = [one[[v for v in names.values() if v in one]].rename(network="seed", bodies="order") for one in runs]
    whole: Any = xr.concat(runs, xr.Variable("run", list(settings["runs"])), data_vars="all", coords="minimal")
    whole = whole.drop_vars("seed")
    whole = whole.reindex(order=np.arange(1, 5)).transpose("run", "step", "seed", ...)
    record, curve = whole.step.values, np.moveaxis(whole.loss.sel(clone=4).values, 1, -1)
    shares = np.moveaxis(whole.share.values, 1, -1)
    return whole.assign(
        clone_optimal=("clone", found[0].clone_optimal_simulated.values),
        floor=("order", levels),
        dwell=(("run", "seed", "order"), dwelling(curve, record, levels)),
        half_time=(("run", "seed", "order"), first_time(shares > 0.5, record)),
        best_time=(("run", "seed", "clone"), record[np.argmin(whole.loss.values, axis=1)]),
    )


def _layers(found: list[xr.Dataset], settings: dict[str, Any]) -> xr.Dataset:
    """Displacements of three layers from several initial scales."""
    names = [f"{arm.removeprefix('stack, ')}, scale {scale:g}" for arm, scale in settings["layers"]]
    msd = xr.concat([one.displacement_simulated for one in found], xr.Variable("run", names))
    return xr.Dataset({"msd": msd.rename(network="seed").drop_vars("seed")}).drop_attrs()


def _starts(found: list[xr.Dataset], settings: dict[str, Any]) -> xr.Dataset:
    """The same on long sequences, during their first steps."""
    names = [f"{name}, scale {scale:g}" for name, scales in settings["starts"].items() for scale in scales]
    msd = xr.concat([one.displacement_simulated for one in found], xr.Variable("run", names))
    return xr.Dataset({"msd": msd.rename(network="seed").drop_vars("seed")}).drop_attrs()


def _long(found: list[list[xr.Dataset]], settings: list[str], depths: Sequence[int]) -> xr.Dataset:
    """Learning curves by optimiser and depth, and the floors; shorter runs are NaN at later steps."""
    by_depth = [xr.concat(runs, xr.Variable("depth", list(depths)), join="outer") for runs in found]
    whole = xr.concat(by_depth, xr.Variable("setting", settings), join="outer")
    whole = whole.rename(
        {f"{n}_simulated": n for n in ("loss", "floor", "floor_fitted", "above", "above_error", "r_hat")}
    )
    whole = whole.rename(displacement_simulated="msd", network="seed").drop_vars("seed")
    first = whole.isel(setting=0, depth=0)
    sets = xr.Variable("set", ["1", "2", "3", "data"])
    curve = whole.loss.sel(clone=4, drop=True)
    below = (curve < first.floor).transpose("setting", "depth", "seed", "order", "step").values
    passed = first_time(below, whole.step.values)
    parts = {
        "floor": first.floor,
        "floor_fitted": first.floor_fitted,
        "r_hat": first.r_hat.rename(clone="set").assign_coords(set=sets),
        "loss": curve.transpose("setting", "depth", "step", "seed"),
        "msd": whole.msd.transpose("setting", "depth", "step", "seed", "layer"),
        "above": whole.above.transpose("setting", "depth", "seed", "order"),
        "above_error": whole.above_error.transpose("setting", "depth", "seed", "order"),
        "passed": (("setting", "depth", "seed", "order"), passed),
    }
    return xr.Dataset(parts).drop_vars("clone", errors="ignore").drop_attrs().expand_dims(law=["hierarchy"])


def _clones(found: list[xr.Dataset], settings: dict[str, Any]) -> xr.Dataset:
    """Losses of the deepest stacks and of the encoder on all clones."""
    learners = xr.Variable("learner", [*settings["settings"], "encoder"])
    loss = xr.concat([one.loss_simulated for one in found], learners, join="outer")
    loss = loss.rename(network="seed", clone="set").drop_vars("seed").transpose("learner", "step", "seed", "set")
    loss = loss.assign_coords(set=["1", "2", "3", "data"])
    return xr.Dataset({"loss": loss}).drop_attrs().expand_dims(law=["hierarchy"])


def dwelling(curves: np.ndarray, record: np.ndarray, levels: np.ndarray, width: float = 0.05) -> np.ndarray:
    """Steps that loss curves (…, step) spend within `width` of the whole fall ℓ_1 − ℓ_opt around each level (…, level)."""
    near = np.abs(curves[..., None] - levels) < width * (levels[0] - levels[-1])
    return np.sum(near[..., :-1, :] * np.diff(record)[:, None], axis=-2)


def first_time(reached: np.ndarray, record: np.ndarray) -> np.ndarray:
    """The first recorded step at which something (…, step) is true; NaN if it never is."""
    return np.where(reached.any(-1), record[np.argmax(reached, -1)], np.nan)


# --- the picture ----------------------------------------------------------------------------------------------------------


def draw_simplicity(data: dict[str, Any]) -> Any:
    """Four panels: depth caps the order; clones are left behind in turn; long learning curves pass the floors; layers move."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10.8, 7.6), layout="constrained")
    long = data["long"].isel(law=0)
    # The setting in which the deepest network ends lowest.
    ends = long.loss.sel(depth=3).min("step").mean("seed")
    best = int(np.nanargmin(ends)) if np.isfinite(ends).any() else 0
    _draw_depths(axes[0, 0], data["depths"])
    _draw_long_clones(axes[0, 1], data["clones"].isel(law=0).sel(learner="encoder"))
    _draw_long(axes[1, 0], long.isel(setting=best))
    _draw_msd(axes[1, 1], long.isel(setting=best))
    return figure


def _draw_depths(axis: Any, data: Any) -> None:
    for order, floor in zip(data.order.values, data.floor.values, strict=True):
        axis.axhline(floor, color=COLOURS[(order - 1) % 6], linewidth=1, linestyle="--")
        words = f"{order} bod{'y' if order == 1 else 'ies'}"
        axis.annotate(words, (3.68, floor), va="bottom", ha="right", fontsize=8, color=COLOURS[(order - 1) % 6])
    for i, depth in enumerate(data.depth.values):
        losses = data.loss.sel(depth=depth).values
        axis.plot(depth + np.linspace(-0.15, 0.15, losses.size), losses, "o", color=INK, markersize=3.5, alpha=0.8)
        axis.annotate(f"can hold {2**i + 1}", (depth, losses.max()), xytext=(0, 7), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axis.set(xlabel="layers", ylabel="masked loss after training (nats)", xticks=DEPTHS, xlim=(0.5, 3.7))
    log_axis(axis.yaxis)
    axis.set_title("depth caps the order of interactions\n(dashed: the best model of so many bodies)")


def _draw_long(axis: Any, long: Any) -> None:
    steps = long.step.values
    for depth in long.depth.values:
        curves = long.loss.sel(depth=depth)
        for seed in range(curves.sizes["seed"]):
            label = f"{depth} layer{'s' if depth > 1 else ''}" if seed == 0 else None
            curve = curves.isel(seed=seed).values
            axis.plot(steps[1:], curve[1:], color=COLOURS[depth - 1], linewidth=1.1, label=label)
            last = np.flatnonzero(np.isfinite(curve))[-1]
            if last < np.flatnonzero(np.isfinite(curves).any("seed"))[-1]:  # this run diverged, while others continue
                axis.plot(steps[last], curve[last], "x", color=COLOURS[depth - 1], markersize=6)
                axis.annotate("one diverged", (steps[last], curve[last]), xytext=(-6, -20), textcoords="offset points",
                              ha="right", fontsize=7, color=COLOURS[depth - 1])  # fmt: skip
    for order, level in zip(long.order.values, long.floor.values, strict=True):
        axis.axhline(level, color=INK, linewidth=0.8, linestyle="--" if order < 4 else "-")
        name = f"{order} bod{'y' if order == 1 else 'ies'}" if order < 4 else "optimal"
        axis.annotate(name, (steps[1], level), va="bottom", fontsize=8)
    top = float(long.floor.values[0])
    axis.set(
        xlabel="steps of training",
        ylabel="masked loss on fresh sequences (nats)",
        ylim=(0.85 * float(long.floor.values[-1]), 1.25 * top),
    )
    log_axis(axis.xaxis)
    axis.legend()
    axis.set_title("long sequences: deep stacks pass one floor after another,\nwithout resting there")


def _draw_msd(axis: Any, long: Any) -> None:
    moved = long.msd.sel(depth=3)
    for layer in moved.layer.values:
        for seed in range(moved.sizes["seed"]):
            label = f"layer {layer}" if seed == 0 else None
            axis.plot(long.step[1:], moved.sel(layer=layer).isel(seed=seed)[1:], color=COLOURS[layer - 1],
                      linewidth=1.1, label=label)  # fmt: skip
    axis.set(xlabel="steps of training", ylabel="mean square displacement of a layer")
    log_axis(axis.xaxis)
    log_axis(axis.yaxis)
    axis.legend()
    axis.set_title("long sequences: three layers start together\nand end apart")


def _draw_long_clones(axis: Any, clones: Any) -> None:
    names = {"1": "clone of order 1", "2": "clone of order 2", "3": "clone of order 3", "data": "data"}
    for colour, (which, label) in zip((0, 1, 2, 3), names.items(), strict=True):
        curve = clones.loss.sel(set=which).mean("seed")
        axis.plot(clones.step[1:], curve[1:], color=COLOURS[colour], label=label)
        if which != "data":
            least = 1 + int(np.nanargmin(curve.values[1:]))
            axis.plot(clones.step[least], curve[least], "v", color=COLOURS[colour])
    axis.set(xlabel="steps of training", ylabel="masked loss of an encoder (nats)")
    log_axis(axis.xaxis)
    axis.legend()
    axis.set_title("an encoder leaves the clones of low order behind in turn\n(▼ best step)")


RECIPES = {
    "many-body-simplicity": Recipe(
        simplicity,
        draw_simplicity,
        resumes=True,
        also=("short-sequences", "long-sequences"),
        sentence="Depth caps the order of interactions that a network learns; low orders and their clones come first.",
    )
}
