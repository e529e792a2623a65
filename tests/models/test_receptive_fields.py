"""Pruning by magnitude: masks, limits, moments against direct ones, and the exact results for Gaussian inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.cumulants._pruning import keep_largest, train, train_and_prune, weights_left
from solvable.models.cumulants.receptive_fields.model import cavity_effects, erf_covariance, ring_correlation

SMALL = {"rounds": 4, "steps": 30, "batch": 32, "tested": 2000, "units": 6}


@pytest.fixture(scope="module")
def gaussian():
    model = sv.ReceptiveFields(inputs="gaussian", **SMALL)
    keys = jax.random.split(jax.random.key(0), 4)
    return simulate_batch(model, {"share": np.array([0.0, 0.25, 0.25, 0.25])}, keys, 12)


def test_without_pruning_every_round_is_the_dense_training(gaussian):
    for name in ("accuracy", "non_gaussianity", "localisation", "kept_effect"):
        np.testing.assert_array_equal(gaussian[name][0], np.broadcast_to(gaussian[name][0, 0], 4))
    np.testing.assert_array_equal(gaussian["density"][0], 1)
    assert np.isnan(gaussian["pruned_effect"][0]).all()  # there are none


def test_gaussian_inputs_have_no_excess_kurtosis_at_any_density(gaussian):
    """Within five standard errors of zero, (24/n)^½ for one unit and class; their modulus at its floor."""
    error = np.sqrt(24 / 2000)
    assert np.abs(gaussian["kurtosis"]).max() < 5 * error / np.sqrt(2)
    np.testing.assert_allclose(gaussian["non_gaussianity"].mean(), error * np.sqrt(2 / np.pi), rtol=0.25)


def test_the_weights_left_are_those_counted(gaussian):
    np.testing.assert_allclose(gaussian["density"][1] * 72, np.rint(72 * 0.75 ** np.arange(4)), atol=1e-4)


def linear_loss(network, x):
    return jnp.mean((x @ network["w"] - x[:, 0] + 0.5 * x[:, 1] + network["b"]) ** 2)


def linear_batch(key):
    return jax.random.normal(key, (16, 8))


@pytest.mark.parametrize("random", [False, True])
def test_masks_are_nested_and_the_smallest_weights_go(random):
    start = {"w": jax.random.normal(jax.random.key(1), (8,)), "b": jnp.zeros(())}
    found = train_and_prune(
        linear_batch, linear_loss, start, ("w",), lambda w, m, n: {"w": w["w"], "mask": m["w"], "next": n["w"]},
        jax.random.key(0), rounds=4, steps=40, rate=jnp.asarray(0.05), share=jnp.asarray(0.3), random=random,
    )  # fmt: skip
    w, mask, following = (np.asarray(found[n]) for n in ("w", "mask", "next"))
    np.testing.assert_array_equal(following[:-1], mask[1:])
    assert np.all(following <= mask)
    assert np.all(w[mask == 0] == 0)
    assert mask.sum(axis=1).tolist() == [8, 6, 4, 3]
    ordered = [np.abs(w[r][following[r] > 0]).min() >= np.abs(w[r][(mask - following)[r] > 0]).max() for r in range(4)]
    assert all(ordered) != random
    if not random:
        assert np.all(following[-1][:2] == 1)  # those the target needs


def test_the_first_round_is_plain_adam():
    """Written out in double precision from the same batches."""
    start, key = {"w": jnp.linspace(-1.0, 1.0, 8), "b": jnp.zeros(())}, jax.random.key(3)
    found = train(linear_batch, linear_loss, start, {}, key, 5, jnp.asarray(0.05))
    w = np.append(np.linspace(-1, 1, 8), 0.0)
    m = v = np.zeros(9)
    for t in range(5):
        x = np.asarray(linear_batch(jax.random.fold_in(key, t)), float)
        one = np.hstack([x, np.ones((16, 1))])
        g = 2 * one.T @ (one @ w - x[:, 0] + 0.5 * x[:, 1]) / 16
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.05 * (m / (1 - 0.9 ** (t + 1))) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8)
    np.testing.assert_allclose(found["w"], w[:8], atol=1e-5)


def test_pruned_weights_never_return():
    kept = keep_largest(
        {"a": jnp.arange(6.0), "b": jnp.arange(4.0)}, {"a": jnp.ones(6), "b": jnp.zeros(4)}, jnp.asarray(8)
    )
    assert kept["a"].tolist() == [1.0] * 6
    assert kept["b"].tolist() == [0.0] * 4
    assert int(weights_left(480, jnp.asarray(0.25), 8)) == 48


def test_the_cavity_effect_is_the_difference_of_two_kurtoses():
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-1, 1, (500, 5)), rng.normal(size=(3, 5))
    w[2, 1:] = 0  # one weight: nothing is left without it
    kappa, effect = cavity_effects(jnp.asarray(w), jnp.asarray(x))

    def kurtosis(h):
        h = h - h.mean()
        return np.mean(h**4) / np.mean(h**2) ** 2 - 3

    np.testing.assert_allclose(kappa, [kurtosis(x @ row) for row in w], rtol=1e-9)
    for k in range(2):
        for j in range(5):
            without = np.where(np.arange(5) == j, 0, w[k])
            np.testing.assert_allclose(effect[k, j], abs(kappa[k]) - abs(kurtosis(x @ without)), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("covariance", ["exponential", "smooth"])
def test_both_kinds_of_inputs_have_the_stated_covariance(covariance):
    wanted = erf_covariance(ring_correlation(10, jnp.asarray(3.0), covariance), jnp.asarray(2.0))
    normal = jax.random.normal(jax.random.key(0), (2, 40_000, 10), jnp.float32)
    for inputs in ("non-linear", "gaussian"):
        model = sv.ReceptiveFields(inputs=inputs, covariance=covariance, gain=2.0, short=3.0)
        x = np.asarray(model.sampler(10, jnp.float32)(normal))[0]
        np.testing.assert_allclose(x.T @ x[:, 0] / len(x), wanted, atol=0.03)


def test_inputs_of_small_gain_are_gaussian():
    normal = jax.random.normal(jax.random.key(0), (2, 50, 10), jnp.float32)
    small = [
        sv.ReceptiveFields(inputs=i, gain=0.02).sampler(10, jnp.float32)(normal) for i in ("non-linear", "gaussian")
    ]
    np.testing.assert_allclose(*small, atol=5e-3)


def test_pruning_raises_the_kurtosis_of_non_gaussian_inputs(gaussian):
    model = sv.ReceptiveFields(**SMALL | {"rounds": 7})
    found = simulate_batch(model, {"share": np.full(4, 0.3)}, jax.random.split(jax.random.key(0), 4), 12)
    assert found["non_gaussianity"][:, 0].mean() > 3 * gaussian["non_gaussianity"].mean()
    assert np.mean(found["non_gaussianity"][:, -1] - found["non_gaussianity"][:, 0]) > 0.1
