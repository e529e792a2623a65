"""Claims about gradient flow among bad minima, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PASSED, AFRAID = "saraomannelli2019passed", "saraomannelli2019afraid"
ESCAPE, DESCENTS, MINIMA = "gradient-flow-escape", "gradient-flow-descents", "spiked-matrix-tensor-minima"
LARGE = "gradient-flow-success"


def success_rate(stored: Stored, noise: float) -> tuple[float, float]:
    """Fraction of flows of the largest systems that find the signal at Δ₂, and its error."""
    from .success import share, succeeded

    mean, error = share(succeeded(stored[LARGE]).sel(matrix_noise=noise).isel(size=-1))
    return float(mean), float(error)


def _slows(stored: Stored) -> list[Measured]:
    times = stored[f"{ESCAPE}.growth"].escape_time
    slow = times.sel(matrix_noise=0.4) / times.sel(matrix_noise=0.2)
    tiny = times.sel(start=1e-8) / times.sel(start=1e-4)
    return [
        Measured("escape time from 1e-4 at Δ₂ = 0.4 over that at 0.2", float(slow.sel(start=1e-4)), above=5),
        Measured("escape time from 1e-8 over that from 1e-4, Δ₂ = 0.4", float(tiny.sel(matrix_noise=0.4)), above=2),
    ]


def _between(stored: Stored) -> list[Measured]:
    table = stored[MINIMA]
    count = float(np.interp(1 / 0.45, table.strength, table.spurious.sel(order=3)))
    found = [Measured("complexity of spurious minima at Δ₂ = 0.45", count, above=0)]
    size = int(stored[LARGE]["size"][-1])
    return [
        *found,
        Measured(f"fraction that find the signal at Δ₂ = 0.45, N = {size}", *success_rate(stored, 0.45), above=0.9),
        Measured(f"the same at Δ₂ = 0.7, N = {size}", *success_rate(stored, 0.7), below=0.1),
    ]


def _closed(stored: Stored) -> list[Measured]:
    near, table = stored[f"{ESCAPE}.near"], stored[f"{ESCAPE}.growth"]
    power = float(np.polyfit(np.log(near.distance[:4]), np.log(near.rate[:4]), 1)[0])
    found = [Measured("exponent with which the escape rate vanishes", power, above=1.95, below=2.05)]
    for noise in (0.3, 0.4):
        at = table.sel(matrix_noise=noise)
        late = at.rate.values[np.isfinite(at.rate.values)][-1]
        ratio = float(late / at.escape_rate)
        found.append(Measured(f"rate at t ≈ 3000 over its limit, Δ₂ = {noise:g}", ratio, above=0.9, below=1.1))
    beyond = float(table.logarithm.sel(matrix_noise=0.6).max())
    return [*found, Measured("ln(m/m₀) at t ≈ 4000 beyond the threshold, Δ₂ = 0.6", beyond, below=np.log(1e4))]


def _saddles(stored: Stored) -> list[Measured]:
    table, line, found = stored[DESCENTS], stored[f"{DESCENTS}.line"], []
    for noise in (0.3, 0.7):
        for size in table["size"].values:
            seen = table.sel(matrix_noise=noise, size=size, time=1.0)
            exact = float(line.cosine.sel(matrix_noise=noise))
            value, error = mean_and_error(seen.cosine)
            found.append(Measured(f"squared cosine with the signal at t = 1, Δ₂ = {noise:g}, N = {size}", value, error,
                                  above=exact - 0.15, below=exact + 0.15))  # fmt: skip
    return found


CLAIMS = (
    Claim(
        "Gradient flow slows down drastically even in a trivial landscape.", PASSED,
        "the escape time grows with Δ₂ below 0.406 and with ln(1/m₀)", "a start at a finite overlap",
        (ESCAPE,), _slows, "p = 3, Δ₃ = 1, N → ∞",
    ),
    Claim(
        "Flow succeeds where spurious minima remain.", PASSED,
        "descents reach the signal at Δ₂ = 0.45, between 0.406 (trivial landscape) and 0.5 (flow)",
        "beyond 0.618, where message passing fails too, they do not",
        (LARGE, MINIMA), _between,
        "p = 3, Δ₃ = 1, from the overlap 4/√N, diluted tensors, N = 8,000, 16 pairs, t = 200; "
        "condensed flows left out",
        would_change="systems whose initial overlap is small against the growth beyond the line: N = 8,000 still "
        "succeeds at Δ₂ = 0.7",
    ),
    Claim(
        "The flow's threshold has a closed form, 1/Δ₂² − 1/Δ₂ = (p−1)/Δ_p.", AFRAID,
        "escape times ln(1/m₀) θ/(θ−σ)², which diverge with the exponent 2", "beyond it m stays of the order of m₀",
        (ESCAPE,), _closed, "p = 3, Δ₃ = 1, N → ∞, t ≤ 4000",
    ),
    Claim(
        "The flow finds good minima amid exponentially many bad ones.", AFRAID,
        "a positive complexity of minima where descents succeed", "minimisations that start at spurious minima stay there",
        (LARGE, MINIMA), lambda stored: _between(stored)[:-1],
        "p = 3, Δ₃ = 1, Δ₂ = 0.45, from the overlap 4/√N, diluted tensors, N = 8,000, 16 pairs, t = 200; "
        "condensed flows left out",
        missing="minimisations that start at spurious minima",
    ),
    Claim(
        "Saddles that were threshold minima point towards the signal.", AFRAID,
        "the lowest eigenvector of the Hessian overlaps the signal, by 1 − σ²/θ², only where θ > σ",
        "deeper minima, unstable later",
        (DESCENTS,), _saddles, "p = 3, Δ₃ = 1, random starts, N ≤ 80, at t = 1",
        missing="minima below the threshold energy", would_change="larger systems",
    ),
)  # fmt: skip
