"""What do transformers learn from masked language modelling? Factored attention, dense couplings and transformers on one axis."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import jax
import numpy as np

from ..methods.potts import zero_sum_colours
from ..models.attention.masked_language import (
    PENALTIES,
    Planted,
    Sequences,
    contact_precision,
    coupling_error,
    draw_sequences,
    learn_couplings,
    learn_transformers,
    map_correlation,
    planted,
)
from ..plotting import COLOURS, INK, MARKERS, log_axis
from ..study import provenance
from .draw import Recipe
from .pieces import Pieces, threads

FULL = {
    "sites": 20, "colours": 10, "inverse_temperature": 1.0, "instance": 3, "rows": (250, 1000, 4000, 16000, 64000),
    "seeds": 3, "widths": (8, 16, 32, 64), "depths": (1, 2, 3), "bare": True, "batch": 512,
    "steps": {400: (250, 1000), 1200: (250, 1000, 4000), 3000: (1000, 4000, 16000), 8000: (16000, 64000),
              24000: (64000,)},
    "narrow": (8000, 24000), "bare_longer": (9,), "recorded": 20, "held_out": 4000, "penalties": PENALTIES,
}  # fmt: skip
QUICK = {
    "sites": 10, "colours": 5, "inverse_temperature": 0.7, "instance": 3, "rows": (200, 1000, 4000),
    "seeds": 2, "widths": (16, 32), "depths": (1, 2, 3), "bare": False, "batch": 128,
    "steps": {400: (200, 1000, 4000)}, "narrow": (400,), "bare_longer": (), "recorded": 6, "held_out": 500,
    "penalties": (1.0, 3.0),
}  # fmt: skip
"""`steps`: how long transformers train, each time with a rate that falls to zero, and on how many sequences; where
several lengths are tried, the validation loss chooses. `narrow`: the lengths for embeddings below the widest one.
`bare_longer`: a bare layer, which learns slowly and steps fast, also trains so many times longer. (Layers with residuals
and MLPs do not gain: 72,000 steps on 64,000 sequences leave one layer where 24,000 do and overfit with two and three.)"""
FITTED = ("factored", "dense")
CURVES = ("curve", "steps")
SCORES = ("excess_loss", "map_correlation", "contact_precision", "coupling_error")


def compute(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    """Every learner on the same law: against the number of sequences, the embedding and the training steps."""
    said, pieces = QUICK if quick else FULL, pieces or Pieces()
    data, drawn = prepare(said)
    names, widths = networks(said), said["widths"]
    every = {(name, width): f"{name}, width {width}" for width in reversed(widths) for name in reversed(names)}

    def piece(name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        return pieces.get(name, said, lambda: make(data, drawn, *arguments, said))

    # First the fits: many short computations, which would wait for long ones; beside them one step of every network,
    # which compiles it.
    with threads() as pool:
        fitting = {kind: pool.submit(piece, kind, fits, kind) for kind in FITTED}
        ahead = [one for one, label in every.items() if not pieces.has(label, said)]
        wait([*fitting.values(), *(pool.submit(training, drawn, *one, 1, max(said["rows"]), said) for one in ahead)])
        runs = {one: pool.submit(piece, label, network, *one) for one, label in every.items()}
        fitted = {kind: run.result() for kind, run in fitting.items()}
        trained = {name: [runs[name, width].result() for width in widths] for name in names}
    return assemble(data, drawn, fitted, trained, said)


def prepare(said: dict[str, Any]) -> tuple[Planted, Sequences]:
    """The law, and sequences for all: a stretch of the pool for every seed, small training sets being its beginnings."""
    data = planted(said["instance"], said["sites"], said["colours"], said["inverse_temperature"])
    number = said["seeds"] * max(said["rows"])
    return data, draw_sequences(jax.random.key(said["instance"]), data, number, said["held_out"])


def networks(said: dict[str, Any]) -> list[str]:
    """The transformers that are trained: some depths, and one attention layer with nothing around it."""
    return [*(f"{d} layer{'s' * (d > 1)}" for d in said["depths"]), *(["bare layer"] if said["bare"] else [])]


def fits(data: Planted, drawn: Sequences, kind: str, said: dict[str, Any]) -> dict[str, np.ndarray]:
    """One kind of coupling model at every number of sequences and seed; a fit that did not converge is NaN."""
    shape = (len(said["rows"]), said["seeds"])
    out = {name: np.full(shape, np.nan) for name in SCORES}
    true, most = np.asarray(data.couplings), max(said["rows"])
    for r, rows in enumerate(said["rows"]):
        penalties = said["penalties"]
        for seed in range(said["seeds"]):
            mine = drawn._replace(train=drawn.train[seed * most : seed * most + rows])
            fit = learn_couplings(kind, mine, said["colours"], jax.random.key(seed), penalties=penalties)
            penalties = (fit.penalty,)  # the first seed chooses for all
            out["map"] = fit.map
            if fit.colours is not None:
                out["colours"] = fit.colours
            if fit.converged and fit.couplings is not None:
                out["excess_loss"][r, seed] = fit.test_loss - drawn.optimal
                out["map_correlation"][r, seed] = map_correlation(fit.map, true)
                out["contact_precision"][r, seed] = contact_precision(fit.map, true)
                out["coupling_error"][r, seed] = coupling_error(fit.couplings, data, said["inverse_temperature"])
    return out


def lengths(name: str, width: int, said: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """How many steps a network trains, and on how many sequences each time."""
    most = max(said["rows"])
    found = said["steps"] if width == max(said["widths"]) else dict.fromkeys(said["narrow"], (most,))
    longer = said["bare_longer"] if name == "bare layer" else ()
    return found | {factor * max(found): (most,) for factor in longer}


def network(data: Planted, drawn: Sequences, name: str, width: int, said: dict[str, Any]) -> dict[str, np.ndarray]:
    """Transformers of one kind: every seed with the most sequences and, at the largest width, with fewer too."""
    true, most = np.asarray(data.couplings), max(said["rows"])
    runs: dict[int, dict[str, np.ndarray]] = {}
    ends = {}
    for steps, some in lengths(name, width, said).items():
        for rows in some:
            run = training(drawn, name, width, steps, rows, said)
            runs[rows] = run if rows not in runs else _better(runs[rows], run)
            if rows == most:
                ends[steps] = (run["test_loss"] - drawn.optimal, run["validation_loss"])
    kept = [runs[rows] for rows in said["rows"] if rows in runs]
    return {
        "lengths": np.array(list(ends)),
        "ends": np.array(list(ends.values())),
        "excess_loss": np.stack([run["test_loss"] for run in kept]) - drawn.optimal,
        "map_correlation": np.array([[map_correlation(m, true) for m in run["maps"]] for run in kept]),
        "contact_precision": np.array([[contact_precision(m, true) for m in run["maps"]] for run in kept]),
        "trained": np.stack([run["length"] for run in kept]),
        "curve": kept[-1]["curve"].T - drawn.optimal,
        "steps": kept[-1]["steps"][0],
        "map": kept[-1]["maps"][-1],
    }


def training(
    drawn: Sequences, name: str, width: int, steps: int, rows: int, said: dict[str, Any]
) -> dict[str, np.ndarray]:
    """One training of some length on so many sequences, for every seed: what became of each, at its best validation loss.

    Always as many replicas as there are seeds: whatever the number of steps and of sequences, one compiled program."""
    number, seeds = networks(said).index(name), said["seeds"]
    run = learn_transformers(
        drawn.train, [rows] * seeds, drawn.validation, drawn.test, said["colours"],
        jax.random.key(1000 * number + width), first=[seed * max(said["rows"]) for seed in range(seeds)],
        depth=(*said["depths"], 1)[number], width=width, block="bare" if name == "bare layer" else "full",
        steps=steps, batch=said["batch"], recorded=said["recorded"],
    )  # fmt: skip
    return {
        "test_loss": run.test_loss,
        "validation_loss": run.validation_loss,
        "maps": run.maps,
        "curve": run.curve.T,
        "steps": np.tile(run.steps, (seeds, 1)),
        "length": np.full(seeds, steps),
    }


def _better(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Seed by seed the training of lower validation loss; curves, which may differ in length, are the other's."""
    first = one["validation_loss"] <= other["validation_loss"]
    chosen = {
        n: np.where(first.reshape(-1, *[1] * (v.ndim - 1)), one[n], v) for n, v in other.items() if n not in CURVES
    }
    return chosen | {n: other[n] for n in CURVES}


def assemble(data: Planted, drawn: Sequences, fitted: Any, trained: Any, said: dict[str, Any]) -> dict[str, Any]:
    """All results as labelled datasets."""
    import xarray as xr

    names, best = list(trained), [runs[-1] for runs in trained.values()]
    parts = [*fitted.values(), *best]
    sequences = xr.Dataset(
        {n: (("learner", "sequences", "seed"), np.stack([p[n] for p in parts])) for n in SCORES[:3]}
        | {
            "trained": (("network", "sequences", "seed"), np.stack([run["trained"] for run in best])),
            "coupling_error": (
                ("fitted", "sequences", "seed"),
                np.stack([p["coupling_error"] for p in fitted.values()]),
            ),
        },
        {"learner": [*FITTED, *names], "fitted": list(FITTED), "network": names, "sequences": list(said["rows"])},
    )
    every = sorted({int(steps) for runs in trained.values() for run in runs for steps in run["lengths"]})
    ends = np.full((len(trained), len(said["widths"]), len(every), 2, said["seeds"]), np.nan)
    for i, runs in enumerate(trained.values()):
        for j, run in enumerate(runs):
            ends[i, j, np.searchsorted(every, run["lengths"])] = run["ends"]
    best_width = [[run["excess_loss"][-1] for run in runs] for runs in trained.values()]
    chosen = [[run["trained"][-1] for run in runs] for runs in trained.values()]
    by_length = ("network", "width", "length", "seed")
    width = xr.Dataset(
        {
            "excess_loss": (("network", "width", "seed"), np.array(best_width)),
            "trained": (("network", "width", "seed"), np.array(chosen)),
            "excess_by_length": (by_length, ends[:, :, :, 0]),
            "validation_by_length": (by_length, ends[:, :, :, 1]),
        },
        {"network": names, "width": list(said["widths"]), "length": every},
    )
    recorded = max(len(run["steps"]) for run in best)
    length = xr.Dataset(
        {
            "step": (("network", "record"), np.stack([_longer(run["steps"], recorded) for run in best])),
            "curve": (("network", "record", "seed"), np.stack([_longer(run["curve"], recorded) for run in best])),
        },
        {"network": names},
    )
    sites, colours = ("site", "partner"), ("colour", "other")
    maps = xr.Dataset(
        {
            "couplings": (sites, np.asarray(data.couplings)),
            "factored_map": (sites, fitted["factored"]["map"]),
            "dense_map": (sites, fitted["dense"]["map"]),
            "attention_map": (("network", *sites), np.stack([run["map"] for run in best])),
            "colour_matrix": (colours, np.asarray(zero_sum_colours(data.colours))),
            "factored_colours": (colours, fitted["factored"]["colours"]),
        },
        {"network": names},
    )
    fields = ("sites", "colours", "instance", "inverse_temperature")
    attributes = {
        "study": json.dumps(
            {"models": [{"model": "masked-language"} | {k: said[k] for k in fields}], "settings": said}
        ),
        "optimal_loss": drawn.optimal,
        "mixed": int(drawn.mixed),
        **provenance(),
    }
    return {
        name: part.assign_attrs(attributes)
        for name, part in {"sequences": sequences, "width": width, "length": length, "maps": maps}.items()
    }


def _longer(values: np.ndarray, number: int) -> np.ndarray:
    """So many rows, NaN behind the last."""
    missing = np.full((number - len(values), *values.shape[1:]), np.nan)
    return np.concatenate([values, missing])


def picture(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    rows, width, length, maps = (data[name] for name in ("sequences", "width", "length", "maps"))
    optimal = rows.attrs["optimal_loss"]
    figure = plt.figure(figsize=(12.4, 6.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    top, bottom = parts
    left, middle, right = top.subplots(1, 3)
    for k, learner in enumerate(rows.learner.values):
        style = {"fmt": f"{MARKERS[k]}-", "color": COLOURS[k], "markersize": 4, "linewidth": 1.2}
        _line(left, rows.sequences, rows.excess_loss.sel(learner=learner) + optimal, label=_name(learner), **style)
    left.axhline(optimal, color=INK, linestyle="--", linewidth=1, label="true conditionals")
    left.set(xlabel="training sequences $M$", ylabel="masked loss on fresh sequences (nats)")
    left.set_title("learning curves")
    log_axis(left.xaxis)
    left.legend(fontsize=8)
    for k, network in enumerate(width.network.values):
        style = {"fmt": f"{MARKERS[k + 2]}-", "color": COLOURS[k + 2], "markersize": 4, "linewidth": 1.2}
        mine, run = width.sel(network=network), length.sel(network=network)
        _line(middle, width.width, mine.excess_loss, label=network, **style)
        # Hollow: only shorter trainings than at the largest width were tried.
        tried = width.length.where(np.isfinite(mine.excess_by_length).all("seed")).max("length")
        short = (tried < tried.max()).values
        middle.plot(width.width[short], mine.excess_loss.mean("seed")[short], MARKERS[k + 2], color=COLOURS[k + 2],
                    markerfacecolor="white", markersize=4, zorder=3)  # fmt: skip
        right.plot(run.step[1:], run.curve.mean("seed")[1:], color=COLOURS[k + 2], alpha=0.4)
        _line(right, width.length, mine.excess_by_length.isel(width=-1), **style)
    best = float(rows.excess_loss.sel(learner="factored").mean("seed").dropna("sequences")[-1])
    for axis in (middle, right):
        axis.axhline(max(best, 1e-5), color=COLOURS[0], linestyle="--", linewidth=1, label="factored attention")
        log_axis(axis.xaxis)
        axis.set_yscale("log")
        axis.set_ylabel("loss above the optimal one")
    most = int(rows.sequences[-1])
    middle.set(xlabel="embedding width", title=f"transformers, $M = {_number(most)}$")
    right.set(xlabel="steps of Adam", title=f"width {int(width.width[-1])}: a training, and ends of all (markers)")
    middle.legend(fontsize=8)
    panels = bottom.subplots(1, 6)
    shown = (
        ("couplings", "true $J$"), ("factored_map", "factored: map $A$"), ("dense_map", "dense: contact scores"),
        ("attention_map", "1 layer: attention"), ("colour_matrix", "true $U$"), ("factored_colours", "factored: values $V$"),
    )  # fmt: skip
    for panel, (name, title) in zip(panels, shown, strict=True):
        values = maps[name].isel(network=0) if name == "attention_map" else maps[name]
        signed = "colour" in values.dims
        limit = float(np.abs(values).max())
        panel.imshow(values, cmap="RdBu_r" if signed else "Greys", vmin=-limit if signed else 0, vmax=limit)
        panel.set_title(title, fontsize=9)
        panel.set(xticks=[], yticks=[], xlabel="colour" if signed else "site")
        panel.grid(visible=False)
    figure.suptitle("What transformers learn from masked language modelling of Potts sequences", fontsize=11)
    return figure


def _name(learner: str) -> str:
    return {"factored": "factored attention", "dense": "dense couplings"}.get(learner, f"transformer, {learner}")


def _number(value: int) -> str:
    return f"{value:,}".replace(",", r"\,")


def _line(axis: Any, x: Any, values: Any, **style: Any) -> None:
    known = np.isfinite(values).all("seed").values
    values = values[{d: known for d in values.dims if d != "seed"}]
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    axis.errorbar(x[known], values.mean("seed"), error, **style)


RECIPES = {"what-transformers-learn": Recipe(compute, picture, resumes=True)}
