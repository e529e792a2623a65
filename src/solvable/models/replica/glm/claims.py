"""Claims about transitions of generalised linear models, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error
from solvable.methods.risk.existence import recovery_threshold

FIGURE = "glm-transitions"


def _jump(stored: Stored) -> list[Measured]:
    lines, runs = stored[f"{FIGURE}.binary"], stored[f"{FIGURE}.binary_measured"].isel(size=-1)
    before = runs.error_simulated.sel(samples=1.4, method="nearest")
    after = runs.error_simulated.sel(samples=1.7, method="nearest")
    between = lines.sel(samples=1.35, method="nearest")
    return [
        Measured("samples at which the posterior mean becomes perfect (theory)", lines.attrs["information"], 0.0, 1.244, 1.246),
        Measured("samples at which message passing becomes perfect (theory)", lines.attrs["algorithmic"], 0.0, 1.492, 1.494),
        Measured("error of the posterior mean at α = 1.35 (theory)", float(between.best_error_theory), below=1e-6),
        Measured("error of message passing at α = 1.4", *mean_and_error(before), above=0.1),
        Measured("error of message passing at α = 1.7", *mean_and_error(after), below=0.1),
    ]  # fmt: skip


def _sparse(stored: Stored) -> list[Measured]:
    lasso, bayes = stored[f"{FIGURE}.lasso"], stored[f"{FIGURE}.bayes"]
    edge = float(recovery_threshold(0.2))
    steepest = float(lasso.samples.values[np.argmin(np.gradient(np.log(lasso.error_theory.values)))])
    spinodal = float(stored[f"{FIGURE}.binary"].attrs["sensing"])
    runs = stored[f"{FIGURE}.bayes_measured"].isel(size=-1).error_simulated
    fits = stored[f"{FIGURE}.lasso_measured"].isel(size=-1).error_simulated
    at = lambda data, place: mean_and_error(data.sel(samples=place, method="nearest"))  # noqa: E731
    best = bayes.best_error_theory
    needed = float(bayes.samples.values[np.argmax(best.values < 0.01)])
    return [
        Measured("steepest fall of the lasso's error over its transition without noise (theory)", steepest / edge, 0.0, 0.9, 1.1),
        Measured("samples that message passing needs over those of the lasso (theory)", spinodal / edge, 0.0, 0.0, 1.0),
        Measured("samples of the posterior mean over those of message passing (theory)", needed / spinodal, 0.0, 0.0, 1.0),
        Measured("error of message passing at 0.93 of its samples, where the posterior mean recovers",
                 *at(runs, 0.93 * spinodal), above=0.1),
        Measured("error of message passing at 1.15 times its samples", *at(runs, 1.15 * spinodal), below=0.05),
        Measured("error of the lasso at 0.85 of its samples", *at(fits, 0.85 * edge), above=0.04),
        Measured("error of the lasso at 1.15 times its samples", *at(fits, 1.15 * edge), below=0.02),
    ]  # fmt: skip


CLAIMS = (
    Claim(
        "Binary weights are learnt perfectly from a finite number of examples per weight, by a first-order transition, and "
        "message passing needs more.",
        "gyorgyi1990first",
        "the posterior mean jumps to zero error at α = 1.245, message passing at 1.493",
        "weights that are Gaussian: no jump",
        (FIGURE,), _jump, "sign labels without noise; simulated at d = 1000, 12 seeds",
        missing="5 of 12 realisations at α = 1.6, 2 at 1.7 and 3 at 2.0, where message passing did not converge",
        would_change="message passing that converges in every realisation, by damping or at larger d",
    ),
    Claim(
        "A learner who knows that a signal is sparse recovers it from fewer measurements than the lasso, though message passing "
        "does not reach what is possible.",
        "krzakala2012statistical",
        "the posterior mean needs fewer samples than message passing, and that fewer than the lasso",
        "a fraction of one: all three coincide in their thresholds",
        (FIGURE,), _sparse, "one weight in five is not zero, noise variance 1e-4; d = 1000 (messages, 12 seeds), 250 "
        "(lasso, 48 seeds)",
    ),
)  # fmt: skip
