"""Learning curves of scikit-learn pipelines: theory against fits, every learner, refusals."""

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    RidgeCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC

import solvable as sv
from solvable.errors import InvalidValue
from solvable.tools import _predict_inputs
from solvable.tools._predict_fits import take
from solvable.tools._predict_pipeline import read_pipeline
from solvable.tools._predict_theory import best_penalty
from solvable.tools.frames import give_back


def drawn(rows=500, columns=30, noise=1.0, seed=0, tails=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)) * np.arange(1, columns + 1) ** -0.4
    if tails:
        x *= np.sqrt((tails - 2) / rng.chisquare(tails, size=rows))[:, None]
    teacher = np.random.default_rng(1).normal(size=columns)
    return x, x @ teacher / np.sqrt((x @ teacher).var()) + np.sqrt(noise) * rng.normal(size=rows)


X, Y = drawn()
LABELS = np.where(Y > 0.3, "yes", "no")

REGRESSORS = {
    "ridge": make_pipeline(StandardScaler(), Ridge(5.0)),
    "no intercept": make_pipeline(StandardScaler(), Ridge(5.0, fit_intercept=False)),
    "least squares": LinearRegression(),
    "PCA": make_pipeline(StandardScaler(), PCA(12), Ridge(5.0)),
    "random features": make_pipeline(
        StandardScaler(), RBFSampler(gamma=0.02, n_components=150, random_state=0), Ridge(0.1)
    ),
    "products": make_pipeline(PCA(8), PolynomialFeatures(2, include_bias=False), StandardScaler(), Ridge(20.0)),
    "lasso": make_pipeline(StandardScaler(), Lasso(0.05)),
    "elastic net": make_pipeline(StandardScaler(), ElasticNet(0.05, l1_ratio=0.5)),
    "kernel ridge": make_pipeline(StandardScaler(), KernelRidge(alpha=0.5, kernel="rbf", gamma=0.01)),
}
CLASSIFIERS = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=0.1)),
    "linear SVC": make_pipeline(StandardScaler(), LinearSVC(C=0.01)),
    "SVC": make_pipeline(StandardScaler(), SVC(kernel="linear", C=0.02)),
    "ridge classifier": make_pipeline(StandardScaler(), RidgeClassifier(alpha=20.0)),
    "kernel SVC": make_pipeline(StandardScaler(), SVC(C=0.5)),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_theory_of_a_regressor_meets_fits_of_the_pipeline(name):
    result = sv.predict(X, Y, REGRESSORS[name], over={"rows": [80, 160, 320]}, repeats=8)
    assert result.observable == "mean squared error"
    assert result.fitted.rows.tolist() == [80, 160, 320]
    gap = result.deviation[result.names[-1]]
    assert np.all(np.abs(gap) < 3 * result.fitted.error / result.fitted.mean + 0.06)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_theory_of_a_classifier_meets_fits_of_the_pipeline(name):
    result = sv.predict(X, LABELS, CLASSIFIERS[name], over={"rows": [80, 160, 320]}, repeats=8)
    assert result.observable == "test error"
    assert np.all(np.abs(result.deviation[result.names[0]]) < 3 * result.fitted.error + 0.025)


def test_curve_over_penalties_has_its_minimum_at_the_best_penalty():
    result = sv.predict(X, Y, Ridge(), over={"penalty": np.geomspace(1, 1000, 7)}, fits=3)
    assert result.held_rows == 400
    heights = result.line[result.names[0]]
    k = int(np.argmin(heights))
    around = result.line["penalty"]
    assert around[k - 1] <= result.best.penalty <= around[k + 1]
    assert abs(result.best.slope) < 1e-4
    assert result.best.value <= heights.min() * (1 + 1e-6)
    assert not result.best.at_bound


def test_best_penalty_is_the_noise_for_isotropic_signal_and_says_when_it_is_an_end():
    from solvable.tools._predict_theory import RidgeTheory, transport

    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 50))
    teacher = rng.normal(size=50) / np.sqrt(50)
    theory = RidgeTheory(transport(x, x @ teacher + rng.normal(size=4000)))
    found = best_penalty(theory, 200, 100.0)
    assert found.penalty == pytest.approx(50 / (teacher @ teacher), rel=0.1)
    assert best_penalty(theory, 200, 1e7, decades=2.0).at_bound


def test_heavy_tailed_rows_are_said_not_to_be_gaussian_and_have_a_second_theory():
    x, y = drawn(1200, 60, 0.3, tails=3.0)
    result = sv.predict(x, y, Ridge(0.1), over={"rows": [90, 150, 300, 600]}, repeats=12)
    assert "rows of random scale" in result.names
    sizes = {n: np.median(np.abs(d)) for n, d in result.deviation.items()}
    assert sizes["rows of random scale"] < sizes["Gaussian rows"]
    assert result.names[0] == "rows of random scale"
    assert result.gaussian is False
    assert "do not behave like Gaussian data" in " ".join(result.sentences())
    calm = sv.predict(*drawn(1200, 60, 0.3), Ridge(0.1), over={"rows": [90, 150, 300, 600]}, repeats=12)
    assert calm.names == ("Gaussian rows",)
    assert calm.gaussian


def test_parquet_is_read_as_csv_is_or_refused_in_a_sentence_that_says_what_to_install(tmp_path):
    import importlib.util

    from solvable.tools.frames import read_frame

    pandas = pytest.importorskip("pandas")
    if importlib.util.find_spec("pyarrow") is None:
        (tmp_path / "table.parquet").write_bytes(b"PAR1")
        with pytest.raises(InvalidValue, match="needs pandas and pyarrow: install them, or use CSV"):
            read_frame(tmp_path / "table.parquet")
        return
    frame = pandas.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame["colour"] = pandas.Categorical(np.random.default_rng(0).choice(["red", "blue"], size=500))
    frame.loc[3, "a"], frame["y"] = np.nan, Y
    frame.to_parquet(tmp_path / "table.parquet")
    frame.to_csv(tmp_path / "table.csv", index=False)
    found = [read_frame(tmp_path / f"table.{kind}", "y") for kind in ("parquet", "csv")]
    np.testing.assert_allclose(found[0].targets, found[1].targets)
    curves = [sv.predict(f.features, f.targets, over={"rows": [100, 300]}, fits=0).theory for f in found]
    np.testing.assert_allclose(curves[0], curves[1])


def test_frames_with_words_and_missing_values_get_the_usual_steps():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame["colour"] = np.random.default_rng(0).choice(["red", "blue"], size=500)
    frame.loc[3, "a"], frame.loc[5, "colour"] = np.nan, None
    result = sv.predict(frame, Y + (frame.colour == "red"), over={"rows": [100, 300]}, fits=1)
    assert (result.learner, result.columns, result.features) == ("Ridge", 4, 6)
    assert sv.predict(frame, LABELS, fits=0).learner == "LogisticRegression"
    frame["day"] = pandas.date_range("2020-01-01", periods=500)
    with pytest.raises(InvalidValue, match="'day' contains dates"):
        sv.predict(frame, Y)
    frame["day"] = frame["day"].astype(str)
    with pytest.raises(InvalidValue, match="'day' contains dates"):
        sv.predict(frame, Y)
    frame["day"] = [f"word {k}" for k in range(500)]
    with pytest.raises(InvalidValue, match="500 different words"):
        sv.predict(frame, Y)
    with pytest.raises(InvalidValue, match="could not convert string to float"):
        sv.predict(frame, Y, Ridge())


def test_theory_alone_needs_no_fits_and_extrapolates_with_a_warning():
    result = sv.predict(X, Y, Ridge(), over={"rows": [100, 5000]}, fits=0)
    assert result.gaussian is None
    assert len(result.fitted.mean) == 0
    assert any("beyond 3 times" in w for w in result.warnings)
    assert len(result.sentences()) == 1
    assert json.dumps(result.as_dict(), default=str)


def test_many_rows_are_sampled_for_the_theory(monkeypatch):
    monkeypatch.setattr(_predict_inputs, "MOST_CELLS", 30 * 1100)
    x, y = drawn(3000)
    result = sv.predict(x, y, Ridge(), over={"rows": [100, 200]}, fits=1)
    assert any("looks at 1100 of 3000 rows" in w for w in result.warnings)
    assert result.off < 0.15


def test_picture_has_a_line_and_points():
    result = sv.predict(X, Y, Ridge(), over={"penalty": [1.0, 10, 100, 1000]})
    labels = {t.get_text() for t in result.plot().axes[0].get_legend().get_texts()}
    assert "theory, Gaussian rows" in labels
    assert "best penalty of the theory" in labels
    assert any("fits of your pipeline" in label for label in labels)
    assert "Best penalty" in str(result)


def test_the_numbers_of_rows_below_the_plot_do_not_overlap():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    figure = sv.predict(x, x[:, 0] + rng.normal(size=300), over={"rows": [15, 40, 240]}).plot()
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in figure.axes[0].get_xticklabels(which="both") if t.get_text()]
    boxes = sorted((b.x0, b.x1) for b in boxes)
    assert len(boxes) >= 3
    assert all(left[1] < right[0] for left, right in zip(boxes[:-1], boxes[1:], strict=True))


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        (make_pipeline(SelectKBest(k=5), Ridge()), "'selectkbest' .SelectKBest. uses the targets"),
        (make_pipeline(StandardScaler(), RandomForestRegressor()), "no theory for the last step RandomForestRegressor"),
        (RidgeCV(), "chooses its own penalty"),
        (Ridge(positive=True), "positive"),
        (Ridge(alpha=-1.0), "alpha = -1.0 is not a positive number"),
        (LogisticRegression(class_weight="balanced"), "class_weight = 'balanced'"),
        (LogisticRegression(fit_intercept=False), "needs an intercept"),
        (LogisticRegression(), "500 different targets"),
        (make_pipeline(LinearRegression(), Ridge()), "'linearregression' .LinearRegression. has no theory"),
        ("forest", "no pipeline 'forest'"),
    ],
)
def test_steps_without_theory_are_refused_in_one_sentence(pipeline, says):
    with pytest.raises((InvalidValue, sv.UnknownName), match=says) as problem:
        sv.predict(X, Y, pipeline)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("x", "y", "options", "says"),
    [
        (X[:40], Y[:40], {}, "there are 40 rows"),
        (X, Y[:100], {}, "have the shapes"),
        (X, np.where(np.arange(500) == 3, np.nan, Y), {}, "row 4 has no finite target"),
        (X, np.ones(500), {"pipeline": "ridge"}, "nothing to predict"),
        (X, LABELS, {"pipeline": "ridge"}, "targets are words"),
        (X, np.arange(500) < 5, {}, "only 5 rows have the label True"),
        (np.ones((500, 2)), Y, {}, "every feature is constant"),
        (np.array([["a"] * 2] * 500), Y, {}, "must be numbers"),
        (X, Y, {"over": {"columns": [1]}}, "must be rows or penalty"),
        (X, Y, {"over": {"rows": [1]}}, "whole numbers in"),
        (X, Y, {"over": {"penalty": [-1.0]}}, "must be numbers in"),
        (X, Y, {"over": {"penalty": [1.0]}, "pipeline": LinearRegression()}, "no penalty to sweep"),
        (X, Y, {"penalty": -2.0}, "penalty = -2.0"),
        (X[:80], Y[:80], {"pipeline": "lasso"}, "three rows for each"),
    ],
)
def test_data_that_cannot_be_predicted_are_refused_in_one_sentence(x, y, options, says):
    with pytest.raises((InvalidValue, sv.UnknownName), match=says):
        sv.predict(x, y, **options)


def test_pipelines_are_read_as_the_theory_needs_them():
    found = read_pipeline(make_pipeline(StandardScaler(), LinearSVC(C=0.1, loss="hinge")))
    assert (found.loss, found.parameter, found.shrinks) == ("hinge", "linearsvc__C", True)
    assert found.penalty == pytest.approx(10.0)
    assert found.at(5.0).get_params()["linearsvc__C"] == pytest.approx(0.2)


def test_rows_of_a_mapped_file_are_those_in_memory_and_changes_to_a_private_map_are_kept(tmp_path):
    table = np.random.default_rng(0).normal(size=(5000, 3))
    np.save(tmp_path / "a.npy", table)
    rows = np.random.default_rng(1).permutation(5000)[:4500]
    for mode in ("r", "c"):
        mapped = np.load(tmp_path / "a.npy", mmap_mode=mode)
        if mode == "c":
            mapped[rows[0], 0] = table[rows[0], 0] = 7.0
        for view, whole in ((mapped, table), (mapped[:, :2], table[:, :2]), (mapped[1:, 1], table[1:, 1])):
            some = rows[rows < len(view)]
            np.testing.assert_array_equal(take(view, some), whole[some])
            give_back(view)
            np.testing.assert_array_equal(view, whole)
