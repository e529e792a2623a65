"""Claims about masked self-supervised regression, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PEAK, SPIKE = "masked-regression-peak", "masked-regression-spike"
CONTROLS, REGION = "masked-regression-controls", "masked-regression-region"


def _peak(stored: Stored) -> list[Measured]:
    theory, runs, ring = (stored[f"{PEAK}.{part}"] for part in ("theory", "experiment", "spins"))
    ridgeless = runs.test_loss_simulated.sel(penalty=0.0, size=600)
    near, far = (mean_and_error(ridgeless.sel(samples=n)) for n in (0.85, 0.35))
    found = [
        Measured(
            "test loss at n/d = 0.85 over that at 0.35, without penalty", near[0] / far[0], near[1] / far[0], above=1.5
        )
    ]
    for samples in (1.2, 4.0):
        decay = ring.bayes_loss_theory.sel(covariance="ring", samples=samples) / (1 - 1 / samples)
        ratio = ring.test_loss_simulated.sel(covariance="ring", samples=samples, size=600) / decay
        found.append(
            Measured(f"test loss over v/(1 − d/n) at n/d = {samples:g}", *mean_and_error(ratio), above=0.95, below=1.05)
        )
    best = np.diff(theory.best_loss)
    return [*found, Measured("largest rise of the loss with n/d at the best penalty", float(best.max()), below=0.0)]


def _inherent_noise(stored: Stored) -> list[Measured]:
    """Beyond n = d the loss is the conditional variance v over 1 − d/n: 6v at n = 1.2 d, whatever the covariance."""
    from .model import MaskedRegression

    chain, glass, found = stored[f"{PEAK}.experiment"].sel(penalty=0.0), stored[f"{PEAK}.spins"], []
    for name, runs in (("chain", chain), *((c, glass.sel(covariance=c)) for c in ("ring", "paramagnet"))):
        here = runs.sel(samples=1.2, size=600)
        ratio = mean_and_error(here.test_loss_simulated / here.bayes_loss_expected)
        found.append(Measured(f"test loss over v at n/d = 1.2, {name} (law: 6)", *ratio, above=5.7, below=6.3))
    free, tied = MaskedRegression(correlation=np.array([0.0, 0.99]), samples=1.2, penalty=0.0).theory().test_loss
    found.append(
        Measured(
            "test loss of a chain of correlation 0.99 (v = 0.01) over that of independent coordinates, theory",
            float(tied / free),
            below=0.05,
        )
    )
    # without conditional variance the loss falls throughout and is zero once there are as many samples as degrees of freedom
    loss = stored[f"{CONTROLS}.tied"].test_loss.mean("seed")
    early, late = loss.sel(samples=slice(None, 0.5)), loss.sel(samples=slice(0.54, None))
    taught = stored[f"{CONTROLS}.supervised"].test_loss.mean("seed")
    clean, noisy = taught.sel(noise=0.0), taught.sel(noise=0.5)
    words = "largest rise of the loss with n/d"
    return [
        *found,
        Measured(f"{words}, coordinates that are functions of others", float(early.diff("samples").max()), below=0.0),
        Measured("loss at n/d ≥ 0.55 over that at 0.2, the same", float(late.max() / loss[0]), below=1e-3),
        Measured(f"{words}, supervised regression without noise", float(clean.diff("samples").max()), below=1e-6),
        Measured("test loss at n/d = 0.9 over that at 0.2, supervised regression with noise",
                 float(noisy.sel(samples=0.9, method="nearest") / noisy[0]), above=2.0),
    ]  # fmt: skip


def _sequences(stored: Stored) -> list[Measured]:
    """Loss on sequences over that on Gaussians of their covariance: warm ones at every n/d, cold ones where they differ most."""
    table, found = stored[f"{CONTROLS}.sequences"].test_loss, []
    for law in table.law.values:
        ratios = table.sel(law=law, data="sequences") / table.sel(law=law, data="Gaussian")
        each = [(float(r.samples), mean_and_error(r)) for r in ratios.transpose("samples", "seed")]
        if str(law).endswith(("β = 2", "β = 4")):
            far = max((r for _, r in each), key=lambda r: abs(r[0] - 1))
            words = f"largest distance from 1 of the loss over that of Gaussians, {law} (cold control)"
            found.append(Measured(words, abs(far[0] - 1), far[1], above=0.05))
        else:
            found += [
                Measured(f"loss over that of Gaussians, n/d = {n:g}, {law}", *r, above=0.95, below=1.05)
                for n, r in each
            ]
    return found


def _limits(stored: Stored) -> list[Measured]:
    """Largest relative deviation of the losses from theory over penalties and samples, at the largest size."""
    runs, found = stored[f"{PEAK}.experiment"].sel(size=600), []
    for name in ("test_loss", "train_loss"):
        expected = runs[f"{name}_expected"]
        there = expected > 1e-6 * expected.max()
        gaps = np.abs(runs[f"{name}_simulated"].mean("seed") / expected - 1).where(there)
        found.append(
            Measured(f"largest relative deviation of the {name.replace('_', ' ')}", float(gaps.max()), below=0.05)
        )
    return found


def _spectrum(stored: Stored) -> list[Measured]:
    runs = stored[f"{SPIKE}.spectrum"].isel(spike=0, size=0)
    moved = 0.5 * np.abs(runs.spectrum_simulated.mean("seed") - runs.spectrum_expected).sum("eigenvalue")
    return [Measured("mass of the predictor's spectrum that deviates from the density", float(moved), below=0.02)]


def _overlap(stored: Stored, variances: str, spike: float, name: str = "overlap_left") -> tuple[float, float]:
    runs = stored[f"{SPIKE}.experiment"].isel(size=0)
    return mean_and_error(runs[f"{name}_simulated"].sel(variances=variances, spike=spike))


def _transition(stored: Stored) -> list[Measured]:
    below, above = _overlap(stored, "equal", 0.3), _overlap(stored, "equal", 1.5)
    runs = stored[f"{SPIKE}.spectrum"].isel(spike=0, size=0)
    outlier = mean_and_error(runs.outlier_simulated - runs.edge_simulated)
    return [
        Measured("squared overlap below the threshold (spike 0.3, threshold 0.707)", *below, below=0.05),
        Measured("squared overlap above it (spike 1.5; theory 0.583)", *above, above=0.5),
        Measured("distance of the outlier from the edge of the bulk", *outlier, above=0.0),
    ]


def _region(stored: Stored) -> list[Measured]:
    """Where masked learning is ahead of PCA in squared overlap: by theory, and by experiment at some points."""
    gain, runs = stored[f"{REGION}.theory"].gain, stored[f"{REGION}.experiment"].isel(size=0)
    seen, expected = (
        (runs[f"overlap_left_{kind}"] - runs[f"pca_overlap_{kind}"]).sel(variances="two-level")
        for kind in ("simulated", "expected")
    )
    clear = np.abs(expected) > 0.1
    agree = np.sign(seen.mean("seed")) == np.sign(expected)
    lead = float((gain.sel(variances="two-level") > 0.02).mean())
    words = "share of the region 0.25 < n/d < 16, 0 < spike < 6 in which it is ahead by 0.02, unequal noise (theory)"
    return [
        Measured(words, lead, above=0.25),
        Measured("share of measured points with the predicted sign, of those with a predicted difference above 0.1",
                 float(agree.where(clear).mean()), above=0.95),
        Measured("the same share of the region with equal noise (theory)",
                 float((gain.sel(variances="equal") > 0.02).mean()), below=0.01),
    ]  # fmt: skip


def _beats(stored: Stored) -> list[Measured]:
    def difference(variances: str) -> tuple[float, float]:
        masked, pca = (_overlap(stored, variances, 2.2, name) for name in ("overlap_left", "pca_overlap"))
        return masked[0] - pca[0], float(np.hypot(masked[1], pca[1]))

    lines = stored[f"{SPIKE}.theory"].sel(variances="two-level").isel(spike=0)
    return [
        Measured(
            "threshold over PCA's, unequal noise (theory)",
            float(lines.threshold_theory / lines.pca_threshold_theory),
            below=1.0,
        ),
        Measured("squared overlap minus PCA's, unequal noise (spike 2.2)", *difference("two-level"), above=0.3),
        Measured("the same with equal noise, where both coincide", *difference("equal"), above=-0.03, below=0.03),
    ]


CLAIMS = (
    Claim(
        "Training and test error of the joint masked predictor have explicit limits for any covariance and penalty.",
        "wortsman2026random",
        "both losses against n/d lie on the theory lines",
        "ridge regression row by row gives the same numbers",
        (PEAK,), _limits, "d = 600, 12 seeds, penalties 0, 0.01 and 0.1, n/d from 0.35 to 7", seconds=120,
    ),
    Claim(
        "Masked learning has an interpolation peak although there are no labels.",
        "gerace2024transformers",
        "without penalty the test loss rises towards n = d and then decays as v/(1 − d/n), with the conditional variance v; "
        "with the best penalty it decreases throughout",
        "the best penalty: monotone",
        (PEAK,), _peak, "d = 600, 12 seeds", seconds=120,
    ),
    Claim(
        "The peak is due to noise inherent in the data, whereas supervised regression needs noisy labels.",
        "gerace2024transformers",
        "its amplitude is proportional to the mean conditional variance v of a coordinate given the others",
        "coordinates that are functions of the others, and regression on a teacher without noise: no peak",
        (PEAK, CONTROLS), _inherent_noise,
        "d = 600, 12 seeds, three covariances; a strongly correlated chain in theory; controls: d = 60, 8 seeds, half as many "
        "degrees of freedom as coordinates, and a linear teacher with and without label noise",
    ),
    Claim(
        "Gaussians with the covariance of the sequences describe spins and Potts sequences qualitatively.",
        "gerace2024transformers",
        "learning curves of both agree to a few per cent away from the peak",
        "colder spins, where the covariance is not sufficient",
        (CONTROLS,), _sequences,
        "glassy couplings, 40 coordinates (spins, or three colours on the corners of a triangle), penalty 0.01, 48 seeds; cold: "
        "β = 2 and 4, after 64 sweeps from random sequences, which have not reached equilibrium",
        would_change="some hundred seeds for three colours near the peak, n/d = 1.3, where losses are 3 ± 2 % above those of "
        "Gaussians, and for cold spins, which deviate by 9 ± 3 %",
    ),
    Claim(
        "The spectrum of the predictor also has an explicit limit.",
        "wortsman2026random",
        "the histogram of eigenvalues matches the density",
        "entries of every column permuted: the bulk of uncorrelated noise",
        (SPIKE,), _spectrum, "d = 800, ten seeds, spike 1.5, penalty 0.3", seconds=60,
    ),
    Claim(
        "A hidden direction appears in the predictor at a threshold of the Baik–Ben Arous–Péché type.",
        "wortsman2026random",
        "the squared overlap vanishes below the threshold and follows the curve above it; an eigenvalue leaves the bulk",
        "spikes below the threshold",
        (SPIKE,), _transition, "d = 800, ten seeds", seconds=60,
    ),
    Claim(
        "In structured regimes masked learning beats PCA.",
        "wortsman2026random",
        "its threshold is below PCA's, and its overlap is above",
        "equal variances: both coincide",
        (SPIKE, REGION), lambda stored: [*_beats(stored), *_region(stored)],
        "d = 800, ten seeds, two samples per coordinate; region: d = 200, six seeds, 0.5 to 8 samples per coordinate; a quarter "
        "of the coordinates noisy",
        missing="the authors' own regime",
    ),
)  # fmt: skip
