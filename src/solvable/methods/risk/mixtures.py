r"""Laws of one number as mixtures of Gaussians, in which the averages of a generalised linear model are closed forms.

A mixture has components N(mean, variance) with weights that sum to one; a component of variance zero is an atom. Sparse and
binary weights are finite mixtures. Laplace and asymmetric Laplace laws mix over an exponentially distributed τ,

    ε = b(θτ + ψ√τ Z),   θ = (1−2κ)/(κ(1−κ)),   ψ² = 2/(κ(1−κ))        (Kozumi and Kobayashi 2011),

and a logistic variable is 2K Z with Kolmogorov's K (Andrews and Mallows 1974); both become finite by the trapezoidal rule,
which converges exponentially here. So a label ±1 is always the sign of a field plus Gaussian noise, and a real label always a
field plus Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from ...errors import InvalidValue

Scalar = Float[Array, ""]


class Mixture(NamedTuple):
    """Means, variances and weights of the components."""

    means: Float[Array, " k"]
    variances: Float[Array, " k"]
    weights: Float[Array, " k"]

    @property
    def mean(self) -> Scalar:
        return self.weights @ self.means

    @property
    def power(self) -> Scalar:
        """The mean square."""
        return self.weights @ (self.variances + self.means**2)

    def scaled(self, factor: Scalar | float) -> Mixture:
        """The law of `factor` times the number."""
        return Mixture(self.means * factor, self.variances * factor**2, self.weights)

    def widened(self, variance: Scalar | float) -> Mixture:
        """The law of the number plus an independent Gaussian of this variance."""
        return Mixture(self.means, self.variances + variance, self.weights)


def gaussian(variance: Any = 1.0) -> Mixture:
    """N(0, variance).

    >>> float(gaussian(0.3).power)
    0.3
    """
    return Mixture(jnp.zeros(1), jnp.asarray(variance, float)[None], jnp.ones(1))


def sparse(fraction: Any) -> Mixture:
    """Zero, or with probability `fraction` a Gaussian; unit mean square.

    >>> float(sparse(0.25).power)
    1.0
    """
    share = jnp.asarray(fraction, float)
    return Mixture(jnp.zeros(2), jnp.stack([jnp.zeros(()), 1 / share]), jnp.stack([1 - share, share]))


def binary() -> Mixture:
    """±1 with equal probabilities.

    >>> float(binary().power)
    1.0
    """
    return Mixture(jnp.asarray([-1.0, 1.0]), jnp.zeros(2), jnp.full(2, 0.5))


DEEPEST = -18.0  # log τ below which an exponential variable counts as zero: its mass is 2e-8, its effect of order τ


@cache
def _exponential(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of an average over an exponential variable, by the trapezoidal rule in its logarithm."""
    u, step = np.linspace(DEEPEST, 4.0, nodes, retstep=True)
    tau = np.exp(u)
    weights = step * np.exp(u - tau)
    return np.append(0.0, tau), np.append(1 - weights.sum(), weights)


def laplace(nodes: int = 80) -> Mixture:
    """The density exp(−√2|w|)/√2, of unit variance.

    >>> round(float(laplace().power), 12)
    1.0
    """
    tau, weights = _exponential(nodes)
    return Mixture(jnp.zeros(tau.shape[0]), jnp.asarray(tau), jnp.asarray(weights))


def asymmetric_laplace(variance: Any, level: Any, nodes: int = 80) -> Mixture:
    """The density κ(1−κ)/b exp(−ε(κ − [ε<0])/b) of a given variance: its quantile of level κ is zero; κ = ½ is Laplace's.

    >>> law = asymmetric_laplace(0.5, 0.3)
    >>> round(float(law.power - law.mean**2), 10), round(float(beyond(law.widened(1e-12), jnp.zeros(()), -1.0)), 5)
    (0.5, 0.3)
    """
    tau, weights = (jnp.asarray(v) for v in _exponential(nodes))
    kappa = jnp.asarray(level, float)
    both = kappa * (1 - kappa)
    b = jnp.sqrt(variance) * both / jnp.sqrt(1 - 2 * both)
    return Mixture(b * (1 - 2 * kappa) / both * tau, b**2 * 2 / both * tau, weights)


@cache
def _kolmogorov(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    x, step = np.geomspace(0.16, 4.4, nodes), np.log(4.4 / 0.16) / (nodes - 1)
    j = np.arange(1, 40)[:, None]
    density = np.sum(-((-1.0) ** j) * 8 * x * j**2 * np.exp(-2 * (j * x) ** 2), axis=0)
    weights = step * x * np.maximum(density, 1e-30)  # rounding may make it negative far out
    return x, weights / weights.sum()


def logistic(nodes: int = 28) -> Mixture:
    """The logistic density, whose distribution function is 1/(1 + exp(−x)).

    >>> law = logistic()
    >>> bool(abs(law.weights @ ndtr(1.5 / jnp.sqrt(law.variances)) - 1 / (1 + np.exp(-1.5))) < 1e-12)
    True
    """
    k, weights = _kolmogorov(nodes)
    return Mixture(jnp.zeros(nodes), jnp.asarray(4 * k**2), jnp.asarray(weights))


def of_density(log_density: Callable[[Array], Array], between: tuple[float, float], nodes: int = 256) -> Mixture:
    """Atoms for a law with this log-density (up to a constant) on an interval; centred or not, it is scaled to unit mean square.

    Atoms stand for the density where averages are smooth on the scale of their distance, (b − a)/nodes.

    >>> law = of_density(lambda w: -0.5 * w**2, (-9.0, 9.0))
    >>> round(float(law.power), 12)
    1.0
    """
    low, high = float(between[0]), float(between[1])
    if not (np.isfinite([low, high]).all() and low < high):
        raise InvalidValue(f"between = {between!r} is not an interval of finite numbers.")
    u = np.linspace(low, high, nodes)
    heights = log_density(jnp.asarray(u))
    if heights.shape != (nodes,) or bool(jnp.any(jnp.isnan(heights))):
        raise InvalidValue("log_density must be elementwise and a number on the whole interval.")
    weights = jnp.exp(heights - jnp.max(heights))
    weights = weights / jnp.sum(weights)
    scale = jnp.sqrt(weights @ u**2)
    return Mixture(jnp.asarray(u) / scale, jnp.zeros(nodes), weights)


def of_draws(draws: Float[Array, " n"], atoms: int = 256) -> Mixture:
    """Atoms at the means of equally many sorted draws each, scaled to unit mean square.

    >>> import jax
    >>> law = of_draws(jax.random.normal(jax.random.key(0), (4096,)), 64)
    >>> round(float(law.power), 12)
    1.0
    """
    groups = jnp.sort(draws)[: draws.shape[0] // atoms * atoms].reshape(atoms, -1)
    means = jnp.mean(groups, axis=1)
    return Mixture(means / jnp.sqrt(jnp.mean(means**2)), jnp.zeros(atoms), jnp.full(atoms, 1 / atoms))


# --- averages of functions that are linear between a few points ----------------------------------------------------------


def tail(law: Mixture, place: Scalar, side: float = 1.0) -> Scalar:
    """E (±(x − t))₊ for `side` ±1; all variances must be positive.

    >>> round(float(tail(gaussian(), jnp.asarray(0.0))), 6)
    0.398942
    """
    return law.weights @ tails(law, place, side)[1]


def tail_square(law: Mixture, place: Scalar, side: float = 1.0) -> Scalar:
    """E (±(x − t))₊².

    >>> round(float(tail_square(gaussian(), jnp.asarray(0.0))), 6)
    0.5
    """
    return law.weights @ tails(law, place, side)[2]


def beyond(law: Mixture, place: Scalar, side: float = 1.0) -> Scalar:
    """P(±(x − t) > 0).

    >>> float(beyond(gaussian(), jnp.asarray(0.0)))
    0.5
    """
    return law.weights @ tails(law, place, side)[0]


def tails(
    law: Mixture, place: Scalar, side: float = 1.0
) -> tuple[Float[Array, " k"], Float[Array, " k"], Float[Array, " k"]]:
    """P(±(x − t) > 0), E (±(x − t))₊ and E (±(x − t))₊² of every component.

    >>> [round(float(v[0]), 6) for v in tails(gaussian(), jnp.asarray(0.0))]
    [0.5, 0.398942, 0.5]
    """
    width = jnp.sqrt(law.variances)
    u = side * (law.means - place) / width
    mass = ndtr(u)
    density = jnp.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    # The sums cancel in the tail, but only by a factor of u⁴: 1e-10 where the density itself underflows.
    return mass, width * (density + u * mass), width**2 * ((1 + u**2) * mass + u * density)
