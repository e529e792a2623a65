"""`solvable check`: the contract, the reference values and a small agreement study of every model, in one table."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidValue, SolvableError
from ..model import Model, Outcome
from ..registry import listings, model_class
from ..study import Study
from ..testing import Finding, examine_corners, examine_model, guard_model, picked

CASE = {"model", "params", "observable", "value", "tolerance", "provenance"}


@dataclasses.dataclass(frozen=True)
class Checked:
    """One line of the table."""

    model: str
    part: str
    passed: bool
    seen: str
    inconclusive: int = 0  # rows of an agreement that were too noisy to say anything


def reference_folder() -> Path:
    """Where the reference values lie: inside an installed package, or beside the sources."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "reference"
    return inside if inside.is_dir() else package.parents[1] / "tests" / "reference"


def load_cases(file: Path) -> list[dict[str, Any]]:
    """The cases of a file of reference values, or one sentence about what is wrong with it."""
    try:
        cases = json.loads(Path(file).read_text())
    except OSError as problem:
        raise InvalidValue(f"the file {str(file)!r} cannot be read: {problem.strerror}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise InvalidValue(f"the file {str(file)!r} is not valid JSON.") from None
    if not isinstance(cases, list):
        raise InvalidValue(f"the file {str(file)!r} is not a list of cases.")
    for i, case in enumerate(cases):
        missing = CASE - {"provenance"} - set(case) if isinstance(case, dict) else CASE
        if missing:
            raise InvalidValue(f"case {i} of {str(file)!r} lacks {', '.join(sorted(missing))}.")
        if not isinstance(case["params"], dict):
            raise InvalidValue(f"case {i} of {str(file)!r}: params is not an object of field names and values.")
    return cases


def evaluate_case(case: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """The theory's value for a case, and how far it is from the reference.

    A case with `simulate`, say `{"size": 1000, "seed": 0}`, looks at that realisation instead: exact counts of an
    experiment.
    """
    model = model_class(case["model"]).create(**case["params"])
    if "simulate" in case:
        outcome = _simulated(case["model"], json.dumps(case["params"]), json.dumps(case["simulate"]))
    else:
        outcome = model.theory(case.get("numerics"))
    return picked(model, case, outcome)


@lru_cache(maxsize=4)
def _simulated(id: str, params: str, how: str) -> Outcome:
    """One realisation; several cases that differ only in what they look at share it."""
    settings = json.loads(how)
    if not isinstance(settings, dict) or set(settings) != {"size", "seed"}:
        raise InvalidValue(f"simulate = {how} is not an object with a size and a seed.")
    return model_class(id).create(**json.loads(params)).simulate(settings["seed"], settings["size"])


def check_case(case: Mapping[str, Any]) -> Checked:
    """One reference value against the theory, or against a realisation."""
    settings = ", ".join(f"{k}={_brief(v)}" for k, v in case["params"].items())
    part = f"{case['observable']}({settings})" + (f" in {json.dumps(case['simulate'])}" if "simulate" in case else "")
    try:
        value, gap = evaluate_case(case)
        seen = f"{_brief(value)} against {_brief(case['value'])}, off by {gap:.1e} of {float(np.max(case['tolerance'])):.1e}"
        return Checked(case["model"], part, bool(gap <= np.max(case["tolerance"])), seen)
    except SolvableError as problem:
        return Checked(case["model"], part, False, str(problem))


def check_values(file: Path, only: Iterable[str] = ()) -> list[Checked]:
    """Every case of a file."""
    wanted = set(only)
    return [check_case(c) for c in load_cases(file) if not wanted or c["model"] in wanted]


def guard(id: str) -> list[Finding]:
    """What `make test` asks of a registered model: its contract, its reference values, a small simulation."""
    file, kind = reference_folder() / f"{id}.json", model_class(id)
    cases = load_cases(file) if file.exists() else []
    findings = guard_model(kind, cases)
    if kind.point is Model.point:  # exact counts of realisations of the guard's own size: no further program
        size = kind.guard.size or kind.typical_sizes[0]
        for row in map(check_case, (case for case in cases if case.get("simulate", {}).get("size") == size)):
            findings.append(Finding(f"the reference value of {row.part} holds", row.passed, row.seen))
    return findings


def check_models(
    ids: Iterable[str] = (),
    *,
    full: bool = False,
    corners: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> list[Checked]:
    """The whole table for some models, or for all: with a larger study if `full`, with the `corners` of what is allowed."""
    chosen = list(ids) or list(listings())
    classes = {id: model_class(id) for id in chosen}
    report = []
    for id, kind in classes.items():
        begun = time.perf_counter()
        say(f"{id}: contract")
        report.append(_contract(id, kind))
        if corners and kind.point is not Model.point:
            found = examine_corners(kind, say)
            report += [Checked(id, f"corner: {f.promise}", f.kept, f.seen) for f in found]
        file = reference_folder() / f"{id}.json"
        say(f"{id}: reference values")
        if file.exists():
            report += check_values(file)
        elif kind.point is not Model.point:  # an experiment may have nothing exact to compare with
            report.append(Checked(id, "reference values", False, f"there is no {file.name}"))
        if kind.point is not Model.point and kind.experiment is not Model.experiment:
            say(f"{id}: agreement study")
            report += _agreement(id, kind, full)
        say(f"{id}: {time.perf_counter() - begun:.0f} s")
    return report


def _contract(id: str, kind: type[Model]) -> Checked:
    findings = examine_model(kind)
    broken = [f for f in findings if not f.kept]
    seen = "; ".join(f"{f.promise}: {f.seen}" for f in broken) if broken else f"{len(findings)} promises kept"
    return Checked(id, "contract", not broken, seen)


def check_studies(kind: type[Model], full: bool = False) -> list[tuple[Study, tuple[str, ...]]]:
    """The agreement studies of a model, each with the observables to judge (none: all).

    They are what the model declares in `check_study`, or its defaults at its typical sizes.
    """
    declared = kind.check_study or {}
    several = declared if isinstance(declared, (list, tuple)) else [declared]
    studies = []
    for each in several:
        options: dict[str, Any] = {"sizes": kind.typical_sizes, "seeds": 12, **each}
        values, judged = options.pop("values", {}), tuple(options.pop("judge", ()))
        if full:
            options["sizes"] = [*options["sizes"], 2 * options["sizes"][-1]]
            options["seeds"] = 3 * options["seeds"]
        studies.append((Study(kind.create(**values), **options), judged))
    return studies


def _agreement(id: str, kind: type[Model], full: bool) -> list[Checked]:
    rows, compared = [], 0
    for study, judged in check_studies(kind, full):
        study.run(progress=False)
        table = study.agreement(judged)
        for name in table.observables:
            counts = table.counts(name)
            settings = ", ".join(f"{n} {v}" for v, n in counts.items())
            seeds = max(r.seeds for r in table if r.observable == name)
            passed = "disagree" not in counts and "undefined" not in counts
            seen = f"{settings} (d = {list(table.sizes)}, {seeds} seeds)"
            rows.append(Checked(id, f"agreement: {name}", passed, seen, counts.get("inconclusive", 0)))
            compared += sum(counts.values())
    noisy = sum(row.inconclusive for row in rows)
    seen = f"{noisy} of {compared} rows, where {kind.inconclusive:.0%} are declared"
    return [*rows, Checked(id, "agreement: inconclusive", noisy <= kind.inconclusive * compared, seen)]


def _brief(value: Any) -> str:
    if np.ndim(value) == 0:
        return f"{value:.8g}" if isinstance(value, (float, np.floating, np.ndarray)) else str(value)
    return f"[{'×'.join(map(str, np.shape(value)))}]"
