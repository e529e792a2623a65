"""What stands where in the plot of a study: which dimension runs along the axis, which one makes lines, which one panels.

The words are those of `Study.plot`, of `solvable study` and of the page's address: `show`, `along`, `lines`, `by`, `log`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..contract.axes import few
from ..errors import InvalidValue, UnknownName, nearest

if TYPE_CHECKING:
    from ..study import Study

FEW = 6  # a swept control with at most this many values makes lines, not an axis
MOST_LINES = 12  # of one dimension; of a longer one, some values are drawn and the figure says so
MOST_CURVES = 4  # groups, heads or tasks of an observable that is shown by default
ALL = "all"

Words = str | Sequence[str] | None


def names_in(words: Words) -> tuple[str, ...]:
    """The names in `"a,b"` or in a sequence of names.

    >>> names_in("samples, penalty"), names_in(["loss"]), names_in(None)
    (('samples', 'penalty'), ('loss',), ())
    """
    if words is None:
        return ()
    parts = words.split(",") if isinstance(words, str) else [str(w) for w in words]
    return tuple(p.strip() for p in parts if p.strip())


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What was asked for, as names of dimensions; whatever is not named has a place of its own."""

    along: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    log: frozenset[str] | None = None  # the logarithmic axes; None: as declared

    @classmethod
    def of(cls, along: Words = None, lines: Words = None, by: Words = None, log: Words = None) -> Wishes:
        """Check the words against each other; raises `InvalidValue` for a dimension with two places."""
        asked = cls(names_in(along), names_in(lines), names_in(by), _axes(log))
        if len(asked.along) > 2:
            raise InvalidValue(f"along = {', '.join(asked.along)!r} names more than the two axes of a plane.")
        every = [*asked.along, *asked.lines, *asked.by]
        for name in every:
            if every.count(name) > 1:
                raise InvalidValue(f"{name!r} has more than one place among along, lines and by.")
        if len(asked.along) == 2 and asked.lines:
            raise InvalidValue(f"lines = {', '.join(asked.lines)!r} cannot be drawn in the plane of two controls.")
        return asked

    @property
    def named(self) -> dict[str, str]:
        """Every dimension that was named, with the word that named it."""
        return {n: word for word in ("along", "lines", "by") for n in getattr(self, word)}


def _axes(log: Words) -> frozenset[str] | None:
    if log is None:
        return None
    names = names_in(log)
    if not names or not set(names) <= {"x", "y", "none"} or ("none" in names and len(names) > 1):
        raise InvalidValue(f"log = {log!r} is not 'x', 'y', 'x,y' or 'none': the logarithmic axes.")
    return frozenset(names) - {"none"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of an observable's dimensions. With `across` it is a plane, otherwise a set of curves.

    `lines` and `by` have the indices that are drawn; `held` has one index for each dimension that is not shown.
    """

    along: str
    across: str = ""
    lines: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    by: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    held: dict[str, int] = dataclasses.field(default_factory=dict)

    def panels(self) -> list[dict[str, int]]:
        """One index in each dimension of `by`, for every panel."""
        return _combinations(self.by)

    def curves(self) -> list[dict[str, int]]:
        """One index in each dimension of `lines`, for every curve of a panel."""
        return _combinations(self.lines)


def _combinations(kept: dict[str, list[int]]) -> list[dict[str, int]]:
    return [dict(zip(kept, at, strict=True)) for at in itertools.product(*kept.values())]


def any_variable(data: Any, name: str) -> str | None:
    """The first of an observable's variables that a dataset has."""
    return next((f"{name}_{k}" for k in ("theory", "expected", "simulated") if f"{name}_{k}" in data), None)


def dims_of(study: Study, data: Any, name: str) -> list[str]:
    """The dimensions of an observable that need a place in a plot."""
    known = study.dimensions()
    dims = (str(d) for d in data[any_variable(data, name)].dims if d not in ("size", "seed"))
    return [d for d in dims if not (d in known and known[d].kind == "draw")]


def is_numeric(data: Any, dim: str) -> bool:
    """Whether a dimension has numbers as its values."""
    return dim not in data.coords or np.issubdtype(np.asarray(data.coords[dim].values).dtype, np.number)


def shown_names(study: Study, data: Any, show: Words, wishes: Wishes) -> list[str]:
    """The observables to draw: those asked for, all, or what the models name as their main ones."""
    from ..study import unknown_observable

    variants = study.variants().values()
    declared = dict.fromkeys(n for m in variants for n in m.observables())
    known = [n for n in declared if any_variable(data, n) is not None]
    dims = {n: dims_of(study, data, n) for n in known}
    _check(wishes, list(dict.fromkeys(d for n in known for d in dims[n])))
    wanted = names_in(show)
    if wanted and wanted != (ALL,):
        for name in wanted:
            if name not in known:
                raise unknown_observable(name, known)
            for dim, word in wishes.named.items():
                if dim not in dims[name] and word == "along":
                    raise InvalidValue(f"along = {dim!r}: {name} has the dimensions {', '.join(dims[name]) or 'none'}.")
        return list(wanted)
    drawable = [n for n in known if dims[n] and set(wishes.along) <= set(dims[n])]
    if wanted == (ALL,):
        return drawable or known[:1]
    main = dict.fromkeys(n for m in variants for n in m.main_observables())
    simple = [n for n in drawable if _number_of_curves(study, data, n) <= MOST_CURVES] or drawable
    return [n for n in simple if n in main] or simple[:1] or known[:1]


def check_words(study: Study, show: Words = None, along: Words = None, lines: Words = None, by: Words = None,
                log: Words = None) -> None:  # fmt: skip
    """Refuse words that a plot of this study would refuse, before anything is computed."""
    from ..study import unknown_observable

    wishes = Wishes.of(along, lines, by, log)
    declared = {n: o for m in study.variants().values() for n, o in m.observables().items()}
    wanted = names_in(show)
    for name in () if wanted == (ALL,) else wanted:
        if name not in declared:
            raise unknown_observable(name, list(declared))
    _check(wishes, list(dict.fromkeys([*study.grid, *(d for o in declared.values() for d in o.dims)])))


def _number_of_curves(study: Study, data: Any, name: str) -> int:
    known = study.dimensions()
    labels = [d for d in dims_of(study, data, name) if d in known and d not in study.grid and known[d].kind == "label"]
    return int(np.prod([data.sizes[d] for d in labels], dtype=int))


def _check(wishes: Wishes, dims: list[str]) -> None:
    for name, word in wishes.named.items():
        if name not in dims:
            has = "has no dimensions" if not dims else f"has the dimensions {', '.join(dims)}"
            near = "" if not dims else f"; {nearest(name, dims)}"
            raise UnknownName(f"{word} = {name!r}: this study {has}{near}")


def layout(study: Study, data: Any, name: str, wishes: Wishes, *, as_map: bool = False) -> Layout:
    """Give every dimension of an observable its place.

    A control swept over more than `FEW` values runs along the axis, two of them span a plane; everything else makes lines.
    A time or a spectrum of the observable itself runs along the axis if no control does, and is otherwise shown at a few
    of its values, or at its last one where there are lines already.
    """
    dims, known = dims_of(study, data, name), study.dimensions()
    free = [d for d in dims if d not in wishes.named]
    own = [d for d in free if d not in study.grid]
    axes = [d for d in own if d in known and known[d].is_axis]
    swept = [d for d in study.over if d in free and is_numeric(data, d)]
    long = [d for d in swept if data.sizes[d] > FEW]
    along = [d for d in wishes.along if d in dims]
    if not along and as_map:
        along = [d for d in own if d in axes or (d in known and known[d].kind == "pair")][:2]
    if not along:
        longest = sorted(swept, key=lambda d: -data.sizes[d])
        coordinates = [d for d in own if d in data.coords]
        along = long[: 1 if wishes.lines else 2] or axes[:1] or longest[:1] or coordinates[:1] or free[:1]
    if not along:
        raise InvalidValue("there is nothing to draw along: sweep a control with `over`.")
    rest = [d for d in dims if d not in along and d not in wishes.by]
    inner = [d for d in rest if d in known and d not in study.grid and known[d].is_axis and d not in wishes.lines]
    plane = len(along) == 2
    others = [d for d in rest if d not in inner]
    held = {}
    if plane or inner[1:] or any(data.sizes[d] > 1 for d in others):  # no room for more lines: the last value
        held = {d: data.sizes[d] - 1 for d in inner}
    if plane:  # one panel for every value; of pairs of times, the first
        pairs = [d for d in others if d in known and known[d].kind == "pair"]
        held |= dict.fromkeys(pairs, 0)
    others = [d for d in rest if d not in held]
    by = {d: few(data.sizes[d], FEW) for d in [*wishes.by, *(others if plane else [])] if d in dims}
    lines = {} if plane else {d: few(data.sizes[d], _most(known, d, wishes)) for d in others}
    return Layout(along[0], along[1] if plane else "", lines, by, held)


def _most(known: Any, dim: str, wishes: Wishes) -> int:
    thin = dim in known and (known[dim].is_axis or known[dim].kind == "pair") and dim not in wishes.lines
    return 5 if thin else MOST_LINES
