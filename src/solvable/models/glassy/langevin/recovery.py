"""Annealed sampling until the signal is found: two-time equations, and samplers of large systems."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.methods.flows.two_time import Mixture, relax
from solvable.methods.flows.two_time_log import relax_log
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis

from .._landscape import Covariance
from .._recovery import WEAKENED, recover_all
from .._state_evolution import blind_overlap

NOISES = (0.75, 0.8, 0.85)  # Δ₂, beyond the threshold of Langevin dynamics
PACE = 20.0  # τ of the annealing
START, UNTIL, STEP = 0.03, 200.0, 0.125
SAMPLED = 0.8  # Δ₂ of the samplers
STOPS = (10.0, 25.0, 50.0, 75.0, 100.0, 150.0, UNTIL)
SYSTEMS = {2000: 6}
SHOWN = 121  # times kept of each solution


@jax.jit
def _covariance(noise: Array) -> Mixture:
    return Mixture({2: 1 / (2 * noise), 3: jnp.asarray(1 / 3)})


def annealed_overlap(noise: float, pace: float, start: float, times: Any, step: float) -> tuple[np.ndarray, np.ndarray]:
    """m(t) at p = 3, Δ₃ = 1, T = 1 by the two-time equations, and its relative change if steps are 4/3 times as long."""

    def weights(t: Array) -> tuple[Array, Array]:
        return jnp.ones_like(t), 1 / (1 + WEAKENED * jnp.exp(-t / pace))

    found, steps = [], round(times[-1] / step)
    for number in (2 * (steps // 2), 2 * (3 * steps // 8)):
        path = relax(
            _covariance(jnp.asarray(noise)), jnp.asarray(times[-1] / number), number, temperature=1.0, overlap=start,
            couplings=weights, tolerance=1.0, accuracy=1e-9,  # well below the overlap
        )  # fmt: skip
        found.append(np.interp(times, np.asarray(path.times), np.asarray(path.overlap)))
    return found[0], np.abs(found[1] / found[0] - 1)


def constant_overlap(noise: float, start: float, times: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same with a constant tensor, by steps in ln t; its error relative to m as the solver estimates it."""
    path = relax_log(
        _covariance(jnp.asarray(noise)), float(times[-1]), temperature=1.0, overlap=start, tolerance=1.0,
    )  # fmt: skip
    grid = [
        np.append(first, np.asarray(x)) for first, x in ((0.0, path.times), (start, path.overlap), (0.0, path.error))
    ]
    m = np.interp(times, grid[0], grid[1])
    return m, np.interp(times, grid[0], grid[2]) / m


def goals(noises: Any) -> list[float]:
    """The overlap that message passing reaches at every Δ₂."""
    return [float(blind_overlap("bayes", Covariance(jnp.asarray(n), jnp.ones(()), 3))) for n in noises]


def recovery(quick: bool) -> dict[str, Any]:
    """The samplers' tensors are diluted, with both signs of the noise."""
    noises, until, step = (NOISES[1:2], 10.0, 0.2) if quick else (NOISES, UNTIL, STEP)
    systems, stops = ({100: 2, 200: 2}, STOPS[:1]) if quick else (SYSTEMS, STOPS)
    times = np.linspace(0.0, until, SHOWN)
    rows = [(constant_overlap(n, START, times), annealed_overlap(n, PACE, START, times, step)) for n in noises]
    dims = ("matrix_noise", "pace", "time")
    lines = xr.Dataset(
        {name: (dims, np.array([[m[i] for m in row] for row in rows])) for i, name in enumerate(("overlap", "change"))},
        {"matrix_noise": list(noises), "pace": [0.0, PACE], "time": times},
    )
    runs = recover_all(systems, "diluted", [SAMPLED], stops, warm=True, paces=(0.0, PACE), overlap=START)
    return {"": lines.assign(message_passing=("matrix_noise", goals(noises))), "experiment": runs}


def draw_recovery(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, runs = data[""], data["experiment"]
    figure, axes = plt.subplots(1, 2, figsize=(10.6, 4.2), layout="constrained")
    for i, noise in enumerate(lines.matrix_noise.values):
        at = lines.sel(matrix_noise=noise)
        for j, pace in enumerate(lines.pace.values):
            axes[0].plot(lines.time, at.overlap.sel(pace=pace), LINES[1 - j], color=COLOURS[i],
                         label=rf"$\Delta_2$ = {noise:g}" if pace else None)  # fmt: skip
        axes[0].plot(1.02 * float(lines.time[-1]), float(at.message_passing), "<", color=COLOURS[i], clip_on=False)
    axes[0].plot([], [], LINES[1], color="0.4", label="constant tensor")
    axes[0].set(xlabel=label("time", "t"), ylabel=label("overlap with the signal", "m"), yscale="log")
    axes[0].set_title(rf"N → ∞: tensor weak at first ($\tau$ = {PACE:g}), or constant; ◂: message passing", fontsize=9)
    axes[0].legend(fontsize=8)
    shown = runs.isel(matrix_noise=0)
    line = lines.sel(matrix_noise=float(shown.matrix_noise))
    for j, pace in enumerate(runs.pace.values):
        words = rf"annealed, $\tau$ = {pace:g}" if pace else "constant tensor"
        axes[1].plot(line.time, line.overlap.sel(pace=pace), LINES[1 - j], color=COLOURS[j], label=words)
        for k, size in enumerate(runs["size"].values):
            seen = shown.overlap.sel(pace=pace, size=size).mean("sign")
            error = seen.std("seed", ddof=1) / np.sqrt(seen.count("seed"))
            axes[1].errorbar(runs.time * (1 + 0.03 * k), seen.mean("seed"), error, fmt=MARKERS[k], color=COLOURS[j], markersize=4,
                             linestyle="none", label=f"N = {int(size):,}" if j else None)  # fmt: skip
    log_axis(axes[1].xaxis)
    axes[1].set(xlabel=label("time", "t"), xlim=(5, None), ylim=(0, None))
    axes[1].set_title(rf"samplers (points) and N → ∞ (lines), $\Delta_2$ = {float(shown.matrix_noise):g}", fontsize=9)
    axes[1].legend(fontsize=8)
    figure.suptitle(
        f"An annealed sampler finds the signal from the overlap {START:g}, beyond the Langevin threshold 0.707 "
        "(Δ₃ = 1, T = 1)",
        fontsize=11,
    )
    return figure
