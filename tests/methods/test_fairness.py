"""Fairness from a table, against the definitions of fairness libraries; the bivariate normal law against adaptive quadrature."""

import fairlearn.metrics as fairlearn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn import metrics
from sklearn.metrics import accuracy_score, precision_score

from solvable.models.replica.bias_geometry.fairness import balancing_weights, bivariate_normal, fairness


def counted(seed, number=500):
    """Random groups, labels and predictions, and their table in the order (+, −), (−1, +1), (−1, +1)."""
    rng = np.random.default_rng(seed)
    group, label = (rng.random(number) < 0.3).astype(int), (rng.random(number) < 0.6).astype(int)
    guess = (rng.random(number) < 0.3 + 0.4 * label - 0.1 * group).astype(int)
    table = np.zeros((2, 2, 2))
    np.add.at(table, (1 - group, label, guess), 1 / number)
    return group, label, guess, fairness(jnp.asarray(table))


@pytest.mark.parametrize("seed", range(3))
def test_the_measures_are_those_that_fairlearn_documents(seed):
    """Differences between the largest and smallest group rate, ratios of the smallest to the largest, and for equalised
    odds the larger of two differences (fairlearn.metrics, Bird et al. 2020), from scikit-learn's confusion matrices."""
    group, label, guess, result = counted(seed)
    cells = [metrics.confusion_matrix(label[group == g], guess[group == g]) for g in (1, 0)]  # rows y, columns ŷ
    selection = [c[:, 1].sum() / c.sum() for c in cells]
    positive, false = [c[1, 1] / c[1].sum() for c in cells], [c[0, 1] / c[0].sum() for c in cells]
    close = {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(abs(result.parity_difference), max(selection) - min(selection), **close)
    ratio = float(result.disparate_impact)
    np.testing.assert_allclose(min(ratio, 1 / ratio), min(selection) / max(selection), **close)
    np.testing.assert_allclose(abs(result.opportunity_difference), max(positive) - min(positive), **close)
    widest = max(max(positive) - min(positive), max(false) - min(false))
    np.testing.assert_allclose(result.odds_difference, widest, **close)
    precision = [metrics.precision_score(label[group == g], guess[group == g]) for g in (1, 0)]
    np.testing.assert_allclose(result.predictive_difference, precision[0] - precision[1], **close)
    accuracy = [metrics.accuracy_score(label[group == g], guess[group == g]) for g in (1, 0)]
    np.testing.assert_allclose(result.accuracy_ratio, accuracy[0] / accuracy[1], **close)
    np.testing.assert_allclose(result.test_error, np.mean(label != guess), **close)
    np.testing.assert_allclose(result.information, metrics.mutual_info_score(group, guess), atol=1e-13)
    given = sum(np.mean(label == y) * metrics.mutual_info_score(group[label == y], guess[label == y]) for y in (0, 1))
    np.testing.assert_allclose(result.conditional_information, given, atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_the_measures_are_those_of_fairlearn_itself(seed):
    group, label, guess, result = counted(seed)
    say = {"y_true": label, "y_pred": guess, "sensitive_features": group}
    close = {"rtol": 1e-12, "atol": 1e-14}
    rates = {
        "accuracy": accuracy_score,
        "selection_rate": fairlearn.selection_rate,
        "true_positive_rate": fairlearn.true_positive_rate,
        "false_positive_rate": fairlearn.false_positive_rate,
        "precision": precision_score,
    }
    theirs = fairlearn.MetricFrame(metrics=rates, **say).by_group
    for name in rates:
        np.testing.assert_allclose(getattr(result, name), [theirs[name][1], theirs[name][0]], **close)
    np.testing.assert_allclose(abs(result.parity_difference), fairlearn.demographic_parity_difference(**say), **close)
    ratio = float(result.disparate_impact)
    np.testing.assert_allclose(min(ratio, 1 / ratio), fairlearn.demographic_parity_ratio(**say), **close)
    opportunity = fairlearn.equal_opportunity_difference(**say)
    np.testing.assert_allclose(abs(result.opportunity_difference), opportunity, **close)
    np.testing.assert_allclose(result.odds_difference, fairlearn.equalized_odds_difference(**say), **close)


def test_informations_vanish_exactly_at_parity_and_at_equalised_odds():
    odds = np.array([[0.8, 0.2], [0.3, 0.7]])  # P(ŷ|y), the same in both groups, whose base rates differ
    table = jnp.asarray([0.4 * np.array([0.3, 0.7])[:, None] * odds, 0.6 * np.array([0.6, 0.4])[:, None] * odds])
    result = fairness(table)
    np.testing.assert_allclose([result.conditional_information, result.odds_difference], 0, atol=1e-15)
    assert result.information > 1e-3
    assert abs(result.parity_difference) > 0.1


def test_balancing_weights_make_group_and_label_independent():
    table = jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(8)).reshape(2, 2, 2))
    joint = np.asarray(jnp.sum(table, axis=2) * balancing_weights(table))
    np.testing.assert_allclose(joint, joint.sum(1)[:, None] * joint.sum(0)[None, :], atol=1e-15)
    np.testing.assert_allclose(joint.sum(1), np.asarray(table).sum((1, 2)), atol=1e-15)


def test_bivariate_normal_is_right_to_1e_14_for_every_correlation():
    rng, function = np.random.default_rng(0), jax.jit(bivariate_normal)
    for i in range(60):
        h, k = 2 * rng.normal(size=2)
        r = rng.choice([-1, 1]) * (1 - 10 ** rng.uniform(-9, 0)) if i % 2 else rng.uniform(-1, 1)
        if i % 5 == 0:
            k = h + 1e-3 * rng.normal()  # the boundary layer of |r| → 1
        s = np.sqrt((1 - r) * (1 + r))
        step = sorted(p for p in (k / r - 8 * s, k / r, k / r + 8 * s) if -12 < p < h)
        exact = quad(lambda x, k=k, r=r, s=s: norm.pdf(x) * norm.cdf((k - r * x) / s), -12, h, points=step or None,
                     epsabs=1e-15, epsrel=1e-13, limit=400)[0]  # fmt: skip
        assert abs(function(h, k, r) - exact) < 1e-14, (h, k, r)


def test_bivariate_normal_has_the_right_gradient():
    """∂Φ₂/∂h = φ(h) Φ((k − rh)/√(1−r²)) and ∂Φ₂/∂r = the density at (h, k)."""
    h, k, r = 0.3, -0.8, -0.7
    s = np.sqrt(1 - r**2)
    slope = jax.jit(jax.jacfwd(bivariate_normal, (0, 1, 2)))(jnp.asarray(h), jnp.asarray(k), jnp.asarray(r))
    density = np.exp(-(h**2 + k**2 - 2 * r * h * k) / (2 * s**2)) / (2 * np.pi * s)
    exact = [norm.pdf(h) * norm.cdf((k - r * h) / s), norm.pdf(k) * norm.cdf((h - r * k) / s), density]
    np.testing.assert_allclose(slope, exact, atol=1e-13)
