"""Pruned networks under label noise: a coin's divergence, calibration by hand, limits of pruning, sparse double descent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.errors import InvalidValue
from solvable.model import simulate_batch
from solvable.models.cumulants.pruned_networks.model import calibration_error, divergence

SMALL = {"input_dimension": 6, "examples": 60, "steps": 200, "rounds": 12, "tested": 1000}


@pytest.fixture(scope="module")
def found():
    """No pruning, clean labels, and four networks on flipped ones: one program."""
    values = {"share": np.array([0.0] + [0.35] * 5), "flip": np.array([0.25, 0.0] + [0.25] * 4)}
    keys = jax.random.split(jax.random.key(0), 6)
    return {
        n: np.asarray(v) for n, v in simulate_batch(sv.PrunedNetworks(rate=0.03, **SMALL), values, keys, 20).items()
    }


def test_without_pruning_every_round_is_the_dense_training(found):
    for name in ("divergence", "calibration_error", "accuracy", "train_accuracy", "weights"):
        np.testing.assert_array_equal(found[name][0], np.broadcast_to(found[name][0, 0], 12))
    assert found["weights"][0, 0] == 20 * 7


def test_the_weights_left_are_those_counted_and_only_fall(found):
    np.testing.assert_array_equal(found["weights"][1], np.rint(140 * 0.65 ** np.arange(12)))


def test_a_coin_has_the_closed_divergence(found):
    closed = np.log(2) + 0.25 * np.log(0.25) + 0.75 * np.log(0.75)
    np.testing.assert_allclose(found["coin_divergence"][2:], closed, rtol=1e-5)
    np.testing.assert_allclose(found["coin_divergence"][1], np.log(2), rtol=1e-5)


def test_no_temperature_is_worse_than_the_best_one_nor_that_than_a_coin(found):
    assert np.all(found["tempered_divergence"] <= found["divergence"] + 1e-6)
    assert np.all(found["tempered_divergence"] <= found["coin_divergence"][:, None] + 2e-3)


def test_flipped_labels_are_fitted_by_many_weights_and_pruning_restores_the_probabilities(found):
    flipped = {n: v[2:].mean(axis=0) for n, v in found.items()}
    assert flipped["train_accuracy"][0] > 0.99 > flipped["train_accuracy"][-1]
    assert flipped["divergence"][0] > 5 * flipped["divergence"].min()
    assert flipped["calibration_error"][0] > 3 * flipped["calibration_error"][-1]
    assert flipped["divergence"].min() < 1.2 * flipped["coin_divergence"]


def test_clean_labels_are_learnt_better_and_pruning_all_weights_hurts(found):
    assert found["accuracy"][1, 0] > found["accuracy"][2:, 0].mean() + 0.05
    assert found["divergence"][1, -1] > found["divergence"][1].min()


def test_divergence_and_calibration_by_hand():
    p, q = np.array([0.9, 0.2, 0.5]), np.array([0.7, 0.4, 0.5])
    logits = jnp.asarray(np.log(q / (1 - q)))
    wanted = np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    np.testing.assert_allclose(divergence(jnp.asarray(p), logits), wanted, rtol=1e-9)
    assert float(divergence(jnp.asarray(q), logits)) == pytest.approx(0, abs=1e-12)
    certain = divergence(jnp.ones(3), jnp.full(3, -1e4))  # as wrong as it can be
    np.testing.assert_allclose(certain, 9 * np.log(10), rtol=1e-9)
    # Confidences 0.7, 0.6 and 0.5 against chances 0.9, 0.8 and 0.5 of being right, each in its own bin.
    np.testing.assert_allclose(calibration_error(jnp.asarray(p), logits), (0.2 + 0.2) / 3, rtol=1e-9)


@pytest.mark.parametrize(("teacher", "units"), [("committee", 1), ("committee", 3), ("parity", 2)])
def test_teachers_state_the_probability_of_their_labels(teacher, units):
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(units, 4)), rng.normal(size=(30, 4))
    u = np.tanh(2 * x @ a.T)
    output = u.prod(axis=1) if teacher == "parity" else u.sum(axis=1) / np.sqrt(units)
    model = sv.PrunedNetworks(teacher=teacher, teachers=units, gain=2.0, flip=0.1, scale=3.0)
    np.testing.assert_allclose(model.probability(jnp.asarray(a), jnp.asarray(x)), np.where(output > 0, 0.9, 0.1))
    soft = model.replace(labels="soft").probability(jnp.asarray(a), jnp.asarray(x))
    np.testing.assert_allclose(soft, 1 / (1 + np.exp(-3 * output)), rtol=1e-9)


def test_digits_are_flipped_and_cannot_exceed_the_images():
    seen = sv.PrunedNetworks(teacher="digits", rounds=1, steps=1, examples=200, tested=300).simulate(seed=0, size=4)
    assert float(seen.coin_divergence) == pytest.approx(0.13081, abs=1e-5)  # ln 2 - H(1/4)
    assert seen.weights.tolist() == [4 * 64 + 4]
    with pytest.raises(InvalidValue, match="exceeds 1797"):
        sv.PrunedNetworks(teacher="digits", examples=1000, tested=1000)
    with pytest.raises(InvalidValue, match="labels = 'soft'"):
        sv.PrunedNetworks(teacher="digits", labels="soft", examples=100)


def test_soft_labels_of_a_committee_show_sparse_double_descent_too():
    """Three units: the divergence peaks where the labels are no longer fitted, and then falls below a coin's."""
    model = sv.PrunedNetworks(
        labels="soft", teachers=3, scale=6.0, examples=400, input_dimension=20, rounds=18, steps=600, tested=2000
    )
    runs = [model.simulate(seed, 150) for seed in range(4)]
    divergence, calibration, fitted = (
        np.mean([run[name] for run in runs], axis=0) for name in ("divergence", "calibration_error", "train_accuracy")
    )
    weights, peak, best = np.asarray(runs[0]["weights"]), divergence.argmax(), divergence.argmin()
    assert 80 <= weights[peak] <= 200
    assert divergence[peak] > 1.2 * divergence[0]
    assert fitted[peak - 1] > 0.995 > fitted[peak + 2]
    assert divergence[best] < 0.4 * divergence[0]
    assert divergence[best] < np.mean([run["coin_divergence"] for run in runs])
    assert calibration[best] < 0.6 * calibration[0] < 0.6 * calibration[peak]
