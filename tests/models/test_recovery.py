"""Many lanes of one large system: forces, independence of the lanes, what counts as success."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from solvable.models.glassy._recovery import Lanes, draw_lanes, recover
from solvable.models.glassy.gradient_flow.success import predicted_limit, seen_limit, succeeded


@pytest.mark.parametrize(("kind", "size"), [("dense", 20), ("diluted", 100)])
def test_the_force_of_every_lane_is_minus_the_gradient_of_its_energy(kind, size):
    lanes = Lanes(jnp.array([0.3, 0.6, 0.3]), jnp.array([1.0, 1.0, -1.0]), jnp.zeros(3))
    system = draw_lanes(jax.random.key(0), size, kind, jax.tree.map(lambda v: v.astype(jnp.float32), lanes))
    slope = jax.grad(lambda x: jnp.sum(system.measure(x, 0.7)[0]) * size)(system.start)
    np.testing.assert_allclose(system.force(system.start, 0.7), -slope, atol=2e-5)


def test_a_lane_is_the_same_alone_and_beside_others():
    """The smallest noise sets the steps of all lanes, so it is in both."""
    both = recover([3], 16, "dense", (0.3, 0.5), (0.5, 1.0))["overlap"]
    alone = recover([3, 4], 16, "dense", (0.3,), (0.5, 1.0))["overlap"]
    np.testing.assert_allclose(both[0, :, 0], alone[0, :, 0], atol=1e-5)
    assert both.shape == (1, 1, 2, 2, 2)


def test_condensed_flows_neither_succeed_nor_fail():
    dims = ("matrix_noise", "size", "seed", "sign", "time")
    overlap = np.array([0.9, 0.9, 0.1, 0.9, 0.1, 0.1]).reshape(3, 1, 1, 2, 1)  # shares 1, ½, 0
    share = np.full((3, 1, 2, 2, 1), 0.01)
    share[:, :, 1] = 0.5  # the second system condensed
    table = xr.Dataset({"overlap": (dims, np.repeat(overlap, 2, 2)), "share": (dims, share)})
    table = table.assign_coords(matrix_noise=[0.3, 0.4, 0.5], size=[1000]).assign(
        goal=("matrix_noise", [0.9, 0.9, 0.9])
    )
    found = succeeded(table).isel(size=0)
    assert np.isnan(found.isel(seed=1)).all()
    np.testing.assert_array_equal(found.isel(seed=0), [[1, 1], [0, 1], [0, 0]])


def test_limits_of_success_are_where_curves_cross_and_nan_where_they_do_not():
    dims = ("matrix_noise", "size", "seed", "sign", "time")
    number = np.array([4, 3, 1, 0])  # of four systems that succeed at each Δ₂, with both signs of the noise
    found = (np.arange(4) < number[:, None]).astype(float)[:, None, :, None, None]
    table = xr.Dataset({"overlap": (dims, np.repeat(found, 2, 3)), "share": (dims, np.zeros((4, 1, 4, 2, 1)))})
    table = table.assign_coords(matrix_noise=[0.3, 0.4, 0.5, 0.6], size=[1000]).assign(goal=("matrix_noise", [1.0] * 4))
    limit, error = seen_limit(table, 0)
    assert limit == pytest.approx(0.45)  # from 3/4 to 1/4
    # without one system the shares at 0.4 and 0.5 are 1 and 1/3, 2/3 and 1/3 (twice), 2/3 and 0
    without = [0.475, 0.45, 0.45, 0.425]
    assert error == pytest.approx(np.sqrt(3) * np.std(without))
    line = xr.Dataset({"overlap": (("matrix_noise", "time"), [[0.2, 1.0], [0.1, 0.4]])})
    line = line.assign_coords(matrix_noise=[0.3, 0.4], time=[0.0, 10.0]).assign(goal=("matrix_noise", [1.0, 1.0]))
    assert predicted_limit(line, 10.0) == pytest.approx(0.3 + 0.1 * 0.1 / 0.6)
    assert np.isnan(predicted_limit(line, 5.0))  # nowhere yet
