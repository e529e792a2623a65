"""Softmax weights of Gaussian scores: exact cases, drawn weights, and the tables that interpolate them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.averages.softmax_weights import softmax_moments, softmax_overlap, softmax_table


@pytest.mark.parametrize("tokens", [2, 7, 300])
def test_rows_that_share_nothing_meet_by_chance_and_identical_rows_are_one(tokens):
    for spread in (0.3, 2.0, 9.0):
        assert softmax_overlap(spread, 0.0, tokens) == pytest.approx(1 / tokens, abs=1e-9)
        assert softmax_overlap(spread, 1.0, tokens) == pytest.approx(
            softmax_moments(spread, tokens).participation, abs=3e-9
        )


def test_two_tokens_are_a_logistic_function():
    """A₁ = 1/(1 + e^{−Δ}), Δ ~ N(0, 2σ²)."""
    z, spread = np.linspace(-12, 12, 20001), 1.3
    w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    a = 1 / (1 + np.exp(-np.sqrt(2) * spread * z))
    found = softmax_moments(spread, 2)
    assert found.participation == pytest.approx(np.sum(w * (a**2 + (1 - a) ** 2)), abs=1e-10)
    assert found.entropy == pytest.approx(-np.sum(w * (a * np.log(a) + (1 - a) * np.log(1 - a))), abs=1e-10)
    assert found.response == pytest.approx(np.sum(w * 4 * (a * (1 - a)) ** 2), abs=1e-10)


def test_moments_are_those_of_drawn_weights():
    tokens, draws, spread, r = 24, 40_000, 2.5, 0.6
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((draws, tokens))
    rows = [np.sqrt(r) * shared + np.sqrt(1 - r) * rng.standard_normal((draws, tokens)) for _ in range(2)]
    a, b = (np.exp(spread * x) / np.exp(spread * x).sum(1, keepdims=True) for x in rows)
    u = rng.standard_normal((draws, tokens))
    pull = a * (u - (a * u).sum(1, keepdims=True))
    found = softmax_moments(spread, tokens)
    for drawn, exact in (
        ((a**2).sum(1), found.participation),
        (-(a * np.log(a)).sum(1), found.entropy),
        ((pull**2).sum(1), found.response),
        ((a * b).sum(1), softmax_overlap(spread, r, tokens)),
    ):
        assert abs(drawn.mean() - exact) < 4.5 * drawn.std() / np.sqrt(draws)


def test_many_tokens_approach_the_random_energy_model_slowly():
    strength = 2.0  # σ/√log T: Y₂ = 1 − √2/σ, F = m(1 − m)/3
    limit = 1 - np.sqrt(2) / strength
    found = [softmax_moments(strength * np.sqrt(np.log(T)), T) for T in (100, 10_000, 100_000)]
    for values, at_last in (
        ([m.participation for m in found], limit),
        ([m.response for m in found], limit * (1 - limit) / 3),
    ):
        gaps = np.array(values) - at_last
        assert np.all(gaps > 0.01)
        # about 1/log T
        np.testing.assert_allclose(gaps[1:] / gaps[:-1], np.log([1e2, 1e4]) / np.log([1e4, 1e5]), rtol=0.35)


def test_tables_agree_with_the_integrals_and_have_gradients():
    table, rng = softmax_table(64, 8.0, 24), np.random.default_rng(1)
    for _ in range(8):
        s, r = rng.uniform(0, 8), rng.uniform() ** 0.3
        found = table.shared(table.row(jnp.asarray(s)), jnp.asarray(s), jnp.asarray(r))
        assert float(found) == pytest.approx(softmax_overlap(s * np.sqrt(1 - r), r, 64), abs=1e-6)
        moments = softmax_moments(s, 64)
        np.testing.assert_allclose([float(x) for x in table.alone(jnp.asarray(s))], moments, atol=1e-7)
    slope = jax.grad(lambda s: table.participation(s))(2.0)
    assert float(slope) == pytest.approx(
        (softmax_moments(2.001, 64).participation - softmax_moments(1.999, 64).participation) / 0.002, abs=1e-5
    )
