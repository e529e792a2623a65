"""The store keeps what it was given, whatever happens to the process, the disk or the folder."""

import doctest
import errno
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from solvable.lab import _files, _records, store
from solvable.lab.store import DamagedBlock, Store, StoreError, block_id, canonical

NAN_WITH_PAYLOAD = np.array([0x7FF8DEADBEEF0001], dtype=np.uint64).view(np.float64)
EVERYTHING = {
    "float64": np.array([[0.1, -0.0, np.nan], [np.inf, -np.inf, 5e-324]]),
    "payload": NAN_WITH_PAYLOAD,
    "float32": np.linspace(0, 1, 7, dtype=np.float32),
    "float16": np.ones(3, dtype=np.float16),
    "complex": np.array([1 + 2j, np.nan]),
    "complex64": np.array([1 - 2j], dtype=np.complex64),
    "int8": np.arange(-3, 3, dtype=np.int8),
    "int64": np.array([2**63 - 1, -(2**63)]),
    "uint64": np.array([2**64 - 1], dtype=np.uint64),
    "big_endian": np.arange(4, dtype=">i4"),
    "bool": np.array([True, False]),
    "text": np.array(["λ → 0", "", "ridge"]),
    "bytes": np.array([b"a\x00b", b"xyz"]),
    "date": np.array(["2026-01-01"], dtype="datetime64[ns]"),
    "scalar": np.array(3.5),
    "scalar_text": np.array("one"),
    "empty": np.zeros((0, 3)),
    "empty_text": np.array([], dtype="U"),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(10)[::3],
    "theory/test-error.v1": np.zeros((2, 1, 2)),
}
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


# What goes in comes out


def test_every_dtype_comes_back_bit_for_bit(run):
    entry = run.commit(KEY, EVERYTHING, {"seconds": 0.1, "residual": float("nan")})
    back = Store.open(run.path).read(KEY)
    assert same(back, EVERYTHING)
    assert all(array.flags.writeable for array in back.values())
    told = Store.open(run.path).done()[KEY]
    assert (told.sha256, told.bytes, told.writer) == (entry.sha256, entry.bytes, entry.writer)
    assert told.meta["seconds"] == 0.1
    assert np.isnan(told.meta["residual"])
    assert run.verify() == []


def test_numpy_itself_can_read_a_block(run):
    run.commit(KEY, EVERYTHING)
    with np.load(Path(run.path) / f"blocks/{KEY[:2]}/{KEY}.npz", allow_pickle=False) as back:
        assert same(dict(back), EVERYTHING)


def test_same_arrays_give_the_same_bytes_whatever_their_order_layout_or_moment(tmp_path, monkeypatch):
    first = Store.create(tmp_path / "a").commit(KEY, EVERYTHING)
    monkeypatch.setattr("time.time", lambda: 1e9)
    shuffled = {name: np.array(EVERYTHING[name], order="F") for name in reversed(EVERYTHING)}
    assert Store.create(tmp_path / "b").commit(KEY, shuffled).sha256 == first.sha256
    other = {**EVERYTHING, "float64": np.where(EVERYTHING["float64"] == 0, 0.0, EVERYTHING["float64"])}
    assert Store.create(tmp_path / "c").commit(KEY, other).sha256 != first.sha256  # only -0.0 became 0.0


def test_different_specifications_have_different_names():
    distinct = [1, 1.0, True, "1", None, 0.0, -0.0, float("nan"), float("inf"), "nan", "inf", "'nan", "''nan", -1.0]
    distinct += [0.1, (0.1).hex(), "'" + (0.1).hex(), np.nextafter(0.1, 1), np.float32(0.1), [], {}, [0.1], {"a": 0.1}]
    distinct += ["", [[]], [1, 2], [2, 1], "ü", "\ud800"]
    names = [block_id({"value": value}) for value in distinct]
    assert len(set(names)) == len(names)


def test_equal_specifications_have_equal_names():
    assert block_id({"a": 1, "b": (0.1, np.float64(2))}) == block_id({"b": [np.float64(0.1), 2.0], "a": np.int64(1)})
    assert json.loads(canonical({"b": 0.5, "a": "x"})) == {"a": "x", "b": (0.5).hex()}


@pytest.mark.parametrize("bad", [{"a": 1j}, {1: 2}, {"a": {3, 4}}, {"a": np.zeros(2)}, {"a": b"x"}, {"a": object()}])
def test_a_specification_json_cannot_hold_is_refused_in_one_sentence(bad):
    with pytest.raises(StoreError, match="JSON cannot hold") as caught:
        block_id(bad)
    assert one_sentence(caught.value)


def test_a_specification_that_contains_itself_is_refused():
    loop: dict = {}
    loop["loop"] = loop
    with pytest.raises(StoreError, match="contains itself"):
        block_id(loop)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.array([{}], dtype=object)},
        {"x": np.zeros(2, dtype=[("a", "f8")])},
        {"x": np.zeros(2, dtype="V3")},
        {"x": np.zeros(2, dtype=np.longdouble)},
        {"../x": np.zeros(2)},
        {"": np.zeros(2)},
        {"/x": np.zeros(2)},
        {"a//b": np.zeros(2)},
        {3: np.zeros(2)},
    ],
)
def test_arrays_a_block_cannot_hold_are_refused_before_anything_is_written(run, arrays):
    with pytest.raises(StoreError) as caught:
        run.commit(KEY, arrays)
    assert one_sentence(caught.value)
    assert os.listdir(run.path) == ["run.json"]


def test_a_large_meta_is_refused_before_anything_is_written(run):
    with pytest.raises(StoreError, match="may take 65000"):
        run.commit(KEY, ARRAYS, {"log": "x" * 70_000})
    assert os.listdir(run.path) == ["run.json"]


# Documents


def test_documents_are_written_once(run):
    study = {"name": "ridge λ", "over": [0.1, -0.0, 1e300], "sizes": (1, 2), "nested": {"none": None, "yes": True}}
    run.write_document("study", study)
    run.write_document("study", dict(reversed(study.items())))
    back = Store.open(run.path).read_document("study")
    assert canonical(back) == canonical(study)
    with pytest.raises(StoreError, match="another document 'study'") as caught:
        run.write_document("study", {**study, "over": [0.1, 0.0, 1e300]})
    assert one_sentence(caught.value)
    assert canonical(run.read_document("study")) == canonical(study)
    with pytest.raises(StoreError, match="no document 'plan'"):
        run.read_document("plan")
    assert run.verify() == []


def test_two_writers_of_one_document_cannot_replace_each_other(run, monkeypatch):
    """The slower writer saw no document, then finds one: it must not win."""
    monkeypatch.setattr(store.os.path, "lexists", lambda path: False)
    run.write_document("plan", {"by": "first"})
    with pytest.raises(StoreError, match="another document"):
        run.write_document("plan", {"by": "second"})
    assert run.read_document("plan") == {"by": "first"}


def test_documents_work_where_hard_links_do_not(run, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(_files.os, "link", no_links)
    run.write_document("plan", {"a": 1})
    run.write_document("plan", {"a": 1})
    with pytest.raises(StoreError, match="another document"):
        run.write_document("plan", {"a": 2})
    assert run.verify() == []


# Opening


def test_create_refuses_politely_a_folder_that_holds_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for make in (Store.create, Store.open_or_create):
        with pytest.raises(StoreError, match=r"thesis\.tex") as caught:
            make(tmp_path)
        assert one_sentence(caught.value)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_opening_what_is_no_run_is_one_sentence(tmp_path, run):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    strange = {
        "list": "[1]",
        "not_json": "{",
        "deep": "[" * 100_000,
        "other": '{"kind": "cake", "version": 1}',
        "newer": '{"kind": "solvable run", "version": 2}',
    }
    for name, text in strange.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    for path in ["absent", "empty", "file", "nul\0", *strange]:
        with pytest.raises(StoreError) as caught:
            Store.open(tmp_path / path)
        assert one_sentence(caught.value)
    for action, path in [(Store.create, run.path), (Store.create, tmp_path / "file"), (Store.open, 7)]:
        with pytest.raises(StoreError) as caught:
            action(path)
        assert one_sentence(caught.value)


def test_open_or_create_is_the_same_run_and_survives_pickling_as_another_writer(tmp_path):
    first = Store.open_or_create(tmp_path / "deep" / "er")
    first.commit(KEY, ARRAYS)
    second = Store.open_or_create(tmp_path / "deep" / "er")
    third = pickle.loads(pickle.dumps(first))
    writers = {store.commit(OTHER, ARRAYS).writer for store in (first, second, third)}
    assert len(writers) == 3
    assert set(second.done()) == {KEY, OTHER}


# What manifests say


def test_done_is_told_by_manifests_and_not_by_files(run):
    run.commit(KEY, ARRAYS)
    shutil.rmtree(Path(run.path) / "manifests")
    assert run.done() == {}
    with pytest.raises(StoreError, match="not done"):
        run.read(KEY)
    assert [problem.kind for problem in run.verify()] == ["unreferenced"]
    run.commit(KEY, ARRAYS)
    assert run.verify() == []


def test_done_reads_only_what_was_appended_since(run, monkeypatch):
    reader = Store.open(run.path)
    run.commit(KEY, ARRAYS)
    reader.done()
    starts = []
    monkeypatch.setattr(
        _files,
        "read",
        lambda path, start=0, most=0, real=_files.read: (starts.append(start), real(path, start=start, most=most))[1],
    )
    reader.done()
    assert starts == []
    run.commit(OTHER, ARRAYS)
    assert set(reader.done()) == {KEY, OTHER}
    assert starts[0] > 100


def test_failures_are_listed_until_the_block_is_done(run):
    reader = Store.open(run.path)
    run.record_failure(KEY, "out of memory\non device 0")
    reader.record_failure(KEY, "x" * 10_000 + "\udc80")
    run.record_failure(OTHER, "no luck")
    told = reader.failed()
    assert told[KEY][0] == "out of memory\non device 0"
    assert len(told[KEY][1]) == 4000
    assert told[OTHER] == ["no luck"]
    attempts = [json.loads(line)["attempt"] for path in Path(run.path).glob("manifests/*") for line in path.open()]
    assert sorted(attempts) == [1, 1, 2]
    run.commit(KEY, ARRAYS)
    assert list(reader.failed()) == [OTHER]
    assert run.verify() == []


def test_equal_bytes_by_two_writers_count_once(run):
    first = run.commit(KEY, ARRAYS)
    Store.open(run.path).commit(KEY, ARRAYS)
    assert Store.open(run.path).done() == {KEY: first}
    assert run.verify() == []


def test_the_first_of_two_different_contents_stays_and_verify_tells(run):
    first = run.commit(KEY, {"x": np.zeros(3)})
    kept = Store.open(run.path).commit(KEY, {"x": np.ones(3)})
    assert kept == first == Store.open(run.path).done()[KEY]
    assert same(run.read(KEY), {"x": np.zeros(3)})
    assert [problem.kind for problem in run.verify()] == ["conflict"]


def test_of_two_different_contents_the_one_on_disk_wins(run):
    """The slower writer renamed over the faster one's block after both had looked and found nothing."""
    run.commit(KEY, {"x": np.zeros(3)})
    late = Store.open(run.path)
    path = Path(run.path) / f"blocks/{KEY[:2]}/{KEY}.npz"
    os.rename(path, path.with_suffix(".away"))
    late.commit(KEY, {"x": np.ones(3)})
    path.with_suffix(".away").unlink()
    for reader in (run, late, Store.open(run.path)):
        assert reader.done()[KEY].writer == late.done()[KEY].writer
        assert same(reader.read(KEY), {"x": np.ones(3)})
    assert [problem.kind for problem in run.verify()] == ["conflict"]


def test_a_damaged_block_heals_when_committed_again(run):
    run.commit(KEY, ARRAYS)
    path = Path(run.path) / f"blocks/{KEY[:2]}/{KEY}.npz"
    for damage in (lambda: path.write_bytes(b"x"), path.unlink, lambda: shutil.rmtree(path.parent)):
        damage()
        with pytest.raises(DamagedBlock):
            run.read(KEY)
        run.commit(KEY, ARRAYS)
        assert same(run.read(KEY), ARRAYS)
        assert run.verify() == []


# Crashes


class Crash(BaseException):
    """The machine stops: no handler may do anything after this."""


class BrittleOS:
    """The `os` module, stopping at one system call and dead ever after; it knows what a power cut would take.

    `when` is before the call, after it, or in the middle of a write. What was not made durable by fsync, contents
    or names, can be lost by `power_cut`.
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
    """A run that holds one block, to be copied."""
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
    assert set(calls[:-12]) <= {"open"}  # looking whether the block is there


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
def test_a_power_cut_at_any_system_call_takes_nothing_that_was_committed(started, monkeypatch, lose_names):
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


@pytest.mark.parametrize("when", ["before", "after", "middle"])
def test_stopping_anywhere_while_creating_a_run_or_a_document_can_be_taken_up_again(tmp_path, monkeypatch, when):
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
        assert all(problem.kind == "temporary" for problem in Store.open(path).verify())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_failing_disk_is_one_sentence_and_costs_nothing(started, monkeypatch, code):
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
            writer.commit(KEY, content(0))  # the same writer goes on once there is room
            assert same(Store.open(path).read(KEY), content(0))
            assert {problem.kind for problem in writer.verify()} <= {"torn"}
            shutil.rmtree(path)


def test_a_short_write_to_the_manifest_is_a_full_disk_and_nothing_is_written_behind_it(started, monkeypatch):
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


def test_clean_temporaries_spares_the_young(run):
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
            child = os.fork()
            if child == 0:
                work(store, itertools.count(1000 * attempt))
            time.sleep(draw.uniform(0.005, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        """,
        run.path,
    )
    assert process.wait(30) == 0
    reopened = Store.open(run.path)
    done = reopened.done()
    assert len(done) > 12
    for block, entry in done.items():
        assert block == block_id({"number": entry.meta["number"]})
        assert same(reopened.read(block), content(entry.meta["number"]))
    assert all(problem.leftover for problem in reopened.verify())
    assert len({entry.writer for entry in done.values()}) > 6  # a fork is another writer


def test_two_writers_at_once_on_one_run(tmp_path):
    path = str(tmp_path / "run")
    code = "work(Store.open_or_create(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))"
    writers = [worker(code, path, "0", "40"), worker(code, path, "20", "60")]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    run = Store.open(path)
    done = run.done()
    assert set(done) == {block_id({"number": number}) for number in range(60)}
    assert all(same(run.read(block), content(entry.meta["number"])) for block, entry in done.items())
    assert len(list(Path(path).glob("manifests/*.jsonl"))) == 2
    assert run.verify() == []


def test_import_is_light_and_knows_no_heavy_package():
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
            assert len(Store.open(run.path).done()) < 4

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
        if path.parent.name != "documents":  # a deleted document leaves no trace
            path.unlink()
            found(path)
        path.write_bytes(whole)
    assert run.verify() == []


def test_strange_things_in_the_folder_are_told(run):
    run.commit(KEY, ARRAYS)
    root = Path(run.path)
    (root / "notes.txt").write_text("mine")
    (root / "blocks" / "zz").mkdir()
    (root / "blocks" / KEY[:2] / "thumbs.db").write_text("x")
    (root / "manifests" / "a.jsonl").write_text("x")
    (root / "documents").symlink_to("/etc")
    os.mkfifo(root / "blocks" / KEY[:2] / f"{KEY[:2]}{'0' * 62}.npz")
    (root / "manifests" / f"{'0' * 32}.jsonl").symlink_to("/etc/passwd")
    told = {problem.path.split("/")[-1]: problem.kind for problem in run.verify()}
    assert told == {
        "notes.txt": "unexpected",
        "zz": "unexpected",
        "thumbs.db": "unexpected",
        "a.jsonl": "unexpected",
        "documents": "link",
        f"{KEY[:2]}{'0' * 62}.npz": "unexpected",
        f"{'0' * 32}.jsonl": "link",
    }
    assert list(run.done()) == [KEY]


# Hostile stores


def plant(run: Store, data: bytes, block: str = KEY) -> None:
    """A block that a manifest vouches for with the right hash, whatever it holds."""
    path = Path(run.path) / "blocks" / block[:2] / f"{block}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    record = {"block": block, "sha256": _records.sha256(data), "bytes": len(data), "time": "2026", "meta": {}}
    manifest(run, _records.manifest_line(record))


def manifest(run: Store, data: bytes) -> None:
    folder = Path(run.path) / "manifests"
    folder.mkdir(exist_ok=True)
    (folder / f"{os.urandom(16).hex()}.jsonl").write_bytes(data)


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


class Detonate:
    def __reduce__(self):
        return os.mkdir, ("detonated",)


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([Detonate()], dtype=object))
    return buffer.getvalue()


def overlapping() -> bytes:
    """Three hundred names in the directory for one and the same member: a bomb without compression."""
    whole = zipped(("x.npy", npy("'|u1'", "(1000,)", bytes(1000))))
    start = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    directory = b"".join(whole[start:end].replace(b"x.npy", b"%05d" % number) for number in range(300))
    trailer = bytearray(whole[end:])
    trailer[8:12] = (300).to_bytes(2, "little") * 2
    trailer[12:16] = len(directory).to_bytes(4, "little")
    return whole[:start] + directory + bytes(trailer)


HOSTILE = {
    "pickled objects": pickled,
    "object header": lambda: zipped(("x.npy", npy("'|O'", "(1,)", pickle.dumps([Detonate()])))),
    "a million million elements": lambda: zipped(("x.npy", npy("'<f8'", "(1000000, 1000000)", bytes(8)))),
    "elements that overflow": lambda: zipped(("x.npy", npy("'<f8'", "(4294967296, 4294967296, 1)"))),
    "elements of no size": lambda: zipped(("x.npy", npy("'<U0'", "(1000000000000,)"))),
    "negative shape": lambda: zipped(("x.npy", npy("'<f8'", "(-1,)"))),
    "two negative shapes": lambda: zipped(("x.npy", npy("'|u1'", "(-2, -2)", bytes(4)))),
    "empty beyond all bounds": lambda: zipped(("x.npy", npy("'<f8'", "(10**30, 0)"))),
    "empty with huge side": lambda: zipped(("x.npy", npy("'<f8'", f"({10**30}, 0)"))),
    "too many dimensions": lambda: zipped(("x.npy", npy("'<f8'", "(" + "1," * 100 + ")", bytes(8)))),
    "deep header": lambda: zipped(("x.npy", npy("(" * 1000 + ")" * 1000, "(1,)"))),
    "code in header": lambda: zipped(("x.npy", npy("__import__('os').mkdir('detonated')", "(1,)"))),
    "structured": lambda: zipped(("x.npy", npy("[('a', '<f8')]", "(1,)", bytes(8)))),
    "trailing bytes": lambda: zipped(("x.npy", npy("'<f8'", "(1,)", bytes(9)))),
    "other version": lambda: zipped(("x.npy", b"\x93NUMPY\x02\x00" + bytes(100))),
    "no npy": lambda: zipped(("x.npy", b"hello")),
    "zip bomb": lambda: zipped(("x.npy", bytes(50_000_000)), method=zipfile.ZIP_DEFLATED),
    "overlapping members": overlapping,
    "names that leave": lambda: zipped(("../../x.npy", npy("'<f8'", "(1,)", bytes(8)))),
    "one name twice": lambda: zipped(("x.npy", npy("'<f8'", "()", bytes(8))), ("x", npy("'<f8'", "()", bytes(8)))),
    "no zip": lambda: b"PK\x03\x04" + bytes(1000),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_blocks_are_refused_without_running_or_allocating_anything(run, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plant(run, HOSTILE[what]())
    tracemalloc.start()
    for check in (True, False):
        with pytest.raises(DamagedBlock) as caught:
            run.read(KEY, check=check)
        assert one_sentence(caught.value)
    problems = run.verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(problem.kind, problem.block) for problem in problems] == [("unreadable", KEY)]
    assert one_sentence(problems[0])
    assert peak < 10_000_000
    assert not (tmp_path / "detonated").exists()


def test_a_manifest_cannot_ask_for_more_memory_than_the_file_has(run):
    for size in (10**12, -1, 10**30, True):
        record = {"block": KEY, "sha256": "0" * 64, "bytes": size, "time": "", "meta": {}}
        manifest(run, _records.manifest_line(record))
    path = Path(run.path) / "blocks" / KEY[:2] / f"{KEY}.npz"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(10**12)  # sparse: takes no room
    tracemalloc.start()
    with pytest.raises(DamagedBlock):
        run.read(KEY)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_garbage_in_manifests_is_ignored_and_told(run):
    run.commit(KEY, ARRAYS)
    sealed = [
        {"block": "../../../etc/passwd", "sha256": "0" * 64, "bytes": 1, "time": "", "meta": {}},
        {"block": OTHER, "sha256": 5, "bytes": 1, "time": "", "meta": {}},
        {"block": OTHER, "kind": "failed", "error": ["x"], "time": ""},
        {"block": OTHER},
    ]
    deep = b"[" * 50_000 + b"}"
    good = {"block": OTHER, "kind": "failed", "error": "x", "attempt": 1, "time": ""}
    lines = [
        *map(_records.manifest_line, sealed),
        b"\n",
        b"\xff\x00" * 500 + b"\n",
        deep[:-1] + _records._seal(deep) + b"\n",
        b"[]\n",
        b"x" * 5_000_000 + b"\n",
        _records.manifest_line(good).replace(b'"x"', b'"y"'),
        _records.manifest_line(good),
        b'{"block":"torn',
    ]
    manifest(run, b"".join(lines))
    for reader in (run, Store.open(run.path)):
        assert list(reader.done()) == [KEY]
        assert reader.failed() == {OTHER: ["x"]}
        assert sorted(problem.kind for problem in reader.verify()) == ["garbled", "torn"]


@pytest.mark.parametrize("inside", [False, True])
def test_links_are_refused_wherever_they_lead(run, tmp_path, inside):
    run.commit(KEY, ARRAYS)
    run.write_document("study", {})
    root = Path(run.path)
    block = [lambda: run.read(KEY), lambda: run.commit(KEY, ARRAYS)]
    document = [lambda: run.read_document("study"), lambda: run.write_document("study", {})]
    manifests = [run.done, lambda: run.commit(OTHER, ARRAYS), lambda: run.record_failure(KEY, "x")]
    for part, actions in [
        (f"blocks/{KEY[:2]}/{KEY}.npz", block),
        (f"blocks/{KEY[:2]}", block),
        ("blocks", block),
        ("documents/study.json", document),
        ("documents", document),
        ("manifests", manifests),
    ]:
        elsewhere = (root if inside else tmp_path) / "elsewhere"
        (root / part).rename(elsewhere)
        (root / part).symlink_to(elsewhere)
        for action in actions:
            with pytest.raises(StoreError, match="symbolic link") as caught:
                action()
            assert one_sentence(caught.value)
        assert "link" in {problem.kind for problem in run.verify()}
        (root / part).unlink()
        elsewhere.rename(root / part)
    assert run.verify() == []


def test_a_run_itself_may_be_reached_through_a_link(run, tmp_path):
    (tmp_path / "link").symlink_to(run.path)
    Store.open(tmp_path / "link").commit(KEY, ARRAYS)
    assert same(run.read(KEY), ARRAYS)


def test_a_pipe_in_place_of_a_file_does_not_hang(run):
    run.commit(KEY, ARRAYS)
    path = Path(run.path) / f"blocks/{KEY[:2]}/{KEY}.npz"
    path.unlink()
    os.mkfifo(path)
    for action in (lambda: run.read(KEY), lambda: run.commit(KEY, ARRAYS)):
        with pytest.raises(StoreError, match="not a regular file"):
            action()
    assert {problem.kind for problem in run.verify()} == {"unexpected", "unreadable"}


@pytest.mark.parametrize(
    "bad", ["", "..", "a" * 63, "A" * 64, "a" * 64 + "\n", "../" + "a" * 61, "g" * 64, None, 5, b"a" * 64]
)
def test_what_is_no_block_id_is_refused(run, bad):
    for action in (
        lambda: run.commit(bad, ARRAYS),
        lambda: run.read(bad),
        lambda: run.record_failure(bad, "x"),
    ):
        with pytest.raises(StoreError, match="is not a block id") as caught:
            action()
        assert one_sentence(caught.value)
    assert os.listdir(run.path) == ["run.json"]


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../run", "a/b", ".hidden", "-a", "A", "a\n", "a\0", "x" * 82, "é", None]
)
def test_what_is_no_document_name_is_refused(run, bad):
    for action in (lambda: run.write_document(bad, {}), lambda: run.read_document(bad)):
        with pytest.raises(StoreError, match="cannot be called") as caught:
            action()
        assert one_sentence(caught.value)
    assert os.listdir(run.path) == ["run.json"]


@pytest.mark.parametrize("module", [store, _records])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0
