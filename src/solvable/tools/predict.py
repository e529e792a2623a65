"""The learning curve of your own scikit-learn pipeline on your own table: theory and fitted points on the same axis.

    import solvable as sv

    result = sv.predict(X, y, make_pipeline(StandardScaler(), Ridge(alpha=3.0)))
    print(result)                                      # errors, the best penalty, and how Gaussian the data behave
    result.plot().savefig("predict.png")
    sv.predict(X, y, pipeline, over={"penalty": [0.1, 1, 10, 100]})

The theory knows the covariance of the pipeline's features and the leave-one-out residuals of all rows. The fitted points are
fits of the pipeline itself to some of the rows, tested on others.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidValue, UnknownName
from ._predict_fits import Fitted, fitted_points
from ._predict_inputs import as_array, checked, features_of, learner_of, need_scikit_learn
from ._predict_pipeline import Reading
from ._predict_theory import MOST_CELLS, Best, best_penalty, theories
from .frames import is_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_FIT = 10
"""Rows of a fit."""
LINE = 25
"""Points of the theory's line."""


@dataclass(frozen=True)
class Prediction:
    """Theory and fitted points over `over` ("rows" or "penalty"), with the measured deviation between them.

    `theory` has the observable at each of `values`; `line` the same on a finer grid for every theory; `deviation` the
    relative difference theory/fit − 1 (for error rates: the difference) at the fitted points, by theory. The first theory
    is the one nearest to the points.
    """

    over: str
    values: np.ndarray
    theory: np.ndarray
    observable: str
    rows: int
    columns: int
    features: int
    learner: str
    penalty: float
    penalty_is: str
    held_rows: int
    """The number of rows of every fit, where the penalty is swept."""
    names: tuple[str, ...]
    line: dict[str, np.ndarray]
    fitted: Fitted
    deviation: dict[str, np.ndarray]
    best: Best
    best_rows: int
    seconds: dict[str, float]
    warnings: tuple[str, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def off(self) -> float:
        """Median size of the deviation."""
        return float(np.nanmedian(np.abs(self.deviation[self.names[0]]))) if len(self.fitted.mean) else float("nan")

    @property
    def known(self) -> float:
        """How well the fitted points themselves are known: their median standard error, in the units of the deviation."""
        scale = self.fitted.mean if self.observable == "mean squared error" else 1.0
        return float(np.nanmedian(self.fitted.error / scale)) if len(self.fitted.mean) else float("nan")

    @property
    def gaussian(self) -> bool | None:
        """Whether the data behave as the theory of one scale says.

        That is: within 5 % (rates: within 10 % or 1 point of 100), or within the error of the points.
        """
        if not len(self.fitted.mean):
            return None
        plain = next(n for n in self.names if n != "rows of random scale")
        limit = (
            0.05 if self.observable == "mean squared error" else max(0.01, 0.1 * float(np.nanmedian(self.fitted.mean)))
        )
        return bool(np.nanmedian(np.abs(self.deviation[plain])) <= max(limit, self.known))

    def sentences(self) -> list[str]:
        """The findings, one sentence each."""
        found = []
        percent = self.observable == "mean squared error"
        amount = (lambda v: f"{100 * v:.1f} %") if percent else (lambda v: f"{100 * v:.1f} points of 100")
        if len(self.fitted.mean):
            sizes = {n: float(np.nanmedian(np.abs(d))) for n, d in self.deviation.items()}
            verdict = "behave like Gaussian data" if self.gaussian else "do not behave like Gaussian data"
            plain = next(n for n in self.names if n != "rows of random scale")
            worst = float(np.nanmax(np.abs(self.deviation[plain])))
            found.append(
                f"Your data {verdict} of the same covariance: theory ({plain}) and {len(self.fitted.mean)} fitted points "
                f"differ by {amount(sizes[plain])} (median), at most {amount(worst)}; the points themselves are known to "
                f"{amount(self.known)}."
            )
            if len(sizes) > 1:
                other = next(n for n in self.names if n != plain)
                found.append(f"With {other} instead, they differ by {amount(sizes[other])}.")
        if np.isfinite(self.best.penalty):
            end = ", the end of the range searched" if self.best.at_bound else ""
            found.append(
                f"Best penalty at {self.best_rows} rows by the theory's gradient: {self.penalty_is} = "
                f"{self.best.penalty:.3g}{end} ({self.observable} {self.best.value:.4g}; yours is {self.penalty:.3g})."
            )
        return found

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows of the printed table."""
        rows = []
        swept = self.fitted.rows if self.over == "rows" else self.fitted.penalty
        for value, height in zip(self.values, self.theory, strict=True):
            k = np.flatnonzero(np.isclose(swept, value))
            fit = f"{self.fitted.mean[k[0]]:.4g} ± {self.fitted.error[k[0]]:.2g}" if k.size else ""
            rows.append([f"{value:.0f}" if self.over == "rows" else f"{value:.4g}", f"{height:.4g}", fit])
        return [self.over if self.over == "rows" else self.penalty_is, f"{self.observable}, theory", "fitted"], rows

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        return {
            "over": self.over, "observable": self.observable, "rows": self.rows, "columns": self.columns,
            "features": self.features, "learner": self.learner, "penalty": self.penalty, "penalty_is": self.penalty_is,
            "held_rows": self.held_rows,
            "theory": {"name": self.names[0], self.over: self.values.tolist(), "value": self.theory.tolist()},
            "line": {name: v.tolist() for name, v in self.line.items()},
            "fitted": {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in self.fitted._asdict().items()},
            "deviation": {name: v.tolist() for name, v in self.deviation.items()}, "median_deviation": self.off,
            "points_known_to": self.known, "gaussian": self.gaussian,
            "best_penalty": {**self.best._asdict(), "rows": self.best_rows},
            "sentences": self.sentences(), "warnings": list(self.warnings), "seconds": self.seconds,
            "diagnostics": self.diagnostics,
        }  # fmt: skip

    def __str__(self) -> str:
        columns, rows = self.table()
        widths = [max(len(row[k]) for row in [columns, *rows]) for k in range(len(columns))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in [columns, *rows]]
        head = f"{self.learner} on {self.features} features of {self.rows} rows, {self.penalty_is} = {self.penalty:.4g}"
        return "\n".join([head, *lines, *self.sentences(), *(f"Warning: {w}" for w in self.warnings)])

    def plot(self, ax: Axes | None = None) -> Figure:
        """Plot the theory's line with the fitted points on it."""
        from ._predict_picture import draw

        return draw(self, ax)


def predict(
    X: Any,
    y: Any,
    pipeline: Any = None,
    *,
    over: Mapping[str, Sequence[float]] | None = None,
    penalty: float | None = None,
    fits: int = 8,
    repeats: int = 6,
    seed: int = 0,
) -> Prediction:
    """The learning curve of a scikit-learn pipeline on the rows X, y: theory, fitted points, and their deviation.

    `X` is an array or data frame, `pipeline` a scikit-learn estimator, one of "ridge", "lasso", "logistic" and "svm" (after
    the usual scaling and encoding), or None for ridge or logistic regression, whichever suits the targets; without a pipeline
    of your own and without `penalty`, the penalty is the theory's best. `over` sweeps "rows" or "penalty" (scikit-learn's
    alpha, or 1/C); `fits` is the largest number of fitted points, `repeats` the fits of each; `fits=0` is the theory alone.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 30))
    >>> result = predict(X, X @ rng.normal(size=30) + 5 * rng.normal(size=400), over={"rows": [50, 100, 200]}, fits=2)
    >>> result.gaussian, bool(np.all(np.diff(result.theory) < 0)), result.fitted.rows.tolist()
    (True, True, [50.0, 200.0])
    """
    need_scikit_learn()
    rng, begun = np.random.default_rng(seed), time.perf_counter()
    X = X.to_pandas() if hasattr(X, "to_pandas") and not is_frame(X) else X
    X = X if is_frame(X) else as_array(X)
    given = (pipeline is not None and not isinstance(pipeline, str)) or (isinstance(pipeline, str) and ":" in pipeline)
    reading, targets = checked(X, y, pipeline)
    if penalty is not None:
        if not (np.isfinite(penalty) and 0 < penalty < 1e12):
            raise InvalidValue(f"penalty = {penalty} is not a number in (0, 10¹²).")
        if reading.parameter is None:
            raise InvalidValue("the last step has no penalty to set.")
        reading = dataclasses.replace(reading, penalty=float(penalty))
    swept, values = _swept(over, reading, len(targets))
    features, used = features_of(reading, X, targets, rng)
    notes = []
    if len(used) < len(targets):
        notes.append(
            f"the theory looks at {len(used)} of {len(targets)} rows, enough for {features.shape[1]} features."
        )
    found = theories(reading, features, targets[used], rng)
    number, middle = features.shape[1], _around(reading, features)
    del features  # the theories keep what they need
    if not given and penalty is None and reading.parameter is not None:
        chosen = best_penalty(found[0], len(targets), middle, decades=8.0).penalty
        if np.isfinite(chosen):
            reading = dataclasses.replace(reading, penalty=chosen)
            found = [t._replace(penalty=chosen) if hasattr(t, "penalty") else t for t in found]  # type: ignore[attr-defined]
    held = min(int(0.8 * len(targets)), max(MOST_CELLS // number, 500))
    spent_theory = time.perf_counter() - begun

    begun = time.perf_counter()
    chosen_values = _fitted_values(swept, values, len(targets), held, fits)
    points = [(int(v), reading.penalty) if swept == "rows" else (held, float(v)) for v in chosen_values]
    fitted = fitted_points(reading, X, targets, points, repeats, rng)
    spent_fits = time.perf_counter() - begun

    begun = time.perf_counter()
    rate = reading.classifies
    far = {t.name: _apart(t.error(fitted.rows, fitted.penalty), fitted.mean, rate) for t in found} if points else {}
    if points:
        found = sorted(found, key=lambda t: np.nan_to_num(np.nanmedian(np.abs(far[t.name])), nan=np.inf))
    dense = LINE if reading.loss != "lasso" else 13  # each of its points is a fixed point of many small lassos
    fine = np.geomspace(values.min(), values.max(), dense) if len(values) > 1 else values.astype(float)
    at = lambda t, v: t.error(*_pairs(swept, v, reading.penalty, held))  # noqa: E731
    line = {swept: fine} | {t.name: at(t, fine) for t in found}
    theory = at(found[0], values.astype(float))
    best_rows = int(values.max()) if swept == "rows" else held
    around = reading.penalty if reading.penalty > 0 else middle
    best = Best(np.nan, np.nan, np.nan, False)
    if reading.parameter is not None:
        best = best_penalty(found[0], best_rows, around, decades=8.0)
    if np.isnan(theory).any():
        notes.append(
            f"the theory has no solution at {int(np.isnan(theory).sum())} of {len(theory)} values: they are NaN."
        )
    if swept == "rows" and values.max() > 3 * len(targets):
        notes.append("beyond 3 times the rows the theory extrapolates what these rows show.")
    spent_theory += time.perf_counter() - begun
    return Prediction(
        over=swept, values=values, theory=theory, observable="test error" if rate else "mean squared error",
        rows=len(targets), columns=int(X.shape[1]), features=number, learner=learner_of(reading),
        penalty=reading.penalty, penalty_is=reading.penalty_is, held_rows=held, names=tuple(t.name for t in found), line=line,
        fitted=fitted, deviation=far, best=best, best_rows=best_rows, seconds={"theory": spent_theory, "fits": spent_fits},
        warnings=tuple(notes),
    )  # fmt: skip


def _around(reading: Reading, features: np.ndarray) -> float:
    """A middle for the search of penalties."""
    spread = float(features.var(axis=0).sum())
    return 0.05 if reading.loss == "lasso" else max(spread, 1e-12)


def _swept(over: Mapping[str, Sequence[float]] | None, reading: Reading, number: int) -> tuple[str, np.ndarray]:
    """What is swept, and its values."""
    if over is None:
        least = max(LEAST_FIT, number // 40)
        return "rows", np.unique(np.rint(np.geomspace(least, number, 9)).astype(int))
    if len(over) != 1:
        raise InvalidValue(f"over names {len(over)} things to sweep; it must be one of rows and penalty.")
    ((name, values),) = over.items()
    if name not in ("rows", "penalty"):
        raise UnknownName(f"over has no {name!r}; it must be rows or penalty.")
    try:
        found = np.unique(np.asarray(list(values), float))
    except (TypeError, ValueError):
        found = np.array([])
    if name == "rows":
        found = np.unique(np.rint(found))
        if not found.size or not np.all((found >= LEAST_FIT) & (found <= 1e9)):
            raise InvalidValue(f"rows = {list(values)[:6]} must be whole numbers in [{LEAST_FIT}, 10⁹].")
        return name, found.astype(int)
    if reading.parameter is None:
        raise InvalidValue("the last step has no penalty to sweep.")
    if not found.size or not np.all((found > 0) & (found < 1e12)):
        raise InvalidValue(f"penalty = {list(values)[:6]} must be numbers in (0, 10¹²).")
    return name, found


def _pairs(swept: str, values: np.ndarray, penalty: float, held: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, L) at each value."""
    return (values, np.full(len(values), penalty)) if swept == "rows" else (np.full(len(values), float(held)), values)


def _fitted_values(swept: str, values: np.ndarray, number: int, held: int, fits: int) -> np.ndarray:
    """The values at which the pipeline is fitted: spread evenly, at least a tenth of the rows left for tests, memory bounded."""
    if fits < 1:
        return values[:0]
    most = 0.9 * number if held >= int(0.8 * number) else held
    fit = values[values <= most] if swept == "rows" else values
    return fit[np.unique(np.rint(np.linspace(0, len(fit) - 1, min(fits, len(fit)))).astype(int))] if len(fit) else fit


def _apart(theory: np.ndarray, fit: np.ndarray, rate: bool) -> np.ndarray:
    """Difference of rates, or relative difference."""
    return theory - fit if rate else theory / fit - 1
