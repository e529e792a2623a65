"""Claims about stochastic binary weights, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

from .._points import difference, solved_and_error

FIGURE, NEAR = "stochastic-synapses-sharpening", "stochastic-synapses-neighbours"
DEEP = "binary-digits-training"


def _apart(table: Any, what: str) -> tuple[float, float]:
    """Value for the solution that descent found minus that for typical ones, averaged over systems."""
    return mean_and_error(table[f"found_{what}"] - table[f"typical_{what}"])


def _dense(stored: Stored) -> list[Measured]:
    table, found = stored[NEAR], []
    for labels in table.labels.values:
        for size in table["size"].values:
            for radius in (1, 3):
                gap = _apart(table.sel(labels=labels, size=size, radius=radius), "near")
                words = f"entropy within {radius} flips, found less typical, {labels} labels, N = {size}"
                found.append(Measured(words, *gap, above=0.0))
    return found


def _robust(stored: Stored) -> list[Measured]:
    table, found = stored[NEAR], []
    for size in table["size"].values:
        for labels in table.labels.values:
            gap = _apart(table.sel(labels=labels, size=size), "flipped_error")
            words = f"training error after two flips, found less typical, {labels} labels, N = {size}"
            found.append(Measured(words, *gap, below=0.0))
        gap = _apart(table.sel(labels="teacher", size=size), "fresh_error")
        found.append(Measured(f"error on fresh patterns, found less typical, N = {size}", *gap, below=0.0))
    for labels, names in (
        ("random", ("sampled_error",)),
        ("teacher", ("sampled_error", "test_error", "binarised_error")),
    ):
        runs = stored[f"{FIGURE}.{labels}"].sel(sharpness=slice(0.0, 0.8))
        for name in names:
            gap = deviation(runs[f"{name}_simulated"], runs[f"{name}_expected"])
            words = f"relative deviation from the theory up to q_* = 0.8, {name.replace('_', ' ')}, {labels} labels"
            found.append(Measured(words, *gap, below=0.05))
    return found


def _success(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{FIGURE}.success"], []
    for size in runs["size"].values:
        here = runs.sel(size=size)
        for alpha in (0.5, 0.6, 0.65, 0.7):
            share = solved_and_error(here.solved.sel(samples=alpha))
            found.append(Measured(f"fraction solved at α = {alpha:g}, N = {size}", *share, above=0.5))
        plain = solved_and_error(here.clipped_signs_solved.sel(samples=0.5))
        gap = difference(solved_and_error(here.solved.sel(samples=0.5)), plain)
        found.append(Measured(f"fraction solved at α = 0.5 less that by clipped weights, N = {size}", *gap, above=0.5))
    large = stored[f"{FIGURE}.large"]
    for size in large["size"].values:
        for alpha in (0.5, 0.6, 0.65, 0.7):
            share = solved_and_error(large.solved.sel(size=size, samples=alpha))
            found.append(Measured(f"fraction solved at α = {alpha:g}, N = {size}", *share, above=0.5))
    return found


def _deep(stored: Stored) -> list[Measured]:
    table, found = stored[DEEP], []
    for network in table.network.values:
        at = table.sel(network=network)
        binary, post = (at.binarised_accuracy.sel(training=t) for t in ("surrogate", "full precision"))
        precise, straight = (at.accuracy.sel(training=t) for t in ("full precision", "straight-through"))
        pairs = (
            ("full precision less the binary network", precise, binary, {"below": 0.1}),
            ("the binary network less one binarised after training", binary, post, {"above": 0.0}),
            ("straight-through less the binary network", straight, binary, {"below": 0.05}),
        )
        for words, one, two, bounds in pairs:
            gap = difference(mean_and_error(one), mean_and_error(two))
            found.append(Measured(f"accuracy of {words}, {network}", *gap, **bounds))
    return found


CLAIMS = (
    Claim(
        "Learning a distribution over binary weights leads to rare, dense regions of solutions.",
        "baldassi2018role",
        "more solutions around those found than around solutions drawn uniformly",
        "the uniformly drawn solutions, which are typical",
        (NEAR,), _dense, "all solutions enumerated, N = 15 and 21, 64 systems, α = 0.5 (random labels) and 0.75 (teacher)",
        missing="large systems, where typical solutions are isolated",
        seconds=60,
    ),
    Claim(
        "Solutions in these regions are robust and generalise well.",
        "baldassi2018role",
        "smaller errors after flips and on fresh patterns than for typical solutions; errors agree with the theory",
        "solutions drawn uniformly",
        (NEAR, FIGURE), _robust, "flips and fresh patterns: N = 15 and 21, 64 systems; against the theory: N = 401, 16 systems",
        seconds=200,
    ),
    Claim(
        "Plain gradient descent on the means solves the binary perceptron.",
        "baldassi2018role",
        "most systems solved up to α about 0.7",
        "the signs of one weight vector that descends in the box [−1, 1]^N",
        (FIGURE,), _success, "random labels, N = 201 and 401 with 16 systems per point, N = 1,001 and 2,001 with 32; 39 stages "
        "of 40 steps",
        seconds=150,
        would_change="slower sharpening: at α = 0.7 the fraction solved falls with N at a fixed number of steps, "
        "at smaller α it does not",
    ),
    Claim(
        "The method extends to deep binary networks.",
        "baldassi2018role",
        "accuracy of the binary network on digits near that of full precision",
        "a network trained at full precision and binarised afterwards",
        (DEEP,), _deep, "handwritten digits, σ_m² = 0.99: two layers of 128 units after 3,000 steps of Adam, 8 networks, "
        "and four of 64 after 1,500, 4 networks",
    ),
)  # fmt: skip
