r"""When a noised sample still tells its class: exact class probabilities of two Gaussian classes in any dimension.

Two classes N(μ_c, s_c 1_d) of shares π_c, noised: N(e^{−t}μ_c, g_c 1_d), g_c = e^{−2t}s_c + 1 − e^{−2t}. The probability that the
posterior gives to the right class is φ_c = E[P(c|x_t) | c], and 1 − φ_1 is the mean of the logistic function of the negative
log-odds L. That function is a Mellin–Barnes integral, 1/(1+e^L) = ½∫ e^{−sL}/cosh(πy) dy over s = ½ + iy, and the mean of e^{−sL}
is the Chernoff coefficient of two Gaussians, known in closed form for complex s:

    π_1(1 − φ_1) = π_2(1 − φ_2) = ½ ∫ dy π_1^{1−s} π_2^s C(s)/cosh(πy),
    C(s) = [g_1^s g_2^{1−s}/(s g_1 + (1−s) g_2)]^{d/2} exp(−½ s(1−s) e^{−2t}|μ_1−μ_2|²/(s g_1 + (1−s) g_2)).

So the normalised curve (φ_c − π_c)/(1 − π_c) is the same for both classes. The trapezoidal rule with step h has an error
e^{−π/h}, and φ_c that over π_c: at a share of 10⁻⁶, h = 1/8 leaves 10⁻⁵ and h = 1/12 leaves 10⁻¹⁰.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from solvable.methods.fixed_points.bisection import bisect

Number = float | Array

LATEST = 30.0
"""No class is told from another beyond this diffusion time, at which e^{−2t} is below rounding."""


def confusion(
    share: Float[Array, " 2"],
    variance: Float[Array, " 2"],
    separation: Number,
    dimension: Number,
    time: Array,
    nodes: int,
) -> Array:
    """π_1(1 − φ_1) = π_2(1 − φ_2): the probability to draw class 1 and be given class 2 by the posterior.

    >>> equal = jnp.full(2, 0.5), jnp.ones(2)
    >>> float(confusion(*equal, 0.0, 10.0, jnp.asarray(1.0), 96).round(9))    # nothing to tell them by
    0.25
    """
    # s = ½ + iy; the integrand at −y is the conjugate of that at y
    step = 12.0 / nodes
    y = step * np.arange(nodes + 1)
    s = jnp.asarray(0.5 + 1j * y)
    weight = np.where(y == 0, 0.5, 1.0) * step / np.cosh(math.pi * y)
    kept = jnp.exp(-2 * time)
    g1, g2 = (1 + kept * (v - 1) for v in variance)
    # dtypes are never promoted silently
    dimension, separation, kept, g1, g2, odds = (
        jnp.asarray(x).astype(complex) for x in (dimension, separation, kept, g1, g2, jnp.log(share[1] / share[0]))
    )
    mixed = s * g1 + (1 - s) * g2
    # logarithms of ratios near one, so that nothing is lost for nearly equal variances in a large dimension
    ratio = (g1 - g2) / g2
    chernoff = 0.5 * dimension * (s * jnp.log1p(ratio) - jnp.log1p(s * ratio))
    exponent = chernoff - 0.5 * s * (1 - s) * kept * separation / mixed
    return share[0] * jnp.sum(weight * jnp.exp(exponent + s * odds).real)


def class_probabilities(
    share: Float[Array, " 2"],
    variance: Float[Array, " 2"],
    separation: Number,
    dimension: Number,
    times: Array,
    nodes: int,
) -> Float[Array, "t 2"]:
    """φ_c at diffusion times."""
    wrong = jax.vmap(lambda t: confusion(share, variance, separation, dimension, t, nodes))(times)
    return 1 - wrong[:, None] / share[None]


def speciation_time(
    share: Float[Array, " 2"], variance: Float[Array, " 2"], separation: Number, dimension: Number, nodes: int
) -> Array:
    """The diffusion time at which (φ_c − π_c)/(1 − π_c) = ½; zero if the classes overlap too much from the start."""

    def excess(t: Array) -> Array:
        return 0.5 - confusion(share, variance, separation, dimension, t, nodes) / (share[0] * share[1])

    low, high = bisect(lambda t: excess(t) > 0, jnp.zeros(()), jnp.full((), LATEST))
    root = lax.stop_gradient(0.5 * (low + high))
    value, slope = jax.jvp(excess, (root,), (jnp.ones_like(root),))
    return jnp.where(excess(jnp.zeros(())) > 0, root - value / lax.stop_gradient(slope), 0.0)


def sampled_probabilities(
    key: Array,
    share: Float[Array, " 2"],
    variance: Float[Array, " 2"],
    separation: Array,
    dimension: Array,
    times: Array,
    number: int,
) -> Float[Array, "t 2"]:
    """The same by Bayes' rule on drawn samples: the coordinate along μ_1 − μ_2, and the squared length of all others."""
    dtype = share.dtype
    of_first, of_rest = jax.random.split(key)
    along = jax.random.normal(of_first, (2, number), dtype)
    rest = jax.random.chisquare(of_rest, dimension - 1, shape=(2, number), dtype=dtype)
    gap = jnp.sqrt(separation)

    def at(t: Array) -> Array:
        kept = jnp.exp(-2 * t)
        g = kept * variance - jnp.expm1(-2 * t)
        place = jnp.asarray([[0.0], [1.0]], dtype) * jnp.exp(-t) * gap + jnp.sqrt(g)[:, None] * along

        def log_density(c: int) -> Array:
            squares = (place - c * jnp.exp(-t) * gap) ** 2 + g[:, None] * rest
            return jnp.log(share[c]) - 0.5 * dimension * jnp.log(g[c]) - 0.5 * squares / g[c]

        odds = log_density(0) - log_density(1)
        return jnp.mean(jax.nn.sigmoid(jnp.stack([odds[0], -odds[1]])), axis=1)

    return lax.map(at, times)
