"""The parts of `solvable check`: contract, controls, reference values and agreement studies of a model."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidValue, SolvableError
from ..model import Model, Outcome
from ..registry import model_class
from ..study import Study
from ..testing import Finding, examine_model, guard_model, picked

CASE = {"model", "params", "observable", "value", "tolerance", "provenance"}


@dataclasses.dataclass(frozen=True)
class Checked:
    """One line of the table."""

    model: str
    part: str
    passed: bool
    seen: str
    compared: int = 0  # rows of an agreement
    inconclusive: int = 0  # rows that were too noisy to decide


def reference_folder() -> Path:
    """The folder of the reference values: inside an installed package, or beside the sources."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "reference"
    return inside if inside.is_dir() else package.parents[1] / "tests" / "reference"


def load_cases(file: Path) -> list[dict[str, Any]]:
    """The cases of a file of reference values; raises `InvalidValue`."""
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
    """The theory's value for a case and its distance from the reference.

    A case with `simulate`, for example `{"size": 1000, "seed": 0}`, uses that realisation instead, for exact counts of an
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
    """One realisation, cached for cases that differ only in the observable or entry."""
    settings = json.loads(how)
    if not isinstance(settings, dict) or set(settings) != {"size", "seed"}:
        raise InvalidValue(f"simulate = {how} is not an object with a size and a seed.")
    return model_class(id).create(**json.loads(params)).simulate(settings["seed"], settings["size"])


def check_case(case: Mapping[str, Any]) -> Checked:
    """Compare one reference value with the theory or with a realisation."""
    settings = ", ".join(f"{k}={_brief(v)}" for k, v in case["params"].items())
    part = f"{case['observable']}({settings})" + (f" in {json.dumps(case['simulate'])}" if "simulate" in case else "")
    try:
        value, gap = evaluate_case(case)
        seen = f"{_brief(value)} against {_brief(case['value'])}, off by {gap:.1e} of {float(np.max(case['tolerance'])):.1e}"
        return Checked(case["model"], part, bool(gap <= np.max(case["tolerance"])), seen)
    except SolvableError as problem:
        return Checked(case["model"], part, False, str(problem))


def check_values(file: Path, only: Iterable[str] = ()) -> list[Checked]:
    """Check every case of a file."""
    wanted = set(only)
    return [check_case(c) for c in load_cases(file) if not wanted or c["model"] in wanted]


def guard(id: str) -> list[Finding]:
    """Check a registered model as `make test` does: contract, reference values, a small simulation."""
    file, kind = reference_folder() / f"{id}.json", model_class(id)
    cases = load_cases(file) if file.exists() else []
    findings = guard_model(kind, cases)
    if kind.point is Model.point:  # exact counts at the guard's own size need no other program
        size = kind.guard.size or kind.typical_sizes[0]
        for row in map(check_case, (case for case in cases if case.get("simulate", {}).get("size") == size)):
            findings.append(Finding(f"the reference value of {row.part} holds", row.passed, row.seen))
    return findings


def check_contract(id: str, kind: type[Model]) -> Checked:
    """Every promise of the contract, in one row."""
    findings = examine_model(kind)
    broken = [f for f in findings if not f.kept]
    seen = "; ".join(f"{f.promise}: {f.seen}" for f in broken) if broken else f"{len(findings)} promises kept"
    return Checked(id, "contract", not broken, seen)


def check_controls(id: str, kind: type[Model]) -> Checked:
    """Every control changes something: at the choices of its `when`, or else for some choice."""
    useless, undeclared = [], []
    groups: dict[Any, list[str]] = {}
    for name, declaration in kind.fields_of("control").items():
        groups.setdefault(declaration.when, []).append(name)
    for when, names in groups.items():
        still = set(names)
        for number, values in enumerate(_choices_to_try(kind, when)):
            try:
                model = kind.create(**values)
            except SolvableError:  # this choice needs others, or data
                continue
            found = still & effective(model, sorted(still))
            undeclared += [
                f"{n} ({', '.join(f'{k} = {v}' for k, v in values.items())})" for n in sorted(found) if number
            ]
            still -= found
            if not still:
                break
        useless += sorted(still)
    if useless:
        return Checked(id, "controls", False, f"{', '.join(useless)} changed nothing for any choice")
    seen = "every control changes something"
    return Checked(id, "controls", True, f"{seen}; declare `when` of {', '.join(undeclared)}" if undeclared else seen)


def _choices_to_try(kind: type[Model], when: Any) -> list[dict[str, Any]]:
    """The choices declared in `when`; without it the defaults, and then every other option by itself."""
    if when:
        names = [name for name, _ in when]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*(v for _, v in when))]
    others = [{n: o} for n, d in kind.fields_of("choice").items() for o in d.options or () if o != d.default]
    return [{}, *others]


def effective(model: Model, names: list[str]) -> set[str]:
    """The controls among `names` that change the theory, or a small simulation with the same random numbers."""
    controls = {n: float(v) for n, v in model.controls().items()}
    moved = {n: _moved(model.fields()[n], controls[n]) for n in names}
    found: set[str] = set()
    if model.has_theory and model.answers_at_once:
        lanes = {n: np.full(len(names) + 1, v) for n, v in controls.items()}
        for lane, name in enumerate(names, 1):
            lanes[name][lane] = moved[name]
        outcome = model.replace(**lanes).theory()
        values = [np.asarray(v) for v in (*outcome.values.values(), outcome.converged)]
        found = {n for k, n in enumerate(names, 1) if any(not _same(v[k], v[0]) for v in values)}
    left = [n for n in names if n not in found]
    if left and type(model).experiment is not Model.experiment:
        size = type(model).guard.size or type(model).typical_sizes[0]
        key = model.key(size, 0)
        first = model.simulate(size=size, key=key)
        for name in left:
            other = model.replace(**{name: moved[name]}).simulate(size=size, key=key)
            if any(not _same(np.asarray(other[n]), np.asarray(first[n])) for n in first):
                found.add(name)
    return found


def _moved(declaration: Any, value: float) -> float:
    """Another value of a control, inside its span."""
    low, high = declaration.span
    log = declaration.scale == "log" and low > 0
    between = [float(low ** (1 - t) * high**t) if log else low + t * (high - low) for t in (0.37, 0.62)]
    return max(between, key=lambda v: abs(v - value))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def check_studies(kind: type[Model], full: bool = False) -> list[tuple[Study, tuple[str, ...]]]:
    """The agreement studies of a model, each with the observables to compare (empty: all).

    They are declared in the model's `check_study`; the default is the model at its defaults and typical sizes.
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


def check_agreement(id: str, kind: type[Model], number: int, full: bool = False) -> list[Checked]:
    """Run one of a model's agreement studies and compare theory with simulation."""
    study, judged = check_studies(kind, full)[number]
    study.run(progress=False)
    table = study.agreement(judged)
    rows = []
    for name in table.observables:
        counts = table.counts(name)
        settings = ", ".join(f"{n} {v}" for v, n in counts.items())
        seeds = max(r.seeds for r in table if r.observable == name)
        passed = "disagree" not in counts and "undefined" not in counts
        seen = f"{settings} (d = {list(table.sizes)}, {seeds} seeds)"
        row = Checked(id, f"agreement: {name}", passed, seen, sum(counts.values()), counts.get("inconclusive", 0))
        rows.append(row)
    return rows


def check_inconclusive(id: str, kind: type[Model], rows: Iterable[Checked]) -> Checked:
    """No more rows of all agreement studies may be inconclusive than the model declares."""
    rows = list(rows)
    noisy, compared = sum(row.inconclusive for row in rows), sum(row.compared for row in rows)
    seen = f"{noisy} of {compared} rows, at most {kind.inconclusive:.0%} allowed"
    return Checked(id, "agreement: inconclusive", noisy <= kind.inconclusive * compared, seen)


def _brief(value: Any) -> str:
    if np.ndim(value) == 0:
        return f"{value:.8g}" if isinstance(value, (float, np.floating, np.ndarray)) else str(value)
    return f"[{'×'.join(map(str, np.shape(value)))}]"
