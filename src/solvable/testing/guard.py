"""The guard: quick checks of every model at the tiny sizes it declares, with two compiled programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InvalidValue
from ..model import Model, Outcome, simulate_batch
from .contract import Finding, complete, declarations, guarded, identity, physical, random_points, refusals, same_law


def guard_model(kind: type[Model], cases: Sequence[Mapping[str, Any]] = ()) -> list[Finding]:
    """Check a model quickly, with two compiled programs: one of the theory and one of the simulation.

    Checks the contract without gradients and finer numerics, reference values (`cases`, at least four if there are as
    many), and a simulation of a few seeds against the theory, all at the choices and sizes that the model declares in
    `guard`. `check_model` and `solvable check` are more thorough.

    >>> import solvable as sv
    >>> all(finding.kept for finding in guard_model(sv.OnlineAttack))
    True
    """
    findings: list[Finding] = []
    try:
        model = kind.create(**kind.guard.values)
    except Exception as problem:
        return [Finding("a model can be created from the values in `guard`", False, str(problem))]
    for check in (declarations, refusals, identity):
        findings += guarded(check, model)
    if model.has_theory and not model.unprepared:
        findings += guarded(_guarded_theory, model)
    if cases:
        findings += guarded(lambda m: _references(m, cases), model)
    if kind.experiment is not Model.experiment:
        findings += guarded(_guarded_simulation, model)
    return findings


def lanes_of(model: Model) -> int:
    """The number of points of the theory's program: the same as in the explorer's first view.

    This is one if the first observable is itself a curve (along time), else the number of points of a curve over a control.

    >>> import solvable as sv
    >>> lanes_of(sv.Perceptron()), lanes_of(sv.SoftCommittee())
    (64, 1)
    """
    predicted = [o for o in model.observables().values() if o.predicted]
    first = next((o for o in predicted if o.simulated), predicted[0] if predicted else None)
    if (first is not None and first.dims) or type(model).cost_class() == "kept":
        return 1
    together = type(model).theory_lanes
    return 64 if together >= 64 else 16 if together >= 16 else 8


def evaluate_rows(model: Model, rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """The theory at some rows of controls, computed by the program of `lanes_of` points, padded with the last row.

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
        return complete(model, model.theory())
    number = max(lanes_of(model), type(model).guard.points) - 1
    drawn = random_points(model, number).controls()
    rows = [{}, *({n: np.asarray(v)[i] for n, v in drawn.items()} for i in range(number))] if drawn else [{}]
    outcome = evaluate_rows(model, rows)
    return [*complete(model, jax.tree.map(lambda v: v[0], outcome)), *physical(model, outcome)]


def _references(model: Model, cases: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check at least four reference values, first those that need no other program."""
    kind = type(model)
    groups: dict[Any, list[tuple[Model, Mapping[str, Any]]]] = {}
    for case in cases:
        made = kind.create(**case["params"])
        # `solvable check` covers cases for simulations and cases with their own numerics.
        if "numerics" not in case and "simulate" not in case:
            groups.setdefault(program_of(made), []).append((made, case))
    own = groups.pop(program_of(model), [])
    chosen = [own, *sorted(groups.values(), key=len, reverse=True)]
    found, number = [], 0
    for group in chosen:
        if number >= 4 and group is not own:
            break
        by_variant: dict[str, list[tuple[Model, Mapping[str, Any]]]] = {}
        for made, case in group:
            shared = {n: v for n, v in made.specification().items() if n not in made.controls()}
            by_variant.setdefault(json.dumps(shared, sort_keys=True), []).append((made, case))
        for together in by_variant.values():
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
    """Key of a compiled theory: the choices and the shapes of inputs and data."""
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
    """The entries of the outcome that a reference value refers to, and their distance from it.

    `at` selects along the observable's dimensions: by coordinate (times, bin centres) if the dimension has one, else by
    index.
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
        raise InvalidValue(f"{case['observable']!r} has shape {value.shape}, but the reference has {wanted.shape}.")
    return value, float(np.max(np.abs(value - wanted), initial=0.0))


def _guarded_simulation(model: Model) -> list[Finding]:
    """Check a few realisations in one program: their observables, reproducibility, and agreement with the theory."""
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
    found.append(Finding("the same seeds give bit-identical realisations", same))
    differ = seeds == 1 or any(not np.array_equal(v[0], v[1], equal_nan=True) for v in measured.values())
    found.append(Finding("another seed gives another realisation", differ))
    if not model.has_theory:
        return found
    theory = [evaluate_rows(m, [m.realised(size).controls()]) for m in (models if model.unprepared else [model])]
    return [*found, *_close(model, measured, theory, size)]


def _close(
    model: Model, measured: Mapping[str, np.ndarray], theory: Sequence[Outcome], size: int, level: float = 1e-3
) -> list[Finding]:
    """Check that means over seeds equal the theory within their errors and the declared finite-size correction."""
    from scipy.special import stdtr

    from ..lab.agreement import RESOLUTION, holm

    names, p_values, gaps = [], [], []
    found = []
    for name, declared in model.observables().items():
        if not (declared.simulated and declared.predicted):
            continue
        expected = np.concatenate([np.asarray(outcome[name]) for outcome in theory])
        if declared.random:
            found.append(same_law(name, measured[name], expected, size, level))
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
        # If all seeds give the same value there is no spread; the error is then at least the float32 resolution.
        error = np.maximum(deviation.std(axis=0, ddof=1) / np.sqrt(seeds), RESOLUTION * max(scale, 1e-300))
        if declared.fraction_of:
            error = np.maximum(error, scale / np.sqrt(size * seeds))
        allowed = type(model).finite_size * scale * size**-declared.power
        z = np.maximum(np.abs(deviation.mean(axis=0)) - allowed, 0.0) / error
        names += [name] * z.size
        p_values += list(2 * stdtr(seeds - 1, -z))
        gaps += [
            f"{d:+.2g} ± {e:.1g}, {allowed:.1g} allowed" for d, e in zip(deviation.mean(axis=0), error, strict=True)
        ]
    far = holm(p_values, level)
    for name in dict.fromkeys(names):
        off = [g for n, g, f in zip(names, gaps, far, strict=True) if n == name and f]
        found.append(Finding(f"simulated {name} agrees with the theory at size {size}", not off, off[0] if off else ""))
    return found
