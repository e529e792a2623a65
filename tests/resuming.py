"""A run of tests that was interrupted goes on where it was: `--passed FILE` keeps what has passed and leaves it out next time."""

from pathlib import Path

import pytest


class Resuming:
    """A pytest plugin that leaves out the tests listed in a file and adds those that pass, also on several processes."""

    def __init__(self, config: pytest.Config):
        self.file = Path(config.getoption("--passed"))
        worker = getattr(config, "workerinput", None)
        # All processes must collect the same tests, so that those of a worker are listed by the one that started it.
        self.passed = set(worker["passed"] if worker is not None else self.listed())
        self.writes = worker is None
        self.failed: set[str] = set()

    def listed(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["passed"] = sorted(self.passed)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        left = [item for item in items if item.nodeid not in self.passed]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.passed])
        items[:] = left

    def pytest_runtest_logreport(self, report):
        if not self.writes:
            return
        if not report.passed:
            self.failed.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.failed:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.passed:
            session.exitstatus = pytest.ExitCode.OK
