"""Large systems from nearly random starts: which flows and samplers find the signal.

All lanes of a system — Δ₂, the pace of annealing, the sign of the noise — share one drawn noise and one start: its tensor is
read once for all of them, and differences between lanes are differences of the same system.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.methods.flows.descent import on_sphere

from ._landscape import DEGREE, System, check_dilution, dense_force, draw_groups, walk

START = 4.0  # initial overlap in units of 1/√N, its standard deviation at a random point
WEAKENED = 100.0  # factor by which annealing weakens the tensor at the start
TOGETHER = 10  # groups of a diluted system in one kernel
AT_ONCE = 1.5e8  # entries of the tensors of the systems that are simulated side by side
ORDERS = 2, 3


class Lanes(NamedTuple):
    """What differs between the lanes of a system: Δ₂, the sign of the noise, the time scale of annealing (0: none)."""

    matrix_noise: Float[Array, " lane"]
    sign: Float[Array, " lane"]
    pace: Float[Array, " lane"]


def _noise_force(key: Array, size: int, order: int, kind: str) -> Any:
    """The force of the noise of one order on points (lane, site)."""
    if kind == "dense":
        return dense_force(jax.random.normal(key, (size,) * order, jnp.float32))
    to_draw, to_place = jax.random.split(key)
    signs = jax.random.normal(to_draw, (DEGREE // order, size), jnp.float32)
    near, coupling = draw_groups(to_place, signs, order)
    parts = jnp.moveaxis(near, 1, 0).reshape(-1, TOGETHER, order - 1, size), coupling.reshape(-1, TOGETHER, size)

    def force(x: Array) -> Array:
        rows = x.T  # the lanes of a site are read together

        def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            for sites, value in zip(*part, strict=True):
                total = total + value[:, None] * math.prod(rows[s] for s in sites)
            return total, None

        return jax.lax.scan(add, jnp.zeros_like(rows), parts)[0].T

    return force


def draw_lanes(key: Array, size: int, kind: str, lanes: Lanes, overlap: float | None = None) -> System:
    """One noise, p = 3 and Δ₃ = 1, as every lane sees it; all lanes start at the same point, of this overlap or 4/√N."""
    keys = jax.random.split(key, 4)
    signal = on_sphere(jax.random.normal(keys[0], (size,), jnp.float32))
    across = jax.random.normal(keys[1], (size,), jnp.float32)
    across = on_sphere(across - (across @ signal / size) * signal)
    m = START * size**-0.5 if overlap is None else overlap
    start = m * signal + math.sqrt(1 - m**2) * across
    noises = [_noise_force(k, size, order, kind) for k, order in zip(keys[2:], ORDERS, strict=True)]
    signs = lanes.sign[:, None]
    scales = [1 / lanes.matrix_noise[:, None], 1.0]

    def parts(x: Array) -> list[Array]:
        m = (x @ signal / size)[:, None]
        return [
            signs * jnp.sqrt(scale) * noise(x) + scale * m ** (order - 1) * signal[None, :]
            for order, scale, noise in zip(ORDERS, scales, noises, strict=True)
        ]

    def force(x: Array, tensor: Array | float = 1.0) -> Array:
        matrix_part, tensor_part = parts(x)
        return matrix_part + tensor * tensor_part

    def measure(x: Array, tensor: Array | float = 1.0) -> tuple[Array, Array]:
        weight = jnp.broadcast_to(jnp.asarray(tensor), signs.shape)[:, 0]
        matrix_part, tensor_part = (jnp.sum(x * part, axis=1) / size for part in parts(x))
        return -matrix_part / 2 - weight * tensor_part / ORDERS[1], matrix_part + weight * tensor_part

    return System(signal, signs, jnp.tile(start, (len(signs), 1)), force, measure)


@partial(jax.jit, static_argnames=("size", "kind", "warm", "overlap"))
def _recover(
    keys: Array, size: int, kind: str, lanes: Lanes, stops: Array, stiff: Array, warm: bool, overlap: float | None
) -> dict[str, Array]:
    slow = lanes.pace[:, None]

    def weight(t: Array) -> Array:
        return 1 / (1 + jnp.where(slow > 0, WEAKENED * jnp.exp(-t / jnp.where(slow > 0, slow, 1.0)), 0.0))

    def one(key: Array) -> dict[str, Array]:
        system_key, noise_key = jax.random.split(key)
        system = draw_lanes(system_key, size, kind, lanes, overlap)

        def measure(x: Array) -> dict[str, Array]:
            return {"overlap": x @ system.signal / size, "share": jnp.max(x**2, axis=1) / size}

        heat = jnp.ones(()) if warm else None
        return walk(noise_key, system, stops, measure, temperature=heat, curvature=stiff, tensor=weight)

    with jax.default_matmul_precision("highest"):
        return jax.vmap(one)(keys)


def recover(
    seeds: Sequence[int],
    size: int,
    kind: str,
    noises: Sequence[float],
    times: Any,
    *,
    warm: bool = False,
    paces: Sequence[float] = (0.0,),
    overlap: float | None = None,
) -> dict[str, np.ndarray]:
    """Flows (or samplers at T = 1 if `warm`) from an overlap, or else 4/√N: by seed, pace, Δ₂, sign of the noise and time.

    The overlap 4/√N of the start vanishes as N grows, and noise, of order 1/√N, does not turn it around; at odd orders a
    negative overlap leads to another minimum. `share` is the largest share of |x|² in one component: it would be of
    order one in a condensed system.
    """
    check_dilution(kind, 3, 1.0, 1.0 if warm else None)
    grid = np.meshgrid(paces, noises, [1.0, -1.0], indexing="ij")
    pace, noise, sign = (jnp.asarray(a.reshape(-1), jnp.float32) for a in grid)
    stiff = jnp.sqrt(jnp.asarray(1 / min(noises) + 2.0))  # the same steps for all lanes
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(size), seed))(jnp.asarray(list(seeds)))
    found = _recover(keys, size, kind, Lanes(noise, sign, pace), jnp.asarray(times, float), stiff, warm, overlap)
    return {name: np.moveaxis(np.asarray(v), 1, -1).reshape(len(keys), *grid[0].shape, -1) for name, v in found.items()}


def recovery_table(found: Mapping[int, Mapping[str, np.ndarray]], noises: Any, times: Any, paces: Any = (0.0,)) -> Any:
    """One table of what `recover` found at each size; NaN where a size has fewer systems than another."""
    import xarray as xr

    dims = ("pace", "matrix_noise", "size", "seed", "sign", "time")
    most = max(len(one["overlap"]) for one in found.values())
    tables = {}
    for name in ("overlap", "share"):
        parts = [
            np.pad(f[name], [(0, most - len(f[name])), *[(0, 0)] * 4], constant_values=np.nan) for f in found.values()
        ]
        tables[name] = (dims, np.moveaxis(np.stack(parts), [0, 1], [2, 3]).astype(np.float32))
    return xr.Dataset(tables).assign_coords(
        pace=list(paces), matrix_noise=list(noises), size=list(found), sign=[1, -1], time=np.asarray(times, float)
    )


def recover_all(systems: Mapping[int, int], kind: str, noises: Any, times: Any, **settings: Any) -> Any:
    """`recover` for a number of systems of each size, as many at once as fit."""
    found = {}
    for size, number in systems.items():
        batch = max(1, int(AT_ONCE // (size**3 if kind == "dense" else size * DEGREE)))
        parts = [
            recover(range(first, min(first + batch, number)), size, kind, noises, times, **settings)
            for first in range(0, number, batch)
        ]
        found[size] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return recovery_table(found, noises, times, settings.get("paces", (0.0,)))
