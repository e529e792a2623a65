"""Rules for transformers: what `parametrise` sets, what one step does, and how lazy blocks are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

import solvable as sv
from solvable.models.signals.transformer_scaling.at_once import Table, grid_of_lanes, lanes_as_arrays, together, trained
from solvable.models.signals.transformer_scaling.figures import best_rates
from solvable.models.signals.transformer_scaling.laziness import measured
from solvable.models.signals.transformer_scaling.network import GPT, parametrise
from solvable.models.signals.transformer_scaling.text_figures import harmless, saved
from solvable.render.pieces import Pieces

BASE = {"base_width": 16, "base_depth": 2, "rate": 1e-2, "clip": None, "decay": 0.0}


def draw(width=64, depth=16):
    return GPT.draw(5, 8, width=width, depth=depth, heads=2, key=jax.random.key(0))


def step_of(network, optimiser, gradients, number=1):
    state, updates = optimiser.init(network), None
    with jax.numpy_dtype_promotion("standard"):  # optax mixes Python floats and integers
        for _ in range(number):
            updates, state = optimiser.update(gradients, state, network)
    return updates


def test_completep_has_the_multipliers_of_the_authors_code():
    """m_N = 4 and m_L = 8: branches 1/8, hidden variance and rate 1/4, rate of biases 1, logits 1/4, decay 4."""
    network, optimiser = parametrise(draw(), "completep", **BASE | {"decay": 0.1})
    assert network.forward == (0.125, 0.25, -1.0)
    np.testing.assert_allclose(network.blocks.query.std(), 0.02 / 2, rtol=0.02)
    np.testing.assert_allclose(network.blocks.outer.std(), 0.02 / 2, rtol=0.02)
    np.testing.assert_allclose(network.tokens.std(), 0.02, rtol=0.1)
    # the first step of Adam has the length of the rate; decay adds rate × 0.1 × 4 × weights
    ones = jax.tree.map(jnp.ones_like, network)
    updates = step_of(network, optimiser, ones)
    rate = 1e-2 / 4
    np.testing.assert_allclose(updates.blocks.query, -rate * (1 + 0.4 * network.blocks.query), rtol=1e-5)
    np.testing.assert_allclose(updates.blocks.inner_bias, -1e-2, rtol=1e-5)
    np.testing.assert_allclose(updates.blocks.scales, -1e-2, rtol=1e-5)
    np.testing.assert_allclose(updates.tokens, -1e-2 * (1 + 0.1 * network.tokens), rtol=1e-5)


def test_epsilon_follows_the_gradients_of_each_group():
    """Where gradients are as small as ε, Adam halves its step: ε/(m_N m_L) in blocks, ε/m_N outside."""
    network, optimiser = parametrise(draw(), "completep", **BASE, epsilon=1e-4)
    gradients = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e-4 / 32), network)
    updates = step_of(network, optimiser, gradients)
    np.testing.assert_allclose(updates.blocks.query, -1e-2 / 4 / 2, rtol=1e-3)
    np.testing.assert_allclose(updates.tokens, -1e-2 / (1 + 8), rtol=1e-3)


def test_depth_mup_slows_down_blocks_and_standard_changes_only_projections():
    deep, optimiser = parametrise(draw(), "depth-mup", **BASE)
    updates = step_of(deep, optimiser, jax.tree.map(jnp.ones_like, deep))
    np.testing.assert_allclose(updates.blocks.query, -1e-2 / 4 / 8**0.5, rtol=1e-5)
    np.testing.assert_allclose(deep.forward.residual, 8**-0.5)
    plain, _ = parametrise(draw(), "standard", **BASE)
    assert plain.forward == (1.0, 1.0, -0.5)
    np.testing.assert_allclose(plain.blocks.query.std(), 0.02, rtol=0.02)
    np.testing.assert_allclose(plain.blocks.joined.std(), 0.02 / 32**0.5, rtol=0.02)


def test_at_the_base_size_all_width_rules_are_the_same_network():
    networks = [parametrise(draw(16, 2), rule, **BASE)[0] for rule in ("mup", "depth-mup", "completep")]
    for other in networks[1:]:
        assert eqx.tree_equal(networks[0], other)


def test_the_network_sees_only_the_past():
    network, _ = parametrise(draw(16, 2), "completep", **BASE, scale=0.5)
    one, other = network(jnp.asarray([0, 1, 2, 3])), network(jnp.asarray([0, 1, 4, 0]))
    np.testing.assert_allclose(one[:2], other[:2], atol=1e-6)
    assert not np.allclose(one[2], other[2], atol=1e-3)


def test_a_schedule_can_be_the_rate():
    network, optimiser = parametrise(draw(16, 2), "mup", **BASE | {"rate": optax.linear_schedule(1e-2, 0.0, 2)})
    ones = jax.tree.map(jnp.ones_like, network)
    assert abs(float(step_of(network, optimiser, ones, 2).tokens[0, 0]) + 5e-3) < 1e-6


def test_blocks_become_lazy_with_depth_for_the_square_root_only():
    logs = np.log(measured([2, 32], [0.5, 1.0], 32, 8).mean("seed"))
    slope = (logs.isel(depth=1) - logs.isel(depth=0)) / np.log(16)
    for exponent, powers in ((0.5, (-0.5, -0.5, -1.0)), (1.0, (0.0, 0.0, 0.0))):
        found = [float(slope[name].sel(exponent=exponent)) for name in ("change", "nonlinear", "rest")]
        np.testing.assert_allclose(found, powers, atol=0.15)


def test_training_lowers_the_loss_towards_the_entropy():
    seen = sv.TransformerScaling(depth=2, steps=50, letters=4, context=8, rate=2.0**-5).simulate(0, size=16)
    assert seen.final_loss < seen.test_loss[0] - 0.1
    assert seen.excess_loss > -0.05
    assert np.all(np.asarray(seen.change[1:]) > 0)
    assert np.all(np.asarray(seen.change[0]) < 1e-6)


def test_a_width_without_whole_heads_is_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="size = 20 is not a multiple of head_size = 16"):
        sv.TransformerScaling(depth=1, steps=8).simulate(0, size=20)


@pytest.mark.parametrize("data", ["random", "documentation"])
def test_networks_trained_side_by_side_are_those_of_a_study(data, tmp_path):
    model = sv.TransformerScaling(data=data, steps=8, batch=2, context=8, letters=8, base_width=16)
    table = Table(model, "rate", (0.01, 0.05), ("mup", "completep"), ((16, 2), (32, 4)), seeds=2, at_once=4)
    portions, pieces = table.portions(), Pieces(tmp_path)
    assert [(portion.shape, portion.seeds) for portion in portions] == [
        ((16, 2), (0,)), ((32, 4), (0,)), ((16, 2), (1,)), ((32, 4), (1,))
    ]  # fmt: skip
    found = trained(portions, pieces)
    both = together(table, list(zip(portions, found, strict=True)))
    alone = model.replace(rule="completep", depth=4, rate=0.05).simulate(seed=1, size=32)
    here = both.isel(shape=1, rate=1, seed=1).sel(rule="completep")
    np.testing.assert_allclose(here.test_loss_simulated, alone.test_loss, rtol=1e-4)
    np.testing.assert_allclose(here.change_simulated[1:], alone.change[1:], rtol=1e-2)
    again = trained(portions, Pieces(tmp_path))  # read from the folder
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one["final_loss"], other["final_loss"])
    assert len(list(tmp_path.iterdir())) == 4


def test_lanes_cannot_differ_in_their_language():
    lanes = grid_of_lanes(["mup"], "contrast", [1.0, 2.0], [0])
    with pytest.raises(ValueError, match="all lanes learn the same language"):
        lanes_as_arrays(sv.TransformerScaling(depth=2, steps=8), lanes, 32)


def test_edges_and_best_values_of_a_grid_lie_between_its_points():
    """A parabola in log₂ of the rate with its minimum at −5.3, and a loss that grows from 2⁻² on at 0.2 an octave."""
    rates, decays = 2.0 ** np.arange(-9.0, -2.0), 2.0 ** np.arange(-6.0, 3.0)
    losses = 1 + 0.1 * (np.log2(rates) + 5.3) ** 2
    found = best_rates(
        xr.Dataset({"final_loss_simulated": (("seed", "rate"), np.stack([losses, losses * np.nan]))}, {"rate": rates})
    )
    np.testing.assert_allclose(found, [-5.3, np.nan])
    losses = 1 + 0.2 * np.maximum(np.log2(decays) + 2, 0)
    table = xr.Dataset({"final_loss_simulated": (("seed", "decay"), losses[None])}, {"decay": decays})
    np.testing.assert_allclose(harmless(table, "decay"), [-1.5])
    np.testing.assert_allclose(harmless(table * np.nan, "decay"), [np.nan])


def test_the_share_of_training_that_is_saved():
    """One rule is at any step where the other is at 4/3 of it; the other way round it loses as much as the other saves."""
    steps = np.arange(0.0, 401.0, 20.0)
    curves = np.stack([-np.log1p(steps * 4 / 3), -np.log1p(steps)])[:, None, None, None]
    names = ("rule", "shape", "rate", "seed", "time")
    runs = xr.Dataset({"test_loss_simulated": (names, curves)},
                      {"rule": ["fast", "slow"], "shape": ["s"], "rate": [0.1], "seed": [0], "time": steps})  # fmt: skip
    rates = xr.DataArray([0.1, 0.1], {"rule": ["fast", "slow"]})
    np.testing.assert_allclose(saved(runs, "fast", "slow", "s", rates), 0.25, atol=1e-3)
    np.testing.assert_allclose(saved(runs, "slow", "fast", "s", rates), -0.25, atol=1e-3)
