"""Surrogates of binary networks: criticality, closed forms, other laws of the means, finite networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.quadrature import gaussian_average_2d
from solvable.model import simulate_batch


def test_tanh_without_biases_is_critical_only_at_means_of_one():
    s = np.array([0.5, 0.9, 0.99, 0.999])
    scale = sv.BinaryInitialisation(variance=s, bias_variance=0.0, depth=1).theory().depth_scale
    np.testing.assert_allclose(scale, -1 / np.log(s), rtol=1e-7)
    cut = sv.BinaryInitialisation(variance=s, bias_variance=0.01, depth=1).theory().depth_scale
    assert np.all(cut[1:] < scale[1:])
    assert cut[-1] < 20  # a bias cuts the divergence off


def test_erf_and_sampled_surrogates_are_never_critical():
    s = np.linspace(0.05, 1.0, 12)
    erf = sv.BinaryInitialisation(activation="erf", variance=s, bias_variance=0.0, depth=1).theory().depth_scale
    assert np.max(erf) < 2.22
    found = sv.BinaryInitialisation(surrogate="sampled", variance=s, bias_variance=0.01, depth=1).theory()
    assert np.all(found.converged)
    assert np.max(found.fixed_correlation) < 0.95
    assert np.max(found.depth_scale) < 3
    identical = sv.BinaryInitialisation(surrogate="sampled", variance=0.9, input_overlap=1.0).theory().correlation
    assert identical[0] == 1
    assert np.all(identical[1:] < 0.9)  # two copies of an input diverge


def test_closed_forms_of_erf_are_the_averages():
    model = sv.BinaryInitialisation(activation="erf", variance=0.7, bias_variance=0.1, gain=1.3, depth=2)
    found = model.theory()
    q, c = found.length[0], found.correlation[0]
    phi = lambda h: jax.lax.erf(1.3 * h / np.sqrt(2))  # noqa: E731
    A = gaussian_average_2d(lambda x, y: phi(x) ** 2, q * jnp.eye(2))
    B = gaussian_average_2d(lambda x, y: phi(x) * phi(y), q * jnp.asarray([[1.0, float(c)], [float(c), 1.0]]))
    np.testing.assert_allclose(found.length[1], (0.7 * A + 0.1) / (1 - 0.7 * A), rtol=1e-8)
    np.testing.assert_allclose(found.correlation[1], (0.7 * B + 0.1) / (0.7 * A + 0.1), rtol=1e-8)


@pytest.mark.parametrize("bias", [1e-8, 1e-3, 0.3])
def test_lengths_of_deterministic_neurons_change_through_biases_alone(bias):
    """q' = s/(1-s) + b/((1-s)A), A = (2/π) asin(q/(1+q)) for erf: its slope is small, and known to all digits."""
    s = 0.5
    found = sv.BinaryInitialisation(
        activation="erf", neurons="deterministic", variance=s, bias_variance=bias, depth=1
    ).theory()
    q = float(found.fixed_length)
    A, rise = 2 / np.pi * np.arcsin(q / (1 + q)), 2 / np.pi / ((1 + q) * np.sqrt(1 + 2 * q))
    np.testing.assert_allclose(found.length_scale, -1 / np.log(bias * rise / ((1 - s) * A**2)), rtol=1e-10)
    without = sv.BinaryInitialisation(neurons="deterministic", variance=s, bias_variance=0.0, depth=1).theory()
    assert float(without.length_scale) == 0  # lengths are at their fixed point after one layer


@pytest.mark.parametrize("values", [{}, {"surrogate": "sampled"}, {"neurons": "deterministic", "variance": 0.5}])
def test_the_slope_is_the_derivative_of_the_map_at_its_fixed_point(values):
    model = sv.BinaryInitialisation(**{"variance": 0.9, "bias_variance": 0.1, "depth": 2, **values})
    found = model.theory()
    _, correlation, _ = model._maps(64)
    q, c = found.fixed_length, found.fixed_correlation
    step = 1e-5
    slope = (correlation(q, c) - correlation(q, c - step)) / step
    np.testing.assert_allclose(found.depth_slope, slope, rtol=1e-2 if not values else 1e-4)
    np.testing.assert_allclose(correlation(q, c), c, atol=1e-9)


@pytest.mark.parametrize("values", [
    {}, {"activation": "erf", "variance": 0.5}, {"surrogate": "sampled"}, {"means": "sparse", "variance": 0.5},
    {"means": "uniform", "variance": 0.3}, {"neurons": "deterministic", "variance": 0.5},
])  # fmt: skip
def test_finite_networks_follow_the_maps(values):
    model = sv.BinaryInitialisation(**{"variance": 0.9, "bias_variance": 0.1, "depth": 3, **values})
    size, lanes = 200, 24
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(jnp.arange(lanes))
    found, theory = simulate_batch(model, {}, keys, size), model.theory()
    for name in ("length", "correlation"):
        mean, error = found[name].mean(axis=0), found[name].std(axis=0, ddof=1) / np.sqrt(lanes)
        assert np.all(np.abs(mean - theory[name]) < 4.5 * error + 6 * np.abs(theory[name]) / size), name


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="variance = 0.9 is outside its range .* for uniform means"):
        sv.BinaryInitialisation(means="uniform")
    with pytest.raises(sv.InvalidValue, match=r"variance = 2 is outside its range \[0, 1\]"):
        sv.BinaryInitialisation(variance=2.0)
