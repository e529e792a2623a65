"""Samplers of large systems with and without annealing: how far they recover the signal after a long time."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.plots import COLOURS, label, log_axis

from .._landscape import Covariance
from .._recovery import recover_all
from .._state_evolution import blind_overlap

NOISES = (0.65, 0.8, 0.9)  # Δ₂, the first below the threshold of Langevin dynamics
PACES = (0.0, 6.0, 20.0, 100.0)  # τ of the annealing, zero for none
STOPS = (25.0, 50.0, 100.0, 200.0, 400.0, 800.0)
SYSTEMS = {4000: 16, 16_000: 12}
CRITICAL = 0.5**0.5


def recovery(quick: bool) -> dict[str, Any]:
    """Diluted tensors at T = 1, both signs of the noise. Hours on two cores, minutes on an accelerator."""
    systems, stops = ({40: 2, 100: 2}, STOPS[:1]) if quick else (SYSTEMS, STOPS)
    table = recover_all(systems, "diluted", NOISES, stops, warm=True, paces=PACES)
    return {"": table.assign(message_passing=("matrix_noise", goals()))}


def goals() -> list[float]:
    """The overlap that message passing reaches at every Δ₂."""
    import jax.numpy as jnp

    return [float(blind_overlap("bayes", Covariance(jnp.asarray(n), jnp.asarray(1.0), 3))) for n in NOISES]


def mean_and_error(runs: Any) -> tuple[Any, Any]:
    """Mean over systems and signs of the noise, and its error from the spread between systems."""
    by_system = runs.mean("sign")
    return by_system.mean("seed"), by_system.std("seed", ddof=1) / np.sqrt(by_system.count("seed"))


def draw_recovery(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    size = int(table["size"][-1])
    figure, axes = plt.subplots(
        1, len(table.matrix_noise), figsize=(12.6, 4.0), sharex=True, sharey=True, layout="constrained"
    )
    for axis, noise in zip(axes, table.matrix_noise.values, strict=True):
        at = table.sel(matrix_noise=noise)
        for i, pace in enumerate(table.pace.values):
            for n in table["size"].values:
                mean, error = mean_and_error(at.overlap.sel(pace=pace, size=n))
                name = (f"annealed, τ = {pace:g}" if pace else "constant tensor") if n == size else None
                axis.errorbar(table.time, mean, error, fmt="o-" if n == size else "s:", color=COLOURS[i], markersize=4,
                              linewidth=1, label=name)  # fmt: skip
        axis.axhline(float(at.message_passing), color="0.3", linestyle="--", linewidth=1.2, label="message passing")
        log_axis(axis.xaxis)
        axis.set(xlabel=label("time", "t"))
        side = "below" if noise < CRITICAL else "above"
        axis.set_title(rf"$\Delta_2$ = {noise:g}, {side} the Langevin threshold", fontsize=10)
    axes[0].set(ylabel=label("overlap with the signal", "m"))
    axes[-1].legend(fontsize=8, loc="upper left")
    figure.suptitle(
        f"Samplers from the overlap $4/\\sqrt{{N}}$, diluted tensors (Δ₃ = 1, T = 1; circles: N = {size:,}, "
        f"squares: N = {int(table['size'][0]):,})",
        fontsize=11,
    )
    return figure
