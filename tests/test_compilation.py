"""Compiled programs are counted, not timed: a sweep compiles a few, and a repetition compiles none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable as sv
from solvable.model import Model, control, observable

POINTS, SIZES = np.geomspace(0.2, 8, 60), [20, 40, 80]


class Counting(Model):
    """Sums rows whose number is a control; quick to compile, and padded like any other model."""

    id = "counting"
    samples: jax.Array = control(1.0, low=0.0, low_open=True, high=100.0, counts=True, meaning="rows per dimension")
    observables_declared = (observable("rows", "rows per dimension"),)

    def point(self, numerics):
        return {"rows": self.samples}

    def experiment(self, key, size, counts, dtype):
        return {"rows": counts["samples"].mask(dtype).sum() / size}


@pytest.fixture
def programs():
    """The names of the theory and simulation programs compiled during the test."""
    names: list[str] = []

    def listen(event: str, duration: float, **about):
        if event.endswith("backend_compile_duration") and about["fun_name"] in ("jit(_theory)", "jit(_simulate)"):
            names.append(about["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


def shapes(study):
    """The keys of the blocks' compiled programs."""
    return {(b["kind"], str(b["variant"]), b["size"], tuple(b["padded"]), b["lanes"]) for b in study.plan()}


def test_sixty_points_at_three_sizes_compile_at_most_ten_programs_and_run_again_none(programs):
    study = sv.Study(Counting(), {"samples": POINTS}, sizes=SIZES, seeds=2)
    data = study.run(progress=False)
    assert len(programs) == len(shapes(study)) <= 10
    np.testing.assert_allclose(data["rows_simulated"][..., 0], data["rows_expected"], atol=1e-6)

    programs.clear()
    sv.Study(Counting(), {"samples": POINTS * 0.999}, sizes=SIZES, seeds=[5, 6]).run(progress=False)
    assert programs.count("jit(_theory)") == 0  # new values and seeds, the same program


@pytest.mark.parametrize("id", ["perceptron", "masked-regression"])
def test_the_plan_of_a_real_model_holds_at_most_ten_programs(id):
    study = sv.Study(sv.create(id), {"samples": POINTS}, sizes=SIZES, seeds=2)
    assert len(study.plan()) > len(shapes(study))  # several blocks share a program
    assert len(shapes(study)) <= 10


def test_a_new_value_of_a_control_does_not_compile_the_theory_again(programs):
    for penalty in (0.1, 0.2, 3, np.float64(0.4)):
        sv.Perceptron(loss="square", teacher="linear", samples=np.linspace(0.5, 7, 13), penalty=penalty).theory()
    assert len(programs) == 1


class Branching(Counting):
    """A point that takes one of two branches, both of which a batch must compute."""

    id = "branching"

    def point(self, numerics):
        return {"rows": jax.lax.cond(self.samples > 1, lambda: self.samples, lambda: 1 / self.samples)}


def test_a_point_by_itself_is_computed_without_a_batch_axis_and_has_the_value_that_it_has_in_a_batch():
    alone, several = Branching(samples=0.25), Branching(samples=[0.25, 3.0])
    programs = [str(jax.make_jaxpr(lambda model: model.theory().values)(model)) for model in (alone, several)]
    assert ["cond[" in program for program in programs] == [True, False]
    assert float(alone.theory().rows) == float(several.theory().rows[0]) == 4.0


def test_reductions_of_products_are_not_read_before_they_are_written():
    """Some releases of jaxlib do that on CPUs, unless what `import solvable` sets prevents it; then this maximum is not zero."""
    x = jax.random.normal(jax.random.key(0), (12, 20, 64), jnp.float32)

    def largest(x):
        return jnp.max((x @ jnp.zeros((64, 64), jnp.float32)) @ jnp.swapaxes(x, 1, 2), -1)

    np.testing.assert_array_equal(jax.jit(largest)(x), 0.0)
