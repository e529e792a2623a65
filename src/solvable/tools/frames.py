"""Tables as scikit-learn users have them: numbers and words, missing values, dates; and a default pipeline for them.

Files are read with pandas (CSV, Parquet) or NumPy (NPY, mapped into memory, and NPZ).
"""

from __future__ import annotations

import csv
import mmap
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidValue
from .tables import MISSING, _chosen, _number, _read_npz, plain_file

MOST_WORDS = 200
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}([ T].*)?")


class Frame(NamedTuple):
    """Features (a NumPy array or a data frame), targets, and the target's name."""

    features: Any
    targets: np.ndarray
    target: str


def read_frame(path: str | os.PathLike[str], target: str | None = None, ignore: tuple[str, ...] = ()) -> Frame:
    """Read a table with words, missing values and dates left as they are; `target` names the column to predict."""
    path = plain_file(path, 8)
    kind = path.suffix.lower()
    if kind == ".npz":
        table = _read_npz(path, target, ignore)
        return Frame(table.features, table.targets, table.target)
    if kind == ".npy":
        return _read_npy(path, target, ignore)
    if kind in (".parquet", ".pq"):
        frame = _read_parquet(path)
    elif kind in (".csv", ".tsv", ".txt", ".data"):
        frame = _read_csv(path)
    else:
        raise InvalidValue(f"the file {str(path)!r} is not a .csv, .tsv, .txt, .data, .npy, .npz or .parquet file.")
    return of_frame(str(path), frame, target, ignore)


def of_frame(name: str, frame: Any, target: str | None, ignore: tuple[str, ...] = ()) -> Frame:
    """A data frame, divided into features and target; `name` is used in messages."""
    names = [str(c) for c in frame.columns]
    frame = frame.set_axis(names, axis=1) if list(frame.columns) != names else frame
    place, features = _chosen(Path(name), names, target, ignore)
    column = frame.iloc[:, place]
    return Frame(frame.iloc[:, features], _targets(column, names[place]), names[place])


def _targets(column: Any, name: str) -> np.ndarray:
    empty = np.asarray(column.isna())
    if empty.any():
        raise InvalidValue(
            f"row {int(empty.argmax()) + 1} has no value in the column {name!r}, which is to be predicted."
        )
    try:
        return column.to_numpy(float)
    except (TypeError, ValueError):
        return column.astype(str).to_numpy(str)


def _read_npy(path: Path, target: str | None, ignore: tuple[str, ...]) -> Frame:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as problem:  # whatever a damaged file makes of the reader
        raise InvalidValue(f"the file {str(path)!r} is not an array of numbers ({type(problem).__name__}).") from None
    if table.ndim != 2 or table.dtype.kind not in "fiub":
        raise InvalidValue(
            f"{path}: the array has shape {table.shape} and type {table.dtype}, not numbers in rows and columns."
        )
    names = [f"column{k + 1}" for k in range(table.shape[1])]
    place, features = _chosen(path, names, target, ignore)
    targets = np.array(table[:, place], float)
    give_back(table)
    if features == list(range(place)):  # the last column is the target, nothing is ignored: a view
        return Frame(table[:, :place], targets, names[place])
    return Frame(table[:, features], targets, names[place])


def give_back(table: np.ndarray) -> None:
    """Let the system take back the pages of a file that is mapped for reading: else they count as this process's memory."""
    pages = table._mmap if isinstance(table, np.memmap) and table.mode == "r" else None  # type: ignore[attr-defined]
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def _read_parquet(path: Path) -> Any:
    try:
        import pandas

        return pandas.read_parquet(path)
    except ImportError:
        raise InvalidValue("reading Parquet needs pandas and pyarrow: install them, or use CSV.") from None
    except Exception as problem:  # whatever a damaged file makes of the readers
        raise InvalidValue(f"the file {str(path)!r} is not a Parquet file ({type(problem).__name__}).") from None


def _read_csv(path: Path) -> Any:
    import pandas

    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError):
        raise InvalidValue(f"the file {str(path)!r} is not UTF-8 text.") from None
    if not first.strip():
        raise InvalidValue(f"the file {str(path)!r} is empty.")
    mark = max((",", ";", "\t"), key=first.count)
    head = [cell.strip() for cell in next(csv.reader([first], delimiter=mark, skipinitialspace=True))]
    named = any(_number(cell) is None and cell.lower() not in MISSING for cell in head[: max(1, len(head) - 1)])
    empty = sorted({form for word in MISSING if word for form in (word, word.upper(), word.title())})
    try:
        return pandas.read_csv(
            path, sep=mark, header=0 if named else None, names=None if named else [f"column{k + 1}" for k in range(len(head))],
            encoding="utf-8-sig", skipinitialspace=True, na_values=empty, index_col=False,
        )  # fmt: skip
    except Exception as problem:  # pandas has many ways to say that a file is not a table
        reason = " ".join(str(problem).split())[:160]
        raise InvalidValue(f"{path} cannot be read as a table: {reason}.") from None


def is_frame(features: Any) -> bool:
    """Whether this is a data frame of pandas."""
    return hasattr(features, "iloc") and hasattr(features, "dtypes")


def default_features(features: Any) -> Any:
    """The usual steps for a table: numbers imputed by the median and scaled, words as one-hot columns; dates are refused."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    if not is_frame(features):
        return numbers
    words, numeric = [], []
    for name in features.columns:
        column = features[name]
        if column.dtype.kind in "mM":
            raise InvalidValue(_dates(name))
        if column.dtype.kind in "fiub":
            numeric.append(name)
            continue
        held = column.dropna().astype(str)
        if len(held) and all(_DATE.fullmatch(text.strip()) for text in held.iloc[:50]):
            raise InvalidValue(_dates(name))
        if held.nunique() > MOST_WORDS:
            raise InvalidValue(
                f"the column {name!r} has {held.nunique()} different words, more than {MOST_WORDS}: leave it out with "
                "--ignore, or encode it in a pipeline of your own."
            )
        words.append(name)
    parts = ([(numbers, numeric)] if numeric else []) + (
        [(OneHotEncoder(handle_unknown="ignore", sparse_output=False), words)] if words else []
    )
    return make_column_transformer(*parts)


def _dates(name: str) -> str:
    return (
        f"the column {name!r} contains dates, which have no unit: turn it into numbers (such as days since the first), or "
        "leave it out with --ignore."
    )
