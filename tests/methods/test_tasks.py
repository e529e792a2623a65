"""The flow of several tasks against that of one, and the meaning of shared heads and silent units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.activations import activation
from solvable.methods.averages.smooth import smooth
from solvable.methods.flows.committee import Overlaps, committee_drift, committee_loss, equal_units, tied
from solvable.methods.flows.integrate import integrate
from solvable.methods.flows.tasks import TaskOverlaps, mixture, task_drifts, task_losses

RATES = {"rate": jnp.asarray(0.7), "readout_rate": jnp.asarray(0.4), "noise": jnp.asarray(0.1)}


def some_student(units=3, teachers=4, heads=2):
    """Overlaps of drawn weights, a Gram matrix of the teachers and readouts of two tasks with two teacher units each."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(units + teachers, 20))
    gram = jnp.asarray(w @ w.T / 20)
    state = TaskOverlaps(gram[:units, :units], gram[:units, units:], jnp.asarray(rng.normal(size=(heads, units))))
    return state, gram[units:, units:], jnp.asarray([[1.0, 0.5, 0.0, 0.0], [0.0, 0.0, -1.0, 0.8]])


@pytest.mark.parametrize(("name", "heads"), [("erf", (0, 1)), ("erf", (0, 0)), ("relu", (1, 0))])
def test_each_task_alone_moves_the_student_as_the_flow_of_one_teacher_does(name, heads):
    g = activation(name)
    state, gram, targets = some_student()
    drifts = jax.jit(lambda s: task_drifts(g, s, gram, targets, np.array(heads), **RATES))(state)
    losses = task_losses(g, state, gram, targets, np.array(heads))
    for task, head in enumerate(heads):
        alone = Overlaps(state.norm, state.overlap, state.readout[head])
        drift = committee_drift(g, alone, gram, targets[task], **RATES)
        np.testing.assert_allclose(drifts.norm[task], drift.norm, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(drifts.overlap[task], drift.overlap, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(drifts.readout[task, head], drift.readout, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(drifts.readout[task, 1 - head], 0.0)
        np.testing.assert_allclose(losses[task], committee_loss(g, alone, gram, targets[task]), rtol=1e-12)


def test_units_without_a_readout_are_carried_along_without_effect():
    g = activation("erf")
    state, gram, targets = some_student()
    silent = targets[:, :3] * jnp.asarray([1.0, 1.0, 1.0])[None, :]
    padded = task_drifts(g, state, gram, silent.at[:, 2].set(0.0) @ jnp.eye(3, 4), **RATES)
    short = task_drifts(g, state, gram, silent[:, :2], **RATES)
    for one, other in zip(padded, short, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_two_equal_tasks_with_a_shared_head_are_one_task_in_any_mixture():
    g = activation("erf")
    state, gram, targets = some_student(heads=1)
    same = jnp.stack([targets[0], targets[0]])
    drifts = task_drifts(g, state, gram, same, np.array([0, 0]), **RATES)
    for fractions in ([1.0, 0.0], [0.3, 0.7]):
        for part, alone in zip(mixture(drifts, jnp.asarray(fractions)), drifts, strict=True):
            np.testing.assert_allclose(part, alone[0], rtol=1e-12, atol=1e-14)


def test_tasks_without_their_own_head_must_name_one():
    state, gram, targets = some_student(heads=1)
    with pytest.raises(sv.InvalidValue, match="2 tasks have 1 heads"):
        task_losses(activation("erf"), state, gram, targets)


def test_a_student_with_an_activation_by_quadrature_learns_tasks_as_with_its_closed_form():
    start = TaskOverlaps(0.2 * jnp.eye(2), 0.1 * jnp.ones((2, 1)), jnp.ones((1, 2)))
    by_rule, closed = (
        task_drifts(g, start, jnp.eye(1), np.ones((1, 1)), rate=jnp.asarray(0.5), readout_rate=jnp.asarray(0.1),
                    noise=jnp.asarray(0.1))
        for g in (smooth(lambda x: jax.lax.erf(x / 2**0.5), "erf by rule"), activation("erf"))
    )  # fmt: skip
    for one, other in zip(by_rule, closed, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_equal_units_are_found_and_derivatives_pass_the_tie():
    norm = jnp.asarray([[1.0, 0.2, 0.3, 0.3], [0.2, 1.0, 0.3, 0.3], [0.3, 0.3, 2.0, 0.1], [0.3, 0.3, 0.1, 2.0]])
    alike = equal_units(norm, jnp.zeros((4, 1)), jnp.ones((2, 4)))
    assert alike.first.tolist() == [0, 0, 2, 2]
    assert alike.second.tolist() == [1, 1, 3, 3]
    noisy = norm + 1e-3 * jnp.arange(16.0).reshape(4, 4)
    made = np.asarray(tied(alike, noisy, jnp.zeros((4, 1)), jnp.arange(4.0))[0])
    assert made[0, 1] == noisy[0, 1]
    assert made[1, 0] == noisy[0, 1]
    assert made[3, 1] == noisy[2, 0]
    assert made[3, 3] == noisy[2, 2]
    slope = jax.jacfwd(lambda v: tied(alike, noisy, jnp.zeros((4, 1)), v)[2])(jnp.arange(4.0))
    np.testing.assert_array_equal(slope, np.eye(4))
    assert equal_units(norm, jnp.arange(4.0)[:, None], jnp.ones(4)).first.tolist() == [0, 1, 2, 3]


def test_a_plateau_is_left_later_the_smaller_the_asymmetry_by_its_logarithm_and_never_without():
    g, gram, ones = activation("erf"), jnp.eye(2), jnp.ones((1, 2))

    @jax.jit
    def exit_time(tilt):
        start = TaskOverlaps(0.25 * jnp.eye(2), 0.05 + tilt * jnp.eye(2), ones)
        alike = equal_units(*start)

        def drift(t, state, _):
            zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
            drifts = task_drifts(g, state, gram, ones, rate=one, readout_rate=zero, noise=zero)
            return TaskOverlaps(*tied(alike, *mixture(drifts, jnp.ones(1))))

        def specialised(t, state, _):
            return jnp.max(jnp.max(state.overlap, axis=0) - jnp.min(state.overlap, axis=0)) - 0.5

        times = jnp.asarray([0.0, 400.0])
        return integrate(drift, start, times, rtol=1e-9, atol=1e-12, event=specialised).event_time

    found = np.array([exit_time(x) for x in (1e-3, 1e-5, 1e-7)])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[2] - found[1], found[1] - found[0], rtol=0.02)
    assert found[1] > found[0] + 20
    assert np.isnan(exit_time(0.0))
