"""Frozen and defrosted layers: exact limits, and the effect of freezing on a small network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.contract.compiled import Count, simulate_batch
from solvable.methods.data.digits import digit_components
from solvable.methods.training.loops import Optimiser, descend
from solvable.models.online.layer_defrosting.model import (
    TARGET_DIGITS,
    Network,
    Samples,
    defrosted_loss,
    error_of,
    logistic_loss,
)

SIZE, SEEDS = 8, 3
CASES = {
    "same task, nothing learnt": {"correlation": 1.0, "samples": 1.0, "steps": 0.0},
    "same task": {"correlation": 1.0, "samples": 48.0, "steps": 150.0},
    "little known": {"correlation": 0.95, "samples": 1.5, "steps": 150.0},
    "much known": {"correlation": 0.5, "samples": 48.0, "steps": 150.0},
}


@pytest.fixture(scope="module")
def seen():
    """All cases by one compiled program: arrays (seed, …) by case and observable."""
    model = sv.LayerDefrosting(depth=2, units=32)
    fields = {n: np.repeat([case[n] for case in CASES.values()], SEEDS) for n in ("correlation", "samples", "steps")}
    keys = jnp.tile(jax.random.split(jax.random.key(0), SEEDS), len(CASES))
    out = simulate_batch(model, fields, keys, SIZE)
    return {
        case: {n: np.asarray(v)[i * SEEDS : (i + 1) * SEEDS] for n, v in out.items()} for i, case in enumerate(CASES)
    }


def test_without_a_step_every_depth_is_the_source_network_and_on_the_same_task_has_its_error(seen):
    found = seen["same task, nothing learnt"]
    np.testing.assert_array_equal(found["unchanged_error"], found["source_error"])
    # The mean of two halves: equal to the last digit but one.
    np.testing.assert_allclose(found["test_error"], np.repeat(found["source_error"][:, None], 3, 1), rtol=1e-6)
    np.testing.assert_array_equal(found["label_correlation"], 1.0)
    np.testing.assert_array_equal(found["best_depth"], 0)
    assert np.all(np.abs(found["scratch_error"] - 0.5) < 0.3)


def test_all_frozen_on_the_same_task_stays_at_the_source_networks_error(seen):
    found = seen["same task"]
    np.testing.assert_array_equal(found["unchanged_error"], found["source_error"])
    assert np.all(np.abs(found["test_error"][:, -1] - found["source_error"]) < 0.02)  # only its head has moved


def test_with_many_samples_no_freezing_is_best(seen):
    found = seen["much known"]
    errors = found["test_error"].mean(0)
    assert errors[0] < errors[1] < errors[2] - 0.02
    assert np.all(found["best_depth"] == 0)
    assert found["unchanged_error"].mean() > errors[2]


def test_with_few_samples_of_a_similar_task_transfer_beats_scratch(seen):
    found = seen["little known"]
    assert np.all(found["test_error"].mean(0) < found["scratch_error"].mean() - 0.03)
    assert np.all(found["rich_error"] < found["scratch_error"])


def test_representations_part_ways_with_depth_and_with_dissimilarity(seen):
    """On the same task the alignment need not fall: both networks find the same function. Neighbours are lost anyway."""
    for case in seen.values():
        there, back = case["source_to_target"].mean(0), case["target_to_source"].mean(0)
        assert there[0] < there[1]
        assert back[0] < back[1]
    far = seen["much known"]["cka"].mean(0)
    assert far[0] > far[1]
    assert seen["much known"]["cka"].mean(0)[1] < seen["same task"]["cka"].mean(0)[1]
    assert seen["much known"]["source_to_target"].mean(0)[1] > seen["same task"]["source_to_target"].mean(0)[1]


def test_frozen_layers_are_the_sources_bit_by_bit_and_all_others_move():
    source, fresh = (Network.drawn(jax.random.key(i), 4, 6, 2, jnp.float32) for i in range(2))
    x = jax.random.normal(jax.random.key(2), (20, 4), jnp.float32)
    data = Samples(x, jnp.sign(x[:, 0]), jnp.ones(20, jnp.float32))
    rule = Optimiser("adam", rate=1e-2, decay=0.1)
    for number in range(3):
        held = (data, source, jnp.asarray(number))
        after = descend(fresh, defrosted_loss, held, rule, 3, jax.random.key(0)).frozen(source, number)
        for i, (mine, kept) in enumerate(zip(after.layers, source.layers, strict=True)):
            same = [bool(jnp.all(a == b)) for a, b in zip(mine, kept, strict=True)]
            assert same == [i < number] * 2


def test_padding_does_not_affect_training():
    x, y = np.random.default_rng(0).normal(size=(8, 5)), np.where(np.arange(8) % 3, 1.0, -1.0)
    network = Network.drawn(jax.random.key(1), 5, 4, 1, jnp.float64)
    padded = Samples(jnp.asarray(x), jnp.asarray(y), Count(jnp.asarray(6), 8).mask())
    short = Samples(*(part[:6] for part in padded))
    losses = [logistic_loss(network, samples, jax.random.key(0)) for samples in (padded, short)]
    np.testing.assert_allclose(*losses, rtol=1e-12)


@pytest.mark.parametrize(("correlation", "realised"), [(1.0, 1.0), (0.7, 0.6), (0.2, 0.2), (0.0, 0.2)])
def test_groupings_of_the_digits_share_as_many_labels_as_the_correlation_says(correlation, realised):
    model = sv.LayerDefrosting(tasks="digits", correlation=correlation)
    images, labels = digit_components(12)
    x, source, target = (np.asarray(a) for a in model._digits(jax.random.key(3), 12, jnp.float64))
    place = {tuple(row): i for i, row in enumerate(images)}
    shown = labels[[place[tuple(row)] for row in x]]
    groups = [{(d, g) for d, g in zip(shown, side, strict=True)} for side in (source, target)]
    for group in groups:
        assert sorted(d for d, _ in group) == list(range(10))  # one label for each digit
        assert sum(g for _, g in group) == 0
    by_digit = [dict(sorted(group)) for group in groups]
    np.testing.assert_allclose(np.mean([by_digit[0][d] * by_digit[1][d] for d in range(10)]), realised)


def test_test_target_and_source_share_no_image():
    model = sv.LayerDefrosting(tasks="digits")
    pair = model._pair(jax.random.key(0), 12, Count(jnp.asarray(TARGET_DIGITS), TARGET_DIGITS), jnp.float64)
    rows = np.concatenate([pair.inputs, pair.target.inputs, pair.source.inputs])
    assert len(rows) == 1797
    assert len(np.unique(rows, axis=0)) == len(np.unique(digit_components(12)[0], axis=0))


@pytest.mark.parametrize(
    ("size", "samples", "sentence"),
    [
        (65, 1.0, "size = 65 is more than the 64 pixels"),
        (20, 40.0, "at most 768 are kept for the target, samples = 38.4"),
    ],
)
def test_sizes_beyond_the_digits_are_refused_in_one_sentence(size, samples, sentence):
    with pytest.raises(sv.InvalidValue, match=sentence):
        sv.LayerDefrosting(tasks="digits", samples=samples).simulate(0, size)


def test_the_model_reports_that_it_has_no_theory():
    with pytest.raises(sv.SolvableError, match="no closed theory"):
        sv.LayerDefrosting().theory()


def test_a_network_that_is_no_longer_finite_is_never_right():
    broken = Network(tuple((w * jnp.nan, b) for w, b in Network.drawn(jax.random.key(0), 3, 4, 1, jnp.float32).layers))
    assert error_of(broken, jnp.ones((5, 3), jnp.float32), jnp.ones(5, jnp.float32)) == 1.0


@pytest.mark.parametrize(
    ("correlation", "samples", "errors"),
    [(0.5, 7.5, (0.243, 0.250, 0.275, 0.369)), (0.5, 2.0, (0.322, 0.320, 0.348, 0.379))],
)
def test_errors_of_an_independent_small_reproduction_are_met(correlation, samples, errors):
    """Its teachers' gain is not known and it used two to four seeds, so agreement is required only within the noise of seeds."""
    model = sv.LayerDefrosting(correlation=correlation, samples=samples)
    out = simulate_batch(model, {}, jax.random.split(jax.random.key(5), 8), 20)
    np.testing.assert_allclose(np.asarray(out["test_error"]).mean(0), errors, atol=0.04)


def test_on_digits_deep_freezing_helps_few_samples_and_hurts_many():
    out = {}
    for start, samples in (("fresh", 1.0), ("fresh", 30.0)):
        model = sv.LayerDefrosting(
            tasks="digits", correlation=1.0 if samples == 1.0 else 0.2, samples=samples, start=start
        )
        out[samples] = np.asarray(simulate_batch(model, {}, jax.random.split(jax.random.key(6), 6), 20)["test_error"])
    assert out[1.0][:, 3].mean() < out[1.0][:, 0].mean() - 0.05
    assert out[30.0][:, 3].mean() > out[30.0][:, 0].mean() + 0.02
