"""Does the trainability diagram of random transformers say which of them learn? Its numbers, from trained networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE, RESIDUALS = "signal-digits", "signal-digits-residuals"
COLLAPSED, OPEN = 0.99, 0.9
"""Predicted overlaps of tokens beyond which a network counts as collapsed, and below which it does not."""


def predicted(runs: Any, theory: Any) -> Any:
    """The overlap after the last block at initialisation, in the limit of large width, at the cells of the runs.

    The theory's table ends at a strength where attention is nearly frozen; stronger cells are given its value there.
    """
    lines = theory.overlap.assign_coords(strength=np.log(theory.strength))
    found = lines.interp(strength=np.log(np.minimum(runs.strength.values, float(theory.strength.max()))))
    return found.assign_coords(strength=runs.strength.values).sel(layer_norm=runs.layer_norm, depth=runs.depth)


def rank_correlation(a: Any, b: Any) -> np.ndarray:
    """Spearman's correlation of two arrays over all cells, for each seed of the second."""
    from scipy.stats import spearmanr

    b = b.transpose("seed", *a.dims)
    found: list[Any] = [spearmanr(a.values.ravel(), each.ravel()) for each in b.values]
    return np.array([each.statistic for each in found])


def _diagram(stored: Stored) -> list[Measured]:
    runs = stored[FIGURE].isel(size=-1)
    overlap, found = predicted(runs, stored[f"{FIGURE}.theory"]), []
    for norm in runs.layer_norm.values:
        at, here = runs.sel(layer_norm=norm), overlap.sel(layer_norm=norm)
        words = f"normalisation {norm}"
        start = at.start_overlap_simulated.mean("seed")
        found.append(
            Measured(
                f"mean distance of the overlap at the start from the theory, {words}",
                float(abs(start - here).mean()),
                below=0.05,
            )
        )
        ranks = rank_correlation(here, at.train_loss_simulated)
        ranks = mean_and_error(ranks)
        found.append(Measured(f"rank correlation of predicted overlap and training loss, {words}", *ranks, above=0.5))
    after, here = runs.sel(layer_norm="after").train_accuracy_simulated, overlap.sel(layer_norm="after")
    cells = list(here.dims)
    open_, lost = after.where(here < OPEN).mean(cells), after.where(here > COLLAPSED).mean(cells)
    found += [
        Measured(f"training accuracy where the predicted overlap is below {OPEN:g}", *mean_and_error(open_), above=0.9),
        Measured(f"the same where it exceeds {COLLAPSED:g}", *mean_and_error(lost), below=0.5),
    ]
    frozen = mean_and_error((after.isel(strength=-1) - after.max("strength")).mean("depth"))
    found.append(
        Measured("training accuracy at the largest β minus the best β, mean over depths", *frozen, below=-0.05)
    )
    other, expected = stored[RESIDUALS].isel(size=-1), stored[f"{RESIDUALS}.theory"].overlap
    words = "residual strengths 0.3 and 3"
    ranks = mean_and_error(rank_correlation(expected, other.train_loss_simulated))
    found.append(Measured(f"rank correlation of predicted overlap and training loss, {words}", *ranks, above=0.5))
    reached, cells = other.train_accuracy_simulated, list(expected.dims)
    for inside, label, bounds in (
        (expected < OPEN, f"is below {OPEN:g}", {"above": 0.9}),
        (expected > COLLAPSED, f"exceeds {COLLAPSED:g}", {"below": 0.5}),
    ):
        seen = mean_and_error(reached.where(inside).mean(cells))
        found.append(Measured(f"training accuracy where the predicted overlap {label}, {words}", *seen, **bounds))
    return found


CLAIMS = (
    Claim(
        "Trainability diagrams predict which models learn when they are trained.",
        "giorlandino2025two",
        "networks learn where the predicted overlap of tokens stays below 1, not where it has come to 1 or attention is frozen",
        "training that does not depend on the diagram",
        (FIGURE, RESIDUALS), _diagram,
        "digits as 16 patches, d = 64, one head, σ_v² = σ_w² = 0.2, no biases, L = 1 to 64, β = 0.1 to 30, 400 steps of Adam at "
        "10⁻³, 4 networks each; the same with residual strengths 0.3 and 3, L = 2 and 8, normalisation after; "
        "intervals set before the training",
        missing="language models of the paper's size",
        would_change="a task on which collapsed tokens cannot be trained: on digits, networks with residual strengths "
        "0.3 and 3 learn where the predicted overlap exceeds 0.99",
        seconds=20_000,
    ),
)  # fmt: skip
