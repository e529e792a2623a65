"""Transfer: limits, the network against the theory of its moments, negative transfer, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import solvable as sv
from solvable.methods.risk.covariate import of_matrices
from solvable.model import simulate_batch
from solvable.models.replica.transfer.networks import moments, random_network
from solvable.render.figures import kept_in

SMALL = {"features": "network", "loss": "square", "inputs": 3, "width": 2, "epochs": 20, "source_samples": 20.0}


def test_a_random_first_layer_on_a_flat_manifold_is_random_features():
    """x = c and h = tanh(Wc): the moments that are measured give the closed theory of random features."""
    d, p = 60, 120
    keys = jax.random.split(jax.random.key(2), 3)
    layers = jnp.stack([random_network(k, p, d, jnp.float32).first for k in keys[:2]])
    manifold, teacher = float(np.sqrt(d)) * jnp.eye(d, dtype=jnp.float32), jnp.ones(d, jnp.float32)
    second, cross, power = (np.asarray(v) for v in moments(keys[2], manifold, teacher, layers, "linear", 300 * p))
    found = [
        of_matrices(power[None, None], cross[k][None, :], 0.5 * (second[k] + second[k].T), [1.0]) for k in range(2)
    ]
    omega, tau = np.stack([s.omega for s in found]), np.stack([s.tau for s in found])
    measured = sv.Transfer(loss="square", width=2, samples=3.0, penalty=0.1, omega=omega, tau=tau).theory()
    known = sv.RandomFeatures(loss="square", activation="tanh", width=2.0, samples=3.0, penalty=0.1).theory()
    np.testing.assert_allclose([measured.test_error, measured.random_error], float(known.test_error), rtol=0.03)
    np.testing.assert_allclose([measured.train_loss, measured.random_train_loss], float(known.train_loss), rtol=0.03)


def test_equal_moments_of_both_maps_give_no_gain():
    omega, tau = np.tile(np.linspace(0.5, 2, 8), (2, 1)), np.tile(np.linspace(0.1, 0.6, 8), (2, 1))
    found = sv.Transfer(loss="square", omega=omega, tau=tau).theory()
    assert abs(float(found.gain)) < 1e-15


def test_a_prepared_network_has_a_theory_and_a_simulation_of_the_same_names_and_the_source_is_trained_once():
    model = sv.Transfer(**SMALL, samples=4.0)
    with pytest.raises(sv.SolvableError, match="must be prepared first"):
        model.theory()
    one, two = (model.prepare(jax.random.key(k), 12) for k in (1, 2))
    assert model.source(12) is model.source(12)
    np.testing.assert_array_equal(one.layers[0], two.layers[0])
    assert not np.array_equal(one.layers[1], two.layers[1])
    seen, predicted = one.simulate(0, 12), one.theory()
    assert set(seen.keys()) == set(predicted.keys())
    assert bool(predicted.converged)


def test_full_correlation_is_the_source_itself():
    model = sv.Transfer(**SMALL, feature_correlation=1.0, teacher_correlation=1.0)
    ready = model.prepare(jax.random.key(5), 12)
    np.testing.assert_array_equal(ready.manifold, model.source(12).manifold)
    np.testing.assert_array_equal(ready.teacher, model.source(12).teacher)


def test_bad_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="baseline = 'scratch' trains a network"):
        sv.Transfer(baseline="scratch")
    with pytest.raises(sv.InvalidValue, match="omega has 1 rows but needs 2"):
        sv.Transfer(omega=[[1.0]], tau=[[1.0]])
    with pytest.raises(sv.InvalidValue, match=r"mean of tau/omega 1.5, outside \[0, 1\]"):
        sv.Transfer(omega=[[1.0], [1.0]], tau=[[1.0], [1.5]])
    with pytest.raises(sv.InvalidValue, match="tau is positive where omega is 0"):
        sv.Transfer(omega=[[0.0], [1.0]], tau=[[1.0], [0.5]])


def test_gain_turns_to_loss_as_tasks_part_and_as_target_samples_grow():
    """The kept theory of trained networks, d = 50: the orderings of Gerace et al."""
    with xr.open_dataset(kept_in("transfer-gain") / "transfer-gain.gain.nc", engine="scipy") as table:
        gain = table.test_error.sel(map="random") - table.test_error.sel(map="source")
        alike, apart = gain.sel(correlation=1.0), gain.sel(correlation=[0.0, 0.5])
        assert bool((alike.sel(samples=slice(1, 9)) > 0).all())
        assert bool((apart < 0).all())
        near = gain.sel(correlation=0.9).mean("source")
        assert float(near.sel(samples=2, method="nearest")) > 0 > float(near.isel(samples=-1))


def test_networks_agree_with_the_theory_of_their_moments():
    model = sv.Transfer(features="network", samples=8.0).prepare(jax.random.key(3), 40)
    keys = jax.random.split(jax.random.key(8), 12)
    seen, predicted = simulate_batch(model, {}, keys, 40), model.theory()
    for name in ("test_error", "random_error"):
        mean, error = float(seen[name].mean()), float(seen[name].std(ddof=1)) / np.sqrt(12)
        assert abs(mean - float(predicted[name])) < 4.5 * error + 0.05 * mean, name
