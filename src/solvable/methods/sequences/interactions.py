"""Many-body interactions: exact floors of the masked-token loss, and laws of every order.

**Floors.** ℓ_p is the smallest masked-token loss (nats, mean over hidden sites) of conditionals with up to p bodies:
log P(s_i = a | rest) a polynomial of degree ≤ p−1 in the indicators 1[s_j = c], c = 1…C−1, of the other sites. This is a
convex problem, solved here over all contexts by damped (Levenberg–Marquardt) Newton steps; half the squared Newton
decrement estimates the remaining gain. At p = L the polynomial is any function and ℓ_L the loss of the true conditionals.

**Training.** `PopulationLoss` is the exact masked-token loss of a network on a law, a weighted sum over all contexts.

**Laws.** `SumOfBodies` adds many-body laws of different orders; `TablesOfGroups` is fitted to data; `maximum_entropy` is exact.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...errors import InvalidValue
from ..fixed_points.linear_algebra import solve_positive
from ..training.loops import logits_at_hidden_site
from .potts import ManyBody, every_state

LEAST_DAMPING = 1e-14
"""Smallest number added to the Hessian's diagonal, which has null directions if the data are separable."""


# --- polynomials of indicators --------------------------------------------------------------------------------------------


def monomial_count(sites: int, colours: int, degree: int) -> int:
    """The number of monomials of degree ≤ `degree` in C−1 indicators of each of `sites` sites.

    >>> [monomial_count(5, 3, k) for k in range(6)]
    [1, 11, 51, 131, 211, 243]
    """
    return sum(math.comb(sites, k) * (colours - 1) ** k for k in range(min(degree, sites) + 1))


def indicator_features(contexts: Int[np.ndarray, "n K"], colours: int, degree: int) -> Float[np.ndarray, "n features"]:
    """All monomials of degree ≤ `degree` in the indicators 1[s_j = c], c = 1…C−1, one column each, the constant first.

    >>> indicator_features(np.array([[0, 0], [1, 0], [1, 1]]), 2, 2).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    """
    number, sites = contexts.shape
    hot = (contexts[:, :, None] == np.arange(1, colours)[None, None, :]).astype(float)
    columns = [np.ones((number, 1))]
    for order in range(1, min(degree, sites) + 1):
        for group in itertools.combinations(range(sites), order):
            product = np.ones((number, 1))
            for j in group:
                product = (product[:, :, None] * hot[:, j, None, :]).reshape(number, -1)
            columns.append(product)
    return np.concatenate(columns, 1)


def group_features(contexts: Int[np.ndarray, "n K"], colours: int, groups: Any) -> Float[np.ndarray, "n features"]:
    """One indicator for every colouring of every group of sites: redundant, one for each entry of the tables.

    >>> group_features(np.array([[0, 1]]), 2, [(0,), (0, 1)]).astype(int).tolist()
    [[1, 0, 0, 1, 0, 0]]
    """
    hot = np.eye(colours)[contexts]
    columns = []
    for group in groups:
        product = np.ones((len(contexts), 1))
        for j in group:
            product = (product[:, :, None] * hot[:, j, None, :]).reshape(len(contexts), -1)
        columns.append(product)
    return np.concatenate(columns, 1)


# --- the convex problem ---------------------------------------------------------------------------------------------------


class SoftmaxFit(NamedTuple):
    """Weights of a multinomial regression, with loss and certificate."""

    weights: Float[Array, "features others"]
    """Logits of colours 1…C−1 are features @ weights; that of colour 0 is zero."""
    loss: Float[Array, ""]
    """Σ over rows and colours of −target · log probability."""
    gap: Float[Array, ""]
    """Half the squared Newton decrement: the remaining gain to second order."""
    converged: Bool[Array, ""]
    steps: Int[Array, ""]


def softmax_logits(
    features: Float[Array, "n features"], weights: Float[Array, "features others"]
) -> Float[Array, "n C"]:
    """Logits with that of colour 0 fixed to zero."""
    return jnp.pad(features @ weights, ((0, 0), (1, 0)))


def cross_entropy(
    features: Float[Array, "n features"], weights: Float[Array, "features others"], targets: Float[Array, "n C"]
) -> Float[Array, ""]:
    """−Σ targets · log softmax(features @ weights); targets are joint weights of row and colour."""
    return -jnp.sum(targets * jax.nn.log_softmax(softmax_logits(features, weights), axis=1))


def fit_softmax(
    features: Float[Array, "n features"],
    targets: Float[Array, "n C"],
    *,
    penalty: Any = 0.0,
    tolerance: float = 1e-12,
    most_steps: int = 200,
) -> SoftmaxFit:
    """Minimise the cross-entropy + ½ penalty |weights|² by damped Newton steps, in double precision.

    Damping falls a hundredfold after a step that lowers the loss; other steps are rejected and raise it tenfold.

    Rows without weight are ignored. If the targets are separable the infimum is not attained: weights then grow until
    the remaining gain is below the tolerance (`converged`).

    >>> fit = fit_softmax(jnp.ones((1, 1)), jnp.array([[0.5, 0.25, 0.25]]))
    >>> round(float(fit.loss), 10), bool(fit.converged)                     # an entropy: 1.5 log 2
    (1.0397207708, True)
    """
    others = targets.shape[1] - 1
    count = features.shape[1] * others
    row_weight = jnp.sum(targets, axis=1)
    total = jnp.sum(row_weight)
    least, most = LEAST_DAMPING * total, 1e6 * total

    def value(weights):
        return cross_entropy(features, weights, targets) + 0.5 * penalty * jnp.sum(weights**2)

    def newton(weights, damping):
        chance = jax.nn.softmax(softmax_logits(features, weights), axis=1)
        slope = (features.T @ (row_weight[:, None] * chance - targets)[:, 1:] + penalty * weights).reshape(-1)
        own = chance[:, 1:]
        bend = row_weight[:, None, None] * (jnp.eye(others)[None] * own[:, :, None] - own[:, :, None] * own[:, None, :])
        spread = (bend[:, :, :, None] * features[:, None, None, :]).reshape(features.shape[0], -1)
        hessian = (features.T @ spread).reshape(-1, others, others, features.shape[1])
        hessian = jnp.transpose(hessian, (0, 1, 3, 2)).reshape(count, count)
        step = solve_positive(hessian + (penalty + damping) * jnp.eye(count), slope)
        return step.reshape(weights.shape), 0.5 * jnp.sum(step * slope)

    def go_on(state):
        _, _, _, done, steps = state
        return ~done & (steps < most_steps)

    def improve(state):
        weights, height, damping, _, steps = state
        step, gap = newton(weights, damping)
        tried = weights - step
        reached = value(tried)
        better = reached <= height + 1e-15 * (1.0 + jnp.abs(height))
        # Only a nearly undamped step estimates the remaining gain.
        done = better & (gap <= tolerance * total) & (damping <= 10 * least)
        damping = jnp.where(better, jnp.maximum(damping / 100, least), jnp.minimum(damping * 10, most))
        return jnp.where(better, tried, weights), jnp.where(better, reached, height), damping, done, steps + 1

    begin = jnp.zeros((features.shape[1], others))
    state = (begin, value(begin), 1e-3 * total, jnp.asarray(False), jnp.asarray(0))
    weights, _, _, done, steps = jax.lax.while_loop(go_on, improve, state)
    gap = newton(weights, 10 * least)[1] / total
    return SoftmaxFit(weights, cross_entropy(features, weights, targets), gap, done, steps)


# --- floors ---------------------------------------------------------------------------------------------------------------


class Floors(NamedTuple):
    """ℓ_1, ℓ_2, … of a distribution, the loss of its true conditionals, and the certificate."""

    floors: Float[Array, " order"]
    optimal: Float[Array, ""]
    gaps: Float[Array, " order"]
    converged: Bool[Array, " order"]
    weights: Float[Array, "order L features others"]
    """Weights of the best conditionals, site by site, for the features of the largest order (see `indicator_features`)."""


def conditional_tables(probability: Float[Array, " states"], sites: int, colours: int) -> Float[Array, "L contexts C"]:
    """P(context, s_i) of every site i, from the probabilities of all states in the order of `every_state`."""
    cube = probability.reshape((colours,) * sites)
    return jnp.stack([jnp.moveaxis(cube, i, -1).reshape(-1, colours) for i in range(sites)])


def optimal_conditional_loss(tables: Float[Array, "L contexts C"]) -> Float[Array, ""]:
    """Loss of the true conditionals, mean over sites: −Σ P(s) log P(s_i | rest)."""
    total = jnp.sum(tables, axis=2, keepdims=True)
    # Contexts that never occur, and colours that never occur in a context, contribute nothing.
    ratio = jnp.where(tables > 0, tables / jnp.where(total > 0, total, 1.0), 1.0)
    return -jnp.sum(tables * jnp.log(ratio)) / tables.shape[0]


def interaction_floors(
    probability: Float[Array, " states"],
    sites: int,
    colours: int,
    orders: int,
    *,
    tolerance: float = 1e-12,
    most_steps: int = 200,
) -> Floors:
    """ℓ_1 … ℓ_orders of a distribution given by the probabilities of all its states (in the order of `every_state`).

    Differentiable in the probabilities: at the minimum the weights may be held fixed. Floors that did not converge are NaN.

    >>> from solvable.methods.sequences.potts import ManyBody, enumerated, ring, standard_potts
    >>> law = ManyBody.of_matrix(ring(4), standard_potts(2), inverse_temperature=1.0)
    >>> found = interaction_floors(jnp.exp(enumerated(law)[1]), 4, 2, 3)
    >>> [round(float(x), 6) for x in found.floors], round(float(found.optimal), 6)     # two bodies are enough
    ([0.693147, 0.462289, 0.462289], 0.462289)
    """
    if not 1 <= orders <= sites:
        raise InvalidValue(f"orders = {orders} is not in [1, {sites}], the number of sites.")
    tables = conditional_tables(probability, sites, colours)
    optimal = optimal_conditional_loss(tables)
    features = indicator_features(every_state(sites - 1, colours), colours, orders - 1)

    def of_order(order):
        # The monomials of lower order come first. Without any, the frequencies of the colours are optimal.
        count = monomial_count(sites - 1, colours, order - 1)
        columns, rows = (jnp.asarray(features[:, :count]), tables) if order > 1 else (jnp.ones((1, 1)), own)

        def of_site(table):
            fit = fit_softmax(columns, jax.lax.stop_gradient(table), tolerance=tolerance, most_steps=most_steps)
            return fit, cross_entropy(columns, fit.weights, table)

        fit, losses = jax.vmap(of_site)(rows)
        done = jnp.all(fit.converged)
        weights = jnp.pad(fit.weights, ((0, 0), (0, features.shape[1] - count), (0, 0)))
        return jnp.mean(losses) * jnp.where(done, 1.0, jnp.nan), jnp.max(fit.gap), done, weights

    own = jnp.sum(tables, axis=1, keepdims=True)
    floors, gaps, done, weights = zip(*(of_order(order) for order in range(1, orders + 1)), strict=True)
    return Floors(jnp.stack(floors), optimal, jnp.stack(gaps), jnp.stack(done), jnp.stack(weights))


# --- exact training --------------------------------------------------------------------------------------------------------


def population_rows(probability: Any, sites: int, colours: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every state with one site hidden, once: tokens, masks and P(context, s_i)/L as targets, for training on a law.

    >>> tokens, masks, targets = population_rows(np.full(8, 1 / 8), 3, 2)
    >>> tokens.shape, int(masks.sum()), float(targets.sum())
    ((12, 3), 12, 1.0)
    """
    contexts = every_state(sites - 1, colours)
    tokens = np.concatenate([np.insert(contexts, i, 0, axis=1) for i in range(sites)])
    masks = np.repeat(np.eye(sites, dtype=bool), len(contexts), axis=0)
    tables = np.asarray(conditional_tables(jnp.asarray(probability), sites, colours))
    return tokens, masks, tables.reshape(-1, colours) / sites


class PopulationLoss(eqx.Module):
    """Exact masked-token loss of a network on a law, for `training.train`; `data` come from `population_rows`."""

    def __call__(self, network: Any, data: Any, key: Any = None) -> Float[Array, ""]:
        tokens, masks, targets = data
        logits = jax.vmap(lambda row, mask: logits_at_hidden_site(network, row, mask))(tokens, masks)
        return -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1))


# --- sums of laws, and laws to fit ------------------------------------------------------------------------------------------


class _SitesFirst(eqx.Module):
    """The chains of a sampler as rows of sites, for laws whose logits are computed afresh at every site."""

    def begin(self, states: Int[Array, "n L"]) -> Int[Array, "L n"]:
        return jnp.asarray(states, jnp.int32).T

    def weights(self, work: Any, site: Any) -> None:
        """Exponentials are needed here."""
        return None

    def assign(self, work: Int[Array, "L n"], site: Any, colours: Int[Array, " n"]) -> Int[Array, "L n"]:
        return work.at[site].set(colours)

    def states(self, work: Int[Array, "L n"]) -> Int[Array, "n L"]:
        return work.T


class SumOfBodies(_SitesFirst):
    """log w(s) = Σ of the log-weights of several many-body laws on the same sites, of any orders and strengths.

    >>> from solvable.methods.sequences.potts import ring, standard_potts
    >>> pair = ManyBody.of_matrix(ring(4), standard_potts(2), 1.0)
    >>> round(float(SumOfBodies((pair, pair)).log_weights(jnp.array([[0, 0, 0, 0]]))[0]), 6)
    4.0
    """

    parts: tuple[ManyBody, ...]

    @property
    def sites(self) -> int:
        return self.parts[0].sites

    @property
    def colours(self) -> int:
        return self.parts[0].colours

    @property
    def dtype(self):
        return self.parts[0].dtype

    def log_weights(self, states: Int[Array, "n L"]) -> Float[Array, " n"]:
        total = self.parts[0].log_weights(states)
        for part in self.parts[1:]:
            total = total + part.log_weights(states)
        return total

    def logits(self, work: Int[Array, "L n"], site: Any) -> Float[Array, "n C"]:
        total = self.parts[0].logits(work, site)
        for part in self.parts[1:]:
            total = total + part.logits(work, site)
        return total


def subgroups(groups: Any, order: int) -> Int[np.ndarray, "T order"]:
    """All sets of `order` sites that lie within one of the groups, each once.

    >>> subgroups([(0, 1, 2), (1, 2, 3)], 2).tolist()
    [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    """
    return np.array(
        sorted({tuple(sorted(s)) for g in np.asarray(groups).tolist() for s in itertools.combinations(g, order)})
    )


class TablesOfGroups(_SitesFirst):
    """log w(s) = Σ_g θ_g[s_{g₁}, …] with a separate table for every group of sites, of any order: a law to be fitted.

    >>> law = TablesOfGroups.zeros(3, 2, [[(0,), (1,), (2,)], [(0, 1), (1, 2)]])
    >>> law.logits(law.begin(jnp.zeros((4, 3), int)), jnp.asarray(1)).shape
    (4, 2)
    """

    tables: tuple[Float[Array, "_ _"], ...]
    """For every order: group × cells. (Shapes differ between orders, so they are not named here.)"""
    groups: tuple[Int[Array, "_ _"], ...]
    members: tuple[Int[Array, "_ _"], ...]
    """The groups of every site, for every order; −1 for padding."""
    partners: tuple[Int[Array, "_ _ _"], ...]
    strides: tuple[Int[Array, "_ _ _"], ...]
    """Stride of a partner's colour in the table; zero for the site itself."""
    own: tuple[Int[Array, "_ _"], ...]
    sites: int = eqx.field(static=True)
    colours: int = eqx.field(static=True)

    @classmethod
    def zeros(cls, sites: int, colours: int, groups: Any, dtype: Any = jnp.float32) -> TablesOfGroups:
        """All tables zero, for lists of groups, one list for each order."""
        columns: list[list[Any]] = [[] for _ in range(6)]
        for each in groups:
            each = np.asarray(each)
            bodies = each.shape[1]
            steps = colours ** np.arange(bodies - 1, -1, -1)
            belongs = [np.argwhere(each == i) for i in range(sites)]
            most = max(1, *(len(b) for b in belongs))
            members = np.full((sites, most), -1)
            partners, strides = np.zeros((2, sites, most, bodies), int)
            own = np.zeros((sites, most), int)
            for i, found in enumerate(belongs):
                for slot, (group, place) in enumerate(found):
                    members[i, slot], own[i, slot] = group, steps[place]
                    partners[i, slot] = each[group]
                    strides[i, slot] = np.where(np.arange(bodies) == place, 0, steps)
            table = jnp.zeros((len(each), colours**bodies), dtype)
            whole = (jnp.asarray(x, jnp.int32) for x in (each, members, partners, strides, own))
            for column, x in zip(columns, (table, *whole), strict=True):
                column.append(x)
        tables, each, members, partners, strides, own = (tuple(c) for c in columns)
        return cls(tables, each, members, partners, strides, own, sites, colours)

    @property
    def dtype(self):
        return self.tables[0].dtype

    def log_weights(self, states: Int[Array, "n L"]) -> Float[Array, " n"]:
        columns = jnp.asarray(states, jnp.int32).T
        total = jnp.zeros(columns.shape[1], self.dtype)
        for table, groups in zip(self.tables, self.groups, strict=True):
            index = jnp.zeros((groups.shape[0], columns.shape[1]), jnp.int32)
            for k in range(groups.shape[1]):
                index = index * self.colours + columns[groups[:, k]]
            total = total + jnp.sum(jnp.take_along_axis(table, index, axis=1), axis=0)
        return total

    def logits(self, work: Int[Array, "L n"], site: Any) -> Float[Array, "n C"]:
        total = jnp.zeros((work.shape[1], self.colours), self.dtype)
        colour = jnp.arange(self.colours, dtype=jnp.int32)[None, None, :]
        parts = zip(self.tables, self.members, self.partners, self.strides, self.own, strict=True)
        for table, members, partners, strides, own in parts:
            member = members[site]
            index = jnp.sum(strides[site][:, :, None] * work[partners[site]], axis=1, dtype=jnp.int32)
            first = jnp.maximum(member, 0) * table.shape[1]
            cells = (index + first[:, None])[:, :, None] + own[site][:, None, None] * colour
            found = table.reshape(-1)[cells]
            total = total + jnp.sum(jnp.where(member[:, None, None] >= 0, found, 0.0), axis=0)
        return total


class GroupPseudoLikelihood(eqx.Module):
    """Masked-token loss of a law's conditionals at all sites of a batch of sequences, for `training.train`."""

    batch: int = eqx.field(static=True)
    ridge: float = eqx.field(static=True, default=0.0)

    def __call__(self, law: TablesOfGroups, data: Int[Array, "n L"], key: Any) -> Float[Array, ""]:
        rows = data[(jax.random.bits(key, (self.batch,), jnp.uint32) % np.uint32(data.shape[0])).astype(jnp.int32)]
        return law_loss(law, rows) + self.ridge * sum(jnp.sum(t**2) for t in law.tables)


def law_loss(law: Any, sequences: Int[Array, "n L"]) -> Float[Array, ""]:
    """Masked-token loss of a law's conditionals on some sequences, in nats per site."""
    work = law.begin(sequences)
    logits = jax.vmap(lambda i: law.logits(work, i))(jnp.arange(law.sites))
    own = jnp.take_along_axis(
        jax.nn.log_softmax(logits, axis=2), jnp.asarray(sequences, jnp.int32).T[..., None], axis=2
    )
    return -jnp.mean(own)


def log_probabilities(law: Any) -> Float[Array, " states"]:
    """Logarithms of the exact probabilities of all states of any law, in the order of `every_state`."""
    return jax.nn.log_softmax(law.log_weights(jnp.asarray(every_state(law.sites, law.colours))))


def maximum_entropy(
    probability: Any, sites: int, colours: int, order: int, *, tolerance: float = 1e-12, most_rounds: int = 5000
) -> Float[np.ndarray, " states"]:
    """The law of largest entropy among those with the same joint law of every `order` sites.

    Iterative proportional fitting matches the marginals in turn; the result is NaN if it did not converge.

    >>> coins = maximum_entropy(np.array([0.5, 0.0, 0.0, 0.5]), 2, 2, 1)        # each is fair; their agreement is lost
    >>> coins.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    cube = np.asarray(probability, float).reshape((colours,) * sites)
    law = np.full_like(cube, 1.0 / cube.size)
    others = [tuple(sorted(set(range(sites)) - set(g))) for g in itertools.combinations(range(sites), order)]
    wanted = [cube.sum(axes, keepdims=True) for axes in others]
    for _ in range(most_rounds):
        worst = 0.0
        for axes, target in zip(others, wanted, strict=True):
            now = law.sum(axes, keepdims=True)
            worst = max(worst, float(np.abs(now - target).max()))
            law = law * (target / np.where(now > 0, now, 1.0))
        if worst < tolerance:
            return law.reshape(-1)
    return np.full(law.size, np.nan)


def order_components(
    logits: Float[Array, "rows C"], sites: int, colours: int, orders: int
) -> Float[Array, "order rows C"]:
    """The parts of logits at `population_rows` that couple exactly 1, 2, … bodies, orthogonal over all contexts.

    The part of p bodies depends on p−1 visible sites and averages to zero over each of them (a Hoeffding, or ANOVA,
    decomposition over uniform contexts); colours are centred first, because a constant in all logits has no effect.

    >>> logits = jax.random.normal(jax.random.key(0), (12, 2))                  # three sites of two colours
    >>> parts = order_components(logits, 3, 2, 3)
    >>> bool(jnp.allclose(parts.sum(0), logits - logits.mean(1, keepdims=True)))
    True
    """
    centred = logits - jnp.mean(logits, axis=1, keepdims=True)
    cube = centred.reshape((sites,) + (colours,) * sites)
    parts = []
    for order in range(1, orders + 1):
        total = jnp.zeros_like(cube)
        for group in itertools.combinations(range(1, sites), order - 1):
            part = cube
            for axis in range(1, sites):
                mean = jnp.mean(part, axis=axis, keepdims=True)
                part = part - mean if axis in group else jnp.broadcast_to(mean, part.shape)
            total = total + part
        parts.append(total.reshape(centred.shape))
    return jnp.stack(parts)
