"""The contract: declarations, checks, broadcasting, transformations, identity."""

import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import bucket, simulate_batch

TRACED = []


class Toy(sv.Model):
    """y = gain·x + shift·Σ weights, with a data field of the same size as the sweep."""

    id = "toy"
    observables_declared = (
        sv.observable("height", "height", status="exact"),
        sv.observable("curve", "curve over time", dims=("time",), status="exact"),
        sv.observable("extra", "only with colour red", when={"colour": "red"}, status="exact"),
    )
    numerics = sv.Numerics(nodes=4)
    simulation_dtype = "float64"

    gain: jax.Array = sv.control(1.0, low=0.0, high=10.0, meaning="the gain", symbol="g")
    shift: jax.Array = sv.control(0.0, low=-1.0, low_open=True, high=1.0, meaning="the shift")
    ratio: jax.Array = sv.control(2.0, low=0.0, low_open=True, high=9.0, counts=True, meaning="rows per size")
    colour: str = sv.choice("red", options=("red", "blue"), meaning="the colour")
    units: int = sv.choice(3, low=1, high=8, meaning="number of units")
    weights: jax.Array = sv.input(lambda m: jnp.ones(m.units), dims=("units",), meaning="the weights", low=0.0)
    table: jax.Array | None = sv.data(dims=("row", "column"), meaning="a table")

    def point(self, numerics):
        TRACED.append(self.colour)
        height = self.gain * 2 + self.shift * jnp.sum(self.weights)
        values = {"height": height, "curve": self.gain * jnp.arange(3.0), "converged": self.gain < 9.5}
        return values | ({"extra": height} if self.colour == "red" else {})

    def experiment(self, key, size, counts, dtype):
        rows = jax.random.normal(key, (counts["ratio"].padded, size), dtype)
        return {"height": counts["ratio"].mask(dtype) @ rows[:, 0] + self.gain.astype(dtype)}


def test_a_python_float_an_integer_and_an_array_mean_the_same_and_share_one_trace():
    jax.clear_caches()  # drop what other tests have traced
    TRACED.clear()
    values = [Toy(gain=g).theory().height for g in (2, 2.0, np.float32(2), np.int64(2), jnp.asarray(2.0))]
    assert all(v == values[0] for v in values)
    assert len(TRACED) == 1
    Toy(gain=3.5, shift=0.5).theory()
    assert len(TRACED) == 1
    Toy(gain=np.linspace(0, 1, 5)).theory()
    assert len(TRACED) == 2
    Toy(gain=3.5, colour="blue").theory()
    assert len(TRACED) == 3


def test_mixed_scalars_and_arrays_broadcast_and_observables_keep_their_dimensions():
    out = Toy(gain=np.linspace(0, 1, 5)[:, None], shift=[0.0, 0.5]).theory()
    assert out.height.shape == (5, 2)
    assert out.curve.shape == (5, 2, 3)
    np.testing.assert_allclose(out.height[2], [1.0, 2.5])


def test_data_and_inputs_whose_size_coincides_with_the_sweep_are_not_mapped():
    model = Toy(gain=np.arange(3.0), weights=np.arange(3.0), table=np.eye(3), shift=1.0)
    np.testing.assert_allclose(model.theory().height, 2 * np.arange(3.0) + 3.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"gain": -1}, "gain = -1 is outside its range [0, 10]: the gain."),
        ({"gain": float("nan")}, "gain = nan is outside its range [0, 10]: the gain."),
        ({"gain": float("inf")}, "gain = inf is outside its range [0, 10]: the gain."),
        ({"gain": [1.0, 2.0, 11.0]}, "gain[2] = 11 is outside its range [0, 10]: the gain."),
        ({"gain": [[1.0, float("nan")]]}, "gain[0, 1] = nan is outside its range [0, 10]: the gain."),
        ({"shift": -1.0}, "shift = -1 is outside its range (-1, 1]: the shift."),
        ({"gain": "two"}, "gain = 'two' is not a number or an array of numbers in [0, 10]: the gain."),
        ({"gain": None}, "gain = None is not a number or an array of numbers in [0, 10]: the gain."),
        ({"gain": True}, "gain = True is not a number or an array of numbers in [0, 10]: the gain."),
        ({"gain": [1, [2, 3]]}, "gain = [1, [2, 3]] is not a number or an array of numbers in [0, 10]: the gain."),
        ({"colour": "green"}, "colour = 'green' is not one of 'red', 'blue': the colour."),
        ({"units": 0}, "units = 0 is not a whole number in [1, 8]: number of units."),
        ({"units": 2.0}, "units = 2.0 is not a whole number in [1, 8]: number of units."),
        ({"weights": [1.0, 2.0]}, "weights has 2 entries along 'units' instead of 3: the weights."),
        ({"weights": [[1.0]]}, "weights has 2 dimensions instead of 1 (units): the weights."),
        ({"weights": [1, -1, 1]}, "weights has an entry that is not finite or not in [0, ∞): the weights."),
        (
            {"gain": [1, 2], "shift": [0, 0, 0]},
            "the controls' shapes do not broadcast together: gain (2,), shift (3,).",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence_that_names_field_value_and_range(values, sentence):
    with pytest.raises(sv.InvalidValue) as caught:
        Toy(**values)
    assert str(caught.value) == sentence


def test_a_misspelt_field_suggests_the_nearest_name():
    with pytest.raises(sv.UnknownName, match="toy has no field 'gian'; did you mean 'gain'?"):
        Toy.create(gian=1)
    with pytest.raises(sv.UnknownName, match="numerics has no setting 'node'"):
        Toy().theory({"node": 3})


def test_jit_vmap_and_grad_over_a_model():
    model = Toy(gain=2.0, shift=0.5)
    assert jax.jit(lambda m: m.theory().height)(model) == model.theory().height
    grads = eqx.filter_grad(lambda m: m.theory().height)(model)
    assert grads.gain == 2.0
    assert grads.shift == 3.0
    np.testing.assert_allclose(grads.weights, [0.5] * 3)
    many = jax.vmap(lambda g: Toy(gain=g).theory().height)(jnp.arange(3.0))
    np.testing.assert_allclose(many, [0, 2, 4])
    slope = jax.grad(lambda g: model.replace(gain=g).theory().height)(1.5)
    assert slope == 2.0


def test_an_unconverged_lane_alone_is_nan_in_value_and_gradient():
    model = Toy(gain=[1.0, 9.9, 2.0])
    out = model.theory()
    assert list(out.status) == ["converged", "not converged", "converged"]
    np.testing.assert_array_equal(np.isnan(out.height), [False, True, False])
    np.testing.assert_array_equal(np.isnan(out.curve).all(-1), [False, True, False])
    slope = jax.grad(lambda g: jnp.nansum(Toy(gain=g).theory().height))(jnp.asarray([1.0, 9.9, 2.0]))
    np.testing.assert_array_equal(np.isnan(slope), [False, True, False])


def test_replace_updates_defaults_but_keeps_given_values():
    assert Toy().replace(units=5).weights.shape == (5,)
    with pytest.raises(sv.InvalidValue):
        Toy(weights=[1.0, 1.0, 2.0]).replace(units=5)
    np.testing.assert_allclose(Toy(weights=[1.0, 1.0, 2.0]).replace(gain=3).weights, [1, 1, 2])


def test_an_observable_exists_only_for_the_choices_it_was_declared_for():
    assert "extra" in Toy().theory()
    assert "extra" not in Toy(colour="blue").theory()
    with pytest.raises(sv.UnknownName, match="no observable 'heigt' here; did you mean 'height'?"):
        Toy().theory()["heigt"]


def test_the_random_key_follows_from_content_not_from_place():
    a, b = Toy(gain=1.0), Toy(gain=2.0)
    words = [jax.random.key_data(m.key(s, k)).tolist() for m in (a, b) for s in (10, 20) for k in (0, 1)]
    assert len({tuple(w) for w in words}) == 8
    assert jax.random.key_data(a.key(10, 0)).tolist() == jax.random.key_data(Toy(gain=1).key(10, 0)).tolist()
    assert a.specification() != a.replace(table=np.eye(2)).specification()


def test_padding_does_not_change_a_realisation():
    model = Toy()
    keys = model.key(6, 0)[None]
    one = simulate_batch(model, {}, keys, 6, padded={"ratio": 12})
    two = simulate_batch(model, {}, keys, 6, padded={"ratio": 64})
    np.testing.assert_allclose(one["height"], two["height"], rtol=1e-12)


def test_theory_is_evaluated_at_the_realised_ratio():
    assert Toy(ratio=2.04).realised(10).ratio == 2.0
    assert Toy(ratio=0.001).realised(10).ratio == 0.1


@pytest.mark.parametrize(("size", "seed"), [(1, 0), (2.5, 0), (True, 0), (10, -1), (10, 1.5), (10, True)])
def test_a_wrong_size_or_seed_is_refused(size, seed):
    with pytest.raises(sv.InvalidValue):
        Toy().simulate(seed, size)


def test_buckets_waste_at_most_a_third_and_grow():
    sizes = [bucket(n) for n in range(1, 5000)]
    assert all(n <= b for n, b in enumerate(sizes, 1))
    assert all(b <= 1.5 * n for n, b in enumerate(sizes, 1) if n > 2)
    assert len(set(sizes)) < 28


def test_references_give_bibtex():
    text = sv.Perceptron.references[1].bibtex()
    assert text.startswith("@article{loureiro2021learning,")
    assert "eprint = {2102.08127}" in text


def test_a_theory_in_several_batches_is_the_same_as_in_one():
    class Small(Toy):
        theory_lanes = 4

    gains = np.linspace(0, 9, 11)
    whole, parts = Toy(gain=gains).theory(), Small(gain=gains).theory()
    np.testing.assert_array_equal(whole.height, parts.height)
    np.testing.assert_array_equal(whole.curve, parts.curve)


def test_a_theory_without_64_bit_floats_is_refused_in_one_sentence():
    program = (
        "import solvable as sv\n"
        "model = sv.Perceptron(loss='square')\n"
        "assert model.simulate(0, 20).converged\n"
        "try: model.theory()\n"
        "except sv.SolvableError as error: print(error)\n"
    )
    environment = os.environ | {"SOLVABLE_ENABLE_X64": "0", "PYTHONPATH": str(Path(sv.__file__).parents[1])}
    environment.pop("JAX_ENABLE_X64", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("theories need 64-bit floats"), done.stderr


def test_importing_after_jax_still_switches_64_bit_floats_on():
    program = "import jax, jax.numpy as jnp, solvable; assert jnp.zeros(1).dtype == jnp.float64"
    environment = os.environ | {"PYTHONPATH": str(Path(sv.__file__).parents[1])}
    environment.pop("JAX_ENABLE_X64", None)
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0


class _Costly(sv.Model):
    """A number, and a spectrum that can fail on its own."""

    id = "costly"
    strength: jax.Array = sv.control(1.0, low=0.0, high=10.0, meaning="strength")
    observables_declared = (sv.observable("number", "a number"), sv.observable("spectrum", "masses", dims=("bin",)))

    def point(self, numerics):
        spectrum = self.strength * jnp.ones(3)
        return {"number": 2 * self.strength, "spectrum": spectrum, "spectrum_converged": self.strength < 2.0}


def test_a_theory_returns_only_the_requested_observables():
    model = _Costly(strength=[1.0, 3.0])
    whole, part = model.theory(), model.theory(only=["number"])
    assert list(part) == ["number"]
    np.testing.assert_array_equal(part.number, [2.0, 6.0])
    np.testing.assert_array_equal(part.converged, [True, True])
    np.testing.assert_array_equal(whole.number, [2.0, np.nan])  # NaN where it did not converge
    np.testing.assert_array_equal(whole.converged, [True, False])
    assert np.isnan(whole.spectrum[1]).all()
    np.testing.assert_array_equal(model.theory(only=["spectrum"]).converged, [True, False])
    assert set(whole) == {"number", "spectrum"}


def test_unpredicted_observables_cannot_be_requested():
    with pytest.raises(
        sv.UnknownName, match="costly does not predict 'numbr' with these choices; did you mean 'number'"
    ):
        _Costly().theory(only=["numbr"])


class Falling(sv.Model):
    """Heights at five times; a faster fall hits the ground earlier and has no height from then on."""

    id = "falling"
    observables_declared = (
        sv.observable("height", "height", dims=("time",), status="exact"),
        sv.observable("place", "a place per time", dims=("axis", "time"), status="exact"),
        sv.observable("last", "height at the end", status="exact"),
    )
    converges_along = "time"
    simulation_dtype = "float64"
    speed: jax.Array = sv.control(1.0, low=0.0, high=10.0, meaning="how fast it falls")

    def point(self, numerics):
        height = 4.0 - self.speed * jnp.arange(5.0)
        place = jnp.stack([height, 2 * height])
        return {"height": height, "place": place, "last": height[-1], "converged": height > 0}

    def experiment(self, key, size, counts, dtype):
        return self.point(None)


def test_a_flow_that_fails_keeps_its_values_until_then_and_reports_the_time():
    out = Falling(speed=[0.5, 2.0, 5.0]).theory()
    reached = np.array([[True] * 5, [True] * 2 + [False] * 3, [True] + [False] * 4])
    np.testing.assert_array_equal(out.converged, [True, False, False])
    np.testing.assert_array_equal(out.converged_along, reached)
    np.testing.assert_array_equal(np.isfinite(out.height), reached)
    np.testing.assert_array_equal(np.isfinite(out.place), np.stack([reached, reached], axis=1))
    np.testing.assert_array_equal(np.isfinite(out.last), [True, False, False])
    np.testing.assert_allclose(out.height[1, :2], [4.0, 2.0])
    assert list(out.status) == ["converged", *(f"converged at {n} of 5 values of time" for n in (2, 1))]
    assert Falling(speed=2.0).theory().status == "converged at 2 of 5 values of time"
    assert Falling().theory(only=["last"]).status == "converged at 4 of 5 values of time"
    assert Falling().branches().converged_along.shape == (1, 5)
    slopes = jax.jacfwd(lambda v: Falling(speed=v).theory().height)(jnp.asarray(2.0))
    np.testing.assert_array_equal(np.isnan(slopes), ~reached[1])
    measured = Falling(speed=2.0).simulate(0, 10)
    np.testing.assert_array_equal(np.isfinite(measured.height), reached[1])
    assert not measured.converged


def test_a_study_of_flows_that_fail_keeps_their_values_until_then():
    study = sv.Study(Falling(), {"speed": [0.5, 2.0]})
    data = study.run(progress=False)
    np.testing.assert_array_equal(data["converged_theory"], [True, False])
    np.testing.assert_array_equal(np.isfinite(data["height_theory"]).sum("time"), [5, 2])
