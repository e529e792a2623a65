"""Tests of `optimise` and `locate`."""

import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.methods.fixed_points.saddle import branches
from solvable.search import _root


class Magnet(sv.Model):
    """A Curie–Weiss magnet in a field, with first-order transition at zero field and two spinodals."""

    id = "magnet"
    observables_declared = (sv.observable("magnetisation", "m", status="exact"), sv.observable("free_energy", "f"))
    beta = 2.0

    field: object = sv.control(0.1, low=-1.0, high=1.0, meaning="external field")

    def point(self, numerics):
        found = self.point_branches(numerics)
        return {n: v[0] for n, v in found.items() if n in ("magnetisation", "free_energy")}

    def point_branches(self, numerics):
        def energy(m, h):
            p = jnp.clip((1 + m[0]) / 2, 1e-300, 1 - 1e-16)
            return -0.5 * m[0] ** 2 - h * m[0] + (p * jnp.log(p) + (1 - p) * jnp.log1p(-p)) / self.beta

        found = branches(lambda m, h: jnp.tanh(self.beta * (m + h)), jnp.linspace(-1.0, 1.0, 21)[:, None], self.field,
                         free_energy=energy, most=3)  # fmt: skip
        ends = jnp.sort(found.x[:, 0])
        return {"magnetisation": found.x[:, 0], "free_energy": found.free_energy, "ends": ends,
                "converged": found.found[0]}  # fmt: skip


def test_the_number_of_branches_changes_at_the_spinodal():
    m = np.sqrt(1 - 1 / 2.0)
    spinodal = m - np.arctanh(m) / 2.0
    found = sv.locate(Magnet(), along="field", what="spinodal", between=(0.0, 0.5))
    assert abs(found - spinodal) < 1e-6


def test_branches_are_nan_padded_and_sorted():
    out = Magnet(field=[0.05, 0.8]).branches()
    assert np.isfinite(out["magnetisation"]).sum(axis=-1).tolist() == [3, 1]
    assert out["free_energy"][0, 0] < out["free_energy"][0, 1]


def test_the_gradient_finds_the_known_best_penalty():
    for noise in (0.1, 1.0):
        best = sv.optimise(sv.Perceptron(loss="square", teacher="linear", noise=noise), "penalty", minimise="test_loss")
        assert abs(best.controls["penalty"] - noise) < 1e-6
        assert not best.at_bound


def test_several_controls_and_an_optimum_at_the_edge():
    model = sv.Perceptron(loss="square", teacher="linear", noise=0.5)
    between = {"penalty": (0.01, 10.0), "samples": (0.5, 4.0)}
    best = sv.optimise(model, ["penalty", "samples"], minimise="test_loss", between=between)
    assert best.at_bound
    assert abs(best.controls["samples"] - 4.0) < 1e-9
    assert abs(best.controls["penalty"] - 0.5) < 1e-5


def test_the_transition_of_masked_regression_is_its_threshold():
    model = sv.MaskedRegression(covariance="spiked", samples=2.0, penalty=0.3)
    assert abs(sv.locate(model, along="spike", what="transition") - np.sqrt(0.5)) < 1e-8


def test_peaks_and_levels_are_located_and_absence_is_nan():
    ridge = sv.Perceptron(loss="square", teacher="linear", noise=0.2, penalty=1e-4)
    assert abs(sv.locate(ridge, along="samples", what="peak of test_loss", between=(0.3, 3)) - 1) < 0.01
    level = sv.locate(ridge, along="samples", what="test_loss = 0.2")
    assert abs(ridge.replace(samples=level).theory().test_loss - 0.2) < 1e-8
    assert np.isnan(sv.locate(ridge, along="samples", what="test_loss = 1e9"))
    assert np.isnan(sv.locate(ridge, along="noise", what="peak of test_loss"))


@pytest.mark.parametrize("what", ["nonsense", "peak of nonsense", "nonsense = 1", "test_loss = one"])
def test_an_invalid_search_is_refused(what):
    with pytest.raises(sv.SolvableError):
        sv.locate(sv.Perceptron(loss="square"), along="samples", what=what)


def test_a_root_is_found_around_places_without_a_value_and_not_inside_of_them():
    hole = lambda u, low, high: float("nan") if low < u < high else u - 0.3  # noqa: E731
    assert abs(_root(lambda u: hole(u, 0.4, 0.7), 0.0, 1.0, 1e-10) - 0.3) < 1e-9
    assert abs(_root(lambda u: -hole(u, 0.29995, 0.30003), 0.2, 0.5, 1e-10) - 0.3) < 1e-4
    assert np.isnan(_root(lambda u: hole(u, 0.2, 0.4), 0.0, 1.0, 1e-10))
