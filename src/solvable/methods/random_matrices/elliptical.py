"""Ridge regression on rows of random scale: the effective ridge of elliptical data, measured on one sample.

Rows are x = √t Σ^½ z with a random scale t of mean one, such as Student's rows; the noise may depend on t. With the
notation of `effective_ridge`, n rows and the penalty L, row i has the leverage h_i = t_iδ/(1 + t_iδ), and

    V̂ = n⟨t/(1 + tδ)⟩,   κ = L/V̂,   δ = df1(κ)/V̂,
    test error E = B(κ) + df2(κ) W,      W = n⟨t ρ²(t)/(1 + tδ)²⟩/V̂²,      ρ²(t) = σ²(t) + tR,   E = ⟨ρ²⟩,

where R = E − σ² is the part of the error due to the weights (Karoui 2013, arXiv:1311.2445; Couillet and Debbah 2011,
chapter 6). At t = 1 this is κ(1 − df1/n) = L/n and E = B/(1 − df2/n).

A sample shows everything that is needed: the odds h/(1 − h) of its leverages are tδ, and its squared leave-one-out
residuals are ρ²(t). So noise that grows with the scale of a row needs no model. NumPy only, as `effective_ridge`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from .effective_ridge import PENALTIES, REACH, Measured, Sample, Shape, effective, leave_one_out

GROUPS = 200
"""More rows than this are grouped by their scale."""


class Law(NamedTuple):
    """Scales t with mean one, the mean squared leave-one-out residuals ρ² of their rows, and their weights."""

    scales: Float[Array, " k"]
    squares: Float[Array, " k"]
    weights: Float[Array, " k"]

    def mean(self, values: Float[Array, "*j k"]) -> Float[Array, "*j"]:
        """⟨·⟩ over rows."""
        return values @ self.weights


def scales(sample: Sample, ridge: float) -> Float[Array, " rows"]:
    """The scale t of every row, from its leverage at λ = `ridge`, less the fluctuations that Gaussian rows have too.

    >>> from .effective_ridge import decompose
    >>> rng = np.random.default_rng(0)
    >>> t = np.where(np.arange(400) < 200, 0.5, 1.5)
    >>> found = scales(decompose(np.sqrt(t)[:, None] * rng.normal(size=(400, 100)), rng.normal(size=400)), 0.1)
    >>> bool(abs(found[:200].mean() - 0.5) < 0.05)
    True
    """
    _, leverage = leave_one_out(sample, np.array([ridge]))
    leverage = np.clip(leverage[:, 0] - sample.intercept / sample.rows, 1e-9, 1 - 1e-6)
    odds = leverage / (1 - leverage)
    odds = odds / odds.mean()
    _, df1, df2 = effective(sample, np.array([ridge]))
    chance, spread = 2 * df2[0] / df1[0] ** 2, odds.var()
    # t g with g of mean one and variance `chance`: Var t = (Var − chance)/(1 + chance)
    real = max(spread - chance, 0.0) / (1 + chance)
    return np.maximum(1 + np.sqrt(real / max(spread, 1e-12)) * (odds - 1), 1e-3)


def law(sample: Sample, t: Float[Array, " rows"], ridge: float) -> Law:
    """The law of the scales t with the residuals at λ = `ridge`; many rows are grouped by scale."""
    residuals, _ = leave_one_out(sample, np.array([ridge]))
    squares, rows = residuals[:, 0] ** 2, sample.rows
    if rows <= GROUPS:
        return Law(t / t.mean(), squares, np.full(rows, 1 / rows))
    order = np.argsort(t)
    starts = np.arange(GROUPS) * rows // GROUPS
    weights = np.diff(np.r_[starts, rows]) / rows
    means = np.add.reduceat(np.stack([t, squares])[:, order], starts, axis=1) / (weights * rows)
    return Law(means[0] / (means[0] @ weights), means[1], weights)


def response(of: Law, share: Float[Array, " k"]) -> Float[Array, " k"]:
    """δ at which ⟨tδ/(1 + tδ)⟩ equals each `share` in (0, 1): Newton in log δ, kept inside a bracket.

    >>> one = Law(np.ones(1), np.ones(1), np.ones(1))
    >>> bool(np.allclose(response(one, np.array([0.25, 0.9])), [1 / 3, 9.0]))
    True
    """
    share = np.clip(share, 1e-12, 1 - 1e-9)
    ends = share / (1 - share)
    low, high = np.log(ends / of.scales.max()), np.log(ends / of.scales.min())
    x = np.clip(np.log(ends), low, high)
    for _ in range(60):
        odds = np.exp(x)[:, None] * of.scales[None, :]
        value = of.mean(odds / (1 + odds)) - share
        low, high = np.where(value < 0, x, low), np.where(value > 0, x, high)
        new = x - value / of.mean(odds / (1 + odds) ** 2)
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        if np.all(np.abs(new - x) <= 1e-12):
            return np.exp(new)
        x = new
    return np.exp(x)


def measured_elliptical(sample: Sample, t: Float[Array, " rows"], number: int = PENALTIES) -> Measured:
    """κ, df1, df2, B and c of a sample whose rows have the scales t; the counterpart of `effective_ridge.measured`."""
    e, m = sample.eigenvalues, sample.freedom
    top = 30 * max(e[-1], sample.trace / m)
    ridge = np.geomspace(top, 0.01 * e[0], number)
    every = Law(t / t.mean(), np.ones(sample.rows), np.full(sample.rows, 1 / sample.rows))
    _, df1, _ = effective(sample, ridge)
    delta = response(every, df1 / m)
    kappa = ridge * m * delta / df1
    # df2 = df1 + κ d df1/dκ, with d df1/dλ from the eigenvalues and dδ from the law
    fall = -(e[:, None] / (e[:, None] + ridge) ** 2).sum(axis=0)
    odds = delta[:, None] * every.scales[None, :]
    rise = fall / (m * every.mean(every.scales / (1 + odds) ** 2))
    slope = kappa * (1 / ridge + rise / delta - fall / df1)
    df2 = np.clip(df1 + kappa * fall / slope, 0.0, df1)
    residuals, _ = leave_one_out(sample, ridge)
    stiff = m * every.mean(every.scales / (1 + odds))
    spent = m * (every.scales[None, :] * residuals.T**2 / (1 + odds) ** 2).mean(axis=1) / stiff**2
    error = (residuals**2).mean(axis=0) / (1 + 1 / sample.rows)
    bias = error - df2 * spent / (1 + 1 / sample.rows)
    covariance = sample.targets @ (sample.targets[:, None] - residuals) / sample.rows
    variance = float(sample.targets @ sample.targets) / m
    # where noise takes all of the error, the difference is not known
    seen = (df2 < REACH * m) & (bias > 0.05 * error)
    everything = not sample.full and bool(seen.all()) and len(e) < REACH * m
    if not everything:
        seen[int(np.argmin(seen)) :] = bool(seen.all())
    seen[0] = True
    pick = lambda a: a[seen]  # noqa: E731
    least = 0.0 if everything else float(kappa[seen][-1])
    return Measured(pick(kappa), pick(df1), pick(df2), pick(bias), pick(covariance), variance, least)


@dataclass(frozen=True)
class EllipticalShape:
    """A spectrum, a signal and a law of scales, with residuals of a fit to `rows` rows at the penalty `penalty`."""

    shape: Shape
    law: Law
    rows: int
    penalty: float

    def fixed_point(self, rows: Float[Array, " k"], penalty: Float[Array, " k"]) -> tuple[Array, Array]:
        """κ and δ of every (n, L). δV̂(δ) rises with δ and df1(κ = L/V̂(δ)) falls, so that they meet once; bisected in log δ."""
        m, scales = rows - 1, self.law.scales

        def at(x: Array) -> tuple[Array, Array]:
            delta = np.exp(x)
            stiff = m * self.law.mean(scales / (1 + delta[:, None] * scales))
            return penalty / stiff, delta * stiff

        total = (self.shape.counts * self.shape.omega).sum()
        high = np.log(total / penalty)  # δ = κ df1/L < Tr Σ/L
        low = high - np.log1p(1e3 * total / penalty) - 20.0
        for _ in range(56):
            middle = (low + high) / 2
            kappa, used = at(middle)
            above = used > self.shape.freedoms(kappa)[0]
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return at(high)[0], np.exp(high)

    def error(self, rows: Float[Array, " k"], penalty: Float[Array, " k"] | float) -> Float[Array, " k"]:
        """Mean squared error on a new row after training on `rows` rows.

        The residuals of the present fit, scaled to this shape, fix the noise; only the part due to the weights changes.
        """
        rows = np.atleast_1d(np.asarray(rows, float))
        n, L = np.r_[self.rows, rows], np.r_[self.penalty, np.broadcast_to(penalty, rows.shape)]
        kappa, delta = self.fixed_point(n, L)
        share = self.shape.omega / (self.shape.omega + kappa[:, None])
        bias = self.shape.noise + (self.shape.signal * (1 - share) ** 2).sum(axis=-1)
        df2 = (self.shape.counts * share**2).sum(axis=-1)
        t, m = self.law.scales, n - 1
        odds = delta[:, None] * t[None, :]
        stiff = m * self.law.mean(t / (1 + odds))
        weigh = lambda v: df2 * m * self.law.mean(t * v / (1 + odds) ** 2) / stiff**2  # noqa: E731
        ours, own = weigh(self.law.squares), weigh(t)
        now = self.law.mean(self.law.squares)
        unit = bias[0] / max(now - ours[0], 1e-9 * now)
        # E = B + df2 W with ρ² = unit ρ0² + t (E − E0), linear in E; at the present n and L it is E0.
        with np.errstate(divide="ignore", invalid="ignore"):
            error = (bias + unit * (ours - own * now)) / (1 - own)
        return (np.where((own < 1) & (error > 0), error, np.nan) * (1 + 1 / n))[1:]
