"""How far a sweep has come: told from its plan and its manifests alone, without JAX, while others write."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .store import Entry, Store, StoreError, block_id

MOST_FAILURES = 3  # attempts at a block before it is given up
SHORTEST_PAUSE = 60.0  # seconds without a commit that may still be one long block
RECENT = 500  # commits from which the rate is taken


@dataclass(frozen=True)
class Status:
    """Blocks and cells of one study's plan; `rate` in cells per second, over the latest uninterrupted stretch of work.

    *Failed* blocks were given up after three attempts; *undone* ones are neither done nor given up.
    """

    study: str
    blocks: dict[str, int]
    cells: dict[str, int]
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
        if self.rate is not None:
            lines.append(f"rate    {self.rate:.3g} cells per second ({self.writers} writing)")
        if self.end is not None:
            lines.append(f"end     {self.end}, if the rest is like what was done")
        elif self.cells["undone"]:
            lines.append("end     unknown: nobody has committed lately")
        lines += [f"failed  {block[:12]}…: {error}" for block, error in self.errors.items()]
        return "\n".join(lines)


def stored_study(store: Store, name: str = "") -> tuple[str, dict[str, Any]]:
    """The name and specification of a stored study: the one asked for, or the latest."""
    names = [n for n in store.documents() if n.startswith("study-")]
    if not names:
        raise StoreError(f"The run at {store.path} holds no study.")
    if name and name not in names:
        raise StoreError(f"The run at {store.path} has no study {name!r}: it has {', '.join(names)}.")
    return name or names[-1], store.read_document(name or names[-1])


def planned_blocks(store: Store, specification: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The blocks of a study's plan, by id."""
    plan = f"plan-{block_id({'study': specification})[:24]}"
    if plan not in store.documents():
        raise StoreError(f"The run at {store.path} has no plan for its study yet: start it with `solvable sweep work`.")
    try:
        blocks = {block_id(b): b for b in store.read_document(plan)["blocks"]}
        sound = all(isinstance(b["seeds"], list) for b in blocks.values())
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise StoreError(f"Document {plan!r} of the run at {store.path} is no plan.")
    return blocks


def status(path: str | os.PathLike[str] | Store, study: str = "") -> Status:
    """How far the study in the run at `path` has come (the latest study, unless one is named)."""
    store = path if isinstance(path, Store) else Store.open(path)
    name, specification = stored_study(store, study)
    blocks = planned_blocks(store, specification)
    done, failed = store.done(), store.failed()
    kind = {
        b: "done" if b in done else "failed" if len(failed.get(b, ())) >= MOST_FAILURES else "undone" for b in blocks
    }
    number, cells = ({"all": 0, "done": 0, "failed": 0, "undone": 0} for _ in range(2))
    for block, said in blocks.items():
        for key in ("all", kind[block]):
            number[key] += 1
            cells[key] += len(said["seeds"])
    rate, last, writers, pause = pace([(done[b], len(said["seeds"])) for b, said in blocks.items() if b in done])
    end, now = None, datetime.now(UTC)
    if rate and last and cells["undone"] and (now - last).total_seconds() < pause:
        seconds = min(cells["undone"] / rate, 1e9)
        end = (now + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    errors = {b: failed[b][-1] for b in blocks if kind[b] == "failed"}
    return Status(name, number, cells, writers, rate, last.isoformat(timespec="seconds") if last else None, end, errors)


def pace(commits: list[tuple[Entry, int]]) -> tuple[float | None, datetime | None, int, float]:
    """Cells per second over the latest stretch without a pause, its end, its writers, and what counts as a pause."""
    timed = sorted(((when, entry.writer, n) for entry, n in commits if (when := _time(entry.time))), reverse=True)
    timed = timed[:RECENT]
    gaps = [(a[0] - b[0]).total_seconds() for a, b in zip(timed, timed[1:], strict=False)]
    pause = max(SHORTEST_PAUSE, 10 * statistics.median(gaps)) if gaps else SHORTEST_PAUSE
    stretch = 1 + next((i for i, gap in enumerate(gaps) if gap > pause), len(gaps))
    timed = timed[:stretch]
    if len(timed) < 2:
        return None, timed[0][0] if timed else None, len(timed), pause
    seconds = (timed[0][0] - timed[-1][0]).total_seconds()
    # The first commit only starts the clock: the time that its cells took is not known.
    rate = sum(n for _, _, n in timed[:-1]) / seconds if seconds > 0 else math.inf
    return (rate if math.isfinite(rate) else None), timed[0][0], len({writer for _, writer, _ in timed}), pause


def _time(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
        return when if when.tzinfo else None
    except ValueError:
        return None
