"""Divergence, calibration and accuracy against the number of weights left, by initial width and by teacher."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS
from solvable.study import provenance

from .model import PrunedNetworks

CURVES = tuple(o.name for o in PrunedNetworks.observables_declared if o.dims)
NUMBERS = tuple(o.name for o in PrunedNetworks.observables_declared if not o.dims)
WIDTHS = (25, 100, 200)
TEACHERS: dict[str, dict[str, Any]] = {
    "linear rule": {"teachers": 1},
    "committee of 3": {"teachers": 3},
    "committee of 9": {"teachers": 9},
    "parity of 2": {"teachers": 2, "teacher": "parity"},
}


def runs(cases: dict[str, tuple[int, dict[str, Any]]], seeds: int, settings: dict[str, Any], fewest: int) -> Any:
    """Every case (width, fields) pruned down to about `fewest` weights; rounds beyond that are NaN."""
    import xarray as xr

    found: dict[str, list[np.ndarray]] = {name: [] for name in (*CURVES, *NUMBERS)}
    model = PrunedNetworks(**settings)
    needed = {
        case: 1 + math.ceil(math.log(width * (model.input_dimension + 1) / fewest) / -math.log(1 - float(model.share)))
        for case, (width, _) in cases.items()
    }
    longest = max(needed.values())
    for case, (width, fields) in cases.items():
        one = model.replace(rounds=needed[case], **fields)
        run = simulate_batch(one, {}, jnp.stack([one.key(width, s) for s in range(seeds)]), width)
        for name in CURVES:
            rest = ((0, 0), (0, longest - needed[case]))
            found[name].append(np.pad(np.asarray(run[name]), rest, constant_values=np.nan))
        for name in NUMBERS:
            found[name].append(np.asarray(run[name]))
    table = {n: (("case", "seed", "round") if n in CURVES else ("case", "seed"), np.stack(v)) for n, v in found.items()}
    return xr.Dataset(table, coords={"case": list(cases)}, attrs=provenance())


def descent(quick: bool) -> dict[str, Any]:
    settings = {"input_dimension": 20, "examples": 500, "steps": 600}
    if quick:
        settings = {"input_dimension": 6, "examples": 40, "steps": 40, "tested": 200}
    width, seeds = (8, 2) if quick else (50, 48)
    widths = {f"{w} units": (w, {}) for w in (WIDTHS[:1] if quick else WIDTHS)}
    teachers = {name: (width, fields) for name, fields in list(TEACHERS.items())[: 2 if quick else None]}
    digits = {"input_dimension": 64, "examples": 1000, "tested": 797, "steps": 600, "teacher": "digits"}
    if quick:
        digits |= {"steps": 5, "examples": 40}
    cases = {"by magnitude": (width, {}), "random pruning": (width, {"pruning": "random"})}
    return {
        "digits": runs(cases, 2 if quick else 48, {**digits, "flip": 0.25}, 8),
        "widths": runs(widths, 2 if quick else 24, {**settings, "flip": 0.25}, 5),
        "teachers": runs(teachers, seeds, {**settings, "flip": 0.1, "gain": 3.0}, 5),
    }


def draw_descent(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 3, figsize=(13.2, 10.8), layout="constrained", sharex=True)
    titles = {
        "widths": "linear rule, flips 0.25, from",
        "teachers": "50 units, flips 0.1,",
        "digits": "odd or even digits, flips 0.25,",
    }
    for row, part in zip(axes, titles, strict=True):
        table = data[part]
        for i, case in enumerate(table.case.values):
            at = table.sel(case=case)
            for axis, name in zip(row, ("divergence", "calibration_error", "accuracy"), strict=True):
                _errorbar(axis, at, name, {"fmt": f"{MARKERS[i]}-", "color": COLOURS[i], "label": str(case)})
            _errorbar(row[0], at, "tempered_divergence",
                      {"fmt": f"{MARKERS[i]}:", "color": COLOURS[i], "mfc": "white", "label": None})  # fmt: skip
            best = float(np.exp(np.log(at.best_weights).mean()))
            row[0].plot([best], [0.035], marker="v", color=COLOURS[i], markersize=9, clip_on=False)
        row[0].axhline(float(table.coin_divergence.mean()), color="0.4", linewidth=1, linestyle="--", label="a coin")
        row[0].set(yscale="log", ylabel="divergence from the true probabilities", ylim=(0.03, 8))
        row[1].set(ylabel="calibration error", ylim=(0, None))
        row[2].set(ylabel="accuracy against the teacher")
        row[0].legend(fontsize=8, title=titles[part], title_fontsize=8)
        row[2].axhline(0.5, color="0.7", linewidth=0.8, zorder=0)
        for axis in row:
            axis.set_xscale("log")
    axes[0, 0].invert_xaxis()  # shared by all
    axes[0, 0].set_title("trained (filled), best temperature (open), best size (▼)", fontsize=9)
    axes[0, 1].set_title("calibration", fontsize=9)
    axes[0, 2].set_title("accuracy", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("weights left")
    return figure


def _errorbar(axis: Any, at: Any, name: str, style: dict[str, Any]) -> None:
    error = at[name].std("seed", ddof=1) / np.sqrt(at.sizes["seed"])
    axis.errorbar(at.weights.mean("seed"), at[name].mean("seed"), error, linewidth=1.0, markersize=4.5, **style)


RECIPES = {
    "pruned-networks-descent": Recipe(
        descent,
        draw_descent,
        sentence=(
            "Under label noise the divergence from the true probabilities peaks where the labels are barely fitted, at "
            "the same number of weights from every width; a tuned temperature does at least as well as pruning."
        ),
    )
}
