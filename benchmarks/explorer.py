"""The page in a real browser: time from opening it to the first curve, and from a slider to the new curve.

Wall milliseconds, because a person waits for them, measured inside the page from the slider's event to the frame after the
drawing, with the server, its simulation worker and the browser on the same machine. Other load on it is included.

`python -m benchmarks.explorer [MODEL ...] [--moves N]` prints each line as soon as it is measured, for some models only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from solvable.registry import listings, model_class

from .browsing import Server, browser, missing, moved, opened, served, sliders
from .rows import Row

MOVES = 60
SLIDER = 150  # milliseconds from a slider's move to the new curve, where the theory is instant
SWEEPS = (
    ("perceptron", "?model=perceptron&show=test_error", "penalty"),
    ("random-features", "?model=random-features&x=width:0.3:10:60:log&show=test_error", "penalty"),
    ("masked-regression", "?model=masked-regression&x=samples:0.2:5:60:log&show=test_loss", "penalty"),
    ("potts-attention", "?model=potts-attention&show=excess_loss", "inverse_temperature"),
    ("soft-committee", "?model=soft-committee&x=rate:0.1:1.5:60", "noise"),
    ("many-body", "?model=many-body&x=inverse_temperature:0:2:60&show=optimal_loss", "lower_strength"),
)
"""Views whose horizontal axis is a control, with 60 points, in addition to the first view of every model."""


def cases(models: list[str] | None = None) -> Iterator[tuple[str, str, list[str]]]:
    """The measured cases: a name, a view and the sliders that are moved; without one, all that change the curve."""
    for model, query, field in SWEEPS:
        if model in (models or listings()):
            yield f"{model} against {_axis(query)}", query, [field]
    for model in models or listings():
        made = model_class(model)()
        if made.has_theory and not made.unprepared:
            yield f"{model}, first view", f"?model={model}", []


def _axis(query: str) -> str:
    return query.split("&x=")[1].split(":")[0] if "&x=" in query else "samples"


DRAG = """async (field) => {
  const slider = document.querySelector(`[data-field="${field}"] input[type="range"]`);
  let drawn = 0;
  const count = () => { drawn += 1; };
  document.addEventListener("drawn", count);
  for (let k = 0; k < 50; k++) {
    slider.value = 100 + 4 * k;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((go) => setTimeout(go, 8));
  }
  const released = performance.now(), wanted = slider.getAttribute("aria-valuetext");
  return await new Promise((done) => {
    const settled = (event) => {
      if (!event.detail.settled || Number(event.detail.values[field].toPrecision(4)) !== Number(wanted)) return;
      document.removeEventListener("drawn", settled);
      document.removeEventListener("drawn", count);
      done([performance.now() - released, drawn]);
    };
    document.addEventListener("drawn", settled);
  });
}"""


THUMBNAILS = """async (models) => {
  const begun = performance.now();
  await Promise.all(models.map((id) => {
    const picture = new Image();
    picture.src = `/thumbnails/${id}.svg?again`;
    return picture.decode();
  }));
  return performance.now() - begun;
}"""


def first_curve(chromium: Any, server: Server, query: str, times: int = 7) -> tuple[float, float]:
    """Median milliseconds from navigation to the first curve and to the interactive figure, with a warm server."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(server.address())
    opened(page, server, query)
    first, whole = [], []
    for _ in range(times):
        page.goto("about:blank")
        begun = time.perf_counter()
        opened(page, server, query)
        whole.append(1000 * (time.perf_counter() - begun))
        # The curve is on the screen long before a browser busy with the library reports it.
        first.append(page.evaluate("performance.getEntriesByName('first curve')[0]?.startTime ?? Infinity"))
    context.close()
    return statistics.median(first), statistics.median(whole)


@dataclass(frozen=True)
class Moves:
    """What single moves of sliders took, and the end of a drag."""

    milliseconds: dict[str, list[float]]
    """By slider, from the move to the new curve on the screen, which may be a preview."""
    previews: int
    settled: float
    """Milliseconds from the end of a drag of 50 moves to its last curve in full."""
    drawn: int
    """The number of curves drawn in this drag."""

    @property
    def every(self) -> list[float]:
        return [spent for own in self.milliseconds.values() for spent in own]

    @property
    def high(self) -> float:
        """The 95th percentile."""
        return statistics.quantiles(self.every, n=20)[-1]

    @property
    def slowest(self) -> str:
        """The slider with the longest median."""
        return max(self.milliseconds, key=lambda field: statistics.median(self.milliseconds[field]))


def latencies(chromium: Any, server: Server, query: str, fields: list[str], moves: int = MOVES) -> Moves:
    """Move the sliders of a view in turn, or without names all that change its curve; then drag the first one."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(server.address())
    opened(page, server, query)
    fields = fields or sliders(page)
    # Until the programs of these curves and of their previews are compiled:
    for field, position in [(fields[0], 210), (fields[0], 230), *((field, 250) for field in fields)]:
        moved(page, field, position)
        page.wait_for_timeout(500)
        page.wait_for_function("() => fetch('/api/status').then((r) => r.json()).then((s) => !s.compiling.length)",
                               polling=100, timeout=180_000)  # fmt: skip
    spent: dict[str, list[float]] = {field: [] for field in fields}
    previews = 0
    for k in range(max(moves, 4 * len(fields))):
        field = fields[k % len(fields)]
        took, whole = moved(page, field, 40 + (137 * (k // len(fields)) + 61 * (k % len(fields))) % 320)
        spent[field].append(took)
        previews += not whole
    settled, drawn = page.evaluate(DRAG, fields[0])
    context.close()
    return Moves(spent, previews, settled, drawn)


def fresh_curve(chromium: Any, server: Server, query: str) -> float:
    """Milliseconds from opening the printed address to the first curve, as soon as a new server has printed it."""
    page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(f"{server.address()}&{query.removeprefix('?')}", wait_until="commit")
    page.wait_for_function(
        # A function: an expression would be evaluated again at every look, which the page's policy forbids.
        "() => performance.getEntriesByName('first curve').length || window.Plotly?.version",
        timeout=300_000,
    )
    page.locator(".hero:not(.waits) .plot .main-svg").first.wait_for(timeout=300_000)
    spent = page.evaluate("performance.getEntriesByName('first curve')[0]?.startTime ?? performance.now()")
    page.locator(".hero:not(.draft) .plot").first.wait_for(timeout=300_000)  # so that the cache has its program
    page.wait_for_timeout(500)
    page.context.close()
    return spent


def thumbnails(chromium: Any, server: Server) -> float:
    """Milliseconds until every thumbnail is fetched and decoded, none of them from the browser's cache."""
    page = chromium.new_context().new_page()
    page.goto(server.address())
    page.locator(".card").first.wait_for()
    spent = page.evaluate(THUMBNAILS, list(listings()))
    page.context.close()
    return spent


def instant(query: str) -> bool:
    """Whether the theory of a view follows a slider."""
    model = dict(part.split("=", 1) for part in query.removeprefix("?").split("&"))["model"]
    return model_class(model)().cost_class() == "instant"


def explorer() -> Iterator[Row]:
    yield from rows()


def rows(models: list[str] | None = None, moves: int = MOVES) -> Iterator[Row]:
    if (why := missing()) is not None:
        yield Row("explorer", f"not measured: {why}", 0, unit="ms")
        return
    with browser() as chromium, tempfile.TemporaryDirectory() as cache:
        for name, most in (("no compiled programs", 3000), ("its program cache", 1500)):
            with served(SOLVABLE_CACHE=cache) as server:
                spent = fresh_curve(chromium, server, SWEEPS[0][1])
            yield Row("explorer", f"page open to first curve, server just started, {name}", spent, most=most, unit="ms")
    with served() as server, browser() as chromium:
        yield Row("explorer", f"all {len(listings())} thumbnails of the gallery", thumbnails(chromium, server), most=1000,
                  unit="ms")  # fmt: skip
        for name, query, fields in cases(models):
            found = latencies(chromium, server, query, fields, moves)
            number, previews = len(found.every), f", {found.previews} of them previews" if found.previews else ""
            yield Row(
                "explorer",
                f"{name}: slider to new curve, 95th percentile of {number} moves of {', '.join(found.milliseconds)}",
                found.high,
                most=SLIDER if instant(query) else None,
                unit="ms",
                note=f"median {statistics.median(found.every):.0f} ms{previews}; after 50 moves in 0.4 s the last curve was "
                f"drawn {found.settled:.0f} ms after release, {found.drawn + 1} curves in all",
            )
        first, whole = first_curve(chromium, server, SWEEPS[0][1])
        yield Row("explorer", "page open to first curve, warm server, median of 7", first, most=1500, unit="ms")
        yield Row("explorer", "page open to the interactive figure, median of 7", whole, unit="ms")


def main() -> int:
    about = argparse.ArgumentParser(prog="python -m benchmarks.explorer", description=__doc__)
    about.add_argument("models", nargs="*", metavar="MODEL", help="models whose sliders are moved (default: all)")
    about.add_argument("--moves", type=int, default=MOVES, help="moves of each slider, at least 2")
    chosen = about.parse_args()
    missed = 0
    for row in rows(chosen.models or None, max(2, chosen.moves)):
        most = "" if row.most is None else f" (at most {row.most:g}: {'yes' if row.met else 'NO'})"
        print(f"{row.ours:8.0f} {row.unit}{most}  {row.ours_is}. {row.note}", flush=True)
        missed += row.met is False
    print(f"{missed} limits missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
