"""Graphs as data: an edge list with values, in JAX's types."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import InvalidValue


class Graph(eqx.Module):
    """An undirected graph without loops: `indices[e] = (i, j)` with i < j, each edge once, sorted, and `values[e]`.

    Neighbourhoods may differ in size: programs work on the edges (`jax.ops.segment_sum`).

    >>> g = Graph.of([[1, 2], [0], [0]])                  # neighbour lists
    >>> g.nodes, g.indices.tolist(), g.values.tolist()
    (3, [[0, 1], [0, 2]], [1.0, 1.0])
    """

    indices: Int[Array, "edges 2"]
    values: Float[Array, " edges"]
    nodes: int = eqx.field(static=True)

    @classmethod
    def of(cls, value: Any) -> Graph:
        """A graph from a graph, neighbour lists, a symmetric matrix (dense or sparse), or a dict of edges and values.

        >>> Graph.of(np.array([[0.0, 2.0], [2.0, 0.0]])).values.tolist()
        [2.0]
        >>> Graph.of({"edges": [[1, 0]], "nodes": 4}).indices.tolist()
        [[0, 1]]
        """
        if isinstance(value, Graph):
            return value
        if isinstance(value, dict):
            return cls._of_edges(value)
        if hasattr(value, "tocoo"):  # SciPy's sparse matrices
            sparse = value.tocoo()
            return cls._of_matrix_entries(
                np.asarray(sparse.row), np.asarray(sparse.col), np.asarray(sparse.data), sparse.shape
            )
        nested = isinstance(value, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in value)
        if nested and {len(row) for row in value} != {
            len(value)
        }:  # n neighbours of n nodes would include the node itself
            return cls._of_neighbours(value)
        array = np.asarray(value)
        if array.ndim != 2 or array.shape[0] != array.shape[1] or array.dtype.kind not in "biuf":
            raise InvalidValue(
                "is not a graph: give neighbour lists, a symmetric matrix, or edges with values and nodes."
            )
        rows, columns = np.nonzero(array)
        return cls._of_matrix_entries(rows, columns, array[rows, columns], array.shape)

    @classmethod
    def _of_edges(cls, value: dict[str, Any]) -> Graph:
        unknown = set(value) - {"edges", "values", "nodes"}
        if unknown or "edges" not in value:
            raise InvalidValue("is not a graph: give an object with edges and optionally values and nodes.")
        edges = np.asarray(value["edges"])
        edges = edges.reshape(-1, 2) if edges.size == 0 else edges
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iuf" or np.any(np.mod(edges, 1) != 0):
            raise InvalidValue("has edges that are not pairs of whole numbers.")
        least = int(edges.max(initial=-1)) + 1
        nodes = int(value.get("nodes", least))
        weights = np.asarray(value.get("values", np.ones(len(edges))), float)
        if weights.shape != (len(edges),):
            raise InvalidValue(f"has {weights.size} values for {len(edges)} edges.")
        return cls._build(edges.astype(int), weights, nodes)

    @classmethod
    def _of_neighbours(cls, rows: Any) -> Graph:
        pairs = [(i, j) for i, row in enumerate(rows) for j in row]
        if any(isinstance(j, bool) or not isinstance(j, (int, np.integer)) for _, j in pairs):
            raise InvalidValue("has neighbours that are not whole numbers.")
        if {(j, i) for i, j in pairs} != set(pairs):
            raise InvalidValue("is not undirected: a node is missing from the list of one of its neighbours.")
        edges = np.array([p for p in pairs if p[0] <= p[1]], int).reshape(-1, 2)
        return cls._build(edges, np.ones(len(edges)), len(rows))

    @classmethod
    def _of_matrix_entries(cls, rows: np.ndarray, columns: np.ndarray, data: np.ndarray, shape: Any) -> Graph:
        known = {(int(i), int(j)): float(v) for i, j, v in zip(rows, columns, data, strict=True) if v != 0}
        if shape[0] != shape[1] or any(known.get((j, i)) != v for (i, j), v in known.items()):
            raise InvalidValue("is not a symmetric matrix.")
        upper = {pair: v for pair, v in known.items() if pair[0] <= pair[1]}
        return cls._build(
            np.array(list(upper), int).reshape(-1, 2), np.array(list(upper.values()), float), int(shape[0])
        )

    @classmethod
    def _build(cls, edges: np.ndarray, values: np.ndarray, nodes: int) -> Graph:
        edges = np.sort(edges, axis=1)
        if np.any(edges[:, 0] == edges[:, 1]):
            raise InvalidValue("has a loop: an edge from a node to itself.")
        if edges.size and not (edges.min() >= 0 and edges.max() < nodes):
            raise InvalidValue(f"names a node outside [0, {nodes - 1}].")
        if not np.isfinite(values).all():
            raise InvalidValue("has a value that is not finite.")
        order = np.lexsort((edges[:, 1], edges[:, 0]))
        edges, values = edges[order], values[order]
        if len(edges) > 1 and np.any(np.all(edges[1:] == edges[:-1], axis=1)):
            raise InvalidValue("has a repeated edge.")
        return cls(jnp.asarray(edges, jnp.int32).reshape(-1, 2), jnp.asarray(values, float), nodes)

    def __repr__(self) -> str:
        return f"Graph({self.nodes} nodes, {self.indices.shape[0]} edges)"
