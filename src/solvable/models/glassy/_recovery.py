"""Large systems from random starts: which samplers and flows find the signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._landscape import DEGREE, Covariance, check_dilution, draw_system, walk

AT_ONCE = 4e8  # entries of the tensors that are simulated side by side


def recover(
    key: Array,
    size: int,
    covariance: Covariance,
    kind: str,
    times: Array,
    temperature: Array | None,
    tensor: Callable[[Array], Array] = jnp.ones_like,
) -> dict[str, Array]:
    """Overlaps at given times, and the share of |x|² of the largest component, for both signs of the noise.

    The start is random with the overlap 1/√N, the typical one of a random point, in the hemisphere of the signal: at odd orders
    a negative overlap leads to another minimum, whose overlap is negative.
    """
    system_key, noise_key = jax.random.split(key)
    system = draw_system(system_key, size, covariance, jnp.asarray(size**-0.5), kind, jnp.float32)

    def measure(x: Array) -> dict[str, Array]:
        return {"overlap": x @ system.signal / size, "share": jnp.max(x**2, axis=1) / size}

    curvature = jnp.sqrt(covariance.curvature(jnp.ones(())))
    return walk(noise_key, system, times, measure, temperature=temperature, curvature=curvature, tensor=tensor)


def recovery_table(
    noises: Sequence[float],
    pairs: Mapping[int, int],
    kind: str,
    times: Any,
    *,
    temperature: float | None = None,
    tensor: Callable[[Array], Array] = jnp.ones_like,
) -> Any:
    """Descents or samplers at Δ₃ = 1: Δ₂ by size by seed by time; each of the `pairs` of a size has two, with opposite noise."""
    import xarray as xr

    check_dilution(kind, 3, 1.0, temperature)
    most, stops = 2 * max(pairs.values()), jnp.asarray(times, float)
    heat = None if temperature is None else jnp.asarray(float(temperature))
    names = ("overlap", "share")
    found = {name: np.full((len(noises), len(pairs), most, len(stops)), np.nan, np.float32) for name in names}
    for j, (size, number) in enumerate(pairs.items()):
        batch = max(1, int(AT_ONCE // (size**3 if kind == "dense" else size * DEGREE)))
        program = jax.jit(
            partial(_batch, size=size, kind=kind, times=stops, temperature=heat, tensor=tensor, batch=batch)
        )
        for i, noise in enumerate(noises):
            keys = jax.random.split(jax.random.key(1000 * size + i), number)
            for name, values in program(keys, jnp.asarray(float(noise))).items():  # (pair, time, sign)
                found[name][i, j, : 2 * number] = np.moveaxis(np.asarray(values), 2, 1).reshape(2 * number, -1)
    table = xr.Dataset({name: (("matrix_noise", "size", "seed", "time"), v) for name, v in found.items()})
    return table.assign_coords(matrix_noise=list(noises), size=list(pairs), time=np.asarray(times, float))


def _batch(keys: Array, noise: Array, *, batch: int, size: int, **rest: Any) -> dict[str, Array]:
    covariance = Covariance(noise, jnp.asarray(1.0), 3)
    return jax.lax.map(lambda key: recover(key, size, covariance, **rest), keys, batch_size=batch)
