"""Rows of random scale: the theory's error against fits, its measurement on a sample, its limit of one scale."""

import numpy as np
import pytest

from solvable.methods.random_matrices.effective_ridge import Shape, decompose, leave_one_out
from solvable.methods.random_matrices.elliptical import EllipticalShape, Law, law, measured_elliptical, response, scales

SHAPE = Shape(np.array([0.2, 1.0, 3.0]), np.array([30.0, 40.0, 5.0]), np.array([0.2, 0.5, 0.4]), 0.6)


def test_rows_of_one_scale_have_the_error_of_gaussian_rows():
    one = Law(np.ones(1), np.array([2.5]), np.ones(1))
    rows = np.array([60.0, 100, 400])
    for penalty in (0.3, 20.0):
        found = EllipticalShape(SHAPE, one, 100, penalty)
        assert found.error(rows, penalty) == pytest.approx(SHAPE.error(rows, penalty), rel=1e-9)
        assert found.fixed_point(rows, np.full(3, penalty))[0] == pytest.approx(SHAPE.kappa(rows, penalty), rel=1e-9)


def test_error_on_students_rows_is_that_of_fits():
    """Population known, noise that grows with the scale of a row; the residuals at 150 rows come from fits of their own."""
    rng = np.random.default_rng(0)
    d, penalty, base = 60, 20.0, 150
    omega = np.arange(1, d + 1.0) ** -0.5
    teacher = rng.normal(size=d) / np.sqrt(omega.sum())
    tails = 5.0

    def draw(number):
        t = (tails - 2) / rng.chisquare(tails, size=number)
        x = np.sqrt(t)[:, None] * rng.normal(size=(number, d)) * np.sqrt(omega)
        return t, x, x @ teacher + np.sqrt(0.3 * t) * rng.normal(size=number)

    def excess(rows, repeats=60):
        found = []
        for _ in range(repeats):
            _, x, y = draw(rows)
            w = np.linalg.solve(x.T @ x + penalty * np.eye(d), x.T @ y) - teacher
            found.append((w**2 * omega).sum())
        return np.mean(found), np.std(found) / np.sqrt(repeats)

    now, _ = excess(base)
    t = (tails - 2) / np.random.default_rng(1).chisquare(tails, size=4000)
    t /= t.mean()
    shape = Shape(omega, np.ones(d), teacher**2 * omega, 0.3)
    found = EllipticalShape(shape, Law(t, t * (0.3 + now), np.full(4000, 1 / 4000)), base, penalty)
    for rows in (75, 450):
        truth, error = excess(rows)
        assert found.error(np.array([rows]), penalty)[0] / (1 + 1 / rows) == pytest.approx(
            0.3 + truth, abs=4 * error + 0.01
        )


def test_a_sample_shows_its_own_scales_and_residuals():
    rng = np.random.default_rng(0)
    t = rng.choice([0.25, 1.75], size=300)
    x = np.sqrt(t)[:, None] * rng.normal(size=(300, 80))
    sample = decompose(x, x[:, 0] + rng.normal(size=300))
    found = scales(sample, 0.1)
    assert found[t < 1].mean() == pytest.approx(0.25, abs=0.05)
    assert np.corrcoef(found, t)[0, 1] > 0.93  # 80 columns know a scale to √(2/80) = 16 %
    calm = scales(decompose(rng.normal(size=(300, 80)), rng.normal(size=300)), 0.1)
    assert calm.std() < 0.1
    grouped = law(sample, found, 0.1)
    residuals, _ = leave_one_out(sample, np.array([0.1]))
    assert len(grouped.scales) == 200
    assert grouped.mean(grouped.scales) == pytest.approx(1.0)
    assert grouped.mean(grouped.squares) == pytest.approx((residuals**2).mean())


def test_measured_functions_of_elliptical_rows_are_those_of_the_population():
    """df1 and df2 at κ, for Σ = 1, on rows whose leverages are very uneven."""
    rng = np.random.default_rng(2)
    t = np.exp(rng.normal(size=900))
    t /= t.mean()
    x = np.sqrt(t)[:, None] * rng.normal(size=(900, 300))
    known = measured_elliptical(decompose(x, rng.normal(size=900)), t)
    share = 1 / (1 + known.kappa)
    inside = known.df1 > 20
    assert known.df1[inside] == pytest.approx(300 * share[inside], rel=0.03)
    assert known.df2[inside] == pytest.approx(300 * share[inside] ** 2, rel=0.06)


def test_response_solves_its_equation_at_extreme_shares():
    t = np.array([1e-3, 1.0, 50.0])
    of = Law(t, np.ones(3), np.full(3, 1 / 3))
    share = np.array([1e-8, 0.5, 1 - 1e-7])
    odds = response(of, share)[:, None] * t
    assert (odds / (1 + odds)).mean(axis=1) == pytest.approx(share, rel=1e-8)
