"""Claims about classifiers of two groups, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

MAPS, TRADEOFFS, TABLE = "bias-geometry-maps", "bias-geometry-tradeoffs", "bias-geometry-table"
GAPS = {
    "accuracy_gap": "accuracy gap",
    "parity_difference": "parity gap",
    "opportunity_difference": "opportunity gap",
    "odds_difference": "odds gap",
    "predictive_difference": "predictive gap",
    "conditional_information": "conditional information",
}


def _close(runs: Any, name: str, words: str) -> Measured:
    gap = deviation(runs[f"{name}_simulated"], runs[f"{name}_expected"])
    return Measured(f"relative deviation of the {words}", *gap, below=0.05)


def _arms(stored: Stored) -> Any:
    return stored[f"{TRADEOFFS}.runs"].isel(samples=0, size=-1)


def _exact(stored: Stored) -> list[Measured]:
    lines, runs = stored[f"{MAPS}.runs"].isel(size=-1), _arms(stored)
    coupled = [str(arm).startswith("coupled") for arm in runs.arm.values]
    single = runs.isel(arm=~np.array(coupled))
    return [
        _close(lines, "accuracy", "accuracies of both groups against the share, single learner"),
        _close(lines, "accuracy_gap", "accuracy gap against the share, single learner"),
        *(_close(single, name, f"{words}, single learners, reweighed or not") for name, words in GAPS.items()),
        *(_close(runs.isel(arm=coupled), name, f"{words}, coupled learners") for name, words in GAPS.items()),
    ]


def _imbalance(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{MAPS}.runs"].isel(size=-1).accuracy_gap_simulated, []
    for similarity in runs.similarity.values:
        gap = mean_and_error(runs.sel(similarity=similarity, share=0.1))
        found.append(Measured(f"accuracy gap at a share of 0.1, similarity {similarity:g}", *gap, below=0.0))
    for similarity in runs.similarity.values:
        gap = mean_and_error(runs.sel(similarity=similarity, share=0.5))
        found.append(Measured(f"the same at equal shares, similarity {similarity:g}", *gap, above=-0.02, below=0.02))
    apart = mean_and_error(runs.sel(similarity=0.0, share=0.1) - runs.sel(similarity=1.0, share=0.1))
    best = float(stored[MAPS].gap.sel(tilts="equal", similarity=1.0).isel(share=0))
    return [
        *found,
        Measured("gap of unrelated rules minus that of equal rules, share 0.1", *apart, below=0.0),
        Measured("gap of equal rules at a share of 0.05 and the best penalty (theory)", best, below=0.0),
    ]


def _size(runs: Any, arm: str, name: str) -> tuple[float, float]:
    """Absolute value of a gap."""
    value, error = mean_and_error(runs[f"{name}_simulated"].sel(arm=arm))
    return abs(value), error


def _less(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] - other[0], float(np.hypot(one[1], other[1]))


def _exclude(stored: Stored) -> list[Measured]:
    runs, fair, free = _arms(stored), "reweighed: near parity", "reweighed: most accurate"
    closed = _less(*(_size(runs, arm, "parity_difference") for arm in (fair, free)))
    found = [Measured("parity gap at weights chosen for it, minus that at the most accurate ones", *closed, below=0.0)]
    for name in ("accuracy_gap", "opportunity_difference", "odds_difference"):
        found.append(Measured(f"{GAPS[name]} that remains at those weights", *_size(runs, fair, name), above=0.05))
    wider = _less(*(_size(runs, arm, "opportunity_difference") for arm in (fair, free)))
    found.append(Measured("widening of the opportunity gap at those weights", *wider, above=0.0))
    # every other criterion at the weights that close one: the widest of the gaps that stay open
    for closed in ("accuracy_gap", "parity_difference", "opportunity_difference"):
        arm = f"reweighed: closes {closed}"
        own = _size(runs, arm, closed)
        others = [
            n for n in ("accuracy_gap", "parity_difference", "opportunity_difference", "odds_difference") if n != closed
        ]
        widest = max(_size(runs, arm, n) for n in others)
        found += [
            Measured(f"{GAPS[closed]} at the weights that close it", *own, below=0.05),
            Measured(f"widest other gap at the weights that close the {GAPS[closed]}", *widest, above=0.05),
        ]
    alike = stored[f"{TRADEOFFS}.control"].isel(samples=0, size=-1)
    most = max(abs(mean_and_error(alike[f"{n}_simulated"])[0]) for n in GAPS if n != "conditional_information")
    return [*found, Measured("largest gap for equal rules and base rates, without any weights", most, below=0.05)]


def _coupled(stored: Stored) -> list[Measured]:
    fronts, runs, found = stored[TRADEOFFS], _arms(stored), []
    for measure, words in GAPS.items():
        both, weights = (fronts.accuracy.sel(measure=measure, remedy=r) for r in ("coupled, reweighed", "reweighed"))
        least = float((both - weights).min())
        found.append(
            Measured(
                f"smallest gain in accuracy over allowed gaps, {words}, coupled and reweighed (theory)",
                least,
                above=0.0,
            )
        )
    right = mean_and_error(
        runs.test_error_simulated.sel(arm="reweighed: near parity")
        - runs.test_error_simulated.sel(arm="coupled, reweighed: near parity")
    )
    left = _size(runs, "coupled, reweighed: near parity", "parity_difference")
    expected = abs(float(runs.parity_difference_expected.sel(arm="coupled, reweighed: near parity").mean()))
    alone = _less(*(_size(runs, f"{arm}: most accurate", "parity_difference") for arm in ("coupled", "single")))
    return [
        *found,
        Measured("gain in accuracy near parity, coupled and reweighed (simulated)", *right, above=0.0),
        Measured(f"parity gap that remains (simulated; theory {expected:.3f}, allowed 0.05)", *left, below=0.05),
        Measured("parity gap of coupling alone minus that of a single learner (simulated)", *alone, below=0.0),
    ]


def _real(stored: Stored) -> list[Measured]:
    table, found = stored[TABLE], []
    for name in table.table.values:
        here = table.sel(table=name)
        ends = {kind: here[kind].sel(share=0.1) - here[kind].sel(share=0.9) for kind in ("gap", "shuffled", "model")}
        found += [
            Measured(
                f"accuracy gap at a share of 0.1 minus that at 0.9, {name}, model", float(ends["model"]), below=0.0
            ),
            Measured(f"the same on the table, {name}", *mean_and_error(ends["gap"]), below=0.0),
            Measured(
                f"the same with shuffled groups, {name}", *mean_and_error(ends["shuffled"]), above=-0.02, below=0.02
            ),
        ]
    return found


CLAIMS = (
    Claim(
        "The confusion matrices of both groups, and hence all measures of group fairness, are known exactly.",
        "sarao2024bias",
        "simulated accuracies and gaps lie on the theory lines",
        "one group only: the ordinary perceptron",
        (MAPS, TRADEOFFS), _exact,
        "maps: d = 200, 12 seeds; gaps at the tuned arms of the trade-offs: d = 400, 40 seeds; two samples per dimension",
        would_change="larger dimensions for the odds gap and the information on the group, a largest and a squared difference "
        "that noise biases upwards at d = 400, and more seeds for the other gaps of coupled learners",
    ),
    Claim(
        "Imbalance and different rules each bias the classifier; imbalance does so even when the rules are equal.",
        "sarao2024bias",
        "the smaller group is classified less accurately, and the gap grows as its rule differs more from the other group's",
        "equal shares: no gap",
        (MAPS,), _imbalance, "d = 200, 12 seeds, penalty 0.3, rules of similarity 0, 0.6 and 1",
    ),
    Claim(
        "Reweighing acts on single measures, and some criteria exclude one another.",
        "sarao2024bias",
        "weights that close one gap leave others open",
        "equal base rates and rules: all gaps close together",
        (TRADEOFFS,), _exclude,
        "d = 400, 40 seeds; weights that allow a parity gap of 0.05, and the most accurate ones that close a gap to 0.01",
    ),
    Claim(
        "Coupled learners, one for each group, give better trade-offs.",
        "sarao2024bias",
        "higher accuracy at every allowed gap",
        "infinite coupling; reweighing alone",
        (TRADEOFFS,), _coupled,
        "share 0.2, similarity 0.6; d = 400, 40 seeds. Fronts are found by random search; that of coupled and reweighed learners "
        "also starts from the best weights of single ones, which are its limit of infinite coupling",
        would_change="a search that resolves the fronts at the smallest gaps; coupling without reweighing widens "
        "the parity gap, in theory too",
    ),
    Claim(
        "The model reproduces the unfairness seen on real data sets.",
        "sarao2024bias",
        "the same signs of the gaps on a real table",
        "group labels shuffled",
        (TABLE,), _real,
        "scikit-learn's diabetes table (sex as group, 120 of 442 patients for training) and digits (0 to 4 and 5 to 9 as groups, "
        "320 images), penalty 0.3, 200 splits; the model knows the number of samples and the similarity of both groups' "
        "rules only",
        missing="the size of the gap: the model's changes about twice as much with the share, and it does not know which group "
        "is easier (on the diabetes table one sex is, at every share)",
    ),
)  # fmt: skip
