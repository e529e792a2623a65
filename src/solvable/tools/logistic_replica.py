"""Linear classifiers with an intercept, from a spectrum and a signal: the replica saddle point of two channels.

Logistic regression minimises Σ ℓ(y(x·w + b)) + (L/2)|w|² with ℓ(v) = log(1 + e⁻ᵛ) over n rows with labels y = ±1, a fraction
p of them +1; support-vector machines have ℓ = (1 − v)₊ or (1 − v)₊², ridge classifiers ℓ = (1 − v)²/2 (`MARGIN_LOSSES`).
With κ = L/V̂ and the functions df1, df2 of `effective_ridge`, the mean overlap m with the teacher, the variance q of the
margins and their response V obey

    V = df1/V̂,    m = (m̂/V̂) D,    q = (m̂/V̂)² (D + κD′) + (q̂/V̂²) df2,
    V̂ = −n E ∂f,    q̂ = n E f²,    E f = 0 (which fixes b),    f = (prox_V(ω) − ω)/V.

D(κ) follows from the covariance of labels and features, c(κ) of `effective_ridge` for ridge regression on the same ±1
labels. Both label channels follow from it and p without free parameters:

- `clusters`: two Gaussian clusters at ±μ: ω = ym + b + √q ξ, m̂ = n E[yf], D = (c/s⁴)/(1 − c/s²), s² = 4p(1 − p);
- `probit`: the sign of a Gaussian field, of which the features explain a part: ω = b + √q ξ,
  P(y|ω) = Φ(y(mξ/√q − θ)/√(1 − m²/q)), m̂ = n Σ_y E[∂P f], D = c/a², θ = Φ⁻¹(1 − p), a = 2φ(θ).

(Mignacco, Krzakala, Lu, Urbani and Zdeborová 2020, arXiv:2002.11544; Loureiro et al. 2021, arXiv:2102.08127.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from scipy.special import expit, log_expit, ndtr, ndtri

from ..methods.random_matrices.effective_ridge import Shape

Channel = Literal["clusters", "probit"]
CHANNELS: tuple[Channel, Channel] = ("clusters", "probit")
NODES = 61
TURNS, DAMPED, PARTS = 60, 8, (1.0, 0.3)
TOLERANCE = 1e-9
_x, _w = np.polynomial.hermite_e.hermegauss(NODES)
_w = _w / _w.sum()
_SIDES = np.array([1.0, -1.0])[None, :, None]  # axis of labels, between points and nodes
_legendre = np.polynomial.legendre.leggauss(48)
_panel = np.polynomial.legendre.leggauss(32)
FAR = 9.0


class LogisticSolution(NamedTuple):
    """Test error and log-loss of logistic regression at several points; NaN where no fixed point was found."""

    error: Float[Array, " k"]
    loss: Float[Array, " k"]
    kappa: Float[Array, " k"]
    converged: Bool[Array, " k"]


def most_signal(share: float, channel: Channel) -> float:
    """The largest Σ a_j that the channel allows: the variance of the labels, or the part that a Gaussian field explains."""
    if channel == "clusters":
        return 4 * share * (1 - share)
    return float(4 * np.exp(-(ndtri(1 - share) ** 2)) / (2 * np.pi))


def proximal(
    target: Float[Array, "*k"], response: Float[Array, "*k"], start: Float[Array, "*k"] | None = None
) -> Array:
    """Solve v = t + V/(1 + eᵛ), the proximal point of log(1 + e⁻ᵛ), by Newton steps kept inside a bracket.

    >>> v = proximal(np.array([-3.0, 0.0, 500.0]), np.array([1e4, 1.0, 2.0]))
    >>> bool(np.all(np.abs(v - np.array([-3.0, 0, 500]) - np.array([1e4, 1, 2]) * expit(-v)) < 1e-9))
    True
    """
    low, high = target, target + response
    v = np.clip(low + response * expit(-target) / (1 + response / 4) if start is None else start, low, high)
    for _ in range(100):
        s = expit(-v)
        missed = v - target - response * s
        if np.all(np.abs(missed) <= 1e-12 * (1 + response)):
            break
        low, high = np.where(missed < 0, np.maximum(low, v), low), np.where(missed > 0, np.minimum(high, v), high)
        new = v - missed / (1 + response * s * (1 - s))
        v = np.where((new <= low) | (new >= high), (low + high) / 2, new)
    return v


class MarginLoss(NamedTuple):
    """A loss of the margin v: `pull` gives −ℓ′ and ℓ″/(1 + Vℓ″) at the proximal point of (t, V), and that point.

    `kinks` are the t at which the pull is not smooth, as pairs (a, b) of a + bV.
    """

    value: Callable[[Array], Array]
    pull: Callable[[Array, Array, Array | None], tuple[Array, Array, Array]]
    kinks: tuple[tuple[float, float], ...] = ()


def _logistic_pull(target: Array, response: Array, start: Array | None) -> tuple[Array, Array, Array]:
    near = proximal(target, response, start)
    s = expit(-near)
    curve = s * (1 - s)
    return s, curve / (1 + response * curve), near


def _hinge_pull(target: Array, response: Array, start: Array | None) -> tuple[Array, Array, Array]:
    s = np.clip((1 - target) / response, 0.0, 1.0)
    return s, np.where((s > 0) & (s < 1), 1 / response, 0.0), target + response * s


def _squared_hinge_pull(target: Array, response: Array, start: Array | None) -> tuple[Array, Array, Array]:
    stiff = 2 / (1 + 2 * response)
    s = stiff * np.maximum(1 - target, 0.0)
    return s, np.where(target < 1, stiff, 0.0), target + response * s


def _square_pull(target: Array, response: Array, start: Array | None) -> tuple[Array, Array, Array]:
    s = (1 - target) / (1 + response)
    return s, 1 / (1 + response), target + response * s


MARGIN_LOSSES = {
    "logistic": MarginLoss(lambda v: -log_expit(v), _logistic_pull),
    "hinge": MarginLoss(lambda v: np.maximum(1 - v, 0.0), _hinge_pull, ((1.0, 0.0), (1.0, -1.0))),
    "squared_hinge": MarginLoss(lambda v: np.maximum(1 - v, 0.0) ** 2, _squared_hinge_pull, ((1.0, 0.0),)),
    "square": MarginLoss(lambda v: (1 - v) ** 2 / 2, _square_pull),
}


def _nodes(loss: MarginLoss, v: Array, m: Array, q: Array, b: Array, channel: Channel) -> tuple[Array, Array]:
    """Nodes ξ of the Gaussian average and their weights, [point, label, node]; panels end at the kinks of the loss."""
    if not loss.kinks:
        return _x[None, None, :], _w[None, None, :]
    x, w = _panel
    mean = b[:, None] + (_SIDES[0, :, 0] * m[:, None] if channel == "clusters" else 0.0)
    ends = [(_SIDES[0, :, 0] * (k + slope * v[:, None]) - mean) / np.sqrt(q)[:, None] for k, slope in loss.kinks]
    ends = np.sort(np.clip(np.stack(ends, axis=-1), -FAR, FAR), axis=-1)
    side = np.full((*ends.shape[:2], 1), FAR)
    ends = np.concatenate([-side, ends, side], axis=-1)
    half = np.diff(ends, axis=-1)[..., None] / 2
    nodes = ((ends[..., :-1, None] + ends[..., 1:, None]) / 2 + half * x).reshape(*ends.shape[:2], -1)
    weights = (half * w).reshape(nodes.shape) * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    return nodes, weights


def _alignment(shape: Shape, kappa: Array, share: float, channel: Channel) -> tuple[Array, Array]:
    """D and D′ of a channel."""
    c, slope = shape.aligned(kappa)
    most = most_signal(share, channel)
    if channel == "clusters":
        rest = 1 - c / most
        return c / most**2 / rest, slope / (most * rest) ** 2
    return c / most, slope / most


def _labels(
    loss: MarginLoss, v: Array, m: Array, q: Array, b: Array, share: float, channel: Channel
) -> tuple[Array, Array, Array]:
    """Margins ω[point, label, node], their weights, and the weights of f in m̂."""
    nodes, chance = _nodes(loss, v, m, q, b, channel)
    ratio = (m / np.sqrt(q))[:, None, None]
    base = b[:, None, None] + np.sqrt(q)[:, None, None] * nodes
    if channel == "clusters":
        weights = np.array([share, 1 - share])[None, :, None] * chance * np.ones_like(base)
        return base + _SIDES * m[:, None, None], weights, weights * _SIDES
    rest = np.sqrt(np.maximum(1 - ratio**2, 1e-12))
    z = (ratio * nodes - ndtri(1 - share)) / rest
    weights = chance * ndtr(_SIDES * z)
    pull = chance * _SIDES * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / rest
    return np.broadcast_to(base, weights.shape), weights, pull


def _wrong(m: Array, q: Array, b: Array, share: float, channel: Channel) -> Array:
    """Probability of a wrong label."""
    root = np.sqrt(q)
    if channel == "clusters":
        return share * ndtr(-(m + b) / root) + (1 - share) * ndtr(-(m - b) / root)
    ratio, theta = np.minimum(m / root, 1 - 1e-12), ndtri(1 - share)
    edge = np.clip(-b / root, -9.0, 9.0)[:, None]
    x, w = _legendre
    total = np.zeros_like(q)
    for sign, half in (
        (1.0, (9.0 + edge) / 2),
        (-1.0, (9.0 - edge) / 2),
    ):  # below the edge the guess is −1, above it +1
        nodes = edge - sign * half * (1 - x[None, :])
        field = (ratio[:, None] * nodes - theta) / np.sqrt(1 - ratio[:, None] ** 2)
        total = total + (half * w * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi) * ndtr(sign * field)).sum(axis=1)
    return total


def _state(v: Array, m: Array, q: Array, b: Array, channel: Channel) -> Array:
    """(log V, m, log q, b), for `probit` in units of √q: near separable labels only the scale then still changes."""
    root = np.sqrt(q) if channel == "probit" else 1.0
    return np.stack([np.log(v / root), m / root, np.log(q), b / root])


def _parameters(state: Array, channel: Channel) -> tuple[Array, Array, Array, Array]:
    """V, m, q and b of a state."""
    root = np.exp(state[2] / 2) if channel == "probit" else 1.0
    return np.exp(state[0]) * root, state[1] * root, np.exp(state[2]), state[3] * root


class _Problem(NamedTuple):
    """What all points share: the loss, the spectrum with the signal, the fraction of labels +1, the channel, and whether
    the penalty includes the intercept."""

    loss: MarginLoss
    shape: Shape
    share: float
    channel: Channel
    shrinks: bool


def _updated(
    problem: _Problem, state: Array, near: Array | None, rows: Array, penalty: Array
) -> tuple[Array, Array, Array]:
    """One iteration of the equations on the state [4, point]: the new state, κ, and the proximal points."""
    loss, shape, share, channel, shrinks = problem
    v, m, q, b = _parameters(state, channel)
    omega, weights, pull = _labels(loss, v, m, q, b, share, channel)
    response = np.broadcast_to(v[:, None, None], omega.shape)
    s, curve, near = loss.pull(_SIDES * omega, response, near)
    f = _SIDES * s
    stiff = (weights * curve).sum(axis=(1, 2))
    v_hat, q_hat = rows * stiff, rows * (weights * s**2).sum(axis=(1, 2))
    kappa, tilt = penalty / v_hat, rows * (pull * f).sum(axis=(1, 2)) / v_hat
    df1, df2 = shape.freedoms(kappa)
    d, slope = _alignment(shape, kappa, share, channel)
    norm = np.maximum(tilt**2 * (d + kappa * slope) + q_hat / v_hat**2 * df2, 1e-12)
    own = penalty * shrinks
    shift = b + (rows * (weights * f).sum(axis=(1, 2)) - own * b) / (v_hat + own)
    return _state(df1 / v_hat, tilt * d, norm, shift, channel), kappa, near


def _ridge_state(shape: Shape, share: float, rows: Array, penalty: Array, channel: Channel) -> Array:
    """The solution for the square loss in closed form (as long as the penalty leaves the intercept free)."""
    kappa = shape.kappa(rows + 1.0, penalty[:, None])
    df1, df2 = shape.freedoms(kappa)
    d, slope = _alignment(shape, kappa, share, channel)
    hat, power, mean = penalty / kappa, 4 * share * (1 - share), 2 * share - 1
    if channel == "clusters":
        m = power * d / (1 + power * d)
        tilt, misfit, b = (1 - m) * power, power * (1 - m) ** 2, (1 - m) * mean
    else:
        a = np.full_like(d, np.sqrt(most_signal(share, channel)))
        m, tilt, b = a * d, a, np.full_like(d, mean)
        misfit = power - 2 * a * m
    q = (tilt**2 * (d + kappa * slope) + df2 / rows * misfit) / np.maximum(1 - df2 / rows, 1e-9)
    return _state(df1 / hat, m, np.maximum(q, 1e-12), b, channel)


def solve_margins(
    shape: Shape, share: float, rows: Float[Array, " k"], penalty: Float[Array, " k"], channel: Channel,
    loss: str = "logistic", shrinks: bool = False,
) -> LogisticSolution:  # fmt: skip
    """Saddle points of all (n, L) at once: damped iterations, with a Newton step whenever it lowers the residual.

    `share` is the fraction of labels +1; the signal of the shape must be below `most_signal`. `loss` is one of
    `MARGIN_LOSSES`; `shrinks` says that the penalty includes the intercept.

    >>> shape = Shape(np.ones(1), np.array([200.0]), np.array([0.4]), 0.6)
    >>> found = solve_margins(shape, 0.5, np.array([400.0, 800.0]), np.array([10.0, 10.0]), "clusters")
    >>> found.error.round(3).tolist(), found.converged.tolist()
    ([0.316, 0.274], [True, True])
    """
    rows, penalty = np.asarray(rows, float), np.asarray(penalty, float)
    problem = _Problem(MARGIN_LOSSES[loss], shape, share, channel, shrinks)
    hat = 0.15 * rows
    df1, df2 = shape.freedoms(penalty / hat)
    d, _ = _alignment(shape, penalty / hat, share, channel)
    state = _state(df1 / hat, 2 * d, 4 * d + df2 / hat + 1e-9, np.full(len(rows), ndtri(share)), channel)
    if loss == "square":
        state = _ridge_state(shape, share, rows, penalty, channel)
    state, kappa, done = _iterated(problem, state, rows, penalty)
    lost = np.flatnonzero(~done)
    if lost.size and loss != "square":
        again = _iterated(
            problem, _ridge_state(shape, share, rows[lost], penalty[lost], channel), rows[lost], penalty[lost]
        )
        state[:, lost], kappa[lost], done[lost] = again
        lost = np.flatnonzero(~done)
    if lost.size and done.any():  # try again from the nearest converged point
        place = np.stack([np.log(rows), np.log(penalty + 1e-12 * rows)])
        near = np.abs(place[:, lost, None] - place[:, None, done]).sum(axis=0).argmin(axis=1)
        again = _iterated(problem, state[:, done][:, near], rows[lost], penalty[lost])
        state[:, lost], kappa[lost], done[lost] = again
    with np.errstate(all="ignore"):
        v, m, q, b = _parameters(state, channel)
        omega, weights, _ = _labels(problem.loss, v, m, q, b, share, channel)
        lost_value = (weights * problem.loss.value(_SIDES * omega)).sum(axis=(1, 2))
        wrong = _wrong(m, q, b, share, channel)
    return LogisticSolution(np.where(done, wrong, np.nan), np.where(done, lost_value, np.nan), kappa, done)


def solve_logistic(
    shape: Shape, share: float, rows: Float[Array, " k"], penalty: Float[Array, " k"], channel: Channel
) -> LogisticSolution:
    """`solve_margins` for logistic regression."""
    return solve_margins(shape, share, rows, penalty, channel)


def _iterated(problem: _Problem, state: Array, rows: Array, penalty: Array) -> tuple[Array, Array, Array]:
    """State, κ and convergence of every point."""
    state = state.copy()
    kappa, done, live = np.full(len(rows), np.nan), np.zeros(len(rows), bool), np.arange(len(rows))

    def turned(x: Array, n: Array, L: Array, near: Array | None) -> tuple[Array, Array, Array]:
        copies = x.shape[1] // len(n)
        return _updated(problem, x, near, np.tile(n, copies), np.tile(L, copies))

    size = lambda a: np.nan_to_num(np.abs(a).max(axis=0), nan=np.inf)  # noqa: E731
    with np.errstate(all="ignore"):
        for turn in range(TURNS):
            n, L, x, near = rows[live], penalty[live], state[:, live], None
            for _ in range(DAMPED if turn % 4 == 0 else 1):
                new, _, near = turned(x, n, L, near)
                x = x + (0.7 if turn < TURNS // 2 else 0.2) * (new - x)
            # A Newton step on G(x) = new − x, its Jacobian by small differences, all points side by side.
            steps = 1e-6 * (1 + np.abs(x))
            beside = np.concatenate([x] + [x + steps * (np.arange(4) == j)[:, None] for j in range(4)], axis=1)
            assert near is not None
            new, k, _ = turned(beside, n, L, np.tile(near, (5, 1, 1)))
            gap = (new - beside).reshape(4, 5, -1)
            jacobian = (gap[:, 1:] - gap[:, :1]).transpose(2, 0, 1) / steps.T[:, None, :]
            sound = np.isfinite(jacobian).all(axis=(1, 2)) & (np.abs(np.linalg.det(np.nan_to_num(jacobian))) > 1e-14)
            jacobian = np.where(sound[:, None, None], jacobian, np.eye(4)[None])
            step = np.clip(-np.linalg.solve(jacobian, gap[:, 0].T[..., None])[..., 0].T, -2, 2)
            # Take the full step, or part of it; otherwise stay.
            tried = np.concatenate([x + part * step for part in PARTS], axis=1)
            new, there, _ = turned(tried, n, L, None)
            candidates = np.concatenate([gap[:, :1], (new - tried).reshape(4, len(PARTS), -1)], axis=1)
            sizes = size(candidates)
            sizes[1:, ~sound] = np.inf
            best = np.argmin(sizes, axis=0)
            state[:, live] = np.concatenate([x, tried], axis=1).reshape(4, len(PARTS) + 1, -1)[
                :, best, np.arange(len(n))
            ]
            missed = candidates[:, best, np.arange(len(n))]
            ended = size(missed / (1 + np.abs(state[:, live]))) <= TOLERANCE
            k = np.concatenate([k[: len(n)], there]).reshape(len(PARTS) + 1, -1)[best, np.arange(len(n))]
            kappa[live[ended]], done[live[ended]] = k[ended], True
            live = live[~ended]
            if not live.size:
                break
    return state, kappa, done
