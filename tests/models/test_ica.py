"""Independent component analysis: one step, iteration, descent, smoothing; hitting times and their laws; images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.hermite import coefficients, hermite_moments, raw_moments
from solvable.methods.training.reduced import normal, reduced_hitting
from solvable.model import simulate_batch
from solvable.models.cumulants.ica.contrasts import (
    CONTRASTS,
    contrast,
    first,
    one_step,
    population_slope,
    second,
    smoothed_slope,
)
from solvable.models.cumulants.ica.fastica import excess_kurtosis, image_patches, iterate, spiked
from solvable.models.cumulants.ica.model import ICA

RATIO = jnp.asarray(15 / 16)


@pytest.mark.parametrize("name", CONTRASTS)
def test_derivatives_and_slopes_are_those_of_the_contrast_and_its_series(name):
    s = jnp.linspace(-2, 2, 7)
    grad = jax.vmap(jax.grad(lambda x: contrast(name, x)))
    np.testing.assert_allclose(first(name, s), grad(s), atol=1e-12)
    np.testing.assert_allclose(second(name, s), jax.vmap(jax.grad(lambda x: first(name, x)))(s), atol=1e-12)
    # L'(α) = Σ c_k ℓ_k α^{k-1}/(k-1)!, ℓ_k = r^{k/2} h_k; at small α the fourth order is all there is
    c = np.asarray(coefficients(lambda z: contrast(name, z), 8))
    ell = np.asarray(RATIO) ** (np.arange(9) / 2) * hermite_moments(raw_moments("rademacher", 8))
    alpha = 0.1
    series = sum(c[k] * ell[k] * alpha ** (k - 1) / np.exp(np.sum(np.log(np.arange(1, k)))) for k in range(1, 9))
    assert float(population_slope(name, RATIO, jnp.asarray(alpha), 48)) == pytest.approx(series, rel=2e-4, abs=1e-12)


@pytest.mark.parametrize(("name", "d", "start", "value"), [
    ("kurtosis", 40, 0.3, 0.2915), ("kurtosis", 100, 0.4, 0.5542), ("log-cosh", 40, 0.3, 0.1904),
    ("log-cosh", 100, 0.4, 0.2796), ("exponential", 100, 0.4, 0.5141)])  # fmt: skip
def test_one_step_at_finite_dimension_has_the_values_of_an_independent_computation(name, d, start, value):
    """n = 500 d, β = 15; simulations gave 0.258(20), 0.585(22), 0.178(17), 0.285(19), 0.506(30)."""
    found = one_step(name, RATIO, jnp.asarray(start), jnp.asarray(500.0), 48, float(d))
    assert float(jnp.sqrt(found)) == pytest.approx(value, abs=6e-5)


def test_one_step_of_fastica_is_the_theory_at_finite_dimension():
    model, d, seeds = ICA(samples=100.0, start=0.5), 40, 64
    runs = np.asarray(
        simulate_batch(model, {}, jnp.stack([model.key(d, s) for s in range(seeds)]), d)["squared_overlap"]
    )
    exact = float(one_step("kurtosis", RATIO, jnp.asarray(0.5), jnp.asarray(100.0), 48, float(d)))
    assert abs(runs[:, 1].mean() - exact) < 4 * runs[:, 1].std() / np.sqrt(seeds) + 0.01


def test_one_step_has_three_regimes_in_the_number_of_samples():
    """n = d^θ from α_0 = d^{-1/2}: nothing below θ = 3, α_1 ~ d^{(θ-4)/2} between, all of it above 4."""
    d = np.array([1e3, 1e4, 1e5])

    def after(theta):
        step = jax.vmap(lambda x: one_step("kurtosis", RATIO, x**-0.5, x ** (theta - 1), 48, x))
        return np.sqrt(np.asarray(step(jnp.asarray(d))))

    for theta, slope in ((2.5, -0.5), (3.5, -0.25), (5.0, 0.0)):
        found = np.diff(np.log(after(theta))) / np.diff(np.log(d))
        assert found[-1] == pytest.approx(slope, abs=0.03), theta
    # the collapse: at fixed n/d⁴ the overlap does not depend on d
    for ratio in (0.1, 1.0, 10.0):
        same = [float(one_step("kurtosis", RATIO, jnp.asarray(x**-0.5), jnp.asarray(ratio * x**3), 48, x)) for x in d]
        np.testing.assert_allclose(same, same[-1], rtol=60 / d[0])


def test_a_gaussian_direction_is_not_found_and_a_found_one_is_kept():
    outcome = ICA(snr=0.0, steps=2).theory().squared_overlap
    np.testing.assert_allclose(outcome[1:], 0.0, atol=1e-25)
    near = ICA(start=0.999, samples=1e6).theory().squared_overlap
    assert float(near[1]) > 0.9999


def test_the_smoothed_slope_is_that_of_the_averaged_contrast():
    """An average over directions across w, on the circle by 400 angles (d = 3)."""
    radius, x, w = 0.8, np.array([0.7, -1.2, 2.0]), np.array([0.0, 0.0, 1.0])

    def averaged(shift):
        angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
        sides = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
        a = x @ w + shift
        s = (a + radius * sides @ x) / np.sqrt(1 + radius**2)
        return np.mean(s**4 - 6 * s**2 + 3)

    # a moves while |x|² stays: what is across shrinks with it
    def value(a):
        across = x @ x - a**2
        return ((a**4 + 6 * a**2 * radius**2 * across / 2 + 3 * radius**4 * across**2 / 8) / (1 + radius**2) ** 2
                - 6 * (a**2 + radius**2 * across / 2) / (1 + radius**2) + 3)  # fmt: skip

    assert value(2.0) == pytest.approx(averaged(0.0), rel=1e-12)
    exact = (value(2.0 + 1e-5) - value(2.0 - 1e-5)) / 2e-5
    found = smoothed_slope(jnp.asarray(2.0), jnp.asarray(x @ x - 4.0), jnp.asarray(radius), 3)
    assert float(found) == pytest.approx(exact, rel=1e-8)


def hits(model, size, lanes, most, level=0.5):
    start = jnp.full((1, lanes), size**-0.5, jnp.float32)
    find = jax.jit(lambda key: reduced_hitting(model.stream(size), key, start, lambda a: jnp.abs(a[0]) > level, most))
    return find(jax.random.key(size))


def test_smoothed_descent_needs_d_squared_log_d_samples():
    """Medians of n/(d² log d) to |α| > 1/2: 0.430, 0.523 at d = 16, 32 with 21 seeds."""
    model = ICA(learner="smoothed", rate=0.2)
    for size, value in ((16, 0.43), (32, 0.523)):
        hit = hits(model, size, 256, 40 * size**2 * 5)
        assert bool(hit.met.all())
        assert float(np.median(hit.steps)) / (size**2 * np.log(size)) == pytest.approx(value, abs=0.1)


def explosion(rate, paths, horizon, seed=0, snr=15.0):
    """Times at which dA = (δ|ℓ_4|A³ - ½δ²VA)dτ + δ√V dB leaves |A| = 30, from A = 1: steps shrink as A grows."""
    rng, ell, noise = np.random.default_rng(seed), 2 * (snr / (1 + snr)) ** 2, 15.0
    a, time, done = np.ones(paths), np.zeros(paths), np.zeros(paths, bool)
    while not done.all() and time[~done].min() < horizon:
        step = 0.01 / (1 + rate * ell * a**2)
        drift = rate * ell * a**3 - 0.5 * rate**2 * noise * a
        moved = a + drift * step + rate * np.sqrt(noise * step) * rng.normal(size=paths)
        a, time = np.where(done, a, moved), np.where(done, time, time + step)
        done = done | (np.abs(a) > 30) | (time > horizon)
    return time


def test_plain_descent_needs_d_cubed_samples_with_the_law_of_an_explosion():
    """δ = 0.3/d: quantiles of n/d³ at d = 24 and 48 against those of the limiting diffusion."""
    limit = np.quantile(explosion(0.3, 2000, 60.0), [0.25, 0.5])
    for size, slack in ((24, 0.6), (48, 0.4)):
        model = ICA(learner="descent", rate=0.3 / size)
        hit = hits(model, size, 256, 20 * size**3, level=0.5)
        found = np.quantile(np.asarray(hit.steps) / size**3, [0.25, 0.5])
        np.testing.assert_allclose(found, limit, rtol=slack)


def test_fastica_on_the_same_data_succeeds_from_d_cubed_samples_on():
    """d = 24, 26 steps: none of 384 random starts at n = d², 0.63(3) of 640 at n = d³, 0.97 of 64 at d⁴."""
    d, found = 24, {}
    for number in (d**2, d**3):
        wins = []
        for seed in range(8):
            one, two = jax.random.split(jax.random.key(100 + seed))
            starts = jax.random.normal(two, (16, d), jnp.float32)
            path = np.abs(np.asarray(iterate(spiked(one, number, d, 15.0), starts, 26))[:, :, 0])
            wins.append((path[-1] > 0.8).mean())
        found[number] = np.mean(wins)
    assert found[d**2] < 0.05
    assert 0.4 < found[d**3] < 0.85


def test_searching_stays_small_and_then_jumps():
    d = 24
    one, two = jax.random.split(jax.random.key(3))
    starts = jax.random.normal(two, (16, d), jnp.float32)
    path = np.abs(np.asarray(iterate(spiked(one, d**3, d, 15.0), starts, 26))[:, :, 0])
    arrived = path[:, path[-1] > 0.8]
    assert arrived.shape[1] >= 8
    # once on its way it takes five steps or so from 0.3 to 0.8, and the search before that is as long as it is
    last_low = np.array([np.flatnonzero(p < 0.3)[-1] for p in arrived.T if (p < 0.3).any()])
    first_high = np.array([np.flatnonzero(p > 0.8)[0] for p in arrived.T if (p < 0.3).any()])
    assert np.median(first_high - last_low) <= 6
    assert last_low.max() >= 4


def test_patches_are_white_and_only_true_ones_have_heavy_tails():
    shapes = {}
    for phases in (False, True):
        x = image_patches(6, 20_000, phases=phases)
        np.testing.assert_allclose(x.T @ x / len(x), np.eye(35), atol=1e-3)
        starts = jax.random.normal(jax.random.key(0), (8, 35), jnp.float32)
        path = iterate(jnp.asarray(x), starts, 12)
        shapes[phases] = np.asarray(excess_kurtosis(jnp.asarray(x), path)).mean(axis=1)
    assert shapes[False][-1] > 1.3 * shapes[False][0] > 5
    assert abs(shapes[True][0]) < 0.2
    assert abs(shapes[True][-1]) < 1.0


def test_components_have_the_moments_of_the_spike():
    t = np.asarray(ICA().components(jax.random.bits(jax.random.key(0), (1, 200_000), jnp.uint32))[0][0], float)
    fourth = t**4 - 6 * t**2 + 3
    assert abs(t.mean()) < 0.01
    assert abs(fourth.mean() + 2 * (15 / 16) ** 2) < 4.5 * fourth.std() / np.sqrt(len(t))
    assert (
        abs(np.corrcoef(t, np.asarray(normal(jax.random.bits(jax.random.key(1), (200_000,), jnp.uint32))))[0, 1]) < 0.01
    )


def test_contrasts_that_cannot_be_smoothed_are_refused():
    with pytest.raises(sv.InvalidValue, match="contrast = 'log-cosh' is not smoothed"):
        ICA(learner="smoothed", contrast="log-cosh")
