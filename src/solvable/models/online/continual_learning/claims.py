"""Claims about two tasks in succession, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import Number, difference, ratio

FIGURE, REMEDIES = "continual-learning-forgetting", "continual-learning-remedies"
PLAIN, CONSOLIDATED, REPLAYED = "plain", "consolidation λ = 3", "replay 20 %"


def _forgetting(stored: Stored, start: str, similarity: float, arm: str = PLAIN) -> Number:
    runs = stored[f"{FIGURE}.experiment"].forgetting_simulated.isel(size=-1)
    return mean_and_error(runs.sel(arm=arm, start=start, similarity=similarity))


def _line(stored: Stored, start: str, arm: str = PLAIN) -> np.ndarray:
    return stored[FIGURE].forgetting_theory.sel(arm=arm, start=start).values


def _peak(stored: Stored) -> list[Measured]:
    line, similarity = _line(stored, "specialised"), stored[FIGURE].similarity.values
    middle = _forgetting(stored, "specialised", 0.5)
    above = [difference(middle, _forgetting(stored, "specialised", end)) for end in (0.0, 0.9)]
    return [
        Measured(
            "similarity at which forgetting is largest (theory)",
            float(similarity[np.argmax(np.asarray(line))]),
            above=0.1,
            below=0.9,
        ),
        Measured("forgetting of networks at similarity 0.5 minus that at 0", *above[0], above=0.0),
        Measured("forgetting of networks at similarity 0.5 minus that at 0.9", *above[1], above=0.0),
        Measured(
            "largest increase with similarity, shared student", float(np.diff(_line(stored, "shared")).max()), below=0
        ),
    ]


def _units(stored: Stored) -> list[Measured]:
    """Change of the overlaps of the trained and the spare unit with the second teacher during the second stage."""
    theory, runs = stored[FIGURE], stored[f"{FIGURE}.experiment"].isel(size=-1)
    found = {}
    for name, overlap in (("theory", theory.overlap_theory), ("networks", runs.overlap_simulated)):
        at = overlap.sel(arm=PLAIN, start="specialised", task=2)
        found[name] = np.abs(at.isel(stage=-1) - at.sel(stage=1.0))
    reused, spare = found["theory"].isel(student=1).values, found["theory"].isel(student=0).values
    middle, *ends = (mean_and_error(found["networks"].isel(student=1).sel(similarity=x)) for x in (0.5, 0.0, 0.9))
    low, high = (mean_and_error(found["networks"].isel(student=0).sel(similarity=x)) for x in (0.0, 0.9))
    return [
        Measured("similarity at which the trained unit turns most", float(theory.similarity[np.argmax(np.asarray(reused))]),
                 above=0.1, below=0.9),
        Measured("turn of the trained unit at similarity 0.5 minus that at 0, networks", *difference(middle, ends[0]),
                 above=0.0),
        Measured("turn of the trained unit at similarity 0.5 minus that at 0.9, networks", *difference(middle, ends[1]),
                 above=0.0),
        Measured("largest increase of the spare unit's turn with similarity", float(np.diff(spare).max()), below=0.0),
        Measured("turn of the spare unit at similarity 0 minus that at 0.9, networks", *difference(low, high), above=0.0),
        *_without_spare(stored),
    ]  # fmt: skip


def _without_spare(stored: Stored) -> list[Measured]:
    """A student of one unit has no choice: it forgets most where the tasks differ most."""
    line = stored[f"{REMEDIES}.alone"].forgetting_theory
    runs = stored[f"{REMEDIES}.alone_measured"].isel(size=-1).forgetting_simulated
    ends = (mean_and_error(runs.sel(similarity=x)) for x in (0.5, 0.0))
    return [
        Measured("without a spare unit: similarity at which forgetting is largest", float(line.idxmax("similarity")),
                 below=0.1),
        Measured("without a spare unit: forgetting at similarity 0.5 minus that at 0, networks", *difference(*ends), below=0.0),
    ]  # fmt: skip


def _sweeps(stored: Stored) -> list[Measured]:
    """Forgetting against the strength of each remedy, at three similarities, and what it costs the second task."""
    found = []
    for name in ("consolidation", "replay"):
        sweep = stored[f"{REMEDIES}.{name}"].isel(size=-1)
        for similarity in sweep.similarity.values:
            line = sweep.forgetting_theory.sel(similarity=similarity)
            rise = float(line.diff(name).max())
            found.append(
                Measured(f"largest rise of forgetting with {name}, similarity {similarity:g}, theory", rise, below=1e-4)
            )
        runs = sweep.forgetting_simulated.sel(similarity=0.5)
        change = difference(mean_and_error(runs.isel({name: -1})), mean_and_error(runs.isel({name: 1})))
        found.append(
            Measured(
                f"forgetting at the most minus that at the least {name}, similarity 0.5, networks", *change, below=0.0
            )
        )
        costs = sweep.test_loss_theory.isel(stage=-1).sel(task=2, similarity=0.1)
        dearer = float(costs.isel({name: -1}) - costs.isel({name: 0}))
        found.append(
            Measured(f"loss of task 2 at the most {name} minus that at none, similarity 0.1", dearer, above=0.0)
        )
    return found


def _imbalance_alone(stored: Stored) -> list[Measured]:
    """Loss of the second task for starts whose first heads differ in scale alone."""
    runs = stored[f"{REMEDIES}.imbalance"].isel(size=-1)
    found = []
    for similarity in (0.0, 0.5, 0.9):
        at = runs.sel(similarity=similarity)
        losses = at.test_loss_simulated.isel(stage=-1).sel(task=2)
        large, small = (mean_and_error(losses.sel(arm=f"{size} readouts, λ = 3")) for size in ("large", "small"))
        words = f"loss on task 2 at λ = 3 and similarity {similarity:g}, large over small readouts"
        found.append(Measured(words, *ratio(large, small), below=1.0))
        lost = (
            mean_and_error(at.forgetting_simulated.sel(arm=f"{size} readouts, λ = 3")) for size in ("large", "small")
        )
        found.append(Measured("forgetting there, large minus small readouts", *difference(*lost), below=0.005))
    return found


def _remedies(stored: Stored) -> list[Measured]:
    similarity, plain, found = stored[FIGURE].similarity.values, _line(stored, "specialised"), []
    inside = (similarity >= 0.1) & (similarity <= 0.9)
    for arm in (CONSOLIDATED, REPLAYED):
        most = _forgetting(stored, "specialised", 0.5, arm)
        left = (_line(stored, "specialised", arm) / plain)[inside]
        found += [
            Measured(f"forgetting with {arm} over that without, similarity 0.5, networks",
                     *ratio(most, _forgetting(stored, "specialised", 0.5)), below=0.5),
            Measured(f"largest over smallest fraction that {arm} leaves, similarities 0.1 to 0.9", float(left.max() / left.min()),
                     above=2.0),
        ]  # fmt: skip
    return [*found, *_sweeps(stored)]


def _monotone(stored: Stored) -> list[Measured]:
    rise = float(np.diff(_line(stored, "shared")).max())
    found = [Measured("largest increase of forgetting with similarity, shared student, theory", rise, below=0.0)]
    steps = (0.0, 0.25, 0.5, 0.75, 0.9)
    for low, high in zip(steps[:-1], steps[1:], strict=True):
        change = difference(_forgetting(stored, "shared", high), _forgetting(stored, "shared", low))
        found.append(Measured(f"change from similarity {low:g} to {high:g}, networks", *change, below=0.0))
    peak = difference(_forgetting(stored, "specialised", 0.5), _forgetting(stored, "specialised", 0.0))
    return [*found, Measured("specialised student: forgetting at similarity 0.5 minus that at 0", *peak, above=0.0)]


def _second_task(stored: Stored) -> list[Measured]:
    """Loss of the second task at the end, and forgetting of the first, of both students under the same consolidation."""
    runs = stored[f"{FIGURE}.experiment"].isel(size=-1, stage=-1).test_loss_simulated.sel(task=2)
    found = []
    for similarity in (0.0, 0.5, 0.9):
        at = runs.sel(similarity=similarity)
        one, two = (mean_and_error(at.sel(arm=CONSOLIDATED, start=s)) for s in ("specialised", "shared"))
        words = f"loss on task 2 at λ = 3 and similarity {similarity:g}, specialised over shared"
        found.append(Measured(words, *ratio(one, two), below=1.0))
        kept = difference(*(_forgetting(stored, s, similarity, CONSOLIDATED) for s in ("specialised", "shared")))
        found.append(Measured("forgetting there, specialised minus shared", *kept, below=0.005))
    plain = [mean_and_error(runs.sel(arm=PLAIN, start=s, similarity=0.5)) for s in ("specialised", "shared")]
    return [*found, Measured("loss on task 2 without consolidation, specialised minus shared", *difference(*plain),
                             above=-0.005, below=0.005), *_imbalance_alone(stored)]  # fmt: skip


SETTINGS = "two units, erf, N = 400, 8 seeds, stages of 40 steps per dimension; theory at 41 similarities"

CLAIMS = (
    Claim(
        "Forgetting is worst at intermediate similarity of the two tasks.",
        "lee2022maslow",
        "forgetting of the first task against the similarity of the teachers peaks inside (0, 1)",
        "a student without specialised units: forgetting decreases throughout",
        (FIGURE,), _peak, SETTINGS,
    ),
    Claim(
        "The cause is a trade-off between re-using the trained unit and activating a spare one.",
        "lee2022maslow",
        "the trained unit turns to the second teacher most at intermediate similarity, the spare one less as similarity grows",
        "a student without a spare unit: it forgets most at similarity 0",
        (FIGURE, REMEDIES), _units, SETTINGS,
    ),
    Claim(
        "Consolidation and replay act on this trade-off, and each has its own range of similarities in which it helps.",
        "lee2022maslow",
        "at intermediate similarity each at least halves forgetting; the fraction that remains depends on similarity",
        "no consolidation and no replay",
        (FIGURE, REMEDIES), _remedies, SETTINGS + "; λ = 3, or a fifth of the samples replayed; sweeps to λ = 30 and "
        "a share of 0.6",
    ),
    Claim(
        "A student whose units have not specialised forgets less the more similar the tasks are.",
        "jarvis2025specialisation",
        "forgetting decreases with similarity throughout",
        "a specialised start: a peak",
        (FIGURE,), _monotone, SETTINGS,
    ),
    Claim(
        "Specialisation caused by imbalance of the layers helps elastic weight consolidation.",
        "jarvis2025specialisation",
        "at equal strength, a lower loss on the second task, and forgetting higher by at most 0.005",
        "no consolidation: no difference",
        (FIGURE, REMEDIES), _second_task, SETTINGS + "; λ = 3; imbalance alone: first heads of length 0.1 or 1.2 and "
        "one direction, "
        "first layers of length 0.3",
        would_change="a pair of starts that differ in the scale of the readouts alone, of which the larger one "
        "loses less on the second task: readouts of length 1.2 instead of 0.1 do not help at λ = 3 "
        "with first layers of length 0.3; starts that are specialised do",
    ),
)  # fmt: skip
