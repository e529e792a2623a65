"""Many-body interactions: limits of the floors, networks that respect them, and fits that approach them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.errors import InvalidValue
from solvable.methods.sequences.interactions import interaction_floors, law_loss, log_probabilities
from solvable.methods.sequences.potts import every_state
from solvable.models.attention.many_body.figures import dwelling, first_time

floors_of = eqx.filter_jit(lambda law: interaction_floors(jnp.exp(log_probabilities(law)), 4, 3, 3))
loss_of, chances = eqx.filter_jit(law_loss), eqx.filter_jit(log_probabilities)
BETAS = np.array([0.0, 0.5, 1.0, 3.0])


@pytest.fixture(scope="module")
def swept():
    return sv.ManyBodyBias(inverse_temperature=BETAS, depth=0).theory()


def test_floors_fall_with_the_order_down_to_the_optimal_loss(swept):
    assert swept.converged.all()
    assert (np.diff(np.asarray(swept.floor), axis=1) <= 1e-12).all()
    np.testing.assert_allclose(swept.floor[:, -1], swept.optimal_loss)
    np.testing.assert_allclose(swept.floor[0], np.log(3), rtol=1e-12)  # β = 0: white noise


def test_conditionals_of_the_order_of_the_energy_are_exact():
    # The theory takes ℓ_p = optimal for p = bodies from the energy; here it is fitted.
    model = sv.ManyBodyBias(sites=4, bodies=3, lower_strength=0.5, depth=0)
    found = floors_of(model.law())
    theory = model.theory()
    np.testing.assert_allclose(found.floors, theory.floor, rtol=1e-10)


def test_the_optimal_loss_is_what_the_law_loses_on_its_own_sequences():
    model = sv.ManyBodyBias(inverse_temperature=1.0, lower_strength=0.7, depth=0)
    chance = np.exp(chances(model.law()))
    states = every_state(5, 3)
    drawn = jnp.asarray(states[np.random.default_rng(0).choice(len(states), 20_000, p=chance / chance.sum())])
    law = model.law()
    parts = [float(loss_of(law, part)) for part in jnp.split(drawn, 10)]
    assert abs(np.mean(parts) - float(model.theory().optimal_loss)) < 4 * np.std(parts, ddof=1) / np.sqrt(10)


def test_fits_approach_the_floors_from_above_as_one_over_the_number_of_sequences(swept):
    model, floor = sv.ManyBodyBias(depth=0), np.asarray(swept.floor)[2]
    excess = {m: np.mean([model.simulate(s, m).floor for s in range(3)], 0) - floor for m in (16000, 64000)}
    assert (excess[16000] > 0).all()
    assert (excess[64000] > 0).all()
    # A well-specified fit loses half its number of weights over M: 130 of four bodies, fewer where colours are rare.
    assert 0.3 * 65 < 64000 * excess[64000][3] < 1.2 * 65
    np.testing.assert_allclose(16000 * excess[16000][2:], 64000 * excess[64000][2:], rtol=0.25)


def test_networks_stay_above_the_floor_of_their_depth_and_come_close(swept):
    floor = np.asarray(swept.floor)[2]
    for depth, order in ((1, 2), (2, 3)):
        loss = float(sv.ManyBodyBias(depth=depth).simulate(0, 100_000).network_loss)
        assert floor[order - 1] - 1e-6 < loss < floor[order - 1] + 0.01
    assert "network_loss" not in sv.ManyBodyBias(depth=0).observables()


def test_combinations_too_large_to_enumerate_are_refused():
    with pytest.raises(InvalidValue, match="bodies = 4 exceeds sites = 3"):
        sv.ManyBodyBias(sites=3)
    with pytest.raises(InvalidValue, match="give more than 20000 states"):
        sv.ManyBodyBias(sites=10)
    with pytest.raises(InvalidValue, match="needs fits of .* weights"):
        sv.ManyBodyBias(sites=5, colours=7, bodies=5)


def test_time_near_a_level_and_first_times_are_counted_in_steps():
    record = np.array([0, 10, 20, 40])
    curve = np.array([[1.0, 0.52, 0.5, 0.0]])
    np.testing.assert_array_equal(dwelling(curve, record, np.array([1.0, 0.5, 0.0])), [[10, 30, 0]])
    np.testing.assert_array_equal(first_time(np.array([[False, True, True, True], [False] * 4]), record), [10, np.nan])
