"""Draw, train, sample and measure finite committees ŷ = K^{-1/2} Σ_k a_k σ(w_k·x/√d), a_k alternating between ±1."""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.methods.averages.functions import function_named
from solvable.methods.risk.lbfgs import Minimum, minimise

from .hamiltonian import Walker, begin, proceed

Weights = Float[Array, "units size"]


class Committee(eqx.Module):
    """The network as a function; inputs are already divided by √d."""

    activation: str = eqx.field(static=True)

    def __call__(self, weights: Weights, inputs: Float[Array, "n size"]) -> Float[Array, " n"]:
        units = weights.shape[0]
        return function_named(self.activation)(inputs @ weights.T) @ signs(units, weights.dtype) / math.sqrt(units)


class Task(NamedTuple):
    """A teacher, its training set, fresh inputs with their noiseless labels, and random weights to start from."""

    teacher: Weights
    inputs: Float[Array, "n size"]
    labels: Float[Array, " n"]
    fresh: Float[Array, "fresh size"]
    truth: Float[Array, " fresh"]
    random: Float[Array, "starts units size"]


def signs(units: int, dtype: jnp.dtype) -> Float[Array, " units"]:
    """Alternating signs +1, −1."""
    return jnp.asarray(np.where(np.arange(units) % 2 == 0, 1.0, -1.0), dtype)


@eqx.filter_jit
def draw_task(
    network: Committee,
    key: PRNGKeyArray,
    size: int,
    units: int,
    samples: int,
    fresh: int,
    starts: int,
    noise: Array,
    dtype: jnp.dtype,
) -> Task:
    """Draw Gaussian inputs and starts; the teacher's rows have norm exactly √d, because fluctuations of the norm would look
    like finite-size corrections to the theory."""
    keys = jax.random.split(key, 4)
    weights = jax.random.normal(keys[0], (1 + starts, units, size), dtype)
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
    """A minimum of the penalised loss, by L-BFGS."""
    return minimise(loss, start, tolerance=tolerance, iterations=iterations, history=12)


class Chains(eqx.Module):
    """Independent chains of exp(−loss), run in pieces.

    The slopes σ' have a mean m, through which all units act together as Σ_k a_k w_k, and a variance v. The sum is stiffer
    than the other directions by (α(v + Km²) + λ)/(αv + λ) and its mass is larger by that factor. With the number of weights,
    the step shrinks and the number of steps grows as its fourth root, so that a trajectory always covers a weight's standard
    deviation.
    """

    loss: PenalisedLoss

    def _stiffness(self, units: int) -> tuple[Array, Array]:
        """Stiffness of a single weight times the temperature, and the factor by which the sum is stiffer."""
        mean, variance = slopes(self.loss.network.activation)
        samples, size = self.loss.inputs.shape
        ratio = samples / (units * size)
        single = ratio * variance + self.loss.penalty
        return single, 1 + ratio * units * mean**2 / single

    @eqx.filter_jit
    def begin(self, starts: Float[Array, "chains units size"]) -> Walker:
        weights = starts.shape[1] * starts.shape[2]
        step = 0.4 * weights**-0.25 * jnp.sqrt(self.loss.temperature / self._stiffness(starts.shape[1])[0])
        return jax.vmap(lambda start: begin(self.loss, start, step))(starts)

    @eqx.filter_jit
    def proceed(
        self, walkers: Walker, key: PRNGKeyArray, thin: Array, *, draws: int
    ) -> tuple[Walker, Float[Array, "chains draws units size"]]:
        chains, units, size = walkers.x.shape
        a, heavy = signs(units, walkers.x.dtype), self._stiffness(units)[1].astype(walkers.x.dtype)

        def along(p):
            return a[:, None] * (a @ p)[None, :] / units

        def piece(walker, key):
            return proceed(
                self.loss, walker, key, leaps=round(6 * (units * size) ** 0.25), draws=draws, thin=thin,
                kick=lambda p: p + (jnp.sqrt(heavy) - 1) * along(p), drift=lambda p: p - (1 - 1 / heavy) * along(p),
            )  # fmt: skip

        return jax.vmap(piece)(walkers, jax.random.split(key, chains))


def slopes(activation: str) -> tuple[float, float]:
    """Mean and variance of σ'(z), z ~ N(0, 1).

    >>> [round(x, 12) for x in slopes("relu")]
    [0.5, 0.25]
    """
    z, weights = np.polynomial.hermite_e.hermegauss(100)
    with jax.ensure_compile_time_eval():
        slope = np.asarray(jax.vmap(jax.grad(function_named(activation)))(jnp.asarray(z)))
    weights = weights / weights.sum()
    mean = float(weights @ slope)
    return mean, float(weights @ slope**2) - mean**2


def matched(weights: np.ndarray, to: np.ndarray, parity: str) -> np.ndarray:
    """Permute units for the largest overlap with `to`, without changing the network's function.

    Units of the same sign a_k may be exchanged. For an even activation a unit may also be reversed; for an odd one, units of
    opposite sign may be exchanged if they are reversed too.

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
def measure(
    network: Committee, task: Task, one: Float[Array, "n units size"], two: Float[Array, "n units size"]
) -> dict[str, Float[Array, " n"]]:
    """Overlaps, norm, and the mean product of two students' errors on fresh and on training inputs, pair by pair.

    For two independent draws the product is, on average, the squared error of the mean prediction; for a draw with itself it is
    that draw's own squared error (`own_excess_loss` and `own_train_loss`).
    """
    size = one.shape[2]

    def pair(students):
        both = jnp.stack(students)
        fresh = task.truth[None] - jax.vmap(lambda w: network(w, task.fresh))(both)
        seen = task.labels[None] - jax.vmap(lambda w: network(w, task.inputs))(both)
        return {
            "overlap": jnp.mean(jnp.sum(both * task.teacher[None], axis=2)) / size,
            "norm": jnp.mean(jnp.sum(both**2, axis=2)) / size,
            "replica_overlap": jnp.mean(jnp.sum(both[0] * both[1], axis=1)) / size,
            "excess_loss": 0.5 * jnp.mean(fresh[0] * fresh[1]),
            "train_loss": 0.5 * jnp.mean(seen[0] * seen[1]),
            "own_excess_loss": 0.5 * jnp.mean(fresh**2),
            "own_train_loss": 0.5 * jnp.mean(seen**2),
        }

    return jax.lax.map(pair, (one, two))
