"""Interactions of short sequences, learnt by networks: exact losses, clones, and data shared between cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.methods.sequences.interactions import interaction_floors
from solvable.models.attention._interactions import evaluated_steps
from solvable.models.attention.short_sequences.model import ShortSequences, known
from solvable.study import Study

SMALL = {"sites": 4, "colours": 2, "inverse_temperature": 1.0, "networks": 2, "heads": 2, "width": 4}


@pytest.fixture(scope="module")
def law():
    return known("pure", 4, 2, 1, 1.0)


def test_clones_have_the_marginals_of_the_law_and_no_more(law):
    cube = law.probability.reshape(2, 2, 2, 2)
    for order, clone in enumerate(law.clones[:3], start=1):
        other = clone.reshape(cube.shape)
        axes = tuple(range(order, 4))
        np.testing.assert_allclose(other.sum(axes), cube.sum(axes), atol=1e-8)
    entropies = [-(q * np.log(q)).sum() for q in law.clones]
    assert np.all(np.diff(entropies) < 0)
    # Without couplings between sites the best prediction is that of the law of one body.
    floors = interaction_floors(jnp.asarray(law.probability), 4, 2, 3)
    assert law.optimal[0] == pytest.approx(float(floors.floors[0]), abs=1e-7)
    assert law.optimal[3] == pytest.approx(float(floors.optimal), abs=1e-7)


def test_pairs_are_all_that_one_layer_learns_and_its_loss_stays_above_their_floor(law):
    model = ShortSequences(**SMALL, depth=1, steps=400, rate=0.03)
    seen = model.simulate(seed=0, size=1_000_000)
    floors = interaction_floors(jnp.asarray(law.probability), 4, 2, 3)
    ends = np.asarray(seen.loss)[-1, :, 3]
    assert np.all(ends > float(floors.floors[1]) - 1e-6)
    assert np.all(ends < float(floors.floors[1]) + 0.02)
    share = np.asarray(seen.share)[-1]
    assert np.all(share[:, 0] > 0.1)
    np.testing.assert_allclose(share[0], share[1], atol=1e-3)  # the best pair model is unique
    np.testing.assert_allclose(share[:, 2], 0.0, atol=1e-4)  # four bodies: none
    np.testing.assert_array_equal(np.asarray(seen.displacement)[0], 0.0)


def test_arms_learn_from_the_same_sequences():
    one = ShortSequences(**SMALL)
    other = one.replace(learner="encoder", depth=2, steps=9, width=8)
    assert (jax.random.key_data(one.key(100, 3)) == jax.random.key_data(other.key(100, 3))).all()
    assert (jax.random.key_data(one.key(100, 3)) != jax.random.key_data(one.replace(instance=2).key(100, 3))).any()


def test_runs_of_different_length_are_evaluated_at_the_same_steps():
    short, long = evaluated_steps(4000), evaluated_steps(1_000_000)
    np.testing.assert_array_equal(short, long[: len(short)])
    assert long[-1] == 1_000_000


def test_an_interrupted_study_resumes(tmp_path):
    study = Study(ShortSequences(**SMALL, steps=3, depth=1), sizes=[100], seeds=2)
    first = study.run(tmp_path / "run", progress=False)
    again = Study(ShortSequences(**SMALL, steps=3, depth=1), sizes=[100], seeds=2)
    again.attach(tmp_path / "run")
    assert again.missing() == 0
    np.testing.assert_array_equal(again.dataset().loss_simulated, first.loss_simulated)


def test_combinations_that_cannot_be_computed_are_refused():
    with pytest.raises(InvalidValue, match="give more than 2000 states"):
        ShortSequences(sites=7, colours=3)
    with pytest.raises(InvalidValue, match="heads = 4 does not divide width = 6"):
        ShortSequences(learner="encoder", width=6)
