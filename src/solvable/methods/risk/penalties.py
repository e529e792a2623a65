r"""Penalties of empirical risk minimisation, one weight at a time, and what they make of a Gaussian field.

In the replica theory a weight minimises V̂w²/2 − Bw + r(w), i.e. w = prox(B/V̂) with step 1/V̂, in the field
B = m̂w₀ + √q̂ ξ of a teacher's weight w₀. For a prior that is a mixture of Gaussians (`mixtures`), B is one too, and

    m = E w w₀ = Σ_k p_k (μ_k E_k w + m̂σ_k² E_k w′),    q = E w²,    V = E w′,    w′ = ∂w/∂B        (Stein's lemma).

All built-in penalties, λ₁|w| + λ₂w²/2 with |w| ≤ c, give a w that is linear in B between four points: closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..averages.quadrature import gaussian_panels
from .mixtures import Mixture, tails

Scalar = Float[Array, ""]


class Weights(NamedTuple):
    """m, q, V, E w′² (for stability) and the mean penalty E r(w)."""

    overlap: Scalar
    norm: Scalar
    response: Scalar
    fluctuation: Scalar
    cost: Scalar


class Penalty(eqx.Module):
    """Base of all penalties."""

    @property
    def curvature(self) -> Scalar:
        """A lower bound λ₂ of r″, which stands beside V̂."""
        return jnp.zeros(())

    def prox(self, centre: Array, step: Array) -> Array:
        """argmin_w (w − centre)²/2 + step·r(w)."""
        raise AttributeError("prox")

    def value(self, weights: Array) -> Array:
        """r(w), infinite where w is not allowed."""
        raise AttributeError("value")

    def weights(self, prior: Mixture, m_hat: Scalar, q_hat: Scalar, stiffness: Scalar) -> Weights:
        """The moments at given m̂, q̂ and V̂ + λ₂ = `stiffness`."""
        raise AttributeError("weights")


class Elastic(Penalty):
    """λ₁|w| + λ₂w²/2 on |w| ≤ c: ridge, lasso, elastic net and box; c is infinite without a box.

    >>> w = Elastic(0.5, 1.0).prox(jnp.asarray([0.2, 2.0]), jnp.asarray(1.0))
    >>> w.tolist()
    [0.0, 0.75]
    """

    l1: Array
    l2: Array
    bound: Array | None

    def __init__(self, l1: Any = 0.0, l2: Any = 0.0, bound: Any = None):
        self.l1, self.l2 = jnp.asarray(l1, float), jnp.asarray(l2, float)
        self.bound = None if bound is None else jnp.asarray(bound, float)

    @property
    def curvature(self) -> Scalar:
        return self.l2

    def prox(self, centre: Array, step: Array) -> Array:
        step = jnp.asarray(step).astype(centre.dtype)
        l1, l2 = self.l1.astype(centre.dtype), self.l2.astype(centre.dtype)
        w = jnp.sign(centre) * jnp.maximum(jnp.abs(centre) - step * l1, 0.0) / (1 + step * l2)
        return w if self.bound is None else jnp.clip(w, -self.bound.astype(w.dtype), self.bound.astype(w.dtype))

    def value(self, weights: Array) -> Array:
        l1, l2 = self.l1.astype(weights.dtype), self.l2.astype(weights.dtype)
        cost = l1 * jnp.abs(weights) + 0.5 * l2 * weights**2
        return cost if self.bound is None else jnp.where(jnp.abs(weights) <= self.bound * (1 + 1e-6), cost, jnp.inf)

    def weights(self, prior: Mixture, m_hat: Scalar, q_hat: Scalar, stiffness: Scalar) -> Weights:
        field = prior.scaled(m_hat).widened(q_hat)
        k, sides = stiffness, []
        for side in (1.0, -1.0):
            slope, first, second = tails(field, side * self.l1, side)
            if self.bound is not None:
                length = self.bound * k
                mass, over, over_square = tails(field, side * (self.l1 + length), side)
                slope, first = slope - mass, first - over
                second = second - over_square - 2 * length * over
            sides.append((slope / k, first / k, second / k**2))
        (up, rise, top), (down, fall, bottom) = sides
        slope, p = up + down, prior.weights
        overlap = p @ (prior.means * (rise - fall) + m_hat * prior.variances * slope)
        q, size = p @ (top + bottom), p @ (rise + fall)
        return Weights(overlap, q, p @ slope, p @ slope / k, self.l1 * size + 0.5 * self.l2 * q)


class OwnPenalty(Penalty):
    """λ times a penalty given by its proximal map, `function(x, t)` = argmin_w (w − x)²/2 + t r(w), elementwise.

    The map may have kinks: they are located where its derivative jumps. `cost` gives r(w) itself, for the energy.

    >>> own = OwnPenalty(lambda x, t: jnp.sign(x) * jnp.maximum(jnp.abs(x) - t, 0.0), 0.5)
    >>> from .mixtures import sparse
    >>> one = jnp.ones(())
    >>> a, b = (p.weights(sparse(0.2), one, 0.3 * one, 0.8 * one) for p in (own, Elastic(0.5)))
    >>> bool(abs(a.norm - b.norm) < 1e-10), bool(abs(a.overlap - b.overlap) < 1e-10)
    (True, True)
    """

    function: Callable[[Array, Array], Array] = eqx.field(static=True)
    strength: Array
    cost: Callable[[Array], Array] | None = eqx.field(static=True)
    nodes: int = eqx.field(static=True)

    def __init__(self, function: Callable[[Array, Array], Array], strength: Any, cost: Any = None, nodes: int = 14):
        self.function, self.strength, self.cost, self.nodes = function, jnp.asarray(strength, float), cost, nodes

    def prox(self, centre: Array, step: Array) -> Array:
        return self.function(centre, jnp.broadcast_to(step * self.strength, centre.shape).astype(centre.dtype))

    def value(self, weights: Array) -> Array:
        if self.cost is None:
            return jnp.full_like(weights, jnp.nan)
        return self.strength.astype(weights.dtype) * self.cost(weights)

    def weights(self, prior: Mixture, m_hat: Scalar, q_hat: Scalar, stiffness: Scalar) -> Weights:
        field = prior.scaled(m_hat).widened(q_hat)

        def response(B):
            w = lambda b: self.prox(b / stiffness, 1 / stiffness)  # noqa: E731
            return jax.jvp(w, (B,), (jnp.ones_like(B),))

        reach = jnp.max(jnp.abs(field.means) + 9 * jnp.sqrt(field.variances))
        places = kinks(lambda B: response(B)[1], -reach, reach)

        def component(mean, variance):
            width = jnp.sqrt(variance)
            xi, mass = gaussian_panels(
                jnp.concatenate([(places - mean) / width, jnp.asarray([-4.0, -2.0, 0.0, 2.0, 4.0])]), self.nodes
            )
            w, slope = response(mean + width * xi)
            return jnp.stack([mass @ w, mass @ slope, mass @ w**2, mass @ slope**2, mass @ self.value(w)])

        mean, slope, square, fluctuation, cost = jax.vmap(component)(field.means, field.variances).T
        p = prior.weights
        overlap = p @ (prior.means * mean + m_hat * prior.variances * slope)
        return Weights(overlap, p @ square, p @ slope, p @ fluctuation, p @ cost)


def kinks(
    slope: Callable[[Array], Array], low: Scalar, high: Scalar, most: int = 6, grid: int = 257
) -> Float[Array, " most"]:
    """Places between `low` and `high` where a slope changes most between neighbours on a grid, by bisection of each change.

    For a function that is linear between kinks these are the kinks; for a smooth one they are harmless breaks.

    >>> found = kinks(lambda x: jnp.sign(x - 0.3) + jnp.sign(x + 1.7), jnp.asarray(-4.0), jnp.asarray(5.0), 2)
    >>> bool(jnp.all(jnp.abs(jnp.sort(found) - jnp.asarray([-1.7, 0.3])) < 1e-12))
    True
    """
    x = low + (high - low) * jnp.linspace(0.0, 1.0, grid)
    s = slope(x)
    change = jnp.abs(s[1:] - s[:-1])
    where = jax.lax.top_k(change, most)[1]
    left, right, at_left, at_right = x[where], x[where + 1], s[where], s[where + 1]

    def halve(_, ends):
        left, right = ends
        middle = 0.5 * (left + right)
        here = slope(middle)
        nearer = jnp.abs(here - at_left) <= jnp.abs(here - at_right)
        return jnp.where(nearer, middle, left), jnp.where(nearer, right, middle)

    left, right = jax.lax.fori_loop(0, 50, halve, (left, right))
    return jax.lax.stop_gradient(0.5 * (left + right))
