"""Average effect of an episode on the learner for each of the four reward rules: f, g and h at an alignment ρ.

The equations are written out at `RLPerceptron.averages`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

K = 1 / math.sqrt(2 * math.pi)


class Averages(NamedTuple):
    """Averages of a rule at alignment ρ: f = <G aν>, g = <G|λ|>/√Q and h = <ΣG²>/T²."""

    along: Array
    growth: Array
    kick: Array


def wrong_actions(alignment: Array) -> Array:
    """arccos(ρ)/π, accurate and with a finite derivative near ρ = 1."""
    return jnp.arctan2(jnp.sqrt(jnp.maximum(1 - alignment**2, 1e-30)), alignment) / math.pi


def all_right(rho: Array, steps: Any, reward: Array, punishment: Array) -> Averages:
    """η₁ if all T actions were right, else -η₂."""
    power = _Actions(rho).power
    return _punished(rho, steps, reward, punishment, power(steps - 1), jnp.zeros_like(rho), power(steps))


def enough_right(rho: Array, steps: int, needed: int, reward: Array, punishment: Array) -> Averages:
    """η₁ if n or more were right, else -η₂."""
    at_least = _Actions(rho).at_least
    chances = at_least(needed - 1, steps - 1), at_least(needed, steps - 1), at_least(needed, steps)
    return _punished(rho, steps, reward, punishment, *chances)


def _punished(rho: Array, steps: Any, reward: Array, punishment: Array, a: Array, b: Array, c: Array) -> Averages:
    """A, B, C: probabilities that the other T-1 actions have ≥ n-1 right ones, ≥ n, and that all T have ≥ n."""
    up, down = K * (1 + rho), K * (1 - rho)
    total = reward + punishment
    return Averages(
        along=total * (up * a - down * b) - 2 * K * punishment * rho,
        growth=total * (up * a + down * b) - 2 * K * punishment,
        kick=((reward**2 - punishment**2) * c + punishment**2) / steps,
    )


def survival(rho: Array, steps: int, needed: int, reward: Array, bonus: Array) -> Averages:
    """η₁ if all were right, and a bonus on the first n steps if those were right."""
    power = _Actions(rho).power
    rewarded = K * (1 + rho) * (reward * power(steps - 1) + needed / steps * bonus * power(needed - 1))
    squares = (reward**2 * steps + 2 * needed * reward * bonus) * power(steps) + needed * bonus**2 * power(needed)
    return Averages(along=rewarded, growth=rewarded, kick=squares / steps**2)


def breadcrumb(rho: Array, steps: int, reward: Array, bonus: Array) -> Averages:
    """A right action at t earns its own bonus and those of the T-t later ones, (T-1)/2 on average; η₁ if all were right."""
    power = _Actions(rho).power
    p = power(1)
    own, later = K * (1 + rho) * (reward * power(steps - 1) + bonus), K * bonus * (steps - 1) * p
    squares = reward * (reward + bonus * (steps + 1)) * power(steps) / steps
    squares = squares + bonus**2 * (steps + 1) / steps * p * (0.5 + (steps - 1) * p / 3)
    return Averages(along=own + later * rho, growth=own + later, kick=squares)


class _Actions:
    """Independent actions, each right with probability P = 1 - arccos(ρ)/π."""

    def __init__(self, rho: Array):
        wrong = wrong_actions(rho)
        self.log_right = jnp.log1p(-jnp.minimum(wrong, 1 - 1e-15))
        self.log_wrong = jnp.log(jnp.maximum(wrong, 1e-300))

    def power(self, exponent: Any) -> Array:
        """Probability that this many actions are all right, a power of P."""
        return jnp.exp(exponent * self.log_right)

    def at_least(self, number: int, of: int) -> Array:
        """Pr[Bin(of, P) ≥ number]."""
        if number <= 0:
            return jnp.ones_like(self.log_right)
        right = np.arange(number, of + 1, dtype=float)
        ways = np.array([float(math.comb(of, int(j))) for j in right])
        return jnp.sum(jnp.asarray(ways) * jnp.exp(right * self.log_right + (of - right) * self.log_wrong))
