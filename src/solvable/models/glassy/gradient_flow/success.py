"""How often gradient flow finds the signal between the lines of the phase diagram, in systems of growing size."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.plots import COLOURS, MARKERS, label

from .._landscape import Covariance
from .._recovery import START, recover_all
from .._state_evolution import fixed_points
from .._thresholds import gradient_flow, likelihood_message_passing, trivial_landscape

NOISES = (0.3, 0.36, 0.4, 0.42, 0.45, 0.48, 0.5, 0.52, 0.55, 0.58, 0.6, 0.62, 0.65, 0.68, 0.7, 0.75)
STOPS = (25.0, 50.0, 100.0, 200.0)
SYSTEMS = {8000: 16}
UNTIL = 100.0  # last of these times to which the two-time equations are followed
STEP, THINNED = 1 / 12, 10  # of their solution, of which every tenth value is kept
GRID = (0.4, 0.44, 0.48, 0.52, 0.56, 0.6, 0.64, 0.68, 0.7, 0.72, 0.75)  # Δ₂ of their solutions
SUCCESS = 0.9  # of the overlap of the likelihood's informed fixed point


def success(quick: bool) -> dict[str, Any]:
    """Flows of both signs of the noise. An hour on two cores, minutes on an accelerator."""
    systems, noises, stops = ({100: 4}, NOISES[::5], STOPS[:1]) if quick else (SYSTEMS, NOISES, STOPS)
    table = recover_all(systems, "diluted", noises, stops).isel(pace=0, drop=True)
    until, grid = (5.0, GRID[::5]) if quick else (UNTIL, GRID)
    return {"": table.assign(goal=("matrix_noise", goals(noises))), "line": predicted(max(systems), grid, until)}


def predicted(size: int, noises: Any, until: float) -> Any:
    """m(t) of infinite systems that start with the same overlap as those of this size, and where it is to end.

    Small systems are not drawn: from the overlap 4/√N of N = 400 the equations predict success at Δ₂ = 0.7 by t = 50.
    """
    import jax
    import jax.numpy as jnp
    import xarray as xr

    from solvable.methods.flows.two_time import Mixture, relax

    steps = 2 * round(until / STEP / 2)

    @jax.jit
    def follow(noise: Any) -> Any:
        path = relax(
            Mixture({2: 1 / (2 * noise), 3: 1 / 3}), until / steps, steps, overlap=START * size**-0.5, tolerance=0.1
        )
        return tuple(values[::THINNED] for values in (path.times, path.overlap, path.error))

    runs = [follow(jnp.asarray(noise)) for noise in noises]
    table = xr.Dataset(
        {name: (("matrix_noise", "time"), np.stack([np.asarray(run[i]) for run in runs]))
         for i, name in ((1, "overlap"), (2, "error"))},
        {"matrix_noise": list(noises), "time": np.asarray(runs[0][0])},
    )  # fmt: skip
    return table.assign(goal=("matrix_noise", goals(noises)))


def predicted_limit(line: Any, time: float) -> float:
    """The Δ₂ up to which infinite systems succeed by this time; NaN if it is not between the ends of the grid."""
    at = (line.overlap.interp(time=time) / line.goal - SUCCESS).values
    return _crossing(line.matrix_noise.values, at)


def seen_limit(table: Any, time: int) -> tuple[float, float]:
    """The Δ₂ up to which more than half of the largest systems' flows that did not condense succeed, and its error.

    The error is that of leaving out one system at a time.
    """
    found = succeeded(table, time).isel(size=-1)

    def limit(runs: Any) -> float:
        return _crossing(runs.matrix_noise.values, share(runs)[0].values - 0.5)

    number = found.sizes["seed"]
    without = [limit(found.isel(seed=[j for j in range(number) if j != i])) for i in range(number)]
    return limit(found), float(np.sqrt(number - 1) * np.std(without))


def _crossing(places: np.ndarray, values: np.ndarray) -> float:
    """Where values that are positive on the left become negative for the first time, by a line between two places."""
    negative = np.flatnonzero(values <= 0)
    if not len(negative) or negative[0] == 0:
        return float("nan")
    last = slice(negative[0] - 1, negative[0] + 1)
    return float(np.interp(0.0, -values[last], places[last]))


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


def draw_success(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    one, table, line = np.asarray(1.0), data[""], data["line"]
    lines = [float(f(3, one)) for f in (trivial_landscape, gradient_flow, likelihood_message_passing)]
    words = (
        "no spurious\nminima to\nthe left",
        "flow fails to\nthe right\n($N \\to \\infty$)",
        "message\npassing fails\nto the right",
    )
    size, last = int(table["size"][-1]), table.isel(size=-1)
    number = int(np.isfinite(last.overlap).isel(matrix_noise=0, time=0).sum())
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 4.2), layout="constrained", sharey=True)
    for j, time in enumerate(table.time.values):
        mean, error = share(succeeded(table, j).isel(size=-1))
        axes[0].errorbar(table.matrix_noise, mean, error, fmt=MARKERS[j] + "-", color=COLOURS[j], markersize=4, linewidth=1,
                         label=f"t = {time:g}")  # fmt: skip
        found = (last.overlap.isel(time=j) > SUCCESS * last.goal).sum(("seed", "sign")) / number
        gone = condensed(table, j).isel(size=-1).sum(("seed", "sign")) / number
        axes[1].plot(table.matrix_noise, found, MARKERS[j] + "-", color=COLOURS[j], markersize=4, linewidth=1)
        axes[1].plot(table.matrix_noise, gone, "x:", color=COLOURS[j], markersize=5, linewidth=1)
        limit = predicted_limit(line, time) if time <= float(line.time[-1]) else float("nan")
        if np.isfinite(limit):
            axes[0].plot(limit, 0.5, MARKERS[j], color=COLOURS[j], markersize=9, fillstyle="none")
    axes[0].plot([], [], "o", color="0.4", markersize=9, fillstyle="none", label="N → ∞, from the same overlap")
    for axis in axes:
        for place, name in zip(lines, words, strict=True):
            axis.axvline(place, color="0.5", linestyle=":", linewidth=1)
            axis.text(place + 0.003, 1.03, name, fontsize=7, va="bottom", ha="left")
        axis.axvspan(lines[0], lines[1], color="0.92", zorder=0)
        axis.set(xlabel=label("matrix_noise", r"\Delta_2"), ylim=(-0.05, 1.3))
    axes[0].set_ylabel("fraction of flows")
    axes[0].set_title("that find the signal, of those that did not condense", fontsize=10)
    axes[1].set_title(f"of all {number}: find the signal (lines), condense (crosses)", fontsize=10)
    axes[0].legend(fontsize=8, loc="lower left")
    figure.suptitle(
        f"Gradient flow from the overlap $4/\\sqrt{{N}}$ on diluted tensors, N = {size:,}: "
        "no change where spurious minima appear (grey; $\\Delta_3$ = 1)",
        fontsize=11,
    )
    return figure
