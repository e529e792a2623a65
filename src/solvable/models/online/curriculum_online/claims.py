"""Claims about curricula for online learners, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import ratio

FIGURE = "curriculum-online-order"


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
)  # fmt: skip
