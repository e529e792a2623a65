"""Measure how long the data of figures take, and record it beside the stored ones.

    python -m benchmarks.figure_seconds --limit 40 NAME ...

Every figure is computed again in a process of its own, as `solvable figure NAME --recompute` does, for at most `--limit`
processor seconds. Stored data stay as they are; their attribute `core_seconds` is set, which `solvable claims` prints.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from solvable.render.figures import compute, kept_in


def measured(name: str, limit: int) -> float | None:
    """Processor seconds to compute a figure's data, compilation included; None beyond the limit."""
    words = [sys.executable, "-m", "benchmarks.figure_seconds", "--alone", name]
    capped = lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))  # noqa: E731
    done = subprocess.run(words, preexec_fn=capped, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def record(name: str, seconds: float) -> None:
    """Write the seconds into the attributes of every stored part."""
    import xarray as xr

    for file in sorted(kept_in(name).glob(f"{name}.*nc")):
        with xr.open_dataset(file, engine="scipy", decode_times=False) as data:
            loaded = data.load()
        loaded.assign_attrs(core_seconds=seconds).to_netcdf(file, engine="scipy")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--limit", type=int, default=40)
    options.add_argument(
        "--alone", action="store_true", help="compute the figure in this process and print its seconds"
    )
    options.add_argument("names", nargs="+")
    given = options.parse_args()
    for name in given.names:
        if given.alone:
            from solvable.lab.jax_environment import configure

            configure()
            compute(name)
            print(round(time.process_time(), 1))
            continue
        seconds = measured(name, given.limit)
        if seconds is not None:
            record(name, seconds)
        print(name, f"{seconds} s" if seconds is not None else f"more than {given.limit} s, or failed", flush=True)


if __name__ == "__main__":
    main()
