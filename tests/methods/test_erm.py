import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import Hinge, Logistic, Square

N, D, PADDING = 90, 40, 25


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, D)) / np.sqrt(D)
    y = np.sign(x @ rng.normal(size=D) + 0.3 * rng.normal(size=N))
    junk = 1e3 * rng.normal(size=(PADDING, D))
    return x, y, np.concatenate([x, junk]), np.concatenate([y, np.ones(PADDING)]), np.r_[np.ones(N), np.zeros(PADDING)]


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("name", ["square", "logistic", "hinge"])
def test_minimisers_match_scikit_learn_and_ignore_padding(data, name, penalty):
    x, y, padded, labels, mask = data
    loss = {"square": Square(), "logistic": Logistic(), "hinge": Hinge()}[name]
    fit = minimise_risk(loss, jnp.asarray(padded), jnp.asarray(labels), jnp.asarray(penalty), jnp.asarray(mask))
    peer = {
        "square": Ridge(alpha=penalty, fit_intercept=False, tol=1e-12),
        "logistic": LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-12, solver="newton-cholesky"),
        "hinge": LinearSVC(loss="hinge", C=1 / penalty, fit_intercept=False, tol=1e-9, max_iter=10**6),
    }[name].fit(x, y)
    w = np.ravel(peer.coef_)
    # Two approximate solutions of a λ-strongly convex problem differ by at most sqrt(2·gap/λ).
    close = 1e-9 if name != "hinge" else 2e-3
    assert np.linalg.norm(fit.weights - w) < close * (1 + np.linalg.norm(w))
    assert fit.residual < (1e-8 if name != "hinge" else 1e-5)


def test_the_certificate_detects_an_unfinished_fit(data):
    from solvable.methods.risk.erm import hinge_interior, newton

    _, _, padded, labels, mask = data
    args = (jnp.asarray(padded), jnp.asarray(labels), jnp.asarray(1e-3), jnp.asarray(mask))
    assert newton(Logistic(), *args, max_steps=1).residual > 1e-2
    assert hinge_interior(*args, max_steps=3).residual > 1e-2


def test_the_hinge_loss_is_minimised_at_the_edge_of_separability():
    """Labels that are barely not separable at a tiny penalty: steps with a fixed centring shrink to nothing here."""
    rng = np.random.default_rng(0)
    latent, projection = rng.normal(size=(600, 200)), rng.normal(size=(216, 200))
    labels = np.sign(latent @ rng.normal(size=200))
    features = np.sign(latent @ projection.T) / np.sqrt(216)
    fit = minimise_risk(Hinge(), jnp.asarray(features), jnp.asarray(labels), jnp.asarray(1e-4), jnp.ones(600))
    assert fit.residual < 1e-5
