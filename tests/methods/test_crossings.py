"""Probabilities of signs: known zeros, many zeros, none, derivatives against differences, NaN for NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from solvable.models.online.xor_curriculum.crossings import probability_negative


def cubic(z, zeros):
    return (z - zeros[0]) * (z - zeros[1]) * (z - zeros[2])


@pytest.mark.parametrize("zeros", [(-1.0, 0.3, 2.1), (-4.0, -0.2, 0.2), (0.0, 1.5, 3.0)])  # the last: zeros on nodes
def test_the_mass_between_known_zeros_and_its_derivatives(zeros):
    a, b, c = zeros
    value, slopes = jax.value_and_grad(lambda x: probability_negative(cubic, x))(jnp.asarray(zeros))
    assert float(value) == pytest.approx(norm.cdf(a) + norm.cdf(c) - norm.cdf(b), abs=1e-13)
    np.testing.assert_allclose(slopes, norm.pdf(zeros) * [1, -1, 1], atol=1e-7)
    forward = jax.jacfwd(lambda x: probability_negative(cubic, -x))(-jnp.asarray(zeros))
    np.testing.assert_allclose(forward, -slopes, rtol=1e-12)


def test_lanes_with_different_numbers_of_zeros():
    """sin(kz + 1) in one batch: its zeros by the formula."""
    frequencies = np.array([0.3, 1.0, 4.0, 9.0])
    batch = jax.vmap(lambda k: probability_negative(lambda z, k: jnp.sin(k * z + 1.0), k, 129))(
        jnp.asarray(frequencies)
    )
    for k, found in zip(frequencies, batch, strict=True):
        n = np.arange(-40, 40)
        exact = np.sum(norm.cdf(((2 * n + 2) * np.pi - 1) / k) - norm.cdf(((2 * n + 1) * np.pi - 1) / k))
        assert float(found) == pytest.approx(exact, abs=3e-9)


def test_zero_counts_half_and_nan_stays_nan():
    assert float(probability_negative(lambda z, a: a * z, 0.0)) == 0.5
    assert float(probability_negative(lambda z, a: a + z**2, 1e-9)) == 0.0
    assert float(probability_negative(lambda z, a: a - z**2, -1e-9)) == 1.0
    value, slope = jax.value_and_grad(lambda a: probability_negative(lambda z, a: a + z, a))(np.nan)
    assert np.isnan(value)
    assert np.isnan(slope)


def test_an_average_over_the_other_directions_is_the_probability_in_all_of_them():
    """P[xy < 0.3] of two normals with correlation, one kept aside; value by sampling, derivative by differences."""

    def wanted(correlation):
        x = jnp.asarray(norm.ppf((np.arange(2000) + 0.5) / 2000))
        root = jnp.sqrt(1 - correlation**2)
        lines = jax.vmap(
            lambda x: probability_negative(lambda z, a: x * (a[0] * x + a[1] * z) - 0.3, (correlation, root))
        )
        return jnp.mean(lines(x))

    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 4_000_000))
    drawn = np.mean(x * (0.6 * x + 0.8 * z) < 0.3)
    assert float(wanted(0.6)) == pytest.approx(drawn, abs=4 * np.sqrt(0.25 / 4e6))
    difference = (wanted(0.6 + 1e-4) - wanted(0.6 - 1e-4)) / 2e-4
    assert float(jax.grad(wanted)(0.6)) == pytest.approx(float(difference), rel=1e-5)


def test_a_second_derivative_is_nan_rather_than_wrong():
    assert np.isnan(jax.hessian(lambda x: probability_negative(cubic, x))(jnp.array([-1.0, 0.3, 2.1]))).all()
