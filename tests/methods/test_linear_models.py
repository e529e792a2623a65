"""The parts of composed linear models against brute force, SciPy and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import log_ndtr

from solvable.errors import InvalidValue
from solvable.methods.risk import mixtures, real_losses
from solvable.methods.risk.bayes_optimal import Bayes, solutions, thresholds
from solvable.methods.risk.losses import Hinge, Logistic, Square, smooth_loss
from solvable.methods.risk.outputs import Additive, Fields, Labels, own_channel, poisson
from solvable.methods.risk.penalties import Elastic
from solvable.methods.risk.priors import named, own_prior
from solvable.methods.risk.splitting import minimise

LOSSES = {
    "square": real_losses.square(),
    "absolute": real_losses.absolute(),
    "huber": real_losses.huber(0.7),
    "quantile": real_losses.quantile(0.8),
    "exponential": real_losses.Exponential(),
    "poisson": real_losses.Counts(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_proximal_map_minimises_its_objective(name):
    loss = LOSSES[name]
    for y, centre, width in ((1.0, -0.7, 0.3), (1.0, 2.4, 1.7), (1.0, 0.2, 5.0)):
        found = float(loss.prox(jnp.asarray([y]), jnp.asarray([centre]), jnp.asarray([width]))[0])
        z = np.linspace(-8, 8, 160_001)
        height = (z - centre) ** 2 / (2 * width) + np.asarray(loss.value(jnp.full(z.shape, y), jnp.asarray(z)))
        assert abs(found - z[height.argmin()]) < 2e-4


def test_mixtures_are_the_laws_they_stand_for():
    t = np.linspace(-3, 3, 13)
    law = mixtures.asymmetric_laplace(0.5, 0.3)
    b = np.sqrt(0.5) * 0.21 / np.sqrt(1 - 0.42)
    density = lambda e: 0.21 / b * np.exp(-e * (0.3 - (e < 0)) / b)  # noqa: E731
    for place in t:
        # smoothed by a unit Gaussian, because the mixture's atom at zero stands for a narrow peak
        smooth = lambda e, place=place: density(e) * stats.norm.cdf(place - e)  # noqa: E731
        wanted = integrate.quad(smooth, -30, 0)[0] + integrate.quad(smooth, 0, 30)[0]
        wide = law.widened(1.0)
        assert abs(float(mixtures.beyond(wide, jnp.asarray(place), -1.0)) - wanted) < 1e-9


def test_piecewise_forces_are_those_of_quadrature():
    law = mixtures.asymmetric_laplace(0.4, 0.3).widened(0.2)
    for name in ("absolute", "huber", "quantile", "square"):
        loss, V = LOSSES[name], jnp.asarray(0.6)
        found = loss.forces(law, V)
        a = np.linspace(-40, 40, 400_001)
        mass = sum(
            w * stats.norm.pdf(a, m, np.sqrt(v)) for m, v, w in zip(*(np.asarray(x) for x in law), strict=True)
        ) * (a[1] - a[0])
        f, _ = loss.pull(jnp.asarray(a), jnp.zeros(a.shape), jnp.full(a.shape, 0.6))
        kept = loss.value(jnp.asarray(a), 0.6 * f)
        fresh = loss.value(jnp.asarray(a), jnp.zeros(a.shape))
        for value, wanted in ((found.square, f**2), (found.train_loss, kept), (found.test_loss, fresh)):
            assert abs(float(value) - float(mass @ np.asarray(wanted))) < 1e-7


def test_penalties_are_those_of_quadrature():
    prior, one = mixtures.sparse(0.3), jnp.ones(())
    for penalty in (Elastic(0.4), Elastic(l2=0.7), Elastic(0.3, 0.2), Elastic(l2=0.3, bound=0.8)):
        k = 0.9 + float(penalty.curvature)
        found = penalty.weights(prior, 1.3 * one, 0.5 * one, jnp.asarray(k))
        overlap = norm = 0.0
        rng = np.linspace(-9, 9, 1201)
        mass = stats.norm.pdf(rng) * (rng[1] - rng[0])
        for share, size in ((0.7, 0.0), (0.3, np.sqrt(1 / 0.3))):
            w0 = size * rng[:, None]
            w = np.asarray(
                penalty.prox(jnp.asarray((1.3 * w0 + np.sqrt(0.5) * rng[None, :]) / 0.9), jnp.asarray(1 / 0.9))
            )
            overlap += share * mass @ (w0 * w) @ mass
            norm += share * mass @ w**2 @ mass
        assert abs(float(found.overlap) - overlap) < 1e-5
        assert abs(float(found.norm) - norm) < 1e-5


def test_free_energy_is_stationary_at_its_solutions():
    for prior, channel in (
        (named("sparse", 0.3), Additive(mixtures.gaussian(0.05))),
        (named("binary"), Labels(mixtures.gaussian(0.3))),
        (named("laplace"), Labels(mixtures.logistic())),
    ):
        parts = Bayes(prior, channel)
        found = solutions(parts, jnp.asarray(1.2))
        # d(−φ)/dα at a solution is minus the evidence: the rest is stationary.
        up, down = (solutions(parts, jnp.asarray(a)).free_energy[0] for a in (1.2 + 1e-4, 1.2 - 1e-4))
        rho = prior.mixture.power
        evidence = channel.information(rho - found.error[0], found.error[0], 14).evidence
        assert abs(float((up - down) / 2e-4 + evidence)) < 1e-6


def samples_where_the_entropy_vanishes():
    """The binary perceptron in Györgyi's terms: samples at which other weights than the teacher's cease to fit, by SciPy.

    Perfect learning has no entropy, so that free energies cross there too, as Barbier et al. (2019) define the threshold. They
    print 1.249, but the free energies that their public program lists, −0.695238 at 1.250 and −0.695630 at 1.251, reach −log 2
    at 1.2447.
    """

    def average(f):
        return integrate.quad(lambda z: f(z) * stats.norm.pdf(z), -12, 12, epsabs=1e-12)[0]

    def at(r):
        """Entropy and samples of the solution whose field on a weight has precision r."""
        q = average(lambda z: np.tanh(r + np.sqrt(r) * z))
        a = np.sqrt(q / (1 - q))
        slope = average(lambda t: np.exp(-((a * t) ** 2) - log_ndtr(a * t)) / (2 * np.pi))
        samples = r * (1 - q) / (2 * slope)
        evidence = 2 * average(lambda t: np.exp(log_ndtr(a * t)) * log_ndtr(a * t))
        field = average(lambda z: np.logaddexp(r + np.sqrt(r) * z, -r - np.sqrt(r) * z))
        return field - r * (1 + q) / 2 + samples * evidence, samples

    return at(optimize.brentq(lambda r: at(r)[0], 1.0, 2.0, xtol=1e-9))[1]


def test_the_binary_perceptron_jumps_where_other_weights_cease_to_fit():
    found = thresholds(Bayes(named("binary"), Labels(mixtures.gaussian(0.0))))
    wanted = samples_where_the_entropy_vanishes()
    assert abs(float(found.information) - wanted) < 1e-6
    assert abs(wanted - 1.245) < 5e-4  # Györgyi (1990), to the digits printed
    assert abs(-0.695238 + (1.250 - wanted) * 0.392 + np.log(2)) < 1e-5  # on the line of the program of Barbier et al.
    assert abs(float(found.algorithmic) - 1.493) < 1e-3


def test_a_smooth_transition_has_no_thresholds():
    found = thresholds(Bayes(named("gaussian"), Additive(mixtures.gaussian(0.1))))
    assert all(np.isnan(float(v)) for v in found)


def test_counts_have_the_fisher_information_of_brute_force():
    q, rest = 0.3, 0.2
    found = poisson().information(jnp.asarray(q), jnp.asarray(rest), 14)
    x, w = np.polynomial.hermite_e.hermegauss(40)
    w = w / w.sum()
    counts = np.arange(200)
    total = 0.0
    for xi, mass in zip(x, w, strict=True):
        rate = np.exp(np.sqrt(q) * xi + np.sqrt(rest) * x)
        table = stats.poisson.pmf(counts[:, None], rate[None, :])
        Z, dZ = table @ w, table @ (w * x) / np.sqrt(rest)
        total += mass * np.sum(dZ[Z > 1e-300] ** 2 / Z[Z > 1e-300])
    assert abs(float(found.conjugate) - total) < 1e-6


def test_own_parts_equal_the_built_in_ones():
    at, one = Fields(jnp.asarray(0.6), jnp.asarray(0.8), jnp.asarray(0.5), jnp.asarray(0.55)), jnp.ones(())
    built = Labels(mixtures.logistic()).conjugates(Logistic(), at, one, 14)
    own = own_channel(lambda y, field: -jnp.logaddexp(0.0, -y * field), "sign").conjugates(
        smooth_loss(lambda y, z: jnp.logaddexp(0.0, -y * z)), at, one, 14
    )
    np.testing.assert_allclose(np.stack(own), np.stack(built), atol=1e-8)
    prior = own_prior(lambda w: -0.5 * w**2, (-8.0, 8.0))
    np.testing.assert_allclose(prior.denoised(jnp.asarray(3.0), 14).error, 0.25, atol=1e-9)
    with pytest.raises(InvalidValue, match="interval"):
        own_prior(lambda w: -(w**2), (2.0, -2.0))


# --- the minimiser, against oracles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.004, 0.2])
@pytest.mark.parametrize("precision", [1e4, 1e8, 1e11])
def test_averages_over_sparse_weights_keep_their_digits_at_high_precision(fraction, precision):
    """A difference of two terms of order q̂ would leave 10⁻⁶ of the information; nodes between zero and slab resolve the rest."""
    prior = named("sparse", fraction)
    found, finer = (prior.denoised(jnp.asarray(precision), nodes) for nodes in (14, 56))
    # Nearly every weight is known to be zero or not: its entropy, and half the log-precision of those that are not.
    variance = 1 / fraction
    known = -fraction * np.log(fraction) - (1 - fraction) * np.log1p(-fraction)
    known += 0.5 * fraction * np.log1p(precision * variance)
    assert abs(found.information - known) < 40 * fraction * np.log(precision) / np.sqrt(precision * variance)
    np.testing.assert_allclose(found, finer, rtol=1e-7)


def test_what_is_left_of_an_error_at_high_precision_is_the_fisher_information():
    """1 − q̂ E var = I/q̂ for a smooth law; a Laplace law of unit variance has I = 2."""
    left = named("laplace").denoised(jnp.asarray(1e8), 14).slack
    assert abs(1e8 * left - 2) < 1e-3


def test_large_counts_of_many_samples_are_resolved():
    """Where fields are known well, counts near 100 have peaks a tenth wide."""
    channel = poisson()
    at = Fields(jnp.asarray(0.999), jnp.asarray(0.999), jnp.asarray(1e-3), jnp.asarray(1e-3))
    found, finer = (channel.conjugates(real_losses.square(), at, jnp.ones(()), nodes) for nodes in (14, 56))
    np.testing.assert_allclose(found, finer, rtol=1e-7)
    known, better = (channel.information(jnp.asarray(0.999), jnp.asarray(1e-3), nodes) for nodes in (14, 56))
    np.testing.assert_allclose(known, better, rtol=1e-7)


def _data(labels=False):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(60, 25)) / 5
    y = a @ rng.normal(size=25) + 0.5 * rng.normal(size=60)
    return a, np.sign(y) if labels else y


def _fit(loss, penalty, a, y):
    fit = minimise(loss, penalty, jnp.asarray(a), jnp.asarray(y), jnp.ones(len(y)), tolerance=1e-9, max_steps=20_000)
    assert fit.residual < 1e-8
    return np.asarray(fit.weights)


def test_the_minimiser_is_scikit_learns_on_sums_of_squares():
    from sklearn.linear_model import ElasticNet, Lasso

    a, y = _data()
    lasso = Lasso(alpha=0.4 / 60, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(a, y)
    np.testing.assert_allclose(_fit(real_losses.square(), Elastic(0.4), a, y), lasso.coef_, atol=1e-6)
    net = ElasticNet(alpha=0.6 / 60, l1_ratio=0.5, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(a, y)
    np.testing.assert_allclose(_fit(Square(), Elastic(0.3, 0.3), a, y), net.coef_, atol=1e-6)


def test_the_minimiser_is_scikit_learns_on_labels():
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    a, y = _data(labels=True)
    logistic = LogisticRegression(C=1 / 0.5, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(a, y)
    np.testing.assert_allclose(_fit(Logistic(), Elastic(l2=0.5), a, y), logistic.coef_[0], atol=1e-5)
    margin = LinearSVC(C=1 / 0.5, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0).fit(
        a, y
    )
    np.testing.assert_allclose(_fit(Hinge(), Elastic(l2=0.5), a, y), margin.coef_[0], atol=1e-4)


def test_the_minimiser_is_a_linear_programme_s_on_quantiles():
    from sklearn.linear_model import QuantileRegressor

    a, y = _data()
    found = _fit(real_losses.quantile(0.7), Elastic(0.05), a, y)
    oracle = QuantileRegressor(quantile=0.7, alpha=0.05 / 60, fit_intercept=False).fit(a, y)
    risk = lambda w: np.sum(np.maximum(0.7 * (y - a @ w), -0.3 * (y - a @ w))) + 0.05 * np.abs(w).sum()  # noqa: E731
    assert risk(found) <= risk(oracle.coef_) + 1e-6


def test_the_minimiser_of_counts_and_exponentials_is_that_of_a_quasi_newton_method():
    a, y = _data()
    counts = np.floor(np.exp(np.clip(y, -2, 2)))
    for loss, labels in ((real_losses.Counts(), counts), (real_losses.Exponential(), np.sign(y))):
        risk = jax.jit(
            jax.value_and_grad(
                lambda w, loss=loss, labels=labels: (
                    jnp.sum(loss.value(jnp.asarray(labels), jnp.asarray(a) @ w)) + 0.25 * w @ w
                )
            )
        )
        oracle = optimize.minimize(
            lambda w, risk=risk: [np.asarray(v) for v in risk(w)], np.zeros(25), jac=True, tol=1e-12
        )
        np.testing.assert_allclose(_fit(loss, Elastic(l2=0.5), a, labels), oracle.x, atol=1e-5)
