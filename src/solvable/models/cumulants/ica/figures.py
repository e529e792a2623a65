"""Three scaling laws of independent component analysis in one figure, and FastICA's search, also on images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.training.reduced import Stream
from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis

from .._hitting import explosions, hitting_times
from .contrasts import one_step, smoothed_slope
from .fastica import excess_kurtosis, image_patches, iterate, spiked
from .model import ICA

SNR, LEVEL = 15.0, 0.5
SLOW, SMOOTH = 0.3, 0.2  # learning rates: δ = 0.3/d of plain descent, and δ of smoothed descent
QUARTIC = (0.15, 0.3, 0.6, 1.0)  # δd of descent on the smoothed s⁴/4; the largest that can escape is 1.17


def quartic_stream(size: int, rate: float) -> Stream:
    """Descent on the smoothed s⁴/4, at a rate that gives the drift of smoothed descent on He_4."""
    step = np.float32(rate * (1 + size**0.5) ** 2 / size**1.5)
    radius = jnp.asarray(size**0.25, jnp.float32)
    return Stream(
        ICA(snr=SNR).components,
        lambda a, square, _: -step * smoothed_slope(a, square, radius, size, "kurtosis"),
        size,
        1,
    )


def hits(quick: bool) -> Any:
    """Samples to |α| > 1/2 from 1/√d: plain descent, smoothed descent, and smoothed descent on s⁴/4 at several rates."""
    import xarray as xr

    lanes = 64 if quick else 256
    plain, smooth, quartic = ((12, 24), (16, 32), (16,)) if quick else (
        (12, 16, 24, 32, 48, 64, 96), (16, 32, 64, 128, 256, 512), (16, 32, 64))  # fmt: skip
    slow = [
        hitting_times(ICA(learner="descent", rate=SLOW / d, snr=SNR).stream(d), lanes, 20 * d**3, level=LEVEL)
        for d in plain
    ]
    model = ICA(learner="smoothed", rate=SMOOTH, snr=SNR)
    fast = [hitting_times(model.stream(d), lanes, 20 * d**2 * np.log(d), level=LEVEL) for d in smooth]
    null = [[hitting_times(quartic_stream(d, x / d), 64, 8 * d**3, level=LEVEL) for x in QUARTIC] for d in quartic]
    limit = explosions(SLOW, 2 * (SNR / (1 + SNR)) ** 2, 15.0, 500 if quick else 4000, 60.0)
    return xr.Dataset(
        {"slow": (("slow_size", "lane"), slow), "smooth": (("smooth_size", "lane"), fast),
         "quartic": (("quartic_size", "rate", "few_lanes"), null), "explosion": ("path", limit)},
        {"slow_size": list(plain), "smooth_size": list(smooth), "quartic_size": list(quartic), "rate": list(QUARTIC)},
    )  # fmt: skip


def one_steps(quick: bool) -> Any:
    """α_1² of FastICA from α_0 = d^{-1/2}, by n/d⁴; also for a Gaussian direction, at n = d⁴."""
    import xarray as xr

    ratio = jnp.asarray(SNR / (1 + SNR))
    relative = np.geomspace(1e-3, 1e2, 61)
    dims = (16, 32) if quick else (12, 16, 24)
    step = jax.vmap(lambda x, d: one_step("kurtosis", ratio, d**-0.5, x * d**3, 48, d), (0, None))
    curves = [np.sqrt(step(jnp.asarray(relative), float(d))) for d in dims]
    limit = np.sqrt(step(jnp.asarray(relative), 1e7))
    few = np.geomspace(1e-2, 10.0, 5 if quick else 7)
    seeds = 8 if quick else 24

    def runs(d: int, x: float, snr: float) -> np.ndarray:
        model = ICA(snr=snr, start=d**-0.5, samples=float(max(1.0, x * d**3)))
        keys = jnp.stack([model.key(d, s) for s in range(seeds)])
        return np.asarray(simulate_batch(model, {}, keys, d, padded={"samples": 1})["squared_overlap"])[:, 1]

    return xr.Dataset(
        {"theory": (("size", "ratio"), curves), "limit": ("ratio", limit),
         "runs": (("size", "few", "seed"), [[runs(d, x, SNR) for x in few] for d in dims]),
         "null": (("size", "seed"), [runs(d, 1.0, 0.0) for d in dims])},
        {"size": list(dims), "ratio": relative, "few": few},
    )  # fmt: skip


def scaling(quick: bool) -> dict[str, Any]:
    return {"": one_steps(quick), "hits": hits(quick)}


def draw_scaling(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    one, times = data[""], data["hits"]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    axes[0].plot(one.ratio, one.limit, color=COLOURS[6], label="d → ∞")
    for i, d in enumerate(one["size"].values):
        axes[0].plot(one.ratio, one.theory.sel(size=d), "--", color=COLOURS[i], linewidth=1)
        square = one.runs.sel(size=d)
        mean, error = square.mean("seed"), square.std("seed", ddof=1) / np.sqrt(square.sizes["seed"])
        axes[0].errorbar(one.few, np.sqrt(mean), error / (2 * np.sqrt(mean)), fmt=MARKERS[i], color=COLOURS[i], markersize=4,
                         label=f"d = {int(d)}")  # fmt: skip
    axes[0].set(
        xlabel=label("samples", "n/d^4"),
        ylabel="root-mean-square overlap after one step",
        xscale="log",
        ylim=(0, 1.02),
    )
    axes[0].set_title("FastICA in one step: n ~ d⁴")
    axes[0].legend()

    def quantiles(axis: Any, d: Any, times: Any, unit: Any, colour: str, words: str, over: str = "lane") -> None:
        low, middle, high = (np.quantile(times, q, axis=times.get_axis_num(over)) / unit for q in (0.25, 0.5, 0.75))
        axis.errorbar(d, middle, [middle - low, high - middle], fmt="o", color=colour, label=words)

    d = times.slow_size.values
    quantiles(axes[1], d, times.slow, d**3.0, COLOURS[0], "median and quartiles")
    low, middle, high = np.quantile(times.explosion, [0.25, 0.5, 0.75])
    axes[1].axhspan(low, high, color=COLOURS[0], alpha=0.12)
    axes[1].axhline(middle, color=COLOURS[0], linestyle="--", linewidth=1, label="explosion of the limiting diffusion")
    axes[1].set(ylabel=label("samples", "n/d^3"), ylim=(0, 2.2 * high))
    axes[1].set_title("plain descent: n ~ d³")
    d = times.smooth_size.values
    quantiles(axes[2], d, times.smooth, d**2 * np.log(d), COLOURS[2], "He₄, median and quartiles")
    growth = float(ICA(learner="smoothed", rate=SMOOTH, snr=SNR).theory(only=("growth",)).growth)
    axes[2].axhline(
        0.25 / growth, color=COLOURS[2], linestyle="--", linewidth=1, label="slope of the linear law, 1/(4κ)"
    )
    d = times.quartic_size.values
    best = times.quartic.isel(rate=times.quartic.median("few_lanes").argmin("rate"))
    quantiles(axes[2], d, best, d**2 * np.log(d), COLOURS[1], "s⁴/4 at its best rate", "few_lanes")
    axes[2].plot(d, 0.1 * d, ":", color=COLOURS[1], linewidth=1, label="n ~ d³ log d")
    axes[2].set(ylabel=label("samples", r"n/(d^2\log d)"), yscale="log", ylim=(0.2, 200))
    axes[2].set_title("smoothed descent: n ~ d² log d with He₄")
    for axis in axes[1:]:
        axis.set(xlabel=label("dimension", "d"))
        log_axis(axis.xaxis)
        axis.legend()
    figure.suptitle("How many samples find one non-Gaussian direction (β = 15, from an overlap 1/√d)", fontsize=11)
    return figure


SIDE = 8
KINDS = ("images", "equal contrast", "phases randomised", "spiked cumulant")


def patches(kind: str) -> Any:
    """40,000 whitened image patches, or as many samples of a spiked cumulant in as many dimensions."""
    if kind == "spiked cumulant":
        return spiked(jax.random.key(0), 40_000, SIDE**2 - 1, SNR)
    how = {"phases": kind == "phases randomised", "contrast": kind == "equal contrast"}
    return jnp.asarray(image_patches(SIDE, 40_000, **how))


def search(quick: bool) -> dict[str, Any]:
    import xarray as xr

    d, sets, steps = 24, 4 if quick else 16, 26
    exponents, paths = [2.0, 2.5, 3.0] if quick else [2.0, 2.5, 3.0, 3.5], []
    for theta in exponents:
        rows = []
        for seed in range(sets):
            one, two = jax.random.split(jax.random.key(100 + seed))
            starts = jax.random.normal(two, (16, d), jnp.float32)
            rows.append(np.abs(np.asarray(iterate(spiked(one, round(d**theta), d, SNR), starts, steps))[:, :, 0]))
        paths.append(np.concatenate(rows, axis=1))
    numbers, shapes = [1000, 4000, 16_000], []
    for kind in KINDS:
        x = patches(kind)
        starts = jax.random.normal(jax.random.key(0), (64, x.shape[1]), jnp.float32)
        # Measured on patches that FastICA has not seen.
        shapes.append([np.asarray(excess_kurtosis(x[20_000:], iterate(x[:n], starts, steps))) for n in numbers])
    return {
        "": xr.Dataset(
            {
                "overlap": (("theta", "step", "start"), paths),
                "kurtosis": (("kind", "number", "step", "image_start"), shapes),
            },
            {"theta": exponents, "step": np.arange(steps + 1), "kind": list(KINDS), "number": numbers},
        )
    }


def draw_search(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    three = runs.overlap.sel(theta=3.0)
    for i in range(12):
        axes[0].plot(runs.step, three[:, i], color=COLOURS[i % 6], linewidth=0.9)
    axes[0].set(xlabel="steps of FastICA", ylabel="overlap with the hidden direction", ylim=(0, 1.02))
    axes[0].set_title("n = d³, d = 24: a search, then a jump")
    found = (runs.overlap.isel(step=-1) > 0.8).mean("start")
    axes[1].plot(runs.theta, found, "o-", color=COLOURS[0])
    axes[1].set(
        xlabel=label("exponent", r"\log n/\log d"),
        ylabel="fraction of starts that find it in 26 steps",
        ylim=(-0.02, 1.02),
    )
    axes[1].set_title("repeated on the same data: success from about d³")
    for i, kind in enumerate(runs.kind.values):
        for j, n in enumerate(runs.number.values):
            at = np.abs(runs.kurtosis.sel(kind=kind, number=n)).median("image_start")
            axes[2].plot(runs.step, at, MARKERS[j] + "-", color=COLOURS[i], markersize=3, linewidth=0.9,
                         label=str(kind) if j == 0 else None)  # fmt: skip
    axes[2].set(xlabel="steps of FastICA", ylabel="|excess kurtosis|, fresh samples", yscale="log")
    numbers = ", ".join(f"{int(n):,}" for n in runs.number.values)
    axes[2].set_title(f"white {SIDE} × {SIDE} patches, n = {numbers} (●, ■, ▲)", fontsize=9)
    axes[2].legend(fontsize=7)
    figure.suptitle("FastICA on one data set: a search and a jump; images are non-Gaussian from the start", fontsize=11)
    return figure


RECIPES = {
    "ica-scaling": Recipe(
        scaling,
        draw_scaling,
        sentence="One non-Gaussian direction takes d⁴ samples in one FastICA step, d³ by descent, d² log d by smoothed descent.",
    ),
    "ica-search": Recipe(
        search,
        draw_search,
        sentence="With d³ samples or more, FastICA on one data set searches and then jumps; on images it hardly needs to search.",
    ),
}
