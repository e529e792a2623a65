"""Covariances of samples with weights of either sign, such as Hessians: lower edge and the outlier below it.

The matrix is M = (1/d) Σ_μ a_μ ξ_μξ_μᵀ, with n = αd samples ξ ~ N(0, 1_d) and weights a that depend on a few projections of
their sample, among them y = ξ·u with |u| = 1. In the limit only the law of the weights matters: with
g(ζ) = (1/d)Tr (M−ζ)⁻¹, real and positive below the bulk,

    ζ(g) = −1/g + α E[a/(1+ag)],        lower edge where dζ/dg = 0:  α E[(ag)²/(1+ag)²] = 1,

and the direction u has an eigenvalue outside the bulk where ζ = α E[ay²/(1+ag)], that is, at a g below that of the edge with

    α E[ag(1−y²)/(1+ag)] = 1.

It has left the bulk if the left side exceeds one at the edge (Baik, Ben Arous and Péché 2005; Lu and Li 2020 for
weights that depend on y); the squared cosine of its eigenvector with u is then 1/(1 + α E[(ay)²/(1+ag)²] g′(ζ)).

The law is a list of weights a, of y² and of probabilities: nodes of a quadrature, or the samples of a finite matrix.
Derivatives are implicit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .equivalents import Scalar, safe_root

__all__ = ["Lowest", "lowest_direction"]


class Lowest(NamedTuple):
    """The lower end of the spectrum of M.

    `resolvent` is g at the `edge` of the bulk, `lowest` the smallest eigenvalue (the edge if there is no outlier) and
    `overlap` the squared cosine of its eigenvector with u. `margin` is the distance of u from its transition:
    α E[ag(1−y²)/(1+ag)] − 1 at the edge, negative if there is no outlier.
    """

    edge: Scalar
    resolvent: Scalar
    lowest: Scalar
    overlap: Scalar
    margin: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def lowest_direction(
    weights: Float[Array, " k"], squares: Float[Array, " k"], chances: Float[Array, " k"], samples: Scalar
) -> Lowest:
    """Edge and lowest eigenvalue of M for samples with weights a, squared projections y² and their probabilities.

    If the smallest a is −b, g is limited to 1/b. A law for which the mean of (ag)²/(1+ag)² stays below 1/α up to there
    (few samples; no negative weights and α < 1) has no such edge: the result is NaN.

    >>> import jax.numpy as jnp
    >>> one = jnp.ones(1)
    >>> white = lowest_direction(one, one, one, jnp.float64(4.0))   # Marchenko–Pastur: (√α − 1)²
    >>> round(float(white.edge), 12), float(white.overlap)
    (1.0, 0.0)
    >>> half = jnp.asarray([0.5, 0.5])   # samples with large y have weight zero, which lowers the variance along u
    >>> found = lowest_direction(jnp.asarray([1.0, 0.0]), jnp.asarray([0.2, 1.8]), half, jnp.float64(8.0))
    >>> bool(found.lowest < found.edge), round(float(found.overlap), 6)
    (True, 0.886364)
    """
    least, strength = jnp.min(weights), jnp.abs(weights * (1.0 - squares))
    floor = jnp.maximum(-least, 1e-9 * jnp.max(jnp.abs(weights)))

    # In x = 1/g the square root of the sum is almost linear, so that Newton's method converges fast.
    def turning(x: Array) -> Array:
        return 1.0 - jnp.sqrt(1.0 / (samples * (chances @ (weights / (x + weights)) ** 2)))

    # Just short of the pole, where the sum is infinite: a law whose root lies beyond has no edge.
    far = floor + jnp.sqrt(samples * (chances @ weights**2))
    at = _root(turning, floor * (1 + 1e-12), far, 64)

    def place(x: Array) -> Array:
        return -x + samples * (chances @ (weights * x / (x + weights)))

    def pull(x: Array) -> Array:
        return samples * (chances @ (weights * (1.0 - squares) / (x + weights)))

    edge, margin = place(at), pull(at) - 1.0
    left = margin > 0
    begin, end = lax.stop_gradient(at), floor + samples * (chances @ strength)
    # without an outlier, a line that crosses zero keeps the unused branch regular
    place_of_u = _root(lambda x: jnp.where(left, pull(x) - 1.0, 2.0 - x / begin), at, jnp.maximum(end, 3.0 * begin), 48)
    own = 1.0 / place_of_u
    share = weights / (1.0 + weights * own)
    slope = own**2 / (1.0 - samples * own**2 * (chances @ share**2))  # g′(ζ)
    overlap = 1.0 / (1.0 + samples * (chances @ (share**2 * squares)) * slope)
    residual = jnp.maximum(jnp.abs(turning(at)), jnp.where(left, jnp.abs(1.0 - pull(place_of_u)), 0.0))
    converged = residual < 1e-10
    veil = jnp.where(converged, 1.0, jnp.nan)
    lowest = jnp.where(left, place(place_of_u), edge)
    return Lowest(
        edge * veil, veil / at, lowest * veil, jnp.where(left, overlap, 0.0) * veil, margin * veil, residual, converged
    )


def _root(function: Callable[[Array], Array], low: Array, high: Array, steps: int) -> Array:
    """Root of a decreasing function, with its implicit derivative."""

    def solve(_, guess: Array) -> Array:
        return safe_root(function, low, high, steps=steps)

    return lax.custom_root(function, high, solve, lambda g, y: y / g(jnp.ones_like(y)))
