"""Archives: compacting a run may stop at any point, run beside other processes, and loses nothing."""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_store_faults import BrittleOS, Crash, calls_of, content, one_sentence, same

from solvable.lab import _archives, _files, _records
from solvable.lab.store import DamagedBlock, Store, StoreError, block_id

NUMBERS = range(9)


def key(number):
    return block_id({"number": number})


@pytest.fixture(autouse=True)
def fast_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def run(tmp_path):
    store = Store.create(tmp_path / "run")
    for number in NUMBERS:
        store.commit(key(number), content(number))
    return store


def files_in(store, what):
    return sorted(Path(store.path).glob(what))


def all_there(store):
    return all(same(store.read(key(number)), content(number)) for number in NUMBERS)


def test_compacting_moves_blocks_into_one_file_unnoticed_by_readers(run):
    old = Store.open(run.path)
    before = old.done()
    assert run.compact() == (9, 1)
    assert files_in(run, "blocks/*/*.npz") == []
    assert len(files_in(run, "archives/*")) == 1
    for reader in (old, run, Store.open(run.path)):
        assert reader.done() == before
        assert all_there(reader)
        assert reader.verify() == []
    assert run.compact() == (0, 0)  # nothing left to compact
    run.commit(key(0), content(0))  # committing an archived block again
    assert files_in(run, "blocks/*/*.npz") == []
    run.commit(key(20), content(20))
    assert run.compact() == (10, 1)  # archives are merged
    assert len(files_in(run, "archives/*")) == 1
    assert all_there(old)
    assert same(old.read(key(20)), content(20))
    assert old.verify() == []


@pytest.mark.parametrize("when", ["before", "after", "middle"])
def test_stopping_at_any_system_call_of_a_compaction_loses_nothing(run, monkeypatch, when):
    shutil.copytree(run.path, f"{run.path}-whole")
    calls = calls_of(monkeypatch, Store.open(f"{run.path}-whole").compact)
    assert len(calls) > 15
    for stop_at in range(len(calls)):
        path = f"{run.path}-{stop_at}"
        shutil.copytree(run.path, path)
        with monkeypatch.context() as patch:
            compacting = Store.open(path)
            patch.setattr(_files, "os", BrittleOS(stop_at, when))
            with pytest.raises(Crash):
                compacting.compact()
        store = Store.open(path)
        assert all_there(store)
        assert all(problem.leftover for problem in store.verify())
        store.clean_temporaries(0)
        store.clean_copies()
        store.compact()
        assert all_there(Store.open(path))
        assert store.verify() == []
        assert len(files_in(store, "archives/*")) + len(files_in(store, "blocks/*/*.npz")) == 1
        shutil.rmtree(path)


def test_every_damage_to_an_archive_is_found_and_repaired_by_committing_again(run):
    run.compact()
    [file] = files_in(run, "archives/*")
    whole, draw = file.read_bytes(), random.Random(0)
    for trial in range(60):
        data = bytearray(whole)
        if trial % 3:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del data[draw.randrange(len(data)) :]
        file.write_bytes(data)
        problems = Store.open(run.path).verify()
        assert problems
        assert all(one_sentence(problem) for problem in problems)
        assert any(not problem.leftover for problem in problems)
        if trial % 10 == 0:
            for number in NUMBERS:
                Store.open(run.path).commit(key(number), content(number))
            healed = Store.open(run.path)
            assert all_there(healed)
            healed.clean_copies()
            assert healed.verify() == []
            shutil.rmtree(Path(run.path, "blocks"))
            file.write_bytes(whole)
        file.write_bytes(whole)
    file.unlink()
    assert {problem.kind for problem in Store.open(run.path).verify()} == {"missing"}
    with pytest.raises(DamagedBlock, match="nor in an archive"):
        Store.open(run.path).read(key(0))


def test_a_block_damaged_in_its_file_is_read_from_an_archive(run):
    original = files_in(run, "blocks/*/*.npz")[0]
    data = original.read_bytes()
    run.compact()
    original.parent.mkdir(exist_ok=True)
    original.write_bytes(data[:-1] + b"x")
    assert all_there(Store.open(run.path))


HOSTILE = {
    "nothing": lambda: b"",
    "only a trailer": lambda: bytes(40) + _archives.MAGIC,
    "an index of 10^12 bytes": lambda: (10**12).to_bytes(8, "little") + bytes(32) + _archives.MAGIC,
    "a nested index": lambda: with_index(b"[" * 100_000),
    "a list": lambda: with_index(b"[1]"),
    "places outside": lambda: with_index(json.dumps({key(0): [0, 10**12]}).encode()),
    "negative places": lambda: with_index(json.dumps({key(0): [-5, 3]}).encode()),
    "places that are no numbers": lambda: with_index(json.dumps({key(0): [True, "x"]}).encode()),
    "names that leave": lambda: with_index(json.dumps({"../../etc/passwd": [0, 1]}).encode()),
}


def with_index(index):
    seal = bytes.fromhex(_records.sha256(index))
    return b"data" + index + len(index).to_bytes(8, "little") + seal + _archives.MAGIC


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archives_are_reported_and_harmless(run, what):
    data = HOSTILE[what]()
    Path(run.path, "archives").mkdir()
    Path(run.path, "archives", f"{_records.sha256(data)}.pack").write_bytes(data)
    store = Store.open(run.path)
    assert all_there(store)
    problems = store.verify()
    assert problems
    assert all(one_sentence(problem) for problem in problems)
    store.compact()
    assert all_there(store)


def test_links_in_place_of_archives_are_refused(run, tmp_path):
    run.compact()
    folder = Path(run.path, "archives")
    [file] = files_in(run, "archives/*")
    file.rename(tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    with pytest.raises(StoreError):
        Store.open(run.path).read(key(0))
    assert "link" in {problem.kind for problem in run.verify()}
    file.unlink()
    (tmp_path / file.name).rename(file)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    for action in (lambda: Store.open(run.path).read(key(0)), lambda: Store.open(run.path).compact()):
        with pytest.raises(StoreError, match="symbolic link") as caught:
            action()
        assert one_sentence(caught.value)


def test_a_block_may_move_while_it_is_read(run, monkeypatch):
    reader = Store.open(run.path)
    reader.done()
    real = _files.read

    def compacting_read(path, **options):
        if path.endswith(".npz"):
            monkeypatch.setattr(_files, "read", real)
            Store.open(run.path).compact()
        return real(path, **options)

    monkeypatch.setattr(_files, "read", compacting_read)
    assert same(reader.read(key(3)), content(3))
    assert np.array_equal(reader.read(key(4))["x"], content(4)["x"])
