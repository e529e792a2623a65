r"""Curriculum in batch learning: easy samples trained to convergence, then hard ones, with a prior that couples the phases.

**Data.** A fraction ρ of the N inputs is relevant and N(0, 1); the others are N(0, Δ), with Δ = `easy` in αₑN easy samples
and Δ = `hard` in αₕN hard ones. The teacher uses relevant inputs only, |W_T|²/N = ρ, and y = sign(W_T·x/√N).

**Learner.** Logistic regression on w·x/√N, each phase trained to its minimum:

    w₁ = argmin Σ_{slice 1} ℓ + λ₁|w|²/2,        w₂ = argmin Σ_{slice 2} ℓ + λ₂|w|²/2 + γ|w − w₁|²/2.

- `curriculum`: easy samples first, then the hard ones;
- `anti`: hard samples first, then the easy ones;
- `joint`: all samples in one phase, with λ₂ (λ₁ and γ are not used).

With γ = 0 a convex loss forgets the first phase altogether; the order matters only through the Gaussian prior (elastic, as in
consolidation). The test is on hard inputs.

**Theory** (Saglietti, Sarao Mannelli and Saxe 2022; exact for convex losses): one saddle point per phase. The previous
phase enters through its overlaps, because the slices are disjoint (`elastic_phases`, for any number of phases).

**Results** (Δₑ = 0.05, αₑ = αₕ = 0.5). With λ₁, λ₂ and γ tuned for *every* protocol, the curriculum is better than joint
training by 19 % at ρ = 0.1, 13 % at 0.2 and 4 % at 0.5, and no better from ρ = 0.7 on. For sparse teachers anti-curriculum
is also better than joint training (9 % at ρ = 0.2), so part of the gain is due to the prior. At one shared γ and λ, easy first
appears better than hard first by up to 36 %, whereas the tuned orders differ by 5 %: their best γ are an order of magnitude
apart.

**Simulation.** Draw teacher and slices, minimise every phase by L-BFGS starting from the previous one; errors are exact
averages given the weights.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.errors import InvalidValue
from solvable.methods.risk.lbfgs import Minimum, minimise
from solvable.model import Control, Model, Numerics, Reference, choice, control, dimension, observable

from .elastic_phases import Phase, error_at, learn

PROTOCOLS = ("curriculum", "anti", "joint")


class CurriculumBatch(Model):
    """Logistic regression on easy and hard samples in two coupled phases: curriculum, anti-curriculum, or all at once.

    >>> import solvable as sv
    >>> round(float(sv.CurriculumBatch(easy=0.1, penalty=0.01, consolidation=0.5).theory().test_error), 5)
    0.17056
    """

    id = "curriculum-batch"
    title = "Curriculum learning, batch"
    family = "replica"
    sentence = (
        "Easy and hard samples in two batch phases coupled by a prior: curriculum, anti-curriculum and joint training."
    )
    method = "a replica saddle point for every phase"
    # near separability a phase's saddle point amplifies errors of its averages a hundred thousand times
    numerics = Numerics(nodes=23, tolerance=1e-11, max_steps=400)
    simulation_dtype = "float64"  # small penalties are ill-conditioned
    typical_sizes = (100, 200, 400)
    theory_seconds = 1e-3
    simulation_seconds = 0.05
    check_study = ({"over": {"protocol": list(PROTOCOLS)}, "values": {"penalty": 0.05, "easy": 0.1}, "seeds": 24},)
    references = (
        Reference(
            "saglietti2022analytical", "L. Saglietti, S. Sarao Mannelli and A. Saxe", "An analytical theory of curriculum "
            "learning in teacher-student networks", 2022, "NeurIPS 35", arxiv="2106.08068"),
    )  # fmt: skip

    samples_easy: Control = control(
        1.0, low=0.0, low_open=True, high=1e3, typical=(0.2, 5.0), scale="log", counts=True, symbol=r"\alpha_e",
        meaning="easy training samples per input dimension")  # fmt: skip
    samples_hard: Control = control(
        1.0, low=0.0, low_open=True, high=1e3, typical=(0.2, 5.0), scale="log", counts=True, symbol=r"\alpha_h",
        meaning="hard training samples per input dimension")  # fmt: skip
    relevant: Control = control(
        0.5, low=0.0, low_open=True, high=1.0, high_open=True, typical=(0.1, 0.9), symbol=r"\rho", counts=True,
        meaning="fraction of inputs that are relevant")  # fmt: skip
    easy: Control = control(
        0.05, low=0.0, high=100.0, typical=(0.0, 0.5), symbol=r"\Delta_e",
        meaning="variance of irrelevant inputs in an easy sample")  # fmt: skip
    hard: Control = control(
        1.0, low=0.0, high=100.0, typical=(0.5, 2.0), symbol=r"\Delta_h",
        meaning="variance of irrelevant inputs in a hard sample, and in the test")  # fmt: skip
    first_penalty: Control = control(
        0.1, low=1e-8, high=1e4, typical=(1e-3, 10.0), scale="log", symbol=r"\lambda_1",
        meaning="ridge penalty λ₁|w|²/2 of the first phase, added to the sum of its losses")  # fmt: skip
    penalty: Control = control(
        0.1, low=1e-8, high=1e4, typical=(1e-3, 10.0), scale="log", symbol=r"\lambda_2",
        meaning="ridge penalty λ₂|w|²/2 of the last phase, the only one in joint training")  # fmt: skip
    consolidation: Control = control(
        0.5, low=0.0, high=1e8, typical=(1e-2, 1e2), scale="log", symbol=r"\gamma",
        meaning="pull γ|w − w₁|²/2 of the last phase towards the end of the first")  # fmt: skip
    protocol: str = choice("curriculum", options=PROTOCOLS, meaning="easy or hard samples first, or all in one phase")

    dimensions_declared = (dimension("inputs", "relevant and irrelevant inputs"),)
    observables_declared = (
        observable("test_error", "probability of a wrong label on a fresh hard input", symbol=r"\varepsilon", low=0, high=1),
        observable("easy_error", "probability of a wrong label on a fresh easy input", symbol=r"\varepsilon_e", low=0, high=1),
        observable("first_error", "error on hard inputs at the end of the first phase", symbol=r"\varepsilon_1", low=0,
                   high=1, when={"protocol": ("curriculum", "anti")}),
        observable("overlap", "overlap of student and teacher w·W_T/N", symbol="R"),
        observable("norm", "squared norm of the student on relevant and on irrelevant inputs, per input dimension",
                   symbol="Q_r, Q_i", dims=("inputs",), low=0),
        observable("response", "how strongly a prediction follows its own sample, on relevant and on irrelevant inputs",
                   symbol="V_r, V_i", dims=("inputs",), low=0, simulated=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"inputs": np.array(["relevant", "irrelevant"])}

    # --- theory -----------------------------------------------------------------------------------------------------

    def _phases(self) -> list[Phase]:
        samples, level = (self.samples_easy, self.samples_hard), (self.easy, self.hard)
        if self.protocol == "joint":
            return [Phase(jnp.stack(samples), jnp.stack(level), self.penalty, jnp.zeros_like(self.penalty))]
        first, last = (0, 1) if self.protocol == "curriculum" else (1, 0)
        return [
            Phase(samples[first][None], level[first][None], self.first_penalty, jnp.zeros_like(self.penalty)),
            Phase(samples[last][None], level[last][None], self.penalty, self.consolidation),
        ]

    def point(self, numerics: Numerics) -> dict[str, Array]:
        ends = learn(
            self._phases(),
            self.relevant,
            nodes=numerics.nodes,
            tolerance=numerics.tolerance,
            max_steps=numerics.max_steps,
        )
        last = ends[-1]
        values = {
            "test_error": error_at(last, self.relevant, self.hard),
            "easy_error": error_at(last, self.relevant, self.easy),
            "overlap": last.overlap,
            "norm": jnp.stack([last.relevant, last.irrelevant]),
            "response": last.response,
            "converged": last.converged,
            "residual": last.residual,
        }
        if self.protocol != "joint":
            values["first_error"] = error_at(ends[0], self.relevant, self.hard)
        return values

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if size < 3:
            raise InvalidValue(f"size = {size} is smaller than 3, two relevant inputs and one irrelevant one.")
        teacher_key, *slice_keys = jax.random.split(key, 3)
        number = jnp.clip(counts["relevant"].actual, 1, size - 1)
        mask = (jnp.arange(size, dtype=jnp.int32) < number).astype(dtype)
        teacher = mask * jax.random.normal(teacher_key, (size,), dtype)
        teacher = teacher * jnp.sqrt(number.astype(dtype)) / jnp.linalg.norm(teacher)

        def drawn(key: Array, name: str, level: Array) -> tuple[Array, Array, Array]:
            rows = counts[name]
            z = jax.random.normal(key, (rows.padded * size,), dtype).reshape(rows.padded, size)
            inputs = z * jnp.sqrt(mask + (1 - mask) * level.astype(dtype))[None, :] / math.sqrt(size)
            labels = jnp.where(inputs @ teacher >= 0, 1.0, -1.0).astype(dtype)
            return inputs, labels, rows.mask(dtype)

        easy = drawn(slice_keys[0], "samples_easy", self.easy)
        hard = drawn(slice_keys[1], "samples_hard", self.hard)
        zero, free = jnp.zeros(size, dtype), jnp.zeros_like(self.penalty)
        if self.protocol == "joint":
            both = tuple(jnp.concatenate(pair) for pair in zip(easy, hard, strict=True))
            fits = [_fit(both, self.penalty, free, zero)]
        else:
            first, last = (easy, hard) if self.protocol == "curriculum" else (hard, easy)
            fits = _fit_in_turn([(first, self.first_penalty, free), (last, self.penalty, self.consolidation)], zero)

        def measured(w: Array, level: Array) -> tuple[Array, Array, Array]:
            w, inside = w.astype(float), mask.astype(float)
            r = w @ teacher.astype(float) / size
            norms = jnp.stack([inside @ w**2, (1 - inside) @ w**2]) / size
            rho = number.astype(float) / size
            return jnp.arccos(jnp.clip(r / jnp.sqrt(rho * (norms[0] + level * norms[1])), -1.0, 1.0)) / jnp.pi, r, norms

        w = fits[-1].parameters
        error, overlap, norms = measured(w, self.hard)
        worst = jnp.max(jnp.stack([fit.residual for fit in fits]))
        values = {"test_error": error, "easy_error": measured(w, self.easy)[0], "overlap": overlap, "norm": norms}
        if self.protocol != "joint":
            values["first_error"] = measured(fits[0].parameters, self.hard)[0]
        return {**values, "converged": worst < 1e-5, "residual": worst}


class _Risk(eqx.Module):
    """Logistic losses of the unmasked rows, the ridge, and the pull to a centre; also returns the gradient."""

    inputs: Array
    labels: Array
    mask: Array
    penalty: Array
    pull: Array
    centre: Array

    def __call__(self, w: Array) -> tuple[Array, Array]:
        margin = self.labels * (self.inputs @ w)
        away = w - self.centre
        value = self.mask @ jax.nn.softplus(-margin) + 0.5 * self.penalty * w @ w + 0.5 * self.pull * away @ away
        slope = -self.mask * self.labels * jax.nn.sigmoid(-margin)
        return value, self.inputs.T @ slope + self.penalty * w + self.pull * away


def _fit(rows: tuple[Array, ...], penalty: Array, pull: Array, centre: Array) -> Minimum:
    inputs, labels, mask = rows
    dtype = inputs.dtype
    risk = _Risk(inputs, labels, mask, penalty.astype(dtype), pull.astype(dtype), centre)
    return minimise(risk, centre, tolerance=1e-7, iterations=3000)


def _fit_in_turn(phases: list[tuple[tuple[Array, ...], Array, Array]], start: Array) -> list[Minimum]:
    """Every phase from the end of the one before, which it is pulled to."""
    if len({rows[0].shape for rows, *_ in phases}) > 1:
        fits = []
        for phase in phases:
            fits.append(_fit(*phase, fits[-1].parameters if fits else start))
        return fits

    # phases of equal shape are a loop, so that the search is compiled once
    def advance(w: Array, phase: tuple[tuple[Array, ...], Array, Array]) -> tuple[Array, Minimum]:
        fit = _fit(*phase, w)
        return fit.parameters, fit

    _, path = jax.lax.scan(advance, start, jax.tree.map(lambda *parts: jnp.stack(parts), *phases))
    return [jax.tree.map(lambda v, k=k: v[k], path) for k in range(len(phases))]
