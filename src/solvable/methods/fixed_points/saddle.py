"""Saddle points: fixed points x = F(x, args), with residuals, implicit derivatives, branches and spinodals.

Besides its solution every solver returns the residual, the number of steps and whether it converged. A solution that did
not converge is NaN, in value and in derivative. `vmap` solves many points at once; lanes do not affect each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .linear_algebra import solve_small

Update = Callable[[Float[Array, " n"], Any], Float[Array, " n"]]

ROUGH = 1e-4
"""How closely a rough update is solved: about as closely as rough averages are worth."""


class Solution(NamedTuple):
    """A fixed point and how well it was found."""

    x: Float[Array, " n"]
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


def solve(
    update: Update,
    start: Float[Array, " n"],
    args: Any,
    *,
    tolerance: float | Float[Array, ""] = 1e-12,
    warmup: int = 0,
    damping: float = 1.0,
    max_steps: int | Int[Array, ""] = 300,
    memory: int = 0,
    reach: float = 3.0,
    rough: Update | None = None,
    jacobian: Float[Array, "n n"] | None = None,
) -> Solution:
    """Find the fixed point x = update(x, args) that is reached from `start`.

    First come `warmup` damped iterations (Anderson-accelerated when `memory` > 0, for too many unknowns for a Jacobian).
    Then quasi-Newton steps follow (Jacobian by differences, updated by Broyden's formula), none longer than `reach` in
    any unknown (choose unknowns of order one, logarithms for instance), each judged by the residual
    max|x − F(x)|/(1+|x|). `max_steps` counts evaluations of F. The derivative with respect to `args` is implicit: one
    linear solve at the fixed point.

    A `rough` update, cheaper and almost the same (an average with fewer nodes, say), is solved first to `ROUGH`; the
    search begins from its solution and Jacobian. It affects how soon a fixed point is found, never its value. So does a
    `jacobian` ∂F/∂x known from a neighbouring fixed point (`approach`).

    >>> magnet = lambda m, beta: jnp.tanh(beta * m)
    >>> found = solve(magnet, jnp.asarray([1.0]), jnp.asarray(1.5))
    >>> round(float(found.x[0]), 8), bool(found.converged)
    (0.85855964, True)
    """
    options = (tolerance, warmup, damping, max_steps, memory, reach)
    return Solution(
        *_fixed_point(
            args, update=update, rough=rough, start=jax.lax.stop_gradient(start), options=options, known=jacobian
        )
    )


def approach(
    update: Update,
    start: Float[Array, " n"],
    path: Callable[[Array], Any],
    places: Float[Array, " k"],
    *,
    tolerance: float = ROUGH,
    max_steps: int = 40,
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Follow a fixed point of `update(x, path(place))` along `places`: a start and a Jacobian for `solve` at the next one.

    Places are evenly spaced: each search starts at a linear extrapolation, with the Jacobian of the one before. A place
    where the search fails is skipped. There is no derivative through it.

    >>> magnet = lambda m, beta: jnp.tanh(beta * m)
    >>> x, jacobian = approach(magnet, jnp.asarray([0.99]), lambda beta: beta, jnp.asarray([2.0, 1.8, 1.6]))
    >>> found = solve(magnet, x, jnp.asarray(1.4), jacobian=jacobian)
    >>> round(float(found.x[0]), 8), bool(found.converged)
    (0.81452853, True)
    """

    def move(state, place):
        x, before, known, jacobian = state
        args = jax.tree.map(jax.lax.stop_gradient, path(place))
        guess = x + (x - before) * known
        found, residual, _, jacobian = _search(update, guess, args, tolerance, 0, 1.0, max_steps, 0, 3.0, jacobian)
        fine = residual <= tolerance
        return (jnp.where(fine, found, x), x, 1.0, jnp.where(fine, jnp.asarray(jacobian), 0.0)), None

    start = jax.lax.stop_gradient(start)
    n = start.shape[0]
    first = (start, start, 0.0, jnp.zeros((n, n), start.dtype))
    (x, before, known, jacobian), _ = jax.lax.scan(move, first, places)
    return x + (x - before) * known, jacobian


def attached(update: Update, x: Float[Array, " n"], args: Any) -> Float[Array, " n"]:
    """Attach the implicit derivative with respect to `args` to a fixed point found elsewhere.

    >>> magnet = lambda m, beta: jnp.tanh(beta * m)
    >>> at = lambda beta: attached(magnet, jnp.asarray([0.85855964]), beta)[0]
    >>> round(float(jax.grad(at)(jnp.asarray(1.5))), 4)
    0.3726
    """
    return _attached(args, update=update, x=jax.lax.stop_gradient(x))


@eqx.filter_custom_jvp
def _attached(args, *, update, x):
    return x


@_attached.def_jvp
def _attached_jvp(primals, tangents, *, update, x):
    (args,), (dargs,) = primals, tangents
    return x, _implicit(update, x, args, dargs)


def _implicit(update, x, args, dargs):
    """dx = (1 − ∂F/∂x)⁻¹ ∂F/∂args dargs: a plain linear solve per lane, NaN where x is NaN."""
    _, moved = eqx.filter_jvp(lambda a: update(x, a), (args,), (dargs,))
    jacobian = jax.jacfwd(lambda y: update(y, args))(x)
    return solve_small(jnp.eye(x.shape[0], dtype=x.dtype) - jacobian, moved)


@eqx.filter_custom_jvp
def _fixed_point(args, *, update, rough, start, options, known):
    jacobian, before = known, 0
    if rough is not None:
        found, residual, before, jacobian = _search(rough, start, args, ROUGH, *options[1:])
        # If the rough search fails, start as if there were no rough update.
        near = residual <= ROUGH
        start, jacobian = jnp.where(near, found, start), None if jacobian is None else jnp.where(near, jacobian, 0.0)
    x, residual, steps, _ = _search(update, start, args, *options, jacobian=jacobian)
    steps = steps + before
    converged = residual <= options[0]
    return jnp.where(converged, x, jnp.nan), residual, steps, converged


@_fixed_point.def_jvp
def _fixed_point_jvp(primals, tangents, *, update, rough, start, options, known):
    (args,), (dargs,) = primals, tangents
    x, residual, steps, converged = _fixed_point(
        args, update=update, rough=rough, start=start, options=options, known=known
    )
    dx = _implicit(update, x, args, dargs)
    return (x, residual, steps, converged), (dx, jnp.zeros_like(residual), None, None)


def _distance(x: Array, moved: Array) -> Array:
    gap = jnp.max(jnp.abs(moved - x) / (1 + jnp.abs(x)))
    return jnp.where(jnp.isfinite(gap), gap, jnp.inf)


def _search(update, start, args, tolerance, warmup, damping, max_steps, memory, reach, jacobian=None):
    """The point, its residual, the number of evaluations, and the Jacobian, for which an estimate may be given."""

    def f(x):
        return update(x, args)

    def blend(x, moved):
        return (1 - damping) * x + damping * moved

    x = start
    if warmup:
        x = _anderson(f, start, warmup, damping, memory) if memory else jax.lax.fori_loop(
            0, warmup, lambda _, y: blend(y, f(y)), start
        )  # fmt: skip
    x = jnp.where(jnp.all(jnp.isfinite(x)), x, start)

    if memory:  # many unknowns: no Jacobian, keep accelerating

        def far(state):
            x, residual, step = state
            return (residual > tolerance) & (step < max_steps)

        def burst(state):
            x, _, step = state
            x = _anderson(f, x, warmup, damping, memory)
            return x, _distance(x, f(x)), step + warmup

        first = (x, _distance(x, f(x)), jnp.asarray(warmup))
        return *jax.lax.while_loop(far, burst, first), None

    n = x.shape[0]
    identity = jnp.eye(n, dtype=x.dtype)
    nudge = float(jnp.finfo(x.dtype).eps) ** 0.5

    # One evaluation of F per turn, so that F is compiled once. In phases 0..n-1 the turn probes a neighbour of the base
    # point and fills a column of the Jacobian; in phase n it judges a step and, if that was good, updates the Jacobian
    # by Broyden's formula.
    def unfinished(state):
        return (state.steps < max_steps) & ((state.residual > tolerance) | state.gained)

    def body(s: _Turn) -> _Turn:
        moved = f(s.trial)
        probing = s.phase < n
        change = moved - s.base_moved

        column = (change / s.move_size)[:, None]
        jacobian = jnp.where(probing & (jnp.arange(n) == s.phase)[None, :], column, s.jacobian)

        residual = _distance(s.trial, moved)
        # Saddle points hide behind flat stretches where the residual rises before it falls, so a step may raise it a
        # hundredfold; a worse step is shortened, and eventually replaced by a damped iteration.
        allowed = jnp.where(s.residual > tolerance, 100 * s.residual, s.residual)
        accepted = ~probing & (residual < allowed)
        rejected = ~probing & ~accepted
        shorter = 0.25 * s.move
        exhausted = rejected & (jnp.max(jnp.abs(shorter)) < 1e-3 * reach)
        length = s.move @ s.move
        surprise = jnp.where(length > 0, change - s.jacobian @ s.move, 0.0)
        broyden = jacobian + surprise[:, None] * (s.move / jnp.where(length > 0, length, 1.0))[None, :]
        jacobian = jnp.where(accepted, broyden, jacobian)

        base = jnp.where(accepted, s.trial, s.base)
        base_moved = jnp.where(accepted, moved, s.base_moved)
        base_residual = jnp.where(accepted, residual, s.residual)
        # The Jacobian is computed again when its steps stop halving the residual, and after a damped iteration.
        stale = accepted & ~(residual < 0.5 * s.residual)
        phase = jnp.where(probing, s.phase + 1, jnp.where(stale | exhausted, 0, n))

        newton = solve_small(identity - jacobian, base_moved - base)
        newton = jnp.where(jnp.all(jnp.isfinite(newton)), newton, damping * (base_moved - base))
        newton = newton * jnp.minimum(1.0, reach / jnp.max(jnp.abs(newton)))
        step = jnp.where(exhausted, damping * (base_moved - base), jnp.where(rejected, shorter, newton))
        # A damped iteration is not judged: its point is the new base, whatever the residual.
        judged_anew = exhausted & (s.residual > tolerance)
        h = nudge * (1 + jnp.abs(base))
        probe = jnp.where(jnp.arange(n) == phase, h, 0.0)
        probes = (phase < n) & ~exhausted
        return _Turn(
            base=base,
            base_moved=base_moved,
            residual=jnp.where(judged_anew, jnp.inf, base_residual),
            jacobian=jacobian,
            trial=base + jnp.where(probes, probe, step),
            move=step,
            move_size=jnp.max(probe),
            phase=jnp.where(exhausted, n, phase),
            steps=s.steps + 1,
            # Below the tolerance, continue only while each step gains a digit.
            gained=jnp.where(probing, s.gained, accepted & (residual > 0) & (residual < 0.1 * s.residual)),
        )

    first = _Turn(
        base=x,
        base_moved=x,
        residual=jnp.asarray(jnp.inf, x.dtype),
        jacobian=jnp.zeros((n, n), x.dtype) if jacobian is None else jacobian,
        trial=x,
        move=jnp.zeros_like(x),
        move_size=jnp.ones((), x.dtype),
        phase=jnp.asarray(n),
        steps=jnp.asarray(warmup),
        gained=jnp.asarray(True),
    )
    last = jax.lax.while_loop(unfinished, body, first)
    return last.base, last.residual, last.steps, last.jacobian


class _Turn(NamedTuple):
    base: Array
    base_moved: Array
    residual: Array
    jacobian: Array
    trial: Array
    move: Array
    move_size: Array
    phase: Array
    steps: Array
    gained: Array


def _anderson(f, start, steps, damping, memory):
    """`steps` iterations of Anderson's acceleration (type II) with a window of `memory` past differences."""
    n = start.shape[0]
    moved = f(start)
    gap = moved - start
    first = start + damping * gap
    empty = jnp.zeros((memory, n), start.dtype)

    def body(i, state):
        x, x_old, gap_old, dx, dg = state
        gap = f(x) - x
        slot = i % memory
        dx = dx.at[slot].set(x - x_old)
        dg = dg.at[slot].set(gap - gap_old)
        gram = dg @ dg.T
        ridge = 1e-12 * jnp.trace(gram) + jnp.finfo(x.dtype).tiny
        weights = solve_small(gram + ridge * jnp.eye(memory, dtype=x.dtype), dg @ gap)
        new = x + damping * gap - weights @ (dx + damping * dg)
        new = jnp.where(jnp.all(jnp.isfinite(new)), new, x + damping * gap)
        return new, x, gap, dx, dg

    return jax.lax.fori_loop(0, steps - 1, body, (first, start, gap, empty, empty))[0]


# --- several solutions --------------------------------------------------------------------------------------------------


class Branches(NamedTuple):
    """Distinct solutions, lowest free energy first, NaN-padded to a fixed number."""

    x: Float[Array, "branch n"]
    free_energy: Float[Array, " branch"]
    stable: Bool[Array, " branch"]
    residual: Float[Array, " branch"]
    found: Bool[Array, " branch"]


def branches(
    update: Update,
    starts: Float[Array, "starts n"],
    args: Any,
    *,
    free_energy: Callable[[Float[Array, " n"], Any], Float[Array, ""]] | None = None,
    most: int = 4,
    separation: float = 1e-6,
    **options: Any,
) -> Branches:
    """All fixed points reached from `starts`, clustered, with free energy and stability under iteration.

    A solution is *stable* when the spectral radius of ∂F/∂x is below one. Without a free energy, branches are in the
    order of their starts.

    >>> magnet = lambda m, beta: jnp.tanh(beta * m)
    >>> found = branches(magnet, jnp.asarray([[-1.0], [0.0], [1.0]]), jnp.asarray(1.5))
    >>> found.x[:3, 0].round(4).tolist(), found.stable[:3].tolist()
    ([-0.8586, 0.0, 0.8586], [True, False, True])
    """
    solutions = jax.vmap(lambda s: solve(update, s, args, **options))(starts)
    x = solutions.x
    scale = 1 + jnp.abs(x)
    apart = jnp.max(jnp.abs(x[:, None, :] - x[None, :, :]) / scale[:, None, :], axis=-1)
    earlier = jnp.tril(jnp.ones(apart.shape, bool), k=-1)
    repeated = jnp.any(earlier & (apart < separation) & solutions.converged[None, :], axis=1)
    new = solutions.converged & ~repeated
    energy = jax.vmap(lambda s: free_energy(s, args))(x) if free_energy else jnp.arange(x.shape[0], dtype=x.dtype)
    order = jnp.argsort(jnp.where(new, energy, jnp.inf))
    order = jnp.pad(order, (0, max(0, most - order.shape[0])), constant_values=0)[:most]
    kept = new[order] & (jnp.arange(most) < jnp.sum(new))

    def radius(point):
        return spectral_radius(jax.jacfwd(update)(jnp.nan_to_num(point), args))

    def pad(values):
        shape = (most,) + (1,) * (values.ndim - 1)
        return jnp.where(kept.reshape(shape), values[order], jnp.nan)

    stable = jax.vmap(radius)(x)[order] < 1
    shown = pad(energy) if free_energy else jnp.full(most, jnp.nan)
    return Branches(pad(x), shown, stable & kept, pad(solutions.residual), kept)


def spectral_radius(matrix: Float[Array, "n n"], squarings: int = 24) -> Float[Array, ""]:
    """The largest |eigenvalue| of a general real matrix, as lim |Mᵏ|^{1/k} by repeated squaring (relative error 1e-6).

    JAX computes general eigenvalues on the CPU only; this runs anywhere.

    >>> round(float(spectral_radius(jnp.asarray([[0.0, 2.0], [-2.0, 0.0]]))), 6)
    2.0
    """

    def square(k, state):
        power, total = state
        size = jnp.maximum(jnp.max(jnp.abs(power)), jnp.finfo(power.dtype).tiny)
        power = power / size
        return power @ power, total + jnp.log(size) * 0.5**k

    start = (matrix, jnp.zeros((), matrix.dtype))
    return jnp.exp(jax.lax.fori_loop(0, squarings, square, start)[1])


# --- following a branch through its folds ----------------------------------------------------------------------------------


class Path(NamedTuple):
    """A branch followed along a control parameter, through folds."""

    x: Float[Array, "steps n"]
    control: Float[Array, " steps"]
    direction: Float[Array, " steps"]
    converged: Bool[Array, " steps"]


def follow(
    update: Callable[[Float[Array, " n"], Float[Array, ""]], Float[Array, " n"]],
    start: Float[Array, " n"],
    control: float | Float[Array, ""],
    *,
    towards: float = 1.0,
    step: float = 0.05,
    steps: int = 200,
    corrections: int = 8,
    tolerance: float = 1e-10,
) -> Path:
    """Pseudo-arclength continuation of x = update(x, control) from a solution at `control`.

    The sign of `towards` gives the initial direction. Steps have length `step` in the joint space (x, control), so folds
    are passed smoothly: `direction` is the control's component of the unit tangent and changes sign at each spinodal.
    """
    n = start.shape[0]

    def gap(z):
        return z[:n] - update(z[:n], z[n])

    def tangent(z, previous):
        jacobian = jax.jacfwd(gap)(z)
        bordered = jnp.concatenate([jacobian, previous[None, :]])
        t = solve_small(bordered, jnp.zeros(n + 1).at[n].set(1.0))
        return t / jnp.linalg.norm(t)

    def correct(z, t, guess):
        def body(_, z):
            system = jnp.concatenate([gap(z), jnp.asarray([t @ (z - guess)])])
            jacobian = jnp.concatenate([jax.jacfwd(gap)(z), t[None, :]])
            return z - solve_small(jacobian, system)

        return jax.lax.fori_loop(0, corrections, body, z)

    def advance(state, _):
        z, t = state
        t = tangent(z, t)
        guess = z + step * t
        z = correct(guess, t, guess)
        fine = jnp.max(jnp.abs(gap(z)) / (1 + jnp.abs(z[:n]))) <= tolerance
        return (z, t), (z, tangent(z, t)[n], fine)

    z0 = jnp.append(start, jnp.asarray(control, start.dtype))
    t0 = jnp.zeros(n + 1).at[n].set(jnp.sign(towards))
    _, (z, direction, fine) = jax.lax.scan(advance, (z0, t0), None, length=steps)
    fine = jnp.cumprod(fine.astype(jnp.int32)).astype(bool)
    return Path(
        jnp.where(fine[:, None], z[:, :n], jnp.nan),
        jnp.where(fine, z[:, n], jnp.nan),
        jnp.where(fine, direction, jnp.nan),
        fine,
    )


def spinodals(
    update: Callable[[Float[Array, " n"], Float[Array, ""]], Float[Array, " n"]],
    path: Path,
    *,
    most: int = 4,
    steps: int = 20,
    tolerance: float = 1e-9,
) -> tuple[Float[Array, "most n"], Float[Array, " most"]]:
    """The folds along a followed branch, refined by Newton on {x = F, (1 − ∂F/∂x)v = 0, |v| = 1}; NaN-padded.

    >>> magnet = lambda m, h: jnp.tanh(1.5 * m + h)
    >>> path = follow(magnet, jnp.asarray([0.95]), 0.5, towards=-1.0)
    >>> x, h = spinodals(magnet, path)
    >>> [round(float(v), 6) for v in h[:2]]
    [-0.207546, 0.207546]
    """
    n = path.x.shape[1]
    turn = (path.direction[1:] * path.direction[:-1] < 0) & path.converged[1:]
    order = jnp.argsort(~turn, stable=True)[:most]
    kept = turn[order]

    def system(u):
        x, v, c = u[:n], u[n : 2 * n], u[2 * n]
        moved, slope = jax.jvp(lambda y: update(y, c), (x,), (v,))
        return jnp.concatenate([x - moved, v - slope, jnp.asarray([v @ v - 1])])

    def refine(i):
        x = 0.5 * (path.x[i] + path.x[i + 1])
        c = 0.5 * (path.control[i] + path.control[i + 1])
        along = path.x[i + 1] - path.x[i]
        u = jnp.concatenate([x, along / jnp.linalg.norm(along), c[None]])
        u = jax.lax.fori_loop(0, steps, lambda _, u: u - solve_small(jax.jacfwd(system)(u), system(u)), u)
        fine = jnp.max(jnp.abs(system(u))) <= tolerance
        return jnp.where(fine, u, jnp.nan)

    u = jax.vmap(refine)(order)
    u = jnp.where(kept[:, None], u, jnp.nan)
    return u[:, :n], u[:, 2 * n]
