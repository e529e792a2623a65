"""Curricula online: a slow twin, limits, order against rate, Pontryagin, gradient descent itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp
from scipy.special import erf

import solvable as sv
from solvable.methods.flows.control import Difficulty, arrive, evaluate
from solvable.model import simulate_batch
from solvable.models.online.curriculum_online.model import Overlaps
from solvable.models.online.curriculum_online.time_figures import time_to


def test_a_slow_twin_without_any_closed_form_gives_the_same_path():
    """One gradient step averaged by Gauss-Hermite sums over the three fields, integrated by scipy."""
    model = sv.CurriculumOnline(
        relevant=0.3, easy=0.2, hard=1.5, rate=1.3, penalty=0.05, horizon=3.0, protocol="mixed", share=0.35
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    # every average is even in the fields: half of the teacher's, the label then being +1 (no rule sees its jump)
    x, w = np.polynomial.legendre.leggauss(80)
    x, w = 4.5 * (x + 1), 4.5 * w * np.exp(-((4.5 * (x + 1)) ** 2) / 2) / np.sqrt(2 * np.pi) * 2
    u, a, b = np.meshgrid(x, nodes, nodes, indexing="ij")
    each = w[:, None, None] * (weights / weights.sum())[None, :, None] * (weights / weights.sum())[None, None, :]

    def drift(t, y):
        r, q_r, q_i = y
        out = np.zeros(3)
        for level, part in ((0.2, 0.35), (1.5, 0.65)):
            h_r = r / np.sqrt(0.3) * u + np.sqrt(q_r - r**2 / 0.3) * a
            h_i = np.sqrt(level * q_i) * b
            h = h_r + h_i
            step = (1 - erf(h / np.sqrt(2))) * np.sqrt(2 / np.pi) * np.exp(-(h**2) / 2)
            mean = lambda v: np.sum(each * v)  # noqa: E731
            kick = 1.3**2 * mean(step**2)
            out += part * np.array([
                1.3 * mean(step * np.sqrt(0.3) * u) - 1.3 * 0.05 * r,
                2 * 1.3 * mean(step * h_r) + 0.3 * kick - 2 * 1.3 * 0.05 * q_r,
                2 * 1.3 * mean(step * h_i) + 0.7 * level * kick - 2 * 1.3 * 0.05 * q_i,
            ])  # fmt: skip
        return out

    end = solve_ivp(drift, (0, 3), [0.05, 0.5, 0.5], "RK45", rtol=1e-7, atol=1e-9).y[:, -1]
    result = model.theory()
    np.testing.assert_allclose([result.overlap[-1], *result.norm[-1]], end, atol=2e-6)


def test_without_a_difference_in_difficulty_the_order_does_not_matter():
    ends = [
        np.asarray(sv.CurriculumOnline(easy=0.7, hard=0.7, protocol=p).theory().norm[-1])
        for p in ("curriculum", "anti", "mixed")
    ]
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-9)
    np.testing.assert_allclose(ends[2], ends[0], rtol=1e-9)


def test_easy_samples_without_irrelevant_noise_only_decay_the_irrelevant_weights():
    model = sv.CurriculumOnline(easy=0.0, share=1.0, protocol="mixed", rate=0.8, penalty=0.1, horizon=4.0)
    np.testing.assert_allclose(model.theory().norm[-1, 1], 0.5 * np.exp(-2 * 0.8 * 0.1 * 4.0), rtol=1e-9)


def test_which_order_wins_at_a_constant_rate_depends_on_the_horizon():
    """Late easy samples reduce the noise of a constant rate: anti-curriculum wins at long times."""

    def error(protocol, horizon):
        return float(sv.CurriculumOnline(protocol=protocol, share=0.4, horizon=horizon).theory().final_error)

    errors = {p: [error(p, 5.0), error(p, 20.0)] for p in ("curriculum", "anti")}
    np.testing.assert_allclose(errors["curriculum"], [0.147295, 0.078193], atol=2e-6)
    np.testing.assert_allclose(errors["anti"], [0.157024, 0.071216], atol=2e-6)


def test_at_fixed_decay_with_the_rate_free_for_every_arm_the_curriculum_wins_and_the_optimum_is_one():
    free = {"pace": "optimal", "share": 0.4, "horizon": 20.0, "intervals": 20}
    result = {
        p: sv.CurriculumOnline(protocol=p, **free).theory({"tolerance": 1e-4}) for p in ("curriculum", "anti", "mixed")
    }
    assert all(bool(t.converged) for t in result.values())
    assert result["curriculum"].final_error < 0.9 * result["mixed"].final_error
    assert result["curriculum"].final_error < 0.85 * result["anti"].final_error
    best = sv.CurriculumOnline(protocol="optimal", **free).theory({"tolerance": 1e-4})
    assert best.converged
    assert best.final_error <= result["curriculum"].final_error + 1e-6
    assert best.gap <= 1e-4
    assert best.fraction[0] > 0.99
    assert best.fraction[-1] < 0.01
    assert np.all(best.switching[:2] < 0)
    assert np.all(best.switching[-10:] > 0)


def test_the_optimal_difficulty_is_what_a_grid_search_over_whole_horizons_finds():
    model = sv.CurriculumOnline(protocol="optimal-difficulty", intervals=3, relevant=0.2, easy=0.05, penalty=0.0)
    result = model.theory()
    assert result.converged
    levels = np.linspace(0.05, 1.0, 15)
    grid = jnp.asarray(np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3))

    def final(difficulties):
        held = {"fraction": jnp.zeros(3), "pace": jnp.ones(3), "difficulty": difficulties}
        return model._error(arrive(model._drift, model._start, held, 5.0))

    final_of = jax.jit(jax.vmap(final))
    errors = np.asarray(final_of(grid))
    lowest = grid[errors.argmin()]
    assert errors.min() - 1e-3 < float(result.final_error) < errors.min() + 1e-6
    assert np.abs(result.difficulty - lowest).max() < 1.5 * (levels[1] - levels[0])
    # the adjoint's switching function of a difficulty inside its range: differences of the whole horizon
    held = {"fraction": jnp.zeros(3), "pace": jnp.ones(3), "difficulty": jnp.array([0.3, 0.6, 0.8])}
    kinds = {"difficulty": Difficulty(0.05, 1.0)}
    slopes = jax.jit(lambda u: evaluate(model._drift, model._error, model._start, u, kinds, 5.0))(held).slopes
    shifted = held["difficulty"][None, :] + 1e-5 * jnp.concatenate([jnp.eye(3), -jnp.eye(3)])
    ends = final_of(jnp.tile(shifted, (len(grid) // 6 + 1, 1))[: len(grid)])[:6]  # one shape, one program
    np.testing.assert_allclose(slopes["difficulty"], (ends[:3] - ends[3:]) / 2e-5 * (3 / 5.0), rtol=1e-6)


def test_any_horizon_rate_and_schedule_is_followed_to_the_stated_accuracy_or_flagged():
    """From moments to the longest horizon, with paces up to a hundred, on four intervals: against scipy."""
    rng, points = np.random.default_rng(0), 16
    pace = np.array([1.0, 0.01, 8.0, 100.0])
    drawn = {
        "horizon": np.append(10 ** rng.uniform(-4, 2.3, points - 1), 200.0), "rate": 10 ** rng.uniform(-2, 1.3, points),
        "easy": rng.uniform(0, 2, points), "hard": 10 ** rng.uniform(-2, 2, points),
        "relevant": rng.uniform(0.05, 0.95, points), "penalty": 10 ** rng.uniform(-3, 1, points)}  # fmt: skip
    model = sv.CurriculumOnline(protocol="given", intervals=4, pace="given", given_fraction=[0.9, 0.0, 0.5, 0.2],
                                given_pace=pace, initial=[0.01, 0.5, 0.5])  # fmt: skip
    result = model.replace(**drawn).theory()
    velocity = jax.jit(lambda point, y, u: jnp.stack(model.with_values(point)._drift(Overlaps(*y), u)))
    kept = np.asarray(result.converged_along)
    for i in range(points):
        point = {n: jnp.asarray(v[i]) for n, v in drawn.items()}
        y = np.array([0.01, 0.5, 0.5])
        for k in range(4):
            if not kept[i, k + 1]:
                assert np.isnan(np.asarray(result.norm)[i, k + 1 :]).all()
                assert not result.converged[i]
                assert np.isnan([result.final_error[i], result.gap[i]]).all()
                break
            u = {"fraction": model.given_fraction[k], "pace": model.given_pace[k], "difficulty": point["hard"]}
            run = solve_ivp(lambda t, y, p=point, u=u: np.asarray(velocity(p, jnp.asarray(y), u)),
                            (0, drawn["horizon"][i] / 4), y, "LSODA", rtol=1e-10, atol=1e-12)  # fmt: skip
            y = run.y[:, -1]
            found = np.array([result.overlap[i, k + 1], *result.norm[i, k + 1]])
            assert np.all(np.abs(found - y) < model.accuracy * (1 + np.abs(y))), (i, k)
    assert 8 <= np.asarray(result.converged).sum() < points  # the longest is stiff


@pytest.mark.parametrize("intervals", [5, 50])
def test_a_flow_at_rest_whose_costates_move_is_followed(intervals):
    """At a fast rate with strong decay students soon rest, and steps that they need would be too long for the adjoint."""
    model = sv.CurriculumOnline(
        relevant=0.2, easy=0.05, initial=[0.02, 0.2, 0.8], rate=10.0, penalty=0.4, horizon=24.0, share=0.25,
        intervals=intervals)  # fmt: skip
    result = model.theory(only=["final_error", "switching"])
    assert result.converged
    np.testing.assert_allclose(result.final_error, 0.3759207460, atol=1e-9)  # of a hundred times as long, too
    assert np.isfinite(result.switching).all()


def test_a_search_that_is_cut_short_is_not_reported_as_an_optimum():
    short = sv.CurriculumOnline(protocol="optimal", intervals=10).theory({"iterations": 2, "tolerance": 1e-9})
    assert not short.converged
    assert np.isnan(short.final_error)


def test_gradient_descent_follows_the_flow():
    model = sv.CurriculumOnline(relevant=0.25, easy=0.1, protocol="given", intervals=4, horizon=4.0, pace="given",
                                given_fraction=[1.0, 0.5, 0.0, 0.2], given_pace=[2.0, 1.0, 1.0, 0.5])  # fmt: skip
    theory, seeds = model.theory(), 32
    for size in (100, 400):
        batch = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
        for observable in ("test_error", "test_loss", "overlap", "norm"):
            runs, exact = np.asarray(batch[observable]), np.asarray(theory[observable])
            error = runs.std(axis=0, ddof=1) / np.sqrt(seeds)
            assert np.all(np.abs(runs.mean(axis=0) - exact) < 4.5 * error + 1.5 / size + 1e-6), (observable, size)
            # the start has exactly the given overlaps
            np.testing.assert_allclose(runs[:, 0], np.broadcast_to(exact[0], runs[:, 0].shape), atol=2e-6)


def test_invalid_values_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"relevant = 1 is outside its range \(0, 1\)"):
        sv.CurriculumOnline(relevant=1.0)
    with pytest.raises(sv.InvalidValue, match="initial has 2 entries but needs three"):
        sv.CurriculumOnline(initial=[0.1, 0.5])
    with pytest.raises(
        sv.InvalidValue, match=r"is impossible at relevant = 0.5: norms must not be negative, and R² ≤ ρ Q_r"
    ):
        sv.CurriculumOnline(initial=[0.9, 0.5, 0.5])
    with pytest.raises(sv.InvalidValue, match="given_fraction has 3 entries along 'intervals' instead of 50"):
        sv.CurriculumOnline(protocol="given", given_fraction=[1.0, 0.0, 0.0])
    with pytest.raises(sv.InvalidValue, match="size = 2 is smaller than 3"):
        sv.CurriculumOnline().simulate(seed=0, size=2)


def test_the_time_to_an_error_is_interpolated_on_the_best_error_so_far():
    times = np.geomspace(1.0, 16.0, 5)
    curve = np.array([0.4, 0.3, 0.32, 0.2, 0.1])  # a rise counts as rest at the best error so far
    table = xr.Dataset({"error": (("inputs", "horizon", "arm"), curve[None, :, None])},
                       {"inputs": ["few"], "horizon": times, "arm": ["hard"]})  # fmt: skip
    assert time_to(table, "few", "hard", 0.35) == pytest.approx(np.sqrt(2.0))
    assert time_to(table, "few", "hard", 0.25) == pytest.approx(4.0 * np.sqrt(2.0))
    assert np.isnan(time_to(table, "few", "hard", 0.05))
    assert np.isnan(time_to(table, "few", "hard", 0.45))
