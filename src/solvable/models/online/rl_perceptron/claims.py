"""Claims about perceptrons that learn from rewards, and the numbers that decide them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import Number, deviation, difference, ratio
from .sparsity_figures import crossing

FIGURE, RULES, SPARSITY = "rl-perceptron-phases", "rl-perceptron-rules", "rl-perceptron-sparsity"


def _flow(model: Any, begin: tuple[float, float], end: float) -> Callable[[np.ndarray], np.ndarray]:
    """Integrate the model's flow of ρ and ln Q and return ρ at the given times.

    `theory` integrates it too, but takes seconds to compile.
    """
    import jax
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    velocity = jax.jit(lambda y: jnp.stack(model.velocity(y[0], y[1])))
    settings = {"rtol": 1e-8, "atol": 1e-10, "method": "LSODA", "dense_output": True}
    path = solve_ivp(lambda t, y: np.asarray(velocity(jnp.asarray(y))), (0, end), begin, **settings)
    return lambda time: path.sol(time)[0]


def _right(alignment: Any) -> Any:
    return 1 - np.arccos(alignment) / np.pi


def _accuracy(stored: Stored, needed: int, time: float) -> Number:
    runs = stored[f"{FIGURE}.accuracy"].isel(size=-1).test_error_simulated.sel(needed=needed)
    return mean_and_error(1 - runs.sel(time=time, method="nearest"))


def _lines(stored: Stored) -> list[Measured]:
    runs = stored[f"{FIGURE}.accuracy"].isel(size=-1)
    others = stored[RULES].isel(size=-1)
    cases = [(f"{needed} of 13 right", runs.sel(needed=needed)) for needed in runs.needed.values]
    cases += [(f"rule {rule}", others.sel(rule=rule)) for rule in others.rule.values]
    return [
        Measured(f"largest deviation of the {name}, {words}", *deviation(at[f"{name}_simulated"], at[f"{name}_expected"]),
                 below=0.05)
        for words, at in cases
        for name in ("alignment", "norm")
    ]  # fmt: skip


def _delay(stored: Stored) -> list[Measured]:
    from .model import RLPerceptron

    lengths, grid, found = (4, 8, 12), np.geomspace(0.1, 1e4, 4000), []
    for rule, words, bounds in (
        ("all", "all right", {"above": 0.75, "below": 1.25}),
        ("breadcrumb", "every right action", {"below": 0.25}),
    ):
        curves = [_right(_flow(RLPerceptron(rule=rule, steps=n), (0.0, 0.0), 1e4)(grid)) for n in lengths]
        for level in (0.6, 0.75):
            times = [np.log2(grid[np.argmax(curve > level)]) for curve in curves]
            slope = float(np.polyfit(lengths, times, 1)[0])
            found.append(Measured(f"growth of log₂ time to {level:g} with T, rewards for {words}", slope, **bounds))
    for few, many in ((9, 11), (11, 13)):
        behind = difference(_accuracy(stored, many, 8.4), _accuracy(stored, few, 8.4))
        found.append(
            Measured(f"accuracy at t = 8.4 of {many} of 13 minus that of {few} of 13, networks", *behind, below=0.0)
        )
    sparse, crumbs, enough = (stored[f"{SPARSITY}.{part}"] for part in ("all", "breadcrumb", "enough"))
    for data, words, bounds in ((sparse, "all right", {"above": 0.75, "below": 1.25}),
                                (crumbs, "every right action", {"below": 0.25})):  # fmt: skip
        slopes = _growth(data.test_error_simulated.isel(size=-1))
        found.append(
            Measured(f"growth of log₂ time to 0.7 with T = 2 to 10, rewards for {words}, students", *slopes, **bounds)
        )
    times = crossing(enough.test_error_simulated.isel(size=-1))
    for few, many in ((7, 8), (8, 9), (9, 10)):
        later = ratio(*(mean_and_error(times.sel(needed=n)) for n in (many, few)))
        found.append(
            Measured(f"time to 0.7 if {many} of 10 must be right over that for {few}, students", *later, above=1.0)
        )
    return found


def _growth(errors: Any) -> Number:
    """Slope of log₂ of the time to the level against episode length, by seed."""
    times = crossing(errors).transpose("seed", "steps")
    return mean_and_error([np.polyfit(times.steps.values, np.log2(row), 1)[0] for row in times.values])


def _trap(stored: Stored) -> list[Measured]:
    runs, theory = stored[FIGURE].isel(size=-1), stored[f"{FIGURE}.theory"]
    ends = {x: mean_and_error(runs.alignment_simulated.sel(initial_alignment=x).isel(time=-1)) for x in (0.4, 0.61)}
    critical = float(theory.threshold.sel(rule="all right (n = T)", steps=13))
    trap, saddle = (float(x) for x in theory.fixed_points.isel(coordinate=0))
    based = stored[f"{RULES}.baseline"].alignment
    free = stored[f"{FIGURE}.accuracy"].isel(size=-1).alignment_simulated.sel(needed=13)
    return [
        Measured("critical share of punishment (simulated at 0.048)", critical, above=0.0, below=0.05 / 1.05),
        Measured("alignment of the trap", trap, below=0.1),
        Measured("alignment of the saddle", saddle, above=0.1, below=1.0),
        Measured("alignment at t = 40 of students started at 0.4, below the separatrix", *ends[0.4], below=0.1),
        Measured("alignment at t = 40 of students started at 0.61, above it", *ends[0.61], above=0.8),
        Measured("without punishment: increase of the alignment from 0.3 until t = 100",
                 *mean_and_error(free.isel(time=-1) - free.isel(time=0)), above=0.0),
        Measured("with a reward baseline: increase of the alignment from 0.4 until t = 100",
                 *mean_and_error(based.isel(time=-1) - based.isel(time=0)), above=0.0),
    ]  # fmt: skip


def _stringent(stored: Stored) -> list[Measured]:
    from .model import RLPerceptron

    found = []
    for few, many in ((7, 9), (9, 11), (11, 13)):
        early, late = (difference(_accuracy(stored, many, t), _accuracy(stored, few, t)) for t in (2.9, 100.0))
        found.append(
            Measured(f"accuracy at t = 2.9 of {many} of 13 minus that of {few} of 13, networks", *early, below=0.0)
        )
        if many < 13:
            found.append(Measured("the same at t = 100", *late, above=0.0))
    rules = (RLPerceptron(rule="enough", steps=13, needed=needed) for needed in (11, 13))
    few, many = (float(_right(_flow(rule, (0.3, 0.0), 1000.0)(np.array(1000.0)))) for rule in rules)
    return [*found, Measured("accuracy at t = 1,000 of 13 of 13 minus that of 11 of 13, theory", many - few, above=0.0)]


def _schedules(stored: Stored) -> list[Measured]:
    from .model import RLPerceptron

    runs, found = stored[f"{FIGURE}.schedules"].isel(size=-1), []
    errors = {str(arm): mean_and_error(runs.final_error_simulated.sel(arm=arm)) for arm in runs.arm.values}
    for arm in ("best rate", "best rate and length"):
        for rate in ("rate 1", "rate 3"):
            over = ratio(errors[arm], errors[rate])
            found.append(Measured(f"error of {arm} over that of {rate}, networks", *over, below=1.0))
    # A rate η is equivalent to rate 1 on weights smaller by a factor η.
    model = RLPerceptron(steps=12)
    ends = [_flow(model, (0.3, -2 * np.log(rate)), 100.0)(np.array(100.0)) for rate in (1.0, 3.0, 10.0, 30.0, 100.0)]
    best = float(runs.final_error_theory.sel(arm="best rate")) / float(1 - _right(np.max(ends)))
    length = float(
        runs.final_error_theory.sel(arm="best rate and length") / runs.final_error_theory.sel(arm="best rate")
    )
    return [
        *found,
        Measured("error of the best rate over that of the best constant one, theory", best, below=1.0),
        Measured("error of best rate and length over that of best rate, theory", length, below=1.0),
    ]


SETTINGS = "students of D = 300, 8 seeds"

CLAIMS = (
    Claim(
        "Closed equations describe policy learning for many reward rules.",
        "patel2025rl",
        "alignment and squared norm of students against time lie on the theory lines",
        "episodes of one action: the ordinary perceptron",
        (FIGURE, RULES), _lines,
        SETTINGS + ", rewards for n of 13 right, n = 7 to 13; 32 seeds, for survival and for every right action; to t = 100; "
        "deviations over "
        "the largest value of the line",
    ),
    Claim(
        "Sparse rewards delay learning.",
        "patel2025rl",
        "the time to leave chance grows with the length T of an episode as about 2^T",
        "a bonus for every right action, credited to it and all earlier ones: no such growth",
        (FIGURE, SPARSITY), _delay,
        "theory: from chance until 0.6 and 0.75 of the actions are right, T = 4, 8 and 12; " + SETTINGS + " for n of 13 right; "
        "D = 200, 8 seeds from 0.6 until 0.7 of the actions are right, T = 2 to 10 and 7 to 10 of 10 right",
        would_change="a measure of delay that is not tied to one accuracy: until 0.6 of the actions are right it grows by 0.88 "
        "octaves an action, about as claimed, and without sparsity by 0.29; until 0.7 by 0.59 and 0.43; until 0.75 by 0.73 and "
        "0.82, so that what is left of the delay is not sparsity's",
    ),
    Claim(
        "Punishment determines the regime of learning.",
        "patel2025rl",
        "above a critical share there are a trap, a saddle, and a separatrix between starts that learn and starts that do not",
        "no punishment, or the running mean of rewards as a baseline in its place: starts below the separatrix learn",
        (FIGURE, RULES), _trap,
        SETTINGS + ", T = 13, punishment 0.05; students started within 0.03 of the separatrix can go either way at this size",
    ),
    Claim(
        "Stringent rewards are slower and more accurate.",
        "patel2025rl",
        "the accuracies for n of 13 right cross: larger n is behind early and ahead late",
        "the same order at all times",
        (FIGURE,), _stringent, SETTINGS + ", T = 13, from an alignment of 0.3",
        would_change="an initial alignment at which 7 of 13 is ahead of 9 of 13 at any time: from 0.3 it is behind "
        "from the start, while 9, 11 and 13 follow the claim",
    ),
    Claim(
        "The best schedules of rate and episode length follow from the equations.",
        "patel2025rl",
        "the error is below that of constant rate and length",
        "the best constant rate",
        (FIGURE,), _schedules, SETTINGS + ", T = 12, t = 100; constant rates from 1 to 100 in theory",
    ),
)  # fmt: skip
