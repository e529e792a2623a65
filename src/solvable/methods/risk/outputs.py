r"""Output channels P(y|ν) of a teacher, with any loss: conjugate order parameters per sample, risks, Fisher information.

The teacher's field ν and the student's cavity field ω are a centred Gaussian pair with variances ρ and q and covariance m.
Given ω, ν is Gaussian with mean mω/q and variance s² = ρ − m²/q, and y has the law Z(y|mω/q, s²) = E P(y|ν). With the force
f = (prox − ω)/V of a loss (`methods.risk.losses`),

    m̂ = E f ∂log Z,    q̂ = E f²,    V̂ = −E ∂f/∂ω        (per sample).

The Bayes-optimal student has q = m, s² = ρ − q and the force g = ∂log Z itself: q̂ = E g².

Three kinds: `Additive` (y = ν + noise), `Labels` (y = sign(ν + noise), perhaps flipped), both with noise that is a mixture of
Gaussians, and `Table` (a log-likelihood on a list of values of y: counts, or your own).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float

from ..averages.quadrature import gaussian_panels, hermite, legendre
from .channels import Nodes, _labels, _measured, _panels, linear_losses, linear_moments, proximal_nodes, sides
from .losses import Loss
from .mixtures import Mixture
from .real_losses import Counts, Residual, breaks_of

Scalar = Float[Array, ""]
LOG_ROOT = 0.5 * np.log(2 * np.pi)


class Fields(NamedTuple):
    """m, q, V and s², the variance of ν given ω."""

    m: Scalar
    q: Scalar
    V: Scalar
    rest: Scalar


class Conjugates(NamedTuple):
    """m̂, q̂, V̂ per sample, and E (∂f/∂ω)², which decides stability."""

    overlap: Scalar
    norm: Scalar
    response: Scalar
    fluctuation: Scalar


class Risks(NamedTuple):
    """Mean losses in training and on fresh samples."""

    train_loss: Scalar
    test_loss: Scalar


class Information(NamedTuple):
    """The Bayes-optimal student's E g², E (∂g/∂ω)² and E log Z, per sample."""

    conjugate: Scalar
    fluctuation: Scalar
    evidence: Scalar


class Channel(eqx.Module):
    """Base of all channels."""

    def conjugates(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Conjugates:
        raise AttributeError("conjugates")

    def risks(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Risks:
        raise AttributeError("risks")

    def information(self, q: Scalar, rest: Scalar, nodes: int) -> Information:
        raise AttributeError("information")

    def score(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """g = ∂log Z(y|mean, variance) and −∂g: the output step of message passing."""
        g, slope = jax.jvp(
            lambda w: jax.vmap(jax.grad(self.log_evidence, argnums=1))(y, w, variance), (mean,), (jnp.ones_like(mean),)
        )
        return g, -slope

    def log_evidence(self, y: Scalar, mean: Scalar, variance: Scalar) -> Scalar:
        """log Z(y|mean, variance)."""
        raise AttributeError("log_evidence")

    def test_error(self, m: Scalar, q: Scalar, rest: Scalar) -> Scalar:
        """P(y ≠ sign ω), for labels ±1."""
        return jnp.full((), jnp.nan)


# --- real labels --------------------------------------------------------------------------------------------------------


class Additive(Channel):
    """y = ν + ε with a mixture of Gaussians ε.

    >>> from .mixtures import gaussian
    >>> from .real_losses import square
    >>> one = jnp.ones(())
    >>> hat = Additive(gaussian(0.5)).conjugates(square(), Fields(0.8 * one, one, one, 0.36 * one), one, 14)
    >>> round(float(hat.norm), 6), float(hat.response)  # (ρ − 2m + q + Δ)/(1+V)², 1/(1+V)
    (0.225, 0.5)
    """

    noise: Mixture

    def _residuals(self, at: Fields, rho: Scalar) -> Mixture:
        return self.noise.widened(jnp.maximum(rho - 2 * at.m + at.q, 1e-14))

    def conjugates(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Conjugates:
        if isinstance(loss, Residual):
            found = loss.forces(self._residuals(at, rho), at.V)
            return Conjugates(found.response, found.square, found.response, found.fluctuation)
        parts = self._over_components(lambda shifted, rest: linear_moments(shifted, *at[:3], rest, nodes), loss, at)
        return Conjugates(*parts)

    def risks(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Risks:
        if isinstance(loss, Residual):
            found = loss.forces(self._residuals(at, rho), at.V)
            return Risks(found.train_loss, found.test_loss)
        return Risks(
            *self._over_components(lambda shifted, rest: linear_losses(shifted, *at[:3], rest, nodes), loss, at)
        )

    def _over_components(self, average: Callable[[Loss, Scalar], Any], loss: Loss, at: Fields) -> Any:
        """An average for Gaussian noise, over the components; a component's mean shifts the label."""

        def one(mean, variance):
            return tuple(average(_Shifted(loss, mean), at.rest + variance))

        parts = jax.vmap(one)(self.noise.means, self.noise.variances)
        return tuple(self.noise.weights @ part for part in parts)

    def information(self, q: Scalar, rest: Scalar, nodes: int) -> Information:
        law = self.noise.widened(rest)
        if law.means.shape[0] == 1:
            v = law.variances[0]
            return Information(1 / v, 1 / v**2, -LOG_ROOT - 0.5 - 0.5 * jnp.log(v))
        widths = jnp.sqrt(law.variances)
        a, length = graded_line(0.3 * jnp.min(widths), jnp.max(jnp.abs(law.means) + 9 * widths), 24, nodes)
        log_z, g, slope = _mixture_score(law, a)
        mass = length * jnp.exp(log_z)
        return Information(mass @ g**2, mass @ slope**2, mass @ log_z)

    def log_evidence(self, y: Scalar, mean: Scalar, variance: Scalar) -> Scalar:
        return _mixture_score(self.noise.widened(variance), (y - mean)[None])[0][0]

    def score(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        if self.noise.means.shape[0] == 1:
            total = (variance + self.noise.variances[0].astype(y.dtype)) * jnp.ones_like(y)
            return (y - mean - self.noise.means[0].astype(y.dtype)) / total, 1 / total
        return super().score(y, mean, variance * jnp.ones_like(y))


class _Shifted(Loss):
    """ℓ(y + shift, z)."""

    loss: Loss
    shift: Array

    @property
    def of_residual(self) -> bool:
        return self.loss.of_residual

    @property
    def by_proximal_point(self) -> bool:
        return self.loss.by_proximal_point

    def places(self, y: Array) -> Array:
        return self.loss.places(y + self.shift)

    def value(self, y: Array, z: Array) -> Array:
        return self.loss.value(y + self.shift, z)

    def prox(self, y: Array, centre: Array, width: Array) -> Array:
        return self.loss.prox(y + self.shift, centre, width)


def _mixture_score(law: Mixture, a: Array) -> tuple[Array, Array, Array]:
    """log density at a, and −∂ of it with respect to a (which is ∂ with respect to the mean), and the slope of that."""
    away = a[:, None] - law.means[None, :].astype(a.dtype)
    v = law.variances[None, :].astype(a.dtype)
    logs = jnp.log(law.weights.astype(a.dtype))[None, :] - 0.5 * away**2 / v - 0.5 * jnp.log(2 * np.pi * v)
    log_z = logsumexp(logs, axis=1)
    share = jnp.exp(logs - log_z[:, None])
    pulls = away / v
    g = jnp.sum(share * pulls, axis=1)
    slope = jnp.sum(share * (pulls - g[:, None]) ** 2, axis=1) - jnp.sum(share / v, axis=1)
    return log_z, g, slope


def graded_line(bottom: Scalar, top: Scalar, panels: int, nodes: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nodes and weights of ∫dx over (−top, top): one panel within ±bottom, and panels in geometric progression outside.

    >>> x, w = graded_line(jnp.asarray(0.1), jnp.asarray(40.0), 12, 14)
    >>> round(float(w @ jnp.exp(-0.5 * x**2)), 10), round(float(np.sqrt(2 * np.pi)), 10)
    (2.5066282746, 2.5066282746)
    """
    ratio = jnp.log(top / bottom)
    edges = jnp.concatenate([jnp.zeros(1), bottom * jnp.exp(ratio * jnp.linspace(0.0, 1.0, panels + 1))])
    u, w = legendre(nodes)
    left, length = edges[:-1, None], (edges[1:] - edges[:-1])[:, None]
    x, weight = (left + length * jnp.asarray(u)[None, :]).reshape(-1), (length * jnp.asarray(w)[None, :]).reshape(-1)
    return jnp.concatenate([-x, x]), jnp.concatenate([weight, weight])


# --- labels ±1 ------------------------------------------------------------------------------------------------------------


class Labels(Channel):
    """y = sign(ν + ε) with a centred symmetric mixture of Gaussians ε, and −y instead with probability e = `flips`.

    Sign: no noise. Probit: Gaussian. Logistic, P(y|ν) = 1/(1 + exp(−yν)): a logistic ε.

    >>> from .mixtures import gaussian
    >>> round(float(Labels(gaussian(0.0)).test_error(jnp.asarray(0.5), jnp.ones(()), jnp.asarray(0.75))), 6)
    0.333333
    """

    noise: Mixture
    flips: Array

    def __init__(self, noise: Mixture, flips: Any = 0.0):
        self.noise, self.flips = noise, jnp.asarray(flips, float)

    def _law(self, m: Scalar, q: Scalar, rest: Scalar) -> tuple[Array, Array]:
        """Slopes and widths of the components of P(y=1|ω), Φ(slope ξ) with ω = √q ξ."""
        spread = jnp.sqrt(jnp.maximum(rest, 1e-16) + self.noise.variances)
        return m / (jnp.sqrt(q) * spread), spread

    def _says_one(self, slopes: Array, xi: Array) -> Array:
        return self.flips + (1 - 2 * self.flips) * (ndtr(slopes[None, :] * xi[:, None]) @ self.noise.weights)

    def conjugates(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Conjugates:
        m, q, V, rest = at
        slopes, spread = self._law(m, q, rest)
        sums = jnp.zeros(4)
        for times, (xi, weight, f, stiff) in sides(loss, V, q, jnp.max(jnp.abs(slopes)), nodes):
            parts = jnp.exp(-0.5 * (slopes[None, :] * xi[:, None]) ** 2) / (spread * np.sqrt(2 * np.pi))[None, :]
            density = (1 - 2 * self.flips) * (parts @ self.noise.weights)
            says_one = self._says_one(slopes, xi)
            terms = (density * f, says_one * f**2, says_one * stiff, says_one * stiff**2)
            sums = sums + times * jnp.stack([weight @ term for term in terms])
        return Conjugates(sums[0], sums[1], sums[2] / V, sums[3] / V**2)

    def risks(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Risks:
        m, q, V, rest = at
        slopes, _ = self._law(m, q, rest)
        xi, weight = _panels(loss, V, q, jnp.max(jnp.abs(slopes)), nodes, loss.value_breaks() / jnp.sqrt(q))
        mass = weight * self._says_one(slopes, xi)
        never = [jnp.full((), -jnp.inf) for _ in _labels(loss)]
        train, _, test = _measured(loss, jnp.sqrt(q) * xi, mass, V, never)
        return Risks(train, test)

    def test_error(self, m: Scalar, q: Scalar, rest: Scalar) -> Scalar:
        slopes, _ = self._law(m, q, rest)
        angle = jnp.arctan2(jnp.ones_like(slopes), slopes) @ self.noise.weights / np.pi
        return self.flips + (1 - 2 * self.flips) * angle

    def _logs(self, w: Array, variance: Array) -> tuple[Array, Array, Array]:
        """log Z(1|w, variance), ∂log Z and ∂²log Z, elementwise, without underflow."""
        noise = jax.tree.map(lambda v: v.astype(w.dtype).reshape((1,) * w.ndim + v.shape), self.noise)
        spread = jnp.sqrt(jnp.maximum(variance, 1e-16)[..., None] + noise.variances)
        x = w[..., None] / spread
        share = jnp.log(noise.weights)
        clean = jnp.log1p(-2 * self.flips.astype(w.dtype))
        dirt = jnp.log(self.flips.astype(w.dtype) + jnp.finfo(w.dtype).tiny)
        log_z = jnp.logaddexp(dirt, clean + logsumexp(share + log_ndtr(x), axis=-1))
        log_density = share - 0.5 * x**2 - LOG_ROOT - jnp.log(spread)
        g = jnp.exp(clean + logsumexp(log_density, axis=-1) - log_z)
        second = -jnp.sum(jnp.exp(clean + log_density - log_z[..., None]) * x / spread, axis=-1)
        return log_z, g, second - g**2

    def information(self, q: Scalar, rest: Scalar, nodes: int) -> Information:
        slopes, _ = self._law(q, q, rest)
        ends = jnp.stack([jnp.max(slopes), jnp.min(slopes)])
        steps = jnp.asarray([-8.0, -3.0, 0.0, 3.0, 8.0])[None, :] / jnp.maximum(ends, 1e-3)[:, None]
        xi, weight = gaussian_panels(jnp.concatenate([steps.reshape(-1), jnp.asarray([-3.0, 3.0])]), nodes)
        log_z, g, slope = self._logs(jnp.sqrt(q) * xi, jnp.broadcast_to(rest, xi.shape))
        # By symmetry y = +1 counts twice. Z and its derivatives are combined before they underflow.
        mass = 2 * weight * jnp.exp(log_z)
        return Information(mass @ g**2, mass @ slope**2, mass @ log_z)

    def log_evidence(self, y: Scalar, mean: Scalar, variance: Scalar) -> Scalar:
        return self._logs(y * mean, jnp.asarray(variance))[0]

    def score(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        _, g, slope = self._logs(y * mean, variance * jnp.ones_like(mean))
        return y * g, -slope


# --- a list of values -----------------------------------------------------------------------------------------------------


class Table(Channel):
    """Labels on a list of `values` with weights (one each, or those of a quadrature), by their log-likelihood given ν.

    `counts` is true for Poisson's law, whose nodes in ν follow the likelihood's peak.

    >>> own = Table(lambda y, field: -jnp.logaddexp(0.0, -y * field), jnp.asarray([-1.0, 1.0]), jnp.ones(2))
    >>> from .mixtures import logistic
    >>> a, b = (c.information(jnp.asarray(0.5), jnp.asarray(0.5), 14) for c in (own, Labels(logistic())))
    >>> bool(abs(a.conjugate - b.conjugate) < 1e-9), bool(abs(a.evidence - b.evidence) < 1e-9)
    (True, True)
    """

    log_likelihood: Callable[[Array, Array], Array] = eqx.field(static=True)
    values: Array
    weights: Array
    counts: bool = eqx.field(static=True, default=False)
    inner: int = eqx.field(static=True, default=48)

    def _posterior(self, y: Scalar, w: Array, variance: Array) -> tuple[Array, Array, Array]:
        """log Z(y|w, variance) at all w, g and ∂g, by Gauss–Hermite nodes in ν around w, or around the likelihood's peak."""
        variance = jnp.maximum(variance, 1e-16) * jnp.ones_like(w)
        centre, width2 = w, variance
        if self.counts:  # log-concave: nodes around the peak of the posterior
            peak = Counts().prox(y * jnp.ones_like(w), w, variance)
            centre = jax.lax.stop_gradient(peak)
            width2 = jax.lax.stop_gradient(1 / (1 / variance + jnp.exp(peak)))
        z, mass = (jnp.asarray(v) for v in hermite(self.inner))
        field = centre[:, None] + jnp.sqrt(width2)[:, None] * z[None, :]
        tilt = 0.5 * z[None, :] ** 2 - 0.5 * (field - w[:, None]) ** 2 / variance[:, None]
        tilt = tilt + 0.5 * jnp.log(width2 / variance)[:, None]
        one = lambda v: self.log_likelihood(y * jnp.ones_like(v), v)  # noqa: E731
        slope = lambda v: jax.jvp(one, (v,), (jnp.ones_like(v),))  # noqa: E731
        (logs, first), (_, second) = jax.jvp(slope, (field,), (jnp.ones_like(field),))
        logs = logs + tilt + jnp.log(mass)[None, :]
        log_z = logsumexp(logs, axis=1)
        share = jnp.exp(logs - log_z[:, None])
        g = jnp.sum(share * first, axis=1)
        return log_z, g, jnp.sum(share * (second + (first - g[:, None]) ** 2), axis=1)

    def _sum(self, average: Callable[[Scalar], tuple[Array, ...]]) -> tuple[Array, ...]:
        """The sum over labels of averages that already contain Z; in batches, because each needs a plane of nodes."""
        parts = jax.lax.map(average, self.values, batch_size=min(32, self.values.shape[0]))
        return tuple(self.weights @ part for part in parts)

    def _nodes(self, loss: Loss, y: Scalar, at: Fields, nodes: int, also: Array | None = None) -> tuple[Array, Array]:
        breaks = [breaks_of(loss, y, at.V) / jnp.sqrt(at.q), self._breaks(y, at.m / jnp.sqrt(at.q), at.rest)]
        return gaussian_panels(jnp.concatenate(breaks + ([] if also is None else [also])), nodes)

    def _pulled(self, loss: Loss, y: Scalar, at: Fields, nodes: int) -> Nodes:
        """The average over ω = √q ξ for one label."""
        if loss.by_proximal_point:
            return proximal_nodes(
                loss, y, 0.0, jnp.sqrt(at.q), at.V, self._breaks(y, at.m / jnp.sqrt(at.q), at.rest), nodes
            )
        xi, weight = self._nodes(loss, y, at, nodes)
        ones = jnp.ones_like(xi)
        return Nodes(xi, weight, *loss.pull(y * ones, jnp.sqrt(at.q) * xi, at.V * ones))

    def _breaks(self, y: Scalar, slope: Scalar, rest: Scalar) -> Array:
        """Breaks in ξ for an average over ν = `slope`·ξ + √`rest`·ζ: the Gaussian's, and around the peak of a count."""
        breaks = jnp.asarray([-4.0, -2.0, 0.0, 2.0, 4.0])
        if not self.counts:
            return breaks
        count = jnp.maximum(y, 0.5)
        slope = jnp.where(slope < 0, -1, 1) * jnp.maximum(jnp.abs(slope), 1e-3)
        peak, width = jnp.log(count) / slope, jnp.sqrt(1 / count + rest) / slope
        return jax.lax.stop_gradient(jnp.concatenate([breaks, peak + width * jnp.asarray([-9.0, -3.0, 0.0, 3.0, 9.0])]))

    def conjugates(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Conjugates:
        def one(y):
            xi, weight, f, stiff = self._pulled(loss, y, at, nodes)
            log_z, g, _ = self._posterior(y, at.m / jnp.sqrt(at.q) * xi, at.rest)
            mass = weight * jnp.exp(log_z)
            return mass @ (g * f), mass @ f**2, mass @ stiff, mass @ stiff**2

        overlap, norm, stiff, stiff2 = self._sum(one)
        return Conjugates(overlap, norm, stiff / at.V, stiff2 / at.V**2)

    def risks(self, loss: Loss, at: Fields, rho: Scalar, nodes: int) -> Risks:
        def one(y):
            also = (y + jnp.asarray([-1.0, 0.0, 1.0])) / jnp.sqrt(at.q)
            xi, weight = self._nodes(loss, y, at, nodes, also)
            mass = weight * jnp.exp(self._posterior(y, at.m / jnp.sqrt(at.q) * xi, at.rest)[0])
            field, label = jnp.sqrt(at.q) * xi, y * jnp.ones_like(xi)
            prox = loss.prox(label, field, at.V * jnp.ones_like(field))
            return mass @ loss.value(label, prox), mass @ loss.value(label, field)

        return Risks(*self._sum(one))

    def information(self, q: Scalar, rest: Scalar, nodes: int) -> Information:
        def one(y):
            xi, weight = gaussian_panels(self._breaks(y, jnp.sqrt(q), rest), nodes)
            log_z, g, slope = self._posterior(y, jnp.sqrt(q) * xi, rest)
            mass = weight * jnp.exp(log_z)
            return mass @ g**2, mass @ slope**2, mass @ log_z

        return Information(*self._sum(one))

    def log_evidence(self, y: Scalar, mean: Scalar, variance: Scalar) -> Scalar:
        return self._posterior(y, mean[None], jnp.asarray(variance)[None])[0][0]

    def score(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        one = jax.vmap(lambda label, w, v: tuple(a[0] for a in self._posterior(label, w[None], v[None])))
        _, g, slope = one(y, mean, variance * jnp.ones_like(mean))
        return g, -slope

    def missing(self, rho: Scalar) -> Scalar:
        """The probability of labels outside the table."""
        zero, variance = jnp.zeros(1), rho[None]
        (mass,) = self._sum(lambda y: (jnp.exp(self._posterior(y, zero, variance)[0][0]),))
        return 1 - mass


def poisson(largest: int = 160) -> Table:
    """Counts with mean exp(ν), up to `largest`.

    >>> bool(abs(poisson().missing(jnp.asarray(0.5))) < 1e-9)
    True
    """
    counts = jnp.arange(largest + 1, dtype=float)
    return Table(_poisson, counts, jnp.ones(largest + 1), counts=True, inner=24)


def _poisson(y: Array, field: Array) -> Array:
    return y * field - jnp.exp(field) - gammaln(y + 1)


def own_channel(
    log_likelihood: Callable[[Array, Array], Array], labels: str, between: tuple[float, float] | None = None
) -> Table:
    """A channel from log P(y|ν), elementwise in `jax.numpy`; `labels` is "sign", "count" or "real" (then on an interval).

    >>> own = own_channel(lambda y, field: -0.5 * (y - field) ** 2 - 0.5 * jnp.log(2 * jnp.pi), "real", (-12.0, 12.0))
    >>> found = own.information(jnp.asarray(0.5), jnp.asarray(0.5), 14)
    >>> bool(abs(found.conjugate - 1 / 1.5) < 1e-9)
    True
    """
    if labels == "sign":
        return Table(log_likelihood, jnp.asarray([-1.0, 1.0]), jnp.ones(2))
    if labels == "count":
        return Table(log_likelihood, jnp.arange(161.0), jnp.ones(161))
    low, high = between or (-12.0, 12.0)
    u, w = legendre(16)
    edges = np.linspace(low, high, 17)
    values = (edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * u[None, :]).reshape(-1)
    weights = ((edges[1:] - edges[:-1])[:, None] * w[None, :]).reshape(-1)
    return Table(log_likelihood, jnp.asarray(values), jnp.asarray(weights))
