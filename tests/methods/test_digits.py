"""The digits of scikit-learn, read without importing it."""

import subprocess
import sys
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from solvable.errors import SolvableError
from solvable.methods.data import digits

datasets = pytest.importorskip("sklearn.datasets")


def test_the_digits_are_those_of_scikit_learn(monkeypatch, tmp_path):
    expected = datasets.load_digits(return_X_y=True)
    for found, wanted in zip(digits._read(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    elsewhere = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))  # a version that keeps them elsewhere
    monkeypatch.setattr(digits, "find_spec", lambda name: elsewhere)
    for found, wanted in zip(digits._read(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_reading_the_digits_does_not_import_scikit_learn():
    """Its import takes longer than a first simulation may."""
    program = "import sys, solvable.methods.data.digits as d; d.digit_images(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_digits_without_scikit_learn_are_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(SolvableError, match="the digits come with scikit-learn, which is not installed"):
        digits._read()
