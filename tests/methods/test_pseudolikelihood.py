"""Pseudo-likelihood and masked-language training are one function; gauges change nothing; fits find what was planted."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.sequences import dense_potts
from solvable.methods.sequences import pseudolikelihood as pl

L, C, M = 5, 3, 7


def random_potts(seed: int = 0, sites: int = L, colours: int = C):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(sites, colours, sites, colours)) * (1 - np.eye(sites))[:, None, :, None]
    return jnp.asarray(rng.normal(size=(sites, colours))), jnp.asarray(w + w.transpose(2, 3, 0, 1))


def random_sequences(seed: int = 1, number: int = M, sites: int = L, colours: int = C):
    return jnp.asarray(np.random.default_rng(seed).integers(0, colours, (number, sites)))


def all_sequences(sites: int = L, colours: int = C):
    return jnp.asarray(list(itertools.product(range(colours), repeat=sites)))


def planted(sites=12, colours=4, number=1500, seed=0):
    """Sequences of a ring with two chords, one colour matrix for all contacts, by Gibbs sweeps in NumPy."""
    rng = np.random.default_rng(seed)
    contacts = {(i, i + 1) for i in range(sites - 1)} | {(0, 6), (3, 9)}
    u = rng.normal(size=(colours, colours))
    u = u + u.T
    near = [[j for j in range(sites) if (min(i, j), max(i, j)) in contacts] for i in range(sites)]
    s = rng.integers(0, colours, (number, sites))
    for _ in range(40):
        for i in range(sites):
            z = sum(u[s[:, j]] for j in near[i])
            s[:, i] = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    return s, contacts, u


def strongest(scores, number):
    pairs = list(zip(*np.triu_indices(len(scores), 1), strict=True))
    order = sorted(pairs, key=lambda pair: -scores[pair])
    return {(int(i), int(j)) for i, j in order[:number]}


# --- identities -------------------------------------------------------------------------------------------------------


def test_conditionals_are_those_of_the_boltzmann_law():
    fields, couplings = random_potts()
    everything = all_sequences()
    weight = np.exp(-np.asarray(pl.pair_energies(fields, couplings, everything)))
    logits = np.asarray(pl.conditional_logits(fields, couplings, everything[:20]))
    index = {tuple(s): k for k, s in enumerate(np.asarray(everything).tolist())}
    for row, s in enumerate(np.asarray(everything[:20]).tolist()):
        for i in range(L):
            law = np.array([weight[index[(*s[:i], a, *s[i + 1 :])]] for a in range(C)])
            np.testing.assert_allclose(jax.nn.softmax(logits[row, i]), law / law.sum(), rtol=1e-12)


def test_pseudolikelihood_equals_a_loop_over_sites_and_sequences():
    fields, couplings = random_potts()
    s, weights = np.asarray(random_sequences()), np.linspace(0.5, 2, M)
    total = 0.0
    for m, i in itertools.product(range(M), range(L)):
        z = [
            float(fields[i, a]) + sum(float(couplings[i, a, j, s[m, j]]) for j in range(L) if j != i) for a in range(C)
        ]
        total += weights[m] * (np.log(np.sum(np.exp(z))) - z[s[m, i]])
    value = pl.negative_log_pseudolikelihood(fields, couplings, jnp.asarray(s), jnp.asarray(weights))
    assert float(value) == pytest.approx(total, rel=1e-13)


@pytest.mark.parametrize("sites", [4, 5])
@pytest.mark.parametrize("rows", [None, 3])
def test_dense_objective_and_gradient_equal_those_of_the_plain_definition(sites, rows):
    fields, couplings = random_potts(sites=sites)
    s, weights = random_sequences(sites=sites), jnp.linspace(0.5, 2, M)
    chunks = dense_potts.chunked(np.asarray(s), np.asarray(weights), C, jnp.float64, rows)
    objective = pl.DenseObjective(*chunks, jnp.asarray(0.7), jnp.asarray(0.3), C)

    def plain(packed):
        w = pl.unpack(packed.pairs, sites, C)
        squares = 0.25 * 0.7 * jnp.sum(w**2) + 0.5 * 0.3 * jnp.sum(packed.fields**2)
        return pl.negative_log_pseudolikelihood(packed.fields, w, s, weights) + squares

    packed = pl.Packed(fields, pl.pack(couplings))
    value, gradient = eqx.filter_jit(objective)(packed)
    wanted, slopes = jax.jit(jax.value_and_grad(plain))(packed)
    assert float(value) == pytest.approx(float(wanted), rel=1e-13)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), gradient, slopes)


def test_dense_gradient_and_curvatures_equal_finite_differences():
    fields, couplings = random_potts()
    chunks = dense_potts.chunked(np.asarray(random_sequences()), np.ones(M), C, jnp.float64, None)
    objective = pl.DenseObjective(*chunks, jnp.asarray(0.7), jnp.asarray(0.3), C)
    packed, step = pl.Packed(fields, pl.pack(couplings)), 1e-4
    curved = eqx.filter_jit(objective.curvatures)(packed)
    flat, restore = jax.flatten_util.ravel_pytree(packed)
    slopes, _ = jax.flatten_util.ravel_pytree(eqx.filter_jit(objective)(packed)[1])
    second, _ = jax.flatten_util.ravel_pytree(curved)
    value = jax.jit(lambda x: objective(restore(x))[0])
    middle = value(flat)
    for k in (0, 7, 15 + 3, 15 + 80, 15 + 81 + 5, 15 + 81 + 60):
        up, down = value(flat.at[k].add(step)), value(flat.at[k].add(-step))
        if slopes[k] == 0:
            continue  # an entry that belongs to no pair of sites
        assert float((up - down) / (2 * step)) == pytest.approx(float(slopes[k]), rel=1e-6, abs=1e-8)
        assert float((up - 2 * middle + down) / step**2) == pytest.approx(float(second[k]), rel=1e-4)


@pytest.mark.parametrize(("sites", "cached"), [(4, 1 << 23), (5, 1 << 23), (5, 600), (7, 2000)])
def test_rows_picked_by_a_processor_sum_to_the_products_of_an_accelerator(sites, cached, monkeypatch):
    monkeypatch.setattr(dense_potts, "CACHED", cached)  # small: several blocks of sites, the last of which begins early
    fields, couplings = random_potts(sites=sites)
    s, weights = np.asarray(random_sequences(sites=sites)), np.linspace(0.5, 2, M)
    chunks = dense_potts.chunked(s, weights, C, jnp.float64, 3)
    filled = np.asarray(chunks[0]).reshape(-1, sites)
    members = dense_potts.members_of(filled, sites + sites % 2, C)
    packed = pl.Packed(fields, pl.pack(couplings))
    by_chunks, by_sites = (
        pl.DenseObjective(*chunks, jnp.asarray(0.7), jnp.asarray(0.3), C, found) for found in (None, members)
    )
    (one, slopes), (other, same) = (eqx.filter_jit(objective)(packed) for objective in (by_chunks, by_sites))
    assert float(one) == pytest.approx(float(other), rel=1e-13)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), slopes, same)
    curved = [eqx.filter_jit(objective.curvatures)(packed) for objective in (by_chunks, by_sites)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), *curved)


def test_lists_of_members_hold_every_sequence_once_per_site():
    s = np.random.default_rng(0).integers(0, 3, (500, 4))
    found = dense_potts.members_of(s, 4, 3)
    shown = [
        (int(of), int(m)) for of, row in zip(found.of, np.asarray(found.rows), strict=True) for m in row if m < 500
    ]
    assert sorted(shown) == sorted((3 * i + int(s[m, i]), m) for m in range(500) for i in range(4))
    assert np.all(np.diff(found.of) >= 0)
    one_colour, even = (
        dense_potts.members_of(s, 4, 3) for s in (np.zeros((500, 4), int), np.arange(2000).reshape(500, 4) % 3)
    )
    assert one_colour.rows.shape == even.rows.shape == found.rows.shape  # one program for all


def test_packing_keeps_each_pair_exactly_once():
    for sites in (4, 5):
        _, couplings = random_potts(sites=sites)
        pairs = pl.pack(couplings)
        np.testing.assert_array_equal(pl.unpack(pairs, sites, C), couplings)
        assert sum(int(jnp.sum(part != 0)) for part in pairs) == sites * (sites - 1) // 2 * C**2


@pytest.mark.parametrize("attention", ["free", "softmax"])
@pytest.mark.parametrize("heads", [1, 2])
def test_masked_language_loss_of_the_network_is_the_pseudolikelihood_of_its_couplings(attention, heads):
    rng = np.random.default_rng(2)
    network = pl.FactoredAttention(
        jnp.asarray(rng.normal(size=(heads, L, L))), jnp.asarray(rng.normal(size=(heads, C, C))),
        jnp.asarray(rng.normal(size=(L, C))), attention,
    )  # fmt: skip
    s = random_sequences()

    def potts(network):
        return pl.negative_log_pseudolikelihood(network.fields, network.directed_couplings(), s) / (M * L)

    chunks = dense_potts.chunked(np.asarray(s), np.ones(M), C, jnp.float64, 3)
    objective = pl.FactoredObjective(*chunks, jnp.asarray(0.0), jnp.asarray(0.0), True)
    wanted, slopes = eqx.filter_jit(jax.value_and_grad(pl.masked_language_loss))(network, s)
    value, gradient = eqx.filter_jit(jax.value_and_grad(potts))(network)
    fitted, fitted_gradient = eqx.filter_jit(objective)(network)
    assert float(value) == pytest.approx(float(wanted), rel=1e-14)
    assert float(fitted) / (M * L) == pytest.approx(float(wanted), rel=1e-14)
    for found in (gradient, jax.tree.map(lambda g: g / (M * L), fitted_gradient)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-15), found, slopes)


def test_softmax_maps_are_positive_with_unit_rows_and_no_self_attention():
    maps = pl.FactoredAttention(jnp.ones((2, L, L)), jnp.ones((2, C, C)), jnp.zeros((L, C)), "softmax").attention_maps()
    np.testing.assert_allclose(jnp.sum(maps, axis=2), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(jnp.diagonal(maps, axis1=1, axis2=2), 0.0)


# --- gauge ------------------------------------------------------------------------------------------------------------


def test_zero_sum_gauge_changes_no_probability_and_is_reached():
    fields, couplings = random_potts()
    h, w = pl.zero_sum(fields, couplings)
    everything = all_sequences()
    before, after = pl.pair_energies(fields, couplings, everything), pl.pair_energies(h, w, everything)
    np.testing.assert_allclose(jax.nn.softmax(-before), jax.nn.softmax(-after), rtol=1e-12)
    for axis in (1, 3):
        np.testing.assert_allclose(jnp.sum(w, axis=axis), 0.0, atol=1e-12)
    np.testing.assert_allclose(jnp.sum(h, axis=1), 0.0, atol=1e-12)


def test_scores_do_not_see_the_gauge():
    fields, couplings = random_potts()
    rng = np.random.default_rng(3)
    shift = rng.normal(size=(L, C, L)) * (1 - np.eye(L))[:, None, :]
    one_sided = np.broadcast_to(shift[..., None], couplings.shape)  # depends on a, not on b
    moved = couplings + jnp.asarray(one_sided + one_sided.transpose(2, 3, 0, 1))
    np.testing.assert_allclose(pl.contact_scores(moved), pl.contact_scores(couplings), atol=1e-12)


def test_scores_without_a_colour_ignore_its_couplings():
    _, couplings = random_potts()
    norms = pl.frobenius(couplings, without=2)
    _, w = pl.zero_sum(jnp.zeros((L, C)), couplings)
    assert float(norms[0, 3]) == pytest.approx(float(jnp.sqrt(jnp.sum(w[0, :2, 3, :2] ** 2))), rel=1e-12)


# --- fits -------------------------------------------------------------------------------------------------------------


def test_dense_fit_is_stationary_finds_the_planted_graph_and_does_not_depend_on_chunks():
    s, contacts, _ = planted(number=1000)
    fit = pl.fit_dense(s, 4, penalty=2.0, tolerance=1e-5, dtype=jnp.float64)
    assert fit.converged
    plain = jax.jit(
        jax.grad(
            lambda h, w: pl.negative_log_pseudolikelihood(h, w, jnp.asarray(s)) + jnp.sum(h**2) + 0.5 * jnp.sum(w**2),
            argnums=(0, 1),
        )
    )(fit.fields, fit.couplings)
    np.testing.assert_allclose(plain[0], 0, atol=5e-4)
    np.testing.assert_allclose(plain[1] + plain[1].transpose(2, 3, 0, 1), 0, atol=5e-4)
    assert strongest(pl.contact_scores(fit.couplings), len(contacts)) == contacts
    single = pl.fit_dense(s, 4, penalty=2.0, rows=300)
    assert single.converged
    np.testing.assert_allclose(single.couplings, fit.couplings, atol=3e-3)
    assert pl.test_loss(fit, s) == pytest.approx(float(fit.loss), rel=1e-12)


def test_weight_two_is_the_sequence_twice():
    s, _, _ = planted(number=250)
    votes = np.repeat([2.0, 1.0, 0.0], [50, 150, 50])
    heavy = pl.fit_dense(s, 4, weights=votes, tolerance=1e-9, dtype=jnp.float64)
    twice = pl.fit_dense(np.concatenate([s[:200], s[:50]]), 4, tolerance=1e-9, dtype=jnp.float64)
    assert heavy.converged
    assert twice.converged
    np.testing.assert_allclose(heavy.couplings, twice.couplings, atol=1e-8)


def test_factored_fit_finds_graph_and_colours_and_loses_less_than_the_dense_one_on_new_sequences():
    s, contacts, u = planted()
    train, new = s[:1000], s[1000:]
    fit = pl.fit_factored(train, 4, key=jax.random.key(0))
    assert fit.converged
    assert strongest(pl.contact_scores(fit.couplings), len(contacts)) == contacts
    centred = u - u.mean(0) - u.mean(1)[:, None] + u.mean()
    block = np.asarray(fit.couplings)[0, :, 1]
    assert np.corrcoef(block.ravel(), centred.ravel())[0, 1] > 0.99
    dense = pl.fit_dense(train, 4, penalty=2.0, rows=300)
    assert pl.test_loss(fit, new) < pl.test_loss(dense, new)
    np.testing.assert_allclose(fit.couplings, fit.couplings.transpose(2, 3, 0, 1), atol=1e-14)


def test_two_heads_fit_two_kinds_of_contacts_where_one_cannot():
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 3, (2, 1000))
    same = np.where(rng.random(1000) < 0.8, a, rng.integers(0, 3, 1000))
    next_one = np.where(rng.random(1000) < 0.8, (b + 1) % 3, rng.integers(0, 3, 1000))
    s = np.stack([a, same, b, next_one], axis=1)
    one = pl.fit_factored(s, 3, key=jax.random.key(1), heads=1)
    three = pl.fit_factored(s, 3, key=jax.random.key(1), heads=3)
    assert float(one.loss) > float(three.loss) + 0.03
    # Three heads have all that the two kinds of contacts need: the conditional entropy of the law is what remains.
    right, wrong = 0.8 + 0.2 / 3, 0.2 / 3
    assert float(three.loss) == pytest.approx(-right * np.log(right) - 2 * wrong * np.log(wrong), abs=0.03)


def test_softmax_attention_without_fields_keeps_the_fields_at_zero():
    s, _, _ = planted(number=250)
    fit = pl.fit_factored(s, 4, key=jax.random.key(0), attention="softmax", fields=False, iterations=30)
    np.testing.assert_array_equal(fit.fields, 0.0)
    assert float(fit.loss) < np.log(4)


def test_short_fit_is_not_called_converged_and_bad_input_is_refused():
    s, _, _ = planted(number=100)
    short = pl.fit_dense(s, 4, iterations=2)
    assert not short.converged
    for bad in (s.astype(float), s[0], s + 1, s[:, :1]):
        with pytest.raises(ValueError):
            pl.fit_dense(bad, 4)
    with pytest.raises(ValueError):
        pl.fit_dense(s, 4, weights=-np.ones(100))
    with pytest.raises(ValueError):
        pl.fit_factored(s, 4, key=jax.random.key(0), heads=0)
    with pytest.raises(ValueError):
        pl.test_loss(short, s[:, :5])
