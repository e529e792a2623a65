"""A store in memory, for studies without a folder."""

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
        """Store a document under `name`."""
        self._documents[name] = document

    def read_document(self, name: str) -> Any:
        """The document called `name`."""
        return self._documents[name]

    def commit(self, block: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Store `arrays` as `block`; `meta` is ignored."""
        self._blocks[block] = dict(arrays)
        self._commits[block] = object()

    def done(self) -> dict[str, object]:
        """Every committed block with an entry that is unique to its commit."""
        return dict(self._commits)

    def read(self, block: str) -> dict[str, np.ndarray]:
        """The arrays of a block."""
        return self._blocks[block]
