"""Every test runs with strict promotion of dtypes and ranks, and with shapes and types checked at every call."""

import os
import shutil
import tempfile
from pathlib import Path

# The environment of a user must not leak into the tests, nor the tests' files into the user's home.
os.environ.pop("SOLVABLE_ENABLE_X64", None)
os.environ["MPLBACKEND"] = "agg"

# What one process of a test run has compiled, others load: the tests are many processes, and half their time is XLA's.
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(
    tempfile.gettempdir(), f"solvable-tests-{os.getppid() if 'PYTEST_XDIST_WORKER' in os.environ else os.getpid()}"
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

from jaxtyping import install_import_hook

with install_import_hook(["solvable.methods"], "beartype.beartype"):
    import solvable
    import solvable.methods.channels
    import solvable.methods.covariate
    import solvable.methods.dense_potts
    import solvable.methods.erm
    import solvable.methods.losses
    import solvable.methods.pseudolikelihood
    import solvable.methods.quadrature
    import solvable.methods.saddle
    import solvable.methods.training
    import solvable.methods.transformers

    for line in solvable.listings().values():
        solvable.model_class(line.id)

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

LONG_TESTS = tuple(
    line
    for line in (Path(__file__).parent / "long_tests.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
MOST_MAPPINGS = 20_000  # of a process; Linux allows 65,530 unless told otherwise


def pytest_addoption(parser):
    parser.addoption("--durations-file", default="", help="write the processor seconds of every test here")


def pytest_configure(config):
    from durations import Stopwatch

    config.pluginmanager.register(Stopwatch(config), "stopwatch")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(LONG_TESTS):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_teardown(item, nextitem):
    """Every compiled program holds some mappings of memory; a process that has none left dies while it compiles."""
    if nextitem is not None and nextitem.module is item.module:
        return
    try:
        with open("/proc/self/maps", "rb") as file:
            many = sum(1 for _ in file) > MOST_MAPPINGS
    except OSError:  # not Linux
        return
    if many:
        jax.clear_caches()


def pytest_unconfigure(config):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="module")
def running():
    """The explorer's server in this process."""
    from explorer.running import Running

    server = Running()
    yield server
    server.close()


@pytest.fixture
def traces():
    """Counts how often JAX traces a function for compilation while the test runs (cache misses of `jit`)."""
    counted = []

    def listen(event: str, duration: float, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            counted.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counted
    jax.monitoring.unregister_event_duration_listener(listen)
