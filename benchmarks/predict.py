"""`solvable predict`: seconds of its theory; `python -m benchmarks.predict` compares it with fits on real tables.

The tables are those of `benchmarks.tables`: `--group developed`, `reported` or `unseen`. Each is predicted with ridge regression
(or the learners given), from 30 rows to four fifths of the table, and its fitted points are cross-validated fits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .rows import Row
from .tables import real

MEASURED = """
from solvable.cli.app import main
try:
    main()
finally:
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
"""`solvable`, and at the end its largest resident memory in kB: `getrusage` of a child also counts the parent's own."""


def predict() -> Iterator[Row]:
    """CPU seconds of the theory of ridge and logistic regression on 10⁴ rows of 200 columns, warm."""
    from solvable.tools.predict import predict as curve

    from .rows import cpu_seconds

    rng = np.random.default_rng(0)
    x = rng.normal(size=(10_000, 200)) * np.arange(1, 201) ** -0.5
    y = x @ rng.normal(size=200) + rng.normal(size=10_000)
    for name, targets in (("ridge", y), ("logistic", np.where(y > 0, 1, -1))):
        spent, _ = cpu_seconds(lambda n=name, t=targets: curve(x, t, n, penalty=10.0, fits=0).theory, best_of=2)
        yield Row("predict", f"theory of {name} regression, 10⁴ × 200, curve and best penalty, warm", spent, most=2.0)

    yield memory()


def memory(rows: int = 100_000, columns: int = 1_000) -> Row:
    """The largest resident memory of `solvable predict` on a table of 10⁵ × 10³ numbers on disk (800 MB in double precision)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.npy"
        table = np.lib.format.open_memmap(file, "w+", dtype=np.float32, shape=(rows, columns + 1))
        rng = np.random.default_rng(0)
        w = rng.normal(size=columns) * np.arange(1, columns + 1) ** -0.5
        for part in np.array_split(np.arange(rows), 20):
            x = rng.normal(size=(len(part), columns)) * np.arange(1, columns + 1) ** -0.25
            table[part[0] : part[-1] + 1] = np.column_stack([x, x @ w + 3 * rng.normal(size=len(part))])
        table.flush()
        del table
        words = ["-c", MEASURED, "predict", str(file), "--over", "rows=2000:20000:4", "--out", f"{folder}/out"]
        begun = time.perf_counter()
        ran = subprocess.run([sys.executable, *words], capture_output=True, check=True, text=True)
        wall = time.perf_counter() - begun
    most = int(ran.stdout.split()[-1]) / 1024
    return Row("predict", "memory of `solvable predict`, 10⁵ × 10³, ridge", most, unit="MB", most=2000.0, wall=wall,
               note="the table itself is mapped; the pages that are read count until they are given back")  # fmt: skip


def main() -> int:
    about = argparse.ArgumentParser(prog="python -m benchmarks.predict", description=__doc__)
    about.add_argument("--group", choices=("developed", "reported", "unseen", "fresh", "later"), default="developed")
    about.add_argument("--learner", default="ridge", help="ridge or lasso")
    about.add_argument("--repeats", type=int, default=10)
    chosen = about.parse_args()
    from solvable.errors import InvalidValue
    from solvable.tools.predict import predict as curve

    head = f"{'table':26s}{'rows':>6s}{'columns':>8s}  {'off, % (median, largest)':>26s}{'points known to, %':>20s}"
    print(head + "  Gaussian  theory")
    for name, (x, y) in real(chosen.group):
        rows = np.unique(np.rint(np.geomspace(max(30, len(y) // 20), 0.8 * len(y), 6)).astype(int))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = curve(x, y, chosen.learner, over={"rows": rows.tolist()}, repeats=chosen.repeats)
            except InvalidValue as refused:
                print(f"{name:26s}{len(y):6d}{x.shape[1]:8d}  {refused}")
                continue
        off = np.abs(found.deviation[found.names[0]])
        print(
            f"{name:26s}{len(y):6d}{x.shape[1]:8d}  {100 * np.nanmedian(off):15.1f}{100 * np.nanmax(off):11.1f}"
            f"{100 * found.known:20.1f}  {'yes' if found.gaussian else 'no':8s}  {found.names[0]}"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
