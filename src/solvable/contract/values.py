"""Field values in storage: as plain JSON for specifications and hashes, and as named arrays in a store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .graphs import Graph

STORED = {"float": "<f8", "int": "<i8", "bool": "|b1"}
"""The byte order and width in which arrays of each type are hashed and stored."""


def fingerprint(value: Any, type: str = "float") -> dict[str, Any]:
    """Shape and hash of an array (or of a graph's arrays), which represent it in a specification.

    >>> fingerprint(np.zeros(2))["shape"], fingerprint([1, 2], "int")["type"]
    ([2], 'int')
    """
    if type == "graph":
        return {"nodes": value.nodes, **{n: fingerprint(a, t) for n, a, t in _parts(value)}}
    array = np.ascontiguousarray(np.asarray(value, dtype=STORED[type]))
    found: dict[str, Any] = {"shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
    return found if type == "float" else found | {"type": type}


def key_words(specification: Mapping[str, Any], size: int, seed: int) -> np.ndarray:
    """Two 32-bit words hashed from the content of a cell: its random key."""
    text = json.dumps({**specification, "size": size, "seed": seed}, sort_keys=True)
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], dtype="<u4").copy()


def to_plain(value: Any, type: str, name_of: Callable[[np.ndarray], str]) -> Any:
    """A field's value as plain JSON: strings and scalars unchanged, arrays by the names under which they are stored."""
    if type == "graph":
        graph = Graph.of(value)
        return {"graph": {"nodes": graph.nodes, **{n: name_of(a) for n, a, _ in _parts(graph)}}}
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return value
    array = np.asarray(value, dtype=STORED[type])
    return float(array) if array.ndim == 0 else {"array": name_of(array)}


def from_plain(plain: Any, read: Callable[[str], np.ndarray]) -> Any:
    """The inverse of `to_plain`; `read` fetches an array by its name."""
    if isinstance(plain, Mapping) and set(plain) == {"array"}:
        return read(plain["array"])
    if isinstance(plain, Mapping) and set(plain) == {"graph"}:
        graph = plain["graph"]
        return Graph.of({"edges": read(graph["indices"]), "values": read(graph["values"]), "nodes": graph["nodes"]})
    return plain


def arrays_in(value: Any, type: str) -> Iterator[np.ndarray]:
    """The arrays that a store must keep for a value."""
    if type == "graph":
        yield from (array for _, array, _ in _parts(Graph.of(value)))
    elif np.ndim(value) > 0:
        yield np.asarray(value, dtype=STORED[type])


def _parts(graph: Graph) -> list[tuple[str, np.ndarray, str]]:
    return [
        ("indices", np.asarray(graph.indices, STORED["int"]), "int"),
        ("values", np.asarray(graph.values, STORED["float"]), "float"),
    ]
