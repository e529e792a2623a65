"""A spiked cumulant: exact sums, series and drawn samples; thresholds and their limits; tests, search and learners."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import norm

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.cumulants.spiked_cumulant.norms import (
    critical_snr,
    latent_named,
    linear_regime,
    log_norm,
    low_degree_limit,
    low_degree_norm,
    pair_function,
)

TWO = latent_named("rademacher")


def realisations(model, size, seeds):
    return simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)


@pytest.mark.parametrize(
    ("name", "moments"), [("rademacher", None), ("uniform", None), ("moments", [1, 0, 1, 0.7, 2.5, 1])]
)
def test_mehlers_formula_is_the_hermite_series(name, moments):
    """Also across the ρ below which the series is taken."""
    order, snr = 60, 2.0
    latent, long = latent_named(name, moments), latent_named(name, moments, order)
    overlap = np.array([0.0, 0.01, 0.0749, 0.0751, 0.3, 0.8])
    rho, k = snr / (1 + snr) * overlap, np.arange(order + 1)
    series = (rho[:, None] ** k * long.hermite**2 / np.exp(gammaln(k + 1.0))).sum(axis=1)
    found = np.asarray([pair_function(latent, snr, x) for x in overlap])
    np.testing.assert_allclose(found - 1, series - 1, rtol=1e-9, atol=1e-15)


def test_the_uniform_pair_function_is_the_second_moment_of_its_density_however_strong_the_spike():
    for snr in (3.0, 1e4):
        r = snr / (1 + snr)
        edge, wide = np.sqrt(3 * r), np.sqrt(1 - r)
        density = lambda s: (norm.cdf((s + edge) / wide) - norm.cdf((s - edge) / wide)) / (2 * edge)  # noqa: B023, E731
        ends = [edge - 10 * wide, edge, edge + 10 * wide]
        exact = 2 * quad(lambda s: density(s) ** 2 / norm.pdf(s), 0, ends[-1], points=ends[:2], limit=200)[0]  # noqa: B023
        assert float(pair_function(latent_named("uniform"), snr, 1.0)) == pytest.approx(exact, rel=1e-9)


def test_the_exact_norm_is_the_sum_over_all_pairs_of_spikes():
    for latent in (TWO, latent_named("moments", [1.0, 0.0, 1.0, 0.6])):
        d, n, snr = 4, 3, 2.0
        spikes = np.array(list(itertools.product([-1, 1], repeat=d)))
        overlaps = (spikes @ spikes.T / d).ravel()
        k = np.arange(61)
        hermite = latent_named(latent.name, [1.0, 0.0, 1.0, 0.6], 60).hermite
        rho = snr / (1 + snr) * overlaps
        f = (rho[:, None] ** k * hermite**2 / np.exp(gammaln(k + 1.0))).sum(axis=1)
        assert log_norm(latent, snr, n, d) == pytest.approx(np.log(np.mean(f**n)), abs=1e-9)
    assert np.exp(log_norm(TWO, 2.0, 3, 4)) == pytest.approx(1.0415006375954117, abs=1e-9)
    assert log_norm(TWO, 10.0, 0, 50) == pytest.approx(0.0, abs=1e-12)


def test_exact_norms_at_growing_dimension_tend_to_the_linear_regime():
    """d = 1000: 0.62496, 1.27233, 1.94160 against 0.62426, 1.27164, 1.94091; the difference is log 2/d: ±u are equivalent."""
    theory = sv.SpikedCumulant(snr=[10.0, 20.0, 40.0], samples=2.0).theory(only=("log_norm",)).log_norm
    exact = np.array([log_norm(TWO, snr, 2000, 1000) / 1000 for snr in (10.0, 20.0, 40.0)])
    np.testing.assert_allclose(exact, [0.62496, 1.27233, 1.94160], atol=1e-5)
    np.testing.assert_allclose(exact - np.log(2) / 1000, theory, atol=1e-6)


def test_the_maximum_is_found_however_near_to_one_the_overlap_is():
    """u = artanh λ against a search with 60 digits' worth of logarithms of 1 - λ."""
    places = np.array([(10.0, 2.0), (5.0, 2.1), (1.4, 20.0), (60.0, 0.5)])
    every = jax.jit(jax.vmap(lambda b, g: linear_regime(TWO, b, g, 128)))(*jnp.asarray(places.T))
    for i, (snr, gamma) in enumerate(places):
        found = jax.tree.map(lambda v: v[i], every)  # noqa: B023
        missing = np.concatenate([np.geomspace(1e-40, 1e-3, 200_001), np.linspace(1e-3, 1, 100_001)])
        lam, r = 1 - missing, snr / (1 + snr)
        rho, gap = r * lam, (1 - r) * (1 + r) + r**2 * missing * (2 - missing)
        log_f = (
            rho / (1 + rho) - 0.5 * np.log(gap) + np.log1p(np.exp(-2 * rho**2 / gap - 2 * rho / (1 + rho))) - np.log(2)
        )
        entropy = (1 - missing / 2) * np.log(2 - missing) + missing / 2 * np.log(missing)
        assert float(found.rate) == pytest.approx(max(np.max(gamma * log_f - entropy), 0), abs=1e-7)
        assert float(found.critical) == pytest.approx(np.min(entropy[missing < 0.9] / log_f[missing < 0.9]), rel=1e-6)
        assert float(found.residual) < 1e-11


def test_the_transition_is_discontinuous_and_both_critical_lines_are_one():
    gamma = np.geomspace(0.2, 100, 25)
    beta = sv.SpikedCumulant(samples=gamma).theory().critical_snr
    there = sv.SpikedCumulant(snr=beta).theory()
    np.testing.assert_allclose(there.critical_samples, gamma, rtol=1e-9)
    assert np.all(np.asarray(there.jump) > 0.99)
    for side, overlap in ((-1e-6, 0.0), (1e-6, 1.0)):
        outcome = sv.SpikedCumulant(samples=gamma, snr=np.asarray(beta) * (1 + side)).theory()
        np.testing.assert_allclose(outcome.dominant_overlap, overlap, atol=0.01)


def test_a_latent_with_a_density_needs_a_least_number_of_samples_at_any_strength():
    """Uniform: f stays finite as β → ∞, so that γ_* does not fall below log 2/log f, and there is no β_* below that."""
    inside = quad(lambda s: np.sqrt(2 * np.pi) * np.exp(s**2 / 2) / 12, -np.sqrt(3), np.sqrt(3))[0]
    least = np.log(2) / np.log(inside)
    outcome = sv.SpikedCumulant(latent="uniform", samples=[0.99 * least, 1.02 * least], snr=1e6).theory()
    assert "critical_snr" not in outcome
    assert float(outcome.critical_samples[0]) == pytest.approx(least, rel=0.01)
    assert float(outcome.log_norm[0]) == 0 < float(outcome.log_norm[1])


def test_low_degree_norms_depend_on_n_over_d_squared_alone():
    limit = float(low_degree_limit(TWO, jnp.asarray(10 / 11), jnp.asarray(1.0), 4))
    seen = [float(low_degree_norm(TWO.hermite, 10.0, d**2, d, 4)) for d in (50, 100, 200)]
    np.testing.assert_allclose(seen, [1.3370, 1.3392, 1.3404], atol=6e-5)
    np.testing.assert_allclose(np.diff([*seen, limit])[1:] / np.diff([*seen, limit])[:-1], [0.5, 1.0], atol=0.03)
    for degree in (4, 8):
        assert float(low_degree_norm(TWO.hermite, 10.0, 1e5, 100, degree)) == pytest.approx(
            {4: 4.3923, 8: 70.056}[degree], abs=0.001
        )


def test_low_degree_norms_are_bounded_below_the_threshold_and_diverge_above_it():
    """n = d^θ, degree 16."""
    sizes = (50, 200, 800)
    below, above = ([float(low_degree_norm(TWO.hermite, 10.0, d**theta, d, 16)) for d in sizes] for theta in (1.8, 2.5))
    assert below[0] > below[1] > below[2] > 1
    assert above[1] > 10 * above[0]
    assert above[2] > 10 * above[1]


def test_the_recursion_is_the_power_of_the_series():
    a, n = np.zeros(13), 7
    a[::1] = (10 / 11) ** np.arange(13) * TWO.hermite[:13] ** 2 / np.exp(gammaln(np.arange(13) + 1.0))
    power = np.polynomial.polynomial.polypow(a, n)[:13]
    signs = np.array(list(itertools.product([-1, 1], repeat=6))).sum(axis=1) / 6
    moments = np.mean(signs[:, None] ** np.arange(13), axis=0)
    assert float(low_degree_norm(TWO.hermite, 10.0, n, 6, 12)) == pytest.approx(float(power @ moments), rel=1e-12)


def test_skewed_latents_have_their_own_threshold():
    """First order 3: n ~ d^{3/2}, and the limit at n = c d^{3/2} begins with pairs of samples."""
    latent = latent_named("moments", [1.0, 0.0, 1.0, 0.5])
    limit = float(low_degree_limit(latent, jnp.asarray(0.9), jnp.asarray(2.0), 6))
    assert limit == pytest.approx(1 + (2 * 0.9**3 * 0.25 / 6) ** 2 / 2 * 15, rel=1e-12)
    d = 3000
    assert float(low_degree_norm(latent.hermite, 9.0, 2 * d**1.5, d, 6)) == pytest.approx(limit, rel=0.02)


def test_heavy_tails_are_refused_and_have_norms_of_low_degree():
    with pytest.raises(sv.InvalidValue, match="latent = 'laplace' has heavier tails than a Gaussian"):
        sv.SpikedCumulant(latent="laplace")
    with pytest.raises(sv.InvalidValue, match="infinite from one sample on"):
        log_norm(latent_named("laplace"), 1.0, 5, 10)
    outcome = sv.SpikedCumulant(latent="laplace", norm="low-degree", degree=4, snr=1.0, scaled_samples=2.0).theory()
    assert float(outcome.low_degree_norm) == pytest.approx(1 + 2 * 9 / 24 / 16 * 3, rel=1e-12)
    with pytest.raises(sv.InvalidValue, match="must begin with 1, 0, 1"):
        sv.SpikedCumulant(latent="moments", moments=[1.0, 0.5, 1.0, 0.0])
    with pytest.raises(sv.InvalidValue, match="Hankel matrix is not positive"):
        sv.SpikedCumulant(latent="moments", moments=[1.0, 0.0, 1.0, 0.0, 0.5, 0.0])


def test_a_gaussian_latent_cannot_be_detected():
    outcome = sv.SpikedCumulant(latent="gaussian").theory()
    assert float(outcome.low_degree_norm) == 1.0
    assert "log_norm" not in outcome
    assert log_norm(latent_named("gaussian"), 10.0, 100, 20) == pytest.approx(0.0, abs=1e-12)


def test_the_oracles_error_is_the_integral_of_the_smaller_density():
    strengths = np.array([0.5, 10.0, 3000.0])
    errors = sv.SpikedCumulant(snr=strengths).theory(only=("oracle_error",)).oracle_error
    for snr, error in zip(strengths, errors, strict=True):
        r = snr / (1 + snr)
        s = np.linspace(-8, 8, 2_000_001)
        p = 0.5 * (norm.pdf(s, np.sqrt(r), np.sqrt(1 - r)) + norm.pdf(s, -np.sqrt(r), np.sqrt(1 - r)))
        exact = 0.5 * np.minimum(p, norm.pdf(s)).sum() * (s[1] - s[0])
        assert float(error) == pytest.approx(exact, abs=1e-7)


def test_own_moments_of_a_sign_are_a_sign():
    same = sv.SpikedCumulant(latent="moments", moments=[1.0, 0.0, 1.0, 0.0], snr=7.0).theory()
    other = sv.SpikedCumulant(snr=7.0).theory()
    for name in ("log_norm", "critical_samples", "critical_snr", "pair_function", "oracle_error", "low_degree_norm"):
        np.testing.assert_allclose(same[name], other[name], rtol=1e-9)


@pytest.mark.parametrize("latent", ["uniform", "laplace", "moments"])
def test_planted_samples_are_white_and_have_the_latents_kurtosis(latent):
    moments = [1.0, 0.0, 1.0, 0.0, 1.5, 0.0]
    model = sv.SpikedCumulant(latent=latent, norm="low-degree", moments=moments, snr=4.0)
    spike = jnp.asarray([1.0, -1.0, 1.0, 1.0], jnp.float32) / 2
    noise = jax.random.normal(jax.random.key(0), (200_000, 5), jnp.float32)
    x = np.asarray(model._planted(noise, spike, model._latent()), float)
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(4), atol=0.015)
    s = x @ np.asarray(spike, float)
    drawn = s**4 - 6 * s**2 + 3
    expected = 0.8**2 * {"uniform": -1.2, "laplace": 3.0, "moments": -1.5}[latent]
    assert abs(drawn.mean() - expected) < 4.5 * drawn.std() / np.sqrt(len(s))


def test_exhaustive_search_finds_the_spike_once_samples_exceed_a_few_per_dimension():
    few, many = (realisations(sv.SpikedCumulant(learner="search", samples=g), 10, 32) for g in (0.5, 4.0))
    assert few["success"].mean() < 0.4
    assert many["success"].mean() > 0.9
    with pytest.raises(sv.InvalidValue, match="size = 17 is outside"):
        sv.SpikedCumulant(learner="search").simulate(0, 17)


def test_a_network_finds_the_spike_where_random_features_do_not():
    """n/d² = 200 at d = 8: a small twin of the figure, with as many samples and steps as n/d² = 32 has at d = 20. At n/d² = 40
    there are 2,560 of a class, and Adam's few steps decide instead of the samples. A test error of 8192 samples has a
    standard error of 0.0055, the mean of two one of 0.004."""
    shared = {"scaled_samples": 200.0, "snr": 10.0, "epochs": 30}
    network = realisations(sv.SpikedCumulant(learner="network", **shared), 8, 2)
    features = realisations(sv.SpikedCumulant(learner="features", **shared), 8, 2)
    assert network["alignment"].mean() > 0.95
    # the oracle's is 0.285 and chance 0.5: the network is past the middle, by four errors, and the features are not
    middle, error = (0.285 + 0.5) / 2, 0.0055 / np.sqrt(2)
    assert network["test_error"].mean() < middle - 4 * error
    assert features["test_error"].mean() > middle + 4 * error


def test_critical_ratios_are_differentiable():
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda g: critical_snr(TWO, g, 64)[0])))
    near, slopes = both(jnp.asarray([2.0 - 1e-4, 2.0 + 1e-4, 0.02]))
    # few samples: γ log f(β, 1) = log 2, and f(β, 1) → ½ √(β e/2)
    assert float(near[2]) == pytest.approx(2 * np.exp(2 * np.log(2) * (1 + 1 / 0.02) - 1), rel=1e-6)
    assert float(slopes[:2].mean()) == pytest.approx(float(near[1] - near[0]) / 2e-4, rel=1e-6)
