"""Existence of the minimum: data that a hyperplane separates, and square losses that reach zero.

Without a penalty a loss that falls with the margin (logistic, hinge up to its kink) has a minimiser only if no w has all
margins y w·x > 0. For Gaussian inputs this is decided by a minimum over one number (Gardner 1988 for random labels;
Candès and Sur 2020, arXiv:1804.09753, for a signal): with U the learnable part of the teacher's field, scaled to unit
variance, and Z an independent Gaussian, n samples in p dimensions of the inputs are separable if and only if

    p/n > h,    h = min_t E[(t yU − Z)₊²],    i.e. n/p < α_c = 1/h.

Only the reach R = ⟨τ/ω⟩ enters, not the covariance: y is the sign of √R U + √(1 − R + Δ) ζ, flipped with probability e. The
inner mean is E[(a − Z)₊²] = (1 + a²)Φ(a) + aφ(a). Random labels: t = 0, h = 1/2, α_c = 2 (Cover 1965). A sign teacher that
is linear in the inputs, without noise or flips: h = 0, always separable.

The number of samples per *direction that varies* is multiplied by the fraction of such directions: α_c = n/p with p the
number of features.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from solvable.methods.fixed_points.bisection import bisect

from ...errors import InvalidValue
from ..averages.quadrature import gaussian_panels
from ..random_matrices.spectra import Spectrum
from .teachers import Clouds, Sign, Teacher, number

Scalar = Float[Array, ""]
LARGEST = 1e6
"""The largest alignment t considered: if the minimum lies beyond, the data are separable at any size."""


def reach(spectrum: Spectrum) -> tuple[Scalar, Scalar]:
    """⟨τ/ω⟩, and the fraction of directions that vary at all.

    >>> from solvable.methods.random_matrices.spectra import joint_spectrum
    >>> [float(v) for v in reach(joint_spectrum([2.0, 0.0], [1.0, 0.0]))]
    [0.25, 0.5]
    """
    varies = spectrum.omega > 0
    ratio = jnp.where(varies, spectrum.tau / jnp.where(varies, spectrum.omega, 1.0), 0.0)
    return spectrum.weights @ ratio, jnp.sum(jnp.where(varies, spectrum.weights, 0.0))


def interpolation_threshold(spectrum: Spectrum) -> Scalar:
    """Samples per feature, n/p, below which the square loss reaches zero: one per direction that varies.

    >>> from solvable.methods.random_matrices.spectra import isotropic
    >>> float(interpolation_threshold(isotropic()))
    1.0
    """
    return reach(spectrum)[1]


def separability_threshold(spectrum: Spectrum, teacher: Teacher, nodes: int = 20) -> Scalar:
    """α_c: the number of samples per feature, n/p, up to which a hyperplane separates the labels; ∞ if always.

    >>> from solvable.methods.random_matrices.spectra import isotropic
    >>> from solvable.methods.risk.teachers import random_labels
    >>> round(float(separability_threshold(isotropic(), random_labels())), 12)
    2.0
    >>> round(float(separability_threshold(isotropic(), Sign(flips=0.1))), 6)
    2.992286
    """
    if not isinstance(teacher, (Sign, Clouds)):
        raise InvalidValue(
            f"teacher = {type(teacher).__name__} has no labels ±1, so separability is undefined; use Sign or Clouds."
        )
    return _threshold(spectrum, teacher, nodes)


@eqx.filter_jit
def _threshold(spectrum: Spectrum, teacher: Sign | Clouds, nodes: int) -> Scalar:
    signal, rank = reach(spectrum)
    if isinstance(teacher, Clouds):
        lowest = _lowest(lambda t: _clouds_mean(t, jnp.sqrt(signal), teacher.flips))
    else:
        # 1 − R is known without cancellation.
        slope = jnp.sqrt(signal / jnp.maximum(spectrum.unexplained + teacher.noise, 1e-300))
        lowest = _lowest(lambda t: _sign_mean(t, slope, teacher.flips, nodes))
    return jnp.where(lowest > 0, rank / jnp.where(lowest > 0, lowest, 1.0), jnp.inf)


def margin_capacity(margin: Any) -> Scalar:
    """Gardner's capacity for a margin, 1/α_c = E[(κ − Z)₊²].

    Up to n/p = α_c, random labels of isotropic inputs have a w with |w|² = p and all y w·x/√p > `margin`.

    >>> float(margin_capacity(0.0))
    2.0
    """
    kappa = number("margin", margin, -np.inf, np.inf)
    return 1 / _positive_square(kappa)


def _positive_square(a: Array) -> Array:
    """E[(a − Z)₊²]."""
    return (1 + a**2) * ndtr(a) + a * jnp.exp(-0.5 * a**2) / np.sqrt(2 * np.pi)


def _positive(a: Array) -> Array:
    """E[(a − Z)₊], half the slope of the above."""
    return a * ndtr(a) + jnp.exp(-0.5 * a**2) / np.sqrt(2 * np.pi)


def _sign_mean(t: Scalar, slope: Scalar, flips: Scalar, nodes: int) -> tuple[Scalar, Scalar]:
    """E[(−t yU − Z)₊²], t ≥ 0, with yU of density 2φ(u)(e + (1−2e)Φ(su)), and its slope in t."""
    scales = jnp.stack([1 / jnp.maximum(t, 0.1), 1 / jnp.maximum(slope, 0.1)])
    breaks = (scales[:, None] * jnp.asarray([-8.0, -2.5, 2.5, 8.0])[None, :]).reshape(-1)
    u, weight = gaussian_panels(jnp.concatenate([breaks, jnp.asarray([-3.0, 0.0, 3.0])]), nodes)
    density = 2 * weight * (flips + (1 - 2 * flips) * ndtr(slope * u))
    return density @ _positive_square(-t * u), -2 * density @ (u * _positive(-t * u))


def _clouds_mean(t: Scalar, signal: Scalar, flips: Scalar) -> tuple[Scalar, Scalar]:
    """E[(−t(±s + U) − Z)₊²] for clouds at distance s: Gaussians of variance 1 + t² around ∓ts; and its slope in t."""
    width = jnp.sqrt(1 + t**2)
    away = t * signal / width
    sides = ((1 - flips, -away), (flips, away))
    value = sum(share * _positive_square(a) for share, a in sides)
    slope = sum(share * 2 * _positive(a) * a / jnp.where(t > 0, t, 1.0) for share, a in sides)  # d(a)/dt = a/(t(1+t²))
    at_zero = 2 * signal * (2 * flips - 1) * _positive(jnp.zeros(()))
    return width**2 * value, 2 * t * value + jnp.where(t > 0, slope, at_zero)


def _lowest(mean) -> Scalar:
    """The minimum over t ≥ 0 of a convex function, by bisection of its slope; 0 if it falls up to t = `LARGEST`."""
    top = jnp.log1p(jnp.asarray(LARGEST))
    low, high = bisect(lambda x: mean(jnp.expm1(x))[1] < 0, jnp.zeros(()), top)
    # At a minimum the derivative of its location does not contribute.
    lowest = mean(jax.lax.stop_gradient(jnp.expm1(low)))[0]
    return jnp.where(high >= top, 0.0, lowest)
