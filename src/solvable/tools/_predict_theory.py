"""The learning curve of a pipeline from the covariance of its features: one theory for each kind of loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import InvalidValue
from ..methods.random_matrices.effective_ridge import Shape, leave_one_out
from ..methods.random_matrices.lasso import LeastSquares, lasso_error
from ._forecast_logistic import AROUND, NOT_PROBIT, approximate_leave_one_out, capped, misfit
from ._forecast_ridge import HEAVY, RidgeTransport, transport
from ._predict_pipeline import Reading
from .logistic_replica import CHANNELS, Channel, LogisticSolution, most_signal, solve_logistic, solve_margins

MOST_CELLS, MOST_KERNEL, MOST_LASSO = 20_000_000, 1200, 600
"""Features that the theory looks at; rows of a kernel machine; columns of the lasso."""
CHANNEL_ROWS = 800


class Theory(Protocol):
    """Errors at pairs (n, L); `name` says what is assumed of the rows."""

    @property
    def name(self) -> str: ...

    def error(self, rows: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        """The observable on a new row after training on n rows with penalty L, at every pair; NaN without a solution."""
        ...


class RidgeTheory(NamedTuple):
    """Ridge regression on rows of one scale: leave-one-out on all N rows, times the theory's ratio of n to N rows.

    The ratio is the median over three fills of the spectrum.
    """

    whole: RidgeTransport
    name: str = "Gaussian rows"

    def error(self, rows: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        return _anchored(self.whole, lambda L: self.whole.shapes, rows, penalty)


class EllipticalTheory(NamedTuple):
    """The same on rows of random scale, with their scales and residuals at one penalty."""

    whole: RidgeTransport
    penalty: float
    name: str = "rows of random scale"

    def error(self, rows: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        return _anchored(self.whole, lambda least: self.whole.elliptical(max(self.penalty, least)), rows, penalty)


def least_penalty(whole: RidgeTransport) -> float:
    """A penalty that changes nothing but keeps κ positive."""
    return 1e-9 * whole.sample.trace


def _anchored(whole: RidgeTransport, shapes_at: Callable, rows: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    sample, least = whole.sample, least_penalty(whole)
    L = np.maximum(np.asarray(penalty, float), least)
    each, back = np.unique(L, return_inverse=True)
    level = (leave_one_out(sample, each / sample.freedom)[0] ** 2).mean(axis=0)[back]
    now = np.full(len(L), float(sample.rows))
    wide = lambda s: L[:, None] if isinstance(s, Shape) else L  # noqa: E731
    return np.median([level * s.error(rows, wide(s)) / s.error(now, wide(s)) for s in shapes_at(least)], axis=0)


class MarginTheory(NamedTuple):
    """A linear classifier, its labels from two Gaussian clusters or from the sign of a Gaussian field.

    Errors are medians over three fills of the spectrum.
    """

    whole: RidgeTransport
    share: float
    channel: Channel
    loss: str
    shrinks: bool

    @property
    def name(self) -> str:  # type: ignore[override]
        return "Gaussian clusters" if self.channel == "clusters" else "Gaussian rows, labels from a Gaussian field"

    def error(self, rows: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        loss = "square" if self.loss == "ridge_classifier" else self.loss
        each = [
            solve_margins(
                capped(s, self.share, self.channel), self.share, rows, penalty, self.channel, loss, self.shrinks
            ).error
            for s in self.whole.shapes
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where no fill of the spectrum has a solution: NaN
            return np.nanmedian(each, axis=0)


class LassoTheory(NamedTuple):
    """The lasso and the elastic net."""

    fit: LeastSquares
    mixing: float
    name: str = "Gaussian rows"

    def error(self, rows: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        return lasso_error(self.fit, rows, penalty, self.mixing)


def kernel_features(matrix: np.ndarray) -> np.ndarray:
    """Rows whose scalar products are the kernels."""
    e, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return vectors * np.sqrt(np.maximum(e, 0.0))


def theories(reading: Reading, features: np.ndarray, targets: np.ndarray, rng: np.random.Generator) -> list[Theory]:
    """The theories of a pipeline: the main one first. `targets` are ±1 for classifiers."""
    if reading.loss == "lasso":
        rows, columns = features.shape
        if columns > MOST_LASSO or rows < 3 * columns:
            raise InvalidValue(
                f"the theory of the lasso needs at most {MOST_LASSO} features and three rows for each, but there are {columns} "
                f"features and {rows} rows."
            )
        return [LassoTheory(LeastSquares.of(features, targets), reading.mixing)]
    whole = transport(features, targets, reading.intercept)
    if reading.loss == "square":
        uneven = whole.unevenness(max(reading.penalty, least_penalty(whole)))
        other = [EllipticalTheory(whole, reading.penalty)] if reading.intercept and uneven > HEAVY else []
        return [*other, RidgeTheory(whole)]
    share = float(np.mean(targets > 0))
    return [MarginTheory(whole, share, _channel(features, targets, share, rng), reading.loss, reading.shrinks)]


def _channel(features: np.ndarray, labels: np.ndarray, share: float, rng: np.random.Generator) -> Channel:
    """The channel closer to leave-one-out logistic regression on some of the rows."""
    some = np.sort(rng.permutation(len(labels))[:CHANNEL_ROWS])
    part = transport(features[some], labels[some])
    if part.shapes[1].signal.sum() > NOT_PROBIT * 0.985 * most_signal(share, "probit"):
        return "clusters"
    path = part.best * AROUND
    left = approximate_leave_one_out(part.sample, labels[some], path)
    rows = np.full(len(path), float(len(some)))
    far = [
        misfit(LogisticSolution(*solve_logistic(capped(part.shapes[1], share, c), share, rows, path, c)), left)
        for c in CHANNELS
    ]
    return CHANNELS[int(np.argmin(far))]


class Best(NamedTuple):
    """The best penalty of the theory, the observable there, the slope d log/d log L, and whether it is an end of the range."""

    penalty: float
    value: float
    slope: float
    at_bound: bool


def best_penalty(theory: Theory, rows: float, around: float, decades: float = 6.0) -> Best:
    """The zero of the theory's slope in log L at n = `rows`: a scan brackets the lowest one, the secant method finds it."""
    step = 1e-3 if isinstance(theory, (RidgeTheory, EllipticalTheory)) else 0.05

    def height(x: np.ndarray) -> np.ndarray:
        return theory.error(np.full(len(x), float(rows)), np.exp(x))

    def slope(x: float) -> float:
        low, high = np.log(height(np.array([x - step, x + step])))
        return float((high - low) / (2 * step))

    middle, reach = np.log(around), decades * np.log(10) / 2
    places = np.linspace(middle - reach, middle + reach, 13)
    heights = height(places)
    if not np.isfinite(heights).any():
        return Best(np.nan, np.nan, np.nan, False)
    k = int(np.nanargmin(heights))
    if k in (0, len(places) - 1) or not np.isfinite(heights[k - 1 : k + 2]).all():
        return Best(float(np.exp(places[k])), float(heights[k]), slope(places[k]), True)
    low, high = places[k - 1], places[k + 1]
    low_slope, high_slope = slope(low), slope(high)
    x = places[k]
    for turn in range(12):
        x = (
            low - low_slope * (high - low) / (high_slope - low_slope)
            if high_slope > 0 > low_slope
            else (low + high) / 2
        )
        x = float(np.clip(x, low + 0.05 * (high - low), high - 0.05 * (high - low)))
        x = x if turn % 3 < 2 else (low + high) / 2
        here = slope(x)
        if not np.isfinite(here) or abs(here) < 1e-5:
            break
        if here < 0:
            low, low_slope = x, here
        else:
            high, high_slope = x, here
        if high - low < 1e-3:
            break
    return Best(float(np.exp(x)), float(height(np.array([x]))[0]), slope(x), False)
