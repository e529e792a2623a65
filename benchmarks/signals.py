"""Signals through transformers: trainability diagrams, tables of softmax weights, and a network of the paper's size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.methods.averages.softmax_weights import SoftmaxTable, softmax_moments, softmax_overlap
from solvable.model import simulate_batch

from .rows import Row, cpu_seconds

STRENGTHS, RESIDUALS, BLOCKS = np.linspace(0.05, 4.0, 100), np.linspace(0.1, 3.0, 100), 100


def _direct(strength: float, residual: float, blocks: int, tokens: int) -> float:
    """The recursion (ReLU, normalisation after the sums) with the integrals themselves in every block."""
    rho, v, w, b = 0.2, 0.2, 0.2, 4e-4
    for _ in range(blocks):
        spread = strength * np.sqrt(np.log(tokens) * (1 - rho))
        alone, shared = softmax_moments(spread, tokens).participation, softmax_overlap(spread, rho, tokens)
        full = v * (rho + (1 - rho) * alone) + b + residual**2
        rho = (v * (rho + (1 - rho) * shared) + b + residual**2 * rho) / full
        q, c = w + b, (w * rho + b) / (w + b)
        kappa = (np.sqrt(1 - c * c) + c * (np.pi - np.arccos(c))) / np.pi
        rho = (w / 2 * q * kappa + b + rho) / (w / 2 * q + b + 1)
    return float(rho)


def diagrams() -> Iterator[Row]:
    for tokens, most in (("infinite", 2.0), ("finite", 20.0)):
        model = sv.TransformerSignals(  # type: ignore[attr-defined]
            strength=STRENGTHS[:, None], attention_residual=RESIDUALS[None, :], depth=BLOCKS, context=512, tokens=tokens
        )
        wall: list[float] = []

        def timed(model: Any = model, wall: list[float] = wall) -> Any:
            begun = time.perf_counter()
            outcome = jax.block_until_ready(model.theory(only=["final_overlap"]).values)
            wall.append(time.perf_counter() - begun)
            return outcome

        ours, found = cpu_seconds(timed, best_of=3)
        what = f"trainability diagram, 100 × 100 points × {BLOCKS} blocks, {tokens} T, warm"
        if tokens == "infinite":
            yield Row("signals", what, ours, most=most, wall=min(wall))
            continue
        theirs, value = cpu_seconds(
            lambda: _direct(STRENGTHS[60], RESIDUALS[40], BLOCKS, 512), best_of=1, warm=False
        )  # fmt: skip
        yield Row(
            "signals", what, ours, "the integrals in every block (NumPy), 1 point × 10,000", 1e4 * theirs, most=most,
            difference=abs(float(found["final_overlap"][60, 40]) - value), tolerance=1e-7, wall=min(wall),
        )  # fmt: skip


def tables() -> Iterator[Row]:
    reach = 5.0 * float(np.sqrt(np.log(512)))
    ours, _ = cpu_seconds(lambda: SoftmaxTable(512, reach, 32).shared_coefficients, best_of=2, warm=False)
    yield Row("signals", "table of softmax weights at T = 512, once per number of tokens", ours, most=5.0)


def networks() -> Iterator[Row]:
    """One network of the paper's size (d = 720, T = 512, 50 blocks, gradients included); on a CPU a smaller one."""
    accelerated = jax.default_backend() != "cpu"
    size, context, blocks = (720, 512, 50) if accelerated else (180, 128, 10)
    model = sv.TransformerSignals(strength=3.0, context=context, depth=blocks)  # type: ignore[attr-defined]
    keys = jnp.stack([model.key(size, 0)])

    def draw() -> Any:
        return jax.block_until_ready(simulate_batch(model, {}, keys, size))

    draw()
    begun = time.perf_counter()
    found = draw()
    seconds = time.perf_counter() - begun
    expected = float(model.theory(only=["final_overlap"]).final_overlap)
    # Five products of tokens and weights and two of tokens and tokens forward; about twice as many for the gradients of
    # attention, whose second evaluation measures its weights.
    operations = blocks * 2 * context * size * (15 * size + 8 * context)
    yield Row(
        "signals", f"random transformer with gradients, d = {size}, T = {context}, {blocks} blocks, warm", seconds,
        unit="wall s", note=f"{jax.default_backend()}, about {operations / seconds / 1e9:.0f} GFLOP/s; overlap "
        f"{float(found['final_overlap'][0]):.3f}, theory {expected:.3f}",
    )  # fmt: skip


def signals() -> Iterator[Row]:
    yield from diagrams()
    yield from tables()
    yield from networks()
