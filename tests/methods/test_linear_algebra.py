"""Linear systems: correct, differentiable, and free of deadlocks."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.fixed_points.linear_algebra import (
    cholesky,
    orthonormal_columns,
    solve_positive,
    solve_small,
    solve_with_factor,
)
from waiting import LONG


def drawn(count, seed, stack=()):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(*stack, count, count)), rng.normal(size=(*stack, count))


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_small_systems_are_those_of_numpy(count):
    matrix, right = drawn(count, count, (50,))
    matrix[0] = np.eye(count)[::-1]  # every pivot must be looked for
    mine = jax.jit(jax.vmap(solve_small))(jnp.asarray(matrix), jnp.asarray(right))
    wanted = np.linalg.solve(matrix, right[..., None])[..., 0]
    np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


def test_small_systems_keep_their_precision_and_flag_singular_ones():
    matrix, right = drawn(4, 0)
    assert solve_small(jnp.asarray(matrix, jnp.float32), jnp.asarray(right, jnp.float32)).dtype == jnp.float32
    assert not np.isfinite(solve_small(jnp.ones((3, 3)), jnp.arange(3.0))).any()
    lanes = jax.vmap(solve_small)(jnp.stack([jnp.full((2, 2), jnp.nan), jnp.eye(2)]), jnp.ones((2, 2)))
    assert np.isnan(lanes[0]).all()
    assert (lanes[1] == 1).all()


def test_small_systems_have_derivatives_of_every_order_and_direction():
    matrix, right = (jnp.asarray(x) for x in drawn(4, 3))

    def height(matrix, right):
        return jnp.sum(solve_small(matrix, right) ** 3)

    def peer(matrix, right):
        return jnp.sum(jnp.linalg.solve(matrix, right) ** 3)

    for order in (jax.grad, jax.jacfwd, jax.hessian):
        mine, wanted = (jax.jit(order(f, argnums=(0, 1)))(matrix, right) for f in (height, peer))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), mine, wanted)


@pytest.mark.parametrize("stack", [(), (3,), (2, 3)])
def test_factors_are_those_of_numpy_whatever_is_vmapped(stack):
    matrix, right = drawn(6, 1, stack)
    positive = matrix @ np.swapaxes(matrix, -1, -2) + np.eye(6)

    def over(function, *inputs):
        for _ in stack:
            function = jax.vmap(function)
        return function(*(jnp.asarray(x) for x in inputs))

    np.testing.assert_allclose(over(cholesky, positive), np.linalg.cholesky(positive), atol=1e-12)
    wanted = np.linalg.solve(positive, right[..., None])[..., 0]
    np.testing.assert_allclose(over(solve_positive, positive, right), wanted, atol=1e-11)
    shared = jax.vmap(solve_with_factor, in_axes=(None, 0))(jnp.eye(6), jnp.ones((2, 6)))
    assert (shared == 1).all()
    tall = matrix[..., :2]
    q = np.asarray(over(orthonormal_columns, tall))
    np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(2), (*stack, 2, 2)), atol=1e-13)
    np.testing.assert_allclose(q @ (np.swapaxes(q, -1, -2) @ tall), tall, atol=1e-12)


MANY = """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from solvable.methods.fixed_points.linear_algebra import orthonormal_columns, solve_positive, solve_small

def each(x):
    symmetric = x @ x.T + 64 * jnp.eye(64)
    small = x[:8, :8] + 20 * jnp.eye(8)
    return solve_positive(symmetric, x[0]), orthonormal_columns(x[:, :32]), solve_small(small, x[0, :8])

# Four independent stacks in one program, which may all run at once.
program = jax.jit(lambda x: [jax.vmap(jax.vmap(each))((1.0 + i) * x) for i in range(4)])
x = jax.random.normal(jax.random.key(0), (4, 4, 64, 64))
for _ in range(60):
    jax.block_until_ready(program(x))
print("done")
"""


def test_many_stacks_in_one_program_do_not_wait_for_one_another():
    """With JAX 0.10 and LAPACK's batched routines this deadlocks on two cores."""
    run = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=LONG)
    assert run.stdout.strip() == "done", run.stderr
