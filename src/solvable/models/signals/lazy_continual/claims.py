"""Claims about lazy and rich continual learning, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "lazy-continual-forgetting"
REFERENCE = 1.5
"""Richness of the narrowest network in the comparison of parametrisations; in the standard one it falls as 1/√N."""
SETTINGS = (
    "ReLU networks of widths 128, 512 and 2,048, labels |x·β|, 20 samples per task in 10 dimensions, 500 steps on each, "
    "6 data sets"
)
CHANGE = (
    "an increase with richness in larger or longer-trained networks, on images or with cross-entropy, where tasks are not fitted "
    "by few samples"
)


def _change(values: Any, over: Any) -> tuple[float, float]:
    """Mean over data sets of a paired difference, over the mean of `over`."""
    mean, error = mean_and_error(values)
    scale = float(over.mean())
    return mean / scale, error / scale


def _width(stored: Stored) -> list[Measured]:
    """From the narrowest to the widest network: at fixed richness, and with a richness that falls as 1/√N."""
    runs, found = stored[f"{FIGURE}.longer"].forgetting, []
    sizes = runs["size"].values
    narrow = runs.sel(size=sizes[0]).sel(richness=REFERENCE, method="nearest")
    lazier = REFERENCE * np.sqrt(sizes[0] / sizes[-1])
    for s in runs.similarity.values:
        for richness, words in ((REFERENCE, "fixed richness"), (lazier, "standard scaling")):
            wide = runs.sel(size=sizes[-1]).sel(richness=richness, method="nearest")
            here = (wide - narrow).sel(similarity=s)
            value = _change(here, narrow.sel(similarity=s))
            bounds = {"above": -0.15, "below": 0.15} if richness == REFERENCE else {"below": -0.15}
            found.append(Measured(f"relative change with the width, {words}, s = {s:g}", *value, **bounds))
    return found


def _transition(stored: Stored) -> list[Measured]:
    """From lazy to rich, in parts of the initial loss of task 1."""
    found = []
    longer = stored[f"{FIGURE}.longer"].forgetting.isel(size=-1)
    small = stored[FIGURE]
    cases = {"longer tasks": longer, "10 samples": small.relu_forgetting, "linear units": small.linear_forgetting}
    for words, runs in cases.items():
        for s in runs.similarity.values:
            here = runs.sel(similarity=s)
            rise = mean_and_error(here.isel(richness=-1) - here.isel(richness=0))
            found.append(Measured(f"forgetting when rich minus when lazy, {words}, s = {s:g}", *rise, above=0.05))
    return found


def _optimum(stored: Stored) -> list[Measured]:
    """Positions of the lowest final loss on the grid of richness, per data set."""
    runs = stored[f"{FIGURE}.longer"].final_loss
    best = runs.argmin("richness")
    apart = best.isel(similarity=-1, size=-1) - best.isel(similarity=0, size=-1)
    found = [
        Measured(
            "best richness for similar minus for unrelated tasks, in grid steps", *mean_and_error(apart), above=0.0
        )
    ]
    for s in runs.similarity.values:
        moved = (best.isel(size=-1) - best.isel(size=0)).sel(similarity=s)
        found.append(
            Measured(
                f"change of the best richness with the width, in grid steps, s = {s:g}",
                *mean_and_error(moved),
                above=-1,
                below=1,
            )
        )
        ends = runs.isel(size=-1).sel(similarity=s).mean("instance")
        lowest = int(ends.argmin())
        inside = float(0 < lowest < ends.sizes["richness"] - 1)
        found.append(Measured(f"1 if the best richness lies inside the grid, s = {s:g}", inside, above=0.5))
    return found


CLAIMS = (
    Claim(
        "Width reduces forgetting only by making networks lazier.",
        "graldi2025lazy",
        "forgetting does not depend on the width at fixed richness, and falls with it in the standard parametrisation, "
        "where richness is proportional to 1/√N",
        "it falls with the width at fixed richness too",
        (FIGURE,), _width, SETTINGS, would_change=CHANGE, seconds=200,
    ),
    Claim(
        "Strong feature learning pays only for very similar tasks: forgetting rises beyond a richness set by similarity.",
        "graldi2025lazy",
        "forgetting of rich networks exceeds that of lazy ones",
        "no dependence on richness",
        (FIGURE,), _transition, SETTINGS + "; theory for 10 samples in 20 dimensions", would_change=CHANGE, seconds=200,
    ),
    Claim(
        "The best richness depends on the similarity of tasks and carries over sizes.",
        "graldi2025lazy",
        "the final loss of both tasks is lowest at a richness that grows with similarity and does not depend on the width",
        "an optimum that moves with the width",
        (FIGURE,), _optimum, SETTINGS, would_change=CHANGE, seconds=200,
    ),
)  # fmt: skip
