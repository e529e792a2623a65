"""`learn`: random labels, any covariances against scikit-learn, stability, limits, your own losses, the best penalty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.risk.covariate import (
    STATUSES,
    Clouds,
    Linear,
    Sign,
    Spectrum,
    best_penalty,
    clouds,
    isotropic,
    joint_spectrum,
    learn,
    of_matrices,
    power_law,
    student,
)
from solvable.methods.risk.losses import Logistic, smooth_loss

ROOM, LANES = 300, 24
RAMP = joint_spectrum(2 * np.arange(1, 301) / 300, np.zeros(300))
POWER = power_law(jnp.asarray(0.6), jnp.asarray(0.0), 300)
BLIND = POWER._replace(tau=jnp.zeros(300), unexplained=jnp.ones(()))


@jax.jit
def _logistic(*a):
    return jax.vmap(lambda s, n, p, d, e: learn("logistic", Sign(d, e), s, n, p))(*a)


@jax.jit
def _hinge(*a):
    return jax.vmap(lambda s, n, p, d, e: learn("hinge", Sign(d, e), s, n, p))(*a)


@jax.jit
def _square(*a):
    return jax.vmap(lambda s, n, p, d, e: learn("square", Sign(d, e), s, n, p))(*a)


PROGRAMS = {"logistic": _logistic, "hinge": _hinge, "square": _square}


def padded(s: Spectrum) -> list[np.ndarray]:
    """The same spectrum with directions of no weight: one program for all."""
    more = ROOM - s.omega.shape[0]
    arrays = [np.pad(np.asarray(v), (0, more), constant_values=c) for v, c in zip(s[:3], (1.0, 0.0, 0.0), strict=True)]
    return [*arrays, np.asarray(s.unexplained)]


def learned(loss, cases):
    """`learn` at (spectrum, samples, penalty, noise, flips), in batches of one fixed size."""
    full = [*cases, *[cases[-1]] * (LANES - len(cases))]
    spectra = Spectrum(*(jnp.asarray(np.stack(v)) for v in zip(*(padded(c[0]) for c in full), strict=True)))
    numbers = [jnp.asarray(np.array([float(c[i]) for c in full])) for i in range(1, 5)]
    return jax.tree.map(lambda v: np.asarray(v)[: len(cases)], PROGRAMS[loss](spectra, *numbers))


def test_random_labels_without_penalty_have_the_known_training_losses_whatever_the_covariance():
    known = {
        "logistic": (0.4252700497, 0.4858703592, 0.581148),
        "hinge": (0.412549, 0.5053248130, 0.6709471351),
        "square": (0.3, 1 / 3, 0.4),
    }
    for loss, values in known.items():
        cases = [(s, a, 0.0, 0.0, 0.5) for s in (isotropic(), RAMP, POWER) for a in (2.5, 3.0, 5.0)]
        found = learned(loss, cases)
        np.testing.assert_allclose(found.train_loss.reshape(3, 3), [values] * 3, atol=5e-7)
        assert (found.status == 0).all()
        assert np.abs(found.m).max() < 1e-12
        assert np.abs(found.test_error - 0.5).max() < 1e-12


def test_random_labels_with_a_penalty_follow_their_own_covariance():
    """Values of an independent solver, one of which 7974 simulated draws confirm: 0.33583(24)."""
    logistic = learned("logistic", [(RAMP, 1.5, 0.05, 0, 0.5), (BLIND, 1.5, 0.05, 0, 0.5), (POWER, 3.0, 1e-4, 0, 0.5)])
    np.testing.assert_allclose(logistic.train_loss, [0.3356497484, 0.3275724389, 0.4858705957], atol=1e-9)
    hinge = learned("hinge", [(POWER, 3.0, 0.05, 0, 0.5)])
    np.testing.assert_allclose(hinge.train_loss, 0.5157182578, atol=1e-9)
    square = learned("square", [(RAMP, 1.5, 0.1, 0, 0.5)])
    np.testing.assert_allclose(square.train_loss, 0.1951519003, atol=1e-9)


def test_without_penalty_a_missing_minimum_is_nan_with_a_reason():
    words = {code: text.partition(":")[0] for code, text in enumerate(STATUSES)}
    cases = [(isotropic(), a, 0.0, 0.0, 0.1) for a in (0.5, 1.0, 2.98, 3.01)]
    for loss in ("logistic", "hinge"):
        found = learned(loss, cases)
        assert [words[s] for s in found.status] == ["separable"] * 3 + ["converged"]
        assert np.isnan(found.q[:3]).all()
        assert np.isnan(found.test_error[:3]).all()
        assert found.q[3] > 1e3  # α_c = 2.9923 is near
    square = learned("square", cases)
    assert [words[s] for s in square.status] == ["interpolates", "singular", "converged", "converged"]
    np.testing.assert_allclose(square.train_loss[[0, 2]], [0, 0.5 * square.squared_error[2] * (1 - 1 / 2.98) ** 2])
    assert square.train_error[0] == 0
    near = learned("square", [(RAMP, 0.7, 1e-9, 0.1, 0.1), (RAMP, 0.7, 0.0, 0.1, 0.1)])
    for name in ("m", "q", "test_error", "stability"):  # the limit is a limit
        np.testing.assert_allclose(*getattr(near, name), rtol=1e-7)


def test_convex_losses_are_always_stable():
    grid = [
        (s, a, p, 0.1, e) for s in (POWER, RAMP) for a in (0.3, 1.0, 4.0) for p in (1e-6, 1e-2, 10.0) for e in (0, 0.5)
    ]
    for loss in PROGRAMS:
        for some in (grid[:LANES], grid[LANES:]):
            found = learned(loss, some)
            assert found.converged.all()
            assert (found.stability >= 0).all()
            assert (found.stability < 1).all()
    # Square: α(V/(1+V))² on isotropic inputs.
    plain = learned("square", [(isotropic(), 2.0, 0.1, 0.0, 0.0)])
    np.testing.assert_allclose(plain.stability, 2 * (plain.V / (1 + plain.V)) ** 2, rtol=1e-12)


def triple(p, seed):
    """Random covariances of all variables; a teacher in its own k = p/2 inputs."""
    rng, k = np.random.default_rng(seed), p // 2
    mixing = rng.normal(size=(k + p, 2 * p)) * np.linspace(0.3, 1.5, 2 * p)
    joint = mixing @ mixing.T / (2 * p)
    return joint, k, rng.normal(size=k)


def fitted(p, samples, penalty, flips, seeds, model):
    """scikit-learn on samples of the triple: (test error given the weights, training loss), mean and error of the mean."""
    joint, k, theta = triple(p, 1)
    root = np.linalg.cholesky(joint)
    n, out = round(samples * p), []
    for seed in range(seeds):
        rng = np.random.default_rng(100 + seed)
        both = rng.normal(size=(n, k + p)) @ root.T
        y = np.sign(both[:, :k] @ theta)
        y = np.where(rng.random(n) < flips, -y, y)
        x = both[:, k:] / np.sqrt(p)
        w, loss = model(x, y, penalty)
        Psi, Phi, Omega = joint[:k, :k], joint[:k, k:], joint[k:, k:]
        cosine = theta @ Phi @ w / np.sqrt((w @ Omega @ w) * (theta @ Psi @ theta))
        out.append([flips + (1 - 2 * flips) * np.arccos(cosine) / np.pi, loss(y * (x @ w)).mean()])
    return np.mean(out, 0), np.std(out, 0, ddof=1) / np.sqrt(seeds)


def sklearn_logistic(x, y, penalty):
    from sklearn.linear_model import LogisticRegression

    fit = LogisticRegression(C=1 / penalty, fit_intercept=False, solver="newton-cholesky", tol=1e-8).fit(x, y)
    return fit.coef_[0], lambda margin: np.logaddexp(0, -margin)


def sklearn_ridge(x, y, penalty):
    from sklearn.linear_model import Ridge

    return Ridge(alpha=penalty, fit_intercept=False).fit(x, y).coef_, lambda margin: 0.5 * (1 - margin) ** 2


def sklearn_svm(x, y, penalty):
    from sklearn.svm import LinearSVC

    options = {
        "loss": "hinge",
        "dual": True,
        "fit_intercept": False,
        "tol": 1e-5,
        "max_iter": 100_000,
        "random_state": 0,
    }
    return LinearSVC(C=1 / penalty, **options).fit(x, y).coef_[0], lambda margin: np.maximum(1 - margin, 0)


FITS = {"logistic": sklearn_logistic, "square": sklearn_ridge, "hinge": sklearn_svm}


@pytest.mark.parametrize(("loss", "penalty"), [("logistic", 0.1), ("square", 0.3), ("hinge", 0.3)])
def test_any_covariances_agree_with_scikit_learn_at_two_sizes(loss, penalty):
    samples, flips, deviations = 2.0, 0.05, []
    for p, seeds in ((80, 24), (200, 10)):
        joint, k, theta = triple(p, 1)
        spectrum = of_matrices(joint[:k, :k], joint[:k, k:], joint[k:, k:], theta)
        found = learned(loss, [(spectrum, samples, penalty, 0.0, flips)])
        theory = np.array([found.test_error[0], found.train_loss[0]])
        mean, error = fitted(p, samples, penalty, flips, seeds, FITS[loss])
        assert (error < 0.03 * theory).all()
        assert (np.abs(mean - theory) < 4 * error + 0.8 / p * theory).all()
        deviations.append(np.abs(mean - theory) / theory)
    assert (deviations[1] < 0.04).all()


def test_two_clouds_agree_with_scikit_learn_and_random_labels_do_not_see_them():
    p, samples, penalty, flips = 150, 2.0, 0.1, 0.05
    rng = np.random.default_rng(2)
    Omega = np.diag(np.linspace(0.4, 1.6, p))
    mean = rng.normal(size=p)
    mean = 1.5 * mean / np.linalg.norm(mean)
    program = jax.jit(lambda e: learn("logistic", Clouds(e), clouds(mean, Omega), samples, penalty))
    found, blind = program(jnp.asarray(flips)), program(jnp.asarray(0.5))
    out = []
    for _ in range(16):
        c = np.where(rng.random(300) < 0.5, -1.0, 1.0)
        x = (c[:, None] * mean + rng.normal(size=(300, p)) * np.sqrt(np.diag(Omega))) / np.sqrt(p)
        y = np.where(rng.random(300) < flips, -c, c)
        w, loss = sklearn_logistic(x, y, penalty)
        out.append([w @ mean / np.sqrt(p), w @ Omega @ w / p, loss(y * (x @ w)).mean()])
    mean_of, error = np.mean(out, 0), np.std(out, 0, ddof=1) / 4
    theory = np.array([found.m, found.q, found.train_loss])
    assert (np.abs(mean_of - theory) < 4 * error + 1.0 / p * theory).all()
    assert (error < 0.04 * theory).all()
    homogeneous = joint_spectrum(np.diag(Omega), np.zeros(p))
    random = learned("logistic", [(homogeneous, samples, penalty, 0.0, 0.5)])
    np.testing.assert_allclose(blind.train_loss, random.train_loss[0], rtol=1e-10)
    assert abs(blind.m) < 1e-10


def test_a_loss_that_is_not_convex_becomes_unstable_when_its_penalty_is_small_and_has_many_minima_there():
    loss = smooth_loss(lambda y, z: jax.nn.sigmoid(-2 * y * z), convex=False)
    penalties = (2.0, 0.5, 0.3, 0.05)
    found = jax.jit(jax.vmap(lambda p: learn(loss, Sign(flips=0.5), isotropic(), 3.0, p)))(jnp.asarray(penalties))
    assert (found.stability[:2] < 1).all()
    assert 1 < found.stability[2] < 2
    assert float(-loss.least_curvature * found.V[2]) < 1  # its proximal operator is still smooth
    assert np.isinf(found.stability[3])
    assert found.status.tolist() == [0, 0, 4, 4]

    from scipy.optimize import minimize

    rng, p, n = np.random.default_rng(0), 100, 300
    x = rng.normal(size=(n, p)) * rng.choice([-1.0, 1.0], size=(n, 1)) / np.sqrt(p)

    def minima(penalty):
        def risk(w):
            s = 1 / (1 + np.exp(2 * x @ w))
            return s.sum() + 0.5 * penalty * w @ w, x.T @ (-2 * s * (1 - s)) + penalty * w

        fits = [minimize(risk, 2 * rng.normal(size=p), jac=True, options={"gtol": 1e-8}) for _ in range(3)]
        return np.ptp([f.fun for f in fits]) / n, fits[0].x @ fits[0].x / p

    spread, norm = minima(penalties[1])
    assert spread < 1e-9
    assert abs(norm - found.q[1]) < 0.15 * found.q[1]
    assert minima(penalties[3])[0] > 1e-4


def test_a_loss_with_a_weight_for_each_label_agrees_with_scikit_learn():
    """ℓ(−y, −z) ≠ ℓ(y, z): both labels are integrated."""
    from sklearn.linear_model import LogisticRegression

    loss = smooth_loss(lambda y, z: (1.5 + y) * jax.nn.softplus(-y * z))
    assert not loss.symmetric
    samples, penalty, p = 2.0, 0.1, 200
    found = learn(loss, Sign(0.2), isotropic(), samples, penalty)
    rng, out = np.random.default_rng(1), []
    for _ in range(16):
        x = rng.normal(size=(400, p))
        y = np.sign(x[:, 0] + np.sqrt(0.2) * rng.normal(size=400))
        fit = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-8, class_weight={1: 2.5, -1: 0.5})
        w = fit.fit(x / np.sqrt(p), y).coef_[0]
        out.append([w[0] / np.sqrt(p), w @ w / p])
    mean, error = np.mean(out, 0), np.std(out, 0, ddof=1) / 4
    assert (np.abs(mean - np.array([found.m, found.q])) < 4 * error + np.array([found.m, found.q]) / p).all()


def test_a_custom_loss_equals_the_built_in_one():
    mine = smooth_loss(lambda y, z: jnp.logaddexp(0.0, -y * z))
    for samples, penalty in ((0.5, 1e-4), (4.0, 0.01)):
        numbers = [jnp.asarray(v) for v in (samples, penalty)]
        ours, known = (student(loss, Sign(0.1, 0.05), POWER, *numbers) for loss in (mine, Logistic()))
        np.testing.assert_allclose(ours[:4], known[:4], rtol=1e-8)


def test_robust_regression_of_a_linear_teacher_agrees_with_a_minimiser():
    from scipy.optimize import minimize

    huber = smooth_loss(lambda y, z: jnp.sqrt(1 + (y - z) ** 2))
    p, samples, penalty, noise = 150, 2.0, 0.2, 0.5
    found = learn(huber, Linear(noise), isotropic(), samples, penalty)
    rng, out = np.random.default_rng(3), []
    for _ in range(16):
        x = rng.normal(size=(round(samples * p), p))
        y = x[:, 0] + np.sqrt(noise) * rng.normal(size=len(x))
        a = x / np.sqrt(p)

        def risk(w, a=a, y=y):
            r = a @ w - y
            return np.sqrt(1 + r**2).sum() + 0.5 * penalty * w @ w, a.T @ (r / np.sqrt(1 + r**2)) + penalty * w

        w = minimize(risk, np.zeros(p), jac=True, method="L-BFGS-B").x
        out.append([w[0] / np.sqrt(p), w @ w / p, np.sqrt(1 + (a @ w - y) ** 2).mean()])
    mean, error = np.mean(out, 0), np.std(out, 0, ddof=1) / 4
    theory = np.array([found.m, found.q, found.train_loss])
    assert (np.abs(mean - theory) < 4 * error + theory / p).all()


def test_the_best_penalty_is_where_a_fine_scan_has_its_minimum():
    spectrum = power_law(jnp.asarray(1.2), jnp.asarray(0.6), ROOM)
    best = jax.vmap(lambda n: best_penalty("square", Sign(0.2), spectrum, n))(jnp.asarray([0.5, 1.0, 2.0]))
    assert not best.at_bound.any()
    assert np.abs(best.slope).max() < 1e-10
    for i, samples in enumerate((0.5, 1.0, 2.0)):
        near = float(best.penalty[i]) * np.exp(np.linspace(-0.1, 0.1, 21))
        found = learned("square", [(spectrum, samples, p, 0.2, 0.0) for p in near])
        assert int(found.test_error.argmin()) == 10
        far = learned("square", [(spectrum, samples, p, 0.2, 0.0) for p in np.geomspace(1e-5, 1e3, LANES)])
        assert far.test_error.min() >= float(best.value[i])


def test_the_best_penalty_of_logistic_regression_is_where_a_fine_scan_has_its_minimum():
    best = best_penalty("logistic", Sign(0.2, 0.05), POWER, 1.5)
    near = float(best.penalty) * np.exp(np.linspace(-0.1, 0.1, 21))
    found = learned("logistic", [(POWER, 1.5, p, 0.2, 0.05) for p in near])
    assert int(found.test_error.argmin()) == 10
    assert abs(best.slope) < 1e-9


WRONG = {
    "penalty = -1 is outside its range [0, ∞).": lambda: learn("square", Sign(), isotropic(), 1.0, -1),
    "samples = 0 is outside its range (0, ∞).": lambda: learn("square", Sign(), isotropic(), 0.0, 1.0),
    "samples = [1, 2] is not a number; use jax.vmap": lambda: learn("square", Sign(), isotropic(), [1, 2], 1.0),
    "flips = 0.6 is outside its range [0, 0.5].": lambda: Sign(flips=0.6),
    "noise = nan is outside its range [0, ∞).": lambda: Linear(np.nan),
    "loss = Hinge needs labels ±1": lambda: learn("hinge", Linear(), isotropic(), 1.0, 1.0),
    "there is no loss 'hing'": lambda: learn("hing", Sign(), isotropic(), 1.0, 1.0),
    "minimise = 'test_error' needs labels ±1": lambda: best_penalty("square", Linear(), isotropic(), 1.0),
    "between = (2.0, 1.0) is not a range": lambda: best_penalty("square", Sign(), isotropic(), 1.0, between=(2.0, 1.0)),
    "function has the curvature -0.0962": lambda: smooth_loss(lambda y, z: jax.nn.sigmoid(-y * z)),
    "function has the value inf at y = 1, z = -30": lambda: smooth_loss(lambda y, z: jnp.exp(-1e3 * y * z)),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_input_is_refused_in_one_sentence(sentence):
    with pytest.raises(sv.SolvableError) as problem:
        WRONG[sentence]()
    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)
