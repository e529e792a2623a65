"""Masked language modelling of planted Potts sequences: learners, their inputs, and their results."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.sequences.potts import conditionals
from solvable.models.attention.masked_language import learners
from solvable.models.attention.masked_language import sequences as law


@pytest.fixture(scope="module")
def sequences():
    data = law.planted(3, 8, 4, 0.7)
    return data, law.draw_sequences(jax.random.key(0), data, 1500, held_out=1000)


def test_factored_attention_finds_the_graph_with_less_excess_than_dense_couplings(sequences):
    data, drawn = sequences
    assert drawn.mixed
    penalties = (0.3, 1.0, 3.0)
    learnt = {
        kind: learners.learn_couplings(kind, drawn, 4, jax.random.key(1), penalties=penalties)
        for kind in ("factored", "dense")
    }
    assert all(fit.converged for fit in learnt.values())
    excess = {kind: fit.excess_loss for kind, fit in learnt.items()}
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
    losses = -logs[rows, sites, np.asarray(drawn.test)].mean(axis=1)
    assert abs(drawn.optimal - losses.mean()) < 4 * losses.std() / np.sqrt(len(losses))
    assert drawn.optimal == pytest.approx(-(np.exp(logs) * logs).sum(-1).mean(), rel=1e-5)


def test_the_excess_loss_is_the_mean_difference_of_the_losses(sequences):
    data, drawn = sequences
    fit = learners.fit_factored(drawn.train, 4, key=jax.random.key(1), fields=False)
    excess = float(learners.divergence(drawn.truth, fit.logits(drawn.test).astype(jnp.float32)))
    rows, sites = np.indices(drawn.test.shape)
    at = (rows, sites, np.asarray(drawn.test))
    own = np.asarray(jax.nn.log_softmax(fit.logits(drawn.test), axis=-1))
    apart = (np.asarray(conditionals(data.law, drawn.test))[at] - own[at]).mean(axis=1)
    assert 0 < excess < 0.1
    assert abs(apart.mean() - excess) < 4 * apart.std() / np.sqrt(len(apart))


def test_a_trainee_draws_its_batches_from_its_own_rows_alone():
    pool = jnp.concatenate([jnp.full((10, 3), c, jnp.int8) for c in (2, 0, 1)])
    network = learners.Transformer(4, 3, width=4, key=jax.random.key(0))
    # A stand-in whose "logits" are a point mass on the token 2: its loss is zero if and only if all rows are twos.
    sure = eqx.tree_at(
        lambda t: t.network, learners.Trainee(network, jnp.asarray(10, jnp.int32), jnp.asarray(0, jnp.int32)),
        lambda tokens, masked: 50.0 * jax.nn.one_hot(jnp.full(3, 2), 4, dtype=jnp.float32))  # fmt: skip
    assert float(learners.OwnRows(64)(sure, pool[None], jax.random.key(0))) < 1e-6
    other = eqx.tree_at(lambda t: t.rows, sure, jnp.asarray(11, jnp.int32))
    assert float(learners.OwnRows(64)(other, pool[None], jax.random.key(0))) > 0.1


def test_transformers_learn_and_more_sequences_help(sequences):
    _, drawn = sequences
    few = drawn._replace(validation=drawn.validation[:300], test=drawn.test[:300], truth=drawn.truth[:300])
    options = {"width": 16, "depth": 1, "heads": 1, "block": "full", "positions": "learned", "steps": 300, "batch": 256,
               "rate": 5e-3, "recorded": 8}  # fmt: skip
    small, large = (
        learners.learn_transformers([few._replace(train=drawn.train[:m])], 4, jax.random.key(2)[None], **options)[0]
        for m in (40, 1500)
    )
    assert small.curve is not None
    assert large.curve is not None
    assert large.steps is not None
    assert len(large.curve) == len(large.steps) == 9
    assert 0 < large.excess_loss < small.excess_loss
    assert large.excess_loss < large.curve[0] - 0.1
    assert np.allclose(large.map.sum(-1), 1.0, atol=1e-4)
    assert large.excess_loss == large.curve[list(large.steps).index(large.best_step)]


def test_scores_of_a_map_match_their_definitions():
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


SMALL = {"sites": 6, "colours": 3, "steps": 5, "embedding": 4, "held_out": 50, "penalties": [1.0]}


def test_the_learners_that_the_figure_compares_are_arms_of_a_study():
    small = sv.MaskedLanguage(**SMALL)
    arms = {name: small.arms_declared[name] for name in ("dense", "bare layer", "1 layer, concatenated")}
    seen = sv.Study(small, arms=arms, sizes=[60], seeds=2).run(progress=False).isel(size=0)
    assert np.isfinite(seen.excess_loss_simulated).all()
    assert np.isfinite(seen.coupling_error_simulated).isel(seed=0).values.tolist() == [True, False, False]
    # All learners of one seed are judged on the same sequences, and another seed draws others.
    optimal = seen.optimal_loss_simulated.values
    assert (optimal == optimal[0]).all()
    assert optimal[0, 0] != optimal[0, 1]


def test_the_key_of_the_data_depends_on_the_law_and_not_on_the_learner():
    model = sv.MaskedLanguage(**SMALL)
    alike = model.replace(learner="transformer", depth=2, steps=7, penalties=[3.0])
    assert (jax.random.key_data(model.key(60, 0)) == jax.random.key_data(alike.key(60, 0))).all()
    assert (jax.random.key_data(model.key(60, 0)) != jax.random.key_data(model.replace(instance=4).key(60, 0))).any()


def test_concatenated_vectors_need_an_embedding_of_at_least_two():
    with pytest.raises(sv.InvalidValue, match="embedding = 1 is too short"):
        sv.MaskedLanguage(learner="transformer", embedding=1, positions="concatenated")
