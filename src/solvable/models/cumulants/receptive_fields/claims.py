"""Claims about pruning and receptive fields, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PAPER, FIGURE = "redman2024iterative", "receptive-fields-rounds"
SETTINGS = "ring of 40 sites, 12 units, 12 seeds, 8 rounds of 25 %"


def _rise(stored: Stored, arm: str, name: str) -> tuple[float, float]:
    values = stored[FIGURE][name].sel(arm=arm)
    return mean_and_error(values.isel(round=-1) - values.isel(round=0))


def _less(one: tuple[float, float], two: tuple[float, float]) -> tuple[float, float]:
    return one[0] - two[0], float(np.hypot(one[1], two[1]))


def _kurtosis(stored: Stored) -> list[Measured]:
    rise = {
        arm: _rise(stored, arm, "non_gaussianity") for arm in ("non-linear", "gaussian", "smooth", "random pruning")
    }
    more = _less(rise["non-linear"], rise["random pruning"])
    return [
        Measured("rise of the modulus of the kurtosis, non-Gaussian inputs", *rise["non-linear"], above=0.2),
        Measured("the same with a smooth covariance", *rise["smooth"], above=0.2),
        Measured("the same with Gaussian inputs", *rise["gaussian"], below=0.05),
        Measured("the rise by magnitude less that of random pruning", *more, above=0.1),
    ]


def _local(stored: Stored) -> list[Measured]:
    found = []
    for one, two, words in (("non-linear", "gaussian", "exponential"), ("smooth", "smooth gaussian", "smooth")):
        more = _less(_rise(stored, one, "localisation"), _rise(stored, two, "localisation"))
        found.append(Measured(f"rise of localisation less that with Gaussian inputs, {words}", *more, above=0.1))
    return found


def _cavity(stored: Stored) -> list[Measured]:
    found, runs = [], stored[FIGURE].isel(round=slice(0, 7))
    for arm, bounds in (
        ("non-linear", {"above": 0.0}),
        ("smooth", {"above": 0.0}),
        ("random pruning", {"above": -0.02, "below": 0.02}),
    ):
        at = runs.sel(arm=arm)
        more = mean_and_error((at.kept_effect - at.pruned_effect).mean("round"))
        found.append(Measured(f"cavity effect of kept less that of pruned weights, {arm}", *more, **bounds))
    return found


CLAIMS = (
    Claim(
        "Pruning by magnitude raises the non-Gaussianity of preactivations round after round.",
        PAPER,
        "their kurtosis grows as weights are removed, more than under random pruning",
        "Gaussian inputs of equal covariance: no kurtosis",
        (FIGURE,), _kurtosis, SETTINGS,
        would_change="a setting in which random pruning does not raise it as much: the rise is real, the rule of "
        "pruning does not matter here",
    ),
    Claim(
        "That loop localises receptive fields.",
        PAPER,
        "localisation grows more with non-Gaussian inputs than with Gaussian ones of equal covariance",
        "Gaussian inputs localise as much",
        (FIGURE,), _local, SETTINGS,
        would_change="natural images, deeper networks, or a task that short-range weights cannot solve",
    ),
    Claim(
        "The surviving weights are those that carry the non-Gaussianity.",
        PAPER,
        "the cavity effect of kept weights exceeds that of pruned ones",
        "random pruning: no difference",
        (FIGURE,), _cavity, SETTINGS + "; mean over the first seven rounds",
        would_change="natural images",
    ),
)  # fmt: skip
