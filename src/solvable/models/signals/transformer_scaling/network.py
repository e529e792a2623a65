"""A small GPT, and `parametrise`: initial scales, multipliers and an AdamW whose settings follow width and depth.

The network is pre-normalised with learned positions and tied embeddings,

    x ← x + c Attention(LN x),    x ← x + c MLP(LN x),    logits = o · LN(x) Eᵀ,

where c and o are set by a rule of `_parametrisations`, as is the power of the head size that multiplies attention logits. The
weights of all blocks are stacked, and the blocks are applied by a scan: the time to compile does not depend on the depth.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from solvable.errors import InvalidValue

from .._parametrisations import GROUPS, Group, Rule, multipliers, rule_named

MEMORY = (0.9, 0.95)
"""AdamW's β₁ and β₂."""
CLIP = 1.0
"""The largest gradient norm."""


class Forward(NamedTuple):
    """What multiplies the branches of all blocks, the logits, and, as a power of the head size, attention logits."""

    residual: Any = 1.0
    output: Any = 1.0
    attention: Any = -0.5


class Blocks(eqx.Module):
    """Weights of all blocks, stacked along the first axis."""

    query: Float[Array, "depth width width"]
    key: Float[Array, "depth width width"]
    value: Float[Array, "depth width width"]
    joined: Float[Array, "depth width width"]
    inner: Float[Array, "depth width hidden"]
    outer: Float[Array, "depth hidden width"]
    inner_bias: Float[Array, "depth hidden"]
    outer_bias: Float[Array, "depth width"]
    scales: Float[Array, "depth 2 width"]
    shifts: Float[Array, "depth 2 width"]


class GPT(eqx.Module):
    """A causal transformer over `tokens` letters and sequences of at most `context` of them.

    >>> network = GPT.draw(5, 8, width=16, depth=2, heads=4, key=jax.random.key(0))
    >>> network, _ = parametrise(network, "completep", base_width=16, base_depth=2, rate=1e-3)
    >>> network(jnp.asarray([0, 1, 2, 3])).shape
    (4, 5)
    """

    tokens: Float[Array, "tokens width"]
    places: Float[Array, "context width"]
    blocks: Blocks
    scale: Float[Array, " width"]
    shift: Float[Array, " width"]
    heads: int = eqx.field(static=True)
    forward: Forward = eqx.field(static=True, default=Forward())

    @classmethod
    def draw(
        cls,
        tokens: int,
        context: int,
        *,
        width: int,
        depth: int,
        heads: int,
        key: PRNGKeyArray,
        dtype: Any = jnp.float32,
    ) -> GPT:
        """A network with matrices from N(0, 1), without biases; `parametrise` gives it its scale."""
        if width % heads:
            raise InvalidValue(f"heads = {heads} do not divide width = {width}.")
        # All matrices have an axis of length `width`: one draw of rows, cut into pieces, compiles fast.
        draws = jax.random.normal(key, (tokens + context + 12 * depth * width, width), dtype)
        letters, places, rows = jnp.split(draws, [tokens, tokens + context])
        square = rows[: 4 * depth * width].reshape(4, depth, width, width)
        wide = rows[4 * depth * width :].reshape(2, depth, 4 * width, width)
        ones, zeros = jnp.ones((depth, 2, width), dtype), jnp.zeros((depth, 2, width), dtype)
        blocks = Blocks(
            query=square[0],
            key=square[1],
            value=square[2],
            joined=square[3],
            inner=wide[0].swapaxes(1, 2),
            outer=wide[1],
            inner_bias=jnp.zeros((depth, 4 * width), dtype),
            outer_bias=zeros[:, 0],
            scales=ones,
            shifts=zeros,
        )
        return cls(letters, places, blocks, ones[0, 0], zeros[0, 0], heads)

    def __call__(self, tokens: Int[Array, " sites"]) -> Float[Array, "sites tokens"]:
        """Logits of the next token at every position of one sequence."""
        return self.with_stream(tokens)[0]

    def with_stream(
        self, tokens: Int[Array, " sites"], forward: Forward | None = None
    ) -> tuple[Float[Array, "sites tokens"], Float[Array, "layers sites width"]]:
        """Logits, and the residual stream before the first and after every block.

        `forward` replaces the network's own multipliers, by arrays if you like.
        """
        by = self.forward if forward is None else forward
        # A product with one-hot rows instead of indexing: its gradient needs no atomic sums, so runs repeat bit for bit.
        one_hot = jax.nn.one_hot(tokens, self.tokens.shape[0], dtype=self.tokens.dtype)
        start = one_hot @ self.tokens + self.places[: tokens.shape[0]]

        def block(x: Array, weights: Blocks) -> tuple[Array, Array]:
            x = x + by.residual * self._attend(_normal(x, weights.scales[0], weights.shifts[0]), weights, by.attention)
            hidden = _normal(x, weights.scales[1], weights.shifts[1]) @ weights.inner + weights.inner_bias[None, :]
            x = x + by.residual * (jax.nn.gelu(hidden) @ weights.outer + weights.outer_bias[None, :])
            return x, x

        last, stream = jax.lax.scan(block, start, self.blocks)
        logits = by.output * _normal(last, self.scale, self.shift) @ self.tokens.T
        return logits, jnp.concatenate([start[None], stream])

    def _attend(self, x: Array, weights: Blocks, power: Any) -> Array:
        sites, width = x.shape
        size = width // self.heads
        query, key, value = (
            (x @ w).reshape(sites, self.heads, size) for w in (weights.query, weights.key, weights.value)
        )
        score = jnp.einsum("ihk,jhk->hij", query, key) * size**power
        past = jnp.tril(jnp.ones((sites, sites), bool))[None]
        taken = jax.nn.softmax(jnp.where(past, score, -jnp.inf), axis=-1)
        return jnp.einsum("hij,jhk->ihk", taken, value).reshape(sites, width) @ weights.joined


def _normal(x: Array, scale: Array, shift: Array) -> Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    normal = centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
    return normal * scale[None, :] + shift[None, :]


GROUP_OF: dict[str, Group] = {
    "tokens": "embedding",
    "places": "embedding",
    **dict.fromkeys(("query", "key", "value", "inner"), "hidden weights"),
    **dict.fromkeys(("joined", "outer"), "output projections"),
    **dict.fromkeys(("inner_bias", "outer_bias"), "hidden biases"),
    **dict.fromkeys(("scales", "shifts"), "hidden norms"),
    **dict.fromkeys(("scale", "shift"), "final norm"),
}
"""The group of every array of a network, by its name."""


def groups_of(network: PyTree) -> PyTree:
    """The group of every array of a network, in a tree of the same shape."""
    return jax.tree_util.tree_map_with_path(lambda path, _: GROUP_OF[path[-1].name], network)


class AtSize(NamedTuple):
    """What a rule sets at one width and depth: factors of variance, rate, ε and decay by group, and the multipliers.

    The numbers may be arrays, so that one program trains networks under many rules; None stands for what a group does not have.
    """

    groups: dict[str, dict[str, Any]]
    forward: Forward


def at_size(rule: Rule | str, *, width: int, depth: int, base_width: int, base_depth: int) -> AtSize:
    """A rule at one width and depth.

    >>> found = at_size("completep", width=64, depth=8, base_width=16, base_depth=2)
    >>> found.forward.residual, found.groups["hidden weights"]["rate"]
    (0.25, 0.25)
    """
    found = rule_named(rule) if isinstance(rule, str) else rule
    sizes = (width / base_width, depth / base_depth)
    groups = multipliers(found, *sizes)
    projected = found.groups["output projections"].variance
    if projected is not None and projected.depth == -1.0:
        # The rule of GPT-2 is absolute: its variance is σ²/(2L) at every depth, also at that of the base model.
        groups["output projections"]["variance"] = projected.at(*sizes) / (2 * base_depth)
    return AtSize(groups, Forward(found.residual.at(*sizes), found.output.at(*sizes), found.attention))


def initialised(network: GPT, setting: AtSize, scale: Any) -> GPT:
    """A network of standard normal draws at its initial scale: `scale` is the standard deviation of the base model."""

    def scaled(leaf: Array, group: Any) -> Array:
        variance = setting.groups[group]["variance"]
        return leaf if variance is None else leaf * jnp.asarray(scale * variance**0.5, leaf.dtype)

    return jax.tree.map(scaled, network, groups_of(network))


def adamw(
    network: GPT,
    setting: AtSize,
    *,
    rate: Any,
    epsilon: Any,
    decay: Any,
    memory: tuple[float, float] = MEMORY,
    clip: float | None = CLIP,
) -> optax.GradientTransformation:
    """AdamW with the rate, ε and decay of every group of a network; `rate`, `epsilon` and `decay` are those of the base model."""

    def of_group(group: Group) -> optax.GradientTransformation:
        factor = setting.groups[group]
        adam = optax.scale_by_adam(*memory, eps=epsilon * factor["epsilon"])
        decayed = [] if factor["decay"] is None else [optax.add_decayed_weights(decay * factor["decay"])]
        return optax.chain(adam, *decayed, optax.scale_by_learning_rate(rate), optax.scale(factor["rate"]))

    present = set(jax.tree.leaves(groups_of(network)))
    each = optax.multi_transform({g: of_group(g) for g in GROUPS if g in present}, groups_of)
    return each if clip is None else optax.chain(optax.clip_by_global_norm(clip), each)


class Parametrised(NamedTuple):
    """A network at its initial scale, and the optimiser that belongs to it."""

    network: GPT
    optimiser: optax.GradientTransformation


def parametrise(
    network: GPT,
    rule: Rule | str,
    *,
    base_width: int,
    base_depth: int,
    rate: Any,
    scale: Any = 0.02,
    epsilon: Any = 1e-8,
    decay: Any = 0.1,
    memory: tuple[float, float] = MEMORY,
    clip: float | None = CLIP,
) -> Parametrised:
    """Give a network of standard normal draws its initial scales and multipliers, and build its optimiser.

    All settings are those of a base model of width `base_width` and depth `base_depth`; the rule (`"standard"`, `"mup"`,
    `"depth-mup"`, `"completep"`, or one of your own) translates them to the width and depth of `network`.

    **Arguments:**
    - `rate`: the learning rate: a number, or an optax schedule.
    - `scale`: the initial standard deviation σ of matrices and embeddings. With `"standard"`, output projections start at
        σ/√(2 depth) as in GPT-2.
    - `epsilon`, `decay`, `memory`, `clip`: AdamW's ε, decoupled weight decay, β₁ and β₂, and the largest gradient norm.

    >>> network = GPT.draw(5, 8, width=64, depth=8, heads=4, key=jax.random.key(0))
    >>> network, optimiser = parametrise(network, "completep", base_width=16, base_depth=2, rate=1e-3)
    >>> network.forward.residual, network.forward.output, round(float(network.blocks.query.std()), 4)
    (0.25, 0.25, 0.01)
    """
    depth, width = network.blocks.joined.shape[0], network.tokens.shape[1]
    setting = at_size(rule, width=width, depth=depth, base_width=base_width, base_depth=base_depth)
    started = dataclasses.replace(initialised(network, setting, scale), forward=setting.forward)
    optimiser = adamw(network, setting, rate=rate, epsilon=epsilon, decay=decay, memory=memory, clip=clip)
    return Parametrised(started, optimiser)
