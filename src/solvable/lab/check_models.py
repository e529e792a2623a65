"""`solvable check`: all parts of the check of some or all models, in one table, on as many processes as wanted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from ..errors import InvalidValue, SolvableError
from ..model import Model
from ..registry import listings, model_class
from ..testing import corners, examine_corner
from ._files import write_atomically
from .check import (
    Checked,
    check_agreement,
    check_contract,
    check_controls,
    check_inconclusive,
    check_studies,
    check_values,
    reference_folder,
)

Say = Callable[[str], None]
PARTS = 20  # a process is replaced after so many parts, because compiled programs fill its memory


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the check of one model, computed by itself."""

    model: str
    kind: str  # contract, controls, corner, references or agreement
    name: str = ""  # of the corner, or the number of the agreement study
    full: bool = False

    def __str__(self) -> str:
        return f"{self.model}: {self.kind}" + (f" {self.name}" if self.name else "")


def parts(ids: Iterable[str], full: bool = False, with_corners: bool = False) -> Iterator[Part]:
    """What `solvable check` does for these models.

    >>> [part.kind for part in parts(["prior-predictive"])]
    ['contract', 'controls', 'references', 'agreement', 'agreement']
    """
    for id in ids:
        kind = model_class(id)
        has_theory = kind.point is not Model.point
        yield Part(id, "contract")
        yield Part(id, "controls")
        if with_corners and has_theory:
            yield from (Part(id, "corner", name) for name, _ in corners(kind))
        if has_theory or (reference_folder() / f"{id}.json").exists():  # experiments may have no exact values
            yield Part(id, "references")
        if has_theory and kind.experiment is not Model.experiment:
            yield from (Part(id, "agreement", str(n), full) for n in range(len(check_studies(kind, full))))


def check_part(part: Part) -> list[Checked]:
    """Compute one part."""
    id, kind = part.model, model_class(part.model)
    if part.kind == "contract":
        return [check_contract(id, kind)]
    if part.kind == "controls":
        return [check_controls(id, kind)]
    if part.kind == "corner":
        found = next(examine_corner(name, model) for name, model in corners(kind) if name == part.name)
        return [Checked(id, f"corner: {f.promise}", f.kept, f.seen) for f in found]
    if part.kind == "references":
        file = reference_folder() / f"{id}.json"
        if not file.exists():
            return [Checked(id, "reference values", False, f"{file.name} does not exist")]
        return check_values(file)
    return check_agreement(id, kind, int(part.name), part.full)


def check_models(
    ids: Iterable[str] = (),
    *,
    full: bool = False,
    corners: bool = False,
    jobs: int = 1,
    keep: Path | None = None,
    say: Say = lambda _: None,
) -> list[Checked]:
    """Check some or all models; `full` runs larger studies, `corners` adds the corners of the allowed ranges.

    With `jobs` above one, parts are computed in as many processes. Parts that passed are kept in the folder `keep`, if it is
    given, and are not computed again: use a folder for one version of the code only.
    """
    chosen = list(ids) or list(listings())
    todo = list(parts(chosen, full, corners))
    done: dict[Part, list[Checked]] = {}
    if keep is not None:
        done = {part: rows for part in todo if (rows := _kept(keep, part)) is not None}
        if done:
            say(f"{len(done)} of {len(todo)} parts have passed before")
    left = [part for part in todo if part not in done]
    for part, rows, seconds in _computed(left, min(jobs, len(left)), say):
        done[part] = rows
        failed = sum(not row.passed for row in rows)
        say(f"{part}: {seconds:.0f} s" + (f", {failed} FAILED" if failed else ""))
        if keep is not None and not failed:
            keep.mkdir(parents=True, exist_ok=True)
            write_atomically(str(_file(keep, part)), json.dumps([dataclasses.asdict(row) for row in rows]).encode())
    report = []
    for id in chosen:
        report += [row for part in todo if part.model == id for row in done[part]]
        studied = [row for part in todo if part.model == id and part.kind == "agreement" for row in done[part]]
        if studied:
            report.append(check_inconclusive(id, model_class(id), studied))
    return report


def _computed(todo: list[Part], jobs: int, say: Say) -> Iterator[tuple[Part, list[Checked], float]]:
    """The parts as they are done, with the seconds that each took."""
    if jobs <= 1:
        for part in todo:
            say(str(part))
            yield part, *_timed(part)
        return
    context = multiprocessing.get_context("spawn")
    settings = {"mp_context": context, "initializer": _share_cores, "initargs": (jobs, context.Value("i", 0))}
    pool = ProcessPoolExecutor(jobs, max_tasks_per_child=PARTS, **settings)
    try:
        running: dict[Future, Part] = {pool.submit(_timed, part): part for part in todo}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), *future.result()
    except BrokenProcessPool:
        left = ", ".join(map(str, running.values()))
        raise SolvableError(f"a process ended before its part was done (out of memory?); not done: {left}.") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _timed(part: Part) -> tuple[list[Checked], float]:
    begun = time.perf_counter()
    return check_part(part), time.perf_counter() - begun


def _share_cores(jobs: int, counter) -> None:
    """Give each of several processes its own cores; otherwise each starts as many threads as there are cores."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // jobs
    if share:
        with counter.get_lock():
            number, counter.value = counter.value, counter.value + 1
        os.sched_setaffinity(0, cores[number % jobs * share :][:share])


def _file(folder: Path, part: Part) -> Path:
    return folder / f"{part.model}-{part.kind}-{hashlib.sha256(repr(part).encode()).hexdigest()[:12]}.json"


def _kept(folder: Path, part: Part) -> list[Checked] | None:
    """The rows of a part that passed before."""
    try:
        return [Checked(**row) for row in json.loads(_file(folder, part).read_text())]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        raise InvalidValue(f"the file {str(_file(folder, part))!r} does not hold a part of a check.") from None
