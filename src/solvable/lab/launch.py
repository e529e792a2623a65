"""Launching the workers of a sweep, as processes on this machine or as tasks of a Slurm array. Imports no JAX.

Tasks of a dask cluster are in `cluster.py`.
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
SMALLEST_MOST = 1001  # Slurm's default limit (MaxArraySize)
NOTICE = 60  # seconds before its time limit at which a Slurm task receives a signal
PARENT = "SOLVABLE_PARENT"  # a local worker stops after its block when this process is gone
# One thread per worker, not only for speed: XLA splits sums among its threads, so their number can change the last bits
# of large simulations. Set by the environment, never by XLA flags, which would compile different programs.
ONE_THREAD = {
    "NPROC": "1",  # XLA's pool of threads
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # workers that share a device must not each take most of its memory
}
TRAVELLING = ("JAX_PLATFORMS", "SOLVABLE_MEMORY")  # passed on to workers if they are set
GRACE = 10.0  # seconds that a worker has to end after a signal


@dataclass(frozen=True)
class Dead:
    """A worker that ended without finishing: its shard, its exit code (negative: a signal) and its last output.

    The exit code is None for a cluster task that was lost.
    """

    worker: int
    code: int | None
    words: str

    def __str__(self) -> str:
        how = f"exited with code {self.code}"
        if self.code is None or self.code < 0:
            how = "was lost" if self.code is None else f"was killed by signal {-self.code}"
        return f"worker {self.worker} {how}" + (f": {self.words}" if self.words else ".")


def one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a worker uses one thread; the user's own settings are kept.

    >>> [one_thread({"NPROC": "2"})[name] for name in ("NPROC", "OMP_NUM_THREADS")]
    ['2', '1']
    """
    return ONE_THREAD | dict(environment)


def settings_elsewhere() -> dict[str, str]:
    """This process's settings that affect the bits of results, for workers on other machines."""
    environment = one_thread(os.environ)
    return {name: environment[name] for name in (*ONE_THREAD, *TRAVELLING) if name in environment}


class Worker:
    """A process that works on one shard of a run; it stops after its block if its parent process is gone."""

    def __init__(self, path: str, index: int, number: int, *, study: str, environment: Mapping[str, str]):
        self.index = index
        self._log, self._report = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (see `close`)
        command = [sys.executable, "-m", "solvable", "sweep", "work", os.path.realpath(path)]
        command += ["--shard", f"{index}/{number}", *(["--study", study] if study else [])]
        # In a separate process group, so that Ctrl-C reaches only the parent, which ends the workers.
        self.process = subprocess.Popen(
            command, env={**environment, PARENT: str(os.getpid())}, process_group=0,
            stdin=subprocess.DEVNULL, stdout=self._report, stderr=self._log,
        )  # fmt: skip

    def runs(self) -> bool:
        """Whether the process is still running."""
        return self.process.poll() is None

    def fate(self) -> Dead | None:
        """How the process died, after its end; None if it finished normally.

        Code 1 with a report means that blocks failed, which the store records; the worker itself finished normally.
        """
        code = self.process.returncode
        return None if code in (0, 1) and _last_words(self._report) else Dead(self.index, code, _last_words(self._log))

    def close(self) -> None:
        """Close the files of its output."""
        self._log.close()
        self._report.close()


def run_workers(
    path: str, number: int, *, study: str = "", watch: Callable[[], object] = lambda: None, every: float = 0.5
) -> list[Dead]:
    """Work on the run with `number` new processes and wait for them; return those that died.

    Dead workers are not restarted: the others, or the next call, compute their blocks. `watch` is called periodically.
    Ctrl-C and SIGTERM end the workers and raise KeyboardInterrupt.
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
    """Check the number of workers; raises `InvalidValue`."""
    if not least <= number <= MOST_WORKERS:
        raise InvalidValue(f"workers = {number} is not a whole number in [{least}, {MOST_WORKERS}].")
    return number


def wait_for(workers: list[Worker], most: float, stop: threading.Event | None = None) -> None:
    """Wait until all workers have ended, at most `most` seconds, or until `stop` is set."""
    until = time.monotonic() + most
    while time.monotonic() < until and any(worker.runs() for worker in workers):
        if stop is not None and stop.is_set():
            return
        time.sleep(0.02)


def end(workers: list[Worker]) -> None:
    """End the workers that are still running, by SIGKILL if necessary, which the store survives."""
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
    """An event that Ctrl-C and SIGTERM set within this context (signals can be handled in the main thread only).

    An exception raised by a handler would be lost while Python runs a finaliser; an event is not.
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
    """Whether the process that started this worker, if any, is still running."""
    parent = os.environ.get(PARENT, "")
    return not parent.isdigit() or os.getppid() == int(parent)


def last_block_on_signal() -> Callable[[], bool]:
    """A function that is true until SIGUSR1, which Slurm sends before the time limit so that no further block is begun."""
    signalled = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, lambda *_: signalled.set())
    return lambda: not signalled.is_set()


@dataclass(frozen=True)
class Jobs:
    """Resources requested by a Slurm job; `cores` workers share a job of a pool. Empty strings use the cluster's defaults.

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
            raise InvalidValue(f"sbatch = {self.sbatch!r} is not a list of sbatch options such as --account=physics.")

    @property
    def extra(self) -> list[str]:
        """The words of `sbatch`."""
        try:
            return shlex.split(self.sbatch)
        except ValueError as problem:
            raise InvalidValue(f"sbatch = {self.sbatch!r} cannot be split into words: {problem}.") from None

    @property
    def size(self) -> str:
        """The memory in sbatch's notation, in powers of 1024."""
        return re.sub("i?B$", "", self.memory)

    def directives(self) -> list[str]:
        """The options after `#SBATCH`; the user's own come last and take precedence."""
        parent = {"partition": self.queue, "time": self.walltime, "mem": self.size}
        return [f"--{name}={value}" for name, value in parent.items() if value] + (
            [shlex.join(self.extra)] * bool(self.extra)
        )


ANY_JOBS = Jobs()


def slurm_script(path: str, tasks: int, *, study: str = "", jobs: Jobs = ANY_JOBS) -> str:
    """A script for `sbatch` with `tasks` array tasks that work on the run; it may be submitted repeatedly.

    >>> print(slurm_script("/data/my run", 4).splitlines()[-1].partition(" -m ")[2])
    solvable sweep work '/data/my run' --shard "$SLURM_ARRAY_TASK_ID/4"
    """
    if not 1 <= tasks <= MOST_TASKS:
        raise InvalidValue(f"tasks = {tasks} is not a whole number in [1, {MOST_TASKS}].")
    if jobs.cores != 1:
        raise InvalidValue(
            f"cores = {jobs.cores} must be 1 in a script, whose tasks are single workers: use more tasks."
        )
    path = os.path.realpath(path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(path)) or "run"
    settings = "\n".join(f"export {n}={shlex.quote(v)}" for n, v in settings_elsewhere().items())
    directives = "".join(f"#SBATCH {parent}\n" for parent in jobs.directives())
    option = f" --study {shlex.quote(study)}" if study else ""
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
{directives}{many}# A killed task loses only its current block: submit the script again to continue.
# Shortly before its time limit a task receives USR1 and begins no further block; the signal is ignored until it can be handled.
trap "" USR1
{settings}
exec {shlex.quote(sys.executable)} -m solvable sweep work {shlex.quote(path)} --shard "$SLURM_ARRAY_TASK_ID/{tasks}"{option}
"""
