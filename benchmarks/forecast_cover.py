"""`python -m benchmarks.forecast_cover`: do the bands of `solvable forecast` cover the truth, class by class?

Ridge regression from n0 rows to 1.5, 2 and 3 n0, at a tenth, one and ten times the best penalty. Synthetic tables have fresh
rows for the truth; real ones the rows that are left, over many splits. `--group developed` has the tables on which the bands
were chosen, `--group reported` and `--group unseen` those that were looked at once. With several workers set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
from typing import Any

import numpy as np

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

from .tables import CLASSES, Table, real, synthetic

POOL, FRESH = 6000, 6000
Record = dict[str, Any]


def measure(
    name: str, kind: str, table: Table, n0: int, fresh: bool, seed: int, splits: int, truths: int
) -> list[Record]:
    """One record per split and penalty: what the rows showed, and the truth."""
    x, y = table
    rng = np.random.default_rng([seed, 7])
    sizes = np.rint(np.array(FACTORS) * n0).astype(int)
    orders = [rng.permutation(POOL if fresh else len(y)) for _ in range(truths)]
    rest = lambda o: np.arange(POOL, len(y)) if fresh else o[3 * n0 :]  # noqa: E731
    penalties = transport(*_part(x, y, orders[0][:n0])).best * np.array([0.1, 1.0, 10.0])
    fits = [[squared_errors(x, y, o[:n], rest(o), penalties).mean(axis=0) for n in (n0, *sizes)] for o in orders]
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
                "name": name, "kind": kind, "penalty": j, "rows": n0, "columns": part.shape[1],
                "truth": errors[1:, j] - errors[0, j], "reached": whole.reached(sizes, L), "uneven": whole.unevenness(L),
                "old": _before(whole, tenths, sizes, L), "freedom": whole.freedom(L), **found._asdict(),
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
    what, name, seed, splits = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if what == "synthetic":
            n0 = int(np.random.default_rng([seed, 3]).choice([100, 150, 250]))
            return measure(f"{name} {seed}", name, synthetic(name, seed, POOL + FRESH), n0, True, seed, splits, 40)
        table = dict(real(what))[name]
        rows = len(table[1])
        kind = f"real, {'products' if 'products' in name else 'as they are'}"
        return measure(name, kind, table, min(250, int(rows / 4.5)), False, 1, 2 * splits, 40)


def summary(records: list[Record]) -> dict[str, Any]:
    """Median error of the log-gain and cover at 1.5, 2 and 3 times the rows, before and after."""
    truth = np.array([r["truth"] for r in records])
    before = np.array([r["old"] for r in records])
    reached = np.array([r["reached"] for r in records])
    after = [combine(Ingredients(r["gains"], r["errors"], r["spread"], r["half"])) for r in records]
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


def main() -> int:
    about = argparse.ArgumentParser(prog="python -m benchmarks.forecast_cover", description=__doc__)
    about.add_argument("--group", choices=("synthetic", "developed", "reported", "unseen"), default="synthetic")
    about.add_argument("--seeds", default="1000:1012", help="a:b, the synthetic tables of each class (bands: 0:40)")
    about.add_argument("--splits", type=int, default=2, help="splits to forecast from, of each table")
    about.add_argument("--workers", type=int, default=1)
    about.add_argument("--keep", help="file for all records (.npy)")
    about.add_argument("--json", action="store_true")
    chosen = about.parse_args()
    if chosen.group == "synthetic":
        low, high = map(int, chosen.seeds.split(":"))
        jobs = [("synthetic", kind, seed, chosen.splits) for seed in range(low, high) for kind in CLASSES]
    else:
        jobs = [(chosen.group, name, 0, chosen.splits) for name, _ in real(chosen.group)]
    records: list[Record] = []
    with multiprocessing.get_context("fork").Pool(chosen.workers) as pool:
        for k, some in enumerate(pool.imap_unordered(_job, jobs)):
            records += some
            if chosen.keep and (k % 20 == 19 or k == len(jobs) - 1):
                np.save(chosen.keep, np.array(records, dtype=object), allow_pickle=True)
    by = "kind" if chosen.group == "synthetic" else "name"
    names = list(dict.fromkeys(sorted(r[by] for r in records)))
    answer = {name: summary([r for r in records if r[by] == name]) for name in names}
    answer["all"] = summary(records)
    if chosen.json:
        print(json.dumps(answer, ensure_ascii=False, indent=1))
    else:
        print(f"{'':26s}{'median error of the log-gain, %, at 1.5/2/3×':>46s}{'cover':>14s}{'point':>9s}")
        print(f"{'':26s}{'before':>23s}{'after':>23s}{'before':>8s}{'after':>8s}")
        for name, s in answer.items():
            old, new = (" / ".join(f"{100 * v:.1f}" for v in s[k]) for k in ("error_before", "error_after"))
            print(f"{name:26s}{old:>23s}{new:>23s}{s['cover_before']:8.2f}{s['cover_after']:8.2f}{s['point']:8.2f}")
    return 0 if all(s["cover_after"] >= 0.85 for s in answer.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
