"""Sweeps: overhead of store, worker and launcher, cost of queries to a large run, and memory of a driver."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import solvable as sv

from .rows import RUN, Row, fresh

BLOCK_SECONDS = 10.0  # for which the overhead must be small
BURN, BLOCKS = 0.4, 12  # CPU seconds per block, and blocks of the sweep that one and two workers share
GRID = ("perceptron", "loss=square", "--over", "samples=0.2:8:400:log", "--over", "penalty=0.01:10:250:log")


def sweeps() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each = _seconds_per_block(folder)
        yield from _large_run(folder)
        yield from _overhead(folder, each)
        yield _two_workers(folder)
        yield from _driver_memory(folder)


def _stub(*words: object) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(sv.__file__).parents[1]), str(Path(__file__).parents[1])])
    command = [sys.executable, "-m", "benchmarks.stub_worker", *map(str, words)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> list[float]:
    out, _ = process.communicate(timeout=300)
    if process.returncode:
        raise RuntimeError(f"the stub worker left with code {process.returncode}")
    return [float(word) for word in out.split()]


def _seconds_per_block(folder: Path) -> float:
    blocks = 40
    _answer(_stub(folder / "quick", 0, 1, 0, blocks))
    whole, spent = _answer(_stub(folder / "quick", 0, 1, 0))
    return (whole - spent) / blocks


def _overhead(folder: Path, each: float) -> Iterator[Row]:
    _, start = fresh(*RUN, "sweep", "work", str(folder / "large"))
    parts = {
        "claim, commit and find the next": (each, BLOCK_SECONDS, f"{1000 * each:.1f} ms per block on this disk"),
        "the same with the start of a worker, ten blocks": (
            start + 10 * each, 10 * BLOCK_SECONDS, f"{start:.1f} s to start: Python, JAX, the plan, a check for damage"
        ),
    }  # fmt: skip
    for name, (ours, work, note) in parts.items():
        about = f"{name}: wall time beside blocks of {BLOCK_SECONDS:g} s"
        yield Row("sweeps", about, 100 * ours / work, most=5.0, unit="%", note=note)


def _two_workers(folder: Path) -> Row:
    idle, walls = _idle(), {}
    for number in (1, 2):
        run = folder / f"burn-{number}"
        _answer(_stub(run, 0, 1, 0, BLOCKS))
        begun = time.perf_counter()
        workers = [_stub(run, index, number, BURN) for index in range(number)]
        for worker in workers:
            _answer(worker)
        walls[number] = time.perf_counter() - begun
    busy = idle < 0.9
    return Row(
        "sweeps",
        f"two workers, {BLOCKS} blocks of {BURN} CPU s (wall)",
        walls[2],
        "one worker",
        walls[1],
        ratio_least=None if busy else 1.8,
        unit="s",
        note=f"cores {idle:.0%} idle before: " + ("they are in use, so nothing is required" if busy else "quiet"),
    )


def _idle(seconds: float = 2.0) -> float:
    """The fraction of all cores that is idle now (a load average would still include the previous rows)."""

    def read() -> tuple[int, int]:
        with open("/proc/stat") as file:
            numbers = [int(word) for word in file.readline().split()[1:]]
        return numbers[3], sum(numbers)

    try:
        (idle, all_), _ = read(), time.sleep(seconds)
        later, more = read()
    except OSError:  # not Linux
        return 0.0
    return (later - idle) / (more - all_)


def _large_run(folder: Path) -> Iterator[Row]:
    run = str(folder / "large")
    fresh(*RUN, "sweep", "run", run, *GRID, best_of=1, SOLVABLE_CACHE="0")
    floor, _ = fresh("-c", "import jax", best_of=2)
    cases = {
        "status of a finished sweep of 10⁵ cells": (("status", run), 1.0),
        "resuming a finished sweep of 10⁵ cells": (("run", run, *GRID), 2.0),
        "export of 10⁵ cells to csv": (("export", run, "--to", "csv", "--out", str(folder / "a.csv")), 5.0),
        "export of 10⁵ cells to netcdf": (("export", run, "--to", "netcdf", "--out", str(folder / "a.nc")), 5.0),
    }
    for name, (words, most) in cases.items():
        cpu, wall = fresh(*RUN, "sweep", *words)
        yield Row("sweeps", name, cpu, 'python -c "import jax"', floor, floor=True, most=most, wall=wall)


def _driver_memory(folder: Path) -> Iterator[Row]:
    peaks = {}
    for points in (100, 316, 1000):
        over = ("--over", f"samples=0.2:8:{points}:log", "--over", f"penalty=0.01:10:{points}:log")
        words = (
            "sweep",
            "run",
            str(folder / f"plan-{points}"),
            "perceptron",
            "loss=square",
            *over,
            "--slurm",
            os.devnull,
        )
        peaks[points**2] = _peak(*RUN, *words)
    small, middle, large = peaks.values()
    yield Row(
        "sweeps",
        "driver that plans 10⁶ cells",
        large,
        "driver that plans 10⁴",
        small,
        floor=True,
        most=round(1.1 * small),
        unit="MB",
        note=f"10⁵ cells: {middle:.0f} MB",
    )


def _peak(*words: str) -> float:
    """Peak resident megabytes of a new Python process."""
    path = str(Path(sv.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, *words], env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL
    )
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise RuntimeError(f"{words} left with code {process.returncode}")
    return _megabytes(usage)


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
