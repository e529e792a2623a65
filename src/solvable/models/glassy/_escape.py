r"""Growth of a vanishing overlap with the signal, from the start to times of 10⁴ and in the limit t → ∞.

While m is small it does not affect correlation and response, and obeys a linear equation in the landscape without a signal.
For y = ln(m/m₀) in the limit m₀ → 0, with θ = 1/Δ₂,

    dy/dt = θ − μ(t) + ∫₀^t R(t,s) Q″(C(t,s)) e^{y(s)−y(t)} ds.

`growth` takes C, R and μ from `two_time_log.relax_log` at m = 0, whose steps are equal in ln t, and solves this equation by
implicit steps on the same grid. An overlap that starts at m₀ reaches m when y = ln(m/m₀), so one
solution serves every small m₀.

At long times y = Λt. In the states that trap a sampler, C(τ) decays to the plateau q, (1−q)²Q″(q) = T², as

    dc/dτ = −(T/(1−q)) c − (1/T) ∫₀^τ K(τ−u) ċ(u) du,     c = C − q,     K = Q′(C) − Q′(q),

and Λ(1 + K̂(Λ)/T) = θ − T/(1−q), with K̂ the Laplace transform of K (`escape_rate`). At marginal plateaus c falls as τ^{−a} with
Γ(1−a)²/Γ(1−2a) = TQ‴(q)/(2Q″(q)^{3/2}), so K̂ ~ Λ^{a−1} and Λ vanishes at the threshold with the exponent 1/a
(`divergence_exponent`). At zero temperature a = 1/2 and Λ = (θ−σ)²/θ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from solvable.methods.flows.two_time_log import Mixture, relax_log

from ._landscape import Covariance
from ._thresholds import plateau

LEAD, DIFFERENCES = 25 / 12, (4.0, -3.0, 4 / 3, -1 / 4)  # backward differences of fourth order
POINTS = 6  # of the interpolation in ln t


class Growth(NamedTuple):
    """ln(m/m₀) for m₀ → 0 at times equally spaced in ln t, its growth rate, and the landscape's multiplier.

    `error` estimates the error of the underlying correlation, response and multiplier (see `LogTwoTime`).
    """

    times: np.ndarray
    logarithm: np.ndarray
    rate: np.ndarray
    multiplier: np.ndarray
    error: np.ndarray

    def escape_time(self, initial: float, level: float) -> float:
        """The time at which an overlap that starts at `initial` reaches `level`; NaN if it does not within `times`."""
        needed = math.log(level / initial)
        above = np.flatnonzero(self.logarithm >= needed)
        if not len(above) or above[0] == 0:
            return math.nan
        ends = slice(above[0] - 1, above[0] + 1)
        return float(np.exp(np.interp(needed, self.logarithm[ends], np.log(self.times[ends]))))


def growth(
    covariance: Covariance,
    temperature: float,
    until: float,
    *,
    log_step: float = 0.15,
    logit_step: float = 0.35,
    tolerance: float = 0.02,
) -> Growth:
    """Follow ln(m/m₀), m₀ → 0, up to the time `until`.

    Values are NaN where the estimated error of the landscape's solution exceeds `tolerance`.

    >>> found = growth(Covariance(0.4, 1.0, 3), 0.0, 20.0, log_step=0.2, logit_step=0.4)
    >>> round(float(found.logarithm[-1]), 1)
    5.3
    """
    beta, c, p = float(covariance.matrix), float(covariance.tensor), covariance.order
    mixture = Mixture({2: beta / 2, p: c / p})
    path = relax_log(
        mixture, until, temperature=temperature, tolerance=tolerance, log_step=log_step, logit_step=logit_step
    )
    times, mu = np.asarray(path.times), np.asarray(path.multiplier)
    half = (len(path.ratios) - 1) // 2
    x = logit_step * np.arange(-half, half + 1)
    ratio, rest = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x))
    weight = logit_step * ratio * rest
    correlation, response = np.asarray(path.correlation), np.asarray(path.response)
    kernel = times[:, None] * weight * response * (beta + (p - 1) * c * correlation ** (p - 2))

    # Rows are equally spaced in ln t, so the interpolation weights for earlier times are the same in every row.
    spacing = 2 * log_step
    back = -np.log(ratio) / spacing
    base = np.floor(np.maximum(back - POINTS // 2 + 1, 0)).astype(int)
    at = back - base
    nodes = np.arange(POINTS)
    columns = [np.prod(np.delete(at[:, None] - nodes, j, axis=1), axis=1) for j in nodes]
    scales = [np.prod(np.delete(j - nodes, j).astype(float)) for j in nodes]
    lagrange = np.stack([column / scale for column, scale in zip(columns, scales, strict=True)], axis=1)
    newest = np.where(base == 0, lagrange[:, 0], 0.0)

    padding = int(base.max()) + POINTS
    begin = (beta - temperature) * times[0] * np.exp(-spacing * np.arange(padding, 0, -1))  # linear at the start
    y = np.concatenate([begin, np.full(len(times), np.nan)])
    rate = np.full(len(times), np.nan)
    for n, t in enumerate(times):
        if not np.isfinite(mu[n]):
            break
        here = padding + n
        past = y[here - base[:, None] - nodes]
        past = np.where(base[:, None] + nodes == 0, 0.0, past)
        known = np.sum(past * lagrange, axis=1)
        backward = sum(d * y[here - 1 - i] for i, d in enumerate(DIFFERENCES))
        guess = 4 * y[here - 1] - 6 * y[here - 2] + 4 * y[here - 3] - y[here - 4]
        for _ in range(60):
            ages = np.exp(np.minimum(known + (newest - 1) * guess, 50.0))
            value = beta - mu[n] + kernel[n] @ ages
            residual = LEAD * guess - backward - spacing * t * value
            slope = LEAD - spacing * t * (kernel[n] @ (ages * (newest - 1)))
            change = residual / slope
            guess -= change
            if abs(change) < 1e-11 * (1 + abs(guess)):
                break
        y[here], rate[n] = guess, value
    return Growth(times, y[padding:], rate, mu, np.asarray(path.error))


def decay_exponent(covariance: Covariance, temperature: float) -> float:
    """The exponent a, 0 < a ≤ 1/2, with which correlations in trapping states approach their plateau; NaN if there is none.

    >>> round(decay_exponent(Covariance(0.5**0.5, 1.0, 3), 1.0), 4), decay_exponent(Covariance(0.5, 1.0, 3), 0.0)
    (0.4326, 0.5)
    """
    if temperature == 0:
        return 0.5
    q = float(plateau(covariance, jnp.asarray(float(temperature))))
    if q <= 0:
        return math.nan
    p, c = covariance.order, float(covariance.tensor)
    third = (p - 1) * (p - 2) * c * q ** (p - 3)
    wanted = temperature * third / (2 * float(covariance.curvature(q)) ** 1.5)
    low, high = 0.0, 0.5
    for _ in range(60):
        a = 0.5 * (low + high)
        above = math.gamma(1 - a) ** 2 / math.gamma(1 - 2 * a) > wanted
        low, high = (a, high) if above else (low, a)
    return 0.5 * (low + high)


def escape_rate(covariance: Covariance, temperature: float, *, half: int = 128, doublings: int = 36) -> float:
    """Λ, the rate at which a vanishing overlap grows at long times; zero beyond the threshold.

    >>> [round(escape_rate(Covariance(0.4, 1.0, 3), t), 3) for t in (0.0, 1e-3)]
    [0.057, 0.057]
    """
    theta = float(covariance.matrix)
    if temperature == 0:
        return float(max(theta - math.sqrt(covariance.curvature(1.0)), 0.0) ** 2 / theta)
    q = float(plateau(covariance, jnp.asarray(float(temperature))))
    distance = theta - temperature / (1 - q)
    if distance <= 0:
        return 0.0
    tau, memory = _relaxation(covariance, temperature, q, half, doublings)

    def excess(rate: float) -> float:
        inside = memory * np.exp(-rate * tau)
        return rate * (1 + float(np.trapezoid(inside, tau)) / temperature) - distance

    low, high = -60.0, math.log(distance + 1e-300)
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if excess(math.exp(middle)) > 0 else (middle, high)
    return math.exp(0.5 * (low + high))


def _relaxation(
    covariance: Covariance, temperature: float, q: float, half: int, doublings: int
) -> tuple[np.ndarray, np.ndarray]:
    """τ and K(τ) in a trapping state, by repeated doubling of the step and averages over slices (Fuchs et al. 1991)."""
    scale = 1 - q
    slope_q = covariance.slope(q)
    gain = scale / temperature**2

    def kernel(f: np.ndarray | float) -> np.ndarray | float:
        return gain * (covariance.slope(q + scale * f) - slope_q)

    size, tau0 = 2 * half, scale / temperature
    h = 1e-4 * tau0 / (1 + float(kernel(1.0)))
    f, m = np.empty(size + 1), np.empty(size + 1)
    times = h * np.arange(size + 1)
    f[: half + 1] = np.exp(-times[: half + 1] / tau0)
    m[: half + 1] = kernel(f[: half + 1])
    df, dm = np.zeros(size + 1), np.zeros(size + 1)  # averages over slices
    df[1 : half + 1], dm[1 : half + 1] = ((v[1 : half + 1] + v[:half]) / 2 for v in (f, m))
    found = [(times[: half + 1].copy(), m[: half + 1].copy())]
    for _ in range(doublings):
        for n in range(half + 1, size + 1):
            # τ₀ ḟ + f + ∫ m(τ−u) ḟ(u) du = 0, with the integral split in the middle
            middle = n // 2
            k = np.arange(2, middle + 1)
            total = m[n - middle] * f[middle] - m[n - 1] * df[1] - f[n - 1] * dm[1]
            total += np.sum((m[n - k + 1] - m[n - k]) * df[k])
            k = np.arange(2, n - middle + 1)
            total += np.sum((f[n - k + 1] - f[n - k]) * dm[k])
            lead = tau0 * 1.5 / h + 1 + dm[1]
            rest = tau0 * (2 * f[n - 1] - 0.5 * f[n - 2]) / h - total
            value = f[n - 1]
            for _ in range(100):
                new = (rest + (1 - df[1]) * float(kernel(value))) / lead
                done = abs(new - value) < 1e-14
                value = new
                if done:
                    break
            f[n], m[n] = value, kernel(value)
            df[n], dm[n] = (f[n] + f[n - 1]) / 2, (m[n] + m[n - 1]) / 2
        found.append((h * np.arange(half + 1, size + 1), m[half + 1 :].copy()))
        # Double the step: keep every second point and average pairs of slices.
        f[: half + 1], m[: half + 1] = f[::2].copy(), m[::2].copy()
        df[1 : half + 1], dm[1 : half + 1] = ((v[1::2] + v[2::2]) / 2 for v in (df, dm))
        h *= 2
    tau, memory = (np.concatenate([part[i] for part in found]) for i in (0, 1))
    return tau, memory * temperature**2 / scale
