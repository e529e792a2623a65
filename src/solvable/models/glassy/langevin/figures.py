"""Where glassy states trap Langevin dynamics but not message passing; how annealing helps; how trapped samplers age."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis
from solvable.study import Study

from .._figures import approach, draw_escape_times, draw_growth, draw_runs, growth_table
from .model import Langevin
from .recovery import draw_recovery, recovery

NOISES = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9)
SHOWN = (0.3, 0.5, 0.6, 0.65, 0.7, 0.8)
CRITICAL = 0.5**0.5  # the threshold at p = 3, Δ₃ = 1, T = 1


def threshold(quick: bool) -> dict[str, Any]:
    model = Langevin(initial_overlap=0.3, times=np.linspace(0.0, 6.0, 13), waiting=[0.0, 1.0])
    size, seeds = (40, 4) if quick else (100, 32)
    points = Study(model, {"matrix_noise": [0.3, 0.5, 0.85]}, sizes=[size], seeds=seeds).run()
    growth = growth_table(NOISES[::5] if quick else NOISES, 1.0, "bayes", quick)
    return {"growth": growth, "near": approach(CRITICAL, 1.0), "experiment": points}


def draw_threshold(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, points = data["growth"], data["experiment"]
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    draw_growth(axes[0], table, [n for n in SHOWN if n in table.matrix_noise])
    axes[0].set_title("from $m_0 = 10^{-4}$; ◂: message passing")
    axes[0].legend(loc="upper left", fontsize=7)
    draw_escape_times(axes[1], table, data["near"])
    axes[1].axvline(CRITICAL, color=COLOURS[2], linestyle=":", label=r"Langevin, $\sqrt{\Delta_3/2}$")
    axes[1].axvline(1.0, color="0.4", linestyle=":", label="message passing")
    axes[1].set(xlim=(0.25, 1.05), ylim=(5, 1e5))
    axes[1].set_title("to half of message passing's overlap")
    axes[1].legend(fontsize=7, loc="upper left")
    draw_runs(axes[2], points, "matrix_noise", lambda noise: rf"$\Delta_2$ = {noise:g}")
    axes[2].set_ylim(0, 1)
    axes[2].set_title(f"from $m_0 = 0.3$: N → ∞ (lines), N = {int(points['size'][-1])} (points)")
    axes[2].legend(fontsize=7)
    figure.suptitle(
        "Langevin sampling of a spiked matrix-tensor model is trapped by glassy states (Δ₃ = 1, T = 1)", fontsize=11
    )
    return figure


ANNEALED = {
    "constant": {"protocol": "constant"},
    "annealed, τ = 2": {"protocol": "annealed", "annealing_time": 2.0},
    "annealed, τ = 6": {"protocol": "annealed", "annealing_time": 6.0},
    "annealed, τ = 20": {"protocol": "annealed", "annealing_time": 20.0},
}


def annealing(quick: bool) -> dict[str, Any]:
    until, steps = (10.0, 200) if quick else (50.0, 900)
    model = Langevin(initial_overlap=1e-4, times=np.linspace(0.0, until, 61), waiting=[0.0, 1.0])
    noises = [0.65, 0.75, 0.8, 0.85, 0.9, 0.95]
    lines = Study(model, {"matrix_noise": noises}, arms=ANNEALED, numerics={"steps": steps, "tolerance": 1e-2}).run()
    few = model.replace(matrix_noise=0.8, initial_overlap=0.2, times=np.linspace(0.0, 8.0, 5))
    size, seeds = (40, 2) if quick else (100, 16)
    arms = {name: ANNEALED[name] for name in ("constant", "annealed, τ = 6")}
    return {"": lines, "experiment": Study(few, arms=arms, sizes=[size], seeds=seeds).run()}


def draw_annealing(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    found, points = data[""], data["experiment"]
    start, until = float(found.overlap_theory[0, 0, 0]), float(found.time[-1])
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8))
    for i, arm in enumerate(ANNEALED):
        grown = found.sel(arm=arm).overlap_theory / start
        axes[0].plot(found.time, grown.sel(matrix_noise=0.8), LINES[i], color=COLOURS[i], label=arm)
        axes[1].plot(found.matrix_noise, grown.isel(time=-1), MARKERS[i] + LINES[i], color=COLOURS[i], markersize=4)
    axes[0].set(xlabel=label("time", "t"), ylabel="growth of the overlap, $m(t)/m_0$", yscale="log")
    axes[0].set_title(r"$\Delta_2 = 0.8$, above the Langevin threshold 0.707")
    axes[0].legend(fontsize=8)
    threshold = float(found.threshold_theory.values.reshape(-1)[0])
    axes[1].axvline(threshold, color="grey", linestyle=":", linewidth=1)
    axes[1].axhline(1.0, color="grey", linewidth=0.8)
    axes[1].text(
        threshold + 0.004, 0.95, "Langevin threshold", fontsize=8, va="top", transform=axes[1].get_xaxis_transform()
    )
    axes[1].set(xlabel=label("matrix_noise", r"\Delta_2"), ylabel=f"growth until time {until:g}", yscale="log")
    axes[1].set_title("message passing grows up to $\\Delta_2 = 1$")
    draw_runs(axes[2], points, "arm", str, divide=True)
    axes[2].set_title(rf"$\Delta_2 = 0.8$, $m_0 = 0.2$: N → ∞ (lines), N = {int(points['size'][-1])}")
    axes[2].legend(fontsize=8)
    figure.suptitle(
        "A tensor that is weak at first lets Langevin dynamics follow the matrix (Δ₃ = 1; left and middle: $m_0 = 10^{-4}$)",
        fontsize=11,
    )
    return figure


WAITING = (0.5, 2.0, 6.0, 15.0)


def aging(quick: bool) -> dict[str, Any]:
    until, steps = (40.0, 300) if quick else (40.0, 1600)
    lags = np.geomspace(0.05, 25.0, 28)
    times = np.unique(
        np.round([0.0, *(w + lag for w in WAITING for lag in (0.0, *lags) if w + lag <= until), until], 9)
    )
    model = Langevin(matrix_noise=0.9, tensor_noise=0.5, initial_overlap=0.0, times=times, waiting=WAITING)
    line = Study(model, numerics={"steps": steps, "tolerance": 2e-2}).run()
    lags = np.geomspace(0.1, 4.0, 6)
    times = np.unique(np.round([0.0, *(w + lag for w in WAITING[:3] for lag in lags)], 9))
    size, seeds = (40, 4) if quick else (120, 12)
    small = model.replace(times=times, waiting=WAITING[:3])
    return {"": line, "experiment": Study(small, sizes=[size], seeds=seeds).run()}


def draw_aging(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    line, points = data[""], data["experiment"]
    figure, axis = plt.subplots(figsize=(5.6, 4.0))
    size = int(points["size"][-1])
    for i, wait in enumerate(line.waiting.values):
        at = line.correlation_theory.sel(waiting=wait)
        later = line.time.values > wait
        axis.plot(line.time.values[later] - wait, at.values[later], color=COLOURS[i], label=f"$t_w$ = {wait:g}")
        if wait in points.waiting.values:
            runs = points.correlation_simulated.sel(size=size, waiting=wait)
            wanted = np.geomspace(0.1, 4.0, 6)
            index = [int(np.argmin(abs(points.time.values - wait - lag))) for lag in wanted]
            runs = runs.isel(time=index)
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            lag = points.time.values[index] - wait
            axis.errorbar(lag, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.8)
    axis.axhline(float(line.plateau_theory), color="grey", linestyle=":", linewidth=1)
    axis.text(0.055, float(line.plateau_theory) + 0.015, "plateau, $(1-q)^2Q''(q) = T^2$", fontsize=8)
    log_axis(axis.xaxis)
    axis.set(xlabel=r"time after waiting, $\tau$", ylabel=r"correlation, $C(t_w + \tau, t_w)$", ylim=(0, 1))
    axis.set_title(f"N → ∞ (lines), N = {size} (points)")
    axis.legend(fontsize=8)
    figure.suptitle("A sampler without a signal ages: the older, the slower (Δ₂ = 0.9, Δ₃ = 0.5)", fontsize=10)
    return figure


RECIPES = {
    "langevin-threshold": Recipe(
        threshold,
        draw_threshold,
        sentence="The time Langevin dynamics takes to leave its glassy states diverges where message passing still succeeds.",
    ),
    "langevin-annealing": Recipe(
        annealing,
        draw_annealing,
        sentence="A small overlap grows under annealed Langevin dynamics where it does not with a constant tensor.",
    ),
    "langevin-recovery": Recipe(
        recovery,
        draw_recovery,
        sentence="An annealed sampler reaches message passing's overlap while one with a constant tensor is still far below it.",
    ),
    "langevin-aging": Recipe(
        aging,
        draw_aging,
        sentence="Correlations of a Langevin sampler in the glassy phase decay more slowly the longer it has run.",
    ),
}
