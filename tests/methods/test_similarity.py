"""Similarity of representations: both measures against brute force, and their invariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.models.online.layer_defrosting.similarity import information_imbalance, linear_cka


def ranks(points):
    """r[i, j]: the place of j among the others, sorted by their distance from i; 1 is the nearest."""
    number = len(points)
    out = np.zeros((number, number), int)
    for i in range(number):
        distances = [np.linalg.norm(points[i] - points[j]) for j in range(number)]
        order = sorted((j for j in range(number) if j != i), key=lambda j: distances[j])
        for place, j in enumerate(order):
            out[i, j] = place + 1
    return out


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("seed", range(3))
def test_the_imbalance_is_the_mean_rank_of_nearest_neighbours(seed):
    first = drawn(seed, 40, 3)
    second = np.tanh(first @ drawn(seed + 10, 3, 5)) + 0.3 * drawn(seed + 20, 40, 5)
    mine, theirs = ranks(first), ranks(second)
    wanted = 2 / 40**2 * theirs[mine == 1].sum()
    np.testing.assert_allclose(information_imbalance(jnp.asarray(first), jnp.asarray(second)), wanted, rtol=1e-12)


def test_the_imbalance_shows_which_representation_is_richer():
    plane = drawn(0, 400, 2)
    whole, part = jnp.asarray(plane), jnp.asarray(plane[:, :1])
    assert information_imbalance(whole, part) < 0.15
    assert information_imbalance(part, whole) > 3 * information_imbalance(whole, part)
    stranger = information_imbalance(whole, jnp.asarray(drawn(1, 400, 2)))
    assert abs(stranger - 1) < 0.12  # the rank of a random point: N/2, with deviation N/√12


def test_the_same_neighbours_have_the_smallest_imbalance():
    x = jnp.asarray(drawn(2, 50, 4))
    rotation = jnp.asarray(np.linalg.qr(drawn(3, 4, 4))[0])
    np.testing.assert_allclose(information_imbalance(x, 7.0 - 2.0 * x @ rotation), 2 / 50, rtol=1e-12)


def test_single_precision_has_the_neighbours_of_double():
    first, second = drawn(4, 200, 16), drawn(5, 200, 16)
    exact = information_imbalance(jnp.asarray(first), jnp.asarray(second))
    short = information_imbalance(jnp.asarray(first + 100, jnp.float32), jnp.asarray(second, jnp.float32))
    np.testing.assert_allclose(short, exact, rtol=1e-2)


def test_linear_cka_is_the_alignment_of_centred_gram_matrices():
    first, second = drawn(6, 30, 4) + 2.0, drawn(7, 30, 7)
    centre = np.eye(30) - 1 / 30
    a, b = (centre @ x @ x.T @ centre for x in (first, second))
    wanted = np.trace(a @ b) / np.sqrt(np.trace(a @ a) * np.trace(b @ b))
    np.testing.assert_allclose(linear_cka(jnp.asarray(first), jnp.asarray(second)), wanted, rtol=1e-12)


def test_linear_cka_does_not_see_rotations_shifts_and_scale():
    x, rotation = drawn(8, 30, 5), np.linalg.qr(drawn(9, 5, 5))[0]
    np.testing.assert_allclose(linear_cka(jnp.asarray(x), jnp.asarray(3.0 - 0.1 * x @ rotation)), 1.0, rtol=1e-12)
    stretched = x * np.array([10.0, 1.0, 1.0, 1.0, 1.0])
    assert linear_cka(jnp.asarray(x), jnp.asarray(stretched)) < 0.9


def test_a_constant_representation_has_no_alignment():
    assert np.isnan(linear_cka(jnp.asarray(drawn(10, 9, 2)), jnp.ones((9, 3))))


def test_measures_of_several_layers_are_batched():
    first, second = jnp.asarray(drawn(11, 3, 20, 4)), jnp.asarray(drawn(12, 3, 20, 4))
    for measure in (linear_cka, information_imbalance):
        alone = [float(measure(a, b)) for a, b in zip(first, second, strict=True)]
        np.testing.assert_allclose(jax.vmap(measure)(first, second), alone, rtol=1e-12)
