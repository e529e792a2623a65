"""Chains of models: exact limits, second methods, and simulated chains."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

import solvable as sv
from solvable.model import simulate_batch


def law_of_counts(n, share, m, generations, real=None):
    """The law of a category's count, generation by generation, with SciPy's binomials; `real` samples are always fresh."""
    law, k = binom.pmf(np.arange(n + 1), n, share), np.arange(n + 1)
    rows = []
    for _ in range(generations):
        rows.append(law)
        new = np.zeros(n + 1)
        for count, weight in enumerate(law):
            if real is None:
                new += weight * binom.pmf(k, n, (1 - m) * count / n + m * share)
            else:
                old, fresh = binom.pmf(k, n - real, count / n), binom.pmf(k, real, share)
                new += weight * np.convolve(old, fresh)[: n + 1]
        law = new
    return np.array(rows)


@pytest.mark.parametrize(("fields", "real"), [({"data": "replace"}, None), ({"fresh": 0.2}, None),
                                              ({"fresh": 0.23, "fresh_rows": "fixed"}, 2)])  # fmt: skip
def test_lost_categories_and_variances_are_those_of_the_law_of_counts(fields, real):
    outcome = sv.ModelCollapse(samples=9, generations=5, shares=[0.1, 0.4], **fields).theory()
    for i, share in enumerate((0.1, 0.4)):
        law = law_of_counts(9, share, fields.get("fresh", 0.0), 5, real)
        np.testing.assert_allclose(outcome.lost[i], law[:, 0], rtol=1e-12)
        np.testing.assert_allclose(
            outcome.frequency_variance[i], law @ (np.arange(10) / 9 - share) ** 2, rtol=1e-11, err_msg=str(share)
        )


def test_a_category_is_lost_in_the_end_with_probability_one_minus_its_share():
    outcome = sv.ModelCollapse(data="replace", samples=10, generations=400, shares=[0.1, 0.6]).theory()
    np.testing.assert_allclose(outcome.lost[:, -1], [0.9, 0.4], atol=1e-12)


@pytest.mark.parametrize(
    "fields", [{}, {"chain": "gaussian", "directions": 3}, {"chain": "regression", "directions": 3}]
)
def test_no_fresh_data_is_replacement_and_only_fresh_data_is_no_chain(fields):
    for rows in ("random", "fixed"):
        none, only = (sv.ModelCollapse(generations=5, fresh=m, fresh_rows=rows, **fields).theory() for m in (0.0, 1.0))
        replaced = sv.ModelCollapse(generations=5, data="replace", **fields).theory()
        for name in none:
            np.testing.assert_allclose(none[name], replaced[name], rtol=1e-12, err_msg=name)
            first = np.repeat(np.asarray(replaced[name])[:, :1], 5, axis=1)
            np.testing.assert_allclose(only[name], first, rtol=1e-11, err_msg=name)


def test_accumulated_chains_approach_the_products_of_euler():
    """Π(1 - 1/(ni²)) = sin(x)/x with x = π/√n, and Π(1 + 2/(ni²)) = sinh(y)/y with y = π√(2/n)."""
    n, last = 20, 1000
    x, y, tail = math.pi / math.sqrt(n), math.pi * math.sqrt(2 / n), 1 / (n * (last + 0.5))
    counted = sv.ModelCollapse(data="accumulate", samples=n, generations=last, shares=[0.3]).theory()
    left = 1 - np.asarray(counted.frequency_variance)[0, -1] / 0.21
    assert left * math.exp(-tail) == pytest.approx(math.sin(x) / x, rel=1e-7)
    normal = sv.ModelCollapse(
        chain="gaussian", data="accumulate", samples=n, generations=last, directions=1, shares=[1.0]
    ).theory()
    square = 1 + np.asarray(normal.covariance_error)[0, -1]
    assert square * math.exp(2 * tail) == pytest.approx(math.sinh(y) / y, rel=1e-7)


def test_the_volume_of_a_covariance_vanishes_while_its_mean_stays():
    outcome = sv.ModelCollapse(
        chain="gaussian", data="replace", samples=20_000, directions=4, shares=[1.0], generations=7
    ).theory()
    np.testing.assert_allclose(outcome.log_volume[0], -np.arange(1, 8) * 4 * 5 / 40_000, rtol=1e-3)
    np.testing.assert_allclose(outcome.mean_variance, 1.0, rtol=1e-12)
    cold = sv.ModelCollapse(chain="gaussian", data="replace", generations=3, temperature=0.9).theory()
    np.testing.assert_allclose(cold.mean_variance, [[1.0, 0.9, 0.81]] * 2, rtol=1e-12)


def test_second_moments_of_one_direction_obey_their_scalar_recursion():
    """E s'² = a²(1 + 2/(an)) E s² + 2am E s + m²(1 + 2/(mn)), with exactly mn fresh samples."""
    n, m, square = 40, 0.25, 1 + 2 / 40
    outcome = sv.ModelCollapse(
        chain="gaussian", directions=1, samples=n, shares=[1.0], fresh=m, fresh_rows="fixed", generations=15
    ).theory()
    for k in range(15):
        assert float(outcome.covariance_error[0, k]) == pytest.approx(square - 1, rel=1e-12)
        square = 0.75**2 * (1 + 2 / 30) * square + 2 * 0.75 * 0.25 + 0.25**2 * (1 + 2 / 10)


@pytest.mark.parametrize("d", [1, 4])
def test_inherited_error_is_that_of_drawn_regressions(d):
    """ρ = <tr H_s H⁻² H_s>/d by drawing inputs, for a fixed number of fresh rows and for a random one."""
    rng, n, runs = np.random.default_rng(3), 12, 40_000
    x = rng.normal(size=(runs, n, d))
    for rows in ("fixed", "random"):
        synthetic = (np.arange(n) >= 3)[None, :] if rows == "fixed" else rng.random((runs, n)) >= 0.25
        part = np.einsum("rni,rn,rnj->rij", x, np.broadcast_to(synthetic, (runs, n)).astype(float), x)
        carried = np.linalg.solve(np.einsum("rni,rnj->rij", x, x), part)
        drawn = (carried**2).sum(axis=(1, 2)) / d
        model = sv.ModelCollapse(
            chain="regression", directions=d, samples=n, shares=[1.0], fresh=0.25, fresh_rows=rows, generations=2
        )
        loss = np.asarray(model.theory().excess_loss)[0]
        kept = (loss[1] - loss[0]) / loss[0]
        assert kept == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(runs))


def test_small_groups_pay_more_than_in_proportion_to_their_data():
    fields = {"chain": "regression", "samples": 200, "shares": [0.1, 0.9], "generations": 3}
    loss = np.asarray(sv.ModelCollapse(data="replace", **fields).theory().excess_loss)
    np.testing.assert_allclose(loss[0] / loss[1], (180 - 11) / (20 - 11), rtol=1e-12)
    assert loss[0, 0] / loss[1, 0] > 180 / 20


def test_accumulated_regressions_stay_below_pi_squared_over_six_of_the_first():
    fields = {"chain": "regression", "directions": 20, "samples": 60, "shares": [1.0], "generations": 1000}
    same, own = (
        sv.ModelCollapse(data=f"accumulate{how}", **fields).theory().excess_loss[0] for how in ("-same-inputs", "")
    )
    assert float(same[-1] / same[0]) == pytest.approx(math.pi**2 / 6 - 1 / 1000.5, rel=1e-7)
    assert np.all(np.asarray(own)[1:] < np.asarray(same)[1:])


@pytest.mark.parametrize(
    "fields", [{"chain": "gaussian", "data": "accumulate", "temperature": 0.9, "directions": 2},
               {"chain": "gaussian", "data": "replace", "directions": 2}, {"chain": "regression", "directions": 3, "fresh": 0.3},
               {"chain": "regression", "directions": 3, "data": "accumulate"}])  # fmt: skip
def test_simulated_chains_have_the_moments_of_the_theory(fields):
    model = sv.ModelCollapse(samples=20, generations=4, **fields)
    size, seeds = 300, 12
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    theory = model.theory()
    for name in theory:
        seen = np.asarray(runs[name])
        error = seen.std(axis=0, ddof=1) / math.sqrt(seeds)
        assert np.all(np.abs(seen.mean(axis=0) - np.asarray(theory[name])) < 5 * error + 1e-5), name


def test_chains_that_cannot_be_fitted_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="data = 'accumulate-same-inputs' needs chain = 'regression'"):
        sv.ModelCollapse(data="accumulate-same-inputs")
    with pytest.raises(sv.InvalidValue, match=r"shares must be positive and add up to at most 1; they add up to 1\.2"):
        sv.ModelCollapse(shares=[0.6, 0.6])
    with pytest.raises(sv.InvalidValue, match="samples = 30 leave 9 to the smallest of the shares"):
        sv.ModelCollapse(chain="regression", samples=30)
    with pytest.raises(sv.InvalidValue, match=r"samples = 2001 of a categorical chain is not in \[1, 2000\]"):
        sv.ModelCollapse(samples=2001)
