import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from solvable.methods.risk.channels import cloud_moments, linear_losses, linear_moments, sign_moments
from solvable.methods.risk.losses import Custom, Hinge, Logistic, Square, loss_named, smooth_loss

LOSSES = {"square": Square(), "logistic": Logistic(), "hinge": Hinge()}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("y", [-1.0, 1.0])
@pytest.mark.parametrize(("centre", "width"), [(-3.0, 0.5), (0.2, 2.0), (1.4, 1e-3), (-20.0, 30.0)])
def test_proximal_point_is_the_minimiser(name, y, centre, width):
    loss = LOSSES[name]
    objective = lambda z: (z - centre) ** 2 / (2 * width) + float(loss.value(jnp.asarray(y), jnp.asarray(z)))  # noqa: E731
    best = minimize_scalar(objective, bounds=(centre - 2 * width - 5, centre + 2 * width + 5), method="bounded",
                           options={"xatol": 1e-10})  # fmt: skip
    found = float(loss.prox(jnp.asarray(y), jnp.asarray(centre), jnp.asarray(width)))
    assert objective(found) <= best.fun + 1e-12
    assert abs(found - best.x) < 1e-5


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(-8, 8))
def test_logistic_proximal_point_is_stationary_over_sixteen_orders_of_magnitude(centre, exponent):
    width = 10.0**exponent
    z = Logistic().prox(jnp.asarray(1.0), jnp.asarray(centre), jnp.asarray(width))
    gap = z - centre - width * jax.nn.sigmoid(-z)
    assert abs(gap) <= 2e-14 * (1 + abs(centre) + abs(z) + width * jax.nn.sigmoid(-z))


def test_any_smooth_convex_loss_has_a_proximal_operator_with_derivatives_of_all_orders():
    pseudo_huber = Custom(lambda y, z: jnp.sqrt(1 + (y - z) ** 2))
    y, c, v = jnp.asarray(0.3), jnp.asarray(-2.0), jnp.asarray(1.7)
    z = pseudo_huber.prox(y, c, v)
    assert abs(z - c + v * pseudo_huber.slope(y, z)) < 1e-13
    for argument in range(3):
        h = 1e-5
        args = [y, c, v]
        up, down = ([a + h * s * (i == argument) for i, a in enumerate(args)] for s in (1, -1))
        first = jax.grad(pseudo_huber.prox, argument)
        assert abs(first(*args) - (pseudo_huber.prox(*up) - pseudo_huber.prox(*down)) / (2 * h)) < 1e-8
        second = jax.grad(first, argument)
        assert abs(second(*args) - (first(*up) - first(*down)) / (2 * h)) < 1e-7


GENERIC = {
    "logistic": (lambda y, z: jnp.logaddexp(0.0, -y * z), lambda z: -1 / (1 + np.exp(z))),
    "square": (lambda y, z: 0.5 * (y - z) ** 2, lambda z: z - 1),
    "root": (lambda y, z: jnp.sqrt(1 + (y - z) ** 2), lambda z: (z - 1) / np.sqrt(1 + (z - 1) ** 2)),
}


@pytest.mark.parametrize("name", GENERIC)
def test_the_proximal_point_of_any_loss_is_found_wherever_it_lies(name):
    """A wide proximal operator makes Newton's steps alternate between the two ends of the bracket."""
    function, slope = GENERIC[name]
    loss, centres = Custom(function), jnp.linspace(-400, 400, 4001)
    ones = jnp.ones_like(centres)
    prox = jax.jit(loss.prox)
    for width in 10.0 ** np.arange(-6, 8):
        found = prox(ones, centres, width * ones)
        z = np.asarray(found)
        with np.errstate(over="ignore"):
            pull = width * slope(z)
        # Rounding errors: of the terms, and of the last digits of z.
        rounding = 1 + np.abs(centres) + np.abs(pull) + (1 + np.abs(z)) * (1 + width * loss.curvature(ones, found))
        assert (np.abs(z - centres + pull) <= 1e-14 * rounding).all(), width


SCALES = 10.0 ** np.arange(-4, 5, 2)
Q, V, SHARE, REST = (jnp.asarray(v.ravel()) for v in np.meshgrid(SCALES, SCALES, [0.1, 0.9, 0.999], [1e-4, 0.1, 10.0]))


@pytest.mark.parametrize("even", [True, False])
def test_averages_over_the_proximal_point_are_those_over_the_field(even):
    """A loss given as a function runs over z; the built-in one over ω, with panels around its singularities."""
    own = Custom(lambda y, z: jnp.logaddexp(0.0, -y * z), even)
    assert own.by_proximal_point
    assert not Custom(own.function, True, -0.1).by_proximal_point
    found, wanted = (
        jax.jit(jax.vmap(lambda m, q, V, r, loss=loss, n=n: jnp.stack(sign_moments(loss, m, q, V, r, n))))(
            SHARE * jnp.sqrt(Q), Q, V, REST
        )
        for loss, n in ((own, 14), (Logistic(), 30))
    )
    np.testing.assert_allclose(found, wanted, rtol=3e-8)
    found, wanted = (
        jax.jit(jax.vmap(lambda m, q, V, loss=loss, n=n: jnp.stack(cloud_moments(loss, m, q, V, n, 0.1))))(
            SHARE * jnp.sqrt(Q), Q, V
        )
        for loss, n in ((own, 14), (Logistic(), 30))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_a_loss_of_the_residual_is_recognised_and_averaged_in_one_dimension():
    function = lambda y, z: jnp.sqrt(1 + (y - z) ** 2)  # noqa: E731
    one = smooth_loss(function)
    assert one.of_residual
    assert not smooth_loss(lambda y, z: jnp.logaddexp(0.0, -y * z)).of_residual
    assert not smooth_loss(lambda y, z: (2 + y) ** 2 * (y - z) ** 2).of_residual
    two = Custom(function)  # not known to be one, so it is averaged over (y, ω)
    some = (np.asarray(Q) < 200) & (np.asarray(V) < 200) & (np.asarray(REST) > 0.01)
    at = [v[some] for v in (SHARE * jnp.sqrt(Q), Q, V, REST)]
    for average, tolerance in ((linear_moments, 1e-5), (linear_losses, 1e-6)):
        found, wanted = (
            jax.jit(jax.vmap(lambda m, q, V, r, loss=loss, f=average: jnp.stack(f(loss, m, q, V, r, 14))))(*at)
            for loss in (one, two)
        )
        np.testing.assert_allclose(found, wanted, rtol=tolerance)


def test_slopes_and_curvatures_agree_with_differentiation():
    z = jnp.linspace(-3, 3, 13) + 0.01
    for loss in LOSSES.values():
        y = jnp.ones_like(z)
        generic = Custom(loss.value)
        np.testing.assert_allclose(loss.slope(y, z), generic.slope(y, z), atol=1e-12)
        np.testing.assert_allclose(loss.curvature(y, z), generic.curvature(y, z), atol=1e-12)


def test_an_unknown_loss_suggests_the_nearest_name():
    with pytest.raises(LookupError, match="did you mean 'hinge'"):
        loss_named("hing")
