"""The effective ridge κ, through which a sample predicts the error of ridge regression with more rows.

Ridge regression minimises Σ(y − b − x·w)² + L|w|² over n rows. With m = n − 1 and λ = L/m, rows of covariance Σ, a linear
signal β and everything else as noise of variance σ², the deterministic equivalents (Dobriban and Wager 2018,
arXiv:1507.03003; Hastie, Montanari, Rosset and Tibshirani 2022, arXiv:1903.08560) are, with R = (Σ + κ)⁻¹,

    λ = κ (1 − df1(κ)/m),      df1 = Tr ΣR,      df2 = Tr (ΣR)²,
    test error = B(κ)/(1 − df2(κ)/m) (1 + 1/n),      B = σ² + κ² βᵀRΣRβ,      1 − df2/m = dλ/dκ.

df1, B and c = βᵀΣRΣβ, the covariance of a target with its prediction from the other rows, do not depend on n. A sample
measures each of them at the κ of its own penalty (`measured`), and with them the error at any n that has the same κ. The
fits (`shapes`) interpolate between these penalties. This module uses NumPy and SciPy, not JAX: arrays are small, and their
shapes differ from call to call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.linalg import eigh
from scipy.optimize import nnls

REACH = 0.85
"""A sample resolves κ where df2(κ) is below this fraction of m."""
PENALTIES, NODES = 64, 48
SOURCES = np.linspace(-1.0, 2.5, 36)


@dataclass(frozen=True)
class Sample:
    """Centred rows by their singular values: `eigenvalues` e of XᵀX/m, `left` vectors U, centred `targets`, UᵀY."""

    rows: int
    columns: int
    eigenvalues: Float[Array, " rank"]
    left: Float[Array, "rows rank"]
    targets: Float[Array, " rows"]
    projections: Float[Array, " rank"]
    intercept: bool = True

    @property
    def freedom(self) -> int:
        """m = n − 1: the number of rows minus one for the intercept (if there is one)."""
        return self.rows - self.intercept

    @property
    def full(self) -> bool:
        """Whether the rows can be interpolated: the rank is m."""
        return len(self.eigenvalues) >= self.freedom

    @property
    def trace(self) -> float:
        """Sum of the eigenvalues: the trace of the covariance."""
        return float(self.eigenvalues.sum())


def decompose(features: Float[Array, "rows columns"], targets: Float[Array, " rows"], intercept: bool = True) -> Sample:
    """Make a sample from its rows, by the eigenvalues of the smaller Gram matrix; without an intercept nothing is centred.

    >>> rng = np.random.default_rng(0)
    >>> sample = decompose(rng.normal(size=(50, 20)), rng.normal(size=50))
    >>> sample.left.shape, sample.full, decompose(rng.normal(size=(20, 50)), rng.normal(size=20)).full
    ((50, 20), False, True)
    """
    rows, columns = features.shape
    x, y = (features - features.mean(axis=0), targets - targets.mean()) if intercept else (features, targets)
    if columns < rows:
        e, vectors = eigh(x.T @ x, check_finite=False)
    else:
        e, vectors = eigh(x @ x.T, check_finite=False)
    keep = e > 1e-11 * max(e[-1], np.finfo(float).tiny)
    keep[: max(0, len(e) - (rows - intercept))] = False  # centring removes one dimension
    e, vectors = e[keep], vectors[:, keep]
    left = x @ (vectors / np.sqrt(e)) if columns < rows else vectors
    return Sample(rows, columns, e / (rows - intercept), left, y, left.T @ y, intercept)


def leave_one_out(sample: Sample, ridge: Float[Array, " k"]) -> tuple[Float[Array, "rows k"], Float[Array, "rows k"]]:
    """Exact residuals of every row predicted from all others, and the leverages h, at each λ = `ridge`.

    Both are quotients that stay smooth through λ = 0 if the rows can be interpolated; λ may then be negative, down to
    minus the smallest eigenvalue.
    """
    inverse = 1 / (sample.eigenvalues[:, None] + ridge[None, :])
    if sample.full:
        left = sample.left**2 @ inverse
        residuals = sample.left @ (sample.projections[:, None] * inverse) / left
        return residuals, 1 - ridge[None, :] * left
    shrunk = sample.eigenvalues[:, None] * inverse
    leverage = sample.left**2 @ shrunk + sample.intercept / sample.rows
    residuals = sample.targets[:, None] - sample.left @ (sample.projections[:, None] * shrunk)
    return residuals / (1 - leverage), leverage


class Measured(NamedTuple):
    """Estimates from a sample at decreasing values of κ; `least` is the smallest κ that it resolves (0 for all)."""

    kappa: Float[Array, " k"]
    df1: Float[Array, " k"]
    df2: Float[Array, " k"]
    bias: Float[Array, " k"]
    covariance: Float[Array, " k"]
    variance: float
    least: float


def effective(sample: Sample, ridge: Float[Array, " k"]) -> tuple[Array, Array, Array]:
    """κ, df1, df2 at each λ: with g the mean of 1/(e + λ) over m eigenvalues (zeros too), κ = 1/g, dκ/dλ = ⟨1/(e + λ)²⟩/g²."""
    m = sample.freedom
    zeros = m - len(sample.eigenvalues)
    inverse = 1 / (sample.eigenvalues[:, None] + ridge[None, :])
    first, second = inverse.sum(axis=0), (inverse**2).sum(axis=0)
    if zeros > 0:
        first, second = first + zeros / ridge, second + zeros / ridge**2
    first, second = first / m, second / m
    return 1 / first, m * (1 - ridge * first), m * (1 - first**2 / second)


def measured(sample: Sample, number: int = PENALTIES) -> Measured:
    """df1, df2, B, c of a sample over all κ that it resolves."""
    e, m = sample.eigenvalues, sample.freedom
    top = 30 * max(e[-1], sample.trace / m)
    if sample.full:  # λ down to minus the smallest eigenvalue
        ridge = np.geomspace(top + e[0], 0.02 * e[0], number) - e[0]
        ridge[np.abs(ridge) < 1e-9 * e[0]] = 1e-9 * e[0]
    else:
        ridge = np.geomspace(top, 0.01 * e[0], number)
    kappa, df1, df2 = effective(sample, ridge)
    seen = df2 < REACH * m
    everything = not sample.full and bool(seen.all()) and len(e) < REACH * m
    if not everything:
        seen[int(np.argmin(seen)) :] = bool(seen.all())
    ridge, kappa, df1, df2 = ridge[seen], kappa[seen], df1[seen], df2[seen]
    residuals, _ = leave_one_out(sample, ridge)
    bias = (residuals**2).mean(axis=0) * (1 - df2 / m) / (1 + 1 / sample.rows)
    covariance = sample.targets @ (sample.targets[:, None] - residuals) / sample.rows
    variance = float(sample.targets @ sample.targets) / m
    return Measured(kappa, df1, df2, bias, covariance, variance, 0.0 if everything else float(kappa[-1]))


@dataclass(frozen=True)
class Shape:
    """A spectrum and a signal: `counts` N_j eigenvalues at `omega` ω_j that carry `signal` a_j of the targets' variance."""

    omega: Float[Array, " j"]
    counts: Float[Array, " j"]
    signal: Float[Array, " j"]
    noise: float
    source: float = np.nan
    """Exponent s of a_j ∝ N_j ω_j^{1+s}, where that was assumed."""

    def kappa(self, rows: Float[Array, "*k"], penalty: float | Array) -> Float[Array, "*k"]:
        """The κ that solves λ = κ(1 − df1(κ)/m): Newton from above, where λ(κ) is convex."""
        m = np.asarray(rows, float)[..., None] - 1
        lam = penalty / m
        kappa = lam + (self.counts * self.omega).sum() / m
        for _ in range(100):
            share = self.omega / (self.omega + kappa)
            value = kappa * (1 - (self.counts * share).sum(axis=-1, keepdims=True) / m) - lam
            slope = 1 - (self.counts * share**2).sum(axis=-1, keepdims=True) / m
            step = np.where(slope > 0, value / np.where(slope > 0, slope, 1), 0.0)
            kappa = np.maximum(kappa - step, 0.0)
            if np.all(np.abs(step) <= 1e-13 * (kappa + lam)):
                break
        return kappa[..., 0]

    def error(self, rows: Float[Array, "*k"], penalty: float) -> Float[Array, "*k"]:
        """Mean squared error on a new row after training on `rows` rows."""
        n = np.asarray(rows, float)
        kappa = self.kappa(n, penalty)[..., None]
        share = self.omega / (self.omega + kappa)
        bias = self.noise + (self.signal * (1 - share) ** 2).sum(axis=-1)
        return bias / (1 - (self.counts * share**2).sum(axis=-1) / (n - 1)) * (1 + 1 / n)

    def aligned(self, kappa: Float[Array, "*k"]) -> tuple[Array, Array]:
        """c(κ) = Σ a_j ω_j/(ω_j + κ) and its slope."""
        under = 1 / (self.omega + np.asarray(kappa, float)[..., None])
        return (self.signal * self.omega * under).sum(-1), -(self.signal * self.omega * under**2).sum(-1)

    def freedoms(self, kappa: Float[Array, "*k"]) -> tuple[Array, Array]:
        """df1(κ) and df2(κ)."""
        share = self.omega / (self.omega + np.asarray(kappa, float)[..., None])
        return (self.counts * share).sum(-1), (self.counts * share**2).sum(-1)


def plug_in(sample: Sample, ridge: float) -> Shape:
    """The sample's own spectrum as the population's, the ridge coefficients at λ = `ridge` as its signal."""
    e, m = sample.eigenvalues, sample.freedom
    share = e / (e + ridge)
    left = sample.targets @ sample.targets - (sample.projections**2 * (1 - (1 - share) ** 2)).sum()
    noise = max(float(left), 0.0) / max(m - share.sum(), 1e-9)
    return Shape(e, np.ones_like(e), sample.projections**2 * share**2 / m, noise)


def _spectrum(sample: Sample, known: Measured) -> tuple[Array, Array]:
    e = sample.eigenvalues
    least = max(min(known.kappa[-1], e[0]) / 3, 1e-8 * e[-1])
    omega = np.geomspace(least, 2 * e[-1], NODES)
    rows = omega[None, :] / (omega[None, :] + known.kappa[:, None])
    weight = 1 / np.sqrt(known.df1 + 1)
    matrix = np.zeros((len(known.kappa) + 2, NODES + 1))
    matrix[:-2, :-1] = rows * weight[:, None]
    matrix[-2, :-1] = 30 * omega / sample.trace
    matrix[-1] = 30 / sample.columns
    right = np.concatenate([known.df1 * weight, [30.0, 30.0]])
    return omega, nnls(matrix, right, maxiter=100 * NODES)[0][:-1]


def shapes(sample: Sample, known: Measured, ridge: float) -> tuple[Shape, Shape, Shape]:
    """Three shapes of spectrum and signal: the free fit, the power-law source, the plug-in at λ = `ridge`.

    Spectrum: N_j ≥ 0 at log-spaced ω_j by non-negative least squares on df1(κ), the trace and the number of columns. Signal:
    a_j ≥ 0 and σ² ≥ 0 likewise on B(κ), c(κ) and the variance; or a_j = t N_j ω_j^{1+s} with three numbers.
    """
    omega, counts = _spectrum(sample, known)
    weight = np.sqrt(np.maximum(1 - known.df2 / sample.freedom, 0.0)) / known.bias
    share = omega[None, :] / (omega[None, :] + known.kappa[:, None])
    spread = 3 / known.variance
    matrix = np.concatenate([(1 - share) ** 2 * weight[:, None], share * weight[:, None], np.full((1, NODES), spread)])
    noise = np.concatenate([weight, np.zeros_like(weight), [spread]])
    right = np.concatenate([known.bias * weight, known.covariance * weight, [known.variance * spread]])
    free = nnls(np.concatenate([matrix, noise[:, None]], axis=1), right, maxiter=100 * NODES)[0]

    # Three numbers: for each exponent s the best other two in closed form, both of them or one alone.
    powers = counts[None, :] * (omega / omega[-1])[None, :] ** (1 + SOURCES[:, None])
    along = powers @ matrix.T  # (s, rows)
    tt, tn, nn = (along**2).sum(1), along @ noise, noise @ noise
    tr, nr = along @ right, noise @ right
    with np.errstate(divide="ignore", invalid="ignore"):
        t, sigma = (nn * tr - tn * nr) / (tt * nn - tn**2), (tt * nr - tn * tr) / (tt * nn - tn**2)
        alone = tr / tt
    t, sigma = np.where(sigma < 0, alone, t), np.where(sigma < 0, 0.0, sigma)
    t, sigma = np.where(~(t > 0), 0.0, t), np.where(~(t > 0), nr / nn, sigma)
    missed = ((right[None, :] - t[:, None] * along - sigma[:, None] * noise[None, :]) ** 2).sum(1)
    best = int(np.argmin(missed))
    return (
        Shape(omega, counts, free[:-1], float(free[-1])),
        Shape(omega, counts, t[best] * powers[best], float(sigma[best]), float(SOURCES[best])),
        plug_in(sample, ridge),
    )
