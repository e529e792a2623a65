"""Sample covariances of any population: dense matrices, closed forms, second methods, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.random_matrices.sample_covariance import (
    Population,
    around,
    log_determinant,
    marchenko_pastur,
    mass_at_zero,
    outlier,
    resolvent,
    spectral_density,
    spectral_distribution,
    support,
    wishart_log_determinant,
)
from solvable.methods.random_matrices.spiked import Bulk, isolated_direction

TWO = Population.of_eigenvalues(jnp.array([0.5, 4.0]), jnp.array([0.75, 0.25]))
resolvent_of = jax.jit(resolvent)
log_determinant_of = jax.jit(log_determinant)


def number(x):
    return jnp.asarray(x, jnp.float64)


def drawn(values, rows, seed=0):
    x = np.random.default_rng(seed).normal(size=(rows, len(values))) * np.sqrt(values)
    return x.T @ x / rows


@pytest.fixture(scope="module")
def dense():
    """Eigen-decompositions of four matrices S for each ratio, d = 400: eigenvalues, and Σ along their eigenvectors."""
    values, found = np.repeat([0.5, 4.0], [300, 100]), {}
    for q in (0.5, 2.0):
        each = [np.linalg.eigh(drawn(values, int(400 * q), seed)) for seed in range(4)]
        found[q] = np.stack([np.maximum(e, 0.0) for e, _ in each]), np.stack([values @ v**2 for _, v in each])
    return found


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_traces_and_determinant_of_large_matrices(dense, q):
    e, signal = dense[q]
    found = resolvent_of(TWO, number(q), number(0.2), number(400.0))
    np.testing.assert_allclose(found.trace, np.mean(1 / (e + 0.2)), rtol=3e-3)
    np.testing.assert_allclose(found.signal, np.mean(signal / (e + 0.2)), rtol=4e-3)
    np.testing.assert_allclose(found.square, np.mean((e + 0.2) ** -2), rtol=6e-3)
    np.testing.assert_allclose(found.signal_square, np.mean(signal * (e + 0.2) ** -2), rtol=6e-3)
    np.testing.assert_allclose(log_determinant_of(TWO, number(q), number(0.2)), np.mean(np.log(e + 0.2)), atol=3e-3)


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_functions_of_large_matrices_by_a_contour(dense, q):
    e, signal = dense[q]
    contour = around(TWO, number(q), number(0.1))
    assert bool(contour.converged)
    np.testing.assert_allclose(contour.mean(jnp.exp(-2 * contour.points)), np.mean(np.exp(-2 * e)), rtol=3e-3)
    h = contour.points**2 * jnp.exp(-contour.points)
    np.testing.assert_allclose(contour.mean(h, TWO.eigenvalues), np.mean(signal * e**2 * np.exp(-e)), rtol=5e-3)


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_distribution_and_edges_of_large_matrices(dense, q):
    e, _ = dense[q]
    ends = support(TWO, number(q))
    assert abs(np.mean([x[x > 1e-9][0] for x in e]) - ends.low) < 0.02
    # the largest eigenvalue lies below the edge by about n^(−2/3) of it (Tracy and Widom)
    assert -3 * (400 * q) ** (-2 / 3) < e[:, -1].mean() / ends.high - 1 < 0
    points = np.array([0.2, 1.0, 3.0, 6.0])
    below = spectral_distribution(TWO, number(q), jnp.asarray(points))
    np.testing.assert_allclose(below, [(e < x).mean() for x in points], atol=4e-3)
    np.testing.assert_allclose(mass_at_zero(TWO, number(q)), (e < 1e-9).mean(), atol=1e-12)


def test_white_data_have_the_closed_forms_of_marchenko_and_pastur():
    q, white = number(0.4), Population.white()
    x = jnp.linspace(0.5, 6.0, 7)
    np.testing.assert_allclose(spectral_density(white, q, x), marchenko_pastur(q, x), atol=1e-9)
    ends = support(white, q)
    np.testing.assert_allclose([ends.low, ends.high], [(1 - 0.4**-0.5) ** 2, (1 + 0.4**-0.5) ** 2], rtol=1e-13)
    grid = np.linspace(float(ends.low), float(ends.high), 200_001)
    np.testing.assert_allclose(np.trapezoid(marchenko_pastur(q, jnp.asarray(grid)), grid), 0.4, atol=1e-6)
    # the Stieltjes transform at D = 0.3 as the root of a quadratic equation
    D, gamma = 0.3, 1 / 0.4
    exact = (-(1 - gamma + D) + np.sqrt((1 - gamma + D) ** 2 + 4 * gamma * D)) / (2 * gamma * D)
    np.testing.assert_allclose(resolvent_of(white, q, number(D), number(jnp.inf)).trace, exact, rtol=1e-13)


def test_gaps_open_with_samples_and_hold_no_eigenvalues():
    pair = Population.of_eigenvalues(jnp.array([1.0, 1.0, 8.0]))
    found = support(pair, number(10.0))
    assert found.is_open.tolist() == [False, True]  # equal eigenvalues enclose nothing
    e = np.linalg.eigvalsh(drawn(np.repeat([1.0, 8.0], [200, 100]), 3000))
    inside = (e > found.gap_low[1] + 0.1) & (e < found.gap_high[1] - 0.1)
    assert found.gap_high[1] - found.gap_low[1] > 2
    assert not inside.any()
    assert not support(pair, number(0.5)).is_open.any()


def test_outliers_agree_with_the_general_method_and_with_a_large_matrix():
    q = number(2.0)
    bulk = Bulk(TWO.eigenvalues, jnp.zeros(2), TWO.weights)
    found, general = outlier(TWO, q, number(12.0)), isolated_direction(bulk, q, number(12.0), number(0.0))
    np.testing.assert_allclose([found.eigenvalue, found.overlap], [general.outlier, general.overlap], rtol=1e-10)
    np.testing.assert_allclose(support(TWO, q).high, general.edge, rtol=1e-10)
    stuck = outlier(TWO, q, number(4.5))
    assert not bool(stuck.detached)
    np.testing.assert_allclose([stuck.eigenvalue, stuck.overlap], [general.edge, 0.0], rtol=1e-10)
    values = np.append(np.repeat([0.5, 4.0], [300, 100]), 12.0)
    tops = [np.linalg.eigh(drawn(values, 800, seed)) for seed in range(6)]
    np.testing.assert_allclose(np.mean([e[-1] for e, _ in tops]), found.eigenvalue, rtol=0.03)
    np.testing.assert_allclose(np.mean([v[-1, -1] ** 2 for _, v in tops]), found.overlap, atol=0.03)


def test_an_eigenvalue_below_the_population_leaves_the_spectrum_downwards():
    low = outlier(Population.white(), number(10.0), number(0.2))
    assert bool(low.detached)
    assert low.eigenvalue < support(Population.white(), number(10.0)).low
    values = np.append(np.ones(300), 0.2)
    e, v = np.linalg.eigh(drawn(values, 3000))
    np.testing.assert_allclose([e[0], v[-1, 0] ** 2], [low.eigenvalue, low.overlap], atol=0.03)


@pytest.mark.parametrize(("q", "D"), [(0.5, 0.1), (1.0, 0.2), (2.0, 0.05)])
def test_terms_of_order_one_over_d_leave_an_error_of_the_next_order(q, D):
    size, draws = 16, 20_000
    population = Population.power_law(number(1.0), size)
    values, rows = np.asarray(population.eigenvalues), int(q * size)
    x = np.random.default_rng(3).normal(size=(draws, rows, size)) * np.sqrt(values)
    e, vectors = np.linalg.eigh(x.transpose(0, 2, 1) @ x / rows)
    r = 1 / (e + D)
    signal = np.einsum("mij,i->mj", vectors**2, values)
    each = np.stack([r.mean(1), (signal * r).mean(1), (r**2).mean(1), (signal * r**2).mean(1), -np.log(r).mean(1)])
    mean, error = each.mean(1), each.std(1) / np.sqrt(draws)

    def theory(size):
        found = resolvent_of(population, number(q), number(D), number(size))
        volume = log_determinant_of(population, number(q), number(D), number(size))
        return np.array([found.trace, found.signal, found.square, found.signal_square, volume])

    limit, finite = theory(np.inf), theory(size)
    assert np.all(np.abs(mean - limit) > 5 * error)
    assert np.all(np.abs(mean - finite) < 4 * error + 0.15 * np.abs(finite - limit))


def test_the_determinant_generates_the_traces_also_at_finite_size():
    for size in (np.inf, 100.0):
        slope = jax.grad(lambda D, size=size: log_determinant(TWO, number(1.5), D, size))(number(0.3))
        again = jax.grad(lambda D, size=size: resolvent(TWO, number(1.5), D, size).trace)(number(0.3))
        found = resolvent_of(TWO, number(1.5), number(0.3), number(size))
        np.testing.assert_allclose([slope, -again], [found.trace, found.square], rtol=1e-10)


def test_contours_agree_with_resolvents_and_determinants_and_can_be_mapped():
    population, ridge = Population.power_law(number(1.0), 50), 0.05
    ratios = jnp.array([0.3, 1.0, 4.0])

    @jax.jit
    @jax.vmap
    def both(q):
        D = number(ridge)
        contour, found = around(population, q, D, size=200.0), resolvent(population, q, D, 200.0)
        h = 1 / (contour.points + ridge)
        values = population.eigenvalues
        means = [contour.mean(h), contour.mean(h, values), contour.mean(h**2), contour.mean(h**2, values)]
        logs = contour.mean(jnp.log(contour.points + ridge)), log_determinant(population, q, D, 200.0)
        exact = [found.trace, found.signal, found.square, found.signal_square]
        return jnp.stack([*means, logs[0]]), jnp.stack([*exact, logs[1]])

    ours, exact = both(ratios)
    np.testing.assert_allclose(ours, exact, rtol=1e-9)
    clear = around(population, number(3.0), number(0.0))  # between zero and the spectrum
    volume = log_determinant_of(population, number(3.0), number(0.0))
    np.testing.assert_allclose(clear.mean(jnp.log(clear.points)), volume, rtol=1e-9)


def test_edges_have_derivatives():
    def high(q):
        return support(TWO, q).high

    slope = jax.grad(high)(number(2.0))
    np.testing.assert_allclose(slope, (high(number(2.001)) - high(number(1.999))) / 0.002, rtol=1e-5)


def test_determinant_of_wishart_matrices_and_what_is_singular():
    np.testing.assert_allclose(wishart_log_determinant(number(1e5), number(5e4)), np.log(2) - 1, atol=2e-5)
    assert wishart_log_determinant(number(9.0), number(10.0)) == -jnp.inf
    assert log_determinant_of(TWO, number(0.5), number(0.0)) == -jnp.inf
    flat = Population.of_matrix(jnp.diag(jnp.array([0.0, 0.0, 1.0, 2.0])))
    np.testing.assert_allclose(mass_at_zero(flat, number(3.0)), 0.5)
    assert not bool(resolvent_of(Population.white(), number(1.0), number(1e-6), number(10.0)).converged)
