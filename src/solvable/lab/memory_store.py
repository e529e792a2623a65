"""A store that forgets: what a study without a folder keeps its results in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class MemoryStore:
    """The part of a store that a study needs, in memory.

    >>> store = MemoryStore()
    >>> store.commit("a" * 64, {"test_error": np.array([0.2])}, {})
    >>> list(store.done()) == ["a" * 64], store.read("a" * 64)["test_error"]
    (True, array([0.2]))
    """

    def __init__(self) -> None:
        self._blocks: dict[str, dict[str, np.ndarray]] = {}
        self._documents: dict[str, Any] = {}
        self._commits: dict[str, object] = {}

    def documents(self) -> list[str]:
        """The names of all documents, sorted."""
        return sorted(self._documents)

    def write_document(self, name: str, document: Any) -> None:
        """Keep a document under `name`."""
        self._documents[name] = document

    def read_document(self, name: str) -> Any:
        """The document called `name`."""
        return self._documents[name]

    def commit(self, block: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Keep `arrays` as `block`; nothing is asked about its `meta` later."""
        self._blocks[block] = dict(arrays)
        self._commits[block] = object()

    def done(self) -> dict[str, object]:
        """Every committed block, and an entry that equals no entry of any other commit."""
        return dict(self._commits)

    def read(self, block: str) -> dict[str, np.ndarray]:
        """The arrays of a block."""
        return self._blocks[block]
