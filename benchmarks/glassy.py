"""Rough landscapes: a phase diagram of state evolution and counts of minima, against plain loops in NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

import solvable as sv

from .rows import Row, cpu_seconds, largest


def glassy() -> Iterator[Row]:
    yield _phase_diagram()
    yield _minima()


def _phase_diagram() -> Row:
    matrix, tensor = np.linspace(0.1, 2.0, 200), np.geomspace(0.2, 4.0, 200)
    model = sv.SpikedMatrixTensor(matrix_noise=matrix[:, None], tensor_noise=tensor[None, :], initial_overlap=0.0)  # type: ignore[attr-defined]
    names = ["final_overlap", "optimal_overlap", "phase"]
    ours, outcome = cpu_seconds(lambda: model.theory(only=names).values)
    sample = [(i, j) for i in range(5, 200, 20) for j in range(5, 200, 20)]
    theirs, found = cpu_seconds(lambda: [_fixed_points(matrix[i], tensor[j]) for i, j in sample], best_of=2, warm=False)
    ours_there = [[outcome[name][i, j] for name in names[:2]] for i, j in sample]
    return Row(
        "glassy",
        "state evolution of order 3: fixed points and phases, 200 × 200 points, warm",
        ours,
        f"NumPy scan + SciPy brentq, {len(sample)} points × {40000 // len(sample)}",
        theirs * 40000 / len(sample),
        most=2.0,
        ratio_least=20,
        difference=largest(ours_there, found),
        tolerance=1e-8,
        note="both sides bracket every fixed point; the free entropy selects that of the posterior",
    )


def _fixed_points(matrix: float, tensor: float) -> tuple[float, float]:
    """The overlap reached from zero by iteration, and that of the posterior: a scan for signs, then Brent's method."""
    grid = np.linspace(1e-9, 1 - 1e-9, 400)

    def gain(m):
        return (1 / matrix + m / tensor) * (1 - m) - 1

    values = gain(grid)
    roots: list[Any] = [
        brentq(gain, grid[i], grid[i + 1], xtol=1e-14) for i in np.flatnonzero(values[1:] * values[:-1] < 0)
    ]
    heights = [np.log1p(-m) + m + m**2 / (2 * matrix) + m**3 / (3 * tensor) for m in roots]
    best = max(zip(heights, roots, strict=True), default=(0.0, 0.0))
    return (roots[0] if values[0] > 0 else 0.0), (best[1] if best[0] > 0 else 0.0)


def _minima() -> Row:
    noises, latitudes = np.linspace(0.25, 0.8, 250), np.linspace(-0.6, 0.9, 40)
    model = sv.SpikedMatrixTensor(matrix_noise=noises, latitudes=latitudes)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory(only=["minima"]).values)
    sample = [(i, j) for i in range(5, 250, 50) for j in range(2, 40, 4)]
    theirs, found = cpu_seconds(
        lambda: [_complexity(latitudes[j], noises[i]) for i, j in sample], best_of=2, warm=False
    )
    return Row(
        "glassy",
        "complexity of minima at 10,000 overlaps and noises, warm",
        ours,
        f"SciPy bounded maximisation over the pressure, {len(sample)} × {10000 // len(sample)}",
        theirs * 10000 / len(sample),
        difference=largest([outcome["minima"][i, j] for i, j in sample], found),
        tolerance=1e-8,
        note="ours solves a quadratic equation",
    )


def _complexity(m: float, noise: float) -> float:
    """The Kac–Rice formula for order 3 and tensor noise 1, with a numerical maximum over the pressure."""
    beta = 1 / noise
    a, b, pull = beta + 1, beta + 2, beta * m + m * m
    sigma, theta = np.sqrt(b), (beta + 2 * m) * (1 - m * m) / np.sqrt(b)
    edge = theta + 1 / theta if theta > 0 else 2.0

    def primitive(t):
        root = np.sqrt(max(t * t - 4, 0.0))
        return t * root / 8 - 0.5 * np.log((t + root) / 2)

    def negative(t):
        root = np.sqrt(max(t * t - 4, 0.0))
        gain = t * t / 4 - 0.5 - t * root / 4 + np.log((t + root) / 2) - (sigma * t - m * pull) ** 2 / (2 * (a + b))
        if theta > 1 and t < edge:
            gain -= primitive(t) - primitive(edge) - theta / 2 * (t - edge) + (t * t - edge * edge) / 8
        return -gain

    inside: Any = minimize_scalar(negative, bounds=(2.0, 12.0), method="bounded", options={"xatol": 1e-10})
    best = max(-inside.fun, -negative(2.0))
    return 0.5 + 0.5 * np.log((1 - m * m) * b / a) - pull**2 * (1 - m * m) / (2 * a) + best
