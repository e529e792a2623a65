"""Claims about transferring a first layer, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE = "transfer-gain"
DIGITS = "transfer-digits"


def _analytic(stored: Stored) -> list[Measured]:
    runs = stored[FIGURE].isel(size=-1)
    words = {"test_error": "the source's features", "random_error": "random features"}
    return [
        Measured(
            f"relative deviation of the test error, {of}",
            *deviation(runs[f"{name}_simulated"], runs[f"{name}_expected"]),
            below=0.05,
        )
        for name, of in words.items()
    ]


def _gain(table: Any) -> Any:
    """Test error with random features minus that with the source's features, by source."""
    return table.test_error.sel(map="random") - table.test_error.sel(map="source")


def _helps(stored: Stored) -> list[Measured]:
    theory, runs = _gain(stored[f"{FIGURE}.gain"]), stored[FIGURE].isel(size=-1)
    scratch = runs.scratch_error_simulated - runs.test_error_simulated
    few, many = theory.isel(samples=0), theory.isel(samples=-1)
    unlike = theory.sel(correlation=0.0)
    most = unlike.isel(samples=int(unlike.mean("source").argmax("samples")))
    found = [
        Measured(
            "gain over random features, q = 1, n/d = 1 (theory)", *mean_and_error(few.sel(correlation=1.0)), above=0
        ),
        Measured("the same at q = 0.9, n/d = 1", *mean_and_error(few.sel(correlation=0.9)), above=0),
        Measured("the same at q = 0.9, n/d = 40", *mean_and_error(many.sel(correlation=0.9)), below=0),
        Measured("largest gain of an unrelated source, q = 0, over n/d (theory)", *mean_and_error(most), below=0),
    ]
    for arm, samples, helps in (("1", 1.5, True), ("0.5", 25.0, False)):
        gain = mean_and_error(runs.gain_simulated.sel(arm=arm, samples=samples))
        bounds = {"above": 0.0} if helps else {"below": 0.0}
        found.append(Measured(f"gain over random features, q = {arm}, n/d = {samples:g} (simulated)", *gain, **bounds))
    for arm, samples, helps in (("1", 1.5, True), ("1", 25.0, False), ("0.5", 10.0, False)):
        gain = mean_and_error(scratch.sel(arm=arm, samples=samples))
        bounds = {"above": 0.0} if helps else {"below": 0.0}
        found.append(
            Measured(f"gain over both layers trained, q = {arm}, n/d = {samples:g} (simulated)", *gain, **bounds)
        )
    return found


def _which_part(stored: Stored) -> list[Measured]:
    gain, found = _gain(stored[f"{FIGURE}.plane"]), []
    for q in (0.0, 0.3, 0.6, 0.8):
        apart, error = mean_and_error(gain.sel(feature=1.0, teacher=q) - gain.sel(feature=q, teacher=1.0))
        words = f"difference between the gains with teacher correlation {q:g} and with manifold correlation {q:g}"
        found.append(Measured(words, abs(apart), error, above=0.005))
    return found


def _on_digits(stored: Stored) -> list[Measured]:
    """Signs of the gain that the model predicts, for pairs of tasks on digits."""
    errors = stored[DIGITS].error
    over = {other: errors.sel(learner=other) - errors.sel(learner="source") for other in ("random", "scratch")}
    found = []
    for source in ("same task", "one pair exchanged"):
        few, many = (over["random"].sel(source=source, samples=n) for n in (20, 320))
        found += [
            Measured(f"gain over random features, {source}, n = 20", *mean_and_error(few), above=0.0),
            Measured(f"the same at n = 20 minus that at n = 320, {source}", *mean_and_error(few - many), above=0.0),
        ]
    for source in ("pixels permuted", "labels shuffled"):
        gains = over["random"].sel(source=source)
        best = gains.isel(samples=int(gains.mean("seed").argmax("samples")))
        words = f"largest gain over random features over n, {source}"
        found.append(Measured(words, *mean_and_error(best), below=0.0))
    for source, n, bounds in (
        ("same task", 20, {"above": 0.0}),
        ("one pair exchanged", 20, {"above": 0.0}),
        ("pixels permuted", 320, {"below": 0.0}),
    ):
        gain = mean_and_error(over["scratch"].sel(source=source, samples=n))
        found.append(Measured(f"gain over both layers trained, {source}, n = {n}", *gain, **bounds))
    return found


CLAIMS = (
    Claim(
        "Given the frozen feature map, the error on the target is known analytically.",
        "gerace2022probing",
        "test errors of retrained last layers against n/d lie on the theory lines",
        "a random map, which reduces to random features",
        (FIGURE,), _analytic, "d = 50, sources of correlation 1, 0.9 and 0.5, n/d from 1.5 to 25, four seeds",
    ),
    Claim(
        "Transfer helps if the tasks are similar and target samples few; otherwise it hurts.",
        "gerace2022probing",
        "sign of the gain over random features, and over training both layers on the target, against n/d and correlation",
        "an unrelated source: no gain",
        (FIGURE,), _helps,
        "theory: three sources; simulated: d = 50, four seeds. Identical tasks still gain 0.003 over random features at n/d = 40",
    ),
    Claim(
        "Which part of the tasks differs matters: manifold, teacher, features added or removed.",
        "gerace2022probing",
        "losing the correlation of the manifolds changes the gain differently from losing that of the teachers, by at least half "
        "a per cent of test error",
        "a symmetric map",
        (FIGURE,), _which_part, "theory at n/d = 8, two sources",
        missing="features added to, and removed from, the target",
        would_change="more sources than two: between correlations of 0.3 and 0.8 the gains differ by no more than two errors",
    ),
    Claim(
        "The model reproduces the behaviour of transfer on real data.",
        "gerace2022probing",
        "the same signs of the gain on pairs of real tasks: positive for like tasks and few samples, falling with more; negative "
        "for an unrelated manifold",
        "labels of the source shuffled: no gain",
        (DIGITS,), _on_digits,
        "scikit-learn's digits in two groups of five, 900 source images, 10 to 320 target images, 128 tanh units, 96 seeds; "
        "sources: the same task, one or two pairs of digits exchanged, pixels permuted, labels shuffled",
        would_change="some thousand seeds for the source with shuffled labels: its largest gain, over six numbers of images, is "
        "zero within errors of two thousandths, where a negative one is required; at 320 images alone it is negative",
    ),
)  # fmt: skip
