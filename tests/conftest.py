"""Run every test with strict promotion of dtypes and ranks, and check shapes and types at every call."""

import os
import signal
from contextlib import suppress
from pathlib import Path

# The user's environment must not leak into the tests, nor the tests' files into the user's home.
os.environ.pop("SOLVABLE_ENABLE_X64", None)
os.environ["MPLBACKEND"] = "agg"
# A shell's background jobs ignore Ctrl-C, and so would the processes that tests start: restore the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiled programs are cached in the checkout, for the other processes of this run and for the next run.
os.environ["SOLVABLE_CACHE"] = str(Path(__file__).parents[1] / ".cache")
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

from solvable.lab.jax_environment import configure

configure()

from jaxtyping import install_import_hook  # noqa: E402

# Mathematics is type-checked at every call, including modules beside a model; models accept anything number-like.
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

MOST_MAPPINGS = 20_000  # per process; Linux allows 65,530 by default


def pytest_addoption(parser):
    parser.addoption("--durations-file", default="", help="write the processor seconds of every test here")
    parser.addoption("--passed", default="", help="leave out the tests listed here, and list those that pass")


def pytest_configure(config):
    from durations import Stopwatch

    config.pluginmanager.register(Stopwatch(config), "stopwatch")
    if config.getoption("--passed"):
        from resuming import Resuming

        config.pluginmanager.register(Resuming(config), "resuming")


def pytest_collection_modifyitems(items):
    from durations import is_slow, known

    seconds = known()
    for item in items:
        if is_slow(item.nodeid, seconds):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_teardown(item, nextitem):
    """Clear compiled programs, each of which holds memory mappings, before the process runs out of mappings and dies."""
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
    """Count how often JAX traces a function for compilation during the test (cache misses of `jit`)."""
    counted = []

    def listen(event: str, duration: float, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            counted.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counted
    jax.monitoring.unregister_event_duration_listener(listen)
