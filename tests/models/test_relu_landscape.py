"""The landscape of a sum of ReLUs: the threshold of six units, symmetry, splits, descents."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.online.relu_landscape.relu_loss import relu_curvature


@cache
def outcome(**choices):
    return sv.ReluLandscape(**choices).theory()


@pytest.mark.parametrize(("units", "lowest"), [(5, -7.7e-3), (6, 4.7e-3), (7, 1.41e-2), (8, 2.13e-2), (10, 3.20e-2)])
def test_the_turned_family_is_a_saddle_for_five_units_and_a_minimum_from_six_on(units, lowest):
    assert float(outcome(teachers=units).lowest) == pytest.approx(lowest, abs=6e-5)


def test_the_lowest_curvature_at_the_teacher_is_known_in_closed_form_at_any_number_of_units():
    for units in (6, 9):
        assert float(outcome(teachers=units, minimum="global").lowest) == pytest.approx(0.25 - 0.5 / np.pi, abs=1e-12)


def test_correlated_teachers_turn_the_spurious_minimum_of_six_units_into_a_saddle():
    correlation = np.linspace(0.0, 0.47, 48)
    lowest = np.asarray(sv.ReluLandscape(correlation=correlation, share=np.full(48, 0.5)).theory().lowest)
    assert lowest[0] == pytest.approx(4.70e-3, abs=5e-6)
    assert np.all(np.diff(lowest) < 0)
    assert 0.15 < correlation[np.argmax(lowest < 0)] < 0.18


def test_twelve_curvatures_with_their_multiplicities_are_the_whole_spectrum():
    model = sv.ReluLandscape(correlation=0.2)
    weights, teacher = jax.jit(lambda m: (m._fixed_point(type(m).numerics)[0], m._teacher()))(model)
    basis = jnp.asarray(np.eye(36).reshape(36, 6, 6))
    full = np.linalg.eigvalsh(jax.jit(relu_curvature)(weights, teacher, basis))
    twelve = np.repeat(np.asarray(model.theory().curvature), np.repeat([1, 4, 6, 5], [5, 5, 1, 1]))
    np.testing.assert_allclose(np.sort(twelve), full, atol=1e-12)


def test_a_general_minimiser_ends_at_the_same_loss():
    """L-BFGS over all weights, the loss by a Gauss rule over angles for every pair instead of arctangents."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    m = 6

    def pair(a, b):
        """<(a·x)_+ (b·x)_+> and its derivative by a, for a unit-variance Gaussian: the plane's angles between both edges."""
        na, nb = np.linalg.norm(a), np.linalg.norm(b)
        theta = np.arccos(np.clip(a @ b / (na * nb), -1, 1))
        # x = r(cos φ, sin φ) in the plane of a (φ = 0) and b (φ = θ): both on for θ - π/2 < φ < π/2; <r²> = 2
        low, high = theta - np.pi / 2, np.pi / 2
        phi = low + (high - low) * (nodes + 1) / 2
        w = weights * (high - low) / 2
        along, other = a / na, b - (b @ a) / na**2 * a
        side = np.linalg.norm(other)
        other = other / side if side > 1e-12 else 0 * other
        value = na * nb * 2 * np.sum(w * np.cos(phi) * np.cos(phi - theta)) / (2 * np.pi)
        slope = nb * 2 * np.array([np.sum(w * t * np.cos(phi - theta)) for t in (np.cos(phi), np.sin(phi))])
        return value, (slope[0] * along + slope[1] * other) / (2 * np.pi)

    def loss(flat):
        w, u = flat.reshape(m, m), np.eye(m)
        total, slope = 0.5 * sum(pair(a, b)[0] for a in u for b in u), np.zeros((m, m))
        for i in range(m):
            for z, sign in [(b, 1) for b in w] + [(b, -1) for b in u]:
                value, by = pair(w[i], z)
                total += (0.5 if sign > 0 else -1) * value
                slope[i] += sign * by
        return total, slope.ravel()

    start = np.diag([1.0] * 5 + [-1.0]) + 0.02 * np.random.default_rng(1).normal(size=(m, m))
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 120, "ftol": 1e-13})
    assert abs(found.fun - float(outcome(teachers=6).test_loss)) < 1e-7


def test_a_split_gives_a_spurious_minimum_one_flat_direction_and_a_way_down():
    turned = sv.ReluLandscape(splits=1, share=[0.1, 0.5, 0.9]).theory()
    np.testing.assert_array_equal(turned.flat, 1)
    assert np.all(np.asarray(turned.lowest) < -0.15)


def test_descent_on_samples_finds_the_fixed_point_and_its_curvature():
    model, seeds = sv.ReluLandscape(), 8
    theory, size = outcome(teachers=6), 24
    batch = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    for observable in ("test_loss", "overlap", "norm", "curvature"):
        runs, exact = np.asarray(batch[observable], float), np.asarray(theory[observable])
        error = runs.std(axis=0, ddof=1) / np.sqrt(seeds)
        # the noise of the averaged descent is of order 1/d: 0.13/d measured on overlaps, at 12 seeds and d = 16, 32, 48
        assert np.all(np.abs(runs.mean(axis=0) - exact) < 5 * error + 0.2 / size), observable
        assert np.all(error < 0.03), observable


def test_random_descents_get_stuck_at_equal_width_and_not_with_a_unit_more():
    reached = []
    for splits in (0, 1):
        model = sv.ReluLandscape(teachers=8, start="random", starts=100, splits=splits)
        reached.append(float(model.simulate(seed=0, size=8).reached))
    # 0.78 ± 0.07 of 40 descents of an independent code
    assert 0.6 < reached[0] < 0.95
    assert reached[1] >= 0.99


def test_a_fixed_point_that_was_not_found_is_nan():
    lost = sv.ReluLandscape().theory({"warmup": 1, "max_steps": 4}, only=["test_loss", "overlap"])
    assert not lost.converged
    assert np.isnan(lost.test_loss)
    assert np.all(np.isnan(lost.overlap))


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"teachers = 4 is not a whole number in \[5, 40\]"):
        sv.ReluLandscape(teachers=4)
    with pytest.raises(sv.InvalidValue, match=r"correlation = -0.1 is outside its range \[0, 0.95\]"):
        sv.ReluLandscape(correlation=-0.1)
    with pytest.raises(sv.InvalidValue, match=r"correlation = 0.6 with start = 'random'"):
        sv.ReluLandscape(correlation=0.6, start="random")
    with pytest.raises(sv.InvalidValue, match="size = 5 is smaller than the 6 units of the teacher"):
        sv.ReluLandscape().simulate(seed=0, size=5)
    with pytest.raises(sv.InvalidValue, match="splits = 1 with start = 'family'"):
        sv.ReluLandscape(splits=1).simulate(seed=0, size=16)
