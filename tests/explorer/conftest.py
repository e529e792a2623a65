import os
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("latex2mathml")

from running import Running
from visiting import address, chromium, phone, visit  # noqa: F401

from solvable.registry import listings


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """Compiled programs go to a folder of the tests; another package has registered two models."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / "toys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[solvable.models]\ntoy = toys:Toy\nsleepy = toys:Sleepy\n")
    shutil.copy(Path(__file__).parent / "toys.py", site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("SOLVABLE_CACHE", str(tmp_path_factory.getbasetemp() / "programs"))
        listings.cache_clear()
        yield
    sys.modules.pop("toys", None)
    listings.cache_clear()


@pytest.fixture(scope="module")
def running(surroundings):
    server = Running()
    yield server
    server.close()


@pytest.fixture
def fresh(surroundings):
    """A separate server that a test may break."""
    server = Running()
    yield server
    server.close()
