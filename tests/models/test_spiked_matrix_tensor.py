"""A spike in a matrix and a tensor: limits, thresholds, phases, counts of minima, message passing itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import solvable as sv
from solvable.methods.random_matrices.kac_rice import complexity
from solvable.model import simulate_batch
from solvable.models.glassy import _thresholds as thresholds
from solvable.models.glassy._landscape import Covariance
from solvable.models.glassy._state_evolution import fixed_points, reached, step

NOISES = np.array([0.5, 1.0, 4.0])
TABLE = {  # p: maximum-likelihood message passing, gradient flow, Langevin, trivial landscape, at Δ_p = 0.5, 1, 4
    3: (
        [0.500000, 0.618034, 0.828427],
        [0.390388, 0.500000, 0.732051],
        [0.500000, 0.707107, 1.0],
        [0.306013, 0.406049, 0.644306],
    ),
    4: (
        [0.500000, 0.618034, 0.828427],
        [0.333333, 0.434259, 0.666667],
        [1.0, 1.0, 1.0],
        [0.234315, 0.319940, 0.545967],
    ),
}


@pytest.mark.parametrize("order", [3, 4])
def test_thresholds_are_those_of_the_literature_to_six_digits_and_ordered(order):
    names = ("likelihood message passing", "gradient flow", "Langevin", "trivial landscape")
    found = {name: thresholds.LINES[name](order, NOISES) for name in names}
    for name, expected in zip(names, TABLE[order], strict=True):
        np.testing.assert_allclose(found[name], expected, atol=5.1e-7)
    assert np.all(found["trivial landscape"] < found["gradient flow"])
    assert np.all(found["gradient flow"] < found["likelihood message passing"])
    for name in names:  # without a tensor there is one threshold for all
        np.testing.assert_allclose(thresholds.LINES[name](order, np.array([1e6])), 1.0, atol=5e-3)


@pytest.mark.parametrize(
    ("order", "matrix", "tensor"), [(3, 0.3, 1.0), (3, 0.5, 1.0), (3, 0.7, 1.0), (4, 0.3, 0.5), (5, 0.2, 2.0)]
)
def test_the_fixed_point_of_maximum_likelihood_is_one_minimum_with_the_energy_of_state_evolution(order, matrix, tensor):
    model = sv.SpikedMatrixTensor(matrix_noise=matrix, tensor_noise=tensor, order=order, learner="likelihood",
                                  initial_overlap=1.0, iterations=2000, latitudes=[0.0])  # fmt: skip
    at = model.theory()
    q = Covariance(matrix, tensor, order)
    found = complexity(q.value, at.final_overlap)
    assert abs(found.complexity) < 1e-10
    assert found.lowest > 0
    np.testing.assert_allclose(found.energy, at.energy[-1], atol=1e-9)
    slope = jax.grad(lambda m: complexity(q.value, m).complexity)(at.final_overlap)
    assert abs(slope) < 1e-9  # it is a maximum, too: minima around it are exponentially unlikely


def test_where_gradient_flow_begins_to_succeed_minima_without_overlap_are_exponentially_many():
    for order in (3, 4, 5):
        for noise in (0.3, 1.0, 4.0):
            flow = float(thresholds.gradient_flow(order, np.asarray(noise)))
            for matrix in (flow, 0.98 * flow):
                q = Covariance(matrix, noise, order)
                assert complexity(q.value, jnp.asarray(0.0)).complexity > 1e-6


def test_odd_tensors_leave_minima_that_point_away_from_the_signal_after_all_others_are_gone():
    noise = np.array([1.0])
    half, whole = thresholds.trivial_landscape(3, noise)[0], thresholds.trivial_sphere(3, noise)[0]
    assert whole < half - 0.01
    latitudes = np.linspace(-0.95, 0.3, 251)
    model = sv.SpikedMatrixTensor(
        matrix_noise=[whole - 1e-4, half - 0.01, half + 1e-4], latitudes=latitudes, iterations=1
    )
    below, between, above = model.theory(only=["minima"]).minima
    assert np.all(below < 1e-14)  # zero at one minimum that points away from the signal
    assert between.max() > 1e-5
    assert latitudes[between.argmax()] < 0
    assert np.all(between[latitudes >= 0] < 0)
    assert above[np.abs(latitudes).argmin()] > 0
    np.testing.assert_allclose(thresholds.trivial_sphere(4, noise), thresholds.trivial_landscape(4, noise), atol=1e-9)


@pytest.mark.parametrize("learner", ["bayes", "likelihood"])
@pytest.mark.parametrize("order", [3, 4, 7])
def test_fixed_points_are_the_roots_of_their_polynomials_and_where_iterations_end(learner, order):
    rng, points = np.random.default_rng(order), 60
    beta, c = np.exp(rng.uniform(-2, 2, points)), np.exp(rng.uniform(-2, 4, points))
    q = Covariance(jnp.asarray(1 / beta), jnp.asarray(1 / c), order)
    ours = np.stack(fixed_points(learner, q))
    polynomial = np.polynomial.Polynomial
    for i in range(points):
        g = polynomial([beta[i], *[0] * (order - 3), c[i]])
        whole = g * polynomial([1, -1]) - 1 if learner == "bayes" else g**2 * polynomial([1, 0, -1]) - beta[i] - c[i]
        roots = whole.roots()
        roots = np.sort(roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)])
        np.testing.assert_allclose(np.sort(ours[np.isfinite(ours[:, i]), i]), roots, atol=1e-9)
    m = np.full(points, 0.4)
    for _ in range(3000):
        m = step(learner, Covariance(1 / beta, 1 / c, order), m)
    gap = np.abs(m - np.asarray(reached(learner, q, fixed_points(learner, q), jnp.full(points, 0.4))))
    assert np.sum(gap > 1e-9) <= 2  # next to a transition three thousand iterations are not enough


def test_information_and_spinodal_thresholds_solve_their_equations():
    """p = 3: c m³/6 = m²/(2(1−m)) + ln(1−m) + m where the free entropies are equal; spinodal 1/Δ₂ = 2/√Δ₃ − 1/Δ₃."""
    noises = np.array([0.3, 0.5, 0.8])
    for noise, found in zip(noises, thresholds.information(3, noises), strict=True):
        m = brentq(lambda m, n=noise: m**2 / (2 * (1 - m)) + np.log1p(-m) + m - m**3 / (6 * n), 1e-2, 0.999, xtol=1e-15)
        np.testing.assert_allclose(1 / found, 1 / (1 - m) - m / noise, atol=1e-9)
    np.testing.assert_allclose(1 / thresholds.spinodal(3, noises), 2 / np.sqrt(noises) - 1 / noises, atol=1e-9)
    assert np.all(thresholds.spinodal(3, noises) > thresholds.information(3, noises))
    assert np.all(thresholds.information(3, np.array([1.0, 2.0])) == 1)  # continuous from Δ₃ = 1 on


def test_at_order_four_recovery_is_easy_then_hard_then_easy_again():
    """The overlap grows continuously from Δ₂ = 1 and jumps inside the easy phase where Δ₄ < 8/27."""
    upper, lower = thresholds.spinodals(4, np.array([0.28, 8 / 27 + 1e-6]))
    assert lower[0] < upper[0] < 1
    assert np.isnan(upper[1])
    at = sv.SpikedMatrixTensor(order=4, tensor_noise=0.28, matrix_noise=[1.05, 0.97, lower[0] + 1e-3, lower[0] - 1e-3],
                               initial_overlap=0.0).theory()  # fmt: skip
    assert at.phase.tolist() == [0, 2, 1, 2]
    assert at.final_overlap[3] - at.final_overlap[2] > 0.1


def test_phases_of_order_three_change_at_the_lines_and_all_branches_are_found():
    spinodal, information = (float(f(3, np.asarray(0.5))) for f in (thresholds.spinodal, thresholds.information))
    noises = [spinodal + 1e-3, information + 1e-3, information - 1e-3, 1.001, 0.999]
    at = sv.SpikedMatrixTensor(tensor_noise=0.5, matrix_noise=noises, initial_overlap=0.0)
    found, branches = at.theory(), at.branches()
    assert found.phase.tolist() == [0, 0, 1, 1, 2]
    assert np.isfinite(branches.final_overlap).sum(1).tolist() == [1, 3, 3, 3, 2]
    np.testing.assert_allclose(branches.final_overlap[1:, 0], [0.0, *found.informed_overlap[2:]], atol=1e-12)
    assert np.all(found.optimal_overlap[2:] > 0.37)  # it appears at once
    assert found.final_overlap.tolist()[:4] == [0, 0, 0, 0]


def test_no_learner_points_closer_to_the_signal_than_the_posterior_mean():
    noises = np.linspace(0.1, 0.6, 6)
    both = {
        l: sv.SpikedMatrixTensor(learner=l, matrix_noise=noises, initial_overlap=1.0).theory()
        for l in ("bayes", "likelihood")
    }
    cosine = np.sqrt(both["bayes"].final_overlap)  # |x|²/N = m
    assert np.all(both["likelihood"].final_overlap < cosine)
    np.testing.assert_allclose(both["likelihood"].optimal_overlap, both["bayes"].final_overlap, atol=1e-12)


@pytest.mark.parametrize("learner", ["bayes", "likelihood"])
def test_message_passing_on_dense_tensors_follows_state_evolution_iteration_by_iteration(learner):
    model, size, lanes = (
        sv.SpikedMatrixTensor(learner=learner, matrix_noise=0.25, initial_overlap=0.5, iterations=6),
        80,
        32,
    )
    keys = jax.random.split(jax.random.key(7), lanes)
    out, theory = simulate_batch(model, {}, keys, size), model.theory()
    for name in ("overlap", "mse", "energy"):
        mean, error = out[name].mean(axis=0), out[name].std(axis=0, ddof=1) / np.sqrt(lanes)
        assert np.all(np.abs(mean - theory[name]) < 4 * error + 3 / size * np.abs(theory[name]).max()), name
        assert error.max() < 0.05 * np.abs(theory[name]).max()


def test_the_energy_of_the_data_has_the_covariance_that_defines_the_model():
    """At a start without overlap the first energy is pure noise: variance Q(1)/N for an estimate on the sphere."""
    size, lanes = 20, 600
    model = sv.SpikedMatrixTensor(
        learner="likelihood", matrix_noise=0.5, tensor_noise=0.4, initial_overlap=0.0, iterations=1
    )
    out = simulate_batch(model, {}, jax.random.split(jax.random.key(1), lanes), size)
    expected = (1 / (2 * 0.5) + 1 / (3 * 0.4)) / size
    np.testing.assert_allclose(np.var(out["energy"][:, 0]), expected, rtol=5 * np.sqrt(2 / lanes))


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"matrix_noise = 0 is outside its range \[0.001, 1e\+06\]"):
        sv.SpikedMatrixTensor(matrix_noise=0.0)
    with pytest.raises(sv.InvalidValue, match=r"order = 2 is not a whole number in \[3, 12\]"):
        sv.SpikedMatrixTensor(order=2)
    with pytest.raises(sv.InvalidValue, match="size = 200 exceeds 128"):
        sv.SpikedMatrixTensor(order=4).simulate(seed=0, size=200)
