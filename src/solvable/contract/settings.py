"""What a model declares beside its fields: numerics of its theory, sizes of its quick test, what the page opens with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import UnknownName, nearest


class Numerics(Mapping[str, Any]):
    """Numerical settings of a theory (nodes, steps, tolerances), not physics. Hashable; settings are attributes.

    >>> Numerics(nodes=64, tolerance=1e-12).nodes
    64
    """

    def __init__(self, **settings: int | float | str):
        self._settings = dict(sorted(settings.items()))

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._settings[name]
        except KeyError:
            raise AttributeError(name) from None

    def __hash__(self) -> int:
        return hash(tuple(self._settings.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numerics) and self._settings == other._settings

    def __repr__(self) -> str:
        return f"Numerics({', '.join(f'{k}={v!r}' for k, v in self._settings.items())})"

    def updated(self, changes: Mapping[str, Any] | None) -> Numerics:
        """A copy with some settings changed; raises `UnknownName` for a setting that does not exist."""
        for name in changes or {}:
            if name not in self._settings:
                raise UnknownName(f"numerics has no setting {name!r}; {nearest(name, list(self._settings))}")
        return Numerics(**{**self._settings, **(changes or {})})


@dataclasses.dataclass(frozen=True)
class Guard:
    """The smallest settings at which a quick test of the model (`testing.guard_model`) is still meaningful.

    `values` are the fields, some of which `simulated_values` replace in the simulation; `size` (by default the smallest
    typical one) and `seeds` are those of the simulation. `points` is the least number of points, over the typical ranges, at
    which the theory must converge within its bounds; fewer suit a theory that takes seconds. Reference values at the same
    choices and shapes reuse the compiled programs. `corner_points` is the number of points of each corner case (see
    `testing.corner_cases`); fewer suit a theory that optimises.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    simulated_values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    size: int | None = None
    seeds: int = 8
    points: int = 16
    corner_points: int = 16


@dataclasses.dataclass(frozen=True)
class FirstView:
    """What the page opens a model with, where the choices that follow from its other declarations decide nothing soon.

    `sizes`, `seeds` and `points` along the axis are those of the simulation, `values` the fields, `along` and `span` the
    axis and its ends, `observables` what is shown.

    >>> FirstView(seeds=32).changes()
    {'seeds': 32}
    """

    sizes: tuple[int, ...] = ()
    seeds: int = 0
    points: int = 0
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    along: str = ""
    span: tuple[float, float] | None = None
    observables: tuple[str, ...] = ()

    def changes(self) -> dict[str, Any]:
        """The parts of a view that are declared, except the axis."""
        every = {"sizes": list(self.sizes), "seeds": self.seeds, "simulated": self.points, "values": dict(self.values),
                 "observables": list(self.observables)}  # fmt: skip
        return {name: value for name, value in every.items() if value}
