"""`python -m benchmarks.stub_worker RUN INDEX NUMBER SECONDS [PLAN_BLOCKS]`: a worker whose kernel only burns CPU time.

With PLAN_BLOCKS it first plans that many blocks of 512 cells. It does not import JAX: the store and the worker's loop are
measured. Prints the seconds taken by its loop and by its kernel.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from solvable.lab import stored_plans as plans
from solvable.lab.store import Store
from solvable.lab.worker import Worker

STUDY = {"stub": True}
CELLS, OBSERVABLES = 512, 8


def plan(store: Store, number: int) -> None:
    """Plan `number` blocks, unless there is a plan."""
    program = {"format": 2, "kind": "stub", "variant": {}, "size": None, "lanes": CELLS}
    blocks = ((program, {"cells": CELLS, "controls": [float(i).hex()], "seeds": None}) for i in range(number))
    store.write_document("study-0001", STUDY)
    plans.write_plan(store, plans.plan_name(STUDY), blocks)


class Kernel:
    """A kernel that burns a given number of CPU seconds per block."""

    def __init__(self, seconds: float):
        self.each, self.spent = seconds, 0.0

    def __call__(self, spec: dict) -> dict[str, np.ndarray]:
        begun, until = time.perf_counter(), time.process_time() + self.each
        value = float.fromhex(spec["controls"][0])
        while time.process_time() < until:
            value = (value * value) % 1.0 + 0.5
        arrays = {f"x{k}": np.full(CELLS, k + value) for k in range(OBSERVABLES)}
        self.spent += time.perf_counter() - begun
        return arrays


def main() -> None:
    run, index, number, seconds, *blocks = sys.argv[1:]
    store = Store.open_or_create(run)
    if blocks:
        plan(store, int(blocks[0]))
    kernel = Kernel(float(seconds))
    worker = Worker(store, plans.Plan(store, plans.plan_name(STUDY)), kernel, (int(index), int(number)))
    if kernel.each or not blocks:
        begun = time.perf_counter()
        worker.work()
        print(time.perf_counter() - begun, kernel.spent)


if __name__ == "__main__":
    main()
