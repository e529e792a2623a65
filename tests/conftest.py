"""Every test runs with strict promotion of dtypes and ranks, and with shapes and types checked at every call."""

import os
import signal
from contextlib import suppress
from pathlib import Path

# The environment of a user must not leak into the tests, nor the tests' files into the user's home.
os.environ.pop("SOLVABLE_ENABLE_X64", None)
os.environ["MPLBACKEND"] = "agg"
# Nor how the tests were started: what runs in the background of a shell ignores Ctrl-C, and so would what the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

# What was compiled is kept in the checkout, for the other processes of this run and for the next one.
os.environ["SOLVABLE_CACHE"] = str(Path(__file__).parents[1] / ".cache")
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

from solvable.lab.jax_environment import configure

configure()

from jaxtyping import install_import_hook  # noqa: E402

# Mathematics is type-checked at every call, also where it lives beside its model; models take anything number-like.
SOURCES = Path(__file__).parents[1] / "src"
BESIDE = [f for f in SOURCES.glob("solvable/models/*/*/*.py") if f.stem not in ("__init__", "model", "figures")]
CHECKED = ["solvable.methods", *(".".join(f.relative_to(SOURCES).with_suffix("").parts) for f in BESIDE)]

with install_import_hook(CHECKED, "beartype.beartype"):
    import solvable
    import solvable.methods.averages.quadrature
    import solvable.methods.fixed_points.saddle
    import solvable.methods.risk.channels
    import solvable.methods.risk.covariate
    import solvable.methods.risk.erm
    import solvable.methods.risk.losses
    import solvable.methods.sequences.dense_potts
    import solvable.methods.sequences.pseudolikelihood
    import solvable.methods.training.loops
    import solvable.methods.training.transformers

    for line in solvable.listings().values():
        solvable.model_class(line.id)

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

MOST_MAPPINGS = 20_000  # of a process; Linux allows 65,530 unless told otherwise


def pytest_addoption(parser):
    parser.addoption("--durations-file", default="", help="write the processor seconds of every test here")


def pytest_configure(config):
    from durations import Stopwatch

    config.pluginmanager.register(Stopwatch(config), "stopwatch")


def pytest_collection_modifyitems(items):
    from durations import is_slow, known

    seconds = known()
    for item in items:
        if is_slow(item.nodeid, seconds):
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
