import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from solvable.methods.averages.activations import activation
from solvable.methods.averages.quadrature import (
    gaussian_average,
    gaussian_average_2d,
    gaussian_average_2d_split,
    gaussian_average_split,
    hermite,
)


def test_hermite_rule_is_exact_for_polynomials_up_to_its_degree():
    x, w = hermite(6)
    moments = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0, 945]
    np.testing.assert_allclose([w @ x**k for k in range(11)], moments, atol=1e-10)


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_smooth_average_matches_adaptive_quadrature_and_is_converged(slope):
    exact = integrate.quad(lambda t: norm.pdf(t) * np.tanh(slope * t + 0.4) ** 2, -12, 12, epsabs=1e-14, limit=200)[0]
    f = lambda x: jnp.tanh(slope * x + 0.4) ** 2  # noqa: E731
    stated = np.exp(-np.pi / (2 * slope) * np.sqrt(2 * 64)) * 20 + 1e-13
    assert abs(gaussian_average(f, nodes=64) - exact) < stated


def test_split_average_is_exact_where_an_unsplit_rule_is_not():
    f = lambda x: jnp.where(x < 1.9, jnp.maximum(x - 0.7, 0.0), 0.0)  # noqa: E731
    exact = integrate.quad(lambda t: norm.pdf(t) * (t - 0.7), 0.7, 1.9, epsabs=1e-14)[0]
    assert abs(gaussian_average_split(f, jnp.asarray([1.9, 0.7, -3.0, 3.0])) - exact) < 1e-14
    assert abs(gaussian_average(f, nodes=64) - exact) > 1e-4


def test_split_average_resolves_a_steep_step_and_differentiates_through_its_breaks():
    def mass(cut):
        return gaussian_average_split(lambda x: (x > cut).astype(float), jnp.stack([cut, cut - 3, cut + 3]))

    assert abs(mass(jnp.asarray(0.5)) - norm.sf(0.5)) < 1e-14
    assert abs(jax.grad(mass)(0.5) + norm.pdf(0.5)) < 1e-12


def test_correlated_pair_average_matches_closed_forms_also_when_singular():
    c = jnp.asarray([[1.5, -0.7], [-0.7, 2.0]])
    assert abs(gaussian_average_2d(lambda x, y: x**2 * y**2, c) - (1.5 * 2.0 + 2 * 0.7**2)) < 1e-11
    singular = jnp.asarray([[1.0, 2.0], [2.0, 4.0]])
    assert abs(gaussian_average_2d(lambda x, y: (y - 2 * x) ** 2 + x**4, singular) - 3.0) < 1e-10
    assert (
        abs(gaussian_average_2d(lambda x, y: jnp.cos(y), jnp.asarray([[0.0, 0.0], [0.0, 1.0]])) - np.exp(-0.5)) < 1e-12
    )


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.5, 0.99])
@pytest.mark.parametrize("name", ["relu", "sign"])
def test_split_pair_average_matches_the_closed_forms_of_kinked_activations(name, correlation):
    c = jnp.asarray([[1.3, correlation * np.sqrt(1.3 * 0.7)], [correlation * np.sqrt(1.3 * 0.7), 0.7]])
    g, zero = activation(name), jnp.zeros(1)
    rule = jax.jit(lambda c: gaussian_average_2d_split(lambda x, y: g.function(x) * g.function(y), c, zero, zero))
    assert abs(rule(c) - g.I2(c[0, 0], c[0, 1], c[1, 1])) < 2e-12


def test_split_pair_average_has_kinks_anywhere_and_is_converged():
    c = jnp.asarray([[1.0, -0.7], [-0.7, 2.0]])

    def rule(nodes):
        f = lambda x, y: jnp.where(x > 0.4, 1.0, x) * jnp.abs(y + 1.1)  # noqa: E731
        return gaussian_average_2d_split(f, c, jnp.asarray([0.4]), jnp.asarray([-1.1]), nodes)

    assert abs(rule(20) - rule(40)) < 1e-12
