"""Claims about descent with momentum in a rough landscape, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation

PAPER, FIGURE = "saraomannelli2021momentum", "momentum-speed"
ARMS = ("gradient descent", "heavy ball, β = 0.9", "Nesterov")
FAST = "gradient descent, rate α/(1-β)"


def _exact(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{FIGURE}.experiment"].isel(size=-1), []
    for name in ("loss", "norm", "overlap"):
        for arm in ARMS:
            at = runs.sel(arm=arm)
            gap = deviation(at[f"{name}_simulated"], at[f"{name}_theory"])
            found.append(Measured(f"deviation of the {name}, {arm}, N = 100", *gap, below=0.05))
    return found


def _steps(stored: Stored, arm: str, level: float = -2.5) -> float:
    lines = stored[FIGURE].sel(arm=arm)
    return float(lines.step[int(np.argmax(lines.loss_theory.values < level))])


def _faster(stored: Stored) -> list[Measured]:
    plain = _steps(stored, ARMS[0])
    gains = [Measured(f"steps to the loss −2.5 over those of gradient descent, {arm}", _steps(stored, arm) / plain, below=0.5)
             for arm in ARMS[1:]]  # fmt: skip
    left = _steps(stored, ARMS[1]) / _steps(stored, FAST)
    return [*gains, Measured("steps of heavy ball over those of descent at the rate α/(1−β)", left, above=0.99)]


def _same_place(stored: Stored) -> list[Measured]:
    runs = stored[f"{FIGURE}.recovery"]
    cosine = runs.overlap_theory / np.sqrt(runs.norm_theory)
    grown = np.log(cosine.isel(step=-1) / cosine.isel(step=-2))
    places = {}
    for arm in (*ARMS[1:], FAST):
        y, x = grown.sel(arm=arm).values, runs.matrix_noise.values
        last = int(np.flatnonzero(y > 0)[-1])
        places[arm] = (
            float(np.interp(0.0, [-y[last], -y[last + 1]], x[last : last + 2])) if last + 1 < len(x) else x[-1]
        )
    return [Measured(f"Δ₂ where a vanishing overlap stops growing, {arm}, less that of fast descent", places[arm] - places[FAST],
                     above=-0.05, below=0.05) for arm in ARMS[1:]]  # fmt: skip


CLAIMS = (
    Claim(
        "Heavy ball and Nesterov's method have closed mean-field dynamics, exact at any rate.", PAPER,
        "loss, norm and overlap of finite systems on the curves", "no momentum: gradient descent",
        (FIGURE,), _exact, "p = 3, Δ₂ = 0.4, Δ₃ = 1, ω = 10, α = 0.004, N = 100, 24 pairs",
    ),
    Claim(
        "Momentum makes descent faster.", PAPER,
        "fewer steps to a given loss", "descent at the effective rate α/(1−β) is as fast",
        (FIGURE,), _faster, "p = 3, Δ₂ = 0.4, Δ₃ = 1, ω = 10, α = 0.004, N → ∞",
    ),
    Claim(
        "Momentum does not move the threshold of recovery.", PAPER,
        "a vanishing overlap stops growing at the same Δ₂", "a shift",
        (FIGURE,), _same_place, "p = 3, Δ₃ = 1, ω = 10, steps 300 to 600, m₀ = 1e-8",
        missing="later steps: the point still moves towards the threshold of marginal minima, 0.439",
    ),
)  # fmt: skip
