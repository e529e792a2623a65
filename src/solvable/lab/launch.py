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
    every so often. However this function is left (Ctrl-C, SIGTERM), no worker stays behind.
    """
    if not 1 <= number <= MOST_WORKERS:
        raise InvalidValue(f"workers = {number} is not a whole number in [1, {MOST_WORKERS}].")
    environment = one_thread(os.environ) | {PARENT: str(os.getpid())}
    workers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        stack.enter_context(_terminated_like_interrupted())
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(number)]
        try:
            for index, log in enumerate(logs):
                command = [sys.executable, "-m", "solvable", "sweep", "work", os.path.realpath(path)]
                command += ["--shard", f"{index}/{number}", *(["--study", study] if study else [])]
                # A group of their own, so that Ctrl-C reaches the parent alone, which ends them.
                workers.append(
                    subprocess.Popen(
                        command, env=environment, process_group=0,
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                    )
                )  # fmt: skip
            while any(worker.poll() is None for worker in workers):
                watch()
                _wait(workers, every)
        finally:
            _end(workers)
        watch()
        # Code 1 says that blocks were given up, which the store tells better; then the worker itself was well.
        codes = [worker.returncode for worker in workers]
        return [
            Dead(i, c, _last_words(log)) for i, (c, log) in enumerate(zip(codes, logs, strict=True)) if c not in (0, 1)
        ]


def _wait(workers: list[subprocess.Popen[bytes]], most: float) -> None:
    until = time.monotonic() + most
    while time.monotonic() < until and any(worker.poll() is None for worker in workers):
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
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM, too, is an interruption while this lasts (signals can be handled in the main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
