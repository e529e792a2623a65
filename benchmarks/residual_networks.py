"""Residual networks at infinite width: the cost of the theory against that of one network that it describes."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp

import solvable as sv
from solvable.model import simulate_batch

from .rows import Row, cpu_seconds, largest

DEPTH, STEPS, WIDTH = 16, 12, 400


def residual_networks() -> Iterator[Row]:
    for activation, tolerance in (("linear", 0.05), ("tanh", 0.1)):
        model = sv.DepthTransfer(depth=DEPTH, steps=STEPS, activation=activation)  # type: ignore[attr-defined]
        ours, outcome = cpu_seconds(lambda model=model: model.theory().values)
        keys = jnp.stack([model.key(WIDTH, 0)])
        theirs, runs = cpu_seconds(lambda model=model, keys=keys: simulate_batch(model, {}, keys, WIDTH), best_of=1)
        yield Row(
            "residual-networks", f"mean-field theory, {activation}, L = {DEPTH}, {STEPS} steps, warm", ours,
            f"one network of width {WIDTH}, float32", theirs, most=2.0,
            difference=largest(outcome["output"], runs["output"][0]), tolerance=tolerance,
            note="the difference is that of one network of finite width from the limit",
        )  # fmt: skip
