"""`python -m benchmarks.forecast_cover`: do the bands of `solvable forecast` cover the truth, class by class?

Ridge regression from n0 rows to 1.5, 2 and 3 n0, at a tenth, one and ten times the best penalty; with `--loss logistic`
logistic regression on two classes, targets above their mean and below, at a third, one and three times the best penalty.
Synthetic tables have fresh rows for the truth; real ones the rows that are left, over many splits. `--group developed` has the
tables on which the bands were chosen, `--group reported`, `unseen`, `fresh` and `later` those that were looked at once, and
`drawn` the products of the columns of tables drawn at random. With several workers set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np

from solvable.tools._forecast_curve import held_out_error
from solvable.tools._forecast_logistic import backtest_logistic, best_penalty, forecast_logistic, with_backtest
from solvable.tools._forecast_ridge import (
    Ingredients,
    combine,
    halves,
    ingredients,
    less_a_tenth,
    squared_errors,
    transport,
)
from solvable.tools.forecast import FACTORS

from .forecast import two
from .tables import CLASSES, Table, real, synthetic

POOL, FRESH = 6000, 6000
TRUTHS = {"square": 40, "logistic": 12}
"""Splits that define the truth; the error of a rate is known from the fresh rows alone to half a point of 100."""
Record = dict[str, Any]


class Splits(NamedTuple):
    """A table, how its rows are split, and the sizes that are forecast."""

    x: np.ndarray
    y: np.ndarray
    orders: list[np.ndarray]
    sizes: np.ndarray
    fresh: bool

    def rest(self, order: np.ndarray) -> np.ndarray:
        """The rows to test on."""
        return np.arange(POOL, len(self.y)) if self.fresh else order[self.sizes[-1] :]


def measure(split: Splits, n0: int, splits: int, rng: np.random.Generator, about: Record) -> list[Record]:
    """One record per split and penalty: what the rows showed, and the truth."""
    x, y, orders, sizes, _ = split
    penalties = transport(*_part(x, y, orders[0][:n0])).best * np.array([0.1, 1.0, 10.0])
    fits = [[squared_errors(x, y, o[:n], split.rest(o), penalties).mean(axis=0) for n in (n0, *sizes)] for o in orders]
    errors = np.log(np.mean(fits, axis=0))
    records = []
    for order in orders[:splits]:
        part, targets = _part(x, y, order[:n0])
        whole = transport(part, targets)
        tenths = [transport(part[k], targets[k]) for k in less_a_tenth(n0, rng)]
        tested = halves(part, targets, penalties, rng)
        for j, L in enumerate(penalties):
            found = ingredients(whole, tenths, sizes, L, tested[j])
            records.append({
                **about, "penalty": j, "rows": n0, "columns": part.shape[1],
                "truth": errors[1:, j] - errors[0, j], "reached": whole.reached(sizes, L), "uneven": whole.unevenness(L),
                "old": _before(whole, tenths, sizes, L), "freedom": whole.freedom(L), **found._asdict(),
            })  # fmt: skip
    return records


def measure_rates(split: Splits, n0: int, splits: int, rng: np.random.Generator, about: Record) -> list[Record]:
    """The same for error rates: the forecast with its widths, and the truth."""
    x, y, orders, sizes, _ = split
    parts = [_part(x, y, o[:n0]) for o in orders[:splits]]
    wholes = [transport(*part) for part in parts]
    best = [best_penalty(whole, part[1]) for whole, part in zip(wholes, parts, strict=True)]
    penalties = np.exp(np.mean(np.log(best))) * 10.0 ** np.array([-0.5, 0.0, 0.5])
    fits = [[held_out_error(x, y, o[:n], split.rest(o), "logistic", penalties) for n in (n0, *sizes)] for o in orders]
    errors = np.mean(fits, axis=0)
    records = []
    for whole, (part, labels) in zip(wholes, parts, strict=True):
        for j, L in enumerate(penalties):
            tested = backtest_logistic(part, labels, whole, L, rng)
            found = with_backtest(forecast_logistic(whole, labels, sizes, L), tested, sizes / n0)
            records.append({
                **about, "penalty": j, "rows": n0, "columns": part.shape[1], "level": errors[1:, j],
                "truth": errors[1:, j] - errors[0, j], "missed": tested.missed, "noise": tested.error, **found._asdict(),
            })  # fmt: skip
    return records


def _part(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> Table:
    """Rows without the columns that are constant there."""
    return x[rows][:, x[rows].std(axis=0) > 1e-12], y[rows]


def _before(whole, tenths, sizes, L) -> np.ndarray:
    """Gain and half-width of the band of Gaussian rows alone, as they were before rows of random scale: [2, size]."""
    each = whole.log_gains(sizes, L)
    gains = np.stack([np.median(p.log_gains(sizes, L, whole.sample.rows), axis=0) for p in tenths])
    error = np.sqrt((len(gains) - 1) * gains.var(axis=0))
    gain = np.median(each, axis=0)
    heavy = (0.35 * gain) ** 2 * (whole.unevenness(L) > 3.0)
    return np.stack([gain, np.sqrt((1.83 * error) ** 2 + (2 * each.std(axis=0, ddof=1)) ** 2 + 0.01**2 + heavy)])


def _job(job: tuple) -> list[Record]:
    what, name, seed, splits, loss = job
    fresh = what == "synthetic"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if fresh:
            n0 = int(np.random.default_rng([seed, 3]).choice([100, 150, 250]))
            x, y = synthetic(name, seed, POOL + FRESH)
            about = {"name": f"{name} {seed}", "kind": name}
        else:
            x, y = dict(real(what))[name]
            n0, seed, splits = min(250, int(len(y) / 4.5)), 1, 2 * splits
            about = {"name": name, "kind": f"real, {'products' if 'products' in name else 'as they are'}"}
        y = two(y > y.mean()) if loss == "logistic" else y
        rng = np.random.default_rng([seed, 7])
        orders = [rng.permutation(POOL if fresh else len(y)) for _ in range(TRUTHS[loss])]
        split = Splits(x, y, orders, np.rint(np.array(FACTORS) * n0).astype(int), fresh)
        return (measure_rates if loss == "logistic" else measure)(split, n0, splits, rng, about)


def summary(records: list[Record]) -> dict[str, Any]:
    """Median error of the log-gain and cover at 1.5, 2 and 3 times the rows, before and after."""
    truth = np.array([r["truth"] for r in records])
    before = np.array([r["old"] for r in records])
    reached = np.array([r["reached"] for r in records])
    after = [combine(Ingredients(*(r[name] for name in Ingredients._fields))) for r in records]
    gain, width = np.array([a[0] for a in after]), np.array([a[1] for a in after])
    point = np.array([a[4] for a in after])
    middle = lambda v: [float(q) for q in np.nanmedian(np.where(reached, np.abs(v), np.nan), axis=0)]  # noqa: E731
    share = lambda v: float(np.nanmean(np.where(reached, v, np.nan)))  # noqa: E731
    pointed = reached & point
    return {
        "number": len(records), "error_before": middle(before[:, 0] - truth),
        "error_after": [float(q) for q in np.nanmedian(np.where(pointed, np.abs(gain - truth), np.nan), axis=0)],
        "cover_before": share(np.abs(before[:, 0] - truth) <= before[:, 1]),
        "cover_after": share(np.abs(gain - truth) <= width), "point": float(point.mean()),
        "width": middle(width), "gain": middle(truth),
    }  # fmt: skip


def summary_of_rates(records: list[Record]) -> dict[str, Any]:
    """Median error of the change of the rate and of the rate at 1.5, 2 and 3 times the rows, and the cover of both bands."""
    of = lambda name: np.array([r[name] for r in records])  # noqa: E731
    change, level = of("change") - of("truth"), of("error") - of("level")
    pointed = np.where((of("trusted")[:, None] & of("reached")), 1.0, np.nan)

    def cover(off: np.ndarray, width: np.ndarray) -> float:
        return float(np.nanmean(np.where(np.isfinite(width), np.abs(off) <= width, np.nan)))

    middle = lambda v: [float(q) for q in np.nanmedian(np.abs(v), axis=0)]  # noqa: E731
    return {
        "number": len(records), "error_change": middle(pointed * change), "error_level": middle(pointed * level),
        "cover_change": cover(change, of("change_width")), "cover_level": cover(level, of("error_width")),
        "point": float(of("trusted").mean()), "width": middle(of("change_width")), "change": middle(of("truth")),
    }  # fmt: skip


def main() -> int:
    about = argparse.ArgumentParser(prog="python -m benchmarks.forecast_cover", description=__doc__)
    about.add_argument(
        "--group",
        choices=("synthetic", "developed", "reported", "unseen", "fresh", "later", "drawn"),
        default="synthetic",
    )
    about.add_argument("--loss", choices=("square", "logistic"), default="square")
    about.add_argument("--seeds", default="1000:1012", help="a:b, the synthetic tables of each class (bands: 0:40)")
    about.add_argument("--splits", type=int, default=2, help="splits to forecast from, of each table")
    about.add_argument("--workers", type=int, default=1)
    about.add_argument("--keep", help="file for all records (.npy)")
    about.add_argument("--json", action="store_true")
    chosen = about.parse_args()
    if chosen.group == "synthetic":
        low, high = map(int, chosen.seeds.split(":"))
        jobs = [("synthetic", kind, seed) for seed in range(low, high) for kind in CLASSES]
    else:
        jobs = [(chosen.group, name, 0) for name, _ in real(chosen.group)]
    jobs = [(*job, chosen.splits, chosen.loss) for job in jobs]
    records: list[Record] = []
    with multiprocessing.get_context("fork").Pool(chosen.workers) as pool:
        for k, some in enumerate(pool.imap_unordered(_job, jobs)):
            records += some
            if chosen.keep and (k % 20 == 19 or k == len(jobs) - 1):
                np.save(chosen.keep, np.array(records, dtype=object), allow_pickle=True)
    by = "kind" if chosen.group == "synthetic" else "name"
    names = list(dict.fromkeys(sorted(r[by] for r in records)))
    shown = summary if chosen.loss == "square" else summary_of_rates
    old, new = ("before", "after") if chosen.loss == "square" else ("change", "level")
    answer = {name: shown([r for r in records if r[by] == name]) for name in names}
    answer["all"] = shown(records)
    if chosen.json:
        print(json.dumps(answer, ensure_ascii=False, indent=1))
    else:
        what = "median error of the log-gain, %" if chosen.loss == "square" else "median error, points of 100"
        print(f"{'':26s}{what + ', at 1.5/2/3×':>46s}{'cover':>14s}{'point':>9s}")
        print(f"{'':26s}{old:>23s}{new:>23s}{old:>8s}{new:>8s}")
        for name, s in answer.items():
            first, last = (" / ".join(f"{100 * v:.1f}" for v in s[f"error_{k}"]) for k in (old, new))
            print(f"{name:26s}{first:>23s}{last:>23s}{s[f'cover_{old}']:8.2f}{s[f'cover_{new}']:8.2f}{s['point']:8.2f}")
    asked = ("cover_after",) if chosen.loss == "square" else ("cover_change", "cover_level")
    return 0 if all(s[k] >= 0.85 for s in answer.values() for k in asked) else 1


if __name__ == "__main__":
    sys.exit(main())
