"""Claims about curricula for an XOR of clusters, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import deviation, difference
from .figures import EARLY, fraction, won, won_pruned

FIGURE = "xor-curriculum-width"


def _lines(stored: Stored) -> list[Measured]:
    runs, found = stored[FIGURE].isel(size=-1), []
    for protocol in runs.protocol.values:
        at = runs.sel(protocol=protocol)
        gap = deviation(at.test_error_simulated, at.test_error_expected)
        found.append(Measured(f"largest deviation of the error, {protocol}", *gap, below=0.05))
    return found


def _helps(stored: Stored) -> list[Measured]:
    """Gain in error of easy samples first over hard ones alone, for networks and for theory from random starts."""
    runs = stored[FIGURE].isel(size=-1).final_error_simulated
    gain = difference(*(mean_and_error(runs.sel(protocol=p)) for p in ("hard", "curriculum")))
    found = [Measured("gain of networks, K = 4, T = 20", *gain, above=0.0)]
    table = stored[f"{FIGURE}.map"]
    gains = (table.hard - table.curriculum).mean("horizon")
    for setting in table.setting.values:
        for units in (u for u in (2, 4) if u in table.students):
            at = mean_and_error(gains.sel(setting=setting, students=units))
            found.append(Measured(f"gain averaged over T, K = {units}, {_words(setting)}", *at, above=0.0))
    return found


def _words(setting: str) -> str:
    scaling, spread = str(setting).split(", ")
    return f"v of variance {'1' if scaling == 'plain' else '1/K'}, σ = {spread}"


def _limits(stored: Stored) -> list[Measured]:
    table, found = stored[f"{FIGURE}.map"], []
    gains = table.hard - table.curriculum
    for setting in ("plain, 0.4", "inverse-root, 0.5"):
        for horizon in table.horizon.values:
            at = gains.sel(setting=setting, horizon=horizon)
            change = difference(*(mean_and_error(at.sel(students=units)) for units in (16, 4)))
            found.append(
                Measured(f"gain of K = 16 minus that of K = 4, T = {horizon:g}, {_words(setting)}", *change, below=0.0)
            )
    return found


def _tickets(stored: Stored) -> list[Measured]:
    """Fractions of starts that solve the task with hard samples alone: by width, early and late, and pruned."""
    table, found = stored[f"{FIGURE}.map"], []
    for setting in map(str, table.setting.values):
        for horizon in (EARLY, float(table.horizon[-1])):
            four, sixteen = (fraction(won(table, setting, units, "hard", horizon)) for units in (4, 16))
            words = f"fraction of starts that solve the task, K = 16 minus K = 4, T = {horizon:g}, {_words(setting)}"
            found.append(Measured(words, *difference(sixteen, four), above=0.0))
        two = fraction(won(table, setting, 2, "hard", float(table.horizon[-1])))
        found.append(Measured(f"fraction of starts that solve the task, K = 2, {_words(setting)}", *two, below=0.05))
        ticket, any_units = (won_pruned(table, setting, arm) for arm in ("ticket", "random"))
        words = f"fraction that the four largest of 16 units solve alone, minus four random ones, {_words(setting)}"
        found.append(Measured(words, *mean_and_error(ticket - any_units), above=0.0))
    return found


def _with_curriculum(stored: Stored) -> list[Measured]:
    """Fractions of starts that solve the task with and without a curriculum, paired by start."""
    table, found = stored[f"{FIGURE}.map"], []
    for setting in map(str, table.setting.values):
        for units in (4, 8):
            easy, hard = (won(table, setting, units, protocol, EARLY) for protocol in ("curriculum", "hard"))
            words = f"fraction of starts that solve the task with a curriculum minus that without, K = {units}"
            found.append(Measured(f"{words}, {_words(setting)}", *mean_and_error(easy - hard), above=0.0))
    return found


STARTS = "theory from 48 random starts, T = 10 to 160"


CLAIMS = (
    Claim(
        "Closed equations describe a two-layer network on XOR-like clusters.",
        "mannelli2024tilting",
        "the error against time lies on the theory lines for every protocol",
        "a start without overlap with the centres stays at chance",
        (FIGURE,), _lines, "K = 4, d = 400, 8 seeds, T = 20; deviations over the largest value of the line",
    ),
    Claim(
        "A curriculum helps small networks.",
        "mannelli2024tilting",
        "the error after hard samples alone exceeds that after easy, then hard ones",
        "easy samples as noisy as hard ones",
        (FIGURE,), _helps, "networks of d = 400, 8 seeds; " + STARTS,
        would_change="a measure of the gain that does not depend on the time of training: it is a hump at "
        "intermediate times, and its mean over T = 10 to 160 is zero within errors for two units, and "
        "for four with readouts of variance 1",
    ),
    Claim(
        "Overparameterisation limits the gain of a curriculum.",
        "mannelli2024tilting",
        "the gain falls with the number of units",
        "no dependence on width, or growth",
        (FIGURE,), _limits, STARTS,
        would_change="a comparison at equal progress instead of equal times: wide networks pass the hump of the "
        "gain early, where they gain more than narrow ones",
    ),
    Claim(
        "Width buys lottery tickets.",
        "mannelli2024tilting",
        "the fraction of starts that solve the task on hard samples alone grows with the number of units",
        "two units without bias: none; random units of the wide networks win less often than the largest ones",
        (FIGURE,), _tickets, STARTS + "; at T = 80 and, to distinguish slow starts from stuck ones, T = 160; tickets "
        "are the four "
        "units largest at T = 160, |v||w|, trained again alone from their start",
    ),
    Claim(
        "A curriculum raises the odds of a winning start.",
        "mannelli2024tilting",
        "more starts solve the task after easy, then hard samples than after hard samples alone",
        "equal fractions",
        (FIGURE,), _with_curriculum, STARTS + "; at T = 80, solved: closer to the least error than to 1/4",
        would_change="a horizon or noise at which narrow networks solve the task more often with a curriculum",
    ),
)  # fmt: skip
