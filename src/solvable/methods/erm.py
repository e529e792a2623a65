"""Empirical-risk minimisers for simulations: argmin_w Σ_μ ℓ(y_μ, w·a_μ) + λ|w|²/2 on masked rows.

Each returns the weights with a certificate (relative gradient norm or duality gap); rows with mask 0 do not exist.
These are plain optimisers: they know the loss's value and derivatives, never its proximal operator nor any theory.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .losses import Hinge, Loss, Square


class Fit(NamedTuple):
    """Weights, and a certificate of how optimal they are (zero at the optimum)."""

    weights: Float[Array, " d"]
    residual: Float[Array, ""]


def minimise_risk(
    loss: Loss,
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    penalty: Float[Array, ""],
    mask: Float[Array, " n"],
) -> Fit:
    """The minimiser, by the method that fits the loss: normal equations, dual ascent, or Newton.

    >>> a = jnp.asarray([[1.0, 0.0], [0.0, 2.0]])
    >>> fit = minimise_risk(Square(), a, jnp.ones(2), jnp.asarray(1.0), jnp.ones(2))
    >>> fit.weights.tolist()
    [0.5, 0.4]
    """
    if isinstance(loss, Square):
        return ridge(inputs, labels, penalty, mask)
    if isinstance(loss, Hinge):
        return hinge_dual(inputs, labels, penalty, mask)
    return newton(loss, inputs, labels, penalty, mask)


def ridge(
    inputs: Float[Array, "n d"], labels: Float[Array, " n"], penalty: Float[Array, ""], mask: Float[Array, " n"]
) -> Fit:
    """Ridge regression, ½Σ(y − w·a)² + λ|w|²/2, by the normal equations and one step of iterative refinement."""
    a, y = inputs * mask[:, None], labels * mask
    hessian = a.T @ a + penalty * jnp.eye(a.shape[1], dtype=a.dtype)
    factor = jax.scipy.linalg.cho_factor(hessian)
    moment = a.T @ y
    w = jax.scipy.linalg.cho_solve(factor, moment)
    w = w - jax.scipy.linalg.cho_solve(factor, a.T @ (a @ w - y) + penalty * w)
    gradient = a.T @ (a @ w - y) + penalty * w
    return Fit(w, jnp.linalg.norm(gradient) / jnp.linalg.norm(moment))


def newton(
    loss: Loss,
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    penalty: Float[Array, ""],
    mask: Float[Array, " n"],
    max_steps: int = 40,
) -> Fit:
    """A smooth convex loss, by Newton's method with step halving, until the gradient is at rounding level."""
    a = inputs
    tolerance = 50 * jnp.finfo(a.dtype).eps

    def risk(w):
        return jnp.sum(mask * loss.value(labels, a @ w)) + 0.5 * penalty * w @ w

    def gradient(w):
        return a.T @ (mask * loss.slope(labels, a @ w)) + penalty * w

    scale = jnp.linalg.norm(gradient(jnp.zeros_like(a[0])))

    def unfinished(state):
        _, size, step, gain = state
        return (step < max_steps) & (size > tolerance) & (gain > 0)

    def body(state):
        w, size, step, _ = state
        z = a @ w
        curvature = mask * loss.curvature(labels, z)
        hessian = (a * curvature[:, None]).T @ a + penalty * jnp.eye(a.shape[1], dtype=a.dtype)
        g = gradient(w)
        move = -jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(hessian), g)
        # All trial lengths at once: a product with `a` for w and for the move gives every risk along the line.
        along = a @ move
        lengths = 0.5 ** jnp.arange(10, dtype=a.dtype)
        fits = loss.value(labels[None, :], z[None, :] + lengths[:, None] * along[None, :])
        norms = jnp.sum((w[None, :] + lengths[:, None] * move[None, :]) ** 2, axis=1)
        trials = fits @ mask + 0.5 * penalty * norms
        best = jnp.argmin(trials)
        new = w + lengths[best] * move
        new_size = jnp.linalg.norm(gradient(new)) / scale
        better = new_size < size
        # Once neither risk nor gradient falls, rounding has been reached.
        improved = better | (trials[best] < risk(w))
        w = jnp.where(improved, new, w)
        return w, jnp.where(improved, new_size, size), step + 1, improved.astype(jnp.int32)

    start = (jnp.zeros_like(a[0]), jnp.ones((), a.dtype), jnp.asarray(0), jnp.asarray(1, jnp.int32))
    w, size, _, _ = jax.lax.while_loop(unfinished, body, start)
    return Fit(w, size)


def hinge_dual(
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    penalty: Float[Array, ""],
    mask: Float[Array, " n"],
    max_epochs: int = 3000,
    tolerance: float = 1e-5,
) -> Fit:
    """The hinge loss, by exact coordinate ascent on the dual 0 ≤ a_μ ≤ 1, until the relative duality gap is small.

    w = Σ_μ a_μ y_μ x_μ/λ; the gap P(w) − D(a) bounds the excess risk of w from above.
    """
    rows = labels[:, None] * inputs
    squares = jnp.sum(rows**2, axis=1)
    n = rows.shape[0]

    def sweep(_, state):
        def coordinate(i, state):
            dual, w = state
            step = penalty * (1 - rows[i] @ w) / squares[i]
            new = jnp.clip(dual[i] + step, 0.0, 1.0)
            move = (new - dual[i]) * mask[i]
            return dual.at[i].add(move), w + rows[i] * (move / penalty)

        return jax.lax.fori_loop(0, n, coordinate, state)

    def relative_gap(dual, w):
        primal = mask @ jnp.maximum(1 - rows @ w, 0.0) + 0.5 * penalty * w @ w
        return (primal - (jnp.sum(dual) - 0.5 * penalty * w @ w)) / jnp.maximum(primal, 1e-30)

    def unfinished(state):
        _, _, gap, epoch = state
        return (gap > tolerance) & (epoch < max_epochs)

    def body(state):
        dual, w, _, epoch = state
        dual, w = jax.lax.fori_loop(0, 5, sweep, (dual, w))
        w = rows.T @ dual / penalty  # refresh, so that rounding does not pile up
        return dual, w, relative_gap(dual, w), epoch + 5

    first = (jnp.zeros_like(squares), jnp.zeros_like(rows[0]), jnp.asarray(jnp.inf, rows.dtype), jnp.asarray(0))
    _, w, gap, _ = jax.lax.while_loop(unfinished, body, first)
    return Fit(w, gap)
