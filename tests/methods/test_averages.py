"""The Gaussian averages against reference values, sampling, identities and finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.averages.activations import Activation, Erf, ReLU, Sign, activation

COVARIANCE = np.array([[1.2, 0.3, -0.2, 0.5], [0.3, 0.8, 0.4, 0.1], [-0.2, 0.4, 1.5, 0.6], [0.5, 0.1, 0.6, 2.0]])
EVERY = np.ix_(*[np.arange(4)] * 4)

NAMES = ("erf", "relu")


@functools.cache
def all_I4(nodes):
    """The full table of relu's I4 over four fields, compiled once."""
    return jax.jit(lambda cov: ReLU(nodes).table_I4(cov, *EVERY))


@functools.cache
def weighted_averages_and_gradient(name):
    """A fixed combination of all averages of four fields, with its gradient; compiled once."""
    g, weights = activation(name), np.linspace(1, 2, 256)

    def everything(cov):
        total = jnp.sum(g.table_I4(cov, *EVERY) * jnp.asarray(weights.reshape(4, 4, 4, 4)))
        total += jnp.sum(g.table_I3(cov, *np.ix_(*[np.arange(4)] * 3)) * jnp.asarray(weights[:64].reshape(4, 4, 4)))
        return total + jnp.sum((g.table_I2(cov) + g.table_J2(cov)) * jnp.asarray(weights[:16].reshape(4, 4)))

    return jax.jit(jax.value_and_grad(everything))


def covariance_with_near_copies(distance, seed=0):
    """Two fields and two copies of them, displaced by `distance`."""
    rng = np.random.default_rng(seed)
    fields = rng.normal(size=(2, 6))
    fields = np.concatenate([fields, fields + distance * rng.normal(size=(2, 6))])
    return jnp.asarray(fields @ fields.T / 6)


@pytest.mark.parametrize(
    ("name", "average", "units", "value", "tolerance"),
    [
        ("erf", "I2", (0, 1), 0.09634134890422091, 1e-12),
        ("erf", "I3", (0, 1, 2), 0.11640964756597204, 1e-12),
        ("relu", "I2", (0, 1), 0.23830780144581318, 1e-12),
        ("relu", "J2", (0, 1), 0.29952651068908165, 1e-12),
        ("relu", "I4", (0, 1, 2, 3), 0.19709512950096922, 1e-10),
        ("relu", "I4", (0, 1, 0, 1), 0.23830780144581318, 1e-10),
    ],
)
def test_averages_equal_reference_values(name, average, units, value, tolerance):
    table = getattr(activation(name), f"table_{average}")
    assert table(jnp.asarray(COVARIANCE), *units) == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_every_average_agrees_with_sampling(name):
    g = activation(name)
    fields = np.random.default_rng(7).multivariate_normal(np.zeros(4), COVARIANCE, size=400_000)
    value, slope = np.asarray(g.function(jnp.asarray(fields))), np.asarray(g.derivative(jnp.asarray(fields)))
    cov = jnp.asarray(COVARIANCE)
    samples = {
        "I2": (g.table_I2(cov, 0, 1), value[:, 0] * value[:, 1]),
        "J2": (g.table_J2(cov, 0, 1), slope[:, 0] * slope[:, 1]),
        "I3": (g.table_I3(cov, 0, 1, 2), slope[:, 0] * fields[:, 1] * value[:, 2]),
        "I4": (g.table_I4(cov, 0, 1, 2, 3), slope[:, 0] * slope[:, 1] * value[:, 2] * value[:, 3]),
        "I4 diagonal": (g.table_I4(cov, 0, 0, 2, 3), slope[:, 0] ** 2 * value[:, 2] * value[:, 3]),
        "I4 repeated": (g.table_I4(cov, 0, 1, 1, 1), slope[:, 0] * slope[:, 1] * value[:, 1] ** 2),
    }
    for label, (closed, drawn) in samples.items():
        error = drawn.std() / np.sqrt(len(drawn))
        assert abs(float(closed) - drawn.mean()) < 4 * error, label
        assert error < 0.01 * abs(float(closed)) + 1e-3, f"{label} is too noisy to say anything"


def test_sign_averages_are_derivatives_of_erf_averages_of_large_fields():
    # erf of a very large field is a sign: g' scales like 1/size, so I3 is invariant and J2, I4 fall as 1/size²
    cov, large = jnp.asarray(COVARIANCE), 1e5
    sign, erf = Sign(), Erf()
    np.testing.assert_allclose(sign.table_I2(cov, 0, 1), erf.table_I2(large**2 * cov, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(sign.table_J2(cov, 0, 1), large**2 * erf.table_J2(large**2 * cov, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(sign.table_I3(cov, 0, 1, 2), erf.table_I3(large**2 * cov, 0, 1, 2), rtol=1e-6)
    i4 = large**2 * erf.table_I4(large**2 * cov, 0, 1, 2, 3)
    np.testing.assert_allclose(sign.table_I4(cov, 0, 1, 2, 3), i4, rtol=1e-6)
    assert jnp.isinf(sign.table_J2(cov, 0, 0))  # the square of a delta function


@pytest.mark.parametrize("distance", [1.0, 1e-2, 1e-4, 1e-6, 1e-9, 0.0])
def test_relu_I4_of_two_fields_used_twice_is_their_I2(distance):
    cov = covariance_with_near_copies(distance)
    i, j = np.ix_(np.arange(4), np.arange(4))
    np.testing.assert_allclose(all_I4(16)(cov)[i, j, i, j], ReLU().table_I2(cov), atol=1e-11)


@pytest.mark.parametrize(
    ("distance", "accuracy"), [(1.0, 1e-11), (0.1, 2e-8), (1e-2, 5e-8), (1e-5, 1e-8), (0.0, 1e-12)]
)
def test_doubling_the_nodes_of_relu_I4_changes_nothing(distance, accuracy):
    cov = covariance_with_near_copies(distance)
    np.testing.assert_allclose(all_I4(16)(cov), all_I4(32)(cov), atol=accuracy)
    np.testing.assert_allclose(all_I4(32)(cov), all_I4(64)(cov), atol=5e-10)


def test_relu_I4_is_continuous_where_fields_coincide():
    limit = all_I4(16)(covariance_with_near_copies(0.0))
    near = all_I4(16)(covariance_with_near_copies(1e-5))
    np.testing.assert_allclose(near, limit, atol=1e-4)


def test_relu_I4_of_a_unit_with_itself_follows_the_diagonal_formula():
    # <1(x1) x3+ x4+> = I2(3,4)/2 + ∫ ds [c13 H(3,4|1) + c14 H(4,3|1)] / √(2π c11), H(c,d) = √c_dd (1 + ρ_cd) / (2√2π)
    c = COVARIANCE
    s, weight = np.polynomial.legendre.leggauss(60)
    s, weight = (1 + s) / 2, weight / 2
    v3, v4 = c[2, 2] - s**2 * c[0, 2] ** 2 / c[0, 0], c[3, 3] - s**2 * c[0, 3] ** 2 / c[0, 0]
    rho = (c[2, 3] - s**2 * c[0, 2] * c[0, 3] / c[0, 0]) / np.sqrt(v3 * v4)
    slope = (c[0, 2] * np.sqrt(v4) + c[0, 3] * np.sqrt(v3)) * (1 + rho) / (2 * np.sqrt(2 * np.pi))
    expected = 0.5 * ReLU().table_I2(jnp.asarray(c), 2, 3) + np.sum(weight * slope) / np.sqrt(2 * np.pi * c[0, 0])
    np.testing.assert_allclose(ReLU().table_I4(jnp.asarray(c), 0, 0, 2, 3), expected, rtol=1e-12)


def test_relu_averages_with_a_silent_unit_follow_the_convention_that_the_step_at_zero_is_a_half():
    cov = jnp.asarray(COVARIANCE).at[0, :].set(0.0).at[:, 0].set(0.0)
    g = ReLU()
    np.testing.assert_allclose(g.table_J2(cov, 0, 1), 0.25, rtol=1e-14)
    np.testing.assert_allclose(g.table_I2(cov, 0, 1), 0.0, atol=1e-15)
    np.testing.assert_allclose(g.table_I3(cov, 0, 1, 2), 0.25 * cov[1, 2], rtol=1e-14)
    np.testing.assert_allclose(g.table_I4(cov, 0, 1, 2, 3), 0.5 * g.table_I4(cov, 1, 1, 2, 3), rtol=1e-12)
    np.testing.assert_allclose(g.table_I4(cov, 1, 2, 0, 3), 0.0, atol=1e-15)
    np.testing.assert_allclose(g.table_I4(cov, 0, 0, 2, 3), 0.25 * g.table_I2(cov, 2, 3), rtol=1e-12)


def test_relu_closed_forms_where_a_unit_occurs_twice_equal_the_quadrature():
    quadrature = jax.jit(lambda cov: Activation.table_I4(ReLU(64), cov, *EVERY))
    for distance, accuracy in ((1.0, 1e-12), (1e-3, 1e-9)):
        cov = covariance_with_near_copies(distance)
        np.testing.assert_allclose(all_I4(64)(cov), quadrature(cov), atol=accuracy)


@pytest.mark.parametrize("name", ["erf", "relu", "sign"])
def test_averages_are_linear_or_homogeneous_as_the_activation_is(name):
    # opposite fields: g(-x) = -g(x) for the odd activations, and a step that excludes its opposite for relu
    g = activation(name)
    flip = np.array([1.0, 1.0, 1.0, -1.0])
    cov = jnp.asarray(COVARIANCE)
    flipped = cov * jnp.asarray(np.outer(flip, flip))
    if name == "relu":
        # x4+ - (-x4)+ = x4 and 1(x1) x4 x3+ is an I3
        difference = g.table_I4(cov, 0, 0, 2, 3) - g.table_I4(flipped, 0, 0, 2, 3)
        np.testing.assert_allclose(difference, g.table_I3(cov, 0, 3, 2), rtol=1e-12)
    else:
        np.testing.assert_allclose(g.table_I4(cov, 0, 1, 2, 3), -g.table_I4(flipped, 0, 1, 2, 3), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_central_differences(name):
    everything = weighted_averages_and_gradient(name)
    cov, step = jnp.asarray(COVARIANCE), 1e-5
    _, gradient = everything(cov)
    rng = np.random.default_rng(3)
    for _ in range(3):
        direction = rng.normal(size=(4, 4))
        direction = jnp.asarray(direction + direction.T)
        numeric = (everything(cov + step * direction)[0] - everything(cov - step * direction)[0]) / (2 * step)
        np.testing.assert_allclose(jnp.sum(gradient * direction), numeric, rtol=1e-6)


def test_gradient_is_right_where_fields_coincide_and_stay_coincident():
    # two pairs of copies: moving them together is a smooth change although each I4 sits on a cusp
    everything = weighted_averages_and_gradient("relu")
    rng = np.random.default_rng(5)
    pair, step = rng.normal(size=(2, 6)), 1e-5
    double = np.concatenate([np.eye(2), np.eye(2)])
    base, direction = (double @ m @ double.T for m in (pair @ pair.T, np.array([[0.3, -0.2], [-0.2, 0.5]])))
    _, gradient = everything(jnp.asarray(base))
    up, down = (everything(jnp.asarray(base + s * step * direction))[0] for s in (1, -1))
    np.testing.assert_allclose(np.sum(np.asarray(gradient) * direction), (up - down) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["copies", "silent", "all silent", "identical", "opposite"])
def test_values_and_gradients_are_finite_in_degenerate_cases(name, case):
    cov = {
        "copies": covariance_with_near_copies(0.0),
        "silent": jnp.asarray(COVARIANCE).at[1, :].set(0.0).at[:, 1].set(0.0),
        "all silent": jnp.zeros((4, 4)),
        "identical": jnp.full((4, 4), 0.7),
        "opposite": jnp.asarray(np.outer([1, -1, 1, -1], [1, -1, 1, -1]) * 0.7),
    }[case]
    value, gradient = weighted_averages_and_gradient(name)(cov)
    assert jnp.isfinite(value)
    assert jnp.all(jnp.isfinite(gradient))


def test_an_unknown_activation_is_refused_with_the_list_of_known_ones():
    with pytest.raises(ValueError, match="erf, gelu, linear, relu"):
        activation("cube")
