"""The shaped transformer: paths of its limit against NumPy, and networks of the paper's size (on a GPU, if there is one)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.model import simulate_batch

from .rows import Row, cpu_seconds

PATHS, STEPS = 10_000, 200


def _euler(paths: int, steps: int, horizon: float = 0.5, ceiling: float = 10.0) -> np.ndarray:
    """Euler steps of the same equation in NumPy, negative eigenvalues set to zero; γ² = ½, τ₀ = 1, c = (0, −1)."""
    m, g2, dt, rng = 3, 0.5, horizon / steps, np.random.default_rng(0)
    V = np.tile(0.8 * np.eye(m) + 0.2, (paths, 1, 1))
    alive = np.ones(paths, bool)
    for _ in range(steps):
        values, vectors = np.linalg.eigh(V)
        F = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
        length = np.einsum("kaa->ka", V)
        scale = np.sqrt(length[:, :, None] * length[:, None, :])
        rho = np.clip(V / scale, -1, 1)
        row = V.mean(2, keepdims=True)
        C = V - row - row.transpose(0, 2, 1) + V.mean((1, 2), keepdims=True)
        own = np.einsum("kaa->ka", C)
        second = length[:, :, None] * (own - own.mean(1, keepdims=True))[:, None, :] / (2 * m) @ V
        drift = g2 * (V * (V * C).sum((1, 2), keepdims=True) / m**2 + second + second.transpose(0, 2, 1))
        drift += g2 / (2 * np.pi) * scale * (np.sqrt(1 - rho**2) - rho * np.arccos(rho))
        G, H = rng.normal(size=(2, paths, m, m))
        W = F @ G @ F.transpose(0, 2, 1)
        Y = F @ H @ F.transpose(0, 2, 1)
        u = (Y - Y.mean(2, keepdims=True)) / m @ V
        noise = np.sqrt(g2 * (4 - g2) / 2) * (W + W.transpose(0, 2, 1)) + g2 * (u + u.transpose(0, 2, 1))
        V = np.where(alive[:, None, None], V + dt * drift + np.sqrt(dt) * noise, V)
        alive &= np.einsum("kaa->ka", V).max(1) < ceiling
    return V[:, 0, 1] / np.sqrt(np.maximum(V[:, 0, 0] * V[:, 1, 1], 1e-12))


def paths() -> Iterator[Row]:
    model, levels = sv.ShapedTransformer(branch=0.5, depth=0.5, points=1), [0.1, 0.5, 0.9]  # type: ignore[attr-defined]
    numerics = {"draws": PATHS, "steps": STEPS}
    ours, found = cpu_seconds(lambda: model.theory(numerics).values, best_of=3)
    theirs, euler = cpu_seconds(lambda: _euler(PATHS // 10, STEPS), best_of=1, warm=False)
    gap = np.abs(np.quantile(found["correlation"], levels) - np.quantile(np.clip(euler, -1, 1), levels)).max()
    yield Row(
        "shaped", f"{PATHS:,} paths × {STEPS} steps, three tokens, warm", ours, "NumPy, Euler and projection, a tenth × 10",
        10 * theirs, most=4.0, difference=float(gap), tolerance=0.1,
        note="difference of the 10, 50 and 90 % quantiles of the correlation; 1,000 paths of the peer are exact to about 0.04",
    )  # fmt: skip


def networks() -> Iterator[Row]:
    """Networks of width 200 and depth 100; their cost is that of the normal numbers, the floor."""
    number, size, tokens = (256 if jax.default_backend() == "cpu" else 16_384), 200, 3
    model = sv.ShapedTransformer(branch=0.5, depth=0.5, points=1)  # type: ignore[attr-defined]
    keys = jnp.stack([model.key(size, seed) for seed in range(number)])
    layers = jax.random.split(jax.random.key(1), (size // 2, number))

    @jax.jit
    def normals(layers: Any) -> Any:
        def draw(total: Any, keys: Any) -> Any:
            return total + jax.vmap(lambda k: jax.random.normal(k, (5, tokens, size), jnp.float32))(keys).sum(), None

        return jax.lax.scan(draw, jnp.zeros((), jnp.float32), layers)[0]

    def waited(call: Any) -> float:
        jax.block_until_ready(call())
        begun = time.perf_counter()
        jax.block_until_ready(call())
        return time.perf_counter() - begun

    yield Row(
        "shaped", f"{number:,} transformers, n = {size}, L = {size // 2}, three tokens",
        waited(lambda: simulate_batch(model, {}, keys, size)), "their normal numbers alone", waited(lambda: normals(layers)),
        floor=True, unit="wall s", note=f"on {jax.devices()[0].device_kind}; no n × n matrix is drawn",
    )  # fmt: skip


def shaped() -> Iterator[Row]:
    yield from paths()
    yield from networks()
