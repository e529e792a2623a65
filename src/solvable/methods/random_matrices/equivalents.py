"""Deterministic equivalents of sample covariances: effective ridge, errors of masked regression, spectra.

n samples of a d-dimensional Gaussian with covariance Σ, n/d = α fixed, S = XᵀX/n. A population is a list of eigenvalues
or coordinates with weights that sum to one, so that a limiting spectrum and that of a given matrix are used in the same
way; every trace below is a weighted mean, i.e. (1/d)Tr.

Ridge (resolvent G = (S+λ)⁻¹, R = (Σ+κ)⁻¹):  λG ≍ κR with  κ − λ = κ df1(κ)/n.

Spectrum of M = Δ^½SΔ^½ + B with diagonal Δ, B:  (M−z)⁻¹ ≍ Q(z) = (tΣ̃+B−z)⁻¹, Σ̃ = Δ^½ΣΔ^½, where t(z) solves

    1/t − s = (1/n) Tr Σ̃Q(z),   s = 1  (s ≠ 1 after a change of units t → t/s, z → z/s, B → B/s).

The root is followed along a vertical line from infinity, where it is known, towards the real axis: analyticity in the
upper half plane makes this the right branch at every point. The distribution function comes from the same line,

    F(x) = ½ − (1/π)∫₀^∞ Re m(x+iy) dy,   m(z) = (1/d)Tr Q(z),

which needs no knowledge of edges and includes atoms (half of one that lies exactly at x). In log y the integrand is
analytic in a strip of half-width π/2, so the trapezoidal rule with step h has an error of e^{−π²/h}: 3e-9 at the default
h = 0.5 (measured: 3e-9 against Marchenko–Pastur, also at an edge). An atom closer than 1e-8 to x is shared between both
sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Complex, Float

__all__ = [
    "Companion",
    "Coordinates",
    "MaskedErrors",
    "Ridge",
    "atoms",
    "band_traces",
    "chain_modes",
    "companion",
    "degrees_of_freedom",
    "density",
    "diagonal_traces",
    "distribution",
    "effective_ridge",
    "masked_distribution",
    "masked_errors",
    "masses",
    "ridgeless_factor",
    "safe_root",
    "tridiagonal_traces",
    "two_resolvents",
]

Scalar = Float[Array, ""]
Traces = Callable[[Array, Array], tuple[Array, Array, Array]]
"""(t, z) → ((1/d)Tr Σ̃Q, (1/d)Tr(Σ̃Q)², (1/d)Tr Q), elementwise over equally shaped arrays t and z."""


def safe_root(function: Callable[[Array], Array], low: Array, high: Array, *, steps: int = 48) -> Array:
    """Root of a decreasing scalar function on a bracket: Newton steps where they stay inside, bisection elsewhere.

    Takes a fixed number of steps, so that it batches. Not differentiable: wrap it in `jax.lax.custom_root`.

    >>> import jax.numpy as jnp
    >>> round(float(safe_root(lambda x: 2.0 - x**2, jnp.float64(0.0), jnp.float64(2.0))), 12)
    1.414213562373
    """

    def step(_, state):
        low, high, x = state
        value, slope = jax.jvp(function, (x,), (jnp.ones_like(x),))
        low, high = jnp.where(value >= 0, x, low), jnp.where(value <= 0, x, high)
        newton = x - value / jnp.where(slope == 0, 1.0, slope)
        inside = (newton > low) & (newton < high) & (slope != 0)
        return low, high, jnp.where(inside, newton, (low + high) / 2)

    return lax.fori_loop(0, steps, step, (low, high, (low + high) / 2))[2]


# --- ridge ------------------------------------------------------------------------------------------------------------


def degrees_of_freedom(
    eigenvalues: Float[Array, " k"], weights: Float[Array, " k"], ridge: Scalar
) -> tuple[Scalar, Scalar]:
    """df1/d = (1/d)Tr ΣR and df2/d = (1/d)Tr Σ²R², R = (Σ+κ)⁻¹; null directions contribute nothing, also at κ = 0."""
    share = eigenvalues / jnp.where(eigenvalues + ridge > 0, eigenvalues + ridge, 1.0)
    return weights @ share, weights @ share**2


class Ridge(NamedTuple):
    """Effective ridge κ, the fraction λ/κ = 1 − df1/n (finite when both vanish), and how well it was solved."""

    kappa: Scalar
    slack: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def effective_ridge(
    eigenvalues: Float[Array, " k"], samples: Scalar, penalty: Scalar, weights: Float[Array, " k"] | None = None
) -> Ridge:
    """Root of κ − λ = κ df1(κ)/n, with the penalty λ relative to the mean loss; λ = 0 is the ridgeless limit λ → 0⁺.

    Solved for log κ in the monotone form λ/κ + df1(κ)/n = 1, between closed-form bounds. Without a ridge and with at
    least as many samples as directions, κ = 0 exactly. Derivatives are implicit.

    >>> import jax.numpy as jnp
    >>> one = jnp.ones(1)
    >>> float(effective_ridge(one, jnp.float64(0.5), jnp.float64(0.0)).kappa)   # Σ = I: κ = d/n − 1
    1.0
    >>> float(effective_ridge(one, jnp.float64(4.0), jnp.float64(0.0)).slack)   # and λ/κ = 1 − d/n
    0.75
    """
    if weights is None:
        weights = jnp.full(eigenvalues.shape, 1.0 / eigenvalues.shape[0])
    positive = eigenvalues > 0
    rank = jnp.sum(jnp.where(positive, weights, 0.0))
    vanishes = (penalty <= 0) & (samples >= rank * (1.0 - 1e-12))

    def equation(kappa: Array) -> Array:
        return kappa - penalty - kappa * degrees_of_freedom(eigenvalues, weights, kappa)[0] / samples

    def solve(_, guess: Array) -> Array:
        excess = jnp.maximum(rank / samples - 1.0, 0.0)
        smallest = jnp.min(jnp.where(positive, eigenvalues, jnp.inf))
        low = jnp.maximum(penalty, smallest * excess)
        high = penalty + jnp.max(eigenvalues) * jnp.minimum(rank / samples, excess + jnp.sqrt(penalty / samples) + 1.0)
        low, high = jnp.where(vanishes, 1.0, low), jnp.where(vanishes, 2.0, high)

        def balance(x: Array) -> Array:
            kappa = jnp.exp(x)
            return penalty / kappa + degrees_of_freedom(eigenvalues, weights, kappa)[0] / samples - 1.0

        # A little slack: where the bracket closes on the root (equal eigenvalues, λ = 0) rounding may exclude it.
        return jnp.where(vanishes, 0.0, jnp.exp(safe_root(balance, jnp.log(low) - 1e-12, jnp.log(high) + 1e-12)))

    kappa = lax.custom_root(equation, jnp.ones_like(samples), solve, lambda g, y: y / g(jnp.ones_like(y)))
    share = degrees_of_freedom(eigenvalues, weights, kappa)[0] / samples
    slack = jnp.where(kappa > 0, penalty / jnp.where(kappa > 0, kappa, 1.0), 1.0 - share)
    residual = jnp.abs(slack + share - 1.0)
    converged = residual < 1e-10
    veil = jnp.where(converged, 1.0, jnp.nan)  # a factor, so that the gradient is NaN as well
    return Ridge(kappa * veil, slack * veil, residual, converged)


def two_resolvents(
    eigenvalues: Float[Array, " k"],
    weights: Float[Array, " k"],
    samples: Scalar,
    kappa: Scalar,
    outer: Float[Array, "*r k"],
    inner: Float[Array, " k"],
) -> Float[Array, "*r"]:
    """(λ/κ)² (1/d)Tr AGBG for A and B that commute with Σ: ⟨ABR²⟩ + ⟨AΣR²⟩⟨BΣR²⟩/(n − df2), n and df2 per dimension.

    `inner` are the eigenvalues of B. `outer` are those of A *times the weights*, or rows of loadings, which pick diagonal
    entries (see `Coordinates`). Infinite where df2 = n: ridgeless with n = d.

    >>> import jax.numpy as jnp
    >>> one, n = jnp.ones(1), jnp.float64(2.0)
    >>> float(two_resolvents(one, one, n, jnp.float64(0.0), one, one))   # Tr S⁻²/d = (1 − d/n)⁻³, times (1 − d/n)²
    2.0
    """
    positive = eigenvalues + kappa > 0
    inverse = jnp.where(positive, 1.0 / jnp.where(positive, eigenvalues + kappa, 1.0), jnp.inf)
    loaded = jnp.where(eigenvalues > 0, eigenvalues * inverse**2, 0.0)
    left = samples - degrees_of_freedom(eigenvalues, weights, kappa)[1]
    left = jnp.where(left > 1e-12 * samples, left, 0.0)  # rounding must not hide the divergence at n = d
    through = (weights * inner) @ loaded / left
    return outer @ jnp.where(inner > 0, inner * inverse**2, 0.0) + (outer @ loaded) * through


class Coordinates(NamedTuple):
    """A covariance as coordinates see it: Σ_rr = Σ_k loadings[r,k]·eigenvalues[k].

    loadings[r,k] is the squared component of eigenvector k on coordinate r (rows sum to one), `weights` the fraction of
    eigenvalues of kind k, `shares` the fraction of coordinates of kind r. Statistically equal coordinates (a ring, a
    rotation-invariant ensemble) are one row of loadings, equal to the weights.
    """

    eigenvalues: Float[Array, " k"]
    weights: Float[Array, " k"]
    loadings: Float[Array, "r k"]
    shares: Float[Array, " r"]

    @classmethod
    def of_matrix(cls, covariance: Float[Array, "d d"]) -> Coordinates:
        """From a covariance matrix, by its eigen-decomposition."""
        values, vectors = jnp.linalg.eigh(covariance)
        even = jnp.full(values.shape, 1.0 / values.shape[0])
        return cls(jnp.maximum(values, 0.0), even, vectors**2, even)

    @classmethod
    def alike(cls, eigenvalues: Float[Array, " k"], weights: Float[Array, " k"]) -> Coordinates:
        """All coordinates statistically equal: only the spectrum matters."""
        return cls(eigenvalues, weights, weights[None, :], jnp.ones(1))

    @classmethod
    def uncorrelated(cls, variances: Float[Array, " k"], weights: Float[Array, " k"]) -> Coordinates:
        """Independent coordinates with these variances."""
        return cls(variances, weights, jnp.eye(variances.shape[0]), weights)

    def diagonal(self, kappa: Scalar) -> Float[Array, " r"]:
        """R_rr, the diagonal of (Σ+κ)⁻¹."""
        return self.loadings @ (1.0 / (self.eigenvalues + kappa))


class MaskedErrors(NamedTuple):
    """Mean square error on each kind of coordinate, on fresh data and on the training data."""

    test: Float[Array, " r"]
    train: Float[Array, " r"]


def masked_errors(coordinates: Coordinates, samples: Scalar, ridge: Ridge) -> MaskedErrors:
    """Errors of ridge-regressing every coordinate on all others, from the same n samples.

    E_k = (RΣR)_kk/(R_kk)² · 1/(1 − df2/n) and E_train,k = (λ/κ)² E_k. Ridgeless with n > d this is the conditional
    variance 1/(Σ⁻¹)_kk divided by 1 − d/n (`ridgeless_factor` has the exact finite-size factor), and it is infinite
    at n = d.

    >>> import jax.numpy as jnp
    >>> white = Coordinates.alike(jnp.ones(1), jnp.ones(1))
    >>> n = jnp.float64(2.0)
    >>> masked_errors(white, n, effective_ridge(white.eigenvalues, n, jnp.float64(0.0))).test.tolist()
    [2.0]
    """
    values = coordinates.eigenvalues
    spread = two_resolvents(values, coordinates.weights, samples, ridge.kappa, coordinates.loadings, values)
    test = spread / coordinates.diagonal(ridge.kappa) ** 2
    return MaskedErrors(test, jnp.where(jnp.isinf(test), 0.0, ridge.slack**2 * test))


def ridgeless_factor(samples: int, dimension: int) -> float:
    """Test error over conditional variance for Gaussian data at finite size, no penalty, n > d: (n−1)/(n−d), exact.

    >>> ridgeless_factor(20, 10)
    1.9
    """
    return (samples - 1) / (samples - dimension)


def chain_modes(rho: Array, nodes: int) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """cos k and weights of a quadrature over the modes k ∈ [0, π] of a long chain with neighbour correlation ρ.

    The spectrum peaks at k = 0 when |ρ| → 1. A Möbius map of the circle with r = (1−√(1−ρ²))/ρ spreads the nodes so that
    the error is about r^{2·nodes} instead of the ρ^{2·nodes} of equidistant angles: 1e-6 instead of 0.3 at ρ = 0.99, 64 nodes.

    >>> cosine, weights = chain_modes(jnp.float64(0.8), 64)
    >>> round(float(weights @ (0.36 / (1.64 - 1.6 * cosine))), 12)   # the variance of a coordinate
    1.0
    """
    r = rho / (1.0 + jnp.sqrt(1.0 - rho**2))
    cosine = jnp.cos(jnp.pi * (jnp.arange(nodes, dtype=float) + 0.5) / nodes)
    density = 1.0 + r**2 + 2.0 * r * cosine
    return ((1.0 + r**2) * cosine + 2.0 * r) / density, (1.0 - r**2) / (density * nodes)


# --- spectra ----------------------------------------------------------------------------------------------------------


class Companion(NamedTuple):
    """The companion t(z) on a list of points, m(z) = (1/d)Tr Q(z), and the residual of the fixed point."""

    t: Complex[Array, "..."]
    stieltjes: Complex[Array, "..."]
    residual: Float[Array, "..."]
    converged: Bool[Array, "..."]


def diagonal_traces(signal: Float[Array, " k"], shift: Float[Array, " k"], weights: Float[Array, " k"]) -> Traces:
    """Traces for a diagonal population: Σ̃ = diag(w), B = diag(b), Q_k = 1/(w_k t + b_k − z)."""
    signal, shift, weights = _complex(signal), _complex(shift), _complex(weights)

    def traces(t: Array, z: Array) -> tuple[Array, Array, Array]:
        lift = (1,) * t.ndim + (-1,)
        w = signal.reshape(lift)
        resolvent = 1.0 / (w * t[..., None] + (shift.reshape(lift) - z[..., None]))
        loaded = w * resolvent
        return loaded @ weights, loaded**2 @ weights, resolvent @ weights

    return traces


def band_traces(
    signal: Float[Array, " l"],
    shift: Float[Array, " l"],
    weights: Float[Array, " l"],
    middle: Scalar,
    swing: Scalar,
    *,
    semicircle: bool = False,
) -> Traces:
    """Traces for continuous bands: Σ̃ has the eigenvalues w_l/(a − b cos k), a = middle, b = swing, and B = b_l on them.

    The angle k is uniform on the circle (the waves of a chain), or b cos k has a semicircle's density. With
    p = w t + (b_l − z)a and x = (b_l − z)b/p the means of 1/(p(1 − x cos k)) are elementary in √(1−x²), so that a band
    never breaks up into nodes, however many samples resolve it.

    >>> import jax.numpy as jnp
    >>> one, z = jnp.ones(1), jnp.asarray([0.3 + 1e-3j])
    >>> cosine, weights = chain_modes(jnp.float64(0.5), 4000)
    >>> nodes = diagonal_traces(0.75 / (1.25 - cosine), jnp.zeros(4000), weights)(z**0, z)
    >>> band = band_traces(0.75 * one, 0 * one, one, jnp.float64(1.25), jnp.float64(1.0))(z**0, z)
    >>> bool(max(abs(a - b)[0] for a, b in zip(nodes, band)) < 1e-6)
    True
    """
    signal, shift, weights, middle, swing = map(_complex, (signal, shift, weights, middle, swing))

    def traces(t: Array, z: Array) -> tuple[Array, Array, Array]:
        lift = (1,) * t.ndim + (-1,)
        w, t, z = signal.reshape(lift), t[..., None], z[..., None]
        rest = shift.reshape(lift) - z
        p = w * t + rest * middle
        x = rest * swing / p
        root = jnp.sqrt((1.0 - x) * (1.0 + x))
        # The principal root is the right one: t and −z both lie in the lower half plane, where 1 − x cos k is never zero.
        first = 2.0 / (p * (1.0 + root)) if semicircle else 1.0 / (p * root)
        second = first / (p * root) if semicircle else first / (p * root**2)
        loaded = w * first
        return loaded @ weights, (w**2 * second) @ weights, ((1.0 - t * loaded) / rest) @ weights

    return traces


def tridiagonal_traces(
    diagonal: Float[Array, " d"], neighbour: Float[Array, " d"], scale: Float[Array, " d"], shift: Scalar
) -> Traces:
    """Traces for Σ̃ = Δ^½ΣΔ^½ and B = cΔ when the precision P = Σ⁻¹ is tridiagonal (a Markov chain).

    With P's diagonal, P_{k−1,k} as neighbour[k] (neighbour[0] = 0), Δ = diag(scale) and c = shift: the determinant
    of tΣ̃+B−z is det(ΔΣ)·det(t + PE), E_k = c − z/Δ_k, whose ratios of leading minors obey
    r_k = t + P_kk E_k − P²_{k−1,k} E_{k−1}E_k / r_{k−1}. Tr Σ̃Q = ∂_t log det, Tr(Σ̃Q)² = −∂_t² log det and
    Tr Q = −∂_z log det are propagated with it: O(d) instead of the O(d³) of a dense inverse.
    """
    size = diagonal.shape[0]
    diagonal, neighbour, scale = _complex(diagonal), _complex(neighbour), _complex(scale)
    shift = _complex(shift)

    def traces(t: Array, z: Array) -> tuple[Array, Array, Array]:
        def step(carry, row):
            ratio, by_t, by_tt, by_z, entry, slope, sums = carry
            p, q, delta = row
            new, new_slope = shift - z / delta, -1.0 / delta
            coupling = q * q * entry * new
            drift = q * q * (slope * new + entry * new_slope)
            inverse = 1.0 / ratio
            next_ratio = t + p * new - coupling * inverse
            next_t = 1.0 + coupling * by_t * inverse**2
            next_tt = coupling * (by_tt - 2.0 * by_t**2 * inverse) * inverse**2
            next_z = p * new_slope - drift * inverse + coupling * by_z * inverse**2
            log_t = next_t / next_ratio
            sums = (
                sums[0] + log_t,
                sums[1] - next_tt / next_ratio + log_t**2,
                sums[2] - next_z / next_ratio,
            )
            return (next_ratio, next_t, next_tt, next_z, new, jnp.broadcast_to(new_slope, slope.shape), sums), None

        one = jnp.ones_like(t)
        zero = jnp.zeros_like(t)
        start = (one, zero, zero, zero, one, zero, (zero, zero, zero))
        sums = lax.scan(step, start, (diagonal, neighbour, scale))[0][-1]
        return sums[0] / size, sums[1] / size, sums[2] / size

    return traces


def companion(
    traces: Traces, samples: Scalar, path: Complex[Array, "steps ..."], offset: Array, *, start: Array, newton: int = 12
) -> Companion:
    """Follow t(z), the root of 1 − s t = (t/n) Tr Σ̃Q(z), along the leading axis of `path`, from t = start.

    `offset` is s (one for a plain sample covariance). Neighbouring points of the path must be close on the scale of
    their distance to the real axis; other axes are independent paths. Derivatives are implicit. A point where Newton's
    iteration fails or lands on another branch (Im t > 0) is NaN.
    """

    samples, offset = _complex(samples), _complex(offset)

    def equation(t: Array) -> Array:
        return 1.0 - offset * t - t * traces(t, path)[0] / samples

    def follow(_, guess: Array) -> Array:
        def improve(state):
            count, t, z, _ = state
            first, second, _ = traces(t, z)
            change = (1.0 - offset * t - t * first / samples) / (offset + (first - t * second) / samples)
            # Quadratic convergence: after a change of 1e-8 the root is known to rounding.
            return count + 1, t + change, z, jnp.any(jnp.abs(change) > 1e-8 * jnp.abs(t))

        def step(state, z):
            before, t = state
            start = 0, 2.0 * t - before, z, jnp.asarray(True)
            found = lax.while_loop(lambda s: (s[0] < newton) & s[3], improve, start)[1]
            return (t, found), found

        first = jnp.broadcast_to(_complex(start), path.shape[1:])
        return lax.scan(step, (first, first), path)[1]

    t = lax.custom_root(equation, jnp.ones_like(path), follow, lambda g, y: y / g(jnp.ones_like(y)))
    first, second, stieltjes = traces(t, path)
    # Where the equation is steep, on a narrow band, it amplifies the rounding of t: its slope sets the scale there.
    slope = jnp.abs(offset * t + t * (first - t * second) / samples)
    residual = jnp.abs(1.0 - offset * t - t * first / samples) / jnp.maximum(1.0, slope)
    converged = (residual < 1e-10) & (t.imag <= 1e-9 * jnp.abs(t))
    veil = jnp.where(converged, 1.0, jnp.nan)
    return Companion(t * _complex(veil), stieltjes * _complex(veil), residual, converged)


def _complex(x: Array) -> Array:
    return lax.complex(x, jnp.zeros_like(x))


def _heights(step: float, digits: int = 8) -> Float[Array, " steps"]:
    """Geometric heights above the real axis, from far above every eigenvalue (1e4) down to 10^−digits."""
    high, low = 4 * math.log(10), -digits * math.log(10)
    return jnp.exp(jnp.linspace(high, low, round((high - low) / step) + 1))


def density(traces: Traces, samples: Scalar, points: Float[Array, " x"], *, step: float = 0.5) -> Float[Array, " x"]:
    """Density of the spectrum of M at real points, without its atoms; NaN where t(z) could not be followed.

    >>> import jax.numpy as jnp
    >>> one, zero = jnp.ones(1), jnp.zeros(1)
    >>> rho = density(diagonal_traces(one, zero, one), jnp.float64(2.0), jnp.ones(1))   # Marchenko–Pastur, d/n = ½
    >>> bool(jnp.allclose(rho, jnp.sqrt(1.75) / jnp.pi))
    True
    """
    path = _lines(points, _heights(step, digits=11))
    solved = companion(traces, samples, path, jnp.ones(()), start=jnp.ones(()))
    return solved.stieltjes[-1].imag / jnp.pi


def distribution(
    traces: Traces, samples: Scalar, points: Float[Array, " x"], *, step: float = 0.5
) -> Float[Array, " x"]:
    """Fraction of the eigenvalues of M below each point (an atom exactly at a point counts half), to 1e-8."""
    heights = _heights(step)
    solved = companion(traces, samples, _lines(points, heights), jnp.ones(()), start=jnp.ones(()))
    return _integrate(solved.stieltjes.real, heights)


def masked_distribution(
    traces: Traces, samples: Scalar, slack: Scalar, points: Float[Array, " x"], *, step: float = 0.5
) -> Float[Array, " x"]:
    """Fraction of the eigenvalues of A = I − diag(G)⁻¹G below each point x < 1, for any penalty λ ≥ 0.

    In units of s = λ/κ the matrix M/s = (κ/λ)Δ^½SΔ^½ + κΔ has A's spectrum as 1 − 1/eig, its companion solves
    1/t − s = (1/n)Tr Σ̃Q, and t = 1 at z = 0 for any penalty. Build the traces with the shift κΔ; nothing is then singular
    at λ = 0, where for n < d the fraction n/d of the eigenvalues is exactly 1. The line runs in the plane of A's
    eigenvalue a = x + iy, where z = 1/(1−a) and (1/d)Tr(A−a)⁻¹ = z(1 + z m(z)).
    """
    heights = _heights(step)
    z = 1.0 / (1.0 - _lines(points, heights))
    solved = companion(traces, samples, z, slack, start=jnp.ones(()))
    return _integrate((z * (1.0 + z * solved.stieltjes)).real, heights)


def _lines(points: Float[Array, " x"], heights: Float[Array, " steps"]) -> Complex[Array, "steps x"]:
    shape = (heights.shape[0], points.shape[0])
    return lax.complex(jnp.broadcast_to(points[None, :], shape), jnp.broadcast_to(heights[:, None], shape))


def _integrate(real_part: Float[Array, "steps x"], heights: Float[Array, " steps"]) -> Float[Array, " x"]:
    """½ − (1/π)∫ y Re m(x+iy) d log y. Beyond both ends the terms are geometric (∝ 1/y, ∝ y), summed in closed form."""
    terms = real_part * heights[:, None]
    spacing = jnp.log(heights[0] / heights[1])
    beyond = (terms[0] + terms[-1]) / jnp.expm1(spacing)
    return 0.5 - spacing * (terms.sum(0) + beyond) / jnp.pi


def masses(below: Float[Array, " inner"]) -> Float[Array, " bins"]:
    """Masses of the bins between inner edges, from the distribution function there; the outer two bins are open-ended.

    >>> import jax.numpy as jnp
    >>> masses(jnp.array([0.25, 0.5])).tolist()
    [0.25, 0.25, 0.5]
    """
    # Where there is no mass, or all of it, quadrature errors of 1e-9 must not make it negative or more than one.
    return jnp.clip(jnp.diff(jnp.concatenate([jnp.zeros(1), below, jnp.ones(1)])), 0.0, 1.0)


def atoms(shift: Float[Array, " k"], weights: Float[Array, " k"], samples: Scalar) -> Float[Array, " k"]:
    """Mass of the atom of M at z = shift[k]: the fraction of coordinates with this shift minus n/d, if positive.

    Coordinates that share a shift b span a space in which X has a null space when there are more of them than samples.

    >>> import jax.numpy as jnp
    >>> atoms(jnp.array([0.0, 1.0]), jnp.array([0.25, 0.75]), jnp.float64(0.5)).tolist()
    [0.0, 0.25]
    """
    same = jnp.isclose(shift[:, None], shift[None, :], rtol=1e-12, atol=0.0)
    return jnp.maximum(jnp.where(same, weights[None, :], 0.0).sum(1) - samples, 0.0)
