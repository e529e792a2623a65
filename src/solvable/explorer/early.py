"""Answers kept on disk, beside the compiled programs: a first curve is shown before JAX is imported or a program is loaded.

They are named by everything they depend on: our sources and data, the versions of JAX and Python, the kind of processor, flags.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..models import LISTINGS

MOST = 256  # answers
MOST_BYTES = 2**20  # of one answer
FLAGS = ("XLA_FLAGS", "JAX_", "SOLVABLE_ENABLE_X64", "EQX_")


class Early:
    """The answers of earlier servers, in a folder; nothing is kept if there is none."""

    def __init__(self, folder: Path | None):
        self._folder = folder

    def read(self, kind: str, question: Any) -> dict[str, Any] | None:
        """The answer to a question that was asked before, of the same source."""
        if self._folder is None:
            return None
        try:
            text = (self._folder / _name(kind, question)).read_text(encoding="utf-8")
            found = json.loads(text) if len(text) <= MOST_BYTES else None
        except (OSError, ValueError, RecursionError, TypeError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, kind: str, question: Any, answer: dict[str, Any], model: str) -> None:
        """Keep an answer about one of our own models; those of other packages may change without notice."""
        if self._folder is None or all(line.id != model for line in LISTINGS):
            return
        text = json.dumps(answer, allow_nan=False)
        if len(text) > MOST_BYTES:
            return
        with contextlib.suppress(OSError, TypeError):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._folder / _name(kind, question)
            part = file.with_suffix(f".{os.getpid()}")
            part.write_text(text, encoding="utf-8")
            part.replace(file)
            kept = sorted(self._folder.glob("*.json"), key=lambda f: f.stat().st_mtime)
            for old in kept[: max(0, len(kept) - MOST)]:
                old.unlink(missing_ok=True)


def _name(kind: str, question: Any) -> str:
    asked = json.dumps([stamp(), kind, question], sort_keys=True)
    return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"


def folder() -> Path | None:
    """Where answers are kept; None without a cache of compiled programs."""
    programs = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return Path(programs) / "answers" if programs else None


@lru_cache(maxsize=1)
def stamp() -> str:
    """A name for everything that an answer depends on besides its question."""
    home = Path(__file__).parents[1]
    files = sorted(f for f in home.rglob("*") if f.suffix in (".py", ".nc"))  # claims rest on data
    parts: list[Any] = [[str(f.relative_to(home)), (s := f.stat()).st_size, s.st_mtime_ns] for f in files]
    parts += [sorted((n, v) for n, v in os.environ.items() if n.startswith(FLAGS) and n != "JAX_COMPILATION_CACHE_DIR")]
    parts += [platform.python_version(), platform.machine()]
    for name in ("jax", "jaxlib", "numpy", "equinox", "diffrax", "optimistix"):
        with contextlib.suppress(PackageNotFoundError):
            parts.append([name, version(name)])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
