r"""The Gaussian tail H(u) = P(z > u) as a likelihood: its logarithm, its prox, and averages over the prox.

For a field v, log H((κ − v)/s) is the log-likelihood that v plus noise of variance s² exceeds the margin κ. All
functions use erfcx, so that nothing underflows far from the margin. Averages over the prox do not solve for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc, erfcx
from jaxtyping import Array, Float

from .quadrature import legendre, merge_sorted

CUT = 9.0  # standard deviations beyond which a Gaussian has no mass in float64
HALF_PI = math.sqrt(2 / math.pi)


def log_tail(u: Array) -> Array:
    """log H(u), also where H underflows.

    >>> round(float(log_tail(jnp.asarray(40.0))), 6)
    -804.608442
    """
    x = u * math.sqrt(0.5)
    up, down = jnp.maximum(x, 0.0), jnp.minimum(x, 0.0)
    return jnp.where(x > 0, jnp.log(0.5 * erfcx(up)) - up**2, jnp.log1p(-0.5 * erfc(-down)))


def tail_ratio(u: Array) -> Array:
    """G(u)/H(u) = −d log H/du, with G the Gaussian density: u + 1/u for large u, zero for very negative u.

    >>> [round(float(x), 6) for x in tail_ratio(jnp.asarray([0.0, 1e4]))]
    [0.797885, 10000.0001]
    """
    return HALF_PI / erfcx(u * math.sqrt(0.5))


def tail_slope(u: Array) -> Array:
    """Derivative of `tail_ratio`, between 0 and 1, without the cancellation of R(R − u) at large u.

    >>> [round(float(x), 6) for x in tail_slope(jnp.asarray([0.0, 1e6]))]
    [0.63662, 1.0]
    """
    ratio = tail_ratio(u)
    far = 1 / jnp.maximum(u, 30.0) ** 2
    return jnp.where(u > 30, 1 - far * (1 - far * (6 - 50 * far)), ratio * (ratio - u))


def prox_tail(omega: Array, response: Array, spread: Array, margin: Array | float = 0.0, *, steps: int = 60) -> Array:
    """The v that maximises log H((κ − v)/s) − (v − ω)²/(2V): v = ω + V g(v) with g = G/(sH); `spread` is s².

    Because g is convex and decreasing, Newton's method climbs from the left and cannot overshoot; it takes at most
    `steps` steps. Averages over ω need no prox: see `tail_rule`.

    >>> v = prox_tail(jnp.asarray(-1.0), jnp.asarray(2.0), jnp.asarray(0.5))
    >>> bool(abs(v + 1.0 - 2.0 * tail_ratio(-v / 0.5**0.5) / 0.5**0.5) < 1e-14)
    True
    """
    s = jnp.sqrt(spread)
    strength = response / spread

    # In y = (v − κ)/s: y = c + (V/s²) R(−y), c = (ω − κ)/s, and R(−y) ≥ −y gives the point on the left.
    c = (omega - margin) / s
    left = jnp.where(c < 0, c / (1 + strength), c)

    def newton(_, y):
        return y + (c + strength * tail_ratio(-y) - y) / (1 + strength * tail_slope(-y))

    return margin + s * jax.lax.fori_loop(0, steps, newton, left + jnp.zeros_like(omega))


class TailRule(NamedTuple):
    """Nodes of an average over ω = √q z: the prox v, z, the weights, log H there and its derivatives g and g′ in v."""

    v: Float[Array, " n"]
    z: Float[Array, " n"]
    weight: Float[Array, " n"]
    log_tail: Float[Array, " n"]
    slope: Float[Array, " n"]
    curvature: Float[Array, " n"]

    def mean(self, values: Array) -> Array:
        """E over z of values at the nodes."""
        return self.weight @ values


EDGES = np.array([-CUT, -6.5, -4.5, -3.0, -1.5, 0.0, 1.5, 3.0, 4.5, 6.5, CUT])
BEHIND = np.array([-0.5, 0.4, 1.0, 2.0, 4.0])
GRADED = np.array([-7.0, -3.0, -1.2, 0.0, 1.2, 3.0, 7.0])


def tail_rule(
    variance: Array, response: Array | None, spread: Array, margin: Array | float = 0.0, *, nodes: int = 8
) -> TailRule:
    """A rule for E_z f(v(z)) with v = prox of √q z, without a prox at its nodes: the integral is taken over v.

    z = (v − V g(v))/√q grows with v, so E f = ∫ f(v) z′(v) φ(z(v)) dv, analytic in v. Some twenty Gauss–Legendre panels of
    `nodes` points in arcsinh((v − κ)/s) end at round values of z (approximately, which is enough) and on the scale of s,
    so that s, √q and V may be arbitrarily small or large. Without `response`, the plain average over v = √q z.

    >>> q, V, s2 = jnp.asarray(0.5), jnp.asarray(3.0), jnp.asarray(0.1)
    >>> rule = tail_rule(q, V, s2)
    >>> bool(abs(jnp.sum(rule.weight) - 1) < 1e-12), bool(abs(rule.mean(rule.z**4) - 3) < 1e-10)
    (True, True)
    """
    s, height = jnp.sqrt(spread), jnp.sqrt(variance / spread)
    centre = margin / s
    target = jnp.asarray(EDGES) * height - centre
    if response is None:
        strength, edges = 0.0, target
    else:
        # z(y), y = (v − κ)/s, is concave: Newton's method climbs from the left, and R(−y) ≥ −y and ≥ 0 bound y from there.
        strength = response / spread
        edges = jax.lax.fori_loop(
            0,
            20,  # enough for V/s² from 1e-4 to 1e8
            lambda _, y: y + (target - y + strength * tail_ratio(-y)) / (1 + strength * tail_slope(-y)),
            jnp.where(target < 0, target / (1 + strength), target),
        )
    turn = edges[EDGES.size // 2]
    edges = merge_sorted(edges, jnp.clip(GRADED, edges[0], edges[-1]))
    if response is not None:  # to the right of z = 0 a strong response ends within 1/y
        edges = merge_sorted(edges, jnp.clip(turn + BEHIND / jnp.maximum(turn, 1.0), edges[0], edges[-1]))
    edges = jax.lax.stop_gradient(jnp.arcsinh(edges))
    x, w = legendre(nodes)
    length = (edges[1:] - edges[:-1])[:, None]
    tau = (edges[:-1, None] + length * x[None, :]).reshape(-1)
    y = jnp.sinh(tau)
    ratio, bend = tail_ratio(-y), tail_slope(-y)
    z = (centre + y - strength * ratio) / height
    measure = (length * w[None, :]).reshape(-1) * jnp.cosh(tau) * (1 + strength * bend) / height
    weight = measure * jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return TailRule(margin + s * y, z, weight, log_tail(-y), ratio / s, -bend / spread)
