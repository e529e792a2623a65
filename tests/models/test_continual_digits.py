"""Two tasks of mixed digits: the learner is that of the theory, and forgetting depends on the mixing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import solvable as sv
from solvable.methods.data.digits import PIXELS, digit_components, digit_images
from solvable.models.online.continual_digits.learning import (
    FIRST_SCALE,
    TRAINED,
    Images,
    draw_digits,
    lane,
    learn,
    linear_similarity,
)
from solvable.models.online.continual_digits.paired import continual_digits


@pytest.fixture(scope="module")
def found():
    """Short stages; no replay and even replay in one compiled program."""
    even = {"no-replay": np.ones(4), "even": np.full(4, 0.5), "only task 1": np.zeros(4)}
    return continual_digits([0.0, 1.0], seeds=6, first_stage=20, second_stage=20, intervals=4, protocols=even)


def test_both_tasks_are_learnt_and_dissimilar_ones_are_forgotten(found):
    end = found.isel(stage=-1).sel(protocol="no-replay")
    at_switch = found.sel(protocol="no-replay", stage=1.0)
    assert at_switch.test_error.sel(task=1).mean() < 0.03
    assert end.test_error.sel(task=2).mean() < 0.05
    lost = found.forgetting.sel(protocol="no-replay").mean("seed")
    assert lost.sel(mixing=0.0) > 0.03 > abs(lost.sel(mixing=1.0))
    taught = found.transfer.sel(protocol="no-replay").mean("seed")
    assert taught.sel(mixing=1.0) > 0.1 > taught.sel(mixing=0.0)


def test_replay_prevents_forgetting(found):
    lost = found.forgetting.sel(mixing=0.0).mean("seed")
    assert lost.sel(protocol="even") < 0.5 * lost.sel(protocol="no-replay")
    assert lost.sel(protocol="only task 1") < 0.005


def test_seeds_are_paired_over_mixings_and_protocols(found):
    """Until the switch nothing depends on either, bit by bit."""
    before = found.test_loss.sel(task=1).values[..., :5]
    np.testing.assert_array_equal(before, np.broadcast_to(before[:1, :1], before.shape))
    assert len(np.unique(before[0, 0, :, 2])) == 6


def test_one_step_equals_that_of_the_theory():
    """The first update, written out in double precision from the same draws."""
    given = {
        "seeds": 1,
        "first_stage": 1 / PIXELS,
        "second_stage": 1 / PIXELS,
        "intervals": 1,
        "rate": 0.7,
        "readout_rate": 0.4,
    }
    seen = continual_digits([0.3], **given).test_loss.isel(protocol=0, mixing=0, seed=0).sel(task=1).values
    _, images = draw_digits(0)
    begin, walk = jax.random.split(jax.random.key(0))
    w = np.asarray(FIRST_SCALE * jax.random.normal(begin, (2, PIXELS), jnp.float32), float)
    v = np.array([0.14, 0.99])
    u = np.asarray(jax.random.uniform(jax.random.fold_in(walk, 0), (4,), jnp.float32), float)
    side, image = int(u[1] < 0.5), int(u[2] * TRAINED)
    x, y = np.asarray(images.trained, float)[side, image], 1.0 - 2.0 * side
    g, slope = (lambda z: erf(z / np.sqrt(2))), lambda z: np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2)
    fields = w @ x / np.sqrt(PIXELS)
    error = v @ g(fields) - y
    w = w - 0.7 / np.sqrt(PIXELS) * np.outer(error * v * slope(fields), x)
    v = v - 0.4 / PIXELS * error * g(fields)
    test = np.asarray(images.tested, float)[:2]
    wanted = 0.5 * np.mean((g(test @ w.T / np.sqrt(PIXELS)) @ v - np.array([[1.0], [-1.0]])) ** 2)
    np.testing.assert_allclose(seen[1], wanted, rtol=1e-5)


def test_linear_readouts_show_how_similar_the_tasks_are():
    alike = np.array([[linear_similarity(draw_digits(s)[1], g) for g in (0.0, 0.5, 1.0)] for s in range(12)])
    np.testing.assert_allclose(alike[:, 2], 1.0, atol=1e-9)
    assert np.all(alike[:, 0] < alike[:, 1])
    assert abs(alike[:, 0].mean()) < 0.25
    assert 0.4 < alike[:, 1].mean() < 0.8


def test_trained_and_tested_images_are_different_ones_of_the_same_digits():
    pictures, labels = digit_images()
    place = {tuple(row): label for row, label in zip(pictures.astype(np.float32).tolist(), labels, strict=True)}
    digits, images = draw_digits(3)
    for i, digit in enumerate(digits):
        for part in images:
            assert {place[tuple(row)] for row in np.asarray(part[i]).tolist()} == {digit}
        trained = {tuple(row) for row in np.asarray(images.trained[i]).tolist()}
        assert not any(tuple(row) in trained for row in np.asarray(images.tested[i]).tolist())


def test_principal_components_keep_all_distances_with_all_pixels():
    pictures, rotated = digit_images()[0], digit_components(64)[0]
    np.testing.assert_allclose(rotated[:50] @ rotated[:50].T, pictures[:50] @ pictures[:50].T, atol=1e-9)
    with pytest.raises(sv.InvalidValue, match=r"size = 65 is not in \[1, 64\]"):
        digit_components(65)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mixing": [0.5, 1.2]}, r"mixing\[1\] = 1.2 is outside its range \[0, 1\]"),
        ({"mixing": []}, "mixing is empty"),
        ({"seeds": 0}, "seeds is empty"),
        ({"protocols": {}}, "protocols is empty"),
        ({"start": "warm"}, "start = 'warm' is not one of 'specialised', 'shared'"),
        ({"head": "old"}, "head = 'old' is not one of 'fresh', 'copied'"),
        ({"students": 1.5}, "students = 1.5 is not a whole number"),
        ({"rate": float("nan")}, "rate = nan"),
        ({"first_stage": -1.0}, "first_stage = -1"),
        ({"protocols": {"short": [1.0]}}, "protocol 'short': given_fraction"),
        ({"protocols": {"odd": np.full(20, 2.0)}}, "protocol 'odd': given_fraction"),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(values, sentence):
    with pytest.raises(sv.InvalidValue, match=sentence):
        continual_digits(**values)


def test_the_theorys_predictions_carry_over_to_digits():
    """A shared student forgets more the less similar the tasks; a specialised one forgets less, and no more at γ = 0 than 0.2."""
    mixing = [0.0, 0.2, 0.5, 1.0]
    stages = {"first_stage": 100, "second_stage": 100, "seeds": 48}
    own, shared, copied = (
        continual_digits(mixing, **stages, **arm).forgetting.isel(protocol=0)
        for arm in ({}, {"start": "shared"}, {"head": "copied"})
    )
    for monotone in (shared, copied):
        assert np.all(np.diff(monotone.mean("seed")) < 0)
        assert monotone.mean("seed")[0] > 2 * own.mean("seed")[0]
    assert own.mean("seed")[1] > own.mean("seed")[0]


def test_a_cell_of_a_study_is_the_same_network_on_digits_of_its_own():
    """Every step equals that of the comparison, started from the digits and the key of the cell."""
    model = sv.ContinualDigits(mixing=0.3, protocol="focus", first_stage=2.0, second_stage=1.0, intervals=4, rate=0.7)
    seen = sv.Study(model, sizes=[40], seeds=2).run(progress=False).isel(size=0, seed=1)
    to_draw, to_learn = jax.random.split(model.key(40, 1))
    _, drawn = draw_digits(np.asarray(jax.random.key_data(to_draw)))
    images = Images(drawn.trained[:, :40], drawn.tested)
    one = lane(images, to_learn, "specialised", 2, 0.3, [1.0, 1.0, 0.5, 0.5])
    settings = {"rate": 0.7, "readout_rate": 1.0, "first_stage": 2.0, "second_stage": 1.0, "copied": False}
    losses, _ = learn(jax.tree.map(lambda x: jnp.stack([x, x]), one), **settings)
    np.testing.assert_allclose(seen.test_loss_simulated, losses[0], rtol=1e-5)
    assert float(seen.forgetting_simulated) == pytest.approx(float(losses[0, -1, 0] - losses[0, 4, 0]), abs=1e-5)
    assert float(seen.linear_similarity_simulated) == pytest.approx(linear_similarity(images, 0.3))


def test_the_arms_forget_in_the_order_of_the_comparison():
    model = sv.ContinualDigits(mixing=0.0, first_stage=20.0, second_stage=20.0, intervals=4)
    study = sv.Study(model, arms=model.arms_declared, sizes=[120], seeds=12)
    lost = study.run(progress=False).forgetting_simulated.mean("seed").isel(size=0)
    assert lost.sel(arm="specialised") < lost.sel(arm="shared")
    assert lost.sel(arm="specialised") < lost.sel(arm="head copied")
    assert lost.sel(arm="even replay") < 0.5 * lost.sel(arm="specialised")


def test_a_protocol_is_its_fractions():
    model = sv.ContinualDigits(intervals=4)
    assert model.fractions().tolist() == [1.0] * 4
    assert model.replace(protocol="even").fractions().tolist() == [0.5] * 4
    assert model.replace(protocol="focus", focus=0.6).fractions().tolist() == [1.0, 1.0, 0.5, 0.5]
    given = [0.1, 0.9, 0.0, 1.0]
    assert model.replace(protocol="given", given_fraction=given).fractions().tolist() == given


def test_more_images_than_available_are_refused():
    with pytest.raises(sv.InvalidValue, match="size = 121 is more than the 120 images of each digit"):
        sv.ContinualDigits().simulate(size=121)
