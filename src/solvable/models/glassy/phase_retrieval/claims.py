"""Claims about gradient flow in phase retrieval, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PAPER, FIGURE, LAW = "saraomannelli2020complex", "phase-retrieval-escape", "phase-retrieval-law"
EQUATOR = "phase-retrieval-equator"


def _trapped(stored: Stored) -> list[Measured]:
    runs, table, found = stored[f"{FIGURE}.runs"], stored[FIGURE], []
    for alpha in (3.0, 4.0, 5.0):
        for name, words in (("train_loss", "loss"), ("prediction_variance", "mean square of predictions")):
            exact = float(table[name].sel(normalisation=0.0).interp(samples=alpha))
            seen = runs[f"{name}_simulated"].sel(normalisation=0.0, samples=alpha, size=256)
            value, error = mean_and_error(seen / exact - 1)
            found.append(Measured(f"relative excess of the {words} of trapped runs, α = {alpha:g}, N = 256", value, error,
                                  above=-0.1, below=0.1))  # fmt: skip
    law = stored[LAW]
    off = np.abs(law.runs.mean("seed") - law.theory).sum("prediction") / 2
    for low, value in zip(law.amplitude.values, off.values, strict=True):
        found.append(Measured(f"distance in total variation of the predictions' law, |y| > {low:g}, α = 4", float(value),
                              below=0.1))  # fmt: skip
    return found


def _unstable(stored: Stored) -> list[Measured]:
    table = stored[FIGURE]
    at = table.alignment.sel(normalisation=0.0)
    return [
        Measured(
            "α at which the signal leaves the bulk", float(table.threshold.sel(strength=0.0)), above=13.7, below=13.9
        ),
        Measured("squared cosine with the signal at α = 12", float(at.interp(samples=12.0)), below=1e-6),
        Measured("the same at α = 18", float(at.interp(samples=18.0)), above=0.05),
        *_confined(stored[EQUATOR]),
    ]


def _confined(table: Any) -> list[Measured]:
    """The Hessian where descents end that are kept at overlap zero, in the largest systems."""
    at, found = table.isel(size=-1), []
    size = int(at["size"])
    few = mean_and_error(at.alignment.sel(samples=8.0))
    found.append(
        Measured(f"squared cosine with the signal where confined descents end, α = 8, N = {size}", *few, below=0.1)
    )
    many, exact = mean_and_error(at.alignment.sel(samples=20.0)), float(at.alignment_theory.sel(samples=20.0))
    found.append(Measured(f"the same at α = 20, N = {size}", *many, above=exact - 0.1, below=exact + 0.1))
    low = mean_and_error(at.lowest.sel(samples=20.0))
    return [*found, Measured(f"lowest eigenvalue there, α = 20, N = {size}", *low, below=0.0)]


def _recovers(stored: Stored) -> list[Measured]:
    reached = stored[f"{FIGURE}.large"].reached_simulated
    found = []
    for alpha in (4.0, 5.0, 6.0):
        small, large = (mean_and_error(reached.sel(samples=alpha, size=n)) for n in (256, 512))
        shift = small[0] - large[0], (small[1] ** 2 + large[1] ** 2) ** 0.5
        found.append(
            Measured(
                f"fraction that recovers the signal at α = {alpha:g}, N = 256 less that at N = 512", *shift, above=0.0
            )
        )
    many = mean_and_error(reached.sel(samples=10.0, size=512))
    return [*found, Measured("fraction at α = 10, N = 512, below the large-N threshold", *many, below=0.5)]


CLAIMS = (
    Claim(
        "With few measurements the flow is trapped in spurious minima.", PAPER,
        "loss and predictions of trapped runs agree with the theory of threshold states", "a start near the signal",
        (FIGURE, LAW), _trapped, "κ = 0, α from 3 to 5, N = 256, 24 descents, t = 200",
        would_change="longer descents of larger systems: trapped runs still descend",
    ),
    Claim(
        "Above a critical ratio these points become unstable towards the signal.", PAPER,
        "an eigenvalue of the Hessian leaves the bulk at α = 13.8, and its eigenvector overlaps the signal",
        "an eigenvector without overlap", (FIGURE, EQUATOR), _unstable,
        "κ = 0, one step of replica-symmetry breaking, N → ∞; descents confined to overlap zero, N ≤ 256, t = 200",
        would_change="descents confined to overlap zero of larger systems and at later times, at α = 20",
    ),
    Claim(
        "The flow then escapes and recovers the signal.", PAPER,
        "the curve of the success rate moves to larger α as N grows, towards 13.8", "a threshold fixed in N",
        (FIGURE,), _recovers, "κ = 0, N = 256 and 512, 48 descents, t = 200",
        missing="larger systems", would_change="success at α = 10 becoming rare as N grows by orders of magnitude",
    ),
)  # fmt: skip
