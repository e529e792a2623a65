"""Rows in parts of equal length, so that one compiled program serves all of them; the last part is padded.

>>> import numpy as np
>>> equal_parts(np.arange(1, 6), parts_of(5, most=3)).tolist()
[[1, 2, 3], [4, 5, 0]]
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["equal_parts", "parts_of"]


def parts_of(number: int, most: int) -> int:
    """The smallest number of parts that hold `number` rows, with at most `most` in each.

    >>> parts_of(6, most=3), parts_of(7, most=3)
    (2, 3)
    """
    return -(-number // most)


def equal_parts(rows: Any, parts: int, *, repeat: bool = False) -> Any:
    """Split rows into `parts` parts of equal length (part × row × …), padding with zeros or, on `repeat`, the first rows.

    A NumPy array stays a NumPy array, a JAX array a JAX array.

    >>> equal_parts(np.arange(1, 6), 2, repeat=True).tolist()
    [[1, 2, 3], [4, 5, 1]]
    """
    each = parts_of(len(rows), parts)
    room = parts * each - len(rows)
    library: Any = jnp if isinstance(rows, jax.Array) else np
    filling = rows[:room] if repeat else library.zeros((room, *rows.shape[1:]), rows.dtype)
    return library.concatenate([rows, filling]).reshape(parts, each, *rows.shape[1:])
