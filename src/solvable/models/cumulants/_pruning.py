"""Iterative pruning with rewinding, in one program: train, remove weights, reset the rest, repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from solvable.methods.training.adam import adam_step, no_moments

Network = dict[str, Array]
"""Weights by name; masks have the names of those that may be pruned."""


def masked(network: Network, masks: Mapping[str, Array]) -> Network:
    """The network without its pruned weights."""
    return {name: w * masks[name] if name in masks else w for name, w in network.items()}


def forward(network: Network, x: Array) -> Array:
    """Log-odds of the positive class: ReLU units `first`, `bias` and a readout `second`, `offset`."""
    field = x @ network["first"].T
    return jax.nn.relu(field + jnp.broadcast_to(network["bias"], field.shape)) @ network["second"] + network["offset"]


def weights_left(total: int, share: Array, pruned: int | Array) -> Array:
    """How many of `total` weights remain after a share of the remaining ones is removed `pruned` times.

    >>> [int(weights_left(100, jnp.asarray(0.25), n)) for n in range(4)]
    [100, 75, 56, 42]
    """
    return jnp.rint(total * (1 - share) ** jnp.asarray(pruned, share.dtype)).astype(jnp.int32)


def keep_largest(scores: Mapping[str, Array], masks: Mapping[str, Array], keep: Array) -> dict[str, Array]:
    """Masks of the `keep` live weights with the largest scores (not negative), all layers together.

    >>> kept = keep_largest({"w": jnp.array([3.0, 9.0, 1.0, 2.0])}, {"w": jnp.array([1.0, 0.0, 1.0, 1.0])}, jnp.asarray(2))
    >>> kept["w"].tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    names = list(masks)
    flat = jnp.concatenate([jnp.where(masks[n] > 0, scores[n], -1.0).ravel() for n in names])
    rank = jnp.zeros(len(flat), jnp.int32).at[jnp.argsort(-flat)].set(jnp.arange(len(flat), dtype=jnp.int32))
    chosen = (rank < keep) & (flat >= 0)
    kept, at = {}, 0
    for n in names:
        size = masks[n].size
        kept[n] = chosen[at : at + size].reshape(masks[n].shape).astype(masks[n].dtype)
        at += size
    return kept


def train(
    batch: Callable[[PRNGKeyArray], Any],
    loss: Callable[[Network, Any], Array],
    network: Network,
    masks: Mapping[str, Array],
    key: PRNGKeyArray,
    steps: int,
    rate: Array,
) -> Network:
    """Train the remaining weights with Adam; pruned ones are returned as zeros."""

    def step(state, number):
        network, moments = state
        data = batch(jax.random.fold_in(key, number))
        gradient = jax.grad(lambda w: loss(masked(w, masks), data))(network)
        return adam_step(network, moments, gradient, (number + 1).astype(rate.dtype), rate), None

    (network, _), _ = jax.lax.scan(step, (network, no_moments(network)), jnp.arange(steps))
    return masked(network, masks)


def train_and_prune(
    batch: Callable[[PRNGKeyArray], Any],
    loss: Callable[[Network, Any], Array],
    start: Network,
    prunable: tuple[str, ...],
    measure: Callable[[Network, dict[str, Array], dict[str, Array]], dict[str, Array]],
    key: PRNGKeyArray,
    *,
    rounds: int,
    steps: int,
    rate: Array,
    share: Array,
    random: bool = False,
) -> dict[str, Array]:
    """Return `measure(network, masks, masks of the next round)` at the end of every round.

    Every round starts from the same weights and sees the same batches, so without pruning all rounds are equal. The
    smallest weights are removed, or `random` ones.
    """
    to_train, to_choose = jax.random.split(key)
    total = sum(start[name].size for name in prunable)

    def one(masks, number):
        network = train(batch, loss, start, masks, to_train, steps, rate)
        if random:
            keys = jax.random.split(jax.random.fold_in(to_choose, number), len(prunable))
            scores = {
                n: jax.random.uniform(k, start[n].shape, start[n].dtype) for n, k in zip(prunable, keys, strict=True)
            }
        else:
            scores = {n: jnp.abs(network[n]) for n in prunable}
        following = keep_largest(scores, masks, weights_left(total, share, number + 1))
        return following, measure(network, masks, following)

    whole = {name: jnp.ones_like(start[name]) for name in prunable}
    _, found = jax.lax.scan(one, whole, jnp.arange(rounds))
    return found
