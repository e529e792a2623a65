"""Outputs of random networks: closed forms, quadratures, limits, and drawn networks."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erfc, kv
from scipy.stats import binom, gamma

import solvable as sv
from solvable.model import simulate_batch


def bessel(x, k, c):
    """G^{2,0}_{0,2}(z | ½, k/2)/(x Γ(½) Γ(k/2)) with z = x²/c, a Bessel function: the density of √(c g_½ g_{k/2}), signed."""
    z = x**2 / c
    return 2 * z ** ((1 + k) / 4) * kv((k - 1) / 2, 2 * np.sqrt(z)) / (x * math.sqrt(math.pi) * math.gamma(k / 2))


def test_one_hidden_layer_is_a_binomial_mixture_of_bessel_functions():
    d, r, first = 6, 1.3, 0.7
    model = sv.PriorPredictive(width=d, depth=1, input_norm=r, weight_variance=first)
    outcome, x = model.theory(), np.asarray(model.outputs)
    c = 4 * r**2 * first * 2 / d
    expected = sum(binom.pmf(k, d, 0.5) * bessel(x, k, c) for k in range(1, d + 1))
    np.testing.assert_allclose(outcome.density, expected, rtol=1e-10)
    for value, at in zip(np.asarray(outcome.tail), x, strict=True):
        tail = 0.0
        for k in range(1, d + 1):
            beyond = lambda g, k=k, at=at: gamma.pdf(g, k / 2) * erfc(at / math.sqrt(c * g))  # noqa: E731
            tail += binom.pmf(k, d, 0.5) * quad(beyond, 0, np.inf)[0]
        assert value == pytest.approx(tail, abs=1e-7)


def test_a_second_hidden_layer_multiplies_by_another_gamma_variable():
    model = sv.PriorPredictive(activation="linear", width=4, depth=2, outputs=[0.3, 1.5])
    c, found = 4 / 4, []
    for x in (0.3, 1.5):
        density = lambda g, x=x: gamma.pdf(g, 2.0) * bessel(x / math.sqrt(g / 2), 4, c) / math.sqrt(g / 2)  # noqa: E731
        found.append(quad(density, 0, np.inf, epsabs=1e-11)[0])
    np.testing.assert_allclose(model.theory().density, found, rtol=1e-8)


def test_the_density_is_the_slope_of_the_tail_and_adds_up_to_it():
    x = np.geomspace(1e-3, 300.0, 3000)
    outcome = sv.PriorPredictive(width=6, depth=3, widths=[3.0, 4.0, 6.0], outputs=x).theory()
    density, tail, log = np.asarray(outcome.density), np.asarray(outcome.tail), np.log(x)
    slope = np.gradient(tail, log)[1:-1]
    np.testing.assert_allclose(slope, -2 * (density * x)[1:-1], atol=1e-5)
    assert 2 * np.trapezoid(density * x, log) == pytest.approx(tail[0], abs=1e-4)
    for name, power in (("second_moment", 2), ("fourth_moment", 4)):
        assert 2 * np.trapezoid(density * x ** (power + 1), log) == pytest.approx(float(outcome[name]), rel=1e-4)


def test_the_order_of_layers_does_not_matter_and_scales_multiply():
    model = sv.PriorPredictive(width=6, depth=3, widths=[3.0, 4.0, 6.0])
    turned = model.replace(widths=[6.0, 3.0, 4.0])
    np.testing.assert_allclose(model.theory().tail, turned.theory().tail, rtol=1e-12)
    scaled = model.replace(input_norm=3.0, weight_variance=0.25, outputs=1.5 * np.asarray(model.outputs))
    np.testing.assert_allclose(scaled.theory().tail, model.theory().tail, rtol=1e-12)
    np.testing.assert_allclose(scaled.theory().fourth_moment, 1.5**4 * model.theory().fourth_moment, rtol=1e-12)


@pytest.mark.parametrize(("activation", "each"), [("relu", 0.5), ("linear", 1.0)])
def test_a_fixed_prior_has_a_variance_exponential_in_depth_and_an_informed_one_has_not(activation, each):
    fields = {"width": 4, "depth": 3, "activation": activation, "weight_variance": 0.6, "input_norm": 2.0}
    informed, fixed = (sv.PriorPredictive(scaling=s, **fields).theory() for s in ("informed", "fixed"))
    assert float(informed.second_moment) == pytest.approx(4 * 0.6, rel=1e-12)
    assert float(fixed.second_moment) == pytest.approx(4 * 0.6 * (0.6 * 4 * each) ** 3, rel=1e-12)


def test_wide_networks_of_fixed_depth_are_normal():
    model = sv.PriorPredictive(width=1000, depth=1)
    gap = np.abs(np.asarray(model.theory().tail) - erfc(np.asarray(model.outputs) / math.sqrt(2)))
    assert 1e-5 < gap.max() < 2e-3


def test_deep_and_wide_networks_approach_a_normal_law_with_log_normal_variance():
    """β = 1: the distance from the limit is halved when width and depth are doubled."""
    gaps, moments = [], []
    for width in (20, 40, 80):
        outcome = sv.PriorPredictive(width=width, depth=width // 5).theory()
        gaps.append(np.abs(np.asarray(outcome.tail - outcome.limit_tail)).max())
        moments.append(float(outcome.fourth_moment / outcome.limit_fourth_moment))
    assert 1.7 < gaps[0] / gaps[1] < 2.3
    assert 1.7 < gaps[1] / gaps[2] < 2.3
    assert moments == pytest.approx([(1 + 5 / w) ** (w // 5) / math.e for w in (20, 40, 80)], rel=1e-12)


def test_deep_and_narrow_networks_are_products_of_gamma_variables():
    """Forty layers of five units, of which 28 % carry anything, against 10^5 products."""
    model, number = sv.PriorPredictive(width=5, depth=40, outputs=[1e-3, 0.1, 1.0]), 100_000
    outcome, rng = model.theory(), np.random.default_rng(5)
    active = rng.binomial(5, 0.5, size=(number, 40))
    logs = np.log(np.maximum(rng.standard_gamma(np.maximum(active, 1) / 2), 1e-300) * 4 / 5).sum(axis=1)
    logs = np.where((active > 0).all(axis=1), logs + np.log(2 * rng.standard_gamma(0.5, size=number)), -np.inf)
    for x, value in zip((1e-3, 0.1, 1.0), np.asarray(outcome.tail), strict=True):
        share = (logs > 2 * math.log(x)).mean()
        assert value == pytest.approx(share, abs=4 * math.sqrt(share / number))
    np.testing.assert_allclose(outcome.second_moment, 1.0, rtol=1e-12)


@pytest.mark.parametrize("fields", [{"widths": [3.0, 4.0, 6.0]}, {"activation": "linear"}])
def test_drawn_networks_have_the_law_of_the_theory(fields):
    model = sv.PriorPredictive(width=6, depth=3, **fields)
    size, seeds = 2000, 10
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    theory = model.theory()
    for name in ("tail", "zero", "second_moment"):
        seen, exact = np.asarray(runs[name]), np.asarray(theory[name])
        error = seen.std(axis=0, ddof=1) / math.sqrt(seeds)
        assert np.all(np.abs(seen.mean(axis=0) - exact) < 5 * error + 1e-5), name


def test_widths_that_do_not_fit_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="widths must be whole numbers from 1 to width = 5"):
        sv.PriorPredictive(width=5, depth=2, widths=[5.0, 6.0])
    with pytest.raises(sv.InvalidValue, match="widths has 3 entries along 'depth' instead of 2"):
        sv.PriorPredictive(depth=2, widths=[5.0, 6.0, 7.0])
    with pytest.raises(sv.InvalidValue, match="outputs must be at least two increasing numbers"):
        sv.PriorPredictive(outputs=[1.0])
