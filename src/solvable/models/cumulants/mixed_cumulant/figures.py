"""The staircase: correlated latents make the expensive direction cheap, for one neuron and for a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .._hitting import explosions, hitting_times
from .model import MixedCumulant

LATENTS = ("correlated", "independent")
LEVEL = 0.3
SLOW = 0.3  # δd of descents that depend on the cumulants alone
QUARTIC = (0.0, 0.0, 0.0, 0.0, -0.1)  # σ = -He_4/10: the lowest order in which v shows


def slow_model(size: int, **values: Any) -> MixedCumulant:
    """Independent latents and σ = -He_4/10 at the rate 0.3/d, at which a direction of exponent four can be found."""
    return MixedCumulant(latents="independent", coefficients=QUARTIC, rate=SLOW / size, **values)


def hits(quick: bool) -> Any:
    """Samples to |α_v| > 0.3 from 1/√d.

    `correlated` and `independent` are at rate 0.1. `alone` has no covariance direction (β_u = 0) and the rate 0.3/d, at
    which the overlap's diffusion explodes (`explosion`); `beside` has both directions at that rate.
    """
    import xarray as xr

    lanes = 32
    sizes = [200, 1000] if quick else [200, 1000, 5000, 20_000, 100_000]
    cubic = [12, 24] if quick else [12, 16, 24, 32, 48, 64]
    find: dict[str, Any] = {"level": LEVEL, "start": (1.0, 1.0), "direction": 1}
    together, apart = (MixedCumulant(latents=latents) for latents in LATENTS)
    found = [hitting_times(together.stream(d), lanes, 120 * d, **find) for d in sizes]
    missed = [hitting_times(apart.stream(d), lanes, 120 * d, **find) for d in sizes[:2]]
    only: dict[str, Any] = {**find, "start": (0.0, 1.0)}
    alone = [hitting_times(slow_model(d, snr_u=0.0).stream(d), 64 if quick else 256, 20 * d**3, **only) for d in cubic]
    beside = [hitting_times(slow_model(d).stream(d), 64, 20 * d**3, **find) for d in cubic[:3]]
    ratio = 8 / 9
    # mean step ½c_04 c_4 α³/6 with c_04 = -2r², c_4 = 24·(-0.1); squared step E[σ'(z)²] = 16·0.01·3!
    limit = explosions(SLOW, 0.4 * ratio**2, 0.96, 500 if quick else 4000, 60.0)
    return xr.Dataset(
        {"correlated": (("size", "lane"), found), "independent": (("few", "lane"), missed),
         "alone": (("cubic", "many_lanes"), alone), "beside": (("small", "some_lanes"), beside),
         "explosion": ("path", limit)},
        {"size": sizes, "few": sizes[:2], "cubic": cubic, "small": cubic[:3]},
    )  # fmt: skip


def stairs(quick: bool) -> dict[str, Any]:
    times = np.linspace(0.0, 60.0, 13)
    size, seeds = (2000, 6) if quick else (20_000, 8)
    paths = Study(MixedCumulant(times=times), {"latents": list(LATENTS)}, sizes=[size], seeds=seeds).run()
    fine = Study(MixedCumulant(times=np.linspace(0.0, 60.0, 121)), {"latents": list(LATENTS)}).run()
    return {"": paths, "flow": fine, "hits": hits(quick)}


def draw_stairs(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    paths, flow, times = data[""], data["flow"], data["hits"]
    size = int(paths["size"].values[-1])
    figure, axes = plt.subplots(2, 2, figsize=(9.6, 7.4), layout="constrained")
    for axis, latents in zip(axes[0], LATENTS, strict=True):
        for i, name in enumerate(("overlap_u", "overlap_v")):
            axis.plot(flow.time, flow.sel(latents=latents)[f"{name}_theory"], LINES[i], color=COLOURS[i],
                      label={"overlap_u": "with u (covariance)", "overlap_v": "with v (cumulants)"}[name])  # fmt: skip
            runs = paths.sel(latents=latents, size=size)[f"{name}_simulated"]
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(runs.time, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8)
        axis.set(xlabel=label("time", "n/d"), ylabel="overlap", ylim=(-0.03, 1.0))
        axis.set_title(f"{latents} latents: d → ∞ (lines), d = {size:,}")
        axis.legend()

    def quantiles(axis: Any, d: Any, found: Any, unit: Any, colour: str, words: str) -> None:
        low, middle, high = (np.quantile(found, q, axis=1) / unit for q in (0.25, 0.5, 0.75))
        axis.errorbar(d, middle, [middle - low, high - middle], fmt="o", color=colour, label=words)

    first, second = axes[1]
    d = times["size"].values
    quantiles(first, d, times.correlated, d * np.log(d), COLOURS[1], "median and quartiles")
    growth = float(MixedCumulant().theory(only=("growth",)).growth)
    first.axhline(0.5 / growth, color=COLOURS[1], linestyle="--", linewidth=1, label="slope of the linear flow, 1/(2κ)")
    few = ", ".join(str(int(x)) for x in times.few.values)
    share = float(np.isfinite(times.independent).mean())
    first.annotate(f"independent latents, d = {few}:\n{share:.0%} found within n = 120 d", (0.05, 0.06),
                   xycoords="axes fraction", fontsize=8, color=COLOURS[0])  # fmt: skip
    first.set(ylabel=label("samples", r"n/(d\log d)"), ylim=(0, 6))
    first.set_title("correlated: v is found after n ~ d log d")
    d = times.cubic.values
    quantiles(second, d, times.alone, d**3.0, COLOURS[0], "v alone, median and quartiles")
    low, middle, high = np.quantile(times.explosion, [0.25, 0.5, 0.75])
    second.axhspan(low, high, color=COLOURS[0], alpha=0.12)
    second.axhline(middle, color=COLOURS[0], linestyle="--", linewidth=1, label="explosion of the limiting diffusion")
    small = ", ".join(str(int(x)) for x in times.small.values)
    share = float(np.isfinite(times.beside).mean())
    second.annotate(f"beside u, independent, d = {small}:\n{share:.0%} found within n = 20 d³", (0.05, 0.68),
                    xycoords="axes fraction", fontsize=8, color=COLOURS[3])  # fmt: skip
    second.set(ylabel=label("samples", "n/d^3"), ylim=(0, 1.6 * high))
    second.set_title("v by σ = −He₄/10, rate 0.3/d: n ~ d³")
    for axis in axes[1]:
        axis.set(xlabel=label("dimension", "d"))
        log_axis(axis.xaxis)
        axis.legend(loc="upper right", fontsize=8)
    figure.suptitle(
        "Samples to |overlap with v| > 0.3: correlated latents pull the cumulant direction along", fontsize=11
    )
    return figure


ARMS = {
    "correlated": {"latents": "correlated"},
    "independent": {"latents": "independent"},
    "same mean": {"surrogate": "mean"},
    "same mean and covariance": {"surrogate": "covariance"},
}


def networks(quick: bool) -> dict[str, Any]:
    size, seeds, horizon = (32, 2, 200.0) if quick else (100, 16, 2000.0)
    times = np.concatenate([[0.0], np.geomspace(1.0, horizon, 14)])
    model = MixedCumulant(learner="network", times=times, snr_m=1.0, snr_u=5.0, snr_v=10.0, rate=0.5, units=16)
    return {"": Study(model, arms=ARMS, sizes=[size], seeds=seeds).run()}


def draw_networks(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""].isel(size=-1)
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    later = runs.time.values > 0
    for i, arm in enumerate(ARMS):
        values = runs.sel(arm=arm).accuracy_simulated.values[:, later]
        axes[0].errorbar(runs.time[later], values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values)),
                         fmt=MARKERS[i] + LINES[i], color=COLOURS[i], markersize=3.5, label=arm)  # fmt: skip
    axes[0].set(ylabel="accuracy on the true classes")
    axes[0].set_title("trained on the true classes, or on surrogates")
    for axis, arm in zip(axes[1:], LATENTS, strict=True):
        for i, name in enumerate(("m", "u", "v")):
            values = runs.sel(arm=arm)[f"aligned_{name}_simulated"].values[:, later]
            axis.errorbar(runs.time[later], values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values)), fmt=MARKERS[i] + "-",
                          color=COLOURS[i], markersize=3.5,
                          label={"m": "mean", "u": "covariance", "v": "cumulants"}[name])  # fmt: skip
        axis.set(ylabel="largest cosine of a weight", ylim=(0, 1))
        axis.set_title(f"{arm} latents")
    for axis in axes:
        axis.set(xlabel=label("time", "n/d"))
        log_axis(axis.xaxis)
        axis.legend(fontsize=7.5)
    size = int(data[""]["size"].values[-1])
    figure.suptitle(f"A two-layer ReLU network on mixed cumulants, d = {size}", fontsize=11)
    return figure


def weights(quick: bool) -> dict[str, Any]:
    """All weights at d = 2000, 48 seeds, both kinds of latents: more than 48 × 4·10⁷ random numbers."""
    size, seeds, times = (200, 8, [0.0, 5.0, 10.0]) if quick else (2000, 48, [0.0, 2.5, 5.0, 10.0])
    model = MixedCumulant(times=times)
    over = {"latents": list(LATENTS), "simulated": ["weights", "overlaps"]}
    return {"": Study(model, over, sizes=[size], seeds=seeds).run()}


def draw_weights(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""].isel(size=-1)
    seeds = runs.sizes["seed"]
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.8), sharey=True)
    for axis, latents in zip(axes, LATENTS, strict=True):
        for i, name in enumerate(("overlap_u", "overlap_v")):
            for j, kept in enumerate(("weights", "overlaps")):
                at = runs.sel(latents=latents, simulated=kept)
                apart = at[f"{name}_simulated"] - at[f"{name}_theory"]
                axis.errorbar(at.time + 0.5 * j, apart.mean("seed"), apart.std("seed", ddof=1) / np.sqrt(seeds),
                              fmt=MARKERS[i], color=COLOURS[i], markerfacecolor="none" if j else COLOURS[i],
                              label=f"{'uv'[i]}, by {kept}")  # fmt: skip
        axis.axhline(0.0, color=COLOURS[6], linewidth=0.8)
        axis.set(xlabel=label("time", "n/d"))
        axis.set_title(f"{latents} latents")
    axes[0].set(ylabel="mean overlap minus the flow's")
    axes[0].legend(fontsize=7.5)
    size = int(data[""]["size"].values[-1])
    figure.suptitle(f"All weights and overlaps alone against the flow, d = {size}, {seeds} seeds", fontsize=11)
    return figure


RECIPES = {
    "mixed-cumulant-staircase": Recipe(
        stairs,
        draw_stairs,
        sentence="The cumulant direction is found after d log d samples if latents are correlated, after d³ or never if not.",
    ),
    "mixed-cumulant-networks": Recipe(
        networks,
        draw_networks,
        sentence="A network learns mean, covariance and cumulants one after the other; correlated latents shorten the last wait.",
    ),
    "mixed-cumulant-weights": Recipe(
        weights,
        draw_weights,
        sentence="Descents of all weights at d = 2000 and of the overlaps alone have the same mean overlaps as the flow.",
    ),
}
