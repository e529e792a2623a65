"""Corner cases of a model: choices, counts, times, and controls at the ends of their ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import InvalidValue
from ..model import Model
from .contract import Finding, guarded, moved


def examine_corners(kind: type[Model], say: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Check finer numerics at the corners of the allowed controls, choices and times of measurement.

    A converged number must change by no more than the stated accuracy when every step is halved and every number of nodes
    is doubled, and must stay within its declared bounds. NaN, for points that did not converge, is accepted.
    """
    found = []
    for name, model in corners(kind):
        say(f"{kind.id}: {name}")
        found += examine_corner(name, model)
    return found


def examine_corner(name: str, model: Model) -> list[Finding]:
    """Check finer numerics at one of the corners listed by `corners`."""
    return guarded(lambda m: _corner(m, name), model)


def corners(kind: type[Model]) -> Iterator[tuple[str, Model]]:
    """The model at each of its choices, at small and large counts, and at early, late or uneven times.

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
        except InvalidValue:  # a combination that the model rejects
            continue
        if varied.answers_at_once:
            yield name, varied


def _uneven(times: np.ndarray) -> dict[str, np.ndarray]:
    """Similar increasing numbers over other intervals and with other spacings."""
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
    """The model at points that cover the allowed ranges of its controls (ten times the typical range if unbounded)."""
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
            # most of such a range is atypical, so half of the points are in the typical part
            near = rng.permutation(number) < number // 2
            values[name] = np.where(near, low + u * (declared.span[1] - low), low + u**4 * (high - low))
        else:
            values[name] = low + u * (high - low)
    if not values:
        return model
    rows = [_admissible(model, {n: float(v[i]) for n, v in values.items()}) for i in range(number)]
    return model.replace(**{n: np.array([row[n] for row in rows]) for n in values})


def _admissible(model: Model, row: dict[str, float]) -> dict[str, float]:
    """A row of controls, moved towards the model's own values until the combination is allowed."""
    own = {n: float(v) for n, v in model.controls().items()}
    for share in (1.0, 0.9, 0.7, 0.5, 0.3, 0.1):
        # (1 − share)·own + share·v, not own + share·(v − own): share = 1 then gives v exactly
        near = {n: (1 - share) * own[n] + share * v for n, v in row.items()}
        try:
            model.replace(**near)
            return near
        except InvalidValue:
            continue
    return own


def _corner(model: Model, name: str) -> list[Finding]:
    points, limit = whole_range(model, type(model).guard.corner_points), model.stated_accuracy
    own = model.corner_numerics
    outcome = points.theory(own)
    done = np.asarray(outcome.converged)
    worst, seen = moved(points, outcome, own) if type(model).numerics else (0.0, "no numerics")
    seen += f", {int(done.sum())} of {done.size} points converged"
    found = [Finding(f"{name}: finer numerics change nothing beyond {limit:.0e}", worst <= limit, seen)]
    for observable, declared in model.observables().items():
        if declared.predicted:
            value, slack = np.asarray(outcome[observable]), limit
            outside = (value < declared.low - slack * (1 + abs(value))) | (
                value > declared.high + slack * (1 + abs(value))
            )
            if outside.any():
                seen = f"{value[outside][0]:g} outside [{declared.low:g}, {declared.high:g}]"
                found.append(Finding(f"{name}: {observable} stays within its physical bounds", False, seen))
    return found
