"""Lower edge and lowest direction of covariances with weights of either sign."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.random_matrices.reweighted import lowest_direction

lowest = jax.jit(lowest_direction)


@pytest.mark.parametrize("alpha", [1.5, 4.0, 30.0])
def test_equal_weights_have_the_edge_of_marchenko_and_pastur(alpha):
    one = jnp.ones(1)
    found = lowest(2 * one, one, one, jnp.float64(alpha))
    assert float(found.edge) == pytest.approx(2 * (np.sqrt(alpha) - 1) ** 2, rel=1e-10)
    assert float(found.overlap) == 0.0


def test_fewer_samples_than_directions_have_no_such_edge():
    one = jnp.ones(1)
    found = lowest(one, one, one, jnp.float64(0.5))
    assert not found.converged
    assert np.isnan(found.edge)


def test_a_weight_that_is_off_for_large_projections_by_hand():
    """Weight 1 with y² = 0.2 and 0 with y² = 1.8, half each, α = 8: g = 1/2.2, eigenvalue 0.8/(1 + g)."""
    half = jnp.full(2, 0.5)
    found = lowest(jnp.asarray([1.0, 0.0]), jnp.asarray([0.2, 1.8]), half, jnp.float64(8.0))
    assert float(found.lowest) == pytest.approx(0.55, rel=1e-10)
    assert float(found.edge) == pytest.approx(1.0, rel=1e-10)
    # residue of the resolvent, by a difference of the equation of the eigenvalue
    g = 1 / 2.2
    slope = 1 / (1 / g**2 - 4 / (1 + g) ** 2)
    assert float(found.overlap) == pytest.approx(1 / (1 + 0.8 / (1 + g) ** 2 * slope), rel=1e-10)


def test_dense_eigenvalues_and_eigenvectors_are_the_predicted_ones():
    """Weights of a Hessian, negative ones too: (3z² − y²)/(1 + y²) with z and y projections of the same samples."""
    d, n, rows = 300, 1800, []
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(n, d))
        y, z = x[:, 0], x[:, 1]
        a = (3 * z**2 - y**2) / (1 + y**2)
        rest = np.delete(x, 1, axis=1)  # the projection z is along a separate direction
        values, vectors = np.linalg.eigh((rest.T * a) @ rest / d)
        found = lowest(jnp.asarray(a), jnp.asarray(y**2), jnp.full(n, 1 / n), jnp.float64(n / d))
        rows.append([values[0] - found.lowest, vectors[0, 0] ** 2 - found.overlap, values[1] - found.edge])
    mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(10)
    assert np.all(np.abs(mean[:2]) < 4 * error[:2])
    assert np.all(error[:2] < 0.03)  # eigenvalue and edge are 0.35 apart, the squared cosine is 0.53
    assert 0 < mean[2] < 0.15  # the bulk begins above its edge, by d^(-2/3)


def test_the_gradient_is_implicit():
    y2 = jnp.linspace(0.1, 3.0, 50)
    chance = jnp.full(50, 0.02)

    def low(shift):
        return lowest_direction(1 - 0.5 * shift * y2, y2, chance, jnp.float64(5.0)).lowest

    h = 1e-5
    slope = (low(1 + h) - low(1 - h)) / (2 * h)
    assert float(jax.grad(low)(1.0)) == pytest.approx(float(slope), rel=1e-6)
