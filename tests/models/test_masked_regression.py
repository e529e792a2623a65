"""Masked regression: limits, reference values, brute force, and theory against simulation."""

import json
from collections import defaultdict
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.random_matrices.equivalents import ridgeless_factor
from solvable.model import simulate_batch
from solvable.models.attention.masked_regression.model import EDGES
from solvable.models.attention.masked_regression.regressions import leading, regress_all

REFERENCES = json.loads((Path(__file__).parents[1] / "reference" / "masked-regression.json").read_text())
CHOICES = sv.MaskedRegression.fields_of("choice")
LANES = 12


def theory(choices, **controls):
    """The theory at a list of points, padded to one number of lanes: each set of choices compiles once in this file."""
    if choices.get("variances") == "equal":  # two equal levels: the same physics, one program less
        choices = choices | {"variances": "two-level"}
        controls |= {"high_variance": 1.0, "low_variance": 1.0}
    points = max(np.size(v) for v in controls.values())
    every = {k: float(v) for k, v in sv.MaskedRegression(**choices).controls().items()} | controls
    padded = {k: np.resize(np.broadcast_to(v, points), LANES) for k, v in every.items()}
    found = sv.MaskedRegression(**choices, **padded).theory()
    return {n: np.asarray(v)[:points] for n, v in [*found.values.items(), ("converged", found.converged)]}


def grouped_references():
    """Reference cases with the same choices, a batch at a time."""
    groups = defaultdict(list)
    for case in REFERENCES:
        groups[tuple((k, v) for k, v in case["params"].items() if k in CHOICES)].append(case)
    return [(dict(c), cases[i : i + LANES]) for c, cases in groups.items() for i in range(0, len(cases), LANES)]


@pytest.mark.parametrize(("choices", "cases"), grouped_references())
def test_reference_values(choices, cases):
    names = {k for c in cases for k in c["params"] if k not in CHOICES}
    default = sv.MaskedRegression(**choices)
    found = theory(choices, **{k: [c["params"].get(k, float(getattr(default, k))) for c in cases] for k in names})
    assert found["converged"].all()
    for i, case in enumerate(cases):
        assert abs(found[case["observable"]][i] - case["value"]) <= case["tolerance"], case


# --- limits -----------------------------------------------------------------------------------------------------------


def test_white_data_cannot_be_predicted_and_have_the_closed_form_error():
    samples = np.array([0.5, 0.5, 1.5, 4.0])
    found = theory({"covariance": "ring"}, precision=1.0, bond=0.0, samples=samples, penalty=[0.0, 0.7, 0.0, 0.3])
    closed = 1 / (1 - 1 / samples / (1 + found["effective_penalty"]) ** 2)
    np.testing.assert_allclose(found["test_loss"], closed, rtol=1e-12)
    np.testing.assert_allclose(found["bayes_loss"], 1.0)
    assert (found["test_loss"] > 1).all()


def test_errors_of_the_chain_have_their_limits_in_samples_and_penalty():
    # n → ∞: the population ridge, κ = λ; λ → ∞: A = 0 and the error is the variance; ridgeless: closed forms.
    found = theory({}, samples=[1e4, 2.0, 2.5, 0.6, 1.0], penalty=[0.1, 1e4, 0.0, 0.0, 0.0], correlation=0.8)
    test, train, conditional = found["test_loss"], found["train_loss"], (1 - 0.8**2) / (1 + 0.8**2)
    assert found["converged"].all()
    np.testing.assert_allclose(found["effective_penalty"][0], 0.1, rtol=1e-3)
    np.testing.assert_allclose([test[1], train[1]], 1.0, atol=1e-3)  # corrections of order 1/λ
    np.testing.assert_allclose(found["bayes_loss"], conditional, rtol=1e-9)
    np.testing.assert_allclose([test[2], train[2]], [conditional / 0.6, conditional * 0.6], rtol=1e-9)
    assert train[3] == 0.0
    assert np.isinf(test[4])
    assert found["spectrum"][4, -1] == 1.0
    np.testing.assert_allclose(found["spectrum"][3, -1], 0.6, atol=1e-6)  # ridgeless: n/d of the eigenvalues are one


def test_spectrum_has_no_trace_and_its_masses_sum_to_one():
    found = theory({}, samples=[2.0, 1.0, 1.3], penalty=[0.5, 0.3, 0.4])["spectrum"]
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-6)
    centres = sv.MaskedRegression().coordinates()["eigenvalue"]
    np.testing.assert_allclose(found @ centres, 0.0, atol=0.01)  # bins of width 0.1


def test_interpolation_peak_is_at_n_equal_d_and_disappears_at_the_optimal_penalty():
    samples = np.array([150, 190, 200, 210, 260]) / 200
    weak = theory({}, samples=samples, penalty=1e-4)["test_loss"]
    best = theory({}, samples=samples, penalty=0.3)["test_loss"]
    assert np.argmax(weak) == 2
    assert weak[2] > 5 * weak[0]
    assert (np.diff(best) < 0).all()


def test_equal_noise_gives_no_gain_over_pca_and_uneven_noise_does():
    samples, penalty = [2.0, 2.0, 0.5], [0.0, 0.7, 0.3]
    even = theory({"covariance": "spiked", "variances": "equal"}, samples=samples, penalty=penalty, spike=4.0)
    np.testing.assert_allclose(even["threshold"], even["pca_threshold"], rtol=1e-9)
    np.testing.assert_allclose(even["overlap_right"], even["pca_overlap"], rtol=1e-9)
    uneven = theory({"covariance": "spiked", "variances": "two-level"}, samples=samples, penalty=penalty, spike=4.0)
    assert (uneven["threshold"] < uneven["pca_threshold"]).all()
    assert (uneven["overlap_right"] > uneven["pca_overlap"]).all()


def test_a_spike_on_one_coordinate_is_invisible_and_a_wide_one_is_as_good_as_for_pca():
    found = theory({"covariance": "localised"}, support=[1.0, 2.0, 1000.0], samples=2.0, penalty=0.3, spike=2.0)
    assert found["overlap_right"][0] == found["overlap_left"][0] == 0.0
    assert np.isinf(found["threshold"][0])
    assert found["threshold"][1] > found["threshold"][2] > found["pca_threshold"][2]
    np.testing.assert_allclose(found["overlap_right"][2], found["pca_overlap"][2], atol=1e-3)


# --- simulation -------------------------------------------------------------------------------------------------------


def brute_force(x, penalty):
    """Row by row ridge regression, the definition; the minimum-norm solution without penalty."""
    n, d = x.shape
    a = np.zeros((d, d))
    for k in range(d):
        rest = np.delete(np.arange(d), k)
        others = x[:, rest]
        if penalty == 0:
            a[k, rest] = np.linalg.lstsq(others, x[:, k], rcond=None)[0]
        else:
            a[k, rest] = np.linalg.solve(others.T @ others / n + penalty * np.eye(d - 1), others.T @ x[:, k] / n)
    return a


@pytest.mark.parametrize(("n", "penalty"), [(45, 0.0), (20, 0.0), (45, 0.2)])
def test_one_inverse_gives_what_row_by_row_regressions_and_a_plain_eigensolver_give(n, penalty):
    d = 30
    model = sv.MaskedRegression(covariance="spiked", variances="two-level", penalty=penalty, spike=3.0)
    sigma, hidden = map(np.asarray, model._covariance(d, None))
    x = np.random.default_rng(1).normal(size=(n, d)) @ np.linalg.cholesky(sigma).T
    a, s = brute_force(x, penalty), x.T @ x / n
    measured, g, top = measure(
        model, jnp.asarray(sigma), jnp.asarray(s), jnp.asarray(n, jnp.int32), jnp.asarray(hidden)
    )
    g, rest = np.asarray(g), np.eye(d) - a
    np.testing.assert_allclose(np.eye(d) - g / np.diag(g)[:, None], a, atol=1e-12)
    np.testing.assert_allclose(measured["test_loss"], np.trace(rest @ sigma @ rest.T) / d, rtol=1e-11)
    np.testing.assert_allclose(measured["train_loss"], np.trace(rest @ s @ rest.T) / d, rtol=1e-11, atol=1e-12)
    values, right = np.linalg.eig(a)
    order = np.argsort(values.real)
    histogram = np.histogram(values.real, [-np.inf, *EDGES[1:-1], np.inf])[0]
    np.testing.assert_allclose(measured["spectrum"] * d, histogram, atol=1e-9)
    np.testing.assert_allclose([top["edge"], top["outlier"]], values.real[order[-2:]], rtol=1e-10)
    if n > d:
        left = np.linalg.inv(right)[order[-1]].real
        for name, vector in (("overlap_right", right[:, order[-1]].real), ("overlap_left", left)):
            np.testing.assert_allclose(top[name], (vector @ hidden) ** 2 / (vector @ vector), rtol=1e-8)


@eqx.filter_jit
def measure(model, sigma, s, number, hidden):
    fit = regress_all(s, model.penalty, number)
    return model._measured(fit, sigma, s), fit.inverse, leading(s, fit.inverse, model.penalty, hidden, number)


def test_the_ring_has_the_spectrum_it_is_declared_with():
    values = np.linalg.eigvalsh(np.linalg.inv(sv.MaskedRegression(covariance="ring")._covariance(12, None)[0]))
    np.testing.assert_allclose(values, np.sort(1.25 - 0.8 * np.cos(2 * np.pi * np.arange(12) / 12)), rtol=1e-10)


def simulated(model, size, seeds, padded):
    keys = jnp.stack([model.key(size, seed) for seed in range(seeds)])
    found = simulate_batch(model, {}, keys, size, padded={"samples": padded})
    return {name: np.asarray(v) for name, v in found.items()}


def test_errors_and_spectrum_approach_the_theory_as_the_dimension_grows():
    model = sv.MaskedRegression(covariance="ring", samples=2.0, penalty=0.1)
    expected = theory({"covariance": "ring"}, samples=2.0, penalty=0.1)
    gaps = {}
    for size, seeds in ((20, 200), (60, 40)):
        found = simulated(model, size, seeds, 2 * size)
        for name in ("test_loss", "train_loss", "effective_penalty"):
            gaps[name, size] = found[name].mean() - expected[name][0]
            error = found[name].std(ddof=1) / np.sqrt(seeds)
            assert error < 0.01 * expected[name][0]
            assert abs(gaps[name, size]) < 4 * error + 1.5 / size * expected[name][0], name
        assert np.abs(found["spectrum"].mean(0) - expected["spectrum"][0]).max() < 1 / size
    assert abs(gaps["test_loss", 60]) < abs(gaps["test_loss", 20]) / 2


def test_ridgeless_error_at_finite_size_is_the_exact_gaussian_average():
    # The ring's conditional variance is 0.8 at any size, so the mean over draws is 0.8 (n−1)/(n−d) exactly.
    found = simulated(sv.MaskedRegression(covariance="ring", samples=2.0, penalty=0.0), 20, 200, 40)["test_loss"]
    error = found.std(ddof=1) / np.sqrt(200)
    assert error < 0.02
    assert abs(found.mean() - 0.8 * ridgeless_factor(40, 20)) < 4 * error


def test_spike_is_seen_by_masked_regression_and_not_by_pca():
    choices = {"covariance": "spiked", "variances": "two-level"}
    controls = {"samples": 2.0, "penalty": 0.3, "spike": 2.0}
    expected, found = theory(choices, **controls), simulated(sv.MaskedRegression(**choices, **controls), 150, 12, 300)
    assert expected["threshold"] < 2.0 < expected["pca_threshold"]
    for name in ("outlier", "overlap_right", "overlap_left"):
        error = found[name].std(ddof=1) / np.sqrt(12)
        assert error < 0.03
        assert abs(found[name].mean() - expected[name][0]) < 4 * error, name
    assert expected["pca_overlap"][0] == 0.0
    assert found["pca_overlap"].mean() < 0.1 < found["overlap_right"].mean()


def test_atoms_of_the_spectrum_are_found_in_the_simulation():
    # n/d = 2/3, three quarters of the coordinates alike: an atom of mass 1/12 at −v/κ = −0.396, a little blurred.
    choices, controls = (
        {"covariance": "spiked", "variances": "two-level"},
        {"samples": 2 / 3, "penalty": 0.5, "spike": 0.0},
    )
    at = int(np.searchsorted(EDGES, -0.396)) - 1
    expected = theory(choices, **controls)["spectrum"][0]
    assert expected[at] > 1 / 12 + max(expected[at - 1], expected[at + 1])
    found = simulated(sv.MaskedRegression(**choices, **controls), 150, 8, 300)["spectrum"].mean(0)
    np.testing.assert_allclose(found[at - 2 : at + 3].sum(), expected[at - 2 : at + 3].sum(), atol=0.02)


# --- contract ---------------------------------------------------------------------------------------------------------


def test_gradients_match_central_differences():
    @jax.jit
    def both(x, direction):
        def values(x):
            found = sv.MaskedRegression(covariance="ring", samples=x[0], penalty=x[1], bond=x[2]).theory()
            return jnp.concatenate([jnp.stack([found.test_loss, found.train_loss]), found.spectrum[25:35]])

        return jax.jvp(values, (x,), (direction,))

    x, direction = jnp.array([2.0, 0.3, 0.6]), jnp.array([0.3, 0.1, -0.2])
    slope = both(x, direction)[1]
    difference = both(x + 1e-4 * direction, direction)[0] - both(x - 1e-4 * direction, direction)[0]
    np.testing.assert_allclose(slope, difference / 2e-4, rtol=1e-6, atol=1e-8)


def test_doubling_the_numerics_changes_nothing():
    coarse = theory({"covariance": "paramagnet"}, samples=1.5, penalty=0.2)
    fine = sv.MaskedRegression(covariance="paramagnet", samples=1.5, penalty=0.2).theory({"step": 0.25, "nodes": 128})
    for name in fine:
        np.testing.assert_allclose(coarse[name][0], fine[name], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "values",
    [
        {"covariance": "given"},
        {"covariance": "given", "matrix": np.array([[1.0, 2.0], [2.0, 1.0]])},
        {"matrix": np.eye(3)},
        {"covariance": "ring", "variances": "wave"},
        {"dimension": 1},
        {"penalty": -1.0},
    ],
)
def test_invalid_combinations_are_refused_in_one_sentence(values):
    with pytest.raises(sv.InvalidValue) as refusal:
        sv.MaskedRegression(**values)
    assert str(refusal.value).count("\n") == 0


def test_a_covariance_of_your_own_gives_the_errors_of_its_ring():
    wave = np.arange(40)
    cosine = np.cos(2 * np.pi * wave / 40)
    own = np.array(
        [[np.mean(np.cos(2 * np.pi * wave * (i - j) / 40) / (1.25 - 0.8 * cosine)) for j in wave] for i in wave]
    )
    given = sv.MaskedRegression(covariance="given", matrix=own, samples=1.5, penalty=0.2)
    ring = theory({"covariance": "ring"}, samples=1.5, penalty=0.2)
    np.testing.assert_allclose(given.theory().test_loss, ring["test_loss"][0], rtol=1e-10)
    assert "spectrum" not in given.observables()
    with pytest.raises(sv.InvalidValue):
        given.simulate(seed=0, size=50)


def test_genuine_spins_follow_the_theory_of_gaussians_with_their_covariance():
    spins = sv.MaskedRegression(covariance="spins", coupling=0.5, samples=2.0, penalty=0.1)
    study = sv.Study(spins, sizes=[80], seeds=8)
    data = study.run(progress=False)
    measured = data.test_loss_simulated.isel(size=0)
    assert measured.notnull().all()  # every chain has mixed
    error = float(measured.std("seed", ddof=1)) / np.sqrt(8)
    theory = float(spins.theory().test_loss)
    assert abs(float(measured.mean()) - theory) < 4 * error + 1 / 80
    assert error < 0.02
    # In the paramagnet the diagonal of Σ is one: a theory of white noise (test loss above one) is far away.
    white = float(sv.MaskedRegression(covariance="white", samples=2.0, penalty=0.1).theory().test_loss)
    assert abs(float(measured.mean()) - white) > 10 * error
