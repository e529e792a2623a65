"""The store keeps committed blocks through failures of the process, the machine or the disk."""

import errno
import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from solvable.lab import _files, store
from solvable.lab.store import DamagedBlock, Store, StoreError, block_id
from waiting import LONG

KEY = block_id({"number": 0})
OTHER = block_id({"number": 1})
ARRAYS = {"x": np.arange(12.0)}


def content(number: int) -> dict[str, np.ndarray]:
    return {"x": np.full(50 + number % 7, float(number)), "name": np.array(str(number))}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return sorted(first) == sorted(second) and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes()
        for name in first
    )


def one_sentence(error: BaseException) -> bool:
    text = str(error)
    return text.endswith(".") and "\n" not in text and "Traceback" not in text and len(text) < 500


@pytest.fixture
def run(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "run")


@pytest.fixture(autouse=True)
def fast_fsync(monkeypatch):
    """Skip fsync, whose effect is tested by `BrittleOS`, to save time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


# Crashes


class Crash(BaseException):
    """The machine stops: no handler may do anything after this."""


class BrittleOS:
    """The `os` module with a crash at one system call, after which every call fails; it can simulate a power cut.

    `when` is before the call, after it, or in the middle of a write. `power_cut` discards contents and names that were not
    made durable by fsync.
    """

    MUTATING = ("open", "write", "fsync", "close", "rename", "link", "unlink", "mkdir")

    def __init__(self, stop_at: int = -1, when: str = "before", error: BaseException | None = None):
        self.stop_at, self.when, self.error = stop_at, when, error
        self.calls: list[str] = []
        self.dead = False
        self.paths: dict[int, str] = {}
        self.durable_size: dict[int, int] = {}  # by inode
        self.new_names: dict[str, list[str]] = {}  # by folder

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in self.MUTATING:
            return real

        def call(*arguments):
            if self.dead:
                if name == "close":
                    real(*arguments)  # a test should not run out of descriptors
                raise Crash
            self.calls.append(name)
            stopping = len(self.calls) - 1 == self.stop_at
            if stopping and self.when == "middle" and name == "write":
                arguments = (arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            if stopping and self.when == "before":
                self.stop()
            try:
                return self.noted(name, arguments, real)
            finally:
                if stopping:
                    self.stop()

        return call

    def stop(self):
        if self.error is not None:
            raise self.error
        self.dead = True
        raise Crash

    def noted(self, name, arguments, real):
        if name == "fsync":
            path = self.paths[arguments[0]]
            if os.path.isdir(path):
                self.new_names.pop(path, None)
            else:
                status = os.fstat(arguments[0])
                self.durable_size[status.st_ino] = status.st_size
            return None
        target = os.fspath(arguments[1 if name in ("rename", "link") else 0]) if name not in ("write", "close") else ""
        existed = os.path.lexists(target)
        result = real(*arguments)
        if name == "open":
            self.paths[result] = target
            if not existed:
                self.durable_size[os.fstat(result).st_ino] = 0
        if name in ("open", "mkdir", "rename", "link") and not existed:
            self.new_names.setdefault(os.path.dirname(target), []).append(target)
        return result

    def power_cut(self, root: str, lose_names: bool):
        for path in Path(root).rglob("*"):
            if path.is_file() and (size := self.durable_size.get(path.stat().st_ino)) is not None:
                os.truncate(path, size)
        for path in (path for names in self.new_names.values() for path in names if lose_names):
            shutil.rmtree(path, ignore_errors=True)
            Path(path).unlink(missing_ok=True)


def calls_of(monkeypatch, action) -> list[str]:
    brittle = BrittleOS()
    with monkeypatch.context() as patch:
        patch.setattr(_files, "os", brittle)
        action()
    return brittle.calls


def calls_of_a_commit(monkeypatch, path: str) -> list[str]:
    writer = Store.open(path)
    return calls_of(monkeypatch, lambda: writer.commit(KEY, content(0)))


@pytest.fixture
def started(tmp_path) -> Path:
    """A run with one block, to be copied."""
    Store.create(tmp_path / "started").commit(OTHER, content(1))
    return tmp_path / "started"


def copies(started: Path):
    number = 0
    while True:
        number += 1
        yield str(shutil.copytree(started, started.parent / f"copy{number}"))


def test_the_calls_of_a_commit_are_those_of_the_protocol(run, monkeypatch):
    run.commit(OTHER, ARRAYS)
    neighbour = OTHER[:2] + KEY[2:]
    calls = calls_of(monkeypatch, lambda: run.commit(neighbour, ARRAYS))
    assert calls[-12:] == [
        *("open", "write", "fsync", "close"),  # a temporary file
        "rename",
        *("open", "fsync", "close"),  # its folder
        *("open", "write", "fsync", "close"),  # this writer's manifest
    ]
    assert set(calls[:-12]) <= {"open"}  # checks whether the block exists


@pytest.mark.parametrize("when", ["before", "after", "middle"])
def test_stopping_at_any_system_call_of_a_commit_leaves_the_old_state_or_the_new(started, monkeypatch, when):
    fresh = copies(started)
    calls = calls_of_a_commit(monkeypatch, next(fresh))
    assert len(calls) >= 15
    outcomes = set()
    for stop_at in range(len(calls)):
        path = next(fresh)
        with monkeypatch.context() as patch:
            writer = Store.open(path)
            patch.setattr(_files, "os", BrittleOS(stop_at, when))
            with pytest.raises(Crash):
                writer.commit(KEY, content(0))
        reopened = Store.open(path)
        outcomes.add(KEY in reopened.done())
        assert set(reopened.done()) - {KEY} == {OTHER}
        assert all(same(reopened.read(block), content(int(block == OTHER))) for block in reopened.done())
        assert all(problem.leftover and one_sentence(problem) for problem in reopened.verify())
        reopened.commit(KEY, content(0))
        assert same(Store.open(path).read(KEY), content(0))
        reopened.clean_temporaries(older_than_s=0)
        assert all(problem.kind == "torn" for problem in reopened.verify())
        shutil.rmtree(path)
    assert outcomes == {False, True}


@pytest.mark.parametrize("lose_names", [False, True])
def test_a_power_cut_at_any_system_call_loses_no_commit(started, monkeypatch, lose_names):
    fresh = copies(started)
    calls = calls_of_a_commit(monkeypatch, next(fresh))
    for stop_at in range(len(calls) + 1):  # the last one stops after the commit returned
        path = next(fresh)
        brittle = BrittleOS(stop_at, "after")
        with monkeypatch.context() as patch:
            writer = Store.open(path)
            patch.setattr(_files, "os", brittle)
            if stop_at < len(calls):
                with pytest.raises(Crash):
                    writer.commit(KEY, content(0))
            else:
                writer.commit(KEY, content(0))
        brittle.power_cut(path, lose_names)
        reopened = Store.open(path)
        assert OTHER in reopened.done()
        assert stop_at < len(calls) or KEY in reopened.done()
        assert all(same(reopened.read(block), content(int(block == OTHER))) for block in reopened.done())
        assert all(problem.leftover for problem in reopened.verify() if problem.path.split("/")[0] != "blocks")
        assert not [problem for problem in reopened.verify() if problem.block in reopened.done()]
        reopened.commit(KEY, content(0))
        assert same(Store.open(path).read(KEY), content(0))
        shutil.rmtree(path)


def test_a_writer_vouches_only_for_what_would_survive_a_power_cut(tmp_path, monkeypatch):
    """The previous writer was killed at some system call and left files that exist but are not durable."""
    Store.create(tmp_path / "empty")
    fresh = copies(tmp_path / "empty")
    calls = calls_of_a_commit(monkeypatch, next(fresh))
    for stop_at in range(len(calls)):
        path = next(fresh)
        brittle = BrittleOS(stop_at, "after")
        first, second = Store.open(path), Store.open(path)
        with monkeypatch.context() as patch:
            patch.setattr(_files, "os", brittle)
            with pytest.raises(Crash):
                first.commit(KEY, content(0))
            brittle.dead, brittle.stop_at = False, -1
            second.commit(KEY, content(0))
        brittle.power_cut(path, lose_names=True)
        assert same(Store.open(path).read(KEY), content(0))


@pytest.mark.parametrize("when", ["before", "after", "middle"])
def test_creating_a_run_or_a_document_resumes_after_any_interruption(tmp_path, monkeypatch, when):
    def begin(path):
        Store.open_or_create(path).write_document("study", {"a": 0.1})

    calls = calls_of(monkeypatch, lambda: begin(tmp_path / "whole"))
    for stop_at in range(len(calls)):
        path = tmp_path / str(stop_at)
        with monkeypatch.context() as patch:
            patch.setattr(_files, "os", BrittleOS(stop_at, when))
            with pytest.raises(Crash):
                begin(path)
        begin(path)
        assert Store.open(path).read_document("study") == {"a": 0.1}
        assert {problem.kind for problem in Store.open(path).verify()} <= {"temporary", "torn"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_failing_disk_is_reported_in_one_sentence_without_loss(started, monkeypatch, code):
    fresh = copies(started)
    calls = calls_of_a_commit(monkeypatch, next(fresh))
    for stop_at in [number for number, name in enumerate(calls) if name in ("write", "fsync", "close", "rename")]:
        for when in ("before", "middle") if calls[stop_at] == "write" else ("before",):
            path = next(fresh)
            writer = Store.open(path)
            with monkeypatch.context() as patch:
                patch.setattr(_files, "os", BrittleOS(stop_at, when, OSError(code, os.strerror(code))))
                with pytest.raises(StoreError) as caught:
                    writer.commit(KEY, content(0))
            assert one_sentence(caught.value)
            assert os.strerror(code) in str(caught.value)
            assert not list(Path(path).rglob(".tmp-*"))
            for reader in (writer, Store.open(path)):
                assert all(same(reader.read(block), content(int(block == OTHER))) for block in reader.done())
                assert all(problem.leftover for problem in reader.verify())
            writer.commit(KEY, content(0))  # the same writer continues once there is space
            assert same(Store.open(path).read(KEY), content(0))
            assert {problem.kind for problem in writer.verify()} <= {"torn"}
            shutil.rmtree(path)


def test_short_writes_of_a_block_are_continued(run, monkeypatch):
    class Short(BrittleOS):
        def __getattr__(self, name):
            if name == "write":
                return lambda file, data: os.write(file, data if bytes(data[:8]) == b'{"block"' else data[:100])
            return super().__getattr__(name)

    with monkeypatch.context() as patch:
        patch.setattr(_files, "os", Short())
        run.commit(KEY, content(0))
    assert same(Store.open(run.path).read(KEY), content(0))


def test_a_short_write_to_the_manifest_is_a_full_disk_and_ends_writing(started, monkeypatch):
    writer = Store.open(started)
    writer.commit(KEY, content(0))
    third = block_id({"number": 2})

    class Short(BrittleOS):
        def __getattr__(self, name):
            if name == "write":
                return lambda file, data: os.write(file, data[:40] if bytes(data[:8]) == b'{"block"' else data)
            return super().__getattr__(name)

    with monkeypatch.context() as patch:
        patch.setattr(_files, "os", Short())
        with pytest.raises(StoreError, match="No space left"):
            writer.commit(third, content(2))
    assert third not in writer.done()
    writer.commit(third, content(2))
    assert set(Store.open(started).done()) == set(writer.done()) == {KEY, OTHER, third}
    assert [problem.kind for problem in writer.verify()] == ["torn"]


def test_clean_temporaries_keeps_recent_files(run):
    run.commit(KEY, ARRAYS)
    left = [Path(run.path) / name / f".tmp-{'0' * 32}" for name in ("", "manifests", f"blocks/{KEY[:2]}")]
    for path in left:
        path.write_text("torn")
    os.utime(left[0], (0, 0))
    assert run.clean_temporaries(older_than_s=3600) == 1
    assert [path.exists() for path in left] == [False, True, True]
    assert run.clean_temporaries(older_than_s=0) == 2
    assert run.verify() == []


# Other processes

WORKER = """
    import os, sys, time
    import numpy as np
    from solvable.lab.store import Store, block_id
    def content(number):
        return {"x": np.full(50 + number % 7, float(number)), "name": np.array(str(number))}
    def work(store, numbers):
        for number in numbers:
            store.commit(block_id({"number": number}), content(number), {"number": number})
"""


def worker(code: str, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(store.__file__).parents[2])}
    script = textwrap.dedent(WORKER) + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", script, *arguments], env=environment)


def test_killed_writers_leave_only_whole_blocks(run):
    """One process opens the run and forks writers, each killed at a random moment with SIGKILL."""
    process = worker(
        """
        import itertools, random, signal
        store, draw = Store.open(sys.argv[1]), random.Random(0)
        store.commit(block_id({"number": -1}), content(-1), {"number": -1})
        for attempt in range(12):
            ready, tell = os.pipe()
            child = os.fork()
            if child == 0:
                work(store, range(1000 * attempt, 1000 * attempt + 1))
                os.write(tell, b".")
                work(store, itertools.count(1000 * attempt + 1))
            if attempt % 2:
                os.read(ready, 1)  # every other writer gets to its second block, however slow the disk
            time.sleep(draw.uniform(0.0, 0.04))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        """,
        run.path,
    )
    assert process.wait(LONG) == 0
    reopened = Store.open(run.path)
    done = reopened.done()
    assert len(done) >= 7
    for block, entry in done.items():
        assert block == block_id({"number": entry.meta["number"]})
        assert same(reopened.read(block), content(entry.meta["number"]))
    assert all(problem.leftover for problem in reopened.verify())
    assert len({entry.writer for entry in done.values()}) >= 7  # a fork is another writer


def test_two_writers_at_once_on_one_run(tmp_path):
    path = str(tmp_path / "run")
    code = "work(Store.open_or_create(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))"
    writers = [worker(code, path, "0", "40"), worker(code, path, "20", "60")]
    assert [writer.wait(LONG) for writer in writers] == [0, 0]
    run = Store.open(path)
    done = run.done()
    assert set(done) == {block_id({"number": number}) for number in range(60)}
    assert all(same(run.read(block), content(entry.meta["number"])) for block, entry in done.items())
    assert len(list(Path(path).glob("manifests/*.jsonl"))) == 2
    assert run.verify() == []


def test_importing_loads_no_heavy_package():
    script = """
        import sys, time
        import numpy
        before = time.process_time()
        import solvable.lab.store
        spent = time.process_time() - before
        heavy = {"jax", "jaxlib", "equinox", "xarray", "zarr", "dask", "pandas", "scipy"} & set(sys.modules)
        print(spent, *heavy)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(store.__file__).parents[2])}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    spent, *heavy = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert heavy == []
    assert float(spent) < 0.15


# Damage


def test_every_flipped_bit_truncation_and_deletion_is_found(run):
    draw = random.Random(1)
    for number in range(4):
        run.commit(block_id({"number": number}), content(number), {"number": number})
    run.write_document("study", {"penalty": 0.1, "note": "a  b"})
    paths = [path for path in Path(run.path).rglob("*") if path.is_file()]
    assert len(paths) == 7
    assert run.verify() == []

    def found(path: Path):
        problems = Store(run.path).verify() if path.name != "run.json" else run.verify()
        assert problems
        assert all(one_sentence(problem) for problem in problems)
        if path.suffix == ".npz":
            assert {problem.block for problem in problems} == {path.stem}
            for reader in (run, Store.open(run.path)):
                with pytest.raises(DamagedBlock) as caught:
                    reader.read(path.stem)
                assert one_sentence(caught.value)
        if path.suffix == ".jsonl":
            lost = {problem.path for problem in problems if problem.kind == "unreferenced"}
            assert len(Store.open(run.path).done()) < 4 or "documents/study.json" in lost

    for trial in range(210):
        path = paths[trial % len(paths)]
        whole = path.read_bytes()
        bit = draw.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found(path)
        path.write_bytes(whole)
    for path in paths:
        whole = path.read_bytes()
        for size in (0, 1, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            found(path)
        path.write_bytes(whole + b"\0")
        assert run.verify()
        path.unlink()
        found(path)
        path.write_bytes(whole)
    assert run.verify() == []
