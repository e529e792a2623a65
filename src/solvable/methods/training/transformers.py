"""A small transformer for sequences of tokens: masked (sees both sides) or causal (sees the past).

Tokens are integers 0..C−1; C is the mask. The network takes *one* sequence: `jax.vmap` it over sequences,
`eqx.filter_vmap` it over replicas. Token and position vectors are summed, then come `depth` blocks

    h ← h + Attention(LN h),    h ← h + MLP(LN h),

a last LN and a linear head to C logits at every position. Layer norms, residuals and MLPs can be left out individually:
without all three and with depth 1, one attention layer and a linear head remain.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class LayerNorm(eqx.Module):
    """Normalise each position's vector to mean 0 and variance 1, then apply learned factors and offsets."""

    scale: Float[Array, " width"]
    shift: Float[Array, " width"]

    def __init__(self, width: int, dtype: Any):
        self.scale, self.shift = jnp.ones(width, dtype), jnp.zeros(width, dtype)

    def __call__(self, hidden: Float[Array, "sites width"]) -> Float[Array, "sites width"]:
        centred = hidden - jnp.mean(hidden, -1, keepdims=True)
        normal = centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
        return normal * self.scale[None, :] + self.shift[None, :]


class Attention(eqx.Module):
    """Multi-head attention, Σ_j softmax_j(q_i·k_j/√size) v_j, without biases."""

    query: Float[Array, "heads width size"]
    key: Float[Array, "heads width size"]
    value: Float[Array, "heads width size"]
    output: Float[Array, "heads size width"]
    causal: bool = eqx.field(static=True)
    rotary: bool = eqx.field(static=True)

    def __init__(
        self, draws: Float[Array, "rows width"], heads: int, causal: bool, rotary: bool, gain: Float[Array, ""]
    ):
        width = draws.shape[1]
        three, last = draws[: 3 * width], draws[3 * width :]
        self.query, self.key, self.value = three.reshape(3, heads, width // heads, width).swapaxes(2, 3)
        self.output = gain * last.reshape(heads, width // heads, width)
        self.causal, self.rotary = causal, rotary

    def __call__(
        self, hidden: Float[Array, "sites width"]
    ) -> tuple[Float[Array, "sites width"], Float[Array, "heads sites sites"]]:
        """The attended vectors, and the map: `map[h, i, j]` is the weight of position j at position i."""
        query, key, value = (
            jnp.einsum("sw,hwk->hsk", hidden, weights) for weights in (self.query, self.key, self.value)
        )
        if self.rotary:
            query, key = rotate(query), rotate(key)
        score = jnp.einsum("hik,hjk->hij", query, key) / float(np.sqrt(query.shape[-1]))
        if self.causal:
            past = jnp.tril(jnp.ones(score.shape[1:], bool))
            score = jnp.where(past[None], score, -jnp.inf)
        taken = jax.nn.softmax(score, axis=-1)
        return jnp.einsum("hij,hjk,hkw->iw", taken, value, self.output), taken

    def at(self, hidden: Float[Array, "sites width"], here: Float[Array, " sites"]) -> Float[Array, " width"]:
        """The attended vector of one position only (`here` is one there and zero elsewhere), for non-causal maps.

        Key and value matrices act once on the contracted vectors, not on every position.
        """
        query = jnp.einsum("s,sw,hwk->hk", here, hidden, self.query)
        if self.rotary:
            key = rotate(jnp.einsum("sw,hwk->hsk", hidden, self.key))
            turned = jnp.einsum("s,hsk->hk", here, rotate(jnp.broadcast_to(query[:, None], key.shape)))
            score = jnp.einsum("hk,hjk->hj", turned, key)
        else:
            score = jnp.einsum("jw,hw->hj", hidden, jnp.einsum("hk,hwk->hw", query, self.key))
        taken = jax.nn.softmax(score / float(np.sqrt(query.shape[-1])), axis=-1)
        return jnp.einsum("hw,hwk,hkv->v", jnp.einsum("hj,jw->hw", taken, hidden), self.value, self.output)


def rotate(vectors: Float[Array, "heads sites size"]) -> Float[Array, "heads sites size"]:
    """Rotate pairs of components by angles that grow with the position (Su et al. 2021, arXiv:2104.09864).

    A product of two rotated vectors depends on their distance only, so that attention sees relative positions.

    >>> v = rotate(jnp.ones((1, 3, 4)))
    >>> [round(float(v[0, i] @ v[0, i + 1]), 6) for i in (0, 1)]
    [3.080505, 3.080505]
    """
    sites, half = vectors.shape[1], vectors.shape[2] // 2
    angle = np.arange(sites)[:, None] * 1e4 ** (-np.arange(half) / half)[None, :]
    cosine, sine = (jnp.asarray(f(angle), vectors.dtype)[None] for f in (np.cos, np.sin))
    a, b = vectors[..., :half], vectors[..., half : 2 * half]
    return jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine, vectors[..., 2 * half :]], -1)


class FeedForward(eqx.Module):
    """One hidden layer of `ratio * width` GELU units, position by position."""

    inner: Float[Array, "width hidden"]
    bias: Float[Array, " hidden"]
    outer: Float[Array, "hidden width"]
    offset: Float[Array, " width"]

    def __init__(self, draws: Float[Array, "rows width"], gain: Float[Array, ""]):
        inner, self.outer = jnp.split(draws, 2)
        self.inner = inner.T
        self.outer = gain * self.outer * float(np.sqrt(draws.shape[1] / inner.shape[0]))
        self.bias, self.offset = (
            jnp.zeros_like(draws, shape=inner.shape[0]),
            jnp.zeros_like(draws, shape=draws.shape[1]),
        )

    def __call__(self, hidden: Float[Array, "sites width"]) -> Float[Array, "sites width"]:
        return jax.nn.gelu(hidden @ self.inner + self.bias[None, :]) @ self.outer + self.offset[None, :]


class Block(eqx.Module):
    """Attention and MLP, each with its layer norm and residual, unless left out."""

    attention: Attention
    mlp: FeedForward | None
    norms: tuple[LayerNorm, LayerNorm] | None
    residual: bool = eqx.field(static=True)

    def __call__(
        self, hidden: Float[Array, "sites width"]
    ) -> tuple[Float[Array, "sites width"], Float[Array, "heads sites sites"]]:
        first, second = self.norms or (_same, _same)
        moved, taken = self.attention(first(hidden))
        hidden = hidden + moved if self.residual else moved
        if self.mlp is not None:
            moved = self.mlp(second(hidden))
            hidden = hidden + moved if self.residual else moved
        return hidden, taken

    def at(self, hidden: Float[Array, "sites width"], here: Float[Array, " sites"]) -> Float[Array, " width"]:
        """The output of the block at one position only."""
        first, second = self.norms or (_same, _same)
        one = here @ hidden
        moved = self.attention.at(first(hidden), here)
        one = one + moved if self.residual else moved
        if self.mlp is not None:
            moved = self.mlp(second(one[None, :]))[0]
            one = one + moved if self.residual else moved
        return one


def _same(hidden: Array) -> Array:
    return hidden


class Transformer(eqx.Module):
    """An encoder (`causal=False`) or a language model (`causal=True`) over `colours` tokens and `sites` positions.

    **Arguments:**
    - `colours`: number of tokens C; the token C is the mask.
    - `sites`: the longest sequence.
    - `width`, `depth`, `heads`: length of the vectors, number of blocks, heads per block (must divide the width).
    - `mlp`: hidden units of the MLP per unit of width; 0 leaves the MLP out.
    - `layer_norm`, `residual`: `False` leaves them out.
    - `positions`: `"learned"` vectors that are added to those of the tokens, `"concatenated"` ones (tokens and positions have
        half of the width each), `"rotary"` angles (relative positions), or `"none"`.

    >>> network = Transformer(5, 8, width=16, depth=2, heads=4, key=jax.random.key(0))
    >>> network(jnp.asarray([0, 1, 2, 3, 4, 0, 1, 2])).shape
    (8, 5)
    """

    tokens: Float[Array, "symbols token_width"]
    places: Float[Array, "sites place_width"] | None
    blocks: tuple[Block, ...]
    norm: LayerNorm | None
    head: Float[Array, "width colours"]
    bias: Float[Array, " colours"]

    def __init__(
        self,
        colours: int,
        sites: int,
        *,
        width: int,
        depth: int = 1,
        heads: int = 1,
        mlp: int = 4,
        layer_norm: bool = True,
        residual: bool = True,
        causal: bool = False,
        positions: str = "learned",
        dtype: Any = jnp.float32,
        key: PRNGKeyArray,
    ):
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}.")
        if positions not in ("learned", "concatenated", "rotary", "none"):
            raise ValueError(f"positions = {positions!r} is not one of 'learned', 'concatenated', 'rotary', 'none'.")
        # All weights have an axis of length `width`: one draw of rows of that length, cut into pieces, compiles fast.
        learned = positions in ("learned", "concatenated")
        pieces = [colours + 1, sites if learned else 0, colours, *depth * [4 * width, 2 * mlp * width]]
        draws = jax.random.normal(key, (sum(pieces), width), dtype) / float(np.sqrt(width))
        self.tokens, places, head, *rows = jnp.split(draws, np.cumsum(pieces)[:-1])
        self.places, self.head = places if learned else None, head.T
        if positions == "concatenated":
            self.tokens, self.places = self.tokens[:, : width // 2], places[:, width // 2 :]
        # The sum over all residual branches keeps the scale of one.
        gain = jnp.asarray(1 / np.sqrt(2 * depth) if residual else 1.0, dtype)

        def block(weights: Array, units: Array) -> Block:
            attention = Attention(weights, heads, causal, positions == "rotary", gain)
            perceptron = FeedForward(units, gain) if mlp else None
            norms = (LayerNorm(width, dtype), LayerNorm(width, dtype)) if layer_norm else None
            return Block(attention, perceptron, norms, residual)

        self.blocks = tuple(block(*pair) for pair in zip(rows[::2], rows[1::2], strict=True))
        self.norm = LayerNorm(width, dtype) if layer_norm else None
        self.bias = jnp.zeros(colours, dtype)

    def __call__(
        self, tokens: Int[Array, " sites"], masked: Bool[Array, " sites"] | None = None
    ) -> Float[Array, "sites colours"]:
        """Logits at every position of one sequence; where `masked`, the token is hidden from the network."""
        return self.with_maps(tokens, masked)[0]

    def with_maps(
        self, tokens: Int[Array, " sites"], masked: Bool[Array, " sites"] | None = None
    ) -> tuple[Float[Array, "sites colours"], Float[Array, "depth heads sites sites"]]:
        """Logits, and the attention maps of all blocks: `maps[b, h, i, j]` is the weight of j at i."""
        hidden = self._embedded(tokens, masked)
        maps = []
        for block in self.blocks:
            hidden, taken = block(hidden)
            maps.append(taken)
        hidden = hidden if self.norm is None else self.norm(hidden)
        return hidden @ self.head + self.bias[None, :], jnp.stack(maps)

    def at_hidden_site(self, tokens: Int[Array, " sites"], hidden: Bool[Array, " sites"]) -> Float[Array, " colours"]:
        """Logits at the one hidden site; the last block, head and norm are evaluated there only.

        >>> network = Transformer(5, 8, width=16, depth=2, heads=4, key=jax.random.key(0))
        >>> tokens, hidden = jnp.asarray([0, 1, 2, 3, 4, 0, 1, 2]), jnp.arange(8) == 3
        >>> bool(jnp.allclose(network.at_hidden_site(tokens, hidden), network(tokens, hidden)[3], atol=1e-6))
        True
        """
        vectors = self._embedded(tokens, hidden)
        *before, last = self.blocks
        if last.attention.causal:
            return jnp.sum(jnp.where(hidden[:, None], self(tokens, hidden), 0.0), 0)
        for block in before:
            vectors, _ = block(vectors)
        one = last.at(vectors, hidden.astype(vectors.dtype))
        one = one if self.norm is None else self.norm(one[None, :])[0]
        return one @ self.head + self.bias

    def _embedded(
        self, tokens: Int[Array, " sites"], masked: Bool[Array, " sites"] | None
    ) -> Float[Array, "sites width"]:
        tokens = tokens.astype(jnp.int32)
        if masked is not None:
            tokens = jnp.where(masked, self.mask, tokens)
        # A product with one-hot rows instead of indexing: its gradient needs no atomic sums, so runs repeat bit for bit.
        vectors = jax.nn.one_hot(tokens, self.mask + 1, dtype=self.tokens.dtype) @ self.tokens
        if self.places is None:
            return vectors
        places = self.places[: tokens.shape[0]]
        together = vectors.shape[1] == self.head.shape[0]
        return vectors + places if together else jnp.concatenate([vectors, places], axis=1)

    @property
    def mask(self) -> int:
        """The token that represents a hidden one."""
        return self.head.shape[-1]


def number_of_parameters(network: Any) -> int:
    """The number of trainable parameters of a network.

    >>> bare = dict(mlp=0, layer_norm=False, residual=False)
    >>> number_of_parameters(Transformer(5, 8, width=16, **bare, key=jax.random.key(0)))
    1333
    """
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))
