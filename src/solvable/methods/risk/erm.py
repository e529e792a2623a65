"""Empirical-risk minimisers for simulations: argmin_w Σ_μ ℓ(y_μ, w·a_μ) + λ|w|²/2 on masked rows.

Each returns the weights with a certificate (relative gradient norm or duality gap); rows with mask 0 are ignored.
These are plain optimisers: they use the loss's value and derivatives, never its proximal operator or any theory.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fixed_points.linear_algebra import cholesky, solve_positive, solve_with_factor
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
    """The minimiser, by the method that suits the loss: normal equations, interior point, or Newton.

    >>> a = jnp.asarray([[1.0, 0.0], [0.0, 2.0]])
    >>> fit = minimise_risk(Square(), a, jnp.ones(2), jnp.asarray(1.0), jnp.ones(2))
    >>> fit.weights.tolist()
    [0.5, 0.4]
    """
    if isinstance(loss, Square):
        return ridge(inputs, labels, penalty, mask)
    if isinstance(loss, Hinge):
        return hinge_interior(inputs, labels, penalty, mask)
    return newton(loss, inputs, labels, penalty, mask)


def ridge(
    inputs: Float[Array, "n d"], labels: Float[Array, " n"], penalty: Float[Array, ""], mask: Float[Array, " n"]
) -> Fit:
    """Ridge regression, ½Σ(y − w·a)² + λ|w|²/2, by the normal equations and one step of iterative refinement."""
    a, y = inputs * mask[:, None], labels * mask
    hessian = a.T @ a + penalty * jnp.eye(a.shape[1], dtype=a.dtype)
    factor = cholesky(hessian)
    moment = a.T @ y
    w = solve_with_factor(factor, moment)
    w = w - solve_with_factor(factor, a.T @ (a @ w - y) + penalty * w)
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
        move = -solve_positive(hessian, g)
        # All trial lengths at once: a product with `a` for w and for the move gives every risk along the line.
        along = a @ move
        lengths = 0.5 ** jnp.arange(10, dtype=a.dtype)
        fits = loss.value(labels[None, :], z[None, :] + lengths[:, None] * along[None, :])
        norms = jnp.sum((w[None, :] + lengths[:, None] * move[None, :]) ** 2, axis=1)
        trials = fits @ mask + 0.5 * penalty * norms
        # Take the longest of the lengths that are best up to rounding: near the minimum the risks differ by rounding
        # only, and the shortest step would win as often as Newton's.
        least = jnp.min(trials)
        best = jnp.argmax(trials <= least + 64 * jnp.finfo(a.dtype).eps * jnp.abs(least))
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


def hinge_interior(
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    penalty: Float[Array, ""],
    mask: Float[Array, " n"],
    max_steps: int = 60,
    tolerance: float = 1e-6,
) -> Fit:
    """The hinge loss, by a primal–dual interior-point method; the certificate is the relative duality gap.

    With r = y·a, slacks ξ ≥ 0 and s = r·w − 1 + ξ ≥ 0, and multipliers 0 ≤ α ≤ 1, the optimum has λw = Σ αr, αs = 0 and
    (1 − α)ξ = 0. Newton on these with right-hand side μ → 0 needs one d×d factorisation a step. Mehrotra's predictor and
    corrector choose μ: with a fixed fraction of the present one, steps shrink to nothing near separability, where w is
    large and the start far from λw = Σ αr. In float64 throughout: the last steps are ill-conditioned by nature.
    """
    rows = (labels[:, None] * inputs * mask[:, None]).astype(float)
    lam, keep = penalty.astype(float), mask.astype(float)
    n, d = rows.shape

    def relative_gap(alpha):
        w = rows.T @ (keep * alpha) / lam
        primal = keep @ jnp.maximum(1 - rows @ w, 0.0) + 0.5 * lam * w @ w
        return (primal - (keep @ alpha - 0.5 * lam * w @ w)) / jnp.maximum(primal, 1e-300)

    def longest(value, change):
        """The longest step that keeps `value` positive, on the unmasked rows."""
        return jnp.min(jnp.where((change < 0) & (keep > 0), -value / jnp.where(change < 0, change, -1.0), jnp.inf))

    def unfinished(state):
        _, _, _, gap, step = state
        return (gap > tolerance) & (step < max_steps)

    def body(state):
        w, alpha, xi, gap, step = state
        s = rows @ w - 1 + xi
        scale = s / alpha + xi / (1 - alpha)
        weight = keep / scale
        factor = cholesky((rows * weight[:, None]).T @ rows + lam * jnp.eye(d))

        def towards(upper, lower):
            """The Newton step to αs = `upper` and (1 − α)ξ = `lower`, and its longest feasible part."""
            c = lower / (1 - alpha) - xi
            known = upper / alpha - s - c
            dw = solve_with_factor(factor, rows.T @ (keep * alpha + weight * known) - lam * w)
            dalpha = (known - rows @ dw) / scale
            dxi = c + xi / (1 - alpha) * dalpha
            ds = rows @ dw + dxi
            room = [longest(alpha, dalpha), longest(1 - alpha, -dalpha), longest(xi, dxi), longest(s, ds)]
            return dw, dalpha, dxi, ds, jnp.min(jnp.stack(room))

        def products(alpha, s, xi):
            return keep @ (alpha * s + (1 - alpha) * xi) / (2 * jnp.sum(keep))

        _, dalpha, dxi, ds, room = towards(jnp.zeros(n), jnp.zeros(n))
        length, now = jnp.minimum(1.0, room), products(alpha, s, xi)
        mu = now * (products(alpha + length * dalpha, s + length * ds, xi + length * dxi) / now) ** 3
        dw, dalpha, dxi, _, room = towards(mu - dalpha * ds, mu + dalpha * dxi)
        length = jnp.minimum(1.0, 0.99 * room)
        moved = (w + length * dw, alpha + length * dalpha, xi + length * dxi)
        new = relative_gap(moved[1])
        # the last steps can break down by rounding: keep the iterate before, with its own certificate, and stop
        sound = jnp.isfinite(new)
        kept = (jnp.where(sound, x, y) for x, y in zip(moved, (w, alpha, xi), strict=True))
        return *kept, jnp.where(sound, new, gap), jnp.where(sound, step + 1, max_steps)

    first = (jnp.zeros(d), jnp.full(n, 0.5), jnp.full(n, 2.0), jnp.asarray(jnp.inf), jnp.asarray(0))
    _, alpha, _, gap, _ = jax.lax.while_loop(unfinished, body, first)
    return Fit((rows.T @ (keep * alpha) / lam).astype(inputs.dtype), gap.astype(inputs.dtype))
