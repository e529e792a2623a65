"""Wait for states, not for fixed times; the limit only keeps a test from hanging on a busy machine."""

import os
import time
from pathlib import Path

LONG = 300.0
"""Seconds after which something is taken to hang."""

_HOLDING = """
import time
from pathlib import Path
from solvable.lab import compute

real, calls = compute.compute_block, []

def compute_block(model, block):
    calls.append(block)
    while len(calls) > {after} and not Path({release!r}).exists():
        time.sleep(0.02)
    return real(model, block)

compute.compute_block = compute_block
"""


def until(what, seconds=LONG):
    """Wait for something to become true, and return it."""
    end = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return value


def holding(folder: Path, *, after: int) -> tuple[str, Path]:
    """A folder for PYTHONPATH that makes every process pause during the block after the first `after` blocks.

    The process continues when the file that is returned with the folder exists.
    """
    folder.mkdir()
    release = folder / "release"
    (folder / "sitecustomize.py").write_text(_HOLDING.format(after=after, release=str(release)))
    return str(folder), release


def with_path(*folders: str) -> dict[str, str]:
    """The environment of a process that imports from these folders first."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
