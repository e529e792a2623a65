"""The competing solutions of a narrow network: specialised, unstable and unspecialised, with their predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .committee import (
    Kernel,
    bayes_free_energy,
    bayes_solution,
    bayes_transitions,
    committee_saddle_point,
    fields,
    free_energy,
    order_parameters,
    replicon,
)


def bayes_branches(kernel: Kernel, alpha: Array, noise: Array) -> dict[str, dict[str, Array]]:
    """Solutions reached from the teacher and from random weights; the unstable and the unspecialised solution."""
    lines = bayes_transitions(kernel, noise)
    found = bayes_solution(kernel, alpha, noise, lines)
    one, zero = jnp.ones_like(alpha), jnp.zeros_like(alpha)
    lost = jax.lax.stop_gradient(alpha > lines.threshold)
    overlaps = {
        "teacher": (found.upper, True),
        "random": (jnp.where(lost, found.upper, 0.0), True),
        "unstable": (found.lower, found.has_lower),
        "zero": (zero, True),
    }

    def predicted(q: Array, there: Any) -> dict[str, Array]:
        rest = noise + kernel.value(one, one, one) - kernel.value(q, one, one)
        r = alpha * (1 - q) ** 2 * ((kernel.slope(q, one, one) / rest) ** 2 + kernel.bend(q, one, one) / rest)
        return {
            "overlap": q,
            "norm": one,
            "replica_overlap": q,
            "test_loss": 0.5 * rest,
            "excess_loss": 0.5 * (rest - noise),
            "train_loss": 0.5 * noise**2 / rest,
            "free_energy": bayes_free_energy(kernel, q, alpha, noise),
            "stability": (1 - r) / (1 + r),
            "spinodal": lines.spinodal,
            "transition": lines.transition,
            "jump": lines.overlap,
            "threshold": lines.threshold,
            "converged": jnp.asarray(there) & (found.residual < 1e-11),
            "residual": found.residual,
        }

    return {name: predicted(*each) for name, each in overlaps.items()}


def saddle_points(
    kernel: Kernel,
    samples: Array,
    penalty: Array,
    noise: Array,
    temperature: Array | None,
    *,
    tolerance: float,
    max_steps: int,
) -> dict[str, Array]:
    """Saddle points of gibbs, and of erm (no temperature): from the teacher, from half-way, and without specialisation."""
    soft, loose, one = -jnp.log(penalty + 0.2 * samples), -jnp.log(penalty), jnp.ones(())
    starts = [(soft, 0.03, 0.97), (soft, 0.3, 0.8), (soft, 0.5, 0.4)]
    # Without specialisation the response differs: the network fits the noise, or its outputs alone have the variance of
    # the labels.
    if temperature is None:
        starts += [(soft, 0.5, 0.0), (0.5 * (soft + loose), 5.0, 0.0), (loose - 1, 30.0, 0.0)]
    else:
        wide = jnp.log1p(noise / kernel.value(one, one, one)) - jnp.log(temperature)
        starts += [(soft, 0.0, 0.0), (wide, 0.0, 0.0), (loose, 0.0, 0.0)]
    starts = jnp.stack([jnp.stack([jnp.asarray(v, float) for v in start]) for start in starts])
    options = {"tolerance": tolerance, "max_steps": max_steps, "warmup": 100, "damping": 0.5}
    controls = samples, penalty, noise, temperature
    found = jax.vmap(lambda start: committee_saddle_point(kernel, start, *controls, **options))(starts)

    def predicted(x: Array) -> dict[str, Array]:
        order = order_parameters(x, temperature)
        f = fields(kernel, order, noise, temperature)
        gap = f.g_norm - f.g_replica  # variance of a draw around the mean of all draws
        drawn = gap if temperature is not None else 0.0
        excess = f.rest - noise + drawn
        bend = kernel.bend(0 * order.norm, order.norm, 1 + 0 * order.norm)
        out = {
            "overlap": order.overlap,
            "norm": order.norm,
            "test_loss": 0.5 * (noise + excess),
            "excess_loss": 0.5 * excess,
            "train_loss": 0.5 * (drawn / f.denominator + f.rest / f.denominator**2),
            "free_energy": free_energy(order, f, samples, penalty, temperature),
            "stability": replicon(kernel, order, f, samples, temperature),
            "push": samples * order.response / f.denominator * bend,
        }
        return out | ({"replica_overlap": order.replica} if temperature is not None else {})

    seen = jax.vmap(predicted)(found.x) | {"converged": found.converged, "residual": found.residual}
    # A start near the teacher can still end without specialisation: take the most specialised of both.
    informed = jnp.argmax(jnp.where(found.converged[:2], seen["overlap"][:2], -jnp.inf))
    # take the lowest of several unspecialised solutions
    plain = 3 + jnp.argmin(jnp.where(found.converged[3:], seen["free_energy"][3:], jnp.inf))
    return {n: v[jnp.stack([informed, jnp.full_like(informed, 2), plain])] for n, v in seen.items()}
