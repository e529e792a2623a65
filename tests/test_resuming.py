"""`--passed`: an interrupted run of tests goes on where it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from resuming import Resuming

def pytest_addoption(parser):
    parser.addoption("--passed", default="")

def pytest_configure(config):
    config.pluginmanager.register(Resuming(config), "resuming")
"""
TESTS = """
import os
import pytest

def test_good():
    pass

def test_bad():
    assert os.environ["STATE"] == "mended"

@pytest.fixture
def breaking():
    yield
    assert os.environ["STATE"] == "mended"

def test_breaking_at_its_end(breaking):
    pass
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_what_has_passed_is_left_out_and_what_failed_is_repeated(tmp_path, processes):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

    def run(state):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--passed", "passed.txt", *processes]
        environment = os.environ | {"PYTHONPATH": path, "STATE": state}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()[-1], (tmp_path / "passed.txt").read_text().split()

    code, last, passed = run("broken")
    assert (code, passed) == (1, ["test_some.py::test_good"])
    code, last, passed = run("mended")
    assert (code, len(passed)) == (0, 3)
    assert "2 passed" in last
    code, last, passed = run("mended")
    assert (code, len(passed)) == (0, 3)
    assert "passed" not in last
