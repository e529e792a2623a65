"""Everything that a reader waits for on the page, on an idle machine, in one table that can be continued.

`python -m benchmarks.page [MODEL ...] [--keep FILE] [--minutes M]` measures one model after the other (a quarter of a minute
each): seconds to its curve, from Simulate to its first points and to its verdict, the 95th percentile of moves of all its sliders
where the theory is instant, and the memory of server and worker so far. What stands in the file already is not measured
again, and nothing new begins after nine minutes: the same command continues. `python -m benchmarks page` does so with one row
for every limit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import explorer, walking
from .browsing import browser, missing, served
from .rows import Row

MOVES = 40  # of the sliders of a model, in turn
PATIENCE = 25.0  # seconds after which a simulation is cancelled: its limit is 20
MINUTES = 9.0  # of one call
KEPT = Path(".cache/page.jsonl")
STARTS = (
    ("no compiled programs", "?model=perceptron&show=test_error", 3000),
    ("its program cache", "?model=perceptron&show=test_error", 1500),
    ("its program cache, a curve that was not shown before", "?model=perceptron&show=test_error&noise=0.3", None),
)


def starts() -> Iterator[dict[str, Any]]:
    """The first curve of a fresh server, without and with the programs in its cache, and all thumbnails."""
    with tempfile.TemporaryDirectory() as cache, served(SOLVABLE_CACHE=cache) as server:
        walking.visit(
            walking.Client(server), "perceptron", simulate=False
        )  # afterwards all modules have their bytecode
    with browser() as chromium, tempfile.TemporaryDirectory() as cache:
        for number, (name, query, most) in enumerate(STARTS, 1):
            with served(SOLVABLE_CACHE=cache) as server:
                spent = explorer.fresh_curve(chromium, server, query)
                yield {"what": f"first curve of a fresh server, {name}", "ms": spent, "most": most}
                if number == len(STARTS):
                    yield {"what": "all thumbnails", "ms": explorer.thumbnails(chromium, server), "most": 1000}


def models(ids: list[str], look: float) -> Iterator[dict[str, Any]]:
    """One server and one browser visit the models; the server begins without compiled programs."""
    with browser() as chromium, tempfile.TemporaryDirectory() as cache, served(SOLVABLE_CACHE=cache) as server:
        client, begun = walking.Client(server), time.monotonic()
        client.json("/api/stories")  # answered once everything is imported
        for model in ids:
            found = walking.visit(client, model, look=look, limit=PATIENCE)
            if follows(model):
                moves = explorer.latencies(chromium, server, f"?model={model}", [], MOVES)
                found |= {"slider": moves.high, "slowest": moves.slowest, "previews": moves.previews}
                found |= {"settled": moves.settled}
            yield found | {"minutes": (time.monotonic() - begun) / 60}


def follows(model: str) -> bool:
    """Whether the curve of a model should follow its sliders: its theory is instant."""
    return explorer.instant(f"?model={model}") and any(explorer.cases([model]))


def line(found: dict[str, Any]) -> str:
    """A row of the table, with a mark behind each number over its limit."""
    if "what" in found:
        late = found["most"] is not None and found["ms"] > found["most"]
        return f"{found['what']}: {found['ms']:.0f} ms{'!' if late else ''}"
    p95 = found.get("slider")
    shown = "     -  " if p95 is None else f"{p95:6.0f}{'! ' if p95 > explorer.SLIDER else '  '}"
    return f"{shown}{walking.line(found)}"


def measured(ids: list[str], file: Path, minutes: float, look: float = 0.0) -> Iterator[dict[str, Any]]:
    """What stands in the file, then what is measured now, until the time is over; each is added to the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * minutes
    kept = [json.loads(text) for text in file.read_text().splitlines()] if file.is_file() else []
    yield from kept
    known = {found.get("model", found.get("what")) for found in kept}
    todo = [id for id in ids if id not in known]
    parts = [*([] if "all thumbnails" in known else [starts()]), *([models(todo, look)] if todo else [])]
    for found in itertools.chain.from_iterable(parts):
        if found.get("what") in known:
            continue
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(found) + "\n")
        yield found
        if time.monotonic() > end:
            return


def page() -> Iterator[Row]:
    """One row for every limit, from all that has been measured so far."""
    from solvable.registry import listings

    if (why := missing()) is not None:
        yield Row("page", f"not measured: {why}", 0, unit="ms")
        return
    kept = list(measured(list(listings()), KEPT, MINUTES))
    for found in kept:
        if "what" in found:
            yield Row("page", found["what"], found["ms"], most=found["most"], unit="ms")
    visited = [found for found in kept if "model" in found]
    number = f"{len(visited)} of {len(listings())} models"

    def over(limit: float, waits: dict[str, float]) -> str:
        late = sorted((m for m, s in waits.items() if s > limit), key=lambda m: -waits[m])
        return f"over {limit:g}: {', '.join(f'{m} {waits[m]:.1f}' for m in late)}" if late else ""

    never = 999.0
    points = {f["model"]: f.get("first_points") or never for f in visited}
    verdicts = {f["model"]: f["simulated"] if walking.decided(f) else never for f in visited}
    moves = {f["model"]: f["slider"] for f in visited if "slider" in f}
    for what, waits, most, unit in (
        ("Simulate to the first points", points, walking.FIRST_POINTS, "s"),
        ("Simulate to a verdict that decides", verdicts, walking.DECIDED, "s"),
        ("slider to new curve, 95th percentile, instant theories", moves, float(explorer.SLIDER), "ms"),
    ):
        if waits:
            name = f"{what}: slowest of {len(waits)} ({number} visited)"
            yield Row("page", name, max(waits.values()), most=most, unit=unit, note=over(most, waits))
    if visited:
        largest = max(found["server_mb"] for found in visited)
        yield Row("page", f"memory of the server, {number} visited", largest, most=walking.MEMORY, unit="MB")


def main() -> int:
    from solvable.registry import listings

    about = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    about.add_argument("models", nargs="*", metavar="MODEL", help="only these (default: all)")
    about.add_argument("--keep", type=Path, default=KEPT, help="where measurements are kept")
    about.add_argument("--minutes", type=float, default=MINUTES, help="begin nothing new after this time")
    about.add_argument("--look", type=float, default=0.0, help="seconds between the curve and Simulate")
    chosen = about.parse_args()
    if (why := missing()) is not None:
        print(why, file=sys.stderr)
        return 2
    kept = []
    print(f"slider  {walking.HEAD}")
    for found in measured(chosen.models or list(listings()), chosen.keep, chosen.minutes, chosen.look):
        kept.append(found)
        print(line(found), flush=True)
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
