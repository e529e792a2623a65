"""Losses of generalised linear learning, with derivatives and proximal operators.

The proximal operator prox(y, ω, V) = argmin_z (z − ω)²/(2V) + ℓ(y, z) is the building block of zero-temperature replica
channels. Classification losses depend on the margin y·z; all functions are elementwise and broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import InvalidValue, UnknownName, nearest


class Loss(eqx.Module):
    """ℓ(y, z): convex in the prediction z and the same for (−y, −z), unless declared otherwise."""

    @property
    def symmetric(self) -> bool:
        """Whether ℓ(−y, −z) = ℓ(y, z), so that one label represents both."""
        return True

    @property
    def least_curvature(self) -> float:
        """The smallest ∂²ℓ/∂z²: negative for a loss that is not convex, whose prox jumps where V exceeds −1/ℓ″."""
        return 0.0

    @property
    def of_residual(self) -> bool:
        """Whether ℓ is a function of y − z."""
        return False

    @property
    def by_proximal_point(self) -> bool:
        """Whether averages over ω run over z = prox(y, ω, V) instead, so that no prox is searched: smooth convex losses."""
        return False

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
        """The value of `prox`, by any algorithm; never differentiated."""
        return newton_root(self, y, centre, width)

    def pull(self, y: Array, centre: Array, width: Array) -> tuple[Array, Array]:
        """f = (prox − ω)/V and 1 − ∂prox/∂ω, from ℓ′ and ℓ″ at the proximal point, without cancellation.

        >>> f, stiff = Logistic().pull(jnp.asarray(1.0), jnp.asarray(1e6), jnp.asarray(1e-6))
        >>> float(f), float(stiff)
        (0.0, 0.0)
        """
        z = self.prox(y, centre, width)
        stiff = width * self.curvature(y, z)
        return -self.slope(y, z), stiff / (1 + stiff)

    def singularities(self, width: Float[Array, ""]) -> tuple[Float[Array, " poles"], float, float] | None:
        """Singularities of prox(1, ω, width) close to the real axis of ω, or None if there are only kinks on the axis.

        Returns their real parts, their common distance from the axis, and how far their effect extends to the right of
        the rightmost and to the left of the leftmost.
        """
        return None

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        """Points in ω, for the label y = +1, between which prox(1, ω, width) is smooth on the panel's own scale."""
        return jnp.zeros(1)

    def value_breaks(self) -> Float[Array, " breaks"]:
        """The same for ℓ(1, z) itself."""
        return jnp.zeros(1)

    def places(self, y: Array) -> Float[Array, " places"]:
        """Points in z between which ℓ(y, z) is smooth on the panel's own scale, if averages run over z."""
        raise AttributeError("places")


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


def newton_root(loss: Loss, y: Array, centre: Array, width: Array, steps: int = 120) -> Array:
    """The proximal point of any differentiable convex loss, by safeguarded Newton.

    The root of z − ω + Vℓ′(z) lies between ω and ω − Vℓ′(ω), because ℓ′ increases. A Newton step that leaves the current
    bracket, or is more than half as long as the previous step, is replaced by bisection (Newton's steps alone can
    oscillate between the ends of a bracket). If ℓ′ does not increase (a loss that is not convex), the bracket is doubled
    until it contains a root, which is unique as long as Vℓ″ > −1.

    >>> loss = Custom(lambda y, z: jnp.logaddexp(0.0, -y * z))
    >>> one = jnp.asarray(1.0)
    >>> bool(abs(newton_root(loss, one, one, one) - Logistic().prox(one, one, one)) < 1e-14)
    True
    """
    move = -width * loss.slope(y, centre)
    if loss.least_curvature < 0:
        short = lambda move: move * (move + width * loss.slope(y, centre + move)) < 0  # noqa: E731
        more = lambda state: (state[1] < steps) & jnp.any(short(state[0]))  # noqa: E731
        double = lambda state: (jnp.where(short(state[0]), 2 * state[0], state[0]), state[1] + 1)  # noqa: E731
        move, _ = jax.lax.while_loop(more, double, (move, jnp.asarray(0)))
    other = centre + move
    low, high = jnp.minimum(centre, other), jnp.maximum(centre, other)

    def unfinished(state):
        _, _, _, _, moving, step = state
        return (step < steps) & jnp.any(moving)

    def body(state):
        z, low, high, before, _, step = state
        slope, curvature = jax.jvp(lambda u: loss.slope(y, u), (z,), (jnp.ones_like(z),))
        f = z - centre + width * slope
        low, high = jnp.where(f < 0, z, low), jnp.where(f > 0, z, high)
        newton = z - f / (1 + width * curvature)
        good = (newton >= low) & (newton <= high) & (jnp.abs(newton - z) <= 0.5 * before)
        new = jnp.where(good, newton, 0.5 * (low + high))
        length = jnp.abs(new - z)
        # Newton's steps converge quadratically: after one this short the next would be below rounding.
        eps = jnp.finfo(z.dtype).eps
        moving = length > jnp.where(good, eps**0.625, 4 * eps) * (1 + jnp.abs(z))
        return new, low, high, length, moving, step + 1

    # Begin with the Newton step from ω, which lies in the bracket of a convex loss.
    guess = centre - width * loss.slope(y, centre) / (1 + width * jnp.maximum(loss.curvature(y, centre), 0.0))
    start = (jnp.clip(guess, low, high), low, high, high - low, jnp.ones(low.shape, bool), jnp.asarray(0))
    z = jax.lax.while_loop(unfinished, body, start)[0]
    gap = (z - centre + width * loss.slope(y, z)) / (1 + width * loss.curvature(y, z))
    return jnp.where(jnp.abs(gap) <= 1e-9 * (1 + jnp.abs(z)), z, jnp.nan)


class Custom(Loss):
    """Any smooth loss, given as a function of (y, z); everything else follows by differentiation.

    Use `smooth_loss` to make one and validate it.
    """

    function: Callable[[Array, Array], Array] = eqx.field(static=True)
    even: bool = eqx.field(static=True, default=True)
    curvature_floor: float = eqx.field(static=True, default=0.0)
    residual: bool = eqx.field(static=True, default=False)

    @property
    def symmetric(self) -> bool:
        return self.even

    @property
    def least_curvature(self) -> float:
        return self.curvature_floor

    @property
    def of_residual(self) -> bool:
        return self.residual

    @property
    def by_proximal_point(self) -> bool:
        return self.curvature_floor >= 0

    def value(self, y: Array, z: Array) -> Array:
        return self.function(y, z)

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        """The ω at which the proximal point passes a set of points of order one, the scale of the loss."""
        z = jnp.asarray(PLACES)
        sides = [z + width * self.slope(jnp.ones_like(z), z)]
        if not self.even:
            sides.append(z - width * self.slope(-jnp.ones_like(z), -z))
        return jnp.concatenate(sides)

    def value_breaks(self) -> Float[Array, " breaks"]:
        return jnp.asarray(PLACES)

    def places(self, y: Array) -> Float[Array, " places"]:
        return y + jnp.asarray(PLACES) if self.residual else jnp.asarray(PLACES)


PLACES = (-30.0, -14.0, -7.0, -3.0, -1.0, 1.0, 3.0, 7.0, 14.0, 30.0)


def smooth_loss(function: Callable[[Array, Array], Array], *, convex: bool = True) -> Custom:
    """Make a loss from a function ℓ(y, z), elementwise, in `jax.numpy`, twice differentiable in z on a scale of one.

    It is checked for y = ±1 and z from −30 to 30: it must be finite and convex there. `convex=False` allows one that is
    not convex; its theory then holds while the solution is stable (see `status` in `methods.risk.covariate.learn`).

    >>> loss = smooth_loss(lambda y, z: jnp.log(jnp.cosh(y - z)))
    >>> one = jnp.asarray(1.0)
    >>> z = loss.prox(one, jnp.asarray(-0.5), jnp.asarray(2.0))
    >>> bool(abs(z + 0.5 + 2 * jnp.tanh(z - 1)) < 1e-14)
    True
    """
    loss = Custom(function)
    z = jnp.linspace(-30.0, 30.0, 1201)
    labels = (1.0, -1.0)
    values, curvatures = (
        np.stack([np.asarray(f(jnp.full_like(z, y), z)) for y in labels]) for f in (loss.value, loss.curvature)
    )
    for name, found in (("value", values), ("curvature", curvatures)):
        if found.shape != (2, z.shape[0]):
            raise InvalidValue(f"function maps shape {z.shape} to {found.shape[1:]}; it must be elementwise.")
        if not np.isfinite(found).all():
            side, place = np.argwhere(~np.isfinite(found))[0]
            where = f"at y = {labels[side]:g}, z = {float(z[place]):g}"
            raise InvalidValue(f"function has the {name} {found[side, place]} {where}; it must be finite.")
    floor, scale = float(curvatures.min()), float(np.abs(curvatures).max())
    concave = floor < -1e-9 * max(scale, 1e-300)
    if convex and concave:
        side, place = np.unravel_index(int(curvatures.argmin()), curvatures.shape)
        raise InvalidValue(
            f"function has the curvature {floor:.4g} at y = {labels[side]:g}, z = {float(z[place]):.4g}; a convex loss "
            "has none below 0. Pass convex=False for a loss that is not convex."
        )
    even = bool(np.allclose(values[0], values[1][::-1], rtol=1e-12, atol=1e-12))
    moved = [np.asarray(loss.value(jnp.full_like(z, y), y - z)) for y in (0.0, *labels, 2.7)]
    residual = all(np.allclose(v, moved[0], rtol=1e-9, atol=1e-9) for v in moved)  # y − (y − z) is not quite z
    return Custom(function, even, floor if concave else 0.0, residual)


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

    def pull(self, y: Array, centre: Array, width: Array) -> tuple[Array, Array]:
        return (y - centre) / (1 + width), (width / (1 + width)) * jnp.ones_like(centre)


class Logistic(Loss):
    """ℓ = log(1 + exp(−yz)), y = ±1."""

    def value(self, y: Array, z: Array) -> Array:
        return jax.nn.softplus(-y * z)

    def slope(self, y: Array, z: Array) -> Array:
        return -y * jax.nn.sigmoid(-y * z)

    def curvature(self, y: Array, z: Array) -> Array:
        return jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)  # not s(1 − s), which is rounding noise where s is close to one

    def root(self, y: Array, centre: Array, width: Array) -> Array:
        """y·u with u = yω + Vσ(−u): three steps of Halley's method from a guess that is exact at both ends.

        σ(−u) is approximated by 1 − e^u or e^{−u}; with either in its place the root is Lambert's function W:
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

    def pull(self, y: Array, centre: Array, width: Array) -> tuple[Array, Array]:
        u = y * self.prox(y, centre, width)
        s = jax.nn.sigmoid(-u)
        stiff = width * s * jax.nn.sigmoid(u)
        return y * s, stiff / (1 + stiff)

    def singularities(self, width: Float[Array, ""]) -> tuple[Float[Array, " poles"], float, float]:
        # Square roots where 1 + Vℓ″(u) = 0: there 2 + 2cosh u = −V, u = ±x + iπ, and ω = u − Vσ(−u). Outside the two
        # the prox is ω or ω + V, up to exponentially small terms.
        x = 2 * jnp.arcsinh(jnp.sqrt(width) / 2)
        upper = x + width / jnp.expm1(x)
        return jnp.stack([-width - upper, upper]), np.pi, 38.0

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        # Three regimes: linear below ω = −V, logarithmic up to ω = log V, linear above. Each crossover has a scale of
        # one with exponential corrections, and between them the logarithm needs geometric panels.
        upper, lower, far = jnp.log1p(width), -width, jnp.minimum(80.0, 0.5 * width)
        return jnp.concatenate(
            [
                upper + jnp.asarray([-8.0, 0.0, 9.0, 38.0]),
                lower + jnp.asarray([-38.0, -9.0, 0.0, 8.0]),
                jnp.stack([-far, lower + far]),
            ]
        )

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

    def pull(self, y: Array, centre: Array, width: Array) -> tuple[Array, Array]:
        """The slope is one below the kink, anything in between on it, and zero above it."""
        missing = jnp.maximum(1 - y * centre, 0.0)
        held = (missing > 0) & (missing < width)
        return y * jnp.minimum(missing / width, 1.0), held.astype(missing.dtype)

    def breaks(self, width: Float[Array, ""]) -> Float[Array, " breaks"]:
        return jnp.stack([1 - width, jnp.ones_like(width)])

    def value_breaks(self) -> Float[Array, " breaks"]:
        return jnp.ones(1)


LOSSES: dict[str, Loss] = {"square": Square(), "logistic": Logistic(), "hinge": Hinge()}


def loss_named(name: str) -> Loss:
    """Return the loss with this name.

    >>> type(loss_named("hinge")).__name__
    'Hinge'
    """
    if name not in LOSSES:
        raise UnknownName(f"there is no loss {name!r}; {nearest(name, list(LOSSES))}")
    return LOSSES[name]
