"""`solvable check --corners` in parts, each in a process of its own, on a machine of many cores and within a time budget.

`python tests/check_parts.py --out TABLE.tsv --seconds 450 --processes 14 MODEL ...` writes a line as soon as a part is done:
model, part, ok or FAIL, what was seen, seconds. What was not reached is said to be so. The exit code is 1 if a part failed, 2 if
some were not reached.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

PARTS = ("contract", "controls", "reference values", "agreement")


def parts_of(id: str) -> list[tuple[str, str]]:
    """The parts of a model's check: corners first, which take longest."""
    from solvable.model import Model
    from solvable.registry import model_class
    from solvable.testing.corner_cases import corners

    kind = model_class(id)
    cornered = kind.point is not Model.point
    simulated = cornered and kind.experiment is not Model.experiment
    wanted = {"contract": True, "controls": True, "reference values": cornered, "agreement": simulated}
    found = [(id, f"corner: {name}") for name, _ in corners(kind)] if cornered else []
    return [*((id, part) for part in PARTS[::-1] if wanted[part]), *found]


def check_part(id: str, part: str) -> tuple[list[tuple[str, str, bool, str]], float]:
    """The rows of one part, and the seconds that it took."""
    from solvable.lab import check
    from solvable.lab.jax_environment import configure
    from solvable.registry import model_class

    configure()
    begun, kind = time.perf_counter(), model_class(id)
    if part == "contract":
        rows = [check._contract(id, kind)]
    elif part == "controls":
        rows = [check.check_controls(id, kind)]
    elif part == "reference values":
        file = check.reference_folder() / f"{id}.json"
        rows = check.check_values(file)
    elif part == "agreement":
        rows = check._agreement(id, kind, False)
    else:
        rows = list(_corner(id, kind, part.removeprefix("corner: ")))
    return [(r.model, r.part, r.passed, r.seen) for r in rows], time.perf_counter() - begun


def _corner(id: str, kind: Any, wanted: str) -> Iterator[Any]:
    from solvable.lab.check import Checked
    from solvable.testing import corner_cases

    for name, model in corner_cases.corners(kind):
        if name == wanted:
            found = corner_cases.guarded(lambda m: corner_cases._corner(m, wanted), model)
            yield from (Checked(id, f"corner: {f.promise}", f.kept, f.seen) for f in found)


def main() -> int:
    about = argparse.ArgumentParser(description=__doc__)
    about.add_argument("models", nargs="+")
    about.add_argument("--out", type=Path, required=True)
    about.add_argument("--seconds", type=float, default=450.0)
    about.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    about.add_argument("--only", default="", help="only parts with this in their name")
    chosen = about.parse_args()
    begun = time.monotonic()
    parts = [part for id in chosen.models for part in parts_of(id) if chosen.only in part[1]]
    failed = 0
    # One process per part: what it compiled is given back, and a crash takes nothing else with it.
    pool = ProcessPoolExecutor(
        chosen.processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    )
    waiting: dict[Future[Any], tuple[str, str]] = {pool.submit(check_part, *part): part for part in parts}
    with chosen.out.open("w") as table:
        while waiting and (left := chosen.seconds - (time.monotonic() - begun)) > 0:
            for done in wait(waiting, timeout=left, return_when=FIRST_COMPLETED).done:
                id, part = waiting.pop(done)
                try:
                    rows, seconds = done.result()
                except Exception as problem:
                    rows, seconds = [(id, part, False, f"{type(problem).__name__}: {problem}")], float("nan")
                for model, what, passed, seen in rows:
                    failed += not passed
                    print(model, what, "ok" if passed else "FAIL", seen, f"{seconds:.0f}", sep="\t", file=table, flush=True)
        for id, part in waiting.values():
            print(id, part, "not reached", "", "", sep="\t", file=table, flush=True)
    for process in list(pool._processes.values()):
        os.kill(process.pid, signal.SIGKILL)
    print(f"{len(parts) - len(waiting)} of {len(parts)} parts done, {failed} rows failed", flush=True)
    os._exit(1 if failed else 2 if waiting else 0)


if __name__ == "__main__":
    main()
