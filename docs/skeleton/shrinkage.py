"""Shrinkage of a Gaussian mean: a weak signal estimated from many noisy samples.

**Data.** A signal θ with |θ|² = d. Each of n = αd samples is x_μ = θ + √(dΔ) ζ_μ, ζ_μ ~ N(0, 1_d): one sample carries almost
no information, αd of them do.

**Learner.** *ridge*: ŵ = argmin_w Σ_μ |x_μ − w|²/(2d) + λ|w|²/2 = x̄ α/(α + λ), x̄ the mean of the samples.
*james-stein*: ŵ = x̄ max(0, 1 − (d−2)(Δ/α)/|x̄|²), which needs no λ.

**Theory** (d → ∞). x̄ = θ + √(Δ/α) z with z ~ N(0, 1_d), so that |x̄|²/d → 1 + Δ/α. Both learners shrink x̄ by a factor c,

    c = α/(α + λ)  (ridge),      c = α/(α + Δ)  (james-stein),
    m = ŵ·θ/d = c,      q = |ŵ|²/d = c²(1 + Δ/α),      |ŵ − θ|²/d = 1 − 2m + q.

Ridge is best at λ = Δ. The James–Stein estimator reaches the same loss without knowing Δ.

**Simulation.** Draw the samples, average them, shrink, and measure.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from solvable import Model, Numerics, Reference, choice, control, observable


class Shrinkage(Model):
    """Penalised mean, or James–Stein estimate, of a signal in Gaussian noise.

    >>> float(Shrinkage(samples=1.0, penalty=1.0, noise=1.0).theory().test_loss)
    0.5
    """

    id = "shrinkage"
    title = "Shrinkage of a Gaussian mean"
    family = "tutorial"
    typical_sizes = (50, 100, 200)
    check_study = ({"over": {"estimator": ["ridge", "james-stein"], "samples": [0.5, 2.0]}},)
    references = (
        Reference(
            "james1961estimation", "W. James and C. Stein", "Estimation with quadratic loss", 1961,
            "Proc. Fourth Berkeley Symposium 1, 361"),
    )  # fmt: skip

    samples: Array = control(
        2.0, low=0.0, low_open=True, high=1e4, typical=(0.1, 10.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="samples per dimension, n/d")  # fmt: skip
    penalty: Array = control(
        0.5, low=0.0, high=1e6, typical=(1e-2, 1e2), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 added to the sum of the losses (ridge)")  # fmt: skip
    noise: Array = control(
        1.0, low=0.0, high=1e4, typical=(0.0, 4.0), symbol=r"\Delta",
        meaning="variance of the noise on a coordinate of a sample, in units of d")  # fmt: skip
    estimator: str = choice("ridge", options=("ridge", "james-stein"), meaning="how the mean of the samples is shrunk")

    observables_declared = (
        observable("test_loss", "squared distance to the signal per dimension, |ŵ − θ|²/d", low=0),
        observable("overlap", "overlap with the signal, ŵ·θ/d", symbol="m"),
        observable("norm", "squared norm of the estimate, |ŵ|²/d", symbol="q", low=0),
    )

    # --- theory: scalar controls in, named numbers out --------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        towards = self.penalty if self.estimator == "ridge" else self.noise
        m = self.samples / (self.samples + towards)
        q = m**2 * (1 + self.noise / self.samples)
        return {"test_loss": 1 - 2 * m + q, "overlap": m, "norm": q}

    # --- simulation: one realisation, no formula from above ---------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        samples = counts["samples"]  # samples.actual of them, in arrays of length samples.padded
        draws = jax.random.normal(key, (1 + samples.padded, size), dtype)
        signal = draws[0] * (math.sqrt(size) / jnp.linalg.norm(draws[0]))
        scatter = jnp.sqrt(size * self.noise).astype(dtype)
        looks = signal[None, :] + scatter * draws[1:]
        number = samples.actual.astype(dtype)
        mean = samples.mask(dtype) @ looks / number
        if self.estimator == "ridge":
            w = mean * number / (number + size * self.penalty.astype(dtype))
        else:
            variance = scatter**2 / number
            w = mean * jnp.maximum(0.0, 1 - (size - 2) * variance / (mean @ mean))
        gap = w - signal
        return {"test_loss": gap @ gap / size, "overlap": w @ signal / size, "norm": w @ w / size}
