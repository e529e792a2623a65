"""The commands `solvable sweep …`. Status, verify and gc import no JAX."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from ..errors import InvalidValue, SolvableError
from .common import Arms, Json, Model, Over, Seeds, Sizes, Values, command_again, print_json, say, study_of

if TYPE_CHECKING:
    from ..lab.cluster import Tls
    from ..lab.launch import Jobs

Run = Annotated[Path, arg(metavar="RUN", help="Folder in which the study is stored.")]
StudyName = Annotated[str, arg(metavar="NAME", help="Which study of the run, e.g. study-0001 (default: the latest).")]
Memory = Annotated[
    str, arg(metavar="SIZE", help="Memory limit of a block, e.g. 4GB (default: a share of the free memory).")
]
Device = Annotated[Literal["", "cpu", "gpu"], arg(help="Device to compute on (default: a GPU if JAX finds one).")]
Shard = Annotated[str, arg(metavar="I/N", help="Start with this part of the blocks, then help with the others.")]
ClusterName = Annotated[
    str,
    arg(
        metavar="WHERE", help="Work on a dask cluster: local, slurm, or a scheduler's tcp://host:port, tls://host:port."
    ),
]


@dataclasses.dataclass
class TlsFiles:
    """Certificates for a scheduler at tls://host:port, and for --cluster slurm (which otherwise makes its own)."""

    tls_ca: Annotated[Path | None, arg(metavar="FILE", help="The authority that signed all certificates.")] = None
    tls_cert: Annotated[Path | None, arg(metavar="FILE", help="Our certificate.")] = None
    tls_key: Annotated[Path | None, arg(metavar="FILE", help="Its private key.")] = None

    def checked(self) -> Tls:
        """The files, all three or none; raises `InvalidValue` otherwise."""
        from ..lab.cluster import Tls

        return Tls(*("" if file is None else str(file) for file in (self.tls_ca, self.tls_cert, self.tls_key)))


@dataclasses.dataclass
class SlurmJobs:
    """Resources requested by Slurm jobs, with --slurm and with --cluster slurm."""

    queue: Annotated[str, arg(metavar="NAME", help="Partition.")] = ""
    walltime: Annotated[str, arg(metavar="TIME", help="Time limit of a job, e.g. 12:00:00.")] = ""
    job_memory: Annotated[str, arg(metavar="SIZE", help="Memory of a job, e.g. 4G.")] = ""
    cores: Annotated[int, arg(metavar="N", help="Workers per job of --cluster slurm.")] = 1
    sbatch: Annotated[str, arg(metavar="OPTIONS", help="Other options, e.g. '--account=x --exclude=y'.")] = ""
    interface: Annotated[str, arg(metavar="NAME", help="Network interface of --cluster slurm, e.g. ib0.")] = ""

    def checked(self) -> Jobs:
        """The resource request; raises `InvalidValue` if it is malformed."""
        from ..lab.launch import Jobs

        return Jobs(**{name.removeprefix("job_"): value for name, value in vars(self).items()})


@dataclasses.dataclass
class SweepRun:
    """Plan a study and compute it: in this process, with workers, on a dask cluster, or as a Slurm array."""

    run: Positional[Run]
    model: Positional[Model]
    values: Positional[Values] = ()
    over: Over = ()
    size: Sizes = ()
    seeds: Seeds = 8
    arms: Arms = ""
    workers: Annotated[
        int,
        arg(metavar="N", help="Number of workers, one thread each (0: this process; with --cluster: all of them)."),
    ] = 0
    slurm: Annotated[
        Path | None,
        arg(metavar="SCRIPT", help="Compute nothing; write a script for `sbatch` to this file (-: print it)."),
    ] = None
    tasks: Annotated[int, arg(metavar="N", help="Array tasks of the Slurm script, at most one per block.")] = 16
    memory: Memory = ""
    device: Device = ""
    cluster: ClusterName = ""
    tls: OmitArgPrefixes[TlsFiles] = dataclasses.field(default_factory=TlsFiles)
    jobs: OmitArgPrefixes[SlurmJobs] = dataclasses.field(default_factory=SlurmJobs)
    json: Json = False


@dataclasses.dataclass
class SweepWork:
    """Run one worker: compute the missing blocks of a run, alongside any number of other workers on any machine."""

    run: Positional[Run]
    shard: Shard = "0/1"
    study: StudyName = ""
    memory: Memory = ""
    device: Device = ""
    json: Json = False


@dataclasses.dataclass
class SweepRetry(SweepWork):
    """Like `work`, with three more attempts for blocks that failed."""


@dataclasses.dataclass
class SweepStatus:
    """Print the number of done, failed and missing cells, the speed and the time left; safe while workers write."""

    run: Positional[Run]
    study: StudyName = ""
    json: Json = False


@dataclasses.dataclass
class SweepVerify:
    """Read everything in a run and verify its hashes; exit code 1 if something is wrong."""

    run: Positional[Run]
    json: Json = False


@dataclasses.dataclass
class SweepExport:
    """Export the finished cells as csv (one row per cell), netcdf or zarr."""

    run: Positional[Run]
    to: Annotated[Literal["csv", "netcdf", "zarr"], arg(help="Format.")]
    out: Annotated[Path, arg(metavar="FILE", help="File to write.")]
    study: StudyName = ""
    json: Json = False


@dataclasses.dataclass
class SweepGc:
    """Remove leftovers of killed writers and workers: temporary files, claims, copies of archived blocks."""

    run: Positional[Run]
    older: Annotated[float, arg(metavar="SECONDS", help="Keep files younger than this.")] = 3600.0
    json: Json = False


@dataclasses.dataclass
class SweepCompact:
    """Move many small blocks into a few archives; safe while others read and write."""

    run: Positional[Run]
    json: Json = False


@dataclasses.dataclass
class Sweep:
    """Studies that outgrow one process: many workers, one run."""

    action: (
        Annotated[SweepRun, subcommand("run")]
        | Annotated[SweepWork, subcommand("work")]
        | Annotated[SweepStatus, subcommand("status")]
        | Annotated[SweepVerify, subcommand("verify")]
        | Annotated[SweepRetry, subcommand("retry")]
        | Annotated[SweepExport, subcommand("export")]
        | Annotated[SweepCompact, subcommand("compact")]
        | Annotated[SweepGc, subcommand("gc")]
    )


def with_sbatch(words: list[str]) -> list[str]:
    """The words of a command line, with `--sbatch OPTIONS` joined into one word, because its value looks like an option.

    >>> with_sbatch(["sweep", "run", "--sbatch", "--account=x --exclude=y", "--json"])
    ['sweep', 'run', '--sbatch=--account=x --exclude=y', '--json']
    """
    at = words.index("--sbatch") if "--sbatch" in words[:-1] else len(words)
    return words[:at] + ["=".join(words[at : at + 2])] * (at < len(words)) + words[at + 2 :]


def _use_one_thread() -> None:
    """Restrict JAX to one thread, before it is imported, so that every way to launch a sweep gives the same bits."""
    from ..lab.launch import one_thread

    os.environ.update(one_thread(os.environ))


def _set_limits(command: SweepRun | SweepWork | SweepRetry) -> None:
    """Set the device and the memory limit of a block, before JAX is imported, for this process and its children.

    If a machine has several GPUs, each worker uses the one of its shard.
    """
    from ..lab.memory import bytes_of

    requested = getattr(command, "memory", "") or getattr(getattr(command, "jobs", None), "memory", "")
    if text := requested or os.environ.get("SOLVABLE_MEMORY", ""):
        os.environ["SOLVABLE_MEMORY"] = str(bytes_of(text))
    if command.device:
        os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[command.device]
    if isinstance(command, SweepWork | SweepRetry) and os.environ.get("JAX_PLATFORMS", "") != "cpu":
        from ..lab.devices import one_of

        os.environ.update(one_of(_shard(command.shard)[0], os.environ))
    if command.device == "gpu":
        from ..lab.jax_environment import configure

        configure()
        import jax

        try:
            jax.devices()
        except Exception:  # JAX raises several types of exception here
            raise InvalidValue("device = 'gpu', but JAX finds no GPU.") from None


def _run(command: SweepRun) -> int:
    if command.workers and command.slurm is not None:
        raise InvalidValue("--workers and --slurm cannot be combined.")
    if command.cluster and command.slurm is not None:
        raise InvalidValue("--cluster and --slurm cannot be combined.")
    from ..lab.cluster import ClusterLost, check_where, run_tasks
    from ..lab.launch import checked_workers, run_workers, slurm_script

    checked_workers(command.workers, least=0)
    tls, jobs = command.tls.checked(), command.jobs.checked()
    if command.cluster:
        check_where(command.cluster, tls)
    if command.slurm is not None:
        slurm_script(str(command.run), command.tasks, jobs=jobs)  # raise before anything is planned
    begun = time.monotonic()
    _use_one_thread()
    _set_limits(command)
    lab = study_of(command)
    from ..lab.progress import progress_bar
    from ..lab.status import status

    store = lab.attach(command.run)
    blocks = lab.stored_plan()
    name = lab.stored_name(store)
    if command.slurm is not None:
        # The script names its study, because the run may contain a later one by the time the script runs.
        tasks = max(1, min(command.tasks, len(blocks)))
        return _write_script(command, slurm_script(store.path, tasks, study=name, jobs=jobs))
    dead = []
    try:
        if command.workers or command.cluster:
            cells = {row.block: row.cells for row in blocks.rows}
            done = {block for block in store.done() if block in cells}
            show = None if not command.json else False
            with progress_bar(show, sum(cells.values()), sum(cells[b] for b in done)) as advance:

                def watch() -> bool:
                    new = {block for block in store.done() if block in cells} - done
                    advance(sum(cells[b] for b in new))
                    done.update(new)
                    return len(done) == len(cells)

                if command.cluster:
                    options: dict[str, Any] = {"blocks": len(blocks), "tls": tls, "jobs": jobs, "say": say}
                    dead = run_tasks(store.path, command.cluster, command.workers, study=name, watch=watch, **options)
                else:
                    dead = run_workers(store.path, command.workers, study=name, watch=watch)
        else:
            from ..lab.sweep import work

            work(store.path, say=say if sys.stderr.isatty() else lambda sentence: None, study=name)
    except (KeyboardInterrupt, ClusterLost) as problem:
        state = status(store, name)
        kept = f"{state.cells['done']} of {state.cells['all']} cells are kept"
        why = "interrupted" if isinstance(problem, KeyboardInterrupt) else f"{problem}"
        say(f"solvable: {why}; {kept}. Resume with: {command_again()}")
        return 1
    state = status(store, name)
    for each in dead:
        say(f"solvable: {each}")
    if command.json:
        print_json(
            {"run": str(command.run), **dataclasses.asdict(state), "complete": state.complete,
             "dead": [dataclasses.asdict(d) for d in dead], "seconds": round(time.monotonic() - begun, 3)}
        )  # fmt: skip
    else:
        print(state)
        if not state.complete:
            print(f"continue with: solvable sweep {'retry' if state.blocks['failed'] else 'work'} {command.run}")
    return 0 if state.complete else 1


def _write_script(command: SweepRun, script: str) -> int:
    assert command.slurm is not None
    shown = str(command.slurm) == "-"
    if not shown:
        try:
            command.slurm.write_text(script, encoding="utf-8")
        except OSError as problem:
            raise SolvableError(f"{str(command.slurm)!r} cannot be written: {problem.strerror}.") from None
    if command.json:
        print_json({"run": str(command.run), "slurm": None if shown else str(command.slurm), "script": script})
    else:
        print(script if shown else f"planned in {command.run}; submit with: sbatch {shlex.quote(str(command.slurm))}")
    return 0


def _work(command: SweepWork | SweepRetry) -> int:
    shard = _shard(command.shard)
    _use_one_thread()
    _set_limits(command)
    from ..lab.jax_environment import configure

    configure()
    from ..lab.launch import last_block_on_signal, parent_lives
    from ..lab.store import Store

    Store.open(command.run)  # raise before JAX is imported
    from ..lab.sweep import work

    retry, more = isinstance(command, SweepRetry), last_block_on_signal()
    worked = work(
        command.run, shard, say, study=command.study, retry=retry,
        wanted=lambda: parent_lives() and more(), stop_at_once=True,
    )  # fmt: skip
    if command.json:
        print_json({"run": str(command.run), **dataclasses.asdict(worked)})
    else:
        print(
            f"{worked.computed} blocks computed ({worked.healed} of them repaired), {worked.failures} attempts failed, "
            f"{worked.split} blocks split, {worked.left} blocks left, in {worked.seconds:.1f} s"
        )
    return 0 if not worked.left else 1


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
    if not found or not int(found[1]) < int(found[2]) <= 1_000_000:
        raise InvalidValue(f"--shard {text!r} is not of the form i/n with 0 ≤ i < n ≤ 1000000.")
    return int(found[1]), int(found[2])


def _status(command: SweepStatus) -> int:
    from ..lab.status import status

    state = status(command.run, command.study)
    if command.json:
        print_json({"run": str(command.run), **dataclasses.asdict(state), "complete": state.complete})
    else:
        print(state)
    return 0


def _verify(command: SweepVerify) -> int:
    from ..lab.store import Store

    problems = Store.open(command.run).verify()
    wrong = [p for p in problems if not p.leftover]
    if command.json:
        rows = [{**dataclasses.asdict(p), "leftover": p.leftover} for p in problems]
        print_json({"run": str(command.run), "sound": not wrong, "problems": rows})
    else:
        for problem in problems:
            print(f"{'leftover' if problem.leftover else 'WRONG':9}{problem}")
        print(f"{len(wrong)} problems, {len(problems) - len(wrong)} leftovers of interrupted or busy writers")
    return 1 if wrong else 0


def _export(command: SweepExport) -> int:
    from ..lab.status import stored_study
    from ..lab.store import Store

    store = Store.open(command.run)
    _, specification = stored_study(store, command.study)
    if _within(command.out, store.path):
        raise InvalidValue(f"--out {str(command.out)!r} is inside the run: choose another location.")
    from ..lab.jax_environment import configure

    configure()
    from ..lab.export import export
    from ..study import Study

    lab = Study.from_specification(specification, store)
    missing = lab.missing()
    export(lab.dataset(), command.to, command.out)
    if command.json:
        state = {"run": str(command.run), "out": str(command.out), "cells": lab.number_of_cells(), "missing": missing}
        print_json(state)
    else:
        print(f"{command.out}" + (f" ({missing} of {lab.number_of_cells()} cells are not done yet)" if missing else ""))
    return 0


def _within(path: Path, folder: str) -> bool:
    real = os.path.realpath(path)
    return real == folder or real.startswith(folder + os.sep)


def _gc(command: SweepGc) -> int:
    if not 0 <= command.older < float("inf"):
        raise InvalidValue(f"older = {command.older} is not a number of seconds in [0, ∞).")
    from ..lab.leases import Claims
    from ..lab.store import Store

    store = Store.open(command.run)
    removed = {"temporaries": store.clean_temporaries(command.older), "copies": store.clean_copies()}
    with Claims(store.path, observer=True) as claims:
        removed["claims"] = claims.clean(command.older)
    if command.json:
        print_json({"run": str(command.run), "removed": sum(removed.values()), **removed})
    else:
        state = "{temporaries} temporary files, {copies} copies of archived blocks and {claims} claims removed"
        print(state.format(**removed))
    return 0


def _compact(command: SweepCompact) -> int:
    from ..lab.store import Store

    blocks, archives = Store.open(command.run).compact()
    if command.json:
        print_json({"run": str(command.run), "blocks": blocks, "archives": archives})
    else:
        print(f"{blocks} blocks moved into {archives} archives")
    return 0


COMMANDS: dict[type, Any] = {
    SweepRun: _run,
    SweepWork: _work,
    SweepRetry: _work,
    SweepStatus: _status,
    SweepVerify: _verify,
    SweepExport: _export,
    SweepCompact: _compact,
    SweepGc: _gc,
}
