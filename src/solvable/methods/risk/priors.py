r"""Priors of a teacher's weights, their samplers, and the Bayes-optimal estimate of a weight in Gaussian noise.

A weight w₀ seen in the field B = q̂w₀ + √q̂ ξ has the posterior P(w) exp(Bw − q̂w²/2). For a mixture of Gaussians its mean and
variance are closed forms; the averages over B, whose law is N(B; 0, q̂) times the normalisation, run over nodes that follow
the prior: panels in geometric progression for centred mixtures, panels around each atom for discrete weights, equal panels for
a density on an interval. The information I(q̂) between w₀ and B obeys dI/dq̂ = mmse/2 (Guo, Shamai and Verdú 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from ..averages.quadrature import gaussian_panels, legendre
from . import mixtures
from .mixtures import Mixture
from .outputs import graded_line

Scalar = Float[Array, ""]


class Denoised(NamedTuple):
    """E Var(w|B), E Var(w|B)², the information I(w; B), and 1 − q̂ E Var(w|B) without cancellation."""

    error: Scalar
    square: Scalar
    information: Scalar
    slack: Scalar


class Prior(eqx.Module):
    """A law of one weight: its mixture, its sampler, and which nodes suit it."""

    mixture: Mixture
    kind: Literal["centred", "atoms", "density"] = eqx.field(static=True)
    draw: Callable[[PRNGKeyArray, tuple[int, ...], Any], Array] | None = eqx.field(static=True, default=None)

    def scaled(self, factor: Scalar) -> Prior:
        """The law of `factor` times the weight; its sampler keeps unit scale."""
        return eqx.tree_at(lambda p: p.mixture, self, self.mixture.scaled(factor))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Array:
        """Independent draws: by the given sampler, scaled like the mixture, or else from the mixture."""
        law = jax.tree.map(lambda v: v.astype(dtype), self.mixture)
        if self.draw is not None:
            return jnp.sqrt(law.power).astype(dtype) * self.draw(key, shape, dtype)
        which, noise = jax.random.split(key)
        place = jax.random.uniform(which, shape, dtype)
        index = jnp.searchsorted(jnp.cumsum(law.weights), place * jnp.sum(law.weights))
        index = jnp.clip(index, 0, law.weights.shape[0] - 1)
        return law.means[index] + jnp.sqrt(law.variances[index]) * jax.random.normal(noise, shape, dtype)

    def posterior(self, field: Array, precision: Array) -> tuple[Array, Array, Array]:
        """Mean and variance of the weight given B = `field` and q̂ = `precision`, and log E exp(Bw − q̂w²/2), elementwise.

        >>> m, v, _ = named("binary").posterior(jnp.asarray([0.5]), jnp.asarray([0.5]))
        >>> bool(abs(m[0] - jnp.tanh(0.5)) < 1e-15), bool(abs(v[0] - 1 + m[0] ** 2) < 1e-15)
        (True, True)
        """
        share, means, variances, _, total = self._components(field, precision)
        mean = jnp.sum(share * means, axis=-1)
        return mean, jnp.sum(share * (variances + (means - mean[..., None]) ** 2), axis=-1), total

    def _components(self, field: Array, precision: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Shares, means and variances of the posterior's components, 1 − q̂ variance, and the log evidence."""
        law = jax.tree.map(lambda v: v.astype(field.dtype).reshape((1,) * field.ndim + v.shape), self.mixture)
        B, A = field[..., None], precision[..., None]
        under = 1 + A * law.variances
        means, variances = (law.means + law.variances * B) / under, law.variances / under
        exponent = (2 * law.means * B + law.variances * B**2 - A * law.means**2) / (2 * under)
        logs = jnp.log(law.weights) - 0.5 * jnp.log(under) + exponent
        total = logsumexp(logs, axis=-1)
        return jnp.exp(logs - total[..., None]), means, variances, 1 / under, total

    def denoised(self, q_hat: Scalar, nodes: int) -> Denoised:
        """The averages over the field B at a precision q̂.

        >>> found = named("gaussian").denoised(jnp.asarray(3.0), 14)
        >>> [round(float(v), 10) for v in found]  # 1/(1 + q̂), its square, log(1 + q̂)/2, 1/(1 + q̂)
        [0.25, 0.0625, 0.6931471806, 0.25]
        """
        law, root = self.mixture, jnp.sqrt(q_hat)
        if self.kind == "atoms":
            return self._of_atoms(q_hat, nodes)
        if self.kind == "centred":
            widest = jnp.max(root * jnp.sqrt(1 + q_hat * law.variances))
            B, length = graded_line(0.4 * root, 9 * widest, 40, nodes)
        else:
            top = q_hat * jnp.max(jnp.abs(law.means)) + 9 * root
            u, w = legendre(nodes)
            edges = np.linspace(-1.0, 1.0, 49)
            places = (edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * u[None, :]).reshape(-1)
            B = top * jnp.asarray(places)
            length = top * jnp.asarray(((edges[1:] - edges[:-1])[:, None] * w[None, :]).reshape(-1))
        _, means, variances, left, _ = self._components(B, q_hat * jnp.ones_like(B))
        logs = self._log_densities(B, q_hat)
        log_density = logsumexp(logs, axis=-1)
        share = jnp.exp(logs - log_density[:, None])
        apart = jnp.sum(share * (means - jnp.sum(share * means, axis=-1, keepdims=True)) ** 2, axis=-1)
        variance = jnp.sum(share * variances, axis=-1) + apart
        slack = jnp.sum(share * left, axis=-1) - q_hat * apart
        mass = length * jnp.exp(log_density)
        entropy = -mass @ log_density
        information = entropy - 0.5 * jnp.log(2 * np.pi * np.e * q_hat)
        # No posterior mean is worse than the best linear estimate; nodes may be, where they no longer resolve a mixture.
        linear = 1 / (1 + q_hat * law.power)
        return Denoised(
            jnp.minimum(mass @ variance, law.power * linear),
            mass @ variance**2,
            information,
            jnp.maximum(mass @ slack, linear),
        )

    def _log_densities(self, B: Array, q_hat: Scalar) -> Array:
        """Of the field, by component. Evidences, which lack the common −B²/2q̂, would lose all digits at a high precision."""
        law = jax.tree.map(lambda v: v[None, :], self.mixture)
        spread = q_hat * (1 + q_hat * law.variances)
        return (
            jnp.log(law.weights)
            - 0.5 * (B[:, None] - q_hat * law.means) ** 2 / spread
            - 0.5 * jnp.log(2 * np.pi * spread)
        )

    def _of_atoms(self, q_hat: Scalar, nodes: int) -> Denoised:
        law, root = self.mixture, jnp.sqrt(q_hat)
        # Two atoms are equally likely halfway between them, and the posterior turns within the inverse of their distance.
        around = jnp.asarray([-30.0, -10.0, -3.0, 0.0, 3.0, 10.0, 30.0])
        middles = 0.5 * q_hat * (law.means[1:] + law.means[:-1])
        gaps = law.means[1:] - law.means[:-1]
        breaks = (middles[:, None] + around[None, :] / gaps[:, None]).reshape(-1)

        def one(k):
            xi, weight = gaussian_panels(
                jnp.concatenate([(breaks - q_hat * law.means[k]) / root, jnp.asarray([-3.0, 3.0])]), nodes
            )
            B = q_hat * law.means[k] + root * xi
            _, variance, total = self.posterior(B, q_hat * jnp.ones_like(B))
            log_true = jnp.log(law.weights[k]) + B * law.means[k] - 0.5 * q_hat * law.means[k] ** 2 - total
            surprise = log_true - jnp.log(law.weights[k])
            return jnp.stack([weight @ variance, weight @ variance**2, weight @ surprise])

        error, square, information = law.weights @ jax.vmap(one)(jnp.arange(law.means.shape[0]))
        return Denoised(error, square, information, 1 - q_hat * error)


def named(name: str, fraction: Any = 0.2) -> Prior:
    """A built-in prior of unit mean square: gaussian, sparse (a `fraction` is not zero), binary or laplace.

    >>> float(named("sparse", 0.1).mixture.power)
    1.0
    """
    if name == "gaussian":
        return Prior(mixtures.gaussian(), "centred")
    if name == "sparse":
        return Prior(mixtures.sparse(fraction), "centred")
    if name == "binary":
        return Prior(mixtures.binary(), "atoms")
    return Prior(mixtures.laplace(), "centred", _draw_laplace)


def _draw_laplace(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Array:
    return jax.random.laplace(key, shape, dtype) / np.sqrt(2).astype(dtype)


def own_prior(function: Callable[..., Array], between: tuple[float, float] | None) -> Prior:
    """A prior of your own, scaled to unit mean square: a log-density on an interval, or (without one) a sampler (key, shape).

    >>> uniform = own_prior(lambda key, shape: jax.random.uniform(key, shape, minval=-1.0), None)
    >>> round(float(uniform.mixture.power), 6)
    1.0
    """
    if between is not None:
        return Prior(mixtures.of_density(function, between), "density")
    reference = function(jax.random.key(0), (1 << 16,))
    scale = float(jnp.sqrt(jnp.mean(reference**2)))

    def draw(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Array:
        return (function(key, shape) / scale).astype(dtype)

    return Prior(mixtures.of_draws(reference), "density", draw)
