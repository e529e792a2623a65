"""Phase retrieval: trapped states by second methods, their thresholds, and descents."""

import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import simulate_batch


def energy_of_replicas(chi, s, alpha, kappa):
    """ln(1 + s/χ)/2 + α E_y ln ∫Dh e^{−sf}, its minimum over z by bisection of the slope, on plain grids of y and h."""
    u, w = np.polynomial.legendre.leggauss(120)
    y = 4 + 4 * u[:, None]
    h = np.linspace(0, 9, 1201)[None, :]
    rho = 1 / (1 + kappa * y**2)
    low = np.sqrt(np.maximum(y**2 - 1 / (chi * rho), 0)) + 0 * h
    high = h + y + 1
    for _ in range(60):
        z = (low + high) / 2
        above = z + chi * rho * (z**2 - y**2) * z > h
        low, high = np.where(above, low, z), np.where(above, z, high)
    f = (z - h) ** 2 / (2 * chi) + rho * (z**2 - y**2) ** 2 / 4
    inner = np.trapezoid(np.exp(-(h**2) / 2 - s * f), h, axis=1) * np.sqrt(2 / np.pi)
    outer = 4 * w * np.sqrt(2 / np.pi) * np.exp(-(y[:, 0] ** 2) / 2)
    return 0.5 * np.log(1 + s / chi) + alpha * np.sum(outer * np.log(inner))


@pytest.mark.parametrize(("alpha", "kappa"), [(5.0, 0.0), (8.0, 1.0)])
def test_trapped_states_are_stationary_in_the_response(alpha, kappa):
    found = sv.PhaseRetrieval(samples=alpha, normalisation=kappa).theory()
    chi, s = float(found.response), float(found.breaking)
    h = 0.01 * chi
    slope = (energy_of_replicas(chi + h, s, alpha, kappa) - energy_of_replicas(chi - h, s, alpha, kappa)) / (2 * h)
    assert abs(slope) < 2e-3 * s / (2 * chi * (chi + s))


def test_the_signal_leaves_the_bulk_of_trapped_states_at_the_published_ratio():
    """13.8 in the paper; a normalised loss needs half as many measurements."""
    assert sv.locate(sv.PhaseRetrieval(), along="samples", between=(12, 16), points=9) == pytest.approx(
        13.80253, abs=1e-4
    )
    normal = sv.PhaseRetrieval(normalisation=1.0)
    assert sv.locate(normal, along="samples", between=(5, 10), points=9) == pytest.approx(7.09396, abs=1e-4)


def test_the_edge_of_trapped_states_measures_the_error_of_the_approximation():
    plain = sv.PhaseRetrieval(samples=[5.0, 14.0]).theory()
    np.testing.assert_allclose(plain.edge, [0.150, 0.054], atol=1e-3)
    normal = sv.PhaseRetrieval(samples=[3.0, 5.0, 10.0], normalisation=1.0).theory()
    np.testing.assert_allclose(normal.edge, 0.0, atol=2e-3)
    np.testing.assert_allclose(normal.edge[1:], 0.0, atol=1e-8)


def test_many_measurements_make_the_hessian_point_to_the_signal():
    found = sv.PhaseRetrieval(samples=[20.0, 100.0, 1000.0]).theory()
    assert np.all(np.diff(found.alignment) > 0)
    assert float(found.alignment[-1]) > 0.99
    assert np.all(np.asarray(found.lowest) < np.asarray(found.edge))


def runs_of(model, size, seeds):
    return simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)


def test_a_descent_that_starts_near_the_signal_finds_it_and_stays():
    runs = runs_of(sv.PhaseRetrieval(samples=5.0, start="informed", times=[0.0, 2.0, 60.0]), 48, 4)
    assert np.all(np.asarray(runs["reached"]) == 1)
    assert np.all(np.asarray(runs["lowest_path"])[:, -1] > 0)
    assert np.all(np.isnan(runs["train_loss"]))  # no trapped state


def test_descents_go_down_and_few_measurements_trap_some_of_them():
    runs = runs_of(sv.PhaseRetrieval(samples=3.0, times=[0.0, 2.0, 60.0]), 48, 8)
    assert np.all(np.diff(np.asarray(runs["loss_path"]), axis=1) < 1e-6)
    reached, loss = np.asarray(runs["reached"]), np.asarray(runs["train_loss"])
    assert reached.mean() < 0.8
    assert np.all(np.isfinite(loss) == (reached == 0))
    # a flow that has almost stopped has no strongly negative direction
    assert np.nanmin(np.asarray(runs["lowest"])) > -0.3
    assert 0.05 < np.nanmean(loss) < 0.25


def test_settings_without_an_edge_are_refused_in_one_sentence():
    with pytest.raises(sv.InvalidValue, match=r"normalisation = 0 with state = 'initial' is outside \[0.05, 10\]"):
        sv.PhaseRetrieval(state="initial")
    with pytest.raises(sv.InvalidValue, match="start = 'informed' is not allowed with state = 'initial'"):
        sv.PhaseRetrieval(state="initial", normalisation=1.0, start="informed")
    with pytest.raises(sv.InvalidValue, match=r"samples = 2 is outside its range \[2.5, 1000\]"):
        sv.PhaseRetrieval(samples=2.0)
