"""The lasso on rows of any covariance, from a least-squares fit: against scikit-learn's fits."""

import numpy as np
import pytest

from solvable.methods.random_matrices.lasso import LeastSquares, lasso_error


@pytest.mark.parametrize("mixing", [1.0, 0.5])
def test_error_is_that_of_fits_although_the_weights_are_unknown(mixing):
    from sklearn.linear_model import ElasticNet

    rng = np.random.default_rng(0)
    p = 50
    root = np.linalg.qr(rng.normal(size=(p, p)))[0] * np.arange(1, p + 1) ** -0.3
    teacher = np.where(np.arange(p) < 6, rng.normal(size=p), 0.0)

    def draw(rows):
        x = rng.normal(size=(rows, p)) @ root.T
        return x, x @ teacher + 0.6 * rng.normal(size=rows)

    fit = LeastSquares.of(*draw(800))
    assert fit.noise == pytest.approx(0.36, rel=0.1)
    rows, penalty = np.array([40.0, 80.0, 200.0]), np.array([0.03, 0.03, 0.01])
    theory = lasso_error(fit, rows, penalty, mixing)
    for n, alpha, expected in zip(rows, penalty, theory, strict=True):
        errors = []
        for _ in range(12):
            model = ElasticNet(alpha=alpha, l1_ratio=mixing, max_iter=20_000).fit(*draw(int(n)))
            errors.append((((model.coef_ - teacher) @ root) ** 2).sum() + model.intercept_**2 + 0.36)
        noise = np.std(errors) / np.sqrt(12)
        assert expected == pytest.approx(np.mean(errors), abs=4 * noise + 0.06 * np.mean(errors))


def test_a_penalty_that_removes_all_weights_leaves_the_variance_of_the_targets():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 10))
    fit = LeastSquares.of(x, x[:, 0] + rng.normal(size=3000))
    assert lasso_error(fit, np.array([1000.0]), np.array([50.0]))[0] == pytest.approx(2.0, rel=0.1)


def test_as_many_rows_as_the_fit_itself_has_are_out_of_reach():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 30))
    fit = LeastSquares.of(x, x[:, 0] + rng.normal(size=120))
    assert np.isnan(lasso_error(fit, np.array([10_000.0]), np.array([0.001]))[0])
