"""Two-time equations: order of convergence, exact limits, reference values, flagged failure, and the steps in ln t."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.methods.flows import two_time
from solvable.methods.flows.two_time import Landscape, Mixture, relax
from solvable.methods.flows.two_time_log import relax_log

PURE = Mixture({3: 0.5})  # the 3-spin model
THRESHOLD = -2 / np.sqrt(3)  # its energy, where a quench to T = 0 ends


def spiked(second, third, power=3):
    """The matrix-tensor model with noise of variances `second` and `third`."""
    return Mixture({2: 1 / (2 * second), power: 1 / (power * third)})


def at(path, time):
    """The index of a time."""
    return int(np.argmin(np.abs(np.asarray(path.times) - time)))


@functools.cache
def bayes():
    return relax(spiked(0.4, 1.0), 0.02, 200, temperature=1.0, overlap=0.2)


# --- the matrix model, where everything is linear and the spectrum is a semicircle ------------------------------------


def semicircle(nodes=400):
    """Nodes and weights of the eigenvalues of the couplings: H = -x J x/2 with Q = q²/2, of edge 2."""
    angle = np.arange(1, nodes + 1) * np.pi / (nodes + 1)
    return 2 * np.cos(angle), 2 / (nodes + 1) * np.sin(angle) ** 2


def matrix_quench(t, s):
    """C(t, s) and the energy at t of the spherical matrix model at T = 0, from a random start, without a signal: every
    eigenmode grows by exp(λ t), and the norm is divided out."""
    eigenvalues, weights = semicircle()
    laplace = lambda time: weights @ np.exp(eigenvalues * time)  # noqa: E731
    correlation = laplace(t + s) / np.sqrt(laplace(2 * t) * laplace(2 * s))
    energy = -0.5 * (weights * eigenvalues) @ np.exp(eigenvalues * 2 * t) / laplace(2 * t)
    return correlation, energy


@functools.cache
def matrix_path(steps):
    return relax(Mixture({2: 0.5}), 4.0 / steps, steps, tolerance=1.0)


def test_matrix_model_follows_its_spectrum():
    path = matrix_path(80)
    for t, s in ((4.0, 0.0), (4.0, 2.0), (2.0, 1.0)):
        i, j = at(path, t), at(path, s)
        correlation, energy = matrix_quench(path.times[i], path.times[j])
        np.testing.assert_allclose(path.correlation[i, j], correlation, atol=2e-6)
        np.testing.assert_allclose(path.energy[i], energy, atol=5e-6)
        np.testing.assert_allclose(path.multiplier[i], -2 * energy, atol=1e-5)


def test_response_of_the_matrix_model():
    """R(t, s) = sqrt(L(2s)/L(2t)) L(t - s), where L is the Laplace transform of the semicircle."""
    path = matrix_path(80)
    eigenvalues, weights = semicircle()
    laplace = lambda time: weights @ np.exp(eigenvalues * time)  # noqa: E731
    i, j = at(path, 4.0), at(path, 1.0)
    np.testing.assert_allclose(path.response[i, j], np.sqrt(laplace(2.0) / laplace(8.0)) * laplace(3.0), atol=2e-6)


def test_second_order_in_the_step_and_more_when_extrapolated():
    reported, actual = [], []
    for steps in (40, 80):
        path = matrix_path(steps)
        exact = np.array([matrix_quench(4.0, t)[0] for t in np.asarray(path.times)])
        actual.append(np.abs(np.asarray(path.correlation[-1]) - exact).max())
        reported.append(float(path.error[-1]))
        assert actual[-1] < reported[-1] / 5
    assert 1.8 < np.log2(reported[0] / reported[1]) < 2.3
    assert actual[1] < actual[0] / 6


def test_norm_of_a_soft_matrix_model():
    """With a signal of strength θ > σ the norm ends at 1 + (θ + σ²/θ)/ω."""
    path = relax(Mixture({2: 1.0}), 0.025, 400, overlap=0.3, ridge=10.0)
    assert path.converged.all()
    np.testing.assert_allclose(path.correlation[-1, -1], 1.3, atol=1e-4)
    np.testing.assert_allclose(path.multiplier[-1], 3.0, atol=1e-3)


# --- blocks ------------------------------------------------------------------------------------------------------------


def test_the_length_of_blocks_does_not_matter():
    small, large = (relax(PURE, 0.05, 60, block=block, accuracy=1e-11) for block in (3, 16))
    np.testing.assert_allclose(small.correlation, large.correlation, atol=1e-9)
    np.testing.assert_allclose(small.response, large.response, atol=1e-9)


def test_stages_do_not_matter(monkeypatch):
    landscape = Landscape.of(PURE, None, None, 0.0, 0.0, None)
    whole = two_time._march(landscape, jnp.asarray(0.05), 60, 8, 1e-6)
    monkeypatch.setattr(two_time, "STAGE", 32)
    stages = two_time._march(landscape, jnp.asarray(0.05), 60, 8, 1e-6)
    for one, other in zip(whole, stages, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


# --- reference values -------------------------------------------------------------------------------------------------


def test_bayes_optimal_langevin_reference_values():
    path = bayes()
    one, three, four = (at(path, t) for t in (1.0, 3.0, 4.0))
    assert path.converged.all()
    np.testing.assert_allclose(path.overlap[one], 0.45028736, atol=3e-6)
    np.testing.assert_allclose(path.correlation[one, 0], 0.33816377, atol=3e-6)
    np.testing.assert_allclose(path.response[four, three], 0.06023432, atol=3e-6)
    np.testing.assert_allclose(path.multiplier[four], 4.48138181, atol=2e-5)


def test_gradient_flow_reference_values():
    path = relax(spiked(0.4, 1.0), 0.02, 200, overlap=0.3)
    one = at(path, 1.0)
    np.testing.assert_allclose(path.overlap[one], 0.77540583, atol=3e-6)
    np.testing.assert_allclose(path.correlation[one, 0], 0.45691389, atol=3e-6)
    np.testing.assert_allclose(path.energy[-1], -2.09440689, atol=2e-5)


def test_quench_of_the_pure_model_reference_values():
    path = relax(PURE, 0.04, 200)
    np.testing.assert_allclose(path.multiplier[-1], 3.20769814, atol=3e-5)
    np.testing.assert_allclose(path.correlation[-1, 0], 0.31153931, atol=3e-6)


def test_annealing_reference_value():
    held = lambda t: (jnp.ones_like(t), 1 / (1 + 100 * jnp.exp(-t / 2)))  # noqa: E731
    path = relax(spiked(0.85, 1.0), 0.04, 200, temperature=1.0, overlap=0.2, couplings=held)
    np.testing.assert_allclose(path.overlap[-1], 0.16551896, atol=5e-6)


def test_constant_couplings_are_other_strengths():
    half = lambda t: (jnp.full_like(t, 0.5), jnp.ones_like(t))  # noqa: E731
    noise = lambda q: (q**2, q**3 / 3)  # noqa: E731
    scaled = relax(noise, 0.05, 40, overlap=0.3, couplings=half, signal=lambda m: (0 * m, 0 * m))
    plain = relax(lambda q: q**2 / 4 + q**3 / 3, 0.05, 40, overlap=0.3, signal=lambda m: 0 * m)
    np.testing.assert_allclose(scaled.correlation, plain.correlation, atol=1e-12)
    np.testing.assert_allclose(scaled.energy, plain.energy, atol=1e-12)


# --- physics ----------------------------------------------------------------------------------------------------------


def test_fluctuation_and_dissipation_at_equilibrium():
    """Above the glass temperature (0.612) of the 3-spin model, R = -∂C/∂τ / T after a while."""
    T = 1.5
    path = relax(PURE, 0.02, 200, temperature=T)
    row, i = np.asarray(path.correlation[-1]), len(path.times) - 1
    near = lambda k: row[i - 40 + k : i - 2 + k]  # noqa: E731
    slope = (8 * (near(1) - near(-1)) - (near(2) - near(-2))) / (12 * float(path.times[1]))
    np.testing.assert_allclose(np.asarray(path.response[-1])[i - 40 : i - 2], slope / T, atol=5e-4)
    np.testing.assert_allclose(path.energy[-1], -0.5 / T, atol=5e-4)  # -Q(1)/T above that temperature


def test_overlap_ends_at_the_fixed_point_of_message_passing():
    """Bayes-optimal Langevin dynamics in the easy phase: Q'(m) = m/(1 - m)."""
    path = relax(spiked(0.4, 1.0), 0.04, 200, temperature=1.0, overlap=0.5, tolerance=1e-2)
    np.testing.assert_allclose(path.overlap[-1], 0.68614066, atol=5e-4)


# --- batches and failures ---------------------------------------------------------------------------------------------


def test_a_batch_is_its_members():
    start = jnp.array([0.1, 0.3])
    both = jax.vmap(lambda m: relax(spiked(0.5, 1.0), 0.05, 40, overlap=m).overlap)(start)
    for m, row in zip(start, both, strict=True):
        np.testing.assert_allclose(relax(spiked(0.5, 1.0), 0.05, 40, overlap=m).overlap, row, atol=1e-12)


def test_inaccurate_values_are_nan_from_there_on():
    path = relax(PURE, 0.04, 200, tolerance=1e-4)
    good = np.asarray(path.converged)
    assert good[0]
    assert not good[-1]
    first = int(np.argmin(good))
    assert not good[first:].any()
    assert np.isnan(path.energy[first:]).all()
    assert np.isfinite(path.energy[:first]).all()
    assert np.isnan(path.correlation[first, 0])
    assert (np.asarray(path.error)[:first] <= 1e-4).all()


def test_a_step_that_is_too_long_for_the_multiplier_is_flagged_at_any_tolerance():
    path = relax(Mixture({3: 50.0}), 0.2, 20, tolerance=1e9)
    assert not path.converged[-1]
    assert np.isnan(path.multiplier[-1])


def test_steps_are_a_positive_even_number():
    with pytest.raises(InvalidValue, match="steps"):
        relax(PURE, 0.1, 7)


# --- steps in ln t ----------------------------------------------------------------------------------------------------


@functools.cache
def quench():
    """The 3-spin model at T = 0 over eight decades."""
    return relax_log(PURE, 2e4)


def test_quench_approaches_the_threshold_by_the_power_two_thirds():
    path = quench()
    assert path.converged.all()
    late = np.asarray(path.times) > 500
    above = np.asarray(path.energy)[late] - THRESHOLD
    assert (above > 0).all()
    power = -np.polyfit(np.log(np.asarray(path.times)[late]), np.log(above), 1)[0]
    np.testing.assert_allclose(power, 2 / 3, atol=0.01)
    np.testing.assert_allclose(path.multiplier[-1], 2 * np.sqrt(3), atol=2e-3)


def test_both_grids_agree_where_both_reach():
    path = quench()
    i = at(path, 8.0)
    time = float(path.times[i])
    uniform = relax(PURE, time / 200, 200)
    np.testing.assert_allclose(path.multiplier[i], uniform.multiplier[-1], atol=1e-4)
    np.testing.assert_allclose(path.energy[i], uniform.energy[-1], atol=1e-4)
    np.testing.assert_allclose(path.correlation[i, 0], uniform.correlation[-1, 0], atol=1e-4)
    rows = np.interp(np.asarray(uniform.times)[10:-10] / time, path.ratios, path.correlation[i])
    smooth = np.asarray(uniform.correlation[-1])[10:-10]
    np.testing.assert_allclose(rows, smooth, atol=2e-3)  # of the linear interpolation between nodes


def test_long_times_at_finite_temperatures():
    """Above the glass temperature equilibrium, E = -Q(1)/T; below it the plateau q of threshold states, (1 - q)² Q''(q) = T²."""
    hot = relax_log(PURE, 2e4, temperature=1.0)
    assert hot.converged.all()
    np.testing.assert_allclose(hot.energy[-1], -0.5, atol=1e-5)
    np.testing.assert_allclose(hot.multiplier[-1], 2.5, atol=1e-5)
    T = 0.3
    cold = relax_log(PURE, 2e4, temperature=T)
    q = max(np.roots([3.0, -6.0, 3.0, -(T**2)]), key=lambda root: root.real if root.real < 1 else -1).real
    threshold = T / (1 - q) + 1.5 * (1 - q**2) / T
    assert cold.converged.all()
    assert 0 < threshold - float(cold.multiplier[-1]) < 3e-3


def test_signal_and_temperature_on_both_grids():
    path = relax_log(spiked(0.4, 1.0), 4.0, temperature=1.0, overlap=0.2, log_step=0.1, logit_step=0.4)
    uniform = bayes()
    assert path.converged.all()
    np.testing.assert_allclose(path.overlap[-1], uniform.overlap[-1], atol=1e-4)
    np.testing.assert_allclose(path.multiplier[-1], uniform.multiplier[-1], atol=1e-4)
    np.testing.assert_allclose(path.energy[-1], uniform.energy[-1], atol=1e-4)


def test_long_times_that_are_not_resolved_are_flagged():
    path = relax_log(PURE, 100.0, log_step=0.5, logit_step=1.2, tolerance=1e-5)
    assert not path.converged[-1]
    assert np.isnan(path.energy[-1])
