"""Claims about curricula for online learners, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import ratio
from .time_figures import FULL, SPARSE, time_to

FIGURE, TIME = "curriculum-online-order", "curriculum-online-time"


def _order(stored: Stored) -> list[Measured]:
    """Relative gain of easy samples first on hard inputs: in theory at the least and most favourable horizon, and in networks."""
    table, found = stored[f"{FIGURE}.table"], []
    for pace, words in (("constant", "constant rate"), ("paced", "free rate")):
        first = table[pace].sel(arm="curriculum")
        alone, last = ((1 - first / table[pace].sel(arm=arm)).values for arm in ("hard", "anti"))
        found += [
            Measured(f"smallest gain over hard samples alone, {words}", float(alone.min()), above=0.0),
            Measured(f"largest gain over hard samples alone, {words}", float(alone.max()), below=0.25),
            Measured(f"smallest gain over hard samples first, {words}", float(last.min()), above=0.0),
        ]
    runs = stored[FIGURE].final_error_simulated.isel(size=-1, horizon=0)
    errors = {arm: mean_and_error(runs.sel(arm=arm)) for arm in ("curriculum", "hard", "anti")}
    for arm, words in (("hard", "hard samples alone"), ("anti", "hard samples first")):
        over = ratio(errors["curriculum"], errors[arm])
        found.append(Measured(f"error over that with {words}, T = 5, constant rate, networks", *over, below=1.0))
    return found


def _sooner(stored: Stored) -> list[Measured]:
    """Time with hard samples alone over that with easy ones first, to the errors that hard samples alone have at T = 5 and 15."""
    table, found = stored[TIME], []
    for inputs, bounds in ((SPARSE, {"above": 1.0, "below": 1.5}), (FULL, {"above": 0.95, "below": 1.05})):
        alone = table.error.sel(inputs=inputs, arm="hard")
        for horizon in (5.0, 15.0):
            error = float(np.interp(np.log(horizon), np.log(table.horizon), alone))
            gain = time_to(table, inputs, "hard", error) / time_to(table, inputs, "curriculum", error)
            found.append(
                Measured(f"speed-up to the error of hard samples alone at T = {horizon:g}, {inputs}", gain, **bounds)
            )
    error = float(np.interp(np.log(5.0), np.log(table.horizon), table.error.sel(inputs=SPARSE, arm="hard")))
    over = time_to(table, SPARSE, "anti", error) / time_to(table, SPARSE, "curriculum", error)
    return [*found, Measured("speed-up of easy over that of hard samples first, T = 5", over, above=1.0)]


CLAIMS = (
    Claim(
        "Online, presenting easy samples first speeds up learning modestly.",
        "saglietti2022analytical",
        "the error on hard inputs is below that of other orders, each at its own best rate, by at most a quarter",
        "no irrelevant inputs: no difference",
        (FIGURE,), _order,
        "a fifth of the inputs relevant, T = 2.5 to 20; rate, decay and share of easy samples tuned for every order; networks of "
        "N = 800, 16 seeds",
        would_change="a rule that fixes the rate for all orders: with a rate tuned for each, hard samples first "
        "gain more at a constant rate; when the rate may fall, easy samples first gain more than "
        "modestly",
    ),
    Claim(
        "Easy samples first reach a given error sooner, at equal total samples.",
        "saglietti2022analytical",
        "the time to an error is shorter by at most a third than with hard samples alone, each arm at its own best constant rate",
        "nearly all inputs relevant: no difference; hard samples first: later",
        (TIME,), _sooner,
        "theory; rate, decay and share of easy samples (up to a half) tuned for every order and every training time from 1.5 to "
        "24",
        would_change="another loss or learning rule for which hard samples first, whose late easy samples spare noise, are "
        "slower",
    ),
)  # fmt: skip
