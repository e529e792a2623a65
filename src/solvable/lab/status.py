"""Progress of a sweep, computed from its plan and manifests without JAX, while other processes write."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .leases import Claims
from .store import Entry, Store, StoreError
from .stored_plans import Plan, plan_name

MOST_FAILURES = 3  # attempts at a block before it is given up
SHORTEST_PAUSE = 60.0  # seconds without a commit that may still be one long block
RECENT = 100  # commits used for the rate


@dataclass(frozen=True)
class Status:
    """Blocks and cells of one study's plan; `rate` in cells per second, over the latest uninterrupted stretch of work.

    *Failed* blocks were given up after three attempts; *undone* blocks are neither done nor failed, and some of them are
    *running*: a live worker has claimed them.
    """

    study: str
    blocks: dict[str, int]
    cells: dict[str, int]
    running: dict[str, int] = field(default_factory=lambda: {"blocks": 0, "cells": 0})
    writers: int = 0
    rate: float | None = None
    last: str | None = None
    end: str | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every block is done."""
        return self.blocks["done"] == self.blocks["all"]

    def __str__(self) -> str:
        def counted(numbers: Mapping[str, int]) -> str:
            return f"{numbers['done']} of {numbers['all']} done, {numbers['failed']} failed, {numbers['undone']} undone"

        lines = [f"{self.study}", f"blocks  {counted(self.blocks)}", f"cells   {counted(self.cells)}"]
        if self.running["blocks"]:
            lines.append(f"running {self.running['blocks']} blocks, {self.running['cells']} cells")
        if self.rate is not None:
            lines.append(f"rate    {self.rate:.3g} cells per second ({self.writers} wrote)")
        if self.end is not None:
            lines.append(f"end     {self.end}, if the rest takes as long per cell")
        elif self.cells["undone"]:
            lines.append("end     unknown: no recent commits")
        lines += [f"failed  {block[:12]}…: {error}" for block, error in self.errors.items()]
        return "\n".join(lines)


def stored_study(store: Store, name: str = "") -> tuple[str, dict[str, Any]]:
    """The name and specification of a stored study, by default the latest."""
    names = [n for n in store.documents() if n.startswith("study-")]
    if not names:
        raise StoreError(f"The run at {store.path} contains no study.")
    if name and name not in names:
        raise StoreError(f"The run at {store.path} has no study {name!r}: it has {', '.join(names)}.")
    return name or names[-1], store.read_document(name or names[-1])


def stored_plan(store: Store, specification: Mapping[str, Any]) -> Plan:
    """The plan of a stored study."""
    name = plan_name(specification)
    if name not in store.documents():
        raise StoreError(f"The run at {store.path} has no plan for its study yet: start it with `solvable sweep work`.")
    return Plan(store, name)


def status(path: str | os.PathLike[str] | Store, study: str = "") -> Status:
    """The progress of a study in the run at `path` (by default the latest study)."""
    store = path if isinstance(path, Store) else Store.open(path)
    name, specification = stored_study(store, study)
    rows = stored_plan(store, specification).rows
    done, failed = store.done(), store.failed()
    number, cells = ({"all": 0, "done": 0, "failed": 0, "undone": 0} for _ in range(2))
    running, errors, commits = {"blocks": 0, "cells": 0}, {}, []
    with Claims(store.path, observer=True) as claims:
        busy = set(claims.running())
    for row in rows:
        block = row.block
        kind = "done" if block in done else "failed" if len(failed.get(block, ())) >= MOST_FAILURES else "undone"
        for key in ("all", kind):
            number[key] += 1
            cells[key] += row.cells
        if kind == "done":
            commits.append((done[block], row.cells))
        elif kind == "failed":
            errors[block] = failed[block][-1]
        if kind != "done" and block in busy:
            running = {"blocks": running["blocks"] + 1, "cells": running["cells"] + row.cells}
    rate, last, writers, pause = pace(commits)
    end, now = None, datetime.now(UTC)
    if rate and last and cells["undone"] and (running["blocks"] or abs((now - last).total_seconds()) < pause):
        seconds = min(cells["undone"] / rate, 1e9)
        end = (now + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    when = last.isoformat(timespec="seconds") if last else None
    return Status(name, number, cells, running, writers, rate, when, end, errors)


def pace(commits: list[tuple[Entry, int]]) -> tuple[float | None, datetime | None, int, float]:
    """Cells per second over the latest stretch without a pause, its end, its writers, and the length of a pause."""
    timed = sorted(((when, entry.writer, n) for entry, n in commits if (when := _time(entry.time))), reverse=True)
    timed = timed[:RECENT]
    gaps = [(a[0] - b[0]).total_seconds() for a, b in zip(timed, timed[1:], strict=False)]
    pause = max(SHORTEST_PAUSE, 10 * statistics.median(gaps)) if gaps else SHORTEST_PAUSE
    stretch = 1 + next((i for i, gap in enumerate(gaps) if gap > pause), len(gaps))
    timed = timed[:stretch]
    if len(timed) < 2:
        return None, timed[0][0] if timed else None, len(timed), pause
    seconds = (timed[0][0] - timed[-1][0]).total_seconds()
    # The first commit only starts the clock, because the duration of its cells is unknown.
    rate = sum(n for _, _, n in timed[:-1]) / seconds if seconds > 0 else None
    return rate, timed[0][0], len({writer for _, writer, _ in timed}), pause


def _time(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
        return when if when.tzinfo else None
    except ValueError:
        return None
