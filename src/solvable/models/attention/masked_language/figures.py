"""What do transformers learn from masked language modelling? Factored attention, dense couplings and transformers on one axis."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import as_completed
from typing import Any

import numpy as np

from solvable.methods.sequences.potts import zero_sum_colours
from solvable.render.figures import Early, Recipe
from solvable.render.pieces import Pieces, threads
from solvable.render.plots import COLOURS, INK, MARKERS, log_axis
from solvable.study import Study, provenance

from ..potts_attention.model import PottsAttention
from . import joint
from .joint import FITTED, SCORES
from .learners import PENALTIES
from .sequences import Planted, Sequences

FULL = {
    "sites": 20, "colours": 10, "inverse_temperature": 1.0, "instance": 3, "rows": (250, 1000, 4000, 16000, 64000),
    "seeds": 3, "widths": (8, 16, 32, 64), "depths": (1, 2, 3), "bare": True, "batch": 512,
    "steps": {400: (250, 1000), 1200: (250, 1000, 4000), 3000: (1000, 4000, 16000), 8000: (16000, 64000),
              24000: (64000,)},
    "narrow": (8000, 24000), "bare_longer": (9,), "recorded": 20, "held_out": 4000, "penalties": PENALTIES,
}  # fmt: skip
QUICK = {
    "sites": 10, "colours": 5, "inverse_temperature": 0.7, "instance": 3, "rows": (200, 1000, 4000),
    "seeds": 2, "widths": (32,), "depths": (1, 2), "bare": False, "batch": 128,
    "steps": {400: (200, 1000, 4000)}, "narrow": (), "bare_longer": (), "recorded": 6, "held_out": 500,
    "penalties": (1.0, 3.0),
    "exact": {"inverse_temperature": 2.0, "from": 0.7, "to": 20.0, "samples": (1.5, 6.0), "size": 200, "seeds": 8},
}  # fmt: skip
"""`steps`: how long transformers train, each time with a rate that falls to zero, and on how many sequences; where
several lengths are tried, the validation loss chooses. `narrow`: the lengths for embeddings below the widest one.
`bare_longer`: a bare layer, which learns slowly and steps fast, also trains so many times longer. (Layers with residuals
and MLPs do not gain: 72,000 steps on 64,000 sequences leave one layer where 24,000 do and overfit with two and three.)
`exact`: the learning curve of one row of factored attention, which is known in closed form, and rows that are trained."""
EXACT = ("test_loss", "train_loss", "optimal_loss")


def compute(quick: bool, pieces: Pieces | None = None, early: Early | None = None) -> dict[str, Any]:
    """Every learner on the same law: against the number of sequences, the embedding and the training steps."""
    settings, pieces = QUICK if quick else FULL, pieces or Pieces()
    names, widths = joint.networks(settings), settings["widths"]
    every = {(name, width): f"{name}, width {width}" for width in reversed(widths) for name in reversed(names)}
    if early is not None:
        early.say("Computing what can be known exactly; then networks are trained to predict masked tokens.")
    with threads() as pool:
        curve = (
            pool.submit(pieces.get, "exact", settings, lambda: exact_curve(settings)) if "exact" in settings else None
        )
        data, drawn = joint.prepare(settings)
        exact = {} if curve is None else dict(curve.result())
        fitted: dict[str, Any] = {kind: joint.unfitted(settings) for kind in FITTED}
        trained = {name: [joint.untrained(name, width, settings) for width in widths] for name in names}

        def show(sentence: str) -> None:
            if early is not None:
                early.show(assemble(data, drawn, fitted, trained, exact, settings), sentence)

        def piece(name: str, make: Callable[..., Any], *arguments: Any) -> Any:
            return pieces.get(name, settings, lambda: make(data, drawn, *arguments, settings))

        show("what is exact; now factored attention, dense couplings and transformers are trained.")
        # First the fits: many short computations, which would wait for long ones; beside them one step of every network,
        # which compiles it.
        fitting = {pool.submit(piece, kind, joint.fits, kind): kind for kind in FITTED}
        rows = pool.submit(pieces.get, "rows", settings, lambda: trained_rows(settings)) if exact else None
        ahead = [one for one, label in every.items() if not pieces.has(label, settings)]
        compiling = [pool.submit(joint.training, drawn, *one, 1, max(settings["rows"]), settings) for one in ahead]
        for run in as_completed(fitting):
            fitted[fitting[run]] = run.result()
        exact |= {} if rows is None else rows.result()
        show("factored attention and dense couplings are there.")
        for run in compiling:
            run.result()
        runs = {pool.submit(piece, label, joint.transformers, *one): one for one, label in every.items()}
        for k, run in enumerate(as_completed(runs), start=1):
            name, width = runs[run]
            trained[name][widths.index(width)] = run.result()
            if k < len(runs) and width == max(widths):
                show(f"transformers of {name} are there.")
    return assemble(data, drawn, fitted, trained, exact, settings)


def _rows(settings: dict[str, Any], samples: Any, **simulated: Any) -> Any:
    """A study of rows of factored attention on their own, which `potts-attention` solves."""
    row = PottsAttention(inverse_temperature=settings["exact"]["inverse_temperature"])
    return Study(row, {"samples": samples}, **simulated).run(progress=False)


def exact_curve(settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """The losses of one row of factored attention, by the theory."""
    samples = np.geomspace(settings["exact"]["from"], settings["exact"]["to"], 25)
    found = _rows(settings, samples)
    return {"samples": samples} | {name: found[f"{name}_theory"].values for name in EXACT}


def trained_rows(settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """The same by training such rows on sequences; one that did not converge is NaN."""
    at = settings["exact"]
    found = _rows(settings, at["samples"], sizes=[at["size"]], seeds=at["seeds"])
    seen = {f"{name}_trained": found[f"{name}_simulated"].isel(size=0).values for name in EXACT[:2]}
    return {"trained_samples": np.array(at["samples"]), **seen}


def assemble(
    data: Planted, drawn: Sequences, fitted: Any, trained: Any, exact: dict[str, np.ndarray], settings: dict[str, Any]
) -> dict[str, Any]:
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
        {"learner": [*FITTED, *names], "fitted": list(FITTED), "network": names, "sequences": list(settings["rows"])},
    )
    every = sorted({int(steps) for runs in trained.values() for run in runs for steps in run["lengths"]})
    ends = np.full((len(trained), len(settings["widths"]), len(every), 2, settings["seeds"]), np.nan)
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
        {"network": names, "width": list(settings["widths"]), "length": every},
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
    parts = {"sequences": sequences, "width": width, "length": length, "maps": maps}
    fields = ("sites", "colours", "instance", "inverse_temperature")
    models = [{"model": "masked-language"} | {k: settings[k] for k in fields}]
    if exact:
        at = ("samples_trained", "seed")
        points = {n: (at, v) for n, v in exact.items() if n.endswith("_trained")}
        where = {"samples": exact["samples"]} | ({"samples_trained": exact["trained_samples"]} if points else {})
        parts["exact"] = xr.Dataset({n: ("samples", exact[n]) for n in EXACT} | points, where)
        models.append({"model": "potts-attention", "inverse_temperature": settings["exact"]["inverse_temperature"]})
        parts["exact"].attrs["size"] = settings["exact"]["size"]
    attributes = {
        "study": json.dumps({"models": models, "settings": settings}),
        "optimal_loss": drawn.optimal,
        "mixed": int(drawn.mixed),
        **provenance(),
    }
    return {name: part.assign_attrs(attributes) for name, part in parts.items()}


def _longer(values: np.ndarray, number: int) -> np.ndarray:
    """So many rows, NaN behind the last."""
    missing = np.full((number - len(values), *values.shape[1:]), np.nan)
    return np.concatenate([values, missing])


def picture(data: dict[str, Any]) -> Any:
    """Learning curves, embeddings (or the exact curve of one row) and trainings above; maps and colours below.

    Of an early picture's data much is unknown (NaN), and left out."""
    import matplotlib.pyplot as plt

    rows, width, length, maps = (data[name] for name in ("sequences", "width", "length", "maps"))
    figure = plt.figure(figsize=(12.4, 6.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    top, bottom = parts
    if "exact" in data:
        first, left, right = top.subplots(1, 3)
        _draw_exact(first, data["exact"])
        shown = (right,)
    else:
        left, middle, right = top.subplots(1, 3)
        _draw_widths(middle, rows, width)
        shown = (middle, right)
    _draw_learning_curves(left, rows)
    _draw_trainings(right, width, length)
    best = rows.excess_loss.sel(learner="factored").mean("seed").dropna("sequences")
    for axis in shown:
        if best.size:
            floor = max(float(best[-1]), 1e-5)
            axis.axhline(floor, color=COLOURS[0], linestyle="--", linewidth=1, label="factored attention")
        axis.set_ylabel("loss above the optimal one")
        if not axis.has_data():
            _in_training(axis)
            continue
        log_axis(axis.xaxis)
        axis.set_yscale("log")
        if axis is shown[0]:
            axis.legend(fontsize=8)
    panels = bottom.subplots(1, 6)
    shown = (
        ("couplings", "true $J$"), ("factored_map", "factored: map $A$"), ("dense_map", "dense: contact scores"),
        ("attention_map", "1 layer: attention"), ("colour_matrix", "true $U$"), ("factored_colours", "factored: values $V$"),
    )  # fmt: skip
    for panel, (name, title) in zip(panels, shown, strict=True):
        values = maps[name].isel(network=0) if name == "attention_map" else maps[name]
        signed = "colour" in values.dims
        panel.set_title(title, fontsize=9)
        panel.set(xlabel="colour" if signed else "site")
        panel.grid(visible=False)
        limit = float(np.abs(values).max())
        if np.isfinite(limit):
            panel.imshow(values, cmap="RdBu_r" if signed else "Greys", vmin=-limit if signed else 0, vmax=limit)
        else:
            panel.set_box_aspect(1)
            _in_training(panel)
        panel.set(xticks=[], yticks=[])
    figure.suptitle("What transformers learn from masked language modelling of Potts sequences", fontsize=11)
    return figure


def _style(k: int) -> dict[str, Any]:
    return {"fmt": f"{MARKERS[k]}-", "color": COLOURS[k], "markersize": 4, "linewidth": 1.2}


def _in_training(axis: Any) -> None:
    axis.text(0.5, 0.5, "in training", transform=axis.transAxes, ha="center", va="center", color="0.5")
    axis.set(xticks=[], yticks=[])


def _draw_exact(axis: Any, data: Any) -> None:
    """One row of factored attention: the theory, and what trained rows do."""
    words = {"test_loss": "fresh sequences", "train_loss": "training sequences"}
    for k, (name, word) in enumerate(words.items()):
        axis.plot(data.samples, data[name], color=COLOURS[k], label=word)
        if f"{name}_trained" in data:
            style = {"fmt": MARKERS[k], "color": COLOURS[k], "markersize": 5}
            _line(axis, data.samples_trained, data[f"{name}_trained"], **style)
    axis.plot(data.samples, data.optimal_loss, color=INK, linestyle="--", linewidth=1, label="true conditionals")
    if "test_loss_trained" in data:
        axis.plot([], [], MARKERS[0], color="0.4", label=f"trained, $N = {int(data.attrs['size'])}$")
    axis.set(xlabel="training sequences per site $M/N$", ylabel="masked loss (nats)")
    axis.set_title("one row of factored attention, exact (lines)")
    log_axis(axis.xaxis)
    axis.legend(fontsize=8)


def _draw_learning_curves(axis: Any, rows: Any) -> None:
    optimal = rows.attrs["optimal_loss"]
    for k, learner in enumerate(rows.learner.values):
        loss = rows.excess_loss.sel(learner=learner) + optimal
        if np.isfinite(loss).any():
            _line(axis, rows.sequences, loss, label=_name(learner), **_style(k))
    axis.axhline(optimal, color=INK, linestyle="--", linewidth=1, label="true conditionals")
    axis.set(xlabel="training sequences $M$", ylabel="masked loss on fresh sequences (nats)")
    axis.set_title("learning curves")
    if np.isnan(rows.excess_loss).all():
        axis.set(
            xlim=(0.85 * int(rows.sequences[0]), 1.15 * int(rows.sequences[-1])), ylim=(0.95 * optimal, 1.2 * optimal)
        )
        axis.text(0.5, 0.5, "in training", transform=axis.transAxes, ha="center", va="center", color="0.5")
    log_axis(axis.xaxis)
    axis.legend(fontsize=8)


def _draw_widths(axis: Any, rows: Any, width: Any) -> None:
    for k, network in enumerate(width.network.values, start=2):
        mine = width.sel(network=network)
        if np.isnan(mine.excess_loss).all():
            continue
        _line(axis, width.width, mine.excess_loss, label=network, **_style(k))
        # Hollow: only shorter trainings than at the largest width were tried.
        tried = width.length.where(np.isfinite(mine.excess_by_length).all("seed")).max("length")
        short = (tried < tried.max()).values
        axis.plot(width.width[short], mine.excess_loss.mean("seed")[short], MARKERS[k], color=COLOURS[k],
                  markerfacecolor="white", markersize=4, zorder=3)  # fmt: skip
    axis.set(xlabel="embedding width", title=f"transformers, $M = {_number(int(rows.sequences[-1]))}$")


def _draw_trainings(axis: Any, width: Any, length: Any) -> None:
    for k, network in enumerate(width.network.values, start=2):
        mine, run = width.sel(network=network), length.sel(network=network)
        if np.isnan(run.curve).all():
            continue
        axis.plot(run.step[1:], run.curve.mean("seed")[1:], color=COLOURS[k], alpha=0.4)
        _line(axis, width.length, mine.excess_by_length.isel(width=-1), label=network, **_style(k))
    axis.set(xlabel="steps of Adam", title=f"width {int(width.width[-1])}: a training, and ends of all (markers)")


def _name(learner: str) -> str:
    return {"factored": "factored attention", "dense": "dense couplings"}.get(learner, f"transformer, {learner}")


def _number(value: int) -> str:
    return f"{value:,}".replace(",", r"\,")


def _line(axis: Any, x: Any, values: Any, **style: Any) -> None:
    known = np.isfinite(values).all("seed").values
    values = values[{d: known for d in values.dims if d != "seed"}]
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    axis.errorbar(x[known], values.mean("seed"), error, **style)


RECIPES = {
    "what-transformers-learn": Recipe(
        compute,
        picture,
        resumes=True,
        grows=True,
        sentence=(
            "Masked loss of factored attention, dense couplings and transformers against the number of "
            "sequences, and their maps."
        ),
    )
}
