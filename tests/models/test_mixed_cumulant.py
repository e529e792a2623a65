"""The mixed cumulant model: the series of the flow, gradient flow, signs, overlaps against weights, hitting times, networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import solvable as sv
from solvable.methods.averages.hermite import coefficients, mixed_coefficients
from solvable.model import simulate_batch
from solvable.models.cumulants._hitting import explosions, hitting_times
from solvable.models.cumulants.mixed_cumulant.figures import slow_model
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


def test_every_activation_has_its_growth_rate():
    """½δ(c_2 λ_1 - δE[σ'(z)²]) with λ_1 the larger eigenvalue of (β_u, c_11; c_11, 0)."""
    leading = float(np.linalg.eigvalsh([[2.0, 1.0638460810704875], [1.0638460810704875, 0.0]])[1])
    z, w = np.polynomial.hermite_e.hermegauss(150)
    for name, slope, c2 in (
        ("relu", (z > 0).astype(float), 1 / math.sqrt(2 * math.pi)),
        ("tanh", 1 - np.tanh(z) ** 2, 0.0),
        ("softplus", 1 / (1 + np.exp(-z)), None),
    ):
        c2 = float(w @ (slope * z) / w.sum()) if c2 is None else c2
        expected = 0.05 * (c2 * leading - 0.1 * float(w @ slope**2 / w.sum()))
        found = MixedCumulant(activation=name, times=[0.0, 1.0]).theory(only=("growth",)).growth
        assert float(found) == pytest.approx(expected, abs=1e-9), name


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
    """Alone (β_u = 0), σ = a He_4: dα/dt = -4aδr²α³(1 - α²) - ½δ²αV with V = 16a²(6 + ½(9ℓ_4α⁴ + ℓ_6α⁶)). From 1/2 the overlap
    goes to 0.73 by t = 300 with a = -1/10 and to 0.99 by 5000; with a = 1/10 to 0.36 and 0.07."""
    r, rate = 8 / 9, 0.02
    shared = {"snr_u": 0.0, "latents": "independent", "start_u": 0.0, "start_v": 0.5, "rate": rate}
    shared["times"] = [0.0, 300.0, 5000.0]
    ends = []
    for a in (-0.1, 0.1):

        def velocity(t, x, a=a):
            noise = 16 * a**2 * (6 + 0.5 * (9 * -2 * r**2 * x**4 + 16 * r**3 * x**6))
            return -4 * a * rate * r**2 * x**3 * (1 - x**2) - 0.5 * rate**2 * x * noise

        slow = solve_ivp(velocity, (0, 5000), [0.5], t_eval=[300, 5000], rtol=1e-10, atol=1e-12).y[0]
        found = MixedCumulant(coefficients=[0, 0, 0, 0, a], **shared).theory().overlap_v[1:]
        np.testing.assert_allclose(found, slow, atol=1e-7)
        ends.append(slow[-1])
    assert ends[0] > 0.95
    assert abs(ends[1]) < 0.25


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


def test_correlated_latents_are_found_after_d_log_d_samples_and_independent_ones_are_not():
    """Medians of n/(d log d) are 4.31 and 4.28 at d = 500, 2000 in an independent simulation with 9 seeds: half of ours come
    before, to three binomial errors."""
    find = {"level": 0.3, "start": (1.0, 1.0), "direction": 1}
    for size, value in ((500, 4.31), (2000, 4.28)):
        found = hitting_times(MixedCumulant().stream(size), 64, 200 * size, **find) / (size * np.log(size))
        assert np.isfinite(found).all()
        assert abs(np.mean(found < value) - 0.5) < 3 * 0.5 * np.sqrt(1 / 9 + 1 / 64)
    apart = hitting_times(MixedCumulant(latents="independent").stream(500), 32, 200 * 500, **find)
    # noise alone takes |α_v| from 0.045 beyond 0.3 now and then; it is small at d = 500
    assert np.isfinite(apart).mean() < 0.2


def test_the_cumulant_direction_alone_takes_d_cubed_samples_and_is_lost_to_a_learner_of_covariances():
    """β_u = 0, σ = -He_4/10, rate 0.3/d: of 256 descents a share q, to four binomial errors, arrives at |α_v| = 0.3 before the
    quantile q of the diffusion of √d α_v, n/d³ being its time. With a second-order part in σ, independent latents
    and u beside v, w goes to u instead and v is lost."""
    levels, size = np.array([0.25, 0.5, 0.75]), 32
    paths = explosions(0.3, 0.4 * (8 / 9) ** 2, 0.96, 4000, 100.0, beyond=0.3 * size**0.5)
    limit = np.quantile(paths, levels)
    find = {"level": 0.3, "direction": 1}
    stream = slow_model(size, snr_u=0.0).stream(size)
    found = hitting_times(stream, 256, limit[-1] * size**3, start=(0.0, 1.0), **find) / size**3
    share = np.mean(found[:, None] < limit, axis=0)
    assert np.all(np.abs(share - levels) < 4 * np.sqrt(levels * (1 - levels) * (1 / 256 + 1 / 4000)))
    beside = MixedCumulant(latents="independent", rate=0.3 / size).stream(size)
    lost = hitting_times(beside, 32, limit[1] * size**3, start=(1.0, 1.0), **find)
    assert np.isfinite(lost).mean() < 0.1


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
