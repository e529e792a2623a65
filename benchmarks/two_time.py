"""Two-time equations of glassy dynamics against a compiled first-order loop, and against the memory traffic."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.flows.two_time import BLOCK, Mixture, TwoTime, relax
from solvable.methods.flows.two_time_log import relax_log

from .rows import Row, cpu_seconds

INTERPRETER = "SOLVABLE_PYDCA_PYTHON"  # the same one as for Gibbs sampling: it has numba
UNTIL, STEPS, SAVES, START = 20.0, 2000, 20, 0.1
SECOND, THIRD = 0.7, 1.0  # variances of the noise on the matrix and on the tensor
NAMES = ("overlap", "multiplier", "energy", "start")


def flow(steps: int) -> TwoTime:
    covariance = Mixture({2: 1 / (2 * SECOND), 3: 1 / (3 * THIRD)})
    return relax(covariance, UNTIL / steps, steps, overlap=START, tolerance=1.0)


def curves(path: TwoTime) -> dict[str, np.ndarray]:
    every = (len(path.times) - 1) // SAVES
    values = path.overlap, path.multiplier, path.energy, path.correlation[:, 0]
    return {name: np.asarray(v)[::every] for name, v in zip(NAMES, values, strict=True)}


def error(found: dict[str, Any], exact: dict[str, np.ndarray]) -> float:
    """The largest error among overlap, multiplier, energy and C(t,0), without t = 0."""
    return float(np.max([np.abs(np.asarray(found[name])[1:] - exact[name][1:]) for name in NAMES]))


def two_time() -> Iterator[Row]:
    exact = curves(flow(2 * STEPS))
    spent, path = cpu_seconds(lambda: flow(STEPS), best_of=2)
    ours, what = error(curves(path), exact), f"spiked 3-spin, T = 0, t = {UNTIL:g}, n = {STEPS} and n/2, warm"
    known = f"our error is {ours:.1e} against n = {2 * STEPS}, extrapolated; the reported one is {float(path.error.max()):.1e}"
    python = os.environ.get(INTERPRETER)
    if not python:
        yield Row("two-time", what, spent, note=f"{known}; the peer was skipped: {INTERPRETER} names no interpreter")
    else:
        values = (UNTIL, STEPS, SAVES, 1 / SECOND, 1 / THIRD, 0.0, START)
        words = [python, str(Path(__file__).with_name("two_time_peer.py")), *map(str, values)]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=600, check=True).stdout)
        theirs = error(found, exact)
        peer = "numba loop, first order"
        yield Row(
            "two-time", what, spent, f"{peer}, n = {STEPS}", found["cpu"], ratio_least=1.0, difference=ours, tolerance=1e-5,
            note=f"{known}; the peer's error is {theirs:.1e}",
        )  # fmt: skip
        steps = 2 * SAVES
        while not error(curves(flow(steps)), exact) <= theirs:  # NaN is not accurate
            steps *= 2
        spent, path = cpu_seconds(lambda: flow(steps))
        yield Row(
            "two-time", f"the same at the peer's accuracy, n = {steps} and n/2, warm", spent, f"{peer}, n = {STEPS}",
            found["cpu"], ratio_least=10.0, difference=error(curves(path), exact), tolerance=theirs,
            note=f"the peer's error is {theirs:.1e}; the fewest steps by doubling with a smaller error",
        )  # fmt: skip
    yield from long_times()
    if jax.default_backend() == "gpu":
        yield from on_a_gpu()


def long_times() -> Iterator[Row]:
    until = 1e4
    spent, path = cpu_seconds(lambda: relax_log(Mixture({3: 0.5}), until), best_of=1)
    above = np.asarray(path.energy) + 2 / np.sqrt(3.0)
    late = np.asarray(path.times) > 100
    power = -np.polyfit(np.log(np.asarray(path.times)[late]), np.log(above[late]), 1)[0]
    yield Row(
        "two-time", f"pure 3-spin, T = 0, to t = {until:g} by steps in ln t, warm", spent,
        difference=abs(power - 2 / 3), tolerance=0.01,
        note=f"the energy falls towards its threshold as t^-{power:.3f} from t = 100; difference: from 2/3; "
        f"largest error reported {float(path.error.max()):.1e}",
    )  # fmt: skip


def on_a_gpu() -> Iterator[Row]:
    steps, batch = 4000, 16
    temperatures = jnp.linspace(0.0, 0.5, batch)
    march = jax.jit(jax.vmap(lambda T: relax(Mixture({3: 0.5}), 0.02, steps, temperature=T).energy))
    data = jnp.zeros(2**28)
    copy = jax.jit(lambda v: v + 1)

    def wall(call: Any, times: int) -> float:
        jax.block_until_ready(call())
        spent = []
        for _ in range(times):
            begun = time.perf_counter()
            jax.block_until_ready(call())
            spent.append(time.perf_counter() - begun)
        return min(spent)

    bandwidth = 2 * data.nbytes / wall(lambda: copy(data), 5)
    # A block reads the lower triangles of C and R at least once: 8 i² bytes at row i; n and n/2 steps.
    moved = batch * 8 * steps**3 / (3 * BLOCK) * (1 + 1 / 8)
    spent, floor = wall(lambda: march(temperatures), 2), moved / bandwidth
    yield Row(
        "two-time", f"n = {steps} and n/2, {batch} temperatures at once, on a GPU", spent, "the bytes that must move", floor,
        floor=True, unit="s",
        note=f"{moved:.3g} bytes (both triangles once for every {BLOCK} rows) at {bandwidth / 1e12:.2f} TB/s of a copy in "
        f"the same run: {floor / spent:.1%} of the floor's speed",
    )  # fmt: skip
