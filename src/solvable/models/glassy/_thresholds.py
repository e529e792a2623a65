r"""Thresholds of algorithms for finding the spike: the noise Δ₂ below which each succeeds, against p and Δ_p.

Closed forms where they exist (β = 1/Δ₂, c = 1/Δ_p, σ² = Q″(1)); the initial overlap is zero:

- `message passing` (Bayes-optimal): m = 0 is unstable for Δ₂ < 1, whatever the tensor;
- `likelihood message passing`: β² − β = c;
- `gradient flow`: β² − β = (p−1)c, where marginal minima, y = 2σ, grow an unstable direction towards the signal (β = σ);
- `Langevin` at temperature one (`sampling` at any other): the sampler leaves the plateau q of the glass without overlap,
  (1−q)²Q″(q) = 1, if Δ₂ < 1 − q, with equality on the line Δ_p = (p−1)Δ₂²(1−Δ₂)^{p−3}. For p ≥ 4 the line bends back
  (`langevin_window`);
- `spinodal`: an informed fixed point with overlap m exists up to Δ_p = (p−2)m^{p−3}(1−m)², β = 1/(1−m) − m/((p−2)(1−m)²);
- `information`: the free entropy of the informed fixed point reaches that of m = 0; `likelihood spinodal` likewise has a
  closed form along the overlap;
- `trivial landscape`: the complexity of minima is nowhere positive at overlaps m ≥ 0; it is largest at m = 0. With all overlaps
  (`trivial_sphere`) odd p need a smaller Δ₂: against the signal the tensor weakens the pull of the matrix.

Values are infinite where the tensor alone suffices, and NaN where there is no such line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.fixed_points.bisection import bisect
from solvable.methods.random_matrices.kac_rice import complexity

from ._landscape import Covariance
from ._state_evolution import fixed_points, free_entropy, steepest

Floats = Any  # numbers or arrays, of NumPy or JAX
Line = Callable[[int, Floats], Floats]


def message_passing(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ below which Bayes-optimal message passing leaves m = 0."""
    return np.ones_like(np.asarray(tensor_noise, float))


def _positive_root(strength: Floats) -> Floats:
    """1/β with β² − β = strength, in a form that loses no digits."""
    return 2 / (1 + (1 + 4 * strength) ** 0.5)


def likelihood_message_passing(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ below which maximum-likelihood message passing leaves m = 0.

    >>> round(float(likelihood_message_passing(3, np.asarray(1.0))), 9)
    0.618033989
    """
    return _positive_root(1 / tensor_noise)


def gradient_flow(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ below which gradient flow escapes from marginal minima without overlap.

    >>> float(gradient_flow(3, np.asarray(1.0)))
    0.5
    """
    return _positive_root((order - 1.0) / tensor_noise)


def langevin_window(order: int, tensor_noise: Floats) -> tuple[Floats, Floats]:
    """The interval of Δ₂ < 1 in which Langevin dynamics at temperature one stays on its plateau; NaN if there is none.

    >>> [round(float(x), 6) for x in langevin_window(4, np.asarray(0.3))]
    [0.412606, 0.866951]
    """
    noise = np.asarray(tensor_noise, float)
    top = 2 / (order - 1)

    def line(x: Floats) -> Floats:
        return (order - 1) * x**2 * (1 - x) ** (order - 3)

    low = _falling(lambda x: noise - line(x), 0.0, top, noise.shape)
    high = _falling(lambda x: line(x) - noise, top, 1.0, noise.shape)
    exists = noise < line(np.asarray(top))
    return np.where(exists, low, np.nan), np.where(exists, high, np.nan)


def langevin(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ below which Langevin dynamics at temperature one leaves its plateau (the lower end of the window, else one).

    >>> round(float(langevin(3, np.asarray(1.0))), 9)
    0.707106781
    """
    low, _ = langevin_window(order, tensor_noise)
    return np.where(np.isnan(low), 1.0, low)


# --- samplers at any temperature ----------------------------------------------------------------------------------------


def sampling(order: int, tensor_noise: Array, temperature: Array) -> Array:
    """Δ₂ up to which a Langevin sampler at this temperature leaves the states that trap it, towards the signal.

    These states, at overlap zero, have a plateau q with (1−q)²Q″(q) = T²; the largest root counts. The signal grows if
    1/Δ₂ > T/(1−q). At the threshold 1 − q = TΔ₂, hence Δ₂ + (p−1)Δ₂²(1−TΔ₂)^{p−2}/Δ_p = 1: its smallest root, or 1/T if that
    comes first. T = 0 is `gradient_flow`, T = 1 `langevin`.

    >>> [round(float(sampling(3, jnp.asarray(1.0), jnp.asarray(t))), 6) for t in (0.0, 1.0)]
    [0.5, 0.707107]
    """

    def excess(noise: Array) -> Array:
        left = jnp.maximum(1 - temperature * noise, 0.0)
        return 1 - noise - (order - 1) * noise**2 * left ** (order - 2) / tensor_noise

    return first_root(excess, jnp.minimum(1.0, 1 / jnp.maximum(temperature, 1e-12)))


def plateau(covariance: Covariance, temperature: Array) -> Array:
    """The largest q with (1−q)²Q″(q) = T², the overlap of a trapping state with itself; 0 if there is none."""
    return 1 - first_root(lambda u: temperature**2 - u**2 * covariance.curvature(1 - u), jnp.ones(()))


def first_root(function: Callable[[Array], Array], end: Array, grid: int = 512) -> Array:
    """The first place in [0, end] where a function stops being positive: 0 if it never is, the end if it always is.

    >>> round(float(first_root(lambda x: 2 - x**2, jnp.asarray(3.0))), 9)
    1.414213562
    """
    # Roots lie near both ends, so points are denser there.
    share = jnp.asarray(0.5 - 0.5 * np.cos(np.pi * np.arange(1, grid) / grid))
    ended = function(share * end) <= 0
    first = jnp.argmax(ended)
    low, high = jnp.where(first > 0, share[first - 1], 0.0) * end, share[first] * end

    low, high = bisect(lambda x: function(x) > 0, low, high)
    root = jax.lax.stop_gradient(0.5 * (low + high))
    begins = function(0.0 * root) > 0
    # One Newton step leaves the root in place and gives it the implicit derivative.
    slope = jax.lax.stop_gradient(jax.grad(function)(root))
    step = function(root) / jnp.where(slope == 0, 1.0, slope)
    return jnp.where(begins, jnp.where(jnp.any(ended), root - step, end), 0.0)


# --- information and spinodals ------------------------------------------------------------------------------------------


def _falling(function: Callable[[Floats], Floats], low: float, high: float, shape: tuple[int, ...]) -> Floats:
    """The root at which a function turns from positive to negative."""
    ends = bisect(lambda x: function(x) > 0, jnp.full(shape, low), jnp.full(shape, high))
    return np.asarray(0.5 * (ends[0] + ends[1]))


def _inverse(strength: Floats) -> Floats:
    """Δ₂ = 1/β, infinite where no matrix is needed."""
    with np.errstate(divide="ignore"):
        return np.where(strength > 0, 1 / np.maximum(strength, 0.0), np.inf)


def spinodals(order: int, tensor_noise: Floats) -> tuple[Floats, Floats]:
    """Upper and lower spinodal of the Bayes-optimal iteration; NaN where the overlap changes continuously.

    An informed fixed point exists up to the upper Δ₂. Above the lower Δ₂, the fixed point next to zero keeps iterations
    from reaching it.

    >>> upper, lower = spinodals(3, np.asarray(0.5))          # 1/Δ₂ = 2/√Δ₃ − 1/Δ₃; at p = 3 the lower one is Δ₂ = 1
    >>> round(float(upper), 9), float(lower)
    (1.207106781, 1.0)
    """
    noise, turn = np.asarray(tensor_noise, float), steepest("bayes", order)

    def line(m: Floats) -> Floats:
        return (order - 2) * m ** (order - 3) * (1 - m) ** 2

    def strength(m: Floats) -> Floats:
        return 1 / (1 - m) - m / ((order - 2) * (1 - m) ** 2)

    exists = noise < line(np.asarray(turn))
    upper = strength(_falling(lambda m: line(m) - noise, turn, 1.0, noise.shape))
    lower = strength(_falling(lambda m: noise - line(m), 0.0, turn, noise.shape)) if order > 3 else np.ones(noise.shape)
    return np.where(exists, _inverse(upper), np.nan), np.where(exists, 1 / lower, np.nan)


def spinodal(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ up to which there is an informed fixed point of the Bayes-optimal iteration; NaN where none appears by a jump."""
    return spinodals(order, tensor_noise)[0]


def likelihood_spinodal(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ up to which there is an informed fixed point of maximum likelihood; NaN where none appears by a jump.

    There β = c r, r = (p−2)m^{p−4}(1−m²) − m^{p−2}, and c = (1 + r)/((r + m^{p−2})²(1 − m²)).
    """
    noise, p = np.asarray(tensor_noise, float), order

    def ratio(m: Floats) -> Floats:
        return (p - 2) * m ** (p - 4) * (1 - m**2) - m ** (p - 2)

    def line(m: Floats) -> Floats:
        return (ratio(m) + m ** (p - 2)) ** 2 * (1 - m**2) / (1 + ratio(m))

    turn = max(steepest("likelihood", p), 1e-12)
    end = ((p - 2) / (p - 1)) ** 0.5  # beyond it β would be negative
    m = _falling(lambda m: line(m) - noise, turn, end, noise.shape)
    alone = noise < line(np.asarray(end))
    return np.where(noise < line(np.asarray(turn)), np.where(alone, np.inf, _inverse(ratio(m) / noise)), np.nan)


@partial(jax.jit, static_argnums=0)
def _information(order: int, tensor_noise: Array) -> Array:
    """β in [0, 1] at which the informed maximum of the free entropy is as high as m = 0."""

    def unknown(beta: Array) -> Array:
        q = Covariance(1 / beta, tensor_noise, order)
        return ~(free_entropy(q, fixed_points("bayes", q).high) > 0)  # NaN where there is no such maximum

    zero = jnp.zeros_like(tensor_noise)
    return bisect(unknown, zero, zero + 1)[1]


def information(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ up to which the posterior is informative about the signal.

    >>> [round(float(x), 4) for x in information(3, np.asarray([0.2, 0.5, 1.5]))]
    [inf, 1.1749, 1.0]
    """
    beta = np.asarray(_information(order, jnp.asarray(tensor_noise, float)))
    return np.where(beta > 1e-15, 1 / np.maximum(beta, 1e-15), np.inf)


# --- landscapes without spurious minima ---------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=(0, 2))
def _trivial(order: int, tensor_noise: Array, sphere: bool) -> Array:
    """β at which the largest complexity of minima vanishes."""

    def sigma(m: Array, beta: Array, c: Array) -> Array:
        return complexity(Covariance(1 / beta, 1 / c, order).value, m).complexity

    def highest(beta: Array, c: Array) -> Array:
        """The local maximum next to zero, at m ≤ 0, by ternary search."""

        def narrow(_, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            left, right = low + (high - low) / 3, high - (high - low) / 3
            rising = sigma(left, beta, c) < sigma(right, beta, c)
            return jnp.where(rising, left, low), jnp.where(rising, high, right)

        low, high = jax.lax.fori_loop(0, 50, narrow, (jnp.asarray(-0.2), jnp.asarray(0.0)))
        return sigma(0.5 * (low + high), beta, c)

    def has_opposite_minimum(beta: Array, c: Array) -> Array:
        """Whether a single minimum points away from the signal, as one points towards it.

        Its overlap −u is a fixed point of maximum likelihood; it is a minimum if no eigenvalue of its Hessian is negative.
        Until then that region holds exponentially many minima.
        """

        def gap(u: Array) -> Array:
            return (beta - c * u ** (order - 2)) ** 2 * (1 - u**2) - beta - c

        end = jnp.minimum(1.0, (beta / c) ** (1 / (order - 2)))
        u = bisect(lambda u: gap(u) > 0, jnp.zeros(()), end)[0]
        q = Covariance(1 / beta, 1 / c, order)
        sigma, pull = jnp.sqrt(q.curvature(1.0)), q.slope(-u)
        spike = q.curvature(-u) * (1 - u**2) / sigma
        return jnp.sqrt(q.slope(1.0) + pull**2) / sigma >= jnp.maximum(spike, 1.0)

    def one(noise: Array) -> Array:
        c = 1 / noise

        def many(beta: Array) -> Array:
            if sphere and order % 2:
                return (highest(beta, c) > 0) | ~has_opposite_minimum(beta, c)
            return sigma(jnp.zeros(()), beta, c) > 0

        # between gradient flow, where σ = β and minima are many, and a matrix so strong that the tensor is negligible
        begin = 0.5 + jnp.sqrt(0.25 + (order - 1) * c)
        low, high = bisect(many, begin, 10 * begin)
        return 0.5 * (low + high)

    return jax.vmap(one)(tensor_noise.reshape(-1)).reshape(tensor_noise.shape)


def trivial_landscape(order: int, tensor_noise: Floats) -> Floats:
    """Δ₂ below which minima with overlaps m ≥ 0, other than the one at the signal, are not exponentially many (in the mean).

    >>> round(float(trivial_landscape(3, np.asarray(1.0))), 6)
    0.406049
    """
    return 1 / np.asarray(_trivial(order, jnp.asarray(tensor_noise, float), False))


def trivial_sphere(order: int, tensor_noise: Floats) -> Floats:
    """The same for all overlaps; the one minimum that odd tensors leave away from the signal is not counted.

    >>> round(float(trivial_sphere(3, np.asarray(1.0))), 4)
    0.3826
    """
    return 1 / np.asarray(_trivial(order, jnp.asarray(tensor_noise, float), True))


LINES: dict[str, Line] = {
    "spinodal": spinodal,
    "information": information,
    "message passing": message_passing,
    "Langevin": langevin,
    "likelihood message passing": likelihood_message_passing,
    "likelihood spinodal": likelihood_spinodal,
    "gradient flow": gradient_flow,
    "trivial landscape": trivial_landscape,
    "trivial sphere": trivial_sphere,
}
