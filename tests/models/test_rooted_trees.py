"""Rooted trees read by a transformer: scored words, visible words, and learning beyond the neighbouring words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.training.loops import evaluate
from solvable.models.attention.rooted_trees.model import HIDDEN, Reading, Scores, tables, windows
from solvable.models.attention.rooted_trees.words import rooted_trees


def test_the_network_passes_the_markov_chains_that_read_the_same_text():
    """Markov chains of every order are beaten by finding the periods in the context; the clock n mod 4 is close."""
    model = sv.RootedTrees(depth=1, embedding=48, context=48, steps=250, rate=1e-2, batch=16)
    found = model.simulate(seed=0, size=100_000)
    assert found.network_accuracy > float(np.max(found.markov_accuracy)) + 0.01
    assert found.network_loss < float(np.min(found.markov_loss))
    assert found.accuracy_curve[0] < 0.1 < 0.2 < found.accuracy_curve[-1]
    assert found.loss_curve[-1] < found.loss_curve[len(found.loss_curve) // 2] < found.loss_curve[0]
    assert np.isnan(found.train_curve[0])
    assert np.isfinite(found.train_curve[1:]).all()


def oracle(ids, words, causal):
    """A 'network' that finds its window in the text and predicts the word there (next: one position later)."""
    text = jnp.asarray(ids, jnp.int32)

    def predict(row, masked=None):
        length = row.shape[0]
        places = jnp.arange(len(ids) - length, dtype=jnp.int32)[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
        shown = jnp.ones(length, bool) if masked is None else ~masked
        alike = jnp.sum((text[places] == row[None, :]) & shown[None, :], 1)
        there = places[jnp.argmax(alike)] + (1 if causal else 0)
        return 20.0 * jax.nn.one_hot(text[there], words, dtype=jnp.float32)

    return predict


@pytest.mark.parametrize("task", ["next", "masked"])
def test_scores_are_those_of_every_word_in_the_scored_half(task):
    corpus = rooted_trees(700)
    test = windows(corpus.ids[500:], 32)
    perfect = evaluate(
        oracle(corpus.ids, len(corpus.words), task == "next"), Scores(task, len(corpus.words)), jnp.asarray(test)
    )
    begin = 16 if task == "next" else 8
    scored = test[:, begin : begin + 16]
    assert perfect["accuracy"] == 1.0
    assert perfect["loss"] < 1e-6
    words = len(corpus.words)
    for name in ("there", "called", "right"):
        np.testing.assert_array_equal(perfect[name], np.bincount(scored.ravel(), minlength=words))
    flat = jnp.zeros((32, words), jnp.float32).at[:, 1].set(1.0)  # everything is called prime
    constant = evaluate(lambda row, masked=None: flat, Scores(task, words), jnp.asarray(test))
    np.testing.assert_allclose(constant["accuracy"], (scored == 1).mean(), rtol=1e-6)
    assert constant["called"][1] == scored.size == constant["there"].sum()
    assert constant["right"].sum() == constant["right"][1] == (scored == 1).sum()
    expected = np.log(words - 1 + np.e) - (scored == 1).mean()
    np.testing.assert_allclose(constant["loss"], expected, rtol=1e-5)


def test_a_scored_word_is_hidden_from_the_network():
    corpus, seen = rooted_trees(700), []
    words = len(corpus.words)

    def watch(row, masked):
        seen.append(masked)
        return jnp.where(masked[:, None], 0.0, 50.0 * jax.nn.one_hot(row, words, dtype=jnp.float32))

    found = evaluate(watch, Scores("masked", words), jnp.asarray(windows(corpus.ids[500:], 32)))
    np.testing.assert_allclose(found["loss"], np.log(words), rtol=1e-6)  # nothing leaks from visible positions
    assert len(seen) == 1
    assert seen[0].shape == (32,)


def test_only_hidden_words_teach_and_every_group_hides_one():
    text = jnp.asarray(rooted_trees(700).ids)

    def sees_all_but(row, masked):
        groups = jnp.sum(masked.reshape(-1, HIDDEN), 1)
        fair = jnp.all(groups == 1)
        shown = 50.0 * jax.nn.one_hot((row + 1) % 40, 40, dtype=jnp.float32)  # certainly wrong where it is visible
        return jnp.where(masked[:, None] & fair, 0.0, shown)

    loss = eqx.filter_jit(Reading("masked", 5, 32))(sees_all_but, text, jax.random.key(0))
    np.testing.assert_allclose(loss, np.log(40), rtol=1e-6)


def test_windows_overlap_by_half_so_that_scored_halves_do_not():
    rows = windows(np.arange(100), 16)
    scored = rows[:, 8:].reshape(-1)
    np.testing.assert_array_equal(scored, np.arange(8, 8 + len(scored)))
    assert 100 - scored[-1] <= 16 // 2 + 1 + 8
    assert 16 % HIDDEN == 0


def test_tables_belong_to_their_task():
    following, hidden = tables(4000, "next"), tables(4000, "masked")
    assert following["markov_accuracy"].shape == (5,)
    assert hidden["neighbour_accuracy"].shape == (3,)
    np.testing.assert_array_equal(following["residue_loss"], hidden["residue_loss"])
    for task in ("next", "masked"):
        model = sv.RootedTrees(task=task)
        coordinates = model.coordinates()
        assert all(v.shape == tuple(len(coordinates[d]) for d in model.observables()[n].dims)
                   for n, v in tables(4000, task).items() if np.ndim(v))  # fmt: skip


@pytest.mark.parametrize(("values", "sentence"), [({"heads": 3}, "heads = 3"), ({"context": 50}, "context = 50")])
def test_invalid_networks_are_refused_in_one_sentence(values, sentence):
    with pytest.raises(sv.InvalidValue, match=sentence):
        sv.RootedTrees(**values)


def test_a_text_too_short_for_its_window_is_refused():
    with pytest.raises(sv.InvalidValue, match="size = 300 leaves no test for context = 48"):
        sv.RootedTrees().simulate(0, 300)


def test_the_model_reports_that_it_has_no_theory():
    assert not sv.RootedTrees().has_theory
    with pytest.raises(sv.SolvableError, match="no closed theory"):
        sv.RootedTrees().theory()


def test_a_text_that_is_cut_short_ends_at_the_same_test():
    model = sv.RootedTrees(depth=1, embedding=4, heads=1, context=8, steps=2, batch=2)
    whole, short = (model.replace(read=n).simulate(seed=0, size=2000) for n in (0, 100))
    np.testing.assert_array_equal(whole.word_share, short.word_share)
    np.testing.assert_array_equal(whole.markov_accuracy, short.markov_accuracy)
    # What 100 numbers do not contain is new to a network that reads only them.
    ids = rooted_trees(2000).ids
    scored = windows(ids[1600:], 8)[:, 4:].ravel()
    assert short.new_share == pytest.approx(np.mean(~np.isin(scored, ids[1500:1600])))
    assert short.new_share > whole.new_share
    with pytest.raises(sv.InvalidValue, match=r"read = 1601 is not in \[8, 1600\]"):
        model.replace(read=1601).simulate(seed=0, size=2000)


def test_seeds_side_by_side_are_those_learnt_alone():
    model = sv.RootedTrees(depth=1, embedding=8, heads=2, context=16, steps=5, batch=4)
    both = sv.Study(model, sizes=[1000], seeds=2).run(progress=False).isel(size=0)
    alone = model.simulate(seed=1, size=1000)
    np.testing.assert_allclose(both.network_loss_simulated.sel(seed=1), alone.network_loss, rtol=1e-4)
    assert both.network_loss_simulated[0] != both.network_loss_simulated[1]
