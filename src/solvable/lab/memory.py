"""How much memory a block takes and how much there is: told before it runs, so that it can be split in time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InvalidValue

FRACTION = 0.8  # of what is free, for all workers of this machine together
UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}
UNLIMITED = 1 << 60  # control groups without a limit say some such number


def bytes_of(text: str) -> int:
    """A number of bytes in words.

    >>> bytes_of("4GB"), bytes_of("512 MiB"), bytes_of("1e9")
    (4000000000, 536870912, 1000000000)
    """
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*(?:e[0-9]{1,2})?)\s*((?:[kKMGT]i?)?)[bB]?\s*", text)
    number = float(found[1]) * UNITS[found[2].replace("k", "K")] if found else 0.0
    if not 1 <= number < UNLIMITED:
        raise InvalidValue(f"memory = {text!r} is not a number of bytes such as 4GB or 512MiB.")
    return int(number)


def available() -> int | None:
    """Bytes that this process can still take, as the machine and its control groups tell; None where they do not."""
    found = [*_of_machine(), *_of_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    return min(found, default=None)


def _of_machine() -> Iterator[int]:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
                return
    with suppress(OSError, ValueError, AttributeError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups(membership: Path, root: Path) -> Iterator[int]:
    """What is left in every control group that this process is in, of either version, and in those around it."""
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                base, most, used, cache = root, "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                base, cache = root / "memory", "total_inactive_file"
                most, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
            else:
                continue
            inner = base / path.strip("/")
            for folder in [inner, *inner.parents]:
                if folder.is_relative_to(base):
                    with suppress(OSError, ValueError):
                        limit = int((folder / most).read_text())
                        if limit < UNLIMITED:
                            yield max(0, limit - int((folder / used).read_text()) + _reclaimable(folder, cache))


def _reclaimable(folder: Path, name: str) -> int:
    """The file cache that the kernel gives back when asked: it counts as used, and is not."""
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def budget(asked: str = "", workers: int = 1) -> int | None:
    """Bytes that one block may take: what was asked for (or `SOLVABLE_MEMORY` says), else a share of what is free."""
    if text := asked or os.environ.get("SOLVABLE_MEMORY", ""):
        return bytes_of(text)
    free = available_on_device()
    if free is None:
        free = available()
    return None if free is None else int(FRACTION * free / max(1, workers))


def available_on_device() -> int | None:
    """Bytes free on the accelerator that JAX computes on; None when it is the processor."""
    import jax

    device = jax.devices()[0]
    membership = device.memory_stats() if device.platform != "cpu" else None
    if not membership or "bytes_limit" not in membership:
        return None
    return max(0, membership["bytes_limit"] - membership.get("bytes_in_use", 0))


def needed(compiled: Any) -> int | None:
    """Bytes that a compiled program takes while it runs, as XLA tells; None when it does not."""
    try:
        membership = getattr(compiled, "compiled", compiled).memory_analysis()
        parts = (membership.argument_size_in_bytes, membership.output_size_in_bytes, membership.temp_size_in_bytes)
    except Exception:  # backends differ in whether they can tell, and in how they say so
        return None
    return int(sum(parts)) if all(isinstance(p, int) for p in parts) else None


def lanes_that_fit(lanes: int, needs: int | None, most: int | None) -> int | None:
    """How many lanes fit into `most` bytes when all of them need `needs`; None when they all do.

    >>> lanes_that_fit(512, 1_000_000, 300_000), lanes_that_fit(512, 1_000, 300_000)
    (153, None)
    """
    if needs is None or most is None or needs <= most or lanes <= 1:
        return None
    return max(1, lanes * most // needs)


def ran_out(problem: BaseException) -> bool:
    """Whether an exception says that memory ran out."""
    return isinstance(problem, MemoryError) or "RESOURCE_EXHAUSTED" in str(problem)
