"""Durations of the tests, which decide which tests are slow and run only in `make verify`.

`durations.json` records the processor seconds of every test that takes a second or more without a compilation cache.
`make durations` measures them again. A test that takes more than `LONGEST` is slow, unless it guards a model: those tests
are always in `make test` and have their own budget (`test_every_model.py`).
"""

import json
import os
from pathlib import Path

import pytest

from solvable.models import LISTINGS

FILE = Path(__file__).parent / "durations.json"
MODELS = {line.id for line in LISTINGS}
LONGEST = 1.0  # processor seconds of a test in `make test`
KEPT = 1.0  # tests faster than this are not recorded
ALWAYS = ("tests/test_every_model.py::",)


def known() -> dict[str, float]:
    """Processor seconds by test."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def expected(nodeid: str, seconds: dict[str, float]) -> float:
    """Processor seconds of a test.

    A test that was never measured for a model counts as slow if it is slow for most models, so that a new model adds no
    line to the file.
    """
    test, _, parameter = nodeid.partition("[")
    if nodeid in seconds or parameter[:-1] not in MODELS:
        return seconds.get(nodeid, 0.0)
    siblings = [s for name, s in seconds.items() if name.startswith(f"{test}[")]
    return max(siblings) if len(siblings) > len(MODELS) / 2 else 0.0


def is_slow(nodeid: str, seconds: dict[str, float]) -> bool:
    return not nodeid.startswith(ALWAYS) and expected(nodeid, seconds) > LONGEST


def processor_seconds() -> float:
    """Processor seconds of this process and of its finished child processes."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class Stopwatch:
    """A pytest plugin that marks slow tests, measures every test, and writes the result with `--durations-file`."""

    def __init__(self, config: pytest.Config):
        self.file = config.getoption("--durations-file")
        self.measured: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.begun = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        # A test is reported after set-up, call and teardown; each report gives the seconds until then.
        report.user_properties = [("processor_seconds", processor_seconds() - self.begun)]
        return report

    def pytest_runtest_logreport(self, report):
        spent = dict(report.user_properties).get("processor_seconds")
        if spent is not None:
            self.measured[report.nodeid] = spent

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self.file and not hasattr(session.config, "workerinput"):
            kept = known() | {name: round(s, 1) for name, s in self.measured.items()}
            kept = {name: s for name, s in sorted(kept.items()) if s >= KEPT or name.startswith(ALWAYS)}
            Path(self.file).write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n")

    def pytest_terminal_summary(self, terminalreporter):
        models = {n: s for n, s in self.measured.items() if n.startswith(ALWAYS) and n.endswith("]")}
        if models:
            terminalreporter.section("processor seconds of each model")
            for name, seconds in sorted(models.items(), key=lambda pair: -pair[1]):
                terminalreporter.write_line(f"{seconds:7.1f}  {name.split('[')[1][:-1]}")
