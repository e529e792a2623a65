"""Residual networks at infinite width: limits, a second solver, and networks of finite width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.signals.depth_transfer.mean_field import (
    drawn_sources,
    mean_field,
    number_of_sources,
    unit_sources,
)

SMALL = {"depth": 3, "steps": 4}


LINEAR = (lambda h: h, jnp.ones_like)


def path(kind, sources, targets=(1.0,), correlation=0.3, branch=0.6, rate=0.1, steps=4, depth=3):
    """The mean-field path of a small network; `sources` maps the number of fresh fields to them."""

    @jax.jit
    def solve(targets):
        count = len(targets)
        root = np.linalg.cholesky((1 - correlation) * np.eye(count) + correlation)
        source = sources(number_of_sources(depth, steps, count))
        return mean_field(
            *kind, source, depth=depth, steps=steps, branch=jnp.asarray(branch), richness=jnp.asarray(1.5),
            rate=jnp.asarray(rate), hidden_rate=jnp.asarray(1.5 * rate), root=jnp.asarray(root), targets=targets,
        )  # fmt: skip

    return solve(jnp.asarray(targets))


def two_layers(rate, richness, steps):
    """A linear network without blocks by its closed equations: c = <a w>, K_w and K_a, one pattern with target 1."""
    c, first, last, outputs, e = 0.0, 1.0, 1.0, [], rate * richness
    for _ in range(steps + 1):
        outputs.append(c / richness)
        pull = e * (1 - c / richness)
        c, first, last = (
            c + pull * (first + last) + pull**2 * c,
            first + 2 * pull * c + pull**2 * last,
            last + 2 * pull * c + pull**2 * first,
        )
    return outputs


def test_without_branches_the_network_has_two_layers():
    outcome = sv.DepthTransfer(**SMALL, branch_scale=0.0, rate=0.1, richness=3.0).theory()
    np.testing.assert_allclose(outcome.output[:, 0], two_layers(0.1, 3.0, 4), atol=1e-12)
    np.testing.assert_allclose(outcome.feature_kernel[:, 0], outcome.feature_kernel[:, -1], atol=1e-12)


def test_sampled_sites_solve_the_linear_network_exactly():
    kinds = (unit_sources, lambda number: drawn_sources(jax.random.key(0), number, 400))
    exact, sampled = (path(LINEAR, sources, targets=(1.0, -0.5)) for sources in kinds)
    for one, other in zip(exact, sampled, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)


def test_two_copies_of_a_pattern_train_like_one():
    twice = path(LINEAR, unit_sources, targets=(1.0, 1.0), correlation=1 - 1e-14)
    once = path(LINEAR, unit_sources)
    np.testing.assert_allclose(twice.output, np.tile(once.output, 2), atol=1e-6)


@pytest.mark.parametrize("name", ["erf", "relu"])
def test_sampled_kernels_of_the_start_are_those_of_gaussian_fields(name):
    """Without branches h is Gaussian, and Φ = <φ²>, G = <φ'²>; a short first step moves the output by η(Φ + G)."""
    kind, feature, signal = {
        "erf": (
            (lambda h: jax.scipy.special.erf(h / 2**0.5), lambda h: (2 / jnp.pi) ** 0.5 * jnp.exp(-(h**2) / 2)),
            1 / 3,
            2 / np.pi / 3**0.5,
        ),
        "relu": ((jax.nn.relu, lambda h: (h > 0).astype(float)), 0.5, 0.5),
    }[name]
    found = path(
        kind,
        lambda number: drawn_sources(jax.random.key(0), number, 50_000, name == "relu"),
        branch=0.0,
        rate=1e-3,
        steps=1,
        depth=1,
    )
    np.testing.assert_allclose(found.features[0], feature, rtol=0.01)
    np.testing.assert_allclose(found.signals[0], signal, rtol=0.01)
    np.testing.assert_allclose(found.output[1], 1e-3 * (feature + signal), rtol=0.01)


def test_the_output_converges_in_depth_like_one_over_depth():
    """Branches 1/√L: differences halve when the depth doubles, up to terms 1/L²; a law 1/√L would give 1.41, 1/L² gives 4."""
    outputs = [sv.DepthTransfer(depth=L, steps=4, rate=0.05).theory().output[:, 0] for L in (8, 16, 32)]
    first, second = (np.asarray(outputs[i + 1] - outputs[i])[1:] for i in (0, 1))
    assert np.all((first / second > 1.7) & (first / second < 2.3))


def test_lazy_networks_keep_their_tangent_kernel_and_rich_ones_do_not():
    found = sv.DepthTransfer(**SMALL, rate=0.05, richness=[1e-3, 3.0]).theory().tangent_kernel
    np.testing.assert_allclose(found[0], found[0, 0], rtol=1e-5)
    assert found[1, -1] > 1.2 * found[1, 0]


def test_matched_rates_equal_the_common_rate_only_for_the_square_root():
    values = {"rate": 0.05, **SMALL}
    for exponent, same in ((0.5, True), (1.0, False)):
        a, b = (
            sv.DepthTransfer(**values, branch_exponent=exponent, hidden_rates=kind).theory().output[-1, 0]
            for kind in ("matched", "equal")
        )
        assert bool(abs(a - b) < 1e-12) == same


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_networks_follow_the_mean_field(activation):
    model = sv.DepthTransfer(
        **SMALL, activation=activation, patterns=2, correlation=0.5, rate=0.1, branch_exponent=1.0, richness=2.0
    )
    theory, seeds, size = model.theory(), 16, 300
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    for name in ("output", "feature_kernel", "gradient_kernel", "tangent_kernel"):
        seen, exact = np.asarray(runs[name]), np.asarray(theory[name])
        error = seen.std(axis=0, ddof=1) / np.sqrt(seeds)
        sampling = 0.0 if activation == "linear" else 0.02
        assert np.all(np.abs(seen.mean(axis=0) - exact) < 4 * error + (3 / size + sampling) * np.abs(exact) + 1e-5), (
            name
        )


def test_a_rate_at_which_training_diverges_gives_no_number_afterwards():
    outcome = sv.DepthTransfer(**SMALL | {"steps": 12}, rate=5.0, richness=2.0).theory()
    assert np.isfinite(outcome.output[1, 0])
    assert np.isnan(outcome.output[-1, 0])


def test_the_stated_error_of_sampled_sites_is_that_of_other_sites():
    model = sv.DepthTransfer(**SMALL, activation="tanh", rate=0.1, richness=2.0)
    fine, coarse = model.theory({"sites": 65536}), model.theory({"sites": 2048})
    gap = max(float(np.max(np.abs(coarse[n] - fine[n]) / (1 + np.abs(fine[n])))) for n in fine)
    assert 0 < fine.residual < coarse.residual
    assert gap < 4 * coarse.residual


def test_too_few_sites_give_no_number_from_the_time_on_at_which_their_error_is_too_large():
    outcome = sv.DepthTransfer(**SMALL, activation="relu", rate=0.1, richness=2.0).theory({"sites": 64})
    assert not outcome.converged
    assert outcome.residual > 0.025
    assert np.isfinite(outcome.output[0, 0])
    assert np.isnan(outcome.output[-1, 0])


def test_networks_that_are_too_large_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="depth = 64, steps = 40 and patterns = 1 need 2624 fields"):
        sv.DepthTransfer(depth=64, steps=40)
