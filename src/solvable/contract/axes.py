"""Axis helpers shared by plots and comparisons. Imports nothing."""

from __future__ import annotations

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""The quantiles used to show and compare random limits."""


def few(length: int, most: int = 5) -> list[int]:
    """Indices of a few entries of a long axis, including the first and the last.

    >>> few(3), few(9)
    ([0, 1, 2], [0, 2, 4, 6, 8])
    """
    return sorted({round(i * (length - 1) / (most - 1)) for i in range(most)}) if length > most else list(range(length))
