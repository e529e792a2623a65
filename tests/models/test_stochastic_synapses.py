"""Stochastic binary weights: limits, second methods, the projection, descent against the saddle point."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.synapses.stochastic_synapses.annealing import project
from solvable.models.synapses.stochastic_synapses.figures import annealed_success
from solvable.models.synapses.stochastic_synapses.neighbours import all_solutions, around, compare
from solvable.models.synapses.stochastic_synapses.saddle import clipped

SMALL = {"stages": 4, "steps": 30}


@pytest.mark.parametrize(("a", "k"), [(0.0, 1.3), (0.7, 0.4), (1.5, 0.01)])
def test_averages_of_clipped_fields_by_quadrature(a, k):
    z = np.concatenate(
        [np.linspace(-9, -k - a, 40001), np.linspace(-k - a, k - a, 40001), np.linspace(k - a, 9, 40001)]
    )
    m, p = np.clip((a + z) / k, -1, 1), norm.pdf(z)
    mean = lambda f: np.trapezoid(f * p, z)  # noqa: E731
    found = clipped(jnp.asarray(a), jnp.asarray(k))
    expected = [mean(m**2), mean(m), mean(z * m), mean(np.abs(m)), mean(np.sign(a + z)), mean(z * np.sign(a + z))]
    np.testing.assert_allclose(list(found), expected, atol=3e-4 * k + 1e-4 * (k < 0.1) + 1e-7)
    np.testing.assert_allclose(list(found)[:2], expected[:2], atol=2e-7)


def test_undecided_weights_err_on_half_of_the_patterns_and_their_loss_is_log_two():
    found = sv.StochasticSynapses(samples=0.5, sharpness=[1e-6, 1e-5], **SMALL).theory()
    np.testing.assert_allclose(found.train_loss, np.log(2), atol=0.01)
    np.testing.assert_allclose(found.sampled_error, 0.5, atol=0.01)
    assert found.train_error[0] < 0.5


def test_errors_fall_as_the_weights_sharpen_and_signs_err_less_than_draws():
    q = np.linspace(0.05, 0.95, 16)
    found = sv.StochasticSynapses(samples=0.5, sharpness=q, **SMALL).theory()
    for name in ("train_loss", "sampled_error"):
        assert np.all(np.diff(found[name]) < 0), name
    assert np.all(found.train_error < found.sampled_error)
    assert found.train_error[-1] < 2e-5


def test_the_projection_is_exact_and_survives_what_underflows():
    x = jax.random.normal(jax.random.key(0), (401,), jnp.float32)
    for scale in (1.0, 1e-30, 1e30):
        for q in (0.1, 0.9, 0.998):
            m = project(scale * x, jnp.asarray(q, jnp.float32))
            assert abs(float(jnp.mean(m.astype(float) ** 2)) - q) < 2e-6
            assert float(jnp.max(jnp.abs(m))) <= 1
    assert np.all(np.isfinite(project(jnp.zeros(7, jnp.float32), jnp.asarray(0.5, jnp.float32))))


def test_descent_at_sharp_weights_is_finite_and_on_the_theory():
    """α = 0.5, q_* = 0.95: the gradient has almost vanished."""
    model, size, lanes = sv.StochasticSynapses(samples=0.5, sharpness=0.95), 201, 8
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(1), i))(jnp.arange(lanes))
    found = simulate_batch(model, {}, keys, size)
    assert np.all(np.isfinite(found["train_loss"]))
    theory = model.theory()
    assert theory.train_error < 2e-5
    assert np.mean(found["train_error"]) < 0.02
    assert np.mean(found["train_loss"]) < 0.01


@pytest.mark.parametrize(("labels", "alpha", "q"), [("random", 0.75, 0.6), ("teacher", 1.0, 0.6)])
def test_descent_agrees_with_the_saddle_point(labels, alpha, q):
    model, size, lanes = sv.StochasticSynapses(labels=labels, samples=alpha, sharpness=q), 201, 16
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(7), i))(jnp.arange(lanes))
    found, theory = simulate_batch(model, {}, keys, size), model.realised(size).theory()
    names = ["train_loss", "sampled_error", "train_error"]
    names += ["overlap", "test_error", "binarised_error"] if labels == "teacher" else []
    for name in names:
        mean, error = found[name].mean(), found[name].std(ddof=1) / np.sqrt(lanes)
        assert abs(mean - theory[name]) < 4.5 * error + 4 * abs(float(theory[name])) / size, name


def test_the_loss_at_given_fields_is_the_negative_log_likelihood():
    from solvable.models.synapses.stochastic_synapses.annealing import loss_of

    fields = np.linspace(-2, 2, 5)
    loss, error = loss_of(jnp.asarray(fields), jnp.ones(5), jnp.asarray(0.75))
    np.testing.assert_allclose(loss, -np.mean(log_ndtr(2 * fields)), rtol=1e-12)
    np.testing.assert_allclose(error, np.mean(norm.cdf(-2 * fields)), rtol=1e-12)


def test_annealing_solves_few_patterns():
    found = annealed_success([0.3], 201, 4)
    assert found["solved"].mean() == 1
    assert np.all(found["solved_at"] < 1)


def test_enumeration_finds_all_solutions_and_their_neighbours():
    patterns = np.random.default_rng(0).choice([-1.0, 1.0], (3, 7))
    found = all_solutions(patterns)
    brute = [w for w in itertools.product([-1.0, 1.0], repeat=7) if np.all(patterns @ w > 0)]
    assert sorted(map(tuple, found.tolist())) == sorted(brute)
    near = np.exp(7 * around(found[:1], found))[0]
    assert abs(near[-1] - len(brute)) < 1e-9
    assert abs(near[1] - sum(np.sum(found[0] != w) <= 1 for w in found)) < 1e-9


def test_solutions_of_descent_have_more_neighbours_than_typical_ones_and_clipped_weights_solve_less():
    found = compare("random", 0.5, 13, 24)
    gap = (found["found_near"] - found["typical_near"])[:, 2]
    gap = gap[np.isfinite(gap)]
    assert gap.mean() > 2 * gap.std(ddof=1) / np.sqrt(len(gap))
    runs = annealed_success([0.5], 201, 4, stages=12)
    assert runs["solved"].mean() > runs["clipped_signs_solved"].mean()


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"sharpness = 1 is outside its range \(0, 1\)"):
        sv.StochasticSynapses(sharpness=1.0)
