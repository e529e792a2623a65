"""Claims about pruned networks under label noise, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PAPER, FIGURE = "arora2023quantifying", "pruned-networks-descent"
SETTINGS = "d = 20, 500 samples, 600 steps of Adam, rounds of 30 %"


def _log_ratio(table: Any, name: str, one: str, two: str) -> tuple[float, float]:
    """exp of the mean difference of logarithms, and its error."""
    (a, a_error), (b, b_error) = (mean_and_error(np.log(table[name].sel(case=case))) for case in (one, two))
    return float(np.exp(a - b)), float(np.exp(a - b) * np.hypot(a_error, b_error))


def _sizes(stored: Stored) -> list[Measured]:
    table = stored[f"{FIGURE}.widths"]
    return [
        Measured(f"weights at the {words} from 200 units over those from 25", *_log_ratio(table, name, "200 units", "25 units"),
                 above=0.25, below=4.0)
        for name, words in (("peak_weights", "peak"), ("best_weights", "smallest divergence"))
    ]  # fmt: skip


def _difficulty(stored: Stored) -> list[Measured]:
    table = stored[f"{FIGURE}.teachers"]
    return [
        Measured(f"best number of weights for a {case} over that for a linear rule",
                 *_log_ratio(table, "best_weights", case, "linear rule"), above=1.0)
        for case in ("committee of 9", "parity of 2")
    ]  # fmt: skip


def _probabilities(stored: Stored) -> list[Measured]:
    found = []
    for part, case in (("widths", "200 units"), ("teachers", "linear rule")):
        at = stored[f"{FIGURE}.{part}"].sel(case=case)
        full, tuned = at.divergence.isel(round=0), at.tempered_divergence.isel(round=0)
        found += [
            Measured(f"divergence of the full network over the smallest, {case}", *mean_and_error(full / at.best_divergence),
                     above=3.0),
            Measured(f"smallest divergence over that of the full network at its best temperature, {case}",
                     *mean_and_error(at.best_divergence / tuned), below=1.0),
            Measured(f"smallest divergence over a coin's, {case}", *mean_and_error(at.best_divergence / at.coin_divergence),
                     below=1.0),
        ]  # fmt: skip
    return found


def _real(stored: Stored) -> list[Measured]:
    table = stored[f"{FIGURE}.digits"].sel(case="by magnitude")
    best = table.divergence.argmin("round")
    full, pruned = (table.isel(round=place) for place in (0, best))
    return [
        Measured("calibration error of the full network over that of the pruned one",
                 *mean_and_error(full.calibration_error / pruned.calibration_error), above=1.5),
        Measured("divergence of the full network over that of the pruned one",
                 *mean_and_error(full.divergence / pruned.divergence), above=1.5),
        Measured("accuracy of the pruned network less that of the full one", *mean_and_error(pruned.accuracy - full.accuracy),
                 above=-0.02),
    ]  # fmt: skip


CLAIMS = (
    Claim(
        "Pruning ends at similar sizes whatever the start.",
        PAPER,
        "peak and minimum of the divergence lie at the same number of weights for widths that differ by a factor of eight",
        "numbers of weights proportional to the width",
        (FIGURE,), _sizes, SETTINGS + ", linear rule, flips 0.25, 24 seeds",
    ),
    Claim(
        "The best size reflects the difficulty of the task.",
        PAPER,
        "more weights are best for harder teachers",
        "the same number for all",
        (FIGURE,), _difficulty, SETTINGS + ", 50 units, flips 0.1, 48 seeds",
        missing="tasks on which more weights learn more",
        would_change="more samples: 500 do not suffice to learn a parity, whose best network is a coin, and a committee of 9 "
        "needs as many weights as a linear rule, within a tenth",
    ),
    Claim(
        "Pruned networks know the true label probabilities far better.",
        PAPER,
        "the divergence from them falls below that of a tuned temperature or a coin",
        "a full network at its best temperature",
        (FIGURE,), _probabilities, SETTINGS + "; 200 units at flips 0.25, 24 seeds; 50 units at flips 0.1, 48 seeds",
        would_change="a task on which pruning also beats the full network at its best temperature: it lowers the "
        "divergence 7 to 20 times, but that one number lowers it more",
    ),
    Claim(
        "On real data pruned networks are less overconfident.",
        PAPER,
        "a smaller calibration error on digits with noisy labels, at no loss of accuracy",
        "a full network at its best temperature, drawn beside it",
        (FIGURE,), _real, "odd against even digits, flips 0.25, 1,000 images, 50 units, 600 steps of Adam, rounds of 30 %, "
        "48 seeds; pruned to the smallest divergence",
        would_change="another choice of the size: at the smallest divergence one network in eight has lost 0.15 to 0.3 of its "
        "accuracy, while half of the others have gained more than 0.05, so that 48 seeds do not decide a loss of 0.02",
    ),
)  # fmt: skip
