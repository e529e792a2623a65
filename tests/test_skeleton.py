"""The skeleton model of the guide "Add a model in one file" works as the guide says."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import solvable as sv
from solvable.testing import check_model

FILE = Path(__file__).parents[1] / "docs" / "skeleton" / "shrinkage.py"


@pytest.fixture(scope="module")
def Shrinkage():
    spec = importlib.util.spec_from_file_location("shrinkage", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["shrinkage"] = module
    spec.loader.exec_module(module)
    yield module.Shrinkage
    del sys.modules["shrinkage"]


def test_the_skeleton_keeps_the_contract(Shrinkage):
    check_model(Shrinkage)


def test_theory_and_simulation_of_the_skeleton_agree(Shrinkage):
    study = sv.Study(Shrinkage(), {"estimator": ["ridge", "james-stein"]}, sizes=[50, 200], seeds=32)
    study.run(progress=False)
    counts = study.agreement().counts()
    assert set(counts) <= {"agree", "finite-size", "inconclusive"}
    assert counts["agree"] >= 3  # of six: the study is precise enough to find an error


def test_ridge_is_best_at_the_noise_and_james_stein_needs_no_penalty_to_get_there(Shrinkage):
    model = Shrinkage(samples=1.3, noise=0.7)
    best = sv.optimise(model, "penalty", minimise="test_loss")
    np.testing.assert_allclose(best.controls["penalty"], 0.7, rtol=1e-5)
    other = model.replace(estimator="james-stein").theory()
    np.testing.assert_allclose(float(other.test_loss), best.value, rtol=1e-12)
