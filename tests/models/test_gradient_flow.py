"""Gradient flow: closed threshold, growth of a small overlap, marginal minima, low temperatures, small steps of descent."""

import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv

TIMES = [0.0, 0.5, 1.0, 2.0]


def test_the_threshold_is_where_the_signal_leaves_the_spectrum():
    for order, noise, exact in ((3, 1.0, 0.5), (4, 0.5, 1 / 3), (4, 4.0, 2 / 3), (3, 1e9, 1.0)):
        model = sv.create("gradient-flow", order=order, tensor_noise=noise, times=TIMES)
        assert float(model.theory().threshold) == pytest.approx(exact, abs=1e-8)
        assert sv.locate(model, along="matrix_noise") == pytest.approx(min(exact, 1.2), abs=1e-7)


def test_a_small_overlap_grows_at_the_rate_given_by_the_multiplier():
    """p = 4, Δ₂ = 1/3, Δ₄ = 4: d ln m/dt = Λ(t) once C(t, 0) is small, above its limit (θ-σ)²/θ = 0.377."""
    model = sv.create("gradient-flow", order=4, matrix_noise=1 / 3, tensor_noise=4.0, initial_overlap=1e-8,
                      times=[0.0, 8.0, 9.0, 10.0], waiting=[0.0, 1.0])  # fmt: skip
    outcome = model.theory({"steps": 800})
    seen = np.log(outcome.overlap[3] / outcome.overlap[1]) / 2
    assert float(seen) == pytest.approx(float(outcome.growth_rate[2]), abs=0.03)
    assert float(outcome.escape_rate) == pytest.approx((3 - np.sqrt(3.75)) ** 2 / 3, rel=1e-12)
    assert float(seen) > float(outcome.escape_rate)
    assert float(outcome.multiplier[3]) < 2 * np.sqrt(3.75)


def test_a_tiny_overlap_rests_near_marginal_minima_and_then_escapes_to_that_of_maximum_likelihood():
    """p = 4, Δ₂ = 1/3, Δ₄ = 4, m₀ = 1e-10: μ rests below 2σ, then m and μ are those of the minimum near the signal."""
    model = sv.create("gradient-flow", order=4, matrix_noise=1 / 3, tensor_noise=4.0, initial_overlap=1e-10,
                      times=[0.0, 25.0, 40.0, 60.0], waiting=[0.0, 1.0])  # fmt: skip
    outcome = model.theory({"steps": 1200, "tolerance": 0.1})
    assert (
        float(outcome.overlap[1]) < 1e-3 < 0.05 < float(outcome.overlap[2]) < 0.07
    )  # 0.0584 (first order), 0.0605 elsewhere
    assert 0.98 * 2 * np.sqrt(3.75) < float(outcome.multiplier[1]) < 2 * np.sqrt(3.75)
    m = float(outcome.overlap[3])
    assert m == pytest.approx(float(outcome.likelihood_passing), abs=1e-4)
    field = np.hypot(np.sqrt(3.25), 3 * m + m**3 / 4)  # √(Q'(1) + Q'(m)²)
    assert float(outcome.multiplier[3]) == pytest.approx(field + 3.75 / field, rel=2e-3)


def test_a_cold_sampler_is_the_flow():
    flow = sv.create("gradient-flow", times=TIMES).theory()
    cold = sv.create("langevin", temperature=1e-9, times=TIMES, initial_overlap=0.3).theory()
    for name in ("overlap", "energy", "multiplier", "correlation"):
        np.testing.assert_allclose(cold[name], flow[name], atol=1e-6)


def test_descent_by_small_steps_at_a_hard_constraint_is_the_flow():
    """m at time 0.5: descent of rate α and ridge ω, extrapolated to α → 0 and to ω → ∞ (errors fall as α and 1/ω)."""

    def overlap(rate, ridge):
        steps = round(0.5 / rate)
        model = sv.create("momentum", algorithm="descent", rate=rate, ridge=ridge, matrix_noise=0.4, tensor_noise=1.0,
                          initial_overlap=0.3, steps=steps, every=steps)  # fmt: skip
        outcome = model.theory()
        return float(outcome.overlap[-1] / jnp.sqrt(outcome.norm[-1]))

    hard = [2 * overlap(0.0025, ridge) - overlap(0.005, ridge) for ridge in (50.0, 100.0)]
    flow = sv.create("gradient-flow", times=TIMES).theory()
    assert 2 * hard[1] - hard[0] == pytest.approx(float(flow.overlap[1]), abs=2e-3)


def test_a_matrix_alone_is_a_power_of_its_spectrum():
    """Without a tensor x(t) ∝ exp(Wt) x(0): m(t) and C(t, 0) by the semicircle and its spike, drawn once at N = 1500."""
    rng, size, noise = np.random.default_rng(5), 1500, 0.4
    g = rng.normal(size=(size, size))
    signal = np.ones(size)
    w = (g + g.T) / np.sqrt(2 * noise * size) + np.outer(signal, signal) / (noise * size)
    across = rng.normal(size=size)
    across -= across.mean()
    start = 0.3 * signal + np.sqrt(1 - 0.09) * across * np.sqrt(size) / np.linalg.norm(across)
    values, vectors = np.linalg.eigh(w)
    a, b = vectors.T @ start, vectors.T @ signal
    outcome = sv.create("gradient-flow", matrix_noise=noise, tensor_noise=1e12, times=TIMES).theory()
    for i, t in enumerate(TIMES):
        x = np.exp((values - values[-1]) * t) * a
        x *= np.sqrt(size) / np.linalg.norm(x)
        assert x @ b / size == pytest.approx(float(outcome.overlap[i]), abs=0.04)
        assert x @ a / size == pytest.approx(float(outcome.correlation[i, 0]), abs=0.02)


def test_a_flow_that_is_followed_too_coarsely_is_nan():
    outcome = sv.create("gradient-flow", matrix_noise=0.3, times=[0.0, 100.0, 200.0, 400.0]).theory()
    assert not bool(outcome.converged)
    assert np.isnan(outcome.overlap[1:]).all()
