"""Specialisation: the closed form of a linear network, limits and symmetries, a slow twin, gradient descent itself."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erf

import solvable as sv
from solvable.methods.flows.integrate import integrate
from solvable.model import simulate_batch
from solvable.models.online.specialisation.model import linear_contributions

THIRD = math.pi / 3


def test_the_closed_form_is_the_gradient_flow_of_a_linear_network():
    v, r, a = np.array([0.3, -0.05, 0.1]), np.array([0.02, 0.1, -0.01]), 0.8

    def drift(t, y):
        error = a - y[:3] @ y[3:]
        return np.concatenate([y[3:] * error, y[:3] * error])

    path = solve_ivp(drift, (0, 30), np.concatenate([v, r]), t_eval=[0, 1, 5, 30], rtol=1e-11, atol=1e-13).y
    for i, time in enumerate((0.0, 1.0, 5.0, 30.0)):
        result = linear_contributions(jnp.asarray(v), jnp.asarray(r), a, time)
        np.testing.assert_allclose(result, path[:3, i] * path[3:, i], atol=1e-9)


def test_a_slow_linear_network_with_a_tiny_first_layer_follows_the_closed_form():
    model = sv.Specialisation(
        activation="linear", rate=1e-3, first_scale=1e-3, readout_scale=0.1, angle=1.0, times=[0.0, 2000.0, 60000.0])  # fmt: skip
    result, start = model.theory(), 0.1 * jnp.array([math.cos(1.0), math.sin(1.0)])
    for i, time in ((1, 2.0), (2, 60.0)):
        closed = linear_contributions(start, 1e-3 * model.cosines[:, 0], 1.0, time)
        np.testing.assert_allclose(result.contribution[i, 0], closed, rtol=1e-4)
    np.testing.assert_allclose(result.final_specialisation, result.inherited, atol=1e-6)
    # weights orthogonal to the feature are not constant: a large first layer departs from the closed form
    large = model.replace(first_scale=1.0, readout_scale=0.3, angle=1.4).theory()
    assert float(large.inherited) - float(large.final_specialisation) > 0.05


def test_equal_units_stay_equal_and_readouts_hand_down_their_spread():
    equal = sv.Specialisation(angle=math.pi / 4, cosines=[[0.02], [0.02]], times=[0.0, 30.0, 60.0]).theory()
    np.testing.assert_allclose(equal.specialisation, 0.0, atol=1e-10)
    seen = []
    for scale in (1e-3, 0.1, 1.0):
        model = sv.Specialisation(first_scale=1e-3, readout_scale=scale, angle=THIRD, times=[0.0, 30.0, 60.0])
        seen.append(float(model.theory().final_specialisation))
    np.testing.assert_allclose(seen, [0.174, 0.211, 0.403], atol=6e-4)
    # a first layer that dwarfs the readouts makes them forget: hardly any difference between the angles
    lost = [
        float(sv.Specialisation(first_scale=1.0, readout_scale=1e-3, angle=angle, times=[0.0, 30.0, 60.0]).theory()
              .final_specialisation) for angle in (THIRD, 1.428)]  # fmt: skip
    assert abs(lost[0] - lost[1]) < 0.01


def test_layers_of_a_slow_linear_network_keep_their_imbalance():
    """VᵀV - Q is conserved by gradient flow, whatever the number of features."""
    model = sv.Specialisation(
        activation="linear", students=3, features=2, rate=1e-5, angle=0.4, times=[0.0, 2e5, 6e5])  # fmt: skip
    flow = integrate(lambda t, y, m: m._drift(y), model._start(), model.times, model, rtol=1e-9, atol=1e-12)
    q, v = np.asarray(flow.values.norm), np.asarray(flow.values.readout)
    imbalance = np.einsum("tmk,tml->tkl", v, v) - q
    np.testing.assert_allclose(imbalance, np.broadcast_to(imbalance[0], imbalance.shape), atol=2e-5)
    assert np.abs(v[-1] - v[0]).max() > 0.1


def test_features_on_their_own_units_are_learnt_one_by_one():
    """Aligned starts decouple: each feature follows the closed form of a single unit, the stronger one first."""
    model = sv.Specialisation(
        activation="linear", students=2, features=2, rate=1e-3, first_scale=0.01, readout_scale=0.02, angle=0.0,
        cosines=np.eye(2), strengths=[1.0, 0.5], times=[0.0, 3000.0, 6000.0, 12000.0])  # fmt: skip
    result = model.theory()
    for feature, strength in enumerate((1.0, 0.5)):
        for i, time in ((1, 3.0), (2, 6.0), (3, 12.0)):
            closed = linear_contributions(jnp.array([0.02]), jnp.array([0.01]), strength, time)
            np.testing.assert_allclose(result.contribution[i, feature, feature], closed[0], rtol=0.01, atol=1e-6)
    np.testing.assert_allclose(result.specialisation[1:], 1.0, atol=1e-9)


@pytest.mark.parametrize("activation", ["linear", "erf"])
def test_a_slow_twin_with_gauss_hermite_averages_follows_the_same_path(activation):
    """Three fields on a grid, one gradient step averaged, scipy's integrator."""
    model = sv.Specialisation(activation=activation, noise=0.05, rate=0.7, first_scale=0.6, readout_scale=0.8, angle=0.9,
                              cosines=[[0.3], [0.1]], times=[0.0, 2.0, 6.0])  # fmt: skip
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    z = np.stack(np.meshgrid(*[nodes] * 3, indexing="ij")).reshape(3, -1)
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * 3, indexing="ij"), axis=0).ravel()

    def drift(t, y):
        q, r, v = y[:4].reshape(2, 2), y[4:6], y[6:]
        fields = np.linalg.cholesky(np.block([[q, r[:, None]], [r[None], np.ones((1, 1))]])) @ z
        if activation == "erf":
            hidden, slope = erf(fields / np.sqrt(2)), np.sqrt(2 / np.pi) * np.exp(-(fields[:2] ** 2) / 2)
        else:
            hidden, slope = fields, np.ones_like(fields[:2])
        error, step = v @ hidden[:2] - hidden[2], v[:, None] * slope
        pull = -0.7 * (step * error * weight) @ fields.T
        kick = 0.49 * (step * (error**2 + 0.05) * weight) @ step.T
        dq = pull[:, :2] + pull[:, :2].T + kick
        return np.concatenate([dq.ravel(), pull[:, 2], -0.7 * (hidden[:2] * weight) @ error])

    start = np.concatenate([0.36 * np.eye(2).ravel(), [0.18, 0.06], [0.8 * np.cos(0.9), 0.8 * np.sin(0.9)]])
    path = solve_ivp(drift, (0, 6), start, t_eval=[0, 2, 6], rtol=1e-8, atol=1e-10).y
    np.testing.assert_allclose(model.theory().contribution[:, 0], (path[4:6] * path[6:]).T, atol=1e-6)


def test_gradient_descent_follows_the_flow_of_two_features():
    model = sv.Specialisation(activation="linear", students=3, features=2, rate=0.5, angle=0.4, times=[0.0, 4.0, 15.0])
    theory, seeds, size = model.theory(), 24, 400
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    for name in ("contribution", "test_loss", "specialisation"):
        seen, exact = np.asarray(runs[name]), np.asarray(theory[name])
        error = seen.std(axis=0, ddof=1) / np.sqrt(seeds)
        assert np.all(np.abs(seen.mean(axis=0) - exact) < 4 * error + 8 / size), name


def test_impossible_networks_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="features = 2 needs activation = 'linear'"):
        sv.Specialisation(features=2)
    with pytest.raises(sv.InvalidValue, match="features = 3 is more than the students = 2"):
        sv.Specialisation(activation="linear", features=3)
    with pytest.raises(sv.InvalidValue, match="largest singular value is 1.27, above 1"):
        sv.Specialisation(cosines=[[0.9], [0.9]])
    with pytest.raises(sv.InvalidValue, match="students = 1 is not a whole number in"):
        sv.Specialisation(students=1)
    with pytest.raises(sv.InvalidValue, match="smaller than the 3 units and features"):
        sv.Specialisation().simulate(seed=0, size=2)
