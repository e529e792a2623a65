"""Claims about learning on random features, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

Number = tuple[float, float]

DESCENT, PHASES = "random-features-double-descent", "random-features-phase-diagram"
MANIFOLD = "random-features-manifold"
SAMPLES = 3.0


def difference(one: Number, other: Number) -> Number:
    """Difference of two independent numbers, with its standard error."""
    return one[0] - other[0], float(np.hypot(one[1], other[1]))


def _formula(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{DESCENT}.experiment"].isel(size=-1), []
    for name in ("test_error", "train_loss"):
        for loss in runs.loss.values:
            gap = deviation(*(runs[f"{name}_{kind}"].sel(loss=loss) for kind in ("simulated", "expected")))
            words = f"relative deviation of the {name.replace('_', ' ')}, {loss}"
            found.append(Measured(words, *gap, below=0.05))
    return found


def _descent(stored: Stored) -> list[Measured]:
    lines, found = stored[f"{DESCENT}.theory"], []
    ratio = lines.width.values / SAMPLES
    for loss in lines.loss.values:
        here = lines.sel(loss=loss)
        error, wrong = here.test_error_theory.values, here.train_error_theory.values
        rising = np.flatnonzero(np.diff(error) > 0)
        peak = int(rising[-1]) + 1
        height = float(error[peak] - error[: peak + 1].min())
        # Training errors of the square loss vanish long before its training loss does: it interpolates at p = n.
        begins = 1.0 if loss == "square" else float(ratio[np.argmax(wrong < 1e-3)])
        place = float(ratio[peak]) / begins
        found += [
            Measured(f"height of the peak of the test error, {loss} (theory)", height, above=0.0),
            Measured(f"p/n at the peak over p/n where interpolation begins, {loss} (theory)", place, 0.0, 0.9, 1.1),
            Measured(
                "largest rise of the test error with p/n at the best penalty",
                float(np.diff(here.best_error).max()),
                below=0.0,
            ),
        ]
    runs = stored[f"{DESCENT}.experiment"].isel(size=-1).sel(loss="square").test_error_simulated
    for width in (0.6, 2.0):
        beside = runs.sel(width=width * SAMPLES, method="nearest")
        higher = mean_and_error(runs.sel(width=SAMPLES, method="nearest") - beside)
        words = f"test error of the square loss at p = n above that at p/n = {width:g} (simulated)"
        found.append(Measured(words, *higher, above=0.0))
    # near the peak of the logistic loss the error falls more slowly than before it
    runs = stored[f"{DESCENT}.experiment"].isel(size=-1).sel(loss="logistic").test_error_simulated
    early, onset, late = (runs.sel(width=w * SAMPLES, method="nearest") for w in (0.27, 0.36, 0.45))
    bend = mean_and_error(2 * onset - early - late)
    words = "bump of the simulated logistic error at p/n = 0.36 over the mean of 0.27 and 0.45, twice"
    return [*found, Measured(words, *bend, above=0.0)]


def _orthogonal(stored: Stored) -> list[Measured]:
    lines = stored[f"{PHASES}.curves"]
    found = []
    for name, words in (("test_error_theory", "small penalty"), ("best_error", "best penalty")):
        gain = lines[name].sel(projection="gaussian") - lines[name].sel(projection="orthogonal")
        found += [
            Measured(f"smallest gain in test error over widths, {words}", float(gain.min()), above=0.0),
            Measured(
                f"gain at the largest width (p/d = 30) over the largest gain, {words}",
                float(gain.isel(width=-1) / gain.max()),
                below=0.1,
            ),
        ]
    runs = stored[f"{PHASES}.curves_measured"].isel(size=-1).test_error_simulated
    for width in runs.width.values:
        here = runs.sel(width=width)
        gap = difference(*(mean_and_error(here.sel(projection=name)) for name in ("gaussian", "orthogonal")))
        # far from p = d the gain is below the noise of these simulations
        if 0.5 < width < 4:
            found.append(Measured(f"gain in test error at p/d = {width:g}, small penalty (simulated)", *gap, above=0.0))
    measured = stored[f"{PHASES}.curves_measured"].isel(size=-1)
    off = deviation(measured.test_error_simulated, measured.test_error_expected)
    return [*found, Measured("relative deviation of the simulated test errors from theory", *off, below=0.05)]


def _manifold(stored: Stored) -> list[Measured]:
    """Gaussian projections correlate the entries of an input, orthogonal ones (p ≤ d) do not."""
    lines = stored[MANIFOLD].test_error_theory
    gap = lines.sel(projection="gaussian") - lines.sel(projection="orthogonal")
    near, far = float(gap.sel(arm="1")), float(gap.isel(arm=-1))
    runs = stored[f"{MANIFOLD}.measured"].isel(size=-1)
    ends = (
        mean_and_error(runs.test_error_simulated.sel(arm="1", projection=name)) for name in ("gaussian", "orthogonal")
    )
    off = deviation(runs.test_error_simulated, runs.test_error_expected)
    return [
        Measured(
            "error with correlated minus that with independent entries, d/p = 1 (simulated)",
            *difference(*ends),
            above=0.005,
        ),
        Measured("relative deviation of the simulated test errors from theory", *off, below=0.05),
        Measured("error with correlated minus that with independent entries, d/p = 1 (theory)", near, above=0.005),
        Measured("the same at d/p = 30 over that at 1 (theory)", far / near, below=0.1),
    ]


CLAIMS = (
    Claim(
        "One closed formula gives the error of generalised linear learning on random features for any convex loss, on both "
        "sides of interpolation.",
        "gerace2020generalisation",
        "test error and training loss against p/n lie on the theory lines for square, logistic and hinge loss",
        "features without nonlinearity reduce to a plain linear model",
        (DESCENT,), _formula, "d = 200, n/d = 3, penalty 1e-4, 64 seeds, p/n from 0.2 to 2",
        would_change="larger systems: at the onset of interpolation, training losses of the logistic and the hinge "
        "loss lie a fifth below the line at d = 200, as at a transition that finite size rounds",
    ),
    Claim(
        "Logistic regression also shows double descent, with its peak at the onset of interpolation.",
        "gerace2020generalisation",
        "at small penalty the test error has a peak where training errors vanish",
        "the best penalty: monotone; the square loss: a peak at p = n",
        (DESCENT,), _descent, "n/d = 3, penalty 1e-4; simulated at d = 200, 64 seeds",
    ),
    Claim(
        "Orthogonal projections beat Gaussian ones.",
        "gerace2020generalisation",
        "their test error is lower at every width",
        "p far from d, where both coincide",
        (PHASES,), _orthogonal, "logistic loss, n/d = 3, penalty 1e-4 and the best one, p/d from 0.3 to 30, in "
        "theory; simulated: d = 200, 32 seeds, p/d from "
        "0.5 to 4, penalty 1e-4",
    ),
    Claim(
        "Correlations that the hidden manifold induces in the data matter.",
        "gerace2020generalisation",
        "the error against d/p at fixed n/p differs from that of inputs with independent entries",
        "d far above p",
        (MANIFOLD,), _manifold,
        "logistic loss, penalty 0.01, n/p = 3, tanh, in theory, and simulated with d = 200, 32 seeds, d/p from 0.5 to "
        "5; independent "
        "entries are those of an orthogonal projection, which exists for d ≥ p",
    ),
)  # fmt: skip
