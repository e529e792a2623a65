r"""Logistic regression in phases, each pulled towards the end of the last: the recursion of its saddle points.

A fraction ρ of N inputs is relevant and N(0, 1), the others are N(0, Δ) with a Δ for every slice of data; the teacher uses
relevant inputs only, |W_T|²/N = ρ, y = sign(W_T·x/√N). Phase k minimises over w, on slices that no other phase sees,

    Σ_μ log(1 + exp(−y w·x/√N)) + λ_k |w|²/2 + γ_k |w − w_{k−1}|²/2,        α_a N samples in slice a.

Because its data are fresh, w_{k−1} enters only through its overlap R₁ = w·W_T/N and its squared norms Q_r₁, Q_i₁ per N on
relevant and irrelevant inputs. With the sign channel's conjugates per sample (`methods.risk.channels`) of every slice at m = R,
q = Q_r + ΔQ_i, V = V_r + ΔV_i,

    v_r = Σ αv̂,  v_i = Σ αΔv̂,  q_r = Σ αq̂,  q_i = Σ αΔq̂,  R̂ = Σ αm̂,        A_r = λ + γ + v_r,  A_i = λ + γ + v_i,
    R = (γR₁ + ρR̂)/A_r,   Q_r = (γ²Q_r₁ + 2γR̂R₁ + ρ(R̂² + q_r))/A_r²,   Q_i = (γ²Q_i₁ + (1−ρ)q_i)/A_i²,
    V_r = ρ/A_r,   V_i = (1−ρ)/A_i.

(Saglietti, Sarao Mannelli and Saxe 2022, arXiv:2106.08068; derived independently. The recursion does not cover slices that are
used in several phases.)
The unknowns are the logarithms of αm̂/A_r, αq̂/A_r² and αv̂ of every slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from solvable.methods.fixed_points.saddle import solve
from solvable.methods.risk.channels import sign_channel
from solvable.methods.risk.losses import Logistic

Scalar = Float[Array, ""]


class Phase(NamedTuple):
    """The slices trained together, their penalty λ, and the strength γ of the pull to the end of the previous phase."""

    samples: Float[Array, " slice"]
    difficulty: Float[Array, " slice"]
    penalty: Scalar
    pull: Scalar


class Place(NamedTuple):
    """State at the end of a phase: R, Q_r, Q_i, and `across` = ρQ_r − R², kept because subtraction would lose it."""

    overlap: Scalar
    relevant: Scalar
    irrelevant: Scalar
    across: Scalar
    response: Float[Array, "2"]
    residual: Scalar
    converged: Bool[Array, ""]


def nowhere() -> Place:
    """The state before the first phase: zero weights."""
    zero = jnp.zeros(())
    return Place(zero, zero, zero, zero, jnp.zeros(2), zero, jnp.asarray(True))


def error_at(place: Place, relevant: Scalar, difficulty: Scalar) -> Scalar:
    """Probability of a wrong label on a fresh input of this difficulty: arccos(R/√(ρ(Q_r + ΔQ_i)))/π.

    >>> half = jnp.asarray(0.5)
    >>> at = nowhere()._replace(overlap=half, relevant=half + 0.5, across=half - 0.25)
    >>> float(error_at(at, half, half))
    0.25
    """
    rest = place.across + relevant * difficulty * place.irrelevant
    return jnp.arctan2(jnp.sqrt(jnp.maximum(rest, 1e-300)), place.overlap) / jnp.pi


def learn(
    phases: Sequence[Phase], relevant: Scalar, *, nodes: int = 14, tolerance: float = 1e-11, max_steps: int = 400
) -> list[Place]:
    """The states at the end of all phases, in order; after a phase that did not converge, all later ones are NaN.

    >>> easy = Phase(jnp.ones(1), jnp.full(1, 0.1), jnp.asarray(0.1), jnp.asarray(0.0))
    >>> hard = Phase(jnp.ones(1), jnp.ones(1), jnp.asarray(0.01), jnp.asarray(0.5))
    >>> first, last = learn([easy, hard], jnp.asarray(0.5))
    >>> round(float(error_at(last, jnp.asarray(0.5), jnp.asarray(1.0))), 6)
    0.17056
    """
    if len({phase.samples.shape for phase in phases}) > 1:
        ends, place = [], nowhere()
        for phase in phases:
            place = _advance(phase, place, relevant, nodes, tolerance, max_steps)
            ends.append(place)
        return ends

    # phases of equal shape are a loop, so that the saddle point is compiled once
    def advance(place: Place, phase: Phase) -> tuple[Place, Place]:
        place = _advance(phase, place, relevant, nodes, tolerance, max_steps)
        return place, place

    _, path = jax.lax.scan(advance, nowhere(), jax.tree.map(lambda *rows: jnp.stack(rows), *phases))
    return [jax.tree.map(lambda v, k=k: v[k], path) for k in range(len(phases))]


def _read(x: Array, phase: Phase, before: Place, relevant: Scalar) -> Place:
    """Input side of the equations, from the solver's unknowns."""
    pull, kept = phase.pull, phase.penalty + phase.pull
    overlap, norm, stiff = jnp.exp(x.reshape(3, -1))  # αm̂/A_r, αq̂/A_r², αv̂
    a_r, a_i = kept + jnp.sum(stiff), kept + phase.difficulty @ stiff
    past, hat = pull / a_r, jnp.sum(overlap)
    across = past**2 * before.across + relevant**2 * jnp.sum(norm)
    R = past * before.overlap + relevant * hat
    quiet = (pull / a_i) ** 2 * before.irrelevant + (1 - relevant) * (phase.difficulty @ norm) * (a_r / a_i) ** 2
    response = jnp.stack([relevant / a_r, (1 - relevant) / a_i])
    return Place(R, (across + R**2) / relevant, quiet, across, response, before.residual, before.converged)


def _advance(phase: Phase, before: Place, relevant: Scalar, nodes: int, tolerance: float, max_steps: int) -> Place:
    def update(x, args):
        phase, before, relevant = args
        at = _read(x, phase, before, relevant)

        def taught(difficulty):
            q, V = at.relevant + difficulty * at.irrelevant, at.response[0] + difficulty * at.response[1]
            rest = (at.across + relevant * difficulty * at.irrelevant) / q
            return jnp.stack(sign_channel(Logistic(), at.overlap, q, V, rest, nodes))

        overlap, norm, stiff = phase.samples[None, :] * jax.vmap(taught)(phase.difficulty).T
        a_r = phase.penalty + phase.pull + jnp.sum(stiff)
        return jnp.log(jnp.stack([overlap / a_r, norm / a_r**2, stiff])).reshape(-1)

    # One step of gradient descent from zero, at a curvature between the limits of few and many samples.
    stiff = 0.25 * phase.samples / (1 + 0.25 / (0.1 + phase.penalty + phase.pull))
    a_r = 0.05 + phase.penalty + phase.pull + jnp.sum(stiff)
    slope = 0.4 / jnp.sqrt(relevant)
    start = jnp.log(jnp.stack([slope * phase.samples / a_r, 0.25 * phase.samples / a_r**2, stiff])).reshape(-1)
    found = solve(update, start, (phase, before, relevant), tolerance=tolerance, max_steps=max_steps)
    at = _read(found.x, phase, before, relevant)
    residual = jnp.maximum(before.residual, found.residual)
    return at._replace(residual=residual, converged=before.converged & found.converged)
