"""Curricula for XOR: tickets, symmetry, a slow twin, plateau, blow-up, gradient descent itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.online.xor_curriculum import CENTRES

FEW = {"nodes": 128}


def test_four_units_along_the_centres_know_the_labels_and_two_cannot():
    ticket = {"initial_overlap": CENTRES, "initial_readout": [1.0, 1.0, -1.0, -1.0], "hard": 0.1, "horizon": 1e-6}
    four = sv.XorCurriculum(initial_norm=np.eye(4)[:, :4] @ (CENTRES @ CENTRES.T), **ticket).theory(FEW)
    assert four.final_error < 1e-3
    two = {n: np.asarray(v)[:2] if np.ndim(v) else v for n, v in ticket.items()}
    blind = sv.XorCurriculum(students=2, initial_norm=CENTRES[:2] @ CENTRES[:2].T, **two).theory(FEW)
    # the clusters of the other label are never seen: their outputs are next to nothing, half right and half wrong
    assert 0.2 < blind.final_error < 0.5


def test_units_without_any_overlap_never_find_one():
    still = sv.XorCurriculum(initial_overlap=np.zeros((4, 2)), horizon=20.0).theory(FEW)
    assert np.abs(still.overlap).max() < 1e-9  # exactly, because all clusters have the same points
    assert still.final_error > 0.45


def test_mirrored_networks_stay_mirrored():
    model = sv.XorCurriculum(horizon=6.0)
    mirrored = model.replace(initial_overlap=-model.initial_overlap)
    np.testing.assert_allclose(
        mirrored.theory(FEW).test_loss, model.theory(FEW).test_loss, atol=5e-3
    )  # the rest of the weights is not mirrored: Sobol error only


def test_a_slow_twin_by_plain_sampling_gives_the_same_first_steps():
    """The drift of one step of gradient descent in forty dimensions, averaged over drawn samples and samples only."""
    model = sv.XorCurriculum(loss="square", protocol="hard", horizon=0.02, softness=0.2, points=1, rate=0.7,
                             biases="trained")  # fmt: skip
    rng, d, k = np.random.default_rng(0), 40, 4
    rest = np.linalg.qr(rng.normal(size=(d - 2, k)))[0].T
    root = np.linalg.cholesky(np.asarray(model.initial_norm - model.initial_overlap @ model.initial_overlap.T))
    w, v = np.concatenate([model.initial_overlap, root @ rest], axis=1), np.asarray(model.initial_readout)
    n = 400_000
    which = np.arange(n) % 4
    x = 0.4 * rng.normal(size=(n, d))
    x[:, :2] += CENTRES[which]
    fields = x @ w.T
    on = norm.cdf(fields / 0.2)
    hidden = fields * on + 0.2 * norm.pdf(fields / 0.2)
    pull = hidden @ v - np.where(which < 2, 1.0, -1.0)
    steps = pull[:, None] * on * v[None, :]
    expected = {"overlap": -0.7 * steps.T @ x[:, :2] / n, "readout": -0.7 * pull @ hidden / n}
    expected["bias"] = -0.7 * steps.mean(axis=0)
    square = -2 * 0.7 * np.mean(steps * fields, axis=0) + 0.7**2 * np.mean(steps**2, axis=0) * 0.16
    told = model.theory({"nodes": 4096})
    for name, slope in {**expected, "norm": square}.items():
        moved = np.asarray(told[name][-1] - told[name][0]) / 0.02
        np.testing.assert_allclose(moved, slope, atol=6e-3)


def test_doubling_points_and_steps_moves_the_path_by_less_than_the_stated_accuracy():
    for fields in ({"horizon": 20.0, "rate": 1.5}, {"horizon": 20.0, "rate": 1.5, "loss": "square"}):
        model = sv.XorCurriculum(biases="trained", **fields)
        told, finer = model.theory(), model.theory({"nodes": 512, "steps": 2})
        for name in ("test_error", "test_loss", "overlap", "norm", "readout", "bias"):
            np.testing.assert_allclose(told[name], finer[name], rtol=3e-2, atol=3e-2, err_msg=name)


def test_a_flow_that_blows_up_is_no_number_and_no_exception():
    wild = sv.XorCurriculum(loss="square", rate=20.0, horizon=500.0).theory(FEW)
    assert not wild.converged
    assert np.isnan(wild.final_error)


def test_easy_first_beats_hard_only_in_the_midst_of_learning():
    final = {
        p: float(sv.XorCurriculum(protocol=p, horizon=20.0).theory(FEW).final_error) for p in ("curriculum", "hard")
    }
    assert final["curriculum"] < final["hard"] - 0.02


@pytest.mark.parametrize("protocol", ["curriculum", "mixed"])
@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_gradient_descent_follows_the_flow(loss, protocol):
    model = sv.XorCurriculum(loss=loss, protocol=protocol, rate=0.6, points=2)
    theory, seeds = model.theory({"nodes": 4096}), 16
    for size in (200, 800):
        batch = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
        for observable in ("test_error", "test_loss", "overlap", "norm", "readout"):
            runs, exact = np.asarray(batch[observable]), np.asarray(theory[observable])
            error = runs.std(axis=0, ddof=1) / np.sqrt(seeds)
            # 4096 points per cluster leave 0.005; the correction of order 1/d is a few units
            assert np.all(np.abs(runs.mean(axis=0) - exact) < 4.5 * error + 5 / size + 0.005), (observable, size)


def test_random_starts_are_drawn_with_the_scaling_asked_for():
    import jax

    model = sv.XorCurriculum(start="random", students=64, scaling="inverse-root")
    drawn = model.prepare(jax.random.key(0), 500)
    assert float(jnp.mean(drawn.initial_readout**2)) == pytest.approx(1 / 64, rel=0.6)
    np.testing.assert_allclose(np.diag(drawn.initial_norm), 1.0, atol=0.3)
    with pytest.raises(sv.SolvableError, match="needs something drawn"):
        model.theory()


def test_what_makes_no_sense_is_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"hard = 0 is outside its range \(0, 10\]"):
        sv.XorCurriculum(hard=0.0)
    with pytest.raises(sv.InvalidValue, match="initial_overlap has 3 columns where two are meant"):
        sv.XorCurriculum(initial_overlap=np.zeros((4, 3)))
    with pytest.raises(sv.InvalidValue, match="initial_norm is not symmetric"):
        sv.XorCurriculum(initial_norm=np.eye(4) + np.eye(4, k=1))
    with pytest.raises(sv.InvalidValue, match="Q - MMᵀ has the negative eigenvalue"):
        sv.XorCurriculum(initial_overlap=np.ones((4, 2)))
    with pytest.raises(sv.InvalidValue, match="size = 5 is smaller than the 6 directions"):
        sv.XorCurriculum().simulate(seed=0, size=5)
