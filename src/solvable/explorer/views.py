"""A view: everything on the screen, as plain JSON, checked with the messages of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..contract.declarations import checked_number
from ..contract.parse_values import values_of
from ..errors import InvalidValue, UnknownName, nearest
from ..model import Model
from ..registry import model_class
from ..study import Study, unknown_observable

MOST_POINTS = 1000
MOST_GRID = 40_000
MOST_SEEDS = 1000
MOST_SIZES = 8
MOST_CELLS = 50_000
KEYS = ("model", "values", "x", "y", "observables", "branches", "sizes", "seeds", "simulated")
AXIS_KEYS = ("field", "from", "to", "points", "scale")


class Refused(InvalidValue):
    """A bad value, with the part of the view it belongs to."""

    def __init__(self, sentence: str, field: str | None = None):
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True)
class Axis:
    """A swept control."""

    field: str
    low: float
    high: float
    points: int
    scale: str

    def word(self, points: int | None = None) -> str:
        """The axis in the format of the command line.

        >>> Axis("samples", 0.2, 8.0, 60, "log").word()
        '0.2:8.0:60:log'
        """
        ends = f"{self.low!r}:{self.high!r}:{points or self.points}"
        return f"{ends}:log" if self.scale == "log" else ends

    def values(self, points: int | None = None) -> list[float]:
        return values_of(self.field, self.word(points))

    def json(self) -> dict[str, Any]:
        return {"field": self.field, "from": self.low, "to": self.high, "points": self.points, "scale": self.scale}


@dataclass(frozen=True)
class View:
    """A checked view; make it with `View.checked`."""

    model: Model
    values: Mapping[str, Any]
    x: Axis | None
    y: Axis | None
    observables: tuple[str, ...]
    branches: bool
    sizes: tuple[int, ...]
    seeds: int
    simulated: int

    @classmethod
    def checked(cls, request: Any) -> View:
        """Parse a view from a JSON value; raises `Refused` with one sentence if it is invalid.

        >>> View.checked({"model": "perceptron", "values": {"samples": -1}})
        Traceback (most recent call last):
        solvable.explorer.views.Refused: samples = -1 is outside its range (0, 10000]: training samples per dimension, n/d.
        """
        _object(request, "a view", KEYS)
        if not isinstance(request.get("model"), str):
            raise Refused("a view must name its model.", "model")
        kind = model_class(request["model"])
        values = request.get("values")
        values = {} if values is None else values
        if not isinstance(values, dict):
            raise Refused("the values of a view must be an object {name: value}.", "values")
        model = _made(kind, values)
        x, y = (_axis(kind, request.get(which), which) for which in ("x", "y"))
        if y is not None and (x is None or x.field == y.field):
            raise Refused("a plane needs two different controls on its axes.", "y")
        if x is not None and y is not None and x.points * y.points > MOST_GRID:
            raise Refused(
                f"a plane of {x.points} × {y.points} points is too large; at most {MOST_GRID} points are allowed.", "y"
            )
        observables = _observables(model, request.get("observables"))
        if not isinstance(branches := request.get("branches", False), bool):
            raise Refused("branches must be true or false.", "branches")
        sizes, seeds = _sizes(model, request.get("sizes"), request.get("seeds"))
        plain = 6 if y is not None else 12
        simulated = _whole("simulated", request.get("simulated"), 1, MOST_POINTS, min(plain, x.points if x else 1))
        kept = {n: v for n, v in values.items() if not _is_default(kind.fields()[n], v)}
        return cls(model, kept, x, y, observables, branches, sizes, seeds, simulated)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(a for a in (self.x, self.y) if a is not None)

    @cached_property
    def grid(self) -> dict[str, list[float]]:
        """The swept controls and their values."""
        return {a.field: a.values() for a in self.axes}

    @cached_property
    def changed(self) -> dict[str, Any]:
        """The values that differ from the model's defaults and are not swept by an axis."""
        swept = {a.field for a in self.axes}
        return {n: v for n, v in self.values.items() if n not in swept}

    def check_simulation(self) -> None:
        """Raise `Refused` if the view has no simulation, or one too large for the page."""
        if not self.sizes:
            raise Refused("a simulation needs at least one size.", "sizes")
        cells = self.simulated ** len(self.axes) * len(self.sizes) * self.seeds
        if cells > MOST_CELLS:
            raise Refused(
                f"this simulation has {cells} cells, but the page runs at most {MOST_CELLS}; use a study.", "seeds"
            )

    def study(self) -> Study:
        """The study of the view's simulation."""
        over = {a.field: a.values(self.simulated) for a in self.axes}
        return Study(self.model, over, sizes=list(self.sizes), seeds=self.seeds if self.sizes else 0)

    def json(self) -> dict[str, Any]:
        """The complete view as plain values."""
        return {
            "model": self.model.id,
            "values": dict(self.values),
            "x": self.x.json() if self.x else None,
            "y": self.y.json() if self.y else None,
            "observables": list(self.observables),
            "branches": self.branches,
            "sizes": list(self.sizes),
            "seeds": self.seeds,
            "simulated": self.simulated,
        }

    @cached_property
    def theory_key(self) -> str:
        """Everything that the theory depends on (not the shown observables)."""
        content = self.json() | {"values": self.changed}
        return json.dumps([content[n] for n in ("model", "values", "x", "y", "branches")], sort_keys=True)


def _object(request: Any, what: str, keys: tuple[str, ...]) -> None:
    if not isinstance(request, dict):
        raise Refused(f"{what} must be a JSON object.")
    for key in request:
        if key not in keys:
            raise Refused(f"{what} has no {key[:60]!r}; {nearest(key[:60], list(keys))}")


def _made(kind: type[Model], values: dict[str, Any]) -> Model:
    try:
        model = kind.create(**values)
        Study(model)  # refuses controls that are arrays
    except (InvalidValue, UnknownName) as problem:
        raise Refused(str(problem), _named(str(problem), list(kind.fields()))) from None
    return model


def _named(sentence: str, fields: list[str]) -> str | None:
    """The field at the start of a sentence, so that the page can mark it."""
    first = sentence.split(" ", 1)[0].split("[", 1)[0]
    return first if first in fields else None


def _axis(kind: type[Model], request: Any, which: str) -> Axis | None:
    if request is None:
        return None
    _object(request, f"the {which} axis", AXIS_KEYS)
    field = request.get("field")
    if not isinstance(field, str):
        raise Refused(f"the {which} axis must name the swept control.", which)
    try:
        kind.check_names([field])
    except UnknownName as problem:
        raise Refused(str(problem), which) from None
    declared = kind.fields()[field]
    if declared.kind != "control":
        raise Refused(f"{field!r} is a field of kind {declared.kind}; only controls can be swept.", which)
    low, high = (_number(which, request.get(end, declared.span[i])) for i, end in enumerate(("from", "to")))
    points = _whole(
        f"the points of the {which} axis", request.get("points"), 2, MOST_POINTS, 60 if which == "x" else 30, which
    )
    scale = request.get("scale", declared.scale)
    if scale not in ("linear", "log"):
        raise Refused(f"the scale of the {which} axis must be 'linear' or 'log'.", which)
    axis = Axis(field, low, high, points, scale)
    try:
        values = axis.values()
        checked_number(field, declared, np.asarray(values))
    except InvalidValue as problem:
        raise Refused(str(problem), which) from None
    if len(set(values)) != len(values):
        raise Refused(f"over = {field!r} has repeated values.", which)
    return axis


def _number(which: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"the {which} axis must go from a number to a number.", which)
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _whole(name: str, value: Any, low: int, high: int, default: int, field: str = "") -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(f"{name} = {str(value)[:40]} is not a whole number in [{low}, {high}].", field or name)
    return value


def _observables(model: Model, request: Any) -> tuple[str, ...]:
    known = model.observables()
    if request is None or request == []:
        return default_observables(model)
    if not isinstance(request, list) or not all(isinstance(n, str) for n in request):
        raise Refused("the observables of a view must be a list of names.", "observables")
    for name in request:
        if name not in known:
            raise Refused(str(unknown_observable(name[:200], list(known))), "observables")
    return tuple(dict.fromkeys(request))


def default_observables(model: Model) -> tuple[str, ...]:
    """Up to two observables to show first, with the same dimensions; the first one is also simulated if any is."""
    known = model.observables()
    predicted = [n for n, o in known.items() if o.predicted] or list(known)
    first = next((n for n in predicted if known[n].simulated), predicted[0])
    alike = [n for n in predicted if known[n].dims == known[first].dims and n != first]
    return tuple([first, *alike][:2])


def _sizes(model: Model, request: Any, seeds: Any) -> tuple[tuple[int, ...], int]:
    sizes = list(type(model).typical_sizes[:2]) if request is None else request
    if not isinstance(sizes, list) or len(sizes) > MOST_SIZES:
        raise Refused(f"the sizes of a view must be a list of at most {MOST_SIZES} integers.", "sizes")
    number = 8 if seeds is None else seeds
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        shown = str(number)[:40]
        raise Refused(f"seeds = {shown} is not a whole number in [1, ∞): the realisations of each cell.", "seeds")
    if number > MOST_SEEDS:
        raise Refused(f"seeds = {number} is too many for the page; at most {MOST_SEEDS} are allowed.", "seeds")
    try:
        Study(model, sizes=sizes, seeds=1 if sizes else 0)
    except InvalidValue as problem:
        raise Refused(str(problem), "sizes") from None
    return tuple(sizes), number


def _is_default(declared: Any, value: Any) -> bool:
    if declared.kind == "control":
        return float(value) == float(declared.default)
    return value is None or (declared.kind == "choice" and value == declared.default)
