"""Claims about the shaped transformer, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored

FIGURE = "shaped-transformer-limit"


def _limit(stored: Stored) -> list[Measured]:
    """Distances of quantiles at the last layer, as a part of the distance between the outer quantiles."""
    table, found = stored[FIGURE].isel(layer=-1), []
    for name, words in (("correlation", "correlation"), ("length", "logarithm of the length")):
        exact, seen, error = (table[f"{name}{end}"] for end in ("", "_simulated", "_error"))
        if name == "length":  # spread over decades, nearly log-normal
            exact, seen, error = np.log(exact), np.log(seen), error / exact
        span = float(exact[-1] - exact[0])
        for level in (0.1, 0.5, 0.9):
            at = {"quantile": level}
            gap = abs(float(seen.sel(at) - exact.sel(at))) / span
            found.append(
                Measured(
                    f"distance of the {level:.0%} quantile of the {words}", gap, float(error.sel(at)) / span, below=0.1
                )
            )
    found.append(Measured("median correlation without shaping", float(table.unshaped), above=0.99))
    return found


def _branches(stored: Stored) -> list[Measured]:
    data = stored[f"{FIGURE}.branches"]
    low, high = data.isel(branch=0), data.isel(branch=-1)
    gap = float(high.share_simulated - low.share_simulated)
    error = float(np.hypot(high.share_error, low.share_error))
    steps = np.diff(data.share.values)
    return [
        Measured(
            "nearly parallel tokens at γ² = 0.05, networks",
            float(low.share_simulated),
            float(low.share_error),
            below=0.1,
        ),
        Measured("the same without skip minus with γ² = 0.05", gap, error, above=0.25),
        Measured("smallest change from one weight to the next, limit", float(steps.min()), above=0.0),
    ]


def _widths(stored: Stored) -> list[Measured]:
    data, found = stored[f"{FIGURE}.widths"], []
    for block in data.block.values:
        gap, error = (np.asarray(data[name].sel(block=block)) for name in ("gap", "gap_error"))
        found.append(
            Measured(
                f"distance of mean correlations at n = {int(data['size'][-1])}, {block}",
                abs(gap[-1]),
                error[-1],
                below=0.05,
            )
        )
        found.append(
            Measured(
                f"the same at n = {int(data['size'][0])} minus that, {block}",
                abs(gap[0]) - abs(gap[-1]),
                float(np.hypot(error[0], error[-1])),
                above=0.0,
            )
        )
    return found


CLAIMS = (
    Claim(
        "As depth and width grow together the covariance of a shaped transformer follows a stochastic differential equation.",
        "noci2023shaped",
        "quantiles of correlations and lengths in networks are those of paths of the equation",
        "the usual softmax and ReLU: correlations tend to one",
        (FIGURE,), _limit,
        "three tokens, n = 200, L = 100, γ² = 0.5, stopped at length 10; distances over that of the outer quantiles",
        seconds=200,
    ),
    Claim(
        "The weights of residual branches control drift and diffusion, so that correlations stay away from one.",
        "noci2023shaped",
        "the share of nearly parallel tokens (|ρ| > 0.9) falls with the weight of the branches",
        "no skip connection: most tokens are nearly parallel",
        (FIGURE,), _branches, "three tokens, L = n = 100",
        seconds=200,
    ),
    Claim(
        "Networks of finite size are already well described.",
        "noci2023shaped",
        "the distance of networks from the limit falls with the width",
        "a distance that does not depend on the width",
        (FIGURE,), _widths, "three tokens, L = n/2, widths from 8 to 128",
        seconds=200,
        would_change="more networks: with plain shaping, even eight units deviate by less than the noise",
    ),
)  # fmt: skip
