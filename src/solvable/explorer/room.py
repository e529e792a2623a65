"""Memory for compiled programs: every model leaves some ten megabytes, so that a walk over all of them must give some back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from pathlib import Path

MOST = 420 * 2**20  # bytes of this process beyond which programs are forgotten; they are still in the cache on disk
MOST_PROGRAMS = 24  # where the memory of a process cannot be read


def resident() -> int | None:
    """Bytes of memory that this process occupies; None if the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return None


def is_full(programs: int, most: int = MOST) -> bool:
    """Whether no more programs should be added to those that this process has compiled."""
    occupied = resident()
    return programs >= MOST_PROGRAMS if occupied is None else programs > 1 and occupied > most


def forget_programs() -> None:
    """Forget all compiled programs and give their memory back to the system."""
    import equinox as eqx
    import jax

    jax.clear_caches()
    eqx.clear_caches()
    gc.collect()
    give_back()


def give_back() -> None:
    """Return freed memory to the system, which the C library would keep after a compilation."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
