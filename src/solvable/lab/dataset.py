"""From computed cells to one labelled dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..errors import SolvableError
from .plan import Cell

if TYPE_CHECKING:
    from ..study import Study

EXTRA = ("converged", "residual")


def assemble(study: Study, results: Mapping[Cell, tuple[dict[str, np.ndarray], int]]) -> xr.Dataset:
    """One dataset of everything that is done; see `Study.dataset` for its variables."""
    grid, models = study._grid(), study.variants()
    declared = {n: o for m in models.values() for n, o in m.observables().items()}
    coords: dict[str, Any] = {n: np.asarray(v) for n, v in grid.items()}
    if study.sizes:
        coords |= {"size": np.asarray(study.sizes), "seed": np.asarray(study.seeds)}
    inner = _inner_coordinates(models)
    shared = tuple(grid)
    shape = tuple(len(v) for v in grid.values())
    holders: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}

    def put(
        name: str, dims: tuple[str, ...], outer: tuple[int, ...], index: tuple[int, ...], value: np.ndarray
    ) -> None:
        base = name.rsplit("_", 1)[0]
        own = declared[base].dims if base in declared else ()
        if name not in holders:
            kind = bool if base == "converged" else float
            start = False if kind is bool else np.nan
            holders[name] = (dims + own, np.full(outer + value.shape, start, dtype=kind))
        holders[name][1][index] = value

    sizes, seeds = study.sizes, study.seeds
    paired = any(m.unprepared for m in models.values())
    for index, variant, controls in study._points:
        counts, prepare = bool(study._counts(models[variant])), models[variant].unprepared
        nominal = results.get(Cell("theory", variant, controls, None, None))
        if nominal is not None:
            for name, value in _lane(nominal):
                put(f"{name}_theory", shared, shape, index, value)
        for i, size in enumerate(sizes):
            if not prepare:
                cell = Cell("theory", variant, controls, size if counts else None, None)
                for name, value in _lane(results.get(cell)):
                    if name not in EXTRA:
                        if paired:  # some variant's theory differs from seed to seed: give all the same dimensions
                            whole = (*shape, len(sizes), len(seeds))
                            for j in range(len(seeds)):
                                put(f"{name}_expected", (*shared, "size", "seed"), whole, (*index, i, j), value)
                        else:
                            put(f"{name}_expected", (*shared, "size"), (*shape, len(sizes)), (*index, i), value)
            for j, seed in enumerate(seeds):
                whole, at = (*shape, len(sizes), len(seeds)), (*index, i, j)
                if prepare:
                    for name, value in _lane(results.get(Cell("theory", variant, controls, size, seed))):
                        put(f"{name}_expected", (*shared, "size", "seed"), whole, at, value)
                for name, value in _lane(results.get(Cell("simulation", variant, controls, size, seed))):
                    put(f"{name}_simulated", (*shared, "size", "seed"), whole, at, value)

    dataset = xr.Dataset({n: (dims, values) for n, (dims, values) in holders.items()}, coords)
    dataset = dataset.assign_coords({d: c for d, c in inner.items() if d in dataset.dims})
    for name in dataset.data_vars:
        base = str(name).rsplit("_", 1)[0]
        if base in declared:
            said = declared[base]
            dataset[name].attrs |= {"meaning": said.meaning, "symbol": said.symbol, "status": said.status}
    first = next(iter(models.values()))
    for name, said in first.fields().items():
        if name in dataset.coords:
            dataset.coords[name].attrs |= {"meaning": said.meaning, "symbol": said.symbol}
    return dataset


def _lane(result: tuple[dict[str, np.ndarray], int] | None):
    if result is not None:
        arrays, lane = result
        for name, values in arrays.items():
            yield name, values[lane]


def _inner_coordinates(models: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Times, eigenvalues and the like: one coordinate per dimension, the same for every model of the study."""
    found: dict[str, np.ndarray] = {}
    for model in models.values():
        for dim, values in model.coordinates().items():
            values = np.asarray(values)
            if dim in found and not np.array_equal(found[dim], values):
                raise SolvableError(f"the models of this study do not share the coordinate {dim!r}.")
            found[dim] = values
    return found
