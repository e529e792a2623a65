"""Who runs the workers of a sweep: processes of this machine, or the tasks of a Slurm array. Imports no JAX.

(The tasks of a dask cluster are in `cluster.py`.)
"""

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
SMALLEST_MOST = 1001  # what Slurm allows unless its administrator says otherwise (MaxArraySize)
NOTICE = 60  # seconds before the end of its time at which a task of Slurm is told
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
TRAVELLING = ("JAX_PLATFORMS", "SOLVABLE_MEMORY")  # go with the worker if they are set
GRACE = 10.0  # seconds that a worker has to end when told to


@dataclass(frozen=True)
class Dead:
    """A worker that ended otherwise than by finishing: its shard, its exit code (negative: a signal), its last words.

    A task of a cluster that was lost without an exit code has None.
    """

    worker: int
    code: int | None
    words: str

    def __str__(self) -> str:
        how = f"left with code {self.code}"
        if self.code is None or self.code < 0:
            how = "was lost" if self.code is None else f"was ended by signal {-self.code}"
        return f"worker {self.worker} {how}" + (f": {self.words}" if self.words else ".")


def one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a worker uses one thread; what the user has set stays.

    >>> [one_thread({"NPROC": "2"})[name] for name in ("NPROC", "OMP_NUM_THREADS")]
    ['2', '1']
    """
    return ONE_THREAD | dict(environment)


def settings_elsewhere() -> dict[str, str]:
    """What decides the bits, as this process has it: workers elsewhere get the same, whatever they find there."""
    environment = one_thread(os.environ)
    return {name: environment[name] for name in (*ONE_THREAD, *TRAVELLING) if name in environment}


class Worker:
    """A process that works on one shard of a run; it stops after its block if the process that made it is gone."""

    def __init__(self, path: str, index: int, number: int, *, study: str, environment: Mapping[str, str]):
        self.index = index
        self._log, self._report = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (see `close`)
        command = [sys.executable, "-m", "solvable", "sweep", "work", os.path.realpath(path)]
        command += ["--shard", f"{index}/{number}", *(["--study", study] if study else [])]
        # A group of their own, so that Ctrl-C reaches the parent alone, which ends them.
        self.process = subprocess.Popen(
            command, env={**environment, PARENT: str(os.getpid())}, process_group=0,
            stdin=subprocess.DEVNULL, stdout=self._report, stderr=self._log,
        )  # fmt: skip

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def fate(self) -> Dead | None:
        """How it died, after its end; None if it was well.

        Code 1 with a report says that blocks were given up, which the store tells better: the worker itself was well.
        """
        code = self.process.returncode
        return None if code in (0, 1) and _last_words(self._report) else Dead(self.index, code, _last_words(self._log))

    def close(self) -> None:
        """Forget what it said."""
        self._log.close()
        self._report.close()


def run_workers(
    path: str, number: int, *, study: str = "", watch: Callable[[], object] = lambda: None, every: float = 0.5
) -> list[Dead]:
    """Work on the run with `number` processes, each started afresh, and wait; returns those that died.

    None is started again: the others help with what a dead one leaves, and so does the next call. `watch` is called
    every so often. Ctrl-C and SIGTERM end the workers and raise KeyboardInterrupt.
    """
    checked_workers(number)
    environment = one_thread(os.environ)
    workers: list[Worker] = []
    with ExitStack() as stack:
        stop = stack.enter_context(stop_event())
        try:
            for index in range(number):
                workers.append(Worker(path, index, number, study=study, environment=environment))
                stack.callback(workers[-1].close)
            while any(worker.runs() for worker in workers) and not stop.is_set():
                watch()
                wait_for(workers, every, stop)
        finally:
            end(workers)
        if stop.is_set():
            raise KeyboardInterrupt
        watch()
        return [dead for worker in workers if (dead := worker.fate())]


def checked_workers(number: int, least: int = 1) -> int:
    """The number of workers, refused in one sentence unless it lies in its range."""
    if not least <= number <= MOST_WORKERS:
        raise InvalidValue(f"workers = {number} is not a whole number in [{least}, {MOST_WORKERS}].")
    return number


def wait_for(workers: list[Worker], most: float, stop: threading.Event | None = None) -> None:
    """Wait until all have ended, for so many seconds at most, or until told to stop."""
    until = time.monotonic() + most
    while time.monotonic() < until and any(worker.runs() for worker in workers):
        if stop is not None and stop.is_set():
            return
        time.sleep(0.02)


def end(workers: list[Worker]) -> None:
    """End the workers that still run; the store survives even the hard way."""
    running = [worker for worker in workers if worker.runs()]
    for worker in running:
        worker.process.terminate()
    wait_for(running, GRACE)
    for worker in running:
        if worker.runs():
            worker.process.kill()
        worker.process.wait()


@contextmanager
def stop_event() -> Iterator[threading.Event]:
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
    parent = os.environ.get(PARENT, "")
    return not parent.isdigit() or os.getppid() == int(parent)


def last_block_on_signal() -> Callable[[], bool]:
    """Whether this worker may begin another block: until SIGUSR1, which the script below asks for before the time is up."""
    signalled = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, lambda *_: signalled.set())
    return lambda: not signalled.is_set()


@dataclass(frozen=True)
class Jobs:
    """What a Slurm job asks for; `cores` workers share a job of a pool. Empty words leave it to the cluster.

    >>> Jobs(queue="long", walltime="1-00:00:00", memory="4GB", sbatch="--account=physics").directives()
    ['--partition=long', '--time=1-00:00:00', '--mem=4G', '--account=physics']
    """

    queue: str = ""
    walltime: str = ""
    memory: str = ""
    cores: int = 1
    sbatch: str = ""
    interface: str = ""

    def __post_init__(self) -> None:
        for name, form, example in (
            ("queue", r"[\w.,+-]*", "a partition's name"),
            ("walltime", r"(\d+-)?\d+(:\d+){0,2}|", "a time such as 30 (minutes), 12:00:00 or 2-00:00:00"),
            ("memory", r"(\d+)([KMGT])(i?B)?|", "an amount such as 500M or 4G"),
            ("interface", r"[\w.:-]*", "the name of a network interface"),
        ):
            value = getattr(self, name)
            if not re.fullmatch(form, value, re.ASCII):
                raise InvalidValue(f"{name} = {value!r} is not {example}.")
        if not 1 <= self.cores <= MOST_WORKERS:
            raise InvalidValue(f"cores = {self.cores} is not a whole number in [1, {MOST_WORKERS}].")
        if (words := self.extra) and (not words[0].startswith("-") or not all(map(str.isprintable, words))):
            raise InvalidValue(
                f"sbatch = {self.sbatch!r} is not a list of options of sbatch, such as --account=physics."
            )

    @property
    def extra(self) -> list[str]:
        """The words of `sbatch`."""
        try:
            return shlex.split(self.sbatch)
        except ValueError as problem:
            raise InvalidValue(f"sbatch = {self.sbatch!r} cannot be split into words: {problem}.") from None

    @property
    def size(self) -> str:
        """The memory as sbatch reads it, in powers of 1024."""
        return re.sub("i?B$", "", self.memory)

    def directives(self) -> list[str]:
        """The options, as they follow `#SBATCH`; those of the user come last, and so win."""
        parent = {"partition": self.queue, "time": self.walltime, "mem": self.size}
        return [f"--{name}={value}" for name, value in parent.items() if value] + (
            [shlex.join(self.extra)] * bool(self.extra)
        )


ANY_JOBS = Jobs()


def slurm_script(path: str, tasks: int, *, study: str = "", jobs: Jobs = ANY_JOBS) -> str:
    """A script for `sbatch` in which `tasks` array tasks work on the run; submit it as often as you like.

    >>> print(slurm_script("/data/my run", 4).splitlines()[-1].partition(" -m ")[2])
    solvable sweep work '/data/my run' --shard "$SLURM_ARRAY_TASK_ID/4"
    """
    if not 1 <= tasks <= MOST_TASKS:
        raise InvalidValue(f"tasks = {tasks} is not a whole number in [1, {MOST_TASKS}].")
    if jobs.cores != 1:
        raise InvalidValue(f"cores = {jobs.cores}: a task of the script is one worker with one thread; use more tasks.")
    path = os.path.realpath(path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(path)) or "run"
    settings = "\n".join(f"export {n}={shlex.quote(v)}" for n, v in settings_elsewhere().items())
    directives = "".join(f"#SBATCH {parent}\n" for parent in jobs.directives())
    asked = f" --study {shlex.quote(study)}" if study else ""
    many = ""
    if tasks > SMALLEST_MOST:
        many = (
            f"# More than {SMALLEST_MOST} tasks need a larger MaxArraySize: scontrol show config | grep MaxArraySize\n"
        )
    return f"""#!/bin/bash
#SBATCH --job-name=solvable-{name}
#SBATCH --array=0-{tasks - 1}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@{NOTICE}
{directives}{many}# A task that is killed loses only the block it was at: submit the script again to go on.
# Before its time is up a task is told (USR1) to begin no other block; told too early, it does not listen.
trap "" USR1
{settings}
exec {shlex.quote(sys.executable)} -m solvable sweep work {shlex.quote(path)} --shard "$SLURM_ARRAY_TASK_ID/{tasks}"{asked}
"""
