r"""Two classes differ along u in covariance and along v only in higher cumulants: v is expensive unless u pulls it along.

**Data.** Labels y = ±1, equally likely. For y = -1 inputs are x ~ N(0, 1_d). For y = +1

    x = √β_u λ u + S(√β_v ν v + z),    λ ~ N(0, 1),  ν = ±1,

with orthonormal u and v; S whitens along v, so that the component t = x·v has variance one, t = √r ν + √(1-r) z with
r = β_v/(1+β_v), while s = x·u has variance 1 + β_u. The latents are `independent`, or `correlated`: ν = sign(λ).

**Learner.** A spherical perceptron σ(w·x), |w| = 1, on the correlation loss 1 - yσ(w·x): one fresh sample per step,

    w ← (w + (δ/d) y σ'(a)(x - a w))/|…|,    a = w·x,  time t = steps/d.

**Theory** (after Bardone and Goldt 2024; the flow at finite rate is derived here). With c^σ_k = E[σ(z) He_k(z)] and
c_ij = E_{y=+1}[He_i(s) He_j(t)] = β_u^{i/2} r^{j/2} E[λ^i He_j(ν)],

    E[yσ] = Φ(α_u, α_v) = ½ Σ_{i+j≥1} c_ij c^σ_{i+j} α_u^i α_v^j/(i!j!).

For d → ∞ the overlaps α_u = w·u and α_v = w·v follow

    dα_i/dt = δ [∂_iΦ - α_i (α_u ∂_uΦ + α_v ∂_vΦ)] - ½ δ² α_i E[σ'(a)²],

whose first part is δ E[yσ'(a)(x_i - a α_i)] and whose second is the growth of |w| by orthogonal steps. Here both are averaged
directly, without a series: given the latents, a is Gaussian. Independent latents have c_11 = 0, and near α_v = 0 the
direction v is driven by c_04 α_v³ alone: from α ~ d^{-1/2} this takes n ~ d³ samples. Correlated ones have
c_11 = √(2β_u r/π): α_v is driven by α_u, which grows exponentially, and both are found after n ~ d log d. If σ has a
second-order part and the latents are independent, a neuron converges to u, and the normalisation then pushes v out: it is
never found. The d³ law appears with σ = -He_4/10, which is blind to u, at a rate of order 1/d.

- `activation`: a `polynomial` Σ_k a_k He_k with your `coefficients`, or a named one. u is found if c^σ_2 > 0; v alone
  requires c^σ_4 c_04 > 0, that is c^σ_4 < 0.
- `simulated`: `overlaps` tracks only α_u and α_v, with the same law at every d and the same cost at d = 10⁶ as at 100;
  `weights` tracks all of w.
- `learner = "network"` trains a two-layer ReLU network by online descent on the logistic loss instead, where the classes also
  differ in their mean by √β_m m. Its accuracy and overlaps with m, u, v are measured during training (`networks.py`), also if it
  sees a Gaussian `surrogate` of the positive class with the same mean, or the same mean and covariance.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.averages.functions import FUNCTIONS
from solvable.methods.averages.hermite import coefficients as hermite_coefficients
from solvable.methods.averages.quadrature import bent_trapezoid, hermite, legendre
from solvable.methods.flows.descent import descend, steps_at
from solvable.methods.flows.integrate import integrate
from solvable.methods.training.reduced import Stream, normal, reduced_descent
from solvable.model import Control, Guard, Input, Model, Numerics

from .networks import staircase

SMOOTH = ("tanh", "erf", "sigmoid", "softplus", "gelu", "swish")
PROBES = 4096  # fresh samples on which a loss is measured
REACH = 9.0  # cutoff of |λ|


def _start_field(direction: str) -> Any:
    return control(
        0.05, low=-1.0, high=1.0, low_open=True, high_open=True, typical=(0.0, 0.3), symbol=rf"\alpha_{direction}^0",
        meaning=f"initial overlap with {direction}")  # fmt: skip


class MixedCumulant(Model):
    """A covariance spike and a cumulant spike with independent or correlated latents: how soon the cumulant spike is found.

    >>> import solvable as sv
    >>> model = sv.MixedCumulant(times=[0.0, 40.0])
    >>> correlated, independent = (model.replace(latents=x).theory() for x in ("correlated", "independent"))
    >>> round(float(correlated.overlap_v[1]), 3), round(float(independent.overlap_v[1]), 3)
    (0.439, 0.021)
    """

    id = "mixed-cumulant"
    title = "A staircase of cumulants"
    family = "cumulants"
    revision = 2
    sentence = "Directions in covariance and in higher cumulants: correlated latents make the expensive one cheap."
    method = "flow of two overlaps at finite learning rate; Hermite coefficients of the classes"
    numerics = Numerics(nodes=64, rtol=1e-12)
    converges_along = "time"
    accuracy = 1e-7
    gradient_accuracy = 1e-5
    batch_accuracy = 1e-10  # rounding errors affect adaptive steps
    typical_sizes = (1000, 4000, 16000)
    theory_seconds = 0.02
    simulation_seconds = 0.15
    simulation_growth = 1.0
    check_study = (
        {"values": {"times": [0.0, 10.0, 20.0, 30.0]}, "over": {"latents": ["correlated", "independent"]},
         "sizes": (2000, 8000, 32000), "seeds": 24},
        {"values": {"activation": "relu", "rate": 0.3, "times": [0.0, 10.0, 30.0]}, "sizes": (4000, 16000), "seeds": 24},
    )  # fmt: skip
    guard = Guard(values={"times": [0.0, 5.0, 10.0]}, size=2000, seeds=8)
    references = (
        Reference(
            "bardone2024sliding", "L. Bardone and S. Goldt",
            "Sliding down the stairs: how correlated latent variables accelerate learning with neural networks", 2024,
            "ICML", arxiv="2404.08602"),
    )  # fmt: skip

    snr_u: Control = control(
        2.0, low=0.0, high=1e3, typical=(0.5, 10.0), symbol=r"\beta_u", meaning="strength of the covariance direction"
    )
    snr_v: Control = control(
        8.0, low=0.0, high=1e4, typical=(0.5, 20.0), symbol=r"\beta_v", meaning="strength of the cumulant direction"
    )
    rate: Control = control(
        0.1,
        low=0.0,
        low_open=True,
        high=10.0,
        typical=(0.02, 0.3),
        scale="log",
        symbol=r"\delta",
        meaning="learning rate",
    )
    start_u: Control = _start_field("u")
    start_v: Control = _start_field("v")
    snr_m: Control = control(
        1.0,
        low=0.0,
        high=1e3,
        typical=(0.0, 4.0),
        symbol=r"\beta_m",
        meaning="strength of the mean (networks only)",
    )
    latents: str = choice("correlated", options=("correlated", "independent"), meaning="joint law of the two latents")
    activation: str = choice("polynomial", options=("polynomial", "relu", *SMOOTH), meaning="activation σ")
    learner: str = choice(
        "perceptron", options=("perceptron", "network"), meaning="a spherical perceptron, or a two-layer network"
    )
    simulated: str = choice(
        "overlaps",
        options=("overlaps", "weights"),
        meaning="what a simulated perceptron tracks: its overlaps, or all weights",
    )
    surrogate: str = choice(
        "none",
        options=("none", "mean", "covariance"),
        meaning="Gaussian class on which a network is trained: with the true mean, or the true mean and covariance",
    )
    units: int = choice(16, high=4096, symbol="K", meaning="hidden units of the network")
    times: Input = input(
        np.linspace(0.0, 40.0, 9),
        dims=("time",),
        low=0.0,
        increasing=True,
        symbol="t",
        meaning="measurement times, in samples per dimension since the start",
    )
    coefficients: Input = input(
        np.array([0.0, 0.0, 0.5, 0.0, -0.02]), dims=("order",), symbol="a_k",
        meaning="a_0, a_1, … of a polynomial activation Σ a_k He_k")  # fmt: skip

    dimensions_declared = (dimension("time", "training time, n/d", symbol="t", kind="time"),)
    main_declared = ("overlap_v", "overlap_u", "test_loss")
    observables_declared = (
        observable("overlap_v", "overlap with the cumulant direction", symbol=r"\alpha_v", dims=("time",), low=-1, high=1,
                   when={"learner": "perceptron"}),
        observable("overlap_u", "overlap with the covariance direction", symbol=r"\alpha_u", dims=("time",), low=-1, high=1,
                   when={"learner": "perceptron"}),
        observable("test_loss", "correlation loss 1 - E[yσ(w·x)]", symbol=r"\mathcal{L}", dims=("time",),
                   when={"learner": "perceptron"}),
        observable("mixing", "c_11: how strongly the directions drive each other", symbol="c_{11}", simulated=False),
        observable("kurtosis", "c_04: fourth-order signal of the cumulant direction alone", symbol="c_{04}", simulated=False),
        observable("growth", "rate at which small overlaps grow", symbol=r"\kappa", simulated=False),
        observable("accuracy", "accuracy of a network on fresh samples of the true classes", dims=("time",), low=0, high=1,
                   predicted=False, when={"learner": "network"}),
        observable("aligned_m", "largest cosine of a first-layer weight with the mean", dims=("time",), low=0, high=1,
                   predicted=False, when={"learner": "network"}),
        observable("aligned_u", "largest cosine with the covariance direction", dims=("time",), low=0, high=1,
                   predicted=False, when={"learner": "network"}),
        observable("aligned_v", "largest cosine with the cumulant direction", dims=("time",), low=0, high=1,
                   predicted=False, when={"learner": "network"}),
    )  # fmt: skip

    def validate(self) -> None:
        if (
            self.activation != "polynomial"
            and self.coefficients is not None
            and "coefficients" not in self._from_defaults
        ):
            raise InvalidValue(f"coefficients are for activation = 'polynomial', but activation = {self.activation!r}.")
        starts = [np.asarray(v) for v in (self.start_u, self.start_v) if not isinstance(v, Tracer)]
        if len(starts) == 2 and np.any(starts[0] ** 2 + starts[1] ** 2 >= 1):
            raise InvalidValue("start_u and start_v are overlaps of one unit vector with two orthogonal ones: "
                               "their squares must add up to less than 1.")  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"time": np.asarray(self.times)}

    # --- theory -----------------------------------------------------------------------------------------------------

    @property
    def _ratio(self) -> Array:
        return self.snr_v / (1 + self.snr_v)

    def activate(self, a: Array) -> Array:
        """σ."""
        if self.activation != "polynomial":
            return FUNCTIONS[self.activation].call(a)
        return _hermite_sum(self.coefficients.astype(a.dtype), a)

    def slope(self, a: Array) -> Array:
        """σ'."""
        if self.activation == "relu":
            return (a > 0).astype(a.dtype)
        if self.activation == "polynomial":
            a_k = self.coefficients.astype(a.dtype)
            # He_k' = k He_{k-1}
            return _hermite_sum(jnp.arange(1, len(a_k)).astype(a.dtype) * a_k[1:], a)
        return jax.jvp(FUNCTIONS[self.activation].call, (a,), (jnp.ones_like(a),))[1]

    def _inner(self, mean: Array, width: Array, nodes: int) -> tuple[Array, Array, Array, Array]:
        """E σ', E zσ', E σ'² and E σ of a = mean + width·z."""
        if self.activation == "relu":
            x = mean / width
            density, above = jnp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), jax.scipy.special.ndtr(x)
            return above, density, above, mean * above + width * density
        # exact for a polynomial; the others have poles near the real axis
        rule = hermite(len(self.coefficients)) if self.activation == "polynomial" else bent_trapezoid(nodes)
        z, w = (part.reshape(-1, *(1,) * mean.ndim) for part in rule)
        a = mean[None] + width * z
        slope = self.slope(a)
        return (
            jnp.sum(w * slope, 0),
            jnp.sum(w * z * slope, 0),
            jnp.sum(w * slope**2, 0),
            jnp.sum(w * self.activate(a), 0),
        )

    def _latents(self, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """λ, ν and their weights: |λ| on the half line, where the integrand is smooth, and signs."""
        u, w = legendre(nodes)
        size, weight = REACH * u, REACH * w * 2 * np.exp(-((REACH * u) ** 2) / 2) / math.sqrt(2 * math.pi)
        signs = [(1, 1), (-1, -1)] if self.latents == "correlated" else [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        lam, nu = (np.concatenate([s[i] * (size if i == 0 else np.ones(nodes)) for s in signs]) for i in (0, 1))
        return lam, nu, np.tile(weight, len(signs)) / len(signs)

    def _averages(self, alpha: Array, nodes: int) -> tuple[Array, Array, Array]:
        """E[yσ'(a)(x_i - a α_i)] for both directions, E σ'² and E yσ, over both classes."""
        lam, nu, weight = (jnp.asarray(x) for x in self._latents(nodes))
        r, root = self._ratio, jnp.sqrt(self.snr_u)
        along, across = root * lam, jnp.sqrt(r) * nu
        mean, width = alpha[0] * along + alpha[1] * across, jnp.sqrt(1 - alpha[1] ** 2 * r)
        first, second, square, value = self._inner(mean, width, nodes)

        def over(x: Array) -> Array:
            return jnp.sum(weight * x)

        # the noise of s and t is correlated with that of a: the covariances are α_u and α_v(1-r)
        s = over(along * first + alpha[0] / width * second)
        t = over(across * first + alpha[1] * (1 - r) / width * second)
        whole = over(mean * first + width * second)
        _, _, null_square, null = self._inner(jnp.zeros(()), jnp.ones(()), nodes)
        # the other class does not contribute: E σ'(a)(x_i - aα_i) = 0 for Gaussian x
        drift = 0.5 * (jnp.stack([s, t]) - alpha * whole)
        return drift, 0.5 * (over(square) + null_square), 0.5 * (over(value) - null)

    def flow(self, alpha: Array, nodes: int) -> Array:
        """dα/dt."""
        drift, square, _ = self._averages(alpha, nodes)
        return self.rate * drift - 0.5 * self.rate**2 * square * alpha

    def point(self, numerics: Numerics) -> dict[str, Array]:
        r, correlated = self._ratio, self.latents == "correlated"
        mixing = jnp.sqrt(2 * self.snr_u * r / math.pi) if correlated else jnp.zeros_like(r)
        curve = self._curvature()
        # the linear flow δ c^σ_2/2 (β_u c_11; c_11 0) - δ²/2 E[σ'(z)²] has its largest eigenvalue here
        leading = 0.5 * (self.snr_u + jnp.sqrt(self.snr_u**2 + 4 * mixing**2))
        noise = self._inner(jnp.zeros(()), jnp.ones(()), numerics.nodes)[2]
        found = {
            "mixing": mixing,
            "kurtosis": -2 * r**2,
            "growth": 0.5 * self.rate * curve * leading - 0.5 * self.rate**2 * noise,
        }
        if self.learner == "network":
            return found
        start = jnp.stack([self.start_u, self.start_v])
        run = integrate(
            lambda t, y, args: self.flow(y, numerics.nodes),
            start,
            self.times,
            rtol=numerics.rtol,
            atol=1e-13,
            max_steps=2000,
        )
        gained = jax.vmap(lambda y: self._averages(y, numerics.nodes)[2])(run.values)
        return found | {
            "overlap_u": run.values[:, 0],
            "overlap_v": run.values[:, 1],
            "test_loss": 1 - gained,
            "converged": run.reached,
        }

    def _curvature(self) -> Array:
        """c^σ_2."""
        if self.activation == "polynomial":
            return 2 * self.coefficients[2] if len(self.coefficients) > 2 else jnp.zeros(())
        known = FUNCTIONS[self.activation]
        return hermite_coefficients(known.call, 2, known.kinks)[2]

    # --- simulation -------------------------------------------------------------------------------------------------

    def components(self, bits: Array) -> tuple[Array, Array]:
        """s and t of a sample, and its label, from three rows of random bits."""
        positive, sign = (bits[0] & 1) == 0, jnp.where((bits[1] & 1) == 0, 1.0, -1.0).astype(jnp.float32)
        lam, z_u, z_v = normal(bits[0]), normal(bits[1]), normal(bits[2])
        nu = jnp.where(lam > 0, 1.0, -1.0).astype(jnp.float32) if self.latents == "correlated" else sign
        beta_u, beta_v = self.snr_u.astype(jnp.float32), self.snr_v.astype(jnp.float32)
        s = jnp.where(positive, jnp.sqrt(beta_u) * lam, 0.0) + z_u
        t = jnp.where(positive, (jnp.sqrt(beta_v) * nu + z_v) / jnp.sqrt(1 + beta_v), z_v)
        return jnp.stack([s, t]), jnp.where(positive, 1.0, -1.0).astype(jnp.float32)

    def stream(self, size: int) -> Stream:
        """Samples and update of the perceptron, for `reduced_descent` with any number of lanes."""
        step = self.rate.astype(jnp.float32) / np.float32(size)
        return Stream(self.components, lambda a, square, y: step * y * self.slope(a), size, 3, 2)

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        if self.learner == "network":
            return staircase(self, key, size, dtype)
        start = jnp.stack([self.start_u, self.start_v]).astype(dtype)
        sample_key, probe_key, weight_key = jax.random.split(key, 3)
        ends = steps_at(self.times, size)
        if self.simulated == "overlaps":
            path = reduced_descent(self.stream(size), sample_key, start, ends)
        else:
            path = self._all_weights(sample_key, weight_key, start, ends, size, dtype)
        # the loss, on fresh samples
        bits = jax.random.bits(probe_key, (4, PROBES), jnp.uint32)
        fields, label = self.components(bits[:3])

        def loss(alpha: Array) -> Array:
            a = alpha @ fields + jnp.sqrt(jnp.maximum(1 - alpha @ alpha, 0.0)) * normal(bits[3])
            return 1 - jnp.mean(label * self.activate(a))

        return {
            "overlap_u": path[:, 0].astype(float),
            "overlap_v": path[:, 1].astype(float),
            "test_loss": jax.vmap(loss)(path).astype(float),
        }

    def _all_weights(self, key: Array, weight_key: Array, start: Array, ends: Array, size: int, dtype: Any) -> Array:
        """Overlaps of a descent of all weights; u and v are the first two axes."""
        rest = jax.random.normal(weight_key, (size - 2,), dtype)
        rest = rest / jnp.linalg.norm(rest) * jnp.sqrt(1 - start @ start)
        step_size = self.rate.astype(dtype) / np.asarray(size, dtype)

        def step(number: Array, w: Array) -> Array:
            bits = jax.random.bits(jax.random.fold_in(key, number), (size + 1,), jnp.uint32)
            fields, y = self.components(bits[:3])
            x = jnp.concatenate([fields, normal(bits[3:])])
            a = w @ x
            w = w + step_size * y * self.slope(a) * (x - a * w)
            return w / jnp.linalg.norm(w)

        return descend(step, jnp.concatenate([start, rest]), ends, lambda w: w[:2]).path


def _hermite_sum(weights: Array, x: Array) -> Array:
    """Σ_k weights_k He_k(x)."""
    before, now = jnp.zeros_like(x), jnp.ones_like(x)
    total = weights[0] * now
    for k in range(1, len(weights)):
        before, now = now, x * now - (k - 1) * before
        total = total + weights[k] * now
    return total
