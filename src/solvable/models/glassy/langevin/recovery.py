"""Annealed sampling until the signal is found, by the two-time equations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.methods.flows.two_time import Mixture, relax
from solvable.methods.flows.two_time_log import relax_log
from solvable.render.plots import COLOURS, LINES, label

from .._landscape import Covariance
from .._recovery import WEAKENED
from .._state_evolution import blind_overlap

NOISE = 0.8  # Δ₂, beyond the threshold of Langevin dynamics
PACE = 20.0  # τ of the annealing
START, UNTIL, STEP = 0.03, 200.0, 0.125
SHOWN = 121  # times kept of each solution


def _covariance(noise: float) -> Mixture:
    return Mixture({2: jnp.asarray(1 / (2 * noise)), 3: jnp.asarray(1 / 3)})  # arrays: one program for all values


def annealed_overlap(noise: float, pace: float, start: float, times: Any, step: float) -> tuple[np.ndarray, np.ndarray]:
    """m(t) at p = 3, Δ₃ = 1, T = 1 by the two-time equations, and its relative change if steps are 4/3 times as long."""

    def weights(t: Array) -> tuple[Array, Array]:
        return jnp.ones_like(t), 1 / (1 + WEAKENED * jnp.exp(-t / pace))

    found, steps = [], round(times[-1] / step)
    for number in (2 * (steps // 2), 2 * (3 * steps // 8)):
        path = relax(
            _covariance(noise), jnp.asarray(times[-1] / number), number, temperature=1.0, overlap=start,
            couplings=weights, tolerance=1.0, accuracy=1e-9,  # well below the overlap
        )  # fmt: skip
        found.append(np.interp(times, np.asarray(path.times), np.asarray(path.overlap)))
    return found[0], np.abs(found[1] / found[0] - 1)


def constant_overlap(noise: float, start: float, times: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same with a constant tensor, by steps in ln t; its error relative to m as the solver estimates it."""
    path = relax_log(
        _covariance(noise), float(times[-1]), temperature=1.0, overlap=start, tolerance=1.0,
    )  # fmt: skip
    grid = [
        np.append(first, np.asarray(x)) for first, x in ((0.0, path.times), (start, path.overlap), (0.0, path.error))
    ]
    m = np.interp(times, grid[0], grid[1])
    return m, np.interp(times, grid[0], grid[2]) / m


def recovery(quick: bool) -> dict[str, Any]:
    until, step = (10.0, 0.2) if quick else (UNTIL, STEP)
    times = np.linspace(0.0, until, SHOWN)
    return {
        "": as_lines(times, (constant_overlap(NOISE, START, times), annealed_overlap(NOISE, PACE, START, times, step)))
    }


def as_lines(times: np.ndarray, paths: Any) -> Any:
    """The overlaps of both protocols and their relative errors, beside what message passing reaches."""
    lines = xr.Dataset(
        {
            name: (("pace", "time"), np.array([path[i] for path in paths]))
            for i, name in enumerate(("overlap", "change"))
        },
        {"pace": [0.0, PACE], "time": times},
    )
    goal = blind_overlap("bayes", Covariance(jnp.asarray(NOISE), jnp.ones(()), 3))
    return lines.assign(message_passing=float(goal), matrix_noise=NOISE)


def draw_recovery(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines = data[""]
    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for j, pace in enumerate(lines.pace.values):
        words = rf"tensor weak at first, $\tau$ = {pace:g}" if pace else "constant tensor"
        axis.plot(lines.time, lines.overlap.sel(pace=pace), LINES[1 - j], color=COLOURS[j], label=words)
    axis.axhline(float(lines.message_passing), color="0.4", linestyle=":", label="message passing")
    axis.set(xlabel=label("time", "t"), ylabel=label("overlap with the signal", "m"), ylim=(0, 0.56))
    axis.legend(fontsize=8, loc="upper left")
    figure.suptitle(
        f"Annealed and plain sampling from the overlap {START:g}, beyond the Langevin\nthreshold 0.707 "
        f"($\\Delta_2$ = {NOISE:g}, $\\Delta_3$ = 1, T = 1, N → ∞)",
        fontsize=10,
    )
    return figure
