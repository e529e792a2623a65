"""Claims about signals through a random transformer, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

DEPTH, ATTENTION, MAP = "transformer-signals-depth", "transformer-signals-attention", "transformer-trainability"


def _recursion(stored: Stored) -> list[Measured]:
    runs, weak = stored[DEPTH], stored[f"{DEPTH}.weak"]
    before = runs.sel(layer_norm="before")
    found = []
    for where in runs.layer_norm.values:
        at = runs.sel(layer_norm=where)
        gap = deviation(at.overlap_simulated, at.overlap)
        found.append(Measured(f"deviation of the overlap by layer, normalisation {where}", *gap, below=0.05))
    found.append(Measured("deviation of the norm by layer", *deviation(before.norm_simulated, before.norm), below=0.05))
    strong = before.sel(strength=3.0)
    found.append(
        Measured(
            "the same from uniform attention, β = 3", *deviation(strong.norm_simulated, strong.norm_uniform), above=0.1
        )
    )
    for name, words in (("overlap", "overlap"), ("participation", "participation")):
        gap = deviation(weak[f"{name}_simulated"], weak[name])
        found.append(Measured(f"deviation of the {words}, weak residual and frozen attention", *gap, below=0.05))
    return found


def _failures(stored: Stored) -> list[Measured]:
    runs, attention = stored[DEPTH].sel(layer_norm="after"), stored[ATTENTION]
    weak, strong = (runs.sel(strength=b).overlap_simulated.isel(layer=-1) for b in (0.5, 3.0))
    low, high = (attention.attention_entropy_simulated.isel(at=i) for i in (0, -1))
    limit = attention.attention_entropy_limit
    critical = float(np.sqrt(2 / (1 - attention.attrs["initial_overlap"])))
    return [
        Measured("overlap after 16 blocks, β = 0.5", *mean_and_error(weak), above=0.8),
        Measured("overlap at β = 3 minus that at β = 0.5", *mean_and_error(strong - weak), below=-0.1),
        Measured("entropy of attention over log T at β = 0.25", *mean_and_error(low), above=0.9),
        Measured("entropy of attention over log T at β = 4", *mean_and_error(high), below=0.2),
        Measured(
            "limit of the entropy beyond β_c", float(limit.where(attention.strength > critical).max()), below=1e-9
        ),
    ]


def _residual(stored: Stored) -> list[Measured]:
    grid, towers = stored[MAP], stored[f"{MAP}.towers"]
    last = towers.overlap_simulated.isel(layer=-1)
    below, above = (last.isel(residual=i) for i in (0, -1))
    return [
        Measured("overlap below the critical residual, erf networks", *mean_and_error(below), above=0.98),
        Measured("overlap above it", *mean_and_error(above), below=0.9),
        Measured("deviation of the overlap by layer", *deviation(towers.overlap_simulated, towers.overlap), below=0.05),
        Measured(
            "largest factor of 1 − ρ per block, ReLU, over residual strengths", float(grid.slope_relu.max()), above=1.0
        ),
        *_factors(),
    ]


def _factors() -> list[Measured]:
    """The largest factor of 1 − ρ per block by activation, in theory: above 1 there is a critical residual strength."""
    from .model import TransformerSignals

    residual, variance = np.array([0.3, 1.0, 3.0, 10.0, 100.0])[:, None], np.array([0.2, 1.0, 9.0, 100.0])[None, :]
    found = []
    for activation in ("erf", "tanh", "gelu", "relu"):
        model = TransformerSignals(
            activation=activation, depth=1, attention_residual=residual, weight_variance=variance
        )
        largest = float(np.max(model.theory(only=["collapse_slope"]).collapse_slope))
        words = f"the same over σ_w² from 0.2 to 100 too, {activation} (theory)"
        found.append(Measured(words, largest, above=1.0))
    return found


CLAIMS = (
    Claim(
        "Norm and overlap of tokens obey an exact recursion through a whole block, attention being a random energy model.",
        "giorlandino2025two",
        "norm and overlap by layer lie on the recursion, unlike on that of uniform attention",
        "attention replaced by uniform averages",
        (DEPTH,), _recursion,
        "T = 128, d = 384, 16 blocks, 8 networks, finite-T formulas; weak residual: α_A = 0.3, σ_v² = 1, β = 3, 6 blocks",
        would_change="a recursion for the participation of weak residual branches with attention frozen, off by a "
        "fifth at T = 128",
    ),
    Claim(
        "Weak queries and keys collapse the rank, strong ones keep the signal and collapse the entropy of attention.",
        "giorlandino2025two",
        "overlap near 1 below β_c and lower above it; entropy near log T below and near 0 above",
        "identical tokens: β_c is infinite",
        (DEPTH, ATTENTION), _failures, "normalisation after the sums; entropy of one block at T = 256, d = 512",
    ),
    Claim(
        "A critical residual strength ensures that signals propagate.",
        "giorlandino2025two",
        "the overlap stays below 1 above the critical residual strength and tends to 1 below it",
        "no residual",
        (MAP,), _residual,
        "erf with σ_w² = 9 (χ > 1), T = 64, d = 256, 30 blocks; theory: four activations, residual strengths up to 100",
        would_change="ReLU networks in which parallel tokens repel: their MLPs multiply 1 − ρ by "
        "χ = (c + α_M²)/(c + σ_b² + α_M²) < 1, c = σ_w² r/2 times the norm, for any σ_w², so that residuals only delay the "
        "collapse; with erf, tanh and gelu there is a critical strength",
    ),
)  # fmt: skip
