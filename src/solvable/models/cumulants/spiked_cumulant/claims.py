"""Claims about a spike in the fourth cumulant, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PAPER, NORMS, LEARNERS = "szekely2023learning", "spiked-cumulant-norms", "spiked-cumulant-learners"


def _possible(stored: Stored) -> list[Measured]:
    lines, runs = stored[NORMS], stored[f"{LEARNERS}.search"].isel(size=-1)
    critical = float(lines.critical_snr_theory.isel(snr=0).sel(samples=1.0, method="nearest"))
    few, many = (mean_and_error(runs.success_simulated.sel(samples=x)) for x in (0.25, 3.0))
    return [
        Measured("critical strength at n = d (the paper's figure: about 10.7)", critical, above=10.5, below=11.0),
        Measured("fraction of spikes found by exhaustive search at n = 3d", *many, above=0.8),
        Measured("the same at n = d/4", *few, below=0.3),
    ]


def _efficient(stored: Stored) -> list[Measured]:
    low, found = stored[f"{NORMS}.finite"].low, []
    for theta, bounds in ((1.6, {"below": -0.1}), (2.0, {"above": -0.1, "below": 0.1}), (2.2, {"above": 0.1})):
        last = np.log(low.sel(theta=theta) - 1).isel(dimension=[-5, -1])
        slope = float(last.diff("dimension").values[0] / np.diff(np.log(last.dimension))[0])
        found.append(Measured(f"exponent in d of the norm of degree 16 minus 1, n = d^{theta:g}", slope, **bounds))
    return found


def _learners(stored: Stored) -> list[Measured]:
    found = []
    for size in (20, 40):
        right = {
            name: mean_and_error(
                1 - stored[f"{LEARNERS}.{name}"].sel(size=size, scaled_samples=32.0).test_error_simulated
            )
            for name in ("network", "features")
        }
        found += [
            Measured(f"accuracy of a network at n = 32d², d = {size}", *right["network"], above=0.6),
            Measured(f"accuracy of random features at n = 32d², d = {size}", *right["features"], below=0.55),
        ]
    few = stored[f"{LEARNERS}.network"].sel(size=40, scaled_samples=0.5).test_error_simulated
    null = stored[f"{LEARNERS}.null"].isel(size=0, scaled_samples=-1).test_error_simulated
    return [
        *found,
        Measured("accuracy of a network at n = d²/2, d = 40", *mean_and_error(1 - few), below=0.55),
        Measured("accuracy of a network with a Gaussian latent", *mean_and_error(1 - null), below=0.55),
    ]


CLAIMS = (
    Claim(
        "A spike in the fourth cumulant can be detected from a number of samples that grows like the dimension.",
        PAPER,
        "the exact norm of the likelihood ratio jumps at a critical strength; exhaustive search succeeds near n = d",
        "a Gaussian latent: the norm is one",
        (NORMS, LEARNERS), _possible, "β = 10; search with d = 12, 96 seeds",
    ),
    Claim(
        "Efficient tests need of the order of d² samples.",
        PAPER,
        "the norm of low degree depends on n/d² alone: it falls with d at n = d^1.6 and grows at n = d^2.2",
        "",
        (NORMS,), _efficient, "β = 10, degree 16, d up to 2000",
    ),
    Claim(
        "Networks learn the task at n ~ d², random features do not.",
        PAPER,
        "accuracy above chance at n = 32d² for networks only",
        "classes that are Gaussian with the same covariance: one half",
        (LEARNERS,), _learners, "β = 10, d = 20 and 40, networks of 4d units, 4 seeds",
    ),
)  # fmt: skip
