"""A Potts model as fields and dense couplings: conditionals, energies, gauge, and scores of pairs of sites.

Sequences are integers `(sequences, sites)` with values 0..C−1. **Index order**: W[i, a, j, b] is the contribution of colour
b at site j to the logit of colour a at site i, the field h[i, a] the logit without neighbours. A Potts model has
W[i, a, j, b] = W[j, b, i, a]; W[i, a, i, b] has no meaning and is zero. P(s) ∝ exp(Σ_i h[i, s_i] + Σ_{i<j} W[i, s_i, j, s_j]).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def product(a: Float[Array, "m k"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """Matrix product in the full precision of its dtype: GPUs would round float32 to ten bits and a fit would stall."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def one_hot(sequences: Int[Array, "*m sites"], colours: int, dtype: Any = float) -> Float[Array, "*m sites colours"]:
    """One-hot encoding of each site's colour; a negative colour (a masked token) is all zeros."""
    return jax.nn.one_hot(sequences, colours, dtype=dtype)


def conditional_logits(
    fields: Float[Array, "sites colours"],
    couplings: Float[Array, "sites colours sites colours"],
    sequences: Int[Array, "m sites"],
) -> Float[Array, "m sites colours"]:
    """Logits of every site given all others, h[i, a] + Σ_{j≠i} W[i, a, j, s_j].

    >>> couplings = jnp.zeros((2, 2, 2, 2)).at[0, 1, 1, 1].set(3.0).at[1, 1, 0, 1].set(3.0)
    >>> conditional_logits(jnp.zeros((2, 2)), couplings, jnp.asarray([[0, 1]]))[0].tolist()
    [[0.0, 3.0], [0.0, 0.0]]
    """
    sites, colours = fields.shape
    apart = 1 - jnp.eye(sites, dtype=fields.dtype)
    x = one_hot(sequences, colours, fields.dtype).reshape(len(sequences), sites * colours)
    table = (couplings * apart[:, None, :, None]).reshape(sites * colours, sites * colours)
    return product(x, table.T).reshape(-1, sites, colours) + fields[None]


def negative_log_pseudolikelihood(
    fields: Float[Array, "sites colours"],
    couplings: Float[Array, "sites colours sites colours"],
    sequences: Int[Array, "m sites"],
    weights: Float[Array, " m"] | None = None,
) -> Float[Array, ""]:
    """−Σ_m w_m Σ_i log P(s_i | rest), without penalties: the plain reference implementation.

    >>> s = jnp.asarray([[0, 1, 2], [2, 2, 1]])
    >>> round(float(negative_log_pseudolikelihood(jnp.zeros((3, 3)), jnp.zeros((3, 3, 3, 3)), s)), 6)  # 6 log 3
    6.591674
    """
    return jnp.sum(surprise(conditional_logits(fields, couplings, sequences), sequences, weights))


def surprise(
    logits: Float[Array, "m sites colours"], sequences: Int[Array, "m sites"], weights: Float[Array, " m"] | None
) -> Float[Array, "m sites"]:
    """Weighted cross-entropy of each site; a negative colour contributes zero."""
    chosen = jnp.sum(logits * one_hot(sequences, logits.shape[-1], logits.dtype), axis=-1)
    cost = jax.nn.logsumexp(logits, axis=-1) - chosen
    cost = jnp.where(sequences >= 0, cost, 0.0)
    return cost if weights is None else weights[:, None] * cost


def pair_energies(
    fields: Float[Array, "sites colours"],
    couplings: Float[Array, "sites colours sites colours"],
    sequences: Int[Array, "m sites"],
) -> Float[Array, " m"]:
    """E(s) = −Σ_i h[i, s_i] − Σ_{i<j} W[i, s_i, j, s_j], so that P(s) ∝ exp(−E(s)); couplings symmetric."""
    x = one_hot(sequences, fields.shape[1], fields.dtype)
    pull = conditional_logits(fields, couplings, sequences) - fields[None]
    return -jnp.sum(x * (fields[None] + 0.5 * pull), axis=(1, 2))


# --- gauge and scores -------------------------------------------------------------------------------------------------


def zero_sum(
    fields: Float[Array, "sites colours"], couplings: Float[Array, "sites colours sites colours"]
) -> tuple[Float[Array, "sites colours"], Float[Array, "sites colours sites colours"]]:
    """The same model with Σ_a W[i, a, j, b] = Σ_b W[i, a, j, b] = 0 and Σ_a h[i, a] = 0.

    The means removed from the couplings are added to the fields, so that no probability changes (constants are dropped).

    >>> h, w = jnp.zeros((2, 2)), jnp.zeros((2, 2, 2, 2)).at[0, 1, 1, 1].set(4.0).at[1, 1, 0, 1].set(4.0)
    >>> h, w = zero_sum(h, w)
    >>> h.tolist(), w[0, :, 1].tolist()
    ([[-1.0, 1.0], [-1.0, 1.0]], [[1.0, -1.0], [-1.0, 1.0]])
    """
    own = jnp.mean(couplings, axis=3, keepdims=True)
    other = jnp.mean(couplings, axis=1, keepdims=True)
    centred = couplings - own - other + jnp.mean(own, axis=1, keepdims=True)
    fields = fields + jnp.sum(own[..., 0], axis=2)
    return fields - jnp.mean(fields, axis=1, keepdims=True), centred


def frobenius(
    couplings: Float[Array, "sites colours sites colours"], without: int | None = None
) -> Float[Array, "sites sites"]:
    """Norm of each pair's block in zero-sum gauge; `without` leaves out one colour (a gap), as usual for alignments."""
    _, centred = zero_sum(jnp.zeros(couplings.shape[:2], couplings.dtype), couplings)
    if without is not None:
        keep = jnp.arange(couplings.shape[1]) != without
        centred = jnp.where(keep[None, :, None, None] & keep[None, None, None, :], centred, 0.0)
    norms = jnp.sqrt(jnp.sum(centred**2, axis=(1, 3)))
    return jnp.where(jnp.eye(len(norms), dtype=bool), 0.0, norms)


def average_product_correction(scores: Float[Array, "sites sites"]) -> Float[Array, "sites sites"]:
    """F_ij − F_i· F_·j / F_··, means over pairs i ≠ j (Dunn, Wahl and Gloor 2008); zero diagonal.

    >>> average_product_correction(jnp.ones((3, 3)) - jnp.eye(3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    sites = len(scores)
    mean = jnp.sum(scores, axis=1) / (sites - 1)
    overall = jnp.maximum(jnp.mean(mean), jnp.finfo(scores.dtype).tiny)
    corrected = scores - mean[:, None] * mean[None, :] / overall
    return jnp.where(jnp.eye(sites, dtype=bool), 0.0, corrected)


def contact_scores(
    couplings: Float[Array, "sites colours sites colours"], without: int | None = None
) -> Float[Array, "sites sites"]:
    """Strength of the direct coupling of two sites: Frobenius norm in zero-sum gauge, average product removed."""
    return average_product_correction(frobenius(couplings, without))
