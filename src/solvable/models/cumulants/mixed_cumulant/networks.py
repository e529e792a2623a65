"""A two-layer network trained by online descent on the mixed cumulant model, or on Gaussian classes with equal moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.flows.descent import descend, steps_at

if TYPE_CHECKING:
    from .model import MixedCumulant

BATCH = 1
TEST = 8192


def draw(model: MixedCumulant, key: Array, number: int, size: int, surrogate: str, dtype: Any) -> tuple[Array, Array]:
    """Samples and labels. The first three axes are the mean m, u and v; along the others both classes are Gaussian.

    A surrogate's positive class is Gaussian with the true mean, and with the true covariance or without it.
    """
    noise_key, label_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (number, size + 2), dtype)
    x, lam, other = noise[:, :size], noise[:, size], noise[:, size + 1]
    y = jnp.where(jax.random.bernoulli(label_key, 0.5, (number,)), 1.0, -1.0).astype(dtype)
    beta_m, beta_u, beta_v = (v.astype(dtype) for v in (model.snr_m, model.snr_u, model.snr_v))
    mean = jnp.sqrt(beta_m) + x[:, 0]
    z_u, z_v = x[:, 1], x[:, 2]
    correlated = model.latents == "correlated"
    if surrogate == "mean":
        along = z_u, z_v
    elif surrogate == "covariance":
        # Cov(s, t) = √(β_u r) E[λν]; t has variance one
        shared = jnp.sqrt(beta_v / (1 + beta_v) * np.float32(2 / np.pi)) if correlated else jnp.zeros((), dtype)
        along = jnp.sqrt(beta_u) * lam + z_u, shared * lam + jnp.sqrt(1 - shared**2) * z_v
    else:
        nu = jnp.sign(lam) if correlated else jnp.sign(other)
        along = jnp.sqrt(beta_u) * lam + z_u, (jnp.sqrt(beta_v) * nu + z_v) / jnp.sqrt(1 + beta_v)
    first = jnp.stack([mean, *along], axis=1)
    positive = (y > 0)[:, None]
    return jnp.concatenate([jnp.where(positive, first, x[:, :3]), x[:, 3:]], axis=1), y


def staircase(model: MixedCumulant, key: Array, size: int, dtype: Any) -> dict[str, Array]:
    """Accuracy on the true classes and the largest overlaps of first-layer weights, at the model's times."""
    weight_key, sample_key, test_key = jax.random.split(key, 3)
    k, scale = model.units, np.float32(1 / np.sqrt(size))
    one, two = jax.random.split(weight_key)
    first = jax.random.normal(one, (k, size), dtype) * scale
    second = jnp.where(jax.random.bernoulli(two, 0.5, (k,)), 1.0, -1.0).astype(dtype) / np.float32(np.sqrt(k))
    rate = model.rate.astype(dtype) / np.float32(size)
    test_x, test_y = draw(model, test_key, TEST, size, "none", dtype)

    def output(weights: tuple[Array, Array, Array, Array], x: Array) -> Array:
        w, b, a, c = weights
        return jax.nn.relu(x @ w.T + b[None, :]) @ a + c

    def loss(weights: Any, x: Array, y: Array) -> Array:
        return jnp.mean(jax.nn.softplus(-y * output(weights, x)))

    def step(number: Array, weights: Any) -> Any:
        x, y = draw(model, jax.random.fold_in(sample_key, number), BATCH, size, model.surrogate, dtype)
        slope = jax.grad(loss)(weights, x, y)
        # one rate for all layers: first-layer weights see inputs of length √d, hence rate/d
        return jax.tree.map(lambda v, g: v - rate * g * np.float32(np.sqrt(k)), weights, slope)

    def measure(weights: Any) -> tuple[Array, ...]:
        w = weights[0]
        cosine = jnp.max(jnp.abs(w[:, :3]) / jnp.linalg.norm(w, axis=1)[:, None], axis=0)
        right = jnp.mean(output(weights, test_x) * test_y > 0)
        return tuple(v.astype(float) for v in (right, *jnp.minimum(cosine, 1.0)))

    start = (first, jnp.zeros(k, dtype), second, jnp.zeros((), dtype))
    accuracy, m, u, v = descend(step, start, steps_at(model.times, size), measure).path
    return {"accuracy": accuracy, "aligned_m": m, "aligned_u": u, "aligned_v": v}
