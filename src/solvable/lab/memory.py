"""Memory needed by a block and memory available, estimated before it runs so that it can be split in time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InvalidValue

FRACTION = 0.8  # of the free memory, for all workers of this machine together
UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}
UNLIMITED = 1 << 60  # control groups without a limit report numbers of this order


def bytes_of(text: str) -> int:
    """Parse a number of bytes.

    >>> bytes_of("4GB"), bytes_of("512 MiB"), bytes_of("1e9")
    (4000000000, 536870912, 1000000000)
    """
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*(?:e[0-9]{1,2})?)\s*((?:[kKMGT]i?)?)[bB]?\s*", text)
    number = float(found[1]) * UNITS[found[2].replace("k", "K")] if found else 0.0
    if not 1 <= number < UNLIMITED:
        raise InvalidValue(f"memory = {text!r} is not a number of bytes such as 4GB or 512MiB.")
    return int(number)


def available() -> int | None:
    """Bytes still available to this process, as reported by the machine and its control groups; None if unknown."""
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
    """Memory left in every control group (version 1 or 2) of this process and in the enclosing ones."""
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
    """The reclaimable file cache, which counts as used although the kernel frees it on demand."""
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def check_room(needs: float, what: str, least: int = 1 << 24) -> None:
    """Raise `InvalidValue` if something does not fit into the free memory; below `least` bytes nothing is checked."""
    if needs <= least:
        return
    free = available()
    if free is not None and needs > FRACTION * free:
        raise InvalidValue(f"{what} takes {needs / 1e9:.3g} GB of memory, but only {free / 1e9:.3g} GB are free.")


def budget(requested: str = "", workers: int = 1) -> int | None:
    """Memory limit of one block in bytes: as requested (or set by `SOLVABLE_MEMORY`), else a share of the free memory."""
    if text := requested or os.environ.get("SOLVABLE_MEMORY", ""):
        return bytes_of(text)
    free = available_on_device()
    if free is None:
        free = available()
    return None if free is None else int(FRACTION * free / max(1, workers))


def available_on_device() -> int | None:
    """Bytes free on JAX's accelerator; None if JAX computes on the CPU."""
    import jax

    device = jax.devices()[0]
    membership = device.memory_stats() if device.platform != "cpu" else None
    if not membership or "bytes_limit" not in membership:
        return None
    return max(0, membership["bytes_limit"] - membership.get("bytes_in_use", 0))


def needed(compiled: Any) -> int | None:
    """Memory of a running compiled program in bytes, as reported by XLA; None if XLA does not report it."""
    try:
        membership = getattr(compiled, "compiled", compiled).memory_analysis()
        parts = (membership.argument_size_in_bytes, membership.output_size_in_bytes, membership.temp_size_in_bytes)
    except Exception:  # backends that cannot report it raise different exceptions
        return None
    return int(sum(parts)) if all(isinstance(p, int) for p in parts) else None


def lanes_that_fit(lanes: int, needs: int | None, most: int | None) -> int | None:
    """The number of lanes that fit into `most` bytes if all lanes need `needs` bytes; None if all fit.

    >>> lanes_that_fit(512, 1_000_000, 300_000), lanes_that_fit(512, 1_000, 300_000)
    (153, None)
    """
    if needs is None or most is None or needs <= most or lanes <= 1:
        return None
    return max(1, lanes * most // needs)


def ran_out(problem: BaseException) -> bool:
    """Whether an exception means that memory ran out."""
    return isinstance(problem, MemoryError) or "RESOURCE_EXHAUSTED" in str(problem)
