"""An empirical-risk minimiser for any convex loss and penalty: the alternating direction method on the graph z = Aw.

It minimises Σ_μ ℓ(y_μ, z_μ) + Σ_i r(w_i) over the pairs with z = Aw (Parikh and Boyd 2014): proximal steps on every z_μ and
w_i alone, then a projection onto the graph, which is one product with a matrix that is inverted once. The step is balanced
between primal and dual residuals. No theory enters; the residuals certify the minimum.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fixed_points.linear_algebra import cholesky, solve_with_factor
from .erm import Fit
from .losses import Loss
from .penalties import Penalty

RELAXED = 1.7  # over-relaxation


def minimise(
    loss: Loss,
    penalty: Penalty,
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    mask: Float[Array, " n"],
    *,
    tolerance: float = 1e-6,
    max_steps: int = 4000,
) -> Fit:
    """The minimiser and its residual, the larger of the relative primal and dual residuals; rows with mask 0 are ignored.

    >>> from .penalties import Elastic
    >>> from .real_losses import square
    >>> fit = minimise(square(), Elastic(0.5), jnp.eye(2), jnp.asarray([2.0, 0.3]), jnp.ones(2))
    >>> [round(float(w), 5) for w in fit.weights]  # soft thresholding
    [1.5, 0.0]
    """
    a = inputs * mask[:, None]
    n, d = a.shape
    present = mask > 0
    factor = cholesky(a.T @ a + jnp.eye(d, dtype=a.dtype))

    def project(w, z):
        w = solve_with_factor(factor, w + a.T @ z)
        return w, a @ w

    def body(state):
        w, z, dual_w, dual_z, step, _, number = state
        width = jnp.broadcast_to(step, (n,))
        near_w = penalty.prox(w - dual_w, step)
        near_z = jnp.where(present, loss.prox(labels, z - dual_z, width), 0.0)
        ahead_w = RELAXED * near_w + (1 - RELAXED) * w
        ahead_z = RELAXED * near_z + (1 - RELAXED) * z
        new_w, new_z = project(ahead_w + dual_w, ahead_z + dual_z)
        dual_w, dual_z = dual_w + ahead_w - new_w, dual_z + ahead_z - new_z
        size = jnp.sqrt(near_w @ near_w + near_z @ near_z) + 1e-12
        pull = jnp.sqrt(dual_w @ dual_w + dual_z @ dual_z) + 1e-12
        primal = jnp.sqrt(jnp.sum((near_w - new_w) ** 2) + jnp.sum((near_z - new_z) ** 2)) / size
        dual = jnp.sqrt(jnp.sum((new_w - w) ** 2) + jnp.sum((new_z - z) ** 2)) / pull
        # Every twenty steps a step size that balances the residuals; scaled duals change with it.
        due = (number % 20 == 19) & (number < 1000)
        factor = jnp.where(due, jnp.clip(jnp.sqrt(dual / (primal + 1e-30)), 0.2, 5.0), 1.0)
        factor = jnp.where((factor > 0.7) & (factor < 1.5), 1.0, factor)
        residual = jnp.maximum(primal, dual)
        return new_w, new_z, dual_w * factor, dual_z * factor, step * factor, residual, number + 1

    def unfinished(state):
        return (state[5] > tolerance) & (state[6] < max_steps)

    w, z = jnp.zeros(d, a.dtype), jnp.zeros(n, a.dtype)
    first = (w, z, w, z, jnp.ones((), a.dtype), jnp.asarray(jnp.inf, a.dtype), jnp.asarray(0))
    w, _, dual_w, _, step, residual, _ = jax.lax.while_loop(unfinished, body, first)
    # The proximal step on the weights makes zeros exact.
    return Fit(penalty.prox(w - dual_w, step), residual)
