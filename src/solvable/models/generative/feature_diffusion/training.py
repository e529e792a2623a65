r"""A score model with random features, trained on finite data: features, second moments, gradient flow.

Nothing here is asymptotic. The average over the noise of a datum, "infinitely many noises per datum", is exact: for unit
Gaussians v, v′ with correlation ρ,

    E φ(m + sv) φ(m′ + s′v′) = Σ_k ρ^k c_k(m, s) c_k(m′, s′),   c_k(m, s) = E He_k(v)/√k! · φ(m + sv),

and ρ_ij = w_i·w_j/(|w_i||w_j|) is of order 1/√d, so that few terms suffice; the diagonal ρ = 1 is averaged by itself. The test
loss is an average over the population in the same way: it needs no test set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from solvable.methods.averages.quadrature import bent_trapezoid

ORDER, NODES = 12, 40
"""Terms of the expansion in the correlation of two features, and nodes of the averages over the noise."""


class Population(NamedTuple):
    """Classes with diagonal covariances: centres and variances of the coordinates."""

    centre: Float[Array, "c d"]
    variance: Float[Array, "c d"]


class Trained(NamedTuple):
    """Train and test losses of every class as quadratic forms in f_τ(λ) = (1 − e^{−Δτλ})/λ over U's eigenvalues λ."""

    decay: Array
    eigenvalues: Float[Array, " p"]
    train_cross: Float[Array, "c p"]
    test_cross: Float[Array, "c p"]
    train_pair: Float[Array, "c p p"]
    test_pair: Float[Array, "c p p"]

    def losses(self, log_time: Float[Array, " t"]) -> tuple[Float[Array, "t c"], Float[Array, "t c"]]:
        """Train and test loss of every class at times given by their logarithms; infinity is allowed."""
        # features that are only padding have eigenvalue zero; nothing depends on them
        there = (self.eigenvalues > 0)[None]
        safe = jnp.where(there, self.eigenvalues[None], 1.0)
        f = jnp.where(there, -jnp.expm1(-self.decay * jnp.exp(log_time)[:, None] * safe) / safe, 0.0)

        def loss(cross: Array, pair: Array) -> Array:
            return 1 - 2 * f @ cross.T + jnp.einsum("ti,cij,tj->tc", f, pair, f)

        return loss(self.train_cross, self.train_pair), loss(self.test_cross, self.test_pair)


def _coefficients(function: Callable[[Array], Array], mean: Array, spread: Array) -> tuple[Array, Array]:
    """c_k for k = 0 … ORDER−1, on a new first axis, and E φ²."""
    nodes, weights = bent_trapezoid(NODES)
    table = np.polynomial.hermite_e.hermevander(nodes, ORDER - 1) / np.sqrt([math.factorial(k) for k in range(ORDER)])
    dtype, spread = mean.dtype, jnp.broadcast_to(spread, mean.shape)

    def add(total: tuple[Array, Array], term: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        node, weight = term[0], term[1]
        values = function(mean + spread * node)
        each = weight[1:].reshape((-1,) + (1,) * values.ndim)
        return (total[0] + each * values[None], total[1] + weight[0] * values**2), None

    weight = jnp.asarray(np.concatenate([weights[:, None], weights[:, None] * table], axis=1), dtype)
    zero = jnp.zeros(mean.shape, dtype)
    start = (jnp.zeros((ORDER, *mean.shape), dtype), zero)
    return lax.scan(add, start, (jnp.asarray(nodes, dtype), weight))[0]


def train(
    function: Callable[[Array], Array],
    weights: Float[Array, "p d"],
    data: Float[Array, "n d"],
    member: Float[Array, "c n"],
    population: Population,
    time: Array,
) -> Trained:
    """Train the readout of random features on data by gradient flow.

    `member` is one where a datum belongs to a class, else zero; rows of `weights` and columns of `member` that vanish are
    padding.
    """
    d, dtype = weights.shape[1], weights.dtype
    time = time.astype(dtype)
    kept, decay = jnp.exp(-time), -jnp.expm1(-2 * time)
    number = jnp.sum(member, axis=1)
    share = number / jnp.sum(number)
    length = jnp.linalg.norm(weights, axis=1)
    present = length > 0
    unit = weights / jnp.where(present, length, 1.0)[:, None]
    diagonal = jnp.eye(len(weights), dtype=dtype)

    def series(correlation: Array, terms: Callable[[Any], Array]) -> Array:
        """Σ_k ρ^k · terms(k) off the diagonal, by Horner's rule."""
        correlation = correlation * (1 - diagonal)
        total = jnp.zeros_like(correlation)
        return lax.fori_loop(0, ORDER, lambda i, total: terms(ORDER - 1 - i) + correlation * total, total)

    # training data: given the datum, the noise of features i and j has correlation w_i·w_j/(|w_i||w_j|)
    fields = kept * data @ weights.T / math.sqrt(d)
    coefficients, square = _coefficients(function, fields, jnp.sqrt(decay / d) * length)

    def trained(member: Array, number: Array) -> tuple[Array, Array]:
        """U and V of one class: E φφᵀ and E φξᵀ."""
        u = series(unit @ unit.T, lambda k: (coefficients[k] * member[:, None]).T @ coefficients[k] / number)
        u = u * (1 - diagonal) + jnp.diag(member @ square / number)
        return u, (member @ coefficients[1] / number)[:, None] * unit

    def tested(centre: Array, variance: Array) -> tuple[Array, Array]:
        """The same for the population of one class."""
        total = kept**2 * variance + decay
        spread = jnp.sqrt((weights**2) @ total / d)
        safe = jnp.where(present, spread, 1.0)
        covariance = (weights * total[None]) @ weights.T / d
        c, square = _coefficients(function, kept * weights @ centre / math.sqrt(d), spread)
        u = series(covariance / (safe[:, None] * safe[None, :]), lambda k: c[k][:, None] * c[k][None, :])
        u = u * (1 - diagonal) + jnp.diag(square)
        return u, jnp.sqrt(decay / d) * (c[1] / safe)[:, None] * weights

    on_train = lax.map(lambda x: trained(*x), (member, number))
    on_test = lax.map(lambda x: tested(*x), tuple(population))
    both = present.astype(dtype)
    mask = both[:, None] * both[None, :]
    moments = jnp.tensordot(share, on_train[0], 1) * mask
    eigenvalues, vectors = jnp.linalg.eigh(moments)
    # padding has eigenvalue zero up to rounding: the smallest ones are its
    padding = jnp.arange(len(weights)) < len(weights) - jnp.sum(present)
    eigenvalues = jnp.where(padding, 0.0, eigenvalues)
    target = jnp.tensordot(share, on_train[1], 1)
    turned = vectors.T @ target
    outer = turned @ turned.T / d

    def forms(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        u, v = pair
        return jnp.sum(turned * (vectors.T @ v), axis=1) / d, (vectors.T @ (u * mask) @ vectors) * outer

    train_cross, train_pair = lax.map(forms, on_train)
    test_cross, test_pair = lax.map(forms, on_test)
    return Trained(decay, eigenvalues, train_cross, test_cross, train_pair, test_pair)


def experiment(
    function: Callable[[Array], Array],
    key: Array,
    width: int,
    labels: Int[Array, " n"],
    population: Population,
    time: Array,
) -> Trained:
    """Draw `width` features and a datum for every label (its class), with any centres and diagonal covariances, and train.

    For classes of isotropic variance around the origin this is what `FeatureDiffusion.simulate` does.

    >>> flat = Population(jnp.zeros((2, 20)), jnp.asarray([0.5, 2.0])[:, None] * jnp.ones((2, 20)))
    >>> run = experiment(jnp.tanh, jax.random.key(0), 40, jnp.repeat(jnp.arange(2), 30), flat, jnp.asarray(0.1))
    >>> [loss.shape for loss in run.losses(jnp.log(jnp.asarray([1.0, 10.0, 100.0])))]
    [(3, 2), (3, 2)]
    """
    dtype, d = population.variance.dtype, population.variance.shape[1]
    of_features, of_data = jax.random.split(key)
    draws = jax.random.normal(of_data, (len(labels), d), dtype)
    data = population.centre[labels] + jnp.sqrt(population.variance[labels]) * draws
    member = (labels[None, :] == jnp.arange(len(population.centre))[:, None]).astype(dtype)
    weights = jax.random.normal(of_features, (width, d), dtype)
    return train(function, weights, data, member, population, jnp.asarray(time))
