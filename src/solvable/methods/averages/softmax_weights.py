r"""Softmax weights of Gaussian scores at any number of tokens: how concentrated they are, and how much two rows share.

A row of attention is A_j = e^{x_j}/Z with T independent scores x_j ~ N(0, σ²): the Gibbs measure of a random energy model.
With 1/Z^k = ∫ t^{k−1} e^{−tZ} dt/Γ(k), t = e^y, every moment factorises over tokens. With φ(y) = E exp(−e^{y+x}) and
m_k(y) = E e^{k(y+x)} exp(−e^{y+x}),

    Y₂ = E Σ_j A_j²      = T ∫ dy m₂ φ^{T−1},           Y₃ = E Σ_j A_j³ = (T/2) ∫ dy m₃ φ^{T−1},
    E (Σ_j A_j²)²        = (1/6) ∫ dy [T m₄ φ^{T−1} + T(T−1) m₂² φ^{T−2}],
    E log Z              = ∫ dy [exp(−e^y) − φ^T],

and the entropy is E log Z − σ²(1 − Y₂), by integration by parts. For two rows whose scores of the same token have
correlation r, φ and its mixed derivative become functions of two variables,

    Y₁₂ = E Σ_k A_k A′_k = T ∫∫ dy dy′ E[e^{x+x′} exp(−e^x − e^{x′})] (E exp(−e^x − e^{x′}))^{T−1};

given the part of the scores that the rows share, both averages are products. All integrands are analytic and decay fast, so
trapezoidal sums converge exponentially. `softmax_table` interpolates them by Chebyshev polynomials, which JAX evaluates.

>>> found = softmax_moments(np.sqrt(np.log(256) * 0.8) * 3, 256)
>>> round(found.participation, 10), round(softmax_overlap(1.5 * np.sqrt(np.log(1024) * 0.8), 0.2, 1024), 9)
(0.5662002509, 0.004040444)
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import fft

STEP = 0.42
"""Step of the trapezoidal sums: exp(−e^y) is analytic in |Im y| < π/2, so their error is about exp(−π²/STEP) = 6e-11."""
REACH = 8.3  # standard deviations of a Gaussian average; beyond them lies 1e-16
SCALE = 1.0  # strengths well below this act linearly


class Moments(NamedTuple):
    """Averages of one row of weights.

    `participation` is Y₂, `entropy` in nats, `response` is F = Y₂ − 2Y₃ + E(ΣA²)²: the mean square of the derivative of a
    weighted mean of independent unit-variance numbers with respect to the scores, summed over the scores.
    """

    participation: Any
    entropy: Any
    response: Any


def _rule(width: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes u and weights of a standard Gaussian average of f(width·u), f analytic in |Im| < π/2."""
    step = min(0.75, STEP / max(width, 1e-9))
    u = np.arange(-np.ceil(REACH / step), np.ceil(REACH / step) + 1) * step
    w = np.exp(-0.5 * u**2)
    return u, w / w.sum()


def _exponentials(y: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """e^x at x = y + width·u, cut where exp(−e^x) vanishes, and the weights of the nodes u."""
    u, w = _rule(width)
    return np.exp(np.minimum(y[:, None] + width * u, 6.6)), w


def _end(spread: float, tokens: int) -> float:
    """The y beyond which φ^T is below e^−30: 1 − φ is nearly one, or its Gaussian tail to the power T is small."""
    return 5.0 + spread * np.sqrt(60 / tokens)


def _window(spread: float, tokens: int) -> np.ndarray:
    """The grid of y on which T·E[e^x exp(−e^x)] φ^{T−1} exceeds about 1e-12, found on a coarse grid."""
    T, wide = tokens, 2.0
    y = np.arange(-(spread * REACH + 30 + np.log(T)), _end(spread, T), wide)
    u = np.linspace(-REACH, REACH, 67)
    w = np.exp(-0.5 * u**2)
    e = np.exp(np.minimum(y[:, None] + spread * u, 6.6))
    w = w / w.sum()
    y = y[(T * (-np.expm1(-e) @ w) < 30 + T * (T < 40)) & (T * ((e * np.exp(-e)) @ w) > 1e-12)]
    return np.arange(y[0] - wide, y[-1] + wide, STEP)


def softmax_moments(spread: float, tokens: int) -> Moments:
    """Moments of softmax weights of `tokens` independent Gaussian scores with standard deviation `spread`.

    >>> np.round(softmax_moments(0.0, 50), 10).tolist() == np.round([1 / 50, np.log(50), 1 / 50 - 1 / 50**2], 10).tolist()
    True
    """
    T, step = tokens, STEP / 2  # the fourth power needs the finer step
    low = -(spread * np.sqrt(2 * (30 + np.log(T))) + 30 + np.log(T))
    y = np.arange(low, _end(spread, T), step)
    e, w = _exponentials(y, spread)
    f = np.exp(-e)
    log_phi = np.log1p(-np.minimum(-np.expm1(-e) @ w, 1 - 1e-15))
    m2, m3, m4 = ((e**k * f) @ w for k in (2, 3, 4))
    power = np.exp((T - 1) * log_phi)
    y2 = T * step * (m2 @ power)
    y3 = T / 2 * step * (m3 @ power)
    square = step / 6 * np.sum(T * m4 * power + T * (T - 1) * m2**2 * np.exp((T - 2) * log_phi))
    log_z = step * np.sum(np.exp(-np.exp(y)) - np.exp(T * log_phi))
    return Moments(float(y2), float(log_z - spread**2 * (1 - y2)), float(y2 - 2 * y3 + square))


def softmax_overlap(spread: float, correlation: float, tokens: int) -> float:
    """Y₁₂ of two rows of weights, whose scores of the same token have this correlation (from 0 to 1).

    >>> abs(softmax_overlap(2.0, 1.0, 100) - softmax_moments(2.0, 100).participation) < 1e-9
    True
    """
    T = tokens
    shared, own = spread * np.sqrt(correlation), spread * np.sqrt(1 - correlation)
    y = _window(spread, T)
    n = len(y)
    if shared < 0.5:
        u, weight = _rule(shared)
        tables = _given(y + shared * u[:, None], own)
        both, slope = (np.sum(weight[:, None, None] * v[:, :, None] * v[:, None, :], axis=0) for v in tables)
        return float(T * STEP**2 * np.sum(slope * np.exp((T - 1) * np.log(np.maximum(both, 1e-300)))))
    # Nodes of the shared part on the grid of y itself: along each diagonal y′ − y the average is a convolution. (Matrix
    # products would start the threads of the BLAS thousands of times.)
    k = int(np.ceil(REACH * shared / STEP))
    weight = np.exp(-0.5 * (np.arange(-k, k + 1) * STEP / shared) ** 2)
    sums, shift = [], np.arange(n)
    for values in _given(y[0] + STEP * np.arange(-k, n + k), own):
        padded = np.concatenate([values, np.zeros(n)])
        products = values * np.lib.stride_tricks.sliding_window_view(padded, len(values))[:n]
        sums.append(_averaged(products, weight))
    both, slope = sums
    inside = shift[None, :] < n - shift[:, None]
    terms = np.where(inside, slope * np.exp((T - 1) * np.log(np.clip(both, 1e-300, 1.0))), 0.0).sum(axis=1)
    return float(T * STEP**2 * (2 * terms.sum() - terms[0]))


def _given(y: np.ndarray, own: float) -> tuple[np.ndarray, np.ndarray]:
    """E exp(−e^x) and E e^x exp(−e^x) at x = y + own·u, on grids of y with the common step along the last axis."""
    if own < 0.5:
        u, w = _rule(own)
        e = np.exp(np.minimum(y + own * u.reshape((-1,) + (1,) * y.ndim), 6.6))
        w = w.reshape((-1,) + (1,) * y.ndim)
        return np.sum(w * np.exp(-e), axis=0), np.sum(w * e * np.exp(-e), axis=0)
    k = int(np.ceil(REACH * own / STEP))
    w = np.exp(-0.5 * (np.arange(-k, k + 1) * STEP / own) ** 2)
    n = y.shape[-1]
    e = np.exp(np.minimum(y[..., :1] + STEP * np.arange(-k, n + k), 6.6))
    return _averaged(np.exp(-e), w), _averaged(e * np.exp(-e), w)


def _averaged(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Averages of neighbouring entries along the last axis with symmetric weights, where all of them exist."""
    size = fft.next_fast_len(values.shape[-1], real=True)
    kernel = np.asarray(fft.rfft(weights / weights.sum(), size))
    found = np.asarray(fft.irfft(np.asarray(fft.rfft(values, size)) * kernel, size))
    return found[..., len(weights) - 1 : values.shape[-1]]


class SoftmaxTable:
    """Chebyshev interpolation of Y₂, entropy and F over the spread, and of Y₁₂ over strength and overlap.

    Rows whose tokens have overlap ρ, at strength s, have scores of spread s√(1−ρ) and correlation ρ. The table covers
    0 ≤ s ≤ `reach` and 0 ≤ ρ ≤ 1. Make it by `softmax_table`, which keeps it.
    """

    def __init__(self, tokens: int, reach: float, nodes: int):
        self.tokens, self.reach = tokens, float(reach)
        spreads = self._strengths(2 * nodes)
        moments = np.array([softmax_moments(spread, tokens) for spread in spreads])
        self.alone_coefficients = _coefficients(moments)
        b = SCALE * np.sinh(_unit(3 * nodes // 2)[None, :] * np.arcsinh(self._strengths(nodes)[:, None] / SCALE))
        found = [
            [softmax_overlap(s * np.sqrt(1 - r), r, tokens) for r in np.clip(1 - own / s, 0.0, 1.0)]
            for s, own in zip(self._strengths(nodes), b, strict=True)
        ]
        self.shared_coefficients = _coefficients(_coefficients(np.array(found)).T).T

    def _strengths(self, nodes: int) -> np.ndarray:
        """Nodes over strengths: even functions of asinh(s), so that half of them suffice."""
        return SCALE * np.sinh(np.sqrt(_unit(nodes)) * np.arcsinh(self.reach / SCALE))

    def _place(self, strength: Array) -> Array:
        return 2 * (jnp.arcsinh(strength / SCALE) / np.arcsinh(self.reach / SCALE)) ** 2 - 1

    def alone(self, spread: Float[Array, "..."]) -> Moments:
        """Y₂, entropy and F at these spreads."""
        return Moments(*_clenshaw(self.alone_coefficients, self._place(spread)))

    def participation(self, spread: Float[Array, "..."]) -> Float[Array, "..."]:
        """Y₂ alone."""
        return _clenshaw(self.alone_coefficients[:, :1], self._place(spread))[0]

    def row(self, strength: Float[Array, ""]) -> Float[Array, " nodes"]:
        """The coefficients over overlaps at one strength, for `shared`."""
        return _clenshaw(self.shared_coefficients, self._place(strength))

    def shared(self, row: Array, strength: Float[Array, ""], overlap: Float[Array, "..."]) -> Float[Array, "..."]:
        """Y₁₂ at one strength, the `row` of which is given, and any overlaps."""
        s = jnp.maximum(strength, 1e-6) / SCALE
        place = 2 * jnp.arcsinh(s * (1 - overlap)) / jnp.arcsinh(s) - 1
        return _clenshaw(row[:, None], place)[0]


def _unit(nodes: int) -> np.ndarray:
    """Chebyshev nodes on (0, 1)."""
    return (1 + np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)) / 2


def _coefficients(values: np.ndarray) -> np.ndarray:
    """Chebyshev coefficients along the first axis, from values at the nodes."""
    n = len(values)
    c = 2 / n * np.cos(np.outer(np.arange(n), np.pi * (np.arange(n) + 0.5) / n)) @ values
    c[0] /= 2
    return c


def _clenshaw(coefficients: Any, x: Array) -> Array:
    """Chebyshev sums Σ_k c_k T_k(x) along the first axis of the coefficients, on an axis before those of x."""
    c, x = jnp.asarray(coefficients), jnp.asarray(x)
    columns = c.shape[1:]
    c, x = c.reshape(c.shape + (1,) * x.ndim), x.reshape((1,) * len(columns) + x.shape)
    first = second = jnp.zeros(jnp.broadcast_shapes(c.shape[1:], jnp.shape(x)), c.dtype)
    for k in range(len(coefficients) - 1, 0, -1):
        first, second = 2 * x * first - second + c[k], first
    return x * first - second + c[0]


@cache
def softmax_table(tokens: int, reach: float, nodes: int = 32) -> SoftmaxTable:
    """The table for this many tokens and strengths up to `reach`, computed once (about two seconds).

    >>> table = softmax_table(16, 4.0, 24)
    >>> spread = 3.0 * np.sqrt(0.7)
    >>> bool(abs(table.participation(jnp.asarray(spread)) - softmax_moments(spread, 16).participation) < 1e-6)
    True
    >>> shared = table.shared(table.row(jnp.asarray(3.0)), jnp.asarray(3.0), jnp.asarray(0.3))
    >>> bool(abs(shared - softmax_overlap(spread, 0.3, 16)) < 1e-6)
    True
    """
    return SoftmaxTable(tokens, reach, nodes)
