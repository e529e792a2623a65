"""Sweeps of a real model under injected faults, run by the user's commands."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from campaign import PATIENCE, Tally

from solvable.lab.status import status
from solvable.lab.store import Store

KINDS = {
    "worker killed": 8, "driver killed": 4, "block truncated": 2, "block flipped": 2, "block missing": 2, "two drivers": 2,
}  # fmt: skip

WORDS = [
    "perceptron",
    "loss=logistic",
    "samples=1.5",
    "--over",
    "penalty=0.1:10:4:log",
    "--size",
    "120",
    "--seeds",
    "256",
]
SWEEP = [sys.executable, "-m", "solvable", "sweep"]


class Real:
    """One sweep of a model, run by the user's commands."""

    def __init__(self, folder: Path, seed: int, reference: dict[str, str]):
        self.draw, self.tally, self.reference = random.Random(seed), Tally(), reference
        self.path = str(folder / "run")
        self.damaged = 0
        subprocess.run([*SWEEP, "run", self.path, *WORDS, "--slurm", os.devnull], check=True, stdout=subprocess.DEVNULL)
        self.store = Store.open(self.path)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([*SWEEP, *words], **quiet)

    def kill_after_a_commit(self, process: subprocess.Popen[bytes]) -> None:
        before, until = len(self.store.done_blocks()), time.monotonic() + PATIENCE
        while time.monotonic() < until and process.poll() is None and len(self.store.done_blocks()) == before:
            time.sleep(0.01)
        time.sleep(self.draw.uniform(0.0, 0.5))
        self.tally.ended += process.poll() is None
        process.kill()
        process.wait()

    def inject(self, kind: str) -> None:
        if kind == "worker killed":
            self.kill_after_a_commit(self.start("work", self.path))
        elif kind == "driver killed":
            self.kill_after_a_commit(self.start("run", self.path, *WORDS, "--workers", "2"))
        elif kind == "two drivers":
            for each in [self.start("run", self.path, *WORDS) for _ in range(2)]:
                each.wait(3 * PATIENCE)
        elif files := sorted(Path(self.path).glob("blocks/*/*.npz")):
            file = self.draw.choice(files)
            data = bytearray(file.read_bytes())
            if kind == "block missing":
                file.unlink()
            else:
                data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
                file.write_bytes(data if kind == "block flipped" else data[: len(data) // 2])
            self.damaged += file.stem in self.store.done_blocks()
        self.tally.faults[kind] += 1

    def finished(self) -> bool:
        """Whether everything is done, so that killing a process would test nothing."""
        return status(self.store).complete

    def judged(self) -> Tally:
        """Compare every block of the final store with the undisturbed one."""
        for _ in range(2):  # the second finds nothing to do
            self.start("work", self.path).wait(3 * PATIENCE)
        tally, found = self.tally, {b: e.sha256 for b, e in self.store.done().items()}
        tally.workers, tally.blocks, tally.cells = 2, len(self.reference), status(self.store).cells["all"]
        tally.lost = len(set(self.reference) - set(found))
        tally.wrong = sum(found.get(b) != sha for b, sha in self.reference.items() if b in found)
        tally.given_up = status(self.store).blocks["failed"]
        tally.problems = [str(p) for p in self.store.verify() if not p.leftover]
        lines = [
            json.loads(line) for f in Path(self.path, "manifests").glob("*") for line in f.read_text().splitlines()
        ]
        commits = sum(1 for line in lines if "bytes" in line)
        tally.reruns = max(0, commits - len(self.reference) - self.damaged)
        return tally


def real_campaign(folder: Path, faults: int, seed: int) -> Tally:
    """Run some rounds of a real model, each compared with one undisturbed run."""
    os.environ.setdefault("SOLVABLE_CACHE", str(folder / "programs"))
    os.environ["SOLVABLE_LEASE"] = "5"
    subprocess.run([*SWEEP, "run", str(folder / "calm"), *WORDS], check=True, stdout=subprocess.DEVNULL)
    reference = {b: e.sha256 for b, e in Store.open(folder / "calm").done().items()}
    kinds = [kind for kind, number in KINDS.items() for _ in range(number)]
    draw, total, sweep, chosen = random.Random(seed), Tally(), None, []
    while len(chosen) < faults:
        chosen += draw.sample(kinds, len(kinds))
    for number, kind in enumerate(chosen[:faults]):
        if sweep is not None and sweep.finished() and not kind.startswith("block"):
            total, sweep = total + sweep.judged(), None
        if sweep is None:
            here = folder / f"real-{number}"
            here.mkdir()
            sweep = Real(here, seed + number, reference)
        sweep.inject(kind)
    return total + sweep.judged() if sweep is not None else total
