"""Ridge regression with more rows: the leave-one-out level of the given rows times the ratio from theory.

Two theories compete: rows of one scale (Gaussian rows among them) and rows of random scale (elliptical). Forecasts from
halves of the rows to all of them decide between the two, and how far either can be trusted (`combine`).
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

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
from ..methods.random_matrices.elliptical import EllipticalShape, law, measured_elliptical, scales

GROUPS = 10
HALVINGS, FORETOLD = 16, 4
"""Pairs of halves that predict each other, and pairs from which the theories forecast."""
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

    def elliptical(self, penalty: float) -> list[EllipticalShape]:
        """The shapes for rows of random scale; their scales and residuals are those of the fit at this penalty."""
        ridge = penalty / self.sample.freedom
        t = scales(self.sample, ridge)
        known, residuals = measured_elliptical(self.sample, t), law(self.sample, t, ridge)
        found = shapes(self.sample, known, self.best / self.sample.freedom)
        return [EllipticalShape(shape, residuals, self.sample.rows, penalty) for shape in found]

    def both_log_gains(self, sizes: np.ndarray, penalty: float, rows: float | None = None) -> np.ndarray:
        """log R(n)/R(rows) of both theories, [theory, shape, n]; NaN where a theory has no solution."""
        begin = self.sample.rows if rows is None else rows
        errors = np.stack([s.error(np.r_[begin, sizes], penalty) for s in self.elliptical(penalty)])
        return np.stack([self.log_gains(sizes, penalty, rows), np.log(errors[:, 1:] / errors[:, :1])])

    def reached(self, sizes: np.ndarray, penalty: float) -> np.ndarray:
        """Whether the sample resolves the κ of (n, L), with a margin of 1 % for the fit of the spectrum."""
        return self.shapes[0].kappa(sizes, penalty) >= 0.99 * self.known.least

    def odds(self, penalty: float) -> np.ndarray:
        """The odds of the leverages, h/(1 − h), relative to their mean: the size of each row as the others see it."""
        _, leverage = leave_one_out(self.sample, np.array([penalty / self.sample.freedom]))
        leverage = np.clip(leverage[:, 0] - 1 / self.sample.rows, 0.0, 1 - 1e-9)
        odds = leverage / (1 - leverage)
        return odds / odds.mean()

    def unevenness(self, penalty: float) -> float:
        """Variance of the odds of the leverages, relative to that of Gaussian rows, 2 df2/df1²."""
        _, df1, df2 = effective(self.sample, np.array([penalty / self.sample.freedom]))
        return float(np.var(self.odds(penalty)) / (2 * df2[0] / df1[0] ** 2))

    def unseen(self, penalty: float) -> float:
        """The relative standard error of the mean size of a row, at most 1.

        About the share of all sizes that belongs to the largest row; rows beyond it, which these rows do not show, have a
        share of the same order.
        """
        return float(min(self.odds(penalty).std() / np.sqrt(self.sample.rows), 1.0))

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


class Ingredients(NamedTuple):
    """What the rows show about the gain at each size: both theories, their uncertainty, and their test on halves."""

    gains: np.ndarray
    """log-gains, [theory, size]"""
    errors: np.ndarray
    """their standard errors by the jackknife, [theory, size]"""
    spread: np.ndarray
    """standard deviation over the three shapes of the spectrum, [theory, size]"""
    half: np.ndarray
    """log-gain from half of the rows to all of them: measured, its standard error, and both theories' forecasts"""
    unseen: float
    """share of the sizes of rows that belongs to rows larger than all of these"""
    factors: np.ndarray
    """the sizes over the number of rows"""
    parts: np.ndarray | None = None
    """log-gains with each tenth of the rows left out, [tenth, theory, size]"""


class RidgeForecast(NamedTuple):
    """Logarithms of `level` and `gain` at each size, half-widths of their 90 % bands (NaN for none), and their basis.

    `trusted` is False where the theories fail on the rows at hand: the centres are then only those of the bands.
    """

    now: float
    level: np.ndarray
    gain: np.ndarray
    level_width: np.ndarray
    gain_width: np.ndarray
    now_width: float
    reached: np.ndarray
    spread: np.ndarray
    weights: np.ndarray
    trusted: np.ndarray
    missed: float


APART = 0.3
"""No point forecast where the two theories are further apart than this, in logarithms, or anything else leaves as much open."""
UNSEEN = 0.5
"""Logarithmic gain, per unit of log(rows), of the errors on rows larger than all that were seen; chosen on synthetic tables."""


def jackknife(values: np.ndarray) -> np.ndarray:
    """Standard errors from estimates with a tenth of the rows left out, along the first axis; NaN is left out."""
    return np.sqrt((len(values) - 1) * np.nanmean((values - np.nanmean(values, axis=0)) ** 2, axis=0))


def ingredients(
    whole: RidgeTransport, parts: list[RidgeTransport], sizes: np.ndarray, penalty: float, half: np.ndarray
) -> Ingredients:
    """Collect them; `half` comes from `halves`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN slices stay NaN
        each = whole.both_log_gains(sizes, penalty)
        left = np.stack([np.nanmedian(p.both_log_gains(sizes, penalty, whole.sample.rows), axis=1) for p in parts])
        spread, factors = np.nanstd(each, axis=1, ddof=1), sizes / whole.sample.rows
        unseen = whole.unseen(penalty)
        return Ingredients(np.nanmedian(each, axis=1), jackknife(left), spread, half, unseen, factors, left)


def combine(found: Ingredients) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]:
    """Log-gains, half-widths of their 90 % bands, weights of the theories, their miss on halves, and where they hold."""
    measured, error, *forecasts = found.half
    missed = np.array(forecasts) - measured
    noise = np.sqrt(error**2 + 0.01**2)
    fit = np.where(np.isfinite(missed), np.exp(-0.5 * np.minimum((missed / noise) ** 2, 50.0)), 0.0)
    fit = fit * np.isfinite(found.gains).all(axis=1)
    if not fit.any():
        fit = np.array([1.0, 0.0])
    weights = fit / fit.sum()
    mix = lambda v: (weights[:, None] * np.nan_to_num(v)).sum(axis=0)  # noqa: E731
    gain = mix(found.gains)
    off = float(weights @ np.nan_to_num(missed))
    # The distance of the theories counts in full where the halves cannot decide, and by a third where they can.
    apart = np.abs(np.nan_to_num(found.gains[1] - found.gains[0])) * (0.3 + 1.4 * weights.min())
    # A miss on halves is carried over in proportion to what was foretold: a theory that expected half of the gain there may
    # expect half of it here. A theory that expects little is not right because of that: a curve that falls as 1/n falls by
    # 1 − 1/factor of what it fell from half of the rows.
    guess = float(weights @ np.nan_to_num(np.array(forecasts)))
    share = np.clip(np.abs(gain) / max(abs(guess), 0.02), 1 - 1 / found.factors, 1.0)
    unknown = 1.645 * share * error
    # Rows larger than all of these are not in the halves either.
    beyond = UNSEEN * found.unseen * np.log(found.factors)
    squares = (1.645 * mix(found.errors)) ** 2 + mix(found.spread) ** 2 + apart**2 + (0.2 * gain) ** 2 + 0.01**2
    squares = squares + (share * off) ** 2 + unknown**2 + beyond**2
    trusted = (abs(off) <= min(0.1 + 2 * error, APART)) & (np.maximum(apart, np.maximum(unknown, beyond)) <= APART)
    return gain, np.sqrt(squares), weights, off, trusted


def forecast_ridge(
    whole: RidgeTransport,
    parts: list[RidgeTransport],
    sizes: np.ndarray,
    penalty: float,
    half: np.ndarray | None = None,
) -> RidgeForecast:
    """The anchored forecast; `parts` are the transports of the sample with each tenth left out (empty: no bands)."""
    sizes = np.asarray(sizes, float)
    now, reached, nothing = np.log(whole.level(penalty)), whole.reached(sizes, penalty), np.full(len(sizes), np.nan)
    if not parts or half is None:
        each = whole.log_gains(sizes, penalty)
        gain, spread = np.median(each, axis=0), each.std(axis=0, ddof=1)
        alone = np.array([1.0, 0.0])
        return RidgeForecast(
            now, now + gain, gain, nothing, nothing, np.nan, reached, spread, alone, reached | True, np.nan
        )
    found = ingredients(whole, parts, sizes, penalty, half)
    gain, gain_width, weights, missed, trusted = combine(found)
    levels = np.array([np.log(p.level(penalty)) for p in parts])
    levels = levels - np.array(
        [np.median(p.log_gains(np.array([p.sample.rows]), penalty, whole.sample.rows)) for p in parts]
    )
    now_width = 1.645 * jackknife(levels)
    # Level and gain fluctuate together: their jackknife is that of the sum; the rest of the gain's band is added.
    assert found.parts is not None
    mix = lambda v: np.tensordot(weights, np.nan_to_num(v), axes=(0, -2))  # noqa: E731
    both = jackknife(levels[:, None] + mix(found.parts))
    rest = gain_width**2 - (1.645 * mix(found.errors)) ** 2
    level_width = np.sqrt((1.645 * both) ** 2 + np.maximum(rest, 0.0))
    blank = lambda w: np.where(reached, w, np.nan)  # noqa: E731
    spread = (weights[:, None] * np.nan_to_num(found.spread)).sum(axis=0)
    return RidgeForecast(
        now, now + gain, gain, blank(level_width), blank(gain_width), float(now_width), reached, spread, weights, trusted,
        missed,
    )  # fmt: skip


def less_a_tenth(rows: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows that remain when each tenth is left out in turn."""
    order = rng.permutation(rows)
    return [np.sort(np.delete(order, np.arange(g, len(order), GROUPS))) for g in range(GROUPS)]


def halves(features: np.ndarray, targets: np.ndarray, penalties: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The log-gain from half of the rows to all of them at each penalty: measured, its standard error, both theories'.

    The error is that of the jackknife, a tenth of the rows left out at a time: rows count where they are predicted and where
    they are trained on, which a standard error over predicted rows would miss.
    """
    rows = len(targets)
    orders = [rng.permutation(rows) for _ in range(HALVINGS)]
    kept = less_a_tenth(rows, rng)
    guessed = []
    for order in orders[:FORETOLD]:
        for train in (order[: rows // 2], order[rows // 2 :]):
            part = transport(features[train], targets[train])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                guess = [np.nanmedian(part.both_log_gains(np.array([rows]), L), axis=1)[:, 0] for L in penalties]
            guessed.append(guess)
    gain = _gain_of_halves(features, targets, penalties, orders)
    error = jackknife(np.array([_gain_of_halves(features, targets, penalties, orders, k) for k in kept]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        forecasts = np.nanmean(np.array(guessed), axis=0)  # [penalty, theory]
    return np.column_stack([gain, error, forecasts])


def _gain_of_halves(
    features: np.ndarray,
    targets: np.ndarray,
    penalties: np.ndarray,
    orders: list[np.ndarray],
    kept: np.ndarray | None = None,
) -> np.ndarray:
    """The measured log-gain from half of the rows (or of those `kept`) to all of them at each penalty.

    Each half predicts the other one; with leave-one-out on all rows, the same rows are predicted both times, so that most
    of their noise cancels in the ratio.
    """
    there = np.ones(len(targets), bool)
    if kept is not None:
        there[:], there[kept] = False, True
    sample = decompose(features[there], targets[there])
    last = (leave_one_out(sample, penalties / sample.freedom)[0] ** 2).mean(axis=0)
    first = np.zeros((len(targets), len(penalties)))
    for order in orders:
        one, other = (half[there[half]] for half in (order[: len(order) // 2], order[len(order) // 2 :]))
        for train, test in ((one, other), (other, one)):
            first[test] += squared_errors(features, targets, train, test, penalties) / len(orders)
    return np.log(last / first[there].mean(axis=0))


def squared_errors(
    features: np.ndarray, targets: np.ndarray, train: np.ndarray, test: np.ndarray, penalties: np.ndarray
) -> np.ndarray:
    """Squared errors of the rows `test` after ridge regression on the rows `train`, [row, penalty]."""
    x, y = features[train], targets[train]
    centre = x.mean(axis=0)
    x, other = x - centre, features[test] - centre
    if x.shape[1] < len(train):
        gram, right, left = x.T @ x, x.T @ (y - y.mean()), other
    else:
        gram, right, left = x @ x.T, y - y.mean(), other @ x.T
    found = _solved(gram, right, penalties)
    return (targets[test][:, None] - y.mean() - left @ found) ** 2


def _solved(gram: np.ndarray, right: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """(gram + λ)⁻¹ right for each penalty, along the last axis."""
    if len(penalties) <= 3:  # a factorisation for each penalty is faster than eigenvalues
        with suppress(LinAlgError):
            eye = np.eye(len(gram))
            return np.stack([cho_solve(cho_factor(gram + L * eye), right) for L in penalties], axis=1)
    e, vectors = np.linalg.eigh(gram)
    return vectors @ ((vectors.T @ right)[:, None] / (np.maximum(e, 0.0)[:, None] + penalties[None, :]))
