"""Every example in a docstring gives the output it shows."""

import doctest
import importlib
import pkgutil

import pytest

import solvable

MODULES = [m.name for m in pkgutil.walk_packages(solvable.__path__, "solvable.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
