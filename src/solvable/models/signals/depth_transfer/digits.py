"""Residual networks on handwritten digits: at which learning rate do they train best, by depth and scale of the branches?

A network of N units and L blocks, h ← h + (L/2)^(−α) W φ(LN h)/√N with φ = ReLU, reads scikit-learn's digits (8 × 8 pixels, ten
classes) and is trained by full-batch Adam at rate η/√N, hidden weights at η(L/2)^(α−1)/√N (α > 0) or η/√N (α = 0, μP). L = 2 is
the base model of all α.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.methods.data.digits import digit_images
from solvable.methods.training.adam import Moments, adam_step, no_moments
from solvable.methods.training.loops import cross_entropies

BASE_DEPTH, CLASSES = 2, 10


@partial(jax.jit, static_argnames=("depth", "width", "steps", "images"))
def trained_loss(
    key: PRNGKeyArray, exponent: Array, rate: Array, *, depth: int, width: int, steps: int, images: int
) -> Array:
    """Mean cross-entropy on the training images after some steps of Adam.

    >>> loss = trained_loss(jax.random.key(0), 0.5, 0.5, depth=2, width=16, steps=20, images=50)
    >>> bool(loss < 1.5)
    True
    """
    pixels, shown = digit_images()
    to_first, to_hidden, to_pick = jax.random.split(key, 3)
    chosen = jax.random.permutation(to_pick, len(shown))[:images]
    x, y = jnp.asarray(pixels, jnp.float32)[chosen], jnp.asarray(shown)[chosen]
    exponent, rate = jnp.asarray(exponent, jnp.float32), jnp.asarray(rate, jnp.float32)
    deeper = depth / BASE_DEPTH
    weights = {
        "first": jax.random.normal(to_first, (x.shape[1], width), jnp.float32),
        "hidden": jax.random.normal(to_hidden, (depth, width, width), jnp.float32),
        "last": jnp.zeros((width, CLASSES), jnp.float32),
    }
    # N aligned changes of η/√N add up to η√N, which the division by √N in the network makes η, at every width.
    # α = 0 is the width-only rule, whose rates know nothing of the depth either.
    slower = jnp.where(exponent > 0, deeper ** (exponent - 1), 1.0)
    rates = {"first": rate, "hidden": rate * slower, "last": rate}

    def normal(h: Array) -> Array:
        h = h - jnp.mean(h, axis=1, keepdims=True)
        return h * jax.lax.rsqrt(jnp.mean(h**2, axis=1, keepdims=True) + 1e-6)

    def loss(weights: dict[str, Array]) -> Array:
        def block(h: Array, w: Array) -> tuple[Array, None]:
            return h + deeper**-exponent * jax.nn.relu(normal(h)) @ w / width**0.5, None

        h, _ = jax.lax.scan(block, x @ weights["first"] / x.shape[1] ** 0.5, weights["hidden"])
        return jnp.mean(cross_entropies(normal(h) @ weights["last"] / width**0.5, y))

    def step(state: tuple[Any, Moments], number: Array) -> tuple[tuple[Any, Moments], None]:
        weights, moments = state
        each = {n: r / width**0.5 for n, r in rates.items()}
        return adam_step(weights, moments, jax.grad(loss)(weights), number, each, epsilon=1e-12), None

    numbers = jnp.arange(1, steps + 1, dtype=jnp.float32)
    (weights, _), _ = jax.lax.scan(step, (weights, no_moments(weights)), numbers)
    return loss(weights)


def losses(depths: list[int], exponents: list[float], rates: np.ndarray, seeds: int, **shape: int) -> Any:
    """Training losses as a dataset over exponent, depth, rate and seed; seeds draw the images and the network."""
    import xarray as xr

    keys = jax.random.split(jax.random.key(0), seeds)
    found = []
    for depth in depths:
        run = jax.vmap(partial(trained_loss, depth=depth, **shape), (0, None, None))
        run = jax.vmap(jax.vmap(run, (None, None, 0)), (None, 0, None))
        found.append(np.asarray(run(keys, jnp.asarray(exponents), jnp.asarray(rates))))
    dims = ("depth", "exponent", "rate", "seed")
    return xr.Dataset(
        {"loss": (dims, np.stack(found))}, {"depth": depths, "exponent": exponents, "rate": rates}, attrs=dict(shape)
    )
