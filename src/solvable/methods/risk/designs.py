r"""Designs of linear models that are not independent Gaussians, and the linear step between weights and samples.

Rows a_μ of a design A have unit mean square norm. Three kinds, each given by eigenvalues and their shares:

- *aligned*: Gaussian rows with a covariance that is diagonal in the basis of the weights, ⟨ω⟩ = 1;
- *rotated*: Gaussian rows with a covariance whose eigenvectors are uniformly distributed, ⟨ω⟩ = 1;
- *invariant*: A = U S Oᵀ with uniform U and O. AAᵀ or AᵀA, whichever is smaller, has eigenvalues v·max(1, α), ⟨v⟩ = 1.

The latter two are solved by three nodes that exchange Gaussian messages (Takeda, Uda and Kabashima 2006; Rangan, Schniter and
Fletcher 2019, arXiv:1610.03082; Gerbelot, Abbara and Krzakala 2020, arXiv:2006.06581): a message has a precision A and a field
m̂x₀ + √q̂ ξ about the truth x₀. The weights' node knows prior or penalty, the samples' node the labels; the linear node has the
eigenvalues s of AᵀA (or of V̂Σ, for Gaussian rows) and treats both messages as Gaussian observations,

    R = 1/(A_w + A_z s),   u = m̂_w + s m̂_z,   ŵ₀-overlap ρ⟨uR⟩,   norm ⟨(ρu² + q̂_w + s q̂_z)R²⟩,   response ⟨R⟩.

A node returns what it knows beyond the message it got: A + A′ = 1/V, m̂ + m̂′ = m/(ρV), q̂ + q̂′ = (q − m²/ρ)/V². All differences
are written here as sums of positive terms.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .outputs import Fields

Scalar = Float[Array, ""]


class Message(NamedTuple):
    """A Gaussian observation of x₀: precision A, and the field m̂x₀ + √q̂ ξ (`signal` and `noise`)."""

    precision: Scalar
    signal: Scalar
    noise: Scalar


class Design(eqx.Module):
    """Eigenvalues of mean one with shares that sum to one, and their kind (see the module).

    >>> Design([1.0, 3.0], "aligned").values.tolist()
    [0.5, 1.5]
    """

    values: Float[Array, " k"]
    shares: Float[Array, " k"]
    kind: Literal["aligned", "rotated", "invariant"] = eqx.field(static=True)

    def __init__(self, values: Any, kind: Literal["aligned", "rotated", "invariant"], shares: Any = None):
        omega = jnp.asarray(values, float)
        parts = jnp.ones_like(omega) if shares is None else jnp.asarray(shares, float)
        self.shares = parts / jnp.sum(parts)
        self.values, self.kind = omega / (self.shares @ omega), kind

    def spectrum(self, samples: Scalar) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Eigenvalues of AᵀA (invariant designs, with the null space last) or of Σ, and their shares of the d directions.

        >>> s, shares = Design([1.0], "invariant").spectrum(jnp.asarray(0.25))  # orthogonal rows
        >>> s.tolist(), shares.tolist()
        ([1.0, 0.0], [0.25, 0.75])
        """
        if self.kind != "invariant":
            return self.values, self.shares
        rank = jnp.minimum(samples, 1.0)
        return jnp.append(self.values * jnp.maximum(samples, 1.0), 0.0), jnp.append(self.shares * rank, 1.0 - rank)


class LinearNode(eqx.Module):
    """What the linear node makes of the messages from weights and samples; `power` is ρ = E w₀².

    >>> unit = Message(jnp.ones(()), jnp.ones(()), jnp.ones(()))
    >>> node = LinearNode(Design([1.0], "invariant"), jnp.ones(()), jnp.ones(()), unit, unit)
    >>> [float(v) for v in node.to_weights()]  # an orthogonal matrix passes the samples' message on
    [1.0, 1.0, 1.0]
    """

    s: Float[Array, " k"]
    shares: Float[Array, " k"]
    R: Float[Array, " k"]
    u: Float[Array, " k"]
    weights: Message
    samples: Message
    power: Scalar
    ratio: Scalar
    invariant: bool = eqx.field(static=True)

    def __init__(self, design: Design, ratio: Scalar, power: Scalar, weights: Message, samples: Message):
        self.s, self.shares = design.spectrum(ratio)
        self.R = 1 / (weights.precision + samples.precision * self.s)
        self.u = weights.signal + self.s * samples.signal
        self.weights, self.samples, self.power, self.ratio = weights, samples, power, ratio
        self.invariant = design.kind == "invariant"

    def to_weights(self) -> Message:
        """The message to the weights' node."""
        p, s, R, z = self.shares, self.s, self.R, self.samples
        V, mean = p @ R, p @ (self.u * R)
        gain = p @ (s * R) / V
        spread = self.power * (p @ (self.u * R - mean) ** 2) + self.weights.noise * (p @ (R - V) ** 2)
        return Message(z.precision * gain, z.signal * gain, (spread + z.noise * (p @ (s * R**2))) / V**2)

    def to_samples(self) -> Fields:
        """The cavity fields of a sample: all of the Gaussian rows' field, or an invariant design's message as a field."""
        s, R, u, x, z = self.s, self.R, self.u, self.weights, self.samples
        if not self.invariant:
            p = self.shares * s
            t = p @ (u * R)
            noise = self.power * (p @ (u * R - t) ** 2) + x.noise * (p @ R**2) + z.noise * (p @ (s * R**2))
            return _fields(p @ R, t, noise, self.power)
        p, none = self._of_samples()
        V = p @ (s * R)
        precision = self.cavity_precision()
        covariance = p @ ((s - 1) * (s * R - V)) + none * V
        variance = p @ (s * R - V) ** 2 + none * V**2
        signal = x.signal + z.signal * covariance / V
        mean = p @ (s * u * R)
        spread = self.power * (p @ (s * (u * R - mean) ** 2)) + x.noise * (p @ (s * R**2)) + z.noise * variance
        return _fields(1 / precision, signal / precision, spread / (V * precision) ** 2, self.power)

    def cavity_precision(self) -> Scalar:
        """1/V_z − A_z of an invariant design."""
        seen = (self.s > 0).astype(float)
        rest = jnp.maximum(self.ratio - self.shares @ seen, 0.0)
        return (self.weights.precision * (self.shares @ (seen * self.R)) + rest) / (self.shares @ (self.s * self.R))

    def _of_samples(self) -> tuple[Array, Scalar]:
        """Shares of the eigenvalues among the n directions of AAᵀ, and the share of its null space."""
        p = jnp.where(self.s > 0, self.shares, 0.0) / self.ratio
        return p, jnp.maximum(1 - jnp.sum(p), 0.0)

    def gain(self, of_weights: Scalar, of_samples: Scalar) -> Scalar:
        """How a distance between two replicas grows in one round: replica symmetry holds below one.

        `of_weights` is E(∂w/∂B)²/V² − 1 of the weights' node, `of_samples` the same of the samples' node, or α E(∂f/∂ω)² for
        Gaussian rows. For an invariant design this is the larger eigenvalue of a round; for Gaussian rows the loop through the
        weights alone is summed, which gives α E(∂f/∂ω)² E(∂w/∂B)² for equal eigenvalues.
        """
        p, s, R = self.shares, self.s, self.R
        V = p @ R
        alone, across = p @ (R - V) ** 2 / V**2, p @ (s * R**2) / V**2
        if self.invariant:
            q, none = self._of_samples()
            W = q @ (s * R)
            back, direct = q @ (s * R**2) / W**2, (q @ (s * R - W) ** 2 + none * W**2) / W**2
            mean, apart = (
                0.5 * (alone * of_weights + direct * of_samples),
                0.5 * (alone * of_weights - direct * of_samples),
            )
            crossed = across * back * jnp.maximum(of_weights * of_samples, 0.0)
            return jnp.maximum(mean + jnp.sqrt(apart**2 + crossed), 0.0)
        back, direct = p @ (s * R**2), p @ (s * R) ** 2
        left = 1 - alone * of_weights
        looped = across * back * of_weights / jnp.where(left > 0, left, 1.0)
        return jnp.where(left > 0, jnp.maximum(of_samples * (direct + looped), 0.0), jnp.inf)


def _fields(V: Scalar, t: Scalar, noise: Scalar, power: Scalar) -> Fields:
    # ridge regression on orthogonal rows tells a sample nothing about itself: a field of no size, but not of size zero
    noise = jnp.maximum(noise, 1e-20 * power)
    q = power * t**2 + noise
    return Fields(power * t, q, V, power * noise / q)
