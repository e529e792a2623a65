"""Claims about perceptrons with random labels, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE = "random-labels-collapse"


def _apart(stored: Stored, penalty: float, samples: float, inputs: str) -> tuple[float, float]:
    """Training loss on these inputs minus that on isotropic ones, relative to the latter."""
    losses = stored[f"{FIGURE}.experiment"].isel(size=-1).train_loss_simulated.sel(penalty=penalty, samples=samples)
    (other, spread), (plain, noise) = (mean_and_error(losses.sel(inputs=name)) for name in (inputs, "isotropic"))
    return other / plain - 1, (spread**2 + noise**2) ** 0.5 / plain


def _collapse(stored: Stored) -> list[Measured]:
    lines = stored[FIGURE].train_loss_theory.sel(penalty=0.0)
    spread = float((lines.max("inputs") - lines.min("inputs")).max())
    words = "training loss of the {0} spectrum over that of the isotropic one, minus 1, at n/p = {1:g}, {2}"
    return [
        Measured("largest spread of the losses over spectra, without penalty (theory)", spread, below=1e-3),
        *(
            Measured(
                words.format(inputs, n, "without penalty"), *_apart(stored, 0.0, n, inputs), above=-0.05, below=0.05
            )
            for inputs in ("ramp", "power-law")
            for n in (3.0, 5.0, 8.0)
        ),
        Measured(words.format("power-law", 1.0, "penalty 0.1"), *_apart(stored, 0.1, 1.0, "power-law"), above=0.05),
    ]


def _digits(stored: Stored) -> list[Measured]:
    found = []
    for part, words in (("pixels", "61 pixels"), ("tanh", "200 tanh features")):
        runs = stored[f"{FIGURE}.{part}"].isel(size=-1)
        for loss in runs.loss.values:
            gap = deviation(*(runs[f"train_loss_{kind}"].sel(loss=loss) for kind in ("simulated", "expected")))
            found.append(Measured(f"relative deviation of the training loss, {words}, {loss}", *gap, below=0.05))
    return found


CLAIMS = (
    Claim(
        "With random labels, the minimal training loss on a large class of inputs, provably on clouds of equal covariance, is "
        "that of a single Gaussian with that covariance.",
        "gerace2024gaussian",
        "training losses on clouds and on one Gaussian lie on one curve, at any distance of the means",
        "labels that depend on the cloud",
        missing="stored runs on clouds at several distances (`solvable study random-labels inputs=clouds` measures them), and "
        "the control",
    ),
    Claim(
        "Without a penalty even the covariance drops out.",
        "gerace2024gaussian",
        "curves of different spectra collapse as the penalty vanishes",
        "penalty 0.1: the curves stay apart",
        (FIGURE,), _collapse, "logistic loss, p = 160, 12 seeds; above capacity, n/p from 3 to 8",
    ),
    Claim(
        "Real data belong to that class.",
        "gerace2024gaussian",
        "training losses on real inputs with random labels lie on the line of Gaussians with the same covariance",
        "true labels",
        (FIGURE,), _digits, "handwritten digits, penalty 0.01; pixels: n/p from 1.5 to 24, 40 seeds; tanh features: n/p from "
        "1.5 to 6, 12 seeds",
        missing="other data sets, and true labels as the control",
    ),
)  # fmt: skip
