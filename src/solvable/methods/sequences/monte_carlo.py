"""Gibbs sampling of coloured sequences in many chains at once, replica exchange, and diagnostics of mixing.

A law (see `solvable.methods.sequences.potts`) provides `begin(states)`, `logits(work, site)` or, if cheaper, `weights(work,
site)`, `assign(work, site, colours)`, `states(work)` and `log_weights(states)`; `work` is any state it needs to carry.
One sweep visits every site in order and draws its colour given all others, in all chains together.

**Mixing.** Every sweep of the second half of a run records the logarithm of the weight and a few random projections of
the state (which a broken symmetry freezes even where the weight looks fine). They give the potential scale reduction R̂
of the chains' halves and the effective number of independent sweeps per chain. `sample` starts half of its chains at random
and half ordered, and continues until R̂ is small or the maximal number of sweeps is reached; a run that has not mixed is
flagged and raises a warning. R̂ is computed from the raw draws, not from their ranks (`methods.averages.chains`): the
recorded quantities have no heavy tails, and sorting thousands of chains at every check would be slow.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...errors import InvalidValue
from ..averages.chains import R_HAT, plain_effective_size, plain_r_hat
from ..data.parts import equal_parts

PROJECTIONS = 4
CHUNK = 8
PARTS = 4
UNROLLED = 32  # number of colours up to which partial sums are unrolled, for sums on a single core


class NotMixed(UserWarning):
    """A Monte Carlo run ended before its chains agreed."""


class Mixing(NamedTuple):
    """Whether chains have mixed: the worst over all recorded quantities."""

    r_hat: Float[Array, ""]
    effective_sweeps: Float[Array, ""]
    """Independent sweeps per chain among those recorded."""

    @property
    def mixed(self) -> Bool[Array, ""]:
        return self.r_hat < R_HAT


class Samples(NamedTuple):
    """Sequences and the diagnostics of the run that made them."""

    sequences: Int[Array, "n L"]
    mixing: Mixing
    sweeps: int
    mixed: bool


def random_states(key: PRNGKeyArray, chains: int, sites: int, colours: int) -> Int[Array, "n L"]:
    """Uniformly random sequences."""
    return jax.random.randint(key, (chains, sites), 0, colours, dtype=jnp.int32)


@partial(jax.jit, static_argnums=(1, 2, 3))
def scattered_states(key: PRNGKeyArray, chains: int, sites: int, colours: int) -> Int[Array, "n L"]:
    """Maximally different starts: every other chain at random, the others with a single colour each, in turn, at all sites.

    Random starts alone would agree in a disordered state even where an ordered one has nearly all the weight and chains
    cannot leave either in any affordable time (a first-order transition).

    >>> scattered_states(jax.random.key(0), 6, 3, 2)[1::2].tolist()
    [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    """
    number = jnp.arange(chains, dtype=jnp.int32)[:, None]
    return jnp.where(number % 2 == 0, random_states(key, chains, sites, colours), (number // 2) % colours)


def draw_colours(weights: Float[Array, "n C"], uniform: Float[Array, " n"]) -> Int[Array, " n"]:
    """Draw one colour per row, in proportion to the weights, by inversion of one uniform number each.

    >>> draw_colours(jnp.array([[2.0, 1.0, 1.0]] * 3), jnp.array([0.4, 0.6, 0.9])).tolist()
    [0, 1, 2]
    """
    colours = weights.shape[1]
    if colours > UNROLLED:
        # A triangular product is far faster than a cumulative sum along a short axis.
        sums = jnp.tril(jnp.ones((colours, colours), weights.dtype)) @ weights.T
        return jnp.sum(sums[:-1] < (uniform * sums[-1])[None, :], axis=0, dtype=jnp.int32)
    partial = [weights[:, 0]]
    for c in range(1, colours):
        partial.append(partial[-1] + weights[:, c])
    below = uniform * partial[-1]
    return sum(((s < below).astype(jnp.int32) for s in partial[:-1]), jnp.zeros(len(weights), jnp.int32))


def sweep(law: Any, work: Any, key: PRNGKeyArray, scale: Float[Array, " n"] | None = None) -> Any:
    """Draw every site once, in order, given all others; `scale` multiplies the log-weight chain by chain."""
    chains = jax.eval_shape(law.states, work).shape[0]
    uniform = jax.random.uniform(key, (law.sites, chains), dtype=law.dtype)

    def visit(work, site_and_numbers):
        site, numbers = site_and_numbers
        weights = law.weights(work, site) if scale is None else None
        if weights is None:
            logits = law.logits(work, site)
            logits = logits if scale is None else logits * scale[:, None]
            weights = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
        return law.assign(work, site, draw_colours(weights, numbers)), None

    return jax.lax.scan(visit, work, (jnp.arange(law.sites), uniform))[0]


def gibbs(
    law: Any, key: PRNGKeyArray, states: Int[Array, "n L"], sweeps: int
) -> tuple[Int[Array, "n L"], Float[Array, "sweeps n traces"]]:
    """Run all chains for some sweeps; return their states and the records after each sweep (pure JAX).

    >>> from solvable.methods.sequences.potts import ManyBody, ring, standard_potts
    >>> law = ManyBody.of_matrix(ring(6), standard_potts(3), inverse_temperature=1.0)
    >>> states, traces = gibbs(law, jax.random.key(0), jnp.zeros((100, 6), jnp.int32), 100)
    >>> bool(mixing(traces[50:]).mixed)
    True
    """
    weigh = _projections(law)

    def step(work, key):
        work = sweep(law, work, key)
        return work, weigh(law.states(work))

    work, traces = jax.lax.scan(step, law.begin(states), jax.random.split(key, sweeps))
    return law.states(work), traces


def exchange(
    law: Any, key: PRNGKeyArray, replicas: Int[Array, "K n L"], sweeps: int, ladder: Float[Array, " K"]
) -> tuple[Int[Array, "K n L"], Float[Array, "sweeps n traces"], Float[Array, ""]]:
    """Replica exchange: the log-weights of the K replicas of each chain are multiplied by `ladder` (rising, ending at 1).

    After every sweep neighbouring replicas swap by the Metropolis rule, even and odd pairs in turn. Returns the states in
    the order of the ladder (the last are samples of the law), the records of the last rung, and the fraction of accepted
    swaps of the worst pair of rungs.
    """
    rungs, chains, sites = replicas.shape
    weigh = _projections(law)
    ladder = jnp.asarray(ladder, law.dtype)
    chain = jnp.arange(chains)[None, :]

    def step(carry, inputs):
        # Temperatures move, states stay: `rung[r, n]` is the rung of replica r of chain n.
        work, rung = carry
        key, parity = inputs
        first, second = jax.random.split(key)
        work = sweep(law, work, first, ladder[rung].reshape(-1))
        seen = law.states(work)
        standing = jnp.argsort(rung, axis=0)
        weight = jnp.take_along_axis(law.log_weights(seen).reshape(rungs, chains), standing, axis=0)
        gain = (ladder[1:] - ladder[:-1])[:, None] * (weight[:-1] - weight[1:])
        swap = jnp.log(jax.random.uniform(second, gain.shape, dtype=law.dtype)) < gain
        swap = (swap & (jnp.arange(rungs - 1) % 2 == parity)[:, None]).astype(rung.dtype)
        moved = jnp.arange(rungs)[:, None] + jnp.pad(swap, ((0, 1), (0, 0))) - jnp.pad(swap, ((1, 0), (0, 0)))
        rung = jnp.zeros_like(rung).at[standing, chain].set(moved)
        last = seen.reshape(rungs, chains, sites)[jnp.argmax(rung, axis=0), chain[0]]
        return (work, rung), (weigh(last), jnp.mean(swap.astype(law.dtype), axis=1))

    begun = (law.begin(replicas.reshape(-1, sites)), jnp.tile(jnp.arange(rungs)[:, None], (1, chains)))
    inputs = (jax.random.split(key, sweeps), jnp.arange(sweeps) % 2)
    (work, rung), (traces, swaps) = jax.lax.scan(step, begun, inputs)
    ordered = law.states(work).reshape(rungs, chains, sites)[jnp.argsort(rung, axis=0), chain]
    return ordered, traces, jnp.min(2.0 * jnp.mean(swaps, axis=0), initial=1.0)


def _projections(law: Any):
    """The recorded quantities: the log-weight and a few random linear functions of the state."""
    directions = jax.random.normal(jax.random.key(20), (law.sites, law.colours, PROJECTIONS), dtype=law.dtype)
    directions = directions / jnp.sqrt(float(law.sites))

    def record(states):
        # Site by site: the one-hot state is never stored.
        def add(total, site):
            return total + directions[site][states[:, site]], None

        total, _ = jax.lax.scan(add, jnp.zeros((states.shape[0], PROJECTIONS), law.dtype), jnp.arange(law.sites))
        return jnp.concatenate([law.log_weights(states)[:, None], total], axis=1)

    return record


@jax.jit
def mixing(traces: Float[Array, "sweeps chains traces"]) -> Mixing:
    """R̂ of split chains and the effective number of sweeps per chain, the worst over all traces.

    R̂² = (within + between)/within, with each chain cut in half so that drift counts as disagreement. With many chains
    the comparison is sharp, so that R̂ also exceeds one if there are few sweeps: R̂² ≈ 1 + 2τ/n for an integrated
    autocorrelation time τ. The effective number is n/τ (`methods.averages.chains`).

    >>> shaking = 0.1 * jax.random.normal(jax.random.key(0), (20, 8, 1))
    >>> bool(mixing(shaking + jnp.arange(8.0)[None, :, None]).mixed)           # every chain stays near its start
    False
    """
    draws = jnp.swapaxes(traces, 0, 1)
    chains, length = draws.shape[:2]
    effective = jnp.minimum(plain_effective_size(draws) / chains, float(length))
    return Mixing(jnp.max(plain_r_hat(draws)), jnp.min(effective))


def sample(
    law: Any,
    key: PRNGKeyArray,
    number: int,
    *,
    chains: int | None = None,
    sweeps: int = 64,
    most_sweeps: int = 4096,
    ladder: Float[Array, " K"] | None = None,
) -> Samples:
    """Sequences from a law by Gibbs sampling, or by replica exchange if a `ladder` of log-weight factors is given.

    Each chain gives one sequence (its last state) when `chains` is `number`, the default up to 4096; fewer chains give
    several each, an effective sample apart. Half of the chains begin at random, half with one colour at all sites. Runs are
    doubled until the chains of the second half agree (R̂ < 1.05) or `most_sweeps` is reached; in the latter case `mixed` is
    False and a `NotMixed` warning gives R̂.

    >>> from solvable.methods.sequences.potts import ManyBody, ring, standard_potts
    >>> law = ManyBody.of_matrix(ring(8), standard_potts(3), inverse_temperature=1.0)
    >>> drawn = sample(law, jax.random.key(0), 200)
    >>> drawn.sequences.shape, drawn.mixed
    ((200, 8), True)
    """
    if number < 1 or sweeps < 2 * CHUNK or most_sweeps < sweeps:
        raise InvalidValue(
            f"number = {number}, sweeps = {sweeps}, most_sweeps = {most_sweeps}: number must be at least 1, "
            f"sweeps at least {2 * CHUNK}, and most_sweeps at least sweeps."
        )
    chains = max(2, min(number, 4096 if chains is None else chains))
    first, second = jax.random.split(key)
    runner = _Runner(law, second, scattered_states(first, chains, law.sites, law.colours), ladder)
    traces: list[Array] = []
    wanted = sweeps
    while True:
        while len(traces) * CHUNK < wanted:
            traces.append(runner.run())
        found = mixing(jnp.concatenate(traces[len(traces) // 2 :]))
        if bool(found.mixed) or 2 * wanted > most_sweeps:
            break
        wanted *= 2
    mixed, made = bool(found.mixed), len(traces) * CHUNK
    if not mixed:
        warnings.warn(
            f"the chains have not mixed after {made} sweeps: R-hat is {float(found.r_hat):.3f}, not below {R_HAT}; "
            "the sequences are not fair samples (use more sweeps, or replica exchange).",
            NotMixed,
            stacklevel=2,
        )
    gathered = [runner.states()]
    apart = -(-(len(traces) - len(traces) // 2) // max(1, int(found.effective_sweeps)))
    while sum(len(g) for g in gathered) < number:
        for _ in range(apart):
            runner.run()
        gathered.append(runner.states())
    return Samples(jnp.concatenate(gathered)[:number].astype(jnp.int8), found, made, mixed)


class _Runner:
    """Chains that continue in chunks of a few sweeps, which share one compiled program.

    On a CPU many chains run in parts, one thread each. The number of parts is fixed, so that results do not depend on
    the machine.
    """

    def __init__(self, law: Any, key: PRNGKeyArray, states: Int[Array, "n L"], ladder: Float[Array, " K"] | None):
        parts = PARTS if jax.default_backend() == "cpu" and len(states) >= 128 * PARTS else 1
        # A few extra chains make all parts equal.
        self.parts = list(equal_parts(states, parts, repeat=True))
        if ladder is not None:
            self.parts = [jnp.tile(part[None], (len(ladder), 1, 1)) for part in self.parts]
        self.law, self.key, self.ladder = law, key, ladder
        self.warm = False

    def run(self) -> Float[Array, "sweeps n traces"]:
        # Threads do not inherit it. JAX adds its options when it is imported, which no type checker sees.
        self.precision = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
        self.key, now = jax.random.split(self.key)
        jobs = list(zip(jax.random.split(now, len(self.parts)), self.parts, strict=True))
        ready = [] if self.warm else [self._one(*jobs.pop(0))]  # the first one compiles for all
        with ThreadPoolExecutor(len(self.parts)) as pool:
            done = [*ready, *pool.map(lambda job: self._one(*job), jobs)]
        self.warm, self.parts = True, [states for states, _ in done]
        return jnp.concatenate([traces for _, traces in done], axis=1)

    def _one(self, key: PRNGKeyArray, states: Int[Array, "... L"]) -> Any:
        with jax.default_matmul_precision(self.precision):
            return jax.block_until_ready(_chunk(self.law, key, states, self.ladder))

    def states(self) -> Int[Array, "n L"]:
        return jnp.concatenate([part if self.ladder is None else part[-1] for part in self.parts])


@eqx.filter_jit
def _chunk(law, key, states, ladder):
    if ladder is None:
        return gibbs(law, key, states, CHUNK)
    return exchange(law, key, states, CHUNK, ladder)[:2]
