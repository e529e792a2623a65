"""Online learning: the flow against a compiled integrator, its cost for larger networks, simulations, a grid of curves."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import solvable as sv
from solvable.methods.averages.activations import activation
from solvable.methods.flows.committee import Overlaps, committee_drift
from solvable.model import simulate_batch

from . import peers
from .rows import Row, cpu_seconds, largest

INTERPRETER = "SOLVABLE_PYDCA_PYTHON"  # the same one as for Gibbs sampling: it has numba
TORCH = "SOLVABLE_TORCH_PYTHON"
QUICK = {"rtol": 1e-8, "atol": 1e-10}
SIZE, SEEDS = 1000, 64


def committee(units: int, **values: Any) -> Any:
    return sv.SoftCommittee(students=units, teachers=units, **values)  # type: ignore[attr-defined]


def against_numba() -> Iterator[Row]:
    model = committee(4)
    ours, outcome = cpu_seconds(lambda: model.theory(QUICK).values)
    exact = model.theory({"rtol": 1e-12, "atol": 1e-14})["norm"]
    error = largest(outcome["norm"], exact)
    what = "K = M = 4 erf, overlaps at 101 times to t = 100, warm"
    python = os.environ.get(INTERPRETER)
    if not python:
        yield Row("online", what, ours, note=f"the numba integrator was skipped: {INTERPRETER} names no interpreter")
        return
    Q, R, T = (np.asarray(v) for v in (model.initial_norm, model.initial_overlap, model.teacher_norm))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.npz"
        weights = np.concatenate([model.initial_readout, -np.asarray(model.teacher_readout)])
        joint = np.block([[Q, R], [R.T, T]])
        np.savez(
            file, joint=joint, weights=weights, students=4, rate=float(model.rate), until=100.0, norm=exact, error=error
        )
        words = [python, str(Path(__file__).with_name("online_peer.py")), str(file)]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout)
    yield Row(
        "online", what, ours, "numba, fourth-order Runge–Kutta, equally accurate", found["cpu"], ratio_least=1.0,
        difference=error, tolerance=1e-5,
        note=f"our error is {error:.1e} against a run at 1e-12, the peer's {found['error']:.1e} with {found['steps']} steps, "
        "the fewest by halving that suffice",
    )  # fmt: skip


def growth() -> Iterator[Row]:
    for units, most in ((2, None), (4, None), (8, 0.1), (16, None)):
        model = committee(units)
        wall: list[float] = []

        def timed(model: Any = model, wall: list[float] = wall) -> Any:
            begun = time.perf_counter()
            outcome = jax.block_until_ready(model.theory().values)
            wall.append(time.perf_counter() - begun)
            return outcome

        spent, _ = cpu_seconds(timed, best_of=7)
        yield Row(
            "online",
            f"K = M = {units} erf, one trajectory to t = 100 at rtol 1e-11, warm",
            min(wall),
            most=most,
            unit="wall s",
            note=f"wall time; {spent:.3f} CPU seconds, on several threads for large matrices",
        )
    for name, units, most in (
        ("relu", 2, None),
        ("relu", 4, None),
        ("relu", 8, 0.015),
        ("tanh", 2, None),
        ("tanh", 4, None),
    ):
        model = committee(units)
        state = Overlaps(model.initial_norm, model.initial_overlap, model.initial_readout)
        rates = {"rate": model.rate, "readout_rate": model.readout_rate, "noise": model.noise}
        g = activation(name)
        drift = jax.jit(lambda s, g=g, m=model, r=rates: committee_drift(g, s, m.teacher_norm, m.teacher_readout, **r))
        ours, _ = cpu_seconds(lambda drift=drift, state=state: drift(state), best_of=20)
        yield Row("online", f"K = M = {units} {name}, one right-hand side", ours, most=most)


def descent() -> Iterator[Row]:
    model = committee(2, times=[0.0, 1.0])
    steps, million = 3000, 1e6 / (SEEDS * SIZE)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    wall: list[float] = []

    def simulated() -> Any:
        begun = time.perf_counter()
        outcome = jax.block_until_ready(simulate_batch(model, {}, keys, SIZE))
        wall.append(time.perf_counter() - begun)
        return outcome

    ours, _ = cpu_seconds(simulated, best_of=3)
    theirs, _ = cpu_seconds(lambda: peers.gradient_descent(2, SIZE, steps), best_of=3)
    what = f"gradient descent with weights, K = M = 2, N = {SIZE}, {SEEDS} seeds at once: a million steps"
    note = "steps of all seeds are counted; most of our time goes into random numbers"
    yield Row("online", what, million * ours, "a NumPy loop", theirs / steps * 1e6, note=note)
    python = os.environ.get(TORCH)
    if not python:
        note = f"the PyTorch loop was skipped: {TORCH} names no interpreter"
        yield Row("online", what, million * min(wall), unit="wall s", note=note)
        return
    words = [python, str(Path(__file__).with_name("torch_peer.py")), "2", str(SIZE), str(steps)]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout)
    yield Row(
        "online", what, million * min(wall), "a PyTorch loop", found["wall"] / steps * 1e6, ratio_least=20.0, unit="wall s",
        note=f"{note}; in CPU seconds {million * ours:.1f} and {found['cpu'] / steps * 1e6:.0f}",
    )  # fmt: skip


def grid() -> Iterator[Row]:
    similarity, rate = np.meshgrid(np.linspace(0, 1, 40), np.linspace(0.5, 1.5, 25))
    model = sv.ContinualLearning(similarity=similarity.ravel(), rate=rate.ravel())  # type: ignore[attr-defined]
    begun = time.perf_counter(), time.process_time()
    outcome = model.theory()
    jax.block_until_ready(outcome.values)
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    done = int(np.count_nonzero(outcome.converged))
    yield Row(
        "online", "1,000 continual-learning curves, 40 similarities × 25 rates, compilation included", cpu, most=60.0, wall=wall,
        note=f"{done} of 1000 converged; the requirement is on CPU seconds, which two free cores would share",
    )  # fmt: skip


def online() -> Iterator[Row]:
    yield from against_numba()
    yield from growth()
    yield from descent()
    yield from grid()
