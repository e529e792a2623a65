"""Message passing at finite size: the Onsager term makes its fields Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.fixed_points.message_passing import iterate, normalised


def test_with_its_memory_term_message_passing_has_gaussian_fields_and_without_it_does_not():
    """Pure noise: two successive fields have the overlap Q′(C) that state evolution gives them."""
    size, draws = 120, 24

    def last(key, memory):
        noise, start = jax.random.normal(key, (size, size)), jax.random.normal(jax.random.fold_in(key, 1), (size,))
        matrix = (noise + noise.T) / jnp.sqrt(2 * size)

        def soft(field, x):  # a denoiser that is not linear
            moved = jnp.tanh(2 * field)
            return moved, jnp.mean(2 * (1 - moved**2))

        x = iterate(lambda x: matrix @ x, memory, soft, normalised(start)[0], 8).estimates
        return jnp.mean(x**2, axis=1)

    keys = jax.random.split(jax.random.key(3), draws)
    ours = np.asarray(jax.vmap(lambda k: last(k, jnp.ones_like))(keys))
    plain = np.asarray(jax.vmap(lambda k: last(k, jnp.zeros_like))(keys))
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    q, expected = 1.0, [1.0]
    for _ in range(8):
        q = weights @ np.tanh(2 * np.sqrt(q) * nodes) ** 2 / np.sqrt(2 * np.pi)
        expected.append(q)
    error = ours.std(0, ddof=1) / np.sqrt(draws)
    assert np.all(np.abs(ours.mean(0) - expected)[1:] < 4 * error[1:] + 2 / size)
    assert plain.mean(0)[-1] - expected[-1] > 10 * error[-1]


def test_the_first_estimate_is_the_start_and_has_no_memory():
    found = iterate(lambda x: 2 * x, jnp.ones_like, lambda field, _: (field, jnp.ones(())), jnp.ones(3), 2)
    np.testing.assert_allclose(found.estimates, [[1, 1, 1], [2, 2, 2], [3, 3, 3]])  # 2·2 − 1·1
    np.testing.assert_allclose(found.responses, [0, 1, 1])
