"""Arithmetic on numbers with standard errors, for the claims of this family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Number = tuple[float, float]
"""A value and its standard error."""


def difference(one: Number, other: Number) -> Number:
    """Difference of two independent numbers, with its standard error.

    >>> difference((3.0, 0.3), (1.0, 0.4))
    (2.0, 0.5)
    """
    return one[0] - other[0], math.hypot(one[1], other[1])


def ratio(one: Number, other: Number) -> Number:
    """Ratio of two independent numbers, with its standard error.

    >>> ratio((3.0, 0.3), (1.0, 0.0))
    (3.0, 0.3)
    """
    value = one[0] / other[0]
    return value, math.hypot(one[1], value * other[1]) / abs(other[0])


def deviation(runs: Any, expected: Any) -> Number:
    """Largest deviation of the mean over seeds from the theory, in units of the theory's largest value.

    >>> import xarray as xr
    >>> deviation(xr.DataArray([[1.0, 3.0], [1.0, 1.0]], dims=("time", "seed")), xr.DataArray([1.0, 1.0], dims="time"))
    (1.0, 1.0)
    """
    gaps, errors = np.abs(runs.mean("seed") - expected), runs.std("seed", ddof=1) / math.sqrt(runs.sizes["seed"])
    scale = float(np.abs(expected).max())
    farthest = np.nanargmax(gaps.values)
    return float(gaps.values.flat[farthest]) / scale, float(errors.transpose(*gaps.dims).values.flat[farthest]) / scale
