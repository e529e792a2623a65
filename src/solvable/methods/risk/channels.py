"""Output channels of zero-temperature replica theories: conjugate order parameters per sample.

The teacher's field ν and the student's cavity field ω are a centred Gaussian pair with variances ρ and q and covariance
m; the student's prediction on a training sample is prox(y, ω, V). With f = (prox − ω)/V the conjugate order parameters,
per sample, are  m̂ = E ∂f/∂ν,  q̂ = E f²,  V̂ = −E ∂f/∂ω.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Float

from ..averages.quadrature import CUT, gaussian_panels, graded_breaks, hermite, legendre
from .losses import Loss

Scalar = Float[Array, ""]


class Conjugates(NamedTuple):
    """m̂, q̂, V̂, per sample."""

    overlap: Scalar
    norm: Scalar
    response: Scalar


class Risks(NamedTuple):
    """Mean losses and error rates of the student, on its training samples and on fresh ones."""

    train_loss: Scalar
    train_error: Scalar
    test_loss: Scalar
    test_error: Scalar


class Moments(NamedTuple):
    """The conjugates, and E (∂f/∂ω)², which decides stability against replica symmetry breaking."""

    overlap: Scalar
    norm: Scalar
    response: Scalar
    fluctuation: Scalar


def sign_channel(
    loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int, flips: Scalar | float = 0.0
) -> Conjugates:
    """A teacher with labels y = sign(ν + noise), flipped with probability e = `flips`.

    P(y=1|ω) = e + (1−2e)Φ(w₀/s) with w₀ = mω/q and s² = `rest`, the variance of the noisy field given ω,
    ρ − m²/q + noise (the caller computes it without cancellation). By the symmetry (y, ω) → (−y, −ω) only y = +1 is
    integrated and counted twice, with ω = √q ξ:
    m̂ = 2(1−2e) ∫Dξ N(w₀; 0, s²) f,  q̂ = 2 ∫Dξ P f²,  V̂ = (2/V) ∫Dξ P (1 − prox′).
    A loss that is not symmetric is integrated for both labels.
    """
    return Conjugates(*sign_moments(loss, m, q, V, rest, nodes, flips)[:3])


def sign_moments(
    loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int, flips: Scalar | float = 0.0
) -> Moments:
    """The result of `sign_channel`, with E (∂f/∂ω)²."""
    spread = jnp.sqrt(rest)
    slope = m / (jnp.sqrt(q) * spread)
    sums = jnp.zeros(4)
    for times, (xi, weight, f, stiff) in sides(loss, V, q, slope, nodes):
        density = jnp.exp(-0.5 * (slope * xi) ** 2) / (spread * np.sqrt(2 * np.pi))
        says_one = flips + (1 - 2 * flips) * ndtr(slope * xi)
        terms = ((1 - 2 * flips) * density * f, says_one * f**2, says_one * stiff, says_one * stiff**2)
        sums = sums + times * jnp.stack([weight @ term for term in terms])
    return Moments(sums[0], sums[1], sums[2] / V, sums[3] / V**2)


class Nodes(NamedTuple):
    """Nodes of an average over a field ω = mean + scale·ξ: ξ, weights, the force f = (prox − ω)/V and 1 − ∂prox/∂ω."""

    xi: Float[Array, " n"]
    weight: Float[Array, " n"]
    force: Float[Array, " n"]
    stiff: Float[Array, " n"]


def sides(loss: Loss, V: Scalar, q: Scalar, slope: Scalar, nodes: int) -> list[tuple[float, Nodes]]:
    """The average over the margin yω = √q ξ for the labels ±1, each with its multiplicity; ξ and f stand for yξ and yf.

    The rest of the integrand has a step of slope `slope` at the origin.
    """
    if loss.by_proximal_point:
        step = 8.0 / jnp.maximum(jnp.abs(slope), 1e-3) * jnp.asarray([-1.0, -0.375, 0.0, 0.375, 1.0])
        return [(times, _margins(loss, label, 0.0, jnp.sqrt(q), V, step, nodes)) for label, times in _labels(loss)]
    xi, weight = _panels(loss, V, q, slope, nodes)
    return [(times, Nodes(xi, weight, *_pull(loss, label, jnp.sqrt(q) * xi, V))) for label, times in _labels(loss)]


def _margins(
    loss: Loss, label: float, mean: Scalar | float, scale: Scalar, V: Scalar, breaks: Array, nodes: int
) -> Nodes:
    """`proximal_nodes` for the margin yω = mean + scale·ξ of a label ±1."""
    found = proximal_nodes(loss, jnp.asarray(label), label * mean, scale, V, label * breaks, nodes)
    return found._replace(xi=label * found.xi, force=label * found.force)


def proximal_nodes(
    loss: Loss, y: Array, mean: Scalar | float, scale: Scalar, V: Scalar, breaks: Float[Array, " b"], nodes: int
) -> Nodes:
    """Nodes of an average over ω ~ N(mean, scale²), in panels of z = prox(y, ω, V) that are also split at ξ in `breaks`.

    ω = z + Vℓ′(y, z) is explicit in z, so the proximal map is inverted at the breaks alone; and as a function of z there are
    no singularities where 1 + Vℓ″ = 0, but those of ℓ itself.

    >>> from .losses import smooth_loss
    >>> one, none = jnp.ones(()), jnp.zeros(0)
    >>> logistic = smooth_loss(lambda y, z: jnp.logaddexp(0.0, -y * z))
    >>> at = proximal_nodes(logistic, one, 0.5, one, 2.0 * one, none, 14)
    >>> bool(abs(at.weight @ (0.5 + at.xi) - 0.5) < 1e-9)
    True
    """
    ends = jnp.asarray([-CUT, -3.0, -0.3, 0.3, 3.0, CUT])
    at = mean + scale * jnp.concatenate([ends, jnp.clip(breaks, -CUT, CUT)])
    z = loss.prox(y * jnp.ones_like(at), at, V * jnp.ones_like(at))
    inner = jnp.clip(loss.places(y), z[0], z[len(ends) - 1])
    edges = jax.lax.stop_gradient(jnp.sort(jnp.concatenate([z, inner])))
    u, w = legendre(nodes)
    length = (edges[1:] - edges[:-1])[:, None]
    z = (edges[:-1, None] + length * jnp.asarray(u)[None, :]).reshape(-1)
    slope, curvature = jax.jvp(lambda z: loss.slope(y * jnp.ones_like(z), z), (z,), (jnp.ones_like(z),))
    xi = (z + V * slope - mean) / scale
    under = 1 + V * curvature
    weight = (length * jnp.asarray(w)[None, :]).reshape(-1) * under / scale
    weight = weight * jnp.exp(-0.5 * xi**2) / np.sqrt(2 * np.pi)
    return Nodes(xi, weight, -slope, V * curvature / under)


def _labels(loss: Loss) -> tuple[tuple[float, float], ...]:
    """The labels to integrate over, each with its multiplicity."""
    return ((1.0, 2.0),) if loss.symmetric else ((1.0, 1.0), (-1.0, 1.0))


def _pull(loss: Loss, label: float, margin: Array, V: Scalar) -> tuple[Array, Array]:
    """y·f and 1 − prox′ at the field ω = y·`margin`."""
    one = jnp.ones_like(margin)
    f, stiff = loss.pull(label * one, label * margin, V * one)
    return label * f, stiff


def sign_risks(
    loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int, flips: Scalar | float = 0.0
) -> Risks:
    """Training and test losses and errors under the sign teacher; test labels carry the same noise and flips."""
    slope = m / jnp.sqrt(q * rest)
    wrong = [V * label * loss.slope(jnp.asarray(label), jnp.zeros(())) for label, _ in _labels(loss)]
    also = jnp.concatenate([jnp.stack(wrong), loss.value_breaks()]) / jnp.sqrt(q)
    xi, weight = _panels(loss, V, q, slope, nodes, also)
    mass = weight * (flips + (1 - 2 * flips) * ndtr(slope * xi))
    train_loss, train_error, test_loss = _measured(loss, jnp.sqrt(q) * xi, mass, V, wrong)
    # The angle whose cosine is m/√(q(ρ + noise)).
    angle = jnp.arctan2(jnp.ones(()), slope) / np.pi
    return Risks(train_loss, train_error, test_loss, flips + (1 - 2 * flips) * angle)


def _measured(loss: Loss, margin: Array, mass: Array, V: Scalar, wrong: list[Scalar]) -> tuple[Scalar, Scalar, Scalar]:
    """Training loss and error and test loss, given the mass of a label's cavity margin; prox < 0 below `wrong`."""
    ones = jnp.ones_like(margin)
    sums = jnp.zeros(3)
    for (label, times), below in zip(_labels(loss), wrong, strict=True):
        prox = loss.prox(label * ones, label * margin, V * ones)
        terms = (
            loss.value(label * ones, prox),
            (margin < below).astype(mass.dtype),
            loss.value(label * ones, label * margin),
        )
        sums = sums + times * jnp.stack([mass @ term for term in terms])
    return sums[0], sums[1], sums[2]


GRADED = 22
"""Panels of an average whose integrand is singular close to the real axis: enough for √q of a few thousand."""


def _panels(
    loss: Loss, V: Scalar, q: Scalar, slope: Scalar, nodes: int, also: Array | None = None
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nodes and weights of the average over ξ = ω/√q, split for the prox, the teacher's step, the Gaussian, and at `also`.

    Graded panels are more numerous and have two thirds of the nodes each.
    """
    found, root = loss.singularities(V), jnp.sqrt(q)
    if found is not None:
        poles, distance, fade = found[0] / root, found[1] / root, found[2] / root
        breaks, nodes = graded_breaks(poles, distance, fade, slope, GRADED - 1), max(1, 2 * nodes // 3)
    else:
        step = 8.0 / jnp.maximum(jnp.abs(slope), 1e-3)
        breaks = [loss.breaks(V) / root, jnp.stack([-step, 0 * step, step]), jnp.asarray([-3.0, 3.0])]
        breaks = jnp.concatenate(breaks)
    return gaussian_panels(breaks if also is None else jnp.concatenate([breaks, also]), nodes)


# --- a linear teacher ---------------------------------------------------------------------------------------------------


def linear_moments(loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Moments:
    """A teacher with labels y = ν + noise, for smooth losses.

    Given ω, y is Gaussian with mean w₀ = mω/q and variance s² = `rest`, and m̂ = E ∂f/∂y by Stein's lemma. The average
    over (ω, y) runs over the residual a = y − ω first, in panels, then over ω given a by 32 Gauss–Hermite nodes; for a
    loss that depends on the residual only, the second average is trivial.
    """
    if loss.of_residual and loss.by_proximal_point:
        _, weight, f, stiff = _residuals(loss, m, q, V, rest, nodes)
        response = weight @ stiff / V
        return Moments(response, weight @ f**2, response, weight @ stiff**2 / V**2)
    field, labels, weight = _linear_nodes(m, q, V, rest, nodes)
    one = jnp.ones_like(field)
    z = loss.prox(labels, field, V * one)
    slope, curvature = jax.jvp(lambda z: loss.slope(labels, z), (z,), (one,))
    mixed = jax.jvp(lambda y: loss.slope(y, z), (labels,), (one,))[1]
    under = 1 + V * curvature
    each = curvature / under
    return Moments(-(weight @ (mixed / under)), weight @ slope**2, weight @ each, weight @ each**2)


def _residuals(loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> Nodes:
    """The average over a = y − ω for a loss of the residual: as if y were zero and ω were −a."""
    return proximal_nodes(loss, jnp.zeros(()), 0.0, _residual_scale(m, q, rest), V, jnp.zeros(0), nodes)


def _residual_scale(m: Scalar, q: Scalar, rest: Scalar) -> Scalar:
    """The standard deviation of y − ω."""
    return jnp.sqrt((1 - m / q) ** 2 * q + rest)


def linear_losses(loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> tuple[Scalar, Scalar]:
    """Mean training and test loss under the linear teacher."""
    if loss.of_residual and loss.by_proximal_point:
        scale, zero = _residual_scale(m, q, rest), jnp.zeros(())
        at = _residuals(loss, m, q, V, rest, nodes)
        fit = scale * at.xi + V * at.force
        breaks = jnp.concatenate([loss.places(zero) / scale, jnp.asarray([-3.0, -0.3, 0.3, 3.0])])
        xi, mass = gaussian_panels(breaks, nodes)
        return at.weight @ loss.value(zero, fit), mass @ loss.value(zero, scale * xi)
    field, labels, weight = _linear_nodes(m, q, V, rest, nodes)
    prox = loss.prox(labels, field, V * jnp.ones_like(field))
    return weight @ loss.value(labels, prox), weight @ loss.value(labels, field)


def _linear_nodes(m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> tuple[Array, Array, Array]:
    """(ω, y) and weights."""
    scale = _residual_scale(m, q, rest)
    places = jnp.asarray([0.0, 1.5, 4.0, 10.0])
    places = jnp.concatenate([places, (1 + V) * places[1:]])
    a, outer = gaussian_panels(jnp.concatenate([-places, places, jnp.asarray([-3.0, 3.0]) * scale]) / scale, nodes)
    b, inner = hermite(32)
    field = (m - q) / scale * a[:, None] + jnp.sqrt(q * rest) / scale * jnp.asarray(b)[None, :]
    labels = field + scale * a[:, None]
    return field.reshape(-1), labels.reshape(-1), (outer[:, None] * jnp.asarray(inner)[None, :]).reshape(-1)


# --- two clouds -----------------------------------------------------------------------------------------------------------


def cloud_moments(loss: Loss, m: Scalar, q: Scalar, V: Scalar, nodes: int, flips: Scalar | float = 0.0) -> Moments:
    """Inputs x = cμ + Ω^½z in two clouds c = ±1, labelled y = c, or −c with probability e = `flips`; m = w·μ/√p.

    Given the label, the field is y·ω = ±m + √q ξ with probabilities 1 − e and e, and m̂ = E[c f].
    """
    sums = jnp.zeros(4)
    for side, share in ((1.0, 1 - flips), (-1.0, flips)):
        for times, (_, weight, f, stiff) in _cloud_sides(loss, side * m, q, V, nodes):
            terms = jnp.stack([weight @ term for term in (side * f, f**2, stiff, stiff**2)])
            sums = sums + 0.5 * times * share * terms
    return Moments(sums[0], sums[1], sums[2] / V, sums[3] / V**2)


def _cloud_sides(loss: Loss, mean: Scalar, q: Scalar, V: Scalar, nodes: int) -> list[tuple[float, Nodes]]:
    """The average over the margin yω = mean + √q ξ for the labels ±1, each with its multiplicity."""
    root = jnp.sqrt(q)
    if loss.by_proximal_point:
        zero = jnp.zeros(1)
        return [(times, _margins(loss, label, mean, root, V, zero, nodes)) for label, times in _labels(loss)]
    xi, weight = gaussian_panels(_cloud_breaks(loss.breaks(V), mean, q), nodes)
    return [(times, Nodes(xi, weight, *_pull(loss, label, mean + root * xi, V))) for label, times in _labels(loss)]


def cloud_risks(loss: Loss, m: Scalar, q: Scalar, V: Scalar, nodes: int, flips: Scalar | float = 0.0) -> Risks:
    """Training and test losses and errors on two clouds; test labels carry the same flips."""
    wrong = [V * label * loss.slope(jnp.asarray(label), jnp.zeros(())) for label, _ in _labels(loss)]
    breaks = jnp.concatenate([loss.breaks(V), jnp.stack(wrong), loss.value_breaks()])
    sums = jnp.zeros(3)
    for side, share in ((1.0, 1 - flips), (-1.0, flips)):
        xi, weight = gaussian_panels(_cloud_breaks(breaks, side * m, q), nodes)
        sums = sums + jnp.stack(_measured(loss, side * m + jnp.sqrt(q) * xi, 0.5 * share * weight, V, wrong))
    wrong_side = ndtr(-m / jnp.sqrt(q))
    return Risks(sums[0], sums[1], sums[2], flips + (1 - 2 * flips) * wrong_side)


def _cloud_breaks(in_omega: Float[Array, " b"], mean: Scalar, q: Scalar) -> Float[Array, " c"]:
    return jnp.concatenate([(in_omega - mean) / jnp.sqrt(q), jnp.asarray([-3.0, 0.0, 3.0])])


# --- closed forms ---------------------------------------------------------------------------------------------------------


def square_student(
    samples: Scalar, penalty: Scalar, power: Scalar, correlation: Scalar
) -> tuple[Scalar, Scalar, Scalar]:
    """(m, q, V) of ridge regression in closed form, for isotropic inputs and a teacher of unit norm.

    The labels enter through E y² = `power` and E y∂_ν = `correlation` (linear teacher: 1 + Δ and 1; sign teacher: 1 and
    √(2/π(1+Δ))). With r = V/(1+V):  λV² + (λ + α − 1)V = 1,  m = αcr,  q = (m² + r²α(power − 2cm))/(1 − αr²).
    """
    b = penalty + samples - 1
    root = jnp.sqrt(b**2 + 4 * penalty)
    # Two forms of the same root, each free of cancellation on its side.
    V = jnp.where(b > 0, 2 / (root + jnp.abs(b)), (root + jnp.abs(b)) / (2 * penalty))
    r = V / (1 + V)
    m = samples * correlation * r
    q = (m**2 + samples * r**2 * (power - 2 * correlation * m)) / (1 - samples * r**2)
    return m, q, V


def bayes_sign_conjugate(q: Scalar, noise: Scalar, nodes: int, rest: Scalar | None = None) -> Scalar:
    """q̂ per sample of the Bayes-optimal student of the sign teacher (unit norm):

    q̂ = 1/(πs²) ∫Dξ exp(−x²)/Φ(x), x = √q ξ/s, s² = 1 − q + noise.

    `rest` is 1 − q, for callers who know it without cancellation: it is 10⁻⁸ with ten thousand samples per dimension.
    """
    s2 = (1 - q if rest is None else rest) + noise
    slope = jnp.sqrt(q / s2)
    xi, weight = gaussian_panels(jnp.asarray([-8.0, -3.0, 0.0, 3.0, 8.0]) / jnp.maximum(slope, 1e-3), nodes)
    x = slope * xi
    return weight @ jnp.exp(-(x**2) - log_ndtr(x)) / (np.pi * s2)
