"""Tests of the contract checks. `make verify` runs the full `solvable check` on every model."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import solvable as sv
from solvable.lab.check import check_case, load_cases, reference_folder
from solvable.testing import examine_model

MODELS = list(sv.listings())


def test_every_model_with_a_theory_has_reference_values():
    files = {id: reference_folder() / f"{id}.json" for id in MODELS}
    missing = [id for id, file in files.items() if not file.exists()]
    assert [id for id in missing if sv.model_class(id)().has_theory] == []
    assert [id for id, file in files.items() if file.exists() and len(load_cases(file)) < 4] == []


@pytest.mark.parametrize("id", MODELS)
def test_listing_and_class_agree(id):
    line, kind = sv.listings()[id], sv.model_class(id)
    assert (line.id, line.name, line.family) == (kind.id, kind.__name__, kind.family)
    assert line.sentence.endswith(".")


def test_a_wrong_reference_value_is_found(tmp_path):
    right = load_cases(reference_folder() / "perceptron.json")[-1]
    assert check_case(right).passed
    assert not check_case(right | {"value": right["value"] + 2 * right["tolerance"]}).passed
    assert not check_case(right | {"observable": "nonsense"}).passed
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([{"model": "perceptron"}]))
    with pytest.raises(sv.InvalidValue, match="case 0 of .* lacks observable, params, tolerance, value"):
        load_cases(file)


def test_a_reference_value_may_be_that_of_a_realisation():
    model = sv.Perceptron(loss="square", samples=2.0)
    seen = float(model.simulate(seed=3, size=20).norm)
    case = {"model": "perceptron", "params": {"loss": "square", "samples": 2.0}, "observable": "norm",
            "simulate": {"size": 20, "seed": 3}, "value": seen, "tolerance": 0}  # fmt: skip
    assert check_case(case).passed
    assert not check_case(case | {"simulate": {"size": 20, "seed": 4}}).passed
    result = check_case(case | {"simulate": {"sizes": [20]}})
    assert not result.passed
    assert "is not an object with a size and a seed" in result.seen


def test_a_model_that_breaks_its_promises_is_reported():
    class Ghostly(sv.Perceptron):
        """Claims an observable that it does not predict."""

        observables_declared = (*sv.Perceptron.observables_declared, sv.observable("ghost", "nothing"))

    kept = {f.promise: f.kept for f in examine_model(Ghostly(loss="square"))}
    assert not kept["the theory gives exactly the declared observables"]


def test_a_model_that_breaks_physics_does_not_count_as_converged():
    class Unphysical(sv.Perceptron):
        """Has a negative squared norm."""

        def point(self, numerics):
            values = super().point(numerics)
            return values | {"norm": -values["norm"]}

    outcome = Unphysical(loss="square").theory()
    assert not outcome.converged
    assert math.isnan(outcome.norm)
    kept = {f.promise: f.kept for f in examine_model(Unphysical(loss="square"), thorough=False)}
    assert not kept["the theory converges over the typical ranges"]


def test_a_model_that_misses_its_accuracy_is_reported():
    class Coarse(sv.Perceptron):
        """Has a training loss that depends on the number of nodes."""

        def point(self, numerics):
            values = super().point(numerics)
            return values | {"train_loss": values["train_loss"] * (1 + 1 / numerics.nodes)}

    kept = {f.promise: f.kept for f in examine_model(Coarse(loss="square"))}
    assert not kept["finer numerics change nothing beyond 1e-08"]


def test_models_of_other_packages_are_found_by_their_entry_point(tmp_path):
    """Models of a package that declares `solvable.models` are listed, described and computed like built-in ones."""
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[solvable.models]\nshrinkage = elsewhere:Shrinkage\nbroken = nowhere:Nothing\n"
    )
    skeleton = Path(__file__).parents[1] / "docs" / "skeleton" / "shrinkage.py"
    (tmp_path / "elsewhere.py").write_text(skeleton.read_text())
    program = (
        "import solvable as sv\n"
        "assert sv.listings()['shrinkage'].sentence == 'A model of elsewhere.'\n"
        "print(sv.create('shrinkage').theory())\n"
        "try: sv.create('broken')\n"
        "except sv.SolvableError as error: print(error)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(sv.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "converged" in done.stdout
    assert "model 'broken' could not be loaded from nowhere:Nothing" in done.stdout
