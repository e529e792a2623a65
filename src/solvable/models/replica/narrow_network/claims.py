"""Claims about narrow one-hidden-layer networks, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE, TRAINING = "narrow-network-specialisation", "narrow-network-training"
BELOW, ABOVE = 0.4, 3.2
"""Samples per weight, below and above the transitions of all activations."""


def _errors(stored: Stored) -> list[Measured]:
    chains, risk, found = stored[f"{FIGURE}.chains"].isel(size=-1), stored[f"{FIGURE}.risk"].isel(size=-1), []
    for activation in chains.activation.values:
        here = chains.sel(activation=activation, start="teacher")
        specialised = here.samples.where(here.samples > here.transition_theory, drop=True).values
        for samples in specialised:
            ratio = (here.excess_loss_simulated / here.excess_loss_theory).sel(samples=samples)
            words = f"excess loss of Bayesian learning over the prediction, {activation}, α = {samples:g}"
            found.append(Measured(words, *mean_and_error(ratio), above=0.95, below=1.05))
    for arm in risk.arm.values:
        here = risk.sel(arm=arm)
        gap = deviation(here.excess_loss_simulated, here.excess_loss_theory)
        found.append(Measured(f"relative deviation of the excess loss, empirical risk, {arm}", *gap, below=0.05))
    return found


def _specialise(stored: Stored) -> list[Measured]:
    chains, found = stored[f"{FIGURE}.chains"].isel(size=-1), []
    for activation in chains.activation.values:
        overlap = chains.overlap_simulated.sel(activation=activation)
        for start, samples, bounds in (
            ("teacher", BELOW, {"below": 0.1}),
            ("teacher", ABOVE, {"above": 0.5}),
            ("random", ABOVE, {"above": 0.5}),
        ):
            here = mean_and_error(overlap.sel(start=start, samples=samples))
            found.append(Measured(f"overlap at α = {samples:g}, chain from {start}, {activation}", *here, **bounds))
    return found


def _dynamics(stored: Stored) -> list[Measured]:
    """Excess loss of trained networks over the prediction, wherever the theory finds the specialised solution."""
    table, found = stored[TRAINING].isel(size=-1), []
    for arm in table.arm.values:
        here = table.sel(arm=arm)
        for place in table.place.values:
            ratio = mean_and_error((here.excess_simulated / here.excess_expected).sel(place=place))
            if np.isfinite(ratio[0]):
                words = f"excess loss over the prediction, {arm}, α = {float(here['at'].sel(place=place)):g}"
                found.append(Measured(words, *ratio, above=0.9, below=1.1))
    return found


CLAIMS = (
    Claim(
        "A few statistics of the weights give the error of Bayesian and of empirical-risk learners for any activation.",
        "perezortiz2025generalization",
        "the excess loss against the number of samples per weight lies on the theory line",
        "deviations grow where K/d is not small",
        (FIGURE,), _errors,
        "d = 144; Bayes: chains from the teacher beyond the transition, noise 0.01, two seeds; empirical risk: noise 0.002 to "
        "0.03, four seeds (replica symmetry is unstable for ReLU)",
        missing="several ratios K/d",
    ),
    Claim(
        "Units specialise at a number of samples proportional to the number of parameters.",
        "perezortiz2025generalization",
        "the overlap with the teacher's units vanishes below a transition in n/(Kd) and is large above it",
        "chains that start at the teacher lose it below the transition",
        (FIGURE,), _specialise,
        "d = 144, two seeds, noise 0.01; theory: 0.634 (ReLU) and 0.587 (|x|), continuous; 2.327 (erf), of first order",
        missing="several K and d, and chains long enough to forget their start",
    ),
    Claim(
        "Langevin dynamics and gradient descent, in regression and in classification, follow the theory.",
        "perezortiz2025generalization",
        "test losses of trained networks against the number of samples per weight lie on the theory lines",
        "too few training steps",
        (TRAINING,), _dynamics,
        "regression, erf, d = 100 with four units, ten seeds, 8,000 steps from an overlap of 0.7 with the teacher; "
        "Langevin: noise, "
        "penalty and temperature 0.05; descent: noise 0.008, penalty 0.005, without α = 6, where the theory misses the "
        "specialised "
        "solution",
        missing="networks that classify (their theory is `bayes_classifier`), several sizes, and random starts",
    ),
)  # fmt: skip
