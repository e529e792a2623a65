"""Claims about real data learnt in succession, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE, ORDER = "continual-digits", "continual-digits-order"


def _peak_above(forgetting: np.ndarray, end: int) -> np.ndarray:
    """Worst forgetting at interior mixings minus that at one end, by seed; the place is chosen on the other half of the seeds."""
    out = np.empty(len(forgetting))
    halves = np.arange(0, len(forgetting), 2), np.arange(1, len(forgetting), 2)
    for mine, others in (halves, halves[::-1]):
        place = 1 + int(np.argmax(forgetting[others, 1:-1].mean(axis=0)))
        out[mine] = forgetting[mine, place] - forgetting[mine, end]
    return out


def _peak(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{FIGURE}.forgetting"].forgetting, []
    at = runs.sel(arm="specialised").transpose("seed", "mixing").values
    for end, words in ((0, "0"), (-1, "1")):
        value = mean_and_error(_peak_above(at, end))
        found.append(Measured(f"worst forgetting at interior mixings minus that at mixing {words}", *value, above=0.0))
    for arm, words in (("shared", "shared start"), ("head copied", "copied head")):
        at = runs.sel(arm=arm).transpose("seed", "mixing").values
        value = mean_and_error(_peak_above(at, 0))
        found.append(
            Measured(f"worst forgetting at interior mixings minus that at mixing 0, {words}", *value, below=0.0)
        )
    return found


def _protocols(stored: Stored) -> list[Measured]:
    """Differences paired by seed; a rule that is itself the optimum is skipped."""
    runs, found = stored[f"{FIGURE}.protocols"], []
    loss, fraction = runs.final_loss, runs.fraction
    for horizon in loss.horizon.values:
        for rule, words in (("0.00", "even replay"), ("1.00", "no replay")):
            paired = loss.sel(horizon=horizon, protocol="optimal") - loss.sel(horizon=horizon, protocol=rule)
            for mixing in loss.mixing.values:
                at = fraction.sel(horizon=horizon, mixing=mixing)
                if np.allclose(at.sel(protocol="optimal"), at.sel(protocol=rule)):
                    continue
                what = f"final loss minus that of {words}, horizon {horizon:g}, mixing {mixing:g}"
                found.append(Measured(what, *mean_and_error(paired.sel(mixing=mixing)), below=0.0))
    return found


def _random_order(stored: Stored) -> list[Measured]:
    """Final loss of the optimal order minus the mean of random orders of the same fractions, paired by seed."""
    loss = stored[ORDER].final_loss
    others = [p for p in loss.protocol.values if p != "optimal"]
    paired = loss.sel(protocol="optimal") - loss.sel(protocol=others).mean("protocol")
    words = "final loss minus that of the same fractions in random order, horizon 10, mixing"
    return [
        Measured(f"{words} {mix:g}", *mean_and_error(paired.sel(mixing=mix)), below=0.0) for mix in loss.mixing.values
    ]


CLAIMS = (
    Claim(
        "Forgetting is worst at intermediate similarity on real data too.",
        "lee2022maslow",
        "forgetting of the first pair of digits against the mixing of pixels peaks at an interior value",
        "a shared start, or a head copied from the first task: no peak",
        (FIGURE,), _peak,
        "scikit-learn digits, two units, 96 seeds, stages of 100 steps per pixel; the place of the peak is chosen on one half "
        "of the seeds and measured on the other",
    ),
    Claim(
        "Protocols that are optimal in theory work on real data.",
        "mori2025optimal",
        "used unchanged, the optimal protocol of the theory ends with a lower loss than even replay and no replay",
        "the same fractions in random order",
        (FIGURE, ORDER), lambda stored: [*_protocols(stored), *_random_order(stored)],
        "scikit-learn digits, 96 seeds, horizons of 4 (where no replay is the optimum) and 10 steps per pixel; control: "
        "four random "
        "orders at horizon 10",
        would_change="a theory of students on digits themselves: the optimum for Gaussian inputs beats even replay "
        "at horizon 10 with mixing 0.4 and 0.6 only, and loses to it once at horizon 4",
    ),
)  # fmt: skip
