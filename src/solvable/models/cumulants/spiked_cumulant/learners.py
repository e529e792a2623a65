"""Learners that find the spike from labelled samples: a two-layer network, and random features with a ridge penalty.

Both train on 4/5 of their samples and use the rest to choose the epoch, or the ridge penalty; the test set is fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.fixed_points.linear_algebra import solve_positive
from solvable.methods.training.adam import Moments, adam_step, no_moments

BATCH = 64
RATE = 2e-3  # learning rate of Adam
TEST = 8192
HELD = 4096  # maximum number of validation samples
RIDGES = (1e-4, 1e-2, 1.0)  # per sample
Draw = Callable[[Array, int], tuple[Array, Array]]


class Network(NamedTuple):
    first: Array
    bias: Array
    second: Array
    offset: Array

    def __call__(self, x: Array) -> Array:
        return jax.nn.relu(x @ self.first.T + self.bias[None, :]) @ self.second + self.offset


def begin(key: Array, size: int, width: int, dtype: Any) -> Network:
    """Uniform weights of the usual scale, 1/√fan-in."""
    keys = jax.random.split(key, 4)
    one, two = np.float32(size**-0.5), np.float32(width**-0.5)
    draw = lambda k, shape, scale: jax.random.uniform(k, shape, dtype, -scale, scale)  # noqa: E731
    return Network(draw(keys[0], (width, size), one), draw(keys[1], (width,), one), draw(keys[2], (width,), two),
                   draw(keys[3], (), two))  # fmt: skip


def error_of(outputs: Array, labels: Array) -> Array:
    return jnp.mean((outputs * labels) <= 0)


def _validation(number: Array) -> Array:
    """The number of validation samples: a fifth, at most `HELD`."""
    return jnp.clip(number // 5, 2, HELD)


def fit_network(
    keys: Sequence[Array], draw: Draw, number: Array, size: int, epochs: int, dtype: Any
) -> tuple[Array, Array]:
    """Test error and first-layer weights of a network of 4d units, at the epoch with the lowest validation error.

    Each batch is redrawn from the key of its position, which gives the same samples in every epoch without storing them.
    """
    sample_key, held_key, weight_key, order_key, test_key = keys
    network = begin(weight_key, size, 4 * size, dtype)
    kept = _validation(number)
    batches = jnp.maximum((number - kept) // BATCH, 1)
    held_x, held_y = draw(held_key, HELD)
    there = (jnp.arange(HELD, dtype=jnp.int32) < kept).astype(dtype)

    def loss(net: Network, x: Array, y: Array) -> Array:
        return jnp.mean((net(x) - y) ** 2)

    def step(i: Array, carry: tuple[Network, Moments, Array, Array]) -> tuple[Any, ...]:
        net, moments, epoch, _ = carry
        # start at another position in every epoch
        place = (i + jax.random.randint(jax.random.fold_in(order_key, epoch), (), 0, 1 << 30, jnp.int32)) % batches
        x, y = draw(jax.random.fold_in(sample_key, place), BATCH)
        slope = jax.grad(loss)(net, x, y)
        done = (epoch * batches + i + 1).astype(dtype)
        return *adam_step(net, moments, slope, done, RATE), epoch, batches

    def epoch(state: tuple[Any, ...], number_of: Array) -> tuple[tuple[Any, ...], None]:
        net, moments, best, lowest = state
        net, moments, *_ = jax.lax.fori_loop(jnp.zeros_like(batches), batches, step, (net, moments, number_of, batches))
        wrong = jnp.sum(there * (net(held_x) * held_y <= 0).astype(dtype)) / jnp.sum(there)
        better = wrong < lowest
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), net, best)
        return (net, moments, best, jnp.minimum(wrong, lowest)), None

    start = (network, no_moments(network), network, jnp.asarray(2.0, dtype))
    (_, _, best, _), _ = jax.lax.scan(epoch, start, jnp.arange(epochs, dtype=jnp.int32))
    x, y = draw(test_key, TEST)
    return error_of(best(x), y), best.first


def fit_features(
    keys: Sequence[Array], draw: Draw, number: Array, size: int, epochs: int, dtype: Any
) -> tuple[Array, Array]:
    """The same with a frozen first layer: ridge regression on its features, with the penalty chosen by validation."""
    sample_key, held_key, weight_key, _, test_key = keys
    network = begin(weight_key, size, 4 * size, dtype)
    kept = _validation(number)
    batches = jnp.maximum((number - kept) // BATCH, 1)

    def features(x: Array) -> Array:
        inner = jax.nn.relu(x @ network.first.T + network.bias[None, :])
        return jnp.concatenate([inner, jnp.ones((len(x), 1), dtype)], axis=1)

    def add(place: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = draw(jax.random.fold_in(sample_key, place), BATCH)
        phi = features(x)
        return sums[0] + phi.T @ phi, sums[1] + phi.T @ y

    width = 4 * size + 1
    sums = (jnp.zeros((width, width), dtype), jnp.zeros(width, dtype))
    gram, right = jax.lax.fori_loop(jnp.zeros_like(batches), batches, add, sums)
    seen = (batches * BATCH).astype(dtype)
    held_x, held_y = draw(held_key, HELD)
    there = (jnp.arange(HELD, dtype=jnp.int32) < kept).astype(dtype)
    held = features(held_x)
    fits, wrong = [], []
    for ridge in RIDGES:
        readout = solve_positive(
            (gram / seen + ridge * jnp.eye(width, dtype=dtype)).astype(float), (right / seen).astype(float)
        )
        fits.append(readout.astype(dtype))
        wrong.append(jnp.sum(there * (held @ fits[-1] * held_y <= 0).astype(dtype)) / jnp.sum(there))
    best = jnp.stack(fits)[jnp.argmin(jnp.stack(wrong))]
    x, y = draw(test_key, TEST)
    return error_of(features(x) @ best, y), network.first
