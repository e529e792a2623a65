r"""The dynamics of an infinitely wide residual network, solved forwards in time.

A field, such as the preactivations of a layer at one step, is a vector over *sites* with scalar product <ab> = mean(ab). The
initial matrices W are never stored. Training needs only the products Wφ and Wᵀg, which follow by Gaussian conditioning: let p_k
be an orthonormal basis of all past φ with known y_k = W p_k, and q_j one of all past g with known x_j = Wᵀ q_j. Then

    φ = Σ_k <φ p_k> p_k + n p,     W p = Σ_j <p x_j> q_j + z,     Wφ = Σ_k <φ p_k> y_k + n W p

with a fresh Gaussian field z, orthogonal to all q_j, and likewise for Wᵀg. The sum over j is the response (Onsager) term of
dynamical mean-field theory, Σ_s R(t,s) g(s), by Stein's lemma. Steps and layers are visited in the order of a training step, so
nothing is iterated.

Linear networks stay linear in the fresh fields: with one site per fresh field, each fresh field a unit vector, the result is
exact. For other activations sites are samples; their draws are exactly orthogonal and normalised, which makes the linear part
exact and leaves noise in the rest only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.fixed_points.linear_algebra import cholesky

FLAT = 1e-10
"""A field whose part outside the known ones is smaller than this share of it brings no new direction."""


class Histories(NamedTuple):
    """Fields of the past by layer (`depth`, `items`, `sites`); an item is one pattern at one step; zeros for the future."""

    features: Array  # φ(h^ℓ)
    basis: Array  # p
    image: Array  # W p
    signals: Array  # g^(ℓ+1)
    back_basis: Array  # q
    back_image: Array  # Wᵀ q


class Path(NamedTuple):
    """Outputs (`steps + 1`, `patterns`), and kernels averaged over patterns: by layer (`steps + 1`, `depth + 1`), and tangent."""

    output: Array
    features: Array
    signals: Array
    tangent: Array


def number_of_sources(depth: int, steps: int, patterns: int) -> int:
    """The number of independent Gaussian fields: inputs, readout, and two per layer and item.

    >>> number_of_sources(depth=16, steps=11, patterns=1)
    386
    """
    return patterns + 1 + 2 * depth * (steps + 1) * patterns


def unit_sources(number: int) -> Callable[[Array], Array]:
    """Fresh fields as unit vectors: the exact solution of linear networks."""
    return lambda index: jnp.sqrt(float(number)) * jax.nn.one_hot(index, number)


def drawn_sources(key: PRNGKeyArray, number: int, sites: int, mirrored: bool = False) -> Callable[[Array], Array]:
    """Fresh fields as Gaussian samples whose empirical covariance is exactly the identity.

    `mirrored` sites come in pairs of opposite sign, which removes most of the noise of activations that are not odd.
    """
    draws = jax.random.normal(key, (number, sites // 2 if mirrored else sites), float)
    if mirrored:
        draws = jnp.concatenate([draws, -draws], axis=1)
    factor = cholesky(draws @ draws.T / draws.shape[1])
    draws = jax.scipy.linalg.solve_triangular(factor, draws, lower=True)
    return lambda index: draws[index]


def mean_field(
    activation: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    source: Callable[[Array], Array],
    *,
    depth: int,
    steps: int,
    branch: Array,
    richness: Array,
    rate: Array,
    hidden_rate: Array,
    root: Float[Array, "patterns patterns"],
    targets: Float[Array, " patterns"],
) -> Path:
    """Train the network for some steps of full-batch gradient descent on ½ mean (y − f)².

    **Arguments:**
    - `activation`, `slope`: φ and its derivative.
    - `source`: the fresh Gaussian field with a given number.
    - `branch`: σ, the factor of every residual branch.
    - `richness`: γ₀.
    - `rate`, `hidden_rate`: learning rates of the first and last layer, and of the hidden weights.
    - `root`: a square root of the matrix K = root rootᵀ of scalar products of the inputs.
    """
    patterns, count = len(targets), (steps + 1) * len(targets)
    pattern_of = jnp.arange(count) % patterns
    inputs = jax.vmap(source)(jnp.arange(patterns))
    readout = source(jnp.asarray(patterns))
    sites = readout.shape[0]
    inputs, gram = root @ inputs, root @ root.T
    layers = jnp.arange(depth)

    def fresh(backward: int, layer: Array, item: Array) -> Array:
        return source(patterns + 1 + (backward * depth + layer) * count + item)

    def forward(h: Array, item: Array, past: Histories, moved: Array) -> tuple[Array, tuple[Array, ...]]:
        """All layers of one item: the last preactivation; preactivations, features, p and W p of the others."""

        def block(h: Array, of: tuple[Histories, Array]) -> tuple[Array, tuple[Array, ...]]:
            known, layer = of
            phi = activation(h)
            along, length, p = _split(known.basis, phi)
            image = _image(p, known.back_image, known.back_basis, fresh(0, layer, item))
            image = jnp.where(length > 0, image, 0.0)
            product = along @ known.image + length * image
            learnt = (moved * (known.features @ phi / sites)) @ known.signals
            return h + branch * product + branch**2 * learnt, (h, phi, p, image)

        return jax.lax.scan(block, h, (past, layers))

    def backward(
        g: Array, hidden: Array, item: Array, past: Histories, moved: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        """All layers of one item: the first signal; signals, q and Wᵀ q of the others."""

        def block(g: Array, of: tuple[Histories, Array, Array]) -> tuple[Array, tuple[Array, ...]]:
            known, h, layer = of
            along, length, q = _split(known.back_basis, g)
            image = _image(q, known.image, known.basis, fresh(1, layer, item))
            image = jnp.where(length > 0, image, 0.0)
            product = along @ known.back_image + length * image
            learnt = (moved * (known.signals @ g / sites)) @ known.features
            return g + slope(h) * (branch * product + branch**2 * learnt), (g, q, image)

        return jax.lax.scan(block, g, (past, hidden, layers), reverse=True)

    def step(carry: tuple[Histories, Array, Array, Array, Array], t: Array):
        past, tops, bottoms, errors, start = carry
        pull = richness * errors / patterns
        weights = readout + rate * pull @ tops

        def onwards(carry: tuple[Histories, Array], pattern: Array):
            past, tops = carry
            item = t * patterns + pattern
            h = inputs[pattern] + rate * (pull * gram[pattern][pattern_of]) @ bottoms
            last, (hidden, phi, p, image) = forward(h, item, past, hidden_rate * pull)
            past = past._replace(
                features=past.features.at[:, item].set(phi),
                basis=past.basis.at[:, item].set(p),
                image=past.image.at[:, item].set(image),
            )
            top = activation(last)
            kernels = jnp.append(jnp.mean(phi**2, axis=1), jnp.mean(top**2))
            return (past, tops.at[item].set(top)), (last, hidden, jnp.mean(weights * top) / richness, kernels)

        (past, tops), (last, hidden, output, kernels) = jax.lax.scan(onwards, (past, tops), jnp.arange(patterns))
        start = jnp.where(t == 0, output, start)
        output = output - start

        def backwards(carry: tuple[Histories, Array], of: tuple[Array, Array, Array]):
            (past, bottoms), (pattern, last, hidden) = carry, of
            item = t * patterns + pattern
            first, (g, q, image) = backward(slope(last) * weights, hidden, item, past, hidden_rate * pull)
            past = past._replace(
                signals=past.signals.at[:, item].set(g),
                back_basis=past.back_basis.at[:, item].set(q),
                back_image=past.back_image.at[:, item].set(image),
            )
            kernels = jnp.append(jnp.mean(first**2), jnp.mean(g**2, axis=1))
            return (past, bottoms.at[item].set(first)), kernels

        of = (jnp.arange(patterns), last, hidden)
        (past, bottoms), signals = jax.lax.scan(backwards, (past, bottoms), of)
        errors = jax.lax.dynamic_update_slice(errors, targets - output, (t * patterns,))
        hidden_part = hidden_rate / rate * branch**2 * jnp.sum(kernels[:, :-1] * signals[:, 1:], axis=1)
        tangent = jnp.mean(kernels[:, -1] + jnp.diagonal(gram) * signals[:, 0] + hidden_part)
        measured = Path(output, jnp.mean(kernels, axis=0), jnp.mean(signals, axis=0), tangent)
        return (past, tops, bottoms, errors, start), measured

    empty = jnp.zeros((depth, count, sites))
    row = jnp.zeros((count, sites))
    carry = (Histories(*6 * (empty,)), row, row, jnp.zeros(count), jnp.zeros(patterns))
    return jax.lax.scan(step, carry, jnp.arange(steps + 1))[1]


def _split(basis: Array, field: Array) -> tuple[Array, Array, Array]:
    """Components of a field along an orthonormal basis, length of the rest, and its direction (zero if there is none)."""
    sites = field.shape[0]
    along = basis @ field / sites
    rest = field - along @ basis
    again = basis @ rest / sites  # a second pass keeps the basis orthogonal where the rest is small
    rest = rest - again @ basis
    square = jnp.mean(rest**2)
    new = square > FLAT**2 * jnp.mean(field**2)
    length = jnp.sqrt(jnp.where(new, square, 1.0))
    return along + again, jnp.where(new, length, 0.0), jnp.where(new, rest / length, 0.0)


def _image(direction: Array, seen: Array, basis: Array, fresh: Array) -> Array:
    """W p from all Wᵀ q (`seen`, `basis`): its part along the q is known, the rest is fresh."""
    return fresh + ((seen @ direction - basis @ fresh) / len(fresh)) @ basis
