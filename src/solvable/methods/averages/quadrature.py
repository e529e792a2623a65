"""Gaussian averages by quadrature, with a stated accuracy.

Smooth integrands: Gauss–Hermite. Integrands with kinks or steep steps: Gauss–Legendre panels split there, the Gaussian
weight included. Functions take and return arrays whose *leading* axis is the node axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Beyond nine standard deviations the Gaussian has mass 2e-19, below float64 resolution.
CUT = 9.0


@cache
def hermite(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights that average polynomials up to degree 2·nodes−1 exactly over a standard Gaussian.

    >>> x, w = hermite(8)
    >>> bool(abs(w @ x**4 - 3) < 1e-12)
    True
    """
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    return x, w / np.sqrt(2 * np.pi)


@cache
def bent_trapezoid(nodes: int, reach: float = 8.0, bend: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z = b sinh(t/b), t equidistant, |z| ≤ `reach`, and weights of a standard Gaussian average (summing to one).

    The trapezoidal rule for functions with poles near the real axis, where the nodes are dense: if f is analytic in
    |Im z| < a, the error falls like exp(-πn s/T) with T = b asinh(reach/b) and s the smaller of bπ/4 and b arcsin(a/b). For
    tanh(2z), a = π/4, that is exp(-0.86 n); on equidistant z it would be exp(-0.31 n), and Gauss–Hermite's is exp(-a√(2n)).

    >>> x, w = bent_trapezoid(32)
    >>> bool(abs(w @ x**4 - 3) < 1e-9)
    True
    """
    t = np.linspace(-1, 1, nodes) * np.arcsinh(reach / bend)
    x = bend * np.sinh(t)
    w = np.exp(-0.5 * x**2) * np.cosh(t)
    return x, w / w.sum()


@cache
def legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return (x + 1) / 2, w / 2


def gaussian_average(
    function: Callable[[Float[Array, " nodes"]], Float[Array, "nodes ..."]],
    mean: float | Float[Array, ""] = 0.0,
    variance: float | Float[Array, ""] = 1.0,
    nodes: int = 64,
) -> Float[Array, "..."]:
    """E f(x), x ~ N(mean, variance), for smooth f.

    For f analytic in a strip of half-width a (in standard deviations) the error falls like exp(-a·sqrt(2·nodes)):
    64 nodes give 1e-12 for an error function of unit slope.

    >>> round(float(gaussian_average(jnp.cos)), 12) == round(float(np.exp(-0.5)), 12)
    True
    """
    x, w = hermite(nodes)
    return jnp.tensordot(jnp.asarray(w), function(mean + jnp.sqrt(variance) * jnp.asarray(x)), axes=1)


def gaussian_panels(breaks: Float[Array, " breaks"], nodes: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nodes and weights of a standard Gaussian average, split at `breaks` (traced, any order; clipped to ±9).

    Panels of zero length are harmless. With 16 nodes, a panel of up to 3 standard deviations integrates a function that
    is smooth on that scale to 1e-13.
    """
    inner = jnp.sort(jnp.clip(breaks, -CUT, CUT))
    edges = jnp.concatenate([jnp.asarray([-CUT]), inner, jnp.asarray([CUT])])
    u, w = legendre(nodes)
    left, length = edges[:-1, None], (edges[1:] - edges[:-1])[:, None]
    x = left + length * jnp.asarray(u)[None, :]
    density = jnp.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    return x.reshape(-1), (length * jnp.asarray(w)[None, :] * density).reshape(-1)


def merge_sorted(a: Float[Array, " m"], b: Float[Array, " n"]) -> Float[Array, " mn"]:
    """Merge two increasing arrays by minima and maxima: for a few dozen numbers much faster in a batch than sorting.

    >>> merge_sorted(jnp.asarray([1.0, 4.0]), jnp.asarray([0.0, 2.0, 5.0])).tolist()
    [0.0, 1.0, 2.0, 4.0, 5.0]
    """
    m, n = a.shape[0], b.shape[0]
    if m < n:
        a, b, m, n = b, a, n, m
    # The k-th is the minimum, over the number j of elements taken from b, of the larger of the two last elements taken.
    k, j = np.ogrid[0 : m + n, 0 : n + 1]
    i = k + 1 - j  # how many come from a
    from_a, from_b = jnp.pad(a, (1, 0), constant_values=-jnp.inf), jnp.pad(b, (1, 0), constant_values=-jnp.inf)
    last = jnp.maximum(from_a[np.clip(i, 0, m)], from_b[j])
    return jnp.min(jnp.where((i >= 0) & (i <= m), last, jnp.inf), axis=1)


def graded_breaks(
    poles: Float[Array, "2"], distance: float | Array, fade: float | Array, steep: Array, number: int
) -> Float[Array, " number"]:
    """Breaks for `gaussian_panels` that share the work evenly when a function is singular close to the real axis.

    A panel resolves a function on the scale of its distance from the nearest singularity. There are two pairs of
    singularities, at x ± i·`distance`, the first x below zero and the second above (`poles`). Near them panels have that
    length; farther away they grow in proportion, so that their number grows like a logarithm. Farther than `fade` to the
    left of the first and to the right of the second they have no effect. The Gaussian itself also needs panels, and so
    does a step of slope `steep` at the origin (an error function).

    >>> poles, flat = jnp.asarray([-0.5, 0.5]), jnp.zeros(())
    >>> f = lambda x: jnp.log((x - 0.5) ** 2 + 1e-6) - jnp.log((x + 0.5) ** 2 + 1e-6) * x
    >>> coarse, fine = (gaussian_average_split(f, graded_breaks(poles, 1e-3, 20.0, flat, n), 14) for n in (31, 63))
    >>> bool(abs(coarse - fine) < 1e-12)
    True
    """
    step = 8.0 / jnp.maximum(jnp.abs(steep), 1e-3)
    # The density of panels has kinks where an effect ends; breaks there keep kinks out of the panels.
    ends = jnp.stack([-step, step, poles[0] - fade, poles[1] + fade])
    near = 0.4 * distance  # found by experiment

    def work(x):
        """The number of panels wanted to the left of x, up to a constant, and its derivative."""
        away = jnp.stack([jnp.maximum(x - poles[0], -fade), jnp.minimum(x - poles[1], fade)])
        panels = jnp.sum(jnp.sign(away) * jnp.log1p(jnp.abs(away) / near), axis=0) / np.log(8.0)
        rate = jnp.sum(1 / (near + jnp.abs(away)), axis=0) / np.log(8.0)
        inside = jnp.where(jnp.abs(x) < step, 1.5 / step, 0.0)
        return panels + 2 * x / CUT + 1.5 * jnp.clip(x / step, -1, 1), rate + 2 / CUT + inside

    # It is tabulated at its kinks and inverted by interpolation and one Newton step: breaks need not be exact.
    grid = np.linspace(-1.0, 1.0, 17)
    around = near * np.sign(grid) * jnp.expm1(jnp.log1p(2 * CUT / near) * np.abs(grid))
    table = jnp.concatenate([poles[0] + around, poles[1] + around, ends, jnp.linspace(-CUT, CUT, 5)])
    table = jnp.clip(table, -CUT, CUT)
    done, _ = work(table)
    first, last = jnp.min(done), jnp.max(done)
    even = first + (last - first) * (np.arange(1, number - 3) / (number - 3))
    # Find the neighbours in the table without sorting, which is slow in a batch and slow to compile.
    before = done[None, :] <= even[:, None]
    left, low = (jnp.max(jnp.where(before, v, -jnp.inf), axis=1) for v in (table, done))
    right, high = (jnp.min(jnp.where(before, jnp.inf, v), axis=1) for v in (table, done))
    x = left + (right - left) * (even - low) / (high - low)
    height, rate = work(x)
    return jax.lax.stop_gradient(jnp.concatenate([ends, x + (even - height) / rate]))


def gaussian_average_split(
    function: Callable[[Float[Array, " nodes"]], Float[Array, "nodes ..."]],
    breaks: Float[Array, " breaks"],
    nodes: int = 20,
) -> Float[Array, "..."]:
    """E f(x), x ~ N(0, 1), for f smooth between `breaks`: put one at every kink and around every steep step.

    >>> relu = lambda x: jnp.maximum(x - 0.3, 0.0)
    >>> exact = np.exp(-0.045) / np.sqrt(2 * np.pi) - 0.3 * 0.3820885778110474
    >>> bool(abs(gaussian_average_split(relu, jnp.asarray([-3.0, 0.3, 3.0])) - exact) < 1e-14)
    True
    """
    x, w = gaussian_panels(breaks, nodes)
    return jnp.tensordot(w, function(x), axes=1)


def gaussian_average_2d(
    function: Callable[[Float[Array, " n"], Float[Array, " n"]], Float[Array, "n ..."]],
    covariance: Float[Array, "2 2"],
    nodes: int = 48,
) -> Float[Array, "..."]:
    """E f(x, y) over a centred Gaussian pair, for smooth f (tensor Gauss–Hermite on the Cholesky factor).

    A singular covariance is fine: the second direction then has zero length. The accuracy is that of
    `gaussian_average` in each direction.

    >>> c = jnp.asarray([[1.0, 0.6], [0.6, 2.0]])
    >>> round(float(gaussian_average_2d(lambda x, y: x * y, c)), 12)
    0.6
    """
    root, slope, rest = _cholesky(covariance)
    x, w = hermite(nodes)
    first, second = (g.reshape(-1) for g in np.meshgrid(x, x, indexing="ij"))
    weight = np.outer(w, w).reshape(-1)
    first, second = jnp.asarray(first), jnp.asarray(second)
    return jnp.tensordot(jnp.asarray(weight), function(root * first, slope * first + rest * second), axes=1)


def gaussian_average_2d_split(
    function: Callable[[Float[Array, " n"], Float[Array, " n"]], Float[Array, "n ..."]],
    covariance: Float[Array, "2 2"],
    breaks_x: Float[Array, " a"],
    breaks_y: Float[Array, " b"],
    nodes: int = 20,
) -> Float[Array, "..."]:
    """E f(x, y) over a centred Gaussian pair, for f with kinks or steps at x ∈ `breaks_x` and at y ∈ `breaks_y`.

    The outer average over x is split at its breaks and, where x carries y over one of *its* breaks, on the scale of the
    conditional width of y; the inner average over y given x is split exactly. With 20 nodes a panel the error is 1e-12
    unless the correlation exceeds 0.999; the rule does not work for a singular covariance.

    >>> relu = lambda u: jnp.maximum(u, 0.0)
    >>> c, zero = jnp.asarray([[1.0, 0.6], [0.6, 2.0]]), jnp.zeros(1)
    >>> found = gaussian_average_2d_split(lambda x, y: relu(x) * relu(y), c, zero, zero)
    >>> exact = np.sqrt(2 - 0.36) / (2 * np.pi) + 0.6 * (0.25 + np.arcsin(0.6 / np.sqrt(2)) / (2 * np.pi))
    >>> bool(abs(found - exact) < 1e-12)
    True
    """
    root, slope, rest = _cholesky(covariance)
    # Given x, the step of y at a break looks like a smooth step of x, of width rest/slope.
    steep = rest / jnp.maximum(jnp.abs(slope), 1e-12)
    centre = breaks_y / jnp.where(jnp.abs(slope) > 1e-12, slope, 1e-12)
    smooth_steps = (centre[:, None] + steep * jnp.asarray([-9.0, -3.0, 0.0, 3.0, 9.0])[None, :]).reshape(-1)
    fixed = jnp.asarray([-4.5, -1.5, 1.5, 4.5])
    first, weight = gaussian_panels(jnp.concatenate([breaks_x / root, smooth_steps, fixed]), nodes)

    def inner(xi):
        places = jnp.concatenate([(breaks_y - slope * xi) / rest, fixed])
        eta, mass = gaussian_panels(places, nodes)
        return jnp.tensordot(mass, function(jnp.full_like(eta, root * xi), slope * xi + rest * eta), axes=1)

    return jnp.tensordot(weight, jax.vmap(inner)(first), axes=1)


def _cholesky(covariance: Float[Array, "2 2"]) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """x = root·ξ, y = slope·ξ + rest·η."""
    a, b, c = covariance[0, 0], covariance[0, 1], covariance[1, 1]
    root = jnp.sqrt(a)
    slope = jnp.where(a > 0, b / jnp.where(a > 0, root, 1.0), 0.0)
    return root, slope, jnp.sqrt(jnp.maximum(c - slope**2, 0.0))
