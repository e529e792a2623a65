"""`solvable check` in parts: they can be kept, are not repeated, and run in several processes."""

import pytest

import solvable as sv
from solvable.lab import check_models as runner
from solvable.lab.check import Checked


@pytest.fixture
def computed(monkeypatch):
    """The parts that were computed; the contract of random features fails."""
    names = []

    def check_part(part):
        names.append(str(part))
        return [
            Checked(part.model, part.kind, str(part) != "random-features: contract", "", compared=4, inconclusive=1)
        ]

    monkeypatch.setattr(runner, "check_part", check_part)
    return names


def test_parts_that_passed_are_kept_and_only_the_others_are_repeated(computed, tmp_path):
    first = runner.check_models(["random-features"], corners=True, keep=tmp_path)
    assert {"random-features: contract", "random-features: corner defaults"} <= set(computed)
    assert next(row.part for row in first if not row.passed) == "contract"
    computed.clear()
    assert runner.check_models(["random-features"], corners=True, keep=tmp_path) == first
    assert computed == ["random-features: contract"]


def test_noisy_rows_of_all_studies_are_judged_together(computed):
    rows = runner.check_models(["prior-predictive"])
    (row,) = [row for row in rows if row.part == "agreement: inconclusive"]
    studies = sum(name.startswith("prior-predictive: agreement") for name in computed)
    assert row.seen.startswith(f"{studies} of {4 * studies} rows")
    assert not row.passed


def test_a_kept_file_that_holds_something_else_is_named(tmp_path, computed):
    runner.check_models(["prior-predictive"], keep=tmp_path)
    file = next(tmp_path.iterdir())
    file.write_text("[1]")
    with pytest.raises(sv.errors.InvalidValue, match=file.name):
        runner.check_models(["prior-predictive"], keep=tmp_path)


def test_several_processes_find_what_one_finds():
    told = []
    rows = runner.check_models(["prior-predictive"], jobs=2, say=told.append)
    assert {name.split(":")[0] for name in told} == {"prior-predictive"}
    assert rows == runner.check_models(["prior-predictive"])
