"""Who runs the workers of a sweep: processes of this machine, or the tasks of a Slurm array. Imports no JAX."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

from ..errors import InvalidValue

MOST_WORKERS = 1024
MOST_TASKS = 100_000
PARENT = "SOLVABLE_PARENT"  # the process without which a local worker stops after its block
# One thread per worker, and not only for speed: XLA splits sums among its threads, so their number can change the last
# bits of large simulations. Set by the environment, never by XLA flags: those compile other programs, with other bits.
ONE_THREAD = {
    "NPROC": "1",  # XLA's pool of threads
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # workers that share a device must not each take most of its memory
}
GRACE = 10.0  # seconds that a worker has to end when told to


@dataclass(frozen=True)
class Dead:
    """A worker that ended otherwise than by finishing: its shard, its exit code (negative: a signal), its last words."""

    worker: int
    code: int
    words: str

    def __str__(self) -> str:
        how = f"was ended by signal {-self.code}" if self.code < 0 else f"left with code {self.code}"
        return f"worker {self.worker} {how}" + (f": {self.words}" if self.words else ".")


def one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a worker uses one thread; what the user has set stays.

    >>> [one_thread({"NPROC": "2"})[name] for name in ("NPROC", "OMP_NUM_THREADS")]
    ['2', '1']
    """
    return ONE_THREAD | dict(environment)


def run_workers(
    path: str, number: int, *, study: str = "", watch: Callable[[], None] = lambda: None, every: float = 0.5
) -> list[Dead]:
    """Work on the run with `number` processes, each started afresh, and wait; returns those that died.

    None is started again: the others help with what a dead one leaves, and so does the next call. `watch` is called
    every so often. Ctrl-C and SIGTERM end the workers and raise KeyboardInterrupt.
    """
    if not 1 <= number <= MOST_WORKERS:
        raise InvalidValue(f"workers = {number} is not a whole number in [1, {MOST_WORKERS}].")
    environment = one_thread(os.environ) | {PARENT: str(os.getpid())}
    workers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        stop = stack.enter_context(_told_to_stop())
        logs, reports = (
            [stack.enter_context(tempfile.TemporaryFile()) for _ in range(number)] for _ in ("errors", "output")
        )
        try:
            for index, (log, report) in enumerate(zip(logs, reports, strict=True)):
                command = [sys.executable, "-m", "solvable", "sweep", "work", os.path.realpath(path)]
                command += ["--shard", f"{index}/{number}", *(["--study", study] if study else [])]
                # A group of their own, so that Ctrl-C reaches the parent alone, which ends them.
                workers.append(
                    subprocess.Popen(
                        command, env=environment, process_group=0,
                        stdin=subprocess.DEVNULL, stdout=report, stderr=log,
                    )
                )  # fmt: skip
            while any(worker.poll() is None for worker in workers) and not stop.is_set():
                watch()
                _wait(workers, every, stop)
        finally:
            _end(workers)
        if stop.is_set():
            raise KeyboardInterrupt
        watch()
        # Code 1 with a report says that blocks were given up, which the store tells better: the worker itself was well.
        ended = [
            (worker.returncode, bool(_last_words(report))) for worker, report in zip(workers, reports, strict=True)
        ]
        well = [code in (0, 1) and reported for code, reported in ended]
        return [Dead(i, ended[i][0], _last_words(log)) for i, log in enumerate(logs) if not well[i]]


def _wait(workers: list[subprocess.Popen[bytes]], most: float, stop: threading.Event | None = None) -> None:
    until = time.monotonic() + most
    while time.monotonic() < until and any(worker.poll() is None for worker in workers):
        if stop is not None and stop.is_set():
            return
        time.sleep(0.02)


def _end(workers: list[subprocess.Popen[bytes]]) -> None:
    """End the workers that still run; the store survives even the hard way."""
    running = [worker for worker in workers if worker.poll() is None]
    for worker in running:
        worker.terminate()
    _wait(running, GRACE)
    for worker in running:
        if worker.poll() is None:
            worker.kill()
        worker.wait()


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set while this lasts (signals can be handled in the main thread only).

    An exception raised by a handler would be lost if it came while Python runs a finaliser; an event is not.
    """
    stop = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {kind: signal.signal(kind, lambda *_: stop.set()) for kind in kinds}
    try:
        yield stop
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _last_words(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - 4000))
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def parent_lives() -> bool:
    """Whether the process that started this worker, if one did, is still there."""
    said = os.environ.get(PARENT, "")
    return not said.isdigit() or os.getppid() == int(said)


def slurm_script(path: str, tasks: int, *, study: str = "") -> str:
    """A script for `sbatch` in which `tasks` array tasks work on the run; submit it as often as you like.

    >>> print(slurm_script("/data/my run", 4).splitlines()[-1].partition(" -m ")[2])
    solvable sweep work '/data/my run' --shard "$SLURM_ARRAY_TASK_ID/4"
    """
    if not 1 <= tasks <= MOST_TASKS:
        raise InvalidValue(f"tasks = {tasks} is not a whole number in [1, {MOST_TASKS}].")
    path = os.path.realpath(path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(path)) or "run"
    settings = "\n".join(f"export {n}={shlex.quote(v)}" for n, v in ONE_THREAD.items())
    asked = f" --study {shlex.quote(study)}" if study else ""
    return f"""#!/bin/bash
#SBATCH --job-name=solvable-{name}
#SBATCH --array=0-{tasks - 1}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
# Add here what your cluster asks for: --time, --mem, --partition, --account.
# A task that is killed loses only the block it was at: submit the script again to go on.
{settings}
exec {shlex.quote(sys.executable)} -m solvable sweep work {shlex.quote(path)} --shard "$SLURM_ARRAY_TASK_ID/{tasks}"{asked}
"""
