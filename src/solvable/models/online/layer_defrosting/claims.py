"""Claims about transfer by frozen layers, and the numbers that decide them."""

from __future__ import annotations

import math

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "layer-defrosting-depth"
TASKS = ("teachers", "digits")


def _not_all(stored: Stored) -> list[Measured]:
    """Error with all feature layers frozen minus that at the best depth, which is chosen on other samples."""
    found = []
    for tasks in TASKS:
        runs = stored[f"{FIGURE}.{tasks}"].isel(size=-1)
        excess = runs.test_error_simulated.isel(frozen=-1) - runs.best_error_simulated
        errors = excess.std("seed", ddof=1) / math.sqrt(excess.sizes["seed"])
        often = float((excess.mean("seed") > 2 * errors).mean())
        unlike = excess.isel(correlation=0, samples=-1).mean("start")
        found += [
            Measured(f"excess error, least similar tasks, most samples, {tasks}", *mean_and_error(unlike), above=0.0),
            Measured(f"fraction of settings where it exceeds two standard errors, {tasks}", often, above=1 / 3),
        ]
    same = stored[f"{FIGURE}.digits"].isel(size=-1).best_depth_simulated.sel(correlation=1.0).isel(samples=0)
    return [
        *found,
        Measured("best depth (of 3), same task, fewest samples", *mean_and_error(same.mean("start")), above=2.0),
    ]


def _depends(stored: Stored) -> list[Measured]:
    found = []
    for tasks in TASKS:
        depth = stored[f"{FIGURE}.{tasks}"].isel(size=-1).best_depth_simulated
        samples = depth.isel(samples=0) - depth.isel(samples=-1)
        alike = depth.isel(correlation=-1) - depth.isel(correlation=0)
        found += [
            Measured(f"best depth with 20 samples minus that with 640, {tasks}",
                     *mean_and_error(samples.mean(("start", "correlation"))), above=0.0),
            Measured(f"best depth for the most similar tasks minus that for the least similar, {tasks}",
                     *mean_and_error(alike.mean(("start", "samples"))), above=0.0),
        ]  # fmt: skip
    return found


def _tells(stored: Stored) -> list[Measured]:
    """Rank correlation, over correlations of the tasks and seeds, of the best depth with the similarity of last layers."""
    from scipy.stats import rankdata

    found = []
    for tasks in TASKS:
        runs = stored[f"{FIGURE}.{tasks}"].isel(size=-1).mean(("start", "samples"))
        depth = runs.best_depth_simulated.transpose("correlation", "seed").values.ravel()
        for name, words, sign in (("cka", "CKA", 1), ("source_to_target", "imbalance", -1)):
            alike = runs[f"{name}_simulated"].isel(layer=-1).transpose("correlation", "seed").values.ravel()
            rank = float(np.corrcoef(rankdata(alike), rankdata(depth))[0, 1])
            error = (1 - rank**2) / math.sqrt(len(depth) - 3)
            bounds = {"above": 0.0} if sign > 0 else {"below": 0.0}
            found.append(Measured(f"rank correlation of best depth and {words}, {tasks}", rank, error, **bounds))
            kind = "cka" if sign > 0 else "imbalance"
            random = (
                stored[f"{FIGURE}.random"][f"{tasks}_{kind}"].isel(layer=-1).transpose("number", "seed").values.ravel()
            )
            chance = float(np.corrcoef(rankdata(random), rankdata(depth))[0, 1])
            spread = math.hypot(error, (1 - chance**2) / math.sqrt(len(depth) - 3))
            found.append(
                Measured(f"the same minus that with {words} of random networks", rank - chance, spread, **bounds)
            )
    # control: networks trained on one and the same task
    alike = stored[f"{FIGURE}.digits"].isel(size=-1).cka_simulated.mean(("start", "samples")).isel(layer=-1)
    ceiling = mean_and_error(alike.sel(correlation=1.0) - alike.isel(correlation=0))
    return [*found, Measured("last-layer CKA of two networks of one task minus that of the least similar tasks, digits",
                             *ceiling, above=0.0)]  # fmt: skip


SETTINGS = (
    "three hidden layers, d = 20, 10 seeds, 20 to 640 target samples, three similarities of the tasks, two starts"
)

CLAIMS = (
    Claim(
        "Freezing all feature layers is often not optimal.",
        "gerace2023optimal",
        "the error against frozen depth has its minimum below full depth in at least a third of the settings",
        "same task, few samples: freezing everything is best",
        (FIGURE,), _not_all, SETTINGS,
    ),
    Claim(
        "The best depth depends on the number of samples and on the similarity of the tasks.",
        "gerace2023optimal",
        "it decreases with samples and with dissimilarity",
        "one depth for all",
        (FIGURE,), _depends, SETTINGS,
    ),
    Claim(
        "The similarity of networks trained on each task alone predicts the best depth.",
        "gerace2023optimal",
        "best depth rises with the CKA of both networks' layers and falls with their information imbalance",
        "two networks trained on one task, and random networks",
        (FIGURE,), _tells, SETTINGS + "; last layer",
        missing="a prediction of the best depth layer by layer",
    ),
)  # fmt: skip
