"""Workers of a sweep as dask.distributed tasks: in a local cluster, at any scheduler, or in a pool of Slurm jobs.

A task starts the same worker command as every other launcher and waits for it. Only strings are sent: the path of the
run, which all machines must see, a shard, and the settings of threads and device. Results are written only to the store,
so a task that runs twice, elsewhere or never does no harm. Neither the driver nor dask's workers import JAX.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidValue, SolvableError
from .launch import (
    ANY_JOBS,
    GRACE,
    Dead,
    Jobs,
    Worker,
    checked_workers,
    end,
    settings_elsewhere,
    stop_event,
    wait_for,
)
from .status import status

CONNECT = 10.0  # seconds for one attempt to reach a scheduler
PATIENCE = 120.0  # seconds without the scheduler after which the driver gives up
SPARE = 16  # tasks beyond those that can run now, for workers that join later
LOOPBACK = "127.0.0.1:0"
ADDRESS = r"(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"


class ClusterLost(SolvableError):
    """The scheduler went away during a sweep and did not come back."""


@dataclass(frozen=True)
class Tls:
    """Certificate files for driver, scheduler and workers: all three or none."""

    ca: str = ""
    cert: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        given = {f"--tls-{name}": value for name, value in vars(self).items()}
        if any(given.values()):
            for option, file in given.items():
                if not file:
                    raise InvalidValue(
                        f"{option} is missing: --tls-ca, --tls-cert and --tls-key must be given together."
                    )
                if not os.path.isfile(file):
                    raise InvalidValue(f"{option} {file!r} is not a file.")

    def __bool__(self) -> bool:
        return bool(self.ca)


NO_TLS = Tls()


def work_there(
    path: str, index: int, number: int, study: str, settings: Mapping[str, str], heal: bool
) -> tuple[int, str] | None:
    """Run one worker process as a task; return its exit code and last output if it died, else None.

    If no block is missing, no process is started, except to `heal` damaged blocks. The process ends when the task is
    cancelled (also because the driver is gone) or dask's worker closes; if that worker is killed, it stops after its block.
    """
    from distributed import get_worker
    from distributed.core import Status

    with suppress(SolvableError):  # the worker itself reports it better
        if not heal and not status(path, study).blocks["undone"]:
            return None
    dask_worker = get_worker()
    key = dask_worker.get_current_task()

    def wanted() -> bool:
        task = dask_worker.state.tasks.get(key)
        running = task is not None and task.state in ("executing", "long-running")
        return running and dask_worker.status in (Status.running, Status.paused)

    worker = Worker(path, index, number, study=study, environment={**os.environ, **settings})
    try:
        while worker.runs() and wanted():
            wait_for([worker], 0.2)
        end([worker])
        dead = worker.fate()
        return (dead.code or 0, f"{dead.words} (at {dask_worker.address})".strip()) if dead else None
    finally:
        end([worker])
        worker.close()


def run_tasks(
    path: str,
    where: str,
    number: int,
    *,
    blocks: int,
    study: str = "",
    tls: Tls = NO_TLS,
    jobs: Jobs = ANY_JOBS,
    watch: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda sentence: None,
    every: float = 0.5,
) -> list[Dead]:
    """Work on a run of `blocks` blocks with tasks of a dask cluster; return the tasks whose workers died.

    `where` is "local" (a cluster within this process), "slurm" (a pool of jobs, started and ended by this process), or the
    address of a scheduler. `number` is the number of workers; 0 with an address means as many as fit. `watch` is called
    periodically and returns whether everything is done. If the scheduler is lost, the driver waits for it and starts again.
    Ctrl-C and SIGTERM cancel the tasks and raise KeyboardInterrupt.
    """
    check_where(where, tls)
    checked_workers(number, least=0)
    distributed, path = _needed("distributed"), os.path.realpath(path)
    _quiet()

    def complete() -> bool:
        try:
            return watch()
        except OSError as problem:  # from the run, not from the connection
            raise SolvableError(f"Could not read the run at {path}: {problem.strerror or problem}.") from None

    heal = complete()  # everything is done already: tasks look for damage, and all of them are awaited
    with ExitStack() as stack:
        stop = stack.enter_context(stop_event())
        options = {"number": max(1, min(number or 1, blocks)), "tls": tls, "jobs": jobs, "beside": path}
        address, security = stack.enter_context(_cluster(distributed, where, **options))
        session = uuid.uuid4().hex[:12]
        for attempt in itertools.count():
            try:
                with _connected(distributed, address, security, PATIENCE if attempt else 0.0, stop) as client:
                    threads = sum(client.nthreads().values())
                    if not threads and not attempt:
                        say(f"solvable: no dask worker has connected to {_name(address)} yet; waiting.")
                    tasks = max(1, min(number or threads + SPARE, blocks))
                    futures = [
                        client.submit(
                            work_there, path, i, tasks, study, settings_elsewhere(), heal,
                            key=f"solvable-{session}-{attempt}-{i}", pure=False,
                        )
                        for i in range(tasks)
                    ]  # fmt: skip
                    if _wait(futures, stop, every, lambda: complete() and not heal):
                        return _dead(futures)
            except (OSError, TimeoutError, distributed.client.FutureCancelledError):
                pass
            if stop.is_set():
                raise KeyboardInterrupt
            say(f"solvable: lost the dask scheduler at {_name(address)}; waiting for it.")
            stop.wait(1.0)
    raise AssertionError("unreachable")


def check_where(where: str, tls: Tls) -> None:
    """Raise `InvalidValue` unless `where` and `tls` describe a cluster."""
    if where not in ("local", "slurm") and not re.fullmatch(ADDRESS, where):
        raise InvalidValue(f"cluster = {where!r} is not local, slurm, tcp://host:port or tls://host:port.")
    if where == "local" and tls:
        raise InvalidValue("cluster = 'local' opens no connection: leave out the --tls files.")
    if where.startswith("tcp:") and tls:
        raise InvalidValue(f"cluster = {where!r} is not encrypted: with --tls files use an address tls://host:port.")
    if where.startswith("tls:") and not tls:
        raise InvalidValue(f"cluster = {where!r} needs --tls-ca, --tls-cert and --tls-key.")


def _wait(futures: list[Any], stop: threading.Event, every: float, complete: Callable[[], bool]) -> bool:
    """Wait for the tasks; True if all ended or nothing is left to do, False if they were lost or `stop` was set."""
    ended = ("finished", "error")
    while not stop.is_set():
        done = complete()
        if any(future.status in ("lost", "cancelled") for future in futures):
            return done
        if all(future.status in ended for future in futures):
            return True
        if done:  # running tasks end on their own; waiting tasks are not needed
            until = time.monotonic() + GRACE / 4
            while time.monotonic() < until and not all(future.status in ended for future in futures):
                time.sleep(0.05)
            return True
        stop.wait(every)
    return False


def _dead(futures: list[Any]) -> list[Dead]:
    dead = []
    for index, future in enumerate(futures):
        if future.status == "error":
            problem = future.exception(timeout=CONNECT)
            words = str(problem).strip().splitlines()
            dead.append(Dead(index, None, f"{type(problem).__name__}: {words[0] if words else ''}"[:300]))
        elif future.status == "finished" and (died := future.result(timeout=CONNECT)):
            dead.append(Dead(index, *died))
    return dead


@contextmanager
def _connected(distributed: Any, address: Any, security: Any, patience: float, stop: threading.Event) -> Iterator[Any]:
    """A client of the scheduler, retried for `patience` seconds; its tasks are cancelled on exit."""
    until = time.monotonic() + patience
    while True:
        try:
            client = distributed.Client(address, security=security, timeout=CONNECT, set_as_default=False)
            break
        except (OSError, TimeoutError, ValueError, RuntimeError) as problem:
            if stop.is_set():
                raise KeyboardInterrupt from None
            if time.monotonic() > until:
                words = str(problem).strip().splitlines()
                raise (ClusterLost if patience else SolvableError)(
                    f"Could not reach a dask scheduler at {_name(address)}: {words[0] if words else type(problem).__name__}"
                ) from None
            stop.wait(0.5)
    try:
        yield client
    finally:
        # Futures are dropped with their client; dask's workers then end the processes of tasks still running.
        with suppress(Exception):
            client.close(timeout=GRACE)


@contextmanager
def _cluster(
    distributed: Any, where: str, *, number: int, tls: Tls, jobs: Jobs, beside: str
) -> Iterator[tuple[Any, Any]]:
    """The address or cluster that a client connects to, and its security settings."""
    if where not in ("local", "slurm"):
        yield where, _security(distributed, tls) if tls else None
        return
    from dask import config

    # Our own schedulers tolerate the end of a worker: jobs reach their time limit, which is not the task's fault.
    settings = {"distributed.scheduler.allowed-failures": 1000, "distributed.scheduler.http.routes": [],
                "distributed.worker.http.routes": []}  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(config.set(settings))
        if where == "local":
            # Within this process, so that no port is open to other users of this machine except those of dask's web
            # servers, which cannot be disabled and have nothing to show here.
            yield stack.enter_context(
                distributed.LocalCluster(
                    n_workers=number, threads_per_worker=1, processes=False, memory_limit=None,
                    dashboard_address=LOOPBACK, worker_dashboard_address=LOOPBACK, silence_logs=logging.CRITICAL,
                )
            ), None  # fmt: skip
            return
        # Anyone who can reach a scheduler can run code on it, so on a shared cluster it must authenticate its clients.
        security = _security(distributed, tls or stack.enter_context(temporary_certificate(os.path.dirname(beside))))
        pool = stack.enter_context(_slurm_pool(security, jobs))
        wanted = -(-number // jobs.cores)
        pool.adapt(minimum_jobs=wanted, maximum_jobs=wanted)  # a job that ends is requested again
        yield pool, security


def _slurm_pool(security: Any, jobs: Jobs) -> Any:
    module = _needed("dask_jobqueue")
    if shutil.which("sbatch") is None:
        raise SolvableError(
            "sbatch was not found on this machine: run --cluster slurm on a login node of a Slurm cluster."
        )
    files = (security.tls_ca_file, security.tls_worker_cert, security.tls_worker_key)
    if odd := next((file for file in files if shlex.quote(file) != file), None):
        raise SolvableError(f"{odd!r} has characters with a special meaning in a shell: choose another path.")
    extra = ["--requeue", "--open-mode=append"] + ([shlex.join(jobs.extra)] if jobs.extra else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = module.SLURMCluster(
            cores=jobs.cores, processes=1, memory=f"{jobs.size or '4G'}iB", walltime=jobs.walltime or None,
            queue=jobs.queue or None, interface=jobs.interface or None, job_extra_directives=extra, job_name="solvable",
            security=security, python=shlex.quote(sys.executable), scheduler_options={"dashboard_address": LOOPBACK},
            worker_extra_args=["--dashboard-address", LOOPBACK],
            silence_logs=logging.CRITICAL,
        )  # fmt: skip
    # Otherwise a job that Slurm rejects would silently be requested again and again.
    tested = subprocess.run(
        ["sbatch", "--test-only"], input=pool.job_script(), capture_output=True, text=True, timeout=60
    )
    if tested.returncode:
        pool.close()
        raise SolvableError(f"Slurm rejects these jobs: {(tested.stderr.strip() or '?').splitlines()[-1]}")
    return pool


@contextmanager
def temporary_certificate(folder: str) -> Iterator[Tls]:
    """A temporary self-signed certificate in a private folder within `folder`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise SolvableError(
            "openssl, which makes certificates, was not found: give --tls-ca, --tls-cert and --tls-key."
        )
    with tempfile.TemporaryDirectory(prefix=".solvable-tls-", dir=folder) as private:
        key, cert = os.path.join(private, "key.pem"), os.path.join(private, "cert.pem")
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "90", "-subj", "/CN=solvable"]
        words += ["-addext", "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign"]
        words += ["-keyout", key, "-out", cert]
        done = subprocess.run([openssl, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise SolvableError(
                f"openssl could not make a certificate: {(done.stderr.strip() or '?').splitlines()[-1]}"
            )
        yield Tls(cert, cert, key)


def _security(distributed: Any, tls: Tls) -> Any:
    ca, cert, key = (os.path.abspath(file) for file in (tls.ca, tls.cert, tls.key))
    roles = {f"tls_{role}_{kind}": file for role in ("client", "scheduler", "worker") for kind, file in
             (("cert", cert), ("key", key))}  # fmt: skip
    return distributed.Security(tls_ca_file=ca, require_encryption=True, **roles)


def _name(address: Any) -> str:
    return address if isinstance(address, str) else address.scheduler_address


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != module:
            raise
        name = module.replace("_", "-")
        raise SolvableError(
            f"--cluster needs {name}, which is not installed: pip install 'solvable[cluster]'."
        ) from None


def _quiet() -> None:
    """Silence dask's log about lost connections, which we report ourselves in one sentence."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
