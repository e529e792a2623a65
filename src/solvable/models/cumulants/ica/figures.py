"""Three scaling laws of independent component analysis in one picture; and FastICA's search, also on images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.training.reduced import reduced_hitting
from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis

from .contrasts import one_step
from .fastica import excess_kurtosis, image_patches, iterate, spiked
from .model import ICA

SNR, LEVEL = 15.0, 0.5
SLOW, SMOOTH = 0.3, 0.2  # learning rates: δ = 0.3/d of plain descent, and δ of smoothed descent


def hitting_times(model: ICA, size: int, lanes: int, most: float) -> np.ndarray:
    """Samples until |α| > 1/2 from α = d^{-1/2}, lane by lane; infinite where `most` were not enough."""
    start = jnp.full((1, lanes), size**-0.5, jnp.float32)
    find = jax.jit(
        lambda key: reduced_hitting(model.stream(size), key, start, lambda a: jnp.abs(a[0]) > LEVEL, int(most))
    )
    hit = find(jax.random.key(size))
    return np.where(hit.met, np.asarray(hit.steps, float), np.inf)


def explosions(rate: float, snr: float, paths: int, horizon: float, seed: int = 0) -> np.ndarray:
    """Times τ = n/d³ at which dA = (δ|ℓ_4|A³ - ½δ²VA)dτ + δ√V dB has exploded from A = 1: the limit of plain descent."""
    rng, ell, noise = np.random.default_rng(seed), 2 * (snr / (1 + snr)) ** 2, 15.0
    a, time, done = np.ones(paths), np.zeros(paths), np.zeros(paths, bool)
    while not done.all():
        step = 0.01 / (1 + rate * ell * a**2)
        drift = rate * ell * a**3 - 0.5 * rate**2 * noise * a
        moved = a + drift * step + rate * np.sqrt(noise * step) * rng.normal(size=paths)
        a, time = np.where(done, a, moved), np.where(done, time, time + step)
        done = done | (np.abs(a) > 30) | (time > horizon)
    return time


def scaling(quick: bool) -> dict[str, Any]:
    import xarray as xr

    lanes = 64 if quick else 256
    ratio = jnp.asarray(SNR / (1 + SNR))
    relative = np.geomspace(1e-3, 1e2, 61)
    dims = (16, 32) if quick else (12, 16, 24)
    step = jax.vmap(lambda x, d: one_step("kurtosis", ratio, d**-0.5, x * d**3, 48, d), (0, None))
    curves = [np.sqrt(step(jnp.asarray(relative), float(d))) for d in dims]
    limit = np.sqrt(step(jnp.asarray(relative), 1e7))
    few = np.geomspace(1e-2, 10.0, 5 if quick else 7)
    seeds, points = 8 if quick else 24, []
    for d in dims:
        row = []
        for x in few:
            model = ICA(snr=SNR, start=d**-0.5, samples=float(max(1.0, x * d**3)))
            keys = jnp.stack([model.key(d, s) for s in range(seeds)])
            row.append(np.asarray(simulate_batch(model, {}, keys, d, padded={"samples": 1})["squared_overlap"])[:, 1])
        points.append(row)
    slow_dims, smooth_dims = ((12, 24), (16, 32)) if quick else ((12, 16, 24, 32, 48), (16, 32, 64, 128, 256))
    slow = [hitting_times(ICA(learner="descent", rate=SLOW / d, snr=SNR), d, lanes, 60 * d**3) for d in slow_dims]
    smooth = [
        hitting_times(ICA(learner="smoothed", rate=SMOOTH, snr=SNR), d, lanes, 20 * d**2 * np.log(d))
        for d in smooth_dims
    ]
    return {
        "": xr.Dataset(
            {"theory": (("size", "ratio"), curves), "limit": ("ratio", limit), "runs": (("size", "few", "seed"), points)},
            {"size": list(dims), "ratio": relative, "few": few},
        ),
        "hits": xr.Dataset(
            {"slow": (("slow_size", "lane"), slow), "smooth": (("smooth_size", "lane"), smooth),
             "explosion": ("path", explosions(SLOW, SNR, 500 if quick else 4000, 60.0))},
            {"slow_size": list(slow_dims), "smooth_size": list(smooth_dims)}),
    }  # fmt: skip


def draw_scaling(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    one, hits = data[""], data["hits"]
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
        ylabel="overlap after one step, root mean square",
        xscale="log",
        ylim=(0, 1.02),
    )
    axes[0].set_title("FastICA in one step: n ~ d⁴")
    axes[0].legend()

    def quantiles(axis: Any, d: np.ndarray, times: Any, unit: np.ndarray, colour: str) -> None:
        low, middle, high = (times.quantile(q, "lane").values / unit for q in (0.25, 0.5, 0.75))
        axis.errorbar(d, middle, [middle - low, high - middle], fmt="o", color=colour, label="median and quartiles")

    d = hits.slow_size.values
    quantiles(axes[1], d, hits.slow, d**3.0, COLOURS[0])
    low, middle, high = np.quantile(hits.explosion, [0.25, 0.5, 0.75])
    axes[1].axhspan(low, high, color=COLOURS[0], alpha=0.12)
    axes[1].axhline(middle, color=COLOURS[0], linestyle="--", linewidth=1, label="explosion of the limiting diffusion")
    axes[1].set(ylabel=label("samples", "n/d^3"), ylim=(0, 2.2 * high))
    axes[1].set_title("plain descent: n ~ d³")
    d = hits.smooth_size.values
    quantiles(axes[2], d, hits.smooth, d**2 * np.log(d), COLOURS[2])
    growth = float(ICA(learner="smoothed", rate=SMOOTH, snr=SNR).theory(only=("growth",)).growth)
    axes[2].axhline(
        0.25 / growth, color=COLOURS[2], linestyle="--", linewidth=1, label="slope of the linear law, 1/(4κ)"
    )
    axes[2].set(ylabel=label("samples", r"n/(d^2\log d)"), ylim=(0, 1.2))
    axes[2].set_title("smoothed descent: n ~ d² log d")
    for axis in axes[1:]:
        axis.set(xlabel=label("dimension", "d"))
        log_axis(axis.xaxis)
        axis.legend()
    figure.suptitle("How many samples find one non-Gaussian direction (β = 15, from an overlap 1/√d)", fontsize=11)
    return figure


SIDE = 8


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
    numbers, kinds, shapes = [1000, 4000, 16_000], ["images", "phases randomised"], []
    for kind in kinds:
        x = jnp.asarray(image_patches(SIDE, 40_000, phases=kind != "images"))
        starts = jax.random.normal(jax.random.key(0), (16, x.shape[1]), jnp.float32)
        # judged on patches that were not used
        shapes.append([np.asarray(excess_kurtosis(x[20_000:], iterate(x[:n], starts, steps))) for n in numbers])
    return {
        "": xr.Dataset(
            {
                "overlap": (("theta", "step", "start"), paths),
                "kurtosis": (("kind", "number", "step", "image_start"), shapes),
            },
            {"theta": exponents, "step": np.arange(steps + 1), "kind": kinds, "number": numbers},
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
    axes[0].set_title("n = d³, d = 24: it searches, then jumps")
    found = (runs.overlap.isel(step=-1) > 0.8).mean("start")
    axes[1].plot(runs.theta, found, "o-", color=COLOURS[0])
    axes[1].set(
        xlabel=label("exponent", r"\log n/\log d"), ylabel="starts that find it in 26 steps", ylim=(-0.02, 1.02)
    )
    axes[1].set_title("repeated on the same data: from about d³")
    for i, kind in enumerate(runs.kind.values):
        for j, n in enumerate(runs.number.values):
            at = runs.kurtosis.sel(kind=kind, number=n)
            axes[2].plot(runs.step, at.median("image_start"), MARKERS[j] + "-", color=COLOURS[i], markersize=3,
                         linewidth=0.9, label=f"{kind}, n = {int(n):,}")  # fmt: skip
    axes[2].set(xlabel="steps of FastICA", ylabel="excess kurtosis on other patches", yscale="symlog")
    axes[2].set_title(f"white {SIDE} × {SIDE} patches of two photographs")
    axes[2].legend(fontsize=7)
    figure.suptitle("FastICA on one data set: a search and a jump; images are non-Gaussian from the start", fontsize=11)
    return figure


RECIPES = {
    "ica-scaling": Recipe(
        scaling,
        draw_scaling,
        sentence="One non-Gaussian direction takes d⁴ samples in a step of FastICA, d³ by descent, d² log d by smoothed descent.",
    ),
    "ica-search": Recipe(
        search,
        draw_search,
        sentence="FastICA on one data set searches and then jumps, from about d³ samples on; images hardly make it search.",
    ),
}
