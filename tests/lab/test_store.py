"""The store keeps its contents and reports what is done."""

import doctest
import errno
import json
import os
import pickle
import shutil
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


# Reading back


def test_every_dtype_comes_back_bit_for_bit(run):
    entry = run.commit(KEY, EVERYTHING, {"seconds": 0.1, "residual": float("nan")})
    back = Store.open(run.path).read(KEY)
    assert same(back, EVERYTHING)
    assert all(array.flags.writeable for array in back.values())
    found = Store.open(run.path).done()[KEY]
    assert (found.sha256, found.bytes, found.writer) == (entry.sha256, entry.bytes, entry.writer)
    assert found.meta["seconds"] == 0.1
    assert np.isnan(found.meta["residual"])
    assert run.verify() == []


def test_numpy_itself_can_read_a_block(run):
    run.commit(KEY, EVERYTHING)
    with np.load(Path(run.path) / f"blocks/{KEY[:2]}/{KEY}.npz", allow_pickle=False) as back:
        assert same(dict(back), EVERYTHING)


def test_equal_arrays_give_equal_bytes_whatever_their_order_layout_or_time(tmp_path, monkeypatch):
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
    with pytest.raises(StoreError, match="the limit is 65000"):
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
    """The slower writer saw no document and then finds one, which it must not replace."""
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


def test_create_refuses_a_folder_that_holds_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for make in (Store.create, Store.open_or_create):
        with pytest.raises(StoreError, match=r"thesis\.tex") as caught:
            make(tmp_path)
        assert one_sentence(caught.value)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_opening_a_folder_that_is_not_a_run_is_refused_in_one_sentence(tmp_path, run):
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


# Manifests


def test_manifests_and_not_files_decide_what_is_done(run):
    run.commit(KEY, ARRAYS)
    shutil.rmtree(Path(run.path) / "manifests")
    assert run.done() == {}
    with pytest.raises(StoreError, match="not done"):
        run.read(KEY)
    assert [problem.kind for problem in run.verify()] == ["unreferenced"]
    run.commit(KEY, ARRAYS)
    assert run.verify() == []


def test_entries_of_a_shrunken_or_missing_manifest_no_longer_count(run):
    run.commit(KEY, ARRAYS)
    Store.open(run.path).commit(OTHER, ARRAYS)
    reader = Store.open(run.path)
    assert set(reader.done()) == {KEY, OTHER}
    manifests = {path.stem: path for path in Path(run.path).glob("manifests/*")}
    os.truncate(manifests[reader.done()[KEY].writer], 100)
    assert set(reader.done()) == {OTHER}
    manifests[reader.done()[OTHER].writer].unlink()
    assert reader.done() == {}


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
    found = reader.failed()
    assert found[KEY][0] == "out of memory\non device 0"
    assert len(found[KEY][1]) == 4000
    assert found[OTHER] == ["no luck"]
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


def test_the_first_of_two_different_contents_stays_and_verify_reports_it(run):
    first = run.commit(KEY, {"x": np.zeros(3)})
    kept = Store.open(run.path).commit(KEY, {"x": np.ones(3)})
    assert kept == first == Store.open(run.path).done()[KEY]
    assert same(run.read(KEY), {"x": np.zeros(3)})
    assert [problem.kind for problem in run.verify()] == ["conflict"]


def test_of_two_different_contents_the_one_on_disk_wins(run):
    """Both writers found no block, then the slower one replaced the block of the faster one."""
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


def test_a_damaged_block_is_repaired_by_committing_again(run):
    run.commit(KEY, ARRAYS)
    path = Path(run.path) / f"blocks/{KEY[:2]}/{KEY}.npz"
    for damage in (lambda: path.write_bytes(b"x"), path.unlink, lambda: shutil.rmtree(path.parent)):
        damage()
        with pytest.raises(DamagedBlock):
            run.read(KEY)
        run.commit(KEY, ARRAYS)
        assert same(run.read(KEY), ARRAYS)
        assert run.verify() == []


# Names


@pytest.mark.parametrize(
    "bad", ["", "..", "a" * 63, "A" * 64, "a" * 64 + "\n", "../" + "a" * 61, "g" * 64, None, 5, b"a" * 64]
)
def test_an_invalid_block_id_is_refused(run, bad):
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
def test_an_invalid_document_name_is_refused(run, bad):
    for action in (lambda: run.write_document(bad, {}), lambda: run.read_document(bad)):
        with pytest.raises(StoreError, match="cannot be called") as caught:
            action()
        assert one_sentence(caught.value)
    assert os.listdir(run.path) == ["run.json"]


@pytest.mark.parametrize("module", [store, _records])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0
