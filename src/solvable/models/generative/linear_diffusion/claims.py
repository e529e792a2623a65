"""Claims about linear diffusion models, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

TRANSITION, REGULARISATION = "linear-diffusion-transition", "linear-diffusion-regularisation"
PAPER = "merger2025generalization"


def _memorised(stored: Stored) -> list[Measured]:
    theory, runs = stored[f"{TRANSITION}.theory"], stored[f"{TRANSITION}.runs"].isel(size=0)
    found = []
    for name in ("white", "power-law"):
        here = runs.sel(covariance=name)
        floor = float(theory.bayes_loss_theory.sel(covariance=name)[0])
        for samples, low, high in ((0.5, 1.0, np.inf), (20.0, -np.inf, 0.15)):
            gap = (here.test_loss_simulated - here.train_loss_simulated).sel(samples=samples) / floor
            what = f"test minus training error over the best denoiser's at N/d = {samples:g}, {name}"
            found.append(Measured(what, *mean_and_error(gap), above=low, below=high))
        for which in ("reverse_kl", "forward_kl"):
            divergence = here[f"{which}_simulated"]
            lost = float(np.isinf(divergence.sel(samples=0.85)).mean())
            what = which.replace("_kl", " divergence")
            found.append(Measured(f"fraction of models with infinite {what} at N/d = 0.85, {name}", lost, above=0.99))
            spread = mean_and_error(divergence.sel(samples=1.5))
            found.append(Measured(f"{what} at N/d = 1.5, {name}", *spread, below=2.0))
    return found


def _regularised(stored: Stored) -> list[Measured]:
    decay, runs = stored[f"{REGULARISATION}.decay"], stored[f"{REGULARISATION}.decay_runs"].isel(size=0, samples=0)
    found = []
    for name, best in (("white", 2 / 3), ("power-law", 0.3)):
        lines = decay.reverse_kl_theory.sel(covariance=name)
        few = lines.sel(samples=0.5)
        place = float(few.penalty[int(np.argmin(few.values))])
        found.append(Measured(f"best weight decay at N/d = 0.5, {name} (theory)", place, above=0.05, below=1.0))
        measured = runs.reverse_kl_simulated.sel(covariance=name)
        for other in (0.02, 6.0):
            gain = mean_and_error(measured.sel(penalty=other) - measured.sel(penalty=best, method="nearest"))
            what = f"divergence at weight decay {other:g} minus that at {best:.2g}, N/d = 0.5, {name}"
            found.append(Measured(what, *gain, above=0.0))
        many = lines.sel(samples=50.0)
        left = float(1 - many.min() / many.sel(penalty=0.0))
        found.append(Measured(f"relative gain of the best weight decay at N/d = 50, {name} (theory)", left, below=0.1))
    stopped, runs = (
        stored[f"{REGULARISATION}.stopped"],
        stored[f"{REGULARISATION}.stopped_runs"].isel(size=0, samples=0),
    )
    loss = runs.test_loss_simulated
    early = mean_and_error(loss.sel(time=2.0) / loss.sel(time=500.0))
    found.append(Measured("test error stopped at τ = 2 over that at τ = 500, N/d = 0.5", *early, below=0.5))
    few = stopped.test_loss_theory.sel(samples=0.5)
    rise = float(few[0] - few.min())
    found.append(Measured("test error stopped at τ = 0.3 minus the lowest, N/d = 0.5 (theory)", rise, above=0.0))
    for other in (0.5, 500.0):
        gain = mean_and_error(runs.reverse_kl_simulated.sel(time=other) - runs.reverse_kl_simulated.sel(time=2.0))
        what = f"divergence of samples stopped at τ = {other:g} minus that at τ = 2, N/d = 0.5"
        found.append(Measured(what, *gain, above=0.0))
    many = stopped.test_loss_theory.sel(samples=50.0)
    late = float(many[-1] / many.min())
    found.append(Measured("test error at the end over the lowest at N/d = 50 (theory)", late, below=1.03))
    return found


def _any_data(stored: Stored) -> list[Measured]:
    runs, penalised = stored[f"{TRANSITION}.runs"].isel(size=0), stored[f"{TRANSITION}.penalised"]
    found = []
    for which, high in (("reverse_kl", 1.1), ("forward_kl", 1.2)):
        many = runs[f"{which}_simulated"].sel(samples=20.0)
        words = which.replace("_kl", " divergence")
        for name in ("white", "power-law"):
            scaled = mean_and_error(80 * many.sel(covariance=name))
            found.append(Measured(f"{words} over d/(4N) at N/d = 20, {name}", *scaled, above=0.95, below=high))
        (white, one), (power, two) = (mean_and_error(many.sel(covariance=name)) for name in ("white", "power-law"))
        error = power / white * float(np.hypot(one / white, two / power))
        found.append(Measured(f"{words}, power law over white", power / white, error, above=0.97, below=1.03))
        shown = penalised[f"{which}_theory"].sel(samples=20.0)
        ratio = float(shown.sel(covariance="power-law") / shown.sel(covariance="white"))
        found.append(Measured(f"the same with weight decay 0.1 (theory), {words}", ratio, above=1.2))
    return found


CLAIMS = (
    Claim(
        "Memorisation turns into generalisation when there are about as many data as dimensions.",
        PAPER,
        "the gap between test and training error opens, and both divergences become infinite, below N = d",
        "many more data than dimensions: no gap",
        (TRANSITION,), _memorised, "d = 100, 16 seeds, ᾱ = 0.9, white and power-law data", seconds=60,
    ),
    Claim(
        "With fewer data than dimensions, weight decay and early stopping prevent overfitting.",
        PAPER,
        "divergence and test error are lowest at a positive weight decay and at a finite time",
        "many more data than dimensions: next to nothing is gained",
        (REGULARISATION,), _regularised,
        "d = 100, 16 seeds; N = d/2 simulated, N = 50 d in theory. For white data the best weight decay is 1/(1 + N/d)",
        seconds=120,
    ),
    Claim(
        "With more data than dimensions, samples approach the data's law as d/N, whatever the data.",
        PAPER,
        "both divergences per dimension tend to d/(4N), with one curve for white and power-law data",
        "with weight decay the spectrum of the data shows",
        (TRANSITION,), _any_data, "d = 100, 16 seeds, N = 20 d", seconds=60,
    ),
)  # fmt: skip
