r"""Chains of models in which each generation is fitted to samples of the previous one.

**Data.** Generation 1 is fitted to n real samples, generation k + 1 to n samples of which some come from generation k (`data`):

- `replace`: all of them;
- `mix`: a fraction 1 - m; the others are fresh real samples. `fresh_rows` says whether each sample is fresh with probability m
  (*random*) or exactly the whole number nearest to mn are (*fixed*);
- `accumulate`: all of them, and the samples of all earlier generations, the real ones included, stay in the training set;
- `accumulate-same-inputs`: the same, with the inputs of a regression drawn once for all generations.

**Learner** (`chain`), the best fit to its samples:

- *categorical*: frequencies p of categories with true probabilities π_g (`shares`);
- *gaussian*: the covariance C of d centred directions, real samples being N(0, 1) and synthetic ones N(0, τC);
- *regression*: least squares θ for labels θ*·x + noise of variance σ², x ~ N(0, 1_d). Synthetic labels are θ_k·x + noise.

**Groups.** A category g is a group. In the other chains each group has its own model and n_g = π_g n samples, rounded.

**Theory**, exact at finite n (derived here; the chains are those of Wright and Fisher, of Shumailov et al. 2023 and of
Dohmatob et al. 2024). Let p be the number of synthetic samples among n, a = 1 - m its mean over n.

*categorical.* V_k = Var p_g from V_0 = 0, with B = <p(p-1)>/n² and π' = π(1-π),

    V_{k+1} = B V_k + π'/n,      accumulated:  V_k = V_{k-1} + (π' - V_{k-1})/(n k²).

A category is lost once its count is zero. The count of one category is a Markov chain on 0..n with binomial transitions, whose
matrix gives the probability; accumulated samples are never lost, so that this is (1-π)^n.

*gaussian.* The moments <tr C>, <tr C²>, <(tr C)²> obey linear recursions (`_batch_moments`). With `replace`,

    <log det C_k> = k [Σ_{i<d} ψ((n-i)/2) + d log(2τ/n)],

negative at τ = 1, although <C> = 1: the covariance vanishes almost surely while its mean does not change.

*regression.* With v = σ²d/(n-d-1) the excess loss E_k = <|θ_k - θ*|²> is

    replace  E_k = kv,      accumulate  E_k = σ²d Σ_{i≤k} 1/(i(in-d-1)),      same inputs  E_k = v Σ_{i≤k} 1/i²,
    mix  E_{k+1} = ρE_k + v,      ρ = <tr H_s H⁻² H_s>/d = α + β + βP/d,      P = <tr H tr H⁻¹> = d(nd-2)/(n-d-1).

H_s is the part of H = XᵀX that synthetic rows contribute. H^{-1/2} H_s H^{-1/2} is a matrix-variate beta variable, independent of
H, whose second moments αδ_{ij}δ_{kl} + β(δ_{ik}δ_{jl} + δ_{il}δ_{jk}) follow from zonal polynomials of degree two.

**Simulation.** Draws samples, fits, and draws from the fit, generation after generation. The size is the number of independent
chains over which a realisation averages; the theory holds at every size.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import digamma, gammaln, ndtr
from jaxtyping import Array

from solvable.contract.declarations import Reference, choice, control, dimension, input, observable
from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import cholesky_small, solve_small
from solvable.model import Control, Guard, Input, Model, Numerics

CHAINS = ("categorical", "gaussian", "regression")
DATA = ("replace", "mix", "accumulate", "accumulate-same-inputs")
MOST_COUNTS = 2000
"""Samples of a categorical chain, whose theory needs a matrix of this size."""
TINY = 1e-300


class Synthetic(NamedTuple):
    """Moments <p>, <p(p-1)> of the number of synthetic samples among n."""

    mean: Array
    pairs: Array


class Moments(NamedTuple):
    """<tr C>, <tr C²>, <(tr C)²>."""

    trace: Array
    square: Array
    trace_square: Array


def _default_shares(model: Any) -> np.ndarray:
    return np.array([0.05, 0.3] if model.chain == "categorical" else [0.3, 0.7])


class ModelCollapse(Model):
    """Generations of categorical, Gaussian or regression models, each trained on samples of the previous one.

    >>> import solvable as sv
    >>> outcome = sv.ModelCollapse(data="replace").theory()  # shares 0.05 and 0.3 of 50 samples
    >>> [round(float(p), 4) for p in outcome.lost[:, -1]]
    [0.7785, 0.1894]
    """

    id = "model-collapse"
    title = "Collapse of models trained on models"
    family = "generative"
    sentence = (
        "Models trained on samples of earlier models: lost categories, vanishing variance, growing loss, and remedies."
    )
    method = "exact moments and transition matrices at finite sample size"
    theory_lanes = 16
    accuracy = 1e-9
    typical_sizes = (200, 800, 3200)
    simulation_seconds = 0.08
    simulation_growth = 1.0
    guard = Guard(size=200, seeds=8)
    check_study = (
        {"over": {"data": ["replace", "mix", "accumulate"]}, "sizes": (400, 1600)},
        {"values": {"chain": "gaussian", "directions": 3, "generations": 6, "shares": [0.4, 0.6], "fresh_rows": "fixed"},
         "over": {"data": ["replace", "mix", "accumulate"], "temperature": [0.9, 1.0]}, "sizes": (100, 400)},
        {"values": {"chain": "regression", "directions": 5, "generations": 6, "fresh": 0.25},
         "over": {"data": list(DATA)}, "sizes": (100, 400)},
    )  # fmt: skip
    references = (
        Reference(
            "jarvis2026position", "D. Jarvis, R. Klein, B. Rosman, S. James and S. Sarao Mannelli", "Position: the Stochastic "
            "Parrot in the Coal Mine. Model Collapse is a Threat to Low-Resource Communities", 2026, arxiv="2605.04127"),
        Reference(
            "shumailov2023curse", "I. Shumailov, Z. Shumaylov, Y. Zhao, Y. Gal, N. Papernot and R. Anderson", "The Curse of "
            "Recursion: Training on Generated Data Makes Models Forget", 2023, arxiv="2305.17493"),
        Reference(
            "dohmatob2024regression", "E. Dohmatob, Y. Feng and J. Kempe", "Model Collapse Demystified: The Case of Regression",
            2024, "NeurIPS 37", arxiv="2402.07712"),
        Reference(
            "gerstgrasser2024inevitable", "M. Gerstgrasser, R. Schaeffer, A. Dey, R. Rafailov, H. Sleight, J. Hughes, "
            "T. Korbak, R. Agrawal, D. Pai, A. Gromov, D. A. Roberts, D. Yang, D. L. Donoho and S. Koyejo", "Is Model Collapse "
            "Inevitable? Breaking the Curse of Recursion by Accumulating Real and Synthetic Data", 2024, arxiv="2404.01413"),
    )  # fmt: skip

    fresh: Control = control(
        0.05, low=0.0, high=1.0, symbol="m", meaning="fraction of fresh real samples in every generation (mix)")  # fmt: skip
    noise: Control = control(
        0.5, low=0.0, high=1e6, typical=(0.0, 2.0), symbol=r"\sigma^2",
        meaning="variance of the label noise (regression)")  # fmt: skip
    temperature: Control = control(
        1.0, low=0.0, low_open=True, high=10.0, typical=(0.8, 1.2), symbol=r"\tau",
        meaning="factor of the variance of synthetic samples (gaussian)")  # fmt: skip
    chain: str = choice("categorical", options=CHAINS, meaning="what is fitted to samples")
    data: str = choice(
        "mix", options=DATA, meaning="what a generation is trained on besides samples of the previous one"
    )
    fresh_rows: str = choice(
        "random", options=("random", "fixed"),
        meaning="whether each sample is fresh with probability m, or exactly the nearest whole number to mn are")  # fmt: skip
    samples: int = choice(
        50, high=100_000, symbol="n", meaning="training samples of a generation, all groups together")  # fmt: skip
    directions: int = choice(
        10, high=200, symbol="d", meaning="dimension of the Gaussian or of the inputs (gaussian, regression)")  # fmt: skip
    generations: int = choice(20, high=1000, symbol="K", meaning="number of generations")
    shares: Input = input(
        _default_shares, dims=("group",), low=0.0, high=1.0, symbol=r"\pi_g",
        meaning="probability of each category, or each group's share of the samples; together at most 1")  # fmt: skip

    dimensions_declared = (
        dimension("group", "category or group, by its share", symbol=r"\pi_g"),
        dimension("generation", "generation", symbol="k", kind="time"),
    )
    observables_declared = (
        observable("lost", "probability that a category no longer occurs", symbol="P_0", dims=("group", "generation"),
                   low=0, high=1, status="exact", fraction_of="size", when={"chain": "categorical"}),
        observable("frequency_variance", "variance of a category's frequency", symbol="V", dims=("group", "generation"),
                   low=0, high=0.25, status="exact", when={"chain": "categorical"}),
        observable("mean_variance", "mean variance of a direction, <tr C>/d", dims=("group", "generation"), low=0,
                   status="exact", when={"chain": "gaussian"}),
        observable("covariance_error", "mean squared error of the covariance, <tr (C - 1)²>/d", dims=("group", "generation"),
                   low=0, status="exact", when={"chain": "gaussian"}),
        observable("log_volume", "mean logarithm of the covariance's determinant", symbol=r"\langle\log\det C\rangle",
                   dims=("group", "generation"), status="exact", when={"chain": "gaussian", "data": "replace"}),
        observable("excess_loss", "mean squared distance from the true weights, <|θ - θ*|²>", symbol="E",
                   dims=("group", "generation"), low=0, status="exact", when={"chain": "regression"}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.data == "accumulate-same-inputs" and self.chain != "regression":
            raise InvalidValue(f"data = {self.data!r} needs chain = 'regression': only a regression has inputs.")
        if self.chain == "categorical" and self.samples > MOST_COUNTS:
            raise InvalidValue(f"samples = {self.samples} of a categorical chain is not in [1, {MOST_COUNTS}].")
        if isinstance(self.shares, Tracer):
            return
        shares = np.asarray(self.shares)
        if shares.size == 0 or np.any(shares <= 0) or shares.sum() > 1 + 1e-9:
            raise InvalidValue(f"shares must be positive and add up to at most 1; they add up to {shares.sum():g}.")
        least = {"categorical": 0, "gaussian": self.directions, "regression": self.directions + 2}[self.chain]
        smallest = int(np.rint(shares.min() * self.samples))
        if smallest < least:
            raise InvalidValue(
                f"samples = {self.samples} leave {smallest} to the smallest of the shares, but a {self.chain} chain in "
                f"{self.directions} directions needs at least {least}."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"group": np.asarray(self.shares), "generation": np.arange(1, self.generations + 1)}

    def _own_samples(self) -> Array:
        """n_g, the number of samples of every group."""
        whole = jnp.full_like(self.shares, self.samples)
        return whole if self.chain == "categorical" else jnp.rint(self.shares * self.samples)

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        chain = {"categorical": self._categorical, "gaussian": self._gaussian, "regression": self._regression}[
            self.chain
        ]
        found = jax.vmap(chain)(self.shares, self._own_samples())
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in found.values()]))
        return found | {"converged": finite}

    def _synthetic(self, n: Array) -> Synthetic:
        if self.data != "mix":
            return Synthetic(n, n * (n - 1))
        if self.fresh_rows == "fixed":
            p = n - jnp.rint(self.fresh * n)
            return Synthetic(p, p * (p - 1))
        kept = 1 - self.fresh
        return Synthetic(n * kept, n * (n - 1) * kept**2)

    def _categorical(self, share: Array, n: Array) -> dict[str, Array]:
        whole, pairs = share * (1 - share), self._synthetic(n).pairs / n**2
        law = jnp.zeros(self.samples + 1).at[0].set(1.0)  # replaced by the first generation, which is real
        first, step = self._transitions(share)

        def advance(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            variance, law = state
            if self.data == "accumulate":
                variance, law = variance + (whole - variance) / (n * k**2), first
            else:
                variance, law = pairs * variance + whole / n, jnp.where(k == 1, first, law @ step)
            return (variance, law), (variance, law[0])

        start, number = (jnp.zeros_like(share), law), jnp.arange(1.0, self.generations + 1)
        _, (variance, lost) = jax.lax.scan(advance, start, number)
        return {"lost": lost, "frequency_variance": variance}

    def _transitions(self, share: Array) -> tuple[Array, Array]:
        """Law of the count in real data, and transition matrix of the count (rows: from)."""
        n = self.samples
        counts, m = jnp.arange(n + 1.0), jnp.zeros_like(self.fresh)
        first = _binomial(n, share, 1 - share)
        if self.data == "accumulate":
            return first, jnp.eye(n + 1)
        m = self.fresh if self.data == "mix" else m
        if self.data == "mix" and self.fresh_rows == "fixed":
            real = jnp.rint(m * n)
            added = _binomial(n, share, 1 - share, real)
            old = jax.vmap(lambda p, q: _binomial(n, p, q, n - real))(counts / n, 1 - counts / n)
            shift = np.subtract.outer(np.arange(n + 1), np.arange(n + 1)).T  # to - from
            return first, old @ jnp.where(shift >= 0, added[np.maximum(shift, 0)], 0.0)
        there, elsewhere = ((1 - m) * counts / n + m * share, (1 - m) * (1 - counts / n) + m * (1 - share))
        return first, jax.vmap(lambda p, q: _binomial(n, p, q))(there, elsewhere)

    def _gaussian(self, share: Array, n: Array) -> dict[str, Array]:
        d = float(self.directions)

        def advance(old: Moments, k: Array) -> tuple[Moments, Moments]:
            new = self._batch_moments(old, n, jnp.where(k == 1, 0.0, 1.0))
            if self.data == "accumulate":
                tau = jnp.where(k == 1, 1.0, self.temperature)  # <new|old> = τ old
                new = Moments(
                    ((k - 1) * old.trace + new.trace) / k,
                    *(
                        ((k - 1) ** 2 * o + 2 * (k - 1) * tau * o + x) / k**2
                        for o, x in zip(old[1:], new[1:], strict=True)
                    ),
                )
            return new, new

        start = Moments(*(x + 0 * share for x in (d, d, d**2)))
        _, found = jax.lax.scan(advance, start, jnp.arange(1.0, self.generations + 1))
        values = {
            "mean_variance": found.trace / d,
            "covariance_error": (found.square - 2 * found.trace) / d + 1,
        }
        if self.data == "replace":
            drift = jnp.sum(digamma((n - jnp.arange(d)) / 2)) + d * jnp.log(2 / n)
            k = jnp.arange(1.0, self.generations + 1)
            values["log_volume"] = k * drift + (k - 1) * d * jnp.log(self.temperature)
        return values

    def _batch_moments(self, old: Moments, n: Array, chained: Array) -> Moments:
        """Moments of the covariance of n new samples, of which p are N(0, τC) and f = n - p are N(0, 1).

        With Σ_i the covariance of sample i: n²<tr M²> = Σ_i [2 tr Σ_i² + (tr Σ_i)²] + Σ_{i≠j} tr Σ_iΣ_j, and the same for
        <(tr M)²> with tr Σ_i tr Σ_j. In the first generation (`chained` = 0) all samples are real.
        """
        d, tau = float(self.directions), self.temperature
        p, pairs = (chained * x for x in self._synthetic(n))
        f, cross = n - p, (n - 1) * p - pairs
        real_pairs = n * (n - 1) - pairs - 2 * cross
        own = p * tau**2 * (2 * old.square + old.trace_square) + f * (2 * d + d**2)
        return Moments(
            (p * tau * old.trace + f * d) / n,
            (own + pairs * tau**2 * old.square + real_pairs * d + 2 * cross * tau * old.trace) / n**2,
            (own + pairs * tau**2 * old.trace_square + real_pairs * d**2 + 2 * cross * tau * old.trace * d) / n**2,
        )

    def _regression(self, share: Array, n: Array) -> dict[str, Array]:
        d, k = float(self.directions), jnp.arange(1.0, self.generations + 1)
        one = self.noise * d / (n - d - 1)
        if self.data == "accumulate":
            return {"excess_loss": jnp.cumsum(self.noise * d / (k * (k * n - d - 1)))}
        if self.data == "accumulate-same-inputs":
            return {"excess_loss": jnp.cumsum(one / k**2)}
        kept = self._kept_error(n) if self.data == "mix" else jnp.ones_like(n)
        _, loss = jax.lax.scan(lambda e, _: (kept * e + one,) * 2, jnp.zeros_like(n), k)
        return {"excess_loss": loss}

    def _kept_error(self, n: Array) -> Array:
        """ρ: the part of the previous generation's squared error that the next one inherits."""
        d, (p, pairs) = float(self.directions), self._synthetic(n)
        # <(tr B)² + 2 tr B²> and <(tr B)² - tr B²> of the beta matrix B
        even, odd = (pairs + 3 * p) / (n * (n + 2)) * d * (d + 2), pairs / (n * (n - 1)) * d * (d - 1)
        square = (even - odd) / 3
        beta = (d * square - odd - square) / (d * (d + 2) * (d - 1)) if self.directions > 1 else jnp.zeros_like(n)
        alpha = square / d - beta * (d + 1)
        return alpha + beta + beta * (n * d - 2) / (n - d - 1)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        """One draw of random numbers per generation: for every group, chain and sample, its columns and whether it is real."""
        chain = {"categorical": self._count_tokens, "gaussian": self._fit_covariance, "regression": self._fit_weights}
        groups = 1 if self.chain == "categorical" else self.shares.shape[0]
        columns = {"categorical": 1, "gaussian": self.directions, "regression": self.directions + 1}[self.chain]
        chance = self.data == "mix" and self.fresh_rows == "random"
        draw = jax.random.uniform if self.chain == "categorical" else jax.random.normal
        keys = jax.random.split(key, self.generations)
        own = self._own_samples()[:groups]

        def drawn(key: Array) -> Array:
            return draw(key, (groups, size, self.samples, columns + chance), dtype)

        def generation(state: Any, at: tuple[Array, Array]) -> tuple[Any, dict[str, Array]]:
            number, key = at
            values = drawn(key)
            if chance:
                uniform = values[..., -1] if self.chain == "categorical" else ndtr(values[..., -1])
                real = uniform < self.fresh.astype(dtype)
            else:
                quota = jnp.rint(self.fresh * own) if self.data == "mix" else jnp.zeros_like(own)
                rows = jnp.arange(float(self.samples))[None, None, :]
                real = jnp.broadcast_to(rows < quota[:, None, None], values.shape[:-1])
            real, values = real | (number == 0), values[..., :columns]
            if same is not None:
                values = jnp.concatenate([same[..., :-1], values[..., -1:]], axis=-1)
            step = partial(chain[self.chain], number=number, dtype=dtype)
            return jax.vmap(step)(state, values, real, own)

        same = drawn(jax.random.fold_in(key, 1)) if self.data == "accumulate-same-inputs" else None
        numbers = jnp.arange(self.generations, dtype=jnp.int32)
        _, found = jax.lax.scan(generation, self._start(groups, size, dtype), (numbers, keys))
        # generations first; a categorical chain has all groups in one
        return {n: v[:, 0].T if self.chain == "categorical" else v.T for n, v in found.items()}

    def _start(self, groups: int, size: int, dtype: Any) -> Any:
        """What the samples of every group and chain have added up to before the first generation, and its fit."""
        d, of = self.directions, (groups, size)
        if self.chain == "categorical":
            return jnp.zeros((*of, self.shares.shape[0]), jnp.int32)
        if self.chain == "gaussian":
            return jnp.broadcast_to(jnp.eye(d, dtype=dtype), (*of, d, d))
        return jnp.zeros((*of, d), dtype), jnp.zeros((*of, d, d), dtype), jnp.zeros((*of, d), dtype)

    def _count_tokens(self, total: Array, tokens: Array, real: Array, n: Array, number: Array, dtype: Any) -> Any:
        """`total` counts, for every chain, the training samples in the first g categories."""
        truth, pooled = self.shares.astype(dtype), self.data == "accumulate"
        before = (jnp.maximum(number, 1) * self.samples if pooled else jnp.asarray(self.samples)).astype(dtype)
        edges = jnp.where(
            real[:, :, None], jnp.cumsum(truth)[None, None, :], (total.astype(dtype) / before)[:, None, :]
        )
        new = jnp.sum(tokens < edges, axis=1, dtype=jnp.int32)
        total = total + new if pooled else new
        held = jnp.diff(total, axis=1, prepend=jnp.zeros((total.shape[0], 1), jnp.int32))
        after = ((number + 1) * self.samples if pooled else jnp.asarray(self.samples)).astype(dtype)
        off = held.astype(dtype) / after - truth[None, :]
        return total, {"lost": jnp.mean(held == 0, axis=0), "frequency_variance": jnp.mean(off**2, axis=0)}

    def _fit_covariance(self, fitted: Array, noise: Array, real: Array, n: Array, number: Array, dtype: Any) -> Any:
        d, root = self.directions, jnp.sqrt if self.directions == 1 else jax.vmap(cholesky_small)
        drawn = jnp.sqrt(self.temperature).astype(dtype) * jnp.einsum("cij,cnj->cni", root(fitted), noise)
        x = self._there(n, dtype) * jnp.where(real[:, :, None], noise, drawn)
        new = jnp.einsum("cni,cnj->cij", x, x) / n.astype(dtype)
        if self.data == "accumulate":
            new = fitted + (new - fitted) / (number + 1).astype(dtype)
        off = new - jnp.eye(d, dtype=dtype)[None]
        found = {
            "mean_variance": jnp.mean(jnp.trace(new, axis1=1, axis2=2)) / d,
            "covariance_error": jnp.mean(jnp.sum(off**2, axis=(1, 2))) / d,
        }
        if self.data == "replace":
            found["log_volume"] = 2 * jnp.mean(jnp.sum(jnp.log(jnp.diagonal(root(new), axis1=1, axis2=2)), axis=1))
        return new, found

    def _fit_weights(self, state: Any, columns: Array, real: Array, n: Array, number: Array, dtype: Any) -> Any:
        theta, gram, target = state
        truth = jnp.full_like(theta, 1 / math.sqrt(self.directions))
        x, noise = self._there(n, dtype) * columns[..., :-1], columns[..., -1]
        label = jnp.einsum("cni,ci->cn", x, truth), jnp.einsum("cni,ci->cn", x, theta)
        y = jnp.where(real, *label) + jnp.sqrt(self.noise).astype(dtype) * noise
        new = jnp.einsum("cni,cnj->cij", x, x), jnp.einsum("cni,cn->ci", x, y)
        pooled = self.data.startswith("accumulate")
        gram, target = (gram + new[0], target + new[1]) if pooled else new
        theta = jax.vmap(solve_small)(gram, target)
        return (theta, gram, target), {"excess_loss": jnp.mean(jnp.sum((theta - truth) ** 2, axis=1))}

    def _there(self, n: Array, dtype: Any) -> Array:
        """One for the samples that a group has, zero for the others."""
        return (jnp.arange(float(self.samples)) < n).astype(dtype)[None, :, None]


def _binomial(most: int, p: Array, q: Array, number: Array | int | None = None) -> Array:
    """Probabilities of 0..`most` successes in `number` (by default `most`) trials, p + q = 1."""
    trials = jnp.asarray(most if number is None else number, float)
    k = jnp.arange(most + 1.0)
    left = jnp.maximum(trials - k, 0.0)
    ways = gammaln(trials + 1) - gammaln(k + 1) - gammaln(left + 1)
    # 0⁰ = 1, also in derivatives
    logs = ways + k * jnp.log(jnp.maximum(p, TINY)) + left * jnp.log(jnp.maximum(q, TINY))
    return jnp.where(k <= trials, jnp.exp(logs), 0.0)
