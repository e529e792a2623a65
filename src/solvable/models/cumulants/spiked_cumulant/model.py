r"""A direction hidden from mean and covariance, visible only in cumulants of order four or more: how many samples reveal it?

**Data.** A spike u of d random signs, with direction û = u/√d. Samples of the planted class are x = S(√(β/d) g u + z) with
Gaussian z and a latent g of mean zero and variance one; S whitens, so that their covariance is the identity. Only their
component along û is not Gaussian: s = √r g + √(1-r) z with r = β/(1+β). The null class is N(0, 1_d).

- `latent`: Rademacher, uniform, Laplace, Gaussian (the null case), or your own by its `moments` E[g^0] … E[g^(2m-1)]: then the
  law with m atoms that has them.

**Tests.** With ℓ_u the likelihood ratio of one sample, two independent spikes of overlap λ interact through the pair
function f(λ) = E_Q[ℓ_u ℓ_v] = Σ_k (rλ)^k h_k²/k!, h_k = E He_k(g), and the norm of the likelihood ratio of n samples is

    ‖L‖² = E_λ f(λ)^n.

The classes cannot be (strongly) distinguished while it is bounded. With n = γd its logarithm per dimension tends to
R = max_λ [γ log f - I(λ)], with I the entropic cost of an overlap. Near λ = 0 the entropy wins (λ² against λ⁴), so
the maximum appears near λ = 1: a discontinuous transition at β_*(γ), or at γ_*(β) = min_λ I/log f. Polynomials of low
degree D, which stand for polynomial-time tests, detect less: their norm is Σ_{m≤D} E[λ^m] [λ^m] f^n. It stays finite while
n ≪ d^{p/2}, with p the first order with h_p ≠ 0: n ~ d² for symmetric latents. With n = c d^{p/2} it tends to
Σ_j (c r^p h_p²/p!)^j (pj-1)!!/j!.

A latent with heavier tails than a Gaussian's has f = ∞ at every λ > 0. It is rejected unless `norm` is "low-degree".

**Learners.** (Simulated only; the theory says what is possible.)

- `oracle`: knows the spike and compares likelihoods; its error is the smallest possible. Also the best test of degree four,
  which does not know the spike: Σ_μ E_u He_4(x_μ·û). Its mean shift, in null standard deviations, is (‖L^{≤4}‖² - 1)^{1/2}.
- `search`: tries all 2^d spikes on n = γd planted samples and takes the most likely.
- `network`: a two-layer ReLU network of 4d units, Adam on the squared loss, n = c d^{p/2} samples of each class. A fifth of
  them is kept for validation, which chooses the epoch; the test set is fresh.
- `features`: the same with a frozen first layer and a ridge penalty chosen by validation.

After Székely, Bardone, Gerace and Goldt 2023; closed forms and limits are derived here.
"""

from __future__ import annotations

import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from scipy.special import ndtri

from solvable.contract.declarations import Reference, choice, control, data, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.hermite import atoms_with_moments
from solvable.methods.fixed_points.bisection import bisect
from solvable.model import Control, FirstView, Guard, Input, Model, Numerics

from .learners import fit_features, fit_network
from .norms import (
    EDGE,
    Latent,
    critical_snr,
    latent_named,
    latent_with_atoms,
    linear_regime,
    log_pair,
    low_degree_limit,
    refuse_infinite,
)

LATENTS = ("rademacher", "uniform", "laplace", "gaussian", "moments")
BOUNDED = ("rademacher", "uniform", "moments")
ATOMS = ("rademacher", "moments")  # without a density: f grows without bound as β does, and β_* is finite at every γ
SYMMETRIC = ("rademacher", "uniform", "laplace")
DRAWS = 2048  # samples per class that a realisation averages over
REPEATS = 8  # data sets over which a realisation averages the test of degree four
SEARCHED = 16  # largest dimension for exhaustive search


class SpikedCumulant(Model):
    """A spike in the fourth cumulant: likelihood-ratio norms, thresholds, and the samples that each learner needs.

    >>> import solvable as sv
    >>> model = sv.SpikedCumulant(samples=1.0)
    >>> round(float(model.theory().critical_snr), 2)
    10.78
    """

    id = "spiked-cumulant"
    title = "A spike that only higher cumulants show"
    family = "cumulants"
    sentence = (
        "A direction hidden in the fourth cumulant: tests need n ~ d samples, efficient ones and networks n ~ d²."
    )
    method = "likelihood-ratio norms: exact, of low degree, and their limit at n ~ d"
    numerics = Numerics(nodes=128)
    typical_sizes = (25, 50)
    theory_seconds = 1e-3
    simulation_seconds = 0.01
    first_view = FirstView(
        along="pair_overlap", observables=("pair_function",)
    )  # what is measured depends on nothing else
    gradient_accuracy = 1e-5
    check_study = (
        {"over": {"snr": [3.0, 10.0], "pair_overlap": [0.6, 0.9]}, "values": {"scaled_samples": 2.0}, "seeds": 48},
        {"values": {"latent": "uniform", "snr": 10.0, "scaled_samples": 4.0}, "seeds": 48},
    )
    guard = Guard(values={"scaled_samples": 1.0}, size=25, seeds=8)
    inconclusive = 0.4  # for the test of degree four, whose standard deviation is one
    references = (
        Reference(
            "szekely2023learning", "E. Székely, L. Bardone, F. Gerace and S. Goldt",
            "Learning from higher-order statistics, efficiently: hypothesis tests, random features, and neural networks",
            2023, "NeurIPS 2024", arxiv="2312.14922"),
    )  # fmt: skip

    snr: Control = control(
        10.0, low=0.0, low_open=True, high=1e6, typical=(0.3, 100.0), scale="log", symbol=r"\beta",
        meaning="signal-to-noise ratio of the spike, before whitening")  # fmt: skip
    samples: Control = control(
        2.0, low=0.01, high=1e4, typical=(0.3, 30.0), scale="log", symbol=r"\gamma", counts=True,
        meaning="samples per dimension, n/d, where n grows like d")  # fmt: skip
    scaled_samples: Control = control(
        1.0, low=0.0, low_open=True, high=1e3, typical=(0.1, 10.0), scale="log", symbol="c",
        meaning="samples over d^{p/2}, p the latent's first order that is not Gaussian: n/d² for symmetric ones")  # fmt: skip
    pair_overlap: Control = control(
        0.8, low=0.0, high=0.999, typical=(0.0, 0.95), symbol=r"\lambda",
        meaning="overlap of the two spikes at which the pair function is evaluated")  # fmt: skip
    latent: str = choice("rademacher", options=LATENTS, meaning="law of the latent variable")
    norm: str = choice(
        "exact", options=("exact", "low-degree"), meaning="which norms of the likelihood ratio are computed"
    )
    degree: int = choice(
        8, low=3, high=24, symbol="D", meaning="largest degree of the polynomials of the low-degree norm"
    )
    learner: str = choice(
        "oracle", options=("oracle", "search", "network", "features"), meaning="learner that looks for the spike"
    )
    epochs: int = choice(30, high=1000, meaning="passes of the network over its samples")
    moments: Input = data(
        np.array([1.0, 0.0, 1.0, 0.0, 1.5, 0.0]), dims=("order",), symbol=r"m_k",
        meaning="moments E[g^0] … E[g^(2m-1)] of your own latent, mean 0 and variance 1, for latent = 'moments'")  # fmt: skip

    # values and probabilities of the atoms of a latent given by its moments: static, like the law of a named latent
    _atoms: str = eqx.field(default="", init=False, static=True, repr=False)

    main_declared = ("log_norm", "critical_samples", "oracle_error", "separation")
    observables_declared = (
        observable("log_norm", "limit of the logarithm of the norm per dimension, log‖L‖²/d", symbol="R", low=0, simulated=False,
                   when={"norm": "exact", "latent": BOUNDED}),
        observable("dominant_overlap", "overlap of two spikes that dominates the norm: zero below the transition",
                   symbol=r"\lambda^*", low=0, high=1, simulated=False, when={"norm": "exact", "latent": BOUNDED}),
        observable("critical_samples", "samples per dimension from which the norm explodes", symbol=r"\gamma_*", low=0,
                   simulated=False, when={"norm": "exact", "latent": BOUNDED}),
        observable("critical_snr", "signal-to-noise ratio from which the norm explodes", symbol=r"\beta_*", low=0,
                   simulated=False, when={"norm": "exact", "latent": ATOMS}),
        observable("jump", "overlap that dominates from the critical number of samples", symbol=r"\lambda_*", low=0, high=1,
                   simulated=False, when={"norm": "exact", "latent": BOUNDED}),
        observable("low_degree_norm", "norm of the best polynomial of the largest degree, n = c d^{p/2}",
                   symbol=r"\|L^{\leq D}\|^2", low=1, simulated=False),
        observable("pair_function", "mean product of the likelihood ratios of two spikes", symbol="f(\\lambda)", low=1,
                   status="exact", when={"norm": "exact", "latent": BOUNDED, "learner": "oracle"}),
        observable("oracle_error", "error of a test that knows the spike", symbol=r"\varepsilon_B", low=0, high=0.5,
                   status="exact", when={"latent": BOUNDED, "learner": "oracle"}),
        observable("separation", "shift of the best test of degree four, in standard deviations of the null",
                   symbol=r"\Delta_4", when={"latent": SYMMETRIC, "learner": "oracle"}),
        observable("success", "whether exhaustive search finds the spike", low=0, high=1, predicted=False,
                   when={"learner": "search"}),
        observable("search_overlap", "overlap of the most likely spike with the true one", low=0, high=1, predicted=False,
                   when={"learner": "search"}),
        observable("test_error", "error of the learner on fresh samples", symbol=r"\varepsilon_g", low=0, high=1,
                   predicted=False, when={"learner": ("network", "features")}),
        observable("alignment", "largest cosine of a first-layer weight with the spike", symbol=r"\rho", low=0, high=1,
                   predicted=False, when={"learner": ("network", "features")}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.norm == "exact" and self.latent == "laplace":
            refuse_infinite(self.latent)
        if self.latent == "moments" and not isinstance(self.moments, Tracer):
            first = np.asarray(self.moments, float)
            if len(first) < 4 or np.abs(first[:3] - [1, 0, 1]).max() > 1e-9:
                raise InvalidValue(f"moments = {first.tolist()} must begin with 1, 0, 1 and have at least four entries: "
                                   "a latent has mean 0 and variance 1.")  # fmt: skip
            self._atoms = json.dumps([part.tolist() for part in atoms_with_moments(first)])

    def _latent(self) -> Latent:
        if self.latent == "moments":
            values, chances = json.loads(self._atoms)
            return latent_with_atoms(np.array(values), np.array(chances))
        return latent_named(self.latent)

    def transition(self, along: str) -> Array:
        """Samples minus the critical number: the norm explodes where this changes sign."""
        if self.norm != "exact" or self.latent not in BOUNDED:
            return super().transition(along)
        return self.samples - self.theory(only=("critical_samples",)).critical_samples

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        if self.norm == "exact" and self.latent in BOUNDED and {x, y} == {"snr", "samples"}:
            at = self.replace(**{x: values}).theory()
            lines = at.critical_samples if x == "snr" else at.critical_snr if self.latent in ATOMS else None
            return {} if lines is None else {"norm explodes": lines}
        return {}

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        latent, ratio, rest = self._latent(), self.snr / (1 + self.snr), 1 / (1 + self.snr)
        found: dict[str, Array] = {"low_degree_norm": low_degree_limit(latent, ratio, self.scaled_samples, self.degree)}
        if self.norm == "exact" and self.latent in BOUNDED:
            linear = linear_regime(latent, self.snr, self.samples, numerics.nodes)
            found |= {
                "log_norm": linear.rate,
                "dominant_overlap": linear.overlap,
                "critical_samples": linear.critical,
                "jump": linear.jump,
                "residual": linear.residual,
            }
        if self.norm == "exact" and self.latent in ATOMS:
            found["critical_snr"], found["critical_snr_converged"] = critical_snr(
                latent, self.samples, numerics.nodes // 2
            )
        if self.learner != "oracle":
            return found
        if self.norm == "exact" and self.latent in BOUNDED:
            found["pair_function"] = jnp.exp(log_pair(latent, ratio, rest, self.pair_overlap, 1 - self.pair_overlap))
        if self.latent in BOUNDED:
            found["oracle_error"] = _oracle_error(latent, ratio, rest, numerics.nodes)
        if self.latent in SYMMETRIC:
            # n r⁴h₄²/4! E[λ⁴], and d² E[λ⁴] → 3
            found["separation"] = abs(float(latent.hermite[4])) * ratio**2 * jnp.sqrt(self.scaled_samples / 8)
        return found

    # --- simulation -------------------------------------------------------------------------------------------------

    def _planted(self, noise: Array, spike: Array, latent: Latent) -> Array:
        """Samples of the planted class by its definition: a latent along the spike, noise, and whitening.

        `noise` is Gaussian, with one column more than a sample, which is transformed into the latents.
        """
        z, h = noise[:, :-1], noise[:, -1]
        if self.latent == "laplace":
            g = (
                -jnp.sign(h)
                * jnp.log(jax.scipy.special.erfc(jnp.abs(h) * np.float32(math.sqrt(0.5))))
                * np.float32(math.sqrt(0.5))
            )
        elif self.latent == "gaussian":
            g = h
        elif self.latent == "uniform":
            g = EDGE * jax.scipy.special.erf(h * np.float32(math.sqrt(0.5)))
        else:
            steps = jnp.asarray(ndtri(np.cumsum(latent.chances)[:-1]), z.dtype)
            g = jnp.asarray(latent.values, z.dtype)[jnp.sum(h[:, None] > steps[None, :], axis=1)]
        beta = self.snr.astype(z.dtype)
        x = jnp.sqrt(beta) * g[:, None] * spike[None, :] + z
        shrink = beta / (1 + beta + jnp.sqrt(1 + beta))
        return x - shrink * (x @ spike)[:, None] * spike[None, :]

    def _log_ratio(self, s: Array, latent: Latent) -> Array:
        """log ℓ of components along a spike, from the densities."""
        r = (self.snr / (1 + self.snr)).astype(s.dtype)
        null, rest = -(s**2) / 2, 1 - r
        if self.latent == "uniform":
            edge, wide = EDGE * jnp.sqrt(r), jnp.sqrt(rest)
            inside = jax.scipy.special.ndtr((edge - s) / wide) - jax.scipy.special.ndtr((-edge - s) / wide)
            return jnp.log(jnp.maximum(inside, 1e-30) / (2 * edge)) + 0.5 * math.log(2 * math.pi) - null
        centres = jnp.sqrt(r) * jnp.asarray(latent.values, s.dtype)
        apart = -((s[..., None] - centres.reshape((1,) * s.ndim + (-1,))) ** 2) / (2 * rest)
        chances = jnp.asarray(latent.chances, s.dtype).reshape((1,) * s.ndim + (-1,))
        return jax.scipy.special.logsumexp(apart, b=chances, axis=-1) - 0.5 * jnp.log(rest) - null

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        latent = self._latent()
        if self.learner == "oracle":
            return self._as_oracle(key, size, dtype, latent)
        if self.learner == "search":
            return self._by_search(key, size, counts["samples"], dtype, latent)
        spike_key, *keys = jax.random.split(key, 6)
        spike = _signs(jax.random.normal(spike_key, (size,), dtype))
        number = jnp.rint(self.scaled_samples * float(size) ** (self._power() / 2)).astype(jnp.int32)

        def draw(sample_key: Array, rows: int) -> tuple[Array, Array]:
            """Alternating planted and null samples, and their labels."""
            noise, null = jax.random.normal(sample_key, (2, rows // 2, size + 1), dtype)
            x = jnp.stack([self._planted(noise, spike, latent), null[:, :-1]], axis=1).reshape(-1, size)
            return x, jnp.tile(jnp.asarray([1.0, -1.0], dtype), rows // 2)

        fit = fit_network if self.learner == "network" else fit_features
        error, weights = fit(keys, draw, 2 * number, size, self.epochs, dtype)
        cosine = jnp.abs(weights @ spike) / jnp.linalg.norm(weights, axis=1)
        return {"test_error": error.astype(float), "alignment": jnp.minimum(jnp.max(cosine), 1.0).astype(float)}

    def _power(self) -> int:
        return self._latent().exponent or 4

    def _as_oracle(self, key: Array, size: int, dtype: Any, latent: Latent) -> dict[str, Array]:
        draw_key, test_key = jax.random.split(key)
        noise = jax.random.normal(draw_key, (2 * DRAWS + 2, size + 1), dtype)
        spike, other, null = _signs(noise[0, :-1]), noise[1, :-1], noise[DRAWS + 2 :, :-1]
        planted, found = self._planted(noise[2 : DRAWS + 2], spike, latent), {}
        if self.latent in BOUNDED and self.norm == "exact":
            # another direction with the requested overlap
            other = other - (other @ spike) * spike
            lam = self.pair_overlap.astype(dtype)
            second = lam * spike + jnp.sqrt(1 - lam**2) * other / jnp.linalg.norm(other)
            found["pair_function"] = jnp.mean(jnp.exp(self._log_ratio(planted @ second, latent))).astype(float)
        if self.latent in BOUNDED:
            missed = jnp.mean(self._log_ratio(planted @ spike, latent) < 0)
            raised = jnp.mean(self._log_ratio(null @ spike, latent) > 0)
            found["oracle_error"] = 0.5 * (missed + raised).astype(float)
        if self.latent in SYMMETRIC:
            found["separation"] = self._separation(test_key, size, dtype, latent)
        return found

    def _separation(self, key: Array, size: int, dtype: Any, latent: Latent) -> Array:
        """The mean of the test of degree four on n planted samples, over its standard deviation on null ones.

        E_u (x·û)⁴ = (3|x|⁴ - 2Σx_i⁴)/d² and E_u (x·û)² = |x|²/d over the hypercube.
        """
        number = jnp.maximum(jnp.rint(self.scaled_samples * float(size) ** 2), 1.0)
        rows = 256

        def statistic(x: Array) -> Array:
            square = jnp.sum(x**2, axis=1)
            fourth = (3 * square**2 - 2 * jnp.sum(x**4, axis=1)) / size**2
            return fourth - 6 * square / size + 3

        def chunk(i: Array, sums: Array) -> Array:
            noise = jax.random.normal(jax.random.fold_in(key, i), (2 * rows + 1, size + 1), dtype)
            # a new spike for every few samples: the test does not know it, and averages over spikes
            planted = statistic(self._planted(noise[:rows], _signs(noise[-1, :-1]), latent))
            null = statistic(noise[rows : 2 * rows, :-1])
            here = ((i * rows + jnp.arange(rows, dtype=jnp.int32)).astype(float) < REPEATS * number).astype(dtype)
            return sums + jnp.stack([jnp.sum(here * planted), jnp.sum(here * null**2), jnp.sum(here)]).astype(float)

        chunks = jnp.ceil(REPEATS * number / rows).astype(jnp.int32)
        shift, variance, seen = jax.lax.fori_loop(jnp.zeros_like(chunks), chunks, chunk, jnp.zeros(3))
        sign = math.copysign(1.0, float(latent.hermite[4]))
        return sign * jnp.sqrt(number) * (shift / seen) / jnp.sqrt(variance / seen)

    def _by_search(self, key: Array, size: int, count: Any, dtype: Any, latent: Latent) -> dict[str, Array]:
        if size > SEARCHED:
            raise InvalidValue(f"size = {size} is outside [2, {SEARCHED}]: exhaustive search tries all 2^d spikes.")
        spike_key, sample_key = jax.random.split(key)
        spike = _signs(jax.random.normal(spike_key, (size,), dtype))
        x = self._planted(jax.random.normal(sample_key, (count.padded, size + 1), dtype), spike, latent)
        # a spike and its opposite are equivalent unless the latent is skewed
        both = int(latent.name == "moments" and abs(latent.hermite[3]) > 1e-12)
        bits = (np.arange(2 ** (size - 1 + both))[:, None] >> np.arange(size)[None, :]) & 1
        every = jnp.asarray((1 - 2 * bits) / math.sqrt(size), dtype)
        scores = count.mask(dtype) @ self._log_ratio(x @ every.T, latent)
        overlap = every[jnp.argmax(scores)] @ spike
        overlap = overlap if both else jnp.abs(overlap)
        return {
            "success": (overlap > 1 - 0.5 / size).astype(float),
            "search_overlap": jnp.clip(overlap, 0, 1).astype(float),
        }


def _signs(z: Array) -> Array:
    """A spike: the direction of a corner of the hypercube."""
    return jnp.where(z > 0, 1.0, -1.0).astype(z.dtype) / np.asarray(math.sqrt(len(z)), z.dtype)


def _oracle_error(latent: Latent, ratio: Array, rest: Array, nodes: int) -> Array:
    """½ - ½ ∫ (p - φ) over p > φ, p the density along the spike; its ends are found on a grid and refined by bisection."""
    root, wide = jnp.sqrt(ratio), jnp.sqrt(rest)
    values = np.array([-EDGE, EDGE]) if latent.name == "uniform" else latent.values
    near = wide * np.linspace(-10.0, 10.0, nodes)[None, :] + root * values[:, None]
    s = jnp.sort(jnp.concatenate([near.reshape(-1), jnp.linspace(-9.0, 9.0, 2 * nodes + 1)]))

    def excess(x: Array) -> Array:
        """log p - log φ."""
        if latent.name == "uniform":
            low, high = (-EDGE * root - x) / wide, (EDGE * root - x) / wide
            turn = x > 0  # in the tail, use the complements: the difference of two small numbers keeps its digits
            ends = jnp.where(turn, -low, high), jnp.where(turn, -high, low)
            inside = jax.scipy.special.ndtr(ends[0]) - jax.scipy.special.ndtr(ends[1])
            return jnp.log(jnp.maximum(inside, 1e-300) / (2 * EDGE * root)) + x**2 / 2 + 0.5 * math.log(2 * math.pi)
        apart = -((x[None] - (root * latent.values).reshape(-1, *(1,) * x.ndim)) ** 2) / (2 * rest)
        weight = jnp.asarray(latent.chances).reshape(-1, *(1,) * x.ndim)
        return jax.scipy.special.logsumexp(apart, b=weight, axis=0) - 0.5 * jnp.log(rest) + x**2 / 2

    def mass(x: Array) -> Array:
        """P(s < x) - Φ(x)."""
        if latent.name == "uniform":

            def rising(y: Array) -> Array:
                return y * jax.scipy.special.ndtr(y) + jnp.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)

            planted = wide * (rising((x + EDGE * root) / wide) - rising((x - EDGE * root) / wide)) / (2 * EDGE * root)
        else:
            apart = (x[None] - (root * latent.values).reshape(-1, *(1,) * x.ndim)) / wide
            planted = jnp.sum(
                jnp.asarray(latent.chances).reshape(-1, *(1,) * x.ndim) * jax.scipy.special.ndtr(apart), 0
            )
        return planted - jax.scipy.special.ndtr(x)

    above = excess(s) > 0
    turns = above[1:] != above[:-1]

    low, high = bisect(lambda x: (excess(x) > 0) == above[:-1], s[:-1], s[1:], 45)
    ends = mass(jax.lax.stop_gradient(0.5 * (low + high)))  # p = φ at an end, so its derivative does not contribute
    return 0.5 - 0.5 * jnp.sum(jnp.where(turns, jnp.where(above[:-1], ends, -ends), 0.0))
