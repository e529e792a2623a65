"""Optimal control against closed forms: projections, adjoints, linear-quadratic, bang-bang, several minima, failure."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import solvable as sv
from solvable.methods.averages.activations import activation
from solvable.methods.flows.control import (
    Box,
    Difficulty,
    Lengths,
    Rate,
    Simplex,
    best,
    evaluate,
    follow,
    on_grid,
    optimise,
    switching,
)
from solvable.methods.flows.tasks import TaskOverlaps, mixture, task_drifts, task_losses

ERF = activation("erf")
TEACHERS = jnp.array([[1.0, 0.4], [0.4, 1.0]])
STUDENT = TaskOverlaps(
    jnp.array([[0.9, 0.1], [0.1, 0.3]]), jnp.array([[0.8, 0.3], [0.1, 0.2]]), jnp.array([[1.0, 0.1], [0.1, 0.4]])
)
TASKS = {"fraction": Simplex(), "rate": Box(0.0, 3.0)}


def student_drift(state, u):
    rates = {"rate": u["rate"], "readout_rate": u["rate"], "noise": 0.0}
    return mixture(task_drifts(ERF, state, TEACHERS, jnp.eye(2), **rates), u["fraction"])


def student_cost(state):
    return jnp.mean(task_losses(ERF, state, TEACHERS, jnp.eye(2)))


def student_schedule(intervals):
    second = jnp.linspace(0.9, 0.4, intervals)
    return {"fraction": jnp.stack([1 - second, second], axis=1), "rate": jnp.linspace(1.2, 0.6, intervals)}


# --- the sets ---------------------------------------------------------------------------------------------------------


def test_the_projection_on_the_simplex_is_the_nearest_point():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 4)) * 2
    points[:20] = np.round(points[:20])  # with ties
    found = np.asarray(Simplex().project(jnp.asarray(points)))
    for point, near in zip(points, found, strict=True):  # the textbook's algorithm, by sorting
        falling = np.sort(point)[::-1]
        levels = (np.cumsum(falling) - 1) / np.arange(1, 5)
        np.testing.assert_allclose(near, np.maximum(point - levels[np.nonzero(falling > levels)[0][-1]], 0), atol=1e-12)
    np.testing.assert_allclose(Simplex().project(jnp.asarray(found)), found, atol=1e-12)


def test_the_gap_of_each_set_is_the_most_that_a_linear_cost_can_still_lose():
    u, slope = jnp.array([[0.2, 0.8], [1.0, 0.0]]), jnp.array([[1.0, 3.0], [-2.0, 5.0]])
    np.testing.assert_allclose(Simplex().gap(u, slope), [1.6, 0.0], atol=1e-12)
    np.testing.assert_allclose(
        Box(-1.0, 2.0).gap(jnp.array([0.5, -1.0, 2.0]), jnp.array([1.0, -2.0, -1.0])), [1.5, 6, 0]
    )


# --- the adjoint ------------------------------------------------------------------------------------------------------


def test_gradient_and_costates_of_a_students_flow_equal_finite_differences():
    controls = student_schedule(6)
    result = jax.jit(lambda c: evaluate(student_drift, student_cost, STUDENT, c, TASKS, 3.0))(controls)
    final = jax.jit(lambda c, s: student_cost(jax.tree.map(lambda x: x[-1], follow(student_drift, s, c, 3.0))))
    np.testing.assert_allclose(result.cost, final(controls, STUDENT), rtol=1e-12)
    step = 1e-4
    for name, place in (("fraction", (1, 0)), ("fraction", (4, 1)), ("rate", (0,)), ("rate", (5,))):
        up, down = ({**controls, name: controls[name].at[place].add(s)} for s in (step, -step))
        slope = (final(up, STUDENT) - final(down, STUDENT)) / (2 * step) * (6 / 3.0)
        np.testing.assert_allclose(result.slopes[name][place], slope, rtol=1e-6)
    moved = [STUDENT._replace(readout=STUDENT.readout.at[1, 0].add(s)) for s in (step, -step)]
    slope = (final(controls, moved[0]) - final(controls, moved[1])) / (2 * step)
    np.testing.assert_allclose(result.costates.readout[0, 1, 0], slope, rtol=1e-6)
    np.testing.assert_allclose(
        result.costates.overlap[-1],
        jax.grad(student_cost)(jax.tree.map(lambda x: x[-1], result.path)).overlap,
        rtol=1e-10,
    )


def test_slopes_become_pontryagins_switching_functions_as_the_intervals_shrink():
    @jax.jit
    def report(controls):
        result = evaluate(student_drift, student_cost, STUDENT, controls, TASKS, 2.0)
        return result, switching(student_drift, result)

    errors = []
    for intervals in (10, 20):
        result, at = report(student_schedule(intervals))
        middle = {n: 0.5 * (at[n][:-1] + at[n][1:]) for n in at}  # the edges' mean for an average over the interval
        errors.append([float(jnp.abs(middle[n] - result.slopes[n][:-1]).max()) for n in ("fraction", "rate")])
    assert np.all(np.array(errors[1]) < 0.6 * np.array(errors[0]))
    assert max(errors[1]) < 2e-3


def test_a_program_holds_the_drift_a_few_times_whatever_the_number_of_intervals():
    def asked(intervals):
        search = partial(optimise, student_drift, student_cost, STUDENT, sets=TASKS, horizon=1.0)
        return str(jax.make_jaxpr(lambda c: search(controls=c).cost)(student_schedule(intervals)))

    few, many = asked(4), asked(80)
    assert few.count(" asin ") == many.count(" asin ") <= 8  # each drift has three; forward, again and back


# --- optima that are known --------------------------------------------------------------------------------------------


def test_a_linear_quadratic_problem_is_solved_to_its_closed_form():
    # x' = a x + u, cost ½∫u² + ½ q x(T)²; with constant u_n on intervals u_n = -q x(T) b_n/Δ, b_n = ∫ e^{a(T-s)} ds
    a, q, horizon, first = -0.7, 3.0, 2.0, 1.5
    edges = np.linspace(0, horizon, 41)
    b = (np.exp(a * (horizon - edges[:-1])) - np.exp(a * (horizon - edges[1:]))) / a
    width = horizon / 40
    last = np.exp(a * horizon) * first / (1 + q * np.sum(b**2) / width)
    found = jax.jit(
        lambda start: optimise(
            lambda y, u: (a * y[0] + u["force"], 0.5 * u["force"] ** 2),
            lambda y: y[1] + 0.5 * q * y[0] ** 2,
            (start, jnp.asarray(0.0)),
            {"force": jnp.zeros(40)},
            {"force": Box(-10.0, 10.0)},
            horizon,
            tolerance=1e-9,
        )
    )(jnp.asarray(first))
    assert found.converged
    np.testing.assert_allclose(found.controls["force"], -q * last * b / width, atol=1e-6)
    np.testing.assert_allclose(found.path[0][-1], last, atol=1e-6)
    np.testing.assert_allclose(found.costates[0][-1], q * last, atol=1e-6)


@pytest.mark.parametrize("method", ["projected", "mirror"])
def test_growth_before_harvest_switches_at_the_known_time(method):
    # x' = u₁ x, r' = u₂ x, r(3) as large as possible: grow until T - 1, then harvest; r(T) = e^{T-1}
    found = jax.jit(
        lambda start: optimise(
            lambda y, u: (u["fraction"][0] * y[0], u["fraction"][1] * y[0]),
            lambda y: -y[1],
            start,
            {"fraction": jnp.full((30, 2), 0.5)},
            {"fraction": Simplex()},
            3.0,
            method=method,
            tolerance=1e-4,
        )
    )((jnp.asarray(1.0), jnp.asarray(0.0)))
    assert found.converged
    assert found.gap <= 1e-4
    np.testing.assert_allclose(found.cost, -np.exp(2.0), atol=2e-4)
    grow = np.asarray(found.controls["fraction"][:, 0])
    assert np.all(grow[:19] > 0.99)
    assert np.all(grow[21:] < 0.01)


def test_a_control_without_a_set_is_held_fixed():
    given = {"push": jnp.zeros(10), "wind": jnp.linspace(0.0, 0.2, 10)}
    found = optimise(
        lambda x, u: u["push"] + u["wind"], lambda x: (x - 1.0) ** 2, jnp.asarray(0.0),
        given, {"push": Box(0.0, 1.0)}, 2.0)  # fmt: skip
    assert found.converged
    np.testing.assert_array_equal(found.controls["wind"], given["wind"])
    np.testing.assert_allclose(2.0 * jnp.mean(found.controls["push"]), 0.8, atol=1e-5)


@pytest.mark.parametrize("method", ["projected", "mirror"])
def test_a_control_whose_bounds_meet_is_held_there(method):
    found = jax.jit(
        lambda bound: optimise(
            lambda x, u: u["push"] + u["wind"], lambda x: (x - 1.0) ** 2, jnp.asarray(0.0),
            {"push": jnp.zeros(10), "wind": jnp.full(10, 0.1)},
            {"push": Rate(1.0), "wind": Rate(bound, slowest=bound)}, 2.0, method=method)
    )(jnp.asarray(0.1))  # fmt: skip
    assert found.converged
    np.testing.assert_allclose(found.controls["wind"], 0.1, rtol=1e-12)
    np.testing.assert_allclose(2.0 * jnp.mean(found.controls["push"]), 0.8, atol=1e-3)


def test_a_difficulty_lies_between_easy_and_hard_whichever_is_larger_and_lengths_have_a_column_each():
    assert float(Difficulty(1.0, 0.2).project(jnp.array(0.1))) == pytest.approx(0.2)
    with pytest.raises(sv.InvalidValue, match=r"level in interval 1 is 2, outside its range \[0.2, 1\]"):
        Difficulty(0.2, 1.0).check("level", np.array([0.5, 2.0]))
    with pytest.raises(sv.InvalidValue, match="length has 3 columns; it must have 4, one for each length"):
        Lengths(4).check("length", np.eye(3))


def test_of_several_starts_the_best_minimum_is_returned():
    def search(push):
        return optimise(
            lambda x, u: u["push"], lambda x: (x**2 - 1) ** 2 + 0.3 * x, jnp.asarray(0.0),
            {"push": push}, {"push": Box(-1.0, 1.0)}, 2.0, tolerance=1e-8)  # fmt: skip

    many = jax.jit(jax.vmap(search))(jnp.full((2, 10), 0.5) * jnp.array([1.0, -1.0])[:, None])
    lowest = np.min(np.polynomial.Polynomial([1, 0.3, -2, 0, 1])(np.linspace(-2, 2, 40001)))
    assert np.all(many.converged)
    assert many.cost[0] > many.cost[1] + 0.4
    np.testing.assert_allclose(best(many).cost, lowest, atol=1e-7)


# --- what did not work ------------------------------------------------------------------------------------------------


def test_a_search_that_ends_early_or_meets_infinity_is_not_converged():
    given = (jnp.asarray(1.0), {"push": jnp.full(8, 0.2)}, {"push": Box(-1.0, 1.0)}, 2.0)
    problem = (lambda x, u: jnp.sin(3 * x) + u["push"], lambda x: x**2, *given)
    short = optimise(*problem, iterations=3)
    assert not short.converged
    assert short.gap > 1e-4
    again = evaluate(*problem[:3], short.controls, *problem[4:])
    assert abs(short.cost - again.cost) <= short.error + again.error <= 2e-8
    blown = optimise(
        lambda x, u: u["push"] * x**2, lambda x: x, jnp.asarray(1.0),
        {"push": jnp.full(400, 9.0)}, {"push": Box(0.0, 10.0)}, 100.0)  # fmt: skip
    assert not blown.converged
    assert np.isnan(blown.cost)
    assert np.isnan(blown.gap)


def test_invalid_schedules_are_refused_in_one_sentence():
    good, given = student_schedule(6), partial(evaluate, student_drift, student_cost, STUDENT, sets=TASKS, horizon=3.0)
    with pytest.raises(sv.InvalidValue, match="fraction in interval 2 is .* must be non-negative and sum to one"):
        given({**good, "fraction": good["fraction"].at[2, 0].add(0.1)})
    with pytest.raises(sv.InvalidValue, match="fraction in interval 1 is .1.5, -0.5.; fractions must be non-negative"):
        given({**good, "fraction": good["fraction"].at[1].set(jnp.array([1.5, -0.5]))})
    with pytest.raises(sv.InvalidValue, match=r"rate in interval 3 is 4, outside its range \[0, 3\]"):
        given({**good, "rate": good["rate"].at[3].set(4.0)})
    with pytest.raises(sv.InvalidValue, match="do not cover the same horizon: intervals of fraction 6, rate 5"):
        given({**good, "rate": good["rate"][:5]})
    with pytest.raises(sv.InvalidValue, match="rate in interval 0 is nan"):
        given({**good, "rate": good["rate"].at[0].set(jnp.nan)})
    with pytest.raises(sv.InvalidValue, match="there is no control 'rate' among fraction"):
        given({"fraction": good["fraction"]})
    with pytest.raises(sv.InvalidValue, match="empty or unbounded"):
        Box(1.0, 0.0)
    with pytest.raises(sv.InvalidValue, match=r"from 0 to 8 and does not cover the horizon \[0, 10\]"):
        on_grid([0.0, 5.0, 8.0], [1.0, 0.5], 10.0, 100)
    with pytest.raises(sv.InvalidValue, match="3 edges needs 2 values, not 1"):
        on_grid([0.0, 5.0, 10.0], [1.0], 10.0, 100)


def test_a_schedule_on_other_edges_keeps_its_mean_on_the_grid():
    rows = np.array([[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]])
    grid = on_grid([0.0, 0.33, 1.21, 4.0], rows, 2.0, 7)
    np.testing.assert_allclose(grid.sum(axis=1), 1.0)
    np.testing.assert_allclose(grid.mean(axis=0), (0.33 * rows[0] + 0.88 * rows[1] + 0.79 * rows[2]) / 2.0)


# --- the accuracy that is stated --------------------------------------------------------------------------------------


def swinging(y, u):
    """A pendulum with friction, whose second harmonic is the control."""
    return (y[1], -jnp.sin(y[0]) - 0.1 * y[1] + u["push"] * jnp.sin(2 * y[0]))


def swing_cost(y):
    return y[0] ** 2 + jnp.cos(y[1])


def swung(y, rows, widths):
    """The same by scipy, from edge to edge."""
    path = [np.asarray(y, float)]
    for push, width in zip(rows, widths, strict=True):
        run = solve_ivp(
            lambda t, y, push=push: [y[1], -np.sin(y[0]) - 0.1 * y[1] + push * np.sin(2 * y[0])],
            (0, width), path[-1], "DOP853", rtol=1e-12, atol=1e-13)  # fmt: skip
        path.append(run.y[:, -1])
    return np.array(path)


@cache
def swing():
    """One program for all draws: three intervals, unequal by a held duration."""

    def drift(y, u):
        return jax.tree.map(lambda x: u["duration"] * x, swinging(y, u))

    def report(push, duration, start):
        given = {"push": push, "duration": duration}
        return evaluate(drift, swing_cost, start, given, {"push": Box(-9.0, 9.0)}, 3.0, max_steps=2048)

    return jax.jit(report)


def test_any_intervals_and_controls_are_followed_to_the_stated_accuracy_or_flagged():
    rng, followed = np.random.default_rng(0), 0
    for _ in range(24):
        widths, push = 10 ** rng.uniform(-6, 2.3, 3), rng.uniform(-3, 3, 3)
        result = swing()(jnp.asarray(push), jnp.asarray(widths), (jnp.asarray(0.4), jnp.asarray(-0.2)))
        path = np.stack(result.path, axis=1)
        if not result.error <= 1e-8:
            assert not result.converged
            assert np.isnan([result.cost, result.gap, *result.slopes["push"], *result.costates[0]]).all()
        good = np.asarray(np.isfinite(path).all(axis=1))
        assert good[0]
        assert np.all(np.diff(good.astype(int)) <= 0)
        reference = swung([0.4, -0.2], push, widths)
        off = np.abs(path - reference) / (1 + np.abs(reference))
        assert np.all(off[good] < 1e-8), (widths, push)
        followed += bool(good.all())
    assert 12 <= followed < 24  # both happen


def test_costates_and_slopes_have_the_stated_accuracy_in_long_intervals():
    """Against differences of scipy's solution over the whole horizon, each interval several periods long."""
    push, widths, start = np.array([-0.5, 0.3, -1.0]), np.array([9.0, 4.0, 7.0]), np.array([0.4, -0.2])
    result = swing()(jnp.asarray(push), jnp.asarray(widths), tuple(jnp.asarray(start)))
    assert result.error <= 1e-8

    def final(push, start):
        return float(swing_cost(swung(start, push, widths)[-1]))

    def slope(function, x, i, h=2e-4):
        at = [function(x + s * h * np.eye(len(x))[i]) for s in (-2, -1, 1, 2)]
        return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)

    pushes = [slope(lambda p: final(p, start), push, i) for i in range(3)]
    starts = [slope(lambda y: final(push, y), start, i) for i in range(2)]
    np.testing.assert_allclose(result.slopes["push"], pushes, rtol=1e-6)
    np.testing.assert_allclose([p[0] for p in result.costates], starts, rtol=1e-6)


def test_a_lane_takes_its_own_steps_whatever_the_others_need():
    push = jnp.array([[-0.5, 0.3, -1.0], [0.1, 0.2, -0.3]])
    widths = jnp.array([[9.0, 40.0, 14.0], [1e-3, 0.2, 1e-2]])
    start = (jnp.asarray(0.4), jnp.asarray(-0.2))
    together = jax.vmap(swing(), (0, 0, None))(push, widths, start)
    for lane in range(2):
        alone = swing()(push[lane], widths[lane], start)
        assert alone.error <= 1e-8
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(a, b[lane], rtol=1e-12, atol=1e-14)


def test_a_stiff_flow_is_flagged_and_its_path_ends_where_it_was_last_right():
    def relax(rates, steps):
        result = evaluate(
            lambda x, u: u["rate"] * (1 - x), lambda x: x**2, jnp.asarray(0.0), {"rate": rates},
            {"rate": Box(0.0, 1e9)}, 2.0, max_steps=steps)  # fmt: skip
        return result, follow(lambda x, u: u["rate"] * (1 - x), jnp.asarray(0.0), {"rate": rates}, 2.0, max_steps=steps)

    stiff, path = relax(jnp.array([0.5, 1e8]), 512)
    assert not stiff.converged
    assert np.isnan([stiff.cost, stiff.gap, *stiff.slopes["rate"], *stiff.costates]).all()
    for result in (stiff.path, path):
        np.testing.assert_allclose(result[:2], [0.0, 1 - np.exp(-0.5)], rtol=1e-9)
        assert np.isnan(result[2])
    mild, _ = relax(jnp.array([0.5, 300.0]), 512)
    np.testing.assert_allclose(mild.path[2], 1.0, rtol=1e-9)


def test_a_search_cannot_gain_by_steps_that_are_too_long():
    """x' = -50 x + u for one long interval: a step of fourth order over all of it is of the size 50⁴/24."""
    found = jax.jit(
        lambda x: optimise(
            lambda x, u: -50.0 * x + u["push"], lambda x: -x, x, {"push": jnp.zeros(1)}, {"push": Box(-1.0, 1.0)}, 3.0)
    )(jnp.asarray(0.2))  # fmt: skip
    assert found.converged
    np.testing.assert_allclose([found.cost, found.controls["push"][0]], [-0.02, 1.0], atol=1e-8)


def test_both_directions_of_differentiation_give_the_same_slopes_of_everything_evaluated():
    def numbers(friction):
        result = evaluate(
            lambda y, u: (y[1], -jnp.sin(y[0]) - friction * y[1] + u["push"]), swing_cost,
            (jnp.asarray(0.4), jnp.asarray(-0.2)), {"push": jnp.array([0.1, -0.3])}, {"push": Box(-1.0, 1.0)}, 6.0)  # fmt: skip
        return jnp.stack([result.cost, result.gap, result.slopes["push"][0], result.path[0][1]])

    at, h = jnp.asarray(0.1), 1e-3
    values = jax.jit(jax.vmap(numbers))(at + h * jnp.array([-2.0, -1.0, 1.0, 2.0]))
    difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(numbers))(at), difference, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.jacrev(numbers))(at), difference, rtol=1e-5)
