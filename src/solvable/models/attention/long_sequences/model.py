r"""The order in which a network learns interactions: long sequences, compared with fits and clones of every order.

**Data.** `size` sequences of L sites and C colours with sparse random groups of two, three and four sites, one Gaussian
strength for every multiset of colours in a group (`laws.planted_law`), drawn by Gibbs sampling. All learners of one seed
get the same sequences.

**Learner.** Networks trained side by side in mini-batches to predict a hidden site: N layers of factored attention with
squares in between (`stack`, at most 2^{N−1} + 1 bodies), or a transformer (`encoder`).

**Theory.** No closed theory. Floors are fitted: laws of one, two and three bodies on the planted graph, by pseudo-likelihood
on separate sequences. Their losses bound the smallest loss of each order from above. Clones of order 1, 2, 3 are drawn from
these fits.

**Measured**, at about ten steps per decade: the masked loss on fresh sequences (clone 4) and on the clones; at the end the
loss above every floor, on the same sequences; how far each layer has moved, |ΔA|²/L + |ΔV|²/C (Rende et al. 2024). If
training diverges, its curve ends there. Law, fits and clones depend only on the fields of the law and are computed once
per process.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.methods.sequences.interactions import SumOfBodies, law_loss
from solvable.methods.sequences.monte_carlo import sample
from solvable.methods.training.loops import MaskedTokens, evaluate, masked_loss, train
from solvable.methods.training.squared_attention import InteractionStack, displacement
from solvable.model import Control, Count, FirstView, Guard, Model, choice, control, dimension, observable

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
from .laws import graph_fits, planted_law

FIT_BATCH, FIT_RATE, FIT_RIDGE = 1024, 0.03, 1e-8


class Judges(NamedTuple):
    """The reference for all networks trained on one law: clones, floors and fresh sequences."""

    law: SumOfBodies
    tests: tuple[Array, ...]
    """Clones of order one, two, three, drawn from the fits, and fresh sequences of the law."""
    floors: np.ndarray
    """Loss of the fits of one, two, three bodies and of the law itself on every fresh sequence."""
    fitted: np.ndarray
    """Their mean losses on sequences of the fits."""
    r_hat: tuple[float, ...]
    mixed: bool


_judging = Lock()


@lru_cache(maxsize=4)
def _judges(sites: int, colours: int, groups: int, strengths: tuple[float, ...], instance: int, tested: int, fitted: int,
            fit_steps: int, orders: int) -> Judges:  # fmt: skip
    law = planted_law(sites, colours, groups, dict(zip((2, 3, 4), strengths, strict=True)), instance)
    drawn = _drawn(law, jax.random.key(instance), fitted + tested)
    more, test = jnp.split(drawn.sequences, [fitted])
    fits = graph_fits(law, more, fit_steps, min(FIT_BATCH, fitted), FIT_RATE, FIT_RIDGE, orders)
    copies = [_drawn(fit, jax.random.key(order), tested) for order, fit in enumerate(fits, start=1)]
    runs = (*copies, drawn)
    return Judges(
        law,
        (*(c.sequences for c in copies), test),
        np.array([_losses_of(one, test) for one in (*fits, law)]),
        np.array([np.mean(_losses_of(one, more[:tested])) for one in (*fits, law)]),
        tuple(float(one.mixing.r_hat) for one in runs),
        all(one.mixed for one in runs),
    )


def _drawn(law: Any, key: Any, number: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the result itself reports whether chains mixed
        return sample(law, key, number, sweeps=64, most_sweeps=1024)


@eqx.filter_jit
def _losses_of(law: Any, sequences: Array) -> Array:
    """Masked loss of a law on every sequence."""
    return jax.lax.map(lambda one: law_loss(law, one[None]), sequences, batch_size=256)


def _by_sequence(network: Any, sequences: Array) -> Array:
    """Masked loss of a network on every sequence."""
    return jax.lax.map(lambda one: masked_loss(network, one[None]), sequences, batch_size=256)


class _Watch(eqx.Module):
    """Masked loss on several sets of sequences, every site hidden once, and displacements."""

    def __call__(self, tracked: Any, held_out: Any) -> dict[str, Array]:
        seen = {"loss": jnp.stack([masked_loss(tracked, one, 256) for one in held_out])}
        if isinstance(tracked.network, InteractionStack):
            seen["displacement"] = displacement(tracked.network, tracked.begin)
        return seen


class LongSequences(Model):
    """Networks learn long sequences with interactions of two, three and four bodies: floors, clones and displacements of layers.

    The `size` of a simulation is the number of training sequences.

    >>> import solvable as sv
    >>> small = {"sites": 5, "colours": 2, "groups": 3, "fitted": 500, "fit_steps": 10, "tested": 100}
    >>> seen = sv.LongSequences(**small, depth=1, steps=4, heads=1, width=2, networks=1).simulate(seed=0, size=200)
    >>> seen.loss.shape
    (5, 1, 4)
    """

    id = "long-sequences"
    title = "The order in which interactions of long sequences are learnt"
    family = "attention"
    sentence = (
        "Networks learn long sequences with sparse groups of two to four sites, compared with fitted floors and clones."
    )
    method = "no closed theory; floors by fits of every order"
    runs = "host"
    typical_sizes = (1_000, 4_000, 16_000)
    simulation_seconds = 8.0
    simulation_growth = 0.2
    first_view = FirstView(sizes=(4096,))  # as many chains as draw the sequences of the fits: one program for both
    arms_declared = MappingProxyType(
        {
            **{
                f"{depth} layer{'s' * (depth > 1)}, gradient descent": {
                    "depth": depth, "optimiser": "sgd", "rate": 1.0, "scale": 2.0, "clip": 1.0, "steps": 10_000
                }
                for depth in (1, 2, 3)
            },
            **{
                f"{depth} layer{'s' * (depth > 1)}, Adam": {"depth": depth, "rate": 1e-3, "scale": 2.0, "clip": 1.0}
                for depth in (1, 2, 3)
            },
            "encoder": {"learner": "encoder", "depth": 2, "heads": 4, "width": 64, "rate": 1e-3},
        }
    )  # fmt: skip
    paired = PAIRED
    guard = Guard(
        values={"sites": 5, "colours": 2, "groups": 3, "fitted": 100, "fit_steps": 3, "tested": 50, "depth": 1, "steps": 2,
                "heads": 1, "width": 2, "networks": 1, "batch": 8, "orders": 1},
        size=150, seeds=2,  # as many sequences as `fitted` and `tested` together, which one program draws
    )  # fmt: skip
    references = (SIMPLICITY,)

    pair_strength: Control = control(
        1.0, low=0.0, high=5.0, typical=(0.0, 1.5), meaning="strength of a group of two sites")  # fmt: skip
    triplet_strength: Control = control(
        0.75, low=0.0, high=5.0, typical=(0.0, 1.5), meaning="strength of a group of three sites")  # fmt: skip
    quadruplet_strength: Control = control(
        0.55, low=0.0, high=5.0, typical=(0.0, 1.5), meaning="strength of a group of four sites")  # fmt: skip
    rate: Control = rate_field(1e-3)
    scale: Control = scale_field()
    clip: Control = clip_field()
    sites: int = choice(10, low=4, high=200, symbol="L", meaning="length of a sequence")
    colours: int = choice(4, low=2, high=30, symbol="C", meaning="number of colours (tokens) of a site")
    groups: int = choice(8, low=1, high=1000, meaning="interacting groups of each order")
    instance: int = choice(0, low=0, high=1_000_000, meaning="index of the random law")
    learner: str = learner_field()
    depth: int = depth_field()
    optimiser: str = optimiser_field()
    decay: str = decay_field()
    heads: int = heads_field()
    width: int = choice(16, low=1, high=512, meaning="length of the inner vectors (of an encoder: of its embedding)")
    batch: int = choice(128, low=1, high=100_000, meaning="sequences per step")
    steps: int = choice(1000, low=1, high=10_000_000, meaning="steps of training")
    networks: int = networks_field()
    tested: int = choice(512, low=10, high=100_000, meaning="number of fresh sequences, and of those of each clone")
    fitted: int = choice(
        16_000, low=100, high=10_000_000, meaning="sequences to which the laws of lower order are fitted"
    )
    fit_steps: int = choice(300, low=1, high=1_000_000, meaning="steps of the fits")
    orders: int = choice(3, low=1, high=3, meaning="largest order to fit and clone")

    dimensions_declared = (
        STEP,
        dimension("network", "networks that differ in initial weights and batches"),
        CLONE,
        dimension("order", "order of the fitted law; 4 is the law itself", symbol="p", kind="site"),
        LAYER,
    )
    main_declared = ("loss", "floor", "above")
    observables_declared = (
        observable("loss", "masked loss on fresh sequences and on clones", dims=("step", "network", "clone"), low=0,
                   predicted=False),
        DISPLACEMENT,
        observable("floor", "loss of the fitted law of every order on fresh sequences", symbol=r"\ell_p", dims=("order",),
                   low=0, predicted=False),
        observable("floor_fitted", "the same on sequences of the fit", dims=("order",), low=0, predicted=False),
        observable("above", "loss at the end above every floor, on the same sequences", dims=("network", "order"),
                   predicted=False),
        observable("above_error", "its standard error over sequences", dims=("network", "order"), low=0, predicted=False),
        observable("r_hat", "R̂ of the chains that drew the clones and the fresh sequences", dims=("clone",), low=0,
                   predicted=False),
    )  # fmt: skip

    def validate(self) -> None:
        check_heads(self)

    def coordinates(self) -> dict[str, np.ndarray]:
        orders = np.array([*range(1, self.orders + 1), 4])
        return {"step": evaluated_steps(self.steps), "network": np.arange(self.networks), "clone": orders, "order": orders,
                "layer": np.arange(1, self.depth + 1)}  # fmt: skip

    def judges(self) -> Judges:
        """Floors and clones of this law."""
        strengths = tuple(float(s) for s in (self.pair_strength, self.triplet_strength, self.quadruplet_strength))
        with _judging:
            return _judges(self.sites, self.colours, self.groups, strengths, self.instance, self.tested, self.fitted,
                           self.fit_steps, self.orders)  # fmt: skip

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        judges = self.judges()
        to_draw, to_learn = jax.random.split(key)
        drawn = _drawn(judges.law, to_draw, size)
        starts, batches = run_keys(to_learn, self.networks)
        begin = networks(starts, self.learner, self.colours, self.sites, self.depth, self.heads, self.width,
                         jnp.asarray(self.scale, jnp.float32))  # fmt: skip
        run = train(
            begin, MaskedTokens(self.batch), drawn.sequences, optimiser(self), self.steps, batches,
            record=evaluated_steps(self.steps), measure=_Watch(), held_out=judges.tests,
            precision="default",
        )  # fmt: skip
        ends = np.asarray(evaluate(run.network, _by_sequence, judges.tests[-1], True))
        above = ends[:, None] - judges.floors  # on the same sequences, so that their difficulty cancels
        seen = {
            **run.measures,
            "floor": judges.floors.mean(1),
            "floor_fitted": judges.fitted,
            "above": above.mean(-1),
            "above_error": above.std(-1, ddof=1) / np.sqrt(self.tested),
            "r_hat": np.array(judges.r_hat),
        }
        mixed = jnp.asarray(judges.mixed and drawn.mixed)
        return {n: jnp.asarray(v, dtype) for n, v in seen.items()} | {"converged": mixed}
