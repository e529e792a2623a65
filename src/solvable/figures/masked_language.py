"""What do transformers learn from masked language modelling? Factored attention, dense couplings and transformers on one axis."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from ..methods.potts import zero_sum_colours
from ..models.attention.masked_language import (
    Learnt,
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

FULL = {
    "sites": 20, "colours": 10, "inverse_temperature": 1.0, "instance": 3, "rows": (250, 1000, 4000, 16000, 64000),
    "seeds": 3, "width": 64, "widths": (8, 16, 32, 64, 128), "depths": (1, 2, 3), "steps": 16000, "held_out": 4000,
}  # fmt: skip
QUICK = {
    "sites": 10, "colours": 5, "inverse_temperature": 0.7, "instance": 3, "rows": (200, 1000, 5000),
    "seeds": 2, "width": 32, "widths": (8, 32), "depths": (1, 2, 3), "steps": 600, "held_out": 1000,
}  # fmt: skip
LEARNERS = ("factored", "dense")


def compute(quick: bool, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every learner on the same law: against the number of sequences, the embedding and the training steps."""
    import xarray as xr

    said = {**(QUICK if quick else FULL), **(settings or {})}
    data = planted(said["instance"], said["sites"], said["colours"], said["inverse_temperature"])
    rows, seeds, most = said["rows"], said["seeds"], max(said["rows"])
    # A stretch of the pool for every seed; smaller training sets are its beginnings.
    drawn = draw_sequences(jax.random.key(said["instance"]), data, seeds * most, said["held_out"])
    parts = [_fits(data, drawn, kind, said) for kind in LEARNERS]
    by_rows, by_width, curves, maps = _networks(data, drawn, said)
    learners = [*LEARNERS, *(f"{d} layer{'s' * (d > 1)}" for d in said["depths"])]
    names = ("excess_loss", "map_correlation", "contact_precision")
    against_rows = xr.Dataset(
        {n: (("learner", "sequences", "seed"), np.stack([p[n] for p in parts] + by_rows[n])) for n in names}
        | {"coupling_error": (("fitted", "sequences", "seed"), np.stack([p["coupling_error"] for p in parts]))},
        {"learner": learners, "fitted": list(LEARNERS), "sequences": list(rows)},
    )
    blocks = [*(f"{d} layer{'s' * (d > 1)}" for d in said["depths"]), "bare layer"]
    against_width = xr.Dataset(
        {
            "excess_loss": (("network", "width", "seed"), by_width),
            "curve": (("network", "width", "step", "seed"), curves[1]),
        },
        {"network": blocks, "width": list(said["widths"]), "step": curves[0]},
    )
    true = {"couplings": np.asarray(data.couplings), "colour_matrix": np.asarray(parts[0]["true_colours"])}
    learnt = {"factored_map": parts[0]["map"], "factored_colours": parts[0]["colours"], "dense_map": parts[1]["map"]}
    shown = xr.Dataset(
        {
            n: (("site", "partner") if v.shape[0] == said["sites"] else ("colour", "other"), v)
            for n, v in (true | learnt).items()
        }
        | {"attention_map": (("layers", "site", "partner"), maps)},
        {"layers": list(said["depths"])},
    )
    model = {
        "model": "masked-language",
        **{k: v for k, v in said.items() if k in ("sites", "colours", "instance", "inverse_temperature")},
    }
    attributes = {
        "study": json.dumps({"models": [model], "settings": said}),
        "optimal_loss": drawn.optimal,
        "mixed": int(drawn.mixed),
        **provenance(),
    }
    return {n: d.assign_attrs(attributes) for n, d in
            {"sequences": against_rows, "width": against_width, "maps": shown}.items()}  # fmt: skip


def _fits(data: Planted, drawn: Sequences, kind: str, said: dict[str, Any]) -> dict[str, Any]:
    """One kind of coupling model at every number of sequences and seed; a fit that did not converge is NaN."""
    shape = (len(said["rows"]), said["seeds"])
    names = ("excess_loss", "map_correlation", "contact_precision", "coupling_error")
    out: dict[str, Any] = {name: np.full(shape, np.nan) for name in names}
    true, most = np.asarray(data.couplings), max(said["rows"])
    for r, rows in enumerate(said["rows"]):
        for seed in range(said["seeds"]):
            mine = drawn._replace(train=drawn.train[seed * most : seed * most + rows])
            fit: Learnt = learn_couplings(kind, mine, said["colours"], jax.random.key(seed))
            out["map"], out["colours"] = fit.map, fit.colours
            if fit.converged and fit.couplings is not None:
                out["excess_loss"][r, seed] = fit.test_loss - drawn.optimal
                out["map_correlation"][r, seed] = map_correlation(fit.map, true)
                out["contact_precision"][r, seed] = contact_precision(fit.map, true)
                out["coupling_error"][r, seed] = coupling_error(fit.couplings, data, said["inverse_temperature"])
    out["true_colours"] = zero_sum_colours(data.colours)
    return out


def _networks(data: Planted, drawn: Sequences, said: dict[str, Any]) -> Any:
    """Transformers: all numbers of sequences at one width, and all widths with the most sequences."""
    rows, seeds, widths = said["rows"], said["seeds"], said["widths"]
    true = np.asarray(data.couplings)
    by_rows: dict[str, list[Any]] = {"excess_loss": [], "map_correlation": [], "contact_precision": []}

    def learn(number, depth, width):
        block = "full" if number < len(said["depths"]) else "bare"
        everything = width == said["width"] and block == "full"
        sizes = np.repeat(rows if everything else [max(rows)], seeds).tolist()
        return learn_transformers(
            drawn.train, sizes, drawn.validation, drawn.test, said["colours"], jax.random.key(1000 * number + width),
            first=[(r % seeds) * max(rows) for r in range(len(sizes))], depth=depth, width=width, block=block,
            steps=said["steps"])  # fmt: skip

    # Compilation takes longer than training on a GPU, and several programs compile at once.
    with ThreadPoolExecutor(1 if jax.default_backend() == "cpu" else 6) as pool:
        asked = [[pool.submit(learn, n, d, w) for w in widths] for n, d in enumerate((*said["depths"], 1))]
        runs = [[job.result() for job in jobs] for jobs in asked]
    maps = []
    for jobs in runs[:-1]:
        run = jobs[widths.index(said["width"])]
        by_rows["excess_loss"].append(run.test_loss.reshape(-1, seeds) - drawn.optimal)
        for name, score in (("map_correlation", map_correlation), ("contact_precision", contact_precision)):
            by_rows[name].append(np.array([score(m, true) for m in run.maps]).reshape(-1, seeds))
        maps.append(run.maps[-1])
    excess = [[run.test_loss[-seeds:] - drawn.optimal for run in jobs] for jobs in runs]
    curves = [[run.curve[:, -seeds:] - drawn.optimal for run in jobs] for jobs in runs]
    steps = runs[0][0].steps
    return by_rows, np.array(excess), (steps, np.array(curves)), np.array(maps)


def picture(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    rows, width, maps = data["sequences"], data["width"], data["maps"]
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
        _line(middle, width.width, width.excess_loss.sel(network=network), label=network, **style)
        last = width.curve.sel(network=network).isel(width=-1)
        right.plot(width.step[1:], last.mean("seed")[1:], color=COLOURS[k + 2], label=network)
    best = float(rows.excess_loss.sel(learner="factored").isel(sequences=-1).mean())
    for axis in (middle, right):
        axis.axhline(max(best, 1e-5), color=COLOURS[0], linestyle="--", linewidth=1, label="factored attention")
        log_axis(axis.xaxis)
        axis.set_yscale("log")
        axis.set_ylabel("loss above the optimal one")
    most = int(rows.sequences[-1])
    middle.set(xlabel="embedding width", title=f"transformers, $M = {most:,}$".replace(",", r"\,"))
    right.set(xlabel="steps of Adam", title=f"training, width {int(width.width[-1])}")
    middle.legend(fontsize=8)
    panels = bottom.subplots(1, 6)
    shown = (
        ("couplings", "true $J$"), ("factored_map", "factored: map $A$"), ("dense_map", "dense: contact scores"),
        ("attention_map", "1 layer: attention"), ("colour_matrix", "true $U$"), ("factored_colours", "factored: values $V$"),
    )  # fmt: skip
    for panel, (name, title) in zip(panels, shown, strict=True):
        values = maps[name].isel(layers=0) if name == "attention_map" else maps[name]
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


def _line(axis: Any, x: Any, values: Any, **style: Any) -> None:
    error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    axis.errorbar(x, values.mean("seed"), error, **style)


RECIPES = {"what-transformers-learn": Recipe(compute, picture)}
