"""Laws of coloured sequences and their samplers, against brute-force enumeration."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.methods.sequences import monte_carlo, potts

KEY = jax.random.key(3)


def small_laws():
    """Four sites, three colours: every kind of law, and the same one in two representations."""
    rng = np.random.default_rng(1)
    couplings = potts.gaussian_couplings(jax.random.key(0), 4)
    colours = potts.random_symmetric(jax.random.key(1), 3)
    sparse = potts.ManyBody.of_matrix(couplings, colours, 1.3)
    pull = jnp.asarray(1.3 * np.asarray(couplings))
    triples = potts.random_groups(rng, 4, 3, 3)
    return {
        "pairs of unequal strength": sparse,
        "pairs of equal strength": potts.ManyBody.of_matrix(potts.ring(4), colours, 0.9),
        "triples": potts.ManyBody.of_groups(4, triples, potts.random_symmetric(KEY, 3, bodies=3), inverse_temperature=0.8),
        "factored": potts.Factored(couplings, colours, jnp.asarray(1.3)),
        "dense": potts.Dense(
            jnp.asarray(rng.normal(size=(4, 3))), pull[:, None, :, None] * colours[None, :, None, :]
        ),
    }  # fmt: skip


def energy_by_loops(name, state):
    """The definition, one term after the other."""
    law = small_laws()[name]
    if isinstance(law, potts.ManyBody):
        terms = zip(np.asarray(law.groups), np.asarray(law.strengths), strict=True)
        table = np.asarray(law.table)
        return float(law.inverse_temperature) * sum(j * table[tuple(state[i] for i in g)] for g, j in terms)
    pairs = itertools.combinations(range(4), 2)
    if isinstance(law, potts.Factored):
        j, u = np.asarray(law.couplings), np.asarray(law.colour_matrix)
        return float(law.inverse_temperature) * sum(j[a, b] * u[state[a], state[b]] for a, b in pairs)
    w, h = np.asarray(law.couplings), np.asarray(law.fields)
    return sum(h[i, s] for i, s in enumerate(state)) + sum(w[a, state[a], b, state[b]] for a, b in pairs)


@pytest.mark.parametrize("name", list(small_laws()))
def test_weights_and_conditionals_are_those_of_the_definition(name):
    law = small_laws()[name]
    states = potts.every_state(4, 3)
    weights = np.array([energy_by_loops(name, s) for s in states])
    assert np.allclose(law.log_weights(jnp.asarray(states)), weights, atol=1e-12)
    # P(s_i = a | rest) from the definition: compare the weights of the three states that differ at site i only.
    given = np.asarray(potts.conditionals(law, jnp.asarray(states)))
    index = {tuple(s): k for k, s in enumerate(states.tolist())}
    for k in (0, 17, 80):
        for site in range(4):
            rivals = [weights[index[(*states[k][:site], a, *states[k][site + 1 :])]] for a in range(3)]
            assert np.allclose(given[k, site], rivals - np.logaddexp.reduce(rivals), atol=1e-12)


def test_two_partners_at_once_weigh_colours_as_one_by_one():
    groups = np.array([[0, 1], [0, 2], [0, 3], [1, 4], [2, 4]])  # degrees 3, 2, 2, 1, 2, and a site without partners
    law = potts.ManyBody.of_groups(6, groups, potts.random_symmetric(jax.random.key(0), 4), inverse_temperature=0.8)
    work = law.begin(jax.random.randint(jax.random.key(1), (20, 6), 0, 4))
    for site in map(jnp.asarray, range(6)):
        one, two = law._weights_one_by_one(work, site), law._weights_two_by_two(work, site)
        np.testing.assert_allclose(two, one, rtol=1e-12)
        wanted = jax.nn.softmax(law.logits(work, site), axis=1)
        np.testing.assert_allclose(two / jnp.sum(two, axis=1, keepdims=True), wanted, rtol=1e-12)


@pytest.mark.parametrize("colours", [5, monte_carlo.UNROLLED + 1])
def test_colours_are_drawn_by_inversion_however_many(colours):
    weights = jax.random.uniform(jax.random.key(0), (50, colours), minval=0.1)
    uniform = jax.random.uniform(jax.random.key(1), (50,))
    wanted = [
        np.searchsorted(np.cumsum(w), u * np.sum(w)) for w, u in zip(*map(np.asarray, (weights, uniform)), strict=True)
    ]
    assert monte_carlo.draw_colours(weights, uniform).tolist() == wanted


@pytest.mark.parametrize("name", list(small_laws()))
def test_gibbs_samples_have_the_enumerated_pair_frequencies(name):
    law = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, small_laws()[name])
    drawn = monte_carlo.sample(law, KEY, 20_000, chains=2000, sweeps=32)
    assert drawn.mixed
    states, log_probability = potts.enumerated(small_laws()[name])
    assert_pairs_agree(drawn.sequences, states, np.exp(log_probability))


def assert_pairs_agree(sequences, states, probability):
    """All two-site frequencies within five standard errors, and not all of them much too close."""
    sequences, scores = np.asarray(sequences), []
    for a, b in itertools.combinations(range(sequences.shape[1]), 2):
        for c, d in itertools.product(range(states.max() + 1), repeat=2):
            exact = probability[(states[:, a] == c) & (states[:, b] == d)].sum()
            seen = ((sequences[:, a] == c) & (sequences[:, b] == d)).mean()
            scores.append((seen - exact) / np.sqrt(exact * (1 - exact) / len(sequences)))
    assert np.max(np.abs(scores)) < 5
    assert 0.5 < np.std(scores) < 1.6


def test_exact_samplers_have_the_enumerated_pair_frequencies():
    arms, colours = jnp.array([0.9, -0.4, 1.6]), potts.random_symmetric(KEY, 3)
    law = potts.ManyBody.of_matrix(potts.star(arms), colours)
    states, log_probability = potts.enumerated(law)
    assert_pairs_agree(potts.sample_star(KEY, arms, colours, 20_000), states, np.exp(log_probability))
    assert_pairs_agree(potts.sample_enumerated(law, KEY, 20_000), states, np.exp(log_probability))


def frozen_magnet():
    """Sixteen sites that all attract: below the transition the chains stay in the colour they fell into."""
    couplings = (jnp.ones((16, 16)) - jnp.eye(16)) / 15
    return potts.Factored(couplings, potts.standard_potts(2), jnp.asarray(4.5))


def test_chains_that_have_not_mixed_are_reported_and_replica_exchange_mixes_them():
    with pytest.warns(monte_carlo.NotMixed, match="have not mixed after"):
        stuck = monte_carlo.sample(frozen_magnet(), KEY, 128, sweeps=32, most_sweeps=128)
    assert not stuck.mixed
    assert stuck.mixing.r_hat > 1.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = monte_carlo.sample(
            frozen_magnet(), KEY, 400, sweeps=256, most_sweeps=1024, ladder=jnp.linspace(0.3, 1.0, 5)
        )
    assert drawn.mixed
    # The weight of a state depends on its number k of zeros alone: the magnetisation's law is a sum over binomials.
    zeros = np.asarray(16 - drawn.sequences.sum(1))
    k = np.arange(17)
    log_weight = np.array([float(frozen_magnet().log_weights(jnp.array([[0] * n + [1] * (16 - n)]))[0]) for n in k])
    binomial = np.array([np.prod(np.arange(16 - n + 1, 17)) / np.prod(np.arange(1, n + 1)) for n in k])
    law = binomial * np.exp(log_weight - log_weight.max())
    law = law / law.sum()
    majority = np.abs(zeros - 8)
    exact = (law * np.abs(k - 8)).sum()
    spread = np.sqrt((law * np.abs(k - 8) ** 2).sum() - exact**2)
    assert abs(majority.mean() - exact) < 4 * spread / np.sqrt(400)
    assert abs((zeros > 8).mean() - law[9:].sum()) < 4 * 0.5 / np.sqrt(400)


def test_two_states_between_which_no_chain_goes_are_flagged_though_random_starts_agree():
    """Twenty colours at the transition of first order: chains that begin at random all stay without order."""
    pull = (jnp.ones((100, 100)) - jnp.eye(100)).astype(jnp.float32) / 100
    law = potts.Factored(pull, potts.standard_potts(20).astype(jnp.float32), jnp.float32(7.0))
    blind = monte_carlo.random_states(KEY, 256, 100, 20)
    _, traces = jax.jit(lambda states: monte_carlo.gibbs(law, KEY, states, 64))(blind)
    assert monte_carlo.mixing(traces[32:]).mixed
    with pytest.warns(monte_carlo.NotMixed):
        drawn = monte_carlo.sample(law, KEY, 256, sweeps=64, most_sweeps=64)
    assert not drawn.mixed
    assert drawn.mixing.r_hat > 2


def test_the_effective_number_of_sweeps_of_a_known_chain():
    """An autoregressive trace with correlation ρ has τ = (1+ρ)/(1−ρ)."""
    rho, n, chains = 0.6, 400, 64
    noise = jax.random.normal(KEY, (n, chains))

    def step(x, e):
        x = rho * x + np.sqrt(1 - rho**2) * e
        return x, x

    _, trace = jax.lax.scan(step, jax.random.normal(jax.random.key(9), (chains,)), noise)
    found = monte_carlo.mixing(trace[:, :, None])
    assert float(found.effective_sweeps) == pytest.approx(n / 4, rel=0.1)
    assert float(found.r_hat) < 1.03
    assert float(monte_carlo.mixing(jnp.ones((20, 4, 1))).r_hat) == 1.0


def test_sampling_in_parts_is_reproducible_and_independent_between_parts():
    law = potts.ManyBody.of_matrix(potts.ring(5), potts.standard_potts(3), 0.5)
    first, again = (monte_carlo.sample(law, KEY, 515, sweeps=16) for _ in range(2))
    assert np.array_equal(first.sequences, again.sequences)
    quarters = [np.asarray(first.sequences)[p * 129 : p * 129 + 100] for p in range(4)]
    assert all(not np.array_equal(a, b) for a, b in itertools.combinations(quarters, 2))


def test_ensembles_have_their_declared_form():
    graph = np.asarray(potts.random_graph(KEY, 30, neighbours=2))
    assert set(np.unique(graph)) == {0.0, 1.0}
    assert np.array_equal(graph, graph.T)
    assert not np.diag(graph).any()
    assert graph.sum(0).min() >= 2
    assert graph.sum() / 2 <= 60
    gauss = np.asarray(potts.gaussian_couplings(KEY, 200, strength=2.0))
    assert np.array_equal(gauss, gauss.T)
    assert gauss[np.triu_indices(200, 1)].var() * 199 == pytest.approx(2.0, rel=0.05)
    assert np.asarray(potts.ring(5)).sum() == 10
    assert np.asarray(potts.star(jnp.ones(4))).sum() == 8
    four = np.asarray(potts.random_symmetric(KEY, 4, bodies=4))
    assert np.allclose(four, four.transpose(2, 0, 3, 1))
    assert len({tuple(g) for g in potts.random_groups(np.random.default_rng(0), 60, 4, 300).tolist()}) == 300


def test_wrong_shapes_and_too_many_states_are_refused():
    with pytest.raises(InvalidValue, match="more than the 1000000"):
        potts.every_state(20, 10)
    with pytest.raises(InvalidValue, match="couplings must be a symmetric matrix"):
        potts.ManyBody.of_matrix(jnp.triu(jnp.ones((3, 3))), potts.standard_potts(2))
    with pytest.raises(InvalidValue, match="groups of 3 sites need an array of 3"):
        potts.ManyBody.of_groups(4, [[0, 1, 2]], potts.standard_potts(2))
    with pytest.raises(InvalidValue, match="number = 16"):
        potts.random_groups(np.random.default_rng(0), 6, 4, 16)


def test_all_chunks_of_a_run_have_the_precision_of_its_caller(monkeypatch):
    """Threads do not inherit it: on a GPU later chunks had products of eleven bits, and every law was compiled twice."""
    seen, chunk = [], monte_carlo._chunk

    def watched(*arguments):
        seen.append(jax.config.jax_default_matmul_precision)
        return chunk(*arguments)

    monkeypatch.setattr(monte_carlo, "_chunk", watched)
    with jax.default_matmul_precision("highest"):
        monte_carlo.sample(small_laws()["dense"], KEY, 20, sweeps=16)
    assert len(seen) > 1
    assert set(seen) == {"highest"}
