r"""The law of labels and predictions where gradient flow is trapped, by one step of replica-symmetry breaking at T = 0.

With y ~ N(0, 1) the label's amplitude and h the cavity field, whose density given y is ∝ exp(−h²/2 − s f(h, y)),

    f(h, y) = min_z [(z − h)²/2χ + ℓ(z, y)],        ℓ(z, y) = ρ(y) (z² − y²)²/4,

the prediction ŷ is the minimiser z. They are related by h = z + χℓ′(z), dh = (1 + χℓ″(z)) dz for z ≥ z₀, so averages over
z need no minimisation; z₀ = 0 where ε = 1 − χρy² is positive, z₀² = −ε/χρ where it is not: there ŷ jumps at h = 0.

The averages contain 1/(1 + χℓ″), and 1 + χℓ″ = ε + 3χρz² in both cases. Substituting z = √(ε/3χρ) sinh v or z = z₀ cosh v
makes it harmless where ε is small; y = y_c ± u² does the same for the average over y around the y_c at which ε vanishes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.methods.averages.quadrature import legendre

REACH = 9.0  # cutoff of y and h in standard deviations


class Law(NamedTuple):
    """Nodes of a law of (|y|, |ŷ|): amplitudes, predictions, ℓ, ℓ′, ℓ″ and probabilities."""

    amplitude: Float[Array, " k"]
    prediction: Float[Array, " k"]
    loss: Float[Array, " k"]
    slope: Float[Array, " k"]
    curvature: Float[Array, " k"]
    chance: Float[Array, " k"]


def losses(z: Array, y: Array, normalisation: Array) -> tuple[Array, Array, Array]:
    """ℓ, ℓ′ and ℓ″ at the prediction z, with ρ = 1/(1 + κy²)."""
    rho = 1 / (1 + normalisation * y**2)
    gap = z**2 - y**2
    return rho * gap**2 / 4, rho * gap * z, rho * (3 * z**2 - y**2)


def start_law(normalisation: Array, nodes: int) -> Law:
    """The law at an uninformed start: y and ŷ are independent and Gaussian."""
    u, w = legendre(nodes)
    u, w = jnp.asarray(u), jnp.asarray(w)
    # denser at zero, where 1/(1 + 3κŷ²) has its poles
    x, width = REACH * u**2, 2 * REACH * u * w
    chance = width * jnp.sqrt(2 / jnp.pi) * jnp.exp(-(x**2) / 2)
    y, z = (v.reshape(-1) for v in jnp.meshgrid(x, x, indexing="ij"))
    return Law(y, z, *losses(z, y, normalisation), jnp.outer(chance, chance).reshape(-1))


def trapped_law(chi: Array, s: Array, normalisation: Array, nodes: int) -> Law:
    """The law at response χ and replica parameter s."""
    u, w = (jnp.asarray(v) for v in legendre(nodes))
    # y from 0 to y_c and beyond: by symmetry half of the axis is enough
    steep = chi - normalisation
    middle = 1 / jnp.sqrt(jnp.maximum(steep, (3 * REACH) ** -2))
    far = middle > REACH
    inner = jnp.where(far, jnp.sqrt(jnp.where(far, middle - REACH, 1.0)), 0.0)
    outer = jnp.sqrt(jnp.maximum(REACH - middle, 1.0))
    length = jnp.sqrt(middle) - inner
    below, above = inner + length * u, outer * u
    y = jnp.concatenate([middle - below**2, middle + above**2])[:, None]
    dy = jnp.concatenate([2 * below * length * w, 2 * above * outer * w])

    rho = 1 / (1 + normalisation * y**2)
    stiff = chi * rho
    epsilon = 1 - stiff * y**2
    jumps = epsilon < 0
    width = jnp.sqrt(jnp.abs(epsilon) / jnp.where(jumps, stiff, 3 * stiff))
    # h = (1 − χρy²)z + χρz³ is at most REACH
    top = _highest(epsilon, stiff)
    ratio = top / width
    last = jnp.where(jumps, jnp.arccosh(jnp.where(jumps, ratio, 2.0)), jnp.arcsinh(ratio))
    v = last * u[None, :]
    up, sign = jnp.exp(v), jnp.where(jumps, 1.0, -1.0)
    z = width * (up + sign / up) / 2
    dz = width * (up - sign / up) / 2 * last * w[None, :]

    loss, slope, curvature = losses(z, y, normalisation)
    field = z + chi * slope
    exponent = -(field**2) / 2 - s * (chi * slope**2 / 2 + loss)
    weight = jnp.exp(exponent - jnp.max(exponent, axis=1, keepdims=True)) * (1 + chi * curvature) * dz
    weight = weight / jnp.sum(weight, axis=1, keepdims=True)
    chance = (jnp.sqrt(2 / jnp.pi) * jnp.exp(-(y[:, 0] ** 2) / 2) * dy)[:, None] * weight
    flat = (jnp.broadcast_to(a, z.shape).reshape(-1) for a in (y, z, loss, slope, curvature, chance))
    return Law(*flat)


def _highest(linear: Array, cubic: Array) -> Array:
    """The largest z with linear·z + cubic·z³ = REACH: Newton from above, where the function is convex."""
    z = jnp.cbrt(REACH / cubic) + jnp.sqrt(jnp.abs(linear) / cubic)
    for _ in range(8):
        z = z - (linear * z + cubic * z**3 - REACH) / (linear + 3 * cubic * z**2)
    return z
