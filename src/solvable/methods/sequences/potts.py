"""Laws of coloured sequences: pairwise Potts models (factorised or dense) and many-body models, with exact statistics.

A sequence has L sites and C colours, `states[n, i]` ∈ {0, …, C−1}. A law provides the logarithm of its weights and the
conditional of one site given all others, which is all that a Gibbs sampler needs:

- `ManyBody`: log w(s) = β Σ_g J_g U[s_{g₁}, …, s_{g_p}] over groups g of p sites, U symmetric. With p = 2 this is the
  generalised Potts model exp(β Σ_{i<j} J_ij s_iᵀ U s_j) on a sparse graph;
- `Factored`: the same for p = 2 when most pairs interact;
- `Dense`: any fields h_i(a) and couplings W_ij(a, b), such as those of a fit.

Couplings J come from `random_graph`, `gaussian_couplings`, `ring`, `star` or your own matrix; colours interact by
`standard_potts`, `random_symmetric` (any number of bodies) or your own array. Exact sampling: `sample_star`, and
`sample_enumerated` up to a million states.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...errors import InvalidValue

MOST_STATES = 1_000_000
"""The largest number of states for exact enumeration."""

LARGEST_EXPONENT = 80.0
"""Products of single-precision factors stay above exp(−80), so that none can underflow."""

MOST_COLOURS = 64
"""For tables of two partners at once."""


# --- couplings of sites and interactions of colours ---------------------------------------------------------------------


def random_graph(key: PRNGKeyArray, sites: int, neighbours: int = 2) -> Float[Array, "L L"]:
    """Couplings J ∈ {0, 1}: every site chooses `neighbours` others; a pair interacts if either chose the other.

    >>> int(random_graph(jax.random.key(0), 20).sum(0).min())
    2
    """
    scores = jax.random.uniform(key, (sites, sites)) - 2.0 * jnp.eye(sites)
    rank = jnp.argsort(jnp.argsort(-scores, axis=1), axis=1)
    picked = rank < neighbours
    return jnp.where(picked | picked.T, 1.0, 0.0)


def gaussian_couplings(key: PRNGKeyArray, sites: int, strength: float = 1.0) -> Float[Array, "L L"]:
    """Symmetric couplings J_ij ~ N(0, strength/(L−1)) between all pairs."""
    upper = jnp.triu(jax.random.normal(key, (sites, sites)), 1) * jnp.sqrt(strength / (sites - 1))
    return upper + upper.T


def ring(sites: int) -> Float[Array, "L L"]:
    """J = 1 between neighbours on a closed chain."""
    chain = jnp.roll(jnp.eye(sites), 1, axis=1)
    return jnp.minimum(chain + chain.T, 1.0)


def star(arms: Float[Array, " N"]) -> Float[Array, "L L"]:
    """Site 0 coupled to N others, which have no other couplings."""
    sites = arms.shape[0] + 1
    return jnp.zeros((sites, sites)).at[0, 1:].set(arms).at[1:, 0].set(arms)


def random_groups(rng: np.random.Generator, sites: int, bodies: int, number: int) -> Int[np.ndarray, "T p"]:
    """Distinct groups of `bodies` sites, drawn without replacement.

    >>> random_groups(np.random.default_rng(0), 6, 4, 15).shape          # all of them
    (15, 4)
    """
    total = math.comb(sites, bodies)
    if not 1 <= number <= total:
        raise InvalidValue(
            f"number = {number} is not in [1, {total}]: there are {total} groups of {bodies} among {sites} sites."
        )
    if total <= 200_000:
        every = np.array(list(itertools.combinations(range(sites), bodies)))
        return every[np.sort(rng.choice(total, number, replace=False))]
    found: set[tuple[int, ...]] = set()
    while len(found) < number:
        found.add(tuple(sorted(rng.choice(sites, bodies, replace=False).tolist())))
    return np.array(sorted(found))


def standard_potts(colours: int) -> Float[Array, "C C"]:
    """Equal colours attract, others do not: the identity with rows shifted to sum to zero."""
    return jnp.eye(colours) - 1.0 / colours


def random_symmetric(key: PRNGKeyArray, colours: int, bodies: int = 2) -> Float[Array, "..."]:
    """A symmetrised Gaussian array of `bodies` dimensions, as an interaction of that many bodies.

    Two bodies: (X + Xᵀ)/2, the convention of factored attention; more: the sum over permutations divided by √p!.
    """
    raw = jax.random.normal(key, (colours,) * bodies)
    total = jnp.zeros_like(raw)
    for order in itertools.permutations(range(bodies)):
        total = total + jnp.transpose(raw, order)
    return total / (2.0 if bodies == 2 else math.sqrt(math.factorial(bodies)))


def zero_sum_colours(colours: Float[Array, "C C"]) -> Float[Array, "C C"]:
    """The same interaction of colours in zero-sum gauge: rows and columns sum to zero.

    >>> bool(jnp.allclose(zero_sum_colours(jnp.arange(9.0).reshape(3, 3)).sum(0), 0.0))
    True
    """
    rows = colours - jnp.mean(colours, axis=0, keepdims=True)
    return rows - jnp.mean(rows, axis=1, keepdims=True)


# --- laws ---------------------------------------------------------------------------------------------------------------


class ManyBody(eqx.Module):
    """log w(s) = β Σ_g J_g U[s_{g₁}, …, s_{g_p}] with U symmetric; made by `ManyBody.of_groups` or `of_matrix`.

    >>> law = ManyBody.of_matrix(ring(3), standard_potts(2), inverse_temperature=1.0)
    >>> [round(float(w), 3) for w in law.log_weights(jnp.array([[0, 0, 0], [0, 0, 1]]))]
    [1.5, -0.5]
    """

    groups: Int[Array, "T p"]
    strengths: Float[Array, " T"]
    partners: Int[Array, "L D q"]
    """The other p−1 sites of the groups of every site, padded to the largest number of groups."""
    pulls: Float[Array, "L D"]
    """βJ of these groups; zero for padding."""
    degrees: Int[Array, " L"]
    """How many groups each site belongs to."""
    table: Float[Array, "..."]
    inverse_temperature: Float[Array, ""]
    factors: Float[Array, "rows C"] | None
    """exp βJ(U − largest in the row), if all groups have equal strength and no product of them can underflow: multiplying
    these saves the sampler its exponentials, most of its time."""
    products: tuple[Float[Array, "couples C"], Int[Array, "L K 2"]] | None
    """For groups of two and few colours, the factors of two partners at once (their colours a and b select row
    a(C + 1) + b, with colour C for none), and the partners of every site in pairs, with L for none."""

    @classmethod
    def of_groups(cls, sites: int, groups, table, strengths=None, inverse_temperature=1.0) -> ManyBody:
        """Make a law from a concrete list of groups of sites, a symmetric array of colours and one strength per group."""
        groups = np.asarray(groups)
        if groups.ndim != 2 or (groups.size and (groups.min() < 0 or groups.max() >= sites)):
            raise InvalidValue(f"groups must all have the same number of sites, each in [0, {sites - 1}].")
        table = jnp.asarray(table)
        if groups.shape[1] != table.ndim or len(set(table.shape)) != 1:
            raise InvalidValue(
                f"groups of {groups.shape[1]} sites need an array of {groups.shape[1]} equal dimensions, not {table.shape}."
            )
        strengths = jnp.ones(len(groups), table.dtype) if strengths is None else jnp.asarray(strengths, table.dtype)
        beta = jnp.asarray(inverse_temperature, table.dtype)
        belongs = [np.flatnonzero((groups == i).any(1)) for i in range(sites)]
        most = max(1, *(len(b) for b in belongs))
        partners = np.zeros((sites, most, groups.shape[1] - 1), np.int32)
        which = np.full((sites, most), -1)
        for i, mine in enumerate(belongs):
            which[i, : len(mine)] = mine
            for slot, g in enumerate(mine):
                partners[i, slot] = groups[g][groups[g] != i]
        pulls = jnp.where(which >= 0, beta * strengths[jnp.asarray(np.maximum(which, 0))], 0.0)
        degrees = (which >= 0).sum(1)
        factors = None
        if not any(isinstance(x, Tracer) for x in (table, strengths, beta)) and len(groups):
            pull, rows = beta * strengths[0], table.reshape(-1, table.shape[0])
            rows = pull * rows - jnp.max(pull * rows, axis=1, keepdims=True)
            if bool(jnp.all(strengths == strengths[0])) and most * float(-jnp.min(rows)) < LARGEST_EXPONENT:
                factors = jnp.exp(rows)
        products = None
        if factors is not None and groups.shape[1] == 2 and len(factors) <= MOST_COLOURS:
            none = jnp.concatenate([factors, jnp.ones_like(factors[:1])])
            couples = np.where(which >= 0, partners[:, :, 0], sites)
            couples = np.pad(couples, ((0, 0), (0, most % 2)), constant_values=sites).reshape(sites, -1, 2)
            products = (none[:, None] * none[None]).reshape(-1, factors.shape[1]), jnp.asarray(couples, jnp.int32)
        return cls(
            jnp.asarray(groups, jnp.int32), strengths, jnp.asarray(partners), pulls,
            jnp.asarray(degrees, jnp.int32), table, beta, factors, products)  # fmt: skip

    @classmethod
    def of_matrix(cls, couplings, colours, inverse_temperature=1.0) -> ManyBody:
        """Make a law from a concrete symmetric matrix J of pair couplings; its diagonal is ignored."""
        matrix = np.asarray(couplings)
        if not np.allclose(matrix, matrix.T):
            raise InvalidValue("couplings must be a symmetric matrix.")
        i, j = np.nonzero(np.triu(matrix, 1))
        return cls.of_groups(len(matrix), np.stack([i, j], 1), colours, matrix[i, j], inverse_temperature)

    @property
    def sites(self) -> int:
        return self.partners.shape[0]

    @property
    def colours(self) -> int:
        return self.table.shape[0]

    @property
    def dtype(self):
        return self.table.dtype

    def log_weights(self, states: Int[Array, "n L"]) -> Float[Array, " n"]:
        """Logarithm of the unnormalised probability of every state, summed group by group."""
        flat = self.table.reshape(-1)
        columns = jnp.asarray(states, jnp.int32).T

        def add(total, group):
            members, strength = group
            index = jnp.zeros(columns.shape[1], jnp.int32)
            for k in range(members.shape[0]):
                index = index * self.colours + columns[members[k]]
            return total + strength * flat[index], None

        total, _ = jax.lax.scan(add, jnp.zeros(columns.shape[1], self.dtype), (self.groups, self.strengths))
        return self.inverse_temperature * total

    # The sampler works on the states, sites first, followed by the one that represents no partner.
    def begin(self, states: Int[Array, "n L"]) -> Int[Array, "rows n"]:
        columns = jnp.asarray(states, jnp.int32).T
        return jnp.concatenate([columns, jnp.full_like(columns[:1], self.colours)])

    def logits(self, work: Int[Array, "rows n"], site: Int[Array, ""]) -> Float[Array, "n C"]:
        rows = self.table.reshape(-1, self.colours)

        def add(slot, total):
            return total + self.pulls[site, slot] * rows[self._index(work, site, slot)]

        return self._over_groups(site, add, jnp.zeros((work.shape[1], self.colours), self.dtype))

    def weights(self, work: Int[Array, "rows n"], site: Int[Array, ""]) -> Float[Array, "n C"] | None:
        """The conditional's weights up to a factor, if products give them without exponentials; otherwise None."""
        if self.factors is None:
            return None
        if self.products is None:
            return self._weights_one_by_one(work, site)
        # An accelerator is faster with the small table: its units share a cache.
        return jax.lax.platform_dependent(
            work,
            cpu=lambda work: self._weights_two_by_two(work, site),
            default=lambda work: self._weights_one_by_one(work, site),
        )

    def _weights_one_by_one(self, work: Int[Array, "rows n"], site: Int[Array, ""]) -> Float[Array, "n C"]:
        factors = self.factors
        assert factors is not None

        def multiply(slot, total):
            row = factors[self._index(work, site, slot)]
            return total * jnp.where(slot < self.degrees[site], row, 1.0)

        return self._over_groups(site, multiply, jnp.ones((work.shape[1], self.colours), self.dtype))

    def _weights_two_by_two(self, work: Int[Array, "rows n"], site: Int[Array, ""]) -> Float[Array, "n C"]:
        assert self.products is not None
        table, couples = self.products

        def both(turn):
            colours = work[couples[site, turn]]
            return table[colours[0] * (self.colours + 1) + colours[1]]

        turns = (self.degrees[site] + 1) // 2
        return self._over(lambda turn, total: total * both(turn), both(0), 1, turns, couples.shape[1])

    def _index(self, work: Int[Array, "rows n"], site: Int[Array, ""], slot: Any) -> Int[Array, " n"]:
        """The row of the table that the other members of a group select, chain by chain."""
        index = jnp.zeros(work.shape[1], jnp.int32)
        for k in range(self.partners.shape[2]):
            index = index * self.colours + work[self.partners[site, slot, k]]
        return index

    def _over_groups(self, site: Int[Array, ""], body: Any, start: Array) -> Array:
        return self._over(body, start, 0, self.degrees[site], self.partners.shape[1])

    @staticmethod
    def _over(body: Any, start: Array, first: int, number: Int[Array, ""], most: int) -> Array:
        """A loop over a site's groups: as many iterations as it needs on a CPU, the padded number elsewhere."""

        def padded(start):
            return jax.lax.fori_loop(first, most, body, start, unroll=most <= 16)

        def counted(start):
            return jax.lax.fori_loop(first, number, body, start)

        return jax.lax.platform_dependent(start, cpu=counted, default=padded)

    def assign(
        self, work: Int[Array, "rows n"], site: Int[Array, ""], colours: Int[Array, " n"]
    ) -> Int[Array, "rows n"]:
        return work.at[site].set(colours)

    def states(self, work: Int[Array, "rows n"]) -> Int[Array, "n L"]:
        return work[:-1].T


class Factored(eqx.Module):
    """log w(s) = β Σ_{i<j} J_ij U[s_i, s_j] with most J_ij ≠ 0: the sampler carries U s_j of every site.

    >>> law = Factored(ring(3), standard_potts(2), jnp.asarray(1.0))
    >>> round(float(law.log_weights(jnp.array([[0, 0, 0]]))[0]), 3)
    1.5
    """

    couplings: Float[Array, "L L"]
    colour_matrix: Float[Array, "C C"]
    inverse_temperature: Float[Array, ""]

    @property
    def sites(self) -> int:
        return self.couplings.shape[0]

    @property
    def colours(self) -> int:
        return self.colour_matrix.shape[0]

    @property
    def dtype(self):
        return self.colour_matrix.dtype

    def log_weights(self, states: Int[Array, "n L"]) -> Float[Array, " n"]:
        off = jnp.where(jnp.eye(self.sites, dtype=bool), 0.0, self.couplings)

        def one(state):
            hot = jax.nn.one_hot(state, self.colours, dtype=self.dtype)
            return 0.5 * self.inverse_temperature * jnp.sum((off @ hot) * self.colour_matrix[state])

        return jax.lax.map(one, jnp.asarray(states, jnp.int32), batch_size=256)

    def begin(self, states: Int[Array, "n L"]):
        columns = jnp.asarray(states, jnp.int32).T
        return columns, self.colour_matrix[columns].astype(self.dtype)

    def logits(self, work, site: Int[Array, ""]) -> Float[Array, "n C"]:
        row = self.couplings[site].at[site].set(0.0)
        return self.inverse_temperature * jnp.einsum("j,jnc->nc", row, work[1])

    def weights(self, work: Any, site: Int[Array, ""]) -> None:
        """Exponentials are needed here."""
        return None

    def assign(self, work, site: Int[Array, ""], colours: Int[Array, " n"]):
        return work[0].at[site].set(colours), work[1].at[site].set(self.colour_matrix[colours])

    def states(self, work) -> Int[Array, "n L"]:
        return work[0].T


class Dense(eqx.Module):
    """log w(s) = Σ_i h[i, s_i] + Σ_{i<j} W[i, s_i, j, s_j], W symmetric under exchange of (i, a) and (j, b)."""

    fields: Float[Array, "L C"]
    couplings: Float[Array, "L C L C"]

    @property
    def sites(self) -> int:
        return self.fields.shape[0]

    @property
    def colours(self) -> int:
        return self.fields.shape[1]

    @property
    def dtype(self):
        return self.fields.dtype

    def log_weights(self, states: Int[Array, "n L"]) -> Float[Array, " n"]:
        site = jnp.arange(self.sites)

        def one(state):
            hot = jax.nn.one_hot(state, self.colours, dtype=self.dtype).reshape(-1)
            matrix = self.couplings.reshape(hot.size, hot.size)
            return jnp.sum(self.fields[site, state]) + 0.5 * hot @ (matrix @ hot)

        return jax.lax.map(one, states, batch_size=64)

    def begin(self, states: Int[Array, "n L"]) -> Float[Array, "n L C"]:
        return jax.nn.one_hot(states, self.colours, dtype=self.dtype)

    def logits(self, work: Float[Array, "n L C"], site: Int[Array, ""]) -> Float[Array, "n C"]:
        size = self.sites * self.colours
        return self.fields[site][None, :] + work.reshape(-1, size) @ self.couplings[site].reshape(-1, size).T

    def weights(self, work: Any, site: Int[Array, ""]) -> None:
        """Exponentials are needed here."""
        return None

    def assign(self, work: Float[Array, "n L C"], site: Int[Array, ""], colours: Int[Array, " n"]):
        return work.at[:, site].set(jax.nn.one_hot(colours, self.colours, dtype=self.dtype))

    def states(self, work: Float[Array, "n L C"]) -> Int[Array, "n L"]:
        return jnp.argmax(work, axis=2).astype(jnp.int32)


Law = ManyBody | Factored | Dense


# --- exact statistics -----------------------------------------------------------------------------------------------------


def conditionals(law: Law, states: Int[Array, "n L"]) -> Float[Array, "n L C"]:
    """log P(s_i = a | all other sites) for every site, colour and sequence."""
    work: Any = law.begin(states)
    site = jnp.arange(law.sites)
    logits = jax.lax.map(lambda i: law.logits(work, i), site)
    return jnp.moveaxis(jax.nn.log_softmax(logits, axis=-1), 0, 1)


def optimal_loss(law: Law, states: Int[Array, "n L"]) -> Float[Array, ""]:
    """Masked-token loss of the true conditionals on these sequences, in nats per site: on average the lowest possible.

    >>> law = ManyBody.of_matrix(ring(4), standard_potts(3), inverse_temperature=0.0)
    >>> round(float(optimal_loss(law, jnp.zeros((2, 4), int))), 6)                  # log 3
    1.098612
    """
    own = jnp.take_along_axis(conditionals(law, states), jnp.asarray(states, jnp.int32)[..., None], axis=-1)
    return -jnp.mean(own)


def every_state(sites: int, colours: int) -> Int[np.ndarray, "n L"]:
    """All C^L sequences, the last site varying fastest; raises `InvalidValue` above a million.

    >>> every_state(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    total = colours**sites
    if total > MOST_STATES:
        raise InvalidValue(
            f"{colours} colours on {sites} sites have {total} states, more than the {MOST_STATES} that can be enumerated."
        )
    number = np.arange(total)
    return np.stack([(number // colours ** (sites - 1 - i)) % colours for i in range(sites)], 1).astype(np.int32)


def enumerated(law: Law) -> tuple[Int[np.ndarray, "n L"], Float[Array, " n"]]:
    """All states and the logarithms of their exact probabilities."""
    states = every_state(law.sites, law.colours)
    return states, jax.nn.log_softmax(law.log_weights(jnp.asarray(states)))


def sample_enumerated(law: Law, key: PRNGKeyArray, number: int) -> Int[Array, "n L"]:
    """Independent sequences, drawn exactly from the enumerated distribution."""
    states, log_probability = enumerated(law)
    cumulative = jnp.cumsum(jnp.exp(log_probability.astype(float)))
    where = jnp.searchsorted(cumulative, jax.random.uniform(key, (number,)) * cumulative[-1])
    return jnp.asarray(states)[jnp.minimum(where, len(states) - 1)]


def sample_star(
    key: PRNGKeyArray, arms: Float[Array, " N"], colours: Float[Array, "C C"], number: int
) -> Int[Array, "n L"]:
    """Independent sequences of the star with couplings βJ_j = `arms`: the centre first, then each arm independently.

    P(s_0 = y) ∝ Π_j Σ_c exp(arms_j U[y, c]); given it, s_j ∝ exp(arms_j U[y, s_j]).
    """
    first, second = jax.random.split(key)
    logits = arms[:, None, None] * colours[None, :, :]
    centre = jax.random.categorical(first, jnp.sum(jax.nn.logsumexp(logits, axis=2), axis=0), shape=(number,))
    below = jnp.cumsum(jax.nn.softmax(logits, axis=2), axis=2)[:, :, :-1]
    uniform = jax.random.uniform(second, (number, arms.shape[0]), dtype=logits.dtype)
    # Colour by colour, so that no array of size number × N × C is needed.
    leaves = jnp.zeros(uniform.shape, jnp.int32)
    for c in range(colours.shape[0] - 1):
        leaves = leaves + (uniform > below[:, :, c].T[centre]).astype(jnp.int32)
    return jnp.concatenate([centre[:, None].astype(jnp.int32), leaves], axis=1)
