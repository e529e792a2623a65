"""Hermite algebra: closed forms, Mehler's sum, drawn latents, laws made of moments, refusals."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_hermitenorm

from solvable.errors import InvalidValue
from solvable.methods.averages.hermite import (
    LATENTS,
    atoms_with_moments,
    coefficients,
    hermite_moments,
    hermite_values,
    information_exponent,
    mixed_coefficients,
    raw_moments,
)


def test_values_are_those_of_scipy():
    x = np.linspace(-4, 4, 9)
    expected = np.stack([eval_hermitenorm(k, x) for k in range(13)])
    np.testing.assert_allclose(hermite_values(jnp.asarray(x), 12), expected, rtol=1e-12, atol=1e-9)


def test_coefficients_of_relu_exponential_and_logarithm_of_cosh():
    root = np.sqrt(2 * np.pi)
    relu = coefficients(lambda z: jnp.maximum(z, 0.0), 6, kinks=(0.0,))
    np.testing.assert_allclose(relu, [1 / root, 0.5, 1 / root, 0, -1 / root, 0, 3 / root], atol=1e-12)
    # E[e^{tz} He_k] = t^k e^{t²/2}
    np.testing.assert_allclose(
        coefficients(lambda z: jnp.exp(0.7 * z), 8), 0.7 ** np.arange(9) * np.exp(0.245), rtol=1e-12
    )
    # -exp(-z²/2): c_0 = -1/√2, c_2 = 1/(2√2), c_4 = -3/(4√2)
    bell = coefficients(lambda z: -jnp.exp(-(z**2) / 2), 4)
    np.testing.assert_allclose(bell, np.array([-1, 0, 0.5, 0, -0.75]) / np.sqrt(2), atol=1e-13)
    # Stein: c_k of f is c_{k-1} of its derivative
    above = coefficients(lambda z: jnp.logaddexp(z, -z) - jnp.log(2.0), 6)
    np.testing.assert_allclose(above[1:], coefficients(jnp.tanh, 5), atol=1e-12)


@pytest.mark.parametrize("latent", LATENTS)
def test_moments_are_those_of_drawn_latents(latent):
    rng, n = np.random.default_rng(1), 400_000
    g = {
        "rademacher": lambda: rng.choice([-1.0, 1.0], n),
        "uniform": lambda: rng.uniform(-np.sqrt(3), np.sqrt(3), n),
        "laplace": lambda: rng.laplace(scale=np.sqrt(0.5), size=n),
        "gaussian": lambda: rng.normal(size=n),
    }[latent]()
    drawn = np.stack([eval_hermitenorm(k, g) for k in range(5)])
    expected = hermite_moments(raw_moments(latent, 4))
    assert np.all(np.abs(drawn.mean(axis=1) - expected) < 4.5 * drawn.std(axis=1) / np.sqrt(n) + 1e-12)


def test_high_orders_of_a_laplace_latent_keep_their_digits():
    """h_k/k! = 2^{-k/2} Σ_{j ≤ k/2} (-1)^j/j!, from the generating function e^{-s²/2}/(1 - s²/2)."""
    from math import factorial

    found = hermite_moments(raw_moments("laplace", 20))
    for k in range(0, 21, 2):
        exact = factorial(k) * 2 ** (-k / 2) * sum((-1) ** j / factorial(j) for j in range(k // 2 + 1))
        assert found[k] == pytest.approx(exact, rel=1e-9)


def test_noise_shrinks_a_moment_by_the_power_of_its_order():
    z, w = np.polynomial.hermite_e.hermegauss(40)
    w = w / w.sum()
    for g in (-1.3, 0.4, 2.0):
        seen = eval_hermitenorm(np.arange(7)[:, None], 0.6 * g + 0.8 * z) @ w
        np.testing.assert_allclose(seen, 0.6 ** np.arange(7) * eval_hermitenorm(np.arange(7), g), atol=1e-10)


def test_the_information_exponent_is_the_first_order_in_common():
    quartic = np.asarray(coefficients(lambda z: z**4, 6))
    assert information_exponent(quartic) == 2
    assert information_exponent(quartic * hermite_moments(raw_moments("uniform", 6))) == 4
    assert information_exponent(quartic * hermite_moments(raw_moments("gaussian", 6))) == 0


def test_a_law_made_of_moments_has_them():
    skewed = np.array([1.0, 0.0, 1.0, 0.5])
    values, chances = atoms_with_moments(skewed)
    np.testing.assert_allclose(chances @ values[:, None] ** np.arange(4), skewed, atol=1e-12)
    values, chances = atoms_with_moments(raw_moments("uniform", 9))
    np.testing.assert_allclose(values, np.sqrt(3) * np.polynomial.legendre.leggauss(5)[0], atol=1e-9)
    with pytest.raises(InvalidValue, match="Hankel matrix is not positive"):
        atoms_with_moments(np.array([1.0, 0.0, 1.0, 0.0, 0.5, 0.0]))  # E g⁴ below (E g²)²


@pytest.mark.parametrize("correlated", [True, False])
def test_mixed_coefficients_are_those_of_drawn_samples(correlated):
    rng, n, ratio = np.random.default_rng(2), 1_000_000, 8 / 9
    latent = rng.normal(size=n)
    nu = np.sign(latent) if correlated else rng.choice([-1.0, 1.0], n)
    s, t = np.sqrt(2.0) * latent + rng.normal(size=n), np.sqrt(ratio) * nu + np.sqrt(1 - ratio) * rng.normal(size=n)
    size, weight = np.polynomial.hermite_e.hermegauss(60)
    weight = weight / weight.sum()
    if correlated:
        exact = mixed_coefficients(np.sqrt(2.0) * size, np.sign(size), weight, ratio, 4)
        exact[1, 1] = exact[0, 0] * np.sqrt(2 * ratio) * np.sqrt(2 / np.pi)  # |λ| has a kink: closed form
    else:
        both = np.concatenate([size, size])
        exact = mixed_coefficients(np.sqrt(2.0) * both, np.repeat([1.0, -1.0], 60), np.tile(weight, 2) / 2, ratio, 4)
    for i, j in ((1, 1), (2, 0), (0, 4), (2, 2), (0, 3)):
        drawn = eval_hermitenorm(i, s) * eval_hermitenorm(j, t)
        assert abs(drawn.mean() - exact[i, j]) < 4 * drawn.std() / np.sqrt(n), (i, j)
