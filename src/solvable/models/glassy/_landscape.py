"""The spiked matrix-tensor landscape: its covariance, its two-time equations, and finite systems drawn from it.

A signal x* with |x*|² = N is seen through a noisy matrix and a noisy tensor of order p,

    Y_ij = x*_i x*_j/√N + noise of variance Δ₂,    T_{i1…ip} = √((p-1)!) N^{-(p-1)/2} x*_{i1}…x*_{ip} + noise of variance Δ_p.

The negative log-likelihood of a guess x with |x|² = N is H(x) = -N Q(m) + Gaussian noise of covariance N Q(x·y/N), where
m = x·x*/N and Q(q) = q²/(2Δ₂) + q^p/(pΔ_p).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from solvable.errors import InvalidValue
from solvable.methods.flows.descent import descend, on_sphere
from solvable.methods.flows.two_time import Mixture, relax

DEGREE = 120  # random groups of each order to which a site of a diluted system belongs
LEAST_BARRIER = 10.0  # in units of the temperature, against condensation of a diluted system
RULERS = {2: (0, 1), 3: (0, 1, 3)}  # Golomb rulers: all differences of marks differ
MOST_ENTRIES = 1e9  # of a dense tensor
RESOLUTION = 0.1  # step of a simulated flow, times the curvature of its landscape


class Covariance(NamedTuple):
    """Q(q) = βq²/2 + cq^p/p with the strengths β = 1/Δ₂ (`matrix`) and c = 1/Δ_p (`tensor`), and its first two derivatives."""

    matrix_noise: Any
    tensor_noise: Any
    order: int

    @property
    def matrix(self) -> Any:
        return 1 / self.matrix_noise

    @property
    def tensor(self) -> Any:
        return 1 / self.tensor_noise

    def value(self, q: Any) -> Any:
        return 0.5 * self.matrix * q**2 + self.tensor * q**self.order / self.order

    def slope(self, q: Any) -> Any:
        return self.matrix * q + self.tensor * q ** (self.order - 1)

    def curvature(self, q: Any) -> Any:
        return self.matrix + (self.order - 1) * self.tensor * q ** (self.order - 2)


# --- two-time equations -------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The two-time solution at the requested times, `converged` while the error that the solver reports is small enough."""

    overlap: Float[Array, " time"]
    energy: Float[Array, " time"]
    multiplier: Float[Array, " time"]
    correlation: Float[Array, "time waiting"]
    converged: Bool[Array, " time"]


def read_path(
    covariance: Covariance,
    times: Float[Array, " time"],
    waiting: Float[Array, " waiting"],
    steps: int,
    *,
    tolerance: float,
    temperature: Array | float,
    overlap: Array,
    couplings: Callable[[Array], tuple[Array, Array]] | None = None,
) -> Reading:
    """Solve the two-time equations up to the last time on about `steps` steps, and interpolate between them.

    C(t, t') has a kink at t = t', but is smooth in t' and t - t': it is interpolated in these variables.
    """
    count = steps // 2
    spare = 2  # grid points beyond the last time, so that every pair of times has a full square of points around it
    step = times[-1] / (2 * count)
    strengths = {2: 1 / (2 * covariance.matrix_noise)}
    strengths[covariance.order] = 1 / (covariance.order * covariance.tensor_noise)
    path = relax(
        Mixture(strengths), step, 2 * (count + spare), temperature=temperature, overlap=overlap, couplings=couplings,
        tolerance=tolerance, accuracy=1e-9,  # tight, since the number of sweeps may differ between nearby points
    )  # fmt: skip

    def stencil(t: Array) -> tuple[Array, Array]:
        place = t / (2 * step)
        near = jnp.round(place)
        place = jnp.where(jnp.abs(place - near) < 1e-9 * (1 + near), near, place)  # snap to grid points
        first = jnp.maximum(jnp.ceil(place) - STENCIL + 1, 0.0)
        return first.astype(jnp.int32), _lagrange(place - first)

    def along(values: Array, t: Array) -> Array:
        first, weights = stencil(t)
        return weights @ jax.lax.dynamic_slice(values, (first,), (STENCIL,))

    def between(t: Array, earlier: Array) -> Array:
        earlier, t = jnp.minimum(t, earlier), jnp.maximum(t, earlier)
        (row, row_weights), (lag, lag_weights) = stencil(earlier), stencil(t - earlier)
        near = jnp.arange(STENCIL, dtype=jnp.int32)
        i, k = row + near, lag + near
        return row_weights @ path.correlation[i[:, None] + k[None, :], i[:, None]] @ lag_weights

    overlaps, energies, multipliers = (
        jax.vmap(lambda t, v=v: along(v, t))(times) for v in (path.overlap, path.energy, path.multiplier)
    )
    correlation = jax.vmap(lambda t: jax.vmap(lambda w: between(t, w))(waiting))(times)
    node = jnp.ceil(times / (2 * step) - 1e-6).astype(jnp.int32)
    converged = path.converged[jnp.clip(node, STENCIL - 1, count)]
    return Reading(overlaps, energies, multipliers, correlation, converged)


STENCIL = 6  # points of an interpolation


def _lagrange(place: Array) -> Array:
    """Weights of the values at 0, 1, …, STENCIL - 1 in the interpolating polynomial at `place`."""
    nodes = jnp.arange(STENCIL, dtype=float)
    apart = jnp.where(jnp.eye(STENCIL, dtype=bool), 1.0, nodes[:, None] - nodes[None, :])
    factors = jnp.where(jnp.eye(STENCIL, dtype=bool), 1.0, (place - nodes)[None, :] / apart)
    return jnp.prod(factors, axis=1)


# --- finite systems -----------------------------------------------------------------------------------------------------


class System(NamedTuple):
    """A drawn landscape and its mirror image, the same noise with the opposite sign.

    `force(x, tensor)` and `measure(x, tensor)` (energy and radial force x·F per dimension) take a pair of points, one for each
    sign, and the factor of the tensor. `start` is a random point of the sphere with a given overlap with the signal.
    """

    signal: Float[Array, " site"]
    signs: Float[Array, "sign one"]
    start: Float[Array, "sign site"]
    force: Callable[[Array, Array | float], Array]
    measure: Callable[[Array, Array | float], tuple[Array, Array]]


def draw_system(key: Array, size: int, covariance: Covariance, overlap: Array, kind: str, dtype: Any) -> System:
    """Draw noise, signal and start: a `dense` tensor of independent entries, or a `diluted` one with a few groups at each site.

    The dense one has the exact covariance at any size. In the diluted one every site is in `DEGREE` random groups of each
    order, with couplings ± of a size that makes the covariance the same; its memory and time are linear in the size.
    `check_dilution` says where it can be used.
    """
    if kind == "dense" and size**covariance.order > MOST_ENTRIES:
        most = int(MOST_ENTRIES ** (1 / covariance.order) + 1e-9)
        advice = "; use disorder = 'diluted'" if covariance.order == 3 else ""
        raise InvalidValue(
            f"size = {size} exceeds {most}, the largest for a dense tensor of order {covariance.order}{advice}."
        )
    orders, keys = (2, covariance.order), jax.random.split(key, 3)
    copies = [DEGREE // order for order in orders]
    shapes = [
        (size,) * order if kind == "dense" else (number, size) for order, number in zip(orders, copies, strict=True)
    ]
    drawn = jax.random.normal(keys[0], (2 * size + sum(map(math.prod, shapes)),), dtype)  # one call compiles faster
    signal, across, *noise = jnp.split(drawn, np.cumsum([size, size, math.prod(shapes[0])]))
    signal = on_sphere(signal)
    across = on_sphere(across - (across @ signal / size) * signal)
    m = overlap.astype(dtype)
    start = m * signal + jnp.sqrt(1 - m**2) * across
    noise = [values.reshape(shape) for values, shape in zip(noise, shapes, strict=True)]
    if kind == "dense":
        noise_forces = [dense_force(values) for values in noise]
    else:
        noise_forces = [_diluted(k, values, order) for k, values, order in zip(keys[1:], noise, orders, strict=True)]
    scales = 1 / covariance.matrix_noise.astype(dtype), 1 / covariance.tensor_noise.astype(dtype)
    signs = jnp.asarray([[1.0], [-1.0]], dtype)

    def parts(x: Array) -> list[Array]:
        """The force of the matrix and that of the tensor, noise and signal together."""
        m = x @ signal / size
        found = []
        for order, scale, noise in zip(orders, scales, noise_forces, strict=True):
            found.append(signs * jnp.sqrt(scale) * noise(x) + scale * (m ** (order - 1))[:, None] * signal[None, :])
        return found

    def force(x: Array, tensor: Array | float = 1.0) -> Array:
        matrix_part, tensor_part = parts(x)
        return matrix_part + tensor * tensor_part

    def measure(x: Array, tensor: Array | float = 1.0) -> tuple[Array, Array]:
        matrix_part, tensor_part = (jnp.sum(x * part, axis=1) / size for part in parts(x))
        return -matrix_part / 2 - tensor * tensor_part / covariance.order, matrix_part + tensor * tensor_part

    return System(signal, signs, jnp.stack([start, start]), force, measure)


def dense_force(g: Array) -> Callable[[Array], Array]:
    """The force -∇h of h(x) = -(order N^{order-1})^{-1/2} Σ G_{i…k} x_i…x_k with independent normal G."""
    order, size = g.ndim, len(g)
    # the derivative with respect to each index in turn, moved to the front
    moved = sum((jnp.moveaxis(g, place, 0) for place in range(1, order)), g) / math.sqrt(order * size ** (order - 1))

    def force(x: Array) -> Array:
        rest = (moved.reshape(-1, size) @ x.T).reshape(-1, size, len(x)) if order > 2 else (moved @ x.T)
        for left in range(order - 2, 0, -1):
            rest = jnp.einsum("ajs,sj->as", rest, x)
            rest = rest.reshape(-1, size, len(x)) if left > 1 else rest
        return rest.T

    return force


def draw_groups(key: Array, g: Float[Array, "copy site"], order: int) -> tuple[Array, Array]:
    """The other sites of each site's groups, and the groups' couplings ±1, of a diluted tensor: (order - 1, group, site).

    Group i of a copy holds the sites i + r in a random order of all sites, for the marks r of a Golomb ruler: its
    sites are distinct, and no two groups of a copy share more than one.
    """
    copies, size = g.shape
    shuffled = jax.vmap(lambda k: jax.random.permutation(k, size))(jax.random.split(key, copies))
    place = jnp.argsort(shuffled, axis=1)  # of each site in this order
    values = jnp.sign(g) / math.sqrt(order * copies)
    marks = RULERS[order]
    neighbours, couplings = [], []
    for mark in marks:
        group = (place - mark) % size  # the group in which a site has this mark
        others = [jnp.take_along_axis(shuffled, (group + o) % size, axis=1) for o in marks if o != mark]
        neighbours.append(jnp.stack(others))
        couplings.append(jnp.take_along_axis(values, group, axis=1))
    return jnp.concatenate(neighbours, axis=1), jnp.concatenate(couplings)


def _diluted(key: Array, g: Float[Array, "copy site"], order: int) -> Callable[[Array], Array]:
    """The same force with only a few copies of N groups of sites and couplings ±1."""
    near, coupling = draw_groups(key, g, order)

    def force(x: Array) -> Array:
        return jnp.sum(coupling[None] * jnp.prod(x[:, near], axis=1), axis=1)

    return force


def check_dilution(kind: str, order: int, tensor_noise: Any, temperature: Any = None) -> None:
    """Raise `InvalidValue` where a diluted system leaves the theory: where its state condenses on a few groups of sites.

    The sphere allows p sites to hold almost all of |x|² = N, and then a single coupling v of theirs has an energy of order
    -v N^{p/2}, below every extensive one. What prevents it is a barrier. A site alone fluctuates with variance one, as if it
    had the energy T x²/2; three sites at amplitude a with 3T a²/2 - v a³ have their barrier T³/(2v²) at a = T/v, and two
    groups with two sites in common half of it, T³/(4v²) = T³ DEGREE Δ₃/4. Gaussian couplings have large v somewhere, and
    groups that hold a site twice have a quarter of the barrier: both condense within a few units of time. At p ≥ 4 the barrier
    grows only as the root of DEGREE or slower. At temperature zero (None) nothing is activated, and flows are allowed, but
    late ones still find low groups: at N = 1000, Δ₂ = 0.9, Δ₃ = 0.5 energies at t = 20 were 2 % below the theory, and at
    N = 8000, Δ₃ = 1 flows that had not found the signal ended with a quarter of |x|² in one component: 3 of 32 at
    Δ₂ = 0.65 by t = 50, 24 of 32 at Δ₂ = 0.75 by t = 200.
    """
    if kind != "diluted":
        return
    if order > 3:
        raise InvalidValue(
            f"disorder = 'diluted' needs order = 3, not {order}: at higher orders diluted systems condense on a few groups of "
            "sites; use disorder = 'dense'."
        )
    if temperature is None or isinstance(temperature, Tracer) or isinstance(tensor_noise, Tracer):
        return
    barrier = float(np.min(np.asarray(temperature) ** 2 * np.asarray(tensor_noise)))
    if barrier * DEGREE / 4 < LEAST_BARRIER:
        raise InvalidValue(
            f"disorder = 'diluted' needs temperature² × tensor_noise ≥ {4 * LEAST_BARRIER / DEGREE:.2g}, not {barrier:.2g}: "
            "below it the sampler condenses on a few groups of sites; use disorder = 'dense'."
        )


def check_waiting(times: Any, waiting: Any) -> None:
    """Raise `InvalidValue` if `waiting` extends beyond the last of `times`."""
    if not (isinstance(times, Tracer) or isinstance(waiting, Tracer)) and waiting[-1] > times[-1]:
        raise InvalidValue(f"waiting ends at {float(waiting[-1]):g}, beyond the last of times, {float(times[-1]):g}.")


class Run(NamedTuple):
    """Measurements of a simulated sampler, averaged over both signs of the noise."""

    overlap: Float[Array, " time"]
    energy: Float[Array, " time"]
    multiplier: Float[Array, " time"]
    correlation: Float[Array, "time waiting"]


def sample(
    key: Array,
    system: System,
    times: Float[Array, " time"],
    waiting: Float[Array, " waiting"],
    *,
    temperature: Array | None,
    curvature: Array,
    tensor: Callable[[Array], Array] = jnp.ones_like,
) -> Run:
    """Run Langevin dynamics on the sphere, or gradient flow if `temperature` is None, and measure at increasing times from 0.

    `tensor` is the weight of the tensor's observation at time t, which an annealed sampler varies.
    """
    every = jnp.concatenate([times, waiting])
    index = jnp.arange(len(every))
    later, same = every[:, None] > every[None, :], every[:, None] == every[None, :]
    place = jnp.sum(later | (same & (index[:, None] > index[None, :])), axis=1)
    stops = jnp.zeros_like(every).at[place].set(every)  # all times in order
    points = walk(key, system, stops, lambda x: x, temperature=temperature, curvature=curvature, tensor=tensor)
    seen, past = points[place[: len(times)]], points[place[len(times) :]]
    dtype, size = system.start.dtype, system.start.shape[-1]
    energy, radial = jax.lax.map(lambda row: system.measure(*row), (seen, tensor(times.astype(dtype))))
    warm = jnp.zeros(()) if temperature is None else temperature
    return Run(
        overlap=jnp.mean(seen @ system.signal, axis=1) / size,
        energy=jnp.mean(energy, axis=1),
        multiplier=warm.astype(dtype) + jnp.mean(radial, axis=1),
        correlation=jnp.einsum("tsi,wsi->tw", seen, past) / (2 * size),
    )


def walk(
    key: Array,
    system: System,
    stops: Float[Array, " stop"],
    measure: Callable[[Array], Any],
    *,
    temperature: Array | None,
    curvature: Array,
    tensor: Callable[[Array], Array] = jnp.ones_like,
) -> Any:
    """`measure` of the pair of states, one for each sign of the noise, at times that do not decrease.

    Half a step of noise, a step of the force (Heun, projected to the sphere), half a step of noise: second order in the step.
    Adding noise and projecting turns a point by an angle whose mean cosine is e^{-Th/2}, as on the sphere itself. As in the
    landscape, the noise has the opposite sign in the mirror image, so that terms linear in the noise cancel.
    """
    dtype, size = system.start.dtype, system.start.shape[-1]
    warm = jnp.zeros(()) if temperature is None else temperature
    heat = warm.astype(dtype)
    stretches = jnp.diff(stops, prepend=0.0)
    steps = jnp.ceil(stretches * (curvature + warm) / RESOLUTION)
    lengths = (stretches / jnp.maximum(steps, 1.0)).astype(dtype)
    begins = (stops - stretches).astype(dtype)
    ends = jnp.cumsum(steps).astype(jnp.int32)
    firsts = ends - steps.astype(jnp.int32)

    def turned(x: Array, kick: Array, step: Array) -> Array:
        return on_sphere(x + jnp.sqrt(jnp.expm1(heat * step)) * system.signs * kick[None, :])

    def drift(x: Array, t: Array) -> Array:
        pull = system.force(x, tensor(t))
        return pull - jnp.sum(pull * x, axis=1, keepdims=True) / size * x

    def step(number: Array, x: Array, setting: tuple[Array, Array, Array]) -> Array:
        h, begin, first = setting
        t = begin + (number - first).astype(dtype) * h
        kicks = None if temperature is None else jax.random.normal(jax.random.fold_in(key, number), (2, size), dtype)
        x = x if kicks is None else turned(x, kicks[0], h)
        k = drift(x, t)
        x = on_sphere(x + h / 2 * (k + drift(on_sphere(x + h * k), t + h)))
        return x if kicks is None else turned(x, kicks[1], h)

    return descend(step, system.start, ends, measure, (lengths, begins, firsts)).path
