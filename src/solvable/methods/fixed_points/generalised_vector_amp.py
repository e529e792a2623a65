r"""Vector approximate message passing for any output: y depends on z = Aw, A with random singular vectors (generalised VAMP).

Three estimates exchange Gaussian messages of one precision each, until each knows what the others do (Schniter, Rangan and
Fletcher 2016, arXiv:1612.01186): a denoiser of the weights, one of the fields z, and least squares in between,

    ŵ = (A_w + A_z AᵀA)⁻¹(B_w + AᵀB_z),     V_w = tr(A_w + A_z AᵀA)⁻¹/d,     V_z = tr A(A_w + A_z AᵀA)⁻¹Aᵀ/n.

Whatever an estimate (x̂, V) makes of a message (A, B), it returns (1/V − A, x̂/V − B). `vector_amp` is the case of a linear
output with Gaussian noise, and has a state evolution.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .gamp import Messages

__all__ = ["generalised_vamp"]

Vector = Float[Array, " n"]
LEAST = 1e-10


def generalised_vamp(
    inputs: Float[Array, "n d"],
    labels: Float[Array, " n"],
    score: Callable[[Vector, Vector, Array], tuple[Vector, Vector]],
    denoise: Callable[[Vector, Array], tuple[Vector, Vector]],
    iterations: int,
    *,
    mask: Float[Array, " n"] | None = None,
    power: Array | float = 1.0,
    damping: float = 1.0,
) -> Messages:
    """Iterate from no information, E w² = `power`; score and denoiser as of `gamp.gamp`: (g, −∂g/∂ω) and (ŵ, ∂ŵ/∂B).

    `measured` is the mean square of the estimate in every iteration. Rows with mask 0 are ignored.

    >>> key = jax.random.key(0)
    >>> a = jnp.linalg.qr(jax.random.normal(key, (60, 60)))[0][:30]
    >>> teacher = jax.random.normal(jax.random.key(1), (60,))
    >>> found = generalised_vamp(  # unit noise and a Gaussian prior: ridge regression with λ = 1
    ...     a, a @ teacher, lambda y, w, v: ((y - w) / (1 + v), jnp.ones_like(y) / (1 + v)),
    ...     lambda b, precision: (b / (1 + precision), jnp.ones_like(b) / (1 + precision)), 20)
    >>> exact = jnp.linalg.solve(a.T @ a + jnp.eye(60), a.T @ (a @ teacher))
    >>> bool(jnp.max(jnp.abs(found.estimate - exact)) < 1e-6)
    True
    """
    n, d = inputs.shape
    present = jnp.ones(n, inputs.dtype) if mask is None else mask
    rows = jnp.sum(present)
    inputs = inputs * present[:, None]
    left, singular, right = jnp.linalg.svd(inputs, full_matrices=False)
    s = singular**2
    none = d - s.shape[0]  # directions of the weights that no row sees
    rho = jnp.asarray(power, inputs.dtype)
    least = rho * LEAST

    def mixed(new: Array, old: Array) -> Array:
        return damping * new + (1 - damping) * old

    def step(state, _):
        w, V, A_w, B_w, A_z, B_z = state
        # the denoiser of the weights, at the cavity precision that least squares leaves it
        back, back_field = _linear(A_w, B_w, A_z, B_z)
        new, slope = denoise(back_field[0], back[0])
        V_new = jnp.maximum(jnp.mean(slope), least)
        A_w_new = jnp.maximum(1 / V_new - back[0], LEAST / rho)
        B_w_new = new / V_new - back_field[0]
        # the denoiser of the fields
        cavity = 1 / back[1]
        centre = cavity * back_field[1]
        g, stiff = score(labels, centre, cavity)
        curvature = jnp.sum(present * stiff) / rows
        shrunk = jnp.maximum(1 - cavity * curvature, LEAST)
        A_z_new = jnp.maximum(curvature / shrunk, LEAST / rho)
        B_z_new = present * (g + curvature * centre) / shrunk
        change = jnp.linalg.norm(new - w) / (jnp.linalg.norm(new) + 1e-30)
        fresh = (new, V_new, mixed(A_w_new, A_w), mixed(B_w_new, B_w), mixed(A_z_new, A_z), mixed(B_z_new, B_z))
        # Perfect recovery: when the variance vanishes, messages stay as they are.
        done = 2 * least >= V
        after = jax.tree.map(lambda a, b: jnp.where(done, b, a), fresh, state)
        return after, (jnp.mean(after[0] ** 2), jnp.where(done, 0.0, change))

    def _linear(A_w, B_w, A_z, B_z):
        """Precisions and fields that least squares sends to the weights and to the samples."""
        gain = 1 / (A_w + A_z * s)
        along = right @ B_w
        moved = gain * (along + singular * (B_z @ left)) - along / A_w
        w = B_w / A_w + moved @ right
        V_w = (jnp.sum(gain) + none / A_w) / d
        V_z = jnp.sum(s * gain) / rows
        precisions = jnp.maximum(1 / V_w - A_w, LEAST / rho), jnp.maximum(1 / V_z - A_z, LEAST / rho)
        return precisions, (w / V_w - B_w, (inputs @ w) / V_z - B_z)

    zero = jnp.zeros((), inputs.dtype)
    start = (
        jnp.zeros(d, inputs.dtype), rho, 1 / rho, jnp.zeros(d, inputs.dtype),
        zero + LEAST / rho, jnp.zeros(n, inputs.dtype),
    )  # fmt: skip
    (w, V, *_), (measured, changes) = jax.lax.scan(step, start, None, length=iterations)
    return Messages(w, V, measured, changes[-1])
