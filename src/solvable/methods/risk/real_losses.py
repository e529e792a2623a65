r"""Losses of the residual y − z (absolute, Huber, quantile), and of counts and margins (Poisson, exponential).

For a residual loss the force f(a) = (prox − ω)/V depends on a = y − ω only, and is linear in a between two points: slope
1/(h + V) with h the loss's own curvature radius (0 for absolute and quantile, 1 for square and Huber), cut off at the largest
and the smallest slope of the loss. With labels y = ν + noise, a is a mixture of Gaussians (`mixtures`), and every average is
a closed form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .losses import Loss
from .mixtures import Mixture, beyond, tail, tail_square

Scalar = Float[Array, ""]


class Forces(NamedTuple):
    """E f², E ∂f/∂a, E (∂f/∂a)², and the mean loss in training and on fresh samples."""

    square: Scalar
    response: Scalar
    fluctuation: Scalar
    train_loss: Scalar
    test_loss: Scalar


class Residual(Loss):
    """ℓ(y − z), with slopes between −`lower` and `upper`; quadratic of curvature one around zero if `rounded`.

    Quantile: upper = κ, lower = 1 − κ. Absolute: both one. Huber: both δ, rounded. Square: rounded and without limits.

    >>> loss = Residual(1.0, 1.0)
    >>> y, z, width = (jnp.asarray(v) for v in (2.0, 0.5, 0.2))
    >>> float(loss.value(y, z)), float(loss.prox(y, z, width))
    (1.5, 0.7)
    """

    upper: Array
    lower: Array
    rounded: bool = eqx.field(static=True)
    limited: bool = eqx.field(static=True)

    def __init__(self, upper: Any = jnp.inf, lower: Any = jnp.inf, rounded: bool = False, limited: bool = True):
        self.upper, self.lower = jnp.asarray(upper, float), jnp.asarray(lower, float)
        self.rounded, self.limited = rounded, limited

    @property
    def symmetric(self) -> bool:
        return False  # two limits that happen to be equal are not known to be

    def _limits(self, like: Array) -> tuple[Array, Array]:
        return self.upper.astype(like.dtype), self.lower.astype(like.dtype)

    def value(self, y: Array, z: Array) -> Array:
        a = y - z
        upper, lower = self._limits(a)
        if not self.rounded:
            return jnp.where(a > 0, upper * a, -lower * a)
        if not self.limited:
            return 0.5 * a**2
        return 0.5 * a**2 - 0.5 * jnp.maximum(a - upper, 0.0) ** 2 - 0.5 * jnp.maximum(-a - lower, 0.0) ** 2

    def slope(self, y: Array, z: Array) -> Array:
        a = y - z
        upper, lower = self._limits(a)
        if not self.rounded:
            return jnp.where(a > 0, -upper, jnp.where(a < 0, lower, jnp.zeros_like(a)))
        return -jnp.clip(a, -lower, upper) if self.limited else -a

    def curvature(self, y: Array, z: Array) -> Array:
        a = y - z
        if not self.rounded:
            return jnp.zeros_like(a)
        upper, lower = self._limits(a)
        return ((a < upper) & (a > -lower)).astype(a.dtype)

    def prox(self, y: Array, centre: Array, width: Array) -> Array:
        return centre + width * self.pull(y, centre, width)[0]

    def pull(self, y: Array, centre: Array, width: Array) -> tuple[Array, Array]:
        a = y - centre
        upper, lower = self._limits(a)
        under = width + 1 if self.rounded else width
        f = a / under
        stiff = (width / under) * jnp.ones_like(a)
        if not self.limited:
            return f, stiff
        return jnp.clip(f, -lower, upper), jnp.where((f < upper) & (f > -lower), stiff, 0.0)

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        return jnp.concatenate([self.breaks_at(jnp.ones(()), width), -self.breaks_at(-jnp.ones(()), width)])

    def breaks_at(self, y: Scalar, width: Scalar) -> Float[Array, " breaks"]:
        """The kinks of prox(y, ω, width) in ω."""
        under = width + 1 if self.rounded else width
        return jnp.stack([y - under * self.upper, y, y + under * self.lower]) if self.limited else y[None]

    def value_breaks(self) -> Float[Array, " breaks"]:
        if not (self.rounded and self.limited):
            return jnp.ones(1)
        return jnp.concatenate([1 + sign * jnp.stack([self.upper, self.lower]) for sign in (1, -1)])

    def forces(self, law: Mixture, V: Scalar) -> Forces:
        """The averages over a = y − ω, whose law has positive variances."""
        under = V + 1 if self.rounded else V
        if not self.limited:
            power = law.power
            return Forces(power / under**2, 1 / under, 1 / under**2, 0.5 * power / under**2, 0.5 * power)
        sides = [(self.upper, 1.0), (self.lower, -1.0)]
        top, bottom = under * self.upper, under * self.lower
        inside = beyond(law, -bottom) - beyond(law, top)
        square = train = test = jnp.zeros(())
        for limit, side in sides:
            end = under * limit
            over, over_square = tail(law, side * end, side), tail_square(law, side * end, side)
            begun = tail_square(law, jnp.zeros(()), side)
            square = square + (begun - over_square - 2 * end * over) / under**2
            if self.rounded:
                train = train + 0.5 * (begun - over_square) / under**2 + limit * V / under * over
                test = test + 0.5 * (begun - tail_square(law, side * limit, side))
            else:
                train, test = train + limit * over, test + limit * tail(law, jnp.zeros(()), side)
        return Forces(square, inside / under, inside / under**2, train, test)


def square() -> Residual:
    """½(y − z)².

    >>> float(square().value(jnp.asarray(1.0), jnp.asarray(3.0)))
    2.0
    """
    return Residual(rounded=True, limited=False)


def absolute() -> Residual:
    """|y − z|.

    >>> float(absolute().value(jnp.asarray(1.0), jnp.asarray(3.0)))
    2.0
    """
    return Residual(1.0, 1.0)


def huber(threshold: Any) -> Residual:
    """½(y − z)² up to |y − z| = δ, then δ|y − z| − δ²/2.

    >>> float(huber(0.5).value(jnp.asarray(1.0), jnp.asarray(3.0)))
    0.875
    """
    return Residual(threshold, threshold, rounded=True)


def quantile(level: Any) -> Residual:
    """κ(y − z)₊ + (1 − κ)(z − y)₊, the pinball: it learns the quantile of level κ.

    >>> float(quantile(0.9).value(jnp.asarray(3.0), jnp.asarray(1.0)))
    1.8
    """
    level = jnp.asarray(level, float)
    return Residual(level, 1 - level)


class Exponential(Loss):
    """ℓ = exp(−yz), y = ±1; its proximal map is Lambert's function.

    >>> one = jnp.asarray(1.0)
    >>> round(float(Exponential().prox(one, jnp.asarray(0.0), one)), 6)
    0.567143
    """

    def value(self, y: Array, z: Array) -> Array:
        return jnp.exp(-y * z)

    def slope(self, y: Array, z: Array) -> Array:
        return -y * jnp.exp(-y * z)

    def curvature(self, y: Array, z: Array) -> Array:
        return jnp.exp(-y * z)

    def root(self, y: Array, centre: Array, width: Array) -> Array:
        # With W e^W = V e^{−yω}, the margin is yω + W.
        margin = y * centre
        return y * (margin + lambert(jnp.log(width) - margin))

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        # Singular where 1 + W = 0, at log V − ω = −1 ± iπ; graded panels around there.
        around = jnp.asarray([-30.0, -12.0, -5.0, -2.0, 0.0, 2.0, 5.0, 12.0, 30.0])
        return jnp.log(width) + 1 + around

    def value_breaks(self) -> Float[Array, " breaks"]:
        return jnp.asarray([-5.0, 0.0, 5.0])


class Counts(Loss):
    """ℓ = exp(z) − yz, the negative log-likelihood of a count of rate exp(z), up to log y!.

    >>> zero = jnp.asarray(0.0)
    >>> round(float(Counts().prox(zero, zero, jnp.asarray(1.0))), 6)
    -0.567143
    """

    @property
    def symmetric(self) -> bool:
        return False

    def value(self, y: Array, z: Array) -> Array:
        return jnp.exp(z) - y * z

    def slope(self, y: Array, z: Array) -> Array:
        return jnp.exp(z) - y

    def curvature(self, y: Array, z: Array) -> Array:
        return jnp.exp(z)

    def root(self, y: Array, centre: Array, width: Array) -> Array:
        pushed = centre + width * y
        return pushed - lambert(jnp.log(width) + pushed)

    def breaks_at(self, y: Scalar, width: Scalar) -> Float[Array, " breaks"]:
        """Panels around the singularities of the proximal map, at log V + ω + Vy = −1 ± iπ."""
        around = jnp.asarray([-30.0, -12.0, -5.0, -2.0, 0.0, 2.0, 5.0, 12.0, 30.0])
        return -1 - jnp.log(width) - width * y + around


def lambert(log_x: Array) -> Array:
    """W(x) with W exp(W) = x > 0, given log x, to rounding; never overflows.

    >>> round(float(lambert(jnp.asarray(0.0))), 12)
    0.56714329041
    """
    # W + log W = log x. Guess, then Halley's method on w − x e^{−w} in its logarithmic form.
    big = log_x > 1.0
    large = jnp.where(big, log_x - jnp.log(jnp.where(big, log_x, 1.0)), 1.0)
    x = jnp.exp(jnp.minimum(log_x, 1.0))
    w = jnp.where(big, large, x / (1 + x) * (1 + 0.4 * x / (1 + x)))
    for _ in range(4):
        # In the small branch solve w e^w = x, in the large one w + log w = log x; both by Newton's method and its curvature.
        e = jnp.exp(-jnp.where(big, 0.0, w))
        small_gap = w - x * e
        small_slope = 1 + x * e
        small = w - small_gap / (small_slope + 0.5 * small_gap * x * e / small_slope)
        positive = jnp.where(big, w, 1.0)
        gap, slope = positive + jnp.log(positive) - log_x, 1 + 1 / positive
        w = jnp.where(big, positive - gap / (slope + 0.5 * gap / (positive**2 * slope)), small)
    return w


def breaks_of(loss: Loss, y: Scalar, width: Scalar) -> Float[Array, " breaks"]:
    """Points in ω between which prox(y, ω, width) is smooth, for any label.

    >>> breaks_of(absolute(), jnp.asarray(2.0), jnp.asarray(0.5)).tolist()
    [1.5, 2.0, 2.5]
    """
    if isinstance(loss, (Residual, Counts)):
        return loss.breaks_at(y, width)
    return jax.lax.stop_gradient(y * loss.breaks(width))
