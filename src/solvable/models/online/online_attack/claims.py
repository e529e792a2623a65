"""Claims about attacks on online learners, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import deviation, difference, ratio

FIGURE = "online-attack-costs"
DIGITS = "online-attack-digits"
ARMS = ("constant", "greedy, P = 1", "greedy, P = 10", "optimal, P = 1")


def _steady(stored: Stored) -> list[Measured]:
    """Deviations at the end of the runs; the constant attack jumps at C = 1, where its steady accuracy is undefined."""
    runs, found = stored[f"{FIGURE}.experiment"].isel(size=-1, time=-1), []
    for name, steady, words in (("test_error", "steady_error", "error"), ("running_cost", "steady_cost", "cost")):
        for arm in ARMS:
            at = runs.sel(arm=arm)
            at = at.sel(cost=at.cost[np.abs(at.cost - 1) > 1e-9]) if arm == "constant" else at
            gap = deviation(at[f"{name}_simulated"], at[f"{steady}_theory"])
            found.append(Measured(f"largest deviation of the {words}, {arm}", *gap, below=0.05))
    return found


def _jump(stored: Stored) -> list[Measured]:
    """Largest change of the accuracy over two grid steps of the price, and its change at the critical price for a small rate."""
    from .model import OnlineAttack

    lines, found = stored[FIGURE], []
    for arm in ("constant", "greedy, P = 1", "greedy, P = 10"):
        accuracy = 1 - lines.steady_error_theory.sel(arm=arm).values
        steepest = float((accuracy[2:] - accuracy[:-2]).max())
        found.append(Measured(f"largest change within 12 % of the price, rate 0.25, {arm}", steepest, above=0.5))
    slow = OnlineAttack(rate=1e-4, times=[0.0, 1e6])
    for words, critical, fields in (
        ("constant", 1.0, {"strategy": "constant"}),
        ("greedy, P = 1", 3.0, {"batch": 1}),
        ("greedy, P = 10", 1.2, {"batch": 10}),
    ):
        errors = (
            slow.replace(cost=critical * np.array([0.95, 1.05]), **fields).theory(only=["steady_error"]).steady_error
        )
        change = float(errors[0] - errors[1])
        found.append(Measured(f"change within 5 % of C = {critical:g}, rate 0.0001, {words}", change, above=0.5))
    return found


def _greedy(stored: Stored) -> list[Measured]:
    runs = stored[f"{FIGURE}.experiment"].isel(size=-1, time=-1).running_cost_simulated
    runs = runs.sel(cost=1.0, method="nearest")
    at = {arm: mean_and_error(runs.sel(arm=arm)) for arm in ARMS}
    greed = stored[f"{FIGURE}.greed"].steady_cost_theory
    excess = greed.sel(strategy="greedy") / greed.sel(strategy="optimal") - 1
    small, large = at["greedy, P = 1"], at["greedy, P = 10"]
    return [
        Measured(
            "cost over that of the constant attack at C = 1, P = 1, networks", *ratio(small, at["constant"]), below=0.75
        ),
        Measured(
            "largest relative cost above the optimum over rates, P = 1, theory",
            float(excess.sel(batch=1).max()),
            below=0.05,
        ),
        Measured("the same, P = 10", float(excess.sel(batch=10).max()), below=0.05),
        Measured("cost at P = 1 minus that at P = 10, networks", *difference(small, large), below=0.0),
    ]


def _on_digits(stored: Stored) -> list[Measured]:
    """Accuracies on either side of the price 1, for learners of digits, and the control."""
    runs, found = stored[DIGITS], []
    for learner in runs.learner.values:
        at = runs.sel(learner=learner)
        for attack in ("constant", "greedy, P = 10"):
            for cost, bounds in ((0.5, {"below": 0.5}), (2.0, {"above": 0.5})):
                accuracy = mean_and_error(1 - at.error.sel(attack=attack, cost=cost))
                found.append(Measured(f"accuracy at C = {cost:g}, {attack}, {learner}", *accuracy, **bounds))
        accuracy = mean_and_error(1 - at.error.sel(attack="greedy, P = 1", cost=2.0))
        found.append(Measured(f"accuracy at C = 2, greedy, P = 1, {learner}", *accuracy, below=0.5))
        paid = at.cost_paid.sel(cost=1.0)
        saved = mean_and_error(paid.sel(attack="greedy, P = 10") / paid.sel(attack="constant"))
        found.append(
            Measured(f"cost of greedy attacks, P = 10, over that of constant ones, C = 1, {learner}", *saved, below=1.0)
        )
        for attack, bounds in (("constant", {"below": 0.5}), ("random flips", {"above": 0.5})):
            accuracy = mean_and_error(1 - at.error.sel(attack=attack, cost=0.7))
            found.append(Measured(f"accuracy at C = 0.7, {attack}, {learner}", *accuracy, **bounds))
    return found


CLAIMS = (
    Claim(
        "Steady states of linear learners under attack are known exactly.",
        "margiotta2023attacks",
        "long-run accuracy and cost against the price of an attack lie on the theory lines",
        "a large price: the learner is unaffected",
        (FIGURE,), _steady, "D = 200, 12 seeds, rate 0.25, prices from 0.1 to 10; deviations over the largest value of the line",
    ),
    Claim(
        "Accuracy jumps at a critical strength of the attack.",
        "margiotta2023attacks",
        "a discontinuity at price 1 for constant and at 1 + 2/P for greedy attacks",
        "a smooth curve",
        (FIGURE,), _jump,
        "rate 0.25, and the limit of a small rate: greedy attacks at rate 0.25 turn the learner gradually",
        would_change="smaller rates: constant attacks jump at any rate, greedy ones only as the rate goes to zero, "
        "and at 0.25 they turn the learner gradually",
    ),
    Claim(
        "Greedy attacks are very efficient, especially on small batches.",
        "margiotta2023attacks",
        "their long-run cost is at least a quarter below that of a constant attack, close to the optimum, and grows with P",
        "large batches: greedy attacks become constant",
        (FIGURE,), _greedy, "price 1, rate 0.25 (networks of D = 200, 12 seeds), rates from 0.01 to 1 (theory)",
    ),
    Claim(
        "Real data and deeper learners behave in the same way.",
        "margiotta2023attacks",
        "accuracy falls below one half between prices 2 and 0.5 under constant and greedy attacks (P = 10), and at a "
        "higher price "
        "under greedy attacks on single samples, which the model lets turn the learner at C = 3",
        "random label flips at equal price turn the learner at C = √2 - 1 only",
        (DIGITS,), _on_digits,
        "scikit-learn's digits, 0 to 4 against 5 to 9, 1,200 training images; linear and two hidden layers of 64 ReLUs; 6 seeds, "
        "20,000 attacked steps; the model's attacks at small rates, unchanged",
        would_change="attacks made for images, whose pixels differ in variance: the model predicts that greedy "
        "attacks on single inputs (P = 1) win up to a price of 3, on digits they no longer do at 2, "
        "and in batches of ten they save nothing on a deep network",
    ),
)  # fmt: skip
