"""The RL perceptron: averages of an episode, limits, fixed points, optimal schedules, students on both sides of a separatrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp

import solvable as sv
from solvable.methods.flows.control import Box, Lengths, arrive, evaluate, optimise
from solvable.model import simulate_batch
from solvable.models.online.rl_perceptron.averages import wrong_actions
from solvable.models.online.rl_perceptron.sparsity_figures import LEVEL, crossing


def averages(rho, **fields):
    return np.array(sv.RLPerceptron(**fields).averages(jnp.asarray(rho)))


@pytest.mark.parametrize("rule", ["all", "enough", "survival", "breadcrumb"])
def test_averages_of_an_episode_are_those_of_drawn_episodes(rule):
    """Fields of teacher and student drawn with their covariance, returns counted action by action."""
    rho, steps, needed, reward, punishment, bonus, number = 0.4, 5, 3, 1.0, 0.3, 0.2, 400_000
    rng = np.random.default_rng(0)
    student = rng.normal(size=(number, steps))
    teacher = rho * student + np.sqrt(1 - rho**2) * rng.normal(size=(number, steps))
    action, right = np.sign(student), student * teacher > 0
    everything, count = right.all(axis=1), right.sum(axis=1)
    given = {
        "all": np.where(everything, reward, -punishment)[:, None] * np.ones(steps),
        "enough": np.where(count >= needed, reward, -punishment)[:, None] * np.ones(steps),
        "survival": reward * everything[:, None]
        + bonus * right[:, :needed].all(axis=1)[:, None] * (np.arange(steps) < needed),
        "breadcrumb": reward * everything[:, None] + bonus * np.cumsum(right[:, ::-1], axis=1)[:, ::-1],
    }[rule]
    drawn = np.stack([(given * action * teacher).mean(axis=1), (given * action * student).mean(axis=1),
                      (given**2).sum(axis=1) / steps**2])  # fmt: skip
    error = drawn.std(axis=1) / np.sqrt(number)
    result = averages(rho, rule=rule, steps=steps, needed=needed, punishment=punishment, bonus=bonus)
    assert np.all(np.abs(drawn.mean(axis=1) - result) < 4 * error)
    assert np.all(error < 2e-3)


@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.3, 0.95])
def test_rules_become_one_another_in_their_limits(rho):
    every = averages(rho, steps=7, punishment=0.2)
    np.testing.assert_allclose(averages(rho, rule="enough", needed=7, steps=7, punishment=0.2), every, rtol=1e-12)
    plain = averages(rho, steps=7)
    np.testing.assert_allclose(averages(rho, rule="breadcrumb", steps=7, bonus=0.0), plain, rtol=1e-12)
    both = averages(rho, steps=7, reward=1.5)
    np.testing.assert_allclose(averages(rho, rule="survival", steps=7, needed=7, bonus=0.5), both, rtol=1e-12)
    # whatever it does is enough: Hebb's rule on its own actions
    k = 1 / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(averages(rho, rule="enough", needed=0, steps=7), [2 * k * rho, 2 * k, 1 / 7], rtol=1e-12)
    np.testing.assert_allclose(averages(rho, steps=1)[:2], [k * (1 + rho)] * 2, rtol=1e-12)


def test_fixed_points_stand_still_and_their_stability_is_that_of_the_flow():
    punished = sv.RLPerceptron(steps=13, punishment=0.05)
    trap, saddle = punished.fixed_points()
    assert trap.stable
    assert not saddle.stable
    assert saddle.eigenvalues[0].real < 0 < saddle.eigenvalues[1].real
    for point in (trap, saddle):
        result = averages(point.alignment, steps=13, punishment=0.05)
        rates = [result[0], 2 * np.sqrt(point.norm) * result[1] + result[2]]
        np.testing.assert_allclose(rates, 0, atol=1e-12)
    np.testing.assert_allclose([saddle.alignment, saddle.norm], [0.74082, 0.01548], atol=1e-5)
    # the pair appears at the threshold
    share = float(sv.RLPerceptron(steps=8).threshold())
    born = share / (1 - share)
    assert len(sv.RLPerceptron(steps=8, punishment=1.0001 * born).fixed_points()) == 2
    assert sv.RLPerceptron(steps=8, punishment=0.9999 * born).fixed_points() == []


def test_the_separatrix_divides_success_from_failure():
    edge = float(sv.RLPerceptron(steps=13, punishment=0.05).separatrix([1.0])[0])
    ends = []
    for start in (edge - 1e-3, edge + 1e-3):
        model = sv.RLPerceptron(steps=13, punishment=0.05, initial_alignment=start, times=[0.0, 5.0, 200.0])
        ends.append(float(model.theory().alignment[-1]))
    assert ends[0] < 0.01
    assert ends[1] > 0.9
    assert np.isnan(sv.RLPerceptron(steps=2).separatrix([1.0])).all()


def test_the_best_rate_learns_faster_than_other_rates_and_has_no_trap():
    model = sv.RLPerceptron(steps=8, schedule="best-rate", times=[0.0, 20.0, 100.0])
    best, punished = np.asarray(model.theory().alignment), np.asarray(model.replace(punishment=0.2).theory().alignment)

    def constant(t, y, rate):
        rho, k = y[0] / np.sqrt(y[1]), 1 / np.sqrt(2 * np.pi)
        right = 1 - np.arccos(rho) / np.pi
        pull = k * rate * (1 + rho) * right**7
        return [pull, 2 * np.sqrt(y[1]) * pull + rate**2 * right**8 / 8]

    for rate in (1.0, 3.0, 10.0):
        overlap, norm = solve_ivp(constant, (0, 100), [0.3, 1.0], t_eval=[20, 100], rtol=1e-6, args=(rate,)).y
        assert np.all(best[1:] > overlap / np.sqrt(norm) + 1e-3)
    # a constant rate is trapped by this punishment
    assert len(sv.RLPerceptron(steps=8, punishment=0.2).fixed_points()) == 2
    assert punished[-1] > 0.99

    def speed(t, rho):
        """Its closed form without punishment: dρ/dt = T P^(T-2) (1-ρ²)²/(4πρ)."""
        return 8 * (1 - np.arccos(rho) / np.pi) ** 6 * (1 - rho**2) ** 2 / (4 * np.pi * rho)

    slow = solve_ivp(speed, (0, 100), [0.3], rtol=1e-10, atol=1e-12).y[0, -1]
    np.testing.assert_allclose(best[-1], slow, atol=1e-8)


def test_no_schedule_found_by_optimal_control_beats_the_best_rate():
    """The same horizon, the pace in units of √Q chosen freely on 60 intervals, by the adjoint of the discretised flow."""
    model = sv.RLPerceptron(steps=4, schedule="best-rate", times=np.linspace(0.0, 10.0, 61))

    def drift(place, control):
        rho, log_norm = place
        result, pace = model.averages(rho), control["pace"]
        pull = result.along - rho * result.growth
        return pace * pull - 0.5 * rho * result.kick * pace**2, 2 * pace * result.growth + result.kick * pace**2

    start = (jnp.asarray(0.3), jnp.asarray(0.0))
    found = jax.jit(lambda: optimise(drift, lambda place: -place[0], start, {"pace": jnp.full(60, 1.0)},
                                     {"pace": Box(0.0, 20.0)}, 10.0, iterations=2000, tolerance=1e-6))()  # fmt: skip
    exact = model.theory()
    assert found.converged
    assert -1e-4 < float(-found.cost - exact.alignment[-1]) < 1e-8
    scaled = np.asarray(exact.pace / np.sqrt(exact.norm))
    np.testing.assert_allclose(found.controls["pace"][10:-1], 0.5 * (scaled[10:-2] + scaled[11:-1]), rtol=0.05)


def test_optimal_lengths_are_the_best_of_all_schedules_of_whole_lengths_and_obey_the_adjoint():
    model = sv.RLPerceptron(steps=4, schedule="optimal-length", times=[0.0, 10.0, 30.0, 60.0, 100.0])
    result = model.theory()
    assert result.converged
    assert result.gap <= 1e-5
    duration = jnp.diff(model.times)

    @jax.jit
    def errors(lengths):
        def final(rows):
            end = arrive(model.mixed_drift, model._start, {"length": rows, "duration": duration}, 4.0, accuracy=1e-10)
            return wrong_actions(end[0])

        return jax.vmap(final)(lengths)

    every = np.stack(np.meshgrid(*[np.arange(4)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    enumerated = np.asarray(errors(jnp.asarray(np.eye(4)[every])))
    np.testing.assert_allclose(result.length[:-1], 1 + every[enumerated.argmin()], atol=1e-3)
    np.testing.assert_allclose(result.final_error, enumerated.min(), atol=1e-9)
    assert np.ptp(enumerated) > 0.015  # a problem in which lengths matter: the best is 0.0686
    # the switching functions of a mixture of lengths: differences of the whole horizon
    rows, shifts = jnp.full((4, 4), 0.25), 1e-5 * jnp.asarray(np.eye(16).reshape(16, 4, 4))
    mixed = jax.jit(lambda rows: evaluate(
        model.mixed_drift, lambda place: wrong_actions(place[0]), model._start, {"length": rows, "duration": duration},
        {"length": Lengths(4)}, 4.0))(rows)  # fmt: skip
    shifted = jnp.concatenate([rows[None] + shifts, rows[None] - shifts, jnp.broadcast_to(rows, (224, 4, 4))])
    ends = errors(shifted)  # as many as before: one shape, one program
    np.testing.assert_allclose(mixed.slopes["length"].ravel(), (ends[:16] - ends[16:32]) / 2e-5, rtol=1e-5, atol=1e-9)


def mixed_flow(start, row, width):
    """(ρ, Q) behind an interval in which a fraction of the episodes has each length, from (ρ, Q), by scipy."""

    def drift(t, y):
        lengths, k = np.arange(1, len(row) + 1), 1 / np.sqrt(2 * np.pi)
        right = 1 - np.arccos(min(y[0] / np.sqrt(y[1]), 1.0)) / np.pi
        pull = k * (1 + y[0] / np.sqrt(y[1])) * row @ right ** (lengths - 1)
        return [pull, 2 * np.sqrt(y[1]) * pull + row @ (right**lengths / lengths)]

    begin = [start[0] * np.sqrt(start[1]), start[1]]
    overlap, norm = solve_ivp(drift, (0, width), begin, "DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    return overlap / np.sqrt(norm), norm


@pytest.mark.parametrize(
    ("times", "error"),
    [([0.0, 50.0, 100.0], 0.06856), ([0.0, 100.0, 200.0, 300.0], 0.03854)],
)
def test_long_intervals_are_followed_and_their_lengths_are_as_good_as_the_best_of_an_enumeration(times, error):
    """Steps that are too long are exploited by a search: errors of 0.035 and 2e-16 were found, cosines of 1.59."""
    result, rows = sv.RLPerceptron(steps=12, schedule="optimal-length", times=times).theory(), np.eye(12)
    assert result.converged
    assert np.all(np.abs(result.alignment) <= 1)
    ends, lengths = {(): (0.3, 1.0)}, np.asarray(result.length)[:-1]
    for width, length in zip(np.diff(times), lengths, strict=True):
        # all lengths from all before, or near those found where there are too many
        near = range(12) if len(times) == 3 else range(max(round(length) - 3, 0), min(round(length) + 2, 12))
        ends = {(*way, i): mixed_flow(place, rows[i], width) for way, place in ends.items() for i in near}
    errors = {way: np.arccos(place[0]) / np.pi for way, place in ends.items()}
    best = min(errors.values())
    # a local minimum, and neighbouring lengths may be mixed where that costs less than the tolerance of the search
    assert best - 1e-8 < result.final_error < best + 3e-5
    place = (0.3, 1.0)
    for width, length in zip(np.diff(times), lengths, strict=True):
        longer = length - np.floor(length)
        place = mixed_flow(place, (1 - longer) * rows[int(length) - 1] + longer * rows[int(length) % 12], width)
    np.testing.assert_allclose(result.final_error, np.arccos(place[0]) / np.pi, atol=1e-7)
    np.testing.assert_allclose(result.final_error, error, atol=1e-5)


def test_the_lengths_found_for_any_times_are_followed_to_the_stated_accuracy():
    model = sv.RLPerceptron(steps=4, schedule="optimal-length", times=[0.0, 1.0, 2.0, 3.0])
    search = jax.jit(lambda times: model.with_values({"times": times})._lengths(model.numerics))
    rng = np.random.default_rng(1)
    for _ in range(12):
        widths = 10 ** rng.uniform(-4, 6, 3)
        found = search(jnp.asarray(np.concatenate([[0.0], np.cumsum(widths)])))
        assert found.converged
        assert found.error <= model.accuracy
        place = (0.3, 1.0)
        for i, row in enumerate(np.asarray(found.controls["length"])):
            place = mixed_flow(place, row, widths[i])
            result = [float(found.path[0][i + 1]), float(np.exp(found.path[1][i + 1]))]
            np.testing.assert_allclose(result, place, rtol=1e-8)


def test_the_best_episodes_grow_as_the_student_gets_better():
    model = sv.RLPerceptron(steps=12, schedule="best-rate-and-length", times=[0.0, 20.0, 100.0])
    result = model.theory()
    # the best whole number is the largest T with (T-1)/T ≤ P: floor(1/(1-P)), at most 12
    np.testing.assert_array_equal(result.length, np.minimum(np.floor(1 / np.asarray(result.test_error)), 12))
    assert list(np.asarray(result.length)) == [2.0, 10.0, 12.0]


def test_a_given_pace_is_followed():
    pace = np.array([1.0, 3.0, 0.0])
    model = sv.RLPerceptron(steps=5, punishment=0.03, schedule="given", times=[0.0, 4.0, 9.0], given_pace=pace)

    def drift(t, y):
        u = np.interp(t, [0.0, 4.0, 9.0], pace)
        f, g, h = averages(y[0] / np.sqrt(y[1]), steps=5, punishment=0.03)
        return [u * f, 2 * u * np.sqrt(y[1]) * g + u**2 * h]

    slow = solve_ivp(drift, (0, 9), [0.3, 1.0], t_eval=[0, 4, 9], max_step=0.5, rtol=1e-6, atol=1e-8).y
    np.testing.assert_allclose(np.stack([model.theory().overlap, model.theory().norm]), slow, rtol=2e-5)


def test_students_end_on_the_side_of_the_separatrix_on_which_they_begin():
    model = sv.RLPerceptron(steps=8, punishment=0.1, times=[0.0, 20.0, 60.0])
    edge = float(model.separatrix([1.0])[0])
    learnt = []
    for start in (edge - 0.15, edge + 0.2):
        aside = model.replace(initial_alignment=start)
        keys = jnp.stack([aside.key(400, s) for s in range(16)])
        learnt.append(np.mean(np.asarray(simulate_batch(aside, {}, keys, 400)["alignment"])[:, -1] > 0.8))
    assert learnt[0] < 0.2
    assert learnt[1] > 0.8


def test_a_flow_that_needs_too_many_steps_is_nan():
    short = sv.RLPerceptron(steps=8, schedule="best-rate", times=[0.0, 20.0, 100.0]).theory({"max_steps": 5})
    assert not short.converged
    assert np.isnan(short.final_error)


def test_incompatible_fields_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="needed = 6 is more than the steps = 4 of an episode"):
        sv.RLPerceptron(rule="enough", steps=4)
    with pytest.raises(sv.InvalidValue, match="goes with rule = 'all', not 'enough'"):
        sv.RLPerceptron(rule="enough", schedule="best-rate-and-length")
    with pytest.raises(sv.InvalidValue, match="times must be at least two increasing numbers"):
        sv.RLPerceptron(times=[0.0, 5.0, 5.0])
    with pytest.raises(sv.InvalidValue, match="fixed points need scalar controls"):
        sv.RLPerceptron(punishment=[0.1, 0.2]).fixed_points()
    with pytest.raises(sv.InvalidValue, match="has an entry outside"):
        sv.RLPerceptron().separatrix([1.0, 0.0])
    with pytest.raises(sv.InvalidValue, match="'survival' does not punish"):
        sv.RLPerceptron(rule="survival").threshold()


def test_the_delay_is_the_first_time_at_which_enough_actions_are_right():
    right = np.array([[0.5, 0.6, 0.8, 0.6, 0.9], [0.5, 0.5, 0.6, 0.6, 0.65]])
    errors = xr.DataArray(1 - right, {"seed": [0, 1], "time": [0.0, 1.0, 3.0, 4.0, 8.0]}, ("seed", "time"))
    found = crossing(errors)
    assert float(found[0]) == pytest.approx(1.0 + 2.0 * (LEVEL - 0.6) / 0.2)
    assert np.isnan(found[1])  # never
