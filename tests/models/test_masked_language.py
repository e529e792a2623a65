"""Masked language modelling of planted Potts sequences: learners, what they may see, and what they find."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.sequences.potts import conditionals
from solvable.models.attention.masked_language import figures, joint, learners
from solvable.models.attention.masked_language import sequences as law


@pytest.fixture(scope="module")
def sequences():
    data = law.planted(3, 8, 4, 0.7)
    return data, law.draw_sequences(jax.random.key(0), data, 1500, held_out=1000)


def test_factored_attention_finds_the_graph_with_less_excess_than_dense_couplings(sequences):
    data, drawn = sequences
    assert drawn.mixed
    learnt = {kind: learners.learn_couplings(kind, drawn, 4, jax.random.key(1)) for kind in ("factored", "dense")}
    assert all(fit.converged for fit in learnt.values())
    excess = {kind: fit.test_loss - drawn.optimal for kind, fit in learnt.items()}
    assert 0 < excess["factored"] < 0.5 * excess["dense"] < 0.05
    true = np.asarray(data.couplings)
    assert law.contact_precision(learnt["factored"].map, true) == 1.0
    assert law.map_correlation(learnt["factored"].map, true) > 0.95
    couplings = learnt["factored"].couplings
    assert couplings is not None
    assert law.coupling_error(couplings, data, 0.7) < 0.3
    # V is U up to a factor once both are in zero-sum gauge.
    values = learnt["factored"].colours
    assert values is not None
    wanted = np.asarray(law.zero_sum_colours(data.colours))
    assert np.corrcoef(values.ravel(), wanted.ravel())[0, 1] > 0.95


def test_the_optimal_loss_is_that_of_the_true_conditionals(sequences):
    data, drawn = sequences
    logs = np.asarray(conditionals(data.law, drawn.test))
    rows, sites = np.indices(drawn.test.shape)
    assert drawn.optimal == pytest.approx(-logs[rows, sites, np.asarray(drawn.test)].mean(), rel=1e-5)


def test_a_trainee_draws_its_batches_from_its_own_rows_alone():
    pool = jnp.concatenate([jnp.full((10, 3), c, jnp.int8) for c in range(4)])
    # A stand-in whose "logits" are a point mass on the token 2: its loss is zero if and only if all rows are twos.
    sure = eqx.tree_at(lambda t: t.network, trainee(first=20, rows=10), lambda tokens, masked: 50.0 * jax.nn.one_hot(
        jnp.full(3, 2), 4, dtype=jnp.float32))  # fmt: skip
    assert float(learners.OwnRows(64)(sure, pool, jax.random.key(0))) < 1e-6
    other = eqx.tree_at(lambda t: t.rows, sure, jnp.asarray(11, jnp.int32))
    assert float(learners.OwnRows(64)(other, pool, jax.random.key(0))) > 0.1


def trainee(first, rows):
    network = learners.Transformer(4, 3, width=4, key=jax.random.key(0))
    return learners.Trainee(network, jnp.asarray(first, jnp.int32), jnp.asarray(rows, jnp.int32))


def test_replicas_of_transformers_learn_and_more_sequences_help(sequences):
    _, drawn = sequences
    run = learners.learn_transformers(
        drawn.train, [40, 1500], drawn.validation[:300], drawn.test[:300], 4, jax.random.key(2), width=16, depth=1,
        steps=300, rate=5e-3, recorded=8,
    )  # fmt: skip
    assert run.curve.shape == (len(run.steps), 2)
    assert run.test_loss[1] < run.test_loss[0]
    assert run.test_loss[1] < run.curve[0, 1] - 0.1
    assert np.allclose(run.maps.sum(-1), 1.0, atol=1e-4)
    assert np.array_equal(run.test_loss[1], run.curve[list(run.steps).index(run.best_step[1]), 1])


def test_scores_of_a_map_are_what_they_say():
    couplings = np.zeros((4, 4))
    couplings[0, 1] = couplings[1, 0] = couplings[2, 3] = couplings[3, 2] = 1.0
    assert law.contact_precision(couplings, couplings) == 1.0
    assert law.map_correlation(3 * couplings, couplings) == pytest.approx(1.0)
    assert law.map_correlation(np.ones((4, 4)), couplings) == 0.0
    half = couplings.copy()
    half[2, 3] = half[3, 2] = 0.0
    half[0, 2] = 0.5
    assert law.contact_precision(half, couplings) == 0.5


def test_heads_that_do_not_divide_the_embedding_are_refused():
    with pytest.raises(sv.InvalidValue, match="heads = 3 does not divide embedding = 32"):
        sv.MaskedLanguage(learner="transformer", heads=3)


def test_the_learners_that_the_figure_compares_are_arms_of_a_study():
    small = sv.MaskedLanguage(sites=6, colours=3, steps=5, embedding=4)
    assert list(small.arms_declared) == ["factored", "dense", "1 layer", "2 layers", "3 layers", "bare layer"]
    arms = {name: small.arms_declared[name] for name in ("dense", "bare layer")}
    seen = sv.Study(small, arms=arms, sizes=[60], seeds=1).run(progress=False).isel(size=0, seed=0)
    assert np.isfinite(seen.excess_loss_simulated).all()
    assert np.isfinite(seen.coupling_error_simulated).values.tolist() == [True, False]


def test_every_transformer_that_is_compared_is_an_arm():
    full, quick = (joint.networks(settings) for settings in (figures.FULL, figures.QUICK))
    assert full == ["1 layer", "2 layers", "3 layers", "bare layer"]
    assert quick == full[:2]
