"""Check that a model keeps the contract: for the house's own models and for anyone else's.

from solvable.testing import check_model
check_model(MyModel)          # raises AssertionError with one sentence per broken promise
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import InvalidValue, SolvableError
from .model import Model, Outcome, simulate_batch

POINTS = 48
RESIDUAL = 1e-10


@dataclasses.dataclass
class Finding:
    """One promise of the contract: kept or not, with what was seen."""

    promise: str
    kept: bool
    seen: str = ""
    numbers: int = 1

    def __str__(self) -> str:
        return f"{'ok  ' if self.kept else 'FAIL'} {self.promise}{': ' + self.seen if self.seen else ''}"


def check_model(model: Model | type[Model], *, size: int | None = None) -> list[Finding]:
    """Check every promise of the contract; raise AssertionError with one sentence for each that is broken.

    >>> import solvable as sv
    >>> all(f.kept for f in check_model(sv.Perceptron(loss="square")))
    True
    """
    findings = examine_model(model, size=size)
    broken = [f for f in findings if not f.kept]
    if broken:
        raise AssertionError("\n".join(str(f) for f in broken))
    return findings


def examine_model(model: Model | type[Model], *, size: int | None = None, thorough: bool = True) -> list[Finding]:
    """The same as `check_model`, as a list of findings that raises nothing.

    Without `thorough`, gradients and finer numerics, which compile programs of their own, are left out.
    """
    findings: list[Finding] = []
    try:
        made = model() if isinstance(model, type) else model
    except Exception as problem:
        return [Finding("a model can be made from its defaults", False, str(problem))]
    checks: list[Callable[[Model], list[Finding]]] = [_declarations, _refusals, _identity]
    if made.has_theory and type(made).cost_class() == "kept":
        checks += [_theory]  # one point of it is minutes: what else it promises, a study shows
    elif made.has_theory:
        checks += [_theory, _physicality, _batches, *((_gradients, _numerics) if thorough else ())]
    for check in checks:
        findings += _guarded(check, made)
    if type(made).experiment is not Model.experiment:
        findings += _guarded(lambda m: _simulation(m, size or type(m).typical_sizes[0]), made)
    return findings


def guard_model(kind: type[Model], cases: Sequence[Mapping[str, Any]] = ()) -> list[Finding]:
    """What is asked of every model with every change, in two programs: one of the theory and one of the simulation.

    The contract without gradients and finer numerics, reference values (`cases`, at least four of them where there are
    as many), and a simulation of a few seeds against the theory, all at the choices and sizes that the model declares in
    `guard`. `check_model` and `solvable check` go further.

    >>> import solvable as sv
    >>> all(finding.kept for finding in guard_model(sv.OnlineAttack))
    True
    """
    findings: list[Finding] = []
    try:
        model = kind.create(**kind.guard.values)
    except Exception as problem:
        return [Finding("a model can be made from what it declares in `guard`", False, str(problem))]
    for check in (_declarations, _refusals, _identity):
        findings += _guarded(check, model)
    if model.has_theory and not model.unprepared:
        findings += _guarded(_guarded_theory, model)
    if cases:
        findings += _guarded(lambda m: _references(m, cases), model)
    if kind.experiment is not Model.experiment:
        findings += _guarded(_guarded_simulation, model)
    return findings


def lanes_of(model: Model) -> int:
    """How many points one program of the theory takes here: as many as the explorer's for its first view.

    That is one where the first observable is a curve of its own (along time), else as many as a curve over a control has.

    >>> import solvable as sv
    >>> lanes_of(sv.Perceptron()), lanes_of(sv.SoftCommittee())
    (64, 1)
    """
    first = next((o for o in model.observables().values() if o.predicted), None)
    if (first is not None and first.dims) or type(model).cost_class() == "kept":
        return 1
    together = type(model).theory_lanes
    return 64 if together >= 64 else 16 if together >= 16 else 8


def evaluate_rows(model: Model, rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """The theory at some rows of controls, by the one program of `lanes_of` points, filled up with the last row.

    >>> import solvable as sv
    >>> outcome = evaluate_rows(sv.Perceptron(loss="square"), [{"samples": 1.0}, {"samples": 2.0}])
    >>> outcome.test_error.shape
    (2,)
    """
    lanes, own = lanes_of(model), {n: 0.0 if np.ndim(v) else float(v) for n, v in model.controls().items()}
    pieces = []
    for begin in range(0, len(rows), lanes):
        part = [own | dict(rows[min(i, len(rows) - 1)]) for i in range(begin, begin + lanes)]
        there = model.with_values({n: jnp.asarray([float(row[n]) for row in part]) for n in own})
        outcome = there.theory()
        pieces.append(
            jax.tree.map(lambda v, begin=begin: np.asarray(v[: len(rows) - begin] if own else v[None]), outcome)
        )
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _guarded_theory(model: Model) -> list[Finding]:
    if type(model).cost_class() == "kept":
        return _complete(model, model.theory())
    number = max(lanes_of(model), 16) - 1
    drawn = random_points(model, number).controls()
    rows = [{}, *({n: np.asarray(v)[i] for n, v in drawn.items()} for i in range(number))] if drawn else [{}]
    outcome = evaluate_rows(model, rows)
    return [*_complete(model, jax.tree.map(lambda v: v[0], outcome)), *_physical(model, outcome)]


def _references(model: Model, cases: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """At least four reference values, those first that need no other program."""
    kind = type(model)
    groups: dict[Any, list[tuple[Model, Mapping[str, Any]]]] = {}
    for case in cases:
        made = kind.create(**case["params"])
        # What a simulation is compared with, and what has numerics of its own, is for `solvable check`.
        if "numerics" not in case and "simulate" not in case:
            groups.setdefault(program_of(made), []).append((made, case))
    own = groups.pop(program_of(model), [])
    chosen = [own, *sorted(groups.values(), key=len, reverse=True)]
    found, number = [], 0
    for group in chosen:
        if number >= 4 and group is not own:
            break
        alike: dict[str, list[tuple[Model, Mapping[str, Any]]]] = {}
        for made, case in group:
            shared = {n: v for n, v in made.specification().items() if n not in made.controls()}
            alike.setdefault(json.dumps(shared, sort_keys=True), []).append((made, case))
        for together in alike.values():
            rows, places = [], []
            for made, _ in together:
                spread = {n: np.broadcast_to(np.asarray(v), made.shape).reshape(-1) for n, v in made.controls().items()}
                own_rows = [{n: v[i] for n, v in spread.items()} for i in range(int(np.prod(made.shape, dtype=int)))]
                places.append(slice(len(rows), len(rows) + len(own_rows)))
                rows += own_rows
            outcome = evaluate_rows(together[0][0], rows)
            for place, (made, case) in zip(places, together, strict=True):
                number += int(np.size(case["value"]))
                own_part = jax.tree.map(lambda v, at=place, to=made.shape: v[at].reshape(to + v.shape[1:]), outcome)
                found += _reference(made, case, own_part)
    return found


def program_of(model: Model) -> tuple[Any, ...]:
    """What a compiled theory depends on: choices, and shapes of inputs and data."""
    choices = tuple(getattr(model, n) for n in model.fields_of("choice"))
    arrays = jax.tree.map(np.shape, [getattr(model, n) for n in model.fields_of("input", "data")])
    return choices, str(arrays)


def _reference(model: Model, case: Mapping[str, Any], outcome: Outcome) -> list[Finding]:
    value, gap = picked(model, case, outcome)
    limit, seen = float(np.max(case["tolerance"])), f"off by {gap:.1e} of"
    name = f"{case['observable']}({', '.join(f'{k}={v}' for k, v in case['params'].items() if np.ndim(v) == 0)})"
    held = bool(gap <= limit)
    return [Finding(f"the reference value of {name} holds", held, f"{seen} {limit:.1e}", int(np.size(case["value"])))]


def picked(model: Model, case: Mapping[str, Any], outcome: Outcome) -> tuple[np.ndarray, float]:
    """What a reference value looks at, and how far it is from the outcome's.

    `at` picks along the observable's dimensions: a coordinate (times, bin centres) where the dimension has one, an index
    where it has none.
    """
    value = np.asarray(outcome[case["observable"]])
    dims, coordinates = list(model.observables()[case["observable"]].dims), model.coordinates()
    for dim, where in case.get("at", {}).items():
        if dim not in dims:
            raise InvalidValue(f"{case['observable']!r} has no dimension {dim!r}.")
        if dim in coordinates:
            gaps = np.abs(np.asarray(coordinates[dim]) - where)
            if not gaps.min() < 1e-9:
                raise InvalidValue(f"{dim!r} has no coordinate {where!r}.")
            where = int(np.argmin(gaps))
        axis = dims.index(dim)
        value = np.take(value, where, axis=axis)
        dims.pop(axis)
    wanted = np.asarray(case["value"], float)
    if value.shape != wanted.shape:
        raise InvalidValue(f"{case['observable']!r} has shape {value.shape}, the reference {wanted.shape}.")
    return value, float(np.max(np.abs(value - wanted), initial=0.0))


def _guarded_simulation(model: Model) -> list[Finding]:
    """A few realisations in one program: what they measure, that they can be had again, and that they are the theory's."""
    kind = type(model)
    model = model.replace(**kind.guard.simulated_values)
    size, seeds = kind.guard.size or kind.typical_sizes[0], kind.guard.seeds
    keys = [model.key(size, seed) for seed in range(seeds)]
    models = [model.prepared(key, size) for key in keys]

    def simulated() -> dict[str, np.ndarray]:
        if not model.unprepared:
            batch = simulate_batch(model, {}, jnp.stack(keys), size)
            return {n: np.asarray(v) for n, v in batch.items()}
        each = [simulate_batch(m, {}, key[None], size) for m, key in zip(models, keys, strict=True)]
        return {n: np.concatenate([np.asarray(b[n]) for b in each]) for n in each[0]}

    first, again = simulated(), simulated()
    measured = {n: v for n, v in first.items() if n not in ("converged", "residual")}
    declared = {n: o for n, o in model.observables().items() if o.simulated}
    wrong = sorted(set(measured) ^ set(declared))
    found = [Finding("the simulation measures exactly the declared observables", not wrong, ", ".join(wrong))]
    same = all(np.array_equal(v, again[n], equal_nan=True) for n, v in measured.items())
    found.append(Finding("the same seeds give the same realisations, bit by bit", same))
    differ = seeds == 1 or any(not np.array_equal(v[0], v[1], equal_nan=True) for v in measured.values())
    found.append(Finding("another seed gives another realisation", differ))
    if not model.has_theory:
        return found
    theory = [evaluate_rows(m, [m.realised(size).controls()]) for m in (models if model.unprepared else [model])]
    return [*found, *_close(model, measured, theory, size)]


def _close(
    model: Model, measured: Mapping[str, np.ndarray], theory: Sequence[Outcome], size: int, level: float = 1e-3
) -> list[Finding]:
    """Means of seeds against the theory: within their errors and the finite-size correction that the model declares."""
    from scipy.special import stdtr

    from .lab.agreement import RESOLUTION, holm

    names, chances, gaps = [], [], []
    found = []
    for name, declared in model.observables().items():
        if not (declared.simulated and declared.predicted):
            continue
        expected = np.concatenate([np.asarray(outcome[name]) for outcome in theory])
        if declared.random:
            found.append(_same_law(name, measured[name], expected, size, level))
            continue
        if expected.shape[1:] != measured[name].shape[1:]:
            found.append(Finding(f"theory and simulation of {name} have the same shape", False))
            continue
        there = np.isfinite(expected).all(axis=0) & np.isfinite(measured[name]).all(axis=0)
        if not there.any():
            found.append(Finding(f"theory and simulation of {name} are numbers somewhere", False))
            continue
        deviation = (measured[name] - expected)[:, there]
        scale = float(np.abs(expected[:, there]).max())
        seeds = len(deviation)
        # A constant of every seed has no spread: what float32 resolves is the least error there can be.
        error = np.maximum(deviation.std(axis=0, ddof=1) / np.sqrt(seeds), RESOLUTION * max(scale, 1e-300))
        if declared.fraction_of:
            error = np.maximum(error, scale / np.sqrt(size * seeds))
        allowed = type(model).finite_size * scale * size**-declared.power
        z = np.maximum(np.abs(deviation.mean(axis=0)) - allowed, 0.0) / error
        names += [name] * z.size
        chances += list(2 * stdtr(seeds - 1, -z))
        gaps += [
            f"{d:+.2g} ± {e:.1g}, {allowed:.1g} allowed" for d, e in zip(deviation.mean(axis=0), error, strict=True)
        ]
    far = holm(chances, level)
    for name in dict.fromkeys(names):
        off = [g for n, g, f in zip(names, gaps, far, strict=True) if n == name and f]
        found.append(Finding(f"simulated {name} is the theory's at size {size}", not off, off[0] if off else ""))
    return found


def _same_law(name: str, measured: np.ndarray, draws: np.ndarray, size: int, level: float) -> Finding:
    """Realisations of a random limit against the theory's draws, entry by entry: no two-sample test may refuse."""
    from scipy.stats import ks_2samp

    flat, drawn = measured.reshape(len(measured), -1), draws[0].reshape(-1, draws.shape[-1])
    tests: list[Any] = [ks_2samp(flat[:, i], drawn[i]) for i in range(len(drawn))]
    least = min(test.pvalue for test in tests) * len(tests)
    return Finding(f"simulated {name} has the theory's law at size {size}", least > level, f"p = {least:.1e}")


def _guarded(check: Callable[[Model], list[Finding]], model: Model) -> list[Finding]:
    try:
        return check(model)
    except Exception as problem:
        name = getattr(check, "__name__", "simulation").strip("_<>")
        return [Finding(f"the check of its {name} runs through", False, f"{type(problem).__name__}: {problem}")]


def _declarations(model: Model) -> list[Finding]:
    cls, fields, found = type(model), model.fields(), []
    found.append(Finding("has id, title and family", bool(cls.id and cls.title and cls.family)))
    found.append(Finding("has a docstring that says what it is", bool((cls.__doc__ or "").strip())))
    found.append(Finding("cites at least one reference", bool(cls.references)))
    unsaid = [n for n, f in fields.items() if not f.meaning]
    found.append(Finding("every field says what it means", not unsaid, ", ".join(unsaid)))
    endless = [n for n, f in model.fields_of("control").items() if not all(map(math.isfinite, f.span))]
    found.append(Finding("every control has a finite interval to search", not endless, ", ".join(endless)))
    names = [o.name for o in cls.observables_declared]
    found.append(Finding("observables have distinct names", len(names) == len(set(names)) and bool(names)))
    clash = sorted(set(names) & (set(fields) | {"converged", "converged_along", "residual", "status"}))
    found.append(Finding("no observable is named like a field", not clash, ", ".join(clash)))
    doubled = [o.name for o in cls.observables_declared if len(set(o.dims)) != len(o.dims)]
    found.append(Finding("no observable repeats a dimension", not doubled, ", ".join(doubled)))
    axes = {d.name for d in cls.dimensions_declared}
    unknown = sorted({d for o in cls.observables_declared for d in o.dims} - axes)
    found.append(Finding("every dimension of an observable is declared", not unknown, ", ".join(unknown)))
    return found + _arms(model)


def _arms(model: Model) -> list[Finding]:
    """Every declared arm can be made."""
    found = []
    for name, values in type(model).arms_declared.items():
        try:
            model.replace(**values)
        except SolvableError as problem:
            found.append(Finding(f"arm {name!r} can be made", False, str(problem)))
    return found


def _refusals(model: Model) -> list[Finding]:
    found = []
    for name, declaration in model.fields().items():
        bad: list[Any] = ["nonsense", None] if declaration.kind in ("control", "choice") else ["nonsense"]
        if declaration.kind == "control":
            bad += [math.nan, math.inf, [declaration.span[0], math.nan]]
            bad += [declaration.low - 1] if math.isfinite(declaration.low) else []
            bad += [declaration.high + 1] if math.isfinite(declaration.high) else []
        elif declaration.kind == "choice" and declaration.options is None:
            bad += [int(declaration.high) + 1, int(declaration.low) - 1, 1.5]
        for value in bad:
            try:
                model.replace(**{name: value})
                found.append(Finding(f"{name} = {value!r} is refused", False, "it was accepted"))
            except InvalidValue as refusal:
                text = str(refusal)
                if name not in text or "\n" in text:
                    found.append(Finding(f"{name} = {value!r} is refused in one sentence that names it", False, text))
    return found or [Finding("wrong values are refused in one sentence that names the field", True)]


def _identity(model: Model) -> list[Finding]:
    spec = model.specification()
    again = type(model)(**{n: getattr(model, n) for n in model.fields()}).specification()
    same = json.dumps(spec, sort_keys=True) == json.dumps(again, sort_keys=True)
    return [Finding("its specification is plain JSON and reproducible", same)]


def _theory(model: Model) -> list[Finding]:
    return _complete(model, model.theory())


def _complete(model: Model, outcome: Outcome) -> list[Finding]:
    """The outcome at the defaults has every declared observable, and converged."""
    declared = model.observables()
    wanted = {n for n, o in declared.items() if o.predicted}
    found = [Finding("the theory gives exactly the declared observables", set(outcome.keys()) == wanted,
                     f"differing: {sorted(set(outcome.keys()) ^ wanted)}" if set(outcome.keys()) != wanted else "")]  # fmt: skip
    ranks = [n for n in outcome if outcome[n].ndim != len(declared[n].theory_dims)]
    found.append(Finding("observables have their declared dimensions", not ranks, ", ".join(ranks)))
    found.append(Finding("the theory converges at the defaults", bool(np.all(outcome.converged))))
    return found


def random_points(model: Model, number: int, seed: int = 0) -> Model:
    """The model at `number` points that cover the typical ranges of all its controls, their ends included."""
    rng, values = np.random.default_rng(seed), {}
    for name, declaration in model.fields_of("control").items():
        u = rng.permutation((np.arange(number) + rng.uniform(size=number)) / number)
        u[rng.permutation(number)[:2]] = (0.0, 1.0)
        low, high = declaration.span
        low = low + 1e-6 * (high - low) if declaration.low_open and low == declaration.low else low
        high = high - 1e-6 * (high - low) if declaration.high_open and high == declaration.high else high
        logarithmic = declaration.scale == "log" and low > 0
        values[name] = np.exp(np.log(low) + u * np.log(high / low)) if logarithmic else low + u * (high - low)
        values[name] = np.clip(values[name], low, high)
    return model.replace(**values) if values else model


def _physicality(model: Model) -> list[Finding]:
    return _physical(model, random_points(model, POINTS).theory())


def _physical(model: Model, outcome: Outcome) -> list[Finding]:
    """Residuals and declared bounds at points that cover the typical ranges."""
    found = []
    converged = np.asarray(outcome.converged)
    share = float(converged.mean())
    found.append(
        Finding(
            "the theory converges over the typical ranges", share >= 0.95, f"{share:.0%} of {converged.size} points"
        )
    )
    worst = float(np.max(np.asarray(outcome.residual)[converged], initial=0.0))
    found.append(Finding(f"residuals are at most {RESIDUAL:.0e}", worst <= RESIDUAL, f"{worst:.1e}"))
    for name, observable in model.observables().items():
        if observable.predicted:
            value = np.asarray(outcome[name])
            there = value[converged.reshape(-1)] if converged.ndim else value
            if not np.isfinite(there).all():
                found.append(Finding(f"{name} is a number wherever the theory converged", False))
            slack = 1e-9 * (1 + np.abs(there))
            outside = (there < observable.low - slack) | (there > observable.high + slack)
            if outside.any():
                seen = f"{there[outside][0]:g} outside [{observable.low:g}, {observable.high:g}]"
                found.append(Finding(f"{name} keeps its physical bounds", False, seen))
            if np.isfinite(value[_missing(outcome, name)]).any():
                found.append(Finding(f"{name} is NaN where the theory did not converge", False))
    return found


def _missing(outcome: Outcome, name: str) -> np.ndarray:
    """Which entries of an observable may not be numbers: all of a lane that failed, or those along its dimension."""
    value, dims, lost = np.asarray(outcome[name]), dict(outcome.dims)[name], ~np.asarray(outcome.converged)
    shape = [*lost.shape, *(1,) * (value.ndim - lost.ndim)]
    if outcome.converged_along is not None and outcome.along in dims:
        shape[lost.ndim + dims.index(outcome.along)] = -1
        lost = ~np.asarray(outcome.converged_along)
    return np.broadcast_to(lost.reshape(shape), value.shape)


def _lanes(model: Model, rows: list[dict[str, float]]) -> Model:
    """The model at some points, filled up to the one batch shape that all these checks share (and compile once)."""
    filled = [rows[min(i, len(rows) - 1)] for i in range(POINTS)]
    return model.with_values({n: jnp.asarray([row[n] for row in filled]) for n in model.fields_of("control")})


def _batches(model: Model) -> list[Finding]:
    if not model.controls():
        return []
    many = random_points(model, POINTS, seed=1)
    together, worst = many.theory(), 0.0
    for lane in range(3):
        alone = model.with_values({n: jnp.asarray(np.asarray(v)[lane]) for n, v in many.controls().items()}).theory()
        for name in together:
            a, b = np.asarray(alone[name]), np.asarray(together[name][lane])
            gap = np.abs(a - b) / (1 + np.abs(b))
            worst = max(worst, float(np.nanmax(gap)) if np.isfinite(gap).any() else 0.0)
            if (np.isnan(a) != np.isnan(b)).any():
                worst = math.inf
    limit = type(model).batch_accuracy
    return [Finding(f"a point alone and in a batch agree to {limit:.0e}", worst <= limit, f"{worst:.1e}")]


def _gradients(model: Model) -> list[Finding]:
    """The implicit gradient against a central difference, extrapolated once (Richardson), along every control.

    Each observable enters as Σ sin(values), a number that no symmetry makes flat.
    """
    controls = model.fields_of("control")
    if not controls:
        return []
    numbers = [n for n, o in model.observables().items() if o.predicted]
    centre, steps = {}, {}
    for name, declaration in controls.items():
        low, high = declaration.span
        at = float(getattr(model, name))
        room = min(at - declaration.low, declaration.high - at)
        if room <= 0:
            at, room = 0.5 * (low + high), 0.5 * (high - low)
        centre[name] = at
        steps[name] = min(1e-3 * max(abs(at), 1e-2 * (high - low)), 0.4 * room)
    ratios = (-1.0, -0.5, 0.5, 1.0)
    rows = [centre | {n: centre[n] + r * steps[n]} for n in controls for r in ratios]
    if len(rows) > POINTS:
        raise ValueError(f"{len(controls)} controls need more than {POINTS} lanes")

    def totals(out: Any, lead: int) -> Any:
        return jnp.stack([jnp.sum(jnp.sin(out[n]), axis=tuple(range(lead, out[n].ndim))) for n in numbers])

    heights = np.asarray(totals(_lanes(model, rows).theory(), 1))
    slopes = jax.jit(jax.jacfwd(lambda c: totals(model.with_values(c).theory(), 0)))(
        {n: jnp.asarray(v) for n, v in centre.items()}
    )
    found = []
    for i, name in enumerate(controls):
        h = steps[name]
        down, half_down, half_up, up = heights[:, 4 * i : 4 * i + 4].T
        difference = (4 * (half_up - half_down) / h - (up - down) / (2 * h)) / 3
        # Where an observable hardly moves, rounding of the difference is all there is to compare with.
        scale = np.maximum(np.abs(difference), 1e-6 * (1 + np.abs(half_up)) / max(abs(centre[name]), h))
        error = np.abs(np.asarray(slopes[name]) - difference) / scale
        worst = int(np.argmax(np.where(np.isfinite(error), error, np.inf)))
        seen = f"{error[worst]:.1e} for {numbers[worst]}"
        limit = type(model).gradient_accuracy
        found.append(Finding(f"the gradient along {name} is right to {limit:.0e}", bool(error[worst] < limit), seen))
    return found


def _numerics(model: Model) -> list[Finding]:
    """Finer numerics move nothing beyond the stated accuracy."""
    if not type(model).numerics:
        return []
    points = random_points(model, POINTS)
    worst, seen = _moved(points, points.theory())
    limit = type(model).accuracy
    return [Finding(f"finer numerics move nothing beyond {limit:.0e}", worst <= limit, seen)]


def finer(numerics: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings, twice as fine: whole numbers doubled, steps halved, tolerances a tenth (not below rounding).

    >>> finer({"nodes": 16, "step": 0.5, "tolerance": 1e-9, "rtol": 3e-13, "solver": "dopri8"})
    {'nodes': 32, 'step': 0.25, 'tolerance': 1e-10, 'rtol': 3e-13}
    """

    def changed(value: float) -> float:
        if isinstance(value, int):
            return 2 * value
        return value / 2 if value > 1e-2 else value / 10 if value > 1e-12 else value

    return {name: changed(value) for name, value in numerics.items() if not isinstance(value, str)}


def _moved(model: Model, coarse: Outcome) -> tuple[float, str]:
    """How far finer numerics move what converged, at most, and in which observable."""
    fine = model.theory(finer(type(model).numerics))
    worst, where = 0.0, "nothing"
    for name in coarse:
        a, b = np.asarray(coarse[name]), np.asarray(fine[name])
        if model.observables()[name].random and a.shape != b.shape:  # other draws: what counts is their law
            lanes, drawn = a.reshape(-1, a.shape[-1]), b.reshape(1, -1, b.shape[-1])
            same = _same_law(name, lanes.T, drawn, 0, 1e-4).kept
            worst, where = max((worst, where), (0.0 if same else math.inf, name))
            continue
        both = np.isfinite(a) & np.isfinite(b)
        gap = float(np.max(np.abs(a[both] - b[both]) / (1 + np.abs(b[both])), initial=0.0))
        worst, where = max((worst, where), (gap, name))
    return worst, f"{worst:.1e} in {where}"


# --- corners ------------------------------------------------------------------------------------------------------------


def examine_corners(kind: type[Model], say: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Finer numerics at the corners of everything that is allowed: controls, choices, times of measurement.

    What is asked is little, and everywhere: a number that says it converged moves by no more than the stated accuracy
    when every step is halved and every count of nodes is doubled, and keeps its declared bounds. What did not converge
    is NaN, and is right.
    """
    found = []
    for name, model in corners(kind):
        say(f"{kind.id}: {name}")
        found += _guarded(lambda m, name=name: _corner(m, name), model)
    return found


def corners(kind: type[Model]) -> Iterator[tuple[str, Model]]:
    """The model at each of its choices, at few and at many of what is counted, and measured soon, late, or unevenly.

    >>> import solvable as sv
    >>> [name for name, _ in corners(sv.Perceptron)]
    ['defaults', 'loss=square', 'loss=hinge']
    """
    model = kind()
    variations: list[tuple[str, dict[str, Any]]] = [("defaults", {})]
    for name, declared in kind.fields().items():
        at = getattr(model, name)
        if declared.kind == "choice" and declared.options is not None:
            variations += [(f"{name}={option}", {name: option}) for option in declared.options if option != at]
        elif declared.kind == "choice":
            numbers = sorted({int(declared.low), int(declared.low) + 1, min(2 * at, int(declared.high))} - {at})
            variations += [(f"{name}={number}", {name: number}) for number in numbers]
        elif declared.increasing:
            variations += [(f"{name} {how}", {name: values}) for how, values in _uneven(np.asarray(at)).items()]
    for name, values in variations:
        try:
            varied = model.replace(**values)
        except InvalidValue:  # a combination that the model refuses
            continue
        if varied.answers_at_once:
            yield name, varied


def _uneven(times: np.ndarray) -> dict[str, np.ndarray]:
    """Increasing numbers like these, over other spans and otherwise spaced."""
    start, span = times[0], times[-1] - times[0]
    growing = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, len(times) - 1)])
    return {
        "soon": start + 1e-3 * (times - start),
        "late": start + 30 * (times - start),
        "growing": start + 10 * span * growing,
        "two": np.array([start, start + 10 * span]),
        "three": start + span * np.array([0.0, 1e-2, 20.0]),
    }


def whole_range(model: Model, number: int, seed: int = 0) -> Model:
    """The model at points that cover all that its controls allow (where that is endless: ten times the typical range)."""
    rng, values = np.random.default_rng(seed), {}
    for name, declared in model.fields_of("control").items():
        low, high = (
            a if math.isfinite(a) else 10 * b for a, b in zip((declared.low, declared.high), declared.span, strict=True)
        )
        inside = 1e-6 * (high - low)
        low, high = low + declared.low_open * inside, high - declared.high_open * inside
        u = rng.permutation(np.linspace(0.0, 1.0, number))
        if low > 0 and high / low > 100:
            values[name] = np.clip(low * (high / low) ** u, low, high)
        elif low >= 0 and high > 100 * max(declared.span[1], 1e-300):
            # most of such a range is far away: half of the points are in the typical part
            near = rng.permutation(number) < number // 2
            values[name] = np.where(near, low + u * (declared.span[1] - low), low + u**4 * (high - low))
        else:
            values[name] = low + u * (high - low)
    if not values:
        return model
    rows = [_admissible(model, {n: float(v[i]) for n, v in values.items()}) for i in range(number)]
    return model.replace(**{n: np.array([row[n] for row in rows]) for n in values})


def _admissible(model: Model, row: dict[str, float]) -> dict[str, float]:
    """A row of controls, drawn towards the model's own values until the model takes them together."""
    own = {n: float(v) for n, v in model.controls().items()}
    for share in (1.0, 0.9, 0.7, 0.5, 0.3, 0.1):
        # (1 − share)·own + share·v, not own + share·(v − own): the whole row is then itself, to the last bit
        near = {n: (1 - share) * own[n] + share * v for n, v in row.items()}
        try:
            model.replace(**near)
            return near
        except InvalidValue:
            continue
    return own


def _corner(model: Model, name: str, number: int = 16) -> list[Finding]:
    points, limit = whole_range(model, number), type(model).accuracy
    outcome = points.theory()
    done = np.asarray(outcome.converged)
    worst, seen = _moved(points, outcome) if type(model).numerics else (0.0, "no numerics")
    seen += f", {int(done.sum())} of {done.size} points converged"
    found = [Finding(f"{name}: finer numerics move nothing beyond {limit:.0e}", worst <= limit, seen)]
    for observable, declared in model.observables().items():
        if declared.predicted:
            value, slack = np.asarray(outcome[observable]), limit
            outside = (value < declared.low - slack * (1 + abs(value))) | (
                value > declared.high + slack * (1 + abs(value))
            )
            if outside.any():
                seen = f"{value[outside][0]:g} outside [{declared.low:g}, {declared.high:g}]"
                found.append(Finding(f"{name}: {observable} keeps its physical bounds", False, seen))
    return found


def _simulation(model: Model, size: int) -> list[Finding]:
    declared = {n for n, o in model.observables().items() if o.simulated}
    first, again, other = model.simulate(0, size), model.simulate(0, size), model.simulate(1, size)
    found = [Finding("the simulation measures exactly the declared observables", set(first.keys()) == declared,
                     f"differing: {sorted(set(first.keys()) ^ declared)}" if set(first.keys()) != declared else "")]  # fmt: skip
    same = all(np.array_equal(first[n], again[n], equal_nan=True) for n in first)
    found.append(Finding("the same seed gives the same realisation, bit by bit", same))
    differs = any(not np.array_equal(first[n], other[n], equal_nan=True) for n in first)
    found.append(Finding("another seed gives another realisation", differs))
    if model.has_theory:
        theory = model.realised(size).theory()
        draws = {n for n, o in model.observables().items() if o.random}
        seen = {n: theory[n][..., 0] if n in draws else theory[n] for n in theory}
        shapes = [n for n in first if n in seen and first[n].shape != seen[n].shape]
        found.append(Finding("theory and simulation have the same shapes", not shapes, ", ".join(shapes)))
    try:
        model.simulate(0, 1)
        found.append(Finding("a size of one is refused", False))
    except SolvableError:
        pass
    return found
