"""Compile ahead: the programs of a simulation are compiled at once in a few threads, in the order of their first use.

Compiling takes most of the time of a small simulation, and one program occupies one core only. The first block of every
program is therefore computed ahead, and its results wait until its turn comes.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..lab.store import block_id
from .turns import name_of

MOST_THREADS = 4
LEAD = 3.0  # seconds for which all processors are left to the first program, whose points are awaited
MOST_WARMED = 8
WARMED: OrderedDict[str, Future[Any]] = OrderedDict()  # blocks that were computed before anybody had asked for them


Compute = Callable[[Mapping[str, Any]], Any]


class Ahead:
    """Computes blocks as `compute` does; used as a context, at whose end nothing more is begun.

    The very first is shown as a draft by `draft`, which tells whether there is one, unless its results are there already.
    """

    def __init__(
        self, blocks: list[dict[str, Any]], compute: Compute, threads: int = 0, draft: Compute = lambda block: None
    ):
        self._compute, self._draft, self._ended = compute, draft, threading.Event()
        threads = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self._pool = ThreadPoolExecutor(threads, "ahead")
        self._waiting: dict[str, Future[Any]] = {}
        self._led = threading.Event()
        for number, block in enumerate(firsts(blocks)):
            self._waiting[block_id(block)] = self._pool.submit(self._first, block, number == 0)

    def _first(self, block: dict[str, Any], leads: bool) -> Any:
        if not leads:
            self._led.wait(LEAD)
        try:
            if self._ended.is_set():
                return None
            begun = WARMED.pop(block_id(block), None)
            there = begun is not None and begun.done() and begun.result() is not None
            if leads and not there and self._draft(block):
                self._led.set()
            found = begun.result() if begun is not None else None
            return self._compute(block) if found is None else found
        finally:
            self._led.set()

    def compiling(self) -> bool:
        """Whether results are still being computed ahead."""
        return not all(one.done() for one in list(self._waiting.values()))

    def compute(self, block: Mapping[str, Any]) -> Any:
        """The results of a block, which may have been computed already."""
        waiting = self._waiting.pop(block_id(dict(block)), None)
        found = waiting.result() if waiting is not None else None
        return self._compute(block) if found is None else found

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._led.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


class Warming:
    """Compiles the programs of a simulation that will probably be asked for, one after the other, in a thread.

    It ends before its next program once it is `stop`ped, because a simulation begins or another model is looked at.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def begin(self, blocks: list[dict[str, Any]], compute: Compute, draft: Compute = lambda block: None) -> None:
        """Compute a draft of the first block, then the first block of every program.

        Whoever asks for one that is under way waits for it.
        """
        self.stop()
        self._stopped = stopped = threading.Event()
        work = (firsts(blocks), compute, draft, stopped)
        threading.Thread(target=self._work, args=work, daemon=True, name="warm").start()

    @staticmethod
    def _work(blocks: list[dict[str, Any]], compute: Compute, draft: Compute, stopped: threading.Event) -> None:
        for number, block in enumerate(blocks):
            if not stopped.is_set() and number == 0 and block_id(block) not in WARMED:
                draft(block)
            if stopped.is_set():
                return
            if block_id(block) in WARMED:
                continue
            future: Future[Any] = Future()
            WARMED[block_id(block)] = future
            while len(WARMED) > MOST_WARMED:
                WARMED.popitem(last=False)
            try:
                future.set_result(compute(block))
            except Exception:  # whoever asks for it computes it again, and reports the failure
                future.set_result(None)


def firsts(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first block of every program, in their order."""
    found: dict[str, dict[str, Any]] = {}
    for block in blocks:
        found.setdefault(name_of(block), block)
    return list(found.values())
