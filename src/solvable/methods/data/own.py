"""A table of the reader's own: rows of numbers with their classes and groups, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...errors import InvalidValue, UnknownName, nearest

ROWS, CLASSES, GROUPS = "X", "y", "group"
MEANING = {
    ROWS: "inputs, one in each row",
    CLASSES: "the class of every row of X",
    GROUPS: "the group of every row of X",
}


class Table(NamedTuple):
    """Inputs, centred and divided by one number so that their mean variance is one, with classes and groups 0, 1, …"""

    rows: Float[np.ndarray, "n p"]
    classes: Int[np.ndarray, " n"]
    groups: Int[np.ndarray, " n"] | None = None


def own_table(
    arrays: Mapping[str, Any],
    *,
    least_rows: int,
    least_classes: int = 2,
    most_classes: int = 1000,
    grouped: bool = False,
) -> Table:
    """The table in arrays X, y and, if `grouped`, `group` (two groups); raises `InvalidValue` if they do not make one.

    Columns that do not vary are left out.

    >>> table = own_table({"X": [[1.0, 5.0], [3.0, 5.0]], "y": [7, 4]}, least_rows=2)
    >>> table.rows.tolist(), table.classes.tolist()
    ([[-1.0], [1.0]], [1, 0])
    """
    wanted = (ROWS, CLASSES, *[GROUPS] * grouped)
    for name in arrays:
        if name not in wanted:
            raise UnknownName(f"there is no field {name!r} here; {nearest(name, wanted)}")
    for name in wanted:
        if name not in arrays:
            raise InvalidValue(f"{name} is missing: {MEANING[name]}.")
    rows = _numbers(ROWS, arrays[ROWS], "(rows, columns)", 2)
    if len(rows) < least_rows:
        raise InvalidValue(f"X has {len(rows)} rows, but at least {least_rows} are needed: {MEANING[ROWS]}.")
    varies = np.ptp(rows, axis=0) > 0  # exact, unlike a standard deviation
    if not varies.any():
        raise InvalidValue("X has no column that varies: at least one must.")
    rows = rows[:, varies] - rows[:, varies].mean(0)
    classes = _labels(CLASSES, arrays[CLASSES], len(rows), least_classes, most_classes)
    groups = _labels(GROUPS, arrays[GROUPS], len(rows), 2, 2) if grouped else None
    return Table(rows / np.sqrt(np.mean(rows**2)), classes, groups)


def _numbers(name: str, value: Any, shape: str, dims: int) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal length
        array = np.asarray(None)
    if array.dtype.kind not in "iufb" or array.ndim != dims or not array.size:
        raise InvalidValue(f"{name} is not an array of numbers of the shape {shape}: {MEANING[name]}.")
    if not np.isfinite(array).all():
        raise InvalidValue(f"{name} has an entry that is not finite: {MEANING[name]}.")
    return array.astype(float)


def _labels(name: str, value: Any, number: int, least: int, most: int) -> np.ndarray:
    """Indices 0, 1, … of the values, in increasing order."""
    array = _numbers(name, value, "(rows,)", 1)
    if len(array) != number:
        raise InvalidValue(f"{name} has {len(array)} entries instead of {number}: {MEANING[name]}.")
    kinds, index = np.unique(array, return_inverse=True)
    if not least <= len(kinds) <= most:
        allowed = f"exactly {least}" if least == most else f"{least} to {most}"
        raise InvalidValue(f"{name} has {len(kinds)} different values instead of {allowed}: {MEANING[name]}.")
    return index.reshape(-1).astype(np.int32)
