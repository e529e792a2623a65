r"""Likelihood-ratio norms of a spiked cumulant: exact at any n and d, of low degree, and in the limit n ~ d.

Two spikes of overlap λ interact through f(λ) = E_Q[ℓ_u ℓ_v] = Σ_k ρ^k h_k²/k!, with ρ = rλ, r = β/(1+β) and the Hermite
moments h_k of the latent. By Mehler's formula this is an average over two independent latents g and g',

    f = E (1-ρ²)^{-1/2} exp{ -ρ²(g-g')²/(2(1-ρ²)) + ρ g g'/(1+ρ) },

written so that nothing cancels as ρ → 1. It is finite if the latent is bounded (or has tails lighter than a Gaussian's); with
heavier tails the second term makes it infinite at every λ > 0, and only norms of low degree exist.

>>> two = latent_named("rademacher")
>>> round(float(pair_function(two, 10.0, 0.9)), 6)
1.373506
>>> round(float(np.exp(log_norm(two, 2.0, samples=3, dimension=4))), 6)
1.041501
>>> round(low_degree_norm(two.hermite, 10.0, samples=10_000, dimension=100, degree=4), 4)
1.3392
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import gammaln, logsumexp

from solvable.errors import InvalidValue
from solvable.methods.averages.hermite import atoms_with_moments, hermite_moments, information_exponent, raw_moments
from solvable.methods.averages.quadrature import legendre
from solvable.methods.fixed_points.bisection import bisect

ORDER = 24  # order of the largest Hermite moment
SMALL, SERIES = (
    0.05,
    14,
)  # ρ below which f is a series, and its order: f - 1 is of order ρ⁴ and would be lost to rounding
EDGE = math.sqrt(3.0)  # bound of a uniform variable of variance one
FAR = 20.0  # u = artanh λ beyond which λ is one to all digits


class Latent(NamedTuple):
    """The law of g: its values and their probabilities (none if it is continuous), and h_0, h_1, …"""

    name: str
    values: np.ndarray
    chances: np.ndarray
    hermite: np.ndarray

    @property
    def exponent(self) -> int:
        """The first order in which its law differs from a Gaussian's; 0 if there is none."""
        return information_exponent(self.hermite)


def latent_named(name: str, moments: Any = None, order: int = ORDER) -> Latent:
    """A latent by name, or (`"moments"`) the law with the fewest atoms that has the moments E[g^0], E[g^1], ….

    >>> latent_named("laplace").hermite[:5].tolist(), latent_named("moments", [1.0, 0.0, 1.0, 0.5]).exponent
    ([1.0, 0.0, 0.0, 0.0, 3.0], 3)
    """
    none = np.zeros(0)
    if name == "moments":
        return latent_with_atoms(*atoms_with_moments(np.asarray(moments, float)), order)
    hermite = hermite_moments(raw_moments(name, order))
    if name == "rademacher":
        return Latent(name, np.array([-1.0, 1.0]), np.array([0.5, 0.5]), hermite)
    return Latent(name, none, none, hermite)


def latent_with_atoms(values: np.ndarray, chances: np.ndarray, order: int = ORDER) -> Latent:
    """A latent that takes few values."""
    moments = chances @ values[:, None] ** np.arange(order + 1)
    moments[:3] = 1.0, 0.0, 1.0  # exact, so that Gaussian orders cancel to the last digit
    return Latent("moments", values, chances, hermite_moments(moments))


def log_pair(latent: Latent, ratio: Array, rest: Array, overlap: Array, missing: Array) -> Array:
    """log f at an overlap in [0, 1]; `ratio` is r, `rest` 1 - r and `missing` 1 - λ, each to full precision."""
    rho = ratio * overlap
    gap = rest * (1 + ratio) + ratio**2 * missing * (1 + overlap)  # 1 - ρ²
    little = jnp.minimum(rho, SMALL)
    # even orders, the only ones of most latents, and odd ones
    terms = latent.hermite[: SERIES + 1] ** 2 / np.exp(gammaln(np.arange(SERIES + 1) + 1.0))
    series = little**4 * _horner(terms[4::2], little**2)
    if np.any(terms[3::2]):
        series = series + little**3 * _horner(terms[3::2], little**2)
    return jnp.where(rho < SMALL, jnp.log1p(series), _log_mehler(latent, jnp.maximum(rho, SMALL), gap))


def _horner(coefficients: np.ndarray, x: Array) -> Array:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _log_mehler(latent: Latent, rho: Array, gap: Array) -> Array:
    if latent.name == "gaussian":
        return jnp.zeros_like(rho)
    if latent.name == "rademacher":
        tail = -2 * rho**2 / gap - 2 * rho / (1 + rho)
        return rho / (1 + rho) - 0.5 * jnp.log(gap) + jnp.log1p(jnp.exp(tail)) - math.log(2.0)
    if latent.name == "uniform":
        return _log_uniform(rho, gap)
    if latent.name != "moments":
        refuse_infinite(latent.name)
    g, other = np.meshgrid(latent.values, latent.values)
    weight = np.outer(latent.chances, latent.chances).ravel()
    exponents = -((rho**2 / gap)[None] * ((g - other) ** 2).ravel()) / 2 + (rho / (1 + rho))[None] * (g * other).ravel()
    return jax.scipy.special.logsumexp(exponents, b=jnp.asarray(weight)) - 0.5 * jnp.log(gap)


def _log_uniform(rho: Array, gap: Array) -> Array:
    """One of the two averages is a difference of error functions; the other has steps of width √gap at ±√3ρ."""
    root, (u, w) = jnp.sqrt(gap), legendre(16)
    steps = EDGE * rho + root * np.array([-8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0])
    edges = jnp.concatenate([jnp.zeros(1), jnp.clip(steps, 0.0, EDGE), jnp.full(1, EDGE)])
    left, length = edges[:-1, None], jnp.diff(edges)[:, None]
    g, weight = (left + length * u[None, :]).reshape(-1), (length * w[None, :]).reshape(-1)
    inside = jax.scipy.special.ndtr((EDGE * rho - g) / root) - jax.scipy.special.ndtr((-EDGE * rho - g) / root)
    return jnp.log(jnp.sum(weight * jnp.exp(g**2 / 2) * inside)) + jnp.log(math.sqrt(2 * math.pi) / 6 / rho)


def refuse_infinite(latent: str) -> None:
    """Raise `InvalidValue` for a latent whose norm does not exist."""
    raise InvalidValue(
        f"latent = {latent!r} has heavier tails than a Gaussian: its likelihood-ratio norm is infinite from one sample on, "
        "and only norms of low degree exist (norm = 'low-degree')."
    )


def pair_function(latent: Latent, snr: Any, overlap: Any) -> Array:
    """f(β, λ), for λ in [0, 1]."""
    snr, overlap = jnp.asarray(snr, float), jnp.asarray(overlap, float)
    return jnp.exp(log_pair(latent, snr / (1 + snr), 1 / (1 + snr), overlap, 1 - overlap))


# --- any number of samples ---------------------------------------------------------------------------------------------


def log_norm(latent: Latent, snr: float, samples: int | float, dimension: int) -> float:
    """log of the exact norm, E_λ f(λ)^n over two spikes on the hypercube: a sum over their C(d, k)/2^d overlaps."""
    if latent.name == "laplace":
        refuse_infinite(latent.name)
    k = np.arange(dimension + 1)
    chance = gammaln(dimension + 1) - gammaln(k + 1) - gammaln(dimension - k + 1) - dimension * math.log(2.0)
    size, missing = np.abs(2 * k - dimension) / dimension, np.minimum(k, dimension - k) * 2 / dimension
    r, rest = snr / (1 + snr), 1 / (1 + snr)
    above = jax.vmap(lambda x, y: log_pair(latent, jnp.asarray(r), jnp.asarray(rest), x, y))
    pair = np.array(above(jnp.asarray(size), jnp.asarray(missing)))
    if np.any(np.abs(latent.hermite[3::2]) > 1e-12):  # skewed: opposite spikes are not the same
        pair = np.where(2 * k < dimension, _log_opposite(latent, r * size, 1 - (r * size) ** 2), pair)
    return float(np.asarray(logsumexp(chance + samples * pair)))


def _log_opposite(latent: Latent, rho: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """log f at -ρ: the second latent with its sign reversed."""
    g, other = np.meshgrid(latent.values, -latent.values)
    weight = np.outer(latent.chances, latent.chances).ravel()[:, None]
    exponents = -((rho**2 / gap)[None] * ((g - other) ** 2).ravel()[:, None]) / 2
    exponents = exponents + (rho / (1 + rho))[None] * (g * other).ravel()[:, None]
    return np.asarray(logsumexp(exponents, b=weight, axis=0)) - 0.5 * np.log(gap)


def low_degree_norm(hermite: np.ndarray, snr: float, samples: int | float, dimension: int, degree: int) -> float:
    """Norm of the best polynomial of the given degree in all n samples: Σ_{m ≤ D} E[λ^m] [λ^m] f^n.

    The coefficients b_m of f^n follow from those of f, a_k = r^k h_k²/k!, by m b_m = Σ_k (k(n+1) - m) a_k b_{m-k}.
    """
    k = np.arange(degree + 1)
    a = (snr / (1 + snr)) ** k * np.asarray(hermite)[: degree + 1] ** 2 / np.exp(gammaln(k + 1.0))
    b = np.zeros(degree + 1)
    b[0] = 1.0
    for m in range(1, degree + 1):
        b[m] = np.sum((k[1 : m + 1] * (samples + 1) - m) * a[1 : m + 1] * b[m - 1 :: -1][:m]) / m
    heads = np.arange(dimension + 1)
    chance = gammaln(dimension + 1) - gammaln(heads + 1) - gammaln(dimension - heads + 1) - dimension * math.log(2.0)
    moments = (2 * heads / dimension - 1)[None, :] ** k[:, None] @ np.exp(chance)
    return float(np.sum(b * moments))


def low_degree_limit(latent: Latent, ratio: Array, scaled: Array, degree: int) -> Array:
    """The same for d → ∞ with n = c d^{p/2}: Σ_j (c a_p)^j/j! · (pj - 1)!! over even pj ≤ D, p the first order with h_p ≠ 0."""
    p = latent.exponent
    total = jnp.ones_like(ratio)
    if p == 0:
        return total
    strength = scaled * ratio**p * float(latent.hermite[p]) ** 2 / math.factorial(p)
    for j in range(1, degree // p + 1):
        if p * j % 2 == 0:
            total = total + strength**j * float(math.prod(range(1, p * j, 2)) / math.factorial(j))
    return total


# --- n = γd -------------------------------------------------------------------------------------------------------------


class Linear(NamedTuple):
    """The exact norm for n = γd.

    `rate` is the limit of log‖L‖²/d and `overlap` the λ that dominates (zero below the transition); `critical` is γ_*(β),
    `jump` the λ that takes over there. `residual` is the larger error of the two stationarity conditions, in units of u.
    """

    rate: Array
    overlap: Array
    critical: Array
    jump: Array
    residual: Array


def _entropy(u: Array) -> Array:
    """I(λ) = λu - log cosh u at λ = tanh u: the entropic cost of an overlap λ of two random spikes, per dimension."""
    tail = jnp.exp(-2 * u)
    return math.log(2.0) - 2 * u * tail / (1 + tail) - jnp.log1p(tail)


def _along(latent: Latent) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    """log f and its derivative with respect to λ, at λ = tanh u: 1 - λ keeps its digits however close λ is to one.

    Compiled separately, so that it is traced once and not at every use.
    """

    @jax.jit
    def both(ratio: Array, rest: Array, u: Array) -> tuple[Array, Array]:
        tail = jnp.exp(-2 * u)
        place = ((1 - tail) / (1 + tail), 2 * tail / (1 + tail))
        value = lambda overlap, missing: log_pair(latent, ratio, rest, overlap, missing)  # noqa: E731
        return jax.jvp(value, place, (jnp.ones_like(u), -jnp.ones_like(u)))

    return both


def _grid(nodes: int) -> np.ndarray:
    return 0.03 + (FAR - 0.03) * np.linspace(0.0, 1.0, nodes) ** 1.5


def _root(function: Callable[[Array], Array], low: Array, high: Array, steps: int = 50) -> Array:
    """The root of a function that is positive at `low` and negative at `high`, by bisection and a final Newton step.

    The Newton step makes derivatives with respect to all parameters exact.
    """
    low, high = bisect(lambda x: function(x) > 0, low, high, steps)
    at = jax.lax.stop_gradient(0.5 * (low + high))
    value, slope = jax.jvp(function, (at,), (jnp.ones_like(at),))
    slope = jax.lax.stop_gradient(slope)
    # at a fold of the solutions there is no derivative, and the Newton step is skipped
    step = jnp.where(jnp.abs(slope) > 1e-12, value / jnp.where(jnp.abs(slope) > 1e-12, slope, 1.0), 0.0)
    return at - jnp.clip(step, -1e-3 * (1 + at), 1e-3 * (1 + at))


def linear_regime(latent: Latent, snr: Array, samples: Array, nodes: int) -> Linear:
    """max_λ [γ log f - I], where λ = tanh u and I' = u, so that a maximum is a solution of u = γ (log f)'(tanh u).

    The best point of a grid in u, refined between its neighbours. u has no upper bound: at u = 16, 1 - λ is already 1e-14.
    """
    ratio, rest = snr / (1 + snr), 1 / (1 + snr)
    pair = _along(latent)

    def both(u: Array) -> tuple[Array, Array]:
        return pair(ratio, rest, u)

    grid = jnp.asarray(_grid(nodes))
    log_f, slope = jax.vmap(both)(grid)
    end, end_slope = both(jnp.full_like(ratio, FAR))
    cost = _entropy(grid)

    def cell(signs: Array, heights: Array, last: Array) -> tuple[Array, Array]:
        """The ends of the interval in which `signs` turns from plus to minus; of several, the highest.

        The last interval ends beyond the grid. Heights alone are not enough: they are flat where λ is one to all digits.
        """
        after = jnp.concatenate([signs[1:], -jnp.ones(1)])
        best = jnp.argmax(jnp.where((signs > 0) & (after <= 0), heights, -jnp.inf))
        beyond = jnp.concatenate([grid, jnp.maximum(last, FAR)[None] + 1])
        return beyond[best], beyond[best + 1]

    def stationary(u: Array) -> Array:
        return samples * both(u)[1] - u

    u = _root(stationary, *cell(samples * slope - grid, samples * log_f - cost, samples * end_slope))
    fixed = jax.lax.stop_gradient(u)
    height = samples * both(fixed)[0] - _entropy(fixed)

    def cheapest(v: Array) -> Array:
        value, its_slope = both(v)
        return _entropy(v) * its_slope - v * value

    v = _root(cheapest, *cell(cost * slope - grid * log_f, -cost / log_f, math.log(2.0) * end_slope / end))
    there = jax.lax.stop_gradient(v)
    critical = _entropy(there) / both(there)[0]
    above = height > 0
    wrong = jnp.where(above, jnp.abs(stationary(fixed)) / (1 + fixed), 0.0)
    return Linear(
        rate=jnp.maximum(height, 0.0),
        overlap=jnp.where(above, jnp.tanh(u), 0.0),
        critical=critical,
        jump=jnp.tanh(v),
        residual=jnp.maximum(wrong, jnp.abs(cheapest(there)) / (1 + there) / both(there)[0]),
    )


def critical_snr(latent: Latent, samples: Array, nodes: int, most: float = 200.0) -> tuple[Array, Array]:
    """β_*(γ), where the maximum touches zero, and whether it was found (among β up to e^200).

    Where the latent has a density, f stays finite as β → ∞, and there may be none. Found by bisection of log β on a
    grid of u, then by Newton's method for both conditions.
    """
    grid = jnp.asarray(np.concatenate([_grid(nodes), [400.0]]))  # the last: λ = 1

    pair = _along(latent)

    def both(x: Array, u: Array) -> tuple[Array, Array]:
        return pair(jax.nn.sigmoid(x), jax.nn.sigmoid(-x), u)

    def excess(x: Array) -> Array:
        log_f, _ = jax.vmap(lambda u: both(x, u))(grid)
        return samples * log_f - _entropy(grid)

    ends = jnp.full_like(samples, -12.0), jnp.full_like(samples, most)
    _, high = bisect(lambda x: ~(jnp.max(excess(x)) > 0), *ends, 42)
    near = grid[jnp.argmax(excess(high))]
    # where λ is one to all digits, the condition itself gives u
    near = jnp.where(near < FAR, near, samples * both(high, near)[1])
    start = jax.lax.stop_gradient(jnp.stack([near, high]))

    def conditions(y: Array, gamma: Array) -> Array:
        value, slope = both(y[1], y[0])
        return jnp.stack([gamma * value - _entropy(y[0]), (gamma * slope - y[0]) / (1 + y[0])])

    def newton(_: Array, y: Array) -> Array:
        (a, b), (c, e) = jax.jacfwd(conditions)(y, samples)
        first, second = conditions(y, samples)
        step = jnp.stack([e * first - b * second, a * second - c * first]) / (a * e - b * c)
        return jnp.maximum(y - jnp.clip(step, -2.0 - 0.5 * y[0], 2.0 + 0.5 * y[0]), jnp.asarray([0.01, -14.0]))

    y = jax.lax.stop_gradient(jax.lax.fori_loop(0, 12, newton, start))
    left = conditions(y, samples)
    along = jax.lax.stop_gradient(jax.jacfwd(conditions)(y, samples)[0, 1])
    x = y[1] - left[0] / along  # the derivative with respect to γ comes from this last step
    good = (high < most - 1) & jnp.all(jnp.abs(left) < 1e-9) & (jnp.abs(y[1] - high) < 0.2)
    return jnp.exp(x), good
