"""The minimiser finds minima, reports when it does not, and needs no more evaluations than SciPy's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from solvable.methods.risk.lbfgs import minimise


def rosenbrock(x):
    return jax.value_and_grad(lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))(x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_curved_valley_is_followed_to_its_end_with_about_as_many_evaluations_as_scipy(dtype):
    start, compiled = np.full(20, -1.2), jax.jit(rosenbrock)
    # In single precision x₁ − x₀² is rounded by about 6e-8, which the gradient multiplies by 400: 2.4e-5 remains.
    tolerance = 1e-8 if dtype == jnp.float64 else 1e-4
    found = minimise(rosenbrock, jnp.asarray(start, dtype), tolerance=tolerance)
    peer = scipy.optimize.minimize(
        lambda x: [np.asarray(part) for part in compiled(jnp.asarray(x))], start, jac=True, method="L-BFGS-B",
        options={"maxcor": 8, "gtol": 1e-8, "ftol": 0},
    )  # fmt: skip
    assert found.converged
    assert float(found.residual) <= tolerance
    np.testing.assert_allclose(found.parameters, 1.0, atol=1e-6 if dtype == jnp.float64 else 1e-3)
    assert int(found.evaluations) < 1.3 * peer.nfev


def test_search_in_pieces_takes_the_same_path_as_in_one_and_leaves_the_start_alone():
    start, peer = jnp.full(6, -1.2), []
    whole = minimise(rosenbrock, start, tolerance=1e-8)
    pieces = minimise(rosenbrock, start, tolerance=1e-8, report=lambda *now: peer.append(now), every=7)
    assert int(whole.evaluations) == int(pieces.evaluations)
    np.testing.assert_allclose(whole.parameters, pieces.parameters, rtol=1e-12)
    assert [now[0] for now in peer] == sorted(now[0] for now in peer)
    assert peer[-1][2] <= 1e-8
    assert float(start[0]) == -1.2


def test_batch_under_vmap_ends_where_each_problem_alone_does():
    starts = jax.random.normal(jax.random.key(0), (3, 6))
    batch = jax.vmap(lambda x: minimise(rosenbrock, x, tolerance=1e-8))(starts)
    assert bool(jnp.all(batch.converged))
    for number, start in enumerate(starts):
        alone = minimise(rosenbrock, start, tolerance=1e-8)
        np.testing.assert_allclose(batch.parameters[number], alone.parameters, atol=1e-6)


class Quadratic(eqx.Module):
    hessian: jax.Array

    def __call__(self, x):
        return 0.5 * jnp.sum(self.hessian * x["a"] ** 2) - jnp.sum(x["a"]), {"a": self.hessian * x["a"] - 1}


def test_given_curvatures_make_a_badly_scaled_bowl_round():
    bowl = Quadratic(jnp.geomspace(1e-4, 1e4, 30))
    start = {"a": jnp.zeros(30)}
    plain = minimise(bowl, start, tolerance=1e-9, iterations=2000)
    scaled = minimise(bowl, start, tolerance=1e-9, curvatures={"a": bowl.hessian})
    assert scaled.converged
    assert int(scaled.evaluations) <= 3
    assert int(plain.evaluations) > 20
    np.testing.assert_allclose(scaled.parameters["a"], 1 / bowl.hessian, rtol=1e-9)


def test_a_search_without_a_minimum_or_enough_steps_is_not_converged():
    falling = minimise(lambda x: (jnp.sum(-jnp.exp(x)), -jnp.exp(x)), jnp.zeros(3), iterations=50)
    short = minimise(rosenbrock, jnp.full(6, -1.2), iterations=3)
    broken = minimise(lambda x: (jnp.sum(x) * jnp.nan, x * jnp.nan), jnp.ones(3))
    assert not falling.converged
    assert not short.converged
    assert int(short.iterations) == 3
    assert not broken.converged


def test_walls_of_infinite_value_are_stepped_back_from():
    def barrier(x):
        return jax.value_and_grad(lambda x: jnp.sum(x - jnp.log(x)))(x)

    found = minimise(barrier, jnp.asarray([1e-3, 50.0]), tolerance=1e-10)
    assert found.converged
    np.testing.assert_allclose(found.parameters, 1.0, atol=1e-8)
