"""`solvable check`: all parts of the check of some or all models, in one table, on as many processes as wanted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from ..errors import InvalidValue
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
from .sources import fingerprint

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
    given, and are not computed again until a source that they rest on, or a library, changes.
    """
    chosen = list(ids) or list(listings())
    todo = list(parts(chosen, full, corners))
    done: dict[Part, list[Checked]] = {}
    if keep is not None:
        done = {part: rows for part in todo if (rows := kept(keep, part)) is not None}
        if done:
            say(f"{len(done)} of {len(todo)} parts have passed before")
    left = [part for part in todo if part not in done]
    for part, rows, seconds in computed(left, min(jobs, len(left)), say):
        done[part] = rows
        failed = [row for row in rows if not row.passed]
        say(f"{part}: {seconds:.0f} s" + "".join(f"\n  FAILED {row.part}: {row.seen}" for row in failed))
        if keep is not None and not failed:
            keep_part(keep, part, rows, seconds)
    report = []
    for id in chosen:
        report += [row for part in todo if part.model == id for row in done[part]]
        studied = [row for part in todo if part.model == id and part.kind == "agreement" for row in done[part]]
        if studied:
            report.append(check_inconclusive(id, model_class(id), studied))
    return report


def computed(todo: Sequence[Part], jobs: int, say: Say) -> Iterator[tuple[Part, list[Checked], float]]:
    """The parts as they are done, with the seconds that each took."""
    if jobs <= 1:
        for part in todo:
            say(str(part))
            yield part, *_timed(part)
        return
    waiting, done = deque(todo), SimpleQueue[tuple[Part, list[Checked], float]]()
    threads = [Thread(target=_work, args=(waiting, done, cores), daemon=True) for cores in _shares(jobs)]
    try:
        for thread in threads:
            thread.start()
        for _ in todo:
            yield done.get()
    finally:
        waiting.clear()


def _work(waiting: deque[Part], done: SimpleQueue, cores: list[int]) -> None:
    """Compute parts in a process on these cores, which is replaced when it has ended or has done many.

    An executor that replaces its processes by itself (`max_tasks_per_child`) stops doing so in Python 3.11 to 3.13.
    """
    while waiting:
        with ProcessPoolExecutor(1, get_context("spawn"), _stay_on, (cores,)) as process:
            for _ in range(PARTS):
                try:
                    part = waiting.popleft()
                except IndexError:
                    return
                begun = time.perf_counter()
                try:
                    done.put((part, *process.submit(_timed, part).result()))
                except BrokenProcessPool:
                    ended = Checked(
                        part.model, str(part), False, "its process ended before it was done (out of memory?)"
                    )
                    done.put((part, [ended], time.perf_counter() - begun))
                    break


def _timed(part: Part) -> tuple[list[Checked], float]:
    begun = time.perf_counter()
    try:
        rows = check_part(part)
    except Exception as problem:  # one part that cannot be computed must not end all others
        rows = [Checked(part.model, f"{part.kind} {part.name}".strip(), False, f"{type(problem).__name__}: {problem}")]
    return rows, time.perf_counter() - begun


def _shares(jobs: int) -> list[list[int]]:
    """The cores of each of several processes; otherwise each starts as many threads as there are cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(cores) // jobs
    return [cores[number * share :][:share] for number in range(jobs)]


def _stay_on(cores: list[int]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)


def _file(folder: Path, part: Part) -> Path:
    digest = hashlib.sha256(f"{part!r} {_version(part.model)}".encode()).hexdigest()
    return folder / f"{part.model}-{part.kind}-{digest[:12]}.json"


@cache
def _version(id: str) -> str:
    """A hash of all that the check of a model rests on, which pictures are not."""
    modules = [model_class(id).__module__, __name__]
    return fingerprint(modules, [reference_folder() / f"{id}.json"], without=("solvable.render",))


def keep_part(folder: Path, part: Part, rows: Iterable[Checked], seconds: float) -> None:
    """Keep the rows of a part that passed, and how long it took."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"part": str(part), "seconds": round(seconds, 1), "rows": [dataclasses.asdict(row) for row in rows]}
    write_atomically(str(_file(folder, part)), json.dumps(contents, ensure_ascii=False).encode())


def kept(folder: Path, part: Part) -> list[Checked] | None:
    """The rows of a part that passed before."""
    try:
        return [Checked(**row) for row in json.loads(_file(folder, part).read_text(encoding="utf-8"))["rows"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        raise InvalidValue(f"the file {str(_file(folder, part))!r} does not hold a part of a check.") from None
