"""Random-features diffusion: training curves of two classes, one point and a batch, and a realisation."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

import solvable as sv

from .rows import Row, cpu_seconds, largest

TIMES = [3.0, 10.0, 30.0, 100.0, 300.0, 1e5]
KNOWN = [[0.7839998492116331, 1.2662568161883079], [1.0021925885703618, 2.0581885561868494]]
"""Test losses at times 30 and 1e5 by an independent NumPy solver, which needs 0.07 s."""


def curves() -> Iterator[Row]:
    names = ["train_loss", "test_loss"]
    model = sv.FeatureDiffusion(share=0.9, times=TIMES)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory(only=names).values)
    yield Row(
        "feature-diffusion", "random-features diffusion, train and test loss of two classes at six times, one point, warm", ours,
        most=0.05, difference=largest(outcome["test_loss"][np.array([2, 5])], KNOWN), tolerance=1e-4,
    )  # fmt: skip
    many = model.replace(samples=np.geomspace(0.5, 20, 32))
    batch, _ = cpu_seconds(lambda: many.theory(only=names).values, best_of=3)
    yield Row("feature-diffusion", "the same, per point of a batch of 32 sample ratios", batch / 32, most=0.05)
    everything, _ = cpu_seconds(lambda: model.theory().values, best_of=3)
    yield Row("feature-diffusion", "the same with spectrum, clocks and speciation, one point", everything)


def simulation() -> Iterator[Row]:
    from solvable.model import simulate_batch

    model = sv.FeatureDiffusion(times=TIMES)  # type: ignore[attr-defined]
    keys = jax.random.split(jax.random.key(0), 4)
    ours, _ = cpu_seconds(lambda: simulate_batch(model, {}, keys, 100), best_of=2)
    what = "random-features diffusion trained at d = 100, p = 400, n = 200, noise averaged exactly, one realisation"
    yield Row("feature-diffusion", what, ours / 4, note=f"on {jax.default_backend()}")


def feature_diffusion() -> Iterator[Row]:
    yield from curves()
    yield from simulation()
