"""The two norms of a spiked cumulant and its critical strength; networks against random features."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis
from solvable.study import Study

from .model import SpikedCumulant
from .norms import latent_named, log_norm, low_degree_norm

SNRS = (5.0, 10.0, 40.0)
SIZES = (50, 200, 1000)
EXPONENTS = (1.6, 2.0, 2.2)


def norms(quick: bool) -> dict[str, Any]:
    import xarray as xr

    model, two = SpikedCumulant(), latent_named("rademacher")
    gamma = np.geomspace(0.1, 10.0, 31 if quick else 121)
    lines = Study(model, {"snr": list(SNRS), "samples": gamma}).run()
    sizes, few = SIZES[: 1 if quick else None], np.geomspace(0.1, 10.0, 13)
    exact = [[[log_norm(two, b, g * d, d) / d for g in few] for d in sizes] for b in SNRS]
    dims = np.unique(np.geomspace(20, 2000, 9 if quick else 25).astype(int))
    low = [[low_degree_norm(two.hermite, 10.0, float(d) ** theta, int(d), 16) for d in dims] for theta in EXPONENTS]
    finite = xr.Dataset(
        {"exact": (("snr", "size", "gamma"), exact), "low": (("theta", "dimension"), low)},
        {"snr": list(SNRS), "size": list(sizes), "gamma": few, "theta": list(EXPONENTS), "dimension": dims},
    )
    return {"": lines, "finite": finite}


def draw_norms(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, finite = data[""], data["finite"]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    for i, snr in enumerate(finite.snr.values):
        at = lines.sel(snr=snr)
        axes[0].plot(at.samples, at.log_norm_theory, color=COLOURS[i], label=f"β = {snr:g}")
        for j, size in enumerate(finite["size"].values):
            fill = {"markerfacecolor": "none"} if j < len(finite["size"]) - 1 else {}
            axes[0].plot(
                finite.gamma, finite.exact.sel(snr=snr, size=size), MARKERS[j], color=COLOURS[i], markersize=4, **fill
            )
    axes[0].set(xlabel=label("samples", "n/d"), ylabel="log norm per dimension", yscale="symlog", ylim=(-0.002, 20))
    axes[0].set_yscale("symlog", linthresh=0.01)
    log_axis(axes[0].xaxis)
    sizes = ", ".join(str(int(d)) for d in finite["size"].values)
    axes[0].set_title(f"exact norm: d → ∞ (lines), d = {sizes}")
    axes[0].legend()
    at = lines.isel(snr=0)
    axes[1].plot(at.samples, at.critical_snr_theory, color=COLOURS[0])
    axes[1].fill_between(at.samples, at.critical_snr_theory, 1e5, color=COLOURS[0], alpha=0.12)
    axes[1].plot([1.0], [10.7826], "o", color=COLOURS[1])
    axes[1].annotate("10.78 at n = d", (1.0, 10.7826), xytext=(8, 6), textcoords="offset points", fontsize=8)
    axes[1].text(0.7, 3e3, "classes can be distinguished", fontsize=8)
    axes[1].text(0.12, 1.3, "they cannot", fontsize=8)
    axes[1].set(
        xlabel=label("samples", "n/d"), ylabel=label("critical strength", r"\beta_*"), yscale="log", ylim=(1, 1e5)
    )
    axes[1].set_title("where the norm jumps")
    log_axis(axes[1].xaxis)
    for i, theta in enumerate(finite.theta.values):
        axes[2].plot(finite.dimension, finite.low.sel(theta=theta) - 1, MARKERS[i] + "-", color=COLOURS[i], markersize=3,
                     label=f"n = d^{theta:g}")  # fmt: skip
    axes[2].set(xlabel=label("dimension", "d"), ylabel="norm of degree 16, minus 1", xscale="log", yscale="log")
    axes[2].set_title("polynomials need n ≫ d²")
    axes[2].legend()
    figure.suptitle(
        "A spike in the fourth cumulant: possible from n ~ d samples, in polynomial time from d²", fontsize=11
    )
    return figure


def learners(quick: bool) -> dict[str, Any]:
    ratios = [2.0, 8.0] if quick else [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    sizes, seeds = ([20], 2) if quick else ([20, 40], 4)
    model = SpikedCumulant(snr=10.0)
    parts = {}
    for learner in ("network", "features"):
        parts[learner] = Study(
            model.replace(learner=learner), {"scaled_samples": ratios}, sizes=sizes, seeds=seeds
        ).run()
    null = model.replace(learner="network", latent="gaussian")
    parts["null"] = Study(null, {"scaled_samples": ratios[-2:]}, sizes=sizes[:1], seeds=seeds).run()
    gamma = [0.5, 2.0] if quick else [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]
    sizes, seeds = ([8], 32) if quick else ([8, 12], 96)
    parts["search"] = Study(model.replace(learner="search"), {"samples": gamma}, sizes=sizes, seeds=seeds).run()
    return parts


def draw_learners(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    oracle = 1 - float(SpikedCumulant(snr=10.0).theory(only=("oracle_error",)).oracle_error)
    for i, learner in enumerate(("network", "features", "null")):
        runs = data[learner]
        for j, size in enumerate(runs["size"].values):
            at, shade = runs.sel(size=size), {"markerfacecolor": "none"} if j else {}
            word = {"network": "network", "features": "random features", "null": "network, Gaussian latent"}[learner]
            for axis, name, view in ((axes[0], "test_error", lambda x: 1 - x), (axes[1], "alignment", lambda x: x)):
                if name == "alignment" and learner != "network":
                    continue
                values = view(at[f"{name}_simulated"])
                error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
                axis.errorbar(at.scaled_samples, values.mean("seed"), error, fmt=MARKERS[i] + "-", color=COLOURS[i],
                              markersize=4, linewidth=0.8, label=f"{word}, d = {int(size)}", **shade)  # fmt: skip
    axes[0].axhline(oracle, color=COLOURS[6], linestyle="--", linewidth=1)
    axes[0].text(0.55, oracle - 0.012, "a test that knows the spike", fontsize=8)
    axes[0].axhline(0.5, color=COLOURS[6], linestyle=":", linewidth=1)
    axes[0].set(ylabel="test accuracy")
    axes[0].set_title("a network learns, random features do not")
    axes[1].set(ylabel="largest cosine of a weight with the spike", ylim=(0, 1.05))
    axes[1].set_title("the network finds the direction")
    for axis in axes[:2]:
        axis.set(xlabel=label("samples per class", "n/d^2"))
        log_axis(axis.xaxis)
        axis.legend(fontsize=7)
    runs = data["search"]
    for j, size in enumerate(runs["size"].values):
        values = runs.sel(size=size).success_simulated
        mean = values.mean("seed")
        error = np.sqrt(mean * (1 - mean) / values.sizes["seed"])
        axes[2].errorbar(runs.samples, mean, error, fmt=MARKERS[j] + "-", color=COLOURS[3 + j], markersize=4, linewidth=0.8,
                         label=f"d = {int(size)}")  # fmt: skip
    axes[2].set(xlabel=label("samples", "n/d"), ylabel="fraction of spikes found", ylim=(-0.02, 1.05))
    axes[2].set_title("searching all $2^d$ spikes needs n ~ d")
    axes[2].legend()
    figure.suptitle("Who finds a spike in the fourth cumulant (β = 10)", fontsize=11)
    return figure


RECIPES = {
    "spiked-cumulant-norms": Recipe(
        norms,
        draw_norms,
        sentence="Norms of a spiked cumulant's likelihood ratio: jumps at a critical strength; for polynomials, at n ~ d².",
    ),
    "spiked-cumulant-learners": Recipe(
        learners,
        draw_learners,
        sentence="A two-layer network finds the spike with about 10 d² samples, random features do not; search needs n ~ d.",
    ),
}
