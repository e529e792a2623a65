"""A plot shows the results of its study, and says so if it shows more."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import solvable as sv
from solvable.render.plots import FINER_NOTE, FINER_POINTS

RIDGE = sv.Perceptron(loss="square", penalty=0.5)
SAMPLES = [2.0, 0.5, 0.7, 1.1]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def study():
    study = sv.Study(RIDGE, {"samples": SAMPLES, "penalty": [0.1, 1.0]})
    study.run(progress=False)
    return study


def lines(figure):
    return [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in figure.axes[0].get_lines()]


def notes(figure):
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def test_lines_connect_what_the_study_holds_unless_they_may_be_finer(study):
    figure = study.plot("test_loss", along="samples", finer=False)
    stored = study.dataset().test_loss_theory
    drawn = lines(figure)
    assert len(drawn) == 2
    for (x, y), penalty in zip(drawn, [0.1, 1.0], strict=True):
        np.testing.assert_array_equal(x, SAMPLES)
        np.testing.assert_array_equal(y, stored.sel(penalty=penalty))
    assert notes(figure) == []


def test_finer_lines_pass_through_the_stored_theory_and_are_labelled(study):
    figure = study.plot("test_loss", along="samples")
    stored = study.dataset().test_loss_theory
    drawn = lines(figure)
    assert len(drawn) == 2
    for (x, y), penalty in zip(drawn, [0.1, 1.0], strict=True):
        assert len(x) == FINER_POINTS + 2  # two of the four points are the ends of the finer grid
        assert (np.diff(x) > 0).all()
        np.testing.assert_array_equal(y[np.searchsorted(x, SAMPLES)], stored.sel(penalty=penalty))
        np.testing.assert_allclose(y, RIDGE.replace(penalty=penalty, samples=x).theory().test_loss, rtol=1e-9)
    assert notes(figure) == [FINER_NOTE]


def test_the_note_appears_once_below_the_last_observable(study):
    figure = study.plot(["test_loss", "norm", "overlap", "test_error"], along="samples")
    assert notes(figure) == [FINER_NOTE]
    assert [len(axis.texts) for axis in figure.axes if axis.get_visible()] == [0, 0, 0, 1]


def test_a_slow_theory_is_drawn_as_stored(study, monkeypatch):
    monkeypatch.setattr(sv.Perceptron, "theory_seconds", 1.0)
    figure = study.plot("test_loss", along="samples")
    assert [len(x) for x, _ in lines(figure)] == [4, 4]
    assert notes(figure) == []


def test_a_line_is_broken_where_the_stored_theory_has_no_value(study):
    [block] = study.store.done()
    arrays = {name: values.copy() for name, values in study.store.read(block).items()}
    at = study.dataset().test_loss_theory.sel(samples=0.7, penalty=0.1).item()
    arrays["test_loss"][arrays["test_loss"] == at] = np.nan
    study.store.commit(block, arrays, {})
    (x, y), (_, other) = lines(study.plot("test_loss", along="samples"))
    assert x[np.isnan(y)].tolist() == [0.7]
    assert np.isfinite(other).all()
