"""What is claimed of curricula in batch learning, and the numbers that decide."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "curriculum-batch-gains"


def _order_alone(stored: Stored) -> list[Measured]:
    """Without coupling the second phase, which is convex, starts anew: its slice alone decides, as in one phase without the
    other slice. Both at the best penalty of a grid, against joint training at its own."""
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
    return [
        Measured("error of easy, then hard samples less that of joint training, uncoupled", hard - joint, above=0.0),
        Measured("error of hard, then easy samples less that of joint training, uncoupled", easy - joint, above=0.0),
        Measured("the same of easy, then hard samples, coupled", float(best.sel(arm="curriculum")) - joint, below=0.0),
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
            "relative gain at a fifth of relevant inputs (simulated)",
            1 - easy / joint,
            float(np.hypot(spread, easy * noise / joint)) / joint,
            above=0.1,
        ),
        Measured(
            "error of hard first less that of easy first, both coupled (theory)",
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
            "gain at a tenth of relevant inputs less that at nine tenths", float(sparse[0] - sparse[-1]), above=0.05
        ),
        Measured(
            "largest gain over numbers of samples less that at the fewest",
            float(samples.max() - samples[0]),
            above=0.05,
        ),
        Measured(
            "largest gain over numbers of samples less that at the most", float(samples.max() - samples[-1]), above=0.05
        ),
    ]


CLAIMS = (
    Claim(
        "In batches with a standard loss, order gains nothing.",
        "saglietti2022analytical",
        "without coupling the last slice alone counts, and is no better than joint training",
        "phases that are coupled",
        (FIGURE,), _order_alone, "a fifth of the inputs relevant, half a sample of either kind per input; theory, each arm tuned",
        missing="simulated phases without coupling",
    ),
    Claim(
        "A Gaussian prior that ties the phases gives a large gain.",
        "saglietti2022analytical",
        "the error of easy, then hard samples is more than a tenth below that of joint training, each arm tuned",
        "no coupling; hard samples first with the same prior",
        (FIGURE,), _prior,
        "half a sample of either kind per input; theory for relevant fractions from 0.1 to 0.9, simulated at 0.2: N = 400, 16 "
        "seeds. Hard first gains 9 % there: part of the gain is the prior's",
    ),
    Claim(
        "Its gain has regimes: largest for sparse teachers and intermediate numbers of samples.",
        "saglietti2022analytical",
        "the gain over joint training falls with the fraction of relevant inputs and peaks inside the range of samples",
        "a flat gain",
        (FIGURE,), _regimes, "theory, each arm tuned: fractions from 0.1 to 0.9; 0.25 to 4 samples of either kind per input",
    ),
)  # fmt: skip
