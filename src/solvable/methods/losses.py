"""Losses of generalised linear learning, with derivatives and proximal operators.

The proximal operator prox(y, ω, V) = argmin_z (z − ω)²/(2V) + ℓ(y, z) is what a zero-temperature replica channel is
made of. Classification losses depend on the margin y·z; everything is elementwise and broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import UnknownName, nearest


class Loss(eqx.Module):
    """ℓ(y, z): convex in the prediction z."""

    def value(self, y: Array, z: Array) -> Array:
        """ℓ(y, z)."""
        raise AttributeError("value")

    def slope(self, y: Array, z: Array) -> Array:
        """∂ℓ/∂z."""
        return jax.jvp(lambda u: self.value(y, u), (z,), (jnp.ones_like(z),))[1]

    def curvature(self, y: Array, z: Array) -> Array:
        """∂²ℓ/∂z²."""
        return jax.jvp(lambda u: self.slope(y, u), (z,), (jnp.ones_like(z),))[1]

    def prox(self, y: Array, centre: Array, width: Array) -> Array:
        """argmin_z (z − centre)²/(2·width) + ℓ(y, z), differentiable to any order."""
        return _prox(self, *jnp.broadcast_arrays(y, centre, width))

    def root(self, y: Array, centre: Array, width: Array) -> Array:
        """The number behind `prox`, however it is found; never differentiated."""
        return newton_root(self, y, centre, width)

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        """Places in ω, for the label y = +1, between which prox(1, ω, width) is smooth on the panel's own scale."""
        return jnp.zeros(1)

    def value_breaks(self) -> Float[Array, " breaks"]:
        """The same for ℓ(1, z) itself."""
        return jnp.zeros(1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _prox(loss: Loss, y: Array, centre: Array, width: Array) -> Array:
    return loss.root(y, centre, width)


@_prox.defjvp
def _prox_jvp(loss, primals, tangents):
    """The implicit-function theorem on z − ω + Vℓ′(y, z) = 0."""
    y, centre, width = primals
    dy, dcentre, dwidth = tangents
    z = _prox(loss, y, centre, width)
    slope, dslope = jax.jvp(lambda label: loss.slope(label, z), (y,), (dy,))
    return z, (dcentre - dwidth * slope - width * dslope) / (1 + width * loss.curvature(y, z))


def newton_root(loss: Loss, y: Array, centre: Array, width: Array, steps: int = 60) -> Array:
    """The proximal point of any convex loss with a slope, by safeguarded Newton.

    The root of z − ω + Vℓ′(z) lies between ω and ω − Vℓ′(ω), because ℓ′ grows; a Newton step that leaves the current
    bracket is replaced by bisection.

    >>> loss = Custom(lambda y, z: jnp.logaddexp(0.0, -y * z))
    >>> one = jnp.asarray(1.0)
    >>> bool(abs(newton_root(loss, one, one, one) - Logistic().prox(one, one, one)) < 1e-14)
    True
    """
    other = centre - width * loss.slope(y, centre)
    low, high = jnp.minimum(centre, other), jnp.maximum(centre, other)

    def unfinished(state):
        _, _, _, moving, step = state
        return (step < steps) & jnp.any(moving)

    def body(state):
        z, low, high, _, step = state
        f = z - centre + width * loss.slope(y, z)
        low, high = jnp.where(f < 0, z, low), jnp.where(f > 0, z, high)
        newton = z - f / (1 + width * loss.curvature(y, z))
        inside = (newton >= low) & (newton <= high)
        new = jnp.where(inside, newton, 0.5 * (low + high))
        moving = jnp.abs(new - z) > 4 * jnp.finfo(z.dtype).eps * (1 + jnp.abs(z))
        return new, low, high, moving, step + 1

    start = (0.5 * (low + high), low, high, jnp.ones(low.shape, bool), jnp.asarray(0))
    return jax.lax.while_loop(unfinished, body, start)[0]


class Custom(Loss):
    """Any smooth convex loss, given as a function of (y, z); everything else follows by differentiation."""

    function: Callable[[Array, Array], Array] = eqx.field(static=True)

    def value(self, y: Array, z: Array) -> Array:
        return self.function(y, z)


class Square(Loss):
    """ℓ = (y − z)²/2."""

    def value(self, y: Array, z: Array) -> Array:
        return 0.5 * (y - z) ** 2

    def slope(self, y: Array, z: Array) -> Array:
        return z - y

    def curvature(self, y: Array, z: Array) -> Array:
        return jnp.ones_like(z)

    def prox(self, y: Array, centre: Array, width: Array) -> Array:
        return (centre + width * y) / (1 + width)


class Logistic(Loss):
    """ℓ = log(1 + exp(−yz)), y = ±1."""

    def value(self, y: Array, z: Array) -> Array:
        return jax.nn.softplus(-y * z)

    def slope(self, y: Array, z: Array) -> Array:
        return -y * jax.nn.sigmoid(-y * z)

    def curvature(self, y: Array, z: Array) -> Array:
        s = jax.nn.sigmoid(y * z)
        return s * (1 - s)

    def root(self, y: Array, centre: Array, width: Array) -> Array:
        """y·u with u = yω + Vσ(−u): three steps of Halley's method from a guess that is right at both ends.

        σ(−u) lies between 1 − e^u and e^{−u}; with either in its place the root is Lambert's function W:
        u = yω + W(V e^{−yω}) from above (good for u > 0), u = yω + V − W(V e^{yω+V}) from below (good for u < 0).
        """
        target = y * centre
        positive = target > -0.5 * width
        grow = jax.nn.softplus(jnp.log(width) + jnp.where(positive, -target, target + width))
        lambert = grow * (1 - jnp.log1p(grow) / (2 + grow))
        u = jnp.where(positive, target + lambert, target + width - lambert)
        for _ in range(3):
            s = jax.nn.sigmoid(-u)
            gap, slope = u - target - width * s, 1 + width * s * (1 - s)
            u = u - gap * slope / (slope**2 + 0.5 * gap * width * s * (1 - s) * (1 - 2 * s))
        return y * u

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        # The prox turns from logarithmic to linear at ω ≈ log V, on a scale of one; what is left falls as exp(−ω).
        turn = jnp.log1p(width)
        return turn + jnp.asarray([-80.0, -8.0, 0.0, 9.0, 38.0])

    def value_breaks(self) -> Float[Array, " breaks"]:
        return jnp.asarray([-38.0, -9.0, 0.0, 9.0, 38.0])


class Hinge(Loss):
    """ℓ = max(0, 1 − yz), y = ±1."""

    def value(self, y: Array, z: Array) -> Array:
        return jnp.maximum(1 - y * z, 0.0)

    def slope(self, y: Array, z: Array) -> Array:
        return jnp.where(y * z < 1, -y, jnp.zeros_like(z))

    def curvature(self, y: Array, z: Array) -> Array:
        return jnp.zeros_like(z)

    def prox(self, y: Array, centre: Array, width: Array) -> Array:
        margin = y * centre
        return y * jnp.where(margin < 1 - width, margin + width, jnp.maximum(margin, 1.0))

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        return jnp.stack([1 - width, jnp.ones_like(width)])

    def value_breaks(self) -> Float[Array, " breaks"]:
        return jnp.ones(1)


LOSSES: dict[str, Loss] = {"square": Square(), "logistic": Logistic(), "hinge": Hinge()}


def loss_named(name: str) -> Loss:
    """The loss with this name.

    >>> type(loss_named("hinge")).__name__
    'Hinge'
    """
    if name not in LOSSES:
        raise UnknownName(f"there is no loss {name!r}; {nearest(name, list(LOSSES))}")
    return LOSSES[name]
