"""Two-time equations: order of convergence, exact limits, reference values, flagged failure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.errors import InvalidValue
from solvable.methods.flows.two_time import Mixture, relax


def spiked(second, third, power=3):
    """The matrix-tensor model with noise of variances `second` and `third`."""
    return Mixture({2: 1 / (2 * second), power: 1 / (power * third)})


def at(path, time):
    """The index of a time."""
    return int(np.argmin(np.abs(np.asarray(path.times) - time)))


def test_bayes_optimal_langevin_reference_values():
    path = relax(spiked(0.4, 1.0), 0.02, 200, temperature=1.0, overlap=0.2)
    one, three, four = (at(path, t) for t in (1.0, 3.0, 4.0))
    assert path.converged.all()
    np.testing.assert_allclose(path.overlap[one], 0.45028736, atol=3e-5)
    np.testing.assert_allclose(path.correlation[one, 0], 0.33816377, atol=3e-5)
    np.testing.assert_allclose(path.response[four, three], 0.06023432, atol=3e-5)
    np.testing.assert_allclose(path.multiplier[four], 4.48138181, atol=2.3e-4)


def test_steps_are_a_positive_even_number():
    with pytest.raises(InvalidValue, match="steps"):
        relax(Mixture({3: 0.5}), 0.1, 7)


def test_a_batch_is_its_members():
    start = jnp.array([0.1, 0.3])
    both = jax.vmap(lambda m: relax(spiked(0.5, 1.0), 0.05, 40, overlap=m).overlap)(start)
    for m, row in zip(start, both, strict=True):
        np.testing.assert_allclose(relax(spiked(0.5, 1.0), 0.05, 40, overlap=m).overlap, row, atol=1e-12)
