"""A fast objective for dense pseudo-likelihood: triangular couplings, chunked sequences, sums of selected rows.

On a CPU, one-hot products are sums of rows (a site's colour selects one), a block of sites at a time so that the table
stays in cache; elsewhere they are matrix products. `pseudolikelihood` fits with it and has the same index order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..data.parts import equal_parts, parts_of
from .couplings import one_hot, product

LARGEST_CHUNK = 1 << 26  # bytes of one-hot sequences at a time; logits and residuals take as much each
CACHED = 1 << 23  # bytes of the table of couplings with random access to rows


class Triangle(NamedTuple):
    """Symmetric couplings without their mirror image, in two squares of half the sites each.

    `across[i, a, j, b]` = W[i, a, half + j, b]. `within` holds W[i, a, j, b] above its diagonal of blocks and, below it,
    W[half + i, a, half + j, b]. An odd number of sites is padded with one site whose entries are zero.
    """

    within: Float[Array, "half_colours half_colours"]
    across: Float[Array, "half_colours half_colours"]


class Packed(NamedTuple):
    """Parameters of a dense fit."""

    fields: Float[Array, "sites colours"]
    pairs: Triangle


def pack(couplings: Float[Array, "sites colours sites colours"]) -> Triangle:
    """Keep each pair of sites once."""
    sites, colours = couplings.shape[:2]
    half = (sites + 1) // 2
    room = 2 * half - sites
    table = jnp.pad(couplings, ((0, room), (0, 0), (0, room), (0, 0))).reshape(2 * half * colours, -1)
    size = half * colours
    upper, lower = triangles(size, colours)
    within = jnp.where(upper, table[:size, :size], 0.0) + jnp.where(lower, table[size:, size:], 0.0)
    return Triangle(within, table[:size, size:])


def unpack(pairs: Triangle, sites: int, colours: int) -> Float[Array, "sites colours sites colours"]:
    """The couplings W[i, a, j, b], both orders of each pair.

    >>> w = jnp.arange(36.0).reshape(3, 2, 3, 2) * (1 - jnp.eye(3))[:, None, :, None]
    >>> w = w + w.transpose(2, 3, 0, 1)
    >>> bool(jnp.all(unpack(pack(w), 3, 2) == w))
    True
    """
    half = len(pairs.within) // colours
    return _table(pairs, colours).reshape(2 * half, colours, 2 * half, colours)[:sites, :, :sites]


def triangles(size: int, colours: int) -> tuple[Bool[Array, "size size"], Bool[Array, "size size"]]:
    """Whether an entry lies above, and below, the diagonal of blocks."""
    site = jnp.arange(size) // colours
    return site[:, None] < site[None, :], site[:, None] > site[None, :]


def _table(pairs: Triangle, colours: int) -> Float[Array, "size size"]:
    """The symmetric matrix of all couplings."""
    upper, lower = triangles(len(pairs.within), colours)
    first, second = jnp.where(upper, pairs.within, 0.0), jnp.where(lower, pairs.within, 0.0)
    return jnp.block([[first + first.T, pairs.across], [pairs.across.T, second + second.T]])


class Members(NamedTuple):
    """The sequences with each colour: `rows[v]` are sequences with the colour `of[v]` (counted over all sites).

    Rows are padded with the number of sequences, which is not a valid index. A colour with many sequences has several rows.
    """

    rows: Int[Array, "lists length"]
    of: Int[Array, " lists"]


class DenseObjective(eqx.Module):
    """The penalised negative log pseudo-likelihood of dense couplings: value and gradient.

    Logits are the product of the one-hot sequences with the table of couplings, the gradient is their product with the
    residuals softmax − one-hot. Accelerators multiply matrices, a chunk of sequences at a time. CPUs add the few rows
    that a one-hot matrix selects (`members` lists them for the gradient), a block of sites at a time: fewer operations by
    a factor of the number of colours, from tables that fit in cache.
    """

    sequences: Int[Array, "chunks rows sites"]
    weights: Float[Array, "chunks rows"]
    penalty: Float[Array, ""]
    fields_penalty: Float[Array, ""]
    colours: int = eqx.field(static=True)
    members: Members | None = None

    def __call__(self, packed: Packed) -> tuple[Float[Array, ""], Packed]:
        value, fields, pairs = self._sums(packed, curved=False)
        value = value + 0.5 * self.penalty * squares(packed.pairs) + 0.5 * self.fields_penalty * squares(packed.fields)
        pairs = Triangle(
            pairs.within + self.penalty * packed.pairs.within, pairs.across + self.penalty * packed.pairs.across
        )
        return value, Packed(fields + self.fields_penalty * packed.fields, pairs)

    def curvatures(self, packed: Packed) -> Packed:
        """Diagonal of the Hessian: the gradient's sums with p(1 − p) instead of p − one-hot."""
        _, fields, pairs = self._sums(packed, curved=True)
        least = 1e-6 * jnp.sum(self.weights)  # avoid division by zero for colours that never occur
        pairs = Triangle(pairs.within + self.penalty + least, pairs.across + self.penalty + least)
        return Packed(fields + self.fields_penalty + least, pairs)

    def _sums(self, packed: Packed, curved: bool) -> tuple[Float[Array, ""], Float[Array, "sites colours"], Triangle]:
        """Σ over sequences of the costs and their derivatives by fields and couplings (second derivatives if `curved`)."""
        fields, pairs = packed
        (sites, colours), size = fields.shape, len(pairs.within)
        places = 2 * size // colours  # sites, padded to an even number
        h = jnp.pad(fields, ((0, places - sites), (0, 0)))
        sum_up = self._by_chunks if self.members is None else self._by_sites
        value, g, g_fields = sum_up(_table(pairs, colours), h, sites, curved)
        upper, lower = triangles(size, colours)
        first, second = g[:size, :size], g[size:, size:]
        within = jnp.where(upper, first + first.T, 0.0) + jnp.where(lower, second + second.T, 0.0)
        return value, g_fields[:sites], Triangle(within, g[:size, size:] + g[size:, :size].T)

    def _by_chunks(self, table: Array, h: Array, sites: int, curved: bool) -> tuple[Array, Array, Array]:
        places, colours = h.shape
        exists = jnp.arange(places) < sites

        def add(sums, chunk):
            value, g_pairs, g_fields = sums
            sequences, weights = chunk
            sequences = jnp.pad(sequences, ((0, 0), (0, places - sites)), constant_values=-1)
            x = one_hot(sequences, colours, h.dtype)
            flat = x.reshape(-1, places * colours)
            z = product(flat, table).reshape(x.shape) + h[None]
            costs, r = _costs_and_residuals(z, x, curved)
            r = jnp.where(exists[None, :, None], weights[:, None, None] * r, 0.0)
            value = value + weights @ jnp.sum(jnp.where(exists[None], costs, 0.0), axis=1)
            return (value, g_pairs + product(flat.T, r.reshape(flat.shape)), g_fields + jnp.sum(r, axis=0)), None

        sums = (jnp.zeros((), h.dtype), jnp.zeros_like(table), jnp.zeros_like(h))
        if len(self.sequences) == 1:
            return add(sums, (self.sequences[0], self.weights[0]))[0]
        return jax.lax.scan(add, sums, (self.sequences, self.weights))[0]

    def _by_sites(self, table: Array, h: Array, sites: int, curved: bool) -> tuple[Array, Array, Array]:
        members = self.members
        assert members is not None
        (places, colours), itemsize = h.shape, h.dtype.itemsize
        sequences = self.sequences.reshape(-1, sites).astype(jnp.int32)
        weights = self.weights.reshape(-1)
        # The columns of a block of sites: those of the table fit in cache, those of the sequences are bounded like a chunk.
        most = min(CACHED // (places * colours), LARGEST_CHUNK // (2 * len(sequences))) // (colours * itemsize)
        some = max(1, min(places, most))
        picked = sequences + colours * jnp.arange(sites, dtype=jnp.int32)[None, :]

        def add(sums, block):
            value, g_pairs, g_fields = sums
            begin = jnp.minimum(
                block * some, places - some
            )  # the last block begins early and skips what is already done
            here = begin + jnp.arange(some)
            counts = (here >= block * some) & (here < sites)
            columns = jax.lax.dynamic_slice_in_dim(table, begin * colours, some * colours, axis=1)
            own = jax.lax.dynamic_slice_in_dim(h, begin, some)
            z = _sum_of_rows(columns, picked).reshape(-1, some, colours) + own[None]
            x = one_hot(jnp.take(sequences, here, axis=1, mode="clip"), colours, h.dtype)
            costs, r = _costs_and_residuals(z, x, curved)
            r = jnp.where(counts[None, :, None], weights[:, None, None] * r, 0.0)
            value = value + weights @ jnp.sum(jnp.where(counts[None], costs, 0.0), axis=1)
            g_fields = _add_slice(g_fields, jnp.sum(r, axis=0), begin, axis=0)
            flat = jnp.pad(r.reshape(len(sequences), -1), ((0, 1), (0, 0)))  # the sequence that pads lists
            lists = _sum_of_rows(flat, members.rows)
            found = jax.ops.segment_sum(lists, members.of, len(table), indices_are_sorted=True)
            return (value, _add_slice(g_pairs, found, begin * colours, axis=1), g_fields), None

        sums = (jnp.zeros((), h.dtype), jnp.zeros_like(table), jnp.zeros_like(h))
        return jax.lax.scan(add, sums, jnp.arange(-(-places // some)))[0]


def _costs_and_residuals(
    z: Float[Array, "rows sites colours"], x: Float[Array, "rows sites colours"], curved: bool
) -> tuple[Float[Array, "rows sites"], Float[Array, "rows sites colours"]]:
    """Cross-entropies of logits z at one-hot colours x, and their slopes p − x or curvatures p(1 − p)."""
    z = z - jnp.max(z, axis=2, keepdims=True)
    e = jnp.exp(z)
    norm = jnp.sum(e, axis=2, keepdims=True)
    p = e / norm
    return jnp.log(norm[..., 0]) - jnp.sum(x * z, axis=2), p * (1 - p) if curved else p - x


def _sum_of_rows(table: Float[Array, "n k"], picked: Int[Array, "m number"], unroll: int = 10) -> Float[Array, "m k"]:
    """Σ_t table[picked[:, t]]: the product with a sparse matrix of ones."""
    number = picked.shape[1]

    def add(some: Any, total: Array) -> Array:
        for t in some:
            total = total + table.at[jax.lax.dynamic_index_in_dim(picked, t, 1, False)].get(mode="promise_in_bounds")
        return total

    zero = jnp.zeros((len(picked), table.shape[1]), table.dtype)
    rounds = number // unroll
    total = jax.lax.fori_loop(0, rounds, lambda k, total: add([k * unroll + u for u in range(unroll)], total), zero)
    return add(range(rounds * unroll, number), total)


def _add_slice(to: Array, what: Array, begin: Array, axis: int) -> Array:
    now = jax.lax.dynamic_slice_in_dim(to, begin, what.shape[axis], axis=axis)
    return jax.lax.dynamic_update_slice_in_dim(to, now + what, begin, axis=axis)


def members_of(sequences: np.ndarray, places: int, colours: int) -> Members:
    """Lists of equal length, at most 64, of the sequences with each colour at each site.

    There are as many lists as this number of sequences can need, the last ones empty: the shape does not depend on the
    content of the sequences, so that fits to equally many share one program.

    >>> members_of(np.asarray([[0, 1], [1, 1], [0, 1]]), 2, 2).of.tolist()
    [0, 1, 3, 3]
    """
    number, sites = sequences.shape
    longest = int(min(64, 2 ** np.ceil(np.log2(max(8, number / colours)))))
    at = (sequences.astype(np.int64) + colours * np.arange(sites)).T.reshape(-1)  # site by site
    order = np.argsort(at, kind="stable")
    counts = np.bincount(at, minlength=places * colours)
    lists = -(-counts // longest)
    nth = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)  # of its colour
    rows = np.full((sites * (number // longest + colours), longest), number, np.int32)
    rows[np.repeat(np.cumsum(lists) - lists, counts) + nth // longest, nth % longest] = order % number
    of = np.full(len(rows), len(counts) - 1, np.int32)
    of[: lists.sum()] = np.repeat(np.arange(len(counts), dtype=np.int32), lists)
    return Members(jnp.asarray(rows), jnp.asarray(of))


def chunked(
    sequences: np.ndarray, weights: np.ndarray, colours: int, dtype: Any, rows: int | None
) -> tuple[Int[Array, "chunks rows sites"], Float[Array, "chunks rows"]]:
    """Chunks of equal length; the padding of the last one has weight zero."""
    number, sites = sequences.shape
    most = rows or max(1, LARGEST_CHUNK // (sites * colours * jnp.dtype(dtype).itemsize))
    chunks, kind = parts_of(number, most), np.int8 if colours <= 127 else np.int32
    filled, heavy = equal_parts(sequences.astype(kind), chunks), equal_parts(weights.astype(dtype), chunks)
    return jnp.asarray(filled), jnp.asarray(heavy)


def squares(tree: Any) -> Float[Array, ""]:
    """Σ x² over all arrays, row by row, so that long sums in single precision lose little."""
    return jnp.sum(jnp.stack([jnp.sum(jnp.sum(a**2, axis=-1)) for a in jax.tree.leaves(tree)]))
