"""Compute and commit the blocks of a plan; used by studies and by workers. Imports no JAX."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .store import StoreError, block_id
from .stored_plans import Plan, Row

Arrays = Mapping[str, np.ndarray]


class Commit(Protocol):
    """A function that stores the arrays of a block with facts about their computation."""

    def __call__(self, block: str, arrays: Arrays, meta: Mapping[str, Any], /) -> Any: ...


@dataclass(frozen=True)
class Executor:
    """Computes blocks of a plan and commits them.

    - `compute` returns the arrays of a block from its specification.
    - `commit` stores them; it is a store's method, or one that retries.
    - `meta` returns facts to store with every block, in addition to its duration in seconds.
    """

    plan: Plan
    compute: Callable[[dict[str, Any]], Arrays]
    commit: Commit
    meta: Callable[[], Mapping[str, Any]] = dict

    def specification(self, row: Row) -> dict[str, Any]:
        """The specification of a block; raises StoreError if its hash is not the block's name."""
        specification = self.plan.specification(row.block, row)
        if block_id(specification) != row.block:
            raise StoreError(f"Block {row.block[:12]}… does not match its specification in the plan.")
        return specification

    def run(self, row: Row) -> Arrays:
        """Compute one block and commit it."""
        begun = time.perf_counter()
        arrays = self.compute(self.specification(row))
        seconds = round(time.perf_counter() - begun, 4)
        self.commit(row.block, arrays, {"seconds": seconds, **self.meta()})
        return arrays

    def run_all(
        self,
        rows: Iterable[Row],
        *,
        done: Callable[[Row, Arrays], None] = lambda row, arrays: None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Compute the blocks in order and call `done` after each; False if `wanted` stopped it between two blocks."""
        for row in rows:
            if not wanted():
                return False
            done(row, self.run(row))
        return True
