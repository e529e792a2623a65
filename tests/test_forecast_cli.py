"""The command `solvable forecast`: output, files, invalid input."""

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


def lines(rows=60, seed=0, word=False):
    """A table of three columns and a target, as text."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    y = x @ [1.0, -0.5, 0.2] + rng.normal(size=rows)
    last = np.where(y > 0, "up", "down") if word else y
    table = [",".join([*(f"{v:.6f}" for v in a), str(b)]) for a, b in zip(x, last, strict=True)]
    return ["a,b,c,y", *table]


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("\n".join(lines()))
    return file


def test_forecast_reports_gain_level_and_power_law_in_a_table_and_in_words(capsys, table):
    code, out, err = answer(capsys, "forecast", table, "--at", "90,180")
    assert (code, err) == (0, "")
    assert "mean squared error" in out
    assert "power law" in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("90", "180"))] == ["90", "180"]
    assert "The forecast is of the gain. The level includes the noise of these 60 rows" in out
    assert "the best penalty for more rows is not forecast" in out
    assert "Backtest" in out


def test_json_holds_the_same_numbers_as_the_function(capsys, table):
    from solvable.tools.forecast import forecast
    from solvable.tools.tables import read_table

    code, out, _ = answer(capsys, "forecast", table, "--target", "b", "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["rows"], result["columns"], result["target"], result["gain_is"]) == (60, 3, "b", "ratio")
    read = read_table(table, "b")
    same = forecast(read.features, read.targets)
    assert [p["level"] for p in result["forecast"]] == pytest.approx(same.level.tolist())
    assert [p["rows"] for p in result["forecast"]] == [90, 120, 180]
    assert result["forecast"][0]["gain_band"][0] < result["forecast"][0]["gain"] < result["forecast"][0]["gain_band"][1]


def test_logistic_forecast_of_words_is_kept_whole_in_a_new_folder(capsys, tmp_path):
    file = tmp_path / "words.csv"
    file.write_text("\n".join(lines(word=True)))
    folder = tmp_path / "kept"
    code, out, _ = answer(capsys, "forecast", file, "--loss", "logistic", "--out", folder)
    assert code == 0
    assert "change, %" in out
    assert sorted(p.name for p in folder.iterdir()) == ["forecast.json", "forecast.png"]
    assert (folder / "forecast.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "forecast.json").read_text())["observable"] == "test error"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "words.csv"]
    code, _, err = answer(capsys, "forecast", file, "--loss", "logistic", "--out", folder)
    assert code == 2
    assert "already exists" in err


def test_warnings_go_to_standard_error_without_failing(capsys, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 20)) / np.sqrt(rng.chisquare(3, size=120))[:, None]
    np.savez(tmp_path / "data.npz", X=x, y=x[:, 0] + 0.3 * rng.normal(size=120))
    code, out, err = answer(capsys, "forecast", tmp_path / "data.npz", "--at", "2000")
    assert code == 0
    assert "heavy-tailed" in err
    assert "never measured" in err
    assert "heavy-tailed" not in out


def changed(number, text):
    def change(table):
        table[number] = text
        return table

    return change


BAD = {
    "missing value": (changed(5, "1,,2,3"), (), "line 6 has no value in the column 'b'"),
    "a word": (changed(5, "1,red,2,3"), (), "not a number"),
    "constant column": (
        lambda t: [t[0] + ",d", *(f"{row},7" for row in t[1:])],
        ("--target", "y"),
        "same value in every row",
    ),
    "one class": (
        lambda t: [t[0], *(row.rsplit(",", 1)[0] + ",up" for row in t[1:])],
        ("--loss", "logistic"),
        "only one class",
    ),
    "many classes": (lambda t: t, ("--loss", "logistic"), "different labels"),
    "few rows": (lambda t: t[:30], (), "29 rows, but a forecast needs at least 40"),
    "unknown column": (lambda t: t, ("--target", "z"), "no column 'z'"),
    "unknown ignored column": (lambda t: t, ("--ignore", "z"), "no column 'z'"),
    "fewer rows than now": (lambda t: t, ("--at", "30"), "60 rows already"),
    "no number of rows": (lambda t: t, ("--at", "many"), "not a list of numbers of rows"),
    "negative penalty": (lambda t: t, ("--penalty", "-1"), "penalty = -1"),
    "unknown loss": (lambda t: t, ("--loss", "hinge"), "hinge"),
    "empty": (lambda t: [], (), "is empty"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_ends_in_one_sentence_exit_code_two_and_no_output(kind, capsys, tmp_path):
    change, words, says = BAD[kind]
    file = tmp_path / "data.csv"
    file.write_text("\n".join(change(lines())))
    code, out, err = answer(capsys, "forecast", file, *words, "--out", tmp_path / "kept", "--json")
    assert code == 2
    assert err.count("\n") == 1
    assert says in err
    assert json.loads(out)["error"] in err
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


@pytest.mark.parametrize("name", ["nowhere.csv", "folder.csv", "damaged.npz", "data.xlsx"])
def test_unreadable_file_ends_in_one_sentence(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "damaged.npz").write_bytes(b"PK damaged")
    (tmp_path / "data.xlsx").write_bytes(b"")
    code, _, err = answer(capsys, "forecast", name)
    assert code == 2
    assert err.count("\n") == 1
    assert name in err


def test_constant_columns_are_left_out_on_demand(capsys, tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("\n".join([lines()[0] + ",d", *(f"{row},7" for row in lines()[1:])]))
    code, out, err = answer(capsys, "forecast", file, "--target", "y", "--constant", "drop", "--json")
    assert code == 0
    assert json.loads(out)["columns"] == 3
    assert "1 columns with the same value" in json.loads(out)["warnings"][0]


def test_forecast_and_its_help_import_no_jax(table):
    program = (
        "import sys\nfrom solvable.cli.app import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'jax' not in sys.modules\n"
    )
    for words in (["forecast", "--help"], ["forecast", str(table)]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": SOURCE},
            timeout=LONG,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scale", [1e-300, 1e200, 1e307])
@pytest.mark.parametrize("column", ["a", "y"])
def test_columns_whose_squares_cannot_be_computed_are_refused(capsys, tmp_path, scale, column):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[:, ["a", "b", "y"].index(column)] *= scale
    file = tmp_path / "data.csv"
    file.write_text("\n".join(["a,b,y", *(",".join(map(repr, row)) for row in rows.tolist())]))
    code, _, err = answer(capsys, "forecast", file)
    assert code == 2
    assert err.count("\n") == 1
    assert "rescale" in err
    assert ("'a'" if column == "a" else "targets") in err
