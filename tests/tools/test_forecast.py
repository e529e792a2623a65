"""Forecasts of learning curves: their accuracy, refusals, and warnings."""

import json
import warnings

import numpy as np
import pytest

import solvable.tools
from solvable.errors import InvalidValue
from solvable.tools._forecast_curve import held_out_error, power_law
from solvable.tools._forecast_logistic import approximate_leave_one_out
from solvable.tools._forecast_ridge import HEAVY, Ingredients, combine, forecast_ridge, halves, less_a_tenth, transport
from solvable.tools.forecast import forecast


def drawn(rows, columns, seed=0, decay=1.0, noise=1.0, tails=0.0):
    """Rows of a power-law spectrum with a linear teacher; the teacher depends on the columns only."""
    rng = np.random.default_rng(seed)
    spectrum = np.arange(1, columns + 1) ** -decay
    x = rng.normal(size=(rows, columns)) * np.sqrt(spectrum / spectrum.sum())
    if tails:
        x *= np.sqrt((tails - 2) / rng.chisquare(tails, size=rows))[:, None]
    teacher = np.random.default_rng(columns).normal(size=columns)
    teacher /= np.sqrt((teacher**2 * spectrum).sum() / spectrum.sum())
    return x, x @ teacher + np.sqrt(noise) * rng.normal(size=rows)


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return forecast(*args, **options)


def digits():
    """Parity of digits, columns at unit variance."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = data.data[:, data.data.std(axis=0) > 0]
    return (x - x.mean(axis=0)) / x.std(axis=0), np.where(data.target % 2 == 0, 1.0, -1.0)


def test_ridge_gain_on_real_digits_is_forecast_better_than_by_a_power_law():
    x, y = digits()
    rng = np.random.default_rng(0)
    orders, sizes, penalty = [rng.permutation(len(y)) for _ in range(20)], np.array([675, 900, 1350]), np.array([30.0])
    fits = lambda o, n: held_out_error(x, y, o[:n], o[1350:], "square", penalty)[0]  # noqa: E731
    truth = np.log(np.mean([[fits(o, n) for n in (450, *sizes)] for o in orders], axis=0))
    ours, laws = [], []
    for order in orders[:4]:
        result = quiet(x[order[:450]], y[order[:450]], penalty=30.0, standardise=False, constant="drop", bands=False)
        law = power_law(
            np.r_[result.curve["rows"], 450],
            np.r_[result.curve["measured"], result.now],
            np.sqrt(np.r_[450 - result.curve["rows"], 450]),
        )
        ours.append(np.abs(np.log(result.gain) - (truth[1:] - truth[0])))
        laws.append(np.abs(np.log(result.power_law / law(np.array([450]))) - (truth[1:] - truth[0])))
    assert np.all(np.mean(ours, axis=0) < [0.02, 0.03, 0.04])
    assert np.all(np.mean(ours, axis=0) < 0.6 * np.mean(laws, axis=0))


def test_bands_of_gaussian_rows_cover_the_truth():
    inside_level, inside_gain, rng = [], [], np.random.default_rng(0)
    x, y = drawn(20_000, 60, seed=7)
    sizes, penalty = np.array([180, 240, 360]), 0.5
    fits = [[held_out_error(x, y, np.arange(k, k + n), np.arange(10_000, 20_000), "square", np.array([penalty]))[0]
             for n in (120, *sizes)] for k in range(0, 8000, 400)]  # fmt: skip
    truth = np.log(np.mean(fits, axis=0))
    for k in range(0, 8000, 400):
        part, labels = x[k : k + 120], y[k : k + 120]
        tenths = [transport(part[r], labels[r]) for r in less_a_tenth(120, rng)]
        half = halves(part, labels, np.array([penalty]), rng)[0]
        result = forecast_ridge(transport(part, labels), tenths, sizes, penalty, half)
        inside_level.append(np.abs(result.level - truth[1:]) <= result.level_width)
        inside_gain.append(np.abs(result.gain - (truth[1:] - truth[0])) <= result.gain_width)
    assert 0.8 <= np.mean(inside_level) <= 1.0
    assert np.mean(inside_gain) >= 0.85


def test_logistic_error_of_a_gaussian_teacher_is_forecast():
    x, y = drawn(12_000, 60, seed=3, noise=0.2)
    y, errors = np.sign(y), []
    truth = np.mean([held_out_error(x, y, np.arange(k, k + 600), np.arange(8000, 12_000), "logistic", np.array([0.3]))
                     for k in range(0, 7000, 600)])  # fmt: skip
    for k in range(0, 1600, 400):
        result = quiet(
            x[k : k + 200], y[k : k + 200], "logistic", at=[600], penalty=0.3, standardise=False, curve=False
        )
        errors.append(result.level[0] - truth)
        assert result.level_band[0, 0] < result.level[0] < result.level_band[0, 1]
        assert result.gain_band[0, 0] < result.gain[0] < result.gain_band[0, 1]
        assert result.gain[0] < 0
    assert np.mean(np.abs(errors)) < 0.022


def test_heavy_tailed_rows_are_flagged_and_gaussian_ones_are_not():
    flags = {}
    for tails in (0.0, 4.0):
        flags[tails] = [transport(*drawn(150, d, seed, tails=tails)) for seed in range(8) for d in (40, 100, 300)]
    assert all(t.unevenness(t.best) < HEAVY for t in flags[0.0])
    assert all(t.unevenness(t.best) > HEAVY for t in flags[4.0])
    result = quiet(*drawn(150, 40, tails=4.0), curve=False)
    assert any("heavy-tailed" in note for note in result.warnings)
    calm = quiet(*drawn(150, 40), curve=False)
    assert not any("heavy-tailed" in note for note in calm.warnings)
    widths = [np.diff(np.log(t.gain_band[-1]))[0] for t in (result, calm)]
    assert widths[0] > widths[1]


def test_gain_on_students_rows_is_that_of_rows_of_random_scale():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(14_000, 60)) * np.sqrt(2 / rng.chisquare(4, size=14_000))[:, None]
    y = x @ rng.normal(size=60) / np.sqrt(60) + np.sqrt(0.1) * rng.normal(size=14_000)
    test, penalty, sizes = np.arange(8000, 14_000), np.array([1.0]), np.array([225, 300, 450])
    fits = lambda k, n: held_out_error(x, y, np.arange(k, k + n), test, "square", penalty)[0]  # noqa: E731
    truth = np.log(np.mean([[fits(k, n) for n in (150, *sizes)] for k in range(0, 7500, 250)], axis=0))
    found = [transport(x[k : k + 150], y[k : k + 150]).both_log_gains(sizes, 1.0) for k in range(0, 7500, 500)]
    plain, scaled = np.mean([np.median(g, axis=1) for g in found], axis=0) - (truth[1:] - truth[0])
    assert np.all(plain > [0.04, 0.08, 0.1])  # one scale for all rows is too pessimistic
    assert np.all(np.abs(scaled) < 0.5 * plain)


def test_halves_decide_between_the_theories_and_widen_the_band():
    gains, small = np.array([[-0.1, -0.2], [-0.2, -0.4]]), np.full((2, 2), 0.005)
    factors = np.array([1.5, 3.0])

    def by(measured, error, unseen=0.02):
        return combine(Ingredients(gains, small, small, np.array([measured, error, -0.15, -0.3]), unseen, factors))

    first, second, unsure = by(-0.15, 0.02), by(-0.3, 0.02), by(-0.3, 0.2)
    assert first[0] == pytest.approx(gains[0], abs=1e-3)
    assert second[0] == pytest.approx(gains[1], abs=1e-3)
    assert np.all(unsure[1] > second[1])
    assert first[4].all()
    failed = by(-0.9, 0.05)
    assert not failed[4].any()
    assert np.all(failed[1] > second[1])
    undecided = by(-0.9, 0.9)  # halves that know nothing: the band has what they leave open, and no point stands in it
    assert not undecided[4].any()
    assert np.all(undecided[1] > failed[1])
    larger = by(-0.15, 0.02, unseen=0.6)  # most of the rows' size is in rows that were not seen
    assert larger[4].tolist() == [True, False]
    assert np.all(larger[1] > 1.5 * first[1])
    one = np.array([[-0.1, -0.2], [np.nan, np.nan]])
    lost = combine(Ingredients(one, small, small, np.array([-0.15, 0.02, -0.15, np.nan]), 0.02, factors))
    assert lost[2].tolist() == [1.0, 0.0]
    assert lost[0] == pytest.approx(gains[0])


def test_a_theory_that_expects_no_gain_keeps_the_miss_on_halves_in_its_band():
    flat, small = np.full((2, 3), -0.01), np.full((2, 3), 0.005)
    found = combine(
        Ingredients(flat, small, small, np.array([-0.25, 0.05, -0.1, -0.1]), 0.02, np.array([1.5, 2.0, 3.0]))
    )
    assert np.all(found[1] >= 0.15 * (1 - 1 / np.array([1.5, 2.0, 3.0])))  # a curve that falls as 1/n


def test_the_error_of_the_gain_of_halves_counts_the_rows_that_train():
    """The gain of halves over independent samples fluctuates by what one sample says of it: Gaussian rows and heavy ones."""
    for tails in (None, 3):
        rng, seen = np.random.default_rng(1), []
        for _ in range(24):
            scale = 1.0 if tails is None else np.sqrt(tails / rng.chisquare(tails, size=(100, 1)))
            x = scale * rng.normal(size=(100, 20))
            y = x[:, 0] + x[:, 1] ** 2 / 3 + rng.normal(size=100)
            seen.append(halves(x, y, np.array([5.0]), rng)[0, :2])
        gains, errors = np.array(seen).T
        assert 0.6 < np.sqrt(np.mean(errors**2)) / gains.std() < 1.8


def test_rows_beyond_those_seen_count_on_products_of_heavy_tailed_columns_only():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 5))
    i, j = np.triu_indices(5)
    y = rng.normal(size=200)
    products = lambda z: np.concatenate([z, z[:, i] * z[:, j]], axis=1)  # noqa: E731
    spread = lambda x: x / x.std(axis=0)  # noqa: E731
    assert transport(spread(products(z)), y).unseen(5.0) < 0.15
    assert transport(spread(products(np.exp(z))), y).unseen(5.0) > 0.3


def test_no_point_is_forecast_where_the_backtest_fails():
    """Every row has a near twin: leave-one-out sees it, most fits to half of the rows do not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 40))
    y = np.tile(x[:, 0] + rng.normal(size=60), 2)
    result = quiet(np.concatenate([x, x + 0.01 * rng.normal(size=x.shape)]), y, penalty=1.0, curve=False)
    assert result.diagnostics["trusted"] == [False, False, False]
    assert np.isnan(result.gain).all()
    assert np.isnan(result.level).all()
    assert np.isfinite(result.gain_band).all()
    assert any("only bands are given" in note for note in result.warnings)
    assert "none" in str(result)
    assert result.plot().axes


def test_no_change_of_the_error_rate_is_forecast_where_the_backtest_fails():
    """The same rows with labels of a noisy linear teacher: twins in training make the halves much worse than all rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 40))
    y = np.tile(np.where(x[:, 0] + rng.normal(size=100) > 0, 1.0, -1.0), 2)
    result = quiet(np.concatenate([x, x + 0.01 * rng.normal(size=x.shape)]), y, "logistic", penalty=0.01, curve=False)
    assert not any(result.diagnostics["trusted"])
    assert np.isnan(result.gain).all()
    assert np.isnan(result.level).all()
    assert np.isnan(result.log_loss).all()
    assert any("only bands are given" in note for note in result.warnings)
    assert "none" in str(result)
    x, y = drawn(200, 40, noise=0.2)
    calm = quiet(x, np.sign(y), "logistic", curve=False)
    assert all(calm.diagnostics["trusted"])
    assert np.isfinite(calm.gain).all()
    assert abs(calm.diagnostics["backtest"]) < 0.05
    assert "points of 100" in str(calm)
    blind = quiet(x, np.sign(y), "logistic", curve=False, bands=False)
    assert np.all(np.diff(calm.gain_band) > np.diff(blind.gain_band) - 1e-12)
    assert "backtest" not in blind.diagnostics


def test_target_out_of_reach_has_no_band():
    x, y = drawn(80, 300, noise=0.1)
    result = quiet(x, y, penalty=1e-4, at=[100, 240], curve=False)
    assert result.reached.tolist() == [True, False]
    assert np.isfinite(result.level_band[0]).all()
    assert np.isnan(result.level_band[1]).all()
    assert np.isnan(result.gain_band[1]).all()
    assert any("out of reach" in note for note in result.warnings)
    assert "(no band)" in str(result)
    assert json.loads(json.dumps(result.as_dict(), default=str))["forecast"][1]["reached"] is False


def test_labels_too_predictable_for_a_gaussian_teacher_are_flagged():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    x = rng.normal(size=(200, 20)) + y[:, None] * 0.6
    result = quiet(x, y, "logistic", curve=False)
    assert result.diagnostics["channel"] == "clusters"
    assert result.diagnostics["saturation"] > 1.15
    assert any("more predictable than any Gaussian teacher" in note for note in result.warnings)


def test_level_is_leave_one_out_times_gain_and_the_penalty_is_scikit_learns_alpha():
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import LeaveOneOut, cross_val_predict

    x, y = drawn(60, 8)
    result = quiet(x, y, penalty=0.7, standardise=False, bands=False, curve=False)
    guess = cross_val_predict(Ridge(alpha=0.7), x, y, cv=LeaveOneOut())
    assert result.now == pytest.approx(np.mean((y - guess) ** 2), rel=1e-9)
    assert result.level == pytest.approx(result.now * result.gain, rel=1e-12)


def test_approximate_leave_one_out_of_logistic_regression_equals_refits():
    from sklearn.linear_model import LogisticRegression

    x, y = drawn(60, 8)
    y = np.sign(y)
    result = approximate_leave_one_out(transport(x, y).sample, y, np.array([0.5])).margins[0]
    for i in range(0, 60, 6):
        others = np.delete(np.arange(60), i)
        fit = LogisticRegression(C=2.0, tol=1e-9, max_iter=500).fit(x[others], y[others])
        assert result[i] == pytest.approx(y[i] * fit.decision_function(x[i : i + 1])[0], abs=0.05)


def test_same_rows_and_seed_give_the_same_forecast_and_scale_of_columns_does_not_matter():
    x, y = drawn(60, 8)
    first, again, scaled = quiet(x, y), quiet(x, y), quiet(x * 10.0 ** np.arange(-4, 4), y)
    assert np.array_equal(first.level_band, again.level_band)
    assert first.power_law == pytest.approx(again.power_law)
    assert scaled.gain == pytest.approx(first.gain, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_errors_are_reported_in_the_units_of_the_targets(scale):
    x, y = drawn(60, 8)
    plain, scaled = quiet(x, y), quiet(x, scale * y)
    assert scaled.gain == pytest.approx(plain.gain, rel=1e-6)
    assert scaled.level_band / scale**2 == pytest.approx(plain.level_band, rel=1e-6)
    assert scaled.power_law / scale**2 == pytest.approx(plain.power_law, rel=1e-6)
    assert scaled.curve["measured"] / scale**2 == pytest.approx(plain.curve["measured"], rel=1e-6)


def test_repeated_rows_and_targets_beyond_the_measured_range_are_reported():
    x, y = drawn(60, 8)
    with pytest.warns(UserWarning, match="5 rows repeat others"):
        forecast(np.concatenate([x, x[:5]]), np.concatenate([y, y[:5]]), curve=False, bands=False)
    with pytest.warns(UserWarning, match="never measured"):
        forecast(x, y, at=[1000], curve=False, bands=False)


def test_words_may_be_labels_and_the_package_offers_the_function():
    x, y = drawn(80, 8)
    words = np.where(y > 0, "yes", "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = solvable.tools.forecast(x, words, loss="logistic", at=[160])
    assert result.observable == "test error"
    assert 0 < result.level[0] < 0.5
    assert result.log_loss[0] > 0


def test_picture_shows_subsets_forecast_and_power_law():
    result = quiet(*drawn(80, 8))
    axes = result.plot().axes[0]
    labels = {text.get_text() for text in axes.get_legend().get_texts()}
    assert {"forecast", "measured on subsets", "power law through the subsets", "90 % band of the level"} <= labels
    assert axes.get_xscale() == "log"


def test_power_law_fit_finds_a_power_law():
    rows = np.array([20.0, 40, 80, 160])
    assert power_law(rows, 2 + 30 * rows**-0.7)(np.array([640.0]))[0] == pytest.approx(2 + 30 * 640**-0.7, rel=1e-3)


X, Y = drawn(60, 5)
WITH_NAN = np.where(np.arange(300).reshape(60, 5) == 7, np.nan, X)


@pytest.mark.parametrize(
    ("x", "y", "options", "says"),
    [
        (WITH_NAN, Y, {}, "row 2 has no finite value in the column 'column3'"),
        (np.concatenate([X, np.ones((60, 2))], axis=1), Y, {}, "2 columns have the same value"),
        (X[:20], Y[:20], {}, "there are 20 rows, but a forecast needs at least 40"),
        (X, Y[:50], {}, "have the shapes"),
        (X[:, 0], Y, {}, "have the shapes"),
        (X, np.full(60, 3.0), {}, "all targets are 3"),
        (X, np.full(60, "a"), {"loss": "logistic"}, "only one class"),
        (X, np.arange(60), {"loss": "logistic"}, "60 different labels"),
        (X, np.arange(60) < 3, {"loss": "logistic"}, "only 3 rows have the label"),
        (X, np.full(60, "a"), {}, "the targets are words"),
        (X, np.where(np.arange(60) == 4, np.inf, Y), {}, "row 5 has no finite target"),
        (X, Y, {"loss": "hinge"}, "loss = 'hinge' is neither"),
        (X, Y, {"penalty": -1.0}, "penalty = -1.0 is not a number in"),
        (X, Y, {"penalty": float("nan")}, "penalty = nan"),
        (X, Y, {"at": [30]}, "there are 60 rows already"),
        (X, Y, {"at": []}, "must be whole numbers"),
        (X, Y, {"at": ["many"]}, "must be whole numbers"),
        ([["a", "b"]] * 60, Y, {}, "X must contain only numbers"),
        (np.ones((60, 3)), Y, {"constant": "drop"}, "nothing to learn from"),
    ],
)
def test_data_that_cannot_be_forecast_are_refused_in_one_sentence(x, y, options, says):
    with pytest.raises(InvalidValue) as problem:
        forecast(x, y, **options)
    assert says in str(problem.value)
    assert "\n" not in str(problem.value)


def test_the_level_on_heavy_tailed_rows_is_that_of_leave_one_out_where_the_theory_misses_it():
    rng = np.random.default_rng(1)
    size = np.exp(rng.normal(size=400))
    x = np.stack([size * np.exp(0.3 * rng.normal(size=400)), size * rng.random(400), rng.random(400)], axis=1)
    y = np.where(3 * x[:, 0] + 0.5 * x[:, 1] + 0.3 * size * rng.normal(size=400) > 6, 1.0, -1.0)
    result = quiet(x, y, loss="logistic", curve=False)
    left = result.diagnostics["leave_one_out"]
    assert result.diagnostics["leverage_ratio"] > 3
    assert abs(result.now - left) < 0.3 * left
    assert result.now_band[0] <= left <= result.now_band[1]
