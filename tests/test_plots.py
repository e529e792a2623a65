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


def test_a_scale_can_be_chosen_for_every_axis(study):
    figure = study.plot(["test_loss", "overlap"], along="samples", scales={"samples": "linear", "test_loss": "log"})
    first, second = figure.axes
    assert (first.get_xscale(), first.get_yscale(), second.get_yscale()) == ("linear", "log", "linear")
    assert study.plot("test_loss", along="samples").axes[0].get_xscale() == "log"  # as declared


def test_branches_are_every_solution_of_the_theory():
    model = sv.SpikedMatrixTensor(tensor_noise=0.2)
    noise = np.linspace(0.3, 3.0, 7)
    study = sv.Study(model, {"matrix_noise": noise})
    study.run(progress=False)
    figure = study.plot("final_overlap", branches=True, finer=False)
    solutions = np.asarray(model.replace(matrix_noise=noise).branches().final_overlap).T
    solutions = solutions[np.isfinite(solutions).any(axis=1)]
    drawn = lines(figure)
    assert len(drawn) == len(solutions) > 1
    for (x, y), solution in zip(drawn, solutions, strict=True):
        np.testing.assert_array_equal(x, noise)
        np.testing.assert_array_equal(y, solution)


def test_studies_beside_each_other_have_their_own_colours_and_captions():
    studies = {p: sv.Study(RIDGE.replace(penalty=p), {"samples": sorted(SAMPLES)}) for p in (0.1, 0.5, 2.0)}
    for each in studies.values():
        each.run(progress=False)
    beside = {f"penalty {p}": studies[p] for p in (0.5, 2.0)}
    figure = studies[0.1].plot("test_loss", beside=beside, caption="penalty 0.1", finer=False)
    axis = figure.axes[0]
    assert [line.get_label() for line in axis.get_lines()] == ["penalty 0.1", "penalty 0.5", "penalty 2.0"]
    assert len({line.get_color() for line in axis.get_lines()}) == 3
    for (_, y), each in zip(lines(figure), studies.values(), strict=True):
        np.testing.assert_array_equal(y, each.dataset().test_loss_theory)


def test_points_that_did_not_converge_are_not_drawn_at_zero():
    from solvable.render.panels import _mean_and_error

    values = np.array([[1.0, 2.0, 3.0], [np.nan, np.inf, np.nan], [4.0, np.nan, 6.0]])
    mean, error = _mean_and_error(values)
    np.testing.assert_array_equal(mean, [2.0, np.nan, 5.0])
    np.testing.assert_allclose(error, [1 / np.sqrt(3), np.nan, 1.0])
    assert _mean_and_error(values[:, :1])[1] is None


def test_a_long_legend_of_a_panel_stands_beside_its_curves_and_a_long_title_fits():
    from solvable.render.plots import _legends

    figure, (first, second) = plt.subplots(1, 2, layout="constrained", figsize=(6, 2.5))
    first.plot([0, 1], [0, 1], label="one")
    for k in range(12):
        second.plot([0, 1], [k, k + 1], label=f"rate 1, student {k}")
    _legends(figure, [first, second], grows=True)
    figure.canvas.draw()
    assert second.get_legend().get_window_extent().x0 >= second.get_window_extent().x1
    assert figure.get_size_inches()[0] > 7
    plt.close(figure)

    study = sv.Study(sv.ManyBodyBias(), over={"inverse_temperature": [0.5, 1.0]})
    study.run(progress=False)
    figure = study.plot(show="optimal_loss")
    figure.canvas.draw()
    assert figure._suptitle.get_window_extent().x0 >= 0  # pyright: ignore


def test_every_symbol_can_be_drawn():
    from matplotlib.mathtext import MathTextParser

    parser = MathTextParser("agg")
    for id in sv.listings():
        kind = sv.model_class(id)
        for declared in [*kind.fields().values(), *kind.observables_declared]:
            parser.parse(f"${declared.symbol or 'x'}$")  # raises what it does not know
