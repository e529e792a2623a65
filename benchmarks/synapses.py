"""Weights with a few levels: capacities, a curve of local entropy, and message passing at its memory floor (on a GPU)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp

import solvable as sv
from solvable.methods.fixed_points.belief_propagation import pass_messages
from solvable.methods.fixed_points.discrete_weights import capacity

from .rows import Row, cpu_seconds, largest

SIZE, SAMPLES = 10_001, 0.6


def _capacity_by_quad(levels: np.ndarray) -> float:
    """The zero of the entropy for weights ±1: plain iteration of the saddle point with SciPy's quad, then brentq."""
    density = lambda z: np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)  # noqa: E731
    mean = lambda f: quad(lambda z: density(z) * f(z), -9, 9, epsabs=1e-11, epsrel=1e-11)[0]  # noqa: E731

    def entropy(alpha: float) -> float:
        q = 0.4
        for _ in range(400):
            root, rest = np.sqrt(q), np.sqrt(1 - q)
            ratio = lambda z: np.exp(-0.5 * (root * z / rest) ** 2 - log_ndtr(root * z / rest)) / np.sqrt(2 * np.pi)  # noqa: B023, E731
            hat = alpha / (1 - q) * mean(lambda z: ratio(z) ** 2)  # noqa: B023
            new = mean(lambda z: np.tanh(np.sqrt(hat) * z) ** 2)  # noqa: B023
            if abs(new - q) < 1e-9:
                break
            q = new
        weights = mean(lambda z: logsumexp(np.sqrt(hat) * z * levels))
        return -0.5 * hat * (1 - q) + weights + alpha * mean(lambda z: log_ndtr(root * z / rest))

    root: Any = brentq(entropy, 0.8, 0.86, xtol=1e-6)
    return float(root)


def capacities() -> Iterator[Row]:
    margins, pair = jnp.linspace(0.0, 2.0, 1000), jnp.asarray([-1.0, 1.0])
    ask = jax.jit(jax.vmap(capacity, (None, 0)))
    ours, found = cpu_seconds(lambda: ask(pair, margins).samples, best_of=3)
    theirs, value = cpu_seconds(lambda: _capacity_by_quad(np.asarray(pair)), best_of=1, warm=False)
    yield Row(
        "synapses", "capacity of ±1 weights at 1,000 margins, warm", ours, "SciPy quad and brentq, 1 point × 1000",
        1000 * theirs, most=2.0, difference=largest(found[0], value), tolerance=1e-5,
    )  # fmt: skip


def local_entropies() -> Iterator[Row]:
    for name, levels, alpha, reach in (("±1", (-1.0, 1.0), 0.7, 0.5), ("-1, 0, 1", (-1.0, 0.0, 1.0), 0.8, 0.45)):
        distance = np.linspace(0.03, reach, 40)
        model = sv.FewBitSynapses(levels=np.array(levels), samples=alpha, distance=distance)  # type: ignore[attr-defined]
        ours, found = cpu_seconds(lambda model=model: model.theory(only=["local_entropy"]).values, best_of=3)
        done = int(np.isfinite(found["local_entropy"]).sum())
        what = f"local entropy of {name} at 40 distances, α = {alpha}, warm"
        yield Row("synapses", what, ours, most=1.0, note=f"{done} of 40 converged")


def messages() -> Iterator[Row]:
    """Every sweep reads the patterns three times: for the fields, for the responses, and to test the most likely weights."""
    if jax.default_backend() == "cpu":
        return
    rows = round(SAMPLES * SIZE)
    patterns = jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, (rows, SIZE)), 1.0, -1.0).astype(jnp.float32)
    search = jax.jit(lambda x: pass_messages(x, jnp.asarray([-1.0, 1.0]), reinforcement=0.003, most=1500))
    other = jnp.ones((1 << 28,), jnp.float32)
    copy = jax.jit(lambda x: x + 1)

    def waited(call: Any) -> tuple[float, Any]:
        jax.block_until_ready(call())
        begun = time.perf_counter()
        result = jax.block_until_ready(call())
        return time.perf_counter() - begun, result

    seconds, found = waited(lambda: search(patterns))
    moved, _ = waited(lambda: [copy(other) for _ in range(10)])
    floor = 3 * patterns.nbytes * int(found.sweeps) / (20 * other.nbytes / moved)
    yield Row(
        "synapses", f"reinforced message passing, N = {SIZE}, α = {SAMPLES}, to its solution", seconds,
        "its reads at the speed of a copy", floor, floor=True, unit="wall s",
        note=f"solved: {bool(found.solved)}, {int(found.sweeps)} sweeps; {floor / seconds:.0%} of the memory floor",
    )  # fmt: skip


def synapses() -> Iterator[Row]:
    yield from capacities()
    yield from local_entropies()
    yield from messages()
