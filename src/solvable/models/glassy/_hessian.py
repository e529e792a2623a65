"""The Hessian of the likelihood along descents of finite systems: its lowest eigenvalue and eigenvector."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable.methods.flows.descent import descend, on_sphere

from ._landscape import Covariance, draw_system

STEPS_PER_TIME = 25


def follow_descent(key: Array, size: int, covariance: Covariance, overlap: Array, times: Any) -> dict[str, Array]:
    """Gradient flow on a dense tensor: overlap, multiplier, lowest eigenvalue on the sphere, squared cosine with the signal.

    The two signs of the noise give two descents. The first axis of every value is time, the second the sign.
    """
    system = draw_system(key, size, covariance, overlap, "dense", jnp.float32)
    signs = jnp.arange(2)

    def drift(x: Array) -> Array:
        pull = system.force(x, 1.0)
        return pull - jnp.sum(pull * x, axis=1, keepdims=True) / size * x

    def step(_: Array, x: Array) -> Array:
        h = 1 / STEPS_PER_TIME
        k = drift(x)
        return on_sphere(x + h / 2 * (k + drift(on_sphere(x + h * k))))

    def curvature(x: Array, sign: Array) -> tuple[Array, Array, Array]:
        point = x[sign]
        slopes = jax.jacfwd(lambda v: system.force(jnp.stack([v, v]), 1.0)[sign])(point)
        mu = point @ system.force(x, 1.0)[sign] / size
        along = point / jnp.sqrt(float(size))
        project = jnp.eye(size) - jnp.outer(along, along)
        hessian = project @ (mu * jnp.eye(size) - 0.5 * (slopes + slopes.T)) @ project
        # x itself is not a direction on the sphere: its eigenvalue is moved above the spectrum
        values, vectors = jnp.linalg.eigh(hessian + 1e3 * jnp.outer(along, along))
        tangent = project @ system.signal
        cosine = vectors[:, 0] @ tangent / jnp.linalg.norm(tangent)
        return mu, values[0], cosine**2

    def measure(x: Array) -> dict[str, Array]:
        found = jax.lax.map(lambda sign: curvature(x, sign), signs)
        return {
            "overlap": x @ system.signal / size,
            **dict(zip(("multiplier", "lowest", "cosine"), found, strict=True)),
        }

    ends = jnp.rint(jnp.asarray(times) * STEPS_PER_TIME).astype(jnp.int32)
    return descend(step, system.start, ends, measure).path
