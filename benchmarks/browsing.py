"""A running explorer and a real browser, for the browser tests, the timings and the screenshots of the tour."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SLIDER = """async ([field, position]) => {
  const slider = document.querySelector(`[data-field="${field}"] input[type="range"]`);
  const begun = performance.now();
  return await new Promise((done) => {
    const drawn = (event) => requestAnimationFrame(() => done([performance.now() - begun, event.detail.settled !== false]));
    document.addEventListener("drawn", drawn, { once: true });
    slider.value = Number(slider.value) === position ? position + 1 : position; // without a change nothing is drawn
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  });
}"""
SLIDERS = """() => [...document.querySelectorAll(".control:not(.swept):not(.asleep)[data-field]")]
  .filter((row) => row.querySelector("input[type=range]:enabled")).map((row) => row.dataset.field)"""


def missing() -> str | None:
    """One sentence that names the package missing for a browser; None if there is a browser."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the browser tests need the Python package playwright; run pip install 'solvable[dev]'."
    if not any(shutil.which(name) for name in BROWSERS):
        return "the browser tests need Chromium; install Debian's package chromium (apt-get install chromium)."
    return None


class Server:
    """A running `solvable explore`, whose addresses can be used once each."""

    def __init__(self, process: subprocess.Popen[str], terminal: int):
        self._process, self._terminal = process, terminal
        self._unused: str | None = self._line()
        self.base = self._unused.split("/?")[0]
        self.process = process.pid

    def _line(self) -> str:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())["address"]

    def address(self) -> str:
        """An address with an unspent token."""
        if self._unused is None:
            os.write(self._terminal, b"\n")
            self._unused = self._line()
        address, self._unused = self._unused, None
        return address


@contextmanager
def served(*words: str, **variables: str) -> Iterator[Server]:
    """Run `solvable explore` in a separate process, with a terminal in which Enter is pressed for another address."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"} | variables
    # Installed packages have their bytecode; without it every process would spend seconds on compiling them again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "bytecode"))
    command = [sys.executable, "-m", "solvable", "explore", *words, "--json", "--no-browser"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True, env=environment)
    os.close(theirs)
    try:
        yield Server(process, ours)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours)


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's Chromium, without a window, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    found = next(path for name in BROWSERS if (path := shutil.which(name)))
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield chromium
        finally:
            chromium.close()


def opened(page: Any, server: Server, query: str = "") -> None:
    """Open a view and wait for its curve, a draft having been replaced (or, without a theory, for the prompt to simulate)."""
    page.goto(f"{server.base}/{query}")
    if "model=" in query or "study=" in query:
        page.locator(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for(timeout=300_000)


def sliders(page: Any) -> list[str]:
    """The controls that change the curve: one on an axis, or asleep at the current choices, does not."""
    return page.evaluate(SLIDERS)


def moved(page: Any, field: str, position: int) -> tuple[float, bool]:
    """Milliseconds from a move of a slider (0 to 400) to the new curve on the screen, and whether it is not a preview."""
    return tuple(page.evaluate(SLIDER, [field, position]))
