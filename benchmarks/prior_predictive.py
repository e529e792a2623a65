"""Laws of random networks' outputs against quadrature, and networks drawn per second on whatever JAX offers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import solvable as sv
from solvable.model import simulate_batch

from .rows import Row, cpu_seconds, largest

SIZE, SEEDS = 10_000, 8


def quadrature(x: float, width: int) -> float:
    """Density of a ReLU network with one hidden layer: binomial mixture of integrals over a gamma variable, with SciPy."""
    from scipy.integrate import quad
    from scipy.stats import binom, gamma, norm

    total = 0.0
    for k in range(1, width + 1):

        def inner(g: float, k: int = k) -> float:
            return gamma.pdf(g, k / 2) * norm.pdf(x, scale=math.sqrt(4 / width * g))

        total += binom.pmf(k, width, 0.5) * quad(inner, 0, np.inf, epsabs=1e-12)[0]
    return float(total)


def prior_predictive() -> Iterator[Row]:
    outputs, width = np.geomspace(0.3, 4.0, 100), 10
    model: Any = sv.PriorPredictive(depth=1, width=width, outputs=outputs)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory().values)
    middle = 50
    one, found = cpu_seconds(lambda: quadrature(outputs[middle], width), best_of=3, warm=False)
    yield Row(
        "prior-predictive", "density and tails of a layer of 10 units at 100 outputs, warm", ours,
        "SciPy quad, the density at 1 output × 100", 100 * one, ratio_least=10.0,
        difference=largest(outcome["density"][middle], found), tolerance=1e-8,
    )  # fmt: skip
    deep: Any = sv.PriorPredictive(depth=20, width=100)  # type: ignore[attr-defined]
    spent, _ = cpu_seconds(lambda: deep.theory().values)
    yield Row("prior-predictive", "law of 20 layers of 100 units, warm", spent, most=1.0)
    four: Any = sv.PriorPredictive(depth=4, width=10)  # type: ignore[attr-defined]
    keys, wall = jax.random.split(jax.random.key(0), SEEDS), []

    def drawn() -> Any:
        begun = time.perf_counter()
        result = jax.block_until_ready(simulate_batch(four, {}, keys, SIZE))
        wall.append(time.perf_counter() - begun)
        return result

    spent, _ = cpu_seconds(drawn, best_of=3)
    device = jax.devices()[0].device_kind
    yield Row(
        "prior-predictive", f"{SIZE * SEEDS:,} networks of 4 × 10 units, drawn and measured, on {device}", min(wall),
        unit="wall s",
        note=f"{spent:.2f} CPU seconds, mostly random numbers",
    )  # fmt: skip
