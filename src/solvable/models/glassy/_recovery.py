"""Large systems from random starts: which flows and samplers find the signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._landscape import DEGREE, Covariance, check_dilution, draw_system, walk

START = 4.0  # initial overlap in units of 1/√N, its standard deviation at a random point
WEAKENED = 100.0  # factor by which annealing weakens the tensor at the start
AT_ONCE = 1.5e9  # entries of the tensors that are simulated side by side


def recovery_table(
    noises: Sequence[float],
    pairs: Mapping[int, int],
    kind: str,
    times: Any,
    *,
    temperature: float | None = None,
    paces: Sequence[float] = (0.0,),
) -> Any:
    """Flows, or samplers at a temperature, at Δ₃ = 1: overlaps for each pace of annealing (0: none), Δ₂, size, seed and time.

    Each of the `pairs` of a size is two systems with opposite noise. Starts are random with the overlap 4/√N: it vanishes as N
    grows, and noise, of order 1/√N, does not turn it around; at odd orders a negative overlap leads to another
    minimum. `share` is the largest share of |x|² in one component: it would be of order one in a condensed system.
    """
    import xarray as xr

    check_dilution(kind, 3, 1.0, temperature)
    stops = jnp.asarray(times, float)
    heat = None if temperature is None else jnp.asarray(float(temperature))
    stiff = jnp.sqrt(jnp.asarray(1 / min(noises) + 2.0))  # the same steps for all: they are one program
    shape = (len(paces), len(noises), len(pairs), 2 * max(pairs.values()), len(stops))
    found = {name: np.full(shape, np.nan, np.float32) for name in ("overlap", "share")}

    def run(lane: tuple[Array, Array, Array], size: int) -> dict[str, Array]:
        (system_key, noise_key), noise, pace = jax.random.split(lane[0]), *lane[1:]
        covariance = Covariance(noise, jnp.asarray(1.0), 3)
        system = draw_system(system_key, size, covariance, jnp.asarray(START * size**-0.5), kind, jnp.float32)

        def measure(x: Array) -> dict[str, Array]:
            return {"overlap": x @ system.signal / size, "share": jnp.max(x**2, axis=1) / size}

        def weight(t: Array) -> Array:
            slow = pace.astype(t.dtype)
            return 1 / (1 + jnp.where(slow > 0, WEAKENED * jnp.exp(-t / jnp.where(slow > 0, slow, 1.0)), 0.0))

        return walk(noise_key, system, stops, measure, temperature=heat, curvature=stiff, tensor=weight)

    for j, (size, number) in enumerate(pairs.items()):
        lanes = [a.reshape(-1) for a in np.meshgrid(paces, noises, np.arange(number), indexing="ij")]
        keys = jax.vmap(lambda i, n=size: jax.random.fold_in(jax.random.key(n), i))(jnp.asarray(lanes[2]))
        batch = max(1, int(AT_ONCE // (size**3 if kind == "dense" else size * DEGREE)))
        program = jax.jit(lambda *lanes, n=size, b=batch: jax.lax.map(lambda lane: run(lane, n), lanes, batch_size=b))
        for name, values in program(keys, jnp.asarray(lanes[1]), jnp.asarray(lanes[0])).items():
            by_sign = np.asarray(values).reshape(len(paces), len(noises), number, len(stops), 2)
            found[name][:, :, j, : 2 * number] = np.moveaxis(by_sign, -1, 3).reshape(*shape[:2], 2 * number, -1)
    table = xr.Dataset({name: (("pace", "matrix_noise", "size", "seed", "time"), v) for name, v in found.items()})
    return table.assign_coords(
        pace=list(paces), matrix_noise=list(noises), size=list(pairs), time=np.asarray(times, float)
    )
