"""Everything that a reader waits for on the page, on an idle machine, in one table that can be continued.

`python -m benchmarks.page [MODEL ...] [--keep FILE] [--minutes M]` measures one model after the other (half a minute each):
seconds to its curve, from Simulate to its first points and to its verdict, the 95th percentile of a slider's moves where
the theory is instant, and the memory of server and worker so far. What stands in the file already is not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import explorer, walking
from .browsing import browser, missing, served

MOVES = 30
PATIENCE = 40.0  # seconds after which a simulation is cancelled: its limit is half of that
STARTS = ("no compiled programs", "its program cache")


def starts() -> Iterator[dict[str, Any]]:
    """The first curve of a fresh server, without and with the programs in its cache, and all thumbnails."""
    with browser() as chromium, tempfile.TemporaryDirectory() as cache:
        for name, most in zip(STARTS, (3000, 1500), strict=True):
            with served(SOLVABLE_CACHE=cache) as server:
                spent = explorer.fresh_curve(chromium, server, explorer.SWEEPS[0][1])
                yield {"what": f"first curve of a fresh server, {name}", "ms": spent, "most": most}
                if name == STARTS[-1]:
                    yield {"what": "all thumbnails", "ms": explorer.thumbnails(chromium, server), "most": 1000}


def models(ids: list[str], look: float) -> Iterator[dict[str, Any]]:
    """One server and one browser visit the models; the server begins without compiled programs."""
    with browser() as chromium, tempfile.TemporaryDirectory() as cache, served(SOLVABLE_CACHE=cache) as server:
        client, begun = walking.Client(server), time.monotonic()
        client.json("/api/stories")  # answered once everything is imported
        for model in ids:
            found = walking.visit(client, model, look=look, limit=PATIENCE)
            if slider := slider_of(model):
                query, field = slider
                spent, settled, _ = explorer.latencies(chromium, server, query, field, MOVES)
                found |= {"slider": statistics.quantiles(spent, n=20)[-1], "settled": settled}
            yield found | {"minutes": (time.monotonic() - begun) / 60}


def slider_of(model: str) -> tuple[str, str] | None:
    """The first view of a model with an instant theory, and a slider in it."""
    query = f"?model={model}"
    if not explorer.instant(query):
        return None
    return next(((q, field) for name, q, field in explorer.cases([model]) if name.endswith("first view")), None)


def line(found: dict[str, Any]) -> str:
    """A row of the table, with a mark behind each number over its limit."""
    if "what" in found:
        return f"{found['what']}: {found['ms']:.0f} ms{'!' if found['ms'] > found['most'] else ''}"
    p95 = found.get("slider")
    shown = "     -  " if p95 is None else f"{p95:6.0f}{'! ' if p95 > explorer.SLIDER else '  '}"
    return f"{shown}{walking.line(found)}"


def main() -> int:
    from solvable.registry import listings

    about = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    about.add_argument("models", nargs="*", metavar="MODEL", help="only these (default: all)")
    about.add_argument("--keep", type=Path, default=Path(".cache/page.jsonl"), help="where measurements are kept")
    about.add_argument("--minutes", type=float, default=25.0, help="begin nothing new after this time")
    about.add_argument("--look", type=float, default=0.0, help="seconds between the curve and Simulate")
    chosen = about.parse_args()
    if (why := missing()) is not None:
        print(why, file=sys.stderr)
        return 2
    chosen.keep.parent.mkdir(parents=True, exist_ok=True)
    kept = [json.loads(text) for text in chosen.keep.read_text().splitlines()] if chosen.keep.is_file() else []
    end = time.monotonic() + 60 * chosen.minutes
    print(f"slider  {walking.HEAD}")
    for found in kept:
        print(line(found))
    known = {found.get("model", found.get("what")) for found in kept}
    todo = [id for id in chosen.models or listings() if id not in known]
    parts = [*([] if "all thumbnails" in known else [starts()]), *([models(todo, chosen.look)] if todo else [])]
    for found in itertools.chain.from_iterable(parts):
        if found.get("what") in known:
            continue
        kept.append(found)
        print(line(found), flush=True)
        with chosen.keep.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        if time.monotonic() > end:
            break
    print(summary(kept))
    return 0


def summary(kept: list[dict[str, Any]]) -> str:
    """How many models keep each limit."""
    visited = [found for found in kept if "model" in found]
    if not visited:
        return "no model was visited"
    points = sum((f.get("first_points") or 1e9) <= walking.FIRST_POINTS for f in visited)
    done = sum(walking.decided(f) and f["simulated"] <= walking.DECIDED for f in visited)
    moved = [f["slider"] for f in visited if "slider" in f]
    return (
        f"{len(visited)} models: first points within {walking.FIRST_POINTS:g} s {points}, decided within "
        f"{walking.DECIDED:g} s {done}, sliders within {explorer.SLIDER} ms {sum(s <= explorer.SLIDER for s in moved)} of "
        f"{len(moved)}; largest server {max(f['server_mb'] for f in visited):.0f} MB, largest worker "
        f"{max(f['worker_mb'] for f in visited):.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
