"""Processes started by tests use this source tree and the CPU."""

from pathlib import Path

import pytest

import solvable


@pytest.fixture(scope="session", autouse=True)
def _processes_of_tests():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(solvable.__file__).parents[1]))
        patch.setenv("JAX_PLATFORMS", "cpu")
        yield
