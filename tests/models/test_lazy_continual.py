"""Two tasks from lazy to rich: kernel limits, a network of finite width, the limit of particles, one task twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch

SMALL = {"input_dimension": 6, "examples": 4, "steps": 40, "points": 4}


def by_kernel(model, kernel):
    """Losses of gradient descent with a constant kernel, first on task 1, then on task 2."""
    X, y = (np.asarray(v) for v in model._tasks())
    P, f, labels = y.shape[1], np.zeros(2 * y.shape[1]), y.reshape(-1)
    K, losses = kernel(X.reshape(2 * P, -1)), []
    for t in range(2 * model.steps + 1):
        losses.append(0.5 * np.mean((labels - f).reshape(2, P) ** 2, axis=1))
        here = slice(0, P) if t < model.steps else slice(P, 2 * P)
        f = f + float(model.rate) / P * K[:, here] @ (labels - f)[here]
    return np.array(losses)[:: model.steps // model.points]


def of_relu(X):
    """E φφ′ + E a² E φ′φ′ x·x′ of ReLU units with normal weights."""
    G = X @ X.T
    length = np.sqrt(np.diag(G))
    rho = np.clip(G / np.outer(length, length), -1, 1)
    angle = np.pi - np.arccos(rho)
    return np.outer(length, length) * (np.sqrt(1 - rho**2) + rho * angle) / (2 * np.pi) + G * angle / (2 * np.pi)


def test_lazy_linear_networks_are_kernel_machines():
    model = sv.LazyContinual(activation="linear", richness=0.001, similarity=0.3, **SMALL)
    exact = by_kernel(model, lambda X: 2 * X @ X.T)
    np.testing.assert_allclose(model.theory().train_loss, exact, atol=3e-6)


def test_lazy_relu_networks_are_kernel_machines():
    model = sv.LazyContinual(activation="relu", richness=0.001, similarity=0.3, labels="absolute", **SMALL)
    exact = by_kernel(model, of_relu)
    coarse, fine = (np.abs(model.theory({"particles": n}).train_loss - exact).max() for n in (2048, 32768))
    assert fine < 0.01 * exact[0].max()
    assert fine < 0.7 * coarse


def test_what_lazy_networks_forget_once_both_tasks_are_learnt():
    """Δf₁ = K₁₂ K₂₂⁻¹ (y₂ − f₂) for a task that is learnt to the end."""
    values = {"input_dimension": 12, "examples": 3, "steps": 4000, "points": 1}
    model = sv.LazyContinual(activation="linear", richness=0.001, rate=1.0, similarity=0.4, **values)
    X, y = (np.asarray(v) for v in model._tasks())
    K = X.reshape(6, -1) @ X.reshape(6, -1).T
    at_switch = K[3:, :3] @ np.linalg.solve(K[:3, :3], y[0])
    moved = K[:3, 3:] @ np.linalg.solve(K[3:, 3:], y[1] - at_switch)
    outcome = model.theory()
    np.testing.assert_allclose(outcome.forgetting, np.mean(moved**2) / np.mean(y[0] ** 2), rtol=1e-3)


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_the_same_task_twice_is_one_long_task(activation):
    once = sv.LazyContinual(activation=activation, **{**SMALL, "steps": 80}, richness=1.5)
    inputs = once.first_inputs
    data = {"first_inputs": inputs, "second_inputs": inputs, "teacher": once.teacher, "change": once.change}
    twice = sv.LazyContinual(activation=activation, similarity=1.0, richness=1.5, **data, **SMALL)
    found, long = twice.theory(), once.theory()
    np.testing.assert_allclose(found.train_loss[-1, 0], long.train_loss[4, 0], rtol=1e-9)
    assert found.forgetting <= 0


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_wide_networks_follow_the_limit(activation):
    model = sv.LazyContinual(activation=activation, richness=2.0, similarity=0.2, **SMALL)
    runs = simulate_batch(model, {}, jnp.stack([model.key(2000, s) for s in range(4)]), 2000)
    outcome = model.theory()
    scale = float(outcome.train_loss[0].max())
    np.testing.assert_allclose(runs["train_loss"].mean(0), outcome.train_loss, atol=0.02 * scale)
    np.testing.assert_allclose(
        runs["displacement"].mean(0), outcome.displacement, atol=0.06 * float(outcome.displacement.max())
    )


def test_linear_particles_obey_the_closed_recursion():
    """Units of a linear network with an exactly isotropic start: the recursion of β, K and k at finite width."""
    model = sv.LazyContinual(activation="linear", richness=2.0, **SMALL)
    X, y = (np.asarray(v) for v in model._tasks())
    D, gamma, eta = 6, 2.0, float(model.rate)
    W = np.concatenate([np.sqrt(D) * np.eye(D)] * 2)  # K = 1, k = 1 and β = 0
    a, N = np.concatenate([np.ones(D), -np.ones(D)]), 2 * D
    losses = []
    for t in range(2 * model.steps + 1):
        f = X @ W.T @ a / (gamma * N)
        losses.append(0.5 * np.mean((y - f) ** 2, axis=1))
        task = int(t >= model.steps)
        g = (y - f)[task] @ X[task] / 4
        W, a = W + eta * gamma * np.outer(a, g), a + eta * gamma * W @ g
    np.testing.assert_allclose(model.theory().train_loss, np.array(losses)[::10], rtol=1e-9)


def test_richness_moves_features():
    moved = [
        float(sv.LazyContinual(activation="relu", richness=g, **SMALL).theory().displacement[-1])
        for g in (0.01, 0.3, 3.0)
    ]
    assert moved[0] < 0.01 < moved[1] < moved[2]


def test_a_rate_that_diverges_is_not_an_answer():
    outcome = sv.LazyContinual(activation="linear", rate=[0.1, 20.0], richness=3.0, **SMALL).theory()
    assert outcome.converged.tolist() == [True, False]


def test_measurements_divide_the_steps():
    with pytest.raises(sv.InvalidValue, match="points = 7 does not divide steps = 150"):
        sv.LazyContinual(points=7)


def test_particles_have_no_derivative():
    """A ReLU's slope jumps: derivatives along particles would be wrong, and are NaN instead."""
    model = sv.LazyContinual(activation="relu", **SMALL)
    value, slope = jax.value_and_grad(lambda g: model.with_values({"richness": g}).theory().forgetting)(
        jnp.asarray(1.0)
    )
    assert np.isfinite(value)
    assert np.isnan(slope)


def test_the_stated_error_of_particles_is_that_of_other_particles():
    model = sv.LazyContinual(activation="relu", richness=2.0, **SMALL)
    fine, coarse = (model.theory({"particles": n}) for n in (65536, 4096))
    gap = max(float(np.max(np.abs(coarse[n] - fine[n]) / (1 + np.abs(fine[n])))) for n in fine)
    assert 0 < fine.residual < coarse.residual < 0.015
    assert gap < 4 * coarse.residual


def test_too_few_particles_are_not_an_answer():
    outcome = sv.LazyContinual(activation="relu", richness=2.0, **SMALL).theory({"particles": 16})
    assert not outcome.converged
    assert outcome.residual > 0.015
    assert np.isnan(outcome.forgetting)
