"""Teachers of a Gaussian covariate model, which label the samples, each with its output channel and its risks.

A teacher's field ν has unit variance. `Sign`: y = sign(ν + √Δ ζ), flipped with probability e; `Linear`: y = ν + √Δ ζ;
`random_labels()`: y = ±1 independent of the input (`Sign` with e = 1/2); `Clouds`: no teacher, y is the label of one of
two Gaussian clouds x = ±μ + Ω^½z, wrong with probability e.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...errors import InvalidValue
from .channels import (
    Moments,
    Risks,
    cloud_moments,
    cloud_risks,
    linear_losses,
    linear_moments,
    sign_moments,
    sign_risks,
)
from .losses import Loss

Scalar = Float[Array, ""]


def number(name: str, value: Any, low: float, high: float, *, low_open: bool = False) -> Array:
    """Check that a number is in a range and return it as a float64 scalar; a tracer passes unchecked.

    >>> number("flips", 0.7, 0.0, 0.5)
    Traceback (most recent call last):
    ...
    solvable.errors.InvalidValue: flips = 0.7 is outside its range [0, 0.5].
    """
    if isinstance(value, Tracer):
        return value.astype(float)
    if isinstance(value, jax.Array) and value.shape == () and value.dtype == jnp.float64:
        plain: Any = np.asarray(value)
    else:
        try:
            plain = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            plain = np.empty((2,))
        if plain.shape != ():
            raise InvalidValue(f"{name} = {value!r} is not a number; use jax.vmap for many points.")
    if not (low < plain <= high if low_open else low <= plain <= high):
        ends = f"{'(' if low_open else '['}{low:g}, {'∞)' if high == np.inf else f'{high:g}]'}"
        raise InvalidValue(f"{name} = {float(plain):g} is outside its range {ends}.")
    return jnp.asarray(plain, dtype=float)


class Labels(NamedTuple):
    """The moments of labels that ridge regression needs.

    E y², E ∂y/∂ν (or E cy), and whether the mean of the fields contributes m² (clouds).
    """

    power: Scalar
    correlation: Scalar
    feedback: float


class Teacher(eqx.Module):
    """Base of all teachers."""

    @property
    def noise_variance(self) -> Scalar:
        """Δ, the variance added to the teacher's field."""
        raise AttributeError("noise_variance")

    def labels(self) -> Labels:
        """The moments of the labels."""
        raise AttributeError("labels")

    def moments(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Moments:
        """m̂, q̂, V̂ and E (∂f/∂ω)², per sample."""
        raise AttributeError("moments")

    def risks(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Risks:
        """Losses and errors, in training and on fresh samples (errors are NaN for real labels)."""
        raise AttributeError("risks")


class Sign(Teacher):
    """y = sign(ν + √Δ ζ) with Δ = `noise`, and −y instead with probability `flips`.

    >>> float(Sign(noise=0.1, flips=0.05).flips)
    0.05
    """

    noise: Array
    flips: Array

    def __init__(self, noise: Any = 0.0, flips: Any = 0.0):
        self.noise, self.flips = number("noise", noise, 0.0, np.inf), number("flips", flips, 0.0, 0.5)

    @property
    def noise_variance(self) -> Scalar:
        return self.noise

    def labels(self) -> Labels:
        return Labels(jnp.ones(()), (1 - 2 * self.flips) * jnp.sqrt(2 / (np.pi * (1 + self.noise))), 0.0)

    def moments(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Moments:
        return sign_moments(loss, m, q, V, rest, nodes, self.flips)

    def risks(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Risks:
        return sign_risks(loss, m, q, V, rest, nodes, self.flips)


def random_labels() -> Sign:
    """Labels ±1 independent of the inputs: any sign teacher with flips = 1/2.

    >>> float(random_labels().labels().correlation)
    0.0
    """
    return Sign(0.0, 0.5)


class Linear(Teacher):
    """y = ν + √Δ ζ with Δ = `noise`; in closed form for the square loss, by quadrature for any other smooth loss.

    >>> float(Linear(noise=0.2).labels().power)
    1.2
    """

    noise: Array

    def __init__(self, noise: Any = 0.0):
        self.noise = number("noise", noise, 0.0, np.inf)

    @property
    def noise_variance(self) -> Scalar:
        return self.noise

    def labels(self) -> Labels:
        return Labels(1 + self.noise, jnp.ones(()), 0.0)

    def moments(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Moments:
        return linear_moments(loss, m, q, V, rest, nodes)

    def risks(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Risks:
        train, test = linear_losses(loss, m, q, V, rest, nodes)
        return Risks(train, jnp.full((), jnp.nan), test, jnp.full((), jnp.nan))


class Clouds(Teacher):
    """Labels of two equally likely Gaussian clouds, wrong with probability `flips`.

    The spectrum comes from `spectra.clouds`; then m = w·μ/√p, and q is the variance of the field around ±m.

    >>> float(Clouds(flips=0.1).labels().correlation)
    0.8
    """

    flips: Array

    def __init__(self, flips: Any = 0.0):
        self.flips = number("flips", flips, 0.0, 0.5)

    @property
    def noise_variance(self) -> Scalar:
        return jnp.zeros(())

    def labels(self) -> Labels:
        return Labels(jnp.ones(()), 1 - 2 * self.flips, 1.0)

    def moments(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Moments:
        return cloud_moments(loss, m, q, V, nodes, self.flips)

    def risks(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Risks:
        return cloud_risks(loss, m, q, V, nodes, self.flips)
