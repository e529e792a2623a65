"""From a table and a pipeline to what the theory needs: targets, a reading of the pipeline, its features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidValue, UnknownName, nearest
from ._predict_fits import pipeline_failed, take
from ._predict_pipeline import BUILT_IN, Reading, load_pipeline, read_pipeline
from ._predict_theory import MOST_CELLS, MOST_KERNEL, kernel_features
from .frames import default_features

LEAST_ROWS, LEAST_CLASS, MOST_FEATURES, PROBED = 60, 12, 20_000, 1000


def need_scikit_learn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise InvalidValue("predict needs scikit-learn: install it with `pip install solvable[predict]`.") from None


def as_array(X: Any) -> np.ndarray:
    found = X if isinstance(X, np.ndarray) else np.asarray(X)
    if found.ndim != 2 or found.dtype.kind not in "fiub":
        raise InvalidValue(
            f"X has the shape {found.shape} and type {found.dtype}; it must be numbers in rows and columns, or a data frame."
        )
    return found


def checked(X: Any, y: Any, pipeline: Any) -> tuple[Reading, np.ndarray]:
    """The pipeline as the theory sees it, and the targets: numbers, or ±1."""
    targets = np.asarray(y)
    if targets.ndim != 1 or len(targets) != X.shape[0]:
        raise InvalidValue(
            f"X and y have the shapes {tuple(X.shape)} and {targets.shape}; they must be (rows, columns) and (rows)."
        )
    if len(targets) < LEAST_ROWS:
        raise InvalidValue(f"there are {len(targets)} rows, but a prediction needs at least {LEAST_ROWS}.")
    words = targets.dtype.kind not in "fiub"
    if not words and not np.isfinite(targets.astype(float)).all():
        raise InvalidValue(f"row {int(np.argmin(np.isfinite(targets.astype(float)))) + 1} has no finite target.")
    classes = np.unique(targets)
    if isinstance(pipeline, str) and ":" in pipeline:
        pipeline = load_pipeline(pipeline)
    if pipeline is None:
        pipeline = "logistic" if words or len(classes) == 2 else "ridge"
    if isinstance(pipeline, str):
        pipeline = _built_in(pipeline, X)
    reading = read_pipeline(pipeline)
    if not reading.classifies:
        if words:
            raise InvalidValue(f"the targets are words, but {learner_of(reading)} predicts numbers.")
        if len(classes) == 1:
            raise InvalidValue(f"all targets are {classes[0]}: there is nothing to predict.")
        return reading, targets.astype(float)
    if len(classes) != 2:
        raise InvalidValue(
            f"there are {len(classes)} different targets, but {learner_of(reading)} has a theory for two classes."
        )
    counts = [int((targets == c).sum()) for c in classes]
    if min(counts) < LEAST_CLASS:
        raise InvalidValue(
            f"only {min(counts)} rows have the label {classes[int(np.argmin(counts))]!s}; at least {LEAST_CLASS} are needed."
        )
    return reading, np.where(targets == classes[1], 1.0, -1.0)


def _built_in(name: str, X: Any) -> Any:
    from sklearn.linear_model import Lasso, LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    if name not in BUILT_IN:
        raise UnknownName(
            f"there is no pipeline {name!r}; {nearest(name, list(BUILT_IN))} Your own is named module:object."
        )
    last = {"ridge": Ridge, "lasso": Lasso, "logistic": LogisticRegression, "svm": SVC}[name]
    options = {"logistic": {"max_iter": 1000}, "svm": {"kernel": "linear"}, "lasso": {"alpha": 0.1}}.get(name, {})
    return make_pipeline(default_features(X), last(**options))


def learner_of(reading: Reading) -> str:
    last = reading.pipeline.steps[-1][1] if type(reading.pipeline).__name__ == "Pipeline" else reading.pipeline
    return type(last).__name__


def features_of(
    reading: Reading, X: Any, targets: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Features of as many random rows as the theory can use, and which rows they are."""
    order = rng.permutation(len(targets))
    probe = _mapped(reading, take(X, np.sort(order[:PROBED])))
    if probe.shape[1] > MOST_FEATURES:
        raise InvalidValue(f"the pipeline makes {probe.shape[1]} features; the theory allows {MOST_FEATURES}.")
    most = MOST_KERNEL if reading.kernel is not None else max(MOST_CELLS // probe.shape[1], PROBED)
    used = np.sort(order[:most])
    features = probe if len(used) <= PROBED else _mapped(reading, take(X, used))
    if reading.kernel is not None:
        features = kernel_features(reading.kernel(features))
    flat = features.std(axis=0) <= 1e-12 * np.maximum(np.abs(features).max(axis=0), 1e-300)
    if flat.all():
        raise InvalidValue("every feature is constant: there is nothing to learn from.")
    return features[:, ~flat] if flat.any() and reading.intercept else features, used


def _mapped(reading: Reading, rows: Any) -> np.ndarray:
    from sklearn.base import clone

    try:
        steps: Any = None if reading.steps is None else clone(reading.steps)
        found = rows if steps is None else steps.fit_transform(rows)
        found = found.toarray() if hasattr(found, "toarray") else found
        found = np.asarray(found, float)
    except Exception as problem:  # whatever the user's pipeline makes of these rows
        raise InvalidValue(pipeline_failed(problem)) from None
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0]
        raise InvalidValue(
            f"the features have no finite value in row {row + 1}, column {column + 1}: impute missing values in the pipeline, "
            "or leave the pipeline out for the default."
        )
    return found
