"""What a scikit-learn pipeline says to the theory: its feature map, its loss, its penalty. Refuses steps without theory."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import InvalidValue

Loss = Literal["square", "lasso", "logistic", "hinge", "squared_hinge", "ridge_classifier"]
TWO_CLASSES = ("logistic", "hinge", "squared_hinge", "ridge_classifier")
MAPS = {
    "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "Normalizer", "PowerTransformer",
    "QuantileTransformer", "PolynomialFeatures", "SplineTransformer", "KBinsDiscretizer", "Binarizer", "OneHotEncoder",
    "OrdinalEncoder", "SimpleImputer", "MissingIndicator", "PCA", "TruncatedSVD", "KernelPCA", "RBFSampler", "Nystroem",
    "SkewedChi2Sampler", "AdditiveChi2Sampler", "PolynomialCountSketch", "GaussianRandomProjection",
    "SparseRandomProjection", "FunctionTransformer", "VarianceThreshold", "KernelCenterer", "DictVectorizer",
    "FeatureHasher",
}  # fmt: skip
"""Steps that map rows to features without seeing the targets: to the theory they only change the covariance."""
GROUPS = {"Pipeline", "ColumnTransformer", "FeatureUnion"}
BY_LABELS = {
    "SelectKBest", "SelectPercentile", "SelectFpr", "SelectFdr", "SelectFwe", "GenericUnivariateSelect", "SelectFromModel",
    "RFE", "RFECV", "SequentialFeatureSelector", "TargetEncoder", "LinearDiscriminantAnalysis", "PLSRegression",
    "NeighborhoodComponentsAnalysis",
}  # fmt: skip
KNOWN = (
    "Ridge, LinearRegression, KernelRidge, Lasso, ElasticNet, LogisticRegression, LinearSVC, SVC and RidgeClassifier"
)
BUILT_IN = ("ridge", "lasso", "logistic", "svm")


@dataclass(frozen=True)
class Reading:
    """A pipeline as the theory sees it: features, then a loss with the penalty `penalty` on the sum over rows.

    `parameter` is the name by which scikit-learn's `set_params` finds the penalty, and `inverse` says that it is 1/penalty.
    """

    pipeline: Any
    steps: Any
    loss: Loss
    penalty: float
    parameter: str | None
    inverse: bool = False
    intercept: bool = True
    shrinks: bool = False
    """Whether the penalty includes the intercept."""
    mixing: float = 1.0
    """The share of the absolute values in the penalty of an elastic net."""
    kernel: Callable[[np.ndarray], np.ndarray] | None = None
    """The matrix of kernels of rows, for machines without explicit features."""

    @property
    def classifies(self) -> bool:
        """Whether the targets are two classes."""
        return self.loss in TWO_CLASSES

    @property
    def penalty_is(self) -> str:
        """What `penalty` is in scikit-learn's words."""
        return "1/C" if self.inverse else "alpha"

    def at(self, penalty: float) -> Any:
        """A fresh pipeline with another penalty."""
        from sklearn.base import clone

        fresh: Any = clone(self.pipeline)
        if self.parameter is not None:
            fresh.set_params(**{self.parameter: float(1 / penalty if self.inverse else penalty)})
        return fresh


def load_pipeline(words: str) -> Any:
    """The object of `module:object`, imported from the working folder or from installed packages."""
    module, colon, name = words.partition(":")
    if not colon or not module or not name:
        raise InvalidValue(f"pipeline = {words!r} is neither module:object nor one of {', '.join(BUILT_IN)}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module.removesuffix(".py")), name)
        if isinstance(found, type) or not hasattr(found, "fit"):
            found = found()
    except Exception as problem:  # anything that the user's module does
        reason = " ".join(str(problem).split())[:200]
        raise InvalidValue(f"pipeline = {words!r} cannot be loaded: {type(problem).__name__}: {reason}.") from None
    if not hasattr(found, "fit"):
        raise InvalidValue(f"pipeline = {words!r} is a {type(found).__name__}, not a scikit-learn estimator.")
    return found


def read_pipeline(pipeline: Any) -> Reading:
    """Check every step and read loss and penalty; raises `InvalidValue` with one sentence for a step without theory.

    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> found = read_pipeline(make_pipeline(StandardScaler(), Ridge(alpha=3.0)))
    >>> found.loss, found.penalty, found.parameter
    ('square', 3.0, 'ridge__alpha')
    """
    steps, last, prefix = None, pipeline, ""
    if type(pipeline).__name__ == "Pipeline":
        name, last = pipeline.steps[-1]
        prefix = f"{name}__"
        steps = pipeline[:-1] if len(pipeline.steps) > 1 else None
        for label, step in pipeline.steps[:-1]:
            _check_map(label, step)
    read = _ESTIMATORS.get(type(last).__name__)
    if read is None:
        raise InvalidValue(
            f"there is no theory for the last step {type(last).__name__}; there is one for {KNOWN}."
            + (" It chooses its own penalty: sweep the penalty instead." if type(last).__name__.endswith("CV") else "")
        )
    if getattr(last, "class_weight", None) is not None:
        raise InvalidValue(
            f"{type(last).__name__} has class_weight = {last.class_weight!r}, for which there is no theory."
        )
    facts = read(last)
    parameter = facts.pop("parameter")
    return Reading(pipeline, steps, parameter=None if parameter is None else prefix + parameter, **facts)


def _check_map(label: str, step: Any) -> None:
    name = type(step).__name__
    if step is None or isinstance(step, str):  # "passthrough", "drop"
        return
    if name in GROUPS:
        parts = (
            step.steps
            if name == "Pipeline"
            else step.transformers
            if name == "ColumnTransformer"
            else step.transformer_list
        )
        for part in parts:
            _check_map(part[0], part[1])
        return
    if name in BY_LABELS:
        raise InvalidValue(
            f"the step {label!r} ({name}) uses the targets to make features, for which there is no theory."
        )
    if name not in MAPS:
        raise InvalidValue(
            f"the step {label!r} ({name}) has no theory; FunctionTransformer carries any map that does not see the targets."
        )


def _positive(name: str, value: float, zero: bool = False) -> float:
    if not (np.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise InvalidValue(f"{name} = {value} is not a positive number.")
    return float(value)


def _ridge(last: Any) -> dict[str, Any]:
    if np.ndim(last.alpha) > 0:
        raise InvalidValue("Ridge has a penalty for each target, for which there is no theory.")
    if getattr(last, "positive", False):
        raise InvalidValue("Ridge(positive=True) has no theory.")
    penalty = _positive("alpha", last.alpha, zero=True)
    return {"loss": "square", "penalty": penalty, "parameter": "alpha", "intercept": last.fit_intercept}


def _least_squares(last: Any) -> dict[str, Any]:
    if getattr(last, "positive", False):
        raise InvalidValue("LinearRegression(positive=True) has no theory.")
    return {"loss": "square", "penalty": 0.0, "parameter": None, "intercept": last.fit_intercept}


def _kernel_ridge(last: Any) -> dict[str, Any]:
    return {"loss": "square", "penalty": _positive("alpha", last.alpha), "parameter": "alpha", "intercept": False,
            "kernel": _kernel(last)}  # fmt: skip


def _lasso(last: Any) -> dict[str, Any]:
    mixing = float(getattr(last, "l1_ratio", 1.0)) if type(last).__name__ == "ElasticNet" else 1.0
    if not last.fit_intercept or last.positive or not 0 < mixing <= 1:
        raise InvalidValue("the theory of the lasso needs an intercept, weights of both signs and l1_ratio in (0, 1].")
    penalty = _positive("alpha", last.alpha)
    return {"loss": "lasso", "penalty": penalty, "parameter": "alpha", "mixing": mixing}


def _logistic(last: Any) -> dict[str, Any]:
    ratio = getattr(last, "l1_ratio", None)
    if getattr(last, "penalty", "l2") not in ("l2", "deprecated") or (ratio is not None and ratio != 0):
        raise InvalidValue("LogisticRegression has a theory for the penalty 'l2' only.")
    if not last.fit_intercept:
        raise InvalidValue("the theory of LogisticRegression needs an intercept.")
    return {"loss": "logistic", "penalty": 1 / _positive("C", last.C), "parameter": "C", "inverse": True}


def _linear_svc(last: Any) -> dict[str, Any]:
    if last.penalty != "l2" or not last.fit_intercept or last.intercept_scaling != 1:
        raise InvalidValue("LinearSVC has a theory for the penalty 'l2' with an intercept of scaling 1 only.")
    return {
        "loss": last.loss,
        "penalty": 1 / _positive("C", last.C),
        "parameter": "C",
        "inverse": True,
        "shrinks": True,
    }


def _svc(last: Any) -> dict[str, Any]:
    kernel = None if last.kernel == "linear" else _kernel(last)
    return {"loss": "hinge", "penalty": 1 / _positive("C", last.C), "parameter": "C", "inverse": True, "kernel": kernel}


def _ridge_classifier(last: Any) -> dict[str, Any]:
    if not last.fit_intercept:
        raise InvalidValue("the theory of RidgeClassifier needs an intercept.")
    return {"loss": "ridge_classifier", "penalty": _positive("alpha", last.alpha), "parameter": "alpha"}


def _kernel(last: Any) -> Callable[[np.ndarray], np.ndarray]:
    if callable(last.kernel) or last.kernel == "precomputed":
        raise InvalidValue(f"{type(last).__name__} needs a named kernel, such as 'rbf'.")

    def matrix(rows: np.ndarray) -> np.ndarray:
        from sklearn.metrics.pairwise import pairwise_kernels

        gamma = last.gamma
        if gamma == "scale":
            gamma = 1 / (rows.shape[1] * max(float(rows.var()), 1e-300))
        elif gamma == "auto":
            gamma = 1 / rows.shape[1]
        found = {"gamma": gamma, "degree": last.degree, "coef0": last.coef0}
        return pairwise_kernels(rows, metric=last.kernel, filter_params=True, **found)

    return matrix


_ESTIMATORS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "Ridge": _ridge, "LinearRegression": _least_squares, "KernelRidge": _kernel_ridge, "Lasso": _lasso,
    "ElasticNet": _lasso, "LogisticRegression": _logistic, "LinearSVC": _linear_svc, "SVC": _svc,
    "RidgeClassifier": _ridge_classifier,
}  # fmt: skip
