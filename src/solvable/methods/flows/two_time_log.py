r"""Two-time equations over many decades of time: uniform grids in $\ln t$ and in the logit of $t'/t$.

The equations are those of `two_time`. With $\varphi = t'/t$ and $x = \mathrm{logit}\,\varphi$ a row $C(t, \varphi t)$ moves by

$$\partial_{\ln t} C = \frac{\partial_x C}{1-\varphi} + t\,\partial_t C(t,t'),$$

a transport away from the diagonal, where $C = R = 1$. Rows have about 150 nodes $x$, from $1-\varphi \ll 1/t$, where the
response is fast, to $\varphi \ll 1/t$, where the start is remembered. Steps in $\ln t$ are implicit (backward differences of
fourth order), so that fast parts, in equilibrium on that scale, cost nothing. Memory integrals use the trapezoidal rule in $x$,

$$\int_0^{t'}: \; s = t'\psi, \qquad \int_{t'}^t: \; s = t\rho, \quad \rho = \varphi + (1-\varphi)\psi, \quad
  \mathrm{logit}(\varphi/\rho) = x - \ln\psi,$$

and values between nodes or rows are interpolated by local polynomials. Because both grids are uniform, the weights are the
same at every step. The cost is logarithmic in time, and a fixed number of earlier rows is kept.

>>> path = relax_log(Mixture({3: 0.5}), until=10.0, log_step=0.2, logit_step=0.4, tolerance=0.01)
>>> bool(path.converged.all()), round(float(path.energy[-1]), 3)
(True, -1.082)
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import inverse
from solvable.methods.flows.two_time import Covariance, Landscape, Mixture

__all__ = ["LogTwoTime", "Mixture", "relax_log"]

POINTS = 10  # of an interpolation in the logit
ABOVE = 7  # points of a derivative on the upwind side
LEVELS = 6  # of an interpolation in the logarithm of time
BACKWARD = (25 / 12, (4.0, -3.0, 4 / 3, -1 / 4))  # differences of fourth order
REFRESH = 0.4  # length in ln t over which steps share a Jacobian
MOST = 50  # Newton iterations per step
EXACT = 1e-9  # change by the last of them
MARGIN = 10.0  # logits beyond ln t: fast times are resolved down to exp(-10)
CHUNK = 16  # rows of a table at a time


class LogTwoTime(NamedTuple):
    """A solved relaxation at logarithmically spaced times: the second axis is t'/t.

    `error` is the largest difference, at every time, from a solution with twice the step in ln t and one and a half times that in
    logit t'/t, among correlation, overlap, energy, multiplier and 1 + t - t' times the response (the last three relative to one
    plus their size): it estimates the error of the *coarser* of the two, and the finer is returned. From the first time at
    which `error` exceeds the tolerance, or an implicit step was not solved, values are NaN and `converged` is false.
    """

    times: Float[Array, " time"]
    ratios: Float[Array, " ratio"]
    correlation: Float[Array, "time ratio"]
    response: Float[Array, "time ratio"]
    overlap: Float[Array, " time"]
    multiplier: Float[Array, " time"]
    energy: Float[Array, " time"]
    error: Float[Array, " time"]
    converged: Bool[Array, " time"]


def relax_log(
    covariance: Covariance,
    until: float,
    *,
    temperature: float | Array = 0.0,
    overlap: float | Array = 0.0,
    signal: Covariance | None = None,
    tolerance: float | Array = 1e-3,
    log_step: float = 0.1,
    logit_step: float = 0.3,
    start: float = 1e-4,
) -> LogTwoTime:
    """Follow the two-time equations from a random start to the time `until`; values at every second step.

    **Arguments**

    - `covariance`, `temperature`, `overlap`, `signal`: as in `two_time.relax`, on the sphere and with constant couplings.
    - `tolerance`: bound on `error`; values beyond it are NaN.
    - `log_step`, `logit_step`: of the finer grid.
    - `start`: approximate end of the expansion at small times, which has an error of order its square.

    An overlap that grows as $e^{\\Lambda t}$ from very small values is resolved while `log_step` times $\\Lambda t$ is small, and
    flagged beyond.

    >>> path = relax_log(Mixture({3: 0.5}), until=10.0, temperature=0.5, log_step=0.2, logit_step=0.4, tolerance=0.01)
    >>> bool(path.converged.all()), bool(path.energy[-1] > -1)
    (True, True)
    """
    if not start < until:
        raise InvalidValue(f"until must be a number greater than {start:g}, not {until:g}.")
    landscape = Landscape.of(covariance, signal, None, temperature, overlap, None)
    return _relax_log(landscape, jnp.asarray(tolerance, float), float(until), log_step, logit_step, float(start))


@eqx.filter_jit
def _relax_log(
    landscape: Landscape, tolerance: Array, until: float, log_step: float, logit_step: float, start: float
) -> LogTwoTime:
    steps = 2 * int(np.ceil(np.log(until / start) / log_step / 2))
    thirds = int(np.ceil((max(np.log(until), 2.0) + MARGIN) / logit_step / 3))
    start = until * float(np.exp(-log_step * steps))
    fine = _march(landscape, start, steps, log_step, _grid(3 * thirds, logit_step, log_step))
    fine = jax.tree.map(lambda v: v[1::2], fine)
    coarse = _march(landscape, start, steps // 2, 2 * log_step, _grid(2 * thirds, 1.5 * logit_step, 2 * log_step))
    times = start * jnp.exp(2 * log_step * (1.0 + jnp.arange(steps // 2, dtype=float)))
    x = logit_step * np.arange(-3 * thirds, 3 * thirds + 1)
    gap = jnp.abs(fine.row[:, ::3] - coarse.row[:, ::2])
    age = 1 + times[:, None] * jnp.asarray(1 / (1 + np.exp(x[::3])))[None]
    relative = lambda f, c: jnp.abs(f - c) / (1 + jnp.abs(f))  # noqa: E731
    rows = [
        jnp.max(gap[..., 0], axis=1),
        jnp.max(gap[..., 1] * age / (1 + jnp.abs(fine.row[:, ::3, 1]) * age), axis=1),
        jnp.abs(fine.overlap - coarse.overlap),
        relative(fine.multiplier, coarse.multiplier),
        relative(fine.energy, coarse.energy),
    ]
    error = jnp.max(jnp.stack(rows), axis=0)
    good = (error <= tolerance) & (fine.change <= EXACT) & (coarse.change <= EXACT)
    converged = jnp.cumsum(~good) == 0
    mask = jnp.where(converged, 1.0, jnp.nan)
    return LogTwoTime(
        times=times,
        ratios=jnp.asarray(1 / (1 + np.exp(-x))),
        correlation=fine.row[..., 0] * mask[:, None],
        response=fine.row[..., 1] * mask[:, None],
        overlap=fine.overlap * mask,
        multiplier=fine.multiplier * mask,
        energy=fine.energy * mask,
        error=error,
        converged=converged,
    )


# --- the grid: every index and weight is a constant -------------------------------------------------------------------


class _Stencil(NamedTuple):
    """Local interpolations on a uniform grid: their first nodes and their weights."""

    base: np.ndarray  # [...]
    weights: np.ndarray  # [..., points]

    def nodes(self) -> np.ndarray:
        return self.base[..., None] + np.arange(self.weights.shape[-1], dtype=np.int32)

    def newest(self) -> np.ndarray:
        """The weight of node zero, which is the current row."""
        return np.where(self.base == 0, self.weights[..., 0], 0.0)


class _Grid(NamedTuple):
    ratio: np.ndarray  # [K] t'/t
    rest: np.ndarray  # [K] 1 - t'/t
    weight: np.ndarray  # [K] of an integral over the ratio
    slope: np.ndarray  # [K, K] d/dx
    inner: _Stencil  # [K, K] the row t at s = t ratio_k ratio_j
    outer: _Stencil  # [K, K] the row t at s = t rho
    young: _Stencil  # [K, K] the row t rho at t'
    level: _Stencil  # [K, K] which row t rho is
    row: _Stencil  # [K] which row t ratio_k is
    window: int  # rows


def _lagrange(position: np.ndarray, points: int) -> np.ndarray:
    """Weights at `position` of the values at 0, 1, ... points - 1."""
    nodes = np.arange(points)
    differences = np.asarray(position, float)[..., None] - nodes
    columns = [np.prod(np.delete(differences, j, axis=-1), axis=-1) / np.prod(j - np.delete(nodes, j)) for j in nodes]
    return np.stack(columns, axis=-1)


def _derivative(position: int, points: int) -> np.ndarray:
    """Weights at a node of the derivative of the polynomial through 0, 1, ... points - 1."""
    nodes = np.arange(points)
    others = lambda *gone: np.prod(np.delete(position - nodes, gone).astype(float))  # noqa: E731
    sums = [sum(others(j, k) for k in nodes if k != j) / np.prod(j - np.delete(nodes, j)) for j in nodes]
    return np.array(sums)


def _stencil(position: np.ndarray, size: int, points: int) -> _Stencil:
    position = np.clip(position, 0, size - 1)
    base = np.clip(np.floor(position).astype(np.int32) - points // 2 + 1, 0, size - points).astype(np.int32)
    return _Stencil(base, _lagrange(position - base, points))


def _grid(half: int, dx: float, ds: float) -> _Grid:
    x = dx * np.arange(-half, half + 1)
    size = len(x)
    ratio, rest, log_ratio = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x)), -np.log1p(np.exp(-x))
    weight = dx * ratio * rest
    # The nodes beyond both ends, where integrands are constant and weights form a geometric series.
    weight[0] += dx * ratio[0] / np.expm1(dx)
    weight[-1] += dx * rest[-1] / np.expm1(dx)
    slope = np.zeros((size, size))
    for k in range(size):
        base = int(np.clip(k - (POINTS - 1 - ABOVE), 0, size - POINTS))
        slope[k, base : base + POINTS] = _derivative(k - base, POINTS) / dx
    at = lambda x: _stencil(x / dx + half, size, POINTS)  # noqa: E731
    product = log_ratio[:, None] + log_ratio
    gone = rest[:, None] * rest  # 1 - rho, without cancellation, and rho likewise
    log_rho = np.where(gone > 0.5, np.log(ratio[:, None] + rest[:, None] * ratio), np.log1p(-np.minimum(gone, 0.5)))
    window = int(np.ceil(-log_ratio[0] / ds)) + LEVELS + 1
    return _Grid(
        ratio=ratio,
        rest=rest,
        weight=weight,
        slope=slope,
        inner=at(product - np.log(-np.expm1(product))),
        outer=at(log_rho - np.log(gone)),
        young=at(x[:, None] - log_ratio),
        level=_stencil(-log_rho / ds, window, LEVELS),
        row=_stencil(-log_ratio / ds, window, LEVELS),
        window=window,
    )


# --- the equations ----------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """Contributions of earlier rows to a step, without the current row."""

    time: Array
    young: Array  # [K, K, 2] correlation and response at (t rho, t')
    rows: Array  # [K, K, 2] at (t', t' ratio_j)
    overlap: Array  # [K] at t'
    backward: Array  # [2 K + 1] of the differences in ln t


class _Path(NamedTuple):
    row: Array  # [time, K, 2]
    overlap: Array
    multiplier: Array
    energy: Array
    change: Array


def _at(row: Array, stencil: _Stencil) -> Array:
    """Values [K, K, 2] of a row [K, 2]."""
    return jnp.einsum("kjpf,kjp->kjf", row[stencil.nodes()], stencil.weights)


def _look_back(grid: _Grid, window: Array, overlaps: Array) -> tuple[Array, Array, Array]:
    """Interpolate between earlier rows; `window` [rows, K, 2] has the newest first."""
    size = window.shape[1]
    flat = window.reshape(-1, 2)
    levels, points = np.arange(LEVELS, dtype=np.int32)[:, None], np.arange(POINTS, dtype=np.int32)[None]

    def young(of: tuple[Array, Array, Array, Array]) -> Array:
        level, level_weights, base, weights = of
        nodes = (level[:, None, None] + levels[None]) * size + base[:, None, None] + points[None]
        return jnp.einsum("jlpf,jl,jp->jf", flat[nodes], level_weights, weights)

    tables = jax.tree.map(jnp.asarray, (*grid.level, *grid.young))
    rows = jnp.einsum("kljf,kl->kjf", window[grid.row.nodes()], grid.row.weights)
    overlap = jnp.sum(overlaps[grid.row.nodes()] * grid.row.weights, axis=1)
    return jax.lax.map(young, tables, batch_size=CHUNK), rows, overlap


class _Seen(NamedTuple):
    """Values that enter the integrals of a step; all are linear in the current row."""

    inner: Array  # [K, K, 2] the row t at s = t ratio_k ratio_j
    outer: Array  # [K, K, 2] the row t at s = t rho
    young: Array  # [K, K, 2] the row t rho at t'
    rows: Array  # [K, K, 2] the row t' at t' ratio_j


def _see(grid: _Grid, known: _Known, row: Array) -> _Seen:
    return _Seen(
        inner=_at(row, grid.inner),
        outer=_at(row, grid.outer),
        young=known.young + grid.level.newest()[..., None] * _at(row, grid.young),
        rows=known.rows + grid.row.newest()[:, None, None] * row[None],
    )


def _drift(
    landscape: Landscape, grid: _Grid, known: _Known, seen: _Seen, row: Array, m: Array
) -> tuple[Array, Array, Array, Array]:
    """The time derivatives of the row [K, 2] and of the overlap; the multiplier and the energy."""
    t, w = known.time, grid.weight
    inner, outer, young, rows = seen
    overlap = known.overlap + grid.row.newest() * m
    noise_inner, memory_inner = landscape.kernels(inner[..., 0], None, None)
    memory_outer = landscape.kernels(outer[..., 0], None, None)[1] * outer[..., 1]
    noise, memory = landscape.kernels(row[:, 0], None, None)
    noise, memory = noise * row[:, 1], memory * row[:, 1]
    value, pull = landscape.pull(m, None)

    gained = t * jnp.sum(w * noise)
    mu = landscape.temperature + m * pull + gained + t * jnp.sum(w * memory * row[:, 0])
    older = t * grid.ratio * ((memory_inner * inner[..., 1] * rows[..., 0] + noise_inner * rows[..., 1]) @ w)
    newer = t * grid.rest[:, None] * jnp.einsum("j,kj,kjf->kf", w, memory_outer, young)
    force = newer + jnp.stack([older + pull * overlap, jnp.zeros_like(older)], axis=1)
    return force - mu * row, pull - mu * m + t * jnp.sum(w * memory * overlap), mu, -value - gained


def _slopes(grid: _Grid, pulled: _Seen) -> Array:
    """d/d row_ng [K, K, 2] of numbers, one for every k, that depend on seen[k] alone with slopes `pulled`."""
    size = len(grid.ratio)
    which = np.broadcast_to(np.arange(size, dtype=np.int32)[:, None, None], (size, size, POINTS))
    total = jnp.asarray(grid.row.newest()[:, None, None]) * pulled.rows
    for slope, stencil in (
        (pulled.inner, grid.inner),
        (pulled.outer, grid.outer),
        (grid.level.newest()[..., None] * pulled.young, grid.young),
    ):
        total = total.at[which, stencil.nodes()].add(slope[:, :, None, :] * stencil.weights[..., None])
    return total


def _march(landscape: Landscape, start: float, steps: int, ds: float, grid: _Grid) -> _Path:
    """Implicit steps in ln t, by Newton iterations with a Jacobian that is updated from time to time."""
    size, (lead, differences) = len(grid.ratio), BACKWARD
    refresh = max(1, round(REFRESH / ds))
    T, m0 = landscape.temperature, landscape.overlap
    pack = lambda row, m: jnp.concatenate([row.ravel(), m[None]])  # noqa: E731
    unpack = lambda y: (y[:-1].reshape(size, 2), y[-1])  # noqa: E731

    def compare(y: Array, seen: _Seen, known: _Known) -> tuple[Array, tuple[Array, Array]]:
        row, m = unpack(y)
        drift, drift_m, mu, energy = _drift(landscape, grid, known, seen, row, m)
        moved, moved_m = unpack(lead * y - known.backward)
        scale = 1 / (1 + ds * (known.time + 1 / grid.rest))
        left = (moved - ds * (known.time * drift + (grid.slope @ row) / grid.rest[:, None])) * scale[:, None]
        tau = known.time * grid.rest[-1]  # the last node is almost on the diagonal
        left = left.at[-1].set(row[-1] - jnp.stack([1 - T * tau, 1 - mu * tau]))
        return pack(left, (moved_m - ds * known.time * drift_m) / (1 + ds * known.time)), (mu, energy)

    def residual(y: Array, known: _Known) -> tuple[Array, tuple[Array, Array]]:
        return compare(y, _see(grid, known, unpack(y)[0]), known)

    def jacobian(y: Array, known: _Known) -> Array:
        """The Jacobian, by hand where a residual depends on a few nodes only, by autodiff where it depends on the row."""
        seen = _see(grid, known, unpack(y)[0])
        direct = jax.jacfwd(lambda y: compare(y, seen, known)[0])(y)
        back = jax.vjp(lambda seen: unpack(compare(y, seen, known)[0])[0], seen)[1]
        pick = lambda f: jnp.zeros((size, 2)).at[:, f].set(1.0)  # noqa: E731
        parts = [_slopes(grid, back(pick(f))[0]).reshape(size, 2 * size) for f in (0, 1)]
        return direct.at[:-1, :-1].add(jnp.stack(parts, axis=1).reshape(2 * size, 2 * size))

    def step(carry: tuple[Array, Array, Array], number: Array) -> tuple[tuple[Array, Array, Array], _Path]:
        window, overlaps, inverted = carry
        t = start * jnp.exp(ds * (1.0 + number.astype(float)))
        past = [pack(window[k], overlaps[k]) for k in range(4)]
        window = jnp.concatenate([jnp.zeros_like(window[:1]), window[:-1]])
        overlaps = jnp.concatenate([jnp.zeros_like(overlaps[:1]), overlaps[:-1]])
        backward = sum(d * y for d, y in zip(differences, past, strict=True))
        known = _Known(t, *_look_back(grid, window, overlaps), backward)  # type: ignore[arg-type]
        guess = 4 * past[0] - 6 * past[1] + 4 * past[2] - past[3]
        inverted = jax.lax.cond(number % refresh == 0, lambda: inverse(jacobian(guess, known)), lambda: inverted)
        weight = pack(jnp.stack([jnp.ones(size), 1 + t * grid.rest], axis=1), jnp.ones(()))

        def iterate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            y, _, count = state
            correction = inverted @ residual(y, known)[0]
            return y - correction, jnp.max(jnp.abs(correction) * weight), count + 1

        unfinished = lambda state: (state[1] > EXACT) & (state[2] < MOST)  # noqa: E731
        begin = guess, jnp.asarray(jnp.inf), jnp.zeros((), int)
        y, change, _ = jax.lax.while_loop(unfinished, iterate, begin)
        row, m = unpack(y)
        mu, energy = residual(y, known)[1]
        return (window.at[0].set(row), overlaps.at[0].set(m), inverted), _Path(row, m, mu, energy, change)

    # To first order in time C = 1 - T tau, R = 1 - mu tau and m is linear.
    pull = landscape.pull(m0, None)[1]
    mu = T + m0 * pull
    times = start * np.exp(-ds * np.arange(grid.window))
    tau = times[:, None] * grid.rest
    rows = jnp.stack([1 - T * tau, 1 - mu * tau], axis=-1)
    carry = rows, m0 + (pull - mu * m0) * times, jnp.eye(2 * size + 1)
    return jax.lax.scan(step, carry, jnp.arange(steps))[1]
