"""`python -m benchmarks [GROUP ...] [--json | --markdown]`: one table of ratios; exit code 1 if a requirement is missed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys

# One thread for BLAS, set before NumPy is imported: threads that spin while waiting would count as work.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

COLUMNS = ("what", "ours", "against", "theirs", "ratio", "required", "met", "largest difference")


def main() -> int:
    from .rows import GROUPS

    about = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    about.add_argument("groups", nargs="*", metavar="GROUP", help=f"some of: {', '.join(GROUPS)} (default: all)")
    form = about.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object on standard output")
    form.add_argument("--markdown", action="store_true", help="a table for a README")
    chosen = about.parse_args()
    unknown = [name for name in chosen.groups if name not in GROUPS]
    if unknown:
        about.error(f"there is no group {unknown[0]!r}; there are {', '.join(GROUPS)}")

    rows = []
    for name in chosen.groups or GROUPS:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += GROUPS[name]()
    show = _print_json if chosen.json else _print_markdown if chosen.markdown else _print_table
    show(rows)
    return 1 if any(row.met is False for row in rows) else 0


def _machine() -> dict[str, object]:
    import jax
    import numpy
    import scipy

    versions = {m.__name__: m.__version__ for m in (jax, numpy, scipy)}
    load = round(os.getloadavg()[0], 1)
    return {"cores": os.cpu_count(), "load": load, "python": platform.python_version(), **versions}


def _header() -> str:
    m = _machine()
    return (
        f"CPU seconds of all threads (best of a few), not wall seconds, because the machine is shared (load {m['load']} on "
        f"{m['cores']} cores). Peers and floors are measured in the same run. Python {m['python']}, JAX {m['jax']}."
    )


def _cells(row) -> list[str]:
    def amount(value: float) -> str:
        if row.unit != "CPU s":
            return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        return f"{value:.4f}" if value < 0.1 else f"{value:.3g}"

    required = [f"≤ {row.most:g}"] if row.most is not None else []
    required += [f"ratio ≥ {row.ratio_least:g}"] if row.ratio_least is not None else []
    required += [f"difference ≤ {row.tolerance:g}"] if row.tolerance is not None else []
    times = "" if row.ratio is None else f"{row.ratio:,.3g}" if row.ratio < 100 else f"{row.ratio:,.0f}"
    return [
        f"{row.group}: {row.ours_is}",
        amount(row.ours)
        + ("" if row.unit == "CPU s" else f" {row.unit}")
        + (f" (wall {row.wall:.1f})" if row.wall else ""),
        row.theirs_is + (" (floor)" if row.floor else ""),
        "" if row.theirs is None else amount(row.theirs),
        times + (" × the floor" if row.floor and times else "×" if times else ""),
        ", ".join(required),
        {True: "yes", False: "NO", None: "–"}[row.met],
        "" if row.difference is None else f"{row.difference:.1e}",
    ]


def _print_json(rows) -> None:
    shown = [dataclasses.asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows]
    print(json.dumps({"machine": _machine(), "rows": shown}, indent=1, ensure_ascii=False))


def _print_markdown(rows) -> None:
    print(f"{_header()}\n")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(_cells(row)) + " |")


def _print_table(rows) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_header(), title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in ("ours", "theirs", "ratio") else "left")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"· {row.group}, {row.ours_is}: {row.note}.", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
