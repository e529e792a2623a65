"""When does a transformer need depth? One to three layers over the width, the learning rate and the length of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces, threads
from solvable.render.plots import COLOURS, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import MaskedLanguage

FULL: dict[str, Any] = {
    "law": {"sites": 20, "colours": 10, "inverse_temperature": 1.0, "instance": 3, "held_out": 4000},
    "training": {"batch": 512, "recorded": 12}, "sequences": 64_000, "seeds": 4, "depths": (1, 2, 3),
    "widths": (8, 16, 32), "rates": (5e-4, 2e-3, 8e-3), "steps": (6000, 24_000),
    "left_out": ((2, 24_000, 16), (2, 24_000, 32), (3, 24_000, 32)),
}  # fmt: skip
QUICK: dict[str, Any] = {
    "law": {"sites": 6, "colours": 3, "inverse_temperature": 0.7, "instance": 3, "held_out": 100},
    "training": {"batch": 32, "recorded": 4}, "sequences": 500, "seeds": 2, "depths": (1, 2),
    "widths": (8,), "rates": (2e-3, 8e-3), "steps": (30, 60), "left_out": (),
}  # fmt: skip
"""`steps`: lengths of training, each with a rate that decays to zero. Positions are added to the tokens.

`left_out`: depths, lengths and widths that are not trained; their losses are NaN.
"""
SCORES = ("excess_loss", "validation_loss")


def trained(settings: Mapping[str, Any], depth: int) -> list[tuple[int, int]]:
    """Lengths of training and widths of the stacks of one depth."""
    return [
        (steps, width)
        for steps in settings["steps"]
        for width in settings["widths"]
        if (depth, steps, width) not in settings["left_out"]
    ]


def studies(settings: Mapping[str, Any]) -> dict[str, list[Study]]:
    """One study for every depth, width and length: the seeds train side by side."""
    model = MaskedLanguage(**settings["law"], **settings["training"])
    these: dict[str, Any] = {"sizes": [settings["sequences"]], "seeds": settings["seeds"]}
    over = {"rate": list(settings["rates"])}
    return {
        f"depth {depth}": [
            Study(model.replace(learner="transformer", depth=depth, embedding=width, steps=steps), over, **these)
            for steps, width in trained(settings, depth)
        ]
        for depth in settings["depths"]
    }


def compute(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    settings, pieces = QUICK if quick else FULL, pieces or Pieces()
    with threads() as pool:
        tasks = {name: pool.submit(pieces.run, name, some) for name, some in studies(settings).items()}
        return {"": assemble([task.result() for task in tasks.values()], settings)}


def assemble(found: list[list[Any]], settings: Mapping[str, Any]) -> Any:
    """Losses by depth, length, width, rate and seed."""
    import xarray as xr

    lengths, widths, rates = (list(settings[name]) for name in ("steps", "widths", "rates"))
    shape = len(found), len(lengths), len(widths), len(rates), settings["seeds"]
    table = {name: np.full(shape, np.nan) for name in SCORES}
    for i, (depth, some) in enumerate(zip(settings["depths"], found, strict=True)):
        for (steps, width), one in zip(trained(settings, depth), some, strict=True):
            place = i, lengths.index(steps), widths.index(width)
            for name, values in table.items():
                values[place] = one[f"{name}_simulated"].isel(size=0).transpose("rate", "seed")
    dims = ("depth", "length", "width", "rate", "seed")
    coords = {"depth": list(settings["depths"]), "length": lengths, "width": widths, "rate": rates}
    law = settings["law"]
    return xr.Dataset(
        {name: (dims, values) for name, values in table.items()},
        coords,
        {"sequences": settings["sequences"], "sites": law["sites"], "colours": law["colours"]},
    )


def at_best(table: Any) -> Any:
    """Excess losses at the rate and length of the lowest mean validation loss, of every depth and width.

    NaN where a rate or a length was left out.
    """
    flat = table.stack(setting=("length", "rate")).reset_index("setting")
    best = flat.validation_loss.mean("seed", skipna=False).fillna(np.inf).argmin("setting")
    return flat.excess_loss.isel(setting=best).where(flat.validation_loss.notnull().any("seed").all("setting"))


def draw(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained")
    for i, depth in enumerate(table.depth.values.tolist()):
        for length, line in zip(table.length.values, (":", "-"), strict=True):
            here = table.sel(length=[length], depth=depth)
            words = f"{depth} layer{'s' * (depth > 1)}, {int(length):,} steps"
            style = {
                "color": COLOURS[i],
                "fmt": f"{MARKERS[i]}{line}",
                "markersize": 4.5,
                "linewidth": 1.2,
                "label": words,
            }
            best, narrow = at_best(here), here.excess_loss.isel(length=0, width=0)
            axes[0].errorbar(table.width, best.mean("seed"), standard_error(best), **style)
            axes[1].errorbar(table.rate, narrow.mean("seed"), standard_error(narrow), **style)
    axes[0].set(xlabel="length of the embedding", yscale="log", title="each at its best rate")
    axes[1].set(xlabel=label("learning rate of Adam", r"\eta"), yscale="log",
                title=f"embedding of length {int(table.width[0])}")  # fmt: skip
    axes[0].set_ylabel("masked loss above the optimum (nats)")
    for axis in axes:
        log_axis(axis.xaxis)
        axis.legend(fontsize=8)
    number = f"{table.attrs['sequences']:,}"
    figure.suptitle(
        f"Transformers of one to three layers on {number} Potts sequences, positions added to tokens", fontsize=11
    )
    return figure


RECIPES = {
    "masked-language-depth": Recipe(
        compute,
        draw,
        resumes=True,
        sentence="Whether transformers on Potts sequences need depth: one to three layers over width, rate and steps.",
    )
}
