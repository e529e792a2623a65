"""Draw figures and write their data beside them (as netCDF 3, which SciPy can write without other packages).

A figure's module defines `RECIPES = {name: Recipe(compute, picture)}`. Results that take minutes are stored in the model's
folder `data` as small netCDF files with their provenance.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidValue, SolvableError
from ..models import FIGURES, figure_named
from .pieces import Pieces
from .plots import house_style

MODELS = Path(__file__).parents[1] / "models"


def kept_in(name: str) -> Path:
    """The model's folder in which the data of a figure are stored.

    >>> kept_in("perceptron-phase-diagram").parts[-3:]
    ('replica', 'perceptron', 'data')
    """
    _, _, family, model, _ = figure_named(name).module.split(".")
    return MODELS / family / model / "data"


def draw(
    name: str, folder: Path, *, quick: bool = False, recompute: bool = False, own: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write NAME.png, NAME.pdf and NAME.nc (the data) to a folder and return the files.

    `own` are arrays of the reader's, for a figure of real data: it is drawn with them instead, under the name NAME-own.
    """
    listing = figure_named(name)
    recipe: Recipe = importlib.import_module(listing.module).RECIPES[name]
    folder = Path(folder)
    if own:
        return _draw_own(name, recipe, folder, quick, own)
    pieces = Pieces(pieces_of(name, folder), say=True)
    datasets = kept(name) if not (quick or recompute) else None
    if datasets is None:
        begin, whole = time.process_time(), not (quick or pieces_of(name, folder).is_dir())
        also = {"early": Early(recipe.picture, folder / f"{name}.png")} if recipe.grows else {}
        datasets = recipe.compute(quick, pieces, **also) if recipe.resumes else recipe.compute(quick, **also)
        if whole:  # otherwise it is not the time of the figure
            seconds = round(time.process_time() - begin, 1)
            datasets = {part: data.assign_attrs(core_seconds=seconds) for part, data in datasets.items()}
    files = [folder / f"{name}.png", folder / f"{name}.pdf"]
    _save_picture(recipe.picture, datasets, files)
    files += _write(datasets, folder, name)
    pieces.clear()
    return files


def _draw_own(name: str, recipe: Recipe, folder: Path, quick: bool, own: Mapping[str, Any]) -> list[Path]:
    """Draw a figure of real data with the reader's arrays."""
    if recipe.own is None:
        takers = [f.name for f in FIGURES if importlib.import_module(f.module).RECIPES[f.name].own is not None]
        raise InvalidValue(f"the figure {name!r} takes no fields; those that take arrays are {', '.join(takers)}.")
    datasets = recipe.own(quick, own)
    files = [folder / f"{name}-own.png", folder / f"{name}-own.pdf"]
    _save_picture(recipe.picture, datasets, files)
    return files + _write(datasets, folder, name, "-own")


def compute(name: str, *, quick: bool = False) -> dict[str, Any]:
    """The data of a figure by part, computed here and now; nothing is read from the package or written to it."""
    recipe: Recipe = importlib.import_module(figure_named(name).module).RECIPES[name]
    return recipe.compute(quick, Pieces()) if recipe.resumes else recipe.compute(quick)


def _save_picture(picture: Callable[[dict[str, Any]], Any], datasets: dict[str, Any], files: list[Path]) -> None:
    import matplotlib.pyplot as plt

    folder = files[0].parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SolvableError(f"the folder {str(folder)!r} cannot be created: {problem.strerror}.") from None
    with house_style():
        figure = picture(datasets)
        for file in files:
            figure.savefig(file)
        plt.close(figure)


class Early:
    """A preliminary picture, redrawn as more results arrive."""

    def __init__(self, picture: Callable[[dict[str, Any]], Any], file: Path):
        self.picture, self.file = picture, file

    def say(self, sentence: str) -> None:
        """Print a line of progress on standard error."""
        print(sentence, file=sys.stderr, flush=True)

    def show(self, datasets: dict[str, Any], sentence: str) -> None:
        """Draw the results so far and print a sentence about them."""
        _save_picture(self.picture, datasets, [self.file])
        self.say(f"{self.file}: {sentence}")


def pieces_of(name: str, folder: Path) -> Path:
    """The folder for the finished parts of an unfinished figure."""
    return Path(folder) / f".{name}.pieces"


class Recipe:
    """How to make a figure: `compute` returns datasets by name, `picture` draws them, `sentence` is the caption.

    With `resumes` (for figures that take minutes), `compute(quick, pieces)` stores finished parts in `Pieces`. With
    `grows`, it is also given `early=`, an `Early` to show intermediate results; `picture` must then accept NaN.
    `also` names further models whose studies the figure shows. `own(quick, arrays)` computes the same data from arrays of the
    reader's (`methods.data.own`), for a figure of real data.
    """

    def __init__(
        self,
        compute: Callable[..., dict[str, Any]],
        picture: Callable[[dict[str, Any]], Any],
        *,
        sentence: str = "",
        resumes: bool = False,
        grows: bool = False,
        also: Sequence[str] = (),
        own: Callable[[bool, Mapping[str, Any]], dict[str, Any]] | None = None,
    ):
        self.compute, self.picture, self.sentence, self.also = compute, picture, sentence, tuple(also)
        self.resumes, self.grows, self.own = resumes, grows, own


def keep(name: str, datasets: dict[str, Any]) -> list[Path]:
    """Store a figure's results in the package."""
    folder = kept_in(name)
    folder.mkdir(exist_ok=True)
    return _write(datasets, folder, name)


def _write(datasets: dict[str, Any], folder: Path, name: str, suffix: str = "") -> list[Path]:
    files = []
    for part, data in datasets.items():
        if "study" not in data.attrs:  # a table assembled by the recipe: record where it comes from
            from ..study import provenance as made_by

            data = data.assign_attrs(
                study=json.dumps({"models": [figure_named(name).model], "figure": name}), **made_by()
            )
        file = folder / (f"{name}{suffix}.{part}.nc" if part else f"{name}{suffix}.nc")
        flags = {v: data[v].astype("int8") for v in data.variables if data[v].dtype == bool}
        plain = data.assign(flags)
        plain.assign_attrs(sha256=fingerprint(plain)).to_netcdf(file, engine="scipy")
        files.append(file)
    return files


def kept(name: str) -> dict[str, Any] | None:
    """The stored data of a figure by part, or None if there are none."""
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
    """A hash of every name, dimension and number of a dataset, stored in its file to detect changes.

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
        # netCDF stores strings as characters and integers in 32 bits, so the hash uses values, not bytes
        digest.update(
            json.dumps([str(v) for v in values.reshape(-1)]).encode() if words else values.astype("<f8").tobytes()
        )
    return digest.hexdigest()


def provenance(data: Any) -> dict[str, Any]:
    """The specification of the study behind a dataset."""
    return json.loads(data.attrs["study"])
