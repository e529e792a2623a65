"""Compile ahead: the programs of a simulation are compiled at once in a few threads, in the order of their first use.

Compiling takes most of the time of a small simulation, and one program occupies one core only. The first block of every
program is therefore computed ahead, and its results wait until its turn comes.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..lab.planning import parts_of
from ..lab.store import block_id

MOST_THREADS = 4
MOST_SECONDS = 2.0  # declared core-seconds of a block that is computed before anybody has asked for it
WARMED: OrderedDict[str, Future[Any]] = OrderedDict()  # the few newest of those


class Ahead:
    """Computes blocks as `compute` does; used as a context, at whose end nothing more is begun."""

    def __init__(self, blocks: list[dict[str, Any]], compute: Callable[[Mapping[str, Any]], Any], threads: int = 0):
        self._compute, self._ended = compute, threading.Event()
        threads = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self._pool = ThreadPoolExecutor(threads, "ahead")
        self._waiting: dict[str, Future[Any]] = {}
        seen = set()
        for block in blocks:
            program = json.dumps(parts_of(block)[0], sort_keys=True)
            if program not in seen:
                seen.add(program)
                self._waiting[block_id(block)] = self._pool.submit(self._first, block)

    def _first(self, block: dict[str, Any]) -> Any:
        if self._ended.is_set():
            return None
        begun = WARMED.pop(block_id(block), None)
        found = begun.result() if begun is not None else None
        return self._compute(block) if found is None else found

    def compute(self, block: Mapping[str, Any]) -> Any:
        """The results of a block, which may have been computed already."""
        waiting = self._waiting.pop(block_id(dict(block)), None)
        found = waiting.result() if waiting is not None else None
        return self._compute(block) if found is None else found

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


def warm(study: Any, blocks: list[dict[str, Any]], seconds: float) -> None:
    """Compute the first block of a simulation that will probably be asked for, in a thread, if that is soon done."""
    if not blocks or seconds > MOST_SECONDS or block_id(blocks[0]) in WARMED:
        return
    future: Future[Any] = Future()
    WARMED[block_id(blocks[0])] = future
    while len(WARMED) > MOST_THREADS:
        WARMED.popitem(last=False)

    def work() -> None:
        try:
            future.set_result(study.compute(blocks[0]))
        except Exception:  # whoever asks for it computes it again, and reports the failure
            future.set_result(None)

    threading.Thread(target=work, daemon=True, name="warm").start()
