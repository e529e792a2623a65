"""Claims about residual networks in the limit of large width and depth, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

from ..transformer_scaling.figures import best_rates as best_rates_of_transformers
from .figures import best_rates, in_the_limit

LIMIT, RATES, DIGITS = "depth-transfer-limit", "depth-transfer-rates", "depth-transfer-digits"
TEXT = "transformer-scaling-text"
PAPER = "bordelon2023depthwise"


def _transfer(stored: Stored) -> list[Measured]:
    best = best_rates({"": stored[RATES]})
    found = []
    for exponent, words, bounds in (
        (0.0, "unscaled branches", {"below": -2.0}),
        (0.5, "branches of 1/√L", {"above": -1.0, "below": 1.0}),
        (1.0, "branches of 1/L", {"above": -1.0, "below": 1.0}),
    ):
        there = best.sel(branch_exponent=exponent).dropna("depth")
        first, last = (int(there.depth[i]) for i in (0, -1))
        moved = float(np.log2(there.isel(depth=-1) / there.isel(depth=0)))
        found.append(
            Measured(f"octaves from the best rate of L = {first} to that of L = {last}, {words}", moved, **bounds)
        )
    loss = np.log2(stored[DIGITS].loss)
    best = np.log2(loss.rate)[loss.fillna(np.inf).argmin("rate")]
    kept = loss.isel(rate=loss.isel(depth=0, drop=True).mean("seed").argmin("rate"))
    for exponent, words in ((0.0, "unscaled branches"), (0.5, "branches of 1/√L"), (1.0, "branches of 1/L")):
        moved, lost = (
            values.sel(exponent=exponent).isel(depth=-1) - values.sel(exponent=exponent).isel(depth=0)
            for values in (best, kept)
        )
        deep = int(loss.depth[-1])
        bounds = {"below": -0.5} if exponent == 0 else {"above": -0.75, "below": 0.75}
        found.append(Measured(f"the same on digits, to L = {deep}, {words}", *mean_and_error(moved), **bounds))
        bounds = {"above": 1.0} if exponent == 0 else {"below": 1.0}
        text = f"octaves by which the loss on digits is larger at L = {deep} than at L = 2, best rate of L = 2, {words}"
        found.append(Measured(text, *mean_and_error(lost), **bounds))
    text = stored[f"{TEXT}.rate"]
    best = best_rates_of_transformers(text)
    for rule, words in (
        ("mup", "unscaled branches"),
        ("depth-mup", "branches of 1/√L"),
        ("completep", "branches of 1/L"),
    ):
        of_rule = best.sel(rule=rule)
        moved = of_rule.isel(shape=-1, drop=True) - of_rule.isel(shape=0, drop=True)
        bounds = {"below": -0.5} if rule == "mup" else {"above": -0.75, "below": 0.75}
        words = (
            f"octaves from the best rate of L = 2 to that of L = {int(text.depth[-1])}, transformers on text, {words}"
        )
        found.append(Measured(words, *mean_and_error(moved), **bounds))
    return found


def _limit(stored: Stored) -> list[Measured]:
    networks, deep = stored[LIMIT], stored[f"{LIMIT}.depths"]
    found = []
    for richness in networks.richness.values:
        at = networks.sel(richness=richness).isel(size=-1, time=slice(1, None))
        for name in ("output", "tangent_kernel"):
            words = f"relative deviation of the {name.replace('_', ' ')} of N = {int(at['size'])}, γ₀ = {richness:g}"
            found.append(Measured(words, *deviation(at[f"{name}_simulated"], at[f"{name}_theory"]), below=0.05))
    tanh = stored[f"{LIMIT}.tanh"].isel(size=-1, time=slice(1, None))
    for richness in tanh.richness.values:
        at = tanh.sel(richness=richness)
        words = f"the same of the output of tanh networks, γ₀ = {richness:g}"
        found.append(Measured(words, *deviation(at.output_simulated, at.output_theory), below=0.05))
    values = deep.output_theory.isel(pattern=0, time=-1)
    gaps = np.log(np.abs(values - in_the_limit(values)).isel(depth=slice(1, -2)))
    power = gaps.assign_coords(depth=np.log(gaps.depth)).polyfit("depth", 1).polyfit_coefficients.sel(degree=1)
    for exponent in power.branch_exponent.values:
        words = f"power of L in the distance from infinite depth, α = {exponent:g}, theory"
        found.append(Measured(words, float(power.sel(branch_exponent=exponent)), above=-1.25, below=-0.75))
    moved = networks.tangent_kernel_theory.isel(time=-1) / networks.tangent_kernel_theory.isel(time=0)
    moved = moved.isel(size=0) if "size" in moved.dims else moved
    rich, lazy = (float(moved.sel(richness=value)) for value in (3.0, 0.1))
    return [
        *found,
        Measured("growth of the tangent kernel at γ₀ = 3 (features are learnt)", rich, above=2.0),
        Measured("the same at γ₀ = 0.1 (lazy)", lazy, above=0.98, below=1.02),
    ]


CLAIMS = (
    Claim(
        "Width-only scaling does not carry the best learning rate over depth; branches of 1/√L do.",
        PAPER,
        "the best rate moves with depth if branches are not scaled, and stays within an octave if they are",
        "unscaled branches",
        (RATES, DIGITS, TEXT), _transfer,
        "linear networks of infinite width, three patterns, five steps of gradient descent, L = 2 to 32 (unscaled: to 8); ReLU "
        "networks on 300 digits, N = 48, 25 steps of Adam, 8 seeds, rates in octaves; "
        "transformers on Python's documentation, N = 64, L = 2 and 32, 400 steps of AdamW, 2 seeds",
        missing="other hyperparameters than the rate, convolutional networks, and transformers of more than 32 blocks",
        would_change="depths at which branches of 1/√L keep their best rate on text: from 2 to 32 blocks it rises by "
        "1.3 octaves",
    ),
    Claim(
        "Training has a joint limit of large width and depth in which features are learnt.",
        PAPER,
        "finite networks follow the mean-field dynamics, which converges in depth like 1/L; its kernels move",
        "the lazy limit, in which kernels stay",
        (LIMIT,), _limit,
        "linear and tanh networks, one pattern, 12 steps, N = 400, L = 4; depths 4 to 32 against an extrapolation from 128",
    ),
)  # fmt: skip
