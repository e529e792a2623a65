"""Every example in a docstring says what really comes out."""

import doctest
import importlib
import pkgutil

import pytest

import solvable

MODULES = [m.name for m in pkgutil.walk_packages(solvable.__path__, "solvable.") if not m.name.endswith("__main__")]

LONG = {  # examples that train or simulate, a quarter of a minute and more each: for `make verify`
    "solvable.methods.interactions", "solvable.methods.monte_carlo", "solvable.models.attention.masked_language",
    "solvable.models.online.continual_protocols", "solvable.testing", "solvable.models.replica.transfer",
    "solvable.models.replica.narrow_network", "solvable.models.replica.bias_geometry", "solvable.methods.online",
    "solvable.models.replica.random_labels", "solvable.tools.continual_digits", "solvable.methods.teacher_mixture",
    "solvable.models.replica.curriculum_batch", "solvable.methods.elastic_phases", "solvable.methods.covariate",
    "solvable.methods.mixtures", "solvable.methods.pseudolikelihood", "solvable.models.online.continual_learning",
    "solvable.methods.control", "solvable.models.online.specialisation",
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(m, marks=pytest.mark.slow) if m in LONG else m for m in MODULES])
def test_examples_in_docstrings_hold(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
