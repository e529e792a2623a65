r"""Two-time equations of glassy dynamics: correlation and response of a random landscape, on a uniform grid.

A Langevin particle moves on a sphere of large dimension $N$, $\dot x = -\mu(t) x - \nabla H + \eta$ with noise of temperature
$T$, in a Gaussian landscape of covariance $\mathrm{Cov}(H(x), H(y)) = N Q(x \cdot y/N)$ and mean $-N Q(m)$, where $m$ is the
overlap with a hidden signal. Its state is described by $C(t,t') = x(t)\cdot x(t')/N$, the response $R(t,t')$ and $m(t)$. For
$t > t'$

$$\partial_t C(t,t') = -\mu(t) C(t,t') + Q'(m(t))\, m(t') + \int_0^t R(t,s)\, Q''(C(t,s))\, C(s,t')\, ds
   + \int_0^{t'} Q'(C(t,s))\, R(t',s)\, ds,$$

$$\partial_t R(t,t') = -\mu(t) R(t,t') + \int_{t'}^t R(t,s)\, Q''(C(t,s))\, R(s,t')\, ds, \qquad R(t^+,t) = 1,$$

and $m$ obeys the equation of $C$ with the signal as the earliest time (Crisanti, Horner and Sommers 1993;
Cugliandolo and Kurchan 1993, cond-mat/9303036; with a signal: Sarao Mannelli et al. 2018, arXiv:1812.09066). On the sphere
$C(t,t) = 1$ fixes $\mu$; with a soft constraint $\mu = \omega\,(C(t,t) - 1)$ and the norm is free.

`relax` solves them for any $Q$. The pure 3-spin model after a quench to zero temperature:

>>> path = relax(Mixture({3: 0.5}), step=0.05, steps=80)
>>> bool(path.converged.all()), round(float(path.energy[-1]), 3), bool(path.error.max() < 1e-3)
(True, -1.015, True)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from solvable.errors import InvalidValue

__all__ = ["Landscape", "Mixture", "TwoTime", "relax"]

BLOCK = 8  # rows that are solved together: matrix products instead of products of a matrix and a vector
MOST_SWEEPS = 40  # evaluations of a block's memory integrals
STAGE = (
    384  # minimal number of rows by which buffers grow: rows ahead of a block cost no products; each stage is a program
)
MOST_STAGES = 4
PAST = 3  # blocks from which the next one is extrapolated
EXTRAPOLATION = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, -1.0, 0.0], [3.0, -3.0, 1.0]]

Covariance = Callable[[Array], Any]


class Mixture(eqx.Module):
    r"""The covariance $Q(q) = \sum_p s_p q^p$ of a mixture of p-spin interactions; its parts can be annealed separately.

    >>> Q = Mixture({2: 0.5, 3: 1 / 3})
    >>> [round(float(part), 4) for part in Q(jnp.array(0.5))]
    [0.125, 0.0417]
    """

    powers: tuple[int, ...] = eqx.field(static=True)
    strengths: tuple[Any, ...]

    def __init__(self, strengths: Mapping[int, Any]):
        if not strengths or any(p < 1 or p != int(p) for p in strengths):
            raise InvalidValue(f"powers must be integers ≥ 1, not {sorted(strengths)}.")
        self.powers = tuple(sorted(int(p) for p in strengths))
        self.strengths = tuple(jnp.asarray(strengths[p], float) for p in self.powers)

    def __call__(self, q: Array) -> tuple[Array, ...]:
        return tuple(s * q**p for p, s in zip(self.powers, self.strengths, strict=True))


class TwoTime(NamedTuple):
    """A solved relaxation: the first axis is t, the second t'.

    Values are extrapolated from two step lengths. `error` is the estimated error, at every time, of the *finer* of the two
    solutions: the largest among correlation, response, overlap, energy and multiplier (the last two relative to one plus their
    size). The extrapolated values are more accurate. From the first time at which `error` exceeds the tolerance, or the step
    is too long for the multiplier, values are NaN and `converged` is false.
    """

    times: Float[Array, " time"]
    correlation: Float[Array, "time time"]
    response: Float[Array, "time time"]  # zero above the diagonal, one on it
    overlap: Float[Array, " time"]
    multiplier: Float[Array, " time"]
    energy: Float[Array, " time"]
    error: Float[Array, " time"]
    converged: Bool[Array, " time"]


def relax(
    covariance: Covariance,
    step: float | Array,
    steps: int,
    *,
    temperature: float | Array = 0.0,
    overlap: float | Array = 0.0,
    ridge: float | Array | None = None,
    couplings: Callable[[Array], Any] | None = None,
    signal: Covariance | None = None,
    tolerance: float | Array = 1e-3,
    block: int = BLOCK,
    accuracy: float = 1e-6,
) -> TwoTime:
    r"""Follow the two-time equations from a random start for `steps` steps of length `step`; values at every second one.

    **Arguments**

    - `covariance`: Q as a differentiable function of arrays, element by element, such as `Mixture`; its values are a single
      array, or a tuple of parts whose sum is Q.
    - `temperature`: zero gives gradient flow.
    - `overlap`: m(0) with the signal.
    - `ridge`: $\omega$ of a soft constraint with energy $\omega (C(t,t)-1)^2/4$; None for the sphere.
    - `couplings`: factors a(t) of the parts of Q, a tuple with one for each part: the covariance of the forces at t and s has
      its parts multiplied by a(t)a(s), the force of the signal by a(t), and the energy is that of the interactions at t. Steps
      keep their order where a is smooth, or has its kinks at a multiple of two steps.
    - `signal`: the mean of the landscape is minus this function of m, if it is not Q itself; with the same parts as Q.
    - `tolerance`: bound on `error`; values beyond it are NaN.

    The work is $O(n^3)$ and the memory $O(n^2)$. Map it with `jax.vmap` over whatever is an array.

    >>> both = jax.vmap(lambda T: relax(Mixture({3: 0.5}), 0.05, 40, temperature=T).energy[-1])(jnp.array([0.0, 0.5]))
    >>> bool(both[0] < both[1])
    True
    """
    if steps < 2 or steps % 2:
        raise InvalidValue(f"steps must be an even number ≥ 2, not {steps}.")
    landscape = Landscape.of(covariance, signal, couplings, temperature, overlap, ridge)
    return _relax(landscape, jnp.asarray(step, float), steps, jnp.asarray(tolerance, float), block, accuracy)


@eqx.filter_jit
def _relax(landscape: Landscape, step: Array, steps: int, tolerance: Array, block: int, accuracy: float) -> TwoTime:
    fine = _march(landscape, step, steps, block, accuracy)
    coarse = _march(landscape, 2 * step, steps // 2, block, accuracy)
    fine = jax.tree.map(lambda v: v[::2, ::2] if v.ndim == 2 else v[::2], fine)
    gap = jax.tree.map(lambda f, c: (f - c) / 3, fine, coarse)
    best = jax.tree.map(jnp.add, fine, gap)
    rows = [
        fine.change,
        jnp.max(jnp.abs(gap.correlation), axis=1),
        jnp.max(jnp.abs(gap.response), axis=1),
        jnp.abs(gap.overlap),
        jnp.abs(gap.energy) / (1 + jnp.abs(best.energy)),
        jnp.abs(gap.multiplier) / (1 + jnp.abs(best.multiplier)),
    ]
    error = jnp.max(jnp.stack(rows), axis=0)
    # Beyond h mu = 2 the coarser solution alternates in sign: agreement of the two solutions is then meaningless.
    good = (error <= tolerance) & (step * jnp.abs(best.multiplier) < 1)
    converged = jnp.cumsum(~good) == 0
    mask = jnp.where(converged, 1.0, jnp.nan)
    best = jax.tree.map(lambda v: v * (mask[:, None] * mask[None] if v.ndim == 2 else mask), best)
    times = 2 * step * jnp.arange(steps // 2 + 1, dtype=step.dtype)
    return TwoTime(times, *best[:-1], error=error, converged=converged)


class Landscape(NamedTuple):
    """The model as the equations see it: kernels of the noise and pull of the signal."""

    covariance: Covariance
    signal: Covariance | None
    couplings: Callable[[Array], Any] | None
    temperature: Array
    overlap: Array
    ridge: Array | None

    @classmethod
    def of(
        cls, covariance: Covariance, signal: Any, couplings: Any, temperature: Any, overlap: Any, ridge: Any
    ) -> Landscape:
        """Turn all numbers into arrays, so that a new value does not compile a new program."""
        number = lambda v: None if v is None else jnp.asarray(v, float)  # noqa: E731
        return cls(covariance, signal, couplings, number(temperature), number(overlap), number(ridge))  # type: ignore[arg-type]

    def factors(self, times: Array) -> list[Array] | None:
        return (
            None
            if self.couplings is None
            else [jnp.broadcast_to(a, times.shape) for a in _parts(self.couplings(times))]
        )

    def kernels(self, q: Array, rows: list[Array] | None, columns: list[Array] | None) -> tuple[Array, Array]:
        """Q' and Q'' at q, rows by columns."""
        first, second = _derivatives(self.covariance, q)
        scales = (
            None
            if rows is None or columns is None
            else [a[:, None] * b[None] for a, b in zip(rows, columns, strict=True)]
        )
        return _total(first, scales), _total(second, scales)

    def pull(self, m: Array, rows: list[Array] | None) -> tuple[Array, Array]:
        """The mean of the landscape at overlap m, with its sign changed, and its slope."""
        of = self.covariance if self.signal is None else self.signal
        value, slope = jax.jvp(lambda q: _parts(of(q)), (m,), (jnp.ones_like(m),))
        return _total(value, rows), _total(slope, rows)


def _parts(value: Any) -> list[Array]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _total(parts: list[Array], factors: list[Array] | None) -> Array:
    scaled = parts if factors is None else [a * p for a, p in zip(factors, parts, strict=True)]
    return functools.reduce(jnp.add, scaled)


def _derivatives(of: Covariance, q: Array) -> tuple[list[Array], list[Array]]:
    one = jnp.ones_like(q)
    slope = lambda q: jax.jvp(lambda q: _parts(of(q)), (q,), (one,))[1]  # noqa: E731
    return jax.jvp(slope, (q,), (one,))


class _Solution(NamedTuple):
    correlation: Array
    response: Array
    overlap: Array
    multiplier: Array
    energy: Array
    change: Array  # change of correlation and response by the last correction


class _Past(NamedTuple):
    """State passed from one block to the next. `response` has 1/2 on its diagonal: the end point of a trapezoid."""

    correlation: Array  # [N, N], symmetric, zero beyond the known rows
    response: Array  # [N, N]
    overlap: Array  # [N]
    force: tuple[_Force, ...]  # of the last blocks, the last one first
    multiplier: Array  # the last one
    norm: Array  # the last one


class _Rows(NamedTuple):
    """The rows of a block, up to the diagonal and, for the correlation, to the end of the block."""

    correlation: Array  # [B, N]
    response: Array  # [B, N]
    overlap: Array  # [B]
    multiplier: Array  # [B]
    norm: Array  # [B]
    change: Array  # [B]: by the last correction


class _Force(NamedTuple):
    """Everything on the right-hand sides but the multiplier, for the rows of a block."""

    correlation: Array  # [B, N]
    response: Array  # [B, N]
    overlap: Array  # [B]
    norm: Array  # [B]: the diagonal of `correlation`


def _march(landscape: Landscape, h: Array, steps: int, block: int, accuracy: float) -> _Solution:
    """Trapezoidal rules in t and in every memory integral, a block of rows at a time.

    The rows of a block solve an implicit equation: their forces are extrapolated along the diagonals, where a relaxation
    changes slowly, and then evaluated until the resulting rows change by at most `accuracy`.
    """
    block = min(block, steps + 1)
    blocks = -(-(steps + 1) // block)
    stages = max(1, min(MOST_STAGES, blocks * block // STAGE))
    ends = [-(-blocks * (s + 1) // stages) for s in range(stages)]
    size = ends[0] * block
    zeros = lambda *shape: jnp.zeros(shape)  # noqa: E731
    force = _Force(zeros(block, size), zeros(block, size), zeros(block), zeros(block))
    past = _Past(zeros(size, size), zeros(size, size), zeros(size), (force,) * PAST, zeros(), jnp.ones(()))
    begin, changes = 0, []
    for end in ends:
        grow = end * block - past.overlap.shape[0]
        square = lambda v, grow=grow: jnp.pad(v, ((0, grow), (0, grow)))  # noqa: E731
        wide = lambda v, grow=grow: jnp.pad(v, ((0, 0), (0, grow)))  # noqa: E731
        past = past._replace(
            correlation=square(past.correlation),
            response=square(past.response),
            overlap=jnp.pad(past.overlap, (0, grow)),
            force=tuple(f._replace(correlation=wide(f.correlation), response=wide(f.response)) for f in past.force),  # type: ignore[arg-type]
        )
        advance = lambda past, k: _advance(landscape, h, block, accuracy, past, k)  # noqa: E731
        past, change = jax.lax.scan(advance, past, jnp.arange(begin, end))
        changes.append(change.ravel())
        begin = end
    n = steps + 1
    response = past.response[:n, :n]
    change = jnp.concatenate(changes)[:n]
    return _measure(landscape, h, past.correlation[:n, :n], response, past.overlap[:n], change)


def _advance(
    landscape: Landscape, h: Array, block: int, accuracy: float, past: _Past, number: Array
) -> tuple[_Past, Array]:
    begin = number * block
    size = past.overlap.shape[0]
    columns = jnp.arange(size)
    factors = (
        landscape.factors(h * (begin + jnp.arange(block)).astype(h.dtype)),
        landscape.factors(h * columns.astype(h.dtype)),
    )
    # Extrapolate the forces by a polynomial: in t' at fixed t - t' for the later half of t', in t for the earlier half.
    known = jnp.minimum(number, PAST)
    weights = jnp.asarray(EXTRAPOLATION)[known]

    def foresee(of: Callable[[_Force], Array]) -> Array:
        old = [of(f) for f in past.force]
        ahead = _total(old, list(weights))
        if ahead.ndim == 1:
            return ahead
        along = _total([jnp.roll(v, (k + 1) * block, axis=1) for k, v in enumerate(old)], list(weights))
        return jnp.where(2 * columns[None] >= begin, along, ahead)

    force = _Force(*(foresee(lambda f, i=i: f[i]) for i in range(4)))

    # The loop carries only the rows of the block: the past is written once, when they are final.
    def sweep(carry: tuple[_Rows, _Force, Array]) -> tuple[_Rows, _Force, Array]:
        old, _, count = carry
        force = _evaluate(landscape, h, begin, past, old, factors)
        new = _correct(landscape, h, begin, past, force)
        change = jnp.maximum(jnp.abs(new.correlation - old.correlation), jnp.abs(new.response - old.response))
        return new._replace(change=jnp.max(change, axis=1)), force, count + 1

    def unfinished(carry: tuple[_Rows, _Force, Array]) -> Array:
        return (jnp.max(carry[0].change) > accuracy) & (carry[2] < MOST_SWEEPS)

    rows, force, _ = jax.lax.while_loop(
        unfinished, sweep, (_correct(landscape, h, begin, past, force), force, jnp.zeros((), int))
    )
    correlation = jax.lax.dynamic_update_slice(past.correlation, rows.correlation, (begin, 0))
    after = _Past(
        correlation=jax.lax.dynamic_update_slice(correlation, rows.correlation.T, (0, begin)),
        response=jax.lax.dynamic_update_slice(past.response, rows.response, (begin, 0)),
        overlap=jax.lax.dynamic_update_slice(past.overlap, rows.overlap, (begin,)),
        force=(force, *past.force[:-1]),
        multiplier=rows.multiplier[-1],
        norm=rows.norm[-1],
    )
    return after, rows.change


def _correct(landscape: Landscape, h: Array, begin: Array, past: _Past, force: _Force) -> _Rows:
    """The rows of the block that follow from its forces by the trapezoidal rule in t."""
    block, size = force.correlation.shape
    last = past.force[0]
    numbers, columns = begin + jnp.arange(block), jnp.arange(size)
    started = numbers > 0  # row 0 is the start
    lag = lambda of: jnp.concatenate([of(last)[-1:], of(force)[:-1]])  # noqa: E731

    if landscape.ridge is None:
        mu, norm = landscape.temperature + force.norm, jnp.ones(block)
    else:
        mu, norm = _soft(landscape.ridge, landscape.temperature, h, past, force, lag(lambda f: f.norm), started)
    mu_before = jnp.concatenate([past.multiplier[None], mu[:-1]])
    gain = 1 / (1 + h * mu / 2)
    ratio = jnp.where(started, (1 - h * mu_before / 2) * gain, 0.0)
    # x_i = ratio_i x_(i-1) + source_i, for all i at once: products of ratios between two rows.
    i = jnp.arange(block)
    products = jnp.cumprod(jnp.where(i[:, None] > i[None], ratio[:, None], 1.0), axis=0)
    transfer = jnp.where(i[:, None] >= i[None], products, 0.0)
    through = jnp.cumprod(ratio)

    lower, diagonal = columns[None] < numbers[:, None], columns[None] == numbers[:, None]
    row_before = lambda v: jax.lax.dynamic_index_in_dim(v, jnp.maximum(begin - 1, 0), keepdims=False)  # noqa: E731

    def trapezoid(of: Callable[[_Force], Array], start: Array) -> Array:
        return jnp.where(lower, (h / 2) * gain[:, None] * (of(force) + lag(of)), jnp.where(diagonal, start, 0.0))

    # The source of a diagonal entry is the entry itself; the recursion continues below it.
    c = transfer @ trapezoid(lambda f: f.correlation, norm[:, None])
    c = c + through[:, None] * jnp.where(columns < begin, row_before(past.correlation), 0.0)[None]
    r = transfer @ trapezoid(lambda f: f.response, jnp.ones((block, 1)))
    r = r + through[:, None] * (jnp.where(columns == begin - 1, 2.0, 1.0) * row_before(past.response))[None]
    source = jnp.where(started, (h / 2) * gain * (force.overlap + lag(lambda f: f.overlap)), landscape.overlap)
    m = transfer @ source + through * row_before(past.overlap)

    square = jax.lax.dynamic_slice(c, (0, begin), (block, block))
    c = jax.lax.dynamic_update_slice(c, square + jnp.tril(square, -1).T, (0, begin))
    return _Rows(c, jnp.where(diagonal, 0.5, r), m, mu, norm, jnp.full(block, jnp.inf))


def _soft(
    ridge: Array, T: Array, h: Array, past: _Past, force: _Force, lagged: Array, started: Array
) -> tuple[Array, Array]:
    """Multipliers and squared norms under a soft constraint; each step is a quadratic equation for the norm."""

    def step(norm: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        now, before, started = row
        rest = norm * (1 - h * ridge * (norm - 1)) + 2 * h * T + h * (now + before)
        linear = 1 - h * ridge  # h ridge x^2 + (1 - h ridge) x = rest
        new = 2 * rest / (linear + jnp.sqrt(linear**2 + 4 * h * ridge * rest))
        new = jnp.where(started, new, 1.0)
        return new, new

    _, norm = jax.lax.scan(step, past.norm, (force.norm, lagged, started))
    return ridge * (norm - 1), norm


def _evaluate(
    landscape: Landscape, h: Array, begin: Array, past: _Past, rows: _Rows, factors: tuple[Any, Any]
) -> _Force:
    """The forces on the block's rows, by the trapezoidal rule over all earlier times, including those of the block."""
    block, size = rows.correlation.shape
    columns, numbers = jnp.arange(size), begin + jnp.arange(block)
    inside = lambda v: jax.lax.dynamic_slice(v, (0, begin), (block, block))  # noqa: E731
    place = lambda v, square: jax.lax.dynamic_update_slice(v, square, (0, begin))  # noqa: E731
    c, r = rows.correlation, rows.response
    first, second = landscape.kernels(c, *factors)
    noise, memory = jnp.where(columns[None] <= numbers[:, None], first, 0.0), second * r
    _, pull = landscape.pull(rows.overlap, factors[0])
    m = jax.lax.dynamic_update_slice(past.overlap, rows.overlap, (begin,))
    newest = inside(memory)

    forced = memory @ past.correlation + noise @ past.response.T + newest @ c
    forced = place(forced, memory @ c.T + noise @ r.T)
    # The trapezoidal rule has half weights at both ends: at t and t' by the diagonal of the response, at zero here.
    start = jnp.where(numbers == 0, 1.0, 0.5) * memory[:, 0]
    to_start = place(past.response[:, :1].T, r[:, :1].T)[0] * jnp.where(columns == 0, 1.0, 0.5)
    from_start = place(past.correlation[:1], c[:, :1].T)[0]
    correlation = (
        h * (forced - start[:, None] * from_start[None] - noise[:, :1] * to_start[None]) + pull[:, None] * m[None]
    )
    response = jnp.where(columns[None] < numbers[:, None], h * (memory @ past.response + newest @ r), 0.0)
    overlap = pull + h * (memory @ m - start * m[0])
    return _Force(correlation, response, overlap, jnp.diagonal(inside(correlation)))


def _measure(
    landscape: Landscape, h: Array, correlation: Array, response: Array, overlap: Array, change: Array
) -> _Solution:
    """Multiplier and energy at every time, from the final correlation and response."""
    times = h * jnp.arange(overlap.shape[0], dtype=h.dtype)
    factors = landscape.factors(times)
    first, second = landscape.kernels(correlation, factors, factors)
    value, pull = landscape.pull(overlap, factors)
    weighted = response.at[:, 0].mul(0.5).at[0, 0].set(0.0)  # trapezoids from zero to t
    gained = h * jnp.sum(weighted * first, axis=1)
    norm = jnp.diagonal(correlation)
    energy = -value - gained
    if landscape.ridge is None:
        mu = landscape.temperature + overlap * pull + gained + h * jnp.sum(weighted * second * correlation, axis=1)
    else:
        mu = landscape.ridge * (norm - 1)
        energy = energy + landscape.ridge / 4 * (norm - 1) ** 2
    whole = response + 0.5 * jnp.eye(overlap.shape[0])
    return _Solution(correlation, whole, overlap, mu, energy, change)
