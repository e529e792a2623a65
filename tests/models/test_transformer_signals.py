"""Signals through a random transformer: slow twins, limits, stability of the collapse, finite networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.softmax_weights import softmax_moments, softmax_overlap
from solvable.model import simulate_batch

SMALL = {"context": 16, "depth": 3}


def by_direct_integrals(beta, tokens, blocks, overlap, before, value=0.2, weight=0.2, bias=4e-4):
    """The recursion as documented, with the integrals themselves and the arc-cosine kernel."""
    q, rho = 1.0, overlap
    for _ in range(blocks):
        spread = beta * np.sqrt(np.log(tokens) * (1 - rho))
        alone, shared = softmax_moments(spread, tokens).participation, softmax_overlap(spread, rho, tokens)
        full = value * (rho + (1 - rho) * alone) + bias + q
        rho = (value * (rho + (1 - rho) * shared) + bias + q * rho) / full
        q = full if before else 1.0
        q1 = weight + bias
        c = (weight * rho + bias) / q1
        kappa = (np.sqrt(1 - c**2) + c * (np.pi - np.arccos(c))) / np.pi
        full = weight / 2 * q1 + bias + q
        rho = (weight / 2 * q1 * kappa + bias + q * rho) / full
        q = full if before else 1.0
    return q, rho


@pytest.mark.parametrize("where", ["after", "before"])
def test_a_slow_twin_with_direct_integrals_follows_the_same_path(where):
    model = sv.TransformerSignals(context=16, depth=6, layer_norm=where, strength=2.5)
    q, rho = by_direct_integrals(2.5, 16, 6, 0.2, where == "before")
    found = model.theory()
    assert float(found.final_overlap) == pytest.approx(rho, abs=1e-8)
    if where == "before":
        assert float(found.norm[-1]) == pytest.approx(q, abs=1e-8)


def test_the_collapse_slope_is_the_factor_of_tokens_that_are_nearly_parallel():
    for values in ({}, {"activation": "tanh", "weight_variance": 9.0, "value_variance": 1.0, "bias_variance": 0.05}):
        model = sv.TransformerSignals(initial_overlap=1 - 1e-7, attention_residual=0.7, **SMALL, **values)
        found = model.theory()
        apart = 1 - np.asarray(found.overlap)
        # ReLU's kernel has a term of power 3/2, hence the looser tolerance.
        np.testing.assert_allclose(apart[1:] / apart[:-1], found.collapse_slope, rtol=2e-3)


def test_relu_always_collapses_and_a_chaotic_mlp_does_not_beyond_the_critical_residual():
    relu = sv.TransformerSignals(tokens="infinite", attention_residual=np.linspace(0.1, 50, 30), **SMALL).theory()
    assert np.max(relu.collapse_slope) < 1
    tanh = {"activation": "tanh", "weight_variance": 9.0, "value_variance": 1.0, "bias_variance": 0.05}
    model = sv.TransformerSignals(tokens="infinite", depth=400, strength=0.5, initial_overlap=0.9, **tanh)
    critical = np.sqrt(1.05 / (float(model.theory().mlp_slope) - 1))
    found = model.replace(attention_residual=critical * np.array([0.95, 1.05])).theory()
    assert found.collapse_slope[0] < 1 < found.collapse_slope[1]
    assert found.final_overlap[0] > 1 - 1e-9
    assert found.final_overlap[1] < 0.99


def test_strong_residuals_leave_tokens_alone_and_no_attention_means_no_change_of_the_average():
    model = sv.TransformerSignals(attention_residual=100.0, mlp_residual=100.0, **SMALL)
    np.testing.assert_allclose(model.theory().overlap, 0.2, atol=2e-4)
    still = sv.TransformerSignals(attention="uniform", **SMALL).theory()
    weak = sv.TransformerSignals(strength=0.0, **SMALL).theory()
    np.testing.assert_allclose(still.overlap, weak.overlap, atol=1e-9)


def test_the_limit_switches_query_gradients_on_at_the_critical_strength():
    critical = np.sqrt(2 / 0.8)
    model = sv.TransformerSignals(tokens="infinite", depth=1, strength=critical * np.array([0.5, 0.99, 1.0, 1.01, 2.0]))
    found = model.theory()
    np.testing.assert_allclose(found.relative_strength[:, 0], [0.5, 0.99, 1.0, 1.01, 2.0])
    np.testing.assert_allclose(found.query_gradient[:3, 0], 0, atol=1e-12)
    assert found.query_gradient[3, 0] > 0
    # F = m(1 − m)/3 at m = 1/2
    assert float(found.query_gradient[4, 0]) == pytest.approx(2 * critical * 0.2 * 0.8**2 / 12)
    np.testing.assert_allclose(found.participation[:, 0], [0, 0, 0, 1 - 1 / 1.01, 0.5], atol=1e-12)


@pytest.mark.parametrize("values", [
    {"strength": 1.5}, {"strength": 1.5, "layer_norm": "before"}, {"strength": 1.0, "attention": "centred"},
    {"attention": "uniform", "activation": "tanh", "weight_variance": 2.0},
])  # fmt: skip
def test_finite_networks_follow_the_recursion(values):
    model = sv.TransformerSignals(**SMALL, **values)
    size, lanes = 160, 24
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(5), i))(jnp.arange(lanes))
    found, theory = simulate_batch(model, {}, keys, size), model.theory()
    for name in (n for n, o in model.observables().items() if o.simulated):
        mean, error = found[name].mean(axis=0), found[name].std(axis=0, ddof=1) / np.sqrt(lanes)
        assert np.all(np.abs(mean - theory[name]) < 4.5 * error + 6 * np.abs(theory[name]) / size + 1e-6), name


def test_the_closed_form_of_gelu_is_the_average():
    from solvable.methods.averages.quadrature import gaussian_average_2d

    model = sv.TransformerSignals(activation="gelu", **SMALL)
    phi = lambda x: 0.5 * x * (1 + jax.lax.erf(x / np.sqrt(2)))  # noqa: E731
    for q, p in ((0.3, 0.1), (2.0, 1.7), (2.0, -0.5)):
        average = gaussian_average_2d(lambda x, y: phi(x) * phi(y), jnp.asarray([[q, p], [p, q]]))
        assert float(model._product(jnp.asarray(q), jnp.asarray(p), 32)) == pytest.approx(float(average), abs=1e-9)


def test_the_sign_of_the_transition_tells_the_phase():
    model = sv.TransformerSignals(strength=[1.0, 2.0], **SMALL)
    np.testing.assert_allclose(model.transition("strength"), np.array([1.0, 2.0]) * np.sqrt(0.4) - 1)
    assert np.all(np.asarray(model.transition("attention_residual")) < 0)


def test_what_cannot_be_computed_is_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"strength = 6 is outside its range \[0, 5\]"):
        sv.TransformerSignals(strength=6.0)
    with pytest.raises(sv.InvalidValue, match="context = 1 is not a whole number in"):
        sv.TransformerSignals(context=1)
    with pytest.raises(sv.InvalidValue, match=r"initial_overlap = 1 is outside its range \[0, 1\)"):
        sv.TransformerSignals(initial_overlap=1.0)
