r"""Similarity of two representations of the same points: linear CKA and the information imbalance.

Both compare the representations of the same N inputs in two networks (or layers) of any width. CKA uses all pairs of points
at once and is dominated by the directions of large variance; the imbalance uses nearest neighbours and is not symmetric: A may
determine the neighbours of B while B does not determine those of A.

The information imbalance exists in DADApy (Glielmo et al. 2022, arXiv:2205.03373), a NumPy package with many dependencies that
can be neither compiled nor batched with the training that is measured here; this version needs only comparisons, no sorting.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def linear_cka(first: Float[Array, "n p"], second: Float[Array, "n q"]) -> Float[Array, ""]:
    r"""Linear centred kernel alignment $|X^\top Y|^2 / (|X^\top X|\,|Y^\top Y|)$ of centred representations, in [0, 1].

    Kornblith, Norouzi, Lee and Hinton 2019 (arXiv:1905.00414). One if and only if the centred Gram matrices are
    proportional: rotations, shifts and a common scale do not count. NaN if a representation is constant.

    >>> import jax.numpy as jnp
    >>> x = jnp.asarray([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [5.0, 1.0]])
    >>> round(float(linear_cka(x, 3.0 - 2.0 * x[:, ::-1])), 6)
    1.0
    """
    x, y = (z - jnp.mean(z, axis=0)[None, :] for z in (first, second))
    cross, own, other = (jnp.sqrt(jnp.sum((a.T @ b) ** 2)) for a, b in ((x, y), (x, x), (y, y)))
    return cross**2 / (own * other)


def information_imbalance(first: Float[Array, "n p"], second: Float[Array, "n q"]) -> Float[Array, ""]:
    r"""$\Delta(A\to B) = \frac{2}{N}\,\langle r^B \mid r^A = 1\rangle$: the mean rank in B of the nearest neighbour in A.

    Glielmo, Zeni, Cheng, Csányi and Laio 2022 (arXiv:2104.15079). The rank counts from one, among the N − 1 other points, by
    Euclidean distance. At the smallest value, 2/N, A determines every neighbour of B; at one it carries no information. Points at
    equal distance share the lowest of their ranks; of several nearest neighbours in A the first is taken.

    >>> import jax.numpy as jnp
    >>> x = jnp.asarray([[0.0], [1.0], [3.0], [7.0]])
    >>> float(information_imbalance(x, x)), float(information_imbalance(x, -(x**2)))
    (0.5, 0.5)
    """
    number = first.shape[0]
    near, far = _squared_distances(first), _squared_distances(second)
    neighbour = jnp.argmin(near, axis=1)
    reached = jnp.take_along_axis(far, neighbour[:, None], axis=1)
    ranks = 1 + jnp.sum(far < reached, axis=1)
    return 2.0 / number * jnp.mean(ranks.astype(first.dtype))


def _squared_distances(points: Float[Array, "n p"]) -> Float[Array, "n n"]:
    """Squared distances of all pairs, infinite on the diagonal; from the Gram matrix, in double precision if enabled."""
    x = points.astype(float)
    x = x - jnp.mean(x, axis=0)[None, :]
    square = jnp.sum(x**2, axis=1)
    distances = square[:, None] + square[None, :] - 2.0 * (x @ x.T)
    return jnp.where(jnp.eye(points.shape[0], dtype=bool), jnp.inf, distances)
