"""Claims about optimal protocols for two tasks, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import Number, difference, ratio

FIGURE = "continual-protocols"
RULES = {"no-replay": "no replay", "even": "even replay", "focus": "focus, then even"}


def _loss(stored: Stored, protocol: str, similarity: float) -> Number:
    runs = stored[FIGURE].final_loss_simulated.isel(size=-1)
    return mean_and_error(runs.sel(protocol=protocol, similarity=similarity))


def _gains(stored: Stored, protocol: str, name: str = "final_loss") -> np.ndarray:
    """Relative gain of the optimum over a rule, in theory, at every similarity."""
    values = stored[FIGURE][f"{name}_theory"]
    return 1 - (values.sel(protocol="optimal") / values.sel(protocol=protocol)).values


def _better(stored: Stored) -> list[Measured]:
    at = {float(x): i for i, x in enumerate(stored[FIGURE].similarity.values)}
    found = [
        Measured(f"gain over {words}, similarity {x:g}, theory", float(_gains(stored, rule)[at[x]]), above=0.0)
        for rule, words in RULES.items()
        for x in (0.3, 0.7)
    ]
    for rule in ("no-replay", "even"):
        for x in (0.3, 0.7):
            over = ratio(_loss(stored, "optimal", x), _loss(stored, rule, x))
            found.append(Measured(f"loss over that of {RULES[rule]}, similarity {x:g}, networks", *over, below=1.0))
    alone = float(_gains(stored, "no-replay")[at[0.0]])
    return [
        *found,
        Measured("gain over no replay at similarity 0, where that is optimal", alone, above=-1e-3, below=1e-3),
    ]


def _simple(stored: Stored) -> list[Measured]:
    """Measure the structure: task 2 alone first, then an arc with a fraction in (0, 1) and a vanishing switching function."""
    found = []
    for similarity in (0.3, 0.7):
        best = stored[FIGURE].sel(protocol="optimal", similarity=similarity)
        fraction = best.fraction_theory.values
        switching = np.abs(best.switching_theory.sel(task=2) - best.switching_theory.sel(task=1)).values
        arc = np.flatnonzero(fraction < 0.999)
        found += [
            Measured(f"fraction of the time before the first replay, similarity {similarity:g}", arc[0] / len(fraction),
                     above=0.1, below=0.9),
            Measured("lowest fraction of task 2 after that", float(fraction[arc[0] :].min()), above=0.01),
            Measured("highest fraction of task 2 after that", float(fraction[arc[0] :].max()), below=0.99),
            Measured("largest switching function after that, relative to the start",
                     float(switching[arc[0] :].max() / switching[0]), below=0.01),
        ]  # fmt: skip
    return found


def _similarity(stored: Stored) -> list[Measured]:
    gains, found = _gains(stored, "no-replay"), []
    for one, other in ((0, 1), (1, 2)):
        low, high = stored[FIGURE].similarity.values[[one, other]]
        change = float(gains[other] - gains[one])
        found.append(
            Measured(f"gain over no replay at similarity {high:g} minus that at {low:g}, theory", change, above=0.05)
        )
    runs, slopes = stored[FIGURE].forgetting_simulated.isel(size=-1), []
    for protocol in ("no-replay", "optimal"):
        ends = (mean_and_error(runs.sel(protocol=protocol, similarity=x)) for x in (0.7, 0.0))
        slopes.append(difference(*ends))
    over = ratio(slopes[1], slopes[0])
    table = stored[f"{FIGURE}.curve"].isel(size=-1)
    loss, lost = table.final_loss_theory, table.forgetting_theory
    gains = 1 - loss.sel(protocol="optimal") / loss.sel(protocol="no-replay")
    gap = table.forgetting_simulated.sel(protocol="no-replay") - table.forgetting_simulated.sel(protocol="optimal")
    widest = int(gap.mean("seed").argmax("similarity"))
    spread = float(gains.max() - gains.min())
    peak = float(table.similarity[int(lost.sel(protocol="no-replay").argmax("similarity"))])
    found += [
        Measured("spread of the gain over no replay over similarities 0 to 0.9, theory", spread, above=0.05),
        Measured("largest reduction of forgetting over similarities, networks", *mean_and_error(gap.isel(similarity=widest)),
                 above=0.0),
        Measured("the same minus the reduction at similarity 0, networks",
                 *mean_and_error(gap.isel(similarity=widest) - gap.isel(similarity=0)), above=0.0),
        Measured("similarity of the largest forgetting, no replay, theory", peak, above=0.05, below=0.95),
    ]  # fmt: skip
    return [
        *found,
        Measured("rise of forgetting from similarity 0 to 0.7 over that without replay, networks", *over, below=0.9),
    ]


SETTINGS = "first task for 100, both for 10 steps per dimension, rate 1; networks of N = 1,000, 16 seeds"

CLAIMS = (
    Claim(
        "Control theory on the exact equations finds protocols better than heuristics.",
        "mori2025optimal",
        "the mean final loss of both tasks is below that of every rule",
        "similarity 0, where no replay is optimal",
        (FIGURE,), _better,
        SETTINGS + "; rules: no replay, even replay, and even replay after a focus of the best length",
    ),
    Claim(
        "Optimal protocols are simple: the new task first, then revision of the old one.",
        "mori2025optimal",
        "a fraction 1 of the new task, then one between 0 and 1 on which the switching function vanishes",
        "bang-bang, or a constant fraction",
        (FIGURE,), _simple, SETTINGS + "; 100 intervals",
    ),
    Claim(
        "Optimal protocols change how forgetting depends on similarity.",
        "mori2025optimal",
        "their gain depends on similarity, and forgetting rises less with it",
        "parallel curves",
        (FIGURE,), _similarity, SETTINGS + "; curve at ten similarities, networks of N = 500, 8 seeds",
    ),
)  # fmt: skip
