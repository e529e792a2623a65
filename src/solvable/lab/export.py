"""Export of a study's dataset for other programs: CSV, netCDF, and zarr if it is installed."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SolvableError

if TYPE_CHECKING:
    import xarray as xr

KINDS = ("theory", "expected", "simulated")


def export(data: xr.Dataset, to: str, out: str | os.PathLike[str]) -> None:
    """Write the dataset to the file `out` atomically (zarr: to a folder)."""
    file = Path(out)
    if to == "zarr":
        if importlib.util.find_spec("zarr") is None:
            raise SolvableError("zarr is not installed: export to netcdf or csv, or install solvable[cluster].")
        if file.exists():
            raise SolvableError(f"{str(file)!r} already exists: choose another name.")
    writers: dict[str, Callable[[Path], Any]] = {
        "csv": lambda part: _write_csv(data, part),
        "netcdf": lambda part: data.to_netcdf(part, engine="scipy"),
        "zarr": lambda part: data.to_zarr(part, consolidated=False),
    }
    if to not in writers:
        raise SolvableError(f"to = {to!r} is not one of csv, netcdf, zarr.")
    with _replacing(file) as part:
        writers[to](part)


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    part = file.with_name(f".{file.name}.{os.urandom(8).hex()}.part")
    try:
        if file.is_dir():
            raise SolvableError(f"{str(file)!r} is a folder: name a file.")
        file.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, file)
    except OSError as problem:
        raise SolvableError(f"Could not write {str(file)!r}: {problem.strerror or problem}.") from problem
    finally:
        with suppress(OSError):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def _write_csv(data: xr.Dataset, part: Path) -> None:
    """One row per cell: its kind, its coordinates, its observables.

    An observable with its own dimensions (times, eigenvalues) has separate rows, one per value, with the cell's coordinates
    and its own. Entries that do not apply are empty; entries not converged or not done are nan.
    """
    groups: dict[tuple[str, tuple[str, ...]], dict[str, xr.DataArray]] = {}
    for variable, array in data.data_vars.items():
        base, _, kind = str(variable).rpartition("_")
        groups.setdefault((kind, tuple(map(str, array.dims))), {})[base] = array
    dims = list(dict.fromkeys(d for _, own in groups for d in own))
    names = list(dict.fromkeys(n for members in groups.values() for n in members))
    with part.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["kind", *dims, *names])
        for (kind, own), members in sorted(groups.items(), key=lambda g: (KINDS.index(g[0][0]), len(g[0][1]))):
            labels = {d: data[d].values if d in data.coords else np.arange(data.sizes[d]) for d in own}
            at = itertools.product(*(_texts(labels[d]) for d in own))
            places = [own.index(d) if d in own else None for d in dims]
            columns = (_texts(members[n].values) if n in members else itertools.repeat("") for n in names)
            rows.writerows(
                [kind, *("" if p is None else where[p] for p in places), *values]
                for where, *values in zip(at, *columns, strict=False)
            )


def _texts(values: np.ndarray) -> list[str]:
    """All values in order; the repr of a float reads back to the same bits."""
    return list(map(repr if values.dtype.kind == "f" else str, values.ravel().tolist()))
