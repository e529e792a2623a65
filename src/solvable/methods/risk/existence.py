r"""Thresholds without a penalty: where a maximum-likelihood estimate exists, and where the lasso recovers a sparse signal.

Labels ±1 of a channel are separable, and then no minimum of a falling loss exists, for n/d < α_c with

    1/α_c = min_t E[(t yU − Z)₊²]        (Candès and Sur 2020, arXiv:1804.09753),

U the teacher's field in units of its width and Z an independent Gaussian. The lasso recovers weights of which a fraction ρ is not
zero, from linear measurements without noise as λ → 0, for n/d > α_c with

    α_c = min_t ρ(1 + t²) + 2(1 − ρ)[(1 + t²)Φ(−t) − tφ(t)]        (Donoho and Tanner 2005; Donoho, Maleki and Montanari 2009).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from ..averages.quadrature import gaussian_panels
from ..fixed_points.bisection import bisect
from .outputs import Labels
from .separability import _lowest, _positive, _positive_square

Scalar = Float[Array, ""]


def existence_threshold(channel: Labels, strength: Scalar | float = 1.0, nodes: int = 20) -> Scalar:
    """Samples per dimension above which the minimum of a falling loss exists without a penalty; ∞ if nowhere.

    >>> from .mixtures import logistic
    >>> round(float(existence_threshold(Labels(logistic()), 1e-6)), 6)  # labels without signal: Cover's 2
    2.0
    """
    slopes = strength / jnp.sqrt(channel.noise.variances + 1e-30)

    def mean(t):
        scales = jnp.stack([1 / jnp.maximum(t, 0.1), 1 / jnp.maximum(jnp.max(slopes), 0.1)])
        breaks = (scales[:, None] * jnp.asarray([-8.0, -2.5, 2.5, 8.0])[None, :]).reshape(-1)
        u, weight = gaussian_panels(jnp.concatenate([breaks, jnp.asarray([-3.0, 0.0, 3.0])]), nodes)
        density = 2 * weight * channel._says_one(slopes, u)
        return density @ _positive_square(-t * u), -2 * density @ (u * _positive(-t * u))

    lowest = _lowest(mean)
    return jnp.where(lowest > 0, 1 / jnp.where(lowest > 0, lowest, 1.0), jnp.inf)


def recovery_threshold(fraction: Scalar | float) -> Scalar:
    """Samples per dimension above which the lasso recovers a sparse signal without noise.

    >>> round(float(recovery_threshold(0.1)), 4)
    0.3288
    """
    rho = jnp.asarray(fraction, float)

    def slope(t):
        return rho * t + 2 * (1 - rho) * (t * ndtr(-t) - jnp.exp(-0.5 * t**2) / np.sqrt(2 * np.pi))

    t, _ = bisect(lambda t: slope(t) < 0, jnp.zeros(()), jnp.full((), 30.0))
    tails = (1 + t**2) * ndtr(-t) - t * jnp.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    return rho * (1 + t**2) + 2 * (1 - rho) * tails
