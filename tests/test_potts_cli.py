"""The commands `solvable potts …`: output, files, invalid input."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import solvable as sv
from commands import answer
from solvable.cli.app import main
from solvable.lab.store import Store
from waiting import LONG, until, with_path

SOURCE = str(Path(sv.__file__).parents[1])


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("SOLVABLE_CACHE", "0")
    monkeypatch.setenv("EQX_ON_ERROR", "nan")


def hairpins(number=200, seed=0):
    """RNA stems of three pairs, 1–6, 2–5 and 3–4, with some noise."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, 4, (number, 3))
    both = np.concatenate([left, 3 - left[:, ::-1]], axis=1)
    both = np.where(rng.random(both.shape) < 0.15, rng.integers(0, 4, both.shape), both)
    return "".join(f">s{k}\n{''.join('ACGU'[c] for c in row)}\n" for k, row in enumerate(both))


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "family.fasta"
    file.write_text(hairpins())
    return file


@pytest.fixture(scope="module")
def kept(family, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "model"
    with pytest.raises(SystemExit) as stop:
        main(["potts", "fit", str(family), "--alphabet", "rna", "--threshold", "0", "--out", str(folder)])
    assert not stop.value.code
    return folder


def test_fit_prints_the_contacts_as_one_json_object(capsys, family):
    code, out, err = answer(
        capsys, "potts", "fit", family, "--alphabet", "rna", "--threshold", "0", "--top", "3", "--json"
    )
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert {(c["i"], c["j"]) for c in result["contacts"]} == {(1, 6), (2, 5), (3, 4)}
    assert set(result["contacts"][0]) == {"i", "j", "score"}
    assert result["sequences"] == 200
    assert result["effective"] == 200.0
    assert result["sites"] == 6
    assert result["converged"] is True
    assert 0 < result["loss"] < np.log(5)
    assert (result["out"], result["figure"]) == (None, None)


def test_fit_keeps_a_sound_model_and_its_picture(capsys, kept):
    assert sorted(p.name for p in kept.parent.iterdir()) == ["model", "model.png"]
    assert kept.with_name("model.png").read_bytes().startswith(b"\x89PNG")
    assert Store.open(kept).verify() == []
    assert answer(capsys, "sweep", "verify", kept)[0] == 0


def test_contacts_of_a_kept_model_are_those_of_its_fit(capsys, kept):
    code, out, _ = answer(capsys, "potts", "contacts", kept, "--json", "--top", "3")
    assert code == 0
    assert {(c["i"], c["j"]) for c in json.loads(out)["contacts"]} == {(1, 6), (2, 5), (3, 4)}
    code, out, _ = answer(capsys, "potts", "contacts", kept, "--separation", "5")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[2:]] == [["1", "6"]]


def test_factored_fit_finds_the_same_contacts(capsys, family):
    code, out, _ = answer(
        capsys, "potts", "fit", family, "--alphabet", "rna", "--method", "factored", "--heads", "2", "--threshold", "0",
        "--top", "3", "--json",
    )  # fmt: skip
    result = json.loads(out)
    assert code == 0
    assert result["heads"] == 2
    assert {(c["i"], c["j"]) for c in result["contacts"]} == {(1, 6), (2, 5), (3, 4)}


def test_sampled_sequences_have_lower_energy_than_random_ones(capsys, kept, tmp_path):
    new = tmp_path / "new.fasta"
    code, out, _ = answer(capsys, "potts", "sample", kept, "--number", "100", "--out", new, "--seed", "3", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["mixed"] is True
    assert result["r_hat"] < 1.05
    assert new.read_text().count(">") == 100
    rng = np.random.default_rng(0)
    random = tmp_path / "random.fasta"
    random.write_text("".join(f">r{k}\n{''.join(rng.choice(list('ACGU'), 6))}\n" for k in range(100)))
    code, out, _ = answer(capsys, "potts", "energies", kept, new, "--json")
    assert code == 0
    drawn = [row["energy"] for row in json.loads(out)["energies"]]
    code, out, _ = answer(capsys, "potts", "energies", kept, random)
    assert code == 0
    assert np.mean(drawn) < np.mean([float(line.split("\t")[0]) for line in out.splitlines()]) - 1
    code, _, err = answer(capsys, "potts", "sample", kept, "--number", "1", "--out", new)
    assert code == 2
    assert "already exists" in err


def test_unconverged_fit_is_reported_with_exit_code_one(capsys, family):
    code, out, err = answer(capsys, "potts", "fit", family, "--alphabet", "rna", "--iterations", "1", "--json")
    assert code == 1
    assert json.loads(out)["converged"] is False
    assert "not converged" in err


BAD_FILES = {
    "empty": "",
    "no header": "ACGU\n",
    "unequal": ">a\nACGU\n>b\nACG\n",
    "unknown letter": ">a\nACGU\n>b\nACNU\n",
    "one sequence": ">a\nACGU\n",
    "no variation": ">a\nACGU\n>b\nACGU\n",
    "no sequence": ">a\n>b\nACGU\n",
    "clustal": "CLUSTAL W\n\na ACGU\nb ACGA\n",
    "zero byte": ">a\nAC\0U\n",
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file_ends_in_one_sentence_with_a_line_number_and_no_output(kind, capsys, tmp_path):
    file = tmp_path / "bad.fasta"
    file.write_text(BAD_FILES[kind])
    code, out, err = answer(capsys, "potts", "fit", file, "--alphabet", "rna", "--out", tmp_path / "model", "--json")
    assert code == 2
    assert err.count("\n") == 1
    assert "line " in err
    assert json.loads(out)["error"] in err
    assert [p.name for p in tmp_path.iterdir()] == ["bad.fasta"]


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "missing.fasta"),
        ("fit", "FAMILY", "--alphabet", "A"),
        ("fit", "FAMILY", "--alphabet", "protein", "--threshold", "2"),
        ("fit", "FAMILY", "--alphabet", "rna", "--penalty", "-1"),
        ("fit", "FAMILY", "--alphabet", "rna", "--penalty", "nan"),
        ("fit", "FAMILY", "--alphabet", "rna", "--method", "factored", "--heads", "0"),
        ("fit", "FAMILY", "--alphabet", "rna", "--iterations", "0"),
        ("fit", "FAMILY", "--alphabet", "rna", "--tolerance", "0"),
        ("fit", "FAMILY", "--alphabet", "rna", "--top", "-1"),
        ("fit", "FAMILY", "--alphabet", "rna", "--out", "FAMILY"),
        ("fit", "FAMILY", "--method", "quantum"),
        ("fit",),
        ("contacts", "nowhere"),
        ("contacts", "KEPT", "--separation", "0"),
        ("sample", "KEPT", "--number", "0", "--out", "new.fasta"),
        ("sample", "KEPT", "--number", "1", "--out", "new.fasta", "--sweeps", "1"),
        ("energies", "KEPT", "nowhere.fasta"),
        ("energies", "nowhere", "FAMILY"),
    ],
)
def test_wrong_arguments_end_in_one_sentence_and_exit_code_two(words, capsys, family, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"FAMILY": str(family), "KEPT": str(kept)}
    code, _, err = answer(capsys, "potts", *(places.get(word, word) for word in words))
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("solvable: ")
    assert list(tmp_path.iterdir()) == []


def test_energies_of_sequences_of_another_length_name_the_line(capsys, kept, tmp_path):
    file = tmp_path / "long.fasta"
    file.write_text("\n>a\nACGUACGU\n")
    code, _, err = answer(capsys, "potts", "energies", kept, file)
    assert code == 2
    assert "line 2 has 8 sites, but the model has 6" in err


def test_help_contacts_and_energies_import_no_jax(kept, family):
    program = (
        "import sys\nfrom solvable.cli.app import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'jax' not in sys.modules\n"
    )
    for words in (
        ["potts", "fit", "--help"],
        ["potts", "contacts", str(kept)],
        ["potts", "energies", str(kept), str(family)],
    ):
        done = subprocess.run([sys.executable, "-c", program, *words], env={**os.environ, "PYTHONPATH": SOURCE},
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stderr


REPORTED = """
import contextlib, pathlib
import solvable.cli.potts as commands

real = commands._progress

@contextlib.contextmanager
def progress(show):
    with real(show) as report:
        yield lambda *words: (pathlib.Path({mark!r}).touch(), report(*words))

commands._progress = progress
"""


def test_interrupted_fit_leaves_no_files(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "work").mkdir()
    file = tmp_path / "work" / "large.fasta"
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY-"))
    file.write_text("".join(f">s{k}\n{''.join(letters[rng.integers(0, 21, 60)])}\n" for k in range(3000)))
    words = [sys.executable, "-m", "solvable", "potts", "fit", str(file), "--out", str(file.parent / "model"), "--tolerance",
             "1e-12", "--iterations", "1000000"]  # fmt: skip
    (tmp_path / "sitecustomize.py").write_text(REPORTED.format(mark=str(tmp_path / "reported")))
    running = subprocess.Popen(words, env=with_path(str(tmp_path), SOURCE), stderr=subprocess.PIPE, text=True)
    try:
        until((tmp_path / "reported").exists)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=LONG)
    finally:
        running.kill()
    assert running.returncode == 1
    assert "Traceback" not in err
    assert [p.name for p in file.parent.iterdir()] == ["large.fasta"]


def test_a_fit_that_no_memory_holds_is_refused_at_once(capsys, tmp_path):
    file = tmp_path / "long.fasta"
    file.write_text("".join(f">s{k}\n{'ACGU-'[k] * 20_000}\n" for k in range(3)))
    code, _, err = answer(capsys, "potts", "fit", file, "--alphabet", "rna")
    assert code == 2
    assert err.count("\n") == 1
    assert "20000 sites" in err
    assert "GB are free" in err
