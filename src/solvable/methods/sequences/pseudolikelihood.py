"""Pseudo-likelihood of Potts models: dense couplings, and the factored couplings of one layer of attention.

Sequences are integers `(sequences, sites)` with values 0..C−1. **Index order**: W[i, a, j, b] is the contribution of colour
b at site j to the logit of colour a at site i, the field h[i, a] the logit without neighbours:

    P(s) ∝ exp(Σ_i h[i, s_i] + Σ_{i<j} W[i, s_i, j, s_j]),   P(s_i = a | rest) = softmax_a(h[i, a] + Σ_{j≠i} W[i, a, j, s_j]).

A Potts model has W[i, a, j, b] = W[j, b, i, a]; W[i, a, i, b] has no meaning and is zero. Fits minimise the *sum*

    −Σ_m w_m Σ_i log P(s_i^m | rest) + (λ_h/2) Σ h² + (λ/2) Σ (parameters of the couplings)²,

with the sequences' weights w_m. Masked-language training of factored attention, logits_i = Σ_h Σ_{j≠i} A^h_ij V^h s_j, is the
same function with W = Σ_h A^h ⊗ V^h (Bhattacharya et al. 2020; Rende, Gerace, Laio and Goldt 2024, arXiv:2304.07235).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from ..risk.lbfgs import Minimum, minimise
from .couplings import (
    average_product_correction,
    conditional_logits,
    contact_scores,
    frobenius,
    negative_log_pseudolikelihood,
    one_hot,
    pair_energies,
    product,
    surprise,
    zero_sum,
)
from .dense_potts import (
    LARGEST_CHUNK,
    DenseObjective,
    Packed,
    Triangle,
    chunked,
    members_of,
    pack,
    squares,
    triangles,
    unpack,
)

__all__ = [
    "DenseFit",
    "DenseObjective",
    "FactoredAttention",
    "FactoredFit",
    "FactoredObjective",
    "Packed",
    "Triangle",
    "average_product_correction",
    "conditional_logits",
    "contact_scores",
    "fit_dense",
    "fit_factored",
    "frobenius",
    "masked_language_loss",
    "negative_log_pseudolikelihood",
    "one_hot",
    "pack",
    "pair_energies",
    "test_loss",
    "unpack",
    "zero_sum",
]

Attention = Literal["free", "softmax"]
Report = Callable[[int, float, float], None]

# --- dense couplings --------------------------------------------------------------------------------------------------


def _frequencies(sequences: np.ndarray, weights: np.ndarray, colours: int) -> np.ndarray:
    """Weighted frequencies of the colours at each site, with one pseudo-count in total."""
    counts = np.stack([np.bincount(column, weights, colours) for column in sequences.T])
    return (counts + 1 / colours) / (weights.sum() + 1)


def _checked(sequences: ArrayLike, colours: int, weights: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    given = np.asarray(sequences)
    if given.ndim != 2 or given.dtype.kind not in "iu" or min(given.shape) < 1 or given.shape[1] < 2:
        raise ValueError(
            f"sequences must be integers of shape (sequences, sites ≥ 2), not {given.dtype} of shape {given.shape}."
        )
    if given.min() < 0 or given.max() >= colours:
        raise ValueError(
            f"colours must be in 0..{colours - 1}, but the sequences contain {given.min()}..{given.max()}."
        )
    heavy = np.ones(len(given)) if weights is None else np.asarray(weights, float)
    if heavy.shape != (len(given),) or not np.all(heavy >= 0) or not 0 < heavy.sum() < np.inf:
        raise ValueError("weights must be one non-negative number per sequence, not all zero.")
    return given, heavy


class Fitted(eqx.Module):
    """How a search ended.

    `objective` is the minimised penalised sum, `loss` the mean masked cross-entropy per site of the training sequences.
    `converged` means that `residual` is within the tolerance; otherwise the couplings are those of the last iteration,
    not a minimum.
    """

    loss: Float[Array, ""]
    objective: Float[Array, ""]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    evaluations: Int[Array, ""]
    converged: Bool[Array, ""]


class DenseFit(Fitted):
    """A Potts model with a coupling for every pair of sites and colours; see the module for index order."""

    fields: Float[Array, "sites colours"]
    pairs: Triangle

    @property
    def couplings(self) -> Float[Array, "sites colours sites colours"]:
        """W[i, a, j, b], unpacked on access."""
        return unpack(self.pairs, *self.fields.shape)

    def logits(self, sequences: Int[Array, "m sites"]) -> Float[Array, "m sites colours"]:
        """Logits of every site given all others."""
        return conditional_logits(self.fields, self.couplings, sequences)


def fit_dense(
    sequences: ArrayLike,
    colours: int,
    *,
    weights: ArrayLike | None = None,
    penalty: float | None = None,
    fields_penalty: float | None = None,
    tolerance: float = 1e-3,
    iterations: int = 1000,
    history: int | None = None,
    dtype: Any = jnp.float32,
    rows: int | None = None,
    report: Report | None = None,
) -> DenseFit:
    """Fit the dense Potts model with the largest penalised pseudo-likelihood.

    `penalty` λ is relative to the sum over sequences (default 0.2·(sites − 1)). `fields_penalty` λ_h is the same by
    default: a contribution that fields and couplings can both express is then cheapest in the fields, and the search is
    well conditioned (a tiny λ_h takes five times as long). The relative error of the parameters is at most
    `tolerance`/λ. `rows` is the number of sequences at a time (default: 64 MB of them as one-hot vectors).

    Memory: with P = sites²·colours²/2 numbers, the search holds 2·history + 8 of P, the objective about 6 more. `history`
    is 8 pairs of P, or 5 if P is above 64 MB. For 500 sites of 21 colours in float32, P takes 220 MB and the measured
    peak of the process was 5.9 GB, for any number of sequences (each takes one byte per site).

    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 3, 2000)
    >>> copied = np.stack([first, np.where(rng.random(2000) < 0.8, first, rng.integers(0, 3, 2000)),
    ...                    rng.integers(0, 3, 2000)], axis=1)
    >>> fit = fit_dense(copied, 3, penalty=1.0)
    >>> bool(fit.converged), round(float(contact_scores(fit.couplings)[0, 1]), 1)
    (True, 0.9)
    """
    given, heavy = _checked(sequences, colours, weights)
    sites = given.shape[1]
    ridge = 0.2 * (sites - 1) if penalty is None else float(penalty)
    fields_ridge = ridge if fields_penalty is None else float(fields_penalty)
    chunks, heavy_chunks = chunked(given, heavy, colours, dtype, rows)
    on_processor = jax.default_backend() == "cpu"
    filled = np.asarray(chunks).reshape(-1, sites)
    objective = DenseObjective(
        chunks,
        heavy_chunks,
        jnp.asarray(ridge, dtype),
        jnp.asarray(fields_ridge, dtype),
        colours,
        members_of(filled, 2 * -(-sites // 2), colours) if on_processor else None,
    )
    frequencies = _frequencies(given, heavy, colours)
    fields = np.log(frequencies)
    fields = fields - fields.mean(axis=1, keepdims=True)
    size = -(-sites // 2) * colours
    start = Packed(jnp.asarray(fields, dtype), Triangle(jnp.zeros((size, size), dtype), jnp.zeros((size, size), dtype)))
    curvatures = _curvatures(frequencies, float(heavy.sum()), ridge, fields_ridge, dtype)
    if history is None:
        history = 8 if 2 * size**2 * jnp.dtype(dtype).itemsize <= 1 << 26 else 5
    # Curvatures fall by an order of magnitude once the couplings predict well, so they are measured again twice.
    done = used = 0

    def tell(number: int, value: float, residual: float) -> None:
        if report is not None:
            report(done + number, value, residual)

    for stage in (10, 20, iterations):
        found = minimise(
            objective,
            start,
            tolerance=tolerance,
            iterations=min(stage, iterations - done),
            history=history,
            curvatures=curvatures,
            report=None if report is None else tell,
            every=10 if given.size * sites * colours**2 < 10**10 else 1,  # return to Python after seconds, not minutes
        )
        done, used = done + int(found.iterations), used + int(found.evaluations)
        if not float(found.residual) > tolerance or done >= iterations:
            break
        start = found.parameters
        curvatures = _measured(objective, start)
    found = found._replace(iterations=jnp.asarray(done), evaluations=jnp.asarray(used))
    kept: Packed = found.parameters
    penalties = 0.5 * ridge * squares(kept.pairs) + 0.5 * fields_ridge * squares(kept.fields)
    return DenseFit(
        (found.value - penalties) / float(heavy.sum() * sites), *_diagnostics(found), kept.fields, kept.pairs
    )


@partial(jax.jit, static_argnames="dtype")
def _curvatures(frequencies: Any, total: Any, penalty: Any, fields_penalty: Any, dtype: Any) -> Packed:
    """Diagonal of the Hessian for independent sites: M f_ia f_jb (2 − f_ia − f_jb) + λ for a coupling."""
    f = frequencies.astype(dtype)
    total, penalty, fields_penalty = (jnp.asarray(number, dtype) for number in (total, penalty, fields_penalty))
    sites, colours = f.shape
    half = (sites + 1) // 2
    f = jnp.pad(f, ((0, 2 * half - sites), (0, 0)), constant_values=0.5)
    first, second = f[:half].reshape(-1), f[half:].reshape(-1)

    def pairs(a, b):
        return total * a[:, None] * b[None, :] * (2 - a[:, None] - b[None, :]) + penalty

    upper, _ = triangles(len(first), colours)
    within = jnp.where(upper, pairs(first, first), pairs(second, second))
    f = f[:sites]
    return Packed(total * f * (1 - f) + fields_penalty, Triangle(within, pairs(first, second)))


@eqx.filter_jit
def _measured(objective: DenseObjective, packed: Packed) -> Packed:
    return objective.curvatures(packed)


def _diagnostics(found: Minimum) -> tuple[Array, Array, Array, Array, Array]:
    return found.value, found.residual, found.iterations, found.evaluations, found.converged


# --- factored attention -----------------------------------------------------------------------------------------------


class FactoredAttention(eqx.Module):
    """One layer of attention whose maps depend only on positions and whose values depend only on tokens.

    logits_i = fields_i + Σ_h Σ_{j≠i} A^h_ij V^h s_j, that is W[i, a, j, b] = Σ_h A^h_ij V^h_ab. With `attention="free"` the
    map A is `maps` itself; with "softmax" each row of A is a softmax over the other sites: positive, with sum one.
    """

    maps: Float[Array, "heads sites sites"]
    values: Float[Array, "heads colours colours"]
    fields: Float[Array, "sites colours"]
    attention: Attention = eqx.field(static=True, default="free")

    def attention_maps(self) -> Float[Array, "heads sites sites"]:
        """A^h_ij, with zero diagonal."""
        own = jnp.eye(self.maps.shape[1], dtype=bool)[None]
        if self.attention == "softmax":
            return jax.nn.softmax(jnp.where(own, -jnp.inf, self.maps), axis=2)
        return jnp.where(own, 0.0, self.maps)

    def directed_couplings(self) -> Float[Array, "sites colours sites colours"]:
        """W[i, a, j, b] = Σ_h A^h_ij V^h_ab, as used by the conditionals; not necessarily symmetric."""
        return jnp.einsum("hij,hab->iajb", self.attention_maps(), self.values)

    def logits(self, sequences: Int[Array, "m sites"]) -> Float[Array, "m sites colours"]:
        """Logits of every site given all others, without composing the couplings."""
        heads, colours = self.values.shape[:2]
        x = one_hot(sequences, colours, self.values.dtype).reshape(-1, colours)
        tokens = product(x, self.values.reshape(heads * colours, colours).T)
        tokens = tokens.reshape(*sequences.shape, heads, colours)
        maps, best = self.attention_maps(), jax.lax.Precision.HIGHEST
        return jnp.einsum("hij,mjha->mia", maps, tokens, precision=best) + self.fields[None]


def masked_language_loss(network: FactoredAttention, sequences: Int[Array, "m sites"]) -> Float[Array, ""]:
    """Masked-language loss of the network: mean cross-entropy over sites and sequences.

    The network is run once per site, with the token there removed and the prediction read at the masked position. Equal
    to `negative_log_pseudolikelihood` of the composed couplings, divided by sequences × sites.
    """
    number, sites = sequences.shape
    colours = network.values.shape[1]
    maps = (
        network.attention_maps() if network.attention == "softmax" else network.maps
    )  # the own token contributes nothing

    def at(site):
        tokens = one_hot(sequences.at[:, site].set(-1), colours, network.values.dtype)
        heads = jnp.einsum("mjb,hab->hmja", tokens, network.values)
        logits = jnp.einsum("hj,hmja->ma", maps[:, site], heads) + network.fields[site][None]
        return jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, sequences[:, site, None], axis=1)[:, 0]

    return jnp.mean(jax.vmap(at)(jnp.arange(sites)))


class FactoredObjective(eqx.Module):
    """The penalised negative log pseudo-likelihood of factored attention; (λ/2)·(|maps|² + |values|²)."""

    sequences: Int[Array, "chunks rows sites"]
    weights: Float[Array, "chunks rows"]
    penalty: Float[Array, ""]
    fields_penalty: Float[Array, ""]
    with_fields: bool = eqx.field(static=True)

    def __call__(self, network: FactoredAttention) -> tuple[Float[Array, ""], FactoredAttention]:
        def cost(network, sequences, weights):
            return jnp.sum(surprise(network.logits(sequences), sequences, weights))

        def add(sums, chunk):
            return jax.tree.map(jnp.add, sums, jax.value_and_grad(cost)(network, *chunk)), None

        begin = jax.tree.map(jnp.zeros_like, (jnp.zeros((), network.maps.dtype), network))
        (value, gradient), _ = jax.lax.scan(add, begin, (self.sequences, self.weights))
        value = value + 0.5 * self.penalty * (jnp.sum(network.maps**2) + jnp.sum(network.values**2))
        value = value + 0.5 * self.fields_penalty * jnp.sum(network.fields**2)
        fields = gradient.fields + self.fields_penalty * network.fields
        fields = fields if self.with_fields else jnp.zeros_like(fields)
        maps, values = gradient.maps + self.penalty * network.maps, gradient.values + self.penalty * network.values
        return value, FactoredAttention(maps, values, fields, network.attention)


class FactoredFit(Fitted):
    """Factored attention after training."""

    network: FactoredAttention

    @property
    def fields(self) -> Float[Array, "sites colours"]:
        return self.network.fields

    @property
    def couplings(self) -> Float[Array, "sites colours sites colours"]:
        """The Potts model nearest to the network: directed couplings in zero-sum gauge, averaged over both directions.

        The means that the gauge removes from the directed couplings are not included; `potts()` adds them to the fields.
        """
        return self.potts()[1]

    def potts(self) -> tuple[Float[Array, "sites colours"], Float[Array, "sites colours sites colours"]]:
        """Fields and symmetric couplings in zero-sum gauge.

        Couplings are symmetrised after the gauge is fixed: only then do the two directions of a pair agree when the
        network's conditionals belong to one Potts model.
        """
        fields, directed = zero_sum(self.network.fields, self.network.directed_couplings())
        return fields, 0.5 * (directed + directed.transpose(2, 3, 0, 1))

    def logits(self, sequences: Int[Array, "m sites"]) -> Float[Array, "m sites colours"]:
        """Logits of every site given all others, by the network itself."""
        return self.network.logits(sequences)


def fit_factored(
    sequences: ArrayLike,
    colours: int,
    *,
    key: Key[Array, ""],
    heads: int = 1,
    attention: Attention = "free",
    starts: int = 4,
    weights: ArrayLike | None = None,
    penalty: float = 1.0,
    fields: bool = True,
    fields_penalty: float = 1.0,
    tolerance: float = 1e-3,
    iterations: int = 2000,
    history: int = 10,
    dtype: Any = jnp.float64,
    rows: int | None = None,
    report: Report | None = None,
) -> FactoredFit:
    """Fit factored attention with the largest penalised pseudo-likelihood, from random maps and values.

    The problem is not convex: of five starts on 1000 sequences of 20 sites and 10 colours, two ended in a minimum with ten
    times the excess loss. The best of `starts` is kept. (Gauge: A → cA, V → V/c; the penalty balances |A| and |V|.)
    Cost of one evaluation: 6·heads·sequences·sites²·colours operations.

    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 3, 2000)
    >>> copied = np.stack([first, np.where(rng.random(2000) < 0.8, first, rng.integers(0, 3, 2000)),
    ...                    rng.integers(0, 3, 2000)], axis=1)
    >>> fit = fit_factored(copied, 3, key=jax.random.key(0))
    >>> bool(fit.converged), round(float(contact_scores(fit.couplings)[0, 1]), 1)
    (True, 0.9)
    """
    given, heavy = _checked(sequences, colours, weights)
    if heads < 1 or starts < 1:
        raise ValueError(f"heads = {heads} and starts = {starts} must be integers ≥ 1.")
    sites = given.shape[1]
    if rows is None:  # all heads' values of a chunk are in memory at once
        rows = max(1, LARGEST_CHUNK // (sites * colours * (heads + 3) * jnp.dtype(dtype).itemsize))
    objective = FactoredObjective(
        *chunked(given, heavy, colours, dtype, rows),
        jnp.asarray(penalty, dtype),
        jnp.asarray(fields_penalty, dtype),
        fields,
    )
    log_frequencies = np.log(_frequencies(given, heavy, colours))
    centred = log_frequencies - log_frequencies.mean(axis=1, keepdims=True)
    spread = (1 / (heads * sites)) ** 0.5

    def minimum(key: Key[Array, ""]) -> Minimum:
        for_maps, for_values = jax.random.split(key)
        start = FactoredAttention(
            spread * jax.random.normal(for_maps, (heads, sites, sites), dtype),
            spread * jax.random.normal(for_values, (heads, colours, colours), dtype),
            jnp.asarray(centred, dtype) if fields else jnp.zeros((sites, colours), dtype),
            attention,
        )
        return minimise(objective, start, tolerance=tolerance, iterations=iterations, history=history, report=report)

    found = min((minimum(k) for k in jax.random.split(key, starts)), key=lambda one: float(one.value))
    kept: FactoredAttention = found.parameters
    penalties = 0.5 * penalty * squares((kept.maps, kept.values)) + 0.5 * fields_penalty * squares(kept.fields)
    return FactoredFit((found.value - penalties) / float(heavy.sum() * sites), *_diagnostics(found), kept)


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_loss(
    model: DenseFit | FactoredFit | FactoredAttention,
    sequences: ArrayLike,
    weights: ArrayLike | None = None,  # noqa: PT028
    rows: int | None = None,  # noqa: PT028
) -> float:
    """Mean masked cross-entropy per site, −log P(s_i | rest), over sites and (weighted) sequences.

    >>> fit = fit_dense(np.asarray([[0, 1], [1, 0], [1, 1], [0, 0]]), 2, penalty=1.0)
    >>> round(test_loss(fit, np.asarray([[0, 1]])), 4)  # nothing to learn: log 2
    0.6931
    """
    sites, colours = model.fields.shape
    given, heavy = _checked(sequences, colours, weights)
    if given.shape[1] != sites:
        raise ValueError(f"the model has {sites} sites, the sequences have {given.shape[1]}.")
    dtype = model.fields.dtype
    total = _total_surprise(model, *chunked(given, heavy, colours, dtype, rows))
    return float(total) / float(heavy.sum() * sites)


test_loss.__test__ = False  # type: ignore[attr-defined]  # a public function, not a test


@eqx.filter_jit
def _total_surprise(model: Any, sequences: Array, weights: Array) -> Array:
    costs = jax.lax.map(lambda c: jnp.sum(surprise(model.logits(c[0]), c[0], c[1])), (sequences, weights))
    return jnp.sum(costs.astype(float))
