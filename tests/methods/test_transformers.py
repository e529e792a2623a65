"""The transformer sees only the tokens that it may see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.training.squared_attention import InteractionStack
from solvable.methods.training.transformers import Transformer, number_of_parameters

COLOURS, SITES = 7, 9
BARE = {"mlp": 0, "layer_norm": False, "residual": False}
apply = eqx.filter_jit(lambda network, *arguments: network(*arguments))
apply_with_maps = eqx.filter_jit(lambda network, tokens: network.with_maps(tokens))


def made(**settings):
    return Transformer(COLOURS, SITES, **{"width": 16, "depth": 1, "heads": 4, "key": jax.random.key(3), **settings})


def sequence(seed=0):
    return jax.random.randint(jax.random.key(seed), (SITES,), 0, COLOURS)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_later_tokens_do_not_affect_earlier_ones_in_a_causal_network(positions):
    network, tokens = made(causal=True, positions=positions), sequence()
    changed = tokens.at[5:].set((tokens[5:] + 1) % COLOURS)
    before, after = apply(network, tokens), apply(network, changed)
    np.testing.assert_array_equal(before[:5], after[:5])
    assert (np.abs(before[5:] - after[5:]).max(1) > 1e-3).all()


def test_an_encoder_sees_both_sides():
    tokens = sequence()
    for place in (0, SITES - 1):
        moved = apply(made(), tokens) - apply(made(), tokens.at[place].set((tokens[place] + 1) % COLOURS))
        assert (np.abs(moved).max(1) > 1e-4).all()


@pytest.mark.parametrize("settings", [{}, BARE, {"causal": True, "depth": 2}])
def test_a_masked_token_is_invisible(settings):
    network, tokens, masked = made(**settings), sequence(), jnp.arange(SITES) == 4
    changed = tokens.at[4].set((tokens[4] + 2) % COLOURS)
    np.testing.assert_array_equal(apply(network, tokens, masked), apply(network, changed, masked))
    np.testing.assert_array_equal(apply(network, tokens, masked), apply(network, tokens.at[4].set(network.mask)))
    assert np.abs(apply(network, tokens) - apply(network, changed)).max() > 1e-3


def test_without_positions_a_shuffled_sequence_has_shuffled_logits():
    tokens, order = sequence(), np.random.default_rng(0).permutation(SITES)
    plain, placed = made(positions="none"), made()
    np.testing.assert_allclose(apply(plain, tokens)[order], apply(plain, tokens[order]), atol=1e-5)
    assert np.abs(apply(placed, tokens)[order] - apply(placed, tokens[order])).max() > 1e-2


def test_rotary_positions_are_relative():
    """Attention from the last of three equal words sees the same distances wherever they stand in a long sequence."""
    network = made(positions="rotary", heads=1, causal=True)
    maps = apply_with_maps(network, jnp.full((SITES,), 2))[1][0, 0]
    ratio = maps[1:, :-1].diagonal() / maps.diagonal()[1:]  # weight of the one before against one's own
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
    assert abs(ratio[0] - 1) > 1e-3


def test_the_bare_variant_is_one_attention_layer_and_a_linear_head():
    network, tokens = made(width=6, heads=2, **BARE), sequence()
    x = np.asarray(network.tokens)[np.asarray(tokens)] + np.asarray(network.places)
    layer, out, maps = network.blocks[0].attention, 0.0, []
    for q, k, v, o in zip(*(np.asarray(w) for w in (layer.query, layer.key, layer.value, layer.output)), strict=True):
        score = np.exp((x @ q) @ (x @ k).T / np.sqrt(3))
        maps.append(score / score.sum(1, keepdims=True))
        out = out + maps[-1] @ (x @ v) @ o
    logits, seen = apply_with_maps(network, tokens)
    np.testing.assert_allclose(logits, out @ np.asarray(network.head), atol=1e-5)
    np.testing.assert_allclose(seen[0], maps, atol=1e-6)
    assert network.blocks[0].mlp is None
    assert network.blocks[0].norms is None
    assert network.norm is None


def test_attention_maps_sum_to_one_and_a_causal_one_looks_back():
    maps = apply_with_maps(made(causal=True, depth=2), sequence())[1]
    assert maps.shape == (2, 4, SITES, SITES)
    np.testing.assert_allclose(maps.sum(-1), 1.0, atol=1e-6)
    assert (np.triu(maps, 1) == 0).all()


def test_the_parameters_are_those_of_the_architecture():
    w, c, s = 16, COLOURS, SITES
    block = 4 * w * w + (8 * w * w + 5 * w) + 4 * w
    assert number_of_parameters(made(depth=2)) == (c + 1) * w + s * w + 2 * block + 2 * w + w * c + c
    assert number_of_parameters(made(**BARE)) == (c + 1) * w + s * w + 4 * w * w + w * c + c
    assert number_of_parameters(made(positions="rotary")) == number_of_parameters(made()) - s * w


def test_replicas_and_sequences_are_batched_and_single_precision():
    keys = jax.random.split(jax.random.key(1), 3)
    replicas = eqx.filter_jit(eqx.filter_vmap(lambda key: made(key=key)))(keys)
    tokens = jnp.stack([sequence(i) for i in range(4)]).astype(jnp.int8)
    batched = eqx.filter_vmap(lambda n, t: jax.vmap(n)(t), in_axes=(eqx.if_array(0), None))
    logits = eqx.filter_jit(batched)(replicas, tokens)
    assert logits.shape == (3, 4, SITES, COLOURS)
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits[1, 2], apply(made(key=keys[1]), tokens[2]), atol=1e-5)
    assert np.abs(logits[0] - logits[1]).max() > 0.1


def test_invalid_settings_are_refused():
    with pytest.raises(ValueError, match="3 heads do not divide a width of 16"):
        made(heads=3)
    with pytest.raises(ValueError, match="'sinus' is not one of"):
        made(positions="sinus")


SHORTCUTS = {
    "one layer": lambda: made(dtype=jnp.float64),
    "two layers": lambda: made(depth=2, dtype=jnp.float64),
    "bare": lambda: made(**BARE, dtype=jnp.float64),
    "rotary": lambda: made(positions="rotary", dtype=jnp.float64),
    "causal": lambda: made(causal=True, dtype=jnp.float64),
    "three squares": lambda: InteractionStack(COLOURS, SITES, 3, 2, 4, jax.random.key(1), dtype=jnp.float64),
}


@pytest.mark.parametrize("which", SHORTCUTS)
def test_the_shortcut_to_one_hidden_site_is_the_whole_network_there_in_value_and_gradient(which):
    network, tokens, hidden = SHORTCUTS[which](), sequence(), jnp.arange(SITES) == 4

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def short(network):
        return jnp.sum(jnp.sin(network.at_hidden_site(tokens, hidden)))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def whole(network):
        return jnp.sum(jnp.sin(network(tokens, hidden)[4]))

    for one, other in zip(jax.tree.leaves(short(network)), jax.tree.leaves(whole(network)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
