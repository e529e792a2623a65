"""`python -m benchmarks.forecast`: forecasts from a third of the rows against the true errors and a power law.

Every set is split many times into n0 rows to forecast from, 3·n0 to train on, and the rest to test on. The truth at n rows
and one penalty is the mean test error of fits to n rows over all splits; the forecasts of the first splits are compared
with it, at penalties around the best one for n0 rows. The data are bundled with scikit-learn or synthetic; nothing is
downloaded. The group `forecast` of `python -m benchmarks` measures the speed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from solvable.tools._forecast_curve import REPEATS, SHARES, held_out_error, power_law
from solvable.tools._forecast_logistic import backtest_logistic, best_penalty, forecast_logistic, with_backtest
from solvable.tools._forecast_ridge import HEAVY, forecast_ridge, halves, less_a_tenth, transport
from solvable.tools.forecast import FACTORS
from solvable.tools.forecast import forecast as forecast_curve

from .rows import Row

Set = tuple[str, np.ndarray, np.ndarray, int]


# --- data -------------------------------------------------------------------------------------------------------------


def scaled(x: np.ndarray) -> np.ndarray:
    """The columns that vary, scaled to unit variance, without using labels."""
    x = x[:, x.std(axis=0) > 1e-9]
    return (x - x.mean(axis=0)) / x.std(axis=0)


def random_features(x: np.ndarray, number: int, seed: int, activation: Callable = np.tanh) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(x.shape[1], number)) / np.sqrt(x.shape[1])
    return scaled(activation(x @ weights + 0.3 * rng.normal(size=number)))


def products(x: np.ndarray, degree: int) -> np.ndarray:
    from sklearn.preprocessing import PolynomialFeatures

    return scaled(PolynomialFeatures(degree, include_bias=False).fit_transform(x))


def drawn(
    columns: int, rows: int, decay: float, noise: float, seed: int, tails: float = 0.0, sign: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian rows (Student's with `tails` degrees of freedom) of a power-law spectrum, a random linear teacher, noise."""
    rng = np.random.default_rng(seed)
    number = 3 * rows + 2000
    spectrum = np.arange(1, columns + 1) ** -decay
    spectrum /= spectrum.sum()
    x = rng.normal(size=(number, columns)) * np.sqrt(spectrum)
    if tails:
        x *= np.sqrt((tails - 2) / rng.chisquare(tails, size=number))[:, None]
    teacher = rng.normal(size=columns)
    y = x @ teacher / np.sqrt((teacher**2 * spectrum).sum()) + np.sqrt(noise) * rng.normal(size=number)
    return x, np.sign(y) if sign else y


def two(condition: np.ndarray) -> np.ndarray:
    return np.where(condition, 1.0, -1.0)


def square_sets() -> Iterator[Set]:
    from sklearn import datasets

    digits, diabetes, breast = datasets.load_digits(), datasets.load_diabetes(), datasets.load_breast_cancer()
    pixels, body, cells = scaled(digits.data), scaled(diabetes.data), scaled(breast.data)
    progress, odd, benign = (
        diabetes.target / diabetes.target.std(),
        two(digits.target % 2 == 0),
        two(breast.target == 1),
    )
    yield "gaussian, d < n0", *drawn(100, 150, 1.0, 1.0, 1), 150
    yield "gaussian, d > n0", *drawn(300, 150, 1.0, 1.0, 2), 150
    yield "gaussian, little noise", *drawn(250, 200, 0.7, 0.4, 9), 200
    yield "student t4 rows", *drawn(100, 150, 0.5, 0.5, 3, tails=4), 150
    yield "diabetes", body, progress, 110
    yield "diabetes, degree 2", products(body, 2), progress, 110
    yield "diabetes, degree 3", products(body, 3), progress, 110
    yield "diabetes, 300 tanh", random_features(body, 300, 4), progress, 110
    yield "diabetes, BMI, degree 2", products(np.delete(body, 2, axis=1), 2), body[:, 2], 110
    yield "digits, parity", pixels, odd, 450
    yield "digits, parity, 150 rows", pixels, odd, 150
    yield "digits, 400 tanh", random_features(pixels, 400, 5), odd, 450
    yield "digits, 400 tanh, 150 rows", random_features(pixels, 400, 5), odd, 150
    yield (
        "digits, value, 300 ReLU",
        random_features(pixels, 300, 7, lambda z: np.maximum(z, 0)),
        digits.target / 3.0,
        450,
    )
    yield "digits, below 5", pixels, two(digits.target < 5), 450
    yield "breast cancer", cells, benign, 140
    yield "breast cancer, 200 tanh", random_features(cells, 200, 6), benign, 140
    yield "breast, smoothness, 150 tanh", random_features(np.delete(cells, 4, axis=1), 150, 8), cells[:, 4], 140


def logistic_sets() -> Iterator[Set]:
    from sklearn import datasets

    digits, breast = datasets.load_digits(), datasets.load_breast_cancer()
    pixels, cells, benign = scaled(digits.data), scaled(breast.data), two(breast.target == 1)
    odd = two(digits.target % 2 == 0)

    def pair(a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = (digits.target == a) | (digits.target == b)
        return scaled(digits.data[chosen]), two(digits.target[chosen] == a)

    yield "gaussian teacher", *drawn(200, 200, 1.0, 0.05, 11, sign=True), 200
    yield "gaussian teacher, flat", *drawn(150, 200, 0.2, 0.05, 12, sign=True), 200
    yield "digits, parity", pixels, odd, 150
    yield "digits, 400 tanh", random_features(pixels, 400, 5), odd, 150
    yield "digits, below 5", pixels, two(digits.target < 5), 450
    yield "digits, 3 or 8", *pair(3, 8), 90
    fours, y = pair(4, 9)
    yield "digits, 4 or 9, 150 tanh", random_features(fours, 150, 13), y, 80
    yield "breast cancer", cells, benign, 140
    yield "breast cancer, 200 tanh", random_features(cells, 200, 6), benign, 140


# --- measurement ------------------------------------------------------------------------------------------------------


def subset(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows to forecast from, without the columns that are constant there."""
    x = x[rows]
    return x[:, x.std(axis=0) > 1e-12], y[rows]


def by_power_law(
    x: np.ndarray, y: np.ndarray, loss: str, penalties: np.ndarray, last: np.ndarray, sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """The power law through the measured curve of a subset, at n0 and `sizes`, [size, penalty]."""
    rows = np.rint(np.array(SHARES[loss]) * len(y)).astype(int)
    seen = np.zeros((len(rows), len(penalties)))
    for k, n in enumerate(rows):
        for _ in range(REPEATS[loss]):
            order = rng.permutation(len(y))
            seen[k] += held_out_error(x, y, order[:n], order[n:], loss, penalties) / REPEATS[loss]
    left_out = np.sqrt(np.r_[len(y) - rows, len(y)])
    laws = [power_law(np.r_[rows, len(y)], np.r_[seen[:, j], last[j]], left_out) for j in range(len(penalties))]
    return np.stack([law(np.r_[len(y), sizes]) for law in laws], axis=1)


def measure(one: Set, loss: str, splits: int, truths: int, seed: int) -> dict[str, Any]:
    """Errors of forecast and power law on one set; gains are logarithms for the square loss, differences for the logistic."""
    name, x, y, n0 = one
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(y)) for _ in range(truths)]
    sizes = np.rint(np.array(FACTORS) * n0).astype(int)
    square = loss == "square"
    if square:
        top = np.linalg.eigvalsh(np.cov(x.T))[-1] * n0
        grid = np.geomspace(1e-5 * top, 10 * top, 31)
        best = grid[np.argmin(sum(held_out_error(x, y, o[:n0], o[3 * n0 :], loss, grid) for o in orders))]
        penalties = best * 30.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    else:
        chosen = [best_penalty(transport(*s), s[1]) for s in (subset(x, y, o[:n0]) for o in orders[:splits])]
        best = np.exp(np.mean(np.log(chosen)))
        penalties = best * 10.0 ** np.array([-0.5, 0.0, 0.5])
    errors = np.array(
        [[held_out_error(x, y, o[:n], o[3 * n0 :], loss, penalties) for n in (n0, *sizes)] for o in orders]
    ).mean(axis=0)  # [size, penalty]
    scale = np.log if square else np.asarray
    truth = scale(errors)
    level, gain, level_in, gain_in, law, uneven = [], [], [], [], [], []
    for order in orders[:splits]:
        part, labels = subset(x, y, order[:n0])
        whole = transport(part, labels)
        uneven.append(whole.unevenness(best if square else whole.best))
        if square:
            tenths = [transport(part[k], labels[k]) for k in less_a_tenth(n0, rng)]
            tested = halves(part, labels, penalties, rng)
            found = [forecast_ridge(whole, tenths, sizes, L, h) for L, h in zip(penalties, tested, strict=True)]
            last = np.array([np.exp(f.now) for f in found])
        else:
            tested = [backtest_logistic(part, labels, whole, L, rng) for L in penalties]
            found = [
                with_backtest(forecast_logistic(whole, labels, sizes, L), t, sizes / n0)
                for L, t in zip(penalties, tested, strict=True)
            ]
            found = [f._replace(now=f.error) for f in found]
            last = np.array([f.left for f in found])
        names = (
            ("level", "gain", "level_width", "gain_width")
            if square
            else ("error", "change", "error_width", "change_width")
        )
        a, b, a_width, b_width = (np.stack([getattr(f, n) for f in found], axis=1) for n in names)
        seen = np.stack([f.reached for f in found], axis=1)
        level.append(np.where(seen, a - truth[1:], np.nan))
        gain.append(np.where(seen, b - (truth[1:] - truth[0]), np.nan))
        level_in.append(np.where(seen, np.abs(level[-1]) <= a_width, np.nan))
        gain_in.append(np.where(seen, np.abs(gain[-1]) <= b_width, np.nan))
        fitted = scale(by_power_law(part, labels, loss, penalties, last, sizes, rng))
        law.append(np.stack([fitted[1:] - truth[1:], fitted[1:] - fitted[0] - (truth[1:] - truth[0])]))
    level, gain, law = np.array(level), np.array(gain), np.array(law)
    kept = np.isfinite(gain).all(axis=0)  # in reach of every split: the same penalties for all methods
    mean = lambda a: np.nanmean(np.where(kept, np.abs(a), np.nan), axis=(0, 2))  # noqa: E731
    return {
        "set": name, "columns": x.shape[1], "rows": n0, "now": errors[0, len(penalties) // 2],
        "then": errors[-1, len(penalties) // 2], "gain": mean(gain), "gain_law": mean(law[:, 1]),
        "no_change": mean(truth[None, 1:] - truth[0]), "level": mean(level), "level_law": mean(law[:, 0]),
        "level_covered": np.nanmean(level_in), "gain_covered": np.nanmean(gain_in), "uneven": np.median(uneven),
        "uneven_most": np.max(uneven), "in_reach": np.mean(np.isfinite(gain)),
    }  # fmt: skip


def summary(rows: list[dict[str, Any]], loss: str) -> dict[str, Any]:
    """Means over the sets, and whether the requirements hold."""
    mean = {
        key: np.mean([r[key] for r in rows], axis=0)
        for key in ("gain", "gain_law", "no_change", "level", "level_law", "level_covered", "gain_covered")
    }
    if loss == "square":
        gaussian = [r["uneven_most"] for r in rows if r["set"].startswith("gaussian")]
        met = {
            "log-gain error ≤ 0.025, 0.04, 0.06": bool(np.all(mean["gain"] <= [0.025, 0.04, 0.06])),
            "≤ 0.6 of the power law's": bool(np.all(mean["gain"] <= 0.6 * mean["gain_law"])),
            "level band covers 0.85 to 0.97": bool(0.85 <= mean["level_covered"] <= 0.97),
            "flag on Student's rows": all(r["uneven"] > HEAVY for r in rows if r["set"].startswith("student")),
            "no flag on Gaussian rows": max(gaussian, default=0.0) < HEAVY,
        }
    else:
        met = {
            "error at 3× off by ≤ 0.022": bool(mean["level"][2] <= 0.022),
            "≤ 0.75 of the power law's": bool(mean["level"][2] <= 0.75 * mean["level_law"][2]),
            "level band covers ≥ 0.8": bool(mean["level_covered"] >= 0.8),
        }
    return {"mean": mean, "met": met}


def line(r: dict[str, Any]) -> str:
    """A row of the table, or the mean of all."""
    three = ("gain", "gain_law", "no_change")
    cells = [f"{r.get('set', 'mean'):30s}{r.get('columns', ''):>5}{r.get('rows', ''):>5}  "]
    cells += [f"{' / '.join(f'{100 * v:.1f}' for v in r[key]):20s}" for key in three]
    level = f"{100 * r['level'][2]:.1f} / {100 * r['level_law'][2]:.1f}"
    uneven = f"{r['uneven']:.1f}" if "uneven" in r else ""
    return "".join(cells) + f"{level:20s}{r['level_covered']:9.2f}{r['gain_covered']:8.2f}{uneven:>8}"


def main() -> int:
    about = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    about.add_argument("--splits", type=int, default=12, help="number of splits to forecast from")
    about.add_argument("--truths", type=int, default=40, help="number of splits that define the truth")
    about.add_argument("--loss", choices=("square", "logistic"), help="run only this set")
    about.add_argument("--json", action="store_true", help="one JSON object on standard output")
    chosen = about.parse_args()
    answer, held = {}, True
    for loss, sets in (("square", square_sets), ("logistic", logistic_sets)):
        if chosen.loss not in (None, loss):
            continue
        rows, begun = [], time.process_time()
        say = (lambda _: None) if chosen.json else print
        unit = (
            "error of log-gain, %, at 1.5/2/3×"
            if loss == "square"
            else "error of the change, points of 100, at 1.5/2/3×"
        )
        say(f"\n{loss} loss: {unit}; error of the level at 3×; coverage of the 90 % bands; leverage ratio")
        say(f"{'set':30s}{'d':>5}{'n0':>5}  {'forecast':20s}{'power law':20s}{'no change':20s}{'level: ours / law':20s}"
            f"{'level in':>9}{'gain in':>8}{'ratio':>8}")  # fmt: skip
        for k, one in enumerate(sets()):
            rows.append(measure(one, loss, chosen.splits, max(chosen.truths, chosen.splits), seed=k))
            say(line(rows[-1]))
            sys.stdout.flush()
        total = summary(rows, loss)
        say(line(total["mean"]))
        say("\n".join(f"  {'yes' if ok else 'NO '}  {what}" for what, ok in total["met"].items()))
        say(f"  {time.process_time() - begun:.0f} CPU s")
        held = held and all(total["met"].values())
        answer[loss] = {"sets": rows, **total}
    if chosen.json:
        print(json.dumps(answer, default=lambda v: v.tolist(), ensure_ascii=False))
    return 0 if held else 1


# --- speed ------------------------------------------------------------------------------------------------------------


def forecast() -> Iterator[Row]:
    """CPU seconds of a forecast at the largest size of the table, warm."""
    from .rows import cpu_seconds

    x, y = drawn(400, 450, 1.0, 0.5, 0)
    x, y = x[:450], y[:450]
    what = "d = 400, n0 = 450, three sizes"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fitted, most, options in (
            ("ridge, no band", 0.05, {"bands": False, "curve": False}),
            ("ridge, with band and backtest", 1.0, {"curve": False}),
            ("logistic, with band", 2.0, {"loss": "logistic", "curve": False}),
            ("logistic, with band, measured curve and power law", None, {"loss": "logistic"}),
        ):
            labels = two(y > 0) if "loss" in options else y
            spent, _ = cpu_seconds(lambda o=options, t=labels: forecast_curve(x, t, **o).level, best_of=3)
            yield Row("forecast", f"{fitted}, {what}, warm", spent, most=most)


if __name__ == "__main__":
    sys.exit(main())
