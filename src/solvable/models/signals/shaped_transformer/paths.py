"""Paths of the covariance of tokens: drift, diffusion, one step that stays positive semi-definite, and the stopping rule."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def factor(V: Array) -> Array:
    """Lower triangular F with FFᵀ = V, for matrices V[α, β, ...]; singular ones are allowed.

    The loop runs over tokens, and each of its operations over all paths, which lie along the last axis.

    >>> factor(jnp.asarray([[4.0, 2.0], [2.0, 1.0]])).tolist()
    [[2.0, 0.0], [1.0, 0.0]]
    """
    columns, rest = [], V
    for j in range(V.shape[0]):
        pivot = rest[j, j]
        good = pivot > 1e-7 * jnp.abs(V[j, j])  # a token that repeats earlier ones adds nothing of its own
        root = jnp.where(good, jax.lax.rsqrt(jnp.where(good, pivot, 1.0)), 0.0)
        column = rest[j:, j] * root[None]
        column = jnp.concatenate([jnp.zeros((j, *column.shape[1:]), column.dtype), column]) if j else column
        columns.append(column)
        rest = rest - column[:, None] * column[None, :]
    return jnp.stack(columns, axis=1)


class Coefficients(NamedTuple):
    """The coefficients of the equation of a block.

    `noise` multiplies Σ_lin, `skip` and `branch` are λ² and γ² of attention (1 and 0 without it), `scores` is 1/τ₀, and
    `bend` is the factor (c₊ − c₋)²/(2π) of the feed-forward drift, times γ².
    """

    noise: Array
    skip: Array
    branch: Array
    scores: Array
    bend: Array


def feedforward_drift(V: Array) -> Array:
    """√(V_αα V_ββ) [√(1 − ρ²) − ρ arccos ρ] for covariances V[α, β, ...]."""
    length = jnp.sqrt(_diagonal(V))
    scale = length[:, None] * length[None, :]
    own = jnp.eye(V.shape[0], dtype=bool).reshape(V.shape[0], V.shape[0], *(1,) * (V.ndim - 2))
    inside = jnp.clip(jnp.where(own, 0.0, V / scale), -1 + 1e-15, 1 - 1e-15)
    return jnp.where(own, 0.0, scale * (jnp.sqrt(1 - inside**2) - inside * jnp.arccos(inside)))


def scaled(name: str, values: Array) -> Array:
    """An observable on the scale on which the error of a step is judged: lengths, which are log-normal, by their logarithm."""
    return jnp.log(jnp.maximum(values, 1e-30)) if name == "length" else values


def _diagonal(V: Array) -> Array:
    return jnp.stack([V[i, i] for i in range(V.shape[0])])


def _centred(V: Array) -> Array:
    rows, columns = (V.mean(axis, keepdims=True) for axis in (1, 0))
    return V - rows - columns + V.mean((0, 1), keepdims=True)


def _times(a: Array, b: Array) -> Array:
    """Products of small matrices, paths last: sums of whole arrays, which the compiler fuses."""
    return sum((a[:, k, None] * b[None, k] for k in range(1, a.shape[1])), start=a[:, 0, None] * b[None, 0])


def _second_order(V: Array) -> Array:
    """The mean second-order term of the softmax, V_αα (C_νν − C̄)/(2m), at τ₀ = 1."""
    m = V.shape[0]
    own = _diagonal(_centred(V))
    return _diagonal(V)[:, None] * (own - own.mean(0, keepdims=True))[None, :] / (2 * m)


def attention_drift(V: Array) -> Array:
    """The drift of attention at γ = τ₀ = 1."""
    m = V.shape[0]
    second = _times(_second_order(V), V)
    return V * jnp.sum(V * _centred(V), (0, 1), keepdims=True) / m**2 + second + jnp.swapaxes(second, 0, 1)


def diffusion(V: Array, of: Coefficients) -> Array:
    """The variances Σ_αβ,αβ of the increments of V_αβ, for one matrix V."""
    length = jnp.diagonal(V)
    K = V @ _centred(V) @ V / V.shape[0] ** 2
    linear = length[:, None] * length[None, :] + V**2
    ends = length[:, None] * jnp.diagonal(K)[None, :]
    scores = ends + ends.T + 2 * V * K
    return of.noise * linear + (of.branch * of.scores) ** 2 * scores


def step(V: Array, of: Coefficients, dt: Array, normal: Array, attention: bool) -> Array:
    """One step of all paths V[α, β, path]; `normal` holds m(m+1)/2 normal numbers per path, and m² more with attention.

    `dt` is one number, or has an entry for every path, of shape (1, 1, paths).
    """
    m = V.shape[0]
    F = factor(V + dt * of.bend * feedforward_drift(V))
    # 1 + √(κ dt) S/2, S symmetric; dividing its square by the mean conserves E V
    rows, columns = np.triu_indices(m)
    place = np.zeros((m, m), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    scale = jnp.asarray(np.where(np.eye(m), math.sqrt(2), 1.0)[:, :, None])
    eye = jnp.eye(m)[:, :, None]
    size = of.noise * dt
    spread = _times(F, eye + jnp.sqrt(size) / 2 * scale * normal[place]) / jnp.sqrt(1 + size * (m + 1) / 4)
    moved = _times(spread, jnp.swapaxes(spread, 0, 1))
    if not attention:
        return moved
    scores = _times(_times(F, normal[len(rows) :].reshape(m, m, -1)), jnp.swapaxes(F, 0, 1))
    first = of.scores * (scores - scores.mean(1, keepdims=True)) / m
    A = eye + jnp.sqrt(dt) * first + dt * of.scores**2 * _second_order(_times(F, jnp.swapaxes(F, 0, 1)))
    return of.skip * moved + of.branch * _times(_times(A, moved), jnp.swapaxes(A, 0, 1))


def stop(V: Array, stopped: Array, ceiling: Array, seen: Array) -> tuple[Array, Array]:
    """Scale covariances V[α, β, path] with a token longer than `seen` to the ceiling, and mark them as stopped."""
    longest = jnp.max(_diagonal(V), axis=0)
    over = longest > seen
    return V * jnp.where(over & ~stopped, ceiling / longest, 1.0)[None, None], stopped | over
