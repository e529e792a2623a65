"""The shaped transformer: closed forms, expansions, positivity, networks with all their weights, what happens unshaped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest, norm

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.signals.shaped_transformer.model import equicorrelated
from solvable.models.signals.shaped_transformer.paths import attention_drift, factor, feedforward_drift, step

V = np.array([[1.0, 0.3, -0.1], [0.3, 1.5, 0.4], [-0.1, 0.4, 0.8]])


def networks(model, size, number):
    return simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(number)]), size)


@pytest.mark.parametrize(("block", "kappa"), [("transformer", 1.75), ("attention", 0.75), ("mlp", 1.0), ("plain", 1.0)])
def test_a_single_token_has_a_log_normal_length(block, kappa):
    """Attention over one token is the identity: log V ~ N(−κt, 2κt), κ the sum of the blocks' noises."""
    model = sv.ShapedTransformer(
        block=block, tokens=1, points=1, branch=0.5, depth=0.3, ceiling=1000.0, temperature=20.0
    )
    outcome = model.theory({"draws": 4000, "steps": 100})
    assert np.mean(outcome.stopped) == 0
    law = norm(-kappa * 0.3, np.sqrt(2 * kappa * 0.3))
    assert kstest(np.log(outcome.length[0]), law.cdf).pvalue > 1e-3
    assert "correlation" not in outcome


def test_the_drift_of_attention_is_that_of_the_softmax():
    """E[A V Aᵀ] with the softmax itself at a large width, scores drawn in pairs ± so that their first order cancels."""
    n, tau, m = 1e6, 0.8, 3
    F, rng = np.linalg.cholesky(V), np.random.default_rng(0)
    scores = np.einsum("ai,kij,bj->kab", F, rng.normal(size=(40_000, m, m)), F)
    change = []
    for sign in (1, -1):
        weights = np.exp(sign * scores / (tau * np.sqrt(n)))
        A = np.eye(m) + weights / weights.sum(2, keepdims=True) - 1 / m
        change.append(n * (A @ V @ A.transpose(0, 2, 1) - V))
    drawn = np.mean(change, axis=0)
    error = drawn.std(0) / np.sqrt(len(drawn))
    assert np.all(np.abs(drawn.mean(0) - attention_drift(jnp.asarray(V)) / tau**2) < 4 * error + 1e-3)


def test_the_drift_of_a_shaped_relu_is_that_of_absolute_values():
    """σ(x) = s̄x + d|x|, hence the drift (c₊ − c₋)²/4 (E|xy| − ρ), with no arccos."""
    x, y = np.random.default_rng(1).multivariate_normal([0, 0], V[:2, :2], 400_000).T
    drawn = np.pi / 2 * (np.abs(x * y) - x * y)
    assert np.abs(drawn.mean() - feedforward_drift(jnp.asarray(V))[0, 1]) < 4 * drawn.std() / 632
    np.testing.assert_allclose(np.diag(feedforward_drift(jnp.asarray(V))), 0, atol=1e-7)


@pytest.mark.parametrize("block", ["transformer", "attention", "mlp", "plain"])
def test_a_small_step_has_the_drift_and_the_diffusion(block):
    model = sv.ShapedTransformer(block=block, start=V, temperature=0.8, branch=0.4, points=1)
    outcome = model.theory({"draws": 2, "steps": 200})
    dt, paths, attends = jnp.asarray(1e-4), 40_000, block in ("transformer", "attention")
    normal = jax.random.normal(jax.random.key(3), (6 + 9 * attends, paths), float)
    each = [step(jnp.repeat(jnp.asarray(V)[..., None], paths, -1), model.coefficients(), dt, s * normal, attends)
            for s in (1, -1)]  # fmt: skip
    up, down = (np.asarray(e) - V[..., None] for e in each)
    mean = 0.5 * (up + down) / 1e-4
    assert np.all(np.abs(mean.mean(-1) - outcome.drift) < 4 * mean.std(-1) / 200 + 1e-3)
    np.testing.assert_allclose(up.var(-1) / 1e-4, outcome.diffusion, rtol=0.04)


def test_equal_slopes_conserve_the_mean_covariance():
    model = sv.ShapedTransformer(
        block="mlp", negative_slope=0.7, positive_slope=0.7, depth=0.1, points=1, ceiling=1000.0
    )
    length = np.asarray(model.theory({"draws": 20_000, "steps": 20}).length[0])
    assert abs(length.mean() - 1) < 4 * length.std() / np.sqrt(20_000)


def test_paths_stay_positive_even_from_a_singular_start():
    same = np.ones((3, 3))
    state = jnp.repeat(jnp.asarray(same)[..., None], 50, -1)
    of = sv.ShapedTransformer(start=same).coefficients()
    move = jax.jit(lambda x, normal: step(x, of, jnp.asarray(0.005), normal, True))
    for i in range(30):
        state = move(state, jax.random.normal(jax.random.key(i), (15, 50), float))
    lowest = np.linalg.eigvalsh(np.moveaxis(np.asarray(state), -1, 0))
    assert np.all(lowest[:, 0] > -1e-12 * lowest[:, -1])
    F = factor(jnp.asarray(V))
    np.testing.assert_allclose(F, np.linalg.cholesky(V), atol=1e-14)


def test_equal_tokens_stay_equal():
    outcome = sv.ShapedTransformer(start=equicorrelated(3, 1.0)).theory({"draws": 100, "steps": 40})
    np.testing.assert_allclose(outcome.correlation, 1.0, atol=1e-6)


def test_a_network_without_weight_matrices_has_the_law_of_one_with_them():
    n, layers, number, m = 24, 12, 600, 3
    model = sv.ShapedTransformer(branch=0.5, depth=0.5, points=1, ceiling=1000.0)
    rng, found = np.random.default_rng(2), []
    above, below = 1.0, 1 - 1 / np.sqrt(n)
    c, g, skip = 2 / (above**2 + below**2), np.sqrt(0.5), np.sqrt(0.5)
    X = np.zeros((number, m, n))
    X[:, :, :m] = np.sqrt(n) * np.linalg.cholesky(equicorrelated(m))
    for _ in range(layers):
        Q, K, W, W1, W2 = rng.normal(size=(5, number, n, n))
        scores = X @ Q @ K.transpose(0, 2, 1) @ X.transpose(0, 2, 1) / n / n  # τ = τ₀√(n·n)
        weights = np.exp(scores)
        A = np.eye(m) + weights / weights.sum(2, keepdims=True) - 1 / m
        X = skip * X + g * A @ X @ W / np.sqrt(n)
        h = X @ W1 / np.sqrt(n)
        X = skip * X + g * np.sqrt(c / n) * np.where(h > 0, above * h, below * h) @ W2
    full = X @ X.transpose(0, 2, 1) / n
    found = networks(model, n, number)
    rho = full[:, 0, 1] / np.sqrt(full[:, 0, 0] * full[:, 1, 1])
    assert ks_2samp(rho, found["correlation"][:, 0]).pvalue > 1e-3
    assert ks_2samp(full[:, 0, 0], found["length"][:, 0]).pvalue > 1e-3


def test_quantiles_of_an_independent_integration():
    """Euler steps with projected eigenvalues, 4,000 paths, not stopped: error 0.04."""
    model = sv.ShapedTransformer(branch=0.5, depth=0.5, points=1, ceiling=30.0)
    outcome = model.theory({"draws": 4000, "steps": 400})
    assert outcome.converged
    np.testing.assert_allclose(np.quantile(outcome.correlation, [0.1, 0.5, 0.9]), [-0.776, 0.315, 0.938], atol=0.04)
    alone = sv.ShapedTransformer(block="mlp", branch=0.5, negative_slope=-2.0, depth=1.0, points=1, ceiling=1000.0)
    assert alone.theory({"draws": 4000}).correlation.mean() == pytest.approx(0.376, abs=0.03)


def test_stopped_paths_and_networks_rest_at_the_ceiling():
    model = sv.ShapedTransformer(branch=0.5, tokens=2, points=6, ceiling=2.0, depth=1.0)
    outcome = model.theory({"draws": 500, "steps": 120})
    runs = networks(model, 40, 60)
    for stopped, length in ((outcome.stopped, outcome.length), (runs["stopped"].T, runs["length"].T)):
        assert 0.1 < stopped[-1].mean() < 0.9
        assert np.all(np.diff(stopped, axis=0) >= 0)
        assert np.max(length) < 2.0 + 1e-5
        np.testing.assert_array_equal(
            np.where(stopped[:-1] == 1, length[:-1], 0), np.where(stopped[:-1] == 1, length[1:], 0)
        )


def test_steps_too_long_for_the_drift_are_not_an_answer():
    outcome = sv.ShapedTransformer(temperature=[0.05, 1.0], tokens=2, points=1).theory({"draws": 10})
    assert outcome.converged.tolist() == [False, True]
    assert np.isnan(outcome.correlation[0]).all()


def test_steps_that_change_the_law_are_not_an_answer():
    """Half as many steps move the means by more than the bound; many enough do not."""
    model = sv.ShapedTransformer(tokens=2, points=1, branch=0.5, depth=1.0)
    assert [bool(model.theory({"draws": 400, "steps": n}).converged) for n in (12, 200)] == [False, True]


def test_a_ceiling_within_a_few_steps_of_the_start_is_not_resolved():
    outcome = sv.ShapedTransformer(ceiling=[1.001, 3.0], tokens=2, points=1).theory({"draws": 100})
    assert outcome.converged.tolist() == [False, True]


def test_without_shaping_tokens_become_equal():
    model = sv.ShapedTransformer(branch=0.5, depth=0.5, points=1)
    run = jax.jit(jax.vmap(lambda key: model.network(key, 100, 50, 50, shaped=False)["correlation"][0]))
    unshaped = np.median(run(jax.random.split(jax.random.key(0), 20)))
    assert unshaped > 0.99
    assert np.median(networks(model, 100, 60)["correlation"]) < 0.6


def test_a_start_must_be_a_covariance():
    for start in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.1], [0.2, 1.0]], [[0.0, 0.0], [0.0, 1.0]]):
        with pytest.raises(sv.InvalidValue, match="start is not a symmetric"):
            sv.ShapedTransformer(tokens=2, start=start)
    with pytest.raises(sv.InvalidValue, match="start"):
        sv.ShapedTransformer(tokens=2, start=np.eye(3))
    with pytest.raises(sv.InvalidValue, match="smaller than tokens"):
        sv.ShapedTransformer().simulate(0, 2)
