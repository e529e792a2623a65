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
from typing import Any

from solvable.registry import listings, model_class

from .browsing import Server, browser, missing, moved, opened, served
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


def cases(models: list[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """The measured cases: a name, a view and the slider that is moved."""
    for model, query, field in SWEEPS:
        if model in (models or listings()):
            yield f"{model} against {_axis(query)}", query, field
    for model in models or listings():
        made = model_class(model)()
        if made.has_theory and not made.unprepared:
            fields = list(made.controls())
            field = fields[0] if len(fields) == 1 or any(o.dims for o in made.observables().values()) else fields[1]
            yield f"{model}, first view", f"?model={model}", field


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
      if (Number(event.detail.values[field].toPrecision(4)) !== Number(wanted)) return;
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


def latencies(
    chromium: Any, server: Server, query: str, field: str, moves: int = MOVES
) -> tuple[list[float], float, int]:
    """Milliseconds of single moves; then from the end of a drag of 50 moves to its last curve, and its number of curves."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(server.address())
    opened(page, server, query)
    for position in (210, 230, 250):  # until the programs of these curves and their previews are compiled
        moved(page, field, position)
        page.wait_for_timeout(500)
        page.wait_for_function("() => fetch('/api/status').then((r) => r.json()).then((s) => !Object.keys(s.compiling).length)",
                               polling=500, timeout=180_000)  # fmt: skip
    spent = [moved(page, field, 40 + (137 * k) % 320) for k in range(moves)]
    settled, drawn = page.evaluate(DRAG, field)
    context.close()
    return spent, settled, drawn


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
        for name, query, field in cases(models):
            spent, settled, drawn = latencies(chromium, server, query, field, moves)
            high = statistics.quantiles(spent, n=20)[-1]
            yield Row(
                "explorer",
                f"{name}: slider to new curve, 95th percentile of {len(spent)} moves of {field}",
                high,
                most=SLIDER if instant(query) else None,
                unit="ms",
                note=f"median {statistics.median(spent):.0f} ms; after 50 moves in 0.4 s the last curve was drawn "
                f"{settled:.0f} ms after release, {drawn + 1} curves in all",
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
