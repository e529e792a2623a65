"""Random features: limits, other implementations, double descent, agreement."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solvable as sv
from solvable.methods.risk.covariate import Sign, gaussian_features, student
from solvable.methods.risk.losses import loss_named
from solvable.model import simulate_batch
from solvable.models.replica.random_features.model import _orthogonal

RATIOS = np.array([0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 2.0, 4.0])  # p/n at n/d = 3, sign features, penalty 1e-4


KNOWN = {
    "logistic": [
        0.3665,
        0.3561,
        0.3144,
        0.2861,
        0.2658,
        0.2473,
        0.2150,
        0.1824,
        0.3568,
        0.3517,
        0.3515,
        0.3608,
        0.3441,
    ],
    "square": [0.3656, 0.3377, 0.3441, 0.3785, 0.4516, 0.3671, 0.2807, 0.2177],
}


@pytest.mark.parametrize("loss", KNOWN)
def test_double_descent_of_an_independent_solver_is_reproduced_with_its_coefficients(loss):
    """That solver took κ1 of the sign by Gauss–Hermite with 120 nodes, 0.3 % above √(2/π); with its κ1, all digits hold."""
    z, w = np.polynomial.hermite_e.hermegauss(120)
    linear = float(w @ np.abs(z) / w.sum())
    rest = float(np.sqrt(1 - linear**2))

    def error(ratio):
        spectrum = gaussian_features(3 * ratio, linear, rest, 96)
        found = student(loss_named(loss), Sign(), spectrum, 1 / ratio, jnp.asarray(1e-4))
        return Sign().risks(loss_named(loss), found.m, found.q, found.V, found.rest, 14).test_error

    ratios = np.concatenate([RATIOS, [0.25, 0.3, 0.325, 0.375, 0.45]])[: len(KNOWN[loss])]
    np.testing.assert_allclose(jax.jit(jax.vmap(error))(jnp.asarray(ratios)), KNOWN[loss], atol=6e-5)


def test_square_loss_peaks_where_features_equal_samples_and_logistic_where_the_data_become_separable():
    ratio = np.concatenate([np.linspace(0.25, 0.6, 15), np.linspace(0.7, 1.5, 17)])
    square, logistic = (
        sv.RandomFeatures(loss=loss, samples=3.0, width=3 * ratio, activation="sign", penalty=1e-4).theory()
        for loss in ("square", "logistic")
    )
    assert abs(ratio[int(jnp.argmax(square.test_error))] - 1) < 1e-9
    assert float(square.test_error.max()) > 0.45
    bump = slice(3, 12)
    peak = ratio[bump][int(jnp.argmax(logistic.test_error[bump]))]
    assert 0.36 <= peak <= 0.4
    separable = ratio > 0.45
    assert float(logistic.train_loss[separable].max()) < 0.012
    assert float(logistic.train_loss[0]) > 0.3


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_the_best_penalty_removes_the_peak_and_no_scan_finds_a_better_one(loss):
    width, penalty = 3 * np.geomspace(0.2, 4, 25), np.geomspace(1e-4, 1e2, 40)[None, :]
    model = sv.RandomFeatures(loss=loss, samples=3.0, width=width, activation="sign")
    scan = model.replace(width=width[:, None], penalty=penalty).theory().test_error
    best = model.best_penalty()
    assert not best.at_bound.any()
    assert bool(jnp.all(jnp.diff(best.value) < 0))
    assert not bool(jnp.all(jnp.diff(scan[:, 0]) < 0))
    assert float(jnp.max(best.value - scan.min(1))) <= 1e-12
    assert float(jnp.max(scan.min(1) - best.value)) < 2e-3  # a scan comes close
    if loss == "square":
        return
    again = sv.optimise(model.replace(width=float(width[12])), "penalty", minimise="test_error")
    np.testing.assert_allclose(best.penalty[12], again.controls["penalty"], rtol=1e-4)


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_no_point_is_lost_on_a_dense_grid_through_the_peak_at_a_small_penalty(loss):
    width = 3.0 * np.concatenate([np.geomspace(0.25, 0.5, 150), np.linspace(0.9, 1.1, 151), np.geomspace(1.2, 5, 50)])
    out = sv.RandomFeatures(loss=loss, samples=3.0, width=width, activation="sign", penalty=1e-7).theory()
    assert bool(out.converged.all())
    assert float(out.residual.max()) < 1e-10
    # One branch: neighbours on the grid are neighbours in every observable.
    for near in (slice(0, 150), slice(150, 301), slice(301, None)):
        assert float(jnp.abs(jnp.diff(out.test_error[near])).max()) < 0.02
    assert bool(jnp.all(out.overlap**2 <= out.norm))


def test_the_training_loss_leaves_zero_at_interpolation_or_separability():
    square = sv.RandomFeatures(loss="square", activation="sign", width=2.0)
    assert abs(sv.locate(square, along="samples") - 2) < 1e-8
    logistic = sv.RandomFeatures(loss="logistic", activation="sign", samples=3.0)
    width = sv.locate(logistic, along="width", between=(0.6, 3.0))
    losses = logistic.replace(width=width * np.array([0.98, 1.02]), penalty=1e-9).theory().train_loss
    assert losses[0] > 0.15
    assert losses[1] < 1e-3
    line = logistic.transition_lines("width", "samples", np.array([width]))["separability"]
    np.testing.assert_allclose(line, 3.0, rtol=1e-6)
    back = logistic.transition_lines("samples", "width", np.array([3.0]))["separability"]
    np.testing.assert_allclose(back, width, rtol=1e-3)


def test_the_best_penalty_is_of_an_observable_that_the_model_has():
    with pytest.raises(sv.InvalidValue, match=r"minimise = 'test_error' is not one of 'test_loss'"):
        sv.RandomFeatures(loss="square", teacher="linear").best_penalty("test_error")


def test_orthogonal_projections_beat_gaussian_ones():
    errors = [
        float(
            sv.RandomFeatures(activation="tanh", samples=3.0, width=2.0, penalty=0.1, projection=p).theory().test_error
        )
        for p in ("orthogonal", "gaussian")
    ]
    np.testing.assert_allclose(errors, [0.16553, 0.20475], atol=5e-6)


def test_many_features_are_kernel_ridge_regression():
    """p → ∞ at fixed λ: the kernel κ1² c·c′/d + κ⋆² 1, i.e. ridge on the inputs with the penalty (λ + κ⋆²)/κ1²."""
    k1, rest = np.pi**-0.5, 1 / 3 - 1 / np.pi
    wide = sv.RandomFeatures(loss="square", teacher="linear", samples=1.5, width=[1e3, 1e4], penalty=0.1, noise=0.2)
    kernel = sv.Perceptron(loss="square", teacher="linear", samples=1.5, penalty=(0.1 + rest) / k1**2, noise=0.2)
    gaps = np.abs(np.asarray(wide.theory().test_loss) - float(kernel.theory().test_loss))
    assert gaps[1] < 2e-4
    np.testing.assert_allclose(gaps[0] / gaps[1], 10, rtol=0.05)


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_few_samples_give_chance_error_and_all_losses_are_hebbian_under_a_strong_penalty(loss):
    few = sv.RandomFeatures(loss=loss, samples=1e-4, width=1.5).theory()
    assert abs(few.test_error - 0.5) < 0.01
    strong = sv.RandomFeatures(loss=loss, samples=2.0, width=1.5, penalty=1e5).theory()
    # w ∝ Σ y x: m ∝ c·α<τ>, q ∝ c²α²<τω> + α<ω²>, with the moments <s> = 1, <s²> = 1 + r of Marchenko and Pastur.
    k, rest, r, alpha = 1 / np.pi, 1 / 3 - 1 / np.pi, 1.5, 2.0 / 1.5
    tau, tau_omega = k * r, k * r * (k * (1 + r) + rest)
    omega2 = k**2 * (1 + r) + 2 * k * rest + rest**2
    c = np.sqrt(2 / np.pi)
    cosine = c * alpha * tau / np.sqrt(c**2 * alpha**2 * tau_omega + alpha * omega2)
    assert abs(strong.test_error - np.arccos(cosine) / np.pi) < 1e-4


@settings(max_examples=30, deadline=None)
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-8, 3), st.floats(0, 2))
def test_overlaps_obey_cauchy_schwarz_and_training_is_never_worse_than_testing(samples, width, penalty, noise):
    out = sv.RandomFeatures(samples=10**samples, width=10**width, penalty=10**penalty, noise=noise).theory()
    assert out.converged
    assert out.overlap**2 <= out.norm
    assert 0 <= out.test_error <= 0.5
    assert out.train_loss <= out.test_loss + 1e-12


def test_a_linear_teacher_refuses_classification_losses():
    with pytest.raises(sv.InvalidValue, match="loss = 'hinge' needs labels ±1"):
        sv.RandomFeatures(loss="hinge", teacher="linear")


@pytest.mark.parametrize("features", [5, 12, 20])
def test_orthogonal_projections_have_the_stated_gram_matrices_whatever_the_padding(features):
    d, padded = 12, 24
    rows = jax.random.normal(jax.random.key(1), (padded, d)) * (jnp.arange(padded) < features).astype(float)[:, None]
    made = np.asarray(_orthogonal(rows, jnp.asarray(features)))[:features]
    if features <= d:
        np.testing.assert_allclose(made @ made.T, d * np.eye(features), atol=1e-9)
    if features >= d:
        np.testing.assert_allclose(made.T @ made, features * np.eye(d), atol=1e-9)


CASES = (
    {"loss": "square", "activation": "sign", "width": 1.5, "samples": 3.0, "penalty": 0.05},
    {"loss": "logistic", "activation": "relu", "width": 0.7, "samples": 1.5, "noise": 0.1},
    {"loss": "hinge", "activation": "tanh", "width": 1.2, "samples": 1.5, "projection": "orthogonal"},
)
QUICK_AND_LONG = (*CASES[:2], CASES[2])


@pytest.mark.parametrize("case", QUICK_AND_LONG, ids=lambda c: f"{c['loss']}-{c['activation']}")
def test_simulations_with_the_nonlinearity_itself_agree_with_theory_within_error_bars(case):
    model, size, lanes = sv.RandomFeatures(**case), 120, 20
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(7), i))(jnp.arange(lanes))
    out = simulate_batch(model, {}, keys, size)
    theory = model.realised(size).theory()
    assert bool(out["converged"].all())
    for name in ("test_error", "test_loss", "train_loss", "train_error", "overlap", "norm"):
        mean, error = out[name].mean(), out[name].std(ddof=1) / np.sqrt(lanes)
        assert abs(mean - theory[name]) < 4.5 * error + 1.0 / size * abs(theory[name]), name
