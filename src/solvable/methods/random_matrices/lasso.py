"""The lasso and the elastic net on Gaussian rows of any covariance, from a least-squares fit to more rows.

(1/2n)|y − Xw|² + α(ρ|w|₁ + (1 − ρ)|w|²/2) over n rows of covariance Σ behaves as a denoiser of one Gaussian vector
(Celentano, Montanari and Wei 2020, arXiv:2007.13716): with ŵ the minimiser of

    (ζ/2) |Σ^½ w − u|² + α(ρ|w|₁ + (1 − ρ)|w|²/2),      u = Σ^½β + (τ/√n) g,

    τ² = σ² + E|Σ^½(ŵ − β)|²  (the test error),      ζ = 1 − E df/n,      df = ∇_u · Σ^½ŵ.

The weights β are unknown, but a least-squares fit b to N > n other rows is β with noise of variance σ²/(N − p − 1) in each
direction of Σ^½β, so that u is drawn as Σ^½b plus the noise that is missing, and Stein's lemma removes the noise of b from
the error: E|Σ^½(ŵ − β)|² = E|Σ^½(ŵ − b)|² − (σ²/N′)(p − 2 df), N′ = N − p − 1. No sparsity is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

STEPS, TOLERANCE, ITERATIONS = 400, 1e-5, 80


@dataclass(frozen=True)
class LeastSquares:
    """A least-squares fit to `rows` rows: covariance Σ, weights b, and the variance σ² of the noise."""

    covariance: Float[Array, "p p"]
    weights: Float[Array, " p"]
    noise: float
    rows: int

    @classmethod
    def of(cls, features: Float[Array, "rows p"], targets: Float[Array, " rows"]) -> LeastSquares:
        """The fit with an intercept; columns that others determine share their weight."""
        rows, p = features.shape
        x, y = features - features.mean(axis=0), targets - targets.mean()
        gram = x.T @ x
        e, vectors = np.linalg.eigh(gram)
        keep = e > 1e-10 * e[-1]
        weights = vectors[:, keep] @ ((vectors[:, keep].T @ (x.T @ y)) / e[keep])
        left = y - x @ weights
        return cls(gram / (rows - 1), weights, float(left @ left) / (rows - 1 - keep.sum()), rows)


def lasso_error(
    fit: LeastSquares, rows: Float[Array, " k"], penalty: Float[Array, " k"], mixing: float = 1.0, draws: int = 0,
    seed: int = 0,
) -> Float[Array, " k"]:  # fmt: skip
    """The test error τ² at each number of rows n and penalty α; NaN where it did not converge, or n is too near N.

    Averages are over `draws` Gaussian vectors (by default 4 to 64, so that p·draws ≈ 4000), the same at every point.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(4000, 20))
    >>> fit = LeastSquares.of(x, x[:, 0] + rng.normal(size=4000))
    >>> error = lasso_error(fit, np.array([40.0, 400.0]), np.array([0.1, 0.1]))
    >>> bool(1.2 < error[0] < 1.5), bool(1.0 < error[1] < 1.1)
    (True, True)
    """
    p = len(fit.weights)
    e, vectors = np.linalg.eigh(fit.covariance)
    root = (vectors * np.sqrt(np.maximum(e, 0.0))) @ vectors.T
    g = np.random.default_rng(seed).normal(size=(draws or min(64, max(4, -(-4000 // p))), p))
    known = fit.noise / (fit.rows - p - 1)
    g_root, centre, rank = g @ root, fit.covariance @ fit.weights, int((e > 1e-10 * e[-1]).sum())
    found, order = np.full(len(rows), np.nan), np.argsort(-np.asarray(penalty))
    start = np.zeros_like(g)
    for k in order:
        n, alpha = float(rows[k]), float(penalty[k])
        error, zeta, w = fit.noise + float(centre @ fit.weights), 1.0, start
        for turn in range(ITERATIONS):
            missing = error / n - known
            if missing <= 0:
                break
            w = _denoised(fit.covariance, e[-1], centre + np.sqrt(missing) * g_root, alpha / zeta, mixing, w)
            df = _freedom(fit.covariance, w, alpha * (1 - mixing) / zeta)
            apart = w - fit.weights
            new = fit.noise + np.einsum("ij,jk,ik->i", apart, fit.covariance, apart).mean() - known * (rank - 2 * df)
            gap = df / n - (1 - zeta)
            # weights come and go one by one, so that ζ is known to one weight in all draws
            if turn > 3 and abs(new - error) <= 2e-3 * error and abs(gap) <= 1e-3 + 2 / (n * len(g)):
                found[k], start = new, w
                break
            # In log ζ, because the number of weights depends on α/ζ; shorter and shorter steps, because it is steep at n < p.
            part = 0.5 / (1 + turn / 12)
            error, zeta = error + part * (max(new, 0.2 * error) - error), min(zeta * np.exp(-2 * part * gap), 1.0)
    return found * (1 + 1 / np.asarray(rows, float))


def _denoised(covariance: Array, largest: float, moments: Array, penalty: float, mixing: float, start: Array) -> Array:
    """argmin ½wᵀΣw − v·w + penalty(ρ|w|₁ + (1 − ρ)|w|²/2) for every row v of `moments`.

    By accelerated proximal steps that restart when they overshoot (O'Donoghue and Candès 2015, arXiv:1204.3982).
    """
    ridge, threshold = penalty * (1 - mixing), penalty * mixing
    step = 1 / (largest + ridge)
    w, ahead, pace = start, start, 1.0
    for _ in range(STEPS):
        moved = ahead - step * (ahead @ covariance + ridge * ahead - moments)
        new = np.sign(moved) * np.maximum(np.abs(moved) - step * threshold, 0.0)
        change = new - w
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        if ((ahead - new) * change).sum() > 0:
            ahead, pace = new, 1.0
        else:
            ahead, pace = new + (pace - 1) / faster * change, faster
        w = new
        if np.abs(change).max() <= TOLERANCE * np.abs(w).max():
            break
    return w


def _freedom(covariance: Array, w: Array, ridge: float) -> float:
    """Mean of df: the number of weights that are not zero, or the trace of their ridge regression."""
    if ridge <= 0:
        return float((w != 0).sum(axis=1).mean())
    on = (w != 0).astype(float)
    total = 0.0
    for some in np.array_split(on, max(1, len(on) * on.shape[1] ** 2 // 2_000_000)):
        part = covariance * some[:, :, None] * some[:, None, :]
        total += float(np.trace(np.linalg.solve(part + ridge * np.eye(len(covariance)), part), axis1=1, axis2=2).sum())
    return total / len(w)
