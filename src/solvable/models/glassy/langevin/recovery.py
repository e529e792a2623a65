"""Annealed sampling until the signal is found: two-time equations at long times, and samplers of large systems."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.methods.flows.two_time import Mixture, relax
from solvable.render.plots import COLOURS, LINES, MARKERS, label, log_axis

from .._landscape import Covariance
from .._recovery import WEAKENED, recover_all
from .._state_evolution import blind_overlap

NOISES = (0.75, 0.8, 0.85)  # Δ₂, beyond the threshold of Langevin dynamics
PACES = (0.0, 20.0, 60.0, 120.0)  # τ of the annealing, zero for none
TINY, UNTIL, STEPS = 1e-4, 1000.0, 13_440  # of the equations
NOISE, START, LAST = 0.8, 0.02, 600.0  # of the samplers: Δ₂, initial overlap, last time
SAMPLED = (0.0, 20.0, 60.0)
STOPS = (10.0, 25.0, 50.0, 100.0, 200.0, 300.0, 400.0, LAST)
SYSTEMS = {16_000: 12, 64_000: 4}
SHOWN = 121  # times kept of each solution


@partial(jax.jit, static_argnames="steps")
def _follow(noise: Array, pace: Array, start: Array, step: Array, steps: int) -> tuple[Array, Array]:
    def weights(t: Array) -> tuple[Array, Array]:
        slow = jnp.where(pace > 0, pace, 1.0)
        return jnp.ones_like(t), 1 / (1 + jnp.where(pace > 0, WEAKENED * jnp.exp(-t / slow), 0.0))

    path = relax(
        Mixture({2: 1 / (2 * noise), 3: 1 / 3}), step, steps, temperature=1.0, overlap=start, couplings=weights, tolerance=1.0,
        accuracy=1e-10,  # well below the overlap
    )  # fmt: skip
    return path.times, path.overlap


def annealed_overlap(noise: float, pace: float, start: float, until: float, steps: int) -> Any:
    """m(t) at p = 3, Δ₃ = 1, T = 1 by the two-time equations, and its relative change if steps are 4/3 times as long."""
    times, found = np.linspace(0.0, until, SHOWN), []
    for number in (steps, 2 * (3 * steps // 8)):
        t, m = _follow(*map(jnp.asarray, (noise, pace, start, until / number)), number)
        found.append(np.interp(times, np.asarray(t), np.asarray(m)))
    change = np.abs(found[1] / found[0] - 1)
    return xr.Dataset({"overlap": ("time", found[0]), "change": ("time", change)}, {"time": times})


def overlaps(noises: Any, paces: Any, start: float, until: float, steps: int) -> Any:
    """The same by Δ₂ and τ."""
    rows = [[annealed_overlap(noise, pace, start, until, steps) for pace in paces] for noise in noises]
    table = xr.combine_nested(rows, concat_dim=["matrix_noise", "pace"])
    return table.assign_coords(matrix_noise=list(noises), pace=list(paces)).assign_attrs(start=start)


def goals(noises: Any) -> list[float]:
    """The overlap that message passing reaches at every Δ₂."""
    return [float(blind_overlap("bayes", Covariance(jnp.asarray(n), jnp.ones(()), 3))) for n in noises]


def recovery(quick: bool) -> dict[str, Any]:
    """Minutes on an accelerator, hours on two cores; the samplers' tensors are diluted, with both signs of the noise."""
    if quick:
        tiny, near = overlaps(NOISES[:1], PACES[:2], TINY, 20.0, 200), overlaps([NOISE], SAMPLED[:2], START, 20.0, 200)
        systems, paces, stops = {100: 2, 200: 2}, SAMPLED[:2], STOPS[:2]
    else:
        tiny = overlaps(NOISES, PACES, TINY, UNTIL, STEPS)
        near = overlaps([NOISE], SAMPLED, START, LAST, round(LAST * STEPS / UNTIL))
        systems, paces, stops = SYSTEMS, SAMPLED, STOPS
    runs = recover_all(systems, "diluted", [NOISE], stops, warm=True, paces=paces, overlap=START)
    return {
        "": tiny.assign(message_passing=("matrix_noise", goals(tiny.matrix_noise.values))),
        "line": near,
        "experiment": runs,
    }


def draw_recovery(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    tiny, line, runs = data[""], data["line"], data["experiment"]
    number = tiny.sizes["matrix_noise"]
    figure, grid = plt.subplots(1, number + 1, figsize=(3.9 * (number + 1), 4.0), layout="constrained", squeeze=False)
    axes = grid[0]
    for axis, noise in zip(axes, tiny.matrix_noise.values, strict=False):
        for i, pace in enumerate(tiny.pace.values):
            m = tiny.overlap.sel(matrix_noise=noise, pace=pace)
            name = rf"annealed, $\tau$ = {pace:g}" if pace else "constant tensor"
            axis.plot(tiny.time, m, LINES[i], color=COLOURS[i], label=name)
        axis.axhline(
            float(tiny.message_passing.sel(matrix_noise=noise)), color="0.4", linestyle=":", label="message passing"
        )
        axis.set(xlabel=label("time", "t"), yscale="log", ylim=(float(tiny.attrs["start"]) / 3, 1.0))
        axis.set_title(rf"$\Delta_2$ = {noise:g}, from $m_0$ = {float(tiny.attrs['start']):g}, N → ∞", fontsize=10)
    axes[0].set(ylabel=label("overlap with the signal", "m"))
    axes[0].legend(fontsize=8)
    for i, pace in enumerate(line.pace.values):
        at, colour = line.overlap.sel(pace=pace).isel(matrix_noise=0), COLOURS[i]
        axes[-1].plot(line.time, at, LINES[i], color=colour)
        for j, size in enumerate(runs["size"].values):
            seen = runs.overlap.sel(pace=pace, size=size).isel(matrix_noise=0).mean("sign")
            error = seen.std("seed", ddof=1) / np.sqrt(seen.count("seed"))
            axes[-1].errorbar(runs.time * (1 + 0.04 * j), seen.mean("seed"), error, fmt=MARKERS[j], color=colour, markersize=4,
                              linestyle="none", label=f"N = {int(size):,}" if i == 0 else None)  # fmt: skip
    log_axis(axes[-1].xaxis)
    axes[-1].set(xlabel=label("time", "t"), xlim=(5, None), ylim=(0, None))
    axes[-1].set_title(rf"$\Delta_2$ = {NOISE:g}, from $m_0$ = {START:g}: N → ∞ (lines), samplers", fontsize=10)
    axes[-1].legend(fontsize=8)
    figure.suptitle(
        "Annealed samplers find the signal beyond the Langevin threshold 0.707 (Δ₃ = 1, T = 1)", fontsize=11
    )
    return figure
