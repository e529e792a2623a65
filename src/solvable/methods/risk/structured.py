r"""Channels of composed models on inputs with any covariance, with a ridge penalty.

The saddle point of `methods.risk.covariate` needs a teacher: its channel at order parameters m = E νz and q = E z² of the
fields on a fresh input. `Composed` makes one from any channel and the strength γ of the teacher's field, which has unit
variance there.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..risk import channels
from .losses import Loss
from .outputs import Additive, Channel, Fields, Labels, Table
from .teachers import Labels as Moments
from .teachers import Teacher

Scalar = Float[Array, ""]


class Composed(Teacher):
    """A teacher whose field, of variance γ² = `strength`², goes through a channel.

    >>> from ..random_matrices.spectra import isotropic
    >>> from .covariate import Linear, learn
    >>> from .mixtures import gaussian
    >>> a, b = (learn("square", t, isotropic(), 2.0, 0.1).q for t in (Composed(Additive(gaussian(0.2))), Linear(0.2)))
    >>> bool(abs(a - b) < 1e-12)
    True
    """

    channel: Channel
    strength: Array

    def __init__(self, channel: Channel, strength: Any = 1.0):
        self.channel, self.strength = channel, jnp.asarray(strength, float)

    @property
    def noise_variance(self) -> Scalar:
        return jnp.zeros(())  # the channel has the noise

    def labels(self) -> Moments:
        channel, gamma = self.channel, self.strength
        if isinstance(channel, Additive):
            return Moments(gamma**2 + channel.noise.power, gamma, 0.0)
        if isinstance(channel, Labels):
            slopes = gamma / jnp.sqrt(gamma**2 + channel.noise.variances)
            tilt = (1 - 2 * channel.flips) * jnp.sqrt(2 / jnp.pi) * (channel.noise.weights @ slopes)
            return Moments(jnp.ones(()), tilt, 0.0)
        assert isinstance(channel, Table)
        zero = jnp.zeros(1)
        logs, pulls, _ = jax.vmap(lambda y: channel._posterior(y, zero, gamma[None] ** 2))(channel.values)
        mass = channel.weights * jnp.exp(logs[:, 0])
        return Moments(mass @ channel.values**2, gamma * (mass @ (channel.values * pulls[:, 0])), 0.0)

    def _fields(self, m: Scalar, q: Scalar, V: Scalar, rest: Scalar) -> Fields:
        return Fields(self.strength * m, q, V, self.strength**2 * rest)

    def moments(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> channels.Moments:
        hat = self.channel.conjugates(loss, self._fields(m, q, V, rest), self.strength**2, nodes)
        return channels.Moments(self.strength * hat.overlap, hat.norm, hat.response, hat.fluctuation)

    def risks(self, loss: Loss, m: Scalar, q: Scalar, V: Scalar, rest: Scalar, nodes: int) -> channels.Risks:
        at = self._fields(m, q, V, rest)
        found = self.channel.risks(loss, at, self.strength**2, nodes)
        wrong = self.channel.test_error(at.m, at.q, at.rest)
        return channels.Risks(found.train_loss, jnp.full((), jnp.nan), found.test_loss, wrong)
