"""Claims about lazy and rich continual learning, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "lazy-continual-forgetting"
REFERENCE = 1.5
"""Richness of the narrowest network in the comparison of parametrisations; in the standard one it falls as 1/√N."""
SETTINGS = (
    "ReLU networks of widths 64, 256 and 1,024, labels |x·β|, 20 samples per task in 10 dimensions, 500 steps on each, "
    "16 data sets that were not looked at before"
)
CHANGE = (
    "an increase with richness also for linear labels and fewer samples than dimensions; so far it is seen with labels |x·β| and "
    "more samples than dimensions only"
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
    """Differences between richnesses, in parts of the initial loss, paired over data sets."""
    longer, small, found = stored[f"{FIGURE}.longer"].isel(size=-1), stored[FIGURE], []
    lost = longer.forgetting
    rise = lost.isel(richness=-1) - lost.isel(richness=0)
    early = lost.isel(richness=1) - lost.isel(richness=0)
    for s in lost.similarity.values[:-1]:
        flat = mean_and_error(early.sel(similarity=s))
        found.append(
            Measured(f"change of forgetting from γ₀ = 0.05 to 0.15, s = {s:g}", *flat, above=-0.05, below=0.05)
        )
        found.append(Measured(f"the same to 5, s = {s:g}", *mean_and_error(rise.sel(similarity=s)), above=0.05))
    later = mean_and_error(rise.isel(similarity=0) - rise.isel(similarity=-1))
    found.append(Measured("the same, s = 0 minus s = 0.9", *later, above=0.0))
    final = longer.final_loss.isel(similarity=-1)
    pays = mean_and_error(final.sel(richness=0.75, method="nearest") - final.isel(richness=0))
    found.append(Measured("final loss at γ₀ = 0.75 minus that at 0.05, s = 0.9", *pays, below=0.0))
    for words, runs in (
        ("10 samples, linear labels", small.relu_forgetting),
        ("linear units", small.linear_forgetting),
    ):
        at = runs.isel(similarity=0)
        other = mean_and_error(at.isel(richness=-1) - at.isel(richness=0))
        found.append(Measured(f"forgetting when rich minus when lazy, s = 0, {words}", *other, above=0.05))
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
        lowest = int(np.argmin(ends.values))
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
        "forgetting is low and flat in lazy networks and rises in rich ones, less for similar tasks, which gain from richness",
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
