"""The heavy imports, by one thread: NumPy and JAX fail to be imported when two threads begin at once."""

from __future__ import annotations

import importlib
import threading

_lock = threading.Lock()
_done = False


def heavy_imports() -> None:
    """Import what curves need; whoever comes meanwhile waits until it is there."""
    global _done
    with _lock:
        if not _done:
            importlib.import_module("solvable.explorer.theory")
            _done = True


def are_done() -> bool:
    """Whether nobody has to wait for them any more."""
    return _done
