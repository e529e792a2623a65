"""Gradients of flows: a horizon of 100 intervals, differentiated by all controls at once, with an error estimate."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.averages.activations import activation
from solvable.methods.flows.control import Box, Simplex, evaluate, follow
from solvable.methods.flows.tasks import TaskOverlaps, mixture, task_drifts, task_losses

from .rows import Row, cpu_seconds

STEPS, HORIZON = 100, 10.0
TEACHERS = jnp.array([[1.0, 0.3], [0.3, 1.0]])
STUDENT = TaskOverlaps(
    jnp.array([[0.9, 0.1], [0.1, 0.3]]), jnp.array([[0.8, 0.3], [0.1, 0.2]]), jnp.array([[1.0, 0.1], [0.1, 0.4]])
)


def control() -> Iterator[Row]:
    """Two student units, two tasks of one teacher unit each, fractions and rate free in each of 100 intervals."""
    second = jnp.linspace(0.9, 0.4, STEPS)
    schedule = {"fraction": jnp.stack([1 - second, second], axis=1), "rate": jnp.linspace(1.2, 0.6, STEPS)}
    for name in ("erf", "relu"):
        g = activation(name)

        def drift(state: TaskOverlaps, u: dict[str, jax.Array], g=g) -> TaskOverlaps:
            rates = {"rate": u["rate"], "readout_rate": u["rate"], "noise": 0.0}
            return mixture(task_drifts(g, state, TEACHERS, np.eye(2), **rates), u["fraction"])

        def cost(state: TaskOverlaps, g=g) -> jax.Array:
            return jnp.mean(task_losses(g, state, TEACHERS, np.eye(2)))

        def final(controls: dict[str, jax.Array], drift=drift, cost=cost) -> jax.Array:
            return cost(jax.tree.map(lambda part: part[-1], follow(drift, STUDENT, controls, HORIZON)))

        sets = {"fraction": Simplex(), "rate": Box(0.0, 3.0)}
        compiled = jax.jit(lambda u, d=drift, c=cost, s=sets: evaluate(d, c, STUDENT, u, s, HORIZON))
        begun, wall = time.process_time(), time.perf_counter()
        compiled.lower(schedule).compile()
        built, waited = time.process_time() - begun, time.perf_counter() - wall
        ours, outcome = cpu_seconds(lambda compiled=compiled: compiled(schedule), best_of=30)
        once = jax.jit(final)
        floor, _ = cpu_seconds(lambda once=once: once(schedule), best_of=30)
        step = 1e-4
        ends = [once({**schedule, "rate": schedule["rate"].at[7].add(shift)}) for shift in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step) * STEPS / HORIZON
        difference = float(jnp.abs(outcome.slopes["rate"][7] / slope - 1))
        what = f"{name}, K = 2, two tasks of one teacher unit: {STEPS} intervals, their adjoint and its error"
        note = "the difference is the relative one between a slope and a central difference over the whole horizon"
        yield Row(
            "control", f"{what}, warm", ours, "the flow alone", floor, floor=True, most=0.02, difference=difference,
            tolerance=1e-6, note=note)  # fmt: skip
        yield Row("control", f"{what}, tracing and compiling", waited, most=5.0, unit="wall s",
                  note=f"wall time; XLA compiles on several threads, {built:.1f} CPU seconds")  # fmt: skip
