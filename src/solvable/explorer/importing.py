"""The heavy imports, in one thread: importing NumPy and JAX fails when two threads start at once."""

from __future__ import annotations

import importlib
import threading

_lock = threading.Lock()
_done = False


def heavy_imports() -> None:
    """Import the packages that curves need; concurrent callers wait until this is done."""
    global _done
    with _lock:
        if not _done:
            importlib.import_module("solvable.explorer.theory")
            _done = True


def are_done() -> bool:
    """Whether the heavy imports are done."""
    return _done
