"""Higher cumulants: a plane of norms, descents by overlaps on any JAX device, FastICA against scikit-learn's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.methods.training.reduced import reduced_descent

from .rows import Row, cpu_seconds


def norms() -> Iterator[Row]:
    snr, samples = np.meshgrid(np.geomspace(0.3, 100, 100), np.geomspace(0.3, 30, 100))
    model = sv.SpikedCumulant(snr=snr.ravel(), samples=samples.ravel())  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory(only=("log_norm", "critical_samples")).values)
    good = int(np.isfinite(outcome["log_norm"]).sum())
    note = f"{good} of 10,000 points converged"
    yield Row("cumulants", "exact norms at n ~ d, 100 × 100 strengths and samples, warm", ours, most=2.0, note=note)


def descents() -> Iterator[Row]:
    """Steps a second, summed over lanes; the targets are 2e7 on a CPU and 5e9 on a GPU."""
    accelerator = jax.default_backend() != "cpu"
    lanes, steps, least = (1 << 20, 3200, 5e9) if accelerator else (4096, 3200, 2e7)
    for model, directions in ((sv.ICA(learner="descent", rate=1e-3), 1), (sv.MixedCumulant(), 2)):  # type: ignore[attr-defined]
        start = jnp.full((directions, lanes), 0.3, jnp.float32)
        run = jax.jit(lambda key, m=model, s=start: reduced_descent(m.stream(1000), key, s, jnp.array([steps])))
        wall: list[float] = []

        def timed(run: Any = run, wall: list[float] = wall) -> Any:
            begun = time.perf_counter()
            outcome = jax.block_until_ready(run(jax.random.key(0)))
            wall.append(time.perf_counter() - begun)
            return outcome

        spent, _ = cpu_seconds(timed, best_of=3)
        seconds = min(wall) if accelerator else spent
        rate = lanes * steps / seconds
        yield Row(
            "cumulants", f"{model.id}: ten million steps by overlaps, {lanes:,} lanes, d = 1000", 1e7 / rate, most=1e7 / least,
            unit="wall s" if accelerator else "CPU s", note=f"{rate:.2g} steps a second on {jax.devices()[0].device_kind}",
        )  # fmt: skip


def fastica() -> Iterator[Row]:
    from sklearn.decomposition import FastICA

    from solvable.models.cumulants.ica.fastica import iterate, spiked

    size, number, steps = 16, 8192, 25
    one, two = jax.random.split(jax.random.key(1))
    x = spiked(one, number, size, 15.0)
    starts = jax.random.normal(two, (size, size), jnp.float32)
    ours, path = cpu_seconds(lambda: iterate(x, starts, steps))
    found = float(np.abs(np.asarray(path)[-1, :, 0]).max())
    data = np.asarray(x, float)

    def theirs() -> Any:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = FastICA(size, fun="cube", whiten="unit-variance", max_iter=steps, tol=0.0, random_state=0).fit(data)
        return peer.mixing_

    spent, mixing = cpu_seconds(theirs, best_of=2, warm=False)
    overlap = float((np.abs(mixing[0]) / np.linalg.norm(mixing, axis=0)).max())
    yield Row(
        "cumulants", f"FastICA, kurtosis, d = {size}, n = {number}, {size} single units from random starts, {steps} steps", ours,
        f"scikit-learn, {size} components in parallel, as many steps", spent, ratio_least=1.0,
        note=f"overlap with the hidden direction {found:.3f} and {overlap:.3f}; ours in single precision",
    )  # fmt: skip


def cumulants() -> Iterator[Row]:
    yield from norms()
    yield from descents()
    yield from fastica()
