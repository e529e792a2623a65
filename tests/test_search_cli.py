"""`solvable optimise` and `solvable locate`: the same numbers as in Python, and one sentence for wrong input."""

import json

import pytest

import solvable as sv
from commands import answer

RIDGE = ("perceptron", "loss=square", "teacher=linear", "noise=0.5")


def test_optimise_finds_the_known_best_penalty(capsys):
    code, out, _ = answer(capsys, "optimise", *RIDGE, "penalty=0.01:10", "--minimise", "test_loss", "--json")
    found = json.loads(out)
    assert code == 0
    assert abs(found["controls"]["penalty"] - 0.5) < 1e-6
    assert (found["minimise"], found["at_bound"], found["params"]["noise"]) == ("test_loss", False, 0.5)
    best = sv.optimise(sv.Perceptron(loss="square", teacher="linear", noise=0.5), "penalty", minimise="test_loss")
    assert abs(found["value"] - best.value) < 1e-9
    shown = answer(capsys, "optimise", *RIDGE, "penalty", "--maximise", "overlap")[1]
    assert shown.startswith("maximise overlap: ")
    assert "at the edge of the range searched" in shown


def test_locate_finds_a_peak_a_level_and_the_crossing_of_two_observables(capsys):
    sharp = (*RIDGE, "penalty=1e-6", "samples=0.5:2")
    code, out, _ = answer(capsys, "locate", *sharp, "--what", "peak of test_loss", "--json")
    assert code == 0
    assert abs(json.loads(out)["value"] - 1.0) < 1e-3
    code, out, _ = answer(capsys, "locate", *RIDGE, "samples=0.2:10", "--what", "test_loss = 0.4", "--json")
    model = sv.Perceptron(loss="square", teacher="linear", noise=0.5)
    at = json.loads(out)["value"]
    assert abs(float(model.replace(samples=at).theory().test_loss) - 0.4) < 1e-8
    code, out, _ = answer(capsys, "locate", *RIDGE, "penalty=0.01:10", "--what", "overlap = norm", "--json")
    assert abs(json.loads(out)["value"] - 0.5) < 1e-6  # at the noise itself, where ridge regression is Bayes-optimal


def test_locate_says_where_it_found_nothing(capsys):
    code, out, err = answer(capsys, "locate", *RIDGE, "samples=1:2", "--what", "test_loss = 100", "--json")
    assert (code, json.loads(out)["value"]) == (1, None)
    assert err == "solvable: no 'test_loss = 100' of perceptron for samples in [1, 2].\n"


def test_locate_finds_the_transition_that_a_model_declares(capsys):
    words = ("spiked-matrix-tensor", "tensor_noise=1", "initial_overlap=0")
    code, out, _ = answer(capsys, "locate", *words, "matrix_noise=0.3:2", "--json")
    model = sv.SpikedMatrixTensor(tensor_noise=1.0, initial_overlap=0.0)
    assert code == 0
    assert json.loads(out)["value"] == sv.locate(model, along="matrix_noise", between=(0.3, 2.0))


BAD = [
    (("optimise", "perceptron", "penalty=0.1:1"), "exactly one of --minimise NAME and --maximise NAME"),
    (("optimise", "perceptron", "penalty=0.1:1", "--minimise", "x", "--maximise", "y"), "exactly one of"),
    (("optimise", "perceptron", "penalty=0.1", "--minimise", "test_error"), "needs a control to vary"),
    (("optimise", "perceptron", "penalty=1:0.1", "--minimise", "test_error"), "penalty = 1:0.1 is not an interval"),
    (("optimise", "perceptron", "penalty=a:b", "--minimise", "test_error"), "is not a range NAME=LOW:HIGH"),
    (("optimise", "perceptron", "penalty=0.1:1:5", "--minimise", "test_error"), "is not a range NAME=LOW:HIGH"),
    (("optimise", "perceptron", "penalty=-1:1", "--minimise", "test_error"), "penalty = -1 is outside its range"),
    (
        ("optimise", "perceptron", "penalt=0.1:1", "--minimise", "test_error"),
        "no field 'penalt'; did you mean 'penalty'?",
    ),
    (("optimise", "perceptron", "penalty=0.1:1", "--minimise", "test_eror"), "no scalar observable 'test_eror'"),
    (("optimise", "perceptron", "loss", "--minimise", "test_error"), "only controls can be varied here"),
    (("locate", "perceptron"), "locate needs one control to search along"),
    (("locate", "perceptron", "samples", "penalty"), "but has 2"),
    (("locate", "perceptron", "samples"), "perceptron declares no transition"),
    (("locate", "perceptron", "samples", "--what", "the end"), "is not 'transition', 'spinodal'"),
    (("locate", "perceptron", "samples", "--what", "test_error = high"), "no scalar observable 'high'"),
    (("locate", "masked-language", "rate"), "masked-language has no closed theory"),
]


@pytest.mark.parametrize(("words", "sentence"), BAD)
def test_wrong_input_is_refused_in_one_sentence(capsys, words, sentence):
    code, out, err = answer(capsys, *words, "--json")
    assert code == 2, (out, err)
    assert sentence in err
    assert err.count("\n") == 1
    assert sentence in json.loads(out)["error"]
