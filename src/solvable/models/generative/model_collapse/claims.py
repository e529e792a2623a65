"""Claims about models trained on models, and the numbers that decide them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE = "model-collapse-generations"


def _last(data: Any, name: str, **at: Any) -> Any:
    """Realisations of the last generation."""
    return data[f"{name}_simulated"].isel(size=-1, generation=-1).sel(**{k: v for k, v in at.items() if k != "group"}).isel(
        group=at.get("group", 0)
    )  # fmt: skip


def _ratio(one: Any, other: Any) -> tuple[float, float]:
    """Ratio of two means over independent seeds, with its standard error."""
    (a, da), (b, db) = mean_and_error(one), mean_and_error(other)
    return a / b, math.hypot(da, a / b * db) / abs(b)


def _difference(one: Any, other: Any) -> tuple[float, float]:
    (a, da), (b, db) = mean_and_error(one), mean_and_error(other)
    return a - b, math.hypot(da, db)


def _tails(stored: Stored) -> list[Measured]:
    data, pair = stored[FIGURE], stored[f"{FIGURE}.groups"]
    rare, common = (_last(data, "lost", arm="only synthetic", group=g) for g in (0, 1))
    real = [_last(data, "lost", arm="only real", group=g) for g in (0, 1)]
    excess = [_difference(one, other) for one, other in zip((rare, common), real, strict=True)]
    apart = excess[0][0] - excess[1][0], math.hypot(excess[0][1], excess[1][1])
    off = deviation(data.lost_simulated.isel(size=-1), data.lost_theory)
    small, large = (_last(pair, "excess_loss", group=g) for g in (0, 1))
    shares = pair.group.values
    return [
        Measured("probability of losing a category of share 0.05, above that in real data", *excess[0], above=0.5),
        Measured("the same, minus that of share 0.3", *apart, above=0.25),
        Measured("excess loss of a minority over that of the majority", *_ratio(small, large), above=shares[1] / shares[0]),
        Measured("relative deviation of lost categories from the theory", *off, below=0.02),
    ]  # fmt: skip


def _inefficient(stored: Stored) -> list[Measured]:
    loss, volume = stored[f"{FIGURE}.loss"], stored[f"{FIGURE}.volume"]
    runs = loss.excess_loss_simulated.sel(arm="only synthetic").isel(group=0, size=-1)
    first, last = runs.isel(generation=0), runs.isel(generation=-1)
    end, error = mean_and_error(last)
    noise, d, n = 0.5, 20, 60
    needed = (noise * d / end + d + 1) / n, noise * d * error / end**2 / n
    fall = _last(volume, "log_volume", arm="n = 40"), _last(volume, "log_volume", arm="n = 400")
    return [
        Measured("loss of the eighth generation over that of the first", *_ratio(last, first), above=7.0, below=9.0),
        Measured("share of as many real samples that reach the loss of the eighth generation", *needed, below=0.5),
        Measured("log det of the covariance after ten generations", *mean_and_error(fall[0]), below=-10.0),
        Measured("its mean variance", *mean_and_error(_last(volume, "mean_variance", arm="n = 40")), above=0.95, below=1.05),
        Measured("log det with ten times the samples over that", *_ratio(fall[1], fall[0]), above=0.0, below=0.2),
    ]  # fmt: skip


def _mitigated(stored: Stored) -> list[Measured]:
    data, loss = stored[FIGURE], stored[f"{FIGURE}.loss"]
    found = []
    for group, share, most in ((0, 0.05, 0.75), (1, 0.3, 0.2)):
        fresh, none = (_last(data, "lost", arm=arm, group=group) for arm in ("5 % fresh", "only synthetic"))
        words = f"probability of losing a category of share {share}, 5 % fresh over none"
        found.append(Measured(words, *_ratio(fresh, none), below=most))
    kept = _last(data, "lost", arm="accumulated", group=0)
    first = loss.excess_loss_simulated.isel(size=-1, group=0, generation=0)
    found.append(Measured("probability of losing the rare category, accumulated", *mean_and_error(kept), below=0.1))
    for arm in ("accumulated, same inputs", "accumulated"):
        ratio = _ratio(_last(loss, "excess_loss", arm=arm), first.sel(arm=arm))
        found.append(
            Measured(f"loss of the eighth generation over that of the first, {arm}", *ratio, below=np.pi**2 / 6)
        )
    some = _ratio(_last(loss, "excess_loss", arm="25 % fresh"), _last(loss, "excess_loss", arm="only synthetic"))
    found.append(Measured("loss of the eighth generation, 25 % fresh over none", *some, below=0.5))
    return found


SETTINGS = (
    "categories: n = 50, 20 generations, 20,000 chains; regression: d = 20, n = 60, eight generations, 1,000 chains"
)
CLAIMS = (
    Claim(
        "Training on the outputs of models loses the tails of a distribution, and so harms minorities most.",
        "jarvis2026position",
        "rare categories disappear more often than common ones, and more often than from real data; a small group's error grows "
        "faster than in proportion to its data",
        "real data alone",
        (FIGURE,), _tails, f"{SETTINGS}; groups of 20 and 180 samples, d = 10, 2,000 chains",
        missing="language models trained on their own text: these chains are their solvable caricatures",
    ),
    Claim(
        "It makes training inefficient.",
        "jarvis2026position",
        "excess loss grows in proportion to the number of generations, so that fewer real samples would do; the volume of a "
        "covariance shrinks while its mean stays",
        "many samples: no change per generation",
        (FIGURE,), _inefficient, f"{SETTINGS}; Gaussian: d = 10, n = 40 and 400, ten generations, 1,000 chains",
    ),
    Claim(
        "Fresh or accumulated real data mitigate it.",
        "jarvis2026position",
        "fewer lost categories; excess loss levels off, below π²/6 of one generation's if samples accumulate",
        "only synthetic samples",
        (FIGURE,), _mitigated, SETTINGS,
    ),
)  # fmt: skip
