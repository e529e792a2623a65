"""Networks whose depth limits the order of interactions: factored attention with squares between layers.

z_i = Σ_h Σ_j A^h_ij V^h x_j in every layer, x = z² between layers. The logits of N layers have degree 2^{N−1} in the
visible sites, hence couple at most 2^{N−1}+1 bodies, and their loss is never below the floor ℓ_{2^{N−1}+1} of
`methods.sequences.interactions`.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...errors import InvalidValue


class InteractionStack(eqx.Module):
    """Layers of factored attention with squares between them: logits at hidden sites from the visible ones.

    x⁰_j is the one-hot token, zero where it is hidden; z^l_i = Σ_h Σ_j A^{h,l}_ij V^{h,l} x^{l−1}_j; x^l = (z^l)² between
    layers, not after the last; logits = z^N + bias. A hidden token enters no layer.

    >>> network = InteractionStack(3, 5, depth=2, heads=2, width=4, key=jax.random.key(0))
    >>> logits = network(jnp.array([0, 1, 2, 0, 1]), jnp.arange(5) == 2)
    >>> logits.shape, network.bodies
    ((5, 3), 3)
    """

    attention: tuple[Float[Array, "heads L L"], ...]
    values: tuple[Float[Array, "heads out in"], ...]
    bias: Float[Array, "L C"]

    def __init__(
        self,
        colours: int,
        sites: int,
        depth: int,
        heads: int,
        width: int,
        key: PRNGKeyArray,
        *,
        scale: float = 1.0,
        dtype: Any = jnp.float32,
    ):
        """Initial attention is Gaussian with variance 1/L; values have standard deviation scale/(2√(heads · width))."""
        if depth < 1:
            raise InvalidValue(f"depth = {depth} is not an integer in [1, ∞).")
        widths = [colours, *[width] * (depth - 1), colours]
        shapes = [s for l in range(depth) for s in ((heads, sites, sites), (heads, widths[l + 1], widths[l]))]
        # One draw compiles in a fraction of the time of many; the first numbers of a key do not depend on how many it gives.
        most = max(map(math.prod, shapes))
        drawn = jax.vmap(lambda key: jax.random.normal(key, (most,), dtype))(jax.random.split(key, 2 * depth))
        weights = [row[: math.prod(s)].reshape(s) for row, s in zip(drawn, shapes, strict=True)]
        self.attention = tuple(attention / sites**0.5 for attention in weights[::2])
        spread = 0.5 * scale / (heads * width) ** 0.5
        self.values = tuple(spread * values for values in weights[1::2])
        self.bias = jnp.zeros((sites, colours), dtype)

    @property
    def depth(self) -> int:
        return len(self.attention)

    @property
    def bodies(self) -> int:
        """The largest number of bodies that the logits can couple, 2^(depth−1) + 1, including the hidden one."""
        return 2 ** (self.depth - 1) + 1

    def __call__(self, tokens: Int[Array, " L"], masked: Bool[Array, " L"]) -> Float[Array, "L C"]:
        """Logits at every site of one sequence; only those at hidden sites are meaningful."""
        x = self._before_last(tokens, masked)
        return jnp.einsum("hij,hoc,jc->io", self.attention[-1], self.values[-1], x) + self.bias

    def at_hidden_site(self, tokens: Int[Array, " L"], hidden: Bool[Array, " L"]) -> Float[Array, " C"]:
        """Logits at the one hidden site; the last layer is evaluated there only."""
        x, here = self._before_last(tokens, hidden), hidden.astype(self.bias.dtype)
        row = jnp.einsum("i,hij->hj", here, self.attention[-1])
        return jnp.einsum("hoc,hc->o", self.values[-1], jnp.einsum("hj,jc->hc", row, x)) + here @ self.bias

    def _before_last(self, tokens: Int[Array, " L"], masked: Bool[Array, " L"]) -> Float[Array, "L width"]:
        x = jax.nn.one_hot(tokens, self.bias.shape[1], dtype=self.bias.dtype)
        x = jnp.where(masked[:, None], 0.0, x)
        for attention, values in zip(self.attention[:-1], self.values[:-1], strict=True):
            x = _layer(attention, values, x) ** 2
        return x


LARGEST_MATRIX = 2**23
"""Largest size of the matrix of all heads: more would not fit in the memory of a small machine."""


def _layer(
    attention: Float[Array, "heads L L"], values: Float[Array, "heads out in"], x: Float[Array, "L in"]
) -> Float[Array, "L out"]:
    """Σ_h A^h x (V^h)ᵀ. Sequences share the heads, so the heads are summed to one matrix first if that is cheaper."""
    (heads, sites, _), (_, out, inner) = attention.shape, values.shape
    if sites * inner <= heads * (sites + inner) and sites**2 * out * inner <= LARGEST_MATRIX:
        return jnp.einsum("iojc,jc->io", jnp.einsum("hij,hoc->iojc", attention, values), x)
    return jnp.einsum("hij,hoc,jc->io", attention, values, x)


class SumOfStacks(eqx.Module):
    """Stacks of several depths whose logits are added, so that lower orders need not come from powers of the deepest.

    `deeper` adds one whose initial output is zero, so that training continues from the shallower ones.

    >>> one = SumOfStacks((InteractionStack(3, 5, depth=1, heads=2, width=4, key=jax.random.key(0)),))
    >>> both = one.deeper(InteractionStack(3, 5, depth=2, heads=2, width=4, key=jax.random.key(1)))
    >>> tokens, hidden = jnp.array([0, 1, 2, 0, 1]), jnp.arange(5) == 2
    >>> bool(jnp.all(both(tokens, hidden) == one(tokens, hidden))), one.bodies, both.bodies
    (True, 2, 3)
    """

    stacks: tuple[InteractionStack, ...]

    def deeper(self, stack: InteractionStack) -> SumOfStacks:
        """Add another stack, with its last layer set to zero."""
        silent = eqx.tree_at(lambda s: s.values[-1], stack, jnp.zeros_like(stack.values[-1]))
        return SumOfStacks((*self.stacks, silent))

    @property
    def bodies(self) -> int:
        """The largest number of bodies that the logits can couple."""
        return max(stack.bodies for stack in self.stacks)

    def __call__(self, tokens: Int[Array, " L"], masked: Bool[Array, " L"]) -> Float[Array, "L C"]:
        return jnp.sum(jnp.stack([stack(tokens, masked) for stack in self.stacks]), axis=0)

    def at_hidden_site(self, tokens: Int[Array, " L"], hidden: Bool[Array, " L"]) -> Float[Array, " C"]:
        return jnp.sum(jnp.stack([stack.at_hidden_site(tokens, hidden) for stack in self.stacks]), axis=0)


def displacement(network: InteractionStack, begin: InteractionStack) -> Float[Array, " layer"]:
    """MSD of every layer: |A − A₀|²/L + |V − V₀|²/C."""
    sites, colours = network.bias.shape
    moved = [
        jnp.sum((a - a0) ** 2) / sites + jnp.sum((v - v0) ** 2) / colours
        for a, a0, v, v0 in zip(network.attention, begin.attention, network.values, begin.values, strict=True)
    ]
    return jnp.stack(moved)
