"""Claims about perceptrons with random labels, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE = "random-labels-collapse"
CLOUDS, DATA = "random-labels-clouds", "random-labels-data"


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


def _clouds(stored: Stored) -> list[Measured]:
    """Training losses on clouds beside the line of one Gaussian, with random labels and with labels that know the cloud."""
    runs, known = stored[CLOUDS].isel(size=-1), stored[f"{CLOUDS}.control"].train_loss
    found = []
    for separation in runs.separation.values:
        at = runs.sel(separation=separation)
        gap = deviation(at.train_loss_simulated, at.train_loss_expected)
        found.append(
            Measured(f"relative deviation from one Gaussian, means of length {separation:g}", *gap, below=0.05)
        )
    for loss in known.loss.values:
        over = known.sel(loss=loss, separation=4.0) / float(runs.train_loss_theory.sel(loss=loss, separation=4.0))
        words = f"loss over that of one Gaussian if labels know the cloud, means of length 4, {loss}"
        found.append(Measured(words, *mean_and_error(over), below=0.8))
    return found


def _digits(stored: Stored) -> list[Measured]:
    found = []
    for part, words in (("pixels", "61 pixels"), ("tanh", "200 tanh features")):
        runs = stored[f"{FIGURE}.{part}"].isel(size=-1)
        for loss in runs.loss.values:
            gap = deviation(*(runs[f"train_loss_{kind}"].sel(loss=loss) for kind in ("simulated", "expected")))
            found.append(Measured(f"relative deviation of the training loss, {words}, {loss}", *gap, below=0.05))
    others = stored[DATA]
    for name in others.data.values:
        for loss in others.loss.values:
            at = others.sel(data=name, loss=loss)
            random, true = (at.train_loss.sel(labels=labels) for labels in ("random", "true"))
            if name != "digits":
                gap = deviation(random, at.theory)
                found.append(Measured(f"relative deviation of the training loss, {name}, {loss}", *gap, below=0.05))
            over = mean_and_error(true.sel(samples=6.0) / float(at.theory.sel(samples=6.0)))
            found.append(Measured(f"loss with true labels over the line at n/p = 6, {name}, {loss}", *over, below=0.8))
    return found


CLAIMS = (
    Claim(
        "With random labels, the minimal training loss on a large class of inputs, provably on clouds of equal covariance, is "
        "that of a single Gaussian with that covariance.",
        "gerace2024gaussian",
        "training losses on clouds and on one Gaussian lie on one curve, at any distance of the means",
        "labels that depend on the cloud: the loss falls with the distance",
        (CLOUDS,), _clouds, "two clouds of equal shares and covariance, n/p = 3, penalty 0.05, p = 200, 24 seeds; three losses",
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
        (FIGURE, DATA), _digits, "penalty 0.01; digits: pixels with n/p from 1.5 to 24, 40 seeds, tanh features with "
        "n/p from 1.5 to "
        "6, 12 seeds; breast-cancer table (30 standardised columns) and 8 × 8 patches of a photograph: n/p from 1.5 "
        "to 12, 64 seeds",
        would_change="larger patches, or features of a trained network: 8 × 8 patches of a photograph have heavy "
        "tails and lie up to a seventh away from the line, digits within 2 %, the table within about "
        "5 %",
    ),
)  # fmt: skip
