"""The learning curve measured on subsets of the rows, the power law through it, and the plot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import nnls

from ._forecast_logistic import held_out_margins
from ._forecast_ridge import squared_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .forecast import Forecast

SHARES = {"square": (0.2, 0.3, 0.45, 0.65, 0.9), "logistic": (0.3, 0.45, 0.65, 0.85)}
REPEATS = {"square": 10, "logistic": 6}
EXPONENTS = np.linspace(0.1, 2.0, 20)


def held_out_error(
    features: np.ndarray, targets: np.ndarray, train: np.ndarray, test: np.ndarray, loss: str, penalties: np.ndarray
) -> np.ndarray:
    """Mean squared error, or fraction of wrong labels, on the rows `test` after a fit to the rows `train`, per penalty."""
    if loss == "square":
        return squared_errors(features, targets, train, test, penalties).mean(axis=0)
    return np.mean(held_out_margins(features, targets, train, test, penalties) < 0, axis=0)


def measured_curve(
    features: np.ndarray, targets: np.ndarray, loss: str, penalty: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Errors on held-out rows after fits to several fractions of the rows, each drawn several times."""
    rows = len(targets)
    sizes = np.rint(np.array(SHARES[loss]) * rows).astype(int)
    seen = np.empty((len(sizes), REPEATS[loss]))
    for k, n in enumerate(sizes):
        for r in range(REPEATS[loss]):
            order = rng.permutation(rows)
            while loss == "logistic" and np.ptp(targets[order[:n]]) == 0:
                order = rng.permutation(rows)
            one = held_out_error(features, targets, order[:n], order[n:], loss, np.array([penalty]))
            seen[k, r] = one[0]
    return {"rows": sizes, "measured": seen.mean(axis=1), "error": seen.std(axis=1, ddof=1) / np.sqrt(seen.shape[1])}


def power_law(
    rows: np.ndarray, values: np.ndarray, weights: np.ndarray | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """a + b n^−c with a, b ≥ 0 and c in [0.1, 2], by weighted least squares on relative errors.

    >>> law = power_law(np.array([10.0, 20, 40, 80]), 1 + 3 / np.array([10.0, 20, 40, 80]))
    >>> bool(abs(law(np.array([300.0]))[0] - 1.01) < 1e-6)
    True
    """
    rows, values = np.asarray(rows, float), np.maximum(np.asarray(values, float), 1e-4 * max(np.max(values), 1e-12))
    weight = np.ones(len(rows)) if weights is None else np.asarray(weights, float)
    best = (np.inf, np.zeros(2), 1.0)
    for c in EXPONENTS:
        matrix = weight[:, None] * np.stack([np.ones_like(rows), rows**-c], axis=1) / values[:, None]
        scale = np.array([1.0, rows[0] ** c])
        found, missed = nnls(matrix * scale, weight)
        if missed < best[0]:
            best = (missed, found * scale, c)
    _, (a, b), c = best
    return lambda n: a + b * np.asarray(n, float) ** -c


def draw_forecast(result: Forecast, ax: Axes | None = None) -> Figure:
    """Plot the measured points, the forecast with its band (dashed where out of reach) and the power law, log-log."""
    from ..render.plots import COLOURS, INK, house_style

    with house_style():
        import matplotlib.pyplot as plt
        from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

        if ax is None:
            figure, ax = plt.subplots(figsize=(5.4, 3.9))
            plt.close(figure)
        line: dict[str, Any] = result.line or {
            "rows": result.sizes, "level": result.level, "band": result.level_band, "reached": result.reached,
        }  # fmt: skip
        n, level = np.r_[result.rows, line["rows"]], np.r_[result.now, line["level"]]
        band = np.concatenate([result.now_band[None], line["band"]])
        reached = np.r_[True, line["reached"]]
        ax.fill_between(
            n,
            np.fmax(band[:, 0], 0.05 * level),
            band[:, 1],
            color=COLOURS[0],
            alpha=0.18,
            linewidth=0,
            label="90 % band of the level",
        )
        ax.plot(n, np.where(reached, level, np.nan), color=COLOURS[0], label="forecast")
        if not reached.all():
            first = max(int(np.argmin(reached)) - 1, 0)
            ax.plot(n[first:], level[first:], "--", color=COLOURS[0], label="out of reach: extrapolated")
        if result.curve is not None:
            ax.errorbar(
                result.curve["rows"], result.curve["measured"], result.curve["error"], fmt="o", color=INK,
                label="measured on subsets",
            )  # fmt: skip
        if "power_law" in line:
            ax.plot(line["law_rows"], line["power_law"], ":", color=COLOURS[1], label="power law through the subsets")
        ax.plot(
            [result.rows], [result.diagnostics["leave_one_out"]], "D", color=COLOURS[2], label="leave-one-out, all rows"
        )
        ax.set(xlabel="rows", ylabel=result.observable, xscale="log", yscale="log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0), numticks=12))
            axis.set_major_formatter(ScalarFormatter())
            axis.set_minor_formatter(NullFormatter())
        ax.legend()
    return ax.figure  # type: ignore[return-value]
