"""`solvable check` in parts: they can be kept, are not repeated, and run in several processes."""

import os

import pytest

import solvable as sv
from solvable.lab import check_models as runner
from solvable.lab import sources
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


def test_parts_are_repeated_when_a_source_has_changed(computed, tmp_path, monkeypatch):
    runner.check_models(["prior-predictive"], keep=tmp_path)
    number = len(computed)
    monkeypatch.setattr(runner, "_version", lambda id: "another")
    runner.check_models(["prior-predictive"], keep=tmp_path)
    assert len(computed) == 2 * number


def test_a_model_rests_on_its_methods_and_reference_values_not_on_pictures(monkeypatch, tmp_path):
    found = sources.imported(["solvable.models.online.rl_perceptron.model"])
    assert {
        "solvable.methods.flows.integrate",
        "solvable.models.online.rl_perceptron.averages",
        "solvable.model",
    } <= found
    assert not any(name.startswith(("solvable.models.glassy", "solvable.explorer")) for name in found)
    file = tmp_path / "values.json"
    seen = []
    for text in ("1", "2"):
        file.write_text(text)
        seen.append(sources.fingerprint(["solvable.errors"], [file]))
    seen.append(sources.fingerprint(["solvable.errors"]))
    monkeypatch.setattr(sources.importlib.metadata, "version", lambda library: "0.0")
    seen.append(sources.fingerprint(["solvable.errors"]))
    assert len(set(seen)) == 4
    assert sources.fingerprint(["solvable.errors"], without=("solvable.errors",)) not in seen


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


def test_processes_are_replaced_and_find_what_one_finds(monkeypatch):
    monkeypatch.setattr(runner, "PARTS", 1)
    part = runner.Part("prior-predictive", "controls")
    rows = [rows for _, rows, _ in runner.computed([part] * 3, 2, lambda _: None)]
    assert rows == 3 * [runner.check_part(part)]


def test_parts_that_cannot_be_computed_fail_alone():
    class Lost(runner.Part):
        """A part whose process ends when it receives it."""

        def __reduce__(self):
            return os._exit, (1,)

    lost, absent = Lost("perceptron", "contract"), runner.Part("perceptron", "agreement", "999")
    rows = {part: rows for part, rows, _ in runner.computed([lost, absent], 2, lambda _: None)}
    assert not any(row.passed for (row,) in rows.values())
    assert "ended before it was done" in rows[lost][0].seen
    assert rows[absent][0].seen == "IndexError: list index out of range"
