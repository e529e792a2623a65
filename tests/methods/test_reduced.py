"""Descent by overlaps alone: against descents of all weights, χ² by its quantiles, records, hitting times, rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, ks_2samp, kstest, norm

from solvable.methods.training.reduced import Stream, chi_squared, normal, reduced_descent, reduced_hitting

SIZE, RATE = 200, 0.6


def sample(bits):
    """Two directions: a noisy sign, and a Gaussian of variance two that goes with it; and a label."""
    sign = jnp.where(bits[0] & 1 == 0, 1.0, -1.0).astype(jnp.float32)
    label = jnp.where(bits[0] & 2 == 0, 1.0, -1.0).astype(jnp.float32)
    first = 0.9 * sign + np.float32(np.sqrt(0.19)) * normal(bits[0])
    second = sign * jnp.abs(normal(bits[1])) + normal(bits[2])
    return jnp.stack([first, second]), label


def push(a, square, label):
    return np.float32(RATE / SIZE) * (a + 0.1 * label + 0.02 * a * square / SIZE)


STREAM = Stream(sample, push, SIZE, 3, 2)


def full(key, steps):
    """The same descent of all weights."""

    def step(number, w):
        first, second, third = jax.random.split(jax.random.fold_in(key, number), 3)
        x = jax.random.normal(first, (SIZE,), jnp.float32)
        (one, two), label = sample(jax.random.bits(second, (3,), jnp.uint32))
        x = x.at[0].set(one).at[1].set(two)
        a = w @ x
        w = w + push(a, x @ x - a * a, label) * (x - a * w)
        return w / jnp.linalg.norm(w)

    other = jax.random.normal(jax.random.fold_in(key, 2**31), (SIZE,), jnp.float32).at[:2].set(0.0)
    w = jnp.concatenate(
        [jnp.asarray([0.1, 0.2], jnp.float32), other[2:] / jnp.linalg.norm(other) * np.float32(np.sqrt(0.95))]
    )
    return jax.lax.fori_loop(0, steps, step, w)[:2]


def test_overlaps_have_the_law_of_a_descent_of_all_weights():
    steps, lanes = 600, 400
    whole = np.asarray(jax.jit(jax.vmap(lambda k: full(k, steps)))(jax.random.split(jax.random.key(1), lanes)))
    start = jnp.broadcast_to(jnp.asarray([[0.1], [0.2]]), (2, 4000))
    reduced = np.asarray(jax.jit(lambda k: reduced_descent(STREAM, k, start, jnp.array([steps])))(jax.random.key(2)))[0]
    assert reduced[1].mean() - 0.2 > 0.1
    for i in range(2):
        assert ks_2samp(whole[:, i], reduced[i]).pvalue > 1e-3
        error = whole[:, i].std() / np.sqrt(lanes)
        assert abs(whole[:, i].mean() - reduced[i].mean()) < 4 * error
        assert abs(whole[:, i].std() / reduced[i].std() - 1) < 4 / np.sqrt(2 * lanes)


@pytest.mark.parametrize("freedom", [1, 5, 7, 12, 197, 10**6 - 3])
def test_squared_lengths_have_the_law_of_chi_squared(freedom):
    bits = jax.random.bits(jax.random.key(3), (6, 20_000), jnp.uint32)
    draws = np.asarray(jax.jit(lambda b: chi_squared(b, freedom))(bits), float)
    assert kstest(draws, chi2(freedom).cdf).pvalue > 1e-3
    if freedom > 6:  # quantile by quantile, to what single precision holds
        z = np.asarray(normal(bits[0]), float)
        exact = np.where(z < 0, chi2.ppf(norm.cdf(z), freedom), chi2.isf(norm.sf(z), freedom))
        np.testing.assert_allclose(draws, exact, rtol=4e-6)


def test_recording_does_not_change_the_samples():
    start = jnp.full((2, 3), 0.3)
    often = reduced_descent(STREAM, jax.random.key(4), start, jnp.array([0, 7, 33, 64, 101]))
    once = reduced_descent(STREAM, jax.random.key(4), start, jnp.array([101]))
    np.testing.assert_array_equal(often[-1], once[0])
    np.testing.assert_array_equal(often[0], np.float32(0.3) * np.ones((2, 3)))
    assert np.any(np.asarray(often[1]) != np.asarray(often[2]))


def test_hitting_times_are_those_of_the_path():
    start, key, most = jnp.full((2, 4), 0.05), jax.random.key(5), 640
    hit = reduced_hitting(STREAM, key, start, lambda o: jnp.abs(o[1]) > 0.4, most)
    path = np.asarray(reduced_descent(STREAM, key, start, jnp.arange(most + 1)))[:, 1]
    over = np.abs(path) > 0.4
    assert hit.met.sum() >= 2
    for lane in range(4):
        if hit.met[lane]:
            assert int(hit.steps[lane]) == int(np.argmax(over[:, lane]))
        else:
            assert not over[:, lane].any()


def test_rounding_does_not_eat_the_slow_drift_of_a_million_dimensions():
    """Pure noise: α shrinks by δ²/2 a unit of time, by steps of 5e-9 of it, below the rounding of single precision."""
    d, rate, steps = 1_000_000, 0.1, 400_000
    stream = Stream(lambda bits: (normal(bits[0])[None], None), lambda a, square, _: jnp.full_like(a, rate / d), d, 1)
    end = reduced_descent(stream, jax.random.key(6), jnp.full((1, 16), 0.5), jnp.array([steps]))[0, 0]
    drift = np.asarray(end, float).mean() / 0.5 - 1
    error = rate / np.sqrt(d) * np.sqrt(0.75 * steps / d) / 0.5 / 4
    expected = np.expm1(-(rate**2) / 2 * steps / d)
    assert abs(drift - expected) < 4 * error < 0.1 * abs(expected)
