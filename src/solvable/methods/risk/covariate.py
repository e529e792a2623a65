"""Generalised linear learning on structured Gaussian inputs: one saddle point for all covariances, teachers and losses.

Inputs x ∈ R^p have covariance Ω with eigenvalues ω_i; the teacher's field ν has unit variance, and √p E[xν] has
squared component τ_i on eigenvector i (`methods.random_matrices.spectra`). The student minimises
Σ_μ ℓ(y_μ, w·x_μ/√p) + λ|w|²/2 over n = αp samples: the *sum* of the losses, `samples` per feature.
With the output channel's conjugates (`methods.risk.channels`, times α),
R = 1/(λ + V̂ω) and ⟨·⟩ the mean over i,

    V = ⟨ωR⟩,   m = m̂⟨τR⟩,   q = ⟨(m̂²τω + q̂ω²)R²⟩        (Loureiro et al. 2021, arXiv:2102.08127).

The unknowns of the solver are log S, arsinh(A/√B) and log B with S = λ + V̂ω̄, ω̄ = ⟨ω⟩, A = m̂/S, B = q̂/S². They stay finite
as λ → 0, at λ = 0 itself where a minimum exists, on both sides of interpolation, where V̂ vanishes (the hinge loss under a
strong penalty), and for random labels (A = 0): with r = S/(λ + (S − λ)ω/ω̄), V = ⟨ωr⟩/S, m = A⟨τr⟩ and
q = A²⟨τωr²⟩ + B⟨ω²r²⟩.

The variance of the teacher's field given the student's, 1 − m²/q, is computed as a sum of positive terms: with μ = τ/ω
it is (1 − ⟨μ⟩) + ⟨μ⟩(B⟨ω²r²⟩ + A²⟨μ(ωr − mean)²⟩)/q.

**Stability.** A small distance δ between two replicas becomes Gδ, the product of the squared responses of fields and weights:

    G = α E[(∂f/∂ω)²] ⟨ω²R²⟩ = α E[(1 − prox′)²] ⟨(ωr)²⟩/⟨ωr⟩²        (de Almeida and Thouless 1978).

G < 1 means replica symmetry. For a convex loss 0 ≤ 1 − prox′ ≤ 1, hence αE[(1 − prox′)²] ≤ VV̂ = ⟨V̂ωR⟩ and always G ≤ 1. A
loss that is not convex may have G > 1, or a prox that jumps (V ℓ″ < −1 somewhere: G = ∞).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...errors import InvalidValue, UnknownName, nearest
from ..fixed_points.saddle import solve
from ..random_matrices.equivalents import effective_ridge
from ..random_matrices.spectra import (
    ACTIVATIONS,
    Nonlinearity,
    Spectrum,
    activation_named,
    clouds,
    equivalent,
    features,
    gaussian_features,
    hidden_manifold,
    isotropic,
    joint_spectrum,
    nonlinearity,
    of_matrices,
    orthogonal_features,
    power_law,
)
from .losses import Hinge, Logistic, Loss, Square, loss_named
from .separability import interpolation_threshold, separability_threshold
from .teachers import Clouds, Labels, Linear, Sign, Teacher, number, random_labels

__all__ = [
    "ACTIVATIONS",
    "STATUSES",
    "BestPenalty",
    "Clouds",
    "Learned",
    "Linear",
    "Nonlinearity",
    "Sign",
    "Spectrum",
    "Student",
    "activation_named",
    "best_penalty",
    "clouds",
    "equivalent",
    "features",
    "gaussian_features",
    "hidden_manifold",
    "interpolation_threshold",
    "isotropic",
    "joint_spectrum",
    "learn",
    "nonlinearity",
    "of_matrices",
    "orthogonal_features",
    "power_law",
    "random_labels",
    "separability_threshold",
    "sign_student",
    "square_student",
    "stability",
    "status_words",
    "student",
]

Scalar = Float[Array, ""]


class Student(NamedTuple):
    """Order parameters m, q, V; `rest` is the variance of the teacher's noisy field given the student's."""

    m: Scalar
    q: Scalar
    V: Scalar
    rest: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


# --- the input side -----------------------------------------------------------------------------------------------------


class _Scaled(NamedTuple):
    """S = λ + V̂ω̄, A = m̂/S, B = q̂/S²."""

    S: Scalar
    A: Scalar
    B: Scalar


def _shrinkage(spectrum: Spectrum, penalty: Scalar, S: Scalar) -> Float[Array, " k"]:
    """r = S/(λ + (S − λ)ω/ω̄); zero in flat directions, where nothing is learnt."""
    varies = spectrum.omega > 0
    under = penalty + (S - penalty) * spectrum.omega / (spectrum.weights @ spectrum.omega)
    return jnp.where(varies, S / jnp.where(varies, under, 1.0), 0.0)


def _order_parameters(spectrum: Spectrum, penalty: Scalar, noise: Scalar, at: _Scaled):
    """(m, q, V, rest) by the formulas at the top of the module."""
    omega, tau, weights, _ = spectrum
    r = _shrinkage(spectrum, penalty, at.S)
    m = at.A * (weights @ (tau * r))
    spread = at.B * (weights @ (omega * r) ** 2)
    q = at.A**2 * (weights @ (tau * omega * r**2)) + spread
    V = weights @ (omega * r) / at.S
    # ωr − mean is also −κ(r − mean), κ = λω̄/(S − λ), which keeps its digits for κ → 0, where ωr is the same for all.
    mean = weights @ omega
    large = 2 * penalty < at.S
    kappa = penalty * mean / jnp.where(large, at.S - penalty, 1.0)
    return m, q, V, _rest(spectrum, r, at.A, spread, q, large, kappa) + noise


def _rest(spectrum: Spectrum, r: Array, A: Scalar, spread: Scalar, q: Scalar, large: Array, kappa: Scalar) -> Scalar:
    """1 − m²/q as a sum of positive terms."""
    omega, tau, weights, unexplained = spectrum
    varies = omega > 0
    share = weights * jnp.where(varies, tau / jnp.where(varies, omega, 1.0), 0.0)
    total = jnp.sum(share)
    values = jnp.where(large, r, omega * r)
    centre = share @ values / jnp.where(total > 0, total, 1.0)
    centred = (values - centre) * jnp.where(large, kappa, 1.0)
    return unexplained + total * (spread + A**2 * (share @ centred**2)) / q


class _Ridge(NamedTuple):
    """Ridge regression: κ = λ/V̂, m̂/V̂ and q̂/V̂², with m, q, V and how well κ was found."""

    kappa: Scalar
    amplitude: Scalar
    residue: Scalar
    m: Scalar
    q: Scalar
    V: Scalar
    residual: Scalar
    converged: Bool[Array, ""]


def _ridge(spectrum: Spectrum, samples: Scalar, penalty: Scalar, labels: Labels) -> _Ridge:
    """V̂ = α/(1+V), m̂ = V̂(c − feedback·m), q̂ = V̂²E(y − z)²/α, linear in m and q once κ is known; λ = 0 is λ → 0⁺."""
    omega, tau, weights, _ = spectrum
    power, correlation, feedback = labels
    ridge = effective_ridge(omega, samples, penalty / samples, weights)
    varies = omega > 0
    inverse = jnp.where(varies, 1 / (jnp.where(varies, omega, 1.0) + ridge.kappa), 0.0)
    share = omega * inverse
    seen = weights @ (tau * inverse)
    amplitude = correlation / (1 + feedback * seen)
    m = amplitude * seen
    bias = amplitude**2 * (weights @ (tau * share * inverse))
    noise = weights @ share**2 / samples
    # 1 − noise without cancellation: df1/n = 1 − slack.
    left = ridge.slack + ridge.kappa * (weights @ (share * inverse)) / samples
    misfit = power - 2 * correlation * m + feedback * m**2
    q = (bias + noise * misfit) / left
    V = weights @ share / (samples * ridge.slack)
    return _Ridge(ridge.kappa, amplitude, (misfit + q) / samples, m, q, V, ridge.residual, ridge.converged)


def _square(spectrum: Spectrum, samples: Scalar, penalty: Scalar, labels: Labels, noise: Scalar) -> Student:
    found = _ridge(spectrum, samples, penalty, labels)
    varies = spectrum.omega > 0
    inverse = jnp.where(varies, 1 / (jnp.where(varies, spectrum.omega, 1.0) + found.kappa), 0.0)
    spread = found.residue * (spectrum.weights @ (spectrum.omega * inverse) ** 2)
    large = found.kappa < spectrum.weights @ spectrum.omega
    rest = _rest(spectrum, inverse, found.amplitude, spread, found.q, large, found.kappa) + noise
    return Student(found.m, found.q, found.V, rest, found.residual, found.converged)


def square_student(
    spectrum: Spectrum, samples: Scalar, penalty: Scalar, power: Scalar, correlation: Scalar, noise: Scalar
) -> Student:
    """Ridge regression: V̂ = α/(1+V), m̂ = cV̂, q̂ = α(power − 2cm + q)/(1+V)², linear in m and q once κ is known.

    The labels enter through E y² = `power` and E ∂y/∂ν = c = `correlation` (linear teacher: 1 + Δ and 1; sign teacher: 1
    and √(2/π(1+Δ))); `samples` is α = n/p. κ solves λ/κ + ⟨ω/(ω+κ)⟩ = α, and 1 + V = ακ/λ.

    >>> one, zero = jnp.ones(()), jnp.zeros(())
    >>> found = square_student(isotropic(), 2 * one, 0.1 * one, one, one, zero)
    >>> round(float(found.m), 6), round(float(found.V), 6)
    (0.915571, 0.844289)
    """
    return _square(spectrum, samples, penalty, Labels(power, correlation, 0.0), noise)


# --- the saddle point ---------------------------------------------------------------------------------------------------


def student(
    loss: Loss,
    teacher: Teacher,
    spectrum: Spectrum,
    samples: Scalar,
    penalty: Scalar,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 400,
) -> Student:
    """The order parameters for any loss and teacher, by quadrature (`nodes` a panel); the square loss in closed form.

    The search starts from ridge regression at the same point, or at λ = 1e-3 if λ is smaller.

    >>> one = jnp.ones(())
    >>> found = student(loss_named("logistic"), random_labels(), isotropic(), 3 * one, 0 * one)
    >>> float(found.m), round(float(found.q), 4)
    (0.0, 5.6029)
    """
    labels, noise = teacher.labels(), teacher.noise_variance
    if isinstance(loss, Square):
        return _square(spectrum, samples, penalty, labels, noise)

    def read(x, penalty):
        # A trial S < λ means V̂ < 0, which is impossible.
        root = jnp.exp(0.5 * x[2])
        return _Scaled(jnp.maximum(jnp.exp(x[0]), penalty), jnp.sinh(x[1]) * root, root**2)

    def update(x, args):
        teacher, spectrum, samples, penalty = args
        at = _order_parameters(spectrum, penalty, teacher.noise_variance, read(x, penalty))
        hat = teacher.moments(loss, *at, nodes)
        S = penalty + samples * hat.response * (spectrum.weights @ spectrum.omega)
        ratio = jnp.sqrt(samples / hat.norm) * hat.overlap
        return jnp.stack([jnp.log(S), jnp.arcsinh(ratio), jnp.log(samples * hat.norm / S**2)])

    first = _ridge(spectrum, samples, jnp.maximum(penalty, 1e-3), labels)
    mean = spectrum.weights @ spectrum.omega
    scale = first.kappa + mean
    S = jnp.where(penalty > 0, penalty, 1e-3) * (1 + mean / first.kappa)
    start = jnp.stack(
        [jnp.log(S), jnp.arcsinh(first.amplitude / jnp.sqrt(first.residue)), jnp.log(first.residue / scale**2)]
    )
    args = (teacher, spectrum, samples, penalty)
    found = solve(update, start, args, tolerance=tolerance, max_steps=max_steps)
    at = _order_parameters(spectrum, penalty, noise, read(found.x, penalty))
    return Student(*at, found.residual, found.converged)


def sign_student(
    loss: Loss,
    spectrum: Spectrum,
    samples: Scalar,
    penalty: Scalar,
    noise: Scalar,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 400,
) -> Student:
    """Any loss under the sign teacher y = sign(ν + √Δ ζ), by quadrature also for the square loss.

    >>> found = sign_student(loss_named("logistic"), isotropic(), jnp.asarray(2.0), jnp.asarray(0.1), jnp.zeros(()))
    >>> round(float(found.m), 4), round(float(found.q), 4)
    (1.7203, 4.1458)
    """
    return student(loss, Sign(noise), spectrum, samples, penalty, nodes=nodes, tolerance=tolerance, max_steps=max_steps)


def stability(
    loss: Loss, teacher: Teacher, spectrum: Spectrum, samples: Scalar, penalty: Scalar, at: Student, nodes: int = 14
) -> Scalar:
    """G of the module's docstring: replica symmetry holds where it is below one; ∞ where the proximal operator jumps.

    >>> one = jnp.ones(())
    >>> found = student(loss_named("square"), Linear(), isotropic(), 2 * one, 0.1 * one)
    >>> round(float(stability(loss_named("square"), Linear(), isotropic(), 2 * one, 0.1 * one, found)), 6)  # α(V/(1+V))²
    0.419135
    """
    if isinstance(loss, Square):  # V is infinite for interpolation without a penalty
        stiff = 1 / (1 + 1 / at.V)
        response, fluctuation = samples * stiff / at.V, stiff**2
    else:
        hat = teacher.moments(loss, at.m, at.q, at.V, at.rest, nodes)
        response, fluctuation = samples * hat.response, hat.fluctuation * at.V**2
    omega, weights = spectrum.omega, spectrum.weights
    kappa = jnp.where(jnp.isinf(at.V), effective_ridge(omega, samples, penalty / samples, weights).kappa, 0.0)
    some = response > 0
    kappa = jnp.where(some, penalty / jnp.where(some, response, 1.0), kappa)
    # ωr up to a factor: ω/(ω + κ), or ω itself where there is no response.
    under = jnp.where(some | (kappa > 0), omega + kappa, 1.0)
    share = jnp.where(omega > 0, omega / jnp.where(omega > 0, under, 1.0), 0.0)
    G = samples * fluctuation * (weights @ share**2) / (weights @ share) ** 2
    return jnp.where(1 + at.V * loss.least_curvature <= 0, jnp.inf, G) if loss.least_curvature < 0 else G


# --- everything at once -------------------------------------------------------------------------------------------------

STATUSES = (
    "converged",
    "interpolates: the limit of a vanishing penalty, training loss zero",
    "separable: without a penalty there is no minimum",
    "did not converge",
    "unstable: replica symmetry is broken, values are approximate",
    "singular: without a penalty the norm diverges at n = p",
)
"""The meaning of `Learned.status`, by number: values are exact at 0 and 1, approximate at 4, NaN at the others."""


def status_words(status: Any) -> str:
    """A status in words.

    >>> status_words(2)
    'separable: without a penalty there is no minimum'
    """
    return STATUSES[int(status)]


class Learned(NamedTuple):
    """What a student learns: order parameters, mean losses per sample (no penalty), errors, and their reliability.

    `squared_error` is E(y − z)² on a fresh sample; errors are NaN for a teacher with real labels. `stability` below one
    means replica symmetry; `status` is an index into `STATUSES`.
    """

    m: Scalar
    q: Scalar
    V: Scalar
    rest: Scalar
    train_loss: Scalar
    train_error: Scalar
    test_loss: Scalar
    test_error: Scalar
    squared_error: Scalar
    stability: Scalar
    residual: Scalar
    converged: Bool[Array, ""]
    status: Int[Array, ""]


def learn(
    loss: Loss | str,
    teacher: Teacher,
    spectrum: Spectrum,
    samples: Any,
    penalty: Any,
    *,
    nodes: int = 14,
    tolerance: float = 1e-11,
    max_steps: int = 400,
) -> Learned:
    """Order parameters, losses, errors, stability and status of the student; `samples` is n/p, `penalty` λ on the *sum* loss.

    λ = 0 is the limit λ → 0⁺ for the square loss (the interpolator of least norm below n = p), and the minimum itself for
    other losses. For separable labels there is none: values are NaN and `status` is 2. Arguments are scalars; `jax.vmap`
    runs many points at once.

    >>> found = learn("logistic", Sign(flips=0.1), power_law(jnp.asarray(1.2), jnp.asarray(0.5), 100), 4.0, 0.0)
    >>> round(float(found.test_error), 4), status_words(found.status)
    (0.2707, 'converged')
    >>> status_words(learn("logistic", Sign(flips=0.1), power_law(jnp.asarray(1.2), jnp.asarray(0.5), 100), 2.9, 0.0).status)
    'separable: without a penalty there is no minimum'
    """
    loss = loss_named(loss) if isinstance(loss, str) else loss
    alpha = number("samples", samples, 0.0, np.inf, low_open=True)
    lam = number("penalty", penalty, 0.0, np.inf)
    if isinstance(teacher, Linear) and isinstance(loss, (Logistic, Hinge)):
        raise InvalidValue(
            f"loss = {type(loss).__name__} needs labels ±1; with a Linear teacher use a loss for real labels."
        )
    return _learn(loss, teacher, spectrum, alpha, lam, nodes, tolerance, max_steps)


@eqx.filter_jit
def _learn(loss, teacher, spectrum, alpha, lam, nodes, tolerance, max_steps) -> Learned:
    square = isinstance(loss, Square)
    at = student(loss, teacher, spectrum, alpha, lam, nodes=nodes, tolerance=tolerance, max_steps=max_steps)
    labels = teacher.labels()
    squared = labels.power - 2 * labels.correlation * at.m + labels.feedback * at.m**2 + at.q
    risks = teacher.risks(loss, at.m, at.q, jnp.minimum(at.V, 1e300) if square else at.V, at.rest, nodes)
    if square:
        risks = risks._replace(train_loss=0.5 * squared / (1 + at.V) ** 2, test_loss=0.5 * squared)
    G = stability(loss, teacher, spectrum, alpha, lam, at, nodes)

    # A hinge or logistic saddle point on separable data without a penalty is wrong, converged or not.
    without = lam <= 0
    exists = jnp.asarray(True)
    if not square and isinstance(teacher, (Sign, Clouds)):
        falls = loss.slope(jnp.ones(()), jnp.asarray(30.0)) <= 0  # does ℓ have its infimum at infinite margins?
        exists = ~(without & falls & (alpha <= separability_threshold(spectrum, teacher)))
    threshold = interpolation_threshold(spectrum)
    if square:
        exists = ~(without & (jnp.abs(alpha - threshold) <= 1e-12 * threshold))  # q is infinite there
    ok = at.converged & exists & jnp.isfinite(at.q)
    interpolates = without & (alpha < threshold) if square else jnp.asarray(False)
    status = jnp.where(ok, jnp.where(interpolates, 1, 0), jnp.where(exists, 3, 5 if square else 2))
    unstable = ~(G < 1) if loss.least_curvature < 0 else jnp.asarray(False)
    status = jnp.where(ok & unstable, 4, status)
    values = (at.m, at.q, at.V, at.rest, *risks, squared, G)
    veil = jnp.where(ok, 1.0, jnp.nan)  # a factor, so that derivatives are NaN as well
    return Learned(*[v * veil for v in values], residual=at.residual, converged=ok, status=status)


# --- the best penalty ---------------------------------------------------------------------------------------------------


class BestPenalty(NamedTuple):
    """The best λ, the observable there, its slope d/d log λ, and whether λ is an end of the range searched."""

    penalty: Scalar
    value: Scalar
    slope: Scalar
    at_bound: Bool[Array, ""]


def best_penalty(
    loss: Loss | str,
    teacher: Teacher,
    spectrum: Spectrum,
    samples: Scalar | float,
    *,
    minimise: str = "test_error",
    between: tuple[float, float] = (1e-6, 1e4),
    scan: int = 11,
    nodes: int = 14,
    tolerance: float = 1e-7,
) -> BestPenalty:
    """The λ that minimises an observable of the theory: the zero of its slope in log λ, by implicit derivatives.

    A scan of the range picks the basin and brackets the zero of the slope. Further scans cover that bracket (densely near
    the secant's zero) until it is narrower than `tolerance` in log λ. Pure JAX: `jax.vmap` it over spectra and samples.

    >>> best = best_penalty("square", Linear(noise=0.5), isotropic(), 2.0, minimise="test_loss")
    >>> round(float(best.penalty), 6)  # ridge regression is best at the noise itself
    0.5
    """
    if minimise not in (known := ["test_error", "test_loss", "squared_error"]):
        raise UnknownName(f"there is no observable {minimise!r} to minimise; {nearest(minimise, known)}")
    if isinstance(teacher, Linear) and minimise == "test_error":
        raise InvalidValue("minimise = 'test_error' needs labels ±1; with a Linear teacher use 'test_loss'.")
    low, high = float(between[0]), float(between[1])
    if not 0 < low < high < np.inf:
        raise InvalidValue(f"between = {between!r} is not a range of positive penalties.")
    alpha = number("samples", samples, 0.0, np.inf, low_open=True)
    return _best_penalty(loss, teacher, spectrum, alpha, minimise, (low, high), scan, nodes, tolerance)


@eqx.filter_jit
def _best_penalty(loss, teacher, spectrum, samples, minimise, between, scan, nodes, tolerance) -> BestPenalty:
    loss = loss_named(loss) if isinstance(loss, str) else loss
    labels = teacher.labels()

    def height(x):
        at = student(loss, teacher, spectrum, samples, jnp.exp(x), nodes=nodes)
        if minimise == "squared_error" or (isinstance(loss, Square) and minimise == "test_loss"):
            squared = labels.power - 2 * labels.correlation * at.m + labels.feedback * at.m**2 + at.q
            return squared if minimise == "squared_error" else 0.5 * squared
        return getattr(teacher.risks(loss, at.m, at.q, at.V, at.rest, nodes), minimise)

    rising = jax.vmap(lambda x: jax.jvp(height, (x,), (jnp.ones(()),)))
    parts = jnp.linspace(0.0, 1.0, scan)

    # One evaluation at many points per iteration: a uniform scan, and the secant's zero with two near neighbours.
    def body(state):
        a, b, zero, _, _, _, turn = state
        near = 0.01 * (b - a) * jnp.asarray([-1.0, 0.0, 1.0])
        places = jnp.sort(jnp.concatenate([a + (b - a) * parts, jnp.clip(zero + near, a, b)]))
        heights, slopes = rising(places)
        finite = jnp.where(jnp.isfinite(heights), heights, jnp.inf)
        # The lowest among the pairs of neighbours between which the slope changes sign; without any, an end.
        turns = (slopes[:-1] < 0) & (slopes[1:] >= 0)
        i = jnp.argmin(jnp.where(turns, jnp.minimum(finite[:-1], finite[1:]), jnp.inf))
        crosses = jnp.any(turns)
        flattest = jnp.where(jnp.abs(slopes[i]) < jnp.abs(slopes[i + 1]), i, i + 1)
        k = jnp.where(crosses, flattest, jnp.argmin(finite))
        secant = places[i] - slopes[i] * (places[i + 1] - places[i]) / jnp.where(
            crosses, slopes[i + 1] - slopes[i], 1.0
        )
        low, high, zero = (jnp.where(crosses, v, places[k]) for v in (places[i], places[i + 1], secant))
        return low, high, zero, places[k], heights[k], slopes[k], turn + 1

    def unfinished(state):
        a, b, _, _, _, slope, turn = state
        return (turn < 20) & (b - a > tolerance) & ~(slope == 0)

    low, high = (jnp.log(jnp.asarray(end)) for end in between)
    start = (low, high, 0.5 * (low + high), low, low, jnp.ones(()), jnp.asarray(0))
    _, _, _, place, value, slope, _ = jax.lax.while_loop(unfinished, body, start)
    at_bound = (place <= low + 1e-9) | (place >= high - 1e-9)
    return BestPenalty(jnp.exp(place), value, slope, at_bound)
