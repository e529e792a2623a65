"""Flows against closed forms: accuracy, events, failure, both directions of differentiation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from solvable.methods.flows.integrate import integrate

TIMES = np.linspace(0.0, 5.0, 6)
MATRIX = np.array([[-1.0, 0.5], [-0.3, -0.2]])
START = np.array([1.0, 2.0])


def linear(t, y, matrix):
    return {"x": matrix @ y["x"]}


def solve_linear(matrix, start, **settings):
    return integrate(linear, {"x": start}, jnp.asarray(TIMES), matrix, **settings)


def explosion(start, max_steps=200):
    """dy/dt = y², which blows up at t = 1/y(0)."""
    return integrate(lambda t, y, _: y * y, start, jnp.asarray(TIMES), max_steps=max_steps)


@pytest.mark.parametrize("solver", ["tsit5", "dopri8", "kvaerno5"])
def test_error_against_the_matrix_exponential_falls_with_the_tolerance(solver):
    exact = np.stack([scipy.linalg.expm(MATRIX * t) @ START for t in TIMES])
    errors = []
    for tolerance in (1e-4, 1e-7):
        flow = solve_linear(jnp.asarray(MATRIX), jnp.asarray(START), rtol=tolerance, atol=tolerance, solver=solver)
        assert flow.converged
        assert flow.values["x"].shape == (6, 2)
        errors.append(np.abs(flow.values["x"] - exact).max())
    assert errors[0] < 20 * 1e-4
    assert errors[1] < 20 * 1e-7
    assert errors[1] < errors[0] / 30


def test_default_accuracy_is_far_below_plotting_accuracy():
    exact = scipy.linalg.expm(MATRIX * TIMES[-1]) @ START
    flow = solve_linear(jnp.asarray(MATRIX), jnp.asarray(START))
    np.testing.assert_allclose(flow.values["x"][-1], exact, rtol=1e-7)
    np.testing.assert_array_equal(flow.values["x"][0], START)
    assert jnp.isnan(flow.event_time)


def test_forward_and_reverse_gradients_equal_central_differences():
    def final(matrix, start, gradients="both"):
        return jnp.sum(jnp.sin(solve_linear(matrix, start, gradients=gradients).values["x"][-1]))

    at = jnp.asarray(MATRIX), jnp.asarray(START)
    reverse = jax.jit(jax.grad(final, argnums=(0, 1)))(*at)
    replayed = jax.jit(jax.grad(partial(final, gradients="reverse"), argnums=(0, 1)))(*at)
    forward = jax.jit(jax.jacfwd(final, argnums=(0, 1)))(*at)
    direction = np.random.default_rng(0).normal(size=(2, 2)), np.random.default_rng(1).normal(size=2)
    step = 1e-4
    up, down = (final(*(a + jnp.asarray(s * step * d) for a, d in zip(at, direction, strict=True))) for s in (1, -1))
    numeric = (up - down) / (2 * step)
    for gradient in (reverse, replayed, forward):
        along = sum(jnp.sum(g * jnp.asarray(d)) for g, d in zip(gradient, direction, strict=True))
        np.testing.assert_allclose(along, numeric, rtol=1e-6)


def test_only_a_derivative_takes_the_bounded_loops_that_cost_most_of_the_compilation():
    def final(start):
        return solve_linear(jnp.asarray(MATRIX), start).values["x"][-1, 0]

    value, gradient = (str(jax.make_jaxpr(f)(jnp.asarray(START))) for f in (final, jax.grad(final)))
    assert ("while[" in value, "remat" in value) == (True, False)
    assert ("while[" in gradient, "remat" in gradient) == (False, True)


def test_gradient_reaches_what_the_vector_field_closes_over_and_the_times():
    def final(rate, end):
        return integrate(lambda t, y, _: -rate * y, jnp.asarray(1.0), jnp.stack([0 * end, end])).values[-1]

    slopes = jax.jit(jax.jacfwd(final, argnums=(0, 1)))(jnp.asarray(0.3), jnp.asarray(2.0))
    np.testing.assert_allclose(slopes, (-2 * np.exp(-0.6), -0.3 * np.exp(-0.6)), rtol=1e-6)


def test_a_failed_lane_is_nan_in_value_and_gradient_and_alone():
    starts = jnp.asarray([-1.0, 0.5, 0.1])  # the second blows up at t = 2
    flow = jax.jit(jax.vmap(explosion))(starts)
    np.testing.assert_array_equal(flow.converged, [True, False, True])
    np.testing.assert_array_equal(np.isnan(flow.values[1]), TIMES >= 2.0 - 1e-9)
    np.testing.assert_allclose(flow.values[1, 1], 1.0, rtol=1e-6)
    for lane in (0, 2):
        np.testing.assert_allclose(flow.values[lane], 1 / (1 / starts[lane] - TIMES), rtol=1e-6)
    exact = (1 / (1 - starts * 5)) ** 2
    reverse = jax.jit(jax.vmap(jax.grad(lambda y: explosion(y).values[-1])))(starts)
    forward = jax.jit(jax.vmap(lambda y: jax.jvp(lambda s: explosion(s).values[-1], (y,), (jnp.ones(()),))[1]))(starts)
    for slope in (reverse, forward):
        np.testing.assert_array_equal(np.isnan(slope), [False, True, False])
        np.testing.assert_allclose(slope[jnp.asarray([0, 2])], exact[jnp.asarray([0, 2])], rtol=1e-5)


def test_an_event_ends_the_flow_at_its_root():
    def decay(start):
        return integrate(
            lambda t, y, _: -y, start, jnp.asarray(TIMES), event=lambda t, y, level: y - level, args=jnp.asarray(0.25)
        )

    (flow, slope) = jax.jit(lambda y: jax.jvp(decay, (y,), (jnp.ones(()),)))(jnp.asarray(1.0))
    assert flow.converged
    np.testing.assert_allclose(flow.event_time, np.log(4), rtol=1e-8)
    np.testing.assert_array_equal(np.isnan(flow.values), np.log(4) < TIMES)
    # a larger start crosses later: t = log(start / level)
    np.testing.assert_allclose(slope.event_time, 1.0, rtol=1e-6)
    np.testing.assert_allclose(slope.values[1], np.exp(-1), rtol=1e-6)


def test_a_stiff_flow_is_handed_to_the_implicit_solver_and_needs_far_fewer_steps():
    def field(t, y, rate):
        return -rate * (y - jnp.cos(t)) - jnp.sin(t)  # y = cos(t) attracts at the given rate

    def follow(rate, solver):
        return integrate(field, jnp.asarray(1.5), jnp.asarray(TIMES), rate, solver=solver, max_steps=40_000)

    explicit = jax.jit(partial(follow, solver="dopri8"))(jnp.asarray(1e4))
    both = jax.jit(partial(follow, solver="auto"))
    stiff, mild = both(jnp.asarray(1e4)), both(jnp.asarray(1.0))
    for flow in (explicit, stiff):
        assert flow.converged
        np.testing.assert_allclose(flow.values[1:], np.cos(TIMES[1:]), rtol=0, atol=1e-7)
    assert int(stiff.stiff_steps) > 0
    assert int(stiff.steps) < int(explicit.steps) / 5
    assert int(mild.stiff_steps) == 0
    np.testing.assert_allclose(mild.values, np.cos(TIMES) + 0.5 * np.exp(-TIMES), atol=1e-6)


def test_a_failure_reports_the_time_reached_and_ends_there():
    flow = jax.jit(partial(explosion, max_steps=4000))(jnp.asarray(0.4))
    np.testing.assert_array_equal(flow.reached, TIMES < 2.5)
    np.testing.assert_allclose(flow.end_time, 2.5, rtol=1e-6)
    assert float(flow.end) > 1e6
    assert int(flow.steps) < 400  # it is ended by steps that would be too short, not by their number


def test_an_unknown_solver_is_refused_with_the_list():
    with pytest.raises(ValueError, match="tsit5, dopri8, kvaerno5, auto"):
        integrate(lambda t, y, _: -y, jnp.asarray(1.0), jnp.asarray(TIMES), solver="euler")
