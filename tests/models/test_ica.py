"""Independent component analysis: one step, iteration, descent, smoothing; hitting times and their laws; images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.hermite import coefficients, hermite_moments, raw_moments
from solvable.methods.training.reduced import normal
from solvable.model import simulate_batch
from solvable.models.cumulants._hitting import explosions, hitting_times
from solvable.models.cumulants.ica.contrasts import (
    CONTRASTS,
    contrast,
    first,
    one_step,
    population_slope,
    second,
    smoothed_slope,
    step_law,
)
from solvable.models.cumulants.ica.fastica import excess_kurtosis, image_patches, iterate, spiked
from solvable.models.cumulants.ica.figures import quartic_stream
from solvable.models.cumulants.ica.model import ICA

RATIO = jnp.asarray(15 / 16)


@pytest.mark.parametrize("name", CONTRASTS)
def test_derivatives_and_slopes_are_those_of_the_contrast_and_its_series(name):
    s = jnp.linspace(-2, 2, 7)
    grad = jax.vmap(jax.grad(lambda x: contrast(name, x)))
    np.testing.assert_allclose(first(name, s), grad(s), atol=1e-12)
    np.testing.assert_allclose(second(name, s), jax.vmap(jax.grad(lambda x: first(name, x)))(s), atol=1e-12)
    # L'(α) = Σ c_k ℓ_k α^{k-1}/(k-1)!, ℓ_k = r^{k/2} h_k; at small α only the fourth order remains
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
    """E[S/(S + T)], S = (L' + √(V_v/n) z)² along v and T the rest, which hardly fluctuates: the ratio of the means is 0.024
    larger, as S has a standard deviation of 0.7 of its mean."""
    model, d, seeds, gamma = ICA(samples=100.0, start=0.5), 40, 64, 100.0
    runs = np.asarray(
        simulate_batch(model, {}, jnp.stack([model.key(d, s) for s in range(seeds)]), d)["squared_overlap"]
    )
    mean, noise, along, across = (float(x) for x in step_law("kurtosis", RATIO, jnp.asarray(0.5), 48))
    z, w = np.polynomial.hermite_e.hermegauss(40)
    signal, rest = (mean + np.sqrt(along / (gamma * d)) * z) ** 2, (across + (d - 2) * noise) / (gamma * d)
    exact = np.sum(w / w.sum() * signal / (signal + rest))
    assert abs(runs[:, 1].mean() - exact) < 4 * runs[:, 1].std() / np.sqrt(seeds)


def test_one_step_has_three_regimes_in_the_number_of_samples():
    """n = d^θ from α_0 = d^{-1/2}: nothing below θ = 3, α_1 ~ d^{(θ-4)/2} between, all of it above 4."""
    d = np.array([1e3, 1e4, 1e5])

    def after(theta):
        step = jax.vmap(lambda x: one_step("kurtosis", RATIO, x**-0.5, x ** (theta - 1), 48, x))
        return np.sqrt(np.asarray(step(jnp.asarray(d))))

    for theta, slope in ((2.5, -0.5), (3.5, -0.25), (5.0, 0.0)):
        found = np.diff(np.log(after(theta))) / np.diff(np.log(d))
        assert found[-1] == pytest.approx(slope, abs=0.03), theta


def test_the_overlap_after_one_step_collapses_in_n_over_d_to_the_fourth():
    """At fixed n/d⁴ α_1² tends to s/(s + 15), s = 4r⁴n/d⁴. At α = 0 V = V_v = 15 and V_p = 42, so that it is larger by the
    factor 1 + (15/s - 27/(s + 15))/d: by 4.7 % at d = 1000 and n = d⁴/10. What is left falls as 1/d²."""
    d = np.array([1e3, 1e4])
    for ratio in (0.1, 1.0, 10.0):
        found = np.array(
            [float(one_step("kurtosis", RATIO, jnp.asarray(x**-0.5), jnp.asarray(ratio * x**3), 48, x)) for x in d]
        )
        s = 4 * float(RATIO) ** 4 * ratio
        left = found / (s / (s + 15)) - 1 - (15 / s - 27 / (s + 15)) / d
        assert left[0] / left[1] == pytest.approx(100, rel=0.1), ratio
        assert abs(left[0]) < 1e-3 * (1 + 1 / s)


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

    # a changes while |x|² is fixed, so the orthogonal part shrinks with it
    def value(a):
        across = x @ x - a**2
        return ((a**4 + 6 * a**2 * radius**2 * across / 2 + 3 * radius**4 * across**2 / 8) / (1 + radius**2) ** 2
                - 6 * (a**2 + radius**2 * across / 2) / (1 + radius**2) + 3)  # fmt: skip

    assert value(2.0) == pytest.approx(averaged(0.0), rel=1e-12)
    exact = (value(2.0 + 1e-5) - value(2.0 - 1e-5)) / 2e-5
    found = smoothed_slope(jnp.asarray(2.0), jnp.asarray(x @ x - 4.0), jnp.asarray(radius), 3)
    assert float(found) == pytest.approx(exact, rel=1e-8)


def test_smoothed_descent_needs_d_squared_log_d_samples():
    """Medians of n/(d² log d) to |α| > 1/2 are 0.430 and 0.523 at d = 16, 32 in an independent simulation with 21 seeds. Times
    scatter like an exponential variable, so shares are compared: half of ours come before, to three binomial errors."""
    found = {}
    for size in (16, 32, 64):
        model = ICA(learner="smoothed", rate=0.2)
        found[size] = hitting_times(model.stream(size), 256, 200 * size**2, level=0.5) / (size**2 * np.log(size))
        assert np.isfinite(found[size]).all()
    for size, value in ((16, 0.43), (32, 0.523)):
        assert abs(np.mean(found[size] < value) - 0.5) < 3 * 0.5 * np.sqrt(1 / 21 + 1 / 256)
    # the law is the same at d = 16 and 64: n ~ d² log d, where d² would move the median by a factor 1.5, d³ by 2.7
    assert abs(np.mean(found[64] < np.median(found[16])) - 0.5) < 4 * 0.5 * np.sqrt(2 / 256)


def test_smoothing_does_not_help_if_the_contrast_has_a_second_order_part():
    """s⁴/4 needs δ < 1.17/d, and so d times as many samples; at δ = 0.6/d, nearly its best rate, against He_4 at δ = 0.2."""
    ratios = []
    for size in (16, 32):
        one = hitting_times(ICA(learner="smoothed", rate=0.2).stream(size), 64, 200 * size**2, level=0.5)
        two = hitting_times(quartic_stream(size, 0.6 / size), 64, 8 * size**3, level=0.5)
        ratios.append(np.median(two) / np.median(one))
    # each median of 64 lanes has an error of about 1.25·0.6/8 = 0.1 of itself, their double ratio one of 0.2
    assert ratios[1] / ratios[0] > 1.2
    assert ratios[1] > 4


def test_plain_descent_needs_d_cubed_samples_with_the_law_of_an_explosion():
    """δ = 0.3/d: of 256 descents a share q, to four binomial errors, arrives before the limit's quantile q in n/d³."""
    levels = np.array([0.25, 0.5, 0.75])
    limit = np.quantile(explosions(0.3, 2 * float(RATIO) ** 2, 15.0, 4000, 60.0), levels)
    for size in (24, 48):
        model = ICA(learner="descent", rate=0.3 / size)
        found = hitting_times(model.stream(size), 256, limit[-1] * size**3, level=0.5) / size**3
        share = np.mean(found[:, None] < limit, axis=0)
        # the limit's own 4000 paths add a quarter of the error
        assert np.all(np.abs(share - levels) < 4 * np.sqrt(levels * (1 - levels) * (1 / 256 + 1 / 4000)))


def test_fastica_on_the_same_data_succeeds_with_d_cubed_samples():
    """d = 24, 26 steps: 0.63(3) of 640 random starts at n = d³, none of 384 at n = d² in earlier runs.

    Starts share their data set, and success rates of 16 starts scatter from set to set by 0.18: the mean over eight sets has
    an error of 0.06."""
    d, found = 24, {}
    for number in (d**2, d**3):
        wins = []
        for seed in range(8):
            one, two = jax.random.split(jax.random.key(100 + seed))
            starts = jax.random.normal(two, (16, d), jnp.float32)
            path = np.abs(np.asarray(iterate(spiked(one, number, d, 15.0), starts, 26))[:, :, 0])
            wins.append((path[-1] > 0.8).mean())
        found[number] = np.array(wins)
    assert found[d**2].sum() == 0
    assert abs(found[d**3].mean() - 0.63) < 4 * np.hypot(found[d**3].std(ddof=1) / np.sqrt(8), 0.03) < 0.36


def test_searching_stays_small_and_then_jumps():
    """At n = d³ the map α → α_1 of fresh batches has an unstable fixed point α* = 0.31, where 4r⁴γα⁴(1 - α²) = 15: below it
    FastICA searches, and from 0.4 the map passes 0.8 in two steps (0.57, 0.90). The same happens on one data set."""
    d, path = 24, []
    for seed in range(4):
        one, two = jax.random.split(jax.random.key(seed))
        starts = jax.random.normal(two, (16, d), jnp.float32)
        path.append(np.abs(np.asarray(iterate(spiked(one, d**3, d, 15.0), starts, 26))[:, :, 0]))
    path = np.concatenate(path, axis=1)
    law = [0.4]
    for _ in range(2):
        law.append(float(jnp.sqrt(one_step("kurtosis", RATIO, jnp.asarray(law[-1]), jnp.asarray(d**2.0), 48))))
    assert law[1] < 0.8 < law[2]
    arrived = path[:, path[-1] > 0.8]
    jumps = np.argmax(arrived > 0.8, axis=0) - np.argmax(arrived > 0.4, axis=0)
    assert np.median(jumps) <= 2
    searches = np.argmax(arrived > 0.4, axis=0)
    # of 171 kept searches 60 % last four steps and more: none of forty would, with a chance of 1e-16
    assert searches.max() >= 4


def test_patches_are_white_and_only_true_ones_have_heavy_tails():
    """The kurtosis of n Gaussian projections has an error of √(24/n) = 0.035; FastICA on the same samples raises it a little, to
    0.2 at most of white noise and of randomised phases. Images start at 19, at equal contrast at 0.6, and it finds more."""
    shapes = {}
    noise = np.random.default_rng(0).normal(size=(20_000, 35)).astype(np.float32)
    for kind, x in (
        ("images", image_patches(6, 20_000)),
        ("equal contrast", image_patches(6, 20_000, contrast=True)),
        ("phases", image_patches(6, 20_000, phases=True)),
        ("noise", noise),
    ):
        if kind != "noise":
            np.testing.assert_allclose(x.T @ x / len(x), np.eye(35), atol=1e-3)
        starts = jax.random.normal(jax.random.key(0), (8, 35), jnp.float32)
        path = iterate(jnp.asarray(x), starts, 12)
        shapes[kind] = np.asarray(excess_kurtosis(jnp.asarray(x), path))
    start, end = ({kind: np.median(v[i]) for kind, v in shapes.items()} for i in (0, -1))
    for kind in ("phases", "noise"):
        assert np.abs(shapes[kind][0]).max() < 4 * np.sqrt(24 / 20_000), kind
        assert abs(end[kind]) < 0.5, kind
    assert start["images"] > 30 * np.sqrt(24 / 20_000)
    assert end["images"] > 2 * start["images"]
    # without differences in contrast there is less to begin with, and FastICA still finds more
    assert 4 * np.sqrt(24 / 20_000) < start["equal contrast"] < start["images"] / 5
    assert end["equal contrast"] > 2 * start["equal contrast"]


def test_components_have_the_moments_of_the_spike():
    t = np.asarray(ICA().components(jax.random.bits(jax.random.key(0), (1, 200_000), jnp.uint32))[0][0], float)
    fourth = t**4 - 6 * t**2 + 3
    assert abs(t.mean()) < 0.01
    assert abs(fourth.mean() + 2 * (15 / 16) ** 2) < 4.5 * fourth.std() / np.sqrt(len(t))
    assert (
        abs(np.corrcoef(t, np.asarray(normal(jax.random.bits(jax.random.key(1), (200_000,), jnp.uint32))))[0, 1]) < 0.01
    )


def test_contrasts_that_cannot_be_smoothed_are_refused():
    with pytest.raises(sv.InvalidValue, match="contrast = 'log-cosh' is not available with learner = 'smoothed'"):
        ICA(learner="smoothed", contrast="log-cosh")
