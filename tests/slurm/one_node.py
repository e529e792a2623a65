"""Sweeps on a real Slurm: a cluster of one node, in a temporary folder, on loopback, for the length of this script.

It submits the array script that `solvable sweep run --slurm` writes, tells one task to stop after its block, cancels
another, lets the time limit end a third that hangs, and submits the same script again; meanwhile a pool of dask workers
(`--cluster slurm`) loses one of its jobs. Nothing may be lost, and every bit must be that of one process alone.

Needs root on Debian or a derivative (the packages slurm-wlm and munge are installed if they are missing); elsewhere it prints
why it was skipped and ends with code 0. Everything it starts is ended by process id. `make slurm`, three
minutes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cluster_page
import solvable as sv
from solvable.lab.launch import SMALLEST_MOST, slurm_script
from solvable.lab.status import status
from solvable.lab.store import Store

DAEMONS = ("munged", "slurmctld", "slurmd")
STUDY = ["perceptron", "loss=square", "samples=3", "--over", "penalty=0.1:1:40", "--size", "300", "--seeds", "24"]
LONGEST = 1500.0  # seconds for everything; three minutes on an idle machine
BEGUN = time.monotonic()


class Failed(Exception):
    """A failed check, described in one sentence."""


def say(sentence: str) -> None:
    print(f"{time.monotonic() - BEGUN:6.1f} s  {sentence}", flush=True)


def until(what: Callable[[], Any], sentence: str, seconds: float = 300.0) -> Any:
    """Wait for something to become true; `sentence` says what."""
    end = min(time.monotonic() + seconds, BEGUN + LONGEST)
    while not (value := what()):
        if time.monotonic() > end:
            raise Failed(f"waited in vain: {sentence}.")
        time.sleep(0.1)
    return value


def must(holds: object, sentence: str) -> None:
    if not holds:
        raise Failed(f"it does not hold that {sentence}.")
    say(sentence)


# --- the cluster --------------------------------------------------------------------------------------------------------


def tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def reason_not_to_run() -> str | None:
    """The reason why it cannot run here, if there is one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a Slurm cluster of one's own needs Linux and root"
    if not all(map(tool, DAEMONS)) and tool("apt-get") is None:
        return "slurm-wlm and munge are not installed, and there is no apt-get to install them with"
    return None


def install() -> None:
    """Install what is missing."""
    apt = tool("apt-get")
    if all(map(tool, DAEMONS)) or apt is None:
        return
    say("installing slurm-wlm and munge")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", "slurm-wlm", "munge"]):
        done = subprocess.run([apt, *words], env=environment, capture_output=True, text=True)
        if done.returncode and "install" in words:
            raise Failed(
                f"apt-get could not install slurm-wlm and munge: {(done.stderr.strip() or '?').splitlines()[-1]}"
            )


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def configuration(folder: Path) -> str:
    host = socket.gethostname().partition(".")[0]
    controller, node = free_ports(2)
    # More processors than there may be: three tasks and two jobs of the pool shall run at once. No memory is counted.
    return f"""
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=3
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=6 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def one_node(folder: Path) -> Iterator[dict[str, str]]:
    """A Slurm cluster: yields the environment for its commands, and is always ended afterwards."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    (folder / "slurm.conf").write_text(configuration(folder))
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    munge = [f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
    commands = {
        "munged": ["--foreground", f"--socket={folder}/munge/socket", *munge],
        "slurmctld": ["-D", "-f", f"{folder}/slurm.conf"],
        "slurmd": ["-D", "-f", f"{folder}/slurm.conf"],
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, words in commands.items():
            with (folder / f"{name}.out").open("wb") as out:
                program = tool(name) or name
                started.append(
                    subprocess.Popen(
                        [program, *words], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                    )
                )
            if name == "munged":
                until((folder / "munge" / "socket").exists, "munged opens its socket", 20)
        until(lambda: "idle" in slurm(environment, "sinfo", "-h", "-o", "%T", quiet=True), "the node is idle", 40)
        yield environment
    finally:
        if len(started) == len(commands):
            slurm(environment, "scancel", "--user", "root", quiet=True)
            end = time.monotonic() + 20
            while slurm(environment, "squeue", "-h", quiet=True).strip() and time.monotonic() < end:
                time.sleep(0.2)
        for process in started[::-1]:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def slurm(environment: Mapping[str, str], *words: str, quiet: bool = False) -> str:
    """The output of a Slurm command."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode and not quiet:
        raise Failed(f"{' '.join(words)} left with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def state(environment: Mapping[str, str], job: str) -> str:
    """The state of a job, or of a task `job_index` of an array."""
    shown = slurm(environment, "scontrol", "-o", "show", "job", job)
    return shown.partition("JobState=")[2].partition(" ")[0]


# --- observations -------------------------------------------------------------------------------------------------------


def contents(run: Path) -> dict[str, str]:
    return {block: entry.sha256 for block, entry in Store.open(run).done().items()}


def processes_with(*texts: str) -> list[int]:
    """The processes whose command lines contain all of these words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(text in words for text in texts) and int(file.parent.name) != os.getpid():
            found.append(int(file.parent.name))
    return found


def solvable(environment: Mapping[str, str], *words: object, codes: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-m", "solvable", "sweep", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode not in codes:
        raise Failed(f"solvable sweep {' '.join(map(str, words))} left with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


# --- the scenes ---------------------------------------------------------------------------------------------------------


def hang(process: int) -> None:
    """Keep a process stopped; Slurm wakes processes that it signals, so the stop is repeated."""

    def again() -> None:
        with suppress(ProcessLookupError):
            while time.monotonic() < BEGUN + LONGEST:
                os.kill(process, signal.SIGSTOP)
                time.sleep(0.02)

    threading.Thread(target=again, daemon=True).start()


def disturbed_array(environment: Mapping[str, str], folder: Path) -> str:
    """Submit the generated script, and disturb each of its three tasks; returns the job, whose third task hangs."""
    run, script = folder / "array run", folder / "job.sh"  # a path with a space, as users may have
    options = ["--tasks", 3, "--walltime", 1, "--queue", "main", "--job-memory", "500M"]
    # With a limit of a minute Slurm would send its warning at once. Options of the user override those of the script.
    extra = f"--output={folder}/%A_%a.out --comment='two words' --signal=B:USR1@1"
    solvable(environment, "run", run, *STUDY, "--slurm", script, *options, "--sbatch", extra)
    job = slurm(environment, "sbatch", "--parsable", str(script)).strip()
    say(f"submitted the array as job {job}")
    workers = [
        until(lambda i=i: processes_with(str(run), f"--shard {i}/3"), f"task {i} has begun")[0] for i in range(3)
    ]
    must("Comment=two words" in slurm(environment, "scontrol", "show", "job", f"{job}_0"), "extra options arrive")
    until(lambda: len(contents(run)) > 2, "some blocks are done")
    hang(workers[2])
    slurm(environment, "scancel", f"{job}_1")
    slurm(environment, "scancel", "--signal=USR1", "--batch", f"{job}_0")
    until(lambda: state(environment, f"{job}_1") == "CANCELLED", "task 1 is cancelled")
    say("one running task was cancelled")
    until(lambda: state(environment, f"{job}_0") == "FAILED", "task 0 ends by itself")
    must("blocks left" in (folder / f"{job}_0.out").read_text(), "one task was told, finished its block and reported")
    must(status(run).blocks["undone"] > 0, "there is work left")
    return job


def disturbed_pool(environment: Mapping[str, str], folder: Path) -> None:
    """A pool of dask workers in Slurm jobs, one of which is cancelled."""
    run = folder / "pool"
    words = ["run", run, *STUDY, "--cluster", "slurm", "--workers", 2, "--walltime", "10", "--job-memory", "1G"]
    words += ["--interface", "lo", "--sbatch", f"--output={folder}/pool-%j.out"]
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "solvable", "sweep", *map(str, words)], env=environment, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until((run / "run.json").exists, "the pool's run is planned")
        until(lambda: len(processes_with(str(run), "sweep work")) == 2, "both jobs of the pool work")
        until(lambda: len(contents(run)) > 2, "the pool has done some blocks")
        jobs = slurm(environment, "squeue", "-h", "-n", "solvable", "-o", "%i").split()
        slurm(environment, "scancel", jobs[0])
        say(f"cancelled job {jobs[0]} of the pool {jobs}")
        until(lambda: driver.poll() is not None, "the pool finishes", 120)
        shown = (folder / "driver.log").read_text()
        if driver.returncode:
            raise Failed(f"the driver of the pool left with {driver.returncode}: {shown}")
        until(lambda: not slurm(environment, "squeue", "-h", "-n", "solvable"), "the pool's jobs are gone")
        must(not list(folder.glob(".solvable-tls-*")), "the pool leaves neither jobs nor certificates")
    finally:
        if driver.poll() is None:
            driver.terminate()
            driver.wait(30)


def page(environment: Mapping[str, str], folder: Path) -> None:
    """The commands for Slurm of docs/cluster.md, unchanged except for smaller numbers."""
    for name in ("array", "pool"):
        run = folder / "page" / "runs" / name
        run.parent.mkdir(parents=True, exist_ok=True)
        text = cluster_page.script(name).replace("runs/big", f"runs/{name}")
        command = ["bash", "-c", text]
        done = subprocess.run(
            command, env=environment, cwd=folder / "page", capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise Failed(f"the page's commands for {name} left with {done.returncode}: {done.stderr.strip()}")
        until(lambda run=run: status(run).complete, f"the page's {name} completes", 90)
    must(contents(folder / "page/runs/array") == contents(folder / "page/runs/pool"), "the page's commands hold")
    refused = solvable(environment, "run", folder / "refused", *STUDY, "--cluster", "slurm", "--queue", "nowhere",
                       "--interface", "lo", "--json", codes=(2,))  # fmt: skip
    must("Slurm rejects these jobs" in refused, "jobs that Slurm rejects are reported at once")


def scenes(environment: Mapping[str, str], folder: Path) -> None:
    solvable(environment, "run", folder / "inline", *STUDY)
    say("one process alone has computed the study")
    job = disturbed_array(environment, folder)
    disturbed_pool(environment, folder)
    page(environment, folder)
    until(lambda: state(environment, f"{job}_2") == "TIMEOUT", "the time limit ends the task that hangs", 180)
    must(
        not processes_with(str(folder / "array run")), "the time limit ended the task that hung, and no process is left"
    )
    kept = contents(folder / "array run")
    slurm(environment, "sbatch", "--wait", "--time=10", str(folder / "job.sh"), quiet=True)
    say("submitted the same script again, with more time")
    whole = contents(folder / "inline")
    for name in ("array run", "pool"):
        run = folder / name
        must(status(run).complete, f"{name}: nothing is lost")
        solvable(environment, "verify", run)
        must(contents(run) == whole, f"{name}: every bit is that of one process alone")
    must(kept.items() <= whole.items() and 0 < len(kept) < len(whole), f"{len(kept)} of {len(whole)} blocks were kept")
    for tasks, accepted in ((SMALLEST_MOST, True), (SMALLEST_MOST + 1, False)):
        (folder / "many.sh").write_text(slurm_script(str(folder / "array run"), tasks))
        done = subprocess.run(["sbatch", "--test-only", str(folder / "many.sh")], env=environment, capture_output=True)
        must(
            (done.returncode == 0) == accepted, f"Slurm as it comes {'takes' if accepted else 'refuses'} {tasks} tasks"
        )


def main() -> int:
    if why := reason_not_to_run():
        print(f"\n*** SKIPPED: the sweeps were not tried on Slurm: {why}. ***\n", flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="solvable-slurm-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # required by munge
        source = str(Path(sv.__file__).parents[1])
        os.environ["PYTHONPATH"] = source
        os.environ["SOLVABLE_CACHE"] = str(folder / "programs")
        try:
            install()
            with one_node(folder) as environment:
                say("Slurm is up")
                scenes(environment, folder)
            time.sleep(0.5)
            must(not processes_with(made), "no process is left")
        except Failed as problem:
            print(f"FAILED: {problem}", flush=True)
            for log in sorted([*folder.glob("*.log"), *folder.glob("*.out")]):
                print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-15:], sep="\n", flush=True)
            for process in processes_with(made):
                os.kill(process, signal.SIGKILL)
            return 1
    say("all holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
