"""Logistic regression with more rows: replica channels with input from ridge regression on the labels, anchored at n0."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit, log_expit, ndtr, ndtri

from ..methods.random_matrices.effective_ridge import Sample, Shape
from ._forecast_ridge import HEAVY, RidgeTransport, transport
from .logistic_replica import CHANNELS, Channel, LogisticSolution, most_signal, solve_logistic

STEPS = 10 ** np.arange(0.5, -2.75, -0.5)
"""Penalties tried when none is given, in units of the best penalty of ridge regression."""
AROUND = 10 ** np.arange(1.0, -1.25, -0.5)
"""Penalties at which the channels are compared with the sample, in units of the chosen one."""
CAP, NOT_PROBIT = 0.985, 1.15
HALVINGS = 2
UNEVEN = 1.5
"""The errors of heavy-tailed rows fluctuate by this much more than a count of independent ones; chosen on synthetic tables."""


class Left(NamedTuple):
    """Leave-one-out margins of logistic regression (approximate: one Newton step), [penalty, row], and their losses."""

    penalties: np.ndarray
    margins: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Fraction of wrong labels, with half a count added, so that it is never exactly zero."""
        wrong = (self.margins < 0).sum(axis=1) + 0.5 * (self.margins == 0).sum(axis=1)
        return np.clip((wrong + 0.5) / (self.margins.shape[1] + 1), 1e-6, 1 - 1e-6)

    @property
    def loss(self) -> np.ndarray:
        """Mean log-loss."""
        return -log_expit(self.margins).mean(axis=1)


def fit_logistic(z: np.ndarray, y: np.ndarray, penalty: float, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newton's method for Σ log(1 + exp(−y z·θ)) + (L/2)|θ|², the first θ (the intercept) free; θ and the factor of H."""
    theta, ridge = start, np.r_[1e-10, np.full(z.shape[1] - 1, penalty)]
    value = lambda t: -log_expit(y * (z @ t)).sum() + 0.5 * (ridge * t**2).sum()  # noqa: E731
    before, factor = value(theta), np.empty(0)
    for _ in range(50):
        s = expit(-y * (z @ theta))
        slope = ridge * theta - z.T @ (y * s)
        root = z * np.sqrt(s * (1 - s))[:, None]
        hessian = root.T @ root
        hessian[np.diag_indices_from(hessian)] += ridge + 1e-12
        factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)[0]
        step = cho_solve((factor, True), slope, check_finite=False)
        if step @ slope <= 1e-9:
            break
        share = 1.0
        while (after := value(theta - share * step)) > before and share > 1e-6:
            share /= 2
        theta, before = theta - share * step, after
    return theta, factor


def approximate_leave_one_out(sample: Sample, labels: np.ndarray, penalties: np.ndarray) -> Left:
    """Leave-one-out margins of every row, along decreasing penalties (Rad and Maleki 2020, arXiv:1801.10243)."""
    z = np.concatenate([np.ones((sample.rows, 1)), sample.left * np.sqrt(sample.freedom * sample.eigenvalues)], axis=1)
    order = np.argsort(-penalties)
    theta, margins = np.zeros(z.shape[1]), np.empty((len(penalties), sample.rows))
    for k in order:
        theta, factor = fit_logistic(z, labels, float(penalties[k]), theta)
        margin = labels * (z @ theta)
        s = expit(-margin)
        leverage = (solve_triangular(factor, z.T, lower=True, check_finite=False) ** 2).sum(axis=0)
        margins[k] = margin - leverage * s / np.maximum(1 - s * (1 - s) * leverage, 1e-9)
    return Left(penalties, margins)


class Backtest(NamedTuple):
    """The change of the error rate from half of the rows to all of them: measured, its standard error, and as it was forecast."""

    measured: float
    error: float
    forecast: float

    @property
    def missed(self) -> float:
        """By how much; NaN if the theory has no solution on the halves."""
        return self.forecast - self.measured


class LogisticForecast(NamedTuple):
    """Error, its change and log-loss at each size, half-widths of 90 % bands (NaN for none), and their origin."""

    penalty: float
    channel: Channel
    error: np.ndarray
    loss: np.ndarray
    error_width: np.ndarray
    change: np.ndarray
    change_width: np.ndarray
    now: tuple[float, float, float]
    """Error, half-width of its band, and log-loss at the present number of rows."""
    reached: np.ndarray
    saturation: float
    """Signal in the labels relative to the maximum for a Gaussian field; clearly above one excludes a Gaussian field."""
    left: float
    """Approximate leave-one-out error."""
    trusted: bool = True
    """False where the theory fails on the rows at hand: values are then only the centres of the bands."""


def capped(shape: Shape, share: float, channel: Channel) -> Shape:
    """The shape, with its signal limited to what the channel allows."""
    total, most = shape.signal.sum(), CAP * most_signal(share, channel)
    return shape if total <= most else dataclasses.replace(shape, signal=shape.signal * (most / total))


def misfit(found: LogisticSolution, left: Left) -> float:
    """Distance of a channel from the sample along the penalties: in log-losses, and in errors relative to their noise."""
    e = left.error
    missed = np.log(found.loss / left.loss) ** 2 + (found.error - e) ** 2 / (e * (1 - e))
    return float(np.mean(missed)) if np.isfinite(missed).all() else np.inf


def best_penalty(whole: RidgeTransport, labels: np.ndarray) -> float:
    """The penalty of lowest approximate leave-one-out log-loss; the range is widened until it is inside."""
    tried = whole.best * STEPS
    left = approximate_leave_one_out(whole.sample, labels, tried)
    for _ in range(4):
        k = int(np.argmin(left.loss))
        if 0 < k < len(left.penalties) - 1:
            break
        more = left.penalties[k] * 10.0 ** (np.array([1.0, 0.5]) if k == 0 else np.array([-0.5, -1.0]))
        found = approximate_leave_one_out(whole.sample, labels, more)
        order = (found, left) if k == 0 else (left, found)
        left = Left(*(np.concatenate(pair) for pair in zip(*order, strict=True)))
    return float(left.penalties[np.argmin(left.loss)])


def held_out_margins(
    features: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray, penalties: np.ndarray
) -> np.ndarray:
    """Margins of the rows `test` after logistic regression on the rows `train`, [row, penalty]."""
    centre = features[train].mean(axis=0)
    left, s, right = np.linalg.svd(features[train] - centre, full_matrices=False)
    keep = s > 1e-6 * s[0]
    z = np.concatenate([np.ones((len(train), 1)), left[:, keep] * s[keep]], axis=1)
    z_test = np.concatenate([np.ones((len(test), 1)), (features[test] - centre) @ right[keep].T], axis=1)
    theta, margins = np.zeros(z.shape[1]), np.empty((len(test), len(penalties)))
    for k in np.argsort(-penalties):
        theta, _ = fit_logistic(z, labels[train], float(penalties[k]), theta)
        margins[:, k] = labels[test] * (z_test @ theta)
    return margins


def backtest_logistic(
    features: np.ndarray, labels: np.ndarray, whole: RidgeTransport, penalty: float, rng: np.random.Generator
) -> Backtest:
    """Forecasts from halves of the rows, with half of each class, to all of them.

    Each half predicts the other one; leave-one-out on all rows predicts the same rows, so that most of their noise cancels.
    """
    rows = len(labels)
    last = approximate_leave_one_out(whole.sample, labels, np.array([penalty])).margins[0] < 0
    first, guessed = np.zeros(rows), []
    for _ in range(HALVINGS):
        mixed = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
        one, other = (np.sort(np.concatenate([m[k::2] for m in mixed])) for k in (0, 1))
        for train, test in ((one, other), (other, one)):
            first[test] += (held_out_margins(features, labels, train, test, np.array([penalty]))[:, 0] < 0) / HALVINGS
            part = transport(features[train], labels[train])
            guessed.append(forecast_logistic(part, labels[train], np.array([rows]), penalty).change[0])
    change = last - first
    guess = float(np.nanmean(guessed)) if np.isfinite(guessed).any() else np.nan
    return Backtest(float(change.mean()), float(change.std(ddof=1) / np.sqrt(rows)), guess)


def with_backtest(found: LogisticForecast, tested: Backtest, factors: np.ndarray) -> LogisticForecast:
    """Bands at `factors` times the rows wider by the miss on halves and its error, and whether values are to be trusted.

    They are not if the miss is larger than a tenth of the error rate beyond twice its own error.
    """
    seen = np.nanmax(np.abs([tested.measured, tested.forecast, 0.01]))
    # In proportion to the change, but a theory that expects none is not right because of that: a curve that falls as 1/n
    # falls by 1 − 1/factor of what it fell from half of the rows.
    share = np.clip(np.abs(found.change) / seen, 1 - 1 / factors, 1.0)
    more = share**2 * (np.nan_to_num(tested.missed) ** 2 + (1.645 * tested.error) ** 2)
    error_width, change_width = (np.sqrt(w**2 + more) for w in (found.error_width, found.change_width))
    trusted = bool(abs(tested.missed) <= 0.1 * found.now[0] + 2 * tested.error)
    return found._replace(error_width=error_width, change_width=change_width, trusted=trusted)


def forecast_logistic(
    whole: RidgeTransport, labels: np.ndarray, sizes: np.ndarray, penalty: float | None
) -> LogisticForecast:
    """Between the channel's prediction and the leave-one-out error times the channel's ratio, on the probit scale.

    The midpoint; but on heavy-tailed rows, which no channel knows, one that misses leave-one-out by more than twice its noise
    counts less.
    """
    n0, share = whole.sample.rows, float(np.mean(labels > 0))
    chosen = best_penalty(whole, labels) if penalty is None else penalty
    left = approximate_leave_one_out(whole.sample, labels, chosen * AROUND)
    shape, here = whole.shapes[1], len(AROUND) // 2
    saturation = float(shape.signal.sum() / (CAP * most_signal(share, "probit")))
    rows = np.concatenate([np.full(len(AROUND), float(n0)), np.asarray(sizes, float)])
    path = np.concatenate([chosen * AROUND, np.full(len(sizes), chosen)])
    possible: list[Channel] = ["clusters"] if saturation > NOT_PROBIT else list(CHANNELS)
    found: dict[Channel, LogisticSolution] = {}
    far: list[float] = []
    for c in possible:
        found[c] = solve_logistic(capped(shape, share, c), share, rows, path, c)
        far.append(misfit(LogisticSolution(*(a[: len(AROUND)] for a in found[c])), left))
    heavy = UNEVEN if whole.unevenness(whole.best) > HEAVY else 1.0
    seen = float(left.error[here])
    noise = heavy * np.sqrt(seen * (1 - seen) / n0)
    channel, other_channel = possible[int(np.argmin(far))], possible[int(np.argmax(far))]

    def halfway(c: Channel) -> tuple[np.ndarray, ...]:
        clip = lambda e: np.clip(e, 1e-6, 0.5 - 1e-6)  # noqa: E731
        z = ndtri(clip(np.r_[found[c].error[here], found[c].error[len(AROUND) :]]))
        anchored = ndtri(clip(left.error[here])) * z / z[0]
        loss = np.r_[found[c].loss[here], found[c].loss[len(AROUND) :]]
        moved = left.loss[here] * loss / loss[0]
        missed = abs(ndtr(z[0]) - seen) / (2 * noise) if heavy > 1 else 0.0
        share = 0.5 / max(1.0, missed) ** 2
        return ndtr(share * z + (1 - share) * anchored), ndtr(z), ndtr(anchored), loss**share * moved ** (1 - share)

    error, model, anchored, loss = halfway(channel)
    other = halfway(other_channel)[0]
    change = error - error[0]
    counted = np.sqrt(error * (1 - error) / n0)
    error_width = np.sqrt((1.645 * heavy * counted) ** 2 + (model - anchored) ** 2)
    apart = np.nan_to_num(other - other[0] - change)
    change_width = np.sqrt(counted[0] ** 2 + apart**2 + (0.35 * change) ** 2)
    reached = found[channel].kappa[len(AROUND) :] >= 0.99 * whole.known.least
    blank = lambda w: np.where(reached, w[1:], np.nan)  # noqa: E731
    return LogisticForecast(
        chosen, channel, error[1:], loss[1:], blank(error_width), change[1:], blank(change_width),
        (float(error[0]), float(error_width[0]), float(loss[0])), reached, saturation, left.error[here],
    )  # fmt: skip
