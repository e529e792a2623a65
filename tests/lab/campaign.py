"""Sweeps under injected faults, with a stub instead of a model and without JAX, so that processes fork quickly.

Every round plans a sweep, starts workers and drivers, and injects faults into them, the disk and the clocks. It then
compares every cell bit by bit with an undisturbed run of the same plan.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from solvable.lab import _files, _records
from solvable.lab import stored_plans as plans
from solvable.lab._archives import read_index
from solvable.lab.status import status
from solvable.lab.store import Store, StoreError, block_id
from solvable.lab.worker import Died, Worker, damaged_blocks, shares

LEASE = 2.0  # seconds; no worker of a campaign is delayed longer
WORKERS = 3
PATIENCE = 300.0  # seconds for a round to finish after the last fault
STUDY = {"stub": True}
# The faults of a round and their frequencies.
KINDS = {
    "worker killed": 12, "driver killed": 4, "disk full": 4, "block truncated": 3, "block flipped": 3, "block missing": 3,
    "two drivers": 2, "clock skewed": 3, "compaction killed": 2,
}  # fmt: skip


@dataclass
class Tally:
    """The injected faults and their consequences."""

    faults: Counter[str] = field(default_factory=Counter)
    blocks: int = 0
    cells: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    reruns: int = 0
    ended: int = 0  # workers that died for any reason
    workers: int = 0  # per round, summed
    given_up: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        bad = self.lost + self.duplicated + self.wrong + self.given_up + len(self.problems)
        return not bad and self.reruns <= self.ended + self.workers

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__))


# --- a sweep without a model: planned and computed quickly, without JAX ------------------------------------------------


def planned(path: str, number: int, seed: int) -> Store:
    """A run with a plan of `number` blocks of a stub, in four programs."""
    store = Store.create(path)
    store.write_document("study-0001", STUDY)
    draw = random.Random(seed)

    def blocks() -> Any:
        for i in range(number):
            program = {"format": 2, "kind": "stub", "variant": {"program": 4 * i // number}, "size": None, "lanes": 8}
            cells = draw.randint(2, 8)
            yield program, {"cells": cells, "controls": [[(8.0 * i + k).hex() for k in range(cells)]], "seeds": seed}

    plans.write_plan(store, plans.plan_name(STUDY), blocks())
    return store


def kernel(spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """Numbers that follow from the specification alone, one row per cell."""
    values = [float.fromhex(v) for v in spec["controls"][0]]
    words = [hashlib.sha256(f"{v} {spec['seeds']}".encode()).digest() for v in values]
    return {"x": np.array([np.frombuffer(w, "<u4") for w in words], float), "control": np.array(values)}


def slow_kernel(log: str, seconds: float, damaged: Any = ()) -> Any:
    """The kernel with a delay; it logs every call, and whether the call repairs a damaged block."""

    def compute(spec: dict[str, Any]) -> dict[str, np.ndarray]:
        with open(log, "a") as file:
            file.write("heal\n" if block_id(spec) in damaged else "compute\n")
        time.sleep(random.uniform(0.2, 1.0) * seconds)
        return kernel(spec)

    return compute


class FullDisk:
    """The `os` module on a disk that is full for a number of writes, starting from some write."""

    def __init__(self, begin: int, number: int):
        self.left, self.number = begin, number

    def __getattr__(self, name: str) -> Any:
        return self._write if name == "write" else getattr(os, name)

    def _write(self, descriptor: int, data: Any) -> int:
        self.left -= 1
        if -self.number <= self.left < 0:
            os.write(descriptor, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)


def be_a_worker(path: str, log: str, shard: tuple[int, int], full: tuple[int, int] | None, skew: float) -> int:
    """Run a worker in a forked child; return its exit code."""
    parent = os.getppid()
    random.seed(os.urandom(8))
    if full:
        _files.os = FullDisk(*full)  # type: ignore[assignment]
    if skew:
        real, now = time.time, _records.now
        time.time = lambda: real() + skew
        _records.now = lambda: now()[:5] + f"{random.randint(1, 12):02d}" + now()[7:]
    store = Store.open(path)
    plan = plans.Plan(store, plans.plan_name(STUDY))
    done = store.done_blocks()
    mine = [row for row in shares(plan.rows, shard[1])[shard[0]] if row.block in done]
    damaged = damaged_blocks(store, mine, lambda sentence: None)
    worker = Worker(
        store, plan, slow_kernel(log, 0.03, set(damaged)), shard, isolated=lambda block: be_isolated(path, log, block),
        wanted=lambda: os.getppid() == parent, lease=LEASE, pauses=(0.01, 0.02),
        damaged=damaged,
    )  # fmt: skip
    try:
        worker.work()
    except StoreError:
        return 2
    return 0


def be_isolated(path: str, log: str, block: str, compute: Any = None) -> None:
    """Compute one block in a separate process, like `sweep.Isolated`; without JAX a fork is enough."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            store = Store.open(path)
            plan = plans.Plan(store, plans.plan_name(STUDY))
            store.commit(block, (compute or slow_kernel(log, 0.03))(plan.specification(block)))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if block not in Store.open(path).done_blocks():
        raise Died(f"The worker died while computing it (signal {-code}).")


def forked(action: Any, *arguments: Any) -> int:
    """Run `action` in a forked child; return its process id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        signal.alarm(int(3 * PATIENCE))
        code = action(*arguments) or 0
    except BaseException as problem:
        with suppress(BaseException):
            print(f"child: {type(problem).__name__}: {problem}", file=sys.stderr)
    finally:
        os._exit(code)


def be_a_driver(path: str, log: str, number: int) -> int:
    """Run a process that starts workers, which stop after their block when it is gone."""
    children = [forked(be_a_worker, path, log, (i, number), None, 0.0) for i in range(number)]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


class Round:
    """One sweep of the stub and the faults injected into it."""

    def __init__(self, folder: Path, seed: int):
        self.draw, self.tally = random.Random(seed), Tally()
        self.path, self.log = str(folder / "run"), str(folder / "log")
        self.store = planned(self.path, self.draw.randint(30, 60), seed)
        self.plan = plans.Plan(self.store, plans.plan_name(STUDY))
        self.workers: set[int] = set()
        self.drivers: set[int] = set()
        self.healed = 0

    def run(self, faults: int) -> Tally:
        kinds, weights = zip(*KINDS.items(), strict=True)
        for kind in self.draw.choices(kinds, weights, k=faults):
            while len(self.workers) + len(self.drivers) < WORKERS:
                self.start_worker()
            time.sleep(self.draw.uniform(0.005, 0.06))
            self.reap()
            getattr(self, kind.replace(" ", "_"))()
            self.tally.faults[kind] += 1
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self.settled():
            self.start_worker()
            while time.monotonic() < until and (self.workers or self.drivers):
                time.sleep(0.005)
                self.reap()
        for child in self.workers | self.drivers:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return self.judged()

    def settled(self) -> bool:
        """Whether no worker is active, everything is done, and nothing is damaged."""
        done = self.store.done_blocks()
        sound = all(row.block in done and self.store.sound_bytes(row.block) is not None for row in self.plan.rows)
        return sound and not self.workers and not self.drivers

    def start_worker(self, full: tuple[int, int] | None = None, skew: float = 0.0) -> None:
        shard = (self.draw.randrange(WORKERS), WORKERS) if self.draw.random() < 0.7 else (0, 1)
        self.workers.add(forked(be_a_worker, self.path, self.log, shard, full, skew))

    def reap(self) -> None:
        for group in (self.workers, self.drivers):
            for child in list(group):
                found, code = os.waitpid(child, os.WNOHANG)
                if found:
                    group.discard(child)
                    self.tally.ended += code != 0

    def kill(self, group: set[int]) -> None:
        child = self.draw.choice(sorted(group))
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        group.discard(child)
        self.tally.ended += 1

    def worker_killed(self) -> None:
        if not self.workers:
            self.start_worker()
            time.sleep(0.02)
        self.kill(self.workers)

    def driver_killed(self) -> None:
        if not self.drivers:
            self.drivers.add(forked(be_a_driver, self.path, self.log, 2))
            time.sleep(self.draw.uniform(0.02, 0.1))
        self.kill(self.drivers)  # its workers stop on their own after their block

    def two_drivers(self) -> None:
        self.drivers |= {forked(be_a_driver, self.path, self.log, 2) for _ in range(2)}

    def disk_full(self) -> None:
        self.start_worker(full=(self.draw.randint(0, 12), self.draw.choice([1, 3, 1000])))

    def clock_skewed(self) -> None:
        """Start a worker whose clock is wrong by days, and shift the times of claims by less than the lease."""
        self.start_worker(skew=self.draw.uniform(-1e6, 1e6))
        folder = Path(self.path, "claims")
        for claim in folder.iterdir() if folder.is_dir() else ():
            with suppress(OSError):
                when = claim.stat().st_mtime + self.draw.uniform(-0.4, 0.4) * LEASE
                os.utime(claim, (when, when))

    def compaction_killed(self) -> None:
        child = forked(lambda: bool(Store.open(self.path).compact()) and 0)
        time.sleep(self.draw.uniform(0.0, 0.03))
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def block_truncated(self) -> None:
        self.damage(lambda file, data: file.write_bytes(data[: self.draw.randrange(len(data))]))

    def block_flipped(self) -> None:
        def flip(file: Path, data: bytes) -> None:
            bit = self.draw.randrange(8 * len(data))
            file.write_bytes(data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :])

        self.damage(flip)

    def block_missing(self) -> None:
        self.damage(lambda file, data: file.unlink())

    def damage(self, how: Any) -> None:
        """Damage a committed block in its file or archive; every block in that file may have to be recomputed."""
        known = set(self.store.done_blocks())
        found = [p for p in Path(self.path).glob("blocks/*/*.npz") if p.stem in known]
        found += Path(self.path).glob("archives/*.pack")
        if found:
            file = self.draw.choice(sorted(found))
            with suppress(FileNotFoundError, ValueError):
                data = file.read_bytes()
                self.healed += len(read_index(str(file), "")) if file.suffix == ".pack" else 1
                how(file, data)

    def judged(self) -> Tally:
        """Compare every cell of the final store with an undisturbed run."""
        tally, store = self.tally, Store.open(self.path)
        tally.blocks, tally.workers = len(self.plan), WORKERS
        state = status(store)
        tally.given_up = state.blocks["failed"]
        seen: Counter[float] = Counter()
        for block, spec in self.plan:
            expected = kernel(spec)
            tally.cells += spec["cells"]
            if block not in store.done():
                tally.lost += spec["cells"]
                continue
            found = store.read(block)
            seen.update(found["control"].tolist())
            same = sorted(found) == sorted(expected)
            for name in expected if same else ():
                rows = zip(found[name], expected[name], strict=True)
                tally.wrong += sum(a.tobytes() != b.tobytes() for a, b in rows)
            tally.wrong += 0 if same else spec["cells"]
        tally.duplicated = sum(number - 1 for number in seen.values())
        calls = Counter(Path(self.log).read_text().split())
        tally.reruns = max(0, calls["compute"] - len(self.plan)) + max(0, calls["heal"] - self.healed)
        store.clean_copies()  # removes damaged archives that are no longer needed
        tally.problems = [str(p) for p in store.verify() if not p.leftover]
        if tally.reruns > tally.ended + tally.workers:
            tally.problems.append(f"{tally.reruns} blocks were computed again, and {tally.ended} workers ended")
        return tally


# --- verify ------------------------------------------------------------------------------------------------------------


def damage_everything(folder: Path, tries: int, seed: int) -> tuple[int, int]:
    """Count how many of `tries` single damages to a run (flipped bit, deletion, truncation of any file) `verify` finds."""
    draw = random.Random(seed)
    store = planned(str(folder / "run"), 12, seed)
    plan = plans.Plan(store, plans.plan_name(STUDY))
    for number, (block, spec) in enumerate(plan):
        if number == 8:
            store.compact()  # eight blocks in an archive, four in files
        store.commit(block, kernel(spec), {"number": number})
    before = {str(p) for p in store.verify()}
    files = sorted(p for p in Path(store.path).rglob("*") if p.is_file())
    found = 0
    for trial in range(tries):
        file = draw.choice(files)
        whole = file.read_bytes()
        kind = ("flip", "flip", "truncate", "delete")[trial % 4]
        if kind == "delete":
            file.unlink()
        elif kind == "truncate":
            file.write_bytes(whole[: draw.randrange(len(whole))])
        else:
            bit = draw.randrange(8 * len(whole))
            file.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        found += bool({str(p) for p in store.verify()} - before)
        file.write_bytes(whole)
    return found, tries


def stub_campaign(folder: Path, faults: int, seed: int, per_round: int = 20) -> Tally:
    """Many rounds of the stub."""
    total, number = Tally(), 0
    while sum(total.faults.values()) < faults:
        number += 1
        here = folder / f"round-{number}"
        here.mkdir()
        total += Round(here, seed + number).run(min(per_round, faults - sum(total.faults.values())))
        shutil.rmtree(here)
    return total


# --- a small file system that is actually full -------------------------------------------------------------------------


def full_file_system(folder: Path, seed: int) -> str:
    """Run a sweep on a file system of a few hundred kilobytes, which is enlarged later; return a description."""
    small = folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small], capture_output=True).returncode:
        return "not tried: only root can mount one"
    try:
        store = planned(str(small / "run"), 60, seed)
        log = str(folder / "small-log")
        codes = [_code(forked(be_a_worker, store.path, log, (0, 1), None, 0.0)) for _ in range(2)]
        before = len(store.done_blocks())
        if codes != [2, 2] or not before:
            return f"WRONG: the workers left with codes {codes} and {before} blocks done"
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
        codes = [_code(forked(be_a_worker, store.path, log, (0, 1), None, 0.0))]
        plan = plans.Plan(store, plans.plan_name(STUDY))
        wrong = [b for b, spec in plan if _bytes(store.read(b)) != _bytes(kernel(spec))]
        wrong += [str(p) for p in store.verify() if not p.leftover]
        if wrong or codes != [0]:
            return f"WRONG: {wrong[:3]}, codes {codes}"
        return f"workers stopped with code 2 at {before} of 60 blocks, and finished when there was room"
    finally:
        subprocess.run(["umount", small], capture_output=True)


def _code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _bytes(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}
