"""Joint spectra of Gaussian covariates: the teacher's components along the student's principal directions.

The student's inputs x ∈ R^p have covariance Ω, with eigenvalues ω_i and eigenvectors e_i. The teacher's field ν is Gaussian
*with unit variance* (so that noise Δ is measured in its units), and τ_i is the squared component of √p E[xν] on e_i:

    ω_i = e_iᵀΩe_i,    τ_i = p (e_i·E[xν])²,    weights that sum to one (1/p each for matrices),

and 1 − ⟨τ/ω⟩ is the part of the teacher that no linear student can learn. With inputs x = yμ + Ω^½z in two clouds
(`clouds`) the class mean takes the teacher's place: τ_i = p (e_i·μ)².

Matrices (`of_matrices`), spectra (`joint_spectrum`) and named ensembles (`isotropic`, `power_law`, `features`,
`hidden_manifold`, `clouds`) all become a `Spectrum`, the input of `methods.risk.covariate`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...errors import InvalidValue, UnknownName, nearest
from ..averages.functions import function_named
from ..averages.quadrature import legendre

Scalar = Float[Array, ""]


def check_given(covariance: str, matrix: Any) -> None:
    """Raise `InvalidValue` unless `matrix` is a covariance where `covariance` is "given", and None where it is not.

    >>> check_given("white", None)
    """
    if covariance != "given":
        if matrix is not None:
            raise InvalidValue(f"matrix is used with covariance = 'given' only, not with {covariance!r}.")
        return
    if matrix is None or matrix.shape[0] != matrix.shape[1]:
        raise InvalidValue("covariance = 'given' needs `matrix`, a d×d covariance.")
    if not isinstance(matrix, Tracer):
        own = np.asarray(matrix)
        if not np.allclose(own, own.T) or np.linalg.eigvalsh(own)[0] <= 0:
            raise InvalidValue("matrix is not a covariance: it must be symmetric with positive eigenvalues.")


# --- spectra ----------------------------------------------------------------------------------------------------------


class Spectrum(NamedTuple):
    """Joint spectrum (ω_i, τ_i) with weights that sum to one, and the unlearnable part 1 − ⟨τ/ω⟩ of the teacher."""

    omega: Float[Array, " k"]
    tau: Float[Array, " k"]
    weights: Float[Array, " k"]
    unexplained: Scalar


def isotropic() -> Spectrum:
    """Ω = 1 and a teacher linear in the inputs: the perceptron.

    >>> float(isotropic().omega[0])
    1.0
    """
    return Spectrum(jnp.ones(1), jnp.ones(1), jnp.ones(1), jnp.zeros(()))


def power_law(decay: Scalar, teacher_decay: Scalar, modes: int) -> Spectrum:
    """ω_k ∝ k^−decay (of mean one) and a teacher in the inputs with squared weights θ_k² ∝ k^−teacher_decay.

    The field ν = θ·x/√p has variance ⟨ωθ²⟩ = 1, and τ = ω²θ².

    >>> s = power_law(jnp.asarray(1.2), jnp.asarray(0.5), 100)
    >>> bool(abs(s.weights @ (s.tau / s.omega) - 1) < 1e-12)
    True
    """
    k = jnp.arange(1, modes + 1, dtype=float)
    omega = k**-decay
    omega = omega / jnp.mean(omega)
    teacher = k**-teacher_decay
    teacher = teacher / jnp.mean(omega * teacher)
    return Spectrum(omega, omega**2 * teacher, jnp.full(modes, 1 / modes), jnp.zeros(()))


def gaussian_features(width: Scalar, linear: float, rest: float, nodes: int) -> Spectrum:
    """Random features of a Gaussian projection: ω = κ1²s + κ⋆², τ = κ1²s·width, s the spectrum of FᵀF/d, width = p/d.

    s follows Marchenko and Pastur's law: s = 1 + r + 2√r cos θ, midpoint in θ, where sρ(s)ds = (2/π)sin²θ dθ exactly, for
    every r. The value at s = 0 takes the rest of the mass: the atom 1 − 1/r for r > 1, and for r near one also the
    correction ⟨f⟩ = f(0) + ⟨s·(f(s) − f(0))/s⟩, without which the rule would lose 5e-4 of the mass. The remaining error is
    due to the pole of (f(s) − f(0))/s at s = −(κ⋆² + κ)/κ1²: 64 nodes give 1e-12 for κ⋆²/κ1² = 0.05 at r = 1.

    >>> s = gaussian_features(jnp.asarray(1.001), 0.8, 0.6, 64)
    >>> bool(abs(s.weights @ s.omega - 1) < 1e-14)
    True
    """
    theta = (np.arange(nodes) + 0.5) * np.pi / nodes
    s = (1 - jnp.sqrt(width)) ** 2 + 4 * jnp.sqrt(width) * jnp.asarray(np.cos(theta / 2) ** 2)
    mass = jnp.asarray(2 * np.sin(theta) ** 2 / nodes)  # weights of s·ρ(s): they sum to one, the mean of s
    seen = linear**2 / (linear**2 * s + rest**2)
    weights = mass / s
    return Spectrum(
        jnp.append(linear**2 * s + rest**2, rest**2),
        jnp.append(linear**2 * s * width, 0.0),
        jnp.append(weights, 1 - jnp.sum(weights)),
        jnp.maximum(1 - width * mass @ seen, 0.0),
    )


def orthogonal_features(width: Scalar, linear: float, rest: float) -> Spectrum:
    """The same for orthogonal projections: all s = 1 while p ≤ d; s = p/d with weight d/p and zeros beyond.

    >>> orthogonal_features(jnp.asarray(2.0), 1.0, 0.5).omega.tolist()
    [2.25, 0.25]
    """
    s, weight = jnp.maximum(width, 1.0), jnp.minimum(1 / width, 1.0)
    omega = linear**2 * s + rest**2
    explained = jnp.minimum(width, 1.0) * linear**2 * s / omega
    outside = jnp.maximum(1 - width, 0.0)  # the fraction of the d directions of c that no feature sees
    return Spectrum(
        jnp.stack([omega, jnp.full_like(omega, rest**2)]),
        jnp.stack([linear**2 * s * width, jnp.zeros_like(omega)]),
        jnp.stack([weight, 1 - weight]),
        jnp.where(width < 1, outside + jnp.minimum(width, 1.0) * rest**2 / omega, 1 - explained),
    )


def features(width: Scalar, activation: Nonlinearity | str, projection: str = "gaussian", nodes: int = 96) -> Spectrum:
    """Features x = σ(Fᵀc/√d) of d Gaussian inputs c, width = p/d; σ by name, or any function through `nonlinearity`.

    >>> s = features(jnp.asarray(2.0), nonlinearity(lambda z: jnp.sin(2 * z)), "orthogonal")
    >>> bool(abs(s.weights @ s.omega - 0.5 * (1 - np.exp(-8))) < 1e-12)  # the mean of sin²(2z)
    True
    """
    sigma = activation_named(activation) if isinstance(activation, str) else activation
    if projection == "orthogonal":
        return orthogonal_features(width, sigma.linear, sigma.rest)
    if projection == "gaussian":
        return gaussian_features(width, sigma.linear, sigma.rest, nodes)
    raise UnknownName(f"there is no projection {projection!r}; {nearest(projection, ['gaussian', 'orthogonal'])}")


def hidden_manifold(
    latent: Scalar, activation: Nonlinearity | str, projection: str = "gaussian", nodes: int = 96
) -> Spectrum:
    """The hidden manifold model (Goldt et al. 2020): inputs x = σ(Fᵀc/√d) ∈ R^p lie on a manifold of dimension d.

    The same mathematics as `features` with other roles: x is the data, c its hidden coordinates, on which the labels
    depend, and `latent` = d/p; a linear student sees the data directly.

    >>> same = features(jnp.asarray(4.0), "tanh").omega == hidden_manifold(jnp.asarray(0.25), "tanh").omega
    >>> bool(same.all())
    True
    """
    return features(1 / latent, activation, projection, nodes)


def of_matrices(Psi: Any, Phi: Any, Omega: Any, theta: Any = None) -> Spectrum:
    """The spectrum of given covariances: teacher's inputs u ~ N(0, Ψ) in R^k, student's x ~ N(0, Ω) in R^p, E[uxᵀ] = Φ.

    The teacher's field is ν = θ·u/√(θᵀΨθ), with unit variance for any length of θ: τ_i = p (θᵀΦe_i)²/(θᵀΨθ). Without
    `theta` it is averaged over an isotropic one: τ_i = p |Φe_i|²/Tr Ψ. Flat directions of Ω (below 1e-12 of its largest
    eigenvalue) stay in the spectrum with ω = τ = 0: they count as features, but nothing is learnt in them.

    >>> s = of_matrices(np.eye(2), np.diag([1.0, 0.5]), np.eye(2), [1.0, 1.0])
    >>> s.tau.tolist(), float(s.unexplained)
    ([1.0, 0.25], 0.375)
    """
    teacher, cross, student = _matrix("Psi", Psi), _matrix("Phi", Phi), _matrix("Omega", Omega)
    _covariance("Psi", teacher)
    values, vectors = _covariance("Omega", student)
    k, p = len(teacher), len(student)
    if cross.shape != (k, p):
        raise InvalidValue(
            f"Phi has shape {cross.shape}; Psi and Omega require ({k}, {p}), one row per input of the teacher."
        )
    if theta is not None:
        theta = _numbers("theta", theta)
        if theta.shape != (k,):
            raise InvalidValue(f"theta has shape {theta.shape}; Psi requires ({k},).")
    joint = np.linalg.eigvalsh(np.block([[teacher, cross], [cross.T, student]]))
    if joint[0] < -ROUNDING * joint[-1]:
        raise InvalidValue(
            "Phi is larger than Psi and Omega allow: the joint covariance [[Psi, Phi], [Phiᵀ, Omega]] has the eigenvalue "
            f"{joint[0]:.4g}; none may be negative."
        )
    seen = cross @ vectors
    power = np.trace(teacher) if theta is None else theta @ teacher @ theta
    if not power > 0:
        raise InvalidValue(f"theta gives a field of variance {power:.4g}, which must be positive.")
    components = (seen**2).sum(0) if theta is None else (theta @ seen) ** 2
    flat = values <= 1e-12 * values[-1]
    omega, tau = np.where(flat, 0.0, values), np.where(flat, 0.0, p * components / power)
    reach = float(np.mean(np.divide(tau, omega, out=np.zeros(p), where=~flat)))
    arrays = (jnp.asarray(v) for v in (omega, tau, np.full(p, 1 / p), max(1 - reach, 0.0)))
    return Spectrum(*arrays)


def joint_spectrum(omega: Any, tau: Any, weights: Any = None, unexplained: Any = None) -> Spectrum:
    """A spectrum from eigenvalues ω ≥ 0, teacher's components τ ≥ 0, weights that sum to one (default: equal).

    `unexplained` defaults to 1 − ⟨τ/ω⟩; pass it if it is known without cancellation.

    >>> float(joint_spectrum([1.0, 2.0], [1.0, 0.5]).unexplained)
    0.375
    """
    given = {"omega": omega, "tau": tau, "weights": np.full(np.shape(omega), 1 / max(np.size(omega), 1))}
    if weights is not None:
        given["weights"] = weights
    arrays = {name: _numbers(name, value) for name, value in given.items()}
    for name, value in arrays.items():
        if value.ndim != 1 or value.shape != arrays["omega"].shape:
            raise InvalidValue(f"{name} has shape {value.shape}; it must have one number for each in omega.")
        if value.size and value.min() < 0:
            raise InvalidValue(
                f"{name}[{int(value.argmin())}] = {value.min():g} is negative; the allowed range is [0, ∞)."
            )
    w, x, t = arrays["omega"], arrays["weights"], arrays["tau"]
    if not abs(x.sum() - 1) < 1e-9:
        raise InvalidValue(f"weights sum to {x.sum():.8g}; they must sum to 1.")
    if np.any((w == 0) & (t > 0)):
        place = int(np.argmax((w == 0) & (t > 0)))
        raise InvalidValue(
            f"tau[{place}] = {t[place]:g} must be 0 where omega is 0: a flat direction cannot carry a teacher."
        )
    reach = float(x @ np.divide(t, w, out=np.zeros(w.shape), where=w > 0))
    if reach > 1 + 1e-9:
        raise InvalidValue(f"the mean of tau/omega is {reach:.6g}; it must be at most 1, the variance of the teacher.")
    left = np.asarray(max(1 - reach, 0.0) if unexplained is None else unexplained, float)
    if left.shape or not 0 <= left <= 1:
        raise InvalidValue(f"unexplained = {unexplained!r} is not a number in [0, 1].")
    return Spectrum(*(jnp.asarray(v) for v in (w, t, x, left)))


def clouds(mean: Any, Omega: Any) -> Spectrum:
    """Two Gaussian clouds x = yμ + Ω^½z, y = ±1, with the class mean μ (length O(1)) as the teacher: τ = p(e·μ)².

    ⟨τ/ω⟩ = μᵀΩ⁻¹μ is the squared signal-to-noise ratio: the best classifier errs with probability Φ(−√⟨τ/ω⟩).

    >>> s = clouds([0.6, 0.8], np.eye(2))
    >>> float(s.weights @ (s.tau / s.omega))
    1.0
    """
    covariance = _matrix("Omega", Omega)
    values, vectors = _covariance("Omega", covariance)
    mu = _numbers("mean", mean)
    p = len(values)
    if mu.shape != (p,):
        raise InvalidValue(f"mean has shape {mu.shape}; Omega requires ({p},).")
    if values[0] <= 1e-12 * values[-1]:
        raise InvalidValue(
            f"Omega has the eigenvalue {values[0]:.4g}; clouds need all positive, because a flat direction could separate them."
        )
    return Spectrum(jnp.asarray(values), jnp.asarray(p * (mu @ vectors) ** 2), jnp.full(p, 1 / p), jnp.zeros(()))


ROUNDING = 1e-10
"""How negative an eigenvalue of a covariance may be by rounding, relative to the largest."""


def _numbers(name: str, value: Any) -> np.ndarray:
    if isinstance(value, Tracer):
        raise InvalidValue(f"{name} is traced by JAX; matrices and spectra must be concrete numbers.")
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InvalidValue(f"{name} = {value!r} is not an array of numbers.") from None
    if not np.isfinite(array).all():
        raise InvalidValue(f"{name} has an entry {array[~np.isfinite(array)][0]:g}; all must be finite.")
    return array


def _matrix(name: str, value: Any) -> np.ndarray:
    array = _numbers(name, value)
    if array.ndim != 2 or not array.size:
        raise InvalidValue(f"{name} has shape {array.shape}; it must be a matrix.")
    return array


def _covariance(name: str, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (rounded up to zero) and eigenvectors of a covariance; raises `InvalidValue` if it is not one."""
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidValue(f"{name} has shape {matrix.shape}; a covariance must be square.")
    gap, size = np.abs(matrix - matrix.T).max(), np.abs(matrix).max()
    if gap > 1e-9 * size:
        raise InvalidValue(f"{name} differs from its transpose by {gap:.4g}; a covariance must be symmetric.")
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -ROUNDING * max(values[-1], -values[0]):
        raise InvalidValue(f"{name} has the eigenvalue {values[0]:.4g}; a covariance must have none below 0.")
    if not values[-1] > 0:
        raise InvalidValue(f"{name} is zero; a covariance must have a positive eigenvalue.")
    return np.maximum(values, 0.0), vectors


# --- Gaussian equivalence ---------------------------------------------------------------------------------------------


class Nonlinearity(NamedTuple):
    """σ with E σ(z) = 0, z standard Gaussian, and its Gaussian equivalent κ1·z + κ⋆·(independent Gaussian)."""

    function: Callable[[Array], Array]
    linear: float
    rest: float


def equivalent(
    function: Callable[[np.ndarray], Any], step: float = 0.05, kinks: tuple[float, ...] = ()
) -> tuple[float, float, float]:
    """κ0 = E σ, κ1 = E zσ and κ⋆ = √(E σ² − κ0² − κ1²) of an activation.

    Smooth functions use the trapezoidal rule, whose error for σ analytic in a strip of half-width w is exp(−2πw/step);
    the tail beyond |z| = 12 is negligible. Pass jumps and kinks as `kinks`: Gauss–Legendre panels are split there.

    >>> k0, k1, rest = equivalent(lambda z: z**2)
    >>> bool(abs(k0 - 1) < 1e-12 and abs(k1) < 1e-12 and abs(rest - 2**0.5) < 1e-12)
    True
    """
    if kinks:
        edges = np.unique(np.concatenate([np.linspace(-12, 12, 13), np.asarray(kinks, float)]))
        u, mass = legendre(20)
        z = (edges[:-1, None] + np.diff(edges)[:, None] * u[None, :]).reshape(-1)
        w = (np.diff(edges)[:, None] * mass[None, :]).reshape(-1)
    else:
        z = np.arange(-12, 12 + step / 2, step)
        w = np.full(z.shape, step)
    w = w * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    value = np.asarray(function(z), float)
    k0, k1 = float(w @ value), float(w @ (z * value))
    return k0, k1, float(np.sqrt(max(w @ (value - k0 - k1 * z) ** 2, 0.0)))


def nonlinearity(function: Callable[[Array], Array], kinks: tuple[float, ...] = ()) -> Nonlinearity:
    """Any activation (written with `jax.numpy`) as used by features: minus its mean, with its coefficients.

    >>> half = nonlinearity(lambda z: jnp.maximum(z, 0.0), kinks=(0.0,))
    >>> bool(abs(half.linear - 0.5) < 1e-12 and abs(half.rest - activation_named("relu").rest) < 1e-12)
    True
    """
    mean, linear, rest = equivalent(lambda z: np.asarray(function(jnp.asarray(z))), kinks=tuple(kinks))
    if not (np.isfinite(linear) and np.isfinite(rest)) or linear == rest == 0:
        raise InvalidValue(
            f"the activation has κ1 = {linear:g} and κ⋆ = {rest:g}; both must be finite and one nonzero."
        )
    return Nonlinearity(lambda z: function(z) - mean, linear, rest)


ACTIVATIONS = ("erf", "sign", "tanh", "relu")


@cache
def activation_named(name: str) -> Nonlinearity:
    """erf(z/√2), sign, tanh, or relu: max(z, 0) *minus its mean* 1/√(2π), so that no feature has a mean.

    >>> round(activation_named("sign").linear ** 2, 6)
    0.63662
    """
    if name not in ACTIVATIONS:
        raise UnknownName(f"there is no activation {name!r}; {nearest(name, list(ACTIVATIONS))}")
    function = function_named(name)
    if name == "erf":
        return Nonlinearity(function, np.pi**-0.5, (1 / 3 - 1 / np.pi) ** 0.5)
    if name == "sign":
        return Nonlinearity(function, (2 / np.pi) ** 0.5, (1 - 2 / np.pi) ** 0.5)
    if name == "tanh":
        return Nonlinearity(function, *equivalent(np.tanh)[1:])
    mean = (2 * np.pi) ** -0.5
    return Nonlinearity(lambda z: function(z) - float(mean), 0.5, (0.25 - mean**2) ** 0.5)
