"""Fits of the user's own pipeline to parts of the rows, tested on rows held out."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidValue
from ._predict_pipeline import Reading
from .frames import give_back, is_frame

MOST_TESTED = 4000
"""Rows on which a fit is tested."""
TOGETHER = 2000
"""Rows of a mapped file that are read together."""


class Fitted(NamedTuple):
    """Mean and standard error of the observable over `repeats` fits, at each (n, L)."""

    rows: np.ndarray
    penalty: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    repeats: int


def take(features: Any, rows: np.ndarray) -> Any:
    """Some rows of an array or data frame, in memory; those of a mapped file a few at a time."""
    if is_frame(features):
        return features.iloc[rows]
    if not isinstance(features, np.memmap):
        return np.asarray(features[rows])
    found = np.empty((len(rows), *features.shape[1:]), features.dtype)
    for begin in range(0, len(rows), TOGETHER):
        some = slice(begin, begin + TOGETHER)
        found[some] = features[rows[some]]
        give_back(features)
    return found


def fitted_points(
    reading: Reading, features: Any, targets: np.ndarray, points: list[tuple[int, float]], repeats: int,
    rng: np.random.Generator,
) -> Fitted:  # fmt: skip
    """Fit fresh copies of the pipeline to random rows and test them on others; points share their rows as far as possible."""
    number = len(targets)
    seen = np.full((len(points), repeats), np.nan)
    for r in range(repeats):
        order = rng.permutation(number)
        for k, (n, penalty) in enumerate(points):
            train, test = order[:n], order[max(n, number - MOST_TESTED) :]
            if reading.classifies and np.ptp(targets[train]) == 0:
                continue
            seen[k, r] = _tested(reading, features, targets, train, test, penalty)
    ends = np.array(points, float).reshape(-1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean, error = np.nanmean(seen, axis=1), np.nanstd(seen, axis=1, ddof=1) / np.sqrt(repeats)
    return Fitted(ends[:, 0], ends[:, 1], mean, error, repeats)


def _tested(
    reading: Reading, features: Any, targets: np.ndarray, train: np.ndarray, test: np.ndarray, penalty: float
) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pipeline's own, such as iterations that ended early
        try:
            model = reading.at(penalty).fit(take(features, train), targets[train])
            guess = np.asarray(model.predict(take(features, test)))
        except Exception as problem:  # whatever the user's pipeline makes of these rows
            raise InvalidValue(pipeline_failed(problem)) from None
    if reading.classifies:
        return float(np.mean(guess != targets[test]))
    return float(np.mean((guess.reshape(len(test), -1)[:, 0] - targets[test]) ** 2))


def pipeline_failed(problem: Exception) -> str:
    """One sentence on a pipeline that cannot be fitted."""
    reason = " ".join(str(problem).split())
    reason = reason.split(". ")[0][:200].rstrip(".")
    hint = "; encode words and impute missing values in the pipeline, or leave it out for the default" if (
        "convert" in reason or "NaN" in reason
    ) else ""  # fmt: skip
    return f"the pipeline cannot be fitted to these columns: {reason}{hint}."
