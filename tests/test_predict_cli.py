"""The command `solvable predict`: output, files, formats, invalid input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import solvable as sv
from commands import answer
from waiting import LONG

SOURCE = str(Path(sv.__file__).parents[1])


def lines(rows=120, seed=0):
    """A table of two columns of numbers, one of words, one of dates, and a target, as text."""
    rng = np.random.default_rng(seed)
    x, colour = rng.normal(size=(rows, 2)), rng.choice(["red", "blue"], size=rows)
    y = x @ [1.0, -0.5] + (colour == "red") + rng.normal(size=rows)
    table = [
        f"{a:.6f},{b:.6f},{c},2024-01-{1 + k % 28:02d},{v:.6f}"
        for k, ((a, b), c, v) in enumerate(zip(x, colour, y, strict=True))
    ]
    return ["a,b,colour,day,y", *table]


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("\n".join(lines()))
    return file


QUICK = ("--over", "rows=40:90:3", "--repeats", "2")


def test_table_statement_and_best_penalty_are_printed(capsys, table):
    code, out, err = answer(capsys, "predict", table, "--ignore", "day", *QUICK)
    assert (code, err) == (0, "")
    assert "y from 3 columns and 120 rows: Ridge on 4 features" in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("40", "65", "90"))] == ["40", "65", "90"]
    assert "like Gaussian data of the same covariance: theory (Gaussian rows) and 3 fitted points differ by" in out
    assert "Best penalty at 90 rows by the theory's gradient: alpha = " in out


def test_json_and_folder_hold_the_same_numbers(capsys, table, tmp_path):
    folder = tmp_path / "runs" / "predict"
    over = ("--over", "penalty=1,10,100", "--repeats", "2")
    code, out, _ = answer(
        capsys, "predict", table, "--target", "y", "--ignore", "day", *over, "--out", folder, "--json"
    )
    result = json.loads(out)
    assert code == 0
    assert result["theory"]["penalty"] == [1.0, 10.0, 100.0]
    assert len(result["fitted"]["mean"]) == 3
    assert (result["held_rows"], result["penalty_is"], result["gaussian"] in (True, False)) == (96, "alpha", True)
    assert sorted(p.name for p in folder.iterdir()) == ["predict.json", "predict.png"]
    kept = json.loads((folder / "predict.json").read_text())
    assert kept["theory"] == result["theory"]
    assert (folder / "predict.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = answer(capsys, "predict", table, "--ignore", "day", *over, "--out", folder)
    assert code == 2
    assert "already exists" in err


def test_pipeline_of_ones_own_is_loaded_from_the_working_folder(capsys, table, tmp_path, monkeypatch):
    (tmp_path / "my_pipeline_of_a_test.py").write_text(
        "from sklearn.linear_model import Lasso\nfrom sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "def pipe():\n    return make_pipeline(StandardScaler(), Lasso(0.1))\n"
        "forest = [1, 2]\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = answer(
        capsys, "predict", table, "--pipeline", "my_pipeline_of_a_test:pipe", "--ignore", "day,colour", *QUICK
    )
    assert code == 0
    assert "Lasso on 2 features" in out
    for words, says in (
        ("my_pipeline_of_a_test:nothing", "cannot be loaded: AttributeError"),
        ("my_pipeline_of_a_test:forest", "cannot be loaded: TypeError"),
        ("no_such_module_of_a_test:pipe", "cannot be loaded: ModuleNotFoundError"),
        (":pipe", "neither module:object nor one of"),
        ("my_pipeline_of_a_test:pipe", "could not convert string to float"),
    ):
        code, _, err = answer(capsys, "predict", table, "--pipeline", words, *QUICK)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err


def test_arrays_are_read_by_column(capsys, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 4))
    y = x[:, 0] + rng.normal(size=150)
    np.save(tmp_path / "a.npy", np.column_stack([x, y]))
    np.savez(tmp_path / "a.npz", X=x, y=y)
    found = []
    for name in ("a.npy", "a.npz"):
        code, out, _ = answer(capsys, "predict", tmp_path / name, *QUICK, "--fits", "0", "--json")
        assert code == 0
        found.append(json.loads(out)["theory"]["value"])
    assert found[0] == pytest.approx(found[1])
    code, out, _ = answer(
        capsys, "predict", tmp_path / "a.npy", "--target", "column1", "--ignore", "column2", "--fits", "0", "--json"
    )
    assert json.loads(out)["columns"] == 3


def test_parquet_is_read_or_refused_in_one_sentence(capsys, table, tmp_path):
    pandas = pytest.importorskip("pandas")
    try:
        pandas.read_csv(table).drop(columns="day").to_parquet(tmp_path / "a.parquet")
    except ImportError:
        (tmp_path / "a.parquet").write_bytes(b"PAR1")
        code, _, err = answer(capsys, "predict", tmp_path / "a.parquet")
        assert (code, err.count("\n")) == (2, 1)
        assert "needs pandas and pyarrow" in err
        return
    code, out, _ = answer(capsys, "predict", tmp_path / "a.parquet", "--fits", "0", "--json")
    assert (code, json.loads(out)["features"]) == (0, 4)


BAD = {
    "dates": ((), "the column 'day' contains dates"),
    "unknown column": (("--target", "z"), "no column 'z'"),
    "no target": (("--target", "colour", "--ignore", "day", "--pipeline", "ridge"), "targets are words"),
    "unknown sweep": (("--over", "columns=1:2:3"), "neither rows=RANGE nor penalty=RANGE"),
    "bad range": (("--over", "rows=a:b:c"), "not a range"),
    "few rows": (("--ignore", "day", "--over", "rows=1,2"), "whole numbers in [10"),
    "bad penalty": (("--ignore", "day", "--penalty", "-1"), "penalty = -1"),
    "unknown pipeline": (("--ignore", "day", "--pipeline", "forest"), "no pipeline 'forest'"),
    "repeats": (("--repeats", "1"), "repeats = 1"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_ends_in_one_sentence_exit_code_two_and_no_output(kind, capsys, table, tmp_path):
    words, says = BAD[kind]
    code, out, err = answer(capsys, "predict", table, *words, "--out", tmp_path / "kept", "--json")
    assert (code, err.count("\n")) == (2, 1)
    assert says in err
    assert json.loads(out)["error"] in err
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("nowhere.csv", None),
        ("a.npy", b"\x93NUMPY damaged"),
        ("a.xlsx", b""),
        ("empty.csv", b""),
        ("a.csv", b"a,b\n\xff\xfe,1\n"),
    ],
)
def test_unreadable_file_ends_in_one_sentence(name, raw, capsys, tmp_path):
    if raw is not None:
        (tmp_path / name).write_bytes(raw)
    code, _, err = answer(capsys, "predict", tmp_path / name)
    assert (code, err.count("\n")) == (2, 1)
    assert name in err


def test_missing_target_is_refused(capsys, tmp_path):
    text = lines()
    text[4] = text[4].rsplit(",", 1)[0] + ","
    (tmp_path / "a.csv").write_text("\n".join(text))
    code, _, err = answer(capsys, "predict", tmp_path / "a.csv", "--ignore", "day")
    assert code == 2
    assert "row 4 has no value in the column 'y'" in err


def test_predict_imports_no_jax(table):
    program = (
        "import sys\nfrom solvable.cli.app import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'jax' not in sys.modules\n"
    )
    words = ["predict", str(table), "--ignore", "day", "--fits", "0"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": SOURCE},
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
