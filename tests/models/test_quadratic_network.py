"""Quadratic networks: the flow by a second method, its long-time laws, and minima on both sides of the threshold."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import solvable as sv
from solvable.models.glassy.quadratic_network.figures import descend_plainly, recover
from solvable.models.glassy.quadratic_network.model import sample_threshold


def test_the_flow_is_that_of_the_whole_matrix():
    d, spectrum, scale, times = 5, np.array([0.4, 1.3]), 0.6, np.array([0.0, 0.2, 1.0, 8.0])
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    star = (frame[:, :2] * spectrum) @ frame[:, :2].T

    def drift(_, flat):
        a = flat.reshape(d, d)
        g = a - star + 0.5 * np.trace(a - star) * np.eye(d)
        return -(a @ g + g @ a).ravel()

    exact = solve_ivp(drift, (0, 8), scale * np.eye(d).ravel(), method="LSODA", t_eval=times, rtol=1e-11, atol=1e-13)
    away = exact.y.T.reshape(-1, d, d) - star
    loss = 0.5 * np.sum(away**2, axis=(1, 2)) + 0.25 * np.trace(away, axis1=1, axis2=2) ** 2
    model = sv.QuadraticNetwork(inputs=d, units=d, teachers=2, spectrum=spectrum, scale=scale, times=times)
    np.testing.assert_allclose(model.theory().test_loss, loss, rtol=1e-7)


def test_the_loss_on_fresh_inputs_is_a_mean_over_inputs():
    rng = np.random.default_rng(1)
    x, away = rng.normal(size=(200_000, 4)), np.diag([1.0, -0.5, 0.3, 0.2])
    seen = 0.25 * np.sum((x @ away) * x, axis=1) ** 2
    exact = 0.5 * np.sum(away**2) + 0.25 * np.trace(away) ** 2
    assert abs(seen.mean() - exact) < 4 * seen.std() / np.sqrt(len(seen))


@pytest.mark.parametrize(("inputs", "teachers"), [(10, 1), (10, 4), (20, 3)])
def test_the_loss_falls_as_one_over_the_square_of_time(inputs, teachers):
    model = sv.QuadraticNetwork(inputs=inputs, units=inputs, teachers=teachers, times=[0.0, 500.0, 1000.0])
    found = model.theory()
    constant = (inputs - teachers) * (teachers + 2) / (8 * (inputs + 2))
    assert float(found.decay) == pytest.approx(constant)
    half, full = np.asarray(found.test_loss)[1:] * np.array([500.0, 1000.0]) ** 2
    # the deviation falls as ln(t)/t: after extrapolation only ln(2)/t of it remains
    assert 2 * full - half == pytest.approx(constant, rel=1e-3)
    assert abs(full - constant) < 0.6 * abs(half - constant)
    assert float(found.null[-1]) * 1000 == pytest.approx((teachers + 2) / (2 * (inputs + 2)), rel=5e-3)


def test_a_teacher_of_full_rank_is_learnt_exponentially():
    model = sv.QuadraticNetwork(teachers=6, spectrum=np.linspace(0.2, 1.0, 6), times=[0.0, 15.0, 20.0])
    found = model.theory()
    slope = -np.log(found.test_loss[2] / found.test_loss[1]) / 5
    assert float(slope) == pytest.approx(float(found.rate), rel=1e-3)
    assert float(found.decay) == 0.0


def test_the_threshold_counts_free_parameters():
    """A matrix of rank m has dm − m(m−1)/2 free numbers; for rank one 2d − 1 samples fix it, for full rank all of them."""
    for d in (2, 8, 12):
        assert sample_threshold(d, 1) == 2 * d - 1
        assert sample_threshold(d, d) == sample_threshold(d, d - 1) == d * (d + 1) / 2


def test_minima_are_the_teacher_above_the_threshold_and_others_below():
    numbers = np.array([7, 22])  # the threshold is 11
    found = recover(6, 1, 6, numbers, 6)
    assert np.all(found["reached"][1] == 1)
    assert np.all(found["reached"][0] == 0)
    assert np.all(found["final_train"] < 1e-8)  # all samples are fitted on both sides
    assert np.median(found["final_loss"][0]) > 1e-2


def test_too_few_units_are_refused_for_the_flow_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="units = 3 is less than inputs = 6: learner = 'flow'"):
        sv.QuadraticNetwork(units=3)
    with pytest.raises(sv.InvalidValue, match="teachers = 7 exceeds inputs = 6"):
        sv.QuadraticNetwork(teachers=7)


def test_plain_descent_finds_the_teacher_above_the_threshold_and_misses_it_below():
    train, fresh = descend_plainly(4, 1, 4, np.array([3, 12]), 6, 60_000)
    assert train.shape == fresh.shape == (2, 6)
    assert np.median(train, axis=1).max() < 1e-3
    assert np.median(fresh[0]) > 0.02 > 1e-3 > np.median(fresh[1])
