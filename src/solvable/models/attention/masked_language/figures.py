"""What do transformers learn from masked language modelling? Factored attention, dense couplings and transformers on one axis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from typing import Any

import numpy as np

from solvable.methods.sequences.potts import zero_sum_colours
from solvable.render.figures import Early, Recipe
from solvable.render.pieces import Pieces, threads
from solvable.render.plots import COLOURS, MARKERS, log_axis, standard_error
from solvable.study import Study, provenance

from ..potts_attention.model import PottsAttention
from .model import MaskedLanguage
from .sequences import planted

FULL = {
    "law": {"sites": 20, "colours": 10, "inverse_temperature": 1.0, "instance": 3, "held_out": 4000},
    "sequences": (250, 1000, 4000, 16000, 64000), "seeds": 3, "widths": (8, 16, 32, 64),
    "networks": ("1 layer", "2 layers", "3 layers", "bare layer"),
    "steps": {400: (250, 1000), 1200: (250, 1000, 4000), 3000: (1000, 4000, 16000), 8000: (16000, 64000),
              24000: (64000,)},
    "narrow": (8000, 24000), "bare": (216_000,), "training": {"batch": 512, "recorded": 20},
    "penalties": (0.3, 1.0, 3.0, 10.0),
    "exact": {"inverse_temperature": 2.0, "low": 0.7, "high": 20.0, "samples": (1.0, 2.0, 4.0, 8.0, 16.0), "size": 200,
              "seeds": 8},
}  # fmt: skip
QUICK = {
    "law": {"sites": 10, "colours": 5, "inverse_temperature": 0.7, "instance": 3, "held_out": 500},
    "sequences": (200, 1000, 4000), "seeds": 2, "widths": (32,), "networks": ("1 layer", "2 layers"),
    "steps": {400: (200, 1000, 4000)}, "narrow": (), "bare": (), "training": {"batch": 128, "recorded": 6},
    "penalties": (1.0, 3.0),
    "exact": {"inverse_temperature": 2.0, "low": 0.7, "high": 20.0, "samples": (1.5, 6.0), "size": 200, "seeds": 8},
}  # fmt: skip
"""`steps`: how long transformers train, each time with a rate that decays to zero, and on how many sequences; of
several lengths, the validation loss chooses one. `narrow`: the lengths for embeddings below the widest one.
`bare`: further lengths for a bare layer, which learns slowly but steps fast. (Layers with residuals and MLPs gain nothing:
72,000 steps on 64,000 sequences do no better than 24,000 for one layer, and overfit for two and three.)
`exact`: the learning curve of one row of factored attention, which is known in closed form, and trained rows."""
FITTED = ("factored", "dense")
SCORES = ("excess_loss", "map_correlation", "contact_precision", "coupling_error")
EXACT = ("test_loss", "train_loss", "optimal_loss")


# --- the studies ----------------------------------------------------------------------------------------------------------


def studies(settings: dict[str, Any]) -> dict[str, list[Study]]:
    """The studies behind the figure, by name of the learner.

    Every study of a learner has the dimensions arm (one), embedding, size (number of sequences) and seed; those of a transformer
    differ in the number of steps. Cells of equal seed and size share their sequences for all learners.
    """
    model = MaskedLanguage(**settings["law"], **settings["training"], penalties=np.array(settings["penalties"]))
    arms, seeds, widths = MaskedLanguage.arms_declared, settings["seeds"], settings["widths"]

    def study(name: str, sizes: Any, widths: Any, **changes: Any) -> Study:
        over = {"embedding": list(widths)}
        return Study(model.replace(**changes), over, arms={name: arms[name]}, sizes=sizes, seeds=seeds)

    found = {name: [study(name, settings["sequences"], widths[-1:])] for name in FITTED}
    most = settings["sequences"][-1:]
    for name in settings["networks"]:
        runs = [study(name, sizes, widths[-1:], steps=steps) for steps, sizes in settings["steps"].items()]
        if len(widths) > 1:
            runs += [study(name, most, widths[:-1], steps=steps) for steps in settings["narrow"]]
        if name.startswith("bare"):
            runs += [study(name, most, widths, steps=steps) for steps in settings["bare"]]
        found[name] = runs
    return found | _exact_studies(**settings["exact"])


def _exact_studies(inverse_temperature: float, low: float, high: float, samples: Any, size: int, seeds: int) -> Any:
    """One row of factored attention alone, which `potts-attention` solves: the theory, and trained rows."""
    row = PottsAttention(inverse_temperature=inverse_temperature)
    return {
        "exact curve": [Study(row, {"samples": np.geomspace(low, high, 25)})],
        "exact rows": [Study(row, {"samples": samples}, sizes=[size], seeds=seeds)],
    }


def compute(quick: bool, pieces: Pieces | None = None, early: Early | None = None) -> dict[str, Any]:
    """Every learner on the same law: against the number of sequences, the embedding and the training steps.

    Partial results are shown early: first the exact curve, then fits, then transformers.
    """
    settings, pieces = QUICK if quick else FULL, pieces or Pieces()
    every = studies(settings)
    results: dict[str, list[Any]] = {}

    def run(names: Iterable[str]) -> Iterator[str]:
        """Run learners side by side, and yield the name of each when it is done."""
        with threads() as pool:
            tasks = {pool.submit(pieces.run, name, every[name]): name for name in names}
            for task in as_completed(tasks):
                results[tasks[task]] = task.result()
                yield tasks[task]

    def show(sentence: str) -> None:
        if early is not None:
            early.show(assemble(every, results, settings), sentence)

    if early is not None:
        early.say("Computing the exact results; networks that predict masked tokens are trained next.")
    list(run(["exact curve"]))
    show("the exact results are ready; factored attention, dense couplings and transformers are trained next.")
    list(run(["exact rows", *FITTED]))
    show("factored attention and dense couplings are ready.")
    networks = settings["networks"]
    for number, name in enumerate(run(reversed(networks)), start=1):
        if number < len(networks):
            show(f"transformers of {name} are ready.")
    return assemble(every, results, settings)


# --- the data of the figure -----------------------------------------------------------------------------------------------


def _measured(some: list[Study], found: list[Any], settings: dict[str, Any]) -> Any:
    """All training runs of one learner by length, width, number of sequences and seed; NaN where there is none yet."""
    import xarray as xr

    (arm,) = some[0].arms
    model: Any = some[0].variant_at({"arm": arm, "embedding": settings["widths"][-1]})
    at = {"length": sorted({_steps(s) for s in some}), "width": list(settings["widths"]),
          "sequences": list(settings["sequences"]), "seed": list(range(settings["seeds"]))}  # fmt: skip
    inside, names = model.coordinates(), model.observables()
    whole = {n: at | {d: inside[d] for d in o.dims} for n, o in names.items()}
    whole = xr.Dataset({n: (tuple(c), np.full([len(v) for v in c.values()], np.nan)) for n, c in whole.items()}, at)
    for study, data in zip(some, found, strict=False):
        here = {"length": _steps(study), "width": study.over["embedding"], "sequences": study.sizes}
        for name in names:
            whole[name].loc[here] = data[f"{name}_simulated"].isel(arm=0).values
    return whole


def _steps(study: Study) -> int:
    return next(iter(study.models.values())).steps  # type: ignore[attr-defined]


def assemble(every: dict[str, list[Study]], results: dict[str, list[Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """All results so far as labelled datasets; of several training lengths, the validation loss chooses one."""
    import xarray as xr

    networks = list(settings["networks"])
    learners = [*FITTED, *networks]
    tried = {name: _measured(every[name], results.get(name, []), settings) for name in learners}
    best = {name: one.isel(length=one.validation_loss.fillna(np.inf).argmin("length")) for name, one in tried.items()}
    best = {name: one.assign(trained=one.length.where(np.isfinite(one.excess_loss))) for name, one in best.items()}
    best = {name: one.drop_vars("length") for name, one in best.items()}
    widest = {name: one.isel(width=-1) for name, one in best.items()}
    most = {name: one.isel(sequences=-1) for name, one in best.items()}
    lengths = {name: one.isel(sequences=-1) for name, one in tried.items()}
    longest = {name: one.isel(width=-1, length=-1) for name, one in lengths.items()}

    def joined(name: str, dim: str, labels: Any, source: dict[str, Any]) -> Any:
        rows = [source[label][name].reset_coords(drop=True) for label in labels]
        return xr.concat(rows, xr.Variable(dim, list(labels)), join="outer")

    sequences = xr.Dataset(
        {n: joined(n, "learner", learners, widest) for n in SCORES[:3]}
        | {"trained": joined("trained", "network", networks, widest)}
        | {"coupling_error": joined("coupling_error", "fitted", FITTED, widest)}
    )
    width = xr.Dataset(
        {n: joined(n, "network", networks, most) for n in ("excess_loss", "trained")}
        | {"excess_by_length": joined("excess_loss", "network", networks, lengths)}
        | {"validation_by_length": joined("validation_loss", "network", networks, lengths)}
    )
    length = xr.Dataset(
        {"curve": joined("curve", "network", networks, longest)}
        | {"step": joined("curve_step", "network", networks, longest).isel(seed=0)}
    )
    found = {name: one.isel(width=-1, seed=-1) for name, one in most.items()}
    law = settings["law"]
    data = planted(law["instance"], law["sites"], law["colours"], law["inverse_temperature"])
    sites, colours = ("site", "partner"), ("colour", "other")
    maps = xr.Dataset(
        {
            "couplings": (sites, np.asarray(data.couplings)),
            "factored_map": (sites, found["factored"]["map"].values),
            "dense_map": (sites, found["dense"]["map"].values),
            "attention_map": (("network", *sites), np.stack([found[name]["map"].values for name in networks])),
            "colour_matrix": (colours, np.asarray(zero_sum_colours(data.colours))),
            "factored_colours": (colours, found["factored"].colour_map.values),
        },
        {"network": networks},
    )
    parts = {"sequences": sequences, "width": width, "length": length, "maps": maps, "exact": _exact(results, settings)}
    described = json.dumps({"models": ["masked-language", "potts-attention"], "settings": settings})
    attributes = {"study": described, **provenance()}
    return {name: part.drop_vars("seed", errors="ignore").assign_attrs(attributes) for name, part in parts.items()}


def _exact(results: dict[str, list[Any]], settings: dict[str, Any]) -> Any:
    """The losses of one row of factored attention by theory and, if already available, by training."""
    import xarray as xr

    (theory,) = results["exact curve"]
    parts = {name: theory[f"{name}_theory"] for name in EXACT}
    for rows in results.get("exact rows", []):
        found = rows.isel(size=0, drop=True).rename(samples="samples_trained").drop_vars("seed")
        parts |= {f"{name}_trained": found[f"{name}_simulated"] for name in EXACT[:2]}
    return xr.Dataset(parts).drop_attrs().assign_attrs(size=settings["exact"]["size"])


# --- the picture ----------------------------------------------------------------------------------------------------------


def picture(data: dict[str, Any]) -> Any:
    """Excess losses above: exact, by number of sequences, by embedding, during training; maps and colours below.

    Numbers missing from an early picture (NaN) are left out.
    """
    import matplotlib.pyplot as plt

    rows, width, length, maps = (data[name] for name in ("sequences", "width", "length", "maps"))
    several = width.sizes["width"] > 1
    figure = plt.figure(figsize=(14.4, 6.8), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.3, 1.0))
    top, bottom = parts
    first, second, *middle, last = top.subplots(1, 4 if several else 3)
    _draw_exact(first, data["exact"])
    _draw_learning_curves(second, rows)
    _draw_trainings(last, width, length)
    if several:
        _draw_widths(middle[0], rows, width)
    best = rows.excess_loss.sel(learner="factored").mean("seed").dropna("sequences")
    for axis in (*middle, last):
        if best.size:
            floor = max(float(best[-1]), 1e-5)
            axis.axhline(floor, color=COLOURS[0], linestyle="--", linewidth=1, label="factored attention")
    for axis in (first, second, *middle, last):
        axis.set_ylabel("masked loss above the optimum (nats)")
        if not axis.has_data():
            _in_training(axis)
            continue
        log_axis(axis.xaxis)
        axis.set_yscale("log")
        if axis not in middle:
            axis.legend(fontsize=7.5)
    panels = bottom.subplots(1, 6)
    shown = (
        ("couplings", "true couplings $J_{ij}$"), ("factored_map", "factored attention: map $A_{ij}$"),
        ("dense_map", "dense couplings: contact scores"), ("attention_map", "one layer: mean attention"),
        ("colour_matrix", "true interaction $U_{ab}$"), ("factored_colours", "factored attention: values $V_{ab}$"),
    )  # fmt: skip
    for panel, (name, title) in zip(panels, shown, strict=True):
        values = maps[name].isel(network=0) if name == "attention_map" else maps[name]
        signed = "colour" in values.dims
        panel.set_title(title, fontsize=8.5)
        panel.set(
            xlabel="colour $b$ of the other site" if signed else "site $j$",
            ylabel="colour $a$" if signed else "site $i$",
        )
        panel.grid(visible=False)
        limit = float(np.abs(values).max())
        if np.isfinite(limit):
            image = panel.imshow(values, cmap="RdBu_r" if signed else "Greys", vmin=-limit if signed else 0, vmax=limit)
            bar = bottom.colorbar(image, ax=panel, orientation="horizontal", shrink=0.85, aspect=24, pad=0.02)
            bar.set_label("energy of a pair" if signed else "strength of a pair", fontsize=7.5)
        else:
            panel.set_box_aspect(1)
            _in_training(panel)
        ticks = np.arange(0, len(values), 2 if signed else 5)
        panel.set(xticks=ticks, yticks=ticks)
        panel.tick_params(labelsize=7)
    figure.suptitle("What transformers learn from masked language modelling of Potts sequences", fontsize=11)
    return figure


def _style(k: int) -> dict[str, Any]:
    return {"fmt": f"{MARKERS[k]}-", "color": COLOURS[k], "markersize": 4, "linewidth": 1.2}


def _in_training(axis: Any) -> None:
    axis.text(0.5, 0.5, "in training", transform=axis.transAxes, ha="center", va="center", color="0.5")
    axis.set(xticks=[], yticks=[])


def _draw_exact(axis: Any, data: Any) -> None:
    """One row of factored attention: the replica theory as lines, trained rows as points."""
    axis.plot(data.samples, data.test_loss - data.optimal_loss, color=COLOURS[0], label="replica theory")
    if "test_loss_trained" in data:
        optimal = data.optimal_loss.interp(samples=data.samples_trained.values).values[:, None]
        words = f"trained, $N = {int(data.attrs['size'])}$"
        excess = data.test_loss_trained - optimal
        _line(axis, data.samples_trained, excess, fmt=MARKERS[0], color=COLOURS[0], markersize=5, label=words)
    axis.set(xlabel="training sequences per site $M/N$", title="one row of factored attention: exact")


def _draw_learning_curves(axis: Any, rows: Any) -> None:
    for k, learner in enumerate(rows.learner.values):
        if np.isfinite(rows.excess_loss.sel(learner=learner)).any():
            _line(axis, rows.sequences, rows.excess_loss.sel(learner=learner), label=_name(learner), **_style(k))
    axis.set(xlabel="training sequences $M$", title="all learners on the same sequences")


def _draw_widths(axis: Any, rows: Any, width: Any) -> None:
    for k, network in enumerate(width.network.values, start=2):
        mine = width.sel(network=network)
        if np.isnan(mine.excess_loss).all():
            continue
        _line(axis, width.width, mine.excess_loss, label=network, **_style(k))
        # Hollow: training was shorter than at the largest width.
        tried = width.length.where(np.isfinite(mine.excess_by_length).all("seed")).max("length")
        short = (tried < tried.max()).values
        axis.plot(width.width[short], mine.excess_loss.mean("seed")[short], MARKERS[k], color=COLOURS[k],
                  markerfacecolor="white", markersize=4, zorder=3)  # fmt: skip
    axis.set(xlabel="length of the embedding", title=f"transformers, $M = {_number(int(rows.sequences[-1]))}$")


def _draw_trainings(axis: Any, width: Any, length: Any) -> None:
    for k, network in enumerate(width.network.values, start=2):
        mine, run = width.sel(network=network), length.sel(network=network)
        if np.isnan(run.curve).all():
            continue
        axis.plot(run.step[1:], run.curve.mean("seed")[1:], color=COLOURS[k], alpha=0.4)
        _line(axis, width.length, mine.excess_by_length.isel(width=-1), label=network, **_style(k))
    axis.set(xlabel="steps of Adam", title=f"embedding {int(width.width[-1])}: one run (pale), ends of all")


def _name(learner: str) -> str:
    return {"factored": "factored attention", "dense": "dense couplings"}.get(learner, f"transformer, {learner}")


def _number(value: int) -> str:
    return f"{value:,}".replace(",", r"\,")


def _line(axis: Any, x: Any, values: Any, **style: Any) -> None:
    known = np.isfinite(values).all("seed").values
    values = values[{d: known for d in values.dims if d != "seed"}]
    error = standard_error(values)
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
