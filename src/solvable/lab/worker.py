"""The loop of a worker: claim a block, compute it, commit it, until none is left. Imports no JAX.

Any number of workers complete one plan together. The content of a block follows from its specification, so two workers that
compute the same block commit the same bytes; claims only avoid the duplicate work. A worker may be killed at any time.

A block that raises is tried again at the end, and given up after three attempts by any workers. A block on which a worker
died is postponed and then computed in a separate process. If only that process dies, the block is to blame and the attempt
counts as a failure; if its worker dies too, both were killed and the attempt does not count.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidValue
from .execute import Arrays, Executor
from .leases import Claims
from .status import MOST_FAILURES
from .store import DamagedBlock, Store, StoreError
from .stored_plans import Plan, Row

PAUSES = (1.0, 5.0, 20.0)  # seconds before a failed commit is tried again, because a full disk may be cleared
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 1.0  # seconds between two checks of what the others are doing


class TooLarge(Exception):
    """A block does not fit into memory; `lanes` is the number of cells that might."""

    def __init__(self, sentence: str, lanes: int):
        super().__init__(sentence)
        self.lanes = lanes


class Died(Exception):
    """The process that computed a block died."""


@dataclass(frozen=True)
class Worked:
    """The work of one worker: blocks computed, those of them repaired, failed attempts, and blocks of the plan left."""

    study: str
    computed: int
    healed: int
    failures: int
    left: int
    seconds: float
    split: int = 0


def shares(rows: Sequence[Row], number: int) -> list[list[Row]]:
    """Divide the blocks of a plan into `number` shares of neighbours, so that few workers compile the same programs.

    >>> [[row.block for row in share] for share in shares([Row(b, 1, 0, 0, 0) for b in "abcde"], 2)]
    [['a', 'b', 'c'], ['d', 'e']]
    """
    ends = [-(-i * len(rows) // number) for i in range(number + 1)]
    return [list(rows[begin:end]) for begin, end in zip(ends, ends[1:], strict=False)]


def checked_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """Check that a shard `(i, n)` has 0 ≤ i < n; raises `InvalidValue`."""
    index, number = shard
    if not 0 <= index < number <= 1_000_000:
        raise InvalidValue(f"shard {index}/{number} is not of the form i/n with 0 ≤ i < n ≤ 1000000.")
    return index, number


def damaged_blocks(store: Store, rows: Iterable[Row], say: Callable[[str], None]) -> dict[str, Row]:
    """The given done blocks that are missing or damaged on disk."""
    found = {}
    for row in rows:
        if store.sound_bytes(row.block) is None:
            try:
                store.read(row.block)
            except DamagedBlock as problem:
                say(f"{problem} It will be recomputed.")
                found[row.block] = row
    return found


class Queue:
    """Pending blocks by program; a compiled program is used as long as it has blocks."""

    def __init__(self, rows: Iterable[Row] = ()):
        self._waiting: dict[int, deque[Row]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        self._waiting.setdefault(row.program, deque()).append(row)

    def next(self, compiled: Mapping[int, None]) -> Row | None:
        """The next block: of the program compiled last, else of another compiled one, else of the first program."""
        if not self._waiting:
            return None
        program = next((p for p in reversed(compiled) if p in self._waiting), next(iter(self._waiting)))
        row = self._waiting[program].popleft()
        if not self._waiting[program]:
            del self._waiting[program]
        return row


@dataclass
class Worker:
    """One worker of one plan.

    - `compute` returns the arrays of a block from its specification; it may raise `TooLarge`.
    - `isolated` computes and commits a block in a separate process; it raises `Died` if that process dies.
    """

    store: Store
    plan: Plan
    compute: Callable[[dict[str, Any]], Arrays]
    shard: tuple[int, int] = (0, 1)
    isolated: Callable[[str], None] | None = None
    say: Callable[[str], None] = lambda sentence: None
    wanted: Callable[[], bool] = lambda: True
    meta: Callable[[], Mapping[str, Any]] = dict
    retry: bool = False
    lease: float | None = None
    pauses: Sequence[float] = PAUSES
    damaged: dict[str, Row] = field(default_factory=dict)  # done blocks to be recomputed

    def __post_init__(self) -> None:
        self._executor = Executor(self.plan, self.compute, self._commit, self._facts)
        self.claims = Claims(self.store.path, self.lease)
        self.count: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
        self._compiled: dict[int, None] = {}
        self._before = {b: len(errors) for b, errors in self.store.failed().items()} if self.retry else {}
        self._held: tuple[str, int] | None = None
        self._later: list[Row] = []  # blocks that raised, to be tried again at the end
        self._suspects: list[Row] = []  # blocks on which a worker died
        self._busy: list[Row] = []  # blocks claimed by other workers

    def work(self, study: str = "") -> Worked:
        """Compute the missing blocks: first this worker's share, then the others'."""
        begun = time.perf_counter()
        index, number = checked_shard(self.shard)
        with self.claims:
            for row in self._candidates(index, number):
                if self._is_open(row.block):
                    self._attempt(row)
        done = self.store.done_blocks()
        left = sum(row.block not in done for row in Plan(self.store, self.plan.name).rows) + len(self.damaged)
        count, seconds = self.count, round(time.perf_counter() - begun, 3)
        return Worked(study, count["computed"], count["healed"], count["failed"], left, seconds, count["split"])

    def _candidates(self, index: int, number: int) -> Iterator[Row]:
        """The blocks to attempt, in order; postponed blocks come back until they are done or given up."""
        done = set(self.store.done_blocks())
        parts = [[row for row in share if row.block not in done] for share in shares(self.plan.rows, number)]
        self._own = Queue(parts[index])
        # Help the others from the end of their shares, which they reach last.
        others = Queue(row for k in range(1, number) for row in reversed(parts[(index + k) % number]))
        yield from list(self.damaged.values())
        wait = SHORTEST_WAIT
        while self.wanted():
            row = self._own.next(self._compiled) or others.next(self._compiled)
            if row is not None:
                yield row
                continue
            if not (self._later or self._suspects or self._busy):
                return
            settled = self.count.total()
            for kind in ("_later", "_suspects", "_busy"):
                rows = getattr(self, kind)
                setattr(self, kind, [])
                random.SystemRandom().shuffle(rows)  # so that helpers do not all take the same block
                self._settling = kind == "_suspects"
                for each in rows:
                    if not self.wanted():
                        return
                    yield each
                self._settling = False
            if self.count.total() > settled:
                wait = SHORTEST_WAIT
            else:
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    _settling = False

    def _is_open(self, block: str) -> bool:
        """Whether a block is neither done nor given up."""
        if block in self.store.done_blocks():
            if block in self.damaged and self.store.sound_bytes(block) is not None:
                del self.damaged[block]  # another worker has repaired it
            if block not in self.damaged:
                return False
        failed = len(self.store.failed().get(block, ())) - self._before.get(block, 0)
        return max(self._tried[block], failed) < MOST_FAILURES

    def _attempt(self, row: Row) -> None:
        """Claim a block and compute it, or postpone it."""
        block, orphan = row.block, self.claims.attempts().get(row.block)
        if orphan is not None and self.claims.alive(block, orphan):
            self._busy.append(row)
            return
        if orphan is not None and not self._settling and block not in self.damaged:
            self._suspects.append(row)
            return
        number = self.claims.take(block, -1 if orphan is None else orphan)
        if number is None:
            self._busy.append(row)
            return
        self._held = (block, number)
        try:
            if not self._is_open(block):  # another worker has just finished it
                self.claims.release(block)
            elif pieces := self.plan.pieces_of(block):
                self._take_in(row, pieces)
            else:
                with self.claims.beating(block, number):
                    self._run(row, isolated=bool(number) and self.isolated is not None)
        finally:
            self._held = None
            self.claims.release(block, number)

    def _run(self, row: Row, isolated: bool) -> None:
        block, begun = row.block, time.perf_counter()
        try:
            if isolated and self.isolated is not None:
                self._executor.specification(row)  # an invalid plan raises here, before a process is started
                self.say(f"block {block[:12]}… is computed in a separate process, because a worker died on it")
                self.isolated(block)
            else:
                self._executor.run(row)
        except TooLarge as problem:
            self._split(row, problem)
        except Exception as problem:  # any exception of a model concerns only its block
            if isinstance(problem, StoreError) and getattr(problem, "uncommitted", False):
                raise
            self._failed(row, problem)
        else:
            self.claims.release(block)
            self._compiled.pop(row.program, None)
            self._compiled[row.program] = None
            self.count["computed"] += 1
            self.count["healed"] += self.damaged.pop(block, None) is not None
            seconds = time.perf_counter() - begun
            self.say(f"block {block[:12]}… done: {row.cells} cells in {seconds:.3g} s")

    def _facts(self) -> dict[str, Any]:
        return {"shard": f"{self.shard[0]}/{self.shard[1]}", **self.meta()}

    def _commit(self, block: str, arrays: Arrays, meta: Mapping[str, Any]) -> None:
        """Commit a block, with retries, so that a full disk does not waste the computation."""
        for pause in [*self.pauses, None]:
            try:
                self.store.commit(block, arrays, meta)
                return
            except StoreError as problem:
                if pause is None or not isinstance(problem.__cause__, OSError) or not self.wanted():
                    problem.uncommitted = True  # type: ignore[attr-defined]
                    raise
                self.say(f"{problem} Retrying in {pause:g} s.")
                time.sleep(pause)

    def _failed(self, row: Row, problem: Exception) -> None:
        self._tried[row.block] += 1
        self.count["failed"] += 1
        sentence = str(problem) if isinstance(problem, Died) else f"{type(problem).__name__}: {problem}"
        self.store.record_failure(row.block, sentence)
        self.say(f"block {row.block[:12]}… failed: {sentence.splitlines()[0][:300]}")
        (self._suspects if isinstance(problem, Died) else self._later).append(row)

    def _split(self, row: Row, problem: TooLarge) -> None:
        spec = self.plan.specification(row.block, row)
        if spec["lanes"] <= 1 or row.block in self.damaged:
            self._failed(row, MemoryError(str(problem)))
            return
        lanes = max(1, min(problem.lanes, spec["lanes"] // 2))
        pieces = self.plan.record_split(row.block, lanes, str(problem)[:1000])
        self.count["split"] += 1
        self.say(f"block {row.block[:12]}… is split into {len(pieces)}: {problem}")
        self._take_in(row, pieces)

    def _take_in(self, row: Row, pieces: Iterable[Row]) -> None:
        self.claims.release(row.block)
        for piece in pieces:
            self._own.add(piece)

    def release(self) -> None:
        """Release the claimed block; a worker that is stopped by a signal does not count as a failed attempt."""
        if self._held is not None:
            self.claims.release(*self._held)
        self.claims.__exit__()


@contextmanager
def stopping_at_once(worker: Worker) -> Iterator[None]:
    """Release the claim and end the process on SIGTERM or SIGINT, even within a block.

    A Python signal handler would wait until the block is computed; the store survives an exit at any time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = (signal.SIGTERM, signal.SIGINT)
    receive, send = os.pipe()
    os.set_blocking(send, False)
    before = {kind: signal.signal(kind, lambda *_: None) for kind in kinds}
    old = signal.set_wakeup_fd(send, warn_on_full_buffer=False)

    def watch() -> None:
        while True:
            select.select([receive], [], [])
            facts = set(os.read(receive, 64))
            if not facts:
                return
            if facts & set(kinds):
                with suppress(Exception):
                    worker.release()
                    print("solvable: stopped by a signal; committed blocks are kept.", file=sys.stderr, flush=True)
                os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old)
        for kind, handler in before.items():
            signal.signal(kind, handler)
        os.close(send)
        thread.join(1)
        os.close(receive)
