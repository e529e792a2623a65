"""Loss, gradient and curvature of a sum of ReLUs: sampling, differences, parallel vectors."""

import jax
import jax.numpy as jnp
import numpy as np

from solvable.models.online.relu_landscape.relu_loss import relu_curvature, relu_gradient, relu_loss

RNG = np.random.default_rng(0)
STUDENT, TEACHER = RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))
BASIS = np.eye(12).reshape(12, 3, 4)


def test_the_loss_is_the_average_over_samples():
    x = RNG.normal(size=(400_000, 4))
    squares = 0.5 * (np.maximum(x @ STUDENT.T, 0).sum(1) - np.maximum(x @ TEACHER.T, 0).sum(1)) ** 2
    error = squares.std() / np.sqrt(len(x))
    assert abs(float(jax.jit(relu_loss)(jnp.asarray(STUDENT), jnp.asarray(TEACHER))) - squares.mean()) < 4 * error


def test_gradient_and_curvature_are_the_derivatives_of_the_loss():
    w, u, h = jnp.asarray(STUDENT), jnp.asarray(TEACHER), 1e-5
    loss, gradient = jax.jit(jax.vmap(lambda w: relu_loss(w, u))), jax.jit(jax.vmap(lambda w: relu_gradient(w, u)))
    up, down = (jnp.asarray(STUDENT[None] + s * h * BASIS) for s in (1, -1))
    slopes = np.asarray(loss(up) - loss(down)) / (2 * h)
    np.testing.assert_allclose(np.asarray(gradient(jnp.asarray(STUDENT)[None])).ravel(), slopes, atol=1e-9)
    bends = np.asarray(gradient(up) - gradient(down)).reshape(12, 12) / (2 * h)
    np.testing.assert_allclose(jax.jit(relu_curvature)(w, u, jnp.asarray(BASIS)), bends, atol=1e-9)


def test_parallel_vectors_have_the_curvature_of_the_limit():
    """Where a unit is split, and where it is its teacher, the difference over h is off by O(h) only: |h|³ in the loss."""
    w = np.array([[0.6, 0.0, 0.0], [0.4, 0.0, 0.0], [0.0, 1.0, 0.0]])
    u, basis, h = jnp.eye(3)[:2], np.eye(9).reshape(9, 3, 3), 1e-4
    exact = np.asarray(jax.jit(relu_curvature)(jnp.asarray(w), u, jnp.asarray(basis)))
    gradient = jax.jit(jax.vmap(lambda w: relu_gradient(w, u)))
    up, down = (jnp.asarray(w[None] + s * h * basis) for s in (1, -1))
    bends = np.asarray(gradient(up) - gradient(down)).reshape(9, 9) / (2 * h)
    np.testing.assert_allclose(exact, 0.5 * (bends + bends.T), atol=5 * h)
    assert np.all(np.isfinite(exact))
