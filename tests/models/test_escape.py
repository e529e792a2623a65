"""Growth of a vanishing overlap: against the two-time equations themselves, and limits of its rate at long times."""

import numpy as np
import pytest

from solvable.methods.flows.two_time import Mixture, relax
from solvable.models.glassy._escape import decay_exponent, escape_rate, growth
from solvable.models.glassy._landscape import Covariance


@pytest.mark.slow
def test_a_vanishing_overlap_grows_as_a_small_one_does_in_the_two_time_equations():
    found = growth(Covariance(0.4, 1.0, 3), 0.0, 20.0, log_step=0.15, logit_step=0.35)
    path = relax(Mixture({2: 1 / 0.8, 3: 1 / 3}), 20 / 800, 800, overlap=1e-9, tolerance=0.1)
    exact = np.interp(found.times[-8:], np.asarray(path.times), np.log(np.asarray(path.overlap) / 1e-9))
    np.testing.assert_allclose(found.logarithm[-8:], exact, atol=3e-3)


def test_a_cold_sampler_escapes_at_the_rate_of_the_flow():
    for noise in (0.3, 0.4):
        flow = escape_rate(Covariance(noise, 1.0, 3), 0.0)
        assert flow == pytest.approx((1 / noise - np.sqrt(1 / noise + 2)) ** 2 * noise, rel=1e-12)
        assert escape_rate(Covariance(noise, 1.0, 3), 1e-3, half=64) == pytest.approx(flow, rel=2e-3)


def test_the_rate_vanishes_at_the_threshold_of_langevin_dynamics_with_the_exponent_of_the_plateau():
    critical = 0.5**0.5
    distance = np.array([1e-3, 3e-3])
    rates = np.array([escape_rate(Covariance(critical - d, 1.0, 3), 1.0, half=64) for d in distance])
    power = np.diff(np.log(rates))[0] / np.diff(np.log(distance))[0]
    assert power == pytest.approx(1 / decay_exponent(Covariance(critical, 1.0, 3), 1.0), abs=0.08)
    assert escape_rate(Covariance(critical + 1e-3, 1.0, 3), 1.0) == 0


def test_the_rate_does_not_depend_on_the_grid():
    rates = [escape_rate(Covariance(0.5, 1.0, 3), 1.0, half=half) for half in (64, 128)]
    assert rates[0] == pytest.approx(rates[1], rel=2e-4)
