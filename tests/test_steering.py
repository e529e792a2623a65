"""The words that steer a plot mean the same in Python, on the command line and in the page's address."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

import solvable as sv
from commands import answer
from solvable.render.layout import FEW, MOST_LINES, Wishes, layout, shown_names

RIDGE = sv.Perceptron(loss="square", penalty=0.5)
MANY = np.geomspace(0.2, 5, FEW + 1).tolist()


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def study_over(model=RIDGE, **over):
    study = sv.Study(model, over)
    study.run(progress=False)
    return study


@pytest.fixture(scope="module")
def three():
    return study_over(samples=[0.5, 1.0, 2.0], penalty=[0.1, 0.3, 1.0, 3.0], teacher=["sign", "linear"])


def place(study, name="overlap", **words):
    return layout(study, study.dataset(), name, Wishes.of(**words))


def visible(figure):
    return [axis for axis in figure.axes if axis.get_visible()]


def test_one_swept_control_runs_along_the_axis_however_few_its_values():
    assert place(study_over(samples=[0.5, 2.0])).along == "samples"


def test_two_swept_controls_are_lines_if_one_has_few_values_and_a_plane_otherwise():
    few = place(study_over(penalty=[0.1, 1.0], samples=MANY))
    assert (few.along, few.across, few.lines) == ("samples", "", {"penalty": [0, 1]})
    plane = place(study_over(penalty=MANY, samples=MANY))
    assert (plane.along, plane.across, plane.lines) == ("penalty", "samples", {})


def test_a_plane_can_be_asked_for_and_lines_too(three):
    plane = place(three, along="samples,penalty")
    assert (plane.along, plane.across, plane.by) == ("samples", "penalty", {"teacher": [0, 1]})
    lines = place(study_over(penalty=MANY, samples=MANY), lines="samples")
    assert (lines.along, lines.across, len(lines.lines["samples"])) == ("penalty", "", len(MANY))


def test_every_word_puts_its_dimension_in_its_place(three):
    figure = three.plot(show="test_loss,overlap", lines="samples", along="penalty", by="teacher", log="y")
    axes = visible(figure)
    assert [a.get_ylabel().split(" $")[0] for a in axes] == ["test loss", "test loss", "overlap", "overlap"]
    assert [a.get_title() for a in axes] == ["teacher sign", "teacher linear"] * 2
    data = three.dataset().overlap_theory
    for axis, teacher in zip(axes[2:], ["sign", "linear"], strict=True):
        assert axis.get_xlabel() == r"penalty $\lambda$"
        assert axis.get_yscale() == "log"
        assert axis.get_legend_handles_labels()[1] == ["samples 0.5", "samples 1", "samples 2"]
        for line, samples in zip(axis.get_lines(), [0.5, 1.0, 2.0], strict=True):
            x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
            stored = data.sel(teacher=teacher, samples=samples)
            np.testing.assert_array_equal(y[np.searchsorted(x, stored.penalty)], stored)


def test_few_observables_by_default_and_all_on_request(three):
    data = three.dataset()
    assert set(shown_names(three, data, None, Wishes())) == {"test_error", "test_loss", "train_loss", "overlap"}
    assert set(shown_names(three, data, "all", Wishes())) >= {"norm", "response", "bayes_error", "train_error"}


def test_a_model_that_names_no_main_observables_shows_its_first_four_numbers():
    class Plain(sv.Model):
        id = "plain"
        observables_declared = (
            sv.observable("curve", "c", dims=("time",)),
            sv.observable("bound", "b", simulated=False),
            *(sv.observable(f"x{k}", "x") for k in range(4)),
        )

    assert Plain().main_observables() == ("x0", "x1", "x2", "x3")
    assert sv.create("sharpness").main_observables() == ("sharpness", "kernel_sharpness", "train_loss")


@pytest.mark.parametrize("id", sv.listings())
def test_main_observables_exist_and_are_few(id):
    kind = sv.model_class(id)
    assert set(kind.main_declared) <= {o.name for o in kind.observables_declared}
    assert 1 <= len(kind().main_observables()) <= 4


def test_the_logarithm_is_of_the_axes_named(three):
    axis = three.plot("overlap", along="samples", log="none").axes[0]
    assert (axis.get_xscale(), axis.get_yscale()) == ("linear", "linear")
    axis = three.plot("overlap", along="samples", log="x,y").axes[0]
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")


def test_words_on_the_axis_have_numbers_and_a_legend():
    study = study_over(teacher=["sign", "linear"])
    axis = study.plot("overlap").axes[0]
    numbers = [f"{v:.3g}" for v in study.dataset().overlap_theory.values]
    assert [text.get_text() for text in axis.texts] == numbers
    assert [text.get_text() for text in axis.figure.legends[0].get_texts()] == ["theory"]


def test_a_curve_of_its_own_is_shown_at_a_few_times_along_a_swept_control():
    model = sv.create("quadratic-network")
    along = place(study_over(model, scale=np.linspace(0.5, 2, FEW + 1)), "test_loss")
    assert along.along == "scale"
    assert len(along.lines["time"]) == 5
    assert place(study_over(model, scale=[0.5, 2.0]), "test_loss").along == "time"


def test_of_many_lines_some_are_drawn_and_the_figure_says_so():
    study = study_over(samples=MANY, penalty=np.geomspace(0.01, 10, 20).tolist())
    figure = study.plot("overlap", along="samples", lines="penalty", finer=False)
    assert len(figure.axes[0].get_lines()) == MOST_LINES
    assert [t.get_text() for t in figure.axes[0].texts] == [f"{MOST_LINES} of 20 values of penalty"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"show": "overlp"}, "no observable 'overlp'; did you mean 'overlap'"),
        (
            {"along": "sample"},
            "along = 'sample': this study has the dimensions samples, penalty, teacher; did you mean",
        ),
        ({"lines": "noise"}, "lines = 'noise'"),
        ({"along": "samples", "by": "samples"}, "'samples' has more than one place"),
        ({"along": "samples,penalty", "lines": "teacher"}, "cannot be drawn in the plane"),
        ({"along": "samples,penalty,teacher"}, "more than the two axes"),
        ({"log": "z"}, "log = 'z' is not 'x', 'y', 'x,y' or 'none'"),
    ],
)
def test_a_wrong_word_is_refused_in_one_sentence(three, words, sentence):
    with pytest.raises(sv.SolvableError, match=sentence.replace("(", r"\(")):
        three.plot(**words)


def test_the_command_line_takes_the_same_words(capsys, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(sv.Study, "plot", lambda self, **words: seen.update(words) or plt.figure())
    words = ("study", "perceptron", "loss=square", "--over", "samples=0.5,1", "--over", "penalty=0.1,1", "--figure",
             tmp_path / "p.png", "--show", "test_error,overlap", "--lines", "samples", "--along", "penalty", "--log", "y",
             "--json")  # fmt: skip
    assert answer(capsys, *words)[0] == 0
    assert seen == {"show": "test_error,overlap", "lines": "samples", "along": "penalty", "log": "y"}


@pytest.mark.parametrize(
    "words",
    [
        ("--show", "overlp", "--figure", "p.png"),
        ("--along", "noise", "--figure", "p.png"),
        ("--log", "z", "--figure", "p.png"),
        ("--lines", "samples"),
    ],
)
def test_the_command_line_refuses_a_wrong_word_before_it_computes(capsys, monkeypatch, words):
    monkeypatch.setattr(sv.Study, "run", lambda *_, **__: pytest.fail("computed"))
    code, out, err = answer(capsys, "study", "perceptron", "--over", "samples=0.5,1", *words, "--json")
    assert code == 2
    assert err.count("\n") == 1
    assert json.loads(out)["error"] in err
