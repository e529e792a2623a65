"""The phase portrait at constant pace: fixed points of (ρ, ln Q), and the line that separates success from failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from .averages import Averages

Velocity = Callable[[Array, Array], tuple[Array, Array]]
"""Time derivative of ρ and ln Q."""


class FixedPoint(NamedTuple):
    """A fixed point of the flow at pace 1, with the eigenvalues of its linearisation in (ρ, ln Q) in increasing order."""

    alignment: float
    norm: float
    eigenvalues: tuple[complex, complex]

    @property
    def stable(self) -> bool:
        return all(value.real < 0 for value in self.eigenvalues)


def lowest_share(along: Callable[[Array], Array], slope: float) -> Array:
    """The minimum of along(ρ)/(slope·ρ) over 0 < ρ < 1, capped at one: a grid of angles, then ternary search."""

    def share(angle: Array) -> Array:
        rho = jnp.cos(angle)
        return along(rho) / (slope * rho)

    grid = jnp.linspace(1e-3, math.pi / 2 - 1e-3, 256)
    lowest = grid[jnp.argmin(jax.vmap(share)(grid))]
    width = grid[1] - grid[0]

    def narrow(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        third = (high - low) / 3
        left = share(low + third) < share(high - third)
        return jnp.where(left, low, low + third), jnp.where(left, high - third, high)

    low, high = jax.lax.fori_loop(0, 50, narrow, (lowest - width, lowest + width))
    return jnp.minimum(share(0.5 * (low + high)), 1.0)


def fixed_points(averages: Callable[[Array], Averages], velocity: Velocity) -> list[FixedPoint]:
    """All fixed points in order of ρ: roots of f with g < 0, at √Q = -h/(2g)."""
    along = jax.jit(lambda rho: averages(rho).along)
    grid = np.cos(np.linspace(math.pi, 0.0, 4001))[1:-1]
    heights = np.asarray(jax.vmap(along)(jnp.asarray(grid)))
    linear = jax.jit(jax.jacfwd(lambda y: jnp.stack(velocity(y[0], y[1]))))
    found = []
    for i in np.flatnonzero(np.sign(heights[1:]) * np.sign(heights[:-1]) < 0):
        rho: Any = brentq(lambda r: float(along(jnp.asarray(r))), grid[i], grid[i + 1], xtol=1e-14)
        averaged = averages(jnp.asarray(rho))
        if float(averaged.growth) < 0:
            norm = float(averaged.kick / (2 * averaged.growth)) ** 2
            values = np.linalg.eigvals(np.asarray(linear(jnp.asarray([rho, math.log(norm)]))))
            one, other = sorted((complex(v) for v in values), key=lambda v: v.real)
            found.append(FixedPoint(float(rho), norm, (one, other)))
    return found


def stable_manifold(saddle: FixedPoint, velocity: Velocity, norms: np.ndarray) -> np.ndarray:
    """ρ at each squared norm on the stable manifold of a saddle, integrated backwards in time; NaN outside its reach."""
    back = jax.jit(lambda y: -jnp.stack(velocity(y[0], y[1])))
    centre = np.array([saddle.alignment, math.log(saddle.norm)])
    values, vectors = np.linalg.eig(np.asarray(jax.jacfwd(back)(jnp.asarray(centre))))
    direction = np.real(vectors[:, np.argmax(np.real(values))])
    low, high = min(np.log(norms.min()), centre[1]) - 1, max(np.log(norms.max()), centre[1]) + 1
    path = [centre[:, None]]
    for side in (1, -1):

        def leaves(t: float, y: np.ndarray) -> float:
            return min(1 - abs(y[0]), y[1] - low, high - y[1])

        leaves.terminal = True
        begin = centre + side * 1e-5 * direction
        run = solve_ivp(
            lambda t, y: np.asarray(back(jnp.asarray(y))), (0, 1e5), begin, rtol=1e-9, atol=1e-11, events=leaves
        )
        path.append(run.y)
    rho, log_norm = np.concatenate(path, axis=1)
    order = np.argsort(log_norm)
    return np.interp(np.log(norms), log_norm[order], rho[order], left=np.nan, right=np.nan)
