"""The plot of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .predict import Prediction


def draw(result: Prediction, ax: Axes | None = None) -> Figure:
    """The theory nearest to the points as a line, any other dashed, fitted points with error bars, the best penalty."""
    from ..render.plots import COLOURS, INK, house_style

    with house_style():
        import matplotlib.pyplot as plt

        if ax is None:
            figure, ax = plt.subplots(figsize=(5.6, 4.0))
            plt.close(figure)
        x = result.line[result.over]
        for k, name in enumerate(result.names):
            ax.plot(x, result.line[name], "-" if k == 0 else "--", color=COLOURS[k], label=f"theory, {name}")
        fitted = result.fitted
        swept = fitted.rows if result.over == "rows" else fitted.penalty
        if len(swept):
            ax.errorbar(
                swept, fitted.mean, fitted.error, fmt="o", color=INK, zorder=3,
                label=f"fits of your pipeline, {fitted.repeats} each, held-out rows",
            )  # fmt: skip
        if result.over == "penalty" and np.isfinite(result.best.penalty) and x[0] <= result.best.penalty <= x[-1]:
            ax.plot(
                result.best.penalty, result.best.value, "*", ms=11, color=COLOURS[3], label="best penalty of the theory"
            )
        if result.over == "rows" and x[-1] > result.rows:
            ax.axvline(result.rows, color=INK, lw=0.8, ls=":", label=f"your {result.rows} rows")
        label = "rows" if result.over == "rows" else f"penalty ({result.penalty_is}), {result.held_rows} rows"
        scale = "log" if result.observable == "mean squared error" else "linear"
        ax.set(
            xlabel=label,
            ylabel=result.observable,
            xscale="log",
            yscale=scale,
            title=f"{result.learner}, {result.features} features",
        )
        from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

        several = [(ax.xaxis, (1.0, 2.0, 5.0))] if x[-1] < 1000 * x[0] and x[0] >= 1e-3 and x[-1] < 1e6 else []
        for axis, subs in [*several, *([(ax.yaxis, (1.0, 2.0, 3.0, 5.0, 7.0))] if scale == "log" else [])]:
            axis.set_major_locator(LogLocator(subs=subs, numticks=12))
            axis.set_major_formatter(ScalarFormatter())
            axis.set_minor_formatter(NullFormatter())
        ax.legend()
    return ax.figure  # type: ignore[return-value]
