"""Claims about curricula in batch learning, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "curriculum-batch-gains"


def _order_alone(stored: Stored) -> list[Measured]:
    """Compare uncoupled phases with joint training, each at the best penalty of a grid.

    Without coupling the second phase, which is convex, forgets the first: the result is that of training on its slice alone.
    """
    from .model import CurriculumBatch

    nothing, half = 1e-9, 0.5
    slices = CurriculumBatch(
        protocol="joint",
        relevant=0.2,
        samples_easy=np.array([nothing, half]),
        samples_hard=np.array([half, nothing]),
        penalty=np.geomspace(1e-4, 10, 25)[:, None],
    )
    hard, easy = np.nanmin(slices.theory(only=["test_error"]).test_error, axis=0)
    best = stored[FIGURE].best
    joint = float(best.sel(arm="joint"))
    runs = stored[f"{FIGURE}.uncoupled"].isel(hard=0, size=-1).test_error_simulated

    def apart(arm: str) -> Any:
        return runs.sel(arm=arm) - runs.sel(arm="joint")

    return [
        Measured("error of easy, then hard samples minus that of joint training, uncoupled", hard - joint, above=0.0),
        Measured("error of hard, then easy samples minus that of joint training, uncoupled", easy - joint, above=0.0),
        Measured("the same for easy, then hard samples, coupled", float(best.sel(arm="curriculum")) - joint, below=0.0),
        *(
            Measured(
                f"error of {order} minus that of joint training, uncoupled (simulated)", *mean_and_error(gap), above=0.0
            )
            for order, gap in (
                ("easy, then hard samples", apart("curriculum")),
                ("hard, then easy samples", apart("anti")),
            )
        ),
    ]


def _gain(stored: Stored, name: str) -> np.ndarray:
    """Relative gain of the curriculum over joint training."""
    errors = stored[FIGURE][name]
    return (1 - errors.sel(arm="curriculum") / errors.sel(arm="joint")).values


def _prior(stored: Stored) -> list[Measured]:
    runs = stored[f"{FIGURE}.runs"].isel(hard=0, size=-1).test_error_simulated
    (easy, spread), (joint, noise) = (mean_and_error(runs.sel(arm=arm)) for arm in ("curriculum", "joint"))
    first = mean_and_error(runs.sel(arm="anti") - runs.sel(arm="curriculum"))
    best = stored[FIGURE].best
    return [
        Measured(
            "largest relative gain over joint training (theory)", float(_gain(stored, "by_relevant").max()), above=0.1
        ),
        Measured(
            "relative gain with a fifth of the inputs relevant (simulated)",
            1 - easy / joint,
            float(np.hypot(spread, easy * noise / joint)) / joint,
            above=0.1,
        ),
        Measured(
            "error of hard first minus that of easy first, both coupled (theory)",
            float(best.sel(arm="anti") - best.sel(arm="curriculum")),
            above=0.0,
        ),
        Measured("the same (simulated)", *first, above=0.0),
    ]


def _regimes(stored: Stored) -> list[Measured]:
    sparse, samples = _gain(stored, "by_relevant"), _gain(stored, "by_samples")
    return [
        Measured(
            "largest rise of the gain with the fraction of relevant inputs", float(np.diff(sparse).max()), below=0.0
        ),
        Measured(
            "gain with a tenth of the inputs relevant minus that with nine tenths",
            float(sparse[0] - sparse[-1]),
            above=0.05,
        ),
        Measured(
            "largest gain over numbers of samples minus that at the smallest number",
            float(samples.max() - samples[0]),
            above=0.05,
        ),
        Measured(
            "largest gain over numbers of samples minus that at the largest number",
            float(samples.max() - samples[-1]),
            above=0.05,
        ),
    ]


CLAIMS = (
    Claim(
        "In batch learning with a standard loss, the order of samples brings no gain.",
        "saglietti2022analytical",
        "without coupling only the last slice counts, and it does no better than joint training",
        "coupled phases",
        (FIGURE,), _order_alone, "a fifth of the inputs relevant, half a sample of each kind per input, each arm "
        "tuned in theory; simulated with N = 400, 16 "
        "seeds",
        would_change="sample numbers at which joint training beats easy samples alone: uncoupled, only the last "
        "slice counts, and here a last slice of easy samples does a little better than everything at "
        "once, so hard samples first gain 0.007",
    ),
    Claim(
        "A Gaussian prior that ties the phases gives a large gain.",
        "saglietti2022analytical",
        "the error of easy, then hard samples is more than a tenth below that of joint training, each arm tuned",
        "no coupling; hard samples first with the same prior",
        (FIGURE,), _prior,
        "half a sample of each kind per input; theory for relevant fractions from 0.1 to 0.9, simulated at 0.2: N = 400, 64 "
        "seeds. Hard first gains 9 % there, so part of the gain is due to the prior",
    ),
    Claim(
        "The gain is largest for sparse teachers and intermediate numbers of samples.",
        "saglietti2022analytical",
        "the gain over joint training falls with the fraction of relevant inputs and peaks inside the range of samples",
        "a flat gain",
        (FIGURE,), _regimes, "theory, each arm tuned: fractions from 0.1 to 0.9; 0.25 to 4 samples of each kind per input",
    ),
)  # fmt: skip
