"""Finite committees ŷ = K^{-1/2} Σ_k a_k σ(w_k·x/√d), a_k = ±1 in turn: drawn, trained, sampled and measured."""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .hamiltonian import Chain, hamiltonian_chain
from .lbfgs import Minimum, minimise
from .narrow_committee import function_named

Weights = Float[Array, "units size"]


class Committee(eqx.Module):
    """The network as a function; inputs come divided by √d."""

    activation: str = eqx.field(static=True)

    def __call__(self, weights: Weights, inputs: Float[Array, "n size"]) -> Float[Array, " n"]:
        units = weights.shape[0]
        return function_named(self.activation)(inputs @ weights.T) @ signs(units, weights.dtype) / math.sqrt(units)


class Task(NamedTuple):
    """A teacher, its training set, fresh inputs with their noiseless labels, and two random starts."""

    teacher: Weights
    inputs: Float[Array, "n size"]
    labels: Float[Array, " n"]
    fresh: Float[Array, "fresh size"]
    truth: Float[Array, " fresh"]
    random: Float[Array, "2 units size"]


def signs(units: int, dtype: jnp.dtype) -> Float[Array, " units"]:
    """+1 and −1 in turn."""
    return jnp.asarray(np.where(np.arange(units) % 2 == 0, 1.0, -1.0), dtype)


@eqx.filter_jit
def draw_task(
    network: Committee,
    key: PRNGKeyArray,
    size: int,
    units: int,
    samples: int,
    fresh: int,
    noise: Array,
    dtype: jnp.dtype,
) -> Task:
    """Gaussian inputs and starts; the rows of the teacher have norm √d exactly, for their fluctuation would look like
    a correction of the theory."""
    keys = jax.random.split(key, 4)
    weights = jax.random.normal(keys[0], (3, units, size), dtype)
    teacher = weights[0] * (math.sqrt(size) / jnp.linalg.norm(weights[0], axis=1, keepdims=True))
    rows = jax.random.normal(keys[1], (samples + fresh, size), dtype) / math.sqrt(size)
    clean = network(teacher, rows)
    labels = clean[:samples] + jnp.sqrt(noise).astype(dtype) * jax.random.normal(keys[2], (samples,), dtype)
    return Task(teacher, rows[:samples], labels, rows[samples:], clean[samples:], weights[1:])


class PenalisedLoss(eqx.Module):
    """(½Σ(y−ŷ)² + ½λ|w|²)/T with its gradient."""

    network: Committee
    inputs: Array
    labels: Array
    penalty: Array
    temperature: Array

    def __call__(self, weights: Weights) -> tuple[Array, Weights]:
        def total(w):
            gap = self.labels - self.network(w, self.inputs)
            return 0.5 * (gap @ gap + self.penalty * jnp.sum(w * w)) / self.temperature

        return jax.value_and_grad(total)(weights)


def descend(loss: PenalisedLoss, start: Weights, *, tolerance: float, iterations: int) -> Minimum:
    """A minimum of the penalised loss by L-BFGS."""
    return minimise(loss, start, tolerance=tolerance, iterations=iterations, history=12)


@eqx.filter_jit
def sample(
    loss: PenalisedLoss,
    starts: Float[Array, "chains units size"],
    key: PRNGKeyArray,
    *,
    leaps: int,
    burn: int,
    draws: int,
    thin: int,
) -> Chain:
    """Independent chains of exp(−loss). The sum Σ_k a_k w_k, K times stiffer than the rest, gets K times the mass."""
    units = starts.shape[1]
    a = signs(units, starts.dtype)

    def along(p):
        return a[:, None] * (a @ p)[None, :] / units

    def chain(start, key):
        return hamiltonian_chain(
            loss, start, key, step=0.02, leaps=leaps, burn=burn, draws=draws, thin=thin,
            kick=lambda p: p + (math.sqrt(units) - 1) * along(p), drift=lambda p: p - (1 - 1 / units) * along(p),
        )  # fmt: skip

    return jax.vmap(chain)(starts, jax.random.split(key, starts.shape[0]))


def matched(weights: np.ndarray, to: np.ndarray, parity: str) -> np.ndarray:
    """Units in the order that overlaps most with `to`, as far as the network stays the same.

    Units of the same sign a_k may change places; for an even activation a unit may also be reversed, for an odd one units of
    unlike sign may change places if they are.

    >>> rows = np.eye(4, 6)
    >>> bool((matched(rows[[2, 1, 0, 3]], rows, "none") == rows).all())
    True
    >>> bool((matched(-rows[[1, 0, 3, 2]], rows, "odd") == rows).all())
    True
    """
    from scipy.optimize import linear_sum_assignment

    turn = np.asarray(signs(len(weights), jnp.dtype(weights.dtype)))[:, None] if parity == "odd" else 1.0
    mine, out = turn * weights, np.zeros_like(weights)
    overlaps = mine @ (turn * to).T
    groups = [slice(None)] if parity == "odd" else [slice(0, None, 2), slice(1, None, 2)]
    for group in groups:
        here = overlaps[group, group]
        rows, places = linear_sum_assignment(np.abs(here) if parity == "even" else here, maximize=True)
        sign = np.sign(here[rows, places]) if parity == "even" else np.ones(len(rows))
        out[group][places] = sign[:, None].astype(weights.dtype) * mine[group][rows]
    return turn * out


@eqx.filter_jit
def measure(network: Committee, task: Task, one: Weights, two: Weights) -> dict[str, Array]:
    """Overlaps, norm, and the mean product of two students' errors on fresh and on training inputs.

    Of two independent draws the product is, in the mean, the squared error of their mean prediction; of one with itself its
    own squared error.
    """
    size = one.shape[1]
    fresh = (task.truth - network(one, task.fresh)) * (task.truth - network(two, task.fresh))
    seen = (task.labels - network(one, task.inputs)) * (task.labels - network(two, task.inputs))
    return {
        "overlap": 0.5 * jnp.mean(jnp.sum((one + two) * task.teacher, axis=1)) / size,
        "norm": 0.5 * jnp.mean(jnp.sum(one * one + two * two, axis=1)) / size,
        "replica_overlap": jnp.mean(jnp.sum(one * two, axis=1)) / size,
        "excess_loss": 0.5 * jnp.mean(fresh),
        "train_loss": 0.5 * jnp.mean(seen),
    }
