"""Claims about initial weights and specialised units, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import difference

FIGURE, MAP = "specialisation-inheritance", "specialisation-map"


def _imbalance(stored: Stored) -> list[Measured]:
    """Specialisation at large readouts minus that at small ones, with the same first layer."""
    runs, theory, found = stored[f"{FIGURE}.experiment"], stored[FIGURE].final_specialisation_theory, []
    for angle in runs.angle.values:
        at = runs.final_specialisation_simulated.isel(size=-1, first_scale=0).sel(angle=angle)
        gain = difference(*(mean_and_error(at.sel(readout_scale=x)) for x in (1.2, 0.1)))
        found.append(
            Measured(f"increase from readouts of length 0.1 to 1.2, angle {angle:.3g}, networks", *gain, above=0.0)
        )
    for scale in theory.first_scale.values:
        at = theory.sel(first_scale=scale)
        rise = float((at.isel(readout_scale=-1) - at.isel(readout_scale=0)).min())
        found.append(
            Measured(f"increase from 0.02 to 1.5, first layer {scale:g}, minimum of three angles", rise, above=0.0)
        )
    least = theory.sel(angle=np.pi / 3, method="nearest").sel(first_scale=1.0).isel(readout_scale=0)
    return [
        *found,
        Measured("specialisation with small readouts and a large first layer, angle π/3", float(least), below=0.1),
    ]


def _spread(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{FIGURE}.experiment"].isel(size=-1, first_scale=0).final_specialisation_simulated, []
    for scale in (0.1, 1.2):
        for one, other in ((0, 1), (1, 2)):
            low, high = (mean_and_error(runs.sel(readout_scale=scale).isel(angle=i)) for i in (one, other))
            words = f"increase from angle {float(runs.angle[one]):.3g} to {float(runs.angle[other]):.3g}, readouts {scale:g} long"
            found.append(Measured(f"{words}, networks", *difference(high, low), above=0.0))
    return found


SETTINGS = "two units, erf, one feature; networks of N = 400 with a first layer of length 0.3, 12 seeds"


def _map(stored: Stored) -> list[Measured]:
    """Over the map: specialisation grows with the spread of the readouts at every scale, and most where they are long."""
    plane = stored[MAP].final_specialisation_theory.transpose("angle", "readout_scale")
    rise = plane.isel(angle=-1) - plane.isel(angle=0)
    return [
        Measured("smallest rise of specialisation with the spread of the readouts over their scales (theory)", float(rise.min()),
                 above=0.0),
        Measured("largest specialisation with nearly equal readouts (theory)", float(plane.isel(angle=0).max()), below=0.1),
    ]  # fmt: skip


def _gains(stored: Stored) -> list[Measured]:
    """Loss of both tasks without minus with consolidation, where units specialise and where they share."""
    plane = stored[MAP]
    losses = plane.two_tasks.transpose("angle", "readout_scale", "consolidation", "task")
    total = losses.sum("task")
    gain = total.sel(consolidation=0.0) - total.sel(consolidation=3.0)
    special = plane.final_specialisation_theory.transpose("angle", "readout_scale")
    high, low = (float(gain.where(cut).mean()) for cut in (special > 0.7, special < 0.1))
    cost = losses.sel(consolidation=3.0, task=2)
    dear, cheap = (float(cost.where(cut).mean()) for cut in (special < 0.1, special > 0.7))
    return [
        Measured("mean gain of consolidation where s > 0.7 minus that where s < 0.1 (theory)", high - low, above=0.0),
        Measured(
            "mean loss on task 2 under consolidation where s < 0.1 minus that where s > 0.7 (theory)",
            dear - cheap,
            above=0.0,
        ),
    ]


CLAIMS = (
    Claim(
        "Initial imbalance between the layers favours specialised units.",
        "jarvis2025specialisation",
        "specialisation grows with the scale of the readouts at fixed first layer",
        "small readouts with a large first layer: shared units",
        (FIGURE,), _imbalance, SETTINGS + "; theory for first layers of length 0.03, 0.3 and 1",
        would_change="a reason why large first layers are an exception: at length 1, against 0.03 and 0.3, larger "
        "readouts no longer specialise units",
    ),
    Claim(
        "High entropy of the initial weights favours specialised units.",
        "jarvis2025specialisation",
        "specialisation grows with the spread of the readouts over units, over the map of imbalance and entropy",
        "equal readouts: none",
        (FIGURE, MAP), lambda stored: [*_spread(stored), *_map(stored)],
        SETTINGS + "; angle π/4 has equal readouts, π/2 a single one; map of 11 angles and 11 scales",
        missing="the authors' entropy (spread by angle is used instead)",
    ),
    Claim(
        "Consolidation gains most where the initial weights make units specialise.",
        "jarvis2025specialisation",
        "over imbalance and spread of the initial readouts, the loss of both tasks falls more, and the second task costs "
        "less, where "
        "units have specialised",
        "no dependence on the initial weights",
        (MAP,), _gains, "theory, two units, erf, similarity 0.5, λ = 3 against none, stages of 60 and 40 steps per dimension",
        would_change="a strength or similarity at which consolidation gains more for shared units",
    ),
)  # fmt: skip
