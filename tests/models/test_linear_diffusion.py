"""Linear diffusion models: exact limits, dense matrices, the sampler itself, best penalty and stopping time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma

import solvable as sv
from solvable.models.generative.linear_diffusion.model import _descend
from solvable.models.generative.linear_diffusion.sampler import draw, sampled, schedule


def test_many_data_leave_the_bayes_error_and_pure_noise_is_read_off_the_input():
    many = sv.LinearDiffusion(samples=1e4, signal=[0.2, 0.9], covariance="power-law", dimension=0).theory()
    np.testing.assert_allclose(many.test_loss, many.bayes_loss, rtol=1e-3)
    np.testing.assert_allclose(many.train_loss, many.bayes_loss, rtol=1e-3)
    noise = sv.LinearDiffusion(samples=0.5, signal=1e-5, covariance="power-law", dimension=0).theory()
    np.testing.assert_allclose([noise.test_loss, noise.train_loss], 1e-5, rtol=1e-3)


def test_errors_start_from_those_of_no_data_and_meet_at_the_best_denoiser():
    """Without data every direction is taken for noise: x_t/√b is the prediction, with the error a/b on fresh data."""
    ratios = np.geomspace(0.01, 50, 60)
    for signal in (0.9, 0.99):
        found = sv.LinearDiffusion(samples=ratios, signal=signal, dimension=0).theory()
        np.testing.assert_allclose(found.test_loss[0], signal / (1 - signal), rtol=0.03)
        assert np.all(np.diff(found.test_loss) < 0)  # no peak: it falls with every datum
        assert np.all(np.diff(found.train_loss) > 0)
        assert found.test_loss[-1] - found.train_loss[-1] < 0.06 * found.bayes_loss[-1]


def test_without_penalty_divergences_depend_on_n_over_d_alone_and_become_a_quarter_of_d_over_n():
    ratios = np.array([1.5, 2.0, 5.0, 100.0])
    white, power = (
        sv.LinearDiffusion(samples=ratios, covariance=c, dimension=0).theory() for c in ("white", "power-law")
    )
    for name in ("reverse_kl", "forward_kl"):
        np.testing.assert_array_equal(white[name], power[name])
        np.testing.assert_allclose(white[name][-1] * 400, 1, atol=0.02)
    tiny = sv.LinearDiffusion(samples=ratios, covariance="power-law", dimension=0, penalty=1e-9).theory()
    np.testing.assert_allclose(tiny.reverse_kl, white.reverse_kl, atol=1e-6)
    np.testing.assert_allclose(tiny.forward_kl, white.forward_kl, atol=1e-5)


def test_without_penalty_divergences_are_exact_at_finite_size():
    N, d = 60, 20
    n = N - 1
    volume = digamma((n - np.arange(d)) / 2).sum() + d * np.log(2 / N)
    found = sv.LinearDiffusion(samples=N / d, dimension=d, covariance="power-law", modes=20).theory()
    np.testing.assert_allclose(found.reverse_kl, 0.5 * (n / N - 1 - volume / d + 1 / N), rtol=1e-12)
    np.testing.assert_allclose(found.forward_kl, 0.5 * ((N + 1) / (n - d - 1) - 1 + volume / d), rtol=1e-12)
    # a small penalty joins on, up to 1/d²
    near = sv.LinearDiffusion(samples=N / d, dimension=d, covariance="power-law", modes=20, penalty=1e-8).theory()
    np.testing.assert_allclose(near.reverse_kl, found.reverse_kl, rtol=3e-3)
    np.testing.assert_allclose(near.forward_kl, found.forward_kl, rtol=2e-2)
    few = sv.LinearDiffusion(samples=0.5, dimension=20).theory()
    assert few.reverse_kl == few.forward_kl == jnp.inf


def test_matrices_of_twenty_dimensions_agree_with_the_finite_theory_and_not_with_the_limit():
    d, N, draws, a, c = 20, 30, 20_000, 0.8, 0.1
    b = 1 - a
    model = sv.LinearDiffusion(samples=N / d, signal=a, penalty=c, covariance="power-law", modes=20, dimension=d)
    variances = np.arange(1, 21) ** -1.0
    variances /= variances.mean()
    x = np.random.default_rng(0).normal(size=(draws, N, d)) * np.sqrt(variances)
    centre = x.mean(1)
    x -= centre[:, None]
    s = x.transpose(0, 2, 1) @ x / N
    w = np.sqrt(b) * np.linalg.inv(a * s + (b + c * a) * np.eye(d))
    noise = ((np.eye(d) - np.sqrt(b) * w) ** 2).sum((1, 2))
    shift = ((w @ centre[:, :, None]) ** 2).sum((1, 2))
    test = (noise + a * ((w**2 @ variances).sum(1) + shift)) / d
    train = (noise + a * np.einsum("mij,mjk,mik->m", w, s, w)) / d
    volume = np.linalg.slogdet(s + c * np.eye(d))[1] - np.log(variances).sum()
    precision = np.linalg.inv(s + c * np.eye(d))
    trace = ((np.einsum("mii->mi", s) + c + centre**2) / variances).sum(1)
    against = np.einsum("mii->mi", precision) @ variances + np.einsum("mi,mij,mj->m", centre, precision, centre)
    measured = {"test_loss": test, "train_loss": train, "reverse_kl": (trace / d - 1 - volume / d) / 2,
                "forward_kl": (against / d - 1 + volume / d) / 2}  # fmt: skip
    finite, limit = model.theory(), model.replace(dimension=0).theory()
    for name, values in measured.items():
        mean, error = values.mean(), values.std() / np.sqrt(draws)
        assert abs(mean - finite[name]) < 4 * error + 0.1 * abs(finite[name] - limit[name]), name
        assert abs(mean - limit[name]) > 6 * error, name


def test_gradient_flow_ends_at_the_optimum_and_begins_at_one():
    settings = {"samples": 0.7, "signal": 0.8, "covariance": "power-law", "penalty": 0.1}
    end = sv.LinearDiffusion(**settings).theory()
    flow = sv.LinearDiffusion(time=[1e-6, 1e3], training="flow", sampler="steps", **settings)
    flow = flow.theory(only=["test_loss", "train_loss"])
    np.testing.assert_allclose(flow.test_loss, [1.0, end.test_loss], atol=1e-6)
    np.testing.assert_allclose(flow.train_loss, [1.0, end.train_loss], atol=1e-6)


def test_the_best_penalty_on_white_data_is_worth_as_many_more_data_as_dimensions():
    ratios = np.array([0.1, 0.5, 2.0, 50.0])
    best = sv.LinearDiffusion(samples=ratios, penalty=1 / (1 + ratios), dimension=0)
    np.testing.assert_allclose(
        best.theory().reverse_kl, sv.LinearDiffusion(samples=ratios + 1, dimension=0).theory().reverse_kl, rtol=1e-10
    )
    for factor in (0.9, 1.1):
        assert np.all(best.replace(penalty=factor / (1 + ratios)).theory().reverse_kl > best.theory().reverse_kl)


def test_the_best_penalty_is_found():
    few = sv.optimise(sv.LinearDiffusion(samples=0.5, dimension=0), "penalty", minimise="reverse_kl")
    np.testing.assert_allclose([few.controls["penalty"], few.value], [2 / 3, 0.225346928], atol=1e-4)
    power = sv.LinearDiffusion(samples=0.5, dimension=0, covariance="power-law", modes=200)
    few = sv.optimise(power, "penalty", minimise="reverse_kl")
    np.testing.assert_allclose([few.controls["penalty"], few.value], [0.21434, 0.271110], atol=1e-5)


def test_with_few_data_there_is_a_best_time_to_stop():
    model = sv.LinearDiffusion(
        samples=0.5, signal=0.9, training="flow", sampler="steps", time=np.geomspace(0.1, 1e3, 50)
    )
    loss = model.theory(only=["test_loss"]).test_loss
    best = int(np.argmin(loss))
    assert 0 < best < 49
    assert loss[best] < 0.3 * loss[-1]
    many = model.replace(samples=50.0).theory(only=["test_loss"]).test_loss
    assert many[-1] < 1.02 * many.min()


def test_the_recursion_is_that_of_matrices_and_of_samples():
    d, steps, c = 6, 50, 0.05
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, d))
    s = np.cov(x.T, bias=True)
    plan, covariance = schedule(steps), np.eye(d)
    for t in range(steps - 1, -1, -1):
        a, beta = plan.signal[t], plan.beta[t]
        w = np.sqrt(1 - a) * np.linalg.inv(a * (s + c * np.eye(d)) + (1 - a) * np.eye(d))
        gain = (np.eye(d) - beta / np.sqrt(1 - a) * w) / np.sqrt(1 - beta)
        covariance = gain @ covariance @ gain.T + (beta if t else 0.0) * np.eye(d)
    e, vectors = np.linalg.eigh(s)
    found = sampled(jnp.asarray(e), c, None, steps)
    np.testing.assert_allclose(vectors @ np.diag(found) @ vectors.T, covariance, atol=1e-12)
    samples = draw(jax.random.key(0), jnp.asarray(e), c, None, steps, 20_000)
    np.testing.assert_allclose(samples.var(axis=0), found, rtol=0.05)
    np.testing.assert_allclose(samples.mean(axis=0), 0.0, atol=0.05)


def test_many_steps_reach_the_data_and_a_null_direction_stays_empty():
    found = sampled(jnp.array([1.0, 0.1, 0.01, 5.0, 0.0]), 0.0, None, 1000)
    np.testing.assert_allclose(found, [0.99989, 0.10037, 0.010075, 4.9868, 0.0], rtol=1e-4, atol=1e-12)
    settings = {"samples": 3.0, "covariance": "power-law", "penalty": 0.0}
    steps = sv.LinearDiffusion(sampler="steps", **settings).theory()  # a thousand
    continuous = sv.LinearDiffusion(**settings).theory()
    np.testing.assert_allclose(steps.reverse_kl, continuous.reverse_kl, rtol=0.02)
    np.testing.assert_allclose(steps.forward_kl, continuous.forward_kl, rtol=0.02)
    few = sv.LinearDiffusion(samples=0.5, sampler="steps").theory()
    assert few.reverse_kl == few.forward_kl == jnp.inf


def test_repeated_squaring_is_gradient_descent():
    matrix = jnp.array([[2.0, 0.3], [0.3, 0.5]])
    w, rate = jnp.zeros((2, 2)), 1.5 / 2**16
    step = jax.jit(lambda w: jax.lax.fori_loop(0, 2**16, lambda _, w: w + rate * (0.7 * jnp.eye(2) - w @ matrix), w))
    np.testing.assert_allclose(_descend(matrix, jnp.asarray(0.7), jnp.asarray(1.5)), step(w), atol=1e-11)


def test_your_own_covariance():
    matrix = np.diag([1.0, 2.0, 3.0]) + 0.5
    own = sv.LinearDiffusion(covariance="given", matrix=matrix, samples=40.0, dimension=0, penalty=0.1).theory()
    e = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(own.bayes_loss, np.mean(0.5 * e / (0.5 * e + 0.5)), rtol=1e-12)
    with pytest.raises(sv.InvalidValue, match="needs `matrix`"):
        sv.LinearDiffusion(covariance="given")
    with pytest.raises(sv.InvalidValue, match="needs sampler = 'steps'"):
        sv.LinearDiffusion(training="flow")


def test_a_simulation_is_compared_with_the_theory_of_its_own_dimension():
    assert float(sv.LinearDiffusion().realised(50).dimension) == 50
    assert float(sv.LinearDiffusion(dimension=0).realised(50).dimension) == 0
