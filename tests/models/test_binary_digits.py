"""Binary networks on digits: the surrogate's computation, and deep networks need means near one."""

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.synapses.binary_digits.model import forward_binary, forward_straight, forward_surrogate, images


def test_the_surrogate_is_the_mean_of_the_binary_network_by_the_central_limit():
    """One layer: fields of sampled weights and neurons have the surrogate's mean and variance."""
    key, n = jax.random.key(0), 400
    M = jax.random.uniform(key, (1, n), minval=-1, maxval=1)
    x = jax.random.uniform(jax.random.key(1), (1, n), minval=-1, maxval=1)
    a, b = jax.random.uniform(jax.random.key(2), (2, 20_000, n))
    draws = jnp.where(a < 0.5 * (1 + M), 1.0, -1.0) * jnp.where(b < 0.5 * (1 + x), 1.0, -1.0)
    fields = draws.sum(axis=1)
    zero = jnp.zeros((0, n, n))
    surrogate = forward_surrogate((jnp.eye(n) * 0 + 1e-9, zero, M), x)  # a first layer that passes nothing on
    assert float(jnp.abs(surrogate).max()) < 1e-6
    mean, spread = float((M * x).sum()), float((1 - M**2 * x**2).sum())
    assert abs(float(fields.mean()) - mean) < 5 * np.sqrt(spread / 20_000)
    np.testing.assert_allclose(fields.var(), spread, rtol=0.05)


def test_binarised_networks_see_signs_only():
    means = (jnp.asarray([[0.2, -0.1], [0.4, 0.9]]), jnp.zeros((0, 2, 2)), jnp.asarray([[0.1, -0.7]]))
    x = jnp.asarray([[1.0, 0.5]])
    first = np.sign(np.array([1 - 0.5, 1 + 0.5]))
    np.testing.assert_allclose(forward_binary(means, x)[0, 0], first[0] - first[1])


def test_pixels_are_bounded_and_have_their_mean_square():
    pixels, shown = images()
    assert np.abs(pixels).max() <= 1
    np.testing.assert_allclose((pixels**2).mean(), 0.5, atol=1e-6)
    assert set(shown) == set(range(10))


def test_deep_networks_train_from_means_near_one_and_not_from_small_ones():
    """Twenty layers: six depth scales are 4 layers for σ_m² = 0.2 and 600 for 0.99."""
    model, size = sv.BinaryDigits(depth=20, steps=150, rate=0.005), 24
    keys = jax.random.split(jax.random.key(0), 2)
    found = simulate_batch(model, {"variance": np.array([0.2, 0.99])}, keys, size)
    assert found["accuracy"][0] < 0.3
    assert found["accuracy"][1] > 0.5


def test_straight_through_is_the_binary_network_with_the_gradient_of_clipped_neurons():
    """One inner layer, of odd width so that no field is zero: fields are those of signs.

    The last layer's gradient is that of the inputs it sees.
    """
    keys = jax.random.split(jax.random.key(1), 4)
    weights = tuple(jax.random.normal(k, s) for k, s in zip(keys, ((7, 5), (1, 7, 7), (3, 7)), strict=False))
    x = jax.random.normal(keys[3], (4, 5))
    np.testing.assert_allclose(forward_straight(weights, x) * np.sqrt(7), forward_binary(weights, x), atol=1e-12)
    inputs = np.sign(np.sign(x @ np.sign(weights[0]).T) @ np.sign(weights[1][0]).T)
    slope = jax.grad(lambda w: forward_straight((*weights[:2], w), x).sum())(weights[2])
    np.testing.assert_allclose(slope, np.broadcast_to(inputs.sum(0) / np.sqrt(7), (3, 7)), atol=1e-12)
