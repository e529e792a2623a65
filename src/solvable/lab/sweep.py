"""Sweeps: any number of workers on any machines complete one stored study; see `worker` for the algorithm.

A block has the same bytes on the same kind of processor with the same number of threads, which is why the commands give
every worker one thread. On other machines the last bits may differ; then the block committed first is kept, and `verify`
reports the conflict.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..study import Study
from . import compute, memory
from .compute import provenance
from .execute import Arrays, Executor
from .planning import cells_of, parts_of
from .status import stored_study
from .store import Store, block_id
from .stored_plans import Plan, Row, plan_name, plans
from .worker import Died, TooLarge, Worked, Worker, checked_shard, damaged_blocks, shares, stopping_at_once

__all__ = ["Worked", "work"]

TOO_LARGE = 3  # exit code of an isolated process when memory ran out


def work(
    path: str | os.PathLike[str],
    shard: tuple[int, int] = (0, 1),
    say: Callable[[str], None] = lambda sentence: None,
    *,
    study: str = "",
    retry: bool = False,
    wanted: Callable[[], bool] = lambda: True,
    most_memory: str = "",
    lease: float | None = None,
    stop_at_once: bool = False,
) -> Worked:
    """Compute the missing blocks of the stored study at `path`: first this worker's share, then the others'.

    A block that raises is tried again at the end, and given up after three attempts by any workers (`retry` allows three
    more). Done blocks of the share whose files are damaged are recomputed. `wanted` may stop the work between blocks; with
    `stop_at_once`, SIGTERM and SIGINT also end the process within a block.
    """
    checked_shard(shard)
    store = Store.open(path)
    name, specification = stored_study(store, study)
    lab = Study.from_specification(specification, store)
    plan = lab.stored_plan()
    task = Task(lab, most_memory)
    worker = Worker(
        store, plan, task.compute, shard, isolated=Isolated(store, name, most_memory), say=say, wanted=wanted,
        meta=provenance, retry=retry, lease=lease, damaged=_damaged(lab, store, plan, shard, say),
    )  # fmt: skip
    task.workers = worker.claims.workers_here
    if not stop_at_once:
        return worker.work(name)
    with stopping_at_once(worker):
        return worker.work(name)


class Task:
    """Computes blocks of one study, after checking that they fit into memory."""

    def __init__(self, lab: Study, most_memory: str = ""):
        self._lab, self._most_memory = lab, most_memory
        self.workers: Callable[[], int] = lambda: 1
        self._needs: dict[str, int | None] = {}

    def compute(self, spec: dict[str, Any]) -> Arrays:
        """The arrays of a block; raises `TooLarge` if they do not fit."""
        program = block_id(parts_of(spec)[0])
        try:
            if program not in self._needs:
                self._needs[program] = self._needed(spec)
                most = memory.budget(self._most_memory, self.workers())
                lanes = memory.lanes_that_fit(spec["lanes"], self._needs[program], most)
                if lanes is not None:
                    needs = (self._needs.pop(program) or 0) / 1e6
                    raise TooLarge(
                        f"it needs {needs:.4g} MB of memory, but the limit is {(most or 0) / 1e6:.4g} MB.", lanes
                    )
            return self._lab.compute(spec)
        except Exception as problem:
            if memory.ran_out(problem):
                raise TooLarge(f"{type(problem).__name__}: {problem}"[:300], spec["lanes"] // 2) from problem
            raise

    def _needed(self, spec: dict[str, Any]) -> int | None:
        try:
            return compute.needed_memory(self._lab.variants()[block_id(spec["variant"])], spec)
        except Exception as problem:
            if memory.ran_out(problem):
                raise
            return None  # an invalid block raises when it is computed


class Isolated:
    """Computes one block in a new process, which may die."""

    def __init__(self, store: Store, study: str, most_memory: str = ""):
        self._store, self._study, self._memory = store, study, most_memory

    def __call__(self, block: str) -> None:
        from .launch import PARENT, one_thread

        command = [sys.executable, "-m", "solvable.lab.isolated", self._store.path, self._study, block]
        environment = one_thread(os.environ) | {PARENT: str(os.getpid())}
        if self._memory:
            environment["SOLVABLE_MEMORY"] = self._memory
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 0 and block in self._store.done_blocks():
            return
        words = (done.stderr.strip().splitlines() or [""])[-1][:300]
        if done.returncode == TOO_LARGE:
            raise TooLarge(words, 1 << 30)
        if done.returncode < 0:
            raise Died(f"The worker died while computing it (signal {-done.returncode}).")
        raise Died(f"A separate process for it exited with code {done.returncode}: {words}")


def compute_one(path: str, study: str, block: str) -> None:
    """Compute and commit one block of a stored study."""
    store = Store.open(path)
    _, specification = stored_study(store, study)
    lab = Study.from_specification(specification, store)
    plan = Plan(store, plan_name(lab.specification()))
    executor = Executor(plan, Task(lab).compute, store.commit, lambda: {"isolated": True, **provenance()})
    executor.run(plan.row(block))


def _damaged(
    lab: Study, store: Store, plan: Plan, shard: tuple[int, int], say: Callable[[str], None]
) -> dict[str, Row]:
    """The done blocks of this worker's share that are missing or damaged on disk."""
    index, number = shard
    done = store.done_blocks()
    rows = [row for row in shares(plan.rows, number)[index] if row.block in done]
    if plan.covered and index == 0:
        rows += _of_other_plans(lab, store, plan)
    return damaged_blocks(store, rows, say)


def _of_other_plans(lab: Study, store: Store, plan: Plan) -> list[Row]:
    """The done blocks of other plans with cells of this study."""
    cells, done, rows = set(lab.cells()), store.done_blocks(), []
    for name in plans(store):
        for block, spec in Plan(store, name) if name != plan.name else ():
            if block in done and not cells.isdisjoint(cells_of(spec, block_id(spec["variant"]))):
                rows.append(plan.adopt(block, spec))
    return rows
