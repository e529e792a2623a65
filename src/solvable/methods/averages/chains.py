r"""Convergence of Markov chains: split-R̂, effective sample size, and runs that continue until both are good.

**R̂.** Each chain is cut in half, so that drift counts as disagreement. With W the mean variance within a half
and B the variance of the halves' means,

    R̂² = ((n−1)/n W + B) / W.

It is computed from the *normal scores* of the ranks of all draws (so that heavy tails hide nothing), once as they are and
once folded about the median (which detects halves that differ only in width); the larger value is used. R̂ = 1.05 means
that the halves' means differ by a third of the spread of a single chain.

**Effective sample size.** S = mn/τ for m halves of n draws, where τ = 1 + 2Σρ_t and ρ_t = 1 − (W − C_t)/((n−1)/n W + B), C_t
being the mean autocovariance at lag t. Pairs ρ_{2t} + ρ_{2t+1} of a reversible chain are positive and decrease; the sum
ends at the first pair that is not positive, and each is capped at its predecessor (Geyer's initial monotone sequence).

Both follow Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), *Bayesian Analysis* 16, 667, arXiv:1903.08008.

**Runs.** `run_chains` extends a run in pieces, each as long as all before it together, and discards the first half of the
draws. It ends when R̂ and the effective size of *every* trace are good (`converged`), or when the allowance is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

R_HAT = 1.05
"""R̂ below which chains count as mixed. For m halves with S effective draws in all, R̂² ≈ 1 + m/S even for mixed chains:
a smaller bound requires more draws, not longer burn-in, and 1.05 is first reached near S = 10 m."""
EFFECTIVE = 50.0
"""Effective draws, over all chains, required of every trace: its mean is then known to a seventh of its spread."""


class Diagnosis(NamedTuple):
    """R̂ and effective sample size of a trace."""

    r_hat: float
    effective: float


def normal_scores(draws: Float[Array, "chains draws"]) -> Float[Array, "chains draws"]:
    """Φ⁻¹((rank − 3/8)/(S + 1/4)) of the ranks among all draws; equal draws share their mean rank.

    >>> normal_scores(jnp.array([[10.0, 30.0], [20.0, 1000.0]])).round(2).tolist()
    [[-1.05, 0.3], [-0.3, 1.05]]
    """
    flat = draws.ravel()
    ordered = jnp.sort(flat)
    below = jnp.searchsorted(ordered, flat, side="left")
    up_to = jnp.searchsorted(ordered, flat, side="right")
    rank = 0.5 * (below + up_to + 1).astype(float)
    scores = ndtri((rank - 0.375) / (flat.size + 0.25))
    return jnp.where(jnp.isfinite(flat), scores, jnp.nan).reshape(draws.shape)


def halves(draws: Float[Array, "chains draws *rest"]) -> Float[Array, "halves n *rest"]:
    """Cut each chain in half, dropping the middle draw if their number is odd."""
    n = draws.shape[1] // 2
    return jnp.concatenate([draws[:, :n], draws[:, draws.shape[1] - n :]])


def _variances(split: Float[Array, "m n *rest"]) -> tuple[Array, Array]:
    """The variance within halves, W, and the estimate of the total, (n−1)/n W + B."""
    n = split.shape[1]
    within = jnp.mean(jnp.var(split, axis=1, ddof=1), axis=0)
    return within, (n - 1) / n * within + jnp.var(jnp.mean(split, axis=1), axis=0, ddof=1)


def plain_r_hat(draws: Float[Array, "chains draws *rest"]) -> Float[Array, "*rest"]:
    """Split-R̂ of the raw draws. Chains that never move have R̂ = 1 where they agree, else infinity."""
    split = halves(draws.astype(float))
    within, total = _variances(split)
    scale = jnp.mean(jnp.abs(split), axis=(0, 1))
    still = total <= 1e-24 * scale**2
    ratio = jnp.where(within == 0, jnp.inf, total / jnp.where(within == 0, 1.0, within))
    return jnp.where(still, 1.0, jnp.sqrt(ratio))


def plain_effective_size(draws: Float[Array, "chains draws *rest"]) -> Float[Array, "*rest"]:
    """Effective sample size of the mean of the raw draws; at most S log₁₀ S, for anticorrelated ones."""
    split = halves(draws.astype(float))
    m, n = split.shape[:2]
    within, total = _variances(split)
    centred = split - jnp.mean(split, axis=1, keepdims=True)
    spectrum = jnp.fft.rfft(centred, n=2 * n, axis=1)
    covariance = jnp.fft.irfft(jnp.mean(jnp.abs(spectrum) ** 2, axis=0), n=2 * n, axis=0)[:n] / n
    moves = ~(total <= 1e-24 * jnp.mean(jnp.abs(split), axis=(0, 1)) ** 2)  # true also of NaN
    unbiased = covariance * (n / (n - 1))
    correlation = 1.0 - (within[None] - unbiased) / jnp.where(moves, total, 1.0)[None]
    correlation = correlation.at[0].set(1.0)
    pairs = correlation[: 2 * (n // 2)].reshape(n // 2, 2, *correlation.shape[1:]).sum(1)
    positive = jnp.cumprod(jnp.where(pairs > 0, 1.0, 0.0), axis=0)
    time = 2.0 * jnp.sum(jax.lax.cummin(pairs * positive, axis=0), axis=0) - 1.0
    size = float(m * n)
    effective = size / jnp.maximum(time, 1.0 / jnp.log10(size))
    return jnp.where(moves, effective, size)


def r_hat(draws: Float[Array, "chains draws"]) -> Float[Array, ""]:
    """Rank-normalised split-R̂, the larger of bulk and folded. NaN where a draw is not finite.

    >>> noise = jax.random.normal(jax.random.key(0), (4, 500))
    >>> bool(r_hat(noise) < 1.01), bool(r_hat(noise + jnp.arange(4.0)[:, None]) > 1.5)
    (True, True)
    """
    folded = jnp.abs(draws - jnp.median(draws))
    return jnp.maximum(plain_r_hat(normal_scores(draws)), plain_r_hat(normal_scores(folded)))


def effective_size(draws: Float[Array, "chains draws"]) -> Float[Array, ""]:
    """Bulk effective sample size: that of the normal scores, over all chains. NaN where a draw is not finite.

    >>> noise = jax.random.normal(jax.random.key(0), (4, 500))
    >>> bool(1500 < effective_size(noise) < 2500)
    True
    """
    return plain_effective_size(normal_scores(draws))


def ensemble_r_hat(
    values: Float[Array, " n"], first: Bool[Array, " n"], present: Float[Array, " n"] | None = None
) -> Float[Array, ""]:
    """R̂ of the last states of many short chains: chains from one kind of start against chains from the other.

    For ensembles of which only the last states are used: it detects whether these still depend on the start. Each chain
    gives one value; `first` says which of two starts it had, `present` (ones and zeros) which chains count.

    >>> ordered = jnp.arange(400) < 200
    >>> noise = jax.random.normal(jax.random.key(0), (400,))
    >>> bool(ensemble_r_hat(noise, ordered) < 1.05), bool(ensemble_r_hat(noise + ordered.astype(float), ordered) < 1.05)
    (True, False)
    """
    values = values.astype(float)
    weight = jnp.ones(values.shape) if present is None else present.astype(float)
    weight = jnp.stack([jnp.where(first, weight, 0.0), jnp.where(first, 0.0, weight)])
    number = jnp.sum(weight, axis=1)
    mean = weight @ values / number
    within = jnp.mean(jnp.sum(weight * (values[None, :] - mean[:, None]) ** 2, axis=1) / (number - 1))
    # minus the expected difference of two finite samples from one law
    apart = jnp.maximum(0.5 * (mean[0] - mean[1]) ** 2 - 0.5 * within * jnp.sum(1 / number), 0.0)
    ratio = jnp.where(within == 0, jnp.inf, apart / jnp.where(within == 0, 1.0, within))
    return jnp.where((within == 0) & (apart == 0), 1.0, jnp.sqrt(1.0 + ratio))


class Run(NamedTuple):
    """The draws kept from a run: its last piece, which is half of all draws."""

    state: Any
    draws: Any
    traces: dict[str, Float[Array, "chains draws"]]
    diagnoses: dict[str, Diagnosis]
    steps: int
    """Steps that each chain made in all, including the discarded ones."""
    residual: float
    """The worst R̂ − 1; with too few effective draws, at least 0.05 times the required over the actual number."""
    converged: bool


def run_chains(
    piece: Callable[[Any, PRNGKeyArray, Array], tuple[Any, Any]],
    state: Any,
    key: PRNGKeyArray,
    observe: Callable[[Any], dict[str, Float[Array, "chains draws"]]],
    *,
    draws: int,
    first: int = 1,
    most: int = 16,
    effective: float = EFFECTIVE,
) -> Run:
    """Run chains in pieces, each as long as all before it together, until the traces of the last piece are good.

    `piece(state, key, thin)` moves all chains and returns their state and `draws` draws of each, `thin` steps apart; it is
    one program for all lengths, because `thin` is an array. `observe` turns these draws into the traces that are judged;
    include every quantity that is reported. `thin` begins at `first` and doubles up to `most`. The run can be interrupted
    between pieces. Chains must start in different places: the diagnosis rests on whether they then agree.

    If a run has not converged, report NaN together with its `residual`.

    >>> def walk(x, key, thin):  # a random walk on a ring, from both its sides
    ...     def draw(x, key):
    ...         steps = jax.random.randint(key, (16, 2), -4, 5)
    ...         x = jax.lax.fori_loop(0, thin, lambda i, x: (x + steps[i]) % 12, x)
    ...         return x, x
    ...     return jax.lax.scan(draw, x, jax.random.split(key, 64))
    >>> seen = lambda x: {"cosine": jnp.cos(2 * jnp.pi * x.T.astype(float) / 12)}
    >>> run = run_chains(jax.jit(walk), jnp.array([0, 6]), jax.random.key(0), seen, draws=64)
    >>> run.converged, sorted(run.diagnoses)
    (True, ['cosine'])
    """
    alone = jax.tree.map(lambda x: x[None], state)

    def piece_of_one(state: Any, keys: Key[Array, " one"], thin: Array) -> tuple[Any, Any]:
        return jax.tree.map(lambda x: x[None], piece(jax.tree.map(lambda x: x[0], state), keys[0], thin))

    return run_chains_together(
        piece_of_one, alone, key[None], lambda _, made: observe(made), draws=draws, first=first, most=most,
        effective=effective,
    )[0]  # fmt: skip


def run_chains_together(
    piece: Callable[[Any, Key[Array, " lanes"], Array], tuple[Any, Any]],
    state: Any,
    keys: Key[Array, " lanes"],
    observe: Callable[[int, Any], dict[str, Float[Array, "chains draws"]]],
    *,
    draws: int,
    first: int = 1,
    most: int = 16,
    effective: float = EFFECTIVE,
) -> list[Run]:
    """`run_chains` for several runs moved side by side: `state` and the draws have a leading axis of runs.

    `observe(run, draws)` is given one run's draws. Every run is judged by itself and reported at the length at which it
    converged; all are moved until the last one has.

    >>> def walk(x, keys, thin):  # from 0 and 9, and from −9 and 9, towards the origin
    ...     def draw(x, key):
    ...         x = (x + jax.random.normal(key, x.shape)) / 2
    ...         return x, x
    ...     return jax.vmap(lambda x, key: jax.lax.scan(draw, x, jax.random.split(key, 64)))(x, keys)
    >>> seen = lambda run, x: {"place": x.T}
    >>> starts, keys = jnp.array([[0.0, 9.0], [-9.0, 9.0]]), jax.random.split(jax.random.key(0))
    >>> [run.converged for run in run_chains_together(jax.jit(walk), starts, keys, seen, draws=64)]
    [True, True]
    """
    thin, steps, number = first, 0, 0
    done: dict[int, Run] = {}
    while True:
        now = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)
        state, made = piece(state, now, jnp.asarray(thin))
        jax.block_until_ready(state)
        number, steps = number + 1, steps + draws * thin
        if number == 1:
            continue  # the first piece is always discarded
        for lane in [lane for lane in range(len(keys)) if lane not in done]:
            own = _pick((state, made), lane)
            run = _judged(own[0], own[1], observe(lane, own[1]), steps, effective)
            if run.converged or 2 * thin > most:
                done[lane] = run
        if len(done) == len(keys):
            return [done[lane] for lane in range(len(keys))]
        thin *= 2


def _judged(state: Any, made: Any, traces: dict[str, Array], steps: int, effective: float) -> Run:
    found = {name: Diagnosis(*map(float, _diagnose(trace))) for name, trace in traces.items()}
    worst = max(_residual(each, effective) for each in found.values())
    return Run(state, made, traces, found, steps, worst, worst <= R_HAT - 1)


def _residual(found: Diagnosis, effective: float) -> float:
    few = (R_HAT - 1) * effective / found.effective if found.effective > 0 else float("inf")
    worst = max(found.r_hat - 1, few if few > R_HAT - 1 else 0.0)
    return worst if worst == worst else float("inf")  # a draw that is not finite


_pick = jax.jit(lambda tree, lane: jax.tree.map(lambda x: x[lane], tree))
_diagnose = jax.jit(lambda trace: (r_hat(trace), effective_size(trace)))
