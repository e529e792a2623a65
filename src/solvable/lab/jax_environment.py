"""Settings of our own processes (command line, workers) before JAX is imported; never applied by `import solvable`."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

CACHE_LIMIT = 2 * 1024**3


def configure() -> None:
    """Enable a persistent compilation cache, separate for each kind of processor and with a size limit.

    Diffrax's solves are cached only if Equinox reports runtime errors as NaN; we check result codes ourselves.
    `SOLVABLE_CACHE` names another folder, or disables the cache with `0`.
    """
    os.environ.setdefault("EQX_ON_ERROR", "nan")
    where = os.environ.get("SOLVABLE_CACHE", "")
    if where == "0" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = Path(where) if where else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "solvable"
    try:
        folder = base / f"programs-{_processor()}"
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home only costs compile time
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    _trim(folder)


def _processor() -> str:
    """A short name for this kind of processor, because programs compiled for another kind may not run here."""
    features = platform.machine() + platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "flags", "Features")):
                features += line
            elif not line and "flags" in features:
                break
    except OSError:
        pass
    return hashlib.sha256(features.encode()).hexdigest()[:12]


def _trim(folder: Path) -> None:
    """Delete the least recently used programs if the cache is too large."""
    try:
        files = [(f.stat().st_atime, f.stat().st_size, f) for f in folder.iterdir() if f.is_file()]
        total = sum(size for _, size, _ in files)
        for _, size, file in sorted(files, key=lambda f: f[0]):
            if total <= CACHE_LIMIT:
                break
            file.unlink(missing_ok=True)
            total -= size
    except OSError:
        pass
