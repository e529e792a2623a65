r"""The order in which a network learns interactions: short sequences, with exact losses and exact clones.

**Data.** `size` sequences of L sites and C colours, drawn from a law with interactions of several orders: `pure`, with
pairs, triplets and quadruplets of equal strength β whose tables sum to zero over each colour, so that no order
contains lower ones; or `planted`, the four-body law of `many-body` at inverse temperature β. All states can be enumerated:
a million sequences represent the law itself to about 10⁻⁴ nats.

**Learner.** Networks trained side by side to predict a hidden site, each step on all drawn sequences: N layers of factored
attention with squares in between (`stack`, at most 2^{N−1} + 1 bodies), or a transformer (`encoder`).

**Theory.** No closed theory of the training; the floors of every order are those of `many-body`. A *clone* of order p is the
law of largest entropy with the same joint law of every p sites.

**Measured**, at about ten steps per decade and exactly, by enumerating all states: the loss on the law (clone 4) and on its
clones of order 1, 2, 3; the share of the p-body part of the true logits that the network has learnt; how far each layer
has moved, |ΔA|²/L + |ΔV|²/C (Rende et al. 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.sequences.interactions import (
    PopulationLoss,
    SumOfBodies,
    conditional_tables,
    log_probabilities,
    maximum_entropy,
    optimal_conditional_loss,
    order_components,
    population_rows,
)
from solvable.methods.training.loops import train
from solvable.methods.training.squared_attention import InteractionStack, displacement
from solvable.model import Control, Count, Guard, Model, choice, control, dimension, observable

from .._interactions import (
    CLONE,
    DISPLACEMENT,
    LAYER,
    PAIRED,
    SIMPLICITY,
    STEP,
    check_heads,
    clip_field,
    decay_field,
    depth_field,
    evaluated_steps,
    heads_field,
    learner_field,
    networks,
    networks_field,
    optimiser,
    optimiser_field,
    rate_field,
    run_keys,
    scale_field,
)
from ..long_sequences.laws import pure_law
from ..many_body.model import ManyBodyBias

MOST_STATES = 2_000
BODIES = (2, 3, 4)


class Known(NamedTuple):
    """A law, and its clones of order one, two, three and four (itself), by the probabilities of all states."""

    probability: np.ndarray
    clones: tuple[np.ndarray, ...]
    optimal: np.ndarray
    """Loss of the true conditionals of every clone."""
    truth: np.ndarray
    """The true logits, split into parts of two, three and four bodies."""


@lru_cache(maxsize=8)
def known(law: str, sites: int, colours: int, instance: int, inverse_temperature: float) -> Known:
    """The law given by these fields, with its clones."""
    made: SumOfBodies
    if law == "pure":
        made = pure_law(sites, colours, dict.fromkeys(BODIES, inverse_temperature), instance)
    else:
        made = ManyBodyBias(
            sites=sites, colours=colours, instance=instance, inverse_temperature=inverse_temperature, depth=0
        ).law()
    probability = np.asarray(jnp.exp(log_probabilities(made)), float)
    clones = [np.asarray(maximum_entropy(probability, sites, colours, p, tolerance=1e-10)) for p in (1, 2, 3)]
    clones = (*clones, probability)
    optimal = [float(optimal_conditional_loss(conditional_tables(jnp.asarray(q), sites, colours))) for q in clones]
    logits = jnp.log(jnp.asarray(population_rows(probability, sites, colours)[2]))
    parts = np.asarray(order_components(logits, sites, colours, 4))[1:]
    return Known(probability, clones, np.array(optimal), parts)


def rows_of(probability: Any, sites: int, colours: int) -> tuple[Array, Array, Array]:
    """Every state with every site hidden once, and how probable it is."""
    tokens, masks, targets = population_rows(probability, sites, colours)
    return jnp.asarray(tokens), jnp.asarray(masks), jnp.asarray(targets, jnp.float32)


class _Watch(eqx.Module):
    """Exact losses on a law and its clones, the share of every order in the true logits, and displacements."""

    sites: int = eqx.field(static=True)
    colours: int = eqx.field(static=True)

    def __call__(self, tracked: Any, held_out: Any) -> dict[str, Array]:
        tokens, masks, targets, truth = held_out
        logits = jnp.sum(jnp.where(masks[:, :, None], jax.vmap(tracked)(tokens, masks), 0.0), axis=1)
        losses = -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1)[None], axis=(1, 2))
        parts = order_components(logits, self.sites, self.colours, 4)[1:]
        size = jnp.sum(truth**2, axis=(1, 2))
        share = 1.0 - jnp.sum((parts - truth) ** 2, axis=(1, 2)) / size
        seen = {"loss": losses, "share": jnp.where(size > 1e-9 * jnp.sum(size), share, jnp.nan)}
        if isinstance(tracked.network, InteractionStack):
            seen["displacement"] = displacement(tracked.network, tracked.begin)
        return seen


_loss = PopulationLoss()


class ShortSequences(Model):
    """Networks learn short sequences with interactions of two, three and four bodies: when each order is learnt.

    The `size` of a simulation is the number of sequences drawn; a million represent the law itself.

    >>> import solvable as sv
    >>> model = sv.ShortSequences(sites=4, colours=2, depth=1, steps=20, networks=1)
    >>> seen = model.simulate(seed=0, size=10_000)
    >>> bool(seen.loss[-1, 0, 3] < seen.loss[0, 0, 3])
    True
    """

    id = "short-sequences"
    title = "The order in which interactions are learnt, exactly"
    family = "attention"
    sentence = (
        "Networks learn short sequences with interactions of several orders: exact losses on the law and its clones."
    )
    method = "no closed theory; exact losses, and the floors of many-body"
    runs = "host"
    typical_sizes = (10_000, 100_000, 1_000_000)
    simulation_seconds = 0.6
    simulation_growth = 0.1
    arms_declared = MappingProxyType(
        {
            "stack, gradient descent": {"optimiser": "sgd", "decay": "constant", "rate": 0.3, "scale": 2.0},
            "stack, Adam": {"decay": "constant", "rate": 3e-3},
            "encoder, Adam": {"learner": "encoder", "decay": "constant", "rate": 1e-3, "width": 32},
            "1 layer": {"depth": 1, "rate": 5e-3},
            "2 layers": {"depth": 2, "rate": 5e-3},
            "3 layers": {"depth": 3, "rate": 5e-3},
        }
    )
    paired = PAIRED
    guard = Guard(
        values={"sites": 4, "colours": 2, "depth": 1, "steps": 4, "heads": 1, "width": 2, "networks": 2},
        size=100,
        seeds=2,
    )
    references = (SIMPLICITY,)

    inverse_temperature: Control = control(
        0.4, low=0.0, low_open=True, high=3.0, typical=(0.1, 1.5), symbol=r"\beta",
        meaning="strength of every order (pure), or inverse temperature (planted)")  # fmt: skip
    rate: Control = rate_field(5e-3)
    scale: Control = scale_field()
    clip: Control = clip_field()
    law: str = choice("pure", options=("pure", "planted"), meaning="law of the interactions")
    sites: int = choice(5, low=4, high=8, symbol="L", meaning="length of a sequence")
    colours: int = choice(3, low=2, high=5, symbol="C", meaning="number of colours (tokens) of a site")
    instance: int = choice(1, low=0, high=1_000_000, meaning="index of the random law")
    learner: str = learner_field()
    depth: int = depth_field()
    optimiser: str = optimiser_field()
    decay: str = decay_field()
    heads: int = heads_field()
    width: int = choice(12, low=1, high=256, meaning="length of the inner vectors (of an encoder: of its embedding)")
    steps: int = choice(200, low=1, high=1_000_000, meaning="steps, each on all drawn sequences")
    networks: int = networks_field()

    dimensions_declared = (
        STEP,
        dimension("network", "networks that differ in their initial weights"),
        CLONE,
        dimension("bodies", "number of interacting sites", symbol="p", kind="label"),
        LAYER,
    )
    main_declared = ("loss", "share", "clone_optimal")
    observables_declared = (
        observable("loss", "masked loss on the law and on its clones, exact", dims=("step", "network", "clone"), low=0,
                   predicted=False),
        observable("share", "learnt share of the part of the true logits with this many bodies", high=1,
                   dims=("step", "network", "bodies"), predicted=False),
        DISPLACEMENT,
        observable("clone_optimal", "loss of the true conditionals of a clone on itself", dims=("clone",), low=0,
                   predicted=False),
    )  # fmt: skip

    def validate(self) -> None:
        if self.colours**self.sites > MOST_STATES:
            raise InvalidValue(
                f"colours = {self.colours} and sites = {self.sites} give more than {MOST_STATES} states, too many to enumerate."
            )
        check_heads(self)

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"step": evaluated_steps(self.steps), "network": np.arange(self.networks), "clone": np.arange(1, 5),
                "bodies": np.array(BODIES), "layer": np.arange(1, self.depth + 1)}  # fmt: skip

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        beta, shape = float(self.inverse_temperature), (self.sites, self.colours)
        law = known(self.law, *shape, self.instance, beta)
        to_draw, to_learn = jax.random.split(key)
        tokens, masks, targets = rows_of(_drawn(to_draw, law.probability, size), *shape)
        several = jnp.stack([rows_of(q, *shape)[2] for q in law.clones])
        starts, batches = run_keys(to_learn, self.networks)
        begin = networks(starts, self.learner, self.colours, self.sites, self.depth, self.heads, self.width,
                         jnp.asarray(self.scale, jnp.float32))  # fmt: skip
        run = train(
            begin, _loss, (tokens, masks, targets), optimiser(self), self.steps, batches, record=evaluated_steps(self.steps),
            measure=_Watch(*shape), held_out=(tokens, masks, several, jnp.asarray(law.truth, jnp.float32)),
        )  # fmt: skip
        seen = {name: jnp.asarray(v, dtype) for name, v in run.measures.items()}
        return seen | {"clone_optimal": jnp.asarray(law.optimal, dtype)}


def _drawn(key: PRNGKeyArray, probability: np.ndarray, size: int) -> Float[np.ndarray, " states"]:
    """Frequencies of all states in a sample of independent sequences."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return rng.multinomial(size, probability / probability.sum()) / size
