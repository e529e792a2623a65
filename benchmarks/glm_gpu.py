"""Message passing on an accelerator: `python -m benchmarks.glm_gpu` prints one JSON line per size, with its memory traffic.

The floor of an iteration is two readings of the matrix. On an H200 (nominally 4.8 TB/s) 100,000 weights and 25,000 samples took
4.67 ms an iteration, 4.29 TB/s or 0.89 of the floor; a plain sum over the matrix reads 3.78 TB/s.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from .glm import ITERATIONS, NOISE, SAMPLES, run_gamp


def measure(size: int, samples: float = SAMPLES) -> dict[str, float | str | int]:
    """Seconds of an iteration and the traffic of its two readings of the matrix, beside that of a plain sum over it."""
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
    once = seconds(jax.jit(lambda a: jnp.sum(a * a)), a)
    gigabytes = a.size * 4 / 1e9
    return {
        "device": jax.devices()[0].device_kind,
        "size": size,
        "samples": n,
        "gigabytes": gigabytes,
        "seconds_per_iteration": whole,
        "gigabytes_per_second": 2 * gigabytes / whole,
        "gigabytes_per_second_of_a_sum": gigabytes / once,
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
