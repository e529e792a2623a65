"""Claims about weights with a few levels, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored

from .._points import solved_and_error

FIGURE, LEVELS = "few-bit-dense-regions", "few-bit-levels"


def _regions(stored: Stored) -> list[Measured]:
    table, found = stored[LEVELS].sel(part=0.8), []
    for name in table.levels.values:
        here = table.sel(levels=name)
        words = f"levels {name} at 0.8 of the capacity, d from 0.03 up to typical solutions"
        found += [
            Measured(f"smallest local entropy, {words}", float(here.local_entropy.min()), above=0.0),
            Measured(f"smallest slope of the local entropy, {words}", float(here.local_slope.min()), above=0.0),
        ]
    signs = stored[FIGURE]
    found.append(Measured("α_U of weights ±1", float(signs.breaking), above=0.75, below=0.77))
    return found


def _capacities(stored: Stored) -> list[Measured]:
    table, found = stored[FIGURE], []
    number = table.number.values
    for kind, words, limit in (("positive", "0, 1, …, L − 1", 1.0), ("symmetric", "symmetric levels", 2.0)):
        values = table[f"capacity_{kind}"].values
        gain = np.diff(values) / np.diff(number)
        found += [
            Measured(f"gain per level from 6 to 8 over that from 2 to 3, {words}", gain[-1] / gain[0], below=0.5),
            Measured(f"fraction of the limit that 8 levels (3 bits) reach, {words}", values[-1] / limit, below=1.0),
        ]
    return found


def _search(stored: Stored) -> list[Measured]:
    runs, large, found = stored[f"{FIGURE}.runs"], stored[f"{FIGURE}.large"], []
    for table in (runs, large):
        for size in table["size"].values:
            for alpha in (0.6, 0.65, 0.7):
                share = solved_and_error(table.solved.sel(size=size, samples=alpha))
                found.append(Measured(f"fraction solved at α = {alpha:g}, N = {size}", *share, above=0.5))
    share = solved_and_error(runs.plain_solved.sel(samples=slice(0.5, 0.7)))
    found.append(Measured("fraction solved without reinforcement, α from 0.5 to 0.7", *share, below=0.1))
    return found


CLAIMS = (
    Claim(
        "Solutions form dense regions for any number of levels.",
        "baldassi2016learning",
        "a local entropy that is positive and rises with distance, starting at small distances",
        "typical solutions, which are isolated",
        (LEVELS, FIGURE), _regions, "theory at y → ∞ for five sets of two to four levels; α_U of ±1 weights",
        missing="the entropy around typical solutions as the control, and more than four levels",
        seconds=300,
    ),
    Claim(
        "The benefit of more levels soon saturates.",
        "baldassi2016learning",
        "capacities that saturate with the number of levels",
        "linear growth",
        (FIGURE,), _capacities, "replica-symmetric capacities of 2 to 8 levels",
        seconds=150,
    ),
    Claim(
        "The analysis yields algorithms that find solutions.",
        "baldassi2016learning",
        "reinforced message passing solves most systems up to α = 0.7",
        "the same messages without reinforcement",
        (FIGURE,), _search, "weights ±1, γ = 0.003, N = 301 and 1,001 with 12 systems per point, N = 2,001 and "
        "4,001 with 32",
        missing="search by coupled copies, and more than two levels",
        seconds=150,
    ),
)  # fmt: skip
