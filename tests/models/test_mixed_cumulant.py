"""The mixed cumulant model: the series of the flow, gradient flow, signs, overlaps against weights, hitting times, networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import solvable as sv
from solvable.methods.averages.hermite import coefficients, mixed_coefficients
from solvable.methods.training.reduced import reduced_hitting
from solvable.model import simulate_batch
from solvable.models.cumulants.mixed_cumulant.model import MixedCumulant
from solvable.models.cumulants.mixed_cumulant.networks import draw

NODES = 40


def half_line(correlated, beta_u, order=8, ratio=8 / 9):
    """c_ij by closed moments: E|λ|^i = 2^{i/2} Γ((i+1)/2)/√π."""
    c = np.zeros((order + 1, order + 1))
    for i in range(order + 1):
        size = 2 ** (i / 2) * math.gamma((i + 1) / 2) / math.sqrt(math.pi)
        signs = [(1, 1), (-1, -1)] if correlated else [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        for s, nu in signs:
            shifts = np.array([float(s)]), np.array([float(nu)]), np.ones(1)
            c[i] += (mixed_coefficients(*shifts, ratio, order)[i] * beta_u ** (i / 2) * size) / len(signs)
    return c


@pytest.mark.parametrize("correlated", [True, False])
def test_coefficients_of_the_classes_have_the_values_of_their_closed_forms(correlated):
    c = half_line(correlated, 2.0)
    expected = [1.0638460810704875, -1.891281921903089, 4.25538432428195] if correlated else [0, 0, 0]
    np.testing.assert_allclose([c[1, 1], c[1, 3], c[3, 1]], expected, atol=1e-9)
    np.testing.assert_allclose([c[0, 4], c[2, 0]], [-1.5802469135802468, 2.0], rtol=1e-12)
    np.testing.assert_allclose([c[0, 2], c[0, 3], c[2, 2]], 0.0, atol=1e-12)


@pytest.mark.parametrize("correlated", [True, False])
def test_the_averages_are_the_gradient_of_the_series(correlated):
    """Φ = ½ Σ c_ij c^σ_{i+j} α_u^i α_v^j/(i!j!), exact for a polynomial of degree four."""
    model = MixedCumulant(latents="correlated" if correlated else "independent")
    c, sigma = half_line(correlated, 2.0), {2: 2 * 0.5, 4: 24 * -0.02}

    def potential(alpha):
        total = 0.0
        for k, value in sigma.items():
            for i in range(k + 1):
                j = k - i
                total = total + 0.5 * c[i, j] * value * alpha[0] ** i * alpha[1] ** j / math.factorial(
                    i
                ) / math.factorial(j)
        return total

    averages = jax.jit(lambda a: model._averages(a, NODES))
    for alpha in ([0.05, 0.05], [0.3, -0.5], [0.7, 0.6]):
        a = jnp.asarray(alpha)
        slope = jax.grad(potential)(a)
        drift, _, gained = averages(a)
        np.testing.assert_allclose(drift, slope - a * (a @ slope), atol=1e-10)
        assert float(gained) == pytest.approx(float(potential(a)), abs=1e-10)


def test_the_noise_term_is_that_of_drawn_samples():
    model, alpha, n = MixedCumulant(), jnp.asarray([0.4, 0.5]), 400_000
    bits = jax.random.bits(jax.random.key(1), (4, n), jnp.uint32)
    fields, y = model.components(bits[:3])
    from solvable.methods.training.reduced import normal

    a = alpha.astype(jnp.float32) @ fields + np.float32(math.sqrt(1 - 0.41)) * normal(bits[3])
    square = np.asarray(model.slope(a), float) ** 2
    drift, exact, gained = model._averages(alpha, NODES)
    assert abs(square.mean() - float(exact)) < 4.5 * square.std() / np.sqrt(n)
    value = np.asarray(y * model.activate(a), float)
    assert abs(value.mean() - float(gained)) < 4.5 * value.std() / np.sqrt(n)
    for i in range(2):
        pull = np.asarray(y * model.slope(a) * (fields[i] - a * np.float32(alpha[i])), float)
        assert abs(pull.mean() - float(drift[i])) < 4.5 * pull.std() / np.sqrt(n)


def test_relu_and_a_smooth_activation_have_their_averages():
    """ReLU in closed form against panels split at the kink; tanh against its Hermite series at small overlaps."""
    relu = MixedCumulant(activation="relu")
    fine, coarse = (relu._averages(jnp.asarray([0.3, 0.4]), n) for n in (80, 40))
    np.testing.assert_allclose(fine[0], coarse[0], atol=1e-11)
    c2, c4 = (float(coefficients(lambda z: jnp.maximum(z, 0.0), 4, (0.0,))[k]) for k in (2, 4))
    assert (c2, c4) == pytest.approx((1 / math.sqrt(2 * math.pi), -1 / math.sqrt(2 * math.pi)))
    small = relu._averages(jnp.asarray([1e-4, 0.0]), 40)[0]
    np.testing.assert_allclose(small / 1e-4, [0.5 * 2.0 * c2, 0.5 * 1.0638460810704875 * c2], rtol=1e-3)


def test_without_noise_the_objective_never_falls():
    model = MixedCumulant(rate=1e-4, start_u=0.3, start_v=-0.2, times=np.linspace(0, 3e5, 30))
    loss = np.asarray(model.theory().test_loss)
    assert np.all(np.diff(loss) <= 1e-12)


def test_a_slow_twin_follows_the_same_path():
    model, c = MixedCumulant(times=[0.0, 10.0, 40.0]), half_line(True, 2.0)
    terms = [
        (i, k - i, 0.5 * c[i, k - i] * value / math.factorial(i) / math.factorial(k - i))
        for k, value in ((2, 1.0), (4, -0.48))
        for i in range(k + 1)
    ]
    z, w = np.polynomial.hermite_e.hermegauss(30)
    w = w / w.sum()
    size, weight = np.polynomial.legendre.leggauss(60)
    size, weight = 4.5 * (size + 1), 4.5 * weight * 2 * np.exp(-((4.5 * (size + 1)) ** 2) / 2) / np.sqrt(2 * np.pi)

    def slope(a):
        return 0.5 * 2 * a - 0.02 * 4 * (a**3 - 3 * a)

    def drift(t, y):
        u, v = y
        along_u = sum(x * i * u ** max(i - 1, 0) * v**j for i, j, x in terms)
        along_v = sum(x * j * u**i * v ** max(j - 1, 0) for i, j, x in terms)
        grad = np.array([along_u, along_v])
        mean = u * np.sqrt(2) * size + v * np.sqrt(8 / 9)
        a = mean[:, None] + np.sqrt(1 - v**2 * 8 / 9) * z
        noise = 0.5 * (weight @ slope(a) ** 2 @ w + slope(z) ** 2 @ w)
        return 0.1 * (grad - y * (y @ grad)) - 0.005 * y * noise

    slow = solve_ivp(drift, (0, 40), [0.05, 0.05], t_eval=[0, 10, 40], rtol=1e-10, atol=1e-13).y
    outcome = model.theory()
    np.testing.assert_allclose(np.stack([outcome.overlap_u, outcome.overlap_v]), slow, atol=1e-7)


def test_the_sign_of_the_fourth_coefficient_decides_whether_the_cumulant_direction_attracts():
    """Alone (β_u = 0), from a large overlap: found with c_4 < 0, repelled with c_4 > 0."""
    shared = {
        "snr_u": 0.0,
        "latents": "independent",
        "start_u": 0.0,
        "start_v": 0.5,
        "rate": 0.02,
        "times": [0.0, 300.0],
    }
    right, wrong = (MixedCumulant(coefficients=[0, 0, 0, 0, a], **shared).theory().overlap_v[1] for a in (-0.1, 0.1))
    assert right > 0.65
    assert abs(wrong) < 0.45


def test_overlaps_and_all_weights_have_the_same_law():
    """d = 200, t = 10: the standard deviations are 0.0586 and 0.0292."""
    model = MixedCumulant(times=[0.0, 10.0])
    seen = {}
    for kept, seeds in (("overlaps", 1024), ("weights", 64)):
        m = model.replace(simulated=kept)
        runs = simulate_batch(m, {}, jnp.stack([m.key(200, s) for s in range(seeds)]), 200)
        seen[kept] = np.stack([runs["overlap_u"][:, 1], runs["overlap_v"][:, 1]])
    np.testing.assert_allclose(seen["overlaps"].std(axis=1), [0.0586, 0.0292], atol=0.004)
    error = seen["weights"].std(axis=1) / 8
    assert np.all(np.abs(seen["weights"].mean(axis=1) - seen["overlaps"].mean(axis=1)) < 4 * error)
    np.testing.assert_allclose(seen["weights"].std(axis=1) / seen["overlaps"].std(axis=1), 1.0, atol=0.36)


def hitting(latents, size, lanes, most, direction=1, level=0.3):
    model = MixedCumulant(latents=latents)
    start = jnp.full((2, lanes), size**-0.5, jnp.float32)
    find = jax.jit(
        lambda key: reduced_hitting(model.stream(size), key, start, lambda a: jnp.abs(a[direction]) > level, most)
    )
    return find(jax.random.key(size))


def test_correlated_latents_are_found_after_d_log_d_samples_and_independent_ones_are_not():
    for size in (500, 2000):
        hit = hitting("correlated", size, 32, 200 * size)
        assert bool(hit.met.all())
        assert float(np.median(hit.steps)) / (size * np.log(size)) == pytest.approx(4.3, abs=0.5)
    alone = hitting("independent", 500, 32, 200 * 500)
    assert float(alone.met.mean()) < 0.2


@pytest.mark.parametrize("surrogate", ["none", "covariance", "mean"])
def test_surrogates_have_the_moments_of_the_true_classes(surrogate):
    model = sv.MixedCumulant(learner="network", snr_m=1.5)
    x, y = (np.asarray(v, float) for v in draw(model, jax.random.key(0), 400_000, 4, surrogate, jnp.float32))
    positive = x[y > 0]
    np.testing.assert_allclose(positive.mean(axis=0), [np.sqrt(1.5), 0, 0, 0], atol=0.02)
    covariance = np.eye(4)
    if surrogate != "mean":
        covariance[1, 1], covariance[1, 2] = 3.0, np.sqrt(2 * 2 * 8 / 9 / np.pi)
        covariance[2, 1] = covariance[1, 2]
    np.testing.assert_allclose(np.cov(positive.T), covariance, atol=0.03)
    kurtosis = np.mean(positive[:, 2] ** 4) - 3
    assert kurtosis == pytest.approx(-2 * (8 / 9) ** 2 if surrogate == "none" else 0.0, abs=0.06)
    np.testing.assert_allclose(np.cov(x[y < 0].T), np.eye(4), atol=0.02)


def test_wrong_starts_and_coefficients_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="add up to less than 1"):
        MixedCumulant(start_u=0.8, start_v=0.7)
    with pytest.raises(sv.InvalidValue, match="coefficients are for activation = 'polynomial'"):
        MixedCumulant(activation="relu", coefficients=[0.0, 1.0])
