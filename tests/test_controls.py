"""Controls that matter for some choices only: declared, shown, and checked."""

import jax.numpy as jnp
import pytest

import solvable as sv
from solvable.lab.check import check_controls, effective
from solvable.model import Control, Model, Numerics, choice, control, observable
from solvable.registry import model_class


class Sleeper(Model):
    """One control always matters, one for a choice, one never."""

    id = "sleeper"
    title = "Sleeper"
    family = "elsewhere"
    numerics = Numerics()
    typical_sizes = (4, 8)

    a: Control = control(0.5, low=0.0, high=1.0, meaning="always")
    b: Control = control(0.5, low=0.0, high=1.0, meaning="for odd ones", when={"kind": "odd"})
    kind: str = choice("plain", options=("plain", "odd"), meaning="which")
    observables_declared = (observable("value", "a number"),)

    def point(self, numerics):
        return {"value": self.a + (self.b if self.kind == "odd" else 0.0)}

    def experiment(self, key, size, counts, dtype):
        return {"value": jnp.asarray(self.a + (self.b if self.kind == "odd" else 0.0))}


class Useless(Sleeper):
    id = "useless"
    c: Control = control(0.5, low=0.0, high=1.0, meaning="never")


class Undeclared(Sleeper):
    id = "undeclared"
    b: Control = control(0.5, low=0.0, high=1.0, meaning="for odd ones")


def test_a_control_matters_for_the_choices_it_declares():
    assert not Sleeper().matters("b")
    assert Sleeper(kind="odd").matters("b")
    assert Sleeper().matters("a")
    assert effective(Sleeper(), ["a", "b"]) == {"a"}
    assert check_controls("sleeper", Sleeper).passed


def test_a_control_that_never_changes_anything_is_found():
    found = check_controls("useless", Useless)
    assert not found.passed
    assert found.seen == "c changed nothing for any choice"


def test_a_control_that_sleeps_without_saying_so_is_named():
    found = check_controls("undeclared", Undeclared)
    assert found.passed
    assert "declare `when` of b (kind = odd)" in found.seen


def test_masked_regression_says_which_covariance_wakes_each_control():
    kind = model_class("masked-regression")
    awake = {n for n in kind.fields_of("control") if kind().matters(n)}
    assert awake == {"samples", "penalty", "correlation"}
    for name, declaration in kind.fields().items():
        for field, allowed in declaration.when:
            assert set(allowed) <= set(kind.fields()[field].options), name


def test_a_wrong_name_is_still_refused():
    with pytest.raises(sv.UnknownName):
        Sleeper.create(d=1.0)
