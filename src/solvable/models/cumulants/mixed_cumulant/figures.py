"""The staircase: correlated latents make the expensive direction cheap, for one neuron and for a network."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.training.reduced import reduced_hitting
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .model import MixedCumulant

LATENTS = ("correlated", "independent")
LEVEL = 0.3


def hitting_times(latents: str, size: int, lanes: int, most: float, direction: int = 1) -> Any:
    """Steps until |α_v| (or |α_u|) exceeds 0.3 from α_u = α_v = d^{-1/2}, and whether it did, lane by lane."""
    model = MixedCumulant(latents=latents)
    start = jnp.full((2, lanes), size**-0.5, jnp.float32)
    find = jax.jit(
        lambda key: reduced_hitting(model.stream(size), key, start, lambda a: jnp.abs(a[direction]) > LEVEL, int(most))
    )
    hit = find(jax.random.key(size))
    return np.where(hit.met, np.asarray(hit.steps, float), np.inf)


def stairs(quick: bool) -> dict[str, Any]:
    import xarray as xr

    times = np.linspace(0.0, 60.0, 13)
    size, seeds = (2000, 6) if quick else (20_000, 8)
    paths = Study(MixedCumulant(times=times), {"latents": list(LATENTS)}, sizes=[size], seeds=seeds).run()
    fine = Study(MixedCumulant(times=np.linspace(0.0, 60.0, 121)), {"latents": list(LATENTS)}).run()
    sizes = [200, 1000] if quick else [200, 1000, 5000, 20_000, 100_000]
    lanes = 32  # another size costs its d log d steps and nothing else: a minute or two of a core at d = 10⁶
    found = [hitting_times("correlated", d, lanes, 120 * d) for d in sizes]
    alone = [hitting_times("independent", d, lanes, 120 * d) for d in sizes[:2]]
    hits = xr.Dataset(
        {"correlated": (("size", "lane"), found), "independent": (("few", "lane"), alone)},
        {"size": sizes, "few": sizes[:2]},
    )
    return {"": paths, "flow": fine, "hits": hits}


def draw_stairs(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    paths, flow, hits = data[""], data["flow"], data["hits"]
    size = int(paths["size"].values[-1])
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    for axis, latents in zip(axes, LATENTS, strict=False):
        for i, name in enumerate(("overlap_u", "overlap_v")):
            axis.plot(flow.time, flow.sel(latents=latents)[f"{name}_theory"], LINES[i], color=COLOURS[i],
                      label={"overlap_u": "with u (covariance)", "overlap_v": "with v (cumulants)"}[name])  # fmt: skip
            runs = paths.sel(latents=latents, size=size)[f"{name}_simulated"]
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(runs.time, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8)
        axis.set(xlabel=label("time", "n/d"), ylabel="overlap", ylim=(-0.03, 1.0))
        axis.set_title(f"{latents} latents: d → ∞ (lines), d = {size:,}")
        axis.legend()
    d = hits["size"].values
    middle = hits.correlated.median("lane")
    spread = hits.correlated.quantile([0.25, 0.75], "lane")
    n = d * np.log(d)
    axes[2].errorbar(d, middle / n, [(middle - spread[0]) / n, (spread[1] - middle) / n], fmt="o", color=COLOURS[1],
                     label="correlated, median and quartiles")  # fmt: skip
    growth = float(MixedCumulant().theory(only=("growth",)).growth)
    axes[2].axhline(
        0.5 / growth, color=COLOURS[1], linestyle="--", linewidth=1, label="slope of the linear flow, 1/(2κ)"
    )
    for few in hits.few.values:
        share = float(np.isfinite(hits.independent.sel(few=few)).mean())
        words = f"independent, d = {int(few)}: {share:.0%} found\nwithin n = 120 d"
        height = 0.06 + 0.13 * (few != hits.few.values[0])
        axes[2].annotate(words, (0.05, height), xycoords="axes fraction", fontsize=7.5, color=COLOURS[0])
    axes[2].set(xlabel=label("dimension", "d"), ylabel="n/(d log d) until v is found", ylim=(0, 6))
    axes[2].set_title("time to |overlap with v| > 0.3")
    log_axis(axes[2].xaxis)
    axes[2].legend(loc="upper right", fontsize=7.5)
    figure.suptitle("Correlated latents: the covariance direction pulls the cumulant direction along", fontsize=11)
    return figure


ARMS = {
    "correlated": {"latents": "correlated"},
    "independent": {"latents": "independent"},
    "same mean": {"surrogate": "mean"},
    "same mean and covariance": {"surrogate": "covariance"},
}


def networks(quick: bool) -> dict[str, Any]:
    size, seeds, horizon = (32, 2, 200.0) if quick else (100, 4, 2000.0)
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
    """All weights at d = 2000, 48 seeds, both kinds of latents: 48 × 4·10⁷ random numbers and more."""
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
        sentence="Correlated latents: the cumulant direction is found after d log d samples; independent ones: it is forgotten.",
    ),
    "mixed-cumulant-networks": Recipe(
        networks,
        draw_networks,
        sentence="A network learns mean, covariance and cumulants one after the other; correlated latents shorten the last wait.",
    ),
    "mixed-cumulant-weights": Recipe(
        weights,
        draw_weights,
        sentence="Descents of all weights at d = 2000 and descents of the overlaps alone have the mean overlaps of the flow.",
    ),
}
