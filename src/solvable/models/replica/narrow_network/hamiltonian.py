"""Hamiltonian Monte Carlo: draws from exp(−U(x)) by leapfrog trajectories, with a step that adapts to its acceptance.

A chain is started once and continued in pieces. Each piece first tunes the step and then keeps it fixed, so the transition
kernel does not depend on the draws. The number of trajectories between draws is not static: pieces of all lengths share one
compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

ACCEPTED = 0.8  # target acceptance to which the step adapts
GAIN = 0.2  # change of the log step per unit of acceptance, while it is tuned
SHORTEST = 32  # smallest number of tuning trajectories

Energy = Callable[[Array], tuple[Float[Array, ""], Array]]


class Walker(NamedTuple):
    """State of a chain: position, U and its gradient there, step size, and acceptance rate in the last piece."""

    x: Float[Array, "..."]
    value: Float[Array, ""]
    gradient: Float[Array, "..."]
    log_step: Float[Array, ""]
    accepted: Float[Array, ""]


def begin(energy: Energy, start: Float[Array, "..."], step: float | Float[Array, ""]) -> Walker:
    """A chain at its starting point."""
    dtype = start.dtype
    return Walker(start, *energy(start), jnp.log(jnp.asarray(step, dtype)), jnp.zeros((), dtype))


def proceed(
    energy: Energy,
    walker: Walker,
    key: PRNGKeyArray,
    *,
    leaps: int | Int[Array, ""],
    draws: int,
    thin: int | Int[Array, ""],
    kick: Callable[[Array], Array] = lambda p: p,
    drift: Callable[[Array], Array] = lambda p: p,
) -> tuple[Walker, Float[Array, "draws ..."]]:
    """Run a piece of a chain: tune the step over an eighth of its length, then draw after every `thin` trajectories.

    `energy` returns U and its gradient. `kick` turns standard Gaussians into momenta of variance M, `drift` momenta into
    velocities, M⁻¹p. A trajectory has `leaps` leapfrog steps, whose size varies by 20 % between trajectories to avoid
    resonance with a period of the motion.

    >>> bowl = lambda x: (0.5 * jnp.sum(x**2) / 4, x / 4)
    >>> walker = begin(bowl, jnp.zeros(500), 0.1)
    >>> walker, _ = proceed(bowl, walker, jax.random.key(0), leaps=8, draws=50, thin=2)
    >>> _, draws = proceed(bowl, walker, jax.random.key(1), leaps=8, draws=50, thin=4)
    >>> bool(abs(jnp.mean(draws**2) - 4) < 0.2)
    True
    """
    dtype = walker.x.dtype
    tuning, kept = jnp.maximum(SHORTEST, draws * jnp.asarray(thin) // 8), jnp.asarray(draws * thin, dtype)

    def trajectory(number, now: Walker) -> Walker:
        kick_key, vary_key, accept_key = jax.random.split(jax.random.fold_in(key, number), 3)
        length = jnp.exp(now.log_step) * (1 + 0.2 * jax.random.uniform(vary_key, (), dtype, -1.0, 1.0))
        p = kick(jax.random.normal(kick_key, now.x.shape, dtype))
        before = now.value + 0.5 * jnp.sum(p * drift(p))

        def leap(_, state):
            x, p, gradient, _ = state
            p = p - 0.5 * length * gradient
            x = x + length * drift(p)
            value, gradient = energy(x)
            return x, p - 0.5 * length * gradient, gradient, value

        x, p, gradient, value = jax.lax.fori_loop(0, leaps, leap, (now.x, p, now.gradient, now.value))
        change = value + 0.5 * jnp.sum(p * drift(p)) - before
        chance = jnp.where(jnp.isfinite(change), jnp.exp(jnp.minimum(-change, 0.0)), 0.0)
        taken = jax.random.uniform(accept_key, (), dtype) < chance
        late = number >= tuning
        return Walker(
            jnp.where(taken, x, now.x),
            jnp.where(taken, value, now.value),
            jnp.where(taken, gradient, now.gradient),
            now.log_step + jnp.where(late, 0.0, GAIN * (chance - ACCEPTED)),
            now.accepted + jnp.where(late, chance / kept, 0.0),
        )

    def draw(now, number):
        # tuning is part of the first draw, so the program contains the trajectory only once
        first = jnp.where(number == 0, 0, tuning + thin * number)
        now = jax.lax.fori_loop(first, tuning + thin * (number + 1), trajectory, now)
        return now, now.x

    return jax.lax.scan(draw, walker._replace(accepted=jnp.zeros((), dtype)), jnp.arange(draws))
