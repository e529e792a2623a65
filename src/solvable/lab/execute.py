"""From a row of a plan to a committed block: the one way in which blocks are computed, whoever asks. Imports no JAX."""

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
    """Keeps the arrays of a block, with facts about how they came about."""

    def __call__(self, block: str, arrays: Arrays, meta: Mapping[str, Any], /) -> Any: ...


@dataclass(frozen=True)
class Executor:
    """Computes blocks of a plan and commits them.

    - `compute` makes the arrays of a block from its specification.
    - `commit` keeps them: a store's, or one with more patience.
    - `meta` is what to remember about every block, besides the seconds it took.
    """

    plan: Plan
    compute: Callable[[dict[str, Any]], Arrays]
    commit: Commit
    meta: Callable[[], Mapping[str, Any]] = dict

    def specification(self, row: Row) -> dict[str, Any]:
        """What a block is asked to compute; refused when that is not what the block is named after."""
        specification = self.plan.specification(row.block, row)
        if block_id(specification) != row.block:
            raise StoreError(f"The plan says of block {row.block[:12]}… what is not true of it.")
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
        """Compute one block after the other, and call `done` after each; False if `wanted` stopped it between two."""
        for row in rows:
            if not wanted():
                return False
            done(row, self.run(row))
        return True
