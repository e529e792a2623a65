"""The narrow network: kernels, symmetries, limits, stability, branches, agreement."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.replica.narrow_network.committee import Order, fields, free_energy, kernel_named, replicon
from solvable.models.replica.narrow_network.networks import matched

NOISY = {"samples": 4.0, "penalty": 0.05, "noise": 0.05}


def covariance_by_quadrature(f, a, b, t, kinked):
    """E f(u) f(v) less the product of means and the linear part, in NumPy: in polar coordinates for homogeneous activations."""
    if kinked:
        angle = np.arange(200_000) * (2 * np.pi / 200_000)
        x, y, w = np.cos(angle), np.sin(angle), np.full(200_000, 2 / 200_000)
        mean, slope = (np.mean(f(x)) * np.sqrt(np.pi / 2), 2 * np.mean(f(x) * x))
        mean, slope = mean * np.sqrt(np.array([a, b])), np.array([slope, slope])
    else:
        z, m = np.polynomial.hermite_e.hermegauss(96)
        m = m / m.sum()
        x, y, w = (g.ravel() for g in (*np.meshgrid(z, z, indexing="ij"), np.outer(m, m)))
        mean = np.array([m @ f(np.sqrt(v) * z) for v in (a, b)])
        slope = np.array([m @ (f(np.sqrt(v) * z) * z) / np.sqrt(v) for v in (a, b)])
    u, v = np.sqrt(a) * x, t / np.sqrt(a) * x + np.sqrt(b - t**2 / a) * y
    return w @ (f(u) * f(v)) - mean.prod() - slope.prod() * t


@pytest.mark.parametrize("name", ["relu", "abs", "erf", "tanh"])
def test_a_kernel_is_the_covariance_of_two_units_without_its_constant_and_linear_part(name):
    f = {"relu": lambda x: np.maximum(x, 0), "abs": np.abs, "erf": lambda x: erf(x / np.sqrt(2)), "tanh": np.tanh}[name]
    wanted = covariance_by_quadrature(f, 0.8, 1.3, 0.6, name in ("relu", "abs"))
    found = kernel_named(name).value(*map(jnp.asarray, (0.6, 0.8, 1.3)))
    np.testing.assert_allclose(found, wanted, atol=3e-10)


@pytest.mark.parametrize("name", ["relu", "erf", "tanh"])
def test_the_derivatives_of_a_kernel_are_its_derivatives(name):
    kernel, h = kernel_named(name), 1e-5

    @jax.jit
    def gradient(x):
        t, a, b = x
        return (
            kernel.value(t, a, b),
            kernel.slope(t, a, b),
            kernel.pull(t, a, b),
            kernel.bend(t, a, b),
            *kernel.diagonal(a),
        )

    point = np.array([0.6, 0.8, 1.3])

    def ahead(which, *along):
        step = h * np.isin(np.arange(3), along)
        return (gradient(jnp.asarray(point + step))[which] - gradient(jnp.asarray(point - step))[which]) / (2 * h)

    _, slope, pull, bend, value_d, growth, slope_d, slope_growth = gradient(jnp.asarray(point))
    np.testing.assert_allclose([slope, pull, bend], [ahead(0, 0), ahead(0, 1), ahead(1, 0)], atol=1e-9)
    np.testing.assert_allclose([growth, slope_growth], [ahead(4, 1), ahead(6, 1)], atol=1e-9)
    there = gradient(jnp.asarray([0.8, 0.8, 0.8]))
    np.testing.assert_allclose([value_d, slope_d], there[:2], rtol=1e-12)


def test_relu_learns_like_the_absolute_value_at_a_quarter_of_noise_and_penalty():
    """Their even parts are proportional, and the odd part of a ReLU is linear, so no weights depend on it."""
    small = sv.NarrowNetwork(learner="erm", activation="relu", **NOISY).theory()
    four = sv.NarrowNetwork(learner="erm", activation="abs", samples=4.0, penalty=0.2, noise=0.2).theory()
    np.testing.assert_allclose([small.overlap, small.norm], [four.overlap, four.norm], rtol=1e-9)
    np.testing.assert_allclose(4 * small.excess_loss, four.excess_loss, rtol=1e-9)


def test_a_draw_at_the_posterior_s_temperature_has_the_overlaps_of_the_bayes_optimal_student():
    drawn = sv.NarrowNetwork(learner="gibbs", temperature=0.05, **NOISY).theory()
    bayes = sv.NarrowNetwork(**NOISY).theory()
    np.testing.assert_allclose(
        [drawn.overlap, drawn.replica_overlap, drawn.norm], [bayes.overlap] * 2 + [1.0], rtol=1e-9
    )
    np.testing.assert_allclose(drawn.excess_loss, 2 * bayes.excess_loss, rtol=1e-9)
    np.testing.assert_allclose(drawn.train_loss, 0.05 / 2, rtol=1e-9)
    np.testing.assert_allclose(drawn.stability, bayes.stability, rtol=1e-8)


def test_the_saddle_point_is_stationary_and_tends_to_the_minimum_as_the_temperature_falls():
    point = {"activation": "erf", "samples": 6.0, "penalty": 0.02, "noise": 0.01}
    model = sv.NarrowNetwork(learner="gibbs", temperature=[0.1, 0.004, 0.001], **point)
    cold = model.theory()
    kernel, T = kernel_named("erf"), jnp.asarray(0.1)
    given = [jnp.asarray(point[n]) for n in ("samples", "penalty", "noise")]

    def energy(x):
        order = Order(x[0], x[1], x[2], (x[0] - x[1]) / T)
        return free_energy(order, fields(kernel, order, given[2], T), given[0], given[1], T)

    x = jnp.stack([cold.norm[0], cold.replica_overlap[0], cold.overlap[0]])
    np.testing.assert_allclose(energy(x), cold.free_energy[0], rtol=1e-12)
    assert np.abs(jax.grad(energy)(x)).max() < 1e-9
    least = sv.NarrowNetwork(learner="erm", **point).theory()
    gap = np.abs(np.asarray(cold.overlap) - float(least.overlap))
    assert 0.2 < gap[2] / gap[1] < 0.3  # as T falls fourfold
    # the energy of a minimum is its loss and its penalty
    np.testing.assert_allclose(least.free_energy, 6.0 * least.train_loss + 0.01 * least.norm, rtol=1e-10)


def test_the_replicon_is_the_second_variation_of_the_replicated_action():
    """For four replicas, by differentiation; what the limit of none changes is the inverse of D + nβC alone."""
    kernel, n, T = kernel_named("erf"), 4, 0.1
    alpha, noise, Q, q, t = 5.0, 0.02, 1.1, 0.9, 0.8
    one = jnp.ones(())
    g = lambda x: kernel.value(x, *map(jnp.asarray, (Q, Q)))  # noqa: E731
    teacher = kernel.value(jnp.asarray(t), jnp.asarray(Q), one)

    # rows of the perturbation sum to zero: the replicon's direction
    direction = jnp.asarray([[0, 1, -1, 0], [1, 0, 0, -1], [-1, 0, 0, 1], [0, -1, 1, 0.0]])

    @jax.jit
    def action(size):
        overlaps = jnp.where(jnp.eye(n, dtype=bool), Q, q + size * direction)
        outputs = jax.vmap(jax.vmap(g))(overlaps) - 2 * teacher + kernel.value(one, one, one) + noise
        weights = jnp.linalg.slogdet(overlaps - t**2)[1]
        return 0.5 * (weights - alpha * jnp.linalg.slogdet(jnp.eye(n) + outputs / T)[1])

    bent = jax.jit(jax.grad(jax.grad(action)))(0.0)  # = −½ |direction|² (1 − r)/(Q − q)²
    r_seen = 1 + 2 * float(bent) / 8 * (Q - q) ** 2
    order = Order(*map(jnp.asarray, (Q, q, t, (Q - q) / T)))
    f = fields(kernel, order, jnp.asarray(noise), jnp.asarray(T))
    finite = f._replace(rest=f.rest * f.denominator / (f.denominator + n * f.rest / T))
    s = replicon(kernel, order, finite, jnp.asarray(alpha), jnp.asarray(T))
    np.testing.assert_allclose((1 - s) / (1 + s), r_seen, rtol=1e-9)


def test_stability_vanishes_at_the_spinodal_and_a_kinked_minimum_has_none():
    model = sv.NarrowNetwork(activation="erf", noise=0.01)
    edge = float(model.theory().spinodal)
    near = model.replace(samples=[edge * (1 - 1e-6), edge * (1 + 1e-8), edge * (1 + 1e-4), 2 * edge]).theory()
    assert near.overlap[0] == 0
    assert 0 < near.stability[1] < 1e-3 < near.stability[2] < near.stability[3]
    kernel, order = kernel_named("relu"), Order(*map(jnp.asarray, (1.0, 1.0, 0.9, 2.0)))
    assert replicon(kernel, order, fields(kernel, order, jnp.asarray(1e-3), None), jnp.asarray(4.0), None) == -1


def test_branches_are_the_three_solutions_between_spinodal_and_threshold_lowest_first():
    out = sv.NarrowNetwork(activation="erf", noise=0.01, samples=[2.0, 2.2, 3.0]).branches()
    assert np.isfinite(out["overlap"]).sum(axis=1).tolist() == [1, 3, 3]
    assert out["overlap"][1, 0] == 0  # between spinodal and transition the specialised solution is metastable
    assert out["overlap"][2, 0] > 0.8
    energy = np.asarray(out["free_energy"])[1:]
    assert (np.diff(energy, axis=1) > 0).all()


def test_a_specialised_minimum_is_found_wherever_it_exists():
    samples = np.linspace(4.0, 8.0, 17)  # from 5.65 to 6 one of the starts near the teacher ends without specialisation
    outcome = sv.NarrowNetwork(learner="erm", activation="erf", penalty=0.005, noise=0.008, samples=samples).theory()
    assert np.all(outcome.converged)
    assert np.all(np.diff(outcome.overlap) > 0)
    assert float(outcome.overlap[0]) > 0.98


def test_an_even_part_makes_the_transition_continuous_at_the_closed_threshold():
    threshold = (0.05 + 0.25 - 0.5 / np.pi) * 2 * np.pi  # (Δ + g(1))/(2c₂²) of a ReLU
    ratios = np.array([0.999, 1.0001, 1.001, 1.01])
    out = sv.NarrowNetwork(samples=ratios * threshold).theory()
    np.testing.assert_allclose([out.spinodal[0], out.transition[0], out.threshold[0]], threshold, rtol=1e-12)
    assert out.overlap[0] == 0
    assert 0 < out.overlap[1] < out.overlap[2] < out.overlap[3] < 0.1
    assert (np.asarray(out.stability) > 0).all()
    assert (np.asarray(out.jump) == 0).all()


def test_transition_lines_are_known_in_the_plane_of_noise_and_samples():
    lines = sv.NarrowNetwork(activation="erf").transition_lines("noise", "samples", np.array([0.001, 0.01]))
    np.testing.assert_allclose(lines["first order"], [1.27825, 2.32683], atol=1e-5)
    assert (np.asarray(lines["spinodal"]) < np.asarray(lines["first order"])).all()
    assert sv.NarrowNetwork().transition_lines("samples", "noise", np.array([0.1])) == {}


def test_units_are_matched_up_to_the_symmetries_of_the_network():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 40))
    shuffled = rows[[2, 5, 4, 1, 0, 3]]
    np.testing.assert_array_equal(matched(shuffled, rows, "none"), rows)
    np.testing.assert_array_equal(matched(-shuffled, rows, "even"), rows)
    np.testing.assert_array_equal(matched(-rows[[1, 0, 3, 2, 5, 4]], rows, "odd"), rows)


def test_a_stable_minimum_agrees_with_theory_within_error_bars():
    model = sv.NarrowNetwork(learner="erm", activation="erf", samples=6.0, penalty=0.002, noise=0.001)
    theory = model.theory()
    assert theory.stability > 0.5
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(jnp.arange(6))
    out = simulate_batch(model, {}, keys, 100)
    assert bool(out["converged"].all())
    for name in ("overlap", "norm", "train_loss", "excess_loss"):
        mean, error = out[name].mean(), out[name].std(ddof=1) / np.sqrt(6)
        assert abs(mean - theory[name]) < 5 * error + 0.2 / np.sqrt(100) * abs(theory[name]), name


def test_a_noisy_relu_network_lies_where_the_theory_is_unstable():
    """Descents from the teacher end in minima that are not the typical ones, with a sixth less excess loss or lower; at the
    posterior's temperature, where replica symmetry is stable, networks agree."""
    minimum = sv.NarrowNetwork(learner="erm", **NOISY)
    bayes = sv.NarrowNetwork(**NOISY)
    gaps = {}
    for model in (minimum, bayes):
        out = [model.simulate(seed, 144) for seed in range(4)]
        gaps[model.learner] = np.mean([o.excess_loss for o in out]) / float(model.theory().excess_loss) - 1
    assert gaps["erm"] < -0.15
    assert abs(gaps["bayes"]) < 0.1


@pytest.mark.parametrize("seed", [1, 2])
def test_chains_from_the_teacher_and_from_random_weights_meet_on_the_same_data(seed):
    """An overlap of 0.84 or 0.88, of which chains that are cut short have 0.63 or 0.36 if they begin at random."""
    key, noisy = jax.random.key(seed), {"activation": "abs", "samples": 3.0, "noise": 0.2}
    informed, blind = (sv.NarrowNetwork(start=s, **noisy).simulate(key=key, size=64) for s in ("teacher", "random"))
    assert informed.converged
    assert blind.converged
    assert max(informed.residual, blind.residual) <= 0.05
    np.testing.assert_allclose(informed.overlap, blind.overlap, atol=0.02)
    np.testing.assert_allclose(informed.excess_loss, blind.excess_loss, rtol=0.08)


def test_chains_too_cold_to_meet_are_flagged_and_nan():
    cold = sv.NarrowNetwork(learner="gibbs", temperature=2e-4, penalty=0.05, samples=4.0).simulate(0, 36)
    assert not cold.converged
    assert cold.residual > 0.2
    assert np.isnan(cold.overlap)
    assert np.isnan(cold.excess_loss)


def test_a_posterior_s_excess_loss_is_the_theory_s_within_error_bars():
    model = sv.NarrowNetwork(activation="abs", samples=3.0, noise=0.2)
    out = [model.simulate(seed, 64) for seed in range(12)]
    seen = np.array([o.excess_loss for o in out if o.converged])
    assert len(seen) >= 10
    assert abs(seen.mean() - float(model.theory().excess_loss)) < 3 * seen.std(ddof=1) / np.sqrt(len(seen))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"units": 3}, "units = 3 is odd"), ({"noise": 1e-4}, "noise = 0.0001 with learner = 'bayes'")],
)
def test_bad_input_is_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(sv.InvalidValue, match=sentence):
        sv.NarrowNetwork(**wrong)
