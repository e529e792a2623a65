r"""Descent on a Gaussian landscape in discrete time, exactly: every linear first-order method at any step size.

The landscape is H(x) = -N Q_s(m) + noise + (ω/4) N (|x|²/N - 1)² in N → ∞ dimensions. The noise is Gaussian with
covariance N Q(x·y/N), and m = x·x*/N is the overlap with a signal; Q_s = Q unless given. A linear first-order method
takes gradients at points that are sums of earlier forces F = -∇H,

    z_t = x_0 + Σ_{s<t} B_ts F_s,

and is fully described by the strictly lower triangle B. Examples are gradient descent, heavy ball and Nesterov
(`gradient_descent`, `heavy_ball`, `nesterov`), with one step size or one for every step. In the limit

    F_t = ξ_t + Σ_u M_tu z_u + Q_s'(m_t) x*,   M_tu = Q''(C_tu) R_tu - ω (C_tt - 1) δ_tu,   <ξ_t ξ_u> = Q'(C_tu),

with the correlations C = z·z/N and the responses R = ∂z/∂ξ. Every scalar product of forces, points, start and signal
then follows row by row. There is no time step to refine: results are exact up to rounding. The cost is a few
matrix-vector products a step, cubic in the number of steps.

>>> import jax.numpy as jnp
>>> kernel = Kernel(lambda q: q**3 / 2, lambda q: 1.5 * q**2, lambda q: 3 * q)
>>> path = follow(kernel, gradient_descent(100, 0.02), ridge=10.0)
>>> path.energy.shape, bool(jnp.all(jnp.diff(path.energy) < 0))
((101,), True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

__all__ = ["Kernel", "Method", "Path", "Readout", "follow", "gradient_descent", "heavy_ball", "nesterov"]

Function = Callable[[Array], Array]


class Kernel(NamedTuple):
    """A covariance Q of the landscape's noise as a function of the overlap, and its first two derivatives."""

    value: Function
    slope: Function
    curvature: Function


class Method(NamedTuple):
    """A linear first-order method: the points at which it takes gradients, and its iterates.

    Row t of `gradient_at` has the weights of the forces 0 … t-1 in the gradient's point z_t, row t of `iterate` those
    in x_t. They are the same except for methods that look ahead.
    """

    gradient_at: Float[Array, "point force"]
    iterate: Float[Array, "point force"]


class Readout(NamedTuple):
    """Measures of points on the path: energy per dimension, squared norm, overlaps with the signal and with the start."""

    energy: Float[Array, " point"]
    norm: Float[Array, " point"]
    overlap: Float[Array, " point"]
    start_overlap: Float[Array, " point"]


class Path(NamedTuple):
    """An exact descent: `energy`, `overlap` with the signal, `correlation` and `response` of the gradients' points z_t.

    `at` gives the same for any other combination of the forces. `force_start`, `force_signal`, `force_point` and
    `force_force` are the scalar products of forces with start, signal, points and each other; `force_response` is ∂F/∂ξ.
    """

    energy: Float[Array, " point"]
    overlap: Float[Array, " point"]
    correlation: Float[Array, "point point"]
    response: Float[Array, "point force"]
    start_overlap: Float[Array, " point"]
    force_start: Float[Array, " force"]
    force_signal: Float[Array, " force"]
    force_point: Float[Array, "force point"]
    force_force: Float[Array, "force force"]
    force_response: Float[Array, "force force"]

    @property
    def norm(self) -> Float[Array, " point"]:
        """Squared norms of the gradients' points."""
        return jnp.diagonal(self.correlation)

    def at(
        self,
        weights: Float[Array, "place force"],
        kernel: Kernel,
        ridge: ArrayLike = 0.0,
        signal: Kernel | None = None,
    ) -> Readout:
        """Energy, norm and overlaps of the points x_0 + weights · F, with the landscape of `follow`.

        >>> kernel = Kernel(lambda q: q**2, lambda q: 2 * q, lambda q: 2 + 0 * q)
        >>> method = nesterov(8, 0.05)
        >>> path = follow(kernel, method, ridge=5.0, overlap=0.2)
        >>> ahead = path.at(method.gradient_at, kernel, 5.0)
        >>> bool(jnp.allclose(ahead.energy, path.energy)), bool(jnp.allclose(ahead.norm, path.norm))
        (True, True)
        """
        signal = kernel if signal is None else signal
        with_points = self.start_overlap[None, :] + weights @ self.force_point
        start = self.start_overlap[0] + weights @ self.force_start
        norm = start + weights @ self.force_start + jnp.einsum("tu,uv,tv->t", weights, self.force_force, weights)
        overlap = self.overlap[0] + weights @ self.force_signal
        noise = jnp.sum(kernel.slope(with_points) * (weights @ self.force_response), axis=1)
        return Readout(-signal.value(overlap) - noise + ridge / 4 * (norm - 1) ** 2, norm, overlap, start)


def follow(
    kernel: Kernel,
    method: Method,
    *,
    ridge: ArrayLike = 0.0,
    overlap: ArrayLike = 0.0,
    signal: Kernel | None = None,
) -> Path:
    """The exact large-N path of a first-order method from a point of the unit sphere with a given overlap.

    **Arguments:**
    - `kernel`: covariance of the landscape's noise.
    - `method`: its weights B, `method.gradient_at`; one row more than steps, so that the last point is measured too.
    - `ridge`: ω, the strength of the soft constraint to the sphere.
    - `overlap`: m of the start with the signal; with 0 the signal is never found.
    - `signal`: the function Q_s, if it is not the covariance of the noise.
    """
    signal = kernel if signal is None else signal
    weights = jnp.asarray(method.gradient_at, float)
    count = len(weights)
    first_overlap, ridge = jnp.asarray(overlap, float), jnp.asarray(ridge, float)
    index = jnp.arange(count)
    vector, matrix = jnp.zeros(count), jnp.zeros((count, count))
    empty = Path(vector, vector, matrix, matrix, vector, vector, vector, matrix, matrix, matrix)

    def step(path: Path, row: tuple[Array, Array]) -> tuple[Path, None]:
        t, b = row
        _, m, c, r, from_start, f_start, f_signal, f_point, f_force, f_response = path
        # the point: its products with earlier forces and points
        f_point = f_point.at[:, t].set(jnp.where(index < t, f_start + f_force @ b, 0.0))
        from_start = from_start.at[t].set(1 + b @ f_start)
        m = m.at[t].set(first_overlap + b @ f_signal)
        common = jnp.where(index <= t, from_start + b @ f_point, 0.0)
        c = c.at[t].set(common).at[:, t].set(common)
        response = b @ f_response
        r = r.at[t].set(response)
        # its force: memory, noise of covariance Q'(C), signal
        pull = signal.slope(m[t])
        noise = jnp.where(index <= t, kernel.slope(common), 0.0)
        memory = jnp.where(index < t, kernel.curvature(common) * response, 0.0)
        memory = memory.at[t].set(-ridge * (common[t] - 1))
        past = index <= t
        f_response = f_response.at[t].set(memory @ r + (index == t).astype(float))
        f_start = f_start.at[t].set(memory @ from_start + pull * first_overlap)
        f_signal = f_signal.at[t].set(memory @ m + pull)
        f_point = f_point.at[t].set(jnp.where(past, c @ memory + r @ noise + pull * m, f_point[t]))
        between = jnp.where(past, f_point @ memory + f_response @ noise + pull * f_signal, 0.0)
        f_force = f_force.at[t].set(between).at[:, t].set(between)
        energy = -signal.value(m[t]) - jnp.sum(noise * response) + ridge / 4 * (common[t] - 1) ** 2
        energies = path.energy.at[t].set(energy)
        return Path(energies, m, c, r, from_start, f_start, f_signal, f_point, f_force, f_response), None

    path, _ = jax.lax.scan(step, empty, (index, weights))
    return path


def _rates(steps: int, rate: ArrayLike) -> Float[Array, " force"]:
    """A step size for every force; the last force is measured but not followed."""
    return jnp.concatenate([jnp.broadcast_to(jnp.asarray(rate, float), (steps,)), jnp.zeros(1)])


def gradient_descent(steps: int, rate: ArrayLike) -> Method:
    """x ← x + αF, with one rate α or one for every step.

    >>> gradient_descent(2, 0.1).iterate.tolist()
    [[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.1, 0.0]]
    """
    return heavy_ball(steps, rate, 0.0)


def heavy_ball(steps: int, rate: ArrayLike, momentum: ArrayLike) -> Method:
    """x_{t+1} = x_t + β(x_t - x_{t-1}) + αF(x_t), from rest: Polyak's momentum.

    >>> heavy_ball(3, 1.0, 0.5).iterate[3].tolist()
    [1.75, 1.5, 1.0, 0.0]
    """
    forces = jnp.diag(_rates(steps, rate))

    def step(carry: tuple[Array, Array], force: Array) -> tuple[tuple[Array, Array], Array]:
        x, before = carry
        return (x + momentum * (x - before) + force, x), x

    zero = jnp.zeros(steps + 1)
    _, rows = jax.lax.scan(step, (zero, zero), forces)
    return Method(rows, rows)


def nesterov(steps: int, rate: ArrayLike) -> Method:
    """x_{t+1} = y_t + αF(y_t), y_{t+1} = x_{t+1} + b_t (x_{t+1} - x_t) with b_t = t/(t+3).

    >>> method = nesterov(3, 1.0)
    >>> method.iterate[2].tolist(), method.gradient_at[2].tolist()
    ([1.0, 1.0, 0.0, 0.0], [1.0, 1.25, 0.0, 0.0])
    """
    forces = jnp.diag(_rates(steps, rate))
    number = jnp.arange(steps + 1, dtype=float)
    pushes = number / (number + 3)

    def step(carry: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        (y, x), (force, push) = carry, row
        following = y + force
        return (following + push * (following - x), following), (y, x)

    zero = jnp.zeros(steps + 1)
    _, (points, iterates) = jax.lax.scan(step, (zero, zero), (forces, pushes))
    return Method(points, iterates)
