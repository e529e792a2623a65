"""Discrete weights: capacities and entropies against the literature, the prox, the global maximum, copies, finite systems."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr

from solvable.methods.averages.levels import level_rule, level_sums
from solvable.methods.averages.quadrature import gaussian_panels, merge_sorted
from solvable.methods.averages.tails import log_tail, prox_tail, tail_ratio, tail_rule, tail_slope
from solvable.methods.fixed_points.belief_propagation import pass_messages
from solvable.methods.fixed_points.discrete_weights import capacity, local_entropy, typical_entropy

PAIR = jnp.asarray([-1.0, 1.0])


def entropy_of_two(x):
    return -x * np.log(x) - (1 - x) * np.log(1 - x)


@pytest.fixture(scope="module")
def dense():
    return jax.jit(jax.vmap(local_entropy, (None, 0, 0)))


def test_tail_functions_keep_their_digits_far_from_the_margin():
    u = np.array([-40.0, -5.0, 0.0, 5.0, 29.0, 31.0, 1e3])
    np.testing.assert_allclose(log_tail(jnp.asarray(u)), log_ndtr(-u), rtol=1e-12, atol=1e-300)
    ratio = np.asarray(tail_ratio(jnp.asarray(u)))
    np.testing.assert_allclose(
        ratio[1:-1], np.exp(-0.5 * u**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(-u))[1:-1], rtol=1e-10
    )
    slopes = np.asarray(tail_slope(jnp.asarray([29.999999, 30.000001])))
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-9)


@pytest.mark.parametrize(("q", "V", "s2", "kappa"), [(0.5, 3.0, 0.1, 0.0), (0.99, 0.02, 0.01, 0.0), (1e-4, 1e3, 0.9, 0.0),
                                             (0.6, 0.5, 0.4, 1.0), (0.99, 2e3, 0.01, 0.0)])  # fmt: skip
def test_the_rule_over_the_prox_is_the_average_of_the_prox_itself(q, V, s2, kappa):
    rule = jax.jit(lambda *a: tail_rule(*a, nodes=16))(*(jnp.asarray(x) for x in (q, V, s2, kappa)))
    z, w = gaussian_panels(jnp.linspace(-9, 9, 60), 16)
    v = jax.jit(prox_tail)(np.sqrt(q) * z, jnp.asarray(V), jnp.asarray(s2), kappa)
    g = tail_ratio((kappa - v) / np.sqrt(s2)) / np.sqrt(s2)
    np.testing.assert_allclose(v, np.sqrt(q) * z + V * g, atol=1e-11)
    for ours, plain in (
        (rule.slope**2, g**2),
        (rule.z * rule.slope, z * g),
        (rule.log_tail, log_tail((kappa - v) / np.sqrt(s2))),
    ):
        np.testing.assert_allclose(rule.mean(ours), w @ plain, rtol=1e-8)


def test_merging_is_sorting():
    a, b = np.sort(np.random.default_rng(0).normal(size=(2, 7)))
    np.testing.assert_array_equal(merge_sorted(jnp.asarray(a), jnp.asarray(b[:3])), np.sort(np.concatenate([a, b[:3]])))


@pytest.mark.parametrize(("levels", "c", "F", "p"), [((-1, 1), 0.0, 0.5, 1.7), ((0, 1), -0.8, 1.5, 6.0),
                                             ((-1, 0, 1), -0.5, 1.0, 2.0),
                                             ((-1, 0, 1), -7.0, 2.0, 6.0), ((0, 1, 2, 3), -9.0, 9.0, 8.0)])  # fmt: skip
def test_the_global_maximum_is_taken_wherever_it_jumps(levels, c, F, p):
    """Against a search over a fine grid at every one of many fields."""
    w = jnp.asarray(levels, float)
    rule = jax.jit(level_rule)(w, *(jnp.asarray(x) for x in (c, F, p)))
    u = np.linspace(-6 * np.sqrt(F) + p * levels[0] - 1, 6 * np.sqrt(F) + p * levels[-1] + 1, 8001)
    log_sum = np.asarray(level_sums(w, jnp.asarray(c), jnp.asarray(u)).log_sum)
    z = np.linspace(-6, 6, 2401)
    best = np.array([np.argmax(log_sum - (u - np.sqrt(F) * x) ** 2 / (2 * p)) for x in z])
    top = log_sum[best] - (u[best] - np.sqrt(F) * z) ** 2 / (2 * p)
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    mean = np.asarray(level_sums(w, jnp.asarray(c), jnp.asarray(u)).mean)[best]
    assert abs(jnp.sum(rule.weight) - 1) < 1e-10
    maximum = rule.average(rule.sums.log_sum - 0.5 * p * rule.sums.mean**2)
    np.testing.assert_allclose(maximum, weight @ top, atol=1e-5)
    np.testing.assert_allclose(rule.average(rule.sums.mean), weight @ mean, atol=3e-3)
    assert np.diff(u[best]).max() > 0.3  # it does jump


@pytest.mark.parametrize(("F", "p"), [(0.42, 1.0002), (0.42, 0.99997), (1.2e-9, 2.44), (7e-6, 2.67)])
def test_no_mass_is_lost_near_criticality_and_in_weak_fields(F, p):
    rule = jax.jit(level_rule)(PAIR, *(jnp.asarray(x) for x in (-1.3, F, p)))
    assert abs(jnp.sum(rule.weight) - 1) < 1e-9


def test_capacities_are_those_of_the_literature_and_saturate():
    ask = jax.jit(capacity)
    table = {(-1, 1): 0.83308, (0, 1): 0.58974, (0, 1, 2): 0.74115, (0, 1, 2, 3): 0.81055, tuple(range(5)): 0.85043,
             tuple(range(6)): 0.87633, tuple(range(8)): 0.90801, (-1, 0, 1): 1.17448, (-3, -1, 1, 3): 1.35996,
             (-2, -1, 0, 1, 2): 1.47656, tuple(range(-3, 4)): 1.61525}  # fmt: skip
    for levels, value in table.items():
        assert abs(ask(jnp.asarray(levels, float)).samples - value) < 6e-6, levels
    # the scale of the weights means nothing without a margin
    np.testing.assert_allclose(ask(7 * PAIR).samples, ask(PAIR).samples, rtol=1e-10)
    found = ask(PAIR, 0.5)
    np.testing.assert_allclose(found.entropy, 0.0, atol=1e-11)


def test_typical_entropy_of_signs():
    found = jax.jit(jax.vmap(typical_entropy, (None, 0)))(PAIR, jnp.asarray([1e-4, 0.2, 0.4, 0.6, 0.8]))
    np.testing.assert_allclose(found.entropy[1:], [0.55012, 0.396455, 0.227785, 0.035306], atol=1e-6)
    np.testing.assert_allclose(found.overlap[1:], [0.12686, 0.25584, 0.39105, 0.53794], atol=1e-5)
    np.testing.assert_allclose(found.entropy[0], (1 - 1e-4) * np.log(2), atol=1e-7)  # every pattern halves them


def test_local_entropy_of_signs_is_the_known_one_and_ends_where_it_must(dense):
    alpha = jnp.asarray([0.6] * 4 + [0.77] * 5 + [0.75] * 4 + [0.6])
    q1 = np.array([0.6, 0.8, 0.9, 0.96, 0.6, 0.8, 0.9, 0.96, 0.99, 0.6, 0.8, 0.9, 0.96, 0.3915])
    found = dense(PAIR, alpha, jnp.asarray(1 - q1))
    known = [0.19553, 0.13460, 0.09509, 0.05447, 0.06192, 0.03598, 0.03177, 0.03415, 0.01734, 0.08020, 0.05039, 0.04224,
             0.03862, 0.227785]  # fmt: skip
    np.testing.assert_allclose(found.entropy, known, atol=1.1e-5)
    bound = entropy_of_two((1 + np.sqrt(q1)) / 2)
    assert np.all(found.entropy < bound)
    # the slope is the derivative
    step = 1e-4
    d = jnp.asarray([0.1, 0.2])
    near = dense(PAIR, jnp.full(2, 0.7), d + step).entropy - dense(PAIR, jnp.full(2, 0.7), d - step).entropy
    np.testing.assert_allclose(dense(PAIR, jnp.full(2, 0.7), d).slope, near / (2 * step), rtol=1e-5)


def test_few_samples_leave_all_pairs_at_a_distance(dense):
    found = dense(PAIR, jnp.full(14, 0.1), jnp.full(14, 0.5)).entropy[0]
    bound = entropy_of_two((1 + np.sqrt(0.5)) / 2)
    assert bound - 2e-3 < found < bound


@pytest.mark.parametrize(("levels", "alpha", "distances", "known"), [
    ((0, 1), 0.4, (0.125, 0.1, 0.05), (0.25242, 0.22980, 0.15523)),
    ((-1, 0, 1), 0.8, (0.233333, 0.2, 0.166667), (0.42330, 0.40101, 0.36912)),
])  # fmt: skip
def test_local_entropy_with_other_levels(dense, levels, alpha, distances, known):
    found = dense(jnp.asarray(levels, float), jnp.full(3, alpha), jnp.asarray(distances))
    np.testing.assert_allclose(found.entropy, known, atol=1.1e-5)


def test_copies_tend_to_the_densest_regions_and_one_copy_is_typical():
    many = jax.jit(jax.vmap(lambda a, d, y: local_entropy(PAIR, a, d, copies=y)))
    found = many(*(jnp.asarray(x) for x in ([0.6] * 3 + [0.75] * 3 + [0.6], [0.4] * 3 + [0.2] * 3 + [0.4],
                                            [20.0, 80.0, 320.0] * 2 + [1.0])))  # fmt: skip
    known = [0.197649, 0.196044, 0.195659, 0.049601, 0.050047, 0.050283, 0.227785]
    np.testing.assert_allclose(found.entropy, known, atol=2e-6)


def test_distances_beyond_typical_solutions_are_nan(dense):
    found = dense(PAIR, jnp.full(2, 0.6), jnp.asarray([0.7, 0.5]))
    assert np.isnan(found.entropy[0])
    assert not np.isnan(found.entropy[1])


def test_message_passing_has_the_entropy_of_enumeration_and_of_the_replicas():
    """All 2^15 weights are tried: the Bethe entropy of small systems is close on average."""
    size, rows, number = 15, 6, 40
    keys = jax.random.split(jax.random.key(1), number)
    patterns = jax.vmap(lambda k: jnp.sign(jax.random.normal(k, (rows, size))))(keys)
    weights = np.array(list(itertools.product([-1, 1], repeat=size)))
    counts = np.array([np.all(np.asarray(x) @ weights.T > 0, axis=0).sum() for x in patterns])
    exact = np.log(counts) / size
    found = jax.jit(jax.vmap(lambda x: pass_messages(x, PAIR, most=400)))(patterns)
    assert np.mean(np.asarray(found.change) < 1e-4) > 0.9
    assert abs(np.mean(np.asarray(found.entropy) - exact)) < 0.01
    assert np.corrcoef(found.entropy, exact)[0, 1] > 0.9


@pytest.mark.parametrize(("levels", "alpha"), [((-1.0, 1.0), 0.5), ((0.0, 1.0, 2.0), 0.4), ((-1.0, 0.0, 1.0), 0.7)])
def test_marginals_of_a_large_system_are_the_saddle_point(levels, alpha):
    size, w, lanes = 301, jnp.asarray(levels), 24
    keys = jax.random.split(jax.random.key(2), lanes)
    rows = round(alpha * size)
    patterns = jax.vmap(lambda k: jnp.sign(jax.random.normal(k, (rows, size), jnp.float32)))(keys)
    found = jax.jit(jax.vmap(lambda x: pass_messages(x, w, most=300, tolerance=1e-4)))(patterns)
    theory = jax.jit(typical_entropy)(w, jnp.asarray(rows / size))
    assert np.all(np.asarray(found.change) < 1e-3)
    for ours, exact in (
        (found.entropy, theory.entropy),
        (found.overlap, theory.overlap),
        (found.square, theory.square),
    ):
        ours = np.asarray(ours, float)
        assert abs(ours.mean() - float(exact)) < 4 * ours.std(ddof=1) / np.sqrt(lanes) + 2 * abs(float(exact)) / size


def test_reinforced_message_passing_solves_and_plain_does_not():
    size, alpha = 501, 0.5
    x = jnp.sign(jax.random.normal(jax.random.key(3), (2, round(alpha * size), size), jnp.float32))
    found = jax.jit(jax.vmap(lambda x: pass_messages(x, PAIR, reinforcement=0.005)))(x)
    assert np.all(found.solved)
    assert np.all(np.einsum("bpn,bn->bp", x, found.weights) > 0)
    plain = jax.jit(jax.vmap(lambda x: pass_messages(x, PAIR, most=300)))(x)
    assert not np.any(plain.solved)


def test_the_prox_satisfies_its_equation_by_another_solver():
    omega, V, s2 = -2.0, 1.5, 0.2
    s = np.sqrt(s2)
    g = lambda v: float(tail_ratio(jnp.asarray(-v / s))) / s  # noqa: E731
    exact = brentq(lambda v: v - omega - V * g(v), -5, 5, xtol=1e-14)
    np.testing.assert_allclose(prox_tail(jnp.asarray(omega), jnp.asarray(V), jnp.asarray(s2)), exact, atol=1e-12)
