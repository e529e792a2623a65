"""Thresholds: Cover's and Gardner's, linear programmes on drawn samples, and the saddle point itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog

import solvable as sv
from solvable.methods.random_matrices.spectra import clouds, gaussian_features, isotropic, joint_spectrum, power_law
from solvable.methods.risk.separability import interpolation_threshold, margin_capacity, separability_threshold
from solvable.methods.risk.teachers import Clouds, Linear, Sign, random_labels


def test_random_labels_are_separable_up_to_two_samples_per_direction_whatever_the_covariance():
    for spectrum, rank in (
        (isotropic(), 1.0),
        (power_law(jnp.asarray(1.5), jnp.asarray(0.2), 50), 1.0),
        (joint_spectrum([1.0, 3.0, 0.0, 0.0], [0.2, 0.1, 0.0, 0.0]), 0.5),
    ):
        np.testing.assert_allclose(separability_threshold(spectrum, random_labels()), 2 * rank, rtol=1e-12)
        np.testing.assert_allclose(interpolation_threshold(spectrum), rank, rtol=1e-12)
    assert abs(separability_threshold(clouds([2.0, 0.0], np.eye(2)), Clouds(0.5)) - 2) < 1e-9


def test_gardner_s_capacity_falls_with_the_margin():
    for kappa in (-0.7, 0.0, 1.0):
        density = lambda t, k=kappa: (t + k) ** 2 * np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)  # noqa: E731
        np.testing.assert_allclose(margin_capacity(kappa), 1 / quad(density, -kappa, np.inf)[0], rtol=1e-8)


def test_a_clean_sign_teacher_in_the_inputs_is_always_separable_and_any_noise_ends_that():
    assert np.isinf(separability_threshold(isotropic(), Sign()))
    thresholds = [float(separability_threshold(isotropic(), Sign(flips=e))) for e in (0.01, 0.1, 0.3, 0.5)]
    assert thresholds == sorted(thresholds, reverse=True)
    noisy = float(separability_threshold(isotropic(), Sign(noise=1.0)))
    # Features that miss half of the teacher are noise to the student.
    np.testing.assert_allclose(separability_threshold(joint_spectrum([1.0], [0.5]), Sign()), noisy, rtol=1e-12)


def separable(margins):
    n, p = margins.shape
    return linprog(np.zeros(p), A_ub=-margins, b_ub=-np.ones(n), bounds=(None, None), method="highs").status == 0


@pytest.mark.parametrize("case", ["flips", "noise", "clouds"])
def test_linear_programmes_find_a_hyperplane_below_the_threshold_and_none_above(case):
    rng, p = np.random.default_rng(5), 200
    teacher = {"flips": Sign(flips=0.1), "noise": Sign(noise=0.4), "clouds": Clouds(flips=0.05)}[case]
    threshold = float(separability_threshold(clouds([1.2, 0], np.eye(2)) if case == "clouds" else isotropic(), teacher))

    def drawn(n):
        z = rng.normal(size=(n, p))
        if case == "clouds":
            c = np.where(rng.random(n) < 0.5, -1, 1)
            return (np.where(rng.random(n) < 0.05, -c, c))[:, None] * (z + 1.2 * c[:, None] * np.eye(p)[0])
        y = np.sign(z[:, 0] + (np.sqrt(0.4) * rng.normal(size=n) if case == "noise" else 0))
        return np.where(rng.random(n) < (0.1 if case == "flips" else 0), -y, y)[:, None] * z

    assert all(separable(drawn(round(0.8 * threshold * p))) for _ in range(3))
    assert not any(separable(drawn(round(1.2 * threshold * p))) for _ in range(3))


def test_random_features_of_a_clean_teacher_become_separable_near_the_logistic_bump():
    """n/d = 3, sign features: the bump and the collapse of the training loss lie at p/n = 0.3677 for λ → 0."""
    k = np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)
    excess = [
        float(separability_threshold(gaussian_features(jnp.asarray(3 * r), *k, 96), Sign())) * r - 1
        for r in (0.367, 0.368)
    ]
    assert excess[0] < 0 < excess[1]


def test_real_labels_are_not_separable():
    with pytest.raises(sv.InvalidValue, match=r"teacher = Linear has no labels ±1"):
        separability_threshold(isotropic(), Linear())
