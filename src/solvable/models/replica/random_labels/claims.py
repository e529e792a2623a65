"""Claims about perceptrons with random labels, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE, CLOUDS = "random-labels-collapse", "random-labels-clouds"


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


def _universal(stored: Stored) -> list[Measured]:
    runs, control, found = stored[f"{CLOUDS}.drawn"].isel(size=-1), stored[f"{CLOUDS}.control"], []
    for separation in runs.separation.values:
        here = runs.sel(separation=separation)
        gap = deviation(here.train_loss_simulated, here.train_loss_expected)
        found.append(
            Measured(f"relative deviation from one Gaussian, means of length {separation:g}", *gap, below=0.05)
        )
    line = stored[CLOUDS].train_loss_theory.interp(samples=3.0)
    told = mean_and_error(control.clouds.sel(samples=3.0) / float(line))
    return [*found, Measured("loss of labels that name the cloud over that of random ones, n/p = 3", *told, below=0.9)]


def _digits(stored: Stored) -> list[Measured]:
    found = []
    for part, words in (("pixels", "61 pixels"), ("tanh", "200 tanh features")):
        runs = stored[f"{FIGURE}.{part}"].isel(size=-1)
        for loss in runs.loss.values:
            gap = deviation(*(runs[f"train_loss_{kind}"].sel(loss=loss) for kind in ("simulated", "expected")))
            found.append(Measured(f"relative deviation of the training loss, {words}, {loss}", *gap, below=0.05))
    for part, words in (("patches", "patches of 8 × 8 pixels"), ("tumours", "30 measurements of tumours")):
        runs = stored[f"{CLOUDS}.{part}"].isel(size=-1)
        gap = deviation(runs.train_loss_simulated, runs.train_loss_expected)
        found.append(Measured(f"relative deviation of the training loss, {words}, logistic", *gap, below=0.05))
    control = stored[f"{CLOUDS}.control"].sel(samples=3.0)
    told = mean_and_error(control.digits / control.digits_random)
    return [
        *found,
        Measured("loss of true labels (even or odd digits) over that of random ones, n/p = 3", *told, below=0.9),
    ]


CLAIMS = (
    Claim(
        "With random labels, the minimal training loss on a large class of inputs, provably on clouds of equal covariance, is "
        "that of a single Gaussian with that covariance.",
        "gerace2024gaussian",
        "training losses on clouds and on one Gaussian lie on one curve, at any distance of the means",
        "labels that depend on the cloud",
        (CLOUDS,), _universal,
        "logistic loss, penalty 0.01, two clouds of one covariance, p = 160, 16 seeds, n/p from 1.5 to 6; control: means of "
        "length 3",
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
        (FIGURE, CLOUDS), _digits,
        "penalty 0.01; digits: pixels with n/p from 1.5 to 24, 40 seeds, and tanh features with n/p from 1.5 to 6, 12 "
        "seeds; patches "
        "of photographs and measurements of tumours: n/p from 1.5 to 12, 16 seeds",
    ),
)  # fmt: skip
