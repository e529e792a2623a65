"""Hamiltonian Monte Carlo: draws from exp(−U(x)) by leapfrog trajectories, with a step that adapts to its acceptance."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

ACCEPTED = 0.8  # of the trajectories, to which the step adapts


class Chain(NamedTuple):
    """Draws after the burn-in, how many trajectories were accepted there, and their step."""

    draws: Float[Array, "draws ..."]
    accepted: Float[Array, ""]
    step: Float[Array, ""]


def hamiltonian_chain(
    energy: Callable[[Array], tuple[Float[Array, ""], Array]],
    start: Float[Array, "..."],
    key: PRNGKeyArray,
    *,
    step: float,
    leaps: int,
    burn: int,
    draws: int,
    thin: int,
    kick: Callable[[Array], Array] = lambda p: p,
    drift: Callable[[Array], Array] = lambda p: p,
) -> Chain:
    """A chain of trajectories of `leaps` leapfrog steps: `burn` that are forgotten, then a draw after every `thin`.

    `energy` returns U and its gradient. `kick` turns standard Gaussians into momenta of variance M, `drift` momenta into
    velocities, M⁻¹p. While burning in, the step grows or shrinks with its acceptance; each trajectory's is then varied by
    20 % around the last, so that no period of the motion is met exactly.

    >>> bowl = lambda x: (0.5 * jnp.sum(x**2) / 4, x / 4)
    >>> chain = hamiltonian_chain(bowl, jnp.zeros(500), jax.random.key(0), step=0.1, leaps=8, burn=100, draws=50, thin=4)
    >>> bool(abs(jnp.mean(chain.draws**2) - 4) < 0.2)
    True
    """
    dtype = start.dtype

    def trajectory(number, carry):
        x, value, gradient, log_step, accepted = carry
        kick_key, vary_key, accept_key = jax.random.split(jax.random.fold_in(key, number), 3)
        length = jnp.exp(log_step) * (1 + 0.2 * jax.random.uniform(vary_key, (), dtype, -1.0, 1.0))
        p = kick(jax.random.normal(kick_key, x.shape, dtype))
        before = value + 0.5 * jnp.sum(p * drift(p))

        def leap(_, state):
            x, p, gradient, _ = state
            p = p - 0.5 * length * gradient
            x = x + length * drift(p)
            value, gradient = energy(x)
            return x, p - 0.5 * length * gradient, gradient, value

        new_x, p, new_gradient, new_value = jax.lax.fori_loop(0, leaps, leap, (x, p, gradient, value))
        change = new_value + 0.5 * jnp.sum(p * drift(p)) - before
        chance = jnp.where(jnp.isfinite(change), jnp.exp(jnp.minimum(-change, 0.0)), 0.0)
        taken = jax.random.uniform(accept_key, (), dtype) < chance
        late = number >= burn
        return (
            jnp.where(taken, new_x, x),
            jnp.where(taken, new_value, value),
            jnp.where(taken, new_gradient, gradient),
            log_step + jnp.where(late, 0.0, 0.1 * (chance - ACCEPTED)),
            accepted + jnp.where(late, chance / (draws * thin), 0.0),
        )

    def draw(carry, number):
        carry = jax.lax.fori_loop(burn + thin * number, burn + thin * (number + 1), trajectory, carry)
        return carry, carry[0]

    begin = (start, *energy(start), jnp.log(jnp.asarray(step, dtype)), jnp.zeros((), dtype))
    begin = jax.lax.fori_loop(0, burn, trajectory, begin)
    last, kept = jax.lax.scan(draw, begin, jnp.arange(draws))
    return Chain(kept, last[4], jnp.exp(last[3]))
