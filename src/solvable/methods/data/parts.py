"""Rows in parts of equal length, so that one compiled program serves all of them: the last part is filled up.

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
    """As few parts as hold `number` rows, at most so many in each.

    >>> parts_of(6, most=3), parts_of(7, most=3)
    (2, 3)
    """
    return -(-number // most)


def equal_parts(rows: Any, parts: int, *, repeat: bool = False) -> Any:
    """Rows (part × row × …) in `parts` parts of equal length; what fills the last one is zero, or the first rows again.

    An array of NumPy stays one, as one of JAX does.

    >>> equal_parts(np.arange(1, 6), 2, repeat=True).tolist()
    [[1, 2, 3], [4, 5, 1]]
    """
    each = parts_of(len(rows), parts)
    room = parts * each - len(rows)
    library: Any = jnp if isinstance(rows, jax.Array) else np
    filling = rows[:room] if repeat else library.zeros((room, *rows.shape[1:]), rows.dtype)
    return library.concatenate([rows, filling]).reshape(parts, each, *rows.shape[1:])
