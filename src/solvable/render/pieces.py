"""Finished parts of a long computation, stored so that an interrupted figure can resume."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..lab._files import write_atomically
from ..lab.compute import provenance

if TYPE_CHECKING:
    import xarray as xr

    from ..study import Study

Arrays = Mapping[str, np.ndarray]


class Pieces:
    """Named arrays in a folder; arrays from other settings, versions or devices are not reused.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Pieces(folder).get("half", {"of": 3}, lambda: {"value": np.array(1.5)})["value"]
    array(1.5)
    >>> Pieces(folder).get("half", {"of": 3}, lambda: 1 / 0)["value"]        # not computed again
    array(1.5)
    """

    def __init__(self, folder: Path | None = None, *, say: bool = False):
        """Without a folder nothing is stored; with `say` the name of each finished piece is printed on standard error."""
        self.folder, self.say = folder, say

    def get(self, name: str, settings: Any, make: Callable[[], Arrays]) -> Arrays:
        """The stored piece, or else a new one, which is then stored."""
        if self.folder is None:
            return make()
        file = self._file(self.folder, name, settings)
        if file.exists():
            with np.load(file) as kept:
                return dict(kept)
        piece = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        np.savez(data, allow_pickle=False, **dict(piece))
        write_atomically(str(file), data.getvalue())
        if self.say:
            print(f"done: {name}", file=sys.stderr, flush=True)
        return piece

    def run(self, name: str, studies: Iterable[Study]) -> list[xr.Dataset]:
        """Run studies one after the other and return their results; with a folder, finished cells are kept there."""
        found = []
        for number, study in enumerate(studies, start=1):
            own = None if self.folder is None else self.folder / f"{name}-{number}".replace(" ", "-").replace(",", "")
            if own is not None:
                own.parent.mkdir(parents=True, exist_ok=True)
            found.append(study.run(own, progress=False))
        if self.say and self.folder is not None:
            print(f"done: {name}", file=sys.stderr, flush=True)
        return found

    def has(self, name: str, settings: Any) -> bool:
        """Whether the piece is stored."""
        return self.folder is not None and self._file(self.folder, name, settings).exists()

    def _file(self, folder: Path, name: str, settings: Any) -> Path:
        facts = json.dumps([settings, provenance()], sort_keys=True, default=str)
        return folder / f"{name} {hashlib.sha256(facts.encode()).hexdigest()[:12]}.npz".replace(" ", "-")

    def clear(self) -> None:
        """Delete all pieces, once the figure is finished."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """A pool of threads, so that one computation can run while another compiles.

    After an interruption or a failure, waiting tasks are not started.
    """
    pool = ThreadPoolExecutor(8 if (os.cpu_count() or 1) > 8 else 4)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
