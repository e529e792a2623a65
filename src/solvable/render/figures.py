"""Draw a figure and lay its data beside it (netCDF 3, which SciPy writes: no further dependency).

A figure's module defines `RECIPES = {name: Recipe(compute, picture)}`; results that take minutes are kept beside the
model, in its folder `data`, as small netCDF files with their provenance.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SolvableError
from ..models import figure_named
from .pieces import Pieces
from .plots import house_style

MODELS = Path(__file__).parents[1] / "models"


def kept_in(name: str) -> Path:
    """The folder, beside its model, that keeps what a figure needs minutes to compute.

    >>> kept_in("perceptron-phase-diagram").parts[-3:]
    ('replica', 'perceptron', 'data')
    """
    _, _, family, model, _ = figure_named(name).module.split(".")
    return MODELS / family / model / "data"


def draw(name: str, folder: Path, *, quick: bool = False, recompute: bool = False) -> list[Path]:
    """Write NAME.png, NAME.pdf and NAME.nc (the data) into a folder; returns the files."""
    listing = figure_named(name)
    recipe: Recipe = importlib.import_module(listing.module).RECIPES[name]
    folder = Path(folder)
    pieces = Pieces(pieces_of(name, folder), say=True)
    datasets = kept(name) if not (quick or recompute) else None
    if datasets is None:
        also = {"early": Early(recipe.picture, folder / f"{name}.png")} if recipe.grows else {}
        datasets = recipe.compute(quick, pieces, **also) if recipe.resumes else recipe.compute(quick, **also)
    files = [folder / f"{name}.png", folder / f"{name}.pdf"]
    _paint(recipe.picture, datasets, files)
    files += _write(datasets, folder, name)
    pieces.clear()
    return files


def _paint(picture: Callable[[dict[str, Any]], Any], datasets: dict[str, Any], files: list[Path]) -> None:
    import matplotlib.pyplot as plt

    folder = files[0].parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SolvableError(f"the folder {str(folder)!r} cannot be made: {problem.strerror}.") from None
    with house_style():
        figure = picture(datasets)
        for file in files:
            figure.savefig(file)
        plt.close(figure)


class Early:
    """A picture that is there before all of it is known, drawn again as it grows."""

    def __init__(self, picture: Callable[[dict[str, Any]], Any], file: Path):
        self.picture, self.file = picture, file

    def say(self, sentence: str) -> None:
        """A line on standard error: what is being computed."""
        print(sentence, file=sys.stderr, flush=True)

    def show(self, datasets: dict[str, Any], sentence: str) -> None:
        """Draw what is known, and say what that is."""
        _paint(self.picture, datasets, [self.file])
        self.say(f"{self.file}: {sentence}")


def pieces_of(name: str, folder: Path) -> Path:
    """Where the parts of a figure that are done wait for the others."""
    return Path(folder) / f".{name}.pieces"


class Recipe:
    """How to make a figure: what to compute (datasets by name), how to show it, and what is to be seen, in a `sentence`.

    One that takes minutes `resumes`: its `compute(quick, pieces)` keeps what is done in `Pieces`. One that `grows` is
    given `early=`, an `Early` that shows what is known so far; its `picture` draws unknown numbers (NaN) as unknown."""

    def __init__(
        self,
        compute: Callable[..., dict[str, Any]],
        picture: Callable[[dict[str, Any]], Any],
        *,
        sentence: str = "",
        resumes: bool = False,
        grows: bool = False,
    ):
        self.compute, self.picture, self.sentence = compute, picture, sentence
        self.resumes, self.grows = resumes, grows


def keep(name: str, datasets: dict[str, Any]) -> list[Path]:
    """Commit a figure's minutes-long results to the package."""
    folder = kept_in(name)
    folder.mkdir(exist_ok=True)
    return _write(datasets, folder, name)


def _write(datasets: dict[str, Any], folder: Path, name: str) -> list[Path]:
    files = []
    for part, data in datasets.items():
        if "study" not in data.attrs:  # a table put together by the recipe: it says whose it is
            from ..study import provenance as made_by

            data = data.assign_attrs(
                study=json.dumps({"models": [figure_named(name).model], "figure": name}), **made_by()
            )
        file = folder / (f"{name}.{part}.nc" if part else f"{name}.nc")
        flags = {v: data[v].astype("int8") for v in data.variables if data[v].dtype == bool}
        plain = data.assign(flags)
        plain.assign_attrs(sha256=fingerprint(plain)).to_netcdf(file, engine="scipy")
        files.append(file)
    return files


def kept(name: str) -> dict[str, Any] | None:
    """The stored data of a figure, by part, or None where nothing is kept."""
    import xarray as xr

    folder = kept_in(name)
    files = sorted(folder.glob(f"{name}.*nc")) if folder.is_dir() else []
    if not files:
        return None
    parts = {}
    for file in files:
        part = file.name.removeprefix(name).removesuffix("nc").strip(".")
        with xr.open_dataset(file, engine="scipy") as data:
            parts[part] = data.load()
    return parts


def fingerprint(data: Any) -> str:
    """A hash of every name, dimension and number of a dataset: what a file says it holds, and what it holds.

    >>> import xarray as xr
    >>> fingerprint(xr.Dataset({"x": ("n", [1.0, 2.0])}))[:12]
    '88291697161b'
    """
    digest = hashlib.sha256()
    for name in sorted(map(str, data.variables)):
        variable = data[name]
        digest.update(json.dumps([name, list(variable.dims), list(variable.shape)]).encode())
        values = np.asarray(variable.values)
        words = values.dtype.kind in "SUO"
        # netCDF keeps words as characters and whole numbers as 32 bits: what counts is what they say
        digest.update(
            json.dumps([str(v) for v in values.reshape(-1)]).encode() if words else values.astype("<f8").tobytes()
        )
    return digest.hexdigest()


def provenance(data: Any) -> dict[str, Any]:
    """The specification of the study behind a dataset."""
    return json.loads(data.attrs["study"])
