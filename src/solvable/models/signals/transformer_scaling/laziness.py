"""How non-linear is the change of a residual block in its own weights? A block is lazy if the answer is: hardly.

In a residual network of L blocks, h ← h + (L/2)^(−α) B(h) with B(h) = √(2/N) W₂ φ(√(2/N) W₁ φ(h)) and a readout of order 1/N, the
first weights of the first block take one step of Adam at rate η(L/2)^(α−1). With h the output of that block, δ₁ its change to
first order in the step and δ₂ the rest, all steps being of order L^(α−1),

    |Δh|/|h| ~ L^(α−1),    |δ₂|/|Δh| ~ L^(α−1),    |δ₂|/|h| ~ L^(2(α−1)):

α = ½ makes blocks linear in their weights as L grows, α = 1 does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

SAMPLES = 16


class Shares(NamedTuple):
    """Ratios of the norms of a block's output h, its change Δh and the non-linear part δ₂ of the change."""

    change: Array  # |Δh|/|h|
    nonlinear: Array  # |δ₂|/|Δh|
    rest: Array  # |δ₂|/|h|


@partial(jax.jit, static_argnames=("depth", "width"))
def nonlinear_shares(key: Array, exponent: Array, *, depth: int, width: int, rate: float = 0.02) -> Shares:
    """Train the first block of one network by one step of Adam (its ε scaled by (L/2)^(−α)) and split the block's change.

    >>> shares = nonlinear_shares(jax.random.key(0), jnp.asarray(1.0), depth=2, width=16)
    >>> bool(shares.nonlinear < 0.1)
    True
    """
    deeper = depth / 2
    to_weights, to_inputs, to_readout, to_targets = jax.random.split(key, 4)
    weights = jax.random.normal(to_weights, (depth, 2, width, width))
    inputs = jax.random.normal(to_inputs, (SAMPLES, width))
    readout, targets = jax.random.normal(to_readout, (width,)), jax.random.normal(to_targets, (SAMPLES,))
    gain = (2 / width) ** 0.5

    def branch(h: Array, first: Array, second: Array) -> Array:
        return gain * jnp.tanh(gain * jnp.tanh(h) @ first.T) @ second.T

    def loss(first: Array) -> Array:
        def block(h: Array, pair: Array) -> tuple[Array, None]:
            return h + deeper**-exponent * branch(h, pair[0], pair[1]), None

        h, _ = jax.lax.scan(block, inputs, weights.at[0, 0].set(first))
        return 0.5 * jnp.mean((targets - h @ readout / width) ** 2)

    first = weights[0, 0]
    slope = jax.grad(loss)(first)
    step = -rate * deeper ** (exponent - 1) * slope / (jnp.abs(slope) + 1e-12 * deeper**-exponent)

    def output(first: Array) -> Array:
        return branch(inputs, first, weights[0, 1])

    h, linear = jax.jvp(output, (first,), (step,))
    change = output(first + step) - h
    size, moved, rest = (jnp.linalg.norm(v) for v in (h, change, change - linear))
    return Shares(moved / size, rest / moved, rest / size)


def measured(depths: list[int], exponents: list[float], width: int, seeds: int) -> Any:
    """The three ratios as a dataset over depth, exponent and seed."""
    import xarray as xr

    keys = jax.random.split(jax.random.key(0), seeds)
    table = np.empty((len(Shares._fields), len(depths), len(exponents), seeds))
    for i, depth in enumerate(depths):
        run = partial(nonlinear_shares, depth=depth, width=width)
        table[:, i] = jax.vmap(jax.vmap(run, (0, None)), (None, 0))(keys, jnp.asarray(exponents))
    dims = ("depth", "exponent", "seed")
    columns = {name: (dims, part) for name, part in zip(Shares._fields, table, strict=True)}
    return xr.Dataset(columns, {"depth": depths, "exponent": exponents})


def slopes(data: Any, name: str) -> Any:
    """Slope of ln(ratio) against ln(depth), of every exponent and seed."""
    fits = np.log(data[name].assign_coords(depth=np.log(data.depth))).polyfit("depth", 1)
    return fits.polyfit_coefficients.sel(degree=1)
