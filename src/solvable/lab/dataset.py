"""From computed cells to plain tables, and to one labelled dataset."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import SolvableError
from .memory import check_room
from .planning import Family, columns_of
from .store import block_id

if TYPE_CHECKING:
    import xarray as xr

    from ..study import Study

EXTRA = ("converged", "residual")


Tables = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""The dimensions and the values of every variable of a dataset."""


def tabulate(
    study: Study,
    finished: Iterable[tuple[str, Mapping[str, Any]]],
    read: Callable[[str], Mapping[str, np.ndarray]],
) -> Tables:
    """The variables of `Study.dataset` as plain arrays, from all finished blocks; imports no xarray.

    If several blocks in `finished` contain the same cell, the last one is used. Only blocks with cells of this study are
    read.
    """
    grid, models = study.grid, study.variants()
    declared = {n: o for m in models.values() for n, o in m.observables().items()}
    lengths = {n: len(v) for n, v in grid.items()}
    if study.sizes:
        lengths |= {"size": len(study.sizes), "seed": len(study.seeds)}
    holders: Tables = {}

    def put(name: str, dims: tuple[str, ...], index: tuple[Any, ...], values: np.ndarray) -> None:
        base = name.rsplit("_", 1)[0]
        own: tuple[str, ...] = ()
        if base in declared:
            own = declared[base].dims if name.endswith("_simulated") else declared[base].theory_dims
        if name not in holders:
            kind = bool if base == "converged" else float
            start = False if kind is bool else np.nan
            whole = tuple(lengths[d] for d in dims) + values.shape[1:]
            held = sum(array.nbytes for _, array in holders.values())
            check_room(held + math.prod(whole) * np.dtype(kind).itemsize, "the table of this study's results")
            holders[name] = (dims + own, np.full(whole, start, dtype=kind))
        single = all(np.ndim(i) == 0 for i in index)  # a study of one point has one lane
        holders[name][1][index] = values[0] if single else values

    shared = tuple(grid)
    paired = any(m.unprepared for m in models.values())
    places, planned = Places(study), study.planning.variants
    for block, block_spec in finished:
        arrays = None
        for variant, place in places.of(block_spec):
            arrays = arrays if arrays is not None else read(block)
            counts, prepare = bool(planned[variant].counting), planned[variant].prepare
            at = tuple(place.at[d] for d in shared)
            for name, every in arrays.items():
                values = every[place.lanes]
                if block_spec["kind"] == "simulation" or prepare:
                    kind = "simulated" if block_spec["kind"] == "simulation" else "expected"
                    put(f"{name}_{kind}", (*shared, "size", "seed"), (*at, place.size, place.seed), values)
                    continue
                nominal = place.size < 0
                if nominal.any():
                    put(f"{name}_theory", shared, _chosen(at, nominal), values[nominal])
                if name in EXTRA or not study.sizes:
                    continue
                # A theory that does not depend on the size is expected at every size.
                expected = ~nominal if counts else nominal
                for size in [None] if counts else range(len(study.sizes)):
                    index = (*_chosen(at, expected), place.size[expected] if size is None else size)
                    if paired:  # the theory of some variant depends on the seed: give all variants the same dimensions
                        for seed in range(len(study.seeds)):
                            put(f"{name}_expected", (*shared, "size", "seed"), (*index, seed), values[expected])
                    else:
                        put(f"{name}_expected", (*shared, "size"), index, values[expected])

    return holders


def assemble(study: Study, tables: Tables) -> xr.Dataset:
    """One labelled dataset of the variables that `tabulate` has found."""
    import xarray as xr

    grid, models = study.grid, study.variants()
    declared = {n: o for m in models.values() for n, o in m.observables().items()}
    coords: dict[str, Any] = {n: np.asarray(v) for n, v in grid.items()}
    if study.sizes:
        coords |= {"size": np.asarray(study.sizes), "seed": np.asarray(study.seeds)}
    inner = _inner_coordinates(models)
    dataset = xr.Dataset(tables, coords)
    dataset = dataset.assign_coords({d: c for d, c in inner.items() if d in dataset.dims})
    for name in dataset.data_vars:
        base = str(name).rsplit("_", 1)[0]
        if base in declared:
            observable = declared[base]
            dataset[name].attrs |= {
                "meaning": observable.meaning,
                "symbol": observable.symbol,
                "status": observable.status,
            }
    first = next(iter(models.values()))
    for name, field in first.fields().items():
        if name in dataset.coords:
            dataset.coords[name].attrs |= {"meaning": field.meaning, "symbol": field.symbol}
    for dim in {d.name: d for m in models.values() for d in m.dimensions().values()}.values():
        if dim.name in dataset.coords and dim.name not in grid:
            dataset.coords[dim.name].attrs |= {
                "meaning": dim.meaning,
                "symbol": dim.symbol,
                "scale": dim.scale,
                "kind": dim.kind,
            }
    return dataset


class Place(NamedTuple):
    """Position of some lanes of a block in the grid: per dimension one index, or one per lane; size -1 if none."""

    lanes: np.ndarray
    at: dict[str, Any]
    size: np.ndarray
    seed: np.ndarray


class Places:
    """Finds the places of a block's cells in the grid of a study."""

    def __init__(self, study: Study):
        self._families: dict[str, list[tuple[Family, list[dict[str, int]], list[dict[str, int]]]]] = {}
        for family, outer in study.families.items():
            known = [{v: i for i, v in enumerate(values)} for _, values in family.swept]
            self._families.setdefault(family.variant, []).append((family, outer, known))
        self._swept = study.swept_controls
        self._size = {s: i for i, s in enumerate(study.sizes)} | {None: -1}
        self._seed = {s: i for i, s in enumerate(study.seeds)} | {None: -1}
        self._variants: dict[str, str] = {}

    def of(self, block: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
        """The places of a block's cells that belong to the study, with the hash of their variant."""
        text = json.dumps(block["variant"])
        if text not in self._variants:
            self._variants[text] = block_id(block["variant"])
        variant, number = self._variants[text], block["cells"]
        if variant not in self._families:
            return
        controls, sizes, seeds = columns_of(block)
        if block["kind"] == "theory" and not block["prepare"]:
            seeds = None
        size, seed = self._found(sizes, self._size, number), self._found(seeds, self._seed, number)
        for family, outer, known in self._families[variant]:
            lanes = (size > -2) & (seed > -2)
            for position, value in enumerate(family.fixed):
                if value is not None:
                    lanes &= self._found(controls[position], {value: 0}, number) == 0
            found = [self._found(controls[p], k, number) for (p, _), k in zip(family.swept, known, strict=True)]
            for index in found:
                lanes &= index >= 0
            if lanes.any():
                which = np.flatnonzero(lanes)
                at = {n: index[which] for n, index in zip(self._swept, found, strict=True)}
                for labels in outer:
                    yield variant, Place(which, labels | at, size[which], seed[which])

    @staticmethod
    def _found(column: Any, known: Mapping[Any, int], number: int) -> np.ndarray:
        """The index of every value; -2 for values not in the study."""
        if not isinstance(column, list):
            return np.full(number, known.get(column, -2))
        return np.fromiter((known.get(v, -2) for v in column), int, number)


def _chosen(at: tuple[Any, ...], mask: np.ndarray) -> tuple[Any, ...]:
    """The places of the lanes in `mask`; always index arrays, so that lanes stay an axis even if nothing is swept."""
    return tuple(i[mask] if isinstance(i, np.ndarray) else np.full(int(mask.sum()), i) for i in at)


def _inner_coordinates(models: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """One coordinate per dimension of the observables (times, eigenvalues), the same for every model of the study."""
    found: dict[str, np.ndarray] = {}
    for model in models.values():
        for dim, values in model.coordinates().items():
            values = np.asarray(values)
            if dim in found and not np.array_equal(found[dim], values):
                raise SolvableError(f"the models of this study do not share the coordinate {dim!r}.")
            found[dim] = values
    return found
