"""Training: the batches, the losses, and that a run depends on its key alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.training import loops
from solvable.methods.training.loops import (
    MaskedTokens,
    NextToken,
    Optimiser,
    descend,
    draw_rows,
    geometric_steps,
    mask_fraction,
    mask_one_site,
    masked_cross_entropy,
    masked_loss,
    next_token_loss,
    train,
)
from solvable.methods.training.transformers import Transformer

COLOURS, SITES = 5, 6
DATA = jax.random.randint(jax.random.key(0), (12, SITES), 0, COLOURS)


def network(key=7, **settings):
    key = jax.random.key(key) if isinstance(key, int) else key
    return Transformer(COLOURS, SITES, **{"width": 16, "heads": 2, "key": key, **settings})


def log_softmax(logits):
    logits = np.asarray(logits, float)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_the_masked_loss_equals_one_written_as_a_loop():
    model, forward = network(), eqx.filter_jit(lambda m, tokens, masked: m(tokens, masked))
    total = 0.0
    for tokens in DATA:
        for site in range(SITES):
            logits = forward(model, tokens, jnp.arange(SITES) == site)
            total -= log_softmax(logits)[site, int(tokens[site])]
    np.testing.assert_allclose(eqx.filter_jit(masked_loss)(model, DATA, 5), total / DATA.size, rtol=1e-5)


def test_one_random_mask_per_sequence_is_an_unbiased_masked_loss():
    model, rows = network(), jnp.tile(DATA, (400, 1))
    masked = mask_one_site(jax.random.key(2), rows)
    assert (masked.sum(1) == 1).all()
    counts = masked.sum(0)
    assert np.abs(counts - 800).max() < 4 * np.sqrt(800)
    exact = eqx.filter_jit(masked_loss)(model, DATA, 5)
    assert abs(eqx.filter_jit(masked_cross_entropy)(model, rows, masked) - exact) < 0.06


def test_a_fraction_of_the_sites_is_masked_and_never_none():
    masked = np.asarray(mask_fraction(jax.random.key(0), jnp.zeros((4000, 20), int), 0.15))
    assert masked.any(1).all()
    assert abs(masked.mean() - (1 - 0.85 * 0.95)) < 0.01


def test_the_next_token_loss_equals_one_written_as_a_loop():
    model = network(causal=True)
    forward = eqx.filter_jit(lambda m, tokens: m(tokens))
    terms = [-log_softmax(forward(model, t))[i, int(t[i + 1])] for t in DATA[:3] for i in range(SITES - 1)]
    np.testing.assert_allclose(eqx.filter_jit(next_token_loss)(model, DATA[:3]), np.mean(terms), rtol=1e-5)


def test_rows_are_drawn_evenly():
    counts = np.bincount(np.asarray(draw_rows(jax.random.key(0), jnp.arange(5)[:, None], 5000))[:, 0], minlength=5)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(800)


@pytest.mark.parametrize("loss", [MaskedTokens(batch=16), NextToken(batch=16)], ids=["masked", "next"])
def test_a_small_data_set_is_memorised(loss):
    """Every row of these data is fixed by any one of its words but the first."""
    data = (jnp.arange(12)[:, None] + jnp.arange(SITES)[None, :] ** 2) % 5
    model = network(causal=isinstance(loss, NextToken))
    run = train(model, loss, data, Optimiser("adam", rate=5e-3, warmup=10, steps=300), 300, jax.random.key(1))
    assert run.losses[1] > 1.0
    assert run.losses[-1] < 0.02


def test_the_same_key_gives_the_same_bits_whatever_is_recorded():
    optimiser = Optimiser("adam", rate=3e-3, steps=30)
    runs = [
        train(network(), MaskedTokens(batch=16), DATA, optimiser, 30, jax.random.key(seed), record=record)
        for seed, record in ((5, [30]), (5, [0, 7, 30]), (6, [30]))
    ]
    first, again, other = (jax.tree.leaves(eqx.filter(r.network, eqx.is_array)) for r in runs)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    weights = np.diff([0, 7, 30])
    np.testing.assert_allclose(weights @ runs[1].losses[1:] / 30, runs[0].losses[0], rtol=1e-5)


def test_replicas_are_the_single_runs_and_share_one_program(traces):
    keys = jax.random.split(jax.random.key(3), 2)
    replicas = eqx.filter_jit(eqx.filter_vmap(network))(keys)
    settings = (MaskedTokens(batch=16), DATA, Optimiser("adam", rate=1e-3, steps=20), 20)
    run = train(replicas, *settings, keys, record=[5, 20], measure=masked_loss, held_out=DATA)
    assert run.losses.shape == run.measures.shape == (2, 2)
    alone = train(network(keys[1]), *settings, keys[1], record=[5, 20], measure=masked_loss, held_out=DATA)
    np.testing.assert_allclose(run.losses[:, 1], alone.losses, rtol=1e-4)
    np.testing.assert_allclose(run.measures[:, 1], alone.measures, rtol=1e-4)
    traces.clear()
    longer = (MaskedTokens(batch=16), DATA, Optimiser("adam", rate=2e-3, steps=33), 33)
    train(replicas, *longer, keys, record=[1, 20, 33], measure=masked_loss, held_out=DATA)
    assert traces == []


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_every_optimiser_takes_the_steps_it_is_named_after(kind):
    """A quadratic with known slope, two steps by hand."""
    optimiser = Optimiser(kind, rate=0.1, memory=(0.8, 0.9))
    run = train(jnp.ones(1, jnp.float32), lambda w, data, key: jnp.sum(w**2), None, optimiser, 2, jax.random.key(0))
    first = 1 - 0.1 * 2
    expected = {
        "sgd": first - 0.1 * 2 * first,
        "momentum": first - 0.1 * (2 * first + 0.8 * 2),
    }
    if kind == "adam":
        second = 1 - 0.1
        mean, square = (0.8 * 0.2 * 2 + 0.2 * 2 * second) / (1 - 0.64), (0.9 * 0.4 + 0.1 * 4 * second**2) / (1 - 0.81)
        expected["adam"] = second - 0.1 * mean / np.sqrt(square)
    np.testing.assert_allclose(run.network[0], expected[kind], rtol=1e-5)


def test_weight_decay_shrinks_matrices_and_spares_vectors():
    weights = {"matrix": jnp.ones((2, 2), jnp.float32), "vector": jnp.ones(2, jnp.float32)}
    flat = lambda w, data, key: 0.0 * (jnp.sum(w["matrix"]) + jnp.sum(w["vector"]))  # noqa: E731
    run = train(weights, flat, None, Optimiser("sgd", rate=0.1, decay=0.5), 1, jax.random.key(0))
    np.testing.assert_allclose(run.network["matrix"], 0.95)
    np.testing.assert_allclose(run.network["vector"], 1.0)


def test_geometric_steps_begin_at_zero_and_end_at_the_last():
    steps = geometric_steps(1000, 12)
    assert steps[0] == 0
    assert steps[-1] == 1000
    assert (np.diff(steps) > 0).all()


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(ValueError, match="'adagrad' is not one of"):
        Optimiser("adagrad", rate=0.1)


def test_descending_in_a_batch_gives_the_weights_of_training_one_by_one():
    """The number of steps is traced, and differs between the lanes."""

    def noisy(weights, goal, key):
        return jnp.sum((weights - goal + 0.1 * jax.random.normal(key, (3,), jnp.float32)) ** 2)

    goals, steps = jnp.arange(6, dtype=jnp.float32).reshape(2, 3), (4, 9)
    rule, begin, key = Optimiser("adam", rate=0.1), jnp.zeros(3, jnp.float32), jax.random.key(1)
    together = jax.jit(jax.vmap(lambda goal, n: descend(begin, noisy, goal, rule, n, key)))(goals, jnp.asarray(steps))
    for goal, number, found in zip(goals, steps, together, strict=True):
        np.testing.assert_allclose(found, train(begin, noisy, goal, rule, number, key).network, rtol=1e-6)


def test_rounds_of_steps_are_the_same_steps():
    """On an accelerator most steps are taken in rounds of fixed length, which must not change the weights."""
    target = jnp.asarray([1.0, -2.0], jnp.float32)
    begin, rule = jnp.zeros((3, 2), jnp.float32), Optimiser("adam", rate=0.1, steps=24)
    keys = jax.random.split(jax.random.key(0), 3)

    def noisy(weights, data, key):
        return jnp.sum((weights - data + 0.1 * jax.random.normal(key, (2,), jnp.float32)) ** 2)

    state = loops._start(begin, rule, keys)
    span = (jnp.asarray(0, jnp.int32), jnp.asarray(24, jnp.int32))
    one, eight = (loops._take(begin, state, noisy, target, rule, keys, *span, n) for n in (1, 8))
    np.testing.assert_array_equal(one[0], eight[0])
    np.testing.assert_array_equal(one[2], eight[2])
    assert float(jnp.abs(one[0] - begin).min()) > 0.1
