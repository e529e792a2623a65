"""Predictions for ridge regression with more rows from a sample, against brute force and simulation."""

import numpy as np
import pytest

from solvable.methods.random_matrices.effective_ridge import (  # fmt: skip
    Shape,
    decompose,
    effective,
    leave_one_out,
    measured,
    plug_in,
    shapes,
)


def drawn(rows, columns, seed=0, noise=4.0):
    rng = np.random.default_rng(seed)
    spectrum = np.arange(1, columns + 1) ** -0.8
    beta = np.random.default_rng(99).normal(size=columns)
    x = rng.normal(size=(rows, columns)) * np.sqrt(spectrum)
    truth = Shape(spectrum, np.ones(columns), beta**2 * spectrum, noise)
    return x, x @ beta + np.sqrt(noise) * rng.normal(size=rows), beta, truth


def ridge(x, y, penalty):
    centre, mean = x.mean(axis=0), y.mean()
    w = np.linalg.solve((x - centre).T @ (x - centre) + penalty * np.eye(x.shape[1]), (x - centre).T @ (y - mean))
    return w, mean - centre @ w


@pytest.mark.parametrize(("rows", "columns"), [(30, 12), (20, 40)])
def test_leave_one_out_residuals_equal_those_of_refits(rows, columns):
    x, y, _, _ = drawn(rows, columns)
    sample = decompose(x, y)
    residuals, leverage = leave_one_out(sample, np.array([2.0, 0.3]) / sample.freedom)
    for k, penalty in enumerate((2.0, 0.3)):
        for i in range(rows):
            others = np.delete(np.arange(rows), i)
            w, b = ridge(x[others], y[others], penalty)
            assert residuals[i, k] == pytest.approx(y[i] - x[i] @ w - b, abs=1e-9)
    hat = np.linalg.solve(
        (x - x.mean(0)).T @ (x - x.mean(0)) + 2.0 * np.eye(columns), (x - x.mean(0)).T
    )  # the matrix that maps targets to predictions, less the intercept
    assert leverage[:, 0] == pytest.approx(np.diag((x - x.mean(0)) @ hat) + 1 / rows, abs=1e-9)


def test_negative_ridge_continues_leave_one_out_where_rows_can_be_interpolated():
    x, y, _, _ = drawn(20, 40)
    sample = decompose(x, y)
    around = np.array([-1e-6, 1e-6]) * sample.eigenvalues[0]
    residuals, _ = leave_one_out(sample, around)
    assert residuals[:, 0] == pytest.approx(residuals[:, 1], rel=1e-4)


def test_theory_with_a_known_spectrum_matches_ridge_fits_within_one_per_cent():
    rows, columns, penalty = 1500, 500, 20.0
    errors = []
    for seed in range(8):
        x, y, beta, truth = drawn(rows, columns, seed)
        w, b = ridge(x, y, penalty)
        errors.append((truth.omega * (w - beta) ** 2).sum() + b**2 + truth.noise)
    assert np.std(errors) / np.sqrt(len(errors)) < 0.005 * np.mean(errors)
    assert truth.error(np.array([rows]), penalty)[0] == pytest.approx(np.mean(errors), rel=0.01)


def test_effective_ridge_of_a_sample_is_that_of_its_population():
    x, y, _, truth = drawn(900, 400)
    sample = decompose(x, y)
    kappa, df1, df2 = effective(sample, np.array([0.01]))
    assert kappa[0] == pytest.approx(truth.kappa(np.array([900.0]), 0.01 * 899)[0], rel=0.01)
    for seen, exact in zip((df1, df2), truth.freedoms(kappa), strict=True):
        assert seen[0] == pytest.approx(exact[0], rel=0.02)


def test_estimates_from_a_sample_do_not_depend_on_its_number_of_rows():
    truth, seen = None, []
    for rows in (400, 1200):
        x, y, _, truth = drawn(rows, 300, seed=5)
        exact = measured(decompose(x, y))
        seen.append(np.interp(0.05, exact.kappa[::-1], exact.covariance[::-1]))
    c, _ = truth.aligned(np.array([0.05]))
    assert seen == pytest.approx([c[0], c[0]], rel=0.1)


def test_all_kappa_are_seen_with_many_rows_and_not_with_few():
    many, few = (measured(decompose(*drawn(rows, 60)[:2])) for rows in (200, 50))
    assert many.least == 0
    assert few.least > 0
    assert few.df2[-1] <= 0.85 * 49


def test_shapes_give_the_gain_of_a_gaussian_sample():
    x, y, _, truth = drawn(600, 200, seed=3)
    sample = decompose(x, y)
    ridges = np.geomspace(1e-4, 1.0, 30)
    best = ridges[np.argmin((leave_one_out(sample, ridges)[0] ** 2).mean(axis=0))]
    sizes, now, penalty = np.array([1800.0]), np.array([600.0]), best * 599
    right = np.log(truth.error(sizes, penalty) / truth.error(now, penalty))
    for shape in shapes(sample, measured(sample), best):
        assert np.log(shape.error(sizes, penalty) / shape.error(now, penalty)) == pytest.approx(right, abs=0.06)


def test_kappa_solves_its_equation_at_any_size_and_penalty():
    shape = plug_in(decompose(*drawn(80, 50)[:2]), 0.1)
    for rows in (20.0, 49.0, 80.0, 1e6):
        for penalty in (1e-6, 1.0, 1e6):
            kappa = shape.kappa(np.array([rows]), penalty)
            lam = kappa * (1 - shape.freedoms(kappa)[0] / (rows - 1))
            assert lam[0] == pytest.approx(penalty / (rows - 1), rel=1e-8)
