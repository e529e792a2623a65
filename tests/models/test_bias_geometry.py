"""Two groups, their rules and their learners: limits, a slow twin, the definitions of fairness, risk minimisation itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import solvable as sv
from solvable.model import simulate_batch

SAME_RULE = {"similarity": 1.0, "tilt_plus": 0.0, "tilt_minus": 0.0}


def test_one_rule_in_the_same_inputs_is_the_perceptron():
    result = sv.BiasGeometry(samples=2.0, penalty=0.1, share=0.3, **SAME_RULE).theory()
    # the perceptron's own numbers at n/d = 2, λ = 0.1
    np.testing.assert_allclose(result.test_error, 0.17966239286095, atol=1e-12)
    np.testing.assert_allclose(result.norm, np.full(2, 4.145803620748), rtol=1e-11)
    # v is irrelevant to the rule: no direction, no bias, no difference between the groups
    np.testing.assert_allclose([*result.shift, *result.bias], 0, atol=1e-10)
    np.testing.assert_allclose([result.accuracy_gap, result.parity_difference, result.information], 0, atol=1e-10)


def test_uncoupled_learners_are_a_learner_of_each_group_alone():
    apart = sv.BiasGeometry(learner="coupled", coupling=0.0).theory()
    alone = sv.BiasGeometry(samples=2.0 * 0.2, share=1 - 1e-12).theory()
    for name in ("accuracy", "bias", "norm", "shift", "response"):
        np.testing.assert_allclose(apart[name][0], alone[name][0], atol=1e-8)


def test_infinitely_coupled_learners_share_their_weights_and_keep_their_biases():
    tied = sv.BiasGeometry(learner="coupled", coupling=1e9).theory()
    one = sv.BiasGeometry(learner="shared").theory()
    np.testing.assert_allclose(one.norm[0], one.norm[1], rtol=1e-12)
    assert abs(one.bias[0] - one.bias[1]) > 0.5
    for name in ("accuracy", "bias", "overlap", "norm"):
        np.testing.assert_allclose(tied[name], one[name], atol=1e-7)


def test_a_common_factor_of_the_weights_is_a_factor_of_the_penalty():
    """Weights 3 and 1 in group +, 3 and 1 in group −, against weights 3 times as large with another split."""
    base = {"learner": "coupled", "penalty": 0.2, "coupling": 0.5}
    first = sv.BiasGeometry(group_weight=1.0, positive_plus=3.0, positive_minus=3.0, **base).theory()
    # (1, 3 | 1, 3) = 3 · (1/3, 1 | 1/3, 1): label −1 of group − must weigh one, so group and labels take the factors
    mirrored = sv.BiasGeometry(
        similarity=0.6, tilt_plus=0.1, tilt_minus=0.3, share=0.8, positive_plus=1 / 3, positive_minus=1 / 3,
        learner="coupled", penalty=0.2 / 3, coupling=0.5 / 3).theory()  # fmt: skip
    # exchanging the groups reverses v, and reversing every label and rule too keeps the tilts
    np.testing.assert_allclose(first.accuracy, mirrored.accuracy[::-1], atol=1e-10)
    np.testing.assert_allclose(first.selection_rate, 1 - mirrored.selection_rate[::-1], atol=1e-10)


def test_a_slow_twin_with_scalar_minimisation_and_plain_sums_holds_the_same_fixed_point():
    """The equations of the set-up, group by group and label by label, checked as a fixed point at the theory's answer."""
    model = sv.BiasGeometry(learner="coupled", samples=3.0, share=0.4, penalty=0.5, coupling=0.7, spread_plus=0.6,
                            thresholds=[0.2, -0.1], group_weight=1.5, positive_minus=0.7)  # fmt: skip
    result = model.theory()
    x, mass = np.polynomial.hermite_e.hermegauss(80)
    mass = mass / np.sqrt(2 * np.pi)
    gram = np.array([[1, 0.6, 0.3], [0.6, 1, 0.1], [0.3, 0.1, 1]])
    k = np.array([[1.5, 1.5], [1.0, 0.7]])
    hats = np.zeros((2, 5))  # R̂, m̂, q̂, V̂, E f
    for c, (sign, part, spread, threshold) in enumerate([(1, 0.4, 0.6, 0.2), (-1, 0.6, 1.0, -0.1)]):
        q, m, r, v, b = (float(result[n][c]) for n in ("norm", "shift", "bias", "response", "bias"))
        r = float(result.overlap[c, c])
        omega = sign * m + b + np.sqrt(spread * q) * x
        mean, rest = (sign * gram[c, 2] + threshold) / np.sqrt(spread) + r / np.sqrt(q) * x, 1 - r**2 / q
        for y, weight in zip((-1, 1), k[c], strict=True):
            wide = spread * v
            best = [minimize_scalar(lambda z, w=w, g=weight, y=y, d=wide: (z - w) ** 2 / (2 * d) + g * np.logaddexp(0, -y * z),
                                    bounds=(w - 2 * weight * wide, w + 2 * weight * wide), method="bounded",
                                    options={"xatol": 1e-10}).x for w in omega]  # fmt: skip
            z = np.array(best)
            f = (z - omega) / wide
            curvature = weight / (2 + 2 * np.cosh(z))
            chance = norm.cdf(y * mean / np.sqrt(rest))
            hats[c] += 3.0 * part * np.array([
                np.sqrt(spread) * mass @ (y * norm.pdf(mean / np.sqrt(rest)) / np.sqrt(rest) * f),
                sign * mass @ (chance * f),
                spread * mass @ (chance * f**2),
                spread * mass @ (chance * curvature / (1 + wide * curvature)),
                mass @ (chance * f),
            ])  # fmt: skip
    np.testing.assert_allclose(hats[:, 4], 0, atol=1e-6)
    resolvent = np.linalg.inv(np.array([[1.2, -0.7], [-0.7, 1.2]]) + np.diag(hats[:, 3]))
    h = np.array([[hats[0, 0], 0, hats[0, 1]], [0, hats[1, 0], hats[1, 1]]])
    overlaps = resolvent @ h @ gram
    np.testing.assert_allclose(overlaps[:, :2], result.overlap, atol=2e-6)
    np.testing.assert_allclose(overlaps[:, 2], result.shift, atol=2e-6)
    np.testing.assert_allclose(
        np.diag(resolvent @ (h @ gram @ h.T + np.diag(hats[:, 2])) @ resolvent), result.norm, atol=5e-6
    )
    np.testing.assert_allclose(np.diag(resolvent), result.response, atol=2e-6)


def test_rates_given_the_weights_are_those_of_a_fresh_test_set_counted_by_scikit_learn():
    """The simulation's quadrature, and the theory's Φ₂, against 200 000 draws of the two fields and a confusion matrix."""
    metrics = pytest.importorskip("sklearn.metrics")
    from solvable.models.replica.bias_geometry.fairness import confusion, fairness
    from solvable.models.replica.bias_geometry.model import _table

    share, h, s, r = (jnp.asarray(a) for a in ([0.3, 0.7], [0.4, -0.2], [0.7, 0.1], [0.6, -0.3]))
    exact = jax.jit(confusion)(share, h, s, r)
    np.testing.assert_allclose(jax.jit(_table)(share, h, s, r), exact, atol=1e-12)
    rng, number = np.random.default_rng(0), 200_000
    group = (rng.random(number) > 0.3).astype(int)
    x, z = rng.normal(size=(2, number))
    correlation = np.asarray(r)[group]
    y = np.sign(np.asarray(h)[group] + x)
    guess = np.sign(np.asarray(s)[group] + correlation * x + np.sqrt(1 - correlation**2) * z)
    result = fairness(exact)
    for c in range(2):
        counts = metrics.confusion_matrix(y[group == c], guess[group == c])
        np.testing.assert_allclose(counts / number, exact[c], atol=4 * 0.5 / np.sqrt(number))
        error = 4 * 0.5 / np.sqrt(0.1 * number)
        assert abs(metrics.accuracy_score(y[group == c], guess[group == c]) - result.accuracy[c]) < error
        assert abs(metrics.recall_score(y[group == c], guess[group == c]) - result.true_positive_rate[c]) < error
        assert abs(metrics.precision_score(y[group == c], guess[group == c]) - result.precision[c]) < error
    assert abs(metrics.mutual_info_score(guess, group) - result.information) < 1e-3


def test_bias_persists_for_one_rule_where_the_groups_differ_only_in_number():
    """Equal rules and equal distances from the boundary: the smaller group still has the lower accuracy."""
    few, even, many = (
        sv.BiasGeometry(similarity=1.0, tilt_plus=0.3, tilt_minus=0.3, share=share).theory().accuracy_gap
        for share in (0.1, 0.5, 0.9)
    )
    assert few < -0.001
    assert abs(even) < 1e-9
    np.testing.assert_allclose(many, -few, atol=1e-9)


def test_coupling_helps_both_groups_and_widens_the_gap_in_selection_at_the_reference_point():
    single = sv.BiasGeometry().theory()
    coupled = sv.BiasGeometry(learner="coupled", coupling=1.0).theory()
    assert np.all(np.asarray(coupled.accuracy) > np.asarray(single.accuracy))
    assert coupled.parity_difference > single.parity_difference + 0.1
    # what it approaches is the difference of the base rates, 0.156
    assert single.parity_difference < single.base_rate[0] - single.base_rate[1] < coupled.parity_difference


def test_the_gradient_of_coupled_learners_is_that_of_differences():
    model = sv.BiasGeometry(learner="coupled", coupling=0.3)

    def gap(coupling):
        return model.with_values({"coupling": coupling}).theory(only=["parity_difference"]).parity_difference

    slope = float(jax.jacfwd(gap)(jnp.asarray(0.3)))
    sides = model.replace(coupling=[0.3 - 1e-4, 0.3 + 1e-4]).theory(only=["parity_difference"]).parity_difference
    np.testing.assert_allclose(slope, float(sides[1] - sides[0]) / 2e-4, rtol=1e-6)


def test_risk_minimisation_agrees_with_theory_within_error_bars():
    """Of coupled learners with weighted labels; `solvable check` compares that of a single one, and both without weights."""
    model, size, lanes = sv.BiasGeometry(learner="coupled", samples=4.0, share=0.4, positive_plus=1.5), 80, 24
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(jnp.arange(lanes))
    out = simulate_batch(model, {}, keys, size)
    theory = model.theory()
    assert bool(out["converged"].all())
    for name in ("accuracy", "selection_rate", "parity_difference", "norm", "overlap", "shift", "bias"):
        mean, error = out[name].mean(axis=0), out[name].std(axis=0, ddof=1) / np.sqrt(lanes)
        assert np.all(np.abs(mean - theory[name]) < 4.5 * error + 2.0 / size * (0.2 + np.abs(theory[name]))), name


def test_rules_have_exactly_their_gram_matrix_also_where_they_coincide():
    for values in ({}, {"similarity": 1.0, "tilt_plus": 0.2, "tilt_minus": 0.2}):
        model = sv.BiasGeometry(**values)
        rules, centre = model._geometry(jax.random.normal(jax.random.key(0), (3, 50)), float)
        frame = np.vstack([rules, centre])
        np.testing.assert_allclose(frame @ frame.T / 50, model._mixture.gram, atol=1e-12)


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(
        sv.InvalidValue,
        match=r"similarity = 1 is outside its range \[-0.919\d+, 0.979\d+\] for tilt_plus = 0.3 and tilt_minus = 0.1: "
        r"the Gram matrix of \(W_\+, W_−, v\) would not be positive",
    ):
        sv.BiasGeometry(similarity=[0.2, 1.0])
    with pytest.raises(sv.InvalidValue, match="thresholds has 3 entries but needs two"):
        sv.BiasGeometry(thresholds=[0.0, 0.1, 0.2])
    with pytest.raises(sv.InvalidValue, match=r"share = 0 is outside its range \(0, 1\)"):
        sv.BiasGeometry(share=0.0)
    with pytest.raises(sv.InvalidValue, match="size = 2 is smaller than 3"):
        sv.BiasGeometry().simulate(seed=0, size=2)
