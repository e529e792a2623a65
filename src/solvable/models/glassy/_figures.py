"""Shared by the figures of Langevin dynamics and gradient flow: escape in theory, and theory beside simulations."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.plots import COLOURS, MARKERS, label, log_axis

from ._escape import decay_exponent, escape_rate, growth
from ._landscape import Covariance
from ._state_evolution import blind_overlap

STARTS = (1e-4, 1e-8)  # initial overlaps of the timed escapes


def growth_table(noises: Any, temperature: float, learner: str, quick: bool, order: int = 3) -> Any:
    """ln(m/m₀) of a vanishing overlap against time, for several values of Δ₂ at Δ_p = 1, and the escape times."""
    import jax.numpy as jnp
    import xarray as xr

    until, steps = (100.0, (0.2, 0.4)) if quick else (1e4, (0.15, 0.35))
    found, final = [], []
    for noise in noises:
        covariance = Covariance(noise, 1.0, order)
        found.append(growth(covariance, temperature, until, log_step=steps[0], logit_step=steps[1]))
        final.append(float(blind_overlap(learner, Covariance(jnp.asarray(noise), jnp.asarray(1.0), order))))
    names = ("logarithm", "rate", "multiplier", "error")
    table = xr.Dataset(
        {name: (("matrix_noise", "time"), np.stack([getattr(g, name) for g in found])) for name in names}
    )
    times = [[g.escape_time(start, 0.5 * m) if m > 0 else np.nan for start in STARTS]
             for g, m in zip(found, final, strict=True)]  # fmt: skip
    table["escape_time"] = (("matrix_noise", "start"), np.array(times))
    table["final"] = (("matrix_noise",), np.array(final))
    table["escape_rate"] = (("matrix_noise",), [escape_rate(Covariance(n, 1.0, order), temperature) for n in noises])
    table = table.assign_coords(matrix_noise=list(noises), time=found[0].times, start=list(STARTS))
    return table.assign_attrs(temperature=temperature, order=order)


def approach(critical: float, temperature: float, order: int = 3) -> Any:
    """The escape rate close to the threshold at Δ_p = 1, and the exponent with which it vanishes there."""
    import xarray as xr

    distance = np.geomspace(1e-3, 0.3 * critical, 13)
    rates = [escape_rate(Covariance(critical - d, 1.0, order), temperature) for d in distance]
    exponent = 1 / decay_exponent(Covariance(critical, 1.0, order), temperature)
    table = xr.Dataset({"rate": ("distance", rates)}, coords={"distance": distance})
    return table.assign(exponent=exponent, threshold=critical)


def draw_growth(axis: Any, table: Any, shown: Any, start: float = STARTS[0]) -> None:
    """Draw m(t) from a small overlap to half of message passing's overlap, which triangles mark."""
    for i, noise in enumerate(shown):
        at, final = table.sel(matrix_noise=noise), float(table.final.sel(matrix_noise=noise))
        m = start * np.exp(np.minimum(at.logarithm.values, 30.0))
        there = (m <= 0.5 * final) & (table.time.values > 0.1)
        axis.plot(table.time[there], m[there], color=COLOURS[i], label=rf"$\Delta_2$ = {noise:g}")
        axis.plot(1.3 * float(table.time[-1]), final, "<", color=COLOURS[i], clip_on=False, markersize=6)
    log_axis(axis.xaxis)
    axis.set(xlabel=label("time", "t"), ylabel=label("overlap", "m"), yscale="log", ylim=(start / 4, 1.0))
    axis.set_xlim(0.1, 1.3 * float(table.time[-1]))


def draw_escape_times(axis: Any, table: Any, near: Any) -> None:
    """Draw escape times from two initial overlaps, and their limits for a vanishing one."""
    critical = float(near.threshold)
    for i, start in enumerate(table.start.values):
        axis.plot(table.matrix_noise, table.escape_time.sel(start=start), MARKERS[i], color=COLOURS[i], markersize=4.5,
                  label=rf"from $m_0 = 10^{{{round(np.log10(start)):d}}}$")  # fmt: skip
        axis.plot(critical - near.distance, np.log(1 / start) / near.rate, "--", color=COLOURS[i], linewidth=1.2)
    axis.plot([], [], "--", color="0.4", label=rf"$\ln(1/m_0)/\Lambda$, exponent {float(near.exponent):.2f}")
    axis.set(xlabel=label("matrix_noise", r"\Delta_2"), ylabel="escape time", yscale="log")


def draw_runs(axis: Any, points: Any, over: str, names: Any, *, divide: bool = False) -> None:
    """Draw the overlap against time: theory as lines, simulation as points with error bars."""
    size = int(points["size"][-1])
    for i, value in enumerate(points[over].values):
        at = points.sel({over: value, "size": size})
        runs, line = at.overlap_simulated, at.overlap_theory
        scale = float(line[0]) if divide else 1.0
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.plot(points.time, line / scale, color=COLOURS[i], label=names(value))
        axis.errorbar(points.time, runs.mean("seed") / scale, error / scale, fmt=MARKERS[i], color=COLOURS[i],
                      markersize=3.8)  # fmt: skip
    axis.set(xlabel=label("time", "t"), ylabel="growth of the overlap, $m(t)/m_0$" if divide else label("overlap", "m"))
