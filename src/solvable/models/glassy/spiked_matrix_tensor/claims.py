"""Claims about the landscape and thresholds of a spike in a matrix and a tensor, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored

from ..gradient_flow.claims import success_rate

PASSED, REVIEW = "saraomannelli2019passed", "saraomannelli2020thresholds"
MINIMA, DIAGRAM, LARGE = "spiked-matrix-tensor-minima", "spiked-matrix-tensor-thresholds", "gradient-flow-success"


def _counts(stored: Stored) -> list[Measured]:
    table = stored[MINIMA]
    x, y = table.strength.values, table.spurious.sel(order=3).values
    last = int(np.flatnonzero(y > 0)[-1])
    where = 1 / float(np.interp(0.0, [-y[last], -y[last + 1]], x[last : last + 2]))
    at = table.minima.sel(matrix_noise=0.3)
    peak, good = at.sel(latitude=slice(0.5, None)), table.likelihood_overlap.sel(matrix_noise=0.3)
    top = float(peak.latitude[int(np.argmax(peak.values))])
    return [
        Measured("Δ₂ at which the complexity without overlap reaches zero", where, above=0.405, below=0.407),
        Measured("largest complexity at overlaps above 0.5, Δ₂ = 0.3", float(peak.max()), above=-1e-4, below=1e-4),
        Measured("distance of that maximum from message passing's overlap", abs(top - float(good)), below=0.005),
    ]  # fmt: skip


def _ordered(stored: Stored) -> list[Measured]:
    lines = stored[DIAGRAM].sel(order=3)
    expected = {"message_passing": 1.0, "Langevin": 0.5**0.5, "likelihood_message_passing": 0.618034, "gradient_flow": 0.5,
                "trivial_landscape": 0.406049}  # fmt: skip
    found = []
    for name, value in expected.items():
        seen = 1 / float(lines[name].sel(tensor_noise=1.0, method="nearest"))
        words = name.replace("_", " ")
        found.append(Measured(f"Δ₂ of {words} at Δ₃ = 1", seen, above=value - 1e-3, below=value + 1e-3))
    spread = [1 / float(lines[name].isel(tensor_noise=-1)) for name in expected]
    return [*found, Measured("spread of the five lines at Δ₃ = 10", max(spread) - min(spread), below=0.3)]


def _judged(stored: Stored) -> list[Measured]:
    from ..gradient_flow.success import predicted_limit, seen_limit

    strong, between, weak = (success_rate(stored, noise) for noise in (0.3, 0.45, 0.7))
    size = int(stored[LARGE]["size"][-1])
    table, line = stored[LARGE], stored[f"{LARGE}.line"]
    shifts = []
    for j, time in enumerate(t for t in table.time.values if t <= float(line.time[-1])):
        (seen, error), limit = seen_limit(table, j), predicted_limit(line, time)
        if np.isfinite(limit):  # else the equations predict success at every Δ₂ of the grid
            words = f"Δ₂ up to which half of the flows succeed by t = {time:g}, N = {size}, less that of the two-time equations"
            shifts.append(Measured(words, seen - limit, error, above=-0.05, below=0.05))
    return [
        *shifts,
        Measured(f"fraction of flows that succeed at Δ₂ = 0.45 less that at 0.7, N = {size}",
                 between[0] - weak[0], float(np.hypot(between[1], weak[1])), above=0.2),
        Measured("the same at 0.3 less that at 0.45: no change at the line of trivial landscapes", strong[0] - between[0],
                 float(np.hypot(strong[1], between[1])), below=0.2),
    ]  # fmt: skip


CLAIMS = (
    Claim(
        "The Kac–Rice formula counts minima at given overlap; strong signals make the landscape trivial.", PASSED,
        "the complexity of spurious minima reaches zero at Δ₂ = 0.406 and vanishes at the good minimum",
        "no spike: the complexity of the p-spin model", (MINIMA,), _counts, "p = 3, Δ₃ = 1, annealed, N → ∞",
    ),
    Claim(
        "One diagram orders message passing, Langevin dynamics, flow and trivial landscapes.", REVIEW,
        "Δ₂ = 1, 0.707, 0.618, 0.5 and 0.406 at p = 3, Δ₃ = 1", "all meet at 1 as Δ_p grows", (DIAGRAM,), _ordered,
        "p = 3, Δ₃ from 0.1 to 10",
    ),
    Claim(
        "Gradient algorithms can be judged by the physics of glasses.", REVIEW,
        "success rates change at the flow's line, not at that of trivial landscapes, and at finite times where the two-time "
        "equations from the same overlap say",
        "they change where the landscape becomes trivial", (LARGE,), _judged,
        "p = 3, Δ₃ = 1, diluted tensors, N = 8,000, from the overlap 4/√N, t = 200; condensed flows left out",
        missing="sizes at which 4/√N is small against what a vanishing overlap grows by beyond the line, a factor of 60 "
        "at Δ₂ = 0.6: N of 10⁶ and more, on tensors that do not condense",
        would_change="sizes at which flows fail at Δ₂ = 0.7, where most of those with N = 8,000 still succeed",
    ),
)  # fmt: skip
