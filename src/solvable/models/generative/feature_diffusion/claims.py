"""Claims about diffusion models that learn mixtures, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

from .images import ARMS, clocks_of

IMAGES = "feature-diffusion-images"
TRAINING, IMBALANCE, SPECIATION = (f"feature-diffusion-{name}" for name in ("training", "imbalance", "speciation"))
UNEQUAL = ("unequal, share 0.5", "unequal, share 0.9")
CLOCKS = {"learning_time": "half-way down", "memorisation_time": "half of the gap", "best_time": "lowest test loss"}


def _spectrum(stored: Stored) -> list[Measured]:
    runs, found = stored[TRAINING].isel(size=-1), []
    for name, words in (("test_loss", "test loss"), ("train_loss", "train loss"), ("learning_time", "time of learning"),
                        ("memorisation_time", "time of memorisation")):  # fmt: skip
        at = runs.sel(arm=list(UNEQUAL))
        gap = deviation(at[f"{name}_simulated"], at[f"{name}_expected"])
        found.append(Measured(f"relative deviation of the {words} of both classes", *gap, below=0.05))
    for share in (0.5, 0.9):
        at = runs.sel(arm=f"equal, share {share:g}").train_loss_simulated
        apart = mean_and_error((at.isel(group=1) / at.isel(group=0) - 1).mean("time"))
        what = f"relative difference of train losses of classes of equal variance, share {share:g}"
        found.append(Measured(what, *apart, above=-0.02, below=0.02))
        times = runs.sel(arm=f"unequal, share {share:g}").memorisation_time_simulated
        ratio = mean_and_error(times.isel(group=0) / times.isel(group=1))
        found.append(
            Measured(f"ratio of the times of memorisation at unequal variances, share {share:g}", *ratio, above=1.0)
        )
    return found


def _growth(stored: Stored) -> list[Measured]:
    growth, runs = (
        stored[f"{TRAINING}.growth"].memorisation_time_theory,
        stored[f"{TRAINING}.growth_runs"].isel(size=-1),
    )
    found = []
    for c in (0, 1):
        at = runs.memorisation_time_simulated.isel(group=c)
        ratio = mean_and_error(at.sel(samples=4.0).values / at.sel(samples=1.0).values)
        found.append(
            Measured(f"factor from n = d to 4d, p = 8d, class {c + 1}, networks", *ratio, above=4 * 0.8, below=4 * 1.25)
        )
    for width in growth.width.values:
        for c in (0, 1):
            at = growth.sel(width=width).isel(group=c).dropna("samples")
            slope = np.gradient(np.log(at.values), np.log(at.samples.values))
            # where memorisation is possible: fewer samples than a quarter of the features, but more than dimensions
            there = (at.samples.values >= 1) & (at.samples.values <= width / 4)
            found.append(Measured(f"mean exponent of n from d to p/4, p = {width:g}d, class {c + 1} (theory)",
                                  float(slope[there].mean()), above=0.8, below=1.25))  # fmt: skip
    return found


def _variance(stored: Stored) -> list[Measured]:
    runs, centres, found = stored[f"{IMBALANCE}.runs"].isel(size=-1), stored[f"{IMBALANCE}.centres"], []
    share = float(runs.share.values[np.argmin(np.abs(runs.share.values - 0.5))])
    for pair in runs.arm.values:
        for clock in ("learning_time", "memorisation_time"):
            at = runs[f"{clock}_simulated"].sel(arm=pair, share=share)
            ratio = mean_and_error(at.isel(group=0) / at.isel(group=1))
            what = f"time of the smaller over that of the larger variance, {CLOCKS[clock]}, {pair}, share {share:g}"
            found.append(Measured(what, *ratio, above=1.0))
    # the effect of centres, in units of the difference between the classes
    test = centres.test_loss
    between = abs(test.sel(offset=0.0).isel(group=1) - test.sel(offset=0.0).isel(group=0)).mean("seed")
    moved = (test.sel(offset=0.5) - test.sel(offset=0.0)).mean("group") / between
    for time in test.time.values:
        shift = mean_and_error(abs(moved.sel(time=time)))
        what = f"change of the test loss by centres at ±0.5√d over the difference of classes, time {time:g}"
        found.append(Measured(what, *shift, below=0.5))
    return found


def _reversal(stored: Stored) -> list[Measured]:
    lines, own, found = stored[IMBALANCE], stored[f"{IMBALANCE}.axes"], []
    for pair in lines.arm.values:
        for clock, words in CLOCKS.items():
            ratio = lines[f"{clock}_theory"].sel(arm=pair)
            ratio = ratio.isel(group=0) / ratio.isel(group=1)
            least = float(ratio.where(lines.share >= 0.5).min())
            found.append(
                Measured(f"smallest ratio of times over shares from 0.5, {words}, {pair} (theory)", least, below=1.0)
            )
    for clock, words in CLOCKS.items():
        # Class 1 has the larger variance here. Only an order that holds at equal shares can be reversed.
        even, rare = (
            mean_and_error(own[clock].sel(share=share).isel(group=1) / own[clock].sel(share=share).isel(group=0))
            for share in (0.5, 0.05)
        )
        if even[0] > 1:
            what = f"ratio of times for classes with their own axes, majority of 0.95, {words}, networks"
            found.append(Measured(what, *rare, below=1.0))
    return found


def _images(stored: Stored) -> list[Measured]:
    """Ratios of the times of the two classes of a convolutional network, the class of smaller variance over the other."""
    times, found = clocks_of(stored[IMAGES]), []
    for arm, (spreads, _) in ARMS.items():
        for clock in ("learning_time", "memorisation_time"):
            at = times[clock].sel(arm=arm)
            small, large = (1, 0) if spreads[0] > spreads[1] else (0, 1)
            ratio = mean_and_error(at.isel(group=small) / at.isel(group=large))
            bounds = {"above": 0.8, "below": 1.25} if spreads[0] == spreads[1] else {"above": 1.0}
            what = "first over second class" if spreads[0] == spreads[1] else "smaller over larger variance"
            found.append(Measured(f"ratio of times, {what}, {CLOCKS[clock]}, {arm}", *ratio, **bounds))
    return found


def _speciation(stored: Stored) -> list[Measured]:
    times, runs, three = stored[f"{SPECIATION}.times"], stored[f"{SPECIATION}.runs"], stored[f"{SPECIATION}.three"]
    half = float(times.speciation_time.sel(minority=0.5, method="nearest"))
    late = float(times.speciation_time.sel(minority=0.01, method="nearest"))
    probability = runs.class_probability_simulated
    gap = deviation(probability, runs.class_probability_expected)
    rarest = three.halfway.isel(rare=0)
    later = float(rarest.sel(kind="rare") - rarest.sel(kind="2/3"))
    alike = float(abs(three.halfway.isel(rare=-1).sel(kind="rare") - three.halfway.isel(rare=-1).mean("kind")))
    seen = (probability.isel(group=1) - (1 - runs.share)) / runs.share
    seen = seen.sel(noising_time=2.5, method="nearest")
    drop = mean_and_error(seen.isel(share=0) - seen.isel(share=3))
    return [
        Measured("relative deviation of sampled class probabilities", *gap, below=0.02),
        Measured("speciation time at a share of 0.01 minus that at 0.5 (theory)", late - half, below=-0.3),
        Measured("normalised probability of the minority at t = 2.5, share 0.5 minus share 0.01, samples", *drop, above=0.1),
        Measured("rare class minus largest of three, share 0.001 (quadrature)", later, below=-0.3),
        Measured("distance of the rare class from the mean of three when it has a share of 1/3", alike, below=0.1),
    ]  # fmt: skip


CLAIMS = (
    Claim(
        "The spectrum of the features' second moments contains the times at which each class is learnt and memorised.",
        "nicoletti2026interplay",
        "simulated losses and times of both classes lie on the theory, and classes of unequal variance have unequal times",
        "equal variances: the classes have the same curves at any shares",
        (TRAINING,), _spectrum, "p = 4d, n = 2d, t = 0.1, d = 100, 24 seeds, shares 0.5 and 0.9",
    ),
    Claim(
        "The time of memorisation is proportional to the number of samples.",
        "bonnaire2025diffusion",
        "an exponent of one, between 0.8 and 1.25, from n = d to n = p/4, and a factor of four from n = d to 4d",
        "a time that does not depend on n",
        (TRAINING,), _growth,
        "half of the final gap of test and train loss; t = 0.1, variances 0.5 and 2; theory at p = 8d, 32d and 128d, networks of "
        "d = 50, 6 seeds at p = 8d. Beyond n = p the time falls",
        would_change="another definition of the time, such as that of a fixed number of copied training points, or p ≫ n ≫ d",
    ),
    Claim(
        "Classes of larger variance are learnt and memorised first; centres matter less.",
        "nicoletti2026interplay",
        "times ordered by variance, and a change by centres below half of the difference between classes",
        "equal variances",
        (IMBALANCE,), _variance, "p = 4d, n = 2d, t = 0.1, d = 100, 5 seeds; centres at ±0.5√d on the diagonal",
    ),
    Claim(
        "Imbalance can reverse that order.",
        "nicoletti2026interplay",
        "at some share the class of smaller variance, in the majority, comes first",
        "the order stays at all shares",
        (IMBALANCE,), _reversal,
        "isotropic classes in the limit, shares of the smaller variance up to 0.98; classes of variance 2 and 1 on axes of their "
        "own, d = 80, n = 6d, t = 0.3, 4 seeds, by the definitions under which the larger variance is first at equal shares. "
        "(The time of the lowest test loss does change order there, but towards the rare class of larger variance.)",
        would_change="the definition of the times and the setting in which the order is reversed, which we do not know",
    ),
    Claim(
        "Strong imbalance delays the speciation of the minority.",
        "nicoletti2026interplay",
        "a rare class separates at a smaller diffusion time, later on the way back from noise",
        "equal shares; with two classes the normalised curve of the majority is delayed as well",
        (SPECIATION,), _speciation, "unit variances, squared distance of the centres 800, exact score",
    ),
    Claim(
        "Convolutional networks trained on images behave in the same way.",
        "nicoletti2026interplay",
        "loss curves of the classes of a small U-Net, ordered by variance",
        "classes of matched variance",
        figures=(IMAGES,), measure=_images,
        settings="U-Net of 8 channels on digits below and from five, 48 images, t = 0.1, 600 steps of Adam, 12 seeds",
        missing="larger networks and images; all diffusion times at once",
        would_change="more networks at equal shares, whose ratios half-way down lie anywhere from 0.5 to 4.7; classes of equal "
        "difficulty: at equal variances and unequal shares one of them is half learnt twice as late",
    ),
)  # fmt: skip
