"""The covariate engine: limits, a second implementation, spectra, Gaussian equivalence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import solvable as sv
from solvable.methods.risk.channels import sign_channel
from solvable.methods.risk.covariate import (
    ACTIVATIONS,
    activation_named,
    equivalent,
    gaussian_features,
    isotropic,
    orthogonal_features,
    power_law,
    sign_student,
    square_student,
)
from solvable.methods.risk.losses import Square, loss_named

ONE, NONE = jnp.ones(()), jnp.zeros(())


def sign_correlation(noise):
    return jnp.sqrt(2 / (np.pi * (1 + noise)))


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_an_isotropic_spectrum_is_the_perceptron(loss):
    samples, penalty, noise = jnp.asarray(1.7), jnp.asarray(0.03), jnp.asarray(0.2)
    if loss == "square":
        found = square_student(isotropic(), samples, penalty, ONE, sign_correlation(noise), noise)
    else:
        found = sign_student(loss_named(loss), isotropic(), samples, penalty, noise)
    plain = sv.Perceptron(loss=loss, samples=samples, penalty=penalty, noise=noise).theory()
    np.testing.assert_allclose([found.m, found.q, found.V], [plain.overlap, plain.norm, plain.response], rtol=1e-11)
    np.testing.assert_allclose(found.rest, 1 - found.m**2 / found.q + noise, rtol=1e-12)


def test_wide_orthogonal_linear_features_are_the_perceptron():
    """For p ≥ d and σ(z) = z, w·x/√p = (Fw/√p)·c/√d with |Fw/√p| = |w| on the d directions seen: the same penalty."""
    width, samples = jnp.asarray(2.0), jnp.asarray(3.0)
    found = sign_student(
        loss_named("logistic"), orthogonal_features(width, 1.0, 1e-9), samples / width, jnp.asarray(0.1), NONE
    )
    plain = sv.Perceptron(samples=3.0, penalty=0.1).theory()
    np.testing.assert_allclose([found.m, found.q, found.V], [plain.overlap, plain.norm, plain.response], rtol=1e-9)


def test_square_closed_form_solves_the_saddle_point_that_every_loss_is_solved_with():
    spectrum, noise = power_law(jnp.asarray(1.3), jnp.asarray(0.4), 200), jnp.asarray(0.3)
    samples, penalty = jnp.asarray(0.8), jnp.asarray(0.02)
    closed = square_student(spectrum, samples, penalty, ONE, sign_correlation(noise), noise)
    solved = sign_student(Square(), spectrum, samples, penalty, noise, nodes=24)
    assert solved.converged
    for a, b in zip(closed[:4], solved[:4], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_the_saddle_point_in_its_plain_form_holds():
    """V = <ωR>, m = m̂<τR>, q = <(m̂²τω + q̂ω²)R²>, R = 1/(λ + V̂ω), with nothing rescaled."""
    spectrum = gaussian_features(jnp.asarray(1.6), 0.6, 0.3, 80)
    samples, penalty, noise = jnp.asarray(0.9), jnp.asarray(0.01), jnp.asarray(0.1)
    m, q, V, rest, _, converged = sign_student(loss_named("logistic"), spectrum, samples, penalty, noise)
    hat = sign_channel(loss_named("logistic"), m, q, V, rest, 20)
    m_hat, q_hat, V_hat = (float(samples * h) for h in hat)
    omega, tau, w = (np.asarray(v) for v in spectrum[:3])
    R = 1 / (float(penalty) + V_hat * omega)
    assert converged
    np.testing.assert_allclose(V, w @ (omega * R), rtol=1e-9)
    np.testing.assert_allclose(m, m_hat * w @ (tau * R), rtol=1e-9)
    np.testing.assert_allclose(q, w @ ((m_hat**2 * tau * omega + q_hat * omega**2) * R**2), rtol=1e-9)
    np.testing.assert_allclose(rest, 1 - m**2 / q + noise, rtol=1e-9)


def test_ridge_over_a_power_law_matches_ridge_regression_at_finite_size():
    """Second implementation: normal equations on drawn data, with exact population averages given the weights."""
    p, n, penalty, noise = 400, 300, 0.05, 0.1
    spectrum = power_law(jnp.asarray(1.2), jnp.asarray(0.6), p)
    found = square_student(spectrum, jnp.asarray(n / p), jnp.asarray(penalty), ONE + noise, ONE, NONE + noise)
    rng, omega = np.random.default_rng(0), np.asarray(spectrum.omega)
    theta = np.sqrt(np.asarray(spectrum.tau)) / omega
    measured = []
    for _ in range(16):
        x = rng.normal(size=(n, p)) * np.sqrt(omega / p)
        y = x @ theta + np.sqrt(noise) * rng.normal(size=n)
        w = np.linalg.solve(x.T @ x + penalty * np.eye(p), x.T @ y)
        measured.append([np.mean(omega * theta * w), np.mean(omega * w**2)])
    mean, error = np.mean(measured, 0), np.std(measured, 0, ddof=1) / 4
    assert np.all(np.abs(mean - np.array([found.m, found.q])) < 4 * error + 3 / p)
    assert np.all(error < 0.02)


@pytest.mark.parametrize("width", [0.3, 0.99, 1.0, 1.004, 3.0])
def test_gaussian_features_average_like_marchenko_and_pastur_also_near_width_one(width):
    spectrum = gaussian_features(jnp.asarray(width), 0.8, 0.6, 96)
    low, high = (1 - np.sqrt(width)) ** 2, (1 + np.sqrt(width)) ** 2

    def mean(f):
        # In the square root of s the law is smooth down to an edge at zero.
        u = lambda t: 2 * t * f(t**2) * np.sqrt(max((high - t**2) * (t**2 - low), 0)) / (2 * np.pi * width * t**2)  # noqa: E731
        a, b = np.sqrt(low), np.sqrt(high)
        return quad(u, a, b, points=[a + 0.01, a + 0.1], limit=400, epsabs=1e-12)[0] + max(1 - 1 / width, 0) * f(0.0)

    omega = lambda s: 0.64 * s + 0.36  # noqa: E731
    for f in (lambda s: 1 / (omega(s) + 0.01), lambda s: (s / (omega(s) + 0.3)) ** 2, lambda s: 1.0):
        ours = spectrum.weights @ jnp.asarray([f(s) for s in (np.asarray(spectrum.omega) - 0.36) / 0.64])
        assert abs(ours - mean(f)) < 1e-8
    assert abs(spectrum.unexplained - (1 - width * mean(lambda s: 0.64 * s / omega(s)))) < 1e-8


def test_the_unexplained_part_is_what_the_reachable_part_leaves():
    for width in (0.4, 1.0, 2.5):
        for spectrum in (
            gaussian_features(jnp.asarray(width), 0.5, 0.3, 96),
            orthogonal_features(jnp.asarray(width), 0.5, 0.3),
        ):
            reach = spectrum.weights @ (spectrum.tau / spectrum.omega)
            np.testing.assert_allclose(spectrum.unexplained, 1 - reach, atol=1e-12)
            np.testing.assert_allclose(spectrum.weights @ spectrum.omega, 0.34, rtol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_no_mean_and_the_stated_coefficients(name):
    sigma = activation_named(name)

    def mean(f):
        density = lambda z: f(z) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)  # noqa: E731
        return quad(density, -12, 0, epsabs=1e-12)[0] + quad(density, 0, 12, epsabs=1e-12)[0]

    value = lambda z: float(sigma.function(jnp.asarray(z)))  # noqa: E731
    assert abs(mean(value)) < 1e-10
    assert abs(mean(lambda z: z * value(z)) - sigma.linear) < 1e-10
    assert abs(mean(lambda z: (value(z) - sigma.linear * z) ** 2) - sigma.rest**2) < 1e-10


def test_coefficients_by_the_trapezoidal_rule_do_not_move_with_its_step():
    np.testing.assert_allclose(equivalent(np.tanh, 0.1), equivalent(np.tanh, 0.03), atol=1e-14)


def test_an_unknown_activation_is_refused_in_one_sentence():
    with pytest.raises(sv.UnknownName, match="there is no activation 'tahn'"):
        activation_named("tahn")


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_penalties_from_1e_minus_8_to_1e4_converge_through_interpolation_and_separability(loss):
    ratio = jnp.asarray([0.1, 0.3, 0.35, 0.37, 0.4, 0.8, 1.0, 1.2, 3.0, 10.0])
    penalty = jnp.asarray([1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4])

    def point(features, penalty):
        spectrum = gaussian_features(3 * features, 0.8, 0.6, 96)
        return sign_student(loss_named(loss), spectrum, 1 / features, penalty, NONE)

    found = jax.jit(jax.vmap(jax.vmap(point, (None, 0)), (0, None)))(ratio, penalty)
    assert bool(found.converged.all())
    assert float(found.residual.max()) < 1e-10
    assert bool(jnp.all(found.m**2 <= found.q))
