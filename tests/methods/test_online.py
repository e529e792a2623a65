"""The engine as a whole: starts from weights, stages, heads, events, exact symmetry, and what it refuses."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import solvable as sv
from solvable.methods.averages.activations import activation
from solvable.methods.averages.smooth import smooth
from solvable.methods.flows.committee import equal_units, tied
from solvable.methods.flows.online import drawn_overlaps, learn, overlaps_of, plateau_exit, specialisation_gap, stages
from solvable.methods.flows.tasks import TaskOverlaps, task_drifts

ERF = activation("erf")
TIMES = np.array([0.0, 4.0, 8.0])


def student(units=3, teachers=2, heads=2, size=200):
    rng = np.random.default_rng(0)
    w, u = 0.4 * rng.normal(size=(units, size)), rng.normal(size=(teachers, size))
    return overlaps_of(w, u, rng.normal(size=(heads, units)))


@cache
def two_tasks():
    start, gram = student()
    plan = stages([4.0, 8.0], [[1.0, 0.0], [0.3, 0.7]], rate=[0.6, 0.3], readout_rate=[0.2, 0.1])
    return start, gram, plan, learn(ERF, start, gram, np.eye(2), TIMES, plan, noise=0.04)


def test_stages_are_learnt_one_after_the_other_as_if_each_were_a_flow_of_its_own():
    start, gram, plan, whole = two_tasks()
    assert whole.converged
    assert float(whole.end_time) == 8.0
    # two stages that are the same are one; and shapes that are the same share a program
    alone = stages([2.0, 4.0], [[1.0, 0.0]] * 2, rate=0.6, readout_rate=0.2)
    first = learn(ERF, start, gram, np.eye(2), [0.0, 1.0, 4.0], alone, noise=0.04)
    later = stages([7.0, 8.0], [[0.3, 0.7]] * 2, rate=0.3, readout_rate=0.1)
    second = learn(ERF, first.end, gram, np.eye(2), [4.0, 5.0, 8.0], later, noise=0.04)
    for one, other in zip(whole.state, second.state, strict=True):
        np.testing.assert_allclose(one[2], other[2], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(whole.losses[1], first.losses[-1], rtol=1e-7)
    np.testing.assert_array_equal(whole.state.readout[1, 1], start.readout[1])  # no sample of task 2 until then


def test_gradient_descent_from_the_measured_start_follows_the_flow_through_both_stages():
    rng, size = np.random.default_rng(1), 400
    w, u = 0.4 * rng.normal(size=(3, size)), rng.normal(size=(2, size))
    v = rng.normal(size=(2, 3))
    start, gram = overlaps_of(w, u, v)
    plan = two_tasks()[2]
    result = learn(ERF, start, gram, np.eye(2), TIMES, plan, noise=0.04)
    runs = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, heads = w.copy(), v.copy()
        for step in range(8 * size):
            stage = int(step >= 4 * size)
            task = int(rng.random() >= plan.fractions[stage, 0])
            x = rng.normal(size=size)
            field, target = a @ x / np.sqrt(size), erf(u[task] @ x / np.sqrt(2 * size))
            hidden = erf(field / np.sqrt(2))
            error = heads[task] @ hidden - target - 0.2 * rng.normal()
            slope = np.sqrt(2 / np.pi) * np.exp(-(field**2) / 2)
            rate, other = float(plan.rate[stage]), float(plan.readout_rate[stage])
            a -= rate / np.sqrt(size) * (error * heads[task] * slope)[:, None] * x[None, :]
            heads[task] -= other / size * error * hidden
        runs.append(overlaps_of(a, u, heads)[0])
    for name in ("norm", "overlap", "readout"):
        mean = np.mean([np.asarray(getattr(run, name)) for run in runs], axis=0)
        assert np.abs(mean - np.asarray(getattr(result.state, name)[-1])).max() < 0.1


def test_an_exactly_symmetric_student_never_leaves_its_plateau_and_a_slightly_tilted_one_does():
    K, M = 3, 2
    plan = stages([10.0, 3000.0], [[1.0, 0.0]] * 2, rate=1.0)  # the second task is there for the shared program
    symmetric = TaskOverlaps(0.25 * np.eye(K), np.full((K, M), 0.05), np.ones((2, K)))
    times, targets = [0.0, 1500.0, 3000.0], np.ones((2, M))
    result = learn(ERF, symmetric, np.eye(M), targets, times, plan)
    assert result.converged
    overlap, norm = np.asarray(result.state.overlap), np.asarray(result.state.norm)
    np.testing.assert_array_equal(overlap, overlap[:, :1].repeat(K, 1))  # to the last bit
    off = norm[:, ~np.eye(K, dtype=bool)]
    np.testing.assert_array_equal(off, off[:, :1].repeat(K * K - K, 1))
    assert specialisation_gap(jax.tree.map(lambda x: x[-1], result.state), jnp.eye(M)) == 0
    tilted = symmetric._replace(overlap=symmetric.overlap + 1e-6 * np.eye(K, M))
    free = learn(ERF, tilted, np.eye(M), targets, times, plan)
    assert free.losses[1, 0] < 0.1 * result.losses[1, 0]


def test_units_that_are_alike_are_found_and_derivatives_pass_the_tie():
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


def test_the_plateau_is_left_later_the_smaller_the_asymmetry_by_its_logarithm():
    plan = stages([400.0], [[1.0]], rate=1.0)

    @jax.jit
    def exit_time(tilt):
        overlap = 0.05 + tilt * jnp.asarray([[1.0, 0.0], [0.0, 1.0]])
        start = TaskOverlaps(0.25 * jnp.eye(2), overlap, jnp.ones((1, 2)))
        return plateau_exit(ERF, start, jnp.eye(2), jnp.ones((1, 2)), 400.0, plan)

    found = np.array([exit_time(x) for x in (1e-3, 1e-5, 1e-7)])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[2] - found[1], found[1] - found[0], rtol=0.02)
    assert found[1] > found[0] + 20
    assert np.isnan(exit_time(0.0))


def test_drawn_overlaps_are_those_of_weights_of_that_size():
    start = drawn_overlaps(jax.random.key(0), 3, np.eye(2), 1000, scale=0.5, heads=2)
    np.testing.assert_allclose(start.norm, 0.25 * np.eye(3), atol=0.05)
    assert start.overlap.shape == (3, 2)
    assert 0 < np.abs(np.asarray(start.overlap)).max() < 0.1
    assert start.readout.shape == (2, 3)


PLAN = stages([8.0], [[1.0, 0.0]], rate=1.0)
REFUSED = {
    "start.overlap has shape (2, 2) where (3, 2) is meant": {"overlap": np.zeros((2, 2))},
    "start.norm has shape (3, 2)": {"norm": np.zeros((3, 2))},
    "start.readout has shape (2, 4) where (2, 3) is meant": {"readout": np.zeros((2, 4))},
    "teacher_readout has shape (2, 3) where tasks by 1 to 2 teacher units are meant.": {"targets": np.ones((2, 3))},
    "start.readout has 2 heads where 1 are meant": {
        "targets": np.ones((1, 2)),
        "plan": stages([8.0], [[1.0]], rate=1.0),
    },
    "fractions has 1 columns where 2 are meant": {"plan": stages([8.0], [[1.0]], rate=1.0)},
    "heads = [0, 2] is not 2 numbers, one per task, each in [0, 1].": {"heads": [0, 2]},
    "no weights have these overlaps: [[start.norm, start.overlap]": {"norm": np.diag([1.0, -0.5, 1.0])},
    "start.norm is not symmetric: start.norm[0, 1] = 0.3 and start.norm[1, 0] = 0": {
        "norm": np.eye(3) + 0.3 * np.eye(3, k=1)
    },
    "ends stops at 3, before the last of times, 8": {"plan": stages([3.0], [[1.0, 0.0]], rate=1.0)},
    "times = [0.0, 8.0, 4.0] is not two or more increasing numbers": {"times": [0.0, 8.0, 4.0]},
    "noise = -1 is outside its range [0, ∞)": {"noise": -1.0},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_fit_together_is_refused_in_one_sentence(sentence):
    start, gram = student()
    wrong = REFUSED[sentence]
    start = start._replace(**{n: wrong[n] for n in ("norm", "overlap", "readout") if n in wrong})
    options = {n: wrong[n] for n in ("heads", "noise") if n in wrong}
    with pytest.raises(sv.InvalidValue) as caught:
        learn(
            ERF,
            start,
            gram,
            wrong.get("targets", np.eye(2)),
            wrong.get("times", TIMES),
            wrong.get("plan", PLAN),
            **options,
        )
    assert sentence in str(caught.value)
    assert str(caught.value).count(". ") == 0


def test_stages_and_weights_that_make_no_sense_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"ends = \[4.0, 2.0\] is not increasing"):
        stages([4.0, 2.0], [[1.0], [1.0]], rate=1.0)
    with pytest.raises(sv.InvalidValue, match=r"fractions = \[\[0.5, 0.6\]\] is not a row of parts in \[0, 1\]"):
        stages([4.0], [[0.5, 0.6]], rate=1.0)
    with pytest.raises(sv.InvalidValue, match=r"rate = -1.0 is outside its range \[0, ∞\)"):
        stages([4.0], [[1.0]], rate=-1.0)
    with pytest.raises(sv.InvalidValue, match="one number or 1 are meant"):
        stages([4.0], [[1.0]], rate=[1.0, 2.0])
    with pytest.raises(sv.InvalidValue, match=r"students has shape \(2, 5\) and teachers \(2, 6\)"):
        overlaps_of(np.zeros((2, 5)), np.zeros((2, 6)), np.ones(2))
    with pytest.raises(sv.InvalidValue, match=r"readout has shape \(1, 3\) where 2 columns are meant"):
        overlaps_of(np.zeros((2, 5)), np.zeros((2, 5)), np.ones(3))
    with pytest.raises(sv.InvalidValue, match=r"similarity = 1.5 is outside its range \[-1, 1\]"):
        sv.ContinualLearning(similarity=1.5)


def test_a_student_with_an_activation_by_quadrature_learns_tasks_as_with_its_closed_form():
    start = TaskOverlaps(0.2 * jnp.eye(2), 0.1 * jnp.ones((2, 1)), jnp.ones((1, 2)))
    by_rule, closed = (
        task_drifts(g, start, jnp.eye(1), np.ones((1, 1)), rate=jnp.asarray(0.5), readout_rate=jnp.asarray(0.1),
                    noise=jnp.asarray(0.1))
        for g in (smooth(lambda x: jax.lax.erf(x / 2**0.5), "erf by rule"), activation("erf"))
    )  # fmt: skip
    for one, other in zip(by_rule, closed, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
