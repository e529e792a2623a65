"""Descents of the plain loss in large systems: many numbers of measurements and starts on one drawn set of measurements.

A descent may be *confined* to the sphere's equator, where the overlap with the signal is zero. There it ends in a state
without overlap however many measurements there are: the state whose Hessian the theory of trapped states describes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.flows.descent import descend, on_sphere

from .model import STEPS_PER_TIME
from .threshold_states import losses


@partial(jax.jit, static_argnames=("size", "most", "starts", "confined", "spectra"))
def _run(
    key: Array, size: int, most: int, numbers: Array, ends: Array, starts: int, confined: bool, spectra: bool
) -> dict[str, Array]:
    signal_key, start_key, data_key = jax.random.split(key, 3)
    signal = on_sphere(jax.random.normal(signal_key, (size,), jnp.float32))
    xi = jax.random.normal(data_key, (most, size), jnp.float32) / math.sqrt(size)
    y = xi @ signal
    used = jnp.repeat(numbers, starts)  # the descents on n measurements see the first n of them
    mask = (jnp.arange(most)[None, :] < used[:, None]).astype(jnp.float32)
    pace = (size / used).astype(jnp.float32)[:, None]
    zero = jnp.zeros((), jnp.float32)

    def kept(w: Array) -> Array:
        return on_sphere(w - (w @ signal / size)[:, None] * signal[None, :] if confined else w)

    def step(_: Array, w: Array) -> Array:
        slope = losses(w @ xi.T, y[None, :], zero)[1]
        pull = pace * ((mask * slope) @ xi)
        pull = pull - (jnp.sum(pull * w, axis=1, keepdims=True) / size) * w
        return kept(w - pull / STEPS_PER_TIME)

    def measure(w: Array) -> dict[str, Array]:
        prediction = w @ xi.T
        loss = jnp.sum(mask * losses(prediction, y[None, :], zero)[0], axis=1) / used
        square = jnp.sum(mask * prediction**2, axis=1) / used
        return {"loss": loss, "overlap": w @ signal / size, "square": square}

    w = kept(jax.random.normal(start_key, (len(used), size), jnp.float32))
    run = descend(step, w, ends, measure)

    def lowest(lane: tuple[Array, Array]) -> tuple[Array, Array]:
        """The lowest eigenvalue of the Hessian on the sphere, and the squared cosine of its eigenvector with the signal."""
        w, inside = lane
        prediction = xi @ w
        _, slope, curvature = losses(prediction, y, zero)
        hessian = ((inside * curvature)[None, :] * xi.T) @ xi - (inside @ (slope * prediction) / size) * jnp.eye(
            size, dtype=w.dtype
        )
        along = w / math.sqrt(size)
        project = jnp.eye(size, dtype=w.dtype) - jnp.outer(along, along)
        # w itself is not a direction on the sphere: its eigenvalue is moved above the spectrum
        values, vectors = jnp.linalg.eigh(project @ hessian @ project + 1e3 * jnp.outer(along, along))
        tangent = project @ signal
        return values[0], (vectors[:, 0] @ tangent) ** 2 / (tangent @ tangent)

    found = run.path
    if spectra:
        found["lowest"], found["alignment"] = jax.lax.map(lowest, (run.state, mask))
    return found


def descents(
    seed: int,
    size: int,
    samples: Sequence[float],
    times: Any,
    starts: int,
    *,
    confined: bool = False,
    spectra: bool = False,
) -> dict[str, np.ndarray]:
    """Loss, overlap and mean square prediction by α, start and time, and with `spectra` the Hessian's lowest direction."""
    numbers = np.rint(np.asarray(samples) * size).astype(int)
    ends = jnp.rint(jnp.asarray(times) * STEPS_PER_TIME).astype(jnp.int32)
    key = jax.random.fold_in(jax.random.key(size), seed)
    with jax.default_matmul_precision("highest"):
        found = _run(key, size, int(numbers.max()), jnp.asarray(numbers), ends, starts, confined, spectra)
    shape = (len(samples), starts)
    out = {
        name: np.moveaxis(np.asarray(found[name]), 0, -1).reshape(*shape, -1) for name in ("loss", "overlap", "square")
    }
    return out | {name: np.asarray(found[name]).reshape(shape) for name in ("lowest", "alignment") if spectra}
