r"""Contrasts of independent component analysis, and exact averages of the steps of its algorithms.

Along the hidden direction v a whitened sample has the component t = √r g + √(1-r) z with g = ±1. A unit vector w with overlap α
sees a = αt + √(1-α²)ζ: given g, t and a are jointly Gaussian, so every average is over a sign and two Gaussians.

>>> import jax.numpy as jnp
>>> slope = population_slope("kurtosis", jnp.asarray(0.9), jnp.asarray(0.4), 64)
>>> round(float(slope / (-2 * 0.9**2 * 0.4**3)), 12)  # L'(α) = -2r²α³
1.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.averages.quadrature import bent_trapezoid, hermite

CONTRASTS = ("kurtosis", "log-cosh", "exponential", "hermite")
"""s⁴/4, log cosh s, -exp(-s²/2), and He_4(s) = s⁴ - 6s² + 3, which has no second-order part."""


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
    """E f(t, ζ), by a Gauss–Hermite rule in each Gaussian: exact for polynomials, accurate to 1e-10 or better for the others."""
    z, w = hermite(nodes)
    signs, noise, zeta = (g.reshape(-1) for g in np.meshgrid([-1.0, 1.0], z, z, indexing="ij"))
    weight = 0.5 * np.einsum("s,i,j->sij", np.ones(2), w, w).reshape(-1)
    t = jnp.sqrt(ratio) * signs + jnp.sqrt(1 - ratio) * noise
    return jnp.sum(weight * function(t, jnp.asarray(zeta)))


def average_along(name: str, ratio: Array, alpha: Array, function: Callable[[Array], Array], nodes: int) -> Array:
    """E f(a) over samples with g = +1, where a is Gaussian of mean α√r and variance 1 - α²r.

    For an even f this is the average over all samples. The quadrature rule depends on the contrast.
    """
    # Gauss–Hermite is exact for polynomials and slow for tanh, whose poles are near the real axis.
    z, w = (jnp.asarray(part) for part in (bent_trapezoid(nodes) if name == "log-cosh" else hermite(nodes)))
    return jnp.sum(w * function(alpha * jnp.sqrt(ratio) + jnp.sqrt(1 - alpha**2 * ratio) * z))


def population_slope(name: str, ratio: Array, alpha: Array, nodes: int) -> Array:
    """L'(α), L = E G(w·x): by Stein's lemma the only part of E[x G'(a)] - E[G''(a)] w that remains, along v.

    The derivative of E G(a), with one integration by parts: √r E[g G'(a)] - αr E[G''(a)].
    """

    def value(a: Array) -> Array:
        return jnp.sqrt(ratio) * first(name, a) - alpha * ratio * second(name, a)

    return average_along(name, ratio, alpha, value, nodes)


def squared_slope(name: str, ratio: Array, alpha: Array, nodes: int) -> Array:
    """V = E G'(a)², the noise of a sample in every direction orthogonal to v and w."""
    return average_along(name, ratio, alpha, lambda a: first(name, a) ** 2, nodes)


class StepLaw(NamedTuple):
    """A step of FastICA on n samples at overlap α: its mean along v, and n times its variances.

    `noise` is the variance along each direction orthogonal to v and w, `along` that along v, `across` that along the part of w
    orthogonal to v.
    """

    mean: Array
    noise: Array
    along: Array
    across: Array


def step_law(name: str, ratio: Array, alpha: Array, nodes: int) -> StepLaw:
    """Mean and variances of Σ_μ [x_μ G'(a_μ) - G''(a_μ) w]/n."""
    rest = jnp.sqrt(1 - alpha**2)

    def variance(component: Callable[[Array, Array], Array], of_w: Array) -> Array:
        def value(t: Array, z: Array) -> Array:
            a = alpha * t + rest * z
            return component(t, z) * first(name, a) - of_w * second(name, a)

        return average(ratio, lambda t, z: value(t, z) ** 2, nodes) - average(ratio, value, nodes) ** 2

    return StepLaw(
        population_slope(name, ratio, alpha, nodes),
        squared_slope(name, ratio, alpha, nodes),
        variance(lambda t, z: t, alpha),
        variance(lambda t, z: z, rest),
    )


def one_step(
    name: str, ratio: Array, alpha: Array, samples: Array, nodes: int, dimension: float | Array | None = None
) -> Array:
    """E[α_1²] after one step of FastICA on a fresh batch of n = γd samples, as d → ∞ or at a finite dimension.

    At a finite dimension it is a ratio of two mean squared lengths: that along v over the total.
    """
    if dimension is None:
        mean = population_slope(name, ratio, alpha, nodes)
        return mean**2 / (mean**2 + squared_slope(name, ratio, alpha, nodes) / samples)
    mean, noise, along, across = step_law(name, ratio, alpha, nodes)
    number = samples * dimension
    signal = mean**2 + along / number
    return signal / (signal + across / number + (dimension - 2) * noise / number)


def smoothed_slope(a: Array, square: Array, radius: Array, dimension: int, name: str = "hermite") -> Array:
    """dL_λ/da of a smoothed contrast: an average over all directions at distance λ from w, in closed form.

    `square` is |x|² - a², `radius` λ, and `name` the contrast, "hermite" or "kurtosis". He_4 has no second-order part. That
    of s⁴/4 leaves a slope 3λ²a, whose noise outgrows the signal by a factor d at λ = d^{1/4}: smoothing then gains nothing.
    """
    r2, d = radius**2, float(dimension)
    fourth = 4 * a**3 + 12 * a * r2 * (square - a**2) / (d - 1) - 12 * r2**2 * square * a / (d**2 - 1)
    if name == "kurtosis":
        return fourth / (4 * (1 + r2) ** 2)
    return fourth / (1 + r2) ** 2 - 12 * a * (1 - r2 / (d - 1)) / (1 + r2)
