r"""Learning a distribution over binary weights: descend on its means, let it sharpen, take the signs.

**Data.** αN patterns ξ = ±1 with random labels (storage), or the labels of a binary teacher, y = sign(σ⁰·ξ).

**Learner.** Weights σ_i = ±1 are independent, with means m_i. For large N a weight vector drawn from them is right on
a pattern with probability H(−Δ/√(1−q_*)), Δ = y m·ξ/√N, q_* = |m|²/N (`sharpness`), and the loss is the negative
log-likelihood

    E(m) = −(1/αN) Σ_μ log H(−Δ_μ/√(1−q_*)),

minimised over m ∈ [−1, 1]^N at fixed q_*. As q_* → 1 the distribution concentrates on one binary vector, sign(m).

**Theory** (Baldassi et al. 2018; zero temperature, replica symmetric, rederived here; `saddle`). Besides the loss, it gives
the error of weights drawn from the distribution and that of sign(m), which has its own response: on the training patterns
the latter is Φ(−(ρz + V_s g)/√(1−ρ²)) on average, ρ = E|m|/√q_*, V_s = E[z sign m]/√q̂. The loss is convex in m inside the
sphere; its minimum there lies on the sphere as long as the `multiplier` λ is positive, that is up to q_* = 0.77 at
α = 0.5 and 0.65 at α = 1 for random labels. Beyond that the constraint pushes outwards and the minimum may not be unique;
descent ended above the theory's loss (α = 0.75, q_* = 0.95, N = 301: 0.041 ± 0.002, theory 0.0247).

**Simulation.** Projected, accelerated gradient descent while q_* rises in stages to its final value (`annealing`).
Success of the algorithm means that the signs solve all patterns at some step (`solved`); no theory here predicts it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.model import Control, Guard, Model, Numerics, Reference, choice, control, observable

from .annealing import anneal, loss_of
from .saddle import sharpen


class StochasticSynapses(Model):
    """Means of binary weights trained at a given sharpness: loss, errors of drawn and of binarised weights, a teacher.

    >>> import solvable as sv
    >>> found = sv.StochasticSynapses(samples=0.5, sharpness=0.8).theory()
    >>> [round(float(found[n]), 4) for n in ("train_loss", "train_error", "sampled_error")]
    [0.0389, 0.0096, 0.0377]
    """

    id = "stochastic-synapses"
    title = "Stochastic binary synapses"
    family = "synapses"
    sentence = (
        "Gradient descent on the means of binary weights that sharpen: loss, binarised errors, success, a teacher."
    )
    method = "zero-temperature replica saddle point at a given sharpness"
    numerics = Numerics(nodes=10, tolerance=1e-11, max_steps=400)
    typical_sizes = (101, 201, 401)
    theory_seconds = 2e-3
    simulation_seconds = 0.06
    inconclusive = 0.6
    finite_size = 4.0
    guard = Guard(values={"stages": 4, "steps": 30}, size=75, seeds=8)
    check_study = (
        {"over": {"sharpness": [0.3, 0.6]}, "values": {"samples": 0.75}, "seeds": 32},
        {"over": {"sharpness": [0.3, 0.6]}, "values": {"samples": 1.0, "labels": "teacher"}, "seeds": 32},
    )
    references = (
        Reference(
            "baldassi2018role", "C. Baldassi, F. Gerace, H. J. Kappen, C. Lucibello, L. Saglietti, E. Tartaglione and "
            "R. Zecchina", "Role of synaptic stochasticity in training low-precision neural networks", 2018,
            "Phys. Rev. Lett. 120, 268103", arxiv="1710.09825"),
    )  # fmt: skip

    samples: Control = control(
        0.5, low=0.0, low_open=True, high=20.0, typical=(0.3, 1.2), counts=True, symbol=r"\alpha",
        meaning="patterns per weight")  # fmt: skip
    sharpness: Control = control(
        0.5, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.1, 0.9), symbol="q_*",
        meaning="mean square of the means m_i: 0 if all weights are undecided, 1 if all are decided")  # fmt: skip
    labels: str = choice("random", options=("random", "teacher"), meaning="random labels, or those of a binary teacher")
    stages: int = choice(12, high=1000, meaning="number of sharpness values before the last one")
    steps: int = choice(40, high=10_000, meaning="gradient steps at each sharpness, and ten times as many at the last")

    main_declared = ("train_loss", "train_error", "sampled_error", "solved")
    observables_declared = (
        observable("train_loss", "mean −log P(correct) over the training patterns", symbol="E", low=0),
        observable("sampled_error", "probability that weights drawn from the distribution err on a training pattern",
                   low=0, high=1),
        observable("train_error", "fraction of training patterns on which the signs of the means err", low=0, high=1,
                   fraction_of="samples"),
        observable("overlap", "overlap of the means with the teacher", symbol="R", low=0, high=1, when={"labels": "teacher"}),
        observable("test_error", "probability that the means err on a fresh pattern", symbol=r"\varepsilon", low=0, high=0.5,
                   when={"labels": "teacher"}),
        observable("binarised_error", "the same for the signs of the means", low=0, high=0.5, when={"labels": "teacher"}),
        observable("response", "response of a pattern's field to that pattern", symbol="V", low=0,
                   simulated=False),
        observable("multiplier", "multiplier of the constraint on the sharpness: where it is negative, the minimum may not be "
                   "unique", symbol=r"\lambda", simulated=False),
        observable("solved", "whether the signs solved all patterns at any step", low=0, high=1, predicted=False),
        observable("solved_at", "sharpness at which they first did (1: never)", low=0, high=1, predicted=False),
    )  # fmt: skip

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        taught = self.labels == "teacher"
        found = sharpen(
            self.samples, self.sharpness, taught,
            nodes=numerics.nodes, tolerance=numerics.tolerance, max_steps=numerics.max_steps,
        )  # fmt: skip
        values = {
            "train_loss": found.train_loss,
            "sampled_error": found.sampled_error,
            "train_error": found.train_error,
            "response": found.response,
            "multiplier": found.multiplier,
            "converged": found.converged,
            "residual": found.residual,
        }
        if taught:
            m = found.clipped
            values["overlap"] = m.mean
            values["test_error"] = jnp.arccos(m.mean / jnp.sqrt(self.sharpness)) / jnp.pi
            values["binarised_error"] = jnp.arccos(m.sign) / jnp.pi
        return values

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        rows, (to_draw, to_teach, to_start) = counts["samples"], jax.random.split(key, 3)
        signs = jax.random.bernoulli(to_draw, 0.5, (rows.padded, size))
        patterns, mask = jnp.where(signs, 1.0, -1.0).astype(dtype), rows.mask(dtype)
        teacher = jnp.where(jax.random.bernoulli(to_teach, 0.5, (size,)), 1.0, -1.0).astype(dtype)
        if self.labels == "teacher":
            patterns = patterns * jnp.where(patterns @ teacher >= 0, 1.0, -1.0).astype(dtype)[:, None]
        q = self.sharpness.astype(dtype)
        part = np.arange(1, self.stages + 1) / self.stages
        schedule = 1 - (1 - q) ** jnp.asarray(part, dtype)
        schedule = jnp.concatenate([schedule, jnp.full(10, q)])
        start = 1e-2 * jax.random.normal(to_start, (size,), dtype)
        found = anneal(patterns, mask, schedule, start, steps=self.steps)
        fields = patterns @ found.means / math.sqrt(size)
        loss, sampled = loss_of(fields, mask, q)
        binary = jnp.where(found.means >= 0, 1.0, -1.0).astype(dtype)
        values = {
            "train_loss": loss,
            "sampled_error": sampled,
            "train_error": jnp.sum(mask * (patterns @ binary <= 0).astype(dtype)) / jnp.sum(mask),
            "solved": found.solved.astype(dtype),
            "solved_at": found.solved_at,
            "converged": jnp.isfinite(loss),
            "residual": found.change,
        }
        if self.labels == "teacher":
            overlap = found.means @ teacher / size
            values["overlap"] = overlap
            values["test_error"] = jnp.arccos(jnp.clip(overlap / jnp.sqrt(q), -1.0, 1.0)) / math.pi
            values["binarised_error"] = jnp.arccos(jnp.clip(binary @ teacher / size, -1.0, 1.0)) / math.pi
        return values
