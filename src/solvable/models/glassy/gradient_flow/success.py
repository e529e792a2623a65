"""How often gradient flow finds the signal between the lines of the phase diagram, in systems of growing size."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.plots import COLOURS, MARKERS, label

from .._landscape import Covariance
from .._recovery import recover_all
from .._state_evolution import fixed_points
from .._thresholds import gradient_flow, likelihood_message_passing, trivial_landscape

NOISES: dict[str, tuple[float, ...]] = {
    "dense": (0.3, 0.4, 0.45, 0.5, 0.6, 0.7),
    "diluted": (0.3, 0.36, 0.4, 0.42, 0.45, 0.48, 0.5, 0.52, 0.55, 0.58, 0.6, 0.62, 0.65, 0.68, 0.7, 0.75),
}
STOPS = (25.0, 50.0, 100.0, 200.0)
SYSTEMS = {"dense": {60: 24, 125: 16}, "diluted": {1000: 16, 8000: 16}}
SUCCESS = 0.9  # of the overlap of the likelihood's informed fixed point


def success(quick: bool) -> dict[str, Any]:
    """Flows of both signs of the noise; large tensors are diluted. The largest take an hour on two cores, minutes on a GPU."""
    systems = {"dense": {20: 4, 40: 4}, "diluted": {40: 4, 100: 4}} if quick else SYSTEMS
    found = {}
    for kind, sizes in systems.items():
        noises, stops = (NOISES[kind][::5], STOPS[:1]) if quick else (NOISES[kind], STOPS)
        table = recover_all(sizes, kind, noises, stops).isel(pace=0, drop=True)
        found[kind] = table.assign(goal=("matrix_noise", goals(noises)))
    return found


def goals(noises: Any) -> list[float]:
    """The overlap of the likelihood's informed fixed point at every Δ₂."""
    import jax.numpy as jnp

    of = [Covariance(jnp.asarray(n), jnp.asarray(1.0), 3) for n in noises]
    return [float(fixed_points("likelihood", covariance).high) for covariance in of]


def condensed(table: Any, time: int = -1) -> Any:
    """Whether a flow has condensed: a tenth of |x|² more than the largest of N normal numbers has is in one component.

    Diluted tensors have such states, and sooner or later flows that do not find the signal end in them.
    """
    size = table["size"]
    return table.share.isel(time=time) > 0.1 + 2 * np.log(size) / size


def succeeded(table: Any, time: int = -1) -> Any:
    """Whether each flow is near the likelihood's informed fixed point; NaN where it condensed or there was none."""
    ends = table.overlap.isel(time=time)
    return (ends > SUCCESS * table.goal).where(np.isfinite(ends) & ~condensed(table, time))


def share(found: Any) -> tuple[Any, Any]:
    """Mean over systems and signs, and its error: at least that of a single flow that differs from all others."""
    by_system = found.mean("sign")
    number = by_system.count("seed")
    error = np.maximum(by_system.std("seed", ddof=1) / np.sqrt(number), 0.5 / number)
    return by_system.mean("seed"), error


def crossing(found: Any, level: float = 0.5) -> float:
    """The largest Δ₂ up to which the share of successes is above a level, between grid points by interpolation."""
    mean = found.mean(("seed", "sign")).values
    below = np.flatnonzero(mean < level)
    if len(below) == 0 or below[0] == 0:
        return float("nan")
    i = below[0]
    return float(np.interp(-level, [-mean[i - 1], -mean[i]], found.matrix_noise.values[i - 1 : i + 1]))


def crossing_and_error(found: Any, level: float = 0.5, draws: int = 400) -> tuple[float, float]:
    """The crossing, and its standard deviation when the systems are drawn again from those that there are."""
    there = found.dropna("seed", how="all")
    rng = np.random.default_rng(0)
    again = [
        crossing(there.isel(seed=rng.integers(there.sizes["seed"], size=there.sizes["seed"])), level)
        for _ in range(draws)
    ]
    return crossing(there, level), float(np.nanstd(again))


def draw_success(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    one = np.asarray(1.0)
    lines = [float(f(3, one)) for f in (trivial_landscape, gradient_flow, likelihood_message_passing)]
    words = (
        "no spurious minima\nto the left",
        "flow fails to the\nright ($N \\to \\infty$)",
        "message passing fails\nto the right",
    )
    figure, axes = plt.subplots(1, 3, figsize=(13.6, 4.2), layout="constrained", width_ratios=(1, 1, 0.8))
    for axis, kind in zip(axes, ("dense", "diluted"), strict=False):
        table = data[kind]
        for i, size in enumerate(table["size"].values):
            mean, error = share(succeeded(table).sel(size=size))
            axis.errorbar(table.matrix_noise, mean, error, fmt=MARKERS[i] + "-", color=COLOURS[i], markersize=4, linewidth=1,
                          label=f"N = {int(size):,}")  # fmt: skip
        for place, name in zip(lines, words, strict=True):
            axis.axvline(place, color="0.5", linestyle=":", linewidth=1)
            axis.text(place + 0.003, 1.05, name, fontsize=7, va="bottom", ha="left")
        axis.axvspan(lines[0], lines[1], color="0.92", zorder=0)
        axis.set(xlabel=label("matrix_noise", r"\Delta_2"), ylim=(-0.05, 1.32))
        axis.set_title(f"{kind} tensors, t = {float(table.time[-1]):g}", fontsize=10)
        axis.legend(fontsize=8, loc="lower left")
    axes[0].set_ylabel("fraction of flows that find the signal")
    table = data["diluted"].isel(size=-1)
    number = int(np.isfinite(table.overlap).isel(matrix_noise=0, time=0).sum())
    for j, time in enumerate(table.time.values):
        ends = table.overlap.isel(time=j) > SUCCESS * table.goal
        axes[2].plot(table.matrix_noise, ends.sum(("seed", "sign")) / number, "o-", color=COLOURS[j], markersize=4, linewidth=1,
                     label=f"t = {time:g}")  # fmt: skip
        gone = condensed(table, j).sum(("seed", "sign")) / number
        axes[2].plot(table.matrix_noise, gone, "x:", color=COLOURS[j], markersize=5, linewidth=1)
    axes[2].plot([], [], "x:", color="0.4", label="condensed")
    axes[2].set(xlabel=label("matrix_noise", r"\Delta_2"), ylim=(-0.05, 1.32))
    axes[2].set_title(f"diluted, N = {int(table['size']):,}, of {number} flows", fontsize=10)
    axes[2].legend(fontsize=8, loc="center left")
    figure.suptitle(
        "Gradient flow from the overlap $4/\\sqrt{N}$ succeeds among exponentially many spurious minima (grey; $\\Delta_3$ = 1)",
        fontsize=11,
    )
    return figure
