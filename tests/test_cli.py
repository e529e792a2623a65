"""The command line: output, JSON, invalid input, start-up, interruption."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import solvable as sv
from commands import answer
from solvable.cli.common import print_table
from waiting import LONG, holding, until, with_path

SOURCE = str(Path(sv.__file__).parents[1])


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("SOLVABLE_CACHE", "0")
    monkeypatch.setenv("EQX_ON_ERROR", "nan")


def test_theory_prints_one_json_object(capsys):
    code, out, _ = answer(capsys, "theory", "perceptron", "loss=square", "samples=2", "penalty=0.1", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["model"] == "perceptron"
    assert result["params"]["samples"] == 2.0
    assert result["status"] == "converged"
    expected = sv.Perceptron(loss="square", samples=2, penalty=0.1).theory().test_error
    assert result["observables"]["test_error"] == float(expected)


def test_ranges_and_lists_sweep_a_theory(capsys):
    code, out, _ = answer(capsys, "theory", "perceptron", "loss=square", "samples=0.5:2:3:log", "--json")
    assert code == 0
    assert json.loads(out)["params"]["samples"] == [0.5, 1.0, 2.0]
    assert len(json.loads(out)["observables"]["norm"]) == 3


def test_list_show_and_cite_know_every_model(capsys):
    _, out, _ = answer(capsys, "list", "--json")
    ids = [m["id"] for m in json.loads(out)["models"]]
    assert {"perceptron", "soft-committee", "masked-regression"} <= set(ids)
    for id in ids:
        assert answer(capsys, "show", id)[0] == 0
        assert "@article{" in answer(capsys, "cite", id)[1]


@pytest.mark.parametrize("terminal", [False, True])
def test_brackets_and_colons_of_an_error_arrive_whole(capsys, monkeypatch, tmp_path, terminal):
    """Text that looks like markup in an error, a value or a name is printed literally."""
    monkeypatch.setenv("COLUMNS", "400")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    case = {"model": "perceptron", "value": 0.0, "tolerance": 1.0}
    cases = [
        case | {"params": {}, "observable": "loss[size] in [0, 1][/bold]:smile:"},
        case | {"params": {"loss": "[red]square[/red]"}, "observable": "test_error"},
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    code, out, _ = answer(capsys, "check", "--values", tmp_path / "cases.json")
    shown = " ".join(re.sub("\x1b\\[[0-9;]*m", "", out).split())
    assert code == 1
    assert "no observable 'loss[size] in [0, 1][/bold]:smile:' here" in shown
    assert "loss = '[red]square[/red]' is not one of" in shown
    print_table("[bold]title[/bold]", ["[size]"], [["[/]"], [":heart:"], ["a [dim]wide[/dim] cell"]])
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("[bold]title[/bold]", "[size]", "[/]", ":heart:", "a [dim]wide[/dim] cell"))


def test_simulate_puts_the_theory_beside(capsys):
    code, out, _ = answer(capsys, "simulate", "perceptron", "loss=square", "--size", "20", "--seed", "3", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["size"] == 20
    assert set(result["observables"]) <= set(result["theory"])


def test_study_keeps_its_run_draws_it_and_can_be_cited(capsys, tmp_path):
    words = ("study", "perceptron", "loss=square", "--over", "samples=0.5,1,2", "--size", "20", "--size", "40",
             "--seeds", "4", "--out", str(tmp_path / "run"))  # fmt: skip
    code, out, _ = answer(capsys, *words)
    assert code == 0
    assert "overall:" in out
    assert (tmp_path / "run.png").stat().st_size > 10_000
    code, out, _ = answer(capsys, *words, "--json")
    assert json.loads(out)["missing"] == 0
    assert "loureiro2021learning" in answer(capsys, "cite", str(tmp_path / "run"))[1]
    assert sv.open(tmp_path / "run").missing() == 0


def test_study_runs_the_arms_that_a_model_declares(capsys, tmp_path):
    small = (
        "study",
        "continual-digits",
        "first_stage=1",
        "second_stage=1",
        "intervals=2",
        "--size",
        "20",
        "--seeds",
        "2",
    )
    code, out, _ = answer(capsys, *small, "--arms", "--out", tmp_path / "run", "--json")
    declared = list(sv.model_class("continual-digits").arms_declared)
    assert code == 0
    assert json.loads(out)["arms"] == declared
    seen = sv.open(tmp_path / "run").dataset().forgetting_simulated
    assert seen.arm.values.tolist() == declared
    assert np.isfinite(seen).all()
    code, out, _ = answer(capsys, *small, "--arms", "head copied,shared", "--json")
    assert (code, json.loads(out)["arms"]) == (0, ["head copied", "shared"])
    assert json.loads(answer(capsys, *small, "--json")[1])["arms"] == []


def test_show_names_the_arms_of_a_model(capsys):
    shown = answer(capsys, "show", "masked-language")[1]
    assert re.search(r"bare layer +learner = transformer, depth = 1, block = bare *\n", shown)
    assert "Arms" not in answer(capsys, "show", "perceptron")[1]


def test_an_unknown_arm_suggests_the_nearest(capsys):
    code, out, err = answer(capsys, "study", "continual-digits", "--arms", "shared,head copid", "--json")
    sentence = "continual-digits has no arm 'head copid'; did you mean 'head copied'?"
    assert (code, json.loads(out)["error"], err) == (2, sentence, f"solvable: {sentence}\n")


BAD = [
    ("theory", "perceptro"),
    ("theory", "perceptron", "sample=2"),
    ("theory", "perceptron", "samples=-1"),
    ("theory", "perceptron", "samples=nan"),
    ("theory", "perceptron", "samples=0.5,1,-2"),
    ("theory", "perceptron", "samples=two"),
    ("theory", "perceptron", "samples"),
    ("theory", "perceptron", "=2"),
    ("theory", "perceptron", "samples=1", "samples=2"),
    ("theory", "perceptron", "samples=1:2"),
    ("theory", "perceptron", "samples=1:2:x"),
    ("theory", "perceptron", "samples=0:2:3:log"),
    ("theory", "perceptron", "samples=1:2:3:cubic"),
    ("theory", "perceptron", "samples=1:inf:3"),
    ("theory", "perceptron", "samples=[1,2"),
    ("theory", "perceptron", "samples=@nowhere.npy"),
    ("theory", "perceptron", "samples=@pyproject.toml"),
    ("theory", "perceptron", "loss=hing"),
    ("theory", "perceptron", "loss=3"),
    ("theory", "perceptron", "teacher=linear", "loss=hinge"),
    ("theory", "soft-committee", "students=0"),
    ("theory", "soft-committee", "students=2.5"),
    ("theory", "soft-committee", "initial_norm=[[1,0],[0,-1]]"),
    ("theory", "soft-committee", "initial_norm=[[1,0]]"),
    ("theory", "soft-committee", "times=[3,2,1]"),
    ("theory", "soft-committee", "start=random"),
    ("theory", "masked-regression", "covariance=given"),
    ("simulate", "perceptron", "--size", "1"),
    ("simulate", "perceptron", "--size", "many"),
    ("simulate", "perceptron", "--seed", "-1"),
    ("simulate", "perceptron", "samples=1,2"),
    ("study", "perceptron", "--over", "samples"),
    ("study", "perceptron", "--over", "sample=1,2"),
    ("study", "perceptron", "--over", "samples=1,1"),
    ("study", "perceptron", "--size", "2.5", "--seeds", "2"),
    ("study", "perceptron", "--size", "20", "--seeds", "0"),
    ("study", "perceptron", "samples=1,2"),
    ("study", "perceptron", "--arms"),
    ("study", "continual-digits", "--arms", "shard"),
    ("study", "continual-digits", "--arms", ","),
    ("study", "continual-digits", "--arms", "shared", "--over", "start=shared,specialised"),
    ("figure", "perceptron-learning-curve"),
    ("figure", "perceptron-phase-diagram", "--quick", "--recompute"),
    ("check", "nonsense"),
    ("check", "--values", "nowhere.json"),
    ("cite", "nonsense"),
    ("show", "nonsense"),
    ("theory",),
    ("theory", "perceptron", "--nonsense"),
    ("nonsense",),
]


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_wrong_input_gives_one_sentence_and_code_two(capsys, words):
    code, out, err = answer(capsys, *words)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("solvable: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("simulate perceptron --size x", "--size = 'x' is not a whole number."),
        ("transformer advise --depth x", "--depth = 'x' is not a whole number."),
        ("transformer advise --std x", "--std = 'x' is not a number."),
        ("simulate perceptron --size", "--size needs a value (see solvable simulate --help)."),
        ("theory", "solvable theory needs MODEL: a model's id, as `solvable list` prints it."),
        ("sweep run", "solvable sweep run needs RUN and MODEL (see solvable sweep run --help)."),
        ("study perceptron --figur a.png", "solvable study has no option '--figur'; did you mean '--figure'?"),
        ("equations perceptron more", "'more' is one word too many for solvable equations."),
        (
            "study perceptron loss=square --over samples=1:2:2 penalty=1:2:2",
            "'penalty=1:2:2' is one word too many: --over takes one field, repeat it to sweep another.",
        ),
        ("optimise perceptron --minimise", "--minimise needs a value (see solvable optimise --help)."),
        ("potts fit a --method foo", "--method = 'foo' is not one of 'dense', 'factored'."),
        ("potts", "one of the commands fit, contacts, sample, energies is missing."),
        ("thery perceptron", "there is no command 'thery'; did you mean 'theory'?"),
        ("sweep rn x", "there is no command 'rn'; did you mean 'run'?"),
        ("theory perceptron --jsn", "solvable theory has no option '--jsn'; did you mean '--json'?"),
        ("sweep run a perceptron --wokers 2", "solvable sweep run has no option '--wokers'; did you mean '--workers'?"),
    ],
)
def test_a_refused_command_line_names_the_word_and_what_is_allowed(capsys, words, sentence):
    assert answer(capsys, *words.split()) == (2, "", f"solvable: {sentence}\n")


def test_with_json_a_refusal_is_json_too(capsys):
    code, out, _ = answer(capsys, "theory", "perceptron", "samples=-1", "--json")
    assert code == 2
    assert "outside its range" in json.loads(out)["error"]


@pytest.mark.parametrize("words", [["--help"], ["list"], ["theory", "--help"], ["figure"]])
def test_help_and_list_do_not_import_jax(words):
    program = "import sys; from solvable.cli.app import main\ntry: main(sys.argv[1:])\nfinally: assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=LONG,
                          env=os.environ | {"PYTHONPATH": SOURCE})  # fmt: skip
    assert done.returncode == 0, done.stderr  # speed is measured in benchmarks


def test_control_c_leaves_a_store_that_resumes_and_prints_how(tmp_path):
    words = ["study", "perceptron", "loss=square", "--over", "samples=0.3:3:40", "--size", "30,40", "--seeds", "20",
             "--out", str(tmp_path / "run")]  # fmt: skip
    program = "import sys; from solvable.cli.app import main; main()"
    held, _ = holding(tmp_path / "site", after=2)
    process = subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=with_path(held, SOURCE) | {"SOLVABLE_CACHE": "0"})  # fmt: skip
    try:
        until(lambda: len(list((tmp_path / "run" / "blocks").glob("*/*.npz"))) == 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Traceback" not in err
    assert "Resume with: solvable study perceptron" in err
    study = sv.open(tmp_path / "run")
    assert 0 < study.missing() < len(study.cells())


@pytest.mark.parametrize("kind", ["pipe", "eight terabytes", "nested", "folder"])
def test_a_file_that_cannot_be_an_array_is_refused_at_once(capsys, tmp_path, kind):
    file = tmp_path / ("deep.json" if kind == "nested" else "matrix.npy")
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "nested":
        file.write_text("[" * 200_000)
    else:
        with file.open("wb") as header:
            np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    code, _, err = answer(capsys, "theory", "soft-committee", f"times=@{file}")
    assert code == 2
    assert err.count("\n") == 1
    assert file.name in err
