"""A visit to the page with a real browser; its fixtures are available to every test of this folder.

After every visit: nothing in the console, no refusal by the content security policy, no request to anywhere but our own server.
"""

import os
import re
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from waiting import LONG

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.browsing import browser, missing, opened, served

WHY = missing()
# What is seen here does not depend on how well programs are optimised; they are compiled in half the time.
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
WATCH = """
window.drawings = 0;
document.addEventListener("drawn", (e) => { if (e.detail.settled !== false) window.drawings += 1; });
document.addEventListener("securitypolicyviolation", (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));
"""


CURVE = "(k) => Array.from(document.querySelector('.plot').data.filter((t) => !t.meta?.curve)[k].y)"


@pytest.fixture(scope="module")
def address():
    if WHY is not None:
        pytest.fail(WHY, pytrace=False)
    with served(XLA_FLAGS=f"{QUICK} {os.environ.get('XLA_FLAGS', '')}") as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    if WHY is not None:
        pytest.fail(WHY, pytrace=False)
    with browser() as chromium:
        yield chromium


class Visit:
    """A page, all of its requests, and everything it logged."""

    def __init__(self, chromium, address, **settings):
        settings = {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"} | settings
        self.address, self.base = address, address.base
        self.context = chromium.new_context(**settings)
        self.context.add_init_script(WATCH)
        self.context.set_default_timeout(1000 * LONG)
        self.complaints, self.asked, self.theories = [], [], []
        self.forgiven = ()
        self.page = self.another()
        self.page.goto(address.address())

    def another(self):
        page = self.context.new_page()
        page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.complaints.append(str(e)))
        page.on("request", lambda r: self.asked.append(r.url))
        page.on("request", lambda r: self.theories.append(r) if r.url.endswith("/api/theory") else None)
        return page

    def open(self, query):
        opened(self.page, self.address, query)

    def find(self, selector):
        return self.page.locator(selector)

    def curve(self, trace=0):
        """The y of a trace of the current curve, which is drawn after the pinned ones, as Plotly has it."""
        return self.page.evaluate(CURVE, trace)

    def traces(self, mode):
        return self.page.evaluate(
            "(m) => document.querySelector('.plot').data.filter((t) => t.mode === m).length", mode
        )

    def after(self, act):
        """Do something and wait until the plot has been redrawn and is not a preview."""
        before = self.page.evaluate("window.drawings")
        act()
        self.until(lambda: self.page.evaluate("window.drawings") > before)

    def until(self, true):
        """Wait for a state of the page while it keeps running."""
        end = time.monotonic() + LONG
        while not true():
            assert time.monotonic() < end, "waited too long"
            self.page.wait_for_timeout(50)

    def query(self, true):
        """The query of the address, which is updated after a pause, once a condition holds for it."""
        self.until(lambda: true(urlsplit(self.page.url).query))
        return urlsplit(self.page.url).query

    def end(self):
        self.context.close()
        left = [c for c in self.complaints if not any(re.search(f, c) for f in self.forgiven)]
        assert not left, left
        hosts = {urlsplit(url).netloc for url in self.asked if not url.startswith(("data:", "blob:", "about:"))}
        assert hosts == {urlsplit(self.base).netloc}, hosts


@pytest.fixture
def visit(chromium, address):
    here = Visit(chromium, address)
    yield here
    here.end()


@pytest.fixture
def phone(chromium, address):
    here = Visit(chromium, address, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    yield here
    here.end()
