"""A running explorer and a real browser, for the browser tests, the timings and the screenshots of the tour."""

from __future__ import annotations

import json
import os
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
    document.addEventListener("drawn", () => requestAnimationFrame(() => done(performance.now() - begun)), { once: true });
    slider.value = position;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  });
}"""


def missing() -> str | None:
    """One sentence that names the package missing for a browser; None if there is a browser."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the browser tests need the Python package playwright; run pip install 'solvable[dev]'."
    if not any(shutil.which(name) for name in BROWSERS):
        return "the browser tests need Chromium; install Debian's package chromium (apt-get install chromium)."
    return None


@contextmanager
def served(*words: str) -> Iterator[str]:
    """Run `solvable explore` in a separate process; yields the address with its token."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "solvable", "explore", *words, "--json", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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


def opened(page: Any, address: str, query: str = "") -> None:
    """Open a view and wait for its first curve (or, without a theory, for the prompt to simulate)."""
    page.goto(address.split("/?")[0] + "/" + query)
    if "model=" in query or "study=" in query:
        page.locator(".hero:not(.waits) .plot .main-svg").first.wait_for(timeout=300_000)


def moved(page: Any, field: str, position: int) -> float:
    """Milliseconds from a move of a slider (0 to 400) to the new curve on the screen."""
    return page.evaluate(SLIDER, [field, position])
