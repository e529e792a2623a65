"""How much would more rows help? The learning curve of ridge and logistic regression, forecast from the rows at hand.

    from solvable.tools.forecast import forecast

    result = forecast(X, y)                  # ridge regression; loss="logistic" for two classes
    print(result)                            # gain and level at 1.5, 2 and 3 times the rows, with bands
    result.plot().savefig("forecast.png")

The forecast is the leave-one-out error of the given rows times a ratio from exact high-dimensional theory (see
`solvable.methods.random_matrices.effective_ridge` and `logistic_replica`). So the *gain* is forecast; the *level* keeps the
noise of the rows.
"""

from __future__ import annotations

import warnings as _warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import InvalidValue
from ._forecast_curve import measured_curve, power_law
from ._forecast_logistic import (  # fmt: skip
    NOT_PROBIT,
    Backtest,
    LogisticForecast,
    backtest_logistic,
    forecast_logistic,
    with_backtest,
)
from ._forecast_ridge import HEAVY, RidgeTransport, forecast_ridge, halves, less_a_tenth, transport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Loss = Literal["square", "logistic"]
LEAST_ROWS, LEAST_CLASS, MOST_COLUMNS = 40, 8, 20_000
LARGEST = 1e100  # of a value; its inverse is the smallest spread of a column
FACTORS = (1.5, 2.0, 3.0)
TESTED = 3.0
"""The accuracy of forecasts was measured up to this many times the rows."""
OBSERVABLES = {"square": "mean squared error", "logistic": "test error"}


@dataclass(frozen=True)
class Forecast:
    """The forecast at each of `sizes` rows. Bands [size, (low, high)] are nominally 90 %; NaN means no band.

    `gain` is level(n)/level(now) for the square loss and level(n) − level(now), a difference of error rates, for the
    logistic loss. `reached` is False where the rows cannot determine the forecast: it is then extrapolated, without a band.
    """

    loss: Loss
    rows: int
    columns: int
    penalty: float
    sizes: np.ndarray
    level: np.ndarray
    level_band: np.ndarray
    gain: np.ndarray
    gain_band: np.ndarray
    reached: np.ndarray
    now: float
    now_band: np.ndarray
    warnings: tuple[str, ...] = ()
    log_loss: np.ndarray | None = None
    """Test log-loss of logistic regression, without a band: no reliable one was found."""
    curve: dict[str, np.ndarray] | None = None
    """Errors `measured` on held-out rows after training on `rows` rows, with their standard `error`."""
    power_law: np.ndarray | None = None
    """The power law a + b n^−c fitted to that curve, at `sizes`."""
    line: dict[str, np.ndarray] | None = None
    """The forecast and the power law on a finer grid of sizes, for the plot."""
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def observable(self) -> str:
        """The name of the level."""
        return OBSERVABLES[self.loss]

    def as_dict(self) -> dict[str, Any]:
        """The forecast as plain numbers, lists and strings."""
        points = []
        for k, n in enumerate(self.sizes):
            one = {
                "rows": int(n), "reached": bool(self.reached[k]), "gain": float(self.gain[k]),
                "gain_band": self.gain_band[k].tolist(), "level": float(self.level[k]),
                "level_band": self.level_band[k].tolist(),
                "power_law": None if self.power_law is None else float(self.power_law[k]),
            }  # fmt: skip
            if self.log_loss is not None:
                one["log_loss"] = float(self.log_loss[k])
            points.append(one)
        measured = None if self.curve is None else {name: values.tolist() for name, values in self.curve.items()}
        return {
            "loss": self.loss, "observable": self.observable, "rows": self.rows, "columns": self.columns,
            "penalty": self.penalty, "gain_is": "ratio" if self.loss == "square" else "difference",
            "now": self.now, "now_band": self.now_band.tolist(), "forecast": points, "measured": measured,
            "warnings": list(self.warnings), "diagnostics": self.diagnostics,
        }  # fmt: skip

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows of the printed table."""
        square, rows = self.loss == "square", []
        form = (lambda v: f"×{v:.3f}") if square else (lambda v: f"{100 * v:+.2f}")
        outcome = lambda v: "none" if np.isnan(v) else form(v)  # noqa: E731

        def band(pair: np.ndarray, form) -> str:
            return f"({form(pair[0])} … {form(pair[1])})" if np.isfinite(pair).all() else "(no band)"

        for k, n in enumerate(self.sizes):
            row = [str(int(n)), outcome(self.gain[k]), band(self.gain_band[k], outcome), f"{self.level[k]:.4g}"]
            row += [band(self.level_band[k], lambda v: f"{v:.4g}")]
            row += [f"{self.power_law[k]:.4g}"] if self.power_law is not None else []
            row += [f"{self.log_loss[k]:.4g}"] if self.log_loss is not None else []
            rows.append(row)
        columns = ["rows", "gain" if square else "change, %", "90 % band", self.observable, "90 % band"]
        columns += ["power law"] if self.power_law is not None else []
        return columns + (["log-loss"] if self.log_loss is not None else []), rows

    def sentences(self) -> list[str]:
        """Sentences on how to read the numbers."""
        outcome = [
            f"The forecast is of the gain. The level includes the noise of these {self.rows} rows (now about "
            f"±{100 * (self.now_band[1] - self.now_band[0]) / 2 / self.now:.0f} %), which no method can remove."
            if np.isfinite(self.now_band).all()
            else f"The forecast is of the gain. The level includes the noise of these {self.rows} rows.",
            "The penalty is kept fixed; the best penalty for more rows is not forecast.",
        ]
        if "backtest" in self.diagnostics:
            missed, error = (100 * self.diagnostics[k] for k in ("backtest", "backtest_error"))
            off, known = (
                (f"{missed:+.0f} %", f"±{error:.0f} %")
                if self.loss == "square"
                else (f"{missed:+.1f} points of 100", f"±{error:.1f}")
            )
            outcome.append(
                f"Backtest: forecasts from halves of the rows to all of them are off by {off} (the rows tell this to {known})."
            )
        return outcome

    def __str__(self) -> str:
        columns, rows = self.table()
        widths = [max(len(row[k]) for row in [columns, *rows]) for k in range(len(columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [columns, *rows]
        ]
        head = f"{self.loss} loss, {self.rows} rows, {self.columns} columns, penalty {self.penalty:.4g}: {self.observable} now "
        notes = self.sentences() + [f"Warning: {w}" for w in self.warnings]
        return "\n".join([f"{head}{self.now:.4g}", *(line.rstrip() for line in lines), *notes])

    def plot(self, ax: Axes | None = None) -> Figure:
        """Plot the learning curve measured on subsets, the forecast with its band, and the power law."""
        from ._forecast_curve import draw_forecast

        return draw_forecast(self, ax)


def forecast(
    X: Any,
    y: Any,
    loss: Loss = "square",
    *,
    at: Sequence[int] | None = None,
    penalty: float | None = None,
    standardise: bool = True,
    constant: Literal["refuse", "drop"] = "refuse",
    bands: bool = True,
    curve: bool = True,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Forecast:
    """Forecast the test error of ridge (`loss="square"`) or logistic regression at `at` rows (default: 1.5, 2 and 3 times).

    `penalty` L is scikit-learn's alpha of `Ridge`, or 1/C of `LogisticRegression`; by default the one with the lowest
    leave-one-out error. It is kept fixed as rows are added. Columns are scaled to unit variance unless `standardise` is
    False. `bands=False` and `curve=False` skip the jackknife and the measured curve with its power law.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(150, 60))
    >>> y = X @ rng.normal(size=60) / 8 + rng.normal(size=150)
    >>> result = forecast(X, y)
    >>> result.sizes.tolist(), result.reached.tolist(), bool(np.all(np.diff(result.gain) < 0))
    ([225, 300, 450], [True, True, True], True)
    """
    features, targets, notes = _checked(X, y, loss, penalty, constant, names)
    rows, columns = features.shape
    sizes = _sizes(at, rows)
    if standardise:
        features = features / features.std(axis=0)
    unit = float(targets.std()) if loss == "square" else 1.0  # errors are in the targets' own units, squared
    targets = targets / unit
    rng = np.random.default_rng(seed)
    whole = transport(features, targets)
    doubled = rows - len(np.unique(np.column_stack([features, targets]), axis=0))
    if doubled:
        notes.append(
            f"{doubled} rows repeat others exactly, which makes leave-one-out and this forecast too optimistic."
        )
    outcome: dict[str, Any] = dict(loss=loss, rows=rows, columns=columns, sizes=sizes)
    finer = np.unique(np.r_[sizes, np.rint(np.geomspace(rows, sizes.max(), 9)[1:]).astype(int)]) if curve else sizes
    place = np.searchsorted(finer, sizes)
    if loss == "square":
        parts = [transport(features[k], targets[k]) for k in less_a_tenth(rows, rng)] if bands else []
        penalty = whole.best if penalty is None else penalty
        half = halves(features, targets, np.array([penalty]), rng)[0] if bands else None
        result = _square(whole, parts, half, penalty, finer, place, notes, unit**2)
    else:
        found = forecast_logistic(whole, targets, finer, penalty)
        tested = backtest_logistic(features, targets, whole, found.penalty, rng) if bands else None
        result = _logistic(whole, found, tested, finer, place, notes)
    line = result.pop("line")
    outcome |= result
    if sizes.max() > TESTED * rows:
        notes.append(f"the accuracy of forecasts beyond {TESTED:g} times the rows was never measured.")
    if not outcome["reached"].all():
        notes.append("some sizes are out of reach of these rows: their values are extrapolated, without a band.")
    if curve:
        seen = measured_curve(features, targets, loss, outcome["penalty"], rng)
        last = outcome["diagnostics"]["leave_one_out"] / unit**2
        weights = np.sqrt(np.r_[rows - seen["rows"], rows])  # the number of held-out rows
        law = power_law(np.r_[seen["rows"], rows], np.r_[seen["measured"], last], weights)
        along = np.geomspace(seen["rows"][0], sizes.max(), 60)
        seen |= {name: seen[name] * unit**2 for name in ("measured", "error")}
        line |= {"law_rows": along, "power_law": law(along) * unit**2}
        outcome |= dict(curve=seen, power_law=law(sizes) * unit**2, line=line)
    for note in notes:
        _warnings.warn(note, stacklevel=2)
    return Forecast(**outcome, warnings=tuple(notes))


def _square(
    whole: RidgeTransport, parts: list[RidgeTransport], half: np.ndarray | None, penalty: float, sizes: np.ndarray,
    place: np.ndarray, notes: list[str], unit: float,
) -> dict[str, Any]:  # fmt: skip
    uneven, freedom = whole.unevenness(penalty), whole.freedom(penalty)
    if whole.sample.rows - freedom < 30:
        notes.append(
            f"the fit uses {freedom:.0f} degrees of freedom of {whole.sample.rows} rows: the level is uncertain by over 25 %."
        )
    found = forecast_ridge(whole, parts, sizes, penalty, half)
    found = found._replace(now=found.now + np.log(unit), level=found.level + np.log(unit))
    if uneven > HEAVY:
        notes.append(
            _heavy(uneven)
            + f"; the theory of rows of random scale has the weight {found.weights[1]:.2f}, and rows larger than "
            f"all of these may have {100 * whole.unseen(penalty):.0f} % of all size."
        )
    point = np.where(found.trusted, 1.0, np.nan)
    if not found.trusted[place].all():
        notes.append(
            f"the halves of the rows do not confirm the theories (they miss by {100 * np.expm1(found.missed):+.0f} %), the "
            "theories disagree, or larger rows than these decide: only bands are given at some sizes."
        )
    if found.spread[place].max() > 0.1:
        notes.append("three estimates of the spectrum disagree by more than 10 %: the gain is a rough estimate.")
    band = lambda centre, width: np.exp(np.stack([centre - width, centre + width], axis=-1))  # noqa: E731
    level_band, gain_band = band(found.level, found.level_width), band(found.gain, found.gain_width)
    return {
        "penalty": penalty, "level": (point * np.exp(found.level))[place], "level_band": level_band[place],
        "gain": (point * np.exp(found.gain))[place], "gain_band": gain_band[place], "reached": found.reached[place],
        "now": float(np.exp(found.now)), "now_band": band(found.now, found.now_width),
        "line": {"rows": sizes, "level": point * np.exp(found.level), "band": level_band, "reached": found.reached},
        "diagnostics": {
            "leverage_ratio": uneven, "freedom": freedom, "spread": float(found.spread[place].max()),
            "source_exponent": whole.shapes[1].source, "leave_one_out": float(np.exp(found.now)),
            "least_kappa": whole.known.least, "trusted": found.trusted[place].tolist(),
            "weight_of_random_scales": float(found.weights[1]), "unseen": whole.unseen(penalty),
        } | ({} if half is None else {"backtest": found.missed, "backtest_error": float(half[1])}),
    }  # fmt: skip


def _heavy(uneven: float) -> str:
    return f"rows are heavy-tailed (leverages {uneven:.0f} times more uneven than those of Gaussian rows)"


def _logistic(
    whole: RidgeTransport, found: LogisticForecast, tested: Backtest | None, sizes: np.ndarray, place: np.ndarray,
    notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    found = found if tested is None else with_backtest(found, tested, sizes / whole.sample.rows)
    uneven, wrong = whole.unevenness(whole.best), found.left * whole.sample.rows
    if uneven > HEAVY:
        notes.append(_heavy(uneven) + "; the forecast may be off.")
    if found.saturation > NOT_PROBIT:
        notes.append(
            f"labels are {found.saturation:.2f} times more predictable than any Gaussian teacher allows: the forecast treats "
            "the classes as two Gaussian clusters."
        )
    if wrong < 5:
        notes.append(f"only about {wrong:.0f} of the rows are predicted wrongly: the level is very uncertain.")
    if np.isnan(found.error[place]).any():
        notes.append("the theory has no fixed point at some sizes: their values are NaN.")
    if tested is not None and not found.trusted:
        notes.append(
            f"forecasts from halves of the rows miss all rows by {100 * tested.missed:+.1f} points of 100: these rows violate "
            "the theory's assumptions, so only bands are given."
        )
    point = 1.0 if found.trusted else np.nan
    band = lambda centre, width: np.stack([centre - width, centre + width], axis=-1)  # noqa: E731
    level_band = np.clip(band(found.error, found.error_width), 0.0, 1.0)
    now, width, _ = found.now
    return {
        "penalty": found.penalty, "level": point * found.error[place], "level_band": level_band[place],
        "gain": point * found.change[place], "gain_band": band(found.change, found.change_width)[place],
        "reached": found.reached[place], "now": now, "now_band": np.clip(band(np.array(now), width), 0.0, 1.0),
        "log_loss": point * found.loss[place],
        "line": {"rows": sizes, "level": point * found.error, "band": level_band, "reached": found.reached},
        "diagnostics": {
            "leverage_ratio": uneven, "channel": found.channel, "saturation": found.saturation,
            "leave_one_out": found.left, "least_kappa": whole.known.least, "trusted": [found.trusted] * len(place),
        } | ({} if tested is None else {"backtest": tested.missed, "backtest_error": tested.error}),
    }  # fmt: skip


def _sizes(at: Sequence[int] | None, rows: int) -> np.ndarray:
    if at is None:
        return np.rint(np.array(FACTORS) * rows).astype(int)
    try:
        sizes = np.asarray(at, float)
    except (TypeError, ValueError):
        sizes = np.array([])
    if sizes.ndim != 1 or not sizes.size or not np.all((sizes > rows) & (sizes <= 1e9) & (sizes == np.rint(sizes))):
        raise InvalidValue(
            f"at = {at!r} must be whole numbers of rows in ({rows}, 10⁹]: there are {rows} rows already."
        )
    return np.unique(sizes).astype(int)


def _checked(
    X: Any, y: Any, loss: str, penalty: float | None, constant: str, names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Features, targets (±1 for the logistic loss), and notes on changes to them; raises `InvalidValue` for bad data."""
    if loss not in OBSERVABLES:
        raise InvalidValue(f"loss = {loss!r} is neither 'square' nor 'logistic'.")
    if penalty is not None and not (np.isfinite(penalty) and 0 < penalty < 1e12):
        raise InvalidValue(f"penalty = {penalty} is not a number in (0, 10¹²).")
    if constant not in ("refuse", "drop"):
        raise InvalidValue(f"constant = {constant!r} is neither 'refuse' nor 'drop'.")
    try:
        features = np.asarray(X, float)
    except (TypeError, ValueError):
        raise InvalidValue("X must contain only numbers.") from None
    targets = np.asarray(y)
    if features.ndim != 2 or targets.ndim != 1 or len(features) != len(targets):
        raise InvalidValue(
            f"X and y have the shapes {features.shape} and {targets.shape}; they must be (rows, columns) and (rows)."
        )
    names = [f"column{k + 1}" for k in range(features.shape[1])] if names is None else list(names)
    if len(targets) < LEAST_ROWS:
        raise InvalidValue(f"there are {len(targets)} rows, but a forecast needs at least {LEAST_ROWS}.")
    if not 1 <= features.shape[1] <= MOST_COLUMNS:
        raise InvalidValue(f"there are {features.shape[1]} columns; the allowed range is [1, {MOST_COLUMNS}].")
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise InvalidValue(f"row {row + 1} has no finite value in the column {names[column]!r}.")
    targets = _labels(targets) if loss == "logistic" else _numbers(targets)
    for name, column in zip(names, features.T, strict=True):
        _check_magnitude(f"the column {name!r} has", column)
    centred = features - features.mean(axis=0)
    flat = np.abs(centred).max(axis=0) <= 1e-12 * np.maximum(np.abs(features).max(axis=0), 1e-300)
    notes: list[str] = []
    if flat.any():
        first = names[int(flat.argmax())]
        if constant == "refuse":
            raise InvalidValue(
                f"{flat.sum()} columns have the same value in every row, the first of them {first!r}; leave them out "
                "(constant='drop', on the command line --constant drop)."
            )
        notes.append(f"{flat.sum()} columns with the same value in every row were left out.")
        centred = centred[:, ~flat]
        if not centred.shape[1]:
            raise InvalidValue("every column is constant: there is nothing to learn from.")
    return centred, targets, notes


def _check_magnitude(whose: str, values: np.ndarray) -> None:
    """Squares must neither overflow nor vanish."""
    largest = float(np.abs(values).max())
    spread = float(np.ptp(values)) if largest <= LARGEST else 0.0
    if largest > LARGEST or 0 < spread < 1 / LARGEST:
        raise InvalidValue(
            f"{whose} values that differ by {spread:.1g} and reach {largest:.1g}: rescale them to between "
            f"{1 / LARGEST:.0e} and {LARGEST:.0e}."
        )


def _numbers(targets: np.ndarray) -> np.ndarray:
    try:
        numbers = targets.astype(float)
    except (TypeError, ValueError):
        raise InvalidValue(
            "the targets are words; the square loss needs numbers (for two classes use the logistic loss)."
        ) from None
    if not np.isfinite(numbers).all():
        raise InvalidValue(f"row {int(np.argmin(np.isfinite(numbers))) + 1} has no finite target.")
    _check_magnitude("the targets have", numbers)
    if np.ptp(numbers) <= 1e-12 * np.abs(numbers).max():
        raise InvalidValue(f"all targets are {numbers[0]:g}: there is nothing to predict.")
    return numbers


def _labels(targets: np.ndarray) -> np.ndarray:
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        raise InvalidValue(f"row {int(np.argmin(np.isfinite(targets))) + 1} has no finite target.")
    classes, which, counts = np.unique(targets.astype(str), return_inverse=True, return_counts=True)
    if len(classes) == 1:
        raise InvalidValue(f"all labels are {classes[0]!r}: there is only one class.")
    if len(classes) > 2:
        raise InvalidValue(f"there are {len(classes)} different labels, but the logistic loss needs two classes.")
    if counts.min() < LEAST_CLASS:
        few = classes[np.argmin(counts)]
        raise InvalidValue(f"only {counts.min()} rows have the label {few!r}; a forecast needs at least {LEAST_CLASS}.")
    return np.where(which == 1, 1.0, -1.0)
