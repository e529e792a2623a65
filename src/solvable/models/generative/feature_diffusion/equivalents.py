r"""Deterministic equivalents of a score model with random features, trained on a mixture of isotropic Gaussian classes.

Features φ(Wx/√d) of noisy data act like Gaussian vectors: a part linear in the clean datum (its weight: `linear`), a part
linear in the noise (`noise`), and two independent remainders, one that the datum fixes (`datum`) and one that the noise
averages out (`rest`). With M = WWᵀ/d the matrix of second moments of n = ψ_n d data is

    U = Σ_ν h_ν h_νᵀ + b²M + σ²,   h_ν ~ N(0, K_c/n),   K_c = α_c M + v_c²,

where b² and σ² are averages over classes. All K_c commute with M, so that two unknowns suffice for any number of classes:
J_k = (1/p)Tr M^k(U−z)⁻¹, k = 0, 1, which obey

    δ_c = r(α_c J_1 + v_c² J_0),   A = σ² − z + Σ π_c v_c²/(1+δ_c),   B = b² + Σ π_c α_c/(1+δ_c),   r = ψ_p/ψ_n,
    J_0 = m(−A/B)/B,   J_1 = m/(1 + ψ_p m)/B,   m the Stieltjes transform of M's Marchenko–Pastur law.

For two resolvents R_i = (U−z_i)⁻¹ let I_k be the mean of y^k/((A_1+B_1y)(A_2+B_2y)) over that law, k_c = (α_c, v_c²),
e_c = π_c/((1+δ_c(z_1))(1+δ_c(z_2))), i = (I_2, I_1) and I the 2×2 matrix ((I_2, I_1), (I_1, I_0)). Then, again for any
number of classes,

    Y = (1 − rSI)⁻¹ rS i,   S = Σ e_c k_c k_cᵀ,   X_c = r k_c·(i + IY),
    (1/d)Tr M R_1 M R_2 = ψ_p(I_2 + i·Y),   (1/d)Tr M R_1 (Σ_{ν∈c} h hᵀ) R_2 = ψ_n e_c X_c.

Functions of U are integrals of resolvents around its spectrum. The contour is an ellipse in ln z with a vertical half-axis of
π/4, half-way between the spectrum and the lines Re z = 0 beyond which e^{−τz} grows. The first and the second integral use
conjugate sets of nodes: shifted by half a step on the same contour, so that no node meets itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float, Inexact

from solvable.methods.averages.quadrature import bent_trapezoid

__all__ = ["Bulk", "Classes", "Curves", "classes", "curves", "density", "distribution"]

Scalar = Inexact[Array, ""]
PerClass = Inexact[Array, " c"]
ITERATIONS, NEWTON = 40, 8
"""Damped iterations and Newton steps for the unknowns at a point of the contour."""


class Classes(NamedTuple):
    """Gaussian equivalents of the features of every class."""

    share: PerClass
    linear: PerClass  # α: weight of the clean datum, squared
    noise: PerClass  # b: weight of the noise
    datum: PerClass  # v²: variance of the nonlinear part fixed by the datum
    rest: PerClass  # σ²: variance of the nonlinear part that the noise averages out


def classes(
    function: Callable[[Array], Array], share: PerClass, variance: PerClass, time: Scalar, nodes: int = 96
) -> Classes:
    """The equivalents of an odd activation for classes N(0, variance) noised until `time`.

    >>> one = classes(jnp.tanh, jnp.ones(1), jnp.ones(1), jnp.asarray(0.1))
    >>> round(float(one.datum[0]), 5), round(float(one.rest[0]), 5)
    (0.01384, 0.01357)
    """
    x, w = (jnp.asarray(a) for a in bent_trapezoid(nodes))
    kept, added = jnp.exp(-2 * time) * variance, -jnp.expm1(-2 * time)
    total = kept + added

    def averages(kept: Scalar, total: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        values = function(jnp.sqrt(total) * x)
        slope = w @ (x * values) / jnp.sqrt(total)
        # the mean over the noise at a given datum; its square averages the product of two independently noised copies
        means = function(jnp.sqrt(kept) * x[:, None] + jnp.sqrt(added) * x[None, :]) @ w
        return slope, w @ values**2, w @ means**2

    slope, square, product = jax.vmap(averages)(kept, total)
    linear, noise = slope**2 * kept, slope * jnp.sqrt(added)
    return Classes(share, linear, noise, product - linear, square - product - noise**2)


# --- one resolvent ------------------------------------------------------------------------------------------------------


class Bulk(NamedTuple):
    """Everything that the resolvent depends on."""

    classes: Classes
    width: Scalar  # ψ_p
    samples: Scalar  # ψ_n

    @property
    def ratio(self) -> Scalar:
        return self.width / self.samples

    @property
    def noise(self) -> Scalar:
        """b², averaged over classes."""
        return jnp.sum(self.classes.share * self.classes.noise**2)

    @property
    def rest(self) -> Scalar:
        """σ², averaged over classes: the lower bound of the spectrum, and the position of its atom."""
        return jnp.sum(self.classes.share * self.classes.rest)

    @property
    def top(self) -> Scalar:
        """An upper bound of the spectrum: the sum of those of the parts of U."""
        edge = (1 + jnp.sqrt(self.width)) ** 2
        data = jnp.max(self.classes.linear) * edge + jnp.max(self.classes.datum)
        return self.rest + self.noise * edge + data * (1 + jnp.sqrt(self.ratio)) ** 2


def _complex(tree: Any) -> Any:
    """Everything as complex numbers: dtypes are never promoted silently."""
    return jax.tree.map(lambda x: jnp.asarray(x).astype(complex), tree)


class Unknowns(NamedTuple):
    """J_1 and J_0 at points z."""

    first: Complex[Array, " z"]
    zeroth: Complex[Array, " z"]


def _coefficients(bulk: Bulk, z: Array, at: Unknowns) -> tuple[Array, Array, Array]:
    """δ of every class (along rows), A and B, from J_1 and J_0."""
    share, linear, _, datum, _ = (x[:, None] for x in bulk.classes)
    delta = bulk.ratio * (linear * at.first[None] + datum * at.zeroth[None])
    a = bulk.rest - z + jnp.sum(share * datum / (1 + delta), axis=0)
    b = bulk.noise + jnp.sum(share * linear / (1 + delta), axis=0)
    return delta, a, b


def _transform(width: Array, w: Array) -> tuple[Array, Array]:
    """The Stieltjes transform m(w) of M's spectrum, and the root in it."""
    root = jnp.sqrt(w - (1 - jnp.sqrt(width)) ** 2) * jnp.sqrt(w - (1 + jnp.sqrt(width)) ** 2)
    centre = 1 - width - w
    plus, minus = centre + root, centre - root
    # m = plus/(2ψw) = 2/minus: take the one that does not cancel
    clear = jnp.abs(minus) > jnp.abs(plus)
    return jnp.where(clear, 2.0, plus) / jnp.where(clear, minus, 2 * width * w), root


def _mismatch(bulk: Bulk, z: Array, at: Unknowns) -> tuple[Unknowns, Array, Array, Array]:
    """How far the equations are from holding, and δ, A, B."""
    delta, a, b = _coefficients(bulk, z, at)
    m, _ = _transform(bulk.width, -a / b)
    return Unknowns(m / (1 + bulk.width * m) / b - at.first, m / b - at.zeroth), delta, a, b


def _newton(bulk: Bulk, z: Array, at: Unknowns) -> tuple[Unknowns, Unknowns]:
    """A step of the plain iteration and one of Newton's method.

    The slopes have no derivative themselves, so that a step from a solution carries its implicit derivative.
    """
    gap, *rest = _mismatch(bulk, z, at)
    bulk, (delta, a, b) = lax.stop_gradient((bulk, rest))
    m, root = _transform(bulk.width, -a / b)
    g = m / (1 + bulk.width * m)
    # I_k for z_1 = z_2; m' = −m(1 + ψm)/root, and g = 1 + wm has g' = −g/root
    i0, i1, i2 = -m * (1 + bulk.width * m) / root / b**2, -g / root / b**2, g * (1 + a / b / root) / b**2
    share, linear, _, datum, _ = (x[:, None] for x in bulk.classes)
    each = bulk.ratio * share / (1 + delta) ** 2
    s00, s01, s11 = (jnp.sum(each * x, axis=0) for x in (linear**2, linear * datum, datum**2))
    # (1 − IS) step = gap
    q00, q01 = 1 - i2 * s00 - i1 * s01, -i2 * s01 - i1 * s11
    q10, q11 = -i1 * s00 - i0 * s01, 1 - i1 * s01 - i0 * s11
    determinant = q00 * q11 - q01 * q10
    first, zeroth = q11 * gap.first - q01 * gap.zeroth, q00 * gap.zeroth - q10 * gap.first
    return gap, Unknowns(first / determinant, zeroth / determinant)


def _moved(at: Unknowns, step: Unknowns, length: Any = 1.0) -> Unknowns:
    return Unknowns(at.first + length * step.first, at.zeroth + length * step.zeroth)


@jax.custom_jvp
def _settled(bulk: Bulk, z: Complex[Array, " z"]) -> tuple[Unknowns, Scalar]:
    """J_1 and J_0 at points well off the spectrum, and the residual before the last step."""

    def improve(i: Any, state: tuple[Unknowns, Array]) -> tuple[Unknowns, Array]:
        at, _ = state
        plain, newton = _newton(bulk, z, at)
        off = jnp.max(jnp.stack([jnp.max(jnp.abs(x / y)) for x, y in zip(plain, at, strict=True)]))
        chosen = (jnp.where(i < ITERATIONS, 0.5 * x, y) for x, y in zip(plain, newton, strict=True))
        return _moved(at, Unknowns(*chosen)), off

    zero = jnp.zeros_like(z)
    return lax.fori_loop(0, ITERATIONS + NEWTON + 1, improve, (Unknowns(zero, zero), jnp.asarray(jnp.inf)))


@_settled.defjvp
def _settled_jvp(primals: Any, tangents: Any) -> Any:
    at, residual = _settled(*primals)
    _, slopes = jax.jvp(lambda bulk, z: _newton(bulk, z, at)[1], primals, tangents)
    return (at, residual), (slopes, jnp.zeros_like(residual))


def _solve(bulk: Bulk, z: Complex[Array, " z"]) -> tuple[Unknowns, Scalar]:
    """J_1 and J_0 at points well off the spectrum, and the residual. Derivatives are implicit."""
    return _settled(_complex(bulk), z)


# --- spectrum -----------------------------------------------------------------------------------------------------------


def _follow(bulk: Bulk, points: Float[Array, " x"], heights: np.ndarray) -> tuple[Complex[Array, "y x"], Scalar]:
    """J_0 at points + i·heights·top, and a residual: followed down from far above the real axis, where iteration converges."""
    # The heights scale with the spectrum, but only the bulk is differentiated: z is fixed.
    high = jnp.asarray(heights)[:, None] * lax.stop_gradient(bulk.top)
    z = lax.complex(*jnp.broadcast_arrays(points[None, :], high))
    found, residual = _followed(_complex(bulk), lax.stop_gradient(z))
    return found.zeroth, residual


@jax.custom_jvp
def _followed(bulk: Bulk, z: Complex[Array, "y x"]) -> tuple[Unknowns, Scalar]:
    """J_1 and J_0 along lines of falling height, and the residual before the last steps."""

    def down(state: tuple[Unknowns, Unknowns], line: tuple[Array, Array]) -> tuple[Any, tuple[Unknowns, Array]]:
        (last, before), (z, first) = state, line

        def improve(i: Any, state: tuple[Unknowns, Array]) -> tuple[Unknowns, Array]:
            at, _ = state
            plain, newton = _newton(bulk, z, at)
            off = jnp.max(jnp.abs(newton.zeroth / at.zeroth))
            chosen = (jnp.where(i < first, 0.5 * x, y) for x, y in zip(plain, newton, strict=True))
            return _moved(at, Unknowns(*chosen)), off

        at = Unknowns(*(2 * x - y for x, y in zip(last, before, strict=True)))
        at, off = lax.fori_loop(0, first + 6, improve, (at, jnp.asarray(jnp.inf)))
        return (at, last), (at, off)

    zero = jnp.zeros(z.shape[1], z.dtype)
    start = Unknowns(zero, zero)
    # plain iterations, which converge far above the real axis, on the first line alone
    first = jnp.zeros(len(z), jnp.int32).at[0].set(ITERATIONS)
    _, (at, off) = lax.scan(down, (start, start), (z, first))
    return at, jnp.max(off)


@_followed.defjvp
def _followed_jvp(primals: Any, tangents: Any) -> Any:
    (bulk, z), (moved, _) = primals, tangents
    at, residual = _followed(bulk, z)
    flat = Unknowns(*(x.reshape(-1) for x in at))
    _, slopes = jax.jvp(lambda bulk: _newton(bulk, z.reshape(-1), flat)[1], (bulk,), (moved,))
    return (at, residual), (Unknowns(*(x.reshape(z.shape) for x in slopes)), jnp.zeros_like(residual))


def distribution(bulk: Bulk, points: Float[Array, " x"], step: float = 0.5) -> tuple[Float[Array, " x"], Scalar]:
    """The fraction of U's eigenvalues below each point, ½ − (1/π)∫ Re J_0(x+iy) dy, and a residual."""
    heights = np.exp(np.arange(6 * math.log(10.0), -10 * math.log(10.0), -step))
    found, residual = _follow(bulk, points, heights)
    each = found.real * (jnp.asarray(heights) * lax.stop_gradient(bulk.top))[:, None]
    # beyond both ends the integrand, in the logarithm of the height, is a pure power of the height or its inverse
    ends = (each[0] + each[-1]) / math.expm1(step)
    return jnp.clip(0.5 - step / math.pi * (jnp.sum(each, axis=0) + ends), 0.0, 1.0), residual


def density(bulk: Bulk, points: Float[Array, " x"], height: float = 1e-9) -> Float[Array, " x"]:
    """The density of U's eigenvalues at points of the real axis, without its atom."""
    return _follow(bulk, points, np.geomspace(10.0, height, 60))[0][-1].imag / math.pi


# --- training curves ----------------------------------------------------------------------------------------------------


class Curves(NamedTuple):
    """Losses of every class as quadratic forms in f_τ(z) = (1 − e^{−Δτz})/z on the contour."""

    decay: Complex[Array, ""]  # Δ = 1 − e^{−2t}
    node: Complex[Array, " n"]
    weight: Complex[Array, " n"]
    cross: Complex[Array, "c n"]
    train_single: Complex[Array, "c n"]
    test_single: Complex[Array, "c n"]
    train_pair: Complex[Array, "c n n"]
    test_pair: Complex[Array, "c n n"]
    residual: Scalar

    def losses(self, log_time: Float[Array, " t"]) -> tuple[Float[Array, "t c"], Float[Array, "t c"]]:
        """Train and test loss of every class at times given by their logarithms; infinity is allowed."""
        return self._evaluate(self._filter(log_time), slice(None))

    def _filter(self, log_time: Array) -> Array:
        """f_τ(z), which is 1/z for an infinite time."""
        over = jnp.isinf(log_time) & (log_time > 0)
        time = _complex(jnp.exp(jnp.where(over, 0.0, log_time)))
        return (
            jnp.where(over[:, None], 1.0, -jnp.expm1(-self.decay * time[:, None] * self.node[None])) / self.node[None]
        )

    def _evaluate(self, f: Array, nodes: slice) -> tuple[Array, Array]:
        step = 1 if nodes.step is None else nodes.step
        f, weight = f[:, nodes], self.weight[nodes] * step
        first = f * weight[None]
        linear = first @ self.cross[:, nodes].T

        def loss(single: Array, pair: Array) -> Array:
            pairs = jnp.einsum("ti,cij,tj->tc", first, pair[:, nodes, nodes], jnp.conj(first))
            return (1 - 2 * linear + (f * first) @ single[:, nodes].T + pairs).real

        return loss(self.train_single, self.train_pair), loss(self.test_single, self.test_pair)

    def error(self, log_time: Float[Array, " t"], whole: tuple[Array, Array]) -> Scalar:
        """An estimate of the error of the losses `whole`: the square of their distance from those with half of the nodes."""
        half = self._evaluate(self._filter(log_time), slice(None, None, 2))
        return jnp.max(jnp.abs(jnp.stack(whole) - jnp.stack(half))) ** 2


def curves(bulk: Bulk, decay: Scalar, nodes: int) -> Curves:
    """The kernels of all losses on a contour of `nodes` points."""
    low, high = jnp.log(lax.stop_gradient(0.3 * bulk.rest)), jnp.log(lax.stop_gradient(1.5 * bulk.top))
    angle = 2 * math.pi * (np.arange(nodes) + 0.25) / nodes
    centre, half, tall = 0.5 * (low + high), 0.5 * (high - low), jnp.asarray(0.25 * math.pi)
    z = jnp.exp(lax.complex(centre + half * np.cos(angle), tall * np.sin(angle)))
    slope = z * lax.complex(-half * np.sin(angle), tall * np.cos(angle))
    weight = -slope / (1j * nodes)
    found, residual = _solve(bulk, z)
    bulk, decay = _complex(bulk), _complex(decay)
    delta, a, b = _coefficients(bulk, z, found)
    j1, j0 = found

    def pair(x: Array) -> tuple[Array, Array]:
        """Values at the first nodes, along rows, and at their conjugates, along columns."""
        return x[:, None], jnp.conj(x)[None, :]

    (a1, a2), (b1, b2), (j11, j12), (j01, j02) = pair(a), pair(b), pair(j1), pair(j0)
    across = a2 * b1 - a1 * b2
    i0, i1, i2 = (b1 * j01 - b2 * j02) / across, (b1 * j11 - b2 * j12) / across, (a2 * j12 - a1 * j11) / across
    c, r = bulk.classes, bulk.ratio
    share = jax.vmap(lambda p, x: p / ((1 + x)[:, None] * jnp.conj(1 + x)[None, :]))(c.share, delta)
    k = jnp.stack([c.linear, c.datum])
    s = r * jnp.einsum("cij,ac,bc->abij", share, k, k)
    # (1 − sI)Y = s i
    q = [[s[x, 0] * i2 + s[x, 1] * i1, s[x, 0] * i1 + s[x, 1] * i0] for x in (0, 1)]
    g = [s[x, 0] * i2 + s[x, 1] * i1 for x in (0, 1)]
    determinant = (1 - q[0][0]) * (1 - q[1][1]) - q[0][1] * q[1][0]
    y0 = ((1 - q[1][1]) * g[0] + q[0][1] * g[1]) / determinant
    y1 = ((1 - q[0][0]) * g[1] + q[1][0] * g[0]) / determinant
    squared = bulk.width * (i2 + i2 * y0 + i1 * y1)  # (1/d)Tr M R M R
    within = i2 + i2 * y0 + i1 * y1, i1 + i1 * y0 + i0 * y1
    own = r * (c.linear[:, None, None] * within[0][None] + c.datum[:, None, None] * within[1][None])
    own = bulk.samples * share * own / c.share[:, None, None]  # (1/d)Tr M R (Σ_ν h hᵀ/π) R

    mean = jnp.sum(c.share * c.noise)
    trace = (bulk.width * j1)[None]  # (1/d)Tr M R
    rows = (slice(None), None)
    return Curves(
        decay=decay,
        node=z,
        weight=weight,
        cross=mean * c.noise[rows] * trace,
        train_single=mean**2 * c.rest[rows] * trace,
        test_single=mean**2 * (c.datum + c.rest)[rows] * trace,
        train_pair=mean**2 * (own + (c.noise**2)[:, None, None] * squared[None]),
        test_pair=mean**2 * (c.linear + c.noise**2)[:, None, None] * squared[None],
        residual=jnp.max(residual),
    )
