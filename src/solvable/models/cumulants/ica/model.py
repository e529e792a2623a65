r"""One unknown non-Gaussian direction in d dimensions: how many samples does independent component analysis need?

**Data.** White samples x = t v + x_⊥ with Gaussian x_⊥ and t = √r g + √(1-r) z along the hidden unit vector v; g = ±1 and
r = β/(1+β). Whitening has removed all trace of it in mean and covariance. The excess kurtosis of t is -2r².

**Learners** look for a unit vector w that makes E G(w·x) extreme, from an overlap α_0 = w·v.

- `fastica`: w ← Σ_μ [x_μ G'(w·x_μ) - G''(w·x_μ) w], normalised, on a fresh batch of n = γd samples at every step.
- `descent`: one sample per step, w ← w ± (δ/d) G'(a)(x - a w), normalised; a = w·x.
- `smoothed`: the same with the contrast He_4 averaged over all directions at distance λ = d^{1/4} from w, which turns
  the fourth cumulant into a slope at α = 0. Its rate is δ(1+λ²)²/(4√d), its time n/d².

**Theory** (after Ricci, Bardone and Goldt 2025; derived here). With L(α) = E G(w·x), Stein's lemma reduces FastICA's mean
step to L'(α) v: with infinite data one step is enough. Every other direction gets noise of variance V/n, V = E G'(a)², so as
d → ∞

    α_1² = L'(α_0)²/(L'(α_0)² + V/γ).

L' ~ α³, so from α_0 ~ d^{-1/2} one step gains nothing if n ≪ d³, and finds v only if n ≫ d⁴. Descent follows

    dα/dt = δ |L'(α)| (1-α²) - ½ δ² α E[G'(a)²],    t = n/d.

From α = A d^{-1/2} with δ = δ_1/d and τ = n/d³ this becomes dA = (δ_1|ℓ_4|A³ - ½δ_1²VA)dτ + δ_1√V dB, |ℓ_4| = 2r²: A explodes
after a random τ of order one, so n ~ d³. The smoothed loss has the slope 3|ℓ_4|α/√d instead: A = √d α obeys

    dA = (3δ|ℓ_4| - 12δ²) A dτ + √24 δ dB,    τ = n/d²,

and E[A²], the mean over 256 descents in each realisation, is compared. It grows exponentially until α ~ d^{-1/4}, which
takes n ≈ d² log d/(4(3δ|ℓ_4| - 12δ²)). At finite d the noise is weaker by the factor 1 - 3/√d and the drift by 1 - 1/√d.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.flows.descent import steps_at
from solvable.methods.flows.integrate import integrate
from solvable.methods.training.reduced import Stream, normal, reduced_descent
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

from .contrasts import CONTRASTS, first, one_step, population_slope, second, smoothed_slope, squared_slope

DESCENTS = 256  # smoothed descents averaged in a realisation: the spread of α² is as large as its mean


class ICA(Model):
    """FastICA, online descent and smoothed descent in search of one non-Gaussian direction.

    >>> import solvable as sv
    >>> few, many = sv.ICA(samples=[10.0, 1000.0]).theory().squared_overlap[:, 1]
    >>> round(float(few), 3), round(float(many), 3)
    (0.002, 0.132)
    """

    id = "ica"
    revision = 3
    title = "Independent component analysis in high dimensions"
    family = "cumulants"
    sentence = (
        "How many samples find one non-Gaussian direction: FastICA d⁴ in one step, descent d³, smoothed descent d²."
    )
    method = "one-step laws, a flow at finite learning rate, and its linear limit at small overlaps"
    numerics = Numerics(nodes=48, rtol=1e-10)
    converges_along = "time"
    accuracy = 1e-7
    typical_sizes = (100, 200, 400)
    theory_seconds = 0.01
    simulation_seconds = 0.5
    first_view = FirstView(values={"start": 0.6}, sizes=(40, 80))
    check_study = (
        {"values": {"snr": 15.0, "start": 0.6}, "over": {"samples": [100.0, 400.0]}, "sizes": (40, 80, 160), "seeds": 24},
        {"values": {"learner": "descent", "rate": 0.05, "snr": 15.0, "times": [0.0, 15.0, 30.0, 45.0]},
         "sizes": (500, 2000, 8000), "seeds": 32},
        {"values": {"learner": "smoothed", "rate": 0.1, "snr": 15.0, "times": [0.0, 0.25, 0.5]}, "sizes": (100, 200, 400),
         "seeds": 32},
    )  # fmt: skip
    guard = Guard(values={"samples": 100.0, "start": 0.6}, size=40, seeds=8)
    references = (
        Reference(
            "ricci2025feature", "F. Ricci, L. Bardone and S. Goldt",
            "Feature learning from non-Gaussian inputs: the case of Independent Component Analysis in high dimensions",
            2025, "ICML", arxiv="2503.23896"),
        Reference(
            "hyvarinen1999fast", "A. Hyvärinen", "Fast and robust fixed-point algorithms for independent component analysis",
            1999, "IEEE Transactions on Neural Networks 10, 626"),
    )  # fmt: skip

    snr: Control = control(
        15.0,
        low=0.0,
        high=1e6,
        typical=(1.0, 50.0),
        scale="log",
        symbol=r"\beta",
        meaning="signal-to-noise ratio along v",
    )
    start: Control = control(
        0.3,
        low=0.0,
        high=1.0,
        high_open=True,
        typical=(0.05, 0.6),
        symbol=r"\alpha_0",
        meaning="initial overlap; for smoothed descent, √d times it",
    )
    samples: Control = control(
        500.0,
        low=0.0,
        low_open=True,
        high=1e9,
        typical=(10.0, 5000.0),
        scale="log",
        symbol=r"\gamma",
        counts=True,
        meaning="samples per dimension in a batch of FastICA",
    )
    rate: Control = control(
        0.05,
        low=0.0,
        low_open=True,
        high=10.0,
        typical=(0.01, 0.1),
        scale="log",
        symbol=r"\delta",
        meaning="learning rate",
    )
    learner: str = choice(
        "fastica", options=("fastica", "descent", "smoothed"), meaning="algorithm that looks for the direction"
    )
    contrast: str = choice("kurtosis", options=CONTRASTS, meaning="contrast G; smoothed descent uses He_4")
    steps: int = choice(1, high=100, meaning="steps of FastICA, each on a fresh batch")
    times: Input = input(
        np.linspace(0.0, 60.0, 5), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning="measurement times: samples per dimension; for smoothed descent, samples over d²")  # fmt: skip

    dimensions_declared = (
        dimension("step", "steps of FastICA", symbol="k", kind="site"),
        dimension("time", "training time", symbol="t", kind="time"),
    )
    observables_declared = (
        observable("squared_overlap", "mean squared overlap after each step", symbol=r"\alpha^2", dims=("step",), low=0, high=1,
                   when={"learner": "fastica"}),
        observable("overlap", "overlap with the hidden direction", symbol=r"\alpha", dims=("time",), low=-1, high=1,
                   when={"learner": "descent"}),
        observable("scaled_square", "mean squared overlap times the dimension", symbol=r"d\,\langle\alpha^2\rangle",
                   dims=("time",), low=0, power=0.5, when={"learner": "smoothed"}),
        observable("growth", "growth rate of the overlap in smoothed descent, per d² samples", symbol=r"\kappa",
                   simulated=False, when={"learner": "smoothed"}),
        observable("largest_rate", "learning rate above which noise exceeds the signal at the start", symbol=r"\delta_c", low=0,
                   simulated=False, when={"learner": ("descent", "smoothed")}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.learner == "smoothed" and self.contrast not in ("kurtosis", "hermite"):
            raise InvalidValue(
                f"contrast = {self.contrast!r} is not available with learner = 'smoothed', which uses He_4."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times), "step": np.arange(self.steps + 1)}

    @property
    def _ratio(self) -> Array:
        return self.snr / (1 + self.snr)

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        r, nodes = self._ratio, numerics.nodes
        if self.learner == "fastica":
            path = [self.start**2]
            for _ in range(self.steps):
                # the square root has no derivative at zero, and none is needed there
                here = jnp.sqrt(jnp.maximum(path[-1], 1e-300))
                path.append(one_step(self.contrast, r, here, self.samples, nodes))
            return {"squared_overlap": jnp.stack(path)}
        if self.learner == "smoothed":
            growth = 3 * self.rate * 2 * r**2 - 12 * self.rate**2
            time = self.times - self.times[0]
            # (e^{2κτ} - 1)/2κ, also for κ = 0
            x = 2 * growth * time
            small = jnp.abs(x) < 1e-6
            mean = time * jnp.where(small, 1 + x / 2, jnp.expm1(x) / jnp.where(small, 1.0, x))
            square = self.start**2 * jnp.exp(x) + 24 * self.rate**2 * mean
            return {"scaled_square": square, "growth": growth, "largest_rate": r**2 / 2}

        def field(t: Array, alpha: Array, args: Any) -> Array:
            slope = jnp.abs(population_slope(self.contrast, r, alpha, nodes))
            noise = squared_slope(self.contrast, r, alpha, nodes)
            return self.rate * slope * (1 - alpha**2) - 0.5 * self.rate**2 * alpha * noise

        run = integrate(field, self.start, self.times, rtol=numerics.rtol, atol=1e-13, max_steps=2000)
        slope = jnp.abs(population_slope(self.contrast, r, self.start, nodes)) * (1 - self.start**2)
        noise = squared_slope(self.contrast, r, self.start, nodes)
        largest = 2 * slope / (jnp.maximum(self.start, 1e-9) * noise)
        return {"overlap": run.values, "largest_rate": largest, "converged": run.reached}

    # --- simulation -------------------------------------------------------------------------------------------------

    def components(self, bits: Array) -> tuple[Array, None]:
        """The component t of a sample."""
        r = self._ratio.astype(jnp.float32)
        sign = jnp.where((bits[0] & 1) == 0, 1.0, -1.0).astype(jnp.float32)
        return (jnp.sqrt(r) * sign + jnp.sqrt(1 - r) * normal(bits[0]))[None], None

    @property
    def sign(self) -> float:
        """Whether L is maximised or minimised: the sign of c_4 ℓ_4, ℓ_4 < 0."""
        return 1.0 if self.contrast in ("log-cosh", "exponential") and self.learner != "smoothed" else -1.0

    def stream(self, size: int) -> Stream:
        """Samples and update of an online learner, for `reduced_descent` with any number of lanes."""
        rate = self.rate.astype(jnp.float32) / np.float32(size)
        if self.learner == "smoothed":
            radius = jnp.asarray(size**0.25, jnp.float32)
            whole = rate * np.float32((1 + size**0.5) ** 2 / (4 * size**0.5))
            return Stream(
                self.components, lambda a, square, _: -whole * smoothed_slope(a, square, radius, size), size, 1
            )
        return Stream(self.components, lambda a, square, _: rate * self.sign * first(self.contrast, a), size, 1)

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if self.learner == "fastica":
            return {"squared_overlap": self._fixed_point(key, size, counts["samples"].actual, dtype)}
        scale = size**-0.5 if self.learner == "smoothed" else 1.0
        start = (self.start * scale).astype(jnp.float32)[None]
        if self.learner == "smoothed":
            start = jnp.broadcast_to(start[:, None], (1, DESCENTS))
        ends = steps_at(self.times, size) if self.learner == "descent" else jnp.rint(
            (self.times - self.times[0]) * float(size) ** 2).astype(jnp.int64)  # fmt: skip
        path = reduced_descent(self.stream(size), key, start, ends)[:, 0].astype(float)
        return {"overlap": path} if self.learner == "descent" else {"scaled_square": size * jnp.mean(path**2, axis=1)}

    def _fixed_point(self, key: Array, size: int, number: Array, dtype: Any) -> Array:
        """Full steps of FastICA, one batch after another in pieces of equal length; v is the first axis."""
        rows = 512
        rest = jax.random.normal(jax.random.fold_in(key, 2**31 - 1), (size - 1,), dtype)
        begin = self.start.astype(dtype)
        w = jnp.concatenate([begin[None], rest / jnp.linalg.norm(rest) * jnp.sqrt(1 - begin**2)])
        r = self._ratio.astype(dtype)

        def step(w: Array, step_key: Array) -> tuple[Array, Array]:
            def piece(i: Array, total: Array) -> Array:
                noise = jax.random.normal(jax.random.fold_in(step_key, i), (rows, size + 1), dtype)
                t = jnp.sqrt(r) * jnp.sign(noise[:, -1]) + jnp.sqrt(1 - r) * noise[:, 0]
                x = jnp.concatenate([t[:, None], noise[:, 1:-1]], axis=1)
                a = x @ w
                here = (i * rows + jnp.arange(rows, dtype=jnp.int32) < number).astype(dtype)
                return total + (here * first(self.contrast, a)) @ x - jnp.sum(here * second(self.contrast, a)) * w

            pieces = -(-number // rows)
            moved = jax.lax.fori_loop(jnp.zeros_like(pieces), pieces, piece, jnp.zeros_like(w))
            moved = moved / jnp.linalg.norm(moved)
            return moved, (moved[0] ** 2).astype(float)

        _, path = jax.lax.scan(step, w, jax.random.split(key, self.steps))
        return jnp.concatenate([jnp.clip(self.start**2, 0, 1)[None], jnp.clip(path, 0, 1)])
