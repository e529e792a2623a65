"""Weights with a few levels: saturation, dense regions and where they break up, other second methods, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.averages.quadrature import gaussian_panels
from solvable.models.synapses.few_bit_synapses.figures import success


@pytest.fixture(scope="module")
def curves():
    """φ and its slope for ±1 at two α on either side of α_U, in one program."""
    d = np.linspace(0.03, 0.3, 20)
    model = sv.FewBitSynapses(samples=np.array([0.75, 0.76])[:, None], distance=d[None, :])
    return d, model.theory(only=["local_entropy", "local_slope"])


def test_dense_regions_of_signs_break_up_between_075_and_076(curves):
    d, found = curves
    assert np.all(np.isfinite(found.local_entropy))
    assert np.all(np.diff(found.local_entropy[0]) > 0)
    assert np.any(np.diff(found.local_entropy[1]) < 0)
    assert np.min(found.local_slope[0]) > 0 > np.min(found.local_slope[1])


def test_the_slope_is_that_of_the_curve(curves):
    d, found = curves
    between = np.diff(found.local_entropy, axis=1) / np.diff(d)
    middle = 0.5 * (found.local_slope[:, 1:] + found.local_slope[:, :-1])
    np.testing.assert_allclose(between[:, 3:], middle[:, 3:], atol=5e-3)


def test_more_levels_gain_less_and_less_and_stay_below_their_limits():
    numbers = (2, 3, 4, 5)
    ask = lambda levels: float(sv.FewBitSynapses(levels=levels, replicas="none").theory(only=["capacity"]).capacity)  # noqa: E731
    positive = np.array([ask(np.arange(n)) for n in numbers])
    symmetric = np.array([ask(np.arange(n) - (n - 1) / 2) for n in numbers])
    for values, limit in ((positive, 1.0), (symmetric, 2.0)):
        assert np.all(np.diff(values) > 0)
        assert np.all(np.diff(values, 2) < 0)
        assert values[-1] < limit
    np.testing.assert_allclose(positive, [0.58974, 0.74115, 0.81055, 0.85043], atol=6e-6)
    np.testing.assert_allclose(symmetric, [0.83308, 1.17448, 1.35996, 1.47656], atol=6e-6)


def test_local_entropy_of_zero_and_one_by_brute_force():
    """{0, 1} at D = 0.075: at the saddle point, every average recomputed by a search over a grid of 4,000 fields."""
    from solvable.methods.fixed_points.discrete_weights import local_entropy

    w, alpha, D = np.array([0.0, 1.0]), 0.4, 0.075
    at = jax.jit(local_entropy)(jnp.asarray(w), jnp.asarray(alpha), jnp.asarray(D))
    c, F, p = (float(x) for x in (at.curvature, at.field, at.pull))
    z, weight = (np.asarray(x) for x in gaussian_panels(jnp.linspace(-8, 8, 400), 8))
    u = np.linspace(-25, 35, 12001)
    psi = np.logaddexp(0.0, 0.5 * c + u)
    place = np.array([np.argmax(psi - (u - np.sqrt(F) * x) ** 2 / (2 * p)) for x in z])
    x = u[place]
    for _ in range(6):  # Newton's method within the well
        t = 1 / (1 + np.exp(-0.5 * c - x))
        x = x - (x - np.sqrt(F) * z - p * t) / (1 - p * t * (1 - t))
    t = 1 / (1 + np.exp(-0.5 * c - x))
    Q, q1 = weight @ t, weight @ t**2
    v = weight @ (z * t) / np.sqrt(F) - D
    top = weight @ (np.logaddexp(0.0, 0.5 * c + x) - 0.5 * p * t**2)
    np.testing.assert_allclose([Q, q1, v], [at.square, at.overlap, at.response], atol=2e-4)
    np.testing.assert_allclose(Q - q1, D, atol=2e-4)
    from solvable.methods.averages.tails import tail_rule

    rule = tail_rule(*(jnp.asarray(x) for x in (q1, v, D)), nodes=16)
    energy = rule.mean(rule.log_tail - 0.5 * v * rule.slope**2)
    phi = -0.5 * (c * Q + F * (D + v) + p * q1) + top + alpha * energy
    np.testing.assert_allclose(phi, at.entropy, atol=1e-4)
    np.testing.assert_allclose(at.entropy, 0.195843, atol=2e-6)


def test_search_solves_at_a_half_and_takes_more_sweeps_with_slower_reinforcement():
    fast = success([0.5], 301, 4, reinforcement=0.02)
    slow = success([0.5], 301, 4, reinforcement=0.005)
    assert slow["solved"].mean() == 1
    assert slow["sweeps"].mean() > fast["sweeps"].mean()


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="levels = .* are not 2 to 64 increasing numbers"):
        sv.FewBitSynapses(levels=[1.0, -1.0])
    with pytest.raises(sv.InvalidValue, match=r"distance = 2 is outside its range"):
        sv.FewBitSynapses(distance=2.0)
    far = sv.FewBitSynapses(samples=0.6, distance=0.7).theory()
    assert np.isnan(far.local_entropy)
