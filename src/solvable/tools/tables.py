"""A table of numbers with one column to predict, from a CSV, NPZ or Parquet file. Imports nothing heavy.

Errors in a file raise `InvalidValue` with one sentence that names the line and the column.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InvalidValue, nearest

LARGEST_FILE = 2 * 1024**3
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}


class Table(NamedTuple):
    """Features, the column to predict (numbers or words), and their names."""

    features: np.ndarray
    targets: np.ndarray
    names: list[str]
    target: str


def plain_file(path: str | os.PathLike[str], gigabytes: int) -> Path:
    """The path, if it is a plain file that is not too large; raises `InvalidValue`."""
    path = Path(path)
    try:
        size = path.stat().st_size
    except OSError as problem:
        raise InvalidValue(f"the file {str(path)!r} cannot be read: {problem.strerror}.") from None
    if path.is_dir():
        raise InvalidValue(f"{str(path)!r} is a folder, not a table.")
    if not path.is_file() or size > gigabytes * 1024**3:
        raise InvalidValue(
            f"the file {str(path)!r} cannot be read: it is not a plain file, or larger than {gigabytes} GB."
        )
    return path


def read_table(path: str | os.PathLike[str], target: str | None = None, ignore: tuple[str, ...] = ()) -> Table:
    """Read a table; `target` names the column to predict (default: the last one, or the array y of an NPZ file).

    Formats: CSV (comma, semicolon or tab; a first line of words is read as names), NPZ (arrays X and y), Parquet (with
    pandas).
    """
    path = plain_file(path, 2)
    kind = path.suffix.lower()
    if kind == ".npz":
        return _read_npz(path, target, ignore)
    if kind in (".parquet", ".pq"):
        return _read_parquet(path, target, ignore)
    if kind in (".csv", ".tsv", ".txt", ".data"):
        return _read_csv(path, target, ignore)
    raise InvalidValue(f"the file {str(path)!r} is not a .csv, .tsv, .txt, .data, .npz or .parquet file.")


def _chosen(path: Path, names: list[str], target: str | None, ignore: tuple[str, ...]) -> tuple[int, list[int]]:
    """The indices of the target and of the features among the columns."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValue(f"{path}: two columns are called {twice!r}.")
    target = names[-1] if target is None else target
    for word in (target, *ignore):
        if word not in names:
            raise InvalidValue(f"{path} has no column {word!r}; {nearest(word, names)}")
    if target in ignore:
        raise InvalidValue(f"the column {target!r} cannot be both predicted and ignored.")
    place = names.index(target)
    features = [k for k, name in enumerate(names) if k != place and name not in ignore]
    if not features:
        raise InvalidValue(f"{path} has no column other than {target!r} to predict it from.")
    return place, features


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read_csv(path: Path, target: str | None, ignore: tuple[str, ...]) -> Table:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise InvalidValue(f"the file {str(path)!r} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        raise InvalidValue(f"the file {str(path)!r} is not UTF-8 text: byte {problem.start} is invalid.") from None
    if "\0" in text:
        raise InvalidValue(f"the file {str(path)!r} is not a text file: it contains zero bytes.")
    first = text.split("\n", 1)[0]
    mark = max((",", ";", "\t"), key=first.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as problem:
        raise InvalidValue(f"{path} is not a CSV file: {problem}.") from None
    rows = [(line, row) for line, row in rows if any(row)]
    if not rows:
        raise InvalidValue(f"the file {str(path)!r} is empty.")
    head = rows[0][1]
    # Words in the first line are names, unless only the last cell is a word: then it may be a label.
    named = any(_number(cell) is None and cell.lower() not in MISSING for cell in head[: max(1, len(head) - 1)])
    names = head if named else [f"column{k + 1}" for k in range(len(head))]
    rows = rows[1:] if named else rows
    place, features = _chosen(path, names, target, ignore)
    for line, row in rows:
        if len(row) != len(names):
            raise InvalidValue(f"{path}: line {line} has {len(row)} columns, but the first line has {len(names)}.")
    values = np.empty((len(rows), len(features)))
    for k, (line, row) in enumerate(rows):
        try:
            values[k] = [float(row[f]) for f in features]
        except ValueError:
            wrong = next(f for f in features if _number(row[f]) is None)
            if row[wrong].lower() in MISSING:
                raise InvalidValue(f"{path}: line {line} has no value in the column {names[wrong]!r}.") from None
            raise InvalidValue(
                f"{path}: line {line} has {row[wrong][:40]!r} in the column {names[wrong]!r}, which is not a number; "
                "leave such columns out with --ignore."
            ) from None
        if not np.isfinite(values[k]).all():
            wrong = features[int(np.flatnonzero(~np.isfinite(values[k]))[0])]
            raise InvalidValue(f"{path}: line {line} has no finite value in the column {names[wrong]!r}.")
        if row[place].lower() in MISSING:
            raise InvalidValue(f"{path}: line {line} has no value in the column {names[place]!r}.")
    words = [row[place] for _, row in rows]
    numbers = [_number(word) for word in words]
    targets = np.array(words) if None in numbers else np.array(numbers, float)
    return Table(values, targets, [names[f] for f in features], names[place])


def _read_npz(path: Path, target: str | None, ignore: tuple[str, ...]) -> Table:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST_FILE:
                raise InvalidValue(f"the arrays in {path} are larger than 2 GB.")
        with np.load(path, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
    except InvalidValue:
        raise
    except Exception as problem:  # whatever a damaged archive makes of the readers
        raise InvalidValue(
            f"the file {str(path)!r} is not an NPZ archive of plain arrays ({type(problem).__name__})."
        ) from None
    target = "y" if target is None else target
    if ignore:
        raise InvalidValue(f"{path}: the columns of an NPZ file have no names, so none can be ignored.")
    if "X" not in held or target not in held:
        there = ", ".join(held) or "none"
        raise InvalidValue(f"{path} does not contain the arrays 'X' and {target!r}; it contains: {there}.")
    features, targets = held["X"], held[target]
    if features.ndim != 2 or targets.ndim != 1 or len(features) != len(targets):
        raise InvalidValue(
            f"{path}: X and {target} have the shapes {features.shape} and {targets.shape}, not (rows, columns) and (rows)."
        )
    names = [f"column{k + 1}" for k in range(features.shape[1])]
    if features.dtype.kind not in "fiub" or targets.dtype.kind not in "fiubU":
        raise InvalidValue(
            f"{path}: X and {target} have the types {features.dtype} and {targets.dtype}; they must be numbers."
        )
    targets = targets if targets.dtype.kind == "U" else targets.astype(float)
    return Table(features.astype(float), targets, names, target)


def _read_parquet(path: Path, target: str | None, ignore: tuple[str, ...]) -> Table:
    try:
        import pandas
    except ImportError:
        raise InvalidValue("reading Parquet needs pandas and pyarrow: install them, or use CSV.") from None
    try:
        frame = pandas.read_parquet(path)
    except ImportError:
        raise InvalidValue("reading Parquet needs pandas and pyarrow: install them, or use CSV.") from None
    except Exception as problem:  # whatever a damaged file makes of the readers
        raise InvalidValue(f"the file {str(path)!r} is not a Parquet file ({type(problem).__name__}).") from None
    return from_frame(path, frame, target, ignore)


def from_frame(path: Path, frame, target: str | None, ignore: tuple[str, ...] = ()) -> Table:
    """The table of a pandas DataFrame; `path` is its name in messages."""
    names = [str(name) for name in frame.columns]
    place, features = _chosen(path, names, target, ignore)
    for k in (*features, place):
        empty = np.asarray(frame.iloc[:, k].isna())
        if empty.any():
            raise InvalidValue(f"{path}: row {int(empty.argmax()) + 1} has no value in the column {names[k]!r}.")
    values = np.empty((len(frame), len(features)))
    for j, k in enumerate(features):
        try:
            values[:, j] = frame.iloc[:, k].to_numpy(float)
        except (TypeError, ValueError):
            raise InvalidValue(
                f"{path}: the column {names[k]!r} does not contain numbers; leave such columns out with --ignore."
            ) from None
    column = frame.iloc[:, place].to_numpy()
    try:
        targets = column.astype(float)
    except (TypeError, ValueError):
        targets = column.astype(str)
    return Table(values, targets, [names[k] for k in features], names[place])
