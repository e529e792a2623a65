import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from solvable.methods.fixed_points.saddle import branches, follow, solve, spinodals


def magnet(m, args):
    """Curie–Weiss: m = tanh(β(m + h))."""
    beta, field = args
    return jnp.tanh(beta * (m + field))


def free_energy(m, args):
    beta, field = args
    p = (1 + m[0]) / 2
    entropy = -p * jnp.log(p) - (1 - p) * jnp.log1p(-p)
    return -0.5 * m[0] ** 2 - field * m[0] - entropy / beta


def exact(beta, field=0.0):
    return brentq(lambda m: m - np.tanh(beta * (m + field)), 1e-6, 1.0, xtol=1e-15)


def test_the_fixed_point_is_found_with_its_residual_and_number_of_evaluations():
    found = solve(magnet, jnp.asarray([0.9]), (jnp.asarray(1.5), jnp.asarray(0.0)))
    assert abs(found.x[0] - exact(1.5)) < 1e-13
    assert found.converged
    assert found.residual < 1e-12
    assert 3 <= found.steps < 20


def test_implicit_derivatives_of_first_and_second_order_match_differences():
    f = lambda b: solve(magnet, jnp.asarray([0.9]), (b, jnp.asarray(0.1))).x[0]  # noqa: E731
    b, h = jnp.asarray(1.3), 1e-4
    assert abs(jax.grad(f)(b) - (f(b + h) - f(b - h)) / (2 * h)) < 1e-7
    assert abs(jax.hessian(f)(b) - (f(b + h) - 2 * f(b) + f(b - h)) / h**2) < 1e-5


def test_a_lane_that_does_not_converge_is_nan_alone_in_value_and_gradient():
    def update(x, a):  # no fixed point for a < 0
        return x + jnp.where(a < 0, 1.0, 0.0) * jnp.ones_like(x) - jnp.where(a < 0, 0.0, 1.0) * (x - a)

    f = lambda a: solve(update, jnp.asarray([0.5]), a, max_steps=30).x[0]  # noqa: E731
    values = jax.vmap(f)(jnp.asarray([1.0, -1.0, 2.0]))
    slopes = jax.vmap(jax.grad(f))(jnp.asarray([1.0, -1.0, 2.0]))
    np.testing.assert_array_equal(np.isnan(values), [False, True, False])
    np.testing.assert_array_equal(np.isnan(slopes), [False, True, False])
    np.testing.assert_allclose(slopes[np.array([0, 2])], 1.0, rtol=1e-12)


@pytest.mark.parametrize("memory", [0, 5])
def test_a_repelling_fixed_point_and_many_unknowns_are_reached(memory):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(12, 12))
    a = jnp.asarray(0.9 * (a + a.T) / np.abs(np.linalg.eigvalsh(a + a.T)).max())
    b = jnp.asarray(rng.normal(size=12))
    found = solve(lambda x, c: a @ x + c, jnp.zeros(12), b, memory=memory, warmup=20 if memory else 0, max_steps=600)
    assert found.converged
    np.testing.assert_allclose(found.x, np.linalg.solve(np.eye(12) - a, b), rtol=1e-9)
    if not memory:  # iteration alone would run away from this one
        repelled = solve(lambda x, c: -3.0 * x + c, jnp.zeros(1), jnp.asarray([4.0]))
        assert abs(repelled.x[0] - 1.0) < 1e-12


def test_branches_are_clustered_sorted_by_free_energy_and_marked_stable_or_not():
    starts = jnp.asarray([[-0.9], [-0.8], [0.01], [0.7], [0.9]])
    found = branches(magnet, starts, (jnp.asarray(1.5), jnp.asarray(0.02)), free_energy=free_energy)
    assert found.found.tolist() == [True, True, True, False]
    assert found.x[0, 0] > 0 > found.x[1, 0]
    assert bool(jnp.all(jnp.diff(found.free_energy[:3]) > 0))
    assert found.stable[:3].tolist() == [True, True, False]
    assert np.isnan(found.x[3]).all()


def test_branches_work_in_a_batch_with_two_unknowns():
    def two(x, beta):
        return jnp.tanh(beta * x[::-1])

    found = jax.vmap(lambda b: branches(two, jnp.asarray([[0.9, 0.9], [0.0, 0.0]]), b))(jnp.asarray([0.5, 1.5]))
    assert found.found.sum(axis=1).tolist() == [1, 2]
    assert found.stable[1].tolist() == [True, False, False, False]


def test_continuation_passes_the_folds_and_spinodals_are_located_exactly():
    beta = 2.0
    along_field = lambda m, h: jnp.tanh(beta * (m + h))  # noqa: E731
    path = follow(along_field, jnp.asarray([exact(beta, 0.5)]), 0.5, towards=-1.0, step=0.05, steps=120)
    assert path.converged.all()
    assert float(path.control.min()) < -0.2
    _, fields = spinodals(along_field, path)
    m = np.sqrt(1 - 1 / beta)
    expected = np.arctanh(m) / beta - m
    np.testing.assert_allclose(sorted(fields[:2].tolist()), [expected, -expected], atol=1e-10)
    assert np.isnan(fields[2:]).all()
