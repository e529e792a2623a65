"""The composed model: known results, other models, scikit-learn, and compositions drawn at random."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

import solvable as sv
from solvable.contract.functions import function_named
from solvable.errors import InvalidValue
from solvable.methods.risk.covariate import features, student
from solvable.methods.risk.existence import existence_threshold, recovery_threshold
from solvable.methods.risk.losses import loss_named
from solvable.methods.risk.mixtures import gaussian, logistic
from solvable.methods.risk.outputs import Labels
from solvable.methods.risk.structured import Composed
from solvable.model import simulate_batch

OBSERVED = ("error", "overlap", "norm", "train_loss", "test_loss")


def smoothed(y, z):
    """A loss of one's own, importable by name."""
    return jnp.sqrt(1 + (y - z) ** 2)


def slow_lasso(samples, penalty, noise, fraction):
    """The lasso by the calibration of Bayati and Montanari (2012) in their normalisation, with SciPy's quadrature."""
    delta, scale = samples, np.sqrt(samples)  # columns of unit norm: weights times √α

    def risk(tau, theta):
        """E (η(r) − x₀)², r = x₀ + τz: given r, x₀ is Gaussian with mean κr and variance κτ²."""
        cut, total = theta * tau, 0.0
        for share, power in ((1 - fraction, 0.0), (fraction, scale**2 / fraction)):
            kappa, width = power / (power + tau**2), np.sqrt(power + tau**2)
            inside = lambda z, k=kappa, w=width: (k * w * z) ** 2 * stats.norm.pdf(z)  # noqa: E731
            outside = lambda z, k=kappa, w=width: ((1 - k) * w * z - cut) ** 2 * stats.norm.pdf(z)  # noqa: E731
            end = cut / width
            parts = integrate.quad(inside, 0, end, epsabs=1e-13)[0] + integrate.quad(outside, end, 14, epsabs=1e-13)[0]
            total += share * (2 * parts + kappa * tau**2)
        return total

    def active(tau, theta):
        wide = np.sqrt(scale**2 / fraction + tau**2)
        return 2 * (1 - fraction) * stats.norm.sf(theta) + 2 * fraction * stats.norm.sf(theta * tau / wide)

    def at(theta):
        tau2 = optimize.brentq(lambda t2: noise + risk(np.sqrt(t2), theta) / delta - t2, noise, 1e3, xtol=1e-13)
        return np.sqrt(tau2)

    def gap(theta):
        tau = at(theta)
        return theta * tau * (1 - active(tau, theta) / delta) - penalty / scale

    theta = optimize.brentq(gap, 0.9 if samples < 1 else 0.05, 4.0, xtol=1e-11)
    return risk(at(theta), theta) / samples


def test_the_lasso_is_the_one_of_bayati_and_montanari():
    model = sv.GLM(samples=0.6, penalty=0.3, noise=0.1, fraction=0.2)
    assert abs(float(model.theory().error) - slow_lasso(0.6, 0.3, 0.1, 0.2)) < 1e-7


def test_the_lasso_recovers_a_sparse_signal_beyond_the_transition_of_donoho_and_tanner():
    edge = float(recovery_threshold(0.2))
    model = sv.GLM(fraction=0.2, noise=1e-6, penalty=1e-3)
    errors = model.replace(samples=np.array([0.93, 1.07]) * edge).theory().error
    assert errors[0] > 1e-2
    assert errors[1] < 1e-4


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_it_agrees_with_the_perceptron(loss):
    samples, penalty = np.array([0.5, 2.0, 5.0]), np.array([0.05, 0.1, 1.0])
    own = sv.GLM(prior="gaussian", channel="probit", loss=loss, regulariser="ridge", samples=samples, penalty=penalty)
    other = sv.Perceptron(loss=loss, samples=samples, penalty=penalty, noise=0.1).theory()
    found = own.theory()
    for name in ("overlap", "norm", "test_error", "test_loss", "train_loss"):
        np.testing.assert_allclose(found[name], other[name], atol=1e-8)


def test_it_agrees_with_the_perceptron_of_a_linear_teacher():
    values = {"samples": np.array([0.5, 2.0]), "penalty": 0.3, "noise": 0.2}
    found = sv.GLM(prior="gaussian", regulariser="ridge", **values).theory()
    other = sv.Perceptron(teacher="linear", loss="square", **values).theory()
    for name in ("overlap", "norm", "test_loss", "train_loss"):
        np.testing.assert_allclose(found[name], other[name], atol=1e-8)


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_it_agrees_with_random_features(loss):
    """The composed channel on the covariance of random features."""
    other = sv.RandomFeatures(activation="tanh", samples=3.0, width=2.0, penalty=0.1, noise=0.1, loss=loss).theory()
    composed = Composed(Labels(gaussian(0.1)))
    found = student(loss_named(loss), composed, features(jnp.asarray(2.0), "tanh", "gaussian", 96), jnp.asarray(1.5),
                    jnp.asarray(0.1))  # fmt: skip
    risks = composed.risks(loss_named(loss), found.m, found.q, found.V, found.rest, 14)
    pairs = (
        (found.m, "overlap"),
        (found.q, "norm"),
        (risks.test_error, "test_error"),
        (risks.train_loss, "train_loss"),
    )
    for value, name in pairs:
        assert abs(float(value - other[name])) < 1e-8


def test_the_bayes_optimal_error_is_the_perceptrons():
    samples = np.array([0.5, 2.0, 6.0])
    found = sv.GLM(learner="bayes", prior="gaussian", channel="probit", noise=0.1, samples=samples).theory()
    other = sv.Perceptron(noise=0.1, samples=samples, penalty=0.1).theory()
    np.testing.assert_allclose(found.test_error, other.bayes_error, atol=1e-8)


def test_a_gaussian_prior_is_learnt_best_by_ridge_regression_at_its_noise():
    ridge = sv.GLM(prior="gaussian", regulariser="ridge", samples=1.7, noise=0.3, penalty=0.3).theory()
    best = sv.GLM(learner="bayes", prior="gaussian", samples=1.7, noise=0.3).theory()
    assert abs(float(ridge.error - best.error)) < 1e-9
    assert abs(float(best.error - best.best_error)) < 1e-12


def test_the_logistic_estimate_exists_where_candes_and_sur_say():
    strength = 2.0

    def h(t):
        inner = lambda a: (1 + a**2) * stats.norm.cdf(a) + a * stats.norm.pdf(a)  # noqa: E731
        f = lambda u: 2 * stats.norm.pdf(u) / (1 + np.exp(-strength * u)) * inner(t * u)  # noqa: E731
        return integrate.quad(f, -10, 10, epsabs=1e-12)[0]

    wanted = 1 / optimize.minimize_scalar(h, bounds=(-20, 0), method="bounded", options={"xatol": 1e-9}).fun
    edge = float(existence_threshold(Labels(logistic()), strength))
    assert abs(edge - wanted) < 1e-7
    model = sv.GLM(prior="gaussian", channel="logistic", loss="logistic", regulariser="ridge", strength=strength)
    small = model.replace(samples=np.array([[0.9 * edge], [1.2 * edge]]), penalty=np.array([1e-3, 1e-4])).theory().norm
    assert small[0, 1] > 5 * small[0, 0]  # separable: it grows without bound as the penalty vanishes
    assert small[1, 1] < 1.2 * small[1, 0]


def test_absolute_deviations_lose_against_squares_in_high_dimensions():
    """Laplace noise: above about three parameters per ten samples least squares wins (El Karoui et al. 2013)."""
    fields = {"prior": "gaussian", "channel": "laplace", "regulariser": "ridge", "noise": 1.0, "penalty": 1e-3}
    samples = np.array([1 / 0.2, 1 / 0.4])
    absolute, square = (sv.GLM(**fields, loss=loss, samples=samples).theory().error for loss in ("absolute", "square"))
    assert absolute[0] < square[0]
    assert absolute[1] > square[1]


def test_compressed_sensing_has_a_spinodal_below_which_message_passing_fails():
    model = sv.GLM(learner="bayes", fraction=0.4, noise=1e-8)
    found = model.thresholds()
    # Without noise the best estimate is perfect above n/d = 0.4; message passing needs more (Krzakala et al. 2012).
    # With noise of variance Δ the former threshold is above 0.4 by an amount of order 1/log(1/Δ).
    assert 0.4 <= float(found.information) < 0.48
    assert abs(float(found.algorithmic) - 0.589) < 2e-3
    between = model.replace(samples=0.5).theory()
    assert between.error > 0.01
    assert between.best_error < 1e-6


def test_branches_of_the_binary_perceptron():
    found = sv.GLM(learner="bayes", prior="binary", channel="sign", samples=1.35).branches()
    there = np.isfinite(np.asarray(found.error))
    assert there.sum() == 3
    np.testing.assert_array_equal(np.asarray(found["stable"])[there], [1, 0, 1])
    energies = np.asarray(found.free_energy)[there]
    assert energies.argmin() == 2
    assert abs(energies[2] - np.log(2)) < 1e-6


def test_replica_symmetry_is_checked():
    outcome = sv.GLM(samples=np.array([0.4, 1.0, 3.0])).theory()
    assert np.all(np.asarray(outcome.stability) < 1)


def _agrees(model, size=150, seeds=8):
    keys = jnp.stack([model.key(size, seed) for seed in range(seeds)])
    measured = simulate_batch(model, {}, keys, size)
    assert np.asarray(measured["converged"]).all()
    theory = model.realised(size).theory()
    assert theory.converged
    for name in OBSERVED:
        values, wanted = np.asarray(measured[name]), float(theory[name])
        error = values.std(ddof=1) / np.sqrt(seeds)
        # Student's t with seven degrees of freedom, and a finite-size correction of a few over d.
        assert abs(values.mean() - wanted) < 6 * error + 4 * max(abs(wanted), 0.1) / size, (name, values.mean(), wanted)


REAL = ("gaussian", "laplace", "quantile")
SIGNS = ("sign", "probit", "logistic")
FITTING = {
    **dict.fromkeys(REAL, ("square", "absolute", "huber", "quantile")),
    **dict.fromkeys(SIGNS, ("square", "absolute", "huber", "logistic", "hinge", "exponential")),
}
composed = st.sampled_from(sorted(FITTING)).flatmap(
    lambda channel: st.fixed_dictionaries(
        {
            "channel": st.just(channel),
            "loss": st.sampled_from(FITTING[channel]),
            "prior": st.sampled_from(("gaussian", "sparse", "binary", "laplace")),
            "regulariser": st.sampled_from(("ridge", "lasso", "elastic-net", "box")),
            "samples": st.sampled_from((0.8, 2.0)),
        }
    )
)


@settings(max_examples=5, deadline=None, derandomize=True, phases=(Phase.generate,))  # shrinking would take minutes
@given(composed)
def test_compositions_drawn_at_random_agree_with_simulation(values):
    _agrees(sv.GLM(**values, penalty=0.5, noise=0.3, flips=0.1, level=0.4, noise_level=0.3, fraction=0.3))


@pytest.mark.parametrize(
    "values",
    [
        {"channel": "poisson", "loss": "poisson", "strength": 0.5},
        {"channel": "quantile", "noise_level": 0.3, "noise": 0.5, "loss": "quantile", "level": 0.7},
    ],
    ids=lambda values: values["loss"],
)
def test_counts_and_quantiles_agree_with_simulation(values):
    _agrees(sv.GLM(prior="gaussian", regulariser="ridge", samples=2.0, penalty=0.5, **values))


# --- functions of one's own -------------------------------------------------------------------------------------------------


def test_a_loss_of_ones_own_equals_the_built_in_one():
    fields = {"prior": "gaussian", "channel": "logistic", "regulariser": "ridge", "samples": 2.0}
    built = sv.GLM(loss="logistic", **fields).theory()
    own = sv.GLM(loss=lambda y, z: jnp.logaddexp(0.0, -y * z), **fields).theory()
    for name in OBSERVED:
        np.testing.assert_allclose(own[name], built[name], atol=1e-8)


@pytest.mark.parametrize("channel", ["gaussian", "quantile"])
def test_a_loss_of_the_residual_as_a_function_equals_its_closed_forms(channel):
    fields = {"prior": "gaussian", "channel": channel, "regulariser": "ridge", "samples": 2.0, "noise_level": 0.3}
    fields |= {"noise": 0.5}
    built = sv.GLM(loss="square", **fields).theory()
    own = sv.GLM(loss=lambda y, z: 0.5 * (y - z) ** 2, **fields).theory()
    for name in ("error", "overlap", "norm", "test_loss", "train_loss", "stability"):
        np.testing.assert_allclose(own[name], built[name], atol=1e-8)


def test_a_penalty_of_ones_own_equals_the_built_in_one():
    own = sv.GLM(regulariser=lambda x, t: jnp.sign(x) * jnp.maximum(jnp.abs(x) - t, 0.0), samples=0.8)
    for name in OBSERVED:
        np.testing.assert_allclose(own.theory()[name], sv.GLM(samples=0.8).theory()[name], atol=1e-8)


def test_a_named_function_is_plain_json_and_a_nameless_one_is_refused_by_a_stored_study(tmp_path):
    named = sv.GLM(loss=smoothed, regulariser="ridge")
    text = named.specification()["loss"]
    assert text.endswith("test_glm:smoothed")
    assert function_named(text) is smoothed
    assert json.loads(json.dumps(named.specification()))["loss"] == text
    assert sv.GLM(loss=text, regulariser="ridge").loss == text
    nameless = sv.GLM(loss=lambda y, z: 0.5 * (y - z) ** 2, regulariser="ridge")
    with pytest.raises(InvalidValue, match="loss = 'here:.*module:name"):
        sv.Study(nameless, over={"samples": [1.0]}).run(tmp_path / "run")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "logistic"}, "loss = 'logistic' needs labels ±1"),
        ({"loss": "poisson"}, "loss = 'poisson' needs counts"),
        ({"loss": "nowhere:nothing"}, "loss = 'nowhere:nothing' is not one of"),
        ({"channel": lambda y, field: -((y - field) ** 2)}, "does not say its labels"),
        ({"loss": lambda y, z: -((y - z) ** 2)}, "convex"),
    ],
)
def test_compositions_that_do_not_fit_are_refused(values, message):
    with pytest.raises(InvalidValue, match=message):
        sv.GLM(**values)
