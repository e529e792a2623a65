"""Claims about rank collapse, and the numbers that decide them."""

from __future__ import annotations

import math

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

from ..signal_digits.figures import behind

FIGURE, OPTIMISERS = "rank-collapse", "signal-digits-optimisers"
CLOSED = "linear"


def _vanishing(stored: Stored) -> list[Measured]:
    """Gradients relative to those of the same layer's norm, at the start and near collapse."""
    runs = stored[FIGURE].sel(case=CLOSED)
    size = (
        runs.log_length_simulated.isel(layer=slice(None, -1)).rename(layer="block").drop_vars("block", errors="ignore")
    )
    query = runs.log_query_gradient_simulated - 3 * size.values
    value = runs.log_value_gradient_simulated - size.values
    last = int(runs.sizes["block"]) - 1
    there = runs.overlap_simulated.isel(layer=last)
    return [
        Measured("overlap before the last block", *mean_and_error(there), above=0.99),
        Measured(
            "log of the query gradient at unit norm, last block minus first",
            *mean_and_error(query.isel(block=last) - query.isel(block=0)),
            below=math.log(1e-3),
        ),
        Measured(
            "log of the value gradient at unit norm, last block minus first",
            *mean_and_error(value.isel(block=last) - value.isel(block=0)),
            above=0.0,
        ),
        Measured(
            "deviation of log query gradients from theory",
            *deviation(runs.log_query_gradient_simulated, runs.log_query_gradient),
            below=0.05,
        ),
    ]


def _scaling(stored: Stored) -> list[Measured]:
    runs, ends = stored[FIGURE], stored[f"{FIGURE}.ends"]
    scaled = runs.sel(case="linear, branches / √L").overlap_simulated.isel(layer=-1)
    plain = runs.sel(case="linear").overlap_simulated.isel(layer=-1)
    limit = float(ends.attrs["limit"])
    return [
        Measured("overlap after 16 blocks, branches over √L, networks", *mean_and_error(scaled), below=0.12),
        Measured("the same, unscaled, networks", *mean_and_error(plain), above=0.9),
        Measured(
            "gap to (e−1)/(e+T−1) at 256 blocks, theory", abs(float(ends.scaled.isel(depth=-1)) - limit), below=1e-3
        ),
        Measured("overlap at 256 blocks, unscaled, theory", float(ends.none.isel(depth=-1)), above=0.9999),
    ]


def _imbalance(stored: Stored) -> list[Measured]:
    """Powers of the tokens' length, fitted by least squares, with errors from the seeds."""
    lengths = stored[f"{FIGURE}.lengths"]
    x = np.log(lengths.length.values)
    powers = {name: np.polyfit(x, np.log(lengths[name].values), 1)[0] for name in ("query", "value")}
    found = [
        Measured("power of the length in query gradients", *mean_and_error(powers["query"]), above=5.8, below=6.2),
        Measured("power of the length in value gradients", *mean_and_error(powers["value"]), above=1.8, below=2.2),
    ]
    sizes = stored[f"{FIGURE}.sizes"]
    query, value = sizes.log_query_gradient_simulated, sizes.log_value_gradient_simulated
    ratio = query - value
    for name, values, low, high in (("query", query, -0.1, 0.1), ("value", value, 0.8, 1.2)):
        ends = values.isel(size=-1)
        power = (ends.isel(context=-1) - ends.sel(context=10)) / np.log(int(ends.context[-1]) / 10)
        words = f"power of T in {name} gradients, T = 10 to {int(ends.context[-1])}, overlap ½"
        found.append(Measured(words, *mean_and_error(power), above=low, below=high))
    wide = (ratio.isel(size=-1) - ratio.isel(size=0)) / np.log(sizes["size"].values[-1] / sizes["size"].values[0])
    runs = stored[OPTIMISERS].isel(size=-1)
    gap, ratio = behind(runs), runs.gradient_ratio_simulated.isel(rate=0, optimiser=0).mean("seed")
    most, least = gap.isel(strength=int(ratio.argmax("strength"))), gap.isel(strength=int(ratio.argmin("strength")))
    words = "log of the training loss of gradient descent over that of Adam, best rates"
    found.append(Measured(f"{words}, largest ratio of gradients", *mean_and_error(most), above=math.log(2)))
    found.append(Measured("the same minus that at the smallest ratio", *mean_and_error(most - least), above=0.0))
    found.append(Measured("power of d in their ratio", *mean_and_error(wide.mean("context")), above=-0.1, below=0.1))
    return found


CLAIMS = (
    Claim(
        "Rank collapse makes gradients of queries and keys vanish.",
        "noci2022signal",
        "at unit norm, query gradients fall by more than 1000 from orthogonal to parallel tokens; value gradients do not",
        "orthogonal tokens",
        (FIGURE,), _vanishing, "uniform attention, linear MLP, T = 20, d = 384, 16 blocks, 12 networks",
    ),
    Claim(
        "Residual branches scaled by 1/√depth prevent it.",
        "noci2022signal",
        "the overlap tends to (e−1)/(e+T−1) = 0.079 at T = 20 instead of 1",
        "unscaled branches",
        (FIGURE,), _scaling, "orthogonal inputs, linear MLP, T = 20",
    ),
    Claim(
        "Gradients of queries and values scale differently, which speaks for adaptive optimisers.",
        "noci2022signal",
        "squared gradients grow with powers 6 and 2 of the tokens' length; SGD falls behind Adam where they differ",
        "equal powers",
        (FIGURE, OPTIMISERS), _imbalance,
        "uniform attention at one layer, T = 5 to 80, d = 96 to 384, 96 networks; trained: digits as 16 patches, d = 64, "
        "six blocks with normalisation after the sums, ratios of squared gradients from 4 to 800, 400 steps, 11 rates, "
        "4 networks each",
        would_change="wider networks: at overlap ½ the power of T in query gradients falls with the width, 0.34 at d = 96 and "
        "0.17 at 384, against 0.04 in theory, and their excess over theory at T = 80 from 0.6 to 0.2 in the logarithm",
    ),
)  # fmt: skip
