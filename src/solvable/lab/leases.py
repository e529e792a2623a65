"""Claims: hints about which worker is computing which block. They save work; correctness does not depend on them.

    claims/<block>.<k>      the k-th unfinished attempt at the block; the highest k is the current one
    claims/worker-<id>      an active worker; touching its file gives the time by the store's own clock

A worker creates the file of the next attempt before it computes a block, touches it while it computes, and removes the
block's files after the commit (or after it has given up or received a signal to stop). A claim not touched for the length
of a lease, or whose process is known to be gone, is *orphaned*: its worker died while computing the block. Times are
compared with that of a file just touched in the same folder, never with this machine's clock. If two workers take over the
same block, or the file system is full, or the folder is deleted, a block is computed twice, with the same result.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from . import _files as files
from ._files import StoreError

LEASE = 120.0  # seconds without a touch after which a worker counts as dead
BEATS = 6  # touches per lease
MOST_ATTEMPTS = 999
NAME = re.compile(r"([0-9a-f]{64})\.([0-9]{1,6})|worker-[0-9a-f]{32}")
FAILURES = (OSError, StoreError)  # a failing claim is never a reason to stop


class Claims:
    """The claims of a run, as seen and made by one worker.

    >>> import tempfile
    >>> folder, block = tempfile.mkdtemp(), "0" * 64
    >>> with Claims(folder) as ours, Claims(folder) as theirs:
    ...     first, second = ours.take(block), theirs.take(block)
    ...     known = theirs.attempts(), theirs.alive(block, 0)
    ...     ours.release(block)
    ...     first, second, known == ({block: 0}, True), theirs.attempts()
    (0, None, True, {})
    """

    def __init__(self, run: str | os.PathLike[str], lease: float | None = None, observer: bool = False):
        self.folder = os.path.join(os.path.realpath(run), "claims")
        self.lease = lease or _lease_of(os.environ.get("SOLVABLE_LEASE", ""))
        self._observer = observer  # creates no folder
        self._me = f"worker-{os.urandom(16).hex()}"
        self._content = json.dumps(_this_process()).encode()

    def __enter__(self) -> Claims:
        with suppress(*FAILURES):
            if os.path.islink(self.folder) or (self._observer and not os.path.isdir(self.folder)):
                return self
            os.makedirs(self.folder, exist_ok=True)
            files.mark(self._path(self._me), self._content)
            if not self._observer:
                self._remove_dead_workers()
        return self

    def _remove_dead_workers(self) -> None:
        """Remove the files of dead workers; their claims stay as a record of the blocks they died on."""
        for name in self._names():
            if name.startswith("worker-") and _runs(self._record(name)) is False:
                files.discard(self._path(name))

    def __exit__(self, *_: object) -> None:
        with suppress(*FAILURES):
            files.discard(self._path(self._me))

    def attempts(self) -> dict[str, int]:
        """The number of the current attempt at every block that was begun and not finished."""
        latest: dict[str, int] = {}
        for block, number in self._listed():
            latest[block] = max(number, latest.get(block, 0))
        return latest

    def alive(self, block: str, number: int) -> bool:
        """Whether the worker of an attempt is still computing."""
        return bool(self._alive(f"{block}.{number}"))

    def running(self) -> list[str]:
        """The blocks that are being computed."""
        now = self.now()
        return [block for block, number in self.attempts().items() if self._alive(f"{block}.{number}", now)]

    def take(self, block: str, after: int = -1) -> int | None:
        """Begin the attempt at `block` that follows the orphaned attempt `after`; None if another worker has."""
        number = min(after + 1, MOST_ATTEMPTS)
        try:
            return number if files.mark(self._path(f"{block}.{number}"), self._content) else None
        except FAILURES:
            return number  # compute without the hint

    @contextmanager
    def beating(self, block: str, number: int) -> Iterator[None]:
        """Touch the claim periodically within this context."""
        finished = threading.Event()

        def beat() -> None:
            while not finished.wait(self.lease / BEATS):
                with suppress(*FAILURES):
                    files.touch(self._path(f"{block}.{number}"))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()

    def release(self, block: str, attempt: int | None = None) -> None:
        """Remove the attempts at a block, the oldest last; with a number, only that attempt."""
        numbers = sorted((k for b, k in self._listed() if b == block), reverse=True) if attempt is None else [attempt]
        for number in numbers:
            with suppress(*FAILURES):
                files.discard(self._path(f"{block}.{number}"))

    def workers_here(self) -> int:
        """The number of live workers of this run on this machine, including this one."""
        here = _this_process()["machine"]
        known = {self._me}
        for name in self._names():
            if name.startswith("worker-") and (record := self._record(name)) and record.get("machine") == here:
                known |= {name} if _runs(record) else set()
        return len(known)

    def clean(self, older: float) -> int:
        """Remove files of dead workers not touched for `older` seconds; return the number of files."""
        now, removed = self.now(), 0
        for name in self._names():
            with suppress(*FAILURES):
                _, touched = files.marked(self._path(name))
                if name != self._me and now - touched >= older and not self._alive(name):
                    removed += files.discard(self._path(name))
        return removed

    def now(self) -> float:
        """The time by the clock of the run's file system."""
        path = self._path(self._me)
        try:
            files.touch(path)
            return files.marked(path)[1]
        except FAILURES:  # the run is not writable: use the time of its newest file
            times = [0.0]
            for name in self._names():
                with suppress(*FAILURES):
                    times.append(files.marked(self._path(name))[1])
            return max(times)

    def _alive(self, name: str, now: float | None = None) -> bool | None:
        """Whether the worker of a claim is active; None if the claim no longer exists."""
        try:
            record, touched = files.marked(self._path(name))
        except FileNotFoundError:
            return None
        except FAILURES:
            return False
        if _runs(_parsed(record)) is False:
            return False
        return abs((self.now() if now is None else now) - touched) <= self.lease

    def _record(self, name: str) -> dict[str, Any]:
        with suppress(*FAILURES):
            return _parsed(files.marked(self._path(name))[0])
        return {}

    def _listed(self) -> Iterator[tuple[str, int]]:
        for name in self._names():
            if (found := NAME.fullmatch(name)) and found[1]:
                yield found[1], int(found[2])

    def _names(self) -> list[str]:
        try:
            return (
                [] if os.path.islink(self.folder) else sorted(n for n in os.listdir(self.folder) if NAME.fullmatch(n))
            )
        except OSError:
            return []

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def _lease_of(text: str) -> float:
    """The lease given as text, if it is a number of seconds; else the default."""
    try:
        return float(text) if 0.1 <= float(text) <= 1e6 else LEASE
    except ValueError:
        return LEASE


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _this_process() -> dict[str, Any]:
    """Unique identity of this process: machine and boot, process id, start time of the process."""
    return {"machine": _machine(), "process": os.getpid(), "started": _started(os.getpid())}


@cache
def _machine() -> str:
    words = [socket.gethostname()]
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        words.append(file.read().strip())
    with suppress(OSError):
        words.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(words)


def _started(process: int) -> str | None:
    """The start time of a process in kernel ticks; "" if it does not exist, None if unknown."""
    if not os.path.exists("/proc/self/stat"):
        return None
    try:
        with open(f"/proc/{process}/stat") as file:
            state, *rest = file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else rest[18]


def _runs(record: dict[str, Any]) -> bool | None:
    """Whether the process named by a claim is still running; None if it is on another machine or unknown."""
    process = record.get("process")
    if record.get("machine") != _machine() or not isinstance(process, int) or process <= 0:
        return None
    started = _started(process)
    if started is None:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return None
        return True
    return started == record.get("started")
