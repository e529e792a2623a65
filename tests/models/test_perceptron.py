"""The perceptron: limits, a second implementation, physicality, agreement."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import solvable as sv
from solvable.methods.risk.channels import sign_channel, square_student
from solvable.methods.risk.losses import Square
from solvable.model import simulate_batch


def test_square_loss_closed_form_solves_the_general_saddle_point():
    """The closed form of ridge classification satisfies the equations that logistic and hinge are solved with."""
    alpha, lam, noise = jnp.asarray(1.7), jnp.asarray(0.3), jnp.asarray(0.4)
    m, q, V = square_student(alpha, lam, jnp.ones(()), jnp.sqrt(2 / (np.pi * (1 + noise))))
    hat = sign_channel(Square(), m, q, V, 1 - m**2 / q + noise, 24)
    np.testing.assert_allclose(1 / (lam + alpha * hat.response), V, rtol=1e-12)
    np.testing.assert_allclose(alpha * hat.overlap * V, m, rtol=1e-12)
    np.testing.assert_allclose(V**2 * ((alpha * hat.overlap) ** 2 + alpha * hat.norm), q, rtol=1e-12)


def test_ridge_regression_matches_the_marchenko_pastur_law():
    """Second derivation: traces of the resolvent of a Wishart matrix, in place of replicas."""
    alpha, lam, noise = 1.5, 0.4, 0.3
    s = np.sqrt(alpha)
    density = lambda x: np.sqrt((x - (1 - s) ** 2) * ((1 + s) ** 2 - x)) / (2 * np.pi * x)  # noqa: E731
    mean = lambda f: quad(lambda x: density(x) * f(x), (1 - s) ** 2, (1 + s) ** 2, epsabs=1e-12)[0]  # noqa: E731
    bias, variance = mean(lambda x: (lam / (x + lam)) ** 2), noise * mean(lambda x: x / (x + lam) ** 2)
    out = sv.Perceptron(loss="square", teacher="linear", samples=alpha, penalty=lam, noise=noise).theory()
    assert abs(2 * out.test_loss - (noise + bias + variance)) < 1e-8
    assert abs(out.overlap - mean(lambda x: x / (x + lam))) < 1e-8


def test_logistic_point_matches_a_slow_independent_solver():
    """Nested adaptive quadrature and scalar minimisation, damped iteration: the usual implementation in the literature."""
    alpha, lam = 1.0, 0.5
    m, q, V = 0.6, 0.8, 1.2
    for _ in range(60):

        def prox(w, V=V):
            best = minimize_scalar(lambda u: (u - w) ** 2 / (2 * V) + np.logaddexp(0, -u), bounds=(w, w + V),
                                   method="bounded", options={"xatol": 1e-9})  # fmt: skip
            return best.x

        s = np.sqrt(1 - m**2 / q)
        step = lambda xi, m=m, q=q, s=s: m / np.sqrt(q) * xi / s  # noqa: E731
        f = lambda xi, V=V, q=q: (prox(np.sqrt(q) * xi) - np.sqrt(q) * xi) / V  # noqa: E731
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        weights = weights / np.sqrt(2 * np.pi)
        force = np.array([f(x) for x in nodes])
        m_hat = 2 * alpha * weights @ (norm.pdf(step(nodes)) / s * force)
        q_hat = 2 * alpha * weights @ (norm.cdf(step(nodes)) * force**2)
        z = np.sqrt(q) * nodes + V * force
        curvature = 1 / (2 + 2 * np.cosh(z))
        V_hat = 2 * alpha * weights @ (norm.cdf(step(nodes)) * curvature / (1 + V * curvature))
        V_new = 1 / (lam + V_hat)
        m, q, V = 0.5 * m + 0.5 * m_hat * V_new, 0.5 * q + 0.5 * V_new**2 * (m_hat**2 + q_hat), 0.5 * V + 0.5 * V_new
    out = sv.Perceptron(samples=alpha, penalty=lam).theory()
    np.testing.assert_allclose([out.overlap, out.norm, out.response], [m, q, V], rtol=1e-6)


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_limits_few_samples_many_samples_and_strong_penalty(loss):
    few = sv.Perceptron(loss=loss, samples=1e-4, penalty=0.1).theory()
    assert abs(few.test_error - 0.5) < 0.01
    strong = sv.Perceptron(loss=loss, samples=2.0, penalty=1e4).theory()
    hebb = np.arccos(1 / np.sqrt(1 + np.pi / (2 * 2.0))) / np.pi  # w proportional to Σ y x
    assert abs(strong.test_error - hebb) < 1e-3
    many = sv.Perceptron(loss=loss, samples=200.0, penalty=0.1, noise=0.5).theory()
    floor = np.arccos(1 / np.sqrt(1.5)) / np.pi
    assert floor < many.test_error < floor + 0.01
    assert floor < many.bayes_error <= many.test_error


def test_bayes_error_has_the_known_tail_and_bounds_every_loss():
    tail = sv.Perceptron(loss="square", samples=[50.0, 100.0, 200.0]).theory()
    np.testing.assert_allclose(tail.bayes_error * np.array([50.0, 100.0, 200.0]), 0.4417, atol=0.004)
    for loss in ("square", "logistic"):
        for samples in (0.3, 1.5, 8.0):
            out = sv.Perceptron(loss=loss, samples=samples, penalty=[0.01, 0.1, 1.0]).theory()
            assert bool(jnp.all(out.bayes_error <= out.test_error + 1e-9))


def test_logistic_approaches_the_maximum_margin_of_hinge_as_the_penalty_vanishes():
    """The approach is logarithmic in the penalty, so only its direction is tested; the training error is exactly zero."""
    out = sv.Perceptron(samples=2.0, penalty=[1e-2, 1e-5, 1e-8]).theory()
    hinge = sv.Perceptron(loss="hinge", samples=2.0, penalty=1e-8).theory()
    gaps = np.abs(np.asarray(out.test_error) - float(hinge.test_error))
    assert gaps[0] > gaps[1] > gaps[2]
    assert out.train_error[2] < 1e-12


@settings(max_examples=40, deadline=None)
@given(st.floats(-1, 1.5), st.floats(-4, 2), st.floats(0, 2))
def test_overlaps_obey_cauchy_schwarz_and_no_learner_beats_bayes(log_samples, log_penalty, noise):
    out = sv.Perceptron(samples=10**log_samples, penalty=10**log_penalty, noise=noise).theory()
    assert out.converged
    assert out.overlap**2 <= out.norm
    assert 0 <= out.bayes_error <= out.test_error <= 0.5
    assert out.train_loss <= out.test_loss + 1e-12


def test_a_linear_teacher_refuses_classification_losses():
    with pytest.raises(sv.InvalidValue, match="loss = 'hinge' needs labels ±1"):
        sv.Perceptron(loss="hinge", teacher="linear")


def test_population_averages_given_the_weights_match_a_fresh_test_set():
    model = sv.Perceptron(loss="logistic", samples=1.5, noise=0.3)
    rng = np.random.default_rng(0)
    q, cosine = 2.3, 0.6
    n = 400_000
    field = rng.normal(size=n)
    z = np.sqrt(q) * (cosine * field + np.sqrt(1 - cosine**2) * rng.normal(size=n))
    y = np.sign(field)  # the noisy field in units of its own standard deviation
    losses = np.logaddexp(0, -y * z)
    error = losses.std() / np.sqrt(n)
    assert abs(model._population_loss(jnp.asarray(q), jnp.asarray(cosine)) - losses.mean()) < 4 * error
    assert abs(np.mean(y * z < 0) - np.arccos(cosine) / np.pi) < 4 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_simulations_agree_with_theory_within_error_bars(loss):
    model, size, lanes = sv.Perceptron(loss=loss, samples=1.5, penalty=0.1, noise=0.1), 120, 24
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(7), i))(jnp.arange(lanes))
    out = simulate_batch(model, {}, keys, size)
    theory = model.realised(size).theory()
    assert bool(out["converged"].all())
    for name in ("test_error", "test_loss", "train_loss", "train_error", "overlap", "norm"):
        mean, error = out[name].mean(), out[name].std(ddof=1) / np.sqrt(lanes)
        assert abs(mean - theory[name]) < 4.5 * error + 1.0 / size * abs(theory[name]), name


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_every_allowed_number_of_samples_is_computed(loss):
    """Without label noise the Bayes-optimal overlap is within 10⁻⁸ of one, which must not be found by subtraction."""
    samples = np.geomspace(1e3, 1e4, 23)
    outcome = sv.Perceptron(loss=loss, noise=0.0).replace(samples=np.r_[samples, 5000.0, 9000.0]).theory()
    assert np.asarray(outcome.converged).all()
    error = np.asarray(outcome["bayes_error"])
    np.testing.assert_allclose(error[:23] * samples, error[0] * samples[0], rtol=2e-3)  # ∝ 1/α


def test_norms_of_many_clean_samples_do_not_depend_on_the_nodes():
    """Without noise only the penalty limits the norm, which then magnifies errors of the averages by 10⁴."""
    model = sv.Perceptron(loss="logistic", noise=0.0, samples=[1600.0, 1e4], penalty=[[1e-6], [3e-3]])
    norm, finer = model.theory()["norm"], model.theory({"nodes": 48})["norm"]
    np.testing.assert_allclose(norm, finer, rtol=1e-8)
