"""Everything sets itself up on any Python that the README promises."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROMISED = ("3.11.0", "3.12.0", "3.13.0")
PINS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_a_pinned_version_is_for_every_python_that_is_promised(pin):
    try:
        installed = importlib.metadata.distribution(pin.name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{pin.name} is not installed")  # a tool of the build, or of another extra
    if not pin.specifier.contains(installed.version, prereleases=True):
        pytest.skip(f"{pin.name} {installed.version} is installed, which is not the pinned version")
    admitted = SpecifierSet(installed.metadata.get("Requires-Python") or "")
    refused = [python for python in PROMISED if not admitted.contains(python)]
    assert not refused, f"{pin} is for Python {admitted}, not for {', '.join(refused)}: pin an older version"


def test_what_is_promised_is_what_the_project_declares():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = SpecifierSet(re.search(r'requires-python = "(.*)"', text)[1])
    assert [python for python in PROMISED if declared.contains(python)] == list(PROMISED)
    assert not declared.contains("3.10.99")


def test_versions_are_pinned_and_most_of_them_are_installed():
    assert all([s.operator for s in pin.specifier] == ["=="] for pin in PINS)
    installed = {re.sub(r"[-_.]+", "-", d.name).lower(): d.version for d in importlib.metadata.distributions()}
    names = [re.sub(r"[-_.]+", "-", pin.name).lower() for pin in PINS]
    assert len(set(names)) == len(names)
    kept = [pin for n, pin in zip(names, PINS, strict=True) if n in installed and pin.specifier.contains(installed[n])]
    assert len(kept) > 0.8 * len(PINS)  # else the test above says nothing
