"""Hostile contents of a store cannot execute code, escape the folder, hang or exhaust the memory."""

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from solvable.lab import _files, _records
from solvable.lab.store import DamagedBlock, Store, StoreError, block_id

KEY = block_id({"number": 0})
OTHER = block_id({"number": 1})
ARRAYS = {"x": np.arange(12.0)}


def one_sentence(error: BaseException) -> bool:
    text = str(error)
    return text.endswith(".") and "\n" not in text and "Traceback" not in text and len(text) < 500


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return sorted(first) == sorted(second) and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes()
        for name in first
    )


@pytest.fixture
def run(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "run")


def plant(run: Store, data: bytes, block: str = KEY) -> None:
    """Add a block of arbitrary bytes, with the correct hash in a manifest."""
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
    """Two hundred valid arrays, each containing all later ones as its data: a bomb without compression."""
    blob, directory = b"", []
    for number in reversed(range(200)):
        data = npy("'|u1'", f"({len(blob)},)", blob)
        name = b"%05d.npy" % number
        header = struct.pack("<5H3L2H", 20, 0, 0, 0, 33, zlib.crc32(data), len(data), len(data), len(name), 0)
        blob = b"PK\x03\x04" + header + name + data
        directory.append((header, name, len(blob)))
    entries = b"".join(
        b"PK\x01\x02" + struct.pack("<H", 20) + header + struct.pack("<3H2L", 0, 0, 0, 0, len(blob) - start) + name
        for header, name, start in directory
    )
    return blob + entries + b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 200, 200, len(entries), len(blob), 0)


def lying_bomb() -> bytes:
    """Fifty million bytes that claim to be a hundred."""
    data = bytearray(zipped(("x.npy", bytes(50_000_000)), method=zipfile.ZIP_BZIP2))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = data.index(signature) + offset
        data[start : start + 4] = struct.pack("<L", 100)
    return bytes(data)


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
    "zip bomb that lies": lying_bomb,
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
        file.truncate(10**12)  # sparse: takes no space
    tracemalloc.start()
    with pytest.raises(DamagedBlock):
        run.read(KEY)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_garbage_in_manifests_is_ignored_and_reported(run):
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


def test_unknown_files_in_the_folder_are_reported(run):
    run.commit(KEY, ARRAYS)
    root = Path(run.path)
    (root / "notes.txt").write_text("mine")
    (root / "blocks" / "zz").mkdir()
    (root / "blocks" / KEY[:2] / "thumbs.db").write_text("x")
    (root / "manifests" / "a.jsonl").write_text("x")
    (root / "documents").symlink_to("/etc")
    os.mkfifo(root / "blocks" / KEY[:2] / f"{KEY[:2]}{'0' * 62}.npz")
    (root / "manifests" / f"{'0' * 32}.jsonl").symlink_to("/etc/passwd")
    kinds = {problem.path.split("/")[-1]: problem.kind for problem in run.verify()}
    assert kinds == {
        "notes.txt": "unexpected",
        "zz": "unexpected",
        "thumbs.db": "unexpected",
        "a.jsonl": "unexpected",
        "documents": "link",
        f"{KEY[:2]}{'0' * 62}.npz": "unexpected",
        f"{'0' * 32}.jsonl": "link",
    }
    assert list(run.done()) == [KEY]


def test_a_sparse_manifest_is_not_read_to_its_end(tmp_path, monkeypatch):
    """Twenty gigabytes of zeros that take no room on the disk."""
    store = Store.create(tmp_path / "run")
    block = block_id({"a": 1})
    store.commit(block, {"x": np.ones(3)})
    manifest = next((tmp_path / "run" / "manifests").iterdir())
    with manifest.open("ab") as file:
        file.truncate(20_000_000_000)
    real, seen = _files.read, []

    def read(path, *, start=0, most):
        data = real(path, start=start, most=most)
        seen.append(len(data))
        return data

    monkeypatch.setattr(_files, "read", read)
    assert list(Store.open(tmp_path / "run").done()) == [block]
    assert sum(seen) < 100_000_000
