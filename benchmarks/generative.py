"""Generative models: the theory of linear diffusion against a solver of one point after another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from scipy.optimize import brentq

import solvable as sv

from .rows import Row, cpu_seconds, largest

POINTS, MODES = 1000, 200


def _one_by_one(samples: np.ndarray, signal: float, penalty: float) -> np.ndarray:
    """Test errors in the limit, every effective ridge by Brent's method."""
    values = 1.0 / np.arange(1, MODES + 1)
    values /= values.mean()
    a, b = signal, 1 - signal
    ridge = b / a + penalty
    found = []
    for q in samples:
        kappa: Any = brentq(
            lambda k, q=q: k * (1 - np.mean(values / (values + k)) / q) - ridge, ridge, ridge + 1 / q, xtol=1e-14
        )
        g = 1 / (values + kappa)
        omega = np.mean((values * g) ** 2) / q

        def pair(inner: Any, g: Any = g, omega: Any = omega, q: Any = q) -> float:
            return np.mean(inner * g**2) + np.mean(values * g**2) * np.mean(inner * values * g**2) / q / (1 - omega)

        r = kappa / ridge
        found.append(1 - 2 * b / a * r * np.mean(g) + b / a**2 * r**2 * (a * pair(values) + b * pair(1.0)))
    return np.array(found)


def generative() -> Iterator[Row]:
    samples = np.geomspace(0.2, 8, POINTS)
    settings: dict[str, Any] = {"covariance": "power-law", "modes": MODES, "samples": samples, "signal": 0.9}
    limit = sv.LinearDiffusion(penalty=0.1, dimension=0, **settings)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: limit.theory().values)
    theirs, losses = cpu_seconds(lambda: _one_by_one(samples, 0.9, 0.1), best_of=2, warm=False)
    yield Row(
        "generative", f"linear diffusion, errors and divergences at {POINTS:,} points, {MODES} eigenvalues, warm", ours,
        "NumPy and SciPy's brentq, test errors only, one point after another", theirs, most=1.0,
        difference=largest(outcome["test_loss"], losses), tolerance=1e-9,
    )  # fmt: skip
    flow = sv.LinearDiffusion(training="flow", sampler="steps", steps=200, **settings)  # type: ignore[attr-defined]
    for only, words, most in ((["test_loss", "train_loss"], "errors", 1.0), (None, "errors and sampled law", None)):
        wall: list[float] = []

        def timed(only: Any = only, wall: list[float] = wall) -> Any:
            begun = time.perf_counter()
            outcome = jax.block_until_ready(flow.theory(only=only).values)
            wall.append(time.perf_counter() - begun)
            return outcome

        spent, _ = cpu_seconds(timed, best_of=3)
        yield Row(
            "generative", f"the same with early stopping, {words} by contour integrals, finite size, warm", spent, most=most,
            wall=min(wall), note="200 denoising steps" if only is None else "",
        )  # fmt: skip
