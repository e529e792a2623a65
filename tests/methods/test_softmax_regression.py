"""Softmax regression: averages, the proximal operator and the minimiser against plain, slow implementations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from solvable.models.attention.potts_attention.softmax_regression import (
    Channel,
    conjugates,
    fresh_loss,
    gaussian_nodes,
    minimise_cross_entropy,
    softmax_prox,
    trained_loss,
)

prox, fit_rows = eqx.filter_jit(softmax_prox), eqx.filter_jit(minimise_cross_entropy)


def simplex(classes):
    """Loadings of equivalent classes, BBᵀ = (1 − 11ᵀ/C)/(C − 1)."""
    values, vectors = np.linalg.eigh((np.eye(classes) - 1 / classes) / (classes - 1))
    return (vectors * np.sqrt(np.maximum(values, 0)))[:, 1:]


@pytest.mark.parametrize(("rank", "error"), [(1, 1e-11), (2, 1e-10), (3, 1e-9), (4, 2e-3), (9, 2e-3)])
def test_gaussian_nodes_average_a_wave_as_precisely_as_stated(rank, error):
    x, w = gaussian_nodes(rank, 64)
    direction = np.arange(1, rank + 1) / np.linalg.norm(np.arange(1, rank + 1))
    assert abs(w.sum() - 1) < 1e-12
    assert abs(w @ np.cos(direction @ x) - np.exp(-0.5)) < error
    np.testing.assert_allclose((x * w) @ x.T, np.eye(rank), atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(-1, 1.2))
def test_the_proximal_operator_is_stationary_and_its_two_forms_agree(seed, log_response, log_spread):
    rng = np.random.default_rng(seed)
    B, V = jnp.asarray(simplex(4)), jnp.asarray(10.0**log_response)
    omega = jnp.asarray(10.0**log_spread * rng.normal(size=(3, 16)))
    label = jnp.asarray(np.eye(4)[rng.integers(4)])
    general, alike = (prox(Channel(B, jnp.full(4, 0.25), s), label, omega, V) for s in (False, True))
    gap = general.logits - B @ omega - V * (B @ B.T) @ (label[:, None] - general.probabilities)
    assert jnp.max(jnp.abs(gap)) < 1e-10 * (1 + V)
    assert jnp.max(jnp.abs(general.logits - alike.logits)) < 1e-9 * (1 + jnp.max(jnp.abs(alike.logits)))
    np.testing.assert_allclose(general.curvature, alike.curvature, rtol=1e-8, atol=1e-12)


def test_the_proximal_operator_matches_a_general_minimiser_on_unlike_classes():
    rng = np.random.default_rng(1)
    B, omega, V, y = rng.normal(size=(4, 2)), rng.normal(size=2), 1.7, 2

    def risk(h):
        return logsumexp(B @ h) - B[y] @ h + np.sum((h - omega) ** 2) / (2 * V)

    best = minimize(risk, omega, method="BFGS", options={"gtol": 1e-10}).x
    channel = Channel(jnp.asarray(B), jnp.full(4, 0.25))
    found = prox(channel, jnp.eye(4)[y], jnp.asarray(omega)[:, None], jnp.asarray(V))
    np.testing.assert_allclose(found.logits[:, 0], B @ best, atol=1e-6)
    p = softmax(B @ best)
    hessian = B.T @ (np.diag(p) - np.outer(p, p)) @ B
    expected = np.trace(hessian @ np.linalg.inv(np.eye(2) + V * hessian))
    np.testing.assert_allclose(found.curvature[0], expected, rtol=1e-6)


@pytest.mark.parametrize("symmetric", [False, True])
def test_derivatives_of_the_averages_are_those_of_differences(symmetric):
    channel = Channel(jnp.asarray(simplex(3)), jnp.full(3, 1 / 3), symmetric)
    at, step = jnp.asarray([1.2, 2.5, 1.5]), 1e-3

    @jax.jit
    def heights(x):
        return jnp.stack(
            [
                *conjugates(channel, x[0], x[1], x[2], 24),
                fresh_loss(channel, x[0], x[1], 24),
                trained_loss(channel, x[0], x[1], x[2], 24),
            ]
        )

    slopes = jax.jacfwd(heights)(at)
    for i in range(3):
        e = step * jnp.eye(3)[i]
        coarse, fine = (heights(at + e) - heights(at - e)) / 2, heights(at + e / 2) - heights(at - e / 2)
        np.testing.assert_allclose(slopes[:, i], (4 * fine - coarse) / (3 * step), rtol=1e-7, atol=1e-9)


def test_equal_classes_may_be_averaged_once():
    B, shares = jnp.asarray(simplex(3)), jnp.full(3, 1 / 3)
    at = jnp.asarray(0.9), jnp.asarray(2.0), jnp.asarray(1.1)

    @eqx.filter_jit
    def both(at):
        channels = Channel(B, shares, True), Channel(B, shares)
        return [jnp.stack([*conjugates(c, *at, 40), fresh_loss(c, *at[:2], 40)]) for c in channels]

    np.testing.assert_allclose(*both(at), rtol=1e-9)


def test_two_classes_are_fitted_like_scikit_learn_fits_them_and_padding_is_ignored():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 20)) / np.sqrt(20)
    y = (x @ rng.normal(size=20) + 0.3 * rng.normal(size=90) > 0).astype(int)
    features = np.concatenate([np.stack([-0.5 * x, 0.5 * x], axis=1), 1e3 * rng.normal(size=(25, 2, 20))])
    labels, mask = np.r_[y, np.zeros(25, int)], np.r_[np.ones(90), np.zeros(25)]
    peer = LogisticRegression(C=1 / 0.3, fit_intercept=False, tol=1e-12, solver="newton-cholesky").fit(x, y)
    fit = fit_rows(jnp.asarray(features), jnp.asarray(labels), jnp.asarray(0.3), jnp.asarray(mask))
    np.testing.assert_allclose(fit.weights, np.ravel(peer.coef_), atol=1e-8)
    assert fit.residual < 1e-10


def test_many_classes_are_fitted_like_a_general_minimiser_fits_them():
    rng = np.random.default_rng(4)
    features, labels = rng.normal(size=(70, 4, 6)), rng.integers(4, size=70)

    def risk(w):
        z = features @ w
        return np.sum(logsumexp(z, axis=1) - z[np.arange(70), labels]) + 0.2 * w @ w / 2

    best = minimize(risk, np.zeros(6), method="BFGS", options={"gtol": 1e-8}).x
    fit = fit_rows(jnp.asarray(features), jnp.asarray(labels), jnp.asarray(0.2), jnp.ones(70))
    np.testing.assert_allclose(fit.weights, best, atol=1e-6)


def test_separable_classes_without_penalty_have_no_certificate():
    """The gradient vanishes on the way to infinity; the certificate must not."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(30, 3, 40))
    separable = (jnp.asarray(features), jnp.asarray(rng.integers(3, size=30)))
    assert not fit_rows(*separable, jnp.asarray(0.0), jnp.ones(30)).residual < 1e-4
    few = (jnp.asarray(features[:, :, :5] @ np.eye(5)), jnp.asarray(np.argmax(features[:, :, :5] @ np.ones(5), axis=1)))
    assert not fit_rows(*few, jnp.asarray(0.0), jnp.ones(30)).residual < 1e-4
    assert fit_rows(*few, jnp.asarray(0.1), jnp.ones(30)).residual < 1e-10
