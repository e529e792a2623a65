"""Factored attention on Potts data: limits, a second implementation, data laws, star against dense, agreement."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, softmax

import solvable as sv
from solvable.model import simulate_batch

SIZE = 60
KEYS = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(7), i))(jnp.arange(12))
SKEWED = np.array([[1.3, -1.2, 0.0], [-1.2, 0.7, 0.6], [0.0, 0.6, -0.4]])


def test_two_colours_solve_the_equations_of_logistic_regression():
    """Adaptive quadrature and bracketed roots, written for one scalar field: nothing is shared with the model."""
    alpha, beta, b = 5.0, 1.5, np.sqrt(0.5)
    out = sv.PottsAttention(colours=2, samples=alpha, penalty=0.0, inverse_temperature=beta).theory()
    m, q, V = float(out.overlap), float(out.norm), float(out.response)

    def average(f, learnt=True):
        def integrand(t):
            omega = beta * m * b + np.sqrt(q) * t
            h = brentq(lambda h: (h - omega) / V - 2 * b * expit(-2 * b * h), omega, omega + 2 * b * V + 1e-12)
            return np.exp(-t * t / 2) / np.sqrt(2 * np.pi) * f(h if learnt else omega)

        return quad(integrand, -8, 8, epsabs=1e-9, limit=200, points=[-4, 0, 4])[0]

    force = lambda h: 2 * b * expit(-2 * b * h)  # noqa: E731
    curve = lambda h: 4 * b**2 * expit(2 * b * h) * expit(-2 * b * h)  # noqa: E731
    m_hat, q_hat = alpha * beta * b * average(force), alpha * average(lambda h: force(h) ** 2)
    V_hat = alpha * average(lambda h: curve(h) / (1 + V * curve(h)))
    np.testing.assert_allclose([1 / V_hat, m_hat * V, (m_hat**2 + q_hat) * V**2], [V, m, q], rtol=1e-7)
    loss = lambda h: np.logaddexp(0, -2 * b * h)  # noqa: E731
    np.testing.assert_allclose([out.train_loss, out.test_loss], [average(loss), average(loss, False)], atol=1e-8)


def test_many_samples_find_the_truth_at_the_rate_of_fisher_information():
    alpha, beta = 300.0, 2.0
    out = sv.PottsAttention(samples=alpha, penalty=0.0, inverse_temperature=beta).theory()
    assert abs(out.overlap - beta) < 0.01
    assert abs(out.norm - beta**2) < 0.05
    assert 0 < out.optimal_loss - out.train_loss < 0.003
    # E tr H at the truth, by another quadrature: colours are equivalent, UUᵀ/C = (1 − 11ᵀ/3)/2.
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    grid, mass = (
        np.array(list(itertools.product(nodes, repeat=3))),
        np.array(list(itertools.product(weights, repeat=3))),
    )
    mass = mass.prod(1) / mass.prod(1).sum()
    centre = (np.eye(3) - 1 / 3) / 2
    p = softmax(beta**2 * centre[0] + beta * np.sqrt(0.5) * grid, axis=1)  # a common shift of the logits has no effect
    trace = 0.5 * mass @ (1 - (p**2).sum(1))
    assert abs(alpha * out.coupling_error * trace - 1.0101229) < 1e-5  # 1 + O(1/α); the reference value


def test_limits_strong_penalty_and_high_temperature():
    given = sv.PottsAttention(interaction="given", colour_matrix=SKEWED, inverse_temperature=2.0, penalty=1e6).theory()
    assert abs(given.norm) < 1e-8
    centred = SKEWED - SKEWED.mean(0)[None] - SKEWED.mean(1)[:, None] + SKEWED.mean()
    shares = softmax(2.0**2 * (centred @ centred).diagonal() / 3 / 2)
    entropy = -shares @ np.log(shares)
    assert entropy < np.log(3) - 0.01
    np.testing.assert_allclose(given.colour_entropy, entropy, rtol=1e-10)
    # A learner without weights predicts "uniform"; it has no bias that could represent p(y).
    np.testing.assert_allclose(given.test_loss, np.log(3), atol=1e-3)
    hot = sv.PottsAttention(penalty=1e3, inverse_temperature=1e-3).theory()
    np.testing.assert_allclose([hot.test_loss, hot.optimal_loss], np.log(3), atol=1e-5)


def test_few_samples_without_penalty_have_no_minimiser_and_are_nan():
    theory = sv.PottsAttention(samples=1.0, penalty=0.0).theory()
    assert not theory.converged
    assert all(np.isnan(theory[name]) for name in theory)
    few = simulate_batch(sv.PottsAttention(samples=1.0, penalty=0.0), {}, KEYS, SIZE, padded={"samples": 384})
    assert not few["converged"].any()
    assert np.isnan(few["norm"]).all()


def test_averages_that_cannot_resolve_the_softmax_are_flagged():
    """Two colours just above the separability threshold: the weights are huge, and few nodes give a different value."""
    edge = sv.PottsAttention(colours=2, samples=4.0, penalty=0.0)
    assert not edge.theory({"nodes": 16}).converged
    assert edge.theory().converged


def test_row_and_column_sums_of_the_colour_couplings_do_not_matter():
    rows = np.array([0.3, -1.0, 0.5])
    same = [SKEWED, SKEWED + rows[:, None] + rows[None, :] + 0.7]
    first, second = (sv.PottsAttention(interaction="given", colour_matrix=U).theory() for U in same)
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-9, err_msg=name)
    standard = sv.PottsAttention().theory()
    own = sv.PottsAttention(interaction="given", colour_matrix=np.sqrt(1.5) * np.eye(3)).theory()
    np.testing.assert_allclose(own.test_loss, standard.test_loss, rtol=1e-9)


def test_without_penalty_the_dense_graph_has_the_stars_losses_and_noisier_couplings():
    beta = 1.5
    star, dense = (sv.PottsAttention(graph=g, samples=4.0, penalty=0.0).theory() for g in ("star", "dense"))
    for name in ("test_loss", "train_loss", "overlap", "response"):
        np.testing.assert_allclose(dense[name], star[name], rtol=1e-9, err_msg=name)
    noise, bias = star.norm - star.overlap**2, (star.overlap - beta) ** 2
    x2 = beta**2 * 1.5 / 9
    np.testing.assert_allclose(dense.coupling_error, bias + (1 + x2) * noise, rtol=1e-9)


def test_beyond_the_paramagnet_there_is_no_dense_theory():
    out = sv.PottsAttention(graph="dense", inverse_temperature=2.6).theory()  # x = 1.06
    assert not out.converged
    assert np.isnan(out.test_loss)


@settings(max_examples=25, deadline=None)
@given(st.floats(-0.3, 1.3), st.floats(-2, 1), st.floats(0.1, 3), st.floats(0.2, 2))
def test_overlaps_obey_cauchy_schwarz_and_no_learner_beats_the_truth(log_samples, log_penalty, beta, strength):
    out = sv.PottsAttention(
        samples=10**log_samples, penalty=10**log_penalty, inverse_temperature=beta, strength=strength
    ).theory()
    assert out.converged
    assert out.overlap**2 <= strength * out.norm * (1 + 1e-9)
    assert out.excess_loss >= -1e-9
    assert out.train_loss <= out.test_loss + 1e-9
    assert out.coupling_error >= -1e-9


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"interaction": "given"}, "colour_matrix is needed with interaction = 'given'"),
        ({"colour_matrix": SKEWED}, "colour_matrix is needed with interaction = 'given', and only then"),
        ({"interaction": "given", "colour_matrix": np.triu(SKEWED)}, "colour_matrix is not symmetric"),
        ({"interaction": "given", "colour_matrix": np.ones((3, 3))}, "colours do not interact"),
        ({"interaction": "random", "graph": "dense"}, "graph = 'dense' needs interaction = 'potts'"),
    ],
)
def test_invalid_values_are_refused_in_one_sentence(values, sentence):
    with pytest.raises(sv.InvalidValue, match=sentence):
        sv.PottsAttention(**values)


def _expected(couplings, U, beta):
    """Probabilities of all states by enumeration, with the pair couplings as a matrix."""
    sites, colours = len(couplings), len(U)
    states = np.array(list(itertools.product(range(colours), repeat=sites)))
    energy = sum(couplings[i, j] * U[states[:, i], states[:, j]] for i in range(sites) for j in range(i))
    return softmax(beta * energy)


def _deviation(states, expected, colours):
    """Largest |z| of the states' frequencies."""
    code = np.asarray(states) @ colours ** np.arange(states.shape[1])[::-1]
    counted = np.bincount(code, minlength=len(expected))
    return np.max(np.abs(counted - expected * len(code)) / np.sqrt(expected * (1 - expected) * len(code)))


def test_star_and_gibbs_samplers_draw_from_the_enumerated_law():
    """Largest |z| of all C^L frequencies; 4.5 is exceeded once in a few thousand correct samplers of this size."""
    skewed = sv.PottsAttention(interaction="given", colour_matrix=SKEWED, inverse_temperature=1.2)
    draw = eqx.filter_jit(lambda model, key: model._star(key, 3, 20_000, jnp.float64))
    arms, labels, others, _ = draw(skewed, jax.random.key(1))
    J = np.zeros((4, 4))
    J[0, 1:] = J[1:, 0] = np.asarray(arms) / np.sqrt(3)
    law = _expected(J, np.asarray(skewed._colour_matrix()), 1.2)
    assert _deviation(np.column_stack([labels, others]), law, 3) < 4.5
    dense = sv.PottsAttention(graph="dense")
    draw = eqx.filter_jit(lambda model, key: model._dense(key, 3, 20_000, jnp.float64))
    J, states, _ = draw(dense, jax.random.key(2))
    assert _deviation(states, _expected(np.asarray(J), np.asarray(dense._colour_matrix()), 1.5), 3) < 4.5
    assert _deviation(states, _expected(0.7 * np.asarray(J), np.asarray(dense._colour_matrix()), 1.5), 3) > 6


def test_dense_sequences_that_remember_how_they_began_are_flagged():
    """With ten colours the glass freezes at x = 0.8, before the paramagnet is unstable; with three it does not."""
    frozen = sv.PottsAttention(graph="dense", colours=10, inverse_temperature=7.6, samples=3.0).simulate(0, 60)
    assert not frozen.converged
    assert frozen.residual > 0.1
    assert np.isnan(frozen.test_loss)
    free = sv.PottsAttention(graph="dense", inverse_temperature=1.95, samples=3.0).simulate(0, 60)  # x = 0.8, too
    assert free.converged
    assert free.residual <= 0.05


@pytest.mark.parametrize(("graph", "size"), [("star", SIZE), ("dense", 40)])
def test_simulations_agree_with_theory_within_error_bars(graph, size):
    model = sv.PottsAttention(graph=graph)
    out = simulate_batch(model, {}, KEYS, size)
    theory = model.theory()
    assert bool(out["converged"].all())
    for name in ("overlap", "norm", "coupling_error", "test_loss", "train_loss", "optimal_loss", "excess_loss"):
        mean, error = out[name].mean(), out[name].std(ddof=1) / np.sqrt(len(KEYS))
        assert abs(mean - theory[name]) < 4.5 * error + 3.0 / size * abs(theory[name]), name
