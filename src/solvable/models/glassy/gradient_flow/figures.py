"""The time gradient flow takes to leave marginal minima for the signal."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label
from solvable.study import Study

from .._figures import approach, draw_escape_times, draw_growth, draw_runs, growth_table
from .._hessian import follow_descent
from .._landscape import Covariance
from .._state_evolution import blind_overlap
from .._thresholds import trivial_landscape
from .model import GradientFlow
from .success import draw_success, success

NOISES = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.48, 0.5, 0.55, 0.6)
SHOWN = (0.2, 0.3, 0.4, 0.45, 0.5, 0.6)
CRITICAL = 0.5  # the threshold at p = 3, Δ₃ = 1
TRIVIAL = float(trivial_landscape(3, np.asarray(1.0)))
# No spurious minima; flow succeeds among spurious minima; both flow and message passing fail.
BETWEEN = (0.3, 0.45, 0.7)


def escape(quick: bool) -> dict[str, Any]:
    model = GradientFlow(initial_overlap=0.3, times=np.linspace(0.0, 6.0, 13), waiting=[0.0, 1.0])
    size, seeds = (40, 4) if quick else (100, 32)
    points = Study(model, {"matrix_noise": [0.2, 0.4, 0.6]}, sizes=[size], seeds=seeds).run()
    table = growth_table(NOISES[::5] if quick else NOISES, 0.0, "likelihood", quick)
    return {"growth": table, "near": approach(CRITICAL, 0.0), "experiment": points}


def draw_escape(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, points = data["growth"], data["experiment"]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    draw_growth(axes[0], table, [n for n in SHOWN if n in table.matrix_noise])
    axes[0].set_title("from $m_0 = 10^{-4}$; ◂: likelihood message passing")
    axes[0].legend(fontsize=7, loc="upper left")
    draw_escape_times(axes[1], table, data["near"])
    axes[1].axvline(TRIVIAL, color="grey", linestyle=":", linewidth=1)
    axes[1].axvline(CRITICAL, color=COLOURS[2], linestyle=":", linewidth=1)
    axes[1].text(TRIVIAL - 0.006, 2.5, "no spurious\nminima to\nthe left", fontsize=8, ha="right")
    axes[1].text(CRITICAL + 0.008, 2.5, "flow fails\nto the right\n($m_0 \\to 0$)", fontsize=8, color=COLOURS[2])
    axes[1].set(xlim=(0.17, 0.65), ylim=(2, 3e4))
    axes[1].set_title("slower even without spurious minima")
    axes[1].legend(fontsize=7, loc="upper left")
    draw_runs(axes[2], points, "matrix_noise", lambda noise: rf"$\Delta_2$ = {noise:g}")
    axes[2].set_ylim(0, 1)
    axes[2].set_title(f"from $m_0 = 0.3$: N → ∞ (lines), N = {int(points['size'][-1])} (points)")
    axes[2].legend(fontsize=8)
    figure.suptitle(
        "Gradient flow in a spiked matrix-tensor model leaves marginal minima for the signal (Δ₃ = 1)", fontsize=11
    )
    return figure


# --- descents of finite systems ---------------------------------------------------------------------------------------


def descents(quick: bool) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import xarray as xr

    # seeds are pairs of descents with opposite noise; the last times show where descents end
    sizes = {20: 4, 40: 4} if quick else {40: 20, 80: 10}
    early, late = np.array([0.5, 1.0, 2.0, 3.0]), (10.0 if quick else 40.0)
    times, names = np.append(early, late), ("overlap", "multiplier", "lowest", "cosine")
    most = 2 * max(sizes.values())
    found = {name: np.full((len(BETWEEN), len(sizes), most, len(times)), np.nan) for name in names}
    for j, (size, seeds) in enumerate(sizes.items()):

        def one(key: Any, noise: Any, size: int = size) -> Any:
            return follow_descent(key, size, Covariance(noise, jnp.asarray(1.0), 3), jnp.zeros(()), times)

        program = jax.jit(one)
        for i, noise in enumerate(BETWEEN):
            keys = jax.random.split(jax.random.key(100 * size + i), seeds)
            runs = [program(key, jnp.asarray(noise)) for key in keys]
            for name in names:  # each sign of the noise is a separate descent
                values = np.concatenate([np.asarray(r[name]).T for r in runs])
                found[name][i, j, : len(values)] = values
    table = xr.Dataset({name: (("matrix_noise", "size", "seed", "time"), v) for name, v in found.items()})
    table = table.assign_coords(matrix_noise=list(BETWEEN), size=list(sizes), time=times)
    fine = np.linspace(0.0, early[-1], 31)
    model = GradientFlow(initial_overlap=0.0, times=fine, waiting=[0.0, 1.0], matrix_noise=np.array(BETWEEN))
    mu = np.asarray(model.theory().multiplier)
    theta = 1 / np.array(BETWEEN)
    sigma = np.sqrt(theta + 2)
    outside = np.maximum(theta, sigma)
    line = xr.Dataset(
        {
            "lowest": (("matrix_noise", "time"), mu - (outside + sigma**2 / outside)[:, None]),
            "cosine": ("matrix_noise", np.maximum(1 - (sigma / theta) ** 2, 0.0)),
            "final": ("matrix_noise", [float(blind_overlap("likelihood", Covariance(jnp.asarray(n), jnp.ones(()), 3)))
                                       for n in BETWEEN]),
        },
        coords={"matrix_noise": list(BETWEEN), "time": fine},
    )  # fmt: skip
    return {"": table, "line": line}


def draw_descents(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, line = data[""], data["line"]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    early = table.isel(time=slice(0, -1))
    for i, noise in enumerate(table.matrix_noise.values):
        axes[0].plot(line.time, line.lowest.sel(matrix_noise=noise), color=COLOURS[i], label=rf"$\Delta_2$ = {noise:g}")
        axes[1].axhline(float(line.cosine.sel(matrix_noise=noise)), color=COLOURS[i], linestyle="--", linewidth=1.2)
        for j, size in enumerate(table["size"].values):
            for axis, name in zip(axes, ("lowest", "cosine"), strict=False):
                runs = early[name].sel(matrix_noise=noise, size=size)
                error = runs.std("seed", ddof=1) / np.sqrt(np.isfinite(runs).sum("seed"))
                axis.errorbar(early.time + 0.05 * (j - 1), runs.mean("seed"), error, fmt=MARKERS[j], color=COLOURS[i],
                              markersize=3.8, linestyle="none")  # fmt: skip
    for j, size in enumerate(table["size"].values):
        axes[0].plot([], [], MARKERS[j], color="0.4", markersize=4, label=f"N = {size}")
    axes[0].set(xlabel=label("time", "t"), ylabel="lowest eigenvalue of the Hessian")
    axes[0].set_title(r"line: $\mu(t) - \theta - \sigma^2/\theta$, or $\mu(t) - 2\sigma$")
    axes[0].legend(fontsize=7)
    axes[1].set(xlabel=label("time", "t"), ylabel="squared cosine with the signal", ylim=(0, 1))
    axes[1].set_title(r"its eigenvector; dashed: $1 - \sigma^2/\theta^2$")
    last = table.overlap.isel(time=-1)
    for i, noise in enumerate(table.matrix_noise.values):
        for j, size in enumerate(table["size"].values):
            ends = last.sel(matrix_noise=noise, size=size).values
            ends = np.sort(np.abs(ends[np.isfinite(ends)]))
            axes[2].plot(np.full(len(ends), noise) + 0.03 * (j - 1), ends, MARKERS[j], color=COLOURS[i], markersize=3,
                         alpha=0.6)  # fmt: skip
        final = float(line.final.sel(matrix_noise=noise))
        axes[2].plot([noise - 0.05, noise + 0.05], [final, final], color="0.2", linewidth=1.5)
    axes[2].axvspan(TRIVIAL, CRITICAL, color="0.9", zorder=0)
    axes[2].set(xlabel=label("matrix_noise", r"\Delta_2"), ylabel=f"overlap $|m|$ at t = {float(table.time[-1]):g}")
    axes[2].set_title("grey: many spurious minima, flow succeeds")
    figure.suptitle(
        "Descents of finite systems from random starts, and the Hessian along the way (Δ₃ = 1)", fontsize=11
    )
    return figure


RECIPES = {
    "gradient-flow-escape": Recipe(
        escape,
        draw_escape,
        sentence="Gradient flow escapes from marginal minima in a time that diverges at a threshold known in closed form.",
    ),
    "gradient-flow-descents": Recipe(
        descents,
        draw_descents,
        sentence="The Hessian along descents of finite systems points to the signal where its strength exceeds the noise.",
    ),
    "gradient-flow-success": Recipe(
        success,
        draw_success,
        sentence="How often gradient flow finds the signal, against Δ₂ between the lines of the phase diagram.",
    ),
}
