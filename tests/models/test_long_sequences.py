"""Interactions of long sequences, learnt by networks: floors by fits, clones, and curves."""

import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.models.attention.long_sequences.model import LongSequences

SMALL = {"sites": 5, "colours": 2, "groups": 4, "fitted": 4000, "fit_steps": 200, "tested": 2048, "batch": 16, "heads": 2,
         "width": 4, "networks": 2, "pair_strength": 1.0, "triplet_strength": 0.8}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return LongSequences(**SMALL, depth=1, steps=40, rate=0.03, scale=2.0)


def test_no_fit_is_better_than_the_law_on_the_same_sequences(model):
    judges = model.judges()
    floors, error = judges.floors.mean(1), (judges.floors[:-1] - judges.floors[-1]).std(1) / np.sqrt(2048)
    assert judges.mixed
    assert np.all(floors[:-1] > floors[-1] - 4 * error)
    assert floors[0] > floors[-1] + 0.02
    assert model.replace(depth=2, rate=0.1).judges() is judges  # computed once for all learners


def test_networks_learn_and_are_compared_with_the_floors_on_the_same_sequences(model):
    seen = model.simulate(seed=0, size=400)
    assert seen.loss.shape == (len(model.coordinates()["step"]), 2, 4)
    fresh = np.asarray(seen.loss)[:, :, 3]
    assert np.all(fresh[-1] < fresh[0])
    np.testing.assert_allclose(fresh[-1] - np.asarray(seen.floor)[-1], np.asarray(seen.above)[:, -1], atol=1e-5)
    assert np.all(np.asarray(seen.above)[:, -1] > -4 * np.asarray(seen.above_error)[:, -1])  # the law is the best


def test_clipping_prevents_divergence_of_training(model):
    wild = model.replace(depth=2, optimiser="sgd", rate=5.0, scale=3.0, steps=20)
    assert np.isnan(np.asarray(wild.simulate(seed=0, size=400).loss)[-1]).any()
    assert np.isfinite(np.asarray(wild.replace(clip=0.1).simulate(seed=0, size=400).loss)).all()


def test_heads_that_do_not_divide_the_width_of_an_encoder_are_refused():
    with pytest.raises(InvalidValue, match="heads = 3 does not divide width = 16"):
        LongSequences(learner="encoder", heads=3)
