r"""Pruning by magnitude on inputs with and without higher cumulants: kurtosis, localisation and the weights that survive.

**Data.** A Gaussian process z on a ring of `size` sites, with correlations C = exp(−r/ξ) (`exponential`) or exp(−r²/ξ²)
(`smooth`) at distance r. Inputs are x = erf(g z)/Z with E x² = 1 (*non-linear*), or Gaussian with the same
covariance, E x x′ = asin(2g²C/(1 + 2g²)) / asin(2g²/(1 + 2g²)) (*gaussian*). The task is to tell ξ₁ from ξ₂.

**Learner.** K ReLU units on preactivations h_k = w_k·x + b_k and a logistic readout, Adam on fresh inputs. After every
round a share of the first layer's remaining weights is removed, the smallest ones or random ones; the others are reset
to their initial values and trained again.

**Theory.** No closed theory. Gaussian inputs have Gaussian preactivations within a class, whatever the masks, hence
excess kurtosis zero; the measured mean of its modulus has a floor of (2/π · 24/n)^½ at n inputs.

**Simulation.** At the end of every round, on fresh inputs, within each class, averaged over both classes and over units
that have weights: the excess kurtosis κ_k of h_k; the localisation |Σ_j w_j² e^{2πij/D}|/Σ_j w_j² and the participation
Σ w⁴/(Σ w²)²; the *cavity effect* of a weight, |κ_k| minus the same without it, averaged over the weights that the next
pruning keeps and over those that it removes, in units with at least two weights. Random pruning, which also leaves fewer
and sparser weights, is the baseline for pruning by magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.model import Control, Count, Guard, Model, Reference, choice, control, dimension, observable

from .._pruning import Network, forward, train_and_prune


def ring_correlation(sites: int, length: Array, kind: str) -> Array:
    """Correlation of z at each distance on the ring; negative eigenvalues (of a wide smooth correlation) are removed.

    >>> ring_correlation(6, jnp.asarray(2.0), "exponential").round(3).tolist()
    [1.0, 0.607, 0.368, 0.223, 0.368, 0.607]
    """
    steps = np.minimum(np.arange(sites), sites - np.arange(sites))
    distance = jnp.asarray(steps, length.dtype) / length
    wanted = jnp.exp(-distance) if kind == "exponential" else jnp.exp(-(distance**2))
    possible = jnp.fft.irfft(jnp.maximum(jnp.fft.rfft(wanted).real, 0), sites)
    return possible / possible[0]


def circulant_root(correlation: Array) -> Array:
    """The symmetric square root of a covariance that depends on the distance on a ring alone."""
    sites = len(correlation)
    row = jnp.fft.irfft(jnp.sqrt(jnp.maximum(jnp.fft.rfft(correlation).real, 0)), sites)
    return row[(np.arange(sites)[:, None] - np.arange(sites)) % sites]


def erf_covariance(correlation: Array, gain: Array) -> Array:
    """Covariance of erf(g z)/Z given that of z, E z² = 1."""
    most = 2 * gain**2 / (1 + 2 * gain**2)
    return jnp.arcsin(most * correlation) / jnp.arcsin(most)


def excess_kurtosis(second: Array, fourth: Array) -> Array:
    """Excess kurtosis from the second and fourth moments."""
    return fourth / second**2 - 3


def cavity_effects(weights: Array, x: Array) -> tuple[Array, Array]:
    """Excess kurtosis of every h_k = w_k·x, and by how much its modulus would shrink without each weight."""
    x = x - x.mean(axis=0, keepdims=True)
    n, h = len(x), x @ weights.T
    second, fourth = jnp.mean(h**2, axis=0)[:, None], jnp.mean(h**4, axis=0)[:, None]
    w = weights
    without2 = second - 2 * w * (h.T @ x) / n + w**2 * jnp.mean(x**2, axis=0, keepdims=True)
    without4 = (
        fourth - 4 * w * ((h**3).T @ x) / n + 6 * w**2 * ((h**2).T @ x**2) / n - 4 * w**3 * (h.T @ x**3) / n
        + w**4 * jnp.mean(x**4, axis=0, keepdims=True)
    )  # fmt: skip
    usable = without2 > 1e-5 * second  # false for a unit with a single weight
    there = second > 0
    whole = jnp.where(there, excess_kurtosis(jnp.where(there, second, 1), fourth), 0)
    left = jnp.where(usable, excess_kurtosis(jnp.where(usable, without2, 1), without4), 0)
    return whole[:, 0], jnp.abs(whole) - jnp.abs(left)


def mean_over(values: Array, mask: Array) -> Array:
    """Mean where the mask is one; NaN if it is one nowhere."""
    count = jnp.sum(mask)
    return jnp.where(count > 0, jnp.sum(values * mask) / jnp.maximum(count, 1), jnp.nan)


class ReceptiveFields(Model):
    """Pruning by magnitude on non-linear and Gaussian processes of equal covariance, round by round.

    >>> import solvable as sv
    >>> gaussian = sv.ReceptiveFields(inputs="gaussian", rounds=2, steps=20).simulate(seed=0, size=16)
    >>> bool((abs(gaussian.kurtosis) < 0.1).all())
    True
    """

    id = "receptive-fields"
    title = "Receptive fields from pruning by magnitude"
    family = "cumulants"
    sentence = (
        "Iterative magnitude pruning on inputs with and without higher cumulants: kurtosis and localised filters."
    )
    method = "no closed theory; compared with Gaussian inputs of equal covariance and random pruning"
    typical_sizes = (20, 40, 80)
    simulation_seconds = 0.9
    simulation_growth = 1.0
    guard = Guard(values={"rounds": 2, "steps": 10, "batch": 16, "tested": 200, "units": 4}, size=12, seeds=2)
    arms_declared = MappingProxyType(
        {
            "non-linear": {"inputs": "non-linear", "pruning": "magnitude"},
            "gaussian": {"inputs": "gaussian", "pruning": "magnitude"},
            "random pruning": {"inputs": "non-linear", "pruning": "random"},
            "smooth": {"inputs": "non-linear", "pruning": "magnitude", "covariance": "smooth"},
            "smooth gaussian": {"inputs": "gaussian", "pruning": "magnitude", "covariance": "smooth"},
        }
    )
    references = (
        Reference(
            "redman2024iterative", "W. T. Redman, Z. Wang, A. Ingrosso and S. Goldt", "On how iterative magnitude pruning "
            "discovers local receptive fields in fully connected neural networks", 2024, arxiv="2412.06545"),
        Reference(
            "ingrosso2022data", "A. Ingrosso and S. Goldt", "Data-driven emergence of convolutional structure in neural "
            "networks", 2022, "PNAS 119, e2201854119", arxiv="2202.00565"),
    )  # fmt: skip

    gain: Control = control(
        3.0, low=0.0, low_open=True, high=100.0, typical=(0.1, 10.0), scale="log", symbol="g",
        meaning="gain of the error function that makes the inputs: near 0 they are Gaussian")  # fmt: skip
    short: Control = control(
        4.0, low=0.0, low_open=True, high=1000.0, typical=(1.0, 8.0), symbol=r"\xi_1",
        meaning="correlation length of the first class, in sites")  # fmt: skip
    long: Control = control(
        8.0, low=0.0, low_open=True, high=1000.0, typical=(2.0, 16.0), symbol=r"\xi_2",
        meaning="correlation length of the second class, in sites")  # fmt: skip
    share: Control = control(
        0.25, low=0.0, high=1.0, high_open=True, typical=(0.1, 0.5), symbol="p",
        meaning="fraction of the remaining weights removed in every round")  # fmt: skip
    rate: Control = control(
        0.01, low=0.0, low_open=True, high=1.0, typical=(1e-3, 3e-2), scale="log", symbol=r"\eta",
        meaning="learning rate of Adam")  # fmt: skip
    inputs: str = choice(
        "non-linear",
        options=("non-linear", "gaussian"),
        meaning="an error function of a Gaussian process, or Gaussian with the same covariance",
    )
    covariance: str = choice(
        "exponential", options=("exponential", "smooth"), meaning="how correlations decay with distance"
    )
    pruning: str = choice("magnitude", options=("magnitude", "random"), meaning="which weights are removed")
    units: int = choice(12, high=10_000, symbol="K", meaning="hidden units")
    rounds: int = choice(9, high=100, meaning="rounds of training, each after the first preceded by pruning")
    steps: int = choice(500, high=1_000_000, meaning="steps of Adam in every round")
    batch: int = choice(128, low=2, high=100_000, meaning="fresh inputs per step, half of each class (rounded down)")
    tested: int = choice(4000, low=2, high=10_000_000, symbol="n", meaning="fresh inputs of each class to measure on")

    dimensions_declared = (dimension("round", "rounds of pruning before the training", kind="time"),)
    main_declared = ("kurtosis", "localisation", "accuracy", "density")
    observables_declared = (
        observable("density", "fraction of first-layer weights that are left", dims=("round",), low=0, high=1,
                   predicted=False),
        observable("accuracy", "fraction of fresh inputs classified correctly", dims=("round",), low=0, high=1,
                   predicted=False),
        observable("kurtosis", "mean excess kurtosis of preactivations", symbol=r"\kappa", dims=("round",), low=-2,
                   predicted=False),
        observable("non_gaussianity", "mean modulus of the excess kurtosis", symbol=r"|\kappa|", dims=("round",), low=0,
                   predicted=False),
        observable("localisation", "length of the mean phase on the ring, weighted by squared weights", dims=("round",),
                   low=0, high=1, predicted=False),
        observable("participation", "inverse participation ratio of the weights of a unit", dims=("round",), low=0, high=1,
                   predicted=False),
        observable("kept_effect", "mean cavity effect of the weights that the next pruning keeps", dims=("round",),
                   predicted=False),
        observable("pruned_effect", "mean cavity effect of the weights that it removes", dims=("round",), predicted=False),
        observable("live", "fraction of hidden units that have weights", dims=("round",), low=0, high=1, predicted=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"round": np.arange(self.rounds)}

    def sampler(self, size: int, dtype: Any) -> Any:
        """`shape(normal)`: inputs of both classes from normal numbers, class × input × site."""
        gain = self.gain.astype(dtype)
        z = jnp.stack([ring_correlation(size, v.astype(dtype), self.covariance) for v in (self.short, self.long)])
        shown = z if self.inputs == "non-linear" else erf_covariance(z, gain)
        roots = jnp.stack([circulant_root(c) for c in shown])
        scale = jnp.sqrt(2 / jnp.pi * jnp.arcsin(2 * gain**2 / (1 + 2 * gain**2)))

        def shape(normal: Array) -> Array:
            gaussian = jnp.einsum("cni,cij->cnj", normal, roots)
            return jax.lax.erf(gain * gaussian) / scale if self.inputs == "non-linear" else gaussian

        return shape

    def measure(self, network: Network, masks: Any, following: Any, x: Array) -> dict[str, Array]:
        """All observables of a trained network, on inputs x of both classes."""
        w, mask, kept = network["first"], masks["first"], following["first"]
        live = (mask.sum(axis=1) > 0).astype(w.dtype)
        several = jnp.where(mask.sum(axis=1, keepdims=True) > 1, mask, 0)
        kappa, effect = jax.vmap(lambda x: cavity_effects(w, x))(x)
        squares = w**2 / jnp.maximum(jnp.sum(w**2, axis=1, keepdims=True), 1e-30)
        phase = 2 * jnp.pi * jnp.arange(w.shape[1], dtype=w.dtype) / w.shape[1]
        local = jnp.hypot(squares @ jnp.cos(phase), squares @ jnp.sin(phase))
        right = jnp.mean((forward(network, x) > 0) == jnp.array([[False], [True]]), dtype=w.dtype)
        return {
            "density": mask.mean(),
            "accuracy": right,
            "kurtosis": mean_over(kappa.mean(axis=0), live),
            "non_gaussianity": mean_over(jnp.abs(kappa).mean(axis=0), live),
            "localisation": jnp.minimum(mean_over(local, live), 1),
            "participation": jnp.minimum(mean_over(jnp.sum(squares**2, axis=1), live), 1),
            "kept_effect": mean_over(effect.mean(axis=0), several * kept),
            "pruned_effect": mean_over(effect.mean(axis=0), several * (1 - kept)),
            "live": live.mean(),
        }

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        to_start, to_learn = jax.random.split(key)
        shape = self.sampler(size, dtype)
        # One call for all random numbers before training, whose compilation takes longer than anything else.
        parts = np.cumsum([self.units * size, self.units])
        normal = jax.random.normal(to_start, (parts[-1] + 2 * self.tested * size,), dtype)
        first, second, tested = jnp.split(normal, parts)
        start = {
            "first": np.sqrt(2 / size).astype(dtype) * first.reshape(self.units, size),
            "bias": jnp.zeros(self.units, dtype),
            "second": second / np.sqrt(self.units).astype(dtype),
            "offset": jnp.zeros((), dtype),
        }
        sign = jnp.array([[1.0], [-1.0]], dtype)  # the long-range class is positive

        def batch(key):
            return shape(jax.random.normal(key, (2, self.batch // 2, size), dtype))

        def loss(network, x):
            return jnp.mean(jax.nn.softplus(sign * forward(network, x)))

        x = shape(tested.reshape(2, self.tested, size))
        return train_and_prune(
            batch, loss, start, ("first",), lambda w, now, then: self.measure(w, now, then, x), to_learn, rounds=self.rounds,
            steps=self.steps, rate=self.rate.astype(dtype), share=self.share.astype(dtype), random=self.pruning == "random",
        )  # fmt: skip
