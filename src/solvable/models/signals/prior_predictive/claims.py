"""Claims about outputs of random networks, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE = "prior-predictive-laws"
DRAWN = "240,000 networks each"


def _runs(stored: Stored, name: str, arm: str) -> Any:
    return stored[FIGURE][f"{name}_simulated"].sel(arm=arm).isel(size=-1)


def _law(stored: Stored) -> list[Measured]:
    from scipy.special import erfc

    data, found = stored[FIGURE], []
    for arm in ("2 × 5", "4 × 10", "5 × 25", "4 × 10 linear"):
        seen, exact = _runs(stored, "tail", arm), data.tail_theory.sel(arm=arm)
        masses = [x.diff("output") for x in (seen, exact)]
        found += [
            Measured(f"relative deviation of the tails, {arm}", *deviation(seen, exact), below=0.02),
            Measured(f"the same of the mass between two outputs, {arm}", *deviation(*masses), below=0.05),
        ]
    normal = data.tail_theory.sel(arm="4 × 10") * 0 + erfc(data.output / np.sqrt(2))
    off = deviation(_runs(stored, "tail", "4 × 10"), normal)
    found += [
        Measured("the same of the tails from a normal law, 4 × 10", *off, above=0.05),
        Measured("probability of zero over the theory's, 2 × 5", *_over(stored, "zero", "2 × 5"), above=0.9, below=1.1),
    ]  # fmt: skip
    return found


def _over(stored: Stored, name: str, arm: str) -> tuple[float, float]:
    """Mean over seeds in units of the theory."""
    value, error = mean_and_error(_runs(stored, name, arm))
    exact = float(stored[FIGURE][f"{name}_theory"].sel(arm=arm))
    return value / exact, error / exact


def _tails(stored: Stored) -> list[Measured]:
    found = []
    for arm in ("1 × 10", "2 × 10", "4 × 10", "2 × 5", "5 × 25", "4 × 10 linear"):
        found.append(
            Measured(f"<f⁴> over 3Π(1 + c/d), {arm}", *_over(stored, "fourth_moment", arm), above=0.8, below=1.2)
        )
    kurtosis = {arm: mean_and_error(_runs(stored, "fourth_moment", arm)) for arm in stored[FIGURE].arm.values.tolist()}
    pairs = (
        ("four layers of ten units over one", "4 × 10", "1 × 10"),
        ("two layers of five units over two of ten", "2 × 5", "2 × 10"),
        ("four ReLU over four linear layers", "4 × 10", "4 × 10 linear"),
    )
    for words, heavy, light in pairs:
        (a, da), (b, db) = kurtosis[heavy], kurtosis[light]
        found.append(Measured(f"fourth moment, {words}", a / b, float(np.hypot(da / b, a * db / b**2)), above=1.0))
    return found


def _limit(stored: Stored) -> list[Measured]:
    joint = stored[f"{FIGURE}.limit"]
    moments, goal = joint.fourth_moment.values, 3 * np.e
    off = np.abs(joint["tail"] - joint.limit_tail).max("output").values
    found = [Measured(f"<f⁴> over its limit, {int(h)} × {int(d)}", float(x / goal), above=0.9, below=1.0)
             for d, h, x in zip(joint.width.values, joint.depth.values, moments, strict=True)]  # fmt: skip
    halved = np.log2((goal - moments[:-1]) / (goal - moments[1:]))
    fallen = np.log2(off[:-1] / off[1:])
    return [
        *found,
        Measured("smallest power of 1/width in the distance of <f⁴> from its limit", float(halved.min()), above=0.8, below=1.2),
        Measured("the same of the largest distance of the tails", float(fallen.min()), above=0.8, below=1.2),
        Measured("largest distance of the tails of the deepest and widest network from the limit", float(off[-1]), below=0.01),
    ]  # fmt: skip


def _variance(stored: Stored) -> list[Measured]:
    found = [
        Measured(f"variance, informed prior, {h} × 10", *mean_and_error(_runs(stored, "second_moment", f"{h} × 10")), above=0.8,
                 below=1.2) for h in (1, 2, 4)
    ]  # fmt: skip
    value, error = mean_and_error(_runs(stored, "second_moment", "4 × 10 fixed"))
    one, small = mean_and_error(_runs(stored, "second_moment", "1 × 10 fixed"))
    grown = value / one, float(np.hypot(error / one, value * small / one**2))
    return [*found, Measured("variance of four layers over that of one, fixed prior", *grown, above=80.0, below=180.0)]


CLAIMS = (
    Claim(
        "The output of a finite random ReLU network has a known law, a mixture of Meijer G functions.",
        "noci2021precise",
        "tails, masses between outputs and the atom at zero of drawn networks agree with it",
        "infinite width: the normal law",
        (FIGURE,), _law, f"networks of H × d hidden units; {DRAWN}",
    ),
    Claim(
        "Depth makes the tails heavier, width lighter.",
        "noci2021precise",
        "kurtosis 3Π(1 + 5/d) over layers",
        "linear networks: 2 in place of 5",
        (FIGURE,), _tails, DRAWN,
    ),
    Claim(
        "Deep and wide networks together tend to a normal law with log-normal variance.",
        "noci2021precise",
        "fourth moment and tails approach those of the limit as width and depth grow in proportion",
        "fixed depth: the normal law",
        (FIGURE,), _limit, "5Σ1/d = 1, widths 25 to 200, exact law",
    ),
    Claim(
        "Priors informed by depth and width control the variance.",
        "noci2021precise",
        "the same variance in networks of one, two and four hidden layers",
        "a fixed prior: variance exponential in depth",
        (FIGURE,), _variance, f"ten units per layer; {DRAWN}",
    ),
)  # fmt: skip
