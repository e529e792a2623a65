"""Fractions of solved systems with error bars, for the figures and claims of this family."""

from __future__ import annotations

from typing import Any

import numpy as np


def by_size(each: Any, sizes: Any, samples: Any) -> Any:
    """Arrays by α and seed, one mapping for each size, as one dataset."""
    import xarray as xr

    stacked = {name: (("size", "samples", "seed"), np.stack([e[name] for e in each])) for name in each[0]}
    return xr.Dataset(stacked, coords={"size": list(sizes), "samples": list(samples)})


def share_solved(solved: Any) -> tuple[np.ndarray, np.ndarray]:
    """The fraction solved along the last axis, and its lower and upper error bars: Wilson's interval of one standard error.

    The interval has a nonzero width even if all systems are solved, or none.

    >>> share, bars = share_solved([[1, 1, 1, 1], [1, 1, 0, 0]])
    >>> share.tolist(), bars.round(3).tolist()
    ([1.0, 0.5], [[0.2, 0.224], [0.0, 0.224]])
    """
    solved = np.asarray(solved, float)
    share, number = solved.mean(axis=-1), solved.shape[-1]
    centre = (share + 0.5 / number) / (1 + 1 / number)
    half = np.sqrt(share * (1 - share) / number + 0.25 / number**2) / (1 + 1 / number)
    return share, np.maximum([share - (centre - half), (centre + half) - share], 0)


def solved_and_error(solved: Any) -> tuple[float, float]:
    """The fraction solved and the half-width of its interval, for one set of systems.

    >>> [round(x, 2) for x in solved_and_error([1, 1, 1, 1])]
    [1.0, 0.1]
    """
    share, bars = share_solved(np.asarray(solved, float).reshape(-1))
    return float(share), float(bars.sum()) / 2


def difference(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The difference of two independent means and its standard error.

    >>> difference((3.0, 0.3), (1.0, 0.4))
    (2.0, 0.5)
    """
    return first[0] - second[0], (first[1] ** 2 + second[1] ** 2) ** 0.5
