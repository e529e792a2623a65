"""Claims about rules that carry hyperparameters over depth, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .figures import NAMES, best_rates, changes, largest_rates
from .laziness import slopes
from .text_figures import compute_numbers, moved, transfer_numbers

RATES, LAZINESS, COMPUTE = "transformer-scaling-rates", "transformer-scaling-laziness", "transformer-scaling-compute"
TEXT = "transformer-scaling-text"
PAPER = "dey2025completep"


def _transfer(stored: Stored) -> list[Measured]:
    data = stored[f"{RATES}.depths"].isel(size=0)
    best, change = best_rates(data), np.log2(changes(data))
    first, last = (int(data.depth[i]) for i in (0, -1))
    found = []
    for rule, bounds in (
        ("completep", {"above": -1.0, "below": 1.0}),
        ("standard", {"below": -1.0}),
        ("mup", {"below": -1.0}),
    ):
        shift = best.sel(rule=rule, depth=last) - best.sel(rule=rule, depth=first)
        words = f"octaves from the best rate of L = {first} to that of L = {last}, {NAMES[rule]}"
        found.append(Measured(words, *mean_and_error(shift), **bounds))
    for rule, bounds in (("completep", {"above": -1.0, "below": 1.0}), ("mup", {"above": 1.0})):
        shift = change.sel(rule=rule, depth=last) - change.sel(rule=rule, depth=first)
        words = f"octaves by which activations of the last block change more at L = {last} than at L = {first}, {NAMES[rule]}"
        found.append(Measured(words, *mean_and_error(shift), **bounds))
    longer = stored[f"{RATES}.longer"]
    best, edge, first = best_rates(longer), largest_rates(longer), int(longer.depth[0])
    at = longer.depth.values.tolist().index(16)
    words = f"octaves from the best rate of L = {first} to that of L = 16, longer, CompleteP"
    found.append(Measured(words, *mean_and_error(moved(best, "completep", at)), above=-1.0, below=1.0))
    for rule in NAMES:
        shape = at if rule == "completep" else -1  # CompleteP was not trained longer at 32 blocks
        last = int(longer.depth[shape])
        words = f"octaves from the largest rate that trains L = {first} to that of L = {last}, longer, {NAMES[rule]}"
        bounds = {"below": -0.5} if rule in ("standard", "mup") else {"above": -0.5}
        found.append(Measured(words, *mean_and_error(moved(edge, rule, shape)), **bounds))
    return found + transfer_numbers(_parts(stored, TEXT))


def _parts(stored: Stored, figure: str) -> dict[str, Any]:
    """The datasets of one figure by part."""
    return {name.removeprefix(figure).strip("."): part for name, part in stored.items() if name.startswith(figure)}


def _lazy(stored: Stored) -> list[Measured]:
    power = slopes(stored[LAZINESS], "nonlinear")
    words = "power of L in the non-linear share of a block's change"
    return [
        Measured(f"{words}, branches of 1/√L", *mean_and_error(power.sel(exponent=0.5)), above=-0.7, below=-0.3),
        Measured(f"{words}, branches of 1/L", *mean_and_error(power.sel(exponent=1.0)), above=-0.2, below=0.2),
    ]


def _compute(stored: Stored) -> list[Measured]:
    return compute_numbers(_parts(stored, COMPUTE))


CLAIMS = (
    Claim(
        "Branches of 1/L with matched rates, ε and decay (CompleteP) carry hyperparameters over depth.",
        PAPER,
        "the best rate and the changes of activations do not depend on depth",
        "standard scaling and μP, where both do",
        (TEXT, RATES), _transfer,
        "small GPTs on a random language: width 32, L = 2 and 16, 50 steps of AdamW, and width 64, L = 2 to 32, 400 steps, four "
        "seeds, rates in octaves (intervals at 400 steps set with the data in view, but for CompleteP); on Python's "
        "documentation width 64, L = 2, 8 and 32, 400 steps, two seeds, four for ε and weight decay at L = 2 and 32 "
        "(intervals set before)",
        missing="more than 32 blocks; CompleteP on the random language at 32 blocks for 400 steps",
        would_change="on the random language the best rate of CompleteP still moves by 1.2 ± 0.2 octaves within 50 steps; on "
        "text at 8 blocks the standard rule's has moved by no more than 0.3",
    ),
    Claim(
        "Rules that transfer with larger branches leave the layers lazy.",
        PAPER,
        "the non-linear share of a block's change falls like L^(−1/2) for branches of 1/√L and is flat for 1/L",
        "equal powers",
        (LAZINESS,), _lazy,
        "residual network with tanh, width 64, L = 2 to 64, one step of Adam on the first weights of the first block, 16 seeds",
    ),
    Claim(
        "CompleteP saves 12 to 34 % of the compute and makes deep shapes efficient.",
        PAPER,
        "at equal compute deep shapes reach a lower loss under CompleteP than under μP and depth-μP",
        "equal losses once the rate is tuned for each shape",
        (COMPUTE,), _compute,
        "small GPTs of about equal compute (width² × depth) on Python's documentation, 400 steps, and on Python's standard "
        "library, 20 letters for each of 0.4 million weights; four seeds, and one; intervals set before",
        missing="models of the paper's size; more than one seed at 20 letters a weight",
        would_change="more seeds at 20 letters a weight, where the saving against μP is 10 %; after 400 steps the deep shape is "
        "behind the shallow one at equal compute",
    ),
)  # fmt: skip
