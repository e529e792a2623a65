"""Ridge regression with more rows: the leave-one-out level of the given rows times the ratio from theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..methods.random_matrices.effective_ridge import (  # fmt: skip
    Measured,
    Sample,
    Shape,
    decompose,
    effective,
    leave_one_out,
    measured,
    shapes,
)

GROUPS = 10
HEAVY = 3.0
"""Rows are reported as heavy-tailed if their leverages are this many times more uneven than those of Gaussian rows."""


@dataclass(frozen=True)
class RidgeTransport:
    """One sample, prepared for forecasts at other numbers of rows and any penalty L."""

    sample: Sample
    known: Measured
    shapes: tuple[Shape, Shape, Shape]
    best: float
    """The penalty of lowest leave-one-out error among those that the sample resolves."""

    def level(self, penalty: float) -> float:
        """Leave-one-out mean squared error of the sample."""
        residuals, _ = leave_one_out(self.sample, np.array([penalty / self.sample.freedom]))
        return float((residuals**2).mean())

    def log_gains(self, sizes: np.ndarray, penalty: float, rows: float | None = None) -> np.ndarray:
        """log R(n)/R(rows) of every shape, [shape, n]; `rows` is by default the sample's own number."""
        begin = np.array([self.sample.rows if rows is None else rows], float)
        return np.stack([np.log(s.error(sizes, penalty) / s.error(begin, penalty)) for s in self.shapes])

    def reached(self, sizes: np.ndarray, penalty: float) -> np.ndarray:
        """Whether the sample resolves the κ of (n, L), with a margin of 1 % for the fit of the spectrum."""
        return self.shapes[0].kappa(sizes, penalty) >= 0.99 * self.known.least

    def unevenness(self, penalty: float) -> float:
        """Variance of the odds of the leverages, relative to that of Gaussian rows, 2 df2/df1²."""
        ridge = np.array([penalty / self.sample.freedom])
        _, leverage = leave_one_out(self.sample, ridge)
        leverage = np.clip(leverage[:, 0] - 1 / self.sample.rows, 0.0, 1 - 1e-9)
        odds = leverage / (1 - leverage)
        _, df1, df2 = effective(self.sample, ridge)
        return float(np.var(odds / odds.mean()) / (2 * df2[0] / df1[0] ** 2))

    def freedom(self, penalty: float) -> float:
        """df1: the effective degrees of freedom of the fit."""
        return float(effective(self.sample, np.array([penalty / self.sample.freedom]))[1][0])


def transport(features: np.ndarray, targets: np.ndarray, intercept: bool = True) -> RidgeTransport:
    """Prepare a sample with one eigendecomposition."""
    sample = decompose(features, targets, intercept)
    known = measured(sample)
    e = sample.eigenvalues
    ridge = np.geomspace(1e-6 * e[-1], 30 * max(e[-1], sample.trace / sample.freedom), 48)
    kappa = effective(sample, ridge)[0]
    ridge = ridge[(kappa >= known.least) | (kappa == kappa.max())]
    errors = (leave_one_out(sample, ridge)[0] ** 2).mean(axis=0)
    best = float(ridge[np.argmin(errors)])
    return RidgeTransport(sample, known, shapes(sample, known, best), best * sample.freedom)


class RidgeForecast(NamedTuple):
    """Logarithms of `level` and `gain` at each size, half-widths of their 90 % bands (NaN for none), and their basis."""

    now: float
    level: np.ndarray
    gain: np.ndarray
    level_width: np.ndarray
    gain_width: np.ndarray
    now_width: float
    reached: np.ndarray
    spread: np.ndarray


def forecast_ridge(
    whole: RidgeTransport, parts: list[RidgeTransport], sizes: np.ndarray, penalty: float, flagged: bool
) -> RidgeForecast:
    """The anchored forecast; `parts` are the transports of the sample with each tenth left out (empty: no bands)."""
    sizes = np.asarray(sizes, float)
    each = whole.log_gains(sizes, penalty)
    gain, now = np.median(each, axis=0), np.log(whole.level(penalty))
    spread, reached = each.std(axis=0, ddof=1), whole.reached(sizes, penalty)
    nothing = np.full(len(sizes), np.nan)
    if not parts:
        return RidgeForecast(now, now + gain, gain, nothing, nothing, np.nan, reached, spread)
    gains = np.stack([np.median(p.log_gains(sizes, penalty, whole.sample.rows), axis=0) for p in parts])
    levels = np.array([np.log(p.level(penalty)) for p in parts])
    levels = levels - np.array(
        [np.median(p.log_gains(np.array([p.sample.rows]), penalty, whole.sample.rows)) for p in parts]
    )
    error = lambda v: np.sqrt((len(v) - 1) / len(v) * ((v - v.mean(axis=0)) ** 2).sum(axis=0))  # noqa: E731
    level_width = 1.645 * error(levels[:, None] + gains)
    squares = (1.83 * error(gains)) ** 2 + (2 * spread) ** 2 + 0.01**2 + (0.35 * gain) ** 2 * flagged
    return RidgeForecast(
        now, now + gain, gain, np.where(reached, level_width, np.nan), np.where(reached, np.sqrt(squares), np.nan),
        float(1.645 * error(levels)), reached, spread,
    )  # fmt: skip


def less_a_tenth(rows: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows that remain when each tenth is left out in turn."""
    order = rng.permutation(rows)
    return [np.sort(np.delete(order, np.arange(g, len(order), GROUPS))) for g in range(GROUPS)]


def backtest(
    features: np.ndarray, targets: np.ndarray, penalty: float, rng: np.random.Generator, halvings: int
) -> float:
    """Mean log error of forecasts from halves of the rows to all of them, relative to leave-one-out on all rows."""
    rows, missed = len(targets), []
    truth = np.log((leave_one_out(decompose(features, targets), np.array([penalty / (rows - 1)]))[0] ** 2).mean())
    for _ in range(halvings):
        order, pair = rng.permutation(rows), []
        for half in (order[: rows // 2], order[rows // 2 :]):
            part = transport(features[half], targets[half])
            pair.append(forecast_ridge(part, [], np.array([rows]), penalty, False).level[0])
        missed.append(np.logaddexp(*pair) - np.log(2) - truth)
    return float(np.mean(missed))
