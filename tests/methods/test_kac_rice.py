"""Counts of minima in Gaussian landscapes: known complexities, exact finite cases, the ground state by another theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq, minimize

from solvable.methods.random_matrices.kac_rice import complexity, log_determinant, marginal_energy, outlier_cost


def nothing(q):
    return 0 * q


def pure(order):
    return lambda q: q**order / 2


def mixture(order, matrix, tensor):
    return lambda q: matrix * q**2 / 2 + tensor * q**order / order


@pytest.mark.parametrize("order", [3, 4, 7])
def test_pure_landscapes_have_their_known_complexities_of_all_critical_points_and_of_threshold_minima(order):
    every = complexity(pure(order), jnp.asarray(0.0), of="critical points", signal=nothing)
    np.testing.assert_allclose(every.complexity, 0.5 * np.log(order - 1), atol=1e-14)
    threshold = -np.sqrt(2 * (order - 1) / order)
    np.testing.assert_allclose(marginal_energy(pure(order)), threshold, atol=1e-14)
    minima = complexity(pure(order), jnp.asarray(0.0), signal=nothing, energy=jnp.asarray(threshold))
    np.testing.assert_allclose(minima.complexity, 0.5 * (np.log(order - 1) - 2 * (order - 2) / order), atol=1e-12)
    np.testing.assert_allclose(minima.lowest, 0.0, atol=1e-7)
    # at all energies together minima are most numerous at the threshold, and above it there are none
    np.testing.assert_allclose(complexity(pure(order), jnp.asarray(0.0), signal=nothing).complexity, minima.complexity)
    above = complexity(pure(order), jnp.asarray(0.0), signal=nothing, energy=jnp.asarray(threshold + 0.01))
    assert above.complexity == -np.inf


@pytest.mark.parametrize("order", [3, 4])
def test_the_lowest_minima_of_a_pure_landscape_are_the_ground_state_of_one_step_of_replica_symmetry_breaking(order):
    """e = −½ min over χ, μ of χQ′(1) + μQ(1) + ln(1 + μ/χ)/μ: independent of the Kac–Rice formula."""

    count = jax.jit(lambda e: complexity(pure(order), jnp.asarray(0.0), signal=nothing, energy=e).complexity)

    def minima(e):
        return float(count(e))

    def bracket(log):
        chi, mu = np.exp(log)
        return chi * order / 2 + mu / 2 + np.log1p(mu / chi) / mu

    found = minimize(bracket, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14})
    ground = brentq(minima, float(marginal_energy(pure(order))) - 0.2, float(marginal_energy(pure(order))), xtol=1e-13)
    np.testing.assert_allclose(ground, -found.fun / 2, atol=1e-9)
    if order == 3:  # −1.657 with covariance q³
        np.testing.assert_allclose(np.sqrt(2) * ground, -1.657, atol=1e-3)


def test_on_a_circle_the_gradient_and_hessian_of_the_count_give_the_exact_number_of_critical_points():
    """N = 2: the variances that the formula uses predict 2√((a + 3b)/a) = 2√(3p−2) zeros of the slope; here counted."""
    order, draws, rng = 3, 2000, np.random.default_rng(0)
    number = []
    for _ in range(draws):
        g = rng.normal(size=(2, 2, 2))
        # a cubic form on the circle is a sum of waves of frequencies 1 and 3
        angle = 2 * np.pi * np.arange(8) / 8
        u = np.stack([np.cos(angle), np.sin(angle)])
        waves = np.fft.fft(np.einsum("ijk,ia,ja,ka->a", g, u, u, u)) / 8
        slope = np.zeros(7, complex)  # of Σ f_k z^k, times z³: powers 0 to 6
        for k in (-3, -1, 1, 3):
            slope[k + 3] = 1j * k * waves[k % 8]
        roots = np.roots(slope[::-1])
        number.append(np.sum(np.abs(np.abs(roots) - 1) < 1e-6))
    slope_, bend = (float(f(pure(order))(1.0)) for f in (jax.grad, lambda q: jax.grad(jax.grad(q))))
    expected = 2 * np.sqrt((slope_ + 3 * bend) / slope_)
    np.testing.assert_allclose(expected, 2 * np.sqrt(3 * order - 2))
    assert abs(np.mean(number) - expected) < 4 * np.std(number) / np.sqrt(draws)


def test_the_elementary_forms_are_the_integrals_that_define_them():
    density = lambda x: np.sqrt(4 - x * x) / (2 * np.pi)  # noqa: E731
    for z in (2.0, 2.3, 5.0):
        value = quad(lambda x, z=z: density(x) * np.log(abs(z - x)), -2, 2, limit=200)[0]
        np.testing.assert_allclose(log_determinant(jnp.asarray(z)), value, atol=1e-9)
        np.testing.assert_allclose(log_determinant(jnp.asarray(-z)), value, atol=1e-9)
    for theta, zeta in ((1.5, 1.0), (3.0, 1.7), (1.2, 1.1)):
        t, far = zeta + 1 / zeta, theta + 1 / theta
        value = 0.25 * quad(lambda u: np.sqrt(u * u - 4), far, t)[0] - theta / 2 * (t - far) + (t**2 - far**2) / 8
        np.testing.assert_allclose(outlier_cost(jnp.asarray(theta), jnp.asarray(zeta)), value, atol=1e-10)
    assert outlier_cost(jnp.asarray(1.5), jnp.asarray(1.6)) == 0


def test_an_outlier_is_held_back_at_the_predicted_rate():
    """P(largest eigenvalue of GOE + θvvᵀ ≤ ζ + 1/ζ) ~ e^{−NL} up to a power of N between −½ and 0, by tridiagonal matrices."""
    theta, zeta, draws, rng = 1.8, 1.2, 40000, np.random.default_rng(1)
    level = zeta + 1 / zeta

    def share(size):
        # Dumitriu and Edelman: the spike enters the first corner
        diagonal = rng.normal(size=(draws, size)) * np.sqrt(2 / size)
        diagonal[:, 0] += theta
        beside = rng.chisquare(np.arange(size - 1, 0, -1), size=(draws, size - 1)) / size
        pivot, below = level - diagonal[:, 0], np.ones(draws, bool)
        for i in range(1, size):  # Sturm: level − matrix is positive where all pivots are
            below &= pivot > 0
            pivot = level - diagonal[:, i] - beside[:, i - 1] / np.where(pivot > 0, pivot, 1.0)
        return np.mean(below & (pivot > 0))

    few, many = 20, 60
    steepest = np.log(share(few) / share(many)) / (many - few)
    power = 0.5 * np.log(many / few) / (many - few)
    assert steepest - power < outlier_cost(jnp.asarray(theta), jnp.asarray(zeta)) < steepest


@pytest.mark.parametrize("overlap", [-0.3, 0.0, 0.1, 0.6])
@pytest.mark.parametrize("of", ["minima", "critical points"])
def test_a_count_at_all_energies_is_that_at_the_most_frequent_one_and_no_pressure_does_better(overlap, of):
    q, m = mixture(3, 1 / 0.45, 1.0), jnp.asarray(overlap)
    both = complexity(q, m, of=of)
    at = jax.jit(jax.vmap(lambda e: complexity(q, m, of=of, energy=e).complexity))
    energies = both.energy + jnp.linspace(-0.2, 0.2, 401)
    np.testing.assert_allclose(at(energies)[200], both.complexity, atol=1e-12)
    assert jnp.argmax(at(energies)) == 200
    # the maximum over y that has a closed form, by brute force
    a, b = 1 / 0.45 + 1, 1 / 0.45 + 2
    pull, theta = overlap / 0.45 + overlap**2, (1 / 0.45 + 2 * overlap) * (1 - overlap**2) / np.sqrt(b)
    y = np.linspace(2 * np.sqrt(b) if of == "minima" else -12.0, 12.0, 200001)
    z = jnp.asarray(y / np.sqrt(b))
    gain = log_determinant(z) - (y - overlap * pull) ** 2 / (2 * (a + b))
    if of == "minima":
        gain -= outlier_cost(jnp.asarray(theta), 0.5 * (z + jnp.sqrt(jnp.maximum(z**2 - 4, 0))))
    base = 0.5 + 0.5 * np.log((1 - overlap**2) * b / a) - pull**2 * (1 - overlap**2) / (2 * a)
    np.testing.assert_allclose(both.complexity, base + jnp.max(gain), atol=1e-8)
