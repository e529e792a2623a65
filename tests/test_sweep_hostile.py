"""`solvable sweep …` on hostile runs: one sentence, exit code 2, and nothing is executed, escapes or hangs."""

import json
import os
import shutil
import sys
import tracemalloc
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lab"))
from test_store_hostile import HOSTILE

from commands import answer
from solvable.lab import _records
from solvable.lab import stored_plans as plans
from solvable.lab.launch import ONE_THREAD
from solvable.lab.store import Store

READING = (("status", "RUN"), ("export", "RUN", "--to", "csv", "--out", "out.csv"), ("work", "RUN"), ("retry", "RUN"))
STUDY = ("perceptron", "loss=square", "--over", "penalty=0.1,1")


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, value in {"SOLVABLE_CACHE": "0", "EQX_ON_ERROR": "nan", **ONE_THREAD}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    import solvable as sv

    path = tmp_path_factory.mktemp("hostile") / "RUN"
    sv.Study(sv.Perceptron(loss="square"), {"penalty": [0.1, 1.0]}).run(path, progress=False)
    return path


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "RUN"))


def refused(capsys, words):
    code, out, err = answer(capsys, "sweep", *words)
    assert code == 2, (words, out, err)
    assert out == ""
    assert err.startswith("solvable: ")
    assert err.count("\n") == 1
    assert len(err) < 600
    assert not Path("detonated").exists()
    assert not Path("out.csv").exists()
    return err


def replace_document(run, kind, document):
    """Replace a document by another one, with a valid hash and an entry in the manifest."""
    [path] = (run / "documents").glob(f"{kind}-*")
    data = _records.document_file(document)
    path.write_bytes(data)
    record = {"kind": "document", "document": path.stem, "sha256": _records.sha256(data), "time": ""}
    (run / "manifests" / f"{os.urandom(16).hex()}.jsonl").write_bytes(_records.manifest_line(record))


def document(run, kind):
    store = Store.open(run)
    return store.read_document(next(n for n in store.documents() if n.startswith(f"{kind}-")))


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_blocks_are_refused_by_export_and_reported_by_verify(capsys, run, what):
    [file] = (run / "blocks").glob("*/*.npz")
    data = HOSTILE[what]()
    file.write_bytes(data)
    for manifest in (run / "manifests").iterdir():  # the manifest then records only this document
        manifest.unlink()
    record = {"block": file.stem, "sha256": _records.sha256(data), "bytes": len(data), "time": "2026", "meta": {}}
    (run / "manifests" / f"{os.urandom(16).hex()}.jsonl").write_bytes(_records.manifest_line(record))
    tracemalloc.start()
    refused(capsys, ("export", "RUN", "--to", "csv", "--out", "out.csv"))
    code, out, _ = answer(capsys, "sweep", "verify", "RUN")
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    assert code == 1
    assert "Traceback" not in out
    assert answer(capsys, "sweep", "status", "RUN")[0] == 0
    assert answer(capsys, "sweep", "compact", "RUN")[0] == 0
    assert not Path("detonated").exists()


BOMBS = {
    "deep JSON": b"[" * 200_000,
    "deep JSON, sealed": b'{"sha256":"' + b"0" * 64 + b'","document":' + b"[" * 200_000 + b"}\n",
    "a pickle": b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "no JSON": b"\xff" * 1000,
    "nothing": b"",
    "a number of many digits": b'{"document": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("kind", ["study", "plan", "index"])
@pytest.mark.parametrize("what", BOMBS)
def test_documents_that_are_bombs_are_refused(capsys, run, kind, what):
    [path] = (run / "documents").glob(f"{kind}-*")
    path.write_bytes(BOMBS[what])
    for words in READING:
        if words[0] != "export" or kind != "index":
            assert "is damaged" in refused(capsys, words)
    assert answer(capsys, "sweep", "verify", "RUN")[0] == 1


def absurd_studies(sound):
    yield {"sizes": []}
    yield []
    yield {**sound, "models": {"x": {"id": "os.system", "revision": 1, "fields": {}}}}
    yield {**sound, "models": {"perceptron": {"id": "perceptron", "revision": 10**9, "fields": {}}}}
    yield {**sound, "seeds": 10**12}
    yield {
        **sound,
        "over": {"penalty": [0.1 * k for k in range(1, 10001)], "samples": [k / 9 for k in range(1, 10001)]},
    }
    yield {**sound, "over": {"penalty": {"array": "../../../etc/passwd"}}}
    yield {**sound, "models": {"p": {"id": "perceptron", "revision": 1, "fields": {"penalty": {"array": "../x"}}}}}
    yield {**sound, "arms": {"a": {"loss": ["__import__('os').mkdir('detonated')"]}}}


@pytest.mark.parametrize("number", range(9))
def test_studies_that_are_absurd_are_refused(capsys, run, number):
    replace_document(run, "study", list(absurd_studies(document(run, "study")))[number])
    for words in READING:
        if words[0] != "status":
            refused(capsys, words)
    assert "Traceback" not in "".join(map(str, answer(capsys, "sweep", "status", "RUN")))


def test_plans_that_are_absurd_are_refused(capsys, run):
    head = document(run, "plan")
    piece, index = document(run, "piece")["blocks"], document(run, "index")["blocks"]
    absurd = [
        ({**head, "pieces": ["../../../etc/passwd"]}, None),
        ({**head, "index": ["../../../etc/passwd"]}, None),
        ({**head, "index": [7]}, None),
        (head, {**piece[0], "cells": 10**12}),
        (head, {**piece[0], "cells": -1}),
        (head, {**piece[0], "controls": [["0x1p+0"] * 3]}),
        ({**head, "programs": [{**head["programs"][0], "lanes": 10**12}]}, {**piece[0], "cells": 10**12}),
    ]
    for changed, own in absurd:
        shutil.rmtree(run)
        store = Store.create(run)
        store.write_document("study-0001", SPECIFICATION)
        if own is not None:
            spec = changed["programs"][0] | own
            store.write_document("piece-x", {"blocks": [own]})
            store.write_document("index-x", {"blocks": [[_records.block_id(spec), *index[0][1:]]]})
            changed = {**changed, "pieces": ["piece-x"], "index": ["index-x"]}
        store.write_document(plans.plan_name(SPECIFICATION), changed)
        if own is None:
            refused(capsys, ("status", "RUN"))
            refused(capsys, ("work", "RUN"))
        else:
            code, out, err = answer(capsys, "sweep", "work", "RUN")
            assert code == 1
            assert "is not a valid plan" in err
            assert "Traceback" not in err


def test_links_and_pipes_in_place_of_parts_are_refused(capsys, run, tmp_path):
    for part in ("run.json", "documents", "manifests", "blocks"):
        os.rename(run / part, tmp_path / "elsewhere")
        (run / part).symlink_to(tmp_path / "elsewhere")
        refusals = [refused(capsys, words) for words in READING[:2] if (part, words[0]) != ("blocks", "status")]
        assert refusals
        (run / part).unlink()
        os.mkfifo(run / part)
        assert "Traceback" not in answer(capsys, "sweep", "status", "RUN")[2]  # and does not hang
        (run / part).unlink()
        os.rename(tmp_path / "elsewhere", run / part)
    assert answer(capsys, "sweep", "status", "RUN")[0] == 0


SPECIFICATION: dict = {}


@pytest.fixture(autouse=True)
def _specification(finished):
    SPECIFICATION.clear()
    SPECIFICATION.update(json.loads(json.dumps(document(finished, "study"))))
