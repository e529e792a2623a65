"""Laws of sequences with interactions of several orders, and laws of lower order fitted to their samples."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.sequences.interactions import GroupPseudoLikelihood, SumOfBodies, TablesOfGroups, subgroups
from solvable.methods.sequences.potts import ManyBody, random_groups
from solvable.methods.training.loops import Optimiser, train


def pure_law(sites: int, colours: int, strengths: dict[int, float], seed: int) -> SumOfBodies:
    """Interactions of every order without lower-order parts: tables sum to zero over each of their colours."""
    rng, parts = np.random.default_rng(seed), []
    for order, strength in strengths.items():
        groups = np.array(list(itertools.combinations(range(sites), order)))
        raw = rng.normal(size=(colours,) * order)
        table = np.sum([np.transpose(raw, p) for p in itertools.permutations(range(order))], axis=0)
        for axis in range(order):
            table = table - table.mean(axis, keepdims=True)
        table = table / np.sqrt(np.mean(table**2))
        on = rng.uniform(size=len(groups)) < 0.5
        on[0] = True
        beta = strength / math.sqrt(on.sum())
        parts.append(ManyBody.of_groups(sites, groups[on], table, inverse_temperature=beta))
    return SumOfBodies(tuple(parts))


def planted_law(sites: int, colours: int, groups: int, strengths: dict[int, float], seed: int) -> SumOfBodies:
    """Sparse random groups of every order; one standard Gaussian for every multiset of colours.

    (Summing a Gaussian array over permutations instead makes equal colours interact √p! times as strongly: the law then
    freezes into one colour before it has any structure.)
    """
    rng, parts = np.random.default_rng(seed), []
    for order, strength in strengths.items():
        raw = rng.normal(size=(colours,) * order)
        lookup = np.sort(np.indices(raw.shape).reshape(order, -1), axis=0)
        table = jnp.asarray(raw[tuple(lookup)].reshape(raw.shape), jnp.float32)
        members = random_groups(rng, sites, order, groups)
        parts.append(ManyBody.of_groups(sites, members, table, inverse_temperature=strength))
    return SumOfBodies(tuple(parts))


def graph_laws(law: SumOfBodies, orders: int = 3) -> list[TablesOfGroups]:
    """Laws of one, two, ... `orders` bodies on the planted graph, all tables zero."""
    groups, empty = [np.asarray(part.groups) for part in law.parts], []
    for order in range(1, orders + 1):
        every = [np.arange(law.sites)[:, None]]
        for size in range(2, order + 1):
            found = [tuple(g) for part in groups if part.shape[1] >= size for g in subgroups(part, size).tolist()]
            every += [np.array(sorted(set(found)))] if found else []
        empty.append(TablesOfGroups.zeros(law.sites, law.colours, every))
    return empty


def graph_fits(
    law: SumOfBodies, data: Array, steps: int, batch: int, rate: float, ridge: float, orders: int = 3
) -> list[TablesOfGroups]:
    """These laws fitted by pseudo-likelihood: their losses bound the floors from above."""
    rule, loss = Optimiser("adam", rate=rate, steps=steps), GroupPseudoLikelihood(batch, ridge)
    return [
        train(begin, loss, data, rule, steps, jax.random.key(order), record=[steps], precision="default").network
        for order, begin in enumerate(graph_laws(law, orders), 1)
    ]
