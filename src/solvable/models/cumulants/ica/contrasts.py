r"""Contrasts of independent component analysis, and exact averages of what its algorithms do with them.

Along the hidden direction v a whitened sample has the component t = √r g + √(1-r) z with g = ±1. A unit vector w with overlap α
sees a = αt + √(1-α²)ζ: given g, t and a are jointly Gaussian, so that every average is one over two signs and two Gaussians.

>>> import jax.numpy as jnp
>>> slope = population_slope("kurtosis", jnp.asarray(0.9), jnp.asarray(0.4), 64)
>>> round(float(slope / (-2 * 0.9**2 * 0.4**3)), 12)  # L'(α) = -2r²α³
1.0
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.averages.quadrature import hermite

CONTRASTS = ("kurtosis", "log-cosh", "exponential", "hermite")
"""s⁴/4, log cosh s, -exp(-s²/2), and He_4(s) = s⁴ - 6s² + 3, which has no part of second order."""


def contrast(name: str, s: Array) -> Array:
    """G."""
    if name == "kurtosis":
        return s**4 / 4
    if name == "log-cosh":
        return jnp.logaddexp(s, -s) - math.log(2.0)
    return -jnp.exp(-(s**2) / 2) if name == "exponential" else s**4 - 6 * s**2 + 3


def first(name: str, s: Array) -> Array:
    """G'."""
    if name == "kurtosis":
        return s**3
    if name == "log-cosh":
        return jnp.tanh(s)
    return s * jnp.exp(-(s**2) / 2) if name == "exponential" else 4 * s**3 - 12 * s


def second(name: str, s: Array) -> Array:
    """G''."""
    if name == "kurtosis":
        return 3 * s**2
    if name == "log-cosh":
        return 1 - jnp.tanh(s) ** 2
    return (1 - s**2) * jnp.exp(-(s**2) / 2) if name == "exponential" else 12 * s**2 - 12


def average(ratio: Array, function: Callable[[Array, Array], Array], nodes: int) -> Array:
    """E f(t, ζ), by a Gauss–Hermite rule in each Gaussian: exact for polynomials, 1e-10 and better for the others."""
    z, w = hermite(nodes)
    signs, noise, zeta = (g.reshape(-1) for g in np.meshgrid([-1.0, 1.0], z, z, indexing="ij"))
    weight = 0.5 * np.einsum("s,i,j->sij", np.ones(2), w, w).reshape(-1)
    t = jnp.sqrt(ratio) * signs + jnp.sqrt(1 - ratio) * noise
    return jnp.sum(weight * function(t, jnp.asarray(zeta)))


def population_slope(name: str, ratio: Array, alpha: Array, nodes: int) -> Array:
    """L'(α), L = E G(w·x): by Stein's lemma all that is left of E[x G'(a)] - E[G''(a)] w, along v."""
    rest = jnp.sqrt(1 - alpha**2)

    def value(t: Array, zeta: Array) -> Array:
        a = alpha * t + rest * zeta
        return t * first(name, a) - alpha * second(name, a)

    return average(ratio, value, nodes)


def one_step(
    name: str, ratio: Array, alpha: Array, samples: Array, nodes: int, dimension: float | Array | None = None
) -> Array:
    """E[α_1²] after one step of FastICA on a fresh batch of n = γd samples; at a finite dimension, or as d → ∞.

    Along v the step has mean L' and variance V_v/n, along the rest of w V_p/n, and along each of d-2 other directions V/n.
    """
    rest = jnp.sqrt(1 - alpha**2)
    slope = population_slope(name, ratio, alpha, nodes)
    noise = average(ratio, lambda t, z: first(name, alpha * t + rest * z) ** 2, nodes)
    if dimension is None:
        return slope**2 / (slope**2 + noise / samples)
    number = samples * dimension

    def along(t: Array, z: Array) -> Array:
        a = alpha * t + rest * z
        return t * first(name, a) - alpha * second(name, a)

    def across(t: Array, z: Array) -> Array:
        a = alpha * t + rest * z
        return z * first(name, a) - rest * second(name, a)

    v, p = (
        average(ratio, lambda t, z, f=f: f(t, z) ** 2, nodes) - average(ratio, f, nodes) ** 2 for f in (along, across)
    )
    signal = slope**2 + v / number
    return signal / (signal + p / number + (dimension - 2) * noise / number)


def smoothed_slope(a: Array, square: Array, radius: Array, dimension: int) -> Array:
    """dL_λ/da of the smoothed contrast He_4: an average over all directions at distance λ from w, in closed form.

    `square` is |x|² - a², and `radius` λ.
    """
    r2, d = radius**2, float(dimension)
    fourth = 4 * a**3 + 12 * a * r2 * (square - a**2) / (d - 1) - 12 * r2**2 * square * a / (d**2 - 1)
    return fourth / (1 + r2) ** 2 - 12 * a * (1 - r2 / (d - 1)) / (1 + r2)
