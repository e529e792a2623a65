"""The package can be set up with every Python version named in the README."""

import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

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
def test_pinned_versions_exist_for_every_promised_python(pin):
    try:
        installed = importlib.metadata.distribution(pin.name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{pin.name} is not installed")  # a tool of the build, or of another extra
    if not pin.specifier.contains(installed.version, prereleases=True):
        pytest.skip(f"{pin.name} {installed.version} is installed, which is not the pinned version")
    admitted = SpecifierSet(installed.metadata.get("Requires-Python") or "")
    refused = [python for python in PROMISED if not admitted.contains(python)]
    assert not refused, f"{pin} is for Python {admitted}, not for {', '.join(refused)}: pin an older version"


def test_promised_versions_are_those_that_the_project_declares():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = SpecifierSet(re.search(r'requires-python = "(.*)"', text)[1])
    assert [python for python in PROMISED if declared.contains(python)] == list(PROMISED)
    assert not declared.contains("3.10.99")


def test_versions_are_pinned_and_most_are_installed():
    assert all([s.operator for s in pin.specifier] == ["=="] for pin in PINS)
    installed = {re.sub(r"[-_.]+", "-", d.name).lower(): d.version for d in importlib.metadata.distributions()}
    names = [re.sub(r"[-_.]+", "-", pin.name).lower() for pin in PINS]
    assert len(set(names)) == len(names)
    kept = [pin for n, pin in zip(names, PINS, strict=True) if n in installed and pin.specifier.contains(installed[n])]
    assert len(kept) > 0.8 * len(PINS)  # otherwise the test above is vacuous


# --- make: the core for the demo, the extras for the rest ---------------------------------------------------------------

UV = """#!/bin/sh
echo "uv $*" >> "$LOG"
if [ "$1" = venv ]; then mkdir -p .venv/bin && cp "$0" .venv/bin/solvable; fi
exit 0
"""
PYTHON = """#!/bin/sh
echo "python $*" >> "$LOG"
if [ "$2" = venv ]; then mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/solvable; fi
exit 0
"""


@pytest.fixture(params=["uv", "pip"])
def project(request, tmp_path, monkeypatch):
    """A project with our Makefile, and tools that only record their arguments."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"python3": PYTHON, **({"uv": UV} if request.param == "uv" else {})}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for name in ("sh", "make", "touch", "mkdir", "cp", "echo"):
        (tools / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tools))  # no other uv
    monkeypatch.setenv("LOG", str(tmp_path / "log"))

    def make(target):
        """The installations that a target requests: the core or the extras."""
        (tmp_path / "log").write_text("")
        done = subprocess.run(["make", target], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = [line for line in (tmp_path / "log").read_text().splitlines() if " install " in line]
        assert all("-c constraints.txt" in line for line in lines)
        return ["extras" if line.endswith("-e .[dev,docs,explore,cluster]") else line.split()[-1] for line in lines]

    return SimpleNamespace(make=make, folder=tmp_path)


def test_the_core_is_installed_first_and_the_extras_when_they_are_needed(project):
    assert project.make("demo") == ["."]
    assert project.make("demo") == []
    assert project.make(".venv/ready") == ["extras"]
    assert project.make(".venv/ready") == project.make(".venv/ready-core") == []


def test_the_other_order_installs_the_same(project):
    assert project.make(".venv/ready") == [".", "extras"]
    assert project.make(".venv/ready-core") == project.make(".venv/ready") == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_declaration_reinstalls_in_either_order(project, name):
    project.make(".venv/ready")
    old = [project.folder / ".venv" / stamp for stamp in ("ready-core", "ready")]
    for file in old:
        os.utime(file, (0, 0))
    os.utime(project.folder / name, (1, 1))
    assert project.make(".venv/ready-core") == ["."]
    assert project.make(".venv/ready") == ["extras"]
    for file in old:
        os.utime(file, (0, 0))
    assert project.make(".venv/ready") == [".", "extras"]
