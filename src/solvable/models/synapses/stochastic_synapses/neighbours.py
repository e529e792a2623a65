r"""All solutions of small systems by enumeration: how many lie near a solution found by descent, and near a typical one.

N is small enough to try all 2^N weight vectors. A solution that annealed descent found is compared with solutions drawn
uniformly from the enumeration: the entropy log(number within a Hamming distance)/N of solutions around it, the error on
the training patterns after a few weights are flipped and, with a teacher, the error on fresh patterns.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .annealing import anneal, schedule


def all_solutions(patterns: np.ndarray) -> np.ndarray:
    """Every σ = ±1 with σ·ξ > 0 for all rows ξ of `patterns`; N is odd and at most 25.

    >>> all_solutions(np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]])).tolist()
    [[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    size = patterns.shape[1]
    bits, found = np.arange(size)[::-1], []
    for numbers in np.array_split(np.arange(2**size), max(2**size >> 16, 1)):
        weights = 2.0 * ((numbers[:, None] >> bits) & 1).astype(np.float32) - 1
        for row in patterns.astype(np.float32):  # every pattern halves the candidates
            weights = weights[weights @ row > 0]
        found.append(weights)
    return np.concatenate(found)


def around(weights: np.ndarray, solutions: np.ndarray) -> np.ndarray:
    """log(number of solutions within a Hamming distance of 0, 1, …, N)/N, for every row of `weights`, which counts too.

    >>> both = np.array([[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])
    >>> (3 * around(both[:1], both)).round(4).tolist()
    [[0.0, 0.6931, 0.6931, 0.6931]]
    """
    size = weights.shape[1]
    distance = np.rint((size - weights @ solutions.T) / 2).astype(int)
    counts = np.stack([np.bincount(row, minlength=size + 1) for row in distance])
    return np.log(np.cumsum(counts, axis=1)) / size


def flipped_error(weights: np.ndarray, patterns: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Training error averaged over the rows of `flips` (±1, −1 where a weight is flipped), for every row of `weights`."""
    moved = weights[:, None, :] * flips[None, :, :]
    return np.mean(moved @ patterns.T <= 0, axis=(1, 2))


def compare(
    labels: str, alpha: float, size: int, systems: int, *, drawn: int = 200, flipped: int = 2
) -> dict[str, np.ndarray]:
    """Solutions found by annealed descent (`found`) and typical ones (`typical`) in each system; NaN where none was found.

    `flipped` weights are flipped, in 200 random choices shared by all solutions of a system.
    """
    rows = round(alpha * size)
    rng = np.random.default_rng([size, round(1000 * alpha), labels == "teacher"])
    patterns = rng.choice([-1.0, 1.0], (systems, rows, size))
    teachers = rng.choice([-1.0, 1.0], (systems, size))
    if labels == "teacher":
        patterns *= np.sign(patterns @ teachers[:, :, None])
    plan, one = jnp.asarray(schedule(20)), jnp.ones(rows, jnp.float32)
    starts = 1e-2 * rng.standard_normal((systems, size))
    search = jax.jit(jax.vmap(lambda x, start: anneal(x, one, plan, start, steps=40)))
    found = search(jnp.asarray(patterns, jnp.float32), jnp.asarray(starts, jnp.float32))
    out: dict[str, list[Any]] = {"solved": np.asarray(found.solved, float).tolist()}
    for i in range(systems):
        solutions = all_solutions(patterns[i])
        some = rng.permutation(len(solutions))[:drawn]
        flips = np.ones((200, size))
        for row in flips:
            row[rng.choice(size, flipped, replace=False)] = -1
        groups = {"typical": solutions[some], "found": np.asarray(found.solution[i : i + 1], float)}
        out.setdefault("number", []).append(len(solutions))
        for name, weights in groups.items():
            there = len(weights) > 0 and (name == "typical" or bool(found.solved[i]))
            near = around(weights, solutions).mean(axis=0) if there else np.full(size + 1, np.nan)
            error = flipped_error(weights, patterns[i], flips).mean() if there else math.nan
            overlap = np.clip(weights @ teachers[i] / size, -1, 1)
            fresh = np.mean(np.arccos(overlap)) / math.pi if there and labels == "teacher" else math.nan
            for what, value in (("near", near), ("flipped_error", error), ("fresh_error", fresh)):
                out.setdefault(f"{name}_{what}", []).append(value)
    return {name: np.array(values) for name, values in out.items()}
