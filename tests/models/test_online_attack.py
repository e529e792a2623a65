"""Label attacks: limits, critical costs, drawn batches, a slow twin of the flow, optimality, the learner itself."""

import decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import solvable as sv
from solvable.methods.flows.control import Box, optimise
from solvable.models.online.online_attack.model import OnlineAttack, Policy, _chi_squared

COSTS = np.array([0.1, 1.0, 3.0, 30.0])
SLOW = {"rate": 1e-6, "times": [0.0, 1e8]}


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_slow_learners_are_dragged_as_far_as_the_closed_form_says(batch):
    """κ = C/(C + p(1+2/P)) and mean cost ½Δ²κ²[1 + p²(1+2/P)/C]."""
    p = 1.3
    outcome = sv.OnlineAttack(cost=COSTS, batch=batch, preference=p, **SLOW).theory()
    kappa = COSTS / (COSTS + p * (1 + 2 / batch))
    np.testing.assert_allclose(outcome.steady_position, kappa, atol=1e-5)
    np.testing.assert_allclose(outcome.steady_cost, 2 * kappa**2 * (1 + p**2 * (1 + 2 / batch) / COSTS), rtol=2e-5)


def test_the_learner_turns_at_the_critical_cost():
    assert sv.locate(sv.OnlineAttack(strategy="constant"), along="cost") == pytest.approx(1.0, abs=1e-9)
    assert sv.locate(sv.OnlineAttack(**SLOW), along="cost") == pytest.approx(3.0, abs=1e-4)
    # a finite rate rounds the jump and moves it to smaller costs
    assert sv.locate(sv.OnlineAttack(rate=0.25, times=[0.0, 1.0]), along="cost") == pytest.approx(2.6371, abs=1e-4)
    for batch, critical in ((1, 3.0), (2, 2.0), (10, 1.2)):
        costs = critical + np.array([-0.02, -0.01, 0.01, 0.02])
        outcome = sv.OnlineAttack(batch=batch, cost=costs, **SLOW).theory()
        np.testing.assert_allclose(outcome.steady_error, [1.0, 1.0, 0.0, 0.0], atol=0.1)  # a jump, rounded by noise


def test_constant_attacks_leave_no_noise_and_none_leave_the_learner_alone():
    outcome = sv.OnlineAttack(strategy="constant", cost=COSTS, rate=0.9).theory()
    np.testing.assert_allclose(outcome.steady_position, COSTS / (1 + COSTS), rtol=1e-12)
    np.testing.assert_allclose(outcome.steady_cost, 2 * COSTS / (1 + COSTS), rtol=1e-12)
    alone = sv.OnlineAttack(strategy="none").theory()
    np.testing.assert_allclose(alone.position, 1.0, rtol=1e-12)
    np.testing.assert_allclose(alone.test_error, 0.0, atol=1e-10)


def test_averages_over_a_batch_are_those_of_drawn_batches():
    model = OnlineAttack(batch=3, rate=0.7, cost=0.6, similarity=-0.4)
    kappa, q, p, c, number = 0.35, 0.9, 0.8, 0.2, 1_000_000
    delta, rng = 2.8, np.random.default_rng(1)
    s = np.sqrt(delta) * rng.normal(size=(number, 3))
    error = kappa * s + np.sqrt(q - kappa**2 * delta) * rng.normal(size=(number, 3))
    big, cross, ratio = (s**2).mean(axis=1), (s * error).mean(axis=1), 0.7 / 3
    a = (p * ((1 - ratio) * cross + ratio * big) + c * big) / (0.6 * delta + p * ratio * big)
    drawn = np.stack([a, a**2, a * big, a * cross, a**2 * big])
    place = jnp.asarray(kappa), jnp.asarray(q - kappa**2 * delta)
    outcome = np.array(model._actions(Policy(jnp.asarray(p), jnp.asarray(c)), *place, 128))
    assert np.all(np.abs(drawn.mean(axis=1) - outcome) < 4 * drawn.std(axis=1) / 1000)


def test_a_slow_twin_with_gauss_hermite_averages_follows_the_same_path():
    """P = 1: fields on a grid, the greedy action point by point, scipy's integrator."""
    model = sv.OnlineAttack(cost=2.0, rate=0.5, similarity=-0.2, preference=0.7, times=[0.0, 3.0, 12.0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z, other = np.meshgrid(nodes, nodes)
    weight = np.outer(weights, weights) / weights.sum() ** 2
    delta = 2.4

    def drift(t, y):
        kappa, q = y
        s = np.sqrt(delta) * z
        error = kappa * s + np.sqrt(max(q - kappa**2 * delta, 0.0)) * other
        a = 0.7 * s * (error - 0.5 * (error - s)) / (2.0 * delta + 0.7 * 0.5 * s**2)
        miss = error - s + a * s
        return [-0.5 * np.sum(weight * s * miss) / delta, np.sum(weight * (-2 * 0.5 * error * miss + 0.25 * miss**2))]

    slow = solve_ivp(drift, (0, 12), [1.0, delta], t_eval=[0, 3, 12], rtol=1e-9, atol=1e-11).y
    outcome = model.theory()
    np.testing.assert_allclose(np.stack([outcome.position, outcome.distance]), slow, rtol=1e-7)


def by_sixty_digits(model):
    """κ, q, test error and cost at all times and in the limit of long times, from the documented equations of κ and q."""
    decimal.getcontext().prec = 60
    big = decimal.Decimal
    cost, rate, p, tau = (big(float(x)) for x in (model.cost, model.rate, model.preference, model.similarity))
    delta, ratio, one = 2 - 2 * tau, rate / model.batch, big(1)
    if model.strategy == "constant":
        nodes = [(one, delta)]
    else:
        nodes = [(big(float(w)), delta * big(float(x))) for x, w in zip(*_chi_squared(model.batch, 128), strict=True)]
        mean = sum(w * s for w, s in nodes)  # Δ², up to the rounding of the nodes
        nodes = [(w * delta / mean, s) for w, s in nodes]

    def averages(kappa, q):
        """<a²>, <aS>, <aX>, <a²S> of the greedy or constant attack."""
        sums = [big(0)] * 4
        for weight, s in nodes:
            spread = (q - kappa**2 * delta) * s / model.batch  # the variance of X at this S
            if model.strategy == "constant":
                a, b = p / (p + cost), big(0)
            else:
                price = cost * delta + p * ratio * s
                a, b = p * ((1 - ratio) * kappa + ratio) * s / price, p * (1 - ratio) / price
            square = a**2 + b**2 * spread
            for i, x in enumerate((square, a * s, a * kappa * s + b * spread, square * s)):
                sums[i] += weight * x
        return sums

    def drift(kappa, q):
        _, with_s, with_x, square_s = averages(kappa, q)
        left = q - 2 * kappa * delta + delta + 2 * (with_x - with_s) + square_s
        return -rate * (kappa - 1 + with_s / delta), -2 * rate * (q - kappa * delta + with_x) + rate * ratio * left

    places = ((0, 0), (1, 0), (-1, 0), (0, 1))
    (k0, f0), (k1, up), (_, down), (_, tilted) = (drift(big(kappa), big(q)) for kappa, q in places)
    alpha, decay, f1, f2 = k0 - k1, f0 - tilted, (up - down) / 2, (up + down) / 2 - f0
    end = k0 / alpha
    k, q_end = 1 - end, (f0 + f1 * end + f2 * end**2) / decay
    rows = []
    for t in [*(big(float(t)) for t in model.times), big(10) ** 9]:
        kappa = end + k * (-alpha * t).exp()
        q = q_end + (delta - q_end) * (-decay * t).exp()
        for force, power in (((f1 + 2 * f2 * end) * k, alpha), (f2 * k**2, 2 * alpha)):
            q += force * ((-power * t).exp() - (-decay * t).exp()) / (decay - power)
        along = tau + (1 - tau) * kappa
        across = max(1 - kappa * delta + q - along**2, big(0))
        across = big(0) if across < big(10) ** -45 else across
        error = np.arctan2(float(across.sqrt()), float(along)) / np.pi
        rows.append([float(kappa), float(q), error, float((cost * delta * averages(kappa, q)[0] + q) / 2)])
    return np.array(rows).T


NEAR = [1 + s * 10.0**-k for k in range(1, 13) for s in (1, -1)]


@pytest.mark.parametrize("strategy", ["constant", "greedy"])
@pytest.mark.parametrize("fixed", [{"similarity": -1.0}, {"similarity": -1 + 1e-9, "batch": 1000, "rate": 0.01},
                                   {"similarity": 0.999, "preference": 0.7}])  # fmt: skip
def test_no_digits_are_lost_anywhere(strategy, fixed):
    """Costs on both sides of one, where a constant attack turns the learner, and the ends of the range; early and late."""
    costs = [*NEAR[:: 1 if strategy == "constant" else 6], 1e-6, 1e6]
    model = sv.OnlineAttack(strategy=strategy, cost=costs, times=[0.0, 1e-6, 0.3, 40.0], **fixed)
    result = model.theory()
    for i, cost in enumerate(costs):
        exact = by_sixty_digits(model.replace(cost=cost))
        for name, row in zip(("position", "distance", "test_error", "running_cost"), exact, strict=True):
            np.testing.assert_allclose(result[name][i], row[:-1], rtol=1e-11, atol=1e-25, err_msg=f"{name} at {cost}")
        for name, row in zip(("steady_position", "steady_error", "steady_cost"), exact[[0, 2, 3]], strict=True):
            np.testing.assert_allclose(result[name][i], row[-1], rtol=1e-11, atol=1e-25, err_msg=f"{name} at {cost}")


def test_a_constant_attack_turns_the_learner_round_completely_and_leaves_none_at_the_critical_cost():
    result = sv.OnlineAttack(strategy="constant", cost=[*NEAR, 1.0]).theory()
    np.testing.assert_array_equal(result.steady_error, [*([0.0, 1.0] * 12), 0.5])

    def error(cost):
        return sv.OnlineAttack(strategy="constant", similarity=-0.5, cost=cost).theory().steady_error

    h = 1e-5
    beside = error([1 - h, 1 + h])
    assert float(jax.grad(error)(1.0)) == pytest.approx(float(beside[1] - beside[0]) / (2 * h), rel=1e-8)


@pytest.mark.parametrize("batch", [4, 1])
def test_the_optimal_attack_is_stationary_and_cheaper_than_any_greedy_one(batch):
    best = sv.OnlineAttack(strategy="optimal", cost=COSTS, rate=0.5, batch=batch).theory()
    assert np.all(best.converged)
    greedy = sv.OnlineAttack(preference=np.array([[0.7], [1.0], [1.4]]), cost=COSTS, rate=0.5, batch=batch).theory()
    assert np.all(np.asarray(greedy.steady_cost) > np.asarray(best.steady_cost)[None])
    # an optimal attacker pays ½Δ²κ
    np.testing.assert_allclose(best.steady_cost, 2 * np.asarray(best.steady_position), rtol=1e-10)
    model = OnlineAttack(strategy="optimal", rate=0.5, batch=batch)
    policy, _, _ = model._policy(model.numerics)
    slope = jax.grad(lambda x: model._price(Policy(x[0], x[1]), *model._steady(Policy(x[0], x[1]), 128), 128))
    np.testing.assert_allclose(slope(jnp.stack(policy)), 0, atol=1e-10)
    # slow learners: greedy attacks are optimal
    slow = sv.OnlineAttack(strategy="optimal", cost=COSTS, batch=batch, rate=1e-6).theory()
    np.testing.assert_allclose(slow.steady_position, COSTS / (COSTS + 1 + 2 / batch), atol=1e-5)


def test_a_discount_makes_the_best_slow_attack_greedy_with_a_smaller_preference():
    """dκ/dt = 1 - κ(1 + p(1+2/P)/C), cost ∫e^{-βt}...: the adjoint finds p = 1/(1+β) while far from both ends."""
    beta, cost, noise = 0.2506, 1.0, 3.0

    def drift(y, u):
        kappa, clock, _ = y
        p = u["preference"]
        paid = 2 * kappa**2 * (1 + p**2 * noise / cost)
        return 1 - kappa * (1 + p * noise / cost), jnp.ones_like(clock), jnp.exp(-beta * clock) * paid

    start = (jnp.asarray(1 / (1 + noise / (1 + beta))), jnp.asarray(0.0), jnp.asarray(0.0))
    search = jax.jit(lambda: optimise(drift, lambda y: y[2], start, {"preference": jnp.full(80, 0.5)},
                                      {"preference": Box(0.0, 2.0)}, 16.0, iterations=3000, tolerance=1e-6))  # fmt: skip
    found = search()
    assert found.converged
    np.testing.assert_allclose(found.controls["preference"][5:35], 1 / (1 + beta), atol=0.01)


def test_a_learning_rate_at_which_the_learner_diverges_gives_nan():
    outcome = sv.OnlineAttack(strategy="constant", rate=[1.9, 2.1]).theory()
    assert list(np.asarray(outcome.converged)) == [True, False]
    assert np.isnan(outcome.steady_cost[1])
    assert np.isnan(outcome.distance[1]).all()


def test_invalid_attacks_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"similarity = 1 is outside its range \[-1, 1\)"):
        sv.OnlineAttack(similarity=1.0)
    with pytest.raises(sv.InvalidValue, match="times must be at least two increasing numbers"):
        sv.OnlineAttack(times=[1.0, 0.5])
    with pytest.raises(sv.InvalidValue, match="strategy = 'clairvoyant' is not one of"):
        sv.OnlineAttack(strategy="clairvoyant")
