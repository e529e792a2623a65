"""Sweeps as tasks of dask.distributed, with schedulers and workers as real processes on loopback."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import cluster_page
import solvable as sv
from commands import answer
from solvable.lab import cluster
from solvable.lab.cluster import Tls, run_tasks, temporary_certificate
from solvable.lab.launch import ONE_THREAD, Dead, Jobs
from solvable.lab.status import status
from solvable.lab.store import Store
from waiting import LONG, holding, until, with_path

pytest.importorskip("distributed", reason="pip install 'solvable[cluster]'")

SOURCE = str(Path(sv.__file__).parents[1])
SMALL = ("perceptron", "loss=square", "samples=0.5", "--over", "penalty=0.1,1", "--size", "16", "--seeds", "40")
# Large enough that two threads would give other bits than one, and long enough to be interrupted.
LARGE = ("perceptron", "loss=square", "samples=3", "--over", "penalty=0.1:1:22", "--size", "300", "--seeds", "24")


def contents(path):
    """The hash of every done block's bytes."""
    return {block: entry.sha256 for block, entry in Store.open(path).done().items()}


def wrong(path):
    return [problem for problem in Store.open(path).verify() if not problem.leftover]


def workers_of(run):
    """All processes that work on the run, whoever started them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"work" in words and os.fsencode(run) in words:
            found.append(int(file.parent.name))
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def processes(folder):
    """Start processes, all of which are ended by their id in any case."""
    started = []

    def start(name, *words):
        log = (folder / f"{name}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        log.close()
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started[::-1]:
            if process.poll() is None:
                process.terminate()
        for process in started[::-1]:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def scheduler_words(port, *more):
    words = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-show"]
    return [*words, "--dashboard-address", "127.0.0.1:0", *more]


def worker_words(address, *more):
    words = ["-m", "distributed.cli.dask_worker", address, "--host", "127.0.0.1", "--nthreads", "1"]
    return [*words, "--dashboard-address", "127.0.0.1:0", "--memory-limit", "0", *more]


def run_words(run, *words):
    return ["-m", "solvable", "sweep", "run", str(run), *words]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="asks /proc for the workers")
def test_driver_worker_and_scheduler_are_killed_in_turn_and_every_bit_is_that_of_one_process(tmp_path):
    run, log = tmp_path / "run", tmp_path / "driver.log"
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"

    def done():
        return len(contents(run)) if (run / "run.json").exists() else 0

    def more_than(number):
        return lambda: done() > number

    with processes(tmp_path) as start:
        scheduler = start("scheduler", *scheduler_words(port))
        watched = start("watched", *worker_words(address, "--nanny"))
        alone = start("alone", *worker_words(address, "--no-nanny"))
        command = run_words(run, *LARGE, "--cluster", address)

        driver = start("driver", *command)
        until(lambda: len(workers_of(run)) == 2 and done() > 1)
        driver.kill()
        until(lambda: not workers_of(run))  # the scheduler notices, and the tasks end their processes
        kept = done()

        driver = start("driver", *command)  # the same command again
        until(lambda: len(workers_of(run)) == 2 and done() > kept)
        watched.kill()  # dask's nanny; its worker ends with it, and the worker's process ends after its block
        until(lambda: len(workers_of(run)) == 1)
        until(more_than(done()))  # the other one continues

        scheduler.kill()
        until(lambda: alone.poll() is not None and not workers_of(run))
        left = status(run).blocks["undone"]
        assert left > 0
        assert driver.poll() is None
        scheduler = start("scheduler", *scheduler_words(port))
        for name in ("third", "fourth"):
            start(name, *worker_words(address, "--no-nanny"))
        assert driver.wait(LONG) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        assert f"lost the dask scheduler at {address}; waiting for it" in log.read_text()
    assert status(run).complete
    assert wrong(run) == []
    command = [sys.executable, *run_words(tmp_path / "inline", *LARGE)]
    inline = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert inline.returncode == 0, inline.stderr
    assert contents(run) == contents(tmp_path / "inline")
    until(lambda: not workers_of(run))


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    for name, value in ONE_THREAD.items():  # the commands set them; they must not outlive the test
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EQX_ON_ERROR", "nan")


# --- encryption ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate authority, and one certificate signed by it for all participants."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(words, *more):
        done = subprocess.run(
            ["openssl", *words.split(), *more], cwd=folder, capture_output=True, text=True, timeout=LONG
        )
        assert done.returncode == 0, done.stderr

    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(f"req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    openssl(f"req {new} -keyout our.key -out our.csr -subj /CN=ours")
    openssl("x509 -req -in our.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out our.pem")
    return Tls(*(str(folder / name) for name in ("ca.pem", "our.pem", "our.key")))


def refused(context, port):
    """Whether the server closes the connection without an answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as encrypted:
            return encrypted.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_a_scheduler_with_certificates_accepts_only_clients_that_have_one(tmp_path, certificates, monkeypatch):
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    files = ["--tls-ca-file", certificates.ca, "--tls-cert", certificates.cert, "--tls-key", certificates.key]
    distributed = pytest.importorskip("distributed")
    with processes(tmp_path) as start:
        start("scheduler", *scheduler_words(port, "--protocol", "tls", *files))
        ours = cluster._security(distributed, certificates)
        with cluster._connected(distributed, address, ours, 30.0, threading.Event()) as client:
            assert client.scheduler_info()["address"] == address

        # Without a certificate the handshake fails, whatever is sent afterwards.
        stranger = ssl.create_default_context(cafile=certificates.ca)
        stranger.check_hostname = False
        assert refused(stranger, port)
        stranger.load_cert_chain(certificates.cert, certificates.key)
        assert not refused(stranger, port)
        monkeypatch.setattr(cluster, "CONNECT", 1.0)
        with temporary_certificate(str(tmp_path)) as other:
            for where, tls in (
                (address, other),
                (f"tcp://127.0.0.1:{port}", Tls()),
            ):  # another authority; no encryption
                with pytest.raises(sv.SolvableError, match="Could not reach a dask scheduler"):
                    run_tasks(str(tmp_path / "run"), where, 1, blocks=1, tls=tls)


def test_a_certificate_of_our_own_is_private_valid_by_the_strictest_rules_and_gone_afterwards(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    with temporary_certificate(str(tmp_path)) as tls:
        assert Path(tls.key).stat().st_mode & 0o077 == 0
        assert Path(tls.key).parent.stat().st_mode & 0o077 == 0
        done = subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", tls.ca, tls.cert], capture_output=True)
        assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


# --- the other launchers, and what is refused ---------------------------------------------------------------------------


def test_an_in_process_cluster_computes_missing_blocks_bit_for_bit(capsys, tmp_path):
    run = tmp_path / "run"
    assert answer(capsys, "sweep", "run", run, *SMALL)[0] == 0
    whole = contents(run)
    next((run / "blocks").glob("*/*.npz")).unlink()
    assert len(wrong(run)) == 1
    assert answer(capsys, "sweep", "run", run, *SMALL, "--cluster", "local", "--workers", "1")[0] == 0
    assert wrong(run) == []
    assert contents(run) == whole


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="asks /proc for the workers")
def test_an_interrupted_driver_ends_its_tasks_and_prints_how_to_resume(tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([holding(tmp_path / "site", after=0)[0], SOURCE]))
    with processes(tmp_path) as start:
        driver = start("driver", *run_words(run, *LARGE, "--cluster", "local", "--workers", "1"))
        until(lambda: workers_of(run))
        driver.send_signal(signal.SIGINT)
        assert driver.wait(LONG) == 1
        assert workers_of(run) == []
    logged = (tmp_path / "driver.log").read_text()
    assert "Traceback" not in logged
    assert f"Resume with: solvable sweep run {run} perceptron" in logged


def test_a_worker_asked_to_stop_finishes_its_block_and_starts_no_other(capsys, tmp_path):
    run = tmp_path / "run"
    held, release = holding(tmp_path / "site", after=1)
    assert answer(capsys, "sweep", "run", run, *LARGE, "--slurm", "-")[0] == 0
    command = [sys.executable, "-m", "solvable", "sweep", "work", str(run), "--json"]
    environment = with_path(held, SOURCE)
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        until(lambda: contents(run))
        worker.send_signal(signal.SIGUSR1)
        release.touch()
        out, _ = worker.communicate(timeout=LONG)
    finally:
        worker.kill()
    logged = json.loads(out)
    assert worker.returncode == 1
    assert logged["computed"] == len(contents(run)) > 0
    assert logged["left"] > 0


def test_a_driver_whose_scheduler_does_not_return_gives_up_with_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT", 5.0)
    monkeypatch.setattr(cluster, "PATIENCE", 0.1)
    port, lines = free_port(), []
    with processes(tmp_path) as start:
        scheduler = start("scheduler", *scheduler_words(port))
        called = iter([False])  # the call before anything is started; the next call comes when the tasks exist

        def watch():
            if next(called, True):
                scheduler.kill()
            return False

        with pytest.raises(cluster.ClusterLost, match="Could not reach"):
            run_tasks(str(tmp_path), f"tcp://127.0.0.1:{port}", 1, blocks=1, watch=watch, say=lines.append)
    assert "no dask worker has connected" in lines[0]
    assert "lost the dask scheduler" in lines[1]


def test_a_run_that_cannot_be_watched_is_not_taken_for_a_lost_scheduler(tmp_path):
    answers = iter([False])

    def watch():
        for lines in answers:
            return lines
        raise PermissionError(13, "Permission denied")

    with pytest.raises(sv.SolvableError, match="Could not read the run at .*: Permission denied"):
        run_tasks(str(tmp_path), "local", 1, blocks=1, watch=watch)


def test_a_task_that_cannot_see_the_run_reports_it(tmp_path):
    [dead] = run_tasks(str(tmp_path / "nowhere"), "local", 1, blocks=1)
    assert isinstance(dead, Dead)
    assert dead.code == 2
    assert "There is no run at" in str(dead)


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = answer(capsys, "sweep", "run", tmp_path / "run", *SMALL, "--cluster", "local")
    assert code == 2
    assert err == "solvable: --cluster needs distributed, which is not installed: pip install 'solvable[cluster]'.\n"


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """A stand-in for sbatch that stores the script to test and rejects one partition."""
    (tmp_path / "bin").mkdir()
    file = tmp_path / "bin" / "sbatch"
    file.write_text(
        f"#!/bin/sh\ncat > {tmp_path}/script\n! grep -q nowhere {tmp_path}/script || {{ echo no such >&2; exit 1; }}\n"
    )
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "script"


def test_a_pool_requests_the_given_resources_from_slurm_and_is_encrypted(tmp_path, sbatch, certificates):
    pytest.importorskip("dask_jobqueue")
    jobs = Jobs(queue="long", walltime="2:00:00", memory="3G", cores=4, sbatch="--comment='a b'", interface="lo")
    security = cluster._security(cluster._needed("distributed"), certificates)
    with cluster._slurm_pool(security, jobs) as pool:
        assert pool.scheduler_address.startswith("tls://127.0.0.1:")
    script = sbatch.read_text().splitlines()
    for line in ("-p long", "-t 2:00:00", "--mem=3G", "--cpus-per-task=4", "'--comment=a b'", "--requeue"):
        assert f"#SBATCH {line}" in script
    assert f"--tls-ca-file {certificates.ca}" in script[-1]
    assert "--nthreads 4" in script[-1]
    (tmp_path / "my file").touch()
    odd = cluster._security(cluster._needed("distributed"), Tls(*[str(tmp_path / "my file")] * 3))
    for wrong, why in (
        ((odd, jobs), "special meaning in a shell"),
        ((security, Jobs(queue="nowhere")), "rejects these jobs: no such"),
    ):
        with pytest.raises(sv.SolvableError, match=why):
            cluster._slurm_pool(*wrong)


def test_a_pool_without_slurm_is_refused(tmp_path, certificates, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sv.SolvableError, match="sbatch was not found on this machine"):
        run_tasks(str(tmp_path), "slurm", 1, blocks=1, tls=certificates)
    with pytest.raises(sv.SolvableError, match="openssl, which makes certificates, was not found"):
        run_tasks(str(tmp_path), "slurm", 1, blocks=1)


BAD = [
    ("--cluster", "nonsense"),
    ("--cluster", "tcp://host"),
    ("--cluster", "http://host:80"),
    ("--cluster", "tcp://a b:1"),
    ("--cluster", "tls://127.0.0.1:1"),
    ("--cluster", "tcp://127.0.0.1:1", "--tls-ca", "FILE", "--tls-cert", "FILE", "--tls-key", "FILE"),
    ("--cluster", "local", "--tls-ca", "FILE", "--tls-cert", "FILE", "--tls-key", "FILE"),
    ("--cluster", "tls://127.0.0.1:1", "--tls-ca", "FILE", "--tls-cert", "FILE"),
    ("--cluster", "tls://127.0.0.1:1", "--tls-ca", "NOWHERE", "--tls-cert", "FILE", "--tls-key", "FILE"),
    ("--cluster", "local", "--workers", "-1"),
    ("--cluster", "local", "--workers", "100000"),
    ("--cluster", "local", "--slurm", "job.sh"),
    ("--slurm", "-", "--queue", "a b"),
    ("--slurm", "-", "--queue", "a\nb"),
    ("--slurm", "-", "--walltime", "an hour"),
    ("--slurm", "-", "--job-memory", "much"),
    ("--slurm", "-", "--cores", "0"),
    ("--slurm", "-", "--cores", "2"),
    ("--slurm", "-", "--interface", "$(reboot)"),
    ("--slurm", "-", "--sbatch", "'"),
    ("--slurm", "-", "--sbatch", "rm -rf"),
    ("--slurm", "-", "--sbatch", "--comment='a\nreboot'"),
    ("--slurm", "-", "--sbatch"),
    ("--slurm", "-", "--tasks", "0"),
]


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_an_invalid_cluster_is_refused_in_one_sentence(capsys, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("dear diary")
    code, out, err = answer(capsys, "sweep", "run", "run", *SMALL, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("solvable: ")
    assert err.count("\n") == 1


# --- the page -----------------------------------------------------------------------------------------------------------


def run_page(name, folder):
    """Run one block of the page; its run is named after it."""
    text = cluster_page.script(name, free_port()).replace("runs/big", f"runs/{name}")
    done = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=2 * LONG)
    assert done.returncode == 0, (name, done.stderr)
    return folder / "runs" / name


def test_every_command_of_the_page_is_tested_here_or_on_slurm():
    assert set(cluster_page.blocks()) == {"laptop", "by-hand", "dask", "tls", "array", "pool", "afterwards"}


def test_the_commands_of_the_page_for_one_machine_and_for_dask_give_the_same_bits(tmp_path):
    runs = [run_page(name, tmp_path) for name in ("laptop", "by-hand", "dask")]
    assert all(status(run).complete and contents(run) == contents(runs[0]) for run in runs)
    runs[0].rename(tmp_path / "runs" / "afterwards")
    run_page("afterwards", tmp_path)
    assert (tmp_path / "big.csv").read_text().startswith("kind,")


def test_the_commands_of_the_page_for_an_encrypted_cluster_complete_a_sweep(tmp_path):
    run = run_page("tls", tmp_path)
    assert status(run).complete
    assert wrong(run) == []
    assert "tls://127.0.0.1" in (tmp_path / "dask.log").read_text()
