"""Averages by quadrature against the closed forms of erf and ReLU, and against a finer rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.activations import CLOSED, activation
from solvable.methods.averages.functions import FUNCTIONS, function_named
from solvable.methods.averages.quadrature import bent_trapezoid
from solvable.methods.averages.smooth import smooth
from solvable.methods.flows.committee import Overlaps, committee_drift

RATES = {"rate": jnp.asarray(0.7), "readout_rate": jnp.asarray(0.4), "noise": jnp.asarray(0.1)}
WEIGHTS = np.random.default_rng(0).normal(size=(4, 12))
GENERAL = WEIGHTS @ WEIGHTS.T / 12
LEARNT = np.kron(np.ones((2, 2)), np.array([[1.0, 0.3], [0.3, 0.8]]))  # both students are their teachers
ASLEEP = np.diag([0.0, 1.0, 1.0, 1.0])  # a student that is zero


def drift(g):
    """The flow of two students and two teachers, from their joint covariance: all of I2, J2, I3 and I4 at once."""

    def of(covariance):
        state = Overlaps(covariance[:2, :2], covariance[:2, 2:], jnp.asarray([0.8, -1.1]))
        return committee_drift(g, state, covariance[2:, 2:], jnp.asarray([1.0, 0.6]), **RATES)

    return jax.jit(of)


def distance(one, other):
    return max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_the_flow_of_a_quadrature_equals_closed_forms_and_a_finer_rule_to_the_stated_accuracy(name):
    shape = jnp.tanh if name == "tanh" else lambda x: jax.lax.erf(x * np.sqrt(0.5))
    ours = drift(smooth(shape))
    exact = drift(activation("erf") if name == "erf" else smooth(shape, nodes=48))
    for covariance, tolerance in (
        (GENERAL, 1e-8),
        (0.1 * GENERAL, 1e-8),
        (LEARNT, 3e-8),
        (ASLEEP, 1e-8),
        (4 * GENERAL, 1e-4),
    ):
        found = ours(jnp.asarray(covariance))
        assert distance(found, exact(jnp.asarray(covariance))) < tolerance, covariance


def test_four_fields_one_by_one_are_those_of_the_closed_form():
    cov, units = (
        jnp.asarray(GENERAL),
        (np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([2, 1, 3]), np.array([3, 1, 0])),
    )
    found = smooth(lambda x: jax.lax.erf(x * np.sqrt(0.5)), nodes=28).table_I4(cov, *units)
    np.testing.assert_allclose(found, activation("erf").table_I4(cov, *units), atol=1e-7)


def test_a_kink_costs_accuracy_as_documented():
    c = [jnp.asarray(x) for x in (1.0, 0.4, 0.8)]
    exact = activation("relu").I2(*c)
    errors = [abs(float(smooth(lambda x: jnp.maximum(x, 0.0), nodes=n).I2(*c) - exact)) for n in (32, 128)]
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 8


def test_the_bent_rule_beats_equidistant_nodes_where_poles_are_near():
    x, w = bent_trapezoid(32)
    fine, weight = bent_trapezoid(200)
    exact = weight @ np.tanh(2 * fine) ** 2
    assert abs(w @ np.tanh(2 * x) ** 2 - exact) < 1e-9
    flat = np.linspace(-8, 8, 32)
    mass = np.exp(-0.5 * flat**2)
    assert abs(mass @ np.tanh(2 * flat) ** 2 / mass.sum() - exact) > 1e-6


def test_names_and_functions_are_activations_and_others_are_refused_with_the_list():
    assert activation("softplus").name == "softplus"
    np.testing.assert_allclose(activation(jnp.sin).derivative(jnp.asarray(0.3)), np.cos(0.3))
    np.testing.assert_allclose(activation("gelu").function(jnp.asarray(1.0)), 0.8413447460685429)
    with pytest.raises(
        ValueError, match="erf, gelu, linear, relu, sigmoid, sign, softplus, swish, tanh, or a function, not 'cube'"
    ):
        activation("cube")


def test_every_activation_has_one_function_and_those_with_a_kink_are_averaged_only_in_closed_form():
    x = jnp.linspace(-2.0, 2.0, 9)
    for name, entry in FUNCTIONS.items():
        if entry.kinks and name not in CLOSED:
            with pytest.raises(ValueError, match=r"activation must be one of .*, or a function"):
                activation(name)
            continue
        np.testing.assert_array_equal(activation(name).function(x), entry.call(x))
        odd = np.allclose(entry.call(-x), -entry.call(x), atol=1e-14)
        assert odd == entry.odd
    with pytest.raises(sv.UnknownName, match="there is no activation 'tahn'"):
        function_named("tahn")
