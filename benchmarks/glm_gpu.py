"""Message passing on an accelerator: `python -m benchmarks.glm_gpu` prints one JSON line per size, with the memory floor."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from .glm import ITERATIONS, NOISE, SAMPLES, run_gamp


def measure(size: int, samples: float = SAMPLES) -> dict[str, float | str | int]:
    """Seconds of an iteration, and the fraction of the time that two readings of the matrix must take at least."""
    n = int(samples * size)
    of_inputs, of_teacher, of_noise = jax.random.split(jax.random.key(0), 3)
    a = jax.random.normal(of_inputs, (n, size), jnp.float32) / size**0.5
    kept = jax.random.uniform(of_teacher, (size,), jnp.float32) < 0.2
    teacher = kept * jax.random.normal(of_noise, (size,), jnp.float32) * 5**0.5
    y = a @ teacher + NOISE**0.5 * jax.random.normal(of_noise, (n,), jnp.float32)

    def seconds(call, *data) -> float:
        jax.block_until_ready(call(*data))
        spent = []
        for _ in range(3):
            begun = time.perf_counter()
            jax.block_until_ready(call(*data))
            spent.append(time.perf_counter() - begun)
        return min(spent)

    whole = seconds(jax.jit(lambda a, y: run_gamp(a, y, ITERATIONS).estimate), a, y) / ITERATIONS
    error = float(jnp.mean((jax.jit(lambda a, y: run_gamp(a, y, ITERATIONS).estimate)(a, y) - teacher) ** 2))
    # The floor: reading the matrix once, as a sum over it does.
    once = seconds(jax.jit(lambda a: jnp.sum(a * a)), a)
    gigabytes = a.size * 4 / 1e9
    return {
        "device": jax.devices()[0].device_kind,
        "size": size,
        "samples": n,
        "gigabytes": gigabytes,
        "seconds_per_iteration": whole,
        "bandwidth_read": gigabytes / once,
        "fraction_of_floor": 2 * once / whole,
        "error": error,
    }


if __name__ == "__main__":
    out = Path(os.environ.get("OUT", "."))
    largest = int(os.environ.get("LARGEST", "100000"))
    with (out / "gamp.jsonl").open("w") as file:
        for size, samples in ((10_000, 0.5), (30_000, 0.5), (100_000, 0.25)):
            if size <= largest:
                line = json.dumps(measure(size, samples))
                print(line, flush=True)
                file.write(line + "\n")
                file.flush()
