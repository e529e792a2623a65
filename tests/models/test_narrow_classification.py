"""The theory of a narrow network that classifies, against independent integration and limits; its dynamics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from solvable.models.replica.narrow_network.classification import (
    LabelEnergy,
    bayes_classifier,
    gradient_descent,
    langevin,
)
from solvable.models.replica.narrow_network.committee import kernel_named
from solvable.models.replica.narrow_network.networks import Committee


@pytest.mark.parametrize(("activation", "linear"), [("abs", 0.0), ("relu", 0.5)])
def test_the_overlap_solves_its_equation_with_averages_by_scipy(activation, linear):
    kernel, one = kernel_named(activation, unit=True), jnp.ones(())
    alpha, noise = 6.0, 0.05
    found = bayes_classifier(kernel, linear, jnp.asarray(alpha), jnp.asarray(noise))
    assert bool(found.converged)
    q = float(found.overlap)
    whole, known = float(kernel.value(one, one, one)), float(kernel.value(q * one, one, one))
    scale = np.sqrt((linear**2 + known) / (noise + whole - known))

    def score(z):
        u = scale * z
        return norm.pdf(z) * norm.pdf(u) ** 2 / (norm.cdf(u) * norm.cdf(-u))

    strength = quad(score, -8, 8, epsabs=1e-12)[0]
    hat = alpha * float(kernel.slope(q * one, one, one)) * strength / (noise + whole - known)
    np.testing.assert_allclose(q, hat / (1 + hat), atol=1e-8)
    np.testing.assert_allclose(
        found.error, np.arccos(np.sqrt((linear**2 + known) / (linear**2 + whole))) / np.pi, atol=1e-12
    )


def test_specialisation_appears_at_the_threshold_of_a_small_overlap():
    """q ≈ α g''(0) q · 4φ(0)²/(Δ + g(1)) at small q for |x|, which has no linear part."""
    kernel, one = kernel_named("abs", unit=True), jnp.ones(())
    noise = 0.05
    threshold = (noise + float(kernel.value(one, one, one))) / (2 * kernel.second() * 4 * norm.pdf(0) ** 2)
    below, above = (bayes_classifier(kernel, 0.0, jnp.asarray(c * threshold), jnp.asarray(noise)) for c in (0.97, 1.03))
    assert float(below.overlap) < 1e-4
    assert float(above.overlap) > 0.02


def test_langevin_draws_have_the_variance_of_a_bowl_and_descent_ends_at_its_bottom():
    class Bowl:
        def __call__(self, w):
            return 2.0 * jnp.sum((w - 1.0) ** 2)

    start, step = jnp.zeros((4, 50)), jnp.asarray(0.01)
    draws = langevin(Bowl(), start, jax.random.key(0), step, jnp.asarray(0.5), 8000, 64)
    assert abs(float(jnp.mean(draws)) - 1) < 0.02
    # the variance of the unadjusted chain, 1/(k(1 − hk/2)) with curvature k = 4
    assert abs(float(jnp.var(draws)) * 4 * (1 - 0.02) - 1) < 0.06
    end, slope = gradient_descent(Bowl(), start, jnp.asarray(0.1), 200)
    np.testing.assert_allclose(end, 1.0, atol=1e-6)
    assert float(slope) < 1e-6


def test_the_energy_of_labels_falls_towards_weights_that_explain_them():
    keys = jax.random.split(jax.random.key(1))
    weights, inputs = jax.random.normal(keys[0], (4, 20)), jax.random.normal(keys[1], (400, 20)) / np.sqrt(20)
    network = Committee("abs")
    energy = LabelEnergy(network, inputs, jnp.sign(network(weights, inputs)), jnp.asarray(0.05))
    assert float(energy(weights)) < float(energy(0 * weights))
    assert float(energy(weights)) < float(energy(jnp.roll(weights, 1, axis=0)))
