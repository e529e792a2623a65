"""Claims about the random-matrix equivalents: closed forms, brute force, gradients, and how fine the numerics are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from solvable.methods.random_matrices.equivalents import (
    Coordinates,
    atoms,
    chain_modes,
    companion,
    density,
    diagonal_traces,
    distribution,
    effective_ridge,
    masked_distribution,
    masked_errors,
    masses,
    ridgeless_factor,
    tridiagonal_traces,
)
from solvable.methods.random_matrices.spiked import Bulk, delocalised_spike, isolated_direction

ONE, ZERO = jnp.ones(1), jnp.zeros(1)
UNEVEN = jnp.array([4.0, 0.5]), jnp.array([0.25, 0.75])


ridge_of = jax.jit(effective_ridge)
below_of = jax.jit(lambda w, b, p, n, x: distribution(diagonal_traces(w, b, p), n, x))
density_of = jax.jit(lambda w, b, p, n, x: density(diagonal_traces(w, b, p), n, x))


def number(x):
    return jnp.asarray(x, jnp.float64)


def wave_covariance(d):
    k = np.arange(d)
    deviation = np.exp(np.cos(k) / 2)
    return deviation[:, None] * deviation[None, :] * 0.8 ** np.abs(k[:, None] - k[None, :])


@jax.jit
def masked_spike(variances, weights, samples, penalty, strength):
    ridge = effective_ridge(variances, samples, penalty, weights)
    scale = 1.0 / (variances + ridge.kappa)
    bulk = Bulk(variances * scale, penalty * scale, weights)
    spike = delocalised_spike(bulk, samples, strength, weights, scale)
    to_a = lambda z: 1.0 - ridge.slack / z  # noqa: E731
    return jnp.stack([spike.threshold, to_a(spike.edge), to_a(spike.outlier), spike.right, spike.left, spike.residual])


@jax.jit
def pca_spike(variances, weights, samples, strength):
    bulk = Bulk(variances, jnp.zeros_like(variances), weights)
    spike = delocalised_spike(bulk, samples, strength, weights, jnp.ones_like(variances))
    return jnp.stack([spike.threshold, spike.edge, spike.outlier, spike.right, spike.left])


def masked_below(samples, penalty, points, step=0.5):
    """Padded to one shape, so that the tests compile it once."""
    padded = jnp.concatenate([points, jnp.zeros(20 - points.shape[0])])
    return _masked_below(samples, penalty, padded, step)[: points.shape[0]]


@partial(jax.jit, static_argnames="step")
def _masked_below(samples, penalty, points, step):
    values, weights = UNEVEN
    ridge = effective_ridge(values, samples, penalty, weights)
    scale = 1.0 / (values + ridge.kappa)
    return masked_distribution(
        diagonal_traces(values * scale, ridge.kappa * scale, weights), samples, ridge.slack, points, step=step
    )


@jax.jit
def ridge_and_errors(covariance, samples, penalty):
    coordinates = Coordinates.of_matrix(covariance)
    ridge = effective_ridge(coordinates.eigenvalues, samples, penalty)
    return ridge.kappa, masked_errors(coordinates, samples, ridge)


@jax.jit
def localised(samples, penalty, strength, support):
    ridge = effective_ridge(ONE, samples, penalty)
    bulk_scale = 1.0 / (1.0 + ridge.kappa)
    scale = bulk_scale * (1.0 - strength / support / (1.0 + strength + ridge.kappa))
    bulk = Bulk(bulk_scale * ONE, penalty * bulk_scale * ONE, ONE)
    found = isolated_direction(bulk, samples, (1.0 + strength) * scale, penalty * scale)
    q = found.overlap
    return 1.0 - ridge.slack / found.outlier, (q / scale) / (q / scale + (1.0 - q) / bulk_scale)


# --- effective ridge and errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "penalty"), [(0.01, 0.0), (0.5, 0.0), (1.0, 1e-8), (3.0, 0.2), (0.3, 1e4), (50.0, 1e-9)]
)
def test_white_effective_ridge_is_the_root_of_a_quadratic(samples, penalty):
    # κ² + (1 − λ − d/n)κ − λ = 0
    b = 1.0 - penalty - 1.0 / samples
    root = (-b + np.sqrt(b * b + 4 * penalty)) / 2 if b < 0 else 2 * penalty / (b + np.sqrt(b * b + 4 * penalty))
    found = ridge_of(ONE, number(samples), number(penalty))
    assert found.converged
    np.testing.assert_allclose(found.kappa, root, rtol=1e-9)


def test_ridgeless_effective_ridge_vanishes_from_the_interpolation_point_on():
    values = jnp.asarray(np.linalg.eigvalsh(wave_covariance(50)))
    for samples in (1.0, 1.5, 20.0):
        found = ridge_of(values, number(samples), number(0.0))
        assert found.kappa == 0.0
        np.testing.assert_allclose(found.slack, 1 - 1 / samples, atol=1e-14)
    assert ridge_of(values, number(0.98), number(0.0)).kappa > 0


def test_weights_stand_for_repeated_eigenvalues():
    repeated = jnp.concatenate([jnp.full(5, 4.0), jnp.full(15, 0.5)])
    for samples, penalty in ((0.4, 0.0), (2.0, 0.3)):
        a = ridge_of(repeated, number(samples), number(penalty)).kappa
        b = ridge_of(*UNEVEN[:1], number(samples), number(penalty), UNEVEN[1]).kappa
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("n", "penalty", "kappa", "test", "train"),
    [
        (100, 0.0, 0.3200833588179336, None, 0.0),
        (100, 0.1, None, 0.6413833443222597, 0.021804587839946914),
        (180, 0.1, None, 0.5090041113878087, None),
        (260, 0.0, 0.0, 1.2124175059725988, None),
        (400, 0.0, 0.0, None, 0.1398943276122229),
        (400, 1.0, 1.1694093514494062, None, 0.3057722486160566),
    ],
)
def test_errors_of_masked_regression_have_their_reference_values(n, penalty, kappa, test, train):
    found_kappa, errors = ridge_and_errors(jnp.asarray(wave_covariance(200)), number(n / 200), number(penalty))
    for found, expected in ((found_kappa, kappa), (errors.test.mean(), test), (errors.train.mean(), train)):
        if expected is not None:
            np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("n", "penalty", "test"), [(150, 0.38, 0.3801), (190, 0.3, 0.3528), (200, 0.3, 0.3473), (210, 0.3, 0.3424)]
)
def test_errors_of_a_chain_of_two_hundred_have_their_reference_values(n, penalty, test):
    k = np.arange(200)
    covariance = jnp.asarray(0.8 ** np.abs(k[:, None] - k[None, :]))
    errors = ridge_and_errors(covariance, number(n / 200), number(penalty))[1]
    np.testing.assert_allclose(errors.test.mean(), test, atol=6e-5)


def test_ridgeless_errors_are_conditional_variances_times_the_aspect_factor():
    covariance = wave_covariance(40)
    _, errors = ridge_and_errors(jnp.asarray(covariance), number(2.5), number(0.0))
    conditional = 1 / np.diag(np.linalg.inv(covariance))
    np.testing.assert_allclose(errors.test, conditional / 0.6, rtol=1e-10)
    np.testing.assert_allclose(errors.train, conditional * 0.6, rtol=1e-10)


def test_ridgeless_finite_size_factor_is_the_exact_gaussian_average():
    d, n, draws = 4, 9, 20000
    x = np.random.default_rng(0).normal(size=(draws, n, d))
    inverse = np.linalg.inv(x.transpose(0, 2, 1) @ x)
    a = np.eye(d)[0] - inverse[:, 0, :] / inverse[:, 0, :1]
    error = 1 + (a**2).sum(1)  # Σ = I: one for the masked coordinate, |a|² for the predictor
    assert abs(error.mean() - ridgeless_factor(n, d)) < 4 * error.std() / np.sqrt(draws)


def test_effective_ridge_gradient_matches_central_differences_and_its_own_ridgeless_limit():
    values = jnp.asarray(np.linalg.eigvalsh(wave_covariance(50)))

    @jax.jit
    def kappa(x):
        return effective_ridge(values * x[2], x[0], x[1]).kappa

    gradient = jax.jit(jax.grad(kappa))
    for point in ([0.5, 0.3, 1.0], [2.0, 0.05, 1.3], [0.7, 0.0, 1.0]):
        x = jnp.array(point)
        slope = gradient(x)
        for i in (0, 2) if point[1] == 0 else (0, 1, 2):
            e = 1e-5 * jnp.eye(3)[i]
            np.testing.assert_allclose(slope[i], (kappa(x + e) - kappa(x - e)) / 2e-5, rtol=1e-6)
    np.testing.assert_allclose(gradient(jnp.array([2.0, 0.0, 1.0]))[1], 2.0, rtol=1e-12)  # κ ≈ λ/(1 − d/n)


@pytest.mark.parametrize(("rho", "accuracy"), [(0.0, 1e-12), (0.8, 1e-12), (-0.95, 1e-12), (0.99, 1e-6)])
def test_chain_modes_integrate_the_spectrum_of_a_long_chain(rho, accuracy):
    cosine, weights = chain_modes(number(rho), 64)
    spectrum = (1 - rho**2) / (1 + rho**2 - 2 * rho * cosine)
    np.testing.assert_allclose(weights @ spectrum, 1.0, rtol=accuracy)
    np.testing.assert_allclose(weights @ (1 / spectrum), (1 + rho**2) / (1 - rho**2), rtol=accuracy)


def test_effective_ridge_batches_over_controls():
    grid = jnp.array([0.5, 1.0, 2.0])
    batched = jax.jit(jax.vmap(lambda n: effective_ridge(UNEVEN[0], n, number(0.1), UNEVEN[1]).kappa))(grid)
    single = [ridge_of(UNEVEN[0], n, number(0.1), UNEVEN[1]).kappa for n in grid]
    np.testing.assert_allclose(batched, single, rtol=1e-14)


# --- spectra ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [4.0, 0.5])
def test_white_spectrum_is_marchenko_pastur_with_its_atom(samples):
    ratio = 1 / samples
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2

    def law(x):
        return np.sqrt(max((high - x) * (x - low), 0)) / (2 * np.pi * ratio * x)

    points = np.array([low / 2, 0.9 * low + 0.1 * high, 1.0, 0.1 * low + 0.9 * high, high + 0.5])
    found = density_of(ONE, ZERO, ONE, number(samples), jnp.asarray(points))
    np.testing.assert_allclose(found, [law(x) for x in points], atol=1e-7)
    atom = max(0.0, 1 - samples)
    exact = [atom + quad(law, low, np.clip(x, low, high), epsabs=1e-12, limit=400)[0] for x in points]
    np.testing.assert_allclose(below_of(ONE, ZERO, ONE, number(samples), jnp.asarray(points)), exact, atol=2e-8)
    np.testing.assert_allclose(atoms(ZERO, ONE, number(samples)), [atom])


def test_masked_spectrum_of_white_data_without_penalty_ends_where_the_closed_form_says():
    root = np.sqrt(0.5)
    ends = np.array([-2 * root / (1 - root), 2 * root / (1 + root)])
    below = masked_below(number(2.0), number(0.0), jnp.asarray([ends[0] - 1e-6, 0.0, ends[1] + 1e-6]))
    np.testing.assert_allclose(below[jnp.array([0, 2])], [0.0, 1.0], atol=2e-8)
    assert 0.1 < below[1] < 0.9


def test_atoms_of_an_underdetermined_masked_spectrum_keep_their_mass():
    values, weights = UNEVEN
    samples = number(2 / 3)
    kappa = ridge_of(values, samples, number(0.5), weights).kappa
    place = -0.5 / kappa  # −v/κ
    below = masked_below(samples, number(0.5), jnp.stack([place - 1e-4, place + 1e-4]))
    np.testing.assert_allclose(below[1] - below[0], 0.75 - 2 / 3, atol=1e-6)
    np.testing.assert_allclose(place, -0.396, atol=5e-4)
    np.testing.assert_allclose(atoms(kappa / (values + kappa), weights, samples), [0.0, 0.75 - 2 / 3], atol=1e-12)


def test_ridgeless_underdetermined_spectrum_has_exactly_the_rank_at_one():
    below = masked_below(number(0.4), number(0.0), jnp.array([0.9, 0.999]))
    np.testing.assert_allclose(below, 0.6, atol=1e-7)


def test_masses_sum_to_one_and_are_not_negative():
    edges = jnp.linspace(-3.0, 0.9, 20)
    for samples, penalty in ((2.0, 0.3), (2 / 3, 0.5), (0.4, 0.0), (1.0, 1e-3)):
        found = masses(masked_below(number(samples), number(penalty), edges))
        assert abs(found.sum() - 1) < 1e-6
        assert found.min() >= 0


def test_a_contour_twice_as_fine_gives_the_same_result():
    points = jnp.linspace(-3.0, 0.9, 20)
    for samples, penalty in ((number(2.0), number(0.3)), (number(2 / 3), number(0.5))):
        coarse, fine = (masked_below(samples, penalty, points, step=step) for step in (0.5, 0.25))
        np.testing.assert_allclose(coarse, fine, atol=1e-7)


def test_spectrum_matches_the_eigenvalues_of_one_large_matrix():
    d, samples, penalty = 800, 2 / 3, 0.5
    n = round(samples * d)
    rng = np.random.default_rng(1)
    values, weights = UNEVEN
    kappa = ridge_of(values, number(samples), number(penalty), weights).kappa
    scale = 1.0 / (values + kappa)
    v = np.repeat(np.asarray(values), [d // 4, d - d // 4])
    delta = np.repeat(np.asarray(scale), [d // 4, d - d // 4])
    x = rng.normal(size=(n, d)) * np.sqrt(v * delta)
    eigenvalues = np.linalg.eigvalsh(x.T @ x / n + penalty * np.diag(delta))
    points = jnp.asarray([0.15, 0.3, 0.6, 1.2, 2.0, 3.0])
    below = below_of(values * scale, penalty * scale, weights, number(samples), points)
    measured = (eigenvalues[None, :] < np.asarray(points)[:, None]).mean(1)
    np.testing.assert_allclose(below, measured, atol=4 / d)  # rigidity: eigenvalues fluctuate by O(log d/d)


def test_markov_chain_traces_equal_those_of_the_dense_inverse():
    d = 12
    rng = np.random.default_rng(0)
    covariance, delta, shift = wave_covariance(d), rng.uniform(0.5, 2, d), 0.7
    precision = np.linalg.inv(covariance)
    neighbour = np.concatenate([[0.0], np.diag(precision, 1)])
    traces = tridiagonal_traces(*(jnp.asarray(a) for a in (np.diag(precision), neighbour, delta)), number(shift))
    t, z = 1.3 - 0.2j, 0.8 + 0.3j
    tilde = np.sqrt(delta)[:, None] * covariance * np.sqrt(delta)[None, :]
    q = np.linalg.inv(t * tilde + np.diag(shift * delta - z))
    exact = [np.trace(tilde @ q) / d, np.trace(tilde @ q @ tilde @ q) / d, np.trace(q) / d]
    np.testing.assert_allclose([a[0] for a in traces(jnp.array([t]), jnp.array([z]))], exact, rtol=1e-12)


def test_distribution_gradient_matches_central_differences():
    points = jnp.array([-0.3, 0.2])

    def below(x):
        return masked_below(x[0], x[1], points)

    x = jnp.array([2.0, 0.3])
    slope = jax.jacfwd(below)(x)
    for i in range(2):
        e = 1e-4 * jnp.eye(2)[i]
        np.testing.assert_allclose(slope[:, i], (below(x + e) - below(x - e)) / 2e-4, rtol=1e-6)


def test_a_point_off_the_path_is_nan_and_flagged():
    leap = jnp.array([1e6j, 1.0 + 1e-9j])[:, None]  # straight to the real axis, with two Newton steps

    @jax.jit
    def follow(path):
        return companion(diagonal_traces(ONE, ZERO, ONE), number(2.0), path, jnp.ones(()), start=jnp.ones(()), newton=2)

    solved = follow(leap)
    assert not solved.converged[1, 0]
    assert jnp.isnan(solved.stieltjes[1, 0])


# --- spikes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "strength"), [(4.0, 1.0), (0.5, 3.0), (2.0, 0.75)])
def test_white_spike_has_the_closed_forms_of_baik_ben_arous_peche(samples, strength):
    ratio = 1 / samples
    threshold, edge, outlier, right, left = pca_spike(ONE, ONE, number(samples), number(strength))
    np.testing.assert_allclose(threshold, np.sqrt(ratio), rtol=1e-10)
    np.testing.assert_allclose(edge, (1 + np.sqrt(ratio)) ** 2, rtol=1e-12)
    np.testing.assert_allclose(outlier, (1 + strength) * (1 + ratio / strength), rtol=1e-12)
    np.testing.assert_allclose([right, left], (1 - ratio / strength**2) / (1 + ratio / strength), rtol=1e-9)


def test_below_threshold_the_outlier_is_the_edge_without_overlap():
    threshold, edge, outlier, right, left = pca_spike(*UNEVEN, number(2.0), number(3.0))
    assert threshold > 3.0
    assert outlier == edge
    assert right == left == 0.0


SPIKES = [  # uneven?, n/d, λ, θ, then θ_c, edge, outlier, right, left of masked regression and θ_c, overlap of PCA
    (
        False,
        2.0,
        0.0,
        1.2,
        None,
        0.8284271247461901,
        0.839572192513369,
        None,
        0.4607843137255414,
        None,
        0.46078431372549,
    ),
    (False, 2.0, 0.3, 1.5, 0.7071067935406994, None, 0.7366670358854123, None, 0.583333333333577, 0.7071067636, None),
    (False, 2 / 3, 0.5, 4.0, 1.2247448713896172, None, 0.8825728266055, 0.6590909090916965, None, 1.2247448750, None),
    (True, 2.0, 0.0, 1.2, 0.45254832872575923, 0.8284271247461901, None, 0.494040473324396, None, 3.0398205897, 0.0),
    (True, 2.0, 0.3, 1.5, None, 0.6821658343327379, None, 0.5306870813359384, 0.652096591436708, None, 0.0),
    (True, 2 / 3, 0.5, 4.0, None, 0.8435585771747129, 0.8785778018426169, None, 0.6835021052249673, None, 0.0),
]


@pytest.mark.parametrize("case", SPIKES)
def test_spikes_have_their_reference_values(case):
    uneven, samples, penalty, strength, *masked, pca_threshold, pca_overlap = case
    population = UNEVEN if uneven else (ONE, ONE)
    found = masked_spike(*population, number(samples), number(penalty), number(strength))
    assert found[-1] < 1e-10
    for value, expected in zip(found, masked, strict=False):
        if expected is not None:
            np.testing.assert_allclose(value, expected, atol=1e-6)
    pca = pca_spike(*population, number(samples), number(strength))
    for value, expected in ((pca[0], pca_threshold), (pca[3], pca_overlap)):
        if expected is not None:
            np.testing.assert_allclose(value, expected, atol=1e-6)


def test_masked_threshold_equals_pca_for_equal_variances_at_every_penalty():
    for penalty in (0.0, 0.3, 100.0):
        found = masked_spike(2.0 * ONE, ONE, number(2.0), number(penalty), number(3.0))
        np.testing.assert_allclose(found[0], 2.0 * np.sqrt(0.5), rtol=1e-9)


@pytest.mark.parametrize(
    ("samples", "penalty", "threshold"),
    [
        (2.0, 0.1, 0.525),
        (2.0, 1.0, 1.004),
        (2.0, 3.0, 1.418),
        (2.0, 100.0, 2.052),
        (2 / 3, 0.01, 1.108),
        (2 / 3, 100.0, 3.393),
    ],
)
def test_masked_threshold_for_uneven_variances_follows_the_table(samples, penalty, threshold):
    found = masked_spike(*UNEVEN, number(samples), number(penalty), number(1.0))
    np.testing.assert_allclose(found[0], threshold, atol=6e-4)


def test_ridgeless_masked_spike_is_whitened():
    ell = 1.2 * (0.25 / 4 + 0.75 / 0.5)  # ℓ = θ Σ u²/v, threshold √γ, outlier (1+ℓ)(1+γ/ℓ)
    threshold, _, outlier, *_ = masked_spike(*UNEVEN, number(2.0), number(0.0), number(1.2))
    np.testing.assert_allclose(threshold / 1.2 * ell, np.sqrt(0.5), rtol=1e-9)
    np.testing.assert_allclose(outlier, 1 - 0.5 / ((1 + ell) * (1 + 0.5 / ell)), rtol=1e-12)


def test_quadratic_forms_of_the_outlier_are_hellmann_feynman_derivatives():
    values, weights = UNEVEN
    samples, strength, scale = number(2.0), number(1.5), 1.0 / (values + 0.4)

    @jax.jit
    def slope(tilt):
        def found(eta):
            bulk = Bulk(values * scale, 0.3 * scale + eta * tilt, weights)
            return delocalised_spike(bulk, samples, strength, weights, scale).outlier

        return jax.grad(found)(number(0.0))

    np.testing.assert_allclose(slope(jnp.ones(2)), 1.0, rtol=1e-9)
    forms = [slope(scale**power) for power in (1, -1)]
    d = 800
    rng = np.random.default_rng(3)
    v, delta = (np.repeat(np.asarray(a), [d // 4, d - d // 4]) for a in (values, scale))
    x = (rng.normal(size=(2 * d, d)) * np.sqrt(v) + np.sqrt(1.5 / d) * rng.normal(size=(2 * d, 1))) * np.sqrt(delta)
    q = np.linalg.eigh(x.T @ x / (2 * d) + 0.3 * np.diag(delta))[1][:, -1]
    np.testing.assert_allclose(forms, [(q**2) @ delta, (q**2) @ (1 / delta)], rtol=0.1)


def test_spike_gradients_match_central_differences():
    def found(x):
        return masked_spike(*UNEVEN, x[0], x[1], x[2])[:5]

    x = jnp.array([2.0, 0.3, 1.5])
    slope = jax.jacfwd(found)(x)
    for i in range(3):
        e = 1e-4 * jnp.eye(3)[i]
        np.testing.assert_allclose(slope[:, i], (found(x + e) - found(x - e)) / 2e-4, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("support", "outlier", "right"), [(2, 0.7134, 0.462), (3, 0.7298, 0.589), (5, 0.7437, 0.6465), (20, None, 0.689)]
)
def test_localised_spikes_have_their_reference_values(support, outlier, right):
    found = localised(number(2.0), number(0.3), number(2.0), number(support))
    if outlier is not None:
        np.testing.assert_allclose(found[0], outlier, atol=2e-4)
    np.testing.assert_allclose(found[1], right, atol=4e-4)
