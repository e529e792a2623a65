"""Random-features diffusion: coefficients, one and two resolvents, curves, clocks, speciation, and the training itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

import solvable as sv
from solvable.models.generative.feature_diffusion import equivalents, speciation, training
from solvable.models.generative.feature_diffusion.figures import three_classes

TIMES = [3.0, 30.0, 300.0, 1e5]
NOISING = [0.5, 1.5, 2.5, 3.5]
PLAIN = {"times": TIMES, "noising": NOISING}


@pytest.fixture(scope="module")
def theory():
    """One program for all points: controls only differ."""

    def at(**values):
        return sv.FeatureDiffusion(**PLAIN, **values).theory()

    return at


def test_coefficients_are_those_of_gauss_hermite_sums():
    """a, v², σ² of tanh at t = 0.1 and two variances, from products of sums over 120 Hermite nodes."""
    x, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    share, spread = jnp.asarray([0.3, 0.7]), np.array([0.5, 2.0])
    found = equivalents.classes(jnp.tanh, share, jnp.asarray(spread), jnp.asarray(0.1))
    added = 1 - np.exp(-0.2)
    for c, s in enumerate(spread):
        total = np.exp(-0.2) * s + added
        slope = w @ (1 / np.cosh(np.sqrt(total) * x) ** 2)
        means = np.tanh(np.exp(-0.1) * np.sqrt(s) * x[:, None] + np.sqrt(added) * x[None, :]) @ w
        alpha = slope**2 * np.exp(-0.2) * s
        datum = w @ means**2 - alpha
        rest = w @ np.tanh(np.sqrt(total) * x) ** 2 - alpha - datum - added * slope**2
        expected = [alpha, np.sqrt(added) * slope, datum, rest]
        np.testing.assert_allclose([float(y[c]) for y in found[1:]], expected, rtol=1e-6)


def test_the_mean_of_the_spectrum_is_the_mean_square_of_a_feature():
    model = sv.FeatureDiffusion(share=0.3, width=1.5)
    bulk = model.bulk()
    edges = np.geomspace(1e-3, 40.0, 20001)
    below, _ = equivalents.distribution(bulk, jnp.asarray(edges), 0.4)
    mean = float(np.sum(np.diff(below) * 0.5 * (edges[1:] + edges[:-1])))
    c = bulk.classes
    assert mean == pytest.approx(float(jnp.sum(c.share * (c.linear + c.noise**2 + c.datum + c.rest))), rel=1e-6)
    assert float(below[0]) == pytest.approx(0.0, abs=1e-7)
    assert float(below[-1]) == pytest.approx(1.0, abs=1e-7)


def test_the_atom_has_the_mass_of_features_that_no_datum_and_no_dimension_reaches():
    """1 − (1 + ψ_n)/ψ_p at σ²."""
    bulk = sv.FeatureDiffusion(width=8.0, samples=2.0).bulk()
    around = jnp.asarray([0.99, 1.01]) * bulk.rest
    below, _ = equivalents.distribution(bulk, around, 0.4)
    assert float(below[0]) == pytest.approx(0.0, abs=1e-7)
    assert float(below[1]) == pytest.approx(1 - 3 / 8, abs=1e-7)


def test_traces_of_two_resolvents_are_those_of_a_large_matrix():
    """The Gaussian equivalent itself, d = 400: f(U) = e^{−U} in all three traces and in both losses."""
    model = sv.FeatureDiffusion(share=0.3, width=2.0, samples=1.5, diffusion_time=0.5)
    bulk, decay = model.bulk(), 1 - np.exp(-1.0)
    d, rng = 400, np.random.default_rng(0)
    p, n = 2 * d, (180, 420)
    c = [np.asarray(x) for x in bulk.classes]
    w = rng.normal(size=(p, d))
    m = w @ w.T / d
    values, vectors = np.linalg.eigh(m)
    parts = []
    for k, number in enumerate(n):
        root = np.sqrt(c[1][k] * np.maximum(values, 0) + c[3][k])
        h = (vectors * root) @ rng.normal(size=(p, number)) / np.sqrt(sum(n))
        parts.append(h @ h.T)
    u = sum(parts) + float(bulk.noise) * m + float(bulk.rest) * np.eye(p)
    lam, q = np.linalg.eigh(u)
    mean = float(np.sum(c[0] * c[2]))
    train, test = equivalents.curves(bulk, jnp.asarray(decay), 160).losses(jnp.log(jnp.asarray([2.0, 40.0])))
    for i, tau in enumerate((2.0, 40.0)):
        g = (q * ((1 - np.exp(-decay * tau * lam)) / lam)) @ q.T
        cross, square, single = (np.trace(x) / d for x in (m @ g, m @ g @ m @ g, m @ g @ g))
        for k in (0, 1):
            common = 1 - 2 * mean * c[2][k] * cross
            on_test = common + mean**2 * ((c[1][k] + c[2][k] ** 2) * square + (c[3][k] + c[4][k]) * single)
            own = np.trace(m @ g @ parts[k] @ g) / d / c[0][k]
            on_train = common + mean**2 * (own + c[2][k] ** 2 * square + c[4][k] * single)
            assert float(test[i, k]) == pytest.approx(on_test, rel=0.005)
            assert float(train[i, k]) == pytest.approx(on_train, rel=0.005)


def test_classes_of_equal_variance_have_equal_curves_at_any_share(theory):
    even, odd = (theory(share=share, first_spread=1.0, second_spread=1.0) for share in (0.5, 0.93))
    for name in ("test_loss", "train_loss", "memorisation_time", "learning_time", "best_time", "spectrum"):
        np.testing.assert_allclose(even[name], odd[name], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(even.test_loss[:, 0], even.test_loss[:, 1], rtol=1e-12)


def test_with_many_samples_train_and_test_agree_and_with_no_time_nothing_is_learnt(theory):
    many = theory(samples=1000.0, width=1.0)
    np.testing.assert_allclose(many.train_loss, many.test_loss, rtol=0.01)
    early = sv.FeatureDiffusion(**PLAIN | {"times": [0.0, 1e-9, 1e-6, 1e-4]}).theory()
    np.testing.assert_allclose(early.test_loss[0], 1.0, atol=1e-12)
    np.testing.assert_allclose(early.train_loss[:2], 1.0, atol=1e-7)


def test_clocks_are_where_the_curves_say(theory):
    found = theory(share=0.7)
    for c in (0, 1):
        learning, best, memorisation = (float(found[f"{n}_time"][c]) for n in ("learning", "best", "memorisation"))
        points = [learning, *np.array([0.98, 1.0, 1.02]) * best]
        order = np.argsort(points)
        curve = np.asarray(sv.FeatureDiffusion(**PLAIN | {"times": np.sort(points)}, share=0.7).theory().test_loss)[
            :, c
        ]
        curve = dict(zip(order, curve, strict=True))
        lowest = float(found.best_loss[c])
        assert curve[0] == pytest.approx(0.5 * (1 + lowest), abs=1e-9)
        assert curve[2] == pytest.approx(lowest, abs=1e-12)
        assert min(curve[1], curve[3]) > lowest
        late = sv.FeatureDiffusion(**PLAIN | {"times": [1e-3, 1.0, memorisation, 1e9]}, share=0.7).theory()
        gap = np.asarray(late.test_loss - late.train_loss)[:, c]
        assert gap[2] == pytest.approx(gap[3] / 2, rel=1e-6)


def test_the_noise_is_averaged_exactly():
    """Second moments of features from the series against those of 200,000 drawn noises, two data and three features."""
    rng = np.random.default_rng(1)
    w, x = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    w[1] = 0.6 * w[0] + 0.8 * w[1]
    time = 0.3
    decay = 1 - np.exp(-2 * time)
    flat = training.Population(jnp.zeros((1, 4)), jnp.ones((1, 4)))
    done = training.train(jnp.tanh, jnp.asarray(w), jnp.asarray(x), jnp.ones((1, 2)), flat, jnp.asarray(time))
    noise = rng.normal(size=(200_000, 4))
    u, v = np.zeros((3, 3)), np.zeros((3, 4))
    for point in x:
        phi = np.tanh((np.exp(-time) * point + np.sqrt(decay) * noise) @ w.T / 2)
        u += phi.T @ phi / len(noise) / 2
        v += phi.T @ noise / len(noise) / 2
    np.testing.assert_allclose(np.asarray(done.eigenvalues), np.linalg.eigvalsh(u), rtol=0.02)
    lam, q = np.linalg.eigh(u)
    for tau in (1.0, 20.0):
        g = (q * ((1 - np.exp(-decay * tau * lam)) / lam)) @ q.T
        loss = 1 + (np.trace(v.T @ g @ u @ g @ v) - 2 * np.trace(v.T @ g @ v)) / 4
        assert float(done.losses(jnp.log(jnp.asarray([tau])))[0][0, 0]) == pytest.approx(loss, abs=0.01)
    fresh = rng.normal(size=(200_000, 4)) * np.exp(-time) + np.sqrt(decay) * noise
    phi = np.tanh(fresh @ w.T / 2)
    g = (q * ((1 - np.exp(-decay * 20.0 * lam)) / lam)) @ q.T
    score = -phi @ g @ v
    loss = np.mean(np.sum((score + noise) ** 2, axis=1)) / 4
    assert float(done.losses(jnp.log(jnp.asarray([20.0])))[1][0, 0]) == pytest.approx(loss, abs=0.01)


def test_gradient_flow_is_followed_by_small_steps():
    """dA/dτ = −(d/2)∂L/∂A from A = 0, in ten thousand Euler steps, against the closed form that the losses use."""
    rng = np.random.default_rng(2)
    d, p, n, time = 4, 6, 5, 0.4
    w, x, decay = rng.normal(size=(p, d)), rng.normal(size=(n, d)), 1 - np.exp(-0.8)
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    grid = np.stack(np.meshgrid(*[nodes] * d), -1).reshape(-1, d)
    weight = np.prod(np.stack(np.meshgrid(*[weights] * d), -1).reshape(-1, d), axis=1)
    weight /= weight.sum()
    noised = np.exp(-time) * x[:, None, :] + np.sqrt(decay) * grid[None]
    phi = np.tanh(noised @ w.T / np.sqrt(d))
    flat_phi, all_noise = phi.reshape(-1, p), np.tile(grid, (n, 1))
    weight = np.tile(weight, n) / n
    u, v = (flat_phi.T * weight) @ flat_phi, (flat_phi.T * weight) @ all_noise
    a, step = np.zeros((d, p)), 1e-3
    for _ in range(10_000):
        a -= step * np.sqrt(decay) * (np.sqrt(decay) * a @ u + v.T)
    loss = weight @ np.sum((np.sqrt(decay) * flat_phi @ a.T + all_noise) ** 2, axis=1) / d
    flat = training.Population(jnp.zeros((1, d)), jnp.ones((1, d)))
    done = training.train(jnp.tanh, jnp.asarray(w), jnp.asarray(x), jnp.ones((1, n)), flat, jnp.asarray(time))
    assert float(done.losses(jnp.log(jnp.asarray([10.0])))[0][0, 0]) == pytest.approx(loss, abs=2e-3)


def test_fast_modes_of_a_realisation_have_the_density_of_the_theory():
    """Slow ones too, but lengths of features, |w|²/d = 1 + O(d^-1/2), spread their narrow peaks over several bins."""
    model = sv.FeatureDiffusion(**PLAIN)
    drawn = np.mean([model.simulate(seed, 60).spectrum for seed in range(4)], axis=0)
    fast = model.coordinates()["eigenvalue"] > 0.15
    np.testing.assert_allclose(drawn[fast], np.asarray(model.theory().spectrum)[fast], atol=0.006)
    assert drawn.sum() == pytest.approx(1.0, abs=1e-5)


def test_padding_changes_nothing():
    rng = np.random.default_rng(3)
    w, x = rng.normal(size=(9, 5)), rng.normal(size=(7, 5))
    member = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1.0]])
    flat = training.Population(jnp.zeros((2, 5)), jnp.asarray([[0.5], [2.0]]) * jnp.ones((2, 5)))
    times = jnp.log(jnp.asarray([1.0, 100.0]))

    def losses(weights, data, member):
        arrays = jnp.asarray(weights), jnp.asarray(data), jnp.asarray(member)
        return training.train(jnp.tanh, *arrays, flat, jnp.asarray(0.2)).losses(times)

    tight = losses(w, x, member)
    wide = [np.pad(w, ((0, 3), (0, 0))), np.pad(x, ((0, 2), (0, 0))), np.pad(member, ((0, 0), (0, 2)))]
    loose = losses(*wide)
    np.testing.assert_allclose(tight, loose, rtol=1e-9)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_class_probabilities_of_equal_variances_are_a_gaussian_integral(share):
    for t in (1.0, 2.5, 4.0):
        strength = np.exp(-2 * t) * 800.0
        odds = np.log(share / (1 - share))

        def weighted(z, odds=odds, strength=strength):
            return expit(odds + strength / 2 + np.sqrt(strength) * z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

        expected = quad(weighted, -12, 12, epsabs=1e-12, limit=200)[0]
        shares = jnp.asarray([share, 1 - share])
        found = speciation.class_probabilities(shares, jnp.ones(2), 800.0, 200.0, jnp.asarray([t]), 96)
        assert float(found[0, 0]) == pytest.approx(expected, abs=1e-9)


def test_class_probabilities_of_unequal_variances_are_those_of_drawn_samples_in_three_dimensions():
    share, spread, t = np.array([0.3, 0.7]), np.array([0.4, 2.5]), 0.3
    rng, d, number = np.random.default_rng(4), 3, 400_000
    g = np.exp(-2 * t) * spread + 1 - np.exp(-2 * t)
    centre = np.exp(-t) * np.array([[0.0, 0, 0], [1.0, 1.0, 0.5]])
    exact = speciation.class_probabilities(jnp.asarray(share), jnp.asarray(spread), 2.25, 3.0, jnp.asarray([t]), 96)
    for c in (0, 1):
        x = centre[c] + np.sqrt(g[c]) * rng.normal(size=(number, d))
        logs = [np.log(share[k]) - d / 2 * np.log(g[k]) - ((x - centre[k]) ** 2).sum(1) / 2 / g[k] for k in (0, 1)]
        drawn = expit(logs[c] - logs[1 - c])
        assert abs(drawn.mean() - float(exact[0, c])) < 4 * drawn.std() / np.sqrt(number)


def test_two_of_three_classes_far_from_the_third_speciate_like_two():
    """A class of vanishing share leaves the other two alone."""
    times = np.array([2.0, 2.5, 3.0])
    three = three_classes(np.array([0.7, 0.3 - 1e-9, 1e-9]), 800.0, times)
    shares = jnp.asarray([0.7, 0.3])
    two = speciation.class_probabilities(shares, jnp.ones(2), 800.0, 200.0, jnp.asarray(times), 96)
    np.testing.assert_allclose(three[:, :2], two, atol=1e-6)


def test_classes_that_overlap_from_the_start_never_speciate():
    shares = jnp.asarray([0.5, 0.5])
    assert float(speciation.speciation_time(shares, jnp.ones(2), jnp.asarray(0.5), jnp.asarray(50.0), 96)) == 0.0


def test_any_number_of_classes_can_be_given():
    """Three classes, two of which are the same, are two."""
    spread = jnp.asarray([0.5, 0.5, 2.0])
    three = equivalents.classes(jnp.tanh, jnp.asarray([0.2, 0.3, 0.5]), spread, jnp.asarray(0.1))
    two = sv.FeatureDiffusion().bulk()
    times = jnp.log(jnp.asarray(TIMES))
    at = equivalents.Bulk(three, two.width, two.samples)
    losses = [np.stack(equivalents.curves(b, jnp.asarray(0.18), 160).losses(times)) for b in (at, two)]
    np.testing.assert_allclose(losses[0][..., 1:], losses[1], rtol=1e-10)
    np.testing.assert_allclose(losses[0][..., 0], losses[0][..., 1], rtol=1e-12)


def test_derivatives_are_those_of_differences(theory):
    model = sv.FeatureDiffusion(**PLAIN)

    def total(width):
        out = model.with_values({"width": width}).theory()
        return jnp.sum(out.test_loss) + jnp.sum(jnp.log(out.memorisation_time)) + jnp.sum(jnp.log(out.best_time))

    slope = float(jax.jacfwd(total)(jnp.asarray(4.0)))
    h = 1e-3
    difference = float(total(jnp.asarray(4.0 + h)) - total(jnp.asarray(4.0 - h))) / (2 * h)
    assert slope == pytest.approx(difference, rel=1e-5)


def test_the_probability_of_a_rare_class_has_the_accuracy_of_a_common_one():
    nodes = dict(sv.FeatureDiffusion.numerics)["speciation_nodes"]
    shares, times = jnp.asarray([1e-6, 1 - 1e-6]), jnp.asarray([0.01, 0.5, 2.0])
    for spread in ([0.05, 10.0], [10.0, 0.05], [1.0, 1.0]):
        found = [
            np.asarray(speciation.class_probabilities(shares, jnp.asarray(spread), 20.0, 50.0, times, n))
            for n in (nodes, 2 * nodes)
        ]
        np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)


def test_a_gap_that_rounding_hides_has_no_time_of_memorisation():
    features = {"samples": 5.1, "share": 0.00063, "first_spread": 0.144, "second_spread": 0.292, "diffusion_time": 3.0}
    out = sv.FeatureDiffusion(**features, width=0.087, separation=2.56e6, dimension=30_000.0).theory()
    gap = np.asarray(out.test_loss - out.train_loss)[-1]
    assert (np.abs(gap) < 1e-8).all()
    assert np.isnan(np.asarray(out.memorisation_time)).all()
    assert np.isfinite(np.asarray(out.test_loss)).all()
    assert np.isfinite(np.asarray(out.learning_time)).all()
    assert np.isfinite(np.asarray(sv.FeatureDiffusion().theory().memorisation_time)).all()
