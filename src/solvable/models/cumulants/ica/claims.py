"""Claims about independent component analysis in high dimensions, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._hitting import median_and_error

PAPER, SCALING, SEARCH = "ricci2025feature", "ica-scaling", "ica-search"


def _exponent(times: Any, few: int, many: int) -> tuple[float, float]:
    """Scaling exponent of the median between two sizes, along the first dimension."""
    (one, one_error), (two, two_error) = (median_and_error(times.sel({times.dims[0]: d})) for d in (few, many))
    span = np.log(many / few)
    return float(np.log(two / one) / span), float(np.hypot(one_error / one, two_error / two) / span)


def _fastica(stored: Stored) -> list[Measured]:
    one, again = stored[SCALING].sel(size=24), stored[SEARCH].overlap.sel(theta=3.0).isel(step=-1)
    sets = (again > 0.8).values.reshape(16, 16).mean(axis=1)
    ends = {x: mean_and_error(one.runs.sel(few=x, method="nearest")) for x in (0.01, 10.0)}
    null = mean_and_error(one.null * 24)
    return [
        Measured("squared overlap after one step, n = 10 d⁴", *ends[10.0], above=0.5),
        Measured("the same at n = d⁴/100", *ends[0.01], below=0.2),
        Measured("d times the same at n = d⁴ for a Gaussian direction", *null, below=2.0),
        Measured(
            "fraction of starts that find it at n = d³ in 26 steps on the same data", *mean_and_error(sets), below=0.1
        ),
    ]


def _descent(stored: Stored) -> list[Measured]:
    return [
        Measured(
            "exponent of n, d = 12 to 96", *_exponent(stored[f"{SCALING}.hits"].slow, 12, 96), above=2.5, below=3.5
        )
    ]


def _smoothed(stored: Stored) -> list[Measured]:
    times = stored[f"{SCALING}.hits"]
    value, error = _exponent(times.smooth, 16, 512)
    log = np.log(np.log(512) / np.log(16)) / np.log(512 / 16)
    best = times.quartic.isel(rate=2)
    return [
        Measured("exponent of n/log d, d = 16 to 512, He_4", value - float(log), error, above=1.75, below=2.25),
        Measured("the same of n for s⁴/4, d = 16 to 64", *_exponent(best, 16, 64), above=2.5),
    ]


def _images(stored: Stored) -> list[Measured]:
    shapes, found = stored[SEARCH].kurtosis.sel(number=16_000), []
    for kind in ("images", "equal contrast"):
        at = shapes.sel(kind=kind)
        rise = (at - at.isel(step=0)) / (at.max("step") - at.isel(step=0))
        steps = np.argmax((rise > 0.5).values, axis=rise.get_axis_num("step"))
        found += [
            Measured(f"excess kurtosis of random directions, {kind}", *mean_and_error(at.isel(step=0)), above=0.5),
            Measured(f"steps to half of the rise, {kind}", *mean_and_error(steps), above=2.0),
        ]
    null = mean_and_error(np.abs(shapes.sel(kind="phases randomised").isel(step=-1)))
    return [*found, Measured("modulus of the final kurtosis, phases randomised", *null, below=0.2)]


CLAIMS = (
    Claim(
        "FastICA needs of the order of d⁴ samples for one non-Gaussian direction.",
        PAPER,
        "the overlap after one step depends on n/d⁴ alone; repeated steps on fewer samples find nothing",
        "a Gaussian direction",
        (SCALING, SEARCH), _fastica, "β = 15, kurtosis, d = 24; 24 batches, 16 data sets of 16 starts",
        would_change="a statement about single steps, which need d⁴ samples as claimed: repeated on the same data, "
        "FastICA finds the direction from about d³",
    ),
    Claim(
        "Plain online descent does better: d³.",
        PAPER,
        "samples until |α| > 1/2 grow with an exponent near three",
        "the exponent of FastICA, four",
        (SCALING,), _descent, "β = 15, rate 0.3/d, 256 descents",
    ),
    Claim(
        "Smoothing the loss reaches d², in a way that depends on the data.",
        PAPER,
        "samples over log d grow with an exponent near two",
        "a contrast with a second-order part gains nothing",
        (SCALING,), _smoothed, "β = 15, 256 descents on He_4 (d to 512), 64 on s⁴/4 (d to 64, rate 0.6/d)",
    ),
    Claim(
        "On images FastICA has a search phase, cut short by strong non-Gaussianity.",
        PAPER,
        "a plateau of the kurtosis, then a jump",
        "images whose phases are randomised",
        (SEARCH,), _images, "8 × 8 patches of two photographs, n = 16,000, kurtosis, 64 starts",
        would_change="ImageNet patches, a smaller n/d, or a contrast that grows more slowly: with 64 starts the rise on images "
        "takes 2.2 ± 0.3 steps, which cannot be told from the bound of 2",
    ),
)  # fmt: skip
