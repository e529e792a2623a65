"""Descent with momentum: limits, effective rates, the flow of small steps, finite systems."""

import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch

SHORT = {"steps": 30, "every": 10}


def test_a_heavy_ball_without_momentum_is_gradient_descent():
    ball = sv.create("momentum", algorithm="heavy_ball", momentum=0.0, **SHORT).theory()
    plain = sv.create("momentum", algorithm="descent", **SHORT).theory()
    for name in ball:
        np.testing.assert_allclose(ball[name], plain[name], rtol=1e-12)


def test_before_the_first_step_the_loss_is_that_of_the_signal_alone():
    model = sv.create("momentum", initial_overlap=0.4, matrix_noise=0.5, tensor_noise=0.8, **SHORT)
    assert float(model.theory().loss[0]) == pytest.approx(-(0.4**2 / 1.0 + 0.4**3 / 2.4), rel=1e-12)


def test_a_heavy_ball_is_as_fast_as_gradient_descent_at_its_effective_rate():
    """Late, when the first ten steps are forgotten: the same loss to a per cent."""
    values = {"steps": 200, "every": 100, "matrix_noise": 0.4, "tensor_noise": 1.0}
    ball = sv.create("momentum", algorithm="heavy_ball", rate=0.002, momentum=0.9, **values).theory()
    same = sv.create("momentum", algorithm="descent", rate=0.02, **values).theory()
    slow = sv.create("momentum", algorithm="descent", rate=0.002, **values).theory()
    assert float(ball.loss[-1]) == pytest.approx(float(same.loss[-1]), rel=0.01)
    assert float(slow.loss[-1]) > float(ball.loss[-1]) + 0.2


def test_without_a_tensor_the_norm_ends_where_the_spectrum_of_a_spiked_matrix_says():
    """|x|²/N = 1 + (θ + σ²/θ)/ω, θ = σ² = 1/Δ₂, and the overlap is that of the top eigenvector, √(1 - σ²/θ²)."""
    model = sv.create(
        "momentum", algorithm="nesterov", rate=0.02, matrix_noise=0.5, tensor_noise=1e12, steps=300, every=300
    )
    outcome = model.theory()
    assert float(outcome.norm[-1]) == pytest.approx(1.3, abs=1e-4)
    assert float(outcome.overlap[-1] / jnp.sqrt(outcome.norm[-1])) == pytest.approx(np.sqrt(0.5), abs=1e-3)


@pytest.mark.parametrize("algorithm", ["descent", "nesterov"])
def test_diluted_systems_follow_the_same_path(algorithm):
    model = sv.create(
        "momentum", algorithm=algorithm, disorder="diluted", matrix_noise=0.5, initial_overlap=0.5, **SHORT
    )
    seeds, size = 6, 600
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    theory = model.theory()
    for name in ("loss", "norm", "overlap"):
        seen, exact = np.asarray(runs[name]), np.asarray(theory[name])
        error = seen.std(axis=0, ddof=1) / np.sqrt(seeds)
        assert np.all(np.abs(seen.mean(axis=0) - exact) < 5 * error + 0.02 * np.abs(exact).max()), name


def test_a_rate_at_which_the_iterates_diverge_gives_nan():
    outcome = sv.create("momentum", algorithm="descent", rate=[0.01, 1.0], **SHORT).theory()
    assert list(np.asarray(outcome.converged)) == [True, False]
    assert np.isnan(outcome.loss[1]).all()
