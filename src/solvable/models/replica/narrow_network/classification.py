r"""A Bayes-optimal narrow network that classifies, and dynamics that train it: Langevin and plain gradient descent.

Labels are y = sign(f(x) + √Δ ξ) of the same teacher. As in regression only the covariance g of the units counts, and the linear
part of σ is learnt perfectly, so that given the data the output is normal with variance V = g(1) − g(q) around a mean ω of
variance s² = c₁² + g(q). The conjugate of q is that of regression with another output channel,

    q = q̂/(1+q̂),   q̂ = α g'(q) <φ(u)²/(Φ(u)Φ(−u))>/(Δ + V),   u = ω/√(Δ + V),

and the sign of the posterior mean differs from that of f with probability arccos(s/√(s²+V))/π.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.fixed_points.saddle import solve

from .committee import Kernel
from .networks import Committee, signs, slopes

__all__ = ["Classifier", "LabelEnergy", "bayes_classifier", "gradient_descent", "langevin", "stiffness"]

Scalar = Float[Array, ""]
Energy = Callable[[Array], Array]


class Classifier(NamedTuple):
    """Overlap with the teacher, and the probability that the predicted sign is not that of the teacher's output."""

    overlap: Scalar
    error: Scalar
    converged: Array


def bayes_classifier(kernel: Kernel, linear: float, alpha: Scalar, noise: Scalar, start: float = 0.99) -> Classifier:
    """The solution reached from overlap `start`; `linear` is c₁, the mean slope of the activation.

    >>> from .committee import kernel_named
    >>> kernel = kernel_named("abs", 64, 128, unit=True)
    >>> few, many = (bayes_classifier(kernel, 0.0, jnp.asarray(a), jnp.asarray(0.05)) for a in (0.5, 8.0))
    >>> bool(few.overlap < 1e-6), bool(many.overlap > 0.9)
    (True, True)
    """
    one = jnp.ones(())

    def widths(q: Array) -> tuple[Array, Array]:
        known = kernel.value(q, one, one)
        return linear**2 + known, kernel.value(one, one, one) - known

    def update(x: Array, args: tuple[Array, Array]) -> Array:
        alpha, noise = args
        q = jnp.clip(x[0], 0.0, 1 - 1e-12)
        mean, rest = widths(q)

        def score(z: Array) -> Array:
            u = jnp.sqrt(mean / (noise + rest)) * z
            return jnp.exp(-(u**2) - jnp.log(2 * jnp.pi) - log_ndtr(u) - log_ndtr(-u))

        z, weights = (jnp.asarray(v) for v in np.polynomial.hermite_e.hermegauss(80))
        strength = weights @ jax.vmap(score)(z) / jnp.sum(weights)
        hat = alpha * kernel.slope(q, one, one) * strength / (noise + rest)
        return (hat / (1 + hat))[None]

    found = solve(update, jnp.asarray([start]), (alpha, noise), tolerance=1e-10, max_steps=2000, warmup=50)
    mean, rest = widths(jnp.clip(found.x[0], 0.0, 1.0))
    error = jnp.arctan2(jnp.sqrt(rest), jnp.sqrt(mean)) / jnp.pi
    return Classifier(found.x[0], error, found.converged)


class LabelEnergy(eqx.Module):
    """−log of the posterior of signs y = sign(f + √Δ ξ) with a normal prior of the weights."""

    network: Committee
    inputs: Array
    labels: Array
    noise: Array

    def __call__(self, weights: Array) -> Array:
        margin = self.labels * self.network(weights, self.inputs) / jnp.sqrt(self.noise)
        return -jnp.sum(log_ndtr(margin)) + 0.5 * jnp.sum(weights**2)


def stiffness(activation: str, ratio: float, units: int) -> tuple[float, float]:
    """Upper estimates of the curvature of ½Σ(y−ŷ)² at n/(Kd) = `ratio`: along single units, and along their sum Σ_k a_k w_k.

    >>> [round(x, 9) for x in stiffness("abs", 4.0, 6)]
    [9.0, 9.0]
    """
    mean, variance = slopes(activation)
    scatter = ratio * (1 + ratio**-0.5) ** 2
    return scatter * variance, scatter * (variance + units * mean**2)


@eqx.filter_jit
def langevin(
    energy: Energy, start: Array, key: PRNGKeyArray, step: Array, mobility: Array, steps: int, draws: int
) -> Float[Array, "draws units size"]:
    """Unadjusted Langevin dynamics, w ← w − hP∇U + √(2hP) ξ; returns `draws` equally spaced states of its second half.

    P is one but for the sum of all units, Σ_k a_k w_k, which is stiffer than the rest and has a lower `mobility`. The
    measure that is sampled, up to the discretisation, does not depend on P.
    """
    pull, units = jax.grad(energy), start.shape[0]
    a = signs(units, start.dtype)

    def slowed(p: Array, factor: Array) -> Array:
        return p - (1 - factor) * a[:, None] * (a @ p)[None, :] / units

    def move(number: Array, w: Array) -> Array:
        kick = jax.random.normal(jax.random.fold_in(key, number), w.shape, w.dtype)
        return w - step * slowed(pull(w), mobility) + jnp.sqrt(2 * step) * slowed(kick, jnp.sqrt(mobility))

    between = steps // (2 * draws)
    begin = jax.lax.fori_loop(0, steps - between * draws, move, start)

    def draw(w: Array, number: Array) -> tuple[Array, Array]:
        first = steps - between * draws + number * between
        w = jax.lax.fori_loop(first, first + between, move, w)
        return w, w

    return jax.lax.scan(draw, begin, jnp.arange(draws))[1]


@eqx.filter_jit
def gradient_descent(
    energy: Energy, start: Array, rate: Array, steps: int
) -> tuple[Float[Array, "units size"], Scalar]:
    """Plain gradient descent at constant rate; the last weights, and their root mean square gradient."""
    pull = jax.grad(energy)
    w = jax.lax.fori_loop(0, steps, lambda _, w: w - rate * pull(w), start)
    return w, jnp.sqrt(jnp.mean(pull(w) ** 2))
