"""Claims about sharpness across widths, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

from .figures import best_rates, growth

FIGURE = "sharpness-widths"
PAPER = "noci2024super"


def _collapse(stored: Stored) -> list[Measured]:
    runs = stored[FIGURE].sel(scaling="mup")
    found = []
    for size in runs["size"].values:
        at = runs.sel(size=size)
        words = f"relative deviation of the sharpness of N = {size} from the limit, over 60 steps"
        found.append(Measured(words, *deviation(at.sharpness_simulated, at.sharpness_theory), below=0.02))
    last = runs.sharpness_simulated.isel(time=-1) / runs["size"]  # μP: γ² = γ₀²N, here γ₀ = 1
    words = f"eigenvalue without the factor γ² at N = {int(runs['size'][0])} over that at N = {int(runs['size'][-1])}"
    return [*found, Measured(words, *mean_and_error(last.isel(size=0) / last.isel(size=-1)), above=4.0)]


def _slope(stored: Stored, scaling: str) -> tuple[float, float]:
    """Slope of the logarithm of the mean growth against that of the width, with its error."""
    grown = growth({"": stored[FIGURE]}).sel(scaling=scaling)
    logs, x = np.log(grown.mean("seed")), np.log(grown["size"])
    errors = grown.std("seed", ddof=1) / np.sqrt(grown.sizes["seed"]) / grown.mean("seed")
    weight = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return float((weight * logs).sum()), float(np.sqrt((weight**2 * errors**2).sum()))


def _fades(stored: Stored) -> list[Measured]:
    return [
        Measured(
            "power of N in the growth of the sharpness, NTK scaling", *_slope(stored, "ntk"), above=-1.2, below=-0.8
        ),
        Measured("the same under μP", *_slope(stored, "mup"), above=-0.2, below=0.2),
    ]


def _cause(stored: Stored) -> list[Measured]:
    line = stored[f"{FIGURE}.richness"].sharpness_theory
    gain = line.isel(time=-1) - line.isel(time=0)
    lazy, rich = (float(gain.sel(richness=value, method="nearest")) for value in (0.1, 1.0))
    best = best_rates(stored[f"{FIGURE}.rates"])
    moved = best.isel(size=-1) - best.isel(size=0)
    octaves = "octaves from the best rate of the narrowest to that of the widest network"
    return [
        Measured("growth of the sharpness at γ₀ = 0.1 over that at γ₀ = 1, theory of μP", lazy / rich, below=0.1),
        Measured(f"{octaves}, μP", *mean_and_error(moved.sel(scaling="mup")), above=-1.0, below=1.0),
        Measured(
            f"{octaves}, NTK, consistent up to 1/N", *mean_and_error(moved.sel(scaling="ntk")), above=-1.0, below=1.0
        ),
        Measured(f"{octaves}, standard scaling", *mean_and_error(moved.sel(scaling="standard")), below=-1.0),
    ]


CLAIMS = (
    Claim(
        "Under μP the sharpness follows one curve at all widths.",
        PAPER,
        "γ²λ_max of networks of different width lies on the limit of large width throughout training",
        "eigenvalues without the factor γ², which differ by the ratio of the widths",
        (FIGURE,), _collapse,
        "two-layer linear networks, 10 patterns in 20 dimensions, N = 64 to 1024, 60 steps, 16 seeds",
        would_change="a statement about wide networks: from N = 256 on the curves agree, N = 64 is 7 % away from "
        "the limit",
    ),
    Claim(
        "Under NTK scaling the growth of the sharpness fades with width.",
        PAPER,
        "the growth over training falls like 1/N, and does not fall under μP",
        "a growth that does not depend on width",
        (FIGURE,), _fades,
        "two-layer linear networks, N = 64 to 1024, 60 steps, 16 seeds",
    ),
    Claim(
        "Feature learning causes the growth of the sharpness, and consistent sharpness goes with transfer of learning rates.",
        PAPER,
        "no growth as γ₀ → 0; the best rate is the same at all widths where the sharpness is",
        "a scaling with transfer but without consistency",
        (FIGURE,), _cause,
        "two-layer linear networks; best rate after 20 steps, N = 32 to 512, 8 seeds, grid of half octaves",
        missing="a scaling in which one of the two fails and the other does not",
    ),
)  # fmt: skip
