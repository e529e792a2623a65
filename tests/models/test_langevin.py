"""Langevin dynamics: equilibrium, a matrix alone, thresholds, interpolation, annealing, finite systems."""

import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.glassy._landscape import Covariance, draw_system
from solvable.models.glassy._state_evolution import blind_overlap
from solvable.models.glassy._thresholds import plateau, sampling

TIMES = [0.0, 0.5, 1.0, 2.0]


def one(x):
    return jnp.asarray(float(x))


def test_at_long_times_sampling_agrees_with_message_passing():
    """m = AMP's overlap, C between distant times the same (Nishimori), μ = 1/(1-m) + Q'(1) - Q'(m)."""
    outcome = sv.create("langevin", times=[0.0, 4.0, 8.0, 12.0], waiting=[0.0, 4.0, 6.0]).theory()
    m = float(outcome.message_passing)
    assert float(outcome.overlap[-1]) == pytest.approx(m, abs=2e-4)
    assert float(outcome.correlation[-1, 2]) == pytest.approx(m, abs=2e-3)
    assert float(outcome.multiplier[-1]) == pytest.approx(1 / (1 - m) + 3.5 - (m / 0.4 + m**2), abs=1e-3)


def test_the_threshold_has_its_closed_forms():
    for noise in (0.1, 0.5, 1.0, 1.9, 2.5):
        assert float(sampling(3, one(noise), one(1))) == pytest.approx(min(1.0, np.sqrt(noise / 2)), abs=1e-12)
        flow = (-noise + np.sqrt(noise**2 + 8 * noise)) / 4
        assert float(sampling(3, one(noise), one(0))) == pytest.approx(flow, abs=1e-12)
    # p = 4: two roots of Δ₄ = 3Δ₂²(1-Δ₂), or none
    assert float(sampling(4, one(0.3), one(1))) == pytest.approx(0.41260557, abs=1e-7)
    assert float(sampling(4, one(0.5), one(1))) == 1.0


def test_the_threshold_follows_from_the_largest_plateau():
    """By a scan of q for the largest root, at several temperatures."""
    q = np.linspace(0, 1, 400_001)
    for temperature in (0.5, 1.0, 1.4):
        for noise in (0.3, 0.6, 0.65, 0.8):
            held = (1 - q) ** 2 * (1 / noise + 2 * q / 0.8)
            root = q[np.flatnonzero(held >= temperature**2)[-1]] if (held >= temperature**2).any() else 0.0
            covariance = Covariance(one(noise), one(0.8), 3)
            assert float(plateau(covariance, one(temperature))) == pytest.approx(root, abs=1e-5)
            free = 1 / noise > temperature / (1 - root)
            assert free == (noise < float(sampling(3, one(0.8), one(temperature))))


def test_message_passing_equals_its_iteration():
    for noise, order in ((0.4, 3), (0.9, 3), (1.1, 3), (0.6, 4)):
        covariance, m = Covariance(one(noise), one(1.0), order), 1e-4
        for _ in range(3000):
            force = float(covariance.slope(one(m)))
            m = force / (1 + force)
        assert float(blind_overlap("bayes", covariance)) == pytest.approx(m if noise < 1 else 0.0, abs=1e-9)


def test_times_between_the_steps_are_interpolated_as_well_as_steps_themselves():
    model = sv.create("langevin", times=[0.0, 0.31, 0.77, 2.0], waiting=[0.0, 0.13, 0.52])
    coarse, fine = model.theory(), model.theory({"steps": 600})
    for name in ("overlap", "energy", "multiplier", "correlation"):
        np.testing.assert_allclose(coarse[name], fine[name], atol=1e-5)
    np.testing.assert_allclose(
        coarse.correlation[0], model.replace(times=[0.0, 0.13, 0.52, 2.0]).theory().correlation[:3, 0]
    )


def test_infinitely_slow_annealing_removes_the_tensor():
    annealed = sv.create("langevin", protocol="annealed", annealing=1e6, annealing_time=1e6, times=TIMES).theory()
    alone = sv.create("langevin", tensor_noise=1e9, times=TIMES).theory()
    np.testing.assert_allclose(annealed.overlap, alone.overlap, atol=1e-5)
    np.testing.assert_allclose(annealed.correlation, alone.correlation, atol=1e-5)


def test_a_small_overlap_grows_more_where_the_tensor_is_annealed():
    """Above the threshold of the constant protocol, Δ₂ = 0.8."""
    values = {"matrix_noise": 0.8, "initial_overlap": 1e-4, "times": [0.0, 2.0, 4.0, 10.0]}
    constant = sv.create("langevin", **values).theory()
    annealed = sv.create("langevin", protocol="annealed", annealing_time=6.0, **values).theory()
    assert float(constant.overlap[-1]) < 1e-4 < 1.2e-4 < float(annealed.overlap[-1])


def test_drawn_noise_has_the_covariance_of_the_theory_dense_or_diluted():
    """Of forces, at two points: N⁻¹ E[F(x)·F(y)] = Q'(q) + ..., for y = x it is Q'(1) without the signal."""
    import jax

    covariance = Covariance(one(0.5), one(0.8), 3)
    for kind, size in (("dense", 40), ("diluted", 200)):

        def squared(key, kind=kind, size=size):
            system = draw_system(key, size, covariance, one(0.0), kind, jnp.float32)
            pull = system.force(system.start, 1.0) - covariance.slope(jnp.zeros(())).astype(jnp.float32)
            return jnp.mean(jnp.sum(pull**2, axis=1)) / size, jnp.mean(system.measure(system.start, 1.0)[0])

        seen, energy = jax.vmap(squared)(jax.random.split(jax.random.key(3), 60))
        # tangent components have Q'(1), the radial one more: (Q''(1) + Q'(1))/N
        assert float(seen.mean()) == pytest.approx(float(covariance.slope(one(1))), rel=0.08)
        assert abs(float(energy.mean())) < 1e-5  # both signs cancel


def test_groups_of_a_diluted_system_hold_no_site_twice_and_the_force_is_a_gradient():
    import jax

    covariance = Covariance(one(1e12), one(1.0), 3)
    system = draw_system(jax.random.key(0), 40, covariance, one(0.0), "diluted", jnp.float32)
    slopes = jax.jacfwd(lambda x: system.force(jnp.stack([x, x]), 1.0)[0])(system.start[0])
    slopes = (
        np.asarray(slopes) - np.outer(system.signal, system.signal) * 2 * float(system.start[0] @ system.signal) / 40**2
    )
    np.testing.assert_allclose(slopes, slopes.T, atol=1e-5)
    assert np.abs(np.diag(slopes)).max() < 1e-5  # a site that were twice in a group would act on itself


def test_a_diluted_system_does_not_condense():
    """In the glassy phase; Gaussian couplings, or groups that hold a site twice, end at energies far below the theory."""
    model = sv.create("langevin", matrix_noise=0.9, tensor_noise=0.5, initial_overlap=0.0, disorder="diluted",
                      times=[0.0, 2.0, 4.0, 8.0])  # fmt: skip
    size, seeds = 400, 6
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    seen, exact = np.asarray(runs["energy"]), np.asarray(model.theory().energy)
    error = seen.std(axis=0, ddof=1) / np.sqrt(seeds)
    assert np.all(np.abs(seen.mean(axis=0) - exact) < 5 * error + 0.03 * np.abs(exact).max())


@pytest.mark.parametrize("disorder", ["dense", "diluted"])
def test_finite_systems_follow_the_curves(disorder):
    model = sv.create("langevin", initial_overlap=0.5, disorder=disorder, times=TIMES)
    size, seeds = (60, 24) if disorder == "dense" else (500, 6)
    runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    theory = model.theory()
    for name in ("overlap", "energy", "multiplier", "correlation"):
        seen, exact = np.asarray(runs[name]), np.asarray(theory[name])
        error = seen.std(axis=0, ddof=1) / np.sqrt(seeds)
        assert np.all(np.abs(seen.mean(axis=0) - exact) < 5 * error + 0.03 * np.abs(exact).max()), name


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match="waiting ends at 9, beyond the last of times, 2"):
        sv.create("langevin", times=TIMES, waiting=[0.0, 9.0])
    with pytest.raises(sv.InvalidValue, match="the largest for a dense tensor of order 4"):
        sv.create("langevin", order=4).simulate(0, 300)
    with pytest.raises(sv.InvalidValue, match="disorder = 'diluted' needs order = 3, not 4"):
        sv.create("langevin", order=4, disorder="diluted")
    with pytest.raises(sv.InvalidValue, match="needs temperature² × tensor_noise ≥ 0.33, not 0.09"):
        sv.create("langevin", temperature=[1.0, 0.3], disorder="diluted")
    with pytest.raises(sv.InvalidValue, match="temperature = 0 is outside its range"):
        sv.create("langevin", temperature=0.0)
