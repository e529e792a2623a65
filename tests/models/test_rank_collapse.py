"""Rank collapse: closed forms, the limit of many blocks, gradients by explicit Jacobians, finite networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch


@pytest.mark.parametrize("scaling", ["none", "depth"])
def test_the_linear_network_has_the_closed_form(scaling):
    T, L, rho = 9, 7, 0.3
    model = sv.RankCollapse(
        context=T, depth=L, scaling=scaling, attention_scale=0.8, mlp_scale=1.2, value_variance=0.7,
        weight_variance=1.3, initial_overlap=rho,
    )  # fmt: skip
    divide = L if scaling == "depth" else 1
    a, b, layers = 0.64 * 0.7 / divide, 1.44 * 1.3 / divide, np.arange(L + 1)
    C = ((1 + a) * (1 + b)) ** layers * (T + T * (T - 1) * rho)
    N = (1 + b) ** layers * (T + (1 + (T - 1) * rho) * ((1 + a) ** layers - 1))
    found = model.theory()
    np.testing.assert_allclose(found.overlap, (C - N) / ((T - 1) * N), rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_length), N / T, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.log_value_gradient), C[:-1] / T, rtol=1e-12)


def test_tokens_become_parallel_exponentially():
    T, a = 20, 1.0
    apart = 1 - np.asarray(sv.RankCollapse(context=T, depth=40).theory().overlap)
    expected = T / (T - 1) * (T - 1) * (1 + a) ** -np.arange(41.0)  # orthogonal tokens: T N₀/C₀ − 1 = T − 1
    np.testing.assert_allclose(apart[25:], expected[25:], rtol=1e-5)


@pytest.mark.parametrize("mlp", ["linear", "relu"])
def test_many_blocks_approach_the_limit_at_rate_one_over_depth(mlp):
    gaps = []
    for depth in (400, 1600):
        found = sv.RankCollapse(mlp=mlp, depth=depth, scaling="depth", initial_overlap=0.2).theory()
        gaps.append(abs(float(found.final_overlap - found.limit_overlap)))
    assert gaps[1] < 5e-4
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.05)


def test_gradients_are_those_of_explicit_jacobians():
    """Small tokens: |∂S/∂W_V|² and the mean over W_K, W_V of |∂S/∂W_Q|² from the full Jacobian."""
    T, d = 4, 5
    x = np.asarray(jax.random.normal(jax.random.key(0), (T, d)))

    def attend(queries, values, keys):
        return jax.nn.softmax((x @ queries) @ (x @ keys).T / np.sqrt(d), axis=1) @ x @ values

    def squares(key):
        keys, values = jax.random.normal(key, (2, d, d)) / np.sqrt(d)
        jacobians = jax.jacobian(attend, (0, 1))(jnp.zeros((d, d)), values, keys)
        return jnp.stack([jnp.sum(j**2) for j in jacobians])

    drawn = np.asarray(jax.jit(jax.vmap(squares))(jax.random.split(jax.random.key(1), 4000)))
    centred = x - x.mean(0)
    covariance = centred.T @ centred / T
    np.testing.assert_allclose(drawn[:, 1], d * np.sum(x.sum(0) ** 2) / T, rtol=1e-8)
    exact = np.sum(x**2) * np.sum(covariance**2) / d
    assert abs(drawn[:, 0].mean() - exact) < 4.5 * drawn[:, 0].std() / np.sqrt(4000)


def test_parallel_tokens_leave_queries_without_gradient_but_not_values():
    found = sv.RankCollapse(context=8, depth=1, initial_overlap=[0.0, 0.9, 1 - 1e-9]).theory()
    ratio = np.exp(np.asarray(found.log_query_gradient - found.log_value_gradient))[:, 0]
    np.testing.assert_allclose(ratio, [7 / 8, 7 / 8 * 0.01 / 7.3, 7 / 8 * 1e-18 / 8], rtol=1e-6)


@pytest.mark.parametrize("values", [{}, {"mlp": "relu"}, {"scaling": "depth", "initial_overlap": 0.3}])
def test_finite_networks_follow_the_recursion(values):
    model = sv.RankCollapse(context=8, depth=3, **values)
    size, lanes = 160, 32
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(2), i))(jnp.arange(lanes))
    found, theory = simulate_batch(model, {}, keys, size), model.theory()
    for name in (n for n, o in model.observables().items() if o.simulated):
        mean, error = found[name].mean(axis=0), found[name].std(axis=0, ddof=1) / np.sqrt(lanes)
        assert np.all(np.abs(mean - theory[name]) < 4.5 * error + 25 * np.maximum(np.abs(theory[name]), 0.1) / size), (
            name
        )


def test_a_single_token_is_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="context = 1 is not a whole number in"):
        sv.RankCollapse(context=1)
