"""The replica channels of logistic regression with an intercept, against fits and against a slow second method."""

import numpy as np
import pytest
from scipy.special import expit, ndtri
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import SVC, LinearSVC

from solvable.methods.random_matrices.effective_ridge import Shape
from solvable.tools.logistic_replica import (  # fmt: skip
    CHANNELS,
    MARGIN_LOSSES,
    _iterated,
    _Problem,
    _ridge_state,
    _state,
    _updated,
    most_signal,
    proximal,
    solve_logistic,
    solve_margins,
)

COLUMNS = 200


def shape_of(channel, share, strength=0.8, seed=0):
    """A spectrum with a teacher of either kind, and a function that draws labelled rows from it."""
    rng = np.random.default_rng(seed)
    spectrum = np.linspace(0.2, 2.0, COLUMNS)
    direction = rng.normal(size=COLUMNS)
    if channel == "probit":
        teacher = direction * np.sqrt(strength / (direction**2 * spectrum).sum())

        def draw(n):
            x = rng.normal(size=(n, COLUMNS)) * np.sqrt(spectrum)
            field = x @ teacher + np.sqrt(1 - strength) * rng.normal(size=n)
            return x, np.where(field > ndtri(1 - share), 1, -1)

        return Shape(spectrum, np.ones(COLUMNS), most_signal(share, channel) * teacher**2 * spectrum, 0.0), draw
    mean = direction * 1.2 / np.sqrt(COLUMNS)
    total = np.diag(spectrum) + most_signal(share, channel) * np.outer(mean, mean)
    e, vectors = np.linalg.eigh(total)
    beta = vectors.T @ np.linalg.solve(total, most_signal(share, channel) * mean)

    def draw(n):
        y = np.where(rng.random(n) < share, 1, -1)
        return y[:, None] * mean + rng.normal(size=(n, COLUMNS)) * np.sqrt(spectrum), y

    return Shape(e, np.ones(COLUMNS), beta**2 * e, 0.0), draw


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_error_and_loss_match_fits_with_an_intercept(channel, share):
    shape, draw = shape_of(channel, share)
    rows, penalty = 400, 20.0
    result = solve_logistic(shape, share, np.array([rows]), np.array([penalty]), channel)
    seen = []
    for _ in range(8):
        x, y = draw(rows)
        fit = LogisticRegression(C=1 / penalty, tol=1e-6, max_iter=300).fit(x, y)
        x, y = draw(4000)
        margin = y * fit.decision_function(x)
        seen.append([np.mean(margin < 0), np.mean(np.log1p(np.exp(-margin)))])
    mean, error = np.mean(seen, axis=0), np.std(seen, axis=0, ddof=1) / np.sqrt(len(seen))
    assert result.converged.all()
    assert abs(result.error[0] - mean[0]) < 3.5 * error[0] + 0.002
    assert abs(result.loss[0] - mean[1]) < 3.5 * error[1] + 0.004


def test_proximal_point_is_stationary_over_many_orders_of_magnitude():
    target = np.array([-1e4, -30.0, -1.0, 0.0, 2.0, 40.0, 1e4])[:, None] * np.ones(13)
    response = np.logspace(-6, 6, 13)[None, :] * np.ones((7, 1))
    v = proximal(target, response)
    assert np.all(np.abs(v - target - response * expit(-v)) <= 1e-11 * (1 + response) + 1e-15 * np.abs(target))


@pytest.mark.parametrize("channel", CHANNELS)
def test_saddle_point_is_that_of_plain_damped_iteration(channel):
    shape, _ = shape_of(channel, 0.3)
    rows, penalty = np.array([300.0]), np.array([3.0])
    problem = _Problem(MARGIN_LOSSES["logistic"], shape, 0.3, channel, False)
    state, near = _state(np.ones(1), np.ones(1), np.full(1, 2.0), np.zeros(1), channel), None
    for _ in range(400):
        new, kappa, near = _updated(problem, state, near, rows, penalty)
        state = state + 0.5 * (new - state)
    found, quick, done = _iterated(problem, state + 0.3, rows, penalty)
    assert done.all()
    assert found[:, 0] == pytest.approx(state[:, 0], abs=1e-7)
    assert quick == pytest.approx(kappa, rel=1e-7)


@pytest.mark.parametrize("channel", CHANNELS)
def test_points_alone_and_together_agree(channel):
    shape, _ = shape_of(channel, 0.5)
    rows, penalty = np.array([100.0, 300.0, 900.0]), np.array([0.5, 5.0, 50.0])
    together = solve_logistic(shape, 0.5, rows, penalty, channel)
    for k in range(3):
        alone = solve_logistic(shape, 0.5, rows[k : k + 1], penalty[k : k + 1], channel)
        assert alone.error[0] == pytest.approx(together.error[k], abs=1e-8)


def test_infinite_penalty_guesses_the_larger_class():
    shape, _ = shape_of("clusters", 0.3)
    result = solve_logistic(shape, 0.3, np.array([500.0]), np.array([1e7]), "clusters")
    assert result.error[0] == pytest.approx(0.3, abs=1e-6)
    assert result.loss[0] == pytest.approx(-(0.3 * np.log(0.3) + 0.7 * np.log(0.7)), abs=1e-4)


def test_unconverged_points_are_nan_and_flagged(monkeypatch):
    from solvable.tools import logistic_replica

    monkeypatch.setattr(logistic_replica, "TURNS", 1)
    shape, _ = shape_of("probit", 0.5)
    result = solve_logistic(shape, 0.5, np.array([400.0]), np.array([0.01]), "probit")
    assert not result.converged[0]
    assert np.isnan([result.error[0], result.loss[0], result.kappa[0]]).all()


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "square"])
def test_other_losses_match_scikit_learns_classifiers(loss, channel):
    shape, draw = shape_of(channel, 0.3)
    rows, penalty = 200, 5.0
    shrinks = loss == "squared_hinge"  # LinearSVC's penalty includes the intercept
    result = solve_margins(shape, 0.3, np.array([rows]), np.array([penalty]), channel, loss, shrinks)
    learner = {
        "hinge": lambda: SVC(kernel="linear", C=1 / penalty),
        "squared_hinge": lambda: LinearSVC(C=1 / penalty, max_iter=20_000),
        "square": lambda: RidgeClassifier(alpha=penalty),
    }[loss]
    x, y = draw(4000)
    wrong = [np.mean(learner().fit(*draw(rows)).predict(x) != y) for _ in range(12)]
    assert result.converged.all()
    assert abs(result.error[0] - np.mean(wrong)) < 3.5 * np.std(wrong) / np.sqrt(12) + 0.008


def test_square_loss_is_solved_in_closed_form():
    for channel in CHANNELS:
        shape, _ = shape_of(channel, 0.3)
        rows, penalty = np.array([100.0, 400.0]), np.array([0.1, 30.0])
        problem = _Problem(MARGIN_LOSSES["square"], shape, 0.3, channel, False)
        state = _ridge_state(shape, 0.3, rows, penalty, channel)
        again, _, _ = _updated(problem, state, None, rows, penalty)
        assert again == pytest.approx(state, rel=1e-8, abs=1e-8)
