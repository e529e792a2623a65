"""The network of the transfer model, its training, and its tasks."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.averages.functions import function_named
from solvable.methods.data.parts import parts_of

TEST_SAMPLES = 8192
BATCH, SHRINK = 100, 1e-4
CHUNK = 4096  # inputs whose features are held in memory at a time


class Network(NamedTuple):
    """v·tanh(Wx)."""

    first: Float[Array, "p D"]
    last: Float[Array, " p"]

    def __call__(self, inputs: Float[Array, "n D"]) -> Float[Array, " n"]:
        return jnp.tanh(inputs @ self.first.T) @ self.last


def random_network(key: PRNGKeyArray, units: int, inputs: int, dtype: Any) -> Network:
    """Random features and initial weights of all training: W with entries of variance 1/D, v of variance 1/p.

    >>> random_network(jax.random.key(0), 3, 5, float).first.shape
    (3, 5)
    """
    one, two = jax.random.split(key)
    first = jax.random.normal(one, (units, inputs), dtype) / math.sqrt(inputs)
    return Network(first, jax.random.normal(two, (units,), dtype) / math.sqrt(units))


def train_network(
    key: PRNGKeyArray, start: Network, inputs: Array, labels: Array, number: Any, rate: Array, steps: int
) -> Network:
    """Train by Adam on the mean logistic loss of batches of the first `number` samples plus a small ridge penalty."""
    optimiser = optax.adam(rate)

    def cost(network: Network, x: Array, y: Array) -> Array:
        shrink = jnp.sum(network.first**2) + jnp.sum(network.last**2)
        return jnp.mean(jax.nn.softplus(-y * network(x))) + 0.5 * SHRINK * shrink

    def step(carry: Any, key: PRNGKeyArray) -> tuple[Any, None]:
        network, state = carry
        rows = jax.random.randint(key, (BATCH,), 0, number)
        slope = jax.grad(cost)(network, inputs[rows], labels[rows])
        with jax.numpy_dtype_promotion("standard"):  # optax mixes Python floats and whole numbers
            move, state = optimiser.update(slope, state)
        return (optax.apply_updates(network, move), state), None

    (network, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), jax.random.split(key, steps))
    return network


def draw_task(key: PRNGKeyArray, manifold: Array, teacher: Array, kind: str, rows: int) -> tuple[Array, Array, Array]:
    """Inputs x, labels and the teacher's field of unit variance, for `rows` samples."""
    latent = jax.random.normal(key, (rows, manifold.shape[1]), manifold.dtype)
    field = latent @ (teacher / jnp.linalg.norm(teacher))
    inputs = function_named(kind)(latent @ manifold.T / math.sqrt(manifold.shape[1]))
    return inputs, jnp.where(field >= 0, 1.0, -1.0).astype(field.dtype), field


class Source(NamedTuple):
    """The source task and the network that has learnt it."""

    manifold: Float[Array, "D d"]
    teacher: Float[Array, " d"]
    network: Network
    test_error: float


@lru_cache(maxsize=32)
def source(
    instance: int, latent: int, inputs: int, units: int, samples: int, kind: str, rate: float, steps: int
) -> Source:
    """Source number `instance`, trained; the result is cached by its arguments.

    >>> source(0, 4, 8, 6, 50, "tanh", 0.02, 10).network.first.shape
    (6, 8)
    """
    return Source(*_source(jax.random.key(instance), latent, inputs, units, samples, kind, rate, steps))


@partial(jax.jit, static_argnums=(1, 2, 3, 4, 5, 7))
def _source(key, latent, inputs, units, samples, kind, rate, steps):
    keys = jax.random.split(key, 6)
    manifold = jax.random.normal(keys[0], (inputs, latent), jnp.float32)
    teacher = jax.random.normal(keys[1], (latent,), jnp.float32)
    x, y, _ = draw_task(keys[2], manifold, teacher, kind, samples)
    start = random_network(keys[3], units, inputs, jnp.float32)
    network = train_network(keys[4], start, x, y, samples, jnp.asarray(rate, jnp.float32), steps)
    x, y, _ = draw_task(keys[5], manifold, teacher, kind, TEST_SAMPLES)
    wrong = jnp.mean((y * network(x) < 0).astype(jnp.float32))
    return manifold, teacher, network, wrong


@partial(jax.jit, static_argnums=(4, 5))
def moments(key, manifold, teacher, layers, kind, samples):
    """E[hhᵀ], E[hν] and E[ν²] over at least `samples` inputs, for each of the stacked first layers."""

    def some(key):
        x, _, field = draw_task(key, manifold, teacher, kind, CHUNK)
        h = jnp.tanh(jnp.einsum("ni,kpi->knp", x, layers))
        sums = jnp.einsum("knp,knr->kpr", h, h), jnp.einsum("knp,n->kp", h, field), jnp.sum(field**2)
        return tuple(s.astype(float) / CHUNK for s in sums)

    sums = jax.lax.map(some, jax.random.split(key, parts_of(samples, most=CHUNK)))
    return tuple(jnp.mean(s, axis=0) for s in sums)
