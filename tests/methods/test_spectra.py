"""Joint spectra: from matrices, by hand, by name; refusals and their messages."""

import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.random_matrices.spectra import (
    activation_named,
    clouds,
    equivalent,
    features,
    hidden_manifold,
    joint_spectrum,
    nonlinearity,
    of_matrices,
    orthogonal_features,
)

RNG = np.random.default_rng(3)


def of_projection(F, linear, rest):
    """(Ψ, Φ, Ω) of the Gaussian equivalent x = κ1 Fᵀc/√d + κ⋆z of random features."""
    d, p = F.shape
    return np.eye(d), linear * F / np.sqrt(d), linear**2 * F.T @ F / d + rest**2 * np.eye(p)


@pytest.mark.parametrize("p", [20, 60])
def test_matrices_of_orthogonal_features_have_the_spectrum_of_orthogonal_features(p):
    d = 40
    Q = np.linalg.qr(RNG.normal(size=(max(d, p), min(d, p))))[0]
    F = np.sqrt(d) * Q if p <= d else np.sqrt(p) * Q.T
    found = of_matrices(*of_projection(F, 0.7, 0.4))
    named = orthogonal_features(jnp.asarray(p / d), 0.7, 0.4)
    for f in (lambda w, t: w, lambda w, t: t, lambda w, t: t / (w + 0.3) ** 2, lambda w, t: w**2 / (w + 0.1)):
        np.testing.assert_allclose(*(s.weights @ f(s.omega, s.tau) for s in (found, named)), rtol=1e-12)
    np.testing.assert_allclose(found.unexplained, named.unexplained, rtol=1e-12)


def test_an_isotropic_teacher_is_the_mean_over_teachers_of_all_directions():
    mixing = RNG.normal(size=(11, 30))
    joint = mixing @ mixing.T
    Psi, Phi, Omega = joint[:4, :4], joint[:4, 4:], joint[4:, 4:]
    mean = of_matrices(Psi, Phi, Omega)
    lengths = np.diag(Psi) / np.trace(Psi)
    each = [of_matrices(Psi, Phi, Omega, row) for row in np.eye(4)]
    np.testing.assert_allclose(mean.tau, sum(a * s.tau for a, s in zip(lengths, each, strict=True)), rtol=1e-10)
    theta = RNG.normal(size=4)  # whatever its length, the field has unit variance
    np.testing.assert_allclose(
        of_matrices(Psi, Phi, Omega, theta).tau, of_matrices(Psi, Phi, Omega, 5 * theta).tau, rtol=1e-10
    )


def test_flat_directions_show_no_teacher():
    x = np.diag([2.0, 1.0, 0.0])
    found = of_matrices(np.eye(2), np.eye(2, 3), x, [0.0, 1.0])
    assert found.omega.tolist() == [0.0, 1.0, 2.0]
    assert found.tau.tolist() == [0.0, 3.0, 0.0]
    assert abs(found.unexplained) < 1e-12


def test_any_activation_has_the_coefficients_that_named_ones_are_known_to_have():
    for name, function, kinks in (
        ("tanh", jnp.tanh, ()),
        ("sign", jnp.sign, (0.0,)),
        ("relu", lambda z: jnp.maximum(z, 0.0), (0.0,)),
    ):
        mine, known = nonlinearity(function, kinks), activation_named(name)
        np.testing.assert_allclose([mine.linear, mine.rest], [known.linear, known.rest], atol=1e-13)
        z = jnp.asarray([-0.3, 1.2])
        np.testing.assert_allclose(mine.function(z), known.function(z), atol=1e-13)
    assert abs(equivalent(lambda z: (z > 0.3) * 1.0, kinks=(0.3,))[0] - 0.3820885778110474) < 1e-13


def test_the_hidden_manifold_is_random_features_read_the_other_way_round():
    for projection in ("gaussian", "orthogonal"):
        ours = hidden_manifold(jnp.asarray(0.5), nonlinearity(jnp.tanh), projection)
        for a, b in zip(ours, features(jnp.asarray(2.0), "tanh", projection), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-13)


def test_a_cloud_s_signal_is_its_mahalanobis_distance():
    mixing = RNG.normal(size=(5, 9))
    Omega, mean = mixing @ mixing.T, RNG.normal(size=5)
    s = clouds(mean, Omega)
    np.testing.assert_allclose(s.weights @ (s.tau / s.omega), mean @ np.linalg.solve(Omega, mean), rtol=1e-10)


EYE = np.eye(2)
WRONG = {
    "Psi has shape (2,); it must be a matrix": lambda: of_matrices([1.0, 2.0], EYE, EYE),
    "Omega has shape (2, 3); a covariance must be square": lambda: of_matrices(EYE, EYE, np.ones((2, 3))),
    "Omega differs from its transpose by 0.5": lambda: of_matrices(EYE, EYE, [[1.0, 0.5], [0.0, 1.0]]),
    "Psi has the eigenvalue -1; a covariance": lambda: of_matrices(np.diag([1.0, -1.0]), EYE, EYE),
    "Phi has shape (2, 3); Psi and Omega require (2, 2)": lambda: of_matrices(EYE, np.ones((2, 3)), EYE),
    "Phi is larger than Psi and Omega allow": lambda: of_matrices(EYE, 1.2 * EYE, EYE),
    "theta has shape (3,); Psi requires (2,)": lambda: of_matrices(EYE, EYE, EYE, np.ones(3)),
    "theta gives a field of variance 0": lambda: of_matrices(EYE, EYE, EYE, np.zeros(2)),
    "Phi has an entry nan": lambda: of_matrices(EYE, np.full((2, 2), np.nan), EYE),
    "Omega = 'one' is not an array": lambda: of_matrices(EYE, EYE, "one"),
    "Omega is zero": lambda: of_matrices(EYE, 0 * EYE, 0 * EYE),
    "tau has shape (1,)": lambda: joint_spectrum([1.0, 2.0], [1.0]),
    "omega[1] = -2 is negative": lambda: joint_spectrum([1.0, -2.0], [0.0, 0.0]),
    "weights sum to 1.5": lambda: joint_spectrum([1.0, 2.0], [0.0, 0.0], [1.0, 0.5]),
    "tau[1] = 1 must be 0 where omega is 0": lambda: joint_spectrum([1.0, 0.0], [0.0, 1.0]),
    "the mean of tau/omega is 2": lambda: joint_spectrum([1.0], [2.0]),
    "unexplained = 3 is not a number in [0, 1]": lambda: joint_spectrum([1.0], [0.5], None, 3),
    "mean has shape (3,)": lambda: clouds(np.ones(3), EYE),
    "there is no projection 'gausian'; did you mean 'gaussian'?": lambda: features(jnp.ones(()), "tanh", "gausian"),
    "κ1 = 0 and κ⋆ = 0": lambda: nonlinearity(lambda z: 0 * z),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_input_is_refused_in_one_sentence_with_field_and_value(sentence):
    with pytest.raises(sv.SolvableError) as problem:
        WRONG[sentence]()
    message = str(problem.value)
    assert sentence in message
    assert "\n" not in message
    assert message[-1] in ".?"
