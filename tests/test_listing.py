"""Shared files are generated: the listing is current, and a new model changes only its own folder."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import solvable as sv
from commands import answer
from solvable.models import FILE
from solvable.models.__main__ import README, as_text, collect, with_table

ROOT = Path(__file__).parents[1]


def test_the_listing_and_the_readme_match_the_declarations():
    """`make listing` updates both."""
    listing = collect()
    assert FILE.read_text(encoding="utf-8") == as_text(listing)
    readme = README.read_text(encoding="utf-8")
    assert with_table(readme, listing["models"]) == readme
    for line in listing["models"]:
        assert line["sentence"].endswith(".")
        assert line["method"]
    assert all(line["sentence"] for line in listing["figures"])


def test_drawing_does_not_depend_on_names_of_dimensions():
    declared = [d for id in sv.listings() for d in sv.model_class(id).dimensions_declared]
    kinds = {"time", "pair", "site", "mode", "draw", "label"}  # known kinds, some of which are also names
    names = {d.name for d in declared} - kinds
    assert {"eigenvalue", "stage", "progress"} <= names
    written = {}
    for file in (ROOT / "src/solvable/render/plots.py", *(ROOT / "src/solvable/explorer/static").glob("figure.js")):
        found = set(re.findall(r"[\"'`](\w+)[\"'`]", file.read_text(encoding="utf-8"))) & names
        written |= {file.name: found} if found else {}
    assert written == {}


def test_a_new_model_is_a_package_that_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = answer(capsys, "new", "weak-signal", "--json")
    assert code == 0
    files = set(json.loads(out)["files"])
    assert files == {f"weak-signal/{name}" for name in (
        "pyproject.toml", "reference.json", "src/weak_signal/__init__.py", "src/weak_signal/figures.py",
        "src/weak_signal/model.py", "tests/test_weak_signal.py")}  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path / "weak-signal" / "src"))
    from weak_signal import WeakSignal

    from solvable.testing import guard_model

    cases = json.loads((tmp_path / "weak-signal" / "reference.json").read_text())
    findings = guard_model(WeakSignal, cases)
    assert [str(f) for f in findings if not f.kept] == []
    assert sum("reference value" in f.promise for f in findings) == 4
    code, _, err = answer(capsys, "new", "weak-signal")
    assert (code, "already exists" in err) == (2, True)


def test_a_new_model_in_a_checkout_touches_its_own_folder_and_generated_lists(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.nc"))
    shutil.copy(README, tmp_path)
    (tmp_path / "tests" / "models").mkdir(parents=True)
    (tmp_path / "tests" / "reference").mkdir()
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    for words in (["solvable", "new", "weak-signal", "--family", "replica"], ["solvable.models"]):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    after = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file() and "__pycache__" not in f.parts}
    changed = {str(f.relative_to(tmp_path)) for f in after if f in before and before[f] != after[f]}
    assert changed == {"README.md", "src/solvable/models/listing.json"}
    new = {str(f.relative_to(tmp_path)) for f in after if f not in before}
    folder = "src/solvable/models/replica/weak_signal"
    assert new == {f"{folder}/__init__.py", f"{folder}/figures.py", f"{folder}/model.py",
                   "tests/models/test_weak_signal.py", "tests/reference/weak-signal.json"}  # fmt: skip
    assert "| `weak-signal` |" in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["My-Model", "perceptron", "two words", "-x"])
def test_an_invalid_name_is_refused_in_one_sentence(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = (
        answer(capsys, "new", "--json", "--", name) if name.startswith("-") else answer(capsys, "new", name)
    )
    assert code == 2
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
