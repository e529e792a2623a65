"""What conditionals of limited order can learn from many-body interactions: exact floors, fits, networks.

**Data.** Sequences of L sites and C colours, P(s) ∝ exp β[E_p(s) + w Σ_{q<p} E_q(s)], where E_q(s) = Σ_g U[s_{g₁}, …, s_{g_q}]/√n
over n groups g of q sites. `random`: U Gaussian, made symmetric over its q! permutations and divided by √q!, and every group
present with probability ½; `cosine`: U = cos Π(s_k + 1) over all groups, without the factor 1/√n.

**Learner.** Hide a site, predict it from all others. Conditionals of order p have logits of degree p−1 in the other
sites: a p-body interaction. Networks of N layers of factored attention with squares between them (`InteractionStack`)
reach 2^{N−1}+1 bodies.

**Theory** (M → ∞ sequences). ℓ_p, the smallest masked-token loss with p bodies: a convex problem over all C^{L−1}
contexts, solved with a certificate (`methods.sequences.interactions`). For p ≥ `bodies` it is the loss of the true
conditionals.

**Simulation.** Draw M sequences exactly; fit a sum of tables over all groups of p−1 sites (another, redundant
parametrisation, with a small ridge) by maximum likelihood; its loss on the population exceeds ℓ_p by O(1/M). The optimal
loss is measured on the drawn sequences; a network of `depth` layers is trained on them.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.errors import InvalidValue
from solvable.methods.sequences.interactions import (
    PopulationLoss,
    SumOfBodies,
    conditional_tables,
    cross_entropy,
    fit_softmax,
    group_features,
    interaction_floors,
    law_loss,
    log_probabilities,
    monomial_count,
    optimal_conditional_loss,
    population_rows,
)
from solvable.methods.sequences.potts import ManyBody, every_state
from solvable.methods.training.loops import Optimiser, train
from solvable.methods.training.squared_attention import InteractionStack
from solvable.model import Control, Guard, Model, Numerics, choice, control, dimension, observable

from .._interactions import SIMPLICITY
from .._papers import MAPPING, MASKED_REGRESSION

MOST_STATES = 20_000
MOST_WEIGHTS = 2_000
RIDGE = 0.1
HEADS, WIDTH, STEPS, RATE = 4, 12, 400, 1e-2

_population_loss = PopulationLoss()


@lru_cache(maxsize=32)
def planted(energy: str, sites: int, colours: int, bodies: int, instance: int) -> tuple[tuple[Any, ...], ...]:
    """(groups, table, strength of a group) of every order, `bodies` first, then down to pairs.

    Instance 0 with four bodies of three colours on six sites is the one tabulated in the tests.
    """
    rng, parts = np.random.default_rng(instance), []
    for order in range(bodies, 1, -1):
        groups = np.array(list(itertools.combinations(range(sites), order)))
        if energy == "cosine":
            factors = np.meshgrid(*[np.arange(1, colours + 1)] * order, indexing="ij")
            parts.append((groups, np.cos(np.prod(factors, axis=0)), 1.0))
            continue
        raw = rng.normal(size=(colours,) * order)
        every = [np.transpose(raw, p) for p in itertools.permutations(range(order))]
        table = np.sum(every, axis=0) / math.sqrt(math.factorial(order))
        on = rng.integers(0, 2, len(groups)).astype(bool)
        on = on if on.any() else ~on
        parts.append((groups[on], table, 1.0 / math.sqrt(on.sum())))
    return tuple(parts)


class ManyBodyBias(Model):
    """The simplicity bias of masked prediction: the lowest loss with pairs, triplets and quadruplets of tokens.

    >>> import solvable as sv
    >>> found = sv.ManyBodyBias(energy="cosine", inverse_temperature=0.5).theory()
    >>> [round(float(x), 4) for x in found.floor]
    [1.0961, 1.0252, 0.9283, 0.9219]
    """

    id = "many-body"
    title = "Many-body interactions and the order that a learner reaches"
    family = "attention"
    sentence = (
        "Tokens interact in pairs, triplets, quadruplets: the lowest masked-token loss of every order, and which "
        "learners reach it."
    )
    method = "exact floors by convex optimisation"
    numerics = Numerics(tolerance=1e-12, steps=200)
    runs = "host"
    theory_lanes = 1
    simulation_dtype = "float64"
    typical_sizes = (8000, 16000, 32000)
    theory_seconds = 5e-3
    simulation_seconds = 2.0
    simulation_growth = 0.0
    arms_declared = MappingProxyType({"1 layer": {"depth": 1}, "2 layers": {"depth": 2}, "3 layers": {"depth": 3}})
    check_study = ({"over": {"inverse_temperature": [0.5, 1.0]}, "values": {"depth": 0}, "seeds": 8},)
    guard = Guard(
        values={"energy": "cosine", "depth": 0},
        simulated_values={"sites": 3, "colours": 2, "bodies": 2},
        size=2000,
        seeds=4,
    )
    finite_size = 100.0  # a fit with P parameters on n sequences is about P/2n off, and P is in the hundreds
    references = (
        SIMPLICITY,
        MAPPING,
        MASKED_REGRESSION,
    )  # fmt: skip

    inverse_temperature: Control = control(
        1.0, low=0.0, high=10.0, typical=(0.0, 2.0), symbol=r"\beta",
        meaning="inverse temperature β of the law of sequences; 0 is white noise")  # fmt: skip
    lower_strength: Control = control(
        0.0, low=0.0, high=10.0, typical=(0.0, 1.0), symbol="w",
        meaning="strength of interactions of fewer bodies (pairs up to bodies − 1) relative to those of `bodies`")  # fmt: skip
    sites: int = choice(5, low=3, high=12, symbol="L", meaning="number of sites of a sequence")
    colours: int = choice(3, low=2, high=10, symbol="C", meaning="number of colours (tokens) of a site")
    bodies: int = choice(4, low=2, high=6, symbol="p", meaning="number of sites of the largest interacting groups")
    instance: int = choice(0, low=0, high=1_000_000, meaning="index of the random groups and U (random)")
    energy: str = choice("random", options=("random", "cosine"), meaning="how colours interact within a group")
    depth: int = choice(
        1, low=0, high=4, symbol="N",
        meaning="layers of the network trained in the simulation; 0 trains none")  # fmt: skip

    dimensions_declared = (dimension("order", "order of the interactions", symbol=r"p", kind="site"),)
    main_declared = ("floor", "optimal_loss", "network_loss")
    observables_declared = (
        observable("floor", "smallest masked-token loss (nats, mean over sites) with interactions of up to `order` bodies; "
                   "measured as the loss on the population of a fit to the drawn sequences",
                   symbol=r"\ell_p", dims=("order",), low=0, power=1),
        observable("optimal_loss", "masked-token loss of the true conditionals, measured on the drawn sequences",
                   symbol=r"\ell_*", low=0, status="exact"),
        observable("network_loss", "loss on the population of a network of `depth` layers trained on the drawn sequences",
                   low=0, predicted=False, when={"depth": (1, 2, 3, 4)}),
    )  # fmt: skip

    def validate(self) -> None:
        if self.bodies > self.sites:
            raise InvalidValue(f"bodies = {self.bodies} exceeds sites = {self.sites}, the length of a sequence.")
        if self.colours**self.sites > MOST_STATES:
            raise InvalidValue(
                f"colours = {self.colours} and sites = {self.sites} give more than {MOST_STATES} states, too many to enumerate."
            )
        weights = monomial_count(self.sites - 1, self.colours, self.bodies - 2) * (self.colours - 1)
        if weights > MOST_WEIGHTS:
            raise InvalidValue(
                f"bodies = {self.bodies} needs fits of {weights} weights at this size, more than the allowed {MOST_WEIGHTS}."
            )

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"order": np.arange(1, self.bodies + 1)}

    def law(self) -> SumOfBodies:
        """The law of the sequences at single values of the controls, ready for every sampler of `methods`."""
        parts = planted(self.energy, self.sites, self.colours, self.bodies, self.instance)
        beta = self.inverse_temperature
        scales = [beta, *[beta * self.lower_strength] * (len(parts) - 1)]
        return SumOfBodies(tuple(
            ManyBody.of_groups(self.sites, groups, jnp.asarray(table * strength), inverse_temperature=scale)
            for (groups, table, strength), scale in zip(parts, scales, strict=True)
        ))  # fmt: skip

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        probability = jnp.exp(log_probabilities(self.law()))
        tables = conditional_tables(probability, self.sites, self.colours)
        optimal = optimal_conditional_loss(tables)
        found = interaction_floors(
            probability, self.sites, self.colours, self.bodies - 1,
            tolerance=numerics.tolerance, most_steps=numerics.steps)  # fmt: skip
        # The energy has no groups larger than `bodies`, so conditionals of that order are the true ones.
        return {
            "floor": jnp.append(found.floors, optimal),
            "optimal_loss": optimal,
            "converged": jnp.all(found.converged),
            "residual": jnp.max(found.gaps),
        }

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: Array, size: int, counts: Any, dtype: Any) -> dict[str, Array]:
        draw, begin = jax.random.split(key)
        seen, optimal, probability = _sampled(self.law(), draw, size)
        floors, converged = _fitted(seen, probability, self.sites, self.colours, self.bodies)
        out = {"floor": floors, "optimal_loss": optimal}
        if self.depth:
            make = InteractionStack(self.colours, self.sites, self.depth, HEADS, WIDTH, begin)
            rule = Optimiser("adam", rate=RATE, steps=STEPS)
            rows = self._rows(seen / size)
            trained = train(make, _population_loss, rows, rule, STEPS, begin, record=[STEPS]).network
            out["network_loss"] = _measured(trained, self._rows(probability))
        return {n: v.astype(dtype) for n, v in out.items()} | {"converged": jnp.all(converged)}

    def _rows(self, probability: Array) -> tuple[Array, Array, Array]:
        tokens, masks, targets = population_rows(probability, self.sites, self.colours)
        return jnp.asarray(tokens), jnp.asarray(masks), jnp.asarray(targets, jnp.float32)


@eqx.filter_jit
def _sampled(law: SumOfBodies, key: Array, size: int) -> tuple[Array, Array, Array]:
    """Counts of every state, the loss of the true conditionals on the drawn sequences, and all probabilities."""
    probability = jnp.exp(log_probabilities(law))
    below = jnp.cumsum(probability)
    drawn = jnp.searchsorted(below, jax.random.uniform(key, (size,)) * below[-1])
    sequences = jnp.asarray(every_state(law.sites, law.colours))[drawn]
    return jnp.zeros(probability.size).at[drawn].add(1.0), law_loss(law, sequences), probability


@eqx.filter_jit
def _measured(network: Any, rows: Any) -> Array:
    return _population_loss(network, rows)


@eqx.filter_jit
def _fitted(seen: Array, probability: Array, sites: int, colours: int, bodies: int) -> tuple[Array, Array]:
    """Population loss of the fits of every order to counted states: tables over all groups of p−1 other sites."""
    contexts = every_state(sites - 1, colours)
    each = [
        group_features(contexts, colours, list(itertools.combinations(range(sites - 1), order - 1)))
        for order in range(1, bodies + 1)
    ]
    columns = max(f.shape[1] for f in each)
    features = jnp.asarray(np.stack([np.pad(f, ((0, 0), (0, columns - f.shape[1]))) for f in each]))
    counted, truth = (conditional_tables(p, sites, colours) for p in (seen, probability))

    def one(columns, counted, truth):
        fit = fit_softmax(columns, counted, penalty=RIDGE)
        return cross_entropy(columns, fit.weights, truth), fit.converged

    over_sites = jax.vmap(one, in_axes=(None, 0, 0))
    losses, converged = jax.vmap(over_sites, in_axes=(0, None, None))(features, counted, truth)
    return jnp.mean(losses, axis=1), converged
