"""The loop of every online simulation: draws do not depend on measurements, and stages follow each other."""

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.flows.descent import descend, steps_at

KEY = jax.random.key(0)


def step(number, x, pace=1.0):
    return 0.9 * x + pace * jax.random.normal(jax.random.fold_in(KEY, number), x.shape)


def by_hand(steps, paces):
    x, path = jnp.zeros(3), [jnp.zeros(3)]
    for number in range(steps):
        x = step(jnp.asarray(number), x, paces[number])
        path.append(x)
    return np.stack(path)


def test_states_at_the_ends_are_those_of_a_loop_by_hand_and_settings_hold_until_their_end():
    ends, paces = jnp.asarray([2, 2, 7]), jnp.asarray([1.0, 5.0, 0.5])
    expected = by_hand(7, [1.0, 1.0] + [0.5] * 5)
    run = descend(step, jnp.zeros(3), ends, lambda x: x, paces)
    np.testing.assert_allclose(run.path, expected[[2, 2, 7]], rtol=1e-12)
    np.testing.assert_array_equal(run.state, run.path[-1])
    assert int(run.steps) == 7


def test_a_descent_in_two_pieces_is_the_whole_one_bit_by_bit():
    whole = descend(step, jnp.zeros(3), jnp.asarray([3, 9]), lambda x: x, measure_start=True)
    first = descend(step, jnp.zeros(3), jnp.asarray([3]), lambda x: x, measure_start=True)
    second = descend(step, first.state, jnp.asarray([5, 9]), lambda x: x, begin=first.steps)
    np.testing.assert_array_equal(whole.path[:2], first.path)
    np.testing.assert_array_equal(whole.path[2], second.path[1])


def test_lanes_of_a_batch_may_have_lengths_of_their_own():
    ends = jnp.asarray([[1, 4], [3, 6]])
    run = jax.vmap(lambda ends: descend(step, jnp.zeros(3), ends, lambda x: x))(ends)
    expected = by_hand(6, [1.0] * 6)
    np.testing.assert_allclose(run.path, expected[np.asarray(ends)], rtol=1e-12)
    assert run.steps.tolist() == [4, 6]


def test_times_count_from_the_first_one():
    assert steps_at(jnp.asarray([3.0, 3.004, 3.5]), 100).tolist() == [0, 0, 50]
